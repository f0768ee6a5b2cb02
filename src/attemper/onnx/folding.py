"""Folding a map into the last linear layer of an ONNX graph: its initialisers change, and no node is added."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from attemper._checks import same_classes
from attemper.calibrators.exportable import Source
from attemper.errors import FileError, InputError, require
from attemper.maps import Linear
from attemper.onnx.graph import FLOATS, LINEAR, Graph, Place, is_op

onnx: Any = require("onnx", extra="onnx", why="to read and write ONNX models")

__all__ = ["Layer", "find_layer", "fold", "instead"]

# Of a folded tensor, which is written into the model itself, also if it was in a file beside it.
MAX_BYTES = 1 << 30
MAX_BYTES_UNASKED = 64 << 20


def instead() -> str:
    """Name the way that always works."""
    return "insert nodes instead: fold=False"


class Layer(NamedTuple):
    """The nodes that give the logits, W x + b, and the names of W and b."""

    node: Any  # Gemm, MatMul or Conv
    weight: str
    classes_last: bool  # whether the classes are the last axis of W, not the first
    adds: Any  # the Add node that brings the bias of a MatMul; None
    bias: str | None


def find_layer(graph: Graph, place: Place) -> Layer:
    """Return the layer whose output the map reads; an error with the reason where there is none."""
    name = place.reads
    seen_by_others = place.ending is not None and (len(graph.users[name]) > 1 or name in graph.outputs)
    if seen_by_others or (place.ending is None and graph.users.get(name)):
        raise InputError(f"the logits {name!r} are used elsewhere too, where they must stay as they are; {instead()}")
    node: Any = graph.maker.get(name)
    adds, bias = None, None
    if is_op(node, "Add"):
        adds = node
        constants = [i for i in node.input if i in graph.initialisers]
        others = [i for i in node.input if i not in graph.initialisers]
        if (
            len(constants) == 1
            and len(others) == 1
            and graph.users[others[0]] == [node]
            and others[0] not in graph.outputs
        ):
            node, bias = graph.maker.get(others[0]), constants[0]
    if not is_op(node, *LINEAR) or (adds is not None and node.op_type != "MatMul"):
        what = "an input" if node is None else f"a {node.op_type}" + (f" of {node.domain}" if node.domain else "")
        if adds is not None:
            what = f"the Add {adds.name!r}" + ("" if node is adds else f" of a constant to {what}")
        raise InputError(f"the logits {name!r} come from {what}, not from a Gemm, MatMul or Conv; {instead()}")
    if node.op_type != "MatMul":
        bias = node.input[2] if len(node.input) > 2 and node.input[2] else None
    weight = node.input[1]
    for constant in (weight, bias):
        if constant is not None and constant not in graph.initialisers:
            raise InputError(f"{constant!r} of the last layer is computed, not a constant; {instead()}")
    last = node.op_type == "MatMul" or (node.op_type == "Gemm" and not attribute(node, "transB", 0))
    rank = len(graph.initialisers[weight].dims)
    if (node.op_type == "Conv" and (place.rank is None or place.axis != 1 - place.rank)) or (
        node.op_type != "Conv" and (place.axis != -1 or rank != 2)
    ):
        raise InputError(f"the classes of {name!r} are not what the last layer's weights give one by one; {instead()}")
    if place.ending is not None and not _runs_over(graph, place):
        raise InputError(f"the {place.ending.op_type} that stays runs over other axes than the classes; {instead()}")
    return Layer(node, weight, last, adds, bias)


def _runs_over(graph: Graph, place: Place) -> bool:
    """Return whether the Softmax is over the classes alone; before opset 13 it took all axes after its own as well."""
    axis = attribute(place.ending, "axis", 1 if graph.opset < 13 else -1)
    axis = axis - place.rank if axis >= 0 and place.rank is not None else axis
    return bool(axis == place.axis and (graph.opset >= 13 or axis == -1))


def attribute(node: Any, name: str, default: Any) -> Any:
    """Return the value of a node's attribute."""
    return next((onnx.helper.get_attribute_value(a) for a in node.attribute if a.name == name), default)


def fold(graph: Graph, place: Place, source: Source, folder: Path | None, *, asked: bool) -> float:
    """Fold the map; return the largest change of a weight by rounding, relative to the largest weight."""
    linear = source.linear(instead())
    layer = find_layer(graph, place)
    if linear.matrix.ndim == 2 and attribute(layer.node, "group", 1) != 1:
        raise InputError(f"the last layer is a convolution of several groups, which no matrix fits; {instead()}")
    tensor = graph.initialisers[layer.weight]
    most = MAX_BYTES if asked or tensor.data_location != onnx.TensorProto.EXTERNAL else MAX_BYTES_UNASKED
    if math.prod(tensor.dims) * 4 > most:
        raise InputError(f"the weights {tensor.name!r} are too large to be folded; {instead()}")
    w = _numbers(tensor, folder)
    rows = np.moveaxis(w, -1, 0) if layer.classes_last else w
    k = rows.shape[0]
    same_classes(source.n_classes, k, of="the map", where=f"the weights {tensor.name!r}")
    if not rows.size:
        raise InputError(f"the weights {tensor.name!r} of shape {list(tensor.dims)} are empty; {instead()}")
    exact = linear.of_rows(rows)
    alpha, beta = (
        (1.0, 1.0) if layer.node.op_type != "Gemm" else (attribute(layer.node, s, 1.0) for s in ("alpha", "beta"))
    )
    new_bias = _new_bias(graph, layer, linear, beta, k, folder)
    with np.errstate(over="ignore"):  # of what is too large, which is looked for
        rounded = np.asarray(exact, dtype=w.dtype)
        bias = None if new_bias is None else np.asarray(new_bias, dtype=w.dtype)
    finite = all(np.isfinite(a.astype(np.float64)).all() for a in (rounded, bias) if a is not None)
    if not finite or alpha == 0:
        raise InputError(f"the folded weights are not finite in the model's type; {instead()}")
    _replace(graph, layer.node, 1, np.ascontiguousarray(np.moveaxis(rounded, 0, -1) if layer.classes_last else rounded))
    if bias is not None:
        _place_bias(graph, place, layer, bias)
    return float(np.abs(rounded.astype(np.float64) - exact).max() / max(np.abs(exact).max(), 1e-300))


def _new_bias(
    graph: Graph, layer: Layer, linear: Linear, beta: float, k: int, folder: Path | None
) -> NDArray[np.float64] | None:
    if layer.bias is None or beta == 0:
        return linear.of_bias(None)
    shape = list(graph.initialisers[layer.bias].dims)
    if math.prod(shape) not in (1, k) or (math.prod(shape) == k and shape[-1:] != [k] and k > 1):
        raise InputError(f"the bias {layer.bias!r} of shape {shape} is not one number for each class; {instead()}")
    b = beta * _numbers(graph.initialisers[layer.bias], folder).astype(np.float64)
    return linear.of_bias(np.broadcast_to(b.reshape(-1), (k,)))


def _place_bias(graph: Graph, place: Place, layer: Layer, bias: NDArray[Any]) -> None:
    if layer.adds is not None:
        shape = graph.initialisers[layer.bias].dims
        same = math.prod(shape) == bias.size
        _replace(graph, layer.adds, list(layer.adds.input).index(layer.bias), bias.reshape(shape) if same else bias)
        return
    if layer.node.op_type == "MatMul":
        name, nodes = _fresh(graph, f"{place.reads}_unbiased"), graph.graph.node
        layer.node.output[0] = name
        constant = _add(graph, f"{layer.weight}_bias", bias)
        at = list(nodes).index(layer.node)
        nodes.insert(
            at + 1, onnx.helper.make_node("Add", [name, constant], [place.reads], name=_fresh(graph, "attemper/Add"))
        )
        return
    if layer.node.op_type == "Gemm":
        for a in [a for a in layer.node.attribute if a.name == "beta"]:
            layer.node.attribute.remove(a)
    if layer.bias is not None:
        _replace(graph, layer.node, 2, bias)
        return
    constant = _add(graph, f"{layer.weight}_bias", bias)
    if len(layer.node.input) > 2:
        layer.node.input[2] = constant
    else:
        layer.node.input.append(constant)


def _numbers(tensor: Any, folder: Path | None) -> NDArray[Any]:
    if tensor.data_type not in FLOATS:
        kind = onnx.TensorProto.DataType.Name(tensor.data_type)
        raise InputError(f"the weights {tensor.name!r} are of type {kind}; {instead()}")
    try:
        array = np.asarray(onnx.numpy_helper.to_array(tensor, base_dir=str(folder) if folder is not None else ""))
    except (ValueError, TypeError, OSError, onnx.checker.ValidationError) as error:
        raise FileError(f"the weights {tensor.name!r} cannot be read: {error}") from None
    with np.errstate(invalid="ignore"):  # of NaN, which is what is looked for
        finite = bool(np.isfinite(array.astype(np.float64)).all())
    if not finite:
        raise InputError(f"the weights {tensor.name!r} are not all finite; {instead()}")
    return array


def _replace(graph: Graph, node: Any, position: int, values: NDArray[Any]) -> None:
    """Give a node's constant other numbers: in its place if nobody else uses it, else as a new one."""
    name = node.input[position]
    inputs = {i.name for i in graph.graph.input}
    shared = graph.users[name] != [node] or list(node.input).count(name) > 1 or name in graph.outputs
    if shared or (name in inputs and graph.model.ir_version >= 4):  # which a caller may override
        node.input[position] = _add(graph, f"{name}_calibrated", values)
        return
    old = graph.initialisers[name]
    new = onnx.numpy_helper.from_array(values, name)
    new.doc_string = old.doc_string
    old.CopyFrom(new)


def _add(graph: Graph, stem: str, values: NDArray[Any]) -> str:
    name = _fresh(graph, stem)
    graph.graph.initializer.append(onnx.numpy_helper.from_array(values, name))
    if graph.model.ir_version < 4:  # constants were inputs then
        graph.graph.input.append(
            onnx.helper.make_tensor_value_info(name, graph.graph.initializer[-1].data_type, values.shape)
        )
    return name


def _fresh(graph: Graph, stem: str) -> str:
    taken, name = graph.names(), stem
    while name in taken:
        name += "_"
    return name
