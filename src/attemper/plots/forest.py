"""Methods side by side: a metric of each with its interval."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from attemper._checks import one_of
from attemper.errors import InputError
from attemper.metrics import Estimate
from attemper.plots.sheet import check_order, drawn_on
from attemper.plots.styles import GREY, SMALL, plain, styled, titled

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["plot_comparison"]

NAMES = {"accuracy": "accuracy", "nll": "NLL", "brier": "Brier score", "ece": "ECE", "mce": "MCE", "mmce": "MMCE"}
HIGHER = ("accuracy",)  # better


def plot_comparison(rows: Any, *, metric: str = "nll", ax: Axes | None = None, title: str = "") -> Axes:
    """Draw a metric of each method with its interval, from top to bottom; the line is that of the best.

    Intervals are of each method alone. Methods are evaluated on the same samples, so two may differ significantly
    though their intervals overlap. Of a `Comparison`, methods that cannot have the lowest NLL, outside its
    ``confidence_set``, have a hollow marker.

    Parameters
    ----------
    rows : Comparison, or its rows
        What `attemper.comparison.compare` returns.
    metric : str
        A key of the metrics: "nll", "ece", "brier", "accuracy", …
    ax : matplotlib Axes, optional
        Where to draw; by default on new ones (`new_axes`).
    title : str

    Examples
    --------
    >>> from attemper import Scores, datasets, plots
    >>> from attemper.comparison import compare
    >>> data = datasets.load()
    >>> val = Scores.from_logits(data.val_logits, data.val_labels)
    >>> test = Scores.from_logits(data.test_logits, data.test_labels)
    >>> ax = plots.plot_comparison(compare(val, test, ["ts"], confidence_level=None), metric="ece")
    >>> ax.get_xlabel()
    'ECE'
    """
    check_order(rows)
    possible = getattr(rows, "confidence_set", None) if metric == "nll" else None
    rows = list(getattr(rows, "rows", rows))
    if not rows:
        raise InputError("rows: expected what attemper.comparison.compare returns, got none")
    known = list(dict.fromkeys(key for row in rows for key in row.metrics or ()))
    if known:
        one_of("metric", metric, known)
    with drawn_on(ax, title, height=0.7 + 0.25 * len(rows)) as ax:
        _draw(ax, rows, metric, possible)
    return ax


def _draw(ax: Axes, rows: list[Any], metric: str, possible: Sequence[str] | None) -> None:
    styles = styled([row.method for row in rows])
    found = []
    for y, row in enumerate(rows):
        estimate = np.nan if row.metrics is None else row.metrics[metric]
        value, low, high = estimate if isinstance(estimate, Estimate) else (float(estimate),) * 3
        if not np.isfinite(value):
            said = "no result" if row.metrics is None else "infinite"
            place: dict[str, Any] = {"transform": ax.get_yaxis_transform(), "ha": "right", "va": "center"}
            ax.text(0.98, y, said, fontsize=SMALL, style="italic", **place)
            continue
        found.append(value)
        # The interval of a calibration error need not hold its value: see `attemper.metrics.ece`.
        style = styles[row.method]
        ax.plot([low, high], [y, y], color=style.color, linewidth=1.4, solid_capstyle="butt")
        hollow: dict[str, Any] = {"markerfacecolor": "white", "zorder": 3}
        if possible is None or row.method in possible:
            hollow = {}
        ax.plot([value], [y], color=style.color, marker=style.marker or "x", markersize=4.5, linestyle="", **hollow)
    if found:
        best = max(found) if metric in HIGHER else min(found)
        ax.axvline(best, color=GREY, linewidth=0.8, linestyle=(0, (1, 1.5)), zorder=1)
    ax.set_yticks(range(len(rows)), [titled(row.method) for row in rows])
    ax.set_ylim(len(rows) - 0.4, -0.6)
    ax.set_xlabel(plain(NAMES.get(metric, metric)))
