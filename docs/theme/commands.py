"""The page of the command line: what ``--help`` says of every command when the site is built."""

from __future__ import annotations

import click
from mkdocs.structure.pages import Page

WIDTH = 84  # of a line of help
MARK = "<!-- every command's --help -->"


def on_page_markdown(markdown: str, *, page: Page, **_: object) -> str:
    """Put the commands where the mark is."""
    return markdown.replace(MARK, commands()) if MARK in markdown else markdown


def commands() -> str:
    """Return a heading and the help of each command, as Markdown."""
    from attemper.cli.commands import cli

    whole = click.Context(cli, info_name="attemper", terminal_width=WIDTH, **cli.context_settings)
    parts = [_block("attemper", whole)]
    for name in cli.list_commands(whole):
        command = cli.get_command(whole, name)
        assert command is not None
        parts.append(_block(f"attemper {name}", click.Context(command, parent=whole, info_name=name)))
    return "\n\n".join(parts)


def _block(name: str, context: click.Context) -> str:
    return f"## {name}\n\n```text\n{context.get_help()}\n```"
