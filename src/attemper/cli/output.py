"""What the command line prints: text and tables on stdout, JSON for machines, everything else on stderr."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import signal
import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NoReturn

import click
import numpy as np
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from attemper.comparison import Comparison
from attemper.errors import FileError
from attemper.metrics import Estimate
from attemper.places import local
from attemper.sketch import Sketch


def visible(text: str) -> str:
    """Write control characters out: a name in a file must not command the terminal, or make lines of its own.

    >>> visible(f"a{chr(27)}[2Jb") == "a" + chr(92) + "x1b[2Jb"
    True
    """
    return text if text.isprintable() else "".join(c if c.isprintable() else _escape(c) for c in text)


def _escape(character: str) -> str:
    return character.encode("unicode_escape").decode()


class PlainConsole(Console):
    """A console that prints no control character but its own, and whose stream may be closed or full."""

    def print(self, *objects: Any, **options: Any) -> None:
        """Print; text is one line."""
        with unwritable(self.stderr):
            super().print(*(visible(o) if isinstance(o, str) else o for o in objects), **options)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Render; also what stands in the cells of a table."""
        for segment in super().render(renderable, options):
            if segment.control or segment.text.isprintable():
                yield segment
            else:
                yield segment._replace(text="\n".join(map(visible, segment.text.split("\n"))))

    def on_broken_pipe(self) -> NoReturn:
        """Leave it to `unwritable`."""
        raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))


@contextlib.contextmanager
def unwritable(is_stderr: bool = False) -> Iterator[None]:
    """Wrap writing to a standard stream: one that is gone or full ends the command without a traceback.

    A reader that went away is no failure to report: the exit code is that of SIGPIPE. There is nobody to report to
    where the error output itself cannot be written.
    """
    try:
        yield
    except OSError as error:
        stream = sys.stderr if is_stderr else sys.stdout
        with contextlib.suppress(
            OSError, ValueError, AttributeError
        ):  # what is still in the buffer has to go somewhere
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
        if error.errno == errno.EPIPE:
            sys.exit(128 + signal.SIGPIPE)
        if not is_stderr:
            raise FileError(f"standard output: cannot be written: {error.strerror or error}") from None


# Nothing wraps in a pipe; a terminal decides for itself.
_terminal = sys.stdout is not None and sys.stdout.isatty()
out = PlainConsole(width=None if _terminal else 180, highlight=False, soft_wrap=not _terminal)
err = PlainConsole(stderr=True, highlight=False, soft_wrap=True)


def say_sketch(made: Sketch, output: str, as_json: bool, **more: int) -> None:
    """Say what a sketch that was written holds."""
    size = local(output).stat().st_size
    if as_json:
        print_json({"n_samples": made.n_samples, "n_classes": made.n_classes, **more, "bytes": size, "output": output})
    else:
        out.print(
            f"{made.n_samples} samples, {made.n_classes} classes: wrote {output}, {size / 1024:.0f} KiB",
            markup=False,
        )


COLUMNS = "attemper.columns"  # where a command's context keeps which columns were taken as logits

SHOWN = {"accuracy": "accuracy", "nll": "NLL", "brier": "Brier", "ece": "ECE"}


def print_comparison(result: Comparison, interval: float) -> None:
    """Print the table of methods and the recommendation."""
    table = Table(
        caption=f"on the test set, with {interval:.0%} intervals; chance: ECE of perfect calibration, p: share of its "
        "draws that reach the ECE; changed: answers other than the network's",
        caption_justify="left",
    )
    table.add_column("method")
    for title in SHOWN.values():
        table.add_column(title, justify="right")
    table.add_column("chance", justify="right")
    table.add_column("changed", justify="right")
    table.add_column("T", justify="right")
    table.add_column("fit time", justify="right")
    for row in result.rows:
        name = "uncalibrated" if row.method == "none" else row.method
        if row.metrics is None:
            table.add_row(name, Text(row.failure if row.failure.startswith("left out") else f"failed: {row.failure}"))
            continue
        t = "" if row.temperature is None else f"{row.temperature:.3f}"
        fit_time = "" if row.method == "none" else f"{1e3 * row.seconds:.1f} ms"
        changed = "" if row.changed == 0 else f"{row.changed:.1%}"
        figures = (number(row.metrics[m]) for m in SHOWN)
        table.add_row(name, *figures, by_chance(row.metrics["ece"]), changed, t, fit_time)
    out.print(table)
    print_reasons([{m: row.metrics[m] for m in SHOWN} for row in result.rows if row.metrics is not None])
    for row in result.rows:
        for note in row.notes:
            err.print(f"warning: {note}", markup=False)
    out.print(result.reason, markup=False)


def comparison_json(result: Comparison) -> dict[str, Any]:
    """Return the same as plain numbers."""
    rows = [
        {
            "method": row.method,
            "temperature": row.temperature,
            "seconds": row.seconds,
            "changed": row.changed,
            "metrics": None if row.metrics is None else plain(row.metrics),
            "notes": list(row.notes),
            "failure": row.failure or None,
        }
        for row in result.rows
    ]
    return {"rows": rows, "recommended": result.recommended, "reason": result.reason}


def number(value: float | Estimate) -> str:
    """Write a figure with its interval; a dash where there is none, with the reason in `print_reasons`."""
    if isinstance(value, Estimate):
        return (
            f"{value.value:.4f} ({value.low:.4f}–{value.high:.4f})" if value.has_interval else f"{value.value:.4f} (–)"
        )
    return f"{value:.4f}"


def by_chance(value: float | Estimate) -> str:
    """Write what perfect calibration would show; nothing for what is no calibration error."""
    if not isinstance(value, Estimate) or value.chance is None:
        return ""
    return f"{value.chance:.4f}, p = {value.p_value:.2g}"


def print_reasons(found: Iterable[Mapping[str, float | Estimate]]) -> None:
    """Print why figures have no interval, each reason once."""
    reasons: dict[str, list[str]] = {}
    for metrics in found:
        for name, value in metrics.items():
            if isinstance(value, Estimate) and value.note and name not in reasons.setdefault(value.note, []):
                reasons[value.note].append(name)
    for note, names in reasons.items():
        out.print(f"(–) {', '.join(names)}: {note}", markup=False)


def plain(metrics: dict[str, float | Estimate]) -> dict[str, Any]:
    """Return metrics as plain numbers."""
    return {k: v.to_dict() if isinstance(v, Estimate) else v for k, v in metrics.items()}


def print_json(content: dict[str, Any]) -> None:
    """Print JSON and nothing else; where tables were read, with the columns that were taken as logits."""
    context = click.get_current_context(silent=True)
    if context is not None and COLUMNS in context.meta:
        content = {**content, "columns": context.meta[COLUMNS]}

    def finite(value: Any) -> Any:
        if isinstance(value, dict):
            return {k: finite(v) for k, v in value.items()}
        if isinstance(value, list | tuple):
            return [finite(v) for v in value]
        if isinstance(value, float) and not np.isfinite(value):
            return str(value)  # JSON has no infinity
        return value

    with unwritable():
        out.file.write(json.dumps(finite(content), indent=2) + "\n")
