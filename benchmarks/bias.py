"""How far calibration errors lie above the true one, for networks whose calibration is known.

    python benchmarks/bias.py             # ECE with 15 bins, n_bins="auto", and the smooth ECE
    python benchmarks/bias.py --parts     # noise that isotonic regression fits, and coverage of the parts of scores
    python benchmarks/bias.py --held-out  # coverage on networks that no constant of these intervals was chosen on

Confidences are drawn from a law, and labels with a known probability of being right; so the true error is known.
"sweep" is the monotonic sweep of Roelofs et al. (2022): as many bins as leave the accuracy rising.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.special import expit, logit, xlogy

from attemper import TemperatureScaling, datasets
from attemper.metrics import ece, reliability, smooth_ece
from attemper.metrics.bootstrap import Statistic, estimate_all
from attemper.metrics.decomposition import CHOICE, decomposition_statistics
from attemper.metrics.decomposition import _problems as problems_of
from attemper.metrics.predictions import Predictions

Law = Callable[[np.random.Generator, int], np.ndarray]


def tempered(mean: float, spread: float, t: float) -> tuple[Law, Callable[[np.ndarray], np.ndarray]]:
    """Confidences whose log-odds have to be divided by t."""
    return (
        lambda rng, n: expit(np.abs(rng.normal(mean, spread, n))),
        lambda c: expit(logit(np.clip(c, 1e-9, 1 - 1e-9)) / t),
    )


NETWORKS = {
    "calibrated, sharp": (lambda rng, n: rng.beta(8, 1, n).clip(0.5, 1), lambda c: c),
    "calibrated, broad": (lambda rng, n: rng.uniform(0.5, 1, n), lambda c: c),
    "over-confident, T = 2": tempered(2, 2, 2.0),
    "over-confident, T = 1.3": tempered(2, 2, 1.3),
    "under-confident, T = 0.6": tempered(1, 1, 0.6),
    "not monotone": (
        lambda rng, n: rng.uniform(0.5, 1, n),
        lambda c: np.clip(c + 0.08 * np.sin(25 * c), 0, 1),
    ),
}
HELD_OUT = (
    "resnet200-skin-lesionsplit-s0",
    "lenet5-fashion_mnist-s0",
    "densenet40-cifar10-s0",
    "vgg16-cifar100-s1",
)
MEASURES = {
    "15 uniform": lambda y, p: ece(y, p),
    "15 quantile": lambda y, p: ece(y, p, strategy="quantile"),
    "auto uniform": lambda y, p: ece(y, p, n_bins="auto"),
    "auto quantile": lambda y, p: ece(y, p, n_bins="auto", strategy="quantile"),
    "sweep": lambda y, p: ece(y, p, n_bins=sweep(y, p), strategy="quantile"),
    "smooth": lambda y, p: smooth_ece(y, p),
}


def sweep(y: np.ndarray, p: np.ndarray) -> int:
    """Count the bins of equal mass up to which the accuracy rises from bin to bin."""
    for n_bins in range(2, 1000):
        found = reliability(y, p, n_bins=n_bins, strategy="quantile").accuracy
        if (np.diff(found[~np.isnan(found)]) < 0).any():
            return n_bins - 1
    return 1000


def main() -> None:
    """Print bias and root mean square error of each measure."""
    print(f"| classifier | samples | true error | {' | '.join(MEASURES)} |\n" + "|---" * (len(MEASURES) + 3) + "|")
    for name, (law, accuracy) in NETWORKS.items():
        rng = np.random.default_rng(0)
        many = law(rng, 400_000)
        true = np.abs(many - accuracy(many)).mean()
        for n in (200, 1000, 5000, 20_000):
            found = []
            for _ in range(40 if n < 20_000 else 10):
                c = law(rng, n)
                y = (rng.random(n) >= accuracy(c)).astype(int)  # class 0 is predicted
                found.append([measure(y, np.column_stack([c, 1 - c])) - true for measure in MEASURES.values()])
            bias, error = np.mean(found, axis=0), np.sqrt(np.mean(np.square(found), axis=0))
            cells = " | ".join(f"{b:+.4f} ({e:.4f})" for b, e in zip(bias, error))
            print(f"| {name} | {n} | {true:.3f} | {cells} |", flush=True)


def parts(repeats: int = 200) -> None:
    """Print the noise that is fitted, in units of that of the means of the blocks, and how often intervals hold."""
    print(f"{'':40}noise   miscalibration, true and mean   held: miscalibration, discrimination, uncertainty")
    for name, (law, accuracy) in NETWORKS.items():
        for n in (200, 1000, 5000):
            for score in ("brier", "log"):
                rng = np.random.default_rng(1)
                many = law(rng, 400_000)
                right = accuracy(many)
                truth = true_parts(many, right, score)
                held, fitted, noise, found = np.zeros(3), [], [], []
                for _ in range(repeats):
                    c = law(rng, n)
                    y = (rng.random(n) >= accuracy(c)).astype(int)
                    p = Predictions.of(y, np.column_stack([c, 1 - c]))
                    statistics = decomposition_statistics(p, score, "top")
                    each = [statistics[part] for part in ("miscalibration", "discrimination", "uncertainty")]
                    estimates = [s.limits(s.at(p.weights), p.weights, 0.95) for s in each]
                    held += [e.low <= t <= e.high for e, t in zip(estimates, truth)]
                    found.append(estimates[0].value)
                    [problem] = problems_of(p, score, "top")
                    recalibrated, _, of_fit, _ = problem.parts(p.weights)
                    noise.append(of_fit.bias / CHOICE)
                    fitted.append(score_of(accuracy(c), y == 0, score) - recalibrated.mean())
                cells = " ".join(f"{share:.2f}" for share in held / repeats)
                ratio = np.mean(fitted) / np.mean(noise)
                values = f"{ratio:6.2f}   {truth[0]:.5f} {np.mean(found):.5f}"
                print(f"{name:26}{n:6} {score:6}{values}   {cells}", flush=True)


def held_out(repeats: int = 50) -> None:
    """Print how often intervals hold on networks that no constant was chosen on; the test set is the population."""
    total: dict[str, np.ndarray] = defaultdict(lambda: np.zeros(2, dtype=int))
    for name in HELD_OUT:
        data = datasets.load(name)
        t = TemperatureScaling().fit(data.val_logits, data.val_labels).temperature_
        for beta in (1.0, 1 / t):
            truth = {k: s.at(np.ones(len(data.test_labels))) for k, s in measured(data, beta, slice(None)).items()}
            for n in (500, 2000):
                rng, found = np.random.default_rng(5), defaultdict(lambda: np.zeros(2, dtype=int))
                for _ in range(repeats):
                    rows = rng.integers(len(data.test_labels), size=n)
                    estimates = estimate_all(measured(data, beta, rows), np.ones(n), 0.95, 100, 0)
                    for k, e in estimates.items():
                        held = e.low - 1e-12 <= truth[k] <= e.high + 1e-12
                        found[k] += [e.has_interval, e.has_interval and held]
                print(
                    f"{name}, T = {1 / beta:.2f}, n = {n}:", {k: f"{h}/{m}" for k, (m, h) in found.items()}, flush=True
                )
                for k, count in found.items():
                    total[k] += count
    print({k: f"{h}/{m} = {h / m:.1%}" for k, (m, h) in total.items()})


def measured(data: Any, beta: float, rows: Any) -> dict[str, Statistic]:
    """Return the parts of scores and the smooth ECE of some test samples."""
    p = Predictions.of(data.test_labels[rows], beta * data.test_logits[rows].astype(float), input="logits")
    found = {"smooth ECE": smooth_ece.statistic(p)}
    for score, kind in (("brier", "classwise"), ("brier", "top"), ("log", "top")):
        statistics = decomposition_statistics(p, score, kind)
        found |= {f"{part}, {score}, {kind}": s for part, s in statistics.items() if part != "score"}
    return {name: statistic._replace(drawn=None) for name, statistic in found.items()}


def score_of(q: np.ndarray, right: np.ndarray, score: str) -> float:
    """Return the mean score of probabilities."""
    of_it = np.where(right, q, 1 - q)
    return float(np.mean((1 - of_it) ** 2 if score == "brier" else -np.log(of_it)))


def true_parts(c: np.ndarray, a: np.ndarray, score: str) -> tuple[float, float, float]:
    """Return the parts of the score of confidences c that are right with probability a."""
    b = a.mean()
    if score == "brier":
        return float(np.mean((c - a) ** 2)), float(np.mean((a - b) ** 2)), float(b * (1 - b))
    distances = (np.mean(xlogy(a, a / q) + xlogy(1 - a, (1 - a) / (1 - q))) for q in (c, b))
    return *map(float, distances), float(-xlogy(b, b) - xlogy(1 - b, 1 - b))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", action="store_true")
    parser.add_argument("--held-out", action="store_true")
    options = parser.parse_args()
    parts() if options.parts else held_out() if options.held_out else main()
