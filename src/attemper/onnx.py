"""Calibrators as ONNX: alone, or spliced into a model, which then returns ``probabilities``.

A map's own code is run on a tracing array that writes ONNX nodes; operators are those of opset 17, which every
onnxruntime since 1.12 runs. What was written is run in this process and compared with NumPy.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attemper._version import __version__
from attemper.data.arrays import masks_as_inf, settled
from attemper.data.inputs import two_columns
from attemper.errors import FileError, InputError, NotFittedError, listed, require, warn
from attemper.maps import Map, normalised

onnx: Any = require("onnx", extra="onnx", why="to write ONNX models")

OPSET, IR_VERSION = 17, 8
OUTPUT, GROUP = "probabilities", "group"
MAX_BYTES = (1 << 31) - 1  # of one file; larger models keep their tensors in another beside it
DTYPES = {1: "float32", 7: "int64", 9: "bool", 10: "float16", 11: "float64", 16: "bfloat16"}
NUMBERS = {name: number for number, name in DTYPES.items()}
TOLERANCE = {"float16": 2e-3, "bfloat16": 2e-2}  # of a probability, against NumPy; 1e-5 for others
SHAPERS = {"Identity", "Cast", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Transpose"}
ROOM = 1e-3  # by which probabilities may miss the sum of 1


@dataclass(frozen=True)
class Export:
    """What was written: what `to_onnx` returns."""

    path: str
    tensor: str  # that the map reads
    difference: float | None  # largest one of a probability from NumPy's; None: the model could not be run

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain numbers and text."""
        return dict(vars(self))

    def __str__(self) -> str:
        checked = "not checked" if self.difference is None else f"within {self.difference:.0e} of NumPy"
        return f"{self.path}: calibrates {self.tensor!r}, {checked}"


def to_onnx(calibrator: Any, path: str | os.PathLike[str], model: Any = None, tensor: str | None = None) -> Export:
    """Write an ONNX model whose output ``probabilities`` is calibrated.

    Parameters
    ----------
    calibrator : fitted calibrator, or CalibratedClassifier
        One of groups adds an input ``group``, one id for each row. A `CalibratedClassifier` is written whole, by
        skl2onnx, and also returns ``label``.
    path : where to write
    model : path or onnx.ModelProto, optional
        The network. By default only the calibrator is written, from ``logits`` (or ``probs``), N×K.
    tensor : str, optional
        What the calibrator takes. By default what the model's last Softmax takes (of labels that do not exclude each
        other, its last Sigmoid), or the only output; for a calibrator of probabilities, what the Softmax returns.

    Examples
    --------
    >>> import tempfile
    >>> from attemper import TemperatureScaling
    >>> rng = np.random.default_rng(0)
    >>> logits = 3 * rng.normal(size=(200, 3))
    >>> cal = TemperatureScaling().fit(logits, (logits / 2 + rng.gumbel(size=logits.shape)).argmax(axis=1))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     export = to_onnx(cal, f"{folder}/calibrator.onnx")
    >>> export.tensor, export.difference < 1e-6
    ('logits', True)
    """
    if hasattr(calibrator, "response_method_"):
        if model is not None:
            raise InputError("model: a CalibratedClassifier has its own; use its calibrator_ for another", "model")
        return _classifier_to_onnx(calibrator, Path(path))
    if not isinstance(getattr(calibrator, "map_", None), Map):
        raise NotFittedError(f"this {type(calibrator).__name__} is not fitted yet; call fit first")
    alone = model is None
    made = _only_map(calibrator) if alone else _read(model, Path(path))
    place = _find(made.graph, _types(made), calibrator, made.graph.input[0].name if alone else tensor)
    freed = _free(made.graph, OUTPUT)
    place = replace(place, reads=freed.get(place.reads, place.reads), output=freed.get(str(place.output), place.output))
    _splice(made, place, calibrator)
    return _write(made, Path(path), place.name, _difference(made, place, calibrator))


def _read(given: Any, path: Path) -> Any:
    """Return a copy of a model at opset 17 or later."""
    made = onnx.ModelProto()
    if isinstance(given, onnx.ModelProto):
        made.CopyFrom(given)
    elif not isinstance(given, str | os.PathLike):
        what = f"expected an ONNX model or its path, got {type(given).__name__}. Use torch.onnx.export first."
        raise InputError(f"model: {what}", "model")
    else:
        if Path(given).resolve() == path.resolve():
            raise InputError(f"path: {path} is the model itself; use another name", "path")
        try:
            made = onnx.load(os.fspath(given))
            onnx.checker.check_model(os.fspath(given))
        except Exception as error:  # the checker's own, protobuf's, and the system's
            raise FileError(f"{given}: cannot be read as ONNX: {' '.join(str(error).split())[:300]}") from None
    if any(entry.key == "attemper.method" for entry in made.metadata_props):
        raise InputError("model: it is calibrated already; use the model that it was made from", "model")
    if _opset(made) < OPSET:
        try:
            made = onnx.version_converter.convert_version(made, OPSET)
        except Exception as error:
            raise InputError(
                f"model: opset {OPSET} or later is needed, and it cannot be converted ({error})", "model"
            ) from None
    return made


def _opset(model: Any) -> int:
    return next((int(o.version) for o in model.opset_import if o.domain in ("", "ai.onnx")), 0)


def _only_map(calibrator: Any) -> Any:
    """Return a model that has an input and nothing else yet."""
    name = "probs" if calibrator.map_.input == "probs" else "logits"
    info = onnx.helper.make_tensor_value_info(name, 1, ["batch", calibrator.n_features_in_])
    graph = onnx.helper.make_graph([], "calibration", [info], [])
    opset = [onnx.helper.make_opsetid("", OPSET)]
    return onnx.helper.make_model(graph, opset_imports=opset, producer_name="attemper", ir_version=IR_VERSION)


def _types(model: Any) -> dict[str, Any]:
    """Types of all tensors, as far as they can be inferred."""
    try:
        graph = onnx.shape_inference.infer_shapes(model).graph
    except Exception:  # such as of a model over 2 GB: types are then those of the file
        graph = model.graph
    infos = [*graph.value_info, *graph.input, *graph.output]
    return {i.name: i.type.tensor_type for i in infos if i.type.HasField("tensor_type")}


# Where the map goes


@dataclass(frozen=True)
class Place:
    """What the map reads, and the output that it takes the place of."""

    name: str  # of what the map reads, as the user knows it
    reads: str  # its name in the new model
    output: str | None  # None: one more output is made
    dtype: str
    dims: tuple[int | str, ...]
    axis: int  # of the classes, from the end
    one_column: bool  # the second of two classes


def _find(graph: Any, types: dict[str, Any], calibrator: Any, tensor: str | None) -> Place:
    """Find the tensor that the map takes, where there is no doubt; otherwise an error names the candidates."""
    fitted, k = calibrator.map_, calibrator.n_features_in_
    makers = {name: node for node in graph.node for name in node.output}
    outputs = [o.name for o in graph.output]
    kinds = ("Sigmoid",) if fitted.independent else ("Softmax", "Sigmoid") if k == 2 else ("Softmax",)
    endings = {}  # of those outputs that are probabilities
    for output in outputs:
        node = makers.get(output)
        while node is not None and node.op_type in SHAPERS:
            node = makers.get(node.input[0])
        if node is not None and node.op_type in kinds and not node.domain:
            endings[output] = node
    ending = None
    if tensor is None and len(endings) == 1:
        ((output, ending),) = endings.items()
        tensor = ending.output[0] if fitted.input == "probs" else ending.input[0]
    elif tensor is None and len(floats := [o for o in outputs if o in types and _is_float(types[o])]) == 1:
        tensor = output = floats[0]
    elif tensor is None:
        candidates = [*outputs, *(name for node in endings.values() for name in (*node.input, *node.output))]
        what = f"the one that holds the {fitted.input}, of {listed(dict.fromkeys(candidates))}. Use tensor=…."
        raise InputError(f"tensor: expected {what}", "tensor")
    elif tensor not in makers and tensor not in {i.name for i in graph.input}:
        raise InputError(
            f"tensor={tensor!r}: the model has no such tensor; its outputs are {listed(outputs)}", "tensor"
        )
    else:
        ending = next((n for n in endings.values() if tensor in (n.input[0], n.output[0])), None)
        output = next((o for o, n in endings.items() if n is ending), tensor if tensor in outputs else None)
        if ending is not None and fitted.input == "logits" and tensor == ending.output[0]:
            raise InputError(f"tensor={tensor!r}: it holds probabilities; use {ending.input[0]!r}", "tensor")
    if tensor in makers and makers[tensor].op_type == "ZipMap":
        raise InputError(
            f"tensor={tensor!r}: it is a list of dicts; convert with skl2onnx's options={{'zipmap': False}}", "tensor"
        )
    t = types.get(tensor)
    if t is None or not t.HasField("shape") or not _is_float(t):
        raise InputError(f"tensor={tensor!r}: expected floating-point numbers of a known shape", "tensor")
    dims = tuple(d.dim_value or d.dim_param or f"size_{i}" for i, d in enumerate(t.shape.dim))
    axis = _axis(dims, ending, calibrator, tensor)
    one_column = k == 2 and (len(dims) == 1 or dims[axis] == 1)
    if not one_column and (len(dims) < 2 or dims[axis] not in (k, *(d for d in dims if isinstance(d, str)))):
        raise InputError(f"tensor={tensor!r}: expected {k} classes, got the shape {dims}", "tensor")
    return Place(tensor, tensor, output, DTYPES[t.elem_type], dims, axis, one_column)


def _is_float(t: Any) -> bool:
    return "float" in DTYPES.get(t.elem_type, "")


def _axis(dims: tuple[int | str, ...], ending: Any, calibrator: Any, tensor: str) -> int:
    """Axis of the classes, from the end: that of the Softmax, of the fit, or the only one of this size."""
    if len(dims) < 3:
        return -1
    fit_axis = getattr(getattr(calibrator, "read_", None), "axis", None)
    like_k = [i for i, size in enumerate(dims) if i and size == calibrator.n_features_in_]
    if ending is not None and ending.op_type == "Softmax":
        axis = next((a.i for a in ending.attribute if a.name == "axis"), -1)
    elif fit_axis is not None or len(like_k) == 1:
        axis = like_k[0] if fit_axis is None else fit_axis
    else:
        raise InputError(
            f"tensor={tensor!r}: several of its {len(dims)} axes may be the classes. Use axis=… in fit.", "tensor"
        )
    return int(axis if axis < 0 else axis - len(dims))


def _splice(model: Any, place: Place, calibrator: Any) -> None:
    """Add the nodes of the map, and the output that they make."""
    graph = model.graph
    trace = _Trace(_opset(model), calibrator.n_features_in_, calibrator.map_.double or place.dtype == "float64")
    x = _Traced(trace, place.reads, place.dtype)
    order = list(range(len(place.dims)))
    order.append(order.pop(place.axis))  # classes last, and back at the end
    x = x if place.axis == -1 else trace.node("Transpose", x, perm=order)
    dims = list(place.dims)
    if place.one_column:
        column = trace.node("Reshape", x, np.array([-1, 1])) if len(dims) == 1 else x
        x = trace.concat([1 - column if calibrator.map_.input == "probs" else column * 0, column], axis=-1)
        dims = [*dims, 1] if len(dims) == 1 else dims
        dims[place.axis] = 2
    probs = trace.astype(_traced(trace, x, calibrator, place, graph), place.dtype)
    if "16" in place.dtype and not calibrator.map_.independent:
        probs = settled(probs, x, trace)
    if place.axis != -1:
        probs = trace.node("Transpose", probs, perm=np.argsort(order).tolist())
    trace.nodes.append(onnx.helper.make_node("Identity", [probs.name], [OUTPUT], name=f"attemper/{OUTPUT}"))
    if trace.uses_ml and not any(o.domain == "ai.onnx.ml" for o in model.opset_import):
        model.opset_import.append(onnx.helper.make_opsetid("ai.onnx.ml", 2))
    graph.node.extend(trace.nodes)
    graph.initializer.extend(trace.constants)
    info = onnx.helper.make_tensor_value_info(OUTPUT, NUMBERS[place.dtype], dims)
    outputs = [info if o.name == place.output else o for o in graph.output]
    outputs = [*outputs, info] if place.output is None else outputs
    if not calibrator.map_.keeps_arg_max:  # the model's own predictions may be others
        outputs = [o for o in outputs if o is info or not _is_prediction(o.type.tensor_type, len(dims) - 1)]
    del graph.output[:]
    graph.output.extend(outputs)
    used = {name for node in graph.node for name in node.input} | {o.name for o in graph.output}
    for node in [n for n in graph.node if n.op_type in ("Softmax", "Sigmoid") and not used.intersection(n.output)]:
        graph.node.remove(node)
    facts = {"version": __version__, "method": calibrator.method, "classes": json.dumps(calibrator.classes_.tolist())}
    for key, value in facts.items():
        model.metadata_props.add(key=f"attemper.{key}", value=value)


def _is_prediction(t: Any, n_axes: int) -> bool:
    """Whether an output has one whole number, or text, for each row or pixel."""
    whole = onnx.helper.tensor_dtype_to_np_dtype(t.elem_type).kind in "iuO"
    return bool(whole and len(t.shape.dim) == n_axes)


def _traced(trace: _Trace, x: _Traced, calibrator: Any, place: Place, graph: Any) -> Any:
    """Run the map on a traced array; of groups, temper its log-probabilities by the group of each row."""
    groups = getattr(calibrator, "groups_", None)
    fitted = calibrator.map_ if groups is None else calibrator.common_.map_
    arrays = {n: a.astype(trace.wide) if a.dtype.kind == "f" else a for n, a in fitted.arrays().items()}
    if fitted.input == "logits" and not fitted.independent and not getattr(calibrator, "unmasked_", False):
        x = masks_as_inf(x)
    made = fitted.evaluate(trace.astype(x, trace.wide), arrays, trace, log=groups is not None)
    if groups is None:
        return made
    if len(place.dims) != 2:
        raise InputError(
            "calibrator: with groups, only a tensor N×K can be calibrated; use map_of(group)", "calibrator"
        )
    ids, text = list(groups.group), isinstance(groups.group[0], str)
    info = onnx.helper.make_tensor_value_info(GROUP, onnx.TensorProto.STRING if text else 7, ["batch"])
    graph.input.append(info)
    keys = {"keys_strings" if text else "keys_int64s": ids}
    scale = trace.op(
        "LabelEncoder", GROUP, domain="ai.onnx.ml", values_floats=[1 / r for r in groups.temperature_ratio],
        default_float=1.0, **keys,
    )  # fmt: skip
    trace.uses_ml = True
    z = made * trace.astype(trace.node("Reshape", _Traced(trace, scale, "float32"), np.array([-1, 1])), trace.wide)
    z = trace.where(made == -np.inf, made, z)
    tilt = getattr(calibrator, "tilt_", None)
    return normalised(z if tilt is None else z + np.asarray(tilt), trace, log=False)


def _free(graph: Any, name: str) -> dict[str, str]:
    """Give a tensor of this name another one, so that the name is free; return both."""
    if name in {i.name for i in graph.input}:
        raise InputError(f"model: an input has the name {name!r}; rename it", "model")
    for node in graph.node:
        for names in (node.input, node.output):
            for i, own in enumerate(names):
                names[i] = f"uncalibrated_{name}" if own == name else own
    for info in (*graph.output, *graph.value_info):
        info.name = f"uncalibrated_{name}" if info.name == name else info.name
    return {name: f"uncalibrated_{name}"}


# The check


def _difference(model: Any, place: Place, calibrator: Any) -> float | None:
    """Run the model on made-up input; return the largest difference of a probability from NumPy's."""
    feeds = {i.name: _made_up(i.type.tensor_type, place, calibrator, i.name) for i in model.graph.input}
    constants = {t.name for t in model.graph.initializer}
    try:
        h, found = _run(model, [place.reads, OUTPUT], {name: x for name, x in feeds.items() if name not in constants})
    except Exception as error:  # onnxruntime has a dozen of its own
        warn(f"the model was not checked: it does not run on random input ({' '.join(str(error).split())[:200]})")
        return None
    h, found = (np.moveaxis(a.astype(np.float64), place.axis, -1) for a in (h, found))
    rows = h.reshape(-1, 1 if h.ndim == 1 else h.shape[-1])
    _refuse(rows, place, calibrator)
    rows = two_columns(rows, calibrator.map_.input) if rows.shape[1] == 1 and calibrator.n_features_in_ == 2 else rows
    more = {"groups": feeds[GROUP]} if hasattr(calibrator, "groups_") else {}
    good = np.isfinite(rows).all(axis=1)
    if not good.all() or not len(rows):
        warn("the model was not checked: random input gives numbers that are not finite")
        return None
    difference = float(np.abs(found.reshape(rows.shape) - calibrator.predict_proba(rows, **more)).max())
    if not difference <= TOLERANCE.get(place.dtype, 1e-5):
        raise InputError(f"model: the result differs from NumPy's by {difference:.1e}, so nothing was written", "model")
    return difference


def _refuse(rows: NDArray[Any], place: Place, calibrator: Any) -> None:
    """Refuse probabilities for a map of logits, and logits for one of probabilities."""
    inside = bool(((rows >= -ROOM) & (rows <= 1 + ROOM)).all())
    alone = calibrator.map_.independent or rows.shape[1] == 1
    are_probs = inside and (rows.size >= 16 if alone else bool((np.abs(rows.sum(axis=1) - 1) <= ROOM).all()))
    if calibrator.map_.input == "logits" and are_probs:
        raise InputError(
            f"tensor={place.name!r}: it holds probabilities, but the calibrator takes logits. Name the tensor of the "
            "logits, or fit to probabilities: input='probs'.",
            "tensor",
        )
    if calibrator.map_.input == "probs" and not are_probs and not (alone and inside):
        raise InputError(f"tensor={place.name!r}: expected probabilities, which the calibrator takes", "tensor")


def _made_up(t: Any, place: Place, calibrator: Any, name: str) -> NDArray[Any]:
    """Sixteen samples: normal numbers, small whole ones, groups; for a map alone logits or probabilities."""
    rng = np.random.default_rng(0)
    if name == GROUP and hasattr(calibrator, "groups_"):
        return np.resize(np.array(calibrator.groups_.group), 16).astype(object if t.elem_type == 8 else np.int64)
    shape = [d.dim_value if d.dim_value > 0 else (16 if n == 0 else 8) for n, d in enumerate(t.shape.dim)]
    dtype = onnx.helper.tensor_dtype_to_np_dtype(t.elem_type)
    if dtype.kind in "biu":
        return rng.integers(0, 2, size=shape).astype(dtype)
    x = 4 * rng.normal(size=shape) if name == place.reads else rng.normal(size=shape)
    if name == place.reads and calibrator.map_.input == "probs":
        x = np.exp(x) / (np.exp(x).sum(axis=-1, keepdims=True) + calibrator.map_.independent)
    return np.asarray(x.astype(dtype))


def _run(model: Any, names: list[str], feeds: dict[str, Any]) -> list[NDArray[Any]]:
    """Return tensors of a model, be they outputs or not."""
    ort: Any = require("onnxruntime", extra="onnx", why="to check ONNX models")
    shown = onnx.ModelProto()
    shown.CopyFrom(model)
    others = set(names) - {o.name for o in model.graph.output} - set(feeds)
    shown.graph.output.extend(onnx.ValueInfoProto(name=name) for name in others)
    options = ort.SessionOptions()
    options.log_severity_level = 4
    session = ort.InferenceSession(shown.SerializeToString(), options, providers=["CPUExecutionProvider"])
    asked = [name for name in names if name not in feeds]
    found = dict(zip(asked, session.run(asked, feeds)))
    return [np.asarray(feeds[name] if name in feeds else found[name]) for name in names]


def _write(model: Any, path: Path, tensor: str, difference: float | None) -> Export:
    if not path.parent.is_dir():
        raise FileError(f"{path}: there is no folder {path.parent}")
    large = model.ByteSize() > MAX_BYTES
    if not large:
        onnx.checker.check_model(model)
    onnx.save_model(model, path, save_as_external_data=large, location=f"{path.name}.data" if large else None)
    return Export(str(path), tensor, difference)


# scikit-learn


def _classifier_to_onnx(classifier: Any, path: Path) -> Export:
    """Write a CalibratedClassifier whole: the estimator by skl2onnx, then the map, then the label."""
    skl2onnx: Any = require("skl2onnx", extra="onnx", why="to write scikit-learn models as ONNX")
    fitted = classifier.estimator_
    fitted = getattr(fitted, "estimator", fitted) if type(fitted).__name__ == "FrozenEstimator" else fitted
    steps = [step for _, step in fitted.steps] if hasattr(fitted, "steps") else [fitted]
    raw = classifier.response_method_ == "decision_function"
    n_features = next(s.n_features_in_ for s in (classifier, *steps) if hasattr(s, "n_features_in_"))
    x = skl2onnx.common.data_types.FloatTensorType([None, n_features])
    options = {id(steps[-1]): {"zipmap": False} | ({"raw_scores": True} if raw else {})}
    try:
        model = skl2onnx.convert_sklearn(
            fitted, initial_types=[("X", x)], options=options, target_opset={"": OPSET, "ai.onnx.ml": 3}
        )
    except Exception as error:
        known = skl2onnx.supported_converters()
        bad = [type(s).__name__ for s in steps if f"Sklearn{type(s).__name__}" not in known] or [
            type(steps[-1]).__name__
        ]
        why = " ".join(str(error.__cause__ or error).split())[:200]
        raise InputError(f"estimator: skl2onnx cannot convert {listed(bad)} ({why})", "estimator") from None
    others = [o for o in model.opset_import if o.domain not in ("", "ai.onnx")]
    del model.opset_import[:]  # it names the least that its nodes need
    model.opset_import.extend([onnx.helper.make_opsetid("", OPSET), *others])
    sample = np.random.default_rng(0).normal(size=(64, n_features)).astype(np.float32)
    _free(model.graph, OUTPUT)
    _free(model.graph, "label")
    name = model.graph.output[1].name
    response = np.asarray(getattr(fitted, classifier.response_method_)(sample))
    scores = _run(model, [name], {"X": sample})[0]
    if response.ndim == 1 and scores.ndim == 2 and scores.shape[1] == 2:  # of two classes the second is enough
        model.graph.initializer.append(onnx.numpy_helper.from_array(np.array([1]), "second"))
        model.graph.node.append(onnx.helper.make_node("Gather", [name, "second"], ["scores"], axis=1))
        name, scores = "scores", scores[:, 1]
    difference = np.abs(scores.reshape(response.shape) - response) / (1 + np.abs(response))
    if np.median(difference) > 1e-4:
        raise InputError(
            f"estimator: what skl2onnx wrote differs from scikit-learn by {difference.max():.1e}", "estimator"
        )
    del model.graph.output[:]
    calibrator = classifier.calibrator_
    types = _types(model) | {name: onnx.helper.make_tensor_type_proto(1, ["batch", *scores.shape[1:]]).tensor_type}
    place = _find(model.graph, types, calibrator, name)
    _splice(model, place, calibrator)
    classes = classifier.classes_
    whole = classes.dtype.kind in "biu"
    names = classes.astype(np.int64) if whole else np.array([str(c) for c in classes], dtype=object)
    model.graph.initializer.append(onnx.numpy_helper.from_array(names, "attemper/classes"))
    model.graph.node.append(onnx.helper.make_node("ArgMax", [OUTPUT], ["attemper/class"], axis=-1, keepdims=0))
    model.graph.node.append(onnx.helper.make_node("Gather", ["attemper/classes", "attemper/class"], ["label"]))
    kind = onnx.TensorProto.INT64 if whole else onnx.TensorProto.STRING
    model.graph.output.insert(0, onnx.helper.make_tensor_value_info("label", kind, ["batch"]))
    return _write(model, path, name, _difference(model, place, calibrator))


# The tracer


def _operator(kind: str) -> tuple[Any, Any]:
    """Return an operator of a tensor, and the reflected one: b − a for a."""
    return lambda own, other: own.trace.node(kind, own, other), lambda own, other: own.trace.node(kind, other, own)


def _function(kind: str) -> Any:
    """Return a function of one tensor, or of a constant."""
    of_constant = getattr(np, kind.lower())
    return lambda trace, x: trace.node(kind, x) if isinstance(x, _Traced) else of_constant(x)


def _reduction(kind: str, axes_are_input_from: int = 18) -> Any:
    """Return a function over the classes, or over the axis of a constant."""
    of_constant = getattr(np, kind.removeprefix("Reduce").lower())

    def reduce(trace: _Trace, x: Any, *, axis: int = -1, keepdims: bool = False) -> Any:
        if not isinstance(x, _Traced):
            return of_constant(x, axis=axis, keepdims=keepdims)
        if axis != -1 or not keepdims:
            raise InputError(f"calibrator: {kind} can be written over axis=-1, with keepdims=True", "calibrator")
        if kind == "ArgMax":
            return _Traced(trace, trace.op(kind, x.name, axis=-1, keepdims=1), "int64")
        if trace.opset >= axes_are_input_from:
            return _Traced(trace, trace.op(kind, x.name, trace.constant(np.array([-1])), keepdims=1), x.dtype)
        return _Traced(trace, trace.op(kind, x.name, axes=[-1], keepdims=1), x.dtype)

    return reduce


class _Traced:
    """A tensor of the graph that is made, in the place of an array; the classes are its last axis."""

    __array_ufunc__ = None  # NumPy leaves operators to this class
    device = "cpu"

    def __init__(self, trace: _Trace, name: str, dtype: str) -> None:
        self.trace, self.name, self.dtype, self.shape = trace, name, dtype, (-1, trace.n_classes)

    def __array_namespace__(self, api_version: str | None = None) -> _Trace:
        return self.trace

    def __getitem__(self, index: Any) -> _Traced:
        cut = index[1] if isinstance(index, tuple) and len(index) == 2 and index[0] is Ellipsis else None
        if not isinstance(cut, slice) or cut.step not in (None, 1):
            raise InputError(f"calibrator: of [{index}] only x[..., start:stop] can be written as ONNX", "calibrator")
        ends = (np.array([i]) for i in (cut.start or 0, (1 << 62) if cut.stop is None else cut.stop, -1))
        return _Traced(self.trace, self.trace.op("Slice", self.name, *map(self.trace.constant, ends)), self.dtype)

    __add__, __radd__ = _operator("Add")
    __sub__, __rsub__ = _operator("Sub")
    __mul__, __rmul__ = _operator("Mul")
    __truediv__, __rtruediv__ = _operator("Div")
    __floordiv__, __rfloordiv__ = _operator("Div")  # of whole numbers: cut off, the same where none is negative
    __pow__, __rpow__ = _operator("Pow")
    __and__, __rand__ = _operator("And")
    __or__, __ror__ = _operator("Or")
    __lt__, __gt__ = _operator("Less")
    __eq__, _ = _operator("Equal")
    __hash__ = None  # type: ignore[assignment]

    def __ne__(self, other: Any) -> Any:
        return ~(self == other)

    def __le__(self, other: Any) -> Any:
        return ~(self > other)

    def __ge__(self, other: Any) -> Any:
        return ~(self < other)

    def __invert__(self) -> Any:
        return self.trace.node("Not", self)

    def __neg__(self) -> Any:
        return self.trace.node("Neg", self)

    def __bool__(self) -> bool:
        raise InputError("calibrator: a branch on values cannot be written as ONNX; use xp.where", "calibrator")


class _Trace:
    """Nodes and constants in the making, and the functions of the array API that maps use."""

    __name__ = "attemper.onnx"
    inf = np.inf
    float16, bfloat16, float32, float64, int64, bool = "float16", "bfloat16", "float32", "float64", "int64", "bool"

    def __init__(self, opset: int, n_classes: int, double: Any) -> None:
        self.nodes: list[Any] = []
        self.constants: list[Any] = []
        self.opset, self.n_classes, self.uses_ml = opset, n_classes, False
        self.wide = "float64" if double else "float32"
        self._known: dict[Any, str] = {}

    def op(self, kind: str, *inputs: str, **attributes: Any) -> str:
        key = (kind, *inputs, *sorted((k, str(v)) for k, v in attributes.items()))
        if key not in self._known:
            self._known[key] = out = f"attemper/{kind}_{len(self.nodes)}"
            self.nodes.append(onnx.helper.make_node(kind, list(inputs), [out], name=out, **attributes))
        return self._known[key]

    def constant(self, array: NDArray[Any]) -> str:
        key = (array.tobytes(), array.shape, str(array.dtype))
        if key not in self._known:
            self._known[key] = f"attemper/constant_{len(self.constants)}"
            self.constants.append(
                onnx.numpy_helper.from_array(np.ascontiguousarray(array).reshape(array.shape), self._known[key])
            )
        return self._known[key]

    def node(self, kind: str, *values: Any, dtype: str | None = None, **attributes: Any) -> Any:
        compares = kind in ("Equal", "Less", "And", "Or", "Not")
        own = dtype or next(v.dtype for v in values if isinstance(v, _Traced) and (v.dtype != "bool" or compares))
        names = [v.name if isinstance(v, _Traced) else self.constant(self._constant(v, kind, own)) for v in values]
        return _Traced(self, self.op(kind, *names, **attributes), "bool" if compares else own)

    def _constant(self, value: Any, kind: str, own: str) -> NDArray[Any]:
        return np.asarray(value, dtype=np.int64 if kind == "Reshape" else np.bool_ if kind in ("And", "Or") else own)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise InputError(f"calibrator: xp.{name} cannot be written as ONNX", "calibrator")

    def __array_namespace_info__(self) -> Any:
        return SimpleNamespace(dtypes=lambda **_: {"float32": "float32", self.wide: self.wide})

    def isdtype(self, dtype: str, kind: str) -> Any:
        return "float" in dtype and kind == "real floating"

    def finfo(self, dtype: str) -> Any:
        return np.finfo(dtype)

    def asarray(self, value: Any, *, dtype: str | None = None, device: Any = None) -> Any:
        return value if isinstance(value, _Traced) else np.asarray(value, dtype=dtype)

    def astype(self, x: Any, dtype: str) -> Any:
        if not isinstance(x, _Traced):
            return np.asarray(x).astype(dtype)
        return x if x.dtype == dtype else _Traced(self, self.op("Cast", x.name, to=NUMBERS[dtype]), dtype)

    def full_like(self, x: Any, value: float) -> Any:
        return np.asarray(value, dtype=str(x.dtype))

    def zeros_like(self, x: Any) -> Any:
        return self.full_like(x, 0)

    def ones_like(self, x: Any) -> Any:
        return self.full_like(x, 1)

    def broadcast_to(self, x: Any, shape: Any) -> Any:
        return x

    def reshape(self, x: Any, shape: Any) -> Any:
        return x if isinstance(x, _Traced) or -1 in shape[:1] else np.reshape(x, shape)

    def arange(self, n: int, *, device: Any = None) -> Any:
        return np.arange(n)

    def take(self, table: Any, index: Any, *, axis: int = 0) -> Any:
        if not isinstance(index, _Traced):
            return np.take(table, index, axis=axis)
        return _Traced(self, self.op("Gather", self.constant(table), index.name), str(table.dtype))

    def concat(self, arrays: list[Any], *, axis: int) -> Any:
        return _Traced(self, self.op("Concat", *(a.name for a in arrays), axis=-1), arrays[0].dtype)

    def where(self, condition: Any, one: Any, other: Any) -> Any:
        if not any(isinstance(v, _Traced) for v in (condition, one, other)):
            return np.where(condition, one, other)
        if not isinstance(condition, _Traced):
            condition = _Traced(self, self.constant(np.asarray(condition, dtype=np.bool_)), "bool")
        return self.node(
            "Where", condition, one, other, dtype=next(str(v.dtype) for v in (one, other) if hasattr(v, "dtype"))
        )

    def matmul(self, x: Any, matrix: Any) -> Any:
        return self.node("MatMul", x, matrix)

    exp, log, abs = (_function(kind) for kind in ("Exp", "Log", "Abs"))
    max = _reduction("ReduceMax")
    sum, argmax = _reduction("ReduceSum", OPSET), _reduction("ArgMax")

    def maximum(self, x: Any, y: Any) -> Any:
        return self.where(x > y, x, y)

    def minimum(self, x: Any, y: Any) -> Any:
        return self.where(x < y, x, y)

    def log1p(self, x: Any) -> Any:
        return self.log(x + 1)

    def isfinite(self, x: Any) -> Any:
        return self.abs(x) < np.inf

    def clip(self, x: Any, least: float, most: float) -> Any:
        return self.minimum(self.maximum(x, self.full_like(x, least)), self.full_like(x, most))

    def any(self, x: Any, *, axis: int, keepdims: Any) -> Any:
        return self.max(self.astype(x, "float32"), axis=axis, keepdims=keepdims) > 0.5

    def all(self, x: Any, *, axis: int, keepdims: Any) -> Any:
        return ~self.any(~x, axis=axis, keepdims=keepdims)
