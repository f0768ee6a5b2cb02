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
    comparison,
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
    assert result.reason.startswith(
        "Use ts, the first choice: in 5-fold cross-validation on VAL (n = 2000) no method has an NLL that is lower"
    )
    assert f"On TEST (n = 2000), which only evaluates, its NLL is {nll_of(result.rows[1]):.4f}" in result.reason
    assert "With 95 % confidence, it is the lowest, to within 0.001." in result.reason


def test_test_labels_have_no_part_in_the_selection():
    val, (h, y) = scores(300, seed=1), draw(300, 4, seed=2)
    other = np.random.default_rng(0).integers(0, 4, 300)
    one, two = (
        compare(val, Scores.from_logits(h, labels), ["ts", "vector"], confidence_level=None) for labels in (y, other)
    )
    assert (one.recommended, one.selected_by) == (two.recommended, two.selected_by)
    assert one.reason.partition(" TEST ")[0] == two.reason.partition(" TEST ")[0]
    assert [row.cv for row in one.rows] == [row.cv for row in two.rows]


def test_a_map_that_the_test_set_refutes_is_reported():
    h, _ = draw(2000, 4)
    val = Scores.from_logits(h, np.random.default_rng(0).integers(0, 4, 2000))
    result = compare(val, scores(2000, t=1.0, seed=3), ["ts"])
    assert result.recommended == "ts"
    assert result.confidence_set == ("none",)
    assert "the lowest is that of no calibration, by up to" in result.reason
    assert "VAL is too small to show that, or not drawn like TEST." in result.reason
    assert result.rows[1].above_best.low == 0 < result.rows[1].above_best.high
    not_selected = compare(val, scores(2000, t=1.0, seed=3), ["ts"], cv=0).reason
    assert "evaluate it on other samples" in not_selected
    assert "too small" not in not_selected


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


@pytest.mark.parametrize("bad, words", [([1, 2], "shape"), ([None] * 400, "row 0 is None")])
def test_bad_clusters_are_refused(bad, words):
    with pytest.raises(InputError):
        compare(scores(seed=1), scores(seed=2), ["ts"], test_clusters=bad)


@pytest.mark.parametrize("cv, n_folds", [(0, 0), (2, 2), (None, 5)])
def test_the_number_of_folds(cv, n_folds):
    result = compare(scores(seed=1), scores(seed=2), ["ts"], cv=cv, confidence_level=None)
    assert result.n_folds == n_folds
    assert (result.rows[1].cv is None) == (n_folds == 0)
    assert (f"{n_folds}-fold" in result.reason) == (n_folds > 0)


def test_large_data_have_two_folds(monkeypatch):
    monkeypatch.setattr(comparison, "LARGE", 1599)
    assert compare(scores(seed=1), scores(seed=2), ["ts"], confidence_level=None).n_folds == 2


@pytest.mark.parametrize("cv", [1, -1, 2.5, True])
def test_folds_that_make_no_sense(cv):
    with pytest.raises(InputError):
        compare(scores(seed=1), scores(seed=2), ["ts"], cv=cv)


@pytest.mark.parametrize("methods", [["ts", "bayes"], ["ts", BayesianTemperatureScaling(labels="noisy")]])
def test_labels_that_may_be_wrong_do_not_select(methods):
    result = compare(scores(seed=1), scores(seed=2), methods, noisy=isinstance(methods[1], str), confidence_level=None)
    assert result.recommended.startswith("bayes")
    assert (result.selected_by, result.n_folds) == ("first choice", 0)
    assert "labels that may be wrong cannot select" in result.reason
    assert all(row.cv is None for row in result.rows)


@pytest.mark.parametrize("errors", [1, 19, 20])
def test_few_errors_of_the_validation_set_cannot_select(errors):
    h, _ = draw(100, 4, t=1.0, seed=2)
    y = h.argmax(axis=1)
    y[:errors] = (y[:errors] + 1) % 4
    result = compare(Scores.from_logits(h, y), scores(seed=1), ["vector", "ts"], confidence_level=None)
    assert ("VAL has too few errors to select by" in result.reason) == (errors < 20) == (result.n_folds == 0)
    if errors < 20:
        assert result.recommended == "ts"


@pytest.mark.parametrize("n, errors", [(1, 0), (100, 0), (100, 19), (100, 20)])
def test_few_errors_of_the_test_set_cannot_tell_methods_apart(n, errors):
    h, _ = draw(n, 4, t=1.0, seed=2)
    y = h.argmax(axis=1)
    y[:errors] = (y[:errors] + 1) % 4
    result = compare(scores(1000, t=2.0, seed=1), Scores.from_logits(h, y), ["ts"])
    assert ("fewer than 20 errors" in result.reason) == (errors < 20) == (result.confidence_set is None)
    assert all((row.above_best is None) == (errors < 20) for row in result.rows)


def test_few_errors_by_weight_cannot_tell_methods_apart():
    h, _ = draw(200, 4, seed=2)
    y = h.argmax(axis=1)
    y[:40] = (y[:40] + 1) % 4
    w = np.ones(200)
    w[:2] = 100.0  # two errors have nearly all the weight: worth 2.5
    assert compare(scores(seed=1), Scores.from_logits(h, y, sample_weight=w), ["ts"]).confidence_set is None
    w[:40] = 1.0
    w[10:40] = 0.0
    assert compare(scores(seed=1), Scores.from_logits(h, y, sample_weight=w), ["ts"]).confidence_set is None
    assert compare(scores(seed=1), Scores.from_logits(h, y), ["ts"]).confidence_set is not None
    one_case = compare(scores(seed=1), Scores.from_logits(h, y), ["ts"], test_clusters=np.arange(200) // 40)
    assert one_case.confidence_set is None


def test_no_calibration_is_named_in_words():
    val = scores(4000, t=1.0, seed=1)
    result = compare(val, scores(200, t=1.0, seed=2), ["ts"])
    assert "no calibration" in result.reason
    assert "none" not in result.reason


def test_the_ranking_of_errors_is_shown():
    val, test = scores(seed=1), scores(seed=2)
    result = compare(val, test, ["ts", "vector"])
    for row in result.rows[1:]:
        probs = METHODS[row.method]().fit(val).predict_proba(test.values)
        expected = metrics.referral_area(test.labels, probs, confidence_level=0.95)
        assert row.referral_area == pytest.approx(expected, rel=1e-9)
    plain = compare(val, test, ["ts"], confidence_level=None)
    assert isinstance(plain.rows[1].referral_area, float)
    right = Scores.from_logits(test.values, test.values.argmax(axis=1))
    assert compare(val, right, ["ts"]).rows[1].referral_area is None


def test_a_map_that_ranks_errors_worse_is_reported():
    (h, y), (h2, y2) = draw(1000, 4, seed=1), draw(1000, 4, seed=2)
    bias = np.array([3.0, 0.0, 0.0, -3.0])  # which only vector scaling can undo
    val, test = Scores.from_logits(h + bias, y), Scores.from_logits(h2 + bias, y2)
    result = compare(val, test, ["ts", "vector"])
    ts, vector = (METHODS[m]().fit(val).predict_proba(test.values) for m in ("ts", "vector"))
    gap = metrics.referral_area_difference(y2, vector, ts, confidence_level=0.95)
    assert result.recommended == "vector"
    worse = f"(difference {gap.value:.4f}, 95 % interval {gap.low:.4f} to {gap.high:.4f})"
    assert (worse in result.reason) == (gap.value <= -5e-4)
    other = compare(val, Scores.from_logits(test.values, vector.argmax(axis=1)), ["ts", "vector"])
    assert "For referral" not in other.reason


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
    assert "vector cannot be selected by cross-validation: cannot be fitted today" in row.notes


def test_what_fails_is_a_row_that_says_why(monkeypatch):
    monkeypatch.setattr(METHODS["ats"], "fit", fail)
    result = compare(scores(seed=1), scores(seed=2))
    row = result.rows[2]
    assert (row.method, row.failure, row.metrics, row.losses) == ("ats", "cannot be fitted today", None, None)
    assert result.recommended in ("structured", "bayes")
    assert " ats" not in result.reason


def test_nothing_could_be_fitted(monkeypatch):
    monkeypatch.setattr(METHODS["ts"], "fit", fail)
    result = compare(scores(), scores(seed=1), ["ts"])
    assert result.recommended == "none"
    assert result.reason.startswith("Use no calibration: nothing else could be fitted. On TEST ")


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
        assert "probability 0" in nll.note
        assert np.isfinite([rows[method].metrics[m].value for m in ("accuracy", "brier", "ece", "mmce")]).all()
        assert method not in result.reason
        assert rows[method].cv.nll == np.inf
        assert rows[method].above_best is None
    assert result.recommended in ("none", "ts", "bayes")
    assert "nan" not in result.reason
    assert "inf" not in result.reason


def test_nothing_else_has_a_finite_nll():
    result = compare(certain_of_class_zero(), scores(300, 3, seed=2), ["histogram"])
    assert (result.recommended, result.confidence_set) == ("none", ("none",))


def test_an_infinite_loss_of_weight_zero_does_not_count():
    h, y = draw(300, 3, seed=2)
    only_zero = Scores.from_logits(h, y, sample_weight=(y == 0).astype(float))
    result = compare(certain_of_class_zero(), only_zero, ["histogram"])
    assert np.isinf(result.rows[1].losses).any()
    assert result.rows[1].metrics["nll"].value == 0
    assert "histogram" in result.confidence_set
    assert "nan" not in result.reason


def test_warnings_become_notes():
    h, _ = draw(100, 4)
    result = compare(Scores.from_logits(h, h.argmax(axis=1)), scores(seed=1), ["ts"])
    assert "every label is the arg max" in result.rows[1].notes[0]


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


def test_bad_input_is_told():
    with pytest.raises(InputError):
        compare(scores(), scores(n_classes=5))
    with pytest.raises(InputError):
        compare(scores(), scores(), ["ts", "magic"])


def test_a_matrix_is_left_out_by_default_where_it_would_have_too_many_parameters():
    val, test = scores(60, 51), scores(60, 51, seed=1)
    rows = {row.method: row for row in compare(val, test, confidence_level=0.5).rows}
    assert "2601 parameters; to include it use methods" in rows["matrix"].failure
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


@pytest.mark.parametrize("error", [np.linalg.LinAlgError("singular"), MemoryError(), ZeroDivisionError("by zero")])
def test_what_breaks_in_the_numbers_is_a_row_too(monkeypatch, error):
    def broken(*_):
        raise error

    monkeypatch.setattr(METHODS["vector"], "fit", broken)
    rows = {row.method: row for row in compare(scores(), scores(seed=1), ["ts", "vector"], confidence_level=0.5).rows}
    assert rows["vector"].failure == (str(error) or "MemoryError")
    assert rows["ts"].metrics is not None


@pytest.mark.parametrize("unlabelled", [Scores.from_logits([[1.0, 2.0]]), ([[1.0, 2.0]], [0])])
def test_scores_without_labels_are_refused(unlabelled):
    scores = Scores.from_logits([[1.0, 2.0], [0.0, 3.0]], [0, 1])
    with pytest.raises(TypeError):
        compare(unlabelled, scores, ["ts"])
    with pytest.raises(TypeError):
        compare(scores, unlabelled, ["ts"])


def test_an_error_of_another_package_is_a_row():
    class Broken(TemperatureScaling):
        method = "broken"

        def _solve_scores(self, scores):
            raise RuntimeError("out of ideas")

    try:
        result = compare(scores(seed=1), scores(seed=2), [Broken(), "ts"], confidence_level=None)
    finally:
        METHODS.pop("broken")
    assert {row.method: row.failure for row in result.rows}["broken"] == "RuntimeError: out of ideas"
    assert result.recommended in ("none", "ts")


def test_without_a_validation_error_nothing_is_recommended():
    h = 2 * np.random.default_rng(0).normal(size=(300, 3))
    test = Scores.from_logits(h[:200] + 1, np.random.default_rng(1).integers(3, size=200))
    result = compare(Scores.from_logits(h, h.argmax(axis=1)), test, ["ts", "structured"])
    assert all("Use validation samples with errors" in " ".join(row.notes) for row in result.rows[1:])
    assert (result.recommended, result.selected_by) == ("none", "no errors")
    assert result.reason.startswith("Use no calibration: no prediction on VAL is wrong, so it cannot show how far")
