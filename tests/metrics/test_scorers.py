"""Scorers in scikit-learn's searches and cross-validations: metrics of ``predict_proba``, whatever the labels are."""

import copy
import pickle

import numpy as np
import pytest
from sklearn.datasets import load_iris, make_classification
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import brier_score_loss, log_loss
from sklearn.model_selection import GridSearchCV, cross_val_score, cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC

from attemper import CalibratedClassifier, InputError, InputTypeError, metrics
from attemper.metrics import get_scorer
from attemper.metrics.scoring import MEASURES

X, Y = load_iris(return_X_y=True)
NAMES = np.array(["virginica", "setosa", "versicolor"])[Y]  # sorted they come in another order
TWO_X, TWO_Y = make_classification(n_samples=200, random_state=0)
MODEL = make_pipeline(StandardScaler(), LogisticRegression())


@pytest.mark.parametrize("name", list(MEASURES))
@pytest.mark.parametrize("x, y", [(X, NAMES), (TWO_X, np.where(TWO_Y, "a yes", "no")), (TWO_X, 2 * TWO_Y - 1)])
def test_scores_are_the_metrics_of_predict_proba(name, x, y):
    fitted = copy.deepcopy(MODEL).fit(x, y)
    value = get_scorer(name)(fitted, x, y)
    function = getattr(metrics, name.removeprefix("neg_"))
    assert value == pytest.approx(-function(y, fitted.predict_proba(x), classes=list(fitted.classes_)), rel=1e-9)
    assert value <= 0
    assert isinstance(value, float)


def test_proper_scores_are_those_of_scikit_learn():
    fitted = copy.deepcopy(MODEL).fit(X, NAMES)
    w = np.arange(len(Y)) % 3 + 1.0
    expected = -log_loss(NAMES, fitted.predict_proba(X), sample_weight=w)
    assert get_scorer("neg_nll")(fitted, X, NAMES, sample_weight=w) == pytest.approx(expected)
    fitted = copy.deepcopy(MODEL).fit(TWO_X, TWO_Y)
    expected = -2 * brier_score_loss(TWO_Y, fitted.predict_proba(TWO_X)[:, 1])
    assert get_scorer("neg_brier")(fitted, TWO_X, TWO_Y) == pytest.approx(expected)


def test_a_search_and_a_cross_validation():
    grid = {"logisticregression__C": [1e-3, 1.0, 1e6]}
    search = GridSearchCV(MODEL, grid, scoring=get_scorer("neg_nll"), cv=3).fit(X, NAMES)
    assert search.best_params_ == GridSearchCV(MODEL, grid, scoring="neg_log_loss", cv=3).fit(X, NAMES).best_params_
    found = cross_validate(MODEL, X, NAMES, scoring={name: get_scorer(name) for name in MEASURES}, cv=2)
    assert {f"test_{name}" for name in MEASURES} <= set(found)
    scorer = pickle.loads(pickle.dumps(get_scorer("neg_ece", n_bins=5, norm=2)))
    assert cross_val_score(CalibratedClassifier(LinearSVC()), X, NAMES, scoring=scorer, cv=3).shape == (3,)


def test_a_class_that_a_fold_lacks_is_still_a_column():
    trained = copy.deepcopy(MODEL).fit(X, NAMES)
    rows = np.flatnonzero(NAMES == "virginica")
    expected = metrics.ece(["virginica"] * len(rows), trained.predict_proba(X[rows]), classes=sorted(set(NAMES)))
    assert get_scorer("neg_ece")(trained, X[rows], NAMES[rows]) == pytest.approx(-expected)
    small = copy.deepcopy(MODEL).fit(X[Y != 2], NAMES[Y != 2])
    with pytest.raises(InputError):
        get_scorer("neg_ece")(small, X, NAMES)


def test_what_is_no_scorer_or_classifier_is_refused():
    with pytest.raises(InputError):
        get_scorer("ece")
    with pytest.raises(InputTypeError):
        get_scorer("neg_ece", confidence_level=0.9)
    with pytest.raises(InputTypeError):
        get_scorer("neg_ece")(LinearSVC().fit(X, Y), X, Y)
