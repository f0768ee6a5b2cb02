"""`attemper export`: the model that runs in production, calibrated."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from attemper._paths import local
from attemper.cli.commands import cli
from attemper.cli.inputs import Fitted
from attemper.cli.options import map_argument
from attemper.cli.output import print_json
from attemper.cli.paths import INPUT, OUTPUT
from attemper.cli.sets import load_sets
from attemper.cli.verbosity import note, say
from attemper.errors import InputError
from attemper.onnx.child import LIMITS

if TYPE_CHECKING:
    from attemper.onnx.sets import SetExport

WORDS = {"probs": "probabilities", "log_probs": "log-probabilities", "logits": "calibrated logits"}


@cli.command(section="Calibrate")
@map_argument
@click.argument("model", type=INPUT, metavar="[MODEL.onnx]", required=False)
@click.option("-o", "--output", type=OUTPUT, help="Where to write the calibrated model.")
@click.option("--logits", metavar="NAME", help="Tensor that holds the logits (with a map of probabilities: those).")
@click.option("--axis", type=int, help="Axis of the classes, if the model does not specify it: 1 or -1.")
@click.option(
    "--fold/--no-fold",
    default=None,
    help="Fold the map into the weights of the last layer, or insert nodes. [default: fold if that is exact]",
)
@click.option(
    "--output-kind",
    type=click.Choice(["same", "probs", "log_probs", "logits"]),
    default="same",
    show_default=True,
    help="Kind of the calibrated output; same: as before, or log_probs instead of logits if the map "
    "cannot return logits.",
)
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
@click.option("--add", is_flag=True, help="Keep all outputs, and add one.")
@click.option(
    "--external",
    type=click.Choice(["copy", "refer"]),
    help="Tensors in files next to the model: copy them, or link to the existing files. [default: copy "
    "them to another folder]",
)
@click.option("--in-place", is_flag=True, help="Overwrite MODEL.onnx.")
@click.option("--no-check", is_flag=True, help="Write the result without running it.")
@click.option(
    "--check-timeout",
    type=click.FloatRange(0, min_open=True),
    default=LIMITS.timeout,
    show_default=True,
    metavar="SECONDS",
    help="Time limit for running the result.",
)
@click.option(
    "--check-memory",
    type=click.FloatRange(0, min_open=True),
    default=LIMITS.memory,
    show_default=True,
    metavar="GIB",
    help="Memory limit for running the result, in addition to its weights.",
)
def export(
    map_file: str,
    model: str | None,
    output: str | None,
    logits: str | None,
    axis: int | None,
    fold: bool | None,
    output_kind: Any,
    group: str | None,
    positive: bool,
    sets_file: str | None,
    sets_group: str | None,
    add: bool,
    external: Any,
    in_place: bool,
    no_check: bool,
    check_timeout: float,
    check_memory: float,
    as_json: bool,
) -> None:
    """Put a fitted MAP into an ONNX model: the same model, now calibrated.

    The map replaces the last Softmax, or follows the logits, or is folded into the weights of the last layer, where it
    costs nothing. Names, opset, metadata and other outputs stay the same. If onnxruntime is installed, the result is
    run and compared with NumPy; a model that fails is not written. Without a model, only the map is written, as a step
    of a pipeline.

    \b
    attemper export map.json model.onnx -o calibrated.onnx
    attemper export map.json model.onnx -o calibrated.onnx --logits logits
    attemper export map.json -o map.onnx
    attemper export map.json model.onnx -o north.onnx --group north
    attemper export map.json -o sets.onnx --sets sets.json
    """  # noqa: D301 (click wants the control character)
    from attemper.onnx.calibrate import map_to_onnx, onnx_calibrate
    from attemper.onnx.sets import sets_to_onnx

    if output is None and not in_place:
        raise InputError("no output file: pass -o calibrated.onnx, or --in-place to write over the model")
    if output is not None and Path(output).suffix.lower() != ".onnx":
        raise InputError(
            f"-o {output}: expected a file that ends in .onnx, as ONNX is what is written. Use -o "
            f"{Path(output).with_suffix('.onnx')}. For a torch module use attemper.torch.to_torch in Python."
        )
    output, model = (None if path is None else str(local(path)) for path in (output, model))
    if output is not None and in_place:
        raise InputError(f"-o {output} and --in-place: use one of them")
    source: Any = map_file if group is None else Fitted.load(map_file).calibrator.for_group(group)
    if sets_file is not None:
        others = in_place or axis is not None or fold or add or external or positive or no_check
        if others or output_kind not in ("same", "probs") or output is None:
            raise InputError("--sets: use it with -o, --logits, --group and --sets-group only")
        with_sets = sets_to_onnx(
            load_sets(sets_file, map_file), source, output, model=model, logits=logits, group=sets_group
        )
        _report_sets(with_sets, model, as_json)
        return
    if model is None:
        if in_place or logits or axis is not None or fold is not None or add or external:
            raise InputError("without MODEL.onnx the map alone is written: use -o, --output-kind and --positive only")
        assert output is not None
        kind: Any = "probs" if output_kind == "same" else output_kind
        made = map_to_onnx(source, output, output_kind=kind, positive=positive)
    else:
        if positive:
            raise InputError("--positive: a model has its own outputs; leave it out, or leave out MODEL.onnx")
        made = onnx_calibrate(
            model,
            source,
            output,
            logits=logits,
            axis=axis,
            fold="auto" if fold is None else fold,
            output_kind=output_kind,
            outputs="add" if add else "replace",
            external=external,
            in_place=in_place,
            check=not no_check,
            check_timeout=check_timeout,
            check_memory=check_memory,
        )
    if as_json:
        print_json(
            {
                "output": str(made.output),
                "how": "alone" if model is None else made.how,
                "logits": made.logits,
                "tensor": made.tensor,
                "output_kind": made.output_kind,
                "largest_difference": made.ran.difference,
                "not_run": made.ran.why_not or None,
                "notes": list(made.notes),
                "external_files": [str(path) for path in made.external_files],
            }
        )
        return
    if model is None:
        say(f"the map alone: {made.logits} → {made.tensor}")
    elif made.how == "folded":
        say(f"folded into the layer that gives {made.logits!r}: no node more")
    else:
        say(f"inserted after {made.logits!r}")
    say(f"  {made.tensor!r} holds {WORDS[made.output_kind]}")
    for text in made.notes:
        note(f"note: {text}")
    if made.ran.difference is None:
        say(f"  not compared with NumPy: {made.ran.why_not}")
    else:
        say(f"  run with onnxruntime: within {made.ran.difference:.0e} of NumPy")
    say(f"wrote {made.output}")
    if made.external_files:
        names = ", ".join(map(str, made.external_files))
        say(f"  its tensors are in {names}: keep the files together")


def _report_sets(made: SetExport, model: str | None, as_json: bool) -> None:
    """Print how a model got one more output, the sets."""
    if as_json:
        print_json(
            {
                "output": str(made.output),
                "how": "alone" if model is None else "inserted",
                "logits": made.logits,
                "tensor": made.probabilities,
                "output_kind": "probs",
                "largest_difference": made.ran.difference,
                "not_run": made.ran.why_not or None,
                "notes": list(made.notes),
                "external_files": [],
                "sets": made.sets,
            }
        )
        return
    say(f"{made.logits} → {made.probabilities}, and {made.sets}: which classes are in the set")
    if made.ran.difference is None:
        say(f"  not compared with NumPy: {made.ran.why_not}")
    else:
        say(f"  run with onnxruntime: within {made.ran.difference:.0e} of NumPy, and the same sets")
    say(f"wrote {made.output}")
