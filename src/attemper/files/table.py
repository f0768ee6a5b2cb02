"""Which columns of a table (csv, parquet) hold what; refused rather than guessed."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from attemper.errors import FileError, InputError, option, setting
from attemper.files.reading import Keys, listed
from attemper.places import Place

__all__ = [
    "LABEL",
    "PREDICTION",
    "PROB",
    "Columns",
    "choose_columns",
    "label_and_weight",
    "reject_label_file",
    "reject_sequences",
]

LABEL, PREDICTION, PROB = "label", "prediction", "prob_"
# A name takes some hundred bytes of memory, however short it is in the file.
MAX_COLUMNS = 10**6


@dataclass(frozen=True)
class Columns:
    """The columns of a table that are to be read."""

    logits: tuple[str, ...]
    label: str | None
    weight: str | None


def reject_label_file(path: Place, labels: Place | None) -> None:
    """Refuse a separate file of labels."""
    if labels is not None:
        raise FileError(
            f"{path}: the labels of a table are one of its columns, not the file {labels}; add the column, "
            "or save the logits as .npy"
        )


def reject_sequences(path: Place, keys: Keys) -> None:
    """Refuse what belongs to arrays of sequences."""
    if keys.mask is not None or keys.next_token:
        asked = option("next_token", "--next-token") if keys.next_token else option("mask_key", "--mask-key")
        raise FileError(
            f"{path}: a table has no sequences, so no {asked}; save arrays as .npz or .safetensors, or give rows that "
            f"do not count the label of {option('ignore_index', '--ignore-index')}"
        )


def label_and_weight(path: Place, names: Sequence[str], keys: Keys) -> tuple[str | None, str | None]:
    """Give the columns of labels and weights, None for what is not wanted; an error if one is missing."""
    if len(names) > MAX_COLUMNS:
        raise FileError(f"{path}: {len(names)} columns; expected at most {MAX_COLUMNS}. Save more as .npz.")
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise FileError(f"{path}: two columns are named {twice[0]!r}; give each a name of its own")
    label = (keys.labels or LABEL) if keys.want_labels else None
    by_label, by_weight = option("labels_key", "--labels-key"), option("weights_key", "--weights-key")
    for column, by in ((label, by_label), (keys.weights, by_weight)):
        if column is not None and column not in names:
            raise FileError(
                f"{path}: there is no column {column!r}; there are {listed(names)}. Use {by} to choose one."
            )
    return label, keys.weights


def choose_columns(path: Place, names: Sequence[str], keys: Keys) -> Columns:
    """One column per class: those with the prefix told, or all that are nothing else."""
    label, weight = label_and_weight(path, names, keys)
    apart = {LABEL, PREDICTION, keys.labels, weight}
    logits = tuple(n for n in names if n not in apart and n.startswith(keys.logits or ""))
    if not logits:
        meant = f"that begins with {keys.logits!r}" if keys.logits else "beside the labels"
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
    if not keys.logits:
        _reject_strangers(path, logits)
    _check_order(path, logits)
    return Columns(logits, label, weight)


def _reject_strangers(path: Place, logits: Sequence[str]) -> None:
    """Refuse id, logit_0, logit_1, …: where most columns are numbered, one that is not is hardly a class."""
    stems = [match[1] if (match := re.fullmatch(r"(.*?)[0-9]{1,9}", name)) else None for name in logits]
    [(stem, count)] = Counter(stems).most_common(1)
    strangers = [name for name, own in zip(logits, stems) if own != stem]
    if stem is not None and strangers and count > 1:
        raise InputError(
            f"{path}: is {strangers[0]!r} a class like {stem + '0'!r}, {stem + '1'!r}, …? Specify what the names "
            f"of the columns of logits begin with: {setting('logits_key', stem or strangers[0])}"
        )


def _check_order(path: Place, logits: Sequence[str]) -> None:
    """Refuse logit_0, logit_1, logit_10, logit_2, …: labels are column numbers, so the order matters."""
    matches = [re.fullmatch(r"(.*?)([0-9]{1,9})", name) for name in logits]
    numbers = [int(match[2]) for match in matches if match]
    same_stem = len({match[1] for match in matches if match}) == 1
    if len(numbers) == len(logits) and same_stem and numbers != sorted(numbers):
        raise InputError(
            f"{path}: the columns of logits are numbered but not in order: {listed(logits)}. Labels are "
            "column numbers, so write the columns in order."
        )
