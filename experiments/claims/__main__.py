"""`python -m experiments.claims`: the verdicts on the paper's claims, and the summary, from the committed numbers."""

from __future__ import annotations

import click

from attemper._paths import local
from attemper.cli import main
from attemper.cli.commands import CheckedCommand
from attemper.cli.output import out, print_json


@click.command(cls=CheckedCommand)
@click.option(
    "--results", default="docs/results", show_default=True, help="Folder of what experiments.reproduce has written."
)
@click.option("-o", "--output", default="docs", show_default=True, help="Folder for the two pages and their plots.")
def claims(results: str, output: str, as_json: bool) -> None:
    """Write what holds of the paper, and whether to use its method.

    Reads the CSV files of python -m experiments.reproduce (and benchmarks/speed.md beside their folder), and writes
    claims.md, ats.md and two plots. It takes seconds, and the same numbers give the same bytes.

    \b
    python -m experiments.claims
    python -m experiments.claims --results results -o pages
    """  # noqa: D301 (click wants the control character)
    from experiments.claims import write

    files = write(local(results), local(output))
    if as_json:
        print_json({"output": output, "files": [str(path) for path in files]})
        return
    for path in files:
        out.print(f"wrote {path}")


if __name__ == "__main__":
    main(claims, "python -m experiments.claims")
