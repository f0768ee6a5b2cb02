"""A pilot where there is none."""

from __future__ import annotations

import math

import numpy as np
from scipy.optimize import brentq
from scipy.special import softmax

from attemper._checks import fraction, whole
from attemper._typing import Floats
from attemper.data.scores import Scores
from attemper.errors import InputError

__all__ = ["typical_network"]

ELEMENTS, MOST_ROWS, LEAST_ROWS = 1_000_000, 10_000, 500
MOST_CLASSES = 4_000


def typical_network(accuracy: float, n_classes: int) -> Scores:
    r"""Return calibrated logits of a network with this accuracy, as a pilot if you have none.

    The classes are Gaussian, equally likely and equally far from each other: :math:`h = d\,(d\,e_y + z)`, with z
    standard normal, are then log-probabilities up to a constant, so T = 1 is right. The distance d is the one of that
    accuracy, and nothing else is chosen. What plans need of real networks (the information of a label, the spread of
    the NLL, the share that can be decided) is about that; docs/planning.md has the figures.

    Parameters
    ----------
    accuracy : float
        Above chance, 1 / n_classes.
    n_classes : int
        From 2 to 4000.

    Returns
    -------
    Scores
        Without labels.

    Examples
    --------
    >>> from attemper.planning import labels_for_temperature, typical_network
    >>> round(labels_for_temperature(typical_network(0.93, 10), width=1.2).n_samples, -2)
    1400
    """
    whole("n_classes", n_classes, at_least=2, at_most=MOST_CLASSES)
    fraction("accuracy", accuracy, such_as="0.93")
    if accuracy <= 1 / n_classes:
        raise InputError(
            f"accuracy={accuracy!r}: expected one above chance, which is {1 / n_classes:.4g} with {n_classes} classes",
            param="accuracy",
        )
    n = min(MOST_ROWS, max(LEAST_ROWS, ELEMENTS // n_classes))
    z = np.random.default_rng(0).normal(size=(n, n_classes))

    def logits(log_d: float) -> Floats:
        d = math.exp(log_d)
        h: Floats = d * z
        h[:, 0] += d * d
        return h

    def excess(log_d: float) -> float:
        return float(softmax(logits(log_d), axis=1).max(axis=1).mean()) - accuracy

    low, high = -12.0, 6.0
    if excess(low) > 0 or excess(high) < 0:
        raise InputError(f"accuracy={accuracy!r}: too close to chance or to 1 for a plan", param="accuracy")
    h = logits(float(brentq(excess, low, high, xtol=1e-10)))
    # The true class stands first so far.
    columns = np.random.default_rng(1).permuted(np.tile(np.arange(n_classes), (n, 1)), axis=1)
    return Scores.from_logits(np.take_along_axis(h, columns, axis=1))
