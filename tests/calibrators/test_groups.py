import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import attemper
from attemper import (
    AttendedTemperatureScaling,
    BayesianTemperatureScaling,
    GroupSketches,
    InputError,
    IsotonicCalibration,
    PlattScaling,
    Sketch,
    StructuredScaling,
    TemperatureScaling,
    VectorScaling,
)

TEMPERATURES = {"a": 1.2, "b": 3.0, "c": 2.0}


def draw(n=900, seed=0, k=4, temperatures=TEMPERATURES, biases=None):
    """Logits, labels and groups; each group has a temperature of its own, and biases."""
    rng = np.random.default_rng(seed)
    h = 3 * rng.normal(size=(n, k))
    g = np.array(sorted(temperatures))[rng.integers(0, len(temperatures), n)]
    t = np.array([temperatures[key] for key in g.tolist()])
    b = np.zeros((n, k)) if biases is None else np.array([biases[key] for key in g.tolist()])
    return h, (h / t[:, None] + b + rng.gumbel(size=h.shape)).argmax(axis=1), g


EVERY = [
    TemperatureScaling(),
    AttendedTemperatureScaling(),
    BayesianTemperatureScaling(),
    BayesianTemperatureScaling(labels="noisy", noise="uniform"),
    StructuredScaling(),
    VectorScaling(),
    PlattScaling(),
    IsotonicCalibration(),
]
TYPES = [type(own).__name__ for own in EVERY]


@pytest.mark.parametrize("calibrator", EVERY, ids=TYPES)
def test_every_recipe_has_maps_of_groups_that_a_file_keeps(calibrator, tmp_path):
    h, y, g = draw()
    common = calibrator.fit(h, y).predict_proba(h)
    fitted = calibrator.fit(h, y, groups=g)
    assert list(fitted.group_maps_) == fitted.groups_.group == ["a", "b", "c"]
    np.testing.assert_array_equal(fitted.predict_proba(h, "common"), common)  # the common map is that of all rows
    p = fitted.predict_proba(h, g)
    for key, own in fitted.group_maps_.items():
        np.testing.assert_allclose(p[g == key], own.apply(h[g == key]), rtol=1e-12)
    a, b, c = fitted.groups_.temperature_ratio
    assert a < 0.8 < c < 1.2 < b
    new = fitted.predict_proba(h[:5], ["z"] * 5)
    np.testing.assert_array_equal(new, common[:5])  # a group that was not seen
    np.testing.assert_allclose(np.exp(fitted.predict_log_proba(h, g)), p, rtol=1e-9)
    if calibrator.keeps_arg_max:
        np.testing.assert_array_equal(fitted.predict(h, g), h.argmax(axis=1))
    fitted.save(tmp_path / "map.json")
    back = attemper.load(tmp_path / "map.json")
    np.testing.assert_array_equal(back.predict_proba(h, g), p)
    assert back.summary() == fitted.summary()
    assert back.describe() == fitted.describe()
    assert fitted.fit_report_.converged
    assert "temperature_ratio" in fitted.groups_.to_pandas()
    assert "<table" in fitted.groups_._repr_html_()
    assert not hasattr(calibrator.fit(h, y), "group_maps_")


def test_temperatures_of_large_groups_are_their_own_and_few_labels_change_little():
    h, y, g = draw(6000)
    some = np.r_[np.flatnonzero(g != "c"), np.flatnonzero(g == "c")[:5]]
    ts = TemperatureScaling().fit(h[some], y[some], groups=g[some])
    for key in "ab":
        own = TemperatureScaling().fit(h[g == key], y[g == key])
        assert abs(1 / ts.group_maps_[key].beta / own.temperature_ - 1) < 0.01
    assert ts.groups_.own_share[2] < 0.5
    assert ts.groups_.ratio_low[2] < 1 < ts.groups_.ratio_high[2]


@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 1000), order=st.permutations(range(60)))
def test_neither_order_nor_names_matter_and_a_weight_counts_repeats(seed, order):
    h, y, g = draw(60, seed)
    order = np.array(order)
    ts = BayesianTemperatureScaling().fit(h, y, groups=g)
    other = BayesianTemperatureScaling().fit(h[order], y[order], groups=g[order])
    np.testing.assert_allclose(other.groups_.temperature_ratio, ts.groups_.temperature_ratio, rtol=1e-6)
    renamed = np.char.translate(g, str.maketrans("abc", "zyx"))
    mirrored = BayesianTemperatureScaling().fit(h, y, groups=renamed)
    np.testing.assert_allclose(mirrored.groups_.temperature_ratio, ts.groups_.temperature_ratio[::-1], rtol=1e-6)
    twice = BayesianTemperatureScaling().fit(np.r_[h, h], np.r_[y, y], groups=np.r_[g, g])
    weighted = BayesianTemperatureScaling().fit(h, y, np.full(60, 2.0), groups=g)
    np.testing.assert_allclose(weighted.groups_.temperature_ratio, twice.groups_.temperature_ratio, rtol=1e-6)


def test_errors_of_labels_are_not_taken_for_soft_groups():
    h, y, g = draw(3000, temperatures={"a": 1.0, "b": 2.0})
    rng = np.random.default_rng(1)
    wrong = rng.random(3000) < 0.25
    y = np.where(wrong, rng.integers(0, 4, 3000), y)
    fitted = BayesianTemperatureScaling(labels="noisy", noise="uniform").fit(h, y, groups=g)
    sharp = fitted.groups_.temperature_ratio[1] / fitted.groups_.temperature_ratio[0]
    blind = BayesianTemperatureScaling().fit(h, y, groups=g).groups_.temperature_ratio
    assert abs(sharp - 2) < 0.3
    assert blind[1] / blind[0] < sharp


def test_confusions_of_labels_are_those_of_every_group():
    h, y, g = draw(1500, temperatures={"a": 1.0, "b": 2.0})
    wrong = (np.random.default_rng(1).random(1500) < 0.4) & (y == 0)
    y = np.where(wrong, 1, y)  # class 0 is often labelled 1
    fitted = BayesianTemperatureScaling(labels="noisy", noise="classwise").fit(h, y, groups=g)
    assert fitted.classwise_ > 0.5
    ratio = fitted.groups_.temperature_ratio
    assert abs(ratio[1] / ratio[0] - 2) < 0.5


@pytest.mark.parametrize("ids", [[1, 2, 3], ["1", "2", "3"], np.array([1, 2, 3], dtype=np.int32)])
def test_a_number_and_its_text_are_the_same_group(ids, tmp_path):
    h, y, g = draw()
    ids = np.asarray(ids)
    codes = np.searchsorted(["a", "b", "c"], g)
    fitted = TemperatureScaling().fit(h, y, groups=ids[codes])
    p = fitted.predict_proba(h, ids[codes])
    np.testing.assert_array_equal(fitted.predict_proba(h, [int(i) for i in ids[codes]]), p)
    np.testing.assert_array_equal(fitted.predict_proba(h, [str(i) for i in ids[codes]]), p)
    fitted.save(tmp_path / "map.json")
    back = attemper.load(tmp_path / "map.json")
    assert list(back.group_maps_) == ids.tolist()
    np.testing.assert_array_equal(back.predict_proba(h, [str(i) for i in ids[codes]]), p)


@pytest.mark.parametrize("calibrator", [own for own in EVERY if own.sketch_tables is not None], ids=str)
def test_sketches_of_groups_give_the_same_temperatures(calibrator, tmp_path):
    h, y, g = draw(1200)
    rows = calibrator.fit(h, y, groups=g).groups_
    parts = [GroupSketches.of(h[i::3], y[i::3], groups=g[i::3]) for i in range(3)]
    parts[0].save(tmp_path / "a.json")
    total = GroupSketches.load(tmp_path / "a.json") + parts[2] + parts[1]
    assert total.n_samples == 1200
    fitted = calibrator.fit_sketch(total)
    np.testing.assert_allclose(fitted.groups_.temperature_ratio, rows.temperature_ratio, rtol=0.02)
    assert list(fitted.group_maps_) == ["a", "b", "c"]
    assert fitted.groups_.n_samples.sum() == 1200


def test_sketches_of_groups_add_as_sketches_do():
    h, y, g = draw(300)
    whole = GroupSketches.of(h, y, groups=g)
    assert list(whole.sketches) == ["a", "b", "c"]
    np.testing.assert_allclose(whole.total.nll, Sketch.of(h, y).nll, rtol=1e-12)
    alone = GroupSketches({"a": Sketch.of(h[g == "a"], y[g == "a"])})
    np.testing.assert_allclose(alone.sketches["a"].nll, whole.sketches["a"].nll, rtol=1e-12)
    numbers = GroupSketches({1: alone.sketches["a"]}) + GroupSketches({"1": alone.sketches["a"], "x": whole.total})
    assert {key: own.n_samples for key, own in numbers.sketches.items()} == {
        "1": 2 * alone.n_samples,
        "x": 300,
    }
    assert list(whole.to_pandas()["group"]) == ["a", "b", "c"]
    with pytest.raises(InputError):
        whole + GroupSketches.of(h[:, :3], y % 3, groups=g)
    with pytest.raises(InputError):
        GroupSketches.of(h, y)
    with pytest.raises(InputError):
        GroupSketches({})
    with pytest.raises(InputError):
        StructuredScaling().fit_sketch(whole)


@pytest.mark.parametrize("calibrator", [TemperatureScaling(), BayesianTemperatureScaling()], ids=str)
def test_other_priors_are_those_of_every_group(calibrator, tmp_path):
    h, y, g = draw(600)
    fitted = calibrator.fit(h, y, groups=g)
    new, old = np.array([0.7, 0.1, 0.1, 0.1]), np.full(4, 0.25)
    moved = fitted.with_priors(new, old)
    expected = fitted.predict_proba(h, g) * new / old
    expected /= expected.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(moved.predict_proba(h, g), expected, rtol=1e-9)
    moved.save(tmp_path / "map.json")
    back = attemper.load(tmp_path / "map.json")
    np.testing.assert_array_equal(back.predict_proba(h, g), moved.predict_proba(h, g))
