"""How files of logits are to be read: one set of options for Python, the command line and the workers."""

from __future__ import annotations

import os
from dataclasses import dataclass, fields, replace
from typing import Any, Literal

from attemper._checks import one_of, whole
from attemper.data.columns import LABEL, ColumnQuery
from attemper.data.scores import Scores
from attemper.errors import InputError, InputTypeError
from attemper.tokens import check_options

__all__ = ["InputSpec", "is_id_file"]

Kind = Literal["logits", "probs"]
ID_FILES = (".txt", ".npy")


@dataclass(frozen=True, kw_only=True)
class InputSpec:
    """Options of reading files; frozen, and plain enough for JSON and for a worker on another machine.

    Parameters
    ----------
    logits_key, labels_key, weights_key
        Names of arrays (default ``logits``, or ``probs`` for probabilities, and ``labels``) or columns (default
        ``label``). In a table with one column per class ``logits_key`` is how the names of those columns begin, by
        default ``logit_``, or ``prob_`` for probabilities. Weights are read only if named.
    groups_key, clusters_key
        Names of the array or column with the group (a site) and the case (a patient) of each row: text or whole
        numbers. A name that ends in .txt or .npy is a file with one for each row of all input files: a text file with
        one a line, or an array. Of images there is one for each image, or one for each pixel.
    labels
        For logits in .npy: the .npy files of labels, one per file of logits, in the same order.
    input, zeros_as
        "logits" or "probs", and what probabilities of exactly 0 stand for; see `Scores.from_probs`.
    classes
        Names of the columns. Labels are then these names, or column numbers if none of the names is a number. In a
        table, columns that have these names, such as ``prob_cat``, may stand in any order.
    ignore_index
        The label of rows that do not count.
    columns
        The columns of logits, by number or name, in this order; only these are read. Of an array they are numbers,
        such as the tokens of answer options (`attemper.tokens.option_scores`). Of a table they are names, or numbers
        among its columns of logits. Labels are numbers among these columns, or their names.
    axis, max_pixels
        For arrays of three dimensions or more: where the classes are, 1 for images, (N, K, H, W), 0 for one image in
        each file, (K, H, W), −1 for (B, L, V); how many pixels of each image to draw. See `Scores.from_logits`.
    need_labels
        If False, labels are read only where ``labels`` or ``labels_key`` names them.

    Examples
    --------
    >>> spec = InputSpec(input="probs", zeros_as=1e-8)
    >>> spec.probs, spec.updated(axis=1).axis
    (True, 1)
    """

    logits_key: str | None = None
    labels: tuple[str, ...] | None = None
    labels_key: str | None = None
    weights_key: str | None = None
    groups_key: str | None = None
    clusters_key: str | None = None
    input: Kind = "logits"
    zeros_as: float | None = None
    classes: tuple[Any, ...] | None = None
    ignore_index: int | None = None
    columns: tuple[int | str, ...] | None = None
    axis: int | None = None
    max_pixels: int | None = None
    need_labels: bool = True

    def __post_init__(self) -> None:
        """Bring lists to tuples, and refuse options that contradict each other."""
        labels: Any = self.labels
        labels = [labels] if isinstance(labels, str | os.PathLike) else labels
        self._set("labels", None if labels is None else tuple(os.fspath(path) for path in labels) or None)
        if isinstance(self.classes, str):
            raise InputError(f"classes={self.classes!r}: expected a list of names, got one text", param="classes")
        self._set("classes", None if self.classes is None else tuple(map(_plain, self.classes)))
        one_of("input", self.input, ("logits", "probs"))
        if self.columns is not None:
            self._set("columns", self._column_list())
        if self.max_pixels is not None:
            self._set("max_pixels", whole("max_pixels", self.max_pixels))
        if self.axis is None and self.max_pixels is not None:
            raise InputError(f"max_pixels={self.max_pixels!r}: needs axis=1, where the classes are", param="axis")
        if self.axis is not None:
            self._set("axis", whole("axis", self.axis, at_least=-64, at_most=63))
            if self.columns is not None:
                raise InputError(f"axis={self.axis!r}: columns is for tables and tokens", param="columns")
        if self.ignore_index is not None:
            self._set("ignore_index", whole("ignore_index", self.ignore_index, at_least=-(2**63)))
            if not (self.reads_labels or self.labels is not None):
                raise InputError(
                    f"ignore_index={self.ignore_index!r}: needs labels; add labels_key=…", param="labels_key"
                )

    def _set(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)

    def _column_list(self) -> tuple[int | str, ...]:
        """Columns by number or by name, none twice."""
        by, columns = "columns", self.columns
        columns = (columns,) if isinstance(columns, str) else columns
        if not any(isinstance(column, str) for column in columns or ()):
            return tuple(self.checked_columns().tolist())
        names = tuple(map(_plain, columns or ()))
        odd = next((name for name in names if not isinstance(name, int | str) or isinstance(name, bool)), None)
        if odd is not None:
            raise InputError(f"{by}: expected names or numbers of columns, got {odd!r}")
        texts = list(map(str, names))
        if len(set(texts)) < len(texts):
            twice = next(text for i, text in enumerate(texts) if text in texts[:i])
            raise InputError(f"{by}: expected every column once, got {twice!r} twice")
        return names

    @property
    def column_query(self) -> ColumnQuery:
        """Which columns of a table are asked for."""
        label = (self.labels_key or LABEL) if self.reads_labels else None
        return ColumnQuery(
            label=label,
            weight=self.weights_key,
            group=None if is_id_file(self.groups_key) else self.groups_key,
            cluster=None if is_id_file(self.clusters_key) else self.clusters_key,
            prefix=self.logits_key,
            columns=self.columns,
            classes=self.class_names,
            input=self.input,
        )

    def checked_columns(self, n_classes: int | None = None) -> Any:
        """Return the columns as an array, checked against the number of those that there are."""
        by = "columns"
        if self.probs:
            raise InputError(
                f"{by}: probabilities of some tokens do not sum to 1; pass logits, or the logarithms of the "
                f"""probabilities, without input='probs'""",
                param="input",
            )
        try:
            return check_options(self.columns, n_classes)
        except InputError as error:
            raise InputError(f"{by}: {error}") from None

    @property
    def probs(self) -> bool:
        """Whether the numbers are probabilities."""
        return self.input == "probs"

    def scores(self, values: Any, labels: Any = None, **settings: Any) -> Scores:
        """Make scores of arrays that hold what ``input`` names."""
        if self.probs:
            settings["zeros_as"] = self.zeros_as
        make: Any = Scores.from_probs if self.probs else Scores.from_logits
        scores: Scores = make(values, labels, **settings)
        return scores

    @property
    def class_names(self) -> tuple[str, ...] | None:
        """The names of the columns, as text."""
        return None if self.classes is None else tuple(map(str, self.classes))

    @property
    def values_key(self) -> str:
        """Name of the N×K array."""
        return self.logits_key or self.input

    @property
    def reads_labels(self) -> bool:
        """Labels that are not needed are read only if named: those of new data are often no labels."""
        return self.need_labels or self.labels_key is not None

    def updated(self, **options: Any) -> InputSpec:
        """Return a copy with other options."""
        known = {field.name for field in fields(self)}
        for name in options:
            if name not in known:
                raise InputTypeError(
                    f"{name!r} is not an option of reading files; use one of {', '.join(sorted(known))}"
                )
        return replace(self, **options) if options else self

    def non_defaults(self) -> dict[str, Any]:
        """Return the options that are not their defaults."""
        found = {field.name: (getattr(self, field.name), field.default) for field in fields(self)}
        return {name: value for name, (value, default) in found.items() if value != default}


def is_id_file(key: str | None) -> bool:
    """Whether ids lie in a file of their own, by its extension; otherwise this is the name of an array or a column.

    >>> is_id_file("patients.txt"), is_id_file("patient_id")
    (True, False)
    """
    return key is not None and key.lower().endswith(ID_FILES)


def _plain(value: Any) -> Any:
    return value.item() if hasattr(value, "item") else value
