"""On a machine with a GPU: arrays of torch, CuPy and JAX that live there go in, and come out there.

PYTHONPATH=src python benchmarks/gpu_arrays.py
"""

from __future__ import annotations

import importlib
import time

import numpy as np

from attemper import AttendedTemperatureScaling, BayesianTemperatureScaling, TemperatureScaling


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
    for method in (TemperatureScaling(), AttendedTemperatureScaling(), BayesianTemperatureScaling(labels="noisy")):
        expected = method.fit(h, y).temperature_
        for name, logits, labels in arrays(h, y):
            start = time.perf_counter()
            fitted = method.fit(logits, labels)
            seconds = time.perf_counter() - start
            p = fitted.predict_proba(logits)
            assert type(p) is type(logits), name
            assert p.dtype == logits.dtype, name
            assert p.device == logits.device, name
            assert abs(fitted.temperature_ / expected - 1) < (1e-2 if "16" in name else 1e-5), name
            same = (p.argmax(1) == logits.argmax(1)).all()
            assert bool(same), name
            print(
                f"{method}: {name} on {p.device}: T = {fitted.temperature_:.6f} in {1e3 * seconds:.0f} ms", flush=True
            )


if __name__ == "__main__":
    main()
