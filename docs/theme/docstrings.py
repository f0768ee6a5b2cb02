"""Docstrings as Markdown: formulas are drawn, examples are code, and the fields of a result are listed.

Docstrings are written for people who read the source. What they hold beside numpydoc's sections is brought to what
the site understands: ``:math:`` becomes MathML, which browsers draw by themselves; ``>>>`` outside of a section of
examples gets a fence; the comments beside the fields of a dataclass or a named tuple become its attributes; and
``name : words that are no type`` becomes a description.

Signatures that decorators make (metrics, calibrators) are asked of Python: the source does not show them.
"""

from __future__ import annotations

import importlib
import inspect
import re
from operator import attrgetter
from typing import Any

import griffe
from latex2mathml.converter import convert

FORMULA = re.compile(r"^\.\. math::[ \n]*((?:.+\n?)(?:^[ ]+.+\n?)*)", flags=re.M)
IN_LINE = re.compile(r":math:`([^`]+)`")
EXAMPLE = re.compile(r"^>>> .*(?:\n(?!\s*$).*)*", flags=re.M)
SECTION = re.compile(r"^Examples\n-+\n", flags=re.M)
WORDS = re.compile(r"^(\w[\w, ]*) : ([^\n]{36,})\n(?! )", flags=re.M)  # longer than the name of a type
# Decorators of attemper that change a signature in the reference. Others would import torch for nothing.
SIGNING = ("attemper.metrics.", "attemper.calibrators.", "attemper._checks.")
NOTHING = re.compile(r'–\s*<div class="doc-md-description">\s*</div>')


class Docstrings(griffe.Extension):
    """Rewrite docstrings before they are parsed."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Rewrite the docstring of one object."""
        if obj.docstring is None:
            return
        if isinstance(obj, griffe.Class | griffe.Function) and any(_makes_signatures(d) for d in obj.decorators):
            _sign(obj)
        text, *examples = SECTION.split(obj.docstring.value, maxsplit=1)
        text = FORMULA.sub(lambda found: f"<div>{_drawn(found[1], 'block')}</div>\n", text)
        text = IN_LINE.sub(lambda found: _drawn(found[1], "inline"), text)
        text = EXAMPLE.sub(lambda found: f"```pycon\n{found[0]}\n```", text)
        text = WORDS.sub(r"\1\n    \2\n", text)
        if isinstance(obj, griffe.Class) and not re.search(r"^(Attributes|Parameters)\n---", text, flags=re.M):
            text = text.rstrip() + "\n\n" + _fields(obj)
        obj.docstring.value = "Examples\n--------\n".join([text, *examples])


def on_page_content(html: str, **_: Any) -> str:
    """Take away the dash before a description that is empty."""
    return NOTHING.sub("", html)


def _makes_signatures(decorator: griffe.Decorator) -> bool:
    """Return whether a decorator is one of attemper's own that change a signature."""
    return decorator.callable_path.startswith(SIGNING)


def _sign(obj: griffe.Class | griffe.Function) -> None:
    """Give an object the parameters that it has when it is called."""
    path = obj.path.removeprefix(f"{obj.module.path}.")
    signature = inspect.signature(attrgetter(path)(importlib.import_module(obj.module.path)))
    source = {p.name: p.default for p in obj.parameters}
    made = [
        griffe.Parameter(
            parameter.name,
            kind=griffe.ParameterKind(parameter.kind.description),
            annotation=None if parameter.annotation is parameter.empty else str(parameter.annotation),
            default=None if parameter.default is parameter.empty else _default(parameter, source),
        )
        for parameter in signature.parameters.values()
    ]
    if isinstance(obj, griffe.Function):
        obj.parameters = griffe.Parameters(*made)
    else:
        self = griffe.Parameter("self", kind=griffe.ParameterKind.positional_or_keyword)
        obj.set_member("__init__", griffe.Function("__init__", parameters=griffe.Parameters(self, *made)))


def _default(parameter: inspect.Parameter, source: dict[str, Any]) -> str:
    """Return a default as code; a function is shown as in the source, since its address differs from run to run."""
    shown = repr(parameter.default)
    return str(source.get(parameter.name) or "...") if shown.startswith("<") else shown


def _drawn(formula: str, display: str) -> str:
    return convert(" ".join(formula.split()), display=display)


def _fields(result: griffe.Class) -> str:
    """Return a section with the fields of a dataclass or a named tuple; empty for other classes."""
    if not ("dataclass" in result.labels or any("NamedTuple" in str(base) for base in result.bases)):
        return ""
    fields = [
        field
        for name, field in result.members.items()
        if isinstance(field, griffe.Attribute) and field.annotation is not None and not name.startswith("_")
        if "property" not in field.labels
    ]
    if not any(_comment(field) for field in fields):
        return ""  # the signature tells as much
    listed = [f"{field.name} : {field.annotation}\n    {_comment(field)}" for field in fields]
    return "\n".join(["Attributes", "----------", *listed, "", ""])


def _comment(field: griffe.Attribute) -> str:
    """Return what the comment beside a field says."""
    _, _, comment = field.source.partition("  # ")
    return comment.strip()
