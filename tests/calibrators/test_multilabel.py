"""Many labels: N×L scores, N×L labels with unknown entries."""

import json

import numpy as np
import pytest
from sklearn.base import clone

import attemper
from attemper import (
    AttemperWarning,
    BetaCalibration,
    FileError,
    InputError,
    MultiLabelCalibrator,
    PlattScaling,
    SigmoidMap,
    TemperatureScaling,
    load,
)

NAMES = ["edema", "fracture", "hernia"]


def draw(n=800, seed=0, rare=(0, 2, 4), scale=2.0, bias=1.0):
    rng = np.random.default_rng(seed)
    truth = 2 * rng.normal(size=(n, len(rare))) - np.asarray(rare)
    labels = (truth + rng.logistic(size=truth.shape) > 0).astype(float)
    return scale * truth + bias, labels, truth


def unknown(labels, share=0.3, seed=1):
    y = labels.copy()
    y[np.random.default_rng(seed).random(y.shape) < share] = np.nan
    return y


def nll(y, p):
    return float(-np.nanmean(np.where(y == 1, np.log(p), np.log1p(-p)) + 0 * y))


def test_the_truth_is_found():
    s, y, _ = draw(20_000)
    found = MultiLabelCalibrator().fit(s, y)
    assert not found.fit_report_.left_alone
    assert found.fit_report_.converged
    np.testing.assert_allclose(found.map_.a, 0.5, atol=0.03)
    np.testing.assert_allclose(found.map_.c, -0.5, atol=0.15)
    p = found.predict_proba(s)
    assert nll(y, p) < nll(y, 1 / (1 + np.exp(-s))) - 0.03
    assert found.fit_report_.nll == pytest.approx(nll(y, p), rel=1e-9)
    assert found.fit_report_.changed == pytest.approx(np.mean((p >= 0.5) != (s >= 0)), rel=1e-9)


def test_a_calibrated_classifier_is_left_alone():
    alone = []
    for seed in range(10):
        s, y, _ = draw(500, seed, scale=1.0, bias=0.0)
        found = MultiLabelCalibrator().fit(s, y)
        alone.append(found.fit_report_.left_alone)
        if alone[-1]:
            np.testing.assert_allclose(found.predict_proba(s), 1 / (1 + np.exp(-s)), rtol=1e-12)
    assert sum(alone) >= 5


@pytest.mark.parametrize("method", ["pooled", "platt", "beta"])
def test_unknown_entries_are_absent(method):
    """A mask, NaN and samples that are left out of each label's problem are the same."""
    s, y, _ = draw()
    hidden = unknown(y)
    by_nan = MultiLabelCalibrator(method=method).fit(s, hidden)
    by_mask = MultiLabelCalibrator(method=method).fit(s, y, mask=~np.isnan(hidden))
    np.testing.assert_array_equal(by_nan.predict_proba(s), by_mask.predict_proba(s))
    masked = MultiLabelCalibrator(method=method).fit(s, np.ma.MaskedArray(y, np.isnan(hidden)))
    np.testing.assert_array_equal(by_nan.predict_proba(s), masked.predict_proba(s))
    if method != "pooled":
        for k in range(3):
            known = ~np.isnan(hidden[:, k])
            pairs = np.column_stack([np.zeros(len(s)), s[:, k]])
            own = attemper.calibrators.METHODS[method]().fit(pairs[known], y[known, k].astype(int))
            np.testing.assert_allclose(by_nan.predict_proba(s)[:, k], own.predict_proba(pairs)[:, 1], rtol=1e-12)


@pytest.mark.parametrize("method", ["platt", "beta", "ts", TemperatureScaling()])
def test_one_label_agrees_with_two_classes(method):
    s, y, _ = draw(rare=(1,))
    base = attemper.calibrators.METHODS[method]() if isinstance(method, str) else method
    pairs = np.column_stack([np.zeros_like(s), s])
    expected = clone(base).fit(pairs, y[:, 0].astype(int)).predict_proba(pairs)[:, 1:]
    found = MultiLabelCalibrator(method=method).fit(s, y)
    np.testing.assert_allclose(found.predict_proba(s), expected, rtol=1e-12)
    assert isinstance(found.map_, SigmoidMap)


def test_one_pooled_label_is_nearly_platt():
    s, y, _ = draw(5000, rare=(1,))
    platt = MultiLabelCalibrator(method=PlattScaling(targets="labels")).fit(s, y)
    found = MultiLabelCalibrator().fit(s, y)
    np.testing.assert_allclose(found.predict_proba(s), platt.predict_proba(s), atol=0.01)


@pytest.mark.parametrize("method", ["pooled", "platt"])
def test_probabilities(method):
    s, y, _ = draw()
    p = 1 / (1 + np.exp(-s))
    by_probs = MultiLabelCalibrator(method=method, input="probs").fit(p, y)
    by_logits = MultiLabelCalibrator(method=method).fit(np.log(p) - np.log1p(-p), y)
    np.testing.assert_allclose(by_probs.predict_proba(p), by_logits.predict_proba(s), rtol=1e-6)
    assert by_probs.fit_report_.nll == pytest.approx(by_logits.fit_report_.nll, rel=1e-6)
    p[3, 1] = 1.0
    with pytest.raises(InputError):
        MultiLabelCalibrator(method=method, input="probs", label_names=NAMES).fit(p, y)
    fitted = MultiLabelCalibrator(method=method, input="probs", zeros_as=1e-6).fit(p, y)
    assert np.isfinite(fitted.predict_log_proba([[0.0, 1.0, 0.5]])).all()


def test_labels_without_positives_or_known_entries():
    s, y, _ = draw(400)
    y[:, 1] = 0
    y[:, 2] = np.nan
    with pytest.warns(AttemperWarning):
        found = MultiLabelCalibrator(label_names=NAMES).fit(s, y)
    assert [bool(fit.note) for fit in found.labels_] == [False, True, True]
    assert found.labels_[2].own_share == 0
    np.testing.assert_allclose([found.map_.a[2], found.map_.c[2]], [found.common_.a[0], found.common_.c[0]])
    with pytest.warns(AttemperWarning):
        platt = MultiLabelCalibrator(method="platt").fit(s, y)
    np.testing.assert_allclose(platt.predict_proba(s)[:, 1:], 1 / (1 + np.exp(-s[:, 1:])), rtol=1e-12)


def test_uncertain_entries():
    s, y, _ = draw()
    chexpert = y.copy()
    chexpert[::5, 0] = -1
    with pytest.raises(InputError):
        MultiLabelCalibrator(label_names=NAMES).fit(s, chexpert)
    as_positive = chexpert.copy()
    as_positive[::5, 0] = 1
    np.testing.assert_array_equal(
        MultiLabelCalibrator(uncertain="positive").fit(s, chexpert).predict_proba(s),
        MultiLabelCalibrator().fit(s, as_positive).predict_proba(s),
    )
    assert MultiLabelCalibrator(uncertain="unknown").fit(s, chexpert).labels_[0].n_known == 640
    # A soft label of 0.25 is the row three times without the label and once with it.
    soft = MultiLabelCalibrator(uncertain=0.25, method="platt").fit(s[:, :1], chexpert[:, :1])
    rows = np.repeat(np.arange(len(s)), 4)
    four = chexpert[rows, :1].copy()
    four[np.ravel(four == -1)] = np.tile([0.0, 0.0, 0.0, 1.0], 160)[:, None]
    repeated = MultiLabelCalibrator(method="platt").fit(s[rows, :1], four, np.full(len(rows), 0.25))
    np.testing.assert_allclose(soft.predict_proba(s[:, :1]), repeated.predict_proba(s[:, :1]), rtol=1e-9)


def test_thresholds_decide():
    s, y, _ = draw()
    found = MultiLabelCalibrator().fit(s, y)
    p = found.predict_proba(s)
    np.testing.assert_array_equal(found.predict(s), p >= 0.5)
    found.thresholds_ = [0.1, 0.5, 0.9]
    np.testing.assert_array_equal(found.predict(s), p >= [0.1, 0.5, 0.9])
    found.thresholds_ = [0.1, 2.0]
    with pytest.raises(InputError):
        found.predict(s)


@pytest.mark.parametrize("method", ["pooled", "platt", BetaCalibration(targets="platt")])
@pytest.mark.parametrize("kind", ["logits", "probs"])
def test_files(tmp_path, method, kind):
    s, y, _ = draw()
    x = s if kind == "logits" else 1 / (1 + np.exp(-s))
    found = MultiLabelCalibrator(method=method, input=kind, label_names=NAMES, uncertain=0.5).fit(x, unknown(y))
    found.thresholds_ = np.array([0.2, 0.5, 0.7])
    found.save(tmp_path / "map.json")
    back = load(tmp_path / "map.json")
    assert isinstance(back, MultiLabelCalibrator)
    np.testing.assert_array_equal(back.predict_proba(x), found.predict_proba(x))
    np.testing.assert_array_equal(back.predict(x), found.predict(x))
    assert back.fit_report_ == found.fit_report_
    assert back.summary() == found.summary()
    assert back.describe() == found.describe()
    assert back.method_name == found.method_name
    back.save(tmp_path / "again.json")
    assert (tmp_path / "again.json").read_bytes() == (tmp_path / "map.json").read_bytes()
    content = json.loads((tmp_path / "map.json").read_text())
    for key in content:
        damaged = {k: v for k, v in content.items() if k != key}
        (tmp_path / "bad.json").write_text(json.dumps(damaged))
        if key in ("zeros_as", "uncertain", "common", "heldout_gain") or (key == "params" and method == "pooled"):
            continue  # may be missing
        with pytest.raises(FileError):
            load(tmp_path / "bad.json")
    for change in ({"method": "nothing"}, {"thresholds": [0.5]}, {"map": {"type": "scale", "beta": 1.0}}):
        (tmp_path / "bad.json").write_text(json.dumps(content | change))
        with pytest.raises(FileError):
            load(tmp_path / "bad.json")
