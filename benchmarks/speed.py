"""Speed and memory compared with other packages, in one run: ratios, since machines differ.

    OMP_NUM_THREADS=1 python benchmarks/speed.py fits [--seconds 2]
    python benchmarks/speed.py reading    # 10⁶ × 10 logits from CSV, parquet and npz
    python benchmarks/speed.py gpu        # 32 768 × 128 256 logits on a GPU
    python benchmarks/speed.py walk       # functions and files that a call passes

fits: least CPU time of a fit on drawn logits. Functions of a size are timed in turns, so that a busy moment hits all of
them. scikit-learn is always there; probmetrics and netcal where they are installed. reading: time of `attemper.read`
over that of pandas, pyarrow or NumPy; at most 1.5 times that of pandas is wanted. gpu: fits of logits that lie there,
compared with one read of them and with plain torch and L-BFGS; T of every type of number compared with NumPy's.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import io
import statistics
import sys
import tempfile
import time
import tracemalloc
import warnings
from pathlib import Path

import numpy as np
from scipy.special import softmax

SIZES = ((2_000, 2), (20_000, 2), (2_000, 10), (20_000, 10), (5_000, 100), (2_000, 1000))
METHODS = ("ts", "ats", "bayes", "structured", "ets")
MOST = {"structured": 500_000, "ets": 500_000}  # logits


def drawn(n, k):
    """Return logits, and labels at T = 2.5."""
    rng = np.random.default_rng(0)
    h = 4 * rng.normal(size=(n, k))
    return h, (h / 2.5 + rng.gumbel(size=h.shape)).argmax(axis=1)


def least(functions, seconds, clock=time.process_time):
    """Return the least time of each function in milliseconds."""
    best = dict.fromkeys(functions, np.inf)
    end = time.perf_counter() + seconds * len(functions)
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        for run in range(100):
            for name, function in functions.items():
                begin = clock()
                function()
                best[name] = min(best[name], 1e3 * (clock() - begin))
            if run >= 2 and time.perf_counter() > end:
                break
    return best


def peak(function):
    """Return the most memory that a call takes in addition to its input, in MB."""
    tracemalloc.start()
    function()
    most = tracemalloc.get_traced_memory()[1] / 1e6
    tracemalloc.stop()
    return most


# Fits and predictions


def own_fits(n, k):
    import attemper.calibrators

    known, (h, y) = attemper.calibrators.METHODS, drawn(n, k)
    names = [name for name in METHODS if n * k <= MOST.get(name, np.inf)]
    return {name: lambda name=name: known[name]().fit(h, y) for name in names}


def peers_fits(n, k):
    """Return what others do on the same logits: one temperature each, or a logistic regression of the logits."""
    from sklearn.calibration import _TemperatureScaling

    h, y = drawn(n, k)
    found = {"scikit-learn temperature": lambda: _TemperatureScaling().fit(h, y)}
    if importlib.util.find_spec("netcal"):
        from netcal.scaling import TemperatureScaling

        found["netcal temperature"] = lambda: TemperatureScaling().fit(softmax(h, axis=1), y)
    if importlib.util.find_spec("probmetrics"):
        from peers import on_logits

        for name in ("temp-scaling", "quadratic-scaling" if k == 2 else "sms"):
            found[f"probmetrics {name}"] = lambda name=name: on_logits(name, h, y)
    return found


def fits(seconds):
    from attemper import TemperatureScaling

    for n, k in SIZES:
        h, y = drawn(n, k)
        own = own_fits(n, k)
        found = least(own | peers_fits(n, k), seconds)
        print(f"\n{n} x {k}")
        for name, ms in found.items():
            print(f"  {name:28}{ms:10.2f} ms", flush=True)
        memory = {name: peak(own[name]) for name in ("ts", "ats")}
        print(
            f"  ats: {found['ats'] / found['ts']:.1f} x the time of ts, {memory['ats'] / memory['ts']:.1f} x its memory"
        )
        cal = TemperatureScaling().fit(h, y)
        calls = {"ts": lambda: cal.predict_proba(h), "scipy": lambda: softmax(h / cal.temperature_, axis=1)}  # noqa: B023
        times = least(calls, seconds)
        print(f"  predict_proba of ts: {times['ts'] / times['scipy']:.2f} x the time of scipy.special.softmax")


# Reading

ROWS, COLUMNS = 1_000_000, 10


def reading(folder, seconds):
    import pandas as pd
    from pyarrow import csv, parquet

    import attemper

    h = 3 * np.random.default_rng(0).normal(size=(ROWS, COLUMNS))
    frame = pd.DataFrame(h, columns=[f"logit_{k}" for k in range(COLUMNS)]).assign(label=h.argmax(axis=1))
    a, b, c = folder / "a.csv", folder / "a.parquet", folder / "a.npz"
    frame.to_csv(a, index=False)
    frame.to_parquet(b)
    np.savez(c, logits=h, labels=h.argmax(axis=1))
    others = {
        a: {"pandas": lambda: pd.read_csv(a).to_numpy(), "pyarrow": lambda: csv.read_csv(a).to_pandas().to_numpy()},
        b: {"pandas": lambda: pd.read_parquet(b).to_numpy(), "pyarrow": lambda: parquet.read_table(b).to_pandas()},
        c: {"numpy": lambda: dict(np.load(c))},
    }
    for path, calls in others.items():
        found = least({"attemper": lambda path=path: attemper.read(path), **calls}, seconds, time.perf_counter)
        print(path.suffix, *(f"{found['attemper'] / found[name]:.2f} x {name}" for name in calls), flush=True)


# GPU

TRUE_T = 1.6


def language_model(n, k, torch):
    """Logits as a language model has them: most tokens far below, a few in question; labels drawn at TRUE_T."""
    g = torch.Generator("cuda").manual_seed(0)
    logits = torch.empty((n, k), dtype=torch.bfloat16, device="cuda")
    labels = torch.empty(n, dtype=torch.int64, device="cuda")
    for first in range(0, n, 1024):
        part = slice(first, min(first + 1024, n))
        h = 2.2 * torch.randn((part.stop - first, k), generator=g, device="cuda")
        peaks = torch.randint(0, k, (part.stop - first, 8), generator=g, device="cuda")
        height = 12 + 4 * torch.randn(peaks.shape, generator=g, device="cuda")
        logits[part] = h.scatter_add_(1, peaks, height).to(torch.bfloat16)
        u = torch.rand(h.shape, generator=g, device="cuda").clamp_(1e-20)
        labels[part] = (logits[part].float() / TRUE_T - torch.log(-torch.log(u))).argmax(1)
    return logits, labels


def lbfgs(logits, labels, torch):
    """Fit a temperature as it is written everywhere; in single precision, as half would not converge."""
    log_t = torch.zeros((), device="cuda", requires_grad=True)
    optimiser = torch.optim.LBFGS([log_t], max_iter=50, line_search_fn="strong_wolfe", tolerance_change=1e-9)

    def closure():
        optimiser.zero_grad()
        loss = torch.nn.functional.cross_entropy(logits.float() / log_t.exp(), labels)
        loss.backward()
        return loss

    optimiser.step(closure)
    return float(log_t.detach().exp())


def gpu(rows, classes):
    import torch

    from attemper import AttendedTemperatureScaling, BayesianTemperatureScaling, TemperatureScaling

    if not torch.cuda.is_available():
        print("no GPU here: nothing was measured")
        return
    cals = {"ts": TemperatureScaling(), "ats, 100 θ": AttendedTemperatureScaling()}
    cals |= {"bayes": BayesianTemperatureScaling(), "bayes, noise=0.1": BayesianTemperatureScaling(noise=0.1)}
    cals["bayes, noise unknown"] = BayesianTemperatureScaling(noise="unknown")

    def seconds(function, repeats=10, warm=2):
        times = []
        for _ in range(warm + repeats):
            torch.cuda.synchronize()
            start = time.perf_counter()
            function()
            torch.cuda.synchronize()
            times.append(time.perf_counter() - start)
        return statistics.median(times[warm:])

    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}")
    rng = np.random.default_rng(0)
    h, y = drawn(3000, 517)
    h[(rng.random(h.shape) < 0.02) & (np.arange(517) != y[:, None])] = -np.inf
    for dtype in (torch.float64, torch.float32, torch.float16, torch.bfloat16):
        t = torch.tensor(h, dtype=dtype)
        for name, cal in list(cals.items())[:3]:
            on_gpu, on_cpu = (cal.fit(x, y).temperature_ for x in (t.cuda(), t.double().numpy()))
            print(f"{dtype}, {name}: T off by {on_gpu / on_cpu - 1:.0e}", flush=True)
    logits, labels = language_model(rows, classes, torch)
    read = seconds(lambda: logits.view(torch.int16).max())
    print(f"{rows} × {classes} bfloat16: {logits.nbytes / 1e9:.2f} GB; a read takes {1e3 * read:.1f} ms\n")
    print("| fit | ms | reads | T | GPU memory beyond the logits |\n| --- | --: | --: | --: | --: |")
    for name, cal in cals.items():
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        cal.fit(logits, labels)
        memory = (torch.cuda.max_memory_allocated() - before) / logits.nbytes
        took = seconds(lambda: cal.fit(logits, labels))  # noqa: B023
        print(f"| {name} | {1e3 * took:.1f} | {took / read:.0f} | {cal.temperature_:.6f} | {memory:.1%} |", flush=True)
    took = seconds(lambda: lbfgs(logits, labels, torch), 2, 0)
    print(f"| plain torch, L-BFGS | {1e3 * took:.0f} | {took / read:.0f} | {lbfgs(logits, labels, torch):.6f} | |")


# The walk


def walked(call, src, until=None):
    """Return the functions of attemper that a call passes, each once, in order, before one named ``until``."""
    seen, arrived = {}, False

    def see(frame, event, _):
        nonlocal arrived
        code = frame.f_code
        if event != "call" or arrived or src not in Path(code.co_filename).parents:
            return
        arrived = code.co_name == until
        if not arrived:
            seen[Path(code.co_filename).relative_to(src).as_posix(), code.co_qualname, code.co_firstlineno] = None

    call()  # imports and caches
    sys.setprofile(see)
    try:
        call()
    finally:
        sys.setprofile(None)
    return list(seen)


def walk():
    import attemper

    h, y = drawn(1602, 7)
    val, test = (h[:801], y[:801]), (h[801:], y[801:])
    cal = attemper.fit(*val)
    calls = {
        "fit, before the method": (lambda: attemper.fit(*val), "_fit"),
        "fit": (lambda: attemper.fit(*val), None),
        "TemperatureScaling().fit": (lambda: attemper.TemperatureScaling().fit(*val), None),
        "apply": (lambda: attemper.apply(cal, test[0]), None),
        "compare": (lambda: attemper.compare(val, test, methods=["ts", "bayes"]), None),
    }
    print(f"{'call':26}{'functions':>10}{'files':>7}{'in data/':>10}")
    for name, (call, until) in calls.items():
        found = walked(call, Path(attemper.__file__).parent, until)
        own = [file for file, *_ in found if file.startswith("data/")]
        print(f"{name:26}{len(found):10}{len({file for file, *_ in found}):7}{len(own):10}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=["fits", "reading", "gpu", "walk"])
    parser.add_argument("--seconds", type=float, default=2.0, help="for each function and size")
    parser.add_argument("--rows", type=int, default=32_768, help="of the logits on the GPU")
    parser.add_argument("--classes", type=int, default=128_256)
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    if asked.part == "fits":
        fits(asked.seconds)
    elif asked.part == "reading":
        with tempfile.TemporaryDirectory() as place:
            reading(Path(place), asked.seconds)
    elif asked.part == "gpu":
        gpu(asked.rows, asked.classes)
    else:
        walk()


if __name__ == "__main__":
    main()
