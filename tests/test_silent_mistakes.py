"""Mistakes that gave a wrong number in silence: orders of columns, probabilities as log-odds, digits that are lost."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pytest

from attemper import MultiLabelCalibrator, Scores, TemperatureScaling, compare, label_shares, metrics
from attemper.decisions import label_policies, outcome_of, policy_for_miss
from attemper.errors import InputError, ProbabilitiesAsLogitsWarning

RNG = np.random.default_rng(0)
Z = 3 * RNG.normal(size=400)
Y = (RNG.random(400) < 1 / (1 + np.exp(-Z / 2))).astype(int)
P = 1 / (1 + np.exp(-Z))
NAMES = np.where(Y == 1, "yes", "no")

MANY = RNG.normal(size=(300, 3)) * 2 - [0, 1, 2]
LABELS = (MANY + RNG.logistic(size=MANY.shape) > 0).astype(float)


@pytest.mark.parametrize("one", [P, P[:, None], P.tolist(), P.astype(np.float16)])
def test_probabilities_in_one_column_as_log_odds_warn(one):
    with pytest.warns(ProbabilitiesAsLogitsWarning):
        TemperatureScaling().fit(one, Y)
    calibrator = TemperatureScaling().fit(Z, Y)
    with pytest.warns(ProbabilitiesAsLogitsWarning):
        calibrator.predict_proba(one)


def test_probabilities_of_soft_labels_and_of_many_labels_as_log_odds_warn():
    with pytest.warns(ProbabilitiesAsLogitsWarning):
        TemperatureScaling().fit(P, np.column_stack([1 - P, P]))
    with pytest.warns(ProbabilitiesAsLogitsWarning):
        MultiLabelCalibrator().fit(1 / (1 + np.exp(-MANY)), LABELS)


@pytest.mark.parametrize("odds", [Z, Z[:1], np.array([0.2, 0.7]), np.where(Z > 0, 1.0, 0.0)])
def test_log_odds_do_not_warn(odds):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Scores.from_logits(odds)


@pytest.mark.parametrize("labels", [(2 * Y - 1).astype(object), pd.Series(2 * Y - 1, dtype=object)])
def test_signs_in_an_array_of_objects(labels):
    assert TemperatureScaling().fit(Z, labels).temperature_ == TemperatureScaling().fit(Z, Y).temperature_
    assert metrics.nll(labels, P) == metrics.nll(Y, P)


def test_labels_are_looked_up_in_the_classes_of_scores():
    expected = metrics.nll(Y, P)
    assert metrics.nll(NAMES, Scores.from_logits(Z, classes=["no", "yes"])) == pytest.approx(expected)
    assert metrics.nll(NAMES, Scores.from_logits(-Z, classes=["yes", "no"])) == pytest.approx(expected)
    assert metrics.nll(Y, Scores.from_logits(-Z, classes=[1, 0])) == pytest.approx(expected)
    assert metrics.nll(Y, Scores.from_logits(Z, classes=["no", "yes"])) == pytest.approx(expected)  # column numbers


def test_scores_with_soft_labels_take_clusters_of_samples_and_no_other_weights():
    soft, clusters = np.column_stack([1 - P**2, P**2]), np.arange(400) // 4
    scores = Scores.from_logits(Z, soft)
    own = metrics.nll(soft, P, clusters=clusters, confidence_level=0.9)
    np.testing.assert_allclose(metrics.nll(scores, clusters=clusters, confidence_level=0.9)[:3], own[:3])
    with pytest.raises(InputError):
        metrics.nll(scores, sample_weight=np.ones(len(scores)))


def test_a_scorer_keeps_the_small_probability_of_the_first_class():
    class Certain:
        classes_ = np.array([0, 1])

        def fit(self, X, y):
            return self

        def predict_proba(self, X):
            return np.array([[1e-30, 1.0], [0.5, 0.5]])

        def __sklearn_is_fitted__(self):
            return True

        _estimator_type = "classifier"

        def __sklearn_tags__(self):
            return TemperatureScaling().__sklearn_tags__()

    expected = -(np.log(1e-30) + np.log(0.5)) / 2
    assert metrics.get_scorer("neg_nll")(Certain(), np.zeros((2, 1)), np.array([0, 1])) == pytest.approx(-expected)


def test_tables_of_many_labels_in_another_order():
    probs, truth = pd.DataFrame(1 / (1 + np.exp(-MANY)), columns=list("abc")), pd.DataFrame(LABELS, columns=list("abc"))
    with pytest.raises(InputError):
        metrics.label_metrics(truth, probs[list("cba")])
    with pytest.raises(InputError):
        metrics.label_metrics(truth, probs.add_prefix("p_")[["p_c", "p_b", "p_a"]])
    metrics.label_metrics(truth, probs.add_prefix("p_"))
    policies = label_policies(probs, truth, budget=0.2)
    policies.refer_or_decide(probs)
    with pytest.raises(InputError):
        policies.refer_or_decide(probs[list("bca")])
    with pytest.raises(InputError):
        policies.outcomes(truth[list("cba")], probs[list("cba")])


def test_a_calibrator_of_many_labels_remembers_the_columns_of_its_scores():
    scores, truth = pd.DataFrame(MANY, columns=["s_a", "s_b", "s_c"]), pd.DataFrame(LABELS, columns=list("abc"))
    calibrator = MultiLabelCalibrator().fit(scores, truth)
    calibrator.predict_proba(scores)
    with pytest.raises(InputError):
        calibrator.predict_proba(scores[["s_c", "s_b", "s_a"]])
    with pytest.raises(InputError):
        MultiLabelCalibrator().fit(scores, truth[list("cab")])
    other = MultiLabelCalibrator().fit(pd.DataFrame(MANY, columns=list("xyz")), truth)
    with pytest.raises(InputError):
        other.predict_proba(pd.DataFrame(MANY, columns=list("zyx")))


def test_classes_in_another_order_are_refused():
    val = Scores.from_logits(Z[:200], NAMES[:200], classes=["no", "yes"])
    flipped = Scores.from_logits(-Z[200:], NAMES[200:], classes=["yes", "no"])
    with pytest.raises(InputError):
        compare(val, flipped, ["ts"])
    calibrator = TemperatureScaling().fit(val)
    with pytest.raises(InputError):
        calibrator.predict_proba(flipped)
    with pytest.raises(InputError):
        TemperatureScaling(classes=["yes", "no"]).fit(val)


def test_policies_take_names_with_classes():
    expected = policy_for_miss(P, Y, 0.2)
    policy = policy_for_miss(P, NAMES, 0.2, classes=["no", "yes"])
    assert policy.threshold == expected.threshold
    assert outcome_of(policy, P, NAMES).all == outcome_of(expected, P, Y).all


def test_soft_labels_in_a_table_whose_columns_are_in_another_order():
    soft = pd.DataFrame(np.column_stack([1 - P**2, P**2]), columns=["no", "yes"])
    scores = pd.DataFrame({"no": 0 * Z, "yes": Z})
    expected = TemperatureScaling().fit(Z, soft.to_numpy()).temperature_
    assert TemperatureScaling(classes=["no", "yes"]).fit(Z, soft).temperature_ == expected
    assert TemperatureScaling().fit(scores, soft).temperature_ == expected
    assert TemperatureScaling().fit(Z, soft.astype(object)).temperature_ == expected
    with pytest.raises(InputError):
        TemperatureScaling().fit(scores, soft[["yes", "no"]])
    with pytest.raises(InputError):
        TemperatureScaling(classes=["no", "yes"]).fit(Z, soft[["yes", "no"]])
    with pytest.raises(InputError):
        metrics.nll(soft[["yes", "no"]], scores, input="logits")


@pytest.mark.parametrize("dtype", ["string", "object", "category"])
def test_votes_of_a_table_with_missing_entries(dtype):
    names = pd.DataFrame({"first": ["x", "y"], "second": ["y", None]}, dtype=dtype)
    np.testing.assert_array_equal(label_shares(names, classes=["x", "y"]), [[0.5, 0.5], [0, 1]])
    numbers = pd.DataFrame({"first": [0, 1], "second": [1, None]}, dtype="Int64")
    np.testing.assert_array_equal(label_shares(numbers, 2), [[0.5, 0.5], [0, 1]])
    np.testing.assert_array_equal(label_shares([["x", "y"], ["y", np.nan]], classes=["x", "y"]), [[0.5, 0.5], [0, 1]])
    with pytest.raises(InputError):
        label_shares([[0, 1], [1]], 2)


def test_a_table_whose_columns_are_the_classes_in_another_order():
    table, classes = pd.DataFrame({"yes": Z, "no": 0 * Z}), ["no", "yes"]
    expected = TemperatureScaling().fit(Z, Y).temperature_
    assert TemperatureScaling(classes=classes).fit(table[classes], NAMES).temperature_ == expected
    with pytest.raises(InputError):
        TemperatureScaling(classes=classes).fit(table, NAMES)
    with pytest.raises(InputError):
        metrics.nll(NAMES, table, input="logits", classes=classes)
    with pytest.raises(InputError):
        Scores.from_probs(pd.DataFrame({"yes": P, "no": 1 - P}), NAMES, classes=classes)


def test_the_advice_on_columns_has_them_as_they_are():
    table = pd.DataFrame({1: P, 0: 1 - P})
    with pytest.raises(InputError):
        metrics.nll(Y, table, classes=[0, 1])
    assert metrics.nll(Y, table[[0, 1]], classes=[0, 1]) == pytest.approx(metrics.nll(Y, P))


def test_one_probability_may_exceed_one_by_rounding():
    above = np.array([1 + 1e-7, 0.75], dtype=np.float32)
    assert above[0] > 1
    assert metrics.nll([1, 0], above) == pytest.approx(-np.log(0.25) / 2)
    assert metrics.nll([1, 0], np.array([1e-9, np.log(0.75)]), input="log_probs") == pytest.approx(-np.log(0.25) / 2)
    assert Scores.from_probs(above).values.tolist() == [[0, 1], [0.25, 0.75]]
    with pytest.raises(InputError):
        metrics.nll([1, 0], [1.001, 0.5])
