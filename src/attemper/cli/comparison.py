"""A comparison of methods, as a table and as JSON."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from attemper.cli.output import alone, compact, err, for_readers, out, plain, print_reasons, with_p
from attemper.comparison import Comparison
from attemper.metrics import Estimate

SHOWN = ("accuracy", "nll", "brier", "ece")


def print_comparison(result: Comparison, interval: float) -> None:
    """Print the table of methods and the recommendation."""
    ece = "ECE (p)" if has_p(result) else "ECE"
    held_out = ["CV NLL"] if result.n_folds else []
    table = compact("method", *held_out, "accuracy", "NLL", "Brier", ece, "area", "changed", "T")
    for row in result.rows:
        if row.metrics is None:
            continue
        cells = [] if not result.n_folds else ["–" if row.cv is None else f"{row.cv.nll:.4f}"]
        star = "*" if row.method in (result.confidence_set or ()) else " "
        cells += [alone(row.metrics["accuracy"]), alone(row.metrics["nll"]) + star, alone(row.metrics["brier"])]
        cells += [with_p(row.metrics["ece"]), "" if row.referral_area is None else alone(row.referral_area)]
        cells += ["" if row.changed == 0 else f"{row.changed:.1%}"]
        table.add_row(for_readers(row.method), *cells, "" if row.temperature is None else f"{row.temperature:.3f}")
    out.print(table)
    for line in legend(result, interval):
        out.print(line, style="dim")
    print_reasons([{m: row.metrics[m] for m in SHOWN} for row in result.rows if row.metrics is not None])
    for row in result.rows:
        if row.metrics is None:
            why = row.failure if row.failure.startswith("left out") else f"failed: {row.failure}"
            out.print(f"{row.method}: {why}")
        for text in row.notes:
            err.print(f"warning: {text}")
    out.print()
    out.print(result.reason)


def has_p(result: Comparison) -> bool:
    """Whether there is a p-value of the ECE; with clusters there is none."""
    found = [row.metrics["ece"] for row in result.rows if row.metrics is not None]
    return any(isinstance(ece, Estimate) and ece.p_value is not None for ece in found)


def legend(result: Comparison, interval: float) -> Iterator[str]:
    """Explain the columns, a line each."""
    if result.n_folds:
        yield "CV NLL: on held-out validation samples, which select."
    yield f"{'The other' if result.n_folds else 'The'} columns are of the test set; --json has intervals."
    if result.confidence_set is not None:
        yield f"*: with {interval:.0%} confidence, one of these has the lowest NLL, to within 0.001."
    if has_p(result):
        yield "p: share of draws of a perfectly calibrated network that reach the ECE."
    yield "area: how well confidence ranks errors, for referral."
    yield "changed: share of predictions that differ from the network's."


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
