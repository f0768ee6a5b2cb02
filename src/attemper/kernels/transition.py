"""Labels whose errors depend on the class: the transition matrix, with everything that the data cannot tell pooled.

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

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaln, digamma, gammaln

__all__ = ["Candidates", "Errors", "candidates", "confusable", "estimate"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

WIDTH = 32
RATE = (1.0, 4.0)  # Beta prior of the common rate ε
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
    b: float,
    *,
    start: Errors | None = None,
    steps: int = 60,
    tolerance: float = 1e-3,
) -> Errors:
    """Posterior of rates and destinations, given log S of the candidates (N×m) and of all other classes together.

    ``base`` is B for each pair; that of pairs that are right does not count. ``start`` is what was found nearby.
    """
    k, right_pair = data.n_classes, data.right
    w, total = data.weights, float(data.weights.sum())
    prior = np.where(right_pair, 1.0, b * base)
    at_start = gammaln(prior)
    codes, last, rate = data.pair.ravel(), -np.inf, 0.1
    if start is None:
        found = _sums(codes, (np.exp(log_s) * w[:, None]).ravel(), len(prior))
    else:
        found = np.where(right_pair, start.right[data.true], start.counts)
    for step in range(steps):
        counts = np.where(right_pair, 0.0, found)
        wrong, right = (_sums(data.true, v, k) for v in (counts, found - counts))
        rate = float((wrong.sum() + RATE[0]) / (total + sum(RATE)))
        r0, w0 = POOLING * (1 - rate), POOLING * rate
        both = digamma(right + wrong + POOLING)
        log_right, log_wrong = digamma(right + r0) - both, digamma(wrong + w0) - both
        where = digamma(prior + counts) - digamma(b + wrong)[data.true]
        log_c = np.where(right_pair, log_right[data.true], log_wrong[data.true] + where)
        t = log_s + log_c[data.pair]
        unknown = log_rest + np.log(rate / max(k - 1, 1))
        top = np.maximum(t.max(axis=1), unknown)
        q = np.exp(t - top[:, None])
        z = q.sum(axis=1) + np.exp(unknown - top)
        evidence = float(w @ (np.log(z) + top))
        evidence -= float(
            np.sum(betaln(w0, r0) - betaln(wrong + w0, right + r0) + wrong * log_wrong + right * log_right)
            + np.sum(gammaln(b + wrong) - gammaln(b))
            + np.sum(np.where(right_pair, 0.0, at_start - gammaln(prior + counts) + counts * where))
        )
        evidence += (RATE[0] - 1) * np.log(rate) + (RATE[1] - 1) * np.log1p(-rate)
        if step > 2 and evidence - last < tolerance:
            break
        last = evidence
        found = _sums(codes, (q * (w / z)[:, None]).ravel(), len(prior))
    held_out = _held_out(log_s, unknown, q / z[:, None], data, prior, b, right + r0, wrong + w0, counts, wrong)
    return Errors(evidence, held_out, rate, right, wrong, counts)


def _sums(group: Ints, value: Floats, count: int) -> Floats:
    return np.asarray(np.bincount(group, value, count), dtype=np.float64)


def _held_out(
    log_s: Floats,
    unknown: Floats,
    q: Floats,
    data: Candidates,
    prior: Floats,
    b: float,
    right: Floats,
    wrong: Floats,
    counts: Floats,
    errors: Floats,
) -> float:
    """Log-likelihood of each label when its own sample is left out of what was counted."""
    own = np.minimum(data.weights, 1.0)[:, None] * q
    is_right = data.right[data.pair]
    r = right[data.columns] - np.where(is_right, own, 0.0)
    w, e = (np.maximum(v[data.columns] - np.where(is_right, 0.0, own), 0.0) for v in (wrong, errors))
    where = (prior[data.pair] + np.maximum(counts[data.pair] - own, 0.0)) / (b + e)
    c = np.where(is_right, r, w * where) / (r + w)
    value = np.sum(np.exp(log_s) * c, axis=1) + np.exp(unknown)
    return float(data.weights @ np.log(np.maximum(value, 1e-300)))
