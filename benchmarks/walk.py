"""How far is it from a call to its result? Functions and files of attemper that a call passes, counted by a profiler.

Run ``python -m benchmarks.walk``, with ``-v`` for the names. "before the method" counts what runs in data/ before the
calibrator's ``_fit`` gets the rows.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np

import attemper

SRC = Path(attemper.__file__).parent


def walked(call: Callable[[], Any], until: str | None = None) -> list[tuple[str, str]]:
    """Return the functions of attemper that a call passes, each once, in order, before one named ``until``."""
    seen: dict[tuple[str, str, int], None] = {}
    arrived = False

    def see(frame: FrameType, event: str, _: Any) -> None:
        nonlocal arrived
        code = frame.f_code
        if event != "call" or arrived or SRC not in Path(code.co_filename).parents:
            return
        arrived = code.co_name == until
        if not arrived:
            file = Path(code.co_filename).relative_to(SRC).as_posix()
            seen[file, code.co_qualname, code.co_firstlineno] = None

    call()  # imports and caches
    sys.setprofile(see)
    try:
        call()
    finally:
        sys.setprofile(None)
    return [(file, name) for file, name, _ in seen]


def main() -> None:
    rng = np.random.default_rng(0)
    h = 3 * rng.normal(size=(1602, 7))
    y = (h / 2 + rng.gumbel(size=h.shape)).argmax(axis=1)
    val, test = (h[:801], y[:801]), (h[801:], y[801:])
    cal = attemper.fit(*val)
    calls: dict[str, tuple[Callable[[], Any], str | None]] = {
        "fit, before the method": (lambda: attemper.fit(*val), "_fit"),
        "fit": (lambda: attemper.fit(*val), None),
        "TemperatureScaling().fit": (lambda: attemper.TemperatureScaling().fit(*val), None),
        "apply": (lambda: attemper.apply(cal, test[0]), None),
        "compare": (lambda: attemper.compare(val, test, methods=["ts", "bayes"]), None),
    }
    print(f"{'call':26}{'functions':>10}{'files':>7}{'in data/':>10}")
    for name, (call, until) in calls.items():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = walked(call, until)
        own = [each for each in found if each[0].startswith("data/")]
        print(f"{name:26}{len(found):10}{len({file for file, _ in found}):7}{len(own):10}")
        if "-v" in sys.argv:
            print("\n".join(f"    {file}: {function}" for file, function in found))


if __name__ == "__main__":
    main()
