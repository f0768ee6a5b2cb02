import json

import numpy as np
import pytest
from scipy import stats
from scipy.special import log_softmax

import attemper
from attemper import BayesianTemperatureScaling, FileError, Scores
from attemper.calibrators import annotators
from attemper.calibrators.annotators import SPREADS, Annotators, Confusions
from attemper.documents import Fields

from data import draw


def labelled(y, matrix, rng):
    """Labels as annotators with this transition matrix give them."""
    return (rng.random(len(y))[:, None] > np.cumsum(matrix, axis=1)[y]).sum(axis=1)


def flat(u):
    return np.zeros_like(u)


def fit(h, y, w=None):
    return Annotators.fit(Scores.from_logits(h, y, sample_weight=w), (np.log(0.05), np.log(20)), flat, 2.0, 0.1)


def moments(found):
    u = np.array([node.u for node in found.nodes])
    curves = np.exp(np.array(found.log_evidence(u)) - np.max(found.log_evidence(u)))
    return found.moments(u, list(curves / curves.sum()))


def classwise(**more):
    return BayesianTemperatureScaling(labels="noisy", noise="classwise", **more)


@pytest.mark.parametrize("n, scale", [(20, 2.0), (1500, 5.0)])
def test_it_does_not_matter_where_the_search_begins(n, scale):
    h, y = draw(n, 4, scale=scale)
    interval = (np.log(0.05), np.log(20))
    found = [Annotators.fit(Scores.from_logits(h, y), interval, flat, t, 0.1) for t in (0.06, 2.0, 19.0)]
    for other in found[1:]:
        np.testing.assert_allclose([node.u for node in other.nodes], [node.u for node in found[0].nodes])


def test_the_evidence_is_highest_where_labels_were_drawn():
    h, y = draw(1500, 4, scale=5.0)
    rng = np.random.default_rng(1)
    y = np.where(rng.random(1500) < 0.3, (y + 1) % 4, y)
    found = fit(h, y)
    u = np.linspace(np.log(0.5), np.log(8), 200)
    curves = found.log_evidence(u)
    assert len(curves) == len(SPREADS)
    assert all(np.isneginf(curve[-1]) for curve in curves)  # far from where it was looked for
    # Errors of a class all go to one other: the narrowest spread explains that best.
    assert curves[0].max() > curves[1].max() > curves[2].max()
    assert np.exp(u[curves[0].argmax()]) == pytest.approx(2, rel=0.15)


def test_moments_are_those_of_draws_from_the_posterior():
    h, y = draw(200, 3)
    found = fit(h, y)
    node = found.nodes[6]
    weights = [np.array([0.0]), np.array([1.0]), np.array([0.0])]
    mean, square, rate, laws = found.moments(np.array([node.u]), weights)
    errors, b = node.found[1], SPREADS[1]
    counts = np.zeros((3, 3))
    counts[found.data.true, found.data.label] = errors.counts
    rng = np.random.default_rng(0)
    draws = np.zeros((20_000, 3, 3))
    for k in range(3):
        e = rng.beta(errors.wrong[k] + 10 * errors.rate, errors.right[k] + 10 * (1 - errors.rate), 20_000)
        others = [j for j in range(3) if j != k]
        d = rng.dirichlet([b * found.base[k, j] + counts[k, j] for j in others], 20_000)
        draws[:, k, k] = 1 - e
        draws[:, k, others] = e[:, None] * d
    np.testing.assert_allclose(mean, draws.mean(axis=0), atol=0.005)
    np.testing.assert_allclose(square - mean**2, draws.var(axis=0), rtol=0.1)
    assert laws.shape == (1, 3)
    assert rate == pytest.approx(laws[0, 1] / (laws[0, 1] + laws[0, 2]))


def test_what_similar_classes_are_is_told_by_the_network():
    rng = np.random.default_rng(0)
    h = rng.normal(size=(500, 4))
    h[:, 1] = h[:, 0] + 0.3 * rng.normal(size=500)  # 0 and 1 look alike
    base = annotators._base(annotators._softened(3 * h, None, 1.0))
    np.testing.assert_allclose(base.sum(axis=1), 1)
    assert (np.diag(base) == 0).all()
    assert base[0, 1] > base[0, 2] + 0.1
    assert base[1, 0] > base[1, 3] + 0.1
    assert base[base > 0].min() >= 0.5 / 3 - 1e-12  # half of it goes anywhere


def test_candidates_at_a_temperature_and_the_rest_add_up_to_one():
    h, y = draw(30, 60)
    data = annotators.transition.candidates(h, y, None)
    log_s, log_rest = annotators._candidates(h, 2.0, data)
    full = np.exp(log_softmax(h / 2.0, axis=1))
    for i in range(30):
        np.testing.assert_allclose(np.exp(log_s[i]), full[i, data.columns[i]])
        others = [k for k in range(60) if k not in data.columns[i]]
        assert np.exp(log_rest[i]) == pytest.approx(full[i, others].sum(), rel=1e-6)


def test_biases_of_the_network_are_evidence_against_annotators():
    h, y = draw(1000, 4)
    assert fit(h, y).own < 3
    assert fit(h + np.array([3, 0, 0, -3]), y).own > 50


def test_a_weight_counts_repeats():
    h, y = draw(150, 3)
    a, b = fit(h, y, np.full(150, 2.0)), fit(np.r_[h, h], np.r_[y, y])
    u = np.array([node.u for node in a.nodes])
    np.testing.assert_allclose(u, [node.u for node in b.nodes])
    np.testing.assert_allclose(a.log_evidence(u), b.log_evidence(u), atol=1e-6)


def test_weight_zero_is_no_sample():
    h, y = draw(150, 3)
    a, b = fit(h, y, np.r_[np.ones(100), np.zeros(50)]), fit(h[:100], y[:100])
    assert a.data.columns.shape == b.data.columns.shape
    assert a.own == pytest.approx(b.own)


def test_of_a_large_set_some_rows_speak_for_all(monkeypatch):
    h, y = draw(1200, 3)
    every = fit(h, y)
    monkeypatch.setattr(annotators, "MAX_ROWS", 500)
    some = fit(h, y)
    assert len(some.data.columns) <= 500
    assert some.scale == pytest.approx(1200 / len(some.data.columns))
    a, b = moments(every)[0], moments(some)[0]
    np.testing.assert_allclose(a, b, atol=0.06)


def test_intervals_of_the_matrix_cover_at_about_their_level():
    # Of a network that is sure: where it is not, true classes that are taken for known make intervals too narrow.
    inside, total = 0, 0
    for seed in range(8):
        rng = np.random.default_rng(seed)
        k = 3
        truth = np.array([rng.dirichlet(8 * np.eye(k)[c] + 1) for c in range(k)])
        h, y = draw(400, k, scale=12.0, seed=seed)
        found = classwise(level=0.9).fit(h, labelled(y, truth, rng)).confusions_
        inside += np.sum((found.low <= truth) & (truth <= found.high))
        total += k * k
    assert 0.8 <= inside / total < 1


def test_moments_become_intervals_of_a_beta_law():
    a, b = np.array([[8.0, 2.0], [1.0, 9.0]]), np.array([[2.0, 8.0], [9.0, 1.0]])
    mean, square = a / (a + b), a * (a + 1) / ((a + b) * (a + b + 1))
    found = Confusions.of(mean, square, 0.9)
    np.testing.assert_allclose(found.low, stats.beta(a, b).ppf(0.05), rtol=1e-6)
    np.testing.assert_allclose(found.high, stats.beta(a, b).ppf(0.95), rtol=1e-6)
    np.testing.assert_array_equal(found.matrix, mean)


def test_a_mean_never_lies_outside_of_its_interval():
    mean = np.full((4, 4), 1e-3)
    mean[np.diag_indices(4)] = 1 - 3e-3
    found = Confusions.of(mean, mean**2 + 0.9 * mean * (1 - mean), 0.5)  # almost surely zero, or one
    assert (found.low <= found.mean).all()
    assert (found.mean <= found.high).all()
    sure = Confusions.of(mean, mean**2, 0.95)
    np.testing.assert_allclose(sure.low, sure.high, rtol=1e-2)


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


def test_more_than_a_hundred_classes_are_told_in_short(tmp_path):
    h, y = draw(300, 110, scale=5.0, t=1.0)
    found = classwise().fit(h, np.where(y % 4 == 0, (y + 1) % 110, y))
    assert found.confusions_.columns.shape == (110, 20)
    np.testing.assert_allclose(found.confusions_.matrix.sum(axis=1), 1)
    found.save(tmp_path / "c.json")
    back = attemper.load(tmp_path / "c.json")
    for a, b in zip(back.confusions_, found.confusions_):
        np.testing.assert_array_equal(a, b)
    assert back.describe() == found.describe()


def document():
    return {"columns": [[0, 1], [0, 1]], "mean": [[0.9, 0.1], [0.2, 0.8]], "low": [[0, 0]] * 2, "high": [[1, 1]] * 2}


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    path = tmp_path_factory.mktemp("saved") / "c.json"
    classwise().fit(*draw(60, 2)).save(path)
    return path.read_text()


def test_what_was_saved_is_read_back():
    found = Confusions.from_fields(Fields(document(), "x"), 2)
    assert found.columns.dtype == np.int64
    np.testing.assert_array_equal(found.mean, document()["mean"])


@pytest.mark.parametrize(
    "field, value",
    [
        ("columns", [[0, 2], [0, 1]]),
        ("columns", [[0, -1], [0, 1]]),
        ("columns", [[0, 0.5], [0, 1]]),
        ("columns", [[], []]),
        ("columns", [[0, 0], [0, 1]]),
        ("columns", [[0, 1]]),
        ("columns", "0 1"),
        ("mean", [[0.9], [0.2]]),
        ("mean", [[0.9, -0.1], [0.2, 0.8]]),
        ("mean", [[0.0, 0.0], [0.0, 0.0]]),
        ("mean", [[0.9, 5.0], [0.2, 0.8]]),
        ("mean", [[0.9, None], [0.2, 0.8]]),
        ("low", None),
        ("high", [[1, 1], [1]]),
    ],
)
def test_a_damaged_matrix_is_an_error_of_the_file(tmp_path, saved, field, value):
    with pytest.raises(FileError):
        Confusions.from_fields(Fields(document() | {field: value}, "x"), 2)
    content = json.loads(saved)
    content["fitted"]["confusions"][field] = value
    (tmp_path / "c.json").write_text(json.dumps(content))
    with pytest.raises(FileError):
        attemper.load(tmp_path / "c.json")
