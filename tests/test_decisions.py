"""Rules that decide or refer, and prediction sets: exact laws, enumerations, MAPIE, files, `decide_scores`."""

import itertools
import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from mapie.classification import SplitConformalClassifier
from mapie.conformity_scores import APSConformityScore, LACConformityScore
from scipy.stats import beta, binom, kstest
from sklearn.base import BaseEstimator, ClassifierMixin

from attemper import InputError, Scores, TemperatureScaling
from attemper._result import Estimate
from attemper.decisions import (
    Promise,
    Referral,
    choosing,
    conformal_sets,
    outcome_of,
    outcomes,
    refer_for_budget,
    refer_for_costs,
    refer_for_miss,
)
from attemper.decisions.certificates import (
    certify_all,
    certify_decided,
    most_errors,
    ranks_to_test,
    samples_needed,
    start_of,
)
from attemper.decisions.choosing import decide_scores
from attemper.decisions.rules import draw_cases, rule_from_dict
from attemper.decisions.sets import PredictionSets, order_of, units_needed
from attemper.errors import AttemperWarning, FileError
from attemper.kernels.conformal import order_for
from conftest import draw


def calibrated(n, seed=0, k=3, size=1):
    """Calibrated probabilities, labels and cases; the samples of a case are right or wrong together."""
    data = draw(n, k, t=1.0, clusters=size, seed=seed)
    return data.p, data.y, data.cluster


def two_classes(confidence, right):
    return np.column_stack([confidence, 1 - confidence]), np.where(right, 0, 1)


# Certificates


@given(n=st.integers(1, 400), alpha=st.floats(0.01, 0.6), delta=st.floats(0.001, 0.3))
def test_critical_numbers(n, alpha, delta):
    allowed = [k for k in range(n + 1) if binom.cdf(k, n, alpha) <= delta * (1 - 1e-9)]
    assert most_errors(n, alpha, delta) == max(allowed, default=-1)
    if allowed:  # the same as an upper confidence bound
        assert beta.ppf(1 - delta, allowed[-1] + 1, n - allowed[-1]) <= alpha * (1 + 1e-9)
    needed = samples_needed(alpha, delta)
    assert (most_errors(needed, alpha, delta), most_errors(needed - 1, alpha, delta)) == (0, -1)
    ranks = ranks_to_test(n, alpha, delta)
    assert (n >= needed) == (ranks.size > 0)
    if ranks.size:
        assert ranks[-1] == n
        assert (np.diff(ranks) > 0).all()
        assert ranks[0] >= n / 10
        for m in ranks[:-1]:  # where one more error becomes allowed
            assert most_errors(int(m), alpha, delta) > most_errors(int(m) - 1, alpha, delta)


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
    expected = certify_oracle(c, wrong, alpha, 1 - 0.9)
    rule = refer_for_miss(*two_classes(c, ~wrong), alpha, guarantee_level=0.9).rule
    assert (1.0 if rule is None else rule.threshold) == pytest.approx(expected, abs=2e-6)
    # Of all: the lowest threshold with no more errors above it than allowed.
    found, allowed = certify_all(c, wrong, np.ones(n), alpha, 1 - 0.9), most_errors(n, alpha, 1 - 0.9)
    fine = [t for t in [0.0, *c] if (wrong & (c > t)).sum() <= allowed]
    assert found == ((min(fine), True) if allowed >= 0 else (1.0, False))


@given(n=st.integers(1, 150), seed=st.integers(0, 10_000), start=st.sampled_from([0.5, 0.7, 0.9, 0.99]))
def test_a_start_from_other_samples_makes_the_thresholds_fixed(n, seed, start):
    """Every threshold below the start is tested, from the strictest down, until one fails."""
    rng = np.random.default_rng(seed)
    c = rng.integers(10, 21, size=n) / 20
    wrong = rng.random(n) < (1 - c) * rng.random()
    found = certify_decided(c, wrong, np.ones(n), 0.3, 0.1, start=start)
    last = 1.0
    for t in [t for t in np.arange(20, 8, -1) / 20 if t < start]:  # no confidence lies between two of these
        if binom.cdf(wrong[c > t].sum(), (c > t).sum(), 0.3) > 0.1:
            break
        last = t
    assert found.reached == (last < 1)
    assert (c > found.threshold).tolist() == (c > last).tolist()


def test_probabilities_of_the_fit_choose_the_start_where_confidences_are_tied():
    (p, y, _), (other, *_) = calibrated(2000, k=2), calibrated(500, k=2, seed=1)
    tied, wrong = p.round(2), p.argmax(axis=1) != y
    start = start_of(other.round(2).max(axis=1), np.ones(500), 2000, 0.01, 0.05)
    expected = certify_decided(tied.max(axis=1), wrong, np.ones(2000), 0.01, 0.05, start=start).threshold
    assert refer_for_miss(tied, y, 0.01, fit_probs=other.round(2)).rule.threshold == pytest.approx(expected, abs=2e-6)
    assert refer_for_miss(tied, y, 0.01).rule is None
    assert refer_for_miss(p, y, 0.1, fit_probs=other).rule == refer_for_miss(p, y, 0.1).rule  # no ties


@pytest.mark.parametrize(("of", "rates"), [("decided", [0.35, 0.31, 0.4]), ("class", [0.1, 0.5, 0.3])])
def test_all_outcomes_enumerated_break_a_guarantee_no_more_often_than_stated(of, rates):
    """Twelve cases with fixed confidences in three blocks: every one of 4096 outcomes, with its exact probability."""
    n, bound, delta = 12, 0.3, 0.2
    c, rate = np.linspace(0.99, 0.6, n), np.repeat(rates, n // 3)
    broken = 0.0
    for outcome in itertools.product([False, True], repeat=n):
        wrong = np.array(outcome)
        certify = certify_decided if of == "decided" else certify_all
        decided = c > certify(c, wrong, np.ones(n), bound, delta).threshold
        true = rate[decided].mean() if of == "decided" and decided.any() else rate[decided].sum() / n
        broken += (true > bound) * np.prod(np.where(wrong, rate, 1 - rate))
    assert broken <= delta


def test_the_guarantee_is_not_idle():
    """Where the risk is a hair above the bound at every threshold, it is broken about as often as is allowed."""
    rng, broken = np.random.default_rng(0), 0
    for _ in range(1000):
        c, wrong = rng.uniform(0.5, 1, 200), rng.random(200) < 0.2001
        broken += certify_decided(c, wrong, np.ones(200), 0.2, 0.05).reached
    assert 20 <= broken <= 50 + 3 * math.sqrt(47.5)


# Referral


def test_weights_are_repeats_and_order_does_not_matter():
    p, y, _ = calibrated(2000)
    w = np.arange(2000) % 3
    rows = np.repeat(np.arange(2000), w)
    order = np.random.default_rng(0).permutation(2000)
    for choose in (lambda *a, **k: refer_for_miss(*a, 0.2, **k), lambda *a, **k: conformal_sets(*a, 0.9, **k)):
        assert choose(p, y, sample_weight=w).rule == choose(p[rows], y[rows]).rule
        assert choose(p[order], y[order]).rule == choose(p, y).rule
        with pytest.raises(InputError):
            choose(p, y, sample_weight=w + 0.5)


def test_a_bound_by_class_is_about_the_true_cases():
    p, y, _ = calibrated(3000)
    rule = refer_for_miss(p, y, {"a": 0.1, "b": 0.2}, classes=["a", "b", "c"]).rule
    assert (rule.promise.bounds, rule.promise.by, rule.n_cases) == (
        (0.1, 0.2, 1.0),
        "class",
        (sum(y == 0), sum(y == 1)),
    )
    c, wrong = p.max(axis=1), p.argmax(axis=1) != y
    lowest = [
        certify_all(c[y == k], wrong[y == k], np.ones((y == k).sum()), b, 0.05)[0] for k, b in ((0, 0.1), (1, 0.2))
    ]
    assert rule.threshold == pytest.approx(max(lowest), abs=2e-6)
    assert refer_for_miss(p, y, [0.1, 0.2, 1.0]).rule.threshold == rule.threshold


def test_clusters_test_one_sample_of_each():
    p, y, case = calibrated(3000, size=3)
    rows, counts = draw_cases(case, np.ones(3000), 0)
    assert (np.unique(case[rows]) == np.arange(1000)).all()
    assert (counts == 1).all()
    rule = refer_for_miss(p, y, 0.1, clusters=case, unit="patient").rule
    assert rule.threshold == refer_for_miss(p[rows], y[rows], 0.1).rule.threshold
    assert (rule.promise.unit, rule.n_cases) == ("patient", (1000,))
    by_class = refer_for_miss(p, y, [0.2, 0.2, 0.2], clusters=case).rule
    assert by_class.n_cases == tuple(len(np.unique(case[y == k])) for k in range(3))
    assert refer_for_miss(p, y, 0.1, clusters=np.arange(3000)).rule.promise.unit == ""


@pytest.mark.parametrize(("n", "bound"), [(10, 0.1), (28, 0.1), (58, 0.05)])
def test_too_few_cases_report_how_many_more(n, bound):
    p, _ = two_classes(np.linspace(0.6, 0.99, n), True)
    choice = refer_for_miss(p, np.zeros(n, dtype=int), bound)
    assert choice.rule is None
    assert choice.shortages[0].more == samples_needed(bound, 0.05) - n
    enough = n + choice.shortages[0].more
    p, _ = two_classes(np.linspace(0.6, 0.99, enough), True)
    assert refer_for_miss(p, np.zeros(enough, dtype=int), bound).rule.threshold == 0


def test_a_shortage_names_the_class():
    p, y, _ = calibrated(2000)
    y = np.where((y == 2) & (np.arange(2000) > 60), 0, y)
    n = int((y == 2).sum())
    (shortage,) = refer_for_miss(p, y, {"mel": 0.1}, classes=["nv", "bcc", "mel"]).shortages
    assert (shortage.of, shortage.n_cases, shortage.more) == ("mel", n, 29 - n)


def test_a_shortage_of_many_errors_is_what_the_binomial_asks_for():
    p, y = two_classes(np.linspace(0.99, 0.6, 200), np.arange(200) % 16 != 3)
    (shortage,) = refer_for_miss(p, y, 0.1).shortages
    n = 200 + shortage.more
    first, m = (int(ranks_to_test(size, 0.1, 0.05)[0]) for size in (200, n))
    assert (shortage.errors, shortage.tested) == (y[:first].sum(), first)
    top = round(200 * m / n)  # so many of the pilot are that share of the most confident
    assert 0.7 < binom.cdf(most_errors(m, 0.1, 0.05), m, (y + 1 - p.max(axis=1))[:top].mean() / 2) < 0.9
    assert refer_for_miss(p, np.ones(200, dtype=int), 0.1).shortages[0].more is None


def test_a_confident_error_of_the_class_is_referred_not_everybody():
    """38 true cases, the most confident of them wrong: what is more confident than that is decided."""
    p = np.concatenate([np.full(100, 0.99), [0.95], np.linspace(0.55, 0.9, 37)])
    probs, y = np.stack([p, 1 - p], axis=1), np.array([0] * 100 + [1] * 38)
    rule = refer_for_miss(probs, y, {1: 0.1}).rule
    assert rule.threshold == pytest.approx(0.95, abs=2e-6)
    assert (rule.decide(probs).action == "decide").sum() == 100


@given(n=st.integers(1, 60), k=st.integers(2, 4), seed=st.integers(0, 10_000), budget=st.floats(0, 1))
def test_budget(n, k, seed, budget):
    p = np.round(calibrated(n, seed, k)[0], 1) + 1e-9
    p = p / p.sum(axis=1, keepdims=True)
    w = np.random.default_rng(seed).uniform(0.1, 2, n)
    refer = refer_for_budget(p, budget, sample_weight=w).decide(p).refer
    assert w[refer].sum() <= budget * w.sum() * (1 + 1e-9)
    c = p.max(axis=1)
    if not refer.all():  # the next would be one too many
        assert w[c <= c[~refer].min()].sum() > budget * w.sum() * (1 - 1e-9)


@given(n=st.integers(1, 60), k=st.integers(2, 4), seed=st.integers(0, 10_000))
def test_costs(n, k, seed):
    p, y, _ = calibrated(n, seed, k)
    miss = np.random.default_rng(seed).uniform(0, 20, size=k)
    rule = refer_for_costs({"refer": 2.0, **{str(j): m for j, m in enumerate(miss)}}, k)
    actions = rule.decide(p)
    for row, refer in zip(p, actions.refer):
        assert refer == (sum(row[j] * miss[j] for j in range(k) if j != row.argmax()) >= 2.0)
    cost = np.where(actions.refer, 2.0, np.where(p.argmax(axis=1) != y, miss[y], 0.0))
    assert outcome_of(rule, p, y).cost.value == pytest.approx(cost.mean())
    assert refer_for_costs({"refer": 2.0, "miss": 8.0}, k).threshold == 0.75
    assert refer_for_costs({"refer": 8.0, "miss": 2.0}, k).threshold == 0


BAD = [
    ("max_miss", lambda p, y: refer_for_miss(p, y, 1.5)),
    ("max_miss", lambda p, y: refer_for_miss(p, y, {"mle": 0.1}, classes=["nv", "bcc", "mel"])),
    ("guarantee_level", lambda p, y: refer_for_miss(p, y, 0.1, guarantee_level=1)),
    ("labels", lambda p, y: refer_for_miss(p, y + 1, 0.1)),
    ("budget", lambda p, y: refer_for_budget(p, 2)),
    ("costs", lambda p, y: refer_for_costs({"refer": 1, "0": 2}, 3)),
    ("costs", lambda p, y: refer_for_costs({"miss": 1}, 3)),
    ("coverage", lambda p, y: conformal_sets(p, y, 1.0)),
    ("score", lambda p, y: conformal_sets(p, y, score="raps")),
    ("by", lambda p, y: conformal_sets(p, y, by="site")),
    ("groups", lambda p, y: conformal_sets(p, y, by="group")),
    ("probs", lambda p, y: Referral(4, 0.5).decide(p)),
]


def test_labels_may_be_names():
    p, y, _ = calibrated(300)
    names = np.array(["nv", "bcc", "mel"])
    for choose in (refer_for_miss, conformal_sets):
        assert choose(p, names[y], 0.5, classes=names) == choose(p, y, 0.5)


@pytest.mark.parametrize(("param", "call"), BAD)
def test_bad_input_names_its_parameter(param, call):
    p, y, _ = calibrated(100)
    with pytest.raises(InputError) as error:
        call(p, y)
    assert error.value.param == param


# Sets


class Given(ClassifierMixin, BaseEstimator):
    """A classifier whose features are the probabilities."""

    def __init__(self, n_classes):
        self.n_classes = n_classes
        self.classes_ = np.arange(n_classes)
        self.n_features_in_ = n_classes

    def fit(self, x, y):
        return self

    def predict_proba(self, x):
        return np.asarray(x)

    def predict(self, x):
        return np.asarray(x).argmax(axis=1)


class Constant(np.random.RandomState):
    """MAPIE calibrates APS with random shares of the own probability; 1 takes the whole of it off the score."""

    def uniform(self, *args, size=None, **kwargs):
        return np.ones(size)


@pytest.mark.parametrize("n_classes", [3, 6, 40])
@pytest.mark.parametrize("coverage", [0.8, 0.95])
@pytest.mark.parametrize("score", ["lac", "aps"])
def test_thresholds_and_sets_are_those_of_mapie(n_classes, coverage, score):
    p, y, _ = calibrated(550, k=n_classes)
    p, y, new = p[:400], y[:400], p[400:]
    theirs = LACConformityScore() if score == "lac" else APSConformityScore()
    state = 0 if score == "lac" else Constant()
    model = SplitConformalClassifier(
        Given(n_classes), confidence_level=coverage, conformity_score=theirs, prefit=True, random_state=state
    )
    mask = model.conformalize(p, y).predict_set(new, conformity_score_params={"include_last_label": True})[1][:, :, 0]
    rule = conformal_sets(p, y, coverage, score=score).rule
    assert rule.thresholds[0] == pytest.approx(float(theirs.quantiles_.item()), abs=2e-6)
    mask = mask | (new == new.max(axis=1, keepdims=True))  # MAPIE's LAC has empty sets
    np.testing.assert_array_equal(rule.decide(new).sets, mask)


@given(st.integers(1, 300), st.sampled_from([0.8, 0.9, 0.95]), st.sampled_from([0.1, 0.05, 0.001]))
def test_the_order_with_confidence_is_the_first_that_the_exact_law_allows(n, coverage, delta):
    allowed = [k for k in range(order_for(n, coverage), n + 1) if beta.cdf(coverage, k, n + 1 - k) <= delta]
    assert order_of(n, coverage, delta) == (allowed[0] if allowed else None)
    assert (n < units_needed(coverage, delta)) == (not allowed)
    assert (n < units_needed(coverage)) == (order_of(n, coverage) is None)


@given(st.integers(1, 1000), st.integers(1, 99))
@example(99, 55)  # 0.55 · 100 is a little more than 55
def test_the_order_is_that_of_exact_arithmetic(n, percent):
    assert order_for(n, percent / 100) == -(-(n + 1) * percent // 100)


@pytest.mark.parametrize("score", ["lac", "aps"])
@pytest.mark.parametrize(("n", "coverage"), [(9, 0.5), (10, 0.7), (20, 0.9)])
def test_each_of_n_plus_1_samples_left_out_in_turn_is_covered_as_often_as_proven(score, n, coverage):
    """Exchangeable samples: each is the new one equally often, so at least ⌈(n+1)(1−α)⌉/(n+1) are covered."""
    p, y, _ = calibrated(n + 1, seed=n, k=4)
    covered = 0
    for i in range(n + 1):
        rest = np.arange(n + 1) != i
        covered += int(conformal_sets(p[rest], y[rest], coverage, score=score).rule.decide(p[[i]]).sets[0, y[i]])
    right = int((p.argmax(axis=1) == y).sum())  # always covered, beyond what the thresholds cover
    order = order_for(n, coverage)
    assert covered >= order
    if score == "aps":
        assert covered == max(order, right)


def test_the_coverage_given_the_samples_has_the_exact_law():
    """Label 0 with a uniform LAC score: the coverage of a threshold is the threshold itself."""
    rng, n = np.random.default_rng(1), 100
    for level in (None, 0.95):
        thresholds = []
        for _ in range(500):
            s = rng.random(n)
            p = np.column_stack([1 - s, s])
            thresholds.append(conformal_sets(p, np.zeros(n, int), 0.9, guarantee_level=level).rule.thresholds[0])
        k = order_of(n, 0.9, None if level is None else 0.05)
        assert kstest(thresholds, beta(k, n + 1 - k).cdf).pvalue > 0.001
    assert np.mean(np.array(thresholds) < 0.9) < 0.05


def test_samples_of_a_case_alike_cover_as_often_as_promised():
    """Five samples of each case with the same score: as many cases are needed as without clusters."""
    rng, covered = np.random.default_rng(0), {True: [], False: []}
    for _ in range(400):
        s = np.repeat(rng.random(30), 5)
        p, y = np.column_stack([1 - s, s]), np.zeros(150, dtype=int)
        for by_case in covered:
            rule = conformal_sets(p, y, 0.95, clusters=np.repeat(np.arange(30), 5) if by_case else None).rule
            covered[by_case].append(rule.thresholds[0])
    assert 0.96 < np.mean(covered[True]) < 0.975  # 30/31
    assert np.mean(covered[False]) < 0.943  # 29/31


@pytest.mark.parametrize("by", ["class", "group"])
def test_by_class_or_group_is_one_rule_for_each(by):
    p, y, case = calibrated(1200, k=4, size=2)
    groups = np.array(["north", "south", "east"])[case % 3]
    rule = conformal_sets(p, y, 0.9, by=by, groups=groups).rule
    parts = [(k, y == k) for k in range(4)] if by == "class" else [(g, groups == g) for g in sorted(set(groups))]
    sets = rule.decide(p, groups).sets
    for (part, rows), threshold in zip(parts, rule.thresholds):
        alone = conformal_sets(p[rows], y[rows], 0.9).rule
        assert alone.thresholds == (threshold,)
        if by == "group":
            np.testing.assert_array_equal(sets[rows], alone.decide(p[rows]).sets)
        else:
            expected = (1 - p[:, part] <= threshold + 1e-9) | (p.argmax(axis=1) == part)
            np.testing.assert_array_equal(sets[:, part], expected)
    clustered = conformal_sets(p, y, 0.9, by=by, groups=groups, clusters=case).rule
    assert clustered.n_cases == tuple(len(np.unique(case[rows])) for _, rows in parts)


def test_too_few_cases_of_a_class_are_named_and_unknown_groups_get_every_class():
    p, y, _ = calibrated(300)
    shortages = conformal_sets(p, y, 0.995, by="class", classes="abc").shortages
    assert {s.of: s.more for s in shortages} == {c: 199 - sum(y == k) for k, c in enumerate("abc")}
    two = np.column_stack([p[:60, 0], 1 - p[:60, 0]])
    shortages = conformal_sets(two, np.arange(60) % 2, 0.9, by="class", guarantee_level=0.95).shortages
    assert [s.more for s in shortages] == [units_needed(0.9, 0.05 / 2) - 30] * 2 == [6, 6]
    rule = conformal_sets(p, y, 0.9, by="group", groups=np.arange(300) % 2).rule
    with pytest.warns(AttemperWarning):
        assert rule.decide(p[:2], [0.0, 7.0]).sets.all(axis=1).tolist() == [False, True]


@pytest.mark.parametrize("change", [{"kind": "magic"}, {"threshold": "much"}, {"n_classes": None}])
def test_a_damaged_rule_is_one_exception(change):
    with pytest.raises(FileError):
        rule_from_dict({**Referral(3, 0.75, n_cases=(30,)).to_dict(), **change})


# Outcomes


def test_outcomes_are_counts():
    p, y, _ = calibrated(1000)
    rule, groups = Referral(3, 0.7), np.where(np.arange(1000) < 300, "Graz", "Wien")
    found = outcome_of(rule, p, y, groups=groups)
    decided, wrong = p.max(axis=1) > 0.7, p.argmax(axis=1) != y
    for part in found.parts:
        rows = {"all": np.ones(1000, bool), "class": y == int(part.name) if part.of == "class" else None}.get(part.of)
        rows = groups == part.name if rows is None else rows
        counts = (rows, rows & decided, rows & ~decided, rows & wrong & ~decided, rows & wrong & decided)
        assert (part.n, part.decided, part.referred, part.caught, part.missed) == tuple(c.sum() for c in counts)
        of = rows if part.of == "class" else rows & decided
        assert part.miss_rate.value == pytest.approx((wrong & decided)[of].mean())
        assert part.miss_rate.low < part.miss_rate.value < part.miss_rate.high
        assert part.verdict is None  # nothing was promised
    assert max(map(len, str(found).splitlines())) <= 80


def test_outcomes_count_in_the_unit_of_the_promise():
    p, y, case = calibrated(3000, size=3)
    sets = conformal_sets(p, y, 0.9, clusters=case).rule
    q, z, c = calibrated(3000, seed=1, size=3)
    c = np.where(np.arange(3000) < 1500, c, np.arange(3000))  # cases of three and of one
    found = outcome_of(sets, q, z, clusters=c)
    covered = sets.decide(q).sets[np.arange(3000), z]
    each = [covered[c == i].mean() for i in np.unique(c)]
    assert found.all.n == pytest.approx(len(each))
    assert found.all.n_samples == 3000
    assert found.all.coverage.value == pytest.approx(np.mean(each))
    with pytest.raises(InputError) as error:
        outcome_of(sets, q, z)
    assert error.value.param == "clusters"


def test_a_group_that_misses_the_bound_is_flagged():
    p, y, _ = calibrated(4000)
    rule = refer_for_miss(p, y, 0.1).rule
    q, z, _ = calibrated(2000, seed=1)
    bad = np.arange(2000) < 500
    z = np.where(bad, (q.argmax(axis=1) + 1) % 3, z)
    found = outcome_of(rule, q, z, groups=np.where(bad, "Graz", "Wien"))
    assert found.part("group", "Graz").verdict == "beyond"
    assert found.part("group", "Wien").verdict is None
    assert found.columns()["verdict"] == [part.verdict for part in found.parts]
    assert any("Graz" in note for note in found.notes())
    assert not any("Wien" in note for note in found.notes())


# decide_scores


def scores(n, seed=0, size=1, groups=False):
    data = draw(n, 3, t=1.5, clusters=size, seed=seed)
    ids = {"clusters": data.cluster + 100_000 * seed} if size > 1 else {}
    sites = {"groups": np.array(["Graz", "Wien"])[data.cluster % 2]} if groups else {}
    return Scores.of(*data, classes=list("abc"), **ids, **sites)


@pytest.mark.parametrize("goal", [{"max_miss": 0.1}, {"max_miss": {"a": 0.1}}, {"coverage": 0.9}, {"budget": 0.2}])
@pytest.mark.parametrize("size", [1, 2])
def test_without_a_calibrator_val_is_divided_and_clusters_stay_together(goal, size):
    val, test = scores(2000, size=size), scores(2000, seed=1, size=size)
    found = decide_scores(val, test, unit="patient", **goal)
    cal, rule = found.calibrator, found.rule
    assert cal.method == "bayes"
    assert cal.rule_ is rule
    assert (len(cal._facts()), repr(rule) in str(cal)) == (4, False)
    assert found.tested
    assert cal.report_.n_samples == 400
    if rule.promise is not None:
        n = (
            len(np.unique(val.cases[val.labels == 0]))
            if isinstance(goal.get("max_miss"), dict) and size > 1
            else 2000 // size
        )
        assert rule.promise.unit == ("patient" if size > 1 else "")
        assert rule.n_cases[0] <= n * 0.85
        assert found.outcome.part("class", "a").verdict != "broken"
        assert found.outcome.all.verdict != "broken"
    assert found.outcome.all.n_samples == 2000


def test_a_calibrator_is_kept_and_one_that_was_fitted_on_val_is_refused():
    other, val = scores(500, seed=2), scores(2000)
    cal = TemperatureScaling().fit(other)
    found = decide_scores(val, calibrator=cal, max_miss=0.1)
    assert found.rule.n_cases == (2000,)
    assert not found.tested
    assert not hasattr(cal, "rule_")
    assert found.calibrator.temperature_ == cal.temperature_
    fitted = TemperatureScaling().fit(val)
    order = np.random.default_rng(0).permutation(2000)
    for rows in (np.arange(2000), order, order[:1000]):
        with pytest.raises(InputError) as error:
            decide_scores(val.take(rows), calibrator=fitted, max_miss=0.1)
        assert error.value.param == "calibrator"


@pytest.mark.parametrize("by", ["class", "group"])
def test_sets_and_bounds_by_class_and_group(by):
    val, test = scores(3000, groups=True), scores(3000, seed=1, groups=True)
    found = decide_scores(val, test, coverage=0.8, by=by)
    assert len(found.rule.thresholds) == (3 if by == "class" else 2)
    own = [part for part in found.outcome.parts if part.of == by]
    assert all(part.verdict != "broken" and part.bound == 0.8 for part in own)
    if by == "class":
        assert decide_scores(val, max_miss=np.float32(0.125), by="class").rule.promise.bounds == (0.125,) * 3


def test_a_guarantee_that_cannot_be_given_writes_no_rule():
    found = decide_scores(scores(60), max_miss={"b": 0.05})
    (shortage,) = found.shortages
    assert not found.reached
    assert found.outcome is None
    assert not hasattr(found.calibrator, "rule_")
    assert (shortage.of, shortage.more) == ("b", math.ceil((59 - shortage.n_cases) / 0.8))
    assert found.to_dict()["more"] == [shortage.more]


@pytest.mark.parametrize("goals", [{}, {"max_miss": 0.1, "budget": 0.2}, {"budget": 0.2, "by": "class"}])
def test_one_goal_is_expected(goals):
    with pytest.raises(InputError):
        decide_scores(scores(100), **goals)


def test_samples_of_a_case_are_drawn_in_proportion_to_their_weights():
    rows, counts = draw_cases(np.repeat(np.arange(4000), 2), np.tile([1.0, 3.0], 4000), 0)
    assert counts.tolist() == [1] * 4000
    assert (rows % 2).mean() == pytest.approx(0.75, abs=0.03)


def test_the_outcome_counts_the_weights_of_test():
    (h, y), w = draw(1000, 3, seed=1), 1.0 + np.arange(1000) % 3
    found = decide_scores(Scores.of(*draw(1000, 3)), Scores.of(h, y, sample_weight=w), budget=0.2)
    refer = found.calibrator.decide(h).refer
    assert found.outcome.all.n == w.sum()
    assert found.outcome.all.referred == pytest.approx(w @ refer)


def test_cases_of_one_row_that_occurred_twice_are_cases():
    p, y, _ = calibrated(1000)
    w = np.full(1000, 2.0)
    rule = refer_for_miss(p, y, 0.2, clusters=np.arange(1000), sample_weight=w, unit="patient").rule
    assert (rule.promise.unit, rule.n_cases) == ("patient", (1000,))


def test_intervals_of_groups_hold_together():
    p, y, _ = calibrated(1000)
    rule, groups = Referral(3, 0.7), np.where(np.arange(1000) < 300, "Graz", "Wien")
    together = outcome_of(rule, p, y, groups=groups).part("group", "Graz").miss_rate
    alone = outcome_of(rule, p[:300], y[:300], confidence_level=0.95**0.5).all.miss_rate
    assert (together.low, together.high) == pytest.approx((alone.low, alone.high), rel=1e-9)


def test_a_case_counts_once_in_each_class_and_group():
    rng = np.random.default_rng(0)
    p, y, case, groups = rng.dirichlet([1, 1, 1], 300), rng.integers(0, 3, 300), np.arange(300) // 5, np.arange(300) % 2
    rule = Referral(3, 0.6, promise=Promise("miss", (0.1, 0.2, 1.0), 0.95, "class", "patient"))
    found = outcome_of(rule, p, y, groups=groups, clusters=case)
    missed = (p.max(axis=1) > 0.6) & (p.argmax(axis=1) != y)
    for of, ids in (("class", y), ("group", groups)):
        for name in np.unique(ids):
            each = [missed[(ids == name) & (case == c)] for c in np.unique(case[ids == name])]
            part = found.part(of, name)
            assert part.n == pytest.approx(len(each))
            assert part.missed == pytest.approx(sum(rows.mean() for rows in each))


@pytest.mark.parametrize("goal", [{"max_miss": 0.3}, {"coverage": 0.9}, {"budget": 0.2}])
def test_counts_are_divided_as_cases(goal, monkeypatch):
    data, seen, probs_of = draw(900, 3), [], choosing._probs
    monkeypatch.setattr(choosing, "_probs", lambda cal, scores: (seen.append(scores), probs_of(cal, scores))[1])
    found = decide_scores(Scores.of(data.h, data.y, sample_weight=data.w, ids=np.arange(900)), **goal)
    assert found.reached
    parts = [np.bincount(scores.ids, scores.w, 900) for scores in seen[:2]]
    np.testing.assert_array_equal(sum(parts), data.w)
    assert parts[0].sum() == round(0.2 * data.w.sum())
    assert ((parts[0] > 0) & (parts[1] > 0)).any()  # a sample that occurred twice may be in both


@pytest.mark.parametrize("probs", [[[0.5, 0.6]], [[3.0, -2.0]], [[0.1, 0.1]], [[np.nan, 1]]])
def test_rules_take_probabilities_alone(probs):
    with pytest.raises(InputError) as caught:
        Referral(2, 0.5).decide(probs)
    assert caught.value.param == "probs"
    np.testing.assert_array_equal(Referral(2, 0.5).decide([[0.2], [0.7]]).prediction, [0, 1])


def test_a_budget_is_a_share_of_the_weight_of_val():
    h, y = draw(1000, 3)
    w = np.where(h.max(axis=1) < 2, 5.0, 1.0)
    cal = TemperatureScaling().fit(*draw(1000, 3, seed=1))
    found = decide_scores(Scores.of(h, y, sample_weight=w), calibrator=cal, budget=0.2)
    refer = found.calibrator.decide(h).refer
    assert 0.19 < w @ refer / w.sum() <= 0.2


@pytest.mark.parametrize("size", [1, 3])
def test_no_case_both_fits_and_chooses(monkeypatch, size):
    data, seen = draw(900, 3, clusters=size), []
    probs_of = choosing._probs
    monkeypatch.setattr(choosing, "_probs", lambda cal, scores: (seen.append(scores), probs_of(cal, scores))[1])
    val = Scores.of(data.h, data.y, clusters=data.cluster, ids=np.arange(900))
    decide_scores(val, max_miss=0.3)
    fitting, chosen, *_ = seen
    assert sorted([*fitting.ids, *chosen.ids]) == list(range(900))
    assert {*fitting.clusters}.isdisjoint(chosen.clusters)
    assert len({*fitting.clusters}) == 180 / size


@pytest.mark.parametrize(
    ("rate", "interval", "upper", "verdict"),
    [(0.1, (0, 0.2), True, "held"), (0.12, (0.05, 0.2), True, "unclear"), (0.2, (0.11, 0.3), True, "broken"),
     (0.1, (0, 0.2), False, "held"), (0.08, (0.05, 0.12), False, "unclear"), (0.05, (0.02, 0.09), False, "broken")],
)  # fmt: skip
def test_verdicts(rate, interval, upper, verdict):
    assert outcomes._verdict(0.1, Estimate(rate, *interval), upper=upper) == verdict
    assert outcomes._verdict(None, Estimate(rate, *interval), upper=upper) is None


def test_a_rule_can_be_broken():
    right, wrong = draw(2000, 3), draw(2000, 3, noise=0.5, seed=1)
    cal = TemperatureScaling().fit(*draw(1000, 3, seed=2))
    found = decide_scores(Scores.of(*right), Scores.of(*wrong), calibrator=cal, max_miss=0.2)
    assert found.outcome.all.verdict == "broken"
    assert decide_scores(Scores.of(*right), calibrator=cal, max_miss=0.2).outcome.all.verdict is None


RULES = {
    "threshold": Referral(3, 0.6),
    "promise": Referral(3, 0.6, promise=Promise("miss", (0.2,), 0.95)),
    "by class": Referral(3, 0.6, promise=Promise("miss", (0.3, 0.2, 1.0), 0.95, "class", "patient")),
    "costs": Referral(3, None, 1.0, (2.0, 3.0, 4.0)),
    "sets": PredictionSets(3, "lac", (0.6,), Promise("coverage", (0.8,), 0.95), max_size=2),
    "aps by group": PredictionSets(3, "aps", (0.6, 0.9), Promise("coverage", (0.8,), None, "group", "patient"),
                                   groups=("site 0", "site 1")),
}  # fmt: skip


@pytest.mark.parametrize("name", RULES)
def test_outcomes_count_weights_as_rows_and_intervals_count_cases(name):
    data, rule = draw(600, 3, t=1.5, groups=2), RULES[name]
    four, rows = np.repeat(np.arange(600), 4), np.repeat(np.arange(600), data.w.astype(int))

    def found(i, clusters, **options):
        return outcome_of(rule, data.p[i], data.y[i], groups=data.group[i], clusters=clusters, **options)

    weighted, repeated = found(np.arange(600), np.arange(600), sample_weight=data.w), found(rows, rows)
    pd.testing.assert_frame_equal(weighted.to_frame(), repeated.to_frame(), rtol=0.02)
    actions, seen = rule.decide(data.p, data.group).action, weighted.all
    if rule.promise is None or not rule.promise.unit:
        counts = [data.w[actions == each].sum() for each in ("decide", "list", "refer")]
        assert [seen.decided, seen.listed, seen.referred] == counts
    once, copies, narrow = (
        found(four[::4], four[::4]),
        found(four, four),
        found(four[::4], four[::4], confidence_level=0.5),
    )
    for field in ("miss_rate", "referred_share", "coverage"):
        for a, b, c in zip(once.parts, copies.parts, narrow.parts):
            one, other, less = (getattr(part, field) for part in (a, b, c))
            if one is not None:
                assert (other.low, other.high) == pytest.approx((one.low, one.high), rel=0.02, abs=1e-3)
                assert one.high - one.low > 1.5 * (less.high - less.low)
    assert [part.verdict for part in once.parts] == [part.verdict for part in copies.parts]
    if name == "costs":
        assert (copies.cost.low, copies.cost.high) == pytest.approx((once.cost.low, once.cost.high))
        assert weighted.cost.value == pytest.approx(repeated.cost.value)
        assert narrow.cost.high < once.cost.high


def test_what_lies_exactly_at_a_bound():
    for upper, (low, high) in ((True, (0.1, 0.2)), (False, (0.0, 0.1))):
        assert outcomes._verdict(0.1, Estimate(0.1, low, high), upper=upper) == "held"
        assert outcomes._verdict(0.1, Estimate((low + high) / 2, low, high), upper=upper) == "unclear"
    exact = Referral(2, None, 1.0, (4.0, 4.0))
    assert exact.decide([[0.75, 0.25], [0.75 + 1e-9, 0.25 - 1e-9]]).refer.tolist() == [True, False]
    assert refer_for_costs({"refer": 0, "miss": 0}, 2).threshold == 0
    assert refer_for_budget([[0.9, 0.1], [0.2, 0.8]], 0).threshold == 0
    assert refer_for_budget([[0.9, 0.1], [0.2, 0.8]], 1).threshold == 1
    hundred = np.linspace(0.51, 0.99, 100)
    for n in range(101):  # n / 100 of 100 are n, whatever the rounding
        rule = refer_for_budget(hundred, n / 100, sample_weight=np.full(100, 0.1))
        assert rule.decide(hundred).refer.sum() == n
    sets = PredictionSets(3, "lac", (0.75,), max_size=2).decide([[0.75, 0.25, 0.0], [1 / 3, 1 / 3, 1 / 3]])
    assert (sets.sets.sum(axis=1).tolist(), sets.action.tolist()) == ([2, 3], ["list", "refer"])
    full = PredictionSets(3, "lac", (1.0,), max_size=3).decide([[0.5, 0.3, 0.2]])
    assert full.action.tolist() == ["refer"]


@pytest.mark.parametrize("goal", [{"max_miss": 0.2}, {"max_miss": {1: 0.2}}, {"budget": 0.3}, {"coverage": 0.8}])
def test_ties_stay_ties_in_single_precision(goal):
    rng = np.random.default_rng(0)
    p = rng.multinomial(10, [0.7, 0.2, 0.1], size=1500) / 10  # votes of ten neighbours
    y = np.array([rng.choice(3, p=row) for row in p])
    cal = decide_scores(Scores.of(p, y, input="probs"), **goal).calibrator
    assert cal.rule_ is not None
    exact, rounded = cal.decide(p), cal.decide(p.astype(np.float32))
    np.testing.assert_array_equal(rounded.action, exact.action)
    assert len(np.unique(exact.action)) > 1


def test_the_seed_draws_the_rows_of_cases_and_what_fits():
    p, y, case = calibrated(1500, size=3)
    val = scores(900)
    for choose in (
        lambda seed: refer_for_miss(p, y, 0.1, clusters=case, seed=seed).rule.threshold,
        lambda seed: refer_for_miss(p, y, [0.15] * 3, clusters=case, seed=seed).rule.threshold,
        lambda seed: conformal_sets(p, y, 0.9, clusters=case, seed=seed).rule.thresholds,
        lambda seed: decide_scores(val, max_miss=0.2, seed=seed).calibrator.temperature_,
        lambda seed: decide_scores(scores(1500, size=3), coverage=0.9, calibrator=ts(), seed=seed).rule.thresholds,
    ):
        found = [choose(seed) for seed in (0, 0, 1, 2)]
        assert found[0] == found[1]
        assert len(set(found)) > 1


def ts():
    return TemperatureScaling().fit(scores(500, seed=9))


def test_probabilities_of_the_fit_start_the_walk_where_decide_meets_ties():
    h, y = draw(3000, 3, t=1.0)
    found = decide_scores(val := Scores.of(h.round(1), y), max_miss=0.08, method="ts")
    fitting, chosen = choosing._divided(val, 0)
    probs, fit_probs = (found.calibrator.predict_proba(each) for each in (chosen, fitting))
    assert found.rule == refer_for_miss(probs, chosen.labels, 0.08, fit_probs=fit_probs).rule
    assert found.rule.threshold != getattr(refer_for_miss(probs, chosen.labels, 0.08).rule, "threshold", None)


def test_a_class_without_a_bound_has_none_and_certain_errors_are_what_is_missing():
    p, y, _ = calibrated(600)
    rule = Referral(3, 0.6, promise=Promise("miss", (0.3, 0.2, 1.0), 0.95, "class"))
    parts = [part for part in outcome_of(rule, p, y).parts if part.of == "class"]
    assert [part.bound for part in parts] == [0.3, 0.2, None]
    assert [part.verdict is None for part in parts] == [False, False, True]
    confidence = np.r_[np.ones(60), np.full(40, 0.8)]
    probs, labels = two_classes(confidence, (np.arange(100) % 6 > 0) & (np.arange(100) < 60))
    (shortage,) = refer_for_miss(np.r_[probs, probs[:, ::-1]], np.r_[0 * labels, 0 * labels], {0: 0.2}).shortages
    c, e = np.r_[confidence, confidence], np.r_[np.zeros(100, bool), np.ones(100, bool)]
    assert (shortage.errors, shortage.tested, shortage.n_cases) == ((e & (c >= 1)).sum(), 200, 200)


def test_a_calibrator_that_is_passed_loses_an_old_rule_and_all_cases_choose():
    ruled = decide_scores(scores(900), budget=0.2).calibrator
    found = decide_scores(scores(60, seed=3), calibrator=ruled, max_miss={"b": 0.05})
    (shortage,) = found.shortages
    assert (hasattr(found.calibrator, "rule_"), hasattr(ruled, "rule_")) == (False, True)
    assert shortage.more == 59 - shortage.n_cases
    with pytest.raises(InputError) as error:
        decide_scores(Scores.of(*draw(9, 3), clusters=np.zeros(9)), budget=0.2)
    assert error.value.param == "val"
    tied = Scores.of(draw(900, 3).h.round(), draw(900, 3).y)
    with pytest.warns(AttemperWarning):
        decide_scores(tied, calibrator=ts(), max_miss=0.2)
    decide_scores(tied, calibrator=ts(), max_miss=0.2, by="class")  # which has no walk


def test_shortages_count_weights_as_rows_and_the_start_leaves_a_standard_error():
    p, y = two_classes(np.linspace(0.99, 0.6, 200), np.arange(200) % 16 != 3)
    w = 1 + np.arange(200) % 3
    rows = np.repeat(np.arange(200), w)
    weighted, repeated = refer_for_miss(p, y, 0.1, sample_weight=w), refer_for_miss(p[rows], y[rows], 0.1)
    assert weighted.shortages == repeated.shortages != ()
    c, first = np.arange(1000, 2000) / 2000, ranks_to_test(600, 0.1, 0.05)[0]
    share = first / 600
    reach = math.ceil(1000 * share + math.sqrt(1000 * share * (1 - share)))
    assert start_of(c, np.ones(1000), 600, 0.1, 0.05) == c[-reach]
