"""The attended loss of the paper: the pairs of Eq. (7), the terms of Eq. (8), by θ-bin.

For k = y_i the term of Eq. (8) is −log S_{y_i}, because S_{y≠k} = 1 − S_k.
Hence the attended loss is the NLL plus, for each pair (i, k) with k ≠ y_i and
S_k(x_i, 1) ≥ θ,

    −log S_k − log(1 − S_{y_i}) + log(1 − S_k)        at temperature T.

Membership is decided at T = 1, so each pair is put once into the bin of the
largest θ of the grid that it reaches. The sum of the bins from the top down is
then the loss for every θ at once.

The authors' published code has ``−2 log S_k + log(1 − S_k)`` for those pairs, and
takes in the predicted class of every misclassified sample whatever θ is: here
that is the ``reference`` loss.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from attemper._typing import Floats
from attemper.kernels.softmax import BOTTOM, Rows, log_rest, rest

__all__ = ["Pairs", "pairs", "terms", "theta_path"]

Indices = NDArray[np.intp]
MOST_FACTORS = 512  # of a product that does not vanish


class Pairs(NamedTuple):
    """Pairs (i, k), k ≠ y_i, of one chunk, sorted by θ-bin.

    Those whose k is the arg max of its row stand apart: their log(1 − S_k) is that of the row.
    """

    row: Indices
    gap: Floats  # h_ik − max(h_i)
    weight: Floats | None
    edges: Indices  # bin b holds the pairs edges[b] … edges[b + 1] − 1
    top_row: Indices  # the rows whose arg max is k
    top_edges: Indices
    gap_sum: Floats  # per bin, the weighted sum of the gaps


def pairs(
    rows: Rows, y: NDArray[np.int64], w: Floats | None, thetas: Floats, *, reference: bool = False, unit: float = 1.0
) -> Pairs:
    """Find the pairs of Eq. (7) that reach at least the smallest θ.

    ``thetas`` ascends. A pair lies in bin b if thetas[b] ≤ S_k(x_i, 1) < thetas[b + 1]; ``unit`` is the T that counts
    as 1.
    """
    n = np.arange(len(y))
    e, total = rest(rows, 1 / unit)
    e[n, y] = -1.0  # never a pair
    z = 1.0 + total
    # Neither is the arg max here, whose d is BOTTOM (e = 0), nor a masked class, unless θ = 0 asks for all.
    member = e >= (thetas[0] * z)[:, None]
    if thetas[0] == 0:
        member &= rows.d > BOTTOM
    place = np.flatnonzero(member)
    row = place // e.shape[1]
    gap = rows.d.ravel()[place]
    where = np.searchsorted(thetas, e.ravel()[place] / z[row], side="right") - 1
    order = np.argsort(where.astype(np.int16), kind="stable")  # a radix sort
    row, gap, where = row[order], gap[order], np.maximum(where[order], 0)
    top_row = np.flatnonzero(rows.top != y)
    if reference:
        top_where = np.full(len(top_row), len(thetas) - 1)
    else:
        top_where = np.searchsorted(thetas, 1.0 / z[top_row], side="right") - 1
        top_row, top_where = top_row[top_where >= 0], top_where[top_where >= 0]
        order = np.argsort(top_where, kind="stable")
        top_row, top_where = top_row[order], top_where[order]
    bins = np.arange(len(thetas) + 1)
    edges = np.searchsorted(where, bins)
    weight = None if w is None else w[row]
    gap_sum = _by_bin(gap if weight is None else gap * weight, edges)
    return Pairs(row, gap, weight, edges, top_row, np.searchsorted(top_where, bins), gap_sum)


def terms(
    rows: Rows,
    y: NDArray[np.int64],
    w: Floats | None,
    found: Pairs,
    beta: float,
    total: Floats,
    *,
    reference: bool,
) -> Floats:
    """Sum the terms of Eq. (8) for k ≠ y_i over the pairs of each θ-bin.

    ``total`` is R of `rest` at this β.
    """
    log_z = np.log1p(total)
    log_not_top = log_rest(rows, beta, total) - log_z
    # What a pair takes from its row: −log S_k = −β d_k + log Z, and the second factor of Eq. (8).
    if reference:
        from_row, slope = 2 * log_z, 2 * beta
    else:
        s_label = np.exp(beta * rows.d[np.arange(len(y)), y] - log_z)  # 0 where the label is the arg max
        from_row = log_z - np.where(rows.top == y, log_not_top, np.log1p(-s_label))
        slope = beta
    s = np.exp(beta * found.gap)
    s *= (1.0 / (1.0 + total))[found.row]
    if found.weight is None:
        by_bin = _logs_by_bin(np.subtract(1.0, s, out=s), found.edges) + _by_bin(from_row[found.row], found.edges)
    else:
        value = np.log1p(np.negative(s, out=s), out=s)
        value += from_row[found.row]
        by_bin = _by_bin(value * found.weight, found.edges)
    top = from_row[found.top_row] + log_not_top[found.top_row]
    if w is not None:
        top = top * w[found.top_row]
    return by_bin - slope * found.gap_sum + _by_bin(top, found.top_edges)


def theta_path(nll: Floats, by_bin: Floats) -> Floats:
    """Attended loss at each node (rows) for each θ (columns): the bins summed from the top down."""
    return np.asarray(nll[:, None] + np.cumsum(by_bin[:, ::-1], axis=1)[:, ::-1])


def _logs_by_bin(factors: Floats, edges: Indices) -> Floats:
    """Sum the logarithms of factors from 1/2 to 1: logarithms of products, which are far cheaper."""
    count = -(-np.diff(edges) // MOST_FACTORS)
    products = np.append(0, np.cumsum(count))
    if not products[-1]:
        return np.zeros(len(count))
    starts = np.repeat(edges[:-1] - MOST_FACTORS * products[:-1], count) + MOST_FACTORS * np.arange(products[-1])
    return _by_bin(np.log(np.multiply.reduceat(factors, starts)), products)


def _by_bin(value: Floats, edges: Indices) -> Floats:
    total = np.zeros(len(edges) - 1)
    filled = edges[:-1] < edges[1:]  # reduceat knows no empty segments
    if filled.any():
        total[filled] = np.add.reduceat(value, edges[:-1][filled])
    return total
