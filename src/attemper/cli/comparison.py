"""A comparison of methods, as a table and as JSON."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from attemper.cli.output import alone, by_chance, compact, for_readers, number, out, plain, print_reasons, with_p
from attemper.cli.verbosity import warning
from attemper.comparison import Comparison, CrossValidated
from attemper.comparison.selection import named
from attemper.maps import ScaleMap
from attemper.metrics import Estimate

SHOWN = {"accuracy": "accuracy", "nll": "NLL", "brier": "Brier", "ece": "ECE"}

WIDE = 178  # columns that the table with every interval takes


def print_comparison(result: Comparison, interval: float) -> None:
    """Print the table of methods and the recommendation; what a narrow terminal has no room for is left out."""
    wide = out.width >= WIDE
    ece = "ECE (p)" if has_p(result) else "ECE"
    titles = ["accuracy", "NLL", "Brier", "ECE", "chance"] if wide else ["accuracy", "NLL", ece]
    titles = [*(["CV NLL"] if result.n_folds else []), *titles, "area", "changed", "T"]
    table = compact("method", *titles)
    table.padding = (0, 2 if wide else 1, 0, 0)
    for row in result.rows:
        if row.metrics is None:
            continue
        t = "" if row.temperature is None else f"{row.temperature:.3f}"
        changed = "" if row.changed == 0 else f"{row.changed:.1%}"
        star = "*" if row.method in (result.confidence_set or ()) else " "
        held_out = [cross_validated(row.cv, wide)] if result.n_folds else []
        nll = row.metrics["nll"]
        if wide:
            figures = [number(row.metrics["accuracy"]), number(nll) + star, alone(row.metrics["brier"])]
            figures += [number(row.metrics["ece"]), by_chance(row.metrics["ece"])]
        else:
            figures = [alone(row.metrics["accuracy"]), alone(nll) + star, with_p(row.metrics["ece"])]
        area = "" if row.referral_area is None else alone(row.referral_area)
        table.add_row(for_readers(row.method), *held_out, *figures, area, changed, t)
    out.print(table)
    for line in legend(result, interval, wide):
        out.print(line, style="dim")
    print_reasons([{m: row.metrics[m] for m in SHOWN} for row in result.rows if row.metrics is not None])
    for row in result.rows:
        if row.metrics is None:
            why = row.failure if row.failure.startswith("left out") else f"failed: {row.failure}"
            out.print(f"{row.method}: {why}")
        for text in row.notes:
            warning(text)
    out.print()
    out.print(result.reason)


def has_p(result: Comparison) -> bool:
    """Whether there is a p-value of the ECE; with clusters there is none."""
    found = [row.metrics["ece"] for row in result.rows if row.metrics is not None]
    return any(isinstance(ece, Estimate) and ece.p_value is not None for ece in found)


def legend(result: Comparison, interval: float, wide: bool) -> Iterator[str]:
    """Explain the columns, a line each."""
    with_intervals = f", with {interval:.0%} intervals" if wide else ""
    if result.n_folds:
        more = ", and the difference to the recommended method with its standard error" if wide else ""
        yield f"CV NLL: on held-out validation samples, which select{more}."
    which = "The other columns" if result.n_folds else "The columns"
    yield f"{which} are of the test set, which evaluates only{with_intervals}."
    if result.confidence_set is not None:
        yield f"*: with {interval:.0%} confidence, one of these has the lowest NLL, to within 0.001."
    if has_p(result) and wide:
        yield "chance: mean ECE of a perfectly calibrated network; p: share of its draws that reach the ECE."
    elif has_p(result):
        yield "p: share of draws of a perfectly calibrated network that reach the ECE."
    yield "area: how well confidence ranks errors, for referral."
    yield "changed: share of predictions that differ from the network's."
    others = [row.method for row in result.rows if row.temperature is not None and not isinstance(row.map, ScaleMap)]
    if others:
        yield f"T: {named(others)} {'has' if len(others) == 1 else 'have'} other parameters too."
    if not wide:
        yield f"A terminal of {WIDE} columns, or --json, shows intervals."


def cross_validated(found: CrossValidated | None, wide: bool) -> str:
    """Write the NLL on held-out samples; with the difference to the recommended method where there is room."""
    if found is None:
        return "–"
    if not wide or not np.isfinite(found.nll) or found.standard_error == 0:
        return f"{found.nll:.4f}"
    return f"{found.nll:.4f} ({found.above:+.4f} ± {found.standard_error:.4f})"


def comparison_json(result: Comparison) -> dict[str, Any]:
    """Return the same as plain numbers."""
    rows = [
        {
            "method": row.method,
            "temperature": row.temperature,
            "seconds": row.seconds,
            "changed": row.changed,
            "cv": None if row.cv is None else row.cv._asdict(),
            "metrics": None if row.metrics is None else plain(row.metrics),
            **plain({name: getattr(row, name) for name in ("referral_area", "above_best")}),
            "notes": list(row.notes),
            "failure": row.failure or None,
        }
        for row in result.rows
    ]
    return {
        "rows": rows,
        "recommended": result.recommended,
        "reason": result.reason,
        "selected_by": result.selected_by,
        "n_folds": result.n_folds,
        "confidence_set": None if result.confidence_set is None else list(result.confidence_set),
    }
