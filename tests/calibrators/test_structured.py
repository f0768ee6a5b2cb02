import json

import numpy as np
import pytest
from scipy.special import logsumexp

import attemper
from attemper import BayesianTemperatureScaling, EdgeWarning, FileError, InputError, Sketch, StructuredScaling
from attemper.calibrators import structured
from attemper.calibrators.shrunken import LEVELS, ShrunkenFit
from attemper.kernels.regression import Params
from attemper.maps import AffineMap, MixtureMap

from data import draw

BIASES = np.array([1.0, 0.5, 0.0, -0.5, -1.0])


def structure(n=2500, weight=None, bias=BIASES, scale=3.0, seed=0):
    """Logits, and labels drawn from softmax(weight h / 2 + bias)."""
    rng = np.random.default_rng(seed)
    h = scale * rng.normal(size=(n, len(bias)))
    x = h - h.mean(axis=1, keepdims=True)
    z = x / 2 if weight is None else (x / 2) @ np.asarray(weight).T
    return h, (z + bias + rng.gumbel(size=h.shape)).argmax(axis=1)


def nll(calibrator, h, y):
    return -np.log(calibrator.predict_proba(h)[np.arange(len(y)), y]).mean()


def shrunken(levels=3, n=200, k=3, noise=0.0, masked=False, seed=0):
    """A fit with labels that went through a channel."""
    h, y = structure(n, bias=np.linspace(-1, 1, k), seed=seed)
    x = (h - h.mean(axis=1, keepdims=True)) / 2
    w = np.random.default_rng(seed).uniform(0.5, 2, n)
    channel = np.log((1 - noise - 1e-4) * np.eye(k) + (noise + 1e-4) / k)
    mask = np.zeros(h.shape, dtype=bool)
    if masked:
        mask[::3, 0] = y[::3] != 0
    return ShrunkenFit(np.where(mask, 0.0, x), y, w, mask, channel, levels)


def naive_objective(fit, theta, precisions):
    """Mean negative log-posterior by loops over samples; θ is K×(K+1), or K×2, with the bias last."""
    k = fit.x.shape[1]
    diagonal = fit.levels < 3
    total = 0.0
    for x, y, w, mask in zip(fit.x, fit.y, fit.w, fit.masked):
        z = (x * theta[:, 0] if diagonal else theta[:, :-1] @ x) + theta[:, -1]
        z = np.where(mask, -np.inf, z)
        total -= w * (logsumexp(z + fit.log_channel[:, y]) - logsumexp(z))
    for c in range(k):
        total += 0.5 * precisions[0] * theta[c, -1] ** 2
        if diagonal:
            total += 0.5 * (precisions[1] if fit.levels > 1 else 1e9) * (theta[c, 0] - 1) ** 2
            continue
        for j in range(k):
            total += 0.5 * precisions[1 if c == j else 2] * (theta[c, j] - (c == j)) ** 2
    return total / fit.w.sum()


@pytest.mark.parametrize("levels", [1, 2, 3])
@pytest.mark.parametrize("noise, masked", [(0.0, False), (0.3, False), (0.3, True)])
def test_the_answer_is_a_stationary_point_of_the_marginal_objective(levels, noise, masked):
    fit = shrunken(levels, noise=noise, masked=masked)
    precisions = [5.0, 20.0, 30.0][:levels]
    found = fit.solve(precisions, None, tolerance=1e-9, rounds=500)
    assert found.converged
    assert found.gradient_norm < 1e-8
    weight = found.weight[:, None] if levels < 3 else found.weight
    theta = np.concatenate([weight, found.bias[:, None]], axis=1)
    for c in range(theta.shape[0]):
        for j in range(theta.shape[1]):
            if levels == 1 and j == 0:
                continue  # held fast by a precision of 1e9
            step = np.zeros_like(theta)
            step[c, j] = 1e-4
            up, down = (naive_objective(fit, theta + sign * step, precisions) for sign in (1, -1))
            assert (up - down) / 2e-4 == pytest.approx(0, abs=1e-6)
    if levels == 1:
        np.testing.assert_allclose(found.weight, 1, atol=1e-6)


def test_the_evidence_speaks_for_what_is_there_and_against_what_is_not():
    fit = shrunken(2, n=800)
    assert fit.log_evidence(*fit.by_evidence()) > 20
    h, y = draw(800, 3)
    none = ShrunkenFit(
        (h - h.mean(axis=1, keepdims=True)) / 2, y, np.ones(800), np.zeros(h.shape, dtype=bool), fit.log_channel, 2
    )
    assert -8 < none.log_evidence(*none.by_evidence()) < 3


def test_the_evidence_for_biases_is_that_of_a_grid():
    # Two classes, the scale held fast: one number, the difference of the biases.
    fit = shrunken(1, n=60, k=2)
    precision = 4.0
    found = fit.solve([precision], None, tolerance=1e-9, rounds=500)
    b = np.linspace(-4, 4, 4001)
    prior = np.exp(-0.5 * b**2 / (2 / precision)) * np.sqrt(precision / (4 * np.pi)) * (b[1] - b[0])
    zero = np.array([[1.0, 0.0], [1.0, 0.0]])
    plain = -naive_objective(fit, zero, [0.0]) * fit.w.sum()
    values = []
    for at in b[::40]:
        theta = zero + np.array([[0.0, at / 2], [0.0, -at / 2]])
        values.append(-naive_objective(fit, theta, [0.0]) * fit.w.sum() - plain)
    exact = logsumexp(np.interp(b, b[::40], values), b=prior)
    assert fit.log_evidence(found, [precision]) == pytest.approx(exact, abs=0.3)


def test_held_out_logits_are_those_of_fits_without_the_fold():
    fit = shrunken(3, n=150, noise=0.1)
    precisions = [5.0, 20.0, 30.0]
    found = fit.solve(precisions, None, tolerance=1e-6, rounds=100)
    fold = np.arange(150) % 5
    held = fit.held_out(fold, found, precisions)
    for k in range(5):
        rest = fold != k
        alone = ShrunkenFit(fit.x[rest], fit.y[rest], fit.w[rest], fit.masked[rest], fit.log_channel, 3)
        part = alone.solve(precisions, None, tolerance=1e-8, rounds=500)
        expected = fit.logits(Params(part.weight, part.bias))[~rest]
        np.testing.assert_allclose(held[~rest], expected, atol=0.02)
    assert fit.held_out(np.zeros(150, dtype=int), found, precisions) is None


def test_biases_are_found():
    h, y = structure()
    found = StructuredScaling().fit(h, y)
    np.testing.assert_allclose(found.bias_ - found.bias_.mean(), BIASES, atol=0.15)
    assert found.gain_ > 0.1
    new = structure(4000, seed=5)
    assert nll(found, *new) < nll(found.bayes_, *new) - 0.1
    assert found.spread_["biases"] > 0.3


def test_scales_are_found():
    scales = np.array([0.6, 0.8, 1.0, 1.2, 1.4])
    h, y = structure(4000, weight=np.diag(scales), bias=np.zeros(5))
    found = StructuredScaling(level="scales").fit(h, y)
    ratio = found.weight_ / found.weight_.mean()
    np.testing.assert_allclose(ratio, scales, atol=0.15)
    assert found.gain_ > 0.01
    assert set(found.spread_) == {"biases", "scales"}


def test_a_matrix_is_found():
    rng = np.random.default_rng(1)
    weight = np.eye(5) + 0.2 * rng.normal(size=(5, 5))
    found = StructuredScaling().fit(*structure(4000, weight=weight, bias=np.zeros(5)))
    seen = np.eye(5) - 1 / 5  # the softmax does not feel the rest
    off, before = (np.linalg.norm(seen @ (m - weight) @ seen) for m in (found.weight_ * 2, np.eye(5)))
    assert off < 0.5 * before
    new = structure(4000, weight=weight, bias=np.zeros(5), seed=5)
    assert nll(found, *new) < nll(found.bayes_, *new) - 0.02


@pytest.mark.parametrize("seed", range(4))
def test_where_a_temperature_is_all_there_is_nothing_is_lost(seed):
    h, y = draw(1000, 5, seed=seed)
    found = StructuredScaling().fit(h, y)
    new = draw(4000, 5, seed=99)
    assert nll(found, *new) - nll(found.bayes_, *new) < 0.006
    assert found.gain_ < 0.005
    if found.gain_ == 0:
        assert found.map_ == found.bayes_.map_
        assert "left out" in found.describe()[-1]
        assert found.fit_report_.changed == 0


@pytest.mark.parametrize("n", [1, 5, 19])
def test_few_labels_give_the_bayesian_answer(n):
    h, y = draw(n, 4, seed=2)
    found = StructuredScaling(t_range=(0.01, 100)).fit(h, y)
    plain = BayesianTemperatureScaling(t_range=(0.01, 100)).fit(h, y)
    assert found.gain_ == 0
    np.testing.assert_array_equal(found.predict_proba(h), plain.predict_proba(h))
    assert found.temperature_ == plain.temperature_


@pytest.mark.parametrize("kind", ["pairs", "anywhere"])
def test_noisy_labels_do_not_spoil_it(kind):
    h, y = structure(1800, scale=4.0)
    rng = np.random.default_rng(3)
    wrong = (y + 1) % 5 if kind == "pairs" else rng.integers(0, 5, len(y))
    observed = np.where(rng.random(len(y)) < 0.25, wrong, y)
    found = StructuredScaling(labels="noisy").fit(h, observed)
    new = structure(4000, scale=4.0, seed=9)
    clean, naive = StructuredScaling().fit(h, y), StructuredScaling().fit(h, observed)
    best, mine, spoilt = (nll(m, *new) for m in (clean, found, naive))
    assert mine - best < 0.6 * (spoilt - best)
    assert mine < nll(clean.bayes_, *new) - 0.05
    # Pairs of classes that are confused can be told from the network's own biases only in part.
    assert found.noise_rate_ == pytest.approx(0.25, abs=0.15 if kind == "pairs" else 0.08)
    assert found.confusions_ is not None
    assert found.fit_report_.gradient_norm < 1e-6


def test_uniform_noise_has_no_confusions():
    h, y = structure(600)
    found = StructuredScaling(labels="noisy", noise="uniform").fit(h, y)
    assert found.confusions_ is None
    assert found.noise_interval_[0] <= found.noise_rate_ <= found.noise_interval_[1]


@pytest.mark.parametrize("level", LEVELS)
def test_a_level_caps_what_is_changed(level):
    found = StructuredScaling(level=level).fit(*structure(800))
    assert tuple(found.spread_) == LEVELS[: LEVELS.index(level) + 1]
    assert found.weight_.ndim == (2 if level == "matrix" else 1)
    if level == "biases":
        np.testing.assert_allclose(found.weight_ * found.temperature_, 1, atol=1e-6)


def test_with_more_than_two_hundred_classes_the_matrix_is_left_out(tmp_path):
    h, y = structure(400, bias=np.linspace(-2, 2, 201))
    with pytest.warns(EdgeWarning, match="no label is of class"):
        found = StructuredScaling().fit(h, y)
    assert found.weight_.shape == (201,)
    assert set(found.spread_) == {"biases", "scales"}
    found.save(tmp_path / "s.json")
    new = h[:20]
    np.testing.assert_array_equal(attemper.load(tmp_path / "s.json").predict_proba(new), found.predict_proba(new))


def test_masked_classes_stay_masked_and_do_not_matter():
    h, y = structure(1500)
    hidden = np.random.default_rng(1).random(h.shape) < 0.2
    hidden[np.arange(len(y)), y] = False
    h = np.where(hidden, -np.inf, h)
    found = StructuredScaling().fit(h, y)
    p = found.predict_proba(h)
    assert (p[hidden] == 0).all()
    np.testing.assert_allclose(p.sum(axis=1), 1)
    assert found.fit_report_.converged
    assert found.gain_ > 0.05


def test_a_class_that_is_always_masked_has_no_say():
    h, y = structure(800)
    keep = y != 4
    h, y = h[keep].copy(), y[keep]
    h[:, 4] = -np.inf
    found = StructuredScaling().fit(h, y)
    assert (found.predict_proba(h)[:, 4] == 0).all()
    four = StructuredScaling().fit(h[:, :4], y)
    np.testing.assert_allclose(found.predict_proba(h)[:, :4], four.predict_proba(h[:, :4]), atol=0.02)


def test_the_report_is_about_what_is_given():
    h, y = structure()
    found = StructuredScaling().fit(h, y)
    report = found.fit_report_
    assert report.converged
    assert report.gradient_norm < 1e-6
    assert report.error < 1e-8
    assert report.nll == pytest.approx(nll(found, h, y))
    assert report.changed == pytest.approx(np.mean(found.predict_proba(h).argmax(axis=1) != h.argmax(axis=1)))
    assert 0.05 < report.changed < 0.6
    assert isinstance(found.map_, AffineMap)
    lines = found.describe()
    assert lines[: len(found.bayes_.describe())] == found.bayes_.describe()
    assert "biases ±" in lines[-2]
    assert f"{found.gain_:.4f}" in lines[-2]
    assert "changes the answer" in lines[-1]
    assert found.summary()["gain"] == found.gain_
    assert found.summary()["temperature"] == found.temperature_


def test_a_weight_so_small_that_the_prior_rules_converges():
    h, y = draw(100, 4)
    found = StructuredScaling(labels="noisy", noise="uniform", level="biases").fit(h, y, np.full(100, 1e-6))
    assert found.fit_report_.converged


def test_folds_are_told_by_the_sample_alone():
    x = np.random.default_rng(0).normal(size=(5000, 4))
    fold = structured._folds(x)
    assert np.bincount(fold, minlength=5).min() > 800
    np.testing.assert_array_equal(structured._folds(x[::-1]), fold[::-1])
    np.testing.assert_array_equal(structured._folds(np.zeros((3, 4))), structured._folds(np.zeros((1, 4)))[[0, 0, 0]])


@pytest.mark.parametrize(
    "h, y",
    [
        (np.zeros((60, 3)), np.arange(60) % 3),
        (np.repeat(draw(3, 3)[0], 30, axis=0), np.arange(90) % 3),
        (draw(60, 3)[0].astype(np.float16), draw(60, 3)[1]),
    ],
    ids=["all the same", "duplicates", "half precision"],
)
@pytest.mark.parametrize("labels", ["clean", "noisy"])
def test_odd_data_have_an_answer(h, y, labels):
    found = StructuredScaling(labels=labels, t_range=(1e-3, 1e3)).fit(h, y)
    p = found.predict_proba(h)
    assert np.isfinite(p).all()
    np.testing.assert_allclose(p.sum(axis=1), 1, atol=2e-3)


def test_what_is_loaded_is_what_was_saved(tmp_path):
    h, y = structure(600)
    found = StructuredScaling(labels="noisy").fit(h, y)
    found.save(tmp_path / "s.json")
    back = attemper.load(tmp_path / "s.json")
    np.testing.assert_array_equal(back.predict_proba(h), found.predict_proba(h))
    assert back.describe() == found.describe()
    assert back.spread_ == found.spread_
    np.testing.assert_array_equal(back.confusions_.matrix, found.confusions_.matrix)
    np.testing.assert_array_equal(back.weight_, found.weight_)
    assert isinstance(back.bayes_.map_, MixtureMap)


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    path = tmp_path_factory.mktemp("saved") / "s.json"
    StructuredScaling().fit(*draw(60, 3)).save(path)
    return path.read_text()


@pytest.mark.parametrize(
    "field, value",
    [
        ("bayes", None),
        ("bayes", {}),
        ("bayes_map", {"type": "mixture"}),
        ("weight", [1, 1]),
        ("weight", [[1, 1], [1, 1]]),
        ("bias", [0, 0]),
        ("bias", "none"),
        ("spread", 3),
        ("spread", {"biases": "wide"}),
        ("gain", None),
    ],
)
def test_a_damaged_file_is_told(tmp_path, saved, field, value):
    content = json.loads(saved)
    content["fitted"][field] = value
    (tmp_path / "s.json").write_text(json.dumps(content))
    with pytest.raises(FileError):
        attemper.load(tmp_path / "s.json")


@pytest.mark.parametrize(
    "parameters, why",
    [
        ({"level": "everything"}, "'biases', 'scales', 'matrix'"),
        ({"level": None}, "expected one of"),
        ({"labels": "dirty"}, "'clean' or 'noisy'"),
        ({"noise": "pairs"}, "'uniform' or 'classwise'"),
        ({"t_range": (2, 1)}, "low < high"),
    ],
)
def test_parameters_are_checked(parameters, why):
    with pytest.raises(InputError, match=why):
        StructuredScaling(**parameters).fit(*draw(50, 3))


def test_a_sketch_is_not_enough():
    with pytest.raises(InputError, match="sketch"):
        StructuredScaling().fit_sketch(Sketch.of(*draw(50, 3)))


def test_it_is_made_for_labels_of_either_kind():
    assert StructuredScaling.for_labels(noisy=True, level="scales").labels == "noisy"
    assert StructuredScaling.for_labels(noisy=False).labels == "clean"


def test_a_class_without_labels_is_told():
    h, y = draw(400, 4)
    with pytest.warns(EdgeWarning, match="no label is of class 3"):
        StructuredScaling().fit(h, np.where(y == 3, 0, y))


def test_what_is_given_back_after_a_fall_back_is_the_temperature_alone():
    h, y = draw(15, 4)
    fitted = StructuredScaling().fit(h, y)
    assert (fitted.gain_, fitted.spread_, fitted.fit_report_.gradient_norm) == (0.0, {}, None)
    assert "class structure is left out" in fitted.describe()[-1]
    np.testing.assert_allclose(fitted.weight_, 1 / fitted.temperature_)


def test_the_report_of_the_bayesian_fit_survives(tmp_path):
    fitted = StructuredScaling().fit(*draw(300, 4))
    fitted.save(tmp_path / "m.json")
    assert attemper.load(tmp_path / "m.json").bayes_.fit_report_ == fitted.bayes_.fit_report_


def test_temperature_and_floor_are_found_anew_once_the_structure_is_known():
    rng = np.random.default_rng(0)
    z = 3 * rng.normal(size=(3000, 4))
    y = (z / 2 + rng.gumbel(size=z.shape)).argmax(axis=1)
    lost = rng.random(3000) < 0.08
    y[lost] = rng.integers(0, 4, lost.sum())
    fitted = StructuredScaling().fit(z + np.array([4, 0, 0, -4]), y)
    assert fitted.bayes_.floor_ < 0.01  # hidden by the biases
    assert fitted.map_.then.floor == pytest.approx(0.08, abs=0.02)


def test_a_sample_tells_less_where_its_true_class_stays_in_doubt():
    h, y = draw(200, 3)
    clean, noisy = (np.log((1 - e) * np.eye(3) + e / 3) for e in (1e-9, 0.6))
    told = []
    for channel in (clean, noisy):
        fit = ShrunkenFit(h, y, np.ones(200), np.zeros(h.shape, dtype=bool), channel, 2)
        found = fit.solve([10.0, 100.0], None, tolerance=1e-4, rounds=1)
        told.append(fit._information(found)[1])
    np.testing.assert_allclose(told[0], 1, atol=1e-3)
    assert told[1].max() < 1
    assert told[1].mean() < 0.6


def test_logits_hugely_below_the_others_are_named():
    h, y = draw(200, 5, scale=3.0)
    rng = np.random.default_rng(0)
    low = rng.random(h.shape) < 0.4
    low[np.arange(200), y] = False
    h = np.where(low, -(10.0 ** rng.uniform(2, 12, h.shape)), h)  # of every size, so none is a mask
    with pytest.raises(InputError, match=r"StructuredScaling .*e\+11 in magnitude.* use -inf"):
        StructuredScaling().fit(h, y)
