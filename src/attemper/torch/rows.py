"""Rows of logits on a GPU: one scan, and then what a fit asks of them, as `attemper.data.backend` has it."""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from types import ModuleType
from typing import Any

import numpy as np

from attemper._typing import Floats, Labels
from attemper.data.arrays import row_slices
from attemper.errors import require, warn
from attemper.torch import plain

torch: Any = require("torch", extra="torch", why="for logits on a GPU")

# Up to so many logits the arithmetic is done in double precision. With more, what single precision rounds averages out.
FEW_ELEMENTS = 1 << 24
SINGLE = 1e-7  # share of a slope's terms that single precision may leave open
SINGLE_BOUNDS = 1e-8, 1e8  # logits on another scale would leave the range of single precision
PLACES = 1 << 24  # room for the entries that are looked for at once


@dataclass(frozen=True, eq=False)
class DeviceRows:
    """Logits on a device, and what one scan found of each row. Make one with `of`."""

    h: Any  # N₀×K tensor
    index: Any  # which of its rows count (int64), or None: all of them
    y: Any  # None: there are no labels
    w: Any  # float64, or None
    found: plain.Scan
    exact: bool  # the arithmetic is done in double precision
    has_nonfinite: bool

    @property
    def slope_rounding(self) -> float:
        """See `attemper.data.backend.NumpyRows`."""
        return 0.0 if self.exact else SINGLE

    @classmethod
    def of(cls, h: Any, y: Any, w: Floats | None = None, index: Labels | None = None) -> DeviceRows:
        """Scan logits; labels may be a tensor."""
        h = h.detach() if h.is_floating_point() else h.to(torch.float64)
        n = h.shape[0] if index is None else len(index)
        # The kernels of Triton take columns that lie side by side.
        labels, picked, weights = (None if a is None else _tensor(a, h.device) for a in (y, index, w))
        any_label = torch.zeros(n, dtype=torch.int64, device=h.device) if labels is None else labels
        found, has_nonfinite = _sums_of(h).scan(h, picked, any_label)
        exact = h.dtype == torch.float64 or n * h.shape[1] <= FEW_ELEMENTS
        rows = cls(h, picked, labels, weights, found, exact, has_nonfinite)
        return rows if exact or SINGLE_BOUNDS[0] < rows.bound() < SINGLE_BOUNDS[1] else replace(rows, exact=True)

    def __len__(self) -> int:
        """Return N, the number of rows that count."""
        return int(self.found.top.shape[0])

    def weighted(self, w: Floats) -> DeviceRows:
        """Give the rows other weights."""
        return replace(self, w=_tensor(w, self.h.device))

    def __getitem__(self, part: slice) -> DeviceRows:
        """Take some of the rows; nothing is copied but what is known of them."""
        index, y, w = (None if a is None else a[part].contiguous() for a in (self.index, self.y, self.w))
        found = plain.Scan(*(column[part].contiguous() for column in self.found))
        return replace(self, h=self.h[part] if index is None else self.h, index=index, y=y, w=w, found=found)

    def bound(self) -> float:
        """Largest finite |logit|."""
        return float(torch.maximum(self.found.largest.abs(), self.found.lowest.abs()).amax())

    def usable(self) -> bool:
        """Whether no logit is NaN or +inf, and in no row all or the label's are −inf."""
        f = self.found
        bad = (f.bad > 0) | (f.possible == 0)
        return not self.has_nonfinite or not bool((bad if self.y is None else bad | torch.isneginf(f.gap)).any())

    def nll(self, beta: float, *, quick: bool = False) -> Floats:
        """NLL, its slope and its curvature in β, summed over the rows."""
        terms = _sums_of(self.h).nll(self.h, self.index, self.found, beta, self.exact, self.has_nonfinite)
        return np.asarray(self.add(terms).cpu().numpy())

    def limits(self) -> Floats:
        """Slope of the NLL as β → 0 and as β → ∞."""
        f = self.found
        return np.asarray(self.add(torch.stack([f.total / f.possible - f.largest - f.gap, -f.gap])).cpu().numpy())

    def table(
        self, betas: Floats, thetas: Floats, odds: Floats, unit: float, kernels: Sequence[Callable[[Any], Any]]
    ) -> Floats:
        """Return the table of a sketch; as `attemper.kernels.table.tabulate`."""
        from attemper.torch.table import tabulate

        return tabulate(self, betas, thetas, odds, unit, kernels)

    def confidences(self, betas: Floats) -> Floats:
        """Weight of the correct rows, and the sum of the largest probabilities at each β."""
        largest = torch.sigmoid(-replace(self, exact=True).rests(betas))  # 1 / (1 + R)
        is_top = (self.found.gap == 0).to(torch.float64)[None, :]
        return np.asarray(self.add(torch.cat([is_top, largest])).cpu().numpy())

    def tops(self) -> Labels:
        """Class with the largest logit of each row: the label, where it is one of several."""
        return np.asarray(self.y.where(self.found.gap == 0, self.found.top).cpu().numpy())

    def rests(self, betas: Floats) -> Any:
        """Log R of each row (J×N): R = Σ exp(β (h − max)) over all columns but the largest."""
        f, b = self.found, torch.from_numpy(betas).to(self.h.device)
        # The second largest logit is taken out of the sums, so that they never underflow.
        shift = torch.where(torch.isneginf(f.second), f.largest, f.second)
        r = _sums_of(self.h).rests(self.h, self.index, f.top, shift, b, self.exact)
        return torch.log(r) + b[:, None] * (shift - f.largest)

    def entries_above(self, cut: Any, most: float) -> Iterator[tuple[Any, Any, Any]]:
        """Rows, columns and values − max of the logits that reach the cut of their row, at most ``most`` of a row."""
        width = math.ceil(min(most, self.h.shape[1]))
        for part in row_slices(len(self), width, PLACES):
            some = self[part]
            row, column = _sums_of(self.h).places(some.h, some.index, cut[part].contiguous(), width)
            source = row if some.index is None else some.index[row]
            yield row + part.start, column, some.h[source, column].to(torch.float64) - some.found.largest[row]

    def add(self, values: Any) -> Any:
        """Sum over the rows, the last axis, with their weights."""
        return values.sum(dim=-1) if self.w is None else (values * self.w).sum(dim=-1)


def _tensor(array: Any, device: Any) -> Any:
    """Return a contiguous tensor on the device; of an array of NumPy, which may be read-only, a copy."""
    return (array if isinstance(array, torch.Tensor) else torch.tensor(array)).to(device).contiguous()


def _sums_of(h: Any) -> ModuleType:
    """Triton where it is there and the columns lie side by side; else plain torch."""
    if h.stride(1) == 1 and _has_triton(h.device.type):
        from attemper.torch import fused

        return fused
    return plain


@cache
def _has_triton(device: str) -> bool:
    """Whether Triton is there, and can compile: it also needs a C compiler."""
    if device != "cuda" or importlib.util.find_spec("triton") is None:
        return False
    try:
        from attemper.torch import fused

        fused.scan(torch.zeros((1, 2), device=device), None, torch.zeros(1, dtype=torch.int64, device=device))
    except Exception as error:  # whatever a compiler and a driver may run into
        reason = (str(error).splitlines() or [""])[0][:200] or type(error).__name__
        warn(f"Triton cannot be used here ({reason}); plain torch is used, which takes many times as long")
        return False
    return True
