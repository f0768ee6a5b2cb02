"""Files that a command reads and writes: no output may be one of the inputs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click

from attemper._paths import expand_paths, local
from attemper.errors import AttemperError, FileError


class InputPath(click.Path):
    """A file, a pattern or a folder that a command reads."""


class OutputPath(click.Path):
    """A file that a command writes."""


INPUT, OUTPUT = InputPath(), OutputPath(dir_okay=False, writable=True)


def check_outputs(ctx: click.Context) -> None:
    """Refuse, before the work, outputs in a folder that does not exist, and outputs that are inputs."""
    given = [(parameter.type, value) for parameter in ctx.command.params for value in _texts(ctx, parameter)]
    inputs = [value for kind, value in given if isinstance(kind, InputPath)]
    for kind, value in given:
        if not isinstance(kind, OutputPath):
            continue
        target = local(value)
        if not target.parent.is_dir():
            raise FileError(f"{value}: the folder {target.parent} does not exist")
        if target.exists() and any(target.samefile(file) for name in inputs for file in _files(name)):
            raise FileError(f"{value}: is one of the inputs, which would be overwritten; use another name")


def _texts(ctx: click.Context, parameter: click.Parameter) -> Sequence[str]:
    value: Any = ctx.params.get(parameter.name or "")
    return [value] if isinstance(value, str) else value if isinstance(value, tuple) else ()


def _files(given: str) -> Iterator[Path]:
    """List the files on this machine that an input names; none where it is no file, which its reader reports."""
    try:
        found = expand_paths(given)
    except AttemperError:
        return
    for path in found:
        if isinstance(path, Path):
            yield from (file for file in (path.iterdir() if path.is_dir() else [path]) if file.exists())
