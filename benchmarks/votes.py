"""Forests, nearest neighbours and bagging: what a probability of 0 should stand for, and what calibrating them gains.

    python benchmarks/votes.py          # a table: mean test NLL over four data sets and two divisions (minutes)
    python benchmarks/votes.py --json   # every number

Where a classifier is used as it is, and in scikit-learn's `CalibratedClassifierCV`, zeros are clipped at 1e-15.
"""

from __future__ import annotations

import argparse
import json
import warnings
from typing import ClassVar

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import load_breast_cancer, load_digits, load_wine, make_classification
from sklearn.ensemble import BaggingClassifier, ExtraTreesClassifier, RandomForestClassifier
from sklearn.model_selection import train_test_split
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC
from sklearn.tree import DecisionTreeClassifier

from attemper import CalibratedClassifier

MODELS = {
    "forest, 10 trees": RandomForestClassifier(10, random_state=0),
    "forest, 100 trees": RandomForestClassifier(100, random_state=0),
    "forest, 100 trees, leaves of 5": RandomForestClassifier(100, min_samples_leaf=5, random_state=0),
    "extra trees, 100": ExtraTreesClassifier(100, random_state=0),
    "5 nearest neighbours": KNeighborsClassifier(5),
    "bagging of 20 linear SVMs": BaggingClassifier(make_pipeline(StandardScaler(), LinearSVC()), 20, random_state=0),
    "one tree": DecisionTreeClassifier(random_state=0),
}
DATA = {
    "breast cancer": load_breast_cancer,
    "digits": load_digits,
    "wine": load_wine,
    "made up": lambda return_X_y: make_classification(
        1200, 20, n_informative=6, n_classes=4, flip_y=0.1, random_state=0
    ),
}
METHODS = ("ts", "bayes", "sigmoid", "isotonic")


def nll(p, y):
    """Return the mean NLL with zeros clipped as scikit-learn clips them."""
    return float(-np.log(np.clip(p[np.arange(len(y)), y], 1e-15, 1)).mean())


class Once(ClassifierMixin, BaseEstimator):
    """Fits a classifier once to the same rows, however many calibrators ask for it: folds are the same for all."""

    found: ClassVar = {}

    def __init__(self, estimator):
        self.estimator = estimator

    def fit(self, X, y):
        key = repr(self.estimator), X.tobytes(), y.tobytes()
        if key not in self.found:
            self.found[key] = clone(self.estimator).fit(X, y)
        self.best_estimator_ = self.found[key]  # as a search has it
        self.classes_ = self.best_estimator_.classes_
        return self

    def predict(self, X):
        return self.best_estimator_.predict(X)

    def predict_proba(self, X):
        return self.best_estimator_.predict_proba(X)


def ways(model):
    """Return every way to calibrate the model, by name."""
    found, probs = {"as it is": model}, {"response_method": "predict_proba", "cv": 5}
    for method in METHODS:
        found[f"attemper {method}"] = CalibratedClassifier(model, method, **probs)
    for zeros_as in (1e-3, 1e-8):
        found[f"attemper ts, zeros_as={zeros_as:g}"] = CalibratedClassifier(model, "ts", zeros_as=zeros_as, **probs)
    for method in ("sigmoid", "isotonic", "temperature"):
        found[f"scikit-learn {method}"] = CalibratedClassifierCV(model, method=method, cv=5, ensemble=False)
    return found


def run(seeds):
    """Return the test NLL of every model, data set, seed and way."""
    rows = []
    for data, load in DATA.items():
        X, y = load(return_X_y=True)
        for seed in range(seeds):
            parts = train_test_split(X, y, test_size=0.5, stratify=y, random_state=seed)
            for name, model in MODELS.items():
                Once.found.clear()
                for way, classifier in ways(Once(model)).items():
                    p = clone(classifier).fit(parts[0], parts[2]).predict_proba(parts[1])
                    rows.append({"data": data, "seed": seed, "model": name, "way": way, "nll": nll(p, parts[3])})
    return rows


def main():
    """Print the table, or with ``--json`` all numbers."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of temperatures at an edge, and of linear SVMs
        rows = run(arguments.seeds)
    if arguments.json:
        print(json.dumps(rows))
        return
    names = list(dict.fromkeys(row["way"] for row in rows))
    print("| classifier |", " | ".join(names), "|")
    print("|---" * (len(names) + 1) + "|")
    for model in MODELS:
        means = [np.mean([r["nll"] for r in rows if r["model"] == model and r["way"] == way]) for way in names]
        print(f"| {model} |", " | ".join(f"{mean:.3f}" for mean in means), "|")


if __name__ == "__main__":
    main()
