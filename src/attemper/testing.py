"""The contract of calibrators, as checks that anyone can run on their own: `check_calibrator`.

NumPy, SciPy and scikit-learn are enough. Arrays of torch and JAX are checked where these are installed.
"""

from __future__ import annotations

import importlib
import inspect
import json
import linecache
import tempfile
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_softmax
from sklearn.base import clone
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils.estimator_checks import check_estimator

from attemper.calibrators import METHODS, Calibrator, load
from attemper.calibrators.one_temperature import TemperatureCalibrator
from attemper.calibrators.streaming import StreamingCalibrator
from attemper.comparison import compare
from attemper.data.scores import Scores
from attemper.errors import (
    AttemperError,
    AttemperWarning,
    EdgeWarning,
    FileError,
    InputError,
    InputTypeError,
    NotFittedError,
    ProbabilitiesAsLogitsWarning,
)
from attemper.sketch import Sketch

__all__ = ["CHECKS", "check_calibrator"]


def check_calibrator(calibrator: Calibrator | type[Calibrator]) -> None:
    """Run all of `CHECKS` on a calibrator, or on a class with its default parameters.

    Raises an `AssertionError` that names the first check that fails, and why.

    >>> from attemper import TemperatureScaling
    >>> check_calibrator(TemperatureScaling)  # doctest: +SKIP
    """
    one: Any = calibrator() if isinstance(calibrator, type) else calibrator
    if not isinstance(one, Calibrator):
        raise InputTypeError(f"expected a calibrator or its class, got {type(one).__name__}")
    for check in CHECKS:
        try:
            check(one)
        except Exception as error:
            why = str(error) or linecache.getline(*_place(error)).strip()  # pytest alone explains a bare assert
            raise AssertionError(f"{one!r} fails {check.__name__}: {type(error).__name__}: {why}") from error


def _place(error: Exception) -> tuple[str, int]:
    """File and line that an error comes from."""
    *_, (frame, line) = traceback.walk_tb(error.__traceback__)
    return frame.f_code.co_filename, line


def draw(
    n: int, n_classes: int, scale: float = 3.0, t: float = 2.0, seed: int = 0
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Logits, and labels drawn from softmax(logits / t)."""
    rng = np.random.default_rng(seed)
    h = scale * rng.normal(size=(n, n_classes))
    return h, (h / t + rng.gumbel(size=h.shape)).argmax(axis=1)


def libraries() -> list[Callable[..., Any]]:
    """Makers of arrays: NumPy, and torch and JAX where they are installed."""
    makers: list[Callable[..., Any]] = [np.asarray]
    for name in ("torch", "jax.numpy"):
        with suppress(ImportError):
            makers.append(_maker(importlib.import_module(name)))
    return makers


def _maker(module: Any) -> Callable[..., Any]:
    return lambda values, dtype=None: module.asarray(values, dtype=None if dtype is None else getattr(module, dtype))


@contextmanager
def raises(kind: type[Exception]) -> Iterator[None]:
    """Expect an error."""
    try:
        yield
    except kind:
        return
    raise AssertionError(f"expected {kind.__name__}, got no error")


@contextmanager
def warns(kind: type[Warning]) -> Iterator[None]:
    """Expect a warning."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield
    assert any(issubclass(w.category, kind) for w in caught), f"expected {kind.__name__}, got no such warning"


def close(actual: float, expected: float, tolerance: float) -> None:
    """Compare two numbers to a relative or absolute tolerance."""
    np.testing.assert_allclose(actual, expected, rtol=tolerance, atol=tolerance)


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
    "check_classifiers_classes": "its labels are names that `classes` does not have, for columns that are no classes",
    "check_classifiers_one_label": "takes columns for features: a calibrator keeps the arg max of the logits",
}


def check_scikit_learn(calibrator: Calibrator) -> None:
    """Check that scikit-learn's own checks pass, but for those that take columns for features."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", AttemperWarning)  # random features are no logits
        results = check_estimator(calibrator, expected_failed_checks=EXPECTED_FAILURES, on_fail=None, on_skip=None)
    failed = {r["check_name"]: r["exception"] for r in results if r["status"] == "failed"}
    assert not failed, "; ".join(f"{name}: {type(error).__name__}: {error}" for name, error in failed.items())
    assert {r["check_name"] for r in results if r["status"] == "xfail"} <= set(EXPECTED_FAILURES)
    assert sum(r["status"] == "passed" for r in results) > 40


def check_sample_properties(calibrator: Calibrator) -> None:
    """Check that permutation, repetition as weight, a constant added to a row and moved columns change nothing."""
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


def check_zero_weight(calibrator: Calibrator) -> None:
    """Check that a sample of weight zero is no sample."""
    h, y = draw(300, 4)
    w = np.where(np.arange(300) < 200, 1.0, 0.0)
    other = np.where(w > 0, y, (y + 1) % 4)
    same(
        clone(calibrator).fit(h, other, sample_weight=w).predict_proba(h),
        clone(calibrator).fit(h[:200], y[:200]).predict_proba(h),
        1e-6,
    )


def same(actual: Any, expected: Any, tolerance: float = 2e-7) -> None:
    """Compare to an absolute tolerance."""
    np.testing.assert_allclose(actual, expected, atol=tolerance, rtol=0)


def check_sketch_fit(calibrator: Calibrator) -> None:
    """Check that a sketch, or sketches of parts added, give the same fit as the data, or are refused."""
    h, y = draw(1500, 6)
    sketch = Sketch.of(h[:700], y[:700]) + Sketch.of(h[700:], y[700:])
    with raises(InputError):
        clone(calibrator).fit_sketch([h, y])
    if calibrator.sketch_parts() is None:
        with raises(InputError):
            clone(calibrator).fit_sketch(sketch)
        return
    if calibrator.knows_noise and calibrator.get_params()["labels"] == "noisy":
        calibrator = clone(calibrator).set_params(noise="uniform")  # with "auto" the rows hold more than a sketch
    direct = clone(calibrator).fit(h, y)
    fitted = clone(calibrator).fit_sketch(sketch)
    close(fitted.temperature_, direct.temperature_, 1e-6)
    bound = fitted.fit_report_.log_t_error + direct.fit_report_.log_t_error
    assert abs(np.log(fitted.temperature_ / direct.temperature_)) <= bound
    same(fitted.predict_proba(h), direct.predict_proba(h), 1e-6)
    if calibrator.sketch_parts():
        with raises(InputError):
            clone(calibrator).fit_sketch(Sketch.of(h, y, parts=[]))


def check_round_trip(calibrator: Calibrator) -> None:
    """Check that what `save` wrote is read back whole; a damaged file is an error."""
    with tempfile.TemporaryDirectory() as folder:
        _check_round_trip(calibrator, Path(folder))


def _check_round_trip(calibrator: Calibrator, folder: Path) -> None:
    h, y = draw(200, 4)
    fitted = clone(calibrator).fit(h, y)
    path = folder / "net.attemper.json"
    fitted.save(path)
    back = load(path)
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
        with raises(FileError):
            load(path)
    for key in content["fitted"]:
        path.write_text(json.dumps(content | {"fitted": content["fitted"] | {key: "text"}}))
        with raises(FileError):
            load(path)
    for damage in ({"params": {"x": 1}}, {"schema": 2}, {"map": {"type": "scale", "beta": [1e9] * 10}}):
        path.write_text(json.dumps(content | damage))
        with raises(FileError):
            load(path)


def predictions(fitted: Calibrator, h: NDArray[Any]) -> Any:
    """Columns that `predict` has to return."""
    return (h if fitted.map_.keeps_arg_max else fitted.predict_proba(h)).argmax(axis=1)


def check_arrays(calibrator: Calibrator) -> None:
    """Check that arrays of any library give the same fit, and predictions in that library."""
    h, y = draw(300, 4)
    h = h.astype(np.float32)
    fitted = clone(calibrator).fit(h, y)
    p = fitted.predict_proba(h)
    for make in libraries():
        X, labels = make(h), make(y)
        other = clone(calibrator).fit(X, labels)
        same(other.predict_proba(h), p, 1e-5)
        q = other.predict_proba(X)
        assert type(q) is type(X)
        assert q.dtype == X.dtype
        np.testing.assert_allclose(np.asarray(q), p, rtol=1e-4, atol=1e-5)
        assert (np.asarray(other.predict(X)) == predictions(fitted, h)).all()
        np.testing.assert_allclose(np.exp(np.asarray(other.predict_log_proba(X))), p, rtol=1e-3, atol=1e-5)
    same(clone(calibrator).fit(h.tolist(), y.tolist()).predict_proba(h), p, 1e-5)
    for half in (h.astype(np.float16), *(make(h, "bfloat16") for make in libraries()[1:])):
        coarse = clone(calibrator).fit(half, y)
        assert np.abs(coarse.predict_proba(h) - p).mean() < 0.01
        assert coarse.predict_proba(half).dtype == half.dtype


def check_in_scikit_learn(calibrator: Calibrator) -> None:
    """Check that Pipeline, GridSearchCV, clone and FrozenEstimator work, with a real classifier in front."""
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


def brier_score(p: NDArray[Any], y: NDArray[Any]) -> float:
    """Mean squared distance from the one-hot labels."""
    return float(((p - np.eye(p.shape[1])[y]) ** 2).sum(axis=1).mean())


def check_scores(calibrator: Calibrator) -> None:
    """Check that a Scores brings everything with it; what contradicts it is refused."""
    h, y = draw(200, 3)
    scores = Scores.from_logits(h, y)
    same(clone(calibrator).fit(scores).predict_proba(h), clone(calibrator).fit(h, y).predict_proba(h), 0)
    for y_, w in ((y, None), (None, np.ones(200))):
        with raises(InputError):
            clone(calibrator).fit(scores, y_, w)
    with raises(InputError):
        clone(calibrator).set_params(input="probs").fit(scores)


def check_class_names(calibrator: Calibrator) -> None:
    """Check that labels are names where ``classes`` has them, and what is no name is refused."""
    h, y = draw(200, 3)
    names = np.array(["akiec", "bcc", "mel"])
    named = clone(calibrator).set_params(classes=list(names)).fit(h, names[y])
    same(named.predict_proba(h), clone(calibrator).fit(h, y).predict_proba(h), 0)
    assert named.classes_.tolist() == names.tolist()
    assert (named.predict(h) == names[predictions(named, h)]).all()
    for make in libraries():
        assert (named.predict(make(h)) == names[predictions(named, h)]).all()
    with warns(AttemperWarning):
        clone(calibrator).set_params(classes=list(names[::-1])).fit(h, names[::-1][y])
    with raises(InputError):
        clone(calibrator).set_params(classes=list(names)).fit(h, np.where(y >= 0, "nv", ""))
    with raises(InputError):
        clone(calibrator).set_params(classes=[*names, "nv"]).fit(h, names[y])
    with raises(InputError):
        clone(calibrator).set_params(classes=["a", "b", "a"]).fit(h, names[y])
    with raises(InputError):
        clone(calibrator).fit(h, names[y])


def check_probabilities(calibrator: Calibrator) -> None:
    """Check that probabilities are never guessed, and give the same fit as the logits."""
    h, y = draw(300, 4, scale=2.0)
    p = np.exp(h) / np.exp(h).sum(axis=1, keepdims=True)
    by_probs = clone(calibrator).set_params(input="probs").fit(p, y)
    by_logits = clone(calibrator).fit(h, y)
    expected = by_logits.predict_proba(h)
    same(by_probs.predict_proba(p), expected, 1e-6)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", EdgeWarning)
        with warns(ProbabilitiesAsLogitsWarning):
            taken_as_logits = clone(calibrator).fit(p, y)  # as asked
    with warns(ProbabilitiesAsLogitsWarning):
        by_logits.predict_proba(p)
    same(by_logits.predict_proba(np.log(p)), expected, 1e-6)  # the advice
    assert np.abs(taken_as_logits.predict_proba(h) - expected).max() > 0.1
    with raises(InputError):
        clone(calibrator).set_params(input="probs").fit(h, y)
    rounded = np.where(p < 0.02, 0.0, p)  # as a format with few digits would write them
    rounded /= rounded.sum(axis=1, keepdims=True)
    with raises(InputError):
        clone(calibrator).set_params(input="probs").fit(rounded, y)
    floored = clone(calibrator).set_params(input="probs", zeros_as=0.01).fit(rounded, y)
    assert np.abs(floored.predict_proba(rounded) - expected).mean() < 0.05
    if fitted_is_positive(by_logits, h):
        assert (floored.predict_proba(rounded) > 0).all()
    with raises(InputError):
        clone(calibrator).set_params(zeros_as=0.01).fit(h, y)
    with raises(InputError):
        clone(calibrator).set_params(input="guess").fit(h, y)


def fitted_is_positive(fitted: Calibrator, h: NDArray[Any]) -> bool:
    """Binning and isotonic regression may give a probability of zero."""
    return bool((fitted.predict_proba(h) > 0).all())


def check_bad_input(calibrator: Calibrator) -> None:
    """Check that a bad input is an `AttemperError`, and leaves an earlier fit alone."""
    h, y = draw(20, 3)
    nan, inf = h.copy(), h.copy()
    nan[7, 2], inf[3, 1] = np.nan, np.inf
    masked = h.copy()
    masked[5, y[5]] = -np.inf
    dead = h.copy()
    dead[4] = -np.inf
    fit = clone(calibrator).fit
    for X, labels, weight in [
        (nan, y, None),
        (inf, y, None),
        (masked, y, None),
        (dead, y, None),
        (h, np.where(np.arange(20) == 9, 3, y), None),
        (h, np.where(np.arange(20) == 9, -1, y), None),
        (h, y + 0.5, None),
        (h, y[:-1], None),
        (h, np.eye(3)[y] + np.eye(3)[(y + 1) % 3], None),
        (h, None, None),
        (h[:0], y[:0], None),
        (h[:, 0], y, None),
        ([[1, 2], [3]], [0, 0], None),
        (h, y, np.ones(3)),
        (h, y, -np.ones(20)),
        (h, y, np.full(20, np.nan)),
        (h, y, np.zeros(20)),
    ]:
        with raises(AttemperError):
            fit(X, labels, weight)
    fitted = clone(calibrator).fit(h, y)
    before = fitted.predict_proba(h)
    with raises(InputError):
        fitted.fit(nan, y)
    same(fitted.predict_proba(h), before, 0)
    for X in (nan, h[:, :2], h[0]):
        with raises(InputError):
            fitted.predict_proba(X)
    with raises(NotFittedError):
        clone(calibrator).predict_proba(h)


def check_odd_but_valid_input(calibrator: Calibrator) -> None:
    """Check that odd but valid input gives probabilities, with a warning where nothing is best."""
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
        close(fitted.fit_report_.changed, changed, 1e-6)
        if fitted.map_.keeps_arg_max:
            assert changed == 0
        assert np.isfinite(fitted.fit_report_.nll)
        assert fitted.fit_report_.message


def check_masked_column(calibrator: Calibrator) -> None:
    """Check that a class that is ruled out in every row has probability 0, and does no harm to the others."""
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
    if calibrator.knows_noise:
        return  # the report of such a fit need not be about the mixture that predicts
    log_p = np.asarray(fitted.predict_log_proba(h))[np.arange(300), y]
    close(fitted.fit_report_.nll, -log_p.mean(), 1e-6)


def check_finite_masks(calibrator: Calibrator) -> None:
    """Check that a class that is masked by a large finite number is one that is masked by −inf."""
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
        close(other.fit_report_.nll, fitted.fit_report_.nll, 1e-9)
        same(other.predict_proba(x[:3].astype(np.float32)), p[:3], 1e-5)


def check_class_attributes(calibrator: Calibrator) -> None:
    """Check that the class declares what it is and needs, as `compare`, the report and the command line read it."""
    cls = type(calibrator)
    assert METHODS[cls.method] is cls
    assert cls.title
    assert not calibrator.knows_noise or {"labels", "noise"} <= set(cls.own_params())
    assert {"input", "zeros_as", "classes"} <= set(calibrator.get_params())
    for name, note in inspect.get_annotations(cls).items():
        if not name.endswith("_") and "ClassVar" not in str(note):
            assert name in calibrator.get_params(), (
                f"the field {name!r} is no parameter: decorate the class with @recipe"
            )
    h, y = draw(300, 4)
    fitted = clone(calibrator).fit(h, y)
    assert isinstance(fitted.describe(), list), "expected describe() to return a list of lines"
    json.dumps(fitted.summary(), allow_nan=False)
    assert fitted.map_.keeps_arg_max or not cls.keeps_arg_max
    assert hasattr(calibrator, "partial_fit") == (
        isinstance(calibrator, StreamingCalibrator) and calibrator.sketch_parts() is not None
    )


def check_in_comparison(calibrator: Calibrator) -> None:
    """Check that `compare` fits it together with another method."""
    val, test = (Scores.from_logits(*draw(300, 4, seed=seed)) for seed in (1, 2))
    row = compare(val, test, [calibrator, "ts"] if calibrator.method != "ts" else [calibrator]).rows[1]
    assert not row.failure, row.failure
    assert row.method.startswith(calibrator.method)


CHECKS: tuple[Callable[[Calibrator], None], ...] = (
    check_scikit_learn,
    check_sample_properties,
    check_zero_weight,
    check_sketch_fit,
    check_round_trip,
    check_arrays,
    check_in_scikit_learn,
    check_scores,
    check_class_names,
    check_probabilities,
    check_bad_input,
    check_odd_but_valid_input,
    check_masked_column,
    check_finite_masks,
    check_class_attributes,
    check_in_comparison,
)
"""Everything that a calibrator must pass; each takes one, with the parameters that it is to have."""
