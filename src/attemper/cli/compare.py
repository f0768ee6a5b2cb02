"""`attemper compare`: every method on the same data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from attemper.calibrators import METHODS
from attemper.cli.clusters import clusters_json, say_clusters
from attemper.cli.commands import cli
from attemper.cli.comparison import comparison_json, print_comparison
from attemper.cli.gates import Gate, gating
from attemper.cli.groups import (
    figures_of_groups,
    group_figures,
    groups_json,
    print_groups,
    print_worst,
)
from attemper.cli.inputs import load_pair
from attemper.cli.options import (
    METHOD_LIST,
    confidence_level_option,
    cv_option,
    noise_option,
    noisy_option,
    reading,
    seed_option,
    test_argument,
    val_argument,
)
from attemper.cli.output import print_json
from attemper.cli.progress import counted_methods, shown_progress
from attemper.cli.values import check_noise, method_names
from attemper.comparison import Comparison, compare
from attemper.data.scores import LabelledScores
from attemper.io import InputSpec
from attemper.metrics import GroupMetrics
from attemper.metrics.groups import group_metrics


@cli.command(name="compare", section="Evaluate")
@val_argument
@test_argument
@click.option(
    "--methods",
    type=METHOD_LIST,
    metavar="A,B,…",
    help="Which methods, such as ts,bayes,structured [default: all].",
)
@cv_option
@noisy_option
@noise_option
@confidence_level_option
@seed_option
@reading(groups=True, clusters=True)
@gating
def compare_(
    val: str,
    test: str,
    methods: str | None,
    cv: int | None,
    noisy: bool,
    noise: str | None,
    confidence_level: float,
    seed: int,
    spec: InputSpec,
    gate: Gate,
    as_json: bool,
) -> int:
    """Fit every method on VAL, recommend one by cross-validation on VAL, and evaluate all on TEST.

    The recommended method is structured (or bayes, or ts, if structured is not compared), unless another one has a
    lower NLL on held-out samples of VAL, beyond chance. TEST is not used for it. With --noisy the labels of VAL cannot
    be used to select.

    With --groups the command also reports the worst group of each method, and each group of TEST: uncalibrated and with
    the recommended method, as in `attemper evaluate --groups`. Every method fits one map for all groups.

    Exit code 0: done; 1: a condition of --fail-if holds, for the recommended method unless it names one; 2: an error.

    \b
    attemper compare val.npz test.npz
    attemper compare val.npz test.npz --clusters patient_id
    attemper compare val.csv test.csv --groups site
    attemper compare val.npz test.npz --fail-if 'ece.low>0.02'
    attemper compare val.npy test.npy --labels val_y.npy --labels test_y.npy
    """  # noqa: D301 (click wants the control character)
    check_noise(noisy, noise)
    pair = load_pair(val, test, spec)
    result = compared(
        pair.val,
        pair.test,
        method_names(methods),
        cv=cv,
        noisy=noisy,
        noise=noise,
        confidence_level=confidence_level,
        seed=seed,
    )
    content = comparison_json(result)
    figures = {row["method"]: figures_of(row) for row in content["rows"] if row["metrics"] is not None}
    grouped = grouped_rows(result, pair.test, confidence_level, seed)
    best = grouped.get(result.recommended)
    figures = {method: row | group_figures(grouped.get(method)) for method, row in figures.items()}
    gated = gate.check(figures | figures_of_groups(best), default=result.recommended)
    if as_json:
        print_json({**content, **clusters_json(pair.test), **groups_json(grouped), **gated})
    else:
        say_clusters(pair.test, "TEST: ")
        print_comparison(result, confidence_level)
        if grouped:
            print_worst(grouped)
            print_groups({method: grouped[method] for method in dict.fromkeys(("none", result.recommended))})
    return gate.end()


def figures_of(row: dict[str, Any]) -> dict[str, Any]:
    """Return what --fail-if can be about."""
    cv = {} if row["cv"] is None else {"cv_nll": row["cv"]["nll"]}
    areas = {name: row[name] for name in ("referral_area", "above_best") if row[name] is not None}
    return {**row["metrics"], **cv, **areas, "changed": row["changed"]}


def grouped_rows(
    result: Comparison, test: LabelledScores, confidence_level: float, seed: int
) -> dict[str, GroupMetrics]:
    """Return the metrics of each method by group; nothing where there are no groups."""
    if test.groups is None:
        return {}
    rows = {row.method: row.predictions for row in result.rows if row.predictions is not None}
    settings: dict[str, Any] = {"confidence_level": confidence_level, "seed": seed}
    found = {}
    with shown_progress("evaluating by group", "methods") as update:
        for done, (method, p) in enumerate(rows.items()):
            update(done, len(rows))
            found[method] = group_metrics(p.weighted(test.weights), **settings)
    return found


def compared(val: LabelledScores, test: LabelledScores, methods: Sequence[str] | None, **settings: Any) -> Comparison:
    """Compare methods, and show how far that is."""
    with counted_methods(1 + len(methods or METHODS)) as tick:
        return compare(val, test, methods, **settings, tick=tick)
