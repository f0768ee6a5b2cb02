"""Many files: memory, how time grows, and the merge of many sketches.

    make bench-scale
    python benchmarks/scale.py memory --gigabytes 8 [--workers 2] [--folder /where/there/is/room]
    python benchmarks/scale.py slopes
    python benchmarks/scale.py merge

Each part prints what it measured and whether the promise holds; the exit code is 1 if one does not.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import numpy as np

from attemper import Sketch
from attemper.sharded import merge_sketches
from sets import table

FAILED = []


def say(what: str, holds: bool | None = None) -> None:
    print(what + ("" if holds is None else "  holds" if holds else "  DOES NOT HOLD"), flush=True)
    if holds is False:
        FAILED.append(what)


def draw(n, n_classes, seed=0, dtype=np.float32):
    rng = np.random.default_rng(seed)
    h = 4 * rng.standard_normal(size=(n, n_classes), dtype=np.float32)
    y = (h / 2.5 + rng.gumbel(size=h.shape)).argmax(axis=1)
    return h.astype(dtype), y


# Memory


def descendants(pid):
    parents = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parents[int(entry.name)] = int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1])
            except OSError:
                continue
    found, new = set(), {pid}
    while new:
        new = {child for child, parent in parents.items() if parent in new} - found
        found |= new
    return sorted(found)


def memory(options):
    """Fit gigabytes of logits from npy and from parquet; peak of every process beyond what importing takes."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    n_classes, shards = 1000, 4
    rows = int(options.gigabytes * 1e9 / 4 / n_classes / shards)
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        folder = Path(name)
        room = shutil.disk_usage(folder).free / 1e9
        if room < 1.5 * options.gigabytes + 1:
            sys.exit(f"{folder}: {room:.0f} GB free, too little for {options.gigabytes} GB; say --folder")
        base, floor = peaks([sys.executable, "-c", "import attemper.cli, time; time.sleep(1)"])
        say(f"importing takes {base / 1e6:.0f} MB")
        piece, labels = draw(20_000, n_classes)  # repeated: drawing gigabytes would take longer than fitting them
        for form in ("npy", "parquet"):
            for i in range(shards):
                y = np.resize(labels, rows)
                if form == "npy":
                    np.save(folder / f"{i}_labels.npy", y)
                    target = np.lib.format.open_memmap(folder / f"{i}.npy", "w+", np.float32, (rows, n_classes))
                    for first in range(0, rows, len(piece)):
                        target[first : first + len(piece)] = piece[: min(len(piece), rows - first)]
                    target.flush()
                    del target
                else:
                    kind = pa.list_(pa.float32(), n_classes)
                    schema = pa.schema([("logits", kind), ("label", pa.int64())])
                    with pq.ParquetWriter(folder / f"{i}.parquet", schema, compression="none") as writer:
                        for first in range(0, rows, len(piece)):
                            part = piece[: min(len(piece), rows - first)]
                            column = pa.FixedSizeListArray.from_arrays(pa.array(part.ravel()), n_classes)
                            table = pa.table([column, pa.array(y[first : first + len(part)])], schema=schema)
                            writer.write_table(table, row_group_size=len(part))
            size = sum(p.stat().st_size for p in folder.iterdir()) / 1e9
            inputs = [f"{folder}/?.{form}"] + (["--labels", f"{folder}/?_labels.npy"] if form == "npy" else [])
            more = ["--workers", str(options.workers)] if options.workers else []
            command = [sys.executable, "-m", "attemper", "fit", *inputs, "--method", "ts", "-o", str(folder / "m.json")]
            t = time.perf_counter()
            top, _ = peaks([*command, *more])
            beyond = (top - floor) / 1e6
            say(
                f"{size:.1f} GB of {form}, {' '.join(more) or 'one process'}: peak {beyond:.0f} MB a process beyond "
                f"importing, {time.perf_counter() - t:.0f} s",
                beyond < 600,
            )
            for path in folder.glob(f"*.{form}"):
                path.unlink()


def peaks(command):
    """Run a command; return the largest peak of resident memory among it and its workers, and its own, in bytes."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    high = {}
    while process.poll() is None:
        for pid in [process.pid, *descendants(process.pid)]:
            try:
                text = Path(f"/proc/{pid}/status").read_text()
            except OSError:
                continue
            for line in text.splitlines():
                if line.startswith("VmHWM"):
                    high[pid] = max(high.get(pid, 0), 1024 * int(line.split()[1]))
        time.sleep(0.02)
    if process.returncode:
        sys.exit(f"{command} failed")
    return max(high.values()), high[process.pid]


# Time


def slopes(options):
    """Time of a sketch over two decades of N and of K, as a slope in logarithms."""
    parts = {"ts": (), "ats": ("attended",), "bayes": ("uniform",)}
    os.environ["ATTEMPER_THREADS"] = "1"
    rows = []
    for axis, sizes in (
        ("N", [(2000, 100), (6000, 100), (20_000, 100), (60_000, 100), (200_000, 100)]),
        # Below a few hundred classes what is done for each sample, such as 40 rates of noise, counts beside K.
        ("K", [(1000, options.classes * f // 10) for f in (10, 33, 100, 333, 1000)]),
    ):
        first, last = sizes[0], sizes[-1]
        which = [f"N from {first[0]} to {last[0]}, K = {first[1]}", f"K from {first[1]} to {last[1]}, N = {first[0]}"]
        rows.append([which[axis == "K"]])
        for method, these in parts.items():
            times = []
            for n, k in sizes:
                h, y = draw(n, k)
                took = []
                for _ in range(3 if n * k < 3e6 else 2):
                    t = time.process_time()
                    Sketch.of(h, y, parts=these)
                    took.append(time.process_time() - t)
                times.append(min(took))
            x = np.log([n if axis == "N" else k for n, k in sizes])
            slope = np.polyfit(x, np.log(times), 1)[0]
            shown = ", ".join(f"{1e3 * t:.0f}" for t in times)
            say(f"{method}: time grows as {axis}^{slope:.3f} ({shown} ms)", 0.9 <= slope <= 1.1)
            rows[-1].append(f"{slope:.2f}")
    table(["", *(f"`{method}`" for method in parts)], rows)


def merge(_):
    """Add 10 000 sketches with all parts."""
    one = Sketch.of(*draw(500, 10))
    many = [replace(one, tables={name: part.copy() for name, part in one.tables.items()}) for _ in range(10_000)]
    t = time.perf_counter()
    total = merge_sketches(many)
    took = time.perf_counter() - t
    assert total.n_samples == 5_000_000
    say(
        f"10 000 sketches of {sum(part.nbytes for part in one.tables.values()) // 1024} KiB merged in {took:.2f} s",
        took < 1,
    )


PARTS = {"memory": memory, "slopes": slopes, "merge": merge}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], help="which parts; all by default")
    parser.add_argument("--gigabytes", type=float, default=8.0, help="logits of the memory part (default 8)")
    parser.add_argument("--workers", type=int, help="fit with so many processes (default: one process, two threads)")
    parser.add_argument("--classes", type=int, default=300, help="where the two decades of K begin (default 300)")
    parser.add_argument("--folder", help="where the memory part may write them")
    options = parser.parse_args()
    for name in options.parts or PARTS:
        print(f"\n{name}: {PARTS[name].__doc__}")
        PARTS[name](options)
    sys.exit(1 if FAILED else 0)


if __name__ == "__main__":
    main()
