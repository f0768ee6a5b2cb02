"""The table of a sketch from rows on a device: the columns of `attemper.sketch`, one row for each node."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from attemper._typing import Floats
from attemper.data.arrays import row_slices
from attemper.errors import require

if TYPE_CHECKING:
    from attemper.torch.rows import DeviceRows

__all__ = ["tabulate"]

torch: Any = require("torch", extra="torch", why="for logits on a GPU")

ROWS = 1 << 16  # worked on at once
PAIRS = 1 << 22  # pairs that are worked on at once, or a few more


def tabulate(
    rows: DeviceRows, betas: Floats, thetas: Floats, odds: Floats, unit: float, kernels: Sequence[Callable[[Any], Any]]
) -> Floats:
    """Columns (correct weight, confidence at T = ``unit``, NLL, those of each kernel …), one row for each node."""
    parts = row_slices(len(rows), 1, ROWS)
    total: Any = sum(_tabulate(rows[part], betas, thetas, odds, unit, kernels) for part in parts)
    return np.asarray(total.cpu().numpy())


def _tabulate(
    rows: DeviceRows, betas: Floats, thetas: Floats, odds: Floats, unit: float, kernels: Sequence[Callable[[Any], Any]]
) -> Any:
    nodes = _Nodes(rows, betas, thetas, odds, unit)
    ones = torch.ones_like(nodes.b)
    is_top = (rows.found.gap == 0).to(torch.float64)
    correct, confidence = rows.add(torch.stack([is_top, torch.exp(-nodes.log_z_at_unit)]))
    first = [ones * correct, ones * confidence, rows.add(-nodes.log_s)[:, None]]
    return torch.cat([*first, *(kernel(nodes) for kernel in kernels)], dim=1)


class _Nodes:
    """Some rows at all β: J×N tensors; as `attemper.kernels.table.Node`."""

    def __init__(self, rows: DeviceRows, betas: Floats, thetas: Floats, odds: Floats, unit: float) -> None:
        gap = rows.found.gap
        self.rows, self.betas, self.unit = rows, betas, unit
        self.grid, self.odds, b = (torch.from_numpy(a).to(gap.device) for a in (thetas, odds, betas))
        self.b = b[:, None]
        log_r, log_z = self._log_rests(np.append(betas, 1 / unit))
        self.log_r, self.log_z, self.log_z_at_unit = log_r[:-1], log_z[:-1], log_z[-1]
        self.log_s = self.b * gap - self.log_z
        self.log_uniform = -torch.log(rows.found.possible).expand(len(betas), -1)

    def _log_rests(self, betas: Floats) -> tuple[Any, Any]:
        log_r = self.rows.rests(betas).T.contiguous()
        return log_r, torch.log1p(torch.exp(log_r))

    def log_label(self, softening: float) -> Any:
        """Log of the label's probability at ``softening`` times the temperature."""
        return self.b / softening * self.rows.found.gap - self._log_rests(self.betas / softening)[1]

    def noisy(self, log_f: Any) -> Any:
        """Sum log(S + r F) over the rows for each node and each r; as `attemper.kernels.noisy.log_likelihood`."""
        top = torch.maximum(self.log_s, log_f)
        s, f, r = torch.exp(self.log_s - top), torch.exp(log_f - top), self.odds[:, None]
        return torch.stack([self.rows.add(torch.log(s[j] + r * f[j]) + top[j]) for j in range(len(s))])

    def attended(self, *, reference: bool = False) -> Any:
        """Sum the terms of Eq. (8) for k ≠ y_i over the pairs of each θ-bin; as `attemper.kernels.attended.terms`."""
        rows, grid = self.rows, self.grid
        wrong = torch.nonzero(rows.found.top != rows.y)[:, 0]
        confidence = torch.exp(-self.log_z_at_unit[wrong])
        where = torch.full_like(wrong, len(grid) - 1) if reference else _bins(grid, confidence)
        tops = _Pairs.of(where, len(grid), wrong, wrong)
        right = rows.found.top == rows.y
        groups = list(_pairs(rows, grid, self.log_z_at_unit, self.unit))
        lines = []
        for j, beta in enumerate(self.betas.tolist()):
            z = self.log_z[j]
            log_not_top = self.log_r[j] - z
            # What a pair takes from its row: −log S_k = −β d_k + log Z, and the second factor of Eq. (8).
            if reference:
                from_row, slope = 2 * z, 2 * beta
            else:
                s_label = torch.exp(beta * rows.found.gap - z).masked_fill(right, 0.0)
                from_row, slope = z - torch.where(right, log_not_top, torch.log1p(-s_label)), beta
            line = tops.by_bin((from_row + log_not_top)[tops.row], rows.w)
            for pairs in groups:
                log_not_k = torch.log1p(-torch.exp(beta * pairs.gap - z[pairs.row]))
                line = line + pairs.by_bin(log_not_k + from_row[pairs.row] - slope * pairs.gap, rows.w)
            lines.append(line)
        return torch.stack(lines)


class _Pairs(NamedTuple):
    """Pairs (i, k) of Eq. (7), sorted by θ-bin; as `attemper.kernels.attended.Pairs`."""

    row: Any
    gap: Any  # h_ik − max(h_i)
    lengths: Any  # how many there are in each bin

    @classmethod
    def of(cls, where: Any, bins: int, row: Any, gap: Any) -> _Pairs:
        """Sort by bin; −1: in none."""
        order = torch.argsort(where, stable=True)
        order = order[int((where < 0).sum()) :]
        return cls(row[order], gap[order], torch.bincount(where[order], minlength=bins))

    def by_bin(self, value: Any, w: Any) -> Any:
        """Sum over the pairs of each bin; the order is fixed, so the last bit is too."""
        if not len(value):
            return torch.zeros(len(self.lengths), dtype=value.dtype, device=value.device)
        return torch.segment_reduce(value if w is None else value * w[self.row], "sum", lengths=self.lengths)


def _pairs(rows: DeviceRows, grid: Any, log_z: Any, unit: float) -> Iterator[_Pairs]:
    """Find the pairs that reach at least the smallest θ, but for those of the arg max."""
    # The threshold in logits, a little low: the exact decision is made in double precision below.
    largest = rows.found.largest
    cut = largest + unit * (torch.log(grid[0]) + log_z - 1e-3)
    if rows.h.dtype != torch.float64:
        cut = (cut - 1e-6 * largest.abs()).to(torch.float32)  # two roundings lower
    cut = cut.clamp(min=-3e38)  # not −inf, which every masked class would reach
    for row, column, gap in rows.entries_above(cut, PAIRS):
        where = _bins(grid, torch.exp(gap / unit - log_z[row]))
        where = torch.where((column == rows.y[row]) | (column == rows.found.top[row]), -1, where)
        yield _Pairs.of(where, len(grid), row, gap)


def _bins(grid: Any, s: Any) -> Any:
    """Find the bin that each probability lies in; −1: below all."""
    return torch.searchsorted(grid, s, right=True) - 1
