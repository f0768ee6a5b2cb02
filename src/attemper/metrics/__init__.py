"""How good probabilities are: proper scores, calibration errors, reliability tables, referral and risk.

Every metric takes ``(labels, probs)``, in the order of scikit-learn, or a `LabelledScores`, and returns a float, or
with ``confidence_level=0.95`` an `Estimate` of value, low and high. `get_scorer` makes one for scikit-learn's
``scoring=``.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from attemper.metrics.alike import GroupTest
from attemper.metrics.best import BestSet, compare_with_best
from attemper.metrics.calibration import classwise_ece, ece, mce, mmce
from attemper.metrics.clusters import EffectiveSampleSize, effective_sample_size
from attemper.metrics.corp import CorpReliability, corp_reliability
from attemper.metrics.decomposition import Decomposition, decompose
from attemper.metrics.evaluation import Evaluation, evaluate
from attemper.metrics.group_table import GroupMetrics, GroupRow
from attemper.metrics.groups import by_group
from attemper.metrics.intervals import Estimate
from attemper.metrics.labels import LabelMetrics, LabelRow, label_metrics
from attemper.metrics.proper import accuracy, brier, nll
from attemper.metrics.referral import ReferralCurve, referral_area, referral_area_difference, referral_curve
from attemper.metrics.reliability import Reliability, reliability
from attemper.metrics.risk import RiskCoverage, aurc, expected_cost, risk_coverage_curve
from attemper.metrics.smooth import smooth_ece

if TYPE_CHECKING:
    from attemper.metrics.scoring import get_scorer

__all__ = [
    "BestSet",
    "CorpReliability",
    "Decomposition",
    "EffectiveSampleSize",
    "Estimate",
    "Evaluation",
    "GroupMetrics",
    "GroupRow",
    "GroupTest",
    "LabelMetrics",
    "LabelRow",
    "ReferralCurve",
    "Reliability",
    "RiskCoverage",
    "accuracy",
    "aurc",
    "brier",
    "by_group",
    "classwise_ece",
    "compare_with_best",
    "corp_reliability",
    "decompose",
    "ece",
    "effective_sample_size",
    "evaluate",
    "expected_cost",
    "get_scorer",
    "label_metrics",
    "mce",
    "mmce",
    "nll",
    "referral_area",
    "referral_area_difference",
    "referral_curve",
    "reliability",
    "risk_coverage_curve",
    "smooth_ece",
]

# Loaded when first asked for, so that `import attemper` stays light.
LAZY = {"get_scorer": "scoring"}


def __getattr__(name: str) -> Any:
    if name not in LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{LAZY[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
