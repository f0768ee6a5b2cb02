"""Log-probabilities of the k most likely tokens, as servers return them; the other tokens are one class, the tail."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from attemper._checks import one_of, whole
from attemper._typing import Floats, Labels
from attemper.data.scores import LabelledScores, Scores
from attemper.errors import InputError, InputTypeError, warn
from attemper.tokens.positions import token_scores
from attemper.tokens.responses import Position, TopK

__all__ = ["log_of_rest", "topk_option_scores", "topk_scores"]

Tail = Literal["class", "drop"]

# Probabilities that sum to more than this are none. Log-probabilities with three decimals are off by up to 0.05 %.
MAX_MASS = 1.001
# What single precision may take from the tail.
ROUNDING = 1e-6


def topk_scores(
    topk: Any,
    labels: Any = None,
    *,
    k: int | None = None,
    tail: Tail = "class",
    zeros_as: float | None = None,
    ignore_index: int | None = -100,
    sample_weight: Any = None,
) -> Scores:
    """Make scores of k + 1 classes: the ranks 1 … k, most likely first, and the tail with the rest of the mass.

    Parameters
    ----------
    topk
        What a server returned: see `topk_of` and `read_topk`. Or logits over the whole vocabulary, of shape (N, V) or
        (B, L, V), or a `Scores` of them, from which the k most likely are taken.
    labels : list, or dict from the id of a response to its label
        The true token of each position, as the response calls it: an id, or text. It becomes its rank, or the tail.
        None, and ``ignore_index``, are positions that do not count. For logits: token ids.
    k : int, optional
        How many ranks. By default as many as every position has; needed for logits.
    tail : "class" or "drop"
        With "drop" there are k classes, the tail is left out, and with it the positions whose label is in it. Given
        that the label is among the k, a temperature then means what it means over the whole vocabulary.
    zeros_as : float, optional
        What a tail of zero stands for, such as 1e-6: where rounding leaves nothing for the other tokens. Smaller
        tails become as large. Without it such a position is an error, unless the k-th token itself is impossible.
    sample_weight : list, optional
        One weight for each position.

    Examples
    --------
    >>> response = [{"yes": -0.105, "no": -2.40}, {"no": -0.357, "yes": -1.61}]
    >>> scores = topk_scores(response, ["yes", "maybe"])
    >>> np.exp(scores.values).round(3), scores.labels
    (array([[0.9  , 0.091, 0.009],
           [0.7  , 0.2  , 0.1  ]]), array([0, 2]))
    """
    one_of("tail", tail, ("class", "drop"))
    low = _log_of_zeros(zeros_as)
    if isinstance(topk, Scores) or (hasattr(topk, "ndim") and hasattr(topk, "shape")):
        scores = topk if isinstance(topk, Scores) else _of_logits(topk, labels, ignore_index, sample_weight)
        if isinstance(topk, Scores) and (labels is not None or sample_weight is not None):
            raise InputError("a Scores brings its own labels and weights; give no others as well")
        values, y, w = _top_of(scores, k, low)
        return _made(values, y, w, tail, lambda i: f"row {i}")
    found = TopK.of(topk)
    y_tokens, keep, w = _which_count(found, labels, ignore_index, sample_weight)
    positions = [found.positions[i] for i in keep]
    k = found.k if k is None else whole("k", k, at_least=1)
    log_probs = _first(positions, k)
    names = [position.name for position in positions]
    values = np.column_stack([log_probs, _tails(log_probs, low, names)])
    ranks = None if y_tokens is None else _ranks(positions, [y_tokens[i] for i in keep], k)
    return _made(values, ranks, w, tail, names.__getitem__)


def topk_option_scores(
    topk: Any,
    options: Sequence[Any],
    labels: Any = None,
    *,
    missing: Literal["bound"] | float | None = None,
    sample_weight: Any = None,
) -> Scores:
    """Make scores of a few answer options from the most likely tokens; other tokens of the model are left out.

    Parameters
    ----------
    topk
        One position for each question: see `topk_of`, whose ``position`` chooses one.
    options : list of tokens
        Texts or ids, as the responses call them. An option may be a list, such as ["A", " A"], whose probabilities
        are added.
    labels : list, or dict from the id of a response to its label
        The right options: 0 for the first, and so on, or the text of an option.
    missing : None, "bound" or a log-probability
        What an option that is not among the k tokens has. None: it is an error. With "bound" it has the largest
        log-probability that it can have: that of the k-th token, or of all other tokens together (and 1e-6, for
        rounding) if that is less. The true one is lower, so a model looks less confident than it is, and the
        temperature comes out lower.

    Examples
    --------
    >>> response = [{"A": -0.2, " A": -2.5, "B": -3.0}, {"B": -0.7, "A": -1.2, "C": -2.0}]
    >>> topk_option_scores(response, [["A", " A"], "B"], ["A", "B"]).values.round(2)
    array([[-0.1, -3. ],
           [-1.2, -0.7]])
    """
    found = TopK.of(topk)
    groups = [tuple(option) if isinstance(option, list | tuple) else (option,) for option in options]
    place = {token: j for j, group in enumerate(groups) for token in group}
    if len(groups) < 2 or len(place) < sum(map(len, groups)):
        raise InputError(f"options: expected two or more, every token once, got {options!r}")
    if not (missing in (None, "bound") or (isinstance(missing, int | float) and -np.inf < missing <= 0)):
        raise InputError(f"missing={missing!r}: expected None, 'bound' or a log-probability, such as -20.0")
    y_tokens, keep, w = _which_count(found, labels, None, sample_weight)
    positions = [found.positions[i] for i in keep]
    values = np.stack([_option_row(position, place, groups, missing) for position in positions])
    names = tuple(str(group[0]) for group in groups) if isinstance(groups[0][0], str) else None
    y = None if y_tokens is None else [_option_label(y_tokens[i], place, found.positions[i].name) for i in keep]
    scores = Scores.from_logits(values, y, sample_weight=w, name=lambda i: positions[i].name)
    return replace(scores, classes=names)


def log_of_rest(log_probs: Floats) -> Floats:
    """Return log(1 − Σ p) of rows of log-probabilities, largest first; −inf where nothing is left.

    The largest is taken from 1 without cancellation.

    >>> log_of_rest(np.log([[0.5, 0.25]])).round(4), log_of_rest(np.array([[-1e-12]])).round(4)
    (array([-1.3863]), array([-27.631]))
    """
    with np.errstate(divide="ignore"):
        rest = -np.expm1(log_probs[:, 0]) - np.exp(log_probs[:, 1:]).sum(axis=1)
        return np.asarray(np.log(np.maximum(rest, 0)))


def _tails(log_probs: Floats, low: float | None, names: Sequence[str]) -> Floats:
    """Logarithms of what the other tokens have; an error names a position where they have less than nothing."""
    mass = np.exp(log_probs).sum(axis=1)
    bad = np.flatnonzero(~(mass <= MAX_MASS))
    if bad.size:
        raise InputError(
            f"log-probabilities: {names[bad[0]]}: the probabilities of the {log_probs.shape[1]} most likely tokens sum "
            f"to {mass[bad[0]]:.6g}; expected at most 1. Pass natural logarithms of probabilities, not logits."
        )
    tails = log_of_rest(log_probs)
    impossible = np.isneginf(log_probs[:, -1])  # then every token after it is so too
    if low is not None:
        return np.where(impossible, -np.inf, np.maximum(tails, low))
    empty = np.flatnonzero(np.isneginf(tails) & ~impossible)
    if empty.size:
        raise InputError(
            f"log-probabilities: {names[empty[0]]}: the {log_probs.shape[1]} most likely tokens have the probability "
            f"{mass[empty[0]]:.9g}, so that rounding leaves none for the other tokens. Specify what a tail of zero "
            "stands for: zeros_as=1e-6."
        )
    return np.where(impossible, -np.inf, tails)


def _first(positions: Sequence[Position], k: int) -> Floats:
    """Log-probabilities of the k most likely tokens of each position."""
    short = next((position for position in positions if len(position.tokens) < k), None)
    if short is not None or k < 1:
        where, n = ("", 0) if short is None else (f"{short.name} has ", len(short.tokens))
        raise InputError(f"k={k!r}: {where}{n} tokens; expected as many at every position. Use a smaller k.", param="k")
    return np.array([position.log_probs[:k] for position in positions], dtype=np.float64).reshape(-1, k)


def _ranks(positions: Sequence[Position], labels: Sequence[Any], k: int) -> Labels:
    """Rank of each label among the k most likely tokens, from 0; k for the tail."""
    ranks = np.empty(len(labels), dtype=np.int64)
    for i, (position, label) in enumerate(zip(positions, labels)):
        token = _as_token(label, position)
        found = [rank for rank, other in enumerate(position.tokens[:k]) if other == token]
        if len(found) > 1:
            raise InputError(
                f"labels: {position.name}: {label!r:.60} is the text of {len(found)} tokens; drop that position"
            )
        ranks[i] = found[0] if found else k
    if len(ranks) and (ranks == k).all():
        warn(
            f"labels: none of the {len(ranks)} labels is among the {k} most likely tokens, which at "
            f"{positions[0].name} are {list(positions[0].tokens[:k])!r:.120}, where the label is {labels[0]!r:.60}. "
            "Check that labels are written as the responses write tokens, with spaces."
        )
    return ranks


def _as_token(label: Any, position: Position) -> Any:
    """Return a label as the tokens of a position are written: JSON has ids as text."""
    label = label.item() if hasattr(label, "item") else label
    texts = isinstance(position.tokens[0], str)
    if isinstance(label, str) == texts:
        return label
    if texts and not isinstance(label, bool | float) and all(token.isdecimal() for token in position.tokens):
        return str(label)
    raise InputTypeError(
        f"labels: {position.name}: got {label!r:.60}, but the tokens are {'text' if texts else 'ids'}, such as "
        f"{position.tokens[0]!r:.60}. Pass labels as the responses have tokens."
    )


def _which_count(
    topk: TopK, labels: Any, ignore_index: int | None, sample_weight: Any
) -> tuple[list[Any] | None, list[int], NDArray[Any] | None]:
    """Labels, one for each position, the positions that count, and their weights."""
    n = len(topk)
    y: list[Any] | None = None
    if isinstance(labels, Mapping):
        absent = next((p for p in topk.positions if p.id not in labels), None)
        if absent is not None:
            raise InputError(f"labels: there is none for {absent.name}, whose id is {absent.id!r}")
        y = [labels[position.id] for position in topk.positions]
    elif labels is not None:
        items = labels.tolist() if hasattr(labels, "tolist") else list(labels)
        y = [item for part in items for item in (part if isinstance(part, list | tuple) else [part])]
        if len(y) != n:
            raise InputError(f"labels: {len(y)} labels for {n} positions; give one label per position, or None")
    ignored = (None,) if ignore_index is None else (None, ignore_index)
    keep = [i for i, p in enumerate(topk.positions) if p.tokens and not (y is not None and y[i] in ignored)]
    if not keep:
        raise InputError(f"labels: none of the {n} positions counts; there is nothing to fit")
    w = None if sample_weight is None else np.asarray(sample_weight, dtype=np.float64)
    if w is not None and w.shape != (n,):
        raise InputError(f"sample_weight.shape == {w.shape}, expected {(n,)}: one weight per position")
    return y, keep, None if w is None else w[keep]


def _of_logits(logits: Any, labels: Any, ignore_index: int | None, sample_weight: Any) -> Scores:
    if labels is None:
        return Scores.from_logits(logits.reshape(-1, logits.shape[-1]), sample_weight=sample_weight)
    return token_scores(logits, labels, ignore_index=ignore_index, sample_weight=sample_weight)


def _top_of(scores: Scores, k: int | None, low: float | None) -> tuple[Floats, Labels | None, Any]:
    """Take the k most likely classes of scores over all of them, and the exact tail."""
    if k is None:
        raise InputError("k=None: expected how many of the most likely tokens to take. Use k=20.")
    k = whole("k", k, at_least=1)
    if k >= scores.n_classes:
        raise InputError(f"k={k!r}: expected less than the {scores.n_classes} tokens of the vocabulary", param="k")
    y = scores.labels if isinstance(scores, LabelledScores) else None
    values = np.empty((len(scores), k + 1))
    ranks = None if y is None else np.full(len(scores), k, dtype=np.int64)
    for part, h in scores.chunks():
        h = h - h.max(axis=1, keepdims=True)
        order = np.argsort(-h, axis=1, kind="stable")[:, :k]
        top = np.take_along_axis(h, order, axis=1)
        np.put_along_axis(h, order, -np.inf, axis=1)
        with np.errstate(divide="ignore"):
            tail = np.log(np.exp(h).sum(axis=1))
        both = np.column_stack([top, tail])
        both -= np.log(np.exp(both).sum(axis=1, keepdims=True))
        values[part] = both
        if y is not None and ranks is not None:
            rows, rank = np.nonzero(order == y[part][:, None])
            ranks[part][rows] = rank
    if low is not None:
        values[:, k] = np.where(np.isneginf(values[:, k]), -np.inf, np.maximum(values[:, k], low))
    return values, ranks, scores.weights


def _made(values: Floats, y: Labels | None, w: Any, tail: Tail, name: Any) -> Scores:
    """Name the columns, and leave the tail out if that is asked for."""
    k = values.shape[1] - 1
    columns = (*(f"rank {rank}" for rank in range(1, k + 1)), "tail")
    if tail == "drop":
        if k < 2:
            raise InputError(f"tail={'drop'!r}: needs two ranks or more, got k={k}", param="tail")
        values, columns = values[:, :k], columns[:k]
        if y is not None:
            kept = np.flatnonzero(y < k)
            if not kept.size:
                raise InputError(f"tail={'drop'!r}: every label is in the tail; there is nothing to fit", param="tail")
            outer = name
            values, y, w = values[kept], y[kept], None if w is None else w[kept]

            def name(i: int) -> str:
                return str(outer(int(kept[i])))

    return replace(Scores.from_logits(values, y, sample_weight=w, name=name), columns=columns)


def _option_row(position: Position, place: dict[Any, int], groups: Sequence[tuple[Any, ...]], missing: Any) -> Floats:
    row = np.full(len(groups), -np.inf)
    seen: set[int] = set()
    for token, log_prob in zip(position.tokens, position.log_probs):
        j = place.get(token)
        if j is None and isinstance(token, str) and token.isdecimal():
            j = place.get(int(token))
        if j is not None:
            row[j] = np.logaddexp(row[j], log_prob)
            seen.add(j)
    absent = [j for j in range(len(groups)) if j not in seen]
    if len(absent) == len(groups):
        raise InputError(
            f"options: {position.name}: none of them is among the {len(position.tokens)} most likely tokens, "
            f"{list(position.tokens)!r:.120}; drop that position, or ask the server for more tokens"
        )
    if absent and missing is None:
        raise InputError(
            f"options: {position.name}: {groups[absent[0]][0]!r} is not among the {len(position.tokens)} most likely "
            "tokens. Ask the server for more of them, or use missing='bound' for the most that it can have."
        )
    if absent:
        last = float(position.log_probs[-1])
        tail = np.logaddexp(log_of_rest(np.array([position.log_probs]))[0], np.log(ROUNDING))
        row[absent] = min(last, float(tail)) if missing == "bound" else missing
    return row


def _option_label(label: Any, place: dict[Any, int], name: str) -> int:
    label = label.item() if hasattr(label, "item") else label
    if isinstance(label, str) and label in place:
        return place[label]
    n = max(place.values()) + 1
    if isinstance(label, bool) or not isinstance(label, int) or not 0 <= label < n:
        raise InputError(
            f"labels: {name}: got {label!r:.60}; expected the text of an option, or its number, 0 to {n - 1}"
        )
    return label


def _log_of_zeros(zeros_as: float | None) -> float | None:
    if zeros_as is None:
        return None
    if not (isinstance(zeros_as, int | float) and 0 < zeros_as < 1):
        raise InputError(f"zeros_as={zeros_as!r}: must lie between 0 and 1, such as 1e-6", param="zeros_as")
    return float(np.log(zeros_as))
