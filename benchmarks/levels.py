"""How often guarantees are broken, what sets cover, how often alarms are false and how late true ones come.

    python benchmarks/levels.py [--draws 200] [--only certificates sets monitor]

A network's predictions are the population: cases are drawn from it with replacement, so the true rates are known.
Patients are pairs of lesions of the skin data; of other networks a case is one to three views of a picture, its logits
with noise. From half of a stream on, noise on the logits costs six points of accuracy (76 to 70 % on the skin data).
"""

from __future__ import annotations

import argparse
import warnings
from pathlib import Path

import numpy as np
from mapie.exchangeability_testing import RiskMonitoring
from scipy.special import softmax
from scipy.stats import beta

from attemper import Scores, TemperatureScaling, datasets
from attemper.decisions import conformal_sets, refer_for_miss
from attemper.decisions.sets import order_of
from attemper.monitoring import monitor_scores

DATA = Path(__file__).parents[1] / "data"
NETWORKS = ["skin", "resnet200-skin-randomsplit-s0", "vgg16-cifar10-s0", "lenet5-fashion_mnist-s0"]
NETWORKS += ["resnet110-cifar100-s0"]
CASES = {False: "rows", True: "cases"}
MAPIE_DRAWS = 20  # it takes a second for a stream


def population(name, clustered=True):
    """Return logits, labels and the case of each row, numbered in order."""
    rng = np.random.default_rng(0)
    path = next(Path(datasets.__file__).parent.glob("bundled/*.npz")) if name == "skin" else DATA / f"{name}.npz"
    data = np.load(path)
    if "skin" in name:
        h, y, case = data["logits"], data["labels"], np.unique(data["lesion_id"], return_inverse=True)[1]
        case = rng.permutation(case.max() + 1)[case] // 2 if clustered else case  # a patient has two lesions
    else:
        case = np.repeat(np.arange(len(data["labels"])), rng.integers(1, 4, size=len(data["labels"])))
        h, y = data["logits"][case].astype(float), data["labels"][case]
        h = h + 0.3 * h.std() * rng.normal(size=h.shape)
    rows = np.argsort(case, kind="stable") if clustered else np.unique(case, return_index=True)[1]
    return h[rows].astype(float), y[rows].astype(np.int64), case[rows] if clustered else np.arange(len(rows))


def simulate(case, n, rng):
    """Draw cases with replacement until there are n rows; return the rows, and new numbers of their cases."""
    size = np.bincount(case)
    start = np.concatenate([[0], np.cumsum(size)])
    drawn = rng.integers(len(size), size=n)
    drawn = drawn[: int(np.searchsorted(np.cumsum(size[drawn]), n)) + 1]
    rows = np.concatenate([np.arange(start[c], start[c + 1]) for c in drawn])
    return rows, np.repeat(np.arange(len(drawn)), size[drawn])


def certificates(draws):
    """Print the share of draws whose true rate is above the bound, and the share of rows that are referred."""
    for clustered in (False, True):
        h, y, case = population("skin", clustered)
        p = softmax(h / 1.7, axis=1)
        confidence, wrong = p.max(axis=1), p.argmax(axis=1) != y
        for bound, of, name in ((0.1, None, "all"), (0.05, None, "all"), (0.2, 4, "mel"), (0.3, 4, "mel")):
            own = np.ones(len(y), bool) if of is None else y == of
            weight = own / np.maximum(np.bincount(case, own), 1)[case]  # each case counts once
            for n in (400, 1600):
                broken, referred, given = [], [], 0
                for seed in range(draws):
                    rows, ids = simulate(case, n, np.random.default_rng(seed))
                    asked = bound if of is None else {of: bound}
                    ids = ids if clustered else None
                    rule = refer_for_miss(p[rows], y[rows], asked, clusters=ids, seed=seed).rule
                    given += rule is not None
                    decided = confidence > (1.0 if rule is None else rule.threshold)
                    total = weight @ decided if of is None else weight.sum()
                    broken.append(total > 0 and weight @ (wrong & decided) / total > bound)
                    referred.append(1 - decided.mean())
                rates = (f"{given / draws:.1%}", f"{np.mean(broken):.1%}", f"{np.mean(referred):.2f}")
                line(CASES[clustered], f"{name} ≤ {bound:.0%}", n, *rates)


def sets(draws):
    """Print the mean coverage of cases, the mean of its Beta law, and how often the coverage is below 90 %."""
    for clustered in (False, True):
        h, y, case = population("skin", clustered)
        p, weight = softmax(h / 1.7, axis=1), 1 / np.bincount(case)[case]
        for level in (None, 0.95):
            found, means = [], []
            for seed in range(draws):
                rows, ids = simulate(case, 400, np.random.default_rng(seed))
                given = {"clusters": ids if clustered else None, "guarantee_level": level}
                rule = conformal_sets(p[rows], y[rows], 0.9, **given, seed=seed).rule
                k = order_of(rule.n_cases[0], 0.9, None if level is None else 1 - level)
                found.append(weight @ rule.decide(p).sets[np.arange(len(y)), y] / weight.sum())
                means.append(beta(k, rule.n_cases[0] + 1 - k).mean())
            cells = [f"{value:.3f}" for value in (np.mean(found), np.mean(means))]
            line(CASES[clustered], level or "average", *cells, f"{np.mean(np.array(found) < 0.9):.1%}")


def noise_for(h, y, drop=0.06):
    """Return the standard deviation of the noise that costs so much accuracy."""
    e, low, high = np.random.default_rng(0).normal(size=h.shape), 0.0, 20 * float(h.std())
    for _ in range(30):
        middle = (low + high) / 2
        worse = ((h + middle * e).argmax(axis=1) == y).mean() < (h.argmax(axis=1) == y).mean() - drop
        low, high = (low, middle) if worse else (middle, high)
    return high


def mapie_at(val, new):
    """Return the row at which MAPIE sees that predictions are less often right, or None."""
    given = {"reference_data": (val.astype(int), np.ones(len(val))), "tolerance": 0.0, "warn": False}
    monitor = RiskMonitoring("accuracy", **given).update(new.astype(int), np.ones(len(new)))
    above = np.flatnonzero(monitor.online_risk_lower_bound_sequence_history > monitor.threshold)
    return int(above[0]) + 1 if above.size else None


def monitoring(draws):
    """Print false alarms over 10 000 rows, changes found within 1250 rows after them, and the median delay in rows."""
    for clustered in (True, False):
        for name in NETWORKS if clustered else ("skin", "vgg16-cifar10-s0"):
            h, y, case = population(name, clustered)
            noise = noise_for(h, y)
            for n in (300, 800):
                found, theirs = [], []
                for seed in range(draws):
                    rng = np.random.default_rng(seed)
                    v, a, b = (simulate(case, size, rng) for size in (n, 10_000, 2500))
                    # Rows that are drawn again must not be those of VAL, which a monitor refuses.
                    same, changed = (h[r] + 1e-3 * rng.normal(size=h[r].shape) for r in (a[0], b[0]))
                    late = np.arange(len(b[0])) >= 1250
                    changed[late] += noise * rng.normal(size=changed[late].shape)
                    streams = [(h[v[0]], *v), (same, *a), (changed, *b)]
                    scores = [Scores.of(x, y[r], clusters=c if clustered else None) for x, r, c in streams]
                    cal = TemperatureScaling().fit(scores[0])
                    quiet, other = (monitor_scores(cal, s, reference=scores[0]) for s in scores[1:])
                    tests = [test.process.alarm_at for test in (other.gap, other.exchangeability)]
                    at = min((at for at in tests if at is not None), default=None)
                    found.append((quiet.alarm, at if at is None else int(np.flatnonzero(b[1] == at - 1)[-1]) + 1))
                    if name == "skin" and seed < MAPIE_DRAWS:
                        right = [x.argmax(axis=1) == y[r] for x, r, _ in streams]
                        theirs.append((mapie_at(right[0], right[1]) is not None, mapie_at(right[0], right[2])))
                line(name, CASES[clustered], n, *summary(found), *summary(theirs))


def summary(found):
    """Return false alarms, found changes and the median delay."""
    if not found:
        return "", "", ""
    delays = [at - 1250 for _, at in found if at is not None and at > 1250]
    median = f"{np.median(delays):.0f}" if len(delays) * 2 >= len(found) else "–"
    return f"{np.mean([false for false, _ in found]):.1%}", f"{len(delays) / len(found):.0%}", median


def line(*cells):
    print("|", " | ".join(map(str, cells)), "|", flush=True)


PARTS = {
    "certificates": (certificates, "by, bound, rows, given, broken, referred"),
    "sets": (sets, "by, level, mean, law, below 90 %"),
    "monitor": (monitoring, "network, by, VAL, false, found, delay, MAPIE false, found, delay"),
}

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draws", type=int, default=200)
    parser.add_argument("--only", nargs="*", choices=list(PARTS), default=list(PARTS))
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    for run, head in map(PARTS.get, options.only):
        print()
        line(*head.split(", "))
        line(*["---"] * len(head.split(", ")))
        run(options.draws)
