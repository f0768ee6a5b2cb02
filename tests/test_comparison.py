"""The comparison recommends in words what its numbers say."""

from __future__ import annotations

import numpy as np
import pytest

from attemper import BayesianTemperatureScaling, InputError, Scores, VectorScaling, metrics
from attemper.calibrators import METHODS
from attemper.comparison import compare

from data import draw


def scores(n=400, n_classes=4, **told):
    return Scores.from_logits(*draw(n, n_classes, **told))


def fail(*_):
    raise InputError("cannot be fitted today")


def test_rows_hold_what_the_calibrators_and_metrics_give():
    val, test = scores(seed=1), scores(seed=2)
    seen = []
    result = compare(val, test, ["ts", "ats", "bayes"], interval=0.9, seed=5, tick=seen.append)
    assert [row.method for row in result.rows] == seen == ["none", "ts", "ats", "bayes"]
    for row in result.rows[1:]:
        fitted = METHODS[row.method]().fit(val)
        log_p = fitted.predict_log_proba(test)
        assert row.temperature == fitted.temperature_
        assert row.metrics == metrics.evaluate(log_p, test.labels, log_probs=True, interval=0.9, seed=5)
        np.testing.assert_array_equal(row.losses, -log_p[np.arange(400), test.labels])
        assert row.seconds > 0
        assert (row.notes, row.failure) == ((), "")
    assert result.rows[0].temperature is None
    assert result.rows[0].metrics["accuracy"].value == result.rows[1].metrics["accuracy"].value


def test_a_clear_winner():
    result = compare(scores(2000, seed=1), scores(2000, seed=2), ["ts"])
    assert result.recommended == "ts"
    assert result.reason.startswith("Use ts: its test NLL of ")
    assert " is the lowest, " in result.reason
    assert result.reason.endswith(" below that of no calibration, the next.")


def test_a_map_that_harms_is_not_recommended():
    h, _ = draw(2000, 4)
    val = Scores.from_logits(h, np.random.default_rng(0).integers(0, 4, 2000))
    result = compare(val, scores(2000, t=1.0, seed=3), ["ts", "bayes"])
    assert result.recommended == "none"
    assert result.reason.startswith("Use no calibration: its test NLL of ")


@pytest.mark.parametrize("seed, lowest", [(2, "bayes"), (4, "ats")])
def test_bayes_where_it_cannot_be_told_apart(seed, lowest):
    result = compare(scores(seed=1), scores(seed=seed), ["ts", "ats", "bayes"])
    assert min(result.rows, key=lambda row: row.metrics["nll"].value).method == lowest
    assert result.recommended == "bayes"
    assert result.reason.startswith("Use bayes: on these 400 samples its test NLL cannot be told apart from that of ")
    assert "says how uncertain T is, and stays finite" in result.reason
    assert " ts" in result.reason


def test_others_that_cannot_be_told_apart():
    result = compare(scores(seed=1), scores(60, seed=2), ["ts", "ats"])
    assert result.recommended in ("ts", "ats")
    other = {"ts": "ats", "ats": "ts"}[result.recommended]
    assert f"Use {result.recommended}: its test NLL of " in result.reason
    assert "though on these 60 samples it cannot be told apart from that of" in result.reason
    assert f"difference to {other} is 0.0" in result.reason
    assert "95 % interval -0.0" in result.reason


@pytest.mark.parametrize("n, errors", [(1, 0), (100, 0), (100, 19), (100, 20)])
def test_few_errors_cannot_tell_methods_apart(n, errors):
    h, _ = draw(n, 4, t=1.0, seed=2)
    y = h.argmax(axis=1)
    y[:errors] = (y[:errors] + 1) % 4
    val, test = scores(4000, t=2.0, seed=1), Scores.from_logits(h, y)
    for methods, otherwise in ((["ts", "bayes"], "bayes"), (["ts"], None)):
        result = compare(val, test, methods)
        lowest = min(result.rows, key=lambda row: row.metrics["nll"].value).method
        assert ("too few errors" in result.reason) == (errors < 20)
        assert ("interval" in result.reason) == (errors >= 20 and result.recommended != "bayes")
        assert "±" not in result.reason
        if errors < 20:
            assert f"on these {n} samples" in result.reason
            assert result.recommended == (otherwise or lowest)


def test_few_errors_by_weight_cannot_tell_methods_apart():
    h, _ = draw(200, 4, seed=2)
    y = h.argmax(axis=1)
    y[:40] = (y[:40] + 1) % 4
    w = np.ones(200)
    w[:2] = 100.0  # two errors have nearly all the weight: worth 2.5
    assert "too few errors" in compare(scores(seed=1), Scores.from_logits(h, y, sample_weight=w), ["ts"]).reason
    w[:40] = 1.0
    w[10:40] = 0.0
    assert "too few errors" in compare(scores(seed=1), Scores.from_logits(h, y, sample_weight=w), ["ts"]).reason
    assert "too few errors" not in compare(scores(seed=1), Scores.from_logits(h, y), ["ts"]).reason


def test_no_calibration_is_named_in_words():
    val = scores(4000, t=1.0, seed=1)
    result = compare(val, scores(200, t=1.0, seed=2), ["ts"])
    assert "no calibration" in result.reason
    assert "none" not in result.reason


def test_what_fails_is_a_row_that_says_why(monkeypatch):
    monkeypatch.setattr(METHODS["ats"], "fit", fail)
    result = compare(scores(seed=1), scores(seed=2))
    row = result.rows[2]
    assert (row.method, row.failure, row.metrics, row.losses) == ("ats", "cannot be fitted today", None, None)
    assert result.recommended == "bayes"
    assert "ats" not in result.reason


def test_nothing_could_be_fitted(monkeypatch):
    monkeypatch.setattr(METHODS["ts"], "fit", fail)
    result = compare(scores(), scores(seed=1), ["ts"])
    assert (result.recommended, result.reason) == ("none", "Use no calibration: nothing else could be fitted.")


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
    assert result.recommended in ("none", "ts", "bayes")
    assert "nan" not in result.reason
    assert "inf" not in result.reason


def test_nothing_else_has_a_finite_nll():
    result = compare(certain_of_class_zero(), scores(300, 3, seed=2), ["histogram"])
    assert (result.recommended, result.reason) == ("none", "Use no calibration: nothing else has a finite test NLL.")


def test_an_infinite_loss_of_weight_zero_does_not_count():
    h, y = draw(300, 3, seed=2)
    only_zero = Scores.from_logits(h, y, sample_weight=(y == 0).astype(float))
    result = compare(certain_of_class_zero(), only_zero, ["histogram"])
    assert np.isinf(result.rows[1].losses).any()
    assert result.rows[1].metrics["nll"].value == 0
    assert result.recommended == "histogram"
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
    with pytest.raises(InputError, match="validation has 4 classes, test has 5"):
        compare(scores(), scores(n_classes=5))
    with pytest.raises(InputError, match="method 'magic' is unknown; known are ts, ats, bayes"):
        compare(scores(), scores(), ["ts", "magic"])


def test_a_matrix_is_left_out_by_default_where_it_would_have_too_many_parameters():
    val, test = scores(60, 51), scores(60, 51, seed=1)
    rows = {row.method: row for row in compare(val, test, interval=0.5).rows}
    assert "2601 parameters; to include it use methods" in rows["matrix"].failure
    assert rows["dirichlet"].failure
    assert rows["vector"].metrics is not None


def test_answers_that_change_are_counted():
    val, test = scores(seed=1), scores(seed=2)
    rows = {row.method: row for row in compare(val, test, ["ts", "vector"], interval=0.5).rows}
    assert rows["ts"].changed == rows["none"].changed == 0
    expected = (VectorScaling().fit(val).predict(test.values) != test.values.argmax(axis=1)).mean()
    assert rows["vector"].changed == pytest.approx(expected)
    assert expected > 0


def test_the_kind_of_noise_reaches_those_that_know_it():
    val, test = scores(seed=1), scores(seed=2)
    rows = {r.method: r for r in compare(val, test, ["ts", "bayes"], noisy=True, noise="classwise", interval=0.5).rows}
    expected = BayesianTemperatureScaling(labels="noisy", noise="classwise").fit(val)
    assert rows["bayes"].temperature == expected.temperature_


@pytest.mark.parametrize("error", [np.linalg.LinAlgError("singular"), MemoryError(), ZeroDivisionError("by zero")])
def test_what_breaks_in_the_numbers_is_a_row_too(monkeypatch, error):
    def broken(*_):
        raise error

    monkeypatch.setattr(METHODS["vector"], "fit", broken)
    rows = {row.method: row for row in compare(scores(), scores(seed=1), ["ts", "vector"], interval=0.5).rows}
    assert rows["vector"].failure == (str(error) or "MemoryError")
    assert rows["ts"].metrics is not None
