"""Bayesian temperature scaling: few labels, wrong labels, no error in sight; always an answer, with its spread.

The model, its priors and its posterior are in `attemper.calibrators.posterior`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from functools import partial
from numbers import Real
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.interpolate import PchipInterpolator
from scipy.optimize import brentq
from scipy.special import betainc, expit, logit

from attemper.calibrators.annotators import Annotators, Confusions
from attemper.calibrators.outcome import FitReport
from attemper.calibrators.posterior import GRID, Explanation, Model, Posterior
from attemper.calibrators.streaming import StreamingCalibrator
from attemper.documents import Fields
from attemper.errors import AttemperWarning, EdgeWarning, FileError, InputError, option
from attemper.kernels import chebyshev, noisy, quadrature
from attemper.maps import MixtureMap
from attemper.scores import Scores
from attemper.sketch import DEFAULT_T_RANGE, Part, Sketch, log_range

__all__ = ["BayesianTemperatureScaling"]

Floats = NDArray[np.float64]

# Where annotators may confuse classes, errors among the similar are in this share of cases the network's own softness.
OWN = 0.2
ENOUGH = 0.02  # error of log T that a table may leave
N_COMPONENTS = 8  # of the mixture; 8 lose less than 1e-5 nats against the full posterior


class BayesianTemperatureScaling(StreamingCalibrator):
    """Average over all temperatures (and rates of wrong labels) that the labels leave possible.

    Never changes the prediction. Finite with any labels: few, wrong, or all right.

    Parameters
    ----------
    labels : "clean" or "noisy"
        Whether validation labels may be wrong. The data alone cannot tell a network that fails now and
        then from annotators that do, so it must be said.
    noise : "uniform" or "classwise"
        ``labels="noisy"``: whether errors fall anywhere (or among similar classes), or may also be confusions of
        certain classes with others, as people make them. The latter takes longer, and the logits themselves: a
        sketch is not enough.
    t_range : (low, high)
        Temperatures considered.
    prior_centre, prior_slope, prior_scale, prior_df : float
        log T ~ Student-t(df) around centre + slope · logit(mean confidence), with that scale.
    floor_probability, floor_shape : float, (float, float)
        Probability that the network has a floor of its own, and the Beta law of its height.
    similar_probability, similar_shape : float, float
        ``labels="noisy"``: prior probability that errors fall among similar classes rather than anywhere, and b of
        the Beta(1, b) law of their rate. By default 0.1 and 4; 0.5 and 1 with ``noise="classwise"``, which says that
        annotators are people, who err where a case is hard.
    classwise_probability : float
        ``noise="classwise"``: prior probability that errors depend on the class.
    level : float
        Level of the credible intervals.
    half_life, input, floor, classes
        As for `TemperatureScaling`.

    Attributes
    ----------
    temperature_, temperature_interval_ : float, (float, float)
        Posterior median and credible interval of T.
    noise_rate_, noise_interval_ : float, (float, float)
        Share of labels that are noise: posterior mean and credible interval; zero for clean labels. A noise label
        is drawn at random and right by chance once in K times; with ``noise="classwise"`` only wrong labels count.
    floor_ : float
        The network's own floor, as it stays in the prediction.
    similar_, classwise_ : float
        Posterior probability that the errors, if there are any, fall among similar classes; that they depend on the
        class.
    confusions_ : Confusions or None
        ``noise="classwise"``: the transition matrix, posterior means and credible intervals: row k says how samples
        whose true class is k are labelled.
    posterior_ : Posterior
    map_ : MixtureMap
    fit_report_, sketch_, classes_, n_features_in_

    Examples
    --------
    >>> import numpy as np
    >>> from attemper import BayesianTemperatureScaling
    >>> rng = np.random.default_rng(0)
    >>> logits = 3 * rng.normal(size=(200, 5))
    >>> labels = (logits / 2 + rng.gumbel(size=logits.shape)).argmax(axis=1)  # drawn at T = 2
    >>> labels[:40] = rng.integers(0, 5, size=40)  # every fifth label is noise
    >>> bts = BayesianTemperatureScaling(labels="noisy").fit(logits, labels)
    >>> low, high = bts.temperature_interval_
    >>> low < 2 < high, bts.noise_interval_[0] < 0.2 < bts.noise_interval_[1]
    (True, True)
    """

    method = "bayes"

    def __init__(
        self,
        *,
        labels: Literal["clean", "noisy"] = "clean",
        noise: Literal["uniform", "classwise"] = "uniform",
        t_range: tuple[float, float] = DEFAULT_T_RANGE,
        prior_centre: float = 0.15,
        prior_slope: float = 0.125,
        prior_scale: float = 0.4,
        prior_df: float = 4.0,
        floor_probability: float = 0.1,
        floor_shape: tuple[float, float] = (0.25, 20.0),
        similar_probability: float | None = None,
        similar_shape: float | None = None,
        classwise_probability: float = 0.5,
        level: float = 0.95,
        half_life: float | None = None,
        input: Literal["logits", "probs"] = "logits",
        floor: float | None = None,
        classes: Sequence[Any] | None = None,
    ) -> None:
        self.labels = labels
        self.noise = noise
        self.t_range = t_range
        self.prior_centre = prior_centre
        self.prior_slope = prior_slope
        self.prior_scale = prior_scale
        self.prior_df = prior_df
        self.floor_probability = floor_probability
        self.floor_shape = floor_shape
        self.similar_probability = similar_probability
        self.similar_shape = similar_shape
        self.classwise_probability = classwise_probability
        self.level = level
        self.half_life = half_life
        self.input = input
        self.floor = floor
        self.classes = classes

    temperature_interval_: tuple[float, float]
    noise_rate_: float
    noise_interval_: tuple[float, float]
    floor_: float
    similar_: float
    classwise_: float
    confusions_: Confusions | None
    posterior_: Posterior

    def sketch_parts(self) -> tuple[Part, ...] | None:
        """Return the parts of a sketch that this recipe needs; None for ``noise="classwise"``, which needs more."""
        if self._by_class:
            return None
        return ("uniform", "similar") if self.labels == "noisy" else ("uniform",)

    def summary(self) -> dict[str, Any]:
        """Return what was found, as plain numbers."""
        return super().summary() | {
            "labels": self.labels,
            "noise_rate": self.noise_rate_,
            "noise_interval": list(self.noise_interval_),
            "floor": self.floor_,
            "similar": self.similar_,
            "classwise": self.classwise_,
            "confusions": [
                {"true": k, "label": j, "mean": mean, "low": low, "high": high}
                for k, j, mean, low, high in self._worst_confusions()
            ],
        }

    def describe(self) -> list[str]:
        """Return the same in words."""
        low, high = self.temperature_interval_
        lines = [f"T = {self.temperature_:.4g} ({self.level:.0%} credible interval {low:.4g} … {high:.4g})"]
        if self.labels == "noisy":
            low, high = self.noise_interval_
            lines.append(f"noise in the labels: {self.noise_rate_:.1%} ({low:.1%} … {high:.1%})")
        if self._by_class and self.noise_rate_ > 0.01:  # without errors it does not matter what they would depend on
            lines.append(f"probability that the errors depend on the class: {self.classwise_:.0%}")
            lines += [
                f"  {mean:.1%} ({low:.1%} … {high:.1%}) of class {self.classes_[k]} are labelled {self.classes_[j]}"
                for k, j, mean, low, high in self._worst_confusions()
            ]
        if self.floor_ > 0.0005:
            lines.append(f"adds a {self.floor_:.1%} chance of a uniform guess to every prediction")
        return lines

    @property
    def _by_class(self) -> bool:
        return self.labels == "noisy" and self.noise == "classwise"

    def _worst_confusions(self) -> list[tuple[int, int, float, float, float]]:
        return [] if self.confusions_ is None else self.confusions_.worst()

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if self.noise not in ("uniform", "classwise"):
            raise InputError(f"noise={self.noise!r}: expected 'uniform' or 'classwise'")
        if self.labels not in ("clean", "noisy"):
            raise InputError(f"labels={self.labels!r}: expected 'clean' or 'noisy'")
        log_range(self.t_range)
        self.model().check()
        if not (isinstance(self.level, Real) and 0 < self.level < 1):
            raise InputError(f"level={self.level!r}: must lie between 0 and 1, such as 0.95")

    def _solve_scores(self, scores: Scores) -> None:
        parts: tuple[Part, ...] = ("uniform", "similar") if self.labels == "noisy" else ("uniform",)
        sketch = Sketch.of(scores, t_range=self.t_range, parts=parts)
        annotators = None
        if self._by_class:
            model = self.model()
            log_prior = partial(model.log_prior_t, confidence=sketch.confidence / sketch.weight)
            u, v, anywhere = model.grid(sketch)
            at = float(np.sum([part.weight.sum(axis=1) @ u for part in anywhere]))
            rate = float(np.sum([part.weight.sum(axis=0) @ expit(v) for part in anywhere]))
            annotators = Annotators.fit(scores, sketch.interval, log_prior, np.exp(at), max(rate, 1e-4))
        self._solve(sketch, annotators)

    def _solve_sketch(self, sketch: Sketch) -> None:
        self._solve(sketch, None)

    def _solve(self, sketch: Sketch, annotators: Annotators | None) -> None:
        self._check_range_of(sketch)
        model = self.model()
        u, v, parts = model.grid(sketch, annotators)
        e = expit(v)
        of_t = np.sum([part.weight.sum(axis=1) for part in parts], axis=0)
        kept = np.sum([part.weight @ (1 - part.floor) for part in parts], axis=0)
        at, weights = quadrature.gauss(u, kept, N_COMPONENTS)
        self.floor_ = float(max(0.0, 1 - weights.sum()))
        soft = OWN * (parts[1].weight @ e) if self._by_class else np.zeros(1)
        if soft.sum() > 1e-4:
            (a, wa), (b, wb) = quadrature.gauss(u, kept - soft, N_COMPONENTS), quadrature.gauss(u, soft, N_COMPONENTS)
            at, weights = np.concatenate([a, b + np.log(noisy.SOFTENING)]), np.concatenate([wa, wb])
        weights *= (1 - self.floor_) / weights.sum()
        self.map_ = MixtureMap(tuple(weights.tolist()), tuple(np.exp(-at).tolist()), self.floor_)
        tails = (1 - self.level) / 2
        low, middle, high = np.exp(quadrature.quantiles(u, of_t, [tails, 0.5, 1 - tails]))
        self.temperature_ = float(middle)
        self.temperature_interval_ = (float(low), float(high))
        self.noise_rate_, self.noise_interval_ = 0.0, (0.0, 0.0)
        self.similar_, self.classwise_, self.confusions_ = 0.0, 0.0, None
        if self.labels == "noisy":
            self._take_noise(model, u, e, parts, annotators)
        self.posterior_ = Posterior(
            np.exp(u), of_t, e, np.sum([p.weight.sum(axis=0) for p in parts[:2] if p.wide], axis=0)
        )
        self._report(sketch, u, of_t, model.interpolation_error(sketch, u, v, parts))

    def model(self) -> Model:
        """Return the priors, from which a sketch gives the joint posterior again."""
        told = {f.name: getattr(self, f.name) for f in fields(Model)}
        told["similar_probability"], told["similar_shape"] = self._similar
        return Model(**told)

    @property
    def _similar(self) -> tuple[float, float]:
        """Prior of errors among the similar: its probability, and the shape of the law of their rate."""
        probability, shape = (0.5, 1.0) if self.noise == "classwise" else (0.1, 4.0)
        told, told_shape = self.similar_probability, self.similar_shape
        return probability if told is None else told, shape if told_shape is None else told_shape

    def _take_noise(
        self, model: Model, u: Floats, e: Floats, parts: list[Explanation], annotators: Annotators | None
    ) -> None:
        """Split the annotators' errors from the total, by the priors."""
        anywhere, similar = (part.weight.sum(axis=0) for part in parts[:2])
        floor, tails = parts[0].floor, (1 - self.level) / 2
        self.similar_ = float(similar.sum())
        own = (e - floor) / (1 - floor)
        wrong = (1.0, 1.0)  # shares of the noise that count
        laws = np.zeros((0, 3))
        if annotators is not None:  # where errors of all kinds are counted, only labels that are wrong are
            wrong = (1 - 1 / self.n_features_in_, annotators.similar()[1])
        self.noise_rate_ = float(wrong[0] * (anywhere @ own) + wrong[1] * (similar @ e))
        if annotators is not None:
            by_spread = [part.weight.sum(axis=1) for part in parts[2:]]
            self.classwise_ = float(np.sum(by_spread))
            mean, square, rate, laws = annotators.moments(u, by_spread)
            self.noise_rate_ += rate
            self._take_confusions(mean, square, anywhere, own, similar, e, annotators)
        # The annotators' rate has a density, of which the grid has the mass of each cell: within a cell the share below
        # is interpolated. That of errors anywhere is e itself where the network has no floor.
        v = logit(e)
        ends = np.append(v[0], v) + (v[1] - v[0]) * np.append(-0.5, np.full(len(v), 0.5))
        masses = (anywhere * model.no_floor(e), similar)
        # What is next to nothing would overflow as a slope.
        below_ends = [PchipInterpolator(ends, np.append(0.0, np.cumsum(m * (m > 1e-200)))) for m in masses]

        def excess(t: float, p: float) -> float:
            rates = [min(t / max(share, 1e-9), 0.999) for share in wrong]
            below = float(anywhere @ model.noise_below_with_floor(rates[0], e))
            for rate, below_end in zip(rates, below_ends):
                below += float(below_end(np.clip(logit(max(rate, 1e-300)), ends[0], ends[-1])))
            return below + float(laws[:, 0] @ betainc(laws[:, 1], laws[:, 2], t)) - p

        most = 0.999
        low, high = (
            0.0
            if excess(0.0, p) >= 0
            else brentq(excess, 0.0, most, args=(p,), xtol=1e-6)
            if excess(most, p) > 0
            else most
            for p in (tails, 1 - tails)
        )
        self.noise_interval_ = (float(low), float(high))

    def _take_confusions(
        self,
        mean: Floats,
        square: Floats,
        anywhere: Floats,
        own: Floats,
        similar: Floats,
        e: Floats,
        annotators: Annotators,
    ) -> None:
        """Average the transition matrix over all explanations."""
        # Errors anywhere leave a label right by chance; those among the similar are as the network's own.
        k = len(mean)
        even = np.full((k, k), 1 / k)
        for weight, rate, where in ((anywhere, own, even), (similar, e, annotators.similar()[0])):
            first, second, total = float(weight @ rate), float(weight @ rate**2), float(weight.sum())
            stay = np.eye(k)
            mean += total * stay + first * (where - stay)
            square += total * stay + 2 * first * stay * (where - stay) + second * (where - stay) ** 2
        self.confusions_ = Confusions.of(mean, square, self.level)

    def _report(self, sketch: Sketch, u: Floats, of_t: Floats, nats: float) -> None:
        value = sketch.mean_nll(self.temperature_)
        spread = float(np.sqrt(of_t @ (u - of_t @ u) ** 2))
        # A log-likelihood that is off by δ everywhere at most moves the posterior mean by 2 δ standard deviations.
        error = 2 * nats * spread
        edge = self._edge(sketch, u, of_t)
        message = (
            f"posterior on a grid of {GRID[0]} temperatures × {GRID[1]} rates; the table leaves an error of "
            f"{error:.0e} in log T, the data a standard deviation of {spread:.2g}"
        )
        if edge is not None:
            message = f"T lies on the edge of the range {sketch.t_range}, or beyond it"
            if edge == "low" and sketch.perfect:
                advice = "Every label is the arg max, so only the range keeps T from 0; more labels would help."
            else:
                advice = (
                    "If the logits are on an unusual scale, divide them by a constant or widen "
                    f"{option('t_range', '--t-range')}; otherwise check that the labels match the logit columns."
                )
            self._warn(f"{message}. {advice}", EdgeWarning, stacklevel=5)
        ok = edge is None and error < ENOUGH
        if edge is None and not ok:
            message += "; that is more than wanted: the labels are many, or the temperatures of the range far apart"
            if error > spread:
                self._warn(f"{message}.", AttemperWarning, stacklevel=5)
        self.fit_report_ = FitReport(ok, error, edge, value, sketch.n_samples, 1, message)

    def _edge(self, sketch: Sketch, u: Floats, of_t: Floats) -> Literal["low", "high"] | None:
        """Tell whether the range is too narrow: the posterior piles up there, or the NLL would have T beyond it.

        Without an error in sight the NLL always would; and with noise it may, where labels are mostly noise.
        """
        near = 0.02 * sketch.interval.length
        if of_t[u < sketch.interval.low + near].sum() > 0.05:
            return "low"
        if of_t[u > sketch.interval.high - near].sum() > 0.05:
            return "high"
        beyond = int(chebyshev.minima(chebyshev.coefficients(sketch.nll[:, None]), sketch.interval).edge[0])
        if beyond < 0 and not sketch.perfect:
            return "low"
        return "high" if beyond > 0 and self.labels == "clean" else None

    def _fitted_to_dict(self) -> dict[str, Any]:
        return super()._fitted_to_dict() | {
            "noise_rate": self.noise_rate_,
            "noise_interval": list(self.noise_interval_),
            "floor": self.floor_,
            "similar": self.similar_,
            "classwise": self.classwise_,
            "confusions": None
            if self.confusions_ is None
            else {n: v.tolist() for n, v in self.confusions_._asdict().items()},
            "posterior": {name: column.tolist() for name, column in self.posterior_._asdict().items()},
        }

    def _fitted_from_fields(self, content: Fields) -> None:
        super()._fitted_from_fields(content)
        self.noise_rate_ = content.number("noise_rate")
        low, high = content.array("noise_interval", (2,)).tolist()
        self.noise_interval_ = (low, high)
        self.floor_ = content.number("floor")
        assert isinstance(self.map_, MixtureMap)  # checked with the temperature
        if abs(self.floor_ - self.map_.floor) > 1e-9:
            self._reject_fitted(content, f"a floor of {self.floor_:g}", f"{self.map_.floor:g}")
        self.similar_ = content.number("similar")
        self.classwise_ = content.number("classwise")
        self.confusions_ = None
        if content.content.get("confusions") is not None:
            self.confusions_ = Confusions.from_fields(content.fields("confusions"), self.n_features_in_)
        posterior = content.fields("posterior")
        self.posterior_ = Posterior(*(posterior.array(name, (-1,)) for name in Posterior._fields))

    def _temperatures_of_map(self, content: Fields) -> tuple[float, float]:
        if not isinstance(self.map_, MixtureMap):
            raise FileError(f"{content.where}: the map is not one of {type(self).__name__}")
        # The components stand for the posterior, whose median is T; a skewed one may have it a little off the last.
        return 0.95 / max(self.map_.betas), 1.05 / min(self.map_.betas)
