"""Class priors: known ones, and estimates from unlabelled predictions."""

from __future__ import annotations

from attemper.priors.estimate import PriorEstimate, estimate_priors
from attemper.priors.known import as_priors
from attemper.priors.label_shift import LabelShiftTest, label_shift_test

__all__ = ["LabelShiftTest", "PriorEstimate", "as_priors", "estimate_priors", "label_shift_test"]
