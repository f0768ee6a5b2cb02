"""`CalibratedClassifier` as scikit-learn's users know classifiers: names, metadata, folds, votes, frames, files."""

from __future__ import annotations

import json

import array_api_strict
import joblib
import numpy as np
import pandas as pd
import polars as pl
import pytest
import sklearn
import torch
from array_api_compat import array_namespace
from hypothesis import given
from hypothesis import strategies as st
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.datasets import make_classification
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.ensemble import (
    BaggingClassifier,
    ExtraTreesClassifier,
    HistGradientBoostingClassifier,
    RandomForestClassifier,
    VotingClassifier,
)
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from sklearn.model_selection import (
    GridSearchCV,
    GroupKFold,
    KFold,
    LeaveOneOut,
    StratifiedKFold,
    cross_val_predict,
    cross_val_score,
)
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler
from sklearn.svm import LinearSVC
from sklearn.tree import DecisionTreeClassifier
from threadpoolctl import threadpool_limits

import attemper
from attemper import (
    AttemperError,
    CalibratedClassifier,
    FileError,
    InputError,
    IsotonicCalibration,
    PlattScaling,
    TemperatureScaling,
)
from attemper.calibrators.wrapper.methods import ALIASES
from attemper.calibrators.wrapper.votes import half_a_vote
from attemper.errors import naming_flags

pytestmark = pytest.mark.filterwarnings("ignore::attemper.EdgeWarning")

X, Y = make_classification(240, 6, n_informative=4, n_redundant=1, n_classes=3, flip_y=0.1, random_state=0)
TWO = (Y > 0).astype(int)
NEW = X[::-1] * 0.9
NAMES = np.array(["akiec", "bcc", "mel"])
GROUPS = np.arange(240) // 8


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    with threadpool_limits(1):
        yield


# Names of methods


@pytest.mark.parametrize("theirs, ours", [("sigmoid", PlattScaling), ("temperature", TemperatureScaling)])
def test_scikit_learns_names_of_methods(theirs, ours):
    by_name = CalibratedClassifier(LogisticRegression(), theirs, cv=3).fit(X, Y)
    assert type(by_name.calibrator_) is ours
    own = CalibratedClassifier(LogisticRegression(), ALIASES[theirs], cv=3).fit(X, Y)
    np.testing.assert_array_equal(by_name.predict_proba(NEW), own.predict_proba(NEW))
    assert clone(by_name).method == theirs
    isotonic = CalibratedClassifier(LogisticRegression(), "isotonic", cv=3).fit(X, Y)
    assert isinstance(isotonic.calibrator_, IsotonicCalibration)


def test_an_unknown_name_lists_them_all():
    with pytest.raises(InputError):
        CalibratedClassifier(LogisticRegression(), "plat").fit(X, Y)


# Folds


@pytest.mark.parametrize("ensemble", [False, True])
def test_n_jobs_gives_the_same_numbers(ensemble):
    one = CalibratedClassifier(LogisticRegression(), "ts", cv=3, ensemble=ensemble).fit(X, Y)
    with joblib.parallel_config("threading"):
        two = CalibratedClassifier(LogisticRegression(), "ts", cv=3, ensemble=ensemble, n_jobs=2).fit(X, Y)
    np.testing.assert_array_equal(one.predict_proba(NEW), two.predict_proba(NEW))


@pytest.mark.slow
def test_n_jobs_in_processes():
    one = CalibratedClassifier(GaussianNB(), "ts", cv=3, response_method="predict_log_proba").fit(X, Y)
    two = clone(one).set_params(n_jobs=2).fit(X, Y)
    np.testing.assert_array_equal(one.predict_proba(NEW), two.predict_proba(NEW))


def test_ensemble_auto_is_scikit_learns_default():
    assert hasattr(CalibratedClassifier(LogisticRegression(), "ts", cv=3, ensemble="auto").fit(X, Y), "estimators_")
    model = LogisticRegression().fit(X, Y)
    for fitted in ({"estimator": model, "cv": "prefit"}, {"estimator": FrozenEstimator(model)}):
        assert hasattr(CalibratedClassifier(**fitted, method="ts", ensemble="auto").fit(X, Y), "estimator_")
    with pytest.raises(InputError):
        CalibratedClassifier(LogisticRegression(), ensemble="yes").fit(X, Y)


def test_an_ensemble_of_calibrators_behind_one_frozen_estimator():
    model = LogisticRegression().fit(X[:100], NAMES[Y[:100]])
    x, y = X[100:], NAMES[Y[100:]]
    clf = CalibratedClassifier(FrozenEstimator(model), "ts", cv=3, ensemble=True).fit(x, y)
    parts = []
    for _, held in StratifiedKFold(3).split(x, y):
        ts = TemperatureScaling().fit(model.decision_function(x[held]), Y[100:][held])
        parts.append(ts.predict_proba(model.decision_function(NEW)))
    np.testing.assert_allclose(clf.predict_proba(NEW), np.mean(parts, axis=0), rtol=1e-12)
    # The estimator may know a class that the rows have not.
    seen = y != "bcc"
    some = CalibratedClassifier(FrozenEstimator(model), "ts", cv=3, ensemble=True).fit(x[seen], y[seen])
    assert some.classes_.tolist() == NAMES.tolist()
    assert some.predict_proba(NEW).shape == (240, 3)


def test_more_folds_than_rows_are_refused():
    np.bincount(Y).max()
    with pytest.raises(InputError):
        CalibratedClassifier(LogisticRegression(), "ts", cv=241).fit(X, Y)
    for cv in (LeaveOneOut(), KFold(150)):
        with pytest.raises(InputError):
            CalibratedClassifier(LogisticRegression(), "ts", cv=cv, ensemble=True).fit(X, Y)


def test_the_whole_is_an_estimator_among_others():
    clf = CalibratedClassifier(LinearSVC(), "sigmoid", cv=2)
    p = cross_val_predict(make_pipeline(StandardScaler(), clf), X, Y, cv=2, method="predict_proba")
    np.testing.assert_allclose(p.sum(axis=1), 1)
    search = GridSearchCV(clf, {"method": ["sigmoid", "temperature", "isotonic"], "ensemble": [True, False]}, cv=2)
    assert search.fit(X, Y).best_score_ > 0.5
    assert np.isfinite(cross_val_score(clf, X, TWO, cv=2, scoring="neg_brier_score")).all()


# Metadata


class Heedful(LogisticRegression):
    """Remembers what its fit was given."""

    def fit(self, X, y, sample_weight=None, a=None, b=None):
        self.given_ = {"n": len(y), "a": a, "b": b, "sample_weight": sample_weight}
        return super().fit(X, y, sample_weight)


@pytest.mark.parametrize("kind", [list, np.asarray, pd.Series])
def test_fit_params_go_to_the_estimator_row_by_row(kind):
    a, other = kind(np.arange(240)), np.ones(7)
    clf = CalibratedClassifier(Heedful(), "ts", cv=3, ensemble=True).fit(X, Y, a=a, b=other)
    for (train, _), estimator in zip(StratifiedKFold(3).split(X, Y), clf.estimators_):
        np.testing.assert_array_equal(np.asarray(estimator.given_["a"]), train)
        assert estimator.given_["b"] is other
        assert estimator.given_["sample_weight"] is None
    whole = CalibratedClassifier(Heedful(), "ts", cv=3).fit(X, Y, a=a, b="text")
    np.testing.assert_array_equal(np.asarray(whole.estimator_.given_["a"]), np.arange(240))
    assert whole.estimator_.given_["b"] == "text"
    with pytest.raises(TypeError):
        CalibratedClassifier(Heedful(), "ts", cv=3).fit(X, Y, c=1)


def test_fit_params_that_nobody_takes_are_refused():
    model = LogisticRegression().fit(X, Y)
    for fitted in (CalibratedClassifier(model, cv="prefit"), CalibratedClassifier(FrozenEstimator(model))):
        with pytest.raises(InputError):
            fitted.fit(X, Y, a=1)
    with pytest.raises(InputError):
        CalibratedClassifier(torch.nn.Linear(6, 3), response_method="logits").fit(X, Y, groups=GROUPS)


@pytest.mark.parametrize("routing", [False, True])
def test_groups_go_to_the_splitter(routing):
    splits = list(GroupKFold(3).split(X, Y, GROUPS))
    expected = CalibratedClassifier(LogisticRegression(), "ts", cv=splits).fit(X, Y).predict_proba(NEW)
    with sklearn.config_context(enable_metadata_routing=routing):
        clf = CalibratedClassifier(LogisticRegression(), "ts", cv=GroupKFold(3)).fit(X, Y, groups=GROUPS)
        np.testing.assert_array_equal(clf.predict_proba(NEW), expected)


def test_groups_need_a_splitter_of_groups():
    with pytest.raises(InputError):
        CalibratedClassifier(LogisticRegression(), cv=4).fit(X, Y, groups=GROUPS)
    with pytest.raises(InputError):
        CalibratedClassifier(LogisticRegression(), cv=GroupKFold(3)).fit(X, Y)


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
        # What nobody requested is scikit-learn's error.
        with pytest.raises(sklearn.exceptions.UnsetMetadataPassedError):
            CalibratedClassifier(Heedful(), "ts").fit(X, Y, sample_weight=w)
    plain = CalibratedClassifier(Heedful(), "ts", cv=GroupKFold(2)).fit(X, Y, w, groups=GROUPS, a=np.arange(240))
    np.testing.assert_array_equal(search.predict_proba(NEW), plain.predict_proba(NEW))


@pytest.mark.parametrize("calibrator", [TemperatureScaling(), IsotonicCalibration()], ids=str)
def test_calibrators_themselves_request_weights(calibrator):
    h = LogisticRegression().fit(X, Y).decision_function(X)
    w = np.arange(240) % 3 + 1.0
    with sklearn.config_context(enable_metadata_routing=True):
        pipe = make_pipeline(FunctionTransformer(), clone(calibrator).set_fit_request(sample_weight=True))
        routed = pipe.fit(h, Y, sample_weight=w).predict_proba(h)
        scored = clone(calibrator).set_score_request(sample_weight=True)
        assert scored.fit(h, Y).score(h, Y, sample_weight=w) > 0.5
    np.testing.assert_array_equal(routed, clone(calibrator).fit(h, Y, w).predict_proba(h))


# Votes


def smallest_by_hand(probabilities):
    return probabilities[probabilities > 0].min()


@given(
    trees=st.integers(1, 12),
    leaf=st.integers(1, 9),
    seed=st.integers(0, 50),
    forest=st.sampled_from([RandomForestClassifier, ExtraTreesClassifier]),
)
def test_half_a_vote_is_below_all_that_a_forest_can_say(trees, leaf, seed, forest):
    model = forest(trees, min_samples_leaf=leaf, random_state=seed).fit(X, Y)
    half = half_a_vote([model])
    assert 0 < half < smallest_by_hand(model.predict_proba(X))
    # The oracle: the smallest share of any tree, when all others vote for other classes.
    least = min(smallest_by_hand(tree.predict_proba(X)) for tree in model.estimators_)
    assert half <= least / trees / 2 * (1 + 1e-12)
    if leaf == 1:
        assert half == pytest.approx(0.5 / trees)


@pytest.mark.parametrize(
    "model, votes",
    [
        (KNeighborsClassifier(7), 7),
        (BaggingClassifier(LinearSVC(), 6, random_state=0), 6),
        (BaggingClassifier(DecisionTreeClassifier(), 6, random_state=0), 6),
        (BaggingClassifier(KNeighborsClassifier(5), 4, random_state=0), 20),
        (DecisionTreeClassifier(random_state=0), 1),
        (make_pipeline(StandardScaler(), RandomForestClassifier(9)), 9),
        (GridSearchCV(RandomForestClassifier(), {"n_estimators": [8]}, cv=2), 8),
        (VotingClassifier([("a", KNeighborsClassifier(4)), ("b", RandomForestClassifier(2))], voting="soft"), 8),
        (
            VotingClassifier(
                [("a", KNeighborsClassifier(4)), ("b", DecisionTreeClassifier())], voting="soft", weights=[3, 1]
            ),
            16 / 3,
        ),
    ],
    ids=lambda value: type(value).__name__,
)
def test_votes_that_are_known(model, votes):
    model = clone(model).fit(X, Y)
    assert half_a_vote([model]) == pytest.approx(0.5 / votes if votes != 16 / 3 else 3 / 16 / 2)
    assert half_a_vote([FrozenEstimator(model), model]) == half_a_vote([model])
    clf = CalibratedClassifier(model, "ts", cv="prefit").fit(X, Y)
    if clf.response_method_ == "predict_proba":
        assert clf.calibrator_.zeros_as == half_a_vote([model])
        assert (clf.predict_proba(NEW) > 0).all()
        told = CalibratedClassifier(model, "ts", cv="prefit", zeros_as=clf.calibrator_.zeros_as).fit(X, Y)
        np.testing.assert_array_equal(clf.predict_proba(NEW), told.predict_proba(NEW))


@pytest.mark.parametrize(
    "model",
    [
        GaussianNB(),
        KNeighborsClassifier(weights="distance"),
        HistGradientBoostingClassifier(max_iter=2),
        BaggingClassifier(GaussianNB(), 3),
        VotingClassifier([("a", KNeighborsClassifier()), ("b", GaussianNB())], voting="soft"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_votes_that_are_not_known(model):
    assert half_a_vote([model.fit(X, Y)]) is None
    assert half_a_vote([model, KNeighborsClassifier().fit(X, Y)]) is None


@pytest.mark.parametrize("weights", [None, [3, 1, 1]])
@pytest.mark.parametrize("piped", [False, True])
def test_votes_that_are_counted(weights, piped):
    """A hard vote has no probabilities; the shares of the votes are calibrated."""
    members = [("a", LogisticRegression()), ("b", KNeighborsClassifier()), ("c", DecisionTreeClassifier(max_depth=2))]
    model = VotingClassifier(members, weights=weights)
    model = make_pipeline(StandardScaler(), model) if piped else model
    assert not hasattr(model, "predict_proba")
    clf = CalibratedClassifier(model, "ts", cv=2).fit(X, NAMES[Y])
    assert clf.response_method_ == "predict_proba"
    total = 3 if weights is None else 5
    assert clf.calibrator_.zeros_as == pytest.approx(0.5 / total)
    voting = clf.estimator_[-1] if piped else clf.estimator_
    x = clf.estimator_[0].transform(NEW) if piped else NEW
    shares = np.zeros((240, 3))
    for weight, member in zip(weights or [1, 1, 1], voting.estimators_):
        shares[np.arange(240), member.predict(x)] += weight / total
    np.testing.assert_allclose(clf.predict_proba(NEW), clf.calibrator_.predict_proba(shares), rtol=1e-12)
    agreed = shares.max(axis=1) > 0.5
    assert (clf.predict(NEW) == clf.estimator_.predict(NEW))[agreed].all()
    for wrong in ("predict_log_proba", "decision_function"):
        with pytest.raises(InputError):
            clone(clf).set_params(response_method=wrong).fit(X, Y)


def test_a_forest_in_folds_takes_half_a_vote_by_itself():
    forest = RandomForestClassifier(20, random_state=0)
    for ensemble in (False, True):
        clf = CalibratedClassifier(forest, cv=2, ensemble=ensemble).fit(X, Y)
        told = CalibratedClassifier(forest, cv=2, ensemble=ensemble, zeros_as=0.025).fit(X, Y)
        np.testing.assert_array_equal(clf.predict_proba(NEW), told.predict_proba(NEW))
    # A zero of something else is still a question.
    with pytest.raises(InputError):
        CalibratedClassifier(KNeighborsClassifier(3, weights="distance"), "ts", cv=2).fit(X, Y)
    # Logarithms of zeros are none; the error has the way out.
    with pytest.raises(InputError):
        CalibratedClassifier(forest, "ts", cv=2, response_method="predict_log_proba").fit(X, Y)


# Arrays and frames


class Linear(ClassifierMixin, BaseEstimator):
    """Answers in the library that it is asked in, as scikit-learn's do where ``array_api_dispatch`` is set."""

    def fit(self, X, y, sample_weight=None):
        assert type(y) is type(X) or not hasattr(X, "__array_namespace__")
        model = LinearDiscriminantAnalysis().fit(np.asarray(X), np.asarray(y))
        self.classes_, self.coef_, self.intercept_ = model.classes_, model.coef_.T, model.intercept_
        return self

    def decision_function(self, X):
        xp = array_namespace(X)
        d = X @ xp.asarray(self.coef_) + xp.asarray(self.intercept_)
        return d[:, 0] if len(self.classes_) == 2 else d

    def predict_proba(self, X):
        xp, d = array_namespace(X), self.decision_function(X)
        e = xp.exp(xp.stack([xp.zeros_like(d), d], axis=1) if d.ndim == 1 else d)
        return e / xp.sum(e, axis=1, keepdims=True)


LIBRARIES = pytest.mark.parametrize("library", [array_api_strict, torch], ids=["array_api_strict", "torch"])


@LIBRARIES
@pytest.mark.parametrize("response", ["decision_function", "predict_proba"])
@pytest.mark.parametrize("how", ["folds", "ensemble", "prefit"])
def test_arrays_come_back_in_the_library_of_the_estimator(library, response, how):
    x, y, new = (library.asarray(v) for v in (X, Y, NEW.copy()))
    parameters = {"folds": {"cv": 3}, "ensemble": {"cv": 3, "ensemble": True}, "prefit": {"cv": "prefit"}}[how]
    expected = CalibratedClassifier(Linear().fit(X, Y), "ts", response_method=response, **parameters).fit(X, Y)
    clf = clone(expected).set_params(estimator=Linear().fit(x, y))
    clf.fit(x, y, library.ones(240) if how != "folds" else None)
    p, log_p, labels = clf.predict_proba(new), clf.predict_log_proba(new), clf.predict(new)
    assert type(p) is type(log_p) is type(labels) is type(x)
    np.testing.assert_allclose(np.asarray(p), expected.predict_proba(NEW), rtol=1e-6)
    np.testing.assert_allclose(np.asarray(log_p), expected.predict_log_proba(NEW), rtol=1e-6, atol=1e-8)
    np.testing.assert_array_equal(np.asarray(labels), expected.predict(NEW))


@LIBRARIES
def test_two_classes_and_unseen_ones_in_another_library(library):
    x, new = library.asarray(X), library.asarray(NEW.copy())
    two = CalibratedClassifier(Linear(), "platt", cv=3).fit(X, TWO).predict_proba(NEW)
    found = CalibratedClassifier(Linear(), "platt", cv=3).fit(x, library.asarray(TWO)).predict_proba(new)
    assert type(found) is type(x)
    np.testing.assert_allclose(np.asarray(found), two, rtol=1e-6)
    order = np.argsort(Y == 1, kind="stable")
    x, y = X[order], Y[order]
    splits = [(np.arange(60, 240), np.arange(60)), (np.arange(140), np.arange(140, 240))]
    for response in ("decision_function", "predict_proba"):
        clf = CalibratedClassifier(Linear(), "ts", response_method=response, cv=splits, ensemble=True)
        with pytest.warns(attemper.AttemperWarning):
            expected = clf.fit(x, y).predict_proba(NEW)
        with pytest.warns(attemper.AttemperWarning):
            clf.fit(library.asarray(x), library.asarray(y))
        found = clf.predict_proba(new)
        assert type(found) is type(new)
        np.testing.assert_allclose(np.asarray(found), expected, rtol=1e-6)


@LIBRARIES
def test_text_as_labels_where_the_library_has_none(library, tmp_path, monkeypatch):
    """As scikit-learn's own tests, which tests/scikit_learn runs, with a file."""
    expected = CalibratedClassifier(Linear(), "ts", cv=3).fit(X, NAMES[Y])
    monkeypatch.setattr("attemper.calibrators.wrapper.fits.get_config", lambda: {"array_api_dispatch": True})
    clf = CalibratedClassifier(Linear(), "ts", cv=3).fit(library.asarray(X), NAMES[Y])
    new = library.asarray(NEW.copy())
    assert clf.classes_.tolist() == NAMES.tolist()
    assert clf.predict(new).tolist() == expected.predict(NEW).tolist()
    clf.save(tmp_path / "map.json")
    again = CalibratedClassifier.load(tmp_path / "map.json", clf.estimator_)
    assert again.predict(new).tolist() == expected.predict(NEW).tolist()


@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame])
def test_frames(frame):
    columns = {name: X[:, k] for k, name in enumerate("abcdef")}
    series = pd.Series if frame is pd.DataFrame else pl.Series
    plain = CalibratedClassifier(LogisticRegression(), "ts", cv=3).fit(X, NAMES[Y], TWO + 1)
    clf = CalibratedClassifier(LogisticRegression(), "ts", cv=3).fit(
        frame(columns), series(NAMES[Y].tolist()), series((TWO + 1).tolist())
    )
    assert clf.feature_names_in_.tolist() == list("abcdef")
    np.testing.assert_array_equal(clf.predict_proba(frame(columns)), plain.predict_proba(X))


def test_a_decision_function_of_one_column():
    """N and N×1 are the log-odds of the second class."""

    class Column(RidgeClassifier):
        def decision_function(self, X):
            return super().decision_function(X)[:, None]

    flat = CalibratedClassifier(RidgeClassifier(), "platt", cv=3).fit(X, TWO)
    column = CalibratedClassifier(Column(), "platt", cv=3).fit(X, TWO)
    np.testing.assert_array_equal(flat.predict_proba(NEW), column.predict_proba(NEW))


# Files


@pytest.mark.parametrize("ensemble", [False, True])
@pytest.mark.parametrize("method", ["ts", "sigmoid", "isotonic", "bayes"])
def test_a_file_and_the_estimator_are_the_whole(tmp_path, method, ensemble):
    path = tmp_path / "net.attemper.json"
    model = make_pipeline(StandardScaler(), RandomForestClassifier(10, random_state=0))
    clf = CalibratedClassifier(model, method, cv=2, ensemble=ensemble).fit(X, NAMES[Y])
    clf.save(path)
    estimator = clf.estimators_ if ensemble else clf.estimator_
    for again in (CalibratedClassifier.load(path, estimator), attemper.load(path, estimator=estimator)):
        np.testing.assert_array_equal(again.predict_proba(NEW), clf.predict_proba(NEW))
        np.testing.assert_array_equal(again.predict(NEW), clf.predict(NEW))
        assert again.classes_.tolist() == NAMES.tolist()
        assert again.n_features_in_ == 6
        assert again.response_method_ == "predict_proba"
        again.save(tmp_path / "again.json")
        assert (tmp_path / "again.json").read_bytes() == path.read_bytes()
    assert "RandomForest" not in path.read_text() or json.loads(path.read_text())["estimator"] == "Pipeline"
    if not ensemble:  # it can be fitted again, on data of today
        assert again.fit(X[:100], NAMES[Y[:100]]).predict_proba(NEW).shape == (240, 3)


def test_a_module_and_its_file(tmp_path):
    torch.manual_seed(0)
    net, x = torch.nn.Linear(6, 3), torch.tensor(X, dtype=torch.float32)
    for classes in (None, NAMES[::-1].tolist()):
        y = Y if classes is None else np.asarray(classes)[Y]
        clf = CalibratedClassifier(net, "ts", response_method="logits", classes=classes, batch_size=7).fit(x, y)
        clf.save(tmp_path / "net.json")
        again = CalibratedClassifier.load(tmp_path / "net.json", net)
        torch.testing.assert_close(again.predict_proba(x), clf.predict_proba(x), rtol=0, atol=0)
        assert list(again.predict(x)) == list(clf.predict(x))
        assert again.batch_size == 7
    wrapped = CalibratedClassifier.load(
        tmp_path / "net.json", torch.nn.Sequential(net), select=lambda out: out.double()
    )
    torch.testing.assert_close(wrapped.predict_proba(x), clf.predict_proba(x), check_dtype=False)
    with pytest.raises(InputError):
        CalibratedClassifier.load(tmp_path / "net.json", LogisticRegression().fit(X, Y))


def test_a_file_and_another_estimator(tmp_path):
    path = tmp_path / "net.json"
    model = LogisticRegression().fit(X, NAMES[Y])
    CalibratedClassifier(model, "ts", cv="prefit").fit(X, NAMES[Y]).save(path)
    wrong = {
        r"without the classifier; expected the fitted LogisticRegression, got none": None,
        "LogisticRegression is not fitted": LogisticRegression(),
        r"classes 'akiec', 'bcc', 'mel', as .*net.json has, got LogisticRegression of 0, 1, 2": clone(model).fit(X, Y),
        "expected a classifier of 6 features.*of 5": clone(model).fit(X[:, 1:], NAMES[Y]),
        "GaussianNB it can be 'predict_proba'": GaussianNB().fit(X, NAMES[Y]),
        "expected a scikit-learn classifier": torch.nn.Linear(6, 3),
        "got a list": [model],
    }
    for estimator in wrong.values():
        with pytest.raises(AttemperError):
            CalibratedClassifier.load(path, estimator)
    with pytest.raises(AttemperError):
        attemper.load(path)
    with naming_flags(), pytest.raises(AttemperError):
        attemper.load(path)
    clf = CalibratedClassifier(LogisticRegression(), "ts", cv=2, ensemble=True).fit(X, Y)
    clf.save(path)
    for estimator, _got in ((clf.estimators_[0], "LogisticRegression"), (clf.estimators_[:1], "1")):
        with pytest.raises(InputError):
            CalibratedClassifier.load(path, estimator)
    clf.calibrators_[0].save(path)
    with pytest.raises(FileError):
        CalibratedClassifier.load(path, model)
    with pytest.raises(InputError):
        attemper.load(path, estimator=model)
    with pytest.raises(attemper.NotFittedError):
        CalibratedClassifier(model).save(path)


@pytest.mark.parametrize(
    "change",
    [
        {"calibrators": []},
        {"calibrators": [3]},
        {"calibrators": [{}]},
        {"classes": ["a", "a", "b"]},
        {"classes": ["a", "b"]},
        {"classes": [["a"], "b", "c"]},
        {"response_method": "predict_proba"},
        {"response_method": "__class__"},
        {"ensemble": "no"},
        {"batch_size": None},
        {"schema": 99},
    ],
    ids=str,
)
def test_files_that_are_damaged(tmp_path, change):
    path = tmp_path / "net.json"
    model = LogisticRegression().fit(X, Y)
    CalibratedClassifier(model, "ts", cv="prefit").fit(X, Y).save(path)
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(FileError):
        CalibratedClassifier.load(path, model)


def test_class_names_that_no_file_can_hold(tmp_path):
    model = LogisticRegression().fit(X, Y)
    clf = CalibratedClassifier(model, "ts", cv="prefit").fit(X, Y)
    clf.classes_ = np.array([None, (1, 2), "c"], dtype=object)
    with pytest.raises(InputError):
        clf.save(tmp_path / "net.json")


@pytest.mark.parametrize("name, value", [("axis", 1), ("ignore_index", 0)])
def test_calibrators_with_parameters_of_other_inputs(name, value):
    with pytest.raises(InputError):
        CalibratedClassifier(LogisticRegression(), TemperatureScaling(**{name: value})).fit(X, Y)
