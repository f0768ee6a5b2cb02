"""Labels whose errors depend on the class: the transition matrix, with all that the data do not determine pooled.

A sample of true class k is labelled wrongly with probability ε_k, and then as j with probability D_kj::

    P(label j | x) = Σ_k S_k(x) C_kj,      C_kk = 1 − ε_k,   C_kj = ε_k D_kj

    ε_k ~ Beta(a ε, a (1 − ε))    rates of the classes, drawn towards one rate ε, which is estimated
    D_k ~ Dirichlet(b B_k)        where errors go, drawn towards B_k

The posterior of the true labels, of the rates and of the destinations is found by variational Bayes, which
also bounds the evidence from below: that bound is what values of b, and other explanations, are compared by. For
temperatures it is too kind to low ones where a class has few samples, as it takes each sample as confirmed by itself;
they are compared by the likelihood of each label when its sample is left out.

True classes are looked for among the ``WIDTH`` most likely ones of each sample, and its label. The rest of the
probability is kept as one class of which nothing is known.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.special import betaln, digamma, gammaln

from attemper._typing import Floats

__all__ = ["Candidates", "Errors", "candidates", "confusable", "estimate"]

Ints = NDArray[np.int64]

WIDTH = 32
RATE = (1.0, 4.0)  # Beta prior of the common rate ε
LEAST = -690.0  # of log C: its exponential is no zero
IDLE = 1e-7  # counts of a pair, over the prior's, that change nothing
# Set by hand on the sets of benchmarks/annotators.py; no sweep of it is kept.
POOLING = 10.0  # a: how many samples of a class weigh as much as what all classes have in common


class Candidates(NamedTuple):
    """The classes that a sample may truly be of."""

    columns: Ints  # N×m classes
    pair: Ints  # N×m numbers of the pair (class, label) among all that occur
    true: Ints  # class of each pair
    label: Ints  # label of each pair
    weights: Floats
    n_classes: int

    @property
    def right(self) -> NDArray[np.bool_]:
        """Which pairs are labels that are right."""
        return np.asarray(self.true == self.label)


class Errors(NamedTuple):
    """What was found about the annotators at one temperature."""

    evidence: float  # lower bound of the log-evidence
    held_out: float  # log-likelihood of each label, given all others
    rate: float  # ε, in common
    right: Floats  # expected number of samples of each class with the right label
    wrong: Floats  # and with a wrong one
    counts: Floats  # the wrong ones by pair; 0 for pairs that are right


def candidates(h: NDArray[Any], y: Ints, w: Floats | None, width: int = WIDTH) -> Candidates:
    """Choose the classes in question for each sample."""
    n, k = h.shape
    if k <= width:
        columns = np.broadcast_to(np.arange(k), (n, k))
    else:
        columns = np.argpartition(-h, width - 1, axis=1)[:, :width]
        missing = ~(columns == y[:, None]).any(axis=1)
        least = np.take_along_axis(h, columns, axis=1).argmin(axis=1)
        columns[missing, least[missing]] = y[missing]
    codes, pair = np.unique(columns * k + y[:, None], return_inverse=True)
    weights = np.ones(n) if w is None else w
    return Candidates(columns.astype(np.int64), pair.reshape(columns.shape), codes // k, codes % k, weights, k)


def confusable(s: NDArray[Any], softer: NDArray[Any], w: Floats | None) -> Floats:
    """Σ_i S_k(x_i) S_j(x_i, softer): how often the network takes class k for j when it is made unsure."""
    return np.asarray((s if w is None else s * w[:, None]).T @ softer, dtype=np.float64)


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
    is_right, true = data.right, data.true
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
        # Not all of a row may vanish: where S does, the least of C has to do.
        c = np.exp(np.maximum(log_c, LEAST))
        z = by_sample @ c.T + rest * rate.T
        evidence = w @ np.log(z) - cost
        evidence += (RATE[0] - 1) * np.log(rate[:, 0]) + (RATE[1] - 1) * np.log1p(-rate[:, 0])
        over = (evidence - last < tolerance) & (step > 2) | (step == steps - 1)
        for i in np.flatnonzero(over):
            ended[int(running[i])] = Errors(
                float(evidence[i]),
                _held_out(
                    s,
                    c[i],
                    z[:, i],
                    rest[:, 0],
                    data,
                    prior[i],
                    float(b[i, 0]),
                    float(rate[i, 0]),
                    right[i],
                    counts[i],
                    wrong[i],
                ),
                float(rate[i, 0]),
                right[i],
                wrong[i],
                counts[i],
            )
        if over.all():
            break
        found = c * (by_pair @ (w[:, None] / z)).T
        if over.any():
            rows = (running, b, prior, at_start, slope, evidence, found)
            running, b, prior, at_start, slope, evidence, found = (v[~over] for v in rows)
        last = evidence
    return tuple(ended[i] for i in range(len(spreads)))


def _held_out(
    s: Floats,
    c: Floats,
    z: Floats,
    rest: Floats,
    data: Candidates,
    prior: Floats,
    b: float,
    rate: float,
    right: Floats,
    counts: Floats,
    wrong: Floats,
) -> float:
    """Log-likelihood of each label when its own sample is left out of what was counted."""
    r0, w0 = POOLING * (1 - rate), POOLING * rate
    own = s * c.take(data.pair)
    own *= (np.minimum(data.weights, 1.0) / z)[:, None]
    # As if all pairs were wrong; those that are right, one for each sample at most, are put in their place afterwards.
    errors = wrong.take(data.columns) - own
    e = np.maximum(errors + w0, 0.0)
    share = e * (prior.take(data.pair) + np.maximum(counts.take(data.pair) - own, 0.0))
    share /= (b + np.maximum(errors, 0.0)) * ((right + r0).take(data.columns) + e)
    at = np.nonzero(data.right.take(data.pair))
    true = data.columns[at]
    r = right[true] + r0 - own[at]
    share[at] = r / (r + wrong[true] + w0)
    value = np.vecdot(s, share) + rate * rest
    return float(data.weights @ np.log(np.maximum(value, 1e-300)))
