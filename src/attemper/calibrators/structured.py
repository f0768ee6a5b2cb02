"""Structured scaling: as much of a matrix as the data can tell, on top of the Bayesian temperature.

The model
---------
With x the centred logits divided by the temperature T of the Bayesian fit,

    z = x + b + s ∘ x + M x,        P(label) = Σ_k softmax(z)_k C_k,label

b are biases of the classes, s changes of their scales, M the rest of the matrix. Each of the three groups has a normal
prior around zero, whose variance is found by the evidence (`attemper.kernels.shrinkage`): a group of which the data
tell nothing stays at zero, and what remains is the Bayesian temperature. C is how labels come about: the network's own
floor for clean labels, and for noisy ones the annotators' errors besides, as the Bayesian fit has found them.

In the end the fit is judged on samples held out from it (five folds; the logits themselves tell the fold, so that the
order of samples and their repetition change nothing). If it does not beat the Bayesian temperature there, the latter is
given; for clean labels temperature and floor are found anew from the held-out samples if that is better still.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from attemper.arrays import to_numpy
from attemper.calibrators.annotators import Confusions
from attemper.calibrators.base import Calibrator
from attemper.calibrators.bayesian import BayesianTemperatureScaling
from attemper.calibrators.outcome import FitReport, judge
from attemper.calibrators.shrunken import FOLDS, LEVELS, Found, ShrunkenFit
from attemper.documents import Fields
from attemper.errors import AttemperWarning, EdgeWarning, FileError, InputError
from attemper.maps import AffineMap, Map, MixtureMap, map_from_fields
from attemper.maps.affine import centred
from attemper.scores import Scores
from attemper.sketch import DEFAULT_T_RANGE

__all__ = ["StructuredScaling"]

Floats = NDArray[np.float64]

MOST_CLASSES = 200  # beyond, K² numbers are more than validation data can tell
LEAST_SAMPLES = 20  # for each class, below which it is the same
WORTH = 5.0  # nats on held-out samples that make a new temperature worth it
LEAST_FLOOR = 1e-4  # labels have at least this to them, so that no single one rules


class StructuredScaling(Calibrator):
    """Class biases, class scales and a matrix on top of the Bayesian temperature, each as far as the data tell.

    The method of choice for more than a few hundred labels, clean or noisy. It may change the prediction:
    `fit_report_.changed` is the share of validation samples where it does. The accuracy may rise or fall a little; what
    improves is the NLL.

    Parameters
    ----------
    labels : "clean" or "noisy"
        Whether validation labels may be wrong.
    noise : "classwise" or "uniform"
        ``labels="noisy"``: whether annotators may confuse certain classes with others, or err anywhere.
    level : "matrix", "scales" or "biases"
        The most complex group allowed. With more than 200 classes, or fewer than 20 samples a class, the matrix is
        left out.
    t_range : (low, high)
        Temperatures considered.
    input, floor, classes
        As for `TemperatureScaling`.

    Attributes
    ----------
    bayes_ : BayesianTemperatureScaling
        The fit it starts from, with temperature, noise rate and confusions of the annotators.
    weight_, bias_ : arrays
        What multiplies the centred logits, and what is added; before the mixture of temperatures.
    spread_ : dict
        Standard deviation of the prior of each group, in units of logits at temperature T; empty if the Bayesian
        temperature is given.
    gain_ : float
        NLL by which it beats the Bayesian temperature on held-out validation samples; 0 if that one is given.
    map_, fit_report_, classes_, n_features_in_

    Examples
    --------
    >>> import numpy as np
    >>> from attemper import StructuredScaling
    >>> rng = np.random.default_rng(0)
    >>> logits = 3 * rng.normal(size=(2000, 5))
    >>> labels = (logits / 2 + [1, 0, 0, 0, -1] + rng.gumbel(size=logits.shape)).argmax(axis=1)
    >>> fitted = StructuredScaling().fit(logits, labels)
    >>> (fitted.bias_ - fitted.bias_.mean()).round(1), round(fitted.gain_, 2)
    (array([ 1.,  0.,  0., -0., -1.]), 0.13)
    """

    method = "structured"

    def __init__(
        self,
        *,
        labels: Literal["clean", "noisy"] = "clean",
        noise: Literal["classwise", "uniform"] = "classwise",
        level: Literal["matrix", "scales", "biases"] = "matrix",
        t_range: tuple[float, float] = DEFAULT_T_RANGE,
        input: Literal["logits", "probs"] = "logits",
        floor: float | None = None,
        classes: Sequence[Any] | None = None,
    ) -> None:
        self.labels = labels
        self.noise = noise
        self.level = level
        self.t_range = t_range
        self.input = input
        self.floor = floor
        self.classes = classes

    bayes_: BayesianTemperatureScaling
    weight_: Floats
    bias_: Floats
    spread_: dict[str, float]
    gain_: float

    @property
    def temperature_(self) -> float:
        """Median of the Bayesian temperature it starts from."""
        return self.bayes_.temperature_

    @property
    def noise_rate_(self) -> float:
        """Share of labels that are noise."""
        return self.bayes_.noise_rate_

    @property
    def noise_interval_(self) -> tuple[float, float]:
        """Credible interval of the noise rate."""
        return self.bayes_.noise_interval_

    @property
    def confusions_(self) -> Confusions | None:
        """Transition matrix of the annotators, with ``noise="classwise"``."""
        return self.bayes_.confusions_

    def summary(self) -> dict[str, Any]:
        """Return what was found, as plain numbers."""
        return self.bayes_.summary() | super().summary() | {"spread": self.spread_, "gain": self.gain_}

    def describe(self) -> list[str]:
        """Return the same in words."""
        if not self.spread_:
            return [
                *self.bayes_.describe(),
                "class structure is left out: too few samples, or no help on held-out ones",
            ]
        groups = ", ".join(f"{name} ± {value:.2g}" for name, value in self.spread_.items())
        return [
            *self.bayes_.describe(),
            f"on top of that {groups} (in logits); held-out NLL falls by {self.gain_:.4f}",
            *super().describe(),
        ]

    def _check_parameters(self) -> None:
        if self.level not in LEVELS:
            raise InputError(f"level={self.level!r}: expected one of {', '.join(map(repr, LEVELS))}")
        self._bayesian()._check_parameters()

    def _bayesian(self) -> BayesianTemperatureScaling:
        return BayesianTemperatureScaling(labels=self.labels, noise=self.noise, t_range=self.t_range)

    def _solve_scores(self, scores: Scores) -> None:
        assert scores.labels is not None
        plain = Scores.from_logits(to_numpy(scores.logits), scores.labels, sample_weight=scores.weights)
        self.bayes_ = self._bayesian().fit(plain)
        h = to_numpy(plain.logits).astype(np.float64, copy=False)
        y, w = scores.labels, np.ones(len(h)) if scores.weights is None else scores.weights
        if (w == 0).any():
            h, y, w = h[w > 0], y[w > 0], w[w > 0]
        t = self.bayes_.temperature_
        x = centred(h, "mean", np)
        fit = ShrunkenFit(x / t, y, w, np.isneginf(h), self._log_channel(own=True), self._levels(w.sum()))
        found, precisions = fit.by_evidence()
        self.spread_ = {name: float(p**-0.5) for name, p in zip(LEVELS, precisions)}
        mixture = self.bayes_.map_
        assert isinstance(mixture, MixtureMap)
        then: Map = MixtureMap(mixture.weights, tuple(b * t for b in mixture.betas), mixture.floor)
        self.weight_, self.bias_ = found.weight / t, found.bias
        held, gain = fit.held_out(_folds(x), found, precisions), 0.0
        if held is not None:
            channel = self._log_channel(own=False)
            reference = fit.likelihood(fit.x0, then, channel)
            gain = (fit.likelihood(held, then, channel) - reference) / w.sum()
            if self.labels == "clean":
                again = self._temperature_again(held, y, w, t)
                other = (fit.likelihood(held, again, channel) - reference) / w.sum()
                if other > gain + WORTH / w.sum():
                    then, gain = again, other
        self.gain_ = max(float(gain), 0.0)
        self.map_ = AffineMap(self.weight_, self.bias_, "mean", then)
        if self.gain_ == 0:  # nothing but the temperature is left
            self.map_, self.spread_ = mixture, {}
            self.weight_, self.bias_ = np.full_like(self.bias_, 1 / t), np.zeros_like(self.bias_)
        elif absent := np.flatnonzero((np.bincount(y, w, h.shape[1]) == 0) & ~fit.masked.all(axis=0)).tolist():
            warnings.warn(
                f"StructuredScaling: no label is of class {', '.join(str(self.classes_[k]) for k in absent[:5])}"
                f"{' …' if len(absent) > 5 else ''}, so these classes are predicted less; "
                "use bayes if they will occur.",
                EdgeWarning,
                stacklevel=3,
            )
        self._report(scores, found)

    def _log_channel(self, *, own: bool) -> Floats:
        """Log-probability of each label (column) for a true class (row): annotators, and the network's own floor."""
        k, bayes = self.n_features_in_, self.bayes_
        anywhere = (1 - bayes.noise_rate_) * np.eye(k) + bayes.noise_rate_ / k
        channel = anywhere if bayes.confusions_ is None else bayes.confusions_.matrix
        floor = max(bayes.floor_, LEAST_FLOOR) if own else 0.0
        with np.errstate(divide="ignore"):  # a label that cannot be
            return np.asarray(np.log((1 - floor) * channel + floor / k))

    def _levels(self, n_samples: float) -> int:
        k, asked = self.n_features_in_, LEVELS.index(self.level) + 1
        return min(asked, 2) if k > MOST_CLASSES or n_samples < LEAST_SAMPLES * k else asked

    def _temperature_again(self, held: Floats, y: NDArray[np.int64], w: Floats, t: float) -> Map:
        again = BayesianTemperatureScaling(prior_centre=self.bayes_.prior_centre - np.log(t))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", EdgeWarning)
            return again.fit(held, y, w).map_

    def _report(self, scores: Scores, found: Found) -> None:
        value, changed = judge(self.map_, scores)
        bayes = self.bayes_.fit_report_
        fell_back = not self.spread_
        message = bayes.message
        if not fell_back and bayes.edge is None:
            message = f"evidence in {found.rounds} rounds, gradient {found.gradient_norm:.0e} per sample; {message}"
        self.fit_report_ = FitReport(
            bayes.converged and (fell_back or found.converged),
            bayes.error if fell_back else found.gap,
            bayes.edge,
            value,
            len(scores),
            found.rounds,
            message,
            None if fell_back else found.gradient_norm,
            changed,
        )
        if not (fell_back or found.converged):
            warnings.warn(
                f"StructuredScaling: the fit stopped at a gradient of {found.gradient_norm:.1e} per sample.",
                AttemperWarning,
                stacklevel=4,
            )

    def known_within(self) -> float | None:
        """Return the factor within which the data fix the overall temperature, as `bayes_` finds it."""
        return self.bayes_.known_within()

    def _fitted_to_dict(self) -> dict[str, Any]:
        return {
            "bayes": self.bayes_._fitted_to_dict(),
            "bayes_map": self.bayes_.map_.to_dict(),
            "bayes_report": asdict(self.bayes_.fit_report_),
            "weight": self.weight_.tolist(),
            "bias": self.bias_.tolist(),
            "spread": self.spread_,
            "gain": self.gain_,
        }

    def _fitted_from_fields(self, content: Fields) -> None:
        bayes = self._bayesian()
        bayes._begin(self.n_features_in_, None)
        bayes.map_ = map_from_fields(content.fields("bayes_map"))
        bayes._fitted_from_fields(content.fields("bayes"))
        bayes.fit_report_ = FitReport.from_fields(content.fields("bayes_report"))
        self.bayes_ = bayes
        k = self.n_features_in_
        self.bias_ = content.array("bias", (k,))
        self.weight_ = content.array("weight")
        if self.weight_.shape not in ((k,), (k, k)):
            raise FileError(f"{content.where}: the field 'weight' has shape {self.weight_.shape} for {k} classes")
        if isinstance(self.map_, AffineMap):
            same = np.array_equal(self.weight_, self.map_.weight) and np.array_equal(self.bias_, self.map_.bias)
        else:
            same = self.map_ == bayes.map_
        if not same:
            raise FileError(f"{content.where}: not those of the map in this file; fit it again")
        spread = content.fields("spread")
        self.spread_ = {name: spread.number(name) for name in spread.content}
        self.gain_ = content.number("gain")


def _folds(x: Floats) -> NDArray[np.int64]:
    """Fold of each sample, told by its logits: the same wherever it stands, whatever the order of the classes."""
    size = np.log(np.maximum(np.einsum("nk,nk->n", x, x), 1e-300))
    return np.asarray(np.floor(FOLDS * (1000 * size % 1)).astype(np.int64) % FOLDS)
