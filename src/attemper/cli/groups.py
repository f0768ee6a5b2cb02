"""What commands with --groups print: a table of the groups, the worst one, and whether all are alike."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rich.text import Text

from attemper.cli.output import compact, for_readers, number, out, share
from attemper.decisions import ClassOutcome
from attemper.metrics import Estimate, GroupMetrics, GroupRow
from attemper.metrics.group_table import and_others

SHOWN = 25  # groups in a table; --json has all


def groups_json(found: Mapping[str, GroupMetrics]) -> dict[str, Any]:
    """Return the metrics of each method by group, for --json; nothing where there are no groups."""
    return {"by_group": [{"method": method, **metrics.to_dict()} for method, metrics in found.items()]} if found else {}


def group_figures(found: GroupMetrics | None) -> dict[str, Any]:
    """Return what --fail-if can be about: worst_gap, worst_nll, …, and alike.p_value."""
    if found is None:
        return {}
    none = {"value": None, "note": "no group has an interval"}
    figures: dict[str, Any] = {f"worst_{name}": w or none for name, w in found.to_dict()["worst"].items()}
    test = found.alike
    return {**figures, "alike": {"value": test.statistic, "p_value": test.p_value, "note": test.note or None}}


def figures_of_groups(found: GroupMetrics | None) -> dict[str, dict[str, Any]]:
    """Return the figures of each group by "group NAME", which can stand before the colon of --fail-if."""
    if found is None:
        return {}
    return {f"group {row.group}": row.to_dict()["metrics"] for row in found.by_group}


def print_groups(found: Mapping[str, GroupMetrics], names: Mapping[str, str] | None = None) -> None:
    """Print a table for each method, and what it shows in sentences."""
    for method, metrics in found.items():
        out.print()
        title = (names or {}).get(method, for_readers(method))
        _print_table(metrics, f"By group, {title}: {len(metrics.by_group)} groups, {_level(metrics)}")
        for line in metrics.sentences():
            out.print(line)


def _level(metrics: GroupMetrics) -> str:
    return f"{metrics.confidence_level:.0%} intervals that hold for all groups together"


def _print_table(metrics: GroupMetrics, title: str) -> None:
    table = compact("group", "samples", "confidence", "accuracy", "gap, points", title=title)
    high, low = metrics.beyond_chance()
    shown = _shown(metrics)
    for row in (*shown, metrics.all):
        star = "*" if row.group in (*high, *low) and row is not metrics.all else " "
        figures = [f"{row.n:.6g}", f"{row.confidence:.1%}", share(row.accuracy), points(row.gap) + star]
        table.add_row(Text(str(row.group)), *figures)
    out.print(table)
    if len(shown) < len(metrics.by_group):
        out.print(f"The {len(shown)} of {len(metrics.by_group)} groups with the clearest gaps; --json has all.")
    out.print("gap: confidence − accuracy, in percentage points; *: 0 is outside the interval.", style="dim")
    out.print("--json has NLL, Brier score and ECE too.", style="dim")


def _shown(metrics: GroupMetrics) -> tuple[GroupRow, ...]:
    """Return the groups of the table: all, or those whose gap is the clearest."""
    if len(metrics.by_group) <= SHOWN:
        return metrics.by_group

    def clear(row: GroupRow) -> float:
        gap = row.gap
        return max(gap.low, -gap.high) if gap.has_interval else -1.0

    chosen = sorted(metrics.by_group, key=clear, reverse=True)[:SHOWN]
    return tuple(row for row in metrics.by_group if row in chosen)


def points(value: Estimate) -> str:
    """Write a difference of shares in percentage points, with its interval.

    >>> points(Estimate(0.14, 0.092, 0.188))
    '+14.0 (+9.2 to +18.8)'
    """
    ends = f" ({100 * value.low:+.1f} to {100 * value.high:+.1f})" if value.has_interval else " (–)"
    return f"{100 * value.value:+.1f}{ends}"


def print_worst(found: Mapping[str, GroupMetrics]) -> None:
    """Print the worst group of each method, and the p-value of "all groups alike"."""
    out.print()
    table = compact("method", "largest gap, %", "of", "highest NLL", "of", "alike, p", title="Worst groups")
    for method, metrics in found.items():
        worst, p = metrics.to_dict()["worst"], metrics.alike.p_value
        cells: list[Any] = [*_worst(worst["gap"], share), *_worst(worst["nll"], number)]
        table.add_row(for_readers(method), *cells, "–" if p is None else f"{p:.2g}")
    out.print(table)


def _worst(found: dict[str, Any] | None, write: Callable[[Estimate], str]) -> tuple[str, Text]:
    if found is None or found["low"] is None:
        return "–", Text("")
    return write(Estimate(found["value"], found["low"], found["high"])), Text(str(found["group"]))


def print_group_outcomes(rows: Sequence[ClassOutcome], miss_rate_of: str, bound: Any = None) -> None:
    """Print what became of each group; of many those with the clearest misses, and those beyond the bound."""
    if not rows:
        return
    out.print()
    table = compact("group", "samples", "referred", "caught", "missed", f"missed of {miss_rate_of}")

    def clear(row: ClassOutcome) -> float:
        return -1.0 if row.miss_rate is None else row.miss_rate.low

    chosen = sorted(rows, key=clear, reverse=True)[:SHOWN]
    for row in (each for each in rows if each in chosen):
        referred = "" if row.referred_share is None else share(row.referred_share)
        missed = "nobody is decided" if row.miss_rate is None else share(row.miss_rate)
        table.add_row(Text(row.name), f"{row.n:.6g}", referred, f"{row.caught:.6g}", f"{row.missed:.6g}", missed)
    out.print(table)
    if len(chosen) < len(rows):
        out.print(f"The {len(chosen)} of {len(rows)} groups with the clearest misses; --json has all.")
    out.print("By group: these intervals hold for all groups together.", style="dim")
    beyond = [row.name for row in rows if isinstance(bound, float) and row.miss_rate and row.miss_rate.low > bound]
    if beyond:
        out.print(f"More than {bound:.1%} are missed, beyond chance, in {and_others(beyond)}.")
