"""How many labels the coverage of prediction sets takes: an exact law, whatever the classifier."""

from __future__ import annotations

import math

import numpy as np
from scipy.special import betainc, ndtri

from attemper._checks import fraction, number
from attemper._typing import Floats
from attemper.errors import InputError
from attemper.kernels.conformal import ROUNDING
from attemper.planning.plan import MOST_LABELS, Plan, curve_around

__all__ = ["labels_for_coverage"]

MOST = 10_000_000  # numbers of labels that are tried, one by one


def labels_for_coverage(coverage: float = 0.95, *, within: float, confidence_level: float = 0.95) -> Plan:
    """Plan labels for prediction sets whose coverage, once they are chosen, is ``coverage`` give or take ``within``.

    Split conformal sets cover new samples with the asked probability on average over the draw of the labelled samples.
    Given one draw of n, the share of new samples that they cover has the law Beta(k, n + 1 − k), k = ⌈(n + 1) ·
    coverage⌉: exactly, where scores are not tied (Vovk 2012), whatever the classifier and the data. The plan is the n
    from which on that share lies within the limits with a probability of ``confidence_level``. It needs no pilot.

    Parameters
    ----------
    coverage : float
        Share of new samples whose set holds their class, such as 0.95.
    within : float
        Largest distance from it, such as 0.02.
    confidence_level : float

    References
    ----------
    V. Vovk, Conditional validity of inductive conformal predictors, 2012. A. Angelopoulos, S. Bates, A gentle
    introduction to conformal prediction, 2021, section 3.2.

    Examples
    --------
    >>> labels_for_coverage(0.95, within=0.02).n_samples
    442
    """
    fraction("coverage", coverage)
    number("within", within, 0, 1, expected="a distance between 0 and 1, such as 0.02", closed=(False, False))
    fraction("confidence_level", confidence_level)
    goal = f"sets that cover {coverage:g} give or take {within:g}, at {confidence_level:.4g}"
    rough = coverage * (1 - coverage) * (float(ndtri((1 + confidence_level) / 2)) / within) ** 2
    most = math.ceil(4 * rough + 40 / min(coverage, 1 - coverage))
    if most > MOST:
        raise InputError(
            f"within={within!r}: about {min(rough, MOST_LABELS):.3g} labels. Use a wider one.", param="within"
        )
    n = np.arange(1, most + 1, dtype=np.float64)
    # It rises and falls a little with every step of k, so the last that fails counts.
    fails = np.flatnonzero(_probability(n, coverage, within) < confidence_level)
    found = int(fails[-1]) + 2 if fails.size else 1
    at = curve_around(found)
    return Plan(
        question="coverage",
        goal=goal,
        n_samples=found,
        curve={"n_samples": at, "within": np.array([_distance(m, coverage, confidence_level) for m in at])},
        target=within,
        confidence_level=confidence_level,
        notes=("an exact law, for any classifier; tied scores cover more",),
    )


def _probability(n: Floats, coverage: float, within: float) -> Floats:
    """Probability that the realised coverage lies within the limits; where n is too few sets hold all classes."""
    k = np.maximum(1, np.ceil((n + 1) * coverage - ROUNDING))
    b = n + 1 - k
    inside = betainc(k, np.maximum(b, 1), min(1.0, coverage + within)) - betainc(
        k, np.maximum(b, 1), max(0.0, coverage - within)
    )
    return np.where(b >= 1, inside, float(coverage + within >= 1))


def _distance(n: float, coverage: float, confidence_level: float) -> float:
    """Smallest distance that the realised coverage keeps with this probability."""
    low, high = 0.0, 1.0
    at = np.array([n])
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (low, middle) if _probability(at, coverage, middle)[0] >= confidence_level else (middle, high)
    return high
