"""Venn–Abers beside the package venn-abers, and its two ways to treat many classes.

    python benchmarks/venn.py                       # same numbers as the package, and times
    python benchmarks/venn.py --arena FOLDER        # one against the rest, or the predicted class against all

A file of FOLDER holds, for each classifier m, m/p_val, m/p_test (n×K) and m/kind ("probs" or "logits"), and y_val,
y_test and small (the numbers of 200 rows of the calibration part). Probabilities are clipped to [1e-6, 1]. The package
is needed for the first use only.
"""

from __future__ import annotations

import argparse
import time
from collections import defaultdict
from pathlib import Path

import numpy as np
from scipy.special import softmax

from attemper import VennAbers
from attemper.metrics import brier, nll


def beside_the_package() -> None:
    """Print the largest difference and both times, for two classes."""
    from venn_abers import VennAbers as Package

    rng = np.random.default_rng(0)
    for n in (200, 2000, 20_000, 100_000):
        p, new = rng.random((2, n))
        z = (rng.random(n) < p**2).astype(int)
        given, wanted = (np.column_stack([1 - v, v]) for v in (p, new))
        start = time.perf_counter()
        fitted = VennAbers(input="probs").fit(given, z)
        ours, interval = fitted.predict_proba(wanted), fitted.predict_interval(wanted)
        middle = time.perf_counter()
        package = Package()
        package.fit(given, z)
        theirs, ends = package.predict_proba(wanted)
        end = time.perf_counter()
        apart = np.max([np.abs(interval[i][:, 1] - ends[:, i]) for i in (0, 1)], axis=0)
        apart = np.maximum(apart, np.abs(ours - theirs)[:, 1])
        near = np.abs(new[:, None] - np.sort(p)[np.searchsorted(np.sort(p), new)[:, None].clip(1, n - 1) - [0, 1]])
        same = near.min(axis=1) < 1e-6 * new * (1 - new)  # counted as equal to a score of the fit
        print(
            f"{n:7d} rows: {middle - start:.3f} s, package {end - middle:.3f} s, differ by {apart[~same].max():.1e}; "
            f"{same.mean():.2%} counted as equal to a score of the fit, by {apart[same].max(initial=0):.1e}"
        )


def of_two(p: np.ndarray, right: np.ndarray, new: np.ndarray) -> np.ndarray:
    """Probability of being right, of scores p with outcomes."""
    columns = [np.column_stack([1 - v, v]) for v in (p, new)]
    return VennAbers(input="probs", zeros_as=1e-12).fit(columns[0], right.astype(int)).predict_proba(columns[1])[:, 1]


def top_versus_all(p: np.ndarray, y: np.ndarray, new: np.ndarray) -> np.ndarray:
    """Calibrate the confidence; the other classes share the rest as before."""
    confidence = of_two(p.max(axis=1), p.argmax(axis=1) == y, new.max(axis=1))
    top = np.arange(new.shape[1]) == new.argmax(axis=1)[:, None]
    rest = np.where(top, 0.0, new)
    return np.where(top, confidence[:, None], rest * ((1 - confidence) / rest.sum(axis=1))[:, None])


def one_versus_rest(p: np.ndarray, y: np.ndarray, new: np.ndarray) -> np.ndarray:
    """Calibrate each class, as `VennAbers` does."""
    return VennAbers(input="probs").fit(p, y).predict_proba(new)


def probabilities(values: np.ndarray, kind: str) -> np.ndarray:
    """Clip, so that no class is impossible."""
    p = np.clip(softmax(values.astype(float), axis=1) if kind == "logits" else values.astype(float), 1e-6, 1)
    return p / p.sum(axis=1, keepdims=True)


def arena(folder: Path) -> None:
    """Print the change of log-loss and Brier score against the classifier as it is."""
    found = defaultdict(list)
    for path in sorted(folder.glob("*.npz")):
        data = np.load(path)
        if data["y_val"].max() < 2:
            continue
        for model in sorted({name.split("/")[0] for name in data.files if name.endswith("/p_val")}):
            kind, y, truth = str(data[f"{model}/kind"]), data["y_val"], data["y_test"]
            p, new = (probabilities(data[f"{model}/p_{part}"], kind) for part in ("val", "test"))
            for size, rows in (("all", np.arange(len(y))), ("200", data["small"])):
                for way in (one_versus_rest, top_versus_all):
                    q = way(p[rows], y[rows], new)
                    found[size, way.__name__].append([m(truth, q) - m(truth, new) for m in (nll, brier)])
    for (size, way), changes in found.items():
        mean, worst = np.mean(changes, axis=0), np.max(changes, axis=0)
        better = np.mean(np.array(changes)[:, 0] < 0)
        print(
            f"{size:>3} rows, {way:15}: {len(changes)} cases, log-loss {mean[0]:+.4f} (worst {worst[0]:+.3f}, "
            f"better in {better:.0%}), Brier {mean[1]:+.5f} (worst {worst[1]:+.4f})"
        )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--arena", type=Path, metavar="FOLDER")
    options = parser.parse_args()
    beside_the_package() if options.arena is None else arena(options.arena)
