"""A sample of the predictions of a stream, drawn by content.

Each row has a hash, and the rows with the smallest hashes are kept (a bottom-k sample). So the sample does not depend
on order or batches, and two of them add.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Self

import numpy as np

from attemper._json import Dims
from attemper._typing import Floats, Labels

__all__ = ["RowSample"]

MOST_ROWS = 2000
LEAST_ROWS = 100
MOST_ELEMENTS = 100_000


@dataclass(frozen=True, eq=False)
class RowSample:
    """Rows of log-probabilities with the smallest hashes, in their order."""

    hashes: Annotated[Labels, Dims(1)]
    cases: Annotated[Labels, Dims(1)]  # the hash of each row's cluster, or its own
    log_p: Floats

    @classmethod
    def empty(cls) -> Self:
        """Return the sample of no rows."""
        none = np.zeros(0, dtype=np.int64)
        return cls(none, none, np.zeros((0, 0)))

    def __len__(self) -> int:
        return len(self.hashes)

    def __add__(self, other: RowSample) -> RowSample:
        if not len(self) or not len(other):
            return self if len(self) else other
        return RowSample.of(
            np.concatenate([self.hashes, other.hashes]),
            np.concatenate([self.cases, other.cases]),
            np.concatenate([self.log_p, other.log_p]),
        )

    @classmethod
    def of(cls, hashes: Labels, cases: Labels, log_p: Floats) -> RowSample:
        """Draw from these rows."""
        most = max(LEAST_ROWS, min(MOST_ROWS, MOST_ELEMENTS // log_p.shape[1]))
        kept = np.argsort(hashes, kind="stable")[:most]
        return cls(hashes[kept], cases[kept], np.maximum(log_p[kept], -700.0).round(6))  # a file has no −inf

    def is_consistent(self, n_classes: int | None) -> bool:
        """Return whether these can be rows of so many classes."""
        n = len(self.hashes)
        return (
            len(self.cases) == n
            and n <= MOST_ROWS
            and (n == 0 or (self.log_p.shape == (n, n_classes) and bool((self.log_p <= 1e-6).all())))
        )
