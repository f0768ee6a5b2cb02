"""`CalibratedClassifier`: equal to what one would do by hand, in every mode."""

from __future__ import annotations

import pickle
import subprocess
import sys
import warnings

import array_api_strict
import joblib
import numpy as np
import pandas as pd
import polars as pl
import pytest
import sklearn
from scipy import sparse
from sklearn.base import clone
from sklearn.datasets import make_classification
from sklearn.ensemble import RandomForestClassifier
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LinearRegression, LogisticRegression, RidgeClassifier
from sklearn.model_selection import (
    GridSearchCV,
    GroupKFold,
    RepeatedStratifiedKFold,
    StratifiedKFold,
    TimeSeriesSplit,
    cross_val_score,
)
from sklearn.naive_bayes import GaussianNB
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
    CalibratedClassifier,
    InputError,
    IsotonicCalibration,
    NotFittedError,
    PlattScaling,
    TemperatureScaling,
)

# Features that say little have no best temperature. That is not the matter here.
pytestmark = pytest.mark.filterwarnings("ignore::attemper.EdgeWarning")

X, Y = make_classification(240, 6, n_informative=4, n_redundant=1, n_classes=3, flip_y=0.1, random_state=0)
NAMES = np.array(["akiec", "bcc", "mel"])
NEW = X[::-1] * 0.9
GROUPS = np.arange(240) // 8


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    """Problems are tiny: on shared cores, threads of the BLAS would mostly wait for each other."""
    with threadpool_limits(1):
        yield


@pytest.mark.slow
@pytest.mark.parametrize(
    "classifier",
    [
        CalibratedClassifier(LogisticRegression()),
        CalibratedClassifier(
            LogisticRegression(), BayesianTemperatureScaling(labels="noisy"), response_method="predict_proba", cv=2
        ),
        CalibratedClassifier(DecisionTreeClassifier(random_state=0), zeros_as=0.01),
    ],
    ids=lambda c: type(c.estimator).__name__,
)
def test_the_whole_of_check_estimator(classifier):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # random features are hard to calibrate, and there are few of them
        results = check_estimator(classifier, on_fail=None, on_skip=None)
    assert not {r["check_name"]: r["exception"] for r in results if r["status"] not in ("passed", "skipped")}
    assert sum(r["status"] == "passed" for r in results) > 55


def test_clone_pickle_and_search():
    clf = CalibratedClassifier(LogisticRegression(C=0.1), TemperatureScaling(t_range=(0.1, 10)), cv=3)
    p = clf.fit(X, Y).predict_proba(NEW)
    assert not hasattr(clone(clf), "calibrator_")
    np.testing.assert_array_equal(clone(clf).fit(X, Y).predict_proba(NEW), p)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(clf)).predict_proba(NEW), p)
    assert not hasattr(clf.method, "map_")  # a clone of it was fitted
    assert not hasattr(clf.estimator, "coef_")
    clf = CalibratedClassifier(LogisticRegression(), BayesianTemperatureScaling(), cv=2)
    grid = {"estimator__C": [1e-4, 1.0], "method__labels": ["clean", "noisy"]}
    search = GridSearchCV(clf, grid, scoring="neg_log_loss", cv=2).fit(X, Y)
    assert search.best_params_["estimator__C"] == 1.0
    assert search.best_estimator_.calibrator_.labels == search.best_params_["method__labels"]


def test_tags_follow_the_estimator():
    for estimator in (LogisticRegression(), GaussianNB(), SVC(kernel="precomputed")):
        assert get_tags(estimator).input_tags == get_tags(CalibratedClassifier(estimator)).input_tags
    assert get_tags(CalibratedClassifier(KNeighborsClassifier())).classifier_tags.multi_label is False


@pytest.mark.parametrize("theirs, ours", [("sigmoid", PlattScaling), ("temperature", TemperatureScaling)])
def test_scikit_learns_names_of_methods(theirs, ours):
    assert type(CalibratedClassifier(LogisticRegression(), theirs, cv=3).fit(X, Y).calibrator_) is ours


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


def test_a_decision_between_two_classes_is_the_log_odds_of_the_second():
    y = (Y > 0).astype(int)
    model = RidgeClassifier().fit(X[:100], y[:100])
    clf = CalibratedClassifier(model, "ts", cv="prefit").fit(X[100:], y[100:])
    d = model.decision_function(X[100:])
    t = TemperatureScaling().fit(np.column_stack([np.zeros_like(d), d]), y[100:]).temperature_
    by_hand = 1 / (1 + np.exp(-model.decision_function(NEW) / t))
    np.testing.assert_allclose(clf.predict_proba(NEW)[:, 1], by_hand, rtol=1e-12)


def test_a_fitted_estimator_is_not_fitted_again_in_silence_and_a_clone_is_none():
    model = LogisticRegression().fit(X, Y)
    with pytest.warns(AttemperWarning):
        CalibratedClassifier(model, "ts").fit(X, Y)
    CalibratedClassifier(model, "ts", cv=2).fit(X, Y)  # asked for
    with pytest.raises(NotFittedError):
        clone(CalibratedClassifier(model, "ts", cv="prefit")).fit(X, Y)
    frozen = CalibratedClassifier(FrozenEstimator(model), "ts")
    assert np.isfinite(cross_val_score(frozen, X, Y, cv=2, scoring="neg_log_loss")).all()


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
    with joblib.parallel_config("threading"):
        two = CalibratedClassifier(model, "ts", cv=4, n_jobs=2).fit(X, Y)
    np.testing.assert_array_equal(two.predict_proba(NEW), expected)


def test_splits_that_hold_rows_out_never_or_often():
    model = LogisticRegression()
    seldom = CalibratedClassifier(model, "ts", cv=TimeSeriesSplit(3)).fit(X, Y)
    assert seldom.calibrator_.fit_report_.n_samples == 180
    # Every row is held out twice, with half of its weight each time: as much evidence as there are rows.
    often = CalibratedClassifier(model, cv=RepeatedStratifiedKFold(n_splits=3, n_repeats=2, random_state=0)).fit(X, Y)
    once = CalibratedClassifier(model, cv=3).fit(X, Y)
    widths = [np.diff(np.log(c.calibrator_.temperature_interval_)) for c in (often, once)]
    assert widths[0] == pytest.approx(widths[1], rel=0.05)


@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame])
def test_class_names_and_tables(frame):
    table = frame(dict(zip("abcdef", X.T)))
    plain = CalibratedClassifier(LogisticRegression(), cv=3).fit(X, Y)
    named = CalibratedClassifier(LogisticRegression(), cv=3).fit(table, NAMES[Y])
    np.testing.assert_allclose(named.predict_proba(table), plain.predict_proba(X), rtol=1e-6)
    assert named.classes_.tolist() == NAMES.tolist()
    assert (named.predict(table) == NAMES[plain.predict(X)]).all()
    assert named.feature_names_in_.tolist() == list("abcdef")
    with pytest.raises(ValueError):
        named.predict_proba(table[list("fedcba")])


def test_sparse_matrices_and_lists():
    dense = CalibratedClassifier(LogisticRegression(tol=1e-8), "ts", cv=3).fit(X, Y).predict_proba(NEW)
    clf = CalibratedClassifier(LogisticRegression(tol=1e-8), "ts", cv=3).fit(sparse.csr_matrix(X), Y)
    np.testing.assert_allclose(clf.predict_proba(sparse.csr_array(NEW)), dense, rtol=1e-4)
    listed = CalibratedClassifier(LogisticRegression(tol=1e-8), "ts", cv=3).fit(X.tolist(), Y.tolist())
    np.testing.assert_array_equal(listed.predict_proba(NEW.tolist()), dense)


@pytest.mark.parametrize("cv", [3, "prefit"])
def test_arrays_of_another_library(cv):
    x, y, new = (array_api_strict.asarray(v) for v in (X, Y, NEW))
    model = LogisticRegression().fit(X, Y) if cv == "prefit" else LogisticRegression()
    found = CalibratedClassifier(model, "ts", cv=cv).fit(x, y, array_api_strict.ones(240)).predict_proba(new)
    expected = CalibratedClassifier(model, "ts", cv=cv).fit(X, Y).predict_proba(NEW)
    np.testing.assert_allclose(found, expected, atol=1e-6)


@pytest.mark.parametrize("method", ["isotonic", "histogram", "bbq", "venn_abers", IsotonicCalibration()], ids=str)
def test_methods_that_heed_the_order_alone_take_zeros_as_they_are(method):
    forest = RandomForestClassifier(20, random_state=0)
    clf = CalibratedClassifier(forest, method, cv=2).fit(X, Y)
    other = CalibratedClassifier(forest, method, cv=2, zeros_as=1e-25).fit(X, Y)
    np.testing.assert_allclose(other.predict_proba(X), clf.predict_proba(X), atol=1e-12)


def test_zeros_of_a_forest_are_half_of_the_smallest_probability():
    forest = RandomForestClassifier(20, random_state=0)
    clf = CalibratedClassifier(forest, cv=2).fit(X, Y)
    assert clf.calibrator_.zeros_as == pytest.approx(0.025)
    told = CalibratedClassifier(forest, cv=2, zeros_as=0.025).fit(X, Y)
    np.testing.assert_allclose(clf.predict_proba(NEW), told.predict_proba(NEW), rtol=1e-12)
    assert (clf.predict_proba(NEW) > 0).all()


@pytest.mark.parametrize("response", ["decision_function", "predict_proba"])
def test_a_class_that_a_fold_has_never_seen(response):
    """The fold's rows of that class are left out; for its other rows the class is impossible."""
    order = np.argsort(Y == 1, kind="stable")  # all rows of class 1 are in the last part
    x, y = X[order], Y[order]
    splits = [(np.arange(60, 240), np.arange(60)), (np.arange(140), np.arange(140, 240))]
    with pytest.warns(AttemperWarning):
        clf = CalibratedClassifier(LogisticRegression(), "ts", response_method=response, cv=splits).fit(x, y)
    assert clf.predict_proba(NEW).shape == (240, 3)
    if response == "predict_proba":
        return
    known = 140 + np.flatnonzero(y[140:] != 1)
    d = LogisticRegression().fit(x[:140], y[:140]).decision_function(x[known])
    second = np.column_stack([np.zeros_like(d), np.full_like(d, -np.inf), d])
    first = LogisticRegression().fit(x[60:], y[60:]).decision_function(x[:60])
    ts = TemperatureScaling().fit(np.r_[first, second], y[np.r_[:60, known]])
    assert clf.calibrator_.temperature_ == pytest.approx(ts.temperature_, rel=1e-6)


# Weights and metadata


def test_weights_count_repeats_and_reach_the_estimator():
    w = np.random.default_rng(0).integers(0, 3, size=240)
    folds = np.arange(240) % 3
    repeated = np.repeat(np.arange(240), w)

    def splits(which):
        return [(np.flatnonzero(which != k), np.flatnonzero(which == k)) for k in range(3)]

    model = LogisticRegression(tol=1e-10, max_iter=1000)
    weighted = CalibratedClassifier(model, cv=splits(folds)).fit(X, Y, sample_weight=w)
    rows = CalibratedClassifier(model, cv=splits(folds[repeated])).fit(X[repeated], Y[repeated])
    np.testing.assert_allclose(weighted.predict_proba(NEW), rows.predict_proba(NEW), rtol=1e-4, atol=1e-6)


def test_weight_zero_is_no_row():
    w = (np.arange(240) % 4 > 0).astype(float)
    x, y = np.where(w[:, None] > 0, X, 1e6), np.where(w > 0, NAMES[Y], "none")  # nonsense that must not matter
    kept = w > 0
    clf = CalibratedClassifier(LogisticRegression(), "ts", cv=3).fit(x, y, w)
    without = CalibratedClassifier(LogisticRegression(), "ts", cv=3).fit(x[kept], y[kept])
    np.testing.assert_allclose(clf.predict_proba(NEW), without.predict_proba(NEW), rtol=1e-6)
    assert clf.classes_.tolist() == NAMES.tolist()
    model = LogisticRegression().fit(x[kept], y[kept])
    clf = CalibratedClassifier(model, "ts", cv="prefit").fit(x, y, w)
    without = CalibratedClassifier(model, "ts", cv="prefit").fit(x[kept], y[kept])
    np.testing.assert_array_equal(clf.predict_proba(NEW), without.predict_proba(NEW))


class Heedful(LogisticRegression):
    """Remembers what its fit was given."""

    def fit(self, X, y, sample_weight=None, a=None, b=None):
        self.given_ = {"n": len(y), "a": a, "b": b, "sample_weight": sample_weight}
        return super().fit(X, y, sample_weight)


def test_everything_is_routed_through_a_search():
    """Weights to wrapper and estimator, groups to both splitters, and a parameter of the estimator's own."""
    w = np.arange(240) % 3 + 1.0
    with sklearn.config_context(enable_metadata_routing=True):
        inner = Heedful().set_fit_request(sample_weight=True, a=True)
        clf = CalibratedClassifier(inner, "ts", cv=GroupKFold(2))
        clf.set_fit_request(sample_weight=True).set_score_request(sample_weight=True)
        search = GridSearchCV(make_pipeline(FunctionTransformer(), clf), {}, cv=GroupKFold(2))
        search.fit(X, Y, sample_weight=w, groups=GROUPS, a=np.arange(240))
        best = search.best_estimator_[-1]
        np.testing.assert_array_equal(best.estimator_.given_["sample_weight"], w)
        np.testing.assert_array_equal(best.estimator_.given_["a"], np.arange(240))
        with pytest.raises(sklearn.exceptions.UnsetMetadataPassedError):
            CalibratedClassifier(Heedful(), "ts").fit(X, Y, sample_weight=w)
    plain = CalibratedClassifier(Heedful(), "ts", cv=GroupKFold(2)).fit(X, Y, w, groups=GROUPS, a=np.arange(240))
    np.testing.assert_array_equal(search.predict_proba(NEW), plain.predict_proba(NEW))


def test_weights_that_the_estimator_does_not_take():
    w = 1 + np.arange(240) % 2
    with pytest.warns(AttemperWarning):
        clf = CalibratedClassifier(KNeighborsClassifier(20), "ts", zeros_as=0.025, cv=2).fit(X, Y, w)
    held = np.empty((240, 3))
    for train, test in StratifiedKFold(2).split(X, Y):
        held[test] = KNeighborsClassifier(20).fit(X[train], Y[train]).predict_proba(X[test])
    ts = TemperatureScaling(input="probs", zeros_as=0.025).fit(held, Y, w)
    assert clf.calibrator_.temperature_ == ts.temperature_


@pytest.mark.parametrize("calibrator", [TemperatureScaling(), IsotonicCalibration()], ids=str)
def test_calibrators_themselves_request_weights(calibrator):
    h = LogisticRegression().fit(X, Y).decision_function(X)
    w = np.arange(240) % 3 + 1.0
    with sklearn.config_context(enable_metadata_routing=True):
        pipe = make_pipeline(FunctionTransformer(), clone(calibrator).set_fit_request(sample_weight=True))
        routed = pipe.fit(h, Y, sample_weight=w).predict_proba(h)
    np.testing.assert_array_equal(routed, clone(calibrator).fit(h, Y, w).predict_proba(h))


# What cannot be done

LR = LogisticRegression


@pytest.mark.parametrize(
    "parameters",
    [
        {"estimator": LinearRegression()},
        {"estimator": LogisticRegression},
        {"estimator": LR(), "response_method": "auto"},
        {"estimator": GaussianNB(), "response_method": "decision_function"},
        {"estimator": LR(), "method": "magic"},
        {"estimator": LR(), "method": TemperatureScaling(input="probs")},
        {"estimator": LR(), "zeros_as": 0.1},
        {"estimator": LR(), "cv": "fit"},
        {"estimator": LR(), "cv": "prefit"},
        {"estimator": LR(), "cv": [(np.flatnonzero(Y == 1), np.flatnonzero(Y == 2))]},
        {"estimator": make_pipeline(StandardScaler(), SVC(decision_function_shape="ovo"))},
    ],
    ids=lambda value: "-".join(f"{k}={v!r}" for k, v in value.items())[:60],
)
def test_parameters_that_are_refused(parameters):
    with pytest.raises(AttemperError):
        CalibratedClassifier(**parameters).fit(X, Y)


@pytest.mark.parametrize(
    "x, y, w",
    [
        (X, None, None),
        (X, Y[:-1], None),
        (X, np.eye(3)[Y], None),
        (X, Y + 0.5, None),
        (X[:0], Y[:0], None),
        (X, np.zeros(240), None),
        (X, Y, np.zeros(240)),
        (X, Y, (Y == 1).astype(float)),
        (X, np.ma.array(Y, mask=np.arange(240) == 7), None),
    ],
)
def test_data_that_are_refused(x, y, w):
    with pytest.raises(AttemperError):
        CalibratedClassifier(LogisticRegression()).fit(x, y, w)


def test_a_failed_fit_leaves_the_earlier_one_alone():
    clf = CalibratedClassifier(LogisticRegression(), "ts", cv=2)
    with pytest.raises(NotFittedError):
        clf.predict(X)
    p = clf.fit(X, Y).predict_proba(NEW)
    with pytest.raises(InputError):
        clf.fit(X, Y[:-1])
    np.testing.assert_array_equal(clf.predict_proba(NEW), p)
    with pytest.raises(InputError):
        CalibratedClassifier(LogisticRegression().fit(X, NAMES[Y]), cv="prefit").fit(X[:3], ["mel", "bcc", "nv"])


def test_torch_is_not_imported_for_scikit_learn():
    code = (
        "import sys, numpy as np\n"
        "from attemper import CalibratedClassifier as C\n"
        "from sklearn.linear_model import LogisticRegression as L\n"
        "X = np.random.default_rng(0).normal(size=(60, 2)); C(L(), 'ts').fit(X, (X[:, 0] + X[:, 1] ** 2 > 0) * 1)\n"
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
