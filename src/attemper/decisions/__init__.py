"""Decisions from calibrated probabilities: refer or decide, and sets of classes, with guarantees."""

from attemper.decisions.choosing import Decision
from attemper.decisions.outcomes import Outcome, Part, outcome_of
from attemper.decisions.referral import Referral, refer_for_budget, refer_for_costs, refer_for_miss
from attemper.decisions.rules import Actions, Choice, Promise, Rule, Shortage
from attemper.decisions.sets import PredictionSets, conformal_sets

__all__ = [
    "Actions",
    "Choice",
    "Decision",
    "Outcome",
    "Part",
    "PredictionSets",
    "Promise",
    "Referral",
    "Rule",
    "Shortage",
    "conformal_sets",
    "outcome_of",
    "refer_for_budget",
    "refer_for_costs",
    "refer_for_miss",
]
