"""What a pass finds of each row, in plain torch: some rows at a time, so that no copy is ever large."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from attemper.data.arrays import row_slices
from attemper.errors import require

torch: Any = require("torch", extra="torch", why="for logits on a GPU")

CHUNK_ELEMENTS = 1 << 24  # numbers that are worked on at once: 64 MB in single precision
LOWEST = -1e34  # stands for −inf: exp of it is 0, and 0 · LOWEST is 0 where 0 · −inf is NaN


class Scan(NamedTuple):
    """What one pass finds of each row: the column of the largest logit (int64), and float64 numbers."""

    top: Any  # the first where several tie
    largest: Any
    second: Any  # largest of the others; −inf where none is possible
    lowest: Any  # of the finite ones
    total: Any  # of the finite ones
    possible: Any  # how many are not −inf
    gap: Any  # logit of the label minus the largest
    bad: Any  # how many are NaN or +inf


def scan(h: Any, index: Any, y: Any) -> tuple[Scan, bool]:
    """Look at every logit once; also return whether some are not finite."""
    parts = [_scan(x, y[part]) for part, x in _chunks(h, index)]
    found = Scan(*(torch.cat(columns) for columns in zip(*parts)))
    return found, bool(((found.possible < h.shape[1]) | (found.bad > 0)).any())


def _scan(x: Any, y: Any) -> list[Any]:
    bad = torch.isnan(x) | torch.isposinf(x)
    x = x.masked_fill(bad, 0.0)
    possible = ~torch.isneginf(x)
    largest = x.amax(dim=1)
    top = (x == largest[:, None]).to(torch.uint8).argmax(dim=1)  # max does not promise the first of those that tie
    second = x.scatter(1, top[:, None], -torch.inf).amax(dim=1)
    lowest = x.masked_fill(~possible, torch.inf).amin(dim=1)
    total = x.masked_fill(~possible, 0.0).sum(dim=1, dtype=torch.float64)
    gap = x.gather(1, y[:, None])[:, 0].to(torch.float64) - largest
    values = (largest, second, lowest, total, possible.sum(dim=1), gap, bad.sum(dim=1))
    return [top, *(v.to(torch.float64) for v in values)]


def nll(h: Any, index: Any, found: Scan, beta: float, double: bool, masked: bool) -> Any:
    """3×N: NLL, slope and curvature in β of each row, with d = h − max: log Z − β gap, E[d] − gap, Var[d]."""
    dtype = torch.float64 if double else torch.float32
    near, step = _rounded(beta, dtype)
    parts = []
    for part, x in _chunks(h, index):
        d = x.to(dtype) - found.largest[part].to(dtype)[:, None]
        d = d.clamp_(min=LOWEST) if masked else d
        e = torch.exp(d * near)
        z = e.sum(dim=1, dtype=torch.float64)
        m1 = e.mul_(d).sum(dim=1, dtype=torch.float64) / z
        m2 = e.mul_(d).sum(dim=1, dtype=torch.float64) / z
        gap = found.gap[part]
        slope, curvature = m1 - gap, m2 - m1 * m1
        parts.append(torch.stack([torch.log(z) - near * gap + step * slope, slope + step * curvature, curvature]))
    return torch.cat(parts, dim=1)


def rests(h: Any, index: Any, top: Any, shift: Any, betas: Any, double: bool) -> Any:
    """J×N: Σ exp(β (h − shift)) over all columns but ``top`` for each β."""
    dtype = torch.float64 if double else torch.float32
    parts = []
    for part, x in _chunks(h, index):
        d = (x.to(dtype) - shift[part].to(dtype)[:, None]).clamp_(min=LOWEST).scatter_(1, top[part, None], LOWEST)
        lines = []
        for near, step in (_rounded(beta, dtype) for beta in betas.tolist()):
            e = torch.exp(d * near)
            lines.append(e.sum(dim=1, dtype=torch.float64) + step * e.mul_(d).sum(dim=1, dtype=torch.float64))
        parts.append(torch.stack(lines))
    return torch.cat(parts, dim=1)


def places(h: Any, index: Any, cut: Any, most: int) -> tuple[Any, Any]:
    """Rows and columns of the logits that reach the cut of their row, in order (``most`` is the fused kernel's)."""
    found = [
        torch.nonzero(x >= cut[part, None]) + torch.tensor([part.start, 0]).to(x.device)
        for part, x in _chunks(h, index)
    ]
    row, column = torch.cat(found).unbind(dim=1)
    return row, column


def _rounded(beta: float, dtype: Any) -> tuple[float, float]:
    """β as this precision has it, and the step from there to β, which the derivatives make good."""
    near = float(torch.tensor(beta, dtype=dtype))
    return near, beta - near


def _chunks(h: Any, index: Any) -> Iterator[tuple[slice, Any]]:
    n = h.shape[0] if index is None else index.shape[0]
    for part in row_slices(n, h.shape[1], CHUNK_ELEMENTS):
        yield part, h[part] if index is None else h[index[part]]
