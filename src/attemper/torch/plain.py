"""What a pass finds of each row, in plain torch: some rows at a time, so that no copy is ever large."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from attemper.data.arrays import row_slices
from attemper.errors import require

__all__ = ["Scan", "counts", "nll", "places", "rests", "scan"]

torch: Any = require("torch", extra="torch", why="for logits on a GPU")

# Numbers that are worked on at once: 64 MB in single precision.
CHUNK_ELEMENTS = 1 << 24

LOWEST = -1e34  # stands for −inf: exp of it is 0, and 0 · LOWEST is 0 where 0 · −inf is NaN


@dataclass(frozen=True, eq=False)
class Scan:
    """What one pass finds of each row."""

    top: Any  # column of the largest logit, the first where several tie (int64)
    values: Any  # 7×N float64, by their names below

    largest = property(lambda self: self.values[0])
    second = property(lambda self: self.values[1])  # largest of the others; −inf where none is possible
    lowest = property(lambda self: self.values[2])  # of the finite ones
    total = property(lambda self: self.values[3])  # of the finite ones
    possible = property(lambda self: self.values[4])  # how many are not −inf
    gap = property(lambda self: self.values[5])  # logit of the label minus the largest
    bad = property(lambda self: self.values[6])  # how many are NaN or +inf

    def __getitem__(self, part: slice) -> Scan:
        """Take some of the rows, side by side, as the kernels of Triton want them."""
        return Scan(self.top[part].contiguous(), self.values[:, part].contiguous())


def scan(h: Any, index: Any, y: Any) -> tuple[Scan, bool]:
    """Look at every logit once; also return whether some are not finite."""
    parts = [_scan(x, y[part]) for part, x in _chunks(h, index)]
    found = Scan(torch.cat([part.top for part in parts]), torch.cat([part.values for part in parts], dim=1))
    return found, bool(((found.possible < h.shape[1]) | (found.bad > 0)).any())


def _scan(x: Any, y: Any) -> Scan:
    bad = torch.isnan(x) | torch.isposinf(x)
    x = x.masked_fill(bad, 0.0)
    possible = ~torch.isneginf(x)
    largest, top = x.max(dim=1)
    # Which of several that tie torch gives is not said; the first is what counts.
    top = (x == largest[:, None]).to(torch.uint8).argmax(dim=1)
    second = x.scatter(1, top[:, None], -torch.inf).amax(dim=1)
    lowest = x.masked_fill(~possible, torch.inf).amin(dim=1)
    total = x.masked_fill(~possible, 0.0).sum(dim=1, dtype=torch.float64)
    gap = x.gather(1, y[:, None])[:, 0].to(torch.float64) - largest
    values = (largest, second, lowest, total, possible.sum(dim=1), gap, bad.sum(dim=1))
    return Scan(top, torch.stack([v.to(torch.float64) for v in values]))


def nll(h: Any, index: Any, found: Scan, beta: float, double: bool, masked: bool) -> Any:
    """3×N: NLL, slope and curvature in β of each row, with d = h − max: log Z − β gap, E[d] − gap, Var[d]."""
    dtype = torch.float64 if double else torch.float32
    near, step = _rounded(beta, dtype)
    parts = []
    for part, x in _chunks(h, index):
        d = x.to(dtype) - found.largest[part].to(dtype)[:, None]
        if masked:
            d = d.clamp_(min=LOWEST)
        e = torch.exp(d * near)
        z = e.sum(dim=1, dtype=torch.float64)
        m1 = e.mul_(d).sum(dim=1, dtype=torch.float64) / z
        m2 = e.mul_(d).sum(dim=1, dtype=torch.float64) / z
        gap = found.gap[part]
        slope, curvature = m1 - gap, m2 - m1 * m1
        parts.append(torch.stack([torch.log(z) - near * gap + step * slope, slope + step * curvature, curvature]))
    return torch.cat(parts, dim=1)


def rests(h: Any, index: Any, top: Any, second: Any, betas: Any, double: bool) -> Any:
    """N×J: Σ exp(β (h − second)) over all columns but ``top`` for each β."""
    dtype = torch.float64 if double else torch.float32
    parts = []
    for part, x in _chunks(h, index):
        d = (x.to(dtype) - second[part].to(dtype)[:, None]).clamp_(min=LOWEST).scatter_(1, top[part, None], LOWEST)
        columns = []
        for beta in betas.tolist():
            near, step = _rounded(beta, dtype)
            e = torch.exp(d * near)
            total = e.sum(dim=1, dtype=torch.float64)
            columns.append(total + step * e.mul_(d).sum(dim=1, dtype=torch.float64) if step else total)
        parts.append(torch.stack(columns, dim=1))
    return torch.cat(parts)


def _rounded(beta: float, dtype: Any) -> tuple[float, float]:
    """β as this precision has it, and the step from there to β, which the derivatives make good."""
    near = float(torch.tensor(beta, dtype=dtype))
    return near, beta - near


def counts(h: Any, index: Any, cut: Any) -> Any:
    """How many logits of each row reach its cut."""
    return torch.cat([(x >= cut[part, None]).sum(dim=1) for part, x in _chunks(h, index)])


def places(h: Any, index: Any, cut: Any, found: Any) -> tuple[Any, Any]:
    """Rows and columns of the logits that reach the cut of their row, in order; ``found`` is what `counts` gave."""
    both = []
    for part, x in _chunks(h, index):
        row, column = torch.nonzero(x >= cut[part, None], as_tuple=True)
        both.append((row + part.start, column))
    row, column = (torch.cat(places) for places in zip(*both))
    return row, column


def _chunks(h: Any, index: Any) -> Iterator[tuple[slice, Any]]:
    n = h.shape[0] if index is None else index.shape[0]
    for part in row_slices(n, h.shape[1], CHUNK_ELEMENTS):
        yield part, h[part] if index is None else h[index[part]]
