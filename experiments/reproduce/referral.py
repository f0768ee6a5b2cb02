"""Figure 5: referral curves of the skin-lesion networks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from attemper.metrics import referral_area, referral_curve
from experiments.reproduce import networks
from experiments.reproduce.figures import LINES, panels
from experiments.reproduce.journal import Job, Row, Study
from experiments.reproduce.methods import TITLES, fit
from experiments.reproduce.networks import SKIN, label
from experiments.reproduce.pages import gather, spread, table

__all__ = ["STUDY"]

METHODS = ("none", "ts", "ats", "bayes", "structured")
DRAWN = ("none", "ts")  # in print the others coincide with TS
MEASURES = ("area_paper", "area", "confidence_right", "confidence_wrong", "gap")


def jobs(repeats: int) -> list[Job]:
    return [(name, i) for name in SKIN for i in range(repeats)]


def run(name: str, repeat: int, seed: int) -> list[Row]:
    """Areas and confidences of each method on one split, and the curves of split 0."""
    val, test = networks.split(name, repeat, seed)
    rows: list[Row] = []
    for method in METHODS:
        log_p = fit(method, val).map.log_apply(test.logits.astype(np.float64))
        confidence, right = np.exp(log_p.max(axis=1)), log_p.argmax(axis=1) == test.labels
        case = {"network": name, "repeat": repeat, "method": method}
        means = confidence[right].mean(), confidence[~right].mean()
        areas = (referral_area(test.labels, log_p, input="logits", thresholds=t) for t in ("paper", None))
        rows.append(case | dict(zip(MEASURES, (float(v) for v in (*areas, *means, means[0] - means[1])))))
        if repeat == 0 and method in DRAWN:
            many = np.unique([0.0, *np.quantile(confidence, np.linspace(0, 1, 101)), 1.0])
            for points, thresholds in (("21 thresholds", "paper"), ("all thresholds", many)):
                curve = referral_curve(test.labels, log_p, input="logits", thresholds=thresholds)
                decided, referred = curve.correct_decided.tolist(), curve.errors_referred.tolist()
                rows += [
                    case | {"curve": points, "correct_decided": d, "errors_referred": r}
                    for d, r in zip(decided, referred)
                ]
    return rows


def files(rows: Sequence[Row]) -> dict[str, Any]:
    head = ["method", "area, 21 thresholds", "gain", "area, all thresholds", "gain", "confidence when right",
            "confidence when wrong", "gap"]  # fmt: skip
    parts = []
    for name, title in SKIN.items():
        values = {key: gather((row for row in rows if row["network"] == name), ("method",), key) for key in MEASURES}
        lines = []
        for m in METHODS:
            line = [TITLES[m]]
            for key in MEASURES[:2]:
                gain = values[key][m,] - values[key]["none",]
                line += [spread(values[key][m,], 4), "–" if m == "none" else spread(gain, 4, "+")]
            lines.append(line + [spread(values[key][m,], 4) for key in MEASURES[2:]])
        n = len(values["area"]["none",])
        parts.append(
            f"## {title[0].upper()}{title[1:]}: mean ± standard deviation over {n} splits\n\n{table(head, lines)}"
        )
    text = """# Referral: which cases see a specialist (Figure 5)

The network decides a case if its confidence is above a threshold; otherwise the case is referred to a specialist. The
paper draws the share of right predictions that are decided against the share of wrong predictions that are referred,
for 21 thresholds (0, 0.05, … 1), and reports the area below. An over-confident network has most of its confidences
above 0.95, so that this coarse curve cuts its corner. Over all thresholds only the order of the cases counts, which a
temperature hardly changes.

![Referral curves](referral.png)

*Split 0. With markers: the paper's 21 thresholds. Thin: all thresholds. ATS and the Bayesian fit coincide with TS.*

A gain is over the uncalibrated network on the same split. The paper prints its areas in the picture only, so ours
cannot be compared with them.

{}

*`python -m experiments.reproduce referral`; every number is in [referral.csv](referral.csv).*
"""
    return {"referral.md": text.format("\n\n".join(parts)), "referral.png": _drawn(rows)}


STUDY = Study("referral", 20, jobs, run, files)


def _drawn(rows: Sequence[Row]) -> Figure:
    figure, axes = panels(2, 2, 3.25)
    for ax, name in zip(axes, SKIN):
        for points, key in (("21 thresholds", "area_paper"), ("all thresholds", "area")):
            for method in DRAWN:
                of = [row for row in rows if (row["network"], row["repeat"], row["method"]) == (name, 0, method)]
                area = next(row[key] for row in of if row.get(key) is not None)
                drawn = [row for row in of if row.get("curve") == points]
                x, y = ([100 * row[column] for row in drawn] for column in ("correct_decided", "errors_referred"))
                style = {**LINES[method], "markersize": 4, "linewidth": 1.4, "marker": LINES[method]["marker"] or "x"}
                if points == "all thresholds":
                    style = {"color": "black", "linewidth": 0.7, "linestyle": ":" if method == "none" else "-"}
                ax.plot(x, y, label=f"{points}, {TITLES[method]}: {area:.3f}", clip_on=False, **style)
        ax.set(xlim=(0, 100), ylim=(0, 100), aspect="equal")
        ax.set_title(label(name), fontsize=8)
        ax.set_xlabel("right predictions that are decided, %", fontsize=8)
        ax.legend(title="area below the curve", loc="lower left", fontsize=6.5, title_fontsize=6.5, frameon=False)
    axes[0].set_ylabel("wrong predictions that are referred, %", fontsize=8)
    return figure
