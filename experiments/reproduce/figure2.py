"""Figure 2: which samples of a three-class problem the subset M_k of each class takes (Eq. 7)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from scipy.special import softmax
from sklearn.linear_model import LogisticRegression

from experiments.reproduce.figures import BLUE, panels
from experiments.reproduce.journal import Job, Row, Study
from experiments.reproduce.pages import Floats, table

__all__ = ["STUDY"]

CENTRES = np.array([[-1.5, -0.9], [1.5, -0.9], [0.0, 1.6]])  # of the classes, each with a standard deviation of 1
TRAINING, SHOWN = 400, 50  # samples of each class
THETA = 0.1  # larger than the paper's 0.01 to 0.05, so that samples near a boundary can be counted by eye
CLASSES = (1, 2, 3)
MARKERS = {1: "o", 2: "s", 3: "^"}


def jobs(repeats: int) -> list[Job]:
    return [("plane",)]


def run(_: str, seed: int) -> list[Row]:
    """Train a linear softmax classifier in the plane; return it, and the subsets of other samples."""
    rng = np.random.default_rng([seed, 2])
    y_train, y = (np.repeat(np.arange(3), n) for n in (TRAINING, SHOWN))
    x_train, x = (np.round(CENTRES[labels] + rng.normal(size=(len(labels), 2)), 4) for labels in (y_train, y))
    model = LogisticRegression(C=1.0, tol=1e-10, max_iter=1000).fit(x_train, y_train)
    logits = x @ model.coef_.T + model.intercept_
    member = softmax(logits, axis=1) >= THETA  # Eq. (7): samples with another label, and S_k(x, 1) ≥ θ
    member[np.arange(len(y)), y] = True  # and those with label k
    rows: list[Row] = [
        {"what": "classifier", "label": k, "x": w[0], "y": w[1], "bias": b}
        for k, w, b in zip(CLASSES, model.coef_.tolist(), model.intercept_.tolist())
    ]
    for place, true, predicted, inside in zip(x.tolist(), y.tolist(), logits.argmax(axis=1).tolist(), member.tolist()):
        row = {"what": "sample", "label": true + 1, "x": place[0], "y": place[1], "predicted": predicted + 1}
        rows.append(row | {f"in_M_{k}": int(m) for k, m in zip(CLASSES, inside)})
    return rows


def files(rows: Sequence[Row]) -> dict[str, Any]:
    samples = [row for row in rows if row["what"] == "sample"]
    lines = []
    for k in CLASSES:
        others = [row for row in samples if row[f"in_M_{k}"] and row["label"] != k]
        own, predicted = SHOWN, sum(row["predicted"] == k for row in others)
        counts = (own, len(others), predicted, len(samples) - own - len(others), own + len(others))
        lines.append([f"M_{k}", *map(str, counts)])
    head = ["subset", "with label k", "with another label", "predicted as k among these", "left out", "in all"]
    text = f"""# Figure 2: which samples a subset M_k takes

The paper sketches a three-class problem without data. This figure is computed: three Gaussian classes in the plane, a
linear softmax classifier that was trained on other samples of the same classes, and {len(samples)} validation samples.

M_k of Eq. (7) has every sample with label k, and every sample with another label whose probability S_k, at T = 1, is at
least θ. The second group lies near the decision boundary of class k, or beyond it: a sample that is wrongly predicted
as k has S_k ≥ 1/3 and is always in. One sample can be in several subsets. Here θ is {THETA:g}; the paper's θ is between
0.0008 and 0.05, which takes more samples.

![Samples in M_1, M_2 and M_3](figure2.png)

*One panel for each class k. Shaded: S_k ≥ θ. Black line: the decision boundary of class k. Filled: samples in M_k, blue
with label k, black with another label. Empty: samples that M_k leaves out. The shape shows the label.*

{table(head, lines)}

*`python -m experiments.reproduce figure2`; every number is in [figure2.csv](figure2.csv).*
"""
    return {"figure2.md": text, "figure2.png": _drawn(rows, samples)}


STUDY = Study("figure2", 1, jobs, run, files)


def _drawn(rows: Sequence[Row], samples: Sequence[Row]) -> Figure:
    figure, axes = panels(3, 3, 2.32, sharex=True, sharey=True)
    weights = np.array([[row["x"], row["y"], row["bias"]] for row in rows if row["what"] == "classifier"])
    for ax, k in zip(axes, CLASSES):
        ax.set(xlim=(-5, 5), ylim=(-4.7, 4.6), aspect="equal", xticks=[], yticks=[])
        ax.spines[:].set_visible(True)
        _regions(ax, weights, k)
        for true in CLASSES:
            for inside in (0, 1):
                of = [row for row in samples if row["label"] == true and row[f"in_M_{k}"] == inside]
                colours = ("none", "0.65") if not inside else (BLUE if true == k else "black", "white")
                ax.plot([row["x"] for row in of], [row["y"] for row in of], MARKERS[true], zorder=3 + inside,
                        markersize=3.4 + 0.8 * inside, markerfacecolor=colours[0], markeredgecolor=colours[1],
                        markeredgewidth=0.5)  # fmt: skip
        ax.set_title(f"$M_{k}$: {sum(row[f'in_M_{k}'] for row in samples)} of {len(samples)} samples", fontsize=8)
    point: dict[str, Any] = {"linestyle": "", "markersize": 4.2, "markeredgewidth": 0.5}
    handles = [
        *(Line2D([], [], marker=m, color="0.35", label=f"label {k}", **point) for k, m in MARKERS.items()),
        Line2D([], [], marker="o", color=BLUE, label="in $M_k$, label $k$", **point),
        Line2D([], [], marker="o", color="black", label="in $M_k$, another label", **point),
        Line2D([], [], marker="o", markerfacecolor="none", markeredgecolor="0.65", label="left out", **point),
        Patch(facecolor=BLUE, alpha=0.2, label=f"$S_k$ ≥ {THETA:g}"),
        Line2D([], [], color="black", linewidth=1.3, label="boundary of class $k$"),
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=4, fontsize=7, frameon=False)
    return figure


def _regions(ax: Axes, weights: Floats, k: int) -> None:
    """Shade where S_k ≥ θ, and draw the decision boundary of class k."""
    across, up = np.meshgrid(np.linspace(-5, 5, 401), np.linspace(-4.7, 4.6, 361))
    logits = across[..., None] * weights[:, 0] + up[..., None] * weights[:, 1] + weights[:, 2]
    share = softmax(logits, axis=-1)[..., k - 1]
    lead = logits[..., k - 1] - np.delete(logits, k - 1, axis=-1).max(axis=-1)
    ax.contourf(across, up, share, levels=[THETA, 1.0], colors=[BLUE], alpha=0.14)
    ax.contour(across, up, share, levels=[THETA], colors=[BLUE], linewidths=0.6, linestyles="dashed")
    ax.contour(across, up, lead, levels=[0.0], colors="black", linewidths=1.3)
