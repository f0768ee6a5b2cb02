"""What the command line reads: files of logits and sketches, with a progress bar."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import replace
from typing import Any, NamedTuple

import click
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from attemper.calibrators import Calibrator, load
from attemper.cli.output import COLUMNS, err
from attemper.engines import merged, sketch_pieces, sketch_sharded
from attemper.engines.pools import open_workers
from attemper.errors import AttemperError, AttemperWarning, InputError
from attemper.files import ScoreFiles, expanded, open_scores
from attemper.files.reading import listed
from attemper.files.table import column_order
from attemper.overlap import same_samples
from attemper.places import local
from attemper.scores import Scores
from attemper.sketch import DEFAULT_T_RANGE, Sketch

TOKENS = ("mask_key", "ignore_index", "next_token", "columns", "labels_are")


class Fitted(NamedTuple):
    """A map, and the file that it is in."""

    path: str
    calibrator: Calibrator

    @classmethod
    def load(cls, path: str) -> Fitted:
        """Read a map."""
        return cls(path, load(path))

    def reading(self, read: dict[str, Any]) -> dict[str, Any]:
        """Take input kind, floor and classes from the map; options may repeat them, not contradict them."""
        path, fitted = self
        if fitted.input == "logits":
            for option in ("probs", "floor"):
                if read[option]:
                    raise InputError(
                        f"--{option}: {path} was fitted on logits; pass logits, such as the logarithms of the "
                        "probabilities, and leave the option out"
                    )
        if fitted.floor is not None and read["floor"] not in (None, fitted.floor):
            raise InputError(
                f"--floor {read['floor']:g}: {path} was fitted with a floor of {fitted.floor:g}; leave the option out"
            )
        named, names = read.get("classes"), None if fitted.classes is None else list(map(str, fitted.classes))
        if None not in (named, names) and named != names:
            raise InputError(
                f"--classes {listed(named or ())}: {path} was fitted for {listed(names or ())}, in this order; leave "
                "the option out"
            )
        return read | {
            "probs": fitted.input == "probs",
            "floor": fitted.floor if read["floor"] is None else read["floor"],
            "classes": named if names is None else names,
        }

    def warn_of(self, inputs: str | Sequence[str]) -> None:
        """Warn if the map was fitted on one of these files."""
        for file in self.fitted_on(inputs):
            warnings.warn(
                f"{file}: {self.path} was fitted on this file (same sha256). On the samples of its fit a map looks "
                "better than it is; use others.",
                AttemperWarning,
                stacklevel=2,
            )

    def fitted_on(self, inputs: str | Sequence[str]) -> list[str]:
        """Those of these files that the map was fitted on, by its own record."""
        provenance = getattr(self.calibrator, "provenance_", None)
        return [] if provenance is None else provenance.among(inputs)


def read_files(
    inputs: str | Sequence[str], read: dict[str, Any], fitted: Fitted | None = None, **more: Any
) -> ScoreFiles:
    """Open files of logits as the options ask for, or the map that they are for; report which columns were taken."""
    why = ""
    if fitted is not None:
        why = f" ({fitted.path} was fitted on probabilities.)" if fitted.calibrator.input == "probs" else ""
        read = fitted.reading(read)
    try:
        files = open_scores(inputs, **read, **more)
    except AttemperError as error:
        raise type(error)(f"{error}{why}") from None
    path = files.readers[0].path
    if fitted is not None and files.n_classes != fitted.calibrator.n_features_in_:
        raise InputError(
            f"{path}: {files.n_classes} columns of logits, but {fitted.path} was fitted for "
            f"{fitted.calibrator.n_features_in_} classes. If a table holds other columns, use --labels-key or "
            "--logits-key; for answer options use --columns."
        )
    if files.classes is not None:
        for reader in files.readers:
            _check_names_in(str(reader.path), files.classes)
    record_columns(str(path), files.columns)
    return replace(files, why=why)


def load_pair(
    val: str, test: str, read_val: dict[str, Any], read: dict[str, Any], fitted: Fitted | None = None
) -> tuple[Scores, Scores, Sequence[str] | None]:
    """Read VAL and TEST, whose columns and labels mean the same; return also the names of the classes.

    The names are those of --classes, of the map, or of the array ``class_names`` of TEST.
    """
    keys = ("logits_key", "labels_key", "labels")
    real = [[os.path.realpath(file) for file in expanded(path)] for path in (val, test)]
    if real[0] == real[1] and all(read_val[key] == read[key] for key in keys):
        raise _same(f"both are {test}")
    names = read["classes"]
    if fitted is not None and names is None:
        names = fitted.reading(read)["classes"]
    if names is None:
        names = _names_in(test)
        _check_numeric(test, names, read["labels_are"])
    pair = [read_files(path, told | {"classes": names}, fitted) for path, told in ((val, read_val), (test, read))]
    if pair[0].n_classes != pair[1].n_classes:
        raise InputError(f"VAL has {pair[0].n_classes} classes, TEST has {pair[1].n_classes}; they must agree")
    if pair[0].columns is not None and pair[1].columns is not None:
        order = column_order(pair[1].columns, pair[0].columns)
        if order is not None and order != sorted(order):
            raise InputError(
                f"{test}: the columns are {listed(pair[1].columns)}, in {val} {listed(pair[0].columns)}; expected the "
                "same order, or use --classes with the names of the columns"
            )
    scores, judged = (files.load() for files in pair)
    if same_samples(scores, judged):
        raise _same("nearly all rows of TEST are rows of VAL too, in the same or another order")
    return scores, judged, names


def _same(how: str) -> InputError:
    return InputError(
        f"VAL and TEST are the same samples: {how}. A method looks better than it is on the samples of its fit. Use "
        "another file for one of them; if one file holds both, use --val-logits-key and --val-labels-key for VAL, "
        "--logits-key and --labels-key for TEST."
    )


def _names_in(path: str) -> list[str] | None:
    from attemper.cli.reporting import CLASS_NAMES, array_of  # which builds on this module

    found = array_of(path, CLASS_NAMES)
    return None if found is None else list(map(str, found))


def _check_numeric(path: str, names: Sequence[str] | None, labels_are: str | None) -> None:
    """Refuse names that a file brings along if they could be taken for column numbers."""
    if names is None or labels_are is not None or list(names) == list(map(str, range(len(names)))):
        return
    number = next((name for name in names if name.strip().lstrip("+-").isdecimal()), None)
    if number is not None:
        raise InputError(
            f"{path}: the class names {listed(names)} are numbers, so a label {number} could be a name or a column "
            "number. Use --labels-are names or --labels-are numbers."
        )


def _check_names_in(path: str, classes: Sequence[str]) -> None:
    """Refuse a file whose own names of the classes stand in another order."""
    names = _names_in(path)
    if names is None or len(names) != len(classes):
        return
    try:
        order = column_order(names, classes)
    except InputError:
        order = None
    if order is not None and order != sorted(order):
        raise InputError(
            f"{path}: its class_names are {listed(names)}, but the classes are {listed(classes)}; expected the same "
            "order"
        )


def record_columns(path: str, columns: Sequence[str] | None) -> None:
    """Keep which columns of a table were taken as logits: the command reports them at its end."""
    if columns is not None:
        click.get_current_context().meta.setdefault(COLUMNS, {})[path] = list(columns)


@contextmanager
def bar(total: int | None) -> Iterator[tuple[Progress, Any]]:
    """Show a progress bar on a terminal; none in a pipe."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed}"),
        TimeRemainingColumn(),
    )
    progress = Progress(*columns, console=err, transient=True, disable=not err.is_terminal)
    with progress if err.is_terminal else nullcontext():  # one that is disabled ends in an empty line before rich 15
        yield progress, progress.add_task("", total=total)


def progress(files: ScoreFiles, what: str) -> Iterator[Scores]:
    """Go through the pieces of files under a progress bar."""
    with bar(files.n_rows) as (progress, task):
        progress.update(task, description=what)
        for piece in files:
            yield piece
            progress.advance(task, len(piece))


def sketch_of(
    inputs: Sequence[str], read: dict[str, Any], spread: dict[str, Any], output: str, **settings: Any
) -> tuple[Sketch, int]:
    """Sketch files of logits piece by piece, or add sketches that were made before; return also how many files.

    Sketches of finished files are kept beside the output until `forget`.
    """
    sketches = [path for path in inputs if path.endswith(".json")]
    if are_sketches(inputs):
        _reject_reading_options(sketches[0], read)
        if spread:
            raise InputError(f"{sketches[0]}: --{next(iter(spread))} is for files of logits; sketches are merely added")
        total = merged(inputs)
        if settings["t_range"] not in (None, total.t_range):
            raise InputError(
                f"--t-range {settings['t_range']}: {sketches[0]} covers {total.t_range}, which is settled when a "
                "sketch is made of logits"
            )
        return total.only(settings["parts"]), len(expanded(inputs))
    if sketches:
        raise InputError(
            f"{sketches[0]}: a sketch cannot be mixed with files of logits; make sketches of them with "
            "`attemper sketch` and give sketches alone"
        )
    settings["t_range"] = settings["t_range"] or DEFAULT_T_RANGE
    count = len(expanded(inputs))
    if count == 1 and not spread:
        made = sketch_pieces(progress(read_files(inputs, read), "reading"), **settings)
        assert made is not None  # reading rejects empty input
        return made, 1
    with bar(count) as (shown, task):
        shown.update(task, description="files")

        def tick(done: int, of: int) -> None:
            shown.update(task, completed=done)

        with suppress(AttemperError):  # which the worker on that file meets too
            first = str(expanded(inputs)[0])
            record_columns(first, open_scores(first, **read | {"labels": None}).columns)
        keep = kept_beside(output)
        return sketch_sharded(inputs, **spread, keep=keep, progress=tick, **settings, **read), count


@contextmanager
def workers_held(spread: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Open the workers that these options name once, for several passes over the files; return options with them."""
    if not spread:
        yield spread
        return
    rest = {name: value for name, value in spread.items() if name in ("retries", "resume")}
    named = {"engine": None} | {name: value for name, value in spread.items() if name != "resume"}
    with open_workers(**named) as pool:
        yield rest | {"engine": pool}


def are_sketches(inputs: Sequence[str]) -> bool:
    """Tell sketches that were made before from files of logits."""
    return all(path.endswith(".json") for path in inputs)


def kept_beside(output: str) -> str:
    """Name the folder that keeps the sketches of finished files."""
    return f"{local(output)}.shards"


def _reject_reading_options(path: str, read: dict[str, Any]) -> None:
    """Refuse what says how to read logits: a sketch holds none. --probs and --classes go into the map."""
    for name in ("logits_key", "labels", "labels_key", "weights_key", "floor", *TOKENS):
        if read[name] is not None and read[name] is not False:
            option = "--" + name.replace("_", "-")
            raise InputError(f"{path}: a sketch holds no logits or labels any more; give {option} to `attemper sketch`")
