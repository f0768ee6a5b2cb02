"""All metrics at once: one check of the input, one set of resamples."""

from __future__ import annotations

from typing import Any

from numpy.typing import ArrayLike

from attemper.metrics.bootstrap import estimate_all
from attemper.metrics.calibration import ece_of, mmce_of
from attemper.metrics.intervals import Estimate
from attemper.metrics.predictions import Predictions, metric
from attemper.metrics.proper import accuracy_of, brier_of, nll_of

__all__ = ["evaluate"]


@metric
def evaluate(
    probs: ArrayLike | Any,
    labels: ArrayLike | Any,
    *,
    log_probs: bool = False,
    n_bins: int = 15,
    sample_weight: ArrayLike | None = None,
    interval: float | None = None,
    n_resamples: int = 1000,
    seed: int = 0,
) -> dict[str, float | Estimate]:
    """Every metric by its name; each value is what the function of that name returns.

    ``ece_mass`` is `ece` with ``binning="mass"``. Parameters as in `nll` and `ece`.

    Examples
    --------
    >>> metrics = evaluate([[0.9, 0.1], [0.2, 0.8], [0.3, 0.7]], [0, 1, 0])
    >>> list(metrics)
    ['accuracy', 'nll', 'brier', 'ece', 'ece_mass', 'classwise_ece', 'mce', 'mmce']
    >>> round(metrics["brier"], 4)
    0.36
    """
    p = Predictions.of(probs, labels, sample_weight, log_probs=log_probs)
    statistics = {
        "accuracy": accuracy_of(p),
        "nll": nll_of(p),
        "brier": brier_of(p),
        "ece": ece_of(p, n_bins=n_bins),
        "ece_mass": ece_of(p, n_bins=n_bins, binning="mass"),
        "classwise_ece": ece_of(p, "classwise", n_bins),
        "mce": ece_of(p, n_bins=n_bins, norm="max"),
        "mmce": mmce_of(p),
    }
    return estimate_all(statistics, p.weights, interval, n_resamples, seed)
