"""Are all groups alike? A test of whether labels depend on the group, given the confidence."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import csr_array

from attemper._typing import Floats, Labels
from attemper.metrics.bins import Binned, bins_of
from attemper.metrics.bootstrap import BATCH_ELEMENTS
from attemper.metrics.intervals import too_few
from attemper.metrics.predictions import Predictions

__all__ = ["GroupTest", "calibration_alike"]

# Signs of fewer clusters have too few patterns for a p-value.
LEAST_CLUSTERS = 10
ONE_GROUP = "there is one group alone"
NO_ERRORS = "all predictions are right, or all are wrong"
ONE_EACH = "no two groups have samples of about the same confidence"


class GroupTest(NamedTuple):
    """A test of whether all groups are alike: of `by_group`. Without a p-value ``note`` has the reason."""

    p_value: float | None
    statistic: float | None = None
    note: str = ""


def calibration_alike(p: Predictions, group: Labels, n_resamples: int, seed: int) -> GroupTest:
    r"""Test whether accuracy depends on the group, given the confidence.

    Samples are put into strata b of equal mass by their confidence c, and right is 1 where the prediction is the label.
    All groups share the gap :math:`m_b = \operatorname{mean}_b(\mathrm{right} - c)` of a stratum if they are alike,
    whether they are calibrated or not. The statistic is :math:`\sum_g s_g^2 / v_g`, where :math:`s_g` sums what is left
    of right − c in group g, and :math:`v_g` is the variance of that sum for independent labels.

    Independent samples: the labels are drawn again and again from the common curve, right with probability
    :math:`c + m_b`, and the statistic is computed anew. Clusters: what is left gets a random sign for each cluster (a
    wild bootstrap of the score, P. Kline and A. Santos, 2012), as nothing is known of the dependence inside.
    """
    reason = _no_test(p, group)
    if reason:
        return GroupTest(None, note=reason)
    offset = p.confidence
    stratum = bins_of(offset, Binned(p, "top", "auto", "quantile").edges[0])
    right, w = p.right.astype(np.float64), p.weights
    table = _table(group, stratum, w)
    share = table / np.maximum(table.sum(axis=0), 1e-300)  # of each group in a stratum
    common = (np.bincount(stratum, w * (right - offset)) / np.maximum(table.sum(axis=0), 1e-300))[stratum]
    chance = np.clip(offset + common, 0, 1)
    noise = _table(group, stratum, w**2 * chance * (1 - chance))
    variance = (noise * (1 - 2 * share)).sum(axis=1) + share**2 @ noise.sum(axis=0)
    known = variance > 1e-12 * max(float(noise.sum()), 1e-300)
    if not known.any():
        return GroupTest(None, note=ONE_EACH)

    def statistic(by_group: Floats, by_stratum: Floats) -> Floats:
        left = by_group - share @ by_stratum
        return np.asarray((left[known] ** 2 / variance[known, None]).sum(axis=0))

    rows = np.arange(len(p)) if p.clusters is None else p.clusters
    weight = w if p.clusters is None else w * (right - offset - common)
    adding = [
        csr_array((weight, (place, rows)), (n, int(rows.max()) + 1)) for place, n in zip((group, stratum), share.shape)
    ]
    rest = (right - offset)[:, None] if p.clusters is None else np.ones((adding[0].shape[1], 1))
    found = float(statistic(*(sums @ rest for sums in adding))[0])
    rng, reach, n = np.random.default_rng(seed), 0, adding[0].shape[1]
    batch = max(1, BATCH_ELEMENTS // max(n, len(share)))
    for first in range(0, n_resamples, batch):
        size = (n, min(batch, n_resamples - first))
        if p.clusters is None:
            drawn = (rng.random(size) < chance[:, None]) - offset[:, None]
        else:
            drawn = rng.choice((-1.0, 1.0), size)
        reach += int((statistic(*(sums @ drawn for sums in adding)) >= found * (1 - 1e-9)).sum())
    return GroupTest((1 + reach) / (1 + n_resamples), found)


def _table(group: Labels, stratum: Labels, values: Any) -> Floats:
    """Sum over the samples of each group in each stratum."""
    n_strata = int(stratum.max()) + 1
    size = (int(group.max()) + 1) * n_strata
    return np.bincount(group * n_strata + stratum, values, size).reshape(-1, n_strata).astype(np.float64)


def _no_test(p: Predictions, group: Labels) -> str:
    """Give the reason for no test; empty where there is one."""
    if group.max() == 0:
        return ONE_GROUP
    if p.right.all() or not p.right.any():
        return NO_ERRORS
    if p.clusters is not None:
        return too_few(len(np.unique(p.clusters)), "clusters", LEAST_CLUSTERS).replace("an interval", "a test")
    return ""
