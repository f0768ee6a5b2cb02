"""Speed, memory and import time, beside the peers in one run; ratios, since machines are shared.

    make bench                                    # installs the peers into .venv-bench and runs this
    python benchmarks/speed.py [--repeats 15]

Synthetic logits, labels drawn at T = 2.5. ``pass`` is one np.exp over the same logits in cache-sized chunks.
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

from attemper import AttendedTemperatureScaling, BayesianTemperatureScaling, ScaleMap, TemperatureScaling

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
    """Median time of each function, taken in turns so that a busy moment hits all of them."""
    times = {name: [] for name in functions}
    start = time.perf_counter()
    for _ in range(repeats):
        for name, function in functions.items():
            t = time.perf_counter()
            function()
            times[name].append(time.perf_counter() - t)
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
        import torch
        from probmetrics.calibrators import TemperatureScalingCalibrator
        from probmetrics.distributions import CategoricalLogits

        def probmetrics():
            c = TemperatureScalingCalibrator()
            c.fit_torch(CategoricalLogits(torch.as_tensor(h)), torch.as_tensor(y))
            return 1 / float(c.invtemp_)

        found["probmetrics, torch"] = probmetrics
    with contextlib.suppress(ImportError):
        from netcal.scaling import TemperatureScaling as Netcal

        def netcal():
            p = ScaleMap(1.0).apply(h)
            t = Netcal()
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
    repeats = parser.parse_args().repeats
    warnings.simplefilter("ignore")
    print(f"{os.cpu_count()} cores, numpy {np.__version__}, load {os.getloadavg()[0]:.1f}\n")
    fits(repeats)
    path(repeats)
    memory()
    imports(repeats)


if __name__ == "__main__":
    main()
