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
from attemper.cli.inputs import load_pair
from attemper.cli.options import (
    METHOD_LIST,
    confidence_level_option,
    noise_option,
    noisy_option,
    reading,
    seed_option,
    selecting,
    test_argument,
    val_argument,
    with_val,
)
from attemper.cli.output import print_json
from attemper.cli.progress import counted_methods
from attemper.cli.values import check_noise, method_names
from attemper.comparison import Comparison, compare
from attemper.data.scores import LabelledScores
from attemper.io import InputSpec


@cli.command(name="compare", section="Evaluate")
@val_argument
@test_argument
@click.option(
    "--methods",
    type=METHOD_LIST,
    metavar="A,B,…",
    help="Which methods, such as ts,bayes,structured; see `attemper methods` [default: all].",
)
@selecting
@noisy_option
@noise_option
@confidence_level_option
@seed_option
@reading(clusters=True)
@with_val(clusters=True)
@gating
def compare_(
    val: str,
    test: str,
    methods: str | None,
    selecting: dict[str, Any],
    noisy: bool,
    noise: str | None,
    confidence_level: float,
    seed: int,
    spec: InputSpec,
    val_spec: InputSpec,
    gate: Gate,
    as_json: bool,
) -> int:
    """Fit every method on VAL, recommend one by cross-validation on VAL, and evaluate all on TEST.

    The recommended method is structured (or bayes, or ts, whichever is compared), unless another one has a lower NLL on
    held-out samples of VAL, beyond chance. TEST has no part in it. With --noisy the labels of VAL cannot select.

    Exit code 0: done; 2: an error; 3: a condition of --fail-if holds, for the recommended method unless it names one.

    \b
    attemper compare val.npz test.npz
    attemper compare val.npz test.npz --clusters patient_id
    attemper compare val.npz test.npz --fail-if 'ece.low>0.02' --junit out.xml
    attemper compare all.npz all.npz --val-logits-key val --val-labels-key val_y
    """  # noqa: D301 (click wants the control character)
    check_noise(noisy, noise)
    pair = load_pair(val, test, val_spec, spec)
    result = compared(
        pair.val,
        pair.test,
        method_names(methods),
        cv=selecting["cv"],
        noisy=noisy,
        noise=noise,
        confidence_level=confidence_level,
        seed=seed,
    )
    content = comparison_json(result)
    figures = {row["method"]: figures_of(row) for row in content["rows"] if row["metrics"] is not None}
    gated = gate.check(figures, default=result.recommended)
    if as_json:
        print_json({**content, **clusters_json(pair.test), **gated})
    else:
        say_clusters(pair.test, "TEST: ")
        print_comparison(result, confidence_level)
    return gate.end(test)


def figures_of(row: dict[str, Any]) -> dict[str, Any]:
    """Return what --fail-if can be about."""
    cv = {} if row["cv"] is None else {"cv_nll": row["cv"]["nll"]}
    areas = {name: row[name] for name in ("referral_area", "above_best") if row[name] is not None}
    return {**row["metrics"], **cv, **areas, "changed": row["changed"]}


def compared(val: LabelledScores, test: LabelledScores, methods: Sequence[str] | None, **settings: Any) -> Comparison:
    """Compare methods, and show how far that is."""
    with counted_methods(1 + len(methods or METHODS)) as tick:
        return compare(val, test, methods, **settings, tick=tick)
