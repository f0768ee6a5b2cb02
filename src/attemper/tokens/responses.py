"""Top-k log-probabilities as OpenAI's interface gives them, or as dicts from token to log-probability."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from attemper._json import json_lines
from attemper._paths import as_path, checked_file, opened
from attemper.errors import InputError, InputTypeError

__all__ = ["Position", "TopK", "positions_of", "read_topk", "topk_of"]

# What OpenAI writes for "too unlikely to report".
NEVER = -9999.0
# Rounding may leave a log-probability a little above 0.
MAX_LOG_PROB = 1e-3


@dataclass(frozen=True)
class Position:
    """The most likely tokens at one position, in order, as `topk_of` finds them; none where the server gave none."""

    tokens: tuple[Any, ...]
    log_probs: tuple[float, ...]
    name: str  # for errors
    id: Any = None  # of the response


@dataclass(frozen=True)
class TopK:
    """Positions with the most likely tokens of each, as `topk_of` and `read_topk` read them from responses.

    >>> topk = TopK.of([{"A": -0.1, "B": -3.0}, {"B": -0.7, "A": -1.2}])
    >>> len(topk), topk.k, topk.positions[1].tokens
    (2, 2, ('B', 'A'))
    """

    positions: tuple[Position, ...]

    def __len__(self) -> int:
        return len(self.positions)

    @property
    def k(self) -> int:
        """How many tokens every position has at least; positions without any do not count."""
        return min((len(position.tokens) for position in self.positions if position.tokens), default=0)

    @classmethod
    def of(cls, responses: Any, *, position: int | None = None) -> TopK:
        """Read responses; see `topk_of`."""
        return responses if isinstance(responses, TopK) else cls(tuple(positions_of(responses, position)))


def topk_of(responses: Any, *, position: int | None = None) -> TopK:
    """Read the most likely tokens from responses.

    Parameters
    ----------
    responses
        One response or a list of them, as JSON or ``response.model_dump()``, of chat completions
        (``choices[].logprobs.content[].top_logprobs``), completions (``choices[].logprobs.top_logprobs``) or a line of
        a batch (``response.body``). Or a list of positions, each a dict from token to log-probability; None is a
        position that has none.
    position : int, optional
        Take only this position of each response: 0 for the first token that was generated, -1 for the last.

    Examples
    --------
    >>> entry = {"token": "A", "logprob": -0.1, "top_logprobs": [
    ...     {"token": "A", "logprob": -0.1, "bytes": [65]}, {"token": "B", "logprob": -2.5, "bytes": [66]}]}
    >>> topk = topk_of({"choices": [{"logprobs": {"content": [entry]}}]})
    >>> topk.positions[0].tokens, topk.positions[0].log_probs
    (('A', 'B'), (-0.1, -2.5))
    """
    return TopK.of(responses, position=position)


def read_topk(path: str | os.PathLike[str], *, position: int | None = None) -> TopK:
    """Read responses from a file of JSON lines, one response a line; see `topk_of`.

    Lines of OpenAI's batches are in any order: pass labels as a dict from ``custom_id`` to label.

    Examples
    --------
    >>> import json, tempfile
    >>> from pathlib import Path
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder, "answers.jsonl")
    ...     line = {"choices": [{"logprobs": {"top_logprobs": [{"A": -0.1, "B": -2.5}]}}]}
    ...     _ = file.write_text(json.dumps(line) + chr(10))
    ...     read_topk(file).positions[0].tokens
    ('A', 'B')
    """
    place = as_path(path)
    checked_file(place, one=True)
    found: list[Position] = []
    with opened(place) as stream:
        for number, line in json_lines(place, stream):
            try:
                found += [replace(p, name=f"{place}: line {number}, {p.name}") for p in positions_of(line, position)]
            except InputError as error:
                raise type(error)(f"{place}: line {number}: {error}") from None
    return TopK(tuple(found))


def positions_of(responses: Any, position: int | None = None) -> Iterator[Position]:
    """Go through the positions of one response or several."""
    if not _is_list(responses) or _is_entries(responses):
        yield from _of_response(responses, "", position)
        return
    if all(item is None or _is_position(item) for item in responses):
        yield from _of_positions(responses, "", None, position)
        return
    for number, response in enumerate(responses):
        yield from _of_response(response, f"response {number}, ", position)


def _of_response(response: Any, name: str, position: int | None) -> Iterator[Position]:
    """Find the lists of positions in one response, whatever its form."""
    if _is_position(response):
        yield from _of_positions([response], name, None, position)
    elif _is_list(response):
        yield from _of_positions(response, name, None, position)
    elif isinstance(response, Mapping):
        own = response.get("custom_id", response.get("id"))
        body = response
        for key in ("response", "body"):
            body = body[key] if isinstance(body.get(key), Mapping) else body
        choices: Sequence[Any] = body["choices"] if _is_list(body.get("choices")) else ()
        for choice in choices:
            logprobs = _given(choice.get("logprobs") if isinstance(choice, Mapping) else None, name)
            if not isinstance(logprobs, Mapping):
                raise InputTypeError(f"responses: {name}expected logprobs as an object, got {logprobs!r:.80}")
            positions = logprobs.get("content") or logprobs.get("top_logprobs")
            yield from _of_positions(_given(positions, name), name, own, position)
        if not choices:
            raise InputError(
                f"responses: {name}expected choices with logprobs, got the keys {sorted(map(str, body))!r:.120}. A "
                "response that failed has none; leave it out."
            )
    else:
        raise InputTypeError(f"responses: {name}expected a response, or a list of dicts, got {type(response).__name__}")


def _of_positions(positions: Sequence[Any], name: str, own: Any, position: int | None) -> Iterator[Position]:
    if not _is_list(positions):
        raise InputTypeError(f"responses: {name}expected a list of positions, got {positions!r:.80}")
    if position is not None and not -len(positions) <= position < len(positions):
        raise InputError(f"position={position}: {name or 'the response '}has {len(positions)} positions")
    numbers = range(len(positions)) if position is None else [range(len(positions))[position]]
    for number in numbers:
        yield _as_position(positions[number], f"{name}position {number}", own)


def _given(value: Any, name: str) -> Any:
    if value is None:
        raise InputError(
            f"responses: {name or 'the response '}has no log-probabilities. Ask the server for them, such as "
            "logprobs=True, top_logprobs=20."
        )
    return value


def _is_list(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str | bytes)


def _is_entries(value: Any) -> bool:
    """Whether this is a list of tokens with their log-probabilities: one position."""
    return (
        isinstance(value, Sequence)
        and bool(value)
        and all(isinstance(entry, Mapping) and "token" in entry and "top_logprobs" not in entry for entry in value)
    )


def _is_position(value: Any) -> bool:
    if isinstance(value, Mapping):
        if _is_list(value.get("top_logprobs")):
            return True
        return bool(value) and all(_log_prob(entry) is not None for entry in value.values())
    return _is_entries(value)


def _log_prob(entry: Any) -> Any:
    """Return the log-probability in an entry: a number, or an object with it."""
    if isinstance(entry, Mapping):
        entry = entry.get("logprob")
    return entry if isinstance(entry, int | float | np.number) and not isinstance(entry, bool) else None


def _is_pair(pair: Any) -> bool:
    known = isinstance(pair, tuple) and isinstance(pair[0], str | int) and not isinstance(pair[0], bool)
    return known and _log_prob(pair[1]) is not None


def _as_position(value: Any, name: str, own: Any) -> Position:
    """Sort the tokens of a position, the most likely first, and check their log-probabilities."""
    if value is None:
        return Position((), (), name, own)
    if not _is_position(value):
        raise InputTypeError(
            f"responses: {name}: expected a dict from token to log-probability, or a list of tokens with logprob, got "
            f"{value!r:.80}"
        )
    entries = value
    if isinstance(value, Mapping):
        entries = value["top_logprobs"] if _is_list(value.get("top_logprobs")) else list(value.items())
    pairs = [(e.get("token"), e) if isinstance(e, Mapping) else e for e in entries]
    odd = [pair for pair in pairs if not _is_pair(pair)]
    if odd:
        raise InputTypeError(f"responses: {name}: expected a token, text or id, with its logprob, got {odd[0]!r:.80}")
    found = sorted(((token, float(_log_prob(e))) for token, e in pairs), key=lambda pair: -pair[1])
    for token, log_prob in found:
        if not log_prob <= MAX_LOG_PROB:
            raise InputError(
                f"log-probabilities: {name}: token {token!r:.60} has {log_prob}; expected at most 0. Pass natural "
                "logarithms of probabilities, not logits."
            )
    tokens = tuple(token for token, _ in found)
    return Position(tokens, tuple(min(p, 0.0) if p > NEVER else -np.inf for _, p in found), name, own)
