"""What one label is expected to add to what is known of T: Fisher information, which needs no labels.

Labels are drawn from S(T) = softmax(h / T); a share ε of them is replaced by a uniform draw, so that a label y has the
probability p_y = (1 − ε) S_y + ε / K. With a = h / T and u = log T,

    ∂p_y/∂u = −(1 − ε) S_y (a_y − E_S[a]),    ∂p_y/∂ε = 1/K − S_y.

Without wrong labels the information of u is Var_S[a] (Eq. 5 differentiated once more).
"""

from __future__ import annotations

import numpy as np

from attemper._typing import Floats
from attemper.kernels.softmax import softmax_in_place

__all__ = ["information", "of_temperature"]


def information(h: Floats, temperature: float, noise: float = 0.0) -> Floats:
    """Return the expected information of each row, N×3: of log T, of log T and ε together, and of ε.

    The last two are 0 without ``noise``. A logit of −inf is a class that cannot be.

    >>> information(np.array([[0.0, 0.0], [2.0, 0.0]]), 1.0)[:, 0].round(3)
    array([0.  , 0.42])
    """
    a = h / temperature
    top = a.max(axis=1, keepdims=True)
    a = a - top
    s = a.copy()
    softmax_in_place(s)
    possible = np.isfinite(a)
    a[~possible] = 0.0
    a -= np.einsum("ik,ik->i", s, a)[:, None]
    out = np.zeros((len(a), 3))
    if noise == 0:
        out[:, 0] = np.einsum("ik,ik,ik->i", s, a, a)
        return out
    uniform = possible / possible.sum(axis=1, keepdims=True)
    p = np.where(possible, (1 - noise) * s + noise * uniform, 1.0)
    by_u, by_noise = -(1 - noise) * s * a, uniform - s
    for column, (left, right) in enumerate(((by_u, by_u), (by_u, by_noise), (by_noise, by_noise))):
        out[:, column] = (left * right / p).sum(axis=1)
    return out


def of_temperature(mean: Floats) -> float:
    """Return what is left for log T of mean information (3,), where ε is estimated from the same labels.

    >>> of_temperature(np.array([0.5, 0.0, 0.0])), of_temperature(np.array([0.5, 0.3, 0.9]))
    (0.5, 0.4)
    """
    both, cross, of_noise = (float(v) for v in mean)
    return both if of_noise == 0 else max(both - cross**2 / of_noise, 0.0)
