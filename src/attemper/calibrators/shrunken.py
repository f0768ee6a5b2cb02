"""An affine map of which only as much is left as the data can tell.

With x the centred logits divided by a temperature, z = x + b + s ∘ x + M x. Biases b, changes of scale s and the rest
of the matrix M are three groups of parameters with normal priors around zero, whose variances are found by the
evidence (`attemper.kernels.shrinkage`). Labels may be wrong: `log_channel` is what is known of that.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from attemper.kernels import regression, shrinkage
from attemper.kernels.multinomial import row_max
from attemper.kernels.regression import Params, Problem
from attemper.kernels.softmax import BOTTOM
from attemper.maps import Map

__all__ = ["FOLDS", "LEVELS", "Found", "ShrunkenFit"]

Floats = NDArray[np.float64]

LEVELS = ("biases", "scales", "matrix")
VARIANCES = (0.05, 0.003, 0.005)  # expected of the groups; that of the matrix is divided by K
COUNT = 4.0  # parameters' worth of data that this expectation is worth
CLOSE = 0.03  # relative change of precisions that makes no difference any more
FOLDS = 5


@dataclass(frozen=True)
class Found:
    """Parameters that were found: z = weight x + bias, in units of logits at temperature T."""

    weight: Floats
    bias: Floats
    gradient_norm: float
    gap: float
    rounds: int
    converged: bool


@dataclass(frozen=True, eq=False)
class ShrunkenFit:
    """The data of a fit; all weights are above zero."""

    x: Floats
    y: NDArray[np.int64]
    w: Floats
    masked: NDArray[np.bool_]
    log_channel: Floats
    levels: int

    @property
    def x0(self) -> Floats:
        """Logits before any change, with masked classes."""
        return np.where(self.masked, -np.inf, self.x)

    @property
    def prior(self) -> Params:
        """No change."""
        k = self.x.shape[1]
        return Params(np.eye(k) if self.levels == 3 else np.ones(k), np.zeros(k))

    def by_evidence(self, tolerance: float = 1e-8) -> tuple[Found, list[float]]:
        """Let parameters and precisions of their priors follow each other."""
        k = self.x.shape[1]
        variances = [v / (k if name == "matrix" else 1) for name, v in zip(LEVELS, VARIANCES)]
        precisions = [1 / v for v in variances[: self.levels]]
        found = self.solve(precisions, None, tolerance=1e-4, rounds=1)
        count = 0
        while count < 30:
            count += 1
            theta, groups = self._deviations(found)
            v = shrinkage.posterior_variances(self.x, *self._information(found), self._array(precisions))
            new = [
                shrinkage.precision(theta[g], v[g], before, COUNT, variance)
                for g, before, variance in zip(groups, precisions, variances)
            ]
            change = max(abs(np.log(a / b)) for a, b in zip(new, precisions))
            precisions = new
            found = self.solve(precisions, found, tolerance=1e-4, rounds=1)
            if change < CLOSE:
                break
        last = self.solve(precisions, found, tolerance=tolerance, rounds=200)
        return Found(
            last.weight, last.bias, last.gradient_norm, last.gap, count + last.rounds, last.converged
        ), precisions

    def log_evidence(self, found: Found, precisions: list[float]) -> float:
        """Log-evidence for these changes, over that for none; the posterior is taken for normal."""
        theta, _ = self._deviations(found)
        array = self._array(precisions)
        _, value = shrinkage.true_classes(self.logits(Params(found.weight, found.bias)), self.log_channel, self.y)
        _, plain = shrinkage.true_classes(self.logits(self.prior), self.log_channel, self.y)
        k = self.x.shape[1]
        volume = shrinkage.log_volume(self.x, *self._information(found), array) * (k - 1) / k
        return float(self.w @ (value - plain) - 0.5 * np.sum(array * theta**2) - 0.5 * volume)

    def solve(
        self,
        precisions: list[float],
        start: Found | None,
        *,
        tolerance: float,
        rounds: int,
        rows: NDArray[np.bool_] | None = None,
    ) -> Found:
        """Posterior mode for given precisions, by EM: true classes given parameters, parameters given true classes."""
        data = self if rows is None else self._only(rows)
        params = self.prior if start is None else Params(start.weight, start.bias)
        possible = ~data.masked if data.masked.any() else None
        penalty = self._penalty(precisions, float(data.w.sum()))
        problem = Problem.of(data.x, data.y, data.w, self.prior, penalty, possible)
        theta = problem.pack(params)
        z = problem.logits(theta)
        gap = np.inf
        for count in range(1, rounds + 1):
            q, _ = shrinkage.true_classes(data._masked(z), self.log_channel, data.y)
            problem = problem.towards(q)
            state = problem.evaluate(z, theta)
            norm = problem.gradient_norm(state)
            if count > 1 and norm < tolerance:
                break
            # True classes change as much as parameters do: more than one step between them would be in vain.
            end = regression.descend(problem, theta, state, tolerance / 10, max_iterations=1 if rounds > 1 else 3)
            theta, z, gap = end.theta, end.state.z, end.gap
        weight, bias = problem.unpack(theta)
        return Found(weight, bias, norm, gap, count, norm < max(tolerance, 1e-6))

    def held_out(self, fold: NDArray[np.int64], found: Found, precisions: list[float]) -> Floats | None:
        """Logits of each sample by a fit without its fold; None if there are too few samples for that."""
        share = np.bincount(fold, self.w, FOLDS) / self.w.sum()
        if share.min() < 0.02 or len(self.x) < 4 * FOLDS:
            return None
        z = np.empty_like(self.x)
        for k in range(FOLDS):
            part = self.solve(precisions, found, tolerance=3e-5, rounds=20, rows=fold != k)
            z[fold == k] = self._only(fold == k).logits(Params(part.weight, part.bias))
        return np.where(self.masked, -np.inf, z)

    def likelihood(self, z: Floats, then: Map, log_channel: Floats) -> float:
        """Log-likelihood of the labels when ``then``, which has the network's own floor, is applied to z.

        ``log_channel`` is that of the annotators alone.
        """
        _, value = shrinkage.true_classes(np.maximum(then.log_apply(z), BOTTOM), log_channel, self.y)
        return float(self.w @ value)

    def logits(self, params: Params) -> Floats:
        """Return z, far down where a class is masked."""
        weight = params.weight
        z = (self.x * weight if weight.ndim == 1 else self.x @ weight.T) + params.bias
        return self._masked(z)

    def _masked(self, z: Floats) -> Floats:
        return np.where(self.masked, BOTTOM, z)

    def _only(self, rows: NDArray[np.bool_]) -> ShrunkenFit:
        return ShrunkenFit(self.x[rows], self.y[rows], self.w[rows], self.masked[rows], self.log_channel, self.levels)

    def _information(self, found: Found) -> tuple[Floats, Floats]:
        """Probabilities, and how much each sample tells: less where its true class stays in doubt."""
        z = self.logits(Params(found.weight, found.bias))
        q, _ = shrinkage.true_classes(z, self.log_channel, self.y)
        p = z - row_max(z)[:, None]
        np.exp(p, out=p)
        p /= p.sum(axis=1, keepdims=True)
        before, after = (np.vecdot(v, 1 - v) for v in (p, q))
        return p, self.w * np.clip(1 - after / np.maximum(before, 1e-12), 0.05, 1)

    def _penalty(self, precisions: list[float], total: float) -> Params:
        array = np.minimum(self._array(precisions) / total, 1e8)  # beyond, the gradient would be mere rounding
        return Params(array[:, 0] if self.levels < 3 else array[:, :-1], array[:, -1])

    def _array(self, precisions: list[float]) -> Floats:
        """Precision of each parameter: K×(K+1) with the bias last, K×2 for a diagonal matrix."""
        k = self.x.shape[1]
        biases, *more = precisions
        fixed = 1e9  # a level that is not allowed
        if self.levels < 3:
            return np.stack([np.full(k, more[0] if more else fixed), np.full(k, biases)], axis=1)
        array = np.full((k, k + 1), more[1])
        array[np.diag_indices(k)] = more[0]
        array[:, -1] = biases
        return array

    def _deviations(self, found: Found) -> tuple[Floats, list[NDArray[np.bool_]]]:
        """Return parameters as one array of their deviations from the prior, and which belong to each group."""
        weight = found.weight - self.prior.weight
        array = np.concatenate([weight[:, None] if weight.ndim == 1 else weight, found.bias[:, None]], axis=1)
        bias = np.zeros(array.shape, dtype=bool)
        bias[:, -1] = True
        if weight.ndim == 1:
            return array, [bias, ~bias][: self.levels]
        scale = np.zeros(array.shape, dtype=bool)
        scale[np.diag_indices(len(array))] = True
        return array, [bias, scale, ~(bias | scale)]
