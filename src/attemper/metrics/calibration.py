"""Calibration errors: how far confidence lies from accuracy."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial

import numpy as np

from attemper._typing import Floats
from attemper.errors import InputError
from attemper.metrics.bins import BY_CLASS, Binned, Bins, Kind, Norm, Strategy, bins_of, check_norm, error_of
from attemper.metrics.bootstrap import BATCH_ELEMENTS, Statistic
from attemper.metrics.intervals import Estimate, quantile
from attemper.metrics.metric import metric
from attemper.metrics.predictions import Predictions

__all__ = ["classwise_ece", "ece", "mce", "mmce"]

MMCE_WIDTH = 0.4  # of the Laplacian kernel, as in the paper
NO_MAXIMUM = "no interval for a maximum: the bin with the fewest samples decides it, so p shows little"
NO_DEBIASED = "no interval of the debiased error by cluster: its correction is for independent samples"
NO_CLASSWISE = "no interval for class-wise bins: many hold too few samples"


@metric
def ece(
    p: Predictions,
    *,
    kind: Kind = "top",
    n_bins: Bins = 15,
    strategy: Strategy = "uniform",
    norm: Norm = 1,
    debiased: bool = False,
) -> Statistic:
    r"""ECE, the expected calibration error; by default Eq. (3) of arXiv 1810.11586 with 15 bins.

    .. math:: \Big( \sum_l \tfrac{|B_l|}{N} |\mathrm{acc}(B_l) - \mathrm{conf}(B_l)|^p \Big)^{1/p}

    Equal width bins are (lo, hi]; the first takes 0 too.

    Parameters
    ----------
    labels, probs, input, sample_weight, n_resamples, seed
        As in `nll`.
    kind : {"top", "classwise", "full", "binary", "top_label"}
        Which (probability, right or wrong) pairs are binned: of the most probable class;
        of each class in bins of its own, with the mean over the classes taken inside the
        root; of all classes pooled into one set of bins; of the second of two classes; of the most probable class, in
        bins of its own for each predicted class (Gupta and Ramdas 2022).
    n_bins : int or "auto"
        Number of bins (of each class, if class-wise). "auto" is :math:`N^{1/3}`, rounded: more bins add noise, fewer
        hide errors, and that rate balances both (Sun et al. 2023). It depends on the number of samples
        alone (the effective one, where they have weights) and not on the labels, so that ``p_value`` holds.
    strategy : {"uniform", "quantile"}
        Bins of equal width, or of equal weight (equal confidences stay together).
    norm : float or "max"
        The power p, from 1 to 64: 2 is the RMS calibration error; "max" is the largest gap of any bin.
    debiased : bool
        Subtract from each squared gap what chance alone adds, acc (1 − acc) / (\|B\| − 1), the
        estimator of Kumar et al. (2019); for ``norm=2``. Bins with one sample count as 0, and
        so does a negative total. Weights count as repeats here, in the interval too: their unit matters.
    confidence_level : float, optional
        Such as 0.95: return an `Estimate` with a bootstrap interval of the error in these
        bins, if there are 20 errors. ECE itself is too large when samples are few, and the interval is
        corrected for that (see `attemper.metrics.bootstrap.estimate_all`): its lower end is 0 when the
        predictions may well be calibrated, and the value often lies near its upper end. With ``debiased``
        it is that of a U-statistic. Bins for each class and ``norm="max"`` have none. ``chance`` of the `Estimate`
        is the mean ECE of perfectly calibrated predictions, from labels drawn from ``probs``, and
        ``p_value`` the share of draws with an ECE as large.

    Returns
    -------
    float or Estimate

    References
    ----------
    M. P. Naeini et al., Obtaining well calibrated probabilities using Bayesian strategy, 2015.
    A. Kumar, P. Liang, T. Ma, Verified uncertainty calibration, 2019.
    C. Gupta, A. Ramdas, Top-label calibration and multiclass-to-binary reductions, 2022.
    https://arxiv.org/abs/2107.08353
    Z. Sun, D. Song, A. Hero, Minimum-risk recalibration of classifiers, 2023. https://arxiv.org/abs/2305.10886

    Examples
    --------
    >>> probs = [[0.9, 0.1], [0.2, 0.8], [0.3, 0.7], [0.4, 0.6]]
    >>> round(ece([0, 1, 0, 1], probs), 3)
    0.35
    >>> round(ece([0, 1, 0, 1], probs, n_bins=1), 3)
    0.0
    >>> round(ece([0, 1, 0, 1], probs, kind="top_label", n_bins=1), 3)
    0.05
    """
    check_norm(norm)
    if debiased and norm != 2:
        raise InputError(f"debiased=True corrects squared gaps: expected norm=2, got norm={norm!r}")
    binned = Binned(p, kind, n_bins, strategy)
    if debiased and not any((weight > 1).any() for weight, _, _ in binned.sums(p.weights[:, None])):
        raise InputError(
            "debiased=True needs a bin with two samples or more (weights count as repeats, so do not scale "
            f"them to sum to 1): {len(p)} samples of total weight {p.weights.sum():.6g} in {n_bins} bins"
        )
    if norm == "max":
        reason = NO_MAXIMUM
    elif kind in BY_CLASS:
        reason = NO_CLASSWISE
    elif debiased and p.clusters is not None:
        reason = NO_DEBIASED
    else:
        reason = p.few_errors()

    def drawn(rng: np.random.Generator, count: int, w: Floats) -> Floats:
        sizes = _batches(count, max(len(w), binned.edges.size))
        tables = [table[..., 0] for table in binned.sums(w[:, None])]
        return np.concatenate([error_of(binned.drawn(rng, size, w, tables), norm, debiased=debiased) for size in sizes])

    limits = partial(_around_debiased, binned) if debiased else None
    return Statistic(lambda w: error_of(binned.sums(w), norm, debiased=debiased), limits, reason, drawn)


@metric
def mce(
    p: Predictions,
    *,
    kind: Kind = "top",
    n_bins: Bins = 15,
    strategy: Strategy = "uniform",
) -> Statistic:
    """Maximum calibration error: the largest gap of any bin, `ece` with ``norm="max"``.

    It depends on the bin with the fewest samples, and a bin of one or two does not show how uncertain its gap is. So
    there is no interval: use ``chance`` and ``p_value`` of the `Estimate`, few bins, or ``strategy="quantile"``.
    Naeini et al., 2015. Parameters as in `ece`.

    Examples
    --------
    >>> round(mce([0, 1, 0, 1], [[0.9, 0.1], [0.2, 0.8], [0.3, 0.7], [0.4, 0.6]]), 3)
    0.7
    """
    return ece.statistic(p, kind=kind, n_bins=n_bins, strategy=strategy, norm="max")


@metric
def classwise_ece(
    p: Predictions,
    *,
    n_bins: Bins = 15,
    strategy: Strategy = "uniform",
    norm: Norm = 1,
) -> Statistic:
    """Mean over the classes of each one's calibration error, `ece` with ``kind="classwise"``.

    Parameters as in `ece`.

    Examples
    --------
    >>> round(classwise_ece([0, 1, 0, 1], [[0.9, 0.1], [0.2, 0.8], [0.3, 0.7], [0.4, 0.6]]), 3)
    0.35
    """
    return ece.statistic(p, kind="classwise", n_bins=n_bins, strategy=strategy, norm=norm)


@metric
def mmce(p: Predictions) -> Statistic:
    r"""Maximum mean calibration error: no bins, but a kernel over confidences.

    .. math:: \Big( \tfrac{1}{N^2} \sum_{ij} (c_i - r_i)(c_j - r_j) e^{-|r_i - r_j| / 0.4} \Big)^{1/2}

    with confidence r and c = 1 where the most probable class is the label. Exact, in
    O(N log N). Parameters as in `nll`, the interval as in `ece`.

    References
    ----------
    A. Kumar, S. Sarawagi, U. Jain, Trainable calibration measures for neural networks from
    kernel mean embeddings, 2018.

    Examples
    --------
    >>> round(mmce([0, 1, 0, 1], [[0.9, 0.1], [0.2, 0.8], [0.3, 0.7], [0.4, 0.6]]), 4)
    0.0891
    """
    confidence, right = p.top
    order = np.argsort(confidence, kind="stable")
    r = confidence[order, None]
    # For r_j <= r_i the kernel is e^(−r_i/0.4) e^(r_j/0.4), so a running sum over sorted confidences
    # does the inner sum. Nothing overflows: the exponents end at 1/0.4.
    rise, fall = np.exp(r / MMCE_WIDTH), np.exp(-r / MMCE_WIDTH)

    def value_of(gap: Floats, w: Floats) -> Floats:
        a = gap * (w / w.sum(axis=0))[order]
        below = np.cumsum(a * rise, axis=0) * fall  # the sum over j <= i, each i itself included
        square = 2 * np.einsum("ib,ib->b", a, below) - np.einsum("ib,ib->b", a, a)
        return np.asarray(np.sqrt(np.maximum(square, 0.0)))

    def drawn(rng: np.random.Generator, count: int, w: Floats) -> Floats:
        sizes = _batches(count, len(r))
        return np.concatenate([value_of((r > rng.random((size, len(r))).T) - r, w[:, None]) for size in sizes])

    gap = right[order, None] - r
    return Statistic(partial(value_of, gap), None, p.few_errors(), drawn)


def _around_debiased(binned: Binned, value: float, w: Floats, confidence_level: float) -> Estimate:
    r"""Put normal limits around the U-statistic of the squared gaps, :math:`\theta = \sum_b \pi_b \delta_b^2`.

    A sample of bin b with the difference d of outcome and probability has the influence
    :math:`2 \delta_b d - \delta_b^2 - \theta`; where all gaps are 0 that is 0, and the variance
    :math:`2 \sigma_b^4` of the products of two samples is left.
    """
    [(weight, confidence, right)] = (table[..., 0] for table in binned.sums(w[:, None]))
    gap = (right - confidence) / np.where(weight > 0, weight, 1.0)
    influence, squares = np.zeros(len(w)), np.zeros(len(weight))
    for c, r in binned.pairs():
        place, d = bins_of(c, binned.edges[0]), r - c
        influence += (2 * gap[place] * d - gap[place] ** 2) * w.sum() / weight.sum()
        squares += np.bincount(place, w * d**2, minlength=len(weight))
    many = weight > 1  # weights count as repeats, as in the value
    n = np.where(many, weight, 2.0)
    variance = np.where(many, np.maximum(squares - weight * gap**2, 0.0) / (n - 1), 0.0)
    theta = np.sum(np.where(many, weight * (gap**2 - variance / n), 0.0)) / weight.sum()
    a = w / w.sum()
    first = a @ (influence - a @ influence) ** 2 / w.sum()
    second = np.sum(2 * variance**2 * n / (n - 1)) / weight.sum() ** 2
    half = quantile(confidence_level) * math.sqrt(first + second)
    low, high = (math.sqrt(max(0.0, theta + end)) for end in (-half, half))
    return Estimate(value, min(low, value), max(high, value))


def _batches(count: int, n: int) -> Iterator[int]:
    """Cut draws of n numbers each into batches that memory holds."""
    batch = max(1, BATCH_ELEMENTS // n)
    return (min(batch, count - first) for first in range(0, count, batch))
