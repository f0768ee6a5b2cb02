"""How good probabilities are: proper scores, calibration errors, reliability tables, referral and risk.

Every metric is a float of ``(labels, probs)``, in the order of scikit-learn; one column is the positive class.
`evaluate` adds intervals, by cluster and by group; `get_scorer` makes a scorer for scikit-learn's ``scoring=``.
"""

from __future__ import annotations

from attemper._result import Estimate
from attemper.metrics.calibration import classwise_ece, ece, mce, mmce, smooth_ece
from attemper.metrics.evaluation import Evaluation, evaluate, get_scorer
from attemper.metrics.proper import accuracy, brier, nll
from attemper.metrics.reliability import (
    CorpReliability,
    Decomposition,
    Reliability,
    corp_reliability,
    decompose,
    reliability,
)
from attemper.metrics.selective import (
    ReferralCurve,
    RiskCoverage,
    aurc,
    expected_cost,
    referral_area,
    referral_curve,
    risk_coverage_curve,
)  # fmt: skip

__all__ = [
    "CorpReliability", "Decomposition", "Estimate", "Evaluation", "ReferralCurve", "Reliability", "RiskCoverage",
    "accuracy", "aurc", "brier", "classwise_ece", "corp_reliability", "decompose", "ece", "evaluate", "expected_cost",
    "get_scorer", "mce", "mmce", "nll", "referral_area", "referral_curve", "reliability", "risk_coverage_curve",
    "smooth_ece",
]  # fmt: skip
