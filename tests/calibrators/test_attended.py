import numpy as np
import pytest
from scipy.optimize import minimize_scalar

from attemper import (
    AttemperWarning,
    AttendedTemperatureScaling,
    InputError,
    Scores,
    Sketch,
    TemperatureScaling,
)
from attemper.metrics import ece

from data import draw
from oracles import attended_loss, nll, reference_loss


@pytest.mark.parametrize("loss, oracle", [("paper", attended_loss), ("reference", reference_loss)])
def test_every_t_of_the_path_minimises_the_double_loop(loss, oracle):
    h, y = draw(60, 4, t=1.5)
    grid = [0.005, 0.02, 0.08, 0.3]
    path = AttendedTemperatureScaling(loss=loss, theta_grid=grid, t_range=(0.4, 19)).fit(h, y).path_
    for theta, t, value in zip(path.theta, path.temperature, path.nll):
        coarse = np.exp(np.linspace(np.log(0.4), np.log(19), 60))
        near = coarse[np.argmin([oracle(h, y, c, theta) for c in coarse])]
        bounds = (near / 1.2, near * 1.2)
        direct = minimize_scalar(lambda c, b=theta: oracle(h, y, c, b), bounds=bounds, options={"xatol": 1e-10})
        assert t == pytest.approx(direct.x, rel=1e-6)
        assert value == pytest.approx(nll(h, y, t) / 60, rel=1e-9)


def test_theta_is_tuned_by_validation_nll():
    h, y = draw(900, 6)
    found = AttendedTemperatureScaling().fit(h, y)
    best = found.path_.nll.argmin()
    assert found.theta_ == found.path_.theta[best]
    assert found.temperature_ == found.path_.temperature[best]
    assert len(found.path_.theta) == 100


def test_sample_first_ends_where_the_full_table_ends():
    h, y = draw(6000, 8)
    direct = AttendedTemperatureScaling().fit(h, y)
    table = AttendedTemperatureScaling().fit_sketch(Sketch.of(h, y, n_nodes=128))
    np.testing.assert_allclose(direct.path_.temperature, table.path_.temperature, rtol=1e-7)
    difference = np.abs(np.log(direct.path_.temperature / table.path_.temperature))
    assert (difference <= direct.path_.error + table.path_.error).all()


def test_a_grid_that_reaches_one_is_plain_temperature_scaling():
    h, y = draw(900, 6)
    found = AttendedTemperatureScaling(theta_grid=np.arange(1, 101) / 100).fit(h, y)
    assert found.temperature_ == pytest.approx(TemperatureScaling().fit(h, y).temperature_, rel=1e-6)


def test_theta_given():
    h, y = draw(500, 5)
    given = AttendedTemperatureScaling(theta=0.02).fit(h, y)
    path = AttendedTemperatureScaling().fit(h, y).path_
    assert given.theta_ == 0.02
    assert given.temperature_ == pytest.approx(path.temperature[19], rel=1e-9)
    by_sketch = AttendedTemperatureScaling(theta=0.02).fit_sketch(Sketch.of(h, y))
    assert by_sketch.temperature_ == pytest.approx(given.temperature_, rel=1e-9)
    assert by_sketch.path_.theta.tolist() == [0.02]
    with pytest.raises(InputError):
        AttendedTemperatureScaling(theta=0.0205).fit_sketch(Sketch.of(h, y))


def calibrated(n, seed=0):
    """Probabilities of four classes, and labels drawn from them."""
    rng = np.random.default_rng(seed)
    p = rng.dirichlet(np.ones(4), n)
    return p, (p.cumsum(axis=1) > rng.random((n, 1))).argmax(axis=1)


@pytest.mark.parametrize("n", [1000, 4000])  # one table, and a table of the neighbourhood, which leaves T = 1 out
@pytest.mark.parametrize("theta", [None, 0.05])
def test_a_temperature_that_does_harm_is_a_warning(n, theta):
    p, y = calibrated(n)
    ats = AttendedTemperatureScaling(theta=theta, input="probs", fallback=False)
    with pytest.warns(AttemperWarning):
        ats.fit(p, y)
    assert ats.fit_report_.nll > nll(np.log(p), y, 1.0) / n
    sketch = Sketch.of(Scores.from_probs(p, y))
    with pytest.warns(AttemperWarning):
        AttendedTemperatureScaling(theta=theta).fit_sketch(sketch)


@pytest.mark.parametrize("n", [1000, 2000, 4000])
@pytest.mark.parametrize("scale", [1.0, 1000.0, 1e-3])
def test_a_calibrated_classifier_is_not_ruined(n, scale):
    p, y = calibrated(n)
    h, (new_p, new_y) = scale * np.log(p), calibrated(20_000, seed=1)
    plain = TemperatureScaling().fit(h, y)
    ats = AttendedTemperatureScaling()
    with pytest.warns(AttemperWarning):
        ats.fit(h, y)
    if ats.temperature_ == scale:
        assert ats.fit_report_.left_alone == (scale == 1)
        gain = nll(h, y, scale) - nll(h, y, plain.temperature_)
        assert gain <= 1
    else:
        assert ats.temperature_ == pytest.approx(plain.temperature_, rel=1e-7)
        assert ats.temperature_interval_ == pytest.approx(plain.temperature_interval_, rel=1e-5)
    assert ats.theta_ == 1
    assert ats.fit_report_.converged
    assert ats.fit_report_.nll == pytest.approx(nll(h, y, ats.temperature_) / n, rel=1e-9)
    new = scale * np.log(new_p)
    assert ece(new_y, ats.predict_proba(new)) < 0.02
    # A sketch gives the same, to its certificate.
    with pytest.warns(AttemperWarning):
        sketched = AttendedTemperatureScaling().fit_sketch(Sketch.of(h, y))
    assert sketched.temperature_ == pytest.approx(ats.temperature_, rel=1e-7)
    assert sketched.fit_report_.left_alone == ats.fit_report_.left_alone
