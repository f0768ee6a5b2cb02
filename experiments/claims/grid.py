"""What the grid of θ does to ATS with wrong labels."""

from __future__ import annotations

from experiments.claims.results import MARGIN, Results
from experiments.claims.wording import count, listed
from experiments.reproduce.grid import GRIDS
from experiments.reproduce.pages import table
from experiments.reproduce.wrong_labels import KINDS

__all__ = ["by_grid"]


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
        f"{at_least} fits, so `attemper fit val.npz --method ats --theta {least:g}` is nearly the same."
    )
