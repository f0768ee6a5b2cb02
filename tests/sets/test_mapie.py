"""MAPIE 1.6 on the same samples: the same thresholds and the same sets.

MAPIE calibrates APS and RAPS with random shares of the own probability, whatever the sets are; `Constant` draws none.
"""

import numpy as np
import pytest
from mapie.classification import SplitConformalClassifier
from mapie.conformity_scores import APSConformityScore, LACConformityScore, RAPSConformityScore
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.model_selection import StratifiedShuffleSplit

from attemper.decisions import prediction_sets
from attemper.kernels.conformal import order_for, score_classes, threshold_at

from data import draw

N = 400


class Given(ClassifierMixin, BaseEstimator):
    """A classifier whose features are the probabilities."""

    def __init__(self, n_classes):
        self.n_classes = n_classes
        self.classes_ = np.arange(n_classes)
        self.n_features_in_ = n_classes

    def fit(self, x, y):
        return self

    def predict_proba(self, x):
        return np.asarray(x)

    def predict(self, x):
        return np.asarray(x).argmax(axis=1)


class Constant(np.random.RandomState):
    """Random numbers that are all the same; 1 takes the whole own probability off the score."""

    share = 1.0

    def uniform(self, *args, size=None, **kwargs):
        return np.full(size, self.share)


class Zero(Constant):
    """Nothing is taken off."""

    share = 0.0


def samples(n_classes, seed=0):
    h, y = draw(N + 150, n_classes, scale=2.0, t=1.3, seed=seed)
    p = np.exp(h) / np.exp(h).sum(axis=1, keepdims=True)
    return p[:N], y[:N], p[N:]


def mapie_sets(score, p, y, new, coverage, last, random_state):
    model = SplitConformalClassifier(
        Given(p.shape[1]), confidence_level=coverage, conformity_score=score, prefit=True, random_state=random_state
    )
    mask = model.conformalize(p, y).predict_set(new, conformity_score_params={"include_last_label": last})[1][:, :, 0]
    return mask, float(score.quantiles_.item())


def rows_of_threshold(score, p, y, random_state):
    """Rows, in MAPIE's order, that RAPS does not choose its penalty on; MAPIE leaves the size of that part open."""
    split = StratifiedShuffleSplit(n_splits=1, test_size=score.size_raps, random_state=random_state)
    rows, tuned = next(split.split(p, y))
    np.testing.assert_array_equal(p[tuned], score.X_raps)
    return rows


@pytest.mark.parametrize("n_classes", [2, 6, 40])
@pytest.mark.parametrize("coverage", [0.8, 0.95])
def test_lac(n_classes, coverage):
    p, y, new = samples(n_classes)
    mask, threshold = mapie_sets(LACConformityScore(), p, y, new, coverage, True, 0)
    policy = prediction_sets(p, y, coverage, allow_empty=True)
    assert policy.thresholds[0] == threshold
    np.testing.assert_array_equal(policy.sets(new).mask, mask)


@pytest.mark.parametrize("n_classes", [3, 6, 40])  # of two classes MAPIE has LAC alone
@pytest.mark.parametrize("coverage", [0.8, 0.95])
def test_aps(n_classes, coverage):
    p, y, new = samples(n_classes)
    mask, threshold = mapie_sets(APSConformityScore(), p, y, new, coverage, True, Constant())
    policy = prediction_sets(p, y, coverage, score="aps")
    assert policy.thresholds[0] == pytest.approx(threshold, abs=1e-14)
    np.testing.assert_array_equal(policy.sets(new).mask, mask)


@pytest.mark.parametrize("n_classes", [6, 40])
@pytest.mark.parametrize("coverage", [0.8, 0.95])
def test_raps(n_classes, coverage):
    """Where the last class is left out, MAPIE's sets are those of scores with the whole own probability."""
    p, y, new = samples(n_classes)
    for random_state, share in ((Zero(1), 1.0), (Constant(1), 0.0)):
        score = RAPSConformityScore()
        mask, threshold = mapie_sets(score, p, y, new, coverage, False, random_state)
        rows = rows_of_threshold(score, p, y, type(random_state)(1))
        given = {"penalty": float(score.lambda_star), "k_reg": int(score.k_star.item())}
        own = score_classes("raps", p[rows], share, **given)[np.arange(len(rows)), y[rows]]
        assert threshold_at(own, order_for(len(rows), coverage)) == pytest.approx(threshold, abs=1e-14)
        with_own = score_classes("raps", new, 1.0, **given) <= threshold
        np.testing.assert_array_equal(with_own | (new == new.max(axis=1, keepdims=True)), mask)
    policy = prediction_sets(p[rows], y[rows], coverage, score="raps", **given)
    assert policy.thresholds[0] == pytest.approx(threshold, abs=1e-14)


@pytest.mark.parametrize(("name", "n_classes"), [("aps", 3), ("aps", 40), ("raps", 6), ("raps", 40)])
def test_randomized(name, n_classes):
    """With MAPIE's random numbers: its share is taken off, ours is added."""
    p, y, new = samples(n_classes)
    score = APSConformityScore() if name == "aps" else RAPSConformityScore()
    mask, threshold = mapie_sets(score, p, y, new, 0.9, "randomized", 7)
    penalty, k_reg = (0.0, 0) if name == "aps" else (float(score.lambda_star), int(score.k_star.item()))
    rows = np.arange(N) if name == "aps" else rows_of_threshold(score, p, y, 7)
    share = 1 - np.random.RandomState(7).uniform(size=len(rows))
    own = score_classes(name, p[rows], share, penalty, k_reg)[np.arange(len(rows)), y[rows]]
    assert threshold_at(own, order_for(len(own), 0.9)) == pytest.approx(threshold, abs=1e-12)
    share = 1 - np.random.RandomState(7).uniform(size=len(new))
    ours = score_classes(name, new, share, penalty, k_reg) <= threshold
    # Beyond k_reg MAPIE draws the last class with another probability than its own score has.
    same = (ours.sum(axis=1) < k_reg) & (mask.sum(axis=1) < k_reg) if name == "raps" else np.ones(len(new), dtype=bool)
    assert same.mean() > (0.3 if name == "raps" else 0.99)
    np.testing.assert_array_equal(ours[same], mask[same])
