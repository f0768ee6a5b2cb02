"""How strongly the parameters of an affine map are drawn towards no change: by the evidence (MacKay 1992).

Parameters θ of a group have a normal prior of mean zero and one precision λ. Where the data determine them
well (posterior variance v far below 1/λ) their size says what λ is; where not, they say nothing::

    λ = (Σ (1 − λ v) + c) / (Σ θ² + c · variance)

with c pseudo-parameters of a given variance, which speak where data are few. The posterior is taken for normal, with
the curvature of the likelihood class by class.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lapack

from attemper.kernels.multinomial import row_max

__all__ = ["log_volume", "posterior_variances", "precision", "true_classes"]

Floats = NDArray[np.float64]

BUDGET = 1 << 30  # multiplications for all blocks; above, some of the rows have to do


def true_classes(z: Floats, log_channel: Floats, y: NDArray[np.int64]) -> tuple[Floats, Floats]:
    """Posterior of the true class of each sample, and the log-likelihood of its label.

    ``log_channel`` is K×K: the log-probability of each label (column) for a true class (row).
    """
    q = np.ascontiguousarray(log_channel.T)[y]
    q += z
    together = _exponentials(q)
    return q, together - _exponentials(z.copy())


def _exponentials(z: Floats) -> Floats:
    """Turn logits into probabilities in place; return the logarithms of the sums of their exponentials."""
    top = row_max(z)
    z -= top[:, None]
    np.exp(z, out=z)
    total = np.vecdot(z, np.ones(z.shape[1]))
    z /= total[:, None]
    return np.asarray(np.log(total) + top)


def posterior_variances(x: Floats, p: Floats, w: Floats, precisions: Floats) -> Floats:
    """Posterior variance of each parameter: K×(D+1) with the bias last, or K×2 for a diagonal A.

    ``w`` says how much each sample tells; ``precisions`` are those of the prior, and tell by their shape which it is.
    """
    return np.array([_inverse_diagonal(block) for block in _blocks(x, p, w, precisions)], dtype=np.float64)


def log_volume(x: Floats, p: Floats, w: Floats, precisions: Floats) -> float:
    """Log-determinant of the posterior's precision over the prior's: how much narrower the data made it."""
    found = sum(float(np.linalg.slogdet(block)[1]) for block in _blocks(x, p, w, precisions))
    return found - float(np.sum(np.log(precisions)))


def _blocks(x: Floats, p: Floats, w: Floats, precisions: Floats) -> Iterator[Floats]:
    """Precision of the posterior of the parameters of each class."""
    n, k = p.shape
    # The classes share one degree of freedom that the softmax does not see.
    h = p * (1 - p) * w[:, None] * (k / (k - 1))
    diagonal = precisions.shape[1] == 2 and x.shape[1] != 1
    step = 1 if diagonal else max(1, n * k * x.shape[1] ** 2 // BUDGET)
    roots = np.sqrt(step * h[::step])
    ones = np.ones(len(roots))
    full = np.column_stack([x[::step], ones]) if not diagonal else x
    for c in range(k):
        features = np.column_stack([x[:, c], ones]) if diagonal else full
        features = features * roots[:, c : c + 1]
        block = features.T @ features  # of the same array: half the work, as NumPy knows the product for symmetric
        block[np.diag_indices_from(block)] += precisions[c]
        yield block


def _inverse_diagonal(block: Floats) -> Floats:
    lower = np.linalg.cholesky(block)
    inverse, _ = lapack.dtrtri(lower, lower=1)
    return np.asarray(np.einsum("ij,ij->j", inverse, inverse))


def precision(theta: Floats, variances: Floats, before: float, count: float, variance: float) -> float:
    """Precision of a group that explains its parameters best."""
    determined = float(np.sum(np.clip(1 - before * variances, 0, 1)))
    found = (determined + count) / (float(np.sum(theta**2)) + count * variance)
    return float(np.clip(found, 1e-3, 1e9))
