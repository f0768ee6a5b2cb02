"""On a machine with a GPU: 32 768 × 128 256 bfloat16 logits that lie there, fitted where they are.

PYTHONPATH=src python benchmarks/gpu.py [--rows 32768] [--classes 128256] [--tune]

What is measured, and what it is held against: the time of a full TS fit, beside the time that the bytes it reads need
at the bandwidth of a copy, and beside the same fit in plain torch with L-BFGS; the 100-θ ATS path and the Bayesian
fit, beside the time that their exponentials need; GPU memory beyond the logits; T, against double precision.
"""

from __future__ import annotations

import argparse
import contextlib
import cProfile
import pstats
import statistics
import time
import warnings

import numpy as np
import torch
import triton
import triton.language as tl

from attemper import AttendedTemperatureScaling, BayesianTemperatureScaling, Scores, Sketch, TemperatureScaling
from attemper.torch import fused, rows
from sets import table

TRUE_T = 1.6


@triton.jit
def _exponentials(out, ROUNDS: tl.constexpr, BLOCK: tl.constexpr):
    """Exponentials from registers to registers."""
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = (place % 7).to(tl.float32) * -0.1
    total = tl.zeros([BLOCK], tl.float32)
    for i in range(ROUNDS):
        total += tl.exp2(x * (i + 1.0))
    tl.store(out + place, total)


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


def ceilings(logits):
    """Bytes per second of a copy, exponentials per second."""
    copy = seconds(lambda: logits.clone())
    programs, block, rounds = 132 * 64, 1024, 4096
    out = torch.empty(programs * block, device="cuda")
    exponentials = seconds(lambda: _exponentials[(programs,)](out, ROUNDS=rounds, BLOCK=block))
    return 2 * logits.nbytes / copy, programs * block * rounds / exponentials


@contextlib.contextmanager
def counted():
    """Count the logits that passes read."""
    read = {"elements": 0, "exponentials": 0}
    kept = {name: getattr(fused, name) for name in ("scan", "nll", "rests")}

    def wrapped(name):
        def call(h, index, *rest):
            elements = h.shape[0] * h.shape[1]
            betas = len(rest[2]) if name == "rests" else 0 if name == "scan" else 1
            read["elements"] += elements * max(1, -(-betas // fused.BETAS))
            read["exponentials"] += elements * betas
            return kept[name](h, index, *rest)

        return call

    for name in kept:
        setattr(fused, name, wrapped(name))
    try:
        yield read
    finally:
        for name, function in kept.items():
            setattr(fused, name, function)


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


def tune(logits, labels, bandwidth):
    """Time the kernels with other tiles."""
    device = rows.DeviceRows.of(logits, labels.cpu().numpy())
    floor = logits.nbytes / bandwidth
    print(f"one pass at copy bandwidth: {1e3 * floor:.2f} ms")
    betas = torch.linspace(0.3, 1, 16, dtype=torch.float64)
    calls = {
        "SCAN": lambda: fused.scan(logits, None, device.y),
        "NLL": lambda: fused.nll(logits, None, device.found, 0.6, False, False),
        "RESTS": lambda: fused.rests(logits, None, device.found.top, device.found.second, betas, False),
    }
    for name, call in calls.items():
        for many in (4, 8, 16) if name == "RESTS" else (fused.BETAS,):
            for elements in (256, 512, 1024, 2048) if name == "RESTS" else (1024, 2048, 4096):
                for warps in (2, 4, 8):
                    kept = getattr(fused, name), fused.BETAS
                    setattr(fused, name, fused.Tile(elements, warps))
                    fused.BETAS = many
                    took = seconds(call, 5, 1)
                    setattr(fused, name, kept[0])
                    fused.BETAS = kept[1]
                    print(
                        f"{name} {many if name == 'RESTS' else ''} {elements} × {warps} warps: {1e3 * took:.2f} ms",
                        flush=True,
                    )


def profile(method, logits, labels):
    """Print where the host spends its time in ten fits."""
    watch = cProfile.Profile()
    watch.enable()
    for _ in range(10):
        method.fit(logits, labels)
    watch.disable()
    pstats.Stats(watch).sort_stats("tottime").print_stats(18)


def block(sketch, part):
    """Return sums of a sketch by name."""
    return sketch.nll if part == "nll" else sketch.tables[part]


def dtypes():
    """Every type of number, with and without Triton, against NumPy."""
    rng = np.random.default_rng(0)
    h = 4 * rng.normal(size=(3000, 517))
    y = (h / 2.5 + rng.gumbel(size=h.shape)).argmax(axis=1)
    h[rng.random(h.shape) < 0.02] = -np.inf
    h[np.arange(len(y)), y] = np.where(np.isfinite(h[np.arange(len(y)), y]), h[np.arange(len(y)), y], 0.0)
    for dtype in (torch.float64, torch.float32, torch.float16, torch.bfloat16):
        for few in (rows.FEW_ELEMENTS, 0):
            rows.FEW_ELEMENTS, kept = few, rows.FEW_ELEMENTS
            t = torch.tensor(h, dtype=dtype)
            oracle = Sketch.of(t, y)
            found = Sketch.of(t.cuda(), torch.tensor(y, device="cuda"))
            t_off = TemperatureScaling().fit(t.cuda(), y).temperature_ / TemperatureScaling().fit(t, y).temperature_ - 1
            rows.FEW_ELEMENTS = kept
            off = max(
                float(np.abs(block(found, part) / block(oracle, part) - 1).max())
                for part in ("nll", "uniform", "similar")
            )
            pairs = max(
                float(np.abs(block(found, part) - block(oracle, part)).max() / np.abs(block(oracle, part)).max())
                for part in ("attended", "reference")
            )
            print(f"{dtype}, {'double' if few else 'single'} precision: table off by {off:.0e}, pairs {pairs:.0e}, "
                  f"T by {t_off:.0e}", flush=True)  # fmt: skip


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=32_768)
    parser.add_argument("--classes", type=int, default=128_256)
    parser.add_argument("--tune", action="store_true", help="time other tiles of the kernels")
    parser.add_argument("--profile", action="store_true", help="where the host spends its time")
    told = parser.parse_args()
    warnings.simplefilter("error")
    if not torch.cuda.is_available():
        print("no GPU here: nothing was measured")
        return
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, triton {triton.__version__}")
    dtypes()
    logits, labels = make(told.rows, told.classes)
    size = logits.nbytes
    bandwidth, exponentials = ceilings(logits)
    print(f"{told.rows} × {told.classes} {logits.dtype}: {size / 1e9:.2f} GB; a copy: {bandwidth / 1e12:.2f} TB/s; "
          f"{exponentials / 1e12:.2f}e12 exponentials per second")  # fmt: skip
    if told.tune:
        tune(logits, labels, bandwidth)

    fits = {
        "TS": TemperatureScaling(),
        "ATS, 100 θ": AttendedTemperatureScaling(),
        "Bayesian": BayesianTemperatureScaling(),
        "Bayesian, noisy": BayesianTemperatureScaling(labels="noisy"),
    }
    lines = []
    for name, method in fits.items():
        with counted() as read:
            peak = peak_of(lambda method=method: method.fit(logits, labels))
        time_ = seconds(lambda method=method: method.fit(logits, labels))
        reading = read["elements"] * 2 / bandwidth
        computing = read["exponentials"] / exponentials
        passes = read["elements"] / logits.numel()
        floor = max(reading, computing)
        print(
            f"{name}: {1e3 * time_:.1f} ms; T = {method.temperature_:.6f}, error {method.fit_report_.log_t_error:.0e}; "
            f"{passes:.2f} passes need {1e3 * reading:.1f} ms at copy bandwidth, their exponentials "
            f"{1e3 * computing:.1f} ms: ratio {time_ / floor:.2f}; extra memory {peak / size:.2%}",
            flush=True,
        )
        floor_is = f"{passes:.2f} passes at the bandwidth of a copy"
        if computing > reading:
            floor_is = f"exponentials of {read['exponentials'] / logits.numel():.0f} temperatures"
        lines.append(
            [
                name,
                f"{1e3 * time_:.1f} ms",
                f"{1e3 * floor:.1f} ms",
                floor_is,
                f"{time_ / floor:.2f}",
                f"{peak / size:.2%}",
            ]
        )
        if name == "TS":
            ours = time_

    if told.profile:
        profile(fits["TS"], logits, labels)
        profile(fits["ATS, 100 θ"], logits, labels)
    exact, part = rows.FEW_ELEMENTS, slice(0, 4096)
    single = [Sketch.of(logits[part], labels[part]), *(fits[name].temperature_ for name in list(fits)[:2])]
    rows.FEW_ELEMENTS = 1 << 60
    start = time.perf_counter()
    double = [Sketch.of(logits[part], labels[part])]
    torch.cuda.synchronize()
    took = time.perf_counter() - start
    double += [fits[name].fit(logits, labels).temperature_ for name in list(fits)[:2]]
    rows.FEW_ELEMENTS = exact
    off = np.abs(single[0].nll - double[0].nll).max() / np.abs(double[0].nll).max()
    ts, ats = single[1] / double[1] - 1, single[2] / double[2] - 1
    print(f"single against double precision: TS off by {ts:.0e}, ATS by {ats:.0e}, a table of {part.stop} rows by "
          f"{off:.0e} (double takes {took:.2f} s)")  # fmt: skip
    few = logits[:256]
    on_cpu = TemperatureScaling().fit(few.cpu(), labels[:256].cpu()).temperature_
    print(f"256 rows, GPU against NumPy: {TemperatureScaling().fit(few, labels[:256]).temperature_ / on_cpu - 1:.0e}")

    keep = rows._has_triton
    rows._has_triton = lambda device: False
    unfused = seconds(lambda: TemperatureScaling().fit(logits, labels), 3, 1)
    peak = peak_of(lambda: TemperatureScaling().fit(logits, labels))
    rows._has_triton = keep
    print(f"the same without Triton: {1e3 * unfused:.0f} ms, extra memory {peak / size:.1%}", flush=True)

    start = time.perf_counter()
    total = None
    for _ in range(8):  # N in the hundred thousands, chunk after chunk
        part = Sketch.of(Scores.from_logits(logits, labels), parts=["attended"])
        total = part if total is None else total + part
    torch.cuda.synchronize()
    print(f"{total.n_samples} × {told.classes} from 8 chunks, sketch for ATS: {time.perf_counter() - start:.2f} s; "
          f"T = {AttendedTemperatureScaling().fit_sketch(total).temperature_:.6f}")  # fmt: skip

    (t, calls), slow = lbfgs(logits, labels), seconds(lambda: lbfgs(logits, labels), 2, 0)
    print(f"plain torch, L-BFGS: {1e3 * slow:.0f} ms, {calls} evaluations, T = {t:.6f}: {slow / ours:.0f} × TS")
    lines.append(["plain torch, L-BFGS, for comparison", f"{1e3 * slow:.0f} ms", "", f"({calls} evaluations)", "", ""])
    table(["fit", "time", "floor", "what the floor is", "time / floor", "GPU memory beyond the logits"], lines)


if __name__ == "__main__":
    main()
