"""Which samples to label for an evaluation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attemper._checks import whole
from attemper._table import Table
from attemper._typing import Floats
from attemper.calibrators.base import Calibrator
from attemper.data.arrays import one_line
from attemper.errors import InputError
from attemper.planning.pilot import Pilot

__all__ = ["ChosenSamples", "choose_samples"]

# The rest is in proportion to the standard deviation of "right or wrong" that the confidence predicts. With 0.2 a
# confident error, where networks are not calibrated, has a weight that spoils the NLL: sets of benchmarks/planning.py.
UNIFORM_SHARE = 0.5


@dataclass(frozen=True, eq=False, repr=False)
class ChosenSamples(Table):
    """Samples to label, and the weight that each has in an evaluation: what `choose_samples` returns."""

    __repr__ = one_line

    row: NDArray[np.int64]  # ascending
    weight: Floats  # their mean is 1


def choose_samples(pool: Any, n_samples: int, *, calibrator: Calibrator | None = None, seed: int = 0) -> ChosenSamples:
    """Draw the samples to label for an evaluation: more of the uncertain ones, with weights that correct for it.

    Accuracy, Brier score and ECE of the labelled samples, with their weights, are closer to those of the whole pool
    than with samples drawn at random (docs/planning.md has the figures, and where there is no gain). The draw does not
    depend on labels, and every sample can be drawn, so that the result is not biased.

    A sample of confidence c is drawn with a probability in proportion to 1/2 + √(c (1 − c)) / (2 · its mean), which is
    halfway to Neyman's allocation of 1934, and systematically along the confidence (Madow 1949), which stratifies by
    it. The weights are one over that probability (Horvitz and Thompson 1952).

    For a *fit* draw samples at random. No choice was better than that throughout.

    Parameters
    ----------
    pool : Scores, or logits of shape (N, K)
        All samples that could be labelled; labels are ignored.
    n_samples : int
        How many to choose, fewer than N.
    calibrator : Calibrator, optional
        A fitted map: use the confidence that it returns.
    seed : int

    Returns
    -------
    ChosenSamples
        ``row`` and ``weight``; pass the latter as ``sample_weight``.

    Examples
    --------
    >>> from attemper import datasets, metrics
    >>> data = datasets.load()
    >>> chosen = choose_samples(data.test_logits, 200)
    >>> h, y = data.test_logits[chosen.row], data.test_labels[chosen.row]  # these labels are paid for
    >>> found = metrics.accuracy(y, h, input="logits", sample_weight=chosen.weight, confidence_level=0.95)
    >>> found.low < 0.77 < found.high  # that of the pool
    True
    """
    whole("seed", seed, at_least=0)
    p = Pilot.of(pool)
    if p.scores.repeated is not None:
        raise InputError("pool: soft labels make several rows of one sample. Use a pool without labels.")
    size = len(p.weights)
    whole("n_samples", n_samples)
    if n_samples >= size:
        raise InputError(
            f"{'n_samples'}={n_samples!r}: expected fewer than the {size} samples of the pool", param="n_samples"
        )
    confidence = np.minimum(np.exp(p.log_probs(calibrator).max(axis=1)), 1.0)
    spread = np.sqrt(confidence * (1 - confidence)) * size * p.weights
    share = UNIFORM_SHARE * size * p.weights + (1 - UNIFORM_SHARE) * spread / max(float(spread.mean()), 1e-300)
    drawn = _inclusion(share, n_samples)
    rng = np.random.default_rng(seed)
    order = np.lexsort((rng.random(size), confidence))
    reached = np.cumsum(drawn[order])
    at = np.searchsorted(reached, np.minimum(rng.random() + np.arange(n_samples), reached[-1] * (1 - 1e-12)), "right")
    rows = np.sort(order[np.minimum(at, size - 1)])
    weight = p.weights[rows] / drawn[rows]
    return ChosenSamples(rows, weight / weight.mean())


def _inclusion(share: Floats, n: int) -> Floats:
    """Probability of each sample to be among n, in proportion to its share; those that would pass 1 are taken.

    >>> _inclusion(np.array([8.0, 1.0, 1.0]), 2)
    array([1. , 0.5, 0.5])
    """
    found, free = np.zeros(len(share)), np.ones(len(share), dtype=bool)
    while True:
        left = n - (len(share) - int(free.sum()))
        found[free] = left * share[free] / max(float(share[free].sum()), 1e-300)
        over = free & (found > 1)
        if not over.any():
            return np.minimum(found, 1.0)
        found[over], free = 1.0, free & ~over
