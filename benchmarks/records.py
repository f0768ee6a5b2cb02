"""Records of numbers by their keys, and where two of them differ; `same_numbers.py` makes them."""

from __future__ import annotations

import dataclasses
import json
from collections import defaultdict
from collections.abc import Iterator, Sequence
from numbers import Real
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def leaves(value: Any, key: str) -> Iterator[tuple[str, Floats]]:
    """Yield every number and array of numbers within a value, with its key; text and None have none."""
    if hasattr(value, "_asdict"):
        value = value._asdict()
    elif hasattr(value, "fit"):
        value = fitted_attributes(value)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        value = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if isinstance(value, dict):
        for name, item in value.items():
            yield from leaves(item, f"{key}/{name}")
    elif isinstance(value, Real | np.ndarray | np.generic | list | tuple):
        array = as_numbers(value)
        if array is not None:
            yield key, array
        elif isinstance(value, list | tuple):
            for i, item in enumerate(value):
                yield from leaves(item, f"{key}/{i}")


def as_numbers(value: Any) -> Floats | None:
    """Return an array of floats; None if the value holds anything but numbers, or rows of different lengths."""
    try:
        array = np.asarray(value)
    except ValueError:
        return None
    return array.astype(float) if array.dtype.kind in "biuf" else None


def fitted_attributes(fitted: Any) -> dict[str, Any]:
    """Return attributes and properties that end in an underscore; map and report are in the document."""
    names = [name for name in dir(fitted) if name.endswith("_") and not name.startswith("_")]
    return {name: getattr(fitted, name, None) for name in names if name not in ("map_", "fit_report_")}


class Record:
    """Numbers by their keys, in the order in which they were added."""

    def __init__(self) -> None:
        self.arrays: dict[str, Floats] = {}

    def add(self, key: str, value: Any) -> None:
        """Add all numbers within a value."""
        for name, array in leaves(value, key):
            if name in self.arrays:
                raise ValueError(f"{name} is recorded twice; expected sets with different names")
            self.arrays[name] = array

    def save(self, path: Path) -> None:
        """Write two arrays: all numbers in a row, and the keys and shapes as JSON."""
        index = json.dumps([[key, array.shape] for key, array in self.arrays.items()])
        values = np.concatenate([array.ravel() for array in self.arrays.values()])
        with path.open("wb") as file:
            np.savez_compressed(file, values=values, index=np.frombuffer(index.encode(), np.uint8))

    @staticmethod
    def load(path: Path) -> Record:
        """Read what `save` wrote."""
        record, start = Record(), 0
        with np.load(path, allow_pickle=False) as z:
            values, index = z["values"], json.loads(z["index"].tobytes())
        for key, shape in index:
            size = int(np.prod(shape))
            record.arrays[key] = values[start : start + size].reshape(shape)
            start += size
        return record


# --- Comparing --------------------------------------------------------------------------------------------------------


Renames = dict[str, str | list[str] | None]


def renamed(key: str, renames: Renames) -> list[str]:
    """Return the new key, or several of which one is to be found; none if the leaf is meant to be gone.

    >>> renamed("vgg16/structured/1000 rows/attributes/spread_/biases", {"spread_": "prior_std_"})
    ['vgg16/structured/1000 rows/attributes/prior_std_/biases']
    >>> renamed("vgg16/ts/1000 rows/report/error", {"report/error": ["report/log_t_error", "report/objective_gap"]})
    ['vgg16/ts/1000 rows/report/log_t_error', 'vgg16/ts/1000 rows/report/objective_gap']
    """
    keys = [f"/{key}/"]
    for old, new in renames.items():
        if f"/{old}/" in keys[0]:
            if new is None:
                return []
            keys = [k.replace(f"/{old}/", f"/{n}/") for k in keys for n in ([new] if isinstance(new, str) else new)]
    return [k[1:-1] for k in keys]


class Difference(NamedTuple):
    """Greatest differences of one leaf, or of several."""

    excess: float = 0.0  # absolute difference in units of what is allowed
    absolute: float = 0.0
    relative: float = 0.0
    leaf: str = ""  # where the excess is greatest

    def __or__(self, other: Difference) -> Difference:
        """Return the greater of each."""
        worst = other if other.excess > self.excess else self
        return Difference(
            worst.excess, max(self.absolute, other.absolute), max(self.relative, other.relative), worst.leaf
        )


def difference(before: Floats, after: Floats, leaf: str, tolerance: float) -> Difference:
    """Return how far two arrays are apart; infinitely if their shapes differ, or one of them is not finite alone."""
    if before.shape != after.shape:
        return Difference(np.inf, np.inf, np.inf, f"{leaf}: shape {before.shape}, now {after.shape}")
    a, b = before.ravel(), after.ravel()
    apart = ~((a == b) | (np.isnan(a) & np.isnan(b)))
    if not apart.any():
        return Difference()
    a, b = a[apart], b[apart]
    finite = np.isfinite(a) & np.isfinite(b)
    gap = np.where(finite, np.abs(np.where(finite, a, 0.0) - np.where(finite, b, 0.0)), np.inf)
    size = np.where(finite, np.abs(a), 0.0)
    relative = np.where(finite, gap / np.maximum(size, np.where(finite, np.abs(b), 1.0)), np.inf)
    excess = gap / (tolerance + tolerance * size)
    return Difference(float(excess.max()), float(gap.max()), float(relative.max()), leaf)


def compare(before: Record, after: Record, renames: Renames, tolerance: float, *, brief: bool) -> bool:
    """Print what differs; return whether every number of the first record is also in the second."""
    found: dict[tuple[str, str], Difference] = defaultdict(Difference)
    missing: list[str] = []
    expected: set[str] = set()
    n_dropped = 0
    for key, array in before.arrays.items():
        possible = renamed(key, renames)
        if not possible:
            n_dropped += 1
            continue
        new = next((k for k in possible if k in after.arrays), possible[0])
        expected.add(new)
        if new not in after.arrays:
            missing.append(new)
            continue
        name, method, leaf = new.split("/", 2)
        found[name, method] |= difference(array, after.arrays[new], leaf, tolerance)
    added = [key for key in after.arrays if key not in expected]
    differs = {where: worst for where, worst in found.items() if worst.excess > 1}
    print(f"{'set':50} {'method':24} {'absolute':>9} {'relative':>9}")
    for (name, method), worst in (differs if brief else found).items():
        mark = f"  DIFFERS: {worst.leaf}" if worst.excess > 1 else ""
        print(f"{name[:50]:50} {method:24} {worst.absolute:9.1e} {worst.relative:9.1e}{mark}")
    print_grouped("missing in the second record", missing)
    print_grouped("new in the second record", added)
    print(
        f"\n{len(before.arrays)} leaves: {len(expected) - len(missing)} compared, {len(missing)} missing, "
        f"{n_dropped} dropped by the renames, {len(added)} new; "
        f"{len(differs)} of {len(found)} pairs of set and method differ by more than {tolerance:g}"
    )
    return not differs and not missing


def print_grouped(title: str, keys: Sequence[str]) -> None:
    """Print leaves without sets and cases, with the number of keys and the methods that each is of."""
    methods: dict[str, list[str]] = defaultdict(list)
    for key in keys:
        _, method, *rest = key.split("/")
        leaf = "/".join("#" if part.isdigit() else part for part in rest[1:] or rest)
        methods[leaf].append(method)
    if methods:
        print(f"\n{title}:")
    for leaf, of in methods.items():
        print(f"  {len(of):6} × {leaf} ({', '.join(dict.fromkeys(of))})")
