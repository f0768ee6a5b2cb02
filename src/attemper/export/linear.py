"""Maps that a linear layer can absorb: z = M h + c, as a scale and a matrix, for every target that folds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attemper.errors import InputError
from attemper.export.source import Source
from attemper.maps import AffineMap, BinMap, Map, MixtureMap, OddsMap, ScaleMap

__all__ = ["Linear", "linear_of"]


@dataclass(frozen=True)
class Linear:
    """z = M h + c. ``matrix`` is one number, K of them (a diagonal), or K×K; ``bias`` None where there is none."""

    matrix: NDArray[np.float64]
    bias: NDArray[np.float64] | None

    def of_rows(self, weight: NDArray[Any]) -> NDArray[np.float64]:
        """M W, for weights whose first axis is the classes."""
        w = weight.astype(np.float64)
        if self.matrix.ndim == 2:
            return np.tensordot(self.matrix, w, axes=1)
        return self.matrix.reshape(-1, *[1] * (w.ndim - 1)) * w

    def of_bias(self, bias: NDArray[Any] | None) -> NDArray[np.float64] | None:
        """M b + c; None where neither is there."""
        moved = None if bias is None else self.of_rows(bias.reshape(-1))
        if self.bias is None or moved is None:
            return self.bias if moved is None else moved
        return moved + self.bias


def linear_of(source: Source, instead: str) -> Linear:
    """Return the map as a matrix and a bias; an error that names what to do ``instead`` where it is none.

    Softmax of z, not z itself, is what the map says: z may differ by a constant from row to row.
    """
    m = _simplest(source.map)
    if isinstance(m, ScaleMap):
        return Linear(np.array([m.beta]), None)
    if not isinstance(m, AffineMap):
        kind = {MixtureMap: "a mixture of temperatures", OddsMap: "curves of the log-odds", BinMap: "bins"}[type(m)]
        raise InputError(f"the map is {kind}, which no linear layer can absorb; {instead}")
    then = _simplest(m.then)
    if not isinstance(then, ScaleMap):
        raise InputError(f"the affine map ends in a mixture of temperatures, which no layer can absorb; {instead}")
    matrix, k = m.weight, len(m.bias)
    if m.centring == "mean":  # W (h − mean) = (W − row means) h
        if matrix.ndim == 2:
            matrix = matrix - matrix.mean(axis=1, keepdims=True)
        elif np.ptp(matrix) > 0:  # else the mean, times one number, is the same for all classes
            matrix = np.diag(matrix) - matrix[:, None] / k
    elif m.centring == "log_probs" or source.takes_probs:
        # W (h − log Σ exp h): the same for all classes only if the rows of W have one sum.
        sums = m.weight if m.weight.ndim == 1 else m.weight.sum(axis=1)
        if np.ptp(sums) > 1e-12 * np.abs(sums).max():
            raise InputError(f"the affine map takes log-probabilities, which a linear layer does not give; {instead}")
    bias = m.bias * then.beta
    return Linear(matrix * then.beta, bias if np.any(bias != 0) else None)


def _simplest(m: Map) -> Map:
    """Return a mixture of one temperature as that temperature; anything else as it is."""
    if not isinstance(m, MixtureMap) or m.floor > 0:
        return m
    betas = {beta for _, beta in m.parts}
    return ScaleMap(betas.pop()) if len(betas) == 1 else m
