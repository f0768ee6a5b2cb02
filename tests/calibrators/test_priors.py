"""Other class priors: known ones in closed form, estimated ones, files, and when label shift is refused."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import attemper
from attemper import (
    AttemperWarning,
    BayesianTemperatureScaling,
    CalibratedClassifier,
    EdgeWarning,
    HistogramBinning,
    InputError,
    IsotonicCalibration,
    LabelShiftError,
    PlattScaling,
    Scores,
    Sketch,
    StructuredScaling,
    TemperatureScaling,
    VectorScaling,
    VennAbers,
)
from attemper.onnx import map_to_onnx
from attemper.torch import to_torch

import onnx_models as models

OLD = np.array([0.4, 0.3, 0.2, 0.1])
NEW = np.array([0.1, 0.2, 0.3, 0.4])
RECIPES = [
    TemperatureScaling(),
    BayesianTemperatureScaling(),
    VectorScaling(),
    StructuredScaling(),
    PlattScaling(),
    HistogramBinning(),
    IsotonicCalibration(),
]


def draw(n, shares=OLD, seed=0, scale=1.0):
    """Logits whose distribution given the class is fixed; those of T = 1 under OLD, times ``scale``."""
    rng = np.random.default_rng(seed)
    y = rng.choice(len(shares), n, p=shares)
    x = rng.normal(size=(n, len(shares))) + 1.5 * np.eye(len(shares))[y]
    return scale * (1.5 * x + np.log(OLD[: len(shares)])), y


def closed_form(p, new, old):
    q = p * (new / old)
    return q / q.sum(axis=1, keepdims=True)


def mean_prediction(calibrator, h):
    return calibrator.predict_proba(h).mean(axis=0)


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda r: type(r).__name__)
def test_known_priors_are_the_closed_form(recipe, tmp_path):
    calibrator = recipe.fit(*draw(600))
    h = draw(50, seed=1)[0]
    p = calibrator.predict_proba(h)
    adapted = calibrator.with_priors(NEW, OLD)
    expected = closed_form(p, NEW, OLD)
    np.testing.assert_allclose(adapted.predict_proba(h), expected, rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(np.exp(adapted.predict_log_proba(h)), expected, rtol=1e-11, atol=1e-14)
    np.testing.assert_array_equal(adapted.predict(h), expected.argmax(axis=1))
    assert type(adapted) is type(calibrator)
    adapted.save(tmp_path / "adapted.json")
    back = attemper.load(tmp_path / "adapted.json")
    np.testing.assert_array_equal(back.predict_proba(h), adapted.predict_proba(h))
    np.testing.assert_array_equal(back.adaptation_.new, NEW)
    back.save(tmp_path / "again.json")
    assert (tmp_path / "again.json").read_bytes() == (tmp_path / "adapted.json").read_bytes()
    np.testing.assert_array_equal(calibrator.predict_proba(h), p)  # which stays as it was
    with pytest.raises(InputError):
        calibrator.with_priors(NEW)


@given(st.lists(st.floats(0.01, 1), min_size=8, max_size=8), st.integers(0, 1000))
def test_priors_compose_and_come_back(numbers, seed):
    first, second = (np.array(part) / sum(part) for part in (numbers[:4], numbers[4:]))
    ts = TemperatureScaling().fit(*draw(200, seed=seed))
    h = draw(20, seed=seed + 1)[0]
    once = ts.with_priors(second, old=OLD)
    twice = ts.with_priors(first, old=OLD).with_priors(second)  # from the priors of the fit
    np.testing.assert_allclose(twice.predict_proba(h), once.predict_proba(h), rtol=1e-12)
    step = ts.with_priors(first, old=OLD).with_priors(second, old=first)
    np.testing.assert_allclose(step.predict_proba(h), once.predict_proba(h), rtol=1e-12)
    np.testing.assert_allclose(twice.with_priors(OLD).predict_proba(h), ts.predict_proba(h), rtol=1e-12)
    assert twice.adaptation_.new == pytest.approx(second)


def test_a_class_without_a_share_is_impossible_and_masked_ones_stay_so():
    ts = TemperatureScaling().fit(*draw(200))
    h = draw(5, seed=1)[0]
    p = ts.with_priors([0.5, 0.5, 0, 0], OLD).predict_proba(h)
    assert (p[:, 2:] == 0).all()
    assert p.sum(axis=1) == pytest.approx(1)
    back = ts.with_priors([0.5, 0.5, 0, 0], OLD).with_priors(NEW)
    np.testing.assert_allclose(back.predict_proba(h), ts.with_priors(NEW, OLD).predict_proba(h))
    with pytest.raises(InputError):
        ts.with_priors(NEW, old=[0.5, 0.5, 0, 0])
    masked = h.copy()
    masked[:, 0] = -np.inf
    assert (ts.with_priors(NEW, OLD).predict_proba(masked)[:, 0] == 0).all()
    alone = np.array([[-np.inf, -np.inf, 1.0, -np.inf]])  # the class without a share is the only one left
    np.testing.assert_array_equal(ts.with_priors([0.5, 0.5, 0, 0], OLD).predict_proba(alone), [[0, 0, 1, 0]])


def test_names_one_column_and_undersampling():
    rng = np.random.default_rng(0)
    y = (rng.random(20_000) < 0.02).astype(int)
    z = 2 * y - 1 + rng.normal(size=len(y))
    kept = (y == 1) | (rng.random(len(y)) < 0.02 / 0.98)  # equal shares after undersampling
    names = np.array(["common", "rare"])
    vector = PlattScaling(classes=["common", "rare"]).fit(2 * z[kept], names[y[kept]])
    corrected = vector.with_priors({"rare": 0.02, "common": 0.98}, old={"common": 0.5, "rare": 0.5})
    p = corrected.predict_positive(2 * z)
    assert p.mean() == pytest.approx(0.02, abs=0.003)
    p_old = vector.predict_positive(2 * z)
    np.testing.assert_allclose(
        p, p_old * 0.02 / 0.5 / (p_old * 0.02 / 0.5 + (1 - p_old) * 0.98 / 0.5), rtol=1e-12, atol=1e-14
    )
    adapted = vector.adapt(2 * z, validation=(2 * z[kept], names[y[kept]]))
    assert adapted.adaptation_.new[1] == pytest.approx(0.02, abs=0.01)
    for wrong in ({"rare": 0.1}, {"rare": 0.1, "other": 0.9}, [0.9, 0.2], [90, 10], [1.5, -0.5], [1.0], "many"):
        with pytest.raises(InputError):
            vector.with_priors(wrong, [0.5, 0.5])


@pytest.mark.parametrize("recipe", [VectorScaling(), StructuredScaling(), TemperatureScaling()], ids=str)
def test_a_shift_is_found_and_no_shift_is_left_alone(recipe):
    val = draw(2000)
    calibrator = recipe.fit(*val)
    h, y = draw(4000, NEW, seed=2)
    adapted = calibrator.adapt(h, validation=val)
    found = adapted.adaptation_
    assert np.abs(found.new - NEW).sum() < 0.08
    assert (found.low <= NEW + 0.02).all()
    assert (found.high >= NEW - 0.02).all()
    assert found.gap < 1e-9
    assert found.p_value > 0.01
    nll = [-np.log(c.predict_proba(h)[np.arange(len(y)), y]).mean() for c in (calibrator, adapted)]
    assert nll[1] < nll[0] - 0.1
    for n in (30, 300, 3000):
        h, y = draw(n, seed=n)
        adapted = calibrator.adapt(h, validation=val)
        test, labels = draw(5000, seed=9)
        nll = [-np.log(c.predict_proba(test)[np.arange(5000), labels]).mean() for c in (calibrator, adapted)]
        assert nll[1] < nll[0] + 0.005


def test_the_estimate_is_that_of_plain_em():
    val = draw(500)
    calibrator = VectorScaling().fit(*val)
    h = draw(400, NEW, seed=3)[0]
    p, old = calibrator.predict_proba(h), mean_prediction(calibrator, val[0])
    priors = old
    for _ in range(3000):
        q = closed_form(p, priors, old)
        priors = q.mean(axis=0)
    assert calibrator.adapt(h, validation=val).adaptation_.most_likely == pytest.approx(priors, abs=1e-6)


@pytest.mark.parametrize("change", ["sharper", "noise"])
def test_what_is_no_label_shift_is_refused(change):
    val = draw(2000)
    calibrator = VectorScaling().fit(*val)
    h = draw(3000, seed=4)[0]
    h = 2 * h if change == "sharper" else h + 2 * np.random.default_rng(0).normal(size=h.shape)
    with pytest.raises(LabelShiftError):
        calibrator.adapt(h, validation=val)
    with pytest.warns(AttemperWarning):
        adapted = calibrator.adapt(h, validation=val, force=True)
    assert adapted.adaptation_.p_value <= 0.01
    assert adapted.adaptation_.unexplained > 0.02


def test_a_fit_from_a_sketch_and_shares_without_validation_data():
    h, y = draw(2000)
    new = draw(3000, NEW, seed=5)[0]
    whole = TemperatureScaling().fit(h, y).adapt(new, validation=(h, y)).adaptation_.new
    sketched = TemperatureScaling().fit_sketch(Sketch.of(h, y))
    assert sketched.adapt(new, validation=(h, y)).adaptation_.new == pytest.approx(whole, abs=1e-6)
    with pytest.raises(InputError):
        sketched.adapt(new)
    with pytest.warns(AttemperWarning):
        assert sketched.adapt(new, old=OLD).adaptation_.p_value is None


def test_adapting_again_starts_from_the_fit(tmp_path):
    val = draw(2000)
    ts = VectorScaling().fit(*val)
    day, later = (draw(2000, NEW, seed=s)[0] for s in (6, 7))
    first = ts.adapt(day, validation=val)
    first.save(tmp_path / "a.json")
    again = attemper.load(tmp_path / "a.json").adapt(later, validation=val)
    np.testing.assert_allclose(again.predict_proba(day), ts.adapt(later, validation=val).predict_proba(day), rtol=1e-12)
    assert again.adaptation_.old == pytest.approx(mean_prediction(ts, val[0]))


def test_clusters_make_intervals_wider():
    val = draw(2000)
    calibrator = VectorScaling().fit(*val)
    h, _ = draw(150, NEW, seed=8)
    rows, ids = np.repeat(h, 10, axis=0), np.repeat(np.arange(150), 10)
    with pytest.warns(AttemperWarning):  # ten copies are no ten samples
        plain = calibrator.adapt(rows, validation=val, force=True)
    by_case = calibrator.adapt(rows, validation=val, clusters=ids)
    widths = [(c.adaptation_.high - c.adaptation_.low).mean() for c in (plain, by_case)]
    assert widths[1] > 1.4 * widths[0]
    assert by_case.adaptation_.n_samples == 150
    carried = calibrator.adapt(Scores.from_logits(rows, clusters=ids), validation=val)
    assert carried.adaptation_.high == pytest.approx(by_case.adaptation_.high)
    with pytest.raises(InputError):
        calibrator.adapt(rows, validation=val, clusters=ids[:-1])


def test_many_classes_are_tested_by_confidence():
    rng = np.random.default_rng(0)
    h = rng.normal(size=(400, 40))
    y = h.argmax(axis=1)
    y[:150] = rng.integers(0, 40, 150)
    ts = TemperatureScaling().fit(h, y)
    assert ts.adapt(h, validation=(h, y)).adaptation_.p_value > 0.01
    with pytest.raises(LabelShiftError):
        ts.adapt(3 * h, validation=(h, y))


def test_exports(tmp_path):
    h = draw(20, seed=1)[0].astype(np.float32)
    for recipe in (TemperatureScaling(), BayesianTemperatureScaling(), HistogramBinning()):
        for shares in (NEW, np.array([0.5, 0.5, 0, 0])):
            adapted = recipe.fit(*draw(300)).with_priors(shares, OLD)
            expected = adapted.predict_proba(h.astype(np.float64))
            np.testing.assert_allclose(to_torch(adapted)(torch.from_numpy(h)).numpy(), expected, atol=1e-6)
            found = models.run(map_to_onnx(adapted).model, {"logits": h})[0]
            np.testing.assert_allclose(found, expected, atol=1e-6)


def test_a_wrapper_changes_priors_too():
    from sklearn.linear_model import LogisticRegression

    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 2000)
    X = rng.normal(size=(2000, 2)) + y[:, None]
    clf = CalibratedClassifier(LogisticRegression(), "platt").fit(X[:1000], y[:1000])
    adapted = clf.with_priors([0.9, 0.1], [0.5, 0.5])
    assert adapted.predict_proba(X)[:, 1].mean() < clf.predict_proba(X)[:, 1].mean() - 0.1
    rare = np.r_[X[y == 0], X[y == 1][:100]]
    adapted = clf.adapt(rare, validation=(X[1000:], y[1000:]))
    assert adapted.predict_proba(rare)[:, 1].mean() == pytest.approx(100 / len(rare), abs=0.04)


def test_a_class_without_labels_keeps_its_share():
    h, y = draw(2000)
    seen = y != 3
    with pytest.warns(EdgeWarning):
        calibrator = StructuredScaling().fit(h[seen], y[seen])
    new = draw(3000, np.array([0.1, 0.3, 0.6, 0.0]), seed=1)[0]
    found = calibrator.adapt(new, validation=(h[seen], y[seen])).adaptation_
    assert found.new[3] == pytest.approx(mean_prediction(calibrator, h[seen])[3], rel=0.01)
    assert found.new[:3] == pytest.approx([0.1, 0.3, 0.6], abs=0.05)


def test_intervals_of_venn_abers_are_of_the_fit():
    with pytest.raises(InputError):
        VennAbers().fit(*draw(200)).with_priors(NEW, OLD).predict_interval(draw(5)[0])


def test_maps_of_groups_adapt_with_groups_or_with_the_common_map():
    h, y = draw(2000)
    new, _ = draw(1000, NEW, seed=1)
    site, new_site = np.arange(2000) % 3, np.arange(1000) % 3
    val = Scores.from_logits(h, y, groups=site)
    calibrator = TemperatureScaling().fit(h, y, groups=site)
    with pytest.raises(InputError):
        calibrator.adapt(new, validation=val)
    adapted = calibrator.adapt(new, groups=new_site, validation=val)
    of_scores = calibrator.adapt(Scores.from_logits(new, groups=new_site), validation=val)
    np.testing.assert_array_equal(adapted.adaptation_.new, of_scores.adaptation_.new)
    p = calibrator.predict_proba(new, groups=new_site)
    expected = closed_form(p, adapted.adaptation_.new, adapted.adaptation_.old)
    np.testing.assert_allclose(adapted.predict_proba(new, groups=new_site), expected, atol=1e-12)
    common = calibrator.adapt(new, groups="common", validation=(h, y))
    one_map = calibrator.for_group("common").adapt(new, validation=(h, y))
    np.testing.assert_allclose(common.adaptation_.new, one_map.adaptation_.new, atol=1e-9)
    assert list(common.group_maps_) == [0, 1, 2]
