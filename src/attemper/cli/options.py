"""Options that commands share, in the groups that `--help` shows them in."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any

import click
from click.core import ParameterSource
from click.shell_completion import CompletionItem

from attemper.calibrators import METHODS
from attemper.cli.paths import INPUT, OUTPUT
from attemper.cli.values import class_names, column_list
from attemper.errors import InputError
from attemper.io import InputSpec

Command = Callable[..., Any]

# Groups of options in --help, in this order; "Options" are those of one command alone.
GROUPS = ("Options", "Fitting", "Reading", "Many files", "Pipelines", "Output", "General")


class Option(click.Option):
    """An option that stands in a group of --help."""

    def __init__(self, *args: Any, group: str = "Options", **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.group = group


class Method(click.ParamType):  # type: ignore[type-arg]  # generic in new versions of click
    """The name of a method; those of other packages are looked for only if a name is unknown."""

    name = "method"

    def convert(self, value: Any, param: Any, ctx: Any) -> str:
        """Refuse a name that is unknown."""
        if value not in METHODS:
            self.fail(f"{value!r} is not one of {', '.join(map(repr, METHODS))}.", param, ctx)
        return str(value)

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Offer the names; in a list those that are not there yet."""
        before, comma, last = incomplete.rpartition(",")
        names = [name for name in METHODS if name.startswith(last) and name not in before.split(",")]
        return [CompletionItem(f"{before}{comma}{name}", help=METHODS[name].title) for name in names]


class MethodList(Method):
    """Names of methods with commas between; `method_names` reads them."""

    def convert(self, value: Any, param: Any, ctx: Any) -> str:
        """Leave the check to the command."""
        return str(value)


METHOD, METHOD_LIST = Method(), MethodList()


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


def _options(
    group: str, **about: tuple[str | None, str] | tuple[str | None, str, dict[str, Any]]
) -> dict[str, Command]:
    """Options by their names in Python: what stands for a value in --help (None: a flag), the help, and more."""
    found = {}
    for name, (metavar, text, *more) in about.items():
        kind: dict[str, Any] = {"is_flag": True} if metavar is None else {"metavar": metavar}
        kind |= more[0] if more else {}
        found[name] = click.option(f"--{name.replace('_', '-')}", name, help=text, cls=Option, group=group, **kind)
    return found


def reject_given(names: Iterable[str], why: str) -> None:
    """Refuse options of this command that were given, but have no effect here."""
    source = click.get_current_context().get_parameter_source
    for name in names:
        if source(name) is ParameterSource.COMMANDLINE:
            raise InputError(f"--{name.replace('_', '-')}: {why}")


# The fields of `InputSpec`.
SPEC_OPTIONS = _options(
    "Reading",
    logits_key=(
        "NAME",
        "Array or column of logits [default: logits, or probs with --probs]. "
        "In a table with one column per class: the common prefix of their names [default: logit_, or prob_].",
    ),
    labels=(
        "FILE.npy",
        "Labels of logits in .npy; once for each such file, in their order.",
        {"type": INPUT, "multiple": True},
    ),
    labels_key=("NAME", "Array or column of labels [default: labels; label]."),
    weights_key=("NAME", "Array or column of sample weights [default: none]."),
    probs=(None, "Treat the input as probabilities (never auto-detected)."),
    zeros_as=("P", "With --probs: value that replaces probabilities of exactly 0, such as 1e-8.", {"type": float}),
    classes=(
        "FILE|A,B,…",
        "Names of the classes in column order: a text file with one name per line, a .csv or .json file "
        "of names with descriptions, or a list. Labels are then these names, or column numbers if no name is a "
        "number.",
        {"type": INPUT},
    ),
    ignore_index=("N", "Ignore rows or pixels with this label, such as -100 or 255.", {"type": int}),
    axis=(
        "N",
        "Axis of the classes in an array of three dimensions or more: 1 for images, (N, K, H, W); 0 for "
        "one image in each file, (K, H, W); -1 for the last axis.",
        {"type": int},
    ),
    columns=(
        "A,B,…",
        "Use only these columns of logits, in this order: names in a table, numbers in an array, such as "
        "the tokens of answer options. Labels are positions among them, or their names.",
    ),
)
UNLABELLED = _options("Reading", labels_key=("NAME", "Array or column of labels [default: none are read]."))

ID_OPTIONS = _options(
    "Reading",
    groups=(
        "NAME|FILE",
        "Group of each row, such as a site: an array or column, or a file (.txt with one name per line, .npy).",
        {"type": INPUT},
    ),
    clusters=(
        "NAME|FILE",
        "Case of each row, such as a patient: an array or column, or a file (.txt with one name per "
        "line, .npy). Rows of one case are not independent, so intervals and folds treat the case as the unit.",
        {"type": INPUT},
    ),
)


def reading(
    weights: bool = True, labels: bool = True, *, groups: bool = False, clusters: bool = False
) -> Callable[[Command], Command]:
    """Options of reading; the command gets ``spec``, an `InputSpec`.

    Without ``weights`` there is a fitted map, which knows the names of the classes; without ``labels`` they are read
    only where an option names them. With ``groups`` or ``clusters`` the command has options for these ids.
    """
    wanted = {"groups": groups, "clusters": clusters}
    options = (SPEC_OPTIONS if labels else SPEC_OPTIONS | UNLABELLED) | ID_OPTIONS
    left_out = {name for name in ID_OPTIONS if not wanted[name]}
    left_out |= set() if weights else {"weights_key", "classes"}
    left_out |= set() if labels else {"ignore_index"}  # every row counts, and is written

    def spec(given: dict[str, Any]) -> InputSpec:
        given["input"] = "probs" if given.pop("probs") else "logits"
        given |= {f"{name}_key": given.pop(name) for name in ID_OPTIONS if name in given}
        given["classes"], given["columns"] = class_names(given.get("classes")), column_list(given["columns"])
        return InputSpec(need_labels=labels, **given)

    return bundled("spec", spec, {name: option for name, option in options.items() if name not in left_out})


no_groups_option = click.option(
    "--no-groups",
    cls=Option,
    group="Reading",
    is_flag=True,
    help="If the map was fitted with groups, apply the common map to all rows.",
)
spreading = bundled(
    "spread",
    lambda given: {} if given["workers"] is None else given,
    _options(
        "Many files",
        workers=("N", "Process N files at a time, each in a separate process [default: 1].", {"type": int}),
    ),
)
"""How many processes work on the files; the command gets ``spread``, a dict."""
cv_option = click.option(
    "--cv",
    cls=Option,
    group="Fitting",
    type=int,
    metavar="N",
    help="Folds of the cross-validation on VAL that selects a method; 0: recommend the default [default: 5; 2 for "
    "more than 500 000 logits].",
)
noisy_option = click.option(
    "--noisy",
    is_flag=True,
    help="Some validation labels may be wrong: estimate how many, and correct the fit for them (bayes, structured).",
    cls=Option,
    group="Fitting",
)
noise_option = click.option(
    "--noise",
    type=click.Choice(["uniform", "classwise"]),
    help="Kind of label errors, with --noisy: uniform (any class) or classwise (certain classes are "
    "confused with others). By default both are weighed, with class biases of the network in the model. With "
    "several files, shards or sketches, and for more than 1000 classes, bayes does not model biases and "
    "confusions.",
    cls=Option,
    group="Fitting",
)
param_option = click.option(
    "-p",
    "--param",
    "params",
    multiple=True,
    metavar="NAME=VALUE",
    help="A parameter of the method, such as l2=0.01, n_bins=20, theta=0.002 or t_range=[0.1,10]; repeat for several.",
    cls=Option,
    group="Fitting",
)
map_option = click.option(
    "--map",
    "map_file",
    type=INPUT,
    metavar="MAP",
    help="Use this fitted map instead; it must not have been fitted on samples of VAL.",
)
save_map_option = click.option(
    "--save-map",
    type=OUTPUT,
    metavar="FILE",
    help="Where to write the map that was fitted; the policy belongs to it.",
)
confidence_level_option = click.option(
    "--confidence-level", type=float, default=0.95, show_default=True, help="Confidence level of the intervals."
)
seed_option = click.option("--seed", type=int, default=0, show_default=True, help="Seed of the bootstrap.")
files_argument = click.argument("inputs", type=INPUT, nargs=-1, required=True, metavar="INPUT…")
map_argument = click.argument("map_file", type=INPUT, metavar="MAP")
val_argument = click.argument("val", type=INPUT)
test_argument = click.argument("test", type=INPUT)
