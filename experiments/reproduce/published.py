"""Temperature scaling and ATS as the authors ran them, optimiser included.

Their public notebook (azmozaffari/ATS) takes one step of ``torch.optim.LBFGS`` with a learning rate of 0.01
and at most 50 iterations, from T = 3, and never clears the gradient: every evaluation adds its slope to
those before. That does not converge, neither to the least NLL nor to the least attended loss; where it ends
depends on where it starts. Here the same arithmetic is done in double precision, where theirs was single.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import log_softmax

__all__ = [
    "Run",
    "attended_loss",
    "lbfgs",
    "mean_nll",
    "published_attended_temperature",
    "published_best_temperature",
    "published_temperature",
    "published_tuned_temperature",
]

Floats, Labels = NDArray[np.float64], NDArray[np.int64]
# From T to a loss and its slope in T. T = 0 has none: both are NaN, as in torch.
Loss = Callable[[float], tuple[float, float]]

# The defaults of torch.optim.LBFGS.
LEAST_SLOPE = 1e-7
LEAST_CHANGE = 1e-9
LEAST_CURVATURE = 1e-10

EPS = 1e-8  # what the notebook adds to every probability
THETAS = (0.01, 0.02, 0.03, 0.04, 0.05)  # those of the paper's Table 2, but for MNIST
STARTS = (1.0, 1.5, 2.0, 2.5, 3.0)
SCALE = 1e-3  # what it multiplies the attended loss by


class Run(NamedTuple):
    """Where a search ended."""

    at: float
    evaluations: int


def published_temperature(
    logits: ArrayLike | Any, labels: ArrayLike | Any, *, start: float = 3.0, clear: bool = False
) -> float:
    """T of temperature scaling as the notebook runs it; ``clear=True`` clears the gradient as one should.

    Where the search runs away the result can be huge, negative or NaN.

    >>> from attemper import TemperatureScaling, datasets
    >>> skin = datasets.load()
    >>> [round(published_temperature(skin.val_logits, skin.val_labels, start=start), 2) for start in (1.5, 3.0)]
    [2.61, 1.43]
    >>> round(TemperatureScaling().fit(skin.val_logits, skin.val_labels).temperature_, 2)
    1.97
    """
    return lbfgs(mean_nll(*_check(logits, labels)), start, clear=clear).at


def published_attended_temperature(
    logits: ArrayLike | Any, labels: ArrayLike | Any, *, theta: float = 1e-5, start: float = 3.0, clear: bool = False
) -> float:
    """T of ATS as the notebook runs it, with its `attended_loss`; else as `published_temperature`."""
    return lbfgs(attended_loss(*_check(logits, labels), theta), start, clear=clear).at


def published_tuned_temperature(
    logits: ArrayLike | Any, labels: ArrayLike | Any, *, thetas: Sequence[float] = THETAS, start: float = 3.0
) -> tuple[float, float]:
    """T and θ of ATS as the paper has it, θ tuned by the validation NLL of its T, with the notebook's search.

    Each θ is another draw of where the search ends, and the best one is taken: `published_temperature` has one draw.
    Both are NaN if no search ends at a temperature.

    >>> from attemper import datasets
    >>> skin = datasets.load()
    >>> t, theta = published_tuned_temperature(skin.val_logits, skin.val_labels)
    >>> round(t, 2), theta
    (2.0, 0.02)
    """
    h, y = _check(logits, labels)
    return _best(h, y, {theta: published_attended_temperature(h, y, theta=theta, start=start) for theta in thetas})


def published_best_temperature(
    logits: ArrayLike | Any, labels: ArrayLike | Any, *, starts: Sequence[float] = STARTS
) -> float:
    """T of TS with as many draws as `published_tuned_temperature` has: the best of several starts.

    >>> from attemper import datasets
    >>> skin = datasets.load()
    >>> round(published_best_temperature(skin.val_logits, skin.val_labels), 2)
    1.95
    """
    h, y = _check(logits, labels)
    return _best(h, y, {start: published_temperature(h, y, start=start) for start in starts})[0]


def _best(h: Floats, y: Labels, found: Mapping[float, float]) -> tuple[float, float]:
    """Return the temperature with the least validation NLL, and what it was found with."""
    loss = mean_nll(h, y)
    good = [(loss(t)[0], t, told) for told, t in found.items() if t > 0 and math.isfinite(loss(t)[0])]
    return min(good)[1:] if good else (math.nan, math.nan)


def lbfgs(value_and_slope: Loss, start: float, *, clear: bool, lr: float = 0.01, max_iter: int = 50) -> Run:
    """One step of ``torch.optim.LBFGS`` for one number, without line search.

    Of one number the whole history of L-BFGS is the secant through the last two points: the
    newest pair of step and change of slope already gives the curvature, and the older ones drop out. Without
    ``clear`` the slopes are running sums, as those of a closure that calls ``backward`` alone.
    """
    max_evaluations = max_iter * 5 // 4
    at, evaluations, total = start, 0, 0.0

    def evaluate() -> tuple[float, float]:
        nonlocal evaluations, total
        evaluations += 1
        loss, slope = value_and_slope(at)
        total = slope if clear else total + slope
        return loss, total

    loss, slope = evaluate()
    if abs(slope) <= LEAST_SLOPE:
        return Run(at, evaluations)
    step, slope_before, inverse_curvature = 0.0, slope, 1.0
    for iteration in range(1, max_iter + 1):
        change = slope - slope_before
        if change * step > LEAST_CURVATURE:
            inverse_curvature = step / change
        direction = -slope * inverse_curvature
        if slope * direction > -LEAST_CHANGE:
            break
        step = direction * lr * (min(1.0, 1.0 / abs(slope)) if iteration == 1 else 1.0)
        at += step
        if iteration == max_iter:  # the last step is taken unseen
            break
        loss_before, slope_before = loss, slope
        loss, slope = evaluate()
        if evaluations >= max_evaluations or abs(slope) <= LEAST_SLOPE:
            break
        if abs(step) <= LEAST_CHANGE or abs(loss - loss_before) < LEAST_CHANGE:
            break
    return Run(at, evaluations)


def mean_nll(h: Floats, y: Labels) -> Loss:
    """Mean NLL as a function of T."""

    def evaluate(temperature: float) -> tuple[float, float]:
        beta = _inverse(temperature)
        if not math.isfinite(beta):
            return math.nan, math.nan
        log_s = log_softmax(beta * h, axis=1)
        rows = np.arange(len(y))
        slope = (np.exp(log_s) * h).sum(axis=1) - h[rows, y]
        return -float(log_s[rows, y].mean()), -beta * beta * float(slope.mean())

    return evaluate


def attended_loss(h: Floats, y: Labels, theta: float) -> Loss:
    """Attended loss of the notebook as a function of T.

    A thousandth of the sum of −log S_k for k = y_i, and of −log(S_k / (1 − S_k) · S_k) for each other k that is
    the predicted class or has S_k > θ at T = 1; 1e-8 is added to every S_k and 1 − S_k. Classes beyond
    the largest label that occurs are left out, for so far the notebook counts.
    """
    n = np.arange(len(y))
    high, low = h.max(axis=1, keepdims=True), h.min(axis=1, keepdims=True)
    e = np.exp(h - high)
    member = e > theta * e.sum(axis=1, keepdims=True)
    member[n, h.argmax(axis=1)] = True
    member[n, y] = False
    member[:, y.max() + 1 :] = False
    place, label = np.flatnonzero(member), n * h.shape[1] + y
    row = place // h.shape[1]

    def evaluate(temperature: float) -> tuple[float, float]:
        beta = _inverse(temperature)
        if not math.isfinite(beta):
            return math.nan, math.nan
        d = h - (low if beta < 0 else high)
        with np.errstate(over="ignore", invalid="ignore"):
            s = np.exp(beta * d)
            s /= s.sum(axis=1, keepdims=True)
            mean = np.vecdot(s, d)
            own, other = s.ravel()[label], s.ravel()[place]
            own_slope = own * (d.ravel()[label] - mean)  # in β
            other_slope = other * (d.ravel()[place] - mean[row])
            value = -np.log(own + EPS).sum() - (2 * np.log(other + EPS) - np.log(1 - other + EPS)).sum()
            slope = -(own_slope / (own + EPS)).sum()
            slope -= (other_slope * (2 / (other + EPS) + 1 / (1 - other + EPS))).sum()
        return SCALE * float(value), -beta * beta * SCALE * float(slope)

    return evaluate


def _inverse(temperature: float) -> float:
    return 1.0 / temperature if temperature != 0 else math.inf


def _check(logits: Any, labels: Any) -> tuple[Floats, Labels]:
    return np.asarray(logits, dtype=np.float64), np.asarray(labels, dtype=np.int64)
