"""Bayesian binning into quantiles (Naeini, Cooper, Hauskrecht 2015): the average over histograms of many sizes."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln

from attemper.calibrators.binning import BinCalibrator, Function, Tally, bin_starts
from attemper.calibrators.estimator import recipe
from attemper.calibrators.one_vs_rest import Problem
from attemper.calibrators.style import SKY, Style

__all__ = ["BBQ"]

EQUIVALENT_SAMPLE_SIZE = 2.0  # N' of the paper
SPREAD = 10.0  # C of the paper
# Histograms whose share of the average is smaller are left out, so that they leave no knots behind.
NEGLIGIBLE = 1e-13


@recipe
class BBQ(BinCalibrator):
    r"""Bayesian binning into quantiles: an average over histograms with few and with many bins.

    For each class there is a histogram of equal mass for every number of bins B from :math:`N^{1/3}/10` to
    :math:`10 N^{1/3}`. Bin b, with m_b samples of the class and n_b others, has a Beta prior with
    :math:`\alpha_b = \frac{2}{B} p_b` and :math:`\beta_b = \frac{2}{B} (1 - p_b)`, p_b being its middle. A histogram's
    share in the average is proportional to its marginal likelihood

    .. math::

        \prod_b \frac{\Gamma(2/B)}{\Gamma(m_b + n_b + 2/B)} \frac{\Gamma(m_b + \alpha_b)}{\Gamma(\alpha_b)}
        \frac{\Gamma(n_b + \beta_b)}{\Gamma(\beta_b)}

    and what it predicts is the posterior mean, :math:`(m_b + \alpha_b) / (m_b + n_b + 2/B)`. Rows are normalised. With
    two classes there is one average, of class 1. Weights count repeats, so N is their sum.

    Bins end half-way between neighbouring samples. Samples with the same probability are never parted, which may
    leave a histogram with fewer bins (B is then their number), or the same as another (which then counts once).

    **The arg max may change**, since each class has a function of its own: in which share of the validation samples it
    did stands in ``fit_report_.changed``. Only masked classes have a probability of 0.

    Parameters
    ----------
    input, zeros_as, classes
        As in `TemperatureScaling`.

    Attributes
    ----------
    map_ : BinMap
        The averages, as one step function for each class.
    fit_report_ : FitReport
    classes_, n_features_in_

    References
    ----------
    M. P. Naeini, G. F. Cooper, M. Hauskrecht, Obtaining well calibrated probabilities using Bayesian binning, 2015.

    Examples
    --------
    >>> import numpy as np
    >>> from attemper import BBQ
    >>> rng = np.random.default_rng(0)
    >>> p = rng.random(3000)
    >>> bbq = BBQ(input="probs").fit(p, (rng.random(3000) < p**2).astype(int))
    >>> bbq.predict_positive([0.8]).round(1)
    array([0.6])
    """

    method = "bbq"
    title = "Bayesian binning"
    style = Style(SKY, (0, (8, 2)), "d")

    def _message(self, count: str) -> str:
        return f"an average over histograms: {count} steps for each class"

    def _function(self, problem: Problem) -> Function:
        return _average(problem)


def _average(problem: Problem) -> Function:
    """Average over all histograms of one class."""
    if len(problem.x) == 0:
        return np.array([0.0]), np.array([0.5])  # the mean of the prior, of one bin
    tally = Tally.of(problem)
    edges = tally.edges
    model, start, stop = _binnings(tally, float(problem.w.sum()))
    first = np.flatnonzero(np.r_[True, np.diff(model) > 0])
    prior = (EQUIVALENT_SAMPLE_SIZE / np.diff(np.r_[first, len(model)]))[model]  # N'/B of each bin
    between = np.column_stack([start, stop]).ravel()
    m, n = (np.add.reduceat(np.r_[v, 0.0], between)[::2] for v in (tally.positive, tally.negative))
    # A bin whose middle is 0 or 1 to rounding would have a prior without width.
    alpha = prior * np.maximum((edges[start] + edges[stop]) / 2, 1e-300)
    beta = prior * np.maximum(((1 - edges[start]) + (1 - edges[stop])) / 2, 1e-300)
    evidence = gammaln(prior) - gammaln(m + n + prior)
    evidence += gammaln(m + alpha) - gammaln(alpha)
    evidence += gammaln(n + beta) - gammaln(beta)
    score = np.add.reduceat(evidence, first)
    share = np.exp(score - score.max())
    share /= share.sum()

    kept = share[model] > NEGLIGIBLE
    model, start, mean = model[kept], start[kept], ((m + alpha) / (m + n + prior))[kept]
    knots = np.unique(start)
    total = np.zeros(len(knots))
    first = np.flatnonzero(np.r_[True, np.diff(model) > 0])
    for a, b in zip(first, np.r_[first[1:], len(model)]):
        at = np.searchsorted(knots, start[a:b])
        total += share[model[a]] * np.repeat(mean[a:b], np.diff(np.r_[at, len(knots)]))
    return edges[knots], np.minimum(total / share[share > NEGLIGIBLE].sum(), 1.0)


def _binnings(tally: Tally, total: float) -> tuple[NDArray[np.intp], NDArray[np.intp], NDArray[np.intp]]:
    """All bins of all histograms: which histogram, and the first and the last (exclusive) of its values."""
    values = len(tally.low)
    root = total ** (1 / 3)
    fewest = min(max(1, math.floor(root / SPREAD)), values)
    most = max(min(math.ceil(root * SPREAD), values), fewest)
    sizes = np.arange(fewest, most + 1)
    size = np.repeat(sizes, sizes)
    number = np.arange(len(size)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    start = bin_starts(tally.middle, number, size)
    filled = (start < values) & ((number == 0) | np.r_[True, np.diff(start) != 0])
    size, start = size[filled], start[filled]
    if not filled.all():  # ties: some histograms may be the same
        seen: set[bytes] = set()
        new = np.zeros(most + 1, dtype=bool)
        for n_bins in sizes:
            key = start[size == n_bins].tobytes()
            new[n_bins] = key not in seen
            seen.add(key)
        size, start = size[new[size]], start[new[size]]
    model = np.cumsum(np.r_[0, np.diff(size) > 0])
    return model, start, np.where(np.r_[np.diff(model) > 0, True], values, np.r_[start[1:], values])
