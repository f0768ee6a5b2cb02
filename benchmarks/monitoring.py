"""Monitoring beyond one temperature: cases of several pictures, and MAPIE's tests side by side.

    python benchmarks/monitoring.py clusters [--draws 200]
    python benchmarks/monitoring.py peers [--streams 20]

clusters: the skin lesions of data/ with their true labels, drawn with replacement; the pictures of a lesion stay
together. There is no drift: T is the best one of all these pictures, each with weight 1, or with weight 1/m where its
lesion has m. Then the same with logits that are 1.5 times as large from the thousandth lesion on.

peers: the same streams for attemper's tests and for `RiskMonitoring` and `OnlineMartingaleTest` of MAPIE. Rows and
labels as in benchmarks/drift.py: 1000 reference samples, 1000 without drift, 2000 with it.
"""

from __future__ import annotations

import argparse
import itertools
import warnings

import numpy as np

from attemper import TemperatureScaling, datasets
from attemper.drift import DriftTest, ExchangeabilityTest
from drift import draw, networks
from sets import table

SKIN = "resnet200-skin-lesionsplit-s0"
BEFORE, AFTER, REFERENCE = 1000, 2000, 1000
LESIONS, CHANGE = 3000, 1000  # of one stream, and of it before the change


def clusters(told):
    data = datasets.load(SKIN)
    h, y = data.test_logits.astype(np.float64), data.test_labels
    lesion = data.extra["lesion_id"][len(data.val_labels) :]
    _, of, size = np.unique(lesion, return_inverse=True, return_counts=True)
    maps = {
        "pictures": TemperatureScaling().fit(h, y).map_,
        "lesions": TemperatureScaling().fit(h, y, sample_weight=1 / size[of]).map_,
    }
    print(", ".join(f"T for {name} {1 / one.beta:.3f}" for name, one in maps.items()))
    right = h.argmax(axis=1) == y
    print(", ".join(f"accuracy with {m} pictures {right[size[of] == m].mean():.1%}" for m in (1, 2, 3)))
    rng = np.random.default_rng(told.seed)
    pictures = [np.flatnonzero(of == i) for i in range(len(size))]
    print(f"{len(y)} pictures of {len(size)} lesions; {told.draws} streams of {LESIONS} lesions, alpha {told.alpha:g}")
    found = {}
    for _ in range(told.draws):
        drawn = [pictures[i] for i in rng.integers(len(pictures), size=LESIONS)]
        order, ids = np.concatenate(drawn), np.repeat(np.arange(LESIONS), [len(one) for one in drawn])
        start = int((ids < CHANGE).sum())
        units = {"picture": {}, "lesion": {"clusters": ids}}
        changed = np.where((ids >= CHANGE)[:, None], 1.5, 1.0) * h[order]
        for (name, one), tolerance, unit in itertools.product(maps.items(), (1.0, 1.1), units):
            for drift, x in (("none", h[order]), ("logits × 1.5", changed)):
                test = DriftTest(one, alpha=told.alpha, tolerance=tolerance)
                at = test.update(x, y[order], **units[unit]).alarm_at
                if unit == "lesion" and at is not None:  # in pictures: the last one of that lesion
                    at = int(np.flatnonzero(ids == at - 1)[-1]) + 1
                found.setdefault((name, tolerance, unit), {}).setdefault(drift, []).append(
                    np.inf if at is None else at - (0 if drift == "none" else start)
                )
    rows = []
    for (name, tolerance, unit), by in found.items():
        none, changed = np.array(by["none"]), np.array(by["logits × 1.5"])
        delay_ = np.quantile(changed[changed > 0], 0.5, method="higher")
        rows.append([
            name, f"{tolerance:g}", unit, f"{np.isfinite(none).mean():.1%}", f"{delay_:.0f} pictures"
        ])  # fmt: skip
    table(
        ["T is best for", "tolerance", "unit of the test", "streams with a false alarm", "delay at logits × 1.5"], rows
    )


def family_of(path):
    return path.name.split("--")[0] if "--" in path.name else "data/ (this repository)"


class AsPredicted:
    """A classifier whose inputs are its probabilities, for MAPIE."""

    def __init__(self, n_classes):
        self.classes_ = np.arange(n_classes)

    def fit(self, X, y):
        return self

    def predict_proba(self, X):
        return X

    def predict(self, X):
        return X.argmax(axis=1)

    def __sklearn_is_fitted__(self):
        return True


def changes(log_p, rng):
    """Yield a stream for each change, of rows and labels."""
    n = REFERENCE + BEFORE + AFTER
    later = np.arange(n) >= REFERENCE + BEFORE
    rows = rng.integers(len(log_p), size=n)
    h, y = log_p[rows], draw(log_p, rows, 1.0, rng)
    yield "none", h, y
    yield "T × 1.5", h, np.where(later, draw(log_p, rows, 1.5, rng), y)
    second = np.argsort(h, axis=1)[:, -2]
    wrong = later & (y == h.argmax(axis=1)) & (rng.random(n) < 0.1)
    yield "10 % of right predictions become the second class", h, np.where(wrong, second, y)
    k = log_p.shape[1]
    often = np.arange(k) < (k + 1) // 2 if k > 2 else np.arange(k) == 1
    many = rng.integers(len(log_p), size=20 * AFTER)
    labels = draw(log_p, many, 1.0, rng)
    keep = np.flatnonzero(rng.random(len(many)) < np.where(often[labels], 1.0, 0.2))[:AFTER]
    yield (
        "half of the classes five times as frequent",
        np.concatenate([h[~later], log_p[many[keep]]]),
        np.concatenate([y[~later], labels[keep]]),
    )


def first_above(values, bound):
    above = np.flatnonzero(np.asarray(values) > bound)
    return None if not len(above) else int(above[0]) + 1


def alarms_of_mapie(p, y, alpha):
    from mapie.classification import SplitConformalClassifier
    from mapie.exchangeability_testing import OnlineMartingaleTest, RiskMonitoring

    old, new = slice(0, REFERENCE), slice(REFERENCE, None)
    found = {}
    risk = RiskMonitoring("accuracy", test_level=alpha, warn=False)
    risk.compute_threshold(y[old], p[old].argmax(axis=1)).update(y[new], p[new].argmax(axis=1))
    bounds = risk.online_risk_lower_bound_sequence_history
    found["MAPIE RiskMonitoring (tolerance 0.05)"] = first_above(bounds, risk.threshold)
    found["MAPIE RiskMonitoring (tolerance 0)"] = first_above(bounds, risk.reference_risk_upper_bound)
    estimator = SplitConformalClassifier(AsPredicted(p.shape[1]), prefit=True, conformity_score="lac")
    test = OnlineMartingaleTest(estimator, task="classification", test_level=alpha, warn=False, random_state=0)
    test.update(p[old], y[old]).update(p[new], y[new])
    at = first_above(test.martingale_value_history, 1 / alpha)
    found["MAPIE OnlineMartingaleTest (jumper)"] = None if at is None else max(at - REFERENCE, 1)
    return found


def alarms_of_attemper(h, y, alpha):
    old, new = slice(0, REFERENCE), slice(REFERENCE, None)
    return {
        "DriftTest (tolerance 1.1)": DriftTest(1.0, alpha=alpha).update(h[new], y[new]).alarm_at,
        "DriftTest (tolerance 1)": DriftTest(1.0, alpha=alpha, tolerance=1.0).update(h[new], y[new]).alarm_at,
        "ExchangeabilityTest": ExchangeabilityTest(1.0, h[old], y[old], alpha=alpha).update(h[new], y[new]).alarm_at,
        "ExchangeabilityTest without labels": ExchangeabilityTest(1.0, h[old], alpha=alpha).update(h[new]).alarm_at,
    }


def peers(told):
    warnings.simplefilter("ignore")
    print(
        f"{REFERENCE} reference samples, {BEFORE} without drift, {AFTER} with it; {told.streams} streams for each row"
    )
    rows, tests = [], {}
    for network, log_p in networks():
        rng = np.random.default_rng(told.seed)
        found = {}
        for _ in range(told.streams):
            for change, h, y in changes(log_p, rng):
                at = alarms_of_attemper(h, y, told.alpha) | alarms_of_mapie(np.exp(h), y, told.alpha)
                tests = at
                for method, alarm in at.items():
                    found.setdefault(change, {}).setdefault(method, []).append(np.inf if alarm is None else alarm)
        early = {m: np.mean([np.isfinite(a) for a in found["none"][m]]) for m in tests}
        rows.append([network, "none: streams with an alarm", *(f"{early[m]:.0%}" for m in tests)])
        rows += [[network, change, *map(delay, by.values())] for change, by in found.items() if change != "none"]
    table(["network", "change", *tests], rows)


def delay(at):
    """Write the median delay after the change, and how often it was found, of streams without an alarm before it."""
    late = np.array([a - BEFORE for a in at if a > BEFORE])
    if not np.isfinite(late).any():
        return "-"
    median = np.quantile(late, 0.5, method="higher")
    return (f"{median:.0f}" if np.isfinite(median) else "-") + f" ({np.isfinite(late).mean():.0%})"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["clusters", "peers"])
    parser.add_argument("--draws", type=int, default=200)
    parser.add_argument("--streams", type=int, default=20)
    parser.add_argument("--alpha", type=float, default=0.05)
    parser.add_argument("--seed", type=int, default=0)
    told = parser.parse_args()
    {"clusters": clusters, "peers": peers}[told.what](told)


if __name__ == "__main__":
    main()
