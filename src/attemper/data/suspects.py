"""Columns of a table that are hardly classes, though nothing refuses them: an age, a confidence, a prediction.

All columns of a table but the label are read as classes, unless the caller chose some. A stranger among them gives a
wrong result without any error, so that it gets a warning that names it, and the option that leaves it out.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attemper.data.columns import ColumnQuery, how_to_select
from attemper.data.plausibility import room_of_sums
from attemper.errors import InputError, SuspiciousColumnWarning, listed, warn

__all__ = [
    "about_extra_probs",
    "about_suspects",
    "extra_probs",
    "reject_extra_probs",
    "remaining",
    "suspicious_columns",
    "warn_of_suspects",
]

FEWEST = 20  # rows
MOST = 4096  # rows that are looked at
# For no network of `data/` is it twice that of the next: tests/test_suspects.py.
LARGER = 10.0  # times the median magnitude of every other column
WIDE = 2.0  # logits spread over more than that, where probabilities among them spread over 1 at most
DERIVED = re.compile(r"(.*[_ .-])?(conf|confidence|certainty|uncertainty|entropy|margin|max_?prob)")

WHOLE = "holds whole numbers, while other columns have decimals"


def suspicious_columns(
    names: Sequence[str], values: NDArray[Any], labelled: Sequence[bool] | None = None
) -> dict[str, str]:
    """Names of columns that are hardly classes, and why; ``values`` are the first rows.

    ``labelled`` is, where labels are names, which columns some label names: these are classes.

    >>> rng = np.random.default_rng(0)
    >>> logits = rng.normal(size=(100, 3))
    >>> logits[:, 0] = rng.integers(20, 80, size=100)
    >>> suspicious_columns(["age", "cat", "dog"], logits)
    {'age': 'holds whole numbers, while other columns have decimals'}
    """
    h = np.asarray(values[:MOST], dtype=np.float64)
    finite = np.isfinite(h)
    if len(h) < FEWEST or len(names) < 2 or (finite.sum(axis=0) < FEWEST).any():
        return {}
    low, high = (f(np.where(finite, h, e), axis=0) for f, e in ((np.min, np.inf), (np.max, -np.inf)))
    whole = (~finite | (h == np.floor(h))).all(axis=0)
    middle = np.nanmedian(np.where(finite, np.abs(h), np.nan), axis=0)
    varied = low < high  # a class that is out of the question has one number alone
    known = np.zeros(len(names), bool) if labelled is None else np.asarray(labelled)
    found: dict[int, str] = {}
    if (varied & ~whole).any():
        found |= dict.fromkeys(np.flatnonzero(whole & varied & ~known).tolist(), WHOLE)
    share = (low >= 0) & (high <= 1)
    for k in np.flatnonzero(varied & ~known).tolist():
        others = np.array([j for j in np.flatnonzero(varied).tolist() if j != k and j not in found], dtype=np.intp)
        if k in found or len(others) < 2:  # of two columns either may be the stranger
            continue
        wide = others[~share[others]]
        if (
            low[k] >= 0 and middle[k] > LARGER * middle[others].max()
        ):  # a rare class, and log-probabilities, are below 0
            found[k] = f"has a median magnitude of {middle[k]:.3g}, that of every other column is below "
            found[k] += f"{middle[k] / LARGER:.3g}"
        elif share[k] and 2 * len(wide) > len(others) and (high[wide] - low[wide] > WIDE).all():
            found[k] = "lies from 0 to 1, as probabilities do, while other columns are logits"
        elif low[k] >= 0 and DERIVED.fullmatch(names[k].strip().lower()) and (low[others] < 0).any():
            found[k] = "has a name that is not one of a class, and is never negative"
    if len(found) == len(names):
        return {}
    unnamed = [] if labelled is None else [k for k in range(len(names)) if not known[k]]
    if unnamed and set(unnamed) == set(found):
        found = {k: f"{why}, and no label is {names[k]!r}" for k, why in found.items()}
    return {names[k]: found[k] for k in sorted(found)}


def remaining(names: Sequence[str], found: dict[str, str]) -> list[str]:
    """Names of the columns that are not suspicious."""
    return [name for name in names if name not in found]


def warn_of_suspects(
    names: Sequence[str], values: NDArray[Any], query: ColumnQuery, labelled: Sequence[bool] | None = None
) -> None:
    """Warn of columns that are hardly classes, with the option that selects the others."""
    found = suspicious_columns(names, values, labelled)
    if found:
        warn(about_suspects(names, found, query), SuspiciousColumnWarning)


def about_suspects(names: Sequence[str], found: dict[str, str], query: ColumnQuery) -> str:
    """Name the first suspicious column, and the option that leaves all of them out."""
    name, why = next(iter(found.items()))
    what = f"column {name!r} {why}, so it is hardly a class"
    if len(found) > 1:
        what = f"columns {listed(found)} are hardly classes: {name!r} {why}"
    kept = remaining(names, found)
    return f"{what}. It is used as one. Use {how_to_select(kept, list(found), query)} for the others alone."


def extra_probs(names: Sequence[str], values: NDArray[Any]) -> list[str] | None:
    """Names of the columns that are probabilities if the others are left out; None where that does not help.

    >>> extra_probs(["cat", "dog", "top"], np.array([[0.3, 0.7, 0.7], [0.8, 0.2, 0.8]]))
    ['cat', 'dog']
    >>> extra_probs(["pred", "p"], np.array([[1.0, 0.7], [0.0, 0.2]]))
    ['p']
    """
    p = np.asarray(values[:MOST], dtype=np.float64)
    if len(names) < 2 or not len(p) or not np.isfinite(p).all() or _sums_to_one(p):
        return None
    whole = (p == np.floor(p)).all(axis=0)
    rest = np.flatnonzero(~whole).tolist()
    if 0 < len(rest) < len(names) and _are_probs(p[:, rest]):
        return [names[k] for k in rest]
    for k in range(len(names)):
        rest = [j for j in range(len(names)) if j != k]
        if len(rest) > 1 and _are_probs(p[:, rest]):
            return [names[j] for j in rest]
    return None


def reject_extra_probs(where: object, names: Sequence[str], values: NDArray[Any], query: ColumnQuery) -> None:
    """Refuse a table of probabilities with a column more, and name the option that leaves it out."""
    kept = extra_probs(names, values)
    if kept is not None:
        raise InputError(f"{where}: {about_extra_probs(names, kept, query)}")


def about_extra_probs(names: Sequence[str], kept: list[str], query: ColumnQuery) -> str:
    """Name the columns that are no probabilities, and the option that leaves them out."""
    others = [name for name in names if name not in kept]
    one = len(others) == 1
    which = f"{'column' if one else 'columns'} {listed(others)}"
    right = "rows sum to 1" if len(kept) > 1 else f"{kept[0]!r} lies from 0 to 1"
    return (
        f"rows of probabilities do not sum to 1, but without the {which} {right}, so {'it is' if one else 'they are'} "
        f"no {'class' if one else 'classes'}. Use {how_to_select(kept, others, query)}."
    )


def _sums_to_one(p: NDArray[Any]) -> bool:
    return bool((np.abs(p.sum(axis=1) - 1) <= room_of_sums(p.shape[1])).all())


def _are_probs(p: NDArray[Any]) -> bool:
    return bool(p.min() >= 0 and p.max() <= 1 + 1e-3) and (p.shape[1] == 1 or _sums_to_one(p))
