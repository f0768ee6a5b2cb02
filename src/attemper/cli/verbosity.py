"""How much is printed: --quiet, --verbose, and the functions that heed them."""

from __future__ import annotations

import functools

import click
from click.core import ParameterSource

from attemper.cli.options import Option
from attemper.cli.output import err, out

VERBOSITY = "attemper.verbosity"  # where the context keeps how much is printed: the number of -v less that of -q


def verbosity_options() -> list[click.Parameter]:
    """Return --quiet and --verbose, which stand before or after the command."""
    quiet = "Print no progress, no notes, and no summary if the result is a file; -qq: no warnings either."
    verbose = "Print more: the options read from a file, the input files, and times."
    return [
        Option(
            [f"-{name[0]}", f"--{name}"],
            count=True,
            expose_value=False,
            group="General",
            help=text,
            callback=functools.partial(_count, sign),
        )
        for name, sign, text in (("quiet", -1, quiet), ("verbose", 1, verbose))
    ]


def _count(sign: int, ctx: click.Context, parameter: click.Parameter, given: int) -> None:
    """Add to what was counted; a file of options counts only where the command line has neither."""
    source = ctx.get_parameter_source(parameter.name or "")
    if given and (source is ParameterSource.COMMANDLINE or VERBOSITY not in ctx.meta):
        ctx.meta[VERBOSITY] = ctx.meta.get(VERBOSITY, 0) + sign * given


def verbosity() -> int:
    """Return how much to print: 0 as usual, less with --quiet, more with --verbose."""
    context = click.get_current_context(silent=True)
    return 0 if context is None else int(context.meta.get(VERBOSITY, 0))


def say(text: str) -> None:
    """Print a line about a file that was written; the result of the command is that file."""
    if verbosity() >= 0:
        out.print(text)


def note(text: str) -> None:
    """Print a note on stderr."""
    if verbosity() >= 0:
        err.print(text)


def detail(text: str) -> None:
    """Print on stderr what only --verbose asks for."""
    if verbosity() > 0:
        err.print(text)


def warning(text: str) -> None:
    """Print a warning on stderr, unless -qq asks for none."""
    if verbosity() > -2:
        err.print(f"warning: {text}")
