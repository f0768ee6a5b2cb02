"""`attemper demo`: a real network, all the way."""

from __future__ import annotations

from typing import Any

import click
import numpy as np

from attemper import datasets
from attemper._json import atomic
from attemper._paths import local
from attemper.calibrators import METHODS
from attemper.cli.commands import cli
from attemper.cli.compare import compared
from attemper.cli.comparison import comparison_json, print_comparison
from attemper.cli.output import out, print_json
from attemper.cli.paths import FOLDER
from attemper.cli.verbosity import note, say
from attemper.data.scores import Scores
from attemper.errors import AttemperError, FileError
from attemper.io import ProbRows, write_probs


@cli.command(section="First steps")
@click.option(
    "-o", "--output", type=FOLDER, default="demo-output", show_default=True, help="Folder for what the demo writes."
)
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of the split and of the bootstrap.")
def demo(output: str, seed: int, as_json: bool) -> None:
    """Calibrate a real skin-lesion network that comes with attemper.

    Writes the validation and test logits, the fitted map, calibrated probabilities, and a reliability
    diagram if matplotlib is installed; prints the comparison of all methods. Images of one lesion count as one case.

    \b
    attemper demo
    attemper demo -o somewhere
    """  # noqa: D301 (click wants the control character)
    folder = local(output)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FileError(f"{folder}: cannot be made: {error.strerror or error}") from None
    data = datasets.load(seed=seed)
    lesions, n = data.extra["lesion_id"], len(data.val_labels)  # several images show the same one
    val = Scores.from_logits(data.val_logits, data.val_labels, clusters=lesions[:n])
    test = Scores.from_logits(data.test_logits, data.test_labels, clusters=lesions[n:])
    for name, scores in (("val", val), ("test", test)):
        arrays: dict[str, Any] = {"logits": scores.values, "labels": scores.labels, "class_names": data.class_names}
        with atomic(folder / f"{name}.npz") as stream:
            np.savez_compressed(stream, **arrays, lesion_id=lesions[:n] if name == "val" else lesions[n:])
    result = compared(val, test, None, confidence_level=0.95, seed=seed)
    best = "bayes" if result.recommended == "none" else result.recommended
    calibrator = METHODS[best].for_labels(noisy=False).fit(val)
    calibrator.save(folder / "attemper.json")
    probs = calibrator.predict_proba(data.test_logits)
    write_probs(
        folder / "probabilities.csv",
        [ProbRows(probs, data.test_labels, probs.argmax(axis=1))],
        classes=data.class_names,
    )
    written = ["val.npz", "test.npz", "attemper.json", "probabilities.csv"]
    try:
        from attemper import plots

        plots.save_before_and_after(folder / "reliability.png", test, calibrator)
        written.append("reliability.png")
    except AttemperError as error:
        note(f"no picture: {error}")
    page = folder / "report.html"
    reported = False
    try:
        from attemper.report import origin, write_report

        options: dict[str, Any] = {"classes": data.class_names, "comparison": result, "seed": seed}
        options["files"] = [*origin("validation", folder / "val.npz"), *origin("test", folder / "test.npz")]
        write_report(page, val, test, title=f"Skin lesions: {data.name}", **options)
        reported = True
    except AttemperError as error:
        note(f"no report: {error}")
    if as_json:
        files = written + ([page.name] if reported else [])
        print_json(comparison_json(result) | {"folder": str(folder), "files": files})
        return
    c = data.config
    out.print(
        f"{c['arch']} on {c['dataset']} lesions (HAM10000), {len(data.class_names)} classes: fitted on {len(val)} "
        f"samples, evaluated on {len(test)} others.",
    )
    out.print()
    print_comparison(result, 0.95)
    out.print()
    say(f"Wrote to {folder}/: {', '.join(written)}")
    say(f"attemper.json, the probabilities and the picture are of {best}.")
    say("Now with your own data: attemper compare val.npz test.npz")
    if reported:
        say(f"Report, to open in a browser: {page}")
