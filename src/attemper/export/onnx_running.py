"""A calibrated graph, run with onnxruntime and held against NumPy: the map, applied to what the model itself gives."""

from __future__ import annotations

import importlib.util
import threading
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from attemper.arrays import log_probs
from attemper.errors import InputError, require
from attemper.export.onnx_files import MAX_RANK, brief, count, external_files
from attemper.export.onnx_graph import Gives, Place
from attemper.export.onnx_sizes import too_large
from attemper.export.source import Source

onnx: Any = require("onnx", extra="onnx", why="to read and write ONNX models")

__all__ = ["Ran", "compare_with_numpy", "feeds_for", "run_model"]

SECONDS = 60.0  # that the model may take; the time limit of a model that never ends
MAX_INPUT = 1 << 26  # elements
MAX_EXTERNAL = 4 << 30  # bytes beside a model that is run unasked: it is loaded twice, one after the other
MAX_TOLERANCE = 0.05  # of a probability, however large the logits are
TOLERANCE = {1: 1e-5, 10: 2e-3, 11: 1e-9, 16: 2e-2}
DEFAULT_SIZE = 8  # of a dimension that is left open, other than the first


class Ran(NamedTuple):
    """What running the model showed: the largest difference of a probability, or why there is none."""

    difference: float | None
    why_not: str = ""


def compare_with_numpy(
    original: Any,
    calibrated: Any,
    folder: Path | None,
    source: Source,
    place: Place,
    result: tuple[str, Gives],
    *,
    feeds: dict[str, NDArray[Any]] | None = None,
    folded: bool = False,
) -> Ran:
    """Run both models on the same input; an error if the calibrated one disagrees with NumPy."""
    if importlib.util.find_spec("onnxruntime") is None:
        return Ran(None, "onnxruntime is not installed")
    name, gives = result
    beside = [] if folder is None else [folder / file for file in external_files(original)]
    size = sum(path.stat().st_size for path in beside)
    if feeds is None and size > MAX_EXTERNAL:
        return Ran(None, f"its tensors have {size / 2**30:.0f} GiB; give check={{…}}, inputs, to run it all the same")
    made_up = feeds is None
    try:
        if feeds is None:
            feeds = feeds_for(original)
            why = too_large(original, feeds)
            if why:
                return Ran(None, f"{why}; give check={{…}}, inputs, to run it all the same")
        h = run_model(original, place.reads, place.elem_type, feeds, folder)
        found = run_model(calibrated, name, place.elem_type, feeds, folder)
    except _NotRunError as error:
        return Ran(None, str(error))
    rows = np.moveaxis(h.astype(np.float64), place.axis, -1).reshape(-1, h.shape[place.axis])
    if place.holds == "probs":
        rows = log_probs(rows, source.floor)
    if (
        np.isnan(rows).any()
        or (rows.max(axis=1, initial=-np.inf) == np.inf).any()
        or (rows == -np.inf).all(axis=1).any()
    ):
        whose = "made-up input" if made_up else "the input in check"
        return Ran(
            None, f"{whose} gives {place.reads!r} that are not finite; give check={{…}}, inputs that fit the model"
        )
    if place.holds == "logits" and source.takes_probs:
        rows = rows - rows.max(axis=1, keepdims=True)
        rows = rows - np.log(np.exp(rows).sum(axis=1, keepdims=True))
        rows = rows if source.floor is None else log_probs(np.exp(rows), source.floor)
    if source.n_classes not in (None, rows.shape[1]):
        raise InputError(f"{place.reads!r} has {rows.shape[1]} classes, but the map is for {source.n_classes}")
    expected = source.map.apply(rows)
    p = np.moveaxis(found.astype(np.float64), place.axis, -1).reshape(rows.shape)
    if gives == "logits":
        p = np.exp(p - p.max(axis=1, keepdims=True))
        p /= p.sum(axis=1, keepdims=True)
    elif gives == "log_probs":
        p = np.exp(p)
    difference = float(np.abs(p - expected).max(initial=0.0))
    finite = np.abs(rows[np.isfinite(rows)]).max(initial=1.0)
    allowed = TOLERANCE[place.elem_type] * (1 + float(finite) if folded or gives == "logits" else 1.0)
    allowed = min(allowed, MAX_TOLERANCE)
    if not difference <= allowed:
        raise InputError(
            f"the calibrated model disagrees with NumPy: the largest difference of a probability is {difference:.1e}, "
            f"more than the {allowed:.1e} of rounding; nothing was written. Please report this."
        )
    return Ran(difference)


class _NotRunError(Exception):
    """Why a model could not be run; it may want other input than could be made up for it."""


def feeds_for(model: Any) -> dict[str, NDArray[Any]]:
    """Make up input: two samples, normal numbers, small whole ones."""
    rng = np.random.default_rng(0)
    constants = {t.name for t in model.graph.initializer}
    feeds: dict[str, NDArray[Any]] = {}
    for i in model.graph.input:
        if i.name in constants:
            continue
        t = i.type.tensor_type
        if not i.type.HasField("tensor_type") or not t.HasField("shape"):
            raise _NotRunError(f"the shape of the input {i.name!r} is not told")
        if len(t.shape.dim) > MAX_RANK:
            raise _NotRunError(f"the input {i.name!r} has {len(t.shape.dim)} dimensions, too many to try")
        shape = [d.dim_value if d.dim_value > 0 else (2 if n == 0 else DEFAULT_SIZE) for n, d in enumerate(t.shape.dim)]
        if count(shape) > MAX_INPUT:
            raise _NotRunError(f"the input {i.name!r} of shape {brief(shape)} is too large to try")
        dtype = onnx.helper.tensor_dtype_to_np_dtype(t.elem_type)
        if dtype.kind == "b":
            feeds[i.name] = np.ones(shape, dtype=bool)
        elif dtype.kind in "iu":
            feeds[i.name] = rng.integers(0, 2, size=shape).astype(dtype)
        elif dtype.kind in "fV":
            feeds[i.name] = rng.normal(size=shape).astype(dtype)
        else:
            raise _NotRunError(f"the input {i.name!r} is of type {dtype}")
    return feeds


def run_model(
    model: Any, name: str, elem_type: int, feeds: dict[str, NDArray[Any]], folder: Path | None
) -> NDArray[Any]:
    """Return one tensor of a model, be it an output or not."""
    import onnxruntime as ort

    if name not in {o.name for o in model.graph.output}:
        extended = onnx.ModelProto()
        extended.CopyFrom(model)
        extended.graph.output.append(onnx.helper.make_tensor_value_info(name, elem_type, None))
        model = extended
    options = ort.SessionOptions()
    options.log_severity_level = 4
    # What was written is run, and nothing of it is computed while it is loaded.
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    if folder is not None and external_files(model):
        options.add_session_config_entry("session.model_external_initializers_file_folder_path", str(folder.resolve()))
    run = ort.RunOptions()
    timer = threading.Timer(SECONDS, lambda: setattr(run, "terminate", True))
    timer.daemon = True
    try:
        session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        timer.start()
        return np.asarray(session.run([name], feeds, run)[0])
    except Exception as error:  # onnxruntime has a dozen of its own
        if getattr(run, "terminate", False):
            raise _NotRunError(f"it took more than {SECONDS:.0f} s") from None
        raise _NotRunError("onnxruntime says: " + " ".join(str(error).split())[:200]) from None
    finally:
        timer.cancel()
