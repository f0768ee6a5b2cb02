"""The attended loss of the paper, for every θ of a grid in one pass.

    M_k = {i : y_i = k, or S_k(x_i, T = 1) ≥ θ}                                   Eq. (7)
    L(T) = −Σ_k Σ_{i ∈ M_k} log [ S_k (1 − S_{y_i}) / (1 − S_k) ]                 Eq. (8), S at temperature T

since S_{y≠k} = 1 − S_k. For k = y_i the bracket is S_{y_i}: these terms are the NLL. What is left are pairs (i, k) with
k ≠ y_i and S_k(x_i, 1) ≥ θ. Membership is decided at T = 1, so `pairs` puts each pair once into the bin of the largest
θ that it reaches; `terms` adds up the terms of each bin at one T; `theta_path` adds up the bins from the top down: the
loss for every θ at once.

The authors' published code has −2 log S_k + log(1 − S_k) for the pairs, and takes in the predicted class of every
misclassified sample whatever θ is: here that is the ``reference`` loss.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from attemper._typing import Floats
from attemper.kernels.softmax import BOTTOM, Split, log_rest, rest

Indices = NDArray[np.intp]


class Pairs(NamedTuple):
    """Pairs (i, k), k ≠ y_i, of one chunk, sorted by θ-bin; bin b holds those from edges[b] to edges[b + 1] − 1."""

    row: Indices  # i
    gap: Floats  # h_ik − max(h_i), so that log S_k = β gap − log Z
    top: Indices  # which pairs have the arg max for k
    weight: Floats | None
    edges: Indices


def pairs(
    rows: Split, y: NDArray[np.int64], w: Floats | None, thetas: Floats, *, reference: bool = False, unit: float = 1.0
) -> Pairs:
    """Eq. (7): find the pairs with S_k(x_i, 1) ≥ θ for some θ.

    ``thetas`` ascends; ``unit`` is the T that counts as 1.
    """
    e, total = rest(rows, 1 / unit)
    n = np.arange(len(y))
    e[n, rows.top] = 1.0
    s = e / (1.0 + total)[:, None]  # S_k(x_i, 1)
    if reference:
        s[n, rows.top] = np.inf  # whatever θ is
    member = s >= thetas[0]
    member[n, y] = False  # these terms are the NLL
    if rows.possible is not None:
        member &= (rows.d > BOTTOM) | (np.arange(s.shape[1]) == rows.top[:, None])
    row, k = np.nonzero(member)
    # Bin b has thetas[b] ≤ S_k < thetas[b + 1]; of small integers a stable sort is a radix sort.
    reached = np.searchsorted(thetas, s[row, k], side="right") - 1
    order = np.argsort(reached.astype(np.min_scalar_type(len(thetas))), kind="stable")
    row, k = row[order], k[order]
    is_top = rows.top[row] == k
    gap = np.where(is_top, 0.0, rows.d[row, k])
    edges = np.searchsorted(reached[order], np.arange(len(thetas) + 1))
    return Pairs(row, gap, np.flatnonzero(is_top), None if w is None else w[row], edges)


def terms(rows: Split, y: NDArray[np.int64], found: Pairs, beta: float, total: Floats, *, reference: bool) -> Floats:
    """Eq. (8): sum the terms of the pairs of each θ-bin at β = 1/T; ``total`` is R of `rest` at this β.

    No probability is subtracted from one that is above one half: log(1 − S) of the arg max is log R − log(1 + R).
    """
    log_z = np.log1p(total)
    log_not_top = log_rest(rows, beta, total) - log_z  # log(1 − S) of the arg max of each row
    log_s = beta * found.gap
    log_s -= log_z[found.row]  # log S_k
    s = np.exp(log_s)
    s[found.top] = 0.0
    log_not = np.log1p(-s)  # log(1 − S_k)
    log_not[found.top] = log_not_top[found.row[found.top]]
    if reference:
        term = -2 * log_s + log_not
    else:
        s_label = np.exp(beta * rows.d[np.arange(len(y)), y] - log_z)  # 0 where the label is the arg max
        log_not_label = np.where(rows.top == y, log_not_top, np.log1p(-s_label))  # log(1 − S_{y_i})
        term = -log_s - log_not_label[found.row] + log_not  # −log [ S_k (1 − S_{y_i}) / (1 − S_k) ]
    term = term if found.weight is None else found.weight * term
    total = np.zeros(len(found.edges) - 1)
    filled = found.edges[:-1] < found.edges[1:]  # reduceat knows no empty segments
    if filled.any():
        total[filled] = np.add.reduceat(term, found.edges[:-1][filled])
    return total


def theta_path(nll: Floats, by_bin: Floats) -> Floats:
    """Attended loss at each node (rows) for each θ (columns): the NLL, and the bins summed from the top down."""
    return np.asarray(nll[:, None] + np.cumsum(by_bin[:, ::-1], axis=1)[:, ::-1])
