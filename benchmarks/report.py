"""Time, memory and size of a report for made-up data of any size.

python benchmarks/report.py [--test 1000000] [--val 1000000] [--classes 7] [--methods ts,ats,bayes] [-o report.html]
"""

from __future__ import annotations

import argparse
import resource
import time
from pathlib import Path

import numpy as np

from attemper.data.scores import Scores
from attemper.report import write_report


def draw(n, k, rng):
    """Logits of an over-confident network; a few classes are frequent, most are rare."""
    y = np.minimum(rng.geometric(min(0.9, 5 / k), n) - 1, k - 1)
    h = 2 * rng.normal(size=(n, k)).astype(np.float32)
    h[np.arange(n), y] += 4 + rng.normal(size=n)
    return Scores.from_logits(1.7 * h, y)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--test", type=int, default=1_000_000)
    parser.add_argument("--val", type=int, default=1_000_000)
    parser.add_argument("--classes", type=int, default=7)
    parser.add_argument("--methods")
    parser.add_argument("-o", "--output", type=Path, default=Path("report.html"))
    told = parser.parse_args()
    rng = np.random.default_rng(0)
    val, test = draw(told.val, told.classes, rng), draw(told.test, told.classes, rng)
    before, start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.perf_counter()
    write_report(told.output, val, test, methods=told.methods.split(",") if told.methods else None)
    seconds, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    size = told.output.stat().st_size
    print(f"{seconds:.1f} s, {(after - before) / 1024:.0f} MiB beyond the data, {size / 1000:.0f} kB")


if __name__ == "__main__":
    main()
