"""Averages over several forward passes: Monte Carlo dropout and deep ensembles.

What comes out can be calibrated like any other classifier: `EnsemblePrediction.log_probs` are
logits. torch is imported when a network is used, not with this module.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from typing import Any, ClassVar

from attemper._checks import one_of, whole
from attemper._typing import InputKind
from attemper.errors import InputError, InputTypeError
from attemper.torch import runner
from attemper.torch.ensembles.averages import EnsemblePrediction, Running, average, joined

__all__ = ["DeepEnsemble", "EnsemblePrediction", "MCDropout", "average"]


class _Ensemble:
    """Members that see the same batches, one after the other, and a running mean of their predictions."""

    each: ClassVar[str]  # what errors call one of them

    def __init__(
        self,
        input: InputKind,
        select: Callable[[Any], Any] | None,
        unpack: Callable[[Any], Any] | None,
        batch_size: int | None,
        device: Any,
        progress: bool,
    ) -> None:
        one_of("input", input, ("logits", "probs"))
        if batch_size is not None:
            whole("batch_size", batch_size)
        self.input = input
        self.select = select
        self.unpack = unpack
        self.batch_size = batch_size
        self.device = device
        self.progress = progress

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
        members, name = self._members(), type(self).__name__
        active = self._active()
        generators = runner.generators_of(members)
        stream = runner.Stream(self._seed())
        n_batches = runner.n_batches(X, self.batch_size)
        parts: list[EnsemblePrediction] = []
        n = 0
        with ExitStack() as undo:
            undo.enter_context(runner.kept(generators))
            undo.enter_context(runner.modes(members, active))
            undo.enter_context(runner.seeded_only(active))
            total = None if n_batches is None else n_batches * len(members)
            tick = undo.enter_context(runner.progress(self.progress, name, total))
            for inputs, labels in runner.batches(X, self.batch_size, unpack=self.unpack):
                running = Running(self.input)
                with stream.flowing(generators), runner.torch_module().no_grad():
                    for i, member in enumerate(members):
                        if i == 0 or member is not members[i - 1]:
                            placed = runner.placed(inputs, member, self.device)
                        where = f"{name}, {self.each} {i}"
                        running.add(runner.call(member, placed, self.select, where), where)
                        tick()
                parts.append(running.prediction(n, labels).like(runner.example_of(inputs)))
                n += len(parts[-1].probs)
        return joined(parts)

    def predict_proba(self, X: Any) -> Any:
        """Mean probabilities, `predict(X).probs`."""
        return self.predict(X).probs

    def _members(self) -> Sequence[Any]:
        raise NotImplementedError

    def _active(self) -> set[Any]:
        """Modules that are run as in training."""
        return set()

    def _seed(self) -> int:
        return 0


class MCDropout(_Ensemble):
    """Average a network over many passes with its dropout switched on (Gal and Ghahramani 2016).

    Dropout layers run as in training; all else, batch norm too, as in evaluation. Afterwards modes and the global
    random numbers are as they were, even if a pass fails. No gradients are made. Buffers are not saved: in evaluation
    torch's layers leave theirs alone, but what a module named in ``layers`` does to its own in training, it does here.

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
        Others that are random in training, such as ``(DropPath,)``, or a module of one's own that calls
        ``F.dropout(x, training=self.training)``, even the whole network; of what is inside of it, such as batch norm,
        the mode does not change. Known without being named: all of torch's dropout layers, and the dropout inside
        `MultiheadAttention`, transformer layers, `LSTM`, `GRU` and `RNN`.
    seed : int or None
        The same seed gives the same numbers for the same batches, as ``torch.manual_seed(seed)`` would before
        all passes of the first batch, then of the second, and so on. Another batch size is another draw:
        torch fills the masks of a whole batch in one go. None: other numbers each time.
    batch_size : int, optional
        Rows of an array at once; all by default. Loaders bring their own.
    device : optional
        Where batches go; by default to the model.
    progress : bool
        Show a bar for what takes longer than a second, on a terminal.

    Examples
    --------
    >>> import torch
    >>> from torch import nn
    >>> _ = torch.manual_seed(0)
    >>> net = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Dropout(0.5), nn.Linear(32, 3))
    >>> said = MCDropout(net, passes=20).predict(torch.randn(5, 4))
    >>> said.probs.shape, said.passes
    (torch.Size([5, 3]), 20)
    >>> bool((said.mutual_information > 0).all())
    True
    """

    each = "pass"

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
        device: Any = None,
        progress: bool = True,
    ) -> None:
        super().__init__(input, select, unpack, batch_size, device, progress)
        _check_model(model, "model")
        whole("passes", passes)
        if seed is not None:
            whole("seed", seed, at_least=0, at_most=2**63 - 1)
        self.model = model
        self.passes = passes
        self.layers = layers if isinstance(layers, tuple) else (layers,)
        self.seed = seed
        self._active()  # raises at once if there is nothing to switch on

    def _members(self) -> Sequence[Any]:
        return [self.model] * self.passes

    def _active(self) -> set[Any]:
        return runner.dropping(self.model, self.layers)

    def _seed(self) -> int:
        return secrets.randbits(63) if self.seed is None else int(self.seed)


class DeepEnsemble(_Ensemble):
    """Average networks that were trained apart (Lakshminarayanan et al. 2017).

    They run as in evaluation, each on the device where it is, and are afterwards as they were.

    Parameters
    ----------
    models : sequence of torch.nn.Module
    input, select, unpack, batch_size, device, progress
        As in `MCDropout`, the same for all members.

    Examples
    --------
    >>> import numpy as np
    >>> from torch import nn
    >>> nets = [nn.Linear(4, 3) for _ in range(5)]
    >>> said = DeepEnsemble(nets).predict(np.zeros((2, 4)))
    >>> type(said.probs).__name__, said.probs.shape, said.passes
    ('ndarray', (2, 3), 5)
    """

    each = "member"

    def __init__(
        self,
        models: Iterable[Any],
        *,
        input: InputKind = "logits",
        select: Callable[[Any], Any] | None = None,
        unpack: Callable[[Any], Any] | None = None,
        batch_size: int | None = None,
        device: Any = None,
        progress: bool = True,
    ) -> None:
        super().__init__(input, select, unpack, batch_size, device, progress)
        try:
            self.models = list(models)
        except TypeError:
            raise InputTypeError(f"models: expected a list of torch modules, got {type(models).__name__}") from None
        if not self.models:
            raise InputError("models: an ensemble needs at least one")
        for i, model in enumerate(self.models):
            _check_model(model, f"models[{i}]")

    def _members(self) -> Sequence[Any]:
        return self.models


def _check_model(model: Any, what: str) -> None:
    if not isinstance(model, runner.torch_module().nn.Module):
        raise InputTypeError(f"{what}: expected a torch.nn.Module, got {type(model).__name__}")
