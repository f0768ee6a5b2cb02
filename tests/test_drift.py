"""The drift test as its users meet it: quiet while the map fits, loud when it does not, at any look."""

import json

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import attemper
from attemper import (
    AttendedTemperatureScaling,
    BayesianTemperatureScaling,
    EdgeWarning,
    EnsembleTemperatureScaling,
    FileError,
    InputError,
    IsotonicCalibration,
    ScaleMap,
    Scores,
    StructuredScaling,
    TemperatureScaling,
    VectorScaling,
)
from attemper.drift import DriftTest, ExchangeabilityTest, expected_accuracy, load_test
from attemper.kernels.drift import conformal_p_values, log_bets

from data import draw
from oracles import softmax


def stream(n=2000, k=5, change=1000, t=2.0, later=4.0, seed=0):
    """Logits, and labels whose temperature changes."""
    rng = np.random.default_rng(seed)
    h = 3 * rng.normal(size=(n, k))
    ts = np.where(np.arange(n) < change, t, later)[:, None]
    return h, (h / ts + rng.gumbel(size=h.shape)).argmax(axis=1)


def numbers(test):
    found = test.drift()
    whole = [-1 if n is None else n for n in (test.alarm_at, found.since)]
    return (test.n_samples, *whole, test.log_e_value, test.p_value, found.factor)


@pytest.mark.parametrize("later, seed", [(4.0, 0), (1.0, 1)])
def test_drift_is_found(later, seed):
    h, y = stream(4000, change=1500, later=later, seed=seed)
    test = DriftTest(2.0).update(h[:1500], y[:1500])
    assert not test.alarm
    assert test.p_value > 0.05
    test.update(h[1500:], y[1500:])
    assert test.alarm
    assert 1500 < test.alarm_at < 2300
    assert test.p_value <= 0.05
    assert test.e_value > 20
    found = test.drift()
    assert found.temperature == pytest.approx(later, rel=0.2)
    assert found.factor == pytest.approx(later / 2, rel=0.2)
    assert 1300 < found.since < 1700


def test_false_alarms_are_rare():
    """Of 300 streams of 300 labels at most 5 % ever alarm, 15 on average; 30 would be out of all reason."""
    rng = np.random.default_rng(0)
    h = 3 * rng.normal(size=(300, 300, 3))
    y = (h / 2 + rng.gumbel(size=h.shape)).argmax(axis=2)
    for tolerance in (1.0, 1.1):
        alarms = sum(DriftTest(2.0, tolerance=tolerance).update(h[i], y[i]).alarm for i in range(300))
        assert alarms < 30
    assert DriftTest(2.0, alpha=0.9, tolerance=1.0).update(h[0], y[0]).p_value < 1


@given(cuts=st.lists(st.integers(1, 399), max_size=4), seed=st.integers(0, 50))
def test_batches_make_no_difference(cuts, seed):
    h, y = stream(400, 4, change=100, seed=seed)
    whole = DriftTest(2.0).update(h, y)
    parts = DriftTest(2.0)
    for part in np.split(np.arange(400), sorted(set(cuts))):
        parts.update(h[part], y[part])
    assert numbers(parts) == pytest.approx(numbers(whole), rel=1e-9, abs=1e-9)


def test_the_alarm_is_raised_by_the_sample_that_it_names():
    h, y = stream(600, change=0, later=6.0)
    at = DriftTest(2.0).update(h, y).alarm_at
    assert at < 600
    test = DriftTest(2.0).update(h[: at - 1], y[: at - 1])
    assert not test.alarm
    assert test.update(h[at - 1 : at], y[at - 1 : at]).alarm_at == at


def test_the_alarm_stays():
    h, y = stream(3000, change=0, seed=3)
    test = DriftTest(2.0).update(h, y)
    at, p = test.alarm_at, test.p_value
    h, y = stream(6000, change=6000, seed=4)
    test.update(h, y)
    assert test.alarm
    assert test.alarm_at == at
    assert test.p_value == p  # the largest evidence there ever was
    assert test.log_e_value < -np.log(p)  # what there is now


def test_what_may_be_watched():
    h, y = draw(600, 4)
    ts = TemperatureScaling().fit(h, y)
    same = [
        DriftTest(ts, tolerance=1.3),
        DriftTest(ts.map_, tolerance=1.3),
        DriftTest(ts.temperature_, tolerance=1.3),
        DriftTest(ScaleMap(1 / ts.temperature_), tolerance=1.3),
    ]
    found = {numbers(test.update(h, y)) for test in same}
    assert len({round(n[3], 9) for n in found}) == 1
    for calibrator in (BayesianTemperatureScaling(), VectorScaling(l2=0.01), IsotonicCalibration()):
        test = DriftTest(calibrator.fit(h, y)).update(h, y)
        assert not test.alarm
        assert test.drift().temperature is None
    names = np.array(["a", "b", "c", "d"])
    named = DriftTest(TemperatureScaling(classes=list(names)).fit(h, names[y]), tolerance=1.3).update(h, names[y])
    assert named.log_e_value == pytest.approx(same[0].log_e_value)
    p = np.exp(h) / np.exp(h).sum(axis=1, keepdims=True)
    probs = DriftTest(TemperatureScaling(input="probs").fit(p, y), tolerance=1.3).update(p, y)
    assert probs.log_e_value == pytest.approx(same[0].log_e_value, abs=1e-6)
    for X in (torch.tensor(h), pd.DataFrame(h), h.tolist(), h.astype(np.float32)):
        assert DriftTest(ts, tolerance=1.3).update(X, y).log_e_value == pytest.approx(same[0].log_e_value, abs=1e-4)
    assert DriftTest(ts, tolerance=1.3).update(Scores.from_logits(h, y)).log_e_value == same[0].log_e_value
    assert DriftTest(ts, tolerance=1.3).update(Scores.from_logits(h), y).log_e_value == same[0].log_e_value


def test_an_impossible_label_is_an_alarm_at_once():
    h, y = draw(50, 3)
    h[7, y[7]] = -np.inf
    test = DriftTest(2.0).update(h[:7], y[:7])
    assert not test.alarm
    test.update(h[7:], y[7:])
    assert (test.alarm, test.alarm_at, test.p_value, test.e_value) == (True, 8, 0.0, np.inf)
    assert np.isfinite(test.drift().factor)
    early = DriftTest(2.0).update(np.where(np.arange(3) == 0, 50.0, h), np.ones(50, dtype=int))
    assert early.alarm_at < 8


def test_tolerance_bears_with_small_factors():
    h, y = stream(6000, change=0, t=2.0, later=2.3, seed=5)
    p = [DriftTest(2.0, tolerance=tolerance).update(h, y).p_value for tolerance in (1.0, 1.2)]
    assert p[0] < 0.05 < p[1]


@pytest.mark.parametrize("n", [0, 700, 2000])
def test_a_daily_job_goes_on(tmp_path, n):
    h, y = stream()
    calibrator = TemperatureScaling().fit(h[:1000], y[:1000])
    today = DriftTest(calibrator, alpha=0.01, tolerance=1.25)
    if n:
        today.update(h[:n], y[:n])
    today.save(tmp_path / "d.json")
    tomorrow = DriftTest.load(tmp_path / "d.json")
    assert numbers(tomorrow) == numbers(today)
    assert (tomorrow.alpha, tomorrow.tolerance) == (0.01, 1.25)
    assert numbers(tomorrow.update(h[n:1999], y[n:1999]) if n < 1999 else tomorrow) == numbers(
        today.update(h[n:1999], y[n:1999]) if n < 1999 else today
    )


@pytest.mark.parametrize("n", [60, 200])
def test_a_tolerance_covers_the_error_of_the_fitted_temperature(n):
    """Without drift: T from few labels is off by more than 1.1 in many fits, and must not raise alarms for that."""
    rng = np.random.default_rng(n)
    alarms = plain = 0
    for _ in range(40):
        h = 3 * rng.normal(size=(n + 3000, 5))
        y = (h / 2 + rng.gumbel(size=h.shape)).argmax(axis=1)
        ts = TemperatureScaling().fit(h[:n], y[:n])
        assert DriftTest(ts).tolerance == max(1.1, ts.known_within())
        alarms += DriftTest(ts).update(h[n:], y[n:]).alarm
        plain += DriftTest(ts.map_, tolerance=1.0).update(h[n:], y[n:]).alarm
    assert plain >= 12  # taken for exact, the same temperatures raise alarms
    assert alarms <= 2


def test_every_temperature_brings_its_interval(tmp_path):
    h, y = draw(400, 4)
    for calibrator in (
        TemperatureScaling(),
        AttendedTemperatureScaling(),
        BayesianTemperatureScaling(),
        EnsembleTemperatureScaling(),
        StructuredScaling(),
    ):
        calibrator.fit(h, y).save(tmp_path / "m.json")
        test = DriftTest(attemper.load(tmp_path / "m.json"), tolerance=1.0)
        assert 1.05 < test.tolerance < 1.6
        assert test.tolerance == DriftTest(calibrator, tolerance=1.0).tolerance
    assert DriftTest(VectorScaling().fit(h, y), tolerance=1.0).tolerance == 1.0


def test_a_temperature_that_is_hardly_known_is_refused():
    few = TemperatureScaling().fit([[1.0, 0.0], [0.0, 2.0], [1.5, 0.0]], [0, 1, 1])
    h, _ = draw(50, 4)
    with pytest.warns(EdgeWarning):
        perfect = TemperatureScaling().fit(h, h.argmax(axis=1))
    for unknown in (few, perfect):
        with pytest.raises(InputError):
            DriftTest(unknown)
        assert DriftTest(unknown.map_).tolerance == 1.1


def test_what_the_tolerance_hides_is_in_points_of_confidence():
    h, y = draw(500, 4)
    test = DriftTest(2.0, tolerance=1.3).update(h[:200], y[:200]).update(h[200:], y[200:])

    def confidence(t):
        return 100 * np.mean([max(softmax(row, t)) for row in h])

    low, high = test.tolerated_points
    assert low == pytest.approx(confidence(2.0 / 1.3) - confidence(2.0))
    assert high == pytest.approx(confidence(2.0) - confidence(2.0 * 1.3))
    assert DriftTest(2.0).tolerated_points is None


def test_copies_of_a_case_count_once():
    """Each case three times: without clusters the test takes the copies for news, and raises false alarms."""
    rng = np.random.default_rng(0)
    alarms = {"rows": 0, "cases": 0}
    for _ in range(30):
        h = 3 * rng.normal(size=(1500, 5))
        y = (h / 2 + rng.gumbel(size=h.shape)).argmax(axis=1)
        case = np.repeat(np.arange(1500), 3)
        alarms["rows"] += DriftTest(2.0, tolerance=1.0).update(h[case], y[case]).alarm
        test = DriftTest(2.0, tolerance=1.0).update(h[case], y[case], clusters=case)
        alarms["cases"] += test.alarm
        assert test.n_samples == 1500
        assert test.log_e_value == pytest.approx(DriftTest(2.0, tolerance=1.0).update(h, y).log_e_value)
    assert alarms["rows"] >= 15
    assert alarms["cases"] <= 3
    shuffled = rng.permutation(len(case))
    apart = DriftTest(2.0).update(h[case][shuffled], y[case][shuffled], clusters=case[shuffled].astype(str))
    assert apart.n_samples == 1500
    with pytest.raises(InputError):
        DriftTest(2.0).update(h, y, clusters=case)


@pytest.mark.parametrize(
    "damage", [{"alpha": "x"}, {"log_stake": [0.0]}, {"start": [0.5] * 16}, {"input": 3}, {"map": 1}]
)
def test_damaged_files_are_refused(tmp_path, damage):
    path = tmp_path / "d.json"
    DriftTest(2.0).update(*draw(50, 3)).save(path)
    path.write_text(json.dumps(json.loads(path.read_text()) | damage))
    with pytest.raises(FileError):
        load_test(path)


def test_expected_accuracy_is_the_mean_confidence():
    rng = np.random.default_rng(0)
    h = 1.5 * rng.normal(size=(400, 200, 5))
    p = np.exp(h) / np.exp(h).sum(axis=2, keepdims=True)
    y = (h + rng.gumbel(size=h.shape)).argmax(axis=2)
    covered = 0
    for probs, labels in zip(p, y):
        value, low, high = expected_accuracy(probs)
        assert value == pytest.approx(probs.max(axis=1).mean())
        covered += low <= (probs.argmax(axis=1) == labels).mean() <= high
    assert covered > 0.92 * 400
    twice = expected_accuracy(np.repeat(p[0], 2, axis=0), clusters=np.repeat(np.arange(200), 2))
    assert tuple(twice) == pytest.approx(tuple(expected_accuracy(p[0])))


class TestExchangeability:
    """The conformal test against a reference set."""

    def test_p_values_are_ranks(self):
        rng = np.random.default_rng(0)
        counts = np.bincount(rng.integers(0, 9, 40), minlength=9)
        scores, u = rng.integers(0, 9, 30), rng.random(30)
        seen = np.repeat(np.arange(9), counts).tolist()
        naive = []
        for s, v in zip(scores, u):
            seen.append(s)
            naive.append((sum(x < s for x in seen) + v * sum(x == s for x in seen)) / len(seen))
        for block in (1, 7, 512):
            np.testing.assert_allclose(conformal_p_values(scores, counts, u, block), naive, rtol=1e-13)

    def test_wagers_are_densities(self):
        p = (np.arange(200_000) + 0.5) / 200_000
        np.testing.assert_allclose(np.exp(log_bets(p)).mean(axis=0), 1, rtol=0.02)
        assert np.isfinite(log_bets(np.array([0.0, 1.0]))).all()
        assert (np.diff(log_bets(p)[:, :8], axis=0) < 0).all()
        assert (np.diff(log_bets(p)[:, 8:], axis=0) > 0).all()

    def test_levels_and_power_whatever_the_map(self):
        rng = np.random.default_rng(1)
        false = found = 0
        for _ in range(60):
            h = 3 * rng.normal(size=(1800, 4))
            y = (h / 2 + rng.gumbel(size=h.shape)).argmax(axis=1)
            test = ExchangeabilityTest(0.7, h[:300], y[:300]).update(h[300:800], y[300:800])  # a wrong temperature
            false += test.alarm
            y = (h / 4 + rng.gumbel(size=h.shape)).argmax(axis=1)
            found += test.update(h[800:], y[800:]).alarm
        assert false <= 8  # of 60 at 5 %: more than 8 in one of 700
        assert found >= 55

    @pytest.mark.parametrize("cut", [1, 333, 699])
    def test_batches_and_files_make_no_difference(self, tmp_path, cut):
        h, y = draw(1000, 3)
        whole = ExchangeabilityTest(2.0, h[:300], y[:300], seed=3).update(h[300:], y[300:])
        part = ExchangeabilityTest(2.0, h[:300], y[:300], seed=3).update(h[300 : 300 + cut], y[300 : 300 + cut])
        part.save(tmp_path / "e.json")
        part = ExchangeabilityTest.load(tmp_path / "e.json").update(h[300 + cut :], y[300 + cut :])
        assert part.log_e_value == pytest.approx(whole.log_e_value)
        assert part.p_value == pytest.approx(whole.p_value)
        assert part.n_samples == whole.n_samples == 700
        assert type(load_test(tmp_path / "e.json")) is ExchangeabilityTest

    def test_more_likely_labels_are_drift_too(self):
        h, y = draw(1500, 4)
        test = ExchangeabilityTest(2.0, h[:500], y[:500]).update(h[500:], h[500:].argmax(axis=1))
        assert test.alarm


def test_a_bad_batch_changes_nothing():
    h, y = draw(50, 3)
    test = DriftTest(TemperatureScaling().fit(h, y)).update(h, y)
    before = numbers(test)
    nan = np.where(np.arange(3) == 1, np.nan, h)
    for X, labels in [
        (nan, y),
        (h, y + 1),
        (h, y[:-1]),
        (h, None),
        (h[:, :2], y % 2),
        (Scores.from_logits(h), None),
        (Scores.from_logits(h, y), y),
        (Scores.from_logits(h, y, sample_weight=np.ones(50)), None),
        (Scores.from_probs(np.full((50, 3), 1 / 3), y), None),
    ]:
        with pytest.raises(InputError):
            test.update(X, labels)
        assert numbers(test) == before
