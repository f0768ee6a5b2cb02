"""How a network is run: batch by batch, in the modes that are asked for; then it is left as it was found.

torch is imported when a network is used, not with this module.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import chain
from typing import Any

import array_api_compat
import numpy as np

from attemper._checks import whole
from attemper.data.arrays import row_slices
from attemper.errors import InputError, InputTypeError, require

__all__ = [
    "Stream",
    "batches",
    "call",
    "dropping",
    "example_of",
    "generators",
    "is_loader",
    "kept",
    "modes",
    "placed",
    "torch_module",
]


def torch_module() -> Any:
    """Return torch, or raise an error with how to install it."""
    return require("torch", extra="torch", why="to run networks")


def is_loader(X: Any) -> bool:
    """Whether ``X`` yields batches, rather than being an array or a tensor."""
    return not hasattr(X, "__array__")


# Batches


def batches(
    X: Any, batch_size: int | None, *, unpack: Callable[[Any], Any] | None = None, named: bool = False
) -> Iterator[tuple[Any, Any]]:
    """Yield inputs and labels (or None): of an array some rows at a time, of a loader its batches.

    ``unpack`` makes a batch an input, or input and labels; ``named``: the batches of a loader may be dicts of tensors.
    """
    if not is_loader(X):
        rows = X if array_api_compat.is_torch_array(X) else np.asarray(X)
        if rows.ndim == 0 or not len(rows):
            raise InputError(f"X: expected one row per sample, and at least one, got shape {tuple(rows.shape)}")
        for part in row_slices(len(rows), 1, len(rows) if batch_size is None else whole("batch_size", batch_size)):
            yield rows[part], None
        return
    if isinstance(X, Mapping | str | bytes) or not isinstance(X, Iterable):
        raise InputTypeError(
            f"X: expected a tensor, an array, or a loader that yields (inputs, labels), got {type(X).__name__}"
        )
    for batch in X:
        inputs, labels = batch if unpack is None else unpack(batch), None
        if isinstance(inputs, tuple | list) and inputs:
            inputs, labels = inputs[0], inputs[1] if len(inputs) > 1 else None
        is_dict = isinstance(inputs, Mapping)
        if example_of(inputs) is None or (is_dict and not named and unpack is None):
            raise InputTypeError(
                f"X: expected a batch whose input is a tensor or an array, got {type(inputs).__name__}. For other "
                "batches use unpack=, such as unpack=lambda b: (b['image'], b['label'])."
            )
        yield inputs, labels


def example_of(inputs: Any) -> Any:
    """Return an array of the input, to make the result like it; None if there is none."""
    values = inputs.values() if isinstance(inputs, Mapping) else [inputs]
    return next(filter(_is_array, values), None)


def _is_array(value: Any) -> bool:
    return isinstance(value, np.ndarray) or array_api_compat.is_torch_array(value)


def placed(inputs: Any, model: Any, *, cast: bool = False) -> Any:
    """Bring the input of a batch to where the model is.

    NumPy's floats come in the model's precision, as double precision is seldom meant; with ``cast`` tensors do too.
    Whole numbers, such as tokens, stay what they are.
    """
    if isinstance(inputs, Mapping):
        return {key: placed(value, model, cast=cast) for key, value in inputs.items()}
    if not _is_array(inputs):
        return inputs
    weights = list(chain(model.parameters(), model.buffers()))
    if isinstance(inputs, np.ndarray):
        inputs, cast = torch_module().tensor(np.ascontiguousarray(inputs)), True
    dtype = next((w.dtype for w in weights if w.is_floating_point()), None)
    if cast and inputs.is_floating_point() and dtype is not None:
        inputs = inputs.to(dtype)
    return inputs.to(weights[0].device) if weights else inputs


def call(model: Any, inputs: Any, select: Callable[[Any], Any] | None) -> Any:
    """Run one pass and take the scores out of what it returns.

    The model gets a copy of its input, since a layer may work in place.
    """
    if isinstance(inputs, Mapping):
        output = model(**{key: value.clone() if _is_array(value) else value for key, value in inputs.items()})
    else:
        output = model(inputs.clone())
    output = output if select is None else select(output)
    if not array_api_compat.is_torch_array(output):
        raise InputTypeError(
            f"{type(model).__name__}: expected an N×K tensor, got {type(output).__name__}. Use select=, such as "
            "select=lambda out: out['logits'] or select=lambda out: out.logits."
        )
    return output


# What is random, and what is put back


def dropping(model: Any, layers: tuple[type, ...]) -> set[Any]:
    """Find the modules that drop in training: torch's own and those of the types ``layers``.

    None whose rate is 0, so that a rate of 0 changes nothing, whatever paths a mode opens or shuts.
    """
    nn = torch_module().nn
    modules = list(model.modules())
    for layer in layers:
        if not (isinstance(layer, type) and any(isinstance(module, layer) for module in modules)):
            raise InputError(f"layers: the model has no module of the type {getattr(layer, '__name__', repr(layer))}")
    rates = {module: _rate(nn, module) for module in modules}
    active = {module for module, rate in rates.items() if rate or isinstance(module, layers)}
    if not active and all(rate is None for rate in rates.values()):
        raise InputError(
            f"model: {type(model).__name__} has no dropout layer, so that all passes would be the same. If it drops in "
            "a module of its own, use that module's type: layers=(MyDropout,)"
        )
    # In evaluation this layer takes a fused path that knows no dropout at all.
    fused = (module for module in modules if isinstance(module, nn.TransformerEncoderLayer))
    return active | {layer for layer in fused if not active.isdisjoint(layer.modules())}


def _rate(nn: Any, module: Any) -> float | None:
    """Rate of a layer that torch knows to drop; None if it is no such layer."""
    if isinstance(module, nn.modules.dropout._DropoutNd):
        return float(module.p)
    if isinstance(module, nn.MultiheadAttention | nn.RNNBase) and module.dropout:
        return float(module.dropout)
    return None


@contextmanager
def modes(models: Iterable[Any], active: set[Any]) -> Iterator[None]:
    """Run ``active`` as in training and all else as in evaluation; then all as before.

    The flag is set by hand, module by module: ``train()`` reaches the children, and may be overridden.
    """
    before = {module: module.training for model in set(models) for module in model.modules()}
    try:
        for module in before:
            module.training = module in active
        yield
    finally:
        for module, flag in before.items():
            module.training = flag


def generators() -> list[Any]:
    """Return the sources of torch's global random numbers that are in use.

    ``torch.manual_seed`` is no way to them: it would also seed a GPU that is first used later.
    """
    torch = torch_module()
    return [torch.default_generator, *(torch.cuda.default_generators if torch.cuda.is_initialized() else ())]


@contextmanager
def kept(generators: list[Any]) -> Iterator[None]:
    """Put the random numbers back to where they were."""
    before = [generator.get_state() for generator in generators]
    try:
        yield
    finally:
        for generator, state in zip(generators, before):
            generator.set_state(state)


class Stream:
    """Random numbers of the passes alone, which go on from batch to batch."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.states: list[Any] | None = None

    @contextmanager
    def flowing(self, generators: list[Any]) -> Iterator[None]:
        """Draw from this stream; what draws outside of it never notices."""
        with kept(generators):
            for i, generator in enumerate(generators):
                if self.states is None:
                    generator.manual_seed(self.seed)
                else:
                    generator.set_state(self.states[i])
            yield
            self.states = [generator.get_state() for generator in generators]
