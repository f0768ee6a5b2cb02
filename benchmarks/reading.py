"""Reading speed and memory: ``python -m benchmarks.reading`` (10 GB in the temporary folder, some minutes).

Prints the seconds that 1e6×10 scores with labels take from CSV, parquet and npz beside pandas, pyarrow and NumPy alone,
and the memory that a 4 GB .npy and a parquet file as large need in pieces.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from pyarrow import csv, parquet

import attemper

ROWS, K, LARGE = 1_000_000, 10, 50_000_000
NAMES = [*(f"logit_{k}" for k in range(K)), "label"]
MEASURED = """
import sys
from attemper.data.reading import read_pieces

def used():  # in MB: of its own, and with pages of files that the system may drop
    lines = dict(line.split(":") for line in open("/proc/self/status"))
    return [int(lines[name].split()[0]) / 1024 for name in ("RssAnon", "VmRSS")]

before, most, rows = used(), [0, 0], 0
for piece in read_pieces(sys.argv[1], labels=sys.argv[2] or None):
    rows += len(piece.scores)
    most = [max(a, b - c) for a, b, c in zip(most, used(), before)]
print(f"{rows} rows: {most[0]:.0f} MB of its own, {most[1]:.0f} MB in all")
"""


def best_of(calls: dict[str, Callable[[], Any]], times: int = 5) -> dict[str, float]:
    """Return the least seconds of each call; they take turns, since other work comes and goes."""
    found = dict.fromkeys(calls, float("inf"))
    for _ in range(times):
        for name, call in calls.items():
            start = time.perf_counter()
            call()
            found[name] = min(found[name], time.perf_counter() - start)
    return found


def speed(folder: Path) -> None:
    h = 3 * np.random.default_rng(0).normal(size=(ROWS, K))
    frame = pd.DataFrame(h, columns=NAMES[:K]).assign(label=h.argmax(axis=1))
    a, b, c = folder / "a.csv", folder / "a.parquet", folder / "a.npz"
    frame.to_csv(a, index=False)
    frame.to_parquet(b)
    np.savez(c, logits=h, labels=h.argmax(axis=1))
    others: dict[Path, dict[str, Callable[[], Any]]] = {
        a: {"pandas": lambda: pd.read_csv(a).to_numpy(), "pyarrow": lambda: csv.read_csv(a).to_pandas().to_numpy()},
        b: {"pandas": lambda: pd.read_parquet(b).to_numpy(), "pyarrow": lambda: parquet.read_table(b).to_pandas()},
        c: {"numpy": lambda: dict(np.load(c))},
    }
    for path, calls in others.items():
        found = best_of({"attemper": lambda path=path: attemper.read(path), **calls})  # type: ignore[misc]
        print(f"{path.suffix:9}", *(f"{name} {t:.2f} s ({found['attemper'] / t:.2f}×)  " for name, t in found.items()))


def memory(folder: Path) -> None:
    npy, labels, table = folder / "h.npy", folder / "y.npy", folder / "h.parquet"
    values = np.lib.format.open_memmap(npy, "w+", np.float64, (LARGE, K))
    y, rng = np.empty(LARGE, dtype=np.int64), np.random.default_rng(0)
    schema = pa.schema([(name, pa.int64() if name == "label" else pa.float64()) for name in NAMES])
    with parquet.ParquetWriter(table, schema, use_dictionary=False) as sink:
        for first in range(0, LARGE, ROWS):
            h, part = rng.random(size=(ROWS, K)) - 0.5, slice(first, first + ROWS)
            values[part], y[part] = h, h.argmax(axis=1)
            sink.write_table(pa.table(dict(zip(NAMES, [*h.T, y[part]])), schema=schema))
    np.save(labels, y)
    for path, beside in ((npy, str(labels)), (table, "")):
        run = [sys.executable, "-c", MEASURED, str(path), beside]
        shown = subprocess.run(run, capture_output=True, text=True, check=True).stdout
        print(f"{path.suffix:9}{path.stat().st_size / 1e9:.1f} GB in pieces, {shown.strip()}")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        speed(Path(place))
        memory(Path(place))
