"""Vector, matrix and Dirichlet scaling: multinomial regression on the logits, Eq. (9).

All three fit softmax(W x + b), x being the logits, centred: with W diagonal (vector scaling) or full (matrix scaling),
and on log-probabilities (Dirichlet calibration). They differ in W, in x, and in what they penalise.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from numbers import Real
from typing import Any, ClassVar, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from attemper.arrays import to_numpy
from attemper.calibrators.base import Calibrator
from attemper.calibrators.outcome import FitReport, judge
from attemper.calibrators.temperature import least_nll
from attemper.documents import Fields
from attemper.errors import AttemperWarning, EdgeWarning, FileError, InputError, option
from attemper.kernels import nll, regression
from attemper.kernels.regression import Params
from attemper.maps import AffineMap
from attemper.maps.affine import CENTRINGS, Centring, centred
from attemper.scores import Scores
from attemper.sketch import DEFAULT_T_RANGE

__all__ = ["DirichletCalibration", "MatrixScaling", "Towards", "VectorScaling"]

Towards = Literal["identity", "temperature", "zero"]

# Fewer samples than this for each parameter are few.
FEW = 10


class AffineCalibrator(Calibrator):
    """Base of the recipes that end in softmax(W x + b)."""

    diagonal: ClassVar[bool] = False

    l2: float
    intercept: float
    towards: Towards
    map_: AffineMap
    weight_: NDArray[np.float64]
    bias_: NDArray[np.float64]

    def summary(self) -> dict[str, Any]:
        """Return what was found, as plain numbers."""
        scale = self.weight_ if self.diagonal else np.diag(self.weight_)
        found = {
            "scale_low": float(scale.min()),
            "scale_high": float(scale.max()),
            "bias_low": float(self.bias_.min()),
            "bias_high": float(self.bias_.max()),
        }
        if not self.diagonal:
            off = self.weight_[~np.eye(len(self.bias_), dtype=bool)]
            found["off_diagonal"] = float(np.sqrt(np.mean(off**2)))
        return super().summary() | found

    def describe(self) -> list[str]:
        """Return the same in words."""
        found = self.summary()
        lines = [f"scales {found['scale_low']:.3g} to {found['scale_high']:.3g}"]
        lines += [f"biases {found['bias_low']:.3g} to {found['bias_high']:.3g}"]
        if not self.diagonal:
            lines += [f"off the diagonal {found['off_diagonal']:.2g} on average"]
        return [*lines, *super().describe()]

    def _check_parameters(self) -> None:
        for name in ("l2", "off_diagonal", "intercept"):
            value = getattr(self, name, 0.0)
            if not (isinstance(value, Real) and 0 <= float(value) <= 1e12):
                raise InputError(f"{name}={value!r}: expected a number from 0 (no penalty) to 1e12")
        if self.towards not in get_args(Towards):
            raise InputError(f"towards={self.towards!r}: expected 'identity', 'temperature' or 'zero'")
        if self._centring() not in CENTRINGS:
            raise InputError(f"centring={self._centring()!r}: expected one of {', '.join(map(repr, CENTRINGS))}")

    def _centring(self) -> Centring:
        return getattr(self, "centring", "log_probs")

    def _solve_scores(self, scores: Scores) -> None:
        assert scores.labels is not None
        h = to_numpy(scores.logits).astype(np.float64, copy=False)
        beta = _best_beta(scores)
        pull = {"identity": 1.0, "temperature": beta, "zero": 0.0}[self.towards]
        kept = _possible_somewhere(h, scores)
        k = int(kept.sum())
        some = h if kept.all() else h[:, kept]
        found = regression.minimise(
            centred(some, self._centring(), np),
            scores.labels if kept.all() else np.cumsum(kept)[scores.labels] - 1,
            scores.weights,
            self._multiple(pull, k),
            self._penalty(k),
            start=self._multiple(beta, k),
            possible=np.isfinite(some) if scores.masked else None,
        )
        # Of a class that is masked in every row nothing is known: it stays as it was, and the others do not heed it.
        self.weight_, self.bias_ = self._multiple(pull, scores.n_classes)
        self.weight_[kept if self.diagonal else np.ix_(kept, kept)] = found.weight.reshape((k,) * self.weight_.ndim)
        self.bias_[kept] = found.bias
        self.map_ = AffineMap(self.weight_, self.bias_, self._centring())
        value, changed = judge(self.map_, scores)
        self.fit_report_ = FitReport(
            converged=found.converged and found.attained,
            error=found.gap,
            edge=None,
            nll=value,
            n_samples=len(scores),
            passes=found.iterations + found.products,
            message=self._message(found, scores, kept),
            gradient_norm=found.gradient_norm,
            changed=changed,
        )
        if not self.fit_report_.converged:
            kind = AttemperWarning if found.attained else EdgeWarning
            warnings.warn(f"{type(self).__name__}: {self.fit_report_.message}. {advice()}", kind, stacklevel=3)

    def _multiple(self, scale: float, n_classes: int) -> Params:
        """W = scale · identity, b = 0."""
        one = np.ones(n_classes) if self.diagonal else np.eye(n_classes)
        return Params(scale * one, np.zeros(n_classes))

    def _penalty(self, n_classes: int) -> Params:
        """λ of the kernel, which has a factor of ½ that penalties here do not."""
        k = n_classes
        bias = np.full(k, 2 * self.l2 + 2 * self.intercept / k)
        if self.diagonal:
            return Params(np.full(k, 2.0 * self.l2), bias)
        off = 2 * getattr(self, "off_diagonal", 0.0) / max(k * (k - 1), 1)
        return Params(2 * self.l2 + off * (1 - np.eye(k)), bias)

    def _message(self, found: regression.Solution, scores: Scores, kept: NDArray[np.bool_]) -> str:
        k = int(kept.sum())
        parts = []
        if not found.attained:
            parts.append(f"no finite optimum: {self._why_endless(scores, kept)}")
        elif found.converged:
            parts.append("converged")
        else:
            parts.append("did NOT converge")
        parts.append(f"{found.iterations} Newton steps, gradient norm {found.gradient_norm:.0e}")
        count = 2 * k if self.diagonal else k * (k + 1)
        if len(scores) < FEW * count:
            parts.append(f"only {len(scores)} samples for {count} parameters")
        return "; ".join(parts)

    def _why_endless(self, scores: Scores, kept: NDArray[np.bool_]) -> str:
        assert scores.labels is not None
        absent = kept & (np.bincount(scores.labels, scores.weights, minlength=scores.n_classes) == 0)
        if not absent.any():
            return "some labels can be separated from the others, so the NLL only falls as W grows"
        names = self.classes_[absent].tolist()
        shown = ", ".join(map(str, names[:5])) + (", …" if len(names) > 5 else "")
        return f"no label is of class {shown}, so the NLL only falls as it is ruled out"

    def _fitted_from_fields(self, content: Fields) -> None:
        if not isinstance(self.map_, AffineMap) or (self.map_.weight.ndim == 1) != self.diagonal:
            raise FileError(f"{content.where}: the map is not one of {type(self).__name__}")
        self.weight_, self.bias_ = self.map_.weight, self.map_.bias


class VectorScaling(AffineCalibrator):
    """Give every class a scale and a bias of its own: softmax(v ∘ x + b) (Guo et al. 2017).

    It may change the prediction. With 2 K parameters it wants some ten labels of every class; with fewer, set ``l2``
    and ``towards="temperature"``.

    Parameters
    ----------
    centring : "mean", "none" or "log_probs"
        What x is. "mean": the logits less the mean of their row, so that a constant added to a row changes nothing.
        "none": the logits as they are, Eq. (9) to the letter. "log_probs": the logarithms of the probabilities.
    l2 : float
        Weight of the penalty Σ (v − v₀)² + Σ b², added to the mean NLL.
    intercept : float
        Weight of the mean of b².
    towards : "identity", "temperature" or "zero"
        v₀: one, the best single 1/T, or zero. Without ``l2`` it has no effect on probabilities.
    input, floor, classes
        As for `TemperatureScaling`.

    Attributes
    ----------
    weight_, bias_ : v and b
    map_ : AffineMap
    fit_report_ : FitReport
        Convergence, the gradient's norm, the validation NLL, the share of changed answers.
    classes_, n_features_in_

    Examples
    --------
    >>> import numpy as np
    >>> from attemper import VectorScaling
    >>> rng = np.random.default_rng(0)
    >>> logits = 3 * rng.normal(size=(4000, 3))
    >>> truth = logits * [0.4, 0.5, 0.6] + [0, 0, 1]
    >>> labels = (truth + rng.gumbel(size=logits.shape)).argmax(axis=1)
    >>> vs = VectorScaling(centring="none").fit(logits, labels)
    >>> vs.weight_.round(1), vs.bias_.round(1)
    (array([0.4, 0.5, 0.6]), array([-0.3, -0.3,  0.7]))
    """

    method = "vector"
    diagonal = True

    def __init__(
        self,
        *,
        centring: Centring = "mean",
        l2: float = 0.0,
        intercept: float = 0.0,
        towards: Towards = "identity",
        input: Literal["logits", "probs"] = "logits",
        floor: float | None = None,
        classes: Sequence[Any] | None = None,
    ) -> None:
        self.centring = centring
        self.l2 = l2
        self.intercept = intercept
        self.towards = towards
        self.input = input
        self.floor = floor
        self.classes = classes


class MatrixScaling(AffineCalibrator):
    """Let every class depend on the logits of all: softmax(W x + b) (Guo et al. 2017, Eq. 9).

    It may change the prediction. With K (K + 1) parameters it does harm unless labels are many times as many, or
    penalties are set. Without any, the labels can often be separated, and there is no finite optimum: that is told.

    Parameters
    ----------
    centring : "mean", "none" or "log_probs"
        What x is. "mean": the logits less the mean of their row, so that a constant added to a row changes nothing.
        "none": the logits as they are, Eq. (9) to the letter. "log_probs": the logarithms of the probabilities.
    l2 : float
        Weight of the penalty Σ (W − W₀)² + Σ b², added to the mean NLL.
    off_diagonal, intercept : float
        Weights of the mean of the squares off the diagonal of W, and of the mean of b² (ODIR, Kull et al. 2019).
    towards : "identity", "temperature" or "zero"
        W₀: the identity, the identity times the best single 1/T, or zero. Without ``l2`` it has no effect on
        probabilities, only on which of the many equivalent W is given: the nearest.
    input, floor, classes
        As for `VectorScaling`.

    Attributes
    ----------
    weight_, bias_ : W and b
    map_ : AffineMap
    fit_report_ : FitReport
        Convergence, the gradient's norm, the validation NLL, the share of changed answers.
    classes_, n_features_in_

    Examples
    --------
    >>> import numpy as np
    >>> from attemper import MatrixScaling
    >>> rng = np.random.default_rng(0)
    >>> logits = 3 * rng.normal(size=(4000, 3))
    >>> truth = logits / 2
    >>> truth[:, 0] += 0.3 * logits[:, 1]
    >>> labels = (truth + rng.gumbel(size=logits.shape)).argmax(axis=1)
    >>> MatrixScaling().fit(logits, labels).fit_report_.converged
    True
    """

    method = "matrix"

    def __init__(
        self,
        *,
        centring: Centring = "mean",
        l2: float = 0.0,
        off_diagonal: float = 0.0,
        intercept: float = 0.0,
        towards: Towards = "identity",
        input: Literal["logits", "probs"] = "logits",
        floor: float | None = None,
        classes: Sequence[Any] | None = None,
    ) -> None:
        self.centring = centring
        self.l2 = l2
        self.off_diagonal = off_diagonal
        self.intercept = intercept
        self.towards = towards
        self.input = input
        self.floor = floor
        self.classes = classes


class DirichletCalibration(AffineCalibrator):
    """softmax(W log p + b), with penalties off the diagonal and on b (Kull et al. 2019).

    That is what calibrated probabilities look like if those of each class follow a Dirichlet distribution. It is matrix
    scaling on log-probabilities; the penalties (ODIR) keep W from fitting noise. It may change the prediction.

    Parameters
    ----------
    off_diagonal, intercept : float
        λ and μ of the paper: weights of the mean of the squares off the diagonal of W, and of the mean of b², added to
        the mean NLL. The paper tunes both for every data set; so does `GridSearchCV` with ``scoring="neg_log_loss"``.
        The defaults do well for ten classes or fewer; a hundred want λ = 1000, and thousands of labels.
    l2 : float
        Weight of the penalty Σ (W − W₀)² + Σ b², the paper's alternative.
    towards : "identity", "temperature" or "zero"
        W₀, as for `MatrixScaling`.
    input, floor, classes
        As for `VectorScaling`. Logits are brought to log-probabilities first.

    Attributes
    ----------
    weight_, bias_ : W and b
    map_ : AffineMap
    fit_report_ : FitReport
        Convergence, the gradient's norm, the validation NLL, the share of changed answers.
    classes_, n_features_in_

    Examples
    --------
    >>> import numpy as np
    >>> from attemper import DirichletCalibration
    >>> rng = np.random.default_rng(0)
    >>> probs = rng.dirichlet([0.3, 0.3, 0.3], size=4000)
    >>> labels = (0.5 * np.log(probs) + [0, 0, 1] + rng.gumbel(size=probs.shape)).argmax(axis=1)
    >>> found = DirichletCalibration(off_diagonal=0.01, intercept=0.01, input="probs", floor=1e-8).fit(probs, labels)
    >>> np.diag(found.weight_).round(1)
    array([0.5, 0.5, 0.5])
    """

    method = "dirichlet"

    def __init__(
        self,
        *,
        off_diagonal: float = 10.0,
        intercept: float = 0.1,
        l2: float = 0.0,
        towards: Towards = "identity",
        input: Literal["logits", "probs"] = "logits",
        floor: float | None = None,
        classes: Sequence[Any] | None = None,
    ) -> None:
        self.off_diagonal = off_diagonal
        self.intercept = intercept
        self.l2 = l2
        self.towards = towards
        self.input = input
        self.floor = floor
        self.classes = classes


def advice() -> str:
    """Name a penalty where there is no finite optimum."""
    penalty = option("l2=0.1, towards='temperature'", "-p l2=0.1 -p towards=temperature")
    return f"A penalty gives a finite answer that moves less with the labels: {penalty}"


def _possible_somewhere(h: NDArray[np.float64], scores: Scores) -> NDArray[np.bool_]:
    """Tell for each class whether any sample leaves it open."""
    if not scores.masked:
        return np.ones(scores.n_classes, dtype=np.bool_)
    rows = h if scores.weights is None else h[scores.weights > 0]
    return np.asarray(np.isfinite(rows).any(axis=0))


def _best_beta(scores: Scores) -> float:
    """1/T of temperature scaling, with the edge of its range where there is no best T."""
    found = least_nll(scores)
    if isinstance(found, nll.Minimum):
        return float(found.beta)
    low, high = DEFAULT_T_RANGE
    return {"low": 1 / low, "high": 1 / high, "flat": 1.0}[found]
