"""What is applied at inference: a map is a tuple of stages, each written once in the array API.

NumPy, torch, JAX, a torch module and an ONNX graph follow from the same lines: a stage has `arrays`, its numbers by
name, and `__call__`, from logits to logits, by functions of the array API and without a branch on values. Changed
priors, a group's correction and a temperature on top are one more stage.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal

import array_api_compat
import numpy as np
from numpy.typing import NDArray

from attemper._json import plain, typed
from attemper._typing import Floats, InputKind, Labels
from attemper.data.arrays import columns, log_odds, log_probs_above, row_slices, settled, to_numpy, widest
from attemper.errors import FileError, InputError

__all__ = ["Affine", "Curves", "Knots", "Map", "Mixture", "Stage", "normalised"]

Arrays = dict[str, Any]
MAX_LOOP = 128  # classes; beyond, a loop takes several times as long as BLAS


class Stage:
    """From logits to logits. A direct subclass is a frozen dataclass with a ``type``, under which files refer to it."""

    type: ClassVar[str]
    keeps_arg_max: bool = False
    normalised: ClassVar[bool] = False  # whether what it returns are log-probabilities
    double: ClassVar[bool] = False  # whether to evaluate in double precision, whatever the type of the logits

    @property
    def n_classes(self) -> int | None:
        """K, if the stage is for one number of classes only."""
        return None

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the numbers of the stage by name: what a torch module keeps in its buffers."""
        raise NotImplementedError

    def __call__(self, z: Any, arrays: Arrays, xp: Any) -> Any:
        """Return logits, or log-probabilities, of N×K logits; ``arrays`` are those of `arrays`, in the type of z."""
        raise NotImplementedError


@dataclass(frozen=True, eq=False)
class Affine(Stage):
    """W x + b of the centred logits x; a temperature is W = 1/T.

    ``weight`` is a number, K numbers for a diagonal, or K×K. For two classes ``curve`` adds a bend: c_k times
    2 log cosh(m/2), m being ``curve_scale`` times the margin of the logits, as in beta calibration.
    """

    type = "affine"
    weight: Floats
    bias: Floats | None = None
    centring: Literal["mean", "none", "log_probs"] = "mean"
    curve: Floats | None = None
    curve_scale: float = 1.0

    @classmethod
    def of(cls, beta: float, bias: Floats | None = None) -> Affine:
        """Return a temperature, 1/β, and perhaps biases."""
        return cls(np.asarray(float(beta)), bias)

    @property
    def is_scale(self) -> bool:
        """Whether it is one temperature and nothing else."""
        return self.weight.ndim == 0 and self.bias is None and self.curve is None

    @property
    def keeps_arg_max(self) -> bool:  # type: ignore[override]
        """Return whether it is one temperature."""
        return self.is_scale and float(self.weight) > 0

    @property
    def n_classes(self) -> int | None:
        """K, where there is a number for each class."""
        return len(self.weight) if self.weight.ndim else None if self.bias is None else len(self.bias)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return W, b and the curve."""
        own = {"weight": self.weight, "bias": self.bias, "curve": self.curve}
        own |= {} if self.curve is None else {"curve_scale": np.asarray(self.curve_scale)}
        return {name: a for name, a in own.items() if a is not None}

    def __call__(self, z: Any, arrays: Arrays, xp: Any) -> Any:
        """W x + b, with masked classes unchanged."""
        numpy = array_api_compat.is_numpy_namespace(xp)
        # In single precision large logits lose less this way.
        near = z if numpy or self.centring == "none" else z - xp.max(z, axis=-1, keepdims=True)
        if self.is_scale:
            return near * arrays["weight"]
        x, weight = centred(near, self.centring, xp), arrays["weight"]
        if self.weight.ndim < 2:
            made = x * weight
        elif numpy and len(weight) <= MAX_LOOP:
            # BLAS adds in an order that depends on the number of rows; NumPy's own loop does not.
            made = np.einsum("nk,jk->nj", x, weight)
        else:
            made = xp.matmul(x, weight.T)
        if self.curve is not None:
            made = made + bend((x[..., 1:] - x[..., :1]) * arrays["curve_scale"], xp) * arrays["curve"]
        made = made if self.bias is None else made + arrays["bias"]
        return xp.where(z == -xp.inf, z, made)


def centred(h: Any, centring: str, xp: Any) -> Any:
    """Return what an affine map multiplies: logits less their ``mean``, their ``log_probs``, or as they are (``none``).

    A masked class (−inf) counts as the mean of its row.
    """
    possible, zero = xp.isfinite(h), xp.zeros_like(h)
    count = xp.sum(xp.astype(possible, h.dtype), axis=-1, keepdims=True)
    mean = xp.sum(xp.where(possible, h, zero), axis=-1, keepdims=True) / count
    x = xp.where(possible, h - mean, zero)
    if centring != "log_probs":
        return x if centring == "mean" else x + mean
    x = normalised(xp.where(possible, x, -xp.inf), xp)
    mean = xp.sum(xp.where(possible, x, zero), axis=-1, keepdims=True) / count
    return xp.where(possible, x, mean)


def normalised(z: Any, xp: Any, *, log: bool = True, like: Any = None) -> Any:
    """Softmax of the rows, or its logarithm: the one log-sum-exp of all maps.

    The largest class contributes exp(0) = 1 to the sum. The logarithm is that of one plus the rest, which is exact to
    the last digits also where the rest is tiny. ``like``: logits whose arg max stays among equally probable classes.
    """
    if not array_api_compat.is_numpy_namespace(xp):
        top = xp.argmax(z, axis=-1, keepdims=True)
        d = z - xp.max(z, axis=-1, keepdims=True)
        e = xp.exp(d)
        rest = xp.sum(xp.where(columns(z, xp) == top, xp.zeros_like(e), e), axis=-1, keepdims=True)
        value = d - xp.log1p(rest) if log else e / (1 + rest)
        return value if like is None else settled(value, like, xp)
    top = z.argmax(axis=-1)  # the same; where rows are short NumPy's max and sum would take most of the time
    top += np.arange(0, z.size, z.shape[-1])
    d = z - z.take(top)[:, None]
    e = np.exp(d) if log else np.exp(d, out=d)
    tied = like is not None and np.count_nonzero(e > 1 - 64 * np.finfo(e.dtype).eps) != len(e)
    if log:
        e.flat[top] = 0.0  # not reshape: columns may lie one after the other
    total = np.vecdot(e, np.ones(z.shape[-1], dtype=z.dtype))[:, None]
    value = np.subtract(d, np.log1p(total), out=d) if log else np.divide(e, total, out=e)
    return settled(value, like, xp) if tied else value


def bend(margin: Any, xp: Any) -> Any:
    """2 log cosh(margin / 2): an absolute value without its kink, 0 at 0."""
    size = xp.abs(margin)
    return size + 2 * xp.log1p(xp.exp(-size)) - 2 * math.log(2)


@dataclass(frozen=True, eq=False)
class Mixture(Stage):
    """Σ_m weight_m · softmax(β_m · logits) + uniform_mass/K: an average over temperatures.

    Weights and uniform mass add up to one; masked classes (−inf) get nothing of it.
    """

    type = "mixture"
    weights: Floats
    betas: Floats
    uniform_mass: float = 0.0
    keeps_arg_max = True
    normalised = True

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return weights and βs of the components that count, how far each β is above the flattest, and the mass."""
        counts = self.weights > 0  # one of weight 0 may be the flattest, and 0 · exp(…) be NaN
        weights, betas = self.weights[counts], self.betas[counts]
        flattest = np.asarray(0.0 if self.uniform_mass > 0 else betas.min())  # the mass is flatter than any component
        share = np.asarray(self.uniform_mass, dtype=float)
        return {"weights": weights, "betas": betas, "share": share, "flattest": flattest, "above": betas - flattest}

    def __call__(self, z: Any, arrays: Arrays, xp: Any) -> Any:
        """Add up the components; the flattest, taken out as a factor, leaves a sum that cannot underflow."""
        d = z - xp.max(z, axis=-1, keepdims=True)
        possible, zero = xp.isfinite(d), xp.zeros_like(d)
        ones = xp.astype(possible, d.dtype)
        total = ones * (arrays["share"] / xp.sum(ones, axis=-1, keepdims=True))
        d = xp.where(possible, d, zero)
        for m in range(arrays["betas"].shape[0]):  # shapes alone: torch compiles no loop over values
            e = xp.exp(d * arrays["betas"][m])
            normaliser = xp.sum(xp.where(possible, e, zero), axis=-1, keepdims=True)
            lifted = e if self.uniform_mass > 0 else xp.exp(d * arrays["above"][m])
            total = total + lifted * (arrays["weights"][m] / normaliser)
        return xp.where(possible, d * arrays["flattest"] + xp.log(total), -xp.inf)


@dataclass(frozen=True, eq=False)
class Curves(Stage):
    """Log-odds_k = a_k log p_k − b_k log(1 − p_k) + c_k of each class or label; σ of it, and rows normalised.

    Platt scaling is a = b. Curves differ from class to class: the arg max may change.
    """

    type = "curves"
    a: Floats
    b: Floats
    c: Floats
    independent: bool = False  # columns are labels that do not exclude each other: log-odds in, log σ out
    normalised = True

    @property
    def n_classes(self) -> int:
        """K, or the number of labels."""
        return len(self.c)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return a, b, b − a and c."""
        return {"a": self.a, "b": self.b, "b_less_a": self.b - self.a, "c": self.c}

    def __call__(self, z: Any, arrays: Arrays, xp: Any) -> Any:
        """Logarithms of σ of the curves, rows normalised unless columns are independent."""
        s = z if self.independent else log_odds(z, xp)
        s = xp.where(xp.isfinite(s), s, xp.zeros_like(s))  # decided by the mask alone, whatever a and b are
        # log p = min(s, 0) − t and −log(1 − p) = max(s, 0) + t; with a = b the line a·s + c is left, to the last bit.
        t = xp.log1p(xp.exp(-xp.abs(s)))
        odds = xp.where(s < 0, arrays["a"] * s, arrays["b"] * s) + arrays["b_less_a"] * t + arrays["c"]
        largest = float(xp.finfo(z.dtype).max) / 4
        odds = xp.clip(odds, -largest, largest)  # −inf for all classes of a row would be no distribution
        x = xp.where(odds < 0, odds, xp.zeros_like(odds)) - xp.log1p(xp.exp(-xp.abs(odds)))
        x = xp.where(z == -xp.inf, -xp.inf, x)
        return x if self.independent else normalised(x, xp)


@dataclass(frozen=True, eq=False)
class Knots(Stage):
    """f_k(p_k), where p is the softmax, rows normalised; f_k is a step function or piecewise linear.

    For K = 2 there is one function, for class 1. Where all functions are 0 the possible classes share equally, as in
    scikit-learn. Steps and steep pieces magnify rounding, so they are evaluated in double precision for any input.
    """

    type = "knots"
    sizes: Labels  # how many knots each class has
    knots: Floats  # of all classes, one after the other; within a class they ascend, from 0 to 1
    values: Floats  # at the knots; between them linear, or the value of the knot to the left
    linear: bool
    normalised = True
    double = True

    @property
    def n_classes(self) -> int:
        """K."""
        return max(2, len(self.sizes))

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return knots and values, and where those of each class start and end."""
        end = np.cumsum(self.sizes) - 1
        return {"start": end - self.sizes + 1, "end": end, "knots": self.knots, "values": self.values}

    def __call__(self, z: Any, arrays: Arrays, xp: Any) -> Any:
        """Logarithms of f_k(p_k), rows normalised."""
        q = self.unnormalised(z, arrays, xp)
        nothing = xp.all(q == 0, axis=-1, keepdims=True)
        q = xp.where(nothing, xp.astype(z > -xp.inf, q.dtype), q)
        return xp.log(q / xp.sum(q, axis=-1, keepdims=True))

    def unnormalised(self, z: Any, arrays: Arrays, xp: Any) -> Any:
        """f_k(p_k) of all classes; those that are masked have 0."""
        p = normalised(z, xp, log=False)
        q = self._functions(p if self.n_classes > 2 else p[..., 1:], arrays, xp)
        q = q if self.n_classes > 2 else xp.concat([1 - q, q], axis=-1)
        return xp.where(z > -xp.inf, q, xp.zeros_like(q))

    def _functions(self, p: Any, arrays: Arrays, xp: Any) -> Any:
        """f_k(p_k) for each column."""
        start, end, knots, values = (arrays[name] for name in ("start", "end", "knots", "values"))
        if array_api_compat.is_numpy_namespace(xp):  # a shortcut, with the same result
            value = np.empty(p.shape[::-1])
            for k, (x, a, b) in enumerate(zip(np.ascontiguousarray(p.T), start.tolist(), end.tolist())):
                low = np.where(np.isnan(x), a, a + np.searchsorted(knots[a + 1 : b + 1], x, side="right"))
                value[k] = self._at(x, low, np.minimum(low + 1, b), knots, values, np)
            return np.ascontiguousarray(value.T)
        low, high = (xp.broadcast_to(v, p.shape) for v in (start, end))
        most = self.knots.shape[0] - self.sizes.shape[0]  # beyond the first that a class may have
        for _ in range(most.bit_length()):  # bisection for all columns at once
            middle = (low + high + 1) // 2
            right = p >= _take(knots, middle, xp)
            low, high = xp.where(right, middle, low), xp.where(right, high, middle - 1)
            high = xp.where(high < low, low, high)
        return self._at(p, low, xp.where(low < end, low + 1, low), knots, values, xp)

    def _at(self, p: Any, low: Any, after: Any, knots: Any, values: Any, xp: Any) -> Any:
        """Values of the functions between the knots ``low`` and ``after``."""
        left_value = _take(values, low, xp)
        if not self.linear:
            return left_value
        left = _take(knots, low, xp)
        width = _take(knots, after, xp) - left
        share = (p - left) / xp.where(width > 0, width, xp.ones_like(width))
        share = xp.where(width > 0, xp.clip(share, 0.0, 1.0), xp.zeros_like(share))
        return left_value + share * (_take(values, after, xp) - left_value)


def _take(table: Any, index: Any, xp: Any) -> Any:
    return xp.reshape(xp.take(table, xp.reshape(index, (-1,)), axis=0), index.shape)


@dataclass(frozen=True, eq=False)
class Map:
    """From logits, or probabilities, to calibrated probabilities: stages, one after the other.

    >>> Map.scale(0.5).apply(np.array([[2.0, 0.0]])).round(3)
    array([[0.731, 0.269]])
    """

    stages: tuple[Stage, ...]
    input: InputKind = "logits"
    zeros_as: float | None = None  # what a probability of exactly 0 stands for
    _cast: dict[Any, Arrays] = field(default_factory=dict, init=False, repr=False)  # `arrays` by type

    @classmethod
    def scale(cls, beta: float) -> Map:
        """Return softmax(β · logits)."""
        return cls((Affine.of(beta),))

    @property
    def keeps_arg_max(self) -> bool:
        """Whether no stage changes the predicted class."""
        return all(stage.keeps_arg_max for stage in self.stages)

    @property
    def independent(self) -> bool:
        """Whether columns are labels that do not exclude each other."""
        return any(getattr(stage, "independent", False) for stage in self.stages)

    @property
    def n_classes(self) -> int | None:
        """K, if the map is for one number of classes only."""
        return next((stage.n_classes for stage in self.stages if stage.n_classes is not None), None)

    @property
    def double(self) -> bool:
        """Whether to evaluate in double precision."""
        return any(stage.double for stage in self.stages) or (self.input == "probs" and self.independent)

    def then(self, stage: Stage) -> Map:
        """Return a map with one more stage, on what the last one returns; two temperatures become one."""
        last = self.stages[-1]
        if isinstance(last, Affine) and isinstance(stage, Affine) and last.is_scale and stage.weight.ndim == 0:
            return replace(self, stages=(*self.stages[:-1], replace(stage, weight=last.weight * stage.weight)))
        return replace(self, stages=(*self.stages, stage))

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the numbers of all stages by name."""
        return {f"{i}_{name}": a for i, stage in enumerate(self.stages) for name, a in stage.arrays().items()}

    def evaluate(self, x: Any, arrays: Arrays, xp: Any, *, log: bool) -> Any:
        """Probabilities, or their logarithms, of what the map takes, in the type of ``x``."""
        z = h = self._logits(x, xp)
        for i, stage in enumerate(self.stages):
            z = stage(z, {n[len(f"{i}_") :]: a for n, a in arrays.items() if n.startswith(f"{i}_")}, xp)
        if not self.stages[-1].normalised:
            z = normalised(z, xp, log=log, like=h)
        else:
            z = z if log else xp.exp(z)
            z = z if self.independent else settled(z, h, xp)
        if array_api_compat.is_numpy_namespace(xp):  # `Calibrator` has refused what is NaN
            return z
        return xp.where(xp.all(x == x, axis=-1, keepdims=True), z, math.nan)

    def _logits(self, x: Any, xp: Any) -> Any:
        """Logits of what the map takes."""
        if self.input == "logits":
            return x
        if not self.independent:
            return log_probs_above(x, None if self.zeros_as is None else math.log(self.zeros_as), xp)
        least = 1e-38 if self.zeros_as is None else self.zeros_as
        p, q = (xp.where(v > 0, v, xp.full_like(v, least)) for v in (x, 1 - x))
        return xp.log(p) - xp.log(q)

    def log_apply(self, x: Any) -> Any:
        """Calibrated log-probabilities, which do not underflow."""
        return self.apply(x, log=True)

    def apply(self, x: Any, *, log: bool = False) -> Any:
        """Calibrated probabilities, in the array type, device and precision of ``x``."""
        if isinstance(x, np.ndarray):
            return self._on_numpy(x, log=log)
        xp, device = array_api_compat.array_namespace(x), array_api_compat.device(x)
        dtype = _float_dtype(x, xp)
        wide = widest(x, xp) if self.double else xp.float32 if "16" in str(dtype) or dtype == xp.float32 else xp.float64
        if self.double and wide != xp.float64:  # JAX in single precision, Apple's GPUs
            value = self._on_numpy(to_numpy(x).astype(np.float64), log=log).astype(np.float32)
            made = xp.astype(xp.asarray(value, device=device), dtype)
            return made if self.independent else settled(made, x, xp)
        arrays = {
            name: xp.asarray(a, dtype=wide, device=device) if a.dtype.kind == "f" else xp.asarray(a, device=device)
            for name, a in self.arrays().items()
        }
        with np.errstate(over="ignore", divide="ignore"):
            value = xp.astype(self.evaluate(xp.astype(x, wide), arrays, xp, log=log), dtype)
        return settled(value, x, xp) if dtype != wide and not self.independent else value

    def _on_numpy(self, x: NDArray[Any], *, log: bool) -> NDArray[Any]:
        """Evaluate in portions that stay in the cache."""
        dtype = np.dtype(_float_dtype(x, np)).newbyteorder("=")
        wide = np.dtype(np.float64 if self.double or dtype.itemsize > 4 else np.float32)
        arrays = self._cast.setdefault(wide, {})
        if not arrays:
            arrays |= {name: a.astype(wide) if a.dtype.kind == "f" else a for name, a in self.arrays().items()}
        parts = list(row_slices(len(x), max(1, x.shape[1])))
        with np.errstate(over="ignore", divide="ignore"):
            if x.dtype == wide and len(parts) == 1:
                value = self.evaluate(np.ascontiguousarray(x), arrays, np, log=log)
                return np.asarray(value, dtype=dtype)  # of probabilities it is in double precision
            out = np.empty(x.shape, dtype=dtype)
            for part in parts:
                # Sums over a row are the same to the last bit, however the rows lie in memory.
                out[part] = self.evaluate(np.ascontiguousarray(x[part], dtype=wide), arrays, np, log=log)
        return settled(out, x, np) if dtype != wide and not self.independent else out

    def to_dict(self) -> dict[str, Any]:
        """Return the stages as plain lists and numbers."""
        stages = [{"type": stage.type, **plain(stage)} for stage in self.stages]
        return {"input": self.input, "zeros_as": self.zeros_as, "stages": stages}

    @classmethod
    def from_dict(cls, content: dict[str, Any], where: str = "map") -> Map:
        """Read back what `to_dict` gave."""
        stages, known = [], {kind.type: kind for kind in Stage.__subclasses__()}
        for i, stage in enumerate(content.get("stages") or [None]):
            kind = stage.get("type") if isinstance(stage, dict) else None
            if kind not in known:
                raise FileError(f"{where}: stage {i}: expected one of {', '.join(known)}, got {kind!r}")
            stages.append(typed({k: v for k, v in stage.items() if k != "type"}, known[kind], f"{where}: stage {i}"))
        kind = typed(content.get("input", "logits"), Literal["logits", "probs"], f"{where}: input")
        return cls(tuple(stages), kind, typed(content.get("zeros_as"), float | None, f"{where}: zeros_as"))


def _float_dtype(x: Any, xp: Any) -> Any:
    """Type of the result: that of the input, or double precision for whole numbers."""
    name = str(getattr(x.dtype, "name", x.dtype))
    if "float" not in name and "int" not in name:
        raise InputError(f"X: expected real numbers, got dtype {x.dtype}", "X")
    return x.dtype if "float" in name else xp.float64
