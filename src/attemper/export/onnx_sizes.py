"""What a model would allocate when it is run, told from its shapes and constants, before it is."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attemper.errors import require
from attemper.export.onnx_files import SMALL, brief, count, skeleton
from attemper.export.onnx_graph import is_op, walk

onnx: Any = require("onnx", extra="onnx", why="to read and write ONNX models")

__all__ = ["MAX_ELEMENTS", "too_large"]

MAX_ELEMENTS = 1 << 28  # of one tensor, in a model that is run unasked: a gigabyte in single precision
MAKERS = ("ConstantOfShape", "Expand", "Tile", "Range", "Resize", "Upsample", "OneHot")  # as large as they are told


def too_large(model: Any, feeds: dict[str, NDArray[Any]]) -> str:
    """Return which tensor would be larger than is tried unasked; nothing if there seems to be none.

    A model that is made to harm can still hide how large a tensor gets, such as in numbers that it computes.
    """
    bare = skeleton(model)
    _make_definite(bare.graph, feeds)
    try:
        inferred = onnx.shape_inference.infer_shapes(bare, data_prop=True)
    except Exception as error:  # of several kinds
        return f"its shapes cannot be told: {' '.join(str(error).split())[:200]}"
    for graph in _graphs(inferred.graph):
        for info in (*graph.value_info, *graph.output):
            dims = [d.dim_value for d in info.type.tensor_type.shape.dim if d.HasField("dim_value")]
            if count(d for d in dims if d > 0) > MAX_ELEMENTS:
                return f"{info.name!r} would be of shape {brief(dims)}"
    nodes = [*walk(bare.graph), *(node for f in bare.functions for node in f.node)]
    constants = dict(_constants(bare, nodes))
    for node in nodes:
        if is_op(node, *MAKERS):
            for name in node.input:
                if count(constants.get(name, [])) > MAX_ELEMENTS:
                    return f"{node.output[0]!r} would be of size {brief(constants[name])}"
    return ""


def _make_definite(graph: Any, feeds: dict[str, NDArray[Any]]) -> None:
    """Give inputs the shapes that they will have; leave out what the file says of others, which may not be so."""
    for info in graph.input:
        if info.name in feeds:
            info.CopyFrom(
                onnx.helper.make_tensor_value_info(info.name, info.type.tensor_type.elem_type, feeds[info.name].shape)
            )
    for inner in _graphs(graph):
        del inner.value_info[:]
    for info in graph.output:
        info.type.tensor_type.ClearField("shape")


def _graphs(graph: Any) -> Iterator[Any]:
    graphs = [graph]
    while graphs:
        graph = graphs.pop()
        yield graph
        for node in graph.node:
            for a in node.attribute:
                graphs.extend([*([a.g] if a.HasField("g") else []), *a.graphs])


def _constants(model: Any, nodes: list[Any]) -> Iterator[tuple[str, list[int]]]:
    """Small constants by name, as sizes: whole numbers, at least 1."""
    tensors = [(t.name, t) for graph in _graphs(model.graph) for t in graph.initializer]
    for node in nodes:
        for a in node.attribute if is_op(node, "Constant") else ():
            if a.name == "value":
                tensors.append((node.output[0], a.t))
            elif a.name in ("value_int", "value_ints", "value_float", "value_floats"):
                yield node.output[0], _sizes(np.asarray(onnx.helper.get_attribute_value(a)))
    for name, tensor in tensors:
        is_number = tensor.data_type in (1, 6, 7, 10, 11)  # FLOAT, INT32, INT64, FLOAT16, DOUBLE
        if is_number and tensor.data_location != onnx.TensorProto.EXTERNAL and count(tensor.dims) <= SMALL:
            yield name, _sizes(onnx.numpy_helper.to_array(tensor))


def _sizes(values: NDArray[Any]) -> list[int]:
    whole = np.clip(np.nan_to_num(values.reshape(-1).astype(np.float64)), 1, 2.0**62)
    return [int(v) for v in whole]
