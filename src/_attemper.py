"""The console script: an interrupt while the libraries load, a second or two, is no traceback."""

from __future__ import annotations

import os
import signal
import sys
from typing import NoReturn

__all__ = ["main"]


def main() -> NoReturn:
    """Load the command line and run it."""
    heeded = signal.getsignal(signal.SIGINT) is signal.default_int_handler  # a background job ignores interrupts
    if heeded:  # an exception would not do: libraries that are half loaded make an ImportError of it
        signal.signal(signal.SIGINT, _end)
    from attemper.cli import main as run

    if heeded:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    run()


def _end(*_: object) -> NoReturn:
    sys.stderr.write("attemper: interrupted; no file was left half-written\n")
    sys.stderr.flush()
    os._exit(130)
