"""Calibrators as torch modules: `to_torch` calibrates logits, `wrap` a network."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from attemper.data.arrays import masks_as_inf, settled
from attemper.errors import InputError, NotFittedError, require
from attemper.maps import Map

torch: Any = require("torch", extra="torch", why="for torch modules")
xp: Any = importlib.import_module("array_api_compat.torch")

SINGLE_ONLY = ("mps",)  # devices without double precision


def to_torch(calibrator: Any, axis: int | None = None) -> MapModule:
    """Return a fitted calibrator, or a map, as a module: from logits (or probabilities) to calibrated probabilities.

    ``axis`` is where the classes are of an input with three or more dimensions; by default that of the fit.

    >>> to_torch(Map.scale(0.5))(torch.tensor([[2.0, 0.0]])).round(decimals=3)
    tensor([[0.7310, 0.2690]])
    """
    fitted = _map_of(calibrator)
    axis = getattr(getattr(calibrator, "read_", None), "axis", None) if axis is None else axis
    masks = fitted.input == "logits" and not fitted.independent and not getattr(calibrator, "unmasked_", False)
    return MapModule(fitted, axis, getattr(calibrator, "n_features_in_", None), masks=masks)


def wrap(calibrator: Any, module: Any, axis: int | None = None) -> CalibratedModule:
    """Return a network that returns calibrated probabilities; the network is held, not copied.

    >>> wrap(Map.scale(0.5), torch.nn.Linear(4, 3))(torch.zeros(2, 4)).shape
    torch.Size([2, 3])
    """
    if not isinstance(module, torch.nn.Module):
        raise InputError(f"module: expected a torch.nn.Module, got {type(module).__name__}", "module")
    last = module
    while isinstance(last, torch.nn.Sequential) and len(last):
        last = last[-1]
    end = type(last)
    if _map_of(calibrator).input == "logits" and issubclass(end, torch.nn.Softmax | torch.nn.Sigmoid):
        raise InputError(f"module: it ends in {end.__name__}, the fit had logits. Use the module before it.", "module")
    layers = (torch.nn.Linear, torch.nn.Conv1d, torch.nn.Conv2d, torch.nn.Conv3d)
    if _map_of(calibrator).input == "probs" and issubclass(end, layers):
        added = "a Sigmoid" if _map_of(calibrator).independent else "a Softmax"
        raise InputError(f"module: it ends in {end.__name__}, the fit had probabilities. Add {added}.", "module")
    made = CalibratedModule(module, to_torch(calibrator, axis))
    made.train(module.training)
    return made


def _map_of(calibrator: Any) -> Map:
    """Return the map of a calibrator; one for groups has several."""
    if hasattr(calibrator, "groups_"):
        raise InputError("calibrator: it has a map for each group; use map_of(group), or its common_", "calibrator")
    fitted = calibrator if isinstance(calibrator, Map) else getattr(calibrator, "map_", None)
    if not isinstance(fitted, Map):
        raise NotFittedError(f"this {type(calibrator).__name__} is not fitted yet; call fit first")
    return fitted


class MapModule(torch.nn.Module):  # type: ignore[misc]
    """Calibrated probabilities of logits; the numbers of the map are buffers. Made by `to_torch`."""

    def __init__(self, fitted: Map, axis: int | None, n_classes: int | None, *, masks: bool) -> None:
        super().__init__()
        self.map, self.axis, self.n_classes, self.masks = fitted, axis, n_classes, masks
        arrays = fitted.arrays()
        self.names = tuple(arrays)
        for name, array in arrays.items():
            self.register_buffer(f"map_{name}", torch.tensor(array))

    def forward(self, x: Any) -> Any:
        """Calibrate; in the precision of ``x``, computed in single or double precision."""
        x = x[:, None] if x.ndim == 1 else x
        if x.ndim > 2 and self.axis is None:
            raise InputError(f"axis: expected where the classes are in shape {tuple(x.shape)}. Use axis=1", "axis")
        axis = -1 if self.axis is None or x.ndim == 2 else self.axis
        h = x.movedim(axis, -1)
        if h.shape[-1] == 1 and not self.map.independent:  # the second of two classes
            h = torch.cat([1 - h if self.map.input == "probs" else torch.zeros_like(h), h], dim=-1)
        if self.n_classes is not None and h.shape[-1] != self.n_classes:
            raise InputError(
                f"axis: expected {self.n_classes} classes along axis {axis}, got the shape {tuple(x.shape)}", "axis"
            )
        double = _double(h.device)
        dtype = h.dtype if h.is_floating_point() else double
        # Numbers for each class are computed with in double precision, which autocast leaves alone.
        many = self.map.n_classes is not None or self.map.input == "probs"
        wide = double if many or dtype == torch.float64 else torch.float32
        buffers = {name: self._buffers[f"map_{name}"] for name in self.names}
        arrays = {name: b.to(wide) if b.is_floating_point() else b for name, b in buffers.items()}
        h = masks_as_inf(h) if self.masks else h
        made = self.map.evaluate(h.to(wide), arrays, xp, log=False).to(dtype)
        made = settled(made, h, xp) if dtype.itemsize < 4 and not self.map.independent else made
        return made.movedim(-1, axis)

    def _apply(self, fn: Callable[[Any], Any], recurse: bool = True) -> Any:
        """Follow the model to another device, but stay in double precision: ``model.half()`` must not round a map."""
        for name, buffer in self._buffers.items():
            device = fn(buffer.new_empty(0, dtype=torch.float32)).device
            self._buffers[name] = buffer.to(device, _double(device) if buffer.is_floating_point() else buffer.dtype)
        return self


def _double(device: Any) -> Any:
    """Return double precision, or what a device has instead."""
    return torch.float32 if device.type in SINGLE_ONLY else torch.float64


class CalibratedModule(torch.nn.Module):  # type: ignore[misc]
    """A network that returns calibrated probabilities; made by `wrap`."""

    def __init__(self, module: Any, calibration: MapModule) -> None:
        super().__init__()
        self.module, self.calibration = module, calibration

    def forward(self, *inputs: Any, **named: Any) -> Any:
        """Return probabilities of what the network returns: a tensor, or a dict or object with ``logits``."""
        output = self.module(*inputs, **named)
        return self.calibration(output["logits"] if isinstance(output, dict) else getattr(output, "logits", output))
