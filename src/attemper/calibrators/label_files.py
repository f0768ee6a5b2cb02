"""A `MultiLabelCalibrator` as a JSON document, and back; everything is checked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from attemper._json import Fields, from_fields, to_fields
from attemper.calibrators.base import Calibrator
from attemper.calibrators.fit_report import FitReport
from attemper.calibrators.provenance import Provenance
from attemper.calibrators.registry import METHODS
from attemper.errors import FileError
from attemper.maps import LabelMap, SigmoidMap, map_from_fields

if TYPE_CHECKING:
    from attemper.calibrators.multilabel import MultiLabelCalibrator

__all__ = ["LabelFit", "contents_of", "document_of"]


class LabelFit(NamedTuple):
    """What the fit of one label was made of: ``labels_`` of a `MultiLabelCalibrator`."""

    name: str
    n_known: float  # sums of weights
    n_positive: float
    own_share: float | None  # pooled: how far its curve depends on its own samples; 0: it is the common one
    note: str = ""


def document_of(
    calibrator: MultiLabelCalibrator, base: Calibrator | None, provenance: Provenance | None
) -> dict[str, Any]:
    """Return what a file holds; ``base`` is the calibrator of single labels, None where they are pooled."""
    common = calibrator.common_
    content: dict[str, Any] = {
        "method": calibrator.method_name,
        "params": None if base is None else {name: _plain(getattr(base, name)) for name in base.own_params()},
        "input": calibrator.input,
        "zeros_as": calibrator.zeros_as,
        "label_names": calibrator.label_names_.tolist(),
        "uncertain": calibrator.uncertain,
        "map": calibrator.map_.to_dict(),
        "common": None if common is None else common.to_dict(),
        "heldout_gain": calibrator.heldout_gain_,
        "thresholds": calibrator.checked_thresholds().tolist(),
        "labels": [to_fields(fit) for fit in calibrator.labels_],
        "report": to_fields(calibrator.fit_report_),
    }
    return content if provenance is None else content | {"provenance": to_fields(provenance)}


def contents_of(content: Fields) -> tuple[list[str], dict[str, Any], dict[str, Any]]:
    """Return names of the labels, parameters and fitted attributes of a calibrator."""
    names = list(content.read("label_names", tuple[str, ...]))
    if not names or len(set(names)) != len(names):
        raise FileError(f"{content.where}: the field 'label_names' must hold names, each once")
    kind: Any = content.read("input", Literal["logits", "probs"])
    zeros_as = content.read("zeros_as", float | None)
    map_ = map_from_fields(content.fields("map"))
    if not isinstance(map_, LabelMap) or map_.n_classes != len(names):
        raise FileError(f"{content.where}: expected a map of {len(names)} labels, got {map_!r}")
    if map_.of_probs != (kind == "probs") or map_.zeros_as != zeros_as:
        raise FileError(f"{content.where}: 'input' and 'zeros_as' are not those of the map in this file")
    common = None if content.content.get("common") is None else map_from_fields(content.fields("common"))
    if not isinstance(common, SigmoidMap | None):
        raise FileError(f"{content.where}: the field 'common' must hold a map of type 'sigmoid'")
    labels = list(content.read("labels", tuple[LabelFit, ...]))
    if [fit.name for fit in labels] != names:
        raise FileError(f"{content.where}: the field 'labels' must have one entry for each label, in their order")
    thresholds = content.array("thresholds", (len(names),))
    if not ((thresholds >= 0) & (thresholds <= 1)).all():
        raise FileError(f"{content.where}: the field 'thresholds' holds a number that is not between 0 and 1")
    fitted = {
        "map_": map_,
        "common_": common,
        "labels_": labels,
        "thresholds_": thresholds,
        "heldout_gain_": content.read("heldout_gain", float | None),
        "fit_report_": from_fields(FitReport, content.fields("report")),
    }
    if "provenance" in content:
        fitted["provenance_"] = from_fields(Provenance, content.fields("provenance"))
    uncertain = content.read("uncertain", float | str | None)
    return names, {"method": _method_of(content), "input": kind, "zeros_as": zeros_as, "uncertain": uncertain}, fitted


def _method_of(content: Fields) -> Any:
    """Return "pooled", the name of a method, or a calibrator where its parameters are not the defaults."""
    method = content.text("method")
    if method == "pooled":
        return method
    if method not in METHODS:
        raise FileError(f"{content.where}: the method {method!r} is unknown; known are pooled, {', '.join(METHODS)}")
    params: dict[str, Any] = {
        k: tuple(v) if isinstance(v, list) else v for k, v in content.fields("params").content.items()
    }
    plain = METHODS[method]()
    if set(params) - set(plain.own_params()):
        raise FileError(f"{content.where}: params: expected {plain.own_params()}, got {list(params)}")
    same = all(_plain(getattr(plain, name)) == _plain(value) for name, value in params.items())
    return method if same else METHODS[method](**params)


def _plain(value: Any) -> Any:
    return np.asarray(value).tolist() if isinstance(value, np.ndarray | np.generic | tuple | list) else value
