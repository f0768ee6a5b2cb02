"""A plugin of pytest that puts attemper's classes into scikit-learn's own tests of calibration.

``pytest -p attemper_shim --pyargs sklearn.tests.test_calibration`` runs the installed file, with the names below
replaced. The shim translates names and attributes alone. What is computed is attemper's.
"""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.svm import LinearSVC
from sklearn.utils._array_api import get_namespace_and_device

import attemper
from attemper import CalibratedClassifier, TemperatureScaling

DISPLAY = "attemper has functions that draw on an Axes (attemper.plots), no display object"
ENSEMBLE = "attemper has no ensemble=True: one calibrator on the held-out rows of all folds"
NOT_APPLICABLE = {
    "test_calibration_cv_splitter[True]": ENSEMBLE,
    "test_calibration_cv_nfold": ENSEMBLE,
    "test_calibration_less_classes[True]": ENSEMBLE,
    "test_calibration_accepts_ndarray": "its estimator has no `predict`, which cross_val_predict wants",
    "test_calibration_display_compute": DISPLAY,
    "test_plot_calibration_curve_pipeline": DISPLAY,
    "test_calibration_display_default_labels": DISPLAY,
    "test_calibration_display_label_class_plot": DISPLAY,
    "test_calibration_display_name_multiple_calls": DISPLAY,
    "test_calibration_display_ref_line": DISPLAY,
    "test_calibration_display_kwargs": DISPLAY,
    "test_calibration_display_pos_label": DISPLAY,
    "test_calibration_zero_probability": "tests a private class of scikit-learn with a calibrator made up for it",
    "test_calibration_curve_pos_label_error_str": "attemper's curves are of the positive class: no pos_label",
    "test_calibration_curve_pos_label": "attemper's curves are of the positive class: no pos_label",
}
DEVIATIONS = {
    "test_calibration_ensemble_false[isotonic-calibrator1]": (
        "between two knots attemper interpolates in the probability, scikit-learn in the decision function; at the "
        "knots, and on the held-out rows, they are equal"
    ),
}
METHODS = {"sigmoid": "platt", "temperature": "ts", "isotonic": "isotonic"}


class CalibratedClassifierCV(CalibratedClassifier):
    """scikit-learn's parameters and defaults; what it fits is in `calibrated_classifiers_`."""

    def __init__(self, estimator=None, *, method="sigmoid", cv=None, n_jobs=None, ensemble="auto"):
        super().__init__(estimator, method, cv=cv)
        del self.noise
        self.n_jobs = n_jobs
        self.ensemble = ensemble

    def fit(self, X, y, sample_weight=None, **fit_params):
        if self.estimator is None:
            self.estimator = LinearSVC(random_state=0)
        self._X, given, estimator = X, self.method, self.estimator
        self.noise, self.method = 0, METHODS.get(given, given)
        if hasattr(estimator, "get_params") and not isinstance(estimator, type):
            self.estimator = clone(estimator)  # attemper refuses to fit a fitted one; FrozenEstimator stays
        try:
            return super().fit(X, y, sample_weight, **fit_params)
        finally:
            self.method, self.estimator = given, estimator
            del self.noise

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
        self.calibrator_ = attemper.PlattScaling().fit(X, y, sample_weight)
        return self

    def predict(self, X):
        return self.calibrator_.predict_risk(X)


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
    stage = _SigmoidCalibration().fit(predictions, y, sample_weight).calibrator_.map_.stages[-1]
    return -stage.a[1], -stage.c[1]


NAMES = (CalibratedClassifierCV, _SigmoidCalibration, _TemperatureScaling, _sigmoid_calibration)
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
