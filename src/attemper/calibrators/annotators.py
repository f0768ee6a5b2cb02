"""Annotators who confuse certain classes with others: how likely that is at each temperature, and with which classes.

The model is explained in `attemper.kernels.transition`. Here it is evaluated at a few temperatures, closer and closer
to where the posterior lies, and for three values of b, which says how many classes the errors of one class go to.

A network that is itself partial to some classes makes labels look as if annotators confused them. So the evidence for
biases and scales of the network's own (`attemper.calibrators.shrunken`) speaks for annotators who err anywhere.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.interpolate import CubicSpline
from scipy.special import betaincinv, log_softmax

from attemper.arrays import one_line, to_numpy
from attemper.calibrators.shrunken import ShrunkenFit
from attemper.documents import Fields
from attemper.errors import FileError
from attemper.kernels import transition
from attemper.kernels.noisy import SOFTENING
from attemper.maps.affine import centred
from attemper.scores import Scores

__all__ = ["Annotators", "Confusions"]

Floats = NDArray[np.float64]

SPREADS = (1.0, 5.0, 25.0)  # b: errors of a class go to one other, to a few, to many
SIMILAR = 0.5  # share of B that is drawn from what the network finds similar; the rest goes anywhere
MAX_ROWS = 5000  # of a larger set this many tell enough about the annotators
OWN_ELEMENTS = 1 << 19  # of logits that tell enough about biases and scales of the network's own
NODES = 13
WIDE = 0.6  # share of the nodes over which the posterior extends when they are close enough
DROP = 30.0  # nats below the top where the posterior is taken to be zero
SHOWN = 20  # destinations told for each class, where there are more than DENSE classes
DENSE = 100


class Confusions(NamedTuple):
    """The transition matrix: row k says how samples of true class k are labelled.

    `BayesianTemperatureScaling` with ``noise="classwise"`` has it as ``confusions_``. With up to 100 classes all
    columns are there, in order. With more, only the 20 most likely ones of each row; what is missing of a row is spread
    evenly over the others.
    """

    columns: NDArray[np.int64]  # K×m
    mean: Floats  # K×m, posterior means
    low: Floats  # K×m, credible intervals
    high: Floats

    def __repr__(self) -> str:
        return one_line(self)

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
    def from_fields(content: Fields, n_classes: int) -> Confusions:
        """Read back what was saved."""
        numbers = [content.array(name, (n_classes, -1)) for name in Confusions._fields]
        within = (numbers[0] >= 0) & (numbers[0] < n_classes)  # what is beyond has no integer to be cast to
        columns = np.where(within, numbers[0], 0).astype(np.int64)
        ok = len({v.shape for v in numbers}) == 1 and (columns == numbers[0]).all() and columns.size > 0
        ok = ok and bool((np.diff(columns, axis=1) > 0).all())
        total = numbers[1].sum(axis=1)
        if not ok or any(v.min() < 0 for v in numbers) or total.min() <= 0 or total.max() > 1 + 1e-6:
            raise FileError(f"{content.where}: no transition matrix of {n_classes} classes")
        return Confusions(columns, *numbers[1:])

    @staticmethod
    def of(mean: Floats, square: Floats, level: float) -> Confusions:
        """Take the moments of each entry for those of a beta distribution."""
        k = len(mean)
        columns = np.broadcast_to(np.arange(k), (k, k))
        if k > DENSE:
            columns = np.sort(np.argpartition(-mean, SHOWN - 1, axis=1)[:, :SHOWN], axis=1)
            mean, square = (np.take_along_axis(v, columns, axis=1) for v in (mean, square))
        m = np.clip(mean, 1e-12, 1 - 1e-12)
        variance = np.clip(square - mean**2, 1e-9 * m * (1 - m), 0.999 * m * (1 - m))
        count = m * (1 - m) / variance - 1
        tails = (1 - level) / 2
        low, high = (np.asarray(betaincinv(m * count, (1 - m) * count, p), dtype=float) for p in (tails, 1 - tails))
        # Where an entry is almost surely zero, its mean may lie above the upper quantile.
        return Confusions(np.array(columns), np.array(mean), np.minimum(low, mean), np.maximum(high, mean))


class Node(NamedTuple):
    """One temperature, and what is found about the annotators there, for each of the spreads."""

    u: float
    found: tuple[transition.Errors, ...]


@dataclass(frozen=True, eq=False)
class Annotators:
    """Evidence for class-dependent errors as a function of log T."""

    data: transition.Candidates
    base: Floats  # K×K: B, with zeros on the diagonal
    softened: Floats  # K×K: what the network itself confuses when it is made unsure
    nodes: tuple[Node, ...]
    scale: float  # total weight, over that of the rows looked at
    own: float  # log-evidence for class structure of the network's own, where annotators err anywhere

    @classmethod
    def fit(
        cls,
        scores: Scores,
        log_range: tuple[float, float],
        log_prior: Callable[[Floats], Floats],
        temperature: float,
        rate: float,
    ) -> Annotators:
        """Look where the posterior lies, ever closer.

        ``temperature`` and ``rate`` of errors are those of annotators who err anywhere.
        """
        some = scores.sample(MAX_ROWS)
        h = to_numpy(some.logits).astype(np.float64, copy=False)
        assert some.labels is not None
        y, w = some.labels, some.weights
        scale = scores.total_weight / some.total_weight if some.total_weight > 0 else 1.0
        if w is not None:  # weight zero is no sample
            h, y, w = h[w > 0], y[w > 0], w[w > 0]
        data = transition.candidates(h, y, w)
        grid = np.linspace(*log_range, 4 * NODES)
        softened = _softened(h, w, float(np.exp(grid[log_prior(grid).argmax()])))
        base = _base(softened)
        own = scale * _own_structure(h, y, w, temperature, rate)
        self = cls(data, base, softened, (), scale, own)
        nodes = self._around(h, np.linspace(*log_range, NODES), log_prior, float(np.log(temperature)))
        for _ in range(4):
            value = self._posterior(nodes, log_prior)
            inside = np.flatnonzero(value > value.max() - DROP)
            first, last = max(inside[0] - 1, 0), min(inside[-1] + 1, len(nodes) - 1)
            if last - first > WIDE * (NODES - 1):
                break
            nodes = self._look(h, np.linspace(nodes[first].u, nodes[last].u, NODES))
        return cls(data, base, softened, tuple(nodes), scale, own)

    def _around(self, h: Floats, u: Floats, log_prior: Callable[[Floats], Floats], at: float) -> list[Node]:
        """Look at the u nearest to ``at``, then on both sides of it until the posterior has vanished."""
        low = high = int(np.abs(u - at).argmin())
        nodes = self._look(h, u[[low]])
        while True:
            value = self._posterior(nodes, log_prior)
            left, right = value[[0, -1]] > value.max() - DROP
            wide = high - low > WIDE * (len(u) - 1)  # nobody will look closer, so all are wanted
            if low > 0 and (left or wide):
                low -= 1
                nodes = self._look(h, u[[low]]) + nodes
            elif high < len(u) - 1 and (right or wide):
                high += 1
                nodes = nodes + self._look(h, u[[high]])
            else:
                return nodes

    def _posterior(self, nodes: list[Node], log_prior: Callable[[Floats], Floats]) -> Floats:
        """Log-posterior at the nodes, for the spread that explains most there."""
        curves = [self.scale * self._evidence(nodes, i) for i in range(len(SPREADS))]
        return np.asarray(np.max(curves, axis=0) + log_prior(np.array([node.u for node in nodes])))

    def similar(self) -> tuple[Floats, float]:
        """Return the law of labels that are drawn among the similar, for each true class; and how many are wrong."""
        total = self.softened.sum(axis=1, keepdims=True)
        rows = np.where(total > 0, self.softened / np.where(total > 0, total, 1), np.eye(len(total)))
        return rows, float(1 - np.trace(self.softened) / self.softened.sum())

    def log_evidence(self, u: Floats) -> list[Floats]:
        """Log-evidence at each u = log T, for each of the spreads; −inf outside of where it was looked for."""
        at = np.array([node.u for node in self.nodes])
        outside = (u < at[0]) | (u > at[-1])
        curves = (CubicSpline(at, self.scale * self._evidence(self.nodes, i))(u) for i in range(len(SPREADS)))
        return [np.where(outside, -np.inf, curve) for curve in curves]

    def moments(self, u: Floats, weights: list[Floats]) -> tuple[Floats, Floats, float, Floats]:
        """First and second moments of C, times its posterior probability; the rate of errors; the law of that rate.

        ``weights`` holds for each spread the posterior of u. The law is that of Beta(a, b) with rows (weight, a, b).
        """
        k = self.data.n_classes
        mean, square = np.zeros((k, k)), np.zeros((k, k))
        rate, laws = 0.0, []
        at = np.array([node.u for node in self.nodes])
        nearest = np.abs(u[:, None] - at).argmin(axis=1)
        for i, (spread, weight) in enumerate(zip(SPREADS, weights)):
            by_node = np.bincount(nearest, weight, len(at))
            for node, share in zip(self.nodes, by_node):
                if share > 1e-4 * by_node.sum() and share > 1e-6:
                    found = node.found[i]
                    self._add(found, spread, float(share), mean, square)
                    wrong = float(found.wrong.sum())
                    total = float(found.wrong.sum() + found.right.sum())
                    rate += float(share) * (wrong + 1) / (total + 5)
                    laws.append((float(share), wrong + 1, total - wrong + 4))
        return mean, square, rate, np.array(laws, dtype=np.float64).reshape(-1, 3)

    def _add(self, found: transition.Errors, b: float, share: float, mean: Floats, square: Floats) -> None:
        """Add the moments of C, with ε_k and D_k under their posteriors."""
        a = transition.POOLING
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

    def _look(self, h: Floats, u: Floats) -> list[Node]:
        """Find what is to be known at each u; each starts from what was found at the one before."""
        base = self.base[self.data.true, self.data.label]
        found: list[Node] = []
        for at in u:
            log_s, log_rest = _candidates(h, float(np.exp(at)), self.data)
            start = found[-1].found if found else None
            found.append(Node(float(at), transition.estimate(log_s, log_rest, self.data, base, SPREADS, start=start)))
        return found

    @staticmethod
    def _evidence(nodes: tuple[Node, ...] | list[Node], i: int) -> Floats:
        evidence = np.array([node.found[i].evidence for node in nodes])
        held_out = np.array([node.found[i].held_out for node in nodes])
        return np.asarray(held_out - held_out.max() + evidence.max())


def _candidates(h: Floats, t: float, data: transition.Candidates) -> tuple[Floats, Floats]:
    log_all = log_softmax(h / t, axis=1)
    if data.columns.shape[1] == h.shape[1]:
        return log_all, np.full(len(h), -np.inf)
    log_s = np.take_along_axis(log_all, data.columns, axis=1)
    return log_s, np.log(np.maximum(1 - np.exp(log_s).sum(axis=1), 1e-300))


def _own_structure(h: Floats, y: NDArray[np.int64], w: Floats | None, t: float, rate: float) -> float:
    """Log-evidence for biases and scales of the network's own; 0 if it speaks against them."""
    n, k = h.shape
    step = max(1, n * k // OWN_ELEMENTS)
    h, y, weights = h[::step], y[::step], np.ones(len(h[::step])) if w is None else w[::step]
    channel = np.log((1 - rate) * np.eye(k) + rate / k)
    fit = ShrunkenFit(centred(h, "mean", np) / t, y, weights, np.isneginf(h), channel, 2)
    return float(max(0.0, step * fit.log_evidence(*fit.by_evidence(tolerance=1e-4))))


def _softened(h: Floats, w: Floats | None, t: float) -> Floats:
    """How often the network takes class k for j when it is made unsure: Σ_i S_k(x_i, T) S_j(x_i, 3T)."""
    close, soft = (np.exp(log_softmax(h / s, axis=1)) for s in (t, SOFTENING * t))
    return transition.confusable(close, soft, w)


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
