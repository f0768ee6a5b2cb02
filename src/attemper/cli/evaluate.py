"""`attemper evaluate`: how well confidence and truth agree."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click
from rich.table import Table
from rich.text import Text

from attemper.cli.commands import cli
from attemper.cli.inputs import Fitted, in_double, read_files
from attemper.cli.options import confidence_level_option, files_argument, reading, seed_option
from attemper.cli.output import by_chance, number, out, plain, print_json, print_reasons
from attemper.cli.paths import INPUT
from attemper.io import InputSpec
from attemper.maps import ScaleMap
from attemper.metrics import evaluate


@cli.command(name="evaluate", section="Evaluate")
@files_argument
@click.option("--map", "map_file", type=INPUT, metavar="MAP", help="Also show the figures after this fitted map.")
@click.option(
    "--n-bins",
    metavar="N|auto",
    default="15",
    show_default=True,
    help="Bins of ECE and MCE; auto: the cube root of the number of samples.",
)
@confidence_level_option
@seed_option
@reading()
def evaluate_(
    inputs: Sequence[str],
    map_file: str | None,
    n_bins: str,
    confidence_level: float,
    seed: int,
    spec: InputSpec,
    as_json: bool,
) -> None:
    """Measure how far confidence and accuracy differ, with intervals.

    Accuracy, NLL, Brier score and its parts (miscalibration − discrimination + uncertainty), ECE (bins of equal
    width; of equal mass; class-wise; smooth, without bins), MCE and MMCE. Next to a calibration error: what perfect
    calibration would show by chance, and p, the share of its draws that reach it.
    With fewer than 20 errors only the accuracy has an interval.

    \b
    attemper evaluate test.npz
    attemper evaluate test.npz --map attemper.json
    """  # noqa: D301 (click wants the control character)
    fitted = None if map_file is None else Fitted.load(map_file)
    scores = in_double(read_files(inputs, spec, fitted).load())
    log_probs = {"as given": ScaleMap(1.0).log_apply(scores.logits)}
    if fitted is not None:
        fitted.warn_of(inputs)
        log_probs[Path(fitted.path).name] = fitted.calibrator.predict_log_proba(scores)
    found = {
        name: evaluate(
            scores.labels,
            given,
            n_bins=int(n_bins) if n_bins.isdecimal() else n_bins,
            input="log_probs",
            sample_weight=scores.weights,
            clusters=scores.clusters,
            confidence_level=confidence_level,
            seed=seed,
        )
        for name, given in log_probs.items()
    }
    if as_json:
        print_json({name: plain(metrics) for name, metrics in found.items()})
        return
    table = Table(title=f"{len(scores)} samples, {scores.n_classes} classes, {confidence_level:.0%} intervals")
    table.add_column("measure")
    for name in found:
        table.add_column(Text(name), justify="right")
        table.add_column("chance", justify="right")
    for measure in next(iter(found.values())):
        table.add_row(measure, *(write(f[measure]) for f in found.values() for write in (number, by_chance)))
    out.print(table)
    print_reasons(found.values())
