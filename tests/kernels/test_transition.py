import math

import numpy as np
import pytest
from scipy.special import betaln, digamma, gammaln, log_softmax

from attemper.kernels import transition

from data import draw


def naive_step(s, y, w, base, b, found):
    """One step of variational Bayes by loops over samples and classes.

    ``found[k][j]``: expected number of samples of class k with label j. Returns the same after the step, the evidence
    before it, the rate, and the mean of C under the posterior that ``found`` makes.
    """
    n, k = s.shape
    wrong = [sum(found[c][j] for j in range(k) if j != c) for c in range(k)]
    right = [found[c][c] for c in range(k)]
    rate = (sum(wrong) + 1) / (sum(w) + 5)
    r0, w0 = 10 * (1 - rate), 10 * rate
    log_right = [digamma(right[c] + r0) - digamma(right[c] + wrong[c] + 10) for c in range(k)]
    log_wrong = [digamma(wrong[c] + w0) - digamma(right[c] + wrong[c] + 10) for c in range(k)]
    evidence = 3 * math.log(1 - rate)
    log_c = np.zeros((k, k))
    for c in range(k):
        # Minus the Kullback–Leibler divergences of ε_c and of D_c from their priors.
        evidence += betaln(wrong[c] + w0, right[c] + r0) - betaln(w0, r0)
        evidence -= wrong[c] * log_wrong[c] + right[c] * log_right[c]
        evidence += gammaln(b) - gammaln(b + wrong[c])
        for j in range(k):
            if j == c:
                log_c[c, j] = log_right[c]
                continue
            where = digamma(b * base[c, j] + found[c][j]) - digamma(b + wrong[c])
            log_c[c, j] = log_wrong[c] + where
            evidence += gammaln(b * base[c, j] + found[c][j]) - gammaln(b * base[c, j]) - found[c][j] * where
    after = np.zeros((k, k))
    for i in range(n):
        joint = [s[i, c] * math.exp(log_c[c, y[i]]) for c in range(k)]
        evidence += w[i] * math.log(sum(joint))
        for c in range(k):
            after[c, y[i]] += w[i] * joint[c] / sum(joint)
    return after, evidence, rate, log_c


def naive_start(s, y, w):
    found = np.zeros((s.shape[1],) * 2)
    for i, label in enumerate(y):
        found[:, label] += w[i] * s[i]
    return found


def even(k):
    return np.where(np.eye(k) == 1, 0.0, 1 / (k - 1))


def confused(n=1500, k=4, rate=0.3, seed=0):
    """Samples of which a share of each class is labelled as the next one."""
    h, y = draw(n, k, scale=4.0, t=1.0, seed=seed)
    flip = np.random.default_rng(seed + 1).random(n) < rate
    return h, np.where(flip, (y + 1) % k, y)


def run(h, y, w=None, b=5.0, base=None, width=transition.WIDTH, **more):
    data = transition.candidates(h, y, w, width)
    log_all = log_softmax(h, axis=1)
    log_s = np.take_along_axis(log_all, data.columns, axis=1)
    whole = data.columns.shape[1] == h.shape[1]
    with np.errstate(divide="ignore"):
        rest = np.full(len(h), -np.inf) if whole else np.log(np.maximum(1 - np.exp(log_s).sum(axis=1), 0))
    base = even(h.shape[1]) if base is None else base
    if "start" in more:
        more["start"] = [more["start"]]
    (found,) = transition.estimate(log_s, rest, data, base[data.true, data.label], [b], **more)
    return data, found


def as_matrix(data, found):
    k = data.n_classes
    matrix = np.zeros((k, k))
    matrix[data.true, data.label] = found.counts
    matrix[np.diag_indices(k)] += found.right
    return matrix


@pytest.mark.parametrize("steps", [1, 2, 5])
@pytest.mark.parametrize("weighted", [False, True])
def test_steps_and_their_evidence_are_those_of_plain_loops(steps, weighted):
    h, y = confused(40, 3)
    rng = np.random.default_rng(5)
    w = rng.uniform(0.2, 3, 40) if weighted else np.ones(40)
    base = rng.dirichlet(np.ones(3), 3) * (1 - np.eye(3))
    base /= base.sum(axis=1, keepdims=True)
    s = np.exp(log_softmax(h, axis=1))
    found = naive_start(s, y, w)
    for _ in range(steps - 1):
        found, *_ = naive_step(s, y, w, base, 2.0, found)
    _, evidence, rate, _ = naive_step(s, y, w, base, 2.0, found)
    data, got = run(h, y, w if weighted else None, b=2.0, base=base, steps=steps, tolerance=-np.inf)
    # The counts belong to the evidence: those before the last update, which would belong to the next.
    np.testing.assert_allclose(as_matrix(data, got), found, rtol=1e-9, atol=1e-12)
    assert got.evidence == pytest.approx(evidence, abs=1e-8)
    assert got.rate == pytest.approx(rate, rel=1e-12)


def test_the_evidence_is_below_the_true_one():
    # Two samples of two classes: all true labels, rates on a grid, D has no freedom.
    h, y = np.array([[1.0, 0.0], [0.0, 2.0]]), np.array([0, 0])
    _, found = run(h, y, b=1.0, steps=500, tolerance=1e-12)
    s = np.exp(log_softmax(h, axis=1))
    grid = (np.arange(400) + 0.5) / 400
    r0, w0 = 10 * (1 - found.rate), 10 * found.rate
    density = np.exp((w0 - 1) * np.log(grid) + (r0 - 1) * np.log1p(-grid) - betaln(w0, r0)) / 400
    total = 0.0
    for p, e in zip(density, grid):
        for q, f in zip(density, grid):
            total += p * q * math.prod(s[i, 0] * (1 - e) + s[i, 1] * f for i in range(2))
    exact = math.log(total) + 3 * math.log(1 - found.rate)
    assert exact - 0.2 < found.evidence < exact + 1e-3


@pytest.mark.parametrize("weighted", [False, True])
def test_held_out_is_a_loop_that_leaves_one_out(weighted):
    h, y = confused(40, 3)
    w = np.random.default_rng(5).uniform(0.2, 1, 40) if weighted else np.ones(40)
    b, base, s = 2.0, even(3), np.exp(log_softmax(h, axis=1))
    data, found = run(h, y, w if weighted else None, b=b, steps=300, tolerance=1e-10)
    counts = as_matrix(data, found)
    _, _, rate, log_c = naive_step(s, y, w, base, b, counts)
    expected = 0.0
    for i in range(40):
        joint = [s[i, c] * math.exp(log_c[c, y[i]]) for c in range(3)]
        others = counts.copy()
        others[:, y[i]] -= w[i] * np.array(joint) / sum(joint)
        likelihood = 0.0
        for c in range(3):
            right = others[c, c] + 10 * (1 - rate)
            errors = max(sum(others[c]) - others[c, c], 0.0)
            wrong = errors + 10 * rate
            if c == y[i]:
                likelihood += s[i, c] * right / (right + wrong)
            else:
                where = (b * base[c, y[i]] + max(others[c, y[i]], 0.0)) / (b + errors)
                likelihood += s[i, c] * wrong / (right + wrong) * where
        expected += w[i] * math.log(likelihood)
    assert found.held_out == pytest.approx(expected, abs=1e-4)


def test_rates_and_destinations_are_found():
    k, n = 5, 4000
    h, y = draw(n, k, scale=5.0, t=1.0)
    rng = np.random.default_rng(1)
    rates = np.array([0.0, 0.1, 0.2, 0.3, 0.5])
    flip = rng.random(n) < rates[y]
    observed = np.where(flip, (y + rng.choice([1, 3], n, p=[0.8, 0.2])) % k, y)
    data, found = run(h, observed)
    counts = as_matrix(data, found)
    np.testing.assert_allclose(found.wrong / (found.wrong + found.right), rates, atol=0.05)
    for c in range(1, k):
        shares = counts[c] / found.wrong[c]
        assert shares[(c + 1) % k] == pytest.approx(0.8, abs=0.12)
        assert shares[(c + 3) % k] == pytest.approx(0.2, abs=0.12)
    assert found.rate == pytest.approx(np.mean(rates[y]), abs=0.03)


def test_confusable_is_a_sum_over_samples():
    rng = np.random.default_rng(0)
    s, soft, w = rng.dirichlet(np.ones(3), 6), rng.dirichlet(np.ones(3), 6), rng.uniform(size=6)
    for weights in (None, w):
        expected = np.zeros((3, 3))
        for i in range(6):
            for a in range(3):
                for b in range(3):
                    expected[a, b] += (1.0 if weights is None else w[i]) * s[i, a] * soft[i, b]
        np.testing.assert_allclose(transition.confusable(s, soft, weights), expected)
