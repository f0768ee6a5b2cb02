"""The door: whatever people hold becomes `Scores`, by one small function for each form."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Literal, TypedDict, Unpack

import numpy as np

from attemper.data.doubts import warn_of_doubts
from attemper.data.files import entries_beside, expand, names_in, settings_of, whole
from attemper.data.frames import IDS, KEYS, is_frame, layout_of, of_frame, picked
from attemper.data.inputs import as_plain, is_signed
from attemper.data.scores import Scores
from attemper.errors import InputError, listed, nearest


class Read(TypedDict, total=False):
    """How to read data; the same options everywhere.

    For frames and files ``sample_weight``, ``clusters``, ``groups`` and ``ids``, as ``labels``, are names of columns or
    arrays, or the paths of .npy or .txt files; for arrays they are arrays. False means none, whatever a calibrator
    remembers.
    """

    columns: Sequence[str] | str | None
    input: Literal["logits", "probs"] | None
    classes: Sequence[Any] | None
    sample_weight: Any
    clusters: Any
    groups: Any
    ids: Any
    zeros_as: float | None
    axis: int | None
    ignore_index: int | None
    max_pixels: int | None
    multi_label: bool


@dataclass(frozen=True)
class ReadOptions:
    """What is remembered of a reading: a calibrator's file stores it, so that later calls need not repeat it."""

    labels: str | None = None
    columns: tuple[str, ...] | None = None
    input: Literal["logits", "probs"] | None = None
    classes: tuple[str, ...] | None = None
    sample_weight: str | None = None
    clusters: str | None = None
    groups: str | None = None
    zeros_as: float | None = None
    axis: int | None = None
    ignore_index: int | None = None
    multi_label: bool = False

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> ReadOptions:
        """Keep what is plain: names, not arrays."""
        kept: dict[str, Any] = {}
        for field in fields(cls):
            value = options.get(field.name)
            if field.name in ("columns", "classes") and value is not None:
                kept[field.name] = (value,) if isinstance(value, str) else tuple(map(str, value))
            elif isinstance(value, str) if field.name in IDS else value is not None:
                kept[field.name] = value.item() if isinstance(value, np.generic) else value
        return cls(**kept)

    def known(self) -> dict[str, Any]:
        """Return the options that are remembered."""
        return {f.name: getattr(self, f.name) for f in fields(self) if getattr(self, f.name) != f.default}


def is_paths(data: Any) -> bool:
    """Whether this is a path, a pattern, or a list of these."""
    return isinstance(data, str | os.PathLike) or (
        isinstance(data, list | tuple) and bool(data) and all(isinstance(item, str | os.PathLike) for item in data)
    )


def is_table(data: Any) -> bool:
    """Whether these are files or a frame, whose columns have names."""
    return is_paths(data) or is_frame(data)


def column_names(data: Any) -> list[str]:
    """Return the names of the columns, or arrays, of a frame or of the first file."""
    return names_in(expand(data)[0]) if is_paths(data) else list(of_frame(data))


def read(data: Any, labels: Any = None, **options: Unpack[Read]) -> Scores:
    """Read arrays, pairs, frames, paths or patterns into one `Scores`.

    Examples
    --------
    >>> read({"prob_cat": [0.9, 0.2], "prob_dog": [0.1, 0.8], "label": ["cat", "dog"]}).labels
    array([0, 1])
    """
    if isinstance(data, tuple) and len(data) == 2 and labels is None and not is_paths(data):
        data, labels = data
    if unknown := options.keys() - Read.__annotations__.keys():
        name, known = min(unknown), ["labels", *Read.__annotations__]
        raise TypeError(f"got an unexpected keyword argument {name!r}.{nearest(name, known)}")
    given: dict[str, Any] = {"labels": labels, **options}
    table = type(data) is not np.ndarray and not isinstance(data, Scores) and is_table(data)
    if not table and given.pop("columns", None) is not None:
        raise InputError("columns: expected a table or a file; an array has no names of columns", "columns")
    if isinstance(data, Scores):
        scores = again(data, given)
    elif not table:
        for name in IDS:
            if given.get(name) is False:
                del given[name]
        if isinstance(data, tuple) and labels is not None and len(data) == 2 and np.ndim(data[0]) != np.ndim(data[1]):
            raise InputError("labels: the data are a pair that has labels, too. Use one of them.", "labels")
        given["input"] = given.get("input") or "logits"
        scores = Scores.of(data, **given)
    else:
        scores = whole(expand(data), **given) if is_paths(data) else _of_frame(data, given)
    warn_of_doubts(scores)
    return scores


def remembered(data: Any, options: Mapping[str, Any], scores: Scores) -> ReadOptions:
    """Return what later calls need not repeat; the usual columns are found again, in the order of the classes."""
    if not is_table(data):
        return ReadOptions.of(options)
    names = column_names(data)
    beside = entries_beside(options, names)  # which belong to the data of the fit alone
    columns = layout_of(names, beside, **options).columns
    begun = ({name for name in names if name.startswith(prefix)} for prefix in KEYS.values())
    usual = columns[0] in ("", *KEYS) or (len(columns) > 1 and {*columns} in begun)
    found = {"columns": None if usual else columns, "input": scores.input, "classes": scores.classes}
    return ReadOptions.of({**options, **dict.fromkeys(beside), **found})


def _of_frame(frame: Any, options: dict[str, Any]) -> Scores:
    table = of_frame(frame)
    beside = entries_beside(options, list(table))
    own = picked(table, layout_of(list(table), beside, **options), options.get("axis"))
    return Scores.of(**{**own, **beside}, **settings_of(options))


def again(scores: Scores, options: Mapping[str, Any]) -> Scores:
    """Give scores that were read before other labels, names or ids; False drops them."""
    dropped = [name for name in IDS if options.get(name) is False and not (name == "clusters" and scores.numbered)]
    more = {key: v for key, v in options.items() if v is not None and v is not False and key != "axis"}
    if (name := next((name for name in IDS if isinstance(more.get(name), str)), None)) is not None:
        raise InputError(f"{name}: Scores have no columns. Leave it out, or use an array.", name)
    if more.pop("input", scores.input) != scores.input:
        raise InputError(f"input: these Scores hold {scores.input}", "input")
    if scores.classes is not None and "classes" in more:
        if [*map(str, more["classes"])] != [*map(str, scores.classes)]:
            what = f"these Scores have {listed(scores.classes)}, in this order"
            raise InputError(f"classes: {what}, got {listed(more['classes'])}", "classes")
        del more["classes"]
    same = ("zeros_as", "multi_label")
    more = {key: value for key, value in more.items() if key not in same or value != getattr(scores, key)}
    if not more and not dropped:
        return scores
    if "sample_weight" in more and scores.w is not None and scores.index is not None:
        what = "these Scores have weights of their own, of soft labels or drawn pixels"
        raise InputError(f"sample_weight: {what}. Pass sample_weight where they are read.", "sample_weight")
    if scores.numbered and (case := scores.clusters) is not None:  # one id for each image, or sample, is enough
        given = {name: as_plain(more[name]) for name in IDS[1:] if name in more}
        more |= {name: v[case] for name, v in given.items() if v.shape == (case.max() + 1,)}
    own = {name: getattr(scores, name) for name in ("labels", "groups", "ids", "classes", "zeros_as", "multi_label")}
    own |= {"sample_weight": scores.w, "clusters": scores.clusters, "files": scores.files} | dict.fromkeys(dropped)
    values = scores.values if scores.index is None else scores.raw(slice(0, len(scores)))
    y = more.get("labels")
    if y is not None and scores.n_classes == 2 and scores.classes is None and is_signed(as_plain(y)):
        more.setdefault("classes", (-1, 1))
    entries = {**own, **more}
    if "labels" not in more:  # those there are columns already, not names
        entries["classes"] = None
    made = replace(Scores.of(values, input=scores.input, **entries), classes=more.get("classes", scores.classes))
    if scores.index is not None and made.index is None:  # soft labels, say: rows of one sample
        made = replace(made, values=scores.values, index=scores.index)
    return replace(made, one_column=scores.one_column, numbered=scores.numbered and "clusters" not in more)
