"""Every map as ONNX nodes, of operators that opset 11 has; the same numbers as `Map.apply`."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attemper.errors import InputError, require, setting
from attemper.export.onnx_graph import Gives
from attemper.export.source import Source
from attemper.maps import AffineMap, BinMap, Map, MixtureMap, OddsMap, ScaleMap

onnx: Any = require("onnx", extra="onnx", why="to read and write ONNX models")

__all__ = ["Nodes", "can_give", "map_nodes"]

FLOAT, FLOAT16, DOUBLE, BFLOAT16 = 1, 10, 11, 16
STEPS = {
    FLOAT: (2.0**-23, 2.0**-149),
    DOUBLE: (2.0**-52, 5e-324),
    FLOAT16: (2.0**-10, 2.0**-24),
    BFLOAT16: (2.0**-7, 2.0**-133),
}


class Nodes:
    """Nodes and constants in the making; each method adds one node and returns the name of its output."""

    def __init__(self, taken: set[str], opset: int, axis: int, rank: int | None) -> None:
        self.nodes: list[Any] = []
        self.constants: list[Any] = []
        self.taken, self.opset, self.axis, self.rank = taken, opset, axis, rank
        self.wide = FLOAT
        self._known: dict[tuple[Any, ...], str] = {}

    def name(self, stem: str) -> str:
        """Return a name that nobody has."""
        i, name = 0, f"attemper/{stem}"
        while name in self.taken or f"{name}_node" in self.taken:
            i, name = i + 1, f"attemper/{stem}_{i + 1}"
        self.taken |= {name, f"{name}_node"}
        return name

    def op(self, kind: str, *inputs: str, **attributes: Any) -> str:
        """Add a node; the same one is not made twice."""
        key = (kind, *inputs, *sorted((k, str(v)) for k, v in attributes.items()))
        if key not in self._known:
            self._known[key] = out = self.name(kind)
            self.nodes.append(onnx.helper.make_node(kind, list(inputs), [out], name=f"{out}_node", **attributes))
        return self._known[key]

    def finish(self, value: str, name: str) -> None:
        """Give the result the name that it is to have."""
        assert self.nodes[-1].output[0] == value
        self.nodes[-1].output[0] = name

    def constant(self, values: Any, dtype: Any = None) -> str:
        """Add an initialiser; numbers are of the type that is computed in."""
        array = np.asarray(values, dtype=dtype or (np.float64 if self.wide == DOUBLE else np.float32))
        key = (array.tobytes(), array.shape, str(array.dtype))
        if key not in self._known:
            self._known[key] = self.name("constant")
            self.constants.append(onnx.numpy_helper.from_array(array, self._known[key]))
        return self._known[key]

    def vector(self, values: Any, dtype: Any = None) -> str:
        """Add one number for each class, along the axis of the classes."""
        return self.constant(np.reshape(values, (-1, *[1] * (-self.axis - 1))), dtype)

    def cast(self, x: str, to: int) -> str:
        """Change the type."""
        return self.op("Cast", x, to=to)

    def reduce(self, kind: str, x: str) -> str:
        """Reduce over the classes."""
        if self.opset >= (13 if kind == "ReduceSum" else 18):  # since then axes are an input
            return self.op(kind, x, self.constant([self.axis], np.int64), keepdims=1)
        return self.op(kind, x, axes=[self.axis], keepdims=1)

    def top(self, x: str) -> str:
        """Column of the largest value, the first if tied."""
        return self.op("ArgMax", x, axis=self.axis, keepdims=1)

    def softmax(self, x: str) -> str:
        """Softmax of numbers whose largest is 0; before opset 13 the operator meant something else."""
        if self.opset >= 13:
            return self.op("Softmax", x, axis=self.axis)
        e = self.op("Exp", x)
        return self.op("Div", e, self.reduce("ReduceSum", e))

    def log_of_one_and(self, x: str) -> str:
        """log(1 + x)."""
        return self.op("Log", self.op("Add", x, self.constant(1.0)))

    def clamp(self, x: str, least: float, most: float) -> str:
        """Keep x between two numbers; Clip of opset 11 is not for double precision everywhere."""
        x, high = self.clamp_below(x, least), self.constant(most)
        return self.op("Where", self.op("Less", x, high), x, high)

    def clamp_below(self, x: str, least: float = 0.0) -> str:
        """max(x, least)."""
        low = self.constant(least)
        return self.op("Where", self.op("Greater", x, low), x, low)


def can_give(m: Map, gives: Gives) -> bool:
    """Tell whether a map can: calibrated logits are there for scale and affine maps alone."""
    return gives != "logits" or isinstance(m, ScaleMap) or (isinstance(m, AffineMap) and isinstance(m.then, ScaleMap))


def map_nodes(n: Nodes, source: Source, reads: str, elem_type: int, gives: Gives, *, from_probs: bool = False) -> str:
    """Add the nodes of a map; the result has the type of what it reads."""
    m = source.map
    if not can_give(m, gives):
        raise InputError(f"a {type(m).__name__} gives probabilities, not logits; use {setting('gives', 'probs')}")
    # Steps and steep pieces magnify the rounding of a logarithm.
    n.wide = DOUBLE if elem_type == DOUBLE or (from_probs and isinstance(m, BinMap)) else FLOAT
    own = h = reads if elem_type == n.wide else n.cast(reads, n.wide)  # own: what decides on the arg max
    if from_probs:
        h = n.op("Log", h)
    elif source.takes_probs and (source.floor is not None or (isinstance(m, AffineMap) and m.centring == "none")):
        x = n.op("Sub", h, n.reduce("ReduceMax", h))
        h = n.op("Sub", x, n.op("Log", n.reduce("ReduceSum", n.op("Exp", x))))
    if source.takes_probs and source.floor is not None:  # of logarithms: single precision holds that of any floor
        low = n.constant(math.log(source.floor))
        below = n.op("Less", h, low)
        if from_probs:  # what is below the smallest normal number is 0, as in `attemper.arrays.log_probs`
            normal = n.constant(2.0**-1022 if elem_type == DOUBLE else 2.0**-126)
            below = n.op("Or", below, n.op("Less", own, normal))
        h = n.op("Where", below, low, h)
    if from_probs:  # rounding of the logarithm must not turn the order
        h = n.op("Where", n.op("Less", own, n.reduce("ReduceMax", own)), h, n.reduce("ReduceMax", h))
    value = BUILDERS[type(m)](n, m, h, gives)
    if isinstance(m, BinMap):
        value = _settle(n, value, elem_type, _of_bins(n, own, m.n_classes))
    elif m.keeps_arg_max:
        value = _settle(n, value, elem_type, _below_top(n, own))
    elif elem_type != n.wide:
        value = n.cast(value, elem_type)
    return value


def _less_top(n: Nodes, h: str) -> str:
    return n.op("Sub", h, n.reduce("ReduceMax", h))


def _scale(n: Nodes, m: Map, h: str, gives: Gives) -> str:
    assert isinstance(m, ScaleMap)
    if gives == "logits":
        return n.op("Mul", h, n.constant(m.beta))
    x = n.op("Mul", _less_top(n, h), n.constant(m.beta))
    if gives == "log_probs":
        return n.op("Sub", x, n.op("Log", n.reduce("ReduceSum", n.op("Exp", x))))
    return n.softmax(x)


def _mixture(n: Nodes, m: Map, h: str, gives: Gives) -> str:
    assert isinstance(m, MixtureMap)
    d = _less_top(n, h)
    possible = n.op("Greater", d, n.constant(-np.inf))
    total = None
    if m.floor > 0:
        ones = n.cast(possible, n.wide)
        total = n.op("Div", n.op("Mul", ones, n.constant(m.floor)), n.reduce("ReduceSum", ones))

    def add(term: str) -> str:
        return term if total is None else n.op("Add", total, term)

    if gives == "probs":
        for weight, beta in m.parts:
            p = n.softmax(n.op("Mul", d, n.constant(beta)))
            total = add(n.op("Mul", p, n.constant(weight)))
        assert total is not None
        return total
    # As in MixtureMap: the flattest component as a factor leaves a sum that cannot underflow.
    flattest = 0.0 if m.floor > 0 else min(beta for _, beta in m.parts)
    zero = n.constant(0.0)
    d = n.op("Where", possible, d, zero)
    for weight, beta in m.parts:
        e = n.op("Where", possible, n.op("Exp", n.op("Mul", d, n.constant(beta))), zero)
        share = n.op("Div", n.constant(weight), n.reduce("ReduceSum", e))
        total = add(n.op("Mul", n.op("Exp", n.op("Mul", d, n.constant(beta - flattest))), share))
    assert total is not None
    value = n.op("Add", n.op("Mul", d, n.constant(flattest)), n.op("Log", total))
    return n.op("Where", possible, value, n.constant(-np.inf))


def _affine(n: Nodes, m: Map, h: str, gives: Gives) -> str:
    assert isinstance(m, AffineMap)
    possible = n.op("Greater", h, n.constant(-np.inf))
    x = _centred(n, m.centring, h, possible)
    x = n.op("Mul", x, n.vector(m.weight)) if m.weight.ndim == 1 else _by_matrix(n, x, m.weight)
    z = n.op("Where", possible, n.op("Add", x, n.vector(m.bias)), h)
    return BUILDERS[type(m.then)](n, m.then, z, gives)


def _centred(n: Nodes, centring: str, h: str, possible: str) -> str:
    zero = n.constant(0.0)
    if centring != "none":
        h = _less_top(n, h)  # so that the mean of large logits loses nothing
    if centring == "log_probs":
        h = n.op("Sub", h, n.op("Log", n.reduce("ReduceSum", n.op("Exp", h))))
    count = n.reduce("ReduceSum", n.cast(possible, n.wide))
    mean = n.op("Div", n.reduce("ReduceSum", n.op("Where", possible, h, zero)), count)
    if centring == "mean":
        return n.op("Where", possible, n.op("Sub", h, mean), zero)
    return n.op("Where", possible, h, mean)


def _by_matrix(n: Nodes, x: str, weight: NDArray[np.float64]) -> str:
    if n.axis == -1:
        return n.op("MatMul", x, n.constant(weight.T))
    assert n.rank is not None  # an axis other than the last is told from the rank
    order = list(range(n.rank))
    order[n.axis], order[-1] = order[-1], order[n.axis]  # its own inverse
    moved = n.op("MatMul", n.op("Transpose", x, perm=order), n.constant(weight.T))
    return n.op("Transpose", moved, perm=order)


def _odds(n: Nodes, m: Map, h: str, gives: Gives) -> str:
    assert isinstance(m, OddsMap)
    zero, one, infinity = n.constant(0.0), n.constant(1.0), n.constant(np.inf)
    possible = n.op("Greater", h, n.constant(-np.inf))
    s = _log_odds(n, h, len(m.c))
    finite = n.op("Less", n.op("Abs", s), infinity)
    s = n.op("Where", finite, s, zero)
    t = n.log_of_one_and(n.op("Exp", n.op("Neg", n.op("Abs", s))))
    line = n.op("Where", n.op("Less", s, zero), n.op("Mul", s, n.vector(m.a)), n.op("Mul", s, n.vector(m.b)))
    z = n.op("Add", n.op("Add", line, n.op("Mul", t, n.vector(m.b - m.a))), n.vector(m.c))
    z = n.clamp(z, -8.5e37, 8.5e37)
    below = n.op("Where", n.op("Less", z, zero), z, zero)
    x = n.op("Sub", below, n.log_of_one_and(n.op("Exp", n.op("Neg", n.op("Abs", z)))))
    x = n.op("Where", possible, x, n.constant(-np.inf))
    is_top = n.op("Equal", n.vector(np.arange(len(m.c)), np.int64), n.top(x))
    x = _less_top(n, x)
    e = n.op("Where", is_top, zero, n.op("Exp", x))
    rest = n.reduce("ReduceSum", e)
    if gives == "log_probs":
        return n.op("Sub", x, n.log_of_one_and(rest))
    return n.op("Div", n.op("Where", is_top, one, e), n.op("Add", rest, one))


def _log_odds(n: Nodes, h: str, k: int) -> str:
    """Log-odds of each class against all others; see `attemper.maps.odds.log_odds`."""
    zero = n.constant(0.0)
    is_top = n.op("Equal", n.vector(np.arange(k), np.int64), n.top(h))
    d = _less_top(n, h)
    others = n.op("Where", is_top, n.constant(-np.inf), d)
    second = n.reduce("ReduceMax", others)
    alone = n.op("Equal", second, n.constant(-np.inf))
    second = n.op("Where", alone, zero, second)
    e = n.op("Exp", n.op("Sub", others, second))
    rest = n.reduce("ReduceSum", e)
    more = n.log_of_one_and(n.clamp_below(n.op("Sub", rest, n.constant(1.0))))
    of_top = n.op("Where", alone, n.constant(np.inf), n.op("Neg", n.op("Add", second, more)))
    those = n.op("Mul", n.op("Sub", rest, e), n.op("Exp", second))
    return n.op("Where", is_top, of_top, n.op("Sub", d, n.log_of_one_and(n.clamp_below(those))))


def _bins(n: Nodes, m: Map, h: str, gives: Gives) -> str:
    assert isinstance(m, BinMap)
    narrow, n.wide = n.wide, DOUBLE  # steps and steep pieces magnify rounding
    h = h if narrow == DOUBLE else n.cast(h, DOUBLE)
    zero = n.constant(0.0)
    possible = n.op("Greater", h, n.constant(-np.inf))
    e = n.op("Exp", _less_top(n, h))
    p = n.op("Div", e, n.reduce("ReduceSum", e))
    if m.n_classes == 2:
        q = _functions(n, m, n.op("Gather", p, n.constant([1], np.int64), axis=n.axis))
        q = n.op("Concat", n.op("Sub", n.constant(1.0), q), q, axis=n.axis)
    else:
        q = _functions(n, m, p)
    q = n.op("Where", possible, q, zero)
    nothing = n.op("Equal", n.reduce("ReduceMax", q), zero)
    q = n.op("Where", nothing, n.cast(possible, DOUBLE), q)
    q = n.op("Div", q, n.reduce("ReduceSum", q))
    value = n.op("Log", q) if gives == "log_probs" else q
    n.wide = narrow
    return value if narrow == DOUBLE else n.cast(value, narrow)


def _functions(n: Nodes, m: BinMap, p: str) -> str:
    """f_k(p_k): bisection for all classes at once, as in BinMap."""
    end = np.cumsum(m.sizes) - 1
    one = n.constant(1, np.int64)
    low, high = n.vector(end - m.sizes + 1, np.int64), n.vector(end, np.int64)
    last, knots, values = high, n.constant(m.knots), n.constant(m.values)
    for _ in range(int(np.max(m.sizes) - 1).bit_length()):
        middle = n.op("Div", n.op("Add", n.op("Add", low, high), one), n.constant(2, np.int64))
        left = n.op("Less", p, n.op("Gather", knots, middle))
        high = n.op("Where", left, n.op("Sub", middle, one), high)
        low = n.op("Where", left, low, middle)
        high = n.op("Where", n.op("Less", high, low), low, high)
    # Where no class has more than one knot nothing above has the shape of p yet.
    value = n.op("Add", n.op("Gather", values, low), n.op("Mul", p, n.constant(0.0)))
    if not m.linear:
        return value
    after = n.op("Where", n.op("Less", low, last), n.op("Add", low, one), low)
    left_knot = n.op("Gather", knots, low)
    width = n.op("Sub", n.op("Gather", knots, after), left_knot)
    wide = n.op("Greater", width, n.constant(0.0))
    share = n.op("Div", n.op("Sub", p, left_knot), n.op("Where", wide, width, n.constant(1.0)))
    share = n.op("Where", wide, n.clamp(share, 0.0, 1.0), n.constant(0.0))
    return n.op("Add", value, n.op("Mul", share, n.op("Sub", n.op("Gather", values, after), value)))


BUILDERS: dict[type[Map], Callable[[Nodes, Any, str, Gives], str]] = {
    ScaleMap: _scale,
    MixtureMap: _mixture,
    AffineMap: _affine,
    OddsMap: _odds,
    BinMap: _bins,
}


def _below_top(n: Nodes, h: str) -> Callable[[str, str], str]:
    return lambda value, tied: n.op("And", tied, n.op("Less", h, n.reduce("ReduceMax", h)))


def _of_bins(n: Nodes, h: str, k: int) -> Callable[[str, str], str]:
    """Where the classifier's own answer is among those that are equally probable, the ones before it give way."""

    def gives_way(value: str, tied: str) -> str:
        own = n.top(h)
        column = n.vector(np.arange(k), np.int64)
        of_own = n.op("And", tied, n.op("Equal", column, own))
        stays = n.op("Greater", n.reduce("ReduceMax", n.cast(of_own, FLOAT)), n.constant(0.5, np.float32))
        return n.op("And", n.op("And", tied, n.op("Less", column, own)), stays)

    return gives_way


def _settle(n: Nodes, value: str, elem_type: int, gives_way: Callable[[str, str], str]) -> str:
    """Round to the type of the output; lower by the least possible amount what must not equal the arg max."""
    eps, least = STEPS[elem_type]
    if elem_type != n.wide:
        value = n.cast(n.cast(value, elem_type), n.wide)  # rounded, and wide again, to be compared
    best = n.reduce("ReduceMax", value)
    step = n.op("Mul", n.op("Abs", best), n.constant(eps))  # log-probabilities and logits are negative too
    if elem_type != n.wide:
        step = n.clamp_below(step, least)
    lower = n.op("Sub", best, step)
    value = n.op("Where", gives_way(value, n.op("Equal", value, best)), lower, value)
    return value if elem_type == n.wide else n.cast(value, elem_type)
