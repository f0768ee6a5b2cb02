import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import log_softmax
from sklearn.base import clone

from attemper import (
    DirichletCalibration,
    EdgeWarning,
    MatrixScaling,
    TemperatureScaling,
    VectorScaling,
    testing,
)

# scikit-learn's checks fit three classes in ten and more columns, where there is no finite optimum without a penalty,
# and ask for the same answer to nine digits from other data of the same meaning.
CHECKS = [check for check in testing.CHECKS if check is not testing.check_scikit_learn]


def truth(n=4000, k=4, seed=0):
    """Logits, and labels drawn from an affine map of them."""
    rng = np.random.default_rng(seed)
    h = 3 * rng.normal(size=(n, k))
    weight = np.diag(rng.uniform(0.3, 0.7, k)) + 0.1 * rng.normal(size=(k, k))
    bias = rng.normal(size=k)
    y = (h @ weight.T + bias + rng.gumbel(size=h.shape)).argmax(axis=1)
    return h, y, weight, bias


def naive(h, y, weight, bias, calibrator, prior, w=None):
    """Mean NLL and penalties, as the docstrings have them."""
    if calibrator.method == "dirichlet" or calibrator.centring == "log_probs":
        x = log_softmax(h, axis=1)
    else:
        x = h - h.mean(axis=1, keepdims=True) if calibrator.centring == "mean" else h
    k = len(bias)
    full = np.diag(weight) if weight.ndim == 1 else weight
    z = log_softmax(x @ full.T + bias, axis=1)
    away = weight - prior * (np.ones(k) if weight.ndim == 1 else np.eye(k))
    off = full[~np.eye(k, dtype=bool)]
    return (
        -np.average(z[np.arange(len(y)), y], weights=w)
        + calibrator.l2 * ((away**2).sum() + (bias**2).sum())
        + getattr(calibrator, "off_diagonal", 0) * (off**2).mean()
        + calibrator.bias_penalty * (bias**2).mean()
    )


CASES = [
    VectorScaling(),
    VectorScaling(centring="none", l2=0.01, prior_mean="zero"),
    VectorScaling(centring="log_probs", bias_penalty=0.1),
    MatrixScaling(),
    MatrixScaling(centring="none", l2=0.02, prior_mean="identity"),
    MatrixScaling(l2=0.02, prior_mean="temperature", bias_penalty=0.3),
    DirichletCalibration(),
    DirichletCalibration(off_diagonal=1.0, bias_penalty=0.1, l2=0.01),
]


@pytest.mark.parametrize("calibrator", CASES, ids=str)
def test_the_optimum_is_that_of_scipy_on_the_naive_objective(calibrator):
    h, y, _, _ = truth(300)
    w = np.random.default_rng(1).uniform(0, 2, 300)
    found = calibrator.fit(h, y, w)
    beta = 1 / TemperatureScaling().fit(h, y, w).temperature_
    prior = {"identity": 1.0, "temperature": beta, "zero": 0.0}[calibrator.prior_mean]
    cut = found.weight_.size

    def objective(v):
        return naive(h, y, v[:cut].reshape(found.weight_.shape), v[cut:], calibrator, prior, w)

    at = np.r_[found.weight_.ravel(), found.bias_]
    other = minimize(objective, np.r_[np.ravel(beta * np.eye(4)) if cut == 16 else np.full(4, beta), np.zeros(4)])
    assert objective(at) <= other.fun + 1e-10
    assert objective(at) >= other.fun - 1e-6  # theirs has numerical derivatives
    report = found.fit_report_
    assert report.converged
    assert report.gradient_norm < 1e-6
    assert report.objective_gap < 1e-10
    p = found.predict_proba(h)
    np.testing.assert_allclose(report.nll, -np.average(np.log(p[np.arange(300), y]), weights=w), rtol=1e-12)
    np.testing.assert_allclose(report.changed, np.average(p.argmax(axis=1) != h.argmax(axis=1), weights=w))


def test_a_known_truth_is_found():
    h, y, weight, bias = truth(40_000)
    found = MatrixScaling(centring="none").fit(h, y)
    spread = 0.08
    np.testing.assert_allclose(found.weight_ - found.weight_.mean(axis=0), weight - weight.mean(axis=0), atol=spread)
    np.testing.assert_allclose(found.bias_, bias - bias.mean(), atol=spread)
    expected = log_softmax(h @ weight.T + bias, axis=1)
    assert np.abs(found.predict_proba(h) - np.exp(expected)).mean() < 0.01
    assert TemperatureScaling().fit(h, y).fit_report_.nll > found.fit_report_.nll + 0.05


@pytest.mark.parametrize("kind", [VectorScaling, MatrixScaling, DirichletCalibration])
def test_a_huge_penalty_towards_the_temperature_is_temperature_scaling(kind):
    h, y, _, _ = truth(500)
    found = kind(l2=1e9, prior_mean="temperature").fit(h, y)
    np.testing.assert_allclose(found.predict_proba(h), TemperatureScaling().fit(h, y).predict_proba(h), atol=1e-7)
    assert found.fit_report_.changed == 0


def test_a_huge_penalty_off_the_diagonal_is_vector_scaling():
    h, y, _, _ = truth(500)
    found = MatrixScaling(off_diagonal=1e9).fit(h, y)
    vector = VectorScaling().fit(h, y)
    np.testing.assert_allclose(np.diag(found.weight_), vector.weight_, atol=1e-6)
    np.testing.assert_allclose(found.predict_proba(h), vector.predict_proba(h), atol=1e-6)


def test_dirichlet_calibration_is_the_same_for_logits_and_probabilities():
    h, y, _, _ = truth(500)
    p = np.exp(log_softmax(h, axis=1))
    expected = DirichletCalibration().fit(h, y)
    by_probs = DirichletCalibration(input="probs").fit(p, y)
    np.testing.assert_allclose(by_probs.predict_proba(p), expected.predict_proba(h), atol=1e-9)
    shifted = DirichletCalibration().fit(h + np.arange(500)[:, None], y)
    np.testing.assert_allclose(shifted.weight_, expected.weight_, atol=1e-9)
    same = MatrixScaling(centring="log_probs", off_diagonal=10, bias_penalty=0.1).fit(h, y)
    np.testing.assert_array_equal(same.weight_, expected.weight_)


@pytest.mark.parametrize(
    "calibrator",
    [
        *CASES,
        MatrixScaling(centring="log_probs"),
        MatrixScaling(bias_penalty=0.1),
        MatrixScaling(off_diagonal=1.0),
    ],
    ids=str,
)
@pytest.mark.parametrize("column", [0, 4])
def test_a_column_masked_in_every_row_is_the_fit_without_it(calibrator, column):
    h, y, _, _ = truth(300)
    wide = np.insert(h, column, -np.inf, axis=1)
    labels = np.delete(np.arange(5), column)[y]
    expected = clone(calibrator).fit(h, y)
    found = clone(calibrator).fit(wide, labels)
    p = found.predict_proba(wide)
    np.testing.assert_allclose(np.delete(p, column, axis=1), expected.predict_proba(h), atol=1e-7)
    assert (p[:, column] == 0).all()
    assert found.fit_report_.nll == pytest.approx(expected.fit_report_.nll, abs=1e-12)
    assert found.fit_report_.gradient_norm < 1e-6
    assert found.fit_report_.message == expected.fit_report_.message
    order = np.random.default_rng(0).permutation(300)
    moved = clone(calibrator).fit(wide[order], labels[order])
    np.testing.assert_allclose(moved.predict_proba(wide), p, atol=1e-7)
    some = wide.copy()
    some[:, column] = h.mean(axis=1)  # the class comes back: it is as it was, and finite
    assert np.isfinite(found.predict_proba(some)).all()


@pytest.mark.parametrize("kind", [VectorScaling, MatrixScaling])
def test_labels_that_can_be_separated(kind):
    h, _, _, _ = truth(500)
    with pytest.warns(EdgeWarning):
        found = kind().fit(h, h.argmax(axis=1))
    assert not found.fit_report_.converged
    assert found.fit_report_.gradient_norm < 1e-6
    assert found.fit_report_.nll < 1e-6
    assert np.isfinite(found.weight_).all()
    kind(l2=1e-3).fit(h, h.argmax(axis=1))  # without a warning
