"""Other class priors: known ones in closed form, estimated ones, files, and when label shift is refused."""

import warnings

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
    FileError,
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
from attemper.priors import PredictionCounts
from attemper.torch import fold_into_linear, to_torch

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


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda r: type(r).__name__)
def test_known_priors_are_the_closed_form(recipe, tmp_path):
    calibrator = recipe.fit(*draw(600))
    h = draw(50, seed=1)[0]
    p = calibrator.predict_proba(h)
    assert calibrator.class_prior_ == pytest.approx(calibrator.predict_proba(draw(600)[0]).mean(axis=0), abs=1e-12)
    for old in (None, OLD):
        adapted = calibrator.with_priors(NEW, old)
        expected = closed_form(p, NEW, calibrator.class_prior_ if old is None else old)
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


@given(st.lists(st.floats(0.01, 1), min_size=8, max_size=8), st.integers(0, 1000))
def test_priors_compose_and_come_back(numbers, seed):
    first, second = (np.array(part) / sum(part) for part in (numbers[:4], numbers[4:]))
    ts = TemperatureScaling()
    ts.fit(*draw(60, seed=0))
    h = draw(20, seed=seed)[0]
    once, twice = ts.with_priors(second), ts.with_priors(first).with_priors(second)
    np.testing.assert_allclose(twice.predict_proba(h), once.predict_proba(h), rtol=1e-12)
    step = ts.with_priors(first, old=OLD).with_priors(second, old=first)
    np.testing.assert_allclose(step.predict_proba(h), ts.with_priors(second, old=OLD).predict_proba(h), rtol=1e-12)
    same = twice.with_priors(ts.class_prior_)
    np.testing.assert_allclose(same.predict_proba(h), ts.predict_proba(h), rtol=1e-12)
    assert twice.class_prior_ == pytest.approx(second)


def test_a_class_without_a_share_is_impossible_and_masked_ones_stay_so():
    ts = TemperatureScaling().fit(*draw(200))
    h = draw(5, seed=1)[0]
    p = ts.with_priors([0.5, 0.5, 0, 0]).predict_proba(h)
    assert (p[:, 2:] == 0).all()
    assert p.sum(axis=1) == pytest.approx(1)
    back = ts.with_priors([0.5, 0.5, 0, 0]).with_priors(NEW)  # from the priors of the fit
    np.testing.assert_allclose(back.predict_proba(h), ts.with_priors(NEW).predict_proba(h))
    with pytest.raises(InputError):
        ts.with_priors(NEW, old=[0.5, 0.5, 0, 0])
    masked = h.copy()
    masked[:, 0] = -np.inf
    assert (ts.with_priors(NEW).predict_proba(masked)[:, 0] == 0).all()
    alone = np.array([[-np.inf, -np.inf, 1.0, -np.inf]])  # the class without a share is the only one left
    np.testing.assert_array_equal(ts.with_priors([0.5, 0.5, 0, 0]).predict_proba(alone), [[0, 0, 1, 0]])


def test_names_one_column_and_undersampling():
    rng = np.random.default_rng(0)
    y = (rng.random(20_000) < 0.02).astype(int)
    z = 2 * y - 1 + rng.normal(size=len(y))
    kept = (y == 1) | (rng.random(len(y)) < 0.02 / 0.98)  # equal shares after undersampling
    vector = PlattScaling(classes=["common", "rare"]).fit(2 * z[kept], np.array(["common", "rare"])[y[kept]])
    corrected = vector.with_priors({"rare": 0.02, "common": 0.98}, old={"common": 0.5, "rare": 0.5})
    p = corrected.predict_positive(2 * z)
    assert p.mean() == pytest.approx(0.02, abs=0.003)
    p_old = vector.predict_positive(2 * z)
    np.testing.assert_allclose(
        p, p_old * 0.02 / 0.5 / (p_old * 0.02 / 0.5 + (1 - p_old) * 0.98 / 0.5), rtol=1e-12, atol=1e-14
    )
    adapted = vector.adapt(2 * z)
    assert adapted.adaptation_.new[1] == pytest.approx(0.02, abs=0.01)
    for wrong, _what in (
        ({"rare": 0.1}, "'common'"),
        ({"rare": 0.1, "commun": 0.9}, "Did you mean 'common'"),  # codespell:ignore
        ([0.9, 0.2], "sum of 1.1"),
        ([90, 10], "sum of 100"),
        ([1.5, -0.5], "'rare'"),
        ([1.0], "shape"),
        ("many", "expected 2 shares"),
    ):
        with pytest.raises(InputError):
            vector.with_priors(wrong)


@pytest.mark.parametrize("recipe", [VectorScaling(), StructuredScaling(), TemperatureScaling()], ids=str)
def test_a_shift_is_found_and_no_shift_is_left_alone(recipe):
    calibrator = recipe.fit(*draw(2000))
    h, y = draw(4000, NEW, seed=2)
    adapted = calibrator.adapt(h)
    found = adapted.adaptation_
    assert np.abs(found.new - NEW).sum() < 0.08
    assert (found.low <= NEW + 0.02).all()
    assert (found.high >= NEW - 0.02).all()
    assert found.gap < 1e-9
    assert np.abs(found.bbse - NEW).sum() < 0.15
    assert np.abs(found.rlls - NEW).sum() < 0.15
    assert found.p_value > 0.01
    nll = [-np.log(c.predict_proba(h)[np.arange(len(y)), y]).mean() for c in (calibrator, adapted)]
    assert nll[1] < nll[0] - 0.1
    for n in (30, 300, 3000):
        h, y = draw(n, seed=n)
        adapted = calibrator.adapt(h)
        test, labels = draw(5000, seed=9)
        nll = [-np.log(c.predict_proba(test)[np.arange(5000), labels]).mean() for c in (calibrator, adapted)]
        assert nll[1] < nll[0] + 0.005


def test_the_estimate_is_that_of_plain_em():
    calibrator = VectorScaling().fit(*draw(500))
    h = draw(400, NEW, seed=3)[0]
    p, old = calibrator.predict_proba(h), calibrator.class_prior_
    priors = old
    for _ in range(3000):
        q = closed_form(p, priors, old)
        priors = q.mean(axis=0)
    assert calibrator.adapt(h).adaptation_.most_likely == pytest.approx(priors, abs=1e-6)


@pytest.mark.parametrize("change", ["sharper", "noise"])
def test_what_is_no_label_shift_is_refused(change):
    calibrator = VectorScaling().fit(*draw(2000))
    h = draw(3000, seed=4)[0]
    h = 2 * h if change == "sharper" else h + 2 * np.random.default_rng(0).normal(size=h.shape)
    with pytest.raises(LabelShiftError):
        calibrator.adapt(h)
    with pytest.warns(AttemperWarning):
        adapted = calibrator.adapt(h, force=True)
    assert adapted.adaptation_.p_value <= 0.01
    assert adapted.adaptation_.unexplained > 0.02


def test_streams_counts_and_sketches():
    h, y = draw(2000)
    new = draw(3000, NEW, seed=5)[0]
    ts = TemperatureScaling().fit(h, y)
    whole = ts.adapt(new).adaptation_.new
    pieces = ts.adapt(part for part in np.array_split(new, 7)).adaptation_
    assert pieces.new == pytest.approx(whole, abs=1e-9)
    counts = ts.count_predictions(new[:1000]) + ts.count_predictions(new[1000:])
    assert np.abs(ts.adapt(counts).adaptation_.new - NEW).sum() < 0.1

    sketched = TemperatureScaling().fit_sketch(Sketch.of(h, y))
    with pytest.raises(InputError):
        sketched.with_priors(NEW)
    with pytest.raises(InputError):
        sketched.adapt(new)
    with pytest.raises(InputError):
        sketched.adapt(counts)
    assert sketched.adapt(new, validation=(h, y)).adaptation_.new == pytest.approx(whole, abs=1e-6)
    sites = sketched.count_predictions(h[:900], y[:900]) + sketched.count_predictions(h[900:], y[900:])
    assert sketched.with_reference(sites).adapt(new).adaptation_.new == pytest.approx(whole, abs=1e-6)
    with pytest.warns(AttemperWarning):
        told = sketched.adapt(new, old=OLD)
    assert told.adaptation_.p_value is None
    assert "not tested" in told.adaptation_.describe()[-1]
    streamed = TemperatureScaling().partial_fit(h, y)
    assert not hasattr(streamed, "class_prior_")
    with pytest.raises(InputError):
        sketched.with_reference(counts)
    with pytest.raises(InputError):
        ts.adapt(iter([]))


def test_adapting_again_starts_from_the_fit(tmp_path):
    ts = VectorScaling().fit(*draw(2000))
    day, later = (draw(2000, NEW, seed=s)[0] for s in (6, 7))
    first = ts.adapt(day)
    first.save(tmp_path / "a.json")
    again = attemper.load(tmp_path / "a.json").adapt(later)
    np.testing.assert_allclose(again.predict_proba(day), ts.adapt(later).predict_proba(day), rtol=1e-12)
    assert again.adaptation_.old == pytest.approx(ts.class_prior_)


def test_clusters_make_intervals_wider():
    calibrator = VectorScaling().fit(*draw(2000))
    h, _ = draw(150, NEW, seed=8)
    rows, ids = np.repeat(h, 10, axis=0), np.repeat(np.arange(150), 10)
    with pytest.warns(AttemperWarning):  # ten copies are no ten samples
        plain = calibrator.adapt(rows, force=True)
    by_case = calibrator.adapt(rows, clusters=ids)
    widths = [(c.adaptation_.high - c.adaptation_.low).mean() for c in (plain, by_case)]
    assert widths[1] > 1.4 * widths[0]
    assert by_case.adaptation_.n_samples == 150
    carried = calibrator.adapt(Scores.from_logits(rows, clusters=ids))
    assert carried.adaptation_.high == pytest.approx(by_case.adaptation_.high)
    with pytest.raises(InputError):
        calibrator.adapt(rows, clusters=ids[:-1])
    with pytest.raises(InputError):
        calibrator.adapt(Scores.from_logits(rows), clusters=ids)


def test_many_classes_have_no_confusion_matrix_and_more_no_prior():
    rng = np.random.default_rng(0)
    h = rng.normal(size=(400, 40))
    y = h.argmax(axis=1)
    y[:150] = rng.integers(0, 40, 150)
    ts = TemperatureScaling().fit(h, y)
    found = ts.adapt(h).adaptation_
    assert found.bbse is None
    assert found.p_value > 0.01
    assert "12 of 40 classes" in "\n".join(found.describe())
    with pytest.raises(LabelShiftError):
        ts.adapt(3 * h)
    with pytest.raises(InputError):
        ts.adapt(ts.count_predictions(h))
    wide = rng.normal(size=(60, 1100))
    y = wide.argmax(axis=1)
    y[:30] = 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", AttemperWarning)
        ts = TemperatureScaling().fit(wide, y)
    with pytest.raises(InputError):
        ts.with_priors(np.full(1100, 1 / 1100))
    equal = np.full(1100, 1 / 1100)
    np.testing.assert_allclose(ts.with_priors(equal, equal).predict_proba(wide), ts.predict_proba(wide))


def test_exports(tmp_path):
    h = draw(20, seed=1)[0].astype(np.float32)
    for recipe in (TemperatureScaling(), BayesianTemperatureScaling(), HistogramBinning()):
        for shares in (NEW, np.array([0.5, 0.5, 0, 0])):
            adapted = recipe.fit(*draw(300)).with_priors(shares)
            expected = adapted.predict_proba(h.astype(np.float64))
            np.testing.assert_allclose(to_torch(adapted)(torch.from_numpy(h)).numpy(), expected, atol=1e-6)
            found = models.run(map_to_onnx(adapted).model, {"logits": h})[0]
            np.testing.assert_allclose(found, expected, atol=1e-6)
    layer, x = torch.nn.Linear(3, 4), torch.randn(7, 3)
    assert fold_into_linear(layer, TemperatureScaling().fit(*draw(300)).with_priors(NEW), check=x).difference < 1e-6


def test_a_wrapper_changes_priors_too():
    from sklearn.linear_model import LogisticRegression

    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 2000)
    X = rng.normal(size=(2000, 2)) + y[:, None]
    for ensemble in (False, True):
        clf = CalibratedClassifier(LogisticRegression(), "platt", ensemble=ensemble).fit(X, y)
        adapted = clf.with_priors([0.9, 0.1])
        assert adapted.predict_proba(X)[:, 1].mean() < clf.predict_proba(X)[:, 1].mean() - 0.1
        rare = np.r_[X[y == 0], X[y == 1][:100]]
        assert clf.adapt(rare).predict_proba(rare)[:, 1].mean() == pytest.approx(100 / len(rare), abs=0.04)


def test_files_are_checked(tmp_path):
    adapted = TemperatureScaling().fit(*draw(300)).adapt(draw(500, NEW, seed=1)[0])
    adapted.save(tmp_path / "a.json")
    text = (tmp_path / "a.json").read_text()
    for old, new in (
        ('"class_prior":[', '"class_prior":[0.5,'),
        ('"type":"tilted"', '"type":"scale","beta":1.0'),
        ('"labelled":true', '"labelled":false'),
        ('"cells":[', '"cells":[99999,'),
    ):
        assert old in text
        (tmp_path / "b.json").write_text(text.replace(old, new, 1))
        with pytest.raises(FileError):
            attemper.load(tmp_path / "b.json")


def test_counts_round_trip_and_refuse(tmp_path):
    ts = TemperatureScaling().fit(*draw(300))
    for counts in (ts.prediction_counts_, ts.count_predictions(draw(50, seed=1)[0])):
        counts.save(tmp_path / "c.json")
        back = PredictionCounts.load(tmp_path / "c.json")
        np.testing.assert_array_equal(back.counts, counts.counts)
        np.testing.assert_array_equal(back.sums, counts.sums)
    with pytest.raises(InputError):
        ts.prediction_counts_ + ts.count_predictions(draw(50, seed=1)[0])


def test_a_class_without_labels_keeps_its_share():
    h, y = draw(2000)
    seen = y != 3
    with pytest.warns(EdgeWarning):
        calibrator = StructuredScaling().fit(h[seen], y[seen])
    new = draw(3000, np.array([0.1, 0.3, 0.6, 0.0]), seed=1)[0]
    found = calibrator.adapt(new).adaptation_
    assert found.new[3] == pytest.approx(calibrator.class_prior_[3], rel=0.01)
    assert found.new[:3] == pytest.approx([0.1, 0.3, 0.6], abs=0.05)
    assert calibrator.adapt(calibrator.count_predictions(new)).class_prior_[3] < 0.01


def test_intervals_of_venn_abers_are_of_the_fit():
    with pytest.raises(InputError):
        VennAbers().fit(*draw(200)).with_priors(NEW).predict_interval(draw(5)[0])


def test_counts_can_be_left_out_of_a_file(tmp_path):
    ts = TemperatureScaling().fit(*draw(300))
    ts.without_counts().save(tmp_path / "a.json")
    back = attemper.load(tmp_path / "a.json")
    assert not hasattr(back, "prediction_counts_")
    assert hasattr(ts, "prediction_counts_")
    np.testing.assert_array_equal(back.with_priors(NEW).map_.bias, ts.with_priors(NEW).map_.bias)


def test_maps_of_groups_adapt_with_groups_or_with_the_common_map():
    h, y = draw(2000)
    new, _ = draw(1000, NEW, seed=1)
    site, new_site = np.arange(2000) % 3, np.arange(1000) % 3
    calibrator = TemperatureScaling().fit(h, y, groups=site)
    with pytest.raises(InputError):
        calibrator.adapt(new)
    adapted = calibrator.adapt(new, groups=new_site)
    of_scores = calibrator.adapt(Scores.from_logits(new, groups=new_site))
    np.testing.assert_array_equal(adapted.class_prior_, of_scores.class_prior_)
    old, p = calibrator.class_prior_, calibrator.predict_proba(new, groups=new_site)
    expected = closed_form(p, adapted.class_prior_, old)
    np.testing.assert_allclose(adapted.predict_proba(new, groups=new_site), expected, atol=1e-12)
    common = calibrator.adapt(iter([new[:500], new[500:]]), groups="common", validation=(h, y))
    one_map = calibrator.for_group("common").adapt(new, validation=(h, y))
    np.testing.assert_allclose(common.class_prior_, one_map.class_prior_, atol=0.01)
    assert list(common.group_maps_) == [0, 1, 2]
    counts = calibrator.count_predictions(new, groups=new_site)
    assert calibrator.adapt(counts).class_prior_ == pytest.approx(NEW, abs=0.06)
    again = calibrator.with_reference((h, y), groups=site)
    np.testing.assert_array_equal(again.prediction_counts_.counts, calibrator.prediction_counts_.counts)
    with pytest.raises(InputError):
        calibrator.adapt(iter([new]), groups=new_site)


def test_missing_clusters_are_an_error():
    calibrator = VectorScaling().fit(*draw(500))
    with pytest.raises(InputError):
        calibrator.adapt(draw(5)[0], clusters=[0.0, 1.0, 1.0, np.nan, 2.0])


def test_a_class_that_was_ruled_out_stays_so():
    h, y = draw(2000)
    seen = y != 3
    with pytest.warns(EdgeWarning):
        calibrator = VectorScaling().fit(h[seen], y[seen])
    new = draw(1000, np.array([0.2, 0.3, 0.5, 0.0]), seed=1)[0]
    for rows in (new, calibrator.count_predictions(new)):
        adapted = calibrator.adapt(rows, force=True).adaptation_
        assert adapted.new[3] == pytest.approx(adapted.old[3], rel=1e-6)
        assert adapted.low[3] <= adapted.new[3] * (1 + 1e-6)
        assert adapted.new.sum() == pytest.approx(1)


def test_the_common_map_of_groups_needs_validation_data_to_adapt():
    rng = np.random.default_rng(0)
    site = rng.integers(0, 3, 1500)
    h = 2 * rng.normal(size=(1500, 4))
    y = (h / np.array([1, 2, 5])[site, None] + rng.gumbel(size=h.shape)).argmax(axis=1)
    calibrator = TemperatureScaling().fit(h, y, groups=site)
    for adapt in (lambda **more: calibrator.adapt(h, groups="common", **more), calibrator.for_group("common").adapt):
        with pytest.raises(InputError):
            adapt(**({} if adapt.__name__ == "<lambda>" else {"X": h}))
    found = calibrator.adapt(h, groups="common", validation=(h, y), n_resamples=20).adaptation_
    assert found.p_value > 0.05
