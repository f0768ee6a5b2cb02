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
from attemper.data.overlap import same_samples
from attemper.data.scores import LabelledScores, Scores, labelled
from attemper.errors import AttemperError, FileError, InputError, listed, warn
from attemper.fitting import open_for
from attemper.io import InputSpec, ScoreFiles, open_scores
from attemper.io.spec import is_id_file

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
                "does not take. Use apply, evaluate, refer or export without --group."
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


def load_pair(val: str, test: str, spec: InputSpec, fitted: Fitted | None = None) -> Pair:
    """Read VAL and TEST, whose columns and labels mean the same."""
    reject_id_files(spec, "VAL and TEST")
    real = [[os.path.realpath(file) for file in expand_paths(path)] for path in (val, test)]
    if real[0] == real[1]:
        raise _same(f"both are {test}")
    pair = [read_files(path, of, fitted) for path, of in zip((val, test), pair_specs(val, spec))]
    names: Sequence[str] | None = pair[1].spec.class_names or pair[0].spec.class_names
    if names is not None and fitted is None:  # one file names the classes for both, in its order
        for i, (path, of) in enumerate(zip((val, test), pair_specs(val, spec))):
            own = pair[i].spec.class_names
            if own is None or (own != names and sorted(own) == sorted(names)):
                pair[i] = read_files(path, of.updated(classes=names))
    same_classes(pair[0].n_classes, pair[1].n_classes, of=f"VAL ({val})", where=f"TEST ({test})")
    columns = [list(files.columns or ()) for files in pair]
    if columns[0] != columns[1] and sorted(columns[0]) == sorted(columns[1]):
        raise InputError(
            f"{test}: the columns are {listed(columns[1])}, in {val} {listed(columns[0])}; expected the same order, or "
            "use --classes with the names of the columns"
        )
    scores, test_scores = (labelled(files.load()) for files in pair)
    if same_samples(scores, test_scores):
        raise _same("nearly all rows of TEST are rows of VAL too, in the same or another order")
    return Pair(scores, test_scores, names, *pair)


def pair_specs(val: str, spec: InputSpec) -> tuple[InputSpec, InputSpec]:
    """Divide the files of --labels: first those of VAL, then those of TEST."""
    labels = spec.labels or ()
    n = sum(path.suffix.lower() == ".npy" for path in expand_paths(val))
    return spec.updated(labels=labels[:n] or None), spec.updated(labels=labels[n:] or None)


def reject_id_files(spec: InputSpec, what: str) -> None:
    """Refuse ids in a file where two sets of data are read in the same way: it belongs to one of them."""
    for key, param in ((spec.groups_key, "groups"), (spec.clusters_key, "clusters")):
        if is_id_file(key):
            raise InputError(f"{key}: {what} need ids of their own; name an array or column of both", param=param)


def _same(how: str) -> InputError:
    return InputError(
        f"VAL and TEST are the same samples: {how}. A method looks better than it is on the samples of its fit. Use "
        "another file for one of them."
    )


def in_double(scores: Scores) -> LabelledScores:
    """Return the same in double precision, for metrics that must not depend on how a file stores its numbers."""
    h = np.asarray(scores.logits, dtype=np.float64)
    settings: dict[str, Any] = {"input": "logits", "zeros_as": None, "finite_masks": False, "image": images_of(scores)}
    return replace(labelled(scores), values=h, **settings)


def images_of(scores: Scores) -> Any:
    """Return the image of each row; None where rows are no pixels."""
    return getattr(scores, "images", getattr(scores, "image", None))


def image_layout(piece: Scores) -> Any:
    """Return how the rows are pixels of images; None where they are none."""
    if hasattr(piece, "layout"):
        return piece.layout
    return None if isinstance(piece.values, np.ndarray) else piece.values


def record_columns(files: ScoreFiles) -> None:
    """Keep which columns of a table were taken as logits: the command reports them at its end."""
    if files.columns is not None:
        path = str(files.readers[0].path)
        meta = click.get_current_context().meta
        meta.setdefault(COLUMNS, {})[path] = list(files.columns)
        if files.spec.probs:
            meta.setdefault(PROBS, set()).add(path)
