"""Calibration inside an ONNX model: the map as nodes, or in the weights of the last layer. Needs onnx, no torch."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from attemper._checks import one_of, same_classes
from attemper.calibrators.exportable import Exportable, Source, source_of
from attemper.errors import FileError, InputError, require
from attemper.maps import OutputKind
from attemper.maps.base import OUTPUT_KINDS
from attemper.onnx.child import LIMITS, Limits
from attemper.onnx.files import (
    MAX_BYTES,
    External,
    check_target,
    checked,
    external_files,
    read_model,
    skeleton,
    write_model,
)
from attemper.onnx.folding import fold as fold_map
from attemper.onnx.folding import instead
from attemper.onnx.graph import MIN_OPSET, Graph, Place, find_place, rename
from attemper.onnx.trace import Trace, trace_map
from attemper.onnx.verify import Ran, compare_with_numpy

onnx: Any = require("onnx", extra="onnx", why="to read and write ONNX models")

__all__ = ["PREFIX", "Export", "map_to_onnx", "onnx_calibrate", "provenance_of"]

PREFIX = "attemper."
HALF = (10, 16)  # float16 and bfloat16


@dataclass(frozen=True)
class Export:
    """A calibrated model, and what was done: what `onnx_calibrate` and `map_to_onnx` return."""

    model: Any = field(repr=False)  # onnx.ModelProto; tensors in files beside the model are not loaded
    output: Path | None  # where it was written
    how: Literal["inserted", "folded"]
    logits: str  # tensor that the map reads
    tensor: str  # tensor that is calibrated
    output_kind: OutputKind
    ran: Ran
    notes: tuple[str, ...] = ()
    external_files: tuple[Path, ...] = ()  # tensors of the model, beside the output; the output needs them there


def onnx_calibrate(
    model: Any,
    calibration: Exportable,
    output: str | os.PathLike[str] | None = None,
    *,
    logits: str | None = None,
    axis: int | None = None,
    fold: bool | Literal["auto"] = "auto",
    output_kind: OutputKind | Literal["same"] = "same",
    outputs: Literal["replace", "add"] = "replace",
    external: External | None = None,
    in_place: bool = False,
    check: bool | dict[str, NDArray[Any]] = True,
    check_timeout: float = LIMITS.timeout,
    check_memory: float = LIMITS.memory,
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
        Where to write; without it the model is only returned. The file that was read is never written unless
        ``in_place``.
    logits : name of the tensor that the map takes (probabilities, if it was fitted on those)
    axis : of the classes, if it cannot be found in the graph
    fold : put the map into the weights of the last layer; "auto": where it fits in without loss
    output_kind : what the calibrated tensor is to hold; "same": what it held, or log-probabilities instead of
        logits if the map cannot give logits
    outputs : "add" leaves all outputs as they are, and adds one
    external : tensors in files beside the model are copied to its new folder, or referred to where they are
    check : run the result with onnxruntime, if that is installed, on made-up input or on this, and compare with NumPy.
        A model that fails is an error, and nothing is written. False writes the result without running it.
    check_timeout, check_memory : limits of the process that runs the model, in seconds and in GiB. The model's own
        weights do not count. Windows and macOS do not limit memory.

    Examples
    --------
    >>> from onnx import TensorProto, helper
    >>> from attemper import ScaleMap
    >>> h, p = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 3]) for name in "hp")
    >>> graph = helper.make_graph([helper.make_node("Softmax", ["h"], ["p"], axis=1)], "network", [h], [p])
    >>> model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    >>> done = onnx_calibrate(model, ScaleMap(0.5))
    >>> done.how, done.logits, done.tensor, done.output_kind
    ('inserted', 'h', 'p', 'probs')
    """
    source = source_of(calibration)
    target = _target(model, output, in_place)
    read, folder = read_model(model)
    if target is not None:
        check_target(read, target, folder)
    where = str(model) if folder is not None else "the model"
    if provenance_of(read):
        raise InputError(f"{where}: is calibrated already, by attemper; take the model that it was made from")
    one_of("outputs", outputs, ("replace", "add"))
    one_of("output_kind", output_kind, ("same", *OUTPUT_KINDS))
    for name, value in (("check_timeout", check_timeout), ("check_memory", check_memory)):
        if not 0 < value < 1e6:
            raise InputError(f"{name}={value}: expected a number above 0 and below a million")
    original = onnx.ModelProto()
    original.CopyFrom(read)
    graph = Graph(read, where)
    place = find_place(
        graph, logits, axis, probs=source.takes_probs, add=outputs == "add", labels=source.map.independent
    )
    if place.n_classes is not None:
        same_classes(source.n_classes, place.n_classes, of="the map", where=f"{where}: {place.reads!r}")
    notes: list[str] = []
    kind = _kind(source, place, output_kind, outputs, notes)
    how: Literal["inserted", "folded"] = "inserted"
    if fold is True or (fold == "auto" and place.elem_type not in HALF):
        how = _folded(graph, place, source, folder, kind, outputs, fold is True, notes)
    tensor = place.target if how == "folded" else _inserted(graph, place, source, kind, add=outputs == "add")
    _record(read, source, {"how": how, "logits": place.reads, "output": tensor, "output_kind": kind})
    checked(skeleton(read), "the calibrated model")
    ran = Ran(None, "check=False")
    if check is not False:
        feeds = None if check is True else check
        ran = compare_with_numpy(
            original,
            read,
            folder,
            source,
            place,
            (tensor, kind),
            feeds=feeds,
            folded=how == "folded",
            limits=Limits(check_timeout, check_memory),
        )
    if target is not None:
        if read.ByteSize() > MAX_BYTES:
            raise FileError(f"{target}: larger than an ONNX file can be; keep the tensors in files next to the model")
        write_model(read, target, folder, external)
    beside = () if target is None else tuple(target.parent / name for name in external_files(read))
    return Export(read, target, how, place.reads, tensor, kind, ran, tuple(notes), beside)


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
    _record(model, source, {"how": "alone", "logits": reads, "output": name, "output_kind": output_kind})
    checked(model, "the model of the map")
    place = Place(reads, "logits", None, -1, 2, onnx.TensorProto.FLOAT, k, "probs" if source.takes_probs else "logits")
    h = 4 * np.random.default_rng(0).normal(size=(8, k or 10))
    p = np.exp(h) / np.exp(h).sum(axis=1, keepdims=True)
    feeds = {reads: np.asarray(p if source.takes_probs else h, dtype=np.float32)}
    ran = compare_with_numpy(_echo(model, reads), model, None, source, place, (name, output_kind), feeds=feeds)
    if positive:
        _take_one_column(model, source.takes_probs)
        checked(model, "the model of the map")
    target = None if output is None else _in_folder(output)
    if target is not None:
        write_model(model, target, None, None)
    return Export(model, target, "inserted", reads, name, output_kind, ran)


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


def _target(model: Any, output: str | os.PathLike[str] | None, in_place: bool) -> Path | None:
    is_path = isinstance(model, str | os.PathLike)
    if output is None:
        if in_place and not is_path:
            raise InputError(
                "in_place: expected the path of a model, got a ModelProto. Use output=… or the result's model"
            )
        return Path(model) if in_place else None
    target = _in_folder(output)
    if is_path and not in_place and target.exists() and Path(model).exists() and target.samefile(model):
        raise FileError(f"{target}: is the model itself, which would be lost; give another name, or use in_place=True")
    return target


def _in_folder(output: str | os.PathLike[str]) -> Path:
    target = Path(output)
    if "\0" in str(target):
        raise FileError(f"{str(target)!r}: cannot be the name of a file")
    if not target.parent.is_dir():
        raise FileError(f"{target}: there is no folder {str(target.parent)!r}; make it first")
    return target


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
    if output_kind != place.kind and outputs == "replace":
        words = {"probs": "probabilities", "log_probs": "log-probabilities", "logits": "logits"}
        notes.append(f"{place.target!r} held {words[place.kind]} and now holds {words[output_kind]}, as asked")
    return output_kind


def _folded(
    graph: Graph,
    place: Place,
    source: Source,
    folder: Path | None,
    kind: OutputKind,
    outputs: str,
    must: bool,
    notes: list[str],
) -> Literal["inserted", "folded"]:
    try:
        if outputs == "add" or kind != place.kind or place.holds != "logits":
            raise InputError(f"what the output holds would have to change; {instead()}")
        if source.takes_probs and source.zeros_as is not None:
            raise InputError(f"it takes probabilities, with zeros_as; {instead()}")
        rounding = fold_map(graph, place, source, folder, asked=must)
    except InputError as error:
        if must:
            raise InputError(f"{graph.where}: the map cannot be folded: {error}") from None
        return "inserted"
    if place.elem_type in HALF:
        notes.append(f"the folded weights are rounded to half precision, by {rounding:.1e} of the largest at most")
    return "folded"


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
    if graph.model.ir_version < 4:  # constants were inputs then
        g.input.extend(onnx.helper.make_tensor_value_info(t.name, t.data_type, t.dims) for t in trace.constants)
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
