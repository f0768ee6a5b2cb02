"""Which columns of a table (csv, parquet) hold what; refused rather than guessed."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attemper._paths import InputFile, PathOrURL
from attemper.errors import FileError, InputError, option, setting
from attemper.io.reading import listed
from attemper.io.spec import InputSpec

__all__ = [
    "LABEL",
    "PREDICTION",
    "PROB",
    "Columns",
    "choose_columns",
    "column_order",
    "label_and_weight",
    "reject_arrays",
    "reject_row_numbers",
]

LABEL, PREDICTION, PROB = "label", "prediction", "prob_"
# A name takes some hundred bytes of memory, however short it is in the file.
MAX_COLUMNS = 10**6

# What tables have in addition to logits. Whole numbers under such a name are none; other numbers may be, for a class
# can have such a name: `id` is Indonesian.
BESIDE = re.compile(
    r"(.*[_ .-])?(id|ids|idx|index)|(row|sample|image|img|patient|case)id|unnamed: 0|uuid|fold|split|target|targets|"
    r"y_true|labels|predictions|weight|weights|sample_weight"
)
# So many different numbers that only ascend do so by accident in less than one column of a million.
ENOUGH_ROWS = 10


@dataclass(frozen=True)
class Columns:
    """The columns of a table that are to be read."""

    logits: tuple[str, ...]
    label: str | None
    weight: str | None


def reject_arrays(path: PathOrURL, spec: InputSpec, labels: InputFile | None) -> None:
    """Refuse what belongs to files of arrays: labels in a file of their own, and sequences."""
    if labels is not None:
        raise FileError(
            f"{path}: the labels of a table are one of its columns, not the file {labels.path}; add the column, "
            "or save the logits as .npy"
        )
    if spec.mask_key is not None or spec.next_token:
        asked = option("next_token", "--next-token") if spec.next_token else option("mask_key", "--mask-key")
        raise FileError(
            f"{path}: a table has no sequences, so no {asked}; save arrays as .npz or .safetensors, or give rows that "
            f"do not count the label of {option('ignore_index', '--ignore-index')}"
        )


def label_and_weight(path: PathOrURL, names: Sequence[str], spec: InputSpec) -> tuple[str | None, str | None]:
    """Give the columns of labels and weights, None for what is not wanted; an error if one is missing."""
    if len(names) > MAX_COLUMNS:
        raise FileError(f"{path}: {len(names)} columns; expected at most {MAX_COLUMNS}. Save more as .npz.")
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise FileError(f"{path}: two columns are named {twice[0]!r}; give each a name of its own")
    label = (spec.labels_key or LABEL) if spec.reads_labels else None
    by_label, by_weight = option("labels_key", "--labels-key"), option("weights_key", "--weights-key")
    for column, by in ((label, by_label), (spec.weights_key, by_weight)):
        if column is not None and column not in names:
            raise FileError(
                f"{path}: there is no column {column!r}; there are {listed(names)}. Use {by} to choose one."
            )
    return label, spec.weights_key


def choose_columns(path: PathOrURL, names: Sequence[str], spec: InputSpec) -> Columns:
    """One column per class: those with the prefix of ``logits_key``, or all that are nothing else."""
    label, weight = label_and_weight(path, names, spec)
    apart = {LABEL, PREDICTION, spec.labels_key, weight}
    logits = tuple(n for n in names if n not in apart and n.startswith(spec.logits_key or ""))
    if not logits:
        meant = f"that begins with {spec.logits_key!r}" if spec.logits_key else "other than the label"
        raise FileError(
            f"{path}: there is no column {meant}; there are {listed(names)}. Use "
            f"{option('logits_key', '--logits-key')} with what the names of the columns of logits begin with."
        )
    for name in logits:
        if not name.strip() or name.startswith("__index_level_"):
            raise FileError(
                f"{path}: a column without a name of its own ({name!r}) stands among the logits; that is how "
                f"pandas writes its index. Write with index=False, or use {option('logits_key', '--logits-key')} with "
                "what the names of the columns of logits begin with."
            )
    if not spec.logits_key:
        _reject_strangers(path, logits)
    _check_order(path, logits)
    return Columns(logits, label, weight)


def _reject_strangers(path: PathOrURL, logits: Sequence[str]) -> None:
    """Refuse id, logit_0, logit_1, …: where most columns are numbered, one that is not is hardly a class."""
    stems = [match[1] if (match := re.fullmatch(r"(.*?)[0-9]{1,9}", name)) else None for name in logits]
    [(stem, count)] = Counter(stems).most_common(1)
    strangers = [name for name, own in zip(logits, stems) if own != stem]
    if stem is not None and strangers and count > 1:
        raise InputError(
            f"{path}: is {strangers[0]!r} a class like {stem + '0'!r}, {stem + '1'!r}, …? Specify what the names "
            f"of the columns of logits begin with: {setting('logits_key', stem or strangers[0])}"
        )


def reject_row_numbers(path: PathOrURL, names: Sequence[str], values: NDArray[Any]) -> None:
    """Refuse columns that number the rows of a table, as its first rows show: those are no logits."""
    with np.errstate(invalid="ignore"):
        finite, whole = np.isfinite(values), values == np.floor(values)
    fractions = bool((finite & ~whole).any())
    columns = np.flatnonzero((finite & whole).all(axis=0)).tolist()
    found = {k: why for k in columns if (why := _why_no_logits(names[k], values[:, k], fractions))}
    for k, why in found.items():
        others = [other for j, other in enumerate(names) if j not in found]
        raise InputError(
            f"{path}: column {names[k]!r} holds {why}, so it is not taken as logits. Remove the column, or "
            f"{_how_to_select(others, names[k])}. Use {option('labels_key', '--labels-key')} or "
            f"{option('weights_key', '--weights-key')} if it holds labels or weights, and "
            f"{option('classes=[…]', '--classes A,B,…')} with the names of all columns if it is a class."
        )


def _why_no_logits(name: str, column: NDArray[Any], fractions: bool) -> str | None:
    """Describe what a column of whole numbers holds instead of logits; None if it may hold logits."""
    steps = np.diff(column)
    if (steps >= 0).all() and (steps > 0).sum() + 1 >= ENOUGH_ROWS:
        return "whole numbers that only ascend, as row numbers and ids do"
    if fractions and len(column) >= ENOUGH_ROWS and len(np.unique(column)) == len(column):
        return "whole numbers that are all different, as ids are, while other columns have decimals"
    if BESIDE.fullmatch(name.strip().lower()):
        return "whole numbers alone under a name that is not one of a class"
    return None


def _how_to_select(columns: Sequence[str], without: str) -> str:
    """Give the option that selects these columns but not the other one, or what makes it possible."""
    prefix = columns[0][: _common(columns)] if len(columns) > 1 else ""
    if prefix and not without.startswith(prefix):
        return f"select the columns of logits with {setting('logits_key', prefix)}"
    example = f", such as {'logit_' + columns[0]!r}," if columns else ""
    by = option("logits_key='logit_'", "--logits-key logit_")
    return f"rename the columns of logits to begin alike{example} and use {by}"


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


def _check_order(path: PathOrURL, logits: Sequence[str]) -> None:
    """Refuse logit_0, logit_1, logit_10, logit_2, …: labels are column numbers, so the order matters."""
    matches = [re.fullmatch(r"(.*?)([0-9]{1,9})", name) for name in logits]
    numbers = [int(match[2]) for match in matches if match]
    same_stem = len({match[1] for match in matches if match}) == 1
    if len(numbers) == len(logits) and same_stem and numbers != sorted(numbers):
        raise InputError(
            f"{path}: the columns of logits are numbered but not in order: {listed(logits)}. Labels are "
            "column numbers, so write the columns in order."
        )
