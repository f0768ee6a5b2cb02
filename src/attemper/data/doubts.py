"""Input that is probably not what it is taken for: a warning, never a guess; the computation stays as asked."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from hashlib import blake2b
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

from attemper._typing import Floats, Labels
from attemper.data.arrays import row_slices, to_numpy
from attemper.data.scores import Scores
from attemper.errors import AttemperWarning, ChanceAccuracyWarning, InputError, ProbabilitiesAsLogitsWarning, warn

FEWEST_ODDS = 20  # rows; fewer log-odds may all lie from 0 to 1 by chance
LEAST_ROWS, MOST_ROWS, MOST_ELEMENTS = 256, 4096, 1 << 22  # compared with their labels
MARKED_ROWS = 64
MARKED_COLUMNS = 64  # of a row that are enough to tell it from others
BETTER, MUCH_BETTER = 0.1, 0.25  # share by which another order of the classes fits better; the second above chance
MOST_CLASSES = 50  # to try other orders of
SKILL = 0.1  # below this share of the agreement that is possible a classifier is of no use
LOST, MOST_LOST = 0.01, 10_000  # share of predictions that a class must have for its loss to count; rows looked at
COPIED_SHARE = 0.99  # a test set with this share of validation rows is a copy, perhaps in another order


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
        fix = f"With the columns in the order of {names} it is {other.share:.1%}: use classes={names}."
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


def check_disjoint(val: Scores, test: Scores, *, allow_shared: bool = False) -> None:
    """Refuse a test set of other classes, or with files, ids, clusters or nearly all rows of the validation set.

    ``allow_shared`` is for ids and clusters that are local to a file. Of some equal rows it warns.
    """
    if val.n_classes != test.n_classes or len({val.classes, test.classes} - {None}) > 1:
        raise InputError("test: expected the classes of val, in the same order. Use classes=[…].", "test")
    own = {*val.sha256.values()}
    if common := [path for path, sha256 in test.sha256.items() if sha256 in own]:
        raise InputError(f"test: {common[0]} is a file of val too. Use other samples.", "test")
    for param in () if allow_shared else ("ids", "clusters"):
        a, b = getattr(val, param), getattr(test, param)
        if a is None or b is None or (param == "clusters" and (val.numbered or test.numbered)):
            continue
        known = {str(item) for item in a.tolist()}
        names = {str(item) for item in b.tolist()}
        if shared := sorted(names & known):
            raise InputError(
                f"{param}: {len(shared)} of {len(names)} {param} of test, such as {shared[0]:.60}, are in val too. "
                "Keep them apart, or use allow_shared=True for ids that are local to a file.",
                param,
            )
    equal, n = shared_rows(val, test), test.n_samples
    if equal >= COPIED_SHARE * n:
        raise InputError(f"test: {equal} of {n} rows are validation rows too. Use other samples.", "test")
    if equal:
        warn(
            f"test: {equal} of {n} rows ({equal / n:.1%}) have the same {val.input} as a validation "
            "row. If they are the same samples, results look better than they are."
        )


def shared_rows(val: Scores, test: Scores) -> int:
    """Return how many rows of ``test`` are rows of ``val`` too; 0 where no more are than chance makes equal.

    Rounded or saturated scores are equal by chance: then a row of ``val`` also has a twin in ``val`` itself, about as
    often as a row of ``test`` has one there.
    """
    if val.input != test.input or val.n_classes != test.n_classes:
        return 0
    val, test = _samples(val), _samples(test)
    types = str(val.values.dtype) + str(test.values.dtype)
    precision = next((name for name in ("bfloat16", "float16") if name in types), "float32")
    known, counts = np.unique(_hashes(val, precision), return_counts=True)
    shared = int(np.isin(_hashes(test, precision), known).sum())
    return shared if shared > 2 * len(test) * counts[counts > 1].sum() / len(val) else 0


def row_marks(scores: Scores) -> tuple[str, ...]:
    """Return hashes of a few rows, which a calibrator keeps of its fit; none where rows are equal by chance."""
    few = _samples(scores).sample(MARKED_ROWS)
    marks = _marks(few)
    return tuple(marks[:: max(1, 4 * len(marks) // MARKED_ROWS)]) if len(set(marks)) == len(marks) else ()


def holds_rows(scores: Scores, marks: Iterable[str]) -> bool:
    """Whether more than a quarter of the marked rows are among these: half of the data of a fit count, too.

    Rounded scores are equal by chance: then rows also have twins among themselves, and more must be found.
    """
    known = set(marks)
    if not known:
        return False
    scores = _samples(scores)
    own, counts = np.unique(_marks(scores), return_counts=True)
    twins = counts[counts > 1].sum() / len(scores)
    share = len(known.intersection(own.tolist())) / len(known)
    return bool(twins <= 0.5 and share > min(0.25 + 3 * twins, 0.999))


def was_fitted_on(calibrator: Any, scores: Scores) -> bool:
    """Whether a calibrator was fitted on a file of these, or on so many of their rows."""
    fitted_on = {*getattr(calibrator, "fitted_on_", ())}
    known = bool(fitted_on) and not fitted_on.isdisjoint(scores.sha256.values())
    return known or holds_rows(scores, getattr(calibrator, "rows_", ()))


def _samples(scores: Scores) -> Scores:
    """Take each sample once: soft labels make several rows of one."""
    return scores if scores.index is None else scores.take(np.unique(scores.index, return_index=True)[1])


def _marks(scores: Scores) -> list[str]:
    found: list[str] = []
    width = min(scores.n_classes, MARKED_COLUMNS)
    for part in row_slices(len(scores), width):
        rows = np.ascontiguousarray(to_numpy(scores.raw(part)[:, :width]), dtype=np.float32) + 0
        found += [blake2b(row.tobytes(), digest_size=8).hexdigest() for row in rows]
    return found


def _hashes(scores: Scores, precision: str) -> NDArray[np.int64]:
    """Hash rows rounded to a precision, so that copies in other precisions compare; -0.0 is 0.0."""
    found = np.empty(len(scores), dtype=np.int64)
    for part in row_slices(*scores.shape):
        with np.errstate(over="ignore", under="ignore"):
            rows: Any = to_numpy(scores.raw(part)).astype(np.float16 if precision == "float16" else np.float32) + 0
        if precision == "bfloat16":  # the upper half of the bits, rounded to even
            bits = rows.view(np.uint32)
            rows = ((bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000).view(np.float32)
        found[part] = [hash(row.tobytes()) for row in rows]
    return found
