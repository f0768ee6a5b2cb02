"""Thresholds below which the risk stays with a stated confidence, where samples of one cluster are not independent.

The unit is the cluster, such as a patient with several pictures. Each threshold is tested by bets against "the rate of
misses is above α": a cluster wins where it has fewer misses than α of its samples, and loses where it has more. If the
rate were above α, no way of betting could win on average (Waudby-Smith and Ramdas 2024). docs/referral.md has the
proof.
"""

from __future__ import annotations

import math
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from attemper._typing import Floats, Labels
from attemper.decisions.certificates import MOST_RANKS, SHARE_AT_FIRST, Certificate, samples_needed

__all__ = ["Clustered", "certify_clusters", "pilot_clusters", "thresholds_to_test"]

# The bets aim a little above what passes: they move in steps, and would often end just below.
AIM = 1.05
# The first guess of how much clusters vary counts as much as so many clusters. Both were chosen by simulation, of 100
# and 500 clusters with 1 to 10 samples whose errors correlate by 0, 0.62 and 1; the power hardly depends on them.
GUESS_COUNTS = 20
# The first test has so many times the samples that it would take if all were right, and a tenth of all at least: one of
# fewer fails often even where the risk is well below the bound. Between the two, confidences show where to begin.
NEEDED_AT_FIRST = (1.25, 2.5)
# Clusters that more than this many steps would take are bet on together: the time stays bounded.
MOST_STEPS = 2000
# Sums of clusters by thresholds that are in memory at a time.
CHUNK_ELEMENTS = 1 << 21
# Without other samples, this share of the clusters fixes the thresholds, and is not tested.
PILOT_SHARE = 0.1
# Confidences that are equal up to rounding are decided together.
ROUNDING = 1e-9


class Clustered(NamedTuple):
    """Samples with the number of their cluster, 0, 1, …; the clusters are bet on in this order."""

    confidence: Floats
    wrong: NDArray[np.bool_]
    counts: Floats  # how often each sample occurred
    cluster: Labels
    n: int  # clusters
    most: int  # samples of a cluster
    spread: float  # guess of the mean square of a cluster's size, as a share of the most


def certify_clusters(
    of: Literal["decided", "all"], samples: Clustered, thresholds: Floats, guess: Floats, alpha: float, delta: float
) -> Certificate:
    """Walk down fixed ``thresholds``; the last before the first that fails is certified, and so are all above it.

    ``guess`` is about the share of a cluster that each threshold decides.
    """
    size = np.bincount(samples.cluster, samples.counts, samples.n).astype(np.float64)
    best = np.log1p(alpha / (1 - alpha) * size / samples.most).sum()  # of bets, if all predictions are right
    if best < -math.log(delta):
        return Certificate(1.0, False, _too_few(samples, best / -math.log1p(-alpha), alpha, delta))
    decided, errors, passes = _bets(of, samples, size, thresholds, guess, alpha, delta)
    n_passed = len(passes) if passes.all() else int(passes.argmin())
    if n_passed == 0:
        why = f"among the {decided[0]:.0f} most confident predictions {errors[0]:.0f} are wrong, too many for that"
        return Certificate(1.0, False, f"{why} with {samples.n} clusters")
    return Certificate(float(thresholds[n_passed - 1]), True)


def thresholds_to_test(
    of: Literal["decided", "all"], confidence: Floats, worth: float, alpha: float, delta: float
) -> tuple[Floats, Floats]:
    """Return thresholds, falling to 0, and the share of other samples, of this confidence, that each decides.

    For "decided" the first decides enough for a test, where all samples are ``worth`` so many full clusters: where the
    test is the most likely to pass, if confidences are right.
    """
    if len(confidence) == 0:
        return np.zeros(1), np.ones(1)  # everybody, or nobody
    value = np.unique(confidence)[::-1]
    share = np.searchsorted(np.sort(-confidence), -value, side="right") / len(confidence)
    if of == "decided":
        needed = samples_needed(alpha, delta) / worth
        margin = np.cumsum(alpha - 1 + np.sort(confidence)[::-1])[(share * len(confidence)).round().astype(int) - 1]
        likely = share[(margin / np.sqrt(share)).argmax()]
        least, most = (times * needed for times in NEEDED_AT_FIRST)
        first = min(max(float(likely), least), most)
        value = value[share >= max(SHARE_AT_FIRST, first)]
    chosen = np.unique(np.linspace(0, len(value) - 1, min(len(value), MOST_RANKS)).round().astype(np.int64))
    thresholds = np.append(value[chosen] * (1 - ROUNDING), 0.0)
    decided = 1 - np.searchsorted(np.sort(confidence), thresholds, side="right") / len(confidence)
    return thresholds, decided if of == "decided" else np.ones(len(thresholds))


def pilot_clusters(n: int, seed: int) -> NDArray[np.bool_]:
    """Draw the clusters that fix the thresholds where no other samples do."""
    pilot = np.zeros(n, dtype=bool)
    pilot[np.random.default_rng([seed, 1]).permutation(n)[: int(PILOT_SHARE * n)]] = True
    return pilot


def _bets(
    of: Literal["decided", "all"],
    samples: Clustered,
    size: Floats,
    thresholds: Floats,
    guess: Floats,
    alpha: float,
    delta: float,
) -> tuple[Floats, Floats, NDArray[np.bool_]]:
    """Bet on all thresholds side by side; numbers of decided and wrong samples, and which thresholds pass."""
    n, width = samples.n, len(thresholds)
    together = math.ceil(n / MOST_STEPS)
    # The first threshold that decides each sample; `width` where none does.
    place = np.searchsorted(-thresholds, -samples.confidence, side="right")
    order = np.argsort(samples.cluster, kind="stable")
    ends = np.searchsorted(samples.cluster[order], np.arange(n + 1))
    wealth, squares = np.ones(width), np.zeros(width)
    spread = alpha * (1 - alpha) * np.maximum(guess, 1 / n) * samples.spread
    decided, errors = np.zeros(width), np.zeros(width)
    chunk = max(1, CHUNK_ELEMENTS // width // together) * together
    for first in range(0, n, chunk):
        last = min(n, first + chunk)
        rows = order[ends[first] : ends[last]]
        at = (samples.cluster[rows] - first) * (width + 1) + place[rows]
        here, wrong = (
            np.bincount(at, w, (last - first) * (width + 1)).reshape(-1, width + 1)[:, :width].cumsum(axis=1)
            for w in (samples.counts[rows], samples.counts[rows] * samples.wrong[rows])
        )
        decided += here.sum(axis=0)
        errors += wrong.sum(axis=0)
        whole = here if of == "decided" else size[first:last, None]
        gain = (alpha * whole - wrong) / samples.most
        for i in range(0, last - first, together):
            seen, part = first + i, gain[i : i + together]
            variance = (GUESS_COUNTS * spread + squares) / (GUESS_COUNTS + seen)
            bet = np.minimum(_bet(wealth * delta, variance * (n - seen)), 1 / (1 - alpha))
            wealth *= np.maximum(1 + bet * part, 0.0).prod(axis=0)  # rounding may fall below 0
            squares += (part**2).sum(axis=0)
    return decided, errors, wealth * delta >= 1


def _bet(chance: Floats, variance: Floats) -> Floats:
    """Return how much to bet, as a share of the wealth for each unit that can be won; 0 once the test has passed.

    ``chance`` is the wealth as a share of what passes. If gains were normal with mean 0, and ``variance`` in all that
    are left, a right to all of it in the best ``chance`` of the cases would cost that much, and this is how to hold it.
    """
    aimed = np.clip(chance / AIM, 1e-12, 1 - 1e-12)
    z = ndtri(aimed)
    bet = np.exp(-0.5 * z * z) / math.sqrt(2 * math.pi) / aimed / np.sqrt(variance)
    return np.where((chance >= 1) | (chance < 1e-12), 0.0, bet)


def _too_few(samples: Clustered, worth: float, alpha: float, delta: float) -> str:
    return (
        f"it takes {samples_needed(alpha, delta)} clusters of {samples.most} right predictions each to be "
        f"{1 - delta:.4g} confident that at most {alpha:.4g} are wrong, and these {samples.n} clusters are worth "
        f"{worth:.0f} of them"
    )
