"""Prediction sets: the coverage beside its exact law, and sizes beside MAPIE's and TorchCP's, before and after a map.

    python benchmarks/prediction_sets.py law
    python benchmarks/prediction_sets.py law --draws 10000 --n 50 --only raps
    python benchmarks/prediction_sets.py clusters
    python benchmarks/prediction_sets.py sizes [FOLDER] [--torchcp TORCHCP]

``law`` draws n samples for the thresholds and 1000 new ones, again and again. The number of new samples whose set holds
the true class has the beta-binomial law BB(1000, k, n + 1 − k), k = ⌈(n + 1)(1 − α)⌉, exactly, if scores are not tied
and sets may be empty. The p-value is that of a Kolmogorov–Smirnov test of the law (values are spread over their steps
at random). ``clusters`` does the same for 1 to 10 correlated samples of each case; new ones are one of each new case.

``sizes`` reads every .npz of FOLDER (arrays logits and labels, see benchmarks/sets.py) and the bundled logits, which it
takes alone if there is no FOLDER: 1000 rows fit the map, 1000 others give the thresholds, up to 3000 others are new. A
family is the name of a file before "--" (all that begin with "cifar10_" are one); means are over its sets and draws.
TorchCP does not install without torchvision and torchsort; its scores alone need neither: ``pip download --no-deps
torchcp``, unzip the wheel into TORCHCP. No constant was chosen here, except that deterministic APS counts the mass of
the more probable classes alone (the column "aps, own" is with the own probability).
"""

from __future__ import annotations

import argparse
import importlib
import sys
import types
import warnings
from collections import defaultdict
from pathlib import Path

import numpy as np
from scipy.stats import betabinom, kstest

import attemper
from attemper import StructuredScaling, TemperatureScaling
from attemper.decisions import prediction_sets
from attemper.decisions.sets import order_of
from attemper.kernels.conformal import order_for, score_classes, threshold_at
from sets import read

warnings.simplefilter("ignore")
NEW = 1000
LEAST = 2500


def population(rng, n, n_classes=6, t=1.6):
    """Overconfident predictions of n samples, and labels of the true law."""
    h = 3 * rng.normal(size=(n, n_classes))
    y = (h / t + rng.gumbel(size=h.shape)).argmax(axis=1)
    return probabilities(h), y


def probabilities(h):
    e = np.exp(h - h.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


def p_value(counts, n, k, rng):
    """Of a test that counts among NEW have the exact law."""
    law = betabinom(NEW, k, n + 1 - k)
    counts = np.asarray(counts)
    below = law.cdf(counts - 1)
    return kstest(below + rng.random(len(counts)) * (law.cdf(counts) - below), "uniform").pvalue


def law(draws, sizes=(50, 200, 1000), only=""):
    """Print how often sets hold the true class, beside the law."""
    rules = {
        "lac, may be empty": {"allow_empty": True},
        "aps, randomized, may be empty": {"score": "aps", "randomized": True, "allow_empty": True},
        "raps, randomized, may be empty": {
            "score": "raps", "randomized": True, "allow_empty": True, "penalty": 0.01, "k_reg": 2
        },
        "lac": {},
        "aps": {"score": "aps"},
    }  # fmt: skip
    print(
        "| n | coverage | sets | mean | of the law | 5 % and 95 % points | of the law | p-value |\n"
        "|--|--|--|--|--|--|--|--|"
    )
    for n in sizes:
        for coverage in (0.9, 0.95):
            k = order_for(n, coverage)
            exact = betabinom(NEW, k, n + 1 - k)
            ends = " – ".join(f"{exact.ppf(q) / NEW:.3f}" for q in (0.05, 0.95))
            for j, (name, rule) in enumerate(rules.items()):
                if only not in name:
                    continue
                rng = np.random.default_rng([n, round(100 * coverage), j])
                counts = []
                for i in range(draws):
                    p, y = population(rng, n + NEW)
                    policy = prediction_sets(p[:n], y[:n], coverage, seed=i, **rule)
                    counts.append(int(policy.sets(p[n:], seed=i).mask[np.arange(NEW), y[n:]].sum()))
                test = f"{p_value(counts, n, k, rng):.2f}" if "empty" in name else "at least"
                found = " – ".join(f"{q / NEW:.3f}" for q in np.quantile(counts, (0.05, 0.95)))
                mean = f"{np.mean(counts) / NEW:.4f} | {exact.mean() / NEW:.4f}"
                print(f"| {n} | {coverage} | {name} | {mean} | {found} | {ends} | {test} |", flush=True)
    if only:
        return
    print(
        "\n| n | coverage | confidence | draws whose coverage is too low | without confidence_level |\n|--|--|--|--|--|"
    )
    for n in sizes:
        for coverage in (0.9, 0.95):
            if order_of(n, coverage, 0.05) is None:
                print(f"| {n} | {coverage} | 0.95 | every class in the set | |")
                continue
            rng, low = np.random.default_rng(n), defaultdict(int)
            for _ in range(draws):
                s = rng.random(n)  # a score that is uniform: its threshold is the coverage
                for level in (0.95, None):
                    p, y = np.column_stack([1 - s, s]), np.zeros(n, dtype=int)
                    policy = prediction_sets(p, y, coverage, confidence_level=level, allow_empty=True)
                    low[level] += policy.thresholds[0] < coverage
            print(f"| {n} | {coverage} | 0.95 | {low[0.95] / draws:.1%} | {low[None] / draws:.1%} |", flush=True)


def cases(rng, n_cases):
    """1 to 10 samples of each case, whose scores have most of their spread in common."""
    case = np.repeat(np.arange(n_cases), rng.integers(1, 11, n_cases))
    common = np.where(rng.random(n_cases) < 0.25, 0.3, 2.0)[:, None] * rng.normal(size=(n_cases, 5))
    label = (common + 1.5 * rng.normal(size=common.shape)).argmax(axis=1)
    return probabilities(2 * common[case] + 0.6 * rng.normal(size=(len(case), 5))), label[case], case


def clusters(draws):
    """Print the coverage of new cases, with the clusters and without."""
    print("| cases | thresholds from | mean | of the law | 5 % and 95 % points | of the law | p-value |")
    print("|--|--|--|--|--|--|--|")
    for m in (50, 200):
        rng, counts, total = np.random.default_rng(m), defaultdict(list), 0.0
        for i in range(draws):
            p, y, case = cases(rng, m)
            new_p, new_y, new_case = cases(rng, NEW)
            first = np.unique(new_case, return_index=True)[1]
            total += len(y) / draws
            for by, given in (("one of each case", case), ("all samples", None)):
                policy = prediction_sets(p, y, 0.9, clusters=given, allow_empty=True, seed=i)
                counts[by].append(int(policy.sets(new_p[first]).mask[np.arange(NEW), new_y[first]].sum()))
        for (by, own), n in zip(counts.items(), (m, round(total))):
            k = order_for(n, 0.9)
            exact = betabinom(NEW, k, n + 1 - k)
            found = " – ".join(f"{q / NEW:.3f}" for q in np.quantile(own, (0.05, 0.95)))
            ends = " – ".join(f"{exact.ppf(q) / NEW:.3f}" for q in (0.05, 0.95))
            mean = f"{np.mean(own) / NEW:.4f} | {exact.mean() / NEW:.4f}"
            print(f"| {m} | {by} | {mean} | {found} | {ends} | {p_value(own, n, k, rng):.2g} |", flush=True)


def torchcp_scores(folder):
    """Import TorchCP's scores, and nothing else of it."""
    for name in ("torchcp", "torchcp.classification"):
        stub = types.ModuleType(name)
        stub.__path__ = [str(Path(folder, *name.split(".")))]
        sys.modules[name] = stub
    names = {"lac": "LAC", "aps": "APS", "raps": "RAPS"}
    return {
        low: getattr(importlib.import_module(f"torchcp.classification.score.{low}"), name)
        for low, name in names.items()
    }


def with_torchcp(scores, name, coverage, p, y, new, penalty):
    import torch

    torch.manual_seed(0)
    options = {"penalty": penalty[0], "kreg": penalty[1]} if name == "raps" else {}
    score = scores[name](score_type="identity", **options)
    own = score(torch.tensor(p), torch.tensor(y)).numpy()
    q = threshold_at(own, order_for(len(y), coverage))
    return score(torch.tensor(new)).numpy() <= q


class Given:
    """A classifier whose features are the probabilities."""

    _estimator_type = "classifier"

    def __init__(self, n_classes):
        self.n_features_in_, self.classes_ = n_classes, np.arange(n_classes)

    def fit(self, x, y):
        return self

    def predict_proba(self, x):
        return np.asarray(x)

    def predict(self, x):
        return np.asarray(x).argmax(axis=1)


def with_mapie(name, coverage, p, y, new):
    from mapie.classification import SplitConformalClassifier
    from sklearn.base import BaseEstimator, ClassifierMixin

    kind = type("Given", (ClassifierMixin, BaseEstimator), {k: v for k, v in vars(Given).items() if callable(v)})
    model = SplitConformalClassifier(
        kind(p.shape[1]), confidence_level=coverage, conformity_score=name, prefit=True, random_state=0
    )
    return model.conformalize(p, y).predict_set(new)[1][:, :, 0]


def measured(mask, y):
    return mask.sum(axis=1).mean(), mask[np.arange(len(y)), y].mean()


def one_draw(h, y, coverage, rng, torchcp):
    """Sizes and coverages of one division of a set."""
    order = rng.permutation(len(y))
    a, b, c = order[:1000], order[1000:2000], order[2000:5000]
    maps = {"none": lambda h: probabilities(h), "ts": TemperatureScaling().fit(h[a], y[a]).predict_proba}
    maps["structured"] = StructuredScaling().fit(h[a], y[a]).predict_proba
    found = {}
    for method, calibrated in maps.items():
        p, new = calibrated(h[b]), calibrated(h[c])
        for score in ("lac", "aps", "raps"):
            policy = prediction_sets(p, y[b], coverage, score=score)
            found["attemper", score, method] = measured(policy.sets(new).mask, y[c])
        if method != "ts":
            continue
        own = score_classes("aps", p, 1.0)[np.arange(1000), y[b]]
        mask = score_classes("aps", new, 1.0) <= threshold_at(own, order_for(1000, coverage)) + 1e-9
        found["attemper", "aps, own", method] = measured(mask | (new == new.max(axis=1, keepdims=True)), y[c])
        randomized = prediction_sets(p, y[b], coverage, score="aps", randomized=True, allow_empty=True)
        found["attemper", "aps, randomized", method] = measured(randomized.sets(new).mask, y[c])
        for score in ("lac", "aps", "raps") if p.shape[1] > 2 else ("lac",):
            found["mapie", score, method] = measured(with_mapie(score, coverage, p, y[b], new), y[c])
        for score in torchcp or ():
            penalty = (policy.penalty, policy.k_reg)
            found["torchcp", score, method] = measured(
                with_torchcp(torchcp, score, coverage, p, y[b], new, penalty), y[c]
            )
    return found


def sizes(folder, coverage, draws, torchcp):
    """Print mean sizes and coverages, family by family."""
    paths = [] if folder is None else sorted(folder.glob("*.npz"))
    given = [(path.stem, path) for path in paths if "counts" not in path.stem]
    given += [(f"bundled-{name.split('-')[1]}--{name}", None) for name in attemper.datasets.names()]
    tables, n_sets = defaultdict(lambda: defaultdict(list)), defaultdict(int)
    scores = None if torchcp is None else torchcp_scores(torchcp)
    for name, path in given:
        if path is None:
            data = attemper.datasets.load(name.split("--")[1])
            h = np.concatenate([data.val_logits, data.test_logits])
            y = np.concatenate([data.val_labels, data.test_labels])
        else:
            h, y = read(path)
        h = h.astype(np.float64)
        if len(y) < LEAST:
            continue
        family = "cifar10" if name.startswith("cifar10_") else name.split("--")[0]
        key = (family, h.shape[1])
        n_sets[key] += 1
        for draw in range(draws):
            for what, values in one_draw(h, y, coverage, np.random.default_rng(draw), scores).items():
                tables[key][what].append(values)
        print(f"\r{sum(n_sets.values())} of {len(given)} sets ", end="", file=sys.stderr, flush=True)
    for column, title in ((0, "mean size"), (1, "coverage")):
        kinds = list(dict.fromkeys(what for table in tables.values() for what in table))
        for group in ("attemper", "peers"):
            own = [what for what in kinds if (what[0] == "attemper" and "," not in what[1]) == (group == "attemper")]
            own += [("attemper", score, "ts") for score in ("lac", "aps", "raps") if group == "peers"]
            own.sort(key=lambda what: (what[1], what[0]))
            heads = [" ".join(part for part in what if group == "attemper" or part != "ts") for what in own]
            print(f"\n{title}, {group}, coverage {coverage}\n")
            print(f"| family | K | sets | {' | '.join(heads)} |\n|--|--|--|{'--|' * len(own)}")
            for (family, k), table in sorted(tables.items()):
                cells = (f"{np.mean([v[column] for v in table[w]]):.3f}" if table[w] else "–" for w in own)
                print(f"| {family} | {k} | {n_sets[family, k]} | {' | '.join(cells)} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["law", "clusters", "sizes"])
    parser.add_argument("folder", nargs="?", type=Path, help="sizes: .npz files with logits and labels")
    parser.add_argument("--draws", type=int)
    parser.add_argument("--coverage", type=float, default=0.95)
    parser.add_argument("--torchcp", type=Path, help="sizes: a folder with the unzipped wheel of TorchCP")
    parser.add_argument("--n", type=int, help="law: of this many samples alone")
    parser.add_argument("--only", default="", help="law: only of sets whose name holds this text")
    args = parser.parse_args()
    if args.what == "law":
        law(args.draws or 1000, (args.n,) if args.n else (50, 200, 1000), args.only)
    elif args.what == "clusters":
        clusters(args.draws or 2000)
    else:
        sizes(args.folder, args.coverage, args.draws or 2, args.torchcp)


if __name__ == "__main__":
    main()
