"""Maps of labels that do not exclude each other: each column has a probability of its own, rows do not sum to 1."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from attemper._json import Fields
from attemper.data.arrays import one_line
from attemper.errors import FileError, InputError
from attemper.maps.base import Arrays, Map, map_from_fields

__all__ = ["LabelMap", "LabelMaps", "SigmoidMap"]


class LabelMap(Map):
    """What the two maps share: a column is the log-odds of one label, or the logarithm of its probability."""

    keeps_arg_max: ClassVar[bool] = False
    independent: ClassVar[bool] = True

    of_probs: bool
    zeros_as: float | None

    @property
    def double(self) -> bool:  # type: ignore[override]
        """In double precision where 1 − p has to be computed of log p."""
        return self.of_probs

    def _check_input(self) -> None:
        if self.zeros_as is not None and not (self.of_probs and 0 < self.zeros_as < 0.5):
            raise InputError(f"zeros_as={self.zeros_as}: expected a number between 0 and 0.5, of probabilities")

    def log_odds(self, h: Any, xp: Any) -> Any:
        """Log-odds of each label, of what the map takes."""
        return h - self._log_rest(h, xp) if self.of_probs else h

    def _log_rest(self, h: Any, xp: Any) -> Any:
        """log(1 − p) of log p; a probability of 1 is read as 1 − zeros_as."""
        least = 1e-300 if self.zeros_as is None else self.zeros_as
        rest = 1 - xp.exp(h)
        return xp.log(xp.where(rest > least, rest, xp.full_like(rest, least)))


@dataclass(frozen=True, eq=False, repr=False)
class SigmoidMap(LabelMap):
    """σ(a_l log p_l − b_l log(1 − p_l) + c_l) of each label l, where p_l is σ of its log-odds.

    With a = b that is σ(a_l s_l + c_l), s_l being the log-odds: temperature and bias of each label, or Platt scaling.
    ``of_probs``: the map takes log-probabilities of the labels; ``zeros_as`` is what 0, and 1 − p of 1, are read as.

    >>> SigmoidMap(np.array([0.5, 1.0]), np.array([0.5, 1.0]), np.array([0.0, -1.0])).apply(np.array([[2.0, 1.0]]))
    array([[0.73105858, 0.5       ]])
    """

    __repr__ = one_line

    type = "sigmoid"
    a: NDArray[np.float64]
    b: NDArray[np.float64]
    c: NDArray[np.float64]
    of_probs: bool = False
    zeros_as: float | None = None

    def __post_init__(self) -> None:
        shapes = {np.shape(v) for v in (self.a, self.b, self.c)}
        if len(shapes) != 1 or np.ndim(self.c) != 1 or len(self.c) < 1:
            raise InputError(f"a, b and c have shapes {sorted(shapes)}; expected one number for each of the labels")
        if not max(np.abs(v).max() for v in (self.a, self.b, self.c)) <= 1e30:
            raise InputError("a, b and c must be numbers, at most 1e30 in magnitude")
        self._check_input()

    @property
    def n_classes(self) -> int:
        """L, the number of labels."""
        return len(self.c)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return a, b, b − a and c."""
        return {"a": self.a, "b": self.b, "b_less_a": self.b - self.a, "c": self.c}

    @property
    def has_logits(self) -> bool:
        """Calibrated log-odds, whose sigmoid is the probability."""
        return True

    def logits(self, h: Any, arrays: Arrays, xp: Any) -> Any:
        """Calibrated log-odds."""
        s = self.log_odds(h, xp)
        # As in `OddsMap`: with a = b the line a·s + c is left, to the last bit.
        t = xp.log1p(xp.exp(-xp.abs(s)))
        z = xp.where(s < 0, arrays["a"] * s, arrays["b"] * s) + arrays["b_less_a"] * t + arrays["c"]
        largest = float(xp.finfo(h.dtype).max) / 4
        return xp.clip(z, -largest, largest)

    def evaluate(self, h: Any, arrays: Arrays, xp: Any, *, log: bool) -> Any:
        """σ of the calibrated log-odds."""
        z = self.logits(h, arrays, xp)
        e = xp.exp(-xp.abs(z))
        if log:
            return xp.where(z < 0, z, xp.zeros_like(z)) - xp.log1p(e)
        return xp.where(z < 0, e, xp.ones_like(e)) / (1 + e)


@dataclass(frozen=True, eq=False, repr=False)
class LabelMaps(LabelMap):
    """A map of two classes for each label, of any kind: of 0 and the log-odds, or of log(1 − p) and log p.

    >>> from attemper import ScaleMap
    >>> LabelMaps((ScaleMap(0.5), ScaleMap(1.0))).apply(np.array([[2.0, 2.0]])).round(3)
    array([[0.731, 0.881]])
    """

    __repr__ = one_line

    type = "labels"
    maps: tuple[Map, ...]
    of_probs: bool = False
    zeros_as: float | None = None

    def __post_init__(self) -> None:
        for k, own in enumerate(self.maps):
            if own.n_classes not in (None, 2) or isinstance(own, LabelMap):
                raise InputError(f"maps: expected maps of two classes, got {type(own).__name__} for label {k}")
        if not self.maps:
            raise InputError("maps: expected one for each label, got none")
        self._check_input()

    @property
    def double(self) -> bool:  # type: ignore[override]
        """If one of its maps asks for it."""
        return self.of_probs or any(own.double for own in self.maps)

    @property
    def n_classes(self) -> int:
        """L, the number of labels."""
        return len(self.maps)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return those of all maps."""
        return {f"label{k}_{name}": a for k, own in enumerate(self.maps) for name, a in own.arrays().items()}

    def evaluate(self, h: Any, arrays: Arrays, xp: Any, *, log: bool) -> Any:
        """Probability of the second class by the map of each label."""
        if "onnx" in getattr(xp, "__name__", ""):
            raise InputError(
                "LabelMaps cannot be exported to ONNX. Use a method whose curves can: method='pooled', 'platt', 'beta' "
                "or 'ts'."
            )
        other = self._log_rest(h, xp) if self.of_probs else xp.zeros_like(h)
        columns = []
        for k, own in enumerate(self.maps):
            pair = xp.concat([other[..., k : k + 1], h[..., k : k + 1]], axis=-1)
            mine = {name: arrays[f"label{k}_{name}"] for name in own.arrays()}
            columns.append(own._settled(own.evaluate(pair, mine, xp, log=log), pair, xp)[..., 1:])
        return xp.concat(columns, axis=-1)

    def to_dict(self) -> dict[str, Any]:
        """Return the type, and each map as it would be written alone."""
        maps = [own.to_dict() for own in self.maps]
        return {"type": self.type, "maps": maps, "of_probs": self.of_probs, "zeros_as": self.zeros_as}

    @classmethod
    def from_fields(cls, content: Fields) -> LabelMaps:
        """Read back what `to_dict` gave."""
        found = []
        for k, item in enumerate(content.items("maps")):
            if not isinstance(item, dict) or item.get("type") in (cls.type, SigmoidMap.type):
                raise FileError(f"{content.where}: the field 'maps' must hold maps of two classes; entry {k} is none")
            found.append(map_from_fields(Fields(item, f"{content.where}: label {k}")))
        zeros_as = None if content.content.get("zeros_as") is None else content.number("zeros_as")
        try:
            return cls(tuple(found), content.boolean("of_probs"), zeros_as)
        except InputError as error:
            raise FileError(f"{content.where}: {error}") from None
