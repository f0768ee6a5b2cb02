"""Few and noisy labels: uncalibrated, TS, ATS and Bayesian temperature scaling on a folder of logits.

    python benchmarks/accuracy.py FOLDER [--draws 3] [--sizes 20,50,100,200,1000] [--noise 0,0.1,0.3,0.5]
        [--kind uniform|similar|hard] [--labels noisy] [--scale 2.7]

Every .npz of the folder with at least 2000 labelled samples (keys logits/labels, or logits_val/… and
logits_test/…) is cut in two: labels are drawn from one half, 2500 samples of the other judge. Printed is the mean over
sets and draws of the excess test NLL over the best single temperature of those test samples; below zero is
better than any temperature. The last columns: how often the credible intervals of the Bayesian fit held the best T of
the test samples and the share of labels that was replaced.

``--kind`` is the noise: labels replaced by a uniform draw; by the class that the network takes for the most similar;
or, where the network is unsure, by a uniform draw. The Bayesian fit is told "clean" without noise and "noisy" with it;
``--labels`` tells it one of them always. ``--scale`` multiplies all logits.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
import warnings
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

os.environ.setdefault("ATTEMPER_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

from attemper import AttendedTemperatureScaling, BayesianTemperatureScaling, ScaleMap, TemperatureScaling

METHODS = ("uncalibrated", "TS", "ATS", "Bayesian")


def halves(path, rng):
    with np.load(path, allow_pickle=False) as z:
        if "logits" in z:
            h, y = z["logits"], z["labels"].astype(int)
        else:
            h = np.concatenate([z["logits_val"], z["logits_test"]])
            y = np.concatenate([z["labels_val"], z["labels_test"]]).astype(int)
    order = rng.permutation(len(y))
    val, test = order[: len(y) // 2], order[len(y) // 2 :][:2500]
    return h[val], y[val], h[test], y[test]


def spoil(h, y, share, kind, rng):
    """Replace this share of the labels."""
    y, n_classes = y.copy(), h.shape[1]
    n = round(share * len(y))
    if kind == "hard":
        p = ScaleMap(1.0).apply(h.astype(float)).max(axis=1)
        which = rng.choice(len(y), n, replace=False, p=(1 - p + 1e-3) / (1 - p + 1e-3).sum())
    else:
        which = rng.choice(len(y), n, replace=False)
    if kind == "similar":  # the class that the network most often takes for this one
        mean = np.array([h[y == k].mean(axis=0) if (y == k).any() else np.zeros(n_classes) for k in range(n_classes)])
        np.fill_diagonal(mean, -np.inf)
        y[which] = mean.argmax(axis=1)[y[which]]
    else:
        y[which] = rng.integers(0, n_classes, n)
    return y


def nll(calibration_map, h, y):
    return -float(calibration_map.log_apply(h.astype(float))[np.arange(len(y)), y].mean())


def one_set(job):
    path, draws, sizes, noises, kind, labels, scale = job
    warnings.simplefilter("ignore")
    out = {}
    for draw in range(draws):
        rng = np.random.default_rng([draw, 1])
        hv, yv, ht, yt = halves(path, rng)
        hv, ht = scale * hv, scale * ht
        ideal = TemperatureScaling().fit(ht, yt)
        for n in sizes:
            if n > len(yv):
                continue
            rows = rng.choice(len(yv), n, replace=False)
            for share in noises:
                h, y = hv[rows], spoil(hv[rows], yv[rows], share, kind, rng)
                bayes = BayesianTemperatureScaling(labels=labels or ("noisy" if share else "clean"))
                # Without any finite optimum TS is given the edge of (0.05, 20).
                fitted = [
                    m.fit(h, y).map_
                    for m in (TemperatureScaling(t_range=(0.05, 20)), AttendedTemperatureScaling(), bayes)
                ]
                losses = [nll(m, ht, yt) - ideal.fit_report_.nll for m in (ScaleMap(1.0), *fitted)]
                (t_low, t_high), (e_low, e_high) = bayes.temperature_interval_, bayes.noise_interval_
                held = [t_low <= ideal.temperature_ <= t_high, e_low <= share <= e_high]
                out.setdefault((n, share), []).append(losses + held)
    return Path(path).stem, out


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--draws", type=int, default=3)
    parser.add_argument("--sizes", default="20,50,100,200,1000")
    parser.add_argument("--noise", default="0,0.1,0.3,0.5")
    parser.add_argument("--kind", choices=["uniform", "similar", "hard"], default="uniform")
    parser.add_argument("--labels", choices=["clean", "noisy"])
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--workers", type=int, default=2)
    told = parser.parse_args()
    sizes = [int(v) for v in told.sizes.split(",")]
    noises = [float(v) for v in told.noise.split(",")]
    paths = []
    for path in sorted(told.folder.glob("*.npz")):
        with np.load(path, allow_pickle=False) as z:
            n = len(z["labels"]) if "labels" in z else len(z["labels_val"]) + len(z["labels_test"])
        if n >= 2000:
            paths.append(path)
    start, found = time.time(), {}
    jobs = [(p, told.draws, sizes, noises, told.kind, told.labels, told.scale) for p in paths]
    with ProcessPoolExecutor(told.workers) as pool:
        for i, (name, out) in enumerate(pool.map(one_set, jobs)):
            found[name] = out
            print(
                f"\r{i + 1} of {len(paths)} sets, {time.time() - start:.0f} s ",
                end="",
                file=sys.stderr,
                flush=True,
            )
    print(file=sys.stderr)
    print(f"{len(found)} sets, {told.draws} draws, {told.kind} noise; mean excess test NLL over the best single T\n")
    print(
        "| labels | noise | "
        + " | ".join(METHODS)
        + " | ± over draws | worst set: Bayesian − TS | T held | noise held |"
    )
    print("|---|---|" + "---|" * (len(METHODS) + 4))
    for share in noises:
        for n in sizes:
            table = np.array([out[n, share] for out in found.values() if (n, share) in out])  # sets × draws × methods
            if not len(table):
                continue
            worst = (table[..., 3] - table[..., 1]).mean(axis=1)
            spread = table[..., 3].mean(axis=0).std(ddof=1) if told.draws > 1 else float("nan")
            mean = table.mean(axis=(0, 1))
            cells = " | ".join(f"{v:.4f}" for v in mean[:4])
            name = list(found)[int(worst.argmax())]
            held = f"{mean[4]:.0%} | {mean[5]:.0%}"
            print(f"| {n} | {share:.0%} | {cells} | {spread:.4f} | {worst.max():+.4f} ({name}) | {held} |", flush=True)


if __name__ == "__main__":
    main()
