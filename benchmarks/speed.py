"""Speed of the fits (CPU time), beside the peers in one run; ratios, since machines are shared.

    OMP_NUM_THREADS=1 python benchmarks/speed.py [--seconds 2] [--beside OTHER_CHECKOUT/src]

Logits are drawn, with labels at T = 2.5. Functions of a size are timed in turns, so that a busy moment hits all of
them; the least CPU time counts. scikit-learn is always there; probmetrics and netcal where they are installed.
``--beside`` runs the same fits of another source tree, in a process of its own, in turns with this one.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import io
import json
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.special import softmax

SIZES = ((2_000, 2), (20_000, 2), (2_000, 10), (20_000, 10), (5_000, 100), (2_000, 1000))
METHODS = ("ts", "ats", "bayes", "structured", "ets")
MOST = {"structured": 500_000, "ets": 500_000}  # logits


def drawn(n: int, k: int) -> tuple[Any, Any]:
    """Return logits and labels."""
    rng = np.random.default_rng(0)
    h = 4 * rng.normal(size=(n, k))
    return h, (h / 2.5 + rng.gumbel(size=h.shape)).argmax(axis=1)


def least(functions: dict[str, Callable[[], Any]], seconds: float) -> dict[str, float]:
    """Return the least CPU time of each function in milliseconds."""
    best = dict.fromkeys(functions, np.inf)
    end = time.perf_counter() + seconds * len(functions)
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        for run in range(100):
            for name, function in functions.items():
                begin = time.process_time()
                function()
                best[name] = min(best[name], 1e3 * (time.process_time() - begin))
            if run >= 2 and time.perf_counter() > end:
                break
    return best


def own_fits(n: int, k: int) -> dict[str, Callable[[], Any]]:
    """Return the fits of attemper."""
    import attemper.calibrators

    known, (h, y) = attemper.calibrators.METHODS, drawn(n, k)
    names = [name for name in METHODS if n * k <= MOST.get(name, np.inf)]
    return {name: lambda name=name: known[name]().fit(h, y) for name in names}


def peers(n: int, k: int) -> dict[str, Callable[[], Any]]:
    """Return what others do on the same logits: one temperature each, or a logistic regression of the logits."""
    from sklearn.calibration import _TemperatureScaling

    h, y = drawn(n, k)
    found: dict[str, Callable[[], Any]] = {"scikit-learn temperature": lambda: _TemperatureScaling().fit(h, y)}
    if importlib.util.find_spec("netcal"):
        from netcal.scaling import TemperatureScaling

        found["netcal temperature"] = lambda: TemperatureScaling().fit(softmax(h, axis=1), y)
    if importlib.util.find_spec("probmetrics"):
        from peers import probmetrics_on_logits

        found["probmetrics temperature"] = lambda: probmetrics_on_logits("temp-scaling", h, y)
        other = "quadratic-scaling" if k == 2 else "sms"
        found[f"probmetrics {other}"] = lambda: probmetrics_on_logits(other, h, y)
    return found


def predictions(seconds: float) -> None:
    """Compare `predict_proba` of one temperature with SciPy's softmax."""
    from attemper import TemperatureScaling

    print(f"\n{'predict_proba of ts':24}{'ms':>10}{'times scipy.special.softmax':>30}")
    for n, k in SIZES:
        h, y = drawn(n, k)
        cal = TemperatureScaling().fit(h, y)
        t = cal.temperature_
        found = least({"ours": lambda: cal.predict_proba(h), "scipy": lambda: softmax(h / t, axis=1)}, seconds)  # noqa: B023
        print(f"{f'{n} x {k}':24}{found['ours']:10.2f}{found['ours'] / found['scipy']:30.2f}")


def fits(seconds: float, beside: str | None) -> None:
    """Print the times of all fits, those of the peers, and those of another source tree."""
    for n, k in SIZES:
        found = least(own_fits(n, k) | peers(n, k), seconds)
        other = _elsewhere(beside, n, k, seconds) if beside else {}
        print(f"\n{n} x {k}")
        reference = found["scikit-learn temperature"]
        for name, ms in found.items():
            ratio = f"{ms / other[name]:10.2f} x other tree" if name in other else ""
            faster = f"{reference / ms:8.1f} x the speed of scikit-learn" if name in ("ts",) else ""
            print(f"  {name:28}{ms:10.2f} ms {ratio}{faster}", flush=True)


def _elsewhere(src: str, n: int, k: int, seconds: float) -> dict[str, float]:
    command = [sys.executable, __file__, "--json", str(n), str(k), "--seconds", str(seconds), "--src", src]
    return dict(json.loads(subprocess.run(command, capture_output=True, check=True, text=True).stdout))


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=2.0, help="for each function and size")
    parser.add_argument("--beside", help="another source tree of attemper")
    parser.add_argument("--src", help=argparse.SUPPRESS)
    parser.add_argument("--json", type=int, nargs=2, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.src:
        sys.path.insert(0, asked.src)
    if asked.json:
        print(json.dumps(least(own_fits(*asked.json), asked.seconds)))
        return
    fits(asked.seconds, asked.beside)
    predictions(asked.seconds)


if __name__ == "__main__":
    main()
