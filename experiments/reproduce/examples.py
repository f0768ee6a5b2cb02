"""Figures 1 and 6: single skin lesions, and the confidence in their prediction before and after calibration."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from experiments.reproduce import networks, paper
from experiments.reproduce.figures import LINES, panels
from experiments.reproduce.journal import Job, Row, Study
from experiments.reproduce.methods import TITLES, fit
from experiments.reproduce.networks import SKIN, label
from experiments.reproduce.pages import table

__all__ = ["STUDY", "reachable"]

METHODS = ("none", "ts", "ats", "bayes")
RIGHT, NEAR, HIGH = "right, highest", "wrong, near 0.90", "wrong, highest"
SHOWN = 3  # examples of each group, each with another prediction
LIKE_THE_PAPER = 0.9  # confidence of its wrong predictions
LOW = 0.25  # left end of the axis of confidence
HEADINGS = {"none": (0.77, "before"), "ts": (0.88, "TS"), "ats": (0.99, "ATS"), "calibrated": (0.99, "after")}
MARKS: dict[str, dict[str, Any]] = {
    "none": {"marker": "|", "color": "0.15", "markersize": 8.0, "markeredgewidth": 1.3},
    "calibrated": {"marker": "D", "color": "white", "markeredgecolor": "0.15", "markersize": 3.6},
    "ts": {"marker": "s", "color": LINES["ts"]["color"], "markersize": 5.6},
    "ats": {
        "marker": "^",
        "color": LINES["ats"]["color"],
        "markersize": 4.6,
        "markeredgecolor": "white",
        "markeredgewidth": 0.3,
    },
}


def jobs(repeats: int) -> list[Job]:
    return [(name,) for name in SKIN]


def run(name: str, seed: int) -> list[Row]:
    """Fit on split 0; choose examples of its test part, and average over all of it."""
    val, test = networks.split(name, 0, seed)
    network, rows_of_test = networks.load(name), networks.split_rows(name, 0, seed)[1]
    images, classes = network.extra["image_id"][rows_of_test], network.extra["class_names"]
    log_p = {m: fit(m, val).map.log_apply(test.logits.astype(np.float64)) for m in METHODS}
    confidence = {m: np.exp(lp.max(axis=1)) for m, lp in log_p.items()}
    predicted = log_p["none"].argmax(axis=1)
    right = predicted == test.labels
    orders = {
        RIGHT: np.where(right, -confidence["none"], np.inf),
        NEAR: np.where(right, np.inf, np.abs(confidence["none"] - LIKE_THE_PAPER)),
        HIGH: np.where(right, np.inf, -confidence["none"]),
    }
    rows: list[Row] = []
    for group, order in orders.items():
        chosen: dict[int, int] = {}
        for i in np.lexsort((images, order)):
            if len(chosen) < SHOWN:
                chosen.setdefault(int(predicted[i]), int(i))
        for k, i in chosen.items():
            row = {"what": "example", "group": group, "image": str(images[i]), "label": str(classes[test.labels[i]])}
            rows.append(row | {"predicted": str(classes[k])} | {m: float(c[i]) for m, c in confidence.items()})
    for group, of in (("right", right), ("wrong", ~right)):
        means = {m: float(c[of].mean()) for m, c in confidence.items()}
        rows.append({"what": "mean", "group": group, **means, "samples": int(of.sum())})
    return [{"network": name, **row} for row in rows]


def files(rows: Sequence[Row]) -> dict[str, Any]:
    gaps = [["the paper's six of Figure 6", *(_number(v, "+.2f") for v in _papers_gaps())]]
    for name in SKIN:
        for title, groups in (("six of ours", (RIGHT, NEAR)), ("all of the test part", ("right", "wrong"))):
            sides = [[r for r in rows if (r["network"], r["group"]) == (name, group)] for group in groups]
            right, wrong = ([np.mean([r[m] for r in side]) for m in METHODS] for side in sides)
            gaps.append([f"{label(name)}: {title}", *(_number(a - b, "+.2f") for a, b in zip(right, wrong))])
    possible = []
    for e in paper.EXAMPLES:
        if e.figure == 6:
            low, high = allowed(e.confidence["ats"])
            printed = (f"{e.confidence[m]:.2f}" for m in ("ats", "ts"))
            possible.append([_named(e.label, e.predicted), next(printed), f"{low:.2f} to {high:.2f}", next(printed)])
    text = f"""# Figures 1 and 6: single skin lesions

The paper shows twelve lesions with the confidence in their prediction before and after calibration. Its message: the
confidence stays high where the prediction is right and falls where it is wrong (Figure 1), and ATS widens this gap more
than TS (Figure 6). But one temperature lowers all confidences together: how far that of one image falls depends on its
logits alone. So our networks also have the group that the paper leaves out: wrong predictions with the highest
confidence.

![Confidences of the paper's examples and of ours](examples.png)

*Each line is one lesion: its label, an arrow to the prediction if that is wrong, and the confidence before and after.
Figure 1 of the paper does not name its method. Where TS and ATS coincide, the triangle lies in the square. Ours: the
test part of split 0, three examples of each group, each with another prediction ([examples.csv](examples.csv) has the
names of the images in HAM10000).*

## Mean confidence of right predictions less that of wrong ones

{table(["", *(TITLES[m] for m in METHODS)], gaps)}

Six chosen examples show what was chosen; the whole test part shows no difference between TS and ATS.

## Are the paper's numbers possible?

A confidence p at temperature T₁ limits what it can be at T₂. With a = T₁ / T₂ < 1 and seven classes it lies between
pᵃ / (pᵃ + 6 ((1 − p) / 6)ᵃ), if all other classes are alike, and pᵃ / (pᵃ + (1 − p)ᵃ), if one other class has all the
rest. Table 4 of the paper has T = {paper.T_ATS:g} for ATS and {paper.T_TS:g} for TS. From the printed confidence of
ATS, rounded or cut off, these limits for TS follow:

{table(["Figure 6: label → prediction", "ATS, printed", "TS, possible", "TS, printed"], possible)}

All six printed confidences of TS are below what the temperatures of Table 4 allow. The figure and the table do not
describe the same two maps, so the wider gap of ATS in Figure 6 is no evidence.

*`python -m experiments.reproduce examples`; every number is in [examples.csv](examples.csv).*
"""
    return {"examples.md": text, "examples.png": _drawn(rows)}


STUDY = Study("examples", 1, jobs, run, files)


def reachable(p: float, t_from: float, t_to: float, n_classes: int) -> tuple[float, float]:
    """Bounds on the confidence at one temperature, given what it is at another.

    With q_j the probabilities of the other classes at ``t_from`` it is p^a / (p^a + Σ q_j^a), a = t_from / t_to. The
    sum has its extremes where all q_j are equal, and where one of them is all of 1 − p.
    """
    a = t_from / t_to
    one, alike = (p**a / (p**a + n * ((1 - p) / n) ** a) for n in (1, n_classes - 1))
    return min(one, alike), max(one, alike)


def allowed(ats: float) -> tuple[float, float]:
    """Bounds on the confidence of TS, by a confidence of ATS that was rounded or cut off and the T of Table 4."""
    low, high = (reachable(p, paper.T_ATS, paper.T_TS, len(paper.LESIONS)) for p in (ats - 0.005, ats + 0.01))
    return low[0], high[1]


def _papers_gaps() -> list[float | None]:
    of = [e for e in paper.EXAMPLES if e.figure == 6]
    right, wrong = ([e for e in of if (e.label == e.predicted) == side] for side in (True, False))
    gaps: list[float | None] = [
        float(np.mean([e.confidence[m] for e in right]) - np.mean([e.confidence[m] for e in wrong]))
        for m in ("none", "ts", "ats")
    ]
    return [*gaps, None]


def _named(true: str, predicted: str) -> str:
    names = paper.LESIONS
    return names[true] if true == predicted else f"{names[true]} → {names[predicted]}"


def _number(value: float | None, form: str) -> str:
    return "–" if value is None else f"{value:{form}}"


def _drawn(rows: Sequence[Row]) -> Figure:
    """Draw the paper's examples, and ours of each network with the means of its test part."""
    papers: dict[str, list[tuple[str, dict[str, float]]]] = {}
    for e in paper.EXAMPLES:
        group = f"Figure {e.figure}: {'right' if e.label == e.predicted else 'wrong'}"
        papers.setdefault(group, []).append((_named(e.label, e.predicted), e.confidence))
    columns = {"the paper": papers}
    for name in SKIN:
        ours: dict[str, list[tuple[str, dict[str, float]]]] = {}
        for row in (row for row in rows if row["network"] == name):
            is_mean = row["what"] == "mean"
            line = f"{row['samples']} {row['group']}" if is_mean else _named(row["label"], row["predicted"])
            group = "test part, mean" if is_mean else row["group"]
            ours.setdefault(group, []).append((line, {m: row[m] for m in ("none", "ts", "ats")}))
        columns["ours, lesions apart" if "lesionsplit" in name else "ours, images split at random"] = ours
    n_lines = max(sum(len(of) + 1 for of in groups.values()) for groups in columns.values())
    figure, axes = panels(3, 3, 0.28 * n_lines + 0.2)
    for ax, (title, groups) in zip(axes, columns.items()):
        ax.set(xlim=(LOW, 1.02), ylim=(n_lines - 0.3, -0.45), yticks=[], xticks=(0.4, 0.6, 0.8, 1.0))
        ax.spines["left"].set_visible(False)
        ax.grid(visible=False)
        ax.set_xlabel("confidence", fontsize=8)
        ax.set_title(title, fontsize=8)
        y = 0
        for group, lines in groups.items():
            ax.text(LOW, y, group, fontsize=7, fontweight="bold", va="center")
            for method in lines[0][1]:
                x, heading = HEADINGS[method]
                ax.text(x, y, heading, fontsize=6, ha="right", va="center")
            for i, (line, confidence) in enumerate(lines, 1):
                _example(ax, line, confidence, y + i)
            y += len(lines) + 1
    names = TITLES | {"calibrated": "calibrated, method not named"}
    handles = [Line2D([], [], linestyle="", label=names[m], **style) for m, style in MARKS.items()]
    figure.legend(handles=handles, loc="outside lower center", ncols=len(handles), fontsize=7, frameon=False)
    return figure


def _example(ax: Axes, line: str, confidence: dict[str, float], y: float) -> None:
    """Write the name and the numbers, and draw the marks below them."""
    ax.text(LOW, y - 0.3, line, fontsize=6.5, va="center")
    ends = [min(confidence.values()), max(confidence.values())]
    ax.plot(ends, [y + 0.12] * 2, color="0.6", linewidth=0.7)
    for method, value in confidence.items():
        ax.text(HEADINGS[method][0], y - 0.3, f"{value:.2f}", fontsize=6.5, ha="right", va="center")
        ax.plot([value], [y + 0.12], linestyle="", zorder=3, **MARKS[method])
