"""What a table or figure is written as: numbers (CSV, JSON), Markdown for readers, pictures for print (SVG, PNG)."""

from __future__ import annotations

import csv
import io
import json
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from attemper._json import atomic
from attemper.plots.sheet import FILES
from experiments.reproduce.journal import Row

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["Page", "beside", "drawn", "filled", "gather", "spread", "summary", "table"]

Floats = NDArray[np.float64]

TEXTS = Path(__file__).parent / "texts"


@dataclass(frozen=True)
class Page:
    """A table or a figure of the paper, with ours beside it; the words are in ``texts/``."""

    tables: dict[str, str]  # what the words have a place for
    rows: Sequence[Row]  # every number it is made of
    summary: dict[str, Any]  # the numbers it shows
    figures: dict[str, Figure] = field(default_factory=dict)

    def write(self, folder: Path, name: str, about: Mapping[str, Any]) -> list[Path]:
        """Write all of it; ``about`` tells where the numbers come from."""
        content = {"page": name, **about, **self.summary}
        numbers = {
            f"{name}.csv": as_csv(self.rows).encode(),
            f"{name}.json": (json.dumps(_plain(content), indent=1, ensure_ascii=False) + "\n").encode(),
        }
        text, *pictures = self.shown(name, about).items()
        return _write(folder, dict([text, *numbers.items(), *pictures]))

    def show(self, folder: Path, name: str, about: Mapping[str, Any]) -> list[Path]:
        """Write what readers see, the text and the pictures, and leave the numbers alone."""
        return _write(folder, self.shown(name, about))

    def shown(self, name: str, about: Mapping[str, Any]) -> dict[str, bytes]:
        """Return the text and the pictures by the names of their files."""
        text = filled(name, self.tables | {key: str(value) for key, value in about.items()})
        files = {f"{name}.md": f"{text}\n*`python -m experiments.reproduce {name}` writes this page.*\n".encode()}
        for stem, figure in self.figures.items():
            files |= {f"{stem}.{form}": drawn(figure, form) for form in ("svg", "png")}
        return files


def _write(folder: Path, files: Mapping[str, bytes]) -> list[Path]:
    for file, content in files.items():
        with atomic(folder / file) as stream:
            stream.write(content)
    return [folder / file for file in files]


def filled(name: str, values: Mapping[str, str]) -> str:
    """Return the words of a page with its tables in them."""
    return Template((TEXTS / f"{name}.md").read_text(encoding="utf-8")).substitute(values)


def as_csv(rows: Sequence[Row]) -> str:
    """Rows as CSV, numbers with six digits."""
    columns = list(dict.fromkeys(key for row in rows for key in row))
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(columns)
    for row in rows:
        writer.writerow([_cell(row.get(column)) for column in columns])
    return out.getvalue()


def gather(rows: Iterable[Row], by: Sequence[str], value: str) -> dict[tuple[Any, ...], Floats]:
    """Values of all rows that agree in these columns, in the order of the rows; without those that have none."""
    found: dict[tuple[Any, ...], list[float]] = defaultdict(list)
    for row in rows:
        if row.get(value) is not None:
            found[tuple(row[key] for key in by)].append(row[value])
    return {key: np.array(values) for key, values in found.items()}


def summary(values: Floats) -> dict[str, float]:
    """Mean, standard deviation and number, as JSON has them."""
    std = float(values.std(ddof=1)) if len(values) > 1 else math.nan
    return {"mean": float(values.mean()), "std": std, "n": len(values)}


def spread(values: Floats | None, digits: int, sign: str = "", of: int | None = None) -> str:
    """Mean ± standard deviation, for readers; with their number where it is another than ``of``."""
    if values is None or not len(values):
        return "–"
    mean = f"{values.mean():{sign}.{digits}f}"
    if float(mean) == 0:
        mean = f"{0:.{digits}f}"  # neither above nor below
    more = "" if of in (None, len(values)) else f" (n = {len(values)})"
    return (mean if len(values) < 2 else f"{mean} ± {values.std(ddof=1):.{digits}f}") + more


def beside(ours: float | None, papers: float | None, digits: int) -> str:
    """Our figure, with the paper's in brackets where it has one."""
    shown = "–" if ours is None else f"{ours:.{digits}f}"
    return shown if papers is None else f"{shown} ({papers:g})"


def table(head: Sequence[str], rows: Iterable[Sequence[str]], texts: int = 1) -> str:
    """Return a Markdown table; the first column, or so many, are text, the others are numbers."""
    lines = [list(head), [*["---"] * texts, *["---:"] * (len(head) - texts)], *map(list, rows)]
    return "\n".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |" for line in lines)


def _cell(value: Any) -> str:
    if value is None:
        return ""
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _plain(value: Any) -> Any:
    """Round to eight digits, and tell what JSON has no number for as null."""
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    if isinstance(value, float):
        return float(f"{value:.8g}") if math.isfinite(value) else None
    return value


def drawn(figure: Figure, form: str) -> bytes:
    """Return a picture as SVG or PNG, the same bytes every time."""
    import matplotlib as mpl

    out = io.BytesIO()
    with mpl.rc_context(FILES):
        metadata = {"Date": None, "Creator": None} if form == "svg" else {"Software": None}
        figure.savefig(out, format=form, dpi=300, metadata=metadata)
    return out.getvalue()
