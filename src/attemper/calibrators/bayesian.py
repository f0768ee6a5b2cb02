"""Bayesian temperature scaling: few labels, wrong labels, no error in sight; always an answer, with its spread.

The model
---------
S = softmax(h / T). In each sample the network is lost with probability e_m, its own floor: then every class
is as likely. With ``labels="clean"`` the observed label has probability

    (1 − e_m) S_y(T) + e_m / K.

With ``labels="noisy"`` annotators err besides, at a rate e_a, in one of two ways that the data weigh:

    anywhere          (1 − e) S_y(T) + e / K,         1 − e = (1 − e_m) (1 − e_a)
    among the similar (1 − e_a) S_y(T) + e_a S_y(3T)

The data cannot tell the two floors e_m and e_a apart; their priors do. The prediction leaves the annotators'
errors out and keeps the network's own: the average of (1 − e_m) S(T) + e_m / K over the posterior, which is a
mixture of temperatures and a floor, and keeps the arg max.

The posterior has two dimensions, log T and logit e. It is evaluated on a grid from the tables of the sketch:
no sampling, no optimiser.

The priors
----------
log T ~ Student-t with 4 degrees of freedom, scale 0.4, centre 0.15 + logit(c) / 8, where c is the mean confidence
at T = 1 (at most 0.95): networks that are surer of themselves are more often too sure. e_m is 0 with probability
0.9 and Beta(1/4, 20) otherwise; e_a is uniform; errors among the similar have prior probability 0.1 and a rate
e_a ~ Beta(1, 4). How they were chosen: docs/bayesian.md.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import fields
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import expit

from attemper.calibrators.base import FitReport, TemperatureCalibrator
from attemper.calibrators.posterior import GRID, Model
from attemper.documents import Fields
from attemper.errors import EdgeWarning, InputError
from attemper.kernels import chebyshev, quadrature
from attemper.maps import MixtureMap
from attemper.scores import Scores
from attemper.sketch import DEFAULT_T_RANGE, Part, Sketch, log_range

__all__ = ["BayesianTemperatureScaling", "Posterior"]

Floats = NDArray[np.float64]

N_COMPONENTS = 8  # of the mixture; 8 lose less than 1e-5 nats against the full posterior


class Posterior(NamedTuple):
    """Marginal posteriors, as probabilities of grid points."""

    temperature: Floats
    temperature_weight: Floats
    noise: Floats  # e_a for noisy labels, e_m for clean ones
    noise_weight: Floats


class BayesianTemperatureScaling(TemperatureCalibrator):
    """Average over all temperatures (and rates of wrong labels) that the labels leave possible.

    Never changes the prediction. Finite with any labels: few, wrong, or all right.

    Parameters
    ----------
    labels : "clean" or "noisy"
        Whether validation labels may be wrong. The data alone cannot tell a network that fails now and
        then from annotators that do, so it must be said.
    t_range : (low, high)
        Temperatures considered.
    prior_centre, prior_slope, prior_scale, prior_df : float
        log T ~ Student-t(df) around centre + slope · logit(mean confidence), with that scale.
    floor_probability, floor_shape : float, (float, float)
        Probability that the network has a floor of its own, and the Beta law of its height.
    similar_probability, similar_shape : float, float
        ``labels="noisy"``: prior probability that errors fall among similar classes rather than anywhere, and b of
        the Beta(1, b) law of their rate.
    level : float
        Level of the credible intervals.
    input, floor, classes
        As for `TemperatureScaling`.

    Attributes
    ----------
    temperature_, temperature_interval_ : float, (float, float)
        Posterior median and credible interval of T.
    noise_rate_, noise_interval_ : float, (float, float)
        Share of labels that are noise: posterior mean and credible interval; zero for clean labels. A noise label
        is drawn at random and right by chance once in K times.
    floor_ : float
        The network's own floor, as it stays in the prediction.
    similar_ : float
        Posterior probability that the errors fall among similar classes; 0 for clean labels.
    posterior_ : Posterior
    map_ : MixtureMap
    fit_report_, classes_, n_features_in_

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
        t_range: tuple[float, float] = DEFAULT_T_RANGE,
        prior_centre: float = 0.15,
        prior_slope: float = 0.125,
        prior_scale: float = 0.4,
        prior_df: float = 4.0,
        floor_probability: float = 0.1,
        floor_shape: tuple[float, float] = (0.25, 20.0),
        similar_probability: float = 0.1,
        similar_shape: float = 4.0,
        level: float = 0.95,
        input: Literal["logits", "probs"] = "logits",
        floor: float | None = None,
        classes: Sequence[Any] | None = None,
    ) -> None:
        self.labels = labels
        self.t_range = t_range
        self.prior_centre = prior_centre
        self.prior_slope = prior_slope
        self.prior_scale = prior_scale
        self.prior_df = prior_df
        self.floor_probability = floor_probability
        self.floor_shape = floor_shape
        self.similar_probability = similar_probability
        self.similar_shape = similar_shape
        self.level = level
        self.input = input
        self.floor = floor
        self.classes = classes

    temperature_interval_: tuple[float, float]
    noise_rate_: float
    noise_interval_: tuple[float, float]
    floor_: float
    similar_: float
    posterior_: Posterior

    @classmethod
    def for_labels(cls, *, noisy: bool, **parameters: Any) -> BayesianTemperatureScaling:
        """Return a calibrator for labels of this quality."""
        return cls(labels="noisy" if noisy else "clean", **parameters)

    def sketch_parts(self) -> tuple[Part, ...]:
        """Return the parts of a sketch that this recipe needs."""
        return ("uniform", "similar") if self.labels == "noisy" else ("uniform",)

    def summary(self) -> dict[str, Any]:
        """Return what was found, as plain numbers."""
        return super().summary() | {
            "temperature_interval": list(self.temperature_interval_),
            "labels": self.labels,
            "noise_rate": self.noise_rate_,
            "noise_interval": list(self.noise_interval_),
            "floor": self.floor_,
            "similar": self.similar_,
        }

    def describe(self) -> list[str]:
        """Return the same in words."""
        low, high = self.temperature_interval_
        lines = [f"T = {self.temperature_:.4g} ({self.level:.0%} credible interval {low:.4g} … {high:.4g})"]
        if self.labels == "noisy":
            low, high = self.noise_interval_
            lines.append(f"noise in the labels: {self.noise_rate_:.1%} ({low:.1%} … {high:.1%})")
        if self.floor_ > 0.0005:
            lines.append(f"the network is lost in {self.floor_:.1%} of cases, which stays in the prediction")
        return lines

    def _check_parameters(self) -> None:
        if self.labels not in ("clean", "noisy"):
            raise InputError(f"labels={self.labels!r}: expected 'clean' or 'noisy'")
        log_range(self.t_range)
        positive = {
            "prior_scale": self.prior_scale,
            "prior_df": self.prior_df,
            "similar_shape": self.similar_shape,
        }
        shares = {
            "floor_probability": self.floor_probability,
            "similar_probability": self.similar_probability,
        }
        try:
            a, b = self.floor_shape
            numbers = [
                *positive.values(),
                *shares.values(),
                self.prior_centre,
                self.prior_slope,
                self.level,
                a,
                b,
            ]
            if not np.isfinite(np.array(numbers, dtype=np.float64)).all():
                raise ValueError("a prior is not finite")
        except (TypeError, ValueError) as error:
            raise InputError(f"the priors must be finite numbers: {error}") from None
        for name, value in positive.items():
            if value <= 0:
                raise InputError(f"{name}={value}: must be positive")
        for name, value in shares.items():
            if not 0 <= value <= 1:
                raise InputError(f"{name}={value}: is a probability, between 0 and 1")
        if not (a > 0 and b > 1):
            raise InputError(f"floor_shape=({a}, {b}): expected a > 0 and b > 1")
        if not 0 < self.level < 1:
            raise InputError(f"level={self.level}: must lie between 0 and 1, such as 0.95")

    def _solve_scores(self, scores: Scores) -> None:
        self._solve_sketch(Sketch.of(scores, t_range=self.t_range, parts=self.sketch_parts()))

    def _solve_sketch(self, sketch: Sketch) -> None:
        self._check_range_of(sketch)
        model = Model(**{f.name: getattr(self, f.name) for f in fields(Model)})
        u, v, parts = model.grid(sketch)
        e = expit(v)
        of_t = np.sum([part.weight.sum(axis=1) for part in parts], axis=0)
        kept = np.sum([part.weight @ (1 - part.floor) for part in parts], axis=0)
        at, weights = quadrature.gauss(u, kept, N_COMPONENTS)
        self.floor_ = float(max(0.0, 1 - weights.sum()))
        weights *= (1 - self.floor_) / weights.sum()
        self.map_ = MixtureMap(tuple(weights.tolist()), tuple(np.exp(-at).tolist()), self.floor_)
        tails = (1 - self.level) / 2
        low, middle, high = np.exp(quadrature.quantiles(u, of_t, [tails, 0.5, 1 - tails]))
        self.temperature_ = float(middle)
        self.temperature_interval_ = (float(low), float(high))
        self.noise_rate_, self.noise_interval_, self.similar_ = 0.0, (0.0, 0.0), 0.0
        if self.labels == "noisy":
            anywhere, similar = (part.weight.sum(axis=0) for part in parts)
            self._take_noise(model, e, anywhere, parts[0].floor, similar, tails)
        self.posterior_ = Posterior(
            np.exp(u), of_t, e, np.sum([p.weight.sum(axis=0) for p in parts[:2] if p.wide], axis=0)
        )
        self._report(sketch, u, of_t, model.interpolation_error(sketch, u, v, parts))

    def _take_noise(
        self, model: Model, e: Floats, anywhere: Floats, floor: Floats, similar: Floats, tails: float
    ) -> None:
        """Split the annotators' errors from the total, by the priors."""
        self.similar_ = float(similar.sum())
        self.noise_rate_ = float(anywhere @ ((e - floor) / (1 - floor)) + similar @ e)
        total = anywhere.sum() + similar.sum()
        similar_below = np.cumsum(similar) - similar / 2

        def excess(t: float, p: float) -> float:
            below = float(anywhere @ model.noise_below(t, e) + np.interp(t, e, similar_below))
            return float(below / total - p)

        low, high = (
            brentq(excess, 0.0, 0.999, args=(p,), xtol=1e-6) if excess(0.0, p) < 0 else 0.0 for p in (tails, 1 - tails)
        )
        self.noise_interval_ = (float(low), float(high))

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
                    "If the logits are on an unusual scale, divide them by a constant or widen t_range (--t-range); if "
                    "not, they speak against these labels."
                )
            warnings.warn(
                f"BayesianTemperatureScaling: {message}. {advice}",
                EdgeWarning,
                stacklevel=5,
            )
        ok = edge is None and error < 0.01
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
            "temperature_interval": list(self.temperature_interval_),
            "noise_rate": self.noise_rate_,
            "noise_interval": list(self.noise_interval_),
            "floor": self.floor_,
            "similar": self.similar_,
            "posterior": {name: column.tolist() for name, column in self.posterior_._asdict().items()},
        }

    def _fitted_from_fields(self, content: Fields) -> None:
        super()._fitted_from_fields(content)
        low, high = content.array("temperature_interval", (2,)).tolist()
        self.temperature_interval_ = (low, high)
        self.noise_rate_ = content.number("noise_rate")
        low, high = content.array("noise_interval", (2,)).tolist()
        self.noise_interval_ = (low, high)
        self.floor_ = content.number("floor")
        self.similar_ = content.number("similar")
        posterior = content.fields("posterior")
        self.posterior_ = Posterior(*(posterior.array(name, (-1,)) for name in Posterior._fields))
