"""The command line: nothing else in attemper knows it."""

from __future__ import annotations

import sys
import traceback
import warnings
from collections.abc import Callable
from io import TextIOWrapper
from typing import NoReturn

import click

from attemper.cli import (  # noqa: F401 (each adds its command)
    adapt,
    apply,
    check,
    compare,
    demo,
    drift,
    evaluate,
    export,
    fit,
    refer,
    report,
    sets,
    sketch,
)
from attemper.cli.commands import cli
from attemper.cli.output import err
from attemper.errors import AttemperError, AttemperWarning

__all__ = ["main"]

ERROR, CRASH, INTERRUPTED = 2, 70, 130  # exit codes; 1 is a finding, an alarm or a condition of --fail-if

# Parameters in Python whose option has another name.
FLAGS = {
    "clusters_key": "--clusters",
    "groups_key": "--groups",
    "input": "--probs",
    "sample_weight": "--weights-key",
}


def main(command: click.Command = cli, name: str = "attemper") -> NoReturn:
    """Run a command; an expected failure is one message and exit code 2, any other exit code 70."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal that lacks θ or → is no reason to fail
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("always", AttemperWarning)
            warnings.showwarning = show_once()
            code = command.main(prog_name=name, standalone_mode=False)
        sys.exit(code if isinstance(code, int) else 0)
    except (click.exceptions.Abort, KeyboardInterrupt):
        fail("interrupted", INTERRUPTED)
    except click.ClickException as error:
        error.show()
        sys.exit(ERROR)
    except Exception as error:
        if "--debug" in sys.argv:
            traceback.print_exc()
        if isinstance(error, AttemperError):
            flag = flag_of(getattr(error, "param", None))
            fail(f"{error} (option {flag})" if flag else str(error), ERROR)
        if isinstance(error, OSError):
            fail(f"{error.filename or 'standard output'}: {error.strerror or error}", ERROR)
        if isinstance(error, MemoryError):
            fail(
                "not enough memory; use fewer rows, or a method that reads files piece by piece (ts, ats, bayes)", ERROR
            )
        fail(f"a bug: {type(error).__name__}: {error}; --debug shows where", CRASH)


def flag_of(param: str | None) -> str | None:
    """Return the option that sets a parameter of Python; None where there is none."""
    options = [option for command in cli.commands.values() for option in command.params]
    return FLAGS.get(param or "", next((max(o.opts, key=len) for o in options if o.name == param), None))


def show_once() -> Callable[..., None]:
    """Return a function that prints a warning on stderr, the same one only once."""
    shown: set[str] = set()

    def show(message: Warning | str, *_: object, **__: object) -> None:
        if str(message) not in shown:
            shown.add(str(message))
            err.print(f"warning: {message}")

    return show


def fail(message: str, code: int) -> NoReturn:
    err.print(f"attemper: {message}")
    sys.exit(code)
