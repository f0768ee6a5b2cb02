"""The accuracy that confidences predict."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import ndtri

from attemper._checks import fraction
from attemper.data.ids import as_ids
from attemper.data.scores import Scores
from attemper.metrics.intervals import Estimate

__all__ = ["expected_accuracy"]


def expected_accuracy(probs: Any, clusters: Any = None, *, confidence_level: float = 0.95) -> Estimate:
    """Estimate the accuracy of unlabelled data: the mean confidence of calibrated probabilities.

    **It rests on the probabilities being calibrated for these data.** If a drift has made them over-confident, the
    estimate is too high, and nothing without labels can notice that: check it on a few labels with `DriftTest`.

    Parameters
    ----------
    probs : array of shape (n_samples, n_classes)
    clusters : array of shape (n_samples,), optional
        Which samples are the same case. The interval then allows for samples of a case that are all right or all wrong
        together.
    confidence_level : float

    Returns
    -------
    Estimate
        The interval is for the accuracy that labels of these very samples would show.

    Examples
    --------
    >>> print(expected_accuracy([[0.9, 0.1], [0.3, 0.7]]).value)
    0.8
    """
    fraction("confidence_level", confidence_level)
    scores = Scores.from_probs(probs)
    p = np.concatenate([np.exp(h).max(axis=1) for _, h in scores.chunks()])
    std = np.sqrt(np.maximum(p * (1 - p), 0.0))
    if clusters is not None:
        std = np.bincount(np.unique(as_ids(clusters, len(p), "clusters"), return_inverse=True)[1].ravel(), std)
    value, half = float(p.mean()), float(ndtri(0.5 + confidence_level / 2)) * float(np.sqrt((std**2).sum())) / len(p)
    return Estimate(value, max(value - half, 0.0), min(value + half, 1.0))
