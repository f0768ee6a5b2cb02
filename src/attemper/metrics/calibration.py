"""Calibration errors: how far confidence lies from accuracy."""

from __future__ import annotations

import math
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
from scipy.fft import dct, idct
from scipy.sparse import csr_array

from attemper._typing import Floats, InputKind
from attemper.errors import InputError
from attemper.metrics.bins import BY_CLASS, Binned, Kind, Norm, Strategy, checked_kind, error_of
from attemper.metrics.intervals import Statistic, batches, few_errors, value_of
from attemper.metrics.predictions import Predictions

SmoothKind = Literal["top", "classwise", "binary"]

MMCE_WIDTH = 0.4  # of the Laplacian kernel, as in the paper
# Cells of the grid for each width of the Gaussian kernel: the value is then exact to 1e-4 of it. No more cells than
# MOST, which is enough for a width of 0.001.
CELLS, MOST, LEAST = 16, 1 << 14, 1 << 7
MOST_STEPS, TOLERANCE = 60, 1e-6  # of the search for the width; about five steps are enough
NOTHING = 1e-12  # an error that is none

NO_MAXIMUM = "no interval for a maximum: the bin with the fewest samples decides it"
NO_DEBIASED = "no interval for the debiased error: it is a root that is cut at 0"
NO_CLASSWISE = "no interval for class-wise bins: many hold too few samples"


def ece(
    labels: Any, probs: Any, *, kind: Kind | None = None, n_bins: int = 15, strategy: Strategy = "uniform",
    norm: Norm = 1, debiased: bool = False, sample_weight: Any = None, input: InputKind = "probs", classes: Any = None,
) -> float:  # fmt: skip
    r"""ECE, the expected calibration error; by default Eq. (3) of arXiv 1810.11586 with 15 bins.

    .. math:: \Big( \sum_l \tfrac{|B_l|}{N} |\mathrm{acc}(B_l) - \mathrm{conf}(B_l)|^p \Big)^{1/p}

    Equal width bins are (lo, hi]; the first takes 0 too.

    Parameters
    ----------
    labels, probs, sample_weight, input, classes
        As in `nll`.
    kind : {"top", "classwise", "full", "binary", "top_label"}
        Which (probability, right or wrong) pairs are binned: of the most probable class, the default;
        of each class in bins of its own, with the mean over the classes taken inside the
        root; of all classes pooled into one set of bins; of the second of two classes, the default for one column; of
        the most probable class, in bins of its own for each predicted class (Gupta and Ramdas 2022).
    n_bins : int
        Number of bins (of each class, if class-wise).
    strategy : {"uniform", "quantile"}
        Bins of equal width, or of equal weight (equal confidences stay together).
    norm : float or "max"
        The power p, from 1 to 64: 2 is the RMS calibration error; "max" is the largest gap of any bin.
    debiased : bool
        Subtract from each squared gap what chance alone adds, acc (1 − acc) / (\|B\| − 1), the
        estimator of Kumar et al. (2019); for ``norm=2``. Bins with one sample count as 0, and
        so does a negative total. The unit of the weights matters here.

    Examples
    --------
    >>> probs = [[0.9, 0.1], [0.2, 0.8], [0.3, 0.7], [0.4, 0.6]]
    >>> round(ece([0, 1, 0, 1], probs), 3)
    0.35
    >>> round(ece([0, 1, 0, 1], probs, kind="top_label", n_bins=1), 3)
    0.05
    """
    options = {"kind": kind, "n_bins": n_bins, "strategy": strategy, "norm": norm, "debiased": debiased}
    return value_of(ece_of, labels, probs, sample_weight, input, classes, **options)


def mce(
    labels: Any, probs: Any, *, kind: Kind | None = None, n_bins: int = 15, strategy: Strategy = "uniform",
    sample_weight: Any = None, input: InputKind = "probs", classes: Any = None,
) -> float:  # fmt: skip
    """Maximum calibration error: the largest gap of any bin. Parameters as in `ece`, with ``norm="max"``.

    Examples
    --------
    >>> round(mce([0, 1, 0, 1], [[0.9, 0.1], [0.2, 0.8], [0.3, 0.7], [0.4, 0.6]]), 3)
    0.7
    """
    options = {"kind": kind, "n_bins": n_bins, "strategy": strategy, "norm": "max"}
    return value_of(ece_of, labels, probs, sample_weight, input, classes, **options)


def classwise_ece(
    labels: Any, probs: Any, *, n_bins: int = 15, strategy: Strategy = "uniform", norm: Norm = 1,
    sample_weight: Any = None, input: InputKind = "probs", classes: Any = None,
) -> float:  # fmt: skip
    """Mean over the classes of each one's calibration error. Parameters as in `ece`, with ``kind="classwise"``.

    Examples
    --------
    >>> round(classwise_ece([0, 1, 0, 1], [[0.9, 0.1], [0.2, 0.8], [0.3, 0.7], [0.4, 0.6]]), 3)
    0.35
    """
    options = {"kind": "classwise", "n_bins": n_bins, "strategy": strategy, "norm": norm}
    return value_of(ece_of, labels, probs, sample_weight, input, classes, **options)


def smooth_ece(
    labels: Any, probs: Any, *, kind: SmoothKind | None = None, sample_weight: Any = None,
    input: InputKind = "probs", classes: Any = None,
) -> float:  # fmt: skip
    r"""Smooth ECE: no bins, but a Gaussian kernel whose width follows from the data.

    .. math:: \mathrm{smECE}_\sigma = \int_0^1 \Big| \tfrac{1}{N} \sum_i (c_i - r_i) K_\sigma(r_i, t) \Big| \, dt

    with confidence r, c = 1 where the prediction is right, and a Gaussian K of width σ that is reflected at 0 and 1. It
    falls when σ rises, and the smooth ECE is where both are equal, :math:`\mathrm{smECE}_\sigma = \sigma`. So there is
    nothing to choose, and it is continuous: no sample jumps from one bin to the next (Błasiok and Nakkiran, 2023,
    https://arxiv.org/abs/2309.12236).

    Parameters
    ----------
    labels, probs, sample_weight, input, classes
        As in `nll`.
    kind : {"top", "classwise", "binary"}
        Of the most probable class, the default; the mean over the classes of each one's error; or of the second of two
        classes, the default for one column.

    Examples
    --------
    >>> round(smooth_ece([0, 1, 0, 1], [[0.9, 0.1], [0.2, 0.8], [0.3, 0.7], [0.4, 0.6]]), 4)
    0.0963
    """
    return value_of(smooth_ece_of, labels, probs, sample_weight, input, classes, kind=kind)


def mmce(
    labels: Any, probs: Any, *, sample_weight: Any = None, input: InputKind = "probs", classes: Any = None
) -> float:
    r"""Maximum mean calibration error: no bins, but a kernel over confidences.

    .. math:: \Big( \tfrac{1}{N^2} \sum_{ij} (c_i - r_i)(c_j - r_j) e^{-|r_i - r_j| / 0.4} \Big)^{1/2}

    with confidence r and c = 1 where the most probable class is the label; of one column, the probability of the
    positive class and c = 1 where it is the label (Kumar, Sarawagi and Jain, ICML 2018). Exact, in O(N log N).
    Parameters as in `nll`.

    Examples
    --------
    >>> round(mmce([0, 1, 0, 1], [[0.9, 0.1], [0.2, 0.8], [0.3, 0.7], [0.4, 0.6]]), 4)
    0.0891
    """
    return value_of(mmce_of, labels, probs, sample_weight, input, classes)


def ece_of(
    p: Predictions, kind: Kind | None = None, n_bins: int = 15, strategy: Strategy = "uniform", norm: Norm = 1,
    debiased: bool = False,
) -> Statistic:  # fmt: skip
    """`ece` of checked predictions."""
    if norm != "max" and not (isinstance(norm, int | float) and 1 <= norm <= 64):
        raise InputError(f"norm={norm!r}: expected a number from 1 to 64, or 'max'", "norm")
    if debiased and norm != 2:
        raise InputError(f"debiased=True corrects squared gaps: expected norm=2, got norm={norm!r}", "debiased")
    binned = Binned(p, kind, n_bins, strategy)
    if debiased and not (binned.sums(p.weights[:, None])[0] > 1).any():
        raise InputError(
            "debiased=True needs a bin with two samples or more (weights count as repeats, so do not scale "
            f"them to sum to 1): {len(p)} samples of total weight {p.weights.sum():.6g} in {n_bins} bins",
            "debiased",
        )

    def drawn(rng: np.random.Generator, count: int, w: Floats) -> Floats:
        sizes = batches(count, max(len(w), binned.n_cells))
        return np.concatenate([error_of(binned.drawn(rng, size, w), norm, debiased=debiased) for size in sizes])

    if norm == "max" or binned.kind in BY_CLASS or debiased:
        reason = NO_MAXIMUM if norm == "max" else NO_DEBIASED if debiased else NO_CLASSWISE
    else:
        reason = few_errors(p)
    return Statistic(lambda w: error_of(binned.sums(w), norm, debiased=debiased), drawn=drawn, reason=reason)


def mmce_of(p: Predictions) -> Statistic:
    """`mmce` of checked predictions."""
    confidence, right = p.pair
    order = np.argsort(confidence, kind="stable")
    r = confidence[order, None]
    # For r_j <= r_i the kernel is e^(−r_i/0.4) e^(r_j/0.4), so a running sum over sorted confidences
    # does the inner sum. Nothing overflows: the exponents end at 1/0.4.
    rise, fall = np.exp(r / MMCE_WIDTH), np.exp(-r / MMCE_WIDTH)

    def value(w: Floats, right: Floats = right[:, None]) -> Floats:
        a = (right[order] - r) * (w / w.sum(axis=0))[order]
        below = np.cumsum(a * rise, axis=0) * fall  # the sum over j <= i, each i itself included
        square = 2 * np.einsum("ib,ib->b", a, below) - np.einsum("ib,ib->b", a, a)
        return np.asarray(np.sqrt(np.maximum(square, 0.0)))

    def drawn(rng: np.random.Generator, count: int, w: Floats) -> Floats:
        sizes = batches(count, len(r))
        return np.concatenate([value(w[:, None], p.drawing(rng, size)(confidence, right)) for size in sizes])

    return Statistic(value, drawn=drawn, reason=few_errors(p))


def smooth_ece_of(p: Predictions, kind: SmoothKind | None = None) -> Statistic:
    """`smooth_ece` of checked predictions."""
    kind = checked_kind(p, kind, get_args(SmoothKind))
    classes = range(p.n_classes == 2, p.n_classes)  # of two, both have the same error
    pairs = {0: p.top} if kind == "top" else {k: p.of_class(k) for k in classes}
    blurs = [_Blur.of(confidence, right, p.weights) for confidence, right in pairs.values()]

    def value(w: Floats) -> Floats:
        return np.asarray(np.mean([blur.errors(blur.gap[:, None] * w, w.sum(axis=0)) for blur in blurs], axis=0))

    def drawn(rng: np.random.Generator, count: int, w: Floats) -> Floats:
        found = []
        for size in batches(count, len(w)):
            outcome = p.drawing(rng, size, by_class=kind != "top")
            gaps = [outcome(*pair, k) - pair[0][:, None] for k, pair in pairs.items()]
            found.append(np.mean([blur.errors(gap * w[:, None], w.sum()) for blur, gap in zip(blurs, gaps)], axis=0))
        return np.concatenate(found)

    # Where there is no error the width, so the value too, falls as N^(−1/3): noise adds to the cube. Far from that it
    # adds to the square. In between lies what covers best (benchmarks/intervals.py).
    return Statistic(value, drawn=drawn, reason=few_errors(p), power=2.5)


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
