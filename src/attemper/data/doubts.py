"""Input that is probably not what it is taken for: a warning, never a guess; the computation stays as asked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import linear_sum_assignment

from attemper._typing import Floats, Labels
from attemper.data.arrays import row_slices, to_numpy
from attemper.data.scores import Scores
from attemper.errors import AttemperWarning, ChanceAccuracyWarning, ProbabilitiesAsLogitsWarning, warn

FEWEST_ODDS = 20  # rows; fewer log-odds may all lie from 0 to 1 by chance
FEWEST_LABELS = 20  # that show of one class that the others are missing
LEAST_ROWS, MOST_ROWS, MOST_ELEMENTS = 256, 4096, 1 << 22  # compared with their labels
BETTER, MUCH_BETTER = 0.1, 0.25  # share by which another order of the classes fits better; the second above chance
MOST_CLASSES = 50  # to try other orders of
SKILL = 0.1  # below this share of the agreement that is possible a classifier is of no use
LOST, MOST_LOST = 0.01, 10_000  # share of predictions that a class must have for its loss to count; rows looked at


def _warn(message: str, fix: str, category: type[AttemperWarning]) -> None:
    warn(f"{message}. {fix}", category)


def warn_of_doubts(scores: Scores, report: Callable[[str, str, type[AttemperWarning]], None] = _warn) -> None:
    """Warn where logits look like probabilities, and where labels agree with predictions no more than by chance."""
    if scores.multi_label:
        return
    source = f"{scores.files[0]}: " if scores.files else ""
    if scores.input == "logits" and scores.low >= 0 and look_like_probs(scores):
        report(
            f"{source}data: these logits look like probabilities (every row is ≥ 0 and sums to 1, or every log-odds "
            "lies from 0 to 1), and are used as logits",
            'If they are probabilities, use input="probs".',
            ProbabilitiesAsLogitsWarning,
        )
    if scores.labels is None or scores.bound == 0:
        return
    n, k = len(scores.labels), int(scores.values.shape[1])
    if n >= FEWEST_LABELS and not np.ptp(scores.labels):
        name = (scores.classes or range(k))[scores.labels[0]]
        report(f"{source}labels: all are {name}", "Use samples of every class.", AttemperWarning)
        return
    most = max(LEAST_ROWS, min(MOST_ROWS, MOST_ELEMENTS // k))
    if scores.device is not None:
        some = scores.sample(most)
        y, w, top = some.labels, some.w, some.device.tops()
    else:
        h, y, w = scores.chunk(slice(None) if n <= most else np.linspace(0, n - 1, most).astype(np.intp))
        is_label = h[np.arange(len(y)), y] == h.max(axis=1)  # perhaps one of several
        top = np.where(is_label, y, h.argmax(axis=1))
    found = agreement(y, top, w)
    order = _other_order(y, top, k)
    other = agreement(order[y], top, w)
    margin = BETTER if found.is_chance else MUCH_BETTER
    better = other.share > max(found.share, other.by_chance + 5 * other.standard_error) + margin
    if not (found.is_chance or better):
        return
    fix = "Check that the columns are in the order of the classes, and that each label belongs to its row."
    if better:
        names = [(scores.classes or range(k))[i] for i in np.argsort(order)]
        if scores.classes is None and order[0] == k - 1 and names[:-1] == [*range(1, k)] and (y > 0).all():
            names[-1] = k  # labels start at 1
        fix = f"With the columns in the order of {names} it is {other.share:.1%}: use classes={names}; in tables "
        fix += "rename the columns."
    report(
        f"{source}labels: {found.share:.1%} of the labels have the largest logit of their row, and "
        f"{found.by_chance:.1%} would by chance",
        fix,
        ChanceAccuracyWarning,
    )


def warn_of_lost_class(scores: Scores, log_apply: Callable[[Floats], Floats], classes: Any, method: str) -> None:
    """Warn of a class without a label, not by chance, that a fit predicts less than half as often as before."""
    k = scores.n_classes
    absent = np.bincount(scores.labels, minlength=k) == 0
    if not absent.any():
        return
    few = scores.sample(MOST_LOST)
    before, after = (np.bincount(h.argmax(axis=1), minlength=k) / len(few) for h in (few.logits, log_apply(few.logits)))
    lost = absent & (before >= max(LOST, 3 / len(few))) & (after < 0.5 * before)
    if lost.any():
        k = int(np.where(lost, before, 0.0).argmax())
        shares = f"{before[k]:.1%} of the predictions, {after[k]:.1%} after the fit"
        warn(f"{method}: no label is {classes[k]!s} ({shares}). Use samples of every class, or method='bayes'.")


def _other_order(y: Labels, top: Labels, k: int) -> Labels:
    """Return the column that fits each label best: found on every second row, and kept if the others agree."""
    if k > MOST_CLASSES:
        return np.arange(k)
    fits = []
    for part in (slice(0, None, 2), slice(1, None, 2)):
        counts = np.zeros((k, k))
        np.add.at(counts, (y[part], top[part]), 1)
        fits.append(counts)
    likely = np.eye(k) + 0.5 * np.roll(np.eye(k), -1, axis=1)  # where labels show nothing: as it is, or off by one
    order = np.asarray(linear_sum_assignment(fits[0] + 1e-9 * likely, maximize=True)[1])
    return order if fits[1][np.arange(k), order].sum() > np.trace(fits[1]) else np.arange(k)


def look_like_probs(scores: Scores) -> bool:
    """Whether all rows of these logits are ≥ 0 and sum to 1, or all log-odds of one column lie from 0 to 1."""
    n, k = scores.shape
    if scores.one_column and n < FEWEST_ODDS:
        return False
    # The fewer the rows, the closer to 1 they must sum, or some logits would do so by chance.
    room = max(2**-7 if "16" in str(scores.values.dtype) else 0.0, min(0.01 + 1e-3 * np.sqrt(k), 1e-6 ** (1 / n)))
    if scores.low < 0 or scores.bound > 1 + room:
        return False
    between = False
    for part in row_slices(n, k):
        h = to_numpy(scores.raw(part))
        if not scores.one_column and not np.abs(h.sum(axis=1, dtype=np.float64) - 1).max() <= room:
            return False
        between = between or bool(((h > 0) & (h < 1)).any())
    return between


class Agreement(NamedTuple):
    """How often labels are the predicted class, and how often they would be by chance."""

    share: float
    by_chance: float
    standard_error: float
    is_chance: bool  # not significantly above chance, with so many samples that a useful classifier would show


def agreement(y: Labels, top: Labels, w: Floats | None = None) -> Agreement:
    """Compare labels with predictions.

    If predictions and labels were independent, they would agree with probability e = Σ p_k q_k, where p and q are the
    shares of class k among the labels and among the predictions; at most they can agree with m = Σ min(p_k, q_k). The
    standard error of the agreement is s² = (e + e² − Σ p_k q_k (p_k + q_k)) / n (Fleiss, Cohen, Everitt 1969).
    """
    w = np.ones(len(y)) if w is None or not w.any() else w
    size = int(max(y.max(), top.max())) + 2  # labels that are tried with 1 less begin at -1
    p, q = np.bincount(y + 1, w, size) / w.sum(), np.bincount(top + 1, w, size) / w.sum()
    share, e, m = float(w @ (top == y) / w.sum()), float(p @ q), float(np.minimum(p, q).sum())
    s = float(np.sqrt(max(e + e**2 - p * q @ (p + q), 0.0) * (w * w).sum()) / w.sum())
    return Agreement(share, e, s, share - e <= 2 * s and share - e + 3 * s < SKILL * (m - e))
