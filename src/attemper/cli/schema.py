"""`attemper schema`: the JSON Schema of what a command prints with `--json`."""

from __future__ import annotations

import json

import click

from attemper.cli.commands import cli
from attemper.cli.output import out, unwritable
from attemper.cli.schemas import SCHEMAS, schema_of


@cli.command(section="More")
@click.argument("command", type=click.Choice(sorted(SCHEMAS)), metavar="COMMAND")
def schema(command: str, as_json: bool) -> None:
    """Print the JSON Schema of the output of a COMMAND with --json.

    \b
    attemper schema evaluate
    attemper evaluate test.npz --json > figures.json
    """  # noqa: D301 (click wants the control character)
    with unwritable():
        out.file.write(json.dumps(schema_of(command), indent=2) + "\n")
