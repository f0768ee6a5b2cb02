"""Metrics by group: whether intervals of all groups hold together, and the level of the test of "all groups alike".

    python benchmarks/group_metrics.py [coverage worst alike small] [--draws 300] [--seed 0]

coverage  share of draws in which the intervals of all groups hold the true values, at 95 %, jointly and one by one
worst     share of draws in which the largest true gap is in the interval of `worst`; and how much the largest observed
          gap exceeds it
alike     how often the test alarms at 5 % where groups are alike, and where one of them has another temperature
small     which group looks worst by ECE, by the debiased ECE and by `worst`, where all are calibrated and sizes differ

Logits are normal, and labels are drawn from softmax(logits / T) with a T for each group: all true values are known, to
four digits, from 400 000 samples. Samples of a cluster have a common part of the logits, and half of the clusters have
common noise of the labels.
"""

from __future__ import annotations

import argparse

import numpy as np
from scipy.special import softmax

from attemper import metrics
from sets import table

K, SCALE, LEVEL = 5, 2.0, 0.95
NAMES = ("accuracy", "gap", "nll", "brier", "ece_debiased")
MANY = 400_000


def draw(sizes, temperatures, per_cluster, rng):
    """Return labels, probabilities, groups and clusters; a group has its size and its temperature."""
    group = np.repeat(np.arange(len(sizes)), sizes)
    n = len(group)
    cluster = np.arange(n) if per_cluster == 1 else group * n + np.arange(n) // per_cluster
    _, case = np.unique(cluster, return_inverse=True)
    m = int(case.max()) + 1
    own, common = rng.normal(size=(n, K)), rng.normal(size=(m, K))[case]
    z = SCALE * (common if per_cluster == 1 else np.sqrt(0.5) * (own + common))
    shared = (rng.random(m) < 0.5)[case] & (per_cluster > 1)
    noise = np.where(shared[:, None], rng.gumbel(size=(m, K))[case], rng.gumbel(size=(n, K)))
    y = (z / np.asarray(temperatures)[group, None] + noise).argmax(axis=1)
    return y, softmax(z, axis=1), group, (None if per_cluster == 1 else case)


def truth(temperature, rng):
    """Return the true metrics of a group, and none of its noise."""
    z = SCALE * rng.normal(size=(MANY, K))
    p, q = softmax(z, axis=1), softmax(z / temperature, axis=1)
    best = p.argmax(axis=1)
    c, right = p.max(axis=1), q[np.arange(MANY), best]
    place = np.minimum((c * 15).astype(int), 14)
    gaps = np.bincount(place, right - c, 15)
    counts = np.bincount(place, minlength=15)
    return {
        "accuracy": right.mean(),
        "gap": (c - right).mean(),
        "nll": -(q * np.log(p)).sum(axis=1).mean(),
        "brier": (q * ((p**2).sum(axis=1, keepdims=True) - 2 * p + 1)).sum(axis=1).mean(),
        "ece_debiased": np.sqrt((gaps**2 / np.maximum(counts, 1)).sum() / MANY),
    }


CASES = {
    "2 of 200": ([200, 200], [1.0, 2.0], 1),
    "5 of 20 to 1000": ([20, 50, 100, 300, 1000], [1.0, 1.0, 2.0, 1.0, 1.5], 1),
    "20 of 100": ([100] * 20, [1.0] * 15 + [2.0] * 5, 1),
    "100 of 30": ([30] * 100, [1.0] * 90 + [2.0] * 10, 1),
    "5 of 100 to 600, clusters of 5": ([100, 200, 300, 400, 600], [1.0, 1.0, 2.0, 1.0, 1.5], 5),
    "20 of 200, clusters of 5": ([200] * 20, [1.0] * 15 + [2.0] * 5, 5),
    "5 of 200 to 1000, clusters of 10": ([200, 400, 600, 800, 1000], [1.0, 1.0, 2.0, 1.0, 1.5], 10),
}


def coverage(draws, rng):
    """Print how often all intervals hold together."""
    rows = []
    for name, (sizes, temperatures, per) in CASES.items():
        true = {t: truth(t, rng) for t in set(temperatures)}
        held = {way: {metric: [] for metric in NAMES} for way in ("together", "one by one", "ignored")}
        for _ in range(draws):
            y, p, group, clusters = draw(sizes, temperatures, per, rng)
            ways = {"together": (True, clusters), "one by one": (False, clusters), "ignored": (True, None)}
            for way, (simultaneous, cases) in ways.items():
                found = metrics.by_group(
                    *(y, p), groups=group, clusters=cases, simultaneous=simultaneous, metrics=NAMES, n_resamples=2
                )
                for metric in NAMES:
                    values = [(row.metrics[metric], true[temperatures[row.group]][metric]) for row in found.by_group]
                    there = [(v, x) for v, x in values if v.has_interval]
                    if 2 * len(there) > len(values):  # few samples have no interval
                        held[way][metric].append(all(v.low <= x <= v.high for v, x in there))
        shares = {way: {m: np.mean(found) if found else None for m, found in held[way].items()} for way in held}
        pairs = [(shares["together"][metric], shares["one by one"][metric]) for metric in NAMES]
        cells = ["–" if None in pair else "{:.3f} ({:.3f})".format(*pair) for pair in pairs]
        rows.append([name, *cells, f"{shares['ignored']['gap']:.3f}" if per > 1 else ""])
    table(["groups", *NAMES, "gap, clusters ignored"], rows)


def worst(draws, rng):
    """Print how often the interval of the largest gap holds it, and how far the largest observed one exceeds it."""
    rows = []
    for name, (sizes, temperatures, per) in CASES.items():
        true = {t: truth(t, rng)["gap"] for t in set(temperatures)}
        largest = max(abs(gap) for gap in true.values())
        held, above = [], []
        for _ in range(draws):
            y, p, group, clusters = draw(sizes, temperatures, per, rng)
            found = metrics.by_group(y, p, groups=group, clusters=clusters, metrics=["gap"], n_resamples=2)
            w = found.worst("gap").value
            held.append(w.low <= largest <= w.high)
            above.append(max(abs(row.gap.value) for row in found.by_group) - largest)
        rows.append([name, f"{np.mean(held):.3f}", f"{np.mean(above):+.3f}"])
    table(["groups", "interval holds the largest gap", "largest observed − largest true gap"], rows)


ALIKE = {
    "2 of 200": ([200, 200], 1),
    "5 of 20 to 1000": ([20, 50, 100, 300, 1000], 1),
    "20 of 100": ([100] * 20, 1),
    "300 of 5": ([5] * 300, 1),
    "5 of 100 to 600, clusters of 5": ([100, 200, 300, 400, 600], 5),
    "20 of 200, clusters of 5": ([200] * 20, 5),
    "5 of 200 to 1000, clusters of 10": ([200, 400, 600, 800, 1000], 10),
}


def alike(draws, rng):
    """Print how often the test alarms."""
    rows = []
    for name, (sizes, per) in ALIKE.items():
        line = [name]
        g = len(sizes)
        for temperatures in ([1.0] * g, [2.0] * g, [1.0] * (g - 1) + [1.5], [1.0] * (g // 2) + [1.5] * (g - g // 2)):
            alarms, ignored = [], []
            for _ in range(draws):
                y, p, group, clusters = draw(sizes, temperatures, per, rng)
                for cases, to in ((clusters, alarms), (None, ignored)):
                    found = metrics.by_group(y, p, groups=group, clusters=cases, metrics=["gap"], n_resamples=199)
                    to.append(found.alike.p_value <= 0.05)
                    if per == 1:
                        break
            line.append(f"{np.mean(alarms):.3f}" + (f" ({np.mean(ignored):.3f})" if per > 1 else ""))
        rows.append(line)
    table(["groups", "alike, T = 1", "alike, T = 2", "the last has T = 1.5", "half have T = 1.5"], rows)


def small(draws, rng):
    """Print which size the group that looks worst has."""
    sizes = [30, 100, 300, 1000, 3000]
    counts = {way: np.zeros(5, int) for way in ("ece", "ece_debiased", "a gap beyond chance (`worst`)")}
    for _ in range(draws):
        y, p, group, _ = draw(sizes, [1.0] * 5, 1, rng)
        found = metrics.by_group(y, p, groups=group, metrics=["gap", "ece", "ece_debiased"], n_resamples=2)
        for way in ("ece", "ece_debiased"):
            counts[way][int(np.argmax([row.metrics[way].value for row in found.by_group]))] += 1
        w = found.worst("gap")
        if w.value.low > 0:
            counts["a gap beyond chance (`worst`)"][w.group] += 1
    table(
        ["largest by", *map(str, sizes)], [[way, *(f"{n / draws:.1%}" for n in found)] for way, found in counts.items()]
    )


PARTS = {"coverage": coverage, "worst": worst, "alike": alike, "small": small}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", default=list(PARTS), metavar="part")
    parser.add_argument("--draws", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    for part in given.parts:
        print(f"\n{part}")
        PARTS[part](given.draws, np.random.default_rng(given.seed))
