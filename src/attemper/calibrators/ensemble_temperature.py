"""Ensemble temperature scaling (Zhang, Kailkhura and Han 2020): a mixture of tempered, plain and uniform answers."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.optimize import nnls

from attemper._typing import Floats
from attemper.calibrators.estimator import fitted, recipe
from attemper.calibrators.fit_report import FitReport
from attemper.calibrators.one_temperature import TemperatureCalibrator
from attemper.calibrators.style import SKY, Style
from attemper.calibrators.temperature import advice, best_temperature
from attemper.data.arrays import to_numpy
from attemper.data.scores import LabelledScores
from attemper.errors import ConvergenceWarning, EdgeWarning, warn
from attemper.kernels.minimum import Minimum
from attemper.maps import MixtureMap, ScaleMap

__all__ = ["EnsembleTemperatureScaling"]


@recipe
class EnsembleTemperatureScaling(TemperatureCalibrator):
    """w₁ softmax(h/T) + w₂ softmax(h) + w₃/K: T of temperature scaling, then the weights with the least NLL.

    Never changes the prediction. The uniform part keeps single wrong answers from costing much; where temperature
    scaling is enough, w₁ is one. Weights add up to one and are never negative, so their NLL has one minimum, which is
    found and certified: the report's error bounds how far the NLL is above it.

    Parameters
    ----------
    input, zeros_as, classes
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
    needs_few_labels = True
    title = "ensemble temperature scaling"
    style = Style(SKY, (0, (4, 2)), "v")
    stored = (*TemperatureCalibrator.stored, "weights_")

    weights_: Floats = fitted()

    def summary(self) -> dict[str, Any]:
        """Return the fitted values as plain numbers."""
        names = ("tempered", "plain", "uniform")
        return super().summary() | {name: float(w) for name, w in zip(names, self.weights_)}

    def describe(self) -> list[str]:
        """Return a readable summary, line by line."""
        tempered, plain, uniform = self.weights_
        return [*super().describe(), f"weights: tempered {tempered:.3g}, as it is {plain:.3g}, uniform {uniform:.3g}"]

    def _solve_scores(self, scores: LabelledScores) -> None:
        best = best_temperature(scores)
        edge, why = best.edge, "" if best.minimum else f"{best.message}; "
        converged = edge is None and (best.minimum is None or best.minimum.converged)
        self.temperature_ = float(best.t)
        if best.minimum is not None:
            self._set_interval(best.minimum.log_t_std(scores.total_weight))
        mixed = mix(_components(scores, self.temperature_), scores.weights)
        self.map_ = MixtureMap((mixed.at[0], mixed.at[1]), (1 / self.temperature_, 1.0), mixed.at[2])
        self.weights_ = np.array(mixed.at)
        self.fit_report_ = FitReport(
            converged=converged and mixed.error < 1e-8,
            objective_gap=mixed.error,
            edge=edge,
            nll=mixed.value,
            n_samples=scores.n_samples,
            n_iter=mixed.n_iter,
            message=f"{why}weights after {mixed.n_iter} steps; the NLL is known to {mixed.error:.0e}",
        )
        if edge is not None:
            message = f"EnsembleTemperatureScaling: {self.fit_report_.message}. {advice()}"
            warn(message, EdgeWarning)
        elif not self.fit_report_.converged:
            warn(f"EnsembleTemperatureScaling: {self.fit_report_.message}.", ConvergenceWarning)


def _components(scores: LabelledScores, t: float) -> Floats:
    """Logarithm of the probability that each of the three gives to the label, one row for each sample."""
    h = to_numpy(scores.logits).astype(np.float64, copy=False)
    rows = np.arange(len(h))
    tempered, plain = (ScaleMap(beta).log_apply(h)[rows, scores.labels] for beta in (1 / t, 1.0))
    possible = np.isfinite(h).sum(axis=1) if scores.masked else np.full(len(h), scores.n_classes)
    return np.stack([tempered, plain, -np.log(possible)], axis=1)


def mix(log_parts: Floats, sample_weight: Floats | None = None, max_iterations: int = 100) -> Minimum:
    """Find the weights ω, none negative and of sum one, that minimise −mean log Σ_m ω_m exp(log_parts_m).

    Newton's steps, each a quadratic programme. With s_m = mean of part_m / mixture, the NLL is at most log max s_m
    above its minimum, since it is convex and Σ ω_m s_m = 1: that is the certificate.

    >>> mix(np.log([[0.9, 0.5], [0.9, 0.5], [0.2, 0.5]])).at  # doctest: +ELLIPSIS
    (0.694..., 0.305...)
    """
    top = log_parts.max(axis=1)
    parts = np.exp(log_parts - top[:, None])
    v = np.full(len(parts), 1 / len(parts)) if sample_weight is None else sample_weight / sample_weight.sum()
    parts, v, top = parts[v > 0], v[v > 0], top[v > 0]
    m = parts.shape[1]
    omega = np.full(m, 1 / m)
    best, iterations = Minimum(at=(), value=np.inf, error=np.inf, n_iter=0), 0
    while iterations < max_iterations:
        iterations += 1
        mixture = parts @ omega
        share = parts / mixture[:, None]
        s = v @ share
        gap, value = float(np.log(max(s.max(), 1.0))), float(-v @ np.log(mixture))
        if gap < best.error:
            at = tuple(omega.tolist())
            best = Minimum(at=at, value=value - float(v @ top), error=gap, n_iter=iterations)
        elif gap < 1e-10:
            break  # rounding is reached
        step = _programme(share, v) - omega
        length, slope = 1.0, float((s - 1) @ step)
        if gap < 1e-15 or slope <= 0:
            break
        # So near the minimum that the NLL hardly changes, Newton's step needs no search.
        while gap > 1e-6 and -v @ np.log(parts @ (omega + length * step) + 1e-300) > value - 1e-4 * length * slope:
            length /= 2
        omega = np.maximum(omega + length * step, 0.0)
        omega /= omega.sum()
    return best


def _programme(share: Floats, v: Floats) -> Floats:
    """Return where the parabola of the NLL is least on the simplex, by non-negative least squares.

    As Σ_m ω_m share_m = 1, the parabola around ω is ½ Σ v (share · x − 2)², up to a constant.
    """
    root = np.sqrt(v)[:, None]
    # A part without weight that some row needs has a curvature beyond all others: it gets a unit of its own.
    unit = 1 / np.maximum(np.linalg.norm(root * share, axis=0), 1.0)
    heavy = 100.0  # of a row that keeps the sum near one; a heavier one would cost digits, a lighter one steps
    rows = np.vstack([root * share, np.full(len(unit), heavy)]) * unit
    x = unit * nnls(rows, np.append(2 * root, heavy), maxiter=1000)[0]
    return np.asarray(x / x.sum())
