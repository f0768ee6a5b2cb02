"""How many labels a certificate of few misses takes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, get_args

import numpy as np
from scipy.special import log_softmax

from attemper._checks import fraction, one_of, whole
from attemper._typing import Floats
from attemper.calibrators.base import Calibrator
from attemper.decisions.certificates import SHARE_AT_FIRST, certify_all, certify_decided, samples_needed
from attemper.decisions.policy import MissRateOf
from attemper.errors import InputError
from attemper.planning.pilot import Pilot, fitted_temperature
from attemper.planning.plan import Plan, curve_around, smallest

__all__ = ["labels_for_certificate"]

SIMULATIONS = 200
OF_THE_LIMIT = 0.8  # of what endless labels would decide, where no share is asked for
MOST_SIMULATED = 50_000


def labels_for_certificate(
    pilot: Any,
    labels: Any = None,
    *,
    max_miss: float = 0.05,
    decided_share: float | None = None,
    confidence_level: float = 0.95,
    power: float = 0.8,
    miss_rate_of: MissRateOf = "decided",
    calibrator: Calibrator | None = None,
    clusters: Any = None,
    n_simulations: int = SIMULATIONS,
    seed: int = 0,
    progress: Callable[[int, int | None], None] | None = None,
) -> Plan:
    """Plan labels for a certificate of at most ``max_miss`` misses that decides at least ``decided_share``.

    The test is that of `attemper.decisions.policy_for_miss`, run on simulated sets: confidences are drawn from the
    pilot, and each prediction is right with the probability that the pilot shows. The plan is the smallest n at which a
    share ``power`` of the sets reach a certificate that decides enough.

    Parameters
    ----------
    pilot, labels, calibrator
        As in `labels_for_metric`. With labels, temperature scaling of the pilot shows how probable errors are; without,
        the probabilities themselves.
    max_miss, confidence_level, miss_rate_of
        Of the guarantee, as in `attemper.decisions.policy_for_miss`.
    decided_share : float, optional
        Share of new samples that are to be decided. By default 0.8 of what endless labels would decide.
    power : float
        Probability that the certificate is reached.
    clusters : array of shape (N,), optional
        Which samples of the pilot are of the same case. The plan is then for one sample of each, drawn at random
        (``max_per_cluster=1``), which the proof for independent samples holds for: n counts clusters.
    n_simulations, seed : int
    progress : function, optional
        Called with the number of simulated sets.

    Returns
    -------
    Plan
        The curve has ``n_samples``, ``power`` with its standard error ``power_error``, and ``decided_share``, the
        mean over the sets (0 where nothing is certified).

    Examples
    --------
    >>> from attemper.planning import typical_network
    >>> plan = labels_for_certificate(typical_network(0.95, 10), max_miss=0.1, decided_share=0.7, n_simulations=50)
    >>> 29 <= plan.n_samples < 60
    True
    """
    fraction("max_miss", max_miss, such_as="0.05")
    fraction("confidence_level", confidence_level)
    fraction("power", power, such_as="0.8")
    one_of("miss_rate_of", miss_rate_of, get_args(MissRateOf))
    whole("n_simulations", n_simulations, at_least=20)
    whole("seed", seed, at_least=0)
    p = Pilot.of(pilot, labels, clusters)
    population, *others = _populations(p, calibrator)
    limit, *ends = (each.limit(max_miss, miss_rate_of) for each in (population, *others))
    wanted = OF_THE_LIMIT * limit if decided_share is None else fraction("decided_share", decided_share, such_as="0.5")
    if wanted >= limit or limit == 0:
        most = f"at most {limit:.3g} of the samples could be decided" if limit > 0 else "nobody could be decided"
        ask = "a smaller decided_share, or " if limit > 0 else ""
        raise InputError(
            f"max_miss={max_miss!r}: by the pilot {most} with so few misses, however many labels there are. "
            f"Use {ask}a larger max_miss.",
            param="max_miss",
        )
    tried: dict[int, tuple[float, float]] = {}

    def simulate(n: int) -> tuple[float, float]:
        """Return the share of sets that reach the certificate, and the mean share that they decide."""
        if n not in tried:
            rng, delta = np.random.default_rng([seed, n]), 1 - confidence_level
            draws = (population.decided(rng, n, max_miss, delta, miss_rate_of) for _ in range(n_simulations))
            shares = np.fromiter(draws, np.float64, n_simulations)
            tried[n] = float((shares >= wanted).mean()), float(shares.mean())
            if progress is not None:
                progress(len(tried) * n_simulations, None)
        return tried[n]

    goal = (
        f"a certificate, at {confidence_level:.4g}, that at most {max_miss:g} of the "
        f"{'decided samples' if miss_rate_of == 'decided' else 'samples'} are decided wrongly, which decides "
        f"{wanted:.3g} of them with a probability of {power:g}"
    )
    least = samples_needed(max_miss, 1 - confidence_level)
    n = smallest(lambda m: _within_reach(m, goal) and simulate(m)[0] >= power, goal, at_least=least, precision=0.05)
    at = curve_around(n, at_least=least)
    at = at[at <= max(n, min(2.5 * n, MOST_SIMULATED))]  # more take as long to simulate as all others together
    shares = np.array([simulate(int(m)) for m in at]).T
    between = f" ({min(ends):.3g} to {max(ends):.3g}, as far as the pilot shows T)" if ends else ""
    notes = [f"with endless labels {limit:.3g}{between} could be decided; {n_simulations} simulated sets at each n"]
    if ends and wanted >= min(ends):
        notes.append(
            "the pilot leaves it open whether so many can be decided at all: use a larger one, or ask for less"
        )
    if p.clusters is not None:
        notes.append("one sample of each cluster, drawn at random: labels count clusters")
    return Plan(
        question="certificate",
        goal=goal,
        n_samples=n,
        curve={
            "n_samples": at,
            "power": shares[0],
            "power_error": np.sqrt(np.maximum(shares[0] * (1 - shares[0]), 0.25 / n_simulations) / n_simulations),
            "decided_share": shares[1],
        },
        target=power,
        confidence_level=confidence_level,
        n_clusters=None if p.clusters is None else n,
        notes=tuple(notes),
    )


def _within_reach(n: int, goal: str) -> bool:
    if n > MOST_SIMULATED:
        raise InputError(
            f"more than {MOST_SIMULATED} labels for {goal}. Use a smaller decided_share "
            f"or a larger max_miss. A small pilot may show more errors than there are.",
            param="max_miss",
        )
    return True


class Population(NamedTuple):
    """Samples that others are drawn from, most confident first."""

    wrong: Floats  # probability that the prediction is wrong
    reached: Floats  # sums of the weights so far; the last is 1

    def limit(self, max_miss: float, of: MissRateOf) -> float:
        """Share that endless labels would decide: up to where the rate passes the bound for the first time."""
        missed = np.cumsum(self.wrong * np.diff(self.reached, prepend=0.0))
        rate = missed / self.reached if of == "decided" else missed
        first = int(np.searchsorted(self.reached, SHARE_AT_FIRST)) if of == "decided" else 0
        above = np.flatnonzero(rate[first:] >= max_miss)
        if above.size == 0:
            return 1.0
        return float(self.reached[first + above[0] - 1]) if above[0] > 0 else 0.0

    def decided(self, rng: np.random.Generator, n: int, max_miss: float, delta: float, of: MissRateOf) -> float:
        """Draw n samples and their labels; return the share of the population that their certificate decides."""
        # Drawn by their place on the way from the most to the least confident, so that no two are tied.
        place = rng.random(n)
        row = np.minimum(np.searchsorted(self.reached, place, side="right"), len(self.reached) - 1)
        wrong = rng.random(n) < self.wrong[row]
        certify = certify_decided if of == "decided" else certify_all
        found = certify(1 - place, wrong, np.ones(n), max_miss, delta)
        return 1 - found.threshold if found.reached else 0.0


def _populations(p: Pilot, calibrator: Calibrator | None) -> list[Population]:
    """Take the pilot's confidences, and how probable errors are: by temperature scaling, where it has labels.

    Then there are two more, of the ends of T's interval. Drawing the pilot's own errors would do without T. But a
    certificate hangs on confident errors, of which a pilot has few or none.
    """
    given, weights = p.log_probs(calibrator), p.weights
    if p.clusters is not None:  # one sample of each
        weights = weights / np.bincount(p.clusters, weights)[p.clusters]
    found = []
    for t in (1.0,) if p.labels is None else fitted_temperature(p, given):
        log_p = np.asarray(log_softmax(given / t, axis=1))
        # A map brings its own order of the samples. Without one it is that of the map that will be fitted.
        order = np.argsort(-(log_p if calibrator is None else given).max(axis=1), kind="stable")
        reached = np.cumsum(weights[order])
        found.append(Population(1 - np.exp(log_p.max(axis=1))[order], reached / reached[-1]))
    return found
