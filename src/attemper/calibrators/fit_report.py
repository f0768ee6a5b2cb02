"""How a fit went, and how the fitted map does on the data that it was fitted on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from attemper.data.scores import Chunk, LabelledScores
from attemper.maps import Map

__all__ = ["FitReport", "validation_nll_and_changes"]


@dataclass(frozen=True, kw_only=True)
class FitReport:
    """Report of a fit: ``fit_report_`` of every calibrator.

    Attributes
    ----------
    converged : bool
        Whether the result is as exact as asked for.
    log_t_error : float, optional
        Temperature family: bound on the error of log T that the computation (not the data) leaves.
    objective_gap : float, optional
        Other methods: bound, in nats, on how far the mean objective is above its minimum; 0 if nothing is searched for.
    edge : "low", "high" or None
        Which end of the range T lies on, if no T inside it is best.
    nll : float
        Mean validation NLL of the fitted map (Bayesian: of its median T and uniform mass, which a
        sketch is enough for).
    n_samples : int
        How many it was fitted on.
    n_iter : int
        Iterations, or passes over the data.
    message : str
        A readable summary.
    gradient_norm : float, optional
        Euclidean norm of the gradient of the mean objective, for fits that descend on one.
    changed : float
        Share of the validation samples whose arg max the map changes.
    left_alone : bool
        Whether the validation data show no gain over the classifier as it is (T = 1): a gain is not expected on new
        data, so the classifier is better left alone. `AttendedTemperatureScaling` and `StructuredScaling` then do
        leave it alone.

    Examples
    --------
    >>> from attemper import TemperatureScaling
    >>> report = TemperatureScaling().fit([[2.0, 0.0], [0.0, 2.0], [2.0, 0.0], [2.0, 0.0]], [0, 1, 0, 1]).fit_report_
    >>> report.converged, report.edge, report.n_samples
    (True, None, 4)
    """

    converged: bool = True
    log_t_error: float | None = None
    objective_gap: float | None = None
    edge: Literal["low", "high"] | None = None
    nll: float
    n_samples: int
    n_iter: int = 1
    message: str
    gradient_norm: float | None = None
    changed: float = 0.0
    left_alone: bool = False

    @classmethod
    def of(cls, fitted: Map, scores: LabelledScores, **facts: Any) -> FitReport:
        """Report on a fitted map: its NLL and the predictions that it changes on these samples, and other facts."""
        nll, changed = validation_nll_and_changes(fitted, scores)
        return cls(nll=nll, changed=changed, n_samples=scores.n_samples, **facts)


def validation_nll_and_changes(fitted: Map, scores: LabelledScores) -> tuple[float, float]:
    """Mean validation NLL of a map, and the weighted share of samples whose arg max it changes."""

    def sums(chunk: Chunk) -> NDArray[Any]:
        p = fitted.apply(chunk.h)
        w = np.ones(len(p)) if chunk.w is None else chunk.w
        of_label = p[np.arange(len(p)), chunk.y]
        losses = -np.log(np.where(of_label > 1e-290, of_label, 1.0))
        tiny = (of_label <= 1e-290) & (w > 0)
        if tiny.any():
            losses[tiny] = -fitted.log_apply(chunk.h[tiny])[np.arange(tiny.sum()), chunk.y[tiny]]
        return np.array([w @ losses, w @ (p.argmax(axis=1) != chunk.h.argmax(axis=1))])

    nll, changed = scores.total(sums, np.float64) / scores.total_weight
    return float(nll), float(changed)
