"""The data of the benchmarks: sets of logits, labels with errors, and a run into a CSV that can be resumed.

A folder holds two kinds of files. ``<family>--<set>.npz`` has the keys logits and labels (or logits_val, labels_val,
logits_test, labels_test) and is cut into halves at random. An arena is a folder of classifiers' predictions:
``<set>.npz`` has, for each classifier m, m/p_val and m/p_test (N×K) and m/kind ("probs", or "logits" for raw scores),
with y_val, y_test and ``small``, the numbers of 200 calibration rows; its family is the kind of the classifier.
"""

from __future__ import annotations

import csv
import os
import sys
import time
import warnings
import zlib
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax, softmax
from threadpoolctl import threadpool_limits

MOST_TEST = 2500  # test samples of a set that is cut in two
LEAST_PROBABILITY = 1e-6  # of an arena's classifiers, so that every calibrator sees the same
VOTES = "cifar10h--counts"


class Source(NamedTuple):
    """One set: a file, and in an arena one of its classifiers."""

    path: Path
    model: str = ""

    @property
    def name(self):
        return f"{self.path.stem}/{self.model}" if self.model else self.path.stem

    @property
    def family(self):
        """All CIFAR-10 networks of others are one family; of data/ the family is the data set."""
        stem = self.path.stem
        if self.model or "--" not in stem:
            return self.model or stem.split("-")[1]
        return "cifar10" if stem.startswith("cifar10_") else stem.partition("--")[0]


class Case(NamedTuple):
    """A set, divided: calibration rows and test rows, with the rows of an arena that are "200 labels"."""

    h: np.ndarray
    y: np.ndarray
    h_test: np.ndarray
    y_test: np.ndarray
    rows: np.ndarray  # of the whole set, that the calibration rows are
    small: np.ndarray | None = None


def generator(*parts):
    """Return a random generator that depends on these names and numbers alone."""
    return np.random.default_rng([zlib.crc32(p.encode()) if isinstance(p, str) else p for p in parts])


def sources(folders, part=""):
    """Return the sets of some folders whose name has this part."""
    found = []
    for path in sorted(path for folder in folders for path in Path(folder).glob("*.npz")):
        with np.load(path, allow_pickle=False) as z:
            models = [key.removesuffix("/kind") for key in z.files if key.endswith("/kind")]
        found += [Source(path, model) for model in models or ([""] if path.stem != VOTES else [])]
    return [source for source in found if part in source.name]


def load(source, draw):
    """Read a set and divide it; the division depends on its name and the draw alone."""
    with np.load(source.path, allow_pickle=False) as z:
        if source.model:
            kind = str(z[f"{source.model}/kind"])
            h, h_test = (_as_logits(z[f"{source.model}/{part}"], kind) for part in ("p_val", "p_test"))
            y, y_test, small = (z[key].astype(int) for key in ("y_val", "y_test", "small"))
            return Case(h, y, h_test, y_test, np.arange(len(y)), small)
        whole = "logits" in z
        h = z["logits"] if whole else np.concatenate([z["logits_val"], z["logits_test"]])
        y = z["labels"] if whole else np.concatenate([z["labels_val"], z["labels_test"]])
    h, y = h.astype(np.float64), y.astype(int)
    order = generator(source.path.stem, "halves", draw).permutation(len(y))
    val, test = order[: len(y) // 2], order[len(y) // 2 :][:MOST_TEST]
    return Case(h[val], y[val], h[test], y[test], val)


def _as_logits(values, kind):
    p = np.asarray(values, dtype=float)
    p = softmax(p, axis=1) if kind == "logits" else p / p.sum(axis=1, keepdims=True)
    p = np.clip(p, LEAST_PROBABILITY, 1)
    return np.log(p / p.sum(axis=1, keepdims=True))


@cache
def votes(folder):
    """Return how many people gave each CIFAR-10 image each label; None without that file."""
    path = folder / f"{VOTES}.npz"
    if not path.exists():
        return None
    with np.load(path, allow_pickle=False) as z:
        return z["counts"]


def most_similar(h, y):
    """For each class the one that the network most often takes for it."""
    k = h.shape[1]
    mean = np.array([h[y == c].mean(axis=0) if (y == c).any() else np.zeros(k) for c in range(k)])
    np.fill_diagonal(mean, -np.inf)
    return mean.argmax(axis=1)


def spoil(h, y, share, kind, rng):
    """Replace this share of the labels: at random ("uniform", or "hard" where the network doubts), or by one class."""
    y, k = y.copy(), h.shape[1]
    doubt = 1 - softmax(h, axis=1).max(axis=1) + 1e-3
    chance = doubt / doubt.sum() if kind == "hard" else None
    which = rng.choice(len(y), round(share * len(y)), replace=False, p=chance)
    if kind == "similar":
        y[which] = most_similar(h, y)[y[which]]
    elif kind == "pairs":
        y[which] = (y[which] + 1) % k
    else:
        y[which] = rng.integers(0, k, len(which))
    return y


def mean_nll(log_p, y):
    return -float(log_p[np.arange(len(y)), y].mean())


def best_temperature(h, y):
    """Return the T of least NLL by plain minimisation, and that NLL; the yardstick does not change with attemper."""
    scale = np.ptp(h, axis=1).mean()

    def loss(log_beta):
        return mean_nll(log_softmax(h * (np.exp(log_beta) / scale), axis=1), y)

    found = minimize_scalar(loss, bounds=(-4, 10), method="bounded", options={"xatol": 1e-6})
    return scale / np.exp(found.x), found.fun


def read_lines(path):
    """Return the lines of a CSV; none where there is no file yet."""
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def prepare_worker():
    """One thread for each process, and no warnings: edges are expected with few labels."""
    os.environ.setdefault("ATTEMPER_THREADS", "1")
    threadpool_limits(1)
    warnings.simplefilter("ignore")


def run_into(path, fields, one_job, jobs, workers):
    """Append the lines that one_job returns for every job to a CSV, job by job."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh, start = not path.exists(), time.time()
    with path.open("a", newline="") as file, ProcessPoolExecutor(workers, initializer=prepare_worker) as pool:
        writer = csv.DictWriter(file, fields, restval="")
        if fresh:
            writer.writeheader()
        for i, lines in enumerate(pool.map(one_job, jobs), 1):
            writer.writerows(lines)
            file.flush()
            left = (time.time() - start) * (len(jobs) / i - 1) / 60
            print(f"{i} of {len(jobs)} jobs, {left:.0f} min left", file=sys.stderr, flush=True)
    print(file=sys.stderr)


def markdown(head, rows):
    """Return a table; the first column is text."""
    rule = ["---", *["--:"] * (len(head) - 1)]
    return "\n".join(f"| {' | '.join(row)} |" for row in [head, rule, *rows])
