"""What commands with --groups print: a table of the groups, the worst one, and whether all are alike."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.text import Text

from attemper.cli.output import compact, for_readers, out, print_reasons
from attemper.decisions import ClassOutcome
from attemper.io import InputSpec
from attemper.io.spec import is_id_file
from attemper.metrics import Estimate, GroupMetrics, GroupRow
from attemper.metrics.group_table import and_others

SHOWN = 25  # groups in a table; --json has all
WIDE = 150  # columns that the table with every metric takes
OTHERS = {"nll": "NLL", "brier": "Brier", "ece_debiased": "ECE, debiased"}


def of_val(val_spec: InputSpec, spec: InputSpec) -> InputSpec:
    """Return how VAL is read: a file with the groups of TEST is not of VAL."""
    if is_id_file(spec.groups_key) and val_spec.groups_key == spec.groups_key:
        return val_spec.updated(groups_key=None)
    return val_spec


def groups_json(found: Mapping[str, GroupMetrics]) -> dict[str, Any]:
    """Return the metrics of each method by group, for --json; nothing where there are no groups."""
    return {"by_group": [{"method": method, **metrics.to_dict()} for method, metrics in found.items()]} if found else {}


def group_figures(found: GroupMetrics | None) -> dict[str, Any]:
    """Return what --fail-if can be about: worst_gap, worst_nll, …, and alike.p_value."""
    if found is None:
        return {}
    none = {"value": None, "note": "no group has an interval"}
    worst = {name: found.worst(name) for name in found.metrics}
    figures: dict[str, Any] = {f"worst_{name}": none if w is None else w[1].to_dict() for name, w in worst.items()}
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
    others = OTHERS if out.width >= WIDE else {}
    clusters = ["clusters"] if others and metrics.all.n_clusters is not None else []
    table = compact(
        "group", "samples", *clusters, "confidence", "accuracy", "gap, points", *others.values(), title=title
    )
    table.padding = (0, 1, 0, 0)
    high, low = metrics.beyond_chance()
    shown = _shown(metrics)
    for row in (*shown, metrics.all):
        star = "*" if row.group in (*high, *low) and row is not metrics.all else " "
        cells = [f"{row.n:.6g}", *([str(row.n_clusters)] if clusters else []), f"{row.confidence:.1%}"]
        cells += [percents(row.accuracy), points(row.gap) + star]
        table.add_row(Text(str(row.group)), *cells, *(_plain(row.metrics[name]) for name in others))
    out.print(table)
    if len(shown) < len(metrics.by_group):
        out.print(f"The {len(shown)} of {len(metrics.by_group)} groups with the clearest gaps; --json has all.")
    out.print("gap: confidence − accuracy, in percentage points; *: 0 is outside the interval.", style="dim")
    if others:
        print_reasons([{name: row.metrics[name] for name in ("nll", "ece_debiased")} for row in shown])
    else:
        out.print(f"A terminal of {WIDE} columns, or --json, shows NLL, Brier score and ECE.", style="dim")


def _shown(metrics: GroupMetrics) -> tuple[GroupRow, ...]:
    """Return the groups of the table: all, or those whose gap is the clearest."""
    if len(metrics.by_group) <= SHOWN:
        return metrics.by_group

    def clear(row: GroupRow) -> float:
        gap = row.gap
        return max(gap.low, -gap.high) if gap.has_interval else -1.0

    chosen = sorted(metrics.by_group, key=clear, reverse=True)[:SHOWN]
    return tuple(row for row in metrics.by_group if row in chosen)


def percents(value: Estimate) -> str:
    """Write a share in percent with its interval.

    >>> percents(Estimate(0.714, 0.662, 0.758))
    '71.4% (66.2–75.8)'
    """
    ends = f" ({100 * value.low:.1f}–{100 * value.high:.1f})" if value.has_interval else " (–)"
    return f"{value.value:.1%}{ends}"


def points(value: Estimate) -> str:
    """Write a difference of shares in percentage points, with its interval.

    >>> points(Estimate(0.14, 0.092, 0.188))
    '+14.0 (+9.2 to +18.8)'
    """
    ends = f" ({100 * value.low:+.1f} to {100 * value.high:+.1f})" if value.has_interval else " (–)"
    return f"{100 * value.value:+.1f}{ends}"


def _plain(value: Estimate) -> str:
    ends = f" ({value.low:.3f}–{value.high:.3f})" if value.has_interval else ""
    return "–" if value.value != value.value else f"{value.value:.3f}{ends}"


def print_worst(found: Mapping[str, GroupMetrics]) -> None:
    """Print the worst group of each method, and the p-value of "all groups alike"."""
    out.print()
    table = compact("method", "largest gap, %", "of", "highest NLL", "of", "alike, p", title="Worst groups")
    table.padding = (0, 1, 0, 0)
    for method, metrics in found.items():
        gap, nll = metrics.worst("gap"), metrics.worst("nll")
        p = metrics.alike.p_value
        table.add_row(
            for_readers(method), *_worst(gap, percents), *_worst(nll, _plain), "–" if p is None else f"{p:.2g}"
        )
    out.print(table)


def _worst(found: tuple[str | int, Estimate] | None, write: Any) -> tuple[str, Text]:
    return ("–", Text("")) if found is None else (write(found[1]), Text(str(found[0])))


def print_group_outcomes(rows: Sequence[ClassOutcome], miss_rate_of: str, bound: Any = None) -> None:
    """Print what became of each group; of many those with the clearest misses, and those beyond the bound."""
    if not rows:
        return
    out.print()
    table = compact("group", "samples", "referred", "caught", "missed", f"missed of {miss_rate_of}")
    table.padding = (0, 1, 0, 0)

    def clear(row: ClassOutcome) -> float:
        return -1.0 if row.miss_rate is None else row.miss_rate.low

    chosen = sorted(rows, key=clear, reverse=True)[:SHOWN]
    for row in (each for each in rows if each in chosen):
        referred = "" if row.referred_share is None else percents(row.referred_share)
        missed = "nobody is decided" if row.miss_rate is None else percents(row.miss_rate)
        table.add_row(Text(row.name), f"{row.n:.6g}", referred, f"{row.caught:.6g}", f"{row.missed:.6g}", missed)
    out.print(table)
    if len(chosen) < len(rows):
        out.print(f"The {len(chosen)} of {len(rows)} groups with the clearest misses; --json has all.")
    out.print("By group: these intervals hold for all groups together.", style="dim")
    beyond = [row.name for row in rows if isinstance(bound, float) and row.miss_rate and row.miss_rate.low > bound]
    if beyond:
        out.print(f"More than {bound:.1%} are missed, beyond chance, in {and_others(beyond)}.")
