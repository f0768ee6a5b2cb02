"""`attemper inspect`: what a file is, when it was fitted, on what, with what result."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any, get_args

import click

from attemper._json import read_document, to_fields
from attemper._paths import PathOrURL, as_path, checked_file, expand_paths, opened
from attemper.calibrators import METHODS, Calibrator, MultiLabelCalibrator, load
from attemper.calibrators.provenance import DataFile
from attemper.cli.commands import cli
from attemper.cli.output import number, out, plain, print_json
from attemper.cli.paths import INPUT
from attemper.cli.watching import as_dict
from attemper.decisions import LabelPolicies, Policy, SetPolicy
from attemper.drift import load_test
from attemper.drift.files import Watch
from attemper.errors import InputError
from attemper.group_sketches import GroupSketches
from attemper.metrics import RunningMetrics
from attemper.sketch import Sketch

MOST_LABELS = 20  # that are listed

Found = tuple[dict[str, Any], list[str]]  # plain numbers, and a readable summary


@cli.command(section="More")
@click.argument("file", type=INPUT, metavar="FILE")
def inspect(file: str, as_json: bool) -> None:
    """Describe a FILE that attemper wrote: a map, a sketch, a policy, the state of a test, or an ONNX model.

    The command reports when it was fitted, on which data (hash, N, K), and with which result. For files of logits use
    `attemper check`.

    \b
    attemper inspect net.attemper.json
    attemper inspect calibrated.onnx
    """  # noqa: D301 (click wants the control character)
    (path,) = expand_paths(file) if len(expand_paths(file)) == 1 else [as_path(file)]
    checked_file(path)  # neither a device nor a folder
    facts: dict[str, Any] = {"file": file}
    with opened(path) as stream:
        begins = stream.read(64).lstrip()
        stream.seek(0)
        facts["sha256"] = hashlib.file_digest(stream, "sha256").hexdigest()
        facts["bytes"] = stream.tell()
    ending = path.suffix.lower()
    if ending == ".json" or begins.startswith(b"{"):
        found, lines = of_document(path)
    elif isinstance(path, Path) and ending in (".onnx", ".pb"):
        found, lines = of_model(path)
    else:
        raise InputError(
            f"{file}: expected a document that attemper wrote or an ONNX model. For a file of logits or probabilities "
            f"use `attemper check {file}`."
        )
    facts |= found
    if as_json:
        print_json(facts)
        return
    out.print(f"{file}: {lines[0]}")
    for line in [*lines[1:], f"file: {facts['bytes']} bytes, sha256 {facts['sha256']}"]:
        out.print(f"  {line}")


def of_document(path: PathOrURL) -> Found:
    """Look at a document of attemper."""
    tests = tuple(cls.document for cls in get_args(Watch))
    kind = read_document(
        path,
        "calibrator",
        "multilabel",
        "sketch",
        "group_sketches",
        "policy",
        "label policies",
        "set policy",
        *tests,
        "running metrics",
    ).text("attemper")
    if kind in tests:
        facts = as_dict(test := load_test(path), 0)
        state = "no alarm so far"
        if test.alarm:
            state = "alarm" if facts["alarm_at"] is None else f"alarm, at sample {facts['alarm_at']}"
        evidence = "" if facts["p_value"] is None else f"; p = {facts['p_value']:.3g}, alpha {facts['alpha']:g}"
        return (
            {"kind": kind, **{name: facts[name] for name in ("n_samples", "alarm", "p_value")}},
            [
                f"state of {'an' if kind[0] in 'aeiou' else 'a'} {kind}: {state}",
                f"after {test.n_samples} samples{evidence}",
            ],
        )
    if kind == "running metrics":
        metrics = RunningMetrics.load(path)
        result = metrics.result()
        return (
            {"kind": kind, "n_samples": metrics.n_samples, "metrics": plain(result)},
            [
                f"metrics of a stream of {metrics.n_samples} samples",
                *(f"{name} {number(value)}" for name, value in result.items()),
            ],
        )
    if kind == "sketch":
        s = Sketch.load(path)
        accuracy = s.correct / s.weight
        nll = s.mean_nll(1.0) if s.t_range[0] <= 1 <= s.t_range[1] else None
        parts = list(s.tables)
        return (
            {
                "kind": "sketch",
                "n_samples": s.n_samples,
                "n_classes": s.n_classes,
                "t_range": list(s.t_range),
                "accuracy": accuracy,
                "nll_none": nll,
            },
            [
                f"a sketch, from which {', '.join(METHODS.from_sketch())} can be fitted",
                f"of {s.n_samples} samples, {s.n_classes} classes; temperatures {s.t_range[0]:g} to {s.t_range[1]:g}"
                + (f"; parts: {', '.join(parts)}" if parts else ""),
                f"accuracy {accuracy:.4f}" + ("" if nll is None else f", NLL {nll:.4f} before calibration"),
                "a sketch does not record when it was made",
            ],
        )
    if kind == "group_sketches":
        by_group = GroupSketches.load(path)
        counts = {str(key): own.n_samples for key, own in by_group.sketches.items()}
        shown = [f"group {key}: {n} samples" for key, n in list(counts.items())[:MOST_LABELS]]
        return (
            {"kind": kind, "n_samples": by_group.n_samples, "n_classes": by_group.n_classes, "groups": counts},
            [
                f"sketches of {len(by_group)} groups, from which {', '.join(METHODS.from_sketch())} can be fitted",
                f"of {by_group.n_samples} samples, {by_group.n_classes} classes",
                *(shown if len(counts) <= MOST_LABELS else [*shown, f"… {len(counts)} groups in all"]),
            ],
        )
    if kind == "label policies":
        of_labels = LabelPolicies.load(path)
        rules = [f"{name}: {one.rule()}" for name, one in zip(of_labels.label_names, of_labels.policies)]
        rules = rules if len(rules) <= MOST_LABELS else [*rules[:MOST_LABELS], f"… {len(rules)} labels in all"]
        return (
            {"kind": kind, **to_fields(of_labels), "promise": of_labels.promise()},
            [f"referral policies of {len(of_labels.policies)} labels", of_labels.promise(), *rules],
        )
    if kind == "policy":
        p = Policy.load(path)
        words = [
            "a referral policy",
            p.rule(),
            p.promise(),
            f"{p.rationale}; chosen on {p.n_samples} samples, {p.n_classes} classes",
            *p.notes,
        ]
        return {"kind": "policy", **p.to_dict(), "rule": p.rule(), "promise": p.promise()}, words
    if kind == "set policy":
        return of_sets(SetPolicy.load(path))
    return of_calibrator(load(path))


def of_sets(policy: SetPolicy) -> Found:
    """Look at a policy of prediction sets."""
    parts = zip(policy.part_names(), policy.thresholds)
    rows = [f"{name}: {'every class' if t is None else f'{t:.6g}'}" for name, t in parts] if policy.by else []
    rows = rows if len(rows) <= MOST_LABELS else [*rows[:MOST_LABELS], f"… {len(rows)} in all"]
    sizes = f"from {policy.n_samples} samples, {policy.n_classes} classes"
    words = [policy.rule(), policy.promise(), policy.law(), *policy.notes]
    lines = ["prediction sets", *words, f"{sizes}; {policy.lists_of()} are listed", *rows]
    return {"kind": "set policy", **policy.to_dict(), "rule": policy.rule(), "promise": policy.promise()}, lines


def of_calibrator(calibrator: Calibrator | MultiLabelCalibrator) -> Found:
    """Look at a fitted map."""
    names: Any
    if isinstance(calibrator, MultiLabelCalibrator):
        method, names, columns = f"multilabel {calibrator.method_name}", calibrator.label_names_.tolist(), "labels"
    else:
        method, names, columns = calibrator.method, calibrator.class_names, "classes"
    report, provenance = calibrator.fit_report_, getattr(calibrator, "provenance_", None)
    name = type(calibrator.map_).__name__
    facts = {
        **calibrator.summary(),
        "kind": "map",
        "method": method,
        "map_type": calibrator.map_.to_dict()["type"],
        "input": calibrator.input,
        "n_samples": report.n_samples,
        "n_classes": int(calibrator.n_features_in_),
        "classes": names,
        "keeps_arg_max": calibrator.map_.keeps_arg_max,
        "nll": report.nll,
        "converged": report.converged,
        "message": report.message,
        "provenance": None if provenance is None else to_fields(provenance),
    }
    keeps = "never changes the prediction" if calibrator.map_.keeps_arg_max else "may change the prediction"
    lines = [
        f"a map, fitted by {method} ({type(calibrator).__name__}): {name}, takes {calibrator.input}, {keeps}",
        f"on {report.n_samples} samples, {facts['n_classes']} {columns}",
    ]
    if provenance is None:
        lines.append("saved without provenance: when, and on which files, is not recorded")
    else:
        lines.append(f"fitted {provenance.fitted_at} by attemper {provenance.attemper}")
        lines += [f"data: {file.words()}" for file in provenance.files]
    adaptation = getattr(calibrator, "adaptation_", None)
    if adaptation is not None:
        facts["adaptation"] = to_fields(adaptation)
        lines += adaptation.describe(names)
    if names is not None:
        lines.append(f"{columns}: {', '.join(map(str, names[:20]))}{', …' if len(names) > 20 else ''}")
    return facts, [*lines, *calibrator.describe(), f"validation NLL {report.nll:.4f}; {report.message}"]


def of_model(path: Path) -> Found:
    """Look at an ONNX model, calibrated or not."""
    from attemper.onnx.calibrate import provenance_of, read_model

    model, _ = read_model(path)
    meta = provenance_of(model)
    if meta:
        return {"kind": "calibrated model", "calibration": meta}, of_provenance(meta)
    return {"kind": "model"}, ["an ONNX model; no calibration of attemper's is in it"]


def of_provenance(meta: dict[str, str]) -> list[str]:
    """Return what a calibrated model records of itself."""
    lines = [
        f"an ONNX model, calibrated by attemper {meta.get('version', '?')}: a {meta.get('map', '?')} map",
        f"reads {meta.get('logits', '?')}; {meta.get('output', '?')} holds {meta.get('output_kind', '?')}",
    ]
    if "method" in meta:
        temperature = f", T = {number_of(meta, 'temperature')}" if "temperature" in meta else ""
        lines.append(
            f"fitted by {meta['method']} on {meta.get('n_samples', '?')} samples, {meta.get('n_classes', '?')} classes"
            f"{temperature}; validation NLL {number_of(meta, 'nll')}"
        )
        lines.append(f"fitted {meta['fitted_at']}" if "fitted_at" in meta else "when it was fitted is not recorded")
    try:
        files = json.loads(meta.get("data", "[]"))
        lines += [f"data: {DataFile(**file).words()}" for file in files]
    except (ValueError, TypeError, RecursionError):  # the file may come from anywhere
        lines.append("data: recorded in a form that cannot be read")
    return [*lines, f"map: sha256 {meta.get('map_sha256', '?')}"]


def number_of(meta: dict[str, str], key: str) -> str:
    """Write a number short; anything else unchanged."""
    try:
        return f"{float(meta[key]):.4g}"
    except (ValueError, KeyError):
        return meta.get(key, "?")[:40]
