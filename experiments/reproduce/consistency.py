"""Does the attended loss find a temperature that is known? Labels are drawn from the network at that temperature."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.special import softmax

from attemper import AttendedTemperatureScaling, TemperatureScaling
from experiments.reproduce import networks
from experiments.reproduce.journal import Job, Row, Settings, Study
from experiments.reproduce.networks import about
from experiments.reproduce.noise import NETWORKS
from experiments.reproduce.pages import Page, gather, spread, summary, table

__all__ = ["STUDY", "consistency"]

TRUE = 1.5  # the temperature that labels are drawn at
THETAS = (0.001, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5)
LOSSES: dict[str, Any] = {"ats": "paper", "ats-code": "reference"}


def jobs(settings: Settings) -> list[Job]:
    """One for each network and draw of labels."""
    return [
        Job(f"{name} draw {i}", (name, i, settings.seed), (name,)) for name in NETWORKS for i in range(settings.repeats)
    ]


def run(name: str, repeat: int, seed: int) -> list[Row]:
    """Draw labels for all samples, so that the network at T = 1.5 is right by construction; then fit."""
    h = networks.load(name).logits.astype(np.float64)
    reached = np.cumsum(softmax(h / TRUE, axis=1), axis=1)
    rng = np.random.default_rng([seed, repeat])
    labels = (reached > rng.random((len(h), 1)) * reached[:, -1:]).argmax(axis=1)
    case = {"network": name, "repeat": repeat}
    rows = [{**case, "method": "ts", "theta": None, "temperature": TemperatureScaling().fit(h, labels).temperature_}]
    for method, loss in LOSSES.items():
        path = AttendedTemperatureScaling(theta_grid=THETAS, loss=loss).fit(h, labels).path_
        rows += [
            {**case, "method": method, "theta": theta, "temperature": t}
            for theta, t in zip(path.theta.tolist(), path.temperature.tolist())
        ]
    return rows


STUDY = Study("consistency", jobs, run)


def consistency(rows: Sequence[Row], _: Settings) -> Page:
    """Temperatures found, for each θ."""
    values = gather(rows, ("network", "method", "theta"), "temperature")
    tables = {"true": f"{TRUE:g}"}
    for method in LOSSES:
        lines = [
            [
                about(name).label,
                spread(values[name, "ts", None], 3),
                *(spread(values[name, method, theta], 3) for theta in THETAS),
            ]
            for name in NETWORKS
        ]
        tables[method.replace("-", "_")] = table(["network", "TS", *(f"θ = {theta:g}" for theta in THETAS)], lines)
    shown = {" ".join(str(part) for part in key if part is not None): summary(v) for key, v in values.items()}
    return Page(tables, rows, {"means": shown})
