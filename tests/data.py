"""Data that the tests make for themselves, and what several of them do with it."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from safetensors.numpy import save_file

from attemper import BayesianTemperatureScaling

FORMATS = [
    "npz",
    "npz-packed",
    "npy",
    "csv",
    "jsonl",
    "jsonl-list",
    "safetensors",
    "parquet",
    "parquet-list",
    "parquet-fixed",
]


def draw(n=300, n_classes=5, scale=3.0, t=2.0, seed=0):
    """Logits, and labels drawn from softmax(logits / t)."""
    rng = np.random.default_rng(seed)
    h = scale * rng.normal(size=(n, n_classes))
    y = (h / t + rng.gumbel(size=h.shape)).argmax(axis=1)
    return h, y


def draw_masked(n, n_classes, seed=0, masked=True):
    """Logits some of which are −inf, never those of the labels."""
    h, y = draw(n, n_classes, scale=4.0, seed=seed)
    if masked:
        h[np.random.default_rng(seed).random(h.shape) < 0.1] = -np.inf
        mine = np.arange(n), y
        h[mine] = np.where(np.isfinite(h[mine]), h[mine], -1.0)
    return h, y


def softmax(h):
    e = np.exp(h - h.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def classwise(**more):
    return BayesianTemperatureScaling(labels="noisy", noise="classwise", **more)


@st.composite
def cases(draw, max_rows=12, max_classes=6, bound=8.0):
    """Small logits with labels."""
    n = draw(st.integers(1, max_rows))
    k = draw(st.integers(2, max_classes))
    # Logits that are all below 1e-30 are refused; the smallest are zeros here.
    elements = st.floats(-bound, bound, width=32, allow_subnormal=False).map(
        lambda value: value if abs(value) > 1e-20 else 0.0
    )
    h = draw(hnp.arrays(np.float64, (n, k), elements=elements))
    y = draw(hnp.arrays(np.int64, (n,), elements=st.integers(0, k - 1)))
    return h, y


def save(folder: Path, form: str, logits, labels, weights=None, stem="val", key="logits") -> dict[str, Any]:
    """Write a file with the format's own library (two files for npy); return what to tell open_scores."""
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
            writer.writerow(["label", *extra, *(f"{key.rstrip('s')}_{k}" for k in range(logits.shape[1]))])
            for i, row in enumerate(logits.tolist()):
                writer.writerow([labels[i], *([] if weights is None else [weights[i]]), *row])
    elif ending == "jsonl":
        rows = logits.tolist()
        extra = [{} if weights is None else {"w": float(weights[i])} for i in range(len(rows))]
        each = [{key: row} if variant else {f"{key.rstrip('s')}_{k}": v for k, v in enumerate(row)} for row in rows]
        lines = [{"label": y} | more | row for y, more, row in zip(np.asarray(labels).tolist(), extra, each)]
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    else:
        columns = {"label": labels} | ({} if weights is None else {"w": weights})
        if variant:
            width = logits.shape[1] if variant == "fixed" else -1
            columns[key] = pa.array(list(logits), pa.list_(pa.from_numpy_dtype(logits.dtype), width))
        else:
            columns |= {f"{key.rstrip('s')}_{k}": logits[:, k] for k in range(logits.shape[1])}
        pq.write_table(pa.table(columns), path, row_group_size=40)
    return {"paths": path}
