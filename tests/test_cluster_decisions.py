"""Rules that decide or refer where a case has several samples: the unit is the cluster."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import beta, norm
from scipy.stats import t as student

from attemper.decisions import (
    Guarantee,
    Policy,
    clusters,
    outcome_of,
    policy_for_budget,
    policy_for_cost,
    policy_for_miss,
)
from attemper.decisions.clusters import (
    AIM,
    GUESS_COUNTS,
    Clustered,
    certify_clusters,
    pilot_clusters,
    thresholds_to_test,
)


def draw(n_clusters, seed=0, *, most=4, k=3, rate=0.5, correlation=0.7):
    """Probabilities of clusters of 1 to ``most`` samples whose confidences and errors are alike."""
    rng = np.random.default_rng(seed)
    cluster = np.repeat(np.arange(n_clusters), rng.integers(1, most + 1, size=n_clusters))
    common = rng.random(len(cluster)) < correlation
    u, v = (np.where(common, rng.random(n_clusters)[cluster], rng.random(len(cluster))) for _ in range(2))
    predicted = rng.integers(k, size=len(cluster))
    p = np.full((len(cluster), k), 0.0)
    p[np.arange(len(p)), predicted] = 1 - u / 2
    p[np.arange(len(p)), (predicted + 1) % k] = u / 2
    return p, (predicted + (v < rate * u)) % k, cluster


# The test of a threshold


def one_threshold(sizes, errors, most, alpha, delta, of="decided"):
    """Whether the bets on these clusters, all decided, pass."""
    cluster = np.repeat(np.arange(len(sizes)), sizes)
    place = np.arange(len(cluster)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    wrong = place < np.asarray(errors)[cluster]
    samples = Clustered(np.ones(len(cluster)), wrong, np.ones(len(cluster)), cluster, len(sizes), most, 0.5)
    return certify_clusters(of, samples, np.zeros(1), np.ones(1), alpha, delta).reached


@pytest.mark.parametrize(
    ("law", "alpha", "delta"),
    [  # probabilities of (samples, errors) of a cluster, whose rate of errors is alpha
        ({(1, 0): 0.5, (1, 1): 0.5}, 0.5, 0.1),
        ({(2, 0): 0.4, (2, 1): 0.2, (2, 2): 0.4}, 0.5, 0.1),
        ({(1, 0): 0.3, (1, 1): 0.1, (2, 0): 0.3, (2, 1): 0.05, (2, 2): 0.25}, 0.65 / 1.6, 0.2),
        ({(1, 0): 0.9, (3, 3): 0.1}, 0.25, 0.3),
        ({(3, 0): 0.75, (1, 1): 0.25}, 0.1, 0.7),
    ],
)
@pytest.mark.parametrize("steps", [2000, 2])
def test_the_test_of_every_outcome_has_its_level(law, alpha, delta, steps, monkeypatch):
    """Exactly: the probability over all outcomes of a few clusters, that are bet on one by one or together."""
    monkeypatch.setattr(clusters, "MOST_STEPS", steps)
    n = 5 if len(law) < 4 else 4
    assert sum(w * e for (_, e), w in law.items()) == pytest.approx(alpha * sum(w * m for (m, _), w in law.items()))
    most = max(m for m, _ in law)
    total = passed = 0.0
    for drawn in itertools.product(law, repeat=n):
        probability = math.prod(law[one] for one in drawn)
        sizes, errors = (np.array(column) for column in zip(*drawn))
        total += probability
        passed += probability * one_threshold(sizes, errors, most, alpha, delta)
    assert total == pytest.approx(1)
    assert passed <= delta + 1e-12


def bets(sizes, decided, wrong, most, spread, share, alpha, delta, of):
    """The obvious loop over clusters, for one threshold."""
    n, wealth, squares = len(sizes), 1.0, 0.0
    for i in range(n):
        gain = (alpha * (decided[i] if of == "decided" else sizes[i]) - wrong[i]) / most
        variance = (GUESS_COUNTS * alpha * (1 - alpha) * max(share, 1 / n) * spread + squares) / (GUESS_COUNTS + i)
        bet = 0.0
        if wealth * delta < 1 and wealth * delta >= 1e-12:
            chance = min(max(wealth * delta / AIM, 1e-12), 1 - 1e-12)
            bet = norm.pdf(norm.ppf(chance)) / chance / math.sqrt(variance * (n - i))
        wealth *= max(1 + min(bet, 1 / (1 - alpha)) * gain, 0)
        squares += gain**2
    return wealth * delta >= 1


@settings(max_examples=30, deadline=None)
@given(n=st.integers(5, 60), seed=st.integers(0, 1000), of=st.sampled_from(["decided", "all"]), most=st.integers(1, 4))
def test_the_walk_is_the_obvious_loop(n, seed, of, most):
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, most + 1, size=n)
    cluster = np.repeat(np.arange(n), sizes)
    confidence = rng.integers(1, 9, size=len(cluster)) / 8
    wrong = rng.random(len(cluster)) < 0.3 * (1.1 - confidence)
    rows = rng.permutation(len(cluster))
    thresholds, share = np.array([0.8, 0.5, 0.2, 0.0]), np.array([0.2, 0.5, 0.8, 1.0])
    alpha, delta = 0.3, 0.2
    samples = Clustered(confidence[rows], wrong[rows], np.ones(len(rows)), cluster[rows], n, most, 0.4)
    found = certify_clusters(of, samples, thresholds, share, alpha, delta)
    expected = 1.0
    for t, s in zip(thresholds, share):
        above = confidence > t
        decided, errors = np.bincount(cluster[above], minlength=n), np.bincount(cluster[above & wrong], minlength=n)
        if not bets(sizes, decided, errors, most, 0.4, s, alpha, delta, of):
            break
        expected = t
    assert found.threshold == expected
    assert found.reached == (expected < 1)


def test_clusters_of_one_sample_without_errors_need_as_many_as_samples():
    """The bets are then all that can be bet, and 59 right predictions pass as they do in the exact test."""
    assert one_threshold(np.ones(59, dtype=int), np.zeros(59), 1, 0.05, 0.05)
    assert not one_threshold(np.ones(58, dtype=int), np.zeros(58), 1, 0.05, 0.05)


def test_thresholds_are_those_of_other_samples():
    values = np.linspace(0.5, 1, 101)
    thresholds, share = thresholds_to_test("decided", values, 200.0, 0.05, 0.05)
    assert thresholds[-1] == 0
    assert (np.diff(thresholds) < 0).all()
    assert share[0] == pytest.approx(1.25 * 59 / 200, abs=0.02)  # more than what passes if all are right
    right = np.linspace(0.9, 1, 101)  # the test is the most likely to pass where more are decided: up to 2.5 times
    assert thresholds_to_test("decided", right, 100.0, 0.2, 0.05)[1][0] == pytest.approx(2.5 * 14 / 100, abs=0.02)
    assert thresholds_to_test("all", values, 200.0, 0.05, 0.05)[0][0] == pytest.approx(1)
    assert thresholds_to_test("decided", values, 10.0, 0.05, 0.05)[0].tolist() == [0]  # one test, of all
    assert len(thresholds_to_test("all", np.random.default_rng(0).random(5000), 9.0, 0.05, 0.05)[0]) == 201
    assert pilot_clusters(100, 0).sum() == 10


# Policies


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 100), kind=st.sampled_from(["decided", "all", "predicted", "true"]), text=st.booleans())
def test_clusters_of_one_sample_change_nothing(seed, kind, text):
    p, y, _ = draw(300, seed)
    ids = np.random.default_rng(seed).permutation(len(p))
    ids = ids.astype(str) if text else ids
    asked = {"per_class": kind} if kind in ("predicted", "true") else {}
    asked["miss_rate_of"] = "decided" if kind in ("decided", "predicted") else "all"
    for fit_probs in (None, p[:50].round(2)):
        plain = policy_for_miss(p, y, 0.2, fit_probs=fit_probs, **asked)
        assert policy_for_miss(p, y, 0.2, fit_probs=fit_probs, clusters=ids, **asked) == plain
        assert policy_for_miss(p, y, 0.2, fit_probs=fit_probs, clusters=ids, max_per_cluster=1, **asked) == plain
    assert outcome_of(plain, p, y, clusters=ids) == outcome_of(plain, p, y)
    assert policy_for_budget(p, 0.2, clusters=ids) == policy_for_budget(p, 0.2)
    costs = {"cost_refer": 1, "cost_miss": [2.0, 5.0, 9.0]}
    policy = policy_for_cost(p, y, **costs)
    assert policy_for_cost(p, y, clusters=ids, **costs) == policy
    assert outcome_of(policy, p, y, clusters=ids) == outcome_of(policy, p, y)


@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 100), most=st.sampled_from([None, 1, 2]))
def test_the_order_of_rows_does_not_matter(seed, most):
    p, y, cluster = draw(300, seed, rate=0.3)
    weights = np.random.default_rng(seed).integers(0, 3, size=len(p))
    rows = np.random.default_rng(seed + 1).permutation(len(p))
    asked = {"max_per_cluster": most, "seed": seed}
    policy = policy_for_miss(p, y, 0.2, clusters=cluster, sample_weight=weights, **asked)
    again = policy_for_miss(p[rows], y[rows], 0.2, clusters=cluster[rows], sample_weight=weights[rows], **asked)
    assert again == policy
    found, other = (
        outcome_of(policy, p[r], y[r], clusters=cluster[r], sample_weight=weights[r]) for r in (slice(None), rows)
    )
    assert found.all.miss_rate == pytest.approx(other.all.miss_rate)


def test_what_is_promised_and_kept(tmp_path):
    p, y, cluster = draw(600, rate=0.3)
    policy = policy_for_miss(p, y, 0.2, clusters=cluster)
    assert policy.reached
    assert (policy.n_samples, policy.n_clusters, policy.guarantee.max_per_cluster) == (len(p), 600, 4)
    one = policy_for_miss(p, y, 0.2, clusters=cluster, max_per_cluster=1)
    for each in (policy, one, policy_for_budget(p, 0.2, clusters=cluster)):
        each.save(tmp_path / "policy.json")
        assert Policy.load(tmp_path / "policy.json") == each


def test_one_of_each_is_a_draw_of_one_of_each():
    p, y, cluster = draw(300, rate=0.3)
    found = {policy_for_miss(p, y, 0.1, clusters=cluster, max_per_cluster=1, seed=s).threshold for s in range(20)}
    assert len(found) > 3  # other draws, other thresholds
    # Clusters whose samples are all alike: which of them is drawn does not matter.
    first = np.unique(cluster, return_index=True)[1]
    alike = policy_for_miss(p[first][cluster], y[first][cluster], 0.1, clusters=cluster, max_per_cluster=1)
    assert alike.threshold == policy_for_miss(p[first], y[first], 0.1).threshold


# Outcomes


def korn_graubard(held, weights, cluster, level):
    """The share, and its Clopper–Pearson interval for the effective number of samples."""
    share = np.average(held, weights=weights)
    names = np.unique(cluster)
    m = len(names)
    apart = [(weights * (held - share))[cluster == name].sum() for name in names]
    sizes = np.array([weights[cluster == name].sum() for name in names])
    rows, cases = (v.sum() ** 2 / (v @ v) for v in (weights, sizes))
    variance = np.square(apart).sum() / weights.sum() ** 2
    tail = (1 + level) / 2
    worth = min(share * (1 - share) / variance * (cases - 1) / cases, rows)
    worth *= (student.ppf(tail, max(rows - 1, cases - 1)) / student.ppf(tail, cases - 1)) ** 2
    assert m >= cases
    k = share * worth
    return share, beta.ppf(1 - tail, k, worth - k + 1), beta.ppf(tail, k + 1, worth - k)


@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 100), most=st.sampled_from([None, 1, 2, 4]))
def test_outcome_intervals_go_by_cluster(seed, most):
    p, y, cluster = draw(150, seed)
    guarantee = None if most is None else Guarantee(0.2, 0.95, "decided", None, most)
    policy = Policy(0.75, "by hand", 3, 0, guarantee)
    found = outcome_of(policy, p, y, clusters=cluster)
    decided, wrong = p.max(axis=1) > 0.75, p.argmax(axis=1) != y
    size = np.bincount(cluster)
    w = np.ones(len(p)) if most is None else (np.minimum(size, most) / size)[cluster]
    assert found.all.miss_rate == pytest.approx(
        korn_graubard(wrong[decided], w[decided], cluster[decided], 0.95), abs=1e-9
    )
    assert found.referred_share == pytest.approx(korn_graubard(~decided, np.ones(len(p)), cluster, 0.95), abs=1e-9)
    assert (found.all.n, found.all.missed, found.n_clusters) == (len(p), (wrong & decided).sum(), 150)


@pytest.mark.slow
def test_intervals_cover():
    rng, covered = np.random.default_rng(0), {"cluster": 0, "sample": 0}
    for seed in range(600):
        p, y, cluster = draw(80, seed, most=10, k=2, rate=0.4, correlation=0.8)
        policy = Policy(float(rng.uniform(0.55, 0.65)), "by hand", 2, 0)
        truth = 0.4 * (1 - policy.threshold)  # errors of u up to 2 (1 − t) have a rate of 0.4 u
        for name, ids in (("cluster", cluster), ("sample", None)):
            rate = outcome_of(policy, p, y, clusters=ids).all.miss_rate
            covered[name] += rate.low <= truth <= rate.high
    assert covered["cluster"] >= 0.93 * 600
    assert covered["sample"] < 0.85 * 600


# The guarantee


@pytest.mark.slow
@pytest.mark.parametrize("of", ["decided", "all"])
@pytest.mark.parametrize("correlation", [0.0, 0.62, 1.0])
def test_the_guarantee_holds(of, correlation):
    """The risk is a hair above the bound: at every threshold for "decided", else from a fixed threshold on."""
    draws, alpha, broken = 400, 0.2, {None: 0, 1: 0, "samples": 0}
    for seed in range(draws):
        rng = np.random.default_rng(seed)
        cluster = np.repeat(np.arange(100), rng.integers(1, 11, size=100))
        common = rng.random(len(cluster)) < math.sqrt(correlation)
        u, v = (np.where(common, rng.random(100)[cluster], rng.random(len(cluster))) for _ in range(2))
        wrong = v < (alpha * 1.0001 if of == "decided" else 0.5)
        u += 1e-9 * rng.random(len(u))
        p, y = np.column_stack([1 - u / 2.1, u / 2.1]), wrong.astype(int)
        for most in broken:
            asked = {} if most == "samples" else {"clusters": cluster, "max_per_cluster": most}
            policy = policy_for_miss(p, y, alpha, miss_rate_of=of, **asked)
            share = min(2.1 * (1 - policy.threshold), 1.0)
            broken[most] += share > 0 if of == "decided" else 0.5 * share > alpha
    allowed = 0.05 * draws + 3 * math.sqrt(0.05 * 0.95 * draws)
    assert max(broken[None], broken[1]) <= allowed
    if correlation:
        assert broken["samples"] > allowed


# Errors
