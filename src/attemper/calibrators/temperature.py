"""Temperature scaling (Guo et al. 2017): the T that minimises the NLL of the validation set, Eq. (4)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

from attemper.blas import one_blas_thread
from attemper.calibrators.outcome import FitReport
from attemper.calibrators.streaming import StreamingCalibrator
from attemper.errors import AttemperWarning, EdgeWarning, option
from attemper.kernels import chebyshev, nll
from attemper.maps import ScaleMap
from attemper.scores import Scores
from attemper.sketch import DEFAULT_T_RANGE, Sketch, log_range

__all__ = ["TemperatureScaling"]

LEAST_T, MOST_T = 1e-30, 1e30  # beyond, logits are refused
MAX_PASSES = 5
SINGLE = 1e-7  # share of a slope's terms that single precision may leave open


class TemperatureScaling(StreamingCalibrator):
    """Divide all logits by one temperature, the one with the least validation NLL.

    Never changes the prediction. With enough clean labels it is all that most networks need;
    with few or noisy ones prefer `BayesianTemperatureScaling`.

    Parameters
    ----------
    t_range : (low, high), optional
        Keep T within this range. By default any T is found; where none is best (every
        label is the arg max, or the logits are of no use) the edge of (0.05, 20) is taken, with
        an `EdgeWarning`.
    half_life : float, optional
        For `partial_fit` alone: a sample counts half when this many others have come after it. By default nothing is
        forgotten.
    input : "logits" or "probs"
        What X holds. It is never guessed.
    floor : float, optional
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
        Convergence, the error bound of log T, the validation NLL.
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

    def __init__(
        self,
        *,
        t_range: tuple[float, float] | None = None,
        half_life: float | None = None,
        input: Literal["logits", "probs"] = "logits",
        floor: float | None = None,
        classes: Sequence[Any] | None = None,
    ) -> None:
        self.t_range = t_range
        self.half_life = half_life
        self.input = input
        self.floor = floor
        self.classes = classes

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if self.t_range is not None:
            log_range(self.t_range)

    def _solve_scores(self, scores: Scores) -> None:
        found = least_nll(scores)
        if isinstance(found, nll.Minimum) and scores.device is not None and not scores.device.double:
            # What single precision leaves open in the slope, whose terms are of the size of NLL / β, moves its zero.
            rounding = SINGLE * found.nll / (found.beta**2 * max(found.curvature, 1e-300))
            found = replace(found, error=found.error + rounding)
        low, high = self.t_range or (0.0, np.inf)
        if isinstance(found, nll.Minimum) and low <= 1 / found.beta <= high:
            report = FitReport(found.converged, found.error, None, found.nll, len(scores), found.passes, str(found))
            self._finish(1 / found.beta, report)
            self._set_interval(found.log_t_std(scores.total_weight))
            return
        if found == "flat":
            value = float(_evaluator(scores, np.float64)(1.0)[0])
            self._finish(1.0, FitReport(True, 0.0, None, value, len(scores), 1, FLAT))
            return
        if isinstance(found, nll.Minimum):
            edge: Literal["low", "high"] = "low" if 1 / found.beta < low else "high"
            why = f"the best T is {1 / found.beta:.4g}"
        else:
            edge = found
            why = NO_FINITE_T[edge]
        t = (self.t_range or DEFAULT_T_RANGE)[edge == "high"]
        value = float(_evaluator(scores, np.float64)(1 / t)[0])
        message = f"{why}; T = {t:g} is the edge of the range"
        self._finish(t, FitReport(False, 0.0, edge, value, len(scores), 1, message))

    def fit_passes(self, sketch_with: Callable[..., Sketch]) -> Self:
        """Fit on data that are gone through several times, where the best T lies outside (0.05, 20)."""
        settings = self._sketch_settings()
        first = sketch = sketch_with(**settings)
        passes, no_finite_t = 1, False
        while self.t_range is None and passes < MAX_PASSES and (t_range := _next_range(sketch)) is not None:
            if t_range == "none":
                sketch, no_finite_t = first, True
                break
            sketch = sketch_with(**settings | {"t_range": t_range})
            passes += 1
        self._begin(sketch.n_classes, None)
        with one_blas_thread():
            self._solve_sketch(sketch, no_finite_t)
        self.fit_report_ = replace(self.fit_report_, passes=passes)
        self.sketch_ = sketch
        return self

    def _solve_sketch(self, sketch: Sketch, no_finite_t: bool = False) -> None:
        if sketch.flat:
            self._finish(1.0, FitReport(True, 0.0, None, sketch.mean_nll(1.0), sketch.n_samples, 1, FLAT))
            return
        best = _minimum(sketch)
        t, error = float(np.exp(best.at[0])), float(best.error[0])
        edge: Literal["low", "high"] | None = {-1: "low", 0: None, 1: "high"}[int(best.edge[0])]
        if sketch.perfect or no_finite_t:
            edge = "low" if sketch.perfect else "high"  # whatever a table of rounding noise says
        if edge is not None:
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
                beyond = option(f"t_range=({low:g}, {high:g})", f"attemper sketch --t-range {low:g} {high:g}")
                hint = f"Use a sketch of a range beyond it: {beyond}. {advice()}"
        ok = edge is None and error < 1e-3
        self._finish(t, FitReport(ok, error, edge, sketch.mean_nll(t), sketch.n_samples, 1, message), hint)
        if edge is None:
            self._set_interval(sketch.log_t_std(t))

    def _finish(self, t: float, report: FitReport, hint: str = "") -> None:
        self.temperature_ = float(t)
        self.map_ = ScaleMap(1 / self.temperature_)
        self.fit_report_ = report
        if report.edge is not None:
            self._warn(f"{report.message}. {hint or advice()}", EdgeWarning, stacklevel=4)
        elif not report.converged:
            self._warn(f"{report.message}.", AttemperWarning, stacklevel=4)


NO_FINITE_T = {
    "low": "every label is the arg max of its logits, so the NLL only falls as T → 0 and no finite T is best",
    "high": "the logits speak against the labels on average, so no finite T is better than a uniform answer",
}
FLAT = "the logits of every row are equal, so T has no effect; T = 1 leaves them as they are"


def advice() -> str:
    """Name the method that has a finite answer where there is no best T."""
    return f"{option('BayesianTemperatureScaling', '--method bayes')} gives a finite answer with an interval here."


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


def least_nll(scores: Scores) -> nll.Minimum | Literal["low", "high", "flat"]:
    """T with the least NLL, or at which end it would lie if there is none.

    Small samples of the rows give the start, a pass in single precision all but the last digits,
    and a pass in double precision the answer.
    """
    few = scores.sample(256)
    if few.total_weight == 0 or _endless(few) is not None:
        few = scores  # of no use as a start
    if few is scores:
        end = _endless(scores)
        return end if end is not None else nll.minimise(_evaluator(scores, np.float64))
    quick = np.float32 if scores.bound < 1e4 else np.float64  # where squares of logits are safe in single precision
    start = nll.minimise(_evaluator(few, quick), tolerance=0.01 if scores.device is None else 0.1)
    if len(scores) * scores.n_classes > 1 << 16:
        some = scores.sample(len(scores) // 8)
        if some.total_weight > 0:
            start = nll.minimise(_evaluator(some, quick), start, same_data=False, tolerance=0.03)
        start = nll.minimise(_evaluator(scores, quick), start, same_data=False, tolerance=0.03)
        found = nll.minimise(_evaluator(scores, np.float64), start)
    else:
        found = nll.minimise(_evaluator(scores, np.float64), start, same_data=False)
    if found.converged:
        return found
    # The sample misled: the whole has no minimum, or one far from that of the sample.
    end = _endless(scores)
    return end if end is not None else nll.minimise(_evaluator(scores, np.float64))


def _evaluator(scores: Scores, dtype: type[np.floating[Any]]) -> Callable[[float], NDArray[np.float64]]:
    """Mean NLL, slope and curvature as a function of β."""
    if scores.device is not None:
        return lambda beta: np.asarray(scores.device.sums(beta) / scores.total_weight)
    # Larger chunks pay where there are many. Double precision is worked on without a copy, so there may be
    # twice as much of it.
    large = 4 if "64" in str(scores.values.dtype) else 2

    def evaluate(beta: float) -> NDArray[np.float64]:
        total = scores.total(
            lambda chunk: nll.sums(*chunk, beta, bound=scores.bound, masked=scores.masked), dtype, large=large
        )
        return total / scores.total_weight

    return evaluate


def _endless(scores: Scores) -> Literal["low", "high", "flat"] | None:
    """Tell at which end the best T would lie; "flat": T has no effect at all."""
    device = scores.device
    at_zero, at_infinity = device.limits() if device is not None else scores.total(lambda chunk: nll.limits(*chunk))
    if at_infinity <= 0:
        return "flat" if at_zero == 0 else "low"
    return "high" if at_zero >= 0 else None
