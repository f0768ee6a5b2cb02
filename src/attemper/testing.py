"""The contract of calibrators, as checks that anyone can run on their own: `check_calibrator`."""

from __future__ import annotations

import json
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import softmax
from sklearn.base import clone
from sklearn.model_selection import cross_val_score
from sklearn.utils.estimator_checks import check_estimator

from attemper.calibrators.base import METHODS, Calibrator
from attemper.calibrators.registry import load
from attemper.data.scores import Scores
from attemper.errors import AttemperError, AttemperWarning, FileError, InputError, NotFittedError
from attemper.sketches import Sketch

__all__ = ["CHECKS", "check_calibrator"]


def check_calibrator(calibrator: Calibrator | type[Calibrator]) -> None:
    """Run all of `CHECKS` on a calibrator, or a class; an `AssertionError` names the first one that fails, and why.

    >>> from attemper import TemperatureScaling
    >>> check_calibrator(TemperatureScaling)
    """
    one: Any = calibrator() if isinstance(calibrator, type) else calibrator
    if not isinstance(one, Calibrator):
        raise InputError(f"calibrator: got {type(one).__name__}", "calibrator")
    for check in CHECKS:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", AttemperWarning)
                check(one)
        except Exception as error:
            raise AssertionError(f"{one!r} fails {check.__name__}: {type(error).__name__}: {error}") from error


def draw(n: int, k: int, *, scale: float = 3.0, t: float = 2.0, seed: int = 0) -> tuple[Any, Any]:
    """Logits, and labels drawn from softmax(logits / t)."""
    rng = np.random.default_rng(seed)
    h = scale * rng.normal(size=(n, k))
    return h, (h / t + rng.gumbel(size=h.shape)).argmax(axis=1)


def raises(kind: type[Exception], call: Callable[..., Any], *args: Any) -> None:
    """Expect an error."""
    try:
        call(*args)
    except kind:
        return
    raise AssertionError(f"expected {kind.__name__}, got no error")


def same(actual: Any, expected: Any, tolerance: float = 1e-6) -> None:
    """Compare probabilities."""
    np.testing.assert_allclose(np.asarray(actual), np.asarray(expected), rtol=0, atol=tolerance)


def is_distribution(p: Any, shape: tuple[int, ...]) -> None:
    """Check that rows are probabilities."""
    assert p.shape == shape
    same([np.minimum(p, 0).min(), *p.sum(axis=1)], [0, *np.ones(len(p))], 1e-9)


def probs_of(calibrator: Calibrator, h: Any, y: Any, w: Any = None, at: Any = None, **options: Any) -> Any:
    """Fit a clone, and return its probabilities, at the same rows or others."""
    return clone(calibrator).fit(h, y, w, **options).predict_proba(h if at is None else at)


def check_weights(calibrator: Calibrator) -> None:
    """Count a row of weight 2 twice, and of 0 not at all."""
    (h, y), w = draw(300, 4), np.random.default_rng(1).integers(0, 3, 300)
    same(probs_of(calibrator, h, y, w), probs_of(calibrator, np.repeat(h, w, axis=0), np.repeat(y, w), at=h), 1e-5)
    same(probs_of(calibrator, h, y, np.ones(300)), probs_of(calibrator, h, y))


def check_order(calibrator: Calibrator) -> None:
    """Depend neither on the order of rows nor, when predicting, on other rows."""
    (h, y), order = draw(300, 4), np.random.default_rng(1).permutation(300)
    p = probs_of(calibrator, h, y)
    same(probs_of(calibrator, h[order], y[order], at=h), p, 1e-5)
    same(probs_of(calibrator, h, y, at=h[:1]), p[:1], 1e-12)


def check_probabilities(calibrator: Calibrator) -> None:
    """Predict probabilities, of logits or of probabilities; a constant added to a row of logits changes nothing."""
    h, y = draw(300, 4)
    fitted = clone(calibrator).fit(h, y)
    p = fitted.predict_proba(h)
    is_distribution(p, h.shape)
    assert (fitted.predict(h) == p.argmax(axis=1)).all()
    same(np.exp(fitted.predict_log_proba(h)), p, 1e-9)
    assert not fitted.map_.keeps_arg_max or (p.argmax(axis=1) == h.argmax(axis=1)).all()
    same(probs_of(calibrator, h + 5 * np.arange(300)[:, None] % 7, y), p, 1e-5)
    of_probs, raw = clone(calibrator).set_params(input="probs"), softmax(h, axis=1)
    same(probs_of(of_probs, raw, y), p, 1e-5)
    is_distribution(probs_of(of_probs, raw.round(3), y), h.shape)  # zeros


def check_masks(calibrator: Calibrator) -> None:
    """Give a class that is masked out probability 0; −inf and finite masks are the same."""
    h, y = draw(300, 5)
    masked = np.random.default_rng(0).random(h.shape) < 0.3
    masked[np.arange(300), y] = False
    fitted = clone(calibrator).fit(np.where(masked, -np.inf, h), y)
    p = fitted.predict_proba(np.where(masked, -np.inf, h))
    is_distribution(p, h.shape)
    assert (p[masked] == 0).all()
    same(probs_of(calibrator, np.where(masked, -1e9, h), y, at=np.where(masked, -np.inf, h)), p)
    same(fitted.predict_proba(np.where(masked, -1e9, h)), p)


def check_one_column(calibrator: Calibrator) -> None:
    """Read one column as the log-odds, or the probability, of the second of two classes."""
    h, y = draw(300, 2)
    d = h[:, 1] - h[:, 0]
    p = probs_of(calibrator, np.column_stack([0 * d, d]), y)
    same(probs_of(calibrator, d, y), p)
    same(clone(calibrator).fit(d, y).predict_risk(d), p[:, 1])
    same(probs_of(clone(calibrator).set_params(input="probs"), 1 / (1 + np.exp(-d)), y), p, 1e-5)


def check_labels(calibrator: Calibrator) -> None:
    """Take names for labels, shares of classes, and clusters."""
    (h, y), names = draw(300, 3), np.array(["akiec", "bcc", "mel"])
    named = clone(calibrator).set_params(classes=list(names)).fit(h, names[y])
    same(named.predict_proba(h), probs_of(calibrator, h, y), 1e-12)
    assert set(named.predict(h)) <= set(names)
    same(probs_of(calibrator, h, np.eye(3)[y]), probs_of(calibrator, h, y), 1e-6)
    is_distribution(probs_of(calibrator, h, 0.9 * np.eye(3)[y] + 0.1 / 3), h.shape)
    thrice = np.repeat(np.arange(300), 3)
    once = probs_of(calibrator, h, y)
    same(probs_of(calibrator, h[thrice], y[thrice], clusters=thrice, at=h), once, 0.01)


def check_round_trip(calibrator: Calibrator) -> None:
    """Read back what `save` wrote; the same data give the same bytes, and a damaged file is an error."""
    h, y = draw(200, 4)
    fitted = clone(calibrator).fit(h, y)
    with tempfile.TemporaryDirectory() as folder:
        path, again = Path(folder) / "a.json", Path(folder) / "b.json"
        fitted.save(path)
        back = load(path)
        np.testing.assert_array_equal(back.predict_proba(h), fitted.predict_proba(h))
        assert (type(back), str(back)) == (type(fitted), str(fitted))
        clone(calibrator).fit(h, y).save(again)
        assert again.read_bytes() == path.read_bytes(), "the same data gave another file"
        content = json.loads(path.read_text())
        for key in ("method", "map", "report"):
            path.write_text(json.dumps({k: v for k, v in content.items() if k != key}))
            raises(FileError, load, path)


def check_errors(calibrator: Calibrator) -> None:
    """Raise `AttemperError` for bad input, and leave an earlier fit alone; predict for odd but valid input."""
    h, y = draw(60, 3)
    fitted = clone(calibrator).fit(h, y)
    before, nan = fitted.predict_proba(h), np.where(np.arange(180).reshape(60, 3) == 7, np.nan, h)
    for X, labels, w in [(nan, y, None), (h, y + 1, None), (h, y[:-1], None), (h, None, None), (h, y, np.zeros(60))]:
        raises(AttemperError, fitted.fit, X, labels, w)
    same(fitted.predict_proba(h), before, 0)
    raises(InputError, fitted.predict_proba, h[:, :2])
    raises(InputError, fitted.predict_proba, nan)
    raises(NotFittedError, clone(calibrator).predict_proba, h)
    right = h.argmax(axis=1)
    for X, labels in [(h, right), (h, h.argmin(axis=1)), (h, 0 * y), (0 * h, y), (1e4 * h, y), (h[:1], y[:1])]:
        is_distribution(probs_of(calibrator, X, labels), X.shape)


def check_sketch(calibrator: Calibrator) -> None:
    """Fit the sum of two sketches nearly as the rows, where a sketch is enough."""
    if calibrator.sketch_parts is None:
        return
    h, y = draw(2000, 4)
    both = Sketch.of(Scores.of(h[:900], y[:900])) + Sketch.of(Scores.of(h[900:], y[900:]))
    same(clone(calibrator).fit_sketch(both).predict_proba(h), probs_of(calibrator, h, y), 1e-4)


def check_in_scikit_learn(calibrator: Calibrator) -> None:
    """Pass the checks of scikit-learn, and work in its cross-validation."""
    assert METHODS[type(calibrator).method] is type(calibrator)
    expected = {f"check_{name}": "columns are no features, or the error is in other words" for name in NOT_FOR_LOGITS}
    expected["check_estimators_nan_inf"] = "minus infinity is a mask"
    expected["check_sample_weight_equivalence_on_dense_data"] = "to 1e-7, which is not for tables of a function of T"
    results = check_estimator(clone(calibrator), expected_failed_checks=expected, on_fail=None, on_skip=None)
    failed = [f"{r['check_name']}: {r['exception']}" for r in results if r["status"] == "failed"]
    assert not failed, failed[0]
    assert cross_val_score(clone(calibrator), *draw(300, 3), cv=3).min() > 0.5


NOT_FOR_LOGITS = [
    "classifier_data_not_an_array", "classifiers_classes", "classifiers_one_label", "classifiers_regression_target",
    "classifiers_train", "complex_data", "dtype_object", "estimators_empty_data_messages",
    "estimators_fit_returns_self", "estimators_overwrite_params", "estimators_partial_fit_n_features",
    "fit2d_1feature", "fit2d_predict1d", "n_features_in_after_fitting", "readonly_memmap_input",
    "sample_weights_not_an_array", "sample_weights_not_overwritten", "sample_weights_pandas_series",
    "sample_weights_shape", "supervised_y_2d", "supervised_y_no_nan",
]  # fmt: skip
CHECKS: tuple[Callable[[Calibrator], None], ...] = (
    check_weights, check_order, check_probabilities, check_masks, check_one_column, check_labels,
    check_round_trip, check_errors, check_sketch, check_in_scikit_learn,
)  # fmt: skip
