"""Tests whose unit is the case: samples of a case may depend on each other in any way."""

import itertools

import numpy as np
import pytest

from attemper import InputError, Scores
from attemper.drift import DriftTest, ExchangeabilityTest

from data import draw
from oracles import softmax


def coupled(p, q):
    """Outcomes of two labels drawn with the same uniform number, as dependent as can be, with probabilities."""
    ends = np.concatenate([np.cumsum(p), np.cumsum(q)])
    cuts = np.unique(np.clip(np.concatenate([[0.0, 1.0], ends]).round(15), 0, 1))
    for low, high in itertools.pairwise(cuts):
        u = (low + high) / 2
        yield (int(np.searchsorted(np.cumsum(p), u)), int(np.searchsorted(np.cumsum(q), u))), high - low


@pytest.mark.parametrize("factor", [1.0, 1.1, 1 / 1.1])
def test_the_wealth_of_dependent_cases_is_a_supermartingale(factor):
    """Every outcome of three cases of two samples each: the mean of the wealth is at most 1."""
    rng = np.random.default_rng(0)
    h = 2 * rng.normal(size=(3, 1, 3)) + 0.2 * rng.normal(size=(3, 2, 3))
    tolerance = max(factor, 1 / factor)
    cases = [list(coupled(*(softmax(row, factor) for row in pair))) for pair in h]
    means = {"cases": 0.0, "rows": 0.0}
    for outcome in itertools.product(*cases):
        y = np.array([labels for labels, _ in outcome]).ravel()
        chance = np.prod([p for _, p in outcome])
        rows = h.reshape(6, 3)
        test = DriftTest(1.0, tolerance=tolerance).update(rows, y, clusters=np.repeat([4, 2, 9], 2))
        means["cases"] += chance * test.e_value
        means["rows"] += chance * DriftTest(1.0, tolerance=tolerance).update(rows, y).e_value
    assert means["cases"] <= 1 + 1e-12
    assert means["rows"] > 1 or tolerance > 1  # as if they were independent


def test_a_case_is_ranked_by_the_mean_of_its_scores():
    h, y = draw(120, 3)
    ids = np.random.default_rng(0).integers(0, 40, 120)
    p = np.array([softmax(row, 2.0)[label] for row, label in zip(h, y)])
    log_odds = np.log(p / (1 - p))
    reference, new = ids < 25, ids >= 25
    test = ExchangeabilityTest(2.0, h[reference], y[reference], clusters=ids[reference])
    test.update(h[new], y[new], clusters=ids[new])
    assert (test.n_reference, test.n_samples, test.n_rows) == (
        len(np.unique(ids[reference])),
        len(np.unique(ids[new])),
        int(new.sum()),
    )
    expected = sorted(round(log_odds[ids == c].mean() / 0.02) for c in np.unique(ids))
    found = np.repeat(np.arange(len(test._counts)), test._counts) - len(test._counts) // 2
    assert found.tolist() == expected


def test_conformal_levels_with_correlated_samples():
    """Lesions of one to eight pictures that are right or wrong together: by picture there are false alarms."""
    rng = np.random.default_rng(3)
    alarms = {"rows": 0, "cases": 0}
    for _ in range(40):
        sizes = rng.integers(1, 9, 300)
        ids = np.repeat(np.arange(300), sizes)
        easy = rng.normal(scale=2, size=300)[ids]  # what the pictures of a case share
        z = easy + rng.normal(scale=0.2, size=len(ids))
        h, y = np.stack([np.zeros_like(z), z], axis=1), (easy + rng.logistic(size=300)[ids] > 0).astype(int)
        old = ids < 100
        alarms["rows"] += ExchangeabilityTest(1.0, h[old], y[old]).update(h[~old], y[~old]).alarm
        test = ExchangeabilityTest(1.0, h[old], y[old], clusters=ids[old])
        alarms["cases"] += test.update(h[~old], y[~old], clusters=ids[~old]).alarm
    assert alarms["cases"] <= 5  # 2 on average at most
    assert alarms["rows"] >= 8


@pytest.mark.parametrize("make", [DriftTest, lambda t: ExchangeabilityTest(t, *draw(60, 3), clusters=np.arange(60))])
@pytest.mark.parametrize("cuts", [[], [50], [20, 70, 130]])
def test_batches_of_whole_cases_make_no_difference(make, cuts, tmp_path):
    h, y = draw(200, 3, seed=2)
    ids = np.arange(200) // 5
    whole = make(2.0).update(Scores.from_logits(h, y, clusters=ids))
    parts = make(2.0)
    for part in np.split(np.arange(200), cuts):
        parts.update(h[part], y[part], clusters=ids[part])
        parts.save(tmp_path / "t.json")
        parts = type(parts).load(tmp_path / "t.json")
    assert parts.log_e_value == pytest.approx(whole.log_e_value, rel=1e-9)
    assert parts.p_value == pytest.approx(whole.p_value, rel=1e-9)
    assert (parts.n_samples, parts.n_rows) == (40, 200)


def test_samples_and_cases_are_not_ranked_together():
    h, y = draw(60, 3)
    test = ExchangeabilityTest(2.0, h, y)
    with pytest.raises(InputError):
        test.update(h, y, clusters=np.arange(60))
    test = ExchangeabilityTest(2.0, h, y, clusters=np.arange(60) // 2)
    with pytest.raises(InputError):
        test.update(h, y)


class TestWithoutLabels:
    """The conformal test of confidences."""

    def test_levels_and_power(self):
        rng = np.random.default_rng(0)
        false = found = 0
        for _ in range(30):
            h = 3 * rng.normal(size=(1500, 4))
            test = ExchangeabilityTest(2.0, h[:500]).update(h[500:1000])
            false += test.alarm
            found += test.update(0.6 * h[1000:]).alarm
        assert false <= 5
        assert found >= 28

    def test_labels_are_not_used(self, tmp_path):
        h, y = draw(200, 3)
        test = ExchangeabilityTest(2.0, h[:100], y[:100], labelled=False).update(h[100:])
        assert test.log_e_value == ExchangeabilityTest(2.0, h[:100]).update(h[100:]).log_e_value
        test.save(tmp_path / "t.json")
        assert not ExchangeabilityTest.load(tmp_path / "t.json").labelled
        with pytest.raises(InputError):
            test.update(h, y)
        with pytest.raises(InputError):
            ExchangeabilityTest(2.0, h, y).update(h)
