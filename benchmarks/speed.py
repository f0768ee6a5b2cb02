"""Speed (CPU time), memory and import time, beside the peers in one run; ratios, since machines are shared.

    make bench                                    # installs the peers into .venv-bench and runs this
    python benchmarks/speed.py [--repeats 15] [--only ratios]

Synthetic logits, labels drawn at T = 2.5. ``pass`` is one np.exp over the same logits in cache-sized chunks. The table
of ratios is printed twice: with one thread for each library (OMP_NUM_THREADS=1), and with as many as they like.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import subprocess
import sys
import time
import tracemalloc
import warnings

import numpy as np
from scipy.special import softmax
from sklearn.linear_model import LogisticRegression

from attemper import (
    AttendedTemperatureScaling,
    BayesianTemperatureScaling,
    IsotonicCalibration,
    ScaleMap,
    StructuredScaling,
    TemperatureScaling,
)
from attemper.metrics import ece
from peers import load

SIZES = [(2_000, 10), (10_000, 100), (10_000, 1000)]
AIM = {(2_000, 10): 3, (10_000, 100): 5, (10_000, 1000): 8}


def data(n, n_classes, dtype):
    rng = np.random.default_rng(0)
    h = 4 * rng.normal(size=(n, n_classes))
    y = (h / 2.5 + rng.gumbel(size=h.shape)).argmax(axis=1)
    return h.astype(dtype), y


def exp_pass(h):
    rows = max(1, (1 << 16) // h.shape[1])
    buffer = np.empty((rows, h.shape[1]), h.dtype)
    for start in range(0, len(h), rows):
        part = h[start : start + rows]
        np.exp(part, out=buffer[: len(part)])


def median(functions, repeats, budget=40.0):
    """Median CPU time of each function, taken in turns so that a busy moment hits all of them."""
    times = {name: [] for name in functions}
    start = time.perf_counter()
    for _ in range(repeats):
        for name, function in functions.items():
            t = time.process_time()
            function()
            times[name].append(time.process_time() - t)
        if time.perf_counter() - start > budget:
            break
    return {name: float(np.median(t)) for name, t in times.items()}


def peers(h, y):
    """Functions that fit and return T; a peer that is not installed is left out."""
    found = {}
    with contextlib.suppress(ImportError):
        from sklearn.calibration import _TemperatureScaling

        found["scikit-learn, inner class"] = lambda: 1 / float(_TemperatureScaling().fit(h, y).beta_)
    with contextlib.suppress(ImportError):
        torch, calibrators = load("torch"), load("probmetrics.calibrators")
        logits = load("probmetrics.distributions").CategoricalLogits

        def probmetrics():
            c = calibrators.TemperatureScalingCalibrator()
            c.fit_torch(logits(torch.as_tensor(h)), torch.as_tensor(y))
            return 1 / float(c.invtemp_)

        found["probmetrics, torch"] = probmetrics
    with contextlib.suppress(ImportError):
        scaling = load("netcal.scaling")

        def netcal():
            p = ScaleMap(1.0).apply(h)
            t = scaling.TemperatureScaling()
            with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
                t.fit(p, y)
            return 1 / float(np.ravel(t.temperature)[0])

        found["netcal (from probabilities)"] = netcal
    return found


def fits(repeats):
    print("## TemperatureScaling.fit\n")
    print("| N×K | type | attemper | passes | " + "fastest peer | ratio | aim | all peers: time, T |")
    print("|---|---|---|---|---|---|---|---|")
    for n, k in SIZES:
        for dtype in (np.float64, np.float32):
            h, y = data(n, k, dtype)
            others = peers(h, y)
            temperatures = {name: f() for name, f in others.items()}
            t = median(
                {
                    "attemper": lambda h=h, y=y: TemperatureScaling().fit(h, y),
                    "pass": lambda h=h: exp_pass(h),
                    **others,
                },
                repeats,
            )
            ours = TemperatureScaling().fit(h, y).temperature_
            fastest = min(
                (m for m in others if abs(temperatures[m] / ours - 1) < 0.01), key=t.get
            )  # of those that arrive
            rest = "; ".join(f"{m} {1e3 * t[m]:.1f} ms, {temperatures[m]:.6f}" for m in others)
            speed = f"{1e3 * t['attemper']:.2f} ms | {t['attemper'] / t['pass']:.1f}"
            ratio = f"{t[fastest] / t['attemper']:.1f} | {AIM[n, k]}"
            print(
                f"| {n}×{k} | {dtype.__name__} | {speed} | {fastest} | {ratio} | {rest}; attemper {ours:.6f} |",
                flush=True,
            )


def path(repeats):
    print("\n## The whole θ path of ATS (100 θ) and the Bayesian fit\n")
    print("| N×K | type | ATS path | passes | Bayesian | passes |\n|---|---|---|---|---|---|")
    for n, k in [(200, 100), *SIZES[:2]]:
        for dtype in (np.float64, np.float32):
            h, y = data(n, k, dtype)
            t = median(
                {
                    "ats": lambda h=h, y=y: AttendedTemperatureScaling().fit(h, y),
                    "bayes": lambda h=h, y=y: BayesianTemperatureScaling().fit(h, y),
                    "pass": lambda h=h: exp_pass(h),
                },
                repeats,
            )
            cells = " | ".join(f"{1e3 * t[m]:.1f} ms | {t[m] / t['pass']:.0f}" for m in ("ats", "bayes"))
            print(f"| {n}×{k} | {dtype.__name__} | {cells} |", flush=True)


def cost(functions, repeats, budget):
    """Least wall-clock and CPU time of each function, taken in turns: what other programs add is left out."""
    wall, cpu = (dict.fromkeys(functions, np.inf) for _ in range(2))
    start = time.perf_counter()
    for done in range(repeats):
        for name, function in functions.items():
            t, c = time.perf_counter(), time.process_time()
            function()
            wall[name] = min(wall[name], time.perf_counter() - t)
            cpu[name] = min(cpu[name], time.process_time() - c)
        if done and time.perf_counter() - start > budget:
            break
    return wall, cpu


class Softmax(LogisticRegression):
    """A classifier for scikit-learn that takes X for logits."""

    decision_function = property()  # predict_proba is asked, then

    def fit(self, X, y):
        self.classes_, self.n_features_in_ = np.arange(X.shape[1]), X.shape[1]
        return self

    def predict_proba(self, X):
        return softmax(X, axis=1)


def of_probmetrics(name, h, y):
    """Return a function that fits one of probmetrics' calibrators to logits."""
    calibrators, torch = load("probmetrics.calibrators"), load("torch")
    logits = load("probmetrics.distributions").CategoricalLogits(torch.as_tensor(h))
    labels = torch.as_tensor(y)

    def fit():
        with contextlib.redirect_stdout(io.StringIO()):
            calibrators.get_calibrator(name).fit_torch(logits, labels)

    return fit


def noisy(y, n_classes, share=0.2):
    rng = np.random.default_rng(1)
    wrong = rng.random(len(y)) < share
    return np.where(wrong, rng.integers(0, n_classes, len(y)), y)


def isotonic(h, y):
    from sklearn.calibration import CalibratedClassifierCV
    from sklearn.frozen import FrozenEstimator

    classifier = FrozenEstimator(Softmax().fit(h, y))
    return {
        "attemper": lambda: IsotonicCalibration().fit(h, y),
        "scikit-learn": lambda: CalibratedClassifierCV(classifier, method="isotonic", ensemble=False).fit(h, y),
    }


def errors(h, y):
    theirs, torch = load("torchmetrics.functional.classification"), load("torch")
    p = softmax(h, axis=1)
    probs, labels = torch.as_tensor(p), torch.as_tensor(y)
    return {
        "attemper": lambda: ece(y, p),
        "torchmetrics": lambda: theirs.multiclass_calibration_error(probs, labels, p.shape[1], n_bins=15),
    }


def temperature(h, y):
    return {"attemper": lambda: TemperatureScaling().fit(h, y), "probmetrics": of_probmetrics("temp-scaling", h, y)}


def bayesian(h, y):
    ours = BayesianTemperatureScaling()
    return {"attemper": lambda: ours.fit(h, y), "attemper, ts": lambda: TemperatureScaling().fit(h, y)}


def bayesian_noisy(h, y):
    ours = BayesianTemperatureScaling(labels="noisy")
    return {"attemper": lambda: ours.fit(h, y), "attemper, ts": lambda: TemperatureScaling().fit(h, y)}


def structured(h, y):
    return {"attemper": lambda: StructuredScaling().fit(h, y), "probmetrics, SMS": of_probmetrics("sms", h, y)}


def structured_noisy(h, y):
    wrong = noisy(y, h.shape[1])
    ours = StructuredScaling(labels="noisy")
    return {"attemper": lambda: ours.fit(h, wrong), "probmetrics, SMS": of_probmetrics("sms", h, wrong)}


SIZES_OF_SMS = [(20_000, 10), (100_000, 10), (5_000, 100), (25_000, 1000)]
RATIOS = [  # what, functions, sizes, the most that attemper may take beside the other
    ("temperature", temperature, [(20_000, 10), (100_000, 10)], 1),
    ("Bayesian, beside ts", bayesian, [(100_000, 10)], 10),
    ("Bayesian, noisy labels, beside ts", bayesian_noisy, [(100_000, 10)], 10),
    ("isotonic", isotonic, [(20_000, 10)], 1),
    ("ECE", errors, [(20_000, 10)], 1),
    ("structured", structured, SIZES_OF_SMS, 1),
    ("structured, noisy labels", structured_noisy, SIZES_OF_SMS, 3),
]


def ratios(repeats, budget, only):
    print("| what | N×K | attemper: time, CPU | beside | its time, CPU | ratio of time, of CPU | at most |")
    print("|---|---|---|---|---|---|---|")
    for what, functions, sizes, most in RATIOS:
        for n, k in sizes:
            if only and only not in what:
                continue
            made = functions(*data(n, k, np.float32 if k == 1000 else np.float64))
            made["attemper"]()  # what is imported at first use is not timed
            wall, cpu = cost(made, repeats, budget)
            _, other = made
            cells = [f"{_time(wall[name])}, {_time(cpu[name])}" for name in made]
            ratio = f"{wall['attemper'] / wall[other]:.2f}, {cpu['attemper'] / cpu[other]:.2f}"
            print(f"| {what} | {n}×{k} | {cells[0]} | {other} | {cells[1]} | {ratio} | {most} |", flush=True)


def _time(seconds):
    return f"{seconds:.2f} s" if seconds >= 1 else f"{1e3 * seconds:.3g} ms"


def both_tables(arguments):
    """Print the table of ratios in processes of their own: libraries read the number of threads when they load."""
    for title, environment in (("one thread for each library", ONE_THREAD), ("threads by default", {})):
        print(f"\n## Ratios: {title}\n", flush=True)
        command = [sys.executable, __file__, "--table", *arguments]
        subprocess.run(command, check=True, env=os.environ | environment)


ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "ATTEMPER_THREADS"), "1")


def memory():
    print("\n## Peak memory of a fit beyond the logits, 10 000×1000\n")
    print("| type | logits | TS | ATS | share of the logits |\n|---|---|---|---|---|")
    for dtype in (np.float64, np.float32):
        h, y = data(10_000, 1000, dtype)
        peaks = []
        for method in (TemperatureScaling(), AttendedTemperatureScaling()):
            tracemalloc.start()
            method.fit(h, y)
            peaks.append(tracemalloc.get_traced_memory()[1])
            tracemalloc.stop()
        cells = " | ".join(f"{p / 2**20:.1f} MiB" for p in peaks)
        print(f"| {dtype.__name__} | {h.nbytes / 2**20:.0f} MiB | {cells} | {max(peaks) / h.nbytes:.2f} |", flush=True)


def imports(repeats):
    def seconds(module):
        code = f"import time; t = time.perf_counter(); import {module}; print(time.perf_counter() - t)"
        return float(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout)

    times = {"sklearn.base": [], "attemper": []}
    for _ in range(max(repeats, 9)):
        for module, t in times.items():
            t.append(seconds(module))
    a, b = (np.median(t) for t in times.values())
    print(
        f"\n## Import\n\nsklearn.base {1e3 * a:.0f} ms, attemper {1e3 * b:.0f} ms: ratio {b / a:.2f} (aim: at most 1.2)"
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--budget", type=float, default=40.0, help="seconds for each row of the ratios")
    parser.add_argument("--only", choices=["fits", "path", "ratios", "memory", "imports"])
    parser.add_argument("--what", default="", help="rows of the ratios whose name has this, such as structured")
    parser.add_argument("--table", action="store_true", help="the ratios alone, with the threads of this process")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    if options.table:
        ratios(options.repeats, options.budget, options.what)
        return
    print(f"{os.cpu_count()} cores, numpy {np.__version__}, load {os.getloadavg()[0]:.1f}\n", flush=True)
    chosen = ["--repeats", str(options.repeats), "--budget", str(options.budget), "--what", options.what]
    sections = {
        "fits": lambda: fits(options.repeats),
        "path": lambda: path(options.repeats),
        "ratios": lambda: both_tables(chosen),
        "memory": memory,
        "imports": lambda: imports(options.repeats),
    }
    for name, section in sections.items():
        if options.only in (None, name):
            section()


if __name__ == "__main__":
    main()
