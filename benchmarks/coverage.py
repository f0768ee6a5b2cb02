"""How often the intervals that attemper reports contain the true value.

    python benchmarks/coverage.py [--draws 200] [--resamples 200] [--seed 0]

The test set of a network in data/ serves as the population, so the true value of every metric is known; samples are
drawn from it with replacement, or whole clusters of ten of its rows. For T, labels are drawn from softmax(h/T); for the
noise rate, a fifth of these is then replaced at random. Minutes of CPU time.
"""

from __future__ import annotations

import argparse
import warnings
from collections import defaultdict
from concurrent.futures import ProcessPoolExecutor

import numpy as np
from scipy.special import softmax
from threadpoolctl import threadpool_limits

from attemper import BayesianTemperatureScaling, TemperatureScaling, datasets, metrics
from sets import table

NETWORKS = ("lenet5-mnist-s0", "vgg16-cifar10-s0", "resnet110-cifar100-s0")
SIZES = (500, 2000)
CLUSTER = 10  # rows of a cluster; neighbours in confidence are alike
NOISE = 0.2


def count(held, name, interval, truth):
    """Count draws with an interval, and those whose interval contains the truth."""
    low, high = interval
    if np.isfinite([low, high]).all():
        held[name] += np.array([1, low - 1e-9 <= truth <= high + 1e-9])


def one(job):
    """Draw samples of one network and size; return how many intervals there were, and how many hold."""
    name, n, draws, resamples, seed = job
    rng = np.random.default_rng((seed, NETWORKS.index(name), n))
    data = datasets.load(name)
    h, y = data.test_logits.astype(float), data.test_labels
    t = TemperatureScaling().fit(data.val_logits, data.val_labels).temperature_
    held = defaultdict(lambda: np.zeros(2, int))
    options = {"confidence_level": 0.95, "n_resamples": resamples, "seed": 0}
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for block, p in (("raw", softmax(h, axis=1)), ("calibrated", softmax(h / t, axis=1))):
            truth = metrics.evaluate(y, p)
            order = p.max(axis=1).argsort()
            cases = order[: len(order) // CLUSTER * CLUSTER].reshape(-1, CLUSTER)
            for _ in range(draws):
                rows = rng.integers(len(y), size=n)
                for metric, found in metrics.evaluate(y[rows], p[rows], **options).items():
                    count(held, f"{metric}, {block}", (found.low, found.high), float(truth[metric]))
            drawn = [cases[rng.integers(len(cases), size=n // CLUSTER)].ravel() for _ in range(draws)]
            for rows in drawn:
                clusters = np.arange(n // CLUSTER).repeat(CLUSTER)
                for metric in ("accuracy", "nll", "brier"):
                    found = getattr(metrics, metric)(y[rows], p[rows], clusters=clusters, **options)
                    count(held, f"{metric} by cluster, {block}", (found.low, found.high), float(truth[metric]))
        for _ in range(draws // 4):
            rows = rng.integers(len(h), size=n)
            drawn = (h[rows] / t + rng.gumbel(size=(n, h.shape[1]))).argmax(axis=1)
            clean = BayesianTemperatureScaling().fit(h[rows], drawn)
            wrong = np.where(rng.random(n) < NOISE, rng.integers(h.shape[1], size=n), drawn)
            noisy = BayesianTemperatureScaling(labels="noisy").fit(h[rows], wrong)
            count(held, "T", clean.temperature_interval_, t)
            count(held, "T, noisy labels", noisy.temperature_interval_, t)
            count(held, "noise rate", noisy.noise_interval_, NOISE)
    return dict(held)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draws", type=int, default=200)
    parser.add_argument("--resamples", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    cells = [(name, n) for name in NETWORKS for n in SIZES]
    jobs = [(*cell, options.draws, options.resamples, options.seed) for cell in cells]
    with ProcessPoolExecutor(options.workers) as pool:
        found = dict(zip(cells, pool.map(one, jobs)))
    names = list(dict.fromkeys(name for held in found.values() for name in held))
    rows = []
    for name in names:
        counts = [found[cell].get(name, (0, 0)) for cell in cells]
        rows.append([name, *(f"{100 * k / n:.0f} of {n}" if n else "–" for n, k in counts)])
    table(["interval", *(f"{name}, n = {n}" for name, n in cells)], rows)


if __name__ == "__main__":
    main()
