"""On a machine with a GPU: 32 768 × 128 256 bfloat16 logits that lie there, fitted where they are.

    PYTHONPATH=src python benchmarks/gpu.py [--rows 32768] [--classes 128256]

The times of fits stand beside that of one read of the logits, and of the same fit in plain torch with L-BFGS, with the
GPU memory that they take beyond the logits. T of every type of number is compared with NumPy's.
"""

from __future__ import annotations

import argparse
import statistics
import time
import warnings

import numpy as np
import torch

from attemper import AttendedTemperatureScaling, BayesianTemperatureScaling, TemperatureScaling

TRUE_T = 1.6
FITS = {
    "ts": TemperatureScaling(),
    "ats, 100 θ": AttendedTemperatureScaling(),
    "bayes": BayesianTemperatureScaling(),
    "bayes, noise=0.1": BayesianTemperatureScaling(noise=0.1),
    "bayes, noise unknown": BayesianTemperatureScaling(noise="unknown"),
}


def seconds(function, repeats=10, warm=2):
    """Median wall-clock time, the device being done before and after."""
    times = []
    for i in range(warm + repeats):
        torch.cuda.synchronize()
        start = time.perf_counter()
        function()
        torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
        if i >= warm and sum(times) > 20:
            break
    return statistics.median(times[warm:])


def make(n, k, dtype=torch.bfloat16):
    """Logits as a language model has them: most tokens far below, a few in question; labels drawn at TRUE_T."""
    g = torch.Generator("cuda").manual_seed(0)
    logits = torch.empty((n, k), dtype=dtype, device="cuda")
    labels = torch.empty(n, dtype=torch.int64, device="cuda")
    for first in range(0, n, 1024):
        part = slice(first, min(first + 1024, n))
        h = 2.2 * torch.randn((part.stop - first, k), generator=g, device="cuda")
        peaks = torch.randint(0, k, (part.stop - first, 8), generator=g, device="cuda")
        height = 12 + 4 * torch.randn(peaks.shape, generator=g, device="cuda")
        logits[part] = h.scatter_add_(1, peaks, height).to(dtype)
        u = torch.rand(h.shape, generator=g, device="cuda").clamp_(1e-20)
        labels[part] = (logits[part].float() / TRUE_T - torch.log(-torch.log(u))).argmax(1)
    return logits, labels


def lbfgs(logits, labels):
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


def memory_of(function):
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
        for name, cal in list(FITS.items())[:3]:
            on_gpu, on_cpu = (cal.fit(x, y).temperature_ for x in (t.cuda(), t.double().numpy()))
            print(f"{dtype}, {name}: T off by {on_gpu / on_cpu - 1:.0e}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=32_768)
    parser.add_argument("--classes", type=int, default=128_256)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    if not torch.cuda.is_available():
        print("no GPU here: nothing was measured")
        return
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}")
    compare_dtypes()
    logits, labels = make(options.rows, options.classes)
    read = seconds(lambda: logits.view(torch.int16).max())
    size = f"{options.rows} × {options.classes} {logits.dtype}: {logits.nbytes / 1e9:.2f} GB"
    print(f"{size}; a read takes {1e3 * read:.1f} ms\n\n| fit | time | reads | T | GPU memory beyond the logits |")
    print("| --- | --- | --- | --- | --- |")
    for name, cal in FITS.items():
        memory = memory_of(lambda: cal.fit(logits, labels)) / logits.nbytes  # noqa: B023
        took = seconds(lambda: cal.fit(logits, labels))  # noqa: B023
        print(
            f"| {name} | {1e3 * took:.1f} ms | {took / read:.0f} | {cal.temperature_:.6f} | {memory:.1%} |", flush=True
        )
    took = seconds(lambda: lbfgs(logits, labels), 2, 0)
    print(f"| plain torch, L-BFGS | {1e3 * took:.0f} ms | {took / read:.0f} | {lbfgs(logits, labels):.6f} | |")


if __name__ == "__main__":
    main()
