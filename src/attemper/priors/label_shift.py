"""Whether another mix of classes explains new predictions, and estimates of that mix that need no calibration.

Label shift means that p(x | y) is what it was and only the shares of the classes differ. The distribution of any
function of x over new data is then Σ_k π_k p(f(x) | y = k). For the cells of `PredictionCounts` the right side is known
from labelled data, up to π: if no π gives the counts of the new data, it is no label shift.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.optimize import brentq

from attemper._typing import Floats
from attemper.errors import InputError
from attemper.kernels.priors import most_likely_priors
from attemper.priors.counts import PredictionCounts

__all__ = ["LabelShiftTest", "bbse", "cell_likelihoods", "label_shift_test", "rlls"]

MOST_UNEXPLAINED = 0.02  # share of the predictions; below, a difference does not matter
ALPHA = 0.01


class LabelShiftTest(NamedTuple):
    """How well some mix of the classes explains the predictions for new data: the result of `label_shift_test`.

    Attributes
    ----------
    p_value : float
        Of the hypothesis that only the shares of the classes differ: by a parametric bootstrap of both tables.
    unexplained : float
        Share of the predictions that no mix of the classes explains: half the sum of the absolute differences of the
        shares of the cells, less what it is by chance.
    priors : array
        Shares of the classes that explain the cells best.
    """

    p_value: float
    unexplained: float
    priors: Floats

    @property
    def plausible(self) -> bool:
        """Whether the difference is not significant at 1 %, or at most 2 % of the predictions."""
        return self.p_value > ALPHA or self.unexplained <= MOST_UNEXPLAINED


def label_shift_test(
    reference: PredictionCounts,
    new: PredictionCounts,
    *,
    priors: Floats | None = None,
    n_resamples: int = 199,
    seed: int = 0,
) -> LabelShiftTest:
    """Test whether new predictions are those of another mix of the classes of labelled data.

    The statistic is the likelihood ratio G² of the counts of the new data, with the shares of the classes that make it
    least. Its distribution under label shift comes from drawing both tables anew from the fitted model.

    Parameters
    ----------
    reference : PredictionCounts
        With labels: predictions for data like those of the fit.
    new : PredictionCounts
        Predictions of the same map for new data.
    priors : array of shape (n_classes,), optional
        Shares of the classes that are tested; needed for more than 32 classes, of which cells do not show the
        predicted class. By default those that explain the cells best.
    n_resamples, seed
        Of the bootstrap.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> def predictions(share, scale):
    ...     y = (rng.random(3000) < share).astype(int)
    ...     p = 1 / (1 + np.exp(-scale * (2 * y - 1 + rng.normal(size=3000))))
    ...     return np.column_stack([1 - p, p]), y
    >>> reference = PredictionCounts.of(*predictions(0.5, 2.0))
    >>> label_shift_test(reference, PredictionCounts.of(predictions(0.2, 2.0)[0])).plausible
    True
    >>> label_shift_test(reference, PredictionCounts.of(predictions(0.2, 4.0)[0])).plausible
    False
    """
    if not reference.labelled or new.labelled:
        raise InputError("expected a reference that was counted with labels, and new predictions without")
    if reference.n_classes != new.n_classes:
        raise InputError(f"a reference of {reference.n_classes} classes, but new predictions of {new.n_classes}")
    if priors is None and reference.confusion is None:
        raise InputError(
            f"priors: expected shares of the {new.n_classes} classes, got none; cells show their mix for 32"
        )
    used = (reference.counts.sum(axis=1) + new.counts) > 0
    labelled = reference.counts.sum(axis=0) > 0  # of other classes nothing is known, so that they explain anything
    table, counts = reference.counts[used][:, labelled], new.counts[used]
    fixed = None if priors is None else priors[labelled] / priors[labelled].sum()
    model, found, statistic, distance = _explained(table, counts, fixed)
    of_class, n = np.round(table.sum(axis=0)).astype(int), max(1, round(float(counts.sum())))
    rng = np.random.default_rng(seed)
    drawn = []
    for _ in range(n_resamples):
        columns = [rng.multinomial(m, model[:, k]) for k, m in enumerate(of_class)]
        mix = model @ found
        again = rng.multinomial(n, mix / mix.sum()).astype(float)
        drawn.append(_explained(np.array(columns, float).T, again, fixed)[2:])
    by_chance = np.array(drawn)
    p_value = (1 + float((by_chance[:, 0] >= statistic).sum())) / (1 + n_resamples)
    shares = np.zeros(reference.n_classes)
    shares[labelled] = found
    return LabelShiftTest(p_value, max(0.0, distance - float(by_chance[:, 1].mean())), shares)


def cell_likelihoods(table: Floats, counts: Floats) -> Floats:
    """p(cell | class) of a table of cells × classes, with one sample more of each class, drawn from all data."""
    pooled = table.sum(axis=1) + counts + 0.5
    return np.asarray((table + (pooled / pooled.sum())[:, None]) / (table.sum(axis=0) + 1))


def _explained(table: Floats, counts: Floats, fixed: Floats | None) -> tuple[Floats, Floats, float, float]:
    """Return p(cell | class), the best shares of the classes unless fixed, G² and the distance that they leave."""
    model = cell_likelihoods(table, counts)
    priors = most_likely_priors(model, counts, tolerance=1e-6).priors if fixed is None else fixed
    mix, seen, n = model @ priors, counts > 0, counts.sum()
    statistic = 2 * float(counts[seen] @ np.log(counts[seen] / (n * mix[seen])))
    return model, priors, statistic, 0.5 * float(np.abs(counts / n - mix).sum())


def bbse(confusion: Floats, predicted: Floats) -> Floats:
    """Class priors by black-box shift estimation (Lipton et al. 2018): the solution of Σ_k C_jk w_k = μ_j.

    ``confusion`` counts predicted × true class on labelled data, ``predicted`` the predicted classes on new data.
    Shares below zero become zero.

    >>> bbse(np.array([[40.0, 10.0], [10.0, 40.0]]), np.array([35.0, 65.0])).round(3)
    array([0.25, 0.75])
    """
    joint, shares = confusion / confusion.sum(), predicted / predicted.sum()
    return _as_shares(np.linalg.pinv(joint) @ shares, joint)


def rlls(confusion: Floats, predicted: Floats, *, strength: float = 0.01, delta: float = 0.05) -> Floats:
    """Class priors by regularised learning under label shift (Azizzadenesheli et al. 2019): `bbse`, shrunk.

    Minimises ‖C θ − (μ − C 1)‖ + Δ ‖θ‖ for the weights 1 + θ, where Δ bounds the error of C; ``strength`` multiplies
    it, as in the authors' code.

    >>> rlls(np.array([[40.0, 10.0], [10.0, 40.0]]), np.array([35.0, 65.0])).round(2)
    array([0.25, 0.75])
    """
    joint, shares = confusion / confusion.sum(), predicted / predicted.sum()
    n, k = float(confusion.sum()), len(shares)
    bound = np.log(2 * k / delta)
    size = strength * 3 * (2 * bound / (3 * n) + np.sqrt(2 * bound / n))
    u, s, v = np.linalg.svd(joint)
    target = shares - joint.sum(axis=1)
    along = u.T @ target

    def theta(log_ridge: float) -> Floats:
        return np.asarray(v.T @ (s * along / (s * s + np.exp(log_ridge))))

    def slope(log_ridge: float) -> float:  # ridge · ‖θ‖ = Δ · ‖C θ − b‖ at the optimum
        found = theta(log_ridge)
        left = np.linalg.norm(joint @ found - target)
        return float(np.exp(log_ridge) * np.linalg.norm(found) - size * left)

    low, high = -60.0, 20.0
    within = slope(low) < 0 < slope(high)
    return _as_shares(1 + theta(float(brentq(slope, low, high)) if within else low), joint)


def _as_shares(weights: Floats, joint: Floats) -> Floats:
    shares = np.maximum(weights, 0) * joint.sum(axis=0)
    return np.asarray(shares / shares.sum())
