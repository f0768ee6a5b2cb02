"""Temperature scaling (Guo et al. 2017): the T that minimises the NLL of the validation set, Eq. (4)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Literal, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from attemper.calibrators.estimator import recipe
from attemper.calibrators.fit_report import FitReport
from attemper.calibrators.streaming import StreamingCalibrator
from attemper.calibrators.style import VERMILION, Style
from attemper.data.scale import DEFAULT_T_RANGE, logit_scale
from attemper.data.scores import LabelledScores
from attemper.errors import ConvergenceWarning, EdgeWarning
from attemper.kernels import chebyshev, nll
from attemper.kernels.blas import one_blas_thread
from attemper.maps import ScaleMap
from attemper.sketch import Sketch, log_range

__all__ = ["TemperatureScaling"]

LEAST_T, MOST_T = 1e-30, 1e30  # beyond, logits are refused
MAX_PASSES = 5
USUAL_BOUNDS = 1e-2, 1e3  # largest |logit| between which a search may begin at T = 1


@recipe
class TemperatureScaling(StreamingCalibrator):
    """Divide all logits by one temperature, the one that minimises the validation NLL.

    Never changes the prediction. With enough clean labels it is all that most networks need;
    with few or noisy ones prefer `BayesianTemperatureScaling`.

    Parameters
    ----------
    t_range : (low, high), optional
        Keep T within this range. By default any T is found, on whatever scale the logits are; where none is best
        (every label is the arg max, or the logits are of no use) the edge of (0.05, 20) is taken, in units that suit
        the scale of the logits, with an `EdgeWarning`.
    input : "logits" or "probs"
        What X holds. It is never guessed.
    zeros_as : float, optional
        For probabilities: what those of exactly 0 stand for, such as 1e-8, where they come from rounding.
        Without it they mean that the class is impossible.
    classes : sequence of names, optional
        Names of the columns, if labels are names.

    Attributes
    ----------
    temperature_ : float
    temperature_interval_ : (float, float) or None
        95 % interval of T from the Fisher information, as if labels were drawn from softmax(logits / T). None where T
        lies on the edge of its range.
    map_ : ScaleMap
    fit_report_ : FitReport
        Convergence, the error bound of log T, the validation NLL; ``left_alone`` where T = 1 is within noise.
    sketch_ : Sketch
        After `partial_fit` and `fit_sketch`: all that is kept of the data.
    classes_, n_features_in_

    Examples
    --------
    >>> import numpy as np
    >>> from attemper import TemperatureScaling
    >>> rng = np.random.default_rng(0)
    >>> logits = 3 * rng.normal(size=(2000, 5))
    >>> labels = (logits / 2 + rng.gumbel(size=logits.shape)).argmax(axis=1)  # drawn at T = 2
    >>> ts = TemperatureScaling().fit(logits, labels)
    >>> round(ts.temperature_, 2)
    1.98
    """

    method = "ts"
    needs_few_labels = True
    title = "temperature scaling"
    style = Style(VERMILION, "--", "s")

    t_range: tuple[float, float] | None = None

    def _check_parameters(self) -> None:
        if self.t_range is not None:
            log_range(self.t_range)

    def _solve_scores(self, scores: LabelledScores) -> None:
        best = best_temperature(scores, self.t_range)
        found = best.minimum
        report = FitReport(
            converged=best.edge is None and (found is None or found.converged),
            log_t_error=0.0 if found is None else found.error,
            edge=best.edge,
            nll=float(_evaluator(scores)(1 / best.t)[0]) if found is None else found.value,
            n_samples=scores.n_samples,
            n_iter=1 if found is None else found.n_iter,
            message=best.message,
        )
        self._finish(best.t, report)
        if found is not None:
            self._set_interval(found.log_t_std(scores.total_weight))
            self._compare_with_one(found.log_t_std(scores.total_weight))

    def fit_passes(self, sketch_with: Callable[..., Sketch]) -> Self:
        """Fit on data that are gone through several times, where the best T lies outside the usual range."""
        settings = self._sketch_settings()
        passes, no_finite_t = 0, False

        def go_through(**settings: Any) -> Sketch:
            nonlocal passes
            passes += 1
            return sketch_with(**settings)

        first = sketch = self._first_pass(go_through)
        while self.t_range is None and passes < MAX_PASSES and (t_range := _next_range(sketch)) is not None:
            if t_range == "none":
                sketch, no_finite_t = first, True
                break
            sketch = go_through(**settings | {"t_range": t_range})
        self._reset_fitted_state(sketch.n_classes, None)
        with one_blas_thread():
            self._solve_sketch(sketch, no_finite_t)
        self.fit_report_ = replace(self.fit_report_, n_iter=passes)
        self.sketch_ = sketch
        return self

    def _solve_sketch(self, sketch: Sketch, no_finite_t: bool = False) -> None:
        if sketch.flat:
            report = FitReport(nll=sketch.mean_nll(1.0), n_samples=sketch.n_samples, log_t_error=0.0, message=FLAT)
            self._finish(1.0, report)
            return
        best = _minimum(sketch)
        t, error = float(np.exp(best.at[0])), float(best.error[0])
        edge: Literal["low", "high"] | None = {-1: "low", 0: None, 1: "high"}[int(best.edge[0])]
        if sketch.perfect or no_finite_t:
            edge = "low" if sketch.perfect else "high"  # whatever a table of rounding noise shows
            t = float(np.clip(DEFAULT_T_RANGE[edge == "high"] * sketch.unit, *sketch.t_range))
        elif edge is not None:
            t = sketch.t_range[edge == "high"]
        if self.t_range is not None and not self.t_range[0] <= t <= self.t_range[1]:
            edge = "low" if t < self.t_range[0] else "high"
            t = self.t_range[edge == "high"]
        message = f"minimum of a table of {len(sketch.nll)} nodes; T is known to {error:.0e} relative"
        hint = ""
        if edge is not None:
            endless = no_finite_t or (edge == "low" and sketch.perfect)
            message = f"{NO_FINITE_T[edge] if endless else 'the best T is beyond the range'}; T = {t:g} is its edge"
            if not endless:
                low, high = (t / 1000, 4 * t) if edge == "low" else (t / 4, 1000 * t)
                beyond = f"t_range=({low:g}, {high:g})"
                hint = f"Use a sketch of a range beyond it: {beyond}. {advice()}"
        ok = edge is None and error < 1e-3
        report = FitReport(
            converged=ok,
            log_t_error=error,
            edge=edge,
            nll=sketch.mean_nll(t),
            n_samples=sketch.n_samples,
            message=message,
        )
        self._finish(t, report, hint)
        if edge is None:
            self._set_interval(sketch.log_t_std(t))
            self._compare_with_one(sketch.log_t_std(t))

    def _allow_for_clusters(self, scores: LabelledScores) -> None:
        super()._allow_for_clusters(scores)
        if scores.cases is not None and self.temperature_interval_ is not None and not self.fit_report_.left_alone:
            self._compare_with_one(float(np.log(self.temperature_interval_[1] / self.temperature_)) / 1.959964)

    def _compare_with_one(self, log_t_std: float) -> None:
        """Report where T = 1 is within noise.

        On the data that T was fitted on the NLL falls by (log T)² / 2 s² nats in all, s being the standard deviation of
        log T. A fit of one parameter gains one nat by chance: half of it on its data, half is lost on others.
        """
        if abs(np.log(self.temperature_)) < np.sqrt(2) * log_t_std:
            report = self.fit_report_
            message = f"{report.message}; T = 1 is within noise, so the classifier is better left alone"
            self.fit_report_ = replace(report, left_alone=True, message=message)

    def _finish(self, t: float, report: FitReport, hint: str = "") -> None:
        self.temperature_ = float(t)
        self.map_ = ScaleMap(1 / self.temperature_)
        self.fit_report_ = report
        if report.edge is not None:
            self._warn(f"{report.message}. {hint or advice(NO_FINITE_T['low'] in report.message)}", EdgeWarning)
        elif not report.converged:
            self._warn(f"{report.message}.", ConvergenceWarning)


NO_FINITE_T = {
    "low": "every label is the arg max of its logits, so the NLL only falls as T → 0 and no finite T is best",
    "high": "on average the logit of the label is below the mean of its row, so no finite T is better than uniform "
    "probabilities",
}
FLAT = "the logits of every row are equal, so T has no effect; T = 1 leaves them as they are"


def advice(no_errors: bool = False) -> str:
    """Name the method that has a finite T where there is no best T; without an error no method knows it."""
    if no_errors:
        return "Use validation samples with errors, or leave the classifier as it is."
    return "BayesianTemperatureScaling has a finite T with an interval here."


def _minimum(sketch: Sketch) -> chebyshev.Minima:
    """T with the least NLL within the range of a sketch."""
    return chebyshev.minima(chebyshev.coefficients(sketch.nll[:, None]), sketch.interval, sketch.rounding)


def _next_range(sketch: Sketch) -> tuple[float, float] | Literal["none"] | None:
    """Range whose sketch holds the best T; None where this one does, "none" where no finite T is best.

    Beyond the edge of a sketch one of a wide range is made. It is too coarse to interpolate, but the NLL falls and then
    rises again, so that the neighbours of its least value have the best T between them.
    """
    if sketch.flat or sketch.perfect:
        return None
    low, high = sketch.t_range
    if high / low > 1e6:
        t = np.exp(chebyshev.nodes(len(sketch.nll), sketch.interval))
        least = int(sketch.nll.argmin())
        # As T → ∞ the NLL tends to that of a uniform prediction, from below where there is a best T.
        if sketch.nll[least] >= sketch.nll[-1] - 1e-12 * abs(sketch.nll[-1]):
            return "none"
        return float(t[least - 1]) if least else low, float(t[min(least + 1, len(t) - 1)])
    best = _minimum(sketch)
    tiny = np.ptp(sketch.nll) <= 1e-7 * sketch.nll.max()  # logits so small that every T gives uniform predictions
    if tiny or best.edge[0] < 0:
        return LEAST_T, 4 * low
    if best.edge[0] > 0:
        return high / 4, MOST_T
    if best.error[0] > 1e-7 and high / low > 16.1:
        middle = float(np.exp(best.at[0]))
        return middle / 4, 4 * middle
    return None


class BestTemperature(NamedTuple):
    """The T with the least NLL, or the one that stands for it."""

    t: float
    message: str
    minimum: nll.BestBeta | None = None  # None: T is 1, as it has no effect, or the edge of the range
    edge: Literal["low", "high"] | None = None

    @property
    def beta(self) -> float:
        """1/T, as it was found."""
        return 1 / self.t if self.minimum is None else float(self.minimum.at)


def best_temperature(scores: LabelledScores, t_range: tuple[float, float] | None = None) -> BestTemperature:
    """T with the least NLL; the edge of the range, or of the usual one, where it lies beyond or none is best."""
    found = least_nll(scores)
    low, high = t_range or (0.0, np.inf)
    if isinstance(found, nll.BestBeta):
        if low <= found.temperature <= high:
            # What single precision leaves open in the slope, with terms of the size of NLL / β, moves its zero.
            rounding = scores.backend.slope_rounding * found.value / (found.at**2 * max(found.curvature, 1e-300))
            found = replace(found, error=found.error + rounding)
            return BestTemperature(found.temperature, str(found), found)
        edge: Literal["low", "high"] = "low" if found.temperature < low else "high"
        why = f"the best T is {found.temperature:.4g}"
    elif found == "flat":
        return BestTemperature(1.0, FLAT)
    else:
        edge, why = found, NO_FINITE_T[found]
    t = DEFAULT_T_RANGE[edge == "high"] * logit_scale(scores).unit if t_range is None else t_range[edge == "high"]
    return BestTemperature(float(t), f"{why}; T = {t:g} is the edge of the range", edge=edge)


def least_nll(scores: LabelledScores) -> nll.BestBeta | Literal["low", "high", "flat"]:
    """T with the least NLL, or at which end it would lie if there is none.

    Small samples of the rows give the start, a pass in single precision all but the last digits,
    and a pass in double precision the answer.
    """
    first = 1.0 if USUAL_BOUNDS[0] < scores.bound < USUAL_BOUNDS[1] else 1 / logit_scale(scores).unit
    few = scores.sample(256)
    if few.total_weight == 0 or _direction_without_optimum(few) is not None:
        few = scores  # of no use as a start
    if few is scores:
        end = _direction_without_optimum(scores)
        return end if end is not None else nll.minimise(_evaluator(scores), first)
    start = nll.minimise(_evaluator(few, quick=True), first, tolerance=scores.backend.start_tolerance)
    if len(scores) * scores.n_classes > 1 << 16:
        some = scores.sample(len(scores) // 8)
        if some.total_weight > 0:
            start = nll.minimise(_evaluator(some, quick=True), start, same_data=False, tolerance=0.03)
        start = nll.minimise(_evaluator(scores, quick=True), start, same_data=False, tolerance=0.03)
        found = nll.minimise(_evaluator(scores), start)
    else:
        found = nll.minimise(_evaluator(scores), start, same_data=False)
    if found.converged:
        return found
    # The sample misled: the whole has no minimum, or one far from that of the sample.
    end = _direction_without_optimum(scores)
    return end if end is not None else nll.minimise(_evaluator(scores), first)


def _evaluator(scores: LabelledScores, *, quick: bool = False) -> Callable[[float], NDArray[np.float64]]:
    """Mean NLL, slope and curvature as a function of β."""
    backend, weight = scores.backend, scores.total_weight
    return lambda beta: backend.nll(beta, quick=quick) / weight


def _direction_without_optimum(scores: LabelledScores) -> Literal["low", "high", "flat"] | None:
    """Return at which end the best T would lie; "flat": T has no effect at all."""
    at_zero, at_infinity = scores.backend.limits()
    if at_infinity <= 0:
        return "flat" if at_zero == 0 else "low"
    return "high" if at_zero >= 0 else None
