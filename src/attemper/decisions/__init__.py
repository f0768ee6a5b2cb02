"""Which cases to decide and which to refer: rules, how to choose them, and their outcomes."""

from attemper.decisions.choosing import policy_for_budget, policy_for_cost, policy_for_miss
from attemper.decisions.conformal import prediction_sets
from attemper.decisions.labels import LabelDecisions, LabelPolicies, label_policies
from attemper.decisions.outcomes import ClassOutcome, Outcome, outcome_of
from attemper.decisions.policy import Decisions, Guarantee, Policy, refer_or_decide
from attemper.decisions.set_outcomes import SetOutcome, SetShare, set_outcome
from attemper.decisions.sets import PredictionSets, SetPolicy

__all__ = [
    "ClassOutcome",
    "Decisions",
    "Guarantee",
    "LabelDecisions",
    "LabelPolicies",
    "Outcome",
    "Policy",
    "PredictionSets",
    "SetOutcome",
    "SetPolicy",
    "SetShare",
    "label_policies",
    "outcome_of",
    "policy_for_budget",
    "policy_for_cost",
    "policy_for_miss",
    "prediction_sets",
    "refer_or_decide",
    "set_outcome",
]
