"""Prediction sets in an ONNX model: a boolean output beside the calibrated probabilities."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import array_api_compat.numpy as array_api
import numpy as np
from numpy.typing import NDArray

from attemper._checks import same_classes
from attemper.calibrators.exportable import Exportable, source_of
from attemper.errors import InputError, require
from attemper.kernels.set_mask import SetRule
from attemper.onnx.calibrate import PREFIX, Export, feeds_of_map, map_to_onnx, onnx_calibrate, write_model
from attemper.onnx.graph import Graph
from attemper.onnx.trace import NAMES, Trace, Traced
from attemper.onnx.verify import Ran, feeds_for, run_model

onnx: Any = require("onnx", extra="onnx", why="to read and write ONNX models")

__all__ = ["SetExport", "sets_to_onnx"]

NEAR = 1e-4  # of a limit: rounding may decide there


@dataclass(frozen=True)
class SetExport:
    """A model with prediction sets: what `sets_to_onnx` returns."""

    model: Any = field(repr=False)  # onnx.ModelProto
    output: Path | None  # where it was written
    logits: str  # tensor that the map reads
    probabilities: str  # tensor of the calibrated probabilities
    sets: str  # tensor of truth values
    ran: Ran  # the largest difference of a probability, where the sets agree with NumPy too
    notes: tuple[str, ...] = ()


def sets_to_onnx(
    policy: Any,
    calibration: Exportable,
    output: str | os.PathLike[str] | None = None,
    *,
    model: Any = None,
    logits: str | None = None,
    group: Any = None,
) -> SetExport:
    """Return a model that gives calibrated probabilities, N×K, and ``sets``, True for each class that is in the set.

    Randomized sets cannot be exported, nor can APS and RAPS with thresholds by class.

    Parameters
    ----------
    policy : SetPolicy
    calibration : fitted calibrator, map, or path of a saved map
        The map whose probabilities the policy was fitted on.
    output : path, optional
        Where to write; without it the model is only returned.
    model : path or onnx.ModelProto, optional
        The classifier, whose output is N×K; by default the result takes logits, as a step of a pipeline.
    logits : name of the tensor that the map takes, as in `onnx_calibrate`
    group : of a policy with thresholds of groups: the one whose threshold is taken

    Examples
    --------
    >>> from attemper import ScaleMap
    >>> from attemper.decisions import SetPolicy
    >>> policy = SetPolicy("aps", 0.9, (0.75,), (99,), n_classes=3, n_samples=99)
    >>> made = sets_to_onnx(policy, ScaleMap(0.5))
    >>> made.logits, made.probabilities, made.sets
    ('logits', 'probabilities', 'sets')
    """
    rule = policy.exported(group)
    source = source_of(calibration)
    same_classes(source.n_classes, policy.n_classes, of="the map", where="the policy")
    if model is None:
        made = map_to_onnx(calibration, n_classes=policy.n_classes)
    else:
        made = onnx_calibrate(model, calibration, logits=logits, output_kind="probs")
    name = _add_sets(made, rule, policy.n_classes)
    for key, value in {"sets": name, "sets_coverage": repr(policy.coverage), "sets_score": rule.score}.items():
        made.model.metadata_props.add(key=PREFIX + key, value=value)
    if made.ran.difference is not None:
        own = feeds_for(made.model) if model is not None else None
        _compare(made, name, rule, own or feeds_of_map(made.logits, source.takes_probs, policy.n_classes))
    written = write_model(made.model, output)
    return SetExport(made.model, written, made.logits, made.tensor, name, made.ran, made.notes)


def _add_sets(made: Export, rule: SetRule, n_classes: int) -> str:
    """Add the nodes of the rule to a calibrated model; return the name of the new output."""
    graph = Graph(made.model, "the model")
    shape = graph.shape(made.tensor)
    if shape is not None and (len(shape) != 2 or shape[1] not in (None, n_classes)):
        raise InputError(f"{made.tensor!r} has shape {shape}; expected N×{n_classes}, as the policy has classes")
    taken, name = graph.names(), "sets"
    while name in taken:
        name += "_"
    elem_type = next(o for o in made.model.graph.output if o.name == made.tensor).type.tensor_type.elem_type
    trace = Trace(taken | {name}, graph.opset, -1, 2, n_classes)
    p = Traced(trace, made.tensor, NAMES[elem_type])
    wide = p if p.dtype == "float64" else trace.astype(p, "float32")
    trace.finish(rule.mask(wide, trace), name)
    g = made.model.graph
    g.node.extend(trace.nodes)
    g.initializer.extend(trace.constants)
    g.output.append(onnx.helper.make_tensor_value_info(name, onnx.TensorProto.BOOL, ["batch", n_classes]))
    return name


def _compare(made: Export, name: str, rule: SetRule, feeds: dict[str, NDArray[Any]]) -> None:
    """Run the model, and refuse sets that differ from those that NumPy finds in its own probabilities."""
    p, sets = (run_model(made.model, tensor, onnx.TensorProto.FLOAT, feeds) for tensor in (made.tensor, name))
    wrong = (sets != rule.mask(p.astype(np.float64), array_api)) & ~_near(p.astype(np.float64), rule)
    if wrong.any():
        row, column = np.argwhere(wrong)[0]
        raise InputError(
            f"the sets of the model disagree with NumPy: row {row}, column {column}; nothing was written. Please "
            "report this."
        )


def _near(p: NDArray[Any], rule: SetRule) -> NDArray[Any]:
    """Where a class is in the set or not depending on rounding."""
    less, more = (rule._replace(limits=tuple(t + by for t in rule.limits)) for by in (-NEAR, NEAR))
    return np.asarray(less.mask(p, array_api) != more.mask(p, array_api))
