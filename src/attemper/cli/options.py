"""Options of the shell: each parameter of the public functions once, as text becomes a value; and back in messages."""

from __future__ import annotations

import ast
import csv
import glob
import inspect
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Group, Parameter

from attemper.errors import InputError

READING = Group("Reading", sort_key=2)


def _names(kind: Any, tokens: Sequence[Any]) -> list[str]:
    """Read names that commas divide; one that has a comma stands in double quotes."""
    return [name for token in tokens for name in next(csv.reader([token.value], skipinitialspace=True), [])]


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _number_or_word(kind: Any, tokens: Sequence[Any]) -> float | str:
    found = _number(tokens[0].value)
    return str(tokens[0].value) if found is None else found


def _number_or_none(kind: Any, tokens: Sequence[Any]) -> float | None:
    return None if tokens[0].value == "none" else float(tokens[0].value)


def _numbers(kind: Any, tokens: Sequence[Any]) -> Any:
    """Read one number; several in the order of the classes; or numbers by name, as in mel=0.1,bcc=0.2; or a word."""
    words = _names(kind, tokens)
    if all("=" in word for word in words):
        pairs = [word.rpartition("=") for word in words]
        found = {name.strip(): _number(text) for name, _, text in pairs}
        if None in found.values():
            raise ValueError("expected NAME=NUMBER, such as mel=0.1")
        return found
    numbers = [_number(word) for word in words]
    if None in numbers:
        return words[0] if len(words) == 1 else words
    return numbers[0] if len(numbers) == 1 else numbers


def parameters(texts: Sequence[str]) -> dict[str, Any]:
    """Read parameters of a method, NAME=VALUE.

    >>> parameters(["theta=0.05", "loss=reference"])
    {'theta': 0.05, 'loss': 'reference'}
    """
    found: dict[str, Any] = {}
    for each in texts:
        name, equals, text = each.partition("=")
        if not equals:
            raise InputError(f"params: expected NAME=VALUE, such as theta=0.05, got {each!r}", "params")
        try:
            found[name.strip()] = ast.literal_eval(text)
        except (SyntaxError, ValueError):
            found[name.strip()] = text
    return found


def _text(metavar: str, help: str | None = None, kind: Any = str, **settings: Any) -> Any:
    kind = object if kind is str and "converter" in settings else kind  # which has types of its own
    return Annotated[kind, Parameter(metavar=metavar, help=help, negative="", **settings)]


def _reading(metavar: str, help: str, kind: Any = str, **settings: Any) -> Any:
    return _text(metavar, help, kind, group=READING, **settings)


# What is read the same everywhere. Its order is that of the help.
READ: dict[str, Any] = {
    "labels": _reading("NAME", "Column or array of labels; or a .npy, .txt file."),
    "columns": _reading(
        "A,B,…", "Columns of scores, or name of the array; '\"a, b\"' is one.", list[str], converter=_names, n_tokens=1
    ),
    "input": _reading("KIND", "Kind of scores: logits or probs."),
    "classes": _reading("A,B,…", "Names of the classes, in column order.", list[str], converter=_names, n_tokens=1),
    "sample_weight": _reading("NAME", "Weights of the rows."),
    "clusters": _reading("NAME", "Column of cases, such as patients; rows of a case are not independent."),
    "groups": _reading("NAME", "Groups, such as sites."),
    "ids": _reading("NAME", "Ids of the rows."),
    "zeros_as": _reading("P", "What a probability of 0 stands for.", float),
    "axis": _reading("N", "Where the classes are in arrays of images.", int),
    "ignore_index": _reading("N", "Leave out rows with this label.", int),
    "max_pixels": _reading("N", "Use at most so many pixels of an image.", int),
    "multi_label": _reading("", "Columns are labels that do not exclude each other.", bool),
}
# By the public function, so the command has no such flag.
REFUSED = {
    **{name: ["multi_label"] for name in ("compare", "monitor")},
    "sketch": ["multi_label", "groups"],
    "decide": ["multi_label", "axis", "max_pixels"],
}
FILE = Annotated[list[str], Parameter(name="FILE", help="Files, or a pattern in quotes.")]
OPTIONS: dict[str, Any] = {
    "data": FILE,
    "val": Annotated[str, Parameter(name="VAL", help="File to fit and to choose on, or a pattern in quotes.")],
    "test": Annotated[str, Parameter(name="TEST", help="File to test on; it has no part in any choice.")],
    "net": Annotated[str, Parameter(name="NET", help="File that fit or decide wrote.")],
    "calibrator": _text("NET"),
    "method": _text("NAME"),
    "noise": _text("SHARE", converter=_number_or_word, n_tokens=1),
    "n_jobs": _text("N", kind=int),
    "metrics": _text("A,B,…", kind=list[str], converter=_names, n_tokens=1),
    "methods": _text("A,B,…", kind=list[str], converter=_names, n_tokens=1),
    "by": _text("NAME"),
    "confidence_level": _text("P", kind=float),
    "guarantee_level": _text("P", converter=_number_or_none, n_tokens=1),
    "cv": _text("N", kind=int),
    "seed": _text("N", kind=int),
    "allow_shared": _text("", kind=bool),
    "max_miss": _text("P|A=P,…", converter=_numbers, n_tokens=1),
    "budget": _text("SHARE", kind=float),
    "costs": _text("A=N,…", converter=_numbers, n_tokens=1),
    "coverage": _text("P", kind=float),
    "priors": _text("A,B,…", converter=_numbers, n_tokens=1),
    "state": _text("FILE"),
    "reference": _text("FILE"),
    "alpha": _text("P", kind=float),
    "model": Annotated[str, Parameter(name="MODEL", help="ONNX model to put the calibrator behind.")],
    "tensor": _text("NAME"),
    # Of the shell alone:
    "params": _text("NAME=VALUE", "Parameter of the method; repeat for several.", list[str], n_tokens=1,
                    name=("--param", "-p")),
    "fail_if": _text("TEXT", "Exit 1 if this holds, as 'ece.low > 0.05'; repeat for several.", list[str], n_tokens=1),
    "output": _text("FILE", "File to write.", name=("--output", "-o")),
    "card": _text("FILE", "JSON about the model, for the report."),
    "json": _text("", "Print all numbers as JSON.", bool),
    "debug": _text("", "Show where an error comes from.", bool),
}  # fmt: skip
OWN = {("decide", "by"): _text("class|group", kind=Literal["class", "group"])}
POSITIONAL = ("data", "val", "test", "model")


def signature_of(verb: Callable[..., Any], own: Callable[..., Any]) -> inspect.Signature:
    """Return the parameters of a command: those of a public function, of reading, and of the shell.

    Types are those of `OPTIONS`, defaults those of the function, and help is that of its docstring.
    """
    from docstring_parser import parse

    text = (verb.__doc__ or "").replace("`", "")
    helped = {item.arg_name: " ".join((item.description or "").split()) for item in parse(text).params}
    found: dict[str, inspect.Parameter] = {}
    shell = list(inspect.signature(own).parameters.values())[1:]
    for each in [*inspect.signature(verb).parameters.values(), *shell]:
        if each.kind is each.VAR_KEYWORD or each.name in READ or each.name == "path":
            continue
        required = each.default is each.empty and each.name != "output"
        name = "net" if each.name == "calibrator" and required else each.name
        positional = name in (*POSITIONAL, "net")
        kind = OWN.get((own.__name__, name), OPTIONS[name])
        if not positional and (help := helped.get(each.name)):
            kind = Annotated[kind, Parameter(help=help)]
        default = each.default if not required or name == "output" else each.empty
        place = each.POSITIONAL_ONLY if positional else each.KEYWORD_ONLY
        found[each.name] = each.replace(kind=place, default=default, annotation=_optional(kind, default))
    if any(each.kind is each.VAR_KEYWORD for each in inspect.signature(verb).parameters.values()):
        for name in [name for name in READ if name not in REFUSED.get(own.__name__, ())]:
            default = False if name == "multi_label" else None
            found[name] = inspect.Parameter(
                name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=_optional(READ[name], default)
            )
    for name in ("json", "debug"):
        found[name] = inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=False, annotation=OPTIONS[name])
    return inspect.Signature(sorted(found.values(), key=lambda each: each.kind))


def _optional(kind: Any, default: Any) -> Any:
    return kind | None if default is None else kind


def check_output(path: str | None, suffix: str | None, inputs: Sequence[Any]) -> None:
    """Refuse, before anything is computed, to write over an input, or where nothing can be written."""
    if path is None:
        return
    target = Path(path)
    if suffix is not None and target.suffix.lower() != suffix:
        raise InputError(f"output: expected a file that ends in {suffix}, got {path}", "output")
    if not target.parent.is_dir():
        raise InputError(f"output: there is no folder {target.parent}", "output")
    files = [path for each in inputs for path in glob.glob(str(each), recursive=True)]  # noqa: PTH207 (as `expand`)
    if target.exists() and any(target.samefile(each) for each in files):
        raise InputError(f"output: {path} is an input, and stays as it is. Use another name.", "output")


ARGUMENTS = {
    "X": "FILE", "y": "--labels", "val": "VAL", "test": "TEST", "model": "MODEL", "params": "--param",
}  # fmt: skip


def as_flags(text: str, command: str, param: str | None = None) -> str:
    """Name options in a message as this command spells them: where it begins, after "use", and with … or a word.

    >>> as_flags("labels: there is no column 'input=1', but seed=…. Use columns=[…] or input='probs'.", "fit")
    "--labels: there is no column 'input=1', but --seed …. Use --columns A,B or --input probs."
    """
    known = {*READ, *OPTIONS, *ARGUMENTS}  # the others are typed as they are, after -p
    words = "|".join(sorted(known, key=len, reverse=True))

    def flag(name: str) -> str:
        if name == "calibrator" and command in ("apply", "monitor", "export"):
            return "NET"
        return ARGUMENTS.get(name) or f"--{name.replace('_', '-')}"

    def option(found: re.Match[str]) -> str:
        value = re.sub("[][\"']", "", found[2]).replace(", ", ",")
        value = "A,B" if found[2] == "[…]" else {"True": "", "False": "none"}.get(value, value)
        return f"{flag(found[1])} {value}".rstrip()

    names, ends = (words, ": ") if param not in known else (re.escape(param), ": |=")
    text = re.sub(r"(^|: )data: ", r"\1", text, count=1)  # the command has no such word
    text = re.sub(r"attemper\.\w+\(…, (\S+)\)", r"\1", text)
    text = re.sub(rf"(^|: )({names})({ends})", lambda m: m[1] + flag(m[2]) + m[3].replace("=", " "), text, count=1)
    begin, use, rest = [*re.split(r"(\b[Uu]se )", text, maxsplit=1), "", ""][:3]
    value = r"\[[^\]]*\]|'[^']*'|\"[^\"]*\"|[^\s,;:)]*[^\s,;:).]"
    name = rf"(?<![\w('\"-])({words})"
    return re.sub(rf"{name}=(…|'\w+')", option, begin) + use + re.sub(rf"{name}=({value})", option, rest)
