"""What the command line prints: text and tables on stdout, JSON for machines, everything else on stderr."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import signal
import sys
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NoReturn

import click
import numpy as np
from rich import box
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.table import Table

from attemper.comparison import Comparison, CrossValidated
from attemper.errors import FileError
from attemper.metrics import Estimate


def visible(text: str) -> str:
    """Write control characters out: a name in a file must not command the terminal, or make lines of its own.

    >>> visible(f"a{chr(27)}[2Jb") == "a" + chr(92) + "x1b[2Jb"
    True
    """
    return text if text.isprintable() else "".join(map(_shown, text))


def _shown(character: str) -> str:
    """Escape controls, line breaks, lone surrogates and turns of the direction of writing; keep spaces and joiners."""
    if character in TURNING or unicodedata.category(character) in ("Cc", "Zl", "Zp", "Cs"):
        return character.encode("unicode_escape").decode()
    return character


TURNING = {chr(code) for code in (*range(0x202A, 0x202F), *range(0x2066, 0x206A), 0x200E, 0x200F, 0x061C)}


class PlainConsole(Console):
    """A console that prints no control character but its own, and whose stream may be closed or full."""

    def print(self, *objects: Any, **options: Any) -> None:
        """Print; text is one line."""
        with unwritable(self.stderr):
            try:
                super().print(*(visible(o) if isinstance(o, str) else o for o in objects), **options)
            except OSError:
                with contextlib.suppress(OSError), self.capture():  # rich would print the rest the next time
                    pass
                raise

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
out = PlainConsole(width=None if _terminal else 180, markup=False, highlight=False, soft_wrap=not _terminal)
err = PlainConsole(stderr=True, markup=False, highlight=False, soft_wrap=True)


COLUMNS = "attemper.columns"  # where a command's context keeps which columns were taken as logits

SHOWN = {"accuracy": "accuracy", "nll": "NLL", "brier": "Brier", "ece": "ECE"}


WIDE = 178  # columns that the table with every interval takes


def print_comparison(result: Comparison, interval: float) -> None:
    """Print the table of methods and the recommendation; what a narrow terminal has no room for is left out."""
    wide = out.width >= WIDE
    words = ""
    if result.n_folds:
        words = "CV NLL: on held-out validation samples, which select" + (
            ", and the difference to the recommended method with its standard error. " if wide else ". "
        )
    words += "The rest is on the test set, which evaluates only" + (
        f", with {interval:.0%} intervals. " if wide else ". "
    )
    if result.confidence_set is not None:
        words += f"*: with {interval:.0%} confidence one of these is the lowest; they can be, to within 0.001. "
    words += "chance: mean ECE of" if wide else "p: share of draws of"
    words += " a perfectly calibrated network"
    words += ", p: share of its draws that reach the ECE" if wide else " that reach the ECE"
    words += ". area: how well confidence ranks errors, for referral. changed: predictions other than the network's."
    if not wide:
        words += f" A terminal of {WIDE} columns, or --json, shows more."
    table = Table(caption=words, caption_justify="left")
    if not wide:
        table.box, table.show_edge, table.pad_edge, table.padding = box.SIMPLE_HEAD, False, False, (0, 1, 0, 0)
    table.add_column("method", no_wrap=True)
    titles = ["accuracy", "NLL", "Brier", "ECE", "chance"] if wide else ["accuracy", "NLL", "ECE (p)"]
    for title in [*(["CV NLL"] if result.n_folds else []), *titles, "area", "changed", "T"]:
        table.add_column(title, justify="right", no_wrap=True)
    for row in result.rows:
        if row.metrics is None:
            continue
        t = "" if row.temperature is None else f"{row.temperature:.3f}"
        changed = "" if row.changed == 0 else f"{row.changed:.1%}"
        star = "*" if row.method in (result.confidence_set or ()) else " "
        held_out = [cross_validated(row.cv, wide)] if result.n_folds else []
        nll = row.metrics["nll"]
        if wide:
            figures = [number(row.metrics["accuracy"]), number(nll) + star, alone(row.metrics["brier"])]
            figures += [number(row.metrics["ece"]), by_chance(row.metrics["ece"])]
        else:
            figures = [alone(row.metrics["accuracy"]), alone(nll) + star, with_p(row.metrics["ece"])]
        area = "" if row.referral_area is None else alone(row.referral_area)
        table.add_row("uncalibrated" if row.method == "none" else row.method, *held_out, *figures, area, changed, t)
    out.print(table)
    print_reasons([{m: row.metrics[m] for m in SHOWN} for row in result.rows if row.metrics is not None])
    for row in result.rows:
        if row.metrics is None:
            why = row.failure if row.failure.startswith("left out") else f"failed: {row.failure}"
            out.print(f"{row.method}: {why}")
        for note in row.notes:
            err.print(f"warning: {note}")
    out.print(result.reason)


def cross_validated(found: CrossValidated | None, wide: bool) -> str:
    """Write the NLL on held-out samples; with the difference to the recommended method where there is room."""
    if found is None:
        return "–"
    if not wide or not np.isfinite(found.nll) or found.standard_error == 0:
        return f"{found.nll:.4f}"
    return f"{found.nll:.4f} ({found.above:+.4f} ± {found.standard_error:.4f})"


def comparison_json(result: Comparison) -> dict[str, Any]:
    """Return the same as plain numbers."""
    rows = [
        {
            "method": row.method,
            "temperature": row.temperature,
            "seconds": row.seconds,
            "changed": row.changed,
            "cv": None if row.cv is None else row.cv._asdict(),
            "metrics": None if row.metrics is None else plain(row.metrics),
            **plain({name: getattr(row, name) for name in ("referral_area", "above_best")}),
            "notes": list(row.notes),
            "failure": row.failure or None,
        }
        for row in result.rows
    ]
    return {
        "rows": rows,
        "recommended": result.recommended,
        "reason": result.reason,
        "selected_by": result.selected_by,
        "n_folds": result.n_folds,
        "confidence_set": None if result.confidence_set is None else list(result.confidence_set),
    }


def number(value: float | Estimate, digits: int = 4) -> str:
    """Write a figure with its interval; a dash where there is none, with the reason in `print_reasons`."""
    if not isinstance(value, Estimate):
        return f"{value:.{digits}f}"
    ends = f"{value.low:.{digits}f}–{value.high:.{digits}f}" if value.has_interval else "–"
    return f"{value.value:.{digits}f} ({ends})"


def alone(value: float | Estimate) -> str:
    """Write a figure without its interval."""
    return f"{value.value if isinstance(value, Estimate) else value:.4f}"


def with_p(value: float | Estimate) -> str:
    """Write a calibration error with its p-value."""
    p = f" ({value.p_value:.2g})" if isinstance(value, Estimate) and value.chance is not None else ""
    return f"{alone(value)}{p}"


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
        out.print(f"(–) {', '.join(names)}: {note}")


def plain(metrics: Mapping[str, float | Estimate | None]) -> dict[str, Any]:
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
