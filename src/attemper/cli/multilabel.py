"""Labels that do not exclude each other: what fit, apply, evaluate and refer do with them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click
import numpy as np
from click.core import ParameterSource

from attemper.calibrators import METHODS, MultiLabelCalibrator, Provenance, load
from attemper.cli.gates import Gate
from attemper.cli.inputs import pair_specs
from attemper.cli.options import Option
from attemper.cli.output import alone, compact, number, out, plain, print_json, say
from attemper.cli.values import parameters
from attemper.data.label_matrix import as_label_probs, as_label_scores, unit_target
from attemper.decisions import LabelPolicies, label_policies
from attemper.errors import InputError, warn
from attemper.io import InputSpec, ProbRows, write_probs
from attemper.io.label_files import LabelData, read_labels
from attemper.maps import SigmoidMap
from attemper.metrics import LabelMetrics, label_metrics

MEASURES = ("nll", "brier", "ece")
SHOWN = 40  # labels in a table; --json has all

multi_label_option = click.option(
    "--multi-label",
    cls=Option,
    group="Reading",
    is_flag=True,
    help="Several labels can be true at once: N×L log-odds and N×L labels of 0 and 1, NaN or an empty "
    "cell if unknown. In tables the columns are logit_NAME (prob_NAME with --probs) and label_NAME.",
)
uncertain_option = click.option(
    "--uncertain",
    cls=Option,
    group="Reading",
    metavar="unknown|positive|negative|P",
    help="Multi-label: meaning of entries of -1, as in the files of CheXpert; P is a soft label, such as 0.5.",
)


def label_map(map_file: str | None) -> MultiLabelCalibrator | None:
    """Return the map if it is one of labels that do not exclude each other."""
    found = None if map_file is None else load(map_file)
    return found if isinstance(found, MultiLabelCalibrator) else None


def check_uncertain(uncertain: str | None) -> None:
    """Refuse --uncertain where classes exclude each other."""
    if uncertain is not None:
        raise InputError(f"--uncertain {uncertain}: belongs to --multi-label, or to a map of many labels")


def one_number(flag: str, text: str | None) -> float | None:
    """Read a number that is the same for every label."""
    try:
        return None if text is None else float(text)
    except ValueError:
        raise InputError(f"{flag} {text}: expected one number for all labels of this map") from None


def fit_labels(
    inputs: Sequence[str], method: str, output: str, params: Sequence[str], spec: InputSpec, uncertain: str | None
) -> tuple[MultiLabelCalibrator, float]:
    """Fit a map for each label, pooled unless --method names another one; also return the NLL before."""
    source = click.get_current_context().get_parameter_source("method")
    chosen: Any = "pooled"
    if source is not ParameterSource.DEFAULT:
        chosen = METHODS[method](**parameters(params, METHODS[method]))
    elif params:
        raise InputError(f"-p {params[0]}: the pooled fit of many labels has no parameters; use --method with it")
    data = read_labels(inputs, spec)
    calibrator = MultiLabelCalibrator(
        method=chosen,
        input=spec.input,
        zeros_as=spec.zeros_as,
        label_names=data.names,
        uncertain=unit_target(uncertain),
    ).fit(data.scores, data.labels, data.weights)
    calibrator.save(output, provenance=Provenance.now(data.files))
    before: Any = measured(calibrator, data)["none"].micro.nll
    return calibrator, before


def apply_labels(
    calibrator: MultiLabelCalibrator, map_file: str, inputs: Sequence[str], output: str, spec: InputSpec, as_json: bool
) -> None:
    """Write the probabilities of the labels."""
    data = read_for(calibrator, map_file, inputs, spec.updated(labels=None, labels_key=None, need_labels=False))
    write_probs(output, [ProbRows(calibrator.predict_proba(data.scores))], classes=calibrator.label_names_.tolist())
    if as_json:
        print_json({"n_samples": len(data.scores), "output": output})
    else:
        say(f"wrote {len(data.scores)} rows to {output}")


def evaluate_labels(
    calibrator: MultiLabelCalibrator | None,
    map_file: str | None,
    inputs: Sequence[str],
    spec: InputSpec,
    uncertain: str | None,
    gate: Gate,
    as_json: bool,
    **settings: Any,
) -> int:
    """Print metrics by label, micro and macro, before and after the map."""
    if calibrator is None:
        data = read_labels(inputs, spec)
    else:
        assert map_file is not None
        data = read_for(calibrator, map_file, inputs, spec)
        warn_of(calibrator, map_file, inputs)
    found = measured(calibrator, data, spec, uncertain, **settings)
    rows = {method: figures_of(metrics) for method, metrics in found.items()}
    plained = {method: plain(figures) for method, figures in rows.items()}
    gated = gate.check(plained, default=list(rows)[-1])
    if as_json:
        listed = [
            {
                "method": method,
                "map": None if method == "none" else map_file,
                "metrics": plained[method],
                "labels": [metrics.to_dict()[row.label] for row in metrics.by_label],
            }
            for method, metrics in found.items()
        ]
        level = settings["confidence_level"]
        sizes = {"n_samples": len(data.scores), "n_classes": data.scores.shape[1], "confidence_level": level}
        print_json({**sizes, "rows": listed, **gated})
    else:
        names = ["uncalibrated", *([] if map_file is None else [Path(map_file).name])]
        for metrics, name in zip(found.values(), names):
            print_metrics(metrics, f"{name}: {len(data.scores)} samples, {data.scores.shape[1]} labels")
    return gate.end()


def refer_labels(
    calibrator: MultiLabelCalibrator,
    map_file: str,
    val: str,
    test: str,
    spec: InputSpec,
    output: str | None,
    uncertain: str | None,
    as_json: bool,
    **asked: Any,
) -> None:
    """Choose a policy for each label on VAL, and evaluate them on TEST."""
    warn_of(calibrator, map_file, [val, test])
    pair = [read_for(calibrator, map_file, path, of) for path, of in zip((val, test), pair_specs(val, spec))]
    probs = [calibrator.predict_proba(data.scores) for data in pair]
    meant: Any = calibrator.uncertain if uncertain is None else unit_target(uncertain)
    names = calibrator.label_names_.tolist()
    policies = label_policies(probs[0], pair[0].labels, label_names=names, uncertain=meant, **asked)
    outcomes = policies.outcomes(pair[1].labels, probs[1], uncertain=meant)
    if output is not None:
        policies.save(output)
    if as_json:
        print_json(
            {
                "method": f"multilabel {calibrator.method_name}",
                "n_fitted": 0,
                "n_chosen": len(pair[0].scores),
                "labels": [
                    {
                        "label": name,
                        "policy": policy.to_dict(),
                        "test": outcomes[name].to_dict() if name in outcomes else None,
                    }
                    for name, policy in zip(policies.label_names, policies.policies)
                ],
                "output": output,
                "map": map_file,
            }
        )
        return
    out.print(
        f"Map: {map_file}. Policies: chosen on {len(pair[0].scores)} samples, evaluated on {len(pair[1].scores)}."
    )
    out.print(f"{policies.promise()[:1].upper()}{policies.promise()[1:]}.")
    table = compact("label", "threshold", "referred", "caught", "missed", "miss rate")
    for name, policy in zip(policies.label_names, policies.policies):
        table.add_row(name, *_outcome(policies, name, outcomes, policy))
    out.print(table)
    if output is not None:
        out.print(f"wrote {output}")


def _outcome(policies: LabelPolicies, name: str, outcomes: Mapping[str, Any], policy: Any) -> list[str]:
    threshold = "costs" if policy.threshold is None else f"{policy.threshold:.4g}"
    if name not in outcomes:
        return [threshold, "", "", "", "no entry is known"]
    found = outcomes[name].all
    rate = "" if found.miss_rate is None else number(found.miss_rate)
    return [threshold, f"{found.referred / found.n:.1%}", f"{found.caught:g}", f"{found.missed:g}", rate]


def read_for(
    calibrator: MultiLabelCalibrator, map_file: str, inputs: str | Sequence[str], spec: InputSpec
) -> LabelData:
    """Read files as the map knows them: its names and input kind."""
    if spec.probs and calibrator.input == "logits":
        raise InputError(f"--probs: {map_file} was fitted on logits; pass logits")
    spec = spec.updated(input=calibrator.input, zeros_as=calibrator.zeros_as)
    names = calibrator.label_names_.tolist()
    data = read_labels(inputs, spec, names)
    if data.scores.shape[1] != len(names):
        raise InputError(f"expected {len(names)} labels, as {map_file} has, got {data.scores.shape[1]}")
    return data


def warn_of(calibrator: MultiLabelCalibrator, map_file: str, inputs: Sequence[str]) -> None:
    """Warn if the map was fitted on one of these files."""
    provenance = getattr(calibrator, "provenance_", None)
    for file in [] if provenance is None else provenance.among(inputs):
        warn(f"{file}: {map_file} was fitted on this file (same sha256). It looks better there than it is; use others.")


def measured(
    calibrator: MultiLabelCalibrator | None,
    data: LabelData,
    spec: InputSpec | None = None,
    uncertain: str | None = None,
    **settings: Any,
) -> dict[str, LabelMetrics]:
    """Metrics without a map ("none"), and after it."""
    of_probs = calibrator.input == "probs" if calibrator is not None else spec is not None and spec.probs
    names = data.names if calibrator is None else calibrator.label_names_.tolist()
    if of_probs:
        before = as_label_probs(data.scores, names, logs=False)
    else:
        one, zero = np.ones(data.scores.shape[1]), np.zeros(data.scores.shape[1])
        before = SigmoidMap(one, one, zero).apply(as_label_scores(data.scores, names))
    probs = {"none": before}
    if calibrator is not None:
        probs[f"multilabel {calibrator.method_name}"] = calibrator.predict_proba(data.scores)
    meant = calibrator.uncertain if uncertain is None and calibrator is not None else unit_target(uncertain)
    return {
        method: label_metrics(
            data.labels, p, uncertain=meant, label_names=names, sample_weight=data.weights, **settings
        )
        for method, p in probs.items()
    }


def figures_of(metrics: LabelMetrics) -> dict[str, Any]:
    """Figures of all labels, by names such as micro_nll."""
    return {f"{row.label}_{name}": getattr(row, name) for row in (metrics.micro, metrics.macro) for name in MEASURES}


def print_metrics(metrics: LabelMetrics, title: str) -> None:
    """Print a table, one label a row, micro and macro last."""
    table = compact("label", "known", "positive", "NLL", "Brier", "ECE", title=title)
    shown = metrics.by_label[:SHOWN]
    for row in (*shown, metrics.micro, metrics.macro):
        figures = [alone(row.nll), alone(row.brier), number(row.ece)]
        table.add_row(row.label, f"{row.n_known:g}", f"{row.prevalence:.1%}", *figures)
    out.print(table)
    if len(shown) < len(metrics.by_label):
        out.print(f"The first {len(shown)} of {len(metrics.by_label)} labels; --json has all.")
