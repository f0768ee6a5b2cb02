"""Plans: closed forms against what fits, metrics, sets and guarantees then show."""

import numpy as np
import pytest
from scipy.special import bdtr, ndtri
from scipy.stats import beta

from attemper import InputError, TemperatureScaling, datasets, metrics
from attemper.decisions import refer_for_miss
from attemper.decisions.certificates import most_errors
from attemper.decisions.sets import order_of
from attemper.kernels.temperature import information, information_of_t
from attemper.planning import labels_for_metric, labels_for_miss, labels_for_sets, labels_for_temperature


def softmax(h):
    p = np.exp(h - h.max(axis=1, keepdims=True))
    return p / p.sum(axis=1, keepdims=True)


def draw(n, seed=0, size=1):
    rng = np.random.default_rng(seed)
    case = np.arange(n) // size
    h = 2 * rng.normal(size=(n, 3))
    return h, (h + rng.gumbel(size=(case[-1] + 1, 3))[case]).argmax(axis=1), case


def test_plans_have_the_numbers_of_0_2():
    skin = datasets.load()
    assert labels_for_temperature(skin.val_logits[:200], temperature=1.7, width=1.2).n == 789
    assert labels_for_metric(skin.val_labels, softmax(skin.val_logits), "accuracy", width=0.04).n == 1590
    assert labels_for_sets(0.95, within=0.02).n == 442


def test_a_plan_for_t_is_the_width_that_a_fit_then_has():
    h, y, _ = draw(20_000)
    n = labels_for_temperature(h[:500], width=1.3).n
    low, high = TemperatureScaling().fit(h[:n], y[:n]).temperature_interval_
    assert high / low == pytest.approx(1.3, rel=0.05)
    assert labels_for_temperature(h[:500], width=1.3, noise=0.1).n > n
    mean = information_of_t(information(h[:500], 1.0, 0.15).mean(axis=0))  # a guess is right in one of three
    n = labels_for_temperature(h[:500], width=1.3, noise=0.1).n
    assert n == np.ceil((2 * ndtri(0.975) / np.log(1.3)) ** 2 / mean)


@pytest.mark.parametrize("metric", ["accuracy", "nll", "brier", "ece"])
def test_a_plan_for_a_metric_is_the_width_that_it_then_has(metric):
    h, y, case = draw(4000, size=2)
    p = softmax(h)
    plan = labels_for_metric(y[:800], p[:800], metric, width=0.06, clusters=case[:800])
    assert plan.expected <= 0.06
    assert plan.n_cases == (plan.n + 1) // 2
    assert plan.n > labels_for_metric(y[:800], p[:800], metric, width=0.06).n
    if metric != "ece":
        found = metrics.evaluate(y[: plan.n], p[: plan.n], [metric], clusters=case[: plan.n])[metric]
        assert found.high - found.low == pytest.approx(0.06, rel=0.2)


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
    h, y, _ = draw(2000)
    plan = labels_for_miss(softmax(h), y, {"a": 0.1}, decided_share=0.5, classes="abc")
    (n,), (rate,), (have,) = plan.n_cases, plan.rate, plan.there_are
    assert have == (y == 0).sum()
    assert bdtr(most_errors(n, 0.1, 0.05), n, rate) >= 0.8
    # The power goes up and down by steps as one more error is allowed, so a little below n it fails somewhere.
    assert any(bdtr(most_errors(m, 0.1, 0.05), m, rate) < 0.8 for m in range(max(29, n - 15), n))
    assert plan.more[0] == max(0, n - have)
    assert plan.power_now[0] == pytest.approx(bdtr(most_errors(have, 0.1, 0.05), have, rate))


def test_a_plan_agrees_with_what_is_decided():
    """So many cases of the same population pass the walk down to the share as often as planned."""
    h, y, _ = draw(50_000, seed=3)
    p = softmax(h)
    plan, confidence = labels_for_miss(p, y, 0.1), p.max(axis=1)
    rng, n, passed = np.random.default_rng(0), plan.n_cases[0], 0
    for _ in range(200):
        rows = rng.choice(len(y), n, replace=False)
        rule = refer_for_miss(p[rows], y[rows], 0.1).rule
        passed += rule is not None and (confidence[rows] > rule.threshold).sum() >= plan.decided_share * n
    assert abs(passed / 200 - 0.8) < 4 * np.sqrt(0.8 * 0.2 / 200)


def test_no_number_is_enough_where_errors_are_too_many():
    h, y, _ = draw(500)
    plan = labels_for_miss(softmax(h), (y + 1) % 3, 0.05, decided_share=0.5)
    assert plan.n_cases == plan.more == (None,)


@pytest.mark.parametrize(
    ("param", "call"),
    [
        ("width", lambda h, y: labels_for_temperature(h, width=1)),
        ("width", lambda h, y: labels_for_metric(y, softmax(h), width=1e-9)),
        ("metric", lambda h, y: labels_for_metric(y, softmax(h), "auc", width=0.1)),
        ("coverage", lambda h, y: labels_for_sets(1.0, within=0.1)),
        ("within", lambda h, y: labels_for_sets(0.9, within=1e-5)),
        ("max_miss", lambda h, y: labels_for_miss(softmax(h), y, 2.0)),
    ],
)
def test_bad_input_names_its_parameter(param, call):
    h, y, _ = draw(100)
    with pytest.raises(InputError) as error:
        call(h, y)
    assert error.value.param == param
