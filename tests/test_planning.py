"""Plans: closed forms against what fits, metrics, sets and guarantees then show."""

import numpy as np
import pytest
from scipy.special import bdtr, ndtri
from scipy.stats import beta

from attemper import InputError, TemperatureScaling, metrics
from attemper.decisions import refer_for_miss
from attemper.decisions.certificates import most_errors
from attemper.decisions.sets import order_of
from attemper.kernels.temperature import information, information_of_t
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
