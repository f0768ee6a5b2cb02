"""What a pass finds of each row, in one Triton kernel that reads every logit once.

A program takes some rows and walks along their columns. Each of its lanes adds up what it meets, in the precision of
the arithmetic (some dozens of terms), and the lanes are added in float64. That β log₂e must be rounded to that
precision does not show: where it matters its rest is carried along, or made good by the derivatives.
"""

from __future__ import annotations

import math
from contextlib import nullcontext
from typing import Any, NamedTuple

import numpy as np

from attemper.errors import require
from attemper.torch.plain import Scan

torch: Any = require("torch", extra="torch", why="for logits on a GPU")
triton: Any = require("triton", extra="torch", why="for logits on a GPU")
tl: Any = require("triton.language", extra="torch", why="for logits on a GPU")

LOG2E = tl.constexpr(math.log2(math.e))
FEW_ROWS = 1024  # with fewer the walk along a row is what takes the time, so it is made in longer strides
BETAS = 8  # of one pass of `rests`: enough that reading costs little beside the exponentials
LOWEST = tl.constexpr(-1e34)  # stands for −inf: exp2 of it is 0, and 0 · LOWEST is 0 where 0 · −inf is NaN


class Tile(NamedTuple):
    """How many numbers a program holds at once, and on how many warps (measured on an H200)."""

    elements: int
    warps: int


SCAN, NLL, RESTS = Tile(1024, 8), Tile(1024, 8), Tile(512, 4)


@triton.jit
def _rows(index, n, ROWS: tl.constexpr, SELECTED: tl.constexpr):
    """Numbers of this program's rows, where each begins in the logits, and which of them there are."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    there = row < n
    source = row
    if SELECTED:
        source = tl.load(index + row, there, 0)
    return row, source.to(tl.int64), there


@triton.jit
def _scan_kernel(
    h, stride, index, y, top, out, n, K,
    ROWS: tl.constexpr, BLOCK: tl.constexpr, SELECTED: tl.constexpr, DTYPE: tl.constexpr, CAREFUL: tl.constexpr,
):  # fmt: skip
    """Fill the columns of a `Scan`; CAREFUL: where some logits are not finite."""
    row, source, there = _rows(index, n, ROWS, SELECTED)
    largest = tl.full([ROWS, BLOCK], float("-inf"), DTYPE)
    second = tl.full([ROWS, BLOCK], float("-inf"), DTYPE)
    lowest = tl.full([ROWS, BLOCK], float("inf"), DTYPE)
    total = tl.zeros([ROWS, BLOCK], DTYPE)
    at = tl.zeros([ROWS, BLOCK], tl.int32)
    possible = tl.zeros([ROWS, BLOCK], tl.int32)
    bad = tl.zeros([ROWS, BLOCK], tl.int32)
    lane = tl.arange(0, BLOCK)[None, :]
    begin = h + source[:, None] * stride + lane
    # Columns that all lanes have are looked at without a question; the careful look asks about each.
    whole = 0 if CAREFUL else K // BLOCK * BLOCK
    for start in range(0, whole, BLOCK):
        x = tl.load(begin + start, there[:, None], 0.0).to(DTYPE)
        total += x
        lowest = tl.minimum(lowest, x)
        second = tl.maximum(second, tl.minimum(largest, x))
        at = tl.where(x > largest, start, at)
        largest = tl.maximum(largest, x)
    for start in range(whole, K, BLOCK):
        inside = there[:, None] & (lane < K - start)
        x = tl.load(begin + start, inside, float("-inf")).to(DTYPE)
        wrong = (x != x) | (x == float("inf"))
        bad += wrong.to(tl.int32)
        x = tl.where(wrong & CAREFUL, 0.0, x)
        finite = inside & ((x > float("-inf")) | (not CAREFUL))
        possible += finite.to(tl.int32)
        total += tl.where(finite, x, 0.0)
        lowest = tl.minimum(lowest, tl.where(finite, x, float("inf")))
        second = tl.maximum(second, tl.minimum(largest, x))
        at = tl.where(x > largest, start, at)
        largest = tl.maximum(largest, x)
    at += lane
    most = tl.max(largest, axis=1)
    # Of the lanes that hold the maximum the one with the first column; its runner-up competes for the second place.
    first = tl.min(tl.where(largest == most[:, None], at, K), axis=1)
    winner = (largest == most[:, None]) & (at == first[:, None])
    runner_up = tl.max(tl.where(winner, second, largest), axis=1)
    value = tl.load(h + source * stride + tl.load(y + row, there, 0), there, 0.0).to(tl.float64)
    count = tl.sum(possible, axis=1) + whole
    tl.store(top + row, tl.minimum(first, K - 1).to(tl.int64), there)
    tl.store(out + row, most.to(tl.float64), there)
    tl.store(out + n + row, runner_up.to(tl.float64), there)
    tl.store(out + 2 * n + row, tl.min(lowest, axis=1).to(tl.float64), there)
    tl.store(out + 3 * n + row, tl.sum(total.to(tl.float64), axis=1), there)
    tl.store(out + 4 * n + row, count.to(tl.float64), there)
    tl.store(out + 5 * n + row, value - most.to(tl.float64), there)
    tl.store(out + 6 * n + row, tl.sum(bad, axis=1).to(tl.float64), there)


@triton.jit
def _nll_kernel(
    h, stride, index, largest, gap, out, coarse, fine, step, n, K,
    ROWS: tl.constexpr, BLOCK: tl.constexpr, SELECTED: tl.constexpr, DTYPE: tl.constexpr, MASKED: tl.constexpr,
):  # fmt: skip
    """NLL, slope and curvature of each row, with d = h − max and t = β d log₂e: log Z − β gap, E[d] − gap, Var[d]."""
    row, source, there = _rows(index, n, ROWS, SELECTED)
    shift = tl.load(largest + row, there, 0.0).to(DTYPE)[:, None]
    unit = (coarse + tl.zeros([1, 1], tl.float64)) + fine  # t is d in this unit
    scale = unit.to(DTYPE)
    zeroth = tl.zeros([ROWS, BLOCK], DTYPE)
    first = tl.zeros([ROWS, BLOCK], DTYPE)
    other = tl.zeros([ROWS, BLOCK], DTYPE)
    lane = tl.arange(0, BLOCK)[None, :]
    begin = h + source[:, None] * stride + lane
    whole = K // BLOCK * BLOCK
    for start in range(0, whole, BLOCK):
        x = tl.load(begin + start, there[:, None], 0.0).to(DTYPE)
        t = (x - shift) * scale
        if MASKED:
            t = tl.maximum(t, LOWEST)
        e = tl.exp2(t)
        et = e * t
        zeroth += e
        first += et
        other += et * t
    if whole < K:
        inside = there[:, None] & (lane < K - whole)
        x = tl.load(begin + whole, inside, 0.0).to(DTYPE)
        t = tl.where(inside, tl.maximum((x - shift) * scale, LOWEST), LOWEST)
        e = tl.exp2(t)
        et = e * t
        zeroth += e
        first += et
        other += et * t
    z = tl.where(there, tl.sum(zeroth.to(tl.float64), axis=1), 1.0)
    per = tl.sum(unit, axis=1)
    m1 = tl.sum(first.to(tl.float64), axis=1) / z / per
    m2 = tl.sum(other.to(tl.float64), axis=1) / z / (per * per)
    of_label = tl.load(gap + row, there, 0.0)
    slope, curvature = m1 - of_label, m2 - m1 * m1
    # The sums are those at β' = unit / log₂e, a rounding away from β; the derivatives lead from there to β.
    value = tl.log(z) - per / LOG2E * of_label
    tl.store(out + row, value + step * slope, there)
    tl.store(out + n + row, slope + step * curvature, there)
    tl.store(out + 2 * n + row, curvature, there)


@triton.jit
def _rests_kernel(
    h, stride, index, top, second, out, betas, n, K,
    ROWS: tl.constexpr, BLOCK: tl.constexpr, J: tl.constexpr, SELECTED: tl.constexpr, DTYPE: tl.constexpr,
):  # fmt: skip
    row, source, there = _rows(index, n, ROWS, SELECTED)
    left_out = tl.load(top + row, there, 0)[:, None]
    shift = tl.load(second + row, there, 0.0).to(DTYPE)[:, None]
    j = tl.arange(0, J)
    coarse = tl.load(betas + j).to(DTYPE)[None, :, None]
    fine = tl.load(betas + J + j).to(DTYPE)[None, :, None]
    total = tl.zeros([ROWS, J, BLOCK], DTYPE)
    for start in range(0, K, BLOCK):
        column = start + tl.arange(0, BLOCK)[None, :]
        inside = there[:, None] & (column < K)
        x = tl.load(h + source[:, None] * stride + column, inside, float("-inf")).to(DTYPE)
        d = tl.where(column == left_out, LOWEST, tl.maximum(x - shift, LOWEST))[:, None, :]
        total += tl.exp2(d * coarse + d * fine)
    tl.store(out + j[None, :] * n + row[:, None], tl.sum(total.to(tl.float64), axis=2), there[:, None])


@triton.jit
def _places_kernel(
    h, stride, index, cut, counts, columns, width, n, K,
    ROWS: tl.constexpr, BLOCK: tl.constexpr, SELECTED: tl.constexpr, DTYPE: tl.constexpr,
):  # fmt: skip
    """Write down the columns of the logits that reach the cut of their row, ``width`` at most, and how many."""
    row, source, there = _rows(index, n, ROWS, SELECTED)
    least = tl.load(cut + row, there, 0.0).to(DTYPE)[:, None]
    count = tl.zeros([ROWS], tl.int32)
    lane = tl.arange(0, BLOCK)[None, :]
    begin = h + source[:, None] * stride + lane
    for start in range(0, K, BLOCK):
        inside = there[:, None] & (lane < K - start)
        x = tl.load(begin + start, inside, float("-inf")).to(DTYPE)
        hit = (inside & (x >= least)).to(tl.int32)
        if tl.max(hit) > 0:
            place = count[:, None] + tl.cumsum(hit, axis=1) - 1
            to = columns + row[:, None].to(tl.int64) * width + place
            tl.store(to, start + lane + tl.zeros_like(hit), (hit > 0) & (place < width))
            count += tl.sum(hit, axis=1)
    tl.store(counts + row, tl.minimum(count, width), there)


def scan(h: Any, index: Any, y: Any) -> tuple[Scan, bool]:
    """Look at every logit once; once more, with care, if some are not finite, which is returned too."""
    n = len(y)
    top = torch.empty(n, dtype=torch.int64, device=h.device)
    out = torch.empty((7, n), dtype=torch.float64, device=h.device)
    for careful in (False, True):
        _launch(_scan_kernel, SCAN, h, index, (y, top, out), h.dtype == torch.float64, CAREFUL=careful)
        if bool(torch.isfinite(out[3]).all()):  # the sums show whatever is not
            break
    return Scan(top, *out), careful


def nll(h: Any, index: Any, found: Scan, beta: float, double: bool, masked: bool) -> Any:
    """3×N: NLL, slope and curvature in β of each row."""
    out = torch.empty((3, len(found.top)), dtype=torch.float64, device=h.device)
    exact = beta * LOG2E.value
    coarse = float(np.float32(exact))  # Triton takes numbers in single precision
    fine = float(np.float32(exact - coarse)) if double else 0.0
    step = beta - (coarse + fine) / LOG2E.value
    _launch(_nll_kernel, NLL, h, index, (found.largest, found.gap, out, coarse, fine, step), double, MASKED=masked)
    return out


def rests(h: Any, index: Any, top: Any, shift: Any, betas: Any, double: bool) -> Any:
    """J×N: Σ exp(β (h − shift)) over all columns but ``top`` for each β."""
    exact = betas * LOG2E.value
    coarse = exact if double else exact.to(torch.float32).to(torch.float64)
    both = torch.stack([coarse, exact - coarse])  # and what the precision of the arithmetic loses of it
    outs, left = [], len(betas)
    while left:
        size = BETAS if left > BETAS - 2 else min(left, BETAS // 2)
        these, j = both[:, len(betas) - left :][:, :size], _power_of_2(size)
        padded = torch.cat([these, these[:, -1:].expand(2, j - size)], dim=1)
        out = torch.empty((j, len(top)), dtype=torch.float64, device=h.device)
        _launch(_rests_kernel, RESTS, h, index, (top, shift, out, padded), double, J=j)
        outs.append(out[:size])
        left -= size
    return torch.cat(outs)


def places(h: Any, index: Any, cut: Any, most: int) -> tuple[Any, Any]:
    """Rows and columns of the logits that reach the cut of their row, at most ``most`` of one, in order."""
    counts = torch.empty(len(cut), dtype=torch.int32, device=h.device)
    columns = torch.empty((len(cut), most), dtype=torch.int32, device=h.device)
    _launch(_places_kernel, SCAN, h, index, (cut, counts, columns, most), h.dtype == torch.float64)
    row, slot = torch.nonzero(torch.arange(most, device=h.device) < counts[:, None], as_tuple=True)
    return row, columns[row, slot].to(torch.int64)


def _launch(kernel: Any, tile: Tile, h: Any, index: Any, arguments: tuple[Any, ...], double: bool, **more: Any) -> None:
    n, k = (h.shape[0] if index is None else len(index)), h.shape[1]
    elements = tile.elements // (2 if double else 1)
    if n < FEW_ROWS:
        elements *= 4
    block = min(elements, _power_of_2(k))
    rows = max(1, elements // block)
    dtype = tl.float64 if double else tl.float32
    settings = {"ROWS": rows, "BLOCK": block, "SELECTED": index is not None, "DTYPE": dtype, "num_warps": tile.warps}
    elsewhere = h.is_cuda and h.device.index != torch.cuda.current_device()
    with torch.cuda.device(h.device) if elsewhere else nullcontext():
        kernel[(-(-n // rows),)](h, h.stride(0), h if index is None else index, *arguments, n, k, **settings, **more)


def _power_of_2(n: int) -> int:
    return 1 << (n - 1).bit_length()
