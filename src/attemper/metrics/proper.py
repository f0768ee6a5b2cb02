"""Proper scores, which reward both sharpness and calibration, and accuracy."""

from __future__ import annotations

import numpy as np

from attemper._typing import Floats
from attemper.metrics.bootstrap import Statistic
from attemper.metrics.intervals import around_mean, around_share, effective
from attemper.metrics.metric import metric
from attemper.metrics.predictions import Predictions

__all__ = ["accuracy", "brier", "mean_of", "nll", "share_of"]

INFINITE = "no interval for an infinite mean: a label has probability 0"


@metric
def nll(p: Predictions) -> Statistic:
    r"""Mean negative log-likelihood, in nats; Eq. (2) of arXiv 1810.11586 over N.

    .. math:: \mathrm{NLL} = -\frac{1}{N} \sum_i \log S_{y_i}(x_i)

    Infinite when some label has probability 0.

    Parameters
    ----------
    labels : array of shape (N,), or LabelledScores
        True classes, as column numbers, or names with ``classes``. `LabelledScores` have their own labels and
        weights, and probabilities, if ``probs`` is left out.
    probs : array of shape (N, K), or Scores
        Predictions: NumPy, torch or any other array.
    input : {"probs", "log_probs", "logits"}
        What ``probs`` holds. Logarithms cannot underflow, and distinguish confidences that round to 1. `Scores` know.
    classes : sequence, optional
        Names of the classes in column order, if labels are names.
    sample_weight : array of shape (N,), optional
        The value is that of a sample of weight 2 twice; intervals use the effective number of samples (Kish).
    axis, ignore_index : int, optional
        Where the classes are in an array of three dimensions or more, 1 for (N, K, H, W), with labels of shape
        (N, H, W); and the label of samples that do not count.
    clusters : array of shape (N,), optional
        Which case (patient, document, image) each sample is of: intervals then draw whole cases. Pixels are of their
        image by default, and one entry for each image is enough.
    confidence_level : float, optional
        Such as 0.95: return an `Estimate` with an interval of that level. It allows for the
        skewness of the losses (Hall 1992) and needs 20 errors: with fewer, its ``note`` has the reason
        and low and high are NaN.
    n_resamples, seed : int
        For calibration errors: how many resamples make the interval, and their random seed.

    Returns
    -------
    float or Estimate

    Examples
    --------
    >>> round(nll([0, 1], [[0.5, 0.5], [0.2, 0.8]]), 4)
    0.4581
    >>> round(nll(["cat", "dog"], [[0.5, 0.5], [0.2, 0.8]], classes=["cat", "dog"]), 4)
    0.4581
    """
    return mean_of(-p.log_likelihood, p.few_errors())


@metric
def brier(p: Predictions) -> Statistic:
    r"""Multi-class Brier score: squared error summed over the classes, from 0 to 2.

    .. math:: \frac{1}{N} \sum_i \sum_k (S_k(x_i) - [y_i = k])^2

    This is Brier's own convention. With two classes it is twice the binary score
    (``scale_by_half`` of scikit-learn). Parameters as in `nll`.

    References
    ----------
    G. W. Brier, Verification of forecasts expressed in terms of probability, 1950.

    Examples
    --------
    >>> round(brier([0, 1], [[0.5, 0.5], [0.2, 0.8]]), 4)
    0.29
    """
    return mean_of(p.squared_errors, p.few_errors())


@metric
def accuracy(p: Predictions) -> Statistic:
    """Share of samples whose most probable class (the first, when tied) is the label.

    Parameters as in `nll`. The interval is Wilson's, of the effective number of samples (Kish) where they have weights.

    Examples
    --------
    >>> accuracy([0, 1, 1, 1], [[0.9, 0.1], [0.2, 0.8], [0.7, 0.3], [0.4, 0.6]])
    0.75
    """
    return share_of(p.top[1])


def share_of(hits: Floats) -> Statistic:
    """Share of samples that are hits, 1 or 0, as a function of the weights."""
    return Statistic(
        lambda w: np.asarray(hits @ w / w.sum(axis=0)),
        lambda value, w, level: around_share(value, effective(w), level),
    )


def mean_of(losses: Floats, reason: str = "") -> Statistic:
    """Mean of the losses as a function of the weights; ``reason``: why it has no interval."""
    infinite = np.isinf(losses)
    finite = np.where(infinite, 0.0, losses)

    def value(w: Floats) -> Floats:
        mean: Floats = finite @ w / w.sum(axis=0)
        # Not 0 · inf, which is NaN: a sample that was not drawn does not count.
        return np.where(w[infinite].any(axis=0), np.inf, mean)

    if infinite.any():
        reason = INFINITE
    return Statistic(value, lambda mean, w, level: around_mean(mean, finite, w, level), reason)
