"""Temperature scaling (Guo et al. 2017): the T with the least NLL, where there is one; and ensembles of it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import numpy as np
from scipy.special import softmax, stdtrit

from attemper._typing import Floats
from attemper.calibrators.base import Calibrator, Fit, Report
from attemper.data.scores import Scores
from attemper.errors import ConvergenceWarning, EdgeWarning, warn
from attemper.kernels import chebyshev
from attemper.kernels.clusters import case_numbers, design_effect
from attemper.kernels.priors import most_likely_priors
from attemper.kernels.temperature import BestBeta, minimise, row_terms
from attemper.maps import Map, Mixture
from attemper.sketches import Sketch, log_range

EDGES = (0.05, 20.0)  # T where none is best, in units that suit the scale of the logits
USUAL_BOUNDS = 1e-2, 1e3  # largest |logit| between which a search may begin at T = 1
GAP = 1e-13  # nats that the weights of an ensemble may leave
MOST_SLOPES = 1 << 22  # logits whose slopes show how far rows of a case go together
Z95 = 1.959964


@dataclass(frozen=True)
class Best:
    """The T with the least NLL, or the edge that stands for it."""

    t: float
    found: BestBeta | None = None  # None: T is 1, as it has no effect, or an edge
    edge: Literal["low", "high"] | None = None

    @property
    def note(self) -> str:
        """Return why T is not a minimum; empty where it is one."""
        if self.edge is None:
            return "" if self.found else "the logits of every row are equal, so T has no effect"
        if self.found is not None:
            return f"the best T is {self.found.temperature:.4g}, beyond the range"
        if self.edge == "low":
            return "every label is the arg max of its logits, so no finite T is best"
        return "on average the logit of the label is below the mean of its row, so no T is better than uniform"


def best_temperature(scores: Scores, t_range: tuple[float, float] | None = None) -> Best:
    """Return T with the least NLL (Eq. 4); the edge of the range where it lies beyond, or where none is best."""
    found = _least_nll(scores)
    low, high = (0.0, np.inf) if t_range is None else t_range
    if isinstance(found, BestBeta):
        if low <= found.temperature <= high:
            # What single precision leaves open in the slope, with terms of the size of NLL / β, moves its zero.
            rounding = scores.backend.slope_rounding * found.nll / (found.beta**2 * max(found.curvature, 1e-300))
            return Best(found.temperature, replace(found, error=found.error + rounding))
        edge: Literal["low", "high"] = "low" if found.temperature < low else "high"
        return Best(low if edge == "low" else high, found, edge)
    if found == "flat":
        return Best(1.0)
    t = EDGES[found == "high"] * scale_of(scores)[0] if t_range is None else t_range[found == "high"]
    return Best(float(t), None, found)


def _least_nll(scores: Scores) -> BestBeta | Literal["low", "high", "flat"]:
    """Return β with the least NLL, or at which end it would lie if there is none; small samples give the start."""
    start = 1.0 if USUAL_BOUNDS[0] < scores.bound < USUAL_BOUNDS[1] else 1 / scale_of(scores)[0]
    many = len(scores) * scores.n_classes > 1 << 16
    for part in (scores.sample(256), scores.sample(len(scores) // 8)) if many else ():
        if part is not scores and part.total_weight > 0 and _end_of(part) is None:
            of_part, own = part.backend, part.total_weight
            start = minimise(lambda b: of_part.nll(b, quick=True) / own, start, tolerance=1e-2).beta  # noqa: B023
    end = None if many else _end_of(scores)
    if end is not None:
        return end
    backend, weight = scores.backend, scores.total_weight
    found = minimise(lambda beta: backend.nll(beta) / weight, start)
    if found.converged:
        return found
    end = _end_of(scores)
    return minimise(lambda beta: backend.nll(beta) / weight) if end is None else end


def _end_of(scores: Scores) -> Literal["low", "high", "flat"] | None:
    """Return at which end the best T would lie, by the limits of the slope; "flat": T has no effect at all."""
    at_zero, at_infinity = scores.backend.limits()
    if at_infinity <= 0:
        return "flat" if at_zero == 0 else "low"
    return "high" if at_zero >= 0 else None


def edge_of(
    edge: Literal["low", "high"], sketch: Sketch, whole: tuple[float, float], free: bool, unit: float = 1.0
) -> float:
    """Return T where none is best: an end of the range; if every label has the largest logit, that of `EDGES`."""
    t = whole[edge == "high"]
    return float(np.clip(EDGES[0] * unit, *whole)) if free and sketch.perfect else t


def scale_of(scores: Scores, rate: float | None = 0.0) -> tuple[float, tuple[float, float]]:
    """Return the T that counts as 1, and which temperatures to consider, in that unit.

    It is a power of 1000, or 35 times one; 1 for logits as networks have them. The temperature decides at which the
    mean confidence of some rows is their accuracy. A share ``rate`` of the labels is a uniform guess; None: unknown, so
    that the accuracy may be higher than it seems.
    """
    few = scores.sample(max(64, min(512, (1 << 19) // scores.n_classes)))
    weight, largest = few.total_weight, scores.bound
    if weight == 0 or largest == 0:
        return 1.0, EDGES

    def confidence(t: Floats) -> Floats:
        return few.backend.confidences(1 / t) / weight

    correct, certain, sharper, softer, chance = confidence(np.array([1e-20 * largest, 0.25, 5.0, 1e3 * largest]))
    if certain <= chance:
        return 1.0, EDGES
    n = float(few.weights.sum() ** 2 / (few.weights @ few.weights))
    accuracy = ((n * correct + 1) / (n + 2) - (rate or 0.0) * chance) / (1 - (rate or 0.0))
    target = chance + np.clip((accuracy - chance) / (certain - chance), 0.2, 0.95) * (certain - chance)
    highest = target if rate is not None else chance + 0.95 * (certain - chance)
    if sharper > target and highest >= softer:
        return 1.0, EDGES
    target = highest if softer > highest else target
    low, high = 1e-20 * largest, 1e3 * largest
    for _ in range(2):
        t = np.geomspace(low, high, 24)
        above = int((confidence(t)[1:] > target).sum())
        low, high = t[max(above - 1, 0)], t[min(above, len(t) - 1)]
    at, slack = float(np.sqrt(low * high)), 1 + (20 / n) ** 3
    thousands = float(np.clip(np.log10(at) / 3, -9, 9))  # logits themselves end at 1e±30
    for unit in (1.0, 1e3 ** round(thousands)):
        if 0.25 / slack <= at / unit <= 5 * slack:
            return unit, EDGES
    unit = 1e3 ** int(np.floor(thousands + 1 / 3))
    unit *= 35 if at > 12.5 * unit else 1
    return unit, (EDGES[0] * (0.1 if at < 0.25 * unit else 1), EDGES[1] * (10 if at > 5 * unit else 1))


class TemperatureScaling(Calibrator):
    """Divide all logits by one temperature, the one that minimises the validation NLL.

    Never changes the prediction. With enough clean labels it is all that most networks need; with few or noisy ones
    prefer `BayesianTemperatureScaling`.

    Parameters
    ----------
    t_range : (low, high), optional
        Keep T within this range.

    Attributes
    ----------
    temperature_ : float
    temperature_interval_ : (float, float) or None
        95 % interval of T from the Fisher information; clusters widen it by their design effect.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> logits = 3 * rng.normal(size=(2000, 5))
    >>> labels = (logits / 2 + rng.gumbel(size=logits.shape)).argmax(axis=1)  # drawn at T = 2
    >>> round(TemperatureScaling().fit(logits, labels).temperature_, 2)
    1.98
    """

    method = "ts"
    title = "temperature scaling"
    sketch_parts = ()

    def __init__(self, *, t_range: tuple[float, float] | None = None, input: Any = "logits", classes: Any = None,
                 zeros_as: float | None = None) -> None:  # fmt: skip
        super().__init__(input=input, classes=classes, zeros_as=zeros_as)
        self.t_range = t_range

    def _fit(self, scores: Scores) -> Fit:
        if self.t_range is not None:
            log_range(self.t_range)
        best = best_temperature(scores, self.t_range)
        if best.found is None or best.edge is not None:
            nll = float(scores.backend.nll(1 / best.t)[0]) / scores.total_weight
            return _fit_of(best.t, nll, scores.n_samples, edge=best.edge, note=best.note)
        f, n = best.found, scores.n_samples
        std = f.log_t_std(scores.total_weight) * (1.0 if scores.clusters is None else z95(scores) / Z95)
        return _fit_of(best.t, f.nll, n, std=std, error=f.error, n_iter=f.n_iter, ok=f.converged)

    def _fit_sketch(self, sketch: Sketch) -> Fit:
        if sketch.flat:
            return _fit_of(1.0, sketch.mean_nll(1.0), sketch.n_samples, note=Best(1.0).note)
        found = chebyshev.minima(chebyshev.coefficients(sketch.nll[:, None]), sketch.interval, sketch.rounding)
        t, error = float(np.exp(found.at[0])), float(found.error[0])
        edge: Any = "low" if sketch.perfect else chebyshev.EDGES[int(found.edge[0])]
        low, high = sketch.t_range if self.t_range is None else sketch.checked_range(self.t_range)
        if edge is not None or not low <= t <= high:
            note = Best(t, None, edge).note if edge else f"the best T is {t:.4g}, beyond the range"
            edge = edge or ("low" if t < low else "high")
            t = edge_of(edge, sketch, (low, high), self.t_range is None)
            return _fit_of(t, sketch.mean_nll(t), sketch.n_samples, edge=edge, note=note)
        return _fit_of(t, sketch.mean_nll(t), sketch.n_samples, std=sketch.log_t_std(t), error=error, ok=error < 1e-3)


class EnsembleTemperatureScaling(Calibrator):
    """w₁ softmax(h/T) + w₂ softmax(h) + w₃/K: T of temperature scaling, then the weights with the least NLL.

    Never changes the prediction. The uniform part keeps single wrong answers from costing much; where temperature
    scaling is enough, w₁ is one. Weights add up to one and are never negative, so their NLL has one minimum, which is
    found and certified: the report's error bounds how far the NLL is above it.

    Attributes
    ----------
    temperature_ : float
    temperature_interval_ : (float, float) or None
    weights_ : the three weights: tempered, plain, uniform

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> logits = 6 * rng.normal(size=(4000, 5))
    >>> labels = (logits / 2 + rng.gumbel(size=logits.shape)).argmax(axis=1)
    >>> wrong = rng.uniform(size=4000) < 0.1
    >>> labels[wrong] = rng.integers(0, 5, wrong.sum())
    >>> EnsembleTemperatureScaling().fit(logits, labels).weights_.round(2)
    array([0.55, 0.38, 0.07])
    """

    method = "ets"
    title = "ensemble temperature scaling"
    value_types: ClassVar[dict[str, Any]] = {"weights": Floats}

    def _fit(self, scores: Scores) -> Fit:
        best, w = best_temperature(scores), scores.weights
        h, rows = scores.logits, np.arange(len(scores))
        scaled = (Map.scale(beta).log_apply(h)[rows, scores.labels] for beta in (1 / best.t, 1.0))
        possible = np.isfinite(h).sum(axis=1) if scores.masked else np.full(len(h), scores.n_classes)
        log_parts = np.stack([*scaled, -np.log(possible)], axis=1)  # what each of the three gives to the label
        top = log_parts.max(axis=1, keepdims=True)
        # The weights of a mixture: as the class priors that explain predictions best.
        parts = np.exp(log_parts - top)
        mixed = most_likely_priors(parts, w, tolerance=GAP)
        tempered, plain, uniform = mixed.priors.tolist()
        nll = -float(w @ (np.log(parts @ mixed.priors) + top[:, 0])) / scores.total_weight
        ok = best.edge is None and (best.found is None or best.found.converged) and mixed.gap < 1e-8
        notes = (best.note,) if best.note else ()
        if best.edge is not None:
            warn(f"ets: {best.note}; T = {best.t:g} is the edge of the range", EdgeWarning)
        elif not ok:
            warn(f"ets: the NLL is known to {mixed.gap:.0e} only", ConvergenceWarning)
        report = Report(nll, scores.n_samples, ok, mixed.gap, best.edge, mixed.n_iter, notes=notes)
        interval = None
        if best.found is not None and best.edge is None:
            factor = float(np.exp(z95(scores) * best.found.log_t_std(scores.total_weight)))
            interval = (best.t / factor, best.t * factor)
        stage = Mixture(np.array([tempered, plain]), np.array([1 / best.t, 1.0]), uniform)
        values = {"temperature": best.t, "temperature_interval": interval, "weights": mixed.priors}
        return Fit(Map((stage,)), report, values)

    def _facts(self) -> list[str]:
        """Return what a reader wants to know of the fit, line by line."""
        tempered, plain, uniform = self.weights_
        return [*super()._facts(), f"weights: tempered {tempered:.3g}, as it is {plain:.3g}, uniform {uniform:.3g}"]


def with_effective_weights(scores: Scores) -> Scores:
    """Divide the weights by the design effect of clusters or images: what is left counts as independent samples.

    It is that of the slopes of the NLL in T and in biases of the classes, whichever is larger. A posterior is then
    about as wide as that of cases drawn afresh: the magnitude adjustment of composite likelihoods (Pauli, Racugno,
    Ventura 2011; Ribatet, Cooley, Davison 2012). Evidence and shrinkage count the effective number of samples too.
    """
    if scores.clusters is None or scores.multi_label:  # which has its own
        return scores
    case = scores.cases
    assert case is not None
    n_cases = int(case.max()) + 1
    if scores.numbered and n_cases == scores.n_samples:  # soft labels, whose rows are parts of one sample
        return scores
    beta = 1 / best_temperature(scores).t
    chosen = case % max(1, len(scores) * scores.n_classes // MOST_SLOPES) == 0
    some, number = scores.take(chosen), case_numbers(case[chosen])
    h, y = some.logits, some.labels
    in_t = row_terms(h, y, beta, masked=scores.masked)[1]
    in_biases = softmax(h * beta, axis=1)
    in_biases[np.arange(len(y)), y] -= 1
    of_t, of_biases = (design_effect(slopes, number, some.w, repeats=True) for slopes in (in_t, in_biases))
    effect = float(np.fmax(of_t, of_biases))  # NaN where slopes do not differ
    effect = max(1.0, scores.total_weight / n_cases) if np.isnan(effect) else effect
    return scores.with_weights(scores.weights / effect)


def z95(scores: Scores | None) -> float:
    """Return how many standard deviations a 95 % interval reaches: the variance of few cases has Student's law."""
    if scores is None or scores.cases is None:
        return Z95
    return float(stdtrit(max(1, int(scores.cases.max())), 0.975))


def _fit_of(
    t: float, nll: float, n: int, *, std: float | None = None, error: float = 0.0, n_iter: int = 1, ok: bool = True,
    edge: Any = None, note: str = "",
) -> Fit:  # fmt: skip
    """Return the fit of one temperature; where T = 1 is within noise the classifier is better left alone.

    On its own data the NLL falls by (log T)² / 2 s² nats in all, s being the standard deviation of log T. A fit of one
    parameter gains one nat by chance: half of it on its data, half is lost on others.
    """
    if edge is not None:
        warn(f"{note}; T = {t:g} is the edge of the range. bayes has a finite T here.", EdgeWarning)
    interval = None if std is None else (t * float(np.exp(-Z95 * std)), t * float(np.exp(Z95 * std)))
    alone = std is not None and abs(np.log(t)) < np.sqrt(2) * std
    notes = (note,) if note else ()
    report = Report(nll, n, ok and edge is None, error, edge, n_iter, left_alone=bool(alone), notes=notes)
    return Fit(Map.scale(1 / t), report, {"temperature": float(t), "temperature_interval": interval})
