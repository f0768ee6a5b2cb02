"""Files that a command reads and writes: no output may be one of the inputs."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem

from attemper._paths import expand_paths, local
from attemper.errors import AttemperError, FileError, InputError

# Of files that attemper reads or writes, or that other programs would take for something else.
EXTENSIONS = (
    *(".csv", ".json", ".jsonl", ".ndjson", ".npy", ".npz", ".parquet", ".safetensors", ".tsv", ".txt", ".xlsx"),
    *(".htm", ".html", ".jpg", ".md", ".pdf", ".png", ".svg", ".xml", ".onnx", ".pkl", ".pt", ".pth", ".toml", ".yaml"),
)


class FilePath(click.ParamType):  # type: ignore[type-arg]  # generic in new versions of click
    """A path; the shell completes it."""

    name = "file"

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Leave it to the shell."""
        return [CompletionItem(incomplete, type="file")]


class InputPath(FilePath):
    """A file, a pattern or a folder that a command reads; no output may be one of them."""


class OutputPath(FilePath):
    """A file that a command writes; ``extensions`` are those of its format, where it has only one."""

    def __init__(self, *extensions: str) -> None:
        self.extensions = extensions

    def check(self, path: str) -> None:
        """Refuse the extension of another format; a name without a known one is fine."""
        extension = local(path).suffix.lower()
        if self.extensions and extension in EXTENSIONS and extension not in self.extensions:
            right = local(path).with_suffix(self.extensions[0])
            more = " `attemper export` writes .onnx files." if extension == ".onnx" else ""
            raise FileError(
                f"{path}: expected a name that ends in {self.extensions[0]}, got {extension}. Use {right}.{more}"
            )


class OutputFolder(FilePath):
    """A folder that a command writes to."""

    name = "folder"

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Leave it to the shell."""
        return [CompletionItem(incomplete, type="dir")]


INPUT, OUTPUT, FOLDER = InputPath(), OutputPath(), OutputFolder()
JSON_OUTPUT, PAGE_OUTPUT = OutputPath(".json"), OutputPath(".html", ".htm")


def check_outputs(ctx: click.Context) -> None:
    """Refuse, before the work, outputs that cannot be written, that are inputs, or that are the same file twice."""
    given: list[tuple[click.Parameter, str]] = [
        (parameter, value) for parameter in ctx.command.params for value in _texts(ctx.params.get(parameter.name or ""))
    ]
    inputs = [value for parameter, value in given if isinstance(parameter.type, InputPath)]
    written: dict[str, str] = {}
    for parameter, value in given:
        if isinstance(parameter.type, OutputPath):
            option = min(parameter.opts, key=len)
            check_writable(value, inputs, f"{option} another name")
            parameter.type.check(value)
            other = written.setdefault(os.path.realpath(local(value)), option)
            if other != option:
                raise InputError(f"{other} and {option} both name {value}; use two files")


def _texts(value: Any) -> Sequence[str]:
    return [value] if isinstance(value, str) else value if isinstance(value, tuple) else ()


def check_writable(path: str, inputs: Sequence[str], fix: str) -> None:
    """Refuse a path in a folder that does not exist, a folder, and a file that is one of the inputs."""
    target = local(path)
    try:
        is_folder, there_is_a_folder = target.is_dir(), target.parent.is_dir()
        at_risk = inputs if target.exists() else ()
        lost = next((given for given in at_risk if any(map(target.samefile, _files(given)))), None)
    except OSError as error:  # such as a name that is too long
        raise FileError(f"{error.filename}: {error.strerror}") from None
    if not there_is_a_folder:
        raise FileError(f"{path}: the folder {target.parent} does not exist")
    if is_folder:
        raise FileError(f"{path or repr(path)}: a folder; pass the name of a file to write")
    if lost is not None:
        also = "" if lost == path else f" ({lost} is or holds the same file)"
        raise FileError(f"{path}: is one of the inputs, which would be overwritten{also}; use {fix}")


def _files(given: str) -> Iterator[Path]:
    """List the files on this machine that an input names; none where it is no file, which its reader reports."""
    try:
        found = expand_paths(given)
    except AttemperError:
        return
    for path in found:
        if isinstance(path, Path):
            yield from (file for file in (path.iterdir() if path.is_dir() else [path]) if file.exists())
