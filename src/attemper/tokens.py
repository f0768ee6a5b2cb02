"""Language models: logits of tokens, of answer options, and the k most likely tokens that servers return."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import array_api_compat
import numpy as np

from attemper._typing import Floats, Labels
from attemper.data.arrays import as_array, take_rows
from attemper.data.files import reading
from attemper.data.inputs import as_plain, as_weights
from attemper.data.scores import Scores
from attemper.errors import InputError, listed

__all__ = ["Position", "log_of_rest", "option_scores", "read_responses", "responses_of", "token_scores", "topk_scores"]

NEVER = -9999.0  # what OpenAI writes for "too unlikely to report"
MAX_MASS = 1.001  # probabilities that sum to more than this are none; three decimals are off by up to 0.05 %
IGNORED = -(1 << 40)  # label of positions that do not count
ROUNDING = 1e-6  # what single precision may take from the tail


class Position(NamedTuple):
    """The most likely tokens at one position, most likely first."""

    tokens: tuple[Any, ...]
    log_probs: tuple[float, ...]
    name: str  # for errors
    id: Any = None  # of the response


def token_scores(
    logits: Any,
    labels: Any = None,
    *,
    input_ids: Any = None,
    mask: Any = None,
    ignore_index: int | None = -100,
    sample_weight: Any = None,
) -> Scores:
    """Take the logits of tokens; positions that do not count are not read.

    Parameters
    ----------
    logits : array of shape (B, L, V) or (N, V)
    labels : array of shape (B, L) or (N,)
        The token that each position should have given. They are not shifted.
    input_ids : array of shape (B, L)
        In place of ``labels``: position t is compared with the token at t + 1.
    mask : array of 0 and 1, of the same shape
        Which positions count; with ``input_ids`` the attention mask.
    ignore_index : int or None
        Positions with this label do not count.

    Examples
    --------
    >>> logits = np.arange(24.0).reshape(2, 3, 4)
    >>> token_scores(logits, [[3, -100, 2], [-100, 0, 1]]).labels
    array([3, 2, 0, 1])
    >>> token_scores(logits, input_ids=[[0, 3, 2], [0, 1, 0]], mask=[[1, 1, 1], [0, 1, 1]]).labels
    array([3, 2, 0])
    """
    if (labels is None) == (input_ids is None):
        raise InputError("labels: expected either labels or input_ids", "labels")
    values = as_array(logits, "logits")
    shape = tuple(int(n) for n in values.shape[:-1])
    y = as_plain(labels if input_ids is None else input_ids)
    if y.shape != shape:
        raise InputError(f"labels: expected shape {shape}, got {y.shape}", "labels")
    counts = np.ones(shape, dtype=bool) if mask is None else as_plain(mask).astype(bool)
    if counts.shape != shape:
        raise InputError(f"mask: expected shape {shape}, got {counts.shape}", "mask")
    if input_ids is not None:
        after = np.zeros_like(y)
        after[..., :-1] = y[..., 1:]
        counts = counts & np.concatenate([counts[..., 1:], np.zeros_like(counts[..., :1])], axis=-1)
        y = after
    if ignore_index is not None:
        counts = counts & (y != ignore_index)
    rows = array_api_compat.array_namespace(values).reshape(values, (-1, values.shape[-1]))
    w = None if sample_weight is None else as_plain(sample_weight).reshape(-1)
    return Scores.of(rows, np.where(counts, y, IGNORED).reshape(-1), sample_weight=w, ignore_index=IGNORED)


def option_scores(
    data: Any,
    options: Sequence[Any],
    labels: Any = None,
    *,
    positions: Any = None,
    missing: Literal["bound"] | float | None = None,
    sample_weight: Any = None,
) -> Scores:
    """Make scores of a few answer options, such as the letters A to D; other tokens are left out.

    Parameters
    ----------
    data
        Responses of a server (see `responses_of`), one position for each question; or logits of shape (N, V) or
        (B, L, V).
    options : texts of tokens; for logits their ids
        A text also stands for the token with spaces around it; their probabilities are added. An option may be a list
        of tokens.
    labels : texts of options, or numbers of options from 0; for logits also their ids
        If a label is an id and not such a number, all labels are ids. None is a position that does not count.
    positions : array of shape (B,), for logits of shape (B, L, V)
        Where the model answers; by default the last position.
    missing : None, "bound" or a log-probability
        What an option that is not among the k tokens has. None: an error. "bound": the most that it can have.

    Examples
    --------
    >>> responses = [{"A": -0.2, " A": -2.5, "B": -3.0}, {"B": -0.7, "A": -1.2, "C": -2.0}]
    >>> option_scores(responses, ["A", "B"], ["A", "B"]).values.round(2)
    array([[-0.1, -3. ],
           [-1.2, -0.7]])
    """
    if hasattr(data, "ndim"):
        values = as_array(data, "data")
        if values.ndim == 3:
            n, length = values.shape[:2]
            at = np.full(n, -1) if positions is None else as_plain(positions)
            if at.shape != (n,) or at.dtype.kind not in "iu" or not ((-length <= at) & (at < length)).all():
                what = f"{n} whole numbers below {length}, one for each sequence"
                raise InputError(f"positions: expected {what}, got {positions!r:.80}", "positions")
            values = _entries(values, np.arange(values.shape[0]), at)
        groups, y = _options_and_labels(options, labels, int(values.shape[-1]))
        xp = array_api_compat.array_namespace(values)
        values = xp.stack([_sum_of(values, group) for group in groups], axis=1)
    else:
        found = list(responses_of(data))
        if not found:
            raise InputError("data: expected responses, got none", "data")
        groups, y = _options_and_labels(options, _labels_of(found, labels))
        values = np.stack([_option_row(position, groups, missing) for position in found])
    classes = [str(group[0]) for group in groups]
    return Scores.of(values, y, classes=classes, sample_weight=sample_weight, ignore_index=-100)


def _labels_of(found: Sequence[Position], labels: Any) -> Any:
    """Return labels in the order of the positions; a mapping has them by the id of the response."""
    if not isinstance(labels, Mapping):
        return labels
    if missing := [p.name for p in found if p.id not in labels]:
        raise InputError(f"labels: there is none for {listed(missing)}", "labels")
    return [labels[p.id] for p in found]


def topk_scores(
    data: Any,
    labels: Any = None,
    *,
    k: int | None = None,
    tail: Literal["class", "drop"] = "class",
    zeros_as: float | None = None,
    sample_weight: Any = None,
) -> Scores:
    """Make scores of k + 1 classes: the ranks 1 … k, most likely first, and the tail with the rest of the mass.

    Parameters
    ----------
    data
        Responses of a server (see `responses_of`), or logits of shape (N, V), of which the k most likely are taken.
    labels : the true token of each position, as the response calls it; for logits token ids
        It becomes its rank, or the tail. None is a position that does not count.
    k : int, optional
        How many ranks; by default as many as every position has. Needed for logits.
    tail : "class" or "drop"
        "drop" leaves the tail out, and the positions whose label is in it.
    zeros_as : float, optional
        What a tail of zero stands for, where rounding leaves nothing for the other tokens.

    Examples
    --------
    >>> response = [{"yes": -0.105, "no": -2.40}, {"no": -0.357, "yes": -1.61}]
    >>> scores = topk_scores(response, ["yes", "maybe"])
    >>> np.exp(scores.values).round(3), scores.labels
    (array([[0.9  , 0.091, 0.009],
           [0.7  , 0.2  , 0.1  ]]), array([0, 2]))
    """
    found = None if hasattr(data, "ndim") else list(responses_of(data))
    given, n = labels if found is None else _labels_of(found, labels), len(data if found is None else found)
    items = None if given is None else as_plain(given).tolist()
    if items is not None and len(items) != n:
        raise InputError(f"labels: expected {n}, one for each position, got {len(items)}", "labels")
    kept = [i for i in range(n) if (items is None or _counts(items[i])) and (found is None or found[i].tokens)]
    if not kept:
        raise InputError("labels: no position counts", "labels")
    w = None if sample_weight is None else as_weights(sample_weight, n)[kept]
    if found is None:
        own = None if items is None else np.array([items[i] for i in kept])
        values, y = _top_of(Scores.of(take_rows(as_array(data, "data"), np.array(kept)), own), k, zeros_as)
    else:
        found = [found[i] for i in kept]
        least = min((len(p.tokens) for p in found), default=0)
        k = least if k is None else k
        if not 0 < k <= least:
            raise InputError(f"k={k}: expected at most {least} tokens, which every position has", "k")
        top = np.array([p.log_probs[:k] for p in found])
        values = np.column_stack([top, _tails(top, zeros_as, found)])
        y = None if items is None else np.array([_rank(p, items[i], k) for i, p in zip(kept, found)])
    names = [*(f"rank {i + 1}" for i in range(values.shape[1] - 1)), "tail"]
    if tail == "drop":
        values, names = values[:, :-1], names[:-1]
        if y is not None:
            inside = y < len(names)
            values, y, w = values[inside], y[inside], None if w is None else w[inside]
    return Scores.of(values, y, classes=names, sample_weight=w)


def read_responses(path: str | os.PathLike[str]) -> list[Position]:
    """Read a file with one response a line (JSON lines), such as a batch of OpenAI's; see `responses_of`."""
    with reading(os.fspath(path)):
        lines = Path(path).read_text(encoding="utf-8").splitlines()
        return list(responses_of([json.loads(line) for line in lines if line.strip()]))


def responses_of(responses: Any) -> Iterator[Position]:
    """Go through the positions of responses.

    A response is a dict or an object with ``model_dump()`` in the form of OpenAI's chat completions
    (``choices[].logprobs.content[].top_logprobs``), completions, or a line of a batch. A position may also be a plain
    dict from token to log-probability.

    >>> entry = {"token": "A", "logprob": -0.1, "top_logprobs": [
    ...     {"token": "A", "logprob": -0.1}, {"token": "B", "logprob": -2.5}]}
    >>> next(responses_of({"choices": [{"logprobs": {"content": [entry]}}]})).tokens
    ('A', 'B')
    """
    for number, response in enumerate(responses if isinstance(responses, list | tuple) else [responses]):
        if isinstance(response, Position):
            yield response
            continue
        name = f"response {number}"
        response = response.model_dump() if hasattr(response, "model_dump") else response
        if response is None:
            yield Position((), (), name)
        elif not isinstance(response, Mapping):
            raise InputError(f"responses: {name}: expected a dict, got {type(response).__name__}", "responses")
        elif "choices" in response or "response" in response:
            own = response.get("custom_id", response.get("id"))
            for entry in _entries_of(response, name):
                yield _position(entry, name, own)
        else:
            yield _position(response, name, None)


def log_of_rest(log_probs: Floats) -> Floats:
    """Return log(1 − Σ p) of rows of log-probabilities, largest first; −inf where nothing is left.

    The largest is taken from 1 without cancellation.

    >>> log_of_rest(np.log([[0.5, 0.25]])).round(4), log_of_rest(np.array([[-1e-12]])).round(4)
    (array([-1.3863]), array([-27.631]))
    """
    with np.errstate(divide="ignore"):
        rest = -np.expm1(log_probs[:, 0]) - np.exp(log_probs[:, 1:]).sum(axis=1)
        return np.asarray(np.log(np.maximum(rest, 0)))


def _entries_of(response: Mapping[str, Any], name: str) -> list[Any]:
    """Return the positions of a response of a server, or of a line of a batch."""
    found: list[Any] = []
    try:
        body = response.get("response") or response
        body = body.get("body") or body
        if not body.get("choices"):
            reason = body.get("error") or response.get("error")
            raise InputError(f"responses: {name} has no answer ({reason!r:.120}); drop it, or ask again", "responses")
        for choice in body["choices"]:
            logprobs = choice.get("logprobs") or {}
            content = logprobs.get("content") or logprobs.get("top_logprobs")
            if not content:
                fix = "Ask for logprobs=True, top_logprobs=20."
                raise InputError(f"responses: {name} has no log-probabilities. {fix}", "responses")
            found += content
    except (AttributeError, TypeError):
        raise InputError(f"responses: {name}: expected OpenAI's form, got {response!r:.80}", "responses") from None
    return found


def _position(entry: Mapping[str, Any], name: str, own: Any) -> Position:
    try:
        tops = entry.get("top_logprobs")
        pairs = list(entry.items()) if tops is None else [(top["token"], top["logprob"]) for top in tops]
        found = sorted(((token, float(p)) for token, p in pairs), key=lambda pair: -pair[1])
    except (AttributeError, KeyError, TypeError, ValueError):
        raise InputError(f"responses: {name}: expected log-probabilities, got {entry!r:.80}", "responses") from None
    if found and found[0][1] > 1e-3:
        raise InputError(
            f"responses: {name}: {found[0][0]!r} has {found[0][1]}; expected log-probabilities", "responses"
        )
    log_probs = tuple(min(p, 0.0) if p > NEVER else -np.inf for _, p in found)
    return Position(tuple(token for token, _ in found), log_probs, name, own)


def _letters(token: Any) -> str:
    """Return what a token has in common with its other spellings."""
    return "".join(filter(str.isalnum, str(token))).casefold()


def _option_row(position: Position, groups: Sequence[tuple[Any, ...]], missing: Any) -> Floats:
    row = np.full(len(groups), -np.inf)
    exact = {token: j for j, group in enumerate(groups) for token in group}
    for token, log_prob in zip(position.tokens, position.log_probs):
        j = exact.get(token, exact.get(token.strip()) if isinstance(token, str) else None)
        if j is not None:
            row[j] = np.logaddexp(row[j], log_prob)
    absent = np.flatnonzero(np.isneginf(row))
    if len(absent) == len(groups) or (len(absent) and missing is None):
        option = groups[absent[0]][0]
        like = next((t for t in position.tokens if _letters(t) and _letters(t) == _letters(option)), None)
        fix = "Ask the server for more tokens, or use missing='bound' for the most that it can have."
        raise InputError(
            f"options: {position.name}: {option!r} is not among the tokens {listed(position.tokens)}. "
            + (fix if like is None else f"Spell it as the token {like!r}."),
            "options",
        )
    if len(absent):
        rest = np.logaddexp(log_of_rest(np.array([position.log_probs]))[0], np.log(ROUNDING))
        least = min(p for p in position.log_probs if p > -np.inf)
        row[absent] = min(least, float(rest)) if missing == "bound" else missing
    return row


def _counts(label: Any) -> bool:
    return label is not None and bool(label == label) and label != -100


def _options_and_labels(options: Sequence[Any], labels: Any, n_tokens: int | None = None) -> tuple[list[Any], Any]:
    """Check options, which for logits are columns, and labels; return tokens of options, and names of them or -100."""
    groups = [tuple(np.ravel(option).tolist()) for option in options]
    exact = {token: j for j, group in enumerate(groups) for token in group}
    ids = exact if n_tokens is None else range(n_tokens)
    if len(groups) < 2 or not all(groups) or len(exact) < sum(map(len, groups)) or not all(t in ids for t in exact):
        what = "texts of tokens" if n_tokens is None else f"token ids from 0 to {n_tokens - 1}"
        fix = "texts such as ['A', 'B']" if n_tokens is None else "tokenizer.convert_tokens_to_ids"
        raise InputError(f"options: expected 2 or more {what}, each once, got {options!r:.90}. Use {fix}.", "options")
    names = [*(str(group[0]) for group in groups), -100]
    numbers = {j: j for j in range(len(groups))}
    items = [] if labels is None else as_plain(labels).reshape(-1).tolist()
    by_id = any(item in exact and item not in numbers for item in items if not isinstance(item, str))
    places, found = exact if by_id else exact | numbers, []
    for item in items:
        j = places.get(item, places.get(item.strip()) if isinstance(item, str) else None) if _counts(item) else -1
        if j is None:
            what = f"one of the options {', '.join(map(repr, (group[0] for group in groups)))}, or its number from 0"
            raise InputError(f"labels: expected {what}, got {item!r:.60}. Use None to leave it out.", "labels")
        found.append(names[j])
    return groups, None if labels is None else found


def _tails(top: Floats, zeros_as: float | None, positions: Sequence[Position]) -> Floats:
    mass = np.exp(top).sum(axis=1)
    bad = np.flatnonzero(~(mass <= MAX_MASS))
    if bad.size:
        raise InputError(f"responses: {positions[bad[0]].name}: probabilities sum to {mass[bad[0]]:.6g}", "responses")
    tails = log_of_rest(top)
    if zeros_as is None and (np.isneginf(tails) & np.isfinite(top[:, -1])).any():
        raise InputError(
            "zeros_as: rounding leaves nothing for the other tokens somewhere. Use zeros_as=1e-6.", "zeros_as"
        )
    return _floored(tails, top, zeros_as)


def _floored(tails: Floats, top: Floats, zeros_as: float | None) -> Floats:
    low = -np.inf if zeros_as is None else np.log(zeros_as)
    return np.where(np.isneginf(top[:, -1]), -np.inf, np.maximum(tails, low))  # after an impossible token all are so


def _rank(position: Position, label: Any, k: int) -> int:
    tokens = position.tokens[:k]
    label = str(label) if tokens and isinstance(tokens[0], str) else label
    return tokens.index(label) if label in tokens else k


def _top_of(scores: Scores, k: int | None, zeros_as: float | None) -> tuple[Floats, Labels | None]:
    """Take the k most likely classes of scores over all of them, and the exact tail."""
    if k is None or not 0 < k < scores.n_classes:
        raise InputError(f"k={k!r}: expected how many of the {scores.n_classes} most likely tokens to take", "k")
    h = scores.logits - scores.logits.max(axis=1, keepdims=True)
    order = np.argsort(-h, axis=1, kind="stable")[:, :k]
    top = np.take_along_axis(h, order, axis=1)
    np.put_along_axis(h, order, -np.inf, axis=1)
    with np.errstate(divide="ignore"):
        values = np.column_stack([top, np.log(np.exp(h).sum(axis=1))])
    values -= np.log(np.exp(values).sum(axis=1, keepdims=True))
    values[:, -1] = _floored(values[:, -1], values[:, :-1], zeros_as)
    if scores.labels is None:
        return values, None
    is_label = order == scores.labels[:, None]
    return values, np.where(is_label.any(axis=1), is_label.argmax(axis=1), k)


def _entries(values: Any, rows: Any, at: Any) -> Any:
    if isinstance(values, np.ndarray):
        return values[rows, at]
    at = np.where(at < 0, at + values.shape[1], at)
    flat = array_api_compat.array_namespace(values).reshape(values, (-1, values.shape[-1]))
    return take_rows(flat, rows * values.shape[1] + at)


def _sum_of(values: Any, tokens: Sequence[int]) -> Any:
    """Return the logits of the sum of the probabilities of some tokens."""
    xp = array_api_compat.array_namespace(values)
    at = xp.asarray(np.array(tokens, dtype=np.intp), device=array_api_compat.device(values))
    h = xp.take(values, at, axis=1)
    if len(tokens) == 1:
        return h[:, 0]
    top = xp.max(h, axis=1)
    top = xp.where(xp.isfinite(top), top, xp.zeros_like(top))
    with np.errstate(divide="ignore"):
        return top + xp.log(xp.sum(xp.exp(h - top[:, None]), axis=1))
