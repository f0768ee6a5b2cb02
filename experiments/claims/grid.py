"""What the grid of θ does to ATS with wrong labels."""

from __future__ import annotations

import numpy as np

from attemper.sketch import DEFAULT_THETAS
from experiments.claims.results import MARGIN, Results
from experiments.claims.wording import count, listed
from experiments.reproduce.grid import GRIDS, SHARE
from experiments.reproduce.pages import table
from experiments.reproduce.wrong_labels import KINDS

__all__ = ["HIGHER", "OURS", "by_grid", "depends_on_the_grid"]

# The grid of all other studies, and the one that ends where it does and begins higher.
OURS = next(title for title, thetas in GRIDS.items() if np.allclose(thetas[[0, -1]], DEFAULT_THETAS[[0, -1]]))
HIGHER = next(
    title
    for title, thetas in GRIDS.items()
    if np.isclose(thetas[-1], DEFAULT_THETAS[-1]) and thetas[0] > 2 * DEFAULT_THETAS[0]
)


def by_grid(results: Results) -> str:
    """Return how often ATS is better than others with each grid, and the command of the best grid."""
    grids = [title for title in GRIDS if title in results.distinct("grid", "method")]
    if not grids:
        return "The study of the grid is not here."
    cases = [(n, kind) for kind in KINDS for n in results.distinct("grid", "network", kind=kind)]

    def lower(grid: str, other: str, kind: str | None = None) -> list[bool]:
        return [
            results.above("grid", grid, other, network=n, kind=of) < -MARGIN for n, of in cases if kind in (None, of)
        ]

    lines = [
        [grid, count(lower(grid, "ts")), count(lower(grid, "none")), *(count(lower(grid, "bayes", k)) for k in KINDS)]
        for grid in grids
    ]
    head = ["grid", "TS", "uncalibrated", *(f"Bayesian, {kind}" for kind in KINDS)]
    best = max(grids, key=lambda grid: sum(lower(grid, "bayes")))
    thetas = [row["theta"] for row in results.rows["grid"] if row["method"] == best and row["kind"] in KINDS]
    least = min(thetas)
    better = [kind for kind in KINDS if 2 * sum(lower(best, "bayes", kind)) > len(lower(best, "bayes", kind))]
    at_least = count(theta == least for theta in thetas)
    return (
        f"{table(head, lines)}\n\nOf these grids, {best} is lower than the Bayesian fit most often: on more than half "
        f"of the networks for {listed([f'*{kind}*' for kind in better])} labels. θ is the least of that grid in "
        f"{at_least} fits, so `attemper fit val.npz --method ats -p theta={least:g}` is nearly the same."
    )


def depends_on_the_grid(results: Results) -> str:
    """Count the cases of wrong labels that a higher lower end of the grid changes."""
    cases = [
        {"network": n, "kind": kind}
        for n in results.networks("grid")
        for kind in results.distinct("grid", "kind", network=n)
        if kind != "none"
    ]
    lower = [results.above("grid", HIGHER, OURS, **case) < -MARGIN for case in cases]
    below = [[results.above("grid", title, "bayes", **case) < -MARGIN for case in cases] for title in (HIGHER, OURS)]
    return (
        "The results of ATS with wrong labels depend on the lower end of the grid of θ: the smallest θ gives the "
        f"highest T that ATS can choose. With {SHARE:.0%} wrong labels and {HIGHER} instead of {OURS}, its NLL is "
        f"lower (by more than {MARGIN}) in {count(lower)} cases of network and kind, and lower than that of the "
        f"Bayesian fit in {count(below[0])} instead of {count(below[1])}: [the grid of θ](results/grid.md). That "
        "range suits networks that need a T not far above 1, as these do; it does not come from the labels."
    )
