"""Annotators who confuse certain classes with others: which classes, and how likely that account of the labels is.

The model is explained in `attemper.kernels.transition`. Here it is evaluated for given logits (temperature and biases
are found with it: `attemper.calibrators.explanations`) and for three values of b, which is how many classes the
errors of one class go to.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaincinv, log_softmax, logsumexp

from attemper._table import Columns, Table
from attemper._typing import Floats
from attemper.data.arrays import one_line
from attemper.kernels import transition
from attemper.kernels.noisy import SOFTENING

__all__ = ["Annotators", "Confusions"]


# `make annotators` (benchmarks/annotators.py) measures the method with these; SPREADS, SIMILAR and POOLING of
# `attemper.kernels.transition` were set by hand on its sets, and no sweep of them is kept. The others limit time.
SPREADS = (1.0, 5.0, 25.0)  # b: errors of a class go to one other, to a few, to many
SIMILAR = 0.5  # share of B that is drawn from what the network finds similar; the rest goes anywhere
SHOWN = 20  # destinations kept for each class, where there are more than DENSE classes
DENSE = 100


class _Confusions(NamedTuple):
    columns: NDArray[np.int64]  # K×m
    mean: Floats  # K×m, posterior means
    low: Floats  # K×m, credible intervals
    high: Floats


class Confusions(_Confusions, Table):
    """The transition matrix: row k is how samples of true class k are labelled.

    `BayesianTemperatureScaling` and `StructuredScaling` with ``labels="noisy"`` have it as ``confusions_``, with
    ``noise="auto"`` (up to 1000 classes) or ``noise="classwise"``. With up to 100 classes all columns are there, in
    order. With more, only the 20 most likely ones of each row; what is missing of a row is spread evenly over the
    others.
    """

    __slots__ = ()
    __repr__ = one_line

    def _table_columns(self) -> Columns:
        k, m = self.columns.shape
        found = {"label": self.columns, "share": self.mean, "low": self.low, "high": self.high}
        return {"true_class": np.repeat(np.arange(k), m)} | {name: values.ravel() for name, values in found.items()}

    @property
    def matrix(self) -> Floats:
        """The posterior means as a K×K matrix whose rows add up to one."""
        k, m = self.columns.shape
        rest = np.maximum(1 - self.mean.sum(axis=1, keepdims=True), 0) / max(k - m, 1)
        full = np.repeat(rest if m < k else np.zeros((k, 1)), k, axis=1)
        np.put_along_axis(full, self.columns, self.mean, axis=1)
        return np.asarray(full / full.sum(axis=1, keepdims=True))

    def worst(self, count: int = 5) -> list[tuple[int, int, float, float, float]]:
        """Return the most frequent confusions that are surely there: true class, label, share and its interval."""
        wrong = np.where(self.columns == np.arange(len(self.columns))[:, None], -1.0, self.mean)
        order = np.argsort(-wrong, axis=None, kind="stable")[:count]
        found = [np.unravel_index(i, wrong.shape) for i in order]
        return [
            (int(i[0]), int(self.columns[i]), float(self.mean[i]), float(self.low[i]), float(self.high[i]))
            for i in found
            if wrong[i] > 0.02
        ]

    @staticmethod
    def of(mean: Floats, square: Floats, credible_level: float) -> Confusions:
        """Take the moments of each entry for those of a beta distribution."""
        k = len(mean)
        columns = np.broadcast_to(np.arange(k), (k, k))
        if k > DENSE:
            columns = np.sort(np.argpartition(-mean, SHOWN - 1, axis=1)[:, :SHOWN], axis=1)
            mean, square = (np.take_along_axis(v, columns, axis=1) for v in (mean, square))
        m = np.clip(mean, 1e-12, 1 - 1e-12)
        variance = np.clip(square - mean**2, 1e-9 * m * (1 - m), 0.999 * m * (1 - m))
        count = m * (1 - m) / variance - 1
        tails = (1 - credible_level) / 2
        low, high = (np.asarray(betaincinv(m * count, (1 - m) * count, p), dtype=float) for p in (tails, 1 - tails))
        # Where an entry is almost surely zero, its mean may lie above the upper quantile.
        return Confusions(np.array(columns), np.array(mean), np.minimum(low, mean), np.maximum(high, mean))


@dataclass(frozen=True, eq=False)
class Annotators:
    """What is found about class-dependent errors, for each of the spreads."""

    data: transition.Candidates
    base: Floats  # K×K: B, with zeros on the diagonal
    found: tuple[transition.Errors, ...]

    @classmethod
    def fit(cls, z: Floats, y: NDArray[np.int64], w: Floats, *, start: Annotators | None = None) -> Annotators:
        """Find the errors of labels, given the logits of what is true."""
        log_p = log_softmax(z, axis=1)
        if start is None:
            data = transition.candidates(z, y, w)
            softer = np.exp(log_softmax(z / SOFTENING, axis=1))
            base = _base(transition.confusable(np.exp(log_p), softer, w))
        else:
            data, base = start.data, start.base
        log_s, log_rest = log_p, np.full(len(z), -np.inf)
        if data.columns.shape[1] < z.shape[1]:
            log_s = np.take_along_axis(log_p, data.columns, axis=1)
            log_rest = np.log(np.maximum(1 - np.exp(log_s).sum(axis=1), 1e-300))
        before = None if start is None else start.found
        found = transition.estimate(log_s, log_rest, data, base[data.true, data.label], SPREADS, start=before)
        return cls(data, base, found)

    @property
    def weights(self) -> Floats:
        """Posterior probability of each spread."""
        evidence = np.array([found.evidence for found in self.found])
        return np.asarray(np.exp(evidence - logsumexp(evidence)))

    @property
    def log_evidence(self) -> float:
        """Lower bound of it, on average over the spreads."""
        return float(logsumexp([found.evidence for found in self.found]) - np.log(len(SPREADS)))

    @property
    def law(self) -> tuple[float, float]:
        """Posterior of the rate of wrong labels, as a and b of a beta law."""
        wrong = sum(float(share * found.wrong.sum()) for share, found in zip(self.weights, self.found))
        total = sum(float(share * (found.wrong + found.right).sum()) for share, found in zip(self.weights, self.found))
        a, b = transition.RATE
        return wrong + a, total - wrong + b

    @property
    def rate(self) -> float:
        """Posterior mean of it."""
        a, b = self.law
        return a / (a + b)

    @property
    def matrix(self) -> Floats:
        """Posterior mean of the transition matrix."""
        return self.moments()[0]

    def moments(self) -> tuple[Floats, Floats]:
        """First and second moments of the transition matrix, with ε_k and D_k under their posteriors."""
        k, a = self.data.n_classes, transition.POOLING
        mean, square = np.zeros((k, k)), np.zeros((k, k))
        for share, b, found in zip(self.weights, SPREADS, self.found):
            if share < 1e-6:
                continue
            wrong, both = found.wrong + a * found.rate, found.wrong + found.right + a
            e1, e2 = wrong / both, wrong * (wrong + 1) / (both * (both + 1))
            d = b * self.base
            np.add.at(d, (self.data.true, self.data.label), found.counts)
            total = (b + found.wrong)[:, None]
            off1, off2 = e1[:, None] * d / total, e2[:, None] * d * (d + 1) / (total * (total + 1))
            np.fill_diagonal(off1, 1 - e1)
            np.fill_diagonal(off2, 1 - 2 * e1 + e2)
            mean += share * off1
            square += share * off2
        return mean / self.weights[self.weights >= 1e-6].sum(), square / self.weights[self.weights >= 1e-6].sum()


def _base(softened: Floats) -> Floats:
    """B: half of it spread evenly, half as the network itself confuses classes when it is made unsure."""
    k = len(softened)
    similar = softened.copy()
    np.fill_diagonal(similar, 0.0)
    total = similar.sum(axis=1, keepdims=True)
    even = np.full((k, k), 1 / (k - 1))
    base = SIMILAR * np.where(total > 0, similar / np.where(total > 0, total, 1), even) + (1 - SIMILAR) * even
    np.fill_diagonal(base, 0.0)
    return np.asarray(base / base.sum(axis=1, keepdims=True))
