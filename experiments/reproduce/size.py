"""Figure 4 and its supplement: how many validation labels are enough."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from experiments.reproduce import networks
from experiments.reproduce.figures import curves
from experiments.reproduce.journal import Job, Row, Study
from experiments.reproduce.methods import TITLES, evaluate, fit
from experiments.reproduce.networks import MAIN, MORE, label
from experiments.reproduce.noise import METHODS, MORE_REPEATS
from experiments.reproduce.pages import gather, spread, table

__all__ = ["STUDY"]

SIZES = (None, 1000, 500, 200, 100, 50, 20, 10)  # None: the whole fifth
SHOWN = (10, 50, 200)  # in the table of the page; the supplement has the first


def jobs(repeats: int) -> list[Job]:
    few = min(repeats, MORE_REPEATS)
    return [
        (name, n, i)
        for name in (*MORE, *reversed(MAIN))
        for n in SIZES
        for i in range(repeats if name in MAIN else few)
        if n is None or n < len(networks.load(name).samples.labels) // 5
    ]


def run(name: str, n: int | None, repeat: int, seed: int) -> list[Row]:
    """Fit to the first n samples of the validation part, which is in random order."""
    val, test = networks.split(name, repeat, seed)
    some = val.take(np.arange(n or len(val.labels)))
    rows = []
    for method in METHODS if name in MAIN else METHODS[:-1]:
        fitted = fit(method, some)
        case = {"network": name, "labels": len(some.labels), "repeat": repeat, "method": method}
        rows.append({**case, **evaluate(fitted, test), "temperature": fitted.temperature})
    return rows


def files(rows: Sequence[Row]) -> dict[str, Any]:
    nll = gather(rows, ("network", "labels", "method"), "nll")
    main, more = (_table(nll, *of) for of in ((MAIN, SHOWN, METHODS), (MORE, SHOWN[:1], METHODS[:-1])))
    n, few = (len(nll[name, SHOWN[0], "ts"]) for name in (MAIN[0], MORE[0]))
    text = f"""# Size: few validation labels (Figure 4 and supplement)

Random subsets of the validation part, with right labels; each of {n} repeats has its own split. With few labels TS may
have no finite optimum, if no prediction is wrong: T is then the end of its range, 0.05 to 20, which ATS has too. The
paper shows curves without numbers, for four networks that it does not name.

![Test NLL against the number of validation labels, four networks](size.png)

*Bars show one standard deviation. They are shifted sideways so that they do not overlap, and the axis may cut
them. Both axes are logarithmic.*

## Test NLL: mean ± standard deviation over {n} repeats

{main}

## Supplement: {len(MORE)} more networks, {few} repeats

![Test NLL against the number of validation labels, more networks](size-supplement.png)

Test NLL with {SHOWN[0]} labels ([Table 1](table1.md) explains the asterisk):

{more}

*`python -m experiments.reproduce size`; every number, also ECE, is in [size.csv](size.csv).*
"""
    figures = {
        file: curves(
            nll, [(name,) for name in names], [label(name) for name in names], 4, "validation labels", log_x=True
        )
        for file, names in (("size.png", MAIN), ("size-supplement.png", MORE))
    }
    return {"size.md": text, **figures}


STUDY = Study("size", 10, jobs, run, files)


def _table(nll: dict[tuple[Any, ...], Any], names: Sequence[str], sizes: Sequence[int], methods: Sequence[str]) -> str:
    lines = [[label(name), str(n), *(spread(nll[name, n, m], 4) for m in methods)] for name in names for n in sizes]
    return table(["network", "labels", *(TITLES[m] for m in methods)], lines)
