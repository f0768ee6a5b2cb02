import numpy as np
import pytest
from scipy import stats

from attemper.calibrators import annotators
from attemper.calibrators.annotators import SPREADS, Annotators, Confusions

from data import classwise, draw


def labelled(y, matrix, rng):
    """Labels as annotators with this transition matrix give them."""
    return (rng.random(len(y))[:, None] > np.cumsum(matrix, axis=1)[y]).sum(axis=1)


def fit(h, y, w=None, t=2.0):
    """What is found, given that the network is right at this temperature."""
    return Annotators.fit(h / t, y, np.ones(len(y)) if w is None else w)


def test_the_errors_of_each_class_are_found():
    h, y = draw(1500, 4, scale=5.0)
    truth = np.array([[0.9, 0.1, 0, 0], [0, 0.6, 0.4, 0], [0, 0, 1, 0], [0.2, 0, 0, 0.8]])
    found = fit(h, labelled(y, truth, np.random.default_rng(1)))
    np.testing.assert_allclose(found.matrix, truth, atol=0.06)
    np.testing.assert_allclose(found.matrix.sum(axis=1), 1)
    a, b = found.law
    assert found.rate == pytest.approx(a / (a + b))
    assert found.rate == pytest.approx((1 - np.diag(truth)).mean(), abs=0.03)
    assert a + b == pytest.approx(1500 + sum(annotators.transition.RATE))


def test_the_evidence_is_highest_near_where_labels_were_drawn():
    h, y = draw(1500, 4, scale=5.0)
    y = np.where(np.random.default_rng(1).random(1500) < 0.3, (y + 1) % 4, y)
    at = [1.0, 1.5, 2.0, 3.0, 5.0]
    evidence = [fit(h, y, t=t).log_evidence for t in at]
    assert at[int(np.argmax(evidence))] in (1.5, 2.0)
    assert evidence[2] > evidence[4] + 50


def test_moments_are_those_of_draws_from_the_posterior():
    h, y = draw(200, 3)
    found = fit(h, y)
    rng = np.random.default_rng(0)
    draws = []
    for share, b, errors in zip(found.weights, SPREADS, found.found):
        counts = np.zeros((3, 3))
        counts[found.data.true, found.data.label] = errors.counts
        count = round(40_000 * share)
        some = np.zeros((count, 3, 3))
        for k in range(3):
            e = rng.beta(errors.wrong[k] + 10 * errors.rate, errors.right[k] + 10 * (1 - errors.rate), count)
            others = [j for j in range(3) if j != k]
            d = rng.dirichlet([b * found.base[k, j] + counts[k, j] for j in others], count)
            some[:, k, k] = 1 - e
            some[:, k, others] = e[:, None] * d
        draws.append(some)
    draws = np.concatenate(draws)
    mean, square = found.moments()
    np.testing.assert_allclose(mean, draws.mean(axis=0), atol=0.005)
    np.testing.assert_allclose(square - mean**2, draws.var(axis=0), rtol=0.1)


def test_intervals_of_the_matrix_cover_at_about_their_level():
    # Of a network that is sure: where it is not, true classes that are taken for known make intervals too narrow.
    inside, total = 0, 0
    for seed in range(8):
        rng = np.random.default_rng(seed)
        k = 3
        truth = np.array([rng.dirichlet(8 * np.eye(k)[c] + 1) for c in range(k)])
        h, y = draw(400, k, scale=12.0, seed=seed)
        found = classwise(credible_level=0.9).fit(h, labelled(y, truth, rng)).confusions_
        inside += np.sum((found.low <= truth) & (truth <= found.high))
        total += k * k
    assert 0.7 <= inside / total < 1  # temperature and biases are taken for known, too


def test_moments_become_intervals_of_a_beta_law():
    a, b = np.array([[8.0, 2.0], [1.0, 9.0]]), np.array([[2.0, 8.0], [9.0, 1.0]])
    mean, square = a / (a + b), a * (a + 1) / ((a + b) * (a + b + 1))
    found = Confusions.of(mean, square, 0.9)
    np.testing.assert_allclose(found.low, stats.beta(a, b).ppf(0.05), rtol=1e-6)
    np.testing.assert_allclose(found.high, stats.beta(a, b).ppf(0.95), rtol=1e-6)
    np.testing.assert_array_equal(found.matrix, mean)


@pytest.mark.parametrize("k", [2, 100, 101, 130])
def test_rows_of_the_matrix_add_up_to_one(k):
    rng = np.random.default_rng(0)
    mean = rng.dirichlet(np.ones(k), k) * 0.3 + 0.7 * np.eye(k)
    found = Confusions.of(mean, mean**2 + 1e-6, 0.95)
    assert found.columns.shape == ((k, k) if k <= 100 else (k, 20))
    matrix = found.matrix
    np.testing.assert_allclose(matrix.sum(axis=1), 1, rtol=1e-12)
    np.testing.assert_allclose(np.diag(matrix), np.diag(mean), rtol=1e-9)
    assert matrix.min() >= 0
    if k > 100:
        for row, columns, full in zip(matrix, found.columns, mean):
            assert set(columns.tolist()) == set(np.argsort(-full)[:20].tolist())
            others = np.delete(row, columns)
            np.testing.assert_allclose(others, np.delete(full, columns).mean(), rtol=1e-9)


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    path = tmp_path_factory.mktemp("saved") / "c.json"
    classwise().fit(*draw(60, 2)).save(path)
    return path.read_text()
