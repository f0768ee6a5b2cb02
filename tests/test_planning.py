"""Plans: closed forms against what fits, metrics, sets and guarantees then show."""

import numpy as np
import pytest
from scipy.special import bdtr, ndtri
from scipy.stats import beta
from scipy.stats import t as student

from attemper import InputError, TemperatureScaling, metrics
from attemper.decisions import refer_for_miss
from attemper.decisions.certificates import most_errors
from attemper.decisions.rules import draw_cases
from attemper.decisions.sets import order_of
from attemper.kernels.temperature import information, information_of_t, row_terms
from attemper.metrics.intervals import LEAST_ERRORS
from attemper.planning import labels_for_metric, labels_for_miss, labels_for_sets, labels_for_temperature
from conftest import draw


def test_a_plan_for_t_is_the_width_that_a_fit_then_has():
    h, y = draw(20_000, 3, t=1.0)
    n = labels_for_temperature(h[:500], width=1.3).n
    low, high = TemperatureScaling().fit(h[:n], y[:n]).temperature_interval_
    assert high / low == pytest.approx(1.3, rel=0.05)
    assert labels_for_temperature(h[:500], width=1.3, noise=0.1).n > n
    mean = information_of_t(information(h[:500], 1.0, 0.15).mean(axis=0))  # a guess is right in one of three
    n = labels_for_temperature(h[:500], width=1.3, noise=0.1).n
    assert n == np.ceil((2 * ndtri(0.975) / np.log(1.3)) ** 2 / mean)


@pytest.mark.parametrize("metric", ["accuracy", "nll", "brier", "ece"])
def test_a_plan_for_a_metric_is_the_width_that_it_then_has(metric):
    data = draw(4000, 3, t=1.0, clusters=2)
    p, y, case = data.p, data.y, data.cluster
    plan = labels_for_metric(y[:800], p[:800], metric, width=0.06, clusters=case[:800])
    assert plan.expected <= 0.06
    assert plan.n_cases == (plan.n + 1) // 2
    assert plan.n > labels_for_metric(y[:800], p[:800], metric, width=0.06).n
    risk = labels_for_metric(y[:800] == 1, p[:800, 1], metric, width=0.04)
    if metric != "ece":
        found = metrics.evaluate(y[: risk.n] == 1, p[: risk.n, 1], [metric])[metric]
        assert found.high - found.low == pytest.approx(0.04, rel=0.2)
        found = metrics.evaluate(y[: plan.n], p[: plan.n], [metric], clusters=case[: plan.n])[metric]
        assert found.high - found.low == pytest.approx(0.06, rel=0.2)


def test_a_plan_for_a_metric_has_the_errors_that_it_needs():
    p = np.repeat([0.99, 0.98], 1000)
    y = (np.arange(2000) % 50 == 0).astype(int)  # two of a hundred are wrong
    for metric in ("nll", "brier", "ece"):
        plan = labels_for_metric(y, np.column_stack([p, 1 - p]), metric, width=0.9)
        assert bdtr(LEAST_ERRORS - 1, plan.n, 0.02) < 0.05
        case = np.arange(2000) // 2
        by_case = labels_for_metric(y, np.column_stack([p, 1 - p]), metric, width=0.9, clusters=case)
        assert by_case.n == plan.n  # each error is in a case of its own
    assert labels_for_metric(y, np.column_stack([p, 1 - p]), "accuracy", width=0.9).n < 20


def test_one_column_is_the_log_odds_of_the_second_class():
    data, case = draw(300, 2), np.arange(300) // 2
    two = data.h - data.h[:, :1]
    for labels in ((), (data.y,)):
        more = {"clusters": case} if labels else {}
        plans = [labels_for_temperature(h, *labels, width=1.2, **more).n for h in (two, two[:, 1], two[:, 1:])]
        assert len(set(plans)) == 1


@pytest.mark.parametrize(("coverage", "within"), [(0.9, 0.03), (0.95, 0.02), (0.8, 0.1)])
def test_a_plan_for_sets_is_the_exact_law(coverage, within):
    plan = labels_for_sets(coverage, within=within)

    def inside(n):
        k = order_of(n, coverage)
        return 0 if k is None else np.diff(beta.cdf([coverage - within, coverage + within], k, n + 1 - k))[0]

    assert inside(plan.n) == pytest.approx(plan.expected)
    assert plan.expected >= 0.95 > inside(plan.n - 1)
    assert all(inside(n) >= 0.95 for n in range(plan.n, plan.n + 200))


def test_power_for_a_bound_by_class_is_binomial():
    data = draw(2000, 3, t=1.0)
    plan = labels_for_miss(data.y, data.p, {"a": 0.1}, decided_share=0.5, classes="abc")
    (n,), (rate,), (have,) = plan.n_cases, plan.rate, plan.there_are
    assert have == (data.y == 0).sum()
    assert bdtr(most_errors(n, 0.1, 0.05), n, rate) >= 0.8
    # The power goes up and down by steps as one more error is allowed, so a little below n it fails somewhere.
    assert any(bdtr(most_errors(m, 0.1, 0.05), m, rate) < 0.8 for m in range(max(29, n - 15), n))
    assert plan.more[0] == max(0, n - have)
    (more,) = labels_for_miss(data.y, data.p, {"a": 0.1}, decided_share=0.5, power=0.95, classes="abc").n_cases
    assert bdtr(most_errors(more, 0.1, 0.05), more, rate) >= 0.95
    assert more > n
    assert plan.power_now[0] == pytest.approx(bdtr(most_errors(have, 0.1, 0.05), have, rate))


def test_a_plan_agrees_with_what_is_decided():
    """So many cases of the same population pass the walk down to the share as often as planned."""
    data = draw(50_000, 3, t=1.0)
    p, y = data.p, data.y
    plan, confidence = labels_for_miss(y, p, 0.1), p.max(axis=1)
    rng, n, passed = np.random.default_rng(0), plan.n_cases[0], 0
    for _ in range(200):
        rows = rng.choice(len(y), n, replace=False)
        rule = refer_for_miss(p[rows], y[rows], 0.1).rule
        passed += rule is not None and (confidence[rows] > rule.threshold).sum() >= plan.decided_share * n
    assert abs(passed / 200 - 0.8) < 4 * np.sqrt(0.8 * 0.2 / 200)


def test_no_number_is_enough_where_errors_are_too_many():
    data = draw(500, 3)
    plan = labels_for_miss((data.y + 1) % 3, data.p, 0.05, decided_share=0.5)
    assert plan.n_cases == plan.more == (None,)


@pytest.mark.parametrize(
    ("param", "call"),
    [
        ("width", lambda d: labels_for_temperature(d.h, width=1)),
        ("width", lambda d: labels_for_metric(d.y, d.p, width=1e-9)),
        ("metric", lambda d: labels_for_metric(d.y, d.p, "auc", width=0.1)),
        ("noise", lambda d: labels_for_temperature(d.h, width=1.2, noise=1)),
        ("temperature", lambda d: labels_for_temperature(d.h, width=1.2, temperature=0)),
        ("width", lambda d: labels_for_metric(d.y, d.p, width=0)),
        ("within", lambda d: labels_for_sets(0.9, within=1)),
        ("coverage", lambda d: labels_for_sets(1.0, within=0.1)),
        ("within", lambda d: labels_for_sets(0.9, within=1e-5)),
        ("max_miss", lambda d: labels_for_miss(d.y, d.p, 2.0)),
        ("labels", lambda d: labels_for_temperature(d.y, d.h, width=1.2)),
        ("labels", lambda d: labels_for_metric(d.p.argmax(axis=1), d.p, "nll", width=0.1)),
        ("labels", lambda d: labels_for_metric(d.p.argmax(axis=1), d.p, "accuracy", width=0.1)),
        ("clusters", lambda d: labels_for_metric(d.y, d.p, width=0.1, clusters=[1, 2])),
        ("confidence_level", lambda d: labels_for_temperature(d.h, width=1.2, confidence_level=95)),
        ("confidence_level", lambda d: labels_for_metric(d.y, d.p, width=0.1, confidence_level=1)),
        ("confidence_level", lambda d: labels_for_sets(0.9, within=0.1, confidence_level=0)),
        ("guarantee_level", lambda d: labels_for_miss(d.y, d.p, 0.1, guarantee_level=95)),
        ("power", lambda d: labels_for_miss(d.y, d.p, 0.1, power=2)),
        ("decided_share", lambda d: labels_for_miss(d.y, d.p, 0.1, decided_share=5)),
    ],
)
def test_bad_input_names_its_parameter(param, call):
    with pytest.raises(InputError) as error:
        call(draw(100, 3))
    assert error.value.param == param


def test_copies_within_a_case_add_no_cases():
    data = draw(600, 3, t=1.0)
    twice, case = np.repeat(np.arange(600), 2), np.repeat(np.arange(600), 2)
    h, p, y = data.h[twice], data.p[twice], data.y[twice]
    once = labels_for_miss(data.y, data.p, 0.2)
    assert labels_for_miss(y, p, 0.2, clusters=case).columns() == once.columns()
    plain = labels_for_temperature(data.h, width=1.3).n
    assert labels_for_temperature(h, y, width=1.3, clusters=case).n == pytest.approx(2 * plain, rel=0.05)


@pytest.mark.parametrize("metric", ["accuracy", "nll", "brier"])
@pytest.mark.parametrize(("size", "n"), [(1, 300), (1, 80), (20, 400)])
def test_the_plan_for_the_interval_of_a_pilot_is_the_pilot(metric, size, n):
    data = draw(n, 3, t=1.0, noise=0.3, clusters=size)
    case = {"clusters": data.cluster} if size > 1 else {}
    for level in (0.95, 0.8):
        found = metrics.evaluate(data.y, data.p, [metric], confidence_level=level, **case)[metric]
        width = found.high - found.low if found.has_interval else 0.2
        plan = labels_for_metric(data.y, data.p, metric, width=width, confidence_level=level, **case)
        assert plan.n == pytest.approx(n, rel=0.12) or not found.has_interval
        assert plan.n_cases == np.ceil(plan.n / size)


def test_a_plan_for_t_of_few_cases_has_students_quantile():
    data = draw(400, 3, t=1.0, clusters=4)
    _, slopes, curvature = row_terms(data.h, data.y, 1.0, masked=False)
    sums = np.bincount(data.cluster, slopes - slopes.mean())
    effect, mean = (
        100 / 99 * sums @ sums / curvature.sum(),
        information_of_t(information(data.h, 1.0, 0.0).mean(axis=0)),
    )
    for level, width in ((0.95, 2.5), (0.8, 1.5)):
        options = {"width": width, "clusters": data.cluster, "confidence_level": level}
        plan = labels_for_temperature(data.h, data.y, **options)
        z = student.ppf((1 + level) / 2, max(plan.n / 4, 1.5) - 1)
        assert plan.expected <= width
        assert plan.expected == pytest.approx(np.exp(2 * z * np.sqrt(max(effect, 1) / (plan.n * mean))))


def test_the_rate_and_the_limit_of_a_pilot_are_counted():
    p = np.repeat([0.99, 0.9, 0.8, 0.7, 0.6], 40)
    wrong = np.arange(200) % 40 < np.repeat([0, 2, 4, 8, 16], 40)
    probs, y = np.column_stack([p, 1 - p]), wrong.astype(int)
    plan = labels_for_miss(y, probs, 0.15, decided_share=0.5)
    assert plan.rate == pytest.approx((6 / 120,))  # those at the threshold are decided
    strict, lax = (labels_for_miss(y, probs, 0.15, decided_share=0.5, guarantee_level=g) for g in (0.99, 0.8))
    assert strict.n_cases > plan.n_cases > lax.n_cases


def test_the_limit_of_a_pilot_is_where_the_rate_reaches_the_bound():
    p = np.linspace(0.99, 0.6, 200)
    y = ((np.arange(200) == 50) | (np.arange(200) > 150)).astype(int)
    plan = labels_for_miss(y, np.column_stack([p, 1 - p]), 1 / 51)
    assert (plan.limit, plan.decided_share) == (0.25, pytest.approx(0.2))
    many, case = draw(1500, 3, t=1.0, clusters=3), np.arange(1500) // 3
    for seed in (0, 1):
        rows = draw_cases(case, np.ones(1500), seed)[0]
        found = labels_for_miss(many.y, many.p, 0.1, clusters=case, seed=seed)
        alone = labels_for_miss(many.y[rows], many.p[rows], 0.1)
        assert (found.limit, found.columns()) == (alone.limit, alone.columns())


def test_a_plan_for_t_knows_masked_classes():
    h = draw(500, 3).h
    wide = np.concatenate([h, np.full((500, 4), -np.inf)], axis=1)
    assert labels_for_temperature(wide, width=1.3, noise=0.1) == labels_for_temperature(h, width=1.3, noise=0.1)
