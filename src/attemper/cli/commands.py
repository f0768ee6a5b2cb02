"""The group of all commands; each command is added by its own module."""

from __future__ import annotations

import click

import attemper
from attemper.cli.options import Commands
from attemper.errors import naming_flags

__all__ = ["cli"]


@click.group(
    cls=Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Start with: attemper demo. Each command has a --help that explains it.",
)
@click.version_option(attemper.__version__, prog_name="attemper")
def cli() -> None:
    """Make a classifier's confidence mean what it says.

    Give attemper the logits and labels of a validation set; it fits a small map that turns logits into
    calibrated probabilities, and reports what changed. By default the predictions of the classifier stay the same.
    """
    click.get_current_context().with_resource(naming_flags())
