"""The model of the labels: right, wrong anywhere at a rate, or confused class by class.

A network fails now and then however confident it was (its own floor e_m: then every class is as likely), and so do
annotators (ε_l). A label is a uniform guess at the rate ε = 1 − (1 − e_m)(1 − ε_l). Labels determine ε alone. With
ε_l known (0 for clean labels) the rest, (ε − ε_l) / (1 − ε_l), is the network's, and stays in the prediction. With ε_l
unknown all but a trace is taken for the labels', of two classes less the share that `network_share` leaves to the
network; and the report has ``cannot_tell``.

Temperature and biases of the network are fitted within each account, so that a classifier that favours some classes is
not taken for one with bad labels. The account with the most evidence is taken; two are never mixed. Confusions are
believed only if they explain much, and if they do not make the network under-confident: a transition matrix is also a
flexible map, so a lower temperature with more errors explains something wherever a network errs in its own ways.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from numbers import Real
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import betainc, betaincinv, expit, logit

from attemper._typing import Floats, Labels
from attemper.calibrators.temperature import scale_of
from attemper.data.arrays import prime_step
from attemper.data.scores import Scores
from attemper.errors import InputError
from attemper.kernels import evidence
from attemper.kernels.annotators import Annotators, Channel, RateLaw, rate_law
from attemper.kernels.clusters import case_numbers
from attemper.kernels.evidence import Prior, Rows, ScalePrior, Term
from attemper.kernels.softmax import SHORT
from attemper.kernels.temperature import information
from attemper.maps import centred

Noise = float | Literal["unknown"]

# Chosen looking at each family of classifiers: none may pay. Neighbouring values differ by 1 to 5 thousandths of a nat.
BIASES, SCALES, CURVE = Term(0.4, 0.3), Term(0.01), Term(0.05)
MATRIX_VARIANCE = 0.2  # divided by K²
TAIL = 1.2  # degrees of freedom of single biases
LOG_T = ScalePrior(0.15, 0.6, 4.0)  # around centre + slope · logit(mean confidence)
CONFIDENCE_SLOPE, CONFIDENCE = 0.125, (0.01, 0.95)
FOLDS = 5
MAX_ELEMENTS, MIN_ROWS = 1 << 16, 1000  # of logits that are enough for rates, biases and precisions

FLOOR_PROBABILITY, FLOOR_SHAPE = 0.5, (0.5, 20.0)  # of the network's own floor: that there is one, and its Beta law
FLOORS = np.array([0.25, 0.08, 0.025, 0.007, 0.0015, 0.0])
OWN_FLOOR = 0.001  # that is left of it where the labels' share is unknown: a confident error need not be theirs
ASTRAY = 0.01  # gradient for each sample of a fit that went astray, and is begun anew

NOISE_PROBABILITY, NOISE_SHAPE = 0.75, (1.0, 4.0)  # that labels have errors at all, and of their rate
RATES = np.array([0.8, 0.6, 0.43, 0.3, 0.2, 0.13, 0.08, 0.04, 0.015, 0.004, 0.0])
HIGH_RATE = 0.2  # at which temperatures are those of a network whose labels are often wrong
LABELLED = 0.5  # share of the classes that need a label, for any of them to have parameters of its own
MANY, LABELS_A_CLASS = 50, 3  # classes above which so many labels of each are needed on average
MAX_CLASSWISE = 1000  # classes up to which a transition matrix is looked for
CERTAIN, MUCH = 8.0, 0.02  # nats, and nats a sample, that confusions have to explain
FEW, MOST = 0.01, 0.4  # rates of confusions between which a matrix is worth it, and believed
UNDER_CONFIDENT = 0.7  # log T below its prior at which confusions are not believed
NETWORKS_ODDS = -1.75  # log-odds, before data are seen, that a floor of two classes is the network's own
LABELS_LOG_T, NETWORKS_LOG_T = 0.8, ScalePrior(0.0, 1.2, 4.0)  # log T, less its expectation, beside either floor
LABELS_ERRORS, NETWORKS_ERRORS = 10.0, 3.0  # b of Beta(1, b): share of the network's other errors beside either floor
OPEN = 0.01  # nats by which predictions with and without the floor differ, from which on it matters whose it is
CANNOT_TELL = "data cannot tell wrong labels from errors of the classifier; if you know their share, pass it as noise"
DENSE, SHOWN = 100, 20  # classes above which so many destinations of each are kept
LEVEL, WORST = 0.95, 5  # of intervals; and confusions that a summary names


def error_rate(noise: Noise, chance: float) -> float | None:
    """Return ε, at which labels are drawn at random where a share ``noise`` is wrong; None where it is unknown.

    ``chance`` is the share of random labels that are right: 1/K.

    >>> error_rate(0.1, 1 / 5), error_rate("unknown", 1 / 5)
    (0.125, None)
    """
    if isinstance(noise, str) and noise == "unknown":
        return None
    most = 1 - chance
    if isinstance(noise, bool) or not isinstance(noise, Real) or (noise != 0 and not 0 < noise < most):
        raise InputError(f"noise={noise!r}: expected 'unknown' or a share from 0 to {most:.3g}", "noise")
    return float(min(noise / most, 0.98)) if noise else 0.0


def expected(log_t: ScalePrior, confidence: float, unit: float) -> ScalePrior:
    """Centre the prior of log T by the mean confidence at T = ``unit``: where it is high it is more often too high."""
    slope = CONFIDENCE_SLOPE * float(logit(np.clip(confidence, *CONFIDENCE)))
    return log_t._replace(centre=log_t.centre + slope + float(np.log(unit)))


@dataclass(frozen=True, eq=False)
class Samples:
    """Logits, labels and weights as the evidence needs them; columns are classes that may have parameters."""

    x: Floats  # centred
    y: Labels
    w: Floats
    masked: NDArray[np.bool_] | None
    prior: Prior
    case: Labels | None  # number of the case that each is of; None: each is one
    chance: float  # see `error_rate`

    @classmethod
    def of(cls, scores: Scores, rate: float | None, log_t: ScalePrior = LOG_T) -> Samples:
        """Take away what the softmax does not see."""
        h, y, w, case = scores.logits, scores.labels, scores.weights, scores.cases
        k, unit = h.shape[1], scale_of(scores, rate)[0]
        few = slice(None, None, max(1, len(h) // max(MIN_ROWS, MAX_ELEMENTS // k)))
        top = 1 / np.exp((h[few] - h[few].max(axis=1, keepdims=True)) / unit).sum(axis=1)
        log_t = expected(log_t, float(np.average(top, weights=w[few])), unit)
        prior = Prior(log_t, BIASES, SCALES, Term(MATRIX_VARIANCE / k**2), CURVE, TAIL)
        masked, x = np.isneginf(h), centred(h, "mean", np)
        x = np.asfortranarray(x) if k < SHORT else x  # few classes: loops over samples are faster
        return cls(x, y, w, masked if masked.any() else None, prior, case, scores.chance)

    @property
    def n_classes(self) -> int:
        """Return how many columns there are."""
        return int(self.x.shape[1])

    @property
    def labelled(self) -> NDArray[np.bool_]:
        """Which classes have a label."""
        return np.isin(np.arange(self.n_classes), self.y)

    @property
    def possible(self) -> NDArray[np.bool_]:
        """Which classes are not masked throughout."""
        return np.ones(self.n_classes, dtype=bool) if self.masked is None else np.asarray(~self.masked.all(axis=0))

    @property
    def too_few(self) -> bool:
        """Whether there are too few labels for any class to have parameters of its own."""
        classes = int(self.possible.sum())
        scarce = classes > MANY and float(self.w.sum()) < LABELS_A_CLASS * classes
        return scarce or int(self.labelled.sum()) < max(2, LABELLED * classes)

    def among(self, classes: NDArray[np.bool_]) -> Samples:
        """Return the same samples, given that the label is of these classes; the others have no label."""
        if classes.all():
            return self
        masked = None if self.masked is None else self.masked[:, classes]
        matrix = Term(MATRIX_VARIANCE / classes.sum() ** 2)
        y = (np.cumsum(classes) - 1)[self.y]
        return replace(self, x=self.x[:, classes], y=y, masked=masked, prior=self.prior._replace(matrix=matrix))

    def rows(self, log_t: float, part: slice = slice(None)) -> Rows:
        """Return some of them at a temperature, for a diagonal matrix."""
        masked = None if self.masked is None else self.masked[part]
        return Rows(self.x[part] * np.exp(-log_t), self.y[part], self.w[part], masked)

    def every(self, elements: int, least: int) -> slice:
        """Rows that hold at most so many numbers, but at least so many rows; evenly spread."""
        step = prime_step(max(1, len(self.x) // max(least, elements // self.n_classes)))
        while step > 1 and self.n_classes % step == 0:
            step = prime_step(step + 1)
        return slice(None, None, step)

    def folds(self) -> Labels:
        """Fold by the rank of a sample's size: of no order of samples or classes; a case is in one fold."""
        size = np.einsum("nk,nk->n", self.x, self.x)
        if self.case is not None:
            weight = np.maximum(np.bincount(self.case, self.w), 1e-300)
            size = (np.bincount(self.case, self.w * size) / weight)[self.case]
        return case_numbers(size) % FOLDS


def total_rate(floor: float, rate: float) -> float:
    """ε of a network's floor and the labels' rate: the share of labels that are a uniform guess."""
    return floor if rate == 0 else 1 - (1 - floor) * (1 - rate)


def own_floor(log_s: Floats, rows: Rows, rate: float) -> float:
    """Posterior mean of the network's own floor, given the log-probability of each label and the labels' rate."""
    s, w, totals = np.exp(log_s), rows.w, [total_rate(floor, rate) for floor in FLOORS]
    values = np.array([w @ np.log((1 - e) * s + e * rows.guess) if e > 0 else w @ log_s for e in totals])
    return rate_law(FLOORS, values, FLOOR_SHAPE, FLOOR_PROBABILITY).mean


def fit_at(
    rate: float, rows: Rows, prior: Prior, terms: set[str], near: evidence.Optimum | None = None
) -> evidence.Optimum:
    """Temperature and biases, if labels are uniform at a known rate; begun ``near`` a fit, anew if it goes astray."""
    start, tries = evidence.Optimum.start(rows.x.shape[1], prior), []
    for begin in (start,) if near is None else (near, start):
        begin = begin._replace(channel=Channel(rate))
        tries.append(evidence.maximise(rows, prior, begin, terms, rounds=25, tolerance=1e-2))
        if tries[-1].gradient_norm < ASTRAY:
            break
    return max(tries, key=lambda fit: fit.evidence)


class Profile(NamedTuple):
    """Fits of temperature and biases at each rate."""

    rates: Floats
    fits: list[evidence.Optimum]
    law: RateLaw

    def near(self, rate: float) -> evidence.Optimum:
        """Return the fit at the rate that is nearest."""
        return self.fits[int(np.abs(np.log((self.rates + 1e-4) / (rate + 1e-4))).argmin())]

    @property
    def log_t_variance(self) -> float:
        """What not knowing the rate adds to the variance of log T."""
        t = np.array([fit.total_log_t for fit in self.fits])
        apart = np.interp(self.law.rate, self.rates[::-1], t[::-1]) - t[-1]
        return max(0.0, float(self.law.weight @ apart**2) - float(self.law.weight @ apart) ** 2)


def profile(
    rows: Rows, prior: Prior, terms: set[str], grid: Floats, shape: tuple[float, float], probability: float,
    known: float = 0.0,
) -> Profile:  # fmt: skip
    """Fit at each rate of a grid that descends to zero, and more closely where the posterior lies.

    The labels are wrong at that rate, or are so beside a ``known`` rate.
    """
    rates, fits = grid, list[evidence.Optimum]()
    for rate in grid.tolist():  # from above: labels are then hardly to be trusted, and T is near its prior
        fits.append(fit_at(total_rate(rate, known), rows, prior, terms, fits[-1] if fits else None))
    mean = rate_law(rates, np.array([fit.evidence for fit in fits]), shape, probability).mean
    for rate in sorted({mean, 0.5 * mean, 1.5 * mean}):
        if grid[-2] < rate < grid[0]:
            place = int(np.searchsorted(-rates, -rate))
            fits.insert(place, fit_at(total_rate(rate, known), rows, prior, terms, fits[place - 1]))
            rates = np.insert(rates, place, rate)
    return Profile(rates, fits, rate_law(rates, np.array([fit.evidence for fit in fits]), shape, probability))


class Account(NamedTuple):
    """How labels come about, with temperature and biases of the network."""

    fit: evidence.Optimum  # its channel is that of the labels
    log_t_variance: float  # that not knowing the rate adds
    rate: float | None  # ε_l where it is known
    floor: float | None  # uniform mass that stays in the prediction; None: it is found at the end
    wrong: WrongLabels


def account(samples: Samples, noise: Noise, terms: set[str]) -> Account:
    """Return how labels come about: at a known rate of wrong ones, or by the account with the most evidence.

    ``terms`` may hold the biases of the network.
    """
    rate = error_rate(noise, samples.chance)
    if rate is None:
        return _unknown(samples, terms)
    rows = samples.rows(samples.prior.log_t.centre, samples.every(MAX_ELEMENTS // 2, MIN_ROWS))
    found = profile(rows, samples.prior, terms, FLOORS, FLOOR_SHAPE, FLOOR_PROBABILITY, rate)
    fit = found.near(found.law.mean)._replace(channel=Channel(total_rate(found.law.mean, rate)))
    return Account(fit, found.log_t_variance, rate, None, WrongLabels.known(float(noise)))


@dataclass(frozen=True, eq=False)
class Confusions:
    """The transition matrix: row k is how samples of true class k are labelled; ``confusions_`` of a fit.

    With up to 100 classes all columns are there, in order. With more, only the 20 most likely ones of each row.
    """

    columns: Labels  # K×m
    mean: Floats  # K×m, posterior means
    low: Floats  # K×m, credible intervals
    high: Floats

    @classmethod
    def of(cls, mean: Floats, square: Floats) -> Confusions:
        """Take the moments of each entry for those of a beta distribution."""
        k = len(mean)
        columns = np.broadcast_to(np.arange(k), (k, k))
        if k > DENSE:
            columns = np.sort(np.argpartition(-mean, SHOWN - 1, axis=1)[:, :SHOWN], axis=1)
            mean, square = (np.take_along_axis(v, columns, axis=1) for v in (mean, square))
        m = np.clip(mean, 1e-12, 1 - 1e-12)
        variance = np.clip(square - mean**2, 1e-9 * m * (1 - m), 0.999 * m * (1 - m))
        count = m * (1 - m) / variance - 1
        low, high = (np.asarray(betaincinv(m * count, (1 - m) * count, p)) for p in ((1 - LEVEL) / 2, (1 + LEVEL) / 2))
        # Where an entry is almost surely zero, its mean may lie above the upper quantile.
        return cls(np.array(columns), np.array(mean), np.minimum(low, mean), np.maximum(high, mean))

    def worst(self) -> list[tuple[int, int, float, float, float]]:
        """Return the most frequent confusions that are surely there: true class, label, share and its interval."""
        wrong = np.where(self.columns == np.arange(len(self.columns))[:, None], -1.0, self.mean)
        order = np.argsort(-wrong, axis=None, kind="stable")[:WORST]
        found = [np.unravel_index(i, wrong.shape) for i in order]
        return [
            (int(i[0]), int(self.columns[i]), float(self.mean[i]), float(self.low[i]), float(self.high[i]))
            for i in found
            if wrong[i] > 0.02
        ]


class WrongLabels(NamedTuple):
    """What is known of the share of labels that are wrong."""

    noise: float
    noise_interval: tuple[float, float]
    confusions: Confusions | None = None
    cannot_tell: bool = False  # whose errors they are, where that matters

    @classmethod
    def known(cls, share: float) -> WrongLabels:
        """Return the share that the user gave."""
        return cls(share, (share, share))

    @classmethod
    def found(
        cls, mean: float, shares: Floats, below: Floats, network: float, confusions: Confusions | None = None
    ) -> WrongLabels:
        """Posterior mean, and distribution function at some shares, if the labels err, and not the network."""
        below, noise = network + (1 - network) * below / below[-1], (1 - network) * mean
        low, high = _shortest_interval(shares, below)
        # Confident predictions differ by −log(1 − share) nats.
        return cls(noise, (min(low, noise), max(high, noise)), confusions, mean > OPEN)

    @property
    def values(self) -> dict[str, Any]:
        """What a fit reports of it."""
        return {"noise": self.noise, "noise_interval": self.noise_interval, "confusions": self.confusions}


def _unknown(samples: Samples, terms: set[str]) -> Account:
    """Return the account with the most evidence, where the labels' rate is unknown."""
    k = samples.n_classes
    # Many classes need more rows, that confusions of each may be seen.
    part = samples.every(MAX_ELEMENTS, max(MIN_ROWS, min(2500, 4 * MAX_ELEMENTS // k)))
    rows = samples.rows(samples.prior.log_t.centre, part)
    found = profile(rows, samples.prior, terms, RATES, NOISE_SHAPE, NOISE_PROBABILITY)
    fit, rate = found.near(found.law.mean), found.law.mean
    confused = _confused(rows, samples, terms, [fit, found.near(HIGH_RATE)], found.law) if k <= MAX_CLASSWISE else None
    shares = np.append(0.0, found.law.rate)
    if confused is not None:
        fit, annotators = confused
        mean, square = annotators.moments()
        law = betainc(*annotators.law, shares)
        wrong = WrongLabels.found(annotators.rate, shares, law, 0.0, Confusions.of(mean, square))
        fit = fit._replace(channel=Channel(0.0, mean))
        return Account(fit, 0.0, None, min(OWN_FLOOR, annotators.rate), wrong)
    right = float(np.average(rows.logits(fit.theta).argmax(axis=1) == rows.y, weights=rows.w))
    network = network_share(rate, fit.total_log_t - samples.prior.log_t.centre, right, k)
    below = np.cumsum(np.append(1 - found.law.weight.sum(), found.law.weight))
    at_random = 1 - samples.chance  # share of wrong ones among labels that are drawn at random
    wrong = WrongLabels.found(rate * at_random, shares * at_random, below, network)
    fit = fit._replace(channel=Channel(rate))
    return Account(fit, found.log_t_variance, None, remaining_floor(rate, network), wrong)


def remaining_floor(rate: float, network: float) -> float:
    """Return the uniform mass that stays in the prediction, of a floor that is the network's with this probability."""
    return max(min(OWN_FLOOR, rate), network * rate)


def network_share(rate: float, log_t: float, right: float, n_classes: int) -> float:
    """Return the probability that a floor is the network's own, and not the labels'.

    ``log_t`` is log T less its expectation, ``right`` the share of labels that are predicted. Wrong labels are rare
    (their rate is Beta(1, 4)), and occur with networks that are usable otherwise: beside them few errors remain, and
    the temperature is as usual. A network's own floor may be anything, and so may its temperature. With more than two
    classes a network errs towards similar ones, so that a uniform floor is not its own.
    """
    if n_classes > 2 or rate == 0:
        return 0.0
    rate = min(rate, 0.97)
    accuracy = max((right - rate / 2) / (1 - rate), 0.5)  # beside the floor
    own, labels = (np.log(b) + (b - 1) * np.log(accuracy) for b in (NETWORKS_ERRORS, LABELS_ERRORS))
    own += NETWORKS_LOG_T.log_density(log_t) - np.log(NETWORKS_LOG_T.scale)
    labels += -0.5 * (min(log_t, 0.0) / LABELS_LOG_T) ** 2 - np.log(LABELS_LOG_T)
    labels += np.log(NOISE_SHAPE[1]) + (NOISE_SHAPE[1] - 1) * np.log1p(-rate)
    return float(expit(NETWORKS_ODDS + own - labels))


def _confused(
    rows: Rows, samples: Samples, terms: set[str], starts: list[evidence.Optimum], law: RateLaw
) -> tuple[evidence.Optimum, Annotators] | None:
    """Let temperature and biases, and the annotators' confusions, follow each other; None if these are not believed.

    They begin at the other account, and at a lower temperature: errors among similar classes look like a soft network.
    """
    found = []
    for fit in starts:
        annotators = None
        for _ in range(4):
            z = rows.logits(fit.theta)
            annotators = Annotators.fit(z, rows.y, rows.w, annotators)
            cost = float(rows.w @ fit.channel.apply(z, rows.y, rows.guess).log_likelihood) - fit.evidence
            found.append((annotators.log_evidence - cost, fit, annotators))
            start = fit._replace(channel=Channel(0.0, annotators.moments()[0]))
            last, fit = fit, evidence.maximise(rows, samples.prior, start, terms, rounds=10, tolerance=1e-1)
            if np.abs(fit.theta - last.theta).max() < 0.03:
                break
    value, fit, annotators = max(found, key=lambda one: one[0])
    believed = value - law.log_evidence > CERTAIN + MUCH * float(rows.w.sum()) and FEW < annotators.rate < MOST
    believed = believed and fit.total_log_t > samples.prior.log_t.centre - UNDER_CONFIDENT
    return (fit, annotators) if believed else None


def _shortest_interval(rates: Floats, below: Floats) -> tuple[float, float]:
    """Shortest interval that holds 95 % of a law, from its distribution function; it reaches 0 where that may be."""
    tail = np.linspace(0, 1 - LEVEL, 201)
    low, high = np.interp([tail, tail + LEVEL], below, rates)
    low[0] = 0.0
    at = int((high - low).argmin())
    return float(low[at]), float(high[at])


def true_class_gap(samples: Samples, account: Account) -> tuple[float, float]:
    """Return the mean of h_label − E[h_true class], and how much of a clean label each is worth for T."""
    part = samples.every(MAX_ELEMENTS, MIN_ROWS)
    rows = samples.rows(account.fit.log_t, part)
    state = account.fit.channel.apply(rows.logits(account.fit.theta), rows.y, rows.guess)
    true, h = state.p + state.d, samples.x[part]  # posterior of the true class
    gaps = h[np.arange(len(h)), rows.y] - np.vecdot(true, h)
    return float(rows.w @ gaps) / float(rows.w.sum()), worth_for_t(rows, account.fit)


def worth_for_t(rows: Rows, fit: evidence.Optimum) -> float:
    """Return how much of what clean labels show of T these labels show, whose errors are known.

    By the expected information of uniform errors; of confusions, by how far each label decides what is true.
    """
    z = rows.logits(fit.theta)
    if fit.channel.matrix is not None:
        return float(np.average(fit.channel.apply(z, rows.y).info, weights=rows.w))
    if rows.masked is not None:
        z[rows.masked] = -np.inf
    noisy, clean = (float(rows.w @ information(z, 1.0, rate)[:, 0]) for rate in (fit.channel.rate, 0.0))
    return noisy / max(clean, 1e-300)
