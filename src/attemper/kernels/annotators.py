"""How labels come about: right, wrong at a rate (`Channel`), or by a transition matrix that is estimated.

A sample of true class k is labelled wrongly with probability ε_k, and then as j with probability D_kj::

    P(label j | x) = Σ_k S_k(x) C_kj,      C_kk = 1 − ε_k,   C_kj = ε_k D_kj

    ε_k ~ Beta(a ε, a (1 − ε))    rates of the classes, drawn towards one rate ε, which is estimated
    D_k ~ Dirichlet(b B_k)        where errors go, drawn towards B_k

The posterior of the true labels, of the rates and of the destinations is found by variational Bayes, which
also bounds the evidence from below: that bound is what values of b, and other explanations, are compared by.

True classes are looked for among the ``WIDTH`` most likely ones of each sample, and its label. The rest of the
probability is kept as one class of which nothing is known.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.interpolate import PchipInterpolator
from scipy.sparse import csr_array
from scipy.special import betaln, digamma, expit, gammaln, log_softmax, logit, logsumexp

from attemper._typing import Floats
from attemper.kernels.softmax import row_max

Ints = NDArray[np.int64]

WIDTH = 32
RATE = (1.0, 4.0)  # Beta prior of the common rate ε
LEAST = -690.0  # of log C: its exponential is no zero
IDLE = 1e-7  # counts of a pair, over the prior's, that change nothing
SOFTENING = 3.0  # errors go to classes that the network finds similar: by its probabilities at SOFTENING · T
SPREADS = (1.0, 5.0, 25.0)  # b: errors of a class go to one other, to a few, to many
SIMILAR = 0.5  # share of B that is drawn from what the network finds similar; the rest goes anywhere
FINE = np.linspace(logit(1e-5), logit(0.85), 400)  # log-odds of rates at which the posterior is summed
POOLING = 10.0  # a: how many samples of a class weigh as much as what all classes have in common


class State(NamedTuple):
    """What labels imply about logits."""

    log_likelihood: Floats  # of each label
    p: Floats  # probabilities of what is true
    d: Floats  # dℓ/dz
    info: Floats  # how much of a clean label's worth each label has


class Channel(NamedTuple):
    """How labels come about: right, or uniform over the classes at a rate, or by a matrix (true class × label)."""

    rate: float = 0.0
    matrix: Floats | None = None

    def apply(self, z: Floats, y: Ints, guess: Floats | float | None = None) -> State:
        """Return the log-likelihood of each label, with its derivatives; ``guess`` is 1/K without masked classes."""
        n, k = z.shape
        wrong = self.rate * (1 / k if guess is None else guess)
        if k == 2 and self.matrix is None:
            return self._of_two(z, y, wrong)
        rows = np.arange(n)
        p = z - row_max(z)[:, None]
        at = p[rows, y]
        np.exp(p, out=p)
        total = p @ np.ones(k)
        log_s = at - np.log(total)
        p *= (1 / total)[:, None]
        if self.matrix is not None:
            q = np.ascontiguousarray(self.matrix.T)[y]
            q *= p
            likelihood = np.maximum(q @ np.ones(k), 1e-300)
            q *= (1 / likelihood)[:, None]
            before, after = np.vecdot(p, 1 - p), np.vecdot(q, 1 - q)
            info = np.clip(1 - after / np.maximum(before, 1e-12), 0.05, 1)
            q -= p
            return State(np.log(likelihood), p, q, info)
        right = (1 - self.rate) * np.exp(log_s)
        share = right / (right + wrong) if self.rate > 0 else np.ones(n)  # of labels that are not a guess
        d = p * -share[:, None]
        d[rows, y] += share
        return State(np.log(right + wrong) if self.rate > 0 else log_s, p, d, share)

    def _of_two(self, z: Floats, y: Ints, wrong: Floats | float) -> State:
        """Do the same with one logarithm of the odds for each sample, three times as fast."""
        second = y == 1
        gap = z[:, 1] - z[:, 0]
        e = np.exp(-np.abs(gap))
        big, small = 1 / (1 + e), e / (1 + e)
        ahead = (gap > 0) == second
        s, missed = np.where(ahead, big, small), np.where(ahead, small, big)
        if self.rate > 0:
            right = (1 - self.rate) * s
            likelihood = right + wrong
            share, value = right / likelihood, np.log(likelihood)
        else:
            share, value = np.ones(len(y)), np.where(ahead, 0.0, -np.abs(gap)) - np.log1p(e)
        p = np.where(second, missed, s)
        d = np.where(second, -share, share) * missed
        return State(value, np.array([p, 1 - p]).T, np.array([d, -d]).T, share)


class Candidates(NamedTuple):
    """The classes that a sample may truly be of."""

    columns: Ints  # N×m classes
    pair: Ints  # N×m numbers of the pair (class, label) among all that occur
    true: Ints  # class of each pair
    label: Ints  # label of each pair
    weights: Floats
    n_classes: int


class Errors(NamedTuple):
    """What was found about the annotators at one temperature."""

    evidence: float  # lower bound of the log-evidence
    rate: float  # ε, in common
    right: Floats  # expected number of samples of each class with the right label
    wrong: Floats  # and with a wrong one
    counts: Floats  # the wrong ones by pair; 0 for pairs that are right


def candidates(h: NDArray[Any], y: Ints, w: Floats) -> Candidates:
    """Choose the classes in question for each sample."""
    (n, k), width = h.shape, WIDTH
    if k <= width:
        columns = np.broadcast_to(np.arange(k), (n, k))
    else:
        columns = np.argpartition(-h, width - 1, axis=1)[:, :width]
        missing = ~(columns == y[:, None]).any(axis=1)
        least = np.take_along_axis(h, columns, axis=1).argmin(axis=1)
        columns[missing, least[missing]] = y[missing]
    codes, pair = np.unique(columns * k + y[:, None], return_inverse=True)
    return Candidates(columns.astype(np.int64), pair.reshape(columns.shape), codes // k, codes % k, w, k)


def estimate(
    log_s: Floats,
    log_rest: Floats,
    data: Candidates,
    base: Floats,
    spreads: Sequence[float],
    *,
    start: Sequence[Errors] | None = None,
    steps: int = 60,
    tolerance: float = 1e-3,
) -> tuple[Errors, ...]:
    """Posterior of rates and destinations, given log S of the candidates (N×m) and of all other classes together.

    ``base`` is B for each pair; that of pairs that are right does not count. ``spreads`` are values of b, each of which
    has an answer of its own; they go side by side, as most of the work on small sets is that of calling NumPy.
    ``start`` is what was found nearby.
    """
    k, w, total = data.n_classes, data.weights, float(data.weights.sum())
    is_right, true = data.true == data.label, data.true
    rights = np.flatnonzero(is_right)
    first = np.flatnonzero(np.diff(true, prepend=-1))  # pairs are in the order of their true classes
    s, rest = np.exp(log_s), np.exp(log_rest)[:, None] / max(k - 1, 1)
    # N × pairs: its products with C are the probabilities of the labels, those of its transpose the counts.
    entries = (s.ravel(), data.pair.ravel().astype(np.int32), np.arange(0, s.size + 1, s.shape[1], dtype=np.int32))
    by_sample = csr_array(entries, shape=(len(s), len(true)))
    by_pair = by_sample.T
    b = np.asarray(spreads, dtype=np.float64)[:, None]
    prior = np.where(is_right, 1.0, b * base)
    at_start, slope = gammaln(prior), digamma(prior)
    if start is None:
        found = np.tile(by_pair @ w, (len(b), 1))
    else:
        found = np.where(is_right, [v.right[true] for v in start], [v.counts for v in start])
    running, last = np.arange(len(b)), np.full(len(b), -np.inf)
    ended: dict[int, Errors] = {}
    for step in range(steps):
        wrong, right = np.zeros((2, len(b), k))
        right[:, true[rights]] = found[:, rights]
        counts = found
        counts[:, rights] = 0.0
        wrong[:, true[first]] = np.add.reduceat(counts, first, axis=1)
        rate = (wrong.sum(axis=1, keepdims=True) + RATE[0]) / (total + sum(RATE))
        r0, w0 = POOLING * (1 - rate), POOLING * rate
        both = digamma(right + wrong + POOLING)
        log_right, log_wrong = digamma(right + r0) - both, digamma(wrong + w0) - both
        elsewhere = digamma(b + wrong)
        # Most pairs of many classes are as at the start, and these functions are what costs most.
        busy = np.nonzero(counts > IDLE * prior)
        after = (prior + counts)[busy]
        value, slope_there = gammaln(after), digamma(after)
        where = slope.copy()
        where[busy] = slope_there
        cost = np.sum(
            betaln(w0, r0)
            - betaln(wrong + w0, right + r0)
            + wrong * (log_wrong - elsewhere)
            + right * log_right
            + gammaln(b + wrong)
            - gammaln(b),
            axis=1,
        )
        cost += np.bincount(busy[0], at_start[busy] - value + counts[busy] * slope_there, len(b))
        log_c = where
        log_c += (log_wrong - elsewhere).take(true, axis=1)
        log_c[:, rights] = log_right[:, true[rights]]
        # The least of C keeps a row with a vanishing S from a sum of 0, whose logarithm is infinite.
        c = np.exp(np.maximum(log_c, LEAST))
        z = by_sample @ c.T + rest * rate.T
        evidence = w @ np.log(z) - cost
        evidence += (RATE[0] - 1) * np.log(rate[:, 0]) + (RATE[1] - 1) * np.log1p(-rate[:, 0])
        over = (evidence - last < tolerance) & (step > 2) | (step == steps - 1)
        for i in np.flatnonzero(over):
            ended[int(running[i])] = Errors(float(evidence[i]), float(rate[i, 0]), right[i], wrong[i], counts[i])
        if over.all():
            break
        found = c * (by_pair @ (w[:, None] / z)).T
        if over.any():
            rows = (running, b, prior, at_start, slope, evidence, found)
            running, b, prior, at_start, slope, evidence, found = (v[~over] for v in rows)
        last = evidence
    return tuple(ended[i] for i in range(len(spreads)))


@dataclass(frozen=True, eq=False)
class Annotators:
    """What is found about class-dependent errors, for each of the spreads."""

    data: Candidates
    base: Floats  # K×K: B, with zeros on the diagonal
    found: tuple[Errors, ...]

    @classmethod
    def fit(cls, z: Floats, y: Ints, w: Floats, start: Annotators | None = None) -> Annotators:
        """Find the errors of labels, given the logits of what is true."""
        log_p = log_softmax(z, axis=1)
        if start is None:
            data, base = candidates(z, y, w), _base(z, np.exp(log_p) * w[:, None])
        else:
            data, base = start.data, start.base
        log_s, log_rest = log_p, np.full(len(z), -np.inf)
        if data.columns.shape[1] < z.shape[1]:
            log_s = np.take_along_axis(log_p, data.columns, axis=1)
            log_rest = np.log(np.maximum(1 - np.exp(log_s).sum(axis=1), 1e-300))
        before = None if start is None else start.found
        found = estimate(log_s, log_rest, data, base[data.true, data.label], SPREADS, start=before)
        return cls(data, base, found)

    @property
    def weights(self) -> Floats:
        """Posterior probability of each spread."""
        found = np.array([errors.evidence for errors in self.found])
        return np.asarray(np.exp(found - logsumexp(found)))

    @property
    def log_evidence(self) -> float:
        """Lower bound of it, on average over the spreads."""
        return float(logsumexp([errors.evidence for errors in self.found]) - np.log(len(SPREADS)))

    @property
    def law(self) -> tuple[float, float]:
        """Posterior of the rate of wrong labels, as a and b of a beta law."""
        wrong = sum(float(share * found.wrong.sum()) for share, found in zip(self.weights, self.found))
        total = sum(float(share * (found.wrong + found.right).sum()) for share, found in zip(self.weights, self.found))
        a, b = RATE
        return wrong + a, total - wrong + b

    @property
    def rate(self) -> float:
        """Posterior mean of it."""
        a, b = self.law
        return a / (a + b)

    def moments(self) -> tuple[Floats, Floats]:
        """First and second moments of the transition matrix, with ε_k and D_k under their posteriors."""
        k, a = self.data.n_classes, POOLING
        weights = np.where(self.weights < 1e-6, 0.0, self.weights)
        mean, square = np.zeros((k, k)), np.zeros((k, k))
        for share, b, found in zip(weights / weights.sum(), SPREADS, self.found):
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
        return mean, square


def _base(z: Floats, weighed: Floats) -> Floats:
    """B: half of it spread evenly, half as the network itself confuses classes when it is made unsure."""
    k = z.shape[1]
    similar = weighed.T @ np.exp(log_softmax(z / SOFTENING, axis=1))  # Σ_i w_i S_k(x_i) S_j(x_i, softer)
    np.fill_diagonal(similar, 0.0)
    total = similar.sum(axis=1, keepdims=True)
    even = np.full((k, k), 1 / (k - 1))
    base = SIMILAR * np.where(total > 0, similar / np.where(total > 0, total, 1), even) + (1 - SIMILAR) * even
    np.fill_diagonal(base, 0.0)
    return np.asarray(base / base.sum(axis=1, keepdims=True))


class RateLaw(NamedTuple):
    """Posterior of a rate: its values, their probabilities (what is missing is that of zero), and the log-evidence."""

    rate: Floats
    weight: Floats
    log_evidence: float

    @property
    def mean(self) -> float:
        """Posterior mean."""
        return float(self.weight @ self.rate)


def rate_law(rates: Floats, log_evidence: Floats, shape: tuple[float, float], probability: float) -> RateLaw:
    """Posterior of a rate with log-evidence at rates that descend to zero; Beta prior and a spike at zero."""
    v, values, at_zero = logit(rates[:-1])[::-1], log_evidence[:-1][::-1], log_evidence[-1]
    rate, (a, b) = expit(FINE), shape
    curve = PchipInterpolator(v, values)(np.clip(FINE, v[0], v[-1]))
    small = v[0] > FINE  # below, the likelihood is linear in the rate
    curve[small] = at_zero + (values[0] - at_zero) * rate[small] / expit(v[0])
    width = np.log(FINE[1] - FINE[0])
    log_prior = a * np.log(rate) + b * np.log1p(-rate) - betaln(a, b) + width + np.log(probability)
    spike = at_zero + np.log(1 - probability) if probability < 1 else -np.inf
    total = float(logsumexp(np.append(curve + log_prior, spike)))
    return RateLaw(rate, np.exp(curve + log_prior - total), total)
