"""What a linear layer can absorb: z = M h + c."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Linear"]


@dataclass(frozen=True)
class Linear:
    """z = M h + c. ``matrix`` is one number, K of them (a diagonal), or K×K; ``bias`` None where there is none."""

    matrix: NDArray[np.float64]
    bias: NDArray[np.float64] | None = None

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
