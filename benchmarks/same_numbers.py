"""Check that a change of the source leaves the numbers of the fits as they were.

    python benchmarks/same_numbers.py record before.json --src OTHER_CHECKOUT/src
    python benchmarks/same_numbers.py record after.json
    python benchmarks/same_numbers.py compare before.json after.json --tolerance 1e-8

`record` fits every method to some of data/*.npz (and of more folders of .npz, passed as arguments) in three cases: all
validation labels, the first 200, and all with a tenth of them drawn at random. It stores T, and the NLL and ECE of the
predictions on the test rows. `compare` lists what differs by more than the tolerance, and exits with 1 if any does.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np

METHODS = ("ts", "ats", "bayes", "structured", "ets", "platt", "beta", "histogram", "isotonic", "bbq", "venn_abers",
           "vector", "matrix", "dirichlet")  # fmt: skip
KNOW_NOISE = ("bayes", "structured")
UNPENALISED = ("vector", "matrix", "dirichlet")  # compared without their ridge
MOST_CLASSES = 20  # beyond, matrices without a ridge take minutes
DEFAULT_SETS = (
    "densenet40-cifar10-s0", "densenet40-cifar100-s0", "lenet5-mnist-s0", "lenet5-fashion_mnist-s0",
    "resnet110-svhn-s0", "resnet200-skin-randomsplit-s0", "vgg16-cifar10-s0", "vgg16-cifar100-s1",
    "wideresnet28x10-cifar10-s0",
)  # fmt: skip


def calibrator(method: str, noisy: bool) -> Any:
    """Return an unfitted calibrator of this version or of 0.2, whose spellings differ in a few places."""
    import attemper.calibrators

    known = attemper.calibrators.METHODS
    old = "labels" in known["bayes"]().get_params()
    options: dict[str, Any] = {}
    if noisy and method in KNOW_NOISE:
        options = {"labels": "noisy"} if old else {"noise": "unknown"}
    if method in UNPENALISED and not old:
        options["l2"] = 0
    return known[method](**options)


def parts(path: Path) -> tuple[Any, Any, Any, Any]:
    """Return validation logits and labels, then those of the test; a file without a division is cut in two."""
    with np.load(path, allow_pickle=False) as z:
        if "val_logits" in z:
            return tuple(z[key] for key in ("val_logits", "val_labels", "logits", "labels"))
        h, y = z["logits"], z["labels"]
    order = np.random.default_rng(0).permutation(len(y))
    val, test = order[: min(len(y) // 2, 2500)], order[len(y) // 2 :][:2500]
    return h[val], y[val], h[test], y[test]


def cases(path: Path) -> Any:
    """Yield the name of each case, with its validation rows and the test rows."""
    h, y, test, truth = parts(path)
    y, truth = y.astype(np.int64), truth.astype(np.int64)
    rng = np.random.default_rng(1)
    wrong = np.where(rng.uniform(size=len(y)) < 0.1, rng.integers(0, h.shape[1], len(y)), y)
    yield "all", h, y, test, truth
    yield "200", h[:200], y[:200], test, truth
    yield "noisy", h, wrong, test, truth


def ece(p: Any, y: Any) -> float:
    """Return the expected calibration error of 15 equal bins."""
    top = p.max(axis=1)
    gap = (p.argmax(axis=1) == y) - top
    sums = np.bincount(np.minimum((top * 15).astype(int), 14), gap, 15)
    return float(np.abs(sums).sum() / len(y))


def numbers(method: str, case: str, h: Any, y: Any, test: Any, truth: Any) -> dict[str, float | str]:
    """Fit and predict; an error is a number too."""
    try:
        fitted = calibrator(method, case == "noisy").fit(h, y)
        p = np.asarray(fitted.predict_proba(test.astype(np.float64)))
    except Exception as error:  # recorded, and compared by its name
        return {"error": type(error).__name__}
    found = {"nll": float(-np.log(np.maximum(p[np.arange(len(truth)), truth], 1e-300)).mean()), "ece": ece(p, truth)}
    t = getattr(fitted, "temperature_", None)
    return found if t is None else found | {"T": float(t)}


def record(out: Path, folders: list[Path], methods: list[str]) -> None:
    """Write the numbers of every set, case and method."""
    sets = [Path("data") / f"{name}.npz" for name in DEFAULT_SETS]
    sets += [path for folder in folders for path in sorted(folder.glob("*.npz"))]
    found, begin = {}, time.perf_counter()
    for path in sets:
        with np.load(path, allow_pickle=False) as z:
            if "logits" not in z or z["logits"].shape[1] > 200:
                continue
        for case, h, *rest in cases(path):
            for method in methods:
                if method in UNPENALISED and h.shape[1] > MOST_CLASSES:
                    continue
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    found[f"{path.stem}/{case}/{method}"] = numbers(method, case, h, *rest)
        print(f"{time.perf_counter() - begin:6.0f} s  {path.stem}", flush=True)
    out.write_text(json.dumps(found, indent=0))


def compare(before: Path, after: Path, tolerance: float) -> int:
    """Print what differs; return how many numbers do."""
    a, b = (json.loads(path.read_text()) for path in (before, after))
    differ, worse = 0, {}
    for key in sorted(a.keys() & b.keys()):
        for name in sorted(a[key].keys() | b[key].keys()):
            old, new = a[key].get(name), b[key].get(name)
            number = isinstance(old, float) and isinstance(new, float)
            if old == new or (number and abs(old - new) <= tolerance * max(1.0, abs(old))):
                continue
            differ += 1
            print(f"{key:60} {name:5} {old!s:22} {new!s:22} {f'{new - old:+.1e}' if number else ''}")
            if name == "nll" and number:
                case_method = key.split("/", 1)[1]
                worse.setdefault(case_method, []).append(new - old)
    for name, gaps in sorted(worse.items()):
        print(f"{name:24} NLL of {len(gaps):3} sets differs: mean {np.mean(gaps):+.1e}, worst {max(gaps):+.1e}")
    print(f"{differ} numbers of {len(a.keys() & b.keys())} fits differ by more than {tolerance:g}")
    return differ


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    one = commands.add_parser("record")
    one.add_argument("out", type=Path)
    one.add_argument("folders", type=Path, nargs="*", help="more folders of .npz files")
    one.add_argument("--src", help="another source tree of attemper")
    one.add_argument("--methods", nargs="+", default=list(METHODS))
    two = commands.add_parser("compare")
    two.add_argument("before", type=Path)
    two.add_argument("after", type=Path)
    two.add_argument("--tolerance", type=float, default=1e-8)
    asked = parser.parse_args()
    if asked.command == "compare":
        sys.exit(compare(asked.before, asked.after, asked.tolerance) > 0)
    if asked.src:
        sys.path.insert(0, asked.src)
    record(asked.out, asked.folders, asked.methods)


if __name__ == "__main__":
    main()
