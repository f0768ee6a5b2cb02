"""What results are made of: a number with its interval, and tables of them. The only place that formats either."""

from __future__ import annotations

import html
import math
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from numbers import Integral, Real
from typing import Any

import numpy as np

from attemper._json import plain
from attemper.errors import require

Columns = Mapping[str, Sequence[Any] | np.ndarray[Any, Any]]

WIDTH = 80
SHOWN_ROWS, EACH_END = 20, 5  # a longer table shows its first and last rows


@dataclass(frozen=True)
class Estimate:
    """A number with its interval; where there is none, the ends are NaN and ``note`` has the reason.

    A calibration error also has ``chance``, its mean if labels were drawn from the predicted probabilities, and ``p``,
    the share of such draws that reach the value. Two are equal where all of it is; `dataclasses.replace` changes some.

    Examples
    --------
    >>> found = Estimate(0.0628, 0.0, 0.10551, chance=0.05, p=0.2)
    >>> f"{found}; {found:.1%}; {float(found)}"
    '0.063 (0.000 to 0.106); 6.3% (0.0% to 10.6%); 0.0628'
    """

    value: float
    low: float = math.nan
    high: float = math.nan
    note: str = ""
    chance: float | None = None
    p: float | None = None

    @property
    def has_interval(self) -> bool:
        """Whether there is an interval; if not, ``note`` has the reason."""
        return not math.isnan(self.low)

    def to_dict(self) -> dict[str, Any]:
        """Return plain numbers; the ends are None where there is no interval."""
        ends = {"low": self.low, "high": self.high} if self.has_interval else {"low": None, "high": None}
        more = {"chance": self.chance, "p": self.p, "note": self.note or None}
        return {"value": self.value, **ends, **{name: v for name, v in more.items() if v is not None}}

    def __eq__(self, other: object) -> bool:  # NaN, the ends of no interval, is equal to itself
        mine, its = vars(self).values(), vars(other).values() if isinstance(other, Estimate) else [object()] * 6
        return all(a == b or (a != a and b != b) for a, b in zip(mine, its))

    def __hash__(self) -> int:
        return hash(self.value)

    def __float__(self) -> float:
        return float(self.value)

    def __format__(self, spec: str) -> str:
        """Write value and interval alike; without a format three digits of the largest, or three decimals."""
        if not all(map(math.isfinite, (self.value, self.low, self.high))):
            return format(self.value, spec) if spec and math.isfinite(self.value) else _number(self.value)
        if not spec:
            largest = max(abs(self.value), abs(self.low), abs(self.high), 1e-6)
            spec = f".{min(max(2 - math.floor(math.log10(largest)), 0), 3 if largest >= 0.005 else 6)}f"
        return f"{self.value:{spec}} ({self.low:{spec}} to {self.high:{spec}})"

    def __str__(self) -> str:
        return format(self, "")

    def _repr_html_(self) -> str:
        p = "" if self.p is None else f"; p = {self.p:.3g}"
        chance = "" if self.chance is None else f"<br>by chance {self.chance:.4g}{p}"
        note = f"<br>{html.escape(self.note)}" if self.note else ""
        return f"<b>{html.escape(str(self))}</b>{chance}{note}"


class Table:
    """A result with columns. A dataclass of equally long arrays needs nothing else; others override `columns`.

    Examples
    --------
    >>> @dataclass(frozen=True)
    ... class Found(Table):
    ...     method: list[str]
    ...     nll: list[float | Estimate]
    >>> print(Found(["ts", "bayes"], [0.51239, Estimate(0.5, 0.4, 0.61)]))
    method  nll
    ts      0.5124
    bayes   0.500 (0.400 to 0.610)
    """

    def columns(self) -> Columns:
        """Return the columns by name; all have the same length. A cell may be an `Estimate`."""
        assert is_dataclass(self)
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def shown(self) -> Columns:
        """Return the columns that are printed; by default all."""
        return self.columns()

    def notes(self) -> Sequence[str]:
        """Return lines to print below the table."""
        return ()

    def to_dict(self) -> dict[str, Any]:
        """Return plain lists by name; an `Estimate` is a dict."""
        return {
            name: plain([cell.to_dict() if isinstance(cell, Estimate) else cell for cell in cells])
            for name, cells in self.columns().items()
        }

    def to_frame(self) -> Any:
        """Return a pandas DataFrame; intervals have columns of their own, ``…_low`` and ``…_high``."""
        found: dict[str, Any] = {}
        for name, cells in self.columns().items():
            if not any(isinstance(cell, Estimate) for cell in cells):
                found[name] = cells if isinstance(cells, np.ndarray) else list(cells)
                continue
            prefix = "" if name == "value" else f"{name}_"
            found[name] = [math.nan if cell is None else float(cell) for cell in cells]
            found |= {f"{prefix}{end}": [getattr(cell, end, math.nan) for cell in cells] for end in ("low", "high")}
        return require("pandas", why="for to_frame()").DataFrame(found)

    def __str__(self) -> str:
        """Write the table, 80 columns wide: what does not fit beside goes below."""
        notes = (line for note in self.notes() for line in textwrap.wrap(note, WIDTH, subsequent_indent="  "))
        return "\n".join([*_lines(_cells(self.shown())), *notes])

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        cells = _cells(self.shown())

        def row(tag: str, texts: Sequence[str]) -> str:
            return f"<tr>{''.join(f'<{tag}>{html.escape(text)}</{tag}>' for text in texts)}</tr>"

        body = "".join(row("td", texts) for texts in zip(*cells.values()))
        notes = "".join(f"<p>{html.escape(note)}</p>" for note in self.notes())
        return f"<div><table><thead>{row('th', list(cells))}</thead><tbody>{body}</tbody></table>{notes}</div>"


def _number(value: float) -> str:
    """Write a number: four digits are enough to read.

    >>> [_number(v) for v in (0.123456, float("nan"), float("inf"), 123456.7)]
    ['0.1235', '–', '∞', '123457']
    """
    if math.isnan(value):
        return "–"
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    return f"{value:.0f}" if 1e4 <= abs(value) < 1e9 else f"{value:.4g}"


def _text(cell: Any) -> str:
    if cell is None or isinstance(cell, str):
        return cell or ""
    if isinstance(cell, bool | np.bool_):
        return "yes" if cell else "no"
    return _number(float(cell)) if isinstance(cell, Real) and not isinstance(cell, Integral) else str(cell)


def _cells(columns: Columns) -> dict[str, list[str]]:
    """Write the cells of some rows by the title of their column; one without any text is left out."""
    found = {name.replace("_", " "): list(map(_text, cells)) for name, cells in columns.items()}
    found = {name: cells for name, cells in found.items() if any(cells) or not cells}
    if any(len(cells) > SHOWN_ROWS for cells in found.values()):
        found = {name: [*cells[:EACH_END], "…", *cells[-EACH_END:]] for name, cells in found.items()}
    return found


def _lines(cells: Mapping[str, Sequence[str]]) -> list[str]:
    """Write aligned columns; those that do not fit beside the first go below, with the first again."""
    padded: list[list[str]] = []
    for title, texts in cells.items():
        if not padded:
            texts = [text if len(text) <= WIDTH // 2 else f"{text[: WIDTH // 2 - 1]}…" for text in texts]
        width = max(map(len, [title, *texts]))
        padded.append([text.ljust(width) for text in (title, *texts)])
    blocks = [padded[:1]]
    for column in padded[1:]:
        if sum(len(each[0]) + 2 for each in blocks[-1]) + len(column[0]) > WIDTH:
            blocks.append(padded[:1])
        blocks[-1].append(column)
    return ["  ".join(row).rstrip()[:WIDTH] for block in blocks for row in zip(*block)]
