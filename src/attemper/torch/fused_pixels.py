"""Sums over pixels in one Triton kernel a pass: classes lie ``class_stride`` apart, neighbouring pixels side by side.

A thread holds a few pixels and walks along their classes, twice or more often: first for the largest logit, then for
the exponentials. From the second time on the logits come from the cache, so that memory is read once.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from attemper.errors import require

__all__ = ["Tile", "launch", "tile_of"]

torch: Any = require("torch", extra="torch", why="for logits on a GPU")
triton: Any = require("triton", extra="torch", why="for logits on a GPU")
tl: Any = require("triton.language", extra="torch", why="for logits on a GPU")

LOG2E = tl.constexpr(math.log2(math.e))
LOWEST = tl.constexpr(-1e34)  # of the class that is left out: exp2 of it is 0


class Tile(NamedTuple):
    """How many pixels a program takes, and on how many warps."""

    rows: int
    warps: int


# Measured on an H200 by `python benchmarks/pixels.py gpu --tune`; in double precision half as many pixels.
ONE, MANY = Tile(256, 4), Tile(512, 4)


def at_once(n_betas: int) -> int:
    """How many temperatures `_many_kernel` takes each time that it goes through the logits."""
    return 8 if n_betas > 2 else 2


def tile_of(size: int, *, double: bool, many: bool) -> Tile:
    """Choose the tile for images of so many pixels."""
    rows, warps = MANY if many else ONE
    return Tile(min(rows // 2 if double else rows, max(16, 1 << (size - 1).bit_length())), warps)


@triton.jit
def _walk(
    h, image_stride, class_stride, position_stride, y, mask, size,
    K: tl.constexpr, ROWS: tl.constexpr, MASK: tl.constexpr, DTYPE: tl.constexpr,
):  # fmt: skip
    """Find where the logits of these pixels begin, which count, the largest logit, its class, the gap of the label."""
    image = tl.program_id(1).to(tl.int64)
    position = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    there = position < size
    at = image * size + position
    counts = there
    if MASK:
        counts = there & (tl.load(mask + at, there, 0) != 0)
    label = tl.load(y + at, there, 0).to(tl.int32)
    begin = h + image * image_stride + position.to(tl.int64) * position_stride
    largest = tl.load(begin, there, 0.0).to(DTYPE)
    of_label = largest
    top = tl.zeros([ROWS], tl.int32)
    for k in range(1, K):
        x = tl.load(begin + k * class_stride, there, 0.0).to(DTYPE)
        top = tl.where(x > largest, k, top)
        largest = tl.maximum(largest, x)
        of_label = tl.where(label == k, x, of_label)
    gap = tl.where(counts, (of_label - largest).to(tl.float64), 0.0)
    return begin, there, counts, largest, top, gap


@triton.jit
def _one_kernel(
    h, image_stride, class_stride, position_stride, y, mask, betas, out, size,
    K: tl.constexpr, ROWS: tl.constexpr, MASK: tl.constexpr, DTYPE: tl.constexpr,
):  # fmt: skip
    """NLL, slope and curvature at one β, with d = h − max and t = β d log₂e; as `attemper.torch.fused` has them."""
    begin, there, counts, largest, _, gap = _walk(
        h, image_stride, class_stride, position_stride, y, mask, size, K, ROWS, MASK, DTYPE
    )
    beta = tl.load(betas)
    scale = (beta * LOG2E).to(DTYPE)
    per = scale.to(tl.float64)
    step = beta - per / LOG2E
    zeroth = tl.zeros([ROWS], DTYPE)
    first = tl.zeros([ROWS], DTYPE)
    other = tl.zeros([ROWS], DTYPE)
    for k in range(0, K):
        t = (tl.load(begin + k * class_stride, there, 0.0).to(DTYPE) - largest) * scale
        e = tl.exp2(t)
        et = e * t
        zeroth += e
        first += et
        other += et * t
    # The moments of a pixel in the precision of the arithmetic, sums over pixels in double.
    mean = first / zeroth
    m1 = mean.to(tl.float64) / per
    curvature = (other / zeroth - mean * mean).to(tl.float64) / (per * per)
    slope = m1 - gap
    value = tl.log(zeroth.to(tl.float64)) - per / LOG2E * gap
    row = out + (tl.program_id(1).to(tl.int64) * tl.num_programs(0) + tl.program_id(0)) * 3
    tl.store(row, tl.sum(tl.where(counts, value + step * slope, 0.0), axis=0))
    tl.store(row + 1, tl.sum(tl.where(counts, slope + step * curvature, 0.0), axis=0))
    tl.store(row + 2, tl.sum(tl.where(counts, curvature, 0.0), axis=0))


@triton.jit
def _shifted_kernel(
    h, image_stride, class_stride, position_stride, y, mask, betas, out, size, shift,
    K: tl.constexpr, ROWS: tl.constexpr, MASK: tl.constexpr, DTYPE: tl.constexpr,
):  # fmt: skip
    """As `_one_kernel`, with d = h − shift for all pixels alike, so that their classes are walked along once."""
    image = tl.program_id(1).to(tl.int64)
    position = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    there = position < size
    at = image * size + position
    counts = there
    if MASK:
        counts = there & (tl.load(mask + at, there, 0) != 0)
    begin = h + image * image_stride + position.to(tl.int64) * position_stride
    beta = tl.load(betas)
    scale = (beta * LOG2E).to(DTYPE)
    per = scale.to(tl.float64)
    step = (beta - per / LOG2E).to(DTYPE)
    back = (1.0 / per).to(DTYPE)
    zeroth = tl.zeros([ROWS], DTYPE)
    first = tl.zeros([ROWS], DTYPE)
    other = tl.zeros([ROWS], DTYPE)
    for k in range(0, K):
        t = (tl.load(begin + k * class_stride, there, 0.0).to(DTYPE) - shift) * scale
        e = tl.exp2(t)
        et = e * t
        zeroth += e
        first += et
        other += et * t
    label = tl.where(counts, tl.load(y + at, there, 0).to(tl.int64), 0)
    t = (tl.load(begin + label * class_stride, there, 0.0).to(DTYPE) - shift) * scale
    mean = first / zeroth
    slope = (mean - t) * back
    curvature = (other / zeroth - mean * mean) * back * back
    value = tl.log(zeroth) - t * (1.0 / LOG2E)
    row = out + (image * tl.num_programs(0) + tl.program_id(0)) * 3
    tl.store(row, tl.sum(tl.where(counts, value + step * slope, 0.0), axis=0).to(tl.float64))
    tl.store(row + 1, tl.sum(tl.where(counts, slope + step * curvature, 0.0), axis=0).to(tl.float64))
    tl.store(row + 2, tl.sum(tl.where(counts, curvature, 0.0), axis=0).to(tl.float64))


@triton.jit
def _unit(betas, j, DTYPE: tl.constexpr):
    """β log₂e, and what the precision of the arithmetic loses of it."""
    unit = tl.load(betas + j) * LOG2E
    coarse = unit.to(DTYPE)
    return coarse, (unit - coarse.to(tl.float64)).to(DTYPE)


@triton.jit
def _store_nll(row, betas, j, rest, gap, counts):
    """Sum log(1 + rest) − β gap; the logarithm as Kahan has it, which is exact where the rest is small."""
    z = 1.0 + rest
    log_z = tl.where(z == 1.0, rest, tl.log(z) * (rest / tl.where(z == 1.0, 1.0, z - 1.0)))
    value = log_z.to(tl.float64) - tl.load(betas + j) * gap
    tl.store(row + 1 + j, tl.sum(tl.where(counts, value, 0.0), axis=0))


@triton.jit
def _many_kernel(
    h, image_stride, class_stride, position_stride, y, mask, betas, out, size, J,
    K: tl.constexpr, ROWS: tl.constexpr, MASK: tl.constexpr, DTYPE: tl.constexpr, AT_ONCE: tl.constexpr,
):  # fmt: skip
    """How many labels are the largest logit, the NLL at J − 1 temperatures, eight or two at a time, the confidence."""
    begin, there, counts, largest, top, gap = _walk(
        h, image_stride, class_stride, position_stride, y, mask, size, K, ROWS, MASK, DTYPE
    )
    row = out + (tl.program_id(1).to(tl.int64) * tl.num_programs(0) + tl.program_id(0)) * (J + 1)
    tl.store(row, tl.sum((counts & (gap == 0.0)).to(tl.float64), axis=0))
    for j in range(0, J - 1, AT_ONCE):
        c0, f0 = _unit(betas, j, DTYPE)
        c1, f1 = _unit(betas, j + 1, DTYPE)
        r0 = tl.zeros([ROWS], DTYPE)
        r1 = r0
        if AT_ONCE == 2:
            for k in range(0, K):
                d = tl.load(begin + k * class_stride, there, 0.0).to(DTYPE) - largest
                d = tl.where(top == k, LOWEST, d)  # the largest is left out
                r0 += tl.exp2(d * c0 + d * f0)
                r1 += tl.exp2(d * c1 + d * f1)
        else:
            c2, f2 = _unit(betas, j + 2, DTYPE)
            c3, f3 = _unit(betas, j + 3, DTYPE)
            c4, f4 = _unit(betas, j + 4, DTYPE)
            c5, f5 = _unit(betas, j + 5, DTYPE)
            c6, f6 = _unit(betas, j + 6, DTYPE)
            c7, f7 = _unit(betas, j + 7, DTYPE)
            r2, r3, r4, r5, r6, r7 = r0, r0, r0, r0, r0, r0
            for k in range(0, K):
                d = tl.load(begin + k * class_stride, there, 0.0).to(DTYPE) - largest
                d = tl.where(top == k, LOWEST, d)
                r0 += tl.exp2(d * c0 + d * f0)
                r1 += tl.exp2(d * c1 + d * f1)
                r2 += tl.exp2(d * c2 + d * f2)
                r3 += tl.exp2(d * c3 + d * f3)
                r4 += tl.exp2(d * c4 + d * f4)
                r5 += tl.exp2(d * c5 + d * f5)
                r6 += tl.exp2(d * c6 + d * f6)
                r7 += tl.exp2(d * c7 + d * f7)
            _store_nll(row, betas, j + 2, r2, gap, counts)
            _store_nll(row, betas, j + 3, r3, gap, counts)
            _store_nll(row, betas, j + 4, r4, gap, counts)
            _store_nll(row, betas, j + 5, r5, gap, counts)
            _store_nll(row, betas, j + 6, r6, gap, counts)
            _store_nll(row, betas, j + 7, r7, gap, counts)
        _store_nll(row, betas, j, r0, gap, counts)
        _store_nll(row, betas, j + 1, r1, gap, counts)
    coarse, fine = _unit(betas, J - 1, DTYPE)
    rest = tl.zeros([ROWS], DTYPE)
    for k in range(0, K):
        d = tl.load(begin + k * class_stride, there, 0.0).to(DTYPE) - largest
        rest += tl.where(top == k, 0.0, tl.exp2(d * coarse + d * fine))
    tl.store(row + J, tl.sum(tl.where(counts, (1.0 / (1.0 + rest)).to(tl.float64), 0.0), axis=0))


def launch(
    h: Any,
    y: Any,
    mask: Any,
    betas: Any,
    out: Any,
    tile: Tile,
    *,
    double: bool,
    many: bool,
    shift: float | None = None,
) -> None:
    """Fill ``out``, images × programs × sums; of many β all but the last are a multiple of `at_once`."""
    images, k, size = map(int, h.shape)
    settings = {
        "K": k,
        "ROWS": tile.rows,
        "MASK": mask is not None,
        "DTYPE": tl.float64 if double else tl.float32,
        "num_warps": tile.warps,
    }
    arguments = (h, *h.stride(), y, y if mask is None else mask, betas, out, size)
    grid = (-(-size // tile.rows), images)
    if many:
        _many_kernel[grid](*arguments, len(betas), AT_ONCE=at_once(len(betas) - 1), **settings)
    elif shift is not None:
        _shifted_kernel[grid](*arguments, shift, **settings)
    else:
        _one_kernel[grid](*arguments, **settings)
