"""How a fitted calibrator meets new data: what it remembers of the first reading, and the tables it makes."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attemper._result import Columns, Estimate, Table
from attemper.calibrators import Calibrator, GroupedCalibrator, load
from attemper.data.arrays import to_numpy
from attemper.data.files import expand, pieces
from attemper.data.frames import is_frame, layout_of, of_frame
from attemper.data.reading import Read, ReadOptions, column_names, is_paths, is_table, read
from attemper.data.scores import Scores
from attemper.data.shared import check_disjoint, was_fitted_on
from attemper.errors import InputError, listed, require, warn
from attemper.metrics.evaluation import Evaluation, evaluate, evaluate_predictions
from attemper.metrics.predictions import Predictions
from attemper.priors import as_priors

READ = ("labels", *Read.__annotations__)
NAMES = ("labels", "columns", "sample_weight", "clusters", "groups", "ids")  # of columns, which arrays have not
MOST_ODDS = 745.0  # log-odds of double precision
DECIDED = ("prediction", "confidence", "refer", "set")  # columns of a result, beside probabilities
UNLABELLED = {"labels", "sample_weight", "clusters", "ids", "ignore_index"}  # not read by `apply`


def as_fitted(calibrator: Calibrator | str | os.PathLike[str]) -> Any:
    """Return a fitted calibrator, of a path the one in the file."""
    found = load(calibrator) if isinstance(calibrator, str | os.PathLike) else calibrator
    if not isinstance(found, Calibrator):
        what = f"expected a fitted calibrator or its path, got {type(found).__name__}"
        raise InputError(f"calibrator: {what}. Use apply(calibrator, data), evaluate(data, calibrator).", "calibrator")
    found._check_fitted()
    return found


def size_of(path: str) -> int:
    """Return the bytes of a file."""
    if "://" not in path:
        return Path(path).stat().st_size
    fs, name = require("fsspec", extra="files").core.url_to_fs(path)
    return int(fs.size(name) or 0)


def fill(cal: Any, data: Any, given: Mapping[str, Any], *, labelled: bool = True) -> dict[str, Any]:
    """Return options to read data with: those passed, and what the calibrator remembers where they are silent."""
    given = {name: value for name, value in given.items() if value is not None}
    if cal is None:
        return given
    if given.get("input", cal.map_.input) != cal.map_.input:
        own = cal.map_.input
        raise InputError(f"input: this calibrator was fitted on {own}. Fit another one on {given['input']}.", "input")
    if given.get("multi_label", cal.map_.independent) != cal.map_.independent:
        raise InputError("multi_label: this calibrator was fitted on another kind of labels", "multi_label")
    named = is_table(data) and not (is_paths(data) and expand(data)[0].endswith(".npy"))
    known = getattr(cal, "read_", ReadOptions()).known()
    known |= {"input": cal.map_.input, "zeros_as": cal.map_.zeros_as, "multi_label": cal.map_.independent}
    known |= {} if cal._names is None else {"classes": cal._names}
    options = {name: value for name, value in known.items() if named or name not in NAMES} | given
    if labelled:
        return options
    unused = UNLABELLED if cal._needs_groups else UNLABELLED | {"groups"}
    options = {name: value for name, value in options.items() if name not in unused}
    return options | {"labels": False} if named else options


def read_labels_or_none(cal: Any, data: Any, options: Mapping[str, Any]) -> Scores:
    """Read new data; labels that the calibrator remembers, but nobody asked for, need not be there."""
    found = fill(cal, data, options)
    if options.get("labels") is None and found.get("labels") is not None:
        try:
            layout_of(column_names(data), {*NAMES} - {"labels", "columns"}, **found)
        except InputError as error:
            found["labels"] = False if error.param == "labels" else found["labels"]
    return read(data, **found)


def read_pair(
    cal: Any, val: Any, test: Any, options: Mapping[str, Any], *, allow_shared: bool
) -> tuple[Scores, Scores | None]:
    """Read validation and test data; they have the same classes, and no file, cluster or id in common."""
    first = read(val, **fill(cal, val, options))
    if first.multi_label:
        raise InputError("multi_label: expected one label for each row. Use evaluate for several.", "multi_label")
    if test is None:
        return first, None
    found = fill(cal, test, options)
    named = {n: v for n, v in found.items() if n in NAMES and n != "columns" and v is not None and v is not False}
    if (array := next((n for n, v in named.items() if not isinstance(v, str | os.PathLike)), None)) is not None:
        raise InputError(f"{array}: expected a name that val and test share; else pass read(…) of each", array)
    second = read(test, **found)
    if second.labels is None and second.one_column and not first.one_column:
        raise InputError("test: expected data as val has them. Labels go into a pair, (data, labels).", "test")
    check_disjoint(first, second, allow_shared=allow_shared)
    if cal is not None and was_fitted_on(cal, second):
        warn("test: the calibrator was fitted on these, so its results look too good")
    return first, second


def probabilities(cal: Any, scores: Scores, *, log: bool = False) -> NDArray[Any]:
    """Return calibrated probabilities, or their logarithms, as NumPy has them."""
    if isinstance(cal, GroupedCalibrator):
        if scores.groups is None:
            what = "this calibrator has a map for each group. Name the column of their ids; or use its common_"
            raise InputError(f"groups: {what}", "groups")
        if new := sorted({*map(str, np.unique(scores.groups).tolist())} - {*map(str, cal.groups_.group)}):
            warn(f"groups: not in the fit, so these get the common map: {listed(new)}")
    return scores.of_rows(to_numpy(cal.predict_log_proba(scores) if log else cal.predict_proba(scores)))


def tables(
    calibrator: Any, data: Any, priors: Any = None, **given: Any
) -> tuple[Any, Iterator[dict[str, NDArray[Any]]]]:
    """Return the calibrator for the class priors of the data, and the columns that `apply` returns, piece by piece."""
    cal = as_fitted(calibrator)
    data = data[0] if isinstance(data, tuple) and len(data) == 2 and not is_paths(data) else data
    options = fill(cal, data, given, labelled=False)
    if isinstance(priors, str) and priors == "estimate":
        own = {name: value for name, value in given.items() if name in ("clusters", "sample_weight")}
        cal = cal.adapt(read(data, **(options | own)))
    elif priors is not None:
        cal = cal.with_priors(as_priors(priors, cal.classes_.tolist()))
    if is_table(data) and (taken := [name for name in column_names(data) if name in DECIDED]):
        warn(f"data: the result replaces the columns {listed(taken)}")
    return cal, _tables(cal, data, options)


def _tables(cal: Any, data: Any, options: dict[str, Any]) -> Iterator[dict[str, NDArray[Any]]]:
    if is_paths(data):
        for piece in pieces(expand(data), keep=True, **options):
            yield _table(cal, piece.scores, piece.table)
    elif is_frame(data):
        yield _table(cal, read(data, **options), of_frame(data))
    else:
        yield _table(cal, read(data, **options), {})


def _table(cal: Any, scores: Scores, given: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """Return the columns of the data, one number or text a row, and what the calibrator makes of them."""
    scores, names = scores.samples(), cal.classes_.tolist()
    probs = probabilities(cal, scores)
    made: dict[str, NDArray[Any]] = {}
    if not cal.map_.independent:
        made = {"prediction": cal.classes_[probs.argmax(axis=1)], "confidence": probs.max(axis=1)}
    made |= {f"prob_{name}": probs[:, k] for k, name in enumerate(names)}
    if (rule := getattr(cal, "rule_", None)) is not None:
        actions = rule.decide(probs, scores.groups)
        made["refer"] = actions.refer
        if actions.sets is not None:
            made["set"] = np.array([";".join(str(names[k]) for k in np.flatnonzero(row)) for row in actions.sets])
    kept = {name: column for name, column in given.items() if column.ndim == 1 and len(column) == len(probs)}
    return {name: column for name, column in kept.items() if name and name not in made} | made


class Applied(Table, dict[str, NDArray[Any]]):
    """Columns by name, which data frames are made of: `attemper.apply` returns it."""

    def columns(self) -> Columns:
        """Return the columns."""
        return self

    def shown(self) -> Columns:
        """Return the first column, often an id, and what is decided; of several labels the probabilities."""
        shown = [name for name in DECIDED if name in self] or [name for name in self if name.startswith("prob_")]
        return {name: self[name] for name in dict.fromkeys([next(iter(self)), *shown])}


@dataclass(frozen=True, repr=False)
class Evaluated(Table):
    """Metrics of the classifier as it is, and after calibration: `attemper.evaluate` returns it.

    ``found["ece"]`` is that after calibration, where there is a calibrator.
    """

    before: Evaluation
    after: Evaluation | None = None

    def __getitem__(self, metric: str) -> Estimate:
        return (self.before if self.after is None else self.after)[metric]

    def columns(self) -> Columns:
        """Return a row for each metric, of each part."""
        if self.after is None:
            return self.before.columns()
        rows = [("all", name, self.before[name], self.after[name]) for name in self.before]
        for part, each in self.before.parts.items():
            rows += [(str(part), name, each[name], self.after.parts[part][name]) for name in each]
        found = dict(zip(("part", "metric", "before", "after"), map(list, zip(*rows))))
        return found if self.before.parts else {name: cells for name, cells in found.items() if name != "part"}

    def shown(self) -> Columns:
        """Return what fits: a row for each metric, or for each part."""
        if self.after is None:
            return self.before.shown()
        if not self.before.parts:
            return self.columns()
        found: dict[str, Any] = {"part": ["all", *map(str, self.before.parts)]}
        for name in self.before:
            for title, of in (("before", self.before), ("after", self.after)):
                found[f"{name} {title}"] = [each[name] for each in (of, *of.parts.values())]
        return found

    def notes(self) -> Sequence[str]:
        """Return those of the evaluations."""
        if self.after is None:
            return self.before.notes()
        before, after = self.before.notes(), self.after.notes()
        both = [note for note in before if note in after]
        own = {"before": before, "after": after}
        return [*both, *(f"{name}: {note}" for name, notes in own.items() for note in notes if note not in both)]

    def to_dict(self) -> dict[str, Any]:
        """Return all numbers as JSON has them."""
        return {"before": self.before.to_dict(), "after": None if self.after is None else self.after.to_dict()}


def evaluated(cal: Any, scores: Scores, groups: Any, metrics: Any, confidence_level: float) -> Evaluated:
    """Evaluate scores as they are, and by a calibrator, if there is one."""
    if scores.labels is None:
        raise InputError("labels: an evaluation needs them", "labels")
    log_probs = None if cal is None else probabilities(cal, scores, log=True)
    if scores.multi_label:
        shared: dict[str, Any] = {"by": "label", "clusters": scores.cases, "sample_weight": scores.w}
        shared |= {"metrics": metrics, "confidence_level": confidence_level, "classes": scores.classes}
        before = evaluate(scores.labels, to_numpy(scores.raw(slice(0, len(scores)))), input=scores.input, **shared)
        if log_probs is None:
            return Evaluated(before, None)
        log_p = log_probs.astype(np.float64)
        with np.errstate(divide="ignore"):
            odds = np.minimum(log_p - np.log(-np.expm1(log_p)), MOST_ODDS)  # they have all digits where p rounds to 1
        return Evaluated(before, evaluate(scores.labels, odds, input="logits", **shared))
    grouped = replace(scores, groups=groups)
    found = [Predictions.of_scores(grouped)]
    if log_probs is not None:
        found.append(Predictions.of_scores(grouped, log_probs))
    return Evaluated(*(evaluate_predictions(each, metrics, confidence_level) for each in found))
