"""The command line: nothing else in attemper knows it."""

from __future__ import annotations

import os
import signal
import sys
import threading
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import TextIOWrapper
from pathlib import Path
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
    inspect,
    methods,
    refer,
    report,
    schema,
    sets,
    sketch,
)
from attemper.cli.commands import cli
from attemper.cli.output import err, out, unwritable, visible
from attemper.cli.verbosity import warning
from attemper.errors import AttemperError, AttemperWarning

__all__ = ["main"]


def main(command: click.Command = cli, name: str = "attemper") -> NoReturn:
    """Run a command; every expected failure is one message and exit code 2."""
    debug = "--debug" in sys.argv
    for which in ("stdout", "stderr"):
        stream = getattr(sys, which)
        if stream is None:  # closed by whoever started us
            setattr(sys, which, Path(os.devnull).open("w"))  # noqa: SIM115 (until the end)
        elif isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal that lacks θ or → is no reason to fail
    try:
        with warnings.catch_warnings(), ending_on_signals():
            warnings.simplefilter("always", AttemperWarning)
            warnings.showwarning = show_once()
            code = command.main(prog_name=name, standalone_mode=False)
            with unwritable():
                out.file.flush()
        sys.exit(code if isinstance(code, int) else 0)
    except (click.exceptions.Abort, KeyboardInterrupt) as error:
        notes = [*getattr(error, "__notes__", []), *getattr(error.__context__, "__notes__", [])]
        fail("; ".join(["interrupted; no file was left half-written", *notes]), 130)
    except click.ClickException as error:
        error.message = visible(error.message)  # type: ignore[misc]
        with unwritable(is_stderr=True):
            error.show()
        sys.exit(2)
    except AttemperError as error:
        if debug:
            traceback.print_exc()
        param = getattr(error, "param", None)
        fail(str(error) if param is None else f"{error} (option --{param.replace('_', '-')})", 2)
    except MemoryError:
        if debug:
            traceback.print_exc()
        fail(
            "not enough memory; use fewer rows or a machine with more memory, or fit ts, ats or bayes, which read "
            "files piece by piece",
            2,
        )
    except OSError as error:
        if debug:
            traceback.print_exc()
        where = "standard output: cannot be written" if error.filename is None else error.filename
        fail(f"{where}: {error.strerror or error}", 2)


@contextmanager
def ending_on_signals() -> Iterator[None]:
    """Turn SIGTERM and SIGHUP into SystemExit, so that unfinished files are removed on the way out."""

    def end(number: int, _: object) -> NoReturn:
        sys.exit(128 + number)

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    names = [name for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]  # Windows has no SIGHUP
    before = {getattr(signal, name): signal.getsignal(getattr(signal, name)) for name in names}
    taken = [number for number, handler in before.items() if handler is signal.SIG_DFL]  # nohup ignores SIGHUP
    for number in taken:
        signal.signal(number, end)
    try:
        yield
    finally:
        for number in taken:
            signal.signal(number, signal.SIG_DFL)


def show_once() -> Callable[..., None]:
    """Return a function that prints a warning on stderr, the same one only once."""
    shown: set[str] = set()

    def show(message: Warning | str, *_: object, **__: object) -> None:
        if str(message) not in shown:
            shown.add(str(message))
            warning(str(message))

    return show


def fail(message: str, code: int) -> NoReturn:
    err.print(f"attemper: {message}")
    sys.exit(code)
