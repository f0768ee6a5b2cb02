"""Pixels on a GPU: N×K×H×W logits read where they lie, with the classes far apart, and nothing kept of each pixel.

A program of the Triton kernel takes some neighbouring pixels of one image with all their classes, and returns sums over
them: the NLL with its derivatives at one β, or the NLL at many. So a pass reads each logit once, in the order of the
memory. What has no such kernel moves some pixels at a time into rows, and goes on as `attemper.torch.rows` does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from attemper._typing import Floats, Labels
from attemper.data.arrays import row_slices, to_numpy
from attemper.data.pixels import Entries, PixelRows
from attemper.errors import require
from attemper.torch import rows as device_rows
from attemper.torch.rows import SINGLE, SINGLE_BOUNDS, DeviceRows

__all__ = ["DevicePixels"]

torch: Any = require("torch", extra="torch", why="for logits on a GPU")

ROWS = 1 << 20  # pixels that are moved into rows at once
SAMPLED = 1 << 18  # and for the start of a fit
SAFE = 80.0  # exp(−80) is a normal number in single precision, and so are its products with squares of exponents
MOST_CLASSES = 1024  # of more, the logits of a program's pixels do not stay in the cache
SUMS = 1 << 22  # of programs, that are written at once


@dataclass(frozen=True, eq=False)
class DevicePixels:
    """Finite logits of pixels on a device. Make one with `of`."""

    values: PixelRows
    y: Entries
    w: Any  # float64, or None
    exact: bool  # the arithmetic is done in double precision
    limits_of_logits: tuple[float, float]  # the smallest and the largest of all
    known: dict[float, Any] = field(default_factory=dict)  # sums of each image at the β that was asked for last
    start_tolerance = 0.1
    most_sampled = SAMPLED  # a larger sample would be moved into rows for nothing

    @classmethod
    def of(cls, values: PixelRows, y: Entries, w: Floats | None, low: float, high: float) -> DevicePixels:
        """Take logits that are all finite, between ``low`` and ``high``."""
        bound = max(-low, high)
        few = len(values) * values.shape[1] <= device_rows.FEW_ELEMENTS
        fits = SINGLE_BOUNDS[0] < bound < SINGLE_BOUNDS[1]
        weights = None if w is None else torch.from_numpy(w).to(values.base.device)
        return cls(values, y, weights, few or not fits or values.base.dtype == torch.float64, (low, high))

    def __len__(self) -> int:
        """Return N, the number of pixels that count."""
        return len(self.values)

    @property
    def slope_rounding(self) -> float:
        """See `attemper.data.backend.Backend`."""
        return 0.0 if self.exact else SINGLE

    def exactly(self) -> DevicePixels:
        """Do all arithmetic in double precision."""
        return replace(self, exact=True, known={})

    def weighted(self, w: Floats) -> DevicePixels:
        """Give the pixels other weights."""
        return replace(self, w=torch.from_numpy(w).to(self.values.base.device), known={})

    def strided(self, step: int) -> DeviceRows:
        """Take every ``step``-th pixel, moved into rows."""
        return self[::step]

    def sampled(self, step: int) -> tuple[Any, Any, DeviceRows] | None:
        """Move every ``step``-th position that counts into rows; return them with their labels.

        These are other pixels than `strided` takes, and much faster to find. None where there are weights, or no views.
        """
        v, chosen = self.values, self.values.chosen
        if self.w is not None or v.view is None or len(v) < len(chosen):
            return None
        at = torch.arange(0, chosen.n, step, device=v.base.device)
        if chosen.mask is not None:
            at = at[torch.as_tensor(chosen.mask, device=at.device)[at]]
        size = int(v.view.shape[2])
        h, y = v.view[at // size, :, at % size].contiguous(), torch.as_tensor(self.y.flat, device=at.device)[at].long()
        return (h, y, DeviceRows.of(h, y)) if len(y) else None

    def __getitem__(self, part: slice) -> DeviceRows:
        """Move some pixels into rows."""
        w = None if self.w is None else self.w[part]
        made = DeviceRows.of(self.values.part(part).gathered(), self.y[part].gathered(), w)
        return replace(made, exact=self.exact or made.exact)

    def blocks(self) -> Iterator[DeviceRows]:
        """Move all pixels into rows, some at a time."""
        return (self[part] for part in row_slices(len(self), 1, ROWS))

    def nll(self, beta: float, *, quick: bool = False) -> Floats:
        """NLL, its slope and its curvature in β; as `attemper.kernels.nll.sums`."""
        if not self._has_kernel():
            return np.asarray(np.sum([block.nll(beta) for block in self.blocks()], axis=0))
        return np.asarray(self._by_image(beta).sum(axis=0))

    def slopes_by_image(self, beta: float) -> Floats | None:
        """Slope of the NLL of each image that counts; None where rows must be taken for that."""
        if not self._has_kernel():
            return None
        found, mask = self._by_image(beta)[:, 1], self.values.chosen.mask
        return found if mask is None else found[np.asarray(to_numpy(mask.reshape(len(found), -1).any(1)))]

    def limits(self) -> Floats:
        """Slope of the NLL as β → 0 and as β → ∞."""
        return np.asarray(np.sum([block.limits() for block in self.blocks()], axis=0))

    def table(
        self, betas: Floats, thetas: Floats, odds: Floats, unit: float, kernels: Sequence[Callable[[Any], Any]]
    ) -> Floats:
        """Return the table of a sketch; as `attemper.kernels.table.tabulate`."""
        if kernels or not self._has_kernel():
            tables = [block.table(betas, thetas, odds, unit, kernels) for block in self.blocks()]
            return np.asarray(np.sum(tables, axis=0))
        from attemper.torch.fused_pixels import at_once

        more = np.full(-len(betas) % at_once(len(betas)), betas[-1])  # a kernel takes as many at a time
        sums = self._sums(np.concatenate([betas, more, [1 / unit]]), many=True).sum(axis=0)
        ones = np.ones(len(betas))
        return np.stack([sums[0] * ones, sums[-1] * ones, sums[1 : len(betas) + 1]], axis=1)

    def confidences(self, betas: Floats) -> Floats:
        """Weight of the correct pixels, and the sum of the largest probabilities at each β."""
        return np.asarray(np.sum([block.confidences(betas) for block in self.blocks()], axis=0))

    def tops(self) -> Labels:
        """Class with the largest logit of each pixel: the label, where it is one of several."""
        return np.concatenate([block.tops() for block in self.blocks()])

    def _by_image(self, beta: float) -> Floats:
        if beta not in self.known:
            self.known.clear()
            self.known[beta] = self._sums(np.array([beta]), many=False)
        found: Floats = self.known[beta]
        return found

    def _has_kernel(self) -> bool:
        v = self.values
        whole = v.rows == range(len(v.chosen)) and v.view is not None and self.w is None
        return whole and v.shape[1] <= MOST_CLASSES and device_rows._has_triton(v.base.device.type)

    def _sums(self, betas: Floats, *, many: bool) -> Floats:
        """Sum over the pixels of each image.

        ``many``: how many labels are the largest logit, the NLL at each β but the last, the largest probability there;
        else NLL, slope and curvature at one β.
        """
        from attemper.torch import fused_pixels

        h, chosen = self.values.view, self.values.chosen
        mask = chosen.mask
        if mask is not None:
            mask = torch.as_tensor(mask, device=h.device).view(torch.uint8)
        flat = torch.as_tensor(self.y.flat, device=h.device)
        images, _, size = map(int, h.shape)
        double, width = self.exact or h.dtype == torch.float64, (len(betas) + 1) if many else 3
        low, high = self.limits_of_logits
        # One shift for all pixels, where no exponential can underflow, saves the search for the largest of each.
        shift = high if not (many or double) and betas[0] * (high - low) < SAFE else None
        b = torch.from_numpy(betas).to(h.device)
        tile = fused_pixels.tile_of(size, double=double, many=many)
        programs = -(-size // tile.rows)
        most = max(1, SUMS // (programs * width))
        found = []
        elsewhere = h.is_cuda and h.device.index != torch.cuda.current_device()
        with torch.cuda.device(h.device) if elsewhere else nullcontext():
            for first in range(0, images, most):
                last = min(first + most, images)
                of_images = slice(first * size, last * size)
                out = torch.empty((last - first, programs, width), dtype=torch.float64, device=h.device)
                some = None if mask is None else mask[of_images]
                fused_pixels.launch(
                    h[first:last], flat[of_images], some, b, out, tile, double=double, many=many, shift=shift
                )
                found.append(out.sum(dim=1))
        # Where the classes are last, each position is an image to the kernel.
        by_image = torch.cat(found).cpu().numpy()
        n = 1 if self.values.axis == 0 else int(self.values.base.shape[0])
        return np.asarray(by_image.reshape(n, -1, width).sum(axis=1))
