"""Rules that decide or refer: what they guarantee, how they are chosen, kept and judged."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import beta, binom

from attemper.decisions import (
    Policy,
    outcome_of,
    policy_for_budget,
    policy_for_cost,
    policy_for_miss,
    refer_or_decide,
)
from attemper.decisions.certificates import (
    certify_all,
    certify_decided,
    most_errors,
    ranks_to_test,
    samples_needed,
    start_of,
)
from attemper.errors import InputError
from attemper.metrics import expected_cost

DRAWS = 2000
SIZES = (50, 200, 1000)

# Error rate of the share u of the surest samples, and its integral from 0. Confidence is 1 − u/2.
MODELS = {
    "rising": (lambda u: 0.01 + 0.5 * u**1.5, lambda u: 0.01 * u + 0.2 * u**2.5),
    "sure and wrong": (  # the risk falls, and rises again
        lambda u: np.where(u < 0.06, 0.5, 0.01 + 0.4 * (u - 0.06)),
        lambda u: np.where(u < 0.06, 0.5 * u, 0.03 + 0.01 * (u - 0.06) + 0.2 * (u - 0.06) ** 2),
    ),
}


def flat(rate):
    """Confidence that says nothing."""
    return lambda u: np.full_like(u, rate), lambda u: rate * u


def draw(n, k, seed=0):
    rng = np.random.default_rng(seed)
    p = rng.random((n, k)) ** 3 + 1e-3
    p = p / p.sum(axis=1, keepdims=True)
    return p, (p.cumsum(axis=1) < rng.random((n, 1))).sum(axis=1).clip(0, k - 1)


def two_classes(confidence, right):
    p = np.column_stack([confidence, 1 - confidence])
    return p, np.where(right, 0, 1)


def simulate(model, n, alpha, of, *, atoms=None, start=False, level=0.95, seed=0, draws=DRAWS):
    """Rate at which the true risk exceeds the bound, and the share that is decided on average.

    ``start``: other samples, half as many, fix the first test.
    """
    rate, integral = model
    rng = np.random.default_rng(seed)

    def certify(c, wrong):
        told = (c, wrong, np.ones(n), alpha, 1 - level)
        if of == "all":
            return certify_all(*told).threshold
        other = 1 - np.ceil(rng.random(n // 2) * atoms) / atoms / 2 if start else None
        first = start_of(other, np.ones(n // 2), n, alpha, 1 - level) if start else None
        return certify_decided(*told, start=first).threshold

    u = rng.random((draws, n))
    if atoms:
        u = np.ceil(u * atoms) / atoms  # confidences that are the same for whole groups
    # A group has the error rate of its middle, up to the curve of the integral.
    wrong = rng.random(u.shape) < (rate(u) if not atoms else (integral(u) - integral(u - 1 / atoms)) * atoms)
    thresholds = np.array([certify(1 - a / 2, b) for a, b in zip(u, wrong)])
    decided = np.minimum(2 * (1 - thresholds), 1.0)
    if atoms:  # c > t: groups below
        decided = np.where(thresholds == 0, 1.0, np.maximum(np.round(decided * atoms) - 1, 0) / atoms)
    risk = integral(decided) / (np.where(decided > 0, decided, 1) if of == "decided" else 1)
    return float((risk > alpha + 1e-12).mean()), float(decided.mean())


def most_allowed():
    """Three standard errors above the stated fraction of 5 %."""
    return 0.05 + 3 * math.sqrt(0.05 * 0.95 / DRAWS)


@pytest.mark.slow
@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("of", ["decided", "all"])
@pytest.mark.parametrize("alpha", [0.05, 0.2])
def test_the_guarantee_holds(n, of, alpha):
    models = [*MODELS.values(), flat(alpha * 1.0001 if of == "decided" else 0.3)]
    for model in models:
        for told in ({}, {"atoms": 10}, {"atoms": 10, "start": True})[: 3 if of == "decided" else 2]:
            broken, _ = simulate(model, n, alpha, of, **told)
            assert broken <= most_allowed()


def test_the_guarantee_is_not_idle():
    """Where the risk is a hair above the bound at every threshold, it is broken about as often as is allowed."""
    broken, _ = simulate(flat(0.2001), 200, 0.2, "decided")
    assert broken > 0.02
    broken, _ = simulate(flat(0.3), 1000, 0.05, "all")
    assert broken > 0.02


def test_the_guarantee_holds_for_every_class_at_once():
    rng = np.random.default_rng(0)
    n, k, alpha, level = 400, 3, 0.2, 0.9
    broken = {"predicted": 0, "true": 0}
    for _ in range(300):
        # Three predicted classes, with error rates of their own that rise with u; errors go to the next class.
        u, predicted = rng.random(n), rng.integers(k, size=n)
        wrong = rng.random(n) < np.array([0.1, 0.3, 0.6])[predicted] * u
        p = np.full((n, k), 0.0)
        p[np.arange(n), predicted] = 1 - u / 2
        p[np.arange(n), (predicted + 1) % k] = u / 2
        y = (predicted + wrong) % k
        policy = policy_for_miss(p, y, alpha, confidence_level=level, per_class=True)
        decided = np.clip(2 * (1 - np.array(policy.threshold)), 0, 1)
        broken["predicted"] += bool((np.array([0.1, 0.3, 0.6]) * decided / 2 > alpha).any())
        t = policy_for_miss(p, y, 0.1, confidence_level=level, miss_rate_of="all", per_class="true").threshold
        share = min(2 * (1 - t), 1)
        missed = np.roll(np.array([0.1, 0.3, 0.6]) * share**2 / 2, 1) / 3  # of all, by true class
        size = 1 / 3 - np.array([0.1, 0.3, 0.6]) / 6 + np.roll(np.array([0.1, 0.3, 0.6]) / 6, 1)
        broken["true"] += bool((missed / size > 0.1).any())
    assert broken["predicted"] <= 45  # 30 and three standard errors
    assert broken["true"] <= 45


def test_all_classes_hold_at_once_where_each_is_at_its_worst():
    """Each predicted class has a risk a hair above the bound, whatever the threshold: deciding any breaks it."""
    rng = np.random.default_rng(1)
    n, k, alpha, level, draws = 180, 3, 0.2, 0.9, 1000
    broken = 0
    for _ in range(draws):
        u, predicted = rng.random(n), np.arange(n) % k
        p = np.zeros((n, k))
        p[np.arange(n), predicted] = 1 - u / 2
        p[np.arange(n), (predicted + 1) % k] = u / 2
        y = (predicted + (rng.random(n) < alpha * 1.0001)) % k
        broken += np.min(policy_for_miss(p, y, alpha, confidence_level=level, per_class=True).threshold) < 1
    allowed = (1 - level) * draws
    assert broken <= allowed + 3 * math.sqrt(allowed)
    assert broken > 0.4 * allowed  # a correction for the classes, not more than that


# The tests


@given(n=st.integers(1, 400), alpha=st.floats(0.01, 0.6), delta=st.floats(0.001, 0.3))
def test_critical_numbers(n, alpha, delta):
    allowed = [k for k in range(n + 1) if binom.cdf(k, n, alpha) <= delta * (1 - 1e-9)]
    assert most_errors(n, alpha, delta) == max(allowed, default=-1)
    if allowed:  # the same as an upper confidence bound
        assert beta.ppf(1 - delta, allowed[-1] + 1, n - allowed[-1]) <= alpha * (1 + 1e-9)
    needed = samples_needed(alpha, delta)
    assert needed == pytest.approx(math.log(delta) / math.log(1 - alpha), abs=1.0001)
    assert (most_errors(needed, alpha, delta), most_errors(needed - 1, alpha, delta)) == (0, -1)
    ranks = ranks_to_test(n, alpha, delta)
    assert (n >= needed) == (ranks.size > 0)
    if ranks.size:
        assert ranks[-1] == n
        assert (np.diff(ranks) > 0).all()
        for m in ranks[:-1]:  # where one more error becomes allowed
            assert most_errors(int(m), alpha, delta) > most_errors(int(m) - 1, alpha, delta)
        assert ranks[0] >= n / 10
        # Three errors are allowed at first, unless a tenth of the samples allows more.
        assert most_errors(int(ranks[0]), alpha, delta) <= 3 or most_errors(math.ceil(n / 10), alpha, delta) >= 3


def certify_oracle(confidence, wrong, alpha, delta):
    """Fixed-sequence testing, sample by sample."""
    order = sorted(range(len(confidence)), key=lambda i: -confidence[i])
    best = 1.0
    for m in ranks_to_test(len(confidence), alpha, delta):
        t = 0.0 if m == len(order) else confidence[order[m]]
        decided = [i for i in order if confidence[i] > t]
        if len(decided) < samples_needed(alpha, delta):
            continue
        if binom.cdf(sum(wrong[i] for i in decided), len(decided), alpha) > delta:
            break
        best = t
    return best


@given(n=st.integers(1, 150), seed=st.integers(0, 10_000), coarse=st.booleans(), alpha=st.sampled_from([0.1, 0.3]))
def test_certificates_are_the_obvious_loop(n, seed, coarse, alpha):
    rng = np.random.default_rng(seed)
    c = rng.integers(10, 20, size=n) / 20 if coarse else rng.uniform(0.5, 1, size=n)
    wrong = rng.random(n) < (1 - c) * rng.random()
    found = policy_for_miss(*two_classes(c, ~wrong), alpha, confidence_level=0.9)
    p_right = np.maximum(c, 1 - c)
    assert found.threshold == certify_oracle(p_right, wrong, alpha, 1 - 0.9)
    assert found.reached == (found.threshold < 1)
    # Of all: the lowest threshold with no more errors above it than allowed.
    found = policy_for_miss(*two_classes(c, ~wrong), alpha, confidence_level=0.9, miss_rate_of="all")
    allowed = most_errors(n, alpha, 1 - 0.9)
    fine = [t for t in [0.0, *p_right] if (wrong & (p_right > t)).sum() <= allowed and (p_right > t).any()]
    assert found.threshold == min(fine, default=1.0)


@given(n=st.integers(1, 150), seed=st.integers(0, 10_000), start=st.sampled_from([0.5, 0.7, 0.9, 0.99]))
def test_a_start_from_other_samples_makes_the_thresholds_fixed(n, seed, start):
    """Every threshold below the start is tested, from the strictest down, until one fails."""
    rng = np.random.default_rng(seed)
    c = rng.integers(10, 21, size=n) / 20
    wrong = rng.random(n) < (1 - c) * rng.random()
    found = certify_decided(c, wrong, np.ones(n), 0.3, 0.1, start=start)
    last = 1.0
    for t in [t for t in np.arange(20, 8, -1) / 20 if t < start]:  # no confidence lies between two of these
        decided = c > t
        if binom.cdf(wrong[decided].sum(), decided.sum(), 0.3) > 0.1:
            break
        last = t
    assert found.reached == (last < 1)
    assert (c > found.threshold).tolist() == (c > last).tolist()


def test_ties_take_their_start_from_other_samples():
    rng = np.random.default_rng(0)
    c = rng.integers(11, 20, size=400) / 20
    p, y = two_classes(c, rng.random(400) < c + 0.05)
    other = two_classes(rng.integers(11, 20, size=100) / 20, True)[0]
    alone, proven = policy_for_miss(p, y, 0.2), policy_for_miss(p, y, 0.2, fit_probs=other)
    assert any("fit_probs" in note for note in alone.notes)
    assert (proven.notes, proven.reached) == ((), True)
    # In the direction of the walk nothing else matters, and of all samples no start is needed.
    of_all = policy_for_miss(p, y, 0.2, miss_rate_of="all")
    assert policy_for_miss(p, y, 0.2, miss_rate_of="all", fit_probs=other) == of_all
    assert of_all.notes == ()
    # A start that nobody reaches refers everybody: to go on from there would choose the start by these samples.
    far = policy_for_miss(p, y, 0.2, fit_probs=[[1.0, 0.0], [1.0, 0.0]])
    assert (far.threshold, far.reached) == (1.0, False)
    # Without ties the ranks of the samples serve, whatever the others are.
    fine, labels = draw(400, 2)
    assert policy_for_miss(fine, labels, 0.3, fit_probs=fine[:50]) == policy_for_miss(fine, labels, 0.3)
    by_class = policy_for_miss(p, y, 0.2, per_class=True, fit_probs=other)
    assert by_class.threshold[0] < 1
    with pytest.raises(InputError):
        policy_for_miss(p, y, 0.2, fit_probs=[[0.2, 0.3, 0.5]])


@given(n=st.integers(20, 100), seed=st.integers(0, 10_000), of=st.sampled_from(["decided", "all"]))
def test_properties(n, seed, of):
    p, y = draw(n, 3, seed)
    rng = np.random.default_rng(seed)
    told = {"max_miss": 0.3, "confidence_level": 0.8, "miss_rate_of": of}
    policy = policy_for_miss(p, y, **told)
    order = rng.permutation(n)
    assert policy_for_miss(p[order], y[order], **told) == policy
    w = rng.integers(0, 3, size=n)
    w[0] = 1
    assert policy_for_miss(p, y, sample_weight=w, **told) == policy_for_miss(
        np.repeat(p, w, axis=0), np.repeat(y, w), **told
    )
    stricter = policy_for_miss(p, y, **(told | {"confidence_level": 0.99}))
    if of == "all":
        assert stricter.threshold >= policy.threshold
        assert policy_for_miss(p, y, **(told | {"max_miss": 0.2})).threshold >= policy.threshold


def test_when_nothing_can_be_guaranteed_everybody_is_referred_and_that_is_said():
    p, y = two_classes(np.linspace(0.6, 0.99, 58), np.ones(58, dtype=bool))
    for of in ("decided", "all"):
        policy = policy_for_miss(p, y, 0.05, miss_rate_of=of)
        assert (policy.threshold, policy.reached) == (1.0, False)
        assert policy.refer_or_decide(np.vstack([p, [[1.0, 0.0]]])).refer.all()
        # One more, and all are decided.
        more = policy_for_miss(np.vstack([p, p[:1]]), np.append(y, 0), 0.05, miss_rate_of=of)
        assert (more.threshold, more.reached) == (0.0, True)
        assert not more.refer_or_decide(p).refer.any()
    p, y = two_classes(np.linspace(0.6, 0.99, 300), np.zeros(300, dtype=bool))  # all wrong
    policy = policy_for_miss(p, y, 0.05)
    assert not policy.reached
    # A few of all may be wrong, though.
    assert policy_for_miss(p, y, 0.05, miss_rate_of="all").refer_or_decide(p).refer.sum() == 300 - 8


# Budgets and costs


@given(n=st.integers(1, 60), k=st.integers(2, 4), seed=st.integers(0, 10_000), budget=st.floats(0, 1))
def test_budget(n, k, seed, budget):
    p, _ = draw(n, k, seed)
    p = np.round(p, 1) + 1e-9
    p = p / p.sum(axis=1, keepdims=True)
    w = np.random.default_rng(seed).uniform(0.1, 2, n)
    policy = policy_for_budget(p, budget, sample_weight=w)
    refer = policy.refer_or_decide(p).refer
    assert w[refer].sum() <= budget * w.sum() * (1 + 1e-9)
    c = p.max(axis=1)
    if not refer.all():  # the next would be one too many
        assert w[c <= c[~refer].min()].sum() > budget * w.sum() * (1 - 1e-9)


@given(n=st.integers(1, 60), k=st.integers(2, 4), seed=st.integers(0, 10_000))
def test_cost(n, k, seed):
    p, y = draw(n, k, seed)
    rng = np.random.default_rng(seed)
    costs = rng.uniform(0, 20, size=k)
    policy = policy_for_cost(p, y, cost_refer=2.0, cost_miss=costs)
    for row, refer in zip(p, policy.refer_or_decide(p).refer):
        expected = sum(row[j] * costs[j] for j in range(k) if j != row.argmax())
        assert refer == (expected >= 2.0)
    even = policy_for_cost(p, cost_refer=2.0, cost_miss=8.0)
    assert even.threshold == 0.75
    assert (even.refer_or_decide(p).refer == (p.max(axis=1) <= 0.75)).all()
    assert policy_for_cost(p, cost_refer=8.0, cost_miss=2.0).threshold == 0


def test_the_rule_for_costs_is_the_cheapest_when_probabilities_are_right():
    rng = np.random.default_rng(0)
    p, y = draw(20_000, 3)
    costs = [1.0, 5.0, 30.0]
    found = outcome_of(policy_for_cost(p, cost_refer=1, cost_miss=costs), p, y).cost.value
    by_confidence = min(expected_cost(y, p, t, cost_refer=1, cost_miss=costs) for t in np.linspace(0, 1, 101))
    assert found < by_confidence
    threshold = policy_for_cost(p, cost_refer=1, cost_miss=5).threshold
    best = min(expected_cost(y, p, t, cost_refer=1, cost_miss=5) for t in rng.uniform(0, 1, 100))
    assert expected_cost(y, p, threshold, cost_refer=1, cost_miss=5) < best + 0.005


@given(n=st.integers(1, 60), k=st.integers(2, 4), seed=st.integers(0, 10_000))
def test_the_class_of_least_expected_cost(n, k, seed):
    p, y = draw(n, k, seed)
    costs = np.random.default_rng(seed).uniform(0, 20, size=k)
    policy = policy_for_cost(p, y, cost_refer=2.0, cost_miss=costs, predict="least_cost")
    refer, prediction, confidence = policy.refer_or_decide(p)
    total = 0.0
    for row, label, referred, predicted, c in zip(p, y, refer, prediction, confidence):
        expected = [sum(row[j] * costs[j] for j in range(k) if j != i) for i in range(k)]
        assert expected[predicted] == pytest.approx(min(expected))
        assert referred == (expected[predicted] >= 2.0)
        assert c == row[predicted]
        total += 2.0 if referred else costs[label] * (predicted != label)
    found = outcome_of(policy, p, y)
    assert found.cost.value == pytest.approx(total / n)
    assert found.all.missed == (~refer & (prediction != y)).sum()
    even = policy_for_cost(p, cost_refer=2.0, cost_miss=8.0, predict="least_cost")
    assert even == policy_for_cost(p, cost_refer=2.0, cost_miss=8.0)


# Decisions and outcomes


def test_refer_or_decide():
    p = np.array([[0.9, 0.1], [0.25, 0.75], [0.5, 0.5], [1.0, 0.0]])
    found = refer_or_decide(p, 0.75)
    assert found.refer.tolist() == [False, True, True, False]
    assert found.prediction.tolist() == [0, 1, 0, 0]
    assert found.confidence.tolist() == [0.9, 0.75, 0.5, 1]
    assert refer_or_decide(p, [0.95, 0.7]).refer.tolist() == [True, False, True, False]
    assert refer_or_decide(p, 1.0).refer.all()
    assert not refer_or_decide(p, 0).refer.any()
    torch = pytest.importorskip("torch")
    tensor = torch.from_numpy(p).float().requires_grad_()
    assert refer_or_decide(tensor, 0.75).refer.tolist() == found.refer.tolist()
    with pytest.raises(InputError):
        Policy(0.5, "", 2, 0).refer_or_decide([[0.2, 0.3, 0.5]])
    with pytest.raises(InputError):
        refer_or_decide([[0.9, 0.1], [math.nan, 0.8]], 0.5)


@given(n=st.integers(1, 60), seed=st.integers(0, 10_000))
def test_outcome_is_the_obvious_loop(n, seed):
    p, y = draw(n, 3, seed)
    w = np.random.default_rng(seed).integers(1, 4, size=n)
    policy = Policy((0.5, 0.6, 0.7), "", 3, 0, classes=("a", "b", "c"))
    found = outcome_of(policy, p, y, sample_weight=w)
    for k, row in [(None, found.all), *enumerate(found.by_class)]:
        total = dict.fromkeys(["n", "referred", "caught", "missed"], 0)
        for pi, yi, wi in zip(p, y, w):
            if k is not None and yi != k:
                continue
            refer, wrong = pi.max() <= policy.threshold[pi.argmax()], pi.argmax() != yi
            total["n"] += wi
            total["referred"] += wi * refer
            total["caught"] += wi * (refer and wrong)
            total["missed"] += wi * (not refer and wrong)
        assert {key: getattr(row, key) for key in total} == total
    assert [row.name for row in found.by_class] == ["a", "b", "c"]
    assert sum(row.missed for row in found.by_predicted) == found.all.missed
    empty = [row for row in found.by_class if row.n == 0]
    assert all(row.miss_rate is None for row in empty)
    assert found.referred_share.low <= found.referred_share.value <= found.referred_share.high
    # Clopper and Pearson's interval, by its definition.
    e, share = found.all, found.referred_share
    if 0 < e.referred < e.n:
        assert binom.cdf(e.referred, e.n, share.high) == pytest.approx(0.025, abs=1e-6)
        assert binom.sf(e.referred - 1, e.n, share.low) == pytest.approx(0.025, abs=1e-6)


# Files


def policies():
    p, y = draw(300, 3)
    names = ['"quoted"', "mel\tanoma", "🩺"]
    return [
        policy_for_budget(p, 0.2),
        policy_for_miss(p, y, 0.4, classes=names),
        policy_for_miss(p, y, 0.001),
        policy_for_miss(p, y, 0.4, per_class=True, classes=names),
        policy_for_miss(p, y, [0.4, 1, 0.2], per_class="true", miss_rate_of="all"),
        policy_for_cost(p, y, cost_refer=1, cost_miss=50),
        policy_for_cost(p, cost_refer=1, cost_miss=[1, 2, 50], classes=names),
        policy_for_cost(p, cost_refer=1, cost_miss=[1, 2, 50], predict="least_cost"),
    ]


@pytest.mark.parametrize("policy", policies(), ids=range(8))
def test_round_trip(policy, tmp_path):
    policy.save(tmp_path / "p.json")
    again = Policy.load(tmp_path / "p.json")
    assert again == policy
    p, _ = draw(50, 3, seed=1)
    for one, two in zip(policy.refer_or_decide(p), again.refer_or_decide(p)):
        assert (one == two).all()
    assert again.rule() == policy.rule()
    assert again.promise() == policy.promise()


def test_outcomes_by_group_hold_together():
    rng = np.random.default_rng(0)
    p = rng.dirichlet(np.ones(3), 300)
    y = rng.integers(0, 3, 300)
    groups = np.array(["b", "a", "c"])[rng.integers(0, 3, 300)]
    w = np.where(np.arange(300) < 20, 0.0, 1.0)
    policy = Policy(0.6, "by hand", n_classes=3, n_samples=0)
    found = outcome_of(policy, p, y, groups=groups, sample_weight=w, confidence_level=0.9)
    assert [row.name for row in found.by_group] == ["a", "b", "c"]
    for row in found.by_group:
        rows = (groups == row.name) & (w > 0)
        alone = outcome_of(policy, p[rows], y[rows], confidence_level=0.9 ** (1 / 3))
        assert (row.n, row.referred, row.caught, row.missed) == tuple(
            getattr(alone.all, name) for name in ("n", "referred", "caught", "missed")
        )
        assert row.miss_rate == alone.all.miss_rate
        assert row.referred_share == alone.referred_share
    assert outcome_of(policy, p, y).by_group == ()
    assert "by_group" not in outcome_of(policy, p, y).to_dict()
    assert list(found.to_pandas()["group"])[-3:] == ["group"] * 3
    with pytest.raises(InputError):
        outcome_of(policy, p, y, groups=groups[1:])
