"""Many labels: the pooled fit beside a common curve, Platt scaling of each label, scikit-learn's, and no calibration.

    python benchmarks/multilabel.py                 # simulated labels, known truth
    python benchmarks/multilabel.py --constants     # other priors of how labels differ
    python benchmarks/multilabel.py --real          # networks of data/, each class a label; scikit-learn's own data

Simulated: labels with 5, 20, 100 and 1000 expected positives among 4000 validation samples. A figure is what a method
loses: its NLL on new samples minus that of the true probabilities, times the size of the validation set (nats). A
curve of two parameters that is fitted by maximum likelihood loses about 1. Real: NLL on test samples, for each entry.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable, Iterator

import numpy as np
from scipy.optimize import brentq
from scipy.special import expit
from sklearn.calibration import _SigmoidCalibration
from sklearn.datasets import make_multilabel_classification
from sklearn.linear_model import LogisticRegression
from sklearn.multiclass import OneVsRestClassifier

from attemper import MultiLabelCalibrator, datasets
from attemper.calibrators import multilabel
from attemper.kernels import pooled
from attemper.maps.odds import log_odds
from sets import table

COUNTS = (5, 20, 100, 1000)
N, N_TEST = 4000, 4000
# Means of log-slope and bias, and how much labels differ in them.
SETTINGS = {
    "calibrated": (0.0, 0.0, 0.0, 0.0),
    "all alike": (-0.6, 0.5, 0.0, 0.0),
    "slopes differ": (-0.4, 0.0, 0.3, 0.05),
    "biases differ": (0.0, -0.5, 0.03, 0.8),
    "both differ": (-0.4, 0.3, 0.2, 0.5),
    "both differ much": (-0.4, 0.3, 0.4, 1.0),
}
NODES, WEIGHTS = np.polynomial.hermite_e.hermegauss(61)
Method = Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]  # scores, labels, new scores: new log-odds


def no_calibration(s: np.ndarray, y: np.ndarray, new: np.ndarray) -> np.ndarray:
    return new


def pooled_fit(s: np.ndarray, y: np.ndarray, new: np.ndarray) -> np.ndarray:
    found = MultiLabelCalibrator().fit(s, y).map_
    return found.a * new + found.c


def platt(s: np.ndarray, y: np.ndarray, new: np.ndarray) -> np.ndarray:
    found = MultiLabelCalibrator(method="platt").fit(s, y).map_
    return found.a * new + found.c


def sklearn_sigmoid(s: np.ndarray, y: np.ndarray, new: np.ndarray) -> np.ndarray:
    """Fit what CalibratedClassifierCV(method="sigmoid") does to the scores of a fitted classifier."""
    z = new.copy()
    for k in np.flatnonzero(y.min(axis=0) < y.max(axis=0)):
        own = _SigmoidCalibration().fit(s[:, k], y[:, k])
        z[:, k] = -(own.a_ * new[:, k] + own.b_)
    return z


def logistic(s: np.ndarray, y: np.ndarray, new: np.ndarray) -> np.ndarray:
    """scikit-learn's LogisticRegression with its default penalty, label by label."""
    z = new.copy()
    for k in np.flatnonzero(y.min(axis=0) < y.max(axis=0)):
        z[:, k] = LogisticRegression().fit(s[:, [k]], y[:, k]).decision_function(new[:, [k]])
    return z


def common(s: np.ndarray, y: np.ndarray, new: np.ndarray) -> np.ndarray:
    one = LogisticRegression(C=np.inf).fit(s.reshape(-1, 1), y.ravel())
    return new * one.coef_[0, 0] + one.intercept_[0]


METHODS: dict[str, Method] = {
    "no calibration": no_calibration,
    "one common curve": common,
    "Platt scaling of each": platt,
    "scikit-learn's sigmoid of each": sklearn_sigmoid,
    "scikit-learn's LogisticRegression of each": logistic,
    "**pooled**": pooled_fit,
}


def draw(rng: np.random.Generator, setting: str, each: int) -> tuple[np.ndarray, ...]:
    """Scores, labels, true log-odds and expected positives of ``each`` labels of every count."""
    alpha, bias, alpha_spread, bias_spread = SETTINGS[setting]
    counts = np.repeat(COUNTS, each)
    centre = [brentq(lambda c, n=n: WEIGHTS @ expit(c + 2 * NODES) / WEIGHTS.sum() - n / N, -30, 30) for n in counts]
    truth = np.array(centre) + 2 * rng.normal(size=(N + N_TEST, len(counts)))
    slope = np.exp(alpha + alpha_spread * rng.normal(size=len(counts)))
    scores = (truth - bias - bias_spread * rng.normal(size=len(counts))) / slope
    return scores, (rng.random(truth.shape) < expit(truth)).astype(float), truth, counts


def loss(truth: np.ndarray, z: np.ndarray) -> np.ndarray:
    """Mean excess NLL of each label over the true probabilities."""
    p = expit(truth)
    excess = p * (np.logaddexp(0, -z) - np.logaddexp(0, -truth))
    return np.asarray((excess + (1 - p) * (np.logaddexp(0, z) - np.logaddexp(0, truth))).mean(axis=0))


def simulated(methods: dict[str, Method], draws: int, each: int) -> None:
    print(f"\n{4 * each} labels, {draws} draws; nats that a validation set of {N} samples loses, for each label")
    rows_of_table = []
    for setting in SETTINGS:
        found: dict[str, list[list[float]]] = {name: [] for name in methods}
        for seed in range(draws):
            s, y, truth, counts = draw(np.random.default_rng(seed), setting, each)
            for name, method in methods.items():
                excess = N * loss(truth[N:], method(s[:N], y[:N], s[N:]))
                found[name].append([float(excess[counts == n].mean()) for n in COUNTS])
        for name, rows in found.items():
            means, worst = np.mean(rows, axis=0), np.max(rows)
            rows_of_table.append([setting, name, *(f"{m:.2f}" for m in means), f"{worst:.1f}"])
    table(["labels", "method", *(f"{n} positives" for n in COUNTS), "worst group"], rows_of_table)


def priors() -> Iterator[tuple[str, pooled.Expected]]:
    """Other expectations of how labels differ: variances of log-slope and bias, and how many labels they count as."""
    for slope, bias, worth in [(0.01, 0.05, 3.0), (0.02, 0.1, 1.0), (0.02, 0.1, 2.0), (0.04, 0.35, 2.0)]:
        name = f"{slope}, {bias}, {worth:g}"
        yield name, multilabel.EXPECTED._replace(covariance=np.diag([slope, bias]), worth=worth)


def with_prior(expected: pooled.Expected) -> Method:
    def method(s: np.ndarray, y: np.ndarray, new: np.ndarray) -> np.ndarray:
        multilabel.EXPECTED = expected
        return pooled_fit(s, y, new)

    return method


def nll(y: np.ndarray, z: np.ndarray) -> float:
    return float((y * np.logaddexp(0, -z) + (1 - y) * np.logaddexp(0, z)).mean())


def real(methods: dict[str, Method]) -> None:
    print("\nNLL of an entry on test samples")
    rows = [
        [name, *(f"{nll(truth, method(s, y, new)):.5f}" for method in methods.values())]
        for name, (s, y, new, truth) in real_data()
    ]
    table(["scores", *methods], rows)


def one_hot(h: np.ndarray, labels: np.ndarray) -> np.ndarray:
    return np.eye(h.shape[1])[labels]


def real_data() -> Iterator[tuple[str, tuple[np.ndarray, ...]]]:
    for name in (
        "lenet5-fashion_mnist-s0",
        "vgg16-cifar10-s0",
        "resnet110-cifar100-s0",
        "resnet200-skin-lesionsplit-s0",
    ):
        data = datasets.load(name)
        for rows in (300, len(data.val_labels)):
            some = np.random.default_rng(0).permutation(len(data.val_labels))[:rows]  # files may be sorted by class
            pairs = ((data.val_logits[some], data.val_labels[some]), (data.test_logits, data.test_labels))
            halves = [part for h, labels in pairs for part in (log_odds(h.astype(np.float64), np), one_hot(h, labels))]
            yield f"{name}, {rows}", tuple(halves)
    for n_labels, size in ((10, 400), (10, 4000), (30, 1000)):
        x, y = make_multilabel_classification(
            n_samples=size + 8000, n_classes=n_labels, n_labels=max(2, n_labels // 8), n_features=40, random_state=0
        )
        train = slice(size, size + 2000)
        some = np.flatnonzero(y[train].any(axis=0))
        model = OneVsRestClassifier(LogisticRegression(C=1e4, max_iter=3000)).fit(x[train], y[train][:, some])
        s = model.decision_function(x)
        y = y[:, some].astype(float)
        yield f"make_multilabel, {n_labels} labels, {size}", (s[:size], y[:size], s[size + 2000 :], y[size + 2000 :])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--constants", action="store_true")
    parser.add_argument("--real", action="store_true")
    parser.add_argument("--draws", type=int, default=40)
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    if given.real:
        real(METHODS)
        return
    methods = METHODS if not given.constants else {name: with_prior(expected) for name, expected in priors()}
    for each in (1, 5):
        simulated(methods, given.draws, each)


if __name__ == "__main__":
    main()
