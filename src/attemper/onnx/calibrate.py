"""Calibration inside an ONNX model: the map as nodes. Needs onnx, no torch."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

from attemper._checks import one_of, same_classes
from attemper._json import atomic
from attemper.calibrators.exportable import Exportable, Source, source_of
from attemper.errors import FileError, InputError, InputTypeError, require
from attemper.maps import OutputKind
from attemper.maps.base import OUTPUT_KINDS
from attemper.onnx.graph import MIN_OPSET, Graph, Place, find_place, rename
from attemper.onnx.trace import Trace, trace_map
from attemper.onnx.verify import MAX_BYTES, Ran, compare_with_numpy

onnx: Any = require("onnx", extra="onnx", why="to read and write ONNX models")

__all__ = [
    "PREFIX",
    "Export",
    "feeds_of_map",
    "map_to_onnx",
    "onnx_calibrate",
    "provenance_of",
    "read_model",
    "write_model",
]

PREFIX = "attemper."


@dataclass(frozen=True)
class Export:
    """A calibrated model, and what was done: what `onnx_calibrate` and `map_to_onnx` return."""

    model: Any = field(repr=False)  # onnx.ModelProto
    output: Path | None  # where it was written
    logits: str  # tensor that the map reads
    tensor: str  # tensor that is calibrated
    output_kind: OutputKind
    ran: Ran
    notes: tuple[str, ...] = ()


def onnx_calibrate(
    model: Any,
    calibration: Exportable,
    output: str | os.PathLike[str] | None = None,
    *,
    logits: str | None = None,
    axis: int | None = None,
    output_kind: OutputKind | Literal["same"] = "same",
    outputs: Literal["replace", "add"] = "replace",
    check: bool | dict[str, NDArray[Any]] = True,
) -> Export:
    """Return the same model, calibrated: its names, opset, metadata and other outputs stay the same.

    Where the graph ends in a Softmax (a Sigmoid, for a map of labels that do not exclude each other) the map takes its
    place, under the same name. Where it ends in a linear layer the
    output stays logits if the map can give some (scale and affine maps), and becomes log-probabilities if not: code
    that applies a softmax to them gets the calibrated probabilities. Anything else is not guessed: an error names the
    candidates for ``logits``.

    Parameters
    ----------
    model : path or onnx.ModelProto
    calibration : fitted calibrator, map, or path of a saved map
    output : path, optional
        Where to write; without it the model is only returned. The tensors of a model over 2 GB are written to a file
        beside it.
    logits : name of the tensor that the map takes (probabilities, if it was fitted on those)
    axis : of the classes, if it cannot be found in the graph
    output_kind : what the calibrated tensor is to hold; "same": what it held, or log-probabilities instead of
        logits if the map cannot give logits
    outputs : "add" leaves all outputs as they are, and adds one
    check : run the result with onnxruntime, if that is installed, on made-up input or on this, and compare with NumPy.
        A model that fails is an error, and nothing is written. False writes the result without running it.

    Examples
    --------
    >>> from onnx import TensorProto, helper
    >>> from attemper import ScaleMap
    >>> h, p = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 3]) for name in "hp")
    >>> graph = helper.make_graph([helper.make_node("Softmax", ["h"], ["p"], axis=1)], "network", [h], [p])
    >>> model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    >>> done = onnx_calibrate(model, ScaleMap(0.5))
    >>> done.logits, done.tensor, done.output_kind
    ('h', 'p', 'probs')
    """
    source = source_of(calibration)
    one_of("outputs", outputs, ("replace", "add"))
    one_of("output_kind", output_kind, ("same", *OUTPUT_KINDS))
    original, where = read_model(model)
    if output is not None and original is not model and Path(output).resolve() == Path(model).resolve():
        raise FileError(f"{output}: is the model itself, which would be lost; give another name")
    if provenance_of(original):
        raise InputError(f"{where}: is calibrated already, by attemper; take the model that it was made from")
    calibrated = onnx.ModelProto()
    calibrated.CopyFrom(original)
    graph = Graph(calibrated, where)
    place = find_place(
        graph, logits, axis, probs=source.takes_probs, add=outputs == "add", labels=source.map.independent
    )
    if place.n_classes is not None:
        same_classes(source.n_classes, place.n_classes, of="the map", where=f"{where}: {place.reads!r}")
    notes: list[str] = []
    kind = _kind(source, place, output_kind, outputs, notes)
    tensor = _inserted(graph, place, source, kind, add=outputs == "add")
    _record(calibrated, source, {"logits": place.reads, "output": tensor, "output_kind": kind})
    ran = Ran(None, "check=False")
    if check is not False:
        feeds = None if check is True else check
        ran = compare_with_numpy(original, calibrated, source, place, (tensor, kind), feeds)
    return Export(calibrated, write_model(calibrated, output), place.reads, tensor, kind, ran, tuple(notes))


def map_to_onnx(
    calibration: Exportable,
    output: str | os.PathLike[str] | None = None,
    *,
    n_classes: int | None = None,
    output_kind: OutputKind = "probs",
    opset: int = 17,
    positive: bool = False,
) -> Export:
    """Return a model of only the map, from logits to probabilities: a step of a pipeline, such as Triton's.

    Its input is ``logits``, N×K in single precision (``probs`` for a map of probabilities), its output
    ``probabilities`` (``calibrated_logits``, ``log_probabilities``). With ``positive``, for two classes, both hold one
    number for each sample, (N,): the log-odds of the second class (or its probability), and the calibrated one.

    Examples
    --------
    >>> from attemper import ScaleMap
    >>> model = map_to_onnx(ScaleMap(0.5), n_classes=3).model
    >>> model.graph.input[0].name, model.graph.output[0].name
    ('logits', 'probabilities')
    """
    source = source_of(calibration)
    n_classes = 2 if positive and n_classes is None else n_classes
    if n_classes is not None:
        same_classes(source.n_classes, n_classes, of="the map", where="n_classes")
    if positive and n_classes != 2:
        raise InputError(f"positive=True: expected two classes, got n_classes={n_classes}")
    if not MIN_OPSET <= opset <= onnx.defs.onnx_opset_version():
        raise InputError(f"opset={opset}: expected {MIN_OPSET} to {onnx.defs.onnx_opset_version()}")
    reads = "probs" if source.takes_probs else "logits"
    name = {"probs": "probabilities", "log_probs": "log_probabilities", "logits": "calibrated_logits"}[output_kind]
    k = n_classes or source.n_classes
    trace = Trace({reads, name}, opset, -1, 2, k)
    trace.finish(
        trace_map(trace, source, reads, onnx.TensorProto.FLOAT, output_kind, from_probs=source.takes_probs), name
    )
    infos = [
        onnx.helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, ["batch", k or "classes"]) for n in (reads, name)
    ]
    graph = onnx.helper.make_graph(trace.nodes, "calibration", infos[:1], infos[1:], trace.constants)
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", opset)], producer_name="attemper")
    model.ir_version = min(model.ir_version, 8)  # that runtimes of 2022 read
    _record(model, source, {"logits": reads, "output": name, "output_kind": output_kind})
    place = Place(reads, "logits", None, -1, 2, onnx.TensorProto.FLOAT, k, "probs" if source.takes_probs else "logits")
    feeds = feeds_of_map(reads, source.takes_probs, k or 10)
    ran = compare_with_numpy(_echo(model, reads), model, source, place, (name, output_kind), feeds)
    if positive:
        _take_one_column(model, source.takes_probs)
    return Export(model, write_model(model, output), reads, name, output_kind, ran)


def feeds_of_map(reads: str, probs: bool, k: int) -> dict[str, NDArray[Any]]:
    """Make up input of a map that stands alone: eight rows of logits, or of probabilities."""
    h = 4 * np.random.default_rng(0).normal(size=(8, k))
    return {reads: np.asarray(softmax(h, axis=1) if probs else h, dtype=np.float32)}


def _take_one_column(model: Any, probs: bool) -> None:
    """Make a map of two columns one of vectors, of the second class."""
    graph, make = model.graph, onnx.helper.make_node
    (given,), (found,) = graph.input, graph.output
    reads, name = given.name, found.name
    for node in graph.node:
        node.input[:] = ["both_columns" if part == reads else part for part in node.input]
        node.output[:] = ["of_both" if part == name else part for part in node.output]
    constants = {"column_shape": np.array([-1, 1]), "second": np.array(1), "one": np.array(1, dtype=np.float32)}
    graph.initializer.extend(onnx.numpy_helper.from_array(value, key) for key, value in constants.items())
    first = [
        make("Reshape", [reads, "column_shape"], ["column"]),
        make("Sub", ["one" if probs else "column", "column"], ["other_column"]),
        make("Concat", ["other_column", "column"], ["both_columns"], axis=1),
    ]
    nodes = [*first, *graph.node, make("Gather", ["of_both", "second"], [name], axis=1)]
    del graph.node[:]
    graph.node.extend(nodes)
    for info in (given, found):
        del info.type.tensor_type.shape.dim[1:]


def provenance_of(model: Any) -> dict[str, str]:
    """Return what a calibrated model records of its calibration; nothing for any other."""
    return {p.key.removeprefix(PREFIX): p.value for p in model.metadata_props if p.key.startswith(PREFIX)}


def read_model(given: Any) -> tuple[Any, str]:
    """Return a model, with the tensors in files beside it, and what to call it."""
    if isinstance(given, onnx.ModelProto):
        return given, "the model"
    if not isinstance(given, str | os.PathLike):
        raise InputTypeError(f"expected the path of an ONNX file or an onnx.ModelProto, got {type(given).__name__}")
    try:
        onnx.checker.check_model(os.fspath(given))
        return onnx.load(os.fspath(given)), str(given)
    except Exception as error:  # the checker's own, protobuf's, and the system's
        raise FileError(f"{given}: cannot be read as an ONNX model: {' '.join(str(error).split())[:300]}") from None


def write_model(model: Any, output: str | os.PathLike[str] | None) -> Path | None:
    """Check a model, and write it where there is an output; tensors of a large one to a file beside it."""
    path = None if output is None else Path(output)
    if model.ByteSize() > MAX_BYTES:
        if path is not None:
            onnx.save_model(model, path, save_as_external_data=True, location=f"{path.name}.data")
        return path
    onnx.checker.check_model(model)
    if path is not None:
        with atomic(path) as stream:
            stream.write(model.SerializeToString())
    return path


def _kind(
    source: Source,
    place: Place,
    output_kind: OutputKind | Literal["same"],
    outputs: Literal["replace", "add"],
    notes: list[str],
) -> OutputKind:
    """Return what the calibrated tensor will hold."""
    if output_kind == "same":
        wanted: OutputKind = "probs" if outputs == "add" else place.kind
        if wanted != "logits" or source.map.has_logits:
            return wanted
        notes.append(
            f"{place.target!r} held logits and now holds log-probabilities, because this map gives no logits; their "
            f"softmax is the calibrated probabilities. Use output_kind={'probs'!r} for probabilities"
        )
        return "log_probs"
    return output_kind


def _inserted(graph: Graph, place: Place, source: Source, kind: OutputKind, *, add: bool) -> str:
    """Put the nodes of the map into the graph; return the name of the calibrated tensor."""
    g, taken = graph.graph, graph.names()
    trace = Trace(taken, graph.opset, place.axis, place.rank, place.n_classes or source.n_classes)
    reads, target = place.reads, place.target
    order = list(g.node)
    if add:
        target, at = _free(f"calibrated_{kind}", taken), len(order)
        shape = graph.shape(reads)
        dims = None if shape is None else [d or f"dim_{i}" for i, d in enumerate(shape)]
        g.output.append(onnx.helper.make_tensor_value_info(target, place.elem_type, dims))
    elif place.ending is not None:
        at = order.index(place.ending)
        del g.node[at]
    else:
        reads = _free(f"{target}_uncalibrated", taken)
        at = 1 + order.index(graph.maker[target])
        rename(g, target, reads)
    trace.finish(trace_map(trace, source, reads, place.elem_type, kind, from_probs=place.holds == "probs"), target)
    for i, node in enumerate(trace.nodes):
        g.node.insert(at + i, node)
    g.initializer.extend(trace.constants)
    return target


def _free(name: str, taken: set[str]) -> str:
    while name in taken:
        name += "_"
    taken.add(name)
    return name


def _record(model: Any, source: Source, done: dict[str, str]) -> None:
    for key, value in {**source.facts, **done}.items():
        model.metadata_props.add(key=PREFIX + key, value=value)


def _echo(model: Any, name: str) -> Any:
    """Return a model whose output is its input, as the original of a map that stands alone."""
    info = model.graph.input[0]
    node = onnx.helper.make_node("Identity", [name], ["echo"])
    out = onnx.helper.make_tensor_value_info("echo", info.type.tensor_type.elem_type, None)
    graph = onnx.helper.make_graph([node], "echo", [info], [out])
    made = onnx.helper.make_model(graph, opset_imports=list(model.opset_import))
    made.ir_version = model.ir_version
    return made
