"""Sums of confidences, and what they indicate about accuracy if the map is calibrated."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from attemper._json import Dims
from attemper._typing import Floats, Labels
from attemper.metrics.intervals import Estimate
from attemper.priors import PriorEstimate

__all__ = ["ConfidenceSums", "PriorShift", "UnlabelledEstimates"]


@dataclass(frozen=True, eq=False)
class ConfidenceSums:
    """Sums over samples, of all and of those above the threshold: two rows."""

    count: Annotated[Floats, Dims(1)]
    confidence: Annotated[Floats, Dims(2)]  # at T, at the upper and at the lower end of its interval
    variance: Annotated[Floats, Dims(1)]  # of the number of right predictions, at most

    @classmethod
    def none(cls) -> Self:
        """Return the sums over no samples."""
        return cls(np.zeros(2), np.zeros((2, 3)), np.zeros(2))

    def __add__(self, other: ConfidenceSums) -> ConfidenceSums:
        return ConfidenceSums(
            self.count + other.count, self.confidence + other.confidence, self.variance + other.variance
        )

    @classmethod
    def of(cls, confidence: Floats, decided: NDArray[np.bool_], cases: Labels | None) -> ConfidenceSums:
        """Sum over rows of confidences; rows of one case may depend on each other in any way."""
        member = np.stack([np.ones(len(decided)), decided.astype(np.float64)])
        std = np.sqrt(np.maximum(confidence[:, 0] * (1 - confidence[:, 0]), 0.0)) * member
        if cases is not None:
            std = np.stack([np.bincount(cases, row) for row in std])
        return cls(member.sum(axis=1), member @ confidence, (std**2).sum(axis=1))

    def mean(self, row: int, confidence_level: float) -> Estimate:
        """Return the mean confidence with an interval of the share that is right among these very samples."""
        n = self.count[row]
        if n == 0:
            return Estimate(float("nan"), float("nan"), float("nan"), note="no samples")
        value, softer, sharper = self.confidence[row] / n
        z = float(ndtri(0.5 + confidence_level / 2))
        sampling = z * float(np.sqrt(self.variance[row])) / n
        low, high = (float(np.hypot(sampling, (value - end) * z / 1.959964)) for end in (softer, sharper))
        return Estimate(float(value), max(value - low, 0.0), min(value + high, 1.0))

    def is_consistent(self) -> bool:
        """Return whether these can be sums of confidences."""
        shapes = self.count.shape, self.confidence.shape, self.variance.shape
        return shapes == ((2,), (2, 3), (2,)) and bool(
            (self.count >= 0).all()
            and ((self.confidence >= 0) & (self.confidence <= self.count[:, None] * (1 + 1e-9))).all()
            and (self.variance >= 0).all()
        )


class UnlabelledEstimates(NamedTuple):
    """Estimates of `UnlabelledMonitor` for some samples; they assume that the map is calibrated."""

    n_samples: int
    accuracy: Estimate
    decided: float | None  # share above the threshold
    miss_rate: Estimate | None  # of those


class PriorShift(NamedTuple):
    """Class priors of unlabelled data, and the accuracy of the predictions under them; `UnlabelledMonitor` has it.

    They rest on the map being calibrated for the data of its fit, and on label shift: p(x | class) is as it was there.
    """

    classes: tuple[str | int | float, ...]
    estimate: PriorEstimate
    accuracy: float

    @classmethod
    def of(cls, log_p: Floats, classes: tuple[str | int | float, ...], estimate: PriorEstimate) -> Self:
        """Estimate the accuracy of these predictions under priors."""
        weighed = np.exp(log_p) * (estimate.priors / estimate.old)
        right = weighed[np.arange(len(log_p)), log_p.argmax(axis=1)] / weighed.sum(axis=1)
        return cls(classes, estimate, float(right.mean()))

    @property
    def changed(self) -> list[int]:
        """Classes whose old prior lies outside the interval, those that changed most first."""
        low, high, old = self.estimate.low, self.estimate.high, self.estimate.old
        change = np.abs(self.estimate.priors - old)
        return [int(k) for k in np.argsort(-change, kind="stable") if not low[k] <= old[k] <= high[k]]
