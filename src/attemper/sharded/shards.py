"""A shard: what is sent to a worker, what the worker does with it, and what it sends back."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from attemper.data.scores import Scores
from attemper.errors import (
    AttemperError,
    AttemperWarning,
    InputError,
    InputTypeError,
    collected_warnings,
)
from attemper.io import InputSpec, open_scores, paired
from attemper.sketch import Sketch

__all__ = ["Outcome", "Shard", "Shards", "Sketched", "as_shards", "sketch_pieces", "sketch_shard"]

Path = str | os.PathLike[str]
Item = Scores | Sequence[Any]
Shards = Path | Iterable[Path] | Iterable[Item]


@dataclass(frozen=True)
class Shard:
    """One part of the data and what to do with it; a few hundred bytes when the data are a file."""

    path: str  # or the name of what lies in memory
    labels: str | None
    item: Any  # a Scores or (logits, labels[, weights]); None for a file
    spec: InputSpec
    settings: dict[str, Any]


@dataclass(frozen=True)
class Sketched:
    """What a worker sends back: the sketch, and what shards of one data set must have in common."""

    path: str
    columns: tuple[str, ...] | None
    sketch: Sketch
    warnings: tuple[AttemperWarning, ...] = ()

    @property
    def n_classes(self) -> int:
        """K, the number of classes."""
        return self.sketch.n_classes


Outcome = Sketched | Exception | None
"""What became of a shard; None: it has no rows and was passed over."""


def sketch_shard(shard: Shard) -> Outcome:
    """Sketch one shard in bounded memory.

    An error is returned rather than raised: what an engine itself raises then means a lost worker. Warnings are
    sent back too, since nobody reads what a worker prints.
    """
    try:
        with collected_warnings() as found:
            made = _sketch_file(shard) if shard.item is None else _sketch_item(shard)
        return None if made is None else replace(made, warnings=tuple(found))
    except Exception as error:
        if not isinstance(error, AttemperError | OSError):
            error.add_note(f"while working on {shard.path}")
        return error


def sketch_pieces(pieces: Iterable[Scores], **settings: Any) -> Sketch | None:
    """Sketch a data set that comes in pieces; None if there is none.

    >>> halves = [Scores.from_logits([[2.0, 1.0]], [0]), Scores.from_logits([[0.0, 3.0], [1.0, 4.0]], [0, 1])]
    >>> sketch_pieces(halves).n_samples
    3
    """
    total: Sketch | None = None
    for piece in pieces:
        part = Sketch.of(piece, **settings)
        total = part if total is None else total + part
        settings = settings | {"t_range": total.t_range, "unit": total.unit}  # the first piece shows the scale
    return total


def as_shards(given: Shards, spec: InputSpec, settings: dict[str, Any]) -> list[Shard]:
    """Make a task of every file, or of every item in memory; nothing is opened."""
    if isinstance(given, Scores):
        raise InputError("one Scores is one shard; give a list of them, or use the calibrator's own fit")
    items: list[Any] = [given] if isinstance(given, str | os.PathLike) else list(given)
    if not items:
        raise InputError("no shard was given")
    if all(isinstance(item, str | os.PathLike) for item in items):
        pairs, spec = paired(items, spec), spec.updated(labels=None)
        return [Shard(str(p), None if y is None else str(y), None, spec, settings) for p, y in pairs]
    keys = [name for name in ("labels", "logits_key", "labels_key", "weights_key") if name in spec.non_defaults()]
    if keys:
        raise InputError(f"{keys[0]} is for files; shards in memory have arrays of their own. Leave it out")
    return [Shard(f"shard {i}", None, _checked(item, i), spec, settings) for i, item in enumerate(items)]


def _checked(item: Any, number: int) -> Any:
    if isinstance(item, Scores) or (isinstance(item, tuple | list) and len(item) in (2, 3)):
        return item
    raise InputTypeError(
        f"shard {number} is a {type(item).__name__}; expected paths alone, or a list of Scores or of tuples "
        "(logits, labels) or (logits, labels, weights)"
    )


def _sketch_file(shard: Shard) -> Sketched | None:
    files = open_scores(shard.path, shard.spec.updated(labels=shard.labels))
    sketch = sketch_pieces(files.pieces(), **shard.settings)
    names = files.columns
    if names is None and shard.spec.classes is None:  # those of an array, by its own class_names
        names = files.spec.class_names
    return None if sketch is None else Sketched(shard.path, names, sketch)


def _sketch_item(shard: Shard) -> Sketched | None:
    spec = shard.spec
    try:
        if isinstance(shard.item, Scores):
            scores = shard.item
            if scores.input != spec.input:
                raise InputError(f"expected {spec.input}, got {scores.input}")
        else:
            logits, labels, *weights = shard.item
            if len(logits) == 0:
                raise InputError("no rows; leave it out")
            scores = spec.scores(
                logits,
                labels,
                sample_weight=weights[0] if weights else None,
                classes=spec.classes,
                axis=spec.axis,
                ignore_index=spec.ignore_index,
                max_pixels=spec.max_pixels,
            )
        return Sketched(shard.path, None, Sketch.of(scores, **shard.settings))
    except AttemperError as error:
        raise type(error)(f"{shard.path}: {error}") from None
