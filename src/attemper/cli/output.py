"""What the command line prints: text and tables on stdout, JSON for machines, everything else on stderr."""

from __future__ import annotations

import contextlib
import errno
import json
import math
import os
import signal
import sys
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NoReturn

import click
from rich import box
from rich.console import Console, ConsoleOptions, RenderableType
from rich.padding import Padding
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

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
                super().print(*(self._indented(visible(o)) if isinstance(o, str) else o for o in objects), **options)
            except OSError:
                with contextlib.suppress(OSError), self.capture():  # rich would print the rest the next time
                    pass
                raise

    def _indented(self, text: str) -> RenderableType:
        """Indent all lines that a text wraps into as the first one."""
        start = len(text) - len(text.lstrip(" "))
        return Padding(Text(text[start:]), (0, 0, 0, start), expand=False) if start and not self.soft_wrap else text

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


# A terminal decides for itself how wide it is. In a pipe lines do not wrap; tables are as wide as COLUMNS, or 80.
_terminal = sys.stdout is not None and sys.stdout.isatty()
_width = None if _terminal or "COLUMNS" in os.environ else 80
out = PlainConsole(width=_width, markup=False, highlight=False, soft_wrap=not _terminal)
err = PlainConsole(stderr=True, markup=False, highlight=False, soft_wrap=True)


COLUMNS = "attemper.columns"  # where a command's context keeps which columns were taken as logits
PROBS = "attemper.probs"  # and which files hold probabilities

NON_FINITE = "non_finite"  # where JSON has the numbers that it cannot hold, by their places


def compact(*titles: str, title: str = "") -> Table:
    """Make a table that is narrow: no lines but one under the head; the first column is text, the others figures."""
    made = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 2, 0, 0))
    made.title, made.title_justify = Text(title) if title else None, "left"
    for column, name in enumerate(titles):
        made.add_column(Text(name), justify="right" if column else "left", overflow="fold")
    return made


def for_readers(method: str) -> str:
    """Return the name of a method for readers; in JSON a classifier without a map is "none"."""
    return "uncalibrated" if method == "none" else method


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


def p_of(value: float | Estimate) -> str:
    """Write the p-value of a calibration error; nothing for what is none."""
    return f"{value.p_value:.2g}" if isinstance(value, Estimate) and value.p_value is not None else ""


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

    with unwritable():
        out.file.write(json.dumps(valid(content), indent=2) + "\n")


def valid(content: dict[str, Any]) -> dict[str, Any]:
    """Return what JSON can hold: numbers that are not finite are null, and listed by their places (RFC 6901).

    >>> valid({"rows": [{"nll": float("inf")}, {"nll": 0.5}]})
    {'rows': [{'nll': None}, {'nll': 0.5}], 'non_finite': {'/rows/0/nll': 'infinity'}}
    """
    found: dict[str, str] = {}

    def finite(value: Any, place: str) -> Any:
        if isinstance(value, dict):
            return {k: finite(v, f"{place}/{str(k).replace('~', '~0').replace('/', '~1')}") for k, v in value.items()}
        if isinstance(value, list | tuple):
            return [finite(v, f"{place}/{i}") for i, v in enumerate(value)]
        if isinstance(value, float) and not math.isfinite(value):
            found[place] = "nan" if math.isnan(value) else "infinity" if value > 0 else "-infinity"
            return None
        return value

    plain_content: dict[str, Any] = finite(content, "")
    return {**plain_content, NON_FINITE: found} if found else plain_content
