"""What the command line prints: text and tables on stdout, JSON for machines, everything else on stderr."""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Iterable, Mapping
from typing import Any

import click
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from attemper.metrics import Estimate

# A terminal decides for itself how wide it is. In a pipe lines do not wrap; tables are as wide as COLUMNS, or 80.
_terminal = sys.stdout is not None and sys.stdout.isatty()
_width = None if _terminal or "COLUMNS" in os.environ else 80
out = Console(width=_width, markup=False, highlight=False, emoji=False, soft_wrap=not _terminal)
err = Console(stderr=True, markup=False, highlight=False, emoji=False, soft_wrap=True)

QUIET = "attemper.quiet"  # where a command's context keeps --quiet
COLUMNS = "attemper.columns"  # which columns were taken as logits
PROBS = "attemper.probs"  # and which files hold probabilities


def quiet() -> bool:
    """Whether --quiet was given."""
    context = click.get_current_context(silent=True)
    return context is not None and bool(context.meta.get(QUIET))


def say(text: str) -> None:
    """Print a line about a file that was written; the result of the command is that file."""
    if not quiet():
        out.print(text)


def note(text: str) -> None:
    """Print a note on stderr."""
    if not quiet():
        err.print(text)


def compact(*titles: str, title: str = "") -> Table:
    """Make a table that is narrow: no lines but one under the head; the first column is text, the others figures."""
    made = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
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
    p = p_of(value)
    return alone(value) + (f" ({p})" if p else "")


def p_of(value: float | Estimate) -> str:
    """Write the p-value of a calibration error; nothing for what is none."""
    return f"{value.p_value:.2g}" if isinstance(value, Estimate) and value.p_value is not None else ""


def share(value: Estimate) -> str:
    """Write a share in percent with its interval.

    >>> share(Estimate(0.714, 0.662, 0.758))
    '71.4% (66.2–75.8)'
    """
    ends = f" ({100 * value.low:.1f}–{100 * value.high:.1f})" if value.has_interval else " (–)"
    return f"{value.value:.1%}{ends}"


def count(value: float) -> str:
    """Write a number of samples, or a sum of weights."""
    return f"{value:.0f}" if value == round(value) else f"{value:.1f}"


def print_reasons(found: Iterable[Mapping[str, float | Estimate]]) -> None:
    """Print why figures have no interval, each reason once."""
    reasons: dict[str, list[str]] = {}
    for metrics in found:
        for name, value in metrics.items():
            if isinstance(value, Estimate) and value.note and name not in reasons.setdefault(value.note, []):
                reasons[value.note].append(name)
    for reason, names in reasons.items():
        out.print(f"(–) {', '.join(names)}: {reason}")


def plain(metrics: Mapping[str, float | Estimate | None]) -> dict[str, Any]:
    """Return metrics as plain numbers."""
    return {k: v.to_dict() if isinstance(v, Estimate) else v for k, v in metrics.items()}


def print_json(content: dict[str, Any]) -> None:
    """Print JSON and nothing else; where tables were read, with the columns that were taken as logits."""
    context = click.get_current_context(silent=True)
    if context is not None and COLUMNS in context.meta:
        content = {**content, "columns": context.meta[COLUMNS]}
    click.echo(json.dumps(finite(content), indent=2))


def finite(value: Any) -> Any:
    """Return what JSON can hold: a number that is not finite is null.

    >>> finite({"rows": [{"nll": float("inf")}, {"nll": 0.5}]})
    {'rows': [{'nll': None}, {'nll': 0.5}]}
    """
    if isinstance(value, dict):
        return {key: finite(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [finite(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
