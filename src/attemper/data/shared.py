"""Rows that two data sets share: a test set must be apart from the validation set, and from that of a fit."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attemper.data.arrays import row_slices, to_numpy
from attemper.data.scores import Scores
from attemper.errors import InputError, warn

MARKED_ROWS = 64
MOST_COLUMNS = 64  # of a row that are enough to tell it from others
COPIED_SHARE = 0.99  # a test set with this share of validation rows is a copy, perhaps in another order


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
    val, test = val.samples(), test.samples()
    types = str(val.values.dtype) + str(test.values.dtype)
    precision = next((name for name in ("bfloat16", "float16") if name in types), "float32")
    known, counts = np.unique(_hashes(val, precision), return_counts=True)
    shared = int(np.isin(_hashes(test, precision), known).sum())
    return shared if shared > 2 * len(test) * counts[counts > 1].sum() / len(val) else 0


def row_marks(scores: Scores) -> tuple[int, ...]:
    """Return hashes of a few rows, which a calibrator keeps of its fit; none where rows are equal by chance."""
    marks = _hashes(scores.samples().sample(MARKED_ROWS)).tolist()
    return tuple(marks[:: max(1, 4 * len(marks) // MARKED_ROWS)]) if len(set(marks)) == len(marks) else ()


def holds_rows(scores: Scores, marks: Iterable[int]) -> bool:
    """Whether more than a quarter of the marked rows are among these: half of the data of a fit count, too.

    Rounded scores are equal by chance: then rows also have twins among themselves, and more must be found.
    """
    known = [*{*marks}]
    if not known:
        return False
    own, counts = np.unique(_hashes(scores.samples()), return_counts=True)
    twins = counts[counts > 1].sum() / counts.sum()
    share = np.isin(own, known).sum() / len(known)
    return bool(twins <= 0.5 and share > min(0.25 + 3 * twins, 0.999))


def was_fitted_on(calibrator: Any, scores: Scores) -> bool:
    """Whether a calibrator was fitted on a file of these, or on so many of their rows."""
    fitted_on = {*getattr(calibrator, "fitted_on_", ())}
    known = bool(fitted_on) and not fitted_on.isdisjoint(scores.sha256.values())
    return known or holds_rows(scores, getattr(calibrator, "rows_", ()))


def _hashes(scores: Scores, precision: str = "float32") -> NDArray[np.int64]:
    """Hash rows rounded to a precision, so that copies in others compare; -0.0 is 0.0."""
    random: Any = np.random.RandomState(0)  # whose numbers never change
    width = min(scores.n_classes, MOST_COLUMNS)
    odd = random.randint(2**63 - 1, size=width, dtype=np.int64).astype(np.uint64) * 2 + 1
    found = np.empty(len(scores), dtype=np.uint64)
    for part in row_slices(len(scores), width):
        some = np.ascontiguousarray(to_numpy(scores.raw(part)[:, :width]))
        with np.errstate(over="ignore", under="ignore"):
            rows: Any = some.astype(np.float16 if precision == "float16" else np.float32) + 0
        bits = rows.view(np.uint16 if precision == "float16" else np.uint32)
        if precision == "bfloat16":  # the upper half of the bits, rounded to even
            bits = (bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000
        found[part] = bits.astype(np.uint64) @ odd
    return (found >> 1).astype(np.int64)
