"""Vector, matrix and Dirichlet scaling: how low the objective gets, beside the peers, and how long it takes.

    python benchmarks/affine.py FOLDER [--matrix-classes 20] [--every 1] [--slow]
    python benchmarks/affine.py --speed [--slow]

For every .npz of the folder (keys logits/labels, or logits_val/labels_val), the value of the same objective at
attemper's parameters and at those of each peer that is installed, always computed here in double precision:

* vector scaling on logits (probmetrics) and on log-probabilities (netcal), no penalty;
* matrix scaling on logits, no penalty (probmetrics, torch-uncertainty);
* Dirichlet calibration with ODIR, λ = μ = 1 (torch-uncertainty where it installs; SciPy's L-BFGS-B on the paper's
  objective, since dirichletcal itself does not install beside the others).

Excess is attemper's objective less the best peer's: it should be at most 1e-8. Sets with more classes than
``--matrix-classes`` are left out of matrix scaling, where a fit without a penalty may take minutes; netcal, which has
no gradient and takes as long, runs with ``--slow`` alone. ``--every 5`` takes every fifth set. Run it in the
environment of `make bench` to have the peers. ``--speed`` ends with the CPU time of structured scaling with one thread
of BLAS, as it is, and with as many as BLAS would take.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import logging
import os
import sys
import time
import warnings
from pathlib import Path

import numpy as np
from scipy.optimize import minimize
from scipy.special import log_softmax

import attemper.calibrators.base
from attemper import DirichletCalibration, MatrixScaling, StructuredScaling, VectorScaling
from attemper.kernels.blas import one_blas_thread

ODIR = 1.0


def objective(h, y, weight, bias, *, log_probs=False, odir=0.0):
    """Mean NLL of softmax(W x + b), and the penalties of ODIR."""
    x = log_softmax(h, axis=1) if log_probs else h
    z = log_softmax((x * weight if weight.ndim == 1 else x @ weight.T) + bias, axis=1)
    value = -z[np.arange(len(y)), y].mean()
    if odir:
        off = weight[~np.eye(len(bias), dtype=bool)]
        value += odir * np.mean(off**2) + odir * np.mean(bias**2)
    return float(value)


def vector_peers(h, y, slow):
    """Functions that fit and return weight, bias; on logits, and on log-probabilities."""
    logits, logs = {}, {}
    with contextlib.suppress(ImportError):
        import torch
        from probmetrics.calibrators import VectorScalingCalibrator
        from probmetrics.distributions import CategoricalLogits

        def probmetrics():
            c = VectorScalingCalibrator()
            c.fit_torch(CategoricalLogits(torch.as_tensor(h)), torch.as_tensor(y))
            return 1 / c.temp_.numpy().astype(float), c.bias_.numpy().astype(float)

        logits["probmetrics"] = probmetrics
    with contextlib.suppress(ImportError):
        from netcal.scaling import LogisticCalibration

        def netcal():
            c = LogisticCalibration()
            with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
                c.fit(np.exp(log_softmax(h, axis=1)), y)
            return np.asarray(c.weights, dtype=float), np.asarray(c.intercept, dtype=float)

        if slow and h.shape[1] > 2:  # for two classes it is another model
            logs["netcal"] = netcal
    return logits, logs


def matrix_peers(h, y):
    found = {}
    with contextlib.suppress(ImportError):
        import torch
        from probmetrics.calibrators import MatrixScalingCalibrator
        from probmetrics.distributions import CategoricalLogits

        def probmetrics():
            c = MatrixScalingCalibrator()
            c.fit_torch(CategoricalLogits(torch.as_tensor(h)), torch.as_tensor(y))
            return c.itemp_.numpy().astype(float).T, c.bias_.numpy().astype(float)

        found["probmetrics"] = probmetrics
    with contextlib.suppress(ImportError):
        from torch_uncertainty.post_processing import MatrixScaler

        found["torch-uncertainty"] = lambda: uncertainty(MatrixScaler(h.shape[1], model=None), h, y)
    return found


def dirichlet_peers(h, y):
    found = {"L-BFGS-B": lambda: lbfgs(h, y)}
    with contextlib.suppress(ImportError):
        from torch_uncertainty.post_processing import DirichletScaler

        found["torch-uncertainty"] = lambda: uncertainty(
            DirichletScaler(h.shape[1], model=None, lambda_reg=ODIR, mu_reg=ODIR, max_iter=1000), h, y
        )
    return found


def lbfgs(h, y):
    """Minimise the objective of Dirichlet calibration with SciPy, which knows nothing of our kernel."""
    x, k, rows = log_softmax(h, axis=1), h.shape[1], np.arange(len(y))
    off = 1 - np.eye(k)

    def value_and_gradient(v):
        weight, bias = v[: k * k].reshape(k, k), v[k * k :]
        log_p = log_softmax(x @ weight.T + bias, axis=1)
        r = np.exp(log_p)
        r[rows, y] -= 1
        r /= len(y)
        value = -log_p[rows, y].mean() + ODIR * np.sum(off * weight**2) / (k * (k - 1)) + ODIR * np.mean(bias**2)
        by_weight = r.T @ x + 2 * ODIR * off * weight / (k * (k - 1))
        return value, np.r_[by_weight.ravel(), r.sum(axis=0) + 2 * ODIR * bias / k]

    options = {"maxiter": 2000 if k <= 20 else 300, "maxfun": 10**5, "ftol": 1e-15, "gtol": 1e-9}
    start = np.r_[np.eye(k).ravel(), np.zeros(k)]
    found = minimize(value_and_gradient, start, jac=True, method="L-BFGS-B", options=options).x
    return found[: k * k].reshape(k, k), found[k * k :]


def uncertainty(scaler, h, y):
    import torch
    from torch.utils.data import DataLoader, TensorDataset

    logging.disable(logging.CRITICAL)
    data = TensorDataset(torch.as_tensor(h), torch.as_tensor(y))
    scaler.double().fit(DataLoader(data, batch_size=len(y)), progress=False)
    weight, bias = (a.detach().numpy().astype(float) for a in scaler.inv_temperature)
    return weight, bias


def judge(ours, peers, h, y, **kind):
    """Our objective, the excess over the best peer, and who did what."""
    start = time.perf_counter()
    fitted = ours.fit(h, y)
    seconds = time.perf_counter() - start
    value = objective(h, y, fitted.weight_, fitted.bias_, **kind)
    theirs = {}
    for name, fit in peers.items():
        start = time.perf_counter()
        try:
            theirs[name] = objective(h, y, *fit(), **kind), time.perf_counter() - start
        except Exception as error:  # a peer that fails on a set is no rival on it
            print(f"  {name} failed: {type(error).__name__}: {error}"[:200], file=sys.stderr)
    excess = value - min((v for v, _ in theirs.values() if np.isfinite(v)), default=np.nan)
    rest = "; ".join(f"{name} {v - value:+.1e}, {s:.2f} s" for name, (v, s) in theirs.items())
    report = fitted.fit_report_
    end = "" if report.converged else " no finite optimum" if "no finite" in report.message else " NOT converged"
    print(f"  {type(ours).__name__}: {report.message}", file=sys.stderr, flush=True)
    return excess, report.gradient_norm, f"{value:.6f}{end} | {report.gradient_norm:.0e} | {seconds:.2f} s | {rest}"


def exactness(paths, matrix_classes, slow):
    print("| set | N×K | fit | objective | gradient norm | time | peers: objective above ours, time |")
    print("|---|---|---|---|---|---|---|")
    worst = {}
    for path in paths:
        with np.load(path, allow_pickle=False) as z:
            suffix = "" if "logits" in z else "_val"
            h, y = z["logits" + suffix].astype(np.float64), z["labels" + suffix].astype(np.int64)
        print(path.stem, file=sys.stderr, flush=True)
        on_logits, on_logs = vector_peers(h, y, slow)
        odir = {"off_diagonal": ODIR, "bias_penalty": ODIR}
        runs = {
            "vector, logits": (VectorScaling(centring="none"), on_logits, {}),
            "vector, log-probs": (VectorScaling(centring="log_probs"), on_logs, {"log_probs": True}),
        }
        if h.shape[1] <= matrix_classes:
            runs["matrix"] = (MatrixScaling(centring="none"), matrix_peers(h, y), {})
        runs["Dirichlet"] = (DirichletCalibration(**odir), dirichlet_peers(h, y), {"log_probs": True, "odir": ODIR})
        for name, (ours, peers, kind) in runs.items():
            excess, norm, cells = judge(ours, peers, h, y, **kind)
            before = worst.get(name, (-np.inf, 0.0, 0))
            worst[name] = np.fmax(before[0], excess), max(before[1], norm), before[2] + 1
            print(f"| {path.stem} | {len(y)}×{h.shape[1]} | {name} | {cells} |", flush=True)
    print("\n| fit | sets | worst excess over the best peer | worst gradient norm |\n|---|---|---|---|")
    for name, (excess, norm, count) in worst.items():
        beside = f"{excess:+.1e}" if np.isfinite(excess) else "no peer"
        print(f"| {name} | {count} | {beside} | {norm:.0e} |")


def made(n, k):
    """Labels from vector scaling and a small dense matrix."""
    rng = np.random.default_rng(0)
    h = 4 * rng.normal(size=(n, k))
    weight = np.diag(rng.uniform(0.2, 0.6, k)) + 0.02 * rng.normal(size=(k, k))
    y = (h @ weight.T + 0.5 * rng.normal(size=k) + rng.gumbel(size=h.shape)).argmax(axis=1)
    return h, y


def speed(slow):
    print("| N×K | fit | objective | gradient norm | time | peers: objective above ours, time |")
    print("|---|---|---|---|---|---|")
    for n, k in [(2_000, 10), (10_000, 100), (10_000, 1000)]:
        h, y = made(n, k)
        on_logits, on_logs = vector_peers(h, y, slow) if k < 1000 else ({}, {})
        runs = [("vector, logits", VectorScaling(centring="none"), on_logits, {})]
        if k < 1000:
            runs += [
                ("vector, log-probs", VectorScaling(centring="log_probs"), on_logs, {"log_probs": True}),
                ("matrix", MatrixScaling(centring="none"), matrix_peers(h, y), {}),
                (
                    "Dirichlet",
                    DirichletCalibration(off_diagonal=ODIR, bias_penalty=ODIR),
                    dirichlet_peers(h, y),
                    {"log_probs": True, "odir": ODIR},
                ),
            ]
        for name, ours, peers, kind in runs:
            if k == 10:  # not to be told by how long libraries take to warm up
                judge(ours, peers, h, y, **kind)
            print(f"| {n}×{k} | {name} | {judge(ours, peers, h, y, **kind)[2]} |", flush=True)


def blas_threads(n=3000, k=20, repeats=3):
    """Print the ratio of CPU times, taken in turns so that a busy moment hits both."""
    h, y = made(n, k)
    limits = {"one": one_blas_thread, "as many as BLAS takes": contextlib.nullcontext}
    times = {name: [] for name in limits}
    for _ in range(repeats):
        for name, limit in limits.items():
            attemper.calibrators.base.one_blas_thread = limit
            start = time.process_time()
            StructuredScaling().fit(h, y)
            times[name].append(time.process_time() - start)
    attemper.calibrators.base.one_blas_thread = one_blas_thread
    one, many = (float(np.median(t)) for t in times.values())
    print(
        f"\nstructured, {n}×{k}: CPU time {one:.2f} s with one thread of BLAS, {many:.2f} s without a limit, ", end=""
    )
    print(f"ratio {many / one:.1f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, nargs="?")
    parser.add_argument("--speed", action="store_true", help="time all of them on made data")
    parser.add_argument("--slow", action="store_true", help="also netcal, which takes minutes")
    parser.add_argument("--matrix-classes", type=int, default=20, help="most classes for matrix scaling [20]")
    parser.add_argument("--every", type=int, default=1, help="take every n-th set of the folder [1]")
    told = parser.parse_args()
    warnings.simplefilter("ignore")
    print(f"{os.cpu_count()} cores, numpy {np.__version__}, load {os.getloadavg()[0]:.1f}\n", flush=True)
    if told.folder is not None:
        exactness(sorted(told.folder.glob("*.npz"))[:: told.every], told.matrix_classes, told.slow)
    if told.speed:
        speed(told.slow)
        blas_threads()


if __name__ == "__main__":
    main()
