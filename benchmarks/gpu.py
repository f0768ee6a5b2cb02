"""On a machine with a GPU: 32 768 × 128 256 bfloat16 logits that lie there, fitted where they are.

    PYTHONPATH=src python benchmarks/gpu.py [--rows 32768] [--classes 128256]

The times of fits stand beside that of one copy of the logits and beside the same fit in plain torch with L-BFGS, with
the GPU memory that they take beyond the logits. T of every type of number is compared with NumPy's.
"""

from __future__ import annotations

import argparse
import statistics
import time
import warnings

import numpy as np
import torch

from attemper import AttendedTemperatureScaling, BayesianTemperatureScaling, TemperatureScaling
from sets import table

TRUE_T = 1.6


def seconds(function, repeats=10, warm=2):
    """Median wall-clock time, the device being done before and after."""
    for _ in range(warm):
        function()
    times = []
    for _ in range(repeats):
        torch.cuda.synchronize()
        start = time.perf_counter()
        function()
        torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def make(n, k, dtype=torch.bfloat16):
    """Logits as a language model has them: most tokens far below, a few in question; labels drawn at TRUE_T."""
    g = torch.Generator("cuda").manual_seed(0)
    logits = torch.empty((n, k), dtype=dtype, device="cuda")
    labels = torch.empty(n, dtype=torch.int64, device="cuda")
    for part in torch.arange(n, device="cuda").split(1024):
        first, last = int(part[0]), int(part[-1]) + 1
        h = 2.2 * torch.randn((last - first, k), generator=g, device="cuda")
        peaks = torch.randint(0, k, (last - first, 8), generator=g, device="cuda")
        height = 12 + 4 * torch.randn(peaks.shape, generator=g, device="cuda")
        logits[first:last] = h.scatter_add_(1, peaks, height).to(dtype)
        u = torch.rand((last - first, k), generator=g, device="cuda").clamp_(1e-20)
        labels[first:last] = (logits[first:last].float() / TRUE_T - torch.log(-torch.log(u))).argmax(1)
    return logits, labels


def lbfgs(logits, labels):
    """Fit a temperature as it is written everywhere; in single precision, as half would not converge."""
    log_t = torch.zeros((), device="cuda", requires_grad=True)
    optimiser = torch.optim.LBFGS([log_t], max_iter=50, line_search_fn="strong_wolfe", tolerance_change=1e-9)
    calls = 0

    def closure():
        nonlocal calls
        calls += 1
        optimiser.zero_grad()
        loss = torch.nn.functional.cross_entropy(logits.float() / log_t.exp(), labels)
        loss.backward()
        return loss

    optimiser.step(closure)
    return float(log_t.detach().exp()), calls


def peak_of(function):
    """GPU memory that a call takes beyond what was there."""
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    function()
    torch.cuda.synchronize()
    return torch.cuda.max_memory_allocated() - before


def compare_dtypes():
    """Print how far T of every type of number is from NumPy's."""
    rng = np.random.default_rng(0)
    h = 4 * rng.normal(size=(3000, 517))
    y = (h / 2.5 + rng.gumbel(size=h.shape)).argmax(axis=1)
    h[(rng.random(h.shape) < 0.02) & (np.arange(517) != y[:, None])] = -np.inf
    for dtype in (torch.float64, torch.float32, torch.float16, torch.bfloat16):
        t = torch.tensor(h, dtype=dtype)
        on_gpu, on_cpu = (TemperatureScaling().fit(x, y).temperature_ for x in (t.cuda(), t))
        print(f"{dtype}: T off by {on_gpu / on_cpu - 1:.0e}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=32_768)
    parser.add_argument("--classes", type=int, default=128_256)
    options = parser.parse_args()
    warnings.simplefilter("error")
    if not torch.cuda.is_available():
        print("no GPU here: nothing was measured")
        return
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}")
    compare_dtypes()
    logits, labels = make(options.rows, options.classes)
    copy = seconds(logits.clone)
    print(
        f"{options.rows} × {options.classes} {logits.dtype}: {logits.nbytes / 1e9:.2f} GB; a copy {1e3 * copy:.1f} ms"
    )
    fits = {
        "TS": TemperatureScaling(),
        "ATS, 100 θ": AttendedTemperatureScaling(),
        "Bayesian": BayesianTemperatureScaling(),
        "Bayesian, noisy": BayesianTemperatureScaling(labels="noisy"),
    }
    lines = []
    for name, method in fits.items():
        peak = peak_of(lambda method=method: method.fit(logits, labels))
        took = seconds(lambda method=method: method.fit(logits, labels))
        t, memory = f"{method.temperature_:.6f}", f"{peak / logits.nbytes:.2%}"
        lines.append([name, f"{1e3 * took:.1f} ms", f"{took / copy:.1f}", t, memory])
    t, calls = lbfgs(logits, labels)
    slow = seconds(lambda: lbfgs(logits, labels), 2, 0)
    name = f"plain torch, L-BFGS ({calls} evaluations)"
    lines.append([name, f"{1e3 * slow:.0f} ms", f"{slow / copy:.0f}", f"{t:.6f}", ""])
    table(["fit", "time", "time / copy", "T", "GPU memory beyond the logits"], lines)


if __name__ == "__main__":
    main()
