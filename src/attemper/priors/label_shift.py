"""Whether another mix of classes explains new predictions.

Label shift means that p(x | y) is what it was and only the shares of the classes differ. The distribution of any
function of x over new data is then Σ_k π_k p(f(x) | y = k). Here f is a cell: the predicted class (up to 32 classes)
and a range of its probability. The right side is known from labelled data, up to π: if no π gives the counts of the new
data, it is no label shift.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from attemper._typing import Floats, Labels
from attemper.errors import InputError
from attemper.kernels.priors import most_likely_priors

__all__ = ["LabelShiftTest", "label_shift_test"]

PREDICTED_CLASSES = 32  # up to which cells are by predicted class; beyond, the confidence alone
EDGES = np.array([0.5, 0.8, 0.95, 0.99])  # of the confidence, between cells
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
    val_probs: Floats,
    val_labels: Labels,
    probs: Floats,
    *,
    priors: Floats | None = None,
    val_sample_weight: Floats | None = None,
    val_clusters: Any = None,
    sample_weight: Floats | None = None,
    clusters: Any = None,
    n_resamples: int = 199,
    seed: int = 0,
) -> LabelShiftTest:
    """Test whether new predictions are those of another mix of the classes of labelled data.

    The statistic is the likelihood ratio G² of the counts of the new data, with the shares of the classes that make it
    least. Its distribution under label shift comes from drawing both tables anew from the fitted model.

    Parameters
    ----------
    val_probs, val_labels : arrays of shape (n_val, n_classes) and (n_val,)
        Calibrated predictions for data like those of the fit, and their labels, as column numbers.
    probs : array of shape (n_samples, n_classes)
        Predictions of the same map for new data.
    priors : array of shape (n_classes,), optional
        Shares of the classes that are tested; needed for more than 32 classes, of which cells do not show the
        predicted class. By default those that explain the cells best.
    val_sample_weight, val_clusters, sample_weight, clusters : arrays, optional
        Weights of the rows, and which rows are of one patient, document or user: they count as one sample.
    n_resamples, seed
        Of the bootstrap.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> def predictions(share, scale):
    ...     y = (rng.random(3000) < share).astype(int)
    ...     p = 1 / (1 + np.exp(-scale * (2 * y - 1 + rng.normal(size=3000))))
    ...     return np.column_stack([1 - p, p]), y
    >>> val = predictions(0.5, 2.0)
    >>> label_shift_test(*val, predictions(0.2, 2.0)[0]).plausible
    True
    >>> label_shift_test(*val, predictions(0.2, 4.0)[0]).plausible
    False
    """
    k = val_probs.shape[1]
    if probs.shape[1] != k:
        raise InputError(f"a reference of {k} classes, but new predictions of {probs.shape[1]}")
    if priors is None and k > PREDICTED_CLASSES:
        raise InputError(f"priors: expected shares of the {k} classes, got none; cells show their mix for 32")
    reference = _counts(_cells(val_probs) * k + val_labels, _n_cells(k) * k, val_sample_weight, val_clusters)
    table, counts = reference.reshape(-1, k), _counts(_cells(probs), _n_cells(k), sample_weight, clusters)
    used = (table.sum(axis=1) + counts) > 0
    labelled = table.sum(axis=0) > 0  # of other classes nothing is known, so that they explain anything
    table, counts = table[used][:, labelled], counts[used]
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
    shares = np.zeros(k)
    shares[labelled] = found
    return LabelShiftTest(p_value, max(0.0, distance - float(by_chance[:, 1].mean())), shares)


def _n_cells(n_classes: int) -> int:
    """Return how many cells there are."""
    return (len(EDGES) + 1) * (n_classes if n_classes <= PREDICTED_CLASSES else 1)


def _cells(probs: Floats) -> Labels:
    """Return the cell of each row."""
    cells = np.searchsorted(EDGES, probs.max(axis=1), side="right")
    of_class = probs.argmax(axis=1) * (len(EDGES) + 1) if probs.shape[1] <= PREDICTED_CLASSES else 0
    return np.asarray(of_class + cells, dtype=np.int64)


def _counts(cells: Labels, size: int, weights: Floats | None, clusters: Any) -> Floats:
    """Count the rows of each cell; those of one cluster count as one sample together."""
    w = np.ones(len(cells)) if weights is None else np.asarray(weights, dtype=np.float64)
    if clusters is not None:
        code = np.unique(np.asarray(clusters), return_inverse=True)[1].reshape(-1)
        w = w / np.maximum(np.bincount(code, w), 1e-300)[code]
    return np.asarray(np.bincount(cells, w, size), dtype=np.float64)


def _explained(table: Floats, counts: Floats, fixed: Floats | None) -> tuple[Floats, Floats, float, float]:
    """Return p(cell | class), the best shares of the classes unless fixed, G² and the distance that they leave."""
    # With one sample more of each class, drawn from all data.
    pooled = table.sum(axis=1) + counts + 0.5
    model = (table + (pooled / pooled.sum())[:, None]) / (table.sum(axis=0) + 1)
    priors = most_likely_priors(model, counts, tolerance=1e-6).priors if fixed is None else fixed
    mix, seen, n = model @ priors, counts > 0, counts.sum()
    statistic = 2 * float(counts[seen] @ np.log(counts[seen] / (n * mix[seen])))
    return model, priors, statistic, 0.5 * float(np.abs(counts / n - mix).sum())
