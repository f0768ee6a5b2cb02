"""The comparison selects on validation data, evaluates on test data, and says which is which."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import softmax

from attemper import (
    BayesianTemperatureScaling,
    HistogramBinning,
    InputError,
    Scores,
    TemperatureScaling,
    VectorScaling,
    metrics,
)
from attemper.calibrators import METHODS
from attemper.comparison import compare
from attemper.comparison.held_out import assign_folds
from attemper.maps import ScaleMap

from data import draw


def scores(n=400, n_classes=4, **told):
    return Scores.from_logits(*draw(n, n_classes, **told))


def fail(*_):
    raise InputError("cannot be fitted today")


def test_rows_hold_what_the_calibrators_and_metrics_give():
    val, test = scores(seed=1), scores(seed=2)
    seen = []
    result = compare(val, test, ["ts", "ats", "bayes"], confidence_level=0.9, seed=5, tick=seen.append)
    assert [row.method for row in result.rows] == seen == ["none", "ts", "ats", "bayes"]
    for row in result.rows[1:]:
        fitted = METHODS[row.method]().fit(val)
        log_p = fitted.predict_log_proba(test)
        assert row.temperature == fitted.temperature_
        every = metrics.evaluate(test.labels, log_p, input="log_probs", confidence_level=0.9, seed=5)
        assert row.metrics == {name: every[name] for name in row.metrics}
        np.testing.assert_array_equal(row.losses, -log_p[np.arange(400), test.labels])
        assert row.seconds > 0
        assert (row.notes, row.failure) == ((), "")
    assert result.rows[0].temperature is None
    assert result.rows[0].metrics["accuracy"].value == result.rows[1].metrics["accuracy"].value


def nll_of(row):
    return row.metrics["nll"].value


def test_a_default_is_used_and_the_test_set_evaluates_it():
    result = compare(scores(2000, seed=1), scores(2000, seed=2), ["ts"])
    assert (result.recommended, result.selected_by, result.n_folds) == ("ts", "first choice", 5)
    assert result.confidence_set == ("ts",)


def test_test_labels_have_no_part_in_the_selection():
    val, (h, y) = scores(300, seed=1), draw(300, 4, seed=2)
    other = np.random.default_rng(0).integers(0, 4, 300)
    one, two = (
        compare(val, Scores.from_logits(h, labels), ["ts", "vector"], confidence_level=None) for labels in (y, other)
    )
    assert (one.recommended, one.selected_by) == (two.recommended, two.selected_by)
    assert one.reason.partition(" TEST ")[0] == two.reason.partition(" TEST ")[0]
    assert [row.cv for row in one.rows] == [row.cv for row in two.rows]


def test_cross_validation_is_that_of_fits_without_each_fold():
    val, test = scores(200, seed=1), scores(200, seed=2)
    result = compare(val, test, ["ts", "vector"], cv=4, seed=3, confidence_level=None)
    folds = assign_folds(val.labels, 4, 3)
    losses = {"none": np.empty(200)}
    for method in ("ts", "vector"):
        losses[method] = np.empty(200)
        for fold in range(4):
            out = folds == fold
            fitted = METHODS[method]().fit(val.values[~out], val.labels[~out])
            losses[method][out] = -fitted.predict_log_proba(val.values[out])[np.arange(out.sum()), val.labels[out]]
    losses["none"] = -ScaleMap(1.0).log_apply(val.values)[np.arange(200), val.labels]
    for row in result.rows:
        difference = losses[row.method] - losses[result.recommended]
        expected = losses[row.method].mean(), difference.mean(), difference.std(ddof=1) / 200**0.5
        np.testing.assert_allclose(row.cv, expected, rtol=1e-9, atol=1e-12)


def test_clusters_are_not_divided_and_widen_the_comparison():
    (h, y), (h2, y2) = draw(150, 4, seed=1), draw(150, 4, seed=2)
    val, test = (Scores.from_logits(np.tile(a, (4, 1)), np.tile(b, 4)) for a, b in ((h, y), (h2, y2)))
    cases = np.tile(np.arange(150), 4)
    alone = compare(Scores.from_logits(h, y), Scores.from_logits(h2, y2), ["ts", "vector"], confidence_level=None)
    four = compare(val, test, ["ts", "vector"], val_clusters=cases, test_clusters=cases, confidence_level=None)
    apart = compare(val, test, ["ts", "vector"], confidence_level=None)
    for one, many, naive in zip(alone.rows, four.rows, apart.rows):
        assert many.cv.standard_error == pytest.approx(one.cv.standard_error, rel=1e-6)
        assert many.above_best == pytest.approx(one.above_best, rel=1e-6, abs=1e-12)
        assert naive.above_best.high - naive.above_best.low < many.above_best.high - many.above_best.low


@pytest.mark.parametrize("methods", [["ts", "bayes"], ["ts", BayesianTemperatureScaling(labels="noisy")]])
def test_labels_that_may_be_wrong_do_not_select(methods):
    result = compare(scores(seed=1), scores(seed=2), methods, noisy=isinstance(methods[1], str), confidence_level=None)
    assert result.recommended.startswith("bayes")
    assert (result.selected_by, result.n_folds) == ("first choice", 0)
    assert all(row.cv is None for row in result.rows)


@pytest.mark.parametrize("errors", [1, 19, 20])
def test_few_errors_of_the_validation_set_cannot_select(errors):
    h, _ = draw(100, 4, t=1.0, seed=2)
    y = h.argmax(axis=1)
    y[:errors] = (y[:errors] + 1) % 4
    result = compare(Scores.from_logits(h, y), scores(seed=1), ["vector", "ts"], confidence_level=None)
    assert (errors < 20) == (result.n_folds == 0)
    if errors < 20:
        assert result.recommended == "ts"


@pytest.mark.parametrize("n, errors", [(1, 0), (100, 0), (100, 19), (100, 20)])
def test_few_errors_of_the_test_set_cannot_tell_methods_apart(n, errors):
    h, _ = draw(n, 4, t=1.0, seed=2)
    y = h.argmax(axis=1)
    y[:errors] = (y[:errors] + 1) % 4
    result = compare(scores(1000, t=2.0, seed=1), Scores.from_logits(h, y), ["ts"])
    assert (errors < 20) == (result.confidence_set is None)
    assert all((row.above_best is None) == (errors < 20) for row in result.rows)


def test_a_calibrator_keeps_its_own_kind_of_input():
    h, y = draw(300, 4, seed=1)
    h2, y2 = draw(300, 4, seed=2)
    logits = Scores.from_logits(h, y), Scores.from_logits(h2, y2)
    probs = Scores.from_probs(softmax(h, axis=1), y), Scores.from_probs(softmax(h2, axis=1), y2)
    given = HistogramBinning(n_bins=5, input="probs")
    row = compare(*probs, [given], confidence_level=None).rows[1]
    assert (row.method, given.input) == ("histogram(n_bins=5)", "probs")
    with pytest.raises(InputError):
        compare(*logits, [given])
    with pytest.raises(InputError):
        compare(*probs, [TemperatureScaling()])
    with pytest.raises(InputError):
        compare(*probs, [TemperatureScaling(input="probs", zeros_as=1e-8)])
    assert compare(*probs, ["ts"], confidence_level=None).rows[1].temperature == pytest.approx(
        compare(*logits, ["ts"], confidence_level=None).rows[1].temperature
    )


def test_what_cannot_be_cross_validated_is_not_selected(monkeypatch):
    whole_fit = METHODS["vector"].fit

    def fit(self, X, *more):
        return whole_fit(self, X, *more) if len(X) == 400 else fail()

    monkeypatch.setattr(METHODS["vector"], "fit", fit)
    row = compare(scores(seed=1), scores(seed=2), ["ts", "vector"], confidence_level=None).rows[2]
    assert row.cv is None
    assert row.metrics is not None


def test_what_fails_is_a_row_that_says_why(monkeypatch):
    monkeypatch.setattr(METHODS["ats"], "fit", fail)
    result = compare(scores(seed=1), scores(seed=2))
    row = result.rows[2]
    assert (row.method, row.failure, row.metrics, row.losses) == ("ats", "cannot be fitted today", None, None)
    assert result.recommended in ("structured", "bayes")
    assert " ats" not in result.reason


def certain_of_class_zero(n=50):
    """Labels that histograms of equal mass take for impossible elsewhere."""
    h, _ = draw(n, 3, seed=7)
    return Scores.from_logits(h, np.zeros(n, dtype=int))


def test_an_infinite_nll_is_shown_and_never_recommended():
    result = compare(certain_of_class_zero(), scores(300, 3, seed=2), ["ts", "histogram", "isotonic", "bayes"])
    rows = {row.method: row for row in result.rows}
    for method in ("histogram", "isotonic"):
        nll = rows[method].metrics["nll"]
        assert nll.value == np.inf
        assert np.isfinite([rows[method].metrics[m].value for m in ("accuracy", "brier", "ece", "mmce")]).all()
        assert method not in result.reason
        assert rows[method].cv.nll == np.inf
        assert rows[method].above_best is None
    assert result.recommended in ("none", "ts", "bayes")


def test_noisy_is_for_those_who_know_the_difference():
    val, test = scores(seed=1), scores(seed=2)
    plain, noisy = (compare(val, test, noisy=noisy).rows for noisy in (False, True))
    assert [r.temperature for r in plain[:3]] == [r.temperature for r in noisy[:3]]
    assert plain[3].temperature != noisy[3].temperature


def test_weights_of_the_test_set_count():
    val, (h, y) = scores(seed=1), draw(400, 4, seed=2)
    w = np.random.default_rng(0).integers(1, 4, 400)
    weighted = compare(val, Scores.from_logits(h, y, sample_weight=w), ["ts"])
    repeated = compare(val, Scores.from_logits(h.repeat(w, axis=0), y.repeat(w)), ["ts"])
    for a, b in zip(weighted.rows, repeated.rows):
        assert a.metrics["nll"].value == pytest.approx(b.metrics["nll"].value, rel=1e-12)


def test_a_matrix_is_left_out_by_default_where_it_would_have_too_many_parameters():
    val, test = scores(60, 51), scores(60, 51, seed=1)
    rows = {row.method: row for row in compare(val, test, confidence_level=0.5).rows}
    assert rows["matrix"].failure
    assert rows["dirichlet"].failure
    assert rows["vector"].metrics is not None


def test_answers_that_change_are_counted():
    val, test = scores(seed=1), scores(seed=2)
    rows = {row.method: row for row in compare(val, test, ["ts", "vector"], confidence_level=0.5).rows}
    assert rows["ts"].changed == rows["none"].changed == 0
    expected = (VectorScaling().fit(val).predict(test.values) != test.values.argmax(axis=1)).mean()
    assert rows["vector"].changed == pytest.approx(expected)
    assert expected > 0


def test_the_kind_of_noise_reaches_those_that_know_it():
    val, test = scores(seed=1), scores(seed=2)
    rows = {
        r.method: r
        for r in compare(val, test, ["ts", "bayes"], noisy=True, noise="classwise", confidence_level=0.5).rows
    }
    expected = BayesianTemperatureScaling(labels="noisy", noise="classwise").fit(val)
    assert rows["bayes"].temperature == expected.temperature_


def test_without_a_validation_error_nothing_is_recommended():
    h = 2 * np.random.default_rng(0).normal(size=(300, 3))
    test = Scores.from_logits(h[:200] + 1, np.random.default_rng(1).integers(3, size=200))
    result = compare(Scores.from_logits(h, h.argmax(axis=1)), test, ["ts", "structured"])
    assert (result.recommended, result.selected_by) == ("none", "no errors")
