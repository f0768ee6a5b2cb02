"""Sets of logits that the benchmarks share: reading a folder, cutting a set in two, spoiling labels, judging.

A file is an .npz with the keys logits/labels, or logits_val/… and logits_test/….
"""

from __future__ import annotations

import contextlib
import csv
import os
import sys
import time
import warnings
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np
from threadpoolctl import threadpool_limits

from attemper import TemperatureScaling
from attemper.maps import Map

LEAST = 2000  # samples that a set must have
JUDGES = 2500  # test samples at most


def read(path):
    with np.load(path, allow_pickle=False) as z:
        if "logits" in z:
            return z["logits"], z["labels"].astype(int)
        h = np.concatenate([z["logits_val"], z["logits_test"]])
        return h, np.concatenate([z["labels_val"], z["labels_test"]]).astype(int)


def labels_of(path):
    with np.load(path, allow_pickle=False) as z:
        parts = [part for part in ("labels", "labels_val", "labels_test") if part in z]
        return np.concatenate([z[part] for part in parts]).astype(int) if parts else np.zeros(0, int)


def large_enough(folder, every=1, most_classes=None):
    """Paths of the sets with enough labelled samples; of those every so many, with at most so many classes."""
    paths = [path for path in sorted(Path(folder).glob("*.npz")) if len(labels_of(path)) >= LEAST][::every]
    return [path for path in paths if most_classes is None or read(path)[0].shape[1] <= most_classes]


def cut(n, rng):
    """Rows of the validation half, and of the test samples."""
    order = rng.permutation(n)
    return order[: n // 2], order[n // 2 :][:JUDGES]


def most_similar(h, y):
    """For each class the one that the network most often takes for it."""
    n_classes = h.shape[1]
    mean = np.array([h[y == k].mean(axis=0) if (y == k).any() else np.zeros(n_classes) for k in range(n_classes)])
    np.fill_diagonal(mean, -np.inf)
    return mean.argmax(axis=1)


def spoil(h, y, share, kind, rng):
    """Replace this share of the labels."""
    y, n_classes = y.copy(), h.shape[1]
    n = round(share * len(y))
    if kind == "hard":
        p = Map.scale(1.0).apply(h.astype(float)).max(axis=1)
        which = rng.choice(len(y), n, replace=False, p=(1 - p + 1e-3) / (1 - p + 1e-3).sum())
    else:
        which = rng.choice(len(y), n, replace=False)
    if kind == "similar":
        y[which] = most_similar(h, y)[y[which]]
    elif kind == "cyclic":
        y[which] = (y[which] + 1) % n_classes
    else:
        y[which] = rng.integers(0, n_classes, n)
    return y


def mean_nll(log_p, y):
    return -float(log_p[np.arange(len(y)), y].mean())


def nll(calibration_map, h, y):
    return mean_nll(calibration_map.log_apply(h.astype(float)), y)


def plain(h, y):
    """Temperature scaling; without any finite optimum it is given the edge of (0.05, 20)."""
    return TemperatureScaling(t_range=(0.05, 20)).fit(h, y)


def prepare_worker():
    """One thread for each process, and no warnings: edges are expected with few labels."""
    os.environ.setdefault("ATTEMPER_THREADS", "1")
    threadpool_limits(1)
    warnings.simplefilter("ignore")


def add_options(parser):
    """Which sets, how often, and how: the same for all benchmarks that take hours."""
    parser.add_argument("folder", type=Path)
    parser.add_argument("--every", type=int, default=1, help="take every so many sets")
    parser.add_argument("--classes", type=int, help="leave out sets with more classes")
    parser.add_argument("--draws", type=int, default=1)
    parser.add_argument("--workers", type=int, default=2)


def run(one_set, jobs, workers):
    """Call one_set on every job, in processes; it returns the set's name and what was found."""
    found, start = {}, time.time()
    with ProcessPoolExecutor(workers, initializer=prepare_worker) as pool:
        for i, (name, out) in enumerate(pool.map(one_set, jobs)):
            found[name] = out
            seconds = time.time() - start
            print(f"\r{i + 1} of {len(jobs)} sets, {seconds:.0f} s ", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    return found


def read_lines(path):
    """Lines of a CSV; none where there is no file yet."""
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def run_into(path, fields, one_job, jobs, workers):
    """Append the lines that one_job returns for every job to a CSV, job by job, so that a run can be resumed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh, start = not path.exists(), time.time()
    with path.open("a", newline="") as file, contextlib.ExitStack() as stack:
        writer = csv.DictWriter(file, fields, restval="")
        if fresh:
            writer.writeheader()
        if workers > 1:
            pool = stack.enter_context(ProcessPoolExecutor(workers, initializer=prepare_worker))
            results = pool.map(one_job, jobs)
        else:
            prepare_worker()
            results = map(one_job, jobs)
        for i, lines in enumerate(results):
            writer.writerows(lines)
            file.flush()
            left = (time.time() - start) * (len(jobs) / (i + 1) - 1)
            print(f"{i + 1} of {len(jobs)} jobs, {left / 60:.0f} min left", file=sys.stderr, flush=True)


def table(head, rows):
    """Print as Markdown."""
    print(f"\n{markdown(head, rows)}", flush=True)


def markdown(head, rows):
    return "\n".join(f"| {' | '.join(row)} |" for row in [head, ["---"] * len(head), *rows])
