"""What every calibrator must pass; `tests/calibrators/test_contract.py` runs it on all of them."""

from __future__ import annotations

import json
import warnings

import jax.numpy as jnp
import numpy as np
import pytest
import torch
from scipy.special import log_softmax
from sklearn.base import clone
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils.estimator_checks import check_estimator

import attemper
from attemper import (
    AttemperError,
    AttemperWarning,
    BayesianTemperatureScaling,
    EdgeWarning,
    FileError,
    InputError,
    NotFittedError,
    ProbabilitiesAsLogitsWarning,
    Sketch,
    StructuredScaling,
)
from attemper.calibrators.base import TemperatureCalibrator

from data import draw

# scikit-learn's checks give X any number of columns, for y with any number of classes. Here a column of X is a
# class, so these cannot be met; each with its reason.
TOO_FEW = "its labels run past the number of columns, so a label has no logit"
EXPECTED_FAILURES = {
    "check_estimators_overwrite_params": TOO_FEW,
    "check_estimators_fit_returns_self": TOO_FEW,
    "check_readonly_memmap_input": TOO_FEW,
    "check_sample_weights_pandas_series": TOO_FEW,
    "check_sample_weights_not_an_array": TOO_FEW,
    "check_sample_weights_shape": TOO_FEW,
    "check_sample_weights_not_overwritten": TOO_FEW,
    "check_classifier_data_not_an_array": TOO_FEW,
    "check_classifiers_train": TOO_FEW,
    "check_estimators_partial_fit_n_features": TOO_FEW,
    "check_classifiers_classes": "its labels are names that are told nowhere, for columns that are no classes",
    "check_classifiers_one_label": "takes columns for features: a calibrator keeps the arg max of the logits",
}


def check_scikit_learn(calibrator):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", AttemperWarning)  # random features are no logits
        results = check_estimator(calibrator, expected_failed_checks=EXPECTED_FAILURES, on_fail=None, on_skip=None)
    failed = {r["check_name"]: r["exception"] for r in results if r["status"] == "failed"}
    assert not failed
    assert {r["check_name"] for r in results if r["status"] == "xfail"} <= set(EXPECTED_FAILURES)
    assert sum(r["status"] == "passed" for r in results) > 40


def check_sample_properties(calibrator):
    """Permutation, repetition as weight, a constant added to a row, columns moved: nothing changes."""
    h, y = draw(400, 5)
    p = clone(calibrator).fit(h, y).predict_proba(h)
    rng = np.random.default_rng(0)
    order = rng.permutation(len(y))
    same(clone(calibrator).fit(h[order], y[order]).predict_proba(h), p)
    twice = clone(calibrator).fit(np.r_[h, h], np.r_[y, y]).predict_proba(h)
    same(clone(calibrator).fit(h, y, sample_weight=np.full(400, 2.0)).predict_proba(h), twice)
    shift = rng.integers(-50, 50, (400, 1))
    same(clone(calibrator).fit(h + shift, y).predict_proba(h + shift), p, 1e-6)
    columns = rng.permutation(5)
    moved = clone(calibrator).fit(h[:, columns], np.argsort(columns)[y])
    same(moved.predict_proba(h[:, columns]), p[:, columns])


def check_zero_weight(calibrator):
    """A sample of weight zero is no sample."""
    h, y = draw(300, 4)
    w = np.where(np.arange(300) < 200, 1.0, 0.0)
    other = np.where(w > 0, y, (y + 1) % 4)
    same(
        clone(calibrator).fit(h, other, sample_weight=w).predict_proba(h),
        clone(calibrator).fit(h[:200], y[:200]).predict_proba(h),
        1e-6,
    )


def same(actual, expected, tolerance=2e-7):
    np.testing.assert_allclose(actual, expected, atol=tolerance, rtol=0)


def check_sketch_fit(calibrator):
    """A sketch, or sketches of parts added, give the same fit as the data; or it is told that they do not."""
    h, y = draw(1500, 6)
    sketch = Sketch.of(h[:700], y[:700]) + Sketch.of(h[700:], y[700:])
    with pytest.raises(InputError, match="takes a Sketch"):
        clone(calibrator).fit_sketch([h, y])
    if calibrator.sketch_parts() is None:
        with pytest.raises(InputError, match="cannot be fitted from a sketch"):
            clone(calibrator).fit_sketch(sketch)
        return
    direct = clone(calibrator).fit(h, y)
    fitted = clone(calibrator).fit_sketch(sketch)
    assert fitted.temperature_ == pytest.approx(direct.temperature_, rel=1e-6)
    bound = fitted.fit_report_.error + direct.fit_report_.error
    assert abs(np.log(fitted.temperature_ / direct.temperature_)) <= bound
    same(fitted.predict_proba(h), direct.predict_proba(h), 1e-6)
    if calibrator.sketch_parts():
        with pytest.raises(InputError, match="made without"):
            clone(calibrator).fit_sketch(Sketch.of(h, y, parts=[]))


def check_round_trip(calibrator, folder):
    h, y = draw(200, 4)
    fitted = clone(calibrator).fit(h, y)
    path = folder / "net.attemper.json"
    fitted.save(path)
    back = attemper.load(path)
    assert type(back) is type(fitted)
    np.testing.assert_array_equal(back.predict_proba(h), fitted.predict_proba(h))
    assert back.fit_report_ == fitted.fit_report_
    assert back.summary() == fitted.summary()
    assert back.describe() == fitted.describe()
    assert back.get_params() == fitted.get_params()
    again = folder / "again.json"
    back.save(again)
    assert again.read_bytes() == path.read_bytes()
    clone(calibrator).fit(h, y).save(again)  # the same data give the same bytes
    assert again.read_bytes() == path.read_bytes()
    content = json.loads(path.read_text())
    for key in ("method", "map", "n_classes", "input", "params", "report", "fitted"):
        damaged = {k: v for k, v in content.items() if k != key}
        path.write_text(json.dumps(damaged))
        with pytest.raises(FileError, match=key):
            attemper.load(path)
    for key in content["fitted"]:
        path.write_text(json.dumps(content | {"fitted": content["fitted"] | {key: "text"}}))
        with pytest.raises(FileError, match=key):
            attemper.load(path)
    if isinstance(fitted, TemperatureCalibrator):
        path.write_text(json.dumps(content | {"fitted": content["fitted"] | {"temperature": -5}}))
        with pytest.raises(FileError, match="expected a positive one"):
            attemper.load(path)
    if fitted.map_.n_classes is not None:
        path.write_text(json.dumps(content | {"n_classes": 7}))
        with pytest.raises(FileError, match="a map of 4 classes for 7"):
            attemper.load(path)
    for damage, why in (({"floor": 0.5}, "only probabilities"), ({"params": {"x": 1}}, "'x' is unknown")):
        path.write_text(json.dumps(content | damage))
        with pytest.raises(FileError, match=why):
            attemper.load(path)
    path.write_text(json.dumps(content | {"schema": 2}))
    with pytest.raises(FileError, match="newer"):
        attemper.load(path)
    path.write_text(json.dumps(content | {"map": {"type": "scale", "beta": [1e9] * 10}}))
    with pytest.raises(FileError, match="beta"):
        attemper.load(path)


def answers(fitted, h):
    """What `predict` has to say."""
    return (h if fitted.map_.keeps_arg_max else fitted.predict_proba(h)).argmax(axis=1)


def check_arrays(calibrator):
    """Any array library in, the same out; the fit is the same to rounding."""
    h, y = draw(300, 4)
    h = h.astype(np.float32)
    fitted = clone(calibrator).fit(h, y)
    p = fitted.predict_proba(h)
    for X, labels in (
        (torch.tensor(h), torch.tensor(y)),
        (jnp.asarray(h), jnp.asarray(y)),
        (h.tolist(), y.tolist()),
    ):
        other = clone(calibrator).fit(X, labels)
        same(other.predict_proba(h), p, 1e-5)
        if not isinstance(X, list):
            q = other.predict_proba(X)
            assert type(q) is type(X)
            assert q.dtype == X.dtype
            np.testing.assert_allclose(np.asarray(q), p, rtol=1e-4, atol=1e-5)
            assert (np.asarray(other.predict(X)) == answers(fitted, h)).all()
            np.testing.assert_allclose(np.exp(np.asarray(other.predict_log_proba(X))), p, rtol=1e-3, atol=1e-5)
    for half in (
        h.astype(np.float16),
        torch.tensor(h).to(torch.bfloat16),
        jnp.asarray(h, dtype=jnp.bfloat16),
    ):
        coarse = clone(calibrator).fit(half, y)
        assert np.abs(coarse.predict_proba(h) - p).mean() < 0.01
        assert coarse.predict_proba(half).dtype == half.dtype


def check_in_scikit_learn(calibrator):
    """Pipeline, GridSearchCV, clone, FrozenEstimator; a real classifier in front."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(600, 4))
    y = (X @ rng.normal(size=(4, 3)) + rng.gumbel(size=(600, 3))).argmax(axis=1)
    model = LogisticRegression().fit(X[:300], y[:300])
    over = FunctionTransformer(lambda Z: 3 * model.decision_function(Z))
    pipeline = make_pipeline(over, clone(calibrator)).fit(X[300:], y[300:])
    logits = over.transform(X[300:])
    if pipeline[-1].map_.keeps_arg_max:
        assert (pipeline.predict(X) == model.predict(X)).all()
    if isinstance(calibrator, TemperatureCalibrator):
        assert 1.5 < pipeline[-1].temperature_ < 6
    better, worse = pipeline.predict_proba(X[300:]), np.exp(log_softmax(logits, axis=1))
    assert brier_score(better, y[300:]) < brier_score(worse, y[300:]) - 0.02
    assert cross_val_score(clone(calibrator), logits, y[300:], scoring="accuracy", cv=3).min() > 0.5
    search = GridSearchCV(clone(calibrator), {"input": ["logits"]}, scoring="accuracy", cv=3)
    search.fit(logits, y[300:])
    assert search.best_estimator_.predict_proba(logits).shape == (300, 3)
    frozen = FrozenEstimator(clone(calibrator).fit(logits, y[300:]))
    np.testing.assert_array_equal(frozen.fit(logits, 1 - y[300:] % 2).predict_proba(logits).shape, (300, 3))


def brier_score(p, y):
    return ((p - np.eye(p.shape[1])[y]) ** 2).sum(axis=1).mean()


def check_scores(calibrator):
    """A Scores brings everything with it; what contradicts it is refused."""
    h, y = draw(200, 3)
    scores = attemper.Scores.from_logits(h, y)
    same(clone(calibrator).fit(scores).predict_proba(h), clone(calibrator).fit(h, y).predict_proba(h), 0)
    for y_, w in ((y, None), (None, np.ones(200))):
        with pytest.raises(InputError, match="brings its own"):
            clone(calibrator).fit(scores, y_, w)
    with pytest.raises(InputError, match="hold logits"):
        clone(calibrator).set_params(input="probs").fit(scores)


def check_class_names(calibrator):
    h, y = draw(200, 3)
    names = np.array(["akiec", "bcc", "mel"])
    named = clone(calibrator).set_params(classes=list(names)).fit(h, names[y])
    same(named.predict_proba(h), clone(calibrator).fit(h, y).predict_proba(h), 0)
    assert named.classes_.tolist() == names.tolist()
    assert (named.predict(h) == names[answers(named, h)]).all()
    tensor = torch.tensor(h, requires_grad=True)
    assert (named.predict(tensor) == names[answers(named, h)]).all()
    with pytest.warns(AttemperWarning, match="not in sorted order"):
        clone(calibrator).set_params(classes=list(names[::-1])).fit(h, names[::-1][y])
    with pytest.raises(InputError, match="row 0 is 'nv', which is not among"):
        clone(calibrator).set_params(classes=list(names)).fit(h, np.where(y >= 0, "nv", ""))
    with pytest.raises(InputError, match="4 names for 3 columns"):
        clone(calibrator).set_params(classes=[*names, "nv"]).fit(h, names[y])
    with pytest.raises(InputError, match="twice"):
        clone(calibrator).set_params(classes=["a", "b", "a"]).fit(h, names[y])
    with pytest.raises(InputError, match="classes="):
        clone(calibrator).fit(h, names[y])


def check_probabilities(calibrator):
    """Probabilities are told, never guessed; they give the same fit as the logits."""
    h, y = draw(300, 4, scale=2.0)
    p = np.exp(h) / np.exp(h).sum(axis=1, keepdims=True)
    by_probs = clone(calibrator).set_params(input="probs").fit(p, y)
    by_logits = clone(calibrator).fit(h, y)
    expected = by_logits.predict_proba(h)
    same(by_probs.predict_proba(p), expected, 1e-6)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", EdgeWarning)
        with pytest.warns(ProbabilitiesAsLogitsWarning, match=r'input="probs"'):
            taken_as_logits = clone(calibrator).fit(p, y)  # as asked
    with pytest.warns(ProbabilitiesAsLogitsWarning, match=r"np\.log"):
        by_logits.predict_proba(p)
    same(by_logits.predict_proba(np.log(p)), expected, 1e-6)  # the advice
    assert np.abs(taken_as_logits.predict_proba(h) - expected).max() > 0.1
    with pytest.raises(InputError, match="If these are logits"):
        clone(calibrator).set_params(input="probs").fit(h, y)
    rounded = np.where(p < 0.02, 0.0, p)  # as a format with few digits would write them
    rounded /= rounded.sum(axis=1, keepdims=True)
    with pytest.raises(InputError, match="a probability of exactly 0"):
        clone(calibrator).set_params(input="probs").fit(rounded, y)
    floored = clone(calibrator).set_params(input="probs", floor=0.01).fit(rounded, y)
    assert np.abs(floored.predict_proba(rounded) - expected).mean() < 0.05
    if fitted_is_positive(by_logits, h):
        assert (floored.predict_proba(rounded) > 0).all()
    with pytest.raises(InputError, match="only probabilities have a floor"):
        clone(calibrator).set_params(floor=0.01).fit(h, y)
    with pytest.raises(InputError, match="expected 'logits' or 'probs'"):
        clone(calibrator).set_params(input="guess").fit(h, y)


def fitted_is_positive(fitted, h):
    """Binning and isotonic regression may give a probability of zero."""
    return bool((fitted.predict_proba(h) > 0).all())


def check_bad_input(calibrator):
    """Every bad input is an `AttemperError` that says where, and leaves an earlier fit alone."""
    h, y = draw(20, 3)
    nan, inf = h.copy(), h.copy()
    nan[7, 2], inf[3, 1] = np.nan, np.inf
    masked = h.copy()
    masked[5, y[5]] = -np.inf
    dead = h.copy()
    dead[4] = -np.inf
    fit = clone(calibrator).fit
    for X, labels, weight, why in [
        (nan, y, None, "row 7, column 2 is NaN"),
        (inf, y, None, "row 3, column 1 is infinity"),
        (masked, y, None, r"row 5, column \d is -inf"),
        (dead, y, None, "row 4 is -inf everywhere"),
        (h, np.where(np.arange(20) == 9, 3, y), None, "row 9 has label 3, but there are 3 columns"),
        (h, np.where(np.arange(20) == 9, -1, y), None, "row 9 has label -1"),
        (h, np.minimum(y, 2) + 1, None, "labels - 1"),
        (h, y + 0.5, None, "row 0 is"),
        (h, y[:-1], None, "19 labels for 20 rows"),
        (h, np.eye(3)[y], None, "one-hot"),
        (h, None, None, "requires y"),
        (h[:0], y[:0], None, "0 sample"),
        (h[:, :1], y * 0, None, "minimum of 2"),
        (h[:, 0], y, None, "Expected 2D"),
        ([[1, 2], [3]], [0, 0], None, "N×K array"),
        ("logits", y, None, "N×K array"),
        (h + 1j, y, None, "Complex"),
        (h, y, np.ones(3), r"sample_weight.shape == \(3,\)"),
        (h, y, -np.ones(20), "row 0 is -1.0"),
        (h, y, np.full(20, np.nan), "row 0 is nan"),
        (h, y, np.zeros(20), "all weights are zero"),
        (h, y, ["a"] * 20, "sample_weight"),
    ]:
        with pytest.raises(AttemperError, match=why):
            fit(X, labels, weight)
    fitted = clone(calibrator).fit(h, y)
    before = fitted.predict_proba(h)
    with pytest.raises(InputError):
        fitted.fit(nan, y)
    same(fitted.predict_proba(h), before, 0)
    for X, why in [(nan, "row 7"), (h[:, :2], "2 features, but"), (h[0], "Reshape your data")]:
        with pytest.raises(InputError, match=why):
            fitted.predict_proba(X)
    with pytest.raises(NotFittedError, match="not fitted"):
        clone(calibrator).predict_proba(h)


def check_odd_but_valid_input(calibrator):
    """What a careless library trips over gives probabilities, with a warning where there is no best answer."""
    h, y = draw(60, 4)
    wide = 1e4 * h / np.abs(h).max()
    worst = h.argmin(axis=1)
    for X, labels in [
        (h[:1], y[:1]),
        (h, np.zeros(60, dtype=int)),
        (h, y % 2),
        (h, h.argmax(axis=1)),
        (h, worst),
        (wide, y),
        (np.zeros((10, 3)), np.arange(10) % 3),
        (np.where(h == h.min(axis=1, keepdims=True), -np.inf, h), h.argmax(axis=1)),
        (h[:, :2], y % 2),
        (h.astype(int), y),
    ]:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", AttemperWarning)
            fitted = clone(calibrator).fit(X, labels)
        if isinstance(fitted, TemperatureCalibrator):
            assert 0 < fitted.temperature_ < np.inf
        p = fitted.predict_proba(X)
        assert np.isfinite(p).all()
        assert (p >= 0).all()
        np.testing.assert_allclose(p.sum(axis=1), 1, rtol=1e-9)
        assert (p[np.isneginf(X)] == 0).all()
        changed = (p.argmax(axis=1) != np.asarray(X).argmax(axis=1)).mean()
        assert fitted.fit_report_.changed == pytest.approx(changed)
        if fitted.map_.keeps_arg_max:
            assert changed == 0
        assert np.isfinite(fitted.fit_report_.nll)
        assert fitted.fit_report_.message


def check_masked_column(calibrator):
    """A class that is ruled out in every row has probability 0, and does no harm to the others."""
    h, y = draw(300, 5)
    h[:, 4] = -np.inf
    y = np.where(y == 4, h.argmax(axis=1), y)
    fitted = clone(calibrator).fit(h, y)
    p = fitted.predict_proba(h)
    assert np.isfinite(p).all()
    assert (p[:, 4] == 0).all()
    np.testing.assert_allclose(p.sum(axis=1), 1, rtol=1e-9)
    order = np.random.default_rng(0).permutation(300)
    same(clone(calibrator).fit(h[order], y[order]).predict_proba(h), p, 1e-6)
    if isinstance(calibrator, BayesianTemperatureScaling | StructuredScaling):
        return  # their report is not about the mixture that predicts
    log_p = np.asarray(fitted.predict_log_proba(h))[np.arange(300), y]
    assert fitted.fit_report_.nll == pytest.approx(-log_p.mean(), abs=1e-6)


def check_finite_masks(calibrator):
    """A class that is masked by a large finite number is one that is masked by −inf."""
    h, y = draw(200, 5, scale=3.0)
    masked = np.random.default_rng(0).random(h.shape) < 0.4
    masked[np.arange(200), y] = False
    fitted = clone(calibrator).fit(np.where(masked, -np.inf, h), y)
    p = fitted.predict_proba(np.where(masked, -np.inf, h))
    for mask in (-1e4, -65504.0, -1e9, h - 1e4, h - 1e9, -1e25, -1e30):
        x = np.where(masked, mask, h)
        other = clone(calibrator).fit(x, y)
        same(other.predict_proba(x), p)
        assert (other.predict_proba(x)[masked] == 0).all()
        assert other.fit_report_.nll == pytest.approx(fitted.fit_report_.nll, abs=1e-9)
        same(other.predict_proba(x[:3].astype(np.float32)), p[:3], 1e-5)
