"""Proper scores, which reward both sharpness and calibration, and accuracy."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from attemper._result import Estimate
from attemper._typing import InputKind
from attemper.metrics.intervals import Spread, Statistic, around_share, few_errors, mean_of, value_of, wilson, worth
from attemper.metrics.predictions import Predictions


def nll(
    labels: Any, probs: Any, *, sample_weight: Any = None, input: InputKind = "probs", classes: Any = None
) -> float:
    r"""Mean negative log-likelihood, in nats; Eq. (2) of arXiv 1810.11586 over N.

    .. math:: \mathrm{NLL} = -\frac{1}{N} \sum_i \log S_{y_i}(x_i)

    Infinite when some label has probability 0. Intervals: `evaluate`.

    Parameters
    ----------
    labels : array of shape (N,), or shares of shape (N, K)
        True classes, as column numbers, or names with ``classes``.
    probs : array of shape (N, K), or (N,) for the second of two classes
        Predictions: NumPy, torch or any other array.
    sample_weight : array of shape (N,), optional
        Weight 2 counts as the sample twice.
    input : {"probs", "logits"}
        What ``probs`` holds. Logits distinguish confidences that round to 1.
    classes : sequence, optional
        Names of the classes in column order, if labels are names.

    Examples
    --------
    >>> round(nll([0, 1], [[0.5, 0.5], [0.2, 0.8]]), 4)
    0.4581
    >>> round(nll(["cat", "dog"], [[0.5, 0.5], [0.2, 0.8]], classes=["cat", "dog"]), 4)
    0.4581
    """
    return value_of(nll_of, labels, probs, sample_weight, input, classes)


def brier(
    labels: Any, probs: Any, *, sample_weight: Any = None, input: InputKind = "probs", classes: Any = None
) -> float:
    r"""Multi-class Brier score: squared error summed over the classes, from 0 to 2.

    .. math:: \frac{1}{N} \sum_i \sum_k (S_k(x_i) - [y_i = k])^2

    This is Brier's own convention (1950). One column is the positive class: its squared error, from 0 to 1, is that of
    `sklearn.metrics.brier_score_loss`, and half of the score of both columns. Parameters as in `nll`.

    Examples
    --------
    >>> round(brier([0, 1], [[0.5, 0.5], [0.2, 0.8]]), 4), round(brier([0, 1], [0.5, 0.8]), 4)
    (0.29, 0.145)
    """
    return value_of(brier_of, labels, probs, sample_weight, input, classes)


def accuracy(
    labels: Any, probs: Any, *, sample_weight: Any = None, input: InputKind = "probs", classes: Any = None
) -> float:
    """Share of samples whose most probable class (the first, when tied) is the label. Parameters as in `nll`.

    Examples
    --------
    >>> accuracy([0, 1, 1, 1], [[0.9, 0.1], [0.2, 0.8], [0.7, 0.3], [0.4, 0.6]])
    0.75
    """
    return value_of(accuracy_of, labels, probs, sample_weight, input, classes)


def nll_of(p: Predictions) -> Statistic:
    """`nll` of checked predictions."""
    return mean_of(-p.log_likelihood, few_errors(p))


def brier_of(p: Predictions) -> Statistic:
    """`brier` of checked predictions."""
    return mean_of(p.squared_errors, few_errors(p))


def accuracy_of(p: Predictions) -> Statistic:
    """`accuracy` of checked predictions."""
    return replace(mean_of(p.right.astype(np.float64)), around=around_share)


def gap_of(p: Predictions) -> Statistic:
    """Mean confidence less accuracy, above 0 if overconfident; of one column mean risk less the share of positives."""
    confidence, right = p.pair
    mean = float(p.weights @ confidence / p.weights.sum())
    return replace(mean_of(confidence - right), around=partial(_around_gap, mean))


def _around_gap(confidence: float, value: float, spread: Spread, level: float) -> Estimate:
    """Take the limits of the share of outcomes, for as many samples as the variance of the gap is worth."""
    share = min(max(confidence - value, 0.0), 1.0)
    low, high = map(float, wilson(share, worth(share, spread, level), level))
    return Estimate(value, min(confidence - high, value), max(confidence - low, value))
