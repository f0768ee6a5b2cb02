"""Options that commands share."""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import click

from attemper._paths import as_path, expand_paths, local
from attemper.calibrators import METHODS, Calibrator
from attemper.cli.output import COLUMNS, err
from attemper.errors import AttemperError, FileError, InputError
from attemper.io import InputSpec
from attemper.io.reading import listed, read_lines
from attemper.sharded import ENGINES
from attemper.sketch import DEFAULT_T_RANGE

Command = Callable[..., Any]

OWN_OPTIONS = {
    "labels": "--noisy",
    "noise": "--noise",
    "t_range": "--t-range",
    "theta": "--theta",
    "loss": "--loss",
}


# Flags that had another name before version 0.2.0.
RENAMED_FLAGS = {
    "--floor": "--zeros-as",
    "--interval": "--confidence-level",
    "--for": "--methods",
    "--of": "--miss-rate-of",
    "--gives": "--output-kind",
    "--level": "--guarantee-level",
}


MOVED_COMMANDS = {"reproduce": "`python -m experiments.reproduce`, in a clone of the repository,"}


class InputPath(click.ParamType):  # type: ignore[type-arg]  # generic in new versions of click
    """A file, a pattern or a folder that a command reads; no output may be one of them."""

    name = "file"


class OutputPath(click.ParamType):  # type: ignore[type-arg]
    """A file that a command writes."""

    name = "file"


class Method(click.ParamType):  # type: ignore[type-arg]
    """The name of a method; those of other packages are looked for only if a name is unknown."""

    name = "method"

    def get_metavar(self, param: click.Parameter, ctx: click.Context | None = None) -> str:
        """Return all names, for --help."""
        return f"[{'|'.join(METHODS)}]"

    def convert(self, value: Any, param: Any, ctx: Any) -> str:
        """Refuse a name that is unknown."""
        if value not in METHODS:
            self.fail(f"{value!r} is not one of {', '.join(map(repr, METHODS))}.", param, ctx)
        return str(value)


INPUT, OUTPUT, METHOD = InputPath(), OutputPath(), Method()


class CheckedCommand(click.Command):
    """A command with --json and --debug, that refuses, before any work, to write over one of its own inputs."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.params += [
            click.Option(["--json", "as_json"], is_flag=True, help="Print JSON, for machines."),
            click.Option(["--debug"], is_flag=True, expose_value=False, help="Show the Python traceback of an error."),
        ]

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the options; one that had another name before version 0.2.0 is an error that names the new one."""
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            new = RENAMED_FLAGS.get(error.option_name)
            if new is None or not any(new in parameter.opts for parameter in self.params):
                raise
            raise click.UsageError(f"{error.option_name} is {new} since version 0.2.0.", ctx) from None

    def invoke(self, ctx: click.Context) -> Any:
        """Check every output against every input, then run; at the end report the columns taken as logits."""
        check_outputs(ctx)
        result = super().invoke(ctx)
        if not ctx.params.get("as_json"):  # which has them in the JSON
            for path, columns in ctx.meta.get(COLUMNS, {}).items():
                err.print(f"{path}: logits are the columns {listed(columns)}")
        return result


class Commands(click.Group):
    """The group of all commands; what is added to it is a `CheckedCommand`."""

    command_class = CheckedCommand

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        """Find a command; one that has moved in version 0.2.0 is an error that names the new place."""
        if args and args[0] in MOVED_COMMANDS and args[0] not in self.commands:
            raise click.UsageError(f"{args[0]} is {MOVED_COMMANDS[args[0]]} since version 0.2.0.", ctx)
        return super().resolve_command(ctx, args)


def bundled(
    name: str, build: Callable[[dict[str, Any]], Any], options: dict[str, Command]
) -> Callable[[Command], Command]:
    """Add options to a command, which gets what ``build`` makes of their values as the argument ``name``."""

    def decorate(command: Command) -> Command:
        @functools.wraps(command)
        def wrapped(**given: Any) -> Any:
            values = {option: given.pop(option) for option in options}
            return command(**{name: build(values)}, **given)

        for option in reversed(options.values()):
            wrapped = option(wrapped)
        return wrapped

    return decorate


def _options(**about: tuple[str | None, str] | tuple[str | None, str, dict[str, Any]]) -> dict[str, Command]:
    """Options by their names in Python: what stands for a value in --help (None: a flag), the help, and more."""
    found = {}
    for name, (metavar, text, *more) in about.items():
        kind: dict[str, Any] = {"is_flag": True} if metavar is None else {"metavar": metavar}
        found[name] = click.option("--" + name.replace("_", "-"), name, help=text, **kind, **(more[0] if more else {}))
    return found


# The fields of `InputSpec`.
SPEC_OPTIONS = _options(
    logits_key=(
        "NAME",
        "Array or column of logits [default: logits, or probs with --probs; in a table every column but the label's]. "
        "In a table with one column per class: what their names begin with.",
    ),
    labels=("FILE.npy", "Labels of logits in .npy; once for each input file.", {"type": INPUT, "multiple": True}),
    labels_key=("NAME", "Array or column of labels [default: labels; label]."),
    weights_key=("NAME", "Array or column of sample weights [default: none]."),
    probs=(None, "Treat the input as probabilities (never auto-detected)."),
    zeros_as=("P", "With --probs: what probabilities of exactly 0 stand for, such as 1e-8.", {"type": float}),
    classes=(
        "FILE|A,B,…",
        "Names of the classes in column order: a text file with one a line, or a list. Labels are then these names, or "
        "column numbers where no name is a number itself.",
        {"type": INPUT},
    ),
    mask_key=("NAME", "Tokens: array of 0 and 1, which positions count [default: all]."),
    ignore_index=("N", "Rows with this label do not count, such as -100.", {"type": int}),
    next_token=(None, "Tokens: --labels-key names the input ids, and the label of each position is the next one."),
    columns=(
        "ID,ID,…",
        "Take only these columns of logits, such as the tokens of answer options; labels count within them.",
    ),
    labels_are=(
        "[names|numbers|options|tokens]",
        "With --classes: labels are names, or column numbers. With --columns: labels are 0, 1, … among them, or token "
        "ids [default: options].",
        {"type": click.Choice(["names", "numbers", "options", "tokens"])},
    ),
    skip_empty=(None, "Skip files without rows; otherwise one is an error."),
)
UNLABELLED = _options(labels_key=("NAME", "Array or column of labels [default: none are read]."))


def reading(weights: bool = True, labels: bool = True) -> Callable[[Command], Command]:
    """Options of reading; the command gets ``spec``, an `InputSpec`.

    Without ``weights`` there is a fitted map, which knows the names of the classes; without ``labels`` they are read
    only where an option names them.
    """
    options = SPEC_OPTIONS if labels else SPEC_OPTIONS | UNLABELLED
    left_out = set() if weights else {"weights_key", "classes"}
    left_out |= set() if labels else {"mask_key", "ignore_index", "next_token"}  # every row counts, and is written

    def spec(given: dict[str, Any]) -> InputSpec:
        given["input"] = "probs" if given.pop("probs") else "logits"
        given["classes"], given["columns"] = class_names(given.get("classes")), column_numbers(given["columns"])
        return InputSpec(need_labels=labels, **given)

    return bundled("spec", spec, {name: option for name, option in options.items() if name not in left_out})


# Zero is given, and an error; None and False are not given.
spreading = bundled(
    "spread",
    lambda given: {name: value for name, value in given.items() if value is not None and value is not False},
    _options(
        workers=("N", "Work on N files at a time, each in a process of its own [default: 1].", {"type": int}),
        engine=(
            f"[{'|'.join(ENGINES)}]",
            "Who works on the files [default: serial; processes with --workers]. dask and ray start workers on this "
            "machine unless --scheduler names a cluster.",
            {"type": click.Choice(ENGINES)},
        ),
        scheduler=("ADDRESS", "The cluster: tcp://host:8786 (dask), ray://host:10001 (ray)."),
        retries=("N", "Try a file again, up to N times, when its worker was lost [default: 0].", {"type": int}),
        resume=(None, "Go on after a failure: use what OUTPUT.shards/ keeps of the files that were finished."),
    ),
)
"""Options of who works on the files; the command gets ``spread``, a dict of those that were given."""


def with_val(command: Command) -> Command:
    """Let a command that reads VAL and TEST, below `reading`, take names for VAL of its own; it gets ``val_spec``."""

    @functools.wraps(command)
    def wrapped(*, spec: InputSpec, val_keys: dict[str, Any], **given: Any) -> Any:
        own = {name.removeprefix("val_"): value for name, value in val_keys.items() if value is not None}
        return command(spec=spec, val_spec=spec.updated(**{"labels": None, **own}), **given)

    return bundled(
        "val_keys",
        dict,
        _options(
            val_logits_key=("NAME", "Name of the logits in VAL, if it is another than in TEST."),
            val_labels_key=("NAME", "Name of the labels in VAL, if it is another than in TEST."),
            val_labels=("FILE.npy", "Labels of VAL, when it is an .npy file (TEST: --labels).", {"type": INPUT}),
        ),
    )(wrapped)


selecting = bundled(
    "selecting",
    dict,
    _options(
        cv=(
            "N",
            "Folds of the cross-validation on VAL that selects a method; 0: recommend the default [default: 5; 2 for "
            "more than 500 000 logits].",
            {"type": int},
        ),
        clusters=(
            "NAME|FILE",
            "Which rows are the same case, such as a patient: an array of TEST and of VAL (.npz), or a text file with "
            "one name a line. A case is in one fold, and counts once where methods are compared.",
            {"type": INPUT},
        ),
        val_clusters=("NAME|FILE", "The same of VAL, if it is another than in TEST.", {"type": INPUT}),
    ),
)
"""Options of how a method is selected; the command gets ``selecting``, a dict."""
noisy_option = click.option(
    "--noisy",
    is_flag=True,
    help="Some validation labels may be wrong: estimate how many, and do not let them spoil the fit (bayes, "
    "structured).",
)
noise_option = click.option(
    "--noise",
    type=click.Choice(["uniform", "classwise"]),
    help="How labels go wrong, with --noisy: uniform, anywhere, or classwise, as people confuse certain classes with "
    "others. By default both are weighed, with class biases of the network in the model; naming one restricts the set. "
    "From several files, shards or sketches, and for more than 1000 classes, bayes leaves biases and confusions out.",
)
param_option = click.option(
    "-p",
    "--param",
    "params",
    multiple=True,
    metavar="NAME=VALUE",
    help="A parameter of the method, such as l2=0.01, n_bins=20 or centring=none; more than once for several.",
)
confidence_level_option = click.option(
    "--confidence-level", type=float, default=0.95, show_default=True, help="Confidence level of the intervals."
)
seed_option = click.option("--seed", type=int, default=0, show_default=True, help="Seed of the bootstrap.")
t_range_option = click.option(
    "--t-range",
    type=float,
    nargs=2,
    metavar="LOW HIGH",
    help=f"Temperatures considered [default: {DEFAULT_T_RANGE[0]:g} {DEFAULT_T_RANGE[1]:g}, or a range that suits the "
    "scale of the logits; fit --method ts: any].",
)
files_argument = click.argument("inputs", type=INPUT, nargs=-1, required=True, metavar="INPUT…")
map_argument = click.argument("map_file", type=INPUT, metavar="MAP")
val_argument = click.argument("val", type=INPUT)
test_argument = click.argument("test", type=INPUT)


def check_noise(noisy: bool, noise: str | None) -> None:
    """Refuse --noise without --noisy."""
    if noise is not None and not noisy:
        raise InputError(f"--noise {noise} describes how labels go wrong; add --noisy")


def parameters(given: Sequence[str], calibrator: type[Calibrator]) -> dict[str, Any]:
    """Read NAME=VALUE, values as in JSON or as plain text."""
    # Some parameters have an option of their own; forgetting is for streams.
    known = [name for name in calibrator.own_params() if name not in OWN_OPTIONS and name != "half_life"]
    found: dict[str, Any] = {}
    for text in given:
        name, equals, value = text.partition("=")
        if name in OWN_OPTIONS and name in calibrator.own_params():
            raise InputError(f"-p {text}: there is an option for that: {OWN_OPTIONS[name]}")
        if name == "half_life" and name in calibrator.own_params():
            raise InputError(
                f"-p {text}: a fit forgets nothing; half_life is for partial_fit, in Python (docs/drift.md)"
            )
        if equals and name in calibrator.renamed_params:
            new = calibrator.renamed_params[name]
            new = f"-p {new}=…" if new in known else f"--{new.replace('_', '-')}"
            raise InputError(f"-p {text}: {name} is {new} since version 0.2.0")
        if not equals or name not in known:
            raise InputError(
                f"-p {text}: expected NAME=VALUE; {calibrator.method} knows {', '.join(known) or 'no parameters'}"
            )
        try:
            found[name] = json.loads(value)
        except json.JSONDecodeError:
            found[name] = value
    return found


def method_names(methods: str | None) -> list[str] | None:
    """Read a list of methods; None: all of them."""
    return None if methods is None else [name.strip() for name in methods.split(",")]


def class_names(given: str | None) -> list[str] | None:
    """Read names from a list or from a file."""
    if given is None:
        return None
    if "," in given:
        return [name.strip() for name in given.split(",")]
    try:
        lines = read_lines(as_path(given))
    except FileError as error:
        raise FileError(f"--classes {given}: expected a list such as cat,dog or a readable file; {error}") from None
    return [line.strip() for line in lines if line.strip()]


def column_numbers(given: str | None) -> list[int] | None:
    """Read a list of column numbers."""
    if given is None:
        return None
    try:
        if "_" in given or not given.isascii():  # Python alone takes 1_0 for 10
            raise ValueError
        return [int(number) for number in given.split(",")]
    except ValueError:
        raise InputError(
            f"--columns {given}: expected column numbers with commas between, such as 317,418,356"
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
        raise FileError(f"{path or repr(path)}: a folder; pass the name of a file to write")
    if lost is not None:
        also = "" if lost == path else f" ({lost} is or holds the same file)"
        raise FileError(f"{path}: is one of the inputs, which would be lost{also}; use {fix}")


def _files(given: str) -> Iterator[Path]:
    """List the files on this machine that an input names; none where it is no file, which its reader reports."""
    try:
        found = expand_paths(given)
    except AttemperError:
        return
    for path in found:
        if isinstance(path, Path):
            yield from (file for file in (path.iterdir() if path.is_dir() else [path]) if file.exists())
