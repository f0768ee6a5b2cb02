"""What a comparison returns: a row for each method, and what they recommend."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from attemper._table import Columns, Table
from attemper._typing import Floats
from attemper.data.arrays import one_line
from attemper.maps import Map
from attemper.metrics import Estimate
from attemper.metrics.predictions import Predictions

__all__ = ["Comparison", "CrossValidated", "Row"]

CV = ("nll", "above", "standard_error")
SHOWN = {"nll": "NLL", "ece": "ECE", "accuracy": "accuracy", "changed": "changed"}


class CrossValidated(NamedTuple):
    """NLL of a method on validation samples that were held out from its fit; the ``cv`` of a row of `compare`."""

    nll: float  # infinite where it gives some class the probability 0
    above: float  # that of the recommended method; negative where it is lower
    standard_error: float  # of this difference, which is of the same samples


@dataclass(frozen=True, repr=False)
class Row:
    """One method's result in `compare`; ``failure`` is why there is none."""

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
class Comparison(Table):
    """All rows, and the recommended method: `compare` returns it."""

    rows: tuple[Row, ...]
    recommended: str  # name of a method
    reason: str  # in sentences: what was selected on what, and how the test set evaluates it
    selected_by: str = "first choice"  # "cross-validation", where that decided against it, or "no errors"
    n_folds: int = 0  # of the cross-validation; 0 without one
    # Methods that can have the least test NLL, to within 0.001; None: too few errors.
    confidence_set: tuple[str, ...] | None = None

    def __repr__(self) -> str:
        return f"Comparison({len(self.rows)} rows, recommended={self.recommended!r})"

    def _table_columns(self) -> Columns:
        rows = self.rows
        possible = self.confidence_set
        names = dict.fromkeys(name for row in rows for name in row.metrics or ())
        return {
            "method": [row.method for row in rows],
            "recommended": [row.method == self.recommended for row in rows],
            "temperature": [row.temperature for row in rows],
            **{f"cv_{name}": [None if row.cv is None else getattr(row.cv, name) for row in rows] for name in CV},
            **{name: [(row.metrics or {}).get(name) for row in rows] for name in names},
            "referral_area": [row.referral_area for row in rows],
            "nll_above_best": [row.above_best for row in rows],
            "can_be_best": [None if possible is None else row.method in possible for row in rows],
            "changed": [row.changed for row in rows],
            "seconds": [row.seconds for row in rows],
            "notes": ["; ".join(row.notes) for row in rows],
            "failure": [row.failure for row in rows],
        }

    def _html_columns(self) -> Columns:
        columns = self._table_columns()
        names = ["uncalibrated" if row.method == "none" else row.method for row in self.rows]
        marked = [f"{name}\u00a0✓" if row.method == self.recommended else name for name, row in zip(names, self.rows)]
        shown = {"method": marked, "T": columns["temperature"], "NLL (CV)": columns["cv_nll"]}
        shown |= {title: columns[name] for name, title in SHOWN.items() if name in columns}
        return shown | ({"failure": columns["failure"]} if any(columns["failure"]) else {})

    def _html_notes(self) -> Iterable[str]:
        return [self.reason]
