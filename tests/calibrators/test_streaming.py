"""Batch after batch gives the fit on everything; with a half-life, the fit with faded weights."""

import warnings
from itertools import pairwise

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone

import attemper
from attemper import (
    AttemperWarning,
    AttendedTemperatureScaling,
    BayesianTemperatureScaling,
    InputError,
    Sketch,
    TemperatureScaling,
)

from data import draw

STREAMING = [
    TemperatureScaling(),
    TemperatureScaling(t_range=(0.3, 7.0)),
    AttendedTemperatureScaling(),
    AttendedTemperatureScaling(loss="reference", theta_grid=[0.01, 0.02, 0.3], t_range=(0.2, 9.0)),
    AttendedTemperatureScaling(theta=0.02),
    BayesianTemperatureScaling(t_range=(0.1, 10.0)),
    BayesianTemperatureScaling(labels="noisy", noise="uniform"),
]


def cut(n, parts):
    """Slices at these shares of the way."""
    edges = [0, *sorted(round(p * n) for p in parts), n]
    return [slice(a, b) for a, b in pairwise(edges) if b > a]


def stream(calibrator, h, y, slices, w=None):
    calibrator = clone(calibrator)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", AttemperWarning)  # of the first few samples
        for part in slices:
            calibrator.partial_fit(h[part], y[part], sample_weight=None if w is None else w[part])
    return calibrator


@pytest.mark.parametrize("calibrator", STREAMING, ids=str)
def test_a_stream_is_a_fit_on_everything(calibrator):
    h, y = draw(900, 4)
    slices = cut(900, [0.001, 0.3, 0.31, 0.8])
    assert slices[0] == slice(0, 1)
    streamed = stream(calibrator, h, y, slices)
    whole = clone(calibrator).fit(h, y)
    bound = streamed.fit_report_.log_t_error + whole.fit_report_.log_t_error
    assert abs(np.log(streamed.temperature_ / whole.temperature_)) <= max(bound, 1e-12)
    np.testing.assert_allclose(streamed.predict_proba(h), whole.predict_proba(h), atol=1e-6)
    settings = calibrator._sketch_settings()
    added = None
    for part in slices:
        piece = Sketch.of(h[part], y[part], **settings)
        added = piece if added is None else added + piece
    again = clone(calibrator).fit_sketch(added)
    assert again.temperature_ == streamed.temperature_
    assert again.fit_report_ == streamed.fit_report_
    assert (again.sketch_.nll == streamed.sketch_.nll).all()
    assert streamed.sketch_.n_samples == streamed.sketch_.weight == 900


def test_the_stream_goes_on_from_a_sketch(tmp_path):
    h, y = draw(900, 4)
    sketch = Sketch.of(h[:500], y[:500], n_nodes=40, thetas=[0.01, 0.1])  # with every part, and settings of its own
    sketch.save(tmp_path / "a.json")
    ats = AttendedTemperatureScaling().fit_sketch(Sketch.load(tmp_path / "a.json")).partial_fit(h[500:], y[500:])
    whole = AttendedTemperatureScaling().fit_sketch(Sketch.of(h, y, n_nodes=40, thetas=[0.01, 0.1]))
    assert ats.temperature_ == pytest.approx(whole.temperature_, rel=1e-12)
    assert ats.sketch_.n_samples == 900


def test_after_a_fit_a_new_stream_begins_and_says_so(tmp_path):
    h, y = draw(900, 4)
    fitted = TemperatureScaling().fit(h[:500], y[:500])
    fitted.save(tmp_path / "m.json")
    loaded = attemper.load(tmp_path / "m.json")
    for calibrator in (fitted, loaded):
        with pytest.warns(AttemperWarning):
            calibrator.partial_fit(h[500:], y[500:])
        assert calibrator.sketch_.n_samples == 400
        assert not hasattr(calibrator.fit(h, y), "sketch_")


@pytest.mark.parametrize("calibrator", STREAMING[1:3], ids=str)
def test_a_bad_batch_changes_nothing(calibrator):
    h, y = draw(300, 3)
    calibrator = clone(calibrator).partial_fit(pd.DataFrame(h, columns=list("abc")), y)
    before = dict(vars(calibrator))
    nan = np.where(np.arange(3) == 1, np.nan, h)
    for X, labels, more in [
        (nan, y, {}),
        (h, y + 1, {}),
        (h[:, :2], y % 2, {}),
        (h[:, :2].tolist(), y % 2, {}),
        (h, None, {}),
        (h, y, {"sample_weight": np.zeros(300)}),
        (h, y, {"classes": ["benign", "malignant"]}),
        (pd.DataFrame(h, columns=list("abe")), y, {}),
    ]:
        with pytest.raises(InputError):
            calibrator.partial_fit(X, labels, **more)
        assert vars(calibrator).keys() == before.keys()
        assert all(vars(calibrator)[name] is value for name, value in before.items())
    calibrator.partial_fit(h, y)  # an array without names is taken, as in predict_proba
    assert calibrator.feature_names_in_.tolist() == list("abc")
    if isinstance(calibrator, AttendedTemperatureScaling):
        sketch = calibrator.sketch_
        calibrator.set_params(theta=0.55)
        with pytest.raises(InputError):
            calibrator.partial_fit(h, y)
        assert calibrator.sketch_ is sketch
