"""Input that is probably not what it is taken for: a warning, never a guess; the computation stays as asked.

Two mistakes leave no other trace than a wrong result: probabilities or percentages passed as logits, and labels that
do not belong to these rows or columns. Columns of a table that are hardly classes are in `suspects.py`.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from attemper._typing import Floats
from attemper.data.arrays import CHUNK_ELEMENTS, RowView, on_gpu, to_numpy
from attemper.errors import ChanceAccuracyWarning, ProbabilitiesAsLogitsWarning, warn

__all__ = [
    "are_ranked",
    "constant_share",
    "is_confident",
    "is_percentage",
    "mean_confidence",
    "room_of_sums",
    "warn_of_chance",
    "warn_of_probs",
    "warn_of_single_probs",
    "warn_of_sketched_chance",
]

FIRST_ROWS = 64  # hardly any logits look like probabilities for so long, so that a fit does not wait for the rest
FIRST_ELEMENTS = 1 << 14  # one row of a large vocabulary is enough to see a negative logit
FEWEST_ODDS = 20  # rows; fewer log-odds may all lie from 0 to 1 by chance
FEWEST_SUMS = 20  # rows; fewer logits may have the same sum by accident
SKILL = 0.1  # below this share of the agreement that is possible a classifier is of no use
FEWEST_CONSTANT = 20  # samples; the predictions of fewer may all be one class
RARE = 2 / 3  # where a class has a larger share of the labels, the others may be too rare to be predicted


# What to do about other sums: to divide by them would hide the mistakes that lead here.
SUMS = (
    "Take softmax over the classes. Where classes do not exclude each other, use MultiLabelCalibrator and "
    "label_metrics (command line: --multi-label). Only counts, such as votes, are to be divided by the "
    "sum of their row."
)


def room_of_sums(n_classes: int) -> float:
    """How far from 1 a row of probabilities may sum: float16, or three decimals in a text file."""
    return 0.01 + 1e-3 * math.sqrt(n_classes)


def is_percentage(total: float, n_classes: int) -> bool:
    """Whether a row of percentages may sum to this.

    >>> is_percentage(99.9, 3), is_percentage(1, 3)
    (True, False)
    """
    return abs(total - 100) <= 100 * room_of_sums(n_classes)


def warn_of_probs(logits: Any) -> bool:
    """Warn where every row of these logits is ≥ 0 and sums to 1 or 100, and some number lies between; return whether.

    Whole numbers may have any other sum, if it is the same in all rows: they are counts. Logarithms of probabilities
    are logits.
    """
    n, n_classes = logits.shape
    # The fewer the rows, the closer to 1 they must sum, or some logits would do so by chance.
    room = max(2**-7 if "16" in str(logits.dtype) else 0.0, min(room_of_sums(n_classes), 1e-6 ** (1 / n)))
    rows, first, between = max(1, min(FIRST_ROWS, FIRST_ELEMENTS // n_classes)), 0, False
    total: float | None = None
    one, alike = None, True  # rows that are all the same have the same sum
    while first < n:
        part = logits[first : min(first + rows, n), :]
        if on_gpu(logits) and bool((_tensor(part) < 0).any()):  # seen where it is: nothing is copied from a GPU
            return False
        h = to_numpy(part)
        if not h.min() >= 0:
            return False
        sums = h.sum(axis=1, dtype=np.float64)
        if total is None:
            total = next((sum_ for sum_ in (1.0, 100.0) if abs(sums[0] - sum_) <= room * sum_), float(sums[0]))
            if not 0 < total < math.inf or (total != 1 and n < FEWEST_SUMS):
                return False
        if not np.abs(sums - total).max() <= (room * total if total in (1, 100) else 0):
            return False
        if total not in (1, 100) and (h != np.floor(h)).any():  # a constant in all logits makes sums alike
            return False
        one = h[0] if first == 0 else one
        alike = alike and bool((h == one).all())
        between = between or bool(((h > 0) & (h < total)).any())
        first += rows
        rows = max(1, CHUNK_ELEMENTS // n_classes)
    if not between or total is None or (total != 1 and alike):
        return False
    look, fix = "probabilities", f"are probabilities, {PROBS}"
    if total != 1:
        look, by = ("percentages", "divide by 100") if total == 100 else ("counts", "divide each row by its sum")
        fix = f"are {look}, {by} and use input='probs'"
    warn(
        f"logits: every row is ≥ 0 and sums to {total:.6g}, so these look like {look}. They are used as logits, as "
        f"asked. If they {fix}.",
        ProbabilitiesAsLogitsWarning,
    )
    return True


def warn_of_single_probs(odds: Any, what: str) -> bool:
    """Warn where all log-odds, N×L, lie from 0 to 1, as probabilities do: ``what`` names them."""
    n, width = odds.shape
    if n < FEWEST_ODDS:
        return False
    rows, first, between = max(1, FIRST_ROWS // width), 0, False
    while first < n:
        part = odds[first : min(first + rows, n), :]
        if on_gpu(odds) and not bool(((_tensor(part) >= 0) & (_tensor(part) <= 1)).all()):
            return False
        h = to_numpy(part)
        if not (h.min() >= 0 and h.max() <= 1):
            return False
        between = between or bool(((h > 0) & (h < 1)).any())
        first += rows
        rows = max(1, CHUNK_ELEMENTS // width)
    if between:
        warn(
            f"logits: {what} lie from 0 to 1, so these look like probabilities. They are used as log-odds, as asked. "
            f"If they are probabilities, {SINGLE_PROBS}.",
            ProbabilitiesAsLogitsWarning,
        )
    return between


def _tensor(rows: Any) -> Any:
    return rows.gathered() if isinstance(rows, RowView) else rows


PROBS_FLAG = "use --probs; for a map that was fitted on logits write their logarithms, np.log(probs), which are logits"
PROBS = (
    'use input="probs" or Scores.from_probs; for a calibrator that was fitted on logits pass their logarithms, '
    "np.log(probs)"
)

SINGLE_PROBS_FLAG = "use --probs; for a map that was fitted on log-odds write np.log(p / (1 - p))"
SINGLE_PROBS = 'use input="probs"; for a calibrator that was fitted on log-odds pass np.log(p / (1 - p))'


def warn_of_chance(correct: float, labels: Floats, predictions: Floats, n: float, *, constant: bool = True) -> None:
    """Warn where predictions agree with the labels no more often than by chance.

    If predictions and labels were independent, they would agree with probability e = Σ p_k q_k, where p and q are
    the shares of class k among the labels and among the predictions; at most they can agree with m = Σ min(p_k, q_k).
    The standard error of the agreement a is s² = (e + e² − Σ p_k q_k (p_k + q_k)) / n (Fleiss, Cohen, Everitt 1969).
    The warning needs both a ≤ e + 2 s, not significantly above chance, and a + 3 s < e + 0.1 (m − e), so many samples
    that a useful classifier would have shown. Hence it is silent for few labels, unless accuracy is far below chance.
    Where all predictions are of one class, `constant_share` decides, unless ``constant`` is False.
    """
    share = constant_share(labels, predictions, n)
    if share is not None and constant:
        warn(
            f"labels: every row has its largest logit in the same column, whose class {share:.1%} of the labels have. "
            f"Check that each column is a class (columns=), that the columns are in the order "
            f"of the classes (classes=), and that each label belongs to its row.",
            ChanceAccuracyWarning,
        )
        return
    p, q = labels / labels.sum(), predictions / predictions.sum()
    e, possible = float(p @ q), float(np.minimum(p, q).sum())
    s = float(np.sqrt(max(e + e**2 - p * q @ (p + q), 0.0) / n))
    _warn_of_chance("labels", correct, e, possible, s)


def constant_share(labels: Floats, predictions: Floats, n: float) -> float | None:
    """Return the share of the only class that is predicted; None where others are, or where it is right to do so.

    It is right for classes so rare that none is ever the most likely: where more than two thirds of the labels, by
    twice the standard error, are of the class that is predicted.

    >>> constant_share(np.array([50.0, 50.0]), np.array([100.0, 0.0]), 100)
    0.5
    >>> constant_share(np.array([95.0, 5.0]), np.array([100.0, 0.0]), 100)
    """
    if n < FEWEST_CONSTANT or np.count_nonzero(predictions) != 1 or np.count_nonzero(labels) < 2:
        return None
    share = float(labels[predictions > 0][0] / labels.sum())
    return share if share + 2 * math.sqrt(share * (1 - share) / n) < RARE else None


def are_ranked(logits: Any) -> bool:
    """Whether logits only descend in every row: columns are ranks, as of the most likely tokens, not classes.

    >>> are_ranked(np.array([[3, 2, 1], [5, 5, 0]])), are_ranked(np.array([[3, 2, 1], [3, 1, 2]]))
    (True, False)
    """
    return logits.shape[1] > 2 and bool((logits[:, 1:] <= logits[:, :-1]).all())


def mean_confidence(logits: Any) -> float:
    """Return the mean of the largest probability of each row.

    A classifier that has learnt nothing predicts the most frequent class with the confidence of its share; only a
    mistake predicts one class with more.

    >>> mean_confidence(np.zeros((3, 2)))
    0.5
    """
    h = np.asarray(logits, dtype=np.float64)
    return float((1 / np.exp(h - h.max(axis=1, keepdims=True)).sum(axis=1)).mean())


def is_confident(confidence: float, share: float) -> bool:
    """Whether a class is predicted with more than half the confidence that is possible beyond its share."""
    return confidence > (1 + share) / 2


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
