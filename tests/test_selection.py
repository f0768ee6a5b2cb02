"""What is selected follows from held-out losses alone, by rules that can be checked by hand."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from attemper import BayesianTemperatureScaling, StructuredScaling, TemperatureScaling, VectorScaling
from attemper.comparison.held_out import assign_folds
from attemper.comparison.selection import first_choice, select

from data import draw

N = 400
H, Y = draw(N, 3)
FITTED = {c.method: c.fit(H, Y) for c in (VectorScaling(), BayesianTemperatureScaling(), TemperatureScaling())}
BASE = np.random.default_rng(0).exponential(size=N)
NOISE = np.random.default_rng(1).normal(size=(10, N))
NOISE -= NOISE.mean(axis=1, keepdims=True)
NOISE /= NOISE.std(axis=1, keepdims=True)


def held(reason="", clusters=None, **above):
    """Losses whose mean difference to a base, and its standard error, are as given."""
    losses = {m: BASE + mean + NOISE[i] * error * N**0.5 for i, (m, (mean, error)) in enumerate(above.items())}
    return SimpleNamespace(
        reason=reason, losses=losses, weights=np.ones(N), clusters=clusters, n_folds=5, no_errors=False
    )


def test_the_default_is_fixed_beforehand():
    assert first_choice(FITTED) == "bayes"
    assert first_choice({"ts": TemperatureScaling(), "structured(x=1)": StructuredScaling()}) == "structured(x=1)"
    assert first_choice({"vector": VectorScaling()}) == "vector"


@pytest.mark.parametrize(
    "vector, expected, by",
    [
        ((0.0, 0.01), "bayes", "first choice"),
        ((-0.01, 0.01), "bayes", "first choice"),
        ((-0.05, 0.01), "vector", "cross-validation"),
        ((0.05, 0.01), "bayes", "first choice"),
    ],
)
def test_the_default_is_replaced_where_chance_does_not_explain_it(vector, expected, by):
    found = select(held(none=(1.0, 0.01), bayes=(0.0, 0.0), vector=vector), FITTED)
    assert (found.method, found.selected_by) == (expected, by)


@pytest.mark.parametrize("above, expected", [(0.0, "none"), (0.0005, "none"), (0.002, "bayes")])
def test_of_equally_good_methods_the_simplest_is_used(above, expected):
    found = select(held(none=(above, 1e-5), bayes=(0.0, 0.0), ts=(0.0, 1e-6), vector=(0.0, 1e-6)), FITTED)
    assert found.method == expected


def test_one_that_keeps_predictions_is_simpler():
    found = select(
        held(none=(1.0, 0.0), bayes=(0.0, 1e-6), vector=(0.0, 0.0)),
        {"vector": FITTED["vector"], "bayes": FITTED["bayes"]},
    )
    assert found.method == "bayes"
    better = held(none=(1.0, 0.0), bayes=(0.1, 0.01), ts=(5e-4, 1e-5), vector=(0.0, 0.0))
    assert select(better, FITTED).method == "ts"


def test_equal_by_chance_is_not_equally_good():
    assert select(held(none=(0.0, 0.01), bayes=(0.0, 0.0)), FITTED).method == "bayes"


def test_an_infinite_loss_is_never_selected():
    found = held(none=(1.0, 0.01), bayes=(0.5, 0.01), vector=(0.0, 0.01))
    found.losses["vector"][3] = np.inf
    assert select(found, FITTED).method == "bayes"
    found.losses["bayes"][3] = np.inf
    assert select(found, FITTED).method == "none"


def test_a_reason_against_selecting_leaves_the_default():
    found = select(held(reason="labels that may be wrong cannot select"), FITTED)
    assert found == (
        "bayes",
        "first choice",
        "Use bayes, the first choice: labels that may be wrong cannot select.",
    )


def test_clusters_count_once():
    """Forty samples of one kind in each cluster: what seemed certain is not."""
    found = held(none=(1.0, 0.01), bayes=(0.0, 0.0))
    by_case = np.repeat(np.random.default_rng(3).normal(size=10), 40)
    found.losses["vector"] = BASE - 0.3 + by_case
    assert select(found, FITTED).method == "vector"
    found.clusters = np.repeat(np.arange(10), 40)
    assert select(found, FITTED).method == "bayes"


@given(st.integers(2, 7), st.integers(0, 5), st.lists(st.integers(0, 3), min_size=10, max_size=60), st.data())
def test_folds_are_even_by_class_and_keep_cases_together(n_folds, seed, labels, data):
    y = np.array(labels)
    folds = assign_folds(y, n_folds, seed)
    np.testing.assert_array_equal(folds, assign_folds(y, n_folds, seed))
    sizes = np.bincount(folds, minlength=n_folds)
    assert sizes.max() - sizes.min() <= 1
    for k in np.unique(y):
        of_class = np.bincount(folds[y == k], minlength=n_folds)
        assert of_class.max() - of_class.min() <= 1
    cases = np.array(data.draw(st.lists(st.integers(0, 9), min_size=len(y), max_size=len(y))))
    by_case = assign_folds(y, n_folds, seed, cases)
    for case in np.unique(cases):
        assert len(np.unique(by_case[cases == case])) == 1
    used = [len(np.unique(cases[by_case == fold])) for fold in range(n_folds)]
    assert max(used) - min(used) <= 1
