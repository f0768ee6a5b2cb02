"""`CalibratedClassifier`: equal to what one would do by hand, in every mode, and clear where it cannot be done."""

from __future__ import annotations

import pickle
import subprocess
import sys
import warnings

import array_api_strict
import numpy as np
import pandas as pd
import pytest
import sklearn
import torch
from scipy import sparse
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.datasets import make_classification
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.exceptions import DataConversionWarning
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LinearRegression, LogisticRegression, RidgeClassifier
from sklearn.metrics import get_scorer
from sklearn.model_selection import (
    GridSearchCV,
    GroupKFold,
    KFold,
    LeaveOneOut,
    RepeatedStratifiedKFold,
    ShuffleSplit,
    StratifiedKFold,
    TimeSeriesSplit,
    cross_val_score,
)
from sklearn.multioutput import MultiOutputClassifier
from sklearn.naive_bayes import GaussianNB, MultinomialNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler
from sklearn.svm import SVC
from sklearn.tree import DecisionTreeClassifier
from sklearn.utils import get_tags
from sklearn.utils.estimator_checks import check_estimator
from threadpoolctl import threadpool_limits

import attemper
from attemper import (
    AttemperError,
    AttemperWarning,
    BayesianTemperatureScaling,
    InputError,
    IsotonicCalibration,
    NotFittedError,
    TemperatureScaling,
)
from attemper.calibrators.wrapper import CalibratedClassifier
from attemper.calibrators.wrapper.rows import like, take

# Nets that are not trained, and features that say little, have no best temperature. That is not the matter here.
pytestmark = pytest.mark.filterwarnings("ignore::attemper.EdgeWarning")


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    """Problems are tiny: on shared cores, threads of the BLAS would mostly wait for each other."""
    with threadpool_limits(1):
        yield


def features(n=240, n_classes=3, seed=0):
    return make_classification(n, 6, n_informative=4, n_redundant=1, n_classes=n_classes, flip_y=0.1, random_state=seed)


X, Y = features()
NAMES = np.array(["akiec", "bcc", "mel"])
NEW = features(seed=0)[0][::-1] * 0.9


def points_here(told):
    """Whether the warning names the line of the user's call."""
    return all(w.filename == __file__ for w in told if w.category is AttemperWarning)


def log_odds(d):
    return np.column_stack([np.zeros_like(d), d])


# scikit-learn


@pytest.mark.slow
@pytest.mark.parametrize(
    "classifier",
    [
        CalibratedClassifier(LogisticRegression()),
        CalibratedClassifier(LogisticRegression(), "ts", response_method="predict_log_proba", cv=3),
        CalibratedClassifier(
            LogisticRegression(), BayesianTemperatureScaling(labels="noisy"), response_method="predict_proba", cv=2
        ),
        CalibratedClassifier(GaussianNB(), "ats", response_method="predict_log_proba", ensemble=True, cv=2),
        CalibratedClassifier(MultinomialNB(), "ts", ensemble=True, cv=StratifiedKFold(2)),
        CalibratedClassifier(DecisionTreeClassifier(random_state=0), zeros_as=0.01),
    ],
    ids=lambda c: f"{type(c.estimator).__name__}-{c.method if isinstance(c.method, str) else 'noisy'}-{c.ensemble}",
)
def test_the_whole_of_check_estimator(classifier):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # random features are hard to calibrate, and there are few of them
        results = check_estimator(classifier, on_fail=None, on_skip=None)
    assert not {r["check_name"]: r["exception"] for r in results if r["status"] not in ("passed", "skipped")}
    # One check is skipped unless scipy was imported with SCIPY_ARRAY_API=1.
    assert {r["check_name"] for r in results if r["status"] == "skipped"} <= {"check_array_api_input"}
    assert sum(r["status"] == "passed" for r in results) > 55


def test_clone_and_pickle():
    clf = CalibratedClassifier(LogisticRegression(C=0.1), TemperatureScaling(t_range=(0.1, 10)), cv=3)
    p = clf.fit(X, Y).predict_proba(NEW)
    assert not hasattr(clone(clf), "calibrator_")
    np.testing.assert_array_equal(clone(clf).fit(X, Y).predict_proba(NEW), p)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(clf)).predict_proba(NEW), p)
    assert not hasattr(clf.method, "map_")  # a clone of it was fitted
    assert not hasattr(clf.estimator, "coef_")


def test_pipelines_inside_and_outside():
    inside = CalibratedClassifier(make_pipeline(StandardScaler(), LogisticRegression()), "ts", cv=3).fit(X, Y)
    outside = make_pipeline(StandardScaler(), CalibratedClassifier(LogisticRegression(), "ts", cv=3)).fit(X, Y)
    assert inside.n_features_in_ == outside.n_features_in_ == 6
    np.testing.assert_allclose(inside.predict_proba(NEW), outside.predict_proba(NEW), atol=0.02)
    assert inside.score(X, Y) > 0.6


def test_a_search_over_parameters_of_both():
    clf = CalibratedClassifier(LogisticRegression(), BayesianTemperatureScaling(), cv=2)
    grid = {"estimator__C": [1e-4, 1.0], "method__labels": ["clean", "noisy"]}
    search = GridSearchCV(clf, grid, scoring="neg_log_loss", cv=2).fit(X, Y)
    assert search.best_params_["estimator__C"] == 1.0
    assert search.best_estimator_.calibrator_.labels == search.best_params_["method__labels"]
    names = GridSearchCV(clone(clf), {"method": ["ts", "bayes"], "ensemble": [True, False]}, cv=2).fit(X, Y)
    assert len(names.cv_results_["params"]) == 4


def test_a_frozen_estimator_survives_clones_and_a_plain_one_says_why_it_does_not():
    model = LogisticRegression().fit(X, Y)
    frozen = CalibratedClassifier(FrozenEstimator(model), "ts")
    assert np.isfinite(cross_val_score(frozen, X, Y, cv=2, scoring="neg_log_loss")).all()
    with pytest.raises(NotFittedError):
        clone(CalibratedClassifier(model, "ts", cv="prefit")).fit(X, Y)


def test_tags_follow_the_estimator():
    for estimator in (LogisticRegression(), GaussianNB(), HistGradientBoostingClassifier(), SVC(kernel="precomputed")):
        own, tags = get_tags(estimator).input_tags, get_tags(CalibratedClassifier(estimator)).input_tags
        assert own == tags
    assert get_tags(CalibratedClassifier(KNeighborsClassifier())).classifier_tags.multi_label is False
    for odd in (None, LogisticRegression, torch.nn.Identity()):
        assert get_tags(CalibratedClassifier(odd)).estimator_type == "classifier"


# Fitted already


@pytest.mark.parametrize("response", ["decision_function", "predict_proba", "predict_log_proba"])
@pytest.mark.parametrize("freeze", [False, True])
def test_prefit_is_the_calibrator_on_what_the_estimator_says(response, freeze):
    model = LogisticRegression(C=100).fit(X[:100], Y[:100])
    raw = getattr(model, response)
    ts = TemperatureScaling(input="probs" if response == "predict_proba" else "logits").fit(raw(X[100:]), Y[100:])
    given = {"estimator": FrozenEstimator(model)} if freeze else {"estimator": model, "cv": "prefit"}
    clf = CalibratedClassifier(method="ts", response_method=response, **given).fit(X[100:], Y[100:])
    np.testing.assert_array_equal(clf.predict_proba(NEW), ts.predict_proba(raw(NEW)))
    np.testing.assert_array_equal(clf.predict_log_proba(NEW), ts.predict_log_proba(raw(NEW)))
    assert (clf.predict(NEW) == model.predict(NEW)).all()
    assert clf.response_method_ == response
    assert clf.estimator_ is clf.estimator
    assert clf.calibrator_.temperature_ == ts.temperature_


def test_a_decision_between_two_classes_is_the_log_odds_of_the_second():
    x, y = features(n_classes=2)
    model = RidgeClassifier().fit(x[:100], y[:100])
    clf = CalibratedClassifier(model, "ts", cv="prefit").fit(x[100:], y[100:])
    assert clf.response_method_ == "decision_function"
    t = TemperatureScaling().fit(log_odds(model.decision_function(x[100:])), y[100:]).temperature_
    by_hand = 1 / (1 + np.exp(-model.decision_function(NEW) / t))
    np.testing.assert_allclose(clf.predict_proba(NEW)[:, 1], by_hand, rtol=1e-12)
    assert (clf.predict(NEW) == model.predict(NEW)).all()


def test_an_estimator_without_fit_will_do_if_it_is_fitted():
    class Loaded:
        classes_ = np.array([0, 1, 2])

        def predict_proba(self, X):
            return np.exp(X[:, :3]) / np.exp(X[:, :3]).sum(axis=1, keepdims=True)

    assert CalibratedClassifier(Loaded(), cv="prefit").fit(X, Y).predict_proba(NEW).shape == (240, 3)
    with pytest.raises(AttemperError):
        CalibratedClassifier(Loaded()).fit(X, Y)


def test_a_fitted_estimator_is_not_fitted_again_in_silence():
    model = LogisticRegression().fit(X, Y)
    with pytest.warns(AttemperWarning):
        CalibratedClassifier(model, "ts").fit(X, Y)
    CalibratedClassifier(model, "ts", cv=2).fit(X, Y)  # asked for


def test_the_calibrator_can_be_saved(tmp_path):
    model = LogisticRegression().fit(X[:100], Y[:100])
    clf = CalibratedClassifier(model, cv="prefit").fit(X[100:], Y[100:])
    clf.calibrator_.save(tmp_path / "net.attemper.json")
    back = attemper.load(tmp_path / "net.attemper.json")
    np.testing.assert_array_equal(back.predict_proba(model.decision_function(NEW)), clf.predict_proba(NEW))


# In folds


def test_folds_by_hand():
    model, held = LogisticRegression(C=10), np.empty((240, 3))
    for train, test in StratifiedKFold(4).split(X, Y):
        held[test] = clone(model).fit(X[train], Y[train]).decision_function(X[test])
    ts = TemperatureScaling().fit(held, Y)
    expected = ts.predict_proba(clone(model).fit(X, Y).decision_function(NEW))
    for cv in (4, StratifiedKFold(4), list(StratifiedKFold(4).split(X, Y))):
        clf = CalibratedClassifier(model, "ts", cv=cv).fit(X, Y)
        np.testing.assert_array_equal(clf.predict_proba(NEW), expected)
    default = CalibratedClassifier(model, "ts").fit(X, Y)
    np.testing.assert_array_equal(
        default.predict_proba(NEW), CalibratedClassifier(model, "ts", cv=5).fit(X, Y).predict_proba(NEW)
    )


def test_an_ensemble_by_hand():
    model, parts = LogisticRegression(C=10), []
    for train, test in StratifiedKFold(3).split(X, Y):
        fold = clone(model).fit(X[train], Y[train])
        ts = TemperatureScaling().fit(fold.decision_function(X[test]), Y[test])
        parts.append(ts.predict_proba(fold.decision_function(NEW)))
    clf = CalibratedClassifier(model, "ts", cv=3, ensemble=True).fit(X, Y)
    np.testing.assert_array_equal(clf.predict_proba(NEW), np.mean(parts, axis=0))
    np.testing.assert_allclose(clf.predict_log_proba(NEW), np.log(np.mean(parts, axis=0)), rtol=1e-12)
    assert len(clf.estimators_) == len(clf.calibrators_) == 3
    clf.set_params(ensemble=False).fit(X, Y)  # nothing of the earlier fit stays
    assert not hasattr(clf, "estimators_")
    assert not hasattr(clf, "calibrators_")
    assert clf.calibrator_.fit_report_.n_samples == 240


def test_splits_that_hold_rows_out_never_or_often():
    model = LogisticRegression()
    seldom = CalibratedClassifier(model, "ts", cv=TimeSeriesSplit(3)).fit(X, Y)
    assert seldom.calibrator_.fit_report_.n_samples == 180
    # Every row is held out twice, with half of its weight each time: as much evidence as there are rows.
    often = CalibratedClassifier(model, cv=RepeatedStratifiedKFold(n_splits=3, n_repeats=2, random_state=0)).fit(X, Y)
    once = CalibratedClassifier(model, cv=3).fit(X, Y)
    widths = [np.diff(np.log(c.calibrator_.temperature_interval_)) for c in (often, once)]
    assert widths[0] == pytest.approx(widths[1], rel=0.05)
    masks = [(~np.isin(np.arange(240), test), np.isin(np.arange(240), test)) for _, test in KFold(3).split(X)]
    by_mask = CalibratedClassifier(model, "ts", cv=masks).fit(X, Y)
    by_rows = CalibratedClassifier(model, "ts", cv=KFold(3)).fit(X, Y)
    np.testing.assert_array_equal(by_mask.predict_proba(NEW), by_rows.predict_proba(NEW))
    assert CalibratedClassifier(model, "ts", cv=ShuffleSplit(2, random_state=0)).fit(X, Y).score(X, Y) > 0.6
    leave_one = CalibratedClassifier(GaussianNB(), "ts", cv=LeaveOneOut()).fit(X[:60], Y[:60])
    assert leave_one.calibrator_.fit_report_.n_samples == 60


def test_class_names_and_tables():
    table = pd.DataFrame(X, columns=list("abcdef"))
    labels = pd.Series(NAMES[Y])
    plain = CalibratedClassifier(LogisticRegression(), cv=3).fit(X, Y)
    named = CalibratedClassifier(LogisticRegression(), cv=3).fit(table, labels)
    np.testing.assert_array_equal(named.predict_proba(table), plain.predict_proba(X))
    assert named.classes_.tolist() == NAMES.tolist()
    assert (named.predict(table) == NAMES[plain.predict(X)]).all()
    assert named.feature_names_in_.tolist() == list("abcdef")
    assert named.score(table, labels) == plain.score(X, Y)
    with pytest.raises(ValueError):
        named.predict_proba(table[list("fedcba")])
    prefit = CalibratedClassifier(LogisticRegression().fit(table, labels), cv="prefit").fit(table, labels)
    assert prefit.classes_.tolist() == NAMES.tolist()
    weighted = CalibratedClassifier(LogisticRegression(), cv=3).fit(table, labels, pd.Series(np.arange(240) % 3))
    assert weighted.predict_proba(table).shape == (240, 3)


def test_sparse_matrices_and_lists():
    dense = CalibratedClassifier(LogisticRegression(tol=1e-8), "ts", cv=3).fit(X, Y).predict_proba(NEW)
    for kind in (sparse.csr_matrix, sparse.coo_array):
        clf = CalibratedClassifier(LogisticRegression(tol=1e-8), "ts", cv=3).fit(kind(X), Y)
        np.testing.assert_allclose(clf.predict_proba(sparse.csr_array(NEW)), dense, rtol=1e-4)
    listed = CalibratedClassifier(LogisticRegression(tol=1e-8), "ts", cv=3).fit(X.tolist(), Y.tolist())
    np.testing.assert_array_equal(listed.predict_proba(NEW.tolist()), dense)


def test_missing_values_go_through_where_the_estimator_takes_them():
    holes = np.where(np.arange(X.size).reshape(X.shape) % 11 == 0, np.nan, X)
    clf = CalibratedClassifier(HistGradientBoostingClassifier(max_iter=5), "ts", cv=2).fit(holes, Y)
    assert np.isfinite(clf.predict_proba(holes)).all()
    with pytest.raises(ValueError):
        CalibratedClassifier(LogisticRegression(), "ts").fit(holes, Y)


@pytest.mark.parametrize("method", ["isotonic", "histogram", "bbq", "venn_abers", IsotonicCalibration()], ids=str)
def test_methods_that_heed_the_order_alone_take_zeros_as_they_are(method):
    forest = RandomForestClassifier(20, random_state=0)
    clf = CalibratedClassifier(forest, method, cv=2).fit(X, Y)
    p = clf.predict_proba(X)
    assert np.isfinite(p).all()
    np.testing.assert_allclose(p.sum(axis=1), 1)
    assert clf.score(X, Y) > 0.9
    # Any other floor that is below all votes gives the same answer, and one that is told is kept.
    other = CalibratedClassifier(forest, method, cv=2, zeros_as=1e-25).fit(X, Y)
    np.testing.assert_allclose(other.predict_proba(X), p, atol=1e-12)
    assert other.calibrator_.zeros_as == 1e-25
    single = clf.calibrator_.predict_proba(forest.fit(X, Y).predict_proba(X).astype(np.float32))
    np.testing.assert_allclose(single, p, atol=1e-5)
    # What was learnt of zeros is how often they are wrong.
    zero = clf.calibrator_.predict_proba([[1.0, 0.0, 0.0]])[0]
    assert 0 <= zero[1:].max() < zero[0] < 1
    # Logarithms of zeros have no such meaning.
    with pytest.raises(InputError), np.errstate(divide="ignore"):
        CalibratedClassifier(forest, method, cv=2, response_method="predict_log_proba").fit(X, Y)


def test_a_forest_whose_zeros_stand_for_something():
    forest = RandomForestClassifier(n_estimators=20, random_state=0)
    clf = CalibratedClassifier(forest, zeros_as=0.025, cv=2).fit(X, Y)
    assert clf.response_method_ == "predict_proba"
    assert (clf.predict_proba(NEW) > 0).all()
    with_own = CalibratedClassifier(forest, BayesianTemperatureScaling(zeros_as=0.025), cv=2).fit(X, Y)
    np.testing.assert_array_equal(with_own.predict_proba(NEW), clf.predict_proba(NEW))


# Rare classes


def test_a_class_with_few_rows_is_in_every_training_part():
    x, y = X[:43], np.r_[np.arange(40) % 2, 2, 2, 3]
    with pytest.warns(AttemperWarning) as told:
        clf = CalibratedClassifier(LogisticRegression(), cv=5).fit(x, y)
    assert points_here(told)
    assert clf.classes_.tolist() == [0, 1, 2, 3]
    assert clf.calibrator_.fit_report_.n_samples == 42
    assert (clf.predict_proba(NEW) > 0).all()
    with pytest.warns(AttemperWarning):
        ensemble = CalibratedClassifier(LogisticRegression(), cv=5, ensemble=True).fit(x, y)
    assert all(len(e.classes_) == 4 for e in ensemble.estimators_)


def test_five_rows():
    clf = CalibratedClassifier(LogisticRegression()).fit(X[:5], [0, 1, 0, 1, 0])
    assert clf.calibrator_.fit_report_.n_samples == 5
    with pytest.raises(InputError):
        CalibratedClassifier(LogisticRegression()).fit(X[:3], [0, 1, 2])


@pytest.mark.parametrize("response", ["decision_function", "predict_proba"])
@pytest.mark.parametrize("ensemble", [False, True])
def test_a_class_that_a_fold_has_never_seen(response, ensemble):
    """The fold's rows of that class are left out; for its other rows the class is impossible."""
    order = np.argsort(Y == 1, kind="stable")  # all rows of class 1 are in the last part
    x, y = X[order], Y[order]
    splits = [(np.arange(60, 240), np.arange(60)), (np.arange(140), np.arange(140, 240))]
    int((y == 1).sum())
    with pytest.warns(AttemperWarning) as told:
        clf = CalibratedClassifier(
            LogisticRegression(), "ts", response_method=response, cv=splits, ensemble=ensemble
        ).fit(x, y)
    assert points_here(told)
    p = clf.predict_proba(NEW)
    assert p.shape == (240, 3)
    np.testing.assert_allclose(p.sum(axis=1), 1)
    if ensemble:
        assert clf.estimators_[1].classes_.tolist() == [0, 2]
        assert (p[:, 1] <= 0.5).all()  # one of the two holds it impossible
        return
    known = 140 + np.flatnonzero(y[140:] != 1)
    d = LogisticRegression().fit(x[:140], y[:140]).decision_function(x[known])
    second = np.column_stack([np.zeros_like(d), np.full_like(d, -np.inf), d])
    first = LogisticRegression().fit(x[60:], y[60:]).decision_function(x[:60])
    ts = TemperatureScaling().fit(np.r_[first, second], y[np.r_[:60, known]])
    assert clf.calibrator_.temperature_ == pytest.approx(ts.temperature_, rel=1e-6)


@pytest.mark.parametrize("method", ["ts", "platt", "isotonic"])
def test_no_floor_makes_an_unseen_class_possible(method):
    order = np.argsort(Y == 1, kind="stable")
    x, y = X[order], Y[order]
    splits = [(np.arange(140), np.arange(140, 240)), (np.arange(60, 240), np.arange(60))]
    parameters = {"response_method": "predict_proba", "zeros_as": 0.01, "cv": splits}
    with pytest.warns(AttemperWarning):
        clf = CalibratedClassifier(LogisticRegression(), method, ensemble=True, **parameters).fit(x, y)
    one, two = clf.calibrators_
    assert (one.input, one.zeros_as) == (two.input, two.zeros_as) == ("probs", 0.01)
    second = two.predict_proba(clf.estimators_[1].predict_proba(NEW))
    p = clf.predict_proba(NEW)
    np.testing.assert_allclose(p[:, 1], second[:, 1] / 2, atol=1e-12)  # the first holds it impossible
    np.testing.assert_allclose(p.sum(axis=1), 1)
    np.testing.assert_allclose(np.exp(clf.predict_log_proba(NEW)), p, atol=1e-12)
    if method == "ts":  # fitted on two classes
        seen = LogisticRegression().fit(x[:140], y[:140]).predict_proba(x[140:][y[140:] != 1])
        ts = TemperatureScaling(input="probs", zeros_as=0.01).fit(seen, (y[140:][y[140:] != 1] > 1).astype(int))
        assert one.temperature_ == pytest.approx(ts.temperature_, rel=1e-6)


@pytest.mark.parametrize("cv", [3, "prefit"])
def test_arrays_of_another_library(cv):
    x, y, new = (array_api_strict.asarray(v) for v in (X, Y, NEW))
    model = LogisticRegression()
    if cv == "prefit":
        model.fit(X, Y)
    found = CalibratedClassifier(model, "ts", cv=cv).fit(x, y, array_api_strict.ones(240)).predict_proba(new)
    expected = CalibratedClassifier(model, "ts", cv=cv).fit(X, Y).predict_proba(NEW)
    np.testing.assert_allclose(found, expected, atol=1e-6)
    rows = np.array([2, 0])
    np.testing.assert_array_equal(np.asarray(take(x, rows)), X[rows])
    assert type(like(x, rows)) is type(x)  # as estimators want labels, where scikit-learn dispatches
    assert like(x, NAMES) is NAMES


def test_folds_without_a_second_class_are_refused():
    with pytest.raises(InputError):
        CalibratedClassifier(LogisticRegression(), cv=[(np.flatnonzero(Y < 2), np.flatnonzero(Y == 2))]).fit(X, Y)
    with pytest.raises(InputError):
        CalibratedClassifier(LogisticRegression(), cv=KFold(2)).fit(X[:160], np.arange(160) // 80)
    with pytest.raises(InputError):
        CalibratedClassifier(LogisticRegression(), cv=[([], [0, 1])]).fit(X, Y)


# Weights


@pytest.mark.parametrize("ensemble", [False, True])
def test_weights_count_repeats_and_reach_the_estimator(ensemble):
    w = np.random.default_rng(0).integers(0, 3, size=240)
    folds = np.arange(240) % 3
    repeated = np.repeat(np.arange(240), w)

    def splits(which):
        return [(np.flatnonzero(which != k), np.flatnonzero(which == k)) for k in range(3)]

    model = LogisticRegression(tol=1e-10, max_iter=1000)
    weighted = CalibratedClassifier(model, cv=splits(folds), ensemble=ensemble).fit(X, Y, sample_weight=w)
    rows = CalibratedClassifier(model, cv=splits(folds[repeated]), ensemble=ensemble).fit(X[repeated], Y[repeated])
    np.testing.assert_allclose(weighted.predict_proba(NEW), rows.predict_proba(NEW), rtol=1e-4, atol=1e-6)


def test_weight_zero_is_no_row():
    w = (np.arange(240) % 4 > 0).astype(float)
    x, y = np.where(w[:, None] > 0, X, 1e6), np.where(w > 0, NAMES[Y], "none")  # nonsense that must not matter
    kept = w > 0
    for given in ({"cv": 3}, {"cv": 3, "ensemble": True}):
        clf = CalibratedClassifier(LogisticRegression(), "ts", **given).fit(x, y, w)
        without = CalibratedClassifier(LogisticRegression(), "ts", **given).fit(x[kept], y[kept])
        np.testing.assert_allclose(clf.predict_proba(NEW), without.predict_proba(NEW), rtol=1e-6)
        assert clf.classes_.tolist() == NAMES.tolist()
    clf = CalibratedClassifier(LogisticRegression(), "ts", cv=KFold(3)).fit(x, y, w)
    left = [(np.isin(np.flatnonzero(kept), a), np.isin(np.flatnonzero(kept), b)) for a, b in KFold(3).split(x)]
    without = CalibratedClassifier(LogisticRegression(), "ts", cv=left).fit(x[kept], y[kept])
    np.testing.assert_allclose(clf.predict_proba(NEW), without.predict_proba(NEW), rtol=1e-6)
    model = LogisticRegression().fit(x[kept], y[kept])
    clf = CalibratedClassifier(model, "ts", cv="prefit").fit(x, y, w)
    without = CalibratedClassifier(model, "ts", cv="prefit").fit(x[kept], y[kept])
    np.testing.assert_array_equal(clf.predict_proba(NEW), without.predict_proba(NEW))


def test_weights_are_routed_as_each_asks():
    w = np.arange(240) % 3.0
    folds = list(StratifiedKFold(3).split(X, Y))
    plain = CalibratedClassifier(LogisticRegression(), "ts", cv=folds)
    both = plain.fit(X, Y, w).predict_proba(NEW)
    with sklearn.config_context(enable_metadata_routing=True):
        with pytest.raises(ValueError):
            clone(plain).fit(X, Y, w)
        # Inside of a pipeline, inside of the wrapper, inside of a pipeline.
        weighted = make_pipeline(FunctionTransformer(), LogisticRegression().set_fit_request(sample_weight=True))
        inner = CalibratedClassifier(weighted, "ts", cv=folds).set_fit_request(sample_weight=True)
        outer = make_pipeline(FunctionTransformer(), inner).fit(X, Y, sample_weight=w)
        np.testing.assert_array_equal(outer.predict_proba(NEW), both)
        # In the folds of a search; the weights of a part of the rows go with these rows.
        inner = CalibratedClassifier(weighted, "ts", cv=3).set_fit_request(sample_weight=True)
        scoring = get_scorer("neg_log_loss").set_score_request(sample_weight=True)
        search = GridSearchCV(inner, {"method": ["ts"]}, cv=2, scoring=scoring).fit(X, Y, sample_weight=w)
        assert search.best_estimator_.calibrator_.fit_report_.n_samples == np.count_nonzero(w)
        # The classifier wants none: only the calibration is weighted, and nobody needs to be warned.
        alone = LogisticRegression().set_fit_request(sample_weight=False)
        unweighted = CalibratedClassifier(alone, "ts", cv=folds).fit(X, Y, w).predict_proba(NEW)
        kept = w > 0
    held = np.empty((240, 3))
    for train, test in folds:
        rows = train[kept[train]]
        held[test] = LogisticRegression().fit(X[rows], Y[rows]).decision_function(X[test])
    ts = TemperatureScaling().fit(held[kept], Y[kept], w[kept])
    by_hand = ts.predict_proba(LogisticRegression().fit(X[kept], Y[kept]).decision_function(NEW))
    np.testing.assert_allclose(unweighted, by_hand, rtol=1e-12)
    assert abs(unweighted - both).max() > 1e-4


def test_weights_that_the_estimator_does_not_take():
    w = 1 + np.arange(240) % 2
    with pytest.warns(AttemperWarning) as told:
        clf = CalibratedClassifier(KNeighborsClassifier(20), "ts", zeros_as=0.025, cv=2).fit(X, Y, w)
    assert points_here(told)
    held = np.empty((240, 3))
    for train, test in StratifiedKFold(2).split(X, Y):
        held[test] = KNeighborsClassifier(20).fit(X[train], Y[train]).predict_proba(X[test])
    ts = TemperatureScaling(input="probs", zeros_as=0.025).fit(held, Y, w)
    assert clf.calibrator_.temperature_ == ts.temperature_


# What cannot be done


class OnlyPredicts(ClassifierMixin, BaseEstimator):
    def fit(self, X, y):
        self.classes_ = np.unique(y)
        return self

    def predict(self, X):
        return self.classes_[np.zeros(len(X), dtype=int)]


class Nameless(LogisticRegression):
    def fit(self, X, y):
        super().fit(X, y)
        del self.classes_
        return self

    def decision_function(self, X):
        return X @ self.coef_.T


class TooWide(LogisticRegression):
    def decision_function(self, X):
        return np.zeros((len(X), 7))


LR = LogisticRegression
FITTED = LogisticRegression().fit(X, Y)


@pytest.mark.parametrize(
    "parameters, why",
    [
        ({"estimator": OnlyPredicts()}, "neither decision_function nor predict_proba"),
        ({"estimator": LinearRegression()}, "LinearRegression has neither"),
        ({"estimator": LogisticRegression}, r"got a class. Use LogisticRegression\(…\)"),
        (
            {"estimator": LR(), "response_method": "auto"},
            "response_method='auto': for LogisticRegression it can be 'decision_function'",
        ),
        ({"estimator": LR(), "response_method": "logits"}, "it can be 'decision_function', 'predict_proba'"),
        ({"estimator": GaussianNB(), "response_method": "decision_function"}, "GaussianNB it can be 'predict_proba'"),
        ({"estimator": LR(), "method": "magic"}, "method='magic': expected one of 'ts'"),
        ({"estimator": LR(), "method": TemperatureScaling}, "or a calibrator such as"),
        ({"estimator": LR(), "method": TemperatureScaling(classes=["a"])}, "leave classes out"),
        ({"estimator": LR(), "method": TemperatureScaling(input="probs")}, "calibrator has input='probs'"),
        (
            {"estimator": LR(), "zeros_as": 0.1},
            r"only probabilities take zeros_as; use response_method='predict_proba'",
        ),
        ({"estimator": GaussianNB(), "zeros_as": 2}, "zeros_as=2"),
        ({"estimator": LR(), "cv": 1}, "expected 2 folds or more"),
        ({"estimator": LR(), "cv": "fit"}, "the only word known here is 'prefit'"),
        ({"estimator": LR(), "cv": 0.3}, "Expected a number of folds"),
        ({"estimator": LR(), "cv": []}, "no split"),
        ({"estimator": LR(), "cv": [([0, 1], [240])]}, "not among 0 … 239"),
        ({"estimator": LR(), "cv": GroupKFold(2)}, r"groups.*fit\(X, y, groups=…\)"),
        ({"estimator": LR(), "cv": "prefit"}, "LogisticRegression is not fitted"),
        ({"estimator": FITTED, "cv": "prefit", "ensemble": True}, "fitted already, so there is one"),
        ({"estimator": LR(), "classes": ["a", "b", "c"]}, "classes: only for torch modules"),
        ({"estimator": LR(), "select": len}, "select: only for torch modules"),
        ({"estimator": SVC(kernel="precomputed")}, "kernels between rows"),
        ({"estimator": Nameless()}, "has no classes_"),
        ({"estimator": TooWide()}, r"shape \(\d+, 7\); expected 3 columns"),
        ({"estimator": SVC(decision_function_shape="ovo")}, "Set decision_function_shape='ovr'"),
        ({"estimator": make_pipeline(StandardScaler(), SVC(decision_function_shape="ovo"))}, "for each pair"),
        ({"estimator": GridSearchCV(SVC(decision_function_shape="ovo"), {"C": [1]}, cv=2)}, "for each pair"),
    ],
    ids=lambda value: None if isinstance(value, str) else "-".join(f"{k}={v!r}" for k, v in value.items())[:60],
)
def test_parameters_that_are_refused(parameters, why):
    with pytest.raises(AttemperError):
        CalibratedClassifier(**parameters).fit(X, Y)


@pytest.mark.parametrize(
    "x, y, w, why",
    [
        (X, None, None, "requires y to be passed"),
        (X, Y[:-1], None, "inconsistent numbers of samples"),
        (X, np.eye(3)[Y], None, r"One-hot labels need y.argmax\(axis=1\)"),
        (X, sparse.csr_array(np.eye(3)[Y]), None, "several labels per row"),
        (X, Y + 0.5, None, "continuous"),
        (X[:0], Y[:0], None, r"0 sample\(s\)"),
        (X, np.zeros(240), None, r"one class only \(0.0\)"),
        (X, Y, np.zeros(240), "all weights are zero"),
        (X, Y, np.ones(3), r"sample_weight.shape == \(3,\)"),
        (X, Y, (Y == 1).astype(float), "one class only"),
        (7, Y, None, "X, y"),
        (X, np.ma.array(Y, mask=np.arange(240) == 7), None, r"y: .*row 7 masked\. Drop those rows"),
        (X, Y, np.ma.array(np.ones(240), mask=np.arange(240) == 7), r"sample_weight: .*row 7 masked.*filled\(0\)"),
    ],
)
def test_data_that_are_refused(x, y, w, why):
    with pytest.raises(AttemperError):
        CalibratedClassifier(LogisticRegression()).fit(x, y, w)


def test_labels_of_prefit_estimators_must_be_theirs():
    model = LogisticRegression().fit(X, NAMES[Y])
    with pytest.raises(InputError):
        CalibratedClassifier(model, cv="prefit").fit(X[:3], ["mel", "bcc", "nv"])
    several = MultiOutputClassifier(GaussianNB()).fit(X, np.column_stack([Y, Y]))
    with pytest.raises(InputError):
        CalibratedClassifier(several, cv="prefit").fit(X, Y)


def test_a_failed_fit_leaves_the_earlier_one_alone():
    clf = CalibratedClassifier(LogisticRegression(), "ts", cv=2)
    with pytest.raises(NotFittedError):
        clf.predict(X)
    p = clf.fit(X, Y).predict_proba(NEW)
    with pytest.raises(InputError):
        clf.fit(X, Y[:-1])
    np.testing.assert_array_equal(clf.predict_proba(NEW), p)


def test_a_column_of_labels_is_taken_with_a_warning():
    with pytest.warns(DataConversionWarning):
        CalibratedClassifier(LogisticRegression(), "ts", cv=2).fit(X, Y[:, None])


# torch


class Net(torch.nn.Module):
    """Linear, with everything that eval mode, devices and gradients matter to."""

    def __init__(self, n_out=3, wrap=None):
        super().__init__()
        torch.manual_seed(0)
        self.norm = torch.nn.BatchNorm1d(6)
        self.drop = torch.nn.Dropout(0.5)
        self.head = torch.nn.Linear(6, n_out)
        self.wrap = wrap
        self.largest = 0

    def forward(self, x):
        assert not self.training
        assert not torch.is_grad_enabled()
        self.largest = max(self.largest, len(x))
        out = self.head(self.drop(self.norm(x)))
        return out if self.wrap is None else self.wrap(out)


def tensors():
    return torch.tensor(X, dtype=torch.float32), torch.tensor(Y)


def test_a_module_is_the_calibrator_on_its_logits():
    net, (x, y) = Net().train(), tensors()
    net.norm.eval()  # a part that was frozen apart
    clf = CalibratedClassifier(net, "ts", response_method="logits", batch_size=50).fit(x, y)
    assert net.training
    assert net.drop.training
    assert not net.norm.training
    assert net.largest == 50
    with torch.no_grad():
        logits = torch.nn.Sequential(net.norm, net.head)(x)
    ts = TemperatureScaling().fit(logits, y)
    p = clf.predict_proba(x)
    assert isinstance(p, torch.Tensor)
    assert p.dtype == torch.float32
    torch.testing.assert_close(p, ts.predict_proba(logits))
    assert not p.requires_grad
    assert torch.equal(clf.predict(x), logits.argmax(dim=1))
    assert clf.classes_.tolist() == [0, 1, 2]
    assert clf.response_method_ == "logits"
    assert isinstance(clf.predict_log_proba(X), np.ndarray)
    np.testing.assert_allclose(clf.predict_proba(X), p.numpy(), rtol=1e-5)
    np.testing.assert_allclose(clf.predict_proba(pd.DataFrame(X)), p.numpy(), rtol=1e-5)
    again = pickle.loads(pickle.dumps(clf))
    torch.testing.assert_close(again.predict_proba(x), p)
    torch.testing.assert_close(clone(clf).fit(x, y).predict_proba(x), p)


def test_loaders():
    net, (x, y) = Net(), tensors()
    expected = CalibratedClassifier(net, "ts", response_method="logits").fit(x, y)
    data = torch.utils.data.TensorDataset(x, y)
    loader = torch.utils.data.DataLoader(data, batch_size=64)
    clf = CalibratedClassifier(net, "ts", response_method="logits").fit(loader)
    assert clf.calibrator_.temperature_ == pytest.approx(expected.calibrator_.temperature_, rel=1e-5)
    p = clf.predict_proba(loader)  # labels are not looked at
    torch.testing.assert_close(p, expected.predict_proba(x))
    unlabelled = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x), batch_size=64)
    for inputs in (unlabelled, list(x.split(100)), ({"x": part} for part in x.split(100))):
        torch.testing.assert_close(clf.predict_proba(inputs), p)
    pairs = [({"x": part}, label) for part, label in zip(x.split(100), y.split(100))]
    assert CalibratedClassifier(net, "ts", response_method="logits").fit(
        pairs
    ).calibrator_.temperature_ == pytest.approx(expected.calibrator_.temperature_, rel=1e-5)


def test_other_outputs_of_modules():
    x, y = tensors()
    plain = CalibratedClassifier(Net(), "ts", response_method="logits").fit(x, y).predict_proba(x)
    picked = CalibratedClassifier(
        Net(wrap=lambda out: {"logits": out}), "ts", response_method="logits", select=lambda out: out["logits"]
    )
    torch.testing.assert_close(picked.fit(x, y).predict_proba(x), plain)
    probs = CalibratedClassifier(Net(wrap=lambda out: out.softmax(dim=1)), "ts", response_method="probs").fit(x, y)
    torch.testing.assert_close(probs.predict_proba(x), plain, rtol=1e-4, atol=1e-5)
    assert probs.calibrator_.input == "probs"
    rounded = Net(wrap=lambda out: (out.softmax(dim=1) > 0.5).float())
    rounded = CalibratedClassifier(rounded, response_method="probs", zeros_as=0.01)
    with pytest.raises(InputError):
        rounded.fit(x, y)


@pytest.mark.parametrize("shape", [(-1,), (-1, 1)])
def test_a_single_output_speaks_of_the_second_class(shape):
    x, y = tensors()[0], torch.tensor(Y % 2)
    logits = Net(n_out=1, wrap=lambda out: out.reshape(shape))
    clf = CalibratedClassifier(logits, "ts", response_method="logits").fit(x, y)
    probs = Net(n_out=1, wrap=lambda out: out.sigmoid().reshape(shape))
    same = CalibratedClassifier(probs, "ts", response_method="probs").fit(x, y)
    assert clf.predict_proba(x).shape == (240, 2)
    torch.testing.assert_close(same.predict_proba(x), clf.predict_proba(x), rtol=1e-4, atol=1e-5)


def test_names_weights_and_kinds_of_input_for_modules():
    x, y = tensors()
    w = np.arange(240) % 3
    clf = CalibratedClassifier(Net(), "ts", response_method="logits", classes=NAMES[::-1]).fit(X, NAMES[::-1][Y], w)
    by_number = CalibratedClassifier(Net(), "ts", response_method="logits").fit(x, y, w)
    assert clf.calibrator_.temperature_ == pytest.approx(by_number.calibrator_.temperature_, rel=1e-5)
    assert (clf.predict(x) == NAMES[::-1][by_number.predict(x).numpy()]).all()
    assert clf.score(X, NAMES[::-1][Y]) == by_number.score(X, Y)
    embedding = torch.nn.Sequential(torch.nn.Embedding(9, 3), torch.nn.Flatten())  # whole numbers stay whole
    tokens = np.arange(240)[:, None] % 9
    assert CalibratedClassifier(embedding, "ts", response_method="logits").fit(tokens, Y).predict_proba(
        tokens
    ).shape == (
        240,
        3,
    )
    bare = CalibratedClassifier(torch.nn.Softmax(dim=1), "ts", response_method="probs").fit(
        x[:, :3], y
    )  # nothing to sit on
    assert bare.predict_proba(X[:, :3]).dtype == np.float64


@pytest.mark.parametrize(
    "parameters, data, why",
    [
        ({"response_method": None}, (X, Y), "never guessed. Use response_method='logits' or response_method='probs'"),
        ({"response_method": "predict_proba"}, (X, Y), "expected what Net returns"),
        ({"cv": 5}, (X, Y), "cv=5: Net is a torch module, which is used as it is"),
        ({"ensemble": True}, (X, Y), "Net is a torch module, of which there is one"),
        ({"estimator": Net(wrap=lambda out: (out,))}, (X, Y), "got tuple.*select=lambda out"),
        ({"batch_size": 0}, (X, Y), "batch_size=0"),
        ({"classes": ["a", "b"]}, (X, Y), "2 names for 3 columns"),
        ({"classes": list("abc")}, (X, NAMES[Y]), "row 0 is 'akiec', which is not among the 3 classes of Net"),
        ({}, (X, Y + 1), "labels - 1"),
        ({}, (X, None), "requires y to be passed"),
        ({}, (X[:0], Y[:0]), r"got shape \(0, 6\)"),
        ({}, (np.float64(3), Y), r"got shape \(\)"),
        ({}, (3, None), "expected a tensor, an array, or a loader.*got int"),
        ({}, ([], None), "at least one batch"),
        ({}, ([tensors()[0]], None), "inputs without labels"),
        ({}, ([tensors()], Y), "a loader yields its own labels"),
        ({}, ([tensors()], None, np.ones(240)), "a loader may yield rows in any order"),
        ({}, (X.tolist(), None), r"got float.*np.asarray\(X\)"),
    ],
)
def test_what_is_refused_of_modules(parameters, data, why):
    with pytest.raises(AttemperError):
        CalibratedClassifier(**{"estimator": Net(), "response_method": "logits"} | parameters).fit(*data)


def test_a_module_that_fails_is_left_as_it_was():
    net = Net().train()
    with pytest.raises(RuntimeError):
        CalibratedClassifier(net, response_method="logits").fit(X[:, :5], Y)
    assert net.training
    assert net.norm.training


@pytest.mark.slow
def test_torch_is_not_imported_for_scikit_learn():
    program = (
        "import sys, numpy as np; from sklearn.linear_model import LogisticRegression as L\n"
        "from attemper.calibrators.wrapper import CalibratedClassifier as C\n"
        "X = np.random.default_rng(0).normal(size=(60, 2)); C(L(), cv=2).fit(X, X[:, 0] > X[:, 1] / 2).predict(X)\n"
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-W", "ignore", "-c", program], check=True)
