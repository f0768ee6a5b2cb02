"""compare: what is chosen, what is named beside it, and what is refused."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import log_loss

import attemper
from attemper.calibrators import (
    METHODS,
    BayesianTemperatureScaling,
    Calibrator,
    Fit,
    GroupedCalibrator,
    Report,
    TemperatureScaling,
)
from attemper.comparison import NEGLIGIBLE, WHY, compare_scores
from attemper.data.scores import Scores
from attemper.errors import InputError
from attemper.maps import Map
from attemper.metrics.best import can_be_best
from attemper.metrics.intervals import estimate, mean_of
from conftest import draw

QUICK = ["ts", "bayes", "vector"]


def scores(n=600, k=4, bias=0.0, seed=0, **options):
    return Scores.of(*draw(n, k, bias=bias, seed=seed), **options)


@pytest.fixture(scope="module")
def found():
    return compare_scores(scores(), scores(seed=1), methods=QUICK)


def test_the_first_choice_stands_and_is_fitted(found):
    assert (found.chosen, found.reason) == ("bayes", "first")
    assert found.calibrator.temperature_ == pytest.approx(2, abs=0.3)
    assert found["none"].gain.high < 0
    assert found["none"].changed == found["ts"].changed == 0
    assert set(WHY) >= {found.reason}
    assert found.n_folds == 5


def test_a_comparison_is_a_table_and_a_dict(found):
    assert all(len(line) <= 80 for line in str(found).splitlines())
    assert json.loads(json.dumps(found.to_dict()))["rows"][1]["test"]["n"] == 600
    assert found.to_frame().shape[0] == len(found.rows) == 4


def test_test_samples_evaluate_and_have_no_part_in_the_choice(found):
    test = scores(seed=1)
    for name in ("none", *QUICK):
        p = found.predictions(name)
        assert found[name].test["nll"].value == pytest.approx(log_loss(test.labels, p.probs))
    other = compare_scores(scores(), methods=QUICK)
    assert [row.nll for row in other.rows] == [row.nll for row in found.rows]
    assert other.chosen == found.chosen
    assert other.test is None
    assert set(found.test_can_be_best) >= {"ts", "bayes"}
    assert "none" not in found.test_can_be_best


def test_cross_validation_is_that_of_fits_without_each_fold(found):
    val = found.val
    losses = np.empty(len(val))
    for fold in range(5):
        rows, rest = (np.flatnonzero(kind) for kind in (found.folds == fold, found.folds != fold))
        fitted = TemperatureScaling().fit(val.logits[rest], val.labels[rest])
        losses[rows] = -fitted.predict_log_proba(val.logits[rows])[np.arange(len(rows)), val.labels[rows]]
    assert found["ts"].nll.value == pytest.approx(losses.mean(), rel=1e-9)
    alone = compare_scores(val, methods=["ts"])
    assert alone.predictions("ts").log_likelihood.mean() == pytest.approx(-losses.mean(), rel=1e-9)
    assert found["none"].gain.value == pytest.approx(found["bayes"].nll.value - found["none"].nll.value)


def test_a_method_that_changes_predictions_is_named_with_numbers_and_not_chosen():
    val = scores(2000, bias=0.8, classes=list("abcd"))
    found = compare_scores(val, methods=QUICK)
    assert found.chosen == "bayes"
    assert found.alternatives[0] == "vector"
    row = found["vector"]
    assert row.gain.low > 0.01
    p, q = found.predictions("vector").prediction, found.predictions("bayes").prediction
    assert row.changed == pytest.approx((p != q).mean())
    assert row.changed > 0.05
    assert [fall.other - fall.chosen for fall in row.falls] == sorted(fall.other - fall.chosen for fall in row.falls)
    for fall in row.falls:
        of = val.labels == "abcd".index(fall.name)
        assert fall.other == pytest.approx((p == val.labels)[of].mean())
        assert fall.chosen == pytest.approx((q == val.labels)[of].mean())
        assert fall.other < fall.chosen
    assert f"{row.falls[0].other:.0%} of {row.falls[0].name}" in str(found).replace("\n  ", " ")
    assert compare_scores(val, methods=["vector"]).chosen == "vector"


def test_weights_count_in_what_changes():
    w = 1.0 + 9 * (np.arange(600) < 100)
    found = compare_scores(scores(600, bias=0.8, sample_weight=w), methods=["ts", "vector"])
    p, q = (found.predictions(name).prediction for name in ("vector", found.chosen))
    assert found["vector"].changed == pytest.approx(w @ (p != q) / w.sum())
    assert (p != q).any()


def test_structured_is_named_where_it_gains_at_all():
    found = compare_scores(scores(500, bias=0.3), methods=["bayes", "structured"])
    assert found.chosen == "bayes"
    assert ("structured" in found.alternatives) == (found["structured"].gain.value > 0)


def test_no_recommendation_where_a_class_has_no_label():
    val = scores(2000, bias=0.8)
    more = Scores.of(np.c_[val.logits, -9 * np.ones(2000)], val.labels)
    assert compare_scores(more, methods=QUICK).alternatives == ()


@pytest.mark.parametrize("each", [2, 7])
def test_folds_where_classes_have_few_labels(each):
    y = np.arange(210) % (210 // each)
    found = compare_scores(Scores.of(draw(210, 210 // each).h, y), methods=["ts"])
    assert np.bincount(found.folds).tolist() == [42] * 5


def test_clusters_stay_together_and_count_once():
    one = scores(400)
    four = np.repeat(np.arange(400), 4)
    copied = Scores.of(one.logits[four], one.labels[four], clusters=four)
    found, plain = compare_scores(copied, methods=["ts"]), compare_scores(one, methods=["ts"])
    assert all(len(set(found.folds[four == case])) == 1 for case in range(400))
    assert found["none"].gain.low == pytest.approx(plain["none"].gain.low, rel=0.2)


def test_clusters_in_val_and_test_are_an_error_everywhere():
    val, test = scores(400, clusters=np.arange(400)), scores(50, seed=1, clusters=np.arange(50) + 399)
    with pytest.raises(InputError) as error:
        attemper.compare(val, test, methods=["ts"])
    assert error.value.param == "clusters"
    assert attemper.compare(val, test, methods=["ts"], allow_shared=True)["ts"].test is not None


@pytest.mark.parametrize(
    ("val", "options", "reason"),
    [
        (scores(), {"noise": 0.1}, "noise"), (scores(), {"cv": 0}, "no cv"), (scores(40), {}, "few errors"),
        (Scores.of(9 * np.eye(3)[np.arange(90) % 3], np.arange(90) % 3), {}, "no errors"),
    ],
)  # fmt: skip
def test_what_leaves_the_first_choice(val, options, reason):
    found = compare_scores(val, methods=["ts", "bayes"], **options)
    assert found.reason == reason
    assert found.chosen == ("none" if reason == "no errors" else "bayes")
    assert found.n_folds == 0
    assert (
        compare_scores(val, scores(k=val.n_classes, seed=1), methods=["ts", "bayes"], **options)["ts"].gain is not None
    )


def test_another_that_keeps_predictions_is_chosen_beyond_chance_alone():
    class Guess(Calibrator):
        method = "bayes_guess"

        def _fit(self, scores):
            return Fit(Map.scale(5.0), Report.of(Map.scale(5.0), scores))

    Guess.method = "bayes"  # a first choice that is far off
    try:
        found = compare_scores(scores(2000), methods=[Guess(), "ts"])
    finally:
        del METHODS["bayes_guess"]
    assert (found.chosen, found.reason) == ("ts", "cv")
    assert found.can_be_best == ("ts",)


def test_noise_reaches_those_that_know_it():
    found = compare_scores(scores(), methods=["ts", "bayes", BayesianTemperatureScaling(prior_scale=0.5)], noise=0.1)
    bayes = [row.calibrator.noise for row in found.rows if row.method.startswith("bayes")]
    assert bayes == [0.1, 0.1]
    own = compare_scores(scores(), methods=[BayesianTemperatureScaling(noise=0.2)], noise=0.1)
    assert own.rows[1].calibrator.noise == 0.2


def test_methods_are_names_classes_and_instances_and_failures_are_rows():
    class Broken(Calibrator):
        method = "broken"

        def _fit(self, scores):
            raise ZeroDivisionError("no luck")

    class Half(Calibrator):
        method = "half"

        def _fit(self, scores):
            return Fit(Map.scale(0.5), Report.of(Map.scale(0.5), scores))

    try:
        found = compare_scores(
            scores(), scores(seed=1), methods=["ts", Half(), Broken, TemperatureScaling(t_range=(1, 5))]
        )
    finally:
        del METHODS["broken"], METHODS["half"]
    assert found["broken"].failure.endswith("no luck")
    assert found["broken"].test is None
    assert found["half"].gain.value == pytest.approx(0, abs=0.02)
    assert "ts(t_range=(1, 5))" in [row.method for row in found.rows]


def test_groups_probabilities_and_infinite_losses():
    site = np.arange(600) % 2
    val = scores(groups=site)
    logits = np.where(site[:, None], 2 * val.logits, val.logits)
    grouped = compare_scores(
        Scores.of(logits, val.labels, groups=site), methods=["bayes", GroupedCalibrator(TemperatureScaling())]
    )
    assert (grouped.chosen, grouped.reason) == ("grouped(ts)", "cv")  # it keeps predictions
    assert grouped["bayes"].gain.high < 0
    p = draw(600, 4).p
    probs = compare_scores(Scores.of(p, val.labels, input="probs"), methods=["ts", "histogram"])
    assert probs["ts"].temperature == pytest.approx(
        TemperatureScaling().fit(val.logits, val.labels).temperature_, rel=1e-6
    )
    assert probs.calibrator.predict_proba(p).shape == (600, 4)
    assert probs["histogram"].gain.value == -np.inf
    assert "histogram" not in probs.can_be_best


def test_a_calibrator_in_use(found):
    used = TemperatureScaling().fit(scores(seed=5))
    also = compare_scores(scores(), scores(seed=1), methods=["ts"], calibrator=used)
    assert also["in use"].test["nll"].value == pytest.approx(found["ts"].test["nll"].value, abs=0.02)
    assert also["in use"].calibrator is used
    assert also.chosen == "ts"


@pytest.mark.parametrize("options", [{"cv": 0}, {"noise": 0.1}, {}])
def test_only_what_was_held_out_is_an_alternative(options):
    biased, test = scores(600, bias=0.8), scores(600, bias=0.8, seed=1)
    found = compare_scores(biased, test, methods=["bayes", "vector"], calibrator=VECTOR, **options)
    assert found["vector"].gain.low > 0.01
    assert (found.alternatives == ("vector",)) == (found.n_folds > 0)
    marked = [row.method for row, cell in zip(found.rows, found.shown()["lower_by"]) if cell.endswith("†")]
    assert marked == ([] if found.n_folds else ["none", "vector"]) + ["in use"]


VECTOR = METHODS["vector"]().fit(scores(600, bias=0.8, seed=2))


def with_rule(**options):
    """Return a calibrator whose rule is by group, or by cluster."""
    val = scores(2000, seed=3, clusters=np.arange(2000) // 2, groups=np.arange(2000) % 2)
    return attemper.decide(val, coverage=0.8, method="ts", **options).calibrator


@pytest.mark.parametrize(("options", "lacking"), [({}, "clusters"), ({"by": "group"}, "groups")])
def test_a_calibrator_in_use_gets_what_its_rule_needs_before_anything_is_fitted(options, lacking, monkeypatch):
    used, ids = with_rule(**options), {"clusters": np.arange(600), "groups": np.arange(600) % 2}
    monkeypatch.setattr(TemperatureScaling, "_fit", lambda *_: pytest.fail("fitted"))
    with pytest.raises(InputError) as error:
        compare_scores(scores(), scores(seed=1, **{**ids, lacking: None}), methods=["ts"], calibrator=used)
    assert error.value.param == lacking


@pytest.mark.parametrize(
    ("options", "param"),
    [
        ({"cv": 1}, "cv"), ({"methods": ["tss"]}, "methods"), ({"methods": ["ts", "ts"]}, "methods"),
        ({"test": Scores.of(scores().logits)}, "test"),
        ({"calibrator": TemperatureScaling().fit(scores())}, "calibrator"),
    ],
)  # fmt: skip
def test_what_is_refused(options, param):
    with pytest.raises(InputError) as error:
        compare_scores(scores(), **options)
    assert error.value.param == param


def test_masked_classes_make_no_loss_infinite():
    h, y = draw(600, 4, masks=0.2)
    found = compare_scores(Scores.of(h, y), methods=["ts", "bayes"])
    assert all(np.isfinite(row.nll.value) for row in found.rows)
    assert set(found.can_be_best) & {"ts", "bayes"}


def test_weights_count_in_the_recall_of_a_class():
    w = 1.0 + 9 * (np.arange(600) < 100)
    found = compare_scores(scores(600, bias=0.8, sample_weight=w), methods=["ts", "vector"])
    right = found.predictions("vector").right
    assert found["vector"].falls
    for fall in found["vector"].falls:
        of = found.val.labels == fall.name
        assert fall.other == pytest.approx(np.average(right[of], weights=w[of]))


def test_no_recommendation_where_a_class_has_labels_of_weight_zero_alone():
    val = scores(2000, bias=0.8)
    h, y = np.c_[val.logits, -9 * np.ones(2000)], val.labels.copy()
    y[0] = 4
    assert compare_scores(Scores.of(h, y), methods=QUICK).alternatives != ()
    w = np.ones(2000)
    w[0] = 0
    assert compare_scores(Scores.of(h, y, sample_weight=w), methods=QUICK).alternatives == ()


def test_the_seed_draws_the_folds():
    first, again, other = (compare_scores(scores(), methods=["ts"], seed=seed).folds for seed in (0, 0, 1))
    assert (first == again).all()
    assert (first != other).any()


@pytest.mark.parametrize("size", [1, 3])
def test_held_out_results_are_those_of_weights_and_cases(size):
    data = draw(900, 3, clusters=size, bias=0.3)
    ids = {"clusters": data.cluster} if size > 1 else {}
    found = compare_scores(Scores.of(*data, sample_weight=data.w, **ids), methods=QUICK, cv=3)
    held = {row.method: found.predictions(row.method) for row in found.rows}
    p, losses = held["none"], {name: -each.log_likelihood for name, each in held.items()}
    for row in found.rows:
        differences = losses[found.chosen] - losses[row.method]
        for own, given in ((row.nll, losses[row.method]), (row.gain, differences)):
            expected = estimate(mean_of(given), p.weights, 0.95, p.clusters)
            ends = (expected.value, expected.low, expected.high)
            assert (own.value, own.low, own.high) == pytest.approx(ends, nan_ok=True)
    assert found.can_be_best == can_be_best(losses, p.weights, p.clusters, margin=1e-3)


@pytest.mark.parametrize("cv", [0, 3])
def test_a_weight_in_a_cluster_of_test_is_so_many_rows_of_it(cv):
    val, data = scores(900, bias=0.5, classes=list("abcd")), draw(900, 4, bias=0.5, clusters=3, seed=1)
    rows = np.repeat(np.arange(900), data.w.astype(int))
    weighted = Scores.of(*data, classes=list("abcd"), clusters=data.cluster, sample_weight=data.w)
    repeated = Scores.of(data.h[rows], data.y[rows], classes=list("abcd"), clusters=data.cluster[rows])
    one, other = (compare_scores(val, test, methods=QUICK, cv=cv) for test in (weighted, repeated))
    assert one.test_can_be_best == other.test_can_be_best != ()
    for a, b in zip(one.rows, other.rows):
        pd.testing.assert_frame_equal(a.test.to_frame(), b.test.to_frame(), rtol=5e-3)
        assert [fall.name for fall in a.falls] == [fall.name for fall in b.falls]
        assert (a.changed, a.gain.value) == pytest.approx((b.changed, b.gain.value))
        assert (a.gain.low, a.gain.high) == pytest.approx((b.gain.low, b.gain.high), nan_ok=True)


def test_so_many_errors_are_needed_to_choose_and_no_more_folds_than_cases_are_made():
    h = draw(300, 3).h
    for errors, reason in ((19, "few errors"), (20, "first")):
        y = np.where(np.arange(300) < errors, (h.argmax(axis=1) + 1) % 3, h.argmax(axis=1))
        found = compare_scores(Scores.of(h, y), Scores.of(h, y), methods=["ts", "bayes"])
        assert (found.reason, bool(found.test_can_be_best)) == (reason, errors == 20)
    few = Scores.of(*draw(500, 3), clusters=np.arange(500) // 20)
    assert compare_scores(few, methods=["ts", "bayes"], cv=np.int64(30)).n_folds == 25


def test_an_alternative_gains_beyond_chance():
    gains = {}
    for bias in (0.0, 0.15, 0.3):
        found = compare_scores(scores(bias=bias), methods=["bayes", "vector"])
        gains[bias] = found["vector"].gain
        assert (found.alternatives == ("vector",)) == (gains[bias].low > NEGLIGIBLE)
    assert gains[0.15].low < NEGLIGIBLE < min(gains[0.15].value, gains[0.3].low)
