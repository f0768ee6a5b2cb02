"""Which columns of a table, in a file or in memory, hold what; refused rather than guessed."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attemper.data.numerals import is_number
from attemper.errors import InputError, listed, nearest

__all__ = [
    "LABEL",
    "PREDICTION",
    "PROB",
    "ColumnQuery",
    "Columns",
    "RowNumbers",
    "check_columns",
    "choose_columns",
    "column_order",
    "header_classes",
    "how_to_select",
    "label_candidate",
    "may_be_labels",
    "not_numbers",
    "selection",
    "without_ids",
]

LABEL, PREDICTION, PROB = "label", "prediction", "prob_"
# A name takes some hundred bytes of memory, however short it is in the file.
MAX_COLUMNS = 10**6

# What tables have in addition to logits. Whole numbers under such a name are none; other numbers may be, for a class
# can have such a name: `id` is Indonesian.
BESIDE = re.compile(
    r"(.*[_ .-])?(id|ids|idx|index)|(row|sample|image|img|patient|case)id|unnamed: 0|uuid|fold|split|target|targets|"
    r"y_true|labels|pred|preds|predicted|predictions|y_?pred|y_?hat|weight|weights|sample_weight"
)
# What columns of labels are called, other than `label`.
LABELS = re.compile(
    r"(.*[_ .-])?(labels?|targets?|truth)|y|y_?true|class|class_?(id|idx|index|name)|gt|groundtruth|gold|answer|"
    r"outcome|diagnosis"
)
# Weights have decimals, and no class is called so.
WEIGHTS = re.compile(r"weights?|sample[_ ]?weights?")
# So many different numbers that only ascend do so by accident in less than one column of a million.
ENOUGH_ROWS = 10
# Labels repeat: with fewer rows for each name these are ids.
REPEATS = 2
# A list of columns in an error is there to be copied; longer ones are not.
MAX_LISTED = 12


@dataclass(frozen=True)
class ColumnQuery:
    """Which columns of a table are asked for, and how the caller's options are called in errors."""

    label: str | None = None  # None: no labels are read
    weight: str | None = None
    group: str | None = None
    cluster: str | None = None
    prefix: str | None = None  # what the names of the columns of logits begin with
    columns: tuple[str | int, ...] | None = None  # their names, or numbers among the columns of logits
    classes: tuple[str, ...] | None = None
    in_memory: bool = False

    def by(self, what: str) -> str:
        """Name the option that chooses the columns of ``logits``, ``labels``, ``weights`` or ids."""
        if self.in_memory:
            return {"logits": "columns", "weights": "sample_weight"}.get(what, what)
        return f"{what}_key"

    @property
    def beside_logits(self) -> dict[str, str]:
        """Columns that are named and hold no logits, and what they hold."""
        named = {"labels": self.label, "weights": self.weight, "groups": self.group, "clusters": self.cluster}
        return {column: what for what, column in named.items() if column is not None}

    def labels_in(self, column: str) -> str:
        """Write out the option that reads labels from a column."""
        return f"{'labels' if self.in_memory else 'labels_key'}={column!r}"

    def with_prefix(self, prefix: str) -> str:
        """Write out the option that selects the columns that begin so."""
        return f"{'columns' if self.in_memory else 'logits_key'}={prefix!r}"


@dataclass(frozen=True)
class Columns:
    """The columns of a table that are to be read."""

    logits: tuple[str, ...]
    label: str | None
    weight: str | None
    named: bool = False  # the columns of logits were chosen by name, so that none of them can be a column of ids


FirstRows = Callable[[], Mapping[str, Sequence[Any]]]


def check_columns(where: object, names: Sequence[str], query: ColumnQuery, first: FirstRows = dict) -> None:
    """Refuse a table without a column that the query names beside the logits.

    ``first`` returns the first entries of each column: an error names the column that seems to hold the labels.
    """
    if len(names) > MAX_COLUMNS:
        raise InputError(f"{where}: {len(names)} columns; expected at most {MAX_COLUMNS}. Save more as .npz.")
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise InputError(f"{where}: two columns are named {twice[0]!r}; give each a name of its own")
    for column, what in query.beside_logits.items():
        if column not in names:
            likely = None
            if what == "labels" and column == LABEL:
                likely = label_candidate(names, first(), [c for c in query.beside_logits if c != column])
            fix = f"Use {query.by(what)} to choose one."
            if likely is not None:
                fix = f"Use {query.labels_in(likely)} if that column holds the labels."
            raise InputError(f"{_no_column(where, column, names)} {fix}")


def may_be_labels(name: str) -> bool:
    """Whether columns of labels are called so.

    >>> may_be_labels("target"), may_be_labels("logit_0")
    (True, False)
    """
    return LABELS.fullmatch(name.strip().lower()) is not None


def label_candidate(
    names: Sequence[str], first: Mapping[str, Sequence[Any]], without: Collection[str] = ()
) -> str | None:
    """Return the column that seems to hold the labels: by its name, or the only one with text that repeats.

    >>> label_candidate(["score", "y"], {"score": ["0.5", "1.5"], "y": ["ill", "well"]})
    'y'
    >>> label_candidate(["score", "finding"], {"score": ["0.5"] * 4, "finding": ["ill", "well"] * 2})
    'finding'
    """
    names = [name for name in names if name not in without]
    called = [name for name in names if may_be_labels(name) and not any(map(_has_decimals, first.get(name, ())))]
    if called:
        return called[0]
    text = [name for name in names if _is_text(first.get(name, ()))]
    text = [name for name in text if REPEATS * len(set(first[name])) <= len(first[name])]
    return text[0] if len(text) == 1 else None


def _has_decimals(entry: Any) -> bool:
    try:
        return not float(entry).is_integer()
    except (TypeError, ValueError, OverflowError):
        return False


def _is_text(entries: Sequence[Any]) -> bool:
    return bool(entries) and all(isinstance(entry, str) and not is_number(entry) for entry in entries)


def choose_columns(where: object, names: Sequence[str], query: ColumnQuery, first: FirstRows = dict) -> Columns:
    """One column per class: those that are named, or have the classes' names or a prefix; else all that are left."""
    check_columns(where, names, query, first)
    label, weight = query.label, query.weight
    apart: set[str | None] = {LABEL, PREDICTION, *query.beside_logits}
    found = _named(where, names, apart, query)
    if found is not None:
        return Columns(found, label, weight, named=True)
    logits = tuple(n for n in names if n not in apart and n.startswith(query.prefix or ""))
    if not logits:
        meant = f"that begins with {query.prefix!r}" if query.prefix else "other than the label"
        raise InputError(
            f"{where}: there is no column {meant}; there are {listed(names)}. Use "
            f"{query.by('logits')} with what the names of the columns of logits begin with, or "
            f"columns=[…] with their names.",
            param="columns",
        )
    for name in logits:
        if not name.strip() or name.startswith("__index_level_"):
            raise InputError(
                f"{where}: a column without a name of its own ({name!r}) stands among the logits; that is how "
                f"pandas writes its index. Write with index=False, or use {query.by('logits')} with "
                "what the names of the columns of logits begin with."
            )
    if not query.prefix:
        _reject_strangers(where, logits, query)
    _check_order(where, logits)
    if query.columns is not None:
        logits = _numbered_columns(where, logits, query.columns)
    return Columns(logits, label, weight, named=query.prefix is not None)


def _named(where: object, names: Sequence[str], apart: set[str | None], query: ColumnQuery) -> tuple[str, ...] | None:
    """Columns that the query names, or that have the names of its classes; None if it does not name any."""
    there = set(names)
    if query.columns is not None:
        wanted = tuple(map(str, query.columns))
        missing = [name for name in wanted if name not in there]
        if len(missing) == len(wanted) and all(isinstance(column, int) for column in query.columns):
            return None  # numbers, and no column is called by one
        if missing:
            raise InputError(_no_column(f"{where}: columns", missing[0], names), param="columns")
        taken = next((name for name in wanted if name in query.beside_logits), None)
        if taken is not None:
            holds = query.beside_logits[taken]
            raise InputError(
                f"{where}: column {taken!r} holds the {holds}, so it is no class; leave it out of "
                f"columns, or choose other {holds} with {query.by(holds)}",
                param="columns",
            )
        return wanted
    if query.classes is None or query.prefix is not None or len(set(query.classes)) < len(query.classes):
        return None
    first = query.classes[0]
    heads = [name.removesuffix(first) for name in names if name.endswith(first)]
    for head in sorted(heads, key=len):  # the names themselves before prob_cat, …
        if all(head + name in there for name in query.classes):
            wanted = tuple(head + name for name in query.classes)
            if not apart.intersection(wanted):
                return wanted
    return None


def _numbered_columns(where: object, logits: tuple[str, ...], columns: Sequence[str | int]) -> tuple[str, ...]:
    """Columns by their numbers among all columns of logits."""
    numbers = [int(column) for column in columns]
    wrong = next((number for number in numbers if not 0 <= number < len(logits)), None)
    if wrong is not None:
        raise InputError(
            f"{where}: columns: there is no column {wrong}: the columns of logits are "
            f"{listed(logits)}, numbered from 0 to {len(logits) - 1}. Use their names, or numbers in that range.",
            param="columns",
        )
    return tuple(logits[number] for number in numbers)


def _no_column(where: object, name: str, names: Sequence[str]) -> str:
    return f"{where}: there is no column {name!r}; there are {listed(names)}.{nearest(name, names)}"


def header_classes(columns: Sequence[str], label: Any) -> tuple[str, ...] | None:
    """Names of the classes that the headers of a table are, if the first label is one of them; else None.

    Labels that are text are looked for among the headers, with and without what all of them begin and end with.
    Where headers are numbers other than 0, 1, …, a label that is a number is the name of a column, not its number.

    >>> header_classes(["logit_cat", "logit_dog"], "dog")
    ('cat', 'dog')
    >>> header_classes(["1", "2", "3"], 3)
    ('1', '2', '3')
    >>> header_classes(["cat", "dog"], 1)
    """
    if isinstance(label, str) and not is_number(label):
        return next((tuple(names) for names in (columns, _apart(columns)) if label in names), None)
    numbers = all(re.fullmatch("-?[0-9]{1,18}", name) for name in columns)
    return tuple(columns) if numbers and list(columns) != list(map(str, range(len(columns)))) else None


def _reject_strangers(where: object, logits: Sequence[str], query: ColumnQuery) -> None:
    """Refuse id, logit_0, logit_1, …: where most columns are numbered, one that is not is hardly a class."""
    stems = [match[1] if (match := re.fullmatch(r"(.*?)[0-9]{1,9}", name)) else None for name in logits]
    [(stem, count)] = Counter(stems).most_common(1)
    strangers = [name for name, own in zip(logits, stems) if own != stem]
    if stem is not None and strangers and count > 1:
        raise InputError(
            f"{where}: is {strangers[0]!r} a class like {stem + '0'!r}, {stem + '1'!r}, …? Specify what the names "
            f"of the columns of logits begin with: {query.with_prefix(stem or strangers[0])}"
        )


class RowNumbers:
    """Refuse columns that number the rows of a table: those are no logits. Blocks of rows are checked in order.

    >>> watch = RowNumbers("val.csv", ["row", "cat"], ColumnQuery())
    >>> watch.check(np.column_stack([np.arange(20.0), np.zeros(20)]))  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    attemper.errors.InputError: val.csv: column 'row' holds whole numbers that only ascend, ...
    """

    def __init__(self, where: object, names: Sequence[str], query: ColumnQuery) -> None:
        self._where, self._names, self._query = where, names, query
        self._open: NDArray[np.int64] | None = None  # columns that held whole numbers alone so far, and only ascended
        self._last: NDArray[Any] = np.empty(0)
        self._steps: NDArray[np.int64] = np.empty(0, dtype=np.int64)
        self._doubtful: set[int] = set()  # columns of whole numbers where others have decimals

    def check(self, values: NDArray[Any]) -> None:
        """Look at the next rows."""
        first = self._open is None
        part = values if self._open is None else values[:, self._open]
        if not part.size:
            return
        with np.errstate(invalid="ignore"):
            finite, whole = np.isfinite(part), part == np.floor(part)
        columns = np.flatnonzero((finite & whole).all(axis=0))
        if first:
            self._check_first(values, columns, fractions=bool((finite & ~whole).any()))
            self._open, self._last, self._steps = columns, values[:1, columns], np.zeros(len(columns), dtype=np.int64)
        else:
            self._keep(columns)
        assert self._open is not None
        steps = np.diff(np.concatenate([self._last, values[:, self._open]]), axis=0)
        self._steps = self._steps + (steps > 0).sum(axis=0)
        self._last = values[-1:, self._open]
        self._keep(np.flatnonzero((steps >= 0).all(axis=0)))
        found = np.flatnonzero(self._steps + 1 >= ENOUGH_ROWS)
        if found.size:
            self._reject({int(k): ASCENDING for k in self._open[found]})

    def _keep(self, columns: NDArray[np.int64]) -> None:
        assert self._open is not None
        self._open, self._last, self._steps = self._open[columns], self._last[:, columns], self._steps[columns]

    def _check_first(self, values: NDArray[Any], columns: NDArray[np.int64], *, fractions: bool) -> None:
        found = {k: WEIGHING for k, name in enumerate(self._names) if _weighs(name)}
        if fractions:
            self._doubtful = {k for k in columns.tolist() if values[:, k].min() < values[:, k].max()}
        for k in columns.tolist():
            why = _why_no_logits(self._names[k], values[:, k], fractions)
            if why is not None:
                found[k] = why
        if found:
            self._reject(found)

    def _reject(self, found: dict[int, str]) -> None:
        names, query = self._names, self._query
        k, why = next(iter(found.items()))
        others = [other for j, other in enumerate(names) if j not in found and j not in self._doubtful]
        others = others or [other for j, other in enumerate(names) if j not in found]
        select = how_to_select(others, [name for name in names if name not in others], query)
        fix = f"Remove the column, or select the columns of logits with {select}."
        if query.label is None and may_be_labels(names[k]):
            fix = f"Use {query.labels_in(names[k])} if it holds the labels. Otherwise {fix[0].lower()}{fix[1:]}"
        raise InputError(
            f"{self._where}: column {names[k]!r} holds {why}, so it is not taken as logits. {fix} Use "
            f"{query.by('labels')} or {query.by('weights')} if it holds labels or weights, and "
            f"classes=[…] with the names of all columns if it is a class.",
            param="classes",
        )


WEIGHING = "weights, by its name"
ASCENDING = "whole numbers that only ascend, as row numbers and ids do"


def without_ids(columns: Mapping[str, NDArray[Any]]) -> list[str]:
    """Names of those columns of numbers that may hold logits; where some have decimals, those of whole numbers may not.

    >>> without_ids({"id": np.arange(20), "cat": np.linspace(-1, 1, 20)})
    ['cat']
    """

    def whole(column: NDArray[Any]) -> bool:
        with np.errstate(invalid="ignore"):
            return bool((np.isfinite(column) & (column == np.floor(column))).all())

    def varied(column: NDArray[Any]) -> bool:
        return len(column) > 1 and bool(np.nanmin(column) < np.nanmax(column))

    fractions = not all(map(whole, columns.values()))
    return [
        name
        for name, c in columns.items()
        if not (_weighs(name) or (whole(c) and ((fractions and varied(c)) or _why_no_logits(name, c, fractions))))
    ]


def _weighs(name: str) -> bool:
    return WEIGHTS.fullmatch(name.strip().lower()) is not None


def _why_no_logits(name: str, column: NDArray[Any], fractions: bool) -> str | None:
    """Describe what a column of whole numbers holds instead of logits; None if it may hold logits."""
    steps = np.diff(column)
    if (steps >= 0).all() and (steps > 0).sum() + 1 >= ENOUGH_ROWS:
        return ASCENDING
    if fractions and len(column) >= ENOUGH_ROWS and len(np.unique(column)) == len(column):
        return "whole numbers that are all different, as ids are, while other columns have decimals"
    if BESIDE.fullmatch(name.strip().lower()):
        return "whole numbers alone under a name that is not one of a class"
    return None


def not_numbers(where: object, name: str, what: str, numbers: Sequence[str], query: ColumnQuery) -> InputError:
    """Report a column that cannot hold logits or weights; ``numbers`` are the columns that can."""
    if name == query.weight:
        return InputError(
            f"{where}: column {name!r} {what}, not numbers; choose another one with {query.by('weights')}"
        )
    fix = f"Remove the column, or select the columns of logits with {how_to_select(numbers, [name], query)}."
    if query.label is None and may_be_labels(name):
        fix = f"Use {query.labels_in(name)} if it holds the labels. Otherwise {fix[0].lower()}{fix[1:]}"
    return InputError(f"{where}: column {name!r} {what}, not numbers. {fix}")


def how_to_select(columns: Sequence[str], without: Sequence[str], query: ColumnQuery) -> str:
    """Write out the option that selects these columns but not the others."""
    found = selection(columns, without)
    if found is None:
        return "columns=[…], a list of their names"
    name, value = found
    if name == "logits_key":
        return query.with_prefix(value)
    return f"columns={list(columns)!r}"


def selection(columns: Sequence[str], without: Sequence[str]) -> tuple[str, str] | None:
    """Return the option of files that selects these columns but not the others, and its value; None for long lists.

    >>> selection(["z_cat", "z_dog"], ["age"])
    ('logits_key', 'z_')
    >>> selection(["cat", "dog"], ["age"])
    ('columns', 'cat,dog')
    """
    prefix = columns[0][: _common(columns)] if len(columns) > 1 else ""
    alone = bool(prefix) and not any(name.startswith(prefix) for name in without)
    # cat and cow begin alike by accident.
    if alone and (not prefix[-1].isalnum() or all(name[len(prefix) :].isdecimal() for name in columns)):
        return "logits_key", prefix
    if 0 < len(columns) <= MAX_LISTED and not any("," in name for name in columns):
        return "columns", ",".join(columns)
    return ("logits_key", prefix) if alone else None


def column_order(columns: Sequence[str], classes: Sequence[str]) -> list[int] | None:
    """For each class the column that has its name, such as ``prob_cat``; None if columns have names of their own.

    Whatever all columns begin and end with does not count.

    >>> column_order(["prob_dog", "prob_cat"], ["cat", "dog"])
    [1, 0]
    >>> column_order(["logit_0", "logit_1"], ["cat", "dog"])
    """
    fold: Callable[[str], str]
    for fold in (str, str.casefold):
        own, wanted = (_apart([fold(name) for name in names]) for names in (columns, classes))
        place = {part: k for k, part in enumerate(own)}
        if len(place) == len(own) and set(wanted) == set(own):
            order = [place[part] for part in wanted]
            break
    else:
        own, known = _apart(columns), set(_apart(classes))
        named = next((name for name, part in zip(columns, own) if part in known), None)
        if named is not None and not _numbered(columns):
            other = next(name for name, part in zip(columns, own) if part not in known)
            raise InputError(
                f"column {named!r} has the name of a class, {other!r} does not; the classes are {listed(classes)}. "
                "Name all columns after the classes, or none of them."
            )
        return None
    if order != sorted(order) and _numbered(columns):
        raise InputError(
            f"the columns {listed(columns)} have the numbers of the classes {listed(classes)}, in another order. Name "
            "the columns after the classes, or number them from 0."
        )
    return order


def _apart(names: Sequence[str]) -> list[str]:
    """Names without what all of them begin and end with."""
    head = _common(names)
    rest = [name[head:] for name in names]
    tail = _common([name[::-1] for name in rest])
    return [name[: len(name) - tail] for name in rest]


def _common(names: Sequence[str]) -> int:
    """How many characters all names begin with: as many as the first and the last in the alphabet do."""
    first, last = min(names), max(names)
    return next((k for k, (a, b) in enumerate(zip(first, last)) if a != b), len(first))


def _numbered(columns: Sequence[str]) -> bool:
    matches = [re.fullmatch(r"(.*?)([0-9]{1,9})", name) for name in columns]
    return all(matches) and len({match[1] for match in matches if match}) == 1


def _check_order(where: object, logits: Sequence[str]) -> None:
    """Refuse logit_0, logit_1, logit_10, logit_2, …: labels are column numbers, so the order matters."""
    matches = [re.fullmatch(r"(.*?)([0-9]{1,9})", name) for name in logits]
    numbers = [int(match[2]) for match in matches if match]
    same_stem = len({match[1] for match in matches if match}) == 1
    if len(numbers) == len(logits) and same_stem and numbers != sorted(numbers):
        raise InputError(
            f"{where}: the columns of logits are numbered but not in order: {listed(logits)}. Labels are "
            "column numbers, so write the columns in order."
        )
