"""Options of a project from a file: `attemper.toml`, or the table `tool.attemper` of `pyproject.toml`.

Keys are the options as on the command line, without the dashes; tables with the names of commands hold options of one
command. The command line wins. Paths are relative to the file.
"""

from __future__ import annotations

import difflib
import os
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from attemper.cli.options import MethodList, Option
from attemper.cli.paths import FilePath, InputPath
from attemper.cli.verbosity import VERBOSITY
from attemper.errors import FileError, InputError

NAME, PYPROJECT = "attemper.toml", "pyproject.toml"
CONFIG = "attemper.config"  # where the context keeps the file that was asked for; False: none

# Options that make sense for one run alone.
ONE_RUN = ("config", "no-config", "debug", "help", "json")


def config_options() -> list[click.Parameter]:
    """Return --config and --no-config, which stand before or after the command."""
    return [
        Option(
            ["--config"],
            metavar="FILE",
            type=FilePath(),
            is_eager=True,
            expose_value=False,
            callback=_configure,
            group="General",
            help=f"Read options from this file [default: {NAME}, or tool.attemper of {PYPROJECT}].",
        ),
        Option(
            ["--no-config"],
            is_flag=True,
            is_eager=True,
            expose_value=False,
            callback=_leave_out,
            group="General",
            help="Read no options from a file.",
        ),
    ]


def _leave_out(ctx: click.Context, _: click.Parameter, given: bool) -> None:
    if given:
        if ctx.meta.get(CONFIG):
            raise InputError("--config and --no-config contradict each other; leave one out")
        ctx.meta[CONFIG] = False
        ctx.default_map = None


def _configure(ctx: click.Context, _: click.Parameter, given: str | None) -> None:
    """Keep which file was asked for; in a command, make its options the defaults."""
    if given is not None:
        if ctx.meta.get(CONFIG) is False:
            raise InputError("--config and --no-config contradict each other; leave one out")
        ctx.meta[CONFIG] = given
    if ctx.parent is None or ctx.resilient_parsing or ctx.meta.get(CONFIG) is False:
        return
    asked = ctx.meta.get(CONFIG)
    path = find_config(Path.cwd()) if asked is None else Path(asked)
    if path is not None:
        path = Path(os.path.relpath(path)) if asked is None else path
        ctx.meta[CONFIG] = str(path)
        assert isinstance(ctx.parent.command, click.Group)
        ctx.default_map = defaults_of(ctx, path, read_config(path), ctx.parent.command.commands)


def find_config(folder: Path) -> Path | None:
    """Look in a folder, and in those above it up to the root of its repository."""
    folders = [folder, *folder.parents]
    roots = [i for i, each in enumerate(folders) if (each / ".git").exists()]
    for each in folders[: roots[0] + 1 if roots else 1]:
        if (each / NAME).is_file():
            return each / NAME
        if (each / PYPROJECT).is_file() and _table(each / PYPROJECT) is not None:
            return each / PYPROJECT
    return None


def read_config(path: Path) -> dict[str, Any]:
    """Read a file of options."""
    found = _table(path)
    if found is None:
        raise FileError(f"{path}: there is no table [tool.attemper] in it; add one, or use an {NAME}")
    return found


def _table(path: Path) -> dict[str, Any] | None:
    try:
        with path.open("rb") as stream:
            content = tomllib.load(stream)
    except OSError as error:
        raise FileError(f"{path}: cannot be read: {error.strerror or error}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise FileError(f"{path}: not valid TOML: {error}") from None
    found = content.get("tool", {}).get("attemper") if path.name == PYPROJECT else content
    if not isinstance(found, dict | None):
        raise FileError(f"{path}: tool.attemper: expected a table, got {found!r}")
    return found


def defaults_of(
    ctx: click.Context, path: Path, content: Mapping[str, Any], commands: Mapping[str, click.Command]
) -> dict[str, Any]:
    """Check the whole file, and return what it sets for the command of this context."""
    by_command = {name: dict(_keys(command)) for name, command in commands.items()}
    options = {key for keys in by_command.values() for key in keys}
    own: Mapping[str, Any] = {}
    for key, value in content.items():
        if key in by_command and isinstance(value, dict):
            for option in value:
                _check_known(path, f"[{key}] {option}", option, by_command[key])
            own = value if key == ctx.info_name else own
        elif key in by_command and key not in options:
            raise FileError(f"{path}: {key} = {value!r}: expected a table, [{key}], with options of that command")
        elif key == "tool" and isinstance(value, dict) and "attemper" in value:
            raise FileError(f"{path}: [tool.attemper] is for {PYPROJECT}; here write the options without that line")
        else:
            _check_known(path, key, key, {*by_command, *options})
            if isinstance(value, dict):
                raise FileError(f"{path}: [{key}]: tables have the names of commands; write {key} = … for the option")
    known = by_command[ctx.info_name or ""]
    common = {key: value for key, value in content.items() if not isinstance(value, dict) and key in known}
    return {
        known[key].name or "": _value(ctx, path, key, value, known[key]) for key, value in {**common, **own}.items()
    }


def _keys(command: click.Command) -> Iterator[tuple[str, click.Parameter]]:
    """List the options of a command as keys of the file."""
    for parameter in command.params:
        for name in parameter.opts if isinstance(parameter, click.Option) else ():
            if name.startswith("--") and name.removeprefix("--") not in ONE_RUN:
                yield name.removeprefix("--"), parameter


def _check_known(path: Path, shown: str, key: str, known: Iterable[str]) -> None:
    if key in known:
        return
    if key in ONE_RUN:
        raise FileError(f"{path}: {shown}: is for one run alone; use --{key} on the command line")
    near = difflib.get_close_matches(key, known, 1, cutoff=0.5)
    hint = f"; did you mean {near[0]!r}?" if near else "; keys are the options of `attemper COMMAND --help`"
    raise FileError(f"{path}: {shown}: there is no such option{hint}")


def _value(ctx: click.Context, path: Path, key: str, value: Any, parameter: click.Parameter) -> Any:
    """Return a value as the command line would have it: lists joined, paths relative to the file, types checked."""
    assert isinstance(parameter, click.Option)
    if isinstance(value, list) and not (parameter.multiple or parameter.nargs > 1):
        if not all(isinstance(part, str | int) and "," not in str(part) for part in value):
            raise FileError(f"{path}: {key} = {value!r}: expected a list of names or numbers without commas")
        value = ",".join(map(str, value)) + ("," if len(value) == 1 and not _is_list(parameter) else "")
    if parameter.multiple and not isinstance(value, list):
        value = [value]
    if isinstance(parameter.type, FilePath):
        value = (
            [_beside(path, part, parameter) for part in value]
            if parameter.multiple
            else _beside(path, value, parameter)
        )
    if parameter.is_flag and not isinstance(value, bool):
        raise FileError(f"{path}: {key} = {value!r}: expected true or false")
    _check_numbers(path, key, value, parameter)
    try:
        parameter.type_cast_value(ctx, value)
    except click.ClickException as error:
        raise FileError(f"{path}: {key} = {value!r}: {error.message}") from None
    return value


def _check_numbers(path: Path, key: str, value: Any, parameter: click.Option) -> None:
    """Refuse true and 1.5 for a whole number, which click would make 1."""
    if (
        parameter.count
        or parameter.is_flag
        or not isinstance(parameter.type, click.types.IntParamType | click.types.FloatParamType)
    ):
        return
    whole = isinstance(parameter.type, click.types.IntParamType)
    for part in value if isinstance(value, list) else [value]:
        if isinstance(part, bool) or (whole and isinstance(part, float)):
            raise FileError(f"{path}: {key} = {value!r}: expected a {'whole ' if whole else ''}number")


def _is_list(parameter: click.Parameter) -> bool:
    return isinstance(parameter.type, MethodList) or parameter.name == "columns"


def _beside(path: Path, value: Any, parameter: click.Option) -> Any:
    """Make a path relative to the file; what may be a name instead (NAME|FILE) only if there is such a file."""
    if not isinstance(value, str) or "://" in value or Path(value).is_absolute():
        return value
    found = os.path.relpath(path.absolute().parent / value)
    may_be_name = isinstance(parameter.type, InputPath) and "|" in (parameter.metavar or "")
    return value if may_be_name and not Path(found).exists() else found


def taken_from_config(ctx: click.Context) -> list[str]:
    """Return what --verbose prints: the file, and each option that it set."""
    path = ctx.meta.get(CONFIG)
    if not path:
        return []
    found = {parameter.name or "": key for key, parameter in reversed(list(_keys(ctx.command)))}
    taken = [
        f"  {key} = {ctx.params.get(name, ctx.meta.get(VERBOSITY))}"
        for name, key in reversed(found.items())
        if ctx.get_parameter_source(name) is ParameterSource.DEFAULT_MAP
    ]
    return [f"options from {path}:" if taken else f"no option of this command is in {path}", *taken]
