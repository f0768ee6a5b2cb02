"""Sums over pixels in one Triton kernel a pass: classes lie ``class_stride`` apart, neighbouring pixels side by side.

The classes of a pixel are two tiles whose numbers are powers of two, as Triton has them: 16 and 4 for 19 classes, where
one tile of 32 would waste a third of the exponentials.
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
LOWEST = tl.constexpr(-1e34)  # of a class that is not there: exp2 of it is 0


class Tile(NamedTuple):
    """How many pixels a program takes, on how many warps, and the two numbers of classes."""

    rows: int
    warps: int
    first: int
    second: int


ELEMENTS, WARPS = 2048, 4  # of a tile, measured on an H200 by `python benchmarks/pixels.py gpu --tune`


def tile_of(h: Any, double: bool) -> Tile:
    """Choose the tile for logits of images × classes × positions."""
    k = int(h.shape[1])
    first = 1 << (k.bit_length() - 1)
    rest = k - first
    second = 1 << (rest - 1).bit_length() if rest else 1
    rows = max(16, ELEMENTS // (first + second) // (2 if double else 1))
    rows = 1 << (rows.bit_length() - 1)
    return Tile(min(rows, max(16, 1 << (int(h.shape[2]) - 1).bit_length())), WARPS, first, second)


@triton.jit
def _load(
    h, image, class_stride, position, position_stride, start, stop, there, SIZE: tl.constexpr, DTYPE: tl.constexpr
):
    k = start + tl.arange(0, SIZE)
    inside = (k < stop)[:, None] & there[None, :]
    place = k.to(tl.int64)[:, None] * class_stride + position.to(tl.int64)[None, :] * position_stride
    return tl.load(h + image + place, inside, float("-inf")).to(DTYPE), k


@triton.jit
def _pixels_kernel(
    h, image_stride, class_stride, position_stride, y, mask, betas, out, size, K, J,
    ROWS: tl.constexpr, FIRST: tl.constexpr, SECOND: tl.constexpr, MASK: tl.constexpr, MANY: tl.constexpr,
    DTYPE: tl.constexpr,
):  # fmt: skip
    """Sums over some pixels of one image; as `DevicePixels._sums` has them."""
    image = tl.program_id(1).to(tl.int64)
    position = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    there = position < size
    at = image * size + position
    counts = there
    if MASK:
        counts = there & (tl.load(mask + at, there, 0) != 0)
    label = tl.where(counts, tl.load(y + at, there, 0).to(tl.int32), 0)
    start = image * image_stride
    a, ka = _load(h, start, class_stride, position, position_stride, 0, FIRST, there, FIRST, DTYPE)
    b, kb = _load(h, start, class_stride, position, position_stride, FIRST, K, there, SECOND, DTYPE)
    largest = tl.maximum(tl.max(a, axis=0), tl.max(b, axis=0))
    largest = tl.where(there, largest, 0.0)
    a -= largest[None, :]
    b -= largest[None, :]
    of_label = tl.sum(tl.where(ka[:, None] == label[None, :], a, 0.0), axis=0)
    of_label += tl.sum(tl.where(kb[:, None] == label[None, :], b, 0.0), axis=0)
    gap = tl.where(counts, of_label, 0.0).to(tl.float64)
    a = tl.maximum(a, LOWEST)  # −inf of what is not there
    b = tl.maximum(b, LOWEST)
    row = out + (image * tl.num_programs(0) + tl.program_id(0)) * (J + 1 if MANY else 3)
    if MANY:
        # The first of the largest is left out of the sums: log(1 + rest) is then exact where it is small.
        top = tl.minimum(
            tl.min(tl.where(a == 0.0, ka[:, None], K), axis=0), tl.min(tl.where(b == 0.0, kb[:, None], K), axis=0)
        )
        a = tl.where(ka[:, None] == top[None, :], LOWEST, a)
        b = tl.where(kb[:, None] == top[None, :], LOWEST, b)
        tl.store(row, tl.sum((counts & (gap == 0.0)).to(tl.float64), axis=0))
        for j in range(0, J):
            beta = tl.load(betas + j)
            unit = beta * LOG2E
            coarse = unit.to(DTYPE)
            fine = (unit - coarse.to(tl.float64)).to(DTYPE)
            rest = tl.sum(tl.exp2(a * coarse + a * fine), axis=0) + tl.sum(tl.exp2(b * coarse + b * fine), axis=0)
            z = 1.0 + rest
            if j == J - 1:
                value = (1.0 / z).to(tl.float64)
            else:
                # log1p as Kahan has it
                log_z = tl.where(z == 1.0, rest, tl.log(z) * (rest / tl.where(z == 1.0, 1.0, z - 1.0)))
                value = log_z.to(tl.float64) - beta * gap
            tl.store(row + 1 + j, tl.sum(tl.where(counts, value, 0.0), axis=0))
    else:
        beta = tl.load(betas)
        unit = beta * LOG2E
        coarse = unit.to(DTYPE)
        step = beta - coarse.to(tl.float64) / LOG2E
        ta = tl.maximum(a * coarse, LOWEST)
        tb = tl.maximum(b * coarse, LOWEST)
        ea = tl.exp2(ta)
        eb = tl.exp2(tb)
        z = (tl.sum(ea, axis=0) + tl.sum(eb, axis=0)).to(tl.float64)
        z = tl.where(there, z, 1.0)
        per = coarse.to(tl.float64)
        m1 = (tl.sum(ea * ta, axis=0) + tl.sum(eb * tb, axis=0)).to(tl.float64) / z / per
        m2 = (tl.sum(ea * ta * ta, axis=0) + tl.sum(eb * tb * tb, axis=0)).to(tl.float64) / z / (per * per)
        slope = m1 - gap
        curvature = m2 - m1 * m1
        value = tl.log(z) - per / LOG2E * gap
        tl.store(row, tl.sum(tl.where(counts, value + step * slope, 0.0), axis=0))
        tl.store(row + 1, tl.sum(tl.where(counts, slope + step * curvature, 0.0), axis=0))
        tl.store(row + 2, tl.sum(tl.where(counts, curvature, 0.0), axis=0))


def launch(h: Any, y: Any, mask: Any, betas: Any, out: Any, tile: Tile, *, double: bool, many: bool) -> None:
    """Fill ``out``, images × programs × sums."""
    images, k, size = map(int, h.shape)
    grid = (-(-size // tile.rows), images)
    strides = h.stride()
    _pixels_kernel[grid](
        h, *strides, y, y if mask is None else mask, betas, out, size, k, len(betas),
        ROWS=tile.rows, FIRST=tile.first, SECOND=tile.second, MASK=mask is not None, MANY=many,
        DTYPE=tl.float64 if double else tl.float32, num_warps=tile.warps,
    )  # fmt: skip
