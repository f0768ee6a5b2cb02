"""Numbers that other libraries publish: torchmetrics' examples, and those of uncertainty-calibration 0.1.4's tests.

What Kumar et al. call top-label is ``kind="top"`` here, what they call marginal is ``kind="classwise"``.
"""

import numpy as np
import pytest

from attemper import metrics


def two(p):
    p = np.asarray(p, dtype=float)
    return np.column_stack([1 - p, p])


BINARY = [0.25, 0.25, 0.55, 0.75, 0.75], [0, 0, 1, 1, 1]
MULTICLASS = [[0.25, 0.20, 0.55], [0.55, 0.05, 0.40], [0.10, 0.30, 0.60], [0.90, 0.05, 0.05]], [0, 1, 2, 0]


@pytest.mark.parametrize("norm, binary, multiclass", [(1, 0.29, 0.2), (2, 0.2918, 0.2082), ("max", 0.3167, 0.2333)])
def test_examples_of_torchmetrics(norm, binary, multiclass):
    assert metrics.ece(BINARY[1], two(BINARY[0]), kind="binary", n_bins=2, norm=norm) == pytest.approx(binary, abs=5e-5)
    assert metrics.ece(MULTICLASS[1], MULTICLASS[0], n_bins=3, norm=norm) == pytest.approx(multiclass, abs=5e-5)


@pytest.mark.parametrize(
    "bins, norm, expected",
    [
        ([[(0.3, 1)]], 1, 0.7),
        ([[(0.3, 0)]], 1, 0.3),
        ([[(0.3, 1)]], 2, 0.7),
        ([[(0.3, 1)], [(0.6, 0)]], 1, 0.65),
        ([[(0.3, 1)], [(0.6, 0), (0.6, 1)]], 1, 0.3),
        ([[(0.3, 1)], [(0.6, 0)]], 2, 0.6519202405),
    ],
)
def test_gaps_of_bins(bins, norm, expected):
    p, y = zip(*(pair for pairs in bins for pair in pairs))
    assert metrics.ece(y, two(p), kind="binary", n_bins=2, norm=norm) == pytest.approx(expected, abs=1e-7)


@pytest.mark.parametrize("norm", [1, 2, 3])
def test_two_values(norm):
    p, y = [0.5, 0.5, 0.5, 0.6, 0.5, 0.6, 0.6, 0.6, 0.6], [0, 1, 0, 1, 0, 1, 1, 1, 0]
    expected = (4 / 9 * 0.25**norm + 5 / 9 * 0.2**norm) ** (1 / norm)
    for kind in ("binary", "classwise", "top"):
        assert metrics.ece(y, two(p), kind=kind, n_bins=20, norm=norm) == pytest.approx(expected)
    debiased = metrics.ece(y, two(p), kind="binary", n_bins=20, norm=2, debiased=True)
    assert debiased < metrics.ece(y, two(p), kind="binary", n_bins=20, norm=2)


@pytest.mark.parametrize("norm", [1, 2, 3])
def test_three_classes(norm):
    rows = [[0.6, 0.3, 0.1]] * 6 + [[0.1, 0.8, 0.1]] * 4 + [[0.1, 0.0, 0.9]] * 4
    y = [0, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 2]
    gaps = [(4, 0.1), (6, 5 / 6 - 0.6), (8, 0.1), (4, 0.05), (6, 0.3 - 1 / 6)]
    marginal = (sum(n / 42 * gap**norm for n, gap in gaps)) ** (1 / norm)
    gaps = [(6, 5 / 6 - 0.6), (4, 0.05), (4, 0.1)]
    top = (sum(n / 14 * gap**norm for n, gap in gaps)) ** (1 / norm)
    assert metrics.ece(y, rows, kind="classwise", n_bins=20, norm=norm) == pytest.approx(marginal)
    assert metrics.ece(y, rows, kind="top", n_bins=20, norm=norm) == pytest.approx(top)
    assert metrics.ece(y, rows, kind="top_label", n_bins=20, norm=norm) == pytest.approx(top)  # one class in each bin


SIX = [[0.8, 0.1, 0.1], [0.6, 0.2, 0.2], [0, 0.9, 0.1], [0, 1, 0], [0.3, 0.3, 0.4], [0.15, 0, 0.85]], [0, 0, 1, 1, 0, 2]


@pytest.mark.parametrize("norm", [1, 2, 3])
def test_equal_mass_of_three_classes(norm):
    expected = (0.5 * (2 / 3 - 0.6) ** norm + 0.5 * (1 - 2.75 / 3) ** norm) ** (1 / norm)
    assert metrics.ece(SIX[1], SIX[0], n_bins=2, strategy="quantile", norm=norm) == pytest.approx(expected)


def test_equal_width():
    assert metrics.ece(SIX[1], SIX[0], n_bins=3) == pytest.approx(4 / 6 * (1 - (0.8 + 0.85 + 0.9 + 1.0) / 4))
    assert metrics.ece([0, 0, 1, 1], two([0.6, 0.7, 0.8, 0.9]), kind="binary", n_bins=2) == pytest.approx(0.25)


def test_classes_that_do_not_occur():
    assert metrics.ece([0, 0], [[0.9, 0.1], [0.8, 0.2]]) == pytest.approx(0.15)
    assert metrics.ece([0, 0, 0], two([0.9, 0.1, 0.3]), kind="binary", n_bins=1) == pytest.approx(1.3 / 3)
    assert metrics.ece([1, 1, 1], two([0.9, 0.1, 0.3]), kind="binary", n_bins=1) == pytest.approx(1.7 / 3)


@pytest.mark.parametrize(
    "p, y, n_bins, expected",
    [
        ([0.1], [1], 1, 0.9),
        ([0.1], [0], 1, 0.1),
        ([0.1, 0.7], [0, 1], 1, 0.1),
        ([0.7, 0.1], [1, 0], 1, 0.1),
        ([0.1, 0.7, 0.4], [0, 0, 0], 1, 0.4),
        ([0.1, 0.9], [0, 1], 1, 0.0),
        ([0.1, 0.7], [0, 1], 2, 0.2),
        ([0.1, 0.1, 0.7], [0, 1, 1], 2, 0.4 * 2 / 3 + 0.3 / 3),
        ([0.1, 0.1, 0.1, 0.1, 0.7], [0, 1, 0, 0, 1], 2, 0.15 * 4 / 5 + 0.3 / 5),
        ([0.1, 0.7, 0.5, 0.9], [0, 1, 0, 1], 2, 0.25),
        ([0.1, 0.7, 0.5, 0.9], [0, 1, 0, 1], 4, 0.25),
        ([0.6, 0.7, 0.8, 0.9], [0, 0, 1, 1], 2, 0.4),
        ([0.1, 0.7, 0.5, 0.9], [0, 1, 1, 1], 2, 0.2),
        ([0.1, 0.7, 0.5, 0.9], [0, 1, 1, 1], 4, 0.25),
    ],
)
def test_equal_mass(p, y, n_bins, expected):
    found = metrics.ece(y, two(p), kind="binary", n_bins=n_bins, strategy="quantile")
    assert found == pytest.approx(expected, abs=1e-12)
