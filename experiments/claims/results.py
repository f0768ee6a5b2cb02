"""The numbers of the studies, read from their CSV files; means that are the same on every machine."""

from __future__ import annotations

import csv
import os
from collections.abc import Hashable, Iterable, Mapping, Sequence
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from attemper.errors import FileError
from experiments.claims import benchmarks
from experiments.claims.wording import family
from experiments.reproduce import PAGES
from experiments.reproduce.journal import Row

__all__ = ["MARGIN", "MARGIN_ECE", "REPEATS", "STUDIES", "Results"]

MARGIN = 0.001  # of NLL: a smaller difference is a tie, as for `attemper compare`
MARGIN_ECE = 0.1  # per cent

STUDIES = (
    "table1",
    "table3",
    "table4",
    "noise",
    "size",
    "supplement-noise",
    "supplement-size",
    "consistency",
    "grid",
    "referral",
)
REPEATS = ("repeat", "division")  # the column that counts the random divisions of a study


class Results:
    """Rows of all studies.

    Means come from `statistics`, which rounds once: numbers of six digits often end in a tie, and sums in another
    order would then round another way.

    Parameters
    ----------
    rows : for each page of `experiments.reproduce` its rows; for ``"benchmarks"`` those of `benchmarks.rows`

    Examples
    --------
    >>> rows = [{"network": "a", "method": "ts", "division": i, "nll": nll} for i, nll in enumerate((0.25, 0.75))]
    >>> Results({"table1": rows}).mean("table1", network="a", method="ts")
    0.5
    """

    def __init__(self, rows: Mapping[str, Sequence[Row]]) -> None:
        self.rows = rows
        self._index: dict[tuple[str, ...], dict[tuple[Any, ...], dict[Hashable, float]]] = {}
        self._distinct: dict[tuple[Any, ...], list[Any]] = {}

    @classmethod
    def read(cls, folder: str | os.PathLike[str]) -> Results:
        """Read the CSV files of a folder, and ``benchmarks/speed.md`` of the folder above."""
        folder = Path(folder)
        found = {name: _read(folder / f"{name}.csv") for name in STUDIES if name in PAGES}
        return cls({**found, "benchmarks": benchmarks.rows(folder.resolve().parent / "benchmarks" / "speed.md")})

    def values(self, page: str, measure: str = "nll", **where: Any) -> dict[Hashable, float]:
        """Return a measure of every repeat of one case."""
        key = (page, measure, *sorted(where))
        if key not in self._index:
            found: dict[tuple[Any, ...], dict[Hashable, float]] = {}
            for row in self.rows.get(page, ()):
                if row.get(measure) is not None:
                    repeat = next((row[column] for column in REPEATS if row.get(column) is not None), 0)
                    found.setdefault(tuple(row.get(column) for column in sorted(where)), {})[repeat] = row[measure]
            self._index[key] = found
        return self._index[key].get(tuple(where[column] for column in sorted(where)), {})

    def mean(self, page: str, measure: str = "nll", **where: Any) -> float:
        """Return the mean over the repeats."""
        return fmean(self.values(page, measure, **where).values())

    def std(self, page: str, measure: str = "nll", **where: Any) -> float:
        """Return the standard deviation over the repeats."""
        return stdev(self.values(page, measure, **where).values())

    def differences(self, page: str, method: str, other: str, measure: str = "nll", **where: Any) -> list[float]:
        """Return one method less the other, for every repeat that both have."""
        ours, theirs = (self.values(page, measure, method=m, **where) for m in (method, other))
        return [ours[repeat] - theirs[repeat] for repeat in ours if repeat in theirs]

    def above(self, page: str, method: str, other: str, measure: str = "nll", **where: Any) -> float:
        """Return by how much one method is above another, in the mean over the repeats that both have."""
        return fmean(self.differences(page, method, other, measure, **where))

    def distinct(self, page: str, column: str, **where: Any) -> list[Any]:
        """Return the different values of a column, in order."""
        key = (page, column, *sorted(where.items()))
        if key not in self._distinct:
            chosen = (
                row for row in self.rows.get(page, ()) if all(row.get(name) == value for name, value in where.items())
            )
            found: Iterable[Any] = dict.fromkeys(row.get(column) for row in chosen)
            self._distinct[key] = [value for value in found if value is not None]
        return self._distinct[key]

    def networks(self, page: str) -> list[str]:
        """Return the names of the networks of a study, sorted by data."""
        return self.sort(self.distinct(page, "network"))

    @staticmethod
    def sort(names: Iterable[str]) -> list[str]:
        """Sort names of networks by data."""
        return sorted(names, key=lambda name: (family(name), name))


def _read(path: Path) -> list[Row]:
    try:
        with path.open(newline="", encoding="utf-8") as stream:
            return [{key: _typed(cell) for key, cell in row.items()} for row in csv.DictReader(stream)]
    except OSError as error:
        raise FileError(
            f"{path}: expected the numbers of a study, got {error.strerror or error}. Use `make results`, or "
            "`python -m experiments.reproduce all -o FOLDER` and then --results FOLDER."
        ) from None


def _typed(cell: str) -> Any:
    if cell == "":
        return None
    for kind in (int, float):
        try:
            return kind(cell)
        except ValueError:
            continue
    return cell
