"""GroupSketches: a sketch of each group, so that sites can be fitted together and never share rows."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from attemper._json import Fields, read_document, write_document
from attemper._table import Columns, Table
from attemper.data.arrays import one_line
from attemper.data.scale import logit_scale
from attemper.data.scores import LabelledScores, Scores
from attemper.errors import FileError, InputError
from attemper.sketch import ALL_PARTS, Part, Sketch

__all__ = ["GroupSketches", "load_sketch"]


@dataclass(frozen=True, eq=False, repr=False)
class GroupSketches(Table):
    """A `Sketch` of each group; two of them can be added group by group, in any order.

    Make one with `GroupSketches.of`, or of sketches that were made before: ``GroupSketches({"north": a, "south": b})``.
    `Calibrator.fit_sketch` takes it. The number 1 and the text "1" are the same group.

    Examples
    --------
    >>> a = GroupSketches.of([[2.0, 1.0], [0.0, 3.0]], [0, 0], groups=["north", "south"])
    >>> b = GroupSketches.of([[1.0, 4.0]], [1], groups=["south"])
    >>> {group: sketch.n_samples for group, sketch in (a + b).sketches.items()}
    {'north': 1, 'south': 2}
    """

    __repr__ = one_line

    sketches: Mapping[Any, Sketch]

    def __post_init__(self) -> None:
        if not self.sketches or not all(isinstance(own, Sketch) for own in self.sketches.values()):
            raise InputError("sketches: expected a dict of sketches by group, such as {'north': Sketch.of(…)}")
        odd = [key for key in self.sketches if not isinstance(key, str | int) or isinstance(key, bool) or key == ""]
        if odd or len({str(key) for key in self.sketches}) < len(self.sketches):
            raise InputError(f"sketches: expected ids that are text or whole numbers, got {list(self.sketches)[:5]}")
        ordered = sorted(self.sketches, key=lambda key: (isinstance(key, str), key))
        object.__setattr__(self, "sketches", {key: self.sketches[key] for key in ordered})
        first, *others = self.sketches.values()
        for other in others:
            first.check_addable(other)

    @classmethod
    def of(
        cls,
        logits: ArrayLike | Any,
        labels: ArrayLike | Any | None = None,
        *,
        groups: Any = None,
        sample_weight: ArrayLike | None = None,
        classes: Sequence[Any] | None = None,
        t_range: tuple[float, float] | None = None,
        n_nodes: int = 64,
        thetas: ArrayLike | None = None,
        parts: Sequence[Part] = ALL_PARTS,
        unit: float | None = None,
    ) -> GroupSketches:
        """Sketch each group of a data set; parameters as of `Sketch.of`.

        ``groups`` has one id for each row, text or whole numbers; or pass a `Scores` with labels and groups.
        """
        scores: Any = logits
        if not isinstance(logits, Scores):
            scores = Scores.from_logits(logits, labels, sample_weight=sample_weight, groups=groups, classes=classes)
        elif any(more is not None for more in (labels, sample_weight, classes, groups)):
            raise InputError("a Scores has its own labels, weights, groups and classes; pass no others")
        if not isinstance(scores, LabelledScores):
            raise InputError("labels: a sketch needs them; pass one label per row of logits")
        if scores.groups is None:
            raise InputError("groups: expected one id for each row, got none. Use groups=….", param="groups")
        scale = logit_scale(scores)
        settings: dict[str, Any] = {"t_range": scale.t_range if t_range is None else t_range, "n_nodes": n_nodes}
        settings |= {"thetas": thetas, "parts": parts, "unit": scale.unit if unit is None else unit}
        ids, codes = np.unique(scores.groups, return_inverse=True)
        order = np.argsort(codes.reshape(-1), kind="stable")
        rows = np.split(order, np.cumsum(np.bincount(codes.reshape(-1), minlength=len(ids)))[:-1])
        scores = scores.at(np.arange(len(scores)))  # in NumPy once
        return cls({key: Sketch.of(scores.at(own), **settings) for key, own in zip(ids.tolist(), rows)})

    @property
    def total(self) -> Sketch:
        """The sketch of all groups together."""
        return reduce(Sketch.__add__, self.sketches.values())

    @property
    def n_samples(self) -> int:
        """How many samples all groups have."""
        return sum(own.n_samples for own in self.sketches.values())

    @property
    def n_classes(self) -> int:
        """K."""
        return next(iter(self.sketches.values())).n_classes

    def __len__(self) -> int:
        """Return the number of groups."""
        return len(self.sketches)

    def check_addable(self, other: GroupSketches) -> None:
        """Refuse sketches that cannot be added to these."""
        next(iter(self.sketches.values())).check_addable(next(iter(other.sketches.values())))

    def __add__(self, other: GroupSketches) -> GroupSketches:
        """Sketches of both data sets together, group by group."""
        if not isinstance(other, GroupSketches):
            return NotImplemented
        found, names = dict(self.sketches), {str(key): key for key in self.sketches}
        for key, own in other.sketches.items():
            known = names.get(str(key), key)
            found[known] = found[known] + own if known in found else own
        return GroupSketches(_as_text(found) if len({type(key) for key in found}) > 1 else found)

    def only(self, parts: Sequence[Part]) -> GroupSketches:
        """Leave out all other parts."""
        return GroupSketches({key: own.only(parts) for key, own in self.sketches.items()})

    def _table_columns(self) -> Columns:
        every = self.sketches.values()
        accuracy = np.array([own.correct / own.weight for own in every])
        return {"group": list(self.sketches), "n_samples": [own.n_samples for own in every], "accuracy": accuracy}

    def to_dict(self) -> dict[str, Any]:
        """Return plain lists and numbers."""
        return {"groups": [{"group": key, "sketch": own.to_dict()} for key, own in self.sketches.items()]}

    @classmethod
    def from_fields(cls, content: Fields) -> GroupSketches:
        """Read back what `to_dict` gave; everything is checked."""
        items = content.items("groups")
        if not items or not all(isinstance(item, dict) for item in items):
            raise FileError(f"{content.where}: groups: expected sketches by group")
        found = {}
        for i, item in enumerate(items):
            own = Fields(item, f"{content.where}: groups {i}")
            key = item.get("group")
            key = own.integer("group") if isinstance(key, int) else own.text("group")
            found[key] = Sketch.from_fields(own.fields("sketch"))
        if len(found) < len(items):
            raise FileError(f"{content.where}: groups: the same group twice")
        try:
            return cls(found)
        except InputError as error:
            raise FileError(f"{content.where}: {error}") from None

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the sketches as JSON, atomically."""
        write_document(path, "group_sketches", self.to_dict())

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> GroupSketches:
        """Read sketches that `save` wrote."""
        try:
            return cls.from_fields(read_document(path, "group_sketches"))
        except InputError as error:
            raise FileError(f"{path}: {error}") from None


def load_sketch(path: str | os.PathLike[str]) -> Sketch | GroupSketches:
    """Read a sketch, or sketches by group."""
    content = read_document(path, "sketch", "group_sketches")
    return GroupSketches.load(path) if "groups" in content else Sketch.load(path)


def _as_text(sketches: Mapping[Any, Sketch]) -> dict[Any, Sketch]:
    return {str(key): own for key, own in sketches.items()}
