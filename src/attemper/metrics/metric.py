"""What all metrics share: the order of the arguments, what they take, and when they return an interval."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Any, Concatenate, Protocol, TypeVar, cast, overload

from numpy.typing import ArrayLike

from attemper._checks import renamed
from attemper.data.scores import Scores
from attemper.errors import InputTypeError
from attemper.metrics.bootstrap import Statistic, estimate
from attemper.metrics.intervals import Estimate
from attemper.metrics.predictions import Input, Predictions

__all__ = ["Metric", "checked", "metric"]

R = TypeVar("R")


class Metric(Protocol):
    """A metric: a float, or with ``confidence_level`` an `Estimate`."""

    __name__: str
    statistic: Callable[..., Statistic]  # the metric of `Predictions`, as a function of the sample weights

    @overload
    def __call__(
        self,
        labels: ArrayLike | Any,
        probs: ArrayLike | Any,
        *args: Any,
        input: Input = "probs",
        sample_weight: ArrayLike | None = None,
        confidence_level: None = None,
        n_resamples: int = 1000,
        seed: int = 0,
        **options: Any,
    ) -> float: ...

    @overload
    def __call__(
        self,
        labels: ArrayLike | Any,
        probs: ArrayLike | Any,
        *args: Any,
        input: Input = "probs",
        sample_weight: ArrayLike | None = None,
        confidence_level: float,
        n_resamples: int = 1000,
        seed: int = 0,
        **options: Any,
    ) -> Estimate: ...


def metric(statistic: Callable[Concatenate[Predictions, ...], Statistic]) -> Metric:
    """Make a metric out of a function of `Predictions` and of options of its own."""

    def measure(
        labels: ArrayLike | Any,
        probs: ArrayLike | Any,
        *args: Any,
        input: Input = "probs",
        sample_weight: ArrayLike | None = None,
        confidence_level: float | None = None,
        n_resamples: int = 1000,
        seed: int = 0,
        **options: Any,
    ) -> float | Estimate:
        if len(args) > n_positional:  # statistic would count its own arguments
            takes = f"{name}() takes {n_positional + 2} positional arguments but {len(args) + 2} were given"
            raise TypeError(f"{takes}; pass the others by name")
        p = Predictions.of(labels, probs, sample_weight, input=input)
        found = statistic(p, *args, **options)
        if confidence_level is None:
            return found.at(p.weights)
        return estimate(found, p.weights, confidence_level, n_resamples, seed)

    name = statistic.__name__
    own = list(inspect.signature(statistic).parameters.values())[1:]
    n_positional = sum(p.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD for p in own)
    # What help() and the reference show: labels and probs, the metric's own options, the shared ones.
    shared = [p for p in inspect.signature(measure).parameters.values() if p.kind not in VARIADIC]
    order = sorted([*shared[:2], *own, *shared[2:]], key=lambda p: p.kind)
    found: Any = checked(wraps(statistic)(measure))
    found.__signature__, found.statistic = inspect.Signature(order), statistic
    return cast(Metric, found)


VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def checked(function: Callable[..., R]) -> Callable[..., R]:
    """Make a function of labels and probabilities refuse a `Scores`, and name what old keywords are called now."""

    @renamed(log_probs='input="log_probs"', interval="confidence_level", binning="strategy")
    @wraps(function)
    def refusing(*args: Any, **options: Any) -> R:
        if any(isinstance(value, Scores) for value in (*args, *options.values())):
            raise InputTypeError(
                "probs: expected an N×K array, got a Scores. Use scores.labels and calibrator.predict_proba(scores); "
                "without a calibrator scores.values with input=scores.input."
            )
        return function(*args, **options)

    return refusing
