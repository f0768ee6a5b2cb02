"""How many labels T takes."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from scipy.special import ndtri, stdtrit

from attemper._checks import fraction, number, positive
from attemper._typing import Floats
from attemper.errors import InputError
from attemper.kernels.information import information, of_temperature
from attemper.kernels.nll import row_terms
from attemper.planning.pilot import Pilot, fitted_temperature
from attemper.planning.plan import Plan, curve_around, smallest

__all__ = ["labels_for_temperature"]


def labels_for_temperature(
    pilot: Any,
    labels: Any = None,
    *,
    width: float,
    confidence_level: float = 0.95,
    temperature: float | None = None,
    noise: float = 0.0,
    clusters: Any = None,
) -> Plan:
    r"""Plan labels for an interval of T whose upper end is ``width`` times its lower end.

    The Fisher information of a label about :math:`\log T` is :math:`\operatorname{Var}_S[h / T]`, whatever the
    label is. So n labels leave an interval of :math:`\log T` of the width :math:`2 z / \sqrt{n I}`, I being the mean
    over the pilot: the interval of `attemper.TemperatureScaling`. The pilot needs labels only to find T.

    Parameters
    ----------
    pilot : Scores, or logits of shape (N, K)
        Samples of the kind that will be labelled. `typical_network` stands in for it.
    labels : array of shape (N,), optional
        With logits. They fit the T at which the information is taken.
    width : float
        Largest ratio of the ends, such as 1.2: T = 2 would be known from 1.83 to 2.19.
    confidence_level : float
    temperature : float, optional
        Take the information at this T, and fit none. By default 1 for a pilot without labels.
    noise : float
        Share of labels that will be wrong, drawn uniformly, such as 0.1. It is estimated together with T, as
        ``BayesianTemperatureScaling(labels="noisy")`` does, and both cost information.
    clusters : array of shape (N,), optional
        Which samples of the pilot are of the same patient or document; by default those of the `Scores`. With labels
        they show how much less than independent samples they are worth.

    Returns
    -------
    Plan
        The curve has ``n_samples`` and ``width``.

    Examples
    --------
    >>> from attemper import datasets
    >>> from attemper.planning import labels_for_temperature
    >>> data = datasets.load()
    >>> plan = labels_for_temperature(data.val_logits[:200], data.val_labels[:200], width=1.2)
    >>> plan.n_samples, plan.n_range
    (773, (602, 992))
    >>> labels_for_temperature(data.val_logits[:200], temperature=1.7, width=1.2).n_samples  # no labels at all
    789
    """
    ratio = number("width", width, 1, expected="a number above 1, such as 1.2", closed=(False, False))
    fraction("confidence_level", confidence_level)
    number(
        "noise",
        noise,
        0,
        1,
        expected="a share from 0 to below 1, such as 0.1",
        closed=(True, False),
    )
    p = Pilot.of(pilot, labels, clusters)
    h = p.logits()
    known = temperature is not None or p.labels is None
    t = positive("temperature", 1.0 if temperature is None else temperature) if known else fitted_temperature(p, h)[0]
    rows = information(h, t, noise)
    mean = of_temperature(p.weights @ rows)
    if mean <= 1e-12:
        raise InputError(
            f"pilot: at T = {t:.4g} its labels would not depend on T: the logits of every row are equal, or one class "
            f"is certain. Use temperature=… with the T of a similar network.",
            param="temperature",
        )
    effect = _effect(p, h, t)

    def half(n: float) -> float:
        groups = p.clusters_of(n)
        z = (
            ndtri((1 + confidence_level) / 2)
            if groups is None
            else stdtrit(max(groups - 1, 1), (1 + confidence_level) / 2)
        )
        return float(z * math.sqrt(effect / (n * mean)))

    goal = f"an interval of T whose upper end is {ratio:g} times its lower end, at {confidence_level:.4g}"
    n = smallest(lambda n: 2 * half(n) <= math.log(ratio), goal)
    at = curve_around(n)
    return Plan(
        question="temperature",
        goal=goal,
        n_samples=n,
        curve={"n_samples": at, "width": np.exp(np.minimum([2 * half(m) for m in at], 700))},
        target=ratio,
        confidence_level=confidence_level,
        n_range=_range(n, p, h, t, noise, rows[:, 0], 0.0 if known else math.sqrt(effect / mean)),
        n_clusters=p.clusters_of(n),
        notes=tuple(_notes(p, t, mean, effect, noise, known)),
    )


def _effect(p: Pilot, h: Floats, t: float) -> float:
    """How many times as many labels of clusters as of independent samples it takes, as the interval of a fit has it."""
    if p.clusters is None or p.labels is None:
        return 1.0
    w = p.weights * len(p.weights)
    _, slopes, curvature = row_terms(h, p.labels, 1 / t, masked=p.scores.masked)
    of_cases = np.bincount(p.clusters, w * (slopes - p.moment(slopes)))
    n = len(of_cases)
    return max(1.0, n / (n - 1) * float(of_cases @ of_cases) / max(float(w @ curvature), 1e-300))


def _range(n: int, p: Pilot, h: Floats, t: float, noise: float, rows: Floats, log_t_spread: float) -> tuple[int, int]:
    """How far off n may be: the pilot's samples differ, and T is known as well as its labels show."""
    mean, size = p.moment(rows), 1 / float(p.weights @ p.weights)
    of_rows = p.moment((rows - mean) ** 2) / (mean**2 * size)
    step = log_t_spread / math.sqrt(size)
    of_t = 0.0
    if step > 0:
        low, high = (of_temperature(p.weights @ information(h, t * math.exp(d), noise)) for d in (-step, step))
        of_t = (math.log(max(high, 1e-300) / max(low, 1e-300)) / 2) ** 2
    factor = math.exp(min(1.96 * math.sqrt(of_rows + of_t), 20.0))
    return max(1, math.floor(n / factor)), math.ceil(n * factor)


def _notes(p: Pilot, t: float, mean: float, effect: float, noise: float, known: bool) -> list[str]:
    of = "" if known else ", fitted on the pilot"
    found = [f"at T = {t:.4g}{of}, a label is worth {mean:.3g} of information on log T"]
    found += p.cluster_notes(effect)
    if noise:
        found.append(f"{noise:.3g} of the labels wrong at random, a rate that is estimated with T")
    return found
