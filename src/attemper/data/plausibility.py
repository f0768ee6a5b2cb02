"""Input that is probably not what it is taken for: a warning, never a guess; the computation stays as asked.

Two mistakes leave no other trace than a wrong result: probabilities passed as logits, and labels that do not belong to
these rows or columns.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from attemper._typing import Floats
from attemper.data.arrays import CHUNK_ELEMENTS, RowView, on_gpu, to_numpy
from attemper.errors import ChanceAccuracyWarning, ProbabilitiesAsLogitsWarning, warn

__all__ = ["SUMS", "room_of_sums", "warn_of_chance", "warn_of_probs", "warn_of_single_probs", "warn_of_sketched_chance"]

FIRST_ROWS = 64  # hardly any logits look like probabilities for so long, so that a fit does not wait for the rest
FIRST_ELEMENTS = 1 << 14  # one row of a large vocabulary is enough to see a negative logit
FEWEST_ODDS = 20  # rows; fewer log-odds may all lie from 0 to 1 by chance
SKILL = 0.1  # below this share of the agreement that is possible a classifier is of no use


# What to do about other sums: to divide by them would hide the mistakes that lead here.
SUMS = (
    "Take softmax over the classes. Where classes do not exclude each other, use MultiLabelCalibrator and "
    "label_metrics (command line: --multi-label). Only counts, such as votes, are to be divided by the "
    "sum of their row."
)


def room_of_sums(n_classes: int) -> float:
    """How far from 1 a row of probabilities may sum: float16, or three decimals in a text file."""
    return 0.01 + 1e-3 * math.sqrt(n_classes)


def warn_of_probs(logits: Any) -> None:
    """Warn where every row of these logits is ≥ 0 and sums to 1, and some number lies between.

    Logarithms of probabilities are logits.
    """
    n, n_classes = logits.shape
    # The fewer the rows, the closer to 1 they must sum, or some logits would do so by chance.
    room = max(2**-7 if "16" in str(logits.dtype) else 0.0, min(room_of_sums(n_classes), 1e-6 ** (1 / n)))
    rows, first, between = max(1, min(FIRST_ROWS, FIRST_ELEMENTS // n_classes)), 0, False
    while first < n:
        part = logits[first : min(first + rows, n), :]
        if on_gpu(logits) and bool((_tensor(part) < 0).any()):  # seen where it is: nothing is copied from a GPU
            return
        h = to_numpy(part)
        if not h.min() >= 0 or not np.abs(h.sum(axis=1, dtype=np.float64) - 1).max() <= room:
            return
        between = between or bool(((h > 0) & (h < 1)).any())
        first += rows
        rows = max(1, CHUNK_ELEMENTS // n_classes)
    if between:
        warn(
            "logits: every row is ≥ 0 and sums to 1, so these look like probabilities. They are used as logits, as "
            'asked. If they are probabilities, use input="probs" or Scores.from_probs; for a calibrator that was '
            "fitted on logits pass their logarithms, np.log(probs).",
            ProbabilitiesAsLogitsWarning,
        )


def warn_of_single_probs(odds: Any, what: str) -> None:
    """Warn where all log-odds, N×L, lie from 0 to 1, as probabilities do: ``what`` names them."""
    n, width = odds.shape
    if n < FEWEST_ODDS:
        return
    rows, first, between = max(1, FIRST_ROWS // width), 0, False
    while first < n:
        part = odds[first : min(first + rows, n), :]
        if on_gpu(odds) and not bool(((_tensor(part) >= 0) & (_tensor(part) <= 1)).all()):
            return
        h = to_numpy(part)
        if not (h.min() >= 0 and h.max() <= 1):
            return
        between = between or bool(((h > 0) & (h < 1)).any())
        first += rows
        rows = max(1, CHUNK_ELEMENTS // width)
    if between:
        warn(
            f"logits: {what} lie from 0 to 1, so these look like probabilities. They are used as log-odds, as asked. "
            f'If they are probabilities, use input="probs"; for a calibrator that was fitted on log-odds pass '
            "np.log(p / (1 - p)).",
            ProbabilitiesAsLogitsWarning,
        )


def _tensor(rows: Any) -> Any:
    return rows.gathered() if isinstance(rows, RowView) else rows


def warn_of_chance(correct: float, labels: Floats, predictions: Floats, n: float) -> None:
    """Warn where predictions agree with the labels no more often than by chance.

    If predictions and labels were independent, they would agree with probability e = Σ p_k q_k, where p and q are
    the shares of class k among the labels and among the predictions; at most they can agree with m = Σ min(p_k, q_k).
    The standard error of the agreement a is s² = (e + e² − Σ p_k q_k (p_k + q_k)) / n (Fleiss, Cohen, Everitt 1969).
    The warning needs both a ≤ e + 2 s, not significantly above chance, and a + 3 s < e + 0.1 (m − e), so many samples
    that a useful classifier would have shown. Hence it is silent for few labels, unless accuracy is far below chance.
    """
    p, q = labels / labels.sum(), predictions / predictions.sum()
    e, possible = float(p @ q), float(np.minimum(p, q).sum())
    s = float(np.sqrt(max(e + e**2 - p * q @ (p + q), 0.0) / n))
    _warn_of_chance("labels", correct, e, possible, s)


def warn_of_sketched_chance(where: str, correct: float, n_classes: int, n: float) -> None:
    """Warn as `warn_of_chance` does, where only K is known: chance is taken to be 1/K."""
    e = 1 / n_classes
    _warn_of_chance(where, correct, e, 1.0, float(np.sqrt(e * (1 - e) / n)))


def _warn_of_chance(where: str, correct: float, e: float, possible: float, s: float) -> None:
    above = correct - e
    if above <= 2 * s and above + 3 * s < SKILL * (possible - e):
        warn(
            f"{where}: {correct:.1%} of the labels have the largest logit of their row, and {e:.1%} would by chance: "
            "predictions and labels agree no more often than by chance. Check that the columns are in the order of the "
            f"classes (classes=), and that each label belongs to its row.",
            ChanceAccuracyWarning,
        )
