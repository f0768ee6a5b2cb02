"""Ensemble temperature scaling (Zhang, Kailkhura and Han 2020): a mixture of tempered, plain and uniform answers."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from itertools import combinations
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from attemper.arrays import to_numpy
from attemper.calibrators.base import TemperatureCalibrator
from attemper.calibrators.outcome import FitReport
from attemper.calibrators.temperature import FLAT, NO_FINITE_T, advice, least_nll
from attemper.documents import Fields
from attemper.errors import AttemperWarning, EdgeWarning, FileError
from attemper.kernels import nll
from attemper.maps import MixtureMap, ScaleMap
from attemper.scores import Scores
from attemper.sketch import DEFAULT_T_RANGE, Part

__all__ = ["EnsembleTemperatureScaling"]

Floats = NDArray[np.float64]


class EnsembleTemperatureScaling(TemperatureCalibrator):
    """w₁ softmax(h/T) + w₂ softmax(h) + w₃/K: T of temperature scaling, then the weights with the least NLL.

    Never changes the prediction. The uniform part keeps single wrong answers from costing much; where temperature
    scaling is enough, w₁ is one. Weights add up to one and are never negative, so their NLL has one minimum, which is
    found and certified: the report's error bounds how far the NLL is above it.

    Parameters
    ----------
    input, floor, classes
        As for `TemperatureScaling`.

    Attributes
    ----------
    temperature_ : float
    weights_ : the three weights: tempered, plain, uniform
    map_ : MixtureMap
    fit_report_ : FitReport
    classes_, n_features_in_

    Examples
    --------
    >>> import numpy as np
    >>> from attemper import EnsembleTemperatureScaling
    >>> rng = np.random.default_rng(0)
    >>> logits = 6 * rng.normal(size=(4000, 5))
    >>> labels = (logits / 2 + rng.gumbel(size=logits.shape)).argmax(axis=1)
    >>> wrong = rng.uniform(size=4000) < 0.1
    >>> labels[wrong] = rng.integers(0, 5, wrong.sum())
    >>> ets = EnsembleTemperatureScaling().fit(logits, labels)
    >>> ets.weights_.round(2)
    array([0.55, 0.38, 0.07])
    """

    method = "ets"

    weights_: Floats
    map_: MixtureMap

    def __init__(
        self,
        *,
        input: Literal["logits", "probs"] = "logits",
        floor: float | None = None,
        classes: Sequence[Any] | None = None,
    ) -> None:
        self.input = input
        self.floor = floor
        self.classes = classes

    def sketch_parts(self) -> tuple[Part, ...] | None:
        """Return None: the sum of logarithms of a mixture is no sum over temperatures."""
        return None

    def summary(self) -> dict[str, Any]:
        """Return what was found, as plain numbers."""
        names = ("tempered", "plain", "uniform")
        return super().summary() | {name: float(w) for name, w in zip(names, self.weights_)}

    def describe(self) -> list[str]:
        """Return the same in words."""
        tempered, plain, uniform = self.weights_
        return [*super().describe(), f"weights: tempered {tempered:.3g}, as it is {plain:.3g}, uniform {uniform:.3g}"]

    def _solve_scores(self, scores: Scores) -> None:
        found = least_nll(scores)
        edge: Literal["low", "high"] | None = None
        if isinstance(found, nll.Minimum):
            t, why, converged = 1 / found.beta, "", found.converged
        elif found == "flat":
            t, why, converged = 1.0, f"{FLAT}; ", True
        else:
            edge, t, converged = found, DEFAULT_T_RANGE[found == "high"], False
            why = f"{NO_FINITE_T[found]}; T = {t:g} is the edge of the range; "
        self.temperature_ = float(t)
        if isinstance(found, nll.Minimum):
            self._set_interval(found.log_t_std(scores.total_weight))
        mixed = mix(_components(scores, self.temperature_), scores.weights)
        self._keep(MixtureMap((mixed.weights[0], mixed.weights[1]), (1 / self.temperature_, 1.0), mixed.weights[2]))
        self.fit_report_ = FitReport(
            converged=converged and mixed.gap < 1e-8,
            error=mixed.gap,
            edge=edge,
            nll=mixed.nll,
            n_samples=len(scores),
            passes=mixed.iterations,
            message=f"{why}weights after {mixed.iterations} steps; the NLL is known to {mixed.gap:.0e}",
        )
        if edge is not None:
            message = f"EnsembleTemperatureScaling: {self.fit_report_.message}. {advice()}"
            warnings.warn(message, EdgeWarning, stacklevel=3)
        elif not self.fit_report_.converged:
            warnings.warn(f"EnsembleTemperatureScaling: {self.fit_report_.message}.", AttemperWarning, stacklevel=3)

    def _keep(self, found: MixtureMap) -> None:
        self.map_ = found
        self.weights_ = np.array([*found.weights, found.floor])

    def _fitted_from_fields(self, content: Fields) -> None:
        super()._fitted_from_fields(content)
        assert isinstance(self.map_, MixtureMap)  # checked with the temperature
        self._keep(self.map_)

    def _temperatures_of_map(self, content: Fields) -> tuple[float, float]:
        if not isinstance(self.map_, MixtureMap) or len(self.map_.weights) != 2:
            raise FileError(f"{content.where}: the map is not one of {type(self).__name__}")
        beta = self.map_.betas[0]
        return (1 - 1e-9) / beta, (1 + 1e-9) / beta


def _components(scores: Scores, t: float) -> Floats:
    """Logarithm of the probability that each of the three gives to the label, one row for each sample."""
    assert scores.labels is not None
    h = to_numpy(scores.logits).astype(np.float64, copy=False)
    rows = np.arange(len(h))
    tempered, plain = (ScaleMap(beta).log_apply(h)[rows, scores.labels] for beta in (1 / t, 1.0))
    possible = np.isfinite(h).sum(axis=1) if scores.masked else np.full(len(h), scores.n_classes)
    return np.stack([tempered, plain, -np.log(possible)], axis=1)


class Mixed(NamedTuple):
    """Weights of a mixture, and how well they are known."""

    weights: tuple[float, ...]
    nll: float
    gap: float  # bound on how far the NLL is above its minimum
    iterations: int


def mix(log_parts: Floats, sample_weight: Floats | None = None, max_iterations: int = 100) -> Mixed:
    """Find the weights ω, none negative and of sum one, that minimise −mean log Σ_m ω_m exp(log_parts_m).

    Newton's steps, each a quadratic programme that is solved for every set of parts that may have some weight (there
    are seven of three). With s_m = mean of part_m / mixture, the NLL is at most log max s_m above its minimum, since it
    is convex and Σ ω_m s_m = 1: that is the certificate.

    >>> mix(np.log([[0.9, 0.5], [0.9, 0.5], [0.2, 0.5]])).weights  # doctest: +ELLIPSIS
    (0.694..., 0.305...)
    """
    top = log_parts.max(axis=1)
    parts = np.exp(log_parts - top[:, None])
    v = np.full(len(parts), 1 / len(parts)) if sample_weight is None else sample_weight / sample_weight.sum()
    parts, v, top = parts[v > 0], v[v > 0], top[v > 0]
    m = parts.shape[1]
    omega = np.full(m, 1 / m)
    best, iterations = Mixed((), np.inf, np.inf, 0), 0
    while iterations < max_iterations:
        iterations += 1
        mixture = parts @ omega
        share = parts / mixture[:, None]
        s = v @ share
        gap, value = float(np.log(max(s.max(), 1.0))), float(-v @ np.log(mixture))
        if gap < best.gap:
            best = Mixed(tuple(omega.tolist()), value - float(v @ top), gap, iterations)
        elif gap < 1e-10:
            break  # rounding is reached
        step = _programme(s, share.T @ (share * v[:, None]), omega)
        length, slope = 1.0, float((s - 1) @ step)
        if gap < 1e-15 or slope <= 0:
            break
        # So near that the NLL itself hardly tells, Newton's step needs no search.
        while gap > 1e-6 and -v @ np.log(parts @ (omega + length * step) + 1e-300) > value - 1e-4 * length * slope:
            length /= 2
        omega = np.maximum(omega + length * step, 0.0)
        omega /= omega.sum()
    return best


def _programme(s: Floats, curvature: Floats, omega: Floats) -> Floats:
    """Step from ω to where its parabola is least on the simplex: the best of the minima on the faces."""
    m = len(omega)
    best, lowest = np.zeros(m), 0.0
    # A part without weight that some row needs has a curvature beyond all others: it gets a unit of its own.
    unit = 1 / np.sqrt(np.maximum(np.diag(curvature), 1.0))
    for size in range(1, m + 1):
        for face in combinations(range(m), size):
            kept, gone = list(face), [j for j in range(m) if j not in face]
            # Stationary on the face, with a multiplier for the sum. The slopes are taken less one, which the multiplier
            # makes up for: near the minimum all of them are one, and their differences would drown in rounding.
            system = np.zeros((size + 1, size + 1))
            system[:size, :size] = curvature[np.ix_(kept, kept)] * np.outer(unit[kept], unit[kept])
            system[:size, size] = system[size, :size] = unit[kept]
            slopes = (s - 1)[kept] + curvature[np.ix_(kept, gone)] @ omega[gone]
            right = np.append(slopes * unit[kept], omega[gone].sum())
            step = -omega
            step[kept] = np.linalg.lstsq(system, right, rcond=1e-15)[0][:size] * unit[kept]
            step = np.maximum(step, -omega) if (omega + step).min() >= -1e-14 else np.zeros(m)
            value = float(-(s - 1) @ step + 0.5 * step @ curvature @ step)
            if value < lowest and abs(step.sum()) < 1e-9:
                best, lowest = step, value
    return best
