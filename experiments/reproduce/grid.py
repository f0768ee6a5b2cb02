"""The grid of θ decides: ATS with the paper's three intervals and with θ from 0.01 on, for wrong and for few labels."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from experiments.reproduce import networks
from experiments.reproduce.journal import Job, Row, Study
from experiments.reproduce.methods import TITLES, evaluate, fit, fit_attended
from experiments.reproduce.networks import MAIN, label
from experiments.reproduce.noise import KINDS, noisy
from experiments.reproduce.pages import gather, n_repeats, spread, table

__all__ = ["STUDY"]

GRIDS = {
    "θ from 0.0001 to 0.001": np.arange(1, 11) * 1e-4,
    "θ from 0.001 to 0.1": np.arange(1, 101) * 1e-3,
    "θ from 0.01 to 0.1": np.arange(1, 11) * 1e-2,
    "θ from 0.01 to 1": np.arange(1, 101) * 1e-2,
}
OTHERS = ("none", "ts", "bayes")
SHARE = 0.3
FEW = (10, 50)


def jobs(repeats: int) -> list[Job]:
    cases: list[tuple[str, int | None]] = [*((kind, None) for kind in KINDS), *(("none", n) for n in FEW)]
    return [(name, kind, n, i) for name in reversed(MAIN) for kind, n in cases for i in range(repeats)]


def run(name: str, kind: str, n: int | None, repeat: int, seed: int) -> list[Row]:
    """Fit ATS with each grid, and other methods, to labels of the studies of noise and of size."""
    val, test = networks.split(name, repeat, seed)
    val = noisy(name, val, kind, SHARE, repeat, seed) if n is None else val.take(np.arange(n))
    fits = {method: fit(method, val, noise=0 if kind == "none" else "unknown") for method in OTHERS}
    fits |= {title: fit_attended(val, theta_grid=thetas) for title, thetas in GRIDS.items()}
    case = {"network": name, "kind": kind, "labels": len(val.labels), "repeat": repeat}
    return [
        {**case, "method": method, **evaluate(f, test), "temperature": f.temperature, "theta": f.theta}
        for method, f in fits.items()
    ]


def files(rows: Sequence[Row]) -> dict[str, str]:
    methods = {title: title for title in GRIDS} | {m: TITLES[m] for m in OTHERS}
    nll = gather(rows, ("network", "kind", "labels", "method"), "nll")
    wrong, few = (
        [
            [kind if kind != "none" else str(n), label(name), *(spread(nll[name, kind, n, m], 3) for m in methods)]
            for name, kind, n in sorted({key[:3] for key in nll if (key[1] == "none") == clean}, key=_place)
        ]
        for clean in (False, True)
    )
    lowest = [
        [title, *(_at_lowest(rows, grid, clean) for grid in GRIDS)]
        for title, clean in (("wrong labels", False), ("few labels", True))
    ]
    text = f"""# The grid of θ decides

ATS tunes θ by the validation NLL of the temperature that it gives. With wrong or few labels that NLL is misleading, and
the tuning runs to the lower end of the grid. So the grid acts as a prior of T: its lower end sets the largest T that
ATS can choose. The paper names three intervals, to be chosen by hand: 0 to 0.001, 0 to 0.1 and 0 to 1. In its Table 2
θ is 0.01 or more for all networks except that of MNIST. All other pages use 0.001 to 0.1.

{n_repeats(rows)} repeats; mean ± standard deviation of the test NLL. The Bayesian fit gets
`noise="unknown"` if labels are wrong.

## {SHARE:.0%} of the labels replaced ([noise](noise.md))

{table(["noise", "network", *methods.values()], wrong, texts=2)}

## Few right labels ([size](size.md))

{table(["labels", "network", *methods.values()], few, texts=2)}

## How often θ is the lowest of the grid

{table(["", *GRIDS], lowest)}

A grid that reaches 1 gives plain temperature scaling: at θ = 1 the attended loss is the NLL. The grid bounds T from
above alone, so with few labels it does not help where T runs towards 0.

*`python -m experiments.reproduce grid`; every number is in [grid.csv](grid.csv).*
"""
    return {"grid.md": text}


STUDY = Study("grid", 10, jobs, run, files)


def _place(case: tuple[str, str, int]) -> tuple[int, int, int]:
    name, kind, n = case
    return KINDS.index(kind) if kind in KINDS else -1, n if kind == "none" else 0, MAIN.index(name)


def _at_lowest(rows: Sequence[Row], grid: str, clean: bool) -> str:
    """Share of fits whose θ is the lowest of the grid."""
    thetas = [row["theta"] for row in rows if row["method"] == grid and (row["kind"] == "none") == clean]
    return f"{np.mean(np.isclose(thetas, GRIDS[grid][0])):.0%}"
