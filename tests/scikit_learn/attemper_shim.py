"""A plugin of pytest that puts attemper's classes into scikit-learn's own tests of calibration.

``pytest -p attemper_shim --pyargs sklearn.tests.test_calibration`` runs the installed file, with the names below
replaced. The shim translates names and attributes alone. What is computed is attemper's.
"""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.svm import LinearSVC
from sklearn.utils._array_api import get_namespace_and_device

import attemper
from attemper import CalibratedClassifier, PlattScaling, TemperatureScaling

DISPLAY = "attemper has functions that draw on an Axes (attemper.plots), no display object"
ENSEMBLE = "attemper has no ensemble=True: one calibrator on the held-out rows of all folds"
NOT_APPLICABLE = {
    "test_calibration_cv_splitter[True]": ENSEMBLE,
    "test_calibration_cv_nfold": ENSEMBLE,
    "test_calibration_less_classes[True]": ENSEMBLE,
    "test_calibration_display_compute": DISPLAY,
    "test_plot_calibration_curve_pipeline": DISPLAY,
    "test_calibration_display_default_labels": DISPLAY,
    "test_calibration_display_label_class_plot": DISPLAY,
    "test_calibration_display_name_multiple_calls": DISPLAY,
    "test_calibration_display_ref_line": DISPLAY,
    "test_calibration_display_kwargs": DISPLAY,
    "test_calibration_display_pos_label": DISPLAY,
    "test_calibration_zero_probability": "tests a private class of scikit-learn with a calibrator made up for it",
}
DEVIATIONS = {
    "test_calibration_ensemble_false[isotonic-calibrator1]": (
        "between two knots attemper interpolates in the probability, scikit-learn in the decision function; at the "
        "knots, and on the held-out rows, they are equal (test_isotonic_is_scikit_learns_on_the_rows_it_was_fitted_to)"
    ),
    "test_calibration_curve_pos_label_error_str": "the error is in other words, and names the option: pos_label=",
}


class CalibratedClassifierCV(CalibratedClassifier):
    """scikit-learn's parameters and defaults; what it fits is in `calibrated_classifiers_`."""

    def __init__(self, estimator=None, *, method="sigmoid", cv=None, n_jobs=None, ensemble="auto"):
        super().__init__(estimator, method, cv=cv, n_jobs=n_jobs)
        self.ensemble = ensemble

    def fit(self, X, y, sample_weight=None, **fit_params):
        if self.estimator is None:
            self.estimator = LinearSVC(random_state=0)
        self._X = X
        return super().fit(X, y, sample_weight, **fit_params)

    @property
    def calibrated_classifiers_(self):
        xp, _, device = get_namespace_and_device(self._X)
        calibrator = self.calibrator_
        if isinstance(calibrator, TemperatureScaling):  # a number in attemper, an array in scikit-learn
            dtype = self._X.dtype if hasattr(self._X, "dtype") else None
            calibrator.beta_ = xp.asarray(1 / calibrator.temperature_, dtype=dtype, device=device)
        return [SimpleNamespace(estimator=self.estimator_, calibrators=[calibrator], predict_proba=self.predict_proba)]


class _SigmoidCalibration(ClassifierMixin, BaseEstimator):
    def fit(self, X, y, sample_weight=None):
        self.calibrator_ = PlattScaling().fit(X, y, sample_weight)
        return self

    def predict(self, X):
        return self.calibrator_.predict_positive(X)


class _TemperatureScaling(ClassifierMixin, BaseEstimator):
    def fit(self, X, y, sample_weight=None):  # scikit-learn guesses what it got, attemper does not
        probabilities = np.ndim(X) == 2 and np.allclose(np.sum(X, axis=1), 1)
        self.calibrator_ = TemperatureScaling(input="probs" if probabilities else "logits").fit(X, y, sample_weight)
        return self

    def predict(self, X):
        return self.calibrator_.predict_proba(X)

    @property
    def beta_(self):
        return 1 / self.calibrator_.temperature_


def _sigmoid_calibration(predictions, y, sample_weight=None, max_abs_prediction_threshold=30):
    """Return A and B of 1 / (1 + exp(A f + B)); attemper needs no threshold."""
    fitted = _SigmoidCalibration().fit(predictions, y, sample_weight).calibrator_.map_
    return -fitted.a[1], -fitted.c[1]


def calibration_curve(y_true, y_prob, *, pos_label=None, n_bins=5, strategy="uniform"):
    """Return the shares and means of the bins that have rows."""
    classes = None if pos_label is None else [next(y for y in y_true if y != pos_label), pos_label]
    found = attemper.metrics.reliability(
        y_true, y_prob, kind="binary", n_bins=n_bins, strategy=strategy, classes=classes
    )
    some = found.weight > 0
    return found.accuracy[some], found.confidence[some]


NAMES = (CalibratedClassifierCV, _SigmoidCalibration, _TemperatureScaling, _sigmoid_calibration, calibration_curve)
REPLACED = {each.__name__: each for each in NAMES}


def pytest_collection_modifyitems(config, items):
    here = [item for item in items if not {item.originalname, item.name} & set(NOT_APPLICABLE)]
    config.hook.pytest_deselected(items=[item for item in items if item not in here])
    for item in here:
        vars(item.module).update(REPLACED)
        reason = DEVIATIONS.get(item.name) or DEVIATIONS.get(item.originalname)
        if reason is not None:
            item.add_marker(pytest.mark.xfail(strict=True, reason=reason))
    items[:] = here
