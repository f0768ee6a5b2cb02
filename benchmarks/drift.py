"""How often the drift test raises a false alarm, and how soon a true one.

    python benchmarks/drift.py [--streams 2000] [--length 10000] [--delays 500] [--tolerance 1.1] [--seed 0]
    python benchmarks/drift.py --real
    python benchmarks/drift.py --fitted

With --real: the true test labels of all networks in data/, watched with temperatures fitted on all validation labels
and on 200 of them; and labels of which some are wrong.

With --fitted: no drift, but the map is fitted on 50, 200, 800 labels; each case several times; 5 % of the right
predictions lost to the second class; and the conformal test of new data against a reference set.

Rows are drawn from the test logits of networks in data/, with the temperature that fits their validation set (so
confidences are those of a deployed, calibrated network), and labels from what the map says (no drift), or from that at
a temperature that is a factor higher or lower (drift). The ratios of the test are looked up in a table of the rows, so
that thousands of streams run in minutes; `checked` shows that `DriftTest` itself gives the same wealth.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import time
import warnings
from concurrent.futures import ProcessPoolExecutor

import numpy as np
from scipy.special import log_softmax, logsumexp

from attemper import BayesianTemperatureScaling, TemperatureScaling, datasets
from attemper.drift import DriftTest, ExchangeabilityTest
from attemper.errors import InputError
from attemper.kernels.drift import Wager, advance, log_ratios

ROWS = 2000  # of each network
LOOK = 1000  # samples between looks at whether a stream has ended


def networks():
    """Name, and log-probabilities of the deployed map."""
    for name in ("resnet200-skin-lesionsplit-s0", "vgg16-cifar10-s0", "vgg16-cifar100-s0"):
        data = datasets.load(name)
        t = TemperatureScaling().fit(data.val_logits, data.val_labels).temperature_
        log_p = log_softmax(data.test_logits[:ROWS].astype(np.float64) / t, axis=1)
        if "skin" in name:
            melanoma = data.class_names.index("mel")
            others = logsumexp(np.delete(log_p, melanoma, axis=1), axis=1)
            yield "resnet200-skin, melanoma or not (K = 2)", np.stack([others, log_p[:, melanoma]], axis=1)
        else:
            yield f"{name.removesuffix('-s0')} (K = {log_p.shape[1]})", log_p


def mnist():
    """Return a very accurate network, whose few labels hold no error."""
    data = datasets.load("lenet5-mnist-s0")
    t = TemperatureScaling().fit(data.val_logits, data.val_labels).temperature_
    return "lenet5-mnist (K = 10)", log_softmax(data.test_logits[:ROWS].astype(np.float64) / t, axis=1)


class Streams:
    """Streams of one network: rows drawn at random, labels drawn from a factor of the temperature."""

    def __init__(self, log_p, tolerance, rng):
        self.log_p, self.tolerance, self.rng = log_p, tolerance, rng
        n, k = log_p.shape
        self.table = np.stack([log_ratios(log_p, np.full(n, c), tolerance) for c in range(k)], axis=1)
        self.cdf = {}

    def labels(self, rows, factor):
        if factor not in self.cdf:
            cdf = np.cumsum(np.exp(log_softmax(self.log_p / factor, axis=1)), axis=1)
            self.cdf[factor] = (np.arange(len(cdf))[:, None] + cdf / cdf[:, -1:]).ravel()
        k = self.log_p.shape[1]
        return np.searchsorted(self.cdf[factor], rows + self.rng.random(len(rows))) - rows * k

    def alarm(self, length, alpha, change=None, factor=1.0, before=1.0, wrong=0.0):
        """Sample at which a stream raises the alarm; None: not within its length."""
        wager = Wager.new()
        while wager.t < length:
            rows = self.rng.integers(len(self.log_p), size=min(LOOK, length - wager.t))
            y = self.labels(rows, before)
            if change is not None:
                y = np.where(wager.t + np.arange(len(rows)) >= change, self.labels(rows, factor), y)
            if wrong:
                noise = self.rng.random(len(rows)) < wrong
                y = np.where(noise, self.rng.integers(self.log_p.shape[1], size=len(rows)), y)
            start = wager.t
            wager, wealth = advance(wager, self.table[rows, y])
            crossed = np.flatnonzero(wealth >= -np.log(alpha))
            if crossed.size:
                return start + int(crossed[0]) + 1
        return None

    def checked(self):
        """Compare the table's wealth with that of `DriftTest`."""
        rows = self.rng.integers(len(self.log_p), size=500)
        y = self.labels(rows, 1.3)
        wealth = advance(Wager.new(), self.table[rows, y])[1]
        test = DriftTest(1.0, tolerance=self.tolerance).update(self.log_p[rows], y)
        assert abs(test.log_e_value - wealth[-1]) < 1e-8


def real(told):
    print("Alarms with the true labels of the test set\n")
    print("| T fitted on | tolerance | alarms | T off by more than the tolerance |\n|---|---|---|---|")
    everything = [datasets.load(name) for name in datasets.names()]
    best = [TemperatureScaling().fit(d.test_logits, d.test_labels).temperature_ for d in everything]
    for few in (None, 200):
        maps = [TemperatureScaling().fit(d.val_logits[:few], d.val_labels[:few]) for d in everything]
        for tolerance in (1.0, 1.1, 1.2, 1.3):
            tests = [
                DriftTest(m, alpha=told.alpha, tolerance=tolerance).update(d.test_logits, d.test_labels)
                for m, d in zip(maps, everything)
            ]
            off = sum(abs(np.log(m.temperature_ / t)) > np.log(tolerance) for m, t in zip(maps, best))
            amount = "all validation labels" if few is None else f"{few} of them"
            print(f"| {amount} | {tolerance:g} | {sum(t.alarm for t in tests)} of {len(tests)} | {off} |", flush=True)
    print(f"\nNo drift, but some labels are replaced at random: 200 streams of {told.length} samples\n")
    print("| network | replaced | ever an alarm | median sample |\n|---|---|---|---|")
    for name, log_p in networks():
        streams = Streams(log_p, told.tolerance, np.random.default_rng(told.seed))
        for wrong in (0.005, 0.01, 0.02, 0.05):
            at = [streams.alarm(told.length, told.alpha, wrong=wrong) for _ in range(200)]
            found = [a for a in at if a is not None]
            median = f"{np.median(found):.0f}" if len(found) > 100 else ""
            print(f"| {name} | {wrong:.1%} | {len(found) / 200:.1%} | {median} |", flush=True)


def draw(log_p, rows, factor, rng):
    return (log_p[rows] / factor + rng.gumbel(size=(len(rows), log_p.shape[1]))).argmax(axis=1)


def fitted(told, streams=100, length=3000):
    """Print what a fitted temperature, copies of cases, and a tolerance do; every network one by one."""
    rng = np.random.default_rng(told.seed)
    print(
        f"No drift, map fitted on n labels: share of {streams} streams of {length} with an alarm, asked tolerance 1.1\n"
    )
    print("| network | n | ts as exact | ts | ts refused | bayes as exact | bayes | bayes refused |\n|" + "---|" * 8)
    for name, log_p in (mnist(), *networks()):
        for n in (50, 200, 800):
            alarms = np.zeros(6)
            for _ in range(streams):
                rows = rng.integers(len(log_p), size=n + length)
                h, y = log_p[rows], draw(log_p, rows, 1.0, rng)
                found = []
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    for calibrator in (TemperatureScaling(), BayesianTemperatureScaling()):
                        calibrator.fit(h[:n], y[:n])
                        found.append(DriftTest(calibrator.map_, alpha=told.alpha).update(h[n:], y[n:]).alarm)
                        try:
                            found += [DriftTest(calibrator, alpha=told.alpha).update(h[n:], y[n:]).alarm, False]
                        except InputError:  # T is not known
                            found += [False, True]
                alarms += found
            shown = " | ".join(f"{share:.0%}" for share in alarms / streams)
            print(f"| {name} | {n} | {shown} |", flush=True)
    print(f"\nNo drift, T exact, each case m times in a row: share of {streams} streams with an alarm, tolerance 1\n")
    print("| network | m | rows as news | with clusters |\n|---|---|---|---|")
    for name, log_p in networks():
        for m in (1, 2, 3):
            alarms = np.zeros(2)
            for _ in range(streams):
                cases = rng.integers(len(log_p), size=length // m)
                rows = np.repeat(cases, m)
                h, y = log_p[rows], np.repeat(draw(log_p, cases, 1.0, rng), m)
                ids = np.repeat(np.arange(len(cases)), m)
                alarms[0] += DriftTest(1.0, alpha=told.alpha, tolerance=1.0).update(h, y).alarm
                alarms[1] += DriftTest(1.0, alpha=told.alpha, tolerance=1.0).update(h, y, clusters=ids).alarm
            print(f"| {name} | {m} | {alarms[0] / streams:.0%} | {alarms[1] / streams:.0%} |", flush=True)
    print("\nDelay in samples after 1000 without drift (median of 40 streams; -: not within 8000), reference of 1000\n")
    print("| network | change | tolerance 1 | tolerance 1.1 | conformal |\n|---|---|---|---|---|")
    for name, log_p in networks():
        for label in ("T × 1.5", "T / 1.5", "5 % of right predictions become the second class"):
            delays = []
            for _ in range(40):
                rows = rng.integers(len(log_p), size=10_000)
                h, y = log_p[rows], draw(log_p, rows, 1.0, rng)
                if label.startswith("T"):
                    y[2000:] = draw(log_p, rows, 1.5 if "×" in label else 1 / 1.5, rng)[2000:]
                else:
                    lost = (y == h.argmax(axis=1)) & (rng.random(len(y)) < 0.05) & (np.arange(len(y)) >= 2000)
                    y = np.where(lost, np.argsort(h, axis=1)[:, -2], y)
                tests = [
                    DriftTest(1.0, alpha=told.alpha, tolerance=1.0),
                    DriftTest(1.0, alpha=told.alpha),
                    ExchangeabilityTest(1.0, h[:1000], y[:1000], alpha=told.alpha),
                ]
                at = [test.update(h[1000:], y[1000:]).alarm_at for test in tests]
                delays.append([np.inf if a is None else a - 1000 for a in at])
            shown = [f"{d:.0f}" if np.isfinite(d) else "-" for d in np.quantile(delays, 0.5, axis=0, method="higher")]
            print(f"| {name} | {label} | {' | '.join(shown)} |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--streams", type=int, default=2000)
    parser.add_argument("--length", type=int, default=10_000)
    parser.add_argument("--delays", type=int, default=500, help="streams with drift, for each row")
    parser.add_argument("--tolerance", type=float, default=1.1)
    parser.add_argument("--alpha", type=float, default=0.05)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--real", action="store_true")
    parser.add_argument("--fitted", action="store_true")
    told = parser.parse_args()
    if told.real:
        real(told)
        return
    if told.fitted:
        fitted(told)
        return
    begun = time.perf_counter()
    with ProcessPoolExecutor(told.workers) as pool:
        false_alarms(told, pool)
        delays(told, pool)
    print(f"{time.perf_counter() - begun:.0f} s", file=sys.stderr)


def at_alarm(job):
    """Return where each of many streams of one network raises the alarm; inf: nowhere."""
    network, tolerance, count, seed, length, alpha, how = job
    streams = Streams(list(networks())[network][1], tolerance, np.random.default_rng(seed))
    streams.checked()
    found = [streams.alarm(length, alpha, **how) for _ in range(count)]
    return np.array([np.inf if at is None else at for at in found])


def false_alarms(told, pool):
    print(f"False alarms, ever, in {told.streams} streams of {told.length} samples; alpha {told.alpha:g}\n")
    cases = [(told.tolerance, 1.0), (told.tolerance, told.tolerance), (told.tolerance, 1 / told.tolerance), (1.0, 1.0)]
    heads = [f"tolerance {t:g}, labels drawn at {factor:.3g} T" for t, factor in cases]
    print(f"| network | {' | '.join(heads)} |\n|---{'|---' * len(cases)}|")
    for i, (name, _) in enumerate(networks()):
        jobs = [
            (i, tolerance, told.streams, [told.seed, j], told.length, told.alpha, {"before": factor})
            for j, (tolerance, factor) in enumerate(cases)
        ]
        shares = [np.isfinite(at).mean() for at in pool.map(at_alarm, jobs)]
        print(f"| {name} | {' | '.join(f'{share:.2%}' for share in shares)} |", flush=True)


def delays(told, pool):
    print(f"\nDelay in samples, {told.delays} streams for each row, at most {told.length} after the change\n")
    heads = [f"tolerance {t:g}: {what}" for t in (told.tolerance, 1) for what in ("median", "90 %")]
    print(f"| network | T changes by | after samples | {' | '.join(heads)} |\n|---|---|---|---|---|---|---|")
    for i, (name, _) in enumerate(networks()):
        for (factor, label), change in itertools.product(((1.5, "1.5"), (1 / 1.5, "1/1.5")), (0, 1000, 5000)):
            jobs = [
                (i, tolerance, told.delays, [told.seed + 1, change], change + told.length, told.alpha,
                 {"change": change, "factor": factor})
                for tolerance in (told.tolerance, 1.0)
            ]  # fmt: skip
            cells = []
            for at in pool.map(at_alarm, jobs):
                late = at[at > change] - change
                cells += [f"{q:.0f}" for q in np.quantile(late, [0.5, 0.9], method="higher")]
            print(f"| {name} | {label} | {change} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
