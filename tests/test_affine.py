"""Vector, matrix and Dirichlet scaling: exact derivatives, the optimum that SciPy finds, and the ridge."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import log_softmax

from attemper.calibrators.affine import DirichletCalibration, MatrixScaling, VectorScaling
from attemper.calibrators.temperature import TemperatureScaling
from attemper.errors import AttemperWarning, InputError
from attemper.kernels.evidence import Rows
from attemper.kernels.multinomial import Objective
from conftest import draw

METHODS = [VectorScaling, MatrixScaling, DirichletCalibration]
K = 4
DATA = draw(900, K, bias=0.3)


def objective_of(method, data, l2):
    """F of Eq. (9) with the ridge towards the temperature, as a function of the flat W and b."""
    diagonal = method is VectorScaling
    x = data.h - data.h.mean(axis=1, keepdims=True)
    x = log_softmax(data.h, axis=1) if method is DirichletCalibration else x
    beta = 1 / TemperatureScaling().fit(data.h, data.y).temperature_
    centre = beta * (np.ones(K) if diagonal else np.eye(K))

    def f(v):
        w, b = v[:-K].reshape(centre.shape), v[-K:]
        z = x * w + b if diagonal else x @ w.T + b
        nll = -log_softmax(z, axis=1)[np.arange(len(z)), data.y].mean()
        return nll + l2 * ((w - centre) ** 2).sum() + l2 / 10 * (b**2).sum()

    return f, np.append(centre.ravel(), np.zeros(K))


@pytest.mark.parametrize("diagonal", [True, False])
@pytest.mark.parametrize("masks", [0.0, 0.2])
def test_derivatives(diagonal, masks):
    data = draw(60, K, masks=masks)
    possible = np.isfinite(data.h)
    shape, rng = (K, 2) if diagonal else (K, K + 1), np.random.default_rng(1)
    penalty, centre = rng.random(shape[1]), rng.normal(size=shape)
    impossible = ~possible if masks else None
    x, w = np.where(possible, data.h, 0.0), data.w / data.w.sum()
    features = None if diagonal else np.column_stack([x, np.ones(len(x))])
    objective = Objective(Rows(x, data.y, w, impossible, features), centre, penalty)
    theta, v, step = 0.5 * rng.normal(size=centre.size), rng.normal(size=centre.size), 1e-6
    (high, g_high), (low, g_low) = objective.value(theta + step * v), objective.value(theta - step * v)
    assert objective.value(theta)[1] @ v == pytest.approx((high - low) / (2 * step), rel=1e-6)
    np.testing.assert_allclose(objective.product(theta, v), (g_high - g_low) / (2 * step), atol=1e-7)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("l2", [0.0, 0.1])
def test_the_optimum_is_that_of_scipy(method, l2):
    fitted = method(l2=l2).fit(DATA.h, DATA.y)
    f, start = objective_of(method, DATA, l2)
    best = minimize(f, start, method="BFGS", options={"gtol": 1e-7})
    at = np.append(fitted.weight_.ravel(), fitted.bias_)
    assert f(at) == pytest.approx(best.fun, abs=1e-9)
    if l2:
        np.testing.assert_allclose(at, best.x, atol=1e-4)
    assert fitted.report_.converged
    assert fitted.report_.error < 1e-10


def test_without_a_ridge_the_nearest_to_the_temperature_is_taken():
    fitted, beta = (
        MatrixScaling(l2=0).fit(DATA.h, DATA.y),
        1 / TemperatureScaling().fit(DATA.h, DATA.y).temperature_,
    )
    away = fitted.weight_ - beta * np.eye(K)
    # Softmax does not see the same vector added to all rows, nor, of centred logits, a multiple of ones in each row.
    np.testing.assert_allclose(away.sum(axis=0), 0, atol=1e-8)
    np.testing.assert_allclose(away.sum(axis=1), 0, atol=1e-8)
    assert fitted.bias_.sum() == pytest.approx(0, abs=1e-8)


def test_default_ridge_depends_on_the_number_of_classes():
    assert [m()._ridge(10) for m in METHODS] == [0.1, 0.1, 0.1]
    assert [m()._ridge(100) for m in METHODS] == [0.1, 1.0, 1.0]
    assert VectorScaling(l2=0)._ridge(200) == 0


@pytest.mark.filterwarnings("ignore::attemper.errors.AttemperWarning")
@pytest.mark.parametrize("method", METHODS)
def test_few_labels_of_many_classes_do_little_harm(method):
    data = draw(3000, 60, t=2.0)
    val, test = np.arange(3000) < 100, np.arange(3000) >= 1000

    def nll(calibrator):
        log_p = calibrator.fit(data.h[val], data.y[val]).predict_log_proba(data.h[test])
        return -log_p[np.arange(test.sum()), data.y[test]].mean()

    assert len(set(data.y[val])) < 55  # some have no label
    plain = -log_softmax(data.h[test], axis=1)[np.arange(test.sum()), data.y[test]].mean()
    tempered = nll(TemperatureScaling())
    assert nll(method()) < (tempered + 0.3 * (plain - tempered) if method is VectorScaling else plain)
    assert nll(method(l2=0)) > plain


@pytest.mark.parametrize("method", METHODS)
def test_classes_without_labels_keep_the_temperature(method):
    data = draw(600, 5)
    kept = data.y < 3
    fitted = method().fit(data.h[kept], data.y[kept])
    beta = 1 / TemperatureScaling().fit(data.h[kept], data.y[kept]).temperature_
    weight = fitted.weight_ if fitted.weight_.ndim == 2 else np.diag(fitted.weight_)
    np.testing.assert_allclose(weight[3:], beta * np.eye(5)[3:], atol=1e-12)
    np.testing.assert_array_equal(fitted.bias_[3:], 0)
    assert fitted.bias_[:3].sum() == pytest.approx(0, abs=1e-8)  # the others are not lifted above them
    assert np.abs(fitted.bias_[:3]).min() > 0
    assert len(fitted.report_.notes) == 1


def test_one_class_alone_has_labels():
    with pytest.warns(AttemperWarning):
        fitted = VectorScaling().fit(DATA.h, 0 * DATA.y + 2)
    np.testing.assert_array_equal(fitted.bias_, 0)
    assert np.ptp(fitted.weight_) == 0


def test_labels_that_can_be_separated_have_finite_parameters():
    logits = np.array([[2.0, 0, 0], [0, 2, 0], [0, 0, 2], [2, 0, 1], [0, 2, 1], [1, 0, 2]])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for method in METHODS:
            for l2 in (None, 0):
                assert np.isfinite(method(l2=l2).fit(logits, [0, 1, 2, 0, 1, 2]).weight_).all()


@pytest.mark.parametrize("params", [{"l2": -1}, {"l2": float("nan")}, {"centring": "odd"}])
def test_errors(params):
    with pytest.raises(InputError) as caught:
        VectorScaling(**params).fit(DATA.h, DATA.y)
    assert caught.value.param == next(iter(params))


@pytest.mark.parametrize("method", METHODS)
def test_masks_of_rows_without_weight_do_not_count(method):
    data = draw(900, K, masks=0.2)
    some = data.w > 0
    one, two = method().fit(data.h, data.y, data.w), method().fit(data.h[some], data.y[some], data.w[some])
    np.testing.assert_allclose(one.weight_, two.weight_, atol=1e-6)
    np.testing.assert_allclose(one.bias_, two.bias_, atol=1e-6)
