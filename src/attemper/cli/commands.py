"""The group of all commands, and what they share; each command is added by its own module."""

from __future__ import annotations

import time
from typing import Any

import click

import attemper
from attemper.cli.config import config_options, taken_from_config
from attemper.cli.options import GROUPS, Option
from attemper.cli.output import COLUMNS, PROBS
from attemper.cli.paths import OutputFolder, OutputPath, check_outputs
from attemper.cli.verbosity import detail, note, verbosity_options
from attemper.errors import listed

__all__ = ["cli"]

# Sections of commands in --help, in this order.
SECTIONS = ("First steps", "Calibrate", "Evaluate", "Decide and monitor", "Many files", "More")


class CheckedCommand(click.Command):
    """A command with the options that all have, that refuses to write over one of its own inputs."""

    def __init__(self, *args: Any, section: str = "More", **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.section = section
        debug = "Show the Python traceback of an error."
        self.params += [
            Option(["--json", "as_json"], is_flag=True, group="Output", help="Print JSON."),
            *verbosity_options(),
            *config_options(),
            Option(["--debug"], is_flag=True, expose_value=False, group="General", help=debug),
        ]

    def invoke(self, ctx: click.Context) -> Any:
        """Check every output against every input, then run; at the end report the columns taken as logits."""
        for line in taken_from_config(ctx):
            detail(line)
        check_outputs(ctx)
        start = time.monotonic()
        result = super().invoke(ctx)
        detail(f"finished after {time.monotonic() - start:.1f} s")
        if not ctx.params.get("as_json"):  # which has them in the JSON
            for path, columns in ctx.meta.get(COLUMNS, {}).items():
                kind = "probabilities" if path in ctx.meta.get(PROBS, ()) else "logits"
                note(f"{path}: {kind} are the column{'' if len(columns) == 1 else 's'} {listed(columns)}")
        return result

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options in their groups."""
        groups: dict[str, list[tuple[str, str]]] = {name: [] for name in GROUPS}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx) if isinstance(parameter, click.Option) else None
            if record is not None:
                groups[group_of(parameter)].append(record)
        for name, records in groups.items():
            if records:
                with formatter.section(name):
                    formatter.write_dl(records)


def group_of(parameter: click.Parameter) -> str:
    """Return the group of --help that an option stands in."""
    if isinstance(parameter, Option) and parameter.group != "Options":
        return parameter.group
    if isinstance(parameter.type, OutputPath | OutputFolder):
        return "Output"
    return "General" if "--help" in parameter.opts else "Options"


class Commands(click.Group):
    """The group of all commands; what is added to it is a `CheckedCommand`."""

    command_class = CheckedCommand

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands in their sections, each with its whole first sentence."""
        width = max(map(len, self.commands)) + 2
        for section in SECTIONS:
            rows = [
                (name.ljust(width - 2), command.get_short_help_str(limit=1000))
                for name, command in self.commands.items()
                if getattr(command, "section", "More") == section and not command.hidden
            ]
            if rows:
                with formatter.section(section):
                    formatter.write_dl(rows)


@click.group(
    cls=Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Start with: attemper demo. Each command has a --help that explains it.",
    params=[*verbosity_options(), *config_options()],
)
@click.version_option(attemper.__version__, prog_name="attemper")
def cli() -> None:
    """Make a classifier's confidence mean what it says.

    Pass attemper the logits and labels of a validation set. It fits a small map from logits to calibrated
    probabilities, and reports what changed. By default the predictions of the classifier stay the same.
    """
