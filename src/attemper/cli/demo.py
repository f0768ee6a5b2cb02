"""`attemper demo`: a real network, all the way."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
import numpy as np

from attemper import datasets
from attemper._paths import local
from attemper.calibrators import METHODS
from attemper.cli.commands import cli
from attemper.cli.compare import compared
from attemper.cli.comparison import comparison_json, print_comparison
from attemper.cli.output import note, out, print_json, say
from attemper.comparison import Comparison, Row
from attemper.data.scores import Scores
from attemper.errors import AttemperError, FileError
from attemper.io import ProbRows, write_probs
from attemper.metrics import Estimate

REPORT = "report.html"
CARD = {
    "population": "HAM10000: images of skin lesions from Vienna and Queensland",
    "intended use": "to show what attemper does; no decision about a patient",
}
FILES = {
    REPORT: "what was found, with intervals: open it in a browser",
    "attemper.json": "the fitted map of {method}",
    "probabilities.csv": "calibrated probabilities of the test samples, by {method}",
    "reliability.png": "reliability before and after {method}",
    "val.npz": "the logits and labels",
}


@cli.command(section="First steps")
@click.option(
    "-o",
    "--output",
    type=click.Path(file_okay=False),
    default="demo-output",
    show_default=True,
    help="Folder for the files of the demo; none of them may exist.",
)
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of the split and of the bootstrap.")
def demo(output: str, seed: int, as_json: bool) -> None:
    """Calibrate a real skin-lesion network that comes with attemper.

    Compares all methods, and writes a report, the map of the recommended method, its calibrated probabilities, a
    reliability diagram and the logits. Images of one lesion count as one case.

    \b
    attemper demo
    attemper demo -o somewhere
    """  # noqa: D301 (click wants the control character)
    folder = local(output)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FileError(f"{folder}: cannot be made: {error.strerror or error}") from None
    there = [name for name in (*FILES, "test.npz") if (folder / name).exists()]
    if there:
        raise FileError(f"{folder / there[0]}: exists, and is not overwritten; use another folder")
    data = datasets.load(seed=seed)
    lesions, n = data.extra["lesion_id"], len(data.val_labels)  # several images show the same one
    val = Scores.from_logits(data.val_logits, data.val_labels, clusters=lesions[:n])
    test = Scores.from_logits(data.test_logits, data.test_labels, clusters=lesions[n:])
    for name, scores in (("val", val), ("test", test)):
        arrays: dict[str, Any] = {"logits": scores.values, "labels": scores.labels, "class_names": data.class_names}
        np.savez_compressed(folder / f"{name}.npz", **arrays, lesion_id=lesions[:n] if name == "val" else lesions[n:])
    result = compared(val, test, None, confidence_level=0.95, seed=seed)
    written = _write(folder, data, val, test, result, seed)
    if as_json:
        print_json(comparison_json(result) | {"folder": str(folder), "files": ["val.npz", "test.npz", *written]})
        return
    for line in _opening(result, folder, written):
        out.print(line)
    out.print()
    c = data.config
    out.print(
        f"{c['arch']} on {c['dataset']} lesions (HAM10000), {len(data.class_names)} classes: fitted on {len(val)} "
        f"samples, evaluated on {len(test)} others.",
    )
    out.print()
    print_comparison(result, 0.95)
    out.print()
    for line in _ending(result, folder, written):
        say(line)


def _method(result: Comparison) -> str:
    """Return the method of all files: the recommended one; where that is none, the default of a fit."""
    return "bayes" if result.recommended == "none" else result.recommended


def _write(folder: Path, data: Any, val: Any, test: Any, result: Comparison, seed: int) -> list[str]:
    """Write map, probabilities, picture and report, all of one method; return the names of the files."""
    written = ["attemper.json", "probabilities.csv"]
    calibrator = METHODS[_method(result)].for_labels(noisy=False).fit(val)
    calibrator.save(folder / "attemper.json")
    probs = calibrator.predict_proba(data.test_logits)
    rows = [ProbRows(probs, data.test_labels, probs.argmax(axis=1))]
    write_probs(folder / "probabilities.csv", rows, classes=data.class_names)
    try:
        from attemper import plots

        plots.save_before_and_after(folder / "reliability.png", test, calibrator)
        written.append("reliability.png")
    except AttemperError as error:
        note(f"no picture: {error}")
    try:
        from attemper.report import origin, write_report

        options: dict[str, Any] = {"classes": data.class_names, "comparison": result, "seed": seed}
        options |= {"descriptions": datasets.SKIN_LESIONS, "card": CARD | {"model": data.config["arch"]}}
        options["files"] = [*origin("validation", folder / "val.npz"), *origin("test", folder / "test.npz")]
        write_report(folder / REPORT, val, test, title=f"Skin lesions: {data.name}", **options)
        written.append(REPORT)
    except AttemperError as error:
        note(f"no report: {error}")
    return written


def _opening(result: Comparison, folder: Path, written: Sequence[str]) -> list[str]:
    """Return three lines: what was found, what changed, what to do."""
    rows = {row.method: row for row in result.rows}
    before, after = rows["none"], rows[_method(result)]
    (confidence, accuracy), (later, right) = (_confidence_and_accuracy(row) for row in (before, after))
    gap = confidence - accuracy
    verdict = "over-confident" if gap > 0 else "under-confident"
    errors = [_value(row, "ece") for row in (before, after)]
    use = "it needs no calibration" if result.recommended == "none" else f"use {result.recommended}"
    page = folder / REPORT
    return [
        f"Found:   the network is {verdict}: mean confidence {confidence:.1%}, accuracy {accuracy:.1%}.",
        f"Changed: with {after.method}, confidence {later:.1%}, accuracy {right:.1%}; ECE {errors[0]:.3f} → "
        f"{errors[1]:.3f}.",
        f"To do:   {use}" + (f"; open {page} in a browser." if REPORT in written else "."),
    ]


def _confidence_and_accuracy(row: Row) -> tuple[float, float]:
    assert row.predictions is not None
    return float(np.mean(row.predictions.confidence)), _value(row, "accuracy")


def _value(row: Row, metric: str) -> float:
    assert row.metrics is not None
    found = row.metrics[metric]
    return found.value if isinstance(found, Estimate) else float(found)


def _ending(result: Comparison, folder: Path, written: Sequence[str]) -> list[str]:
    """Return the lines about files, and the next commands for one's own data."""
    method = _method(result)
    about = {name: text.format(method=method) for name, text in FILES.items() if name in (*written, "val.npz")}
    return [
        f"Files in {folder}/:",
        *(f"  {'val.npz, test.npz' if name == 'val.npz' else name:18} {text}" for name, text in about.items()),
        "The comparison again; images of one lesion are one case:",
        f"  attemper compare {folder / 'val.npz'} {folder / 'test.npz'} --clusters lesion_id",
        "",
        'Now with your own data, from .npz files with arrays "logits" (N×K) and "labels", or from .csv files with',
        'columns "logit_NAME", one for each class, and "label":',
        "  attemper report val.npz test.npz -o report.html",
        f"  attemper fit val.npz --method {method} -o net.attemper.json",
        "  attemper apply net.attemper.json test.npz -o probabilities.csv",
        "If several samples are of one patient, add --clusters COLUMN to report.",
    ]
