"""Class structure on top of temperature and biases: as much of it as the data support.

With x the centred logits at temperature T, z = x + b + s ∘ x + M x. Biases b, changes of scale s and the rest of the
matrix M (for two classes: a curve) are groups of parameters whose priors are shrunk to what the data support
(`attemper.kernels.joint`), given a model of the labels (`attemper.calibrators.explanations`).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from attemper._typing import Floats
from attemper.calibrators.explanations import Explanation, own_floor
from attemper.calibrators.samples import MAX_ELEMENTS, Labels, Samples
from attemper.kernels import joint
from attemper.kernels.channel import Channel
from attemper.kernels.joint import Fit, Rows
from attemper.kernels.shrinkage import ScalePrior
from attemper.maps.affine import bend

__all__ = ["STRUCTURES", "Structure", "fit_structure"]

STRUCTURES = ("biases", "scales", "matrix")
LEAST_ROWS = 2000  # that class structure needs
LARGE = 10_000_000  # logits, of which each pass takes a second


class Structure(NamedTuple):
    """What was found: z = weight x + bias + curve · bend(scale · margin), x being the centred logits."""

    weight: Floats
    bias: Floats
    curve: Floats | None
    scale: float
    uniform_mass: float
    fit: Fit
    total: float  # weight
    part: slice  # of the samples, on which it is compared with simpler maps
    held_out: Floats | None  # log-likelihood of each of these by a fit without its fold

    @property
    def temperature(self) -> float:
        """Of all classes together."""
        own = np.diag(self.weight) if self.weight.ndim == 2 else self.weight
        return 1 / float(own.mean())

    @property
    def gap(self) -> float:
        """Bound on the mean objective above its minimum, from the gradient and the least precision."""
        least = min(self.fit.precisions[:4])
        return 0.5 * self.fit.gradient_norm**2 * self.total / max(least, 1e-300)


def fit_structure(
    samples: Samples, explanation: Explanation, labels: Labels, structure: str, folds: NDArray[np.int64]
) -> Structure:
    """Add what the data support on top of temperature and biases."""
    k, expected, prior = samples.n_classes, samples.expected(), samples.prior
    base = explanation.fit
    rows, base = joint.rescaled(samples.rows(base.log_t), base)
    groups = {"biases"}
    theta, level = base.theta, STRUCTURES.index(structure)
    if level > 0 and k > 2:
        groups.add("scales")
    features = None
    if level == 2 and k == 2:
        features = np.concatenate([rows.x, bend(rows.x[:, 1:] - rows.x[:, :1], np)], axis=1)
        groups.add("curve")
    elif level == 2:
        features = rows.x
        groups.add("matrix")
    if features is not None:
        theta = np.zeros((k, features.shape[1] + 1))
        theta[np.diag_indices(k)], theta[:, -1] = base.theta[:, 0], base.theta[:, -1]
    rows = Rows(rows.x, rows.y, rows.w, rows.masked, features)
    part = samples.every(MAX_ELEMENTS, LEAST_ROWS)
    few = rows.only(part)
    start = base._replace(theta=theta, precisions=expected.start(k)._replace(biases=base.precisions.biases))
    found = joint.maximise_evidence(few, expected, prior, groups=frozenset(groups), start=start)
    held_out = _held_out(few, found, prior, folds[part]) if len(few.y) == len(rows.y) else None
    found = joint.polish(rows, found, prior, sample=few, tolerance=1e-6, rounds=30 if rows.x.size < LARGE else 4)
    within = found.log_t_std**2 * few.w.sum() / rows.w.sum()
    found = found._replace(log_t_std=float(np.sqrt(within + explanation.log_t_variance)))
    mass = explanation.own_floor
    if labels == "clean":
        log_s = Channel().log_likelihood(few.logits(found.theta), few.y)
        mass = own_floor(log_s, few.w, k)
    weight = found.theta[:, 0] + 1 if features is None else np.eye(k) + found.theta[:, :k]
    scale = float(np.exp(-found.log_t))
    curve = found.theta[:, k] if features is not None and k == 2 else None
    if held_out is None and len(few.y) < len(rows.y):  # many samples: their number of effective parameters has to do
        held_out = found.channel.log_likelihood(few.logits(found.theta), few.y) - found.effective / rows.w.sum()
    return Structure(
        weight * scale, found.theta[:, -1], curve, scale, mass, found, float(samples.w.sum()), part, held_out
    )


def _held_out(few: Rows, found: Fit, prior: ScalePrior, fold: NDArray[np.int64]) -> Floats | None:
    """Log-likelihood of each sample by a fit without its fold; None if there are too few samples for that."""
    count = int(fold.max()) + 1 if len(fold) else 0
    share = np.bincount(fold, few.w, max(count, 1)) / few.w.sum()
    if count < 2 or share.min() < 0.02 or len(few.y) < 20:
        return None
    value = np.zeros(len(few.y))
    for k in range(count):
        rest = few.only(fold != k)
        part = joint.polish(rest, found, prior, tolerance=1e-4, rounds=3)
        own = few.only(fold == k)
        value[fold == k] = found.channel.log_likelihood(own.logits(part.theta), own.y)
    return value
