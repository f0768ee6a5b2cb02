"""What is exported: a fitted calibrator, a bare map, or the file of one, seen alike by every target."""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import dataclass, field
from typing import Any

from attemper._paths import as_path, sha256_of
from attemper._version import __version__
from attemper.calibrators import CalibratedClassifier, Calibrator, MultiLabelCalibrator, load
from attemper.errors import InputError, InputTypeError, listed
from attemper.maps import Map

__all__ = ["Exportable", "Source", "source_of"]

Exportable = Calibrator | MultiLabelCalibrator | Map | str | os.PathLike[str]


@dataclass(frozen=True)
class Source:
    """A map, what it takes, and where it comes from."""

    map: Map
    takes_probs: bool = False
    zeros_as: float | None = None  # with probabilities: what smaller ones are read as
    n_classes: int | None = None
    facts: dict[str, str] = field(default_factory=dict)  # the provenance, as text


def source_of(given: Exportable) -> Source:
    """Look at what is to be exported."""
    if isinstance(given, str | os.PathLike):
        return _of_calibrator(load(given), sha256_of(as_path(given)))
    if isinstance(given, Map):
        return Source(given, n_classes=given.n_classes, facts=_facts(given))
    if isinstance(given, Calibrator | MultiLabelCalibrator):
        return _of_calibrator(given._check_is_fitted())
    if isinstance(given, CalibratedClassifier):
        raise InputTypeError("a CalibratedClassifier holds a classifier as well; export its calibrator_")
    raise InputTypeError(f"expected a fitted calibrator, a map, or the path of a saved map, got {type(given).__name__}")


def _of_calibrator(calibrator: Calibrator | MultiLabelCalibrator, digest: str | None = None) -> Source:
    if isinstance(calibrator, Calibrator) and hasattr(calibrator, "group_maps_"):
        use = "calibrator.for_group(…)"
        raise InputError(
            f"expected one map, got those of {len(calibrator.group_maps_)} groups "
            f"({listed(map(str, calibrator.group_maps_))}) and the common one. Use {use} with one of them, or 'common'."
        )
    facts = _facts(calibrator.map_, digest)
    report = calibrator.fit_report_
    names: Any
    if isinstance(calibrator, MultiLabelCalibrator):
        method, names = f"multilabel {calibrator.method_name}", calibrator.label_names_
    else:
        method, names = calibrator.method, None if calibrator.class_names is None else calibrator.classes_
    facts |= {
        "method": method,
        "n_samples": str(report.n_samples),
        "n_classes": str(calibrator.n_features_in_),
        "nll": repr(report.nll),
        "input": calibrator.input,
    }
    if names is not None:
        facts["classes"] = json.dumps(names.tolist(), ensure_ascii=False)
    if hasattr(calibrator, "group_"):
        facts["group"] = calibrator.group_
    temperature = None if "group" in facts else calibrator.summary().get("temperature")
    if temperature is not None:
        facts["temperature"] = repr(float(temperature))
    provenance = getattr(calibrator, "provenance_", None)
    if provenance is not None:
        facts["fitted_at"] = provenance.fitted_at
        if provenance.files:
            facts["data"] = json.dumps([file._asdict() for file in provenance.files], ensure_ascii=False)
    return Source(
        calibrator.map_,
        calibrator.input == "probs",
        calibrator.zeros_as,
        int(calibrator.n_features_in_),
        facts,
    )


def _facts(exported: Map, digest: str | None = None) -> dict[str, Any]:
    content = exported.to_dict()
    if digest is None:  # no file: the map itself, as it would be written
        digest = hashlib.sha256(json.dumps(content, separators=(",", ":")).encode()).hexdigest()
    return {"version": __version__, "map": content["type"], "map_sha256": digest}
