"""Logits, labels and weights as the joint fit of `bayes` and `structured` takes them, with its priors."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import logit

from attemper._typing import Floats
from attemper.data.arrays import to_numpy
from attemper.data.scale import logit_scale
from attemper.data.scores import LabelledScores
from attemper.errors import EdgeWarning, InputError, warn
from attemper.kernels.joint import Rows
from attemper.kernels.shrinkage import Expected, Group, ScalePrior
from attemper.maps.affine import centred

__all__ = ["MAX_ELEMENTS", "MIN_ROWS", "Labels", "Noise", "Samples", "check_noise_is_wanted", "warn_of_light_weights"]

Labels = Literal["clean", "noisy"]
Noise = Literal["auto", "uniform", "classwise"]

# Chosen looking at each family of classifiers (benchmarks/families.py, benchmarks/arena.py): none may pay. Neighbouring
# values differ by 1 to 5 thousandths of a nat; docs/structured.md, "How its constants were chosen".
BIASES, SCALES, CURVE = Group(0.35, 1.0), Group(0.01, 1.0), Group(0.05, 1.0)
MATRIX_VARIANCE, MATRIX_WORTH = 0.2, 1.0  # the variance is divided by K²
TAIL = 3.0  # degrees of freedom of single biases
LOG_T = ScalePrior(0.15, 0.6, 4.0)  # around centre + slope · logit(mean confidence)
CONFIDENCE_SLOPE, CONFIDENCE = 0.125, (0.01, 0.95)
LIGHT = 0.05  # mean weight below which weights seem to be shares
MAX_ELEMENTS, MIN_ROWS = 1 << 16, 1000  # of logits that are enough for rates, biases and precisions


@dataclass(frozen=True, eq=False)
class Samples:
    """Logits, labels and weights as the fit needs them."""

    x: Floats  # centred
    y: NDArray[np.int64]
    w: Floats
    masked: NDArray[np.bool_] | None
    prior: ScalePrior
    case: NDArray[np.int64] | None = None  # number of the case that each is of; None: each is one

    @classmethod
    def of(cls, scores: LabelledScores, prior: ScalePrior = LOG_T, slope: float = CONFIDENCE_SLOPE) -> Samples:
        """Take away what the softmax does not see, and samples of weight zero."""
        h = to_numpy(scores.logits).astype(np.float64, copy=False)
        y, w = scores.labels, np.ones(len(h)) if scores.weights is None else scores.weights
        case = scores.cases
        if (w == 0).any():
            case = None if case is None else case[w > 0]
            h, y, w = h[w > 0], y[w > 0], w[w > 0]
        unit = logit_scale(scores).unit
        step = max(1, len(h) // max(MIN_ROWS, MAX_ELEMENTS // h.shape[1]))
        top = 1 / np.exp((h[::step] - h[::step].max(axis=1, keepdims=True)) / unit).sum(axis=1)
        confidence = float(np.clip(np.average(top, weights=w[::step]), *CONFIDENCE))
        masked = np.isneginf(h)
        centre = prior.centre + slope * float(logit(confidence)) + float(np.log(unit))
        x = centred(h, "mean", np)
        return cls(x, y, w, masked if masked.any() else None, prior._replace(centre=centre), case)

    @property
    def n_classes(self) -> int:
        """K."""
        return int(self.x.shape[1])

    def rows(self, log_t: float, part: slice | NDArray[np.bool_] = slice(None)) -> Rows:
        """Return some of them at a temperature, for a diagonal matrix."""
        masked = None if self.masked is None else self.masked[part]
        return Rows(self.x[part] * np.exp(-log_t), self.y[part], self.w[part], masked, None)

    def every(self, elements: int, least: int) -> slice:
        """Rows that hold at most so many numbers, but at least so many rows; evenly spread."""
        n = len(self.x)
        step = max(1, n // max(least, elements // self.n_classes))
        while step > 1 and (self.n_classes % step == 0 or any(step % d == 0 for d in range(2, int(step**0.5) + 1))):
            step += 1  # a prime step meets every class also where labels repeat in a cycle
        return slice(None, None, step)

    def within(self, log_range: tuple[float, float]) -> Samples:
        """Let the prior of log T vanish outside of a range, softly: its ends are some 4 standard deviations away."""
        low, high = log_range
        scale = min(self.prior.scale, (high - low) / 8)
        centre = float(np.clip(self.prior.centre, low + scale, high - scale))
        return replace(self, prior=ScalePrior(centre, scale, self.prior.df))

    def at(self, log_t: float) -> Samples:
        """Let the prior allow no other temperature."""
        return replace(self, prior=ScalePrior(log_t, 1e-6, 1e6))

    def expected(self) -> Expected:
        """Priors of the groups."""
        matrix = Group(MATRIX_VARIANCE / self.n_classes**2, MATRIX_WORTH)
        return Expected(BIASES, SCALES, matrix, CURVE, TAIL)


def check_noise_is_wanted(labels: Labels, noise: Noise) -> None:
    """Refuse a kind of noise for labels that are specified as clean."""
    if labels == "clean" and noise != "auto":
        wanted = "labels='noisy'"
        raise InputError(f"noise={noise!r} has no effect on clean labels; add {wanted}, or leave it out")


def warn_of_light_weights(scores: LabelledScores) -> None:
    """Warn where weights seem to be shares: as numbers of samples they leave nothing but the prior."""
    total, n = scores.total_weight, scores.n_samples
    if n >= 10 and 0 < total < LIGHT * n:
        warn(
            f"sample_weight: a weight of w counts as w samples, and these {n} rows add up to {total:g}, so that little "
            f"but the prior is left; multiply them by {n / total:.3g} if they are relative",
            EdgeWarning,
        )
