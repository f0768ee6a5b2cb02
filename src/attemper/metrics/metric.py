"""What all metrics share: the order of the arguments, what they take, and when they return an interval."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Any, Concatenate, Protocol, TypeVar, cast, overload

from attemper.metrics.bootstrap import Statistic, estimate
from attemper.metrics.intervals import Estimate
from attemper.metrics.predictions import Predictions

__all__ = ["Metric", "metric", "of_predictions"]

R = TypeVar("R")

VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


class Metric(Protocol):
    """A metric: a float, or with ``confidence_level`` an `Estimate`. Other options are those of `Predictions.of`."""

    __name__: str
    statistic: Callable[..., Statistic]  # the metric of `Predictions`, as a function of the sample weights

    @overload
    def __call__(
        self,
        labels: Any,
        probs: Any = None,
        *args: Any,
        confidence_level: None = None,
        n_resamples: int = 1000,
        seed: int = 0,
        **options: Any,
    ) -> float: ...

    @overload
    def __call__(
        self,
        labels: Any,
        probs: Any = None,
        *args: Any,
        confidence_level: float,
        n_resamples: int = 1000,
        seed: int = 0,
        **options: Any,
    ) -> Estimate: ...


def metric(statistic: Callable[Concatenate[Predictions, ...], Statistic]) -> Metric:
    """Make a metric out of a function of `Predictions` and of options of its own."""

    def measure(
        p: Predictions,
        *args: Any,
        confidence_level: float | None = None,
        n_resamples: int = 1000,
        seed: int = 0,
        **options: Any,
    ) -> float | Estimate:
        found = statistic(p, *args, **options)
        if confidence_level is None:
            return found.at(p.weights)
        return estimate(found, p.weights, confidence_level, n_resamples, seed, p.clusters)

    intervals = [p for p in _parameters(measure)[1:] if p.kind not in VARIADIC]
    _sign(wraps(statistic)(measure), [*_parameters(statistic), *intervals])
    found: Any = of_predictions(measure)
    found.statistic = statistic
    return cast(Metric, found)


def of_predictions(function: Callable[Concatenate[Predictions, ...], R]) -> Callable[..., R]:
    """Make a function of labels and probabilities out of one of `Predictions`, with the options of `Predictions.of`."""
    own = _parameters(function)[1:]
    n_positional = sum(p.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD for p in own)
    reading = _parameters(Predictions.of)
    names = [p.name for p in reading[2:]]

    @wraps(function)
    def measure(labels: Any, probs: Any = None, *args: Any, **options: Any) -> R:
        if len(args) > n_positional:  # the function would count its own arguments
            takes = (
                f"{function.__name__}() takes {n_positional + 2} positional arguments but {len(args) + 2} were given"
            )
            raise TypeError(f"{takes}; pass the others by name")
        read = {name: options.pop(name) for name in names if name in options}
        return function(Predictions.of(labels, probs, **read), *args, **options)

    # What help() and the reference show: labels and probs, the options of the function, those of all.
    by_name = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in reading[2:]]
    if any(p.default is p.empty for p in own):
        reading[1] = reading[1].replace(default=inspect.Parameter.empty)
    _sign(measure, [*reading[:2], *own, *by_name])
    return measure


def _parameters(function: Callable[..., Any]) -> list[inspect.Parameter]:
    return list(inspect.signature(function).parameters.values())


def _sign(function: Any, parameters: list[inspect.Parameter]) -> None:
    function.__signature__ = inspect.Signature(sorted(parameters, key=lambda p: p.kind))
