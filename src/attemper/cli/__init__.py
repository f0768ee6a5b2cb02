"""The command line: nothing else in attemper knows it."""

from __future__ import annotations

import sys
import traceback
import warnings
from io import TextIOWrapper
from typing import NoReturn

import click

from attemper.cli import (  # noqa: F401 (add their commands)
    demonstration,
    drifting,
    exporting,
    inspecting,
    referring,
    reporting,
    reproduction,
    sketching,
)
from attemper.cli.commands import cli
from attemper.cli.output import err
from attemper.errors import AttemperError, AttemperWarning

__all__ = ["main"]


def main() -> NoReturn:
    """Run the command line; every expected failure is one message and exit code 2."""
    debug = "--debug" in sys.argv
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal that lacks θ or → is no reason to fail
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("always", AttemperWarning)
            warnings.showwarning = lambda message, *_, **__: err.print(f"warning: {message}", markup=False)
            code = cli.main(prog_name="attemper", standalone_mode=False)
        sys.exit(code if isinstance(code, int) else 0)
    except (click.exceptions.Abort, KeyboardInterrupt) as error:
        notes = [*getattr(error, "__notes__", []), *getattr(error.__context__, "__notes__", [])]
        fail("; ".join(["interrupted; no file was left half-written", *notes]), 130)
    except click.ClickException as error:
        error.show()
        sys.exit(2)
    except AttemperError as error:
        if debug:
            traceback.print_exc()
        fail(str(error), 2)
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(1)


def fail(message: str, code: int) -> NoReturn:
    err.print(f"attemper: {message}", markup=False)
    sys.exit(code)
