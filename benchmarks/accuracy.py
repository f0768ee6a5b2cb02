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
from pathlib import Path

import numpy as np

import sets
from attemper import AttendedTemperatureScaling, BayesianTemperatureScaling, ScaleMap, TemperatureScaling

METHODS = ("uncalibrated", "TS", "ATS", "Bayesian")


def one_set(job):
    path, draws, sizes, noises, kind, labels, scale = job
    out = {}
    for draw in range(draws):
        rng = np.random.default_rng([draw, 1])
        hv, yv, ht, yt = sets.halves(path, rng)
        hv, ht = scale * hv, scale * ht
        ideal = TemperatureScaling().fit(ht, yt)
        for n in sizes:
            if n > len(yv):
                continue
            rows = rng.choice(len(yv), n, replace=False)
            for share in noises:
                h, y = hv[rows], sets.spoil(hv[rows], yv[rows], share, kind, rng)
                bayes = BayesianTemperatureScaling(labels=labels or ("noisy" if share else "clean"))
                fitted = [sets.plain(h, y).map_, *(m.fit(h, y).map_ for m in (AttendedTemperatureScaling(), bayes))]
                losses = [sets.nll(m, ht, yt) - ideal.fit_report_.nll for m in (ScaleMap(1.0), *fitted)]
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
    paths = sets.large_enough(told.folder)
    jobs = [(p, told.draws, sizes, noises, told.kind, told.labels, told.scale) for p in paths]
    found = sets.run(one_set, jobs, told.workers)
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
