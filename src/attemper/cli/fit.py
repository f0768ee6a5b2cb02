"""`attemper fit`: a map from validation data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from attemper._paths import PathOrURL, expand_paths
from attemper.calibrators import METHODS, Calibrator, MultiLabelCalibrator, Provenance
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
)
from attemper.cli.output import print_json, say
from attemper.cli.paths import OUTPUT
from attemper.cli.progress import shown_progress, unit_of
from attemper.cli.values import check_noise, parameters
from attemper.data.scores import LabelledScores, Scores
from attemper.errors import InputError
from attemper.fitting import fit_and_return_data
from attemper.group_sketches import GroupSketches
from attemper.io import InputSpec, ScoreFiles
from attemper.maps import ScaleMap
from attemper.metrics import nll
from attemper.sketch import Sketch

NAMED = ("bayes", "structured", "ts", "ats")


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
    "support them; may change predictions. ts, ats: temperature scaling, attended. Others: "
    + ", ".join(name for name in METHODS if name not in NAMED)
    + ".",
)
@click.option(
    "-o",
    "--output",
    type=OUTPUT,
    default="attemper.json",
    show_default=True,
    help="Where to write the fitted map.",
)
@noisy_option
@noise_option
@param_option
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
    multi_label: bool,
    uncertain: str | None,
    spec: InputSpec,
    spread: dict[str, Any],
    as_json: bool,
) -> None:
    """Fit a calibration map on validation data.

    INPUT is one file or several that are one data set (or a pattern in quotes): .npz, .npy with --labels, .csv, .jsonl,
    .safetensors, .parquet; or sketches (.json) that `attemper sketch` wrote. Large files are read in chunks, several at
    a time with --workers; methods other than ts, ats and bayes need all logits in memory. The result is the same, to
    the last bit, for any number of workers.

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
    attemper fit north.sketch.json south.sketch.json
    """  # noqa: D301 (click wants the control character)
    calibrator: Calibrator | MultiLabelCalibrator
    before: float | None
    by_group, data = None, None
    paths = expand_paths(inputs)
    if multi_label:
        if noisy or noise or spread:
            raise InputError("--multi-label: takes --method, -p and options of reading files alone")
        calibrator, before = fit_labels(inputs, method, output, params, spec, uncertain)
        method, what = f"multilabel {calibrator.method_name}", "labels"
    else:
        check_uncertain(uncertain)
        calibrator, data, read = fit_classes(paths, METHODS[method], noisy, noise, params, spec, spread)
        calibrator.save(output, provenance=Provenance.now(read))
        before, by_group, what = nll_before(data), nll_by_group(calibrator, data), "classes"
    report = calibrator.fit_report_
    if as_json:
        names = ("nll", "converged", "log_t_error", "objective_gap", "gradient_norm", "message")
        sizes = {"n_samples": report.n_samples, "n_classes": calibrator.n_features_in_, "n_shards": len(paths)}
        figures = {"nll_none": before, **{name: getattr(report, name) for name in names}, "output": output}
        more = {} if by_group is None else {"nll_groups": by_group}
        print_json({**calibrator.summary(), "method": method, **sizes, **figures, **more, **clusters_json(data)})
        return
    say(f"{report.n_samples} samples, {calibrator.n_features_in_} {what}, method {method}")
    say_clusters(data)
    for line in calibrator.describe():
        say(f"  {line}")
    common = "" if by_group is None else f" with the common map, {by_group:.4f} with the maps of the groups"
    wrong = " (of labels that may be wrong; right ones lower it)" if noisy else ""
    say(f"  validation NLL {'' if before is None else f'{before:.4f} → '}{report.nll:.4f}{common}{wrong}")
    say(f"  {report.message}")
    say(f"wrote {output}")


def fit_classes(
    paths: list[PathOrURL],
    cls: type[Calibrator],
    noisy: bool,
    noise: str | None,
    params: Sequence[str],
    spec: InputSpec,
    spread: dict[str, Any],
) -> tuple[Calibrator, Scores | Sketch | GroupSketches | None, Sequence[Any]]:
    """Fit a map of classes that exclude each other; also return the data, and the files that were read."""
    check_noise(noisy, noise)
    if noisy and not cls.knows_noise:
        able = ", ".join(name for name, m in METHODS.items() if m.knows_noise)
        raise InputError(f"--noisy belongs to the methods {able}; {cls.method} takes every label for right")
    given = parameters(params, cls) | {"input": spec.input, "zeros_as": spec.zeros_as, "classes": spec.classes}
    calibrator = cls.for_labels(noisy=noisy, noise=noise, **given)
    if spec.axis is not None:
        calibrator.set_params(axis=spec.axis, ignore_index=spec.ignore_index)
    source = open_first(paths, spec, spread)
    with shown_progress(f"fitting {cls.method}", unit_of(source)) as progress:
        data = fit_and_return_data(calibrator, source, spec, progress=progress, **spread)
    return calibrator, data, source.files if isinstance(source, ScoreFiles) else [*paths, *(spec.labels or ())]


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
