"""Class priors: known ones, and estimates from unlabelled predictions."""

from __future__ import annotations

from attemper.priors.counts import PredictionCounts
from attemper.priors.estimate import PriorEstimate, estimate_priors
from attemper.priors.known import as_priors
from attemper.priors.label_shift import LabelShiftTest, bbse, label_shift_test, rlls

__all__ = [
    "LabelShiftTest",
    "PredictionCounts",
    "PriorEstimate",
    "as_priors",
    "bbse",
    "estimate_priors",
    "label_shift_test",
    "rlls",
]
