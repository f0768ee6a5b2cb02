"""How good probabilities are: proper scores, calibration errors, reliability tables, referral and risk.

Every metric takes probabilities and labels, and gives a float, or with
``interval=0.95`` an `Estimate` of value, low and high.
"""

from attemper.metrics.calibration import classwise_ece, ece, mce, mmce
from attemper.metrics.evaluation import evaluate
from attemper.metrics.intervals import Estimate
from attemper.metrics.proper import accuracy, brier, nll
from attemper.metrics.referral import ReferralCurve, referral_area, referral_area_difference, referral_curve
from attemper.metrics.reliability import Reliability, reliability
from attemper.metrics.risk import RiskCoverage, aurc, expected_cost, risk_coverage_curve
from attemper.metrics.running import RunningMetrics

__all__ = [
    "Estimate",
    "ReferralCurve",
    "Reliability",
    "RiskCoverage",
    "RunningMetrics",
    "accuracy",
    "aurc",
    "brier",
    "classwise_ece",
    "ece",
    "evaluate",
    "expected_cost",
    "mce",
    "mmce",
    "nll",
    "referral_area",
    "referral_area_difference",
    "referral_curve",
    "reliability",
    "risk_coverage_curve",
]
