"""Structured scaling: temperature, class biases, class scales and a matrix, found together with the labels' errors.

With x the centred logits at temperature T,

    z = x + b + s ∘ x + M x,        P(label) = Σ_k softmax(z)_k C_k,label

b are biases of the classes, s changes of their scales, M the rest of the matrix; for two classes a curve takes its
place. Each term has a prior around zero whose variance is found by the evidence (`attemper.kernels.evidence`): a term
that the data do not support stays at zero. C is how labels come about: the network's own floor for clean labels, the
annotators' errors for noisy ones.

With 100 samples or more the fit is compared on samples held out from it (five folds; priors and rates stay those of all
samples) with one temperature and with the classifier as it is. Where one of those is better by two standard errors, it
is the result.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar
from scipy.special import softmax

from attemper._typing import Floats, Labels
from attemper.calibrators import label_model
from attemper.calibrators.base import Calibrator, Fit, Report
from attemper.calibrators.label_model import Account, Confusions, Noise, Samples, account, error_rate, own_floor
from attemper.calibrators.temperature import best_temperature, z95
from attemper.data.scores import Scores
from attemper.errors import ConvergenceWarning, EdgeWarning, InputError, warn
from attemper.kernels import evidence
from attemper.kernels.annotators import Channel
from attemper.kernels.evidence import Prior, Rows
from attemper.maps import Affine, Map, Mixture, bend

STRUCTURES = ("biases", "scales", "matrix")
MOST_CLASSES = 200  # beyond, K² numbers are more than validation data can support
EXPECTED = 0.01  # mean probability of a class from which on a lack of its labels is not by chance
LEAST_WEIGHT = 100  # of samples, below which held-out ones cannot decide
LEAST_ROWS = 2000  # that class structure needs
MOST_FOLDED = 10_000  # samples that are held out in folds
LARGE = 10_000_000  # logits, of which each pass takes a second
WORSE = 2.0  # standard errors by which a simpler map must be better to take the place of the fit
GRADIENT = 1e-5  # per sample, at which a fit counts as converged
HOPELESS = 100.0  # a gradient that only logits of vastly different sizes leave
NODES, NODE_WEIGHTS = np.polynomial.hermite_e.hermegauss(5)  # of the mixture of temperatures
NODE_WEIGHTS = NODE_WEIGHTS / NODE_WEIGHTS.sum()
MAX_LOG_T_STD = 1.0
LIGHT = 0.05  # mean weight below which weights seem to be shares


@dataclass(frozen=True, eq=False)
class Structure:
    """What was found."""

    stage: Affine  # of the classes that have parameters
    uniform_mass: float
    fit: evidence.Optimum  # its standard deviation of log T is that of the search, which the prediction averages over
    log_t_std: float  # by what the labels show of T
    part: slice  # of the samples, on which it is compared with simpler maps
    held_out: Floats | None  # log-likelihood of each of these by a fit without its fold

    @property
    def temperature(self) -> float:
        """Of all classes together."""
        weight = self.stage.weight
        return 1 / float((np.diag(weight) if weight.ndim == 2 else weight).mean())

    def mixture(self, beta: float = 1.0) -> Mixture:
        """Average over what the data leave open of the temperature, with the network's own floor."""
        spread = min(self.fit.log_t_std, MAX_LOG_T_STD)
        return Mixture((1 - self.uniform_mass) * NODE_WEIGHTS, beta * np.exp(spread * NODES), self.uniform_mass)

    def map(self, labelled: NDArray[np.bool_]) -> Map:
        """Return the map of all columns: those without a label have the common temperature, and no bias."""
        weight, bias = self.stage.weight, self.stage.bias
        if not labelled.all():
            own, weight, bias = weight, np.diag(np.full(len(labelled), 1 / self.temperature)), np.zeros(len(labelled))
            weight[np.ix_(labelled, labelled)] = own if own.ndim == 2 else np.diag(own)
            weight, bias[labelled] = weight if own.ndim == 2 else np.diag(weight), self.stage.bias
        return Map((replace(self.stage, weight=weight, bias=bias), self.mixture()))


def fit_structure(samples: Samples, given: Account, terms: set[str]) -> Structure:
    """Add what the data support on top of temperature and biases."""
    k, prior = samples.n_classes, samples.prior
    log_t, base = given.fit.total_log_t, given.fit.theta
    rows, scales = samples.rows(log_t), (1 + base[:, 0]) / given.fit.scale_change - 1
    theta = np.stack([scales, base[:, 1]], axis=1)
    if terms & {"matrix", "curve"}:
        curve = [bend(rows.x[:, 1:] - rows.x[:, :1], np)] if "curve" in terms else []
        rows = replace(rows, features=np.concatenate([rows.x, *curve, np.ones((len(rows.x), 1))], axis=1))
        theta = np.zeros((k, k + len(curve) + 1))
        theta[np.diag_indices(k)], theta[:, -1] = scales, base[:, 1]
    part = samples.every(label_model.MAX_ELEMENTS, LEAST_ROWS)
    few = rows.only(part)
    precisions = prior.precisions(k)._replace(biases=given.fit.precisions.biases)
    start = given.fit._replace(theta=theta, log_t=log_t, precisions=precisions)
    found = evidence.maximise(few, prior, start, terms)
    many = len(few.y) < len(rows.y) or len(few.y) > MOST_FOLDED
    held_out = None if many else _held_out(few, found, prior, samples.folds())
    found = evidence.polish(rows, found, prior, sample=few, rounds=30 if rows.x.size < LARGE else 4)
    z, mass = few.logits(found.theta), given.floor
    within = found.log_t_std**2 * few.w.sum() / rows.w.sum()
    found = found._replace(log_t_std=float(np.sqrt(within + given.log_t_variance)))
    if found.channel.rate > 0:  # the curvature of the search counts a label by how far it decides what is true
        within *= np.average(found.channel.apply(z, few.y, few.guess).info, weights=few.w) / label_model.worth_for_t(
            few, found
        )
    log_t_std = float(np.sqrt(within + given.log_t_variance))
    if mass is None:
        mass = own_floor(Channel().apply(z, few.y).log_likelihood, few, given.rate or 0.0)
    if many:  # their number of effective parameters has to do
        held_out = found.channel.apply(z, few.y, few.guess).log_likelihood - found.effective / rows.w.sum()
    scale = float(np.exp(-found.log_t))
    weight = found.theta[:, 0] + 1 if rows.features is None else np.eye(k) + found.theta[:, :k]
    bends = found.theta[:, k] if "curve" in terms else None
    stage = Affine(weight * scale, found.theta[:, -1], "mean", bends, scale)
    return Structure(stage, mass, found, log_t_std, part, held_out)


def _held_out(few: Rows, found: evidence.Optimum, prior: Prior, fold: Labels) -> Floats | None:
    """Log-likelihood of each sample by a fit without its fold; None if there are too few samples for that."""
    count = int(fold.max()) + 1
    share = np.bincount(fold, few.w, count) / few.w.sum()
    if count < 2 or share.min() < 0.02 or len(few.y) < 20:
        return None
    value = np.zeros(len(few.y))
    for k in range(count):
        part = evidence.polish(few.only(fold != k), found, prior, tolerance=1e-4, rounds=3)
        own = few.only(fold == k)
        value[fold == k] = found.channel.apply(own.logits(part.theta), own.y, own.guess).log_likelihood
    return value


class Simple(NamedTuple):
    """A map with at most one temperature: its log-likelihood sample by sample."""

    t: float | None  # None: the classifier as it is
    values: Floats = np.empty(0)


def better_and_simpler(samples: Samples, found: Structure, rate: float | None) -> tuple[Simple | None, float | None]:
    """Return one temperature or none at all, if that is better on held-out samples; and the gain over the first.

    ``rate`` is that of wrong labels, if it is known.
    """
    if found.held_out is None or samples.w.sum() < LEAST_WEIGHT:
        return None, None
    rows, channel = samples.rows(0.0, found.part), found.fit.channel
    total = float(rows.w.sum())
    x = rows.x if rows.masked is None else np.where(rows.masked, -np.inf, rows.x)

    def values(log_t: float, labels: Channel = channel) -> Floats:
        return labels.apply(np.maximum(x * np.exp(-log_t), -1e30), rows.y, rows.guess).log_likelihood

    best = minimize_scalar(
        lambda u: -float(rows.w @ values(u)) - samples.prior.log_t.log_density(u),
        bounds=(found.fit.log_t - 3, found.fit.log_t + 3),
        method="bounded",
        options={"xatol": 1e-3},
    )
    one = Simple(float(np.exp(best.x)), values(float(best.x)) - 1 / total)
    # Without the floor that a map would add.
    alone = Simple(None, values(0.0, channel if rate is None else Channel(rate)))
    better = []
    for simple in (one, alone):
        difference = simple.values - found.held_out
        mean = float(rows.w @ difference) / total
        error = float(np.sqrt(rows.w @ (difference - mean) ** 2)) / total
        if mean > WORSE * error:
            better.append((mean, simple))
    gain = float(rows.w @ (found.held_out - one.values)) / total
    return (max(better, key=lambda pair: pair[0])[1], 0.0) if better else (None, gain)


class StructuredScaling(Calibrator):
    """Class biases, class scales and a matrix on top of a temperature, each shrunk to what the data support.

    The lowest log-loss on average, from 20 labels on. It may change the prediction, and trade one class's recall for
    another's: ``report_.changed`` is the share of validation samples where it does. Classes without a label get no
    parameters of their own, unless the network expects them. It falls back to one temperature where fewer than half of
    the classes have a label, or more than 50 classes have fewer than three labels on average
    (``report_.too_few_classes``).

    Parameters
    ----------
    structure : "matrix", "scales" or "biases"
        The most complex term allowed. With more than 200 classes the matrix is left out. With two classes "matrix"
        allows a curve of the log-odds, as beta calibration does.
    noise : float or "unknown"
        The share of the validation labels that are actually wrong. What else is a uniform guess is the network's, and
        stays in the prediction. "unknown" takes most of it for the labels' (``report_.cannot_tell``).

    Attributes
    ----------
    temperature_, temperature_interval_ : float, (float, float)
        The overall temperature, with its 95 % credible interval.
    weight_, bias_ : arrays
        What multiplies the centred logits, and what is added; before the mixture of temperatures.
    prior_std_ : dict
        Standard deviation of the prior of each term, in logits at temperature T; empty if a simpler map is the result.
    heldout_gain_ : float or None
        NLL by which it beats one temperature on held-out validation samples, below zero if it does not; 0 if a simpler
        map is the result, None with too few samples to compare.
    noise_, noise_interval_ : float, (float, float)
        Share of the labels that are wrong: posterior mean and 95 % credible interval.
    confusions_ : Confusions or None
        Which classes are labelled as which others, where errors depend on the class (``noise="unknown"``).
    uniform_mass_ : float
        Probability of a uniform guess, which stays in the prediction.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> logits = 3 * rng.normal(size=(2000, 5))
    >>> labels = (logits / 2 + [1, 0, 0, 0, -1] + rng.gumbel(size=logits.shape)).argmax(axis=1)
    >>> fitted = StructuredScaling().fit(logits, labels)
    >>> (fitted.bias_ - fitted.bias_.mean()).round(1), round(fitted.heldout_gain_, 1)
    (array([ 1.,  0.,  0., -0., -1.]), 0.1)
    """

    method = "structured"
    title = "structured scaling"
    knows_noise = True
    value_types: ClassVar[dict[str, Any]] = {"weight": Floats, "bias": Floats, "confusions": Confusions | None}

    def __init__(
        self, *, structure: Literal["matrix", "scales", "biases"] = "matrix", noise: Noise = 0, input: Any = "logits",
        classes: Any = None, zeros_as: float | None = None,
    ) -> None:  # fmt: skip
        super().__init__(input=input, classes=classes, zeros_as=zeros_as)
        self.structure, self.noise = structure, noise

    def _fit(self, scores: Scores) -> Fit:
        total = scores.total_weight
        if self.structure not in STRUCTURES:
            raise InputError(f"structure={self.structure!r}: expected one of {', '.join(STRUCTURES)}", "structure")
        rate = error_rate(self.noise, scores.chance)
        if len(scores) >= 10 and 0 < total < LIGHT * len(scores) and scores.clusters is None:
            warn(f"sample_weight: 1 counts as one sample, these add up to {total:g}; are they shares?")
        everything, k = Samples.of(scores, rate), scores.n_classes
        few = everything.too_few
        own = np.ones(k, dtype=bool) if few else _with_parameters(everything, scores)
        samples = everything.among(own)
        terms = set[str]() if few else _terms(self.structure, samples.n_classes, k)
        given = account(samples, self.noise, terms & {"biases"})
        found = fit_structure(samples, given, terms)
        if not found.fit.gradient_norm < HOPELESS:
            raise InputError("data: the fit diverges; the logits are of vastly different sizes", "data")
        simple, gain = (Simple(found.temperature), 0.0) if few else better_and_simpler(samples, found, given.rate)
        t = found.temperature if simple is None else simple.t or 1.0
        made = found.map(own) if simple is None else Map((found.mixture(1 / t),)) if simple.t else Map.scale(1.0)
        stage: Any = made.stages[0] if simple is None else Affine(np.full(k, 1 / t), np.zeros(k))
        factor = float(np.exp(z95(scores) * min(found.log_t_std, 10.0)))
        values = {
            "temperature": t,
            "temperature_interval": (t / factor, t * factor),
            "weight": stage.weight,
            "bias": stage.bias,
            "prior_std": {g: getattr(found.fit.precisions, g) ** -0.5 for g in sorted(terms) if simple is None},
            "heldout_gain": gain,
            "uniform_mass": getattr(made.stages[-1], "uniform_mass", 0.0),
            **given.wrong.values,
        } | ({} if own.all() else {"confusions": None})
        fit, error = found.fit, None
        if simple is None:  # the gradient and the least precision bound the mean objective
            error = 0.5 * fit.gradient_norm**2 * scores.total_weight / max(min(fit.precisions[:4]), 1e-300)
        converged = simple is not None or fit.gradient_norm < GRADIENT
        if not converged:
            warn(f"structured: the fit stopped at a gradient of {fit.gradient_norm:.1e} per sample", ConvergenceWarning)
        report = Report.of(
            made, scores, converged=converged, error=error, n_iter=fit.rounds, too_few_classes=few,
            left_alone=simple is not None and simple.t is None, cannot_tell=given.wrong.cannot_tell,
            notes=tuple(_notes(everything, few, own, simple, given.wrong.cannot_tell)),
        )  # fmt: skip
        return Fit(made, report, values)


def _with_parameters(samples: Samples, scores: Scores) -> NDArray[np.bool_]:
    """Return which classes have parameters of their own: those with a label, and those that the network expects.

    If the network often predicts a class and no label is of it, its labels are not missing by chance: such a class,
    as an option that is never the answer, may have a bias. A class that was merely not drawn must not.
    """
    if samples.labelled.all():
        return samples.labelled
    part = samples.every(label_model.MAX_ELEMENTS, LEAST_ROWS)
    x = samples.x[part] if samples.masked is None else np.where(samples.masked[part], -np.inf, samples.x[part])
    expected = np.average(softmax(x / best_temperature(scores).t, axis=1), axis=0, weights=samples.w[part])
    return np.asarray(samples.labelled | (expected >= EXPECTED))


def _terms(structure: str, k: int, n_columns: int) -> set[str]:
    """Return the terms whose parameters may differ from zero, where k of the columns have a label."""
    level = STRUCTURES.index(structure)
    if n_columns == 2:
        return {"biases", "curve"} if level == 2 else {"biases"}
    matrix = {"matrix"} if level == 2 and 2 < k <= MOST_CLASSES else set[str]()
    return {"biases", *matrix} | ({"scales"} if level > 0 and k > 2 else set())


def _notes(samples: Samples, few: bool, own: NDArray[np.bool_], simple: Simple | None, cannot_tell: bool) -> list[str]:
    """Return what a reader should know, and warn of what is to be changed."""
    notes = []
    if few:
        notes.append(f"one temperature: {len(samples.y)} labels are too few for {samples.n_classes} classes")
        warn(f"structured: {notes[0]}")
    elif not own.all():
        notes.append(f"{int((~own & samples.possible).sum())} classes without a label have no parameters of their own")
    if not few and simple is not None:
        better = "the classifier as it is" if simple.t is None else "one temperature"
        notes.append(f"{better} is better on held-out samples")
    if (simple is None or simple.t is not None) and (samples.x.argmax(axis=1) == samples.y).all():
        notes.append("every label is the arg max of its logits, so only the prior keeps T from 0")
        warn(f"structured: {notes[-1]}", EdgeWarning)
    return [*notes, label_model.CANNOT_TELL] if cannot_tell else notes
