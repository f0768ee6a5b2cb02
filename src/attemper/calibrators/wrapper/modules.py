"""What a torch module says of its inputs: batch by batch, in eval mode, without gradients.

torch is never imported here: whoever has a module has imported it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import chain
from typing import Any

import numpy as np

from attemper.arrays import to_numpy
from attemper.errors import InputError, InputTypeError
from attemper.scores import Kind

__all__ = ["is_batched", "is_module", "respond_to_batches"]


def is_module(estimator: Any) -> bool:
    """Whether this is a ``torch.nn.Module``.

    >>> is_module("a module")
    False
    """
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(estimator, torch.nn.Module)


def is_batched(X: Any) -> bool:
    """Whether ``X`` is a loader (anything that yields batches) rather than an array or a tensor."""
    return not hasattr(X, "__array__")


def respond_to_batches(
    module: Any, X: Any, kind: Kind, *, batch_size: int, select: Callable[[Any], Any] | None
) -> tuple[Any, Any]:
    """Return the outputs of all rows, one column per class, and the labels that a loader yields (None without).

    Outputs are tensors on the device of the inputs; a NumPy array for anything else than tensors.
    """
    torch: Any = sys.modules["torch"]
    place = next(chain(module.parameters(), module.buffers()), None)
    outputs, labels = [], []
    with _evaluating(module), torch.no_grad():
        for inputs, label in _batches(torch, X, batch_size):
            home = next(iter(inputs.values())).device if isinstance(inputs, Mapping) else inputs.device
            found = _call(torch, module, inputs, place)
            found = found if select is None else select(found)
            if not isinstance(found, torch.Tensor):
                raise InputTypeError(
                    f"{type(module).__name__} gives {_a(found)}; expected a tensor with one row per sample. Say which "
                    "part of it holds the scores, such as select=lambda out: out.logits"
                )
            outputs.append(_both_columns(torch, found, kind).to(home))
            labels.append(label)
    if not outputs:
        raise InputError(
            "X: the loader gives no batch" if is_batched(X) else "X: 0 sample(s) while a minimum of 1 is required"
        )
    values = torch.cat(outputs)
    known = not any(label is None for label in labels)
    told = np.concatenate([np.atleast_1d(to_numpy(label)) for label in labels]) if known else None
    return (values if is_batched(X) or isinstance(X, torch.Tensor) else to_numpy(values)), told


@contextmanager
def _evaluating(module: Any) -> Iterator[None]:
    """Eval mode while it lasts; then every part in the mode it was in, for parts may have been frozen apart."""
    before = [(part, part.training) for part in module.modules()]
    module.eval()
    try:
        yield
    finally:
        for part, training in before:
            part.training = training


def _batches(torch: Any, X: Any, batch_size: int) -> Iterator[tuple[Any, Any]]:
    if is_batched(X):
        if not hasattr(X, "__iter__"):
            raise InputTypeError(
                f"X: {_a(X)} came; expected a tensor, an array, or a loader that yields (inputs, labels)"
            )
        for batch in X:
            pair = isinstance(batch, tuple | list) and len(batch) > 0
            inputs = batch[0] if pair else batch
            if not isinstance(inputs, torch.Tensor) and not (isinstance(inputs, Mapping) and len(inputs)):
                raise InputTypeError(
                    f"X: a batch holds {_a(inputs)}; expected batches (inputs, labels) with a tensor of inputs, or "
                    "a dict of tensors. A list of numbers must be an array: np.asarray(X)."
                )
            yield inputs, batch[1] if pair and len(batch) > 1 else None
        return
    if not isinstance(batch_size, int | np.integer) or batch_size < 1:
        raise InputError(f"batch_size={batch_size!r}: expected a positive number of rows")
    rows = X if isinstance(X, torch.Tensor) else np.asarray(X)
    if rows.ndim < 1:
        raise InputError("X: a single number came; expected one row per sample")
    for first in range(0, len(rows), batch_size):
        part = rows[first : first + batch_size]
        yield (part if isinstance(part, torch.Tensor) else torch.tensor(part)), None


def _call(torch: Any, module: Any, inputs: Any, place: Any) -> Any:
    def bring(value: Any) -> Any:
        if place is None or not isinstance(value, torch.Tensor):
            return value
        # NumPy's floats are double precision, modules seldom are; whole numbers (tokens) stay what they are.
        both = value.is_floating_point() and place.is_floating_point()
        return value.to(place.device, place.dtype) if both else value.to(place.device)

    return module(**{k: bring(v) for k, v in inputs.items()}) if isinstance(inputs, Mapping) else module(bring(inputs))


def _both_columns(torch: Any, values: Any, kind: Kind) -> Any:
    """One output is the log-odds (or the probability) of class 1 of 2: write class 0 beside it."""
    if values.ndim > 2 or (values.ndim == 2 and values.shape[1] != 1):
        return values
    positive = values.reshape(-1)
    return torch.stack([1 - positive if kind == "probs" else torch.zeros_like(positive), positive], dim=1)


def _a(thing: Any) -> str:
    return f"an object of type {type(thing).__name__}"
