"""Every map as a torch module: buffers, no parameters; the same numbers as `Map.apply`.

Importing this module needs torch; ``import attemper`` does not import it. The code keeps to what
``torch.export``, ``torch.compile`` and ``torch.jit.script`` understand: no step depends on the values.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from attemper.errors import require
from attemper.export.source import Exportable, Source, source_of
from attemper.maps import AffineMap, BinMap, Map, MixtureMap, OddsMap, ScaleMap

torch: Any = require("torch", extra="torch", why="to make torch modules")

__all__ = ["CalibrationModule", "to_torch"]


def to_torch(calibration: Exportable, *, log: bool = False, dim: int = -1) -> Any:
    """Return a module that turns logits into calibrated probabilities.

    It has no parameters to train and lets gradients through. Half precision is computed in single precision inside,
    whatever ``.half()`` or autocast say, and given back in the type that came. A calibrator that was fitted on
    probabilities makes a module that takes probabilities.

    Parameters
    ----------
    calibration : fitted calibrator, map, or path of a saved map
    log : give log-probabilities, which do not underflow
    dim : where the classes are; 1 for images of logits, N×K×H×W

    Examples
    --------
    >>> import torch
    >>> from attemper import ScaleMap
    >>> to_torch(ScaleMap(0.5))(torch.tensor([[2.0, 0.0]]))
    tensor([[0.7311, 0.2689]])
    """
    source = source_of(calibration)
    kind = MODULES[type(source.map)]
    return kind(source, bool(log), int(dim))


class CalibrationModule(torch.nn.Module):  # type: ignore[misc]
    """Base of the modules that `to_torch` makes."""

    def __init__(self, source: Source, log: bool, dim: int) -> None:
        super().__init__()
        self.log = log
        self.dim = dim
        self.takes_probs = source.takes_probs
        self.has_floor = source.floor is not None
        self.n_classes = source.n_classes or 0
        self.keeps_arg_max = bool(source.map.keeps_arg_max)
        self.what = describe(source)
        self._numbers(low=-math.inf if source.floor is None else math.log(source.floor))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Calibrated probabilities of logits, or their logarithms."""
        h = x.movedim(self.dim, -1)
        if self.n_classes > 0 and h.shape[-1] != self.n_classes:
            raise ValueError(f"{h.shape[-1]} classes along dim {self.dim}; the map is for {self.n_classes}")
        if not h.is_floating_point():
            h = h.to(torch.float64)
        dtype = h.dtype
        if dtype == torch.float16 or dtype == torch.bfloat16:
            h = h.to(torch.float32)
        if self.takes_probs:
            h = self._log_probs(h)
        value = self._values(h).to(dtype)
        value = _keep_first(value, self._top(value, h))
        return value.movedim(-1, self.dim)

    def _log_probs(self, p: torch.Tensor) -> torch.Tensor:
        """As `attemper.arrays.log_probs`: in double precision, and the arg max stays."""
        h = p.to(self.low.dtype)
        if self.has_floor:
            normal = 2.0**-126 if p.dtype == torch.float32 else 2.0**-1022  # the smallest normal number
            h = torch.where(p < normal, self.low, h.clamp(min=normal).log().clamp(min=self.low))
        else:
            h = h.log()
        top = torch.argmax(p, dim=-1, keepdim=True)
        column = torch.arange(p.shape[-1], device=p.device)
        return _keep_first(torch.where(column == top, h.amax(-1, keepdim=True), h), top)

    def _values(self, h: torch.Tensor) -> torch.Tensor:
        raise NotImplementedError

    def _top(self, value: torch.Tensor, h: torch.Tensor) -> torch.Tensor:
        """Column that must hold the arg max."""
        return torch.argmax(h if self.keeps_arg_max else value, dim=-1, keepdim=True)

    def _numbers(self, **values: Any) -> None:
        for name, value in values.items():
            self.register_buffer(name, torch.tensor(np.asarray(value)))

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
        """Tell the map in one line."""
        return self.what


class ScaleModule(CalibrationModule):
    """One temperature."""

    def __init__(self, source: Source, log: bool, dim: int) -> None:
        super().__init__(source, log, dim)
        assert isinstance(source.map, ScaleMap)
        self._numbers(beta=source.map.beta)

    def _values(self, h: torch.Tensor) -> torch.Tensor:
        x = (h - h.amax(-1, keepdim=True)) * self.beta
        if self.log:
            return x - x.exp().sum(-1, keepdim=True).log()
        e = x.exp()
        return e / e.sum(-1, keepdim=True)


class MixtureModule(CalibrationModule):
    """An average over temperatures."""

    def __init__(self, source: Source, log: bool, dim: int) -> None:
        super().__init__(source, log, dim)
        self._mixture(source.map)

    def _mixture(self, m: Map) -> None:
        if isinstance(m, ScaleMap):
            m = MixtureMap((1.0,), (m.beta,), 0.0)
        assert isinstance(m, MixtureMap)
        parts = m.parts
        flattest = 0.0 if m.floor > 0 else min(beta for _, beta in parts)
        weights, betas = ([part[i] for part in parts] for i in range(2))
        self._numbers(weights=weights, betas=betas, share=m.floor, flattest=flattest)

    def _values(self, h: torch.Tensor) -> torch.Tensor:
        return self._mixed(h)

    def _mixed(self, h: torch.Tensor) -> torch.Tensor:
        d = h - h.amax(-1, keepdim=True)
        possible = d > float("-inf")
        n = possible.to(d.dtype)
        total = n * (self.share / n.sum(-1, keepdim=True)).to(d.dtype)
        if not self.log:
            for i in range(self.betas.shape[0]):
                e = (d * self.betas[i]).exp()
                total = total + e * (self.weights[i] / e.sum(-1, keepdim=True))
            return total
        # As in MixtureMap: the flattest component as a factor leaves a sum that cannot underflow.
        d = d.masked_fill(~possible, 0.0)
        for i in range(self.betas.shape[0]):
            z = (d * self.betas[i]).exp().masked_fill(~possible, 0.0).sum(-1, keepdim=True)
            total = total + (d * (self.betas[i] - self.flattest)).exp() * (self.weights[i] / z)
        return (d * self.flattest + total.log()).masked_fill(~possible, float("-inf"))


class AffineModule(MixtureModule):
    """W x + b, in double precision, which autocast leaves alone; then a temperature, or a mixture of them."""

    def __init__(self, source: Source, log: bool, dim: int) -> None:
        super().__init__(source, log, dim)
        m = source.map
        assert isinstance(m, AffineMap)
        self.diagonal = m.weight.ndim == 1
        self.centring = str(m.centring)
        self._numbers(weight=m.weight, bias=m.bias)

    def _mixture(self, m: Map) -> None:
        assert isinstance(m, AffineMap)
        super()._mixture(m.then)

    def _values(self, h: torch.Tensor) -> torch.Tensor:
        h = h.to(self.weight.dtype)
        masked = h == float("-inf")
        x = self._centred(h, ~h.isfinite())
        z = x * self.weight if self.diagonal else torch.matmul(x, self.weight.t())
        return self._mixed((z + self.bias).masked_fill(masked, float("-inf")))

    def _centred(self, h: torch.Tensor, masked: torch.Tensor) -> torch.Tensor:
        count = (~masked).to(h.dtype).sum(-1, keepdim=True)
        mean = h.masked_fill(masked, 0.0).sum(-1, keepdim=True) / count
        x = (h - mean).masked_fill(masked, 0.0)
        if self.centring == "mean":
            return x
        if self.centring == "none":
            return x + mean
        x = torch.log_softmax(x.masked_fill(masked, float("-inf")), -1)
        mean = x.masked_fill(masked, 0.0).sum(-1, keepdim=True) / count
        return torch.where(masked, mean, x)


class OddsModule(CalibrationModule):
    """A curve of the log-odds for each class."""

    def __init__(self, source: Source, log: bool, dim: int) -> None:
        super().__init__(source, log, dim)
        m = source.map
        assert isinstance(m, OddsMap)
        self._numbers(a=m.a, b=m.b, b_less_a=m.b - m.a, c=m.c, column=np.arange(len(m.c)))

    def _values(self, h: torch.Tensor) -> torch.Tensor:
        x = self._log_sigmoid(h)
        is_top = self.column == torch.argmax(x, dim=-1, keepdim=True)
        x = x - x.amax(-1, keepdim=True)
        e = x.exp().masked_fill(is_top, 0.0)
        rest = e.sum(-1, keepdim=True)
        if self.log:
            return x - rest.log1p()
        return e.masked_fill(is_top, 1.0) / (1 + rest)

    def _log_odds(self, h: torch.Tensor) -> torch.Tensor:
        is_top = self.column == torch.argmax(h, dim=-1, keepdim=True)
        d = h - h.amax(-1, keepdim=True)
        others = d.masked_fill(is_top, float("-inf"))
        second = others.amax(-1, keepdim=True)
        alone = second == float("-inf")
        second = second.masked_fill(alone, 0.0)
        e = (others - second).exp()
        rest = e.sum(-1, keepdim=True)
        of_top = (-second - (rest - 1).clamp(min=0.0).log1p()).masked_fill(alone, float("inf"))
        of_others = d - ((rest - e) * second.exp()).clamp(min=0.0).log1p()
        return torch.where(is_top, of_top, of_others)

    def _log_sigmoid(self, h: torch.Tensor) -> torch.Tensor:
        s = self._log_odds(h)
        s = s.masked_fill(~s.isfinite(), 0.0)
        t = (-s.abs()).exp().log1p()
        a, b = self.a.to(h.dtype), self.b.to(h.dtype)
        z = torch.where(s < 0, a * s, b * s) + self.b_less_a.to(h.dtype) * t + self.c.to(h.dtype)
        z = z.clamp(-8.5e37, 8.5e37)  # a quarter of the largest number in single precision
        log_sigmoid = z.clamp(max=0.0) - (-z.abs()).exp().log1p()
        return log_sigmoid.masked_fill(h == float("-inf"), float("-inf"))


class BinModule(CalibrationModule):
    """A function of the probability for each class, by its knots; in double precision, as steps magnify rounding."""

    def __init__(self, source: Source, log: bool, dim: int) -> None:
        super().__init__(source, log, dim)
        m = source.map
        assert isinstance(m, BinMap)
        end = np.cumsum(m.sizes) - 1
        self.linear = m.linear
        self.binary = m.n_classes == 2
        self.steps = int(np.max(m.sizes) - 1).bit_length()
        self._numbers(start=end - m.sizes + 1, end=end, knots=m.knots, values=m.values, column=np.arange(m.n_classes))

    def _top(self, value: torch.Tensor, h: torch.Tensor) -> torch.Tensor:
        # Where the classifier's own answer is among several that are equally probable, it stays.
        own, first = torch.argmax(h, dim=-1, keepdim=True), torch.argmax(value, dim=-1, keepdim=True)
        return torch.where(value.gather(-1, own) == value.amax(-1, keepdim=True), own, first)

    def _values(self, h: torch.Tensor) -> torch.Tensor:
        h = h.to(self.knots.dtype)
        possible = h > float("-inf")
        e = (h - h.amax(-1, keepdim=True)).exp()
        p = e / e.sum(-1, keepdim=True)
        if self.binary:
            q = self._functions(p[..., 1:])
            q = torch.cat([1 - q, q], dim=-1)
        else:
            q = self._functions(p)
        q = q.masked_fill(~possible, 0.0)
        nothing = (q == 0).all(-1, keepdim=True)
        q = torch.where(nothing, possible.to(q.dtype), q)
        q = q / q.sum(-1, keepdim=True)
        return q.log() if self.log else q

    def _functions(self, p: torch.Tensor) -> torch.Tensor:
        low, high = self.start.expand(p.shape), self.end.expand(p.shape)
        for _ in range(self.steps):
            middle = (low + high + 1) // 2
            right = p >= self.knots[middle]
            low, high = torch.where(right, middle, low), torch.where(right, high, middle - 1)
            high = torch.maximum(high, low)
        left_value = self.values[low]
        if not self.linear:
            return left_value
        after = torch.where(low < self.end, low + 1, low)
        left = self.knots[low]
        width = self.knots[after] - left
        flat = width <= 0
        share = ((p - left) / width.masked_fill(flat, 1.0)).clamp(0.0, 1.0).masked_fill(flat, 0.0)
        return left_value + share * (self.values[after] - left_value)


MODULES: dict[type[Map], Any] = {
    ScaleMap: ScaleModule,
    MixtureMap: MixtureModule,
    AffineMap: AffineModule,
    OddsMap: OddsModule,
    BinMap: BinModule,
}


def describe(source: Source) -> str:
    """Return a map in one line: its kind, its temperature or its size, and what it takes."""
    m = source.map
    size = f"T={1 / m.beta:.4g}" if isinstance(m, ScaleMap) else f"{source.n_classes or 'any'} classes"
    method = source.facts.get("method")
    return ", ".join(
        [*([method] if method else []), type(m).__name__, size, "probs" if source.takes_probs else "logits"]
    )


def _keep_first(value: torch.Tensor, top: torch.Tensor) -> torch.Tensor:
    """Lower by the least possible amount what rounding made equal to the arg max, and stands before it."""
    eps, least = 2.0**-52, 2.0**-1074
    if value.dtype == torch.float32:
        eps, least = 2.0**-23, 2.0**-149
    elif value.dtype == torch.float16:
        eps, least = 2.0**-10, 2.0**-24
    elif value.dtype == torch.bfloat16:
        eps, least = 2.0**-7, 2.0**-133
    best = value.amax(-1, keepdim=True)
    wide = best if value.dtype == torch.float64 else best.to(torch.float32)
    lower = (wide - (wide.abs() * eps).clamp(min=least)).to(value.dtype)
    column = torch.arange(value.shape[-1], device=value.device)
    wrong = torch.argmax(value, dim=-1, keepdim=True) != top
    return torch.where(wrong & (value == best) & (column < top), lower, value)
