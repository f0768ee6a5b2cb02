"""How help is printed: two columns of plain text, one line for each option where it fits."""

from __future__ import annotations

import textwrap
from typing import Any

WIDTH, MOST = 80, 30  # columns of a line, and of names


class Formatter:
    """Prints the panels of cyclopts as aligned text; nothing is drawn around them."""

    def __call__(self, console: Any, options: Any, panel: Any) -> None:
        """Print one panel."""
        rows = [(_names(entry), _description(entry)) for entry in panel.entries]
        rows = [row for row in rows if row[0]]
        if not rows:
            return
        width = min(MOST, max(len(names) for names, _ in rows)) + 2
        lines = ["", f"{_plain(panel.title)}:"]
        for names, description in rows:
            wrapped = textwrap.wrap(description, WIDTH - width - 2) or [""]
            if len(names) > MOST:
                lines.append(f"  {names}")
                names = ""
            lines += [f"  {names if i == 0 else '':<{width}}{line}".rstrip() for i, line in enumerate(wrapped)]
        _print(console, "\n".join(lines))

    def render_usage(self, console: Any, options: Any, usage: Any) -> None:
        """Print the first line."""
        _print(console, f"Usage: {_plain(usage)}")

    def render_description(self, console: Any, options: Any, description: Any) -> None:
        """Print what a command does, and the examples."""
        if text := _plain(description):
            _print(console, text)


def _names(entry: Any) -> str:
    label = entry.positional_label
    if label:
        return str(label)
    names = ", ".join([*entry.positive_shorts, *entry.positive_names])
    return f"{names} {entry.metavar}" if entry.metavar else names


def _description(entry: Any) -> str:
    text = _plain(entry.description)
    return f"{text} [{entry.default}]" if entry.default not in (None, "None", "False", "") else text


def _plain(text: Any) -> str:
    text = getattr(text, "primary_renderable", text)  # cyclopts' inline text wraps one of rich
    return str(getattr(text, "plain", text) or "").rstrip()


def _print(console: Any, text: str) -> None:
    console.file.write(f"{text.rstrip()}\n")  # as it is: nothing to color or to wrap
