"""What the command line reads: maps and files of logits."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, NamedTuple

import click
import numpy as np

from attemper._checks import same_classes
from attemper._paths import PathOrURL, as_path, expand_paths
from attemper.calibrators import Calibrator, MultiLabelCalibrator, load
from attemper.cli.output import COLUMNS, PROBS
from attemper.cli.verbosity import detail
from attemper.data.columns import check_order
from attemper.data.overlap import same_samples
from attemper.data.scores import LabelledScores, Scores, labelled
from attemper.errors import AttemperError, FileError, InputError, warn
from attemper.fitting import open_for
from attemper.io import InputSpec, ScoreFiles, open_scores
from attemper.io.reading import read_lines

DATA = (".csv", ".jsonl", ".ndjson", ".npy", ".npz", ".parquet", ".safetensors")


class Fitted(NamedTuple):
    """A map, and the file that it is in."""

    path: str
    calibrator: Calibrator

    @classmethod
    def load(cls, path: str, *, no_groups: bool = False) -> Fitted:
        """Read a map of classes that exclude each other; with ``no_groups`` the common map of all groups."""
        if as_path(path).suffix.lower() in DATA:
            raise FileError(
                f"{path}: expected a map that `attemper fit` wrote, got a file of data. Are arguments swapped?"
            )
        found = load(path)
        if isinstance(found, MultiLabelCalibrator):
            raise InputError(
                f"{path}: a map of {found.n_features_in_} labels that do not exclude each other, which this command "
                "does not take. Use apply, evaluate, refer, inspect or export."
            )
        return cls(path, found.for_group("common") if no_groups else found)

    def warn_of(self, inputs: str | Sequence[str]) -> None:
        """Warn if the map was fitted on one of these files."""
        for file in self.fitted_on(inputs):
            warn(
                f"{file}: {self.path} was fitted on this file (same sha256). On the samples of its fit a map looks "
                "better than it is; use others."
            )

    def fitted_on(self, inputs: str | Sequence[str]) -> list[str]:
        """Those of these files that the map was fitted on, by its own record."""
        provenance = getattr(self.calibrator, "provenance_", None)
        return [] if provenance is None else provenance.among(inputs)


def read_files(inputs: str | Sequence[str], spec: InputSpec, fitted: Fitted | None = None) -> ScoreFiles:
    """Open files of logits as the options ask for, or the map that they are for; report which columns were taken."""
    files = open_scores(inputs, spec) if fitted is None else open_for(fitted.calibrator, inputs, spec, fitted.path)
    record_columns(files)
    for reader in files.readers:
        rows = "" if reader.n_rows is None else f"{reader.n_rows} rows, "
        detail(f"reading {reader.path}: {rows}{files.n_classes} classes, as {files.spec.input}")
    return files


def open_first(paths: list[PathOrURL], spec: InputSpec, spread: dict[str, Any]) -> list[PathOrURL] | ScoreFiles:
    """Open a file that is alone; of several, only look at the columns of the first, and leave them to the workers."""
    if paths[0].suffix == ".json":
        return paths
    if len(paths) == 1 and not spread:
        return read_files([str(paths[0])], spec)
    with suppress(AttemperError):  # which the worker on that file meets too
        record_columns(open_scores(paths[0], spec.updated(labels=spec.labels and spec.labels[0])))
    return paths


class Pair(NamedTuple):
    """VAL and TEST; the names of the classes, of --classes, the map or one of the files; and the files."""

    val: LabelledScores
    test: LabelledScores
    names: Sequence[str] | None
    val_files: ScoreFiles
    test_files: ScoreFiles


def load_pair(val: str, test: str, val_spec: InputSpec, spec: InputSpec, fitted: Fitted | None = None) -> Pair:
    """Read VAL and TEST, whose columns and labels mean the same."""
    real = [[os.path.realpath(file) for file in expand_paths(path)] for path in (val, test)]
    if real[0] == real[1] and val_spec == spec:
        raise _same(f"both are {test}")
    pair = [read_files(path, of, fitted) for path, of in ((val, val_spec), (test, spec))]
    names: Sequence[str] | None = pair[1].spec.class_names or pair[0].spec.class_names
    if names is not None and fitted is None:  # one file names the classes for both, in its order
        given = ((val, val_spec), (test, spec))
        pair = [
            files if files.spec.class_names == names else read_files(path, of.updated(classes=names))
            for files, (path, of) in zip(pair, given)
        ]
    same_classes(pair[0].n_classes, pair[1].n_classes, of=f"VAL ({val})", where=f"TEST ({test})")
    if pair[0].columns is not None and pair[1].columns is not None:
        check_order(test, pair[1].columns, pair[0].columns)
    scores, test_scores = (labelled(files.load()) for files in pair)
    if same_samples(scores, test_scores):
        raise _same("nearly all rows of TEST are rows of VAL too, in the same or another order")
    return Pair(scores, test_scores, names, *pair)


def _same(how: str) -> InputError:
    return InputError(
        f"VAL and TEST are the same samples: {how}. A method looks better than it is on the samples of its fit. Use "
        "another file for one of them; if one file holds both, use --val-logits-key and --val-labels-key for VAL, "
        "--logits-key and --labels-key for TEST."
    )


def in_double(scores: Scores) -> LabelledScores:
    """Return the same in double precision, for metrics that must not depend on how a file stores its numbers."""
    h = np.asarray(scores.logits, dtype=np.float64)
    settings: dict[str, Any] = {"input": "logits", "zeros_as": None, "finite_masks": False, "image": scores.image}
    return replace(labelled(scores), values=h, **settings)


def record_columns(files: ScoreFiles) -> None:
    """Keep which columns of a table were taken as logits: the command reports them at its end."""
    if files.columns is not None:
        path = str(files.readers[0].path)
        meta = click.get_current_context().meta
        meta.setdefault(COLUMNS, {})[path] = list(files.columns)
        if files.spec.probs:
            meta.setdefault(PROBS, set()).add(path)


def ids_of(files: ScoreFiles, flag: str, given: str) -> Sequence[Any]:
    """Read a name for each row: an array of the file, or a text file with one name a line."""
    found = files.names(given)
    if found is not None:
        return found
    try:
        return read_lines(as_path(given))
    except FileError as error:
        raise FileError(
            f"{flag} {given}: expected an array of {files.readers[0].path} or a readable text file; {error}"
        ) from None
