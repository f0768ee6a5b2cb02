"""Data that the tests make for themselves."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp


def draw(n=300, n_classes=5, scale=3.0, t=2.0, seed=0):
    """Logits, and labels drawn from softmax(logits / t)."""
    rng = np.random.default_rng(seed)
    h = scale * rng.normal(size=(n, n_classes))
    y = (h / t + rng.gumbel(size=h.shape)).argmax(axis=1)
    return h, y


@st.composite
def cases(draw, max_rows=12, max_classes=6, bound=8.0):
    """Small logits with labels."""
    n = draw(st.integers(1, max_rows))
    k = draw(st.integers(2, max_classes))
    h = draw(hnp.arrays(np.float64, (n, k), elements=st.floats(-bound, bound, width=32)))
    y = draw(hnp.arrays(np.int64, (n,), elements=st.integers(0, k - 1)))
    return h, y
