"""Means over the predictions of several passes or members, one at a time.

Works on NumPy arrays and on tensors; torch need not be installed for the former.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import array_api_compat
import numpy as np
import scipy.special

from attemper._checks import one_of
from attemper._table import Columns, Table
from attemper._typing import InputKind
from attemper.data.arrays import as_matrix, one_line, to_numpy
from attemper.errors import InputError

__all__ = ["EnsemblePrediction", "Running", "average", "joined"]

ARRAYS = ("probs", "log_probs", "entropy", "mutual_information")

ROOM = 1e-2  # by which probabilities in half precision may miss the sum of 1

BOTTOM = -1e30  # stands for −inf where −inf − −inf would be NaN; within single precision


@dataclass(frozen=True, eq=False, repr=False)
class EnsemblePrediction(Table):
    """What several passes predict together, in the array type of the input, in single precision or better.

    `average`, `MCDropout` and `DeepEnsemble` give it.

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

    def like(self, array: Any) -> EnsemblePrediction:
        """Bring tensors to NumPy if that is an array of NumPy, else to its device."""
        numpy = isinstance(array, np.ndarray)
        changes: dict[str, Any] = {
            name: to_numpy(getattr(self, name)) if numpy else getattr(self, name).to(array.device) for name in ARRAYS
        }
        if self.labels is not None and (numpy or not array_api_compat.is_torch_array(self.labels)):
            changes["labels"] = to_numpy(self.labels)
        return replace(self, **changes)


def average(members: Iterable[Any], *, input: InputKind = "logits", labels: Any = None) -> EnsemblePrediction:
    """Average predictions that were computed before, one N×K array for each member.

    Members may come from a generator, such as one that reads files: one at a time is held. NumPy
    and torch arrays stay what they are; torch need not be installed.

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
    running = Running(input)
    for i, member in enumerate(members):
        if array_api_compat.is_torch_array(member):
            running.add(member.detach(), f"member {i}")
        else:
            running.add(to_numpy(as_matrix(member, f"member {i}")), f"member {i}")
    if not running.count:
        raise InputError("members: expected one N×K array for each member, got none")
    return running.prediction(0, labels)


class Running:
    """Means over passes, one at a time: memory for one, however many there are.

    A mean is moved by (new − mean) / count, so that equal passes leave it as it is, to the last bit.
    """

    probs: Any
    entropy: Any
    top: Any  # the largest logarithm so far; total holds the sum of probabilities beside it
    total: Any
    dtype: Any

    def __init__(self, input: InputKind) -> None:
        self.input = input
        self.count = 0

    def add(self, values: Any, what: str) -> None:
        """Take one more pass into the mean; ``what`` names it in errors."""
        values = as_matrix(values, what)
        xp = array_api_compat.array_namespace(values)
        if not xp.isdtype(values.dtype, "real floating"):
            raise InputError(f"{what}: expected floating-point numbers, got dtype {values.dtype}")
        if self.count and values.shape != self.probs.shape:
            raise InputError(f"{what}: expected shape {tuple(self.probs.shape)}, as before, got {tuple(values.shape)}")
        if not self.count:
            self.dtype = values.dtype if values.dtype == xp.float64 else xp.float32
            # Sums are kept in double precision, where the device has it.
            exact = xp.float32 if "mps" in str(array_api_compat.device(values)) else xp.float64
            self.probs = xp.zeros_like(values, dtype=exact)
            self.entropy = self.probs[:, 0]
            self.top = xp.full_like(self.probs, BOTTOM)
            self.total = xp.zeros_like(self.probs)
        elif array_api_compat.is_torch_array(values):
            values = values.to(self.probs.device)  # members may live on several
        self.count += 1
        with np.errstate(all="ignore"):  # what is not finite is found in the end
            p, log_p = _probabilities(xp, xp.astype(values, self.dtype), self.input, self.probs.dtype)
            self.probs = self.probs + (p - self.probs) / self.count
            self.entropy = self.entropy + (_entropy(xp, p) - self.entropy) / self.count
            top = xp.maximum(self.top, log_p)
            self.total = self.total * xp.exp(self.top - top) + xp.exp(log_p - top)
            self.top = top

    def prediction(self, first_row: int, labels: Any) -> EnsemblePrediction:
        """Return what was found, or raise an error that names the row."""
        xp = array_api_compat.array_namespace(self.probs)
        self._check(xp, first_row)
        if labels is not None and np.shape(labels)[:1] != self.probs.shape[:1]:
            raise InputError(
                f"labels: expected one for each of {self.probs.shape[0]} rows from row {first_row} on, got shape "
                f"{tuple(np.shape(labels))}"
            )
        possible = self.total > 0
        log_mean = self.top + xp.log(xp.where(possible, self.total, 1.0) / self.count)
        entropy = _entropy(xp, self.probs)
        more = entropy - self.entropy
        return EnsemblePrediction(
            probs=xp.astype(self.probs, self.dtype),
            log_probs=xp.astype(xp.where(possible, log_mean, -math.inf), self.dtype),
            entropy=xp.astype(entropy, self.dtype),
            mutual_information=xp.astype(xp.where(more > 0, more, 0.0), self.dtype),
            passes=self.count,
            labels=labels,
        )

    def _check(self, xp: Any, first_row: int) -> None:
        sums = xp.sum(self.probs, axis=1)
        room = ROOM * (1 + self.probs.shape[1] ** 0.5 / 10)
        good = xp.isfinite(self.entropy) & (xp.abs(sums - 1) <= room)
        if bool(xp.all(good)):
            return
        row = int(np.flatnonzero(~to_numpy(good))[0])
        if not bool(xp.isfinite(self.entropy[row])):
            expected = (
                "every logit must be a number (-inf marks a class that is masked out, never all of them)"
                if self.input == "logits"
                else "probabilities are numbers that are not negative"
            )
            raise InputError(f"output: row {first_row + row} holds NaN or the like in some pass; {expected}")
        raise InputError(
            f"output: row {first_row + row} sums to {float(sums[row]):.6g}, but input='probs'; expected 1. If these "
            "are logits, use input='logits'."
        )


def _probabilities(xp: Any, values: Any, input: InputKind, exact: Any) -> tuple[Any, Any]:
    """Probabilities and their logarithms: softmax as the library has it, so that it is what users would compute."""
    if input == "probs":
        p = xp.astype(values, exact)
        return p, xp.log(p)
    if array_api_compat.is_torch_array(values):
        p, log_p = values.softmax(dim=1), values.log_softmax(dim=1)
    else:
        p, log_p = scipy.special.softmax(values, axis=1), scipy.special.log_softmax(values, axis=1)
    return xp.astype(p, exact), xp.astype(log_p, exact)


def _entropy(xp: Any, p: Any) -> Any:
    return -xp.sum(p * xp.log(xp.where(p == 0, 1.0, p)), axis=1)  # NaN where p is negative


def joined(parts: list[EnsemblePrediction]) -> EnsemblePrediction:
    """Put the predictions of one batch after the other."""
    if not parts:
        raise InputError("X: expected at least one batch, got none; a generator can be used once only")
    widths = [part.probs.shape[1] for part in parts]
    if len(set(widths)) > 1:
        i = next(i for i, width in enumerate(widths) if width != widths[0])
        raise InputError(f"output: batch {i} has {widths[i]} columns, those before it {widths[0]}")
    with_labels = sum(part.labels is not None for part in parts)
    if 0 < with_labels < len(parts):
        raise InputError(f"labels: {with_labels} of {len(parts)} batches carry them; expected all or none")
    names = (*ARRAYS, "labels") if with_labels else ARRAYS
    return replace(parts[0], **{name: _concat([getattr(part, name) for part in parts]) for name in names})


def _concat(values: list[Any]) -> Any:
    if not all(array_api_compat.is_torch_array(value) for value in values):
        values = [to_numpy(value) for value in values]
    return array_api_compat.array_namespace(values[0]).concat(values)
