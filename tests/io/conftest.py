"""The same scores in every format."""

from __future__ import annotations

import numpy as np
import pytest

from data import FORMATS, save


@pytest.fixture(params=FORMATS)
def form(request) -> str:
    return request.param


@pytest.fixture(name="save", scope="session")
def _save():
    return save


@pytest.fixture
def data():
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(101, 4)).astype(np.float32)
    return logits, rng.integers(0, 4, 101), rng.uniform(0.5, 2, 101)
