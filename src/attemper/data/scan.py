"""One look at every score before it is used: its limits, its masks, and an error that names what cannot be used."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from attemper._typing import Floats, InputKind, Labels
from attemper.data.arrays import RowName, RowView, SelectedRows, log_probs, on_gpu, row_slices, to_numpy
from attemper.data.masks import MASKS_FROM, has_finite_masks, masks_as_inf
from attemper.data.plausibility import SUMS, room_of_sums
from attemper.errors import InputError

if TYPE_CHECKING:
    from attemper.torch.rows import DeviceRows

__all__ = ["Limits", "scan", "scan_tensor"]

# Squares and cubes of logits must stay finite; what is larger is a mask in disguise.
LARGEST = 1e30

# Elements of a tensor that are looked at at once.
TENSOR_ELEMENTS = 1 << 20


class Limits(NamedTuple):
    """What is known of all scores together."""

    bound: float  # largest finite |logit|
    masked: bool  # some are −inf, or finite masks
    finite_masks: bool = False  # some are finite masks


def scan(values: Any, kind: InputKind, labels: Any, zeros_as: float | None, name: RowName) -> Limits:
    """Look at all rows, a chunk at a time; an error names what cannot be used."""
    bound, masked = 0.0, False
    finite_masks: bool | None = None  # not looked for yet
    for part in row_slices(*values.shape):
        raw = to_numpy(values[part, :])
        h = _checked_log_probs(raw, zeros_as, name, part.start) if kind == "probs" else raw
        low, high = float(h.min()), float(h.max())
        if kind == "logits":
            if not np.isfinite(low) or not np.isfinite(high):
                _reject_bad_logits(h, name, part.start)
            if low <= MASKS_FROM:
                finite_masks = _has_finite_masks(values) if finite_masks is None else finite_masks
                h = masks_as_inf(raw) if finite_masks else raw
                low = float(h.min())
        if low == -np.inf:
            masked = True
            _reject_masked_rows(h, raw, None if labels is None else to_numpy(labels[part]), kind, name, part.start)
            low = float(h[np.isfinite(h)].min())
            high = float(h[np.isfinite(h)].max())
        bound = max(bound, abs(low), abs(high))
        if bound > LARGEST:
            row, column = np.argwhere(np.abs(np.where(np.isfinite(h), h, 0), dtype=np.float64) > LARGEST)[0]
            raise InputError(
                f"logits: {name(part.start + row)}, column {column} is {h[row, column]:.3g}; expected at most "
                f"{LARGEST:g} in magnitude. For a class that is masked out use -inf: "
                "logits[logits < -1e29] = -np.inf."
            )
    if 0 < bound < 1 / LARGEST:
        raise InputError(
            f"logits: none is larger than {bound:.3g} in magnitude, so all classes are as likely in every row; "
            "multiply them by a constant first"
        )
    return Limits(bound, masked, bool(finite_masks))


def scan_tensor(values: Any, y: Any, w: Floats | None, name: RowName) -> tuple[Limits, Any, DeviceRows | None]:
    """Look at logits on a GPU; return them with −inf for finite masks, and with labels also the rows of a fit."""
    from attemper.torch.rows import DeviceRows

    some = values if isinstance(values, SelectedRows) else None
    if y is None and some is None:  # predictions need no more than the limits, if these are in order
        low, high = (float(v) for v in values.detach().aminmax())
        bound = max(-low, high)
        if low > MASKS_FROM and high <= LARGEST and (bound == 0 or bound >= 1 / LARGEST):
            return Limits(bound, False), values, None
    logits, index = (values, None) if some is None else (some.base, some.index)
    rows = DeviceRows.of(logits, y, w, index)
    if float(rows.found.lowest.amin()) <= MASKS_FROM and _has_finite_masks(values):
        logits = masks_as_inf(logits)
        values = logits if some is None else SelectedRows(logits, some.index)
        rows = DeviceRows.of(logits, y, w, index)
    bound = rows.bound()
    if not rows.usable() or bound > LARGEST or 0 < bound < 1 / LARGEST:
        scan(values, "logits", y, None, name)  # raises the error that names the row
    return Limits(bound, rows.has_nonfinite), values, rows


def _has_finite_masks(values: Any) -> bool:
    """Look at all rows, as chunks alone might differ."""
    if not on_gpu(values):
        return has_finite_masks(to_numpy(values[part, :]) for part in row_slices(*values.shape))
    parts = (values[part, :] for part in row_slices(len(values), values.shape[1], TENSOR_ELEMENTS))
    return has_finite_masks(part.gathered() if isinstance(part, RowView) else part for part in parts)


def _reject_bad_logits(h: NDArray[Any], name: RowName, first: int) -> None:
    bad = np.argwhere(np.isnan(h) | (h == np.inf))
    if len(bad):
        row, column = bad[0]
        what = "NaN" if np.isnan(h[row, column]) else "infinity"
        raise InputError(
            f"logits: {name(first + row)}, column {column} is {what}; every logit must be a number "
            "(-inf marks a class that is masked out). Fix or drop that row."
        )


def _reject_masked_rows(
    h: NDArray[Any], values: NDArray[Any], labels: Labels | None, kind: InputKind, name: RowName, first: int
) -> None:
    dead = np.flatnonzero(np.isneginf(h).all(axis=1))
    if dead.size:
        raise InputError(f"logits: {name(first + dead[0])} is -inf everywhere; some class must be possible")
    if labels is None:
        return
    hit = np.flatnonzero(np.isneginf(h[np.arange(len(h)), labels]))
    if hit.size:
        row, label = name(first + hit[0]), labels[hit[0]]
        if kind == "probs":
            raise InputError(
                f"probabilities: {row} gives its own label {label} a probability of exactly 0, so the loss "
                "is infinite at every temperature. If the zero comes from rounding, set what it stands for: "
                f"zeros_as=1e-8.",
                param="zeros_as",
            )
        value = values[hit[0], label]
        raise InputError(
            f"logits: {row}, column {label} is {value:g} (a masked class), but that is the row's own label. "
            "Fix the mask or drop that row."
        )


def _checked_log_probs(p: NDArray[Any], zeros_as: float | None, name: RowName, first: int) -> NDArray[Any]:
    bad = np.argwhere(~((p >= 0) & (p <= 1 + 1e-3)))
    if len(bad):
        row, column = bad[0]
        raise InputError(
            f"probabilities: {name(first + row)}, column {column} is {p[row, column]}; probabilities lie between "
            '0 and 1. If these are logits, use input="logits" or Scores.from_logits.'
        )
    sums = p.sum(axis=1, dtype=np.float64)
    off = np.flatnonzero(~(np.abs(sums - 1) <= room_of_sums(p.shape[1])))
    if off.size:
        row = off[0]
        raise InputError(f"probabilities: {name(first + row)} sums to {sums[row]:.6g}; expected 1. {SUMS}")
    return np.asarray(log_probs(p, zeros_as))
