"""What the posterior shows about the annotators: how many labels are wrong, and which classes are confused."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.interpolate import PchipInterpolator
from scipy.special import expit, logit

from attemper._typing import Floats
from attemper.calibrators.annotators import Confusions
from attemper.calibrators.explanations import Explanation, shortest_interval
from attemper.calibrators.group_fits import LabelErrors
from attemper.calibrators.posterior import Model, NoiseHypothesis
from attemper.kernels.channel import Channel

__all__ = ["LabelNoise", "label_errors", "label_noise", "noise_lines", "noise_summary"]

LEAST = -30.0  # log-odds of the smallest rate that counts


class LabelNoise(NamedTuple):
    """The annotators' errors, split from the network's own by the priors; none for clean labels."""

    rate: float = 0.0
    interval: tuple[float, float] = (0.0, 0.0)
    similar: float = 0.0  # posterior probability that errors fall among similar classes
    classwise: float = 0.0  # … that they depend on the class
    confusions: Confusions | None = None

    def mixed(self, explanation: Explanation, share: float, n_classes: int, credible_level: float) -> LabelNoise:
        """Average with an account in which the network has biases; the interval holds those of both, if both may be."""
        mine, other = self.interval, explanation.noise_interval(credible_level)
        of_both = (min(mine[0], other[0]), max(mine[1], other[1]))
        interval = other if share > 0.95 else mine if share < 0.05 else of_both
        return LabelNoise(
            (1 - share) * self.rate + share * explanation.noise_rate(),
            interval,
            (1 - share) * self.similar,
            share * explanation.classwise,
            explanation.confusions(n_classes, credible_level),
        )


class FittedNoise(Protocol):
    """What a fit with a model of the labels' errors has."""

    labels: Literal["clean", "noisy"]
    credible_level: float
    temperature_: float
    temperature_interval_: tuple[float, float]
    noise_rate_: float
    noise_interval_: tuple[float, float]
    classwise_: float
    confusions_: Confusions | None
    uniform_mass_: float
    classes_: NDArray[Any]


def label_errors(fit: FittedNoise, similar: float = 0.0) -> LabelErrors:
    """Return the most probable account of how labels go wrong; ``similar`` is the probability of similar classes."""
    if fit.labels == "clean" or fit.noise_rate_ == 0:
        return LabelErrors()
    if fit.confusions_ is not None and fit.classwise_ > 0.5:
        return LabelErrors(Channel(0.0, fit.confusions_.matrix))
    return LabelErrors(Channel(fit.noise_rate_), similar > 0.5)


def noise_summary(fit: FittedNoise) -> dict[str, Any]:
    """Return what a fit found about the labels as plain numbers."""
    worst = [] if fit.confusions_ is None else fit.confusions_.worst()
    return {
        "labels": fit.labels,
        "noise_rate": fit.noise_rate_,
        "noise_interval": list(fit.noise_interval_),
        "uniform_mass": fit.uniform_mass_,
        "classwise": fit.classwise_,
        "confusions": [
            {"true": k, "label": j, "mean": mean, "low": low, "high": high} for k, j, mean, low, high in worst
        ],
    }


def noise_lines(fit: FittedNoise) -> list[str]:
    """Return a readable summary of temperature and noise, line by line; the first is about T."""
    low, high = fit.temperature_interval_
    lines = [f"T = {fit.temperature_:.4g} ({fit.credible_level:.0%} credible interval {low:.4g} … {high:.4g})"]
    if fit.labels == "noisy":
        low, high = fit.noise_interval_
        lines.append(f"noise in the labels: {fit.noise_rate_:.1%} ({low:.1%} … {high:.1%})")
    if fit.confusions_ is not None and fit.noise_rate_ > 0.01:  # without errors nothing depends on the class
        lines.append(f"probability that the errors depend on the class: {fit.classwise_:.0%}")
        if fit.classwise_ > 0.5:
            lines += [
                f"  {mean:.1%} ({low:.1%} … {high:.1%}) of class {fit.classes_[k]} are labelled {fit.classes_[j]}"
                for k, j, mean, low, high in fit.confusions_.worst()
            ]
    if fit.uniform_mass_ > 0.0005:
        lines.append(f"probability of a uniform guess in every prediction: {fit.uniform_mass_:.1%}")
    return lines


def label_noise(model: Model, e: Floats, parts: list[NoiseHypothesis], credible_level: float) -> LabelNoise:
    """Summarise the posterior ``parts`` over (log T, e) as a rate and its interval."""
    anywhere, similar = (part.weight.sum(axis=0) for part in parts)
    floor = parts[0].floor
    rate = float(anywhere @ ((e - floor) / (1 - floor)) + similar @ e)
    return LabelNoise(rate, _interval(model, e, anywhere, similar, credible_level), float(similar.sum()))


def _interval(model: Model, e: Floats, anywhere: Floats, similar: Floats, credible_level: float) -> tuple[float, float]:
    """Credible interval of the rate."""
    # The annotators' rate has a density, of which the grid has the mass of each cell: within a cell the share below
    # is interpolated. That of errors anywhere is e itself where the network has no floor.
    v = logit(e)
    ends = np.append(v[0], v) + (v[1] - v[0]) * np.append(-0.5, np.full(len(v), 0.5))
    mass = anywhere * model.no_floor(e) + similar
    # What is next to nothing would overflow as a slope.
    below_end = PchipInterpolator(ends, np.append(0.0, np.cumsum(mass * (mass > 1e-200))))

    t = np.concatenate([[0.0], expit(np.linspace(LEAST, ends[0], 30)[:-1]), expit(np.linspace(ends[0], ends[-1], 200))])
    with_floor = model.noise_below_with_floor(t[:, None], e) @ anywhere
    below = with_floor + np.append(0.0, below_end(np.clip(logit(t[1:]), ends[0], ends[-1])))
    return shortest_interval(t, below / below[-1], credible_level)
