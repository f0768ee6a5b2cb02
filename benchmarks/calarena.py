"""attemper's methods in CalArena (probkit/CalArena): its calibrators' protocol, and a run on a file of its layout.

In CalArena's ``custom_calibrators.py``, with this file beside it::

    from calarena import CUSTOM_CALIBRATORS

Then ``python run_benchmark.py --benchmark tabrepo-binary --calibrator attemper-structured`` there runs one of them.

CalArena passes probabilities: for two classes those of the second class alone, as a vector or as one column; otherwise
N×K. They come in single precision, and some are exactly 0 or 1. `AttemperCalibrator` completes the columns, replaces
zeros, and returns N×K probabilities, two columns for two classes.

Without CalArena's own code, this file runs a benchmark as well::

    python benchmarks/calarena.py tabrepo-binary.h5 --calibrators structured,bayes [--results results]

It writes results/tabrepo-binary/attemper-structured.csv with the columns that CalArena's tables read: dataset, model,
cal_size, test_size, n_classes (more than two classes), attemper-structured_logloss, …_brier, …_accuracy and …_time
(seconds of fit and prediction). The file has the groups {dataset}/{model} with probas_cal, labels_cal, probas_test and
labels_test; an .npz with these same keys does, too. Reading .h5 needs h5py.
"""

from __future__ import annotations

import argparse
import csv
import sys
import time
from functools import partial
from pathlib import Path

import numpy as np

from attemper.calibrators import METHODS

ZERO = 1e-6  # what an exact 0 stands for at most, such as the votes of a forest
SMALLEST = 1e-15
RESOLUTION = float(np.finfo(np.float32).epsneg)  # of 1 - p, where p has single precision
PARTS = ("probas_cal", "labels_cal", "probas_test", "labels_test")


def columns(p):
    """Return N×K probabilities: for two classes both columns."""
    p = np.asarray(p, dtype=float)
    p = p.reshape(len(p), -1)
    return np.hstack([np.maximum(1 - p, RESOLUTION), p]) if p.shape[1] == 1 else p


class AttemperCalibrator:
    """One of attemper's methods, by name, with the parameters of its class.

    Probabilities below the smallest positive one of the calibration rows, or below 1e-6 where that is larger, are
    raised to it: networks' small probabilities are kept, and a forest's exact zeros are not taken for certainty.
    """

    def __init__(self, method="structured", **parameters):
        self.method, self.parameters = method, parameters

    def fit(self, p_cal, y_cal):
        p = columns(p_cal)
        self.least_ = float(np.clip(p[p > 0].min(), SMALLEST, ZERO))
        labels = np.asarray(y_cal).ravel().astype(int)
        self.calibrator_ = METHODS[self.method](input="probs", **self.parameters).fit(self._positive(p), labels)
        return self

    def predict_proba(self, p_test):
        return self.calibrator_.predict_proba(self._positive(columns(p_test)))

    def _positive(self, p):
        p = np.maximum(p, self.least_)
        return p / p.sum(axis=1, keepdims=True)


CUSTOM_CALIBRATORS = {f"attemper-{name}": partial(AttemperCalibrator, name) for name in METHODS}


# A run without CalArena's code


def experiments(path):
    """Yield the dataset, the model and the four arrays of each experiment of a file."""
    if path.suffix == ".npz":
        with np.load(path, allow_pickle=False) as z:
            for group in dict.fromkeys(key.rpartition("/")[0] for key in z.files):
                yield *group.split("/", 1), *(z[f"{group}/{part}"] for part in PARTS)
        return
    try:
        import h5py
    except ImportError:
        sys.exit(f"{path}: reading .h5 needs h5py; use pip install h5py")
    with h5py.File(path, "r") as file:
        for dataset in file:
            for model in file[dataset]:
                yield dataset, model, *(file[f"{dataset}/{model}/{part}"][:] for part in PARTS)


def scores(p, y):
    """Log-loss, Brier score (summed over classes) and accuracy."""
    true = np.clip(p[np.arange(len(y)), y], 1e-15, 1)
    return {
        "brier": float(np.mean((p**2).sum(axis=1) - 2 * p[np.arange(len(y)), y] + 1)),
        "logloss": float(-np.log(true).mean()),
        "accuracy": float((p.argmax(axis=1) == y).mean()),
    }


def one_experiment(name, dataset, model, p_cal, y_cal, p_test, y_test):
    line = {"dataset": dataset, "model": model, "cal_size": len(p_cal), "test_size": len(p_test)}
    if p_cal.ndim == 2 and p_cal.shape[1] > 2:
        line["n_classes"] = p_cal.shape[1]
    start = time.perf_counter()
    p = CUSTOM_CALIBRATORS[name]().fit(p_cal, y_cal).predict_proba(p_test)
    seconds = time.perf_counter() - start
    found = scores(p, np.asarray(y_test).ravel().astype(int)) | {"time": seconds}
    return line | {f"{name}_{key}": value for key, value in found.items()}


def run(path, name, results):
    lines = [one_experiment(name, *experiment) for experiment in experiments(path)]
    out = results / path.stem / f"{name}.csv"
    out.parent.mkdir(parents=True, exist_ok=True)
    with out.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(lines[0]))
        writer.writeheader()
        writer.writerows(lines)
    return out


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("benchmark", type=Path, help="a benchmark of CalArena, such as tabrepo-binary.h5")
    parser.add_argument("--calibrators", default="structured", help="names of methods, with commas between")
    parser.add_argument("--results", type=Path, default=Path("results"))
    told = parser.parse_args(arguments)
    for method in told.calibrators.split(","):
        if method not in METHODS:
            parser.error(f"--calibrators: expected some of {', '.join(METHODS)}, got {method!r}")
        print(run(told.benchmark, f"attemper-{method}", told.results))


if __name__ == "__main__":
    main()
