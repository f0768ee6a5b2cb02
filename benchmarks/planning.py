"""Plans against what labels then bring, and choices of samples against random draws; family by family.

    python benchmarks/planning.py temperature [FOLDER…]   # planned and found widths of the interval of T
    python benchmarks/planning.py metrics [FOLDER…]       # the same of accuracy, NLL, Brier score and ECE
    python benchmarks/planning.py certificate [FOLDER…]   # how often a certificate is reached with the planned labels
    python benchmarks/planning.py typical [FOLDER…]       # plans from accuracy and number of classes alone
    python benchmarks/planning.py fit [FOLDER…]           # choosing samples for a fit
    python benchmarks/planning.py evaluate [FOLDER…]      # choosing samples for an evaluation

A folder holds an .npz file with the arrays logits and labels for each set (see benchmarks/sets.py); the default is
data/. The family of a set is its file name before "--"; networks of data/ are "zoo" and their data set. --every 3 takes
every third set, --draws N draws so often.
"""

from __future__ import annotations

import argparse
import warnings
import zlib
from collections import defaultdict
from pathlib import Path

import numpy as np
from scipy.special import log_softmax

import sets
from attemper import BayesianTemperatureScaling, Scores, TemperatureScaling, metrics
from attemper.errors import InputError
from attemper.planning import (
    choose_samples,
    labels_for_certificate,
    labels_for_metric,
    labels_for_temperature,
    typical_network,
)
from attemper.planning.certificate import Population

LEAST = 4000
METRICS = ("accuracy", "nll", "brier", "ece")


def family_of(path):
    name, dashes, _ = path.stem.partition("--")
    if not dashes:
        return f"zoo {path.stem.split('-')[1]}"
    return "cifar10" if name.startswith("cifar10_") else name


def read_all(folders, every):
    paths = [path for folder in folders for path in sorted(Path(folder).glob("*.npz"))]
    for path in [p for p in paths if "dropout" not in p.stem and "counts" not in p.stem][::every]:
        h, y = sets.read(path)
        if h.ndim == 2 and len(y) >= LEAST:
            yield path, h.astype(float), y


def seeded(*parts):
    return np.random.default_rng([zlib.crc32(p.encode()) if isinstance(p, str) else p for p in parts])


def fitted(h, y, **more):
    return TemperatureScaling(t_range=(0.05, 20)).fit(h, y, **more)


def spread(values):
    """Median, and the range of the middle 80 %."""
    found = np.asarray([v for v in values if np.isfinite(v)])
    if not len(found):
        return "–"
    low, middle, high = np.quantile(found, [0.1, 0.5, 0.9])
    return f"{middle:.2f} ({low:.2f}–{high:.2f})"


def rms(values):
    return float(np.sqrt(np.mean(np.square(values))))


def by_family(found, columns, write):
    rows = [[family, *(write(found[family][c]) for c in columns)] for family in sorted(found)]
    sets.table(["family", *map(str, columns)], rows)


# Planned against found


def temperature(args):
    """Plan from a pilot; then draw as many labels as planned, elsewhere, and fit."""
    width, sizes = 1.2, (50, 200, 800)
    found = defaultdict(lambda: defaultdict(list))
    for path, h, y in read_all(args.folders, args.every):
        for draw in range(args.draws):
            rng = seeded(path.stem, draw)
            order = rng.permutation(len(y))
            full = labels_for_temperature(h, y, width=width).n_samples
            for size in sizes:
                pilot, rest = order[:size], order[size:]
                plans = {}
                try:
                    plans[f"{size} labels"] = labels_for_temperature(h[pilot], y[pilot], width=width)
                except InputError:
                    found[family_of(path)][f"{size} refused"].append(1.0)
                t = fitted(h, y).temperature_
                plans[f"{size} unlabelled"] = labels_for_temperature(h[pilot], width=width, temperature=t)
                for name, plan in plans.items():
                    low, high = plan.n_range
                    found[family_of(path)][f"{name} in range"].append(float(low <= full <= high))
                    if plan.n_samples > len(rest):
                        continue
                    rows = rng.choice(rest, plan.n_samples, replace=False)
                    interval = fitted(h[rows], y[rows]).temperature_interval_
                    if interval is None:  # at the end of the range of T
                        continue
                    low, high = interval
                    found[family_of(path)][name].append(np.log(high / low) / np.log(width))
    print("\nFound width of log T's interval over the planned one, median and middle 80 %:")
    by_family(found, [f"{n} {kind}" for n in sizes for kind in ("labels", "unlabelled")], spread)
    print("\nHow often the plan from all of the set's labels lies in n_range:")
    columns = [f"{n} {kind} in range" for n in sizes for kind in ("labels", "unlabelled")]
    by_family(found, columns, lambda v: f"{np.mean(v):.2f}")


def measure(args):
    """Plan a metric's interval from a pilot of 500; then evaluate as many other samples."""
    widths = {"accuracy": 0.05, "nll": 0.2, "brier": 0.06, "ece": 0.05}
    found = defaultdict(lambda: defaultdict(list))
    for path, h, y in read_all(args.folders, args.every):
        for draw in range(args.draws):
            rng = seeded(path.stem, draw)
            order = rng.permutation(len(y))
            pilot, rest = order[:500], order[500:]
            for metric in METRICS:
                try:
                    plan = labels_for_metric(h[pilot], y[pilot], metric=metric, width=widths[metric])
                except InputError:
                    continue
                if plan.n_samples > len(rest):
                    continue
                rows = rng.choice(rest, plan.n_samples, replace=False)
                value = getattr(metrics, metric)(
                    y[rows], h[rows], input="logits", confidence_level=0.95, n_resamples=300
                )
                at = plan.curve["width"][plan.curve["n_samples"] == plan.n_samples][0]
                found[family_of(path)][metric].append((value.high - value.low) / at)
    print("\nFound width over the planned one, from a pilot of 500 labels, median and middle 80 %:")
    by_family(found, METRICS, spread)


def certify(args):
    """Plan a certificate from a pilot; then see how often it is reached on draws from the whole set."""
    found = defaultdict(lambda: defaultdict(list))
    for path, h, y in read_all(args.folders, args.every):
        log_p = log_softmax(h / fitted(h, y).temperature_, axis=1)
        order = np.argsort(-log_p.max(axis=1), kind="stable")
        truth = Population((log_p.argmax(axis=1) != y)[order].astype(float), np.arange(1, len(y) + 1) / len(y))
        bound = next((b for b in (0.05, 0.1, 0.2) if truth.limit(b, "decided") > 0.3), None)
        if bound is None:
            continue
        share = 0.7 * truth.limit(bound, "decided")
        for draw in range(args.draws):
            rng = seeded(path.stem, draw)
            for size in (200, 800):
                rows = rng.choice(len(y), size, replace=False)
                try:
                    plan = labels_for_certificate(
                        h[rows], y[rows], max_miss=bound, decided_share=share, n_simulations=60
                    )
                except InputError:
                    found[family_of(path)][f"{size}: refused"].append(1.0)
                    continue
                found[family_of(path)][f"{size}: refused"].append(0.0)
                shares = [truth.decided(rng, plan.n_samples, bound, 0.05, "decided") for _ in range(60)]
                found[family_of(path)][f"{size}: reached"].append(float(np.mean(np.array(shares) >= share)))
                found[family_of(path)][f"{size}: labels"].append(plan.n_samples)
    print("\nHow often a certificate is reached that is planned for 80 %; labels planned; pilots that are refused:")
    columns = [f"{n}: {what}" for n in (200, 800) for what in ("reached", "labels", "refused")]

    def write(values):
        return "–" if not values else f"{np.median(values):.0f}" if max(values) > 1 else f"{np.mean(values):.2f}"

    by_family(found, columns, write)


def typical(args):
    """Plans from accuracy and number of classes, over plans from all labels of the set, calibrated by one T."""
    found = defaultdict(lambda: defaultdict(list))
    for path, h, y in read_all(args.folders, args.every):
        accuracy = float((h.argmax(axis=1) == y).mean())
        if accuracy < 1.5 / h.shape[1]:
            continue
        stand_in, own = typical_network(accuracy, h.shape[1]), h / fitted(h, y).temperature_
        pairs = {"T": [labels_for_temperature(p, width=1.2).n_samples for p in (stand_in, Scores.from_logits(own, y))]}
        for metric, width in (("nll", 0.1), ("brier", 0.04)):
            plans = [labels_for_metric(p, metric=metric, width=width) for p in (stand_in, Scores.from_logits(own, y))]
            pairs[metric] = [plan.n_samples for plan in plans]
        for name, (one, other) in pairs.items():
            found[family_of(path)][name].append(one / other)
    print("\nLabels planned from accuracy and classes alone over those planned from all labels:")
    by_family(found, ["T", "nll", "brier"], spread)


# Which samples


def information(h, t=1.5):
    a = h / t
    s = np.exp(log_softmax(a, axis=1))
    a = np.where(np.isfinite(a), a, 0.0)
    return np.maximum((s * a * a).sum(axis=1) - (s * a).sum(axis=1) ** 2, 0.0)


def drawn(share, n, rng):
    """Draw n rows without replacement, in proportion to their share; return rows and weights."""
    from attemper.planning.choosing import _inclusion

    probability = _inclusion(share, n)
    order = rng.permutation(len(share))
    reached = np.cumsum(probability[order])
    at = np.searchsorted(reached, np.minimum(rng.random() + np.arange(n), reached[-1] * (1 - 1e-12)), "right")
    rows = order[np.minimum(at, len(order) - 1)]
    weight = 1 / probability[rows]
    return rows, weight / weight.mean()


def fit(args):
    """Excess NLL of a fit over the best T of the test half, by how the labels were chosen."""
    sizes = (20, 50, 200, 1000)
    recipes = {"ts": lambda: TemperatureScaling(t_range=(0.05, 20)), "bayes": BayesianTemperatureScaling}
    found = {name: {n: defaultdict(lambda: defaultdict(list)) for n in sizes} for name in recipes}
    for path, h, y in read_all(args.folders, args.every):
        for draw in range(args.draws):
            rng = seeded(path.stem, draw)
            order = rng.permutation(len(y))
            pool, test = order[: len(y) // 2], order[len(y) // 2 :][:2500]
            best = sets.nll(fitted(h[test], y[test]).map_, h[test], y[test])
            v = information(h[pool])
            v = v / v.mean()
            root = np.sqrt(v) / np.sqrt(v).mean()
            ways = {
                "random": (np.ones(len(pool)), False),
                "by information": (v + 0.02, False),
                "half by information": (0.5 + 0.5 * v, False),
                "half, weighted": (0.5 + 0.5 * v, True),
                "by its root, weighted": (0.2 + 0.8 * root, True),
            }
            for n in sizes:
                for way, (share, weighted) in ways.items():
                    rows, weight = drawn(share, n, rng)
                    for name, recipe in recipes.items():
                        made = recipe().fit(h[pool[rows]], y[pool[rows]], sample_weight=weight if weighted else None)
                        log_p = np.maximum(made.predict_log_proba(h[test]), -690)
                        found[name][n][family_of(path)][way].append(1000 * (sets.mean_nll(log_p, y[test]) - best))
    for name in recipes:
        print(f"\n{name}: excess NLL over the best T, in thousandths")
        shown = ["random", "by information", "half, weighted"]
        for some in (shown, [way for way in ways if way not in shown]):
            columns = [(way, n) for n in sizes for way in some]
            rows = [
                [family, *(f"{np.mean(found[name][n][family][way]):.1f}" for way, n in columns)]
                for family in sorted(found[name][sizes[0]])
            ]
            sets.table(["family", *(f"{way}, {n}" for way, n in columns)], rows)


def evaluate(args):
    """Squared error of a metric of the pool from n labels, over that of random draws; and its intervals."""
    sizes, repeats = (50, 200, 1000), 20
    found = {n: defaultdict(lambda: defaultdict(list)) for n in sizes}
    for path, h, y in read_all(args.folders, args.every):
        for draw in range(args.draws):
            rng = seeded(path.stem, draw)
            order = rng.permutation(len(y))
            pool, other = order[: len(y) // 2], order[len(y) // 2 :]
            own = h[pool] / (fitted(h[other], y[other]).temperature_ if args.calibrated else 1.0)
            log_p = log_softmax(own, axis=1)
            truth = {m: getattr(metrics, m)(y[pool], log_p, input="log_probs") for m in METRICS}
            for n in sizes:
                cell = found[n][family_of(path)]
                for _ in range(repeats):
                    chosen = choose_samples(own, n, seed=int(rng.integers(1 << 31)))
                    at_random = rng.choice(len(pool), n, replace=False)
                    for way, rows, weight in (("random", at_random, None), ("chosen", chosen.row, chosen.weight)):
                        for m in METRICS:
                            given = {"input": "log_probs", "sample_weight": weight}
                            value = getattr(metrics, m)(y[pool[rows]], log_p[rows], **given)
                            cell[way, m].append(value - truth[m])
                        for m in ("accuracy", "nll", "brier"):
                            got = getattr(metrics, m)(y[pool[rows]], log_p[rows], **given, confidence_level=0.95)
                            if got.has_interval:
                                cell[way, f"{m} width"].append(got.high - got.low)
                                cell[way, f"{m} covers"].append(float(got.low <= truth[m] <= got.high))
    print("\nSquared error over that of random draws, by number of labels")
    rows = []
    for family in sorted(found[sizes[0]]):
        cells = [(found[n][family], m) for m in METRICS for n in sizes]
        rows.append([family, *(f"{(rms(c['chosen', m]) / rms(c['random', m])) ** 2:.2f}" for c, m in cells)])
    sets.table(["family", *(f"{m}, {n}" for m in METRICS for n in sizes)], rows)
    for n in sizes:
        print(f"\n{n} labels: width of intervals over that of random draws; coverage")
        rows = []
        for family, cell in sorted(found[n].items()):
            width = [
                f"{np.mean(cell['chosen', f'{m} width']) / np.mean(cell['random', f'{m} width']):.2f}"
                if cell["random", f"{m} width"] and cell["chosen", f"{m} width"]
                else "–"
                for m in ("accuracy", "nll", "brier")
            ]
            cover = [
                f"{np.mean(cell['chosen', f'{m} covers']):.2f}" if cell["chosen", f"{m} covers"] else "–"
                for m in ("accuracy", "nll", "brier")
            ]
            rows.append([family, *width, *cover])
        parts = [f"{what} {m}" for what in ("width", "covers") for m in ("accuracy", "nll", "brier")]
        sets.table(["family", *parts], rows)


COMMANDS = {
    "temperature": temperature,
    "metrics": measure,
    "certificate": certify,
    "typical": typical,
    "fit": fit,
    "evaluate": evaluate,
}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=COMMANDS)
    parser.add_argument("folders", nargs="*", type=Path, default=[Path("data")])
    parser.add_argument("--every", type=int, default=1, help="take every so many sets")
    parser.add_argument("--draws", type=int, default=3)
    parser.add_argument(
        "--calibrated", action="store_true", help="evaluate: probabilities after one T of other samples"
    )
    warnings.simplefilter("ignore")
    args = parser.parse_args()
    COMMANDS[args.what](args)


if __name__ == "__main__":
    main()
