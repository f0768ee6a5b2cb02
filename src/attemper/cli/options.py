"""Options that commands share."""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import click

from attemper.calibrators import Calibrator
from attemper.cli.output import COLUMNS, err
from attemper.engines import ENGINES
from attemper.errors import AttemperError, FileError, InputError
from attemper.files import expanded
from attemper.files.reading import listed, read_lines
from attemper.places import local, place
from attemper.sketch import DEFAULT_T_RANGE

Command = Callable[..., Any]

OWN_OPTIONS = {
    "labels": "--noisy",
    "noise": "--noise",
    "t_range": "--t-range",
    "theta": "--theta",
    "loss": "--loss",
}


class InputPath(click.ParamType):  # type: ignore[type-arg]  # generic in new versions of click
    """A file, a pattern or a folder that a command reads; no output may be one of them."""

    name = "file"


class OutputPath(click.ParamType):  # type: ignore[type-arg]
    """A file that a command writes."""

    name = "file"


INPUT, OUTPUT = InputPath(), OutputPath()


class CheckedCommand(click.Command):
    """A command that refuses, before any work, to write over one of its own inputs, and reports what it read."""

    def invoke(self, ctx: click.Context) -> Any:
        """Check every output against every input, then run; at the end report the columns taken as logits."""
        check_outputs(ctx)
        result = super().invoke(ctx)
        if not ctx.params.get("as_json"):  # which has them in the JSON
            for path, columns in ctx.meta.get(COLUMNS, {}).items():
                err.print(f"{path}: logits are the columns {listed(columns)}", markup=False)
        return result


class Commands(click.Group):
    """The group of all commands; what is added to it is a `CheckedCommand`."""

    command_class = CheckedCommand


def with_debug(command: Command) -> Command:
    """Let a command take --debug, which `main` looks at."""
    return click.option("--debug", is_flag=True, expose_value=False, help="Show the Python traceback of an error.")(
        command
    )


def with_json(command: Command) -> Command:
    """Let a command print JSON."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON, for machines.")(command)


def reading(weights: bool = True, labels: bool = True) -> Callable[[Command], Command]:
    """Options that say how input files are to be read; the command gets ``read``, a dict of them.

    Without ``weights`` there is a fitted map, which knows the names of the classes; without ``labels`` they are read
    only where an option names them.
    """
    labels_default = "[default: labels; label]" if labels else "[default: none are read]"
    options = {
        "logits_key": click.option(
            "--logits-key",
            metavar="NAME",
            help="Array or column of logits [default: logits, or probs with --probs; in a table every column but the "
            "label's]. In a table with one column per class: what their names begin with.",
        ),
        "labels": click.option(
            "--labels",
            type=INPUT,
            multiple=True,
            metavar="FILE.npy",
            help="Labels of logits in .npy; once for each input file.",
        ),
        "labels_key": click.option("--labels-key", metavar="NAME", help=f"Array or column of labels {labels_default}."),
        "weights_key": click.option(
            "--weights-key", metavar="NAME", help="Array or column of sample weights [default: none]."
        ),
        "probs": click.option(
            "--probs", is_flag=True, help="The input holds probabilities, not logits. Never guessed."
        ),
        "floor": click.option(
            "--floor",
            type=float,
            metavar="P",
            help="With --probs: what probabilities of exactly 0 stand for, such as 1e-8.",
        ),
        "classes": click.option(
            "--classes",
            type=INPUT,
            metavar="FILE|A,B,…",
            help="Names of the classes in column order: a text file with one a line, or a list. Labels are then these "
            "names, or column numbers where no name is a number itself.",
        ),
        "mask_key": click.option(
            "--mask-key", metavar="NAME", help="Tokens: array of 0 and 1, which positions count [default: all]."
        ),
        "ignore_index": click.option(
            "--ignore-index", type=int, metavar="N", help="Rows with this label do not count, such as -100."
        ),
        "next_token": click.option(
            "--next-token",
            is_flag=True,
            help="Tokens: --labels-key names the input ids, and each position is judged by the next one.",
        ),
        "columns": click.option(
            "--columns",
            metavar="ID,ID,…",
            help="Take only these columns of logits, such as the tokens of answer options; labels count within them.",
        ),
        "labels_are": click.option(
            "--labels-are",
            type=click.Choice(["names", "numbers", "options", "tokens"]),
            help="With --classes: labels are names, or column numbers. With --columns: labels are 0, 1, … among them, "
            "or token ids [default: options].",
        ),
        "skip_empty": click.option(
            "--skip-empty", is_flag=True, help="Pass over files without rows; otherwise one is an error."
        ),
    }
    if not weights:
        # Without labels every row counts, and is written.
        for name in ("weights_key", "classes", *(() if labels else ("mask_key", "ignore_index", "next_token"))):
            del options[name]

    def decorate(command: Command) -> Command:
        @functools.wraps(command)
        def wrapped(**given: Any) -> Any:
            read = {name: given.pop(name) for name in options}
            read["labels"] = read["labels"] or None
            if "classes" in read:
                read["classes"] = class_names(read["classes"])
            read["columns"] = column_numbers(read["columns"])
            return command(read=read, **given)

        for option in reversed(options.values()):
            wrapped = option(wrapped)
        return wrapped

    return decorate


def spreading(command: Command) -> Command:
    """Options that say who works on the files; the command gets ``spread``, a dict of those that were told."""
    options = {
        "workers": click.option(
            "--workers",
            type=int,
            metavar="N",
            help="Work on N files at a time, each in a process of its own [default: 1].",
        ),
        "engine": click.option(
            "--engine",
            type=click.Choice(ENGINES),
            help="Who works on the files [default: serial; processes with --workers]. dask and ray start workers on "
            "this machine unless --scheduler tells a cluster.",
        ),
        "scheduler": click.option(
            "--scheduler", metavar="ADDRESS", help="The cluster: tcp://host:8786 (dask), ray://host:10001 (ray)."
        ),
        "retries": click.option(
            "--retries",
            type=int,
            metavar="N",
            help="Try a file again, up to N times, when its worker was lost [default: 0].",
        ),
        "resume": click.option(
            "--resume",
            is_flag=True,
            help="Go on after a failure: use what OUTPUT.shards/ keeps of the files that were finished.",
        ),
    }

    @functools.wraps(command)
    def wrapped(**given: Any) -> Any:
        told = {name: given.pop(name) for name in options}
        # Zero is told, and an error; None and False are not told.
        spread = {name: value for name, value in told.items() if value is not None and value is not False}
        return command(spread=spread, **given)

    for option in reversed(options.values()):
        wrapped = option(wrapped)
    return wrapped


def with_val(command: Command) -> Command:
    """Let a command that reads VAL and TEST, below `reading`, take names for VAL of its own; it gets ``read_val``."""

    @functools.wraps(command)
    def wrapped(
        *,
        read: dict[str, Any],
        val_logits_key: str | None,
        val_labels_key: str | None,
        val_labels: str | None,
        **given: Any,
    ) -> Any:
        read_val = read | {
            "logits_key": val_logits_key or read["logits_key"],
            "labels_key": val_labels_key or read["labels_key"],
            "labels": val_labels,
        }
        return command(read=read, read_val=read_val, **given)

    options = (
        click.option(
            "--val-logits-key", metavar="NAME", help="Name of the logits in VAL, if it is another than in TEST."
        ),
        click.option(
            "--val-labels-key", metavar="NAME", help="Name of the labels in VAL, if it is another than in TEST."
        ),
        click.option(
            "--val-labels",
            type=INPUT,
            metavar="FILE.npy",
            help="Labels of VAL, when it is an .npy file (TEST: --labels).",
        ),
    )
    for option in reversed(options):
        wrapped = option(wrapped)
    return wrapped


noisy_option = click.option(
    "--noisy",
    is_flag=True,
    help="Some validation labels may be wrong: estimate how many, and do not let them spoil the fit (bayes, "
    "structured).",
)
noise_option = click.option(
    "--noise",
    type=click.Choice(["uniform", "classwise"]),
    help="How labels go wrong, with --noisy: anywhere, or classwise, as people confuse certain classes with others. "
    "[default: uniform for bayes, classwise for structured]",
)
param_option = click.option(
    "-p",
    "--param",
    "params",
    multiple=True,
    metavar="NAME=VALUE",
    help="A parameter of the method, such as l2=0.01, n_bins=20 or centring=none; more than once for several.",
)
interval_option = click.option(
    "--interval", type=float, default=0.95, show_default=True, help="Level of the intervals."
)
seed_option = click.option("--seed", type=int, default=0, show_default=True, help="Seed of the bootstrap.")
t_range_option = click.option(
    "--t-range",
    type=float,
    nargs=2,
    metavar="LOW HIGH",
    help=f"Temperatures considered [default: {DEFAULT_T_RANGE[0]:g} {DEFAULT_T_RANGE[1]:g}; fit --method ts: any].",
)
files_argument = click.argument("inputs", type=INPUT, nargs=-1, required=True, metavar="INPUT…")
map_argument = click.argument("map_file", type=INPUT, metavar="MAP")
val_argument = click.argument("val", type=INPUT)
test_argument = click.argument("test", type=INPUT)


def check_noise(noisy: bool, noise: str | None) -> None:
    """Refuse to be told how labels go wrong where they are said to be right."""
    if noise is not None and not noisy:
        raise InputError(f"--noise {noise} says how labels go wrong; say --noisy too")


def parameters(told: Sequence[str], calibrator: type[Calibrator]) -> dict[str, Any]:
    """Read NAME=VALUE, values as in JSON or as plain text."""
    # What has an option of its own is told by that; forgetting is for streams.
    known = [name for name in calibrator.own_params() if name not in OWN_OPTIONS and name != "half_life"]
    found: dict[str, Any] = {}
    for text in told:
        name, equals, value = text.partition("=")
        if name in OWN_OPTIONS and name in calibrator.own_params():
            raise InputError(f"-p {text}: there is an option for that: {OWN_OPTIONS[name]}")
        if name == "half_life" and name in calibrator.own_params():
            raise InputError(
                f"-p {text}: a fit forgets nothing; half_life is for partial_fit, in Python (docs/drift.md)"
            )
        if not equals or name not in known:
            raise InputError(
                f"-p {text}: expected NAME=VALUE; {calibrator.method} knows {', '.join(known) or 'no parameters'}"
            )
        try:
            found[name] = json.loads(value)
        except json.JSONDecodeError:
            found[name] = value
    return found


def class_names(told: str | None) -> list[str] | None:
    """Read names from a list or from a file."""
    if told is None:
        return None
    if "," in told:
        return [name.strip() for name in told.split(",")]
    try:
        lines = read_lines(place(told))
    except FileError as error:
        raise FileError(f"--classes {told}: neither a list such as cat,dog nor a readable file: {error}") from None
    return [line.strip() for line in lines if line.strip()]


def column_numbers(told: str | None) -> list[int] | None:
    """Read a list of column numbers."""
    if told is None:
        return None
    try:
        if "_" in told or not told.isascii():  # Python alone takes 1_0 for 10
            raise ValueError
        return [int(number) for number in told.split(",")]
    except ValueError:
        raise InputError(
            f"--columns {told}: expected column numbers with commas between, such as 317,418,356"
        ) from None


def check_outputs(ctx: click.Context) -> None:
    """Refuse, before the work, outputs that cannot be written, that are inputs, or that are the same file twice."""
    given: list[tuple[click.Parameter, str]] = [
        (parameter, value) for parameter in ctx.command.params for value in _texts(ctx.params.get(parameter.name or ""))
    ]
    inputs = [value for parameter, value in given if isinstance(parameter.type, InputPath)]
    written: dict[str, str] = {}
    for parameter, value in given:
        if isinstance(parameter.type, OutputPath):
            option = min(parameter.opts, key=len)
            check_writable(value, inputs, f"{option} another name" + ", or use --in-place" * ("in_place" in ctx.params))
            other = written.setdefault(os.path.realpath(local(value)), option)
            if other != option:
                raise InputError(f"{other} and {option} both name {value}; use two files")


def _texts(value: Any) -> Sequence[str]:
    return [value] if isinstance(value, str) else value if isinstance(value, tuple) else ()


def check_writable(path: str, inputs: Sequence[str], fix: str) -> None:
    """Refuse a path in a folder that does not exist, a folder, and a file that is one of the inputs."""
    target = local(path)
    try:
        is_folder, there_is_a_folder = target.is_dir(), target.parent.is_dir()
        at_risk = inputs if target.exists() else ()
        lost = next((given for given in at_risk if any(map(target.samefile, _files(given)))), None)
    except OSError as error:  # such as a name that is too long
        raise FileError(f"{error.filename}: {error.strerror}") from None
    if not there_is_a_folder:
        raise FileError(f"{path}: the folder {target.parent} does not exist")
    if is_folder:
        raise FileError(f"{path or repr(path)}: a folder; give the name of a file to write")
    if lost is not None:
        also = "" if lost == path else f" ({lost} is or holds the same file)"
        raise FileError(f"{path}: is one of the inputs, which would be lost{also}; give {fix}")


def _files(given: str) -> Iterator[Path]:
    """List the files on this machine that an input names; none where it is no file, which its reader reports."""
    try:
        found = expanded(given)
    except AttemperError:
        return
    for path in found:
        if isinstance(path, Path):
            yield from (file for file in (path.iterdir() if path.is_dir() else [path]) if file.exists())
