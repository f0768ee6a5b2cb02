"""The same scores in every format, written by the format's own library."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from safetensors.numpy import save_file

FORMATS = ["npz", "npz-packed", "npy", "csv", "safetensors", "parquet", "parquet-list", "parquet-fixed"]


def save(folder: Path, form: str, logits, labels, weights=None, stem="val", key="logits") -> dict[str, Any]:
    """Write a file (two for npy) and return what to tell open_scores."""
    arrays = {key: logits, "labels": labels} | ({} if weights is None else {"w": weights})
    ending, _, variant = form.partition("-")
    path = folder / f"{stem}.{ending}"
    if ending == "npz":
        (np.savez_compressed if variant else np.savez)(path, **arrays)
    elif ending == "npy":
        np.save(path, logits)
        np.save(folder / f"{stem}_labels.npy", labels)
        return {"paths": path, "labels": folder / f"{stem}_labels.npy"}
    elif ending == "safetensors":
        save_file(arrays, path)
    elif ending == "csv":
        with path.open("w", newline="") as stream:
            writer = csv.writer(stream)
            extra = [] if weights is None else ["w"]
            writer.writerow(["label", *extra, *(f"logit_{k}" for k in range(logits.shape[1]))])
            for i, row in enumerate(logits.tolist()):
                writer.writerow([labels[i], *([] if weights is None else [weights[i]]), *row])
    else:
        columns = {"label": labels} | ({} if weights is None else {"w": weights})
        if variant:
            width = logits.shape[1] if variant == "fixed" else -1
            columns[key] = pa.array(logits.tolist(), pa.list_(pa.from_numpy_dtype(logits.dtype), width))
        else:
            columns |= {f"logit_{k}": logits[:, k] for k in range(logits.shape[1])}
        pq.write_table(pa.table(columns), path, row_group_size=40)
    return {"paths": path}


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
