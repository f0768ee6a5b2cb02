"""Rows as CSV, tables as Markdown, figures as PNG."""

from __future__ import annotations

import csv
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments.reproduce.journal import Row

__all__ = ["beside", "gather", "n_repeats", "read_csv", "spread", "table", "write", "write_csv"]

Floats = NDArray[np.float64]


def write_csv(path: Path, rows: Sequence[Row]) -> None:
    """Write all rows; a column that a row does not have is empty."""
    columns = dict.fromkeys(key for row in rows for key in row)
    with path.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.DictWriter(stream, list(columns), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def read_csv(path: Path) -> list[Row]:
    """Read rows that `write_csv` wrote."""
    with path.open(newline="", encoding="utf-8") as stream:
        return [{key: _value(cell) for key, cell in row.items()} for row in csv.DictReader(stream)]


def _value(cell: str) -> Any:
    for kind in (int, float):
        try:
            return kind(cell)
        except ValueError:
            continue
    return cell or None


def write(folder: Path, files: dict[str, Any]) -> None:
    """Write texts (.md) and figures (.png)."""
    for name, content in files.items():
        if name.endswith(".md"):
            (folder / name).write_text(content.strip() + "\n", encoding="utf-8")
        else:
            content.savefig(folder / name, dpi=160, metadata={"Software": None})


def gather(rows: Iterable[Row], by: Sequence[str], value: str) -> dict[tuple[Any, ...], Floats]:
    """Values of the rows that agree in some columns, in the order of the rows."""
    found: dict[tuple[Any, ...], list[float]] = defaultdict(list)
    for row in rows:
        if row.get(value) is not None:
            found[tuple(row[key] for key in by)].append(row[value])
    return {key: np.array(values) for key, values in found.items()}


def n_repeats(rows: Iterable[Row]) -> int:
    """Return how many repeats the rows are of."""
    return 1 + max(int(row["repeat"]) for row in rows)


def spread(values: Floats | None, digits: int, sign: str = "") -> str:
    """Mean ± standard deviation; a dash if there are no values."""
    if values is None or not len(values):
        return "–"
    mean = f"{round(values.mean(), digits) + 0.0:{sign}.{digits}f}"  # no −0
    return mean if len(values) < 2 else f"{mean} ± {values.std(ddof=1):.{digits}f}"


def beside(ours: float | None, papers: float | None, digits: int) -> str:
    """Our number, with the paper's in brackets."""
    shown = "–" if ours is None else f"{ours:.{digits}f}"
    return shown if papers is None else f"{shown} ({papers:g})"


def table(head: Sequence[str], rows: Iterable[Sequence[str]], texts: int = 1) -> str:
    """Return a Markdown table; so many columns are text, the others are numbers."""
    lines = [list(head), ["---"] * texts + ["--:"] * (len(head) - texts), *map(list, rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
