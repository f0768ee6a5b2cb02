"""A scikit-learn pipeline that is calibrated: cross-validated, kept with joblib, scored.

python examples/serving/sklearn_pipeline/pipeline.py digits.joblib
"""

from __future__ import annotations

import sys
from pathlib import Path

import joblib
from sklearn.datasets import load_digits
from sklearn.metrics import log_loss
from sklearn.model_selection import cross_validate, train_test_split
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC

from attemper import CalibratedClassifier


def make_pipeline() -> Pipeline:
    """Scale, classify, calibrate. A linear SVM has no probabilities of its own; calibration gives it some."""
    svm = LinearSVC(C=0.1, random_state=0)
    return Pipeline([("scale", StandardScaler()), ("classify", CalibratedClassifier(svm, method="bayes", cv=3))])


def main(path: Path) -> dict[str, float]:
    """Judge the pipeline by folds, fit it, keep it, and score what is read back."""
    X, y = load_digits(return_X_y=True)
    X_train, X_test, y_train, y_test = train_test_split(X, y, test_size=0.3, random_state=0)
    folds = cross_validate(make_pipeline(), X_train, y_train, cv=3, scoring=["accuracy", "neg_log_loss"])
    joblib.dump(make_pipeline().fit(X_train, y_train), path)

    served = joblib.load(path)  # a pickle: load only what you wrote yourself
    return {
        "accuracy in folds": float(folds["test_accuracy"].mean()),
        "NLL in folds": float(-folds["test_neg_log_loss"].mean()),
        "accuracy": float(served.score(X_test, y_test)),
        "NLL": float(log_loss(y_test, served.predict_proba(X_test))),
    }


if __name__ == "__main__":
    for name, value in main(Path(sys.argv[1] if len(sys.argv) > 1 else "digits.joblib")).items():
        print(f"{name:18} {value:.4f}")
