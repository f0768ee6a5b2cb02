"""The same scores in every format, and files written by hand."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from data import FORMATS, save


def raw_safetensors(path: Path, tensors: dict[str, tuple[str, tuple[int, ...], bytes]]) -> None:
    """Write tensors of any type by hand."""
    header, data = {}, b""
    for name, (dtype, shape, part) in tensors.items():
        offsets = [len(data), len(data) + len(part)]
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": offsets}
        data += part
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)


@pytest.fixture(params=FORMATS)
def form(request) -> str:
    return request.param


@pytest.fixture(name="save", scope="session")
def _save():
    return save


@pytest.fixture(name="raw_safetensors", scope="session")
def _raw_safetensors():
    return raw_safetensors


@pytest.fixture
def data():
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(101, 4)).astype(np.float32)
    return logits, rng.integers(0, 4, 101), rng.uniform(0.5, 2, 101)
