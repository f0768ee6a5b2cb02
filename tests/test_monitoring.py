"""Monitoring: fair bets, exact p-values, levels of small simulations, the state, and the medical team's case."""

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import kstest

from attemper import (
    METHODS,
    BayesianTemperatureScaling,
    InputError,
    Scores,
    TemperatureScaling,
    _json,
    datasets,
    monitoring,
)
from attemper.decisions import Referral
from attemper.decisions.sets import PredictionSets
from attemper.errors import FileError, collected_warnings
from attemper.kernels.drift import (
    advance,
    average_by_cluster,
    conformal_p_values,
    log_bets,
    log_prior,
    log_unspent,
)
from attemper.metrics.intervals import Spread, around_mean, share_of
from attemper.metrics.predictions import Predictions
from attemper.monitoring import (
    EProcess,
    ExchangeabilityTest,
    GapTest,
    MonitorReport,
    expected_accuracy,
    monitor_scores,
)
from conftest import draw


def logs(n, seed, t=1.0, size=1):
    """Log-probabilities, labels that they are calibrated for at t = 1, and cases."""
    data = draw(n, 3, t=t, clusters=size, seed=seed)
    return np.log(data.p), data.y, data.cluster if size > 1 else None


# Wagers


def test_the_mixture_is_the_sum_over_all_beginnings():
    ratios = np.random.default_rng(0).normal(size=(30, 16)) / 3
    stake, wealth = advance(0, np.full(16, -np.inf), ratios)
    for t in (1, 7, 30):
        slow = np.exp(log_unspent(t))
        for s in range(t):
            slow += np.exp(log_prior(s, 1)[0]) * np.exp(ratios[s:t].sum(axis=0)).mean()
        assert wealth[t - 1] == pytest.approx(np.log(slow), abs=1e-12)
    one = advance(0, np.full(16, -np.inf), ratios[:11])[0]
    np.testing.assert_allclose(advance(11, one, ratios[11:])[0], stake, atol=1e-12)
    assert np.exp(log_prior(0, 50)).sum() + np.exp(log_unspent(50)) == pytest.approx(1)


def test_bets_on_p_values_are_densities():
    p = (np.arange(200_000) + 0.5) / 200_000
    np.testing.assert_allclose(np.exp(log_bets(p)).mean(axis=0), 1, atol=0.02)


def test_gap_bets_are_fair_at_the_edge_of_the_tolerance():
    test = GapTest(0.0, 0.02, EProcess(0.05))
    stakes = monitoring.STAKES / 1.02
    for x, q in ((np.array([1.0, -1.0]), 0.51), (np.array([0.5, -0.1]), 0.2)):
        mean = sum(share * (1 + stakes * (each - test.tolerance)) for share, each in zip((q, 1 - q), x))
        assert (mean <= 1 + 1e-12).all()
        assert (1 - stakes * 1.02 > 0).all()


def test_the_gap_of_a_case_is_its_mean():
    confidence, right = np.array([0.9] * 5 + [0.6, 0.8]), np.array([False] * 5 + [True, False])
    found = monitoring._gaps(confidence, right, np.array(["b"] * 5 + ["a", "a"]))
    np.testing.assert_allclose(found, [(-0.4 + 0.8) / 2, 0.9][::-1])
    x = monitoring._gaps(*np.array([[0.9, 0.8, 0.7], [1, 0, 1]]), None)
    tolerance = monitoring.STANDARD_ERRORS * x.std(ddof=1) / np.sqrt(3)
    assert GapTest.new(np.array([0.9, 0.8, 0.7]), np.array([True, False, True])).tolerance == pytest.approx(tolerance)


def test_conformal_p_values_are_ranks_and_uniform():
    rng = np.random.default_rng(0)
    scores, before, u = rng.integers(0, 9, 1500), rng.integers(0, 9, 40), rng.random(1500)
    found = conformal_p_values(scores, np.bincount(before, minlength=9), u)
    for i in (0, 3, 700, 1499):
        seen = np.concatenate([before, scores[:i]])
        rank = (seen < scores[i]).sum() + u[i] * ((seen == scores[i]).sum() + 1)
        assert found[i] == pytest.approx(rank / (len(seen) + 1))
    assert kstest(found, "uniform").pvalue > 0.001


def test_a_case_is_ranked_by_its_mean_log_probability():
    log_p, case = np.log([0.9, 0.2, 0.6, 0.99]), np.array([0, 0, 1, 2])
    bins = monitoring._bins(log_p, case)
    mean = np.array([np.log(0.9 * 0.2) / 2, np.log(0.6), np.log(0.99)])
    np.testing.assert_allclose(
        (bins - monitoring.N_BINS // 2) * monitoring.BIN, mean - np.log(-np.expm1(mean)), atol=0.01
    )


@pytest.mark.parametrize("size", [1, 2])
def test_batches_make_no_difference(size):
    log_p, y, case = logs(900, 1, t=1.5, size=size)
    own = log_p[np.arange(900), y]
    first, second = slice(0, 500), slice(500, 900)
    whole = ExchangeabilityTest.new().update(own, case)
    parts = ExchangeabilityTest.new()
    for rows in (first, second):
        parts = parts.update(own[rows], None if case is None else case[rows])
    assert parts.process.log_sup == pytest.approx(whole.process.log_sup, abs=1e-9)


# Levels


@pytest.mark.parametrize("size", [1, 2])
def test_false_alarms_are_rare_and_changes_are_found(size):
    false = found = 0
    for seed in range(60):
        monitor = MonitorReport.from_reference(*logs(600, 3 * seed + 10_000, size=size))
        false += monitor.update(*logs(2000, 3 * seed + 10_001, size=size)).alarm
        found += monitor.update(*logs(1500, 3 * seed + 10_002, size=size, t=3.0)).alarm
    assert false <= 8  # P(Bin(60, .05) > 8) = .3 %
    assert found >= 48


@pytest.mark.parametrize("method", ["isotonic", "histogram"])
def test_labels_of_probability_0_are_no_alarm(method):
    cal, alarms, least = METHODS[method]().fit(scores(600, 0)), 0, 1.0
    for seed in range(3, 33, 3):
        batch = scores(1000, seed)
        p = cal.predict_proba(batch)
        least = min(least, p[np.arange(1000), batch.labels].min())
        alarms += monitor_scores(cal, batch, reference=scores(600, seed + 1)).alarm
    assert least == 0
    assert alarms <= 2  # P(Bin(10, .05) > 2) = 1 %


def test_without_clusters_each_row_is_a_case():
    for reference in (None, scores(300, 1)):
        cal, batch, seen = TemperatureScaling().fit(scores(400, 0)), scores(700, 2, t=3.0), []
        for own in (lambda s: s, lambda s: Scores.of(s.logits, s.labels, clusters=np.arange(len(s)))):
            given = {} if reference is None else {"reference": own(reference)}
            seen.append(monitor_scores(cal, own(batch), **given).p_value)
        assert seen[0] == pytest.approx(seen[1])


def test_the_change_that_a_medical_team_missed_is_found():
    """Skin lesions by patient, noise on the logits in the second half: accuracy 76 → 70 %, gap + 6 points."""
    skin = datasets.load()
    h = np.concatenate([skin.val_logits, skin.test_logits]).astype(float)
    y = np.concatenate([skin.val_labels, skin.test_labels])
    lesion = np.unique(skin.extra["lesion_id"], return_inverse=True)[1]
    found = false = 0
    for seed in range(12):
        rng = np.random.default_rng(seed)
        patient = rng.permutation(lesion.max() + 1)[lesion] // 2
        order = np.argsort(rng.random(patient.max() + 1)[patient], kind="stable")
        parts = np.searchsorted(np.cumsum(np.ones(len(order))), [800, 2000, 3200])
        val, before, after, _ = np.split(order, parts)
        cal = TemperatureScaling().fit(h[val], y[val], clusters=patient[val])
        batches = [(h[before], before), (h[after] + 2.4 * rng.normal(size=(len(after), 7)), after)]
        reports = [Scores.of(x, y[rows], clusters=patient[rows]) for x, rows in batches]
        report = monitor_scores(cal, reports[0], reference=Scores.of(h[val], y[val], clusters=patient[val]))
        false += report.alarm
        report = monitor_scores(cal, reports[1], state=report)
        found += report.alarm
        assert report.batches[1].gap.value > report.batches[0].gap.value
    assert found >= 6
    assert false <= 1


# State and reports


def scores(n, seed, size=1, t=2.0, labelled=True):
    data = draw(n, 3, t=t, clusters=size, seed=seed)
    return Scores.of(data.h, data.y if labelled else None, clusters=data.cluster if size > 1 else None)


@pytest.mark.parametrize("size", [1, 2])
@pytest.mark.parametrize("with_reference", [True, False])
def test_a_state_goes_on_as_if_in_one(tmp_path, size, with_reference):
    cal = BayesianTemperatureScaling().fit(scores(400, 0, size))
    reference = scores(300, 1, size) if with_reference else None
    batches, path = [scores(500, 2, size), scores(500, 3, size, t=3.0)], tmp_path / "monitor.json"
    in_memory = None
    for i, batch in enumerate(batches):
        state = MonitorReport.load(path) if path.exists() else None
        saved = monitor_scores(cal, batch, state=state, reference=reference, sha256=str(i), name=f"month {i}")
        saved.save(path)
        in_memory = monitor_scores(cal, batch, state=in_memory, reference=reference, sha256=str(i), name=f"month {i}")
    assert _json.plain(MonitorReport.load(path)) == _json.plain(in_memory)
    assert saved.p_value == in_memory.p_value
    assert [batch.batch for batch in saved.batches] == ["month 0", "month 1"]
    assert in_memory.fed == ("0", "1")
    state = MonitorReport.load(path)
    with pytest.raises(InputError) as error:
        monitor_scores(cal, batches[0], state=state, sha256="0")
    assert error.value.param == "data"
    with pytest.raises(InputError) as error:
        monitor_scores(TemperatureScaling().fit(scores(400, 9, size)), batches[0], state=state)
    assert error.value.param == "state"
    with pytest.raises(InputError) as error:
        monitor_scores(cal, scores(500, 2, 3 - size), state=state)
    assert error.value.param == "clusters"
    with pytest.raises(InputError) as error:
        monitor_scores(cal, scores(500, 2, size, labelled=False), state=state)
    assert error.value.param == "labels"
    path.write_text("{}")
    with pytest.raises(FileError):
        MonitorReport.load(path)


def test_the_report_of_a_batch_has_the_numbers():
    cal = TemperatureScaling().fit(scores(2000, 0, 2))
    cal.rule_ = Referral(3, 0.8)
    batch = scores(500, 1, 2)
    found = monitor_scores(cal, batch, name="May")
    (report,) = found.batches
    p = cal.predict_proba(batch.logits)
    right, confidence = p.argmax(axis=1) == batch.labels, p.max(axis=1)
    assert (report.batch, report.n, report.n_cases, report.verdict) == ("May", 500, 250, "no alarm")
    assert (report.accuracy.value, report.confidence) == pytest.approx((right.mean(), confidence.mean()))
    assert report.gap.value == pytest.approx((confidence - right).mean())
    assert report.gap.low < report.gap.value < report.gap.high
    assert (report.decided, report.missed) == ((confidence > 0.8).sum(), ((confidence > 0.8) & ~right).sum())
    assert max(map(len, str(found).splitlines())) <= 80
    assert found.gap.process.alpha == found.exchangeability.process.alpha == found.alpha / 2


def test_rows_of_the_fit_are_refused():
    cal = TemperatureScaling().fit(scores(400, 0))
    with pytest.raises(InputError) as error:
        monitor_scores(cal, scores(400, 0).take(slice(100, None)))
    assert error.value.param == "data"


@pytest.mark.parametrize("method", sorted(METHODS))
def test_a_reference_that_fitted_a_map_of_many_parameters_is_warned_of(method):
    own, cal = scores(400, 0), METHODS[method]().fit(scores(400, 0))
    for reference, doubtful in ((own, not cal.map_.keeps_arg_max), (scores(400, 2), False)):
        with collected_warnings() as found:
            monitor_scores(cal, scores(100, 1), reference=reference)
        assert bool(found) == doubtful


def test_without_labels_confidences_are_watched():
    cal = TemperatureScaling().fit(scores(800, 0))
    reference, same = scores(800, 0), scores(2000, 1, labelled=False)
    sharper = Scores.of(2 * draw(2000, 3).h)
    first = monitor_scores(cal, same, reference=reference)
    assert not first.alarm
    assert first.batches[0].accuracy is None
    assert first.batches[0].gap is None
    assert monitor_scores(cal, sharper, state=first).alarm


@pytest.mark.parametrize("size", [1, 4])
def test_the_expected_accuracy_is_the_mean_confidence(size):
    log_p, _, case = logs(300, 0, size=size)
    p = np.exp(log_p)
    found, c = expected_accuracy(p, case), p.max(axis=1)
    std = np.sqrt(c * (1 - c))
    std = std if case is None else np.bincount(case, std)
    assert found.value == pytest.approx(c.mean())
    assert found.high - found.low == pytest.approx(2 * 1.959964 * np.sqrt((std**2).sum()) / 300, rel=1e-6)


def test_the_order_of_cases_does_not_depend_on_their_size():
    rng = np.random.default_rng(0)
    clusters = rng.permutation(np.concatenate([np.repeat(np.arange(200), 20), np.arange(200, 600)]))
    values = rng.normal(size=(len(clusters), 1))
    mean, case = average_by_cluster(values, clusters)
    np.testing.assert_allclose(mean[:, 0], np.bincount(case, values[:, 0]) / np.bincount(case))
    size = np.bincount(case)
    assert sorted(size.tolist()) == [1] * 400 + [20] * 200
    large, small = np.flatnonzero(size == 20), np.flatnonzero(size == 1)
    assert abs(large.mean() - small.mean()) < 3 * 600 / math.sqrt(12) * math.sqrt(1 / 200 + 1 / 400)
    in_time = np.repeat(np.arange(50), 3)  # cases one after the other stay in their order
    np.testing.assert_array_equal(average_by_cluster(np.ones((150, 1)), in_time)[1], in_time)


def test_the_tolerance_is_that_of_the_reference_or_of_the_cases_of_the_fit():
    cal, batch = TemperatureScaling().fit(scores(400, 0, 2)), scores(300, 1, 2)
    assert cal.report_.n_cases == 200

    def gap(reference=None, **facts):
        cal.report_ = replace(cal.report_, **facts)
        return monitor_scores(cal, batch, reference=reference).gap

    assert gap(n_cases=50).tolerance == pytest.approx(2 * gap(n_cases=200).tolerance)
    assert gap(n_cases=None, n_samples=100).tolerance == pytest.approx(gap(n_cases=50).tolerance)  # in cases of two
    assert gap().centre == 0
    reference = scores(600, 2, 2)
    log_p = np.log(cal.predict_proba(reference.logits))
    x = (np.exp(log_p.max(axis=1)) - (log_p.argmax(axis=1) == reference.labels)).reshape(-1, 2).mean(axis=1)
    found = gap(reference, n_samples=9)
    assert (found.centre, found.tolerance) == pytest.approx((x.mean(), 2 * x.std(ddof=1) / np.sqrt(300)))
    one = GapTest.new(np.array([0.6, 0.8]), np.array([True, True]), ["a", "a"], n_fit=100)
    assert one.tolerance == pytest.approx(2 * np.sqrt((0.24 + 0.16) / 4 / 100))


def test_a_gap_that_the_reference_has_too_is_no_change():
    rng = np.random.default_rng(0)
    confidence = rng.uniform(0.5, 1, 12_000)
    right = rng.random(12_000) < confidence - 0.1
    reference, new = slice(0, 4000), slice(4000, None)
    test = GapTest.new(confidence[reference], right[reference])
    assert test.update(confidence[new], right[new]).alarm_at is None
    worse = rng.random(8000) < confidence[new] - 0.2
    assert test.update(confidence[new], worse).alarm_at is not None


def test_large_cases_without_a_change_raise_no_alarm():
    rng = np.random.default_rng(0)
    confidence = np.repeat(rng.uniform(0.5, 1, 2000), 8)
    right = np.repeat(rng.random(2000), 8) < confidence
    test = GapTest.new(confidence, right, np.arange(16_000) // 8, n_fit=1e12)
    assert test.update(confidence, right, np.arange(16_000) // 8).alarm_at is None


def test_ties_are_broken_alike_whatever_the_batches():
    own = np.log(np.resize([0.5, 0.6, 0.7], 400))  # ties throughout
    whole, parts = ExchangeabilityTest.new().update(own), ExchangeabilityTest.new()
    for rows in (slice(0, 150), slice(150, 400)):
        parts = parts.update(own[rows])
    np.testing.assert_allclose(parts.process.log_stake, whole.process.log_stake, atol=1e-9)


def test_rows_of_weight_zero_are_no_part_of_the_reference():
    data, w = draw(900, 3), np.ones(900)
    wrong = np.where(np.arange(900) % 3 == 0, (data.y + 1) % 3, data.y)
    w[::3] = 0.0
    cal = TemperatureScaling().fit(*draw(400, 3, seed=1))
    batch, kept = Scores.of(*draw(300, 3, seed=2)), w > 0
    found = monitor_scores(cal, batch, reference=Scores.of(data.h, wrong, sample_weight=w))
    fewer = monitor_scores(cal, batch, reference=Scores.of(data.h[kept], data.y[kept]))
    assert found.p_value == fewer.p_value


@pytest.mark.parametrize("size", [1, 3])
def test_the_intervals_of_a_batch_are_those_of_its_cases(size):
    cal, batch = TemperatureScaling().fit(scores(900, 0, size)), scores(600, 1, size, t=2.5)
    (report,) = monitor_scores(cal, batch).batches
    p = Predictions.of_scores(batch, cal.predict_log_proba(batch.logits))
    every, ones, (confidence, right) = np.ones(600, bool), np.ones(600), p.top
    spread = Spread.of(confidence - right, ones, p.clusters)
    for found, expected in (
        (report.accuracy, share_of(p.right, every, ones, p.clusters, 0.95)),
        (report.gap, around_mean((confidence - right).mean(), spread, 0.95)),
        (report.expected_accuracy, expected_accuracy(p.probs, p.clusters)),
    ):
        assert (found.value, found.low, found.high) == pytest.approx((expected.value, expected.low, expected.high))
    assert (report.n, report.n_cases) == (600, 600 / size)


def test_an_alarm_stays_where_it_was_and_is_counted_over_all_batches():
    ratios = np.random.default_rng(0).normal(0.3, 1, size=(20_000, 16)) / 8
    ratios[:17_000] = 0.0  # more rows than are worked on at once
    whole, parts = EProcess(0.05).update(ratios), EProcess(0.05)
    for rows in (slice(0, 20), slice(20, 17_010), slice(17_010, 20_000)):
        parts = parts.update(ratios[rows])
    assert (parts.n, parts.alarm_at, parts.p_value) == (whole.n, whole.alarm_at, pytest.approx(whole.p_value))
    wealth = advance(0, np.full(16, -np.inf), ratios)[1]
    assert whole.alarm_at == np.flatnonzero(wealth >= np.log(20))[0] + 1 > 17_000
    worse = whole.update(np.full((50, 16), -1.0))  # wealth falls, and the best so far stays
    assert (worse.alarm_at, worse.p_value) == (whole.alarm_at, whole.p_value)


def test_limits_of_an_expected_accuracy_are_shares_and_its_level_counts():
    for p in ([[0.999, 0.001]] * 3, [[0.5, 0.5]] * 2):
        wide, narrow = (expected_accuracy(p, confidence_level=level) for level in (0.95, 0.5))
        assert 0 <= wide.low <= narrow.low < narrow.high <= wide.high <= 1
        assert wide.high - wide.low > narrow.high - narrow.low


def test_without_labels_one_test_has_all_of_alpha():
    cal = TemperatureScaling().fit(scores(800, 0))
    (same, labelled), more = (scores(300, 1, labelled=each) for each in (False, True)), scores(300, 2)
    found = monitor_scores(cal, same, alpha=0.1)
    assert found.exchangeability.process.alpha == 0.1
    assert found.p_value == min(1, found.exchangeability.process.p_value)
    both = monitor_scores(cal, labelled, alpha=0.1)
    assert both.p_value == min(1, 2 * min(both.exchangeability.process.p_value, both.gap.process.p_value))
    for refused, options in (("alpha", {"state": found, "alpha": 0.2}), ("reference", {"reference": same})):
        with pytest.raises(InputError) as error:
            monitor_scores(cal, same if refused == "alpha" else more, **options)
        assert error.value.param == refused
    data = draw(300, 3)
    with pytest.raises(InputError) as error:
        monitor_scores(cal, Scores.of(data.h, data.y, sample_weight=1.0 * (np.arange(300) % 2) / 2))
    assert error.value.param == "sample_weight"
    assert replace(found, alpha=found.p_value).alarm


@pytest.mark.parametrize("centre", [-0.5, 0.0, 0.5])
def test_no_bet_loses_more_than_all(centre):
    for confidence, right in ((np.ones(9), np.zeros(9, bool)), (np.full(9, 0.01), np.ones(9, bool))):
        process = GapTest(centre, 0.02, EProcess(0.05)).update(confidence, right).process
        assert np.isfinite(process.log_stake).all()
        assert process.n == 9


def test_a_rule_by_group_gets_the_groups_of_a_batch():
    cal, data = TemperatureScaling().fit(scores(900, 0)), draw(300, 3, groups=2, seed=4)
    cal.rule_ = PredictionSets(3, "lac", (0.3, 0.9), groups=("site 0", "site 1"))
    (report,) = monitor_scores(cal, Scores.of(data.h, data.y, groups=data.group)).batches
    actions = cal.rule_.decide(cal.predict_proba(data.h), data.group)
    decided = actions.action == "decide"
    assert (report.decided, report.missed) == (decided.sum(), (decided & (actions.prediction != data.y)).sum())
