"""`attemper drift`: whether the deployed map still fits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from attemper._paths import local
from attemper.calibrators import Provenance
from attemper.cli.commands import cli
from attemper.cli.gates import Gate, gating
from attemper.cli.inputs import Fitted, read_files
from attemper.cli.options import files_argument, map_argument, reading
from attemper.cli.output import out, print_json
from attemper.cli.paths import INPUT, OUTPUT
from attemper.cli.progress import progress
from attemper.cli.verbosity import say
from attemper.drift import DriftTest, ExchangeabilityTest, load_test
from attemper.errors import InputError
from attemper.io import InputSpec

Test = DriftTest | ExchangeabilityTest


@cli.command(section="Decide and monitor")
@map_argument
@files_argument
@click.option(
    "--state",
    type=OUTPUT,
    metavar="FILE.json",
    help="Continue from this file if it exists, and write it at the end: for a job that runs every day. A file that "
    "was fed before is refused.",
)
@click.option("--alpha", type=float, help="Probability of a false alarm, over all time [default: 0.05].")
@click.option(
    "--tolerance",
    type=float,
    help="A temperature that is off by less than this factor is no drift [default: 1.1]. It is raised to the interval "
    "of the map's own temperature.",
)
@click.option(
    "--reference",
    type=INPUT,
    metavar="VAL",
    help="Test instead whether new data are like those of this labelled file, which should not have fitted the map (a "
    "conformal test). It is read like INPUT, with the same options.",
)
@click.option(
    "--reference-labels",
    type=INPUT,
    metavar="FILE.npy",
    help="Labels of --reference, when it is an .npy file (INPUT: --labels).",
)
@reading(weights=False)
@gating
def drift(
    map_file: str,
    inputs: Sequence[str],
    state: str | None,
    alpha: float | None,
    tolerance: float | None,
    reference: str | None,
    reference_labels: str | None,
    spec: InputSpec,
    gate: Gate,
    as_json: bool,
) -> int:
    """Test whether a deployed MAP still fits new labelled data.

    Pass files in the order in which the data came, rows in their order. You can run the test after every file. The
    probability that it ever raises a false alarm is at most alpha, if the map's temperature is right within the
    tolerance and each label is news: drawn afresh, not a copy of an earlier case. An alarm, once raised, stays.

    With --reference the test compares new data with a labelled reference set instead. It then raises a false alarm with
    probability at most alpha if new and reference samples are drawn alike, independently of each other.

    Exit code 0: no alarm; 1: alarm; 2: an error; 3: no alarm, but a condition of --fail-if holds.

    \b
    attemper drift net.attemper.json new.npz
    attemper drift net.attemper.json today.parquet --state drift.json
    attemper drift net.attemper.json 'march/*.npz' --alpha 0.01 --json
    attemper drift map.json today.npz --reference march.npz --state march.json
    """  # noqa: D301 (click wants the control character)
    fitted = Fitted.load(map_file)
    if reference_labels is not None and reference is None:
        raise InputError("--reference-labels: add --reference, the file that they belong to")
    given: dict[str, Any] = {
        name: value for name, value in (("alpha", alpha), ("tolerance", tolerance)) if value is not None
    }
    if reference is None:
        fresh: Test = DriftTest(fitted.calibrator, **given)
    else:
        if tolerance is not None:
            raise InputError("--tolerance: a test against a --reference has none; leave it out")
        reference_spec = spec.updated(labels=reference_labels)
        fresh = ExchangeabilityTest(fitted.calibrator, read_files(reference, reference_spec, fitted).load(), **given)
        fitted.warn_of(reference)
        fresh.reference = tuple(digests([reference], (), state))
        fresh.sources = fresh.reference  # which are no news either
    test = continued(fresh, map_file, state, given)
    files = read_files(inputs, spec, fitted)
    fitted.warn_of(inputs)
    new_sources = digests(inputs, test.sources, state)
    before = test.n_samples
    for piece in progress(files, "watching"):
        test.update(piece)
    test.sources = (*test.sources, *new_sources)
    if state is not None:
        test.save(state)
    content = as_dict(test, before) | {"state": state}
    numbers = {name: value for name, value in content.items() if isinstance(value, int | float)}
    gated = gate.check({"test": numbers}, default="test")
    if as_json:
        print_json(content | gated)
    else:
        for line in test.describe():
            out.print(line)
        if state is not None:
            say(f"wrote {state}")
    code = gate.end(",".join(inputs), also=[("no alarm", content["message"] if test.alarm else None)])
    return int(test.alarm) or code


def as_dict(test: Test, before: int) -> dict[str, Any]:
    """Return the verdict as plain numbers."""
    found: dict[str, Any] = {
        "test": test.document,
        "alarm": test.alarm,
        "alarm_at": test.alarm_at,
        "p_value": test.p_value,
        "e_value": test.e_value,
        "n_samples": test.n_samples,
        "new_samples": test.n_samples - before,
        "alpha": test.alpha,
        "message": "; ".join(test.describe()),
    }
    if isinstance(test, DriftTest):
        points = test.tolerated_points
        found |= {
            "tolerance": test.tolerance,
            "requested_tolerance": test.requested_tolerance,
            "tolerated_points": None if points is None else list(points),
            **test.drift()._asdict(),
        }
    else:
        found["n_reference"] = test.n_reference
    return found


def continued(fresh: Test, map_file: str, state: str | None, given: dict[str, float]) -> Test:
    """Return the test in the state file if there is one, checked against what was asked for; else the fresh one."""
    if state is None or not local(state).exists():
        return fresh
    test = load_test(state)
    if not isinstance(test, type(fresh)):
        wanted = "a --reference" if isinstance(fresh, ExchangeabilityTest) else "no --reference"
        raise InputError(f"{state}: the state of a {test.document}, but there is {wanted}; use another --state")
    assert isinstance(test, DriftTest | ExchangeabilityTest)
    of_same = ("input", "zeros_as", "classes", "n_classes")
    if test.map.to_dict() != fresh.map.to_dict() or any(getattr(test, a) != getattr(fresh, a) for a in of_same):
        raise InputError(f"{state}: the state of a test of another map than {map_file}; use a new --state")
    of_same_reference = ("reference", "n_reference")
    if any(getattr(test, a, None) != getattr(fresh, a, None) for a in of_same_reference):
        raise InputError(f"{state}: the state of a test against another --reference; use that one, or a new --state")
    for name, value in given.items():
        began = getattr(test, f"requested_{name}" if name == "tolerance" else name)
        if began != value:
            raise InputError(
                f"--{name} {value:g}: the test in {state} was begun with {began:g}, and is only valid with that; leave "
                "the option out, or begin anew with another --state"
            )
    return test


def digests(inputs: Sequence[str], seen: Sequence[str], state: str | None) -> list[str]:
    """Hash the input files; refuse one that was fed before, since its labels are no news."""
    known = dict.fromkeys(seen, f"was fed to {state} before")
    for file in Provenance.now(inputs).files:
        if file.sha256 is None:  # remote, or too large to be read once more
            continue
        if file.sha256 in known:
            raise InputError(
                f"{file.name}: {known[file.sha256]}; the same labels count only once. Leave the file out, or use a new "
                "--state to begin anew"
            )
        known[file.sha256] = "has the same content as another input"
    return [digest for digest in known if digest not in set(seen)]
