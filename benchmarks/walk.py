"""One row's way: which files of attemper a command passes, in which order, and how often it opens its data.

python benchmarks/walk.py            # the table of docs/architecture.md
python benchmarks/walk.py --files    # and the files of each walk, in the order in which they are first entered
"""

from __future__ import annotations

import argparse
import contextlib
import io
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np

import attemper
from attemper import cli
from attemper.sharded import fit_sharded

SOURCE = Path(attemper.__file__).parent


class Walk(NamedTuple):
    """What a call passed."""

    functions: int
    files: list[str]
    switches: int
    opened: dict[str, int]


def walked(call: Callable[[], object], data: list[Path]) -> Walk:
    """Record every function of attemper that is entered, and every opening of the data files."""
    functions: set[object] = set()
    files: dict[str, None] = {}
    opened = {path.name: 0 for path in data}
    last, switches = "", 0
    root = str(SOURCE)
    recording = True

    def enter(frame, event, _):  # type: ignore[no-untyped-def]
        nonlocal last, switches
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(root) and not code.co_name.startswith("<"):
            functions.add(code)
            name = str(Path(code.co_filename).relative_to(SOURCE))
            files.setdefault(name)
            switches += name != last
            last = name

    def audit(event: str, args: tuple[object, ...]) -> None:
        if recording and event == "open" and Path(str(args[0])).name in opened:
            opened[Path(str(args[0])).name] += 1

    sys.addaudithook(audit)
    sys.setprofile(enter)
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            call()
    finally:
        sys.setprofile(None)
        recording = False
    return Walk(len(functions), list(files), switches, opened)


def command(*args: object) -> Callable[[], object]:
    return lambda: cli.cli.main([str(arg) for arg in args], standalone_mode=False)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", action="store_true")
    options = parser.parse_args()
    skin = attemper.datasets.load()
    with tempfile.TemporaryDirectory() as folder:
        val, test, fitted = (Path(folder, name) for name in ("val.npz", "test.npz", "map.json"))
        np.savez(val, logits=skin.val_logits, labels=skin.val_labels)
        np.savez(test, logits=skin.test_logits, labels=skin.test_labels)
        parts = [Path(folder, f"part{i}.npz") for i in range(2)]
        for i, part in enumerate(parts):
            np.savez(part, logits=skin.val_logits[i::2], labels=skin.val_labels[i::2])
        walks = {
            "`attemper fit val.npz`": (command("fit", val, "-o", fitted), [val]),
            "`attemper apply map.json test.npz`": (command("apply", fitted, test, "-o", Path(folder, "p.npz")), [test]),
            "`attemper report val.npz test.npz`": (
                command("report", val, test, "--methods", "ts,bayes", "-o", Path(folder, "r.html")),
                [val, test],
            ),
            "`fit_sharded` of two files": (
                lambda: fit_sharded(attemper.TemperatureScaling(), parts),
                parts,
            ),
        }
        for call, _ in walks.values():  # what is imported on the way is not part of the way
            with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
                call()
        print("| walk | functions | files | changes of file | openings of the data |\n|---|---|---|---|---|")
        for name, (call, data) in walks.items():
            walk = walked(call, data)
            opened = ", ".join(f"{file} {count}" for file, count in walk.opened.items())
            print(f"| {name} | {walk.functions} | {len(walk.files)} | {walk.switches} | {opened} |")
            if options.files:
                print("  " + " → ".join(walk.files))


if __name__ == "__main__":
    main()
