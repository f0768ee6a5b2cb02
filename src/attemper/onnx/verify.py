"""A calibrated graph, run with onnxruntime and held against NumPy: the map, applied to what the model itself gives."""

from __future__ import annotations

import importlib.util
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, log_softmax, softmax

from attemper._checks import same_classes
from attemper.calibrators.exportable import Source
from attemper.data.arrays import log_probs
from attemper.errors import InputError, require
from attemper.maps import OutputKind
from attemper.onnx.graph import Place

onnx: Any = require("onnx", extra="onnx", why="to read and write ONNX models")

__all__ = ["MAX_BYTES", "Ran", "compare_with_numpy", "feeds_for", "run_model"]

MAX_BYTES = (1 << 31) - 1  # what a protobuf may be; larger models keep their tensors in a file beside it
TOLERANCE = {1: 1e-5, 10: 2e-3, 11: 1e-9, 16: 2e-2}
MAX_TOLERANCE = 0.05  # of a probability, however large the logits are
DEFAULT_SIZE = 8  # of a dimension that is left open, other than the first
ROOM = 1e-3  # by which probabilities may miss the sum of 1


class Ran(NamedTuple):
    """What running the model showed: the largest difference of a probability, or why there is none."""

    difference: float | None
    why_not: str = ""


def compare_with_numpy(
    original: Any,
    calibrated: Any,
    source: Source,
    place: Place,
    result: tuple[str, OutputKind],
    feeds: dict[str, NDArray[Any]] | None = None,
) -> Ran:
    """Run both models on the same input; an error if they fail, or if the calibrated one disagrees with NumPy."""
    if importlib.util.find_spec("onnxruntime") is None:
        return Ran(None, "onnxruntime is not installed; use pip install onnxruntime for this check")
    if calibrated.ByteSize() > MAX_BYTES:
        return Ran(None, "the model is over 2 GB; compare the file that was written")
    name, kind = result
    whose = "made-up input" if feeds is None else "the input in check"
    feeds = feeds_for(original) if feeds is None else feeds
    if feeds is None:
        return Ran(None, "no input could be made up; pass check={…}")
    try:
        h = run_model(original, place.reads, place.elem_type, feeds)
        found = run_model(calibrated, name, place.elem_type, feeds)
    except Exception as error:  # onnxruntime has a dozen of its own
        if type(error).__name__ == "NotImplemented":
            return Ran(None, str(error))
        raise InputError(
            f"the model does not run on {whose}: {error}. Use check={{…}} with input that fits the model, or "
            "check=False.",
            param="check",
        ) from None
    if h.ndim < -place.axis or h.shape[place.axis] == 0 or found.shape != h.shape:
        raise InputError(
            f"{place.reads!r} has shape {list(h.shape)} and {name!r}, calibrated, {list(found.shape)}; expected the "
            f"same shape, with one class or more on axis {place.axis}"
        )
    rows = np.moveaxis(h.astype(np.float64), place.axis, -1).reshape(-1, h.shape[place.axis])
    _reject_probabilities(rows, place, source)
    if place.holds == "probs":
        rows = log_probs(rows, source.zeros_as)
    top = rows.max(axis=1, initial=-np.inf)
    if np.isnan(rows).any() or np.isinf(top).any():
        return Ran(None, f"{whose} gives {place.reads!r} that are not finite; pass check={{…}} with other input")
    if place.holds == "logits" and source.takes_probs:
        rows = -np.logaddexp(0, -rows) if source.map.independent else log_softmax(rows, axis=1)
        rows = rows if source.zeros_as is None else log_probs(np.exp(rows), source.zeros_as)
    same_classes(source.n_classes, rows.shape[1], of="the map", where=repr(place.reads))
    p = np.moveaxis(found.astype(np.float64), place.axis, -1).reshape(rows.shape)
    if kind == "logits":
        p = expit(p) if source.map.independent else softmax(p, axis=1)
    elif kind == "log_probs":
        p = np.exp(p)
    difference = float(np.abs(p - source.map.apply(rows)).max(initial=0.0))
    size = float(np.abs(rows[np.isfinite(rows)]).max(initial=1.0))
    allowed = min(TOLERANCE[place.elem_type] * (1 + size if kind == "logits" else 1.0), MAX_TOLERANCE)
    if not difference <= allowed:
        raise InputError(
            f"the calibrated model disagrees with NumPy: the largest difference of a probability is {difference:.1e}, "
            f"more than the {allowed:.1e} of rounding; nothing was written. Please report this."
        )
    return Ran(difference)


def _reject_probabilities(rows: NDArray[np.float64], place: Place, source: Source) -> None:
    """Refuse a tensor that was named as logits and holds probabilities."""
    if not place.named or place.holds == "probs" or source.map.independent or rows.shape[1] < 2:
        return
    if rows.min(initial=1) >= 0 and rows.size and np.all(np.abs(rows.sum(axis=1) - 1) <= ROOM):
        raise InputError(
            f"{place.reads!r} holds probabilities, rows between 0 and 1 that sum to 1, but the map expects logits",
            param="logits",
        )


def feeds_for(model: Any) -> dict[str, NDArray[Any]] | None:
    """Make up input: two samples, normal numbers, small whole ones; None where that cannot be done."""
    rng = np.random.default_rng(0)
    constants = {t.name for t in model.graph.initializer}
    feeds: dict[str, NDArray[Any]] = {}
    for i in model.graph.input:
        if i.name in constants:
            continue
        t = i.type.tensor_type
        if not t.HasField("shape"):
            return None
        shape = [d.dim_value if d.dim_value > 0 else (2 if n == 0 else DEFAULT_SIZE) for n, d in enumerate(t.shape.dim)]
        dtype = onnx.helper.tensor_dtype_to_np_dtype(t.elem_type)
        if dtype.kind in "biu":
            feeds[i.name] = rng.integers(0, 2, size=shape).astype(dtype)
        elif dtype.kind == "f":
            feeds[i.name] = rng.normal(size=shape).astype(dtype)
        else:
            return None
    return feeds


def run_model(model: Any, name: str, elem_type: int, feeds: dict[str, NDArray[Any]]) -> NDArray[Any]:
    """Return one tensor of a model, be it an output or not."""
    import onnxruntime as ort

    if name not in {o.name for o in model.graph.output}:
        extended = onnx.ModelProto()
        extended.CopyFrom(model)
        extended.graph.output.append(onnx.helper.make_tensor_value_info(name, elem_type, None))
        model = extended
    options = ort.SessionOptions()
    options.log_severity_level = 4
    # What was written is run, not what an optimiser makes of it.
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return np.asarray(session.run([name], feeds)[0])
