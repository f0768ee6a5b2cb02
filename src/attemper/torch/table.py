"""The table of a sketch from rows on a device: as `attemper.kernels.table`, for all nodes at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from attemper._typing import Floats
from attemper.data.arrays import row_slices
from attemper.errors import require

if TYPE_CHECKING:
    from attemper.torch.rows import DeviceRows

torch: Any = require("torch", extra="torch", why="for logits on a GPU")

ROWS = 1 << 16  # worked on at once
ELEMENTS = 1 << 23  # numbers that are worked on at once


def tabulate(
    rows: DeviceRows, betas: Floats, thetas: Floats, odds: Floats, unit: float, kernels: Sequence[Callable[[Any], Any]]
) -> Floats:
    """Columns (correct weight, confidence at T = ``unit``, NLL, those of each kernel …), one row for each node."""
    total: Any = 0
    for part in row_slices(len(rows), 1, ROWS):
        nodes = _Nodes(rows[part], betas, thetas, odds, unit)
        total = total + torch.cat([nodes.first(), *(kernel(nodes) for kernel in kernels)], dim=1)
    return np.asarray(total.cpu().numpy())


class _Nodes:
    """Some rows at all β: J×N tensors; as `attemper.kernels.table.Node`."""

    def __init__(self, rows: DeviceRows, betas: Floats, thetas: Floats, odds: Floats, unit: float) -> None:
        self.rows, self.betas, self.unit, self.gap = rows, betas, unit, rows.found.gap
        sizes = [len(thetas), len(odds), len(betas)]
        numbers = torch.from_numpy(np.concatenate([thetas, odds, betas])).to(self.gap.device)  # one copy to the device
        self.grid, self.odds, b = numbers.split(sizes)
        self.b, self.theta_0 = b[:, None], float(thetas[0])
        log_r = rows.rests(np.append(betas, 1 / unit))
        log_z = torch.log1p(torch.exp(log_r))
        self.log_r, self.log_z, self.log_z_at_unit = log_r[:-1], log_z[:-1], log_z[-1]
        self.log_s = self.b * self.gap - self.log_z
        self.log_uniform = -torch.log(rows.found.possible).expand(len(betas), -1)

    def first(self) -> Any:
        """Return the correct weight, the confidence and the NLL."""
        ones = torch.ones_like(self.b)
        is_top = (self.gap == 0).to(torch.float64)
        correct, confidence = self.rows.add(torch.stack([is_top, torch.exp(-self.log_z_at_unit)]))
        return torch.cat([ones * correct, ones * confidence, self.rows.add(-self.log_s)[:, None]], dim=1)

    def noisy(self) -> Any:
        """Σ log(S_y + r / K) for each of the odds r; one column each."""
        log_f = self.log_uniform
        top = torch.maximum(self.log_s, log_f)
        s, f, r = torch.exp(self.log_s - top), torch.exp(log_f - top), self.odds[:, None]
        parts = self._some(s.shape[1] * len(r))
        return torch.cat([self.rows.add(torch.log(s[j, None] + r * f[j, None]) + top[j, None]) for j in parts])

    def _some(self, width: int) -> Iterator[slice]:
        """Cut the nodes into parts that are worked on at once."""
        return row_slices(len(self.betas), max(1, width), ELEMENTS)

    def attended(self, *, reference: bool = False) -> Any:
        """Sum the terms of Eq. (8) for k ≠ y_i over the pairs of each θ-bin; as `attemper.kernels.attended.terms`."""
        rows, log_z = self.rows, self.log_z
        right = rows.found.top == rows.y
        log_not_top = self.log_r - log_z
        # What a pair takes from its row: −log S_k = −β d_k + log Z, and the second factor of Eq. (8).
        if reference:
            of_row, times = 2 * log_z, 2
        else:
            log_not_label = torch.log1p(-torch.exp(self.log_s).masked_fill(right, 0.0))
            of_row, times = log_z - torch.where(right, log_not_top, log_not_label), 1
        wrong = torch.nonzero(~right)[:, 0]
        s_top = torch.exp(-self.log_z_at_unit[wrong])
        bins = torch.full_like(wrong, len(self.grid) - 1) if reference else self._bins(s_top)
        total = self._by_bin(bins, wrong, lambda j, row, _: (of_row + log_not_top)[j, row], wrong)

        def terms(j: slice, row: Any, gap: Any) -> Any:
            log_not_k = torch.log1p(-torch.exp(self.b[j] * gap - log_z[j, row]))
            return log_not_k + of_row[j, row] - times * self.b[j] * gap

        for bins, row, gap in self._pairs():
            total = total + self._by_bin(bins, row, terms, gap)
        return total

    def _pairs(self) -> Iterator[tuple[Any, Any, Any]]:
        """Bins, rows and gaps of the pairs of Eq. (7) that reach the smallest θ, but for those of the arg max."""
        rows, log_z = self.rows, self.log_z_at_unit
        # The threshold in logits, a little low: the exact decision is made in double precision below.
        largest = rows.found.largest
        cut = largest + self.unit * (torch.log(self.grid[0]) + log_z - 1e-3)
        if rows.h.dtype != torch.float64:
            cut = (cut - 1e-6 * largest.abs()).to(torch.float32)  # two roundings lower
        cut = cut.clamp(min=-3e38)  # not −inf, which every masked class would reach
        # Probabilities sum to 1, so no more than 1/θ of a row reach θ; and a few more the lower cut.
        lower = 2e-3 + 2e-6 * float(largest.abs().amax()) / self.unit
        most = np.exp(min(lower, 100.0)) / self.theta_0 + 1 if self.theta_0 > 0 else np.inf
        for row, column, gap in rows.entries_above(cut, most):
            bins = self._bins(torch.exp(gap / self.unit - log_z[row]))
            yield torch.where((column == rows.y[row]) | (column == rows.found.top[row]), -1, bins), row, gap

    def _bins(self, s: Any) -> Any:
        """Find the bin that each probability lies in; −1: below all."""
        return torch.searchsorted(self.grid, s, right=True) - 1

    def _by_bin(self, bins: Any, row: Any, terms: Callable[[slice, Any, Any], Any], gap: Any) -> Any:
        """Sum terms over the pairs of each bin, J×bins; the order is fixed, so the last bit is too."""
        order = torch.argsort(bins, stable=True)
        edges = torch.searchsorted(bins[order], torch.arange(len(self.grid) + 1, device=bins.device))
        order = order[int(edges[0]) :]
        row, gap, lengths = row[order], gap[order], torch.diff(edges)
        if not len(row):
            return torch.zeros((len(self.betas), len(lengths)), dtype=torch.float64, device=bins.device)
        weight = 1.0 if self.rows.w is None else self.rows.w[row]
        parts = []
        for j in self._some(len(row)):
            value = terms(j, row, gap) * weight
            many = lengths.repeat(len(value))
            parts.append(
                torch.segment_reduce(value.reshape(-1), "sum", lengths=many, unsafe=True).reshape(len(value), -1)
            )
        return torch.cat(parts)
