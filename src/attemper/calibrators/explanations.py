"""Models of how labels arise: temperature and biases of the network, errors of the labels, weighed by evidence.

A label is right, or uniform over the classes at a rate e, or it went through a transition matrix of the annotators
(`attemper.calibrators.annotators`). Temperature and biases are fitted within each account, so that a classifier that
favours some classes is not taken for one with bad labels.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.interpolate import PchipInterpolator
from scipy.special import betainc, betaln, expit, logit, logsumexp

from attemper._typing import Floats
from attemper.calibrators.annotators import Annotators, Confusions
from attemper.calibrators.samples import MAX_ELEMENTS, MIN_ROWS, Labels, Noise, Samples
from attemper.kernels import joint
from attemper.kernels.channel import Channel
from attemper.kernels.joint import Fit, Rows
from attemper.kernels.shrinkage import Expected

__all__ = ["MAX_CLASSWISE", "Explanation", "explain", "own_floor", "rate_law", "shortest_interval", "true_class_gap"]

# Chosen with the priors of `attemper.calibrators.samples`.
FLOOR_PROBABILITY, FLOOR_SHAPE = 0.5, (0.5, 20.0)  # of the network's own
OWN_FLOOR = 0.001  # that is left of it where labels are noisy: a confident error need not be the annotators'
NOISE_PROBABILITY, NOISE_SHAPE = 0.75, (1.0, 4.0)  # that labels have errors at all, and of their rate
CLASSWISE_PROBABILITY = 0.5
HIGH_RATE = 0.2  # at which temperatures are those of a network whose labels are often wrong
CERTAIN, MUCH = 8.0, 0.02  # nats, and nats a sample, that confusions have to explain
FEW = 0.01  # rate of confusions that are not worth a matrix
ASTRAY = 0.01  # gradient for each sample of a fit that went astray, and is begun anew
UNDER_CONFIDENT = 0.7  # log T below its prior at which class-dependent errors are not believed
CLEAR = 0.95  # probability of class-dependent errors above which temperature and biases are found anew with them
FLOORS = np.array([0.25, 0.08, 0.025, 0.007, 0.0015, 0.0])
RATES = np.array([0.8, 0.6, 0.43, 0.3, 0.2, 0.13, 0.08, 0.04, 0.015, 0.004, 0.0])
FINE = np.linspace(logit(1e-5), logit(0.85), 400)  # log-odds of rates at which the posterior is summed
MAX_CLASSWISE = 1000  # classes up to which a transition matrix is looked for if nobody asks for it


class RateLaw(NamedTuple):
    """Posterior of a rate: its values, their probabilities (what is missing is that of zero), and the log-evidence."""

    rate: Floats
    weight: Floats
    log_evidence: float

    @property
    def mean(self) -> float:
        """Posterior mean."""
        return float(self.weight @ self.rate)


class Explanation(NamedTuple):
    """How the labels arise: temperature and biases of the network, and errors of the labels."""

    fit: Fit  # with biases
    channel: Channel  # that labels go through, in the more probable account
    law: RateLaw  # of errors anywhere (noisy labels), or of the network's own floor (clean ones)
    biased: float  # posterior probability that there are biases
    classwise: float  # … that errors depend on the class
    annotators: Annotators | None
    log_t_variance: float  # that not knowing the rate adds to log T

    def noise_rate(self) -> float:
        """Posterior mean of the share of labels that are noise."""
        by_class = 0.0 if self.annotators is None else self.annotators.rate
        return (1 - self.classwise) * self.law.mean + self.classwise * by_class

    @property
    def own_floor(self) -> float:
        """Share of noise that is put down to the network itself, and stays in the prediction."""
        return min(OWN_FLOOR, self.noise_rate())

    def noise_interval(self, level: float) -> tuple[float, float]:
        """Credible interval of that share."""
        rates = np.concatenate([[0.0], self.law.rate])
        below = np.cumsum(np.concatenate([[1 - self.law.weight.sum()], self.law.weight]))
        if self.annotators is not None:
            a, b = self.annotators.law
            below = (1 - self.classwise) * below + self.classwise * betainc(a, b, rates)
        return shortest_interval(rates, below / below[-1], level)

    def confusions(self, n_classes: int, level: float) -> Confusions | None:
        """Return the transition matrix with credible intervals, on average over the accounts."""
        if self.annotators is None:
            return None
        mean, square = self.annotators.moments()
        stay, anywhere = np.eye(n_classes), np.full((n_classes, n_classes), 1 / n_classes)
        first, second = self.law.mean, float(self.law.weight @ self.law.rate**2)
        c = self.classwise
        mean = c * mean + (1 - c) * (stay + first * (anywhere - stay))
        moved = anywhere - stay
        square = c * square + (1 - c) * (stay + 2 * first * stay * moved + second * moved**2)
        return Confusions.of(mean, square, level)


def shortest_interval(rates: Floats, below: Floats, level: float) -> tuple[float, float]:
    """Shortest interval that holds a share of a law, from its distribution function; it reaches 0 where that may be."""
    tail = np.linspace(0, 1 - level, 201)
    low, high = np.interp([tail, tail + level], below, rates)
    low[0] = 0.0
    at = int((high - low).argmin())
    return float(low[at]), float(high[at])


def rate_law(grid: Floats, evidence: Floats, shape: tuple[float, float], probability: float) -> RateLaw:
    """Posterior of a rate with log-evidence on a grid that descends to zero; Beta prior and a spike at zero."""
    v, values = logit(grid[:-1])[::-1], evidence[:-1][::-1]
    rate = expit(FINE)
    curve = PchipInterpolator(v, values)(np.clip(FINE, v[0], v[-1]))
    small = v[0] > FINE  # below, the likelihood is linear in the rate
    curve[small] = evidence[-1] + (values[0] - evidence[-1]) * rate[small] / expit(v[0])
    a, b = shape
    step = FINE[1] - FINE[0]
    log_prior = a * np.log(rate) + b * np.log1p(-rate) - betaln(a, b) + np.log(step) + np.log(probability)
    spike = evidence[-1] + np.log(1 - probability) if probability < 1 else -np.inf
    total = float(logsumexp(np.append(curve + log_prior, spike)))
    return RateLaw(rate, np.exp(curve + log_prior - total), total)


def explain(samples: Samples, labels: Labels, noise: Noise, *, unbiased: bool = False) -> Explanation:
    """Weigh the models of how labels arise, each with temperature and biases of the network.

    ``unbiased``: compare also with an account that has no biases.
    """
    k = samples.n_classes
    if labels == "noisy":  # many classes need more rows, that confusions of each may be seen
        part = samples.every(MAX_ELEMENTS, max(MIN_ROWS, min(2500, 4 * MAX_ELEMENTS // k)))
    else:
        part = samples.every(MAX_ELEMENTS // 2, MIN_ROWS)
    rows, expected = samples.rows(samples.prior.centre, part), samples.expected()
    grid, shape, probability = (
        (RATES, NOISE_SHAPE, NOISE_PROBABILITY) if labels == "noisy" else (FLOORS, FLOOR_SHAPE, FLOOR_PROBABILITY)
    )
    start = Fit.start(k, samples.prior.centre, expected)

    def profile(groups: frozenset[str]) -> tuple[list[Fit], RateLaw, float]:
        """Return fits at the mean rate and at a high one, the law of the rate, and the variance it adds to log T."""

        def at(rate: float, near: Fit) -> Fit:
            tries = []
            for begin in (near, start):
                first = begin._replace(channel=Channel(rate))
                tries.append(
                    joint.maximise_evidence(
                        rows, expected, samples.prior, groups=groups, start=first, rounds=25, tolerance=1e-2
                    )
                )
                if tries[-1].gradient_norm < ASTRAY:
                    break
            return max(tries, key=lambda fit: fit.evidence)

        fits = [start]
        for rate in grid:  # from above: labels are then hardly to be trusted, and T is near its prior
            fits.append(at(float(rate), fits[-1]))
        del fits[0]
        law = rate_law(grid, np.array([f.evidence for f in fits]), shape, probability)
        rates, (low, high) = grid, (0.5 * law.mean, 1.5 * law.mean)
        for rate in sorted({law.mean, low, high}):  # closer to where the posterior lies
            if grid[-2] < rate < grid[0]:
                place = int(np.searchsorted(-rates, -rate))
                fits.insert(place, at(rate, fits[place - 1]))
                rates = np.insert(rates, place, rate)
        law = rate_law(rates, np.array([f.evidence for f in fits]), shape, probability)
        log_t = np.interp(law.rate, rates[::-1], [_log_t(f) for f in fits][::-1])
        at_zero = _log_t(fits[-1])
        mean = float(law.weight @ (log_t - at_zero))
        variance = max(0.0, float(law.weight @ (log_t - at_zero) ** 2) - mean**2)
        near = [int(np.abs(np.log((rates + 1e-4) / (rate + 1e-4))).argmin()) for rate in (law.mean, HIGH_RATE)]
        return [fits[i] for i in near], law, variance

    (fit, sharper), law, variance = profile(frozenset({"biases"}))
    channel = Channel(law.mean)
    biased, classwise, annotators = 1.0, 0.0, None
    if labels == "noisy":
        if unbiased:
            biased = float(expit(law.log_evidence - profile(frozenset())[1].log_evidence))
        if noise == "classwise" or (noise == "auto" and k <= MAX_CLASSWISE):
            fit, annotators, classwise = _by_class(rows, samples, expected, [fit, sharper], noise, law)
            if classwise >= CLEAR:
                channel, variance = Channel(0.0, annotators.matrix), 0.0
    return Explanation(fit._replace(channel=channel), channel, law, biased, classwise, annotators, variance)


def _by_class(
    rows: Rows, samples: Samples, expected: Expected, starts: list[Fit], noise: Noise, law: RateLaw
) -> tuple[Fit, Annotators, float]:
    """Let temperature and biases, and the annotators' confusions, follow each other; return how probable these are.

    They begin at the other account, and at a lower temperature: errors among similar classes look like a softer
    network. Confusions are believed only if they explain much, and if they do not make the network under-confident: a
    lower temperature with more errors explains something wherever a network errs in its own ways, since a transition
    matrix is also a flexible map.
    """

    def evidence(fit: Fit, annotators: Annotators) -> float:
        cost = fit.evidence - float(rows.w @ fit.channel.log_likelihood(rows.logits(fit.theta), rows.y))
        return cost + annotators.log_evidence

    found: list[tuple[Fit, Annotators, float]] = []
    for fit in starts:
        annotators = None
        for _ in range(4):
            annotators = Annotators.fit(rows.logits(fit.theta), rows.y, rows.w, start=annotators)
            found.append((fit, annotators, evidence(fit, annotators)))
            last = fit
            fit = joint.maximise_evidence(
                rows,
                expected,
                samples.prior,
                groups=frozenset({"biases"}),
                start=fit._replace(channel=Channel(0.0, annotators.matrix)),
                rounds=10,
                tolerance=1e-1,
            )
            if np.abs(fit.theta - last.theta).max() < 0.03:
                break
    fit, annotators, most = max(found, key=lambda one: one[2])
    if noise == "classwise":
        return fit, annotators, 1.0
    gain = most - law.log_evidence
    believed = (
        gain > CERTAIN + MUCH * float(rows.w.sum())
        and annotators.rate > FEW
        and _log_t(fit) > samples.prior.centre - UNDER_CONFIDENT
    )
    if believed:
        return fit, annotators, float(expit(gain + logit(CLASSWISE_PROBABILITY)))
    fit, annotators, at_first = found[0]
    return fit, annotators, min(float(expit(at_first - law.log_evidence)), CLASSWISE_PROBABILITY)


def _log_t(fit: Fit) -> float:
    """Temperature with the change of the overall scale that is left in Θ."""
    return fit.log_t - float(np.log1p(fit.theta[:, 0].mean()))


def true_class_gap(samples: Samples, explanation: Explanation) -> tuple[float, float]:
    """Return the mean of h_label − E[h_true class], and how much of a clean label each is worth, on average."""
    part = samples.every(MAX_ELEMENTS, MIN_ROWS)
    rows = samples.rows(explanation.fit.log_t, part)
    _, p, d, info = explanation.channel.apply(rows.logits(explanation.fit.theta), rows.y)
    true = p + d  # posterior of the true class
    h = samples.x[part]
    total = float(rows.w.sum())
    gap = float(rows.w @ (h[np.arange(len(h)), rows.y] - np.vecdot(true, h))) / total
    return gap, float(rows.w @ info) / total


def own_floor(log_s: Floats, w: Floats, k: int) -> float:
    """Posterior mean of the network's own floor, given the log-probability of each label."""
    s = np.exp(log_s)
    evidence = np.array([w @ np.log((1 - e) * s + e / k) if e > 0 else w @ log_s for e in FLOORS])
    return rate_law(FLOORS, evidence, FLOOR_SHAPE, FLOOR_PROBABILITY).mean
