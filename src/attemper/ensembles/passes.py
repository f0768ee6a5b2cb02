"""How a network is run again and again, and left as it was found.

torch is imported when a network is used, not with this module.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain
from types import SimpleNamespace
from typing import Any

import array_api_compat
import numpy as np

from attemper.errors import InputError, InputTypeError, require

__all__ = [
    "Stream",
    "batches",
    "described",
    "dropping",
    "generators_of",
    "is_array",
    "kept",
    "length",
    "modes",
    "place",
    "progress",
    "run",
    "seeded_only",
    "torch_module",
]

PATIENCE = 1.0  # seconds before a progress bar is worth showing


def torch_module() -> Any:
    """Return torch, or say how to get it."""
    return require("torch", extra="torch", why="to run networks")


def is_array(value: Any) -> bool:
    """Tell tensors and NumPy arrays from all else."""
    return isinstance(value, np.ndarray) or array_api_compat.is_torch_array(value)


def described(value: Any) -> str:
    """Name what came, for an error."""
    if isinstance(value, Mapping):
        return f"{type(value).__name__} with the keys {', '.join(map(repr, value))}"
    return type(value).__name__


# Batches


def batches(X: Any, batch_size: int | None) -> Iterator[Any]:
    """Cut an array into batches; take those of a loader as they come."""
    if isinstance(X, Mapping | str | bytes) or not (is_array(X) or isinstance(X, Iterable)):
        raise InputTypeError(f"X: {described(X)} came; expected a tensor, a NumPy array or an iterable of batches")
    if not is_array(X):
        yield from X
        return
    if X.ndim == 0 or not len(X):
        raise InputError(f"X: shape {tuple(X.shape)} came; expected one row per sample, and at least one")
    size = batch_size or len(X)
    for first in range(0, len(X), size):
        yield X[first : first + size]


def length(X: Any, batch_size: int | None) -> int | None:
    """Count the batches, where that is known."""
    if is_array(X):
        return -(-len(X) // (batch_size or len(X))) if X.ndim and len(X) else None
    try:
        return len(X)
    except (TypeError, NotImplementedError):
        return None


def place(inputs: Any, model: Any, device: Any) -> Any:
    """Bring the input of a batch to where the model is."""
    if isinstance(inputs, Mapping):
        return {key: place(value, model, device) for key, value in inputs.items()}
    if not is_array(inputs):
        return inputs
    weights = list(chain(model.parameters(), model.buffers()))
    where = weights[0].device if device is None and weights else device
    if isinstance(inputs, np.ndarray):
        inputs = torch_module().tensor(np.ascontiguousarray(inputs))
        dtype = next((w.dtype for w in weights if w.is_floating_point()), None)
        if inputs.is_floating_point() and dtype is not None:
            inputs = inputs.to(dtype)  # NumPy's double precision is seldom meant
    return inputs if where is None else inputs.to(where)


def run(model: Any, inputs: Any) -> Any:
    """Run one pass. The model gets a copy of its input, since a layer may work in place."""
    if isinstance(inputs, Mapping):
        return model(**{key: value.clone() if is_array(value) else value for key, value in inputs.items()})
    return model(inputs.clone())


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
            "a module of its own, tell that module's type: layers=(MyDropout,)"
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


@contextmanager
def seeded_only(active: set[Any]) -> Iterator[None]:
    """Keep recurrent layers off cuDNN, whose dropout does not heed a seed in older versions of torch."""
    torch = torch_module()
    before = torch.backends.cudnn.enabled
    try:
        if any(isinstance(module, torch.nn.RNNBase) for module in active):
            torch.backends.cudnn.enabled = False
        yield
    finally:
        torch.backends.cudnn.enabled = before


def generators_of(models: Sequence[Any]) -> list[Any]:
    """Return the sources of torch's global random numbers that are in use.

    ``torch.manual_seed`` is no way to them: it would also seed a GPU that is first used later.
    """
    torch = torch_module()
    found = [torch.default_generator]
    for backend in (torch.cuda, getattr(torch, "xpu", None)):
        if backend is not None and backend.is_initialized():
            found.extend(backend.default_generators)
    if any(weight.device.type == "mps" for model in set(models) for weight in model.parameters()):
        mps = torch.mps
        found.append(
            SimpleNamespace(get_state=mps.get_rng_state, set_state=mps.set_rng_state, manual_seed=mps.manual_seed)
        )
    return found


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


@contextmanager
def progress(show: bool, what: str, total: int | None) -> Iterator[Callable[[], None]]:
    """Show a bar on a terminal for what takes long; nothing in a pipe."""
    begun, done, bar = time.monotonic(), 0, None

    def tick() -> None:
        nonlocal done, bar
        done += 1
        if bar is None and show and time.monotonic() - begun > PATIENCE:
            from rich.console import Console  # not for those who never wait
            from rich.progress import Progress

            err = Console(stderr=True)
            bar = Progress(console=err, transient=True, disable=not err.is_terminal)
            bar.add_task(what, total=total)
            bar.start()
        if bar is not None:
            bar.update(bar.task_ids[0], completed=done)

    try:
        yield tick
    finally:
        if bar is not None and not bar.disable:
            bar.stop()
