"""`attemper methods`: what there is."""

from __future__ import annotations

import inspect

from rich.text import Text

from attemper.calibrators import METHODS
from attemper.cli.commands import cli
from attemper.cli.output import compact, out, print_json


@cli.command(section="First steps")
def methods(as_json: bool) -> None:
    """List the methods, with a description of each.

    \b
    attemper methods
    """  # noqa: D301 (click wants the control character)
    about = {name: (inspect.getdoc(cls) or "").partition("\n")[0] for name, cls in METHODS.items()}
    if as_json:
        described = {
            name: {
                "class": cls.__name__,
                "title": cls.title,
                "does": about[name],
                "parameters": cls.own_params(),
                "needs": "rows" if cls.sketch_tables is None else "a sketch",
                "knows_noise": cls.knows_noise,
                "keeps_arg_max": cls.keeps_arg_max,
            }
            for name, cls in METHODS.items()
        }
        print_json(described)
        return
    table = compact("method", "needs", "class in Python: what it does")
    table.columns[1].justify = table.columns[2].justify = "left"
    for name, cls in METHODS.items():
        needs = "rows" if cls.sketch_tables is None else "a sketch"
        table.add_row(name, needs, Text(f"{cls.__name__}: {about[name]}"))
    out.print(table)
