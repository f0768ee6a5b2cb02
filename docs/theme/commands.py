"""The page of the command line: what ``--help`` prints for every command when the site is built."""

from __future__ import annotations

import contextlib
import io
import re

MARK = "<!-- every command's --help -->"


def on_page_markdown(markdown: str, **_: object) -> str:
    """Put the commands where the mark is."""
    return markdown.replace(MARK, commands()) if MARK in markdown else markdown


def commands() -> str:
    """Return a heading and the help of each command, as Markdown."""
    names = re.findall(r"^  ([a-z]+) ", help_of(), flags=re.M)
    return "\n\n".join(f"## attemper {name}\n\n```text\n{help_of(name)}\n```" for name in names)


def help_of(*command: str) -> str:
    """Return what a command prints with ``--help``."""
    from attemper.cli import main

    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.suppress(SystemExit):
        main([*command, "--help"])
    return printed.getvalue().strip()
