"""Bayesian temperature scaling: few labels, wrong labels, no error in sight; always an answer, with its spread.

The model, its priors and its posterior are in `attemper.calibrators.posterior`.
"""

from __future__ import annotations

from dataclasses import fields, replace
from functools import partial
from typing import Any, Literal

import numpy as np
from scipy.special import expit

from attemper._checks import fraction, one_of
from attemper._typing import Floats
from attemper.calibrators.annotators import Confusions
from attemper.calibrators.clustering import design_note, tempered
from attemper.calibrators.estimator import fitted, recipe
from attemper.calibrators.explanations import MAX_CLASSWISE, Explanation, explain, true_class_gap
from attemper.calibrators.fit_report import FitReport, validation_nll_and_changes
from attemper.calibrators.group_fits import LabelErrors
from attemper.calibrators.label_noise import LabelNoise, label_errors, label_noise, noise_lines, noise_summary
from attemper.calibrators.one_temperature import student_factor
from attemper.calibrators.posterior import Model, Posterior
from attemper.calibrators.samples import Samples, check_noise_is_wanted, warn_of_light_weights
from attemper.calibrators.streaming import StreamingCalibrator
from attemper.calibrators.style import BLUE, Style
from attemper.data.scores import LabelledScores
from attemper.errors import ConvergenceWarning, EdgeWarning
from attemper.kernels import chebyshev, quadrature
from attemper.kernels.shrinkage import ScalePrior
from attemper.maps import MixtureMap
from attemper.sketch import Part, Sketch, focused, log_range

__all__ = ["BayesianTemperatureScaling"]


MAX_LOG_T_ERROR = 0.02  # that a table may leave; a limit by reason, no benchmark chose it
MAX_ELEMENTS = 1 << 17  # of logits that the reported NLL is that of the mixture for
N_COMPONENTS = 8  # of the mixture; 8 lose less than 1e-5 nats against the full posterior

Explained = tuple[Explanation, float, float, float]  # and what `Model.given_true_classes` takes


@recipe
class BayesianTemperatureScaling(StreamingCalibrator):
    """Average over temperatures (and rates of wrong labels), weighted by their posterior probability.

    Never changes the prediction. Finite with any labels: few, wrong, or all right.

    Parameters
    ----------
    labels : "clean" or "noisy"
        Whether validation labels may be wrong. The data alone cannot distinguish a network that fails now and
        then from annotators that do, so you must specify it.
    noise : "auto", "uniform" or "classwise"
        ``labels="noisy"``: how labels go wrong. "auto" weighs errors that fall anywhere, errors among similar classes
        and confusions of certain classes with others by their evidence, with class biases of the network in the model,
        so that a biased classifier is not taken for bad labels. That needs the logits themselves; from a sketch "auto"
        is "uniform", which leaves biases and confusions out. "classwise" takes confusions for granted.
    t_range : (low, high), optional
        Temperatures considered; by default those that suit the scale of the logits.
    prior_centre, prior_slope, prior_scale, prior_df : float
        log T ~ Student-t(df) around centre + slope · logit(mean confidence), with that scale.
    floor_probability, floor_shape : float, (float, float)
        Probability that the network has a floor of its own, and the Beta law of its height.
    similar_probability, similar_shape : float, float
        ``labels="noisy"``: prior probability that errors fall among similar classes rather than anywhere, and b of
        the Beta(1, b) law of their rate.
    credible_level : float
        Level of the credible intervals.
    input, zeros_as, classes
        As for `TemperatureScaling`.

    Attributes
    ----------
    temperature_, temperature_interval_ : float, (float, float)
        Posterior median and credible interval of T.
    noise_rate_, noise_interval_ : float, (float, float)
        Share of labels that are noise: posterior mean and credible interval; zero for clean labels. A noise label
        is drawn at random and right by chance once in K times; of confusions only wrong labels count.
    uniform_mass_ : float
        Probability of a uniform guess, which stays in the prediction: the network's own floor.
    similar_, classwise_ : float
        Posterior probability that the errors, if there are any, fall among similar classes; that they depend on the
        class.
    confusions_ : Confusions or None
        The transition matrix, posterior means and credible intervals: row k is how samples whose true class is k are
        labelled. None where confusions were not considered.
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
    needs_few_labels = True
    title = "Bayesian temperature scaling"
    style = Style(BLUE, "-", "o")
    sketch_tables = ("uniform",)
    knows_noise = True

    labels: Literal["clean", "noisy"] = "clean"
    noise: Literal["auto", "uniform", "classwise"] = "auto"
    t_range: tuple[float, float] | None = None
    prior_centre: float = 0.15  # docs/bayesian.md has the sets that chose these
    prior_slope: float = 0.125
    prior_scale: float = 0.4
    prior_df: float = 4.0
    floor_probability: float = 0.1
    floor_shape: tuple[float, float] = (0.25, 20.0)
    similar_probability: float = 0.1
    similar_shape: float = 4.0
    credible_level: float = 0.95

    stored = (
        *StreamingCalibrator.stored,
        *("noise_rate_", "noise_interval_", "uniform_mass_", "similar_", "classwise_", "confusions_", "posterior_"),
    )

    temperature_interval_: tuple[float, float] = fitted()
    noise_rate_: float = fitted()
    noise_interval_: tuple[float, float] = fitted()
    uniform_mass_: float = fitted()
    similar_: float = fitted()
    classwise_: float = fitted()
    confusions_: Confusions | None = fitted()
    posterior_: Posterior = fitted()

    def model(self) -> Model:
        """Return the priors, from which a sketch gives the joint posterior again."""
        return Model(**{f.name: getattr(self, f.name) for f in fields(Model)})

    def sketch_parts(self) -> tuple[Part, ...] | None:
        """Return the tables of a sketch that this fit needs; None for ``noise="classwise"``, which needs the rows."""
        if self.labels == "noisy" and self.noise == "classwise":
            return None
        return self._parts()

    def _parts(self) -> tuple[Part, ...]:
        return ("uniform", "similar") if self.labels == "noisy" else ("uniform",)

    def summary(self) -> dict[str, Any]:
        """Return the fitted values as plain numbers."""
        return super().summary() | noise_summary(self) | {"similar": self.similar_}

    def describe(self) -> list[str]:
        """Return a readable summary, line by line."""
        return noise_lines(self) + self._group_lines()

    def _label_errors(self) -> LabelErrors:
        return label_errors(self, similar=self.similar_)

    def _check_parameters(self) -> None:
        one_of("noise", self.noise, ("auto", "uniform", "classwise"))
        one_of("labels", self.labels, ("clean", "noisy"))
        check_noise_is_wanted(self.labels, self.noise)
        self.model().check()
        if self.t_range is not None:
            log_range(self.t_range)
        fraction("credible_level", self.credible_level)

    def _solve_scores(self, scores: LabelledScores) -> None:
        warn_of_light_weights(scores)
        scores, effect = tempered(scores)
        explained = None
        many = scores.n_classes > MAX_CLASSWISE
        if self.labels == "noisy" and (self.noise == "classwise" or (self.noise == "auto" and not many)):
            prior = ScalePrior(self.prior_centre, self.prior_scale, self.prior_df)
            samples = Samples.of(scores, prior, self.prior_slope)
            explanation = explain(samples, "noisy", self.noise, unbiased=True)
            explained = explanation, *true_class_gap(samples, explanation), explanation.log_t_variance
        window = partial(self._window, explained)
        self._solve(*focused(scores, window, t_range=self.t_range, parts=self._parts()), explained)
        self._report_nll(scores)
        if scores.cases is not None:
            self._note(design_note(effect, int(scores.cases.max()) + 1))

    def _allow_for_clusters(self, scores: LabelledScores) -> None:
        """Allow for few cases; the posterior has been widened by the design effect."""
        if scores.cases is None:
            super()._allow_for_clusters(scores)
            return
        wider = student_factor(max(2, int(scores.cases.max()) + 1))
        low, high = self.temperature_interval_
        t = self.temperature_
        self.temperature_interval_ = (t * (low / t) ** wider, t * (high / t) ** wider)

    def _solve_sketch(self, sketch: Sketch) -> None:
        self._check_range_of(sketch)
        self._solve(sketch, sketch, None)

    def _window(self, explained: Explained | None, sketch: Sketch) -> tuple[float, float]:
        """Temperatures that the posterior does not rule out."""
        model = self.model()
        u, _, parts = model.grid(sketch)
        ends = _ends(u, np.sum([part.weight.sum(axis=1) for part in parts], axis=0))
        if explained is not None:
            ends += _ends(*model.given_true_classes(sketch, *explained[1:]))
        return float(np.exp(min(ends))), float(np.exp(max(ends)))

    def _solve(self, sketch: Sketch, whole: Sketch, explained: Explained | None) -> None:
        """Average over the posterior; ``explained`` is an account of the labels in which the network has biases.

        ``sketch`` covers the temperatures that matter, ``whole`` all of them.
        """
        model = self.model()
        u, v, parts = model.grid(sketch)
        e = expit(v)
        of_t = np.sum([part.weight.sum(axis=1) for part in parts], axis=0)
        kept = np.sum([part.weight @ (1 - part.floor) for part in parts], axis=0)
        noise = LabelNoise()
        if self.labels == "noisy":
            noise = label_noise(model, e, parts, self.credible_level)
        rates = e, np.sum([p.weight.sum(axis=0) for p in parts if p.has_rate_axis], axis=0)
        nodes, weights = quadrature.gauss(u, kept, N_COMPONENTS)
        error = model.interpolation_error(sketch, u, v, parts)
        if explained is not None:
            explanation, *facts = explained
            share = 1.0 if explanation.channel.matrix is not None else explanation.biased
            at, of_at = model.given_true_classes(sketch, *facts)
            more, and_weights = quadrature.gauss(at, of_at * (1 - explanation.own_floor), N_COMPONENTS)
            nodes, weights = np.concatenate([nodes, more]), np.concatenate([(1 - share) * weights, share * and_weights])
            order = np.argsort(np.concatenate([u, at]))
            u = np.concatenate([u, at])[order]
            of_t = np.concatenate([(1 - share) * of_t, share * of_at])[order]
            noise = noise.mixed(explanation, share, self.n_features_in_, self.credible_level)
            if share > 0.5:
                rates = explanation.law.rate, explanation.law.weight
        self.uniform_mass_ = float(max(0.0, 1 - weights.sum()))
        weights *= (1 - self.uniform_mass_) / weights.sum()
        large = weights > 1e-12
        self.map_ = MixtureMap(
            tuple(weights[large].tolist()),
            tuple(np.exp(-nodes[large]).tolist()),
            max(0.0, 1 - float(weights[large].sum())),
        )
        self.uniform_mass_ = self.map_.uniform_mass
        tails = (1 - self.credible_level) / 2
        low, middle, high = np.exp(quadrature.quantiles(u, of_t, [tails, 0.5, 1 - tails]))
        self.temperature_ = float(middle)
        self.temperature_interval_ = (float(low), float(high))
        self.noise_rate_, self.noise_interval_, self.similar_, self.classwise_, self.confusions_ = noise
        self.posterior_ = Posterior(np.exp(u), of_t, *rates)
        self._report(sketch, whole, u, of_t, error)

    def _report_nll(self, scores: LabelledScores) -> None:
        """Report the NLL of the map. Of many samples, that of the median T is; of few, the posterior is wide."""
        if len(scores) <= max(200, MAX_ELEMENTS // scores.n_classes):
            nll, _ = validation_nll_and_changes(self.map_, scores)
            self.fit_report_ = replace(self.fit_report_, nll=nll)

    def _report(self, sketch: Sketch, whole: Sketch, u: Floats, of_t: Floats, nats: float) -> None:
        value = sketch.mean_nll(self.temperature_, self.uniform_mass_)
        spread = float(np.sqrt(of_t @ (u - of_t @ u) ** 2))
        # A log-likelihood that is off by δ everywhere at most moves the posterior mean by 2 δ standard deviations.
        error = 2 * nats * spread
        edge = self._edge(sketch, whole, u, of_t)
        message = f"posterior standard deviation of log T: {spread:.2g}; the grid is exact to {error:.0e}"
        if edge is not None:
            message = f"T lies on the edge of the range ({whole.t_range[0]:g}, {whole.t_range[1]:g}), or beyond it"
            if edge == "low" and sketch.perfect:
                advice = "Every label is the arg max, so only the range keeps T from 0; more labels would help."
            else:
                advice = (
                    "If the logits are on an unusual scale, divide them by a constant or widen "
                    "t_range; otherwise check that the labels match the logit columns."
                )
            self._warn(f"{message}. {advice}", EdgeWarning)
        ok = edge is None and error < MAX_LOG_T_ERROR
        if edge is None and not ok:
            message += "; that is more than wanted: the labels are many, or the temperatures of the range far apart"
            if error > spread:
                self._warn(f"{message}.", ConvergenceWarning)
        self.fit_report_ = FitReport(
            converged=ok, log_t_error=error, edge=edge, nll=value, n_samples=sketch.n_samples, message=message
        )

    def _edge(self, sketch: Sketch, whole: Sketch, u: Floats, of_t: Floats) -> Literal["low", "high"] | None:
        """Return whether the range is too narrow: the posterior piles up there, or the NLL would have T beyond it.

        Without an error in sight the NLL always would; and with noise it may, where labels are mostly noise.
        """
        near = 0.02 * whole.interval.length
        if of_t[u < whole.interval.low + near].sum() > 0.05:
            return "low"
        if of_t[u > whole.interval.high - near].sum() > 0.05:
            return "high"
        beyond = _beyond(sketch)
        if beyond and sketch.t_range[beyond > 0] != whole.t_range[beyond > 0]:
            beyond = _beyond(whole)
        if beyond < 0 and not sketch.perfect:
            return "low"
        return "high" if beyond > 0 and self.labels == "clean" else None


def _ends(u: Floats, weight: Floats) -> list[float]:
    """Return the ends of what is not impossible, and a little more."""
    inside = np.flatnonzero(weight > 1e-13 * weight.max())
    return [float(u[max(inside[0] - 2, 0)]), float(u[min(inside[-1] + 2, len(u) - 1)])]


def _beyond(sketch: Sketch) -> int:
    """−1 or +1 where the NLL has its minimum on that edge of the range; otherwise 0."""
    return int(chebyshev.minima(chebyshev.coefficients(sketch.nll[:, None]), sketch.interval).edge[0])
