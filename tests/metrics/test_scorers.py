"""Scorers in scikit-learn's searches and cross-validations: metrics of ``predict_proba``, whatever the labels are."""

import copy
import pickle

import numpy as np
import pytest
from sklearn import config_context
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.datasets import load_iris, make_classification
from sklearn.dummy import DummyRegressor
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import brier_score_loss, log_loss
from sklearn.model_selection import GridSearchCV, KFold, cross_val_score, cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC

from attemper import CalibratedClassifier, InputError, InputTypeError, metrics
from attemper.metrics import get_scorer, scorers

X, Y = load_iris(return_X_y=True)
NAMES = np.array(["virginica", "setosa", "versicolor"])[Y]  # sorted they come in another order
TWO_X, TWO_Y = make_classification(n_samples=200, random_state=0)
MODEL = make_pipeline(StandardScaler(), LogisticRegression())


@pytest.mark.parametrize("name", list(scorers))
@pytest.mark.parametrize(
    "x, y", [(X, Y), (X, NAMES), (TWO_X, TWO_Y), (TWO_X, np.where(TWO_Y, "a yes", "no")), (TWO_X, 2 * TWO_Y - 1)]
)
def test_scores_are_the_metrics_of_predict_proba(name, x, y):
    fitted = copy.deepcopy(MODEL).fit(x, y)
    value = scorers[name](fitted, x, y)
    function = getattr(metrics, name.removeprefix("neg_"))
    assert value == pytest.approx(-function(y, fitted.predict_proba(x), classes=list(fitted.classes_)), rel=1e-9)
    assert value <= 0
    assert isinstance(value, float)


def test_proper_scores_are_those_of_scikit_learn():
    fitted = copy.deepcopy(MODEL).fit(X, NAMES)
    p = fitted.predict_proba(X)
    assert scorers["neg_nll"](fitted, X, NAMES) == pytest.approx(-log_loss(NAMES, p))
    fitted = copy.deepcopy(MODEL).fit(TWO_X, TWO_Y)
    expected = -2 * brier_score_loss(TWO_Y, fitted.predict_proba(TWO_X)[:, 1])
    assert scorers["neg_brier"](fitted, TWO_X, TWO_Y) == pytest.approx(expected)


def test_a_search_and_a_cross_validation():
    grid = {"logisticregression__C": [1e-3, 1.0, 1e6]}
    search = GridSearchCV(MODEL, grid, scoring=scorers["neg_nll"], cv=3).fit(X, NAMES)
    assert search.best_params_ == GridSearchCV(MODEL, grid, scoring="neg_log_loss", cv=3).fit(X, NAMES).best_params_
    found = cross_val_score(MODEL, X, NAMES, scoring=get_scorer("neg_ece", n_bins=5, norm=2), cv=4)
    assert found.shape == (4,)
    assert (found <= 0).all()
    assert (found > -1).all()
    assert cross_val_score(CalibratedClassifier(LinearSVC()), X, NAMES, scoring=scorers["neg_ece"], cv=3).shape == (3,)


def test_all_at_once_predict_once():
    class Counting(LogisticRegression):
        calls = 0

        def predict_proba(self, X):
            Counting.calls += 1
            return super().predict_proba(X)

    found = cross_validate(Counting(), TWO_X, TWO_Y, scoring=dict(scorers), cv=2)
    assert {f"test_{name}" for name in scorers} <= set(found)
    assert Counting.calls == 2


def test_a_class_that_a_fold_lacks_is_still_a_column():
    first = np.argsort(Y, kind="stable")  # one class after the other: a fold has one or two of three
    trained = copy.deepcopy(MODEL).fit(X, NAMES)
    rows = first[:40]
    assert set(NAMES[rows]) == {"virginica"}
    expected = metrics.ece(["virginica"] * 40, trained.predict_proba(X[rows]), classes=sorted(set(NAMES)))
    assert scorers["neg_ece"](trained, X[rows], NAMES[rows]) == pytest.approx(-expected)
    # A class that was not trained on is named.
    small = copy.deepcopy(MODEL).fit(X[Y != 2], NAMES[Y != 2])
    with pytest.raises(InputError):
        scorers["neg_ece"](small, X, NAMES)


def test_votes_of_exactly_zero_and_one():
    forest = RandomForestClassifier(5, random_state=0).fit(TWO_X[:100], TWO_Y[:100])
    p = forest.predict_proba(TWO_X)
    assert {0.0, 1.0} <= set(p[:, 1])
    for kind in ("top", "binary", "classwise", "top_label"):
        found = get_scorer("neg_ece", kind=kind, n_bins=10)(forest, TWO_X, TWO_Y)
        assert found == pytest.approx(-metrics.ece(TWO_Y, p, kind=kind, n_bins=10))


def test_weights_come_by_metadata_routing():
    w = np.random.default_rng(0).integers(1, 5, size=len(Y)).astype(float)
    fitted = copy.deepcopy(MODEL).fit(X, NAMES)
    expected = -metrics.nll(NAMES, fitted.predict_proba(X), classes=list(fitted.classes_), sample_weight=w)
    assert scorers["neg_nll"](fitted, X, NAMES, sample_weight=w) == pytest.approx(expected)
    cv = KFold(3, shuffle=True, random_state=0)
    with config_context(enable_metadata_routing=True):
        model = LogisticRegression(max_iter=1000).set_fit_request(sample_weight=False)
        scorer = scorers["neg_nll"].set_score_request(sample_weight=True)
        found = cross_validate(model, X, NAMES, scoring=scorer, cv=cv, params={"sample_weight": w})["test_score"]
    for value, (train, test) in zip(found, cv.split(X)):
        model = LogisticRegression(max_iter=1000).fit(X[train], NAMES[train])
        p = model.predict_proba(X[test])
        assert value == pytest.approx(-metrics.nll(NAMES[test], p, classes=list(model.classes_), sample_weight=w[test]))
    assert not hasattr(scorers["neg_nll"], "_metadata_request")  # a new one each time


def test_scorers_are_copied_and_shown():
    scorer = get_scorer("neg_ece", n_bins=10, kind="classwise")
    fitted = copy.deepcopy(MODEL).fit(X, Y)
    for other in (copy.deepcopy(scorer), pickle.loads(pickle.dumps(scorer))):
        assert other(fitted, X, Y) == scorer(fitted, X, Y)
    assert repr(scorer) == "get_scorer('neg_ece', n_bins=10, kind='classwise')"
    assert repr(scorers["neg_nll"]) == "get_scorer('neg_nll')"


def test_what_is_no_scorer_is_named():
    with pytest.raises(InputError):
        scorers["ece"]
    with pytest.raises(InputError):
        get_scorer("neg_log_loss")
    with pytest.raises(InputTypeError):
        get_scorer("neg_ece", confidence_level=0.9)


class Nameless(ClassifierMixin, BaseEstimator):
    def fit(self, X, y):
        return self


def test_what_is_no_classifier_is_named():
    for estimator in (LinearSVC().fit(X, Y), DummyRegressor().fit(X, Y), Nameless().fit(X, Y)):
        with pytest.raises(InputTypeError):
            scorers["neg_ece"](estimator, X, Y)
