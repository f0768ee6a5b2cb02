"""A random sample of the rows of a stream that does not fit into memory."""

from __future__ import annotations

from typing import Any

import numpy as np

from attemper._typing import Floats
from attemper.errors import InputError

__all__ = ["RowSample"]


class RowSample:
    """At most so many rows of a stream, each with the same chance.

    >>> sample = RowSample(seed=0, most=3)
    >>> for piece in range(4):
    ...     sample.add(np.full((5, 2), float(piece)), None, None)
    >>> sample.probs.shape, sample.weights
    ((3, 2), array([1., 1., 1.]))
    """

    def __init__(self, seed: int, most: int) -> None:
        self.rng, self.most = np.random.default_rng(seed), most
        self.probs: Any = None
        self.weights: Any = None
        self.clusters: Any = None
        self.key: Any = None

    def add(self, probs: Floats, weights: Floats | None, clusters: Any) -> None:
        """Take in one more piece."""
        parts = {
            "probs": probs,
            "weights": np.ones(len(probs)) if weights is None else weights,
            "clusters": clusters,
            "key": self.rng.random(len(probs)),
        }
        if self.probs is not None and (self.clusters is None) != (clusters is None):
            raise InputError("clusters: expected ids in all pieces or in none")
        for name, part in parts.items():
            before = getattr(self, name)
            setattr(self, name, part if before is None else np.concatenate([before, np.asarray(part)]))
        if len(self.probs) > self.most:
            kept = np.sort(np.argpartition(self.key, self.most)[: self.most])
            for name in parts:
                value = getattr(self, name)
                setattr(self, name, None if value is None else np.asarray(value)[kept])
