"""The guarantee of `policy_for_miss` with ``clusters=``: how often it is broken, and how many are referred.

    python benchmarks/cluster_certificates.py [levels lesions intervals] [--draws 150] [--seed 0]

levels     how often the bound is broken where the true risk is known: 1 to 10 samples a cluster, whose errors correlate
           by 0, 0.62 and 1; without clusters, with one sample of each, with three at most, and with all
lesions    the same for lesions drawn from those of the skin network, with all their pictures: there, lesions with many
           pictures are the difficult ones, so that the risk of a picture and that of a lesion differ
intervals  coverage of the 95 % intervals of `outcome_of`, by sample, by cluster, and by the cluster bootstrap
"""

from __future__ import annotations

import argparse
import sys
import time

import numpy as np

from attemper import datasets
from attemper.calibrators import METHODS
from attemper.decisions import Policy, outcome_of, policy_for_miss
from attemper.decisions.certificates import certify_all, certify_decided
from attemper.metrics.bootstrap import Statistic, estimate
from certificates import DELTA, MODELS, flat
from sets import table

ALPHA = 0.05
CORRELATIONS = (0.0, 0.62, 1.0)
AT_MOST = (1, 3, None)


def drawn(model, n, correlation, rng, most=10):
    """Clusters of 1 to ``most`` samples: shares u of the most confident, errors, and the number of the cluster."""
    cluster = np.repeat(np.arange(n), rng.integers(1, most + 1, size=n))
    common = rng.random(len(cluster)) < np.sqrt(correlation)  # two samples are both common with this probability
    u, v = (np.where(common, rng.random(n)[cluster], rng.random(len(cluster))) for _ in range(2))
    return u, v < model[0](u), cluster


def two_classes(confidence):
    return np.column_stack([confidence, 1 - confidence])


def thresholds(confidence, wrong, cluster, other, of, alpha, rng):
    """Threshold without clusters, and with at most 1, 3 and all samples of each."""
    certify = certify_all if of == "all" else certify_decided
    apart = confidence * (1 - 1e-12 * rng.random(len(confidence)))  # copies are tied; ranks are proven without ties
    found = [certify(apart, wrong, np.ones(len(wrong)), alpha, DELTA).threshold]
    asked = {"miss_rate_of": of, "clusters": cluster, "fit_probs": two_classes(other[0]), "fit_clusters": other[1]}
    p, y = two_classes(confidence), wrong.astype(np.int64)
    return found + [policy_for_miss(p, y, alpha, max_per_cluster=most, **asked).threshold for most in AT_MOST]


def levels(told):
    print(f"\nHow often the bound of {ALPHA:.0%} is broken (share referred); 1 to 10 samples a cluster")
    rows = []
    for of in ("decided", "all"):
        models = {**MODELS, "worst case": flat(ALPHA * 1.0001 if of == "decided" else 0.3)}
        for n in (300,):
            for correlation in CORRELATIONS:
                for name, model in models.items():
                    rng, broken, referred = np.random.default_rng(told.seed), [], []
                    for _ in range(told.draws):
                        u, wrong, cluster = drawn(model, n, correlation, rng)
                        v, _, own = drawn(model, n // 4, correlation, rng)
                        found = thresholds(1 - u / 2, wrong, cluster, (1 - v / 2, own), of, ALPHA, rng)
                        share = np.minimum(2 * (1 - np.array(found)), 1.0)
                        risk = model[1](share) / (np.maximum(share, 1e-300) if of == "decided" else 1)
                        broken.append(risk > ALPHA * (1 + 1e-9))
                        referred.append(1 - share)
                    cells = zip(np.mean(broken, axis=0), np.mean(referred, axis=0))
                    rows.append([of, f"{n}", f"{correlation:g}", name, *(f"{b:.1%} ({r:.0%})" for b, r in cells)])
    table(["of", "clusters", "correlation", "error rate", "no clusters", "1 of each", "at most 3", "all"], rows)


class Lesions:
    """All pictures of the skin network, by lesion, with the confidences of temperature scaling."""

    def __init__(self, name="resnet200-skin-lesionsplit-s0"):
        stored = datasets.stored(name)
        _, self.lesion, self.sizes = np.unique(stored["lesion_id"], return_inverse=True, return_counts=True)
        self.order = np.argsort(self.lesion, kind="stable")
        self.at = np.concatenate([[0], self.sizes.cumsum()[:-1]])
        p = METHODS["ts"]().fit(stored["logits"], stored["labels"]).predict_proba(stored["logits"])
        self.confidence, self.wrong = p.max(axis=1), p.argmax(axis=1) != stored["labels"]

    def draw(self, n, rng):
        """Rows of n lesions, drawn with replacement, and the number of each one's draw."""
        drawn = rng.integers(len(self.sizes), size=n)
        rows = np.concatenate([self.order[self.at[k] : self.at[k] + self.sizes[k]] for k in drawn])
        return rows, np.repeat(np.arange(n), self.sizes[drawn])


def lesions(told):
    of = Lesions()
    w = {"picture": np.ones(len(of.lesion)), "lesion": 1 / of.sizes[of.lesion]}
    print(
        "\nHow often the bound is broken for a picture / for a lesion, then a picture (share referred); of the decided"
    )
    rows = []
    for bound in (0.1, 0.15):
        for n in (200, 500, 2000):
            rng, broken, referred = np.random.default_rng(told.seed), [], []
            for _ in range(told.draws):
                (chosen, cluster), (other, own) = of.draw(n, rng), of.draw(n // 4, rng)
                told_of = of.confidence[chosen], of.wrong[chosen], cluster, (of.confidence[other], own)
                decided = [of.confidence > t for t in thresholds(*told_of, "decided", bound, rng)]
                rates = [[(v * of.wrong)[d].sum() / max(v[d].sum(), 1e-300) for v in w.values()] for d in decided]
                broken.append(np.array(rates) > bound)
                referred.append([1 - d.mean() for d in decided])
            cells = zip(np.mean(broken, axis=0), np.mean(referred, axis=0))
            rows.append([f"{bound:.0%}", f"{n}", *(f"{a:.0%} / {b:.0%} ({r:.0%})" for (a, b), r in cells)])
    table(["bound", "lesions", "no clusters", "1 of each", "at most 3", "all"], rows)


def intervals(told):
    print("\nCoverage of the 95 % interval of the miss rate of the decided; threshold 0.75, error rates rise to 40 %")
    model = (lambda u: 0.4 * u, None)
    policy, rows = Policy(0.75, "by hand", 2, 0), []
    for n in (30, 100, 300):
        for correlation in CORRELATIONS:
            rng, hits = np.random.default_rng(told.seed), []
            for _ in range(told.draws * 2):
                u, wrong, cluster = drawn(model, n, correlation, rng)
                p, y = two_classes(1 - u / 2), wrong.astype(np.int64)
                decided = u < 0.5
                rate = Statistic(
                    lambda w, d=decided, e=wrong: (w[d & e].sum(axis=0)) / w[d].sum(axis=0), lambda *_: None
                )
                found = [outcome_of(policy, p, y, clusters=c).all.miss_rate for c in (None, cluster)]
                found.append(estimate(rate, np.ones(len(u)), 0.95, clusters=cluster))
                hits.append([low <= 0.1 <= high for _, low, high in found])
            rows.append([f"{n}", f"{correlation:g}", *(f"{share:.1%}" for share in np.mean(hits, axis=0))])
    table(["clusters", "correlation", "by sample", "by cluster", "cluster bootstrap"], rows)


def main():
    parts = {f.__name__: f for f in (levels, lesions, intervals)}
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", choices=[*parts, []], help="all by default")
    parser.add_argument("--draws", type=int, default=150)
    parser.add_argument("--seed", type=int, default=0)
    told = parser.parse_args()
    for name in told.parts or parts:
        begun = time.process_time()
        parts[name](told)
        print(f"{name}: {time.process_time() - begun:.0f} s of CPU", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
