"""Every map as a torch module: buffers, no parameters; the same numbers as `Map.apply`.

Importing this module needs torch; ``import attemper`` does not import it.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable
from typing import Any

from attemper.calibrators.exportable import Exportable, Source, source_of
from attemper.data.arrays import log_probs_above
from attemper.errors import InputError, require
from attemper.maps import ScaleMap

torch: Any = require("torch", extra="torch", why="to make torch modules")
xp: Any = importlib.import_module("array_api_compat.torch")

__all__ = ["CalibrationModule", "to_torch"]


def to_torch(calibration: Exportable, *, log: bool = False, dim: int = -1, positive: bool = False) -> Any:
    """Return a module that turns logits into calibrated probabilities.

    It has no parameters to train and lets gradients through. Half precision is computed in single precision inside,
    whatever ``.half()`` or autocast set, and returned in the type of the input. A calibrator that was fitted on
    probabilities makes a module that takes probabilities. ``torch.export``, ``torch.compile`` and ``torch.onnx.export``
    take it.

    Parameters
    ----------
    calibration : fitted calibrator, map, or path of a saved map
    log : give log-probabilities, which do not underflow
    dim : where the classes are; 1 for images of logits, N×K×H×W
    positive : for two classes: take one number for each sample, the log-odds of the second class (or its probability),
        and give its calibrated probability, in the same shape

    Examples
    --------
    >>> import torch
    >>> from attemper import ScaleMap
    >>> to_torch(ScaleMap(0.5))(torch.tensor([[2.0, 0.0]]))
    tensor([[0.7311, 0.2689]])
    >>> to_torch(ScaleMap(0.5), positive=True)(torch.tensor([-2.0]))
    tensor([0.2689])
    """
    source = source_of(calibration)
    if positive and source.n_classes not in (None, 2):
        raise InputError(f"positive=True: expected a map of two classes, got one of {source.n_classes}")
    return CalibrationModule(source, bool(log), int(dim), bool(positive))


class CalibrationModule(torch.nn.Module):  # type: ignore[misc]
    """A map, with its arrays as buffers: what `to_torch` makes."""

    def __init__(self, source: Source, log: bool, dim: int, positive: bool = False) -> None:
        super().__init__()
        self.positive = positive
        self.map, self.log, self.dim = source.map, log, dim
        self.takes_probs = source.takes_probs
        self.has_zeros_as = source.zeros_as is not None
        self.n_classes = source.n_classes or 0
        self.what = describe(source)
        low = -math.inf if source.zeros_as is None else math.log(source.zeros_as)
        self.register_buffer("low", torch.tensor(low, dtype=torch.float64))
        self.buffer_of = {}  # by the name that the map has for it, which may be taken here
        for name, array in source.map.arrays().items():
            self.buffer_of[name] = own = f"map_{name}" if hasattr(self, name) else name
            self.register_buffer(own, torch.tensor(array))

    def forward(self, x: Any) -> Any:
        """Calibrated probabilities of logits, or their logarithms."""
        if self.positive:
            h = torch.stack([1 - x if self.takes_probs else torch.zeros_like(x), x], dim=-1)
            return self.rows(h.reshape(-1, 2))[:, 1].reshape(x.shape)
        h = x.movedim(self.dim, -1)
        if self.n_classes > 0 and h.shape[-1] != self.n_classes:
            raise ValueError(f"{h.shape[-1]} classes along dim {self.dim}; the map is for {self.n_classes}")
        return self.rows(h.reshape(-1, h.shape[-1])).reshape(h.shape).movedim(-1, self.dim)

    def rows(self, h: Any) -> Any:
        """Calibrate N×K numbers."""
        dtype = h.dtype if h.is_floating_point() else torch.float64
        if self.takes_probs:
            h = log_probs_above(h, self.low if self.has_zeros_as else None, xp)
        # Numbers for each class are computed with in double precision, which autocast leaves alone.
        wide = h.dtype == torch.float64 or not h.is_floating_point() or self.map.n_classes is not None
        return self.map.transform(
            h,
            {name: self._buffers[own] for name, own in self.buffer_of.items()},
            xp,
            dtype=dtype,
            wide=self.low.dtype if wide else torch.float32,
            output="log_probs" if self.log else "probs",
        )

    def _apply(self, fn: Callable[[Any], Any], recurse: bool = True) -> Any:
        """Follow the model to another device, but stay in double precision: ``model.half()`` must not round a map."""
        for name, buffer in self._buffers.items():
            device = fn(buffer.new_empty(0, dtype=torch.float32)).device
            if buffer.device.type == "meta" and device.type != "meta":
                self._buffers[name] = torch.empty_like(buffer, device=device)
            elif device != buffer.device:
                narrow = device.type == "mps" and buffer.dtype == torch.float64  # which Apple's GPUs do not have
                self._buffers[name] = buffer.to(device, dtype=torch.float32 if narrow else buffer.dtype)
        return self

    def extra_repr(self) -> str:
        """Describe the map in one line."""
        return self.what


def describe(source: Source) -> str:
    """Return a map in one line: its kind, its temperature or its size, and what it takes."""
    m = source.map
    size = f"T={1 / m.beta:.4g}" if isinstance(m, ScaleMap) else f"{source.n_classes or 'any'} classes"
    method = source.facts.get("method")
    return ", ".join(
        [*([method] if method else []), type(m).__name__, size, "probs" if source.takes_probs else "logits"]
    )
