"""Structured scaling: temperature, class biases, class scales and a matrix, found together with the labels' errors.

The model
---------
With x the centred logits at temperature T,

    z = x + b + s ∘ x + M x,        P(label) = Σ_k softmax(z)_k C_k,label

b are biases of the classes, s changes of their scales, M the rest of the matrix; for two classes a curve takes the
place of the matrix. Each group has a prior around zero whose variance is found by the evidence
(`attemper.kernels.joint`): a group that the data do not support stays at zero. C is how labels come about: the
network's own floor for clean labels, the annotators' errors for noisy ones (`attemper.calibrators.explanations`).

In the end, with 100 samples or more, the fit is compared on samples held out from it (five folds; priors and rates stay
those of all samples; the logits themselves determine the fold, so that the order of samples and their repetition change
nothing) with one temperature and with the classifier as it is. Where one of those is better by two standard errors, it
is the result.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar
from scipy.special import ndtri

from attemper._checks import fraction, one_of
from attemper._typing import Floats
from attemper.calibrators.annotators import Confusions
from attemper.calibrators.base import Calibrator
from attemper.calibrators.clustering import design_note, tempered
from attemper.calibrators.empirical_bayes import STRUCTURES, Structure, fit_structure
from attemper.calibrators.estimator import fitted, recipe
from attemper.calibrators.explanations import Explanation, explain
from attemper.calibrators.fit_report import FitReport
from attemper.calibrators.group_fits import LabelErrors
from attemper.calibrators.label_noise import label_errors, noise_lines, noise_summary
from attemper.calibrators.one_temperature import student_factor
from attemper.calibrators.samples import Samples, check_noise_is_wanted, warn_of_light_weights
from attemper.calibrators.style import GREEN, Style
from attemper.calibrators.temperature import advice
from attemper.data.scores import LabelledScores
from attemper.errors import ConvergenceWarning, EdgeWarning, warn
from attemper.kernels.channel import Channel
from attemper.maps import AffineMap, MixtureMap, ScaleMap
from attemper.sketch import log_range

__all__ = ["StructuredScaling"]

MOST_CLASSES = 200  # beyond, K² numbers are more than validation data can support
FOLDS = 5
NODES, NODE_WEIGHTS = np.polynomial.hermite_e.hermegauss(5)  # of the mixture of temperatures
NODE_WEIGHTS = NODE_WEIGHTS / NODE_WEIGHTS.sum()
MAX_LOG_T_STD = 1.0
GRADIENT = 1e-5  # per sample, at which a fit counts as converged
HOPELESS = 100.0  # a gradient that only logits of vastly different sizes leave
LEAST_WEIGHT = 100  # of samples, below which held-out ones cannot decide
WORSE = 2.0  # standard errors by which a simpler map must be better to take the place of the fit


class _Simple(NamedTuple):
    """A map with at most one temperature: its log-likelihood sample by sample."""

    log_t: float | None  # None: the classifier as it is
    values: Floats


@recipe
class StructuredScaling(Calibrator):
    """Class biases, class scales and a matrix on top of a temperature, each shrunk to what the data support.

    The method of choice for clean and for noisy labels, from 20 of them on. It may change the prediction:
    `fit_report_.changed` is the share of validation samples where it does. The accuracy may rise or fall a little; what
    improves is the NLL.

    Parameters
    ----------
    labels : "clean" or "noisy"
        Whether validation labels may be wrong.
    noise : "auto", "uniform" or "classwise"
        ``labels="noisy"``: "auto" weighs errors that fall anywhere and errors that confuse certain classes with others
        by their evidence. Name one to leave the other out.
    structure : "matrix", "scales" or "biases"
        The most complex group allowed. With more than 200 classes the matrix is left out. With two classes "matrix"
        allows a curve of the log-odds, as beta calibration does.
    t_range : (low, high), optional
        Temperatures considered; by default all.
    credible_level : float
        Level of the credible intervals.
    input, zeros_as, classes
        As for `TemperatureScaling`.

    Attributes
    ----------
    temperature_, temperature_interval_ : float, (float, float)
        The overall temperature, with its credible interval.
    noise_rate_, noise_interval_ : float, (float, float)
        Share of labels that are noise: posterior mean and credible interval; zero for clean labels.
    classwise_ : float
        Posterior probability that errors depend on the class.
    confusions_ : Confusions or None
        How each class is labelled, where errors may depend on the class.
    uniform_mass_ : float
        Probability of a uniform guess, which stays in the prediction: the network's own floor, for clean labels.
    weight_, bias_ : arrays
        What multiplies the centred logits, and what is added; before the mixture of temperatures.
    prior_std_ : dict
        Standard deviation of the prior of each group, in units of logits at temperature T; empty if a simpler map is
        the result.
    heldout_gain_ : float or None
        NLL by which it beats one temperature on held-out validation samples, below zero if it does not; 0 if a simpler
        map is the result, None with too few samples to compare.
    map_, fit_report_, classes_, n_features_in_

    Examples
    --------
    >>> import numpy as np
    >>> from attemper import StructuredScaling
    >>> rng = np.random.default_rng(0)
    >>> logits = 3 * rng.normal(size=(2000, 5))
    >>> labels = (logits / 2 + [1, 0, 0, 0, -1] + rng.gumbel(size=logits.shape)).argmax(axis=1)
    >>> fitted = StructuredScaling().fit(logits, labels)
    >>> (fitted.bias_ - fitted.bias_.mean()).round(1), round(fitted.heldout_gain_, 1)
    (array([ 1.,  0.,  0., -0., -1.]), 0.1)
    """

    method = "structured"
    needs_few_labels = True
    title = "structured scaling"
    style = Style(GREEN, (0, (5, 1, 1, 1, 1, 1)), "D")
    knows_noise = True

    labels: Literal["clean", "noisy"] = "clean"
    noise: Literal["auto", "uniform", "classwise"] = "auto"
    structure: Literal["matrix", "scales", "biases"] = "matrix"
    t_range: tuple[float, float] | None = None
    credible_level: float = 0.95

    stored = (
        *("temperature_", "temperature_interval_", "noise_rate_", "noise_interval_", "classwise_", "confusions_"),
        *("uniform_mass_", "weight_", "bias_", "prior_std_", "heldout_gain_"),
    )

    temperature_: float = fitted()
    temperature_interval_: tuple[float, float] = fitted()
    noise_rate_: float = fitted()
    noise_interval_: tuple[float, float] = fitted()
    classwise_: float = fitted()
    confusions_: Confusions | None = fitted()
    uniform_mass_: float = fitted()
    weight_: Floats = fitted()
    bias_: Floats = fitted()
    prior_std_: dict[str, float] = fitted()
    heldout_gain_: float | None = fitted()

    def summary(self) -> dict[str, Any]:
        """Return the fitted values as plain numbers."""
        own = {"prior_std": self.prior_std_, "heldout_gain": self.heldout_gain_}
        t = {"temperature": self.temperature_, "temperature_interval": list(self.temperature_interval_)}
        return super().summary() | t | noise_summary(self) | own

    def describe(self) -> list[str]:
        """Return a readable summary, line by line."""
        lines = noise_lines(self)
        if not self.prior_std_:
            if self.map_ == ScaleMap(1.0):
                alone = "better left alone: on held-out samples the classifier as it is, T = 1, is better than the fit"
                return [alone, *lines[1:], *self._group_lines()]
            return [*lines, "class structure is left out: no help on held-out samples", *self._group_lines()]
        groups = ", ".join(f"{name} ± {value:.2g}" for name, value in self.prior_std_.items())
        gain = self.heldout_gain_
        held_out = "too few samples to compare with one temperature"
        if gain is not None:
            held_out = (
                f"held-out NLL falls by {gain:.4f}" if gain > 0 else f"held-out NLL rises by {-gain:.4f}, by chance"
            )
        return [
            *lines,
            f"on top of that {groups} (in logits); {held_out}",
            *super().describe(),
        ]

    def _label_errors(self) -> LabelErrors:
        return label_errors(self)

    def _check_parameters(self) -> None:
        one_of("structure", self.structure, STRUCTURES)
        one_of("noise", self.noise, ("auto", "uniform", "classwise"))
        one_of("labels", self.labels, ("clean", "noisy"))
        fraction("credible_level", self.credible_level)
        check_noise_is_wanted(self.labels, self.noise)
        if self.t_range is not None:
            log_range(self.t_range)

    def _solve_scores(self, scores: LabelledScores) -> None:
        warn_of_light_weights(scores)
        scores, effect = tempered(scores, biases=True)
        samples = Samples.of(scores)
        if self.t_range is not None:
            samples = samples.within(log_range(self.t_range))
        explanation, found = self._find(samples)
        edge: Literal["low", "high"] | None = None
        if self.t_range is not None and not self.t_range[0] <= found.temperature <= self.t_range[1]:
            edge = "low" if found.temperature < self.t_range[0] else "high"
            spread = found.fit.log_t_std
            explanation, found = self._find(samples.at(float(np.log(np.clip(found.temperature, *self.t_range)))))
            found = found._replace(fit=found.fit._replace(log_t_std=spread))
        if not found.fit.gradient_norm < HOPELESS:
            raise np.linalg.LinAlgError("the fit diverges")
        self._set_noise(explanation)
        self.uniform_mass_ = found.uniform_mass
        simple = self._better_and_simpler(samples, explanation.channel, found)
        if simple is None:
            self._take(found)
            self._warn_of_absent_classes(samples)
        else:
            self._take_simple(simple, found)
        self._report(scores, found, edge)
        self._warn_of_no_errors(samples)
        if scores.cases is not None:
            n = int(scores.cases.max()) + 1
            message = f"{self.fit_report_.message}; {design_note(effect, n)}"
            self.fit_report_ = replace(self.fit_report_, message=message)

    def _allow_for_clusters(self, scores: LabelledScores) -> None:
        """Allow for few cases; the posterior has been widened by the design effect."""
        if scores.cases is not None:
            t, (low, high) = self.temperature_, self.temperature_interval_
            wider = student_factor(max(2, int(scores.cases.max()) + 1))
            ends = (t * (low / t) ** wider, t * (high / t) ** wider)
            self.temperature_interval_ = ends if self.t_range is None else tuple(np.clip(ends, *self.t_range).tolist())

    def _find(self, samples: Samples) -> tuple[Explanation, Structure]:
        explanation = explain(samples, self.labels, self.noise)
        structure = self.structure
        if samples.n_classes > MOST_CLASSES and structure == "matrix":
            structure = "scales"
        return explanation, fit_structure(samples, explanation, self.labels, structure, _folds(samples.x, samples.case))

    def _set_noise(self, explanation: Explanation) -> None:
        k = self.n_features_in_
        self.noise_rate_, self.noise_interval_, self.classwise_, self.confusions_ = 0.0, (0.0, 0.0), 0.0, None
        if self.labels == "noisy":
            self.noise_rate_ = explanation.noise_rate()
            self.noise_interval_ = explanation.noise_interval(self.credible_level)
            self.classwise_ = explanation.classwise
            self.confusions_ = explanation.confusions(k, self.credible_level)

    def _take(self, found: Structure) -> None:
        fit = found.fit
        names: tuple[str, ...] = STRUCTURES[:2] if found.weight.ndim == 1 else STRUCTURES
        precisions = fit.precisions._asdict()
        if found.curve is not None:
            names = ("biases", "curve")
        elif len(self.classes_) == 2 or self.structure == "biases":
            names = STRUCTURES[:1]
        self.prior_std_ = {name: float(precisions[name] ** -0.5) for name in names}
        self.weight_, self.bias_ = found.weight, found.bias
        then = self._mixture(1.0, fit.log_t_std)
        self.map_ = AffineMap(found.weight, found.bias, "mean", then, found.curve, found.scale)
        self._set_temperature(found.temperature, fit.log_t_std)

    def _take_simple(self, simple: _Simple, found: Structure) -> None:
        k = self.n_features_in_
        self.prior_std_, self.heldout_gain_ = {}, 0.0
        if simple.log_t is None:
            self.uniform_mass_ = 0.0
            self.map_ = ScaleMap(1.0)
            self._set_temperature(1.0, found.fit.log_t_std)
        else:
            t = float(np.exp(simple.log_t))
            self.map_ = self._mixture(1 / t, found.fit.log_t_std)
            self._set_temperature(t, found.fit.log_t_std)
        self.weight_, self.bias_ = np.full(k, 1 / self.temperature_), np.zeros(k)

    def _mixture(self, beta: float, log_t_std: float) -> MixtureMap:
        """Return an average over what the data leave open of the temperature, with the network's own floor."""
        spread = min(log_t_std, MAX_LOG_T_STD)
        weights = (1 - self.uniform_mass_) * NODE_WEIGHTS
        return MixtureMap(tuple(weights.tolist()), tuple((beta * np.exp(spread * NODES)).tolist()), self.uniform_mass_)

    def _set_temperature(self, t: float, log_t_std: float) -> None:
        tails = float(np.exp(float(ndtri((1 + self.credible_level) / 2)) * min(log_t_std, 10.0)))
        low, high = (0.0, np.inf) if self.t_range is None else self.t_range
        self.temperature_ = float(np.clip(t, low, high))
        self.temperature_interval_ = (max(t / tails, low), min(t * tails, high))

    def _better_and_simpler(self, samples: Samples, channel: Channel, found: Structure) -> _Simple | None:
        """Return one temperature or none at all, if that is better on held-out samples; set the gain over the first."""
        self.heldout_gain_ = None
        if found.held_out is None or samples.w.sum() < LEAST_WEIGHT:
            return None
        part = found.part
        x, y, w = samples.x[part], samples.y[part], samples.w[part]
        total = float(w.sum())
        if samples.masked is not None:
            x = np.where(samples.masked[part], -np.inf, x)

        def values(log_t: float) -> Floats:
            return channel.log_likelihood(np.maximum(x * np.exp(-log_t), -1e30), y)

        low, high = found.fit.log_t - 3, found.fit.log_t + 3
        if self.t_range is not None:
            low, high = np.clip((low, high), *log_range(self.t_range))
        best = minimize_scalar(
            lambda u: -float(w @ values(u)) - samples.prior.log_density(u),
            bounds=(low, high),
            method="bounded",
            options={"xatol": 1e-3},
        )
        one = _Simple(float(best.x), values(float(best.x)) - 1 / total)
        as_it_is = channel if self.labels == "noisy" else Channel()  # without the floor that a map would add
        alone = _Simple(None, as_it_is.log_likelihood(np.maximum(x, -1e30), y))
        self.heldout_gain_ = float(w @ (found.held_out - one.values)) / total
        worse = []
        may_be_one = self.t_range is None or self.t_range[0] <= 1 <= self.t_range[1]
        for simple in (one, alone) if may_be_one else (one,):
            difference = simple.values - found.held_out
            mean = float(w @ difference) / total
            error = float(np.sqrt(w @ (difference - mean) ** 2)) / total
            if mean > WORSE * error:
                worse.append((mean, simple))
        return max(worse, key=lambda pair: pair[0])[1] if worse else None

    def _warn_of_absent_classes(self, samples: Samples) -> None:
        k = self.n_features_in_
        never = np.zeros(k, dtype=bool) if samples.masked is None else samples.masked.all(axis=0)
        absent = np.flatnonzero((np.bincount(samples.y, samples.w, k) == 0) & ~never).tolist()
        if absent:
            warn(
                f"StructuredScaling: no label is of class {', '.join(str(self.classes_[i]) for i in absent[:5])}"
                f"{' …' if len(absent) > 5 else ''}, so these classes are predicted less; "
                "use bayes if they will occur.",
                EdgeWarning,
            )

    def _warn_of_no_errors(self, samples: Samples) -> None:
        if (samples.x.argmax(axis=1) == samples.y).all() and self.map_ != ScaleMap(1.0):
            warn(
                f"StructuredScaling: every label is the arg max of its logits, so only the prior keeps T = "
                f"{self.temperature_:.3g} from 0. {advice(no_errors=True)}",
                EdgeWarning,
            )

    def _report(self, scores: LabelledScores, found: Structure, edge: Literal["low", "high"] | None) -> None:
        norm, converged = found.fit.gradient_norm, found.fit.gradient_norm < GRADIENT
        simple = not self.prior_std_
        message = f"evidence in {found.fit.rounds} rounds, gradient {norm:.0e} per sample"
        if simple:
            message += "; on held-out samples a simpler map is better: " + self.describe()[-1]
        self.fit_report_ = FitReport.of(
            self.map_,
            scores,
            converged=simple or converged,
            objective_gap=None if simple else found.gap,
            edge=edge,
            n_iter=found.fit.rounds,
            message=message,
            gradient_norm=None if simple else norm,
            left_alone=self.map_ == ScaleMap(1.0),
        )
        if edge is not None and self.t_range is not None:
            low, high = self.t_range
            warn(
                f"StructuredScaling: T lies on the edge of the range ({low:g}, {high:g}), or beyond it; widen "
                f"t_range, or leave it out.",
                EdgeWarning,
            )
        if not (simple or converged):
            warn(f"StructuredScaling: the fit stopped at a gradient of {norm:.1e} per sample.", ConvergenceWarning)

    def known_within(self) -> float | None:
        """Return the factor by which the ends of the interval of T differ from T."""
        low, high = self.temperature_interval_
        return max(self.temperature_ / low, high / self.temperature_)


def _folds(x: Floats, case: NDArray[np.int64] | None = None) -> NDArray[np.int64]:
    """Fold of each sample by the rank of its size: of no order of samples or classes, of no scale; equal ones agree.

    Samples of one case are in one fold, by the rank of the mean of their sizes.
    """
    size = np.einsum("nk,nk->n", x, x)
    if case is not None:
        size = (np.bincount(case, size) / np.maximum(np.bincount(case), 1))[case]
    _, rank = np.unique(size, return_inverse=True)
    return np.asarray(rank % FOLDS, dtype=np.int64)
