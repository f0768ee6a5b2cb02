"""Metrics of a stream are those of everything at once, with intervals that cover."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from attemper.errors import AttemperError, FileError, InputError, NotFittedError
from attemper.metrics import Estimate, RunningMetrics, evaluate

NAMES = ["accuracy", "nll", "brier", "ece", "classwise_ece", "mce"]


def draw(n, k=4, seed=0, t=1.0):
    rng = np.random.default_rng(seed)
    h = 2 * rng.normal(size=(n, k))
    p = np.exp(h) / np.exp(h).sum(axis=1, keepdims=True)
    return p, (h / t + rng.gumbel(size=h.shape)).argmax(axis=1)


def run(p, y, edges=(), w=None, input="probs", **settings):
    running = RunningMetrics(**settings)
    for part in np.split(np.arange(len(y)), sorted(edges)):
        if len(part):
            running.partial_fit(y[part], p[part], None if w is None else w[part], input=input)
    return running


@given(
    edges=st.lists(st.integers(0, 80), max_size=5),
    seed=st.integers(0, 100),
    n_bins=st.integers(1, 20),
    weighted=st.booleans(),
)
def test_values_are_those_of_evaluate(edges, seed, n_bins, weighted):
    p, y = draw(80, seed=seed)
    w = np.random.default_rng(seed).uniform(0.1, 3, 80) if weighted else None
    whole = evaluate(y, p, sample_weight=w, n_bins=n_bins)
    found = run(p, y, edges, w, confidence_level=None, n_bins=n_bins).result()
    assert list(found) == NAMES
    for name, value in found.items():
        assert value == pytest.approx(whole[name], rel=1e-12, abs=1e-12)
    logs = run(np.log(p), y, edges, w, input="log_probs", confidence_level=None, n_bins=n_bins).result()
    assert logs["nll"] == pytest.approx(whole["nll"], rel=1e-12)


@given(edges=st.lists(st.integers(0, 80), max_size=5), seed=st.integers(0, 100), half_life=st.floats(2, 200))
def test_batches_make_no_difference(edges, seed, half_life):
    p, y = draw(80, seed=seed)
    w = np.random.default_rng(seed).uniform(0.1, 3, 80)
    for settings in ({}, {"half_life": half_life}):
        one = run(p, y, (), w, n_resamples=20, seed=seed, **settings).result()
        many = run(p, y, edges, w, n_resamples=20, seed=seed, **settings).result()
        for name in NAMES:
            assert many[name] == pytest.approx(one[name], rel=1e-9, abs=1e-9, nan_ok=True)


def test_forgetting_is_evaluating_with_faded_weights():
    p, y = draw(300)
    found = run(p, y, (10, 11, 200), half_life=25, confidence_level=None).result()
    expected = evaluate(y, p, sample_weight=2.0 ** (-np.arange(300)[::-1] / 25))
    for name in NAMES:
        assert found[name] == pytest.approx(expected[name], rel=1e-10)
    # After thousands of half-lives nothing is left of what was, and nothing underflows.
    sure = np.tile([[0.98, 0.01, 0.005, 0.005]], (300, 1))
    for half_life in (0.1, 0.3):  # 2^−3000 and 2^−1000
        running = run(p, y, half_life=half_life, confidence_level=None).partial_fit(np.zeros(300, dtype=int), sure)
        assert running.result()["mce"] == pytest.approx(0.02, rel=1e-9)


def test_zero_weight_is_absence():
    p, y = draw(60)
    w = np.where(np.arange(60) % 3 == 0, 0.0, 1.0)
    kept = run(p[w > 0], y[w > 0])
    zeros = run(p, y, w=w)
    assert zeros.result() == kept.result()
    assert zeros.n_samples == kept.n_samples == 40


def test_intervals_are_as_wide_as_those_of_evaluate():
    p, y = draw(2000, t=1.3)
    found = run(p, y, (500,), n_resamples=1000).result()
    expected = evaluate(y, p, confidence_level=0.95, n_resamples=1000)
    for name in NAMES:
        assert isinstance(found[name], Estimate)
        assert found[name].value == pytest.approx(expected[name].value, rel=1e-12)
        assert found[name].note == expected[name].note
        if not expected[name].has_interval:
            assert not found[name].has_interval
            continue
        width = expected[name].high - expected[name].low
        assert found[name].low == pytest.approx(expected[name].low, abs=0.25 * width)
        assert found[name].high == pytest.approx(expected[name].high, abs=0.25 * width)
    assert run(p[:200], y[:200]).result()["ece"].low <= 0.03  # corrected for what noise adds


def test_resamples_are_poisson():
    running = RunningMetrics(n_resamples=4000, seed=3)
    p, y = draw(7)
    running.partial_fit(y, p)
    counts = running._sums.means[0, 1:]  # of seven samples together
    assert counts.mean() == pytest.approx(7, abs=0.2)
    assert counts.var() == pytest.approx(7, abs=0.6)
    assert running._sums.means[0, 0] == 7


def test_one_sample_and_impossible_labels():
    running = RunningMetrics(n_resamples=10).partial_fit([1], [[0.4, 0.6]])
    assert running.result()["accuracy"] == pytest.approx((1.0, 1 / (1 + 1.96**2), 1.0), abs=1e-4)  # Wilson
    running.partial_fit([1], [[1.0, 0.0]])
    found = running.result()
    assert found["nll"].value == np.inf
    assert "probability 0" in found["nll"].note
    assert np.isfinite([found[name].value for name in NAMES if name != "nll"]).all()


def test_many_classes_leave_class_wise_ece_out():
    p, y = draw(50, 200)
    assert "classwise_ece" not in run(p, y, n_resamples=5).result()
    assert "classwise_ece" in run(p, y, n_resamples=5, n_bins=10).result()


def test_parts_add():
    p, y = draw(400)
    a, b = run(p[:150], y[:150], seed=1), run(p[150:], y[150:], seed=2)
    both = a + b
    whole = evaluate(y, p, confidence_level=0.95)
    for name in NAMES:
        assert both.result()[name].value == pytest.approx(whole[name].value, rel=1e-12)
    width = whole["accuracy"].high - whole["accuracy"].low
    found = both.result()["accuracy"]
    assert found.high - found.low == pytest.approx(width, rel=0.3)
    assert both.n_samples == 400
    assert a.n_samples == 150  # neither part is changed
    assert both.partial_fit(y, p).n_samples == 800
    assert a.n_samples == 150
    assert (RunningMetrics(seed=5) + a).result() == a.result()
    with pytest.raises(InputError):
        both + b
    free = {"confidence_level": None}
    assert (run(p, y, **free) + run(p, y, **free)).n_samples == 800
    with pytest.raises(InputError):
        a + run(p, y, seed=9, n_bins=10)
    with pytest.raises(InputError):
        a + run(*draw(20, 3), seed=9)
    with pytest.raises(TypeError):
        a + 1


def test_a_stream_goes_on_tomorrow(tmp_path):
    p, y = draw(200)
    today = run(p[:90], y[:90], half_life=60, n_resamples=30, seed=4)
    today.save(tmp_path / "m.json")
    tomorrow = RunningMetrics.load(tmp_path / "m.json")
    assert tomorrow.result() == today.result()
    assert tomorrow.partial_fit(y[90:], p[90:]).result() == today.partial_fit(y[90:], p[90:]).result()
    empty = RunningMetrics(confidence_level=None)
    empty.save(tmp_path / "e.json")
    assert RunningMetrics.load(tmp_path / "e.json").partial_fit(y, p).n_samples == 200
    # Files from before squares of weights were kept: weights count as repeats.
    content = json.loads((tmp_path / "m.json").read_text())
    del content["sums"]["squares"]
    (tmp_path / "old.json").write_text(json.dumps(content))
    assert RunningMetrics.load(tmp_path / "old.json").result()["accuracy"].has_interval
    joined = today + run(p, y, half_life=60, n_resamples=30, seed=5)
    joined.save(tmp_path / "j.json")
    assert RunningMetrics.load(tmp_path / "j.json")._seeds == (4, 5)


@pytest.mark.parametrize(
    "damage",
    [
        {"n_bins": 3},
        {"n_resamples": 5},
        {"n_samples": 0},
        {"drawn": 10**6},
        {"n_classes": 3},
        {"seeds": []},
        {"seeds": ["x"]},
        {"half_life": -1},
        {"confidence_level": 2},
        {"sums": {"means": [[0.0] * 31] * 5}},
        {"sums": 3},
        {"attemper": "sketch"},
        {"schema": 9},
    ],
)
def test_damaged_files_are_told(tmp_path, damage):
    path = tmp_path / "m.json"
    run(*draw(50), n_resamples=30).save(path)
    content = json.loads(path.read_text())
    path.write_text(json.dumps(content | damage))
    with pytest.raises(FileError):
        RunningMetrics.load(path)
    content["sums"]["top"][0][3][0] = -1.0
    path.write_text(json.dumps(content))
    with pytest.raises(FileError):
        RunningMetrics.load(path)


@given(st.binary(max_size=100))
def test_any_bytes_are_a_clear_error(tmp_path_factory, junk):
    path = tmp_path_factory.mktemp("junk") / "x.json"
    path.write_bytes(junk)
    with pytest.raises(AttemperError):
        RunningMetrics.load(path)


def test_a_bad_batch_changes_nothing():
    p, y = draw(50)
    running = run(p, y)
    before = running.result()
    for bad, labels, _why in [(p * 2, y, "probabilities"), (p, y + 4, "label"), (p[:, :3], y % 3, "sums to|3 columns")]:
        with pytest.raises(InputError):
            running.partial_fit(labels, bad)
    with pytest.raises(InputError):
        running.partial_fit(*draw(10, 3)[::-1])
    assert running.result() == before
    with pytest.raises(NotFittedError):
        RunningMetrics().result()


@pytest.mark.parametrize(
    "settings", [{"n_bins": 0}, {"half_life": 0}, {"confidence_level": 1.5}, {"n_resamples": 1}, {"seed": -1}]
)
def test_settings_are_checked(settings):
    with pytest.raises(InputError):
        RunningMetrics(**settings)
