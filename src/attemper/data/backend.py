"""What a fit asks of scores, wherever they are: NumPy answers here, a GPU in `attemper.torch.rows`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from attemper._typing import Floats
from attemper.kernels import table
from attemper.kernels import temperature as nll

if TYPE_CHECKING:
    from attemper.data.scores import Scores

SINGLE = 4e-8  # share of the NLL / β by which its slope may be off; errors of many logits average out
FEW_ELEMENTS = 1 << 16  # that are worked on in double precision whatever they are


@dataclass(frozen=True, eq=False)
class NumpyRows:
    """The sums by NumPy, chunk by chunk."""

    scores: Scores
    exact = True  # all arithmetic is done in double precision

    @property
    def slope_rounding(self) -> float:
        """Share of the NLL / β by which the slope of the NLL may be off, of logits in single precision.

        Of many all arithmetic is in that, and the largest of each row is 0.
        """
        s = self.scores
        many = len(s) * s.n_classes > FEW_ELEMENTS
        single = s.input == "logits" and "float32" in str(s.values.dtype) and 1e-4 < s.bound < 1e4
        return SINGLE if many and single else 0.0

    def nll(self, beta: float, *, quick: bool = False) -> Floats:
        """NLL, its slope and its curvature in β; ``quick`` allows single precision where it is safe."""
        s = self.scores
        if not quick and self.slope_rounding:
            near = float(np.float32(beta))  # or all products would be off to one side
            value, slope, curvature = s.total(lambda c: nll.sums(*c, near, masked=s.masked), np.float32, large=2)
            step = beta - near
            return np.array([value + step * (slope + step * curvature / 2), slope + step * curvature, curvature])
        dtype = np.float32 if quick and s.bound < 1e4 else np.float64  # where squares of logits are safe
        # Larger chunks pay where there are many. Double precision is worked on without a copy, so there may be twice
        # as much of it.
        large = 4 if "64" in str(s.values.dtype) else 2
        return s.total(lambda chunk: nll.sums(*chunk, beta, bound=s.bound, masked=s.masked), dtype, large=large)

    def limits(self) -> Floats:
        """Slope of the NLL as β → 0 and as β → ∞."""
        return self.scores.total(lambda chunk: nll.limits(*chunk))

    def table(
        self, betas: Floats, thetas: Floats, odds: Floats, unit: float, kernels: Sequence[Callable[[Any], Any]]
    ) -> Floats:
        """Correct weight, confidence at T = unit, NLL and the columns of each kernel; one row for each β."""
        masked = self.scores.masked
        return self.scores.total(lambda chunk: table.tabulate(*chunk, masked, betas, thetas, odds, unit, kernels))

    def confidences(self, betas: Floats) -> Floats:
        """Weight of the correct rows, and the sum of the largest probabilities at each β."""
        masked = self.scores.masked
        return self.scores.total(lambda chunk: table.confidences(*chunk, masked, betas))
