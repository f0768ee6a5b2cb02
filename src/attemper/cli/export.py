"""`attemper export`: the model that runs in production, calibrated."""

from __future__ import annotations

from typing import Any

import click

from attemper._paths import local
from attemper.cli.commands import cli
from attemper.cli.inputs import Fitted
from attemper.cli.options import map_argument, reject_given
from attemper.cli.output import note, print_json, say
from attemper.cli.paths import INPUT, OUTPUT
from attemper.cli.sets import load_sets
from attemper.errors import InputError

WORDS = {"probs": "probabilities", "log_probs": "log-probabilities", "logits": "calibrated logits"}


@cli.command(section="Calibrate")
@map_argument
@click.argument("model", type=INPUT, metavar="[MODEL.onnx]", required=False)
@click.option("-o", "--output", type=OUTPUT, required=True, help="Where to write the calibrated model.")
@click.option("--logits", metavar="NAME", help="Tensor that holds the logits (with a map of probabilities: those).")
@click.option("--group", metavar="NAME", help="For a map with groups: export the map of this group, or common.")
@click.option("--positive", is_flag=True, help="Without a model, two classes: one number for each sample, in and out.")
@click.option(
    "--sets",
    "sets_file",
    type=INPUT,
    metavar="POLICY",
    help="Add a boolean output that marks the classes in the prediction set, by this policy of `attemper sets`.",
)
@click.option("--sets-group", metavar="NAME", help="With --sets by group: use the threshold of this group.")
def export(
    map_file: str,
    model: str | None,
    output: str,
    logits: str | None,
    group: str | None,
    positive: bool,
    sets_file: str | None,
    sets_group: str | None,
    as_json: bool,
) -> None:
    """Put a fitted MAP into an ONNX model: the same model, now calibrated.

    The map replaces the last Softmax, or follows the logits. Names, metadata and other outputs stay the same. If
    onnxruntime is installed, the result is run and compared with NumPy; a model that fails is not written. Without a
    model, only the map is written, as a step of a pipeline.

    \b
    attemper export map.json model.onnx -o calibrated.onnx
    attemper export map.json model.onnx -o calibrated.onnx --logits logits
    attemper export map.json -o map.onnx
    attemper export map.json model.onnx -o north.onnx --group north
    attemper export map.json -o sets.onnx --sets sets.json
    """  # noqa: D301 (click wants the control character)
    from attemper.onnx.calibrate import map_to_onnx, onnx_calibrate
    from attemper.onnx.sets import sets_to_onnx

    if local(output).suffix.lower() != ".onnx":
        raise InputError(f"{output}: expected a file that ends in .onnx", param="output")
    output, model = str(local(output)), None if model is None else str(local(model))
    source: Any = map_file if group is None else Fitted.load(map_file).calibrator.for_group(group)
    if model is None:
        reject_given(("logits",), "is a tensor of MODEL.onnx")
    if model is not None or sets_file is not None:
        reject_given(("positive",), "is for the map alone")
    if sets_file is None:
        reject_given(("sets_group",), "belongs to --sets")
    made: Any
    if sets_file is not None:
        policy = load_sets(sets_file, map_file)
        made = sets_to_onnx(policy, source, output, model=model, logits=logits, group=sets_group)
        tensor, kind, sets = made.probabilities, "probs", made.sets
    else:
        if model is None:
            made = map_to_onnx(source, output, positive=positive)
        else:
            made = onnx_calibrate(model, source, output, logits=logits)
        tensor, kind, sets = made.tensor, made.output_kind, None
    difference, why_not = made.ran.difference, made.ran.why_not or None
    if as_json:
        found = {"output": output, "logits": made.logits, "tensor": tensor, "output_kind": kind, "sets": sets}
        print_json({**found, "largest_difference": difference, "not_run": why_not, "notes": list(made.notes)})
        return
    say(f"{made.logits} → {tensor}: {WORDS[kind]}" + (f"; {sets}: which classes are in the set" if sets else ""))
    for text in made.notes:
        note(f"note: {text}")
    if difference is None:
        say(f"  not compared with NumPy: {why_not}")
    else:
        say(f"  run with onnxruntime: within {difference:.0e} of NumPy")
    say(f"wrote {output}")
