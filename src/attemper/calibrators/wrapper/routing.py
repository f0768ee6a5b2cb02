"""What `fit` is given in addition to rows and labels, and where it goes: to the estimator, the splitter, or both.

With scikit-learn's metadata routing each of them requests what it takes. Without it, ``groups`` go to the splitter,
weights to an estimator whose ``fit`` has ``sample_weight``, and everything else to the estimator.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from sklearn import get_config
from sklearn.utils.metadata_routing import MetadataRouter, MethodMapping, process_routing
from sklearn.utils.validation import has_fit_parameter

from attemper._typing import Floats
from attemper.calibrators.wrapper.estimators import name_of
from attemper.calibrators.wrapper.rows import Rows, is_number_of_folds, take
from attemper.errors import InputError, warn

__all__ = ["Routed", "route", "router_of"]


class Routed(NamedTuple):
    """Parameters by the method that takes them."""

    fit: dict[str, Any]
    split: dict[str, Any]

    def of(self, rows: Rows, n: int) -> dict[str, Any]:
        """Return the parameters of ``fit`` for some of the n rows; what has no entry for each row stays whole."""
        return {name: take(value, rows) if _has_rows(value, n) else value for name, value in self.fit.items()}


def router_of(wrapper: Any) -> Any:
    """Declare to scikit-learn that the wrapper takes weights itself, and estimator and splitter what they request."""
    to_fit = MethodMapping().add(caller="fit", callee="fit")
    to_split = MethodMapping().add(caller="fit", callee="split")
    router = MetadataRouter(owner=wrapper).add_self_request(wrapper)
    return router.add(estimator=wrapper.estimator, method_mapping=to_fit).add(
        splitter=wrapper.cv, method_mapping=to_split
    )


def route(wrapper: Any, w: Floats | None, params: dict[str, Any]) -> Routed:
    """Send what was given to where it is asked for."""
    given = {name: value for name, value in params.items() if value is not None}
    if get_config()["enable_metadata_routing"]:
        if w is not None:
            given["sample_weight"] = w
        if not given:
            return Routed({}, {})
        found = process_routing(wrapper, "fit", **given)
        return Routed(dict(found.estimator.fit), dict(found.splitter.split))
    split = {name: given.pop(name) for name in ("groups",) if name in given}
    if split and (wrapper.cv is None or is_number_of_folds(wrapper.cv)):
        folds = wrapper.cv or 5
        raise InputError(
            f"groups: cv={wrapper.cv!r} makes stratified folds, which know no groups. Use cv=GroupKFold({folds}) or "
            f"cv=StratifiedGroupKFold({folds})."
        )
    if w is not None and has_fit_parameter(wrapper.estimator, "sample_weight"):
        given["sample_weight"] = w
    elif w is not None:
        warn(
            f"{name_of(wrapper.estimator)} takes no sample_weight: it is fitted with equal weights (rows of weight 0 "
            "left out), and only the calibration is weighted. Or fit it elsewhere, with its weights, and use "
            "cv='prefit'."
        )
    return Routed(given, split)


def reject_params(params: dict[str, Any], why: str) -> None:
    """Refuse parameters of a fit that will not be."""
    given = [name for name, value in params.items() if value is not None]
    if given:
        raise InputError(f"fit got {given[0]!r}, but {why}. Leave {given[0]} out.")


def _has_rows(value: Any, n: int) -> bool:
    """Whether a value has one entry for each of the n rows, as scikit-learn decides it."""
    if isinstance(value, str | bytes | dict):
        return False
    shape = getattr(value, "shape", None)
    try:
        return (shape[0] if shape else len(value)) == n
    except (TypeError, IndexError):
        return False
