"""Vector, matrix and Dirichlet scaling: multinomial regression on the logits, Eq. (9), with a ridge.

All three fit softmax(W x + b), x being the logits, centred: with W diagonal (vector scaling) or full (matrix scaling),
and on log-probabilities (Dirichlet calibration). The ridge draws W towards the best single temperature, 1/T times the
identity, and b towards zero, so that there is always one finite optimum, and few labels do little harm. Classes without
a label keep the temperature: only the others compete in the fit, which would otherwise push the unlabelled ones down.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal, cast

import numpy as np

from attemper._typing import Floats, InputKind
from attemper.calibrators.base import Calibrator, Fit, Report
from attemper.calibrators.temperature import best_temperature
from attemper.data.scores import Scores
from attemper.errors import ConvergenceWarning, InputError, check_number, warn
from attemper.kernels.multinomial import Params, minimise
from attemper.maps import Affine, Map, centred

Centring = Literal["mean", "none", "log_probs"]

L2 = 0.1  # little enough for 5000 labels of ten classes, enough for six labels of each of 200
MANY_CLASSES, L2_OF_MANY = 100, 1.0  # matrices of so many classes want more
BIAS_SHARE = 0.1  # ridge of a bias, in units of that of a weight


class _AffineScaling(Calibrator):
    """Base of the methods that end in softmax(W x + b)."""

    diagonal: ClassVar[bool] = False

    def __init__(self, *, l2: float | None = None, centring: Centring = "mean", input: InputKind = "logits",
                 classes: Any = None, zeros_as: float | None = None) -> None:  # fmt: skip
        super().__init__(input=input, classes=classes, zeros_as=zeros_as)
        self.l2, self.centring = l2, centring

    @property
    def weight_(self) -> Floats:
        """W, K×K, or its diagonal."""
        return cast(Affine, self.map_.stages[0]).weight

    @property
    def bias_(self) -> Floats:
        """Return b, one number for each class."""
        bias = cast(Affine, self.map_.stages[0]).bias
        return np.zeros(len(self.classes_)) if bias is None else bias

    def _fit(self, scores: Scores) -> Fit:
        l2, k = self._ridge(scores.n_classes), scores.n_classes
        best = best_temperature(scores)
        one = np.ones(k) if self.diagonal else np.eye(k)
        h = scores.logits
        labelled = np.bincount(scores.labels, scores.w, k) > 0 if l2 else np.ones(k, dtype=bool)
        possible = np.isfinite(h) & labelled if scores.masked or not labelled.all() else None
        x, centre = centred(h, self.centring, np), Params(one / best.t, np.zeros(k))
        found = minimise(x, scores.labels, scores.w, centre, l2, BIAS_SHARE * l2, possible=possible)
        if not found.converged:
            advice = "" if l2 else ". Without a ridge there may be no finite optimum. Use l2=0.1"
            norm = f"gradient norm {found.gradient_norm:.0e}"
            warn(f"{type(self).__name__}: not converged, {norm}{advice}", ConvergenceWarning)
        fitted = Map((Affine(found.at.weight, found.at.bias, self.centring),))
        facts = {"converged": found.converged, "error": found.error, "n_iter": found.n_iter}
        notes = [best.note] if best.note else []
        if not labelled.all():
            notes.append(f"{k - labelled.sum()} of {k} classes have no label, and keep the temperature")
        return Fit(fitted, Report.of(fitted, scores, **facts, notes=tuple(notes)))

    def _ridge(self, n_classes: int) -> float:
        """Weight of the ridge, in units of the mean NLL."""
        if self.centring not in ("mean", "none", "log_probs"):
            raise InputError(f"centring={self.centring!r}: expected 'mean', 'none' or 'log_probs'", "centring")
        if self.l2 is None:
            return L2_OF_MANY if n_classes >= MANY_CLASSES and not self.diagonal else L2
        check_number(self.l2, "l2", 0, 1e12)
        return float(self.l2)

    def _facts(self) -> list[str]:
        """Return what a reader wants to know of the fit, line by line."""
        scale = self.weight_ if self.diagonal else np.diag(self.weight_)
        lines = [f"scales {scale.min():.3g} to {scale.max():.3g}"]
        lines += [f"biases {self.bias_.min():.3g} to {self.bias_.max():.3g}"]
        if not self.diagonal:
            off = self.weight_[~np.eye(len(scale), dtype=bool)]
            lines += [f"off the diagonal {np.sqrt(np.mean(off**2)):.2g} on average"]
        return [*lines, *super()._facts()]


class VectorScaling(_AffineScaling):
    """Fit a scale and a bias for each class: softmax(v ∘ x + b) (Guo et al. 2017).

    It may change the prediction.

    Parameters
    ----------
    l2 : float, optional
        Ridge, in units of the mean NLL: l2 Σ (v − 1/T)² + l2/10 Σ b², T being the best single temperature. By default
        0.1; 0 is the method as published, which wants some ten labels of every class.
    centring : "mean", "none" or "log_probs"
        What x is. "mean": the logits less the mean of their row, so that a constant added to a row changes nothing.
        "none": the logits as they are, Eq. (9) to the letter. "log_probs": the logarithms of the probabilities.
    input, classes, zeros_as
        As for `TemperatureScaling`.

    Attributes
    ----------
    weight_, bias_ : v and b

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> logits = 3 * rng.normal(size=(4000, 3))
    >>> truth = logits * [0.4, 0.5, 0.6] + [0, 0, 1]
    >>> labels = (truth + rng.gumbel(size=logits.shape)).argmax(axis=1)
    >>> vs = VectorScaling(centring="none", l2=0).fit(logits, labels)
    >>> vs.weight_.round(1), vs.bias_.round(1)
    (array([0.4, 0.5, 0.6]), array([-0.3, -0.3,  0.7]))
    """

    method = "vector"
    title = "vector scaling"
    diagonal = True


class MatrixScaling(_AffineScaling):
    """Fit a matrix over all logits and a bias for each class: softmax(W x + b) (Guo et al. 2017, Eq. 9).

    It may change the prediction.

    Parameters
    ----------
    l2 : float, optional
        Ridge, in units of the mean NLL: l2 Σ (W − I/T)² + l2/10 Σ b², T being the best single temperature. By default
        0.1, and 1 from 100 classes on. 0 is the method as published: with K (K + 1) parameters it does harm unless
        labels are many times as many, and labels that W separates leave no finite optimum.
    centring : "mean", "none" or "log_probs"
        What x is, as for `VectorScaling`.
    input, classes, zeros_as
        As for `TemperatureScaling`.

    Attributes
    ----------
    weight_, bias_ : W and b

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> logits = 3 * rng.normal(size=(4000, 3))
    >>> truth = logits / 2
    >>> truth[:, 0] += 0.3 * logits[:, 1]
    >>> labels = (truth + rng.gumbel(size=logits.shape)).argmax(axis=1)
    >>> MatrixScaling().fit(logits, labels).report_.converged
    True
    """

    method = "matrix"
    title = "matrix scaling"


class DirichletCalibration(_AffineScaling):
    """Fit softmax(W log p + b) (Kull et al. 2019).

    That is what calibrated probabilities look like if those of each class follow a Dirichlet distribution. It may
    change the prediction.

    Parameters
    ----------
    l2 : float, optional
        Ridge as for `MatrixScaling`, by default 0.1, and 1 from 100 classes on. For ten classes it is ODIR of the paper
        with λ = 10 and μ = 0.1, and the same ridge on the diagonal.
    input, classes, zeros_as
        As for `TemperatureScaling`. Logits are brought to log-probabilities first.

    Attributes
    ----------
    weight_, bias_ : W and b

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> probs = rng.dirichlet([0.3, 0.3, 0.3], size=4000)
    >>> labels = (0.5 * np.log(probs) + [0, 0, 1] + rng.gumbel(size=probs.shape)).argmax(axis=1)
    >>> dirichlet = DirichletCalibration(l2=0.01, input="probs", zeros_as=1e-8)
    >>> np.diag(dirichlet.fit(probs, labels).weight_).round(1)
    array([0.5, 0.5, 0.5])
    """

    method = "dirichlet"
    title = "Dirichlet calibration"

    def __init__(self, *, l2: float | None = None, input: InputKind = "logits", classes: Any = None,
                 zeros_as: float | None = None) -> None:  # fmt: skip
        super().__init__(l2=l2, centring="log_probs", input=input, classes=classes, zeros_as=zeros_as)
