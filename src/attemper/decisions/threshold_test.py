"""Which test certifies a threshold: of independent samples, or of the clusters that they are of."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from attemper._checks import whole
from attemper._typing import Floats, Labels
from attemper.decisions.certificates import Certificate, certify_all, certify_decided, start_of
from attemper.decisions.clusters import Clustered, certify_clusters, pilot_clusters, thresholds_to_test
from attemper.decisions.policy import MissRateOf
from attemper.errors import InputError
from attemper.metrics.predictions import Predictions

__all__ = ["ThresholdTest", "Units", "draw_of_clusters"]


class Units(NamedTuple):
    """Clusters of which some have several samples: how many at most, and in which order they are bet on."""

    most: int
    order: Labels  # place of each cluster
    seed: int

    @classmethod
    def of(cls, p: Predictions, seed: int) -> Units | None:
        """Look at clusters; None where each has one sample, so that samples are independent."""
        if p.clusters is None:
            return None
        sizes = np.bincount(p.clusters, p.weights)
        if sizes.max() <= 1:
            return None
        return cls(int(sizes.max()), np.random.default_rng([seed, 0]).permutation(len(sizes)), seed)

    def divided(self, p: Predictions) -> tuple[Predictions, Predictions]:
        """Return the samples to test, and those of a part of the clusters, which fix the thresholds."""
        assert p.clusters is not None
        pilot = pilot_clusters(len(self.order), self.seed)[p.clusters]
        return p.rows(~pilot), p.rows(pilot)


class ThresholdTest(NamedTuple):
    """Samples that choose a threshold, and how it is tested."""

    p: Predictions
    of: MissRateOf
    other: Predictions | None  # samples that fix the start of the walk, or all thresholds
    units: Units | None = None  # None: samples are independent

    def certify(self, rows: NDArray[np.bool_], bound: float, delta: float, predicted: int | None = None) -> Certificate:
        """Certify some rows; ``other`` samples count if they are predicted so, or all if none is."""
        if not rows.any():
            return Certificate(1.0, False, "there is no such sample")
        p, other, values = self.p, self.other, np.zeros(0)
        if other is not None:
            own = np.full(len(other), predicted is None) | (other.prediction == predicted)
            values = other.confidence[own if own.any() else slice(None)]
        if self.units is not None:
            return self._of_clusters(self.units, rows, values, bound, delta)
        these = p.confidence[rows], ~p.right[rows], p.weights[rows], bound, delta
        if self.of == "all":
            return certify_all(*these)
        start = None
        if other is not None:
            start = start_of(values, np.ones(len(values)), int(p.weights[rows].sum()), bound, delta)
        return certify_decided(*these, start=start)

    def _of_clusters(
        self, units: Units, rows: NDArray[np.bool_], values: Floats, bound: float, delta: float
    ) -> Certificate:
        p, other = self.p, self.other
        assert p.clusters is not None
        place, cluster = np.unique(units.order[p.clusters[rows]], return_inverse=True)
        # What a cluster is worth, of the largest: as others show, which fix the test, or by a guess.
        mean = spread = 1 / np.sqrt(units.most)
        if other is not None and other.clusters is not None and len(other):
            sizes = np.minimum(np.unique(other.clusters, return_counts=True)[1], units.most) / units.most
            mean, spread = sizes.mean(), (sizes**2).mean()
        these = p.confidence[rows], ~p.right[rows], p.weights[rows], cluster
        samples = Clustered(*these, len(place), units.most, float(spread))
        walk = thresholds_to_test(self.of, values, float(mean) * len(place), bound, delta)
        return certify_clusters(self.of, samples, *walk, bound, delta)


def draw_of_clusters(p: Predictions, most: int | None, seed: int) -> Predictions:
    """Draw at most so many samples of each cluster; which ones does not depend on the order of the rows."""
    whole("seed", seed, at_least=0)
    if most is None:
        return p
    whole("max_per_cluster", most)
    if p.clusters is None:
        raise InputError(f"max_per_cluster={most!r}: belongs to clusters. Use it with clusters=….", param="clusters")
    if np.bincount(p.clusters, p.weights).max() <= most:
        return p
    ordered = np.lexsort((p.labels, p.prediction, p.confidence, p.clusters))
    repeated = np.repeat(ordered, p.weights[ordered].astype(np.int64))
    shuffled = repeated[np.lexsort((np.random.default_rng([seed, 2]).random(len(repeated)), p.clusters[repeated]))]
    case = p.clusters[shuffled]
    place = np.arange(len(case)) - np.searchsorted(case, case)  # within the cluster
    return p.weighted(np.bincount(shuffled[place < most], minlength=len(p)).astype(np.float64))
