"""Computed data drawn on matplotlib Axes. Nothing global is read or changed.

Every function takes the Axes to draw on, then what to draw, and returns the Axes.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Literal

from attemper._checks import one_of
from attemper.calibrators.base import Calibrator
from attemper.data.scores import Scores, labelled
from attemper.errors import require
from attemper.maps import ScaleMap
from attemper.metrics import CorpReliability, Reliability, corp_reliability, ece, reliability
from attemper.plots.curves import referral_curve, risk_coverage
from attemper.plots.diagram import confidence_histogram, reliability_before_after, reliability_diagram
from attemper.plots.forest import comparison
from attemper.plots.joint import posterior
from attemper.plots.sheet import check_format, new_axes, save
from attemper.plots.temperatures import temperature_curve, theta_path

__all__ = [
    "comparison",
    "confidence_histogram",
    "new_axes",
    "posterior",
    "referral_curve",
    "reliability_before_after",
    "reliability_diagram",
    "risk_coverage",
    "save",
    "save_before_and_after",
    "temperature_curve",
    "theta_path",
]


def save_before_and_after(
    path: str | os.PathLike[str],
    scores: Scores,
    calibrator: Calibrator,
    *,
    kind: Literal["bins", "corp"] = "bins",
) -> None:
    """Write a picture of the reliability before and after a calibration (.png, .svg or .pdf).

    ``kind``: in bins, or without, as a CORP diagram (`attemper.metrics.corp_reliability`).

    >>> import tempfile
    >>> from attemper import TemperatureScaling, datasets
    >>> data = datasets.load()
    >>> test = Scores.from_logits(data.test_logits, data.test_labels)
    >>> ts = TemperatureScaling().fit(data.val_logits, data.val_labels)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_before_and_after(f"{folder}/reliability.svg", test, ts)
    """
    require("matplotlib", extra="plots", why="to draw")
    check_format(path)
    one_of("kind", kind, ("bins", "corp"))
    known = labelled(scores)
    given = (ScaleMap(1.0).apply(known.logits), calibrator.predict_proba(known))
    table_of: Callable[..., Reliability | CorpReliability] = reliability if kind == "bins" else corp_reliability
    tables = [table_of(known.labels, probs, sample_weight=known.weights) for probs in given]
    errors = [ece(known.labels, probs, sample_weight=known.weights) for probs in given]
    axes = new_axes(2, width=7.2, height=3.7)
    reliability_before_after(axes, *tables, ece=(errors[0], errors[1]))
    save(path, axes[0])
