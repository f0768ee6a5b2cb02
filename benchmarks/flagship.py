"""Structured scaling beside temperature scaling, the Bayesian fit and probmetrics, on a folder of logits.

    python benchmarks/flagship.py FOLDER [--sizes 200,1000,all] [--noise 0,0.1,0.3] [--no-peers] [--every 1] [--draws 1]
        [--classes 20]

Every .npz of the folder with at least 2000 labelled samples is cut in two: labels are drawn from one half ("all" takes
the whole half), 2500 samples of the other judge. A share of the labels is replaced by a uniform draw. Our methods are
told "clean" without noise and "noisy" with it; probmetrics' ts-mix, SVS and SMS cannot be told, and have their
defaults and the logits.

Printed, as Markdown:

* the mean excess test NLL over the best single temperature *of the test samples*; below zero is better than any
  single temperature can be;
* the difference of structured scaling and the peer that is best on average in that row, set by set: mean, 95 %
  interval (bootstrap over sets), how many sets are better, the worst one;
* what the noise costs: test NLL less that of the same method fitted to the same samples with clean labels;
* mean time of a fit, one thread.

The draws depend on the size and the noise alone, so sizes may be run one by one. ``--every 2`` takes every second set,
``--classes 20`` those with up to 20 classes.
Run it in the environment of `make bench` to have the peers.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import io
import sys
import time

import numpy as np

import sets
from attemper import BayesianTemperatureScaling, StructuredScaling, TemperatureScaling

PEERS = {"ts-mix": "ts-mix", "SVS": "svs", "SMS": "sms"}
FLAGSHIP, UNIFORM = "Structured", "Structured, uniform noise"


def ours(noisy):
    """Recipes by name; for clean labels there is one structured scaling."""
    labels = "noisy" if noisy else "clean"
    recipes = {
        "TS": TemperatureScaling(t_range=(0.05, 20)),  # the edge, where there is no finite optimum
        "Bayesian": BayesianTemperatureScaling(labels=labels),
        FLAGSHIP: StructuredScaling(labels=labels),
    }
    return recipes | ({UNIFORM: StructuredScaling(labels=labels, noise="uniform")} if noisy else {})


def fit_peer(name, h, y):
    import torch
    from probmetrics.calibrators import get_calibrator
    from probmetrics.distributions import CategoricalLogits

    torch.set_num_threads(1)
    with contextlib.redirect_stdout(io.StringIO()):
        fitted = get_calibrator(PEERS[name], calibrate_with_mixture=name == "ts-mix")
        fitted.fit_torch(CategoricalLogits(torch.as_tensor(h)), torch.as_tensor(y))

    def log_proba(logits):
        p = fitted.predict_proba_torch(CategoricalLogits(torch.as_tensor(logits))).get_probs().numpy()
        return np.log(np.maximum(p, 1e-300))

    return log_proba


def warm_up():
    """Have the peers compile what they compile, so that no fit pays for it."""
    rng = np.random.default_rng(0)
    for name in PEERS:
        fit_peer(name, rng.normal(size=(50, 3)), rng.integers(0, 3, 50))


def one_case(h, y, ht, yt, noisy, peers):
    """Test NLL and seconds of each method."""
    losses, seconds = {}, {}
    for name, recipe in ours(noisy).items():
        start = time.perf_counter()
        fitted = recipe.fit(h, y)
        seconds[name] = time.perf_counter() - start
        losses[name] = sets.mean_nll(fitted.predict_log_proba(ht), yt)
    for name in PEERS if peers else ():
        start = time.perf_counter()
        log_proba = fit_peer(name, h, y)
        seconds[name] = time.perf_counter() - start
        losses[name] = sets.mean_nll(log_proba(ht), yt)
    return losses, seconds


def one_set(job):
    path, draws, sizes, noises, peers = job
    if peers:
        warm_up()
    found = {}
    for draw in range(draws):
        hv, yv, ht, yt = sets.halves(path, np.random.default_rng([draw, 1]))
        hv, ht = hv.astype(float), ht.astype(float)
        ideal = TemperatureScaling().fit(ht, yt).fit_report_.nll
        for size in sizes:
            n = len(yv) if size == "all" else int(size)
            if n > len(yv):
                continue
            rows = np.random.default_rng([draw, 2, n]).choice(len(yv), n, replace=False)
            for share in noises:
                rng = np.random.default_rng([draw, 3, n, round(1000 * share)])
                y = sets.spoil(hv[rows], yv[rows], share, "uniform", rng)
                losses, seconds = one_case(hv[rows], y, ht, yt, share > 0, peers)
                excess = {name: value - ideal for name, value in losses.items()}
                found.setdefault((size, share), []).append((excess, seconds))
    return path.stem, found


def interval(values):
    """95 % interval of the mean over sets, by the bootstrap."""
    rng = np.random.default_rng(0)
    means = values[rng.integers(0, len(values), (10_000, len(values)))].mean(axis=1)
    return np.quantile(means, [0.025, 0.975])


class Row:
    """One size and one share of noise: for each method the values of all sets, mean over draws."""

    def __init__(self, found, size, share):
        self.size, self.share = size, share
        out = {name: of[size, share] for name, of in found.items() if (size, share) in of}
        self.names = list(out)
        self.excess = self._gather(out, 0)
        self.seconds = self._gather(out, 1)

    @staticmethod
    def _gather(out, part):
        methods = next(iter(out.values()))[0][part] if out else {}
        return {m: np.array([np.mean([draw[part][m] for draw in of]) for of in out.values()]) for m in methods}

    @property
    def label(self):
        return [self.size, f"{self.share:.0%}"]

    def best_peer(self, values=None):
        values = self.excess if values is None else values
        return min((m for m in PEERS if m in values), key=lambda m: values[m].mean())

    def cells(self, methods, values, form):
        return [format(values[m].mean(), form) if m in values else "–" for m in methods]


def beside(row):
    """Structured scaling less the best peer, over sets."""
    peer = row.best_peer()
    difference = row.excess[FLAGSHIP] - row.excess[peer]
    low, high = interval(difference)
    worst = int(difference.argmax())
    return [
        *row.label,
        peer,
        f"{difference.mean():+.4f}",
        f"{low:+.4f} … {high:+.4f}",
        f"{(difference < 0).sum()} of {len(difference)}",
        f"{difference[worst]:+.4f} ({row.names[worst]})",
    ]


def cost(row, clean, methods, peers):
    """Test NLL over that of the same method and samples with clean labels."""
    rise = {m: row.excess[m] - clean.excess[m if m in clean.excess else FLAGSHIP] for m in row.excess}
    cells = [*row.label, *row.cells(methods, rise, ".4f")]
    if peers:
        peer = row.best_peer(rise)
        theirs, own = rise[peer].mean(), rise[FLAGSHIP].mean()
        cells.append(f"{theirs / own:.1f} ({peer})" if own > 0 else "it costs nothing")
    return cells


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    sets.add_options(parser)
    parser.add_argument("--sizes", default="200,1000,all")
    parser.add_argument("--noise", default="0,0.1,0.3")
    parser.add_argument("--peers", action=argparse.BooleanOptionalAction, default=True)
    told = parser.parse_args()
    if told.peers and importlib.util.find_spec("probmetrics") is None:
        sys.exit("probmetrics is not installed: run this in the environment of `make bench`, or with --no-peers")
    sizes = told.sizes.split(",")
    noises = sorted({0.0, *(float(v) for v in told.noise.split(","))})  # the cost of noise is told from clean labels
    # The largest first, so that no worker is left alone with one of them in the end.
    paths = sorted(sets.large_enough(told.folder, told.every, told.classes), key=lambda p: -p.stat().st_size)
    jobs = [(p, told.draws, sizes, noises, told.peers) for p in paths]
    found = sets.run(one_set, jobs, told.workers)
    rows = {(size, share): Row(found, size, share) for share in noises for size in sizes}
    rows = {key: row for key, row in rows.items() if row.names}
    noisy = [row for row in rows.values() if row.share > 0]
    methods = [*ours(bool(noisy)), *(PEERS if told.peers else ())]
    head = ["labels", "noise"]
    print(f"{len(found)} sets, {told.draws} draw(s); mean excess test NLL over the best single T of the test samples")
    sets.table([*head, *methods], [[*r.label, *r.cells(methods, r.excess, ".4f")] for r in rows.values()])
    if told.peers:
        print("\nStructured less the best peer")
        columns = ["best peer", "difference", "95 % interval", "sets better", "worst set"]
        sets.table([*head, *columns], [beside(row) for row in rows.values()])
    if noisy:
        print("\nCost of the noise: test NLL over that of the same method's fit to clean labels")
        last = ["best peer / Structured"] if told.peers else []
        sets.table([*head, *methods, *last], [cost(r, rows[r.size, 0.0], methods, told.peers) for r in noisy])
    print("\nMean time of a fit, ms")
    times = [[*r.label, *r.cells(methods, {m: 1e3 * v for m, v in r.seconds.items()}, ".0f")] for r in rows.values()]
    sets.table([*head, *methods], times)


if __name__ == "__main__":
    main()
