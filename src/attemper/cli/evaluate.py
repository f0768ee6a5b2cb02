"""`attemper evaluate`: how well confidence and truth agree."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from attemper.cli.clusters import clusters_json, say_clusters
from attemper.cli.commands import cli
from attemper.cli.gates import Gate, gating
from attemper.cli.groups import figures_of_groups, group_figures, groups_json, print_groups
from attemper.cli.inputs import Fitted, in_double, read_files
from attemper.cli.multilabel import (
    check_uncertain,
    evaluate_labels,
    label_map,
    multi_label_option,
    uncertain_option,
)
from attemper.cli.options import confidence_level_option, files_argument, no_groups_option, reading, seed_option
from attemper.cli.output import compact, number, out, p_of, plain, print_json, print_reasons
from attemper.cli.paths import INPUT
from attemper.cli.progress import shown_progress
from attemper.cli.values import names_listed
from attemper.errors import InputError
from attemper.io import InputSpec
from attemper.maps import ScaleMap
from attemper.metrics import Estimate, GroupMetrics, by_group, evaluate


@cli.command(name="evaluate", section="Evaluate")
@files_argument
@click.option("--map", "map_file", type=INPUT, metavar="MAP", help="Also show the metrics after this fitted map.")
@click.option("--metrics", metavar="A,B,…", help="Show only these, such as nll,ece,smooth_ece [default: all].")
@click.option(
    "--n-bins",
    metavar="N|auto",
    default="15",
    show_default=True,
    help="Bins of ECE and MCE; auto: the cube root of the number of samples.",
)
@confidence_level_option
@seed_option
@multi_label_option
@uncertain_option
@no_groups_option
@reading(groups=True, clusters=True)
@gating
def evaluate_(
    inputs: Sequence[str],
    map_file: str | None,
    metrics: str | None,
    n_bins: str,
    confidence_level: float,
    seed: int,
    multi_label: bool,
    uncertain: str | None,
    no_groups: bool,
    spec: InputSpec,
    gate: Gate,
    as_json: bool,
) -> int:
    """Measure how far confidence and accuracy differ, with intervals.

    The metrics are accuracy, NLL, Brier score and its parts (miscalibration − discrimination + uncertainty), ECE (bins
    of equal width; of equal mass; class-wise; smooth, without bins), MCE and MMCE. Next to each calibration error is
    p, the share of draws of a perfectly calibrated network that reach it. With
    fewer than 20 errors only the accuracy has an interval.

    With --groups the command also reports accuracy, confidence − accuracy (gap), NLL, Brier score and ECE by group,
    with intervals that hold for all groups together. It names the worst group, and tests whether all groups are alike:
    whether, at the same confidence, accuracy does not depend on the group. --fail-if accepts worst_gap, worst_nll, …,
    alike.p_value, and single groups before a colon.

    Exit code 0: done; 1: a condition of --fail-if holds, for the map if there is one; 2: an error.

    \b
    attemper evaluate test.npz
    attemper evaluate test.npz --map map.json
    attemper evaluate test.csv --map map.json --groups site
    attemper evaluate test.csv --groups site --fail-if 'worst_gap.low>0.05'
    attemper evaluate test.csv --groups site --fail-if 'group B:gap.high>0.1'
    attemper evaluate findings.csv --multi-label
    attemper evaluate test.npz --map map.json --fail-if 'ece>0.05'
    """  # noqa: D301 (click wants the control character)
    bins = int(n_bins) if n_bins.isdecimal() else n_bins
    shared: dict[str, Any] = {"n_bins": bins, "confidence_level": confidence_level, "seed": seed}
    labels = label_map(map_file)
    if labels is not None or multi_label:
        if metrics is not None or no_groups:
            raise InputError("--metrics and --no-groups: are for classes that exclude each other")
        return evaluate_labels(labels, map_file, inputs, spec, uncertain, gate, as_json, **shared)
    check_uncertain(uncertain)
    fitted = None if map_file is None else Fitted.load(map_file, no_groups=no_groups)
    with shown_progress("reading") as progress:
        scores = in_double(read_files(inputs, spec, fitted).load(progress))
    log_probs = {"none": ScaleMap(1.0).log_apply(scores.logits)}
    if fitted is not None:
        fitted.warn_of(inputs)
        log_probs[fitted.calibrator.method] = fitted.calibrator.predict_log_proba(scores)
    found: dict[str, Mapping[str, Estimate]] = {}
    grouped: dict[str, GroupMetrics] = {}
    settings: dict[str, Any] = shared | {
        "input": "log_probs",
        "sample_weight": scores.weights,
        "clusters": scores.clusters,
    }
    with shown_progress("evaluating", "sets of figures") as update:
        for done, (method, given) in enumerate(log_probs.items()):
            update(done, len(log_probs))
            figures = evaluate(scores.labels, given, **settings)
            found[method] = {name: figures[name] for name in chosen(metrics, figures)}
            if scores.groups is not None:
                grouped[method] = by_group(scores.labels, given, groups=scores.groups, **settings)
    rows = {method: plain(figures) for method, figures in found.items()}
    default = list(rows)[-1]
    gateable = {method: row | group_figures(grouped.get(method)) for method, row in rows.items()}
    gated = gate.check(gateable | figures_of_groups(grouped.get(default)), default=default)
    if as_json:
        sizes = {"n_samples": scores.n_samples, "n_classes": scores.n_classes, "confidence_level": confidence_level}
        maps = {method: None if method == "none" else map_file for method in rows}
        listed = [{"method": method, "map": maps[method], "metrics": figures} for method, figures in rows.items()]
        print_json({**sizes, **clusters_json(scores), "rows": listed, **groups_json(grouped), **gated})
    else:
        say_clusters(scores)
        title = f"{scores.n_samples} samples, {scores.n_classes} classes, {confidence_level:.0%} intervals"
        names = ["uncalibrated", *([Path(fitted.path).name] if fitted else [])]
        print_figures(found, names, title)
        print_groups(grouped, dict(zip(found, names)))
    return gate.end()


def chosen(metrics: str | None, figures: Mapping[str, Estimate]) -> list[str]:
    """Return the names of the figures to show."""
    names = list(figures) if metrics is None else names_listed(metrics)
    for name in names:
        if name not in figures:
            raise InputError(f"--metrics {metrics}: there is no {name!r}; use some of {', '.join(figures)}")
    return names


def print_figures(found: Mapping[str, Mapping[str, Estimate]], names: Sequence[str], title: str) -> None:
    """Print a table."""
    table = compact("measure", *(column for name in names for column in (name, "p")), title=title)
    for measure in next(iter(found.values())):
        table.add_row(measure, *(text for f in found.values() for text in (number(f[measure]), p_of(f[measure]))))
    out.print(table)
    out.print("p: share of draws of a perfectly calibrated network that reach the value.", style="dim")
    print_reasons(found.values())
