"""What the tests of shards share."""

from concurrent.futures import Executor, Future

import numpy as np
import pytest

from data import draw

# Of several processes one runs all tests that need a cluster, so that there is one of Dask and one of Ray.
CLUSTERS = (pytest.mark.slow, pytest.mark.xdist_group("clusters"))


def clusters(test):
    """Mark a test that needs a cluster."""
    for mark in CLUSTERS:
        test = mark(test)
    return test


class Shuffled(Executor):
    """Does the work when all of it is there, in an order of its own."""

    def __init__(self, order):
        self.order, self.waiting = order, []

    def submit(self, fn, /, *args, **kwargs):
        future = Future()
        self.waiting.append((future, fn, args))
        if len(self.waiting) == len(self.order):
            for i in self.order:
                future_i, fn, args = self.waiting[i]
                future_i.set_result(fn(*args))
        return future


def same(a, b):
    return a.to_dict() == b.to_dict()


# What can be wrong with a shard


def break_shard(kind, path):
    h, y = draw(60, 4, seed=9)
    if kind == "corrupt":
        path.write_bytes(path.read_bytes()[:500])
    elif kind == "no bytes":
        path.write_bytes(b"")
    elif kind == "no rows":
        np.savez(path, logits=h[:0], labels=y[:0])
    elif kind == "classes":
        np.savez(path, logits=np.c_[h, h], labels=y)
    elif kind == "vocabulary":
        np.savez(path, logits=h, labels=np.where(np.arange(60) == 7, 4, y))
    elif kind == "absent":
        path.unlink()
