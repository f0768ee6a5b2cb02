"""Vector, matrix and Dirichlet scaling: multinomial regression on the logits, Eq. (9).

All three fit softmax(W x + b), x being the logits, centred: with W diagonal (vector scaling) or full (matrix scaling),
and on log-probabilities (Dirichlet calibration). They differ in W, in x, and in what they penalise.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from attemper._checks import number, one_of
from attemper._typing import Floats
from attemper.calibrators.base import Calibrator
from attemper.calibrators.estimator import fitted, recipe
from attemper.calibrators.fit_report import FitReport
from attemper.calibrators.style import PURPLE, Style
from attemper.calibrators.temperature import best_temperature
from attemper.data.arrays import to_numpy
from attemper.data.scores import LabelledScores
from attemper.errors import ConvergenceWarning, EdgeWarning, warn
from attemper.kernels import regression
from attemper.kernels.regression import Params
from attemper.maps import AffineMap
from attemper.maps.affine import CENTRINGS, Centring, centred

__all__ = ["DirichletCalibration", "MatrixScaling", "PriorMean", "VectorScaling"]

PriorMean = Literal["identity", "temperature", "zero"]

FEW = 10  # samples per parameter below which the message calls them few; a rule of thumb, not benchmarked
MOST_CLASSES = 50  # beyond, `compare` would spend minutes on K² parameters; a limit of time, not benchmarked


@recipe
class AffineCalibrator(Calibrator):
    """Base of the recipes that end in softmax(W x + b)."""

    diagonal: ClassVar[bool] = False
    stored = ("weight_", "bias_")

    l2: float = 0.0
    bias_penalty: float = 0.0
    prior_mean: PriorMean = "identity"
    weight_: Floats = fitted()
    bias_: Floats = fitted()

    def summary(self) -> dict[str, Any]:
        """Return the fitted values as plain numbers."""
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
        """Return a readable summary, line by line."""
        found = self.summary()
        lines = [f"scales {found['scale_low']:.3g} to {found['scale_high']:.3g}"]
        lines += [f"biases {found['bias_low']:.3g} to {found['bias_high']:.3g}"]
        if not self.diagonal:
            lines += [f"off the diagonal {found['off_diagonal']:.2g} on average"]
        return [*lines, *super().describe()]

    def _check_parameters(self) -> None:
        for name in ("l2", "off_diagonal", "bias_penalty"):
            number(name, getattr(self, name, 0.0), 0, 1e12, expected="a number from 0 (no penalty) to 1e12")
        one_of("prior_mean", self.prior_mean, get_args(PriorMean))
        one_of("centring", self._centring(), CENTRINGS)

    def _centring(self) -> Centring:
        return getattr(self, "centring", "log_probs")

    def _solve_scores(self, scores: LabelledScores) -> None:
        h = to_numpy(scores.logits).astype(np.float64, copy=False)
        beta = best_temperature(scores).beta
        pull = {"identity": 1.0, "temperature": beta, "zero": 0.0}[self.prior_mean]
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
        self.weight_[kept if self.diagonal else np.ix_(kept, kept)] = found.at.weight.reshape((k,) * self.weight_.ndim)
        self.bias_[kept] = found.at.bias
        self.map_ = AffineMap(self.weight_, self.bias_, self._centring())
        self.fit_report_ = FitReport.of(
            self.map_,
            scores,
            converged=found.converged and found.attained,
            objective_gap=found.error,
            n_iter=found.n_iter + found.products,
            message=self._message(found, scores, kept),
            gradient_norm=found.gradient_norm,
        )
        if not self.fit_report_.converged:
            kind = ConvergenceWarning if found.attained else EdgeWarning
            warn(f"{type(self).__name__}: {self.fit_report_.message}. {advice()}", kind)

    def _multiple(self, scale: float, n_classes: int) -> Params:
        """W = scale · identity, b = 0."""
        one = np.ones(n_classes) if self.diagonal else np.eye(n_classes)
        return Params(scale * one, np.zeros(n_classes))

    def _penalty(self, n_classes: int) -> Params:
        """λ of the kernel, which has a factor of ½ that penalties here do not."""
        k = n_classes
        bias = np.full(k, 2 * self.l2 + 2 * self.bias_penalty / k)
        if self.diagonal:
            return Params(np.full(k, 2.0 * self.l2), bias)
        off = 2 * getattr(self, "off_diagonal", 0.0) / max(k * (k - 1), 1)
        return Params(2 * self.l2 + off * (1 - np.eye(k)), bias)

    def _message(self, found: regression.Solution, scores: LabelledScores, kept: NDArray[np.bool_]) -> str:
        k = int(kept.sum())
        parts = []
        if not found.attained:
            parts.append(f"no finite optimum: {self._why_endless(scores, kept)}")
        elif found.converged:
            parts.append("converged")
        else:
            parts.append("did NOT converge")
        parts.append(f"{found.n_iter} Newton steps, gradient norm {found.gradient_norm:.0e}")
        count = 2 * k if self.diagonal else k * (k + 1)
        if len(scores) < FEW * count:
            parts.append(f"only {len(scores)} samples for {count} parameters")
        return "; ".join(parts)

    def _why_endless(self, scores: LabelledScores, kept: NDArray[np.bool_]) -> str:
        absent = kept & (np.bincount(scores.labels, scores.weights, minlength=scores.n_classes) == 0)
        if not absent.any():
            return "some labels can be separated from the others, so the NLL only falls as W grows"
        names = self.classes_[absent].tolist()
        shown = ", ".join(map(str, names[:5])) + (", …" if len(names) > 5 else "")
        return f"no label is of class {shown}, so the NLL only falls as it is ruled out"


@recipe
class VectorScaling(AffineCalibrator):
    """Fit a scale and a bias for each class: softmax(v ∘ x + b) (Guo et al. 2017).

    It may change the prediction. With 2 K parameters it wants some ten labels of every class; with fewer, set ``l2``
    and ``prior_mean="temperature"``.

    Parameters
    ----------
    centring : "mean", "none" or "log_probs"
        What x is. "mean": the logits less the mean of their row, so that a constant added to a row changes nothing.
        "none": the logits as they are, Eq. (9) to the letter. "log_probs": the logarithms of the probabilities.
    l2 : float
        Weight of the penalty Σ (v − v₀)² + Σ b², added to the mean NLL.
    bias_penalty : float
        Weight of the mean of b².
    prior_mean : "identity", "temperature" or "zero"
        v₀: one, the best single 1/T, or zero. Without ``l2`` it has no effect on probabilities.
    input, zeros_as, classes
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
    title = "vector scaling"
    style = Style(PURPLE, (0, (3, 1)), "<")
    diagonal = True

    centring: Centring = "mean"


@recipe
class MatrixScaling(AffineCalibrator):
    """Fit a matrix over all logits and a bias for each class: softmax(W x + b) (Guo et al. 2017, Eq. 9).

    It may change the prediction. With K (K + 1) parameters it does harm unless labels are many times as many, or
    penalties are set. Without any, the labels can often be separated, and there is no finite optimum; a warning
    reports that.

    Parameters
    ----------
    centring : "mean", "none" or "log_probs"
        What x is. "mean": the logits less the mean of their row, so that a constant added to a row changes nothing.
        "none": the logits as they are, Eq. (9) to the letter. "log_probs": the logarithms of the probabilities.
    l2 : float
        Weight of the penalty Σ (W − W₀)² + Σ b², added to the mean NLL.
    off_diagonal, bias_penalty : float
        Weights of the mean of the squares off the diagonal of W, and of the mean of b² (ODIR, Kull et al. 2019).
    prior_mean : "identity", "temperature" or "zero"
        W₀: the identity, the identity times the best single 1/T, or zero. Without ``l2`` it has no effect on
        probabilities, only on which of the many equivalent W is given: the nearest.
    input, zeros_as, classes
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
    title = "matrix scaling"
    style = Style(PURPLE, (0, (6, 1.5)), ">")
    max_classes = MOST_CLASSES

    centring: Centring = "mean"
    off_diagonal: float = 0.0


@recipe
class DirichletCalibration(AffineCalibrator):
    """softmax(W log p + b), with penalties off the diagonal and on b (Kull et al. 2019).

    That is what calibrated probabilities look like if those of each class follow a Dirichlet distribution. It is matrix
    scaling on log-probabilities; the penalties (ODIR) keep W from fitting noise. It may change the prediction.

    Parameters
    ----------
    off_diagonal, bias_penalty : float
        λ and μ of the paper: weights of the mean of the squares off the diagonal of W, and of the mean of b², added to
        the mean NLL. The paper tunes both for every data set; so does `GridSearchCV` with ``scoring="neg_log_loss"``.
        The defaults do well for ten classes or fewer; a hundred want λ = 1000, and thousands of labels.
    l2 : float
        Weight of the penalty Σ (W − W₀)² + Σ b², the paper's alternative.
    prior_mean : "identity", "temperature" or "zero"
        W₀, as for `MatrixScaling`.
    input, zeros_as, classes
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
    >>> dirichlet = DirichletCalibration(off_diagonal=0.01, bias_penalty=0.01, input="probs", zeros_as=1e-8)
    >>> np.diag(dirichlet.fit(probs, labels).weight_).round(1)
    array([0.5, 0.5, 0.5])
    """

    method = "dirichlet"
    title = "Dirichlet calibration"
    style = Style(PURPLE, (0, (6, 1.5, 1, 1.5)), "P")
    max_classes = MOST_CLASSES

    off_diagonal: float = 10.0
    bias_penalty: float = 0.1


def advice() -> str:
    """Name a penalty where there is no finite optimum."""
    penalty = "l2=0.1, prior_mean='temperature'"
    return f"A penalty makes the optimum finite and less sensitive to single labels. Use {penalty}"


def _possible_somewhere(h: NDArray[np.float64], scores: LabelledScores) -> NDArray[np.bool_]:
    """Return for each class whether any sample leaves it open."""
    if not scores.masked:
        return np.ones(scores.n_classes, dtype=np.bool_)
    rows = h if scores.weights is None else h[scores.weights > 0]
    return np.asarray(np.isfinite(rows).any(axis=0))
