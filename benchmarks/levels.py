"""How often guarantees are broken and alarms are false, on data whose truth is known.

    python benchmarks/levels.py [--draws 200] [--seed 0]

The bundled skin lesions serve as the population, one picture each, and T is the best of all. Samples are drawn from it
with replacement: a bound of 10 % on the error rate of the decided cases (level 95 %), prediction sets with a coverage
of 90 %, and drift tests (alpha 5 %) on a stream without drift and on one whose logits are multiplied by 1.5 halfway.
"""

from __future__ import annotations

import argparse
import warnings

import numpy as np

from attemper import TemperatureScaling, datasets
from attemper.decisions import policy_for_miss, prediction_sets
from attemper.drift import DriftTest, ExchangeabilityTest
from sets import table

BOUND, COVERAGE, FACTOR = 0.1, 0.9, 1.5
N_RULE, N_STREAM = 800, 400


def one(cal, h, y, rng):
    """Return the numbers of one draw; the rates of a rule are those of the whole population."""
    rule = rng.integers(len(y), size=N_RULE)
    p, population = cal.predict_proba(h[rule]), cal.predict_proba(h)
    decided = ~policy_for_miss(p, y[rule], BOUND).refer_or_decide(population).refer
    wrong = (population.argmax(axis=1) != y)[decided]
    covered = prediction_sets(p, y[rule], coverage=COVERAGE).sets(population).mask[np.arange(len(y)), y]
    found = {
        "referred": float(1 - decided.mean()),
        "error rate of the decided above the bound": float(wrong.size > 0 and wrong.mean() > BOUND),
        "coverage of prediction sets": float(covered.mean()),
    }
    before, after = rng.integers(len(y), size=(2, N_STREAM))
    for name, factor in (("no drift", 1.0), (f"logits × {FACTOR}", FACTOR)):
        for test in (DriftTest(cal), ExchangeabilityTest(cal, h[rule], y[rule], seed=0)):
            test.update(h[before], y[before])
            test.update(factor * h[after], y[after])
            found[f"{type(test).__name__}, {name}: alarms"] = float(test.alarm)
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draws", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    data, rng = datasets.load(), np.random.default_rng(options.seed)
    h = np.concatenate([data.val_logits, data.test_logits]).astype(float)
    y = np.concatenate([data.val_labels, data.test_labels])
    lesions = np.unique(data.extra["lesion_id"], return_index=True)[1]  # one picture of each
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cal = TemperatureScaling().fit(h[lesions], y[lesions])
        found = [one(cal, h[lesions], y[lesions], rng) for _ in range(options.draws)]
    table(["", "mean"], [[name, f"{np.mean([draw[name] for draw in found]):.3f}"] for name in found[0]])


if __name__ == "__main__":
    main()
