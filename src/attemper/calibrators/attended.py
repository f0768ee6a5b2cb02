"""Attended temperature scaling, the method of the paper: Eq. (7) and (8)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from attemper.arrays import one_line
from attemper.calibrators.outcome import FitReport
from attemper.calibrators.streaming import StreamingCalibrator
from attemper.calibrators.temperature import FLAT, _evaluator, advice
from attemper.documents import Fields
from attemper.errors import AttemperWarning, EdgeWarning, InputError, option, setting
from attemper.kernels import attended, chebyshev
from attemper.maps import ScaleMap
from attemper.scores import Scores
from attemper.sketch import DEFAULT_T_RANGE, Part, Sketch, check_thetas, log_range

__all__ = ["AttendedTemperatureScaling", "ThetaPath"]

Floats = NDArray[np.float64]


class ThetaPath(NamedTuple):
    """What each θ of the grid gives: ``path_`` of `AttendedTemperatureScaling`."""

    theta: Floats
    temperature: Floats  # T(θ), the global minimum of the attended loss
    nll: Floats  # mean validation NLL at T(θ), by which θ is tuned
    error: Floats  # bound on the error of log T(θ)

    def __repr__(self) -> str:
        return one_line(self)


class AttendedTemperatureScaling(StreamingCalibrator):
    """One temperature, fitted with the attended loss of Mozafari et al. (arXiv 1810.11586).

    Each sample also attends to the classes that it could almost belong to: those with a
    probability of at least θ at T = 1. The whole θ path comes from one table.

    Tuned on enough clean labels it lands on the temperature of `TemperatureScaling`; its gain is
    with few or noisy labels for accurate, over-confident networks, where the bounded θ keeps T
    from running away. It cannot help a network that needs T < 1.

    Parameters
    ----------
    theta : float or None
        The threshold of Eq. (7). None: the value of ``theta_grid`` whose T has the least validation NLL.
    theta_grid : array, optional
        Ascending; 0.001, 0.002, … 0.1 by default. (A grid that reaches 1, tuned by NLL, is plain
        temperature scaling: above every S_k the attended loss is the NLL.)
    loss : "paper" or "reference"
        Eq. (8), or the loss of the authors' published code, which differs (`docs/paper-map.md`).
    t_range : (low, high)
        The loss is not convex; its global minimum within this range is taken.
    half_life, input, floor, classes
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

    def __init__(
        self,
        *,
        theta: float | None = None,
        theta_grid: ArrayLike | None = None,
        loss: Literal["paper", "reference"] = "paper",
        t_range: tuple[float, float] = DEFAULT_T_RANGE,
        half_life: float | None = None,
        input: Literal["logits", "probs"] = "logits",
        floor: float | None = None,
        classes: Sequence[Any] | None = None,
    ) -> None:
        self.theta = theta
        self.theta_grid = theta_grid
        self.loss = loss
        self.t_range = t_range
        self.half_life = half_life
        self.input = input
        self.floor = floor
        self.classes = classes

    theta_: float
    path_: ThetaPath

    def summary(self) -> dict[str, Any]:
        """Return what was found, as plain numbers."""
        return super().summary() | {"theta": self.theta_, "loss": self.loss}

    def describe(self) -> list[str]:
        """Return the same in words."""
        return [*super().describe(), f"θ = {self.theta_:g}"]

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if self.loss not in ("paper", "reference"):
            raise InputError(f"loss={self.loss!r}: expected 'paper' or 'reference'")
        if self.theta is not None and len(check_thetas(self.theta)) != 1:
            raise InputError(
                f"{setting('theta', self.theta)}: one number is expected; a grid to tune on goes into theta_grid"
            )
        if self.theta_grid is not None:
            check_thetas(self.theta_grid)
        log_range(self.t_range)

    def sketch_parts(self) -> tuple[Part, ...]:
        """Return the parts of a sketch that this recipe needs."""
        return ("reference",) if self.loss == "reference" else ("attended",)

    def _sketch_settings(self) -> dict[str, Any]:
        return super()._sketch_settings() | {"thetas": self._grid}

    @property
    def _grid(self) -> ArrayLike | None:
        return self.theta if self.theta is not None else self.theta_grid

    def _solve_scores(self, scores: Scores) -> None:

        def sketch(of: Scores, t_range: tuple[float, float], n_nodes: int) -> Sketch:
            return Sketch.of(of, t_range=t_range, n_nodes=n_nodes, thetas=self._grid, parts=self.sketch_parts())

        whole = (float(self.t_range[0]), float(self.t_range[1]))
        part = scores.sample(512)
        if len(scores) < 2048:
            self._finish(sketch(scores, whole, 64), whole, scores)
            return
        # The sample shows where the losses of all θ have their minima; there, fewer nodes are as exact.
        near = _neighbourhood(sketch(part, whole, 32), self.loss)
        table = sketch(scores, near, min(64, 12 + round(8 * np.log(near[1] / near[0]))))
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

    def _finish(self, sketch: Sketch, whole: tuple[float, float], scores: Scores | None = None) -> None:
        best = _minima(sketch, self.loss)
        value = chebyshev.evaluate(chebyshev.coefficients(sketch.nll[:, None]), sketch.interval, best.at)[:, 0]
        path = ThetaPath(sketch.thetas, np.exp(best.at), value / sketch.weight, best.error)
        if self.theta is None:
            chosen = int(path.nll.argmin())
        else:
            chosen = int(np.abs(sketch.thetas - self.theta).argmin())
            if abs(sketch.thetas[chosen] - self.theta) > 1e-12:
                raise InputError(
                    f"{setting('theta', self.theta)} is not in the grid of this sketch ({sketch.thetas[0]:g} … "
                    f"{sketch.thetas[-1]:g}, {len(sketch.thetas)} values); "
                    + option(f"make it with Sketch.of(..., thetas=[{self.theta}])", "fit from the files of logits")
                )
            path = ThetaPath(*(column[chosen : chosen + 1] for column in path))
        self.path_ = path
        self.theta_ = float(sketch.thetas[chosen])
        t = float(np.exp(best.at[chosen]))
        edge: Literal["low", "high"] | None = None
        message = (
            f"global minimum of a table of {len(sketch.nll)} nodes; T is known to {best.error[chosen]:.0e} relative"
        )
        if sketch.flat:
            message = FLAT
        if best.edge[chosen]:
            edge = "low" if best.edge[chosen] < 0 else "high"
            t = whole[edge == "high"]
            message = f"the attended loss has its minimum at T = {t:g}, the edge of the range"
            self._warn(
                f"{message} {whole}. Widen {option('t_range', '--t-range')} if the logits are on an unusual scale. "
                f"{advice()}",
                EdgeWarning,
                stacklevel=4,
            )
        self.temperature_ = t
        self.map_ = ScaleMap(1 / t)
        if edge is None and not sketch.flat:
            self._set_interval(sketch.log_t_std(t))
        nll = float(value[chosen] / sketch.weight)
        error = float(best.error[chosen])
        ok = edge is None and error < 1e-3
        doubts = [] if sketch.flat or edge is not None else self._doubts(nll, _nll_uncalibrated(sketch, scores), sketch)
        self.fit_report_ = FitReport(ok, error, edge, nll, sketch.n_samples, 1, "; ".join([message, *doubts]))
        if doubts:
            instead = option("TemperatureScaling or BayesianTemperatureScaling", "--method ts or --method bayes")
            self._warn(f"{'; '.join(doubts)}. Use {instead}.", AttemperWarning, stacklevel=4)
        elif edge is None and not ok:
            self._warn(f"{message}.", AttemperWarning, stacklevel=4)

    def _doubts(self, nll: float, uncalibrated: float | None, sketch: Sketch) -> list[str]:
        """Reasons why this temperature may do harm."""
        doubts = []
        if uncalibrated is not None and nll > uncalibrated * (1 + 1e-9):
            doubts.append(
                f"the validation NLL of {nll:.4f} at T = {self.temperature_:.4g} is above {uncalibrated:.4f} at T = 1"
            )
        low, high = float(sketch.thetas[0]), float(sketch.thetas[-1])
        # Beyond 0 and 1 there is nothing to look for.
        if self.theta is None and 0 < self.theta_ < 1 and low < high and self.theta_ in (low, high):
            doubts.append(f"θ = {self.theta_:g} is the end of its grid ({low:g} … {high:g})")
        return doubts

    def _fitted_to_dict(self) -> dict[str, Any]:
        path = {name: column.tolist() for name, column in self.path_._asdict().items()}
        return super()._fitted_to_dict() | {"theta": self.theta_, "path": path}

    def _fitted_from_fields(self, content: Fields) -> None:
        super()._fitted_from_fields(content)
        self.theta_ = content.number("theta")
        path = content.fields("path")
        self.path_ = ThetaPath(*(path.array(name, (-1,)) for name in ThetaPath._fields))


def _nll_uncalibrated(sketch: Sketch, scores: Scores | None) -> float | None:
    """Mean NLL at T = 1; None where neither the table nor the data can tell."""
    if sketch.interval.low <= 0 <= sketch.interval.high:
        return sketch.mean_nll(1.0)
    return None if scores is None else float(_evaluator(scores, np.float64)(1.0)[0])


def _losses(sketch: Sketch, loss: str) -> Floats:
    by_bin = sketch.reference if loss == "reference" else sketch.attended
    assert by_bin is not None
    return attended.theta_path(sketch.nll, by_bin)


def _minima(sketch: Sketch, loss: str) -> chebyshev.Minima:
    losses = _losses(sketch, loss)
    best = chebyshev.minima(chebyshev.coefficients(losses), sketch.interval, sketch.rounding)
    if sketch.flat:
        one = np.clip(np.zeros_like(best.at), *sketch.interval)
        return best._replace(at=one, error=np.zeros_like(one), edge=np.zeros_like(best.edge))
    if not sketch.perfect:
        return best
    # Where no sample attends to another class either, the loss only falls as T → 0.
    endless = (losses == sketch.nll[:, None]).all(axis=0)
    at = np.where(endless, sketch.interval.low, best.at)
    return best._replace(at=at, edge=np.where(endless, -1, best.edge).astype(np.int8))


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
