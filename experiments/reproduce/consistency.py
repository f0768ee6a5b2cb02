"""Does the attended loss find a temperature that is known? Labels are drawn from the network at that temperature."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.special import softmax

from experiments.reproduce import networks
from experiments.reproduce.journal import Job, Row, Study
from experiments.reproduce.methods import TITLES, fit, theta_path
from experiments.reproduce.networks import MAIN, Samples, label
from experiments.reproduce.pages import gather, n_repeats, spread, table

__all__ = ["STUDY"]

TRUE = 1.5  # labels are drawn at this temperature
THETAS = (0.001, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5)
LOSSES: dict[str, Any] = {"ats": "paper", "ats-code": "reference"}


def jobs(repeats: int) -> list[Job]:
    return [(name, i) for name in reversed(MAIN) for i in range(repeats)]


def run(name: str, repeat: int, seed: int) -> list[Row]:
    """Draw labels for all samples, so that T = 1.5 is right by construction; then fit."""
    h = networks.load(name).samples.logits.astype(np.float64)
    reached = np.cumsum(softmax(h / TRUE, axis=1), axis=1)
    rng = np.random.default_rng([seed, repeat])
    labels = (reached > rng.random((len(h), 1)) * reached[:, -1:]).argmax(axis=1)
    case = {"network": name, "repeat": repeat}
    rows = [{**case, "method": "ts", "theta": None, "temperature": fit("ts", Samples(h, labels)).temperature}]
    for method, loss in LOSSES.items():
        path = theta_path(Samples(h, labels), theta_grid=THETAS, loss=loss)
        rows += [
            {**case, "method": method, "theta": theta, "temperature": t}
            for theta, t in zip(path.theta.tolist(), path.temperature.tolist())
        ]
    return rows


def files(rows: Sequence[Row]) -> dict[str, str]:
    values = gather(rows, ("network", "method", "theta"), "temperature")
    tables = [
        f"## {TITLES[method]}, for a given θ\n\n"
        + table(
            ["network", "TS", *(f"θ = {theta:g}" for theta in THETAS)],
            [
                [
                    label(name),
                    spread(values[name, "ts", None], 3),
                    *(spread(values[name, method, t], 3) for t in THETAS),
                ]
                for name in MAIN
            ],
        )
        for method in LOSSES
    ]
    text = f"""# Consistency: does the attended loss find a temperature that is known?

According to the paper, minimising its loss (Eq. 8) makes S(T) approach the true conditional probabilities. Here these
are known: the labels of all test samples are drawn from the network's own probabilities at T = {TRUE:g}. A loss that
measures calibration must find T = {TRUE:g}, up to chance. The tables show the T with the least loss: mean ± standard
deviation over {n_repeats(rows)} draws of labels.

{tables[0]}

{tables[1]}

TS finds it. With the attended loss T falls as θ grows, and passes the true T at another θ for each network. The tuning
of θ by the validation NLL, which is the loss of TS, brings T near the true one. For a given θ, T hardly depends on the
labels; [the grid](grid.md) of θ bounds it.

*`python -m experiments.reproduce consistency`; every number is in [consistency.csv](consistency.csv).*
"""
    return {"consistency.md": text}


STUDY = Study("consistency", 10, jobs, run, files)
