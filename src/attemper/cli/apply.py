"""`attemper apply`: calibrated probabilities of new logits."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import click

from attemper.cli.commands import cli
from attemper.cli.inputs import Fitted, read_files
from attemper.cli.multilabel import apply_labels, label_map
from attemper.cli.options import files_argument, map_argument, no_groups_option, reading
from attemper.cli.output import print_json, say
from attemper.cli.paths import INPUT, OUTPUT
from attemper.cli.progress import shown_progress
from attemper.cli.sets import apply_sets
from attemper.data.scores import LabelledScores
from attemper.errors import InputError
from attemper.io import InputSpec, ProbRows, write_probs
from attemper.io.spec import is_id_file


@cli.command(section="Calibrate")
@map_argument
@files_argument
@click.option(
    "-o",
    "--output",
    type=OUTPUT,
    required=True,
    help="Where to write: .npz, .npy, .csv, .jsonl, .safetensors or .parquet.",
)
@click.option(
    "--positive", is_flag=True, help="With two classes: write one column, the probability of the second class."
)
@click.option(
    "--sets",
    "sets_file",
    type=INPUT,
    metavar="POLICY",
    help="Write prediction sets by this policy of `attemper sets` (.csv, .jsonl or .npz), and what to do: decide, "
    "list or refer.",
)
@click.option(
    "--ids",
    type=INPUT,
    metavar="COLUMN",
    help="Copy this column, or array, of INPUT to the output, such as the names of the samples.",
)
@no_groups_option
@reading(weights=False, labels=False, groups=True)
def apply(
    map_file: str,
    inputs: Sequence[str],
    output: str,
    positive: bool,
    sets_file: str | None,
    ids: str | None,
    no_groups: bool,
    spec: InputSpec,
    as_json: bool,
) -> None:
    """Turn logits into calibrated probabilities with a fitted MAP.

    \b
    attemper apply attemper.json new.npz -o probabilities.npz
    attemper apply attemper.json 'day/*.parquet' -o day.parquet --labels-key y
    attemper apply attemper.json images.npz -o probabilities.npz --axis 1
    attemper apply map.json new.npz -o probabilities.npz --groups site
    attemper apply map.json new.csv -o probabilities.csv --ids image_id
    attemper apply map.json new.npz --sets sets.json -o sets.csv
    """  # noqa: D301 (click wants the control character)
    labels = label_map(map_file)
    if labels is not None:
        if sets_file is not None or ids is not None or positive or no_groups or spec.groups_key is not None:
            raise InputError("--sets, --ids, --positive and groups are for classes that exclude each other")
        apply_labels(labels, map_file, inputs, output, spec, as_json)
        return
    if sets_file is not None and (positive or ids is not None):
        raise InputError("--sets: leave out --positive and --ids")
    if ids is not None:
        spec = spec.updated(clusters_key=ids)
    fitted = Fitted.load(map_file, no_groups=no_groups)
    if positive and fitted.calibrator.n_features_in_ != 2:
        raise InputError(f"--positive: expected a map of two classes, got one of {fitted.calibrator.n_features_in_}")
    files = read_files(inputs, spec, fitted)
    if sets_file is not None:
        apply_sets(fitted, files, sets_file, output, as_json)
        return
    count = 0

    def rows() -> Iterator[ProbRows]:
        nonlocal count
        for piece in files.watched(progress):
            if piece.repeated is not None:
                raise InputError(
                    f"{inputs[0]}: labels are soft, and there is no column for them in {output}; leave --labels-key out"
                )
            count += len(piece)
            probs = fitted.calibrator.predict_proba(piece)
            labels = piece.labels if isinstance(piece, LabelledScores) else None
            rows = ProbRows(probs, labels, probs.argmax(axis=1), ids=piece.cluster_ids)
            layout = piece.layout
            if ids is not None and layout is not None:
                raise InputError("--ids: expected one row of logits for each sample, got images")
            yield rows if layout is None else rows.as_images(layout)

    with shown_progress("applying") as progress:
        id_name = "id" if is_id_file(ids) else ids
        names = fitted.calibrator.class_names
        write_probs(output, rows(), classes=names, positive=positive, id_name=id_name)
    if as_json:
        print_json({"n_samples": count, "output": output})
    else:
        say(f"wrote {count} rows to {output}")
