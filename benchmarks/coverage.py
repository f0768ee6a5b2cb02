"""How often the intervals that attemper reports contain the true value.

    python benchmarks/coverage.py [--draws 400] [--resampled 100] [--seed 0] [--workers 2]

One `simulate` draws it all: logits, and labels from softmax(h / T), so that the true value of every metric is that of
a very large draw. Independent rows, or clusters of four that share half of their logits and, in every second cluster,
the random part of their labels: a row alone has the same distribution in both. Classes: five, or two in one column.
The last rows: three groups together at Šidák's level, the test that they are alike at 5 %, and T of bayes. Some minutes
of CPU time.
"""

from __future__ import annotations

import argparse
import csv
import sys
import warnings
from concurrent.futures import ProcessPoolExecutor

import numpy as np
from scipy.special import softmax
from threadpoolctl import threadpool_limits

from attemper import BayesianTemperatureScaling
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
    held = {name: np.zeros(2, int) for name in [*NAMES, "accuracy by group", "groups alike", "T"]}

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
            site = (np.arange(n) // CLUSTER) % 3
            groups = evaluate(y, p, ["accuracy"], clusters=case, by=site)
            each = [part["accuracy"] for part in groups.parts.values()]
            count("accuracy by group", *((e.low, e.high, truth["accuracy"]) for e in each))
            count("groups alike", (0.05, 1.0, groups.alike.p))
            fitted = BayesianTemperatureScaling().fit(h, y, clusters=case)
            count("T", (*fitted.temperature_interval_, t))
    return held


def main():
    """Write the table to the standard output, and the cells outside 93 to 98 % below it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draws", type=int, default=400)
    parser.add_argument("--resampled", type=int, default=100, help="draws of metrics whose intervals are resampled")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    jobs = [(cell, options.draws, options.resampled, options.seed) for cell in CELLS]
    with ProcessPoolExecutor(options.workers) as pool:
        found = dict(zip(CELLS, pool.map(cover, jobs)))
    titles = [f"K={k} T={t} {'clusters' if clustered else 'iid'} n={n}" for k, t, clustered, n in CELLS]
    writer = csv.writer(sys.stdout)
    writer.writerow(["interval", *titles])
    outside = []
    for name in found[CELLS[0]]:
        shares = []
        for title, cell in zip(titles, CELLS):
            given, hold = found[cell][name]
            shares.append(f"{100 * hold / given:.1f}" if given else "–")
            if given and not 93 <= 100 * hold / given <= 98:
                outside.append(f"{name}, {title}: {hold} of {given}")
        writer.writerow([name, *shares])
    print("\noutside 93 to 98 %:", *outside, sep="\n  ")


if __name__ == "__main__":
    main()
