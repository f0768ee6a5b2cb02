"""What people pass beside the scores: labels, names of classes, weights, ids; and forms that become plain rows."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any
from zlib import crc32

import array_api_compat
import numpy as np
from numpy.typing import NDArray

from attemper._typing import Floats, Labels
from attemper.data.arrays import is_foreign, take_rows, to_numpy
from attemper.errors import InputError, listed

MAX_WEIGHT = 1e12
NUMERAL = re.compile(r"-?\d+(\.\d+)?")
WHOLE = re.compile(r"0|-?[1-9]\d{0,17}")  # numbers that ids may be read as: 007 is another id than 7


@dataclass(frozen=True)
class PlainRows:
    """Scores as N×K rows, and what is known of each: a form of input after it was laid out."""

    values: Any
    labels: Any
    weights: Any = None
    index: NDArray[np.intp] | None = None  # rows of `values`; None: all of them, once each
    case: Labels | None = None  # image or sample of each row, where rows are not samples of their own
    n_cases: int = 0  # of these, also without a row


def as_plain(values: Any) -> NDArray[Any]:
    """Return anything with one entry for each row as a NumPy array; missing entries stay None or NaN."""
    if is_foreign(values):
        return to_numpy(values)
    if hasattr(values, "to_numpy"):  # columns of pandas, polars and Arrow
        values = values.to_numpy()
    array = np.asarray(values)
    if array.dtype.kind in "US" and isinstance(values, list | tuple):  # numbers among texts would become texts
        array = np.asarray(values, dtype=object)
    return array


def is_missing(entry: Any) -> bool:
    """Whether an entry is None, NaN, empty, or what data frames have for these.

    >>> [is_missing(entry) for entry in (None, float("nan"), "", 0)]
    [True, True, True, False]
    """
    return entry is None or str(entry) in ("", "nan", "NaN", "NaT", "<NA>")


def as_names(classes: Sequence[Any], n_classes: int) -> tuple[Any, ...]:
    """Return names of the classes in column order: one for each column, none twice."""
    names = (classes,) if isinstance(classes, str) else tuple(getattr(classes, "tolist", lambda: classes)())
    if len(names) != n_classes:
        what = f"the data have {n_classes}, and {len(names)} are named, or of the calibrator: {listed(names)}"
        raise InputError(f"classes: {what}", "classes")
    if len(set(names)) != n_classes:
        raise InputError(f"classes: expected different names, got {listed(names)}", "classes")
    return names


def as_labels(
    labels: Any, n: int, n_classes: int, classes: Sequence[Any] | None = None, rows: PlainRows | None = None
) -> Labels:
    """Return labels as column numbers: names are looked up in ``classes``, whole numbers are columns.

    Where some names are numerals, numbers are names, too; so are booleans where names are true and false. With ``rows``
    of scores an error reports more.

    >>> as_labels(["dog", "cat"], 2, 2, ["cat", "dog"]), as_labels([2, 1], 2, 2, ["1", "2"])
    (array([1, 0]), array([1, 0]))
    """
    y = labels if isinstance(labels, np.ndarray) else as_plain(labels)
    if y.ndim == 2 and y.shape[1] == 1:
        y = y[:, 0]
    if y.shape != (n,):
        raise InputError(f"labels: expected one label for each of {n} rows, got shape {y.shape}", "labels")
    names = None if classes is None else [_text(name) for name in classes]
    if names is not None and y.dtype.kind in "biuf":
        alike = any(NUMERAL.fullmatch(name) or (y.dtype.kind == "b" and name in ("true", "false")) for name in names)
        names = names if alike and names != [str(k) for k in range(n_classes)] else None
    if names is not None and classes is not None:
        return _looked_up(y, classes)
    if y.dtype.kind in "iu" and y.size and y.min() >= 0 and y.max() < n_classes:
        return y.astype(np.int64, copy=False)
    try:
        numbers = y.astype(np.float64)
    except (TypeError, ValueError):
        first = next(label for label in y.tolist() if isinstance(label, str) or is_missing(label))
        raise InputError(
            f"labels: expected column numbers from 0 to {n_classes - 1}, got {first!r:.60}. For names use "
            "classes=[…], in column order.",
            "labels",
        ) from None
    bad = np.flatnonzero(~((numbers >= 0) & (numbers < n_classes) & (numbers == np.floor(numbers))))
    if bad.size:
        row = bad[0]
        raise InputError(
            f"labels: row {row} is {y[row]}; expected a column number from 0 to {n_classes - 1}."
            f"{_hint(numbers, n_classes, numbers[row], rows, classes is not None)}",
            "labels",
        )
    return np.asarray(numbers, dtype=np.int64)


def _hint(numbers: Floats, k: int, bad: float, rows: PlainRows | None, named: bool) -> str:
    """Return what to do about labels that are no columns."""
    known = numbers[~np.isnan(numbers)]
    if k == 2 and is_signed(known):
        return " Use 0 and 1 for -1 and 1."
    if np.isfinite(bad) and bad != np.floor(bad):
        return " Are these the scores? Pass the scores first, then the labels."
    if np.isnan(bad):
        return " Drop rows without a label."
    first = 1 if known.max() == k and known.min() >= 1 else -1 if known.min() == -1 and known.max() < k - 1 else 0
    if first and rows is not None and len(known) == len(numbers):
        some = np.unique(np.linspace(0, len(numbers) - 1, 1000).astype(np.intp))
        top = to_numpy(take_rows(rows.values, some if rows.index is None else rows.index[some])).argmax(axis=1)
        moved, kept = np.mean(top == numbers[some] - first), np.mean(top == numbers[some])
        if moved > kept:
            start = f" If labels start at {first}, use classes={range_text(first, k + first)}."
            start = f" The columns have other names: subtract {first} from the labels." if named else start
            return f" With {-first:+d} added {moved:.1%} agree with the predictions.{start}"
    return f" To leave such rows out use ignore_index={bad:.0f}." if bad in (-1, -100, 255) else ""


def range_text(first: int, stop: int) -> str:
    """Write a list of whole numbers, shortened where it is long.

    >>> range_text(1, 4), range_text(1, 1001)
    ('[1, 2, 3]', 'range(1, 1001)')
    """
    return str(list(range(first, stop))) if stop - first <= 20 else f"range({first}, {stop})"


def _looked_up(y: NDArray[Any], classes: Sequence[Any]) -> Labels:
    column: dict[Any, int] = {name: k for k, name in enumerate(classes)}
    column = {_text(name): k for name, k in column.items()} | column  # 3 in a file may be '3'
    names, inverse = _unique(y)
    found = np.array([column.get(name, column.get(_text(name), -1)) for name in names.tolist()], dtype=np.int64)
    if (found < 0).any():
        row = int((found[inverse] < 0).argmax())
        unknown = y.tolist()[row]
        if is_missing(unknown):
            raise InputError(f"labels: row {row} has none. Drop rows without a label.", "labels")
        raise InputError(
            f"labels: {unknown!r:.60} is not among the classes {listed(map(str, classes))}. Add its column of scores, "
            "or for other names use classes=[…], in column order.",
            "labels",
        )
    return np.asarray(found[inverse])


def _unique(y: NDArray[Any]) -> tuple[NDArray[Any], NDArray[np.intp]]:
    """`numpy.unique` with the inverse, also for objects that cannot be compared."""
    if y.dtype.kind != "O":
        values, inverse = np.unique(y, return_inverse=True)
        return values, inverse.reshape(-1)
    place: dict[Any, int] = {}
    inverse = np.array([place.setdefault(item, len(place)) for item in y.tolist()], dtype=np.intp)
    values = np.empty(len(place), dtype=object)
    values[:] = list(place)
    return values, inverse


def _text(name: Any) -> str:
    """3.0 is '3': a column of whole numbers with a gap is read as decimals. True is 'true', as most files have it."""
    text = str(name)
    whole, _, rest = text.partition(".")
    if rest and not rest.strip("0") and whole.lstrip("-").isdecimal():
        return whole
    return text.lower() if text in ("True", "False", "TRUE", "FALSE") else text


def as_weights(weights: Any, n: int) -> Floats:
    """Return sample weights: one for each row, none negative, not all zero."""
    try:
        w = as_plain(weights).astype(np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"sample_weight: expected numbers ({error})", "sample_weight") from None
    if w.shape not in ((), (n,)):
        raise InputError(f"sample_weight: expected {n} numbers, got shape {w.shape}", "sample_weight")
    w = np.broadcast_to(w, (n,))
    bad = np.flatnonzero(~((w >= 0) & (w <= MAX_WEIGHT)))
    if bad.size:
        raise InputError(f"sample_weight: row {bad[0]} is {w[bad[0]]}; expected 0 to {MAX_WEIGHT:g}", "sample_weight")
    if not (w > 1e-100).any():
        raise InputError("sample_weight: all weights are zero", "sample_weight")
    return np.ascontiguousarray(w)


def as_ids(ids: Any, n: int, param: str) -> NDArray[Any]:
    """Return ids of groups, clusters or samples: one for each row, none missing; as whole numbers, or else as texts.

    >>> as_ids([1.0, 2.0], 2, "groups"), as_ids(["1", "02"], 2, "groups")
    (array([1, 2]), array(['1', '02'], dtype='<U2'))
    """
    found = as_plain(ids)
    if found.shape != (n,):
        raise InputError(f"{param}: expected one id for each of {n} rows, got shape {found.shape}", param)
    if found.dtype.kind in "iu":
        return found
    ids = found.tolist() if found.dtype.kind in "fO" else found.astype(str).tolist()
    names = set(ids)
    if found.dtype.kind in "fO" and any(map(is_missing, names)):
        row = next(row for row, entry in enumerate(ids) if is_missing(entry))
        raise InputError(f"{param}: row {row} has no id. Drop these rows or name them.", param)
    texts = {name: _text(name) for name in names}
    kind = int if all(map(WHOLE.fullmatch, texts.values())) else str
    return np.array([kind(texts[name]) for name in ids])


def ids_of_rows(ids: Any, rows: PlainRows, n: int, param: str) -> NDArray[Any]:
    """Return ids of the rows that count, from one for each row of the data, or for each image or sample."""
    found = as_plain(ids)
    if rows.case is not None and found.shape == (rows.n_cases,):
        found = found[rows.case]
    elif rows.index is not None and found.size == rows.values.shape[0]:
        found = found.reshape(-1)[rows.index]
    return as_ids(found.reshape(-1) if rows.case is not None else found, n, param)


def counted_rows(rows: PlainRows, ignore_index: int) -> PlainRows:
    """Leave out rows whose label is ``ignore_index``."""
    y = rows.labels
    kept = np.flatnonzero(y != ignore_index) if y.size == len(y) else np.arange(len(y))
    if not kept.size:
        raise InputError(f"labels: no row counts after ignore_index={ignore_index}", "labels")
    if len(kept) == len(y) or len(y) != rows.values.shape[0]:
        return rows
    return PlainRows(
        rows.values, y[kept], None if rows.weights is None else as_weights(rows.weights, len(y))[kept], kept
    )


def two_columns(column: Any, input: str) -> Any:
    """Return one column of two classes, the probability or log-odds of the second one, as two.

    >>> two_columns(np.array([0.2, 0.7]), "probs").tolist()
    [[0.8, 0.2], [0.30000000000000004, 0.7]]
    """
    xp = array_api_compat.array_namespace(column)
    column = column[:, 0] if column.ndim == 2 else column
    if not xp.isdtype(column.dtype, "real floating"):
        column = xp.astype(column, xp.float64)
    return xp.stack([1 - column if input == "probs" else xp.zeros_like(column), column], axis=1)


def is_signed(labels: NDArray[Any]) -> bool:
    """Whether labels of two classes are −1 and 1."""
    return labels.dtype.kind in "if" and bool((labels == -1).any()) and bool(np.isin(labels, (-1, 1)).all())


def soft_rows(rows: PlainRows) -> PlainRows:
    """Turn soft labels, N×K shares, into a row for each class with a share, weighted by it.

    Sums over these rows are expectations over the label. The scores stay where they are.
    """
    shares: NDArray[Any] = rows.labels
    n, n_classes = rows.values.shape
    if shares.shape != (n, n_classes) or shares.dtype.kind not in "biuf":
        raise InputError(
            f"labels: expected shape ({n},), or shares of shape ({n}, {n_classes}), got {shares.shape}. For votes of "
            "annotators use label_shares, for labels that do not exclude each other multi_label=True. The scores come "
            "first, then the labels.",
            "labels",
        )
    shares = shares.astype(np.float64)
    total = shares.sum(axis=1)
    bad = np.flatnonzero(~((shares >= 0).all(axis=1) & (np.abs(total - 1) < 0.02)))
    if bad.size:
        raise InputError(
            f"labels: row {bad[0]} sums to {total[bad[0]]:.6g}; expected shares that sum to 1. For counts of votes use "
            "labels / labels.sum(axis=1, keepdims=True), for labels that do not exclude each other multi_label=True.",
            "labels",
        )
    shares = shares / total[:, None]
    sample, column = (np.ascontiguousarray(part) for part in np.nonzero(shares))
    if len(sample) == n:
        return replace(rows, labels=column)
    weights = shares[sample, column]
    weights = weights if rows.weights is None else weights * as_weights(rows.weights, n)[sample]
    return PlainRows(rows.values, column, weights, sample, sample, n)


def label_shares(votes: Any, n_classes: int | None = None, *, classes: Sequence[Any] | None = None) -> Floats:
    """Return the share of the annotators that chose each class, N×K: soft labels for fits and metrics.

    Parameters
    ----------
    votes : array of shape (N, M)
        What each of M annotators chose: column numbers, or names if ``classes`` has them. A vote that is missing is
        NaN or None, or −1 where votes are column numbers.
    n_classes : int
    classes : sequence of names, optional
        Names of the columns, in their order, instead of ``n_classes``.

    Examples
    --------
    >>> label_shares([[0, 1, 1], [2, 2, -1]], n_classes=3).round(2)
    array([[0.33, 0.67, 0.  ],
           [0.  , 0.  , 1.  ]])
    >>> label_shares([["no", "yes"], ["yes", None]], classes=["no", "yes"])
    array([[0.5, 0.5],
           [0. , 1. ]])
    """
    table = votes.to_numpy() if hasattr(votes, "to_numpy") else np.asarray(votes, dtype=object)
    if table.ndim != 2 or (classes is None and n_classes is None):
        raise InputError("votes: expected an array of shape (N, M), and n_classes or classes", "votes")
    k = n_classes if classes is None else len(classes)
    assert k is not None
    shares = np.zeros((len(table), k))
    for m in range(table.shape[1]):
        missing = (-1,) if classes is None else ()
        cast = np.array([not (is_missing(vote) or vote in missing) for vote in table[:, m].tolist()])
        if cast.any():
            chosen = as_labels(table[cast, m], int(cast.sum()), k, classes)
            shares[np.flatnonzero(cast), chosen] += 1
    total = shares.sum(axis=1, keepdims=True)
    if not total.all():
        raise InputError(
            f"votes: row {np.flatnonzero(total == 0)[0]} has none. Drop samples that nobody labelled.", "votes"
        )
    return np.asarray(shares / total)


def image_rows(rows: PlainRows, axis: int | None, *, ignore_index: int | None, max_pixels: int | None) -> PlainRows:
    """Turn images, classes at ``axis``, into rows of pixels; with ``max_pixels`` at most so many of each image count.

    Pixels that are drawn are weighted by the share of their image's pixels that count.
    """
    values, y = rows.values, rows.labels
    if axis is None or not -values.ndim <= axis < values.ndim or axis % values.ndim == 0:
        raise InputError(
            f"axis: expected where the classes are in shape {tuple(values.shape)}. Use axis=1 for "
            "images, (N, K, H, W), or axis=-1.",
            "axis",
        )
    xp = array_api_compat.array_namespace(values)
    n_images = int(values.shape[0])
    last = xp.moveaxis(values, axis, -1)
    shape, k = tuple(last.shape[:-1]), int(last.shape[-1])
    pixels = xp.reshape(last, (-1, k))
    n = int(pixels.shape[0])
    image = np.repeat(np.arange(n_images), n // n_images)
    if y is not None and y.shape != shape:
        raise InputError(
            f"labels: expected shape {shape}, that of the data without the classes, got {y.shape}", "labels"
        )
    y = None if y is None else y.reshape(-1)
    kept = np.arange(n) if y is None or ignore_index is None else np.flatnonzero(y != ignore_index)
    if not kept.size:
        raise InputError(f"labels: no pixel counts after ignore_index={ignore_index}", "labels")
    w = None
    if rows.weights is not None:
        given = as_plain(rows.weights)
        w = as_weights(given.reshape(-1) if given.size == n else np.repeat(given, n // n_images), n)[kept]
    if max_pixels is not None:
        drawn, share = _draw_pixels(image[kept], 0 * kept if y is None else y[kept], n_images, max_pixels)
        kept, w = kept[drawn], share if w is None else w[drawn] * share
    index = None if len(kept) == n else kept
    return PlainRows(pixels, None if y is None else y[kept], w, index, image[kept], n_images)


def _draw_pixels(image: Labels, y: NDArray[Any], n_images: int, most: int) -> tuple[NDArray[np.intp], Floats]:
    """Draw by the labels of an image, so that its pixels are the same in whatever file it is."""
    chosen, share = [], []
    ends = np.searchsorted(image, np.arange(n_images + 1))
    for first, last in pairwise(ends):
        n, rng = last - first, np.random.default_rng(crc32(" ".join(map(str, y[first:last].tolist())).encode()))
        rows = np.arange(first, last) if n <= most else first + np.sort(rng.choice(n, most, replace=False))
        chosen.append(rows)
        share.append(np.full(len(rows), n / max(len(rows), 1)))
    return np.concatenate(chosen), np.concatenate(share)


def as_label_matrix(labels: Any, n: int, n_labels: int, ignore_index: int | None = None) -> Floats:
    """Return N×L labels that do not exclude each other, as 0, 1 and NaN where one is not known."""
    y = as_plain(labels)
    y = y.reshape(-1, 1) if n_labels == 1 else y
    if y.shape != (n, n_labels):
        raise InputError(f"labels: expected shape {(n, n_labels)}, one column for each label, got {y.shape}", "labels")
    if y.dtype.kind == "O":
        y = np.array([[np.nan if is_missing(item) else item for item in row] for row in y.tolist()])
    try:
        y = y.astype(np.float64)
    except (TypeError, ValueError):
        raise InputError("labels: expected 0, 1 or NaN for each label", "labels") from None
    y = y if ignore_index is None else np.where(y == ignore_index, np.nan, y)
    bad = np.argwhere(~(np.isnan(y) | (y == 0) | (y == 1)))
    if len(bad):
        row, column = bad[0]
        raise InputError(f"labels: row {row}, column {column} is {y[row, column]}; expected 0, 1 or NaN", "labels")
    return y
