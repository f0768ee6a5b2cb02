"""What became of a fit: how it went, and how the fitted map does on the data that it was fitted on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from attemper.documents import Fields
from attemper.maps import Map
from attemper.scores import Chunk, Scores

__all__ = ["FitReport", "judge"]


@dataclass(frozen=True)
class FitReport:
    """How a fit went: ``fit_report_`` of every calibrator.

    Attributes
    ----------
    converged : bool
        Whether the answer is as exact as asked for.
    error : float
        Bound on what the computation (not the data) leaves open: of log T in the temperature family, of the mean
        objective in nats elsewhere; 0 where there is nothing to search for.
    edge : "low", "high" or None
        No T inside the range is best.
    nll : float
        Mean validation NLL of the fitted map (Bayesian: of its median T, which is what a sketch can tell).
    n_samples : int
        How many it was fitted on.
    passes : int
        How often the data were gone through.
    message : str
        The same in words.
    gradient_norm : float, optional
        Euclidean norm of the gradient of the mean objective at the answer, for fits that descend on one.
    changed : float
        Share of the validation samples whose arg max the map changes.

    Examples
    --------
    >>> from attemper import TemperatureScaling
    >>> report = TemperatureScaling().fit([[2.0, 0.0], [0.0, 2.0], [2.0, 0.0], [2.0, 0.0]], [0, 1, 0, 1]).fit_report_
    >>> report.converged, report.edge, report.n_samples
    (True, None, 4)
    """

    converged: bool
    error: float
    edge: Literal["low", "high"] | None
    nll: float
    n_samples: int
    passes: int
    message: str
    gradient_norm: float | None = None
    changed: float = 0.0

    @staticmethod
    def from_fields(content: Fields) -> FitReport:
        """Read back what was saved."""
        edge = content.content.get("edge")
        return FitReport(
            converged=content.boolean("converged"),
            error=content.number("error"),
            edge=edge if edge in ("low", "high") else None,
            nll=content.number("nll"),
            n_samples=content.integer("n_samples"),
            passes=content.integer("passes"),
            message=content.text("message"),
            gradient_norm=None if content.content.get("gradient_norm") is None else content.number("gradient_norm"),
            changed=content.number("changed"),
        )


def judge(found: Map, scores: Scores) -> tuple[float, float]:
    """Mean validation NLL of a map, and the weighted share of samples whose arg max it changes."""

    def sums(chunk: Chunk) -> NDArray[Any]:
        p = found.apply(chunk.h)
        w = np.ones(len(p)) if chunk.w is None else chunk.w
        of_label = p[np.arange(len(p)), chunk.y]
        losses = -np.log(np.where(of_label > 1e-290, of_label, 1.0))
        tiny = (of_label <= 1e-290) & (w > 0)
        if tiny.any():
            losses[tiny] = -found.log_apply(chunk.h[tiny])[np.arange(tiny.sum()), chunk.y[tiny]]
        return np.array([w @ losses, w @ (p.argmax(axis=1) != chunk.h.argmax(axis=1))])

    nll, changed = scores.total(sums, np.float64) / scores.total_weight
    return float(nll), float(changed)
