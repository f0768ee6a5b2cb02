"""A calibrated graph, run with onnxruntime and held against NumPy: the map, applied to what the model itself gives."""

from __future__ import annotations

import importlib.util
import json
import math
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, log_softmax, softmax

from attemper._checks import same_classes
from attemper.calibrators.exportable import Source
from attemper.data.arrays import log_probs
from attemper.errors import FileError, InputError, require
from attemper.maps import OutputKind
from attemper.onnx import child
from attemper.onnx.child import LIMITS, Limits
from attemper.onnx.files import external_files
from attemper.onnx.graph import Place

onnx: Any = require("onnx", extra="onnx", why="to read and write ONNX models")

__all__ = ["Ran", "compare_with_numpy", "feeds_for", "run_models", "start_child"]

MAX_INPUT = 1 << 26  # elements
MAX_OUTPUT = 1 << 27
MAX_RANK = 64
COPIES = 4  # of the weights, at most, while onnxruntime loads a model
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
    result: tuple[str, OutputKind],
    *,
    feeds: dict[str, NDArray[Any]] | None = None,
    folded: bool = False,
    limits: Limits = LIMITS,
) -> Ran:
    """Run both models on the same input; an error if they fail, or if the calibrated one disagrees with NumPy."""
    if importlib.util.find_spec("onnxruntime") is None:
        return Ran(None, "onnxruntime is not installed; use pip install onnxruntime for this check")
    name, kind = result
    beside = [] if folder is None else [folder / file for file in external_files(original)]
    size = sum(path.stat().st_size for path in beside)
    if feeds is None and size > MAX_EXTERNAL:
        return Ran(None, f"its tensors have {size / 2**30:.0f} GiB; pass check={{…}} to run it")
    whose, why_not = ("made-up input", "") if feeds is None else ("the input in check", "")
    models = [(original, place.reads), (calibrated, name)]
    try:
        feeds = feeds_for(original) if feeds is None else feeds
    except _NotRunError as error:  # it is loaded all the same
        why_not = str(error)
    try:
        arrays = run_models(models, place.elem_type, feeds, folder if beside else None, size, limits)
    except _NotRunError as error:
        return Ran(None, str(error))
    except _FailedError as error:
        why, instead = error.args
        raise InputError(
            f"the model does not run on {whose}: {why}. Nothing was written. Use {instead}, or "
            f"check=False to write it without running it.",
            param="check",
        ) from None
    if why_not:
        return Ran(None, why_not)
    h, found = arrays
    if h.ndim < -place.axis or h.shape[place.axis] == 0 or found.shape != h.shape:
        raise InputError(
            f"{place.reads!r} has shape {list(h.shape)} and {name!r}, calibrated, {list(found.shape)}; expected the "
            f"same shape, with one class or more on axis {place.axis}. Nothing was written."
        )
    rows = np.moveaxis(h.astype(np.float64), place.axis, -1).reshape(-1, h.shape[place.axis])
    if place.holds == "probs":
        rows = log_probs(rows, source.zeros_as)
    if (
        np.isnan(rows).any()
        or (rows.max(axis=1, initial=-np.inf) == np.inf).any()
        or (rows == -np.inf).all(axis=1).any()
    ):
        return Ran(
            None, f"{whose} gives {place.reads!r} that are not finite; pass check={{…}} with inputs that fit the model"
        )
    if place.holds == "logits" and source.takes_probs:
        rows = -np.logaddexp(0, -rows) if source.map.independent else log_softmax(rows, axis=1)
        rows = rows if source.zeros_as is None else log_probs(np.exp(rows), source.zeros_as)
    same_classes(source.n_classes, rows.shape[1], of="the map", where=repr(place.reads))
    expected = source.map.apply(rows)
    p = np.moveaxis(found.astype(np.float64), place.axis, -1).reshape(rows.shape)
    if kind == "logits":
        p = expit(p) if source.map.independent else softmax(p, axis=1)
    elif kind == "log_probs":
        p = np.exp(p)
    difference = float(np.abs(p - expected).max(initial=0.0))
    finite = np.abs(rows[np.isfinite(rows)]).max(initial=1.0)
    allowed = TOLERANCE[place.elem_type] * (1 + float(finite) if folded or kind == "logits" else 1.0)
    allowed = min(allowed, MAX_TOLERANCE)
    if not difference <= allowed:
        raise InputError(
            f"the calibrated model disagrees with NumPy: the largest difference of a probability is {difference:.1e}, "
            f"more than the {allowed:.1e} of rounding; nothing was written. Please report this."
        )
    return Ran(difference)


class _NotRunError(Exception):
    """Why a model was not run: no input could be made up for it, or this onnxruntime has no operator for it."""


class _FailedError(Exception):
    """Why running a model failed, and what to use instead."""


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
            raise _NotRunError(f"the shape of the input {i.name!r} is not specified")
        if len(t.shape.dim) > MAX_RANK:
            raise _NotRunError(f"the input {i.name!r} has {len(t.shape.dim)} dimensions, too many to try")
        shape = [d.dim_value if d.dim_value > 0 else (2 if n == 0 else DEFAULT_SIZE) for n, d in enumerate(t.shape.dim)]
        if math.prod(shape) > MAX_INPUT:
            raise _NotRunError(f"the input {i.name!r} of shape {shape} is too large to try")
        dtype = onnx.helper.tensor_dtype_to_np_dtype(t.elem_type)
        if dtype.kind == "b":
            feeds[i.name] = np.ones(shape, dtype=bool)
        elif dtype.kind in "iu":
            feeds[i.name] = rng.integers(0, 2, size=shape).astype(dtype)
        elif dtype.kind == "f":
            feeds[i.name] = rng.normal(size=shape).astype(dtype)
        else:
            raise _NotRunError(f"the input {i.name!r} is of type {dtype}")
    return feeds


def run_models(
    models: list[tuple[Any, str]],
    elem_type: int,
    feeds: dict[str, NDArray[Any]] | None,
    external: Path | None,
    external_size: int,
    limits: Limits,
) -> list[NDArray[Any]]:
    """Return one tensor of each model, be it an output or not; without input the models are only loaded."""
    for name, array in (feeds or {}).items():
        if np.asarray(array).dtype.kind not in "biufcSU":
            raise InputError(
                f"check: the input {name!r} is of type {np.asarray(array).dtype}; expected numbers or text"
            )
    job = {
        "inputs": None if feeds is None else list(feeds),
        "outputs": [name for _, name in models],
        "external": None if external is None else str(external.resolve()),
        "max_size": MAX_OUTPUT,
        "memory": int(limits.memory * 2**30) + COPIES * (external_size + max(model.ByteSize() for model, _ in models)),
        "seconds": limits.timeout,
    }
    try:
        with tempfile.TemporaryDirectory(prefix="attemper-") as name:
            folder = Path(name)
            (folder / "job.json").write_text(json.dumps(job), encoding="utf-8")
            for i, array in enumerate((feeds or {}).values()):
                np.save(folder / f"input{i}.npy", array, allow_pickle=False)
            for i, (model, tensor) in enumerate(models):
                (folder / f"model{i}.onnx").write_bytes(_with_output(model, tensor, elem_type).SerializeToString())
            _check_result(folder, job, start_child(folder, job))
            return [np.load(file, allow_pickle=False) for file in sorted(folder.glob("output*.npy"))]
    except OSError as error:
        raise FileError(f"the model cannot be run in a temporary folder: {error}") from None


def start_child(folder: Path, job: dict[str, Any]) -> int:
    """Run `child` on the job in this folder; return its exit status."""
    settings = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}  # what can be imported here can be there
    settings |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}  # each thread reserves memory
    try:
        return subprocess.run(
            [sys.executable, "-P", child.__file__, str(folder)],
            env={**os.environ, **settings},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=job["seconds"],
            check=False,
        ).returncode
    except subprocess.TimeoutExpired:
        longer = "a longer check_timeout=…"
        raise _FailedError(f"it takes more than {job['seconds']:g} s", longer) from None


def _check_result(folder: Path, job: dict[str, Any], status: int) -> None:
    """Raise what went wrong in the child."""
    more = f"more than {job['memory'] / 2**30:.1f} GiB of memory"
    larger = "a larger check_memory=…"
    result = folder / "result.json"
    if not result.is_file():
        raise _FailedError(f"onnxruntime crashed (exit status {status}), for example if it takes {more}", larger)
    failure = json.loads(result.read_text(encoding="utf-8"))
    if failure is None:
        return
    kind, text = failure
    text = re.sub(r"^\[ONNXRuntimeError\] : \d+ : ", "", text)[:300].rstrip(". ")
    if kind in ("NotImplemented", "OverflowError"):
        raise _NotRunError(text)
    if kind == "MemoryError" or "alloc" in text:  # std::bad_alloc, and onnxruntime's own words for it
        raise _FailedError(f"it takes {more}", larger)
    raise _FailedError(text, "check={…} with input that fits the model (in Python)")


def _with_output(model: Any, name: str, elem_type: int) -> Any:
    if name in {o.name for o in model.graph.output}:
        return model
    extended = onnx.ModelProto()
    extended.CopyFrom(model)
    extended.graph.output.append(onnx.helper.make_tensor_value_info(name, elem_type, None))
    return extended
