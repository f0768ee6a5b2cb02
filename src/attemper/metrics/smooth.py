"""Smooth ECE: the calibration error of predictions that were blurred, by as much as it is large."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray
from scipy.fft import dct, idct
from scipy.sparse import csr_array

from attemper._checks import one_of
from attemper._typing import Floats
from attemper.metrics.bins import check_kind
from attemper.metrics.bootstrap import BATCH_ELEMENTS, Statistic
from attemper.metrics.metric import metric
from attemper.metrics.predictions import Predictions

__all__ = ["smooth_ece"]

Kind = Literal["top", "classwise", "binary"]

# Cells of the grid for each width of the kernel: the value is then exact to 1e-4 of it. No more cells than MOST, which
# is enough for a width of 0.001.
CELLS, MOST, LEAST = 16, 1 << 14, 1 << 7
MOST_STEPS, TOLERANCE = 60, 1e-6  # of the search for the width; about five steps are enough
NOTHING = 1e-12  # an error that is none


@metric
def smooth_ece(p: Predictions, *, kind: Kind = "top") -> Statistic:
    r"""Smooth ECE: no bins, but a Gaussian kernel whose width follows from the data.

    .. math:: \mathrm{smECE}_\sigma = \int_0^1 \Big| \tfrac{1}{N} \sum_i (c_i - r_i) K_\sigma(r_i, t) \Big| \, dt

    with confidence r, c = 1 where the prediction is right, and a Gaussian K of width σ that is reflected at 0 and 1. It
    falls when σ rises, and the smooth ECE is where both are equal, :math:`\mathrm{smECE}_\sigma = \sigma`. So there is
    nothing to choose, and it is continuous: no sample jumps from one bin to the next.

    Parameters
    ----------
    labels, probs, input, sample_weight, n_resamples, seed
        As in `nll`.
    kind : {"top", "classwise", "binary"}
        Of the most probable class; the mean over the classes of each one's error; or of the second of two classes, for
        which "classwise" has the same value.
    confidence_level : float, optional
        As in `ece`. ``chance`` and ``p_value`` too.

    Returns
    -------
    float or Estimate

    References
    ----------
    J. Błasiok, P. Nakkiran, Smooth ECE: principled reliability diagrams via kernel smoothing, 2023.
    https://arxiv.org/abs/2309.12236

    Examples
    --------
    >>> round(smooth_ece([0, 1, 0, 1], [[0.9, 0.1], [0.2, 0.8], [0.3, 0.7], [0.4, 0.6]]), 4)
    0.0963
    """
    one_of("kind", kind, get_args(Kind))
    check_kind(kind, p.n_classes)
    classes = range(1, 2) if p.n_classes == 2 else range(p.n_classes)  # of two, both have the same error
    pairs = [p.top] if kind == "top" else [p.of_class(k) for k in classes]
    blurs = [_Blur.of(confidence, right, p.weights) for confidence, right in pairs]

    def value(w: Floats) -> Floats:
        return np.asarray(np.mean([blur.errors(blur.gap[:, None] * w, w.sum(axis=0)) for blur in blurs], axis=0))

    def drawn(rng: np.random.Generator, count: int, w: Floats) -> Floats:
        found = []
        for first in range(0, count, batch := max(1, BATCH_ELEMENTS // len(w))):
            size = min(batch, count - first)
            outcomes: Sequence[NDArray[np.bool_]]
            if kind == "top":
                outcomes = [rng.random((size, len(w))) < p.confidence]
            else:
                labels = p.draw_labels(rng, size)
                outcomes = [labels == k for k in classes]
            gaps = [outcome.T - confidence[:, None] for outcome, (confidence, _) in zip(outcomes, pairs)]
            each = [blur.errors(gap * w[:, None], w.sum()) for blur, gap in zip(blurs, gaps)]
            found.append(np.mean(each, axis=0))
        return np.concatenate(found)

    return Statistic(value, None, p.few_errors(), drawn)


class _Blur(NamedTuple):
    """Confidences on a grid that is fine enough for the width at which error and width are equal."""

    spread: csr_array  # cells × samples: each sample lies on the two cells next to it
    gap: Floats  # outcome less confidence
    width: float = 0.05  # where to search

    @classmethod
    def of(cls, confidence: Floats, right: Floats, weights: Floats) -> _Blur:
        """Refine until the cells are small beside the width."""
        blur, cells = cls(_spread(confidence, LEAST), right - confidence), LEAST
        while True:
            [width] = blur.errors((blur.gap * weights)[:, None], weights.sum())
            blur = blur._replace(width=max(float(width), 1 / MOST))
            needed = min(MOST, 1 << math.ceil(math.log2(CELLS / blur.width)))
            if needed <= cells:
                return blur
            blur, cells = blur._replace(spread=_spread(confidence, needed)), needed

    def errors(self, gaps: Floats, total: Floats | float) -> Floats:
        """Smooth ECE of each column of weighted gaps, N×B."""
        density = self.spread @ gaps / total
        size = len(density)
        waves = dct(density, axis=0)[: size // 2]  # what lies above is blurred away
        # To lie on two cells is a blur of its own, which is taken back.
        waves /= np.sinc(np.arange(len(waves)) / (2 * size))[:, None] ** 2
        return _fixed_point(waves, self.width)


def _fixed_point(waves: Floats, start: float) -> Floats:
    """Width at which the error of each column is equal to it, from the cosines of the density."""
    # In cosines the reflected kernel is a product.
    decay = -((np.pi * np.arange(len(waves))) ** 2)[:, None] / 2

    def excess(u: Floats) -> Floats:
        """Logarithm of the error over the width; it falls with the logarithm of the width, with a slope below −1."""
        error = np.abs(idct(waves * np.exp(decay * np.exp(2 * u)), axis=0)).sum(axis=0)
        return np.asarray(np.log(np.maximum(error, NOTHING)) - u)

    u = np.full(waves.shape[1], math.log(start))
    low, high = np.full(len(u), math.log(NOTHING)), np.zeros(len(u))
    before, h_before, slope = u, np.zeros(len(u)), np.full(len(u), -1.5)
    for _ in range(MOST_STEPS):
        h = excess(u)
        # The slope encloses the root from the other side.
        low, high = np.maximum(low, np.minimum(u, u + h)), np.minimum(high, np.maximum(u, u + h))
        if (np.abs(h) < TOLERANCE).all():
            break
        moved = np.where(u != before, u - before, 1.0)
        slope = np.where(u != before, np.minimum((h - h_before) / moved, -1.0), slope)
        slow = (u != before) & (np.abs(h) > np.abs(h_before) / 2)
        before, h_before = u, h
        u = np.where(slow, (low + high) / 2, np.clip(u - h / slope, low, high))
    return np.where(u > math.log(2 * NOTHING), np.exp(u), 0.0)


def _spread(confidence: Floats, cells: int) -> csr_array:
    """Put each sample on the two cells whose middles it lies between; at the ends on one."""
    place = confidence * cells - 0.5
    left = np.floor(place)
    share = place - left
    rows = np.clip(np.concatenate([left, left + 1]), 0, cells - 1).astype(np.intp)
    samples = np.tile(np.arange(len(confidence)), 2)
    return csr_array((np.concatenate([1 - share, share]), (rows, samples)), (cells, len(confidence)))
