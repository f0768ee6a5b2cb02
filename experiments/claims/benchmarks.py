"""Time and memory of TS and ATS, from the tables of ``docs/benchmarks/speed.md``, which no study measures again."""

from __future__ import annotations

import re
from pathlib import Path

from attemper.errors import FileError
from experiments.reproduce.journal import Row

__all__ = ["rows"]

UNITS = {"s": 1000.0, "ms": 1.0, "µs": 0.001, "KiB": 1 / 1024, "MiB": 1.0, "GiB": 1024.0}

Table = list[dict[str, str]]


def rows(path: Path) -> list[Row]:
    """Read what both methods took: rows with ``what`` (time in ms, memory in MiB), size, type, ``ts`` and ``ats``."""
    try:
        tables = _tables(path.read_text(encoding="utf-8"))
        ts, ats = _with(tables, "attemper", "fastest peer"), _with(tables, "ATS path")
        of_ts = {(row["N×K"], row["type"]): row["attemper"] for row in ts}
        time: list[Row] = [
            {"what": "time", "size": key[0], "type": key[1], "ts": _amount(of_ts[key]), "ats": _amount(row["ATS path"])}
            for row in ats
            if (key := (row["N×K"], row["type"])) in of_ts
        ]
        memory: list[Row] = [
            {
                "what": "memory",
                "size": "10000×1000",
                "type": r["type"],
                "ts": _amount(r["TS"]),
                "ats": _amount(r["ATS"]),
            }
            for r in _with(tables, "TS", "ATS", "share of the logits")
        ]
    except (OSError, LookupError) as error:
        raise FileError(f"{path}: expected the tables of time and memory that `make bench` prints: {error}") from None
    return time + memory


def _tables(text: str) -> list[Table]:
    """Return the tables of a page, each as rows by the names of its columns."""
    found = []
    for block in re.findall(r"(?:^\|.*\|\n?)+", text, flags=re.M):
        head, _, *lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in block.strip().split("\n")]
        found.append([dict(zip(head, line)) for line in lines])
    return found


def _with(tables: list[Table], *columns: str) -> Table:
    for table in tables:
        if table and set(columns) <= set(table[0]):
            return table
    raise LookupError(f"no table has the columns {', '.join(columns)}")


def _amount(cell: str) -> float:
    number, unit = cell.split()
    return float(number) * UNITS[unit]
