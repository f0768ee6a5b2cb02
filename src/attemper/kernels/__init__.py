"""Pure functions on NumPy arrays: the maths, and nothing else. They know NumPy, SciPy and threadpoolctl.

Symbols as in the paper: ``h`` logits (n×K), ``y`` labels, ``w`` weights,
``beta`` = 1/T, ``S`` = softmax(beta · h), ``theta`` the threshold of Eq. (7).
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

from threadpoolctl import ThreadpoolController

# The limit holds for the whole process: of several fits at a time the first one sets it, and lifts it at its end.
_limited = threading.Lock()
_controller = cache(ThreadpoolController)  # once: to look for the libraries takes longer than a small fit


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Limit BLAS to one thread; afterwards it has as many as before, also after an error.

    The matrices of a fit are small: more threads wait for each other for longer than they compute.

    >>> with one_blas_thread():
    ...     all(lib["num_threads"] == 1 for lib in ThreadpoolController().info() if lib["user_api"] == "blas")
    True
    """
    if not _limited.acquire(blocking=False):
        yield
        return
    try:
        with _controller().limit(limits=1, user_api="blas"):
            yield
    finally:
        _limited.release()
