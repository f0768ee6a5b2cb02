"""CalibratedClassifier: the calibrator of held-out predictions, and the estimator of all rows."""

import numpy as np
import pandas as pd
import pytest
from sklearn import config_context
from sklearn.datasets import make_classification
from sklearn.ensemble import RandomForestClassifier
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import (
    GridSearchCV,
    GroupKFold,
    KFold,
    StratifiedGroupKFold,
    StratifiedKFold,
    cross_val_predict,
)
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC
from sklearn.utils.estimator_checks import check_estimator

from attemper import METHODS, CalibratedClassifier, TemperatureScaling
from attemper.errors import AttemperWarning, InputError, NotFittedError

X, Y = make_classification(500, 8, n_informative=5, n_classes=3, random_state=0)
W = np.random.default_rng(0).integers(1, 4, len(Y)).astype(float)
CASE = np.random.default_rng(1).integers(0, 100, len(Y))
ESTIMATORS = {
    "regression": (LogisticRegression(), "decision_function", "logits"),
    "forest": (RandomForestClassifier(5, random_state=0), "predict_proba", "probs"),
    "neighbours": (KNeighborsClassifier(), "predict_proba", "probs"),
    "naive": (GaussianNB(), "predict_proba", "probs"),
    "pipeline": (make_pipeline(StandardScaler(), LogisticRegression()), "decision_function", "logits"),
}


@pytest.mark.parametrize("more", ["plain", "weights", "clusters", "names", "two classes"])
@pytest.mark.parametrize("name", ESTIMATORS)
def test_one_calibrator_of_the_held_out_predictions(name, more):
    model, response, kind = ESTIMATORS[name]
    y = np.array(["b", "a", "c"])[Y] if more == "names" else Y % 2 if more == "two classes" else Y
    w = W if more == "weights" and name not in ("neighbours", "pipeline") else None
    clusters = CASE if more == "clusters" else None
    clf = CalibratedClassifier(model, "ts").fit(X, y, w, clusters=clusters)
    cv = StratifiedGroupKFold(5) if more == "clusters" else StratifiedKFold(5)
    columns = np.unique(y, return_inverse=True)[1]
    params = None if w is None else {"sample_weight": w}
    h = cross_val_predict(model, X, y, cv=list(cv.split(X, columns, clusters)), method=response, params=params)
    expected = TemperatureScaling(input=kind).fit(h, columns, w, clusters=clusters)
    assert clf.calibrator_.temperature_ == pytest.approx(expected.temperature_, rel=1e-12)
    assert clf.calibrator_.temperature_interval_ == pytest.approx(expected.temperature_interval_, rel=1e-12)
    everything = model.fit(X, y, **(params or {}))
    p = expected.predict_proba(getattr(everything, response)(X))
    np.testing.assert_allclose(clf.predict_proba(X), p, atol=1e-12)
    np.testing.assert_array_equal(clf.predict(X), everything.classes_[p.argmax(axis=1)])


@pytest.fixture(autouse=True)
def unfitted():
    """The test above fits the models, which are clones for the next."""
    from sklearn.base import clone

    for name, (model, *rest) in ESTIMATORS.items():
        ESTIMATORS[name] = (clone(model), *rest)


def test_a_fitted_model_is_kept_only_when_frozen():
    model = LogisticRegression().fit(X[:250], Y[:250])
    for fitted in (model, make_pipeline(StandardScaler(), LogisticRegression()).fit(X, Y)):
        with pytest.raises(InputError) as error:
            CalibratedClassifier(fitted, "ts").fit(X[250:], Y[250:])
        assert error.value.param == "estimator"
        assert "FrozenEstimator" in str(error.value)  # the way out
    clf = CalibratedClassifier(FrozenEstimator(model), "ts").fit(X[250:], Y[250:])
    expected = TemperatureScaling().fit(model.decision_function(X[250:]), Y[250:])
    np.testing.assert_allclose(clf.predict_proba(X), expected.predict_proba(model.decision_function(X)), atol=1e-12)
    assert clf.estimator_.estimator is model


def test_a_class_that_a_fold_has_not_seen():
    y = np.where(np.arange(len(Y)) == 3, 7, Y)
    with pytest.warns(AttemperWarning):
        clf = CalibratedClassifier(LogisticRegression(), "ts").fit(X, y)
    assert clf.predict_proba(X).shape == (len(Y), 4)
    assert clf.calibrator_.report_.n_samples == len(Y) - 1


@pytest.mark.parametrize("method", [m for m in METHODS if METHODS[m].knows_noise])
@pytest.mark.parametrize("noise", [0.1, "unknown"])
def test_noise_passes_through(method, noise):
    clf = CalibratedClassifier(LogisticRegression(), method, noise=noise).fit(X, Y)
    assert clf.calibrator_.noise == noise
    assert clf.calibrator_.method == method


def test_weight_0_leaves_a_row_out():
    kept = np.arange(500) % 5 > 0
    a = CalibratedClassifier(LogisticRegression(), "ts").fit(X, Y, kept.astype(float))
    b = CalibratedClassifier(LogisticRegression(), "ts").fit(X[kept], Y[kept])
    np.testing.assert_allclose(a.predict_proba(X), b.predict_proba(X), atol=1e-9)


def test_metadata_go_where_scikit_learn_routes_them():
    weighted, plain = (LogisticRegression().fit(X, Y, w).coef_ for w in (W, None))
    h = cross_val_predict(LogisticRegression(), X, Y, groups=CASE, cv=GroupKFold(5), method="decision_function")
    with config_context(enable_metadata_routing=True):
        for asks, expected in ((True, weighted), (False, plain)):
            model = LogisticRegression().set_fit_request(sample_weight=asks)
            clf = CalibratedClassifier(model, "ts").fit(X, Y, sample_weight=W)
            np.testing.assert_allclose(clf.estimator_.coef_, expected)
        clf = CalibratedClassifier(LogisticRegression(), "ts", cv=GroupKFold(5)).fit(X, Y, groups=CASE)
    assert clf.calibrator_.temperature_ == pytest.approx(TemperatureScaling().fit(h, Y).temperature_, rel=1e-12)


@pytest.mark.parametrize(("call", "param"), [
    (lambda: CalibratedClassifier(LogisticRegression(), "ts", noise=0.1).fit(X, Y), "noise"),
    (lambda: CalibratedClassifier(LogisticRegression(), "no").fit(X, Y), "method"),
    (lambda: CalibratedClassifier(LogisticRegression, "ts").fit(X, Y), "estimator"),
    (lambda: CalibratedClassifier(StandardScaler(), "ts").fit(X, Y), "estimator"),
    (lambda: CalibratedClassifier(LogisticRegression(), "ts").fit(X), "y"),
    (lambda: CalibratedClassifier(LogisticRegression(), "ts").fit(X, 0 * Y), "y"),
    (lambda: CalibratedClassifier(LogisticRegression(), "ts").fit(X, Y[1:]), "y"),
    (lambda: CalibratedClassifier(LogisticRegression(), "ts", cv=KFold(5)).fit(X, Y, clusters=CASE), "cv"),
    (lambda: CalibratedClassifier(SVC(decision_function_shape="ovo"), "ts").fit(X, Y), "estimator"),
    (lambda: CalibratedClassifier(FrozenEstimator(LogisticRegression().fit(X, Y)), "ts").fit(X, Y + 1), "labels"),
])  # fmt: skip
def test_refused(call, param):
    with pytest.raises(InputError) as error:
        call()
    assert error.value.param == param


def test_not_fitted():
    for call in ("predict_proba", "to_onnx"):
        with pytest.raises(NotFittedError):
            getattr(CalibratedClassifier(LogisticRegression()), call)(X)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::attemper.AttemperWarning")  # its labels are drawn at random
@pytest.mark.filterwarnings("ignore:invalid value encountered in cast")  # of its own labels that are infinite
def test_in_scikit_learn():
    check_estimator(CalibratedClassifier(LogisticRegression(), "ts", cv=3), on_skip=None)
    search = GridSearchCV(
        CalibratedClassifier(GaussianNB(), cv=3), {"method": ["ts", "platt"]}, cv=3, scoring="neg_log_loss"
    )
    assert search.fit(X, Y).best_score_ > -1.0


def test_naive_bayes_gets_better():
    train, test = np.arange(500) < 300, np.arange(500) >= 300
    twice = np.tile(X, 3)  # the same evidence three times: too confident
    raw = GaussianNB().fit(twice[train], Y[train]).predict_proba(twice[test])
    clf = CalibratedClassifier(GaussianNB()).fit(twice[train], Y[train])
    rows = np.arange(test.sum()), Y[test]
    assert np.log(clf.predict_proba(twice[test])[rows]).mean() > np.log(raw[rows]).mean() + 0.1
    priors = clf.with_priors([0.6, 0.2, 0.2])
    assert (priors.predict_proba(twice)[:, 0] > clf.predict_proba(twice)[:, 0]).all()


def test_a_new_fit_forgets_the_names_of_the_features():
    frame = pd.DataFrame(X, columns=[f"x{i}" for i in range(X.shape[1])])
    clf = CalibratedClassifier(LogisticRegression(), "ts").fit(frame, Y)
    assert clf.feature_names_in_.tolist() == [*frame]
    assert not hasattr(clf.fit(X[:, :5], Y), "feature_names_in_")
    assert clf.n_features_in_ == 5
