"""Folding a map into the last linear layer of a torch model: no new node, no time at inference; and back."""

from __future__ import annotations

import warnings
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, softmax

from attemper._checks import same_classes
from attemper.calibrators.exportable import Exportable, Source, source_of
from attemper.errors import AttemperWarning, InputError, InputTypeError, require
from attemper.maps import Linear

torch: Any = require("torch", extra="torch", why="to fold a map into a layer")

__all__ = ["Folded", "fold_into_linear", "unfold"]

KEPT = "_attemper_unfolded"
INSTEAD = "use nn.Sequential(model, attemper.torch.to_torch(…)) instead"
# What single operations may differ by, relative to the size of the logits, before a check fails; but
# no probability by more than LARGEST.
TOLERANCE = {"float64": 1e-10, "float32": 1e-5, "float16": 1e-2, "bfloat16": 1e-1}
LARGEST = 0.05


class Folded(NamedTuple):
    """The result of folding: `fold_into_linear` returns it."""

    rounding: float  # largest change of a weight by rounding it to the layer's type, relative to the largest weight
    difference: float | None  # largest difference of a probability on the sample input; None: not compared


class Kept(NamedTuple):
    """What a layer was before it was folded, and what was folded into it."""

    weight: Any
    bias: Any
    linear: Linear


def fold_into_linear(layer: Any, calibration: Exportable, *, check: Any = None) -> Folded:
    """Fold a map into the weights of a layer, so that softmax of its output is calibrated.

    For a map of labels that do not exclude each other, it is the sigmoid of the output.

    The layer is an ``nn.Linear``, or a convolution (1×1 or any other) whose channels are the classes. A scale or affine
    map fits in. The layer gets new parameters; the old ones are kept beside them, in no ``state_dict``, for `unfold`;
    whoever shares them (tied embeddings) keeps them. A bias is made where the map needs one.

    A ``state_dict`` of a folded layer holds the folded weights: loaded elsewhere, they are calibrated, and cannot be
    unfolded there. If a bias was made the layer there must have one.

    Parameters
    ----------
    layer : torch.nn.Linear, Conv1d, Conv2d or Conv3d
    calibration : fitted calibrator, map, or path of a saved map
    check : tensor, optional
        Sample input of the layer. Probabilities before and after are compared; if they disagree that is an error, and
        the layer is as it was.

    Examples
    --------
    >>> import torch
    >>> from attemper import ScaleMap
    >>> layer = torch.nn.Linear(3, 2)
    >>> before = layer(torch.ones(1, 3))
    >>> fold_into_linear(layer, ScaleMap(0.5)).rounding
    0.0
    >>> bool((layer(torch.ones(1, 3)) == before / 2).all())
    True
    """
    source = source_of(calibration)
    _check_layer(layer, source)
    linear = source.linear(INSTEAD)
    if linear.matrix.ndim == 2 and getattr(layer, "groups", 1) != 1:
        raise InputError(f"a convolution of {layer.groups} groups: a matrix of all classes does not fit in; {INSTEAD}")
    weight, bias = layer._parameters["weight"], layer._parameters["bias"]
    new_weight, new_bias = _folded(weight, bias, linear)
    rounding = _rounding(weight, linear, new_weight, new_bias)
    difference = None
    expected = None if check is None else _probabilities(layer, source, check)
    _set(layer, new_weight, new_bias)
    if expected is not None:
        try:
            difference = _compared(layer, source, check, expected)
        except BaseException:
            layer._parameters["weight"], layer._parameters["bias"] = weight, bias
            raise
    setattr(layer, KEPT, Kept(weight, bias, linear))
    if weight.dtype in (torch.float16, torch.bfloat16):
        warnings.warn(
            f"the folded weights are rounded to {weight.dtype}: by {rounding:.1e} of the largest at most. "
            "to_torch computes in single precision.",
            AttemperWarning,
            stacklevel=2,
        )
    return Folded(rounding, difference)


def unfold(layer: Any) -> None:
    """Undo `fold_into_linear`: a folded layer gets its own parameters back, the same objects, the same bytes.

    It is an error if the layer's weights are no longer what folding made of them, by training or by loading others. If
    the model has moved or changed its type since, so do the parameters, as new objects.
    """
    kept: Kept | None = getattr(layer, KEPT, None)
    if kept is None:
        raise InputError(
            f"this {type(layer).__name__} was not folded here, so there is nothing to go back to; a folded layer that "
            "was saved and loaded by its state_dict holds the folded weights alone"
        )
    now = layer._parameters["weight"], layer._parameters["bias"]
    for is_now, was in zip(now, _folded(kept.weight, kept.bias, kept.linear)):
        if not _alike(is_now, was):
            raise InputError(
                "the weights have changed since they were folded, by training, rounding or loading others; going back "
                f"would lose that. To go back all the same: copy the weights, del layer.{KEPT}."
            )
    for name, parameter in (("weight", kept.weight), ("bias", kept.bias)):
        if parameter is not None and (parameter.dtype, parameter.device) != (now[0].dtype, now[0].device):
            parameter = torch.nn.Parameter(parameter.data.to(now[0]), requires_grad=parameter.requires_grad)
        layer._parameters[name] = parameter
    delattr(layer, KEPT)


def _alike(one: Any, other: Any) -> bool:
    """Return whether weights are the same, in the type that the model was brought to meanwhile."""
    if one is None or other is None:
        return one is other
    return one.shape == other.shape and bool((one == other.to(one)).all())


def _check_layer(layer: Any, source: Source) -> None:
    nn = torch.nn
    if not isinstance(layer, nn.Linear | nn.Conv1d | nn.Conv2d | nn.Conv3d) or isinstance(layer, nn.LazyLinear):
        raise InputTypeError(
            f"expected the layer that gives the logits, nn.Linear or a convolution, got {type(layer).__name__}. "
            f"For other layers {INSTEAD}."
        )
    if hasattr(layer, KEPT):
        raise InputError("this layer has absorbed a map already; unfold(layer) first")
    weight = layer._parameters.get("weight")
    if weight is None or "bias" not in layer._parameters:
        raise InputError(f"this layer's weight is made from other parameters (a parametrization); {INSTEAD}")
    if not weight.is_floating_point() or weight.device.type == "meta":
        raise InputError(f"weights of type {weight.dtype} on device {weight.device} cannot be folded; {INSTEAD}")
    same_classes(source.n_classes, weight.shape[0], of="the map", where="the layer")
    if not all(bool(p.isfinite().all()) for p in layer._parameters.values() if p is not None):
        raise InputError(f"this layer's weights are not all finite; a masked class cannot be folded. {INSTEAD}")


def _numpy(tensor: Any) -> NDArray[np.float64]:
    return np.asarray(tensor.detach().to("cpu", torch.float64).numpy())


def _folded(weight: Any, bias: Any, linear: Linear) -> tuple[Any, Any]:
    """Fold in double precision, on the CPU, and round once."""
    new_weight = linear.of_rows(_numpy(weight))
    new_bias = linear.of_bias(None if bias is None else _numpy(bias))
    return tuple(
        None if v is None else torch.from_numpy(v).to(weight.device, weight.dtype) for v in (new_weight, new_bias)
    )  # type: ignore[return-value]


def _rounding(weight: Any, linear: Linear, rounded: Any, bias: Any) -> float:
    exact = linear.of_rows(_numpy(weight))
    if not all(bool(p.isfinite().all()) for p in (rounded, bias) if p is not None):
        raise InputError(f"the folded weights are too large for {weight.dtype}; {INSTEAD}")
    return float(np.abs(_numpy(rounded) - exact).max() / max(np.abs(exact).max(), 1e-300))


def _set(layer: Any, weight: Any, bias: Any) -> None:
    old, old_bias = layer._parameters["weight"], layer._parameters["bias"]
    layer._parameters["weight"] = torch.nn.Parameter(weight, requires_grad=old.requires_grad)
    if bias is not None:
        trained = (old if old_bias is None else old_bias).requires_grad
        layer._parameters["bias"] = torch.nn.Parameter(bias, requires_grad=trained)


def _rows(layer: Any, sample: Any) -> NDArray[np.float64]:
    """Logits that the layer gives for the sample, N×K."""
    with torch.no_grad():
        h = _numpy(layer(sample))
    if not isinstance(layer, torch.nn.Linear):
        h = np.moveaxis(h, -layer.weight.ndim + 1, -1)  # channels, before as many axes as the kernel has
    return h.reshape(-1, h.shape[-1])


def _probabilities(layer: Any, source: Source, sample: Any) -> tuple[NDArray[np.float64], float]:
    h = _rows(layer, sample)
    return np.asarray(source.map.apply(h)), float(np.abs(h).max(initial=1.0))


def _compared(layer: Any, source: Source, sample: Any, expected: tuple[NDArray[np.float64], float]) -> float:
    z = _rows(layer, sample)
    p = expit(z) if source.map.independent else softmax(z, axis=1)
    difference = float(np.abs(p - expected[0]).max(initial=0.0))
    allowed = min(TOLERANCE[str(layer.weight.dtype).removeprefix("torch.")] * expected[1], LARGEST)
    if not difference <= allowed:
        raise InputError(
            "the folded layer gives other probabilities on the sample input: the largest difference is "
            f"{difference:.1e}, more than the {allowed:.1e} of rounding. The layer is as it was; {INSTEAD}"
        )
    return difference
