"""Results with columns: a data frame on request, and a table in a notebook."""

from __future__ import annotations

import html
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from numbers import Integral, Real
from typing import Any

import numpy as np

from attemper.errors import require

__all__ = ["Table", "as_list", "as_table"]

SHOWN_ROWS = 20  # a longer table shows its first and last rows
EACH_END = 5
TEXT = "text-align: left; padding: 0.2em 0.4em"
NUMBER = "text-align: right; white-space: nowrap; padding: 0.2em 0.4em"
HEAD = {TEXT: TEXT, NUMBER: NUMBER.replace("white-space: nowrap; ", "")}

Columns = Mapping[str, Sequence[Any] | np.ndarray[Any, Any]]


class Table:
    """A result with columns: ``to_pandas()`` and HTML in a notebook.

    A dataclass or named tuple of equally long arrays needs nothing else; others override `_table_columns`. A cell may
    be an `Estimate`: a data frame has its value, and its ends in the columns ``…_low`` and ``…_high``.
    """

    __slots__ = ()

    def to_pandas(self) -> Any:
        """Return a pandas DataFrame; intervals have columns of their own, ``…_low`` and ``…_high``."""
        return require("pandas", why="for to_pandas()").DataFrame(_flat(self._table_columns()))

    def _table_columns(self) -> Columns:
        """Return the columns by name; all have the same length."""
        names = [f.name for f in fields(self)] if is_dataclass(self) else getattr(self, "_fields", ())
        return {name: getattr(self, name) for name in names}

    def _html_columns(self) -> Columns:
        """Return the columns that a notebook shows."""
        return self._table_columns()

    def _html_notes(self) -> Iterable[str]:
        """Return sentences that a notebook shows above the table."""
        return ()

    def _repr_html_(self) -> str:
        return f"<div>{as_list(self._html_notes())}{as_table(self._html_columns())}</div>"


def as_list(sentences: Iterable[str]) -> str:
    """Write sentences as HTML, escaped.

    >>> as_list(["a < b", "c"]), as_list(["a < b"])
    ('<ul><li>a &lt; b</li><li>c</li></ul>', '<p>a &lt; b</p>')
    """
    texts = [html.escape(text) for text in sentences]
    if len(texts) < 2:
        return "".join(f"<p>{text}</p>" for text in texts)
    return f"<ul>{''.join(f'<li>{text}</li>' for text in texts)}</ul>"


def as_table(columns: Columns) -> str:
    """Write columns as an HTML table, escaped: of a long one the first and the last rows.

    It sets no colours, so that it has those of the page, light or dark.

    >>> as_table({"method": ["<b>"], "nll": [0.51239]}).count("&lt;b&gt;")
    1
    """
    cells = {name: list(values) for name, values in columns.items()}
    n = len(next(iter(cells.values()), ()))
    rows: list[int | None] = list(range(n))
    if n > SHOWN_ROWS:
        rows = [*rows[:EACH_END], None, *rows[-EACH_END:]]
    style = {name: TEXT if any(isinstance(v, str) for v in values) else NUMBER for name, values in cells.items()}

    def line(tag: str, texts: Mapping[str, str]) -> str:
        each = (
            f'<{tag} style="{style[name] if tag == "td" else HEAD[style[name]]}">{html.escape(text)}</{tag}>'
            for name, text in texts.items()
        )
        return f"<tr>{''.join(each)}</tr>"

    body = (
        line("td", {name: "…" if row is None else _text(values[row]) for name, values in cells.items()}) for row in rows
    )
    size = f"<p>{n} rows</p>" if n > SHOWN_ROWS else ""
    head = line("th", {name: name.replace("_", " ") for name in cells})
    return f"<table><thead>{head}</thead><tbody>{''.join(body)}</tbody></table>{size}"


def _is_estimate(value: Any) -> bool:
    return isinstance(value, tuple) and getattr(value, "_fields", None) == ("value", "low", "high")


def _text(value: Any) -> str:
    """Write one cell: four digits are enough to read.

    >>> [_text(v) for v in (0.123456, 7, None, True, "ts", float("nan"), float("inf"), 123456.7)]
    ['0.1235', '7', '', 'yes', 'ts', '–', '∞', '123457']
    """
    if value is None or isinstance(value, str):
        return value or ""
    if isinstance(value, bool | np.bool_):
        return "yes" if value else "no"
    if _is_estimate(value):
        return _interval(*value)
    if isinstance(value, Integral) or not isinstance(value, Real):
        return str(value)
    number = float(value)
    if math.isnan(number):
        return "–"
    if math.isinf(number):
        return "∞" if number > 0 else "−∞"
    return f"{number:.0f}" if 1e4 <= abs(number) < 1e9 else f"{number:.4g}"


def _interval(value: float, low: float, high: float) -> str:
    """Write a value and its interval: three digits of the largest, or three decimals, for all.

    >>> _interval(0.0628, 0.0, 0.10551), _interval(0.81037, 0.6124, 1.0631)
    ('0.063 (0.000 to 0.106)', '0.81 (0.61 to 1.06)')
    """
    if not all(map(math.isfinite, (value, low, high))):
        return _text(value)
    largest = max(abs(value), abs(low), abs(high), 1e-6)
    decimals = min(max(2 - math.floor(math.log10(largest)), 0), 3 if largest >= 0.005 else 6)
    return f"{value:.{decimals}f} ({low:.{decimals}f} to {high:.{decimals}f})"


def _flat(columns: Columns) -> dict[str, Any]:
    """Return columns of plain values: an interval is three of them."""
    found: dict[str, Any] = {}
    for name, values in columns.items():
        if not any(_is_estimate(value) for value in values):
            found[name] = values if isinstance(values, np.ndarray) else list(values)
            continue
        prefix = "" if name == "value" else f"{name}_"
        # A plain number has no interval, and what is missing has no value either.
        triples = [v if _is_estimate(v) else (math.nan if v is None else v, math.nan, math.nan) for v in values]
        for part, column in zip((name, f"{prefix}low", f"{prefix}high"), zip(*triples, strict=True), strict=True):
            found[part] = np.array(column, dtype=np.float64)
    return found
