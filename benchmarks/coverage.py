"""How often the intervals that commands print hold the truth: docs/coverage.md.

    python benchmarks/coverage.py [--resamples 200] [--seed 0] [--output docs/coverage.md]

The test set of a network in data/ is taken for the population, so that every metric's true value is known; samples of
100 to 10 000 are drawn from it with replacement. For T labels are drawn from softmax(h/T), for the noise rate a
fifth of these is then drawn anew at random. Minutes of CPU time.
"""

# ruff: noqa: E501 (rows of Markdown tables)
from __future__ import annotations

import argparse
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np
from scipy.special import bdtr, log_softmax
from threadpoolctl import threadpool_limits

from attemper import BayesianTemperatureScaling, TemperatureScaling, datasets
from attemper.metrics import accuracy, aurc, brier, ece, mmce, nll, referral_area, referral_area_difference, smooth_ece
from attemper.metrics.bootstrap import estimate_all
from attemper.metrics.decomposition import decomposition_statistics
from attemper.metrics.intervals import around_share, proportion, too_few
from attemper.metrics.predictions import Predictions
from attemper.metrics.proper import mean_of, share_of
from attemper.metrics.risk import cost_of

NETWORKS = {
    "lenet5-mnist-s0": "LeNet-5, MNIST",
    "vgg16-cifar10-s0": "VGG-16, CIFAR-10",
    "resnet110-cifar100-s0": "ResNet-110, CIFAR-100",
}
# Those between have about 30 expected errors.
SIZES = {
    "lenet5-mnist-s0": (100, 1000, 5000, 10_000),
    "vgg16-cifar10-s0": (100, 500, 1000, 10_000),
    "resnet110-cifar100-s0": (100, 1000, 10_000),
}
LEVEL = 0.95
THRESHOLD = 0.8  # of the referral shares and the cost
NOISE = 0.2
REPEATS = (1000, 600, 300)  # up to n = 100, up to 1000, above
RESAMPLED = (300, 200, 100)  # of these, with intervals that need resamples
FITS = (200, 100, 50)  # repeats of a Bayesian fit
LEAST = 0.1  # share of the draws with an interval below which the cell stays empty
TAIL = 0.005  # a cell below 93 is named where 95 % would hold as rarely with this chance at most

TITLES = {
    "accuracy": "accuracy (Wilson)",
    "nll": "NLL",
    "nll_gain": "difference of two NLLs",
    "brier": "Brier score",
    "ece": "ECE",
    "ece_quantile": "ECE, equal mass",
    "classwise_ece": "ECE, class-wise",
    "debiased": "ECE, squared and debiased",
    "mce": "MCE",
    "mmce": "MMCE",
    "smooth_ece": "smooth ECE",
    "miscalibration": "miscalibration (Brier)",
    "discrimination": "discrimination (Brier)",
    "uncertainty": "uncertainty (Brier)",
    "area": "referral area (AUC)",
    "area_paper": "referral area, the paper's thresholds",
    "area_gain": "difference of two referral areas",
    "aurc": "AURC",
    "cost": "cost a sample",
    "referred": "share referred (Wilson, `report`)",
    "caught": "share of errors caught (Wilson, `report`)",
    "missed": "error rate of the decided (Clopper–Pearson, `refer`)",
    "temperature": "T (`bayes`)",
    "temperature_noisy": "T, a fifth of the labels noise",
    "noise": "noise rate, a fifth of the labels noise",
}
FITTED = ("temperature", "temperature_noisy", "noise")


def statistics(log_p, y, resampled):
    """Return every metric that commands print, by its name; those that are resampled only if asked for."""
    p = Predictions.of(y, log_p, input="log_probs")
    refer = p.top[0] <= THRESHOLD
    found = {
        "accuracy": accuracy.statistic(p),
        "nll": nll.statistic(p),
        "brier": brier.statistic(p),
        "classwise_ece": ece.statistic(p, kind="classwise"),
        "debiased": ece.statistic(p, norm=2, debiased=True),
        "mce": ece.statistic(p, norm="max"),
        "aurc": aurc.statistic(p),
        "cost": cost_of(p, refer, 1, 10),
        "referred": share_of(refer.astype(float)),
    }
    if 0 < p.right.sum() < len(p):
        found |= {
            "area": referral_area.statistic(p),
            "area_paper": referral_area.statistic(p, thresholds="paper"),
        }
    if resampled:
        parts = decomposition_statistics(p, "brier", "classwise")
        found |= {name: part for name, part in parts.items() if name != "score"} | {
            "ece": ece.statistic(p),
            "ece_quantile": ece.statistic(p, strategy="quantile"),
            "mmce": mmce.statistic(p),
            "smooth_ece": smooth_ece.statistic(p),
        }
    return p, refer, {name: statistic._replace(drawn=None) for name, statistic in found.items()}


def measured(log_p, log_q, y, interval, resamples):
    """Return every metric, with its interval where one is wanted; ``log_q`` is what areas are compared with."""
    p, refer, found = statistics(log_p, y, interval is None or resamples > 0)
    rows = np.arange(len(y))
    found["nll_gain"] = mean_of(log_q[rows, y] - log_p[rows, y], too_few(p.errors))
    if interval is None:
        result = {name: statistic.at(p.weights) for name, statistic in found.items()}
    else:
        result = estimate_all(found, p.weights, interval, max(resamples, 2), 0)
    wrong = p.top[1] == 0
    if wrong.any() and not wrong.all():
        told = {"thresholds": "paper", "input": "log_probs", "confidence_level": interval}
        result["area_gain"] = referral_area_difference(y, log_p, log_q, **told)
    shares = {"caught": (refer[wrong], around_share), "missed": (wrong[~refer], None)}
    for name, (part, around) in shares.items():
        k, n = int(part.sum()), len(part)
        if n > 0 and interval is None:
            result[name] = k / n
        elif n > 0:
            result[name] = proportion(k, n, interval) if around is None else around(k / n, n, interval)
    return result


def covered(log_p, log_q, y, n, repeats, resampled, resamples, rng, counts):
    """Count draws, those with an interval, and those whose interval holds the truth."""
    truth = measured(log_p, log_q, y, None, resamples)
    for r in range(repeats):
        rows = rng.integers(len(y), size=n)
        found = measured(log_p[rows], log_q[rows], y[rows], LEVEL, resamples if r < resampled else 0)
        for name, value in found.items():
            holds = value.has_interval and value.low - 1e-9 <= truth[name] <= value.high + 1e-9
            counts[name] += np.array([1, value.has_interval, holds])


def fitted(h, t, n, repeats, rng, counts):
    """Count the same for Bayesian fits."""
    k = h.shape[1]
    for _ in range(repeats):
        rows = rng.integers(len(h), size=n)
        y = (h[rows] / t + rng.gumbel(size=(n, k))).argmax(axis=1)
        clean = BayesianTemperatureScaling().fit(h[rows], y)
        y = np.where(rng.random(n) < NOISE, rng.integers(k, size=n), y)
        noisy = BayesianTemperatureScaling(labels="noisy").fit(h[rows], y)
        for name, (low, high), truth in (
            ("temperature", clean.temperature_interval_, t),
            ("temperature_noisy", noisy.temperature_interval_, t),
            ("noise", noisy.noise_interval_, NOISE),
        ):
            counts[name] += np.array([1, 1, low <= truth <= high])


def cell(count):
    """Write the share of intervals that hold the truth, and in how many draws there is one, if not in all."""
    drawn, printed, held = count
    if printed < LEAST * max(drawn, 1):
        return "–"
    share = f"{100 * held / printed:.0f}"
    return share if printed == drawn else f"{share} (in {100 * printed / drawn:.0f} %)"


def named(found, block):
    """Write the cells below 93 that the error of their draws does not explain."""
    for (net, n), counts in found.items():
        for name, (drawn, printed, held) in counts.items():
            if printed >= LEAST * max(drawn, 1) and held < 0.93 * printed and bdtr(held, printed, LEVEL) < TAIL:
                yield f"- {TITLES[name]}, {NETWORKS[net]}{block}, n = {n}: {held} of {printed} intervals hold"


def table(found, names):
    """Write rows of intervals, columns of networks and sizes."""
    heads = [f"{title}, n = {n}" for net, title in NETWORKS.items() for n in SIZES[net]]
    lines = [f"| interval | {' | '.join(heads)} |", "|---" * (len(heads) + 1) + "|"]
    for name in names:
        cells = [cell(found[net, n][name]) for net in NETWORKS for n in SIZES[net]]
        lines.append(f"| {TITLES[name]} | {' | '.join(cells)} |")
    return "\n".join(lines)


def one(job):
    """Count for one network and one size; return its accuracy, the counts and the time."""
    name, n, told = job
    start, i = time.process_time(), (n > 100) + (n > 1000)
    data = datasets.load(name)
    h, y = data.test_logits.astype(np.float64), data.test_labels
    t = TemperatureScaling().fit(data.val_logits, data.val_labels).temperature_
    log_p = {"as given": log_softmax(h, axis=1), "calibrated": log_softmax(h / t, axis=1)}
    rng = np.random.default_rng((told.seed, list(NETWORKS).index(name), n))
    counts = {block: {title: np.zeros(3, dtype=int) for title in TITLES} for block in log_p}
    repeats = told.repeats[i], told.resampled[i], told.resamples
    with threadpool_limits(1):
        for block, other in (("as given", "calibrated"), ("calibrated", "as given")):
            covered(log_p[block], log_p[other], y, n, *repeats, rng, counts[block])
        fitted(h, t, n, told.fits[i], rng, counts["as given"])
    return float((h.argmax(axis=1) == y).mean()), counts, time.process_time() - start


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, nargs=3, default=REPEATS)
    parser.add_argument("--resampled", type=int, nargs=3, default=RESAMPLED)
    parser.add_argument("--fits", type=int, nargs=3, default=FITS)
    parser.add_argument("--resamples", type=int, default=200)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output")
    told = parser.parse_args()
    jobs = [(name, n, told) for name in NETWORKS for n in reversed(SIZES[name])]
    blocks, accuracy, seconds = {"as given": {}, "calibrated": {}}, {}, 0.0
    with ProcessPoolExecutor(told.workers) as pool:
        for (name, n, _), (share, found, took) in zip(jobs, pool.map(one, jobs)):
            accuracy[name] = share
            seconds += took
            print(f"{name} {n}: {took:.0f} s", flush=True)
            for block, counts in found.items():
                blocks[block][name, n] = counts
                print(f"  {block}", {k: f"{v[2] / v[1]:.3f} of {v[1]}" for k, v in counts.items() if v[1]}, flush=True)
    page = written(blocks, accuracy, told, seconds)
    if told.output:
        Path(told.output).write_text(page, encoding="utf-8")
    else:
        print(page)


def written(blocks, accuracy, told, seconds):
    """Write the page."""
    nets = ", ".join(f"{NETWORKS[name]} ({100 * share:.1f} % right)" for name, share in accuracy.items())
    repeats, resampled, fits = ("/".join(map(str, v)) for v in (told.repeats, told.resampled, told.fits))
    metrics = [name for name in TITLES if name not in FITTED]
    options = " ".join(sys.argv[1:])
    low = [*named(blocks["as given"], ""), *named(blocks["calibrated"], ", calibrated")]
    within = f"Cells below 93 are within the error of their draws (intervals with a true coverage of 95 % would hold this rarely in 1 of {1 / TAIL:.0f} cases or more)"
    exceptions = f"{within}, except these:\n\n" + "\n".join(low) if low else f"{within}."
    return f"""# Coverage of the intervals

How often does a 95 % interval that attemper prints contain the true value? The test set of a network in `data/` serves as the population,
so the true value is known, and n samples are drawn from it with replacement. The networks are {nets}.

The target is 93 to 98 %. If an interval would hold less often because there are too few errors, attemper prints the reason instead. Cells are percentages of the draws that
have an interval. "(in 62 %)" is the share of draws that have one, if not all do. "–" means that fewer than a tenth do, so none is
expected. The page is written by `python benchmarks/coverage.py {options}`: {repeats} draws for n up to 100/up to 1000/above, of which {resampled} for
ECE, equal-mass ECE, smooth ECE, MMCE and the parts of the Brier score, with {told.resamples} resamples each (the commands take 1000), and {fits} fits for T and the noise rate; seed {told.seed},
{seconds / 60:.0f} minutes of CPU time. A cell near 95 has a standard error of 22 points divided by the root of its number of
draws: 2 points with 100 draws, 3 with 50, 5 with 20.

{exceptions}

If only some of the draws have an interval, these are the draws with more errors than usual, and their intervals hold less often. That is
why the interval of the cost needs 20 errors of any kind, and one that is not referred. If it needed 20 or 50 errors that are not referred, it would be printed only for unlucky draws.

## Uncalibrated networks

{table(blocks["as given"], metrics)}

## Calibrated by temperature scaling

{table(blocks["calibrated"], metrics)}

The amount of noise that isotonic regression fits was found by simulation. Its uncertainty (15 %, and 40 % for discrimination) was chosen so that the intervals of the parts of the Brier score hold on these same networks.
Four other networks were not part of that choice (skin lesions, Fashion-MNIST, CIFAR-10, CIFAR-100; 500 and 2000 samples, uncalibrated and calibrated, 50 draws each). There the intervals of the parts of the Brier score held in 99.6 %, 95.6 % and 99.4 % of 700 draws (miscalibration, discrimination, uncertainty), and those of the predicted class
in 98.4 %, 96.5 % and 94.5 % of 800. Those of the log score held in 98.8 %, 98.0 % and 94.2 %, and those of the smooth ECE in 92.8 %
(`python benchmarks/bias.py --held-out`).

The area does not change with the temperature, except at the paper's thresholds. If the true calibration error is near 0, an interval that
starts at 0 always contains it, so shares near 100 % are expected: the interval cannot miss on that side.

## T and the noise rate

Labels are drawn from softmax(h/T), with the T fitted on the validation set. For the noise rate, a fifth of them is then replaced at random.
These are credible intervals: they hold on average over the prior, not for every T.

{table(blocks["as given"], FITTED)}

## Which interval is used

| value | interval | not printed |
|---|---|---|
| accuracy, shares of `report`, reliability bins | Wilson; with weights, of the effective number of samples (Kish) | |
| shares of `refer` | Clopper–Pearson, which holds at least as often as asked | |
| NLL, Brier score, AURC, difference of two NLLs | Student's, corrected for skewness (Hall 1992) | with fewer than 20 errors |
| cost (here a referral costs 1 and an error 10, whatever its class) | likewise | with fewer than 20 errors, or if all of them are referred |
| referral area | DeLong (1988) on the scale of log-odds | with fewer than 20 errors or 20 right predictions |
| difference of two areas | DeLong, corrected for skewness | with fewer than 80 errors or 20 right predictions |
| ECE (equal width, equal mass), smooth ECE, MMCE | bootstrap of the squared error, corrected for what noise adds | with fewer than 20 errors |
| ECE, squared and debiased | U-statistic, normal limits | with fewer than 20 errors |
| miscalibration, discrimination, uncertainty | Student's, corrected for skewness and for the noise that isotonic regression fits | with fewer than 20 errors, or 10 samples for each class |
| class-wise ECE | | always: many bins hold too few samples |
| MCE | | always: the bin with the fewest samples decides it |

With fewer than 20 errors, a mean depends mostly on the losses of the few errors that happen to be drawn, and neither bootstrap nor correction helps. At n = 100 the
MNIST network has no error at all in half of the draws; bootstrap percentiles contain the true NLL in 57 % of the draws, and the true AURC in 42 %.

Calibration errors are printed together with the error that perfect calibration would show by chance: the mean error if labels were drawn from the predicted
probabilities, and p, the share of such draws that reach the error. That test is exact for any number of samples and errors.

An interval in closed form also needs samples that differ: it is not printed if every sample has the same loss.

Weights enter through the effective number of samples (Kish), so their unit does not matter. There are two exceptions, in which a weight of 2
means including the sample twice: the squared and debiased ECE, and the shares of `refer`.

All of these intervals treat samples as independent. Several images of one patient make every interval too narrow; see [Several samples per patient](patients.md).
"""


if __name__ == "__main__":
    main()
