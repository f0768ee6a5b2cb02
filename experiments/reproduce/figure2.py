"""Figure 2: which samples of a three-class problem the subset M_k of each class takes (Eq. 7)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression

from attemper.kernels.attended import pairs
from attemper.kernels.softmax import split
from experiments.reproduce import figures
from experiments.reproduce.drawing import BLUE
from experiments.reproduce.journal import Job, Row, Settings, Study
from experiments.reproduce.pages import Floats, Page, table

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["STUDY", "figure2", "subsets"]

CENTRES = np.array([[-1.5, -0.9], [1.5, -0.9], [0.0, 1.6]])  # of the classes, each with a standard deviation of 1
TRAINING, SHOWN = 400, 50  # samples of each class
THETA = 0.1  # larger than the paper's 0.01 to 0.05, so that the samples near a boundary can be counted by eye
CLASSES = (1, 2, 3)
MARKERS = {1: "o", 2: "s", 3: "^"}


def jobs(settings: Settings) -> list[Job]:
    """One: it takes no network."""
    return [Job("a three-class problem", (settings.seed,), ())]


def run(seed: int) -> list[Row]:
    """Train a linear softmax classifier in the plane; return it, and in which subsets its validation samples are."""
    rng = np.random.default_rng([seed, 2])
    y_train, y = (np.repeat(np.arange(3), n) for n in (TRAINING, SHOWN))
    x_train, x = (np.round(CENTRES[labels] + rng.normal(size=(len(labels), 2)), 4) for labels in (y_train, y))
    model = LogisticRegression(C=1.0, tol=1e-10, max_iter=1000).fit(x_train, y_train)
    weights = np.column_stack([model.coef_, model.intercept_]).tolist()
    logits = x @ model.coef_.T + model.intercept_
    member = subsets(logits, y, THETA)
    rows: list[Row] = [
        {"what": "classifier", "label": k, "w_x": w[0], "w_y": w[1], "bias": w[2]} for k, w in zip(CLASSES, weights)
    ]
    predicted = logits.argmax(axis=1)
    for i, (place, label) in enumerate(zip(x.tolist(), y.tolist())):
        row: Row = {"what": "sample", "label": label + 1, "predicted": int(predicted[i]) + 1}
        row |= {"x": place[0], "y": place[1]}
        rows.append(row | {f"in_M_{k}": int(inside) for k, inside in zip(CLASSES, member[i])})
    return rows


STUDY = Study("figure2", jobs, run)


def subsets(logits: NDArray[Any], labels: NDArray[np.int64], theta: float) -> NDArray[np.bool_]:
    """Tell for each sample (row) and class k (column) whether the sample is in M_k.

    M_k of Eq. (7) has the samples with label k, and those with another label and S_k(x, 1) ≥ θ. The pairs are those
    that `attemper.kernels.attended.pairs` finds for the attended loss.
    """
    rows = split(np.asarray(logits), masked=False)
    found = pairs(rows, labels, None, np.array([theta]))
    member = np.zeros(np.shape(logits), dtype=bool)
    # A pair is known by its row and its gap to the largest logit; classes with the same gap are pairs alike.
    np.logical_or.at(member, found.row, rows.d[found.row] == found.gap[:, None])
    member[found.top_row, rows.top[found.top_row]] = True
    member[np.arange(len(labels)), labels] = True
    return member


def figure2(rows: Sequence[Row], _: Settings) -> Page:
    """Count what each subset takes, and draw it."""
    samples = [row for row in rows if row["what"] == "sample"]
    lines = []
    counts: dict[str, dict[str, int]] = {}
    for k in CLASSES:
        inside = [row for row in samples if row[f"in_M_{k}"]]
        others = [row for row in inside if row["label"] != k]
        counts[f"M_{k}"] = {
            "with label k": len(inside) - len(others),
            "with another label": len(others),
            "predicted as k among these": sum(row["predicted"] == k for row in others),
            "left out": len(samples) - len(inside),
        }
        lines.append([f"M_{k}", *map(str, counts[f"M_{k}"].values()), str(len(inside))])
    head = ["subset", *counts["M_1"], "in all"]
    summary = {"theta": THETA, "counts": counts}
    tables = {"counts": table(head, lines), "theta": f"{THETA:g}", "samples": str(len(samples))}
    return Page(tables, rows, summary, {"figure2": _drawn(rows)})


def _drawn(rows: Sequence[Row]) -> Figure:
    figure, axes = figures.panels(1, 3, 2.32, sharex=True, sharey=True)
    weights = np.array([[r["w_x"], r["w_y"], r["bias"]] for r in rows if r["what"] == "classifier"])
    samples = [row for row in rows if row["what"] == "sample"]
    for ax, k in zip(axes[0], CLASSES):
        ax.set(xlim=(-5, 5), ylim=(-4.7, 4.6), aspect="equal", xticks=[], yticks=[])
        ax.spines[:].set(visible=True, linewidth=0.6, color="0.3")
        _regions(ax, weights, k)
        n = 0
        for label in CLASSES:
            of = [row for row in samples if row["label"] == label]
            for inside in (0, 1):
                chosen = [row for row in of if row[f"in_M_{k}"] == inside]
                n += len(chosen) if inside else 0
                _samples(ax, label, chosen, bool(inside), own=label == k)
        ax.set_title(f"$M_{k}$: {n} of {len(samples)} samples", fontsize=8)
    _key(figure)
    return figure


def _regions(ax: Axes, weights: Floats, k: int) -> None:
    """Shade where S_k ≥ θ, and draw the boundary of the decision for k."""
    across, up = np.meshgrid(np.linspace(-5, 5, 401), np.linspace(-4.7, 4.6, 361))
    logits = across[..., None] * weights[:, 0] + up[..., None] * weights[:, 1] + weights[:, 2]
    share = np.exp(logits - logits.max(axis=-1, keepdims=True))
    share /= share.sum(axis=-1, keepdims=True)
    lead = logits[..., k - 1] - np.delete(logits, k - 1, axis=-1).max(axis=-1)
    ax.contourf(across, up, share[..., k - 1], levels=[THETA, 1.0], colors=[BLUE], alpha=0.14)
    ax.contour(across, up, share[..., k - 1], levels=[THETA], colors=[BLUE], linewidths=0.6, linestyles="dashed")
    ax.contour(across, up, lead, levels=[0.0], colors="black", linewidths=1.3)


def _samples(ax: Axes, label: int, rows: Sequence[Row], inside: bool, *, own: bool) -> None:
    """Draw what is in M_k filled, dark where it has another label; what is left out is light and empty."""
    face = "none" if not inside else BLUE if own else "black"
    edge = "0.65" if not inside else "white"
    x, y = ([row[key] for row in rows] for key in ("x", "y"))
    size: dict[str, Any] = {"markersize": 4.2 if inside else 3.4, "markeredgewidth": 0.4 if inside else 0.6}
    ax.plot(
        x, y, linestyle="", marker=MARKERS[label], markerfacecolor=face, markeredgecolor=edge, **size,
        zorder=3 + inside, label=f"label {label}, {'in' if inside else 'out'}",
    )  # fmt: skip


def _key(figure: Figure) -> None:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    point: dict[str, Any] = {"linestyle": "", "markersize": 4.2, "markeredgewidth": 0.5}
    handles = [
        *(Line2D([], [], marker=m, color="0.35", label=f"label {k}", **point) for k, m in MARKERS.items()),
        Line2D([], [], marker="o", color=BLUE, label="in $M_k$, label $k$", **point),
        Line2D([], [], marker="o", color="black", label="in $M_k$, another label", **point),
        Line2D([], [], marker="o", markerfacecolor="none", markeredgecolor="0.65", label="left out", **point),
        Patch(facecolor=BLUE, alpha=0.2, label=f"$S_k$ ≥ {THETA:g}"),
        Line2D([], [], color="black", linewidth=1.3, label="boundary of class $k$"),
    ]
    figure.legend(
        handles=handles,
        loc="outside lower center",
        ncols=4,
        fontsize=7,
        frameon=False,
        columnspacing=1.6,
        handlelength=1.6,
    )
