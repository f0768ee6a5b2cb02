"""Segmentation: N×K×H×W logits in bounded memory, intervals by image.

PYTHONPATH=src python benchmarks/pixels.py cpu [--gigabytes 2] [--parts attended] [--nodes 64]
PYTHONPATH=src python benchmarks/pixels.py coverage [--sets 400]
PYTHONPATH=src python benchmarks/pixels.py subsample
"""

from __future__ import annotations

import argparse
import tempfile
import threading
import time
import warnings
from pathlib import Path

import numpy as np

from attemper import Scores, Sketch, TemperatureScaling
from attemper.metrics import accuracy, ece, nll

K, H, W, TRUE_T, IGNORE = 19, 512, 1024, 1.6, 255


def correlated(rng, n, k, size, images_differ=1.0, noise_shared=0.5):
    """Logits of small images whose pixels are alike, and labels of which neighbours err together.

    The logits vary from image to image; the noise that turns logits into labels is one draw for each patch of 4×4
    pixels in a share of them. Each label has the probabilities softmax(logits).
    """
    h = 1.5 * rng.normal(size=(n, k, size, size)) + images_differ * rng.normal(size=(n, k, 1, 1))
    own = rng.gumbel(size=h.shape)
    patch = rng.gumbel(size=(n, k, size // 4, size // 4)).repeat(4, axis=2).repeat(4, axis=3)
    shared = rng.random((n, 1, size // 4, size // 4)).repeat(4, axis=2).repeat(4, axis=3) < noise_shared
    return h, (h + np.where(shared, patch, own)).argmax(axis=1)


class Peak(threading.Thread):
    """Watch the memory of this process that no file backs."""

    def __init__(self):
        super().__init__(daemon=True)
        self.start_bytes, self.most, self.on = self.now(), 0, True
        self.start()

    @staticmethod
    def now():
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("RssAnon"):
                return int(line.split()[1]) * 1024
        return 0

    def run(self):
        while self.on:
            self.most = max(self.most, self.now() - self.start_bytes)
            time.sleep(0.005)

    def stop(self):
        self.on = False
        self.join()
        return self.most


def cpu(options):
    """Sketch float16 logits in a file that is mapped into memory; what is taken beyond them."""
    n = max(1, round(options.gigabytes * 1e9 / (2 * K * H * W)))
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        x = np.lib.format.open_memmap(f"{folder}/x.npy", "w+", np.float16, (n, K, H, W))
        y = np.lib.format.open_memmap(f"{folder}/y.npy", "w+", np.uint8, (n, H, W))
        rng = np.random.default_rng(0)
        for i in range(n):
            if i >= 8:  # the same again, as drawing takes longer than all else
                x[i], y[i] = x[i - 8], y[i - 8]
                continue
            h = (3 * rng.standard_normal((K, H, W), dtype=np.float32)).astype(np.float16)
            x[i] = h
            u = rng.random((K, H, W), dtype=np.float32)
            y[i] = (h / np.float32(TRUE_T) - np.log(-np.log(np.maximum(u, 1e-12)))).argmax(axis=0)
            y[i, :20] = IGNORE
        x.flush()
        y.flush()
        x, y = (np.load(f"{folder}/{name}.npy", mmap_mode="r") for name in "xy")
        print(f"{n}×{K}×{H}×{W} float16: {x.nbytes / 1e9:.2f} GB, labels uint8 {y.nbytes / 1e6:.0f} MB", flush=True)
        parts = options.parts.split(",") if options.parts else []
        warm = Scores.from_logits(x[:1], y[:1], axis=1, ignore_index=IGNORE)
        TemperatureScaling().fit_sketch(Sketch.of(warm, parts=parts))
        for name, work in {
            f"Sketch.of, parts {parts}, {options.nodes} nodes": lambda: TemperatureScaling().fit_sketch(
                Sketch.of(x, y, axis=1, ignore_index=IGNORE, parts=parts, n_nodes=options.nodes)
            ),
            "TemperatureScaling.fit": lambda: TemperatureScaling(axis=1, ignore_index=IGNORE).fit(x, y),
        }.items():
            peak, start = Peak(), time.perf_counter()
            fitted = work()
            took = time.perf_counter() - start
            print(f"{name}: T = {fitted.temperature_:.4f}, {took:.0f} s, {peak.stop() / 1e6:.0f} MB beyond the data",
                  flush=True)  # fmt: skip


def coverage(options):
    """How often intervals of 95 % hold the true value, by pixel and by image."""
    rng = np.random.default_rng(0)
    warnings.simplefilter("ignore")
    print("| images | metric | by pixel: coverage | mean width | by image: coverage | mean width |")
    print("|---|---|---|---|---|---|")
    metrics = {"accuracy": accuracy, "nll": nll, "ece": ece}
    big_h, big_y = correlated(rng, 4000, 4, 16)
    truth = {name: m(big_y, big_h, axis=1, input="logits") for name, m in metrics.items()} | {"ece": 0.0}
    for n in (5, 10, 20, 50):
        held = {name: np.zeros((options.sets, 2, 3)) for name in metrics}
        for i in range(options.sets):
            h, y = correlated(rng, n, 4, 16)
            rows, flat = np.moveaxis(h, 1, -1).reshape(-1, 4), y.ravel()
            for name, m in metrics.items():
                settings = {"input": "logits", "confidence_level": 0.95, "n_resamples": 200, "seed": i}
                for j, found in enumerate((m(flat, rows, **settings), m(y, h, axis=1, **settings))):
                    inside = found.low <= truth[name] <= found.high
                    held[name][i, j] = inside, found.high - found.low, found.has_interval
        for name, found in held.items():
            shown = []
            for j in (0, 1):
                some = found[found[:, j, 2] > 0, j]
                shown += [f"{some[:, 0].mean():.1%}", f"{some[:, 1].mean():.4f}"] if len(some) else ["no interval", ""]
            print(f"| {n} | {name} | {' | '.join(shown)} |", flush=True)
    intervals = np.zeros((options.sets, 2))
    for i in range(options.sets):
        h, y = correlated(rng, 20, 4, 16)
        for j, fitted in enumerate(
            (
                TemperatureScaling().fit(np.moveaxis(h, 1, -1).reshape(-1, 4), y.ravel()),
                TemperatureScaling(axis=1).fit(h, y),
            )
        ):
            low, high = fitted.temperature_interval_
            intervals[i, j] = low <= 1 <= high
    by_pixel, by_image = intervals.mean(axis=0)
    print(f"| 20 | T of a fit | {by_pixel:.1%} | | {by_image:.1%} | |")


def subsample(options):
    """How far T from some pixels of each image lies from that of all, beside what other images would give."""
    rng = np.random.default_rng(0)
    h, y = correlated(rng, 50, 4, 64)
    fits = {None: TemperatureScaling(axis=1).fit(h, y)}
    low, high = fits[None].temperature_interval_
    print(f"all {y.size} pixels of 50 images: T = {fits[None].temperature_:.4f}, 95 % interval {low:.3f} to {high:.3f}")
    for m in (10, 100, 1000):
        found = [TemperatureScaling().fit(Scores.from_logits(h, y, axis=1, max_pixels=m, seed=s)) for s in range(20)]
        t = np.array([f.temperature_ for f in found])
        print(f"max_pixels={m}: T within {np.abs(t / fits[None].temperature_ - 1).mean():.2%} of that on average")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=["cpu", "coverage", "subsample"])
    parser.add_argument("--gigabytes", type=float, default=2.0)
    parser.add_argument("--parts", default="", help="tables of the sketch, such as attended,uniform; the NLL always")
    parser.add_argument("--nodes", type=int, default=64, help="temperatures of the sketch; memory is the same for all")
    parser.add_argument("--folder", help="where the file of logits is written")
    parser.add_argument("--sets", type=int, default=400)
    options = parser.parse_args()
    {"cpu": cpu, "coverage": coverage, "subsample": subsample}[options.what](options)


if __name__ == "__main__":
    main()
