"""`attemper drift`: whether the deployed map still fits."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from attemper.calibrators import Calibrator
from attemper.cli.commands import cli
from attemper.cli.inputs import Fitted, progress, read_files
from attemper.cli.options import OUTPUT, files_argument, map_argument, reading, with_debug, with_json
from attemper.cli.output import out, print_json
from attemper.drift import DriftTest
from attemper.errors import InputError


@cli.command()
@map_argument
@files_argument
@click.option(
    "--state",
    type=OUTPUT,
    metavar="FILE.json",
    help="Go on from this file if it is there, and write it anew at the end: for a job that runs every day.",
)
@click.option("--alpha", type=float, help="Probability of a false alarm, over all time [default: 0.05].")
@click.option(
    "--tolerance",
    type=float,
    help="A temperature that is off by less than this factor is no drift [default: 1.1].",
)
@reading(weights=False)
@with_json
@with_debug
def drift(
    map_file: str,
    inputs: Sequence[str],
    state: str | None,
    alpha: float | None,
    tolerance: float | None,
    read: dict[str, Any],
    as_json: bool,
) -> int:
    """Say whether a deployed MAP still fits new labelled data.

    Files are read in the order in which they are given, rows in the order in which they came. The test may be looked at
    after every file: the probability that it ever raises a false alarm is at most alpha. An alarm, once raised, stays.

    Exit code 0: no alarm; 1: alarm; 2: an error.

    \b
    attemper drift net.attemper.json new.npz
    attemper drift net.attemper.json today.parquet --state drift.json
    attemper drift net.attemper.json 'march/*.npz' --alpha 0.01 --json
    """  # noqa: D301 (click wants the control character)
    fitted = Fitted.load(map_file)
    test = begun(fitted.calibrator, map_file, state, alpha, tolerance)
    files = read_files(inputs, read, fitted)
    fitted.warn_of(inputs)
    before = test.n_samples
    for piece in progress(files, "watching"):
        test.update(piece)
    if state is not None:
        test.save(state)
    if as_json:
        found = test.drift()
        print_json(
            {
                "alarm": test.alarm,
                "alarm_at": test.alarm_at,
                "p_value": test.p_value,
                "e_value": test.e_value,
                "n_samples": test.n_samples,
                "new_samples": test.n_samples - before,
                "alpha": test.alpha,
                "tolerance": test.tolerance,
                "factor": found.factor,
                "temperature": found.temperature,
                "since": found.since,
                "message": "; ".join(test.describe()),
                "state": state,
            }
        )
    else:
        for line in test.describe():
            out.print(line, markup=False)
        if state is not None:
            out.print(f"wrote {state}", markup=False)
    return int(test.alarm)


def begun(
    calibrator: Calibrator, map_file: str, state: str | None, alpha: float | None, tolerance: float | None
) -> DriftTest:
    """Begin a test, or take up the one that the state holds, if it is of this map."""
    told = {name: value for name, value in (("alpha", alpha), ("tolerance", tolerance)) if value is not None}
    new = DriftTest(calibrator, **told)
    if state is None or not Path(state).exists():
        return new
    test = DriftTest.load(state)
    of_same = ("input", "floor", "classes", "n_classes")
    if test.map.to_dict() != new.map.to_dict() or any(getattr(test, a) != getattr(new, a) for a in of_same):
        raise InputError(f"{state}: the state of a test of another map than {map_file}; a new map needs a new --state")
    for name, value in told.items():
        if getattr(test, name) != value:
            raise InputError(
                f"--{name} {value:g}: the test in {state} was begun with {getattr(test, name):g}, and is only valid "
                "with that; leave the option out, or begin anew with another --state"
            )
    return test
