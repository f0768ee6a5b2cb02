"""The table of a sketch from rows on a device: the columns of `attemper.sketch`, one row for each node."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from attemper.gpu.rows import DeviceRows
from attemper.kernels import noisy

__all__ = ["tabulate"]

Floats = NDArray[np.float64]

ROWS = 1 << 16  # worked on at once
PAIRS = 1 << 22  # pairs that are worked on at once, or a few more


def tabulate(rows: DeviceRows, betas: Floats, thetas: Floats, parts: Sequence[str], odds: Floats) -> Floats:
    """Columns (correct weight, confidence, NLL, θ-bins …, odds …), one row for each node."""
    total: Any = sum(_tabulate(rows[part], betas, thetas, parts, odds) for part in _cut(len(rows), ROWS))
    return np.asarray(total.cpu().numpy())


def _cut(n: int, size: int) -> Iterator[slice]:
    return (slice(first, min(first + size, n)) for first in range(0, n, size))


def _tabulate(rows: DeviceRows, betas: Floats, thetas: Floats, parts: Sequence[str], odds: Floats) -> Any:
    soft = betas / noisy.SOFTENING if "similar" in parts else betas[:0]
    log_r = rows.rests(np.concatenate([betas, soft, [1.0]])).T.contiguous()
    log_z = torch.log1p(torch.exp(log_r))
    count = len(betas)
    gap = rows.found.gap
    b = torch.from_numpy(betas).to(gap.device)[:, None]
    log_s = b * gap - log_z[:count]
    ones = torch.ones_like(b)
    correct, confidence = rows.add(torch.stack([(gap == 0).to(torch.float64), torch.exp(-log_z[-1])]))
    blocks = [ones * correct, ones * confidence, rows.add(-log_s)[:, None]]
    for part in ("attended", "reference"):
        if part in parts:
            grid = torch.from_numpy(thetas).to(gap.device)
            blocks.append(_attended(rows, betas, grid, log_r, log_z, reference=part == "reference"))
    r = torch.from_numpy(odds).to(gap.device)[:, None]
    if "uniform" in parts:
        log_uniform = -torch.log(rows.found.possible).expand(count, -1)
        blocks.append(_likelihood(rows, log_s, log_uniform, r))
    if "similar" in parts:
        log_soft = b / noisy.SOFTENING * gap - log_z[count:-1]
        blocks.append(_likelihood(rows, log_s, log_soft, r))
    return torch.cat(blocks, dim=1)


def _likelihood(rows: DeviceRows, log_s: Any, log_f: Any, r: Any) -> Any:
    """Sum log(S + r F) over the rows for each node and each r; as `attemper.kernels.noisy.log_likelihood`."""
    top = torch.maximum(log_s, log_f)
    s, f = torch.exp(log_s - top), torch.exp(log_f - top)
    return torch.stack([rows.add(torch.log(s[j] + r * f[j]) + top[j]) for j in range(len(log_s))])


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


def _attended(rows: DeviceRows, betas: Floats, grid: Any, log_r: Any, log_z: Any, *, reference: bool) -> Any:
    """Sum the terms of Eq. (8) for k ≠ y_i over the pairs of each θ-bin; as `attemper.kernels.attended.terms`."""
    wrong = torch.nonzero(rows.found.top != rows.y)[:, 0]
    where = torch.full_like(wrong, len(grid) - 1) if reference else _bins(grid, torch.exp(-log_z[-1, wrong]))
    tops = _Pairs.of(where, len(grid), wrong, wrong)
    right = rows.found.top == rows.y
    groups = list(_pairs(rows, grid, log_z[-1]))
    lines = []
    for j, beta in enumerate(betas.tolist()):
        z = log_z[j]
        log_not_top = log_r[j] - z
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


def _pairs(rows: DeviceRows, grid: Any, log_z: Any) -> Iterator[_Pairs]:
    """Find the pairs that reach at least the smallest θ, but for those of the arg max."""
    # The threshold in logits, a little low: the exact decision is made in double precision below.
    largest = rows.found.largest
    cut = largest + torch.log(grid[0]) + log_z - 1e-3
    if rows.h.dtype != torch.float64:
        cut = (cut - 1e-6 * largest.abs()).to(torch.float32)  # two roundings lower
    cut = cut.clamp(min=-3e38)  # not −inf, which every masked class would reach
    for row, column, gap in rows.reaching(cut, PAIRS):
        where = _bins(grid, torch.exp(gap - log_z[row]))
        where = torch.where((column == rows.y[row]) | (column == rows.found.top[row]), -1, where)
        yield _Pairs.of(where, len(grid), row, gap)


def _bins(grid: Any, s: Any) -> Any:
    """Find the bin that each probability lies in; −1: below all."""
    return torch.searchsorted(grid, s, right=True) - 1
