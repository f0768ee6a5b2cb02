"""Sample weights: whether the classifier inside is given them too.

With scikit-learn's metadata routing (``sklearn.set_config(enable_metadata_routing=True)``) it is as the classifier asks
with ``set_fit_request``, through a `Pipeline` as well. Without, its ``fit`` has a parameter ``sample_weight`` or not.
"""

from __future__ import annotations

from typing import Any

from sklearn import get_config
from sklearn.utils.metadata_routing import MetadataRouter, MethodMapping, process_routing
from sklearn.utils.validation import has_fit_parameter

from attemper.arrays import Floats

__all__ = ["is_routed", "router", "takes_weights"]


def is_routed() -> bool:
    """Tell whether metadata routing is enabled."""
    return bool(get_config()["enable_metadata_routing"])


def router(wrapper: Any) -> Any:
    """Weights are for the calibrator, which is a part of the wrapper, and for the classifier."""
    to_fit = MethodMapping().add(caller="fit", callee="fit")
    return (
        MetadataRouter(owner=wrapper).add_self_request(wrapper).add(estimator=wrapper.estimator, method_mapping=to_fit)
    )


def takes_weights(wrapper: Any, w: Floats) -> bool:
    """Tell whether the classifier is to be given weights; one that was not asked is an error of scikit-learn's."""
    if is_routed():
        return "sample_weight" in process_routing(wrapper, "fit", sample_weight=w).estimator.fit
    return bool(has_fit_parameter(wrapper.estimator, "sample_weight"))
