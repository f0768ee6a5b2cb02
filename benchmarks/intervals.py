"""How often the intervals that attemper reports contain the true value.

    python benchmarks/intervals.py metrics [--draws 400] [--resampled 100] [--seed 0] [--jobs 2]
    python benchmarks/intervals.py fits FOLDER [--draws 100] [--jobs 2]

metrics: `simulate` draws logits, and labels from softmax(h / T), so that the true value of every metric is that of a
very large draw. Independent rows, or clusters of four that share half of their logits and, in every second cluster, the
random part of their labels: a row alone has the same distribution in both. Classes: five, or two in one column. The
last rows: three groups together at Šidák's level, the test that they are alike at 5 %, T of bayes, and tests at 5 %
that an error of a calibrated classifier is by chance.

fits: on up to three sets of each family of FOLDER (`compare.py` describes it), labels are drawn from softmax(h / T) at
the T that is best for the set, a share of them uniformly, and T and the share of wrong labels are fitted. Sets whose
logits say nothing (T above 10) are left out. Draws are those of a family. Prints the mean over families and the lowest.
"""

from __future__ import annotations

import argparse
import csv
import sys
import warnings
from collections import defaultdict
from concurrent.futures import ProcessPoolExecutor
from itertools import product
from pathlib import Path

import numpy as np
from scipy.special import softmax
from threadpoolctl import threadpool_limits

import data
from attemper import BayesianTemperatureScaling, StructuredScaling, TemperatureScaling
from attemper.metrics import evaluate
from attemper.metrics.evaluation import METRICS

CLUSTER = 4
POPULATION = 400_000
NAMES = [name for name in METRICS if name not in ("classwise_ece", "mce", "ece_debiased")]  # these have no interval
SLOW = ("ece", "ece_quantile", "smooth_ece", "mmce")  # resampled
CELLS = [(k, t, clustered, n) for k in (2, 5) for t in (1.0, 1.7) for clustered in (False, True) for n in (500, 2000)]


def simulate(rng, n, k, t, clustered):
    """Return logits, labels and the cluster of each row, or None; labels are drawn at temperature t."""
    h, noise = rng.normal(size=(n, k)), rng.gumbel(size=(n, k))
    if not clustered:
        return 2.5 * h, (2.5 * h / t + noise).argmax(axis=1), None
    case = np.arange(n) // CLUSTER
    m = case[-1] + 1
    h = 2.5 * (h + rng.normal(size=(m, k))[case]) / np.sqrt(2)
    noise = np.where((case % 2 == 0)[:, None], rng.gumbel(size=(m, k))[case], noise)
    return h, (h / t + noise).argmax(axis=1), case


def probs_of(h):
    """Return probabilities; of two classes one column."""
    p = softmax(h, axis=1)
    return p[:, 1] if h.shape[1] == 2 else p


def cover(job):
    """Return how many draws of a cell have an interval, and how many of these hold the truth, by metric."""
    (k, t, clustered, n), draws, resampled, seed = job
    rng = np.random.default_rng((seed, k, int(10 * t), clustered, n))
    h, y, _ = simulate(np.random.default_rng(seed), POPULATION, k, t, clustered=False)
    truth = {name: each.value for name, each in evaluate(y, probs_of(h), NAMES, confidence_level=None).items()}
    tests = [f"{name} by chance" for name in SLOW] if t == 1 else []
    held = {name: np.zeros(2, int) for name in [*NAMES, "accuracy by group", "groups alike", "T", *tests]}

    def count(name, *pairs):
        if all(np.isfinite([low, high]).all() for low, high, _ in pairs):
            held[name] += np.array([1, all(low - 1e-9 <= value <= high + 1e-9 for low, high, value in pairs)])

    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for number in range(draws):
            h, y, case = simulate(rng, n, k, t, clustered)
            p = probs_of(h)
            names = [name for name in NAMES if number < resampled or name not in SLOW]
            for name, found in evaluate(y, p, names, clusters=case).items():
                count(name, (found.low, found.high, truth[name]))
                if f"{name} by chance" in held:
                    count(f"{name} by chance", (0.05, 1.0, found.p))
            site = (np.arange(n) // CLUSTER) % 3
            groups = evaluate(y, p, ["accuracy"], clusters=case, by=site)
            each = [part["accuracy"] for part in groups.parts.values()]
            count("accuracy by group", *((e.low, e.high, truth["accuracy"]) for e in each))
            count("groups alike", (0.05, 1.0, groups.alike.p))
            fitted = BayesianTemperatureScaling().fit(h, y, clusters=case)
            count("T", (*fitted.temperature_interval_, t))
    return held


def cover_fits(job):
    """Return how often the intervals of one set hold the truth: {(method, what, labels, ε, noise): share}."""
    source, numbers = job
    case, held = data.load(source, 0), defaultdict(list)
    h, y = np.concatenate([case.h, case.h_test]), np.concatenate([case.y, case.y_test])
    t, k = data.best_temperature(h, y)[0], h.shape[1]
    for draw, n in product(numbers if t < 10 else (), (200, 1000)):
        rng = data.generator(source.name, "coverage", draw, n)
        x = h[rng.integers(len(h), size=n)]
        right = (x / t + rng.gumbel(size=x.shape)).argmax(axis=1)
        for rate in (0.0, 0.1, 0.3):
            labels = np.where(rng.random(n) < rate, rng.integers(0, k, n), right)
            share, wrong = rate * (k - 1) / k, float(np.mean(labels != right))
            cals = [] if rate else [("ts", "known", TemperatureScaling())]
            for noise in ("unknown", share) if rate else (0,):
                name = "unknown" if noise == "unknown" else "known"
                cals += [("bayes", name, BayesianTemperatureScaling(noise=noise))]
                cals += [("structured", name, StructuredScaling(noise=noise))]
            for method, noise, cal in cals:
                low, high = cal.fit(x, labels).temperature_interval_ or (np.nan, np.nan)
                held[method, "T", n, f"{rate:.0%}", noise].append(low <= t <= high)
                if noise == "unknown":
                    low, high = cal.noise_interval_
                    found = low <= max(share, wrong) and min(share, wrong) <= high
                    held[method, "share", n, f"{rate:.0%}", noise].append(found)
    return source.family, held


def fits(folder, draws, jobs):
    by_family = defaultdict(list)
    for source in data.sources([folder]):
        by_family[source.family].append(source)
    some = [sources[:: max(1, len(sources) // 3)][:3] for sources in by_family.values()]
    jobs_of = [(source, range(i, draws, len(own))) for own in some for i, source in enumerate(own)]
    found = defaultdict(lambda: defaultdict(list))
    with ProcessPoolExecutor(jobs, initializer=data.prepare_worker) as pool:
        for family, held in pool.map(cover_fits, jobs_of):
            for key, values in held.items():
                found[key][family] += values
    rows = []
    for key in sorted(found):
        shares = {family: 100 * np.mean(values) for family, values in found[key].items()}
        lowest = sorted((share, family) for family, share in shares.items())[:3]
        cells = [f"{np.mean(list(shares.values())):.0f}", ", ".join(f"{s:.0f} {f}" for s, f in lowest)]
        rows.append([*map(str, key), *cells])
    print(data.markdown(["method", "interval of", "labels", "uniform", "noise", "mean, %", "lowest families"], rows))


def metrics(draws, resampled, seed, jobs):
    """Write the table to the standard output, and the cells outside 93 to 98 % below it."""
    work = [(cell, draws, resampled, seed) for cell in CELLS]
    with ProcessPoolExecutor(jobs) as pool:
        found = dict(zip(CELLS, pool.map(cover, work)))
    titles = [f"K={k} T={t} {'clusters' if clustered else 'iid'} n={n}" for k, t, clustered, n in CELLS]
    writer = csv.writer(sys.stdout)
    writer.writerow(["interval", *titles])
    outside = []
    for name in found[CELLS[0]]:
        shares = []
        for title, cell in zip(titles, CELLS):
            given, hold = found[cell].get(name, (0, 0))
            shares.append(f"{100 * hold / given:.1f}" if given else "–")
            if given and not 93 <= 100 * hold / given <= 98:
                outside.append(f"{name}, {title}: {hold} of {given}")
        writer.writerow([name, *shares])
    print("\noutside 93 to 98 %:", *outside, sep="\n  ")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=["metrics", "fits"])
    parser.add_argument("folder", type=Path, nargs="?", help="of logits, for the fits")
    parser.add_argument("--draws", type=int)
    parser.add_argument("--resampled", type=int, default=100, help="draws of metrics whose intervals are resampled")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=2)
    asked = parser.parse_args()
    if asked.part == "metrics":
        metrics(asked.draws or 400, asked.resampled, asked.seed, asked.jobs)
    elif asked.folder is None:
        parser.error("fits: expected a folder of .npz files")
    else:
        fits(asked.folder, asked.draws or 100, asked.jobs)


if __name__ == "__main__":
    main()
