"""Check that a change of the source leaves every number as it was.

    OMP_NUM_THREADS=1 python benchmarks/same_numbers.py record FOLDER... -o before.npz
    OMP_NUM_THREADS=1 python benchmarks/same_numbers.py record FOLDER... -o after.npz
    python benchmarks/same_numbers.py compare before.npz after.npz --renames renames.json

`record` fits every method on every .npz of the folders (keys logits/labels, with val_logits/val_labels or alone; or
logits_val/… and logits_test/…). It stores what `save` writes, the fitted attributes and the predictions; for some sets
also metrics, drift tests, policies, shards, sketches and the command line. Run it on the commit before and on the
commit after (PYTHONPATH selects the source).

`compare` prints the greatest difference for each set and method. It exits with 1 if a number differs by more than
1e-12 + 1e-12·|before|, or if a leaf of the first record is missing in the second. The renames are a JSON object from
old to new names: one component of a key or several, such as {"spread_": "prior_std_", "fitted/gain": "fitted/lift"}.
A list is of names of which one is there, and a null accepts that the leaf is gone.

A key is SET/METHOD/CASE/KIND/LEAF…, such as vgg16-cifar10-s0/bayes noisy uniform/1000 rows/attributes/temperature_. No
key contains a module, so that records of different layouts of the package can be compared. All use of attemper is in
the adapters, the first part of this file: adapt them if public names change.
"""

from __future__ import annotations

import argparse
import importlib
import json
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import attemper
from records import Floats, Record, compare

# --- Adapters: all that this script knows of attemper ----------------------------------------------------------------

# Own name of a variant -> method and parameters. The own names must stay: they are part of the keys.
NOISE_VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    f"{method} noisy {noise}": (method, {"labels": "noisy", "noise": noise})
    for method in ("bayes", "structured")
    for noise in ("uniform", "classwise")
}
OPTION_VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "ts range": ("ts", {"t_range": (0.5, 1.2)}),
    "ats reference": ("ats", {"loss": "reference"}),
    "ats theta": ("ats", {"theta": 0.05}),
    "bayes priors": (
        "bayes",
        {"prior_centre": 0.5, "prior_scale": 0.1, "floor_probability": 0.5, "credible_level": 0.5},
    ),
    "structured scales": ("structured", {"structure": "scales"}),
    "structured biases": ("structured", {"structure": "biases"}),
    "vector l2": ("vector", {"l2": 0.01, "bias_penalty": 0.1}),
    "vector uncentred": ("vector", {"centring": "none"}),
    "matrix penalties": ("matrix", {"l2": 0.01, "off_diagonal": 1.0, "bias_penalty": 0.1}),
    "dirichlet penalties": ("dirichlet", {"off_diagonal": 1.0, "bias_penalty": 1.0}),
    "platt labels": ("platt", {"targets": "labels"}),
    "beta platt": ("beta", {"targets": "platt"}),
    "histogram width": ("histogram", {"strategy": "uniform", "n_bins": 10}),
}
SKETCHED = ("ts", "ats", "bayes", "bayes noisy uniform")  # a sketch is enough for them
SLOW = {"structured", *NOISE_VARIANTS}
QUADRATIC = {"structured", "matrix", "dirichlet", *NOISE_VARIANTS} - {"bayes noisy uniform"}  # in the number of classes
COMMAND_LINE_METHODS = ("ts", "bayes", "structured")


def public(name: str, module: str) -> Any:
    """Return a public name of attemper: of the package itself where it has it, else of this module."""
    return getattr(attemper, name) if hasattr(attemper, name) else getattr(importlib.import_module(module), name)


def variants() -> dict[str, tuple[str, dict[str, Any]]]:
    """Return every method of the registry and the noise variants, by their own names."""
    return {method: (method, {}) for method in public("METHODS", "attemper.calibrators")} | NOISE_VARIANTS


def calibrator(variant: str, **more: Any) -> Any:
    """Return an unfitted calibrator."""
    method, parameters = (variants() | OPTION_VARIANTS)[variant]
    return public("METHODS", "attemper.calibrators")[method](**parameters, **more)


def numbers_of_metrics(probs: Floats, labels: Any) -> dict[str, Any]:
    """Return all metrics with intervals."""
    return dict(attemper.metrics.evaluate(labels, probs, confidence_level=0.95, n_resamples=100, seed=0))


def numbers_of_more_metrics(probs: Floats, labels: Any) -> dict[str, Any]:
    """Return the metrics that `evaluate` leaves out, and the curves."""
    m = attemper.metrics
    drawn = {"confidence_level": 0.95, "n_resamples": 100, "seed": 0}
    softer = probs**0.5 / (probs**0.5).sum(axis=1, keepdims=True)
    return {
        "ece debiased": m.ece(labels, probs, norm=2, debiased=True, strategy="quantile", **drawn),
        "ece classwise": m.ece(labels, probs, kind="classwise", norm=2, **drawn),
        "weighted nll": m.nll(labels, probs, sample_weight=np.arange(len(labels)) % 3, **drawn),
        "aurc": m.aurc(labels, probs, **drawn),
        "expected cost": m.expected_cost(labels, probs, 0.7, cost_refer=0.2, cost_miss=1.0, **drawn),
        "referral area": m.referral_area(labels, probs, **drawn),
        "referral area difference": m.referral_area_difference(labels, probs, softer, **drawn),
        "referral curve": m.referral_curve(labels, probs, thresholds="paper"),
        "reliability": m.reliability(labels, probs),
        "risk coverage": m.risk_coverage_curve(labels, probs),
    }


def numbers_of_drift(fitted: Any, val: Rows, test: Rows) -> dict[str, Any]:
    """Return the state of both drift tests on a stream whose second half has logits twice as large."""
    tests = {
        "temperature": public("DriftTest", "attemper.drift")(fitted),
        "exchangeability": public("ExchangeabilityTest", "attemper.drift")(fitted, val.logits, val.labels, seed=0),
    }
    numbers: dict[str, Any] = {}
    half = len(test.labels) // 2
    for name, drift_test in tests.items():
        drift_test.update(test.logits[:half], test.labels[:half])
        numbers[f"{name}/first half"] = {"log_e_value": drift_test.log_e_value, "p_value": drift_test.p_value}
        drift_test.update(2 * test.logits[half:], test.labels[half:])
        numbers[f"{name}/second half"] = {"log_e_value": drift_test.log_e_value, "p_value": drift_test.p_value}
        numbers[f"{name}/document"] = saved(drift_test)
    return numbers | {"temperature/drift": tests["temperature"].drift()}


def numbers_of_policies(probs: Floats, labels: Any) -> dict[str, Any]:
    """Return referral policies of every kind, and how many samples each refers."""
    for_miss = public("policy_for_miss", "attemper.decisions")
    policies = {
        "budget": public("policy_for_budget", "attemper.decisions")(probs, 0.2),
        "miss of decided": for_miss(probs, labels, 0.1),
        "miss of all": for_miss(probs, labels, 0.05, miss_rate_of="all"),
        "miss by predicted class": for_miss(probs, labels, 0.2, per_class="predicted"),
        "miss by true class": for_miss(probs, labels, 0.2, miss_rate_of="all", per_class="true"),
        "cost": public("policy_for_cost", "attemper.decisions")(probs, cost_refer=0.2, cost_miss=1.0),
    }
    return {
        name: {"document": saved(policy), "referred": policy.refer_or_decide(probs).refer.sum()}
        for name, policy in policies.items()
    }


def numbers_of_comparison(val: Rows, test: Rows) -> dict[str, Any]:
    """Return what a comparison of a few methods reports, without the times."""
    scores = [attemper.Scores.from_logits(part.logits, part.labels) for part in (val, test)]
    result = public("compare", "attemper.comparison")(*scores, ["ts", "bayes", "vector"], seed=0)
    return {
        row.method: {"temperature": row.temperature, "metrics": row.metrics, "changed": row.changed}
        for row in result.rows
    }


def sharded_fit(variant: str, shards: Sequence[tuple[Any, Any]]) -> Any:
    """Return a calibrator that is fitted on shards, in this process."""
    return public("fit_sharded", "attemper.sharded")(calibrator(variant), shards)


def stream_fit(variant: str, shards: Sequence[tuple[Any, Any]]) -> Any:
    """Return a calibrator that takes in the shards as batches of a stream."""
    fitted = calibrator(variant)
    for logits, labels in shards:
        fitted.partial_fit(logits, labels)
    return fitted


def wrapped_classifier() -> Any:
    """Return the probabilities of a scikit-learn classifier that is calibrated across folds."""
    from sklearn.datasets import make_classification
    from sklearn.naive_bayes import GaussianNB

    X, y = make_classification(600, n_informative=6, n_redundant=10, n_classes=3, random_state=0)
    wrapper = attemper.CalibratedClassifier(GaussianNB(), method="bayes", response_method="predict_log_proba")
    return wrapper.fit(X, y).predict_proba(X)


def command_line(method: str, val: Rows, test: Rows) -> dict[str, Any]:
    """Return temperature and probabilities of ``attemper fit`` and ``attemper apply``."""
    with tempfile.TemporaryDirectory() as folder:
        # Whole paths, not cwd=folder: a relative PYTHONPATH would then select another source than that of this process.
        val_file, test_file, map_file, probs_file = (
            str(Path(folder) / name) for name in ("val.npz", "test.npz", "map.json", "probs.npz")
        )
        np.savez(val_file, logits=val.logits, labels=val.labels)
        np.savez(test_file, logits=test.logits)
        fit = ["fit", val_file, "--method", method, "-o", map_file]
        for arguments in (fit, ["apply", map_file, test_file, "-o", probs_file]):
            subprocess.run([sys.executable, "-m", "attemper", *arguments], check=True, capture_output=True)
        with np.load(probs_file) as z:
            probs = z["probs"]
        return {"temperature": attemper.load(map_file).temperature_, "probs": probs}


def saved(fitted: Any) -> Any:
    """Return the document that ``save`` writes."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "document.json"
        fitted.save(path)
        return json.loads(path.read_text())


# --- Sets ------------------------------------------------------------------------------------------------------------

MANY_CLASSES = 50  # from here on, methods that are quadratic in the classes are fitted on one set only
EVERY_THOROUGH = 4  # of the other sets, one of so many has slow methods on 1000 rows, and the others on 5000
TEST_ROWS = 2000
WHOLE_ROWS = 20  # test rows of which all probabilities are stored; of the others one number each
N_EXTRA, EVERY_EXTRA = 3, 30  # metrics, drift, … are recorded on so many sets, one of every so many
N_COMMAND_LINE = 2


class Rows(NamedTuple):
    """Logits and labels of one part of a set."""

    logits: NDArray[Any]
    labels: NDArray[np.int64]

    def first(self, n: int) -> Rows:
        """Return the first n rows."""
        return Rows(self.logits[:n], self.labels[:n])


def read_set(path: Path) -> tuple[Rows, Rows] | None:
    """Return validation and test rows; None if the file has no logits with labels."""
    with np.load(path, allow_pickle=False) as z:
        for val, test in (("val_{}", "{}"), ("{}_val", "{}_test")):
            names = [part.format(key) for part in (val, test) for key in ("logits", "labels")]
            if all(name in z for name in names):
                h, y, test_h, test_y = (z[name] for name in names)
                return Rows(h, y.astype(int)), Rows(test_h.astype(float), test_y.astype(int)).first(TEST_ROWS)
        if "logits" not in z or "labels" not in z:
            return None
        h, y = z["logits"], z["labels"].astype(int)
    order = np.random.default_rng(0).permutation(len(y))
    val_rows, test_rows = np.sort(order[: len(y) // 2]), np.sort(order[len(y) // 2 :])
    return Rows(h[val_rows], y[val_rows]), Rows(h[test_rows].astype(float), y[test_rows]).first(TEST_ROWS)


def spoil(rows: Rows, share: float) -> Rows:
    """Replace a share of the labels by others at random."""
    rng = np.random.default_rng(1)
    noise = rng.integers(0, rows.logits.shape[1], len(rows.labels))
    return Rows(rows.logits, np.where(rng.random(len(rows.labels)) < share, noise, rows.labels))


def softmax(logits: NDArray[Any]) -> Floats:
    """Return probabilities, without any function of attemper."""
    e = np.exp(logits.astype(float) - logits.max(axis=1, keepdims=True))
    return np.asarray(e / e.sum(axis=1, keepdims=True))


# --- Recording -------------------------------------------------------------------------------------------------------


def record_fit(record: Record, key: str, recipe: Any, val: Rows, test_X: Floats, weights: Any = None) -> Any:
    """Fit a calibrator and record everything about it; return None if the fit is refused, which is recorded too."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            fitted = recipe.fit(val.logits, val.labels, sample_weight=weights)
        except ValueError:
            fitted = None
    record.add(f"{key}/refused", fitted is None)
    if fitted is None:
        return None
    record.add(f"{key}/warnings", sum(issubclass(w.category, attemper.AttemperWarning) for w in caught))
    record_fitted(record, key, fitted, test_X)
    return fitted


def record_fitted(record: Record, key: str, fitted: Any, test_X: Floats) -> None:
    """Record document, attributes and predictions.

    Whole predictions of all sets would take a gigabyte. Each row is stored as the sum of its probabilities with weights
    between 1 and 2, which shows a change of any of them as clearly as the probability itself.
    """
    record.add(f"{key}/document", saved(fitted))
    record.add(f"{key}/attributes", fitted)
    probs = fitted.predict_proba(test_X)
    weights = 1 + 0.6180339887498949 * np.arange(probs.shape[1]) % 1
    record.add(f"{key}/predictions/weighted", (probs * weights).sum(axis=1))
    record.add(f"{key}/predictions/first", probs[:WHOLE_ROWS])
    record.add(f"{key}/predictions/log", fitted.predict_log_proba(test_X[:WHOLE_ROWS]))


def record_methods(record: Record, name: str, val: Rows, test: Rows, *, thorough: bool) -> None:
    """Fit every method: on some rows, on many, on few noisy labels, and on probabilities."""
    many_classes = val.logits.shape[1] >= MANY_CLASSES
    n_some, n_many = (500, 2000) if many_classes else (1000, 5000)
    few, some = spoil(val.first(200), 0.2), val.first(300)
    probs = Rows(softmax(some.logits), some.labels)
    for variant in variants():
        key = f"{name}/{variant}"
        if not many_classes:
            record_fit(record, f"{key}/200 noisy rows", calibrator(variant), few, test.logits)
        slow = variant in (QUADRATIC if many_classes else SLOW)
        if thorough or not slow:
            record_fit(record, f"{key}/{n_some} rows", calibrator(variant), val.first(n_some), test.logits)
        if thorough and not slow:
            record_fit(record, f"{key}/{n_many} rows", calibrator(variant), val.first(n_many), test.logits)
        if not slow:
            recipe = calibrator(variant, input="probs", zeros_as=1e-8)
            record_fit(record, f"{key}/300 rows of probabilities", recipe, probs, softmax(test.logits))


def record_extra(record: Record, name: str, val: Rows, test: Rows) -> None:
    """Record options of the methods, weights, shards, streams, sketches, metrics, drift tests and policies."""
    val = val.first(1000)
    for variant in OPTION_VARIANTS:
        record_fit(record, f"{name}/{variant}/{len(val.labels)} rows", calibrator(variant), val, test.logits)
    weights = np.arange(len(val.labels)) % 3
    for variant in variants():
        record_fit(record, f"{name}/{variant}/weighted rows", calibrator(variant), val, test.logits, weights)
    for variant in sorted(SLOW):
        recipe, probs = calibrator(variant, input="probs", zeros_as=1e-8), Rows(softmax(val.logits), val.labels)
        record_fit(record, f"{name}/{variant}/rows of probabilities", recipe, probs, softmax(test.logits))
    shards = [(val.logits[rows], val.labels[rows]) for rows in np.array_split(np.arange(len(val.labels)), 3)]
    for variant in SKETCHED:
        record_fitted(record, f"{name}/{variant}/3 shards", sharded_fit(variant, shards), test.logits)
        record_fitted(record, f"{name}/{variant}/3 batches", stream_fit(variant, shards), test.logits)
    sketches = [attemper.Sketch.of(*shard) for shard in shards]
    record.add(f"{name}/sketch/whole", attemper.Sketch.of(val.logits, val.labels))
    record.add(f"{name}/sketch/sum", sketches[0] + sketches[1] + sketches[2])
    record.add(f"{name}/sketch/document", saved(sketches[0]))
    fitted = calibrator("bayes").fit(val.logits, val.labels)
    predicted = fitted.predict_proba(test.logits)
    record.add(f"{name}/metrics/more", numbers_of_more_metrics(predicted, test.labels))
    record.add(f"{name}/policies", numbers_of_policies(predicted, test.labels))
    record.add(f"{name}/drift", numbers_of_drift(fitted, val, test))
    record.add(f"{name}/comparison", numbers_of_comparison(val, test))


def record_all(folders: Sequence[Path], every: int) -> Record:
    """Record the sets of these folders, with progress on stderr."""
    record, start = Record(), time.time()
    paths = [path for folder in folders for path in sorted(folder.glob("*.npz"))][::every]
    n_small = n_many = 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        record.add("scikit-learn/wrapper/5 folds/predictions", wrapped_classifier())
        for i, path in enumerate(paths):
            parts, name = read_set(path), path.stem
            if parts is not None:
                val, test = parts
                many = val.logits.shape[1] >= MANY_CLASSES
                thorough = n_many == 0 if many else n_small % EVERY_THOROUGH == 0
                record_methods(record, name, val, test, thorough=thorough)
                record.add(f"{name}/metrics/softmax", numbers_of_metrics(softmax(test.logits), test.labels))
                if not many and n_small % EVERY_EXTRA == 0 and n_small < N_EXTRA * EVERY_EXTRA:
                    record_extra(record, name, val, test)
                if not many and n_small < N_COMMAND_LINE:
                    for method in COMMAND_LINE_METHODS:
                        result = command_line(method, val.first(1000), test.first(200))
                        record.add(f"{name}/{method}/command line", result)
                n_small, n_many = n_small + (not many), n_many + many
            print(f"{i + 1} of {len(paths)} sets, {time.time() - start:.0f} s: {name}", file=sys.stderr, flush=True)
    return record


def main() -> int:
    """Run one of the two commands; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    recorder = commands.add_parser("record", help="fit every method on every set and store the numbers")
    recorder.add_argument("folders", type=Path, nargs="+", metavar="FOLDER")
    recorder.add_argument("-o", "--output", type=Path, required=True, metavar="OUT.npz")
    recorder.add_argument("--every", type=int, default=1, help="take every so many sets")
    comparer = commands.add_parser("compare", help="print what differs between two records; exit with 1 if anything")
    comparer.add_argument("before", type=Path, metavar="BEFORE.npz")
    comparer.add_argument("after", type=Path, metavar="AFTER.npz")
    comparer.add_argument("--renames", type=Path, metavar="FILE", help="JSON object: old name to new name, or to null")
    comparer.add_argument("--tolerance", type=float, default=1e-12)
    comparer.add_argument("--brief", action="store_true", help="list only the sets and methods that differ")
    options = parser.parse_args()
    if options.command == "record":
        print(f"source: {Path(attemper.__file__).parent}", file=sys.stderr)
        record_all(options.folders, options.every).save(options.output)
        return 0
    renames = {} if options.renames is None else json.loads(options.renames.read_text())
    records = Record.load(options.before), Record.load(options.after)
    return 0 if compare(*records, renames, options.tolerance, brief=options.brief) else 1


if __name__ == "__main__":
    sys.exit(main())
