"""Tables: which columns hold scores, labels and ids. One rule, no guesses; frames and files alike."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from attemper._typing import InputKind
from attemper.data.arrays import row_slices
from attemper.data.inputs import WHOLE
from attemper.errors import InputError, listed, nearest

IDS = ("labels", "sample_weight", "groups", "clusters", "ids")  # what has one entry for each row
LABELS = ("labels", "label")  # columns and arrays that hold the labels, unless another is named
NAMES = ("classes", "class_names")  # arrays that hold the names of the classes
KEYS: dict[InputKind, str] = {"logits": "logit_", "probs": "prob_"}  # names and prefixes of columns of scores

Named = dict[str, NDArray[Any]]


class Layout(NamedTuple):
    """Where a table has what."""

    columns: tuple[str, ...]
    classes: tuple[Any, ...] | None
    input: InputKind
    keys: dict[str, str | tuple[str, ...]]  # of IDS, those that are in the table

    @property
    def needed(self) -> list[str]:
        """Names of all columns to read, each once."""
        keys = [name for key in self.keys.values() for name in ([key] if isinstance(key, str) else key)]
        return list(dict.fromkeys([*self.columns, *keys]))


def layout_of(
    names: Sequence[str],
    beside: Collection[str] = (),
    *,
    columns: Sequence[Any] | str | None = None,
    input: InputKind | None = None,
    classes: Sequence[Any] | None = None,
    multi_label: bool = False,
    **wanted: Any,
) -> Layout:
    """Find the columns of a table; those in ``beside`` are not in it. The options are those of `Read`.

    Scores are the columns that were named; else ``logits`` or ``probs``, whose entries may be lists; else those that
    begin ``logit_`` or ``prob_``; else those with the names of the classes. If ``classes`` name them, in that order.

    >>> layout_of(["id", "prob_cat", "prob_dog", "label"])
    Layout(columns=('prob_cat', 'prob_dog'), classes=('cat', 'dog'), input='probs', keys={'labels': 'label'})
    """
    chosen, kind = _score_columns(names, columns, input, classes)
    prefix = "" if kind is None else KEYS[kind]
    prefixed = bool(prefix) and all(name.startswith(prefix) for name in chosen)
    if len(chosen) > 1:
        known = [*classes] if classes is not None and len(classes) == len(chosen) else []
        numbers = range(len(chosen)) if columns is None else ()
        own = by_class(chosen, known, kind) or by_class(chosen, numbers, kind)
        if not own and known and columns is None and prefixed:
            raise InputError(f"classes: the columns {listed(chosen)} have other names. Use columns=[…].", "classes")
        chosen = own or chosen
    bare = tuple(name.removeprefix(prefix) if prefixed else name for name in chosen)
    if classes is not None and len(classes) == 2 and bare == (str(classes[0]),):
        what = f"the one column {chosen[0]} is of {classes[0]!r}; one column is the second class"
        raise InputError(f"classes: {what}. Use classes={[*classes][::-1]!r}.", "classes")
    keys: dict[str, str | tuple[str, ...]] = {}
    for param in IDS:
        if param in beside or wanted.get(param) is False:
            continue
        if param == "labels" and multi_label and (own := _label_columns(names, wanted.get(param), bare)):
            keys[param] = own
        elif param == "labels" and multi_label and wanted.get(param) not in (None, *names):
            what = f"expected a column label_NAME for each of {listed(bare)}"
            raise InputError(f"labels: {what}. Use labels='PREFIX' for another prefix.", "labels")
        elif (name := named_column(names, wanted.get(param), param)) is not None:
            keys[param] = name
    stems: tuple[Any, ...] = tuple(map(int, bare)) if all(map(WHOLE.fullmatch, bare)) else bare
    names_found = None if len(chosen) == 1 or stems == (*range(len(stems)),) else stems
    return Layout(chosen, names_found if classes is None else tuple(classes), input or kind or "logits", keys)


def _score_columns(
    names: Sequence[str], columns: Any, input: InputKind | None, classes: Sequence[Any] | None
) -> tuple[tuple[str, ...], InputKind | None]:
    """Return the columns of scores, and the input that their names imply."""
    if columns is not None:
        chosen = (columns,) if isinstance(columns, str) else tuple(map(str, columns))
        missing = next((name for name in chosen if name not in names), None)
        if missing is not None or not chosen:
            raise _no_column("columns", missing, names)
        kind = next((k for k in KEYS if chosen == (k,) or all(n.startswith(KEYS[k]) for n in chosen)), None)
        if input is not None and kind not in (None, input):
            raise InputError(
                f"input={input!r}: the columns {listed(chosen)} are of {kind}. Use input={kind!r}.", "input"
            )
        return chosen, kind
    whole: dict[InputKind, tuple[str, ...]] = {k: (k,) for k in KEYS if k in names}
    begun: dict[InputKind, tuple[str, ...]] = {k: tuple(n for n in names if n.startswith(KEYS[k])) for k in KEYS}
    found = whole or {k: chosen for k, chosen in begun.items() if chosen}
    if input is not None and found:
        if input not in found:
            kind = next(iter(found))
            raise InputError(f"input={input!r}: the columns are of {kind}. Use input={kind!r}.", "input")
        return found[input], input
    if len(found) > 1:
        raise InputError("input: there are columns of both logits and probs. Use input='logits' or 'probs'.", "input")
    if found:
        return next((chosen, k) for k, chosen in found.items())
    if names == [""]:  # an .npy file
        return ("",), None
    if classes is not None and all(str(name) in names for name in classes):
        return tuple(map(str, classes)), None
    raise InputError(f"columns: expected names of the scores among {listed(names)}. Use columns=[…].", "columns")


def by_class(names: Collection[str], classes: Iterable[Any], input: InputKind | None) -> tuple[str, ...] | None:
    """Return the column of each class, by its name with or without ``logit_`` or ``prob_``; None if one has none."""
    found = (tuple(f"{prefix}{name}" for name in classes) for prefix in (KEYS[input] if input else "", ""))
    return next((own for own in found if {*own} <= {*names}), None)


def _label_columns(names: Sequence[str], given: Any, bare: Sequence[str]) -> tuple[str, ...]:
    """Return one column of labels for each column of scores, where all begin ``label_`` or as was asked."""
    if given is not None and given in names:
        return ()
    own = tuple(f"{'label_' if given is None else given}{name}" for name in bare)
    return own if all(name in names for name in own) else ()


def named_column(names: Sequence[str], name: Any, param: str) -> str | None:
    """Return the column that a parameter names; of labels the usual names; None where there is none."""
    if name is None:
        return next((usual for usual in LABELS if usual in names), None) if param == "labels" else None
    if str(name) not in names:
        raise _no_column(param, name, names)
    return str(name)


def _no_column(param: str, name: Any, names: Sequence[str]) -> InputError:
    none = param in ("sample_weight", "clusters", "ids")
    hint = nearest(str(name), names) or (f" Use {param}=False for none." if none else "")
    return InputError(f"{param}: there is no column {name!r}; there are {listed(names)}.{hint}", param)


def is_frame(data: Any) -> bool:
    """Whether narwhals reads this as a table, or it is a dict of columns."""
    if isinstance(data, Mapping):
        return True
    if hasattr(data, "collect_schema") and hasattr(data, "collect"):
        raise InputError("data: expected a frame that is in memory. Use .collect()", "data")
    import narwhals.stable.v1 as nw

    return isinstance(nw.from_native(data, eager_or_interchange_only=True, pass_through=True), nw.DataFrame)


def names_of(data: Any) -> tuple[str, ...] | None:
    """Return the names of the columns of a frame; None of arrays, and of frames whose columns have numbers."""
    names = None if isinstance(data, np.ndarray) else getattr(data, "columns", None)
    if names is None or not is_frame(data) or not all(isinstance(name, str) for name in names):
        return None
    return tuple(names)


def by_name(
    frame: Any, names: tuple[str, ...], options: Mapping[str, Any], known: tuple[str, ...] | None = None
) -> tuple[NDArray[Any], tuple[str, ...]]:
    """Return the ``known`` columns of a frame as an array, or those of scores if their names show which; with names."""
    classes = options["classes"]
    if known is not None:
        names = known
    else:
        kind = None
        if any(name.startswith((*KEYS.values(),)) for name in names):
            names, _, kind, _ = layout_of(names, IDS, input=options["input"], classes=classes)
        names = by_class(names, range(len(names)) if classes is None else classes, kind) or names
    table = of_frame(frame)
    return np.asarray(picked(table, layout_of(list(table), IDS, columns=names))["values"]), names


def of_frame(frame: Any) -> Named:
    """Return the columns of a table as NumPy arrays; columns of lists are N×K."""
    if isinstance(frame, Mapping):
        return {str(name): np.asarray(column) for name, column in frame.items()}
    import narwhals.stable.v1 as nw

    table = nw.from_native(frame, eager_or_interchange_only=True)
    columns = zip(table.columns, table.iter_columns())  # not by name, which may be a number
    return {str(name): _of_lists(column.to_numpy()) for name, column in columns}


def _of_lists(column: NDArray[Any]) -> NDArray[Any]:
    """Stack a column whose entries are lists."""
    if column.dtype == object and len(column) and isinstance(column[0], list | tuple | np.ndarray):
        return np.stack([np.asarray(entry, dtype=np.float64) for entry in column])
    return column


def picked(table: Named, layout: Layout, axis: int | None = None) -> dict[str, Any]:
    """Return what a table has for `Scores.of`: values, names of the classes, labels and ids."""
    values = _side_by_side([table[name] for name in layout.columns], layout.columns)
    k = 2 if values.ndim == 1 else values.shape[-1 if values.ndim == 2 or axis is None else axis]
    names = next((tuple(table[name].tolist()) for name in NAMES if name in table and table[name].shape == (k,)), None)
    asked = layout.classes
    if names is not None and asked is not None and [*map(str, names)] != [*map(str, asked)]:
        raise InputError(f"classes: expected {listed(asked)}, the data have {listed(names)}", "classes")
    own = {
        param: table[key] if isinstance(key, str) else np.column_stack([table[name] for name in key])
        for param, key in layout.keys.items()
    }
    return {"values": values, "input": layout.input, "classes": asked or names, **own}


def _side_by_side(columns: Sequence[NDArray[Any]], names: Sequence[str]) -> NDArray[Any]:
    """Return columns of numbers as one array; one column stays one."""
    if len(columns) == 1:
        return columns[0]
    dtype = np.float32 if all(column.dtype == np.float32 for column in columns) else np.float64
    values = np.empty((len(columns[0]), len(columns)), dtype=dtype)
    for part in row_slices(*values.shape):  # which stays in the cache
        for k, column in enumerate(columns):
            try:
                values[part, k] = column[part]
            except (TypeError, ValueError) as error:
                raise InputError(f"columns: expected numbers in {names[k]!r} ({error})", "columns") from None
    return values
