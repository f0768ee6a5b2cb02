"""Sums of many logarithms, as logarithms of a few products.

A logarithm takes ten times as long as a multiplication. All factors are positive, so that nothing cancels: a product of
m of them has a relative error of m roundings, and its logarithm an absolute one, as the sum of m logarithms has.
"""

from __future__ import annotations

import numpy as np

from attemper._typing import Floats

__all__ = ["sum_log1p", "sum_log_plus"]

MOST_FACTORS = 64
LARGEST = 290 * np.log(10)  # of the logarithm of a product, in magnitude


def sum_log1p(r: Floats) -> float:
    """Σ log(1 + r_i) for r ≥ 0, accurate where all r are tiny too.

    (1 + a)(1 + b) = 1 + (a + b + ab), so that the 1 is never added to what is tiny.

    >>> sum_log1p(np.array([1.0, 3.0])), sum_log1p(np.full(1000, 1e-30))
    (2.0794415416798357, 1e-27)
    """
    factors, largest = 1, float(r.max(initial=0.0))
    total = 0.0
    while len(r) > 1 and factors < MOST_FACTORS and 2 * factors * np.log1p(largest) < LARGEST:
        half = len(r) // 2
        a, b = r[:half], r[half : 2 * half]
        total += float(np.log1p(r[2 * half :]).sum())  # the one that is left
        r = a * b
        r += a
        r += b
        factors *= 2
    return total + float(np.log1p(r).sum())


def sum_log_plus(q: Floats, odds: Floats) -> Floats:
    """Σ_i log(q_i + r) for each r > 0 of ``odds``, and q ≥ 0.

    The product of four factors is a polynomial in r with coefficients that are not negative. One product of matrices
    evaluates it for all r.

    >>> sum_log_plus(np.array([1.0, 3.0]), np.array([1.0]))
    array([2.07944154])
    """
    centre = np.sqrt(odds * (odds + q.max(initial=0.0)))  # factors (q + r) / centre lie around 1
    spread = float(np.log(centre / odds).max())
    quads = max(1, min(MOST_FACTORS, int(LARGEST / max(spread, 1e-300))) // 4)  # in one product
    missing = -len(q) % (4 * quads)
    a, b, c, d = (np.concatenate([q, np.zeros(missing)]) if missing else q).reshape(4, -1)
    s, p, t, u = a + b, a * b, c + d, c * d
    polynomials = np.stack([np.ones_like(s), s + t, p + u + s * t, s * u + p * t, p * u])
    powers = (odds / centre)[:, None] ** 4 * odds[:, None] ** -np.arange(5.0)
    value = (powers @ polynomials).reshape(len(odds), quads, -1)
    logs = np.log(np.multiply.reduce(value, axis=1)).sum(axis=1)
    return np.asarray(logs + len(q) * np.log(centre) - missing * np.log(odds / centre))
