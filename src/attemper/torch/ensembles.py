"""Averages over several forward passes: Monte Carlo dropout and deep ensembles.

What comes out can be calibrated like any other classifier: `EnsemblePrediction.log_probs` are logits. torch is imported
when a network is used, not with this module: `average` works on NumPy arrays without it.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import array_api_compat
import numpy as np
import scipy.special

from attemper._checks import one_of, whole
from attemper._table import Columns, Table
from attemper._typing import InputKind
from attemper.data.arrays import as_matrix, one_line, to_numpy
from attemper.errors import InputError, InputTypeError
from attemper.torch import runner

__all__ = ["DeepEnsemble", "EnsemblePrediction", "MCDropout", "average"]

ARRAYS = ("probs", "log_probs", "entropy", "mutual_information")
ROOM = 1e-2  # by which probabilities in half precision may miss the sum of 1
BOTTOM = -1e30  # stands for −inf where −inf − −inf would be NaN; within single precision


@dataclass(frozen=True, eq=False, repr=False)
class EnsemblePrediction(Table):
    """What several passes predict together, in the array type of the input, in single precision or better.

    Attributes
    ----------
    probs : N×K
        The mean of the passes' probabilities.
    log_probs : N×K
        Its logarithm, also where the mean underflows: logits for any calibrator.
    entropy : N
        Entropy of the mean in nats: how uncertain the prediction is.
    mutual_information : N
        Entropy minus the mean of the passes' entropies: how much the passes disagree.
    passes : int
        How many passes or members were averaged.
    labels : N, optional
        If they were passed.
    """

    __repr__ = one_line

    probs: Any
    log_probs: Any
    entropy: Any
    mutual_information: Any
    passes: int
    labels: Any = None

    def _table_columns(self) -> Columns:
        probs = to_numpy(self.probs)
        found = {"prediction": probs.argmax(axis=1), "confidence": probs.max(axis=1)}
        found |= {name: to_numpy(getattr(self, name)) for name in ("entropy", "mutual_information")}
        return found if self.labels is None else found | {"label": to_numpy(self.labels)}


def average(members: Iterable[Any], *, input: InputKind = "logits", labels: Any = None) -> EnsemblePrediction:
    """Average predictions that were computed before, one N×K array for each member.

    Members may come from a generator, such as one that reads files: one at a time is held. NumPy and torch arrays stay
    what they are.

    Parameters
    ----------
    members : iterable of arrays of shape (N, K)
    input : "logits" or "probs"
        What they hold. It is never guessed.
    labels : array of shape (N,), optional
        Passed on.

    Examples
    --------
    >>> import numpy as np
    >>> both = average([np.log([[0.9, 0.1]]), np.log([[0.5, 0.5]])])
    >>> both.probs.round(3), both.passes
    (array([[0.7, 0.3]]), 2)
    >>> both.entropy.round(3), both.mutual_information.round(3)
    (array([0.611]), array([0.102]))
    """
    one_of("input", input, ("logits", "probs"))
    mean: Any = None
    count = 0
    for member in members:
        values: Any = as_matrix(member, f"member {count}")
        values = values.detach() if array_api_compat.is_torch_array(values) else to_numpy(values)
        xp = array_api_compat.array_namespace(values)
        if not xp.isdtype(values.dtype, "real floating"):
            raise InputError(f"member {count}: expected floating-point numbers, got dtype {values.dtype}")
        if not count:
            dtype = values.dtype if values.dtype == xp.float64 else xp.float32
            # Sums are kept in double precision, where the device has it.
            exact = xp.float32 if "mps" in str(array_api_compat.device(values)) else xp.float64
            mean = total = xp.zeros_like(values, dtype=exact)
            top, inner = xp.full_like(mean, BOTTOM), mean[:, 0]
        elif values.shape != mean.shape:
            raise InputError(f"member {count}: expected shape {tuple(mean.shape)}, got {tuple(values.shape)}")
        elif array_api_compat.is_torch_array(values):
            values = values.to(mean.device)  # members may live on several
        count += 1
        with np.errstate(all="ignore"):  # what is not finite is found in the end
            p, log_p = (xp.astype(x, exact) for x in _probabilities(xp, xp.astype(values, dtype), input))
            # A mean is moved by (new − mean) / count, so that equal passes leave it as it is, to the last bit.
            mean = mean + (p - mean) / count
            inner = inner + (_entropy(xp, p) - inner) / count
            # For its logarithm: the largest of log p so far, and the sum of probabilities beside it.
            before, top = top, xp.maximum(top, log_p)
            total = total * xp.exp(before - top) + xp.exp(log_p - top)
    if not count:
        raise InputError("members: expected one N×K array for each member, got none")
    if not bool(xp.all(xp.isfinite(inner))):
        raise InputError("members: some row holds NaN, +inf, no possible class, or a negative probability")
    if bool(xp.any(xp.abs(xp.sum(mean, axis=1) - 1) > ROOM * (1 + mean.shape[1] ** 0.5 / 10))):
        raise InputError("members: some row does not sum to 1, but input='probs'; for logits use input='logits'")
    if labels is not None and len(labels) != len(mean):
        raise InputError(f"labels: expected one for each of {len(mean)} rows, got {len(labels)}")
    possible = total > 0
    log_mean = top + xp.log(xp.where(possible, total, 1.0) / count)
    entropy = _entropy(xp, mean)
    more = entropy - inner
    return EnsemblePrediction(
        probs=xp.astype(mean, dtype),
        log_probs=xp.astype(xp.where(possible, log_mean, -math.inf), dtype),
        entropy=xp.astype(entropy, dtype),
        mutual_information=xp.astype(xp.where(more > 0, more, 0.0), dtype),
        passes=count,
        labels=labels,
    )


def _probabilities(xp: Any, values: Any, input: InputKind) -> tuple[Any, Any]:
    """Probabilities and their logarithms: softmax as the library has it, so that it is what users would compute."""
    if input == "probs":
        return values, xp.log(values)
    if array_api_compat.is_torch_array(values):
        return values.softmax(dim=1), values.log_softmax(dim=1)
    return scipy.special.softmax(values, axis=1), scipy.special.log_softmax(values, axis=1)


def _entropy(xp: Any, p: Any) -> Any:
    return -xp.sum(p * xp.log(xp.where(p == 0, 1.0, p)), axis=1)  # NaN where p is negative


class MCDropout:
    """Average a network over many passes with its dropout switched on (Gal and Ghahramani 2016).

    Dropout layers run as in training; all else, batch norm too, as in evaluation. Afterwards modes and the global
    random numbers are as they were, even if a pass fails. No gradients are made.

    Dropout that is no layer, ``F.dropout(x, training=self.training)`` in the ``forward`` of a network, cannot be seen
    from outside. It stays off, in silence where the network has dropout layers as well, until the module that calls it
    is named: ``layers=(Net,)``.

    Parameters
    ----------
    model : torch.nn.Module
        Used on the device where it is.
    passes : int
        Time grows with it, memory does not.
    input : "logits" or "probs"
        What the model returns. It is never guessed.
    select : function, optional
        From what the model returns to the N×K tensor, such as ``lambda out: out["logits"]``.
    unpack : function, optional
        From a batch of a loader to its input, or to (input, labels). An input that is a dict of
        tensors is given to the model by name.
    layers : types of modules
        Others that are random in training, such as ``(DropPath,)``; of what is inside of them, such as batch norm,
        the mode does not change. Known without being named: all of torch's dropout layers, and the dropout inside
        `MultiheadAttention`, transformer layers, `LSTM`, `GRU` and `RNN`.
    seed : int or None
        The same seed gives the same numbers for the same batches, as ``torch.manual_seed(seed)`` would before
        all passes of the first batch, then of the second, and so on. None: other numbers each time.
    batch_size : int, optional
        Rows of an array at once; all by default. Loaders bring their own.

    Examples
    --------
    >>> import torch
    >>> from torch import nn
    >>> _ = torch.manual_seed(0)
    >>> net = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Dropout(0.5), nn.Linear(32, 3))
    >>> predicted = MCDropout(net, passes=20).predict(torch.randn(5, 4))
    >>> predicted.probs.shape, predicted.passes
    (torch.Size([5, 3]), 20)
    >>> bool((predicted.mutual_information > 0).all())
    True
    """

    def __init__(
        self,
        model: Any,
        passes: int = 100,
        *,
        input: InputKind = "logits",
        select: Callable[[Any], Any] | None = None,
        unpack: Callable[[Any], Any] | None = None,
        layers: type | tuple[type, ...] = (),
        seed: int | None = 0,
        batch_size: int | None = None,
    ) -> None:
        whole("passes", passes)
        if seed is not None:
            whole("seed", seed, at_least=0, at_most=2**63 - 1)
        self.model, self.passes, self.seed = model, passes, seed
        self.layers = layers if isinstance(layers, tuple) else (layers,)
        self._reading: dict[str, Any] = {"input": input, "select": select, "unpack": unpack, "batch_size": batch_size}
        _check([model], self._reading)
        runner.dropping(model, self.layers)  # raises at once if there is nothing to switch on

    def predict(self, X: Any) -> EnsemblePrediction:
        """Average over all passes.

        Parameters
        ----------
        X : tensor, NumPy array, or iterable of batches such as a DataLoader
            A batch is the input, or a tuple of input, labels and whatever else; pass ``unpack`` for
            others. Floating NumPy arrays are brought to the precision of the model.

        Returns
        -------
        EnsemblePrediction
            NumPy arrays if the input is NumPy, else tensors on the device of the input.
        """
        active = runner.dropping(self.model, self.layers)
        seed = secrets.randbits(63) if self.seed is None else int(self.seed)
        return _predict([self.model] * self.passes, active, seed, X, **self._reading)

    def predict_proba(self, X: Any) -> Any:
        """Mean probabilities, `predict(X).probs`."""
        return self.predict(X).probs


class DeepEnsemble:
    """Average networks that were trained apart (Lakshminarayanan et al. 2017).

    They run as in evaluation, each on the device where it is, and are afterwards as they were.

    Parameters
    ----------
    models : sequence of torch.nn.Module
    input, select, unpack, batch_size
        As in `MCDropout`, the same for all members.

    Examples
    --------
    >>> import numpy as np
    >>> from torch import nn
    >>> nets = [nn.Linear(4, 3) for _ in range(5)]
    >>> predicted = DeepEnsemble(nets).predict(np.zeros((2, 4)))
    >>> type(predicted.probs).__name__, predicted.probs.shape, predicted.passes
    ('ndarray', (2, 3), 5)
    """

    def __init__(
        self,
        models: Iterable[Any],
        *,
        input: InputKind = "logits",
        select: Callable[[Any], Any] | None = None,
        unpack: Callable[[Any], Any] | None = None,
        batch_size: int | None = None,
    ) -> None:
        self.models = list(models)
        self._reading: dict[str, Any] = {"input": input, "select": select, "unpack": unpack, "batch_size": batch_size}
        _check(self.models, self._reading)

    def predict(self, X: Any) -> EnsemblePrediction:
        """Average over all members; as `MCDropout.predict`."""
        return _predict(self.models, set(), 0, X, **self._reading)

    def predict_proba(self, X: Any) -> Any:
        """Mean probabilities, `predict(X).probs`."""
        return self.predict(X).probs


def _check(models: Sequence[Any], reading: dict[str, Any]) -> None:
    one_of("input", reading["input"], ("logits", "probs"))
    if reading["batch_size"] is not None:
        whole("batch_size", reading["batch_size"])
    nn = runner.torch_module().nn
    if not models or not all(isinstance(model, nn.Module) for model in models):
        raise InputTypeError("models: expected at least one, each a torch.nn.Module")


def _predict(
    members: Sequence[Any],
    active: set[Any],
    seed: int,
    X: Any,
    *,
    input: InputKind,
    select: Callable[[Any], Any] | None,
    unpack: Callable[[Any], Any] | None,
    batch_size: int | None,
) -> EnsemblePrediction:
    """Let all members see the same batches, one after the other."""
    torch = runner.torch_module()
    generators = runner.generators()
    stream = runner.Stream(seed)
    parts: list[EnsemblePrediction] = []
    with runner.kept(generators), runner.modes(members, active):
        for inputs, labels in runner.batches(X, batch_size, unpack=unpack):
            with stream.flowing(generators), torch.no_grad():
                outputs = (runner.call(member, runner.placed(inputs, member), select) for member in members)
                found = average(outputs, input=input, labels=labels)
            parts.append(_like(found, runner.example_of(inputs)))
    if not parts:
        raise InputError("X: expected at least one batch, got none; a generator can be used once only")
    if len({part.labels is None for part in parts}) > 1:
        raise InputError("labels: expected all batches to carry them, or none")
    names = ARRAYS if parts[0].labels is None else (*ARRAYS, "labels")
    return replace(parts[0], **{name: _concat([getattr(part, name) for part in parts]) for name in names})


def _like(found: EnsemblePrediction, array: Any) -> EnsemblePrediction:
    """Bring tensors to NumPy if that is an array of NumPy, else to its device."""
    numpy = isinstance(array, np.ndarray)
    changes: dict[str, Any] = {
        n: to_numpy(getattr(found, n)) if numpy else getattr(found, n).to(array.device) for n in ARRAYS
    }
    if found.labels is not None and (numpy or not array_api_compat.is_torch_array(found.labels)):
        changes["labels"] = to_numpy(found.labels)
    return replace(found, **changes)


def _concat(values: list[Any]) -> Any:
    if not all(array_api_compat.is_torch_array(value) for value in values):
        values = [to_numpy(value) for value in values]
    if len({value.shape[1:] for value in values}) > 1:
        raise InputError("output: expected batches with the same number of columns")
    return array_api_compat.array_namespace(values[0]).concat(values)
