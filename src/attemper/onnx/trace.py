"""A map as ONNX nodes: its own code, run on a tracing array. Operators are those of opset 17.

`Trace` is the namespace of the array API that a map gets, `Traced` the array. NumPy arrays are constants: what is
computed of them alone is computed at once. Whatever the axis of the classes is in the graph, it is the last one here.
"""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import numpy as np

from attemper.calibrators.exportable import Source
from attemper.data.arrays import keep_first, log_probs_above
from attemper.errors import InputError, require
from attemper.maps import OutputKind

onnx: Any = require("onnx", extra="onnx", why="to read and write ONNX models")

__all__ = ["Trace", "Traced", "trace_map"]

ELEM_TYPES = {"float32": 1, "int64": 7, "bool": 9, "float16": 10, "float64": 11, "bfloat16": 16}
NAMES = {number: name for name, number in ELEM_TYPES.items()}
TRACEABLE = (
    "use abs, all, any, argmax, astype, clip, concat, cumulative_sum, exp, isfinite, log, log1p, matmul, max, maximum, "
    "mean, min, minimum, pow, sort, sqrt, sum, take, tanh, where"
)
COMPARE = ("Equal", "Less", "And", "Or", "Not")


def trace_map(
    trace: Trace, source: Source, reads: str, elem_type: int, kind: OutputKind, *, from_probs: bool
) -> Traced:
    """Add the nodes of a map to a trace; the result has the type of the tensor that it reads."""
    if kind == "logits" and not source.map.has_logits:
        name = type(source.map).__name__
        raise InputError(f"{name} gives probabilities, not logits; use output_kind={'probs'!r}", param="output_kind")
    x = Traced(trace, reads, NAMES[elem_type])
    trace.widest = wide = "float64" if source.map.double or x.dtype == "float64" else "float32"
    low = None if source.zeros_as is None else math.log(source.zeros_as)
    h = x
    if from_probs:
        h = log_probs_above(x, low, trace)
    elif source.takes_probs and source.map.independent:
        own = trace.astype(x, wide)
        h = trace.minimum(own, trace.zeros_like(own)) - trace.log1p(trace.exp(-trace.abs(own)))
        h = h if low is None else trace.where(h < low, low, h)
    elif source.takes_probs:
        own = trace.astype(x, wide)
        d = own - trace.max(own, axis=-1, keepdims=True)
        h = d - trace.log(trace.sum(trace.exp(d), axis=-1, keepdims=True))
        h = h if low is None else trace.where(h < low, low, h)
        h = keep_first(h, trace.argmax(own, axis=-1, keepdims=True), trace)
    arrays = source.map.arrays()
    value = source.map.transform(h, arrays, trace, dtype=x.dtype, wide=wide, output=kind)
    assert isinstance(value, Traced)
    return value


def _operator(kind: str) -> tuple[Any, Any]:
    """Return an operator of a tensor, and the reflected one: b − a for a."""
    return (
        lambda own, other: own.trace.elementwise(kind, own, other),
        lambda own, other: own.trace.elementwise(kind, other, own),
    )


def _function(kind: str) -> Any:
    """Return a function of one tensor, or of a constant."""
    of_constant = getattr(np, kind.lower())
    return lambda trace, x: trace.elementwise(kind, x) if isinstance(x, Traced) else of_constant(x)


def _reduction(kind: str, axes_are_input_from: int = 18) -> Any:
    """Return a function over the classes, or over the axis of a constant."""
    of_constant = getattr(np, kind.removeprefix("Reduce").lower())

    def reduce(trace: Trace, x: Any, *, axis: int | None = None, keepdims: bool = False) -> Any:
        if not isinstance(x, Traced):
            return of_constant(x, axis=axis, keepdims=keepdims)
        if axis != -1 or not keepdims or x.flat:
            raise InputError(f"{kind}: a map can be traced where it reduces over axis=-1, with keepdims=True")
        if kind == "ArgMax":
            return Traced(trace, trace.op(kind, x.name, axis=trace.axis, keepdims=1), "int64")
        if trace.opset >= axes_are_input_from:
            return Traced(trace, trace.op(kind, x.name, trace.constant(np.array([trace.axis])), keepdims=1), x.dtype)
        return Traced(trace, trace.op(kind, x.name, axes=[trace.axis], keepdims=1), x.dtype)

    return reduce


class Traced:
    """A tensor of the graph that is made, in the place of an array."""

    __array_ufunc__ = None  # NumPy leaves operators to this class
    device = "cpu"

    def __init__(self, trace: Trace, name: str, dtype: str, *, flat: bool = False) -> None:
        self.trace, self.name, self.dtype, self.flat = trace, name, dtype, flat

    def __array_namespace__(self, api_version: str | None = None) -> Trace:
        return self.trace

    @property
    def shape(self) -> tuple[Any, ...]:
        """Of which the last is known alone: K, where that is not left open."""
        return (Size(self), self.trace.n_classes or Size(self))

    def __getitem__(self, index: Any) -> Traced:
        cut = index[1] if isinstance(index, tuple) and len(index) == 2 and index[0] is Ellipsis else None
        if not isinstance(cut, slice) or cut.step not in (None, 1):
            raise InputError(f"[{index}]: a map can be traced where it takes x[..., start:stop] alone")
        start, stop = cut.start or 0, (1 << 62) if cut.stop is None else cut.stop
        ends = (self.trace.constant(np.array([i])) for i in (start, stop, self.trace.axis))
        return Traced(self.trace, self.trace.op("Slice", self.name, *ends), self.dtype)

    __add__, __radd__ = _operator("Add")
    __sub__, __rsub__ = _operator("Sub")
    __mul__, __rmul__ = _operator("Mul")
    __truediv__, __rtruediv__ = _operator("Div")
    __pow__, __rpow__ = _operator("Pow")
    __and__, __rand__ = _operator("And")
    __or__, __ror__ = _operator("Or")
    __lt__, __gt__ = _operator("Less")
    __eq__, _ = _operator("Equal")
    __hash__ = None  # type: ignore[assignment]

    def __floordiv__(self, other: Any) -> Any:
        if self.dtype != "int64":
            raise InputError("//: a map can be traced where it divides whole numbers by it")
        return self.trace.elementwise("Div", self, other)  # cut off: the same where none is negative

    def __ne__(self, other: Any) -> Any:
        return ~(self == other)

    def __le__(self, other: Any) -> Any:
        return ~(self > other)

    def __ge__(self, other: Any) -> Any:
        return ~(self < other)

    def __invert__(self) -> Any:
        return self.trace.elementwise("Not", self)

    def __neg__(self) -> Any:
        return self.trace.elementwise("Neg", self)

    def __bool__(self) -> bool:
        raise InputError("a map can be traced where nothing depends on values: use xp.where instead of a branch")


class Size:
    """How many rows or classes a tensor has, known when the graph runs; it can only be passed on."""

    __array_ufunc__ = None

    def __init__(self, of: Traced) -> None:
        self.of = of

    def _unknown(self, *_: Any) -> Any:
        raise InputError(
            "a map that computes with x.shape[-1] expected a known number of classes, got one that is left open. Use "
            "map_to_onnx(..., n_classes=K), or a fitted calibrator."
        )

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = _unknown
    __floordiv__ = __rfloordiv__ = __pow__ = __rpow__ = __lt__ = __gt__ = __le__ = __ge__ = _unknown
    __float__ = __int__ = __index__ = _unknown


class Trace:
    """Nodes and constants in the making, and the functions of the array API that maps use."""

    __name__ = "attemper.onnx.trace"
    inf = np.inf
    float16, bfloat16, float32, float64, int64, bool = "float16", "bfloat16", "float32", "float64", "int64", "bool"

    def __init__(self, taken: set[str], opset: int, axis: int, rank: int | None, n_classes: int | None) -> None:
        self.nodes: list[Any] = []
        self.constants: list[Any] = []
        self.taken, self.opset, self.axis, self.rank, self.n_classes = taken, opset, axis, rank, n_classes
        self.widest = "float32"
        self._known: dict[tuple[Any, ...], str] = {}

    # The graph

    def name(self, stem: str) -> str:
        """Return a name that nobody has."""
        i, name = 0, f"attemper/{stem}"
        while name in self.taken or f"{name}_node" in self.taken:
            i, name = i + 1, f"attemper/{stem}_{i + 1}"
        self.taken |= {name, f"{name}_node"}
        return name

    def op(self, kind: str, *inputs: str, **attributes: Any) -> str:
        """Add a node and return its output; the same one is not made twice."""
        key = (kind, *inputs, *sorted((k, str(v)) for k, v in attributes.items()))
        if key not in self._known:
            self._known[key] = out = self.name(kind)
            self.nodes.append(onnx.helper.make_node(kind, list(inputs), [out], name=f"{out}_node", **attributes))
        return self._known[key]

    def constant(self, array: Any) -> str:
        """Add an initialiser."""
        key = (array.tobytes(), array.shape, str(array.dtype))
        if key not in self._known:
            self._known[key] = self.name("constant")
            self.constants.append(onnx.numpy_helper.from_array(array, self._known[key]))
        return self._known[key]

    def finish(self, value: Traced, name: str) -> None:
        """Give the result the name that it is to have."""
        if self.nodes[-1].output[0] != value.name:
            self.op("Identity", value.name)
        self.nodes[-1].output[0] = name

    def elementwise(self, kind: str, *values: Any, dtype: str | None = None) -> Any:
        """Add a node whose inputs are broadcast; numbers and arrays take the type of what is traced."""
        traced = [v for v in values if isinstance(v, Traced)]
        own = dtype or next(v.dtype for v in traced if v.dtype != "bool" or kind in COMPARE)
        names = [v.name if isinstance(v, Traced) else self._number(v, own) for v in values]
        result = "bool" if kind in COMPARE else own
        return Traced(self, self.op(kind, *names), result, flat=any(v.flat for v in traced))

    def _number(self, value: Any, dtype: str) -> str:
        array = np.asarray(value, dtype=dtype)
        if array.ndim:  # one number for each class
            array = array.reshape(-1, *[1] * (-self.axis - 1))
        return self.constant(array)

    # The array API

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise InputError(f"xp.{name}: no map can be traced that uses it; {TRACEABLE}")

    def __array_namespace_info__(self) -> Any:
        """Double precision is for maps and models that ask for it: not every runtime has it."""
        return SimpleNamespace(dtypes=lambda **_: {"float32": "float32", self.widest: self.widest})

    def isdtype(self, dtype: str, kind: str) -> Any:
        """Return whether a type is of this kind."""
        return "float" in dtype and kind == "real floating"

    def finfo(self, dtype: str) -> Any:
        """Describe a float type."""
        return np.finfo(dtype)

    def asarray(self, value: Any, *, dtype: str | None = None, device: Any = None) -> Any:
        """Return a constant."""
        return value if isinstance(value, Traced) else np.asarray(value, dtype=dtype)

    def astype(self, x: Any, dtype: str) -> Any:
        """Change the type."""
        dtype = str(dtype)
        if not isinstance(x, Traced):
            return np.asarray(x).astype(dtype)
        if x.dtype == dtype:
            return x
        return Traced(self, self.op("Cast", x.name, to=ELEM_TYPES[dtype]), dtype, flat=x.flat)

    def zeros_like(self, x: Any) -> Any:
        """0, which is broadcast."""
        return self.full_like(x, 0)

    def ones_like(self, x: Any) -> Any:
        """1, which is broadcast."""
        return self.full_like(x, 1)

    def full_like(self, x: Any, value: float) -> Any:
        """Return a number, which is broadcast."""
        return np.asarray(value, dtype=str(x.dtype))

    def broadcast_to(self, x: Any, shape: Any) -> Any:
        """Leave it to the operators."""
        return x

    def arange(self, n: Any, *, device: Any = None) -> Any:
        """0 … n − 1, along the classes."""
        if not isinstance(n, Size):
            return np.arange(n)
        size = self.op("Gather", self.op("Shape", n.of.name), self.constant(np.asarray(self.axis)))
        numbers = self.op("Range", self.constant(np.asarray(0)), size, self.constant(np.asarray(1)))
        shape = self.constant(np.array([-1, *[1] * (-self.axis - 1)]))
        return Traced(self, self.op("Reshape", numbers, shape), "int64")

    def reshape(self, x: Any, shape: Any) -> Any:
        """Flatten, and back: names of tensors do not change, since Gather takes an index of any shape."""
        if not isinstance(x, Traced):
            return x if any(isinstance(n, Size) for n in shape) else np.reshape(x, shape)
        flat = len(shape) == 1
        if not (flat or (x.flat and isinstance(shape[0], Size))):
            raise InputError(f"reshape to {shape}: a map can be traced where it flattens an index, and undoes that")
        return Traced(self, x.name, x.dtype, flat=flat)

    def take(self, table: Any, index: Any, *, axis: int = 0) -> Any:
        """Look up numbers of a constant table."""
        if not isinstance(index, Traced):
            return np.take(table, index, axis=axis)
        return Traced(self, self.op("Gather", self.constant(table), index.name), str(table.dtype), flat=index.flat)

    def concat(self, arrays: list[Any], *, axis: int) -> Any:
        """Put arrays beside each other, along the classes."""
        if not any(isinstance(a, Traced) for a in arrays):
            return np.concatenate(arrays)
        return Traced(self, self.op("Concat", *(a.name for a in arrays), axis=self.axis), arrays[0].dtype)

    def where(self, condition: Any, one: Any, other: Any) -> Any:
        """Choose."""
        dtypes = [str(v.dtype) for v in (one, other) if hasattr(v, "dtype")]
        if not any(isinstance(v, Traced) for v in (condition, one, other)):
            return np.where(condition, one, other)
        if not isinstance(condition, Traced):
            condition = Traced(self, self._number(condition, "bool"), "bool")
        return self.elementwise("Where", condition, one, other, dtype=dtypes[0])

    def matmul(self, x: Any, matrix: Any) -> Any:
        """Multiply with a constant matrix."""
        if not isinstance(x, Traced):
            return np.matmul(x, matrix)
        constant = self.constant(np.ascontiguousarray(matrix))
        if self.axis == -1:
            return Traced(self, self.op("MatMul", x.name, constant), x.dtype)
        if self.rank is None:
            raise InputError("a matrix for classes that are not on the last axis: the model must have a known rank")
        order = list(range(self.rank))
        order[self.axis], order[-1] = order[-1], order[self.axis]  # its own inverse
        moved = self.op("MatMul", self.op("Transpose", x.name, perm=order), constant)
        return Traced(self, self.op("Transpose", moved, perm=order), x.dtype)

    exp, log, abs, sqrt, tanh = (_function(kind) for kind in ("Exp", "Log", "Abs", "Sqrt", "Tanh"))
    max, min, mean = (_reduction(kind) for kind in ("ReduceMax", "ReduceMin", "ReduceMean"))
    sum, argmax = _reduction("ReduceSum", 17), _reduction("ArgMax")

    def sort(self, x: Any, *, axis: int = -1, descending: Any = False) -> Any:
        """Put the numbers of each row in order, from the largest on."""
        if not isinstance(x, Traced):
            return np.flip(np.sort(x, axis=axis), axis=axis) if descending else np.sort(x, axis=axis)
        if axis != -1 or not descending or x.flat:
            raise InputError("sort: a map can be traced where it sorts over axis=-1, with descending=True")
        size = self.op("Gather", self.op("Shape", x.name), self.constant(np.array([self.axis])))
        values, places = self.name("TopK"), self.name("TopK_places")
        node = onnx.helper.make_node("TopK", [x.name, size], [values, places], name=f"{values}_node", axis=self.axis)
        self.nodes.append(node)
        return Traced(self, values, x.dtype)

    def cumulative_sum(self, x: Any, *, axis: int = -1) -> Any:
        """Add up along the classes."""
        if not isinstance(x, Traced):
            return np.cumsum(x, axis=axis)
        if axis != -1 or x.flat:
            raise InputError("cumulative_sum: a map can be traced where it adds up over axis=-1")
        return Traced(self, self.op("CumSum", x.name, self.constant(np.asarray(self.axis))), x.dtype)

    def pow(self, x: Any, y: Any) -> Any:
        """X to the power y."""
        return x**y

    def maximum(self, x: Any, y: Any) -> Any:
        """Return the larger one."""
        return self.where(x > y, x, y)

    def minimum(self, x: Any, y: Any) -> Any:
        """Return the smaller one."""
        return self.where(x < y, x, y)

    def log1p(self, x: Any) -> Any:
        """log(1 + x)."""
        return self.log(x + 1)

    def isfinite(self, x: Any) -> Any:
        """Neither infinite nor NaN."""
        return self.abs(x) < np.inf

    def clip(self, x: Any, least: float, most: float) -> Any:
        """Keep x between two numbers."""
        x = self.where(x > least, x, self.full_like(x, least))
        return self.where(x < most, x, self.full_like(x, most))

    def any(self, x: Any, *, axis: int, keepdims: Any) -> Any:
        """Whether one of a row is true."""
        return self.max(self.astype(x, "float32"), axis=axis, keepdims=keepdims) > 0.5

    def all(self, x: Any, *, axis: int, keepdims: Any) -> Any:
        """Whether all of a row are true."""
        return ~self.any(~x, axis=axis, keepdims=keepdims)
