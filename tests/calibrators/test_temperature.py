import numpy as np
import pytest
import sklearn.calibration
from hypothesis import assume, given

from attemper import AttendedTemperatureScaling, EdgeWarning, InputError, Scores, Sketch, TemperatureScaling

from data import cases, draw
from oracles import exact_temperature, nll


@given(cases(max_rows=8, bound=4.0))
def test_t_agrees_with_fifty_digits(case):
    h, y = case
    # A label that is right and one that is not: with them most cases have a finite best T.
    h = np.vstack([h, 12 * np.eye(1, h.shape[1]), np.eye(1, h.shape[1])])
    y = np.r_[y, 0, 1]
    mean = h.mean(axis=1) - h[np.arange(len(y)), y]
    assume(mean.sum() < -0.1)
    found = TemperatureScaling().fit(h, y)
    assert abs(found.temperature_ / float(exact_temperature(h, y)) - 1) < 1e-8
    assert found.fit_report_.converged
    assert found.fit_report_.nll == pytest.approx(nll(h, y, found.temperature_) / len(y), rel=1e-9)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.skipif(not hasattr(sklearn.calibration, "_TemperatureScaling"), reason="scikit-learn has it since 1.8")
def test_scikit_learn_finds_the_same(dtype):
    h, y = draw(3000, 8)
    h = h.astype(dtype)
    theirs = 1 / sklearn.calibration._TemperatureScaling().fit(h.astype(float), y).beta_
    assert TemperatureScaling().fit(h, y).temperature_ == pytest.approx(theirs, rel=1e-5)


def test_sample_float32_float64_stages_end_where_one_long_search_ends():
    h, y = draw(20_000, 10)
    staged = TemperatureScaling().fit(h, y)
    w = np.random.default_rng(0).uniform(0, 3, len(y))
    for weight in (None, w):
        staged = TemperatureScaling().fit(h, y, weight)
        from attemper.calibrators.temperature import _evaluator
        from attemper.kernels.nll import minimise

        plain = minimise(_evaluator(Scores.from_logits(h, y, sample_weight=weight)), tolerance=1e-14)
        assert abs(staged.temperature_ * plain.at - 1) < staged.fit_report_.log_t_error + 1e-11 < 1e-7


def test_perfect_accuracy_has_no_finite_t_and_says_so():
    h, _ = draw(2000, 4)
    with pytest.warns(EdgeWarning):
        found = TemperatureScaling().fit(h, h.argmax(axis=1))
    assert found.temperature_ == 0.05
    assert found.fit_report_.edge == "low"
    assert not found.fit_report_.converged
    with pytest.warns(EdgeWarning):
        TemperatureScaling().fit_sketch(Sketch.of(h, h.argmax(axis=1)))


def test_a_range_that_is_told_is_kept():
    h, y = draw(500, 5, t=3.0)
    with pytest.warns(EdgeWarning):
        assert TemperatureScaling(t_range=(0.5, 2)).fit(h, y).temperature_ == 2
    with pytest.warns(EdgeWarning):
        assert TemperatureScaling(t_range=(0.5, 2)).fit_sketch(Sketch.of(h, y)).temperature_ == 2
    with pytest.raises(InputError):
        TemperatureScaling(t_range=(2, 1)).fit(h, y)


def test_equal_logits_leave_t_at_one():
    found = TemperatureScaling().fit(np.full((20, 3), 7.0), np.arange(20) % 3)
    h, y = np.full((20, 3), 7.0), np.arange(20) % 3
    sketched = TemperatureScaling().fit_sketch(Sketch.of(h, y))
    for fit in (found, sketched, AttendedTemperatureScaling().fit(h, y)):
        assert fit.temperature_ == 1
    with pytest.raises(InputError):
        TemperatureScaling().fit(1e-100 * draw()[0], draw()[1])


@pytest.mark.parametrize("from_sketch", [False, True])
def test_t_of_one_within_noise_is_reported_but_not_taken(from_sketch):
    expected = {}
    for t in (1.0, 1.02, 1.3):
        h, y = draw(1000, 5, t=t, seed=3)
        ts = TemperatureScaling()
        ts.fit_sketch(Sketch.of(h, y)) if from_sketch else ts.fit(h, y)
        # The slow, obvious way: one nat is what a fit of one parameter gains by chance.
        gain = nll(h, y, 1.0) - nll(h, y, ts.temperature_)
        expected[t] = gain < 1
        assert ts.fit_report_.left_alone == expected[t]
        assert ts.temperature_ != 1
    assert expected[1.0]
    assert not expected[1.3]


@pytest.mark.parametrize("scale", [1e-25, 1e-12, 1e-3, 1e3, 1e6, 1e10, 1e12, 1e18, 1e28])
@pytest.mark.parametrize("n", [40, 300, 3000])
def test_logits_of_any_size_have_their_t(n, scale):
    h, y = draw(n, 4)
    expected, found = TemperatureScaling().fit(h, y), TemperatureScaling().fit(scale * h, y)
    assert found.temperature_ == pytest.approx(scale * expected.temperature_, rel=1e-7)
    assert found.fit_report_.converged
    assert found.fit_report_.n_iter <= 15
    np.testing.assert_allclose(found.temperature_interval_, scale * np.array(expected.temperature_interval_), rtol=1e-5)


@pytest.mark.parametrize("n, n_classes, scale", [(8000, 10, 4.0), (2000, 50, 1.0), (8000, 10, 40.0), (100, 1000, 8.0)])
@pytest.mark.parametrize("masked", [False, True])
def test_many_logits_in_single_precision_are_within_the_reported_error(n, n_classes, scale, masked):
    h, y = draw(n, n_classes, scale)
    h = h.astype(np.float32)
    if masked:
        h[np.arange(n), (y + 1) % n_classes] = -np.inf
    single, double = (TemperatureScaling().fit(h.astype(dtype), y) for dtype in (np.float32, np.float64))
    error = abs(np.log(single.temperature_ / double.temperature_))
    assert error <= single.fit_report_.log_t_error < 1e-6
    assert single.fit_report_.nll == pytest.approx(double.fit_report_.nll, rel=2e-7)
