"""Samples that come in clusters (pictures of a patient): how often intervals hold the truth, what fits gain.

    PYTHONPATH=src python benchmarks/clusters.py coverage [--sets 400]
    PYTHONPATH=src python benchmarks/clusters.py metrics [--sets 1000]
    PYTHONPATH=src python benchmarks/clusters.py shrinkage [--sets 24]
    PYTHONPATH=src python benchmarks/clusters.py skin

Clusters of 1 to 10 samples are drawn afresh for every set; logits of one cluster are alike, and so is the noise that
makes their labels, so that its samples are right or wrong together. Every label has the probabilities softmax(h / T). A
few minutes of one core for each.
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings

import numpy as np

from attemper import BayesianTemperatureScaling, Scores, StructuredScaling, TemperatureScaling, datasets
from attemper.metrics import accuracy, ece, effective_sample_size, nll
from attemper.metrics.bootstrap import estimate_all
from attemper.metrics.predictions import Predictions

K, TRUE_T, LEVEL = 5, 1.6, 0.95
METRICS = {"NLL": nll, "accuracy": accuracy, "ECE": ece}
FITS = {
    "T (`ts`)": TemperatureScaling,
    "T (`bayes`)": BayesianTemperatureScaling,
    "T (`structured`)": StructuredScaling,
}


def draw(rng, n_clusters, sizes, alike=0.7, shared=0.8, biases=None):
    """Logits, labels and clusters; ``alike`` is the share of the logits' variance that a cluster has in common.

    In a share of clusters all labels come from one draw of noise, ``shared``; in the others from one for each sample.
    """
    size = rng.integers(sizes[0], sizes[1] + 1, n_clusters)
    case = np.repeat(np.arange(n_clusters), size)
    common, own = rng.normal(size=(n_clusters, K)), rng.normal(size=(len(case), K))
    h = 3 * (np.sqrt(alike) * common[case] + np.sqrt(1 - alike) * own)
    together = (rng.random(n_clusters) < shared)[case]
    noise = np.where(together[:, None], rng.gumbel(size=(n_clusters, K))[case], rng.gumbel(size=h.shape))
    return h, (h / TRUE_T + (0 if biases is None else biases) + noise).argmax(axis=1), case


def truth():
    """Values of the metrics of the network as it is, at T = 1, on half a million clusters of one sample."""
    h, y, _ = draw(np.random.default_rng(1), 500_000, (1, 1))
    scores = Scores.from_logits(h, y)
    return {name: metric(scores) for name, metric in METRICS.items()} | dict.fromkeys(FITS, TRUE_T)


def coverage(options):
    """Print how often 95 % intervals hold the truth, with and without clusters."""
    true = truth()
    print("| clusters | samples of each | samples | interval of | by sample | width | by cluster | width |")
    print("|---|---|---|---|---|---|---|---|")
    for n_clusters, sizes in ((100, (1, 1)), (100, (1, 10)), (300, (1, 10)), (100, (10, 10))):
        start, worth, rows = time.perf_counter(), [], []
        held = {name: ([], []) for name in true}
        for number in range(options.sets):
            h, y, case = draw(np.random.default_rng([number, n_clusters, *sizes]), n_clusters, sizes)
            size = effective_sample_size(Scores.from_logits(h, y, clusters=case))
            worth.append(size.effective), rows.append(size.n_samples)
            for by, ids in enumerate((None, case)):
                scores = Scores.from_logits(h, y, clusters=ids)
                p = Predictions.of(scores)
                statistics = {name: metric.statistic(p) for name, metric in METRICS.items()}
                found = estimate_all(statistics, p.weights, LEVEL, 400, number, p.clusters)
                for name, estimate in found.items():
                    if estimate.has_interval:
                        held[name][by].append(
                            (estimate.low <= true[name] <= estimate.high, estimate.high - estimate.low)
                        )
                for name, make in FITS.items():
                    if number >= options.sets // 4 and make is StructuredScaling:
                        continue
                    low, high = make().fit(scores).temperature_interval_
                    held[name][by].append((low <= TRUE_T <= high, high - low))
        of = f"{np.mean(rows):.0f}, worth {np.mean(worth):.0f}"
        for name, both in held.items():
            shown = [np.mean(np.array(part, dtype=float), axis=0) for part in both]
            cells = " | ".join(f"{100 * share:.1f} % | {width:.3g}" for share, width in shown)
            each = sizes[0] if sizes[0] == sizes[1] else f"{sizes[0]} to {sizes[1]}"
            print(f"| {n_clusters} | {each} | {of} | {name} | {cells} |", flush=True)
        print(f"{time.perf_counter() - start:.0f} s, {options.sets} sets", file=sys.stderr)


def metrics(options):
    """Print how often intervals of metrics by cluster hold the truth, on more sets than `coverage` has."""
    true = truth()
    print("| clusters | samples of each | NLL | accuracy | ECE |")
    print("|---|---|---|---|---|")
    for n_clusters, sizes in ((100, (1, 10)), (100, (10, 10))):
        held = []
        for number in range(options.sets):
            h, y, case = draw(np.random.default_rng([number, n_clusters, *sizes, 7]), n_clusters, sizes)
            p = Predictions.of(Scores.from_logits(h, y, clusters=case))
            statistics = {name: metric.statistic(p) for name, metric in METRICS.items()}
            found = estimate_all(statistics, p.weights, LEVEL, 1000, number, p.clusters)
            held.append([found[name].low <= true[name] <= found[name].high for name in METRICS])
        each = sizes[0] if sizes[0] == sizes[1] else f"{sizes[0]} to {sizes[1]}"
        cells = " | ".join(f"{100 * share:.1f} %" for share in np.mean(held, axis=0))
        print(f"| {n_clusters} | {each} | {cells} |", flush=True)


def shrinkage(options):
    """Print the NLL on new data of fits that know the clusters, and of fits that do not."""
    print("| clusters of 10 | class biases | method | NLL by sample | by cluster | difference ± standard error |")
    print("|---|---|---|---|---|---|")
    for n_clusters in (10, 20, 50):
        for spread in (0.0, 0.5):
            bias = spread * np.array([1.0, 0.5, 0.0, -0.5, -1.0])
            h_new, y_new, _ = draw(np.random.default_rng(9), 20_000, (1, 1), biases=bias)
            for make in (BayesianTemperatureScaling, StructuredScaling):
                losses = []
                for number in range(options.sets):
                    h, y, case = draw(np.random.default_rng([number, n_clusters]), n_clusters, (10, 10), biases=bias)
                    fitted = [make().fit(h, y, clusters=ids) for ids in (None, case)]
                    losses.append([nll(y_new, c.predict_log_proba(h_new), input="log_probs") for c in fitted])
                a, b = np.mean(losses, axis=0)
                gap = np.diff(losses, axis=1)[:, 0]
                error = gap.std(ddof=1) / np.sqrt(len(gap))
                shown = f"{a:.4f} | {b:.4f} | {gap.mean():+.4f} ± {error:.4f}"
                print(f"| {n_clusters} | ±{spread:g} | `{make.method}` | {shown} |", flush=True)


def skin(options):
    """Print the intervals of the skin-lesion network, by picture and by lesion."""
    data = datasets.load()
    lesions, n = data.extra["lesion_id"], len(data.val_labels)
    h, y = (
        np.concatenate([getattr(data, f"{part}_{what}") for part in ("val", "test")]) for what in ("logits", "labels")
    )
    print(effective_sample_size(h.argmax(axis=1) != y, lesions))
    print(f"correlation {effective_sample_size(h.argmax(axis=1) != y, lesions).correlation:.2f}\n")
    print("| figure | value | by picture | by lesion |")
    print("|---|---|---|---|")
    val = [Scores.from_logits(data.val_logits, data.val_labels, clusters=ids) for ids in (None, lesions[:n])]
    for name, make in FITS.items():
        one, two = (make().fit(scores) for scores in val)
        ends = ["{:.3f}–{:.3f}".format(*fitted.temperature_interval_) for fitted in (one, two)]
        print(f"| {name}, 801 validation pictures | {two.temperature_:.3f} | {' | '.join(ends)} |")
    fitted = TemperatureScaling().fit(val[0])
    for what, logits in (("as it is", data.test_logits), ("after `ts`", data.test_logits / fitted.temperature_)):
        for name, metric in METRICS.items():
            both = [
                metric(Scores.from_logits(logits, data.test_labels, clusters=ids), confidence_level=LEVEL)
                for ids in (None, lesions[n:])
            ]
            ends = [f"{e.low:.3f}–{e.high:.3f}" for e in both]
            print(f"| {name} {what}, 3205 test pictures | {both[0].value:.3f} | {' | '.join(ends)} |")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["coverage", "metrics", "shrinkage", "skin"])
    parser.add_argument("--sets", type=int, default=None)
    options = parser.parse_args()
    options.sets = options.sets or {"coverage": 400, "metrics": 1000, "shrinkage": 24, "skin": 1}[options.what]
    warnings.simplefilter("ignore")
    {"coverage": coverage, "metrics": metrics, "shrinkage": shrinkage, "skin": skin}[options.what](options)
