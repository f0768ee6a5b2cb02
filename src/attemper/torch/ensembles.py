"""Averages over several forward passes: Monte Carlo dropout and deep ensembles.

What comes out can be calibrated like any other classifier: `EnsemblePrediction.log_probs` are logits.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import array_api_compat
import numpy as np
import scipy.special

from attemper._typing import InputKind
from attemper.data.arrays import as_array, to_numpy
from attemper.errors import InputError, require

__all__ = ["DeepEnsemble", "EnsemblePrediction", "MCDropout", "average"]

BOTTOM = -1e30  # stands for −inf where −inf − −inf would be NaN; within single precision


@dataclass(frozen=True, eq=False)
class EnsemblePrediction:
    """What several passes predict together, in the array type of the input, in single precision or better."""

    probs: Any = field(repr=False)  # N×K, the mean of the passes' probabilities
    log_probs: Any = field(repr=False)  # N×K, its logarithm, also where it underflows: logits for any calibrator
    entropy: Any = field(repr=False)  # N, of the mean, in nats: how uncertain the prediction is
    mutual_information: Any = field(repr=False)  # N, entropy minus the passes' mean entropy: how much they disagree


def average(members: Iterable[Any], *, input: InputKind = "logits") -> EnsemblePrediction:
    """Average predictions, one N×K array of NumPy or torch for each member; of a generator one at a time is held.

    >>> both = average([np.log([[0.9, 0.1]]), np.log([[0.5, 0.5]])])
    >>> both.probs.round(3), both.entropy.round(3), both.mutual_information.round(3)
    (array([[0.7, 0.3]]), array([0.611]), array([0.102]))
    """
    if input not in ("logits", "probs"):
        raise InputError(f"input={input!r}: expected 'logits' or 'probs'", "input")
    count = 0
    for member in members:
        values: Any = as_array(member, "members")
        values = values.detach() if array_api_compat.is_torch_array(values) else to_numpy(values)
        xp = array_api_compat.array_namespace(values)
        if not count:
            dtype = values.dtype if values.dtype == xp.float64 else xp.float32
            # Sums are kept in double precision, where the device has it.
            exact = xp.float32 if "mps" in str(array_api_compat.device(values)) else xp.float64
            mean = total = xp.zeros_like(values, dtype=exact)
            top, inner = xp.full_like(mean, BOTTOM), mean[:, 0]
        if values.ndim != 2 or values.shape != mean.shape:
            shape = tuple(mean.shape) if count else "N×K"
            raise InputError(f"members: expected shape {shape}, got {tuple(values.shape)} of member {count}", "members")
        if array_api_compat.is_torch_array(values):
            values = values.to(mean.device)  # members may live on several
        count += 1
        with np.errstate(all="ignore"):  # what is not finite is found in the end
            p, log_p = (xp.astype(x, exact) for x in _probabilities(xp, xp.astype(values, dtype), input))
            # A mean is moved by (new − mean) / count, so that equal passes leave it as it is, to the last bit.
            mean = mean + (p - mean) / count
            inner = inner + (_entropy(xp, p) - inner) / count
            # For its logarithm: the largest of log p so far, and the sum of probabilities relative to it.
            before, top = top, xp.maximum(top, log_p)
            total = total * xp.exp(before - top) + xp.exp(log_p - top)
    if not count:
        raise InputError("members: expected one N×K array for each member, got none", "members")
    sums = xp.sum(mean, axis=1)
    if not bool(xp.all(xp.isfinite(inner))) or bool(xp.any(xp.abs(sums - 1) > 0.01 + 1e-3 * mean.shape[1] ** 0.5)):
        raise InputError(
            "members: a row has NaN or +inf, or does not sum to 1; for logits use input='logits'", "members"
        )
    log_mean = xp.where(total > 0, top + xp.log(xp.where(total > 0, total, 1.0) / count), -xp.inf)
    entropy = _entropy(xp, mean)
    more = xp.where(entropy > inner, entropy - inner, 0.0)
    return EnsemblePrediction(*(xp.astype(x, dtype) for x in (mean, log_mean, entropy, more)))


def _probabilities(xp: Any, values: Any, input: InputKind) -> tuple[Any, Any]:
    """Probabilities and their logarithms: softmax as the library has it, so that it is what users would compute."""
    if input == "probs":
        return values, xp.log(values)
    if array_api_compat.is_torch_array(values):
        return values.softmax(dim=1), values.log_softmax(dim=1)
    return scipy.special.softmax(values, axis=1), scipy.special.log_softmax(values, axis=1)


def _entropy(xp: Any, p: Any) -> Any:
    return -xp.sum(p * xp.log(xp.where(p == 0, 1.0, p)), axis=1)  # NaN where p is negative


class DeepEnsemble:
    """Average networks that were trained independently (Lakshminarayanan et al. 2017).

    They run as in evaluation, each on the device where it is, without gradients, and are afterwards as they were.
    ``input`` is what they return, "logits" or "probs"; it is never guessed.

    >>> import torch
    >>> DeepEnsemble([torch.nn.Linear(4, 3) for _ in range(5)]).predict(torch.zeros(2, 4)).probs.shape
    torch.Size([2, 3])
    """

    def __init__(self, models: Iterable[Any], *, input: InputKind = "logits") -> None:
        self.torch: Any = require("torch", extra="torch", why="to run networks")
        self.models, self.input, self.seed = list(models), input, 0
        self.active: set[Any] = set()  # modules that run as in training
        if not self.models or not all(isinstance(model, self.torch.nn.Module) for model in self.models):
            raise InputError("models: expected at least one, each a torch.nn.Module", "models")

    def predict(self, X: Any) -> EnsemblePrediction:
        """Average over all members; X is a tensor, a NumPy array, or an iterable of batches such as a DataLoader.

        Batches may be tuples that begin with the input. The result is on the device of the input, all rows together.
        """
        batches = [X] if hasattr(X, "__array__") else X
        parts = []
        for i, batch in enumerate(batches):
            x = self.torch.as_tensor(batch[0] if isinstance(batch, tuple | list) else batch)
            with self._as_found(self.seed + i), self.torch.no_grad():
                found = average((model(x.to(_device(model, x))) for model in self.models), input=self.input)
            parts.append([a.to(x.device) for a in vars(found).values()])
        if not parts:
            raise InputError("X: expected at least one batch, got none; a generator can be used once only", "X")
        arrays = [self.torch.cat(columns) for columns in zip(*parts)]
        return EnsemblePrediction(*(a.cpu().numpy() if isinstance(X, np.ndarray) else a for a in arrays))

    @contextmanager
    def _as_found(self, seed: int) -> Iterator[None]:
        """Run with the modes and random numbers of the passes; then put back what was there, even after an error."""
        # Flags are set by hand: `train()` reaches the children, and may be overridden.
        modes = {module: module.training for model in set(self.models) for module in model.modules()}
        with self.torch.random.fork_rng():
            self.torch.manual_seed(seed)
            try:
                for module in modes:
                    module.training = module in self.active
                yield
            finally:
                for module, flag in modes.items():
                    module.training = flag


class MCDropout(DeepEnsemble):
    """Average a network over many passes with its dropout switched on (Gal and Ghahramani 2016).

    Dropout layers run as in training; all else, batch norm too, as in evaluation. Dropout that is no layer,
    ``F.dropout(x, training=self.training)`` in a ``forward``, cannot be seen from outside: name the types of such
    modules in ``layers``. The random numbers of the first batch have ``seed``, those of the next the next seed.

    >>> import torch
    >>> net = torch.nn.Sequential(torch.nn.Linear(4, 32), torch.nn.Dropout(0.5), torch.nn.Linear(32, 3))
    >>> predicted = MCDropout(net, passes=20).predict(torch.ones(5, 4))
    >>> predicted.probs.shape, bool((predicted.mutual_information > 0).all())
    (torch.Size([5, 3]), True)
    """

    def __init__(
        self,
        model: Any,
        passes: int = 100,
        *,
        layers: tuple[type, ...] = (),
        seed: int = 0,
        input: InputKind = "logits",
    ) -> None:
        if passes < 1:
            raise InputError(f"passes={passes!r}: expected at least 1", "passes")
        super().__init__([model] * passes, input=input)
        self.seed, nn = seed, self.torch.nn
        modules = list(model.modules())
        drops = [m for m in modules if isinstance(m, nn.modules.dropout._DropoutNd) or getattr(m, "dropout", False)]
        self.active = {m for m in modules if isinstance(m, layers)} | {m for m in drops if getattr(m, "p", True)}
        if not drops and not self.active:
            raise InputError(f"model: {type(model).__name__} has no dropout layer; use layers=(MyDropout,)", "model")


def _device(model: Any, x: Any) -> Any:
    return next((p.device for p in model.parameters()), x.device)
