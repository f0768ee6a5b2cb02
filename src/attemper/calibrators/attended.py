"""Attended temperature scaling, the method of the paper: Eq. (7) and (8)."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from attemper._checks import one_of
from attemper._json import Dims
from attemper._table import Table
from attemper._typing import Floats
from attemper.calibrators.estimator import fitted, recipe
from attemper.calibrators.fit_report import FitReport
from attemper.calibrators.streaming import StreamingCalibrator
from attemper.calibrators.style import ORANGE, Style
from attemper.calibrators.temperature import FLAT, _evaluator, advice, best_temperature
from attemper.data.arrays import one_line
from attemper.data.scale import DEFAULT_T_RANGE, logit_scale
from attemper.data.scores import LabelledScores
from attemper.errors import AttemperWarning, ConvergenceWarning, EdgeWarning, InputError
from attemper.kernels import attended, chebyshev
from attemper.maps import ScaleMap
from attemper.sketch import Part, Sketch, check_thetas, enough_nodes, log_range

__all__ = ["AttendedTemperatureScaling", "ThetaPath"]

CHANCE = 1.0  # nats in all that a fit of one parameter gains by chance: half on its own data, half is lost on others


Column = Annotated[Floats, Dims(1)]


class _ThetaPath(NamedTuple):
    theta: Column
    temperature: Column  # T(θ), the global minimum of the attended loss
    nll: Column  # mean validation NLL at T(θ), by which θ is tuned
    error: Column  # bound on the error of log T(θ)


class ThetaPath(_ThetaPath, Table):
    """What each θ of the grid gives: ``path_`` of `AttendedTemperatureScaling`."""

    __slots__ = ()

    def __repr__(self) -> str:
        return one_line(self)


@recipe
class AttendedTemperatureScaling(StreamingCalibrator):
    """One temperature, fitted with the attended loss of Mozafari et al. (arXiv 1810.11586).

    Each sample also attends to the classes that it could almost belong to: those with a
    probability of at least θ at T = 1 (for logits on an unusual scale, at the T that counts as 1 there). The whole θ
    path comes from one table.

    Tuned on enough clean labels it lands on the temperature of `TemperatureScaling`; its gain is
    with few or noisy labels for accurate, over-confident networks, where the bounded θ keeps T
    from running away. It cannot help a network that needs T < 1, and a loss that is not proper moves a classifier that
    is calibrated: there it falls back on temperature scaling, or on T = 1.

    Parameters
    ----------
    theta : float or None
        The threshold of Eq. (7). None: the value of ``theta_grid`` whose T has the least validation NLL.
    theta_grid : array, optional
        Ascending; 0.001, 0.002, … 0.1 by default. (A grid that reaches 1, tuned by NLL, is plain
        temperature scaling: above every S_k the attended loss is the NLL.)
    loss : "paper" or "reference"
        Eq. (8), or the loss of the authors' published code, which differs (`docs/paper-map.md`).
    t_range : (low, high), optional
        The loss is not convex; its global minimum within this range is taken. By default (0.05, 20), or a range that
        suits the scale of the logits.
    fallback : bool
        Do no harm: where the validation NLL is above that of T = 1 by more than chance (one nat in all), take the T of
        temperature scaling, or T = 1 where that gains nothing beyond chance. A warning reports it, and ``theta_`` is 1,
        at which no sample attends to another class. False leaves the T of the paper's method. A ``theta`` that you
        choose is never replaced.
    input, zeros_as, classes
        As for `TemperatureScaling`.

    Attributes
    ----------
    temperature_, theta_ : float
    temperature_interval_ : (float, float) or None
        As for `TemperatureScaling`, around this T.
    path_ : ThetaPath
        θ, T(θ) and validation NLL for every θ of the grid.
    map_, fit_report_, sketch_, classes_, n_features_in_

    Examples
    --------
    >>> import numpy as np
    >>> from attemper import AttendedTemperatureScaling
    >>> rng = np.random.default_rng(0)
    >>> logits = 3 * rng.normal(size=(2000, 5))
    >>> labels = (logits / 2 + rng.gumbel(size=logits.shape)).argmax(axis=1)
    >>> ats = AttendedTemperatureScaling().fit(logits, labels)
    >>> round(ats.temperature_, 2), ats.theta_, ats.path_.theta.shape
    (1.97, 0.059, (100,))
    """

    method = "ats"
    minimises_nll = False
    needs_few_labels = True
    title = "attended temperature scaling"
    style = Style(ORANGE, "-.", "^")
    sketch_tables = ("attended",)

    stored = (*StreamingCalibrator.stored, "theta_", "path_")

    theta: float | None = None
    theta_grid: ArrayLike | None = None
    loss: Literal["paper", "reference"] = "paper"
    t_range: tuple[float, float] | None = None
    fallback: bool = True
    theta_: float = fitted()
    path_: ThetaPath = fitted()

    def summary(self) -> dict[str, Any]:
        """Return the fitted values as plain numbers."""
        return super().summary() | {"theta": self.theta_, "loss": self.loss}

    def describe(self) -> list[str]:
        """Return a readable summary, line by line."""
        return [*super().describe(), f"θ = {self.theta_:g}"]

    def _check_parameters(self) -> None:
        one_of("loss", self.loss, ("paper", "reference"))
        if self.theta is not None and len(check_thetas(self.theta)) != 1:
            raise InputError(
                f"theta={self.theta!r}: one number is expected; a grid to tune on goes into theta_grid", param="theta"
            )
        if self.theta_grid is not None:
            check_thetas(self.theta_grid)
        if self.t_range is not None:
            log_range(self.t_range)

    def sketch_parts(self) -> tuple[Part, ...]:
        """Return the tables of a sketch that this fit needs in addition to the NLL."""
        return ("reference",) if self.loss == "reference" else ("attended",)

    def _sketch_settings(self) -> dict[str, Any]:
        return super()._sketch_settings() | {"thetas": self._grid}

    @property
    def _grid(self) -> ArrayLike | None:
        return self.theta if self.theta is not None else self.theta_grid

    def _solve_scores(self, scores: LabelledScores) -> None:

        unit, whole = logit_scale(scores)
        if self.t_range is not None:
            whole = (float(self.t_range[0]), float(self.t_range[1]))
        settings: dict[str, Any] = {"thetas": self._grid, "parts": self.sketch_parts(), "unit": unit, "addable": False}

        def sketch(of: LabelledScores, t_range: tuple[float, float], n_nodes: int) -> Sketch:
            return Sketch.of(of, t_range=t_range, n_nodes=n_nodes, **settings)

        part = scores.sample(512)
        if len(scores) < 2048:
            self._finish(sketch(scores, whole, 64), whole, scores)
            return
        # The sample shows where the losses of all θ have their minima; there, fewer nodes are as exact.
        near = _neighbourhood(sketch(part, whole, 32), self.loss)
        table = sketch(scores, near, enough_nodes(near))
        best = _minima(table, self.loss)
        inside = (best.edge == 0) | (np.where(best.edge < 0, near[0], near[1]) == np.where(best.edge < 0, *whole))
        if not inside.all():
            table = sketch(scores, whole, 64)
        elif best.error.max() > max(3e-7, 1e4 * table.rounding / table.weight):
            table = sketch(scores, near, 64)
        self._finish(table, whole, scores)

    def _solve_sketch(self, sketch: Sketch) -> None:
        self._check_range_of(sketch)
        if self.theta_grid is not None and not np.array_equal(check_thetas(self.theta_grid), sketch.thetas):
            raise InputError("theta_grid: this sketch was made for another grid; make it with Sketch.of(..., thetas=…)")
        self._finish(sketch, sketch.t_range)

    def _finish(self, sketch: Sketch, whole: tuple[float, float], scores: LabelledScores | None = None) -> None:
        best = _minima(sketch, self.loss)
        value = chebyshev.evaluate(chebyshev.coefficients(sketch.nll[:, None]), sketch.interval, best.at)[:, 0]
        path = ThetaPath(sketch.thetas, np.exp(best.at), value / sketch.weight, best.error)
        if self.theta is None:
            chosen = int(path.nll.argmin())
        else:
            chosen = int(np.abs(sketch.thetas - self.theta).argmin())
            if abs(sketch.thetas[chosen] - self.theta) > 1e-12:
                raise InputError(
                    f"theta={self.theta!r} is not in the grid of this sketch ({sketch.thetas[0]:g} … "
                    f"{sketch.thetas[-1]:g}, {len(sketch.thetas)} values); "
                    + f"make it with Sketch.of(..., thetas=[{self.theta}])",
                    param="theta",
                )
            path = ThetaPath(*(column[chosen : chosen + 1] for column in path))
        self.path_ = path
        self.theta_ = float(sketch.thetas[chosen])
        t = float(np.exp(best.at[chosen]))
        edge: Literal["low", "high"] | None = None
        error, nll = float(best.error[chosen]), float(value[chosen] / sketch.weight)
        message = f"global minimum of a table of {len(sketch.nll)} nodes; T is known to {error:.0e} relative"
        if sketch.flat:
            message = FLAT
        if best.edge[chosen]:
            edge = "low" if best.edge[chosen] < 0 else "high"
            t = whole[edge == "high"]
            if sketch.perfect and self.t_range is None:
                t = float(np.clip(DEFAULT_T_RANGE[0] * sketch.unit, *whole))
            message = f"the attended loss has its minimum at T = {t:g}, the edge of the range"
        doubts = [] if sketch.flat or edge is not None else self._doubts(sketch)
        alone = None if sketch.flat else _uncalibrated(sketch, scores, self.t_range)
        if alone is not None and nll > alone.nll * (1 + 1e-9):
            harm = f"the validation NLL of {nll:.4f} at T = {t:.4g} is above {alone.nll:.4f} at T = {alone.t:g}"
            if self.fallback and self.theta is None and sketch.weight * (nll - alone.nll) > CHANCE:
                self._fall_back([harm, *doubts], alone, sketch, scores)
                return
            doubts = [harm, *doubts]
        self._set(_At(t, nll, sketch.log_t_std(t)), has_interval=edge is None and not sketch.flat)
        ok = edge is None and error < 1e-3
        self.fit_report_ = FitReport(
            converged=ok,
            log_t_error=error,
            edge=edge,
            nll=nll,
            n_samples=sketch.n_samples,
            message="; ".join([message, *doubts]),
        )
        if edge is not None:
            hint = f"Widen t_range if the logits are on an unusual scale. {advice()}"
            reason = f"{message} ({whole[0]:g}, {whole[1]:g})"
            self._warn(f"{'; '.join([reason, *doubts])}. {hint}", EdgeWarning)
        elif doubts:
            self._warn(f"{'; '.join(doubts)}. {_instead()}", AttemperWarning)
        elif not ok:
            self._warn(f"{message}.", ConvergenceWarning)

    def _set(self, at: _At, *, has_interval: bool = True) -> None:
        self.temperature_ = at.t
        self.map_ = ScaleMap(1 / at.t)
        if has_interval:
            self._set_interval(at.log_t_std)

    def _doubts(self, sketch: Sketch) -> list[str]:
        """Return whether the best θ may lie outside the grid."""
        low, high = float(sketch.thetas[0]), float(sketch.thetas[-1])
        # Beyond 0 and 1 there is nothing to look for.
        if self.theta is None and 0 < self.theta_ < 1 and low < high and self.theta_ in (low, high):
            return [f"θ = {self.theta_:g} is the end of its grid ({low:g} … {high:g})"]
        return []

    def _fall_back(self, doubts: list[str], alone: _At, sketch: Sketch, scores: LabelledScores | None) -> None:
        """Take the θ above every S_k, which leaves temperature scaling; or T = 1 where that gains nothing."""
        plain, error = _temperature_scaling(sketch, scores, self.t_range)
        if plain is not None and sketch.weight * (alone.nll - plain.nll) > CHANCE:
            found, taken = plain, f"fell back on temperature scaling: T = {plain.t:.4g}"
        else:
            found, error, taken = alone, 0.0, f"fell back on T = {alone.t:g}, since temperature scaling gains nothing"
            if alone.t == 1:
                taken = "the classifier is better left alone: T = 1"
        self.theta_ = 1.0
        self._set(found)
        self.fit_report_ = FitReport(
            log_t_error=error,
            nll=found.nll,
            n_samples=sketch.n_samples,
            message="; ".join([*doubts, taken]),
            left_alone=found.t == 1,
        )
        self._warn(f"{self.fit_report_.message}. {_instead()}", AttemperWarning)


class _At(NamedTuple):
    """A temperature, its mean validation NLL and the standard deviation of log T there."""

    t: float
    nll: float
    log_t_std: float


def _instead() -> str:
    return "Use TemperatureScaling or BayesianTemperatureScaling."


def _at(t: float, sketch: Sketch, scores: LabelledScores | None) -> _At | None:
    """Look at one temperature; None where neither the table nor the data can decide."""
    if sketch.t_range[0] <= t <= sketch.t_range[1]:
        return _At(t, sketch.mean_nll(t), sketch.log_t_std(t))
    if scores is None:
        return None
    nll, _, curvature = _evaluator(scores)(1 / t)
    return _At(t, float(nll), float(t / np.sqrt(max(scores.total_weight * curvature, 1e-12 * t**2))))


def _uncalibrated(sketch: Sketch, scores: LabelledScores | None, t_range: tuple[float, float] | None) -> _At | None:
    """T = 1, or the T that counts as 1 for logits on an unusual scale: the one with the lower NLL, within the range."""
    low, high = t_range or (0.0, np.inf)
    known = [at for t in {1.0, sketch.unit} if low <= t <= high and (at := _at(t, sketch, scores)) is not None]
    return min(known, key=lambda at: at.nll, default=None)


def _temperature_scaling(
    sketch: Sketch, scores: LabelledScores | None, t_range: tuple[float, float] | None
) -> tuple[_At | None, float]:
    """T with the least NLL, and the bound of the error of log T; None where no finite T is best."""
    if scores is not None:
        best = best_temperature(scores, t_range)
        return None if best.minimum is None else _at(
            best.t, sketch, scores
        ), 0.0 if best.minimum is None else best.minimum.error
    found = chebyshev.minima(chebyshev.coefficients(sketch.nll[:, None]), sketch.interval, sketch.rounding)
    return None if found.edge[0] else _at(float(np.exp(found.at[0])), sketch, None), float(found.error[0])


def _losses(sketch: Sketch, loss: str) -> Floats:
    return attended.theta_path(sketch.nll, sketch.tables["reference" if loss == "reference" else "attended"])


def _minima(sketch: Sketch, loss: str) -> chebyshev.Minima:
    losses = _losses(sketch, loss)
    best = chebyshev.minima(chebyshev.coefficients(losses), sketch.interval, sketch.rounding)
    if sketch.flat:
        one = np.clip(np.zeros_like(best.at), *sketch.interval)
        return replace(best, at=one, error=np.zeros_like(one), edge=np.zeros_like(best.edge))
    if not sketch.perfect:
        return best
    # Where no sample attends to another class either, the loss only falls as T → 0.
    endless = (losses == sketch.nll[:, None]).all(axis=0)
    at = np.where(endless, sketch.interval.low, best.at)
    return replace(best, at=at, edge=np.where(endless, -1, best.edge).astype(np.int8))


def _neighbourhood(sketch: Sketch, loss: str) -> tuple[float, float]:
    """Temperatures at which some θ comes within 0.01 nats per sample of its least loss."""
    grid = np.linspace(sketch.interval.low, sketch.interval.high, 600)
    value = chebyshev.evaluate(chebyshev.coefficients(_losses(sketch, loss)), sketch.interval, grid)
    near = np.flatnonzero((value - value.min(axis=0) <= 0.01 * sketch.weight).any(axis=1))
    low, high = np.exp(grid[max(near[0] - 2, 0)]), np.exp(grid[min(near[-1] + 2, len(grid) - 1)])
    return (
        sketch.t_range[0] if near[0] <= 2 else float(low),
        sketch.t_range[1] if near[-1] >= len(grid) - 3 else float(high),
    )
