"""How much samples of the same cases are worth: the design effect, and the effective number of samples."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from attemper._typing import Floats, Labels
from attemper.data.arrays import is_foreign, to_numpy
from attemper.data.ids import as_ids
from attemper.data.labels import as_weights
from attemper.data.scores import LabelledScores
from attemper.errors import InputError
from attemper.kernels.clusters import design_effect
from attemper.metrics.predictions import Predictions

__all__ = ["EffectiveSampleSize", "effective_sample_size"]


@dataclass(frozen=True)
class EffectiveSampleSize:
    """Effective sample size of N samples in M clusters; `effective_sample_size` returns it.

    Examples
    --------
    >>> EffectiveSampleSize(4006, 2924, 0.62, 1.43, 2800.3).design_effect
    1.43
    """

    n_samples: int
    n_clusters: int
    correlation: float  # of two samples of one cluster; NaN where no cluster has two, or values do not differ
    design_effect: float  # variance of the mean over that of independent samples, at least 1
    effective: float  # the number of independent samples whose mean is as uncertain

    def __str__(self) -> str:
        """Return a sentence.

        >>> print(EffectiveSampleSize(4006, 2924, 0.6, 1.25, 3204.8))
        4006 samples of 2924 clusters, worth about 3205 independent ones
        """
        of = f"{self.n_samples} samples of {self.n_clusters} clusters"
        return f"{of}, worth about {self.effective:.0f} independent ones"


def effective_sample_size(values: Any, clusters: Any = None, sample_weight: Any = None) -> EffectiveSampleSize:
    r"""Compute how many independent samples N samples of M clusters are worth.

    The unit is the mean of the values. Its variance, with clusters drawn as wholes, is
    :math:`\frac{M}{M-1} \sum_c \left(\sum_{i \in c} w_i (v_i - \bar v)\right)^2 / (\sum_i w_i)^2`. The *design
    effect* is this over the variance with samples drawn one by one (Kish 1965), at least 1; the effective number is N
    over it. The correlation is that of two samples of one cluster, around the mean of all: with clusters of one size m
    the design effect is about 1 + (m − 1) times it. Where values do not differ, they show nothing of this, and a
    cluster counts as one sample.

    Parameters
    ----------
    values : array of shape (N,), or LabelledScores
        A number for each sample, such as 1 for an error and 0 otherwise, or its loss. Of a `LabelledScores` the values
        are its errors, 1 where the most probable class is not the label.
    clusters : array of shape (N,)
        The case that each sample is of: text or whole numbers. A `LabelledScores` may bring its own.
    sample_weight : array of shape (N,), optional

    Examples
    --------
    >>> errors = [1, 1, 0, 0, 0, 0, 1, 1]
    >>> found = effective_sample_size(errors, clusters=["a", "a", "b", "b", "c", "c", "d", "d"])
    >>> print(found)
    8 samples of 4 clusters, worth about 3 independent ones
    >>> found.correlation
    1.0
    """
    if isinstance(values, LabelledScores):
        p = Predictions.of(values, sample_weight=sample_weight, clusters=clusters)
        return size_of(p)
    if clusters is None:
        raise InputError("clusters: expected the case of each sample, got None. Use clusters=[…], one for each sample.")
    v = np.asarray(to_numpy(values) if is_foreign(values) else values)
    if v.ndim != 1 or v.dtype.kind not in "biuf" or not np.isfinite(v.astype(np.float64)).all():
        raise InputError(
            f"values: expected a finite number for each sample, shape (N,); got {v.dtype} of shape {v.shape}. Use 1 "
            "for an error and 0 otherwise, or losses."
        )
    w = np.ones(len(v)) if sample_weight is None else as_weights(sample_weight, len(v))
    _, case = np.unique(as_ids(clusters, len(v)), return_inverse=True)
    return _size(v.astype(np.float64)[w > 0], case[w > 0], w[w > 0])


def size_of(p: Predictions) -> EffectiveSampleSize:
    """Count by the errors of predictions; each sample is a cluster where there are none."""
    case = np.arange(len(p)) if p.clusters is None else p.clusters
    return _size((~p.right).astype(np.float64), case, p.weights)


def _size(v: Floats, case: Labels, w: Floats) -> EffectiveSampleSize:
    _, case = np.unique(case, return_inverse=True)
    n, m = len(v), int(case.max()) + 1 if len(case) else 0
    if not n:
        raise InputError("values: expected at least one sample, got none")
    effect = design_effect(v, case, w)
    if np.isnan(effect):  # one cluster, or values that do not differ
        return EffectiveSampleSize(n, m, float("nan"), n / m, float(m))
    return EffectiveSampleSize(n, m, _correlation(v, case, w), effect, n / effect)


def _correlation(v: Floats, case: Labels, w: Floats) -> float:
    """Mean product of two samples of one cluster around the overall mean, over the variance; weighted pairs."""
    apart = v - w @ v / w.sum()
    size, sums = np.bincount(case, w), np.bincount(case, w * apart)
    pairs = float(size @ size - w @ w)
    if pairs <= 1e-12 * float(w @ w):
        return float("nan")
    together = float(sums @ sums - (w * apart) @ (w * apart)) / pairs
    return together / (float(w @ np.square(apart)) / float(w.sum()))
