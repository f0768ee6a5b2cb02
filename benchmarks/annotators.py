"""Labels as annotators get them wrong: TS, floors, and a transition matrix, on a folder of logits.

    python benchmarks/annotators.py FOLDER [--labels 1000] [--share 0.2,0.4] [--every 1] [--draws 1]
        [--classes 20]

Every .npz of the folder with at least 2000 labelled samples is cut in two: labels are drawn from one half and spoilt,
2500 samples of the other half, with clean labels, judge. The kinds of noise:

* cyclic: a wrong label is the next class, whatever the image;
* similar: it is the class that the network most often takes for the true one;
* human: rates differ between classes (0.3 to 1.7 times the share), samples on which the network is unsure are wrong
  more often; 70 % of the wrong labels are the most similar class, the others any;
* hard: wrong labels fall where the network is unsure, on any class;
* weak network: the arg max of another, weaker network (accuracy 0.72 to 0.86) on the same images, where the folder
  holds one: two files with the same labels in the same order;
* clean: no label is wrong, but the methods are told that some may be.

Everything is told as excess over the Bayesian fit of the same network to the same samples *with clean labels*. "Uniform
floor" is the Bayesian fit with errors anywhere alone. Structured scaling may lie below zero: it fits what no
temperature can. For the pairs of classes (cyclic, similar) the estimated transition matrix is held against the realised
one: mean absolute error off the diagonal, and how often the credible interval of a pair's rate held the realised rate
and the one that labels were drawn with.
"""

from __future__ import annotations

import argparse

import numpy as np
from scipy.special import softmax

import sets
from attemper import BayesianTemperatureScaling, ScaleMap, StructuredScaling

FLOOR, CLASSWISE, STRUCTURED = "uniform floor", "Bayesian, classwise", "Structured"
METHODS = ("uncalibrated", "TS", FLOOR, "Bayesian, uniform", CLASSWISE, STRUCTURED)
RATIOS = [(method, other) for method in (CLASSWISE, STRUCTURED) for other in ("TS", FLOOR)]
PAIRS = ("cyclic", "similar")
WEAK = (0.72, 0.86)


def as_people(h, y, share, rng):
    """Spoil labels by class-dependent rates, mostly by the similar class, more often where the network is unsure."""
    n_classes = h.shape[1]
    rates = share * rng.uniform(0.3, 1.7, n_classes)
    doubt = 1 - softmax(h.astype(float) / 2, axis=1).max(axis=1)
    chance = np.clip(rates[y] * (0.5 + 0.5 * doubt / doubt.mean()), 0, 0.9)
    wrong = np.where(rng.random(len(y)) < 0.7, sets.most_similar(h, y)[y], rng.integers(0, n_classes, len(y)))
    return np.where(rng.random(len(y)) < chance, wrong, y)


def weaker(path, folder, rng):
    """Predictions of a weaker network for the same images in the same order; None if there is no such file."""
    h, y = sets.read(path)
    own, found = (h.argmax(axis=1) == y).mean(), []
    for other in sets.large_enough(folder):
        if other != path and np.array_equal(sets.labels_of(other), y):
            predicted = sets.read(other)[0].argmax(axis=1)
            if WEAK[0] <= (predicted == y).mean() <= min(WEAK[1], own - 1e-9):
                found.append(predicted)
    return found[rng.integers(len(found))] if found else None


def transitions(y, spoilt, n_classes):
    """Realised share of each label (column) for each true class (row); NaN for a class that is not there."""
    counts = np.zeros((n_classes, n_classes))
    np.add.at(counts, (y, spoilt), 1)
    with np.errstate(invalid="ignore"):
        return counts / counts.sum(axis=1, keepdims=True)


def off_diagonal_error(matrix, realised):
    off = ~np.eye(len(matrix), dtype=bool) & ~np.isnan(realised)
    return float(np.abs(matrix - realised)[off].mean())


def held(confusions, realised, share):
    """How often the interval of a pair's rate held the realised rate, and the one that labels were drawn with."""
    inside = []
    for k, row in enumerate(realised):
        if np.isnan(row).any():
            continue
        goes_to = int(np.where(np.arange(len(row)) == k, -1, row).argmax())
        at = np.flatnonzero(confusions.columns[k] == goes_to)
        if row[goes_to] > 0 and len(at):
            low, high = confusions.low[k, at[0]], confusions.high[k, at[0]]
            inside.append((low <= row[goes_to] <= high, low <= share <= high))
    return np.mean(inside, axis=0)


def one_case(h, y, spoilt, ht, yt, pair_share):
    """Excess test NLL of each method over the clean Bayesian fit; what is known of the transition matrix."""
    clean = sets.nll(BayesianTemperatureScaling().fit(h, y).map_, ht, yt)
    floor = BayesianTemperatureScaling(labels="noisy", noise="uniform", similar_probability=0.0).fit(h, spoilt)
    structured = StructuredScaling(labels="noisy").fit(h, spoilt)
    maps = (
        ScaleMap(1.0),
        sets.plain(h, spoilt).map_,
        floor.map_,
        BayesianTemperatureScaling(labels="noisy", noise="uniform").fit(h, spoilt).map_,
        BayesianTemperatureScaling(labels="noisy").fit(h, spoilt).map_,
        structured.map_,
    )
    excess = [sets.nll(m, ht, yt) - clean for m in maps]
    if pair_share is None:
        return excess, None
    realised = transitions(y, spoilt, h.shape[1])
    anywhere = np.full_like(realised, floor.noise_rate_ / h.shape[1])
    errors = [off_diagonal_error(m, realised) for m in (anywhere, structured.confusions_.matrix)]
    return excess, [*errors, *held(structured.confusions_, realised, pair_share)]


def one_set(job):
    path, folder, draws, n, shares = job
    cases = [("clean", 0.0), *((kind, share) for kind in (*PAIRS, "human", "hard") for share in shares)]
    found = {}
    for draw in range(draws):
        h, y = sets.read(path)
        h = h.astype(float)
        rng = np.random.default_rng([draw, 1])
        val, test = sets.cut(len(y), rng)
        rows = rng.choice(val, min(n, len(val)), replace=False)
        for i, (kind, share) in enumerate(cases):
            rng = np.random.default_rng([draw, 2, i])
            if kind == "human":
                spoilt = as_people(h[rows], y[rows], share, rng)
            else:
                spoilt = sets.spoil(h[rows], y[rows], share, kind, rng)
            result = one_case(h[rows], y[rows], spoilt, h[test], y[test], share if kind in PAIRS else None)
            found.setdefault((kind, f"{share:.0%}"), []).append((*result, (spoilt != y[rows]).mean()))
        rng = np.random.default_rng([draw, 3, sum(path.stem.encode())])  # another one for each network
        other = weaker(path, folder, rng)
        if other is not None:
            result = one_case(h[rows], y[rows], other[rows], h[test], y[test], None)
            found.setdefault(("weak network", "–"), []).append((*result, (other[rows] != y[rows]).mean()))
    return path.stem, found


def ratio(a, b):
    if b <= 0:
        return "–"
    return f"{a / b:.2f}" if a > 0 else "≤ 0"


class Case:
    """One kind and share of noise, over all sets that have it; means over draws."""

    def __init__(self, case, found):
        out = {name: of[case] for name, of in found.items() if case in of}
        self.kind, self.names, self.label = case[0], list(out), [*case, str(len(out))]
        self.excess = np.array([np.mean([draw[0] for draw in of], axis=0) for of in out.values()])  # sets × methods
        self.wrong = np.mean([[draw[2] for draw in of] for of in out.values()])
        if self.kind in PAIRS:
            self.matrix = np.mean([np.mean([draw[1] for draw in of], axis=0) for of in out.values()], axis=0)

    def means(self):
        return [*self.label, f"{self.wrong:.0%}", *(f"{v:+.4f}" for v in self.excess.mean(axis=0))]

    def spread(self):
        middle, most = np.median(self.excess, axis=0), self.excess.max(axis=0)
        worst = self.names[self.excess[:, METHODS.index(STRUCTURED)].argmax()]
        return [*self.label, *(f"{a:+.3f}, {b:+.3f}" for a, b in zip(middle, most)), worst]

    def ratios(self):
        mean = dict(zip(METHODS, self.excess.mean(axis=0)))
        return [*self.label, *(ratio(mean[m], mean[other]) for m, other in RATIOS)]

    def matrices(self):
        return [*self.label, *(f"{v:.4f}" for v in self.matrix[:2]), *(f"{v:.0%}" for v in self.matrix[2:])]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    sets.add_options(parser)
    parser.add_argument("--labels", type=int, default=1000)
    parser.add_argument("--share", default="0.2,0.4")
    told = parser.parse_args()
    shares = [float(v) for v in told.share.split(",")]
    # The largest first, so that no worker is left alone with one of them in the end.
    paths = sorted(sets.large_enough(told.folder, told.every, told.classes), key=lambda p: -p.stat().st_size)
    jobs = [(p, told.folder, told.draws, told.labels, shares) for p in paths]
    found = sets.run(one_set, jobs, told.workers)
    cases = [Case(case, found) for case in dict.fromkeys(case for of in found.values() for case in of)]
    head = ["noise", "share", "sets"]
    print(f"{len(found)} sets, {told.labels} labels, {told.draws} draw(s); excess test NLL over the clean Bayesian fit")
    print("\nMean")
    sets.table([*head, "labels wrong", *METHODS], [case.means() for case in cases])
    print("\nRatio of the means")
    sets.table([*head, *(f"{m} / {other}" for m, other in RATIOS)], [case.ratios() for case in cases])
    print("\nMedian, worst set")
    sets.table([*head, *METHODS, "worst set of Structured"], [case.spread() for case in cases])
    print("\nTransition matrix: mean absolute error off the diagonal; pairs whose interval held the rate")
    columns = ["error: uniform floor", "error: classwise", "held: realised", "held: drawn with"]
    sets.table([*head, *columns], [case.matrices() for case in cases if case.kind in PAIRS])


if __name__ == "__main__":
    main()
