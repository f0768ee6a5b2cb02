"""Attended temperature scaling, the method of the paper: Eq. (7) and (8)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np

from attemper._typing import Floats
from attemper.calibrators.base import Calibrator, Fit, Report
from attemper.calibrators.temperature import Best, best_temperature, edge_of, scale_of, z95
from attemper.data.scores import Scores
from attemper.errors import AttemperWarning, ConvergenceWarning, EdgeWarning, InputError, warn
from attemper.kernels import chebyshev
from attemper.kernels.attended import theta_path
from attemper.maps import Map
from attemper.sketches import THETAS, Sketch, enough_nodes, log_range

CHANCE = 1.0  # nats in all that a fit of one parameter gains by chance: half on its own data, half is lost on others
NEAR = 0.01  # nats a sample above its least loss at which a temperature may still matter, by FEW samples
FEW = 512  # samples that show where the losses of all θ have their minima
EXACT = 3e-7  # error of log T that few nodes may leave


@dataclass(frozen=True, eq=False)
class ThetaPath:
    """What each θ of the grid gives: ``path_`` of `AttendedTemperatureScaling`."""

    theta: Floats
    temperature: Floats  # T(θ), the global minimum of the attended loss
    nll: Floats  # mean validation NLL at T(θ), by which θ is tuned


class _At(NamedTuple):
    """A temperature and what is known of it."""

    t: float
    nll: float  # mean, of the validation data
    std: float  # of log T


class AttendedTemperatureScaling(Calibrator):
    """One temperature, fitted with the attended loss of Mozafari et al. (arXiv 1810.11586).

    Each sample also attends to the classes that it could almost belong to: those with a probability of at least θ at
    T = 1 (for logits on an unusual scale, at the T that counts as 1 there). The whole θ path comes from one table.

    Tuned on enough clean labels it lands on the temperature of `TemperatureScaling`; its gain is with few or noisy
    labels for accurate, over-confident networks. It cannot help a network that needs T < 1, and a loss that is not
    proper moves a classifier that is calibrated: where the validation NLL is above that of T = 1 by more than chance it
    falls back on temperature scaling, or on T = 1, with a warning and θ = 1. A ``theta`` that you choose is kept.

    Parameters
    ----------
    theta : float, optional
        The threshold of Eq. (7); by default the value of ``theta_grid`` whose T has the least validation NLL.
    theta_grid : array, optional
        Ascending; 0.001, 0.002, … 0.1 by default, which is also what sketches hold.
    loss : "paper" or "reference"
        Eq. (8), or the loss of the authors' published code, which differs.
    t_range : (low, high), optional
        The loss is not convex; its global minimum within this range is taken. By default (0.05, 20), in units that suit
        the scale of the logits; from a sketch all that it holds.

    Attributes
    ----------
    temperature_, theta_ : float
    temperature_interval_ : (float, float) or None
        As for `TemperatureScaling`, around this T.
    path_ : ThetaPath

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> logits = 3 * rng.normal(size=(2000, 5))
    >>> labels = (logits / 2 + rng.gumbel(size=logits.shape)).argmax(axis=1)
    >>> ats = AttendedTemperatureScaling().fit(logits, labels)
    >>> round(ats.temperature_, 2), ats.theta_, ats.path_.theta.shape
    (1.97, 0.059, (100,))
    """

    method = "ats"
    title = "attended temperature scaling"
    value_types: ClassVar[dict[str, Any]] = {"path": ThetaPath}

    def __init__(
        self, *, theta: float | None = None, theta_grid: Any = None, loss: Literal["paper", "reference"] = "paper",
        t_range: tuple[float, float] | None = None, input: Any = "logits", classes: Any = None,
        zeros_as: float | None = None,
    ) -> None:  # fmt: skip
        super().__init__(input=input, classes=classes, zeros_as=zeros_as)
        self.theta, self.theta_grid, self.loss, self.t_range = theta, theta_grid, loss, t_range

    @property
    def sketch_parts(self) -> tuple[str, ...] | None:  # type: ignore[override]
        """What a sketch must hold; of the reference loss rows are needed."""
        return ("attended",) if self.loss == "paper" else None

    def _fit(self, scores: Scores) -> Fit:
        part, thetas, (unit, (low, high)) = self._part(), self._thetas(), scale_of(scores)
        if self.t_range is not None:
            log_range(self.t_range)  # a check
            low, high = self.t_range[0] / unit, self.t_range[1] / unit
        whole = (low * unit, high * unit)

        def sketch_of(rows: Scores, within: tuple[float, float], n_nodes: int) -> Sketch:
            return Sketch.of(rows, parts=(part,), t_range=within, n_nodes=n_nodes, thetas=thetas, unit=unit)

        few = scores.sample(FEW)
        if len(scores) < 4 * FEW or few.total_weight == 0:
            return self._solved(sketch_of(scores, whole, 64), whole, unit, scores)
        near = _neighbourhood(part, sketch_of(few, whole, 40))  # there, fewer nodes are as exact
        sketch = sketch_of(scores, near, enough_nodes(near))
        best = _minima(sketch, part, slice(None))
        ends = (best.edge < 0) & (near[0] > whole[0]) | (best.edge > 0) & (near[1] < whole[1])
        if ends.any():
            sketch = sketch_of(scores, whole, 64)
        elif best.error.max() > max(EXACT, 1e4 * sketch.rounding / sketch.weight):
            sketch = sketch_of(scores, near, 64)
        return self._solved(sketch, whole, unit, scores)

    def _fit_sketch(self, sketch: Sketch) -> Fit:
        if self._part() not in sketch.tables:
            raise InputError(f"parts: the sketch lacks {self._part()!r}, which loss={self.loss!r} needs", "parts")
        sketch = sketch if self.t_range is None else _within(sketch, self.t_range)
        return self._solved(sketch, sketch.t_range, 1.0, None)

    def _part(self) -> str:
        """Return the table of a sketch that has the terms of the loss."""
        if self.loss not in ("paper", "reference"):
            raise InputError(f"loss={self.loss!r}: expected 'paper' or 'reference'", "loss")
        return "attended" if self.loss == "paper" else "reference"

    def _thetas(self) -> Floats:
        """Return the θ that are asked for."""
        if self.theta is not None:
            return _checked(self.theta, "theta")
        return THETAS if self.theta_grid is None else _checked(self.theta_grid, "theta_grid")

    def _solved(self, sketch: Sketch, whole: tuple[float, float], unit: float, scores: Scores | None) -> Fit:
        """Find T(θ) for every θ, and of these the one with the least NLL; ``scores`` are None for a sketch."""
        thetas = self._thetas()
        columns = _columns(sketch, thetas)
        best = _minima(sketch, self._part(), columns)
        nll = chebyshev.evaluate(chebyshev.coefficients(sketch.nll[:, None]), sketch.interval, best.at)[:, 0]
        path = ThetaPath(thetas, np.exp(best.at), nll / sketch.weight)
        at = int(path.nll.argmin())
        t, edge = float(path.temperature[at]), chebyshev.EDGES[int(best.edge[at])]
        if edge is not None:
            t = edge_of(edge, sketch, whole, self.t_range is None, unit)
        found = _At(t, float(path.nll[at]), sketch.log_t_std(t))
        theta, error, notes = float(thetas[at]), float(best.error[at]), list[str]()
        if edge is not None:
            notes.append(f"the attended loss has its minimum at the {edge} edge of the range")
        elif len(thetas) > 1 and at in (0, len(thetas) - 1) and 0 < theta < 1:  # beyond 0 and 1 there is nothing
            notes.append(f"theta = {theta:g} is the end of its grid")
        # T = 1, or the T that counts as 1 for logits on an unusual scale: the one with the lower NLL, within the range.
        low, high = (0.0, np.inf) if self.t_range is None else self.t_range
        ones = [] if sketch.flat else [_at(t, sketch, scores) for t in {1.0, unit} if low <= t <= high]
        alone = min((one for one in ones if one is not None), key=lambda one: one.nll, default=None)
        left_alone = False
        if alone is not None and found.nll > alone.nll * (1 + 1e-9):
            notes.append(f"the NLL of {found.nll:.4f} at T = {t:.4g} is above {alone.nll:.4f} at T = {alone.t:g}")
            plain, of_plain = _temperature_scaling(sketch, scores, self.t_range)
            if plain is not None and plain.t < unit:
                notes.append(f"the classifier needs T = {plain.t:.4g}, below {unit:g}, where this loss does harm")
            if self.theta is None and sketch.weight * (found.nll - alone.nll) > CHANCE:
                found, error = alone, 0.0
                if plain is not None and sketch.weight * (alone.nll - plain.nll) > CHANCE:
                    found, error = plain, of_plain
                theta, edge, left_alone = 1.0, None, found.t == 1
                notes.append(f"temperature scaling instead: T = {found.t:.4g}")
        if sketch.flat:
            notes = [Best(1.0).note]
        elif notes or error >= 1e-3:
            kind = EdgeWarning if edge else AttemperWarning if notes else ConvergenceWarning
            warn(f"ats: {'; '.join(notes) or f'log T is known to {error:.0e} only'}", kind)
        factor = None if edge or sketch.flat else float(np.exp(z95(scores) * found.std))
        report = Report(
            found.nll, sketch.n_samples, edge is None and error < 1e-3, error, edge, left_alone=left_alone,
            notes=tuple(notes),
        )  # fmt: skip
        values = {"theta": theta, "path": path, "temperature": found.t}
        values["temperature_interval"] = None if factor is None else (found.t / factor, found.t * factor)
        return Fit(Map.scale(1 / found.t), report, values)


def _checked(thetas: Any, param: str) -> Floats:
    """Return θ as an ascending grid within [0, 1]."""
    try:
        grid = np.atleast_1d(np.asarray(thetas, dtype=np.float64))
    except (TypeError, ValueError):
        raise InputError(f"{param}={thetas!r}: expected numbers from 0 to 1", param) from None
    ordered = grid.ndim == 1 and len(grid) and grid[0] >= 0 and grid[-1] <= 1 and (np.diff(grid) > 0).all()
    if not ordered or (param == "theta" and len(grid) != 1):
        raise InputError(f"{param}={thetas!r}: expected numbers from 0 to 1, ascending; theta is one of them", param)
    return grid


def _columns(sketch: Sketch, thetas: Floats) -> Any:
    """Return where the θ are in the grid of a sketch."""
    at = np.abs(sketch.thetas[:, None] - thetas).argmin(axis=0)
    if np.abs(sketch.thetas[at] - thetas).max() > 1e-12:
        raise InputError("theta: a sketch holds 0.001, 0.002, … 0.1; for others fit to the rows", "theta")
    return at


def _within(sketch: Sketch, t_range: tuple[float, float]) -> Sketch:
    """Bring a sketch to the nodes of a smaller range."""
    low, high = sketch.checked_range(t_range)
    inner, outer = log_range((low, high)), sketch.interval
    at = chebyshev.basis(len(sketch.nll), outer, chebyshev.nodes(len(sketch.nll), inner))
    tables = {name: at @ table for name, table in sketch.tables.items()}
    return replace(sketch, nll=at @ sketch.nll, tables=tables, t_range=(low, high))


def _minima(sketch: Sketch, part: str, columns: Any) -> chebyshev.Minima:
    """Return log T with the least attended loss, for each θ."""
    losses = theta_path(sketch.nll, sketch.tables[part])[:, columns]
    best = chebyshev.minima(chebyshev.coefficients(losses), sketch.interval, sketch.rounding)
    if sketch.flat:
        one = np.clip(np.zeros_like(best.at), *sketch.interval)
        return replace(best, at=one, error=np.zeros_like(one), edge=np.zeros_like(best.edge))
    if not sketch.perfect:
        return best
    endless = (losses == sketch.nll[:, None]).all(axis=0)  # no sample attends to another class: it falls as T → 0
    at = np.where(endless, sketch.interval.low, best.at)
    return replace(best, at=at, edge=np.where(endless, -1, best.edge).astype(np.int8))


def _neighbourhood(part: str, sketch: Sketch) -> tuple[float, float]:
    """Temperatures at which some θ comes near its least loss."""
    grid = np.linspace(*sketch.interval, 600)
    losses = chebyshev.coefficients(theta_path(sketch.nll, sketch.tables[part]))
    value = chebyshev.evaluate(losses, sketch.interval, grid)
    near = np.flatnonzero((value - value.min(axis=0) <= NEAR * sketch.weight).any(axis=1))
    low, high = max(near[0] - 2, 0), min(near[-1] + 2, len(grid) - 1)
    return (
        float(np.exp(grid[low])) if low else sketch.t_range[0],
        float(np.exp(grid[high])) if high < len(grid) - 1 else sketch.t_range[1],
    )


def _at(t: float, sketch: Sketch, scores: Scores | None) -> _At | None:
    """Look at one temperature; None where neither the table nor the data can decide."""
    if sketch.t_range[0] <= t <= sketch.t_range[1]:
        return _At(t, sketch.mean_nll(t), sketch.log_t_std(t))
    if scores is None:
        return None
    nll, _, curvature = scores.backend.nll(1 / t)
    return _At(t, float(nll) / scores.total_weight, float(t / np.sqrt(max(curvature, 1e-12 * t**2))))


def _temperature_scaling(
    sketch: Sketch, scores: Scores | None, t_range: tuple[float, float] | None
) -> tuple[_At | None, float]:
    """T with the least NLL, and the error of log T; None where no finite T is best."""
    if scores is not None:
        best = best_temperature(scores, t_range)
        return (None, 0.0) if best.found is None else (_at(best.t, sketch, scores), best.found.error)
    found = chebyshev.minima(chebyshev.coefficients(sketch.nll[:, None]), sketch.interval, sketch.rounding)
    return None if found.edge[0] else _at(float(np.exp(found.at[0])), sketch, None), float(found.error[0])
