"""The posterior of temperature and noise, evaluated on a grid from the tables of a sketch.

The model
---------
S = softmax(h / T). In each sample the network is lost with probability e_m, its own floor: then every class
is as likely. With ``labels="clean"`` the observed label has probability

    (1 − e_m) S_y(T) + e_m / K.

With ``labels="noisy"`` annotators also err, at a rate e_a, in one of two ways that the data weigh:

    anywhere          (1 − e) S_y(T) + e / K,         1 − e = (1 − e_m) (1 − e_a)
    among the similar (1 − e_a) S_y(T) + e_a S_y(3T)

Where the rows are at hand, a network with class biases and annotators who confuse certain classes are also weighed
(`attemper.calibrators.explanations`).

The data cannot distinguish the two floors e_m and e_a; their priors do. The prediction leaves the annotators'
errors out and keeps the network's own: the average of (1 − e_m) S(T) + e_m / K over the posterior, which is a
mixture of temperatures and a floor, and keeps the arg max.

The posterior has two dimensions, log T and logit e. It is evaluated on a grid from the tables of the sketch:
no sampling, no optimiser.

The priors
----------
log T ~ Student-t with 4 degrees of freedom, scale 0.4, centre 0.15 + logit(c) / 8, where c is the mean confidence
at T = 1 (at most 0.95): networks that are more confident are more often over-confident. e_m is 0 with probability
0.9 and Beta(1/4, 20) otherwise; e_a is uniform; errors among the similar have prior probability 0.1 and a rate
e_a ~ Beta(1, 4). How they were chosen: docs/bayesian.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import betainc, betaincc, betaln, expit, logit

from attemper._checks import fraction, number, positive
from attemper._json import Dims
from attemper._table import Columns, Table
from attemper._typing import Floats
from attemper.data.arrays import one_line
from attemper.errors import InputError
from attemper.kernels import chebyshev
from attemper.sketch import LOG_ODDS, Sketch

__all__ = ["GRID", "Model", "NoiseHypothesis", "Posterior"]


GRID = (256, 160)  # points in log T and logit e; tests/calibrators/test_bayesian.py compares with brute force
CONFIDENCE = (0.01, 0.95)  # beyond, the mean confidence adds nothing about T (docs/bayesian.md, "The priors")
DROP = 35.0  # nats below the top at which the posterior is taken to be zero: e^-35 is below double precision


class NoiseHypothesis(NamedTuple):
    """One explanation of the labels: its posterior over (log T, logit e), and the floor it keeps.

    Labels that are clean have one with a floor of the network's own, and one without. Noisy ones have errors anywhere,
    and errors among the similar.
    """

    weight: Floats
    floor: Floats
    has_rate_axis: bool  # spans the rates e; otherwise e is zero


Column = Annotated[Floats, Dims(1)]


class _Posterior(NamedTuple):
    temperature: Column
    temperature_weight: Column  # probability of each
    noise: Column  # rates: e_a for noisy labels, e_m for clean ones
    noise_weight: Column  # probability of each


class Posterior(_Posterior, Table):
    """Marginal posteriors, as probabilities of grid points: ``posterior_`` of `BayesianTemperatureScaling`."""

    __slots__ = ()
    __repr__ = one_line

    def _table_columns(self) -> Columns:
        names = ["temperature"] * len(self.temperature) + ["noise"] * len(self.noise)
        values = np.concatenate([self.temperature, self.noise])
        weights = np.concatenate([self.temperature_weight, self.noise_weight])
        return {"parameter": names, "value": values, "probability": weights}


@dataclass(frozen=True)
class Model:
    """How labels come about, with priors on everything that is not known."""

    labels: Literal["clean", "noisy"]
    prior_centre: float
    prior_slope: float
    prior_scale: float
    prior_df: float
    floor_probability: float
    floor_shape: tuple[float, float]
    similar_probability: float
    similar_shape: float

    def check(self) -> None:
        """Reject priors that make no sense."""
        for name in ("prior_centre", "prior_slope"):
            number(name, getattr(self, name), -1e300, 1e300, expected="a finite number")
        for name in ("prior_scale", "prior_df", "similar_shape"):
            positive(name, getattr(self, name))
        for name in ("floor", "similar"):
            fraction(f"{name}_probability", getattr(self, f"{name}_probability"), closed=True, such_as="0.1")
        try:
            _, b = (positive("floor_shape", value) for value in self.floor_shape)
        except (TypeError, ValueError):
            b = 0.0
        if not b > 1:
            raise InputError(f"floor_shape={self.floor_shape!r}: expected two numbers, a > 0 and b > 1")

    def grid(self, sketch: Sketch) -> tuple[Floats, Floats, list[NoiseHypothesis]]:
        """Zoom in on the box of log T × logit e that holds the posterior."""
        by_t, by_e = sketch.interval, LOG_ODDS
        for _ in range(12):
            u, v = np.linspace(*by_t, GRID[0]), np.linspace(*by_e, GRID[1])
            parts = self.log_posterior(sketch, u, v)
            top = max(part.weight.max() for part in parts)
            in_u = np.max([part.weight.max(axis=1) for part in parts], axis=0) > top - DROP
            in_v = np.max([part.weight.max(axis=0) for part in parts if part.has_rate_axis], axis=0) > top - DROP
            closer = _box(u, in_u), _box(v, in_v)
            if closer[0].length > 0.6 * by_t.length and closer[1].length > 0.6 * by_e.length:
                break
            by_t, by_e = closer
        weights = [np.exp(part.weight - top) for part in parts]
        total = sum(float(w.sum()) for w in weights)
        return u, v, [part._replace(weight=w / total) for part, w in zip(parts, weights)]

    def log_posterior(self, sketch: Sketch, u: Floats, v: Floats) -> list[NoiseHypothesis]:
        """Unnormalised log-posterior of each explanation on a grid."""
        step = v[1] - v[0]
        at_u, at_v = (
            chebyshev.basis(len(sketch.nll), sketch.interval, u),
            chebyshev.basis(sketch.tables["uniform"].shape[1], LOG_ODDS, v),
        )
        prior = self.log_prior_t(u, sketch)[:, None]
        right = -sketch.weight * np.logaddexp(0, v)  # weight · log(1 − e)
        density, floor = self.floors(v)
        with np.errstate(divide="ignore"):
            wide = at_u @ sketch.tables["uniform"] @ at_v.T + right + prior + np.log(density * step)
            if self.labels == "clean":
                a, b = self.floor_shape
                # No floor, or one too low for the grid.
                below = 1 - self.floor_probability * betaincc(a, b, expit(LOG_ODDS.low))
                none = -(at_u @ sketch.nll)[:, None] + prior + np.log(below)
                return [NoiseHypothesis(wide, floor, True), NoiseHypothesis(none, np.zeros(1), False)]
            b, q = self.similar_shape, self.similar_probability
            density = b * expit(v) * expit(-v) ** b
            similar = at_u @ sketch.tables["similar"] @ at_v.T + right + prior + np.log(q * density * step)
            return [
                NoiseHypothesis(wide + np.log(1 - q), floor, True),
                NoiseHypothesis(similar, np.zeros(len(v)), True),
            ]

    def given_true_classes(
        self, sketch: Sketch, gap: float, information: float, variance: float = 0.0
    ) -> tuple[Floats, Floats]:
        """Posterior of log T, as points and probabilities, where the true class of each sample is known on average.

        ``gap`` is the mean of h_label − E[h_true class]; ``information`` is how much of a clean label each is worth;
        ``variance`` is what not knowing the rate of errors adds to log T.
        """
        if variance > 0:
            u, weight = self.given_true_classes(sketch, gap, information)
            own = float(weight @ (u - weight @ u) ** 2)
            information *= own / (own + variance)
        interval = sketch.interval
        for _ in range(12):
            u = np.linspace(*interval, GRID[0])
            nll = chebyshev.basis(len(sketch.nll), sketch.interval, u) @ sketch.nll + sketch.weight * gap * np.exp(-u)
            value = self.log_prior_t(u, sketch) - information * nll
            inside = value > value.max() - DROP
            closer = _box(u, inside)
            if closer.length > 0.6 * interval.length:
                break
            interval = closer
        weight = np.exp(value - value.max())
        return u, weight / weight.sum()

    def log_prior_t(self, u: Floats, sketch: Sketch) -> Floats:
        """Log-density of u = log T, up to a constant, for logits on the scale of those in the sketch."""
        confidence = np.clip(sketch.confidence / sketch.weight, *CONFIDENCE)
        centre = self.prior_centre + self.prior_slope * logit(confidence) + np.log(sketch.unit)
        z = (u - centre) / self.prior_scale
        return np.asarray(-(self.prior_df + 1) / 2 * np.log1p(z * z / self.prior_df))

    def floors(self, v: Floats) -> tuple[Floats, Floats]:
        """Prior density, in v = logit e, of the total floor e; and the network's share E[e_m | e] of it."""
        e, (a, b), p = expit(v), self.floor_shape, self.floor_probability
        jacobian = e * (1 - e)
        if self.labels == "clean":
            return p * np.exp((a - 1) * np.log(e) + (b - 1) * np.log1p(-e) - betaln(a, b)) * jacobian, e
        # e_a is uniform: the law of e = 1 − (1 − e_m)(1 − e_a) is an incomplete beta function.
        density = 1 - p + p * (a + b - 1) / (b - 1) * betainc(a, b - 1, e)
        own = p * a / (b - 1) * betainc(a + 1, b - 1, e)
        return density * jacobian, own / density

    def no_floor(self, e: Floats) -> Floats:
        """P(e_m = 0 | e): the network has no floor, and all of e is the annotators'."""
        (a, b), p = self.floor_shape, self.floor_probability
        return np.asarray((1 - p) / (1 - p + p * (a + b - 1) / (b - 1) * betainc(a, b - 1, e)))

    def noise_below_with_floor(self, t: float | Floats, e: Floats) -> Floats:
        """P(e_a ≤ t, e_m > 0 | e): e_a is at most t if e_m is at least (e − t) / (1 − t)."""
        (a, b), p = self.floor_shape, self.floor_probability
        c = p * (a + b - 1) / (b - 1)
        total = betainc(a, b - 1, e)
        least = np.clip((e - t) / (1 - t), 0, 1)
        return np.asarray(c * (total - betainc(a, b - 1, least)) / (1 - p + c * total))

    def interpolation_error(self, sketch: Sketch, u: Floats, v: Floats, parts: list[NoiseHypothesis]) -> float:
        """Nats by which the interpolated log-likelihood may be off, where the posterior lies."""
        error = 0.0
        tables = [sketch.tables["uniform"], sketch.tables["similar"] if self.labels == "noisy" else None]
        for table, part in zip(tables, parts):
            if table is None:
                table, weight = -sketch.nll[:, None], part.weight
                along_t, along_e = table, None
            else:
                weight = part.weight
                along_t = table @ chebyshev.basis(table.shape[1], LOG_ODDS, v).T
                along_e = (chebyshev.basis(len(table), sketch.interval, u) @ table).T
            error += 2 * float(chebyshev.tail(chebyshev.coefficients(along_t), sketch.rounding)[0] @ weight.sum(axis=0))
            if along_e is not None:
                error += 2 * float(
                    chebyshev.tail(chebyshev.coefficients(along_e), sketch.rounding)[0] @ weight.sum(axis=1)
                )
        return error


def _box(grid: Floats, inside: NDArray[np.bool_]) -> chebyshev.Interval:
    """Interval of the grid points inside, and one more at either end."""
    if not inside.any():
        return chebyshev.Interval(float(grid[0]), float(grid[-1]))
    first, last = np.flatnonzero(inside)[[0, -1]]
    return chebyshev.Interval(float(grid[max(first - 1, 0)]), float(grid[min(last + 1, len(grid) - 1)]))
