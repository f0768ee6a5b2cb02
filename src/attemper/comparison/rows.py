"""What a comparison returns: a row for each method, and what they recommend."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from attemper._typing import Floats
from attemper.data.arrays import one_line
from attemper.maps import Map
from attemper.metrics import Estimate
from attemper.metrics.predictions import Predictions

__all__ = ["Comparison", "CrossValidated", "Row"]


class CrossValidated(NamedTuple):
    """NLL of a method on validation samples that were held out from its fit; the ``cv`` of a row of `compare`."""

    nll: float  # infinite where it gives some class the probability 0
    above: float  # that of the recommended method; negative where it is lower
    standard_error: float  # of this difference, which is of the same samples


@dataclass(frozen=True, repr=False)
class Row:
    """One method's result in `compare`; ``failure`` says why there is none."""

    __repr__ = one_line

    method: str
    seconds: float = 0.0
    temperature: float | None = None
    cv: CrossValidated | None = None  # on validation data: what methods are selected by
    metrics: Mapping[str, float | Estimate] | None = None
    referral_area: float | Estimate | None = None  # how well confidence ranks the errors; None without errors
    above_best: Estimate | None = None  # test NLL above the least of the other methods, with simultaneous intervals
    changed: float = 0.0  # share of test samples whose answer it changes
    notes: tuple[str, ...] = ()
    failure: str = ""
    map: Map | None = None  # what was fitted
    predictions: Predictions | None = None  # of the test samples, without the probabilities

    @property
    def losses(self) -> Floats | None:
        """Negative log-likelihood of each test sample."""
        return None if self.predictions is None else -self.predictions.log_likelihood


@dataclass(frozen=True)
class Comparison:
    """All rows, and what they recommend: `compare` gives it."""

    rows: tuple[Row, ...]
    recommended: str  # name of a method
    reason: str  # in sentences: what was selected on what, and how the test set evaluates it
    selected_by: str = "default"  # or "cross-validation", where that decided against the default
    n_folds: int = 0  # of the cross-validation; 0 without one
    # Methods that can have the least test NLL, to within 0.001; None: too few errors.
    confidence_set: tuple[str, ...] | None = None

    def __repr__(self) -> str:
        return f"Comparison({len(self.rows)} rows, recommended={self.recommended!r})"
