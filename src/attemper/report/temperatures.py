"""Reliability at every position of the temperature slider."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from attemper._typing import Floats
from attemper.data.scores import LabelledScores
from attemper.kernels.softmax import rest, split
from attemper.metrics import Reliability, nll
from attemper.metrics.bins import bin_sums
from attemper.metrics.predictions import Predictions
from attemper.report.numbers import bare

__all__ = ["grid", "table_of", "tables"]

N_BINS = 15
EDGES = np.arange(N_BINS + 1) / N_BINS
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


def tables(
    test: LabelledScores, fitted: dict[str, float], confidence_level: float, design_effect: float = 1.0
) -> dict[str, Any]:
    """NLL, ECE, mean confidence and the reliability bins at each temperature of the grid.

    ``fitted`` names temperatures that get a mark on the slider. Of very large data an even sample is taken.
    ``design_effect`` is that of clusters: it widens the intervals of the bins.
    """
    t = grid(list(fitted.values()))
    part = test.sample(max(1000, int(MOST_EXPONENTIALS / (len(t) * test.n_classes))))
    sums, losses = _sums(part, 1 / t)
    return {
        "n": len(part),
        "values": t.tolist(),
        "labels": [bare(value) for value in t],
        "marks": {method: int(np.argmin(np.abs(t - value))) for method, value in {"none": 1.0, **fitted}.items()},
        "states": [
            _state(Reliability.of_sums(EDGES, one, confidence_level, design_effect), loss / part.total_weight)
            for one, loss in zip(sums, losses)
        ],
    }


def table_of(p: Predictions, confidence_level: float, design_effect: float = 1.0) -> dict[str, Any]:
    """Return the same for a method that is not one temperature."""
    sums = bin_sums(*p.top, EDGES, np.stack([p.weights, p.weights**2], axis=1))
    table = Reliability.of_sums(EDGES, sums, confidence_level, design_effect)
    return _state(table, nll.statistic(p).at(p.weights))


def _state(table: Reliability, loss: float) -> dict[str, Any]:
    columns = np.stack([table.weight, table.confidence, table.accuracy, table.low, table.high], axis=-1)
    return {
        "nll": float(loss) if math.isfinite(loss) else None,
        "ece": table.mean(np.abs(table.accuracy - table.confidence)),
        "accuracy": table.mean(table.accuracy),
        "confidence": table.mean(table.confidence),
        # An empty bin is [0].
        "bins": [cell.tolist() if cell[0] > 0 else [0.0] for cell in columns],
    }


def _sums(test: LabelledScores, betas: Floats) -> tuple[Floats, Floats]:
    """Per temperature the sums of the bins, for the weights and their squares, and the sum of the losses.

    Each chunk is gone through for all temperatures at once: it stays in the cache, and its largest logits are known.
    """
    sums, losses = np.zeros((len(betas), 3, N_BINS, 2)), np.zeros(len(betas))
    for part, h in test.chunks():
        y = test.labels[part]
        w = np.ones(len(y)) if test.weights is None else test.weights[part]
        columns = np.stack([w, w**2], axis=1)
        right = (h.argmax(axis=1) == y).astype(np.float64)
        rows = split(h, test.masked)
        gap, buffer = rows.gap(y), np.empty_like(rows.d)
        for i, beta in enumerate(betas):
            _, others = rest(rows, beta, buffer)
            sums[i] += bin_sums(1 / (1 + others), right, EDGES, columns)
            losses[i] += w @ (np.log1p(others) - beta * gap)
    return sums, losses
