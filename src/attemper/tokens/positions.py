"""Scores of language models: logits of tokens or of answer options, with a mask.

Logits of shape (B, L, V), B sequences of L positions over V tokens, are read as B·L rows. Only those that
count are read, a chunk at a time.
"""

from __future__ import annotations

from typing import Any

import array_api_compat
import numpy as np
from numpy.typing import ArrayLike, NDArray

from attemper._typing import Labels
from attemper.data.arrays import RowName, as_numbers, to_numpy
from attemper.data.scores import Scores
from attemper.data.sequences import Rows, as_mask, one_for_each, position_name
from attemper.errors import InputError

__all__ = ["check_options", "option_scores", "token_scores"]


def token_scores(
    logits: ArrayLike | Any,
    labels: ArrayLike | Any | None = None,
    *,
    input_ids: ArrayLike | Any | None = None,
    mask: ArrayLike | Any | None = None,
    ignore_index: int | None = -100,
    sample_weight: ArrayLike | Any | None = None,
) -> Scores:
    """Take the logits of tokens; positions that do not count are neither read nor copied.

    Parameters
    ----------
    logits : array of shape (B, L, V), or (N, V)
        What the model returned at each position, in any array library, on any device.
    labels : array of shape (B, L), or (N,)
        The token that each position should have given. They are not shifted.
    input_ids : array of shape (B, L)
        In place of ``labels``: the tokens that the model read. Position t is compared with the token at t + 1, so
        the last position of a sequence does not count.
    mask : array of the same shape, of 0 and 1
        Which positions count. With ``input_ids`` it is the attention mask, and a position counts if it and
        the next one are real; padding may stand on either side.
    ignore_index : int or None
        Positions whose label is this do not count. None: there is no such label.
    sample_weight : array of the same shape, optional

    Examples
    --------
    >>> logits = np.arange(24.0).reshape(2, 3, 4)
    >>> token_scores(logits, [[3, -100, 2], [-100, 0, 1]]).labels
    array([3, 2, 0, 1])
    >>> token_scores(logits, input_ids=[[0, 3, 2], [0, 1, 0]], mask=[[1, 1, 1], [0, 1, 1]]).labels
    array([3, 2, 0])
    """
    if (labels is None) == (input_ids is None):
        raise InputError(
            f"expected labels or input_ids, got {'both' if labels is not None else 'neither'}. Pass labels, one for "
            "each position, or input_ids, from which the label of each position is the token after it."
        )
    rows = Rows.of(logits)
    shape = rows.shape
    if input_ids is not None and len(shape) != 2:
        raise InputError(
            "input_ids: logits of shape (B, L, V) are needed, to know where a sequence ends; got "
            f"{(*shape, rows.width)}. "
            "For one sequence use logits[None] and input_ids[None]."
        )
    what = "labels" if labels is not None else "input_ids"
    y = _whole_numbers(labels if labels is not None else input_ids, what, shape)
    counts = np.ones(shape, dtype=bool) if mask is None else as_mask(mask, shape)
    if input_ids is not None:
        after = np.zeros_like(y)
        after[:, :-1] = y[:, 1:]
        counts[:, :-1] &= counts[:, 1:]
        counts[:, -1:] = False
        y = after
    if ignore_index is not None:
        if isinstance(ignore_index, bool) or not isinstance(ignore_index, int | np.integer):
            raise InputError(f"ignore_index={ignore_index!r}: expected a whole number, such as -100, or None")
        counts &= y != ignore_index
    kept = np.flatnonzero(counts)
    if not kept.size:
        raise InputError(
            f"{what}: none of the {counts.size} positions counts, after the mask and ignore_index={ignore_index}; "
            "there is nothing to fit"
        )
    y = y.reshape(-1)[kept]
    _check_vocabulary(y, kept, rows, what, shifted=input_ids is not None)
    w = None if sample_weight is None else one_for_each(sample_weight, "sample_weight", shape).reshape(-1)[kept]
    return Scores.from_logits(rows.take(kept), y, sample_weight=w, name=position_name(kept, rows.length))


def option_scores(
    logits: ArrayLike | Any,
    *,
    options: ArrayLike,
    labels: ArrayLike | Any | None = None,
    positions: ArrayLike | Any | None = None,
    mask: ArrayLike | Any | None = None,
    sample_weight: ArrayLike | None = None,
) -> Scores:
    """Select the logits of a few answer options, such as the letters A to D, from a vocabulary.

    Parameters
    ----------
    logits : array of shape (N, V), or (B, L, V)
    options : list of token ids
        The columns, in the order of the options.
    labels : array of shape (N,) or (B,), optional
        The right options: 0 for the first of ``options``, and so on.
    positions : array of shape (B,), optional
        For logits of shape (B, L, V): where the model answers. By default the last position that is real by
        ``mask``, or the last of all.
    mask : array of shape (B, L), of 0 and 1, optional

    Examples
    --------
    >>> logits = np.arange(12.0).reshape(2, 6)
    >>> option_scores(logits, options=[4, 1], labels=[0, 1]).values
    array([[ 4.,  1.],
           [10.,  7.]])
    """
    logits = as_numbers(logits, "logits")
    shape = tuple(logits.shape)
    if len(shape) not in (2, 3):
        raise InputError(f"logits: expected shape (N, V), or (B, L, V) with positions, got {shape}")
    columns = check_options(options, shape[-1])
    n = shape[0]
    place: tuple[NDArray[np.int64], ...] = (np.arange(n)[:, None],)
    if len(shape) == 3:
        at = _answer_positions(positions, mask, shape[0], shape[1])
        place = (*place, at[:, None])
    elif positions is not None or mask is not None:
        raise InputError(f"positions and mask belong to logits of shape (B, L, V); got {shape}")
    name: RowName = (lambda i: f"sequence {i}") if len(shape) == 3 else (lambda i: f"row {i}")
    y = None if labels is None else _whole_numbers(labels, "labels", (n,))
    return Scores.from_logits(_entries(logits, (*place, columns[None, :])), y, sample_weight=sample_weight, name=name)


def check_options(options: Any, n_tokens: int | None = None) -> Labels:
    """Check a list of token ids: two or more, none twice, all in the vocabulary.

    >>> check_options([317, 418, 356], n_tokens=50_000)
    array([317, 418, 356])
    """
    if isinstance(options, set | frozenset | dict):
        raise InputError(f"options: expected a list of token ids, got a {type(options).__name__}, which has no order")
    columns = np.asarray(to_numpy(options) if array_api_compat.is_array_api_obj(options) else list(options))
    if columns.ndim != 1 or len(columns) < 2 or columns.dtype.kind not in "iu":
        raise InputError(f"options: expected two or more token ids, such as [317, 418, 356, 423], got {options!r}")
    ids: list[int] = columns.tolist()
    for i, token in enumerate(ids):
        if token in ids[:i]:
            raise InputError(f"options: expected every token once, got {token} twice")
        if token < 0 or (n_tokens is not None and token >= n_tokens):
            until = "" if n_tokens is None else f", and the vocabulary has {n_tokens} tokens"
            raise InputError(f"options: token {token} is outside the vocabulary: ids count from 0{until}")
    return columns.astype(np.int64)


def _whole_numbers(values: Any, what: str, shape: tuple[int, ...]) -> Labels:
    y = one_for_each(values, what, shape)
    if y.dtype.kind not in "iuf" or not bool((np.isfinite(y) & (y == np.floor(y))).all()):
        raise InputError(f"{what}: expected whole numbers, got dtype {y.dtype}, or numbers that are not whole")
    return np.asarray(y, dtype=np.int64)


def _check_vocabulary(y: Labels, kept: Labels, rows: Rows, what: str, *, shifted: bool) -> None:
    bad = np.flatnonzero((y < 0) | (y >= rows.width))
    if bad.size:
        label, place = y[bad[0]], position_name(kept + shifted, rows.length)(bad[0])
        hint = f" To leave such positions out use ignore_index={label}." if label < 0 else ""
        raise InputError(
            f"{what}: {place} has label {label}, but there are {rows.width} columns of logits, so labels run from 0 to "
            f"{rows.width - 1}.{hint}"
        )


def _answer_positions(positions: Any, mask: Any, b: int, length: int) -> Labels:
    if positions is not None and mask is not None:
        raise InputError("expected positions or mask, got both; the mask only marks the last real position")
    if positions is None and mask is None:
        return np.full(b, length - 1, dtype=np.int64)
    if positions is None:
        real = as_mask(mask, (b, length))
        empty = np.flatnonzero(~real.any(axis=1))
        if empty.size:
            raise InputError(f"mask: sequence {empty[0]} has no real position; drop it")
        return np.asarray(length - 1 - real[:, ::-1].argmax(axis=1), dtype=np.int64)
    at = _whole_numbers(positions, "positions", (b,))
    bad = np.flatnonzero((at < 0) | (at >= length))
    if bad.size:
        raise InputError(
            f"positions: that of sequence {bad[0]} is {at[bad[0]]}, but positions run from 0 to {length - 1}"
        )
    return at


def _entries(logits: Any, place: tuple[Labels, ...]) -> Any:
    """Take single entries out of an array of any library; index arrays are brought to its device."""
    if isinstance(logits, np.ndarray):
        return logits[place]
    xp = array_api_compat.array_namespace(logits)
    device = array_api_compat.device(logits)
    logits = logits.detach() if array_api_compat.is_torch_array(logits) else logits
    return logits[tuple(xp.asarray(index, device=device) for index in place)]
