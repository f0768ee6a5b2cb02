"""One batch of predictions as metrics read it: where it is, in the shape it has, without waiting for the GPU."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

from attemper.data.arrays import as_numbers
from attemper.data.plausibility import room_of_sums
from attemper.errors import InputError, InputTypeError, require
from attemper.metrics.predictions import ROOM, Input

torch: Any = require("torch", extra="torch", why="to read tensors")

__all__ = ["Batch"]

BLOCK_ELEMENTS = 1 << 22  # probabilities that are put into bins at once


class Batch(NamedTuple):
    """Predictions of one batch. All but ``values`` have the shape of the labels."""

    values: Any  # probabilities or their logarithms, with the classes in dimension ``dim``
    logs: bool
    dim: int
    labels: Any  # column numbers; any where the weight is 0
    prediction: Any
    weight: Any  # 0 where a label is to be ignored
    confidence: Any
    log_likelihood: Any

    @classmethod
    def of(
        cls,
        preds: Any,
        target: Any,
        sample_weight: Any,
        *,
        input: Input,
        axis: int | None,
        ignore_index: int | None,
        dtype: Any,
    ) -> tuple[Batch, Any]:
        """Read a batch; also return how many labels and how many rows of predictions are none.

        On a CPU those are errors at once. Elsewhere looking would be waiting: their weight is 0 until someone asks.
        """
        values, dim = _with_classes(_tensor(preds, "preds"), input, axis)
        n_classes = values.shape[dim]
        y = _labels(target, preds, values, dim)
        counted = torch.ones_like(y, dtype=torch.bool) if ignore_index is None else y != ignore_index
        is_label = ~counted | ((y >= 0) & (y < n_classes))
        y = y.long().clamp(0, n_classes - 1)
        given = values
        if input == "logits":
            values = values.log_softmax(dim, dtype=torch.promote_types(values.dtype, torch.float32))
        logs = input != "probs"
        best = values.argmax(dim, keepdim=True)  # the first, when tied
        top = values.gather(dim, best).squeeze(dim)
        own = values.gather(dim, y.unsqueeze(dim)).squeeze(dim)
        is_row = ~counted | _are_rows(values, top, input, dim)
        if top.device.type == "cpu":
            _refuse(is_label, target, is_row, given, input, dim)
        weight = _weights(sample_weight, y, dtype) * (counted & is_label & is_row)
        top, own = (torch.where(weight > 0, part.to(dtype), 0.0 if logs else 1.0) for part in (top, own))
        confidence, log_likelihood = (top.exp(), own) if logs else (top, own.log())
        refused = torch.stack([(~is_label).sum(), (~is_row).sum()])
        batch = cls(
            values, logs, dim, y, best.squeeze(dim), weight, confidence.clamp(max=1), log_likelihood.clamp(max=0)
        )
        return batch, refused

    @property
    def n_classes(self) -> int:
        """K, the number of classes."""
        return int(self.values.shape[self.dim])

    @property
    def right(self) -> Any:
        """Where the most probable class is the label."""
        return self.prediction == self.labels

    @property
    def squared_errors(self) -> Any:
        """Squared error of each sample, summed over the classes."""
        dtype = self.weight.dtype
        p = self.values.exp() if self.logs else self.values
        own = self.log_likelihood.exp()
        error = p.square().sum(self.dim, dtype=dtype) - own.square() + (1 - own).square()
        return torch.where(self.weight > 0, error.clamp(min=0), 0.0)

    def of_classes(self, first: int, count: int) -> tuple[Any, Any]:
        """Probabilities of some classes, and where they are the label; with the dimension of the classes."""
        values = self.values.narrow(self.dim, first, count).to(self.weight.dtype)
        p = (values.exp() if self.logs else values).clamp(max=1)
        shape = [1] * values.ndim
        shape[self.dim] = count
        classes = torch.arange(first, first + count, device=values.device).reshape(shape)
        weight = self.weight.unsqueeze(self.dim)
        return torch.where(weight > 0, p, 0.0), self.labels.unsqueeze(self.dim) == classes

    def class_blocks(self) -> Iterator[tuple[int, int]]:
        """Go through the classes, as many at a time as memory should hold: the first of them, and how many."""
        most = max(1, BLOCK_ELEMENTS // max(1, self.labels.numel()))
        return ((first, min(most, self.n_classes - first)) for first in range(0, self.n_classes, most))


def _tensor(values: Any, name: str) -> Any:
    if not isinstance(values, torch.Tensor):
        raise InputTypeError(f"{name}: expected a torch.Tensor, got {type(values).__name__}. Use torch.as_tensor.")
    return values.detach()


def _with_classes(preds: Any, input: Input, axis: int | None) -> tuple[Any, int]:
    """Return predictions, and where their classes are; one column becomes two.

    Logits in half precision stay so: log-softmax reads them without a copy in single.
    """
    as_numbers(preds, "preds")
    if axis is None and preds.ndim > 2:
        raise InputError(
            f"preds: expected shape (N, K), got {tuple(preds.shape)}. Use axis=1 where the classes are the second "
            "dimension, (N, K, H, W), or axis=-1 where they are the last, (B, L, V)."
        )
    if axis is not None and not -preds.ndim <= axis < preds.ndim:
        raise InputError(f"axis={axis}: expected a dimension of preds, which have shape {tuple(preds.shape)}")
    wide = preds.dtype in (torch.float32, torch.float64) or (input == "logits" and preds.is_floating_point())
    values = preds if wide else preds.float()
    if axis is None and values.ndim < 2:
        values = values.reshape(-1, 1)
    dim = -1 if axis is None else axis
    dim %= values.ndim
    if values.shape[dim] == 1:
        other = {
            "logits": torch.zeros_like,
            "probs": lambda p: 1 - p,
            "log_probs": lambda z: torch.log(-torch.expm1(z)),
        }
        values = torch.cat([other[input](values), values], dim)
    return values, dim


def _labels(target: Any, preds: Any, values: Any, dim: int) -> Any:
    y = _tensor(target, "target")
    expected = (*values.shape[:dim], *values.shape[dim + 1 :])
    if y.shape == values.shape == preds.shape and y.is_floating_point():
        raise InputError(
            f"target: expected one label for each row, got soft labels of shape {tuple(y.shape)}. Use the functions of "
            "attemper.metrics, such as attemper.metrics.nll(labels, probs), which take them."
        )
    if tuple(y.shape) == (*expected, 1) and values.ndim == 2:
        y = y.squeeze(-1)
    if tuple(y.shape) != expected:
        raise InputError(
            f"target: expected shape {expected}, one label for each row of preds {tuple(values.shape)}, got "
            f"{tuple(y.shape)}. Use update(preds, target), in the order of torchmetrics."
        )
    if y.is_floating_point() or y.is_complex():
        raise InputTypeError(f"target: expected column numbers, got dtype {y.dtype}. Use target.long().")
    return y.to(torch.uint8) if y.dtype == torch.bool else y


def _weights(sample_weight: Any, y: Any, dtype: Any) -> Any:
    if sample_weight is None:
        return torch.ones_like(y, dtype=dtype)
    weight = torch.as_tensor(sample_weight, dtype=dtype, device=y.device)
    if weight.shape != y.shape:
        raise InputError(f"sample_weight: expected shape {tuple(y.shape)}, got {tuple(weight.shape)}")
    if weight.device.type == "cpu" and not (weight >= 0).all():
        row = int((~(weight >= 0)).flatten().int().argmax())
        raise InputError(f"sample_weight: row {row}: expected 0 or more, got {float(weight.flatten()[row]):g}")
    return weight


def _are_rows(values: Any, top: Any, input: Input, dim: int) -> Any:
    """Where a row is what ``input`` names; logits were brought to log-probabilities before."""
    if input == "logits":
        return torch.isfinite(top)
    logs = input == "log_probs"
    total = (values.exp() if logs else values).sum(dim)
    near = (total - 1).abs() <= room_of_sums(values.shape[dim])
    return near & (top <= math.log1p(ROOM)) if logs else near & (top <= 1 + ROOM) & (values.amin(dim) >= 0)


def _refuse(is_label: Any, target: Any, is_row: Any, values: Any, input: Input, dim: int) -> None:
    """Name the first label, or the first row of predictions, that is none."""
    if not is_label.all():
        row = int((~is_label).flatten().int().argmax())
        label = int(target.flatten()[row])
        if set(torch.unique(target).tolist()) <= {-1, 1} and values.shape[dim] == 2:
            raise InputError(
                f"target: row {row} has label -1, expected 0 or 1. Use (target + 1) // 2 if labels are -1 and 1, or "
                "ignore_index=-1 if -1 does not count."
            )
        raise InputError(
            f"target: row {row} has label {label}, expected 0 to {values.shape[dim] - 1}. "
            f"Use ignore_index={label} if it does not count."
        )
    if not is_row.all():
        row = int((~is_row).flatten().int().argmax())
        got = values.movedim(dim, -1).reshape(-1, values.shape[dim])[row]
        shown = ", ".join(f"{float(v):.4g}" for v in got[:6]) + (", …" if len(got) > 6 else "")
        expected, advice = EXPECTED[input]
        raise InputError(f"preds: row {row}: expected {expected}, got [{shown}].{advice}")


EXPECTED: dict[Input, tuple[str, str]] = {
    "logits": ("finite logits, or -inf for a mask", ""),
    "log_probs": ("logarithms of probabilities that sum to 1", ' Use input="logits" for logits.'),
    "probs": ("probabilities that sum to 1", ' Use input="logits" for logits.'),
}


def refused_at_last(refused: Any, input: Input) -> None:
    """Raise what `Batch.of` found on a device that was not to be waited for."""
    labels, rows = (int(count) for count in refused.tolist())
    if labels:
        raise InputError(
            f"target: {labels} labels since the last reset are no column numbers. Use ignore_index=… for a label that "
            "does not count; with the tensors on the CPU, the error names the row."
        )
    if rows:
        expected, advice = EXPECTED[input]
        raise InputError(f"preds: expected {expected}, got others in {rows} rows since the last reset.{advice}")
