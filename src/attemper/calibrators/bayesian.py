"""Bayesian temperature scaling: few labels, wrong labels, no error in sight; always an answer, with its spread.

The model
---------
S = softmax(h / T). In each sample the network makes a uniform guess with probability e_m, its own floor. Labels are
uniform at a rate e_a, which is 0, known, or unknown. A label has the probability

    (1 − e) S_y(T) + e / K,         1 − e = (1 − e_m) (1 − e_a)

The prediction leaves the labels' errors out and keeps the network's own: the average of (1 − e_m) S(T) + e_m / K over
the posterior, which is a mixture of temperatures and a floor, and keeps the arg max. The posterior has two dimensions,
log T and logit e. It is evaluated on a grid from the tables of a sketch: no sampling, no optimiser.

Where e_a is unknown and the rows are at hand, the true classes are first inferred with biases of the network and
confusions of the annotators (`attemper.calibrators.label_model`); given these, the posterior is that of T alone.

The priors
----------
log T ~ Student-t with 4 degrees of freedom, scale 0.4, centre 0.15 + logit(c) / 8, where c is the mean confidence at
T = 1 (at most 0.95): networks that are more confident are more often over-confident. e_m is 0 with probability 0.85,
Beta(1/4, 20) with 0.1, and anything from 0 to 1 with 0.05: some logits carry no information. An unknown e_a is uniform.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaincc, betaln, expit, log_expit

from attemper._typing import Floats
from attemper.calibrators import label_model
from attemper.calibrators.base import Calibrator, Fit, Report
from attemper.calibrators.label_model import Account, Confusions, Noise, Samples, WrongLabels, error_rate
from attemper.calibrators.temperature import Z95, scale_of, z95
from attemper.data.scores import Scores
from attemper.errors import ConvergenceWarning, EdgeWarning, check_number, warn
from attemper.kernels import chebyshev
from attemper.kernels.evidence import ScalePrior
from attemper.maps import Map, Mixture
from attemper.sketches import LOG_ODDS, T_RANGE, Sketch, local_sketch

PRIOR_DF = 4.0
ROOM = 5.0  # around the T of the true classes, that the range of temperatures reaches at least
WIDER = 2.0  # times the scale of the prior, for the interval of T: at 1 it misses an unusual T too often
N_COMPONENTS = 8  # of the mixture; 8 lose less than 1e-5 nats against the full posterior
MAX_ERROR = 0.02  # of log T that a table may leave
MAX_ELEMENTS = 1 << 17  # of logits that the reported NLL is that of the mixture for
TAILS = (0.025, 0.975)
FLOOR_PROBABILITY, FLOOR_SHAPE = 0.1, (0.25, 20.0)
ANY_FLOOR = 0.05  # probability of a floor that may be anything; of 1, where the logits carry no information
GRID = (256, 160)  # points in log T and logit e
DROP = 35.0  # nats below the top at which the posterior is taken to be zero: e^-35 is below double precision


@dataclass(frozen=True, eq=False)
class Posterior:
    """Probabilities of temperatures, with the prior of the interval: ``posterior_`` of `BayesianTemperatureScaling`."""

    temperature: Floats
    weight: Floats


class BayesianTemperatureScaling(Calibrator):
    """Average over temperatures (and rates of wrong labels), weighted by their posterior probability.

    Never changes the prediction. Finite with any labels: few, wrong, or all right.

    Parameters
    ----------
    noise : float or "unknown"
        The share of the validation labels that are wrong. The data alone cannot distinguish a network that fails now
        and then from annotators that do, so a share that is known helps.
    prior_centre, prior_scale : float
        log T ~ Student-t(4) around centre + logit(mean confidence) / 8, with that scale.

    Attributes
    ----------
    temperature_, temperature_interval_ : float, (float, float)
        Posterior median and 95 % credible interval of T; the interval has a prior twice as wide, so that it also holds
        temperatures far from the usual ones.
    noise_, noise_interval_ : float, (float, float)
        Share of the labels that are wrong: posterior mean and 95 % credible interval.
    confusions_ : Confusions or None
        Which classes are labelled as which others, where errors depend on the class (``noise="unknown"``, from rows).
    posterior_ : Posterior

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> logits = 3 * rng.normal(size=(400, 5))
    >>> labels = (logits / 2 + rng.gumbel(size=logits.shape)).argmax(axis=1)  # drawn at T = 2
    >>> labels[:80] = (labels[:80] + rng.integers(1, 5, size=80)) % 5  # a fifth is wrong
    >>> cal = BayesianTemperatureScaling(noise=0.2).fit(logits, labels)
    >>> low, high = cal.temperature_interval_
    >>> low < 2 < high
    True
    """

    method = "bayes"
    title = "Bayesian temperature scaling"
    knows_noise = True
    sketch_parts = ("uniform",)
    value_types: ClassVar[dict[str, Any]] = {"posterior": Posterior, "confusions": Confusions | None}

    def __init__(
        self, *, noise: Noise = 0, prior_centre: float = 0.15, prior_scale: float = 0.4, input: Any = "logits",
        classes: Any = None, zeros_as: float | None = None,
    ) -> None:  # fmt: skip
        super().__init__(input=input, classes=classes, zeros_as=zeros_as)
        self.noise, self.prior_centre, self.prior_scale = noise, prior_centre, prior_scale

    def _fit(self, scores: Scores) -> Fit:
        rate = error_rate(self.noise, scores.chance)
        truth = self._truth(scores) if rate is None and scores.n_classes <= label_model.MAX_CLASSWISE else None
        unit, (low, high) = scale_of(scores, rate if truth else rate or 0.0)
        at = 1.0 if truth is None else float(np.exp(truth.account.fit.total_log_t)) / unit
        t_range = min(low, at / ROOM), max(high, at * ROOM)

        def believe(sketch: Sketch) -> Belief:
            model = self._model(sketch, unit)
            return model.believe(sketch) if truth is None else truth.believe(model, sketch)

        parts = () if truth else self.sketch_parts
        sketch, whole = local_sketch(scores, lambda s: _window(believe(s)), parts=parts, unit=unit, t_range=t_range)
        fit = self._averaged(believe(sketch), sketch, whole)
        if len(scores) <= max(200, MAX_ELEMENTS // scores.n_classes):
            fit = replace(fit, report=replace(fit.report, nll=Report.of(fit.map, scores).nll))
        t, wider = fit.values["temperature"], z95(scores) / Z95  # of cases
        interval = tuple(t * (end / t) ** wider for end in fit.values["temperature_interval"])
        return replace(fit, values=fit.values | {"temperature_interval": interval})

    def _fit_sketch(self, sketch: Sketch) -> Fit:
        return self._averaged(self._model(sketch).believe(sketch), sketch, sketch)

    def _truth(self, scores: Scores) -> Truth:
        """Infer the true classes, with biases of the network and errors of the annotators."""
        samples = Samples.of(scores, None, self._prior())
        found = label_model.account(samples, "unknown", set() if samples.too_few else {"biases"})
        log_k = float(-np.average(np.log(samples.rows(0.0).guess) * np.ones(len(samples.w)), weights=samples.w))
        return Truth(*label_model.true_class_gap(samples, found), log_k, found)

    def _prior(self) -> ScalePrior:
        check_number(self.prior_centre, "prior_centre", -100, 100)
        check_number(self.prior_scale, "prior_scale", 1e-9, 1e9)
        return ScalePrior(self.prior_centre, self.prior_scale, PRIOR_DF)

    def _model(self, sketch: Sketch, unit: float = 1.0) -> Model:
        """Return the priors for logits on the scale of those in the sketch, of which ``unit`` is the T that is 1."""
        log_t = label_model.expected(self._prior(), sketch.confidence / sketch.weight, unit)
        return Model(error_rate(self.noise, sketch.chance), log_t)

    def _averaged(self, belief: Belief, sketch: Sketch, whole: Sketch) -> Fit:
        """Average over the posterior; ``sketch`` covers the temperatures that matter, ``whole`` all of them."""
        u, weight = belief.u, belief.weight
        stage = mixture(*chebyshev.gauss(u, belief.kept, N_COMPONENTS))
        middle = float(np.exp(chebyshev.quantiles(u, weight, (0.5,))[0]))
        low, high = np.exp(chebyshev.quantiles(u, belief.wider, TAILS)).tolist()
        saved = whole.t_range == T_RANGE  # the range of sketches that are saved, whatever the logits
        edge = _edge(belief, sketch, whole, self.noise == 0 or saved)
        spread = float(np.sqrt(weight @ (u - weight @ u) ** 2))
        error = 2 * belief.nats * spread  # what is off by δ everywhere moves the mean by 2 δ standard deviations
        notes = []
        if edge is not None:
            first, last = whole.t_range
            notes.append(f"T lies at the {edge} edge of the range ({first:g}, {last:g}), or beyond")
            fix = "Fit to rows, or rescale the logits." if saved else "Check that the labels match the columns."
            warn(f"bayes: {notes[0]}. {fix}", EdgeWarning)
        elif error > max(spread, MAX_ERROR):
            notes.append(f"log T is known to {error:.0e} only")
            warn(f"bayes: {notes[0]}", ConvergenceWarning)
        cannot_tell = belief.wrong.cannot_tell
        report = Report(
            sketch.mean_nll(middle, stage.uniform_mass), sketch.n_samples, edge is None and error < MAX_ERROR, error,
            edge, cannot_tell=cannot_tell, notes=(*notes, label_model.CANNOT_TELL) if cannot_tell else tuple(notes),
        )  # fmt: skip
        values = {
            "temperature": middle,
            "temperature_interval": (min(low, middle), max(middle, high)),
            **belief.wrong.values,
            "posterior": Posterior(np.exp(u), belief.wider),
        }
        return Fit(Map((stage,)), report, values)

    def _facts(self) -> list[str]:
        """Return what a reader wants to know of the fit, line by line."""
        lines = super()._facts()
        for k, j, mean, low, high in self.confusions_.worst() if self.confusions_ else ():
            lines.append(f"{mean:.1%} ({low:.1%} to {high:.1%}) of {self.classes_[k]} are labelled {self.classes_[j]}")
        return lines


def mixture(nodes: Floats, weights: Floats) -> Mixture:
    """Return the stage of some log T with weights; what is missing of 1 is uniform."""
    mass = max(0.0, 1 - float(weights.sum()))
    weights = weights * ((1 - mass) / weights.sum())
    large = weights > 1e-12
    return Mixture(weights[large], np.exp(-nodes[large]), max(0.0, 1 - float(weights[large].sum())))


def _window(belief: Belief) -> tuple[float, float]:
    """Temperatures that the posterior does not rule out."""
    u = belief.u
    inside = np.flatnonzero(belief.weight > 1e-13 * belief.weight.max())
    return float(np.exp(u[max(inside[0] - 2, 0)])), float(np.exp(u[min(inside[-1] + 2, len(u) - 1)]))


def _edge(belief: Belief, sketch: Sketch, whole: Sketch, sure: bool) -> Literal["low", "high"] | None:
    """Return whether the range is too narrow: the posterior piles up there, or the NLL would have T beyond it.

    Without an error in sight the NLL always would; and with noise it may lie above a range that is wide enough for T.
    """
    u, of_t, near = belief.u, belief.weight, 0.02 * whole.interval.length
    if of_t[u < whole.interval.low + near].sum() > 0.05:
        return "low"
    if of_t[u > whole.interval.high - near].sum() > 0.05:
        return "high"
    beyond = _beyond(sketch)
    if beyond and sketch.t_range[beyond > 0] != whole.t_range[beyond > 0]:
        beyond = _beyond(whole)
    if beyond < 0 and not sketch.perfect:
        return "low"
    return "high" if beyond > 0 and sure else None


def _beyond(sketch: Sketch) -> int:
    """−1 or +1 where the NLL has its minimum on that edge of the range; otherwise 0."""
    return int(chebyshev.minima(chebyshev.coefficients(sketch.nll[:, None]), sketch.interval).edge[0])


# --- the posterior, on a grid from the tables of a sketch -------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Hypothesis:
    """One account of the labels: its posterior over (log T, logit e), and the floor that predictions keep."""

    table: Floats  # log-likelihood at the nodes of T × those of log-odds of e, or at one e
    odds: Floats | None  # log-odds of e on the grid; None: e is one number
    weight: Floats  # log T × logit e; logarithms until they are normalised
    floor: Floats


class Belief(NamedTuple):
    """What is believed of T and of the labels."""

    u: Floats  # log T
    weight: Floats  # probability of each
    wider: Floats  # the same, with a prior that is `WIDER`
    kept: Floats  # of that what is not a uniform guess
    nats: float  # by which the log-likelihood may be off
    wrong: WrongLabels


@dataclass(frozen=True)
class Model:
    """How labels come about, with the priors of what is not known."""

    rate: float | None  # e_a; None: unknown
    log_t: ScalePrior

    def believe(self, sketch: Sketch) -> Belief:
        """Return the posterior of T and of the rate of errors, by the tables of a sketch."""
        u, v, parts = _zoomed(sketch, lambda u, v: self.log_posterior(sketch, u, v))
        at_random = 1 - sketch.chance  # share of wrong ones among labels that are drawn at random
        if self.rate is not None:
            return _belief(self.log_t, sketch, u, parts, WrongLabels.known(self.rate * at_random))
        e, of_e, of_t = expit(v), parts[0].weight.sum(axis=0), parts[0].weight.sum(axis=1)
        mean, right = float(of_e @ e), sketch.correct / sketch.weight
        network = label_model.network_share(mean, float(of_t @ u) - self.log_t.centre, right, sketch.n_classes)
        parts = [replace(parts[0], floor=np.full(len(v), label_model.remaining_floor(mean, network)))]
        shares, below = np.append(0.0, e) * at_random, np.append(0.0, np.cumsum(of_e))
        return _belief(self.log_t, sketch, u, parts, WrongLabels.found(mean * at_random, shares, below, network))

    def log_posterior(self, sketch: Sketch, u: Floats, v: Floats) -> list[Hypothesis]:
        """Unnormalised log-posterior of each hypothesis on a grid; v is logit e_m where e_a is known, else logit e."""
        at_u = chebyshev.basis(len(sketch.nll), sketch.interval, u)
        prior, step = self.log_t.log_density(u)[:, None], v[1] - v[0]
        uniform = sketch.tables["uniform"]

        def spread(table: Floats, odds: Floats, density: Floats, floor: Floats) -> Hypothesis:
            at_v = chebyshev.basis(table.shape[1], LOG_ODDS, odds)
            right = -sketch.weight * np.logaddexp(0, odds)  # weight · log(1 − e)
            with np.errstate(divide="ignore"):
                weight = at_u @ table @ at_v.T + right + prior + np.log(density * step)
            return Hypothesis(table, odds, weight, floor)

        (a, b), e = FLOOR_SHAPE, expit(v)
        if self.rate is None:
            return [spread(uniform, v, e * (1 - e), np.zeros(1))]
        density = FLOOR_PROBABILITY * np.exp(a * np.log(e) + b * np.log1p(-e) - betaln(a, b))
        density += ANY_FLOOR * e * (1 - e)
        right = log_expit(-v) + np.log1p(-self.rate)  # log(1 − e_m)(1 − e_a)
        lost = spread(uniform, v if self.rate == 0 else np.log(-np.expm1(right)) - right, density, e)
        # No floor, or one too low for the grid.
        below = 1 - ANY_FLOOR - FLOOR_PROBABILITY * betaincc(a, b, expit(LOG_ODDS.low))
        table = sketch.log_likelihood(self.rate)[:, None]
        return [lost, Hypothesis(table, None, at_u @ table + prior + np.log(below), np.zeros(1))]


@dataclass(frozen=True, eq=False)
class Truth:
    """What is known of the true classes, on average over the samples."""

    gap: float  # mean of h_label − E[h_true class]
    information: float  # how much of a clean label each is worth for T
    log_k: float  # mean, K without masked classes
    account: Account  # of the labels

    def believe(self, model: Model, sketch: Sketch) -> Belief:
        """Return the posterior of T given the true classes, widened by what not knowing the rate of errors adds."""
        table, floor, information = sketch.nll[:, None], np.full(1, self.account.floor), self.information

        def log_posterior(u: Floats, _: Floats) -> list[Hypothesis]:
            """NLL(T) + N · gap / T is the NLL of the true classes; N log K that of logits without information."""
            prior, nll = model.log_t.log_density(u), chebyshev.basis(len(sketch.nll), sketch.interval, u) @ sketch.nll
            value = prior - information * (nll + sketch.weight * self.gap * np.exp(-u))
            useless = prior + np.log(ANY_FLOOR) - information * sketch.weight * self.log_k
            both = (value, floor), (useless, np.ones(1))
            return [Hypothesis(table, None, weight[:, None], mass) for weight, mass in both]

        u, _, parts = _zoomed(sketch, log_posterior)
        spread = float(np.sqrt(self.account.log_t_variance))
        if spread > 0:
            low, high = sketch.interval
            wide = np.linspace(max(u[0] - 3 * spread, low), min(u[-1] + 3 * spread, high), GRID[0])
            kernel = np.exp(-0.5 * ((wide[:, None] - u) / max(spread, wide[1] - wide[0])) ** 2)
            kernel /= kernel.sum(axis=0)
            u, parts = wide, [replace(part, weight=kernel @ part.weight) for part in parts]
        return _belief(model.log_t, sketch, u, parts, self.account.wrong)


def _zoomed(
    sketch: Sketch, log_posterior: Callable[[Floats, Floats], list[Hypothesis]]
) -> tuple[Floats, Floats, list[Hypothesis]]:
    """Zoom in on the box of log T × logit e that holds the posterior."""
    by_t, by_e = sketch.interval, LOG_ODDS
    for _ in range(12):
        u, v = np.linspace(*by_t, GRID[0]), np.linspace(*by_e, GRID[1])
        parts = log_posterior(u, v)
        top = max(part.weight.max() for part in parts)
        in_u = np.max([part.weight.max(axis=1) for part in parts], axis=0) > top - DROP
        in_v = [part.weight.max(axis=0) for part in parts if part.odds is not None]
        closer = _box(u, in_u), _box(v, np.max(in_v, axis=0) > top - DROP) if in_v else by_e
        if closer[0].length > 0.6 * by_t.length and closer[1].length > 0.6 * by_e.length:
            break
        by_t, by_e = closer
    weights = [np.exp(part.weight - top) for part in parts]
    total = sum(float(w.sum()) for w in weights)
    return u, v, [replace(part, weight=w / total) for part, w in zip(parts, weights)]


def _belief(prior: ScalePrior, sketch: Sketch, u: Floats, parts: list[Hypothesis], wrong: WrongLabels) -> Belief:
    weight = np.sum([part.weight.sum(axis=1) for part in parts], axis=0)
    wide = prior._replace(scale=WIDER * prior.scale)
    wider = weight * np.exp(wide.log_density(u) - prior.log_density(u))
    kept = np.sum([part.weight @ (1 - part.floor) for part in parts], axis=0)
    return Belief(u, weight, wider / wider.sum(), kept, _interpolation_error(sketch, u, parts), wrong)


def _interpolation_error(sketch: Sketch, u: Floats, parts: list[Hypothesis]) -> float:
    """Nats by which the interpolated log-likelihood may be off, where the posterior lies."""
    error = 0.0
    for part in parts:
        along = [part.table]  # log T; where e is not one number also log-odds
        if part.odds is not None:
            along = [part.table @ chebyshev.basis(part.table.shape[1], LOG_ODDS, part.odds).T]
            along.append((chebyshev.basis(len(part.table), sketch.interval, u) @ part.table).T)
        for axis, values in enumerate(along):
            beyond = chebyshev.tail(chebyshev.coefficients(values), sketch.rounding)[0]
            error += 2 * float(beyond @ part.weight.sum(axis=axis))
    return error


def _box(grid: Floats, inside: NDArray[np.bool_]) -> chebyshev.Interval:
    """Interval of the grid points inside, and one more at either end."""
    if not inside.any():
        return chebyshev.Interval(float(grid[0]), float(grid[-1]))
    first, last = np.flatnonzero(inside)[[0, -1]]
    return chebyshev.Interval(float(grid[max(first - 1, 0)]), float(grid[min(last + 1, len(grid) - 1)]))
