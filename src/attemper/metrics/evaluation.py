"""All metrics at once: one check of the input, one set of resamples."""

from __future__ import annotations

import math
from typing import Any, TypeVar, overload

from attemper._table import Columns, Table
from attemper.metrics.bins import Bins
from attemper.metrics.bootstrap import estimate_all
from attemper.metrics.calibration import classwise_ece, ece, mce, mmce
from attemper.metrics.decomposition import decomposition_statistics
from attemper.metrics.intervals import Estimate
from attemper.metrics.metric import of_predictions
from attemper.metrics.predictions import Predictions
from attemper.metrics.proper import accuracy, brier, nll
from attemper.metrics.smooth import smooth_ece

__all__ = ["Evaluation", "evaluate", "evaluate_predictions"]

Value = TypeVar("Value", bound=float | Estimate)


class Evaluation(Table, dict[str, Value]):
    """Metrics by name: a dict, with ``to_pandas()``. `evaluate` returns it.

    >>> Evaluation(nll=0.51234, ece=Estimate(0.02, 0.01, 0.03))
    Evaluation(nll=0.5123, ece=0.02)
    """

    def __repr__(self) -> str:
        values = (f"{name}={value[0] if isinstance(value, tuple) else value:.4g}" for name, value in self.items())
        return f"{type(self).__name__}({', '.join(values)})"

    def _table_columns(self) -> Columns:
        found: dict[str, list[Any]] = {"metric": list(self), "value": list(self.values())}
        if not any(isinstance(value, Estimate) for value in self.values()):
            return found
        numbers = {name: [getattr(value, name, None) for value in self.values()] for name in ("chance", "p_value")}
        found |= {name: [math.nan if v is None else v for v in values] for name, values in numbers.items()}
        return found | {"note": [getattr(value, "note", "") for value in self.values()]}

    def _html_columns(self) -> Columns:
        columns = self._table_columns()
        return {name: values for name, values in columns.items() if any(v == v and v != "" for v in values)}


@overload
def evaluate(labels: Any, probs: Any = None, *, confidence_level: None = None, **options: Any) -> Evaluation[float]: ...
@overload
def evaluate(labels: Any, probs: Any = None, *, confidence_level: float, **options: Any) -> Evaluation[Estimate]: ...
@overload
def evaluate(
    labels: Any, probs: Any = None, *, confidence_level: float | None, **options: Any
) -> Evaluation[float] | Evaluation[Estimate]: ...
@of_predictions
def evaluate(
    p: Predictions,
    *,
    n_bins: Bins = 15,
    confidence_level: float | None = None,
    n_resamples: int = 1000,
    seed: int = 0,
) -> Any:
    """Every metric by its name; each value is what the function of that name returns.

    ``ece_quantile`` is `ece` with ``strategy="quantile"``; ``miscalibration``, ``discrimination`` and ``uncertainty``
    are those of the Brier score (`decompose`). Parameters as in `nll` and `ece`.

    Examples
    --------
    >>> metrics = evaluate([0, 1, 0], [[0.9, 0.1], [0.2, 0.8], [0.3, 0.7]])
    >>> list(metrics)[:6]
    ['accuracy', 'nll', 'brier', 'miscalibration', 'discrimination', 'uncertainty']
    >>> list(metrics)[6:]
    ['ece', 'ece_quantile', 'smooth_ece', 'classwise_ece', 'mce', 'mmce']
    >>> round(metrics["brier"], 4)
    0.36
    """
    return evaluate_predictions(p, confidence_level, n_bins=n_bins, n_resamples=n_resamples, seed=seed, more=True)


def evaluate_predictions(
    p: Predictions,
    confidence_level: float | None,
    *,
    n_bins: Bins = 15,
    n_resamples: int = 1000,
    seed: int = 0,
    more: bool = False,
) -> Evaluation[float] | Evaluation[Estimate]:
    """Evaluate predictions that were checked before; ``more``: also by what takes longer."""
    statistics = {"accuracy": accuracy.statistic(p), "nll": nll.statistic(p), "brier": brier.statistic(p)}
    if more:
        parts = decomposition_statistics(p, "brier", "classwise")
        statistics |= {name: part for name, part in parts.items() if name != "score"}
    statistics |= {
        "ece": ece.statistic(p, n_bins=n_bins),
        "ece_quantile": ece.statistic(p, n_bins=n_bins, strategy="quantile"),
    }
    if more:
        statistics["smooth_ece"] = smooth_ece.statistic(p)
    statistics |= {
        "classwise_ece": classwise_ece.statistic(p, n_bins=n_bins),
        "mce": mce.statistic(p, n_bins=n_bins),
        "mmce": mmce.statistic(p),
    }
    if confidence_level is None:
        return Evaluation({name: statistic.at(p.weights) for name, statistic in statistics.items()})
    return Evaluation(estimate_all(statistics, p.weights, confidence_level, n_resamples, seed, p.clusters))
