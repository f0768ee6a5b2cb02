"""`attemper fit`: a map from validation data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from attemper._paths import expand_paths
from attemper.calibrators import METHODS, Calibrator, Provenance
from attemper.cli.clusters import clusters_json, say_clusters
from attemper.cli.commands import cli
from attemper.cli.inputs import in_double, open_first
from attemper.cli.multilabel import check_uncertain, fit_labels, multi_label_option, uncertain_option
from attemper.cli.options import (
    METHOD,
    Option,
    files_argument,
    noise_option,
    noisy_option,
    param_option,
    reading,
    spreading,
    t_range_option,
)
from attemper.cli.output import print_json
from attemper.cli.paths import JSON_OUTPUT
from attemper.cli.progress import shown_progress, unit_of
from attemper.cli.values import check_noise, parameters
from attemper.cli.verbosity import say
from attemper.data.scores import LabelledScores, Scores
from attemper.errors import InputError
from attemper.fitting import fit_and_return_data
from attemper.group_sketches import GroupSketches
from attemper.io import InputSpec, ScoreFiles
from attemper.maps import ScaleMap
from attemper.metrics import nll
from attemper.sketch import Sketch


@cli.command(section="Calibrate")
@files_argument
@click.option(
    "--method",
    cls=Option,
    group="Fitting",
    type=METHOD,
    default="bayes",
    show_default=True,
    help="bayes: one temperature; keeps predictions. structured: also per-class parameters, as far as the labels "
    "support them; may change predictions. ts, ats: temperature scaling, attended. All of them: `attemper methods`.",
)
@click.option(
    "-o",
    "--output",
    type=JSON_OUTPUT,
    default="attemper.json",
    show_default=True,
    help="Where to write the fitted map.",
)
@noisy_option
@noise_option
@param_option
@click.option("--theta", cls=Option, group="Fitting", type=float, help="ats: use this θ instead of tuning it.")
@click.option(
    "--loss",
    cls=Option,
    group="Fitting",
    type=click.Choice(["paper", "reference"]),
    help="ats: Eq. 8, or the authors' code.",
)
@t_range_option
@multi_label_option
@uncertain_option
@reading(groups=True, clusters=True)
@spreading
def fit(
    inputs: Sequence[str],
    method: str,
    output: str,
    noisy: bool,
    noise: str | None,
    params: Sequence[str],
    theta: float | None,
    loss: str | None,
    t_range: tuple[float, float] | None,
    multi_label: bool,
    uncertain: str | None,
    spec: InputSpec,
    spread: dict[str, Any],
    as_json: bool,
) -> None:
    """Fit a calibration map on validation data.

    INPUT is one file or several that are one data set (or a pattern in quotes): .npz, .npy with --labels, .csv, .jsonl,
    .safetensors, .parquet; or sketches (.json) that `attemper sketch` wrote. Large files are read in chunks, several at
    a time with --workers; some methods (see `attemper methods`) need all logits in memory. The result
    is the same, to the last bit, for any number of workers.

    With --groups each group (a site, a task) also gets its own map; the fewer labels it has, the closer it is to the
    common map. `attemper apply --groups` uses these maps. If fitted from sketches by group, groups differ only in
    temperature.

    \b
    attemper fit val.npz
    attemper fit val.npz --noisy -o net.attemper.json
    attemper fit val.npz --method structured --noisy
    attemper fit val.npz --method vector -p l2=0.01
    attemper fit val.npz --groups site -o map.json
    attemper fit logits.npy --labels labels.npy --method ts
    attemper fit masks.npz --axis 1 --ignore-index 255
    attemper fit findings.csv --multi-label --uncertain unknown
    attemper fit 'shards/*.parquet' --labels-key target
    attemper fit 'shards/*.parquet' --method ats --workers 4
    """  # noqa: D301 (click wants the control character)
    if multi_label:
        if spec.groups_key is not None:
            raise InputError("--groups: maps by group are of classes that exclude each other. Leave it out here.")
        if noisy or noise or theta is not None or loss or t_range or spread:
            raise InputError("--multi-label: takes --method, -p and options of reading files alone")
        fit_labels(inputs, method, output, params, spec, uncertain, as_json)
        return
    check_uncertain(uncertain)
    if (theta is not None or loss is not None) and method != "ats":
        raise InputError("--theta and --loss belong to --method ats")
    cls = METHODS[method]
    check_noise(noisy, noise)
    if noisy and not cls.knows_noise:
        able = ", ".join(name for name, m in METHODS.items() if m.knows_noise)
        raise InputError(f"--noisy belongs to the methods {able}; {method} takes every label for right")
    given = parameters(params, cls) | ({"theta": theta, "loss": loss or "paper"} if method == "ats" else {})
    if t_range is not None:
        if "t_range" not in cls.own_params():
            raise InputError(f"--t-range: {method} has no range of temperatures")
        given["t_range"] = t_range
    calibrator = cls.for_labels(
        noisy=noisy, noise=noise, **given, input=spec.input, zeros_as=spec.zeros_as, classes=spec.classes
    )
    if spec.axis is not None:
        calibrator.set_params(axis=spec.axis, ignore_index=spec.ignore_index)
    paths = expand_paths(inputs)
    source = open_first(paths, spec, spread)
    with shown_progress(f"fitting {method}", unit_of(source)) as progress:
        data = fit_and_return_data(calibrator, source, spec, progress=progress, **spread)
    read = source.files if isinstance(source, ScoreFiles) else [*paths, *dict.fromkeys(spec.labels or ())]
    calibrator.save(output, provenance=Provenance.now(read))
    report, before, by_group = calibrator.fit_report_, nll_before(data), nll_by_group(calibrator, data)
    if as_json:
        print_json(
            calibrator.summary()
            | {
                "method": method,
                "n_samples": report.n_samples,
                "n_classes": calibrator.n_features_in_,
                "n_shards": len(paths),
                "nll_none": before,
                "nll": report.nll,
                "converged": report.converged,
                "log_t_error": report.log_t_error,
                "objective_gap": report.objective_gap,
                "gradient_norm": report.gradient_norm,
                "message": report.message,
                "output": output,
            }
            | ({} if by_group is None else {"nll_groups": by_group})
            | clusters_json(data)
        )
        return
    say(f"{report.n_samples} samples, {calibrator.n_features_in_} classes, method {method}")
    say_clusters(data)
    for line in calibrator.describe():
        say(f"  {line}")
    common = "" if by_group is None else f" with the common map, {by_group:.4f} with the maps of the groups"
    wrong = (
        " (of labels that may be wrong; right ones lower it)" if getattr(calibrator, "labels", "") == "noisy" else ""
    )
    say(f"  validation NLL {'' if before is None else f'{before:.4f} → '}{report.nll:.4f}{common}{wrong}")
    say(f"  {report.message}")
    say(f"wrote {output}")


def nll_by_group(calibrator: Calibrator, data: Scores | Sketch | GroupSketches | None) -> float | None:
    """Return the validation NLL of the maps of the groups; None where there are none, or no rows."""
    if not hasattr(calibrator, "group_maps_") or not isinstance(data, LabelledScores):
        return None
    log_probs = calibrator.predict_log_proba(data)
    return float(nll(data.labels, log_probs, input="log_probs", sample_weight=data.weights))


def nll_before(data: Scores | Sketch | GroupSketches | None) -> float | None:
    """Return the validation NLL without calibration; None where a sketch does not cover T = 1."""
    if isinstance(data, GroupSketches):
        data = data.total
    if isinstance(data, Sketch):
        return data.mean_nll(1.0) if data.t_range[0] <= 1 <= data.t_range[1] else None
    assert data is not None
    scores = in_double(data)
    log_probs = ScaleMap(1.0).log_apply(scores.logits)
    return float(nll(scores.labels, log_probs, input="log_probs", sample_weight=scores.weights))
