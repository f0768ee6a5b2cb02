"""What a state remembers of the rows and cases that it was fed: hashes, in bounded memory.

All hashes are remembered until there are too many; then only those below half of their range, then below a quarter, and
so on. At any time this is a random sample of everything ever seen, drawn by content: the rows of a day are in it, or
not, whenever they come, in whatever order and however they are divided into batches.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from attemper._typing import Labels
from attemper.data.arrays import to_numpy
from attemper.data.scores import Scores

__all__ = ["LIMIT", "Seen", "hash_ids", "hash_rows"]

BITS = 52  # of a hash: JSON numbers hold them exactly
LIMIT = 1 << 14  # hashes that are remembered
COMMON = 0  # in place of a sample's number: this row has come more than once, so that it is no evidence of a repeat
LEAST_ROWS = 10  # fewer rows are no evidence that a batch was fed before
REPEATED_SHARE = 0.95


class Seen(NamedTuple):
    """A sample of hashes, sorted, and the numbers of the samples that had them first (from 1)."""

    level: int = 0  # hashes below 2^(52 − level) are remembered
    hashes: Labels = np.zeros(0, dtype=np.int64)
    at: Labels = np.zeros(0, dtype=np.int64)

    def add(self, hashes: Labels, at: Labels, *, mark_common: bool = False) -> Self:
        """Return what is remembered after these too; ``mark_common`` notes which have come more than once."""
        merged, first, count = np.unique(np.concatenate([self.hashes, hashes]), return_index=True, return_counts=True)
        numbers = np.concatenate([self.at, at])[first]
        if mark_common:
            numbers = np.where(count > 1, COMMON, numbers)
        level = self.level
        while (kept := int(np.searchsorted(merged, 1 << (BITS - level)))) > LIMIT:
            level += 1
        return type(self)(level, merged[:kept], numbers[:kept])

    def merged(self, other: Seen, offset: int, *, mark_common: bool = False) -> Self:
        """Return what is remembered of both; the samples of the other one are counted from ``offset`` on."""
        level = max(self.level, other.level)
        at = np.where(other.at == COMMON, COMMON, other.at + offset)
        return self._replace(level=level).add(other.hashes, at, mark_common=mark_common)

    def numbers_of(self, hashes: Labels) -> Labels:
        """Return the number of the sample that had each hash first; −1 where it is not remembered."""
        if not len(self.hashes):
            return np.full(len(hashes), -1, dtype=np.int64)
        place = np.minimum(np.searchsorted(self.hashes, hashes), len(self.hashes) - 1)
        return np.where(self.hashes[place] == hashes, self.at[place], -1)

    def repeated(self, hashes: Labels) -> tuple[int, int] | None:
        """Return the first and the last earlier sample that these rows repeat; None if they seem to be new.

        They are repeats if at least ten of them could be looked up and 95 % of those were seen. Rows that have come
        more than once do not count, so that rounded or saturated scores, which are equal by chance, are no repeats.
        """
        once, count = np.unique(hashes[hashes < 1 << (BITS - self.level)], return_counts=True)
        numbers = self.numbers_of(once[count == 1])
        looked_up = numbers[numbers != COMMON]
        seen = looked_up[looked_up > 0]
        if len(looked_up) < LEAST_ROWS or len(seen) < REPEATED_SHARE * len(looked_up):
            return None
        return int(seen.min()), int(seen.max())

    def is_consistent(self, n: int) -> bool:
        """Return whether these can be of n samples."""
        h = self.hashes
        return (
            0 <= self.level < BITS
            and h.shape == self.at.shape
            and h.ndim == 1
            and len(h) <= LIMIT
            and bool((np.diff(h) > 0).all())
            and bool(((h >= 0) & (h < 1 << (BITS - self.level)) & (self.at >= 0) & (self.at <= n)).all())
        )


def hash_rows(scores: Scores, labels: Labels | None = None) -> Labels:
    """Hash what each row holds, and its label; the same in single and double precision."""
    parts = []
    for _, h in scores.chunks():
        with np.errstate(over="ignore", under="ignore"):
            single = h.astype(np.float32) + np.float32(0)  # −0.0 is 0.0
        bits = np.ascontiguousarray(single).view(np.uint32).astype(np.uint64)
        parts.append(_mixed(bits) @ _mixed(np.arange(1, h.shape[1] + 1, dtype=np.uint64)))
    hashes = np.concatenate(parts)
    if labels is not None:
        hashes = hashes + _mixed(labels.astype(np.uint64) + np.uint64(1 << 40))
    return (_mixed(hashes) >> np.uint64(64 - BITS)).astype(np.int64)


def hash_ids(ids: NDArray[Any]) -> Labels:
    """Hash ids as text, so that 7 and "7" are the same.

    >>> hash_ids(np.array([7, 8])) == hash_ids(np.array(["7", "9"]))
    array([ True, False])
    """
    unique, inverse = np.unique(to_numpy(ids), return_inverse=True)
    digests = b"".join(blake2b(str(name).encode(), digest_size=8).digest() for name in unique.tolist())
    return (np.frombuffer(digests, dtype="<u8") >> np.uint64(64 - BITS)).astype(np.int64)[inverse.ravel()]


def _mixed(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Mix the bits of each number (the finaliser of splitmix64)."""
    with np.errstate(over="ignore"):
        x = x + np.uint64(0x9E3779B97F4A7C15)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return x ^ (x >> np.uint64(31))
