"""Computed data drawn on matplotlib Axes. Nothing global is read or changed.

Every ``plot_…`` function takes the data first, as metrics and calibrators do, draws on ``ax=`` or on new Axes, and
returns the Axes. A notebook shows them.
"""

from __future__ import annotations

import os
from pathlib import Path

from attemper._json import atomic
from attemper.calibrators.base import Calibrator
from attemper.data.scores import Scores, labelled
from attemper.errors import require, unsupported_extension
from attemper.maps import ScaleMap
from attemper.metrics import ece
from attemper.metrics.bins import Bins
from attemper.plots.curves import plot_referral, plot_risk_coverage
from attemper.plots.diagram import plot_before_after, plot_reliability
from attemper.plots.forest import plot_comparison, plot_groups
from attemper.plots.sheet import new_axes
from attemper.plots.temperatures import plot_posterior, plot_temperature

__all__ = [
    "new_axes",
    "plot_before_after",
    "plot_comparison",
    "plot_groups",
    "plot_posterior",
    "plot_referral",
    "plot_reliability",
    "plot_risk_coverage",
    "plot_temperature",
    "save_before_and_after",
]

FORMATS = (".png", ".svg", ".pdf")


def save_before_and_after(
    path: str | os.PathLike[str],
    scores: Scores,
    calibrator: Calibrator,
    *,
    n_bins: Bins | None = 15,
) -> None:
    """Write a picture of the reliability before and after a calibration (.png, .svg or .pdf).

    ``n_bins=None`` draws without bins, a CORP diagram (`attemper.metrics.corp_reliability`).

    >>> import tempfile
    >>> from attemper import TemperatureScaling, datasets
    >>> data = datasets.load()
    >>> test = Scores.from_logits(data.test_logits, data.test_labels)
    >>> ts = TemperatureScaling().fit(data.val_logits, data.val_labels)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_before_and_after(f"{folder}/reliability.svg", test, ts)
    """
    require("matplotlib", extra="plots", why="to draw")
    extension = Path(path).suffix.lower()
    if extension not in FORMATS:
        raise unsupported_extension(path, extension, FORMATS)
    known = labelled(scores)
    before, after = ScaleMap(1.0).apply(known.logits), calibrator.predict_proba(known)
    errors = [ece(known.labels, probs, sample_weight=known.weights) for probs in (before, after)]
    axes = plot_before_after(
        *(known.labels, before, after),
        n_bins=n_bins,
        ece=(errors[0], errors[1]),
        sample_weight=known.weights,
        axes=new_axes(2, width=7.2, height=3.7),
    )
    with atomic(path) as stream:
        axes[0].figure.figure.savefig(stream, format=extension.lstrip("."), dpi=200)
