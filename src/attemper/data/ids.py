"""Ids of samples: the group of each, such as a site, or its cluster, such as a patient; text or whole numbers."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from attemper._typing import Labels
from attemper.data.arrays import RowName, SelectedRows, is_foreign, numbered, reject_masked, to_numpy
from attemper.data.layout import Images, Laid
from attemper.errors import InputError

__all__ = ["GivenIds", "as_ids", "ids_of_rows", "join_ids"]

DROP = "Drop those rows."
MISSING = {
    "groups": 'Give it a group, such as "unknown", or drop that row.',
    "clusters": "Give it an id, one of its own if it belongs to no other row, or drop that row.",
}


def as_ids(ids: Any, n: int, what: str = "clusters", name: RowName | None = None) -> NDArray[Any]:
    """Return one id for each of n rows, as an array of text or of int64.

    Whole numbers beyond 64 bits become text. ``what`` names the ids in errors, ``name`` the rows.

    >>> as_ids([3.0, 1.0], 2), as_ids(["b", "a"], 2).tolist()
    (array([3, 1]), ['b', 'a'])
    """
    found = _checked(ids, what, name or numbered())
    if found.shape != (n,):
        raise InputError(f"{what}: expected one per row, shape ({n},); got shape {found.shape}")
    return found


class GivenIds(NamedTuple):
    """Ids as they were passed: one for each sample; of images one for each, or one for each pixel."""

    groups: Any
    clusters: Any
    name: RowName  # of a sample

    def of_rows(self, laid: Laid, sample: Labels | None) -> dict[str, NDArray[Any] | None]:
        """Return ids of the rows, under the names that they have in a `Scores`.

        ``sample`` is the sample that each row is of, where soft labels made several rows of one.
        """
        given = {"groups": (self.groups, "groups"), "cluster_ids": (self.clusters, "clusters")}
        return {field: ids_of_rows(ids, what, laid, sample, self.name) for field, (ids, what) in given.items()}


def ids_of_rows(
    ids: Any, what: str, laid: Laid, sample: Labels | None, name: RowName | None = None
) -> NDArray[Any] | None:
    """Return one id for each row of ``laid``; None if there are none."""
    if ids is None:
        return None
    values, n = laid.values, laid.values.shape[0]
    found = _checked(ids, what, name or numbered())
    if laid.images is not None:
        found = _of_pixels(found, laid.images)
    elif sample is not None and found.shape != (n,) and found.shape == (int(sample.max()) + 1,):
        found = found[sample]
    elif isinstance(values, SelectedRows) and found.shape == tuple(values.base.shape[:1]):
        found = found[values.index]
    if found.shape != (n,):
        raise InputError(f"{what}: expected one per row, shape ({n},); got shape {found.shape}")
    return found


def join_ids(parts: list[NDArray[Any]]) -> NDArray[Any]:
    """Join the ids of several pieces; numbers become text if those of another piece are."""
    kinds = {part.dtype.kind for part in parts}
    return np.concatenate([part.astype(str) for part in parts] if len(kinds) > 1 else parts)


def _of_pixels(ids: NDArray[Any], images: Images) -> NDArray[Any]:
    """Ids of the pixels that count, where there is one for each image, or for each pixel."""
    if ids.shape == (images.n_images,):
        return np.asarray(ids[images.image()])
    if ids.shape == images.positions:
        return np.asarray(ids.reshape(-1) if images.rows is None else ids.reshape(-1)[images.rows])
    return ids


def _checked(ids: Any, what: str, name: RowName) -> NDArray[Any]:
    """Return an array of text or of int64, of any shape."""
    if isinstance(ids, str):
        raise InputError(
            f"{what}: expected one for each row, got the text {ids[:60]!r}; columns have names in Scores.from_table"
        )
    reject_masked(ids, what, DROP)
    try:
        found = to_numpy(ids) if is_foreign(ids) else np.asarray(ids)
    except ValueError as error:
        raise InputError(f"{what}: {error}; expected one text or whole number for each row") from None
    kind = found.dtype.kind
    if kind in "biu":
        beyond = kind == "u" and found.size and int(found.max()) > np.iinfo(np.int64).max
        return found.astype(str if beyond else np.int64)
    return _whole(found, what, name) if kind == "f" else _of_objects(found.astype(object), what, name)


def _whole(found: NDArray[Any], what: str, name: RowName) -> NDArray[Any]:
    flat = found.reshape(-1).astype(np.float64)
    odd = np.flatnonzero(~(np.isfinite(flat) & (flat == np.floor(flat)) & (np.abs(flat) <= 2**53)))
    if odd.size:
        row = int(odd[0])
        if np.isnan(flat[row]):
            raise _missing(what, name, row, "NaN")
        raise InputError(f"{what}: {name(row)} is {flat[row]:g}; expected text or a whole number for each row")
    return found.astype(np.int64)


def _of_objects(found: NDArray[Any], what: str, name: RowName) -> NDArray[Any]:
    items = found.reshape(-1).tolist()
    for row, item in enumerate(items):
        if _is_missing(item):
            raise _missing(what, name, row, "empty" if isinstance(item, str) else str(item))
        if not isinstance(item, str | int | np.integer) and not (isinstance(item, float) and item.is_integer()):
            raise InputError(f"{what}: {name(row)} is {item!r:.60}; expected text or a whole number for each row")
    texts = [isinstance(item, str) for item in items]
    if any(texts) and not all(texts):
        row = texts.index(not texts[0])
        raise InputError(
            f"{what}: got numbers and text together, {name(0)} is {items[0]!r:.60} and {name(row)} is "
            f"{items[row]!r:.60}; expected text for each row, or a whole number"
        )
    if all(texts):
        return np.array(items, dtype=str).reshape(found.shape)
    whole = [int(item) for item in items]
    try:
        return np.array(whole, dtype=np.int64).reshape(found.shape)
    except OverflowError:
        return np.array(list(map(str, whole))).reshape(found.shape)


def _is_missing(item: Any) -> bool:
    if isinstance(item, str):
        return not item.strip()
    if isinstance(item, float):
        return item != item
    return item is None or type(item).__name__ in ("NAType", "NaTType") or str(item) == "NaT"


def _missing(what: str, name: RowName, row: int, got: str) -> InputError:
    advice = MISSING["groups" if "group" in what else "clusters"]
    return InputError(f"{what}: {name(row)} is {got}; expected an id for each row. {advice}")
