"""On a machine with a GPU: arrays of torch, CuPy and JAX that live there go in, and come out there.

PYTHONPATH=src python benchmarks/gpu_arrays.py
"""

from __future__ import annotations

import importlib
import time

import numpy as np

from attemper import (
    AttendedTemperatureScaling,
    BayesianTemperatureScaling,
    BetaCalibration,
    EnsembleTemperatureScaling,
    IsotonicCalibration,
    StructuredScaling,
    TemperatureScaling,
    VectorScaling,
)
from attemper.data.arrays import to_numpy

METHODS = (
    TemperatureScaling(),
    AttendedTemperatureScaling(),
    BayesianTemperatureScaling(labels="noisy"),
    EnsembleTemperatureScaling(),
    VectorScaling(),
    BetaCalibration(),
    IsotonicCalibration(),
    StructuredScaling(structure="scales"),
)


def arrays(h, y):
    torch = importlib.import_module("torch")
    for dtype in (torch.float64, torch.float32, torch.float16, torch.bfloat16):
        yield f"torch {dtype}", torch.tensor(h, dtype=dtype, device="cuda"), torch.tensor(y, device="cuda")
    cupy = importlib.import_module("cupy")
    yield "cupy", cupy.asarray(h), cupy.asarray(y)
    jax = importlib.import_module("jax")
    yield "jax", jax.device_put(h.astype(np.float32), jax.devices("gpu")[0]), jax.numpy.asarray(y)


def main():
    rng = np.random.default_rng(0)
    h = 4 * rng.normal(size=(10_000, 100))
    y = (h / 2.5 + rng.gumbel(size=h.shape)).argmax(axis=1)
    for method in METHODS:
        expected = method.fit(h, y).predict_proba(h)
        for name, logits, labels in arrays(h, y):
            start = time.perf_counter()
            fitted = method.fit(logits, labels)
            seconds = time.perf_counter() - start
            p = fitted.predict_proba(logits)
            assert type(p) is type(logits), name
            assert p.dtype == logits.dtype, name
            assert p.device == logits.device, name
            off = np.abs(to_numpy(p).astype(np.float64) - expected).mean()
            assert off < (1e-3 if "16" in name else 1e-6), (name, off)
            if fitted.map_.keeps_arg_max:
                assert bool((p.argmax(1) == logits.argmax(1)).all()), name
            print(f"{method}: {name} on {p.device}: {1e3 * seconds:.0f} ms, mean |Δp| {off:.0e}", flush=True)


if __name__ == "__main__":
    main()
