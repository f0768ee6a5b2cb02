"""`attemper drift`: whether the deployed map still fits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from attemper._paths import local
from attemper.cli.commands import cli
from attemper.cli.gates import Gate, gating
from attemper.cli.inputs import Fitted, read_files
from attemper.cli.options import files_argument, map_argument, reading
from attemper.cli.output import out, print_json
from attemper.cli.paths import INPUT, JSON_OUTPUT
from attemper.cli.progress import progress
from attemper.cli.verbosity import say
from attemper.cli.watching import as_dict, begin, checked_settings, continued, hashes, not_fed
from attemper.drift import load_test
from attemper.io import InputSpec


@cli.command(section="Decide and monitor")
@map_argument
@files_argument
@click.option(
    "--state",
    type=JSON_OUTPUT,
    metavar="FILE.json",
    help="Continue from this file if it exists, and write it at the end. Use it for a job that runs "
    "every day. A file that was fed before raises an error.",
)
@click.option("--alpha", type=float, help="Probability of a false alarm, over all time [default: 0.05].")
@click.option(
    "--tolerance",
    type=float,
    help="A temperature that is off by less than this factor does not count as drift [default: 1.1]. It "
    "is raised to the interval of the map's own temperature.",
)
@click.option(
    "--reference",
    type=INPUT,
    metavar="VAL",
    help="Test instead whether new data are like those of this labelled file (a conformal test). The map "
    "should not have been fitted on it. It is read like INPUT, with the same options.",
)
@click.option(
    "--reference-labels",
    type=INPUT,
    metavar="FILE.npy",
    help="Labels of --reference, if it is an .npy file (INPUT: --labels).",
)
@click.option(
    "--reference-groups",
    type=INPUT,
    metavar="NAME|FILE",
    help="Name of the groups in --reference, if it differs from INPUT.",
)
@click.option(
    "--reference-clusters",
    type=INPUT,
    metavar="NAME|FILE",
    help="Name of the clusters in --reference, if it differs from INPUT.",
)
@click.option("--no-groups", is_flag=True, help="If the map was fitted with groups, test the common map.")
@reading(weights=False, groups=True, clusters=True)
@gating
def drift(
    map_file: str,
    inputs: Sequence[str],
    state: str | None,
    alpha: float | None,
    tolerance: float | None,
    reference: str | None,
    no_groups: bool,
    spec: InputSpec,
    gate: Gate,
    as_json: bool,
    **reference_keys: str | None,
) -> int:
    """Test whether a deployed MAP still fits new labelled data.

    Pass files, and the rows in them, in the order of time. You can run the test after every file. The probability that
    it ever raises a false alarm is at most alpha, if the map's temperature is right within the tolerance and each label
    is new: drawn independently, not a copy of an earlier case. An alarm, once raised, stays.

    With --clusters each case (patient, lesion) counts once; all its rows must be in one run.

    With --reference the test compares new data with a labelled reference set instead. It then raises a false alarm with
    probability at most alpha if new and reference samples are independent draws from the same distribution.

    Exit code 0: no alarm; 1: alarm; 2: an error; 3: no alarm, but a condition of --fail-if holds.

    \b
    attemper drift net.attemper.json new.npz
    attemper drift net.attemper.json today.parquet --state drift.json
    attemper drift net.attemper.json 'march/*.npz' --alpha 0.01 --json
    attemper drift map.json today.npz --reference march.npz --state march.json
    attemper drift map.json today.csv --clusters patient --groups site
    """  # noqa: D301 (click wants the control character)
    fitted = Fitted.load(map_file)
    settings = checked_settings(reference, reference_keys, alpha=alpha, tolerance=tolerance)
    fresh = begin(fitted, reference, spec, reference_keys, settings)
    if reference is not None:
        fitted.warn_of(reference)
        fresh.reference = fresh.sources = tuple(hashes([reference]).values())
    known = state is not None and local(state).exists()
    test = continued(load_test(state), fresh, map_file, state, settings) if state is not None and known else fresh
    new_sources = not_fed(inputs, test.sources, state)
    before = test.n_samples
    files = read_files(inputs, spec, fitted)
    fitted.warn_of(inputs)
    more: dict[str, Any] = {"groups": "common"} if no_groups else {}
    # All rows of a case belong in one batch.
    for piece in progress(files, "watching") if spec.clusters_key is None else [files.load()]:
        test.update(piece, **more)
    test.sources = (*test.sources, *new_sources)
    if state is not None:
        test.save(state)
    content = as_dict(test, before) | {"state": state}
    figures = {name: value for name, value in content.items() if isinstance(value, int | float | dict)}
    gated = gate.check({"test": figures}, default="test")
    if as_json:
        print_json(content | gated)
    else:
        for line in test.describe():
            out.print(line)
        if state is not None:
            say(f"wrote {state}")
    code = gate.end(",".join(inputs), also=[("no alarm", content["message"] if test.alarm else None)])
    return int(test.alarm) or code
