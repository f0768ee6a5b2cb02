"""The command line: each command is the public function of the same name.

This module loads no numbers, so that `attemper --help` is quick; a command is loaded when it runs.
"""

from __future__ import annotations

import re
import sys
import traceback
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING

from attemper._version import __version__

if TYPE_CHECKING:
    from cyclopts import App

USAGE, CRASH = 2, 70

# What a command takes and does, and two examples.
COMMANDS = {
    "demo": ("[FOLDER]", "Run everything on a skin-lesion network that comes with attemper.", "", "my-folder"),
    "check": (
        "FILE...", "Describe files of scores. Exit 1 if something is odd.",
        "val.csv", "val.csv --labels diagnosis --columns akiec,bcc,mel",
    ),
    "fit": (
        "FILE... -o NET", "Fit a calibrator, and save it with the names of its columns.",
        "val.csv --labels diagnosis -o net.attemper.json",
        "'shards/*.npz' --method structured -o net.attemper.json",
    ),
    "sketch": (
        "FILE... -o SKETCH", "Sum up files in a small table; fit adds several of them.",
        "north.npz -o north.json", "south.csv --labels diagnosis -o south.json",
    ),
    "apply": (
        "NET FILE... [-o FILE]", "Add calibrated probabilities, and which cases to refer, to files.",
        "net.attemper.json new.csv -o list.csv", "net.attemper.json new.csv -o list.parquet --priors estimate",
    ),
    "evaluate": (
        "FILE...", "Print metrics before and after calibration, with intervals.",
        "test.csv --calibrator net.attemper.json --by site",
        "test.csv --calibrator net.attemper.json --fail-if 'ece>0.05'",
    ),
    "compare": (
        "VAL [TEST] [-o PAGE]", "Compare methods on VAL and TEST; -o writes a report.",
        "val.csv --labels diagnosis", "val.csv test.csv --labels diagnosis -o report.html",
    ),
    "decide": (
        "VAL [TEST] -o NET", "Choose which cases to refer, with a guarantee. Exit 1 without one.",
        "val.csv test.csv --max-miss mel=0.1 -o net.attemper.json",
        "val.csv --coverage 0.9 --by class -o net.attemper.json",
    ),
    "monitor": (
        "NET FILE...", "Test whether a calibrator still fits new data. Exit 1 on an alarm.",
        "net.attemper.json june.csv --state monitor.json",
        "net.attemper.json june.csv --reference may.csv",
    ),
    "export": (
        "NET [MODEL] -o FILE", "Write ONNX that returns calibrated probabilities.",
        "net.attemper.json -o calibrator.onnx", "net.attemper.json model.onnx -o calibrated.onnx",
    ),
}  # fmt: skip


def application() -> App:
    """Return the command line, with commands that are loaded when they are needed."""
    from cyclopts import App, Group

    from attemper.cli.help import Formatter

    options = Group("Options", sort_key=1)
    app = App(
        name="attemper",
        help="Make a classifier's confidence mean what it says.",
        help_epilogue="Start with: attemper demo, or attemper check FILE. Each command has --help.\n"
        "Exit codes: 0; 1 finding, alarm or failed condition; 2 usage or data; 70 crash.",
        version=__version__,
        help_format="plaintext",
        help_formatter=Formatter(),
        group_arguments=options,
        group_parameters=options,
        result_action="return_value",
    )
    for place, (name, (arguments, title, *examples)) in enumerate(COMMANDS.items()):
        lines = "\n".join(f"  attemper {name} {example}".rstrip() for example in examples)
        app.command(
            f"attemper.cli.commands:{name}",
            name=name,
            usage=f"attemper {name} {arguments} [OPTIONS]",
            help=title,
            help_epilogue=f"Examples:\n{lines}",
            sort_key=place,
        )
    return app


def main(argv: Sequence[str] | None = None) -> None:
    """Run a command, print what it returns, and exit."""
    tokens = list(sys.argv[1:] if argv is None else argv)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of other packages, until a command runs
        sys.exit(_run(tokens))


def _run(tokens: list[str]) -> int:
    """Return the exit code; every error is one line."""
    from cyclopts import CycloptsError, UnusedCliTokensError

    try:
        found = application()(tokens or ["--help"], exit_on_error=False, print_error=False)
        return 0 if found is None else int(found)
    except CycloptsError as error:
        from attemper.errors import nearest

        command = f" {tokens[0]}" if tokens and tokens[0] in COMMANDS else ""
        text = re.sub(r'^Command "\w+" parameter (\S+) requires an argument', r"\1 needs a value", str(error))
        if isinstance(error, UnusedCliTokensError):
            text = f"Unexpected argument: {(error.unused_tokens or [''])[0]}. Lists have commas and no spaces."
        if guess := re.search(r"(--\S+)\. Did you mean (\S+)\?$", text):  # of names that are not near
            text = text[: guess.end(1) + 1] + nearest(guess[1], [guess[2]])
        print(f"error: {text}\nSee: attemper{command} --help", file=sys.stderr)
        return USAGE
    except (KeyboardInterrupt, BrokenPipeError):
        return 130
    except Exception as error:
        from attemper.cli.options import as_flags
        from attemper.errors import AttemperError

        if "--debug" in tokens:
            traceback.print_exc()
        if isinstance(error, AttemperError):
            print(f"error: {as_flags(str(error), tokens[0], getattr(error, 'param', None))}", file=sys.stderr)
            return USAGE
        print(f"crash: {type(error).__name__}: {error} (--debug shows where)", file=sys.stderr)
        return CRASH
