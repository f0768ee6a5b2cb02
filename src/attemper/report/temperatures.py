"""Reliability at every position of the temperature slider."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from attemper.arrays import Floats
from attemper.metrics.intervals import wilson
from attemper.report.methods import N_BINS, Said, chunks, weights
from attemper.report.numbers import bare
from attemper.scores import Scores

__all__ = ["grid", "table_of", "tables"]

STEPS = 61
REACH = 4.0  # the slider goes this many times beyond 1 and the fitted temperature
MOST_EXPONENTIALS = 2e9  # about ten seconds


def grid(fitted: Sequence[float]) -> Floats:
    """Temperatures of the slider, evenly spaced in log T; 1 and the fitted ones are among them.

    >>> t = grid([2.5])
    >>> len(t), float(t[0]), float(t[-1]), {1.0, 2.5} <= set(t.tolist())
    (63, 0.25, 10.0, True)
    """
    marked = [1.0, *fitted]
    low, high = min(marked) / REACH, max(marked) * REACH
    even = np.exp(np.linspace(math.log(low), math.log(high), STEPS))
    even[0], even[-1] = low, high
    # One that is all but equal to a marked one would be a step that shows nothing.
    apart = [t for t in even.tolist() if all(abs(math.log(t / m)) > 1e-3 for m in marked)]
    return np.array(sorted({*apart, *marked}))


def tables(test: Scores, fitted: dict[str, float], interval: float) -> dict[str, Any]:
    """NLL, ECE, mean confidence and the reliability bins at each temperature of the grid.

    ``fitted`` names temperatures that get a mark on the slider. Of very large data an even sample is taken.
    """
    t = grid(list(fitted.values()))
    part = test.sample(max(1000, int(MOST_EXPONENTIALS / (len(t) * test.n_classes))))
    sums, losses = _sums(part, 1 / t)
    w = weights(part)
    total, worth = float(w.sum()), float(w.sum() / (w @ w))
    return {
        "n": len(part),
        "values": t.tolist(),
        "labels": [bare(value) for value in t],
        "marks": {method: int(np.argmin(np.abs(t - value))) for method, value in {"none": 1.0, **fitted}.items()},
        "states": [_state(sums[i], losses[i] / total, interval, worth) for i in range(len(t))],
    }


def table_of(one: Said, w: Floats, interval: float) -> dict[str, Any]:
    """Return the same for a method that is not one temperature."""
    bins = np.searchsorted(np.arange(1, N_BINS) / N_BINS, one.confidence, side="left")
    values = (w, w * one.confidence, w * one.right)
    sums = np.array([np.bincount(bins, v, minlength=N_BINS) for v in values])
    counts = w > 0
    return _state(sums, float(w[counts] @ one.loss[counts] / w.sum()), interval, float(w.sum() / (w @ w)))


def _state(sums: Floats, nll: float, interval: float, worth: float) -> dict[str, Any]:
    """Write one state; ``worth`` is how many samples a unit of weight is worth (Kish)."""
    n, confidence, right = sums
    low, high = wilson(worth * right, worth * n, interval)
    with np.errstate(invalid="ignore", divide="ignore"):
        columns = np.stack([n, confidence / n, right / n, low, high], axis=-1)
    return {
        "nll": float(nll) if math.isfinite(nll) else None,
        "ece": float(np.abs(right - confidence).sum() / n.sum()),
        "accuracy": float(right.sum() / n.sum()),
        "confidence": float(confidence.sum() / n.sum()),
        # An empty bin is [0].
        "bins": [[float(v) for v in cell] if cell[0] > 0 else [0.0] for cell in columns],
    }


def _sums(test: Scores, betas: Floats) -> tuple[Floats, Floats]:
    """Per temperature and bin the sums of weight, confidence and right answers; per temperature that of the losses."""
    assert test.labels is not None
    w_all = weights(test)
    sums, losses = np.zeros((len(betas), 3, N_BINS)), np.zeros(len(betas))
    inner = np.arange(1, N_BINS) / N_BINS
    for part, h in chunks(test):
        y, w = test.labels[part], w_all[part]
        right = w * (h.argmax(axis=1) == y)
        d = h - h.max(axis=1, keepdims=True)
        of_label = d[np.arange(len(d)), y]
        e = np.empty_like(d)
        for i, beta in enumerate(betas):
            np.multiply(d, beta, out=e)
            z = np.exp(e, out=e).sum(axis=1)
            confidence = 1 / z
            bins = np.searchsorted(inner, confidence, side="left")
            for j, values in enumerate((w, w * confidence, right)):
                sums[i, j] += np.bincount(bins, values, minlength=N_BINS)
            losses[i] += w @ (np.log(z) - beta * of_label)
    return sums, losses
