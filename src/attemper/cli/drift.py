"""`attemper drift`: whether the deployed map still fits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import click

from attemper._paths import expand_paths, local
from attemper.calibrators import Provenance
from attemper.cli.commands import cli
from attemper.cli.gates import Gate, gating
from attemper.cli.inputs import Fitted, read_files, reject_id_files
from attemper.cli.options import files_argument, map_argument, no_groups_option, reading, reject_given
from attemper.cli.output import out, print_json, say
from attemper.cli.paths import INPUT, OUTPUT
from attemper.cli.progress import progress
from attemper.drift import DriftTest, ExchangeabilityTest, load_test
from attemper.errors import InputError
from attemper.io import InputSpec

Test = DriftTest | ExchangeabilityTest
OF_MAP = ("input", "zeros_as", "classes", "n_classes")


@cli.command(section="Decide and monitor")
@map_argument
@files_argument
@click.option(
    "--state",
    type=OUTPUT,
    metavar="FILE.json",
    help="Where to keep the state of the test from run to run, such as drift.json.",
)
@click.option(
    "--alpha",
    type=float,
    help="Probability of ever raising a false alarm [default: 0.05].",
)
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
@no_groups_option
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
) -> int:
    """Test whether a deployed MAP still fits new labelled data.

    Pass files, and the rows in them, in the order of time. You can run the test after every file. The probability that
    it ever raises a false alarm is at most alpha, if the map's temperature is right within the tolerance and each label
    is new: drawn independently, not a copy of an earlier case. An alarm, once raised, stays. A file that was fed to
    --state before is refused.

    With --clusters each case (patient, lesion) counts once; all its rows must be in one run.

    With --reference the test compares new data with a labelled reference set instead. It then raises a false alarm with
    probability at most alpha if new and reference samples are independent draws from the same distribution.

    Exit code 0: no alarm; 1: alarm, or a condition of --fail-if holds; 2: an error.

    \b
    attemper drift net.attemper.json new.npz
    attemper drift net.attemper.json today.parquet --state drift.json
    attemper drift net.attemper.json 'march/*.npz' --alpha 0.01 --json
    attemper drift map.json today.npz --reference march.npz --state march.json
    attemper drift map.json today.csv --clusters patient
    """  # noqa: D301 (click wants the control character)
    fitted = Fitted.load(map_file, no_groups=no_groups)
    settings = {name: v for name, v in (("alpha", alpha), ("tolerance", tolerance)) if v is not None}
    fresh = begin(fitted, reference, spec, settings)
    known = state is not None and local(state).exists()
    test = continued(load_test(state), fresh, map_file, state, settings) if state is not None and known else fresh
    sources = new_sources(inputs, test.sources)
    before = test.n_samples
    files = read_files(inputs, spec, fitted)
    fitted.warn_of(inputs)
    # All rows of a case belong in one batch.
    for piece in progress(files, "watching") if spec.clusters_key is None else [files.load()]:
        test.update(piece)
    test.sources = (*test.sources, *sources)
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
    return gate.end() or int(test.alarm)


def begin(fitted: Fitted, reference: str | None, spec: InputSpec, settings: dict[str, Any]) -> Test:
    """Return a new test."""
    if reference is None:
        return DriftTest(fitted.calibrator, **settings)
    reject_given(("tolerance",), "a test against a --reference has none; leave it out")
    reject_id_files(spec, "INPUT and --reference")
    scores = read_files(reference, spec.updated(labels=None), fitted).load()
    fitted.warn_of(reference)
    test = ExchangeabilityTest(fitted.calibrator, scores, **settings)
    test.reference = test.sources = tuple(hashes([reference]).values())
    return test


def continued(test: Any, fresh: Test, map_file: str, state: str, given: Mapping[str, float]) -> Test:
    """Return the test of a state file, checked against what was asked for."""
    if not isinstance(test, type(fresh)):
        raise InputError(f"{state}: the state of a {test.document}, but these options ask for a {fresh.document}")
    if _maps(test) != _maps(fresh) or any(getattr(test, a) != getattr(fresh, a) for a in OF_MAP):
        raise InputError(f"{state}: the state of a test of another map than {map_file}; use a new --state")
    if test.reference != fresh.reference:
        raise InputError(f"{state}: the state of a test against another --reference; use that one, or a new --state")
    for name, value in given.items():
        began = getattr(test, "requested_tolerance" if name == "tolerance" else name)
        if began != value:
            raise InputError(
                f"{state}: begun with {name} {began:g}, and only valid with that; leave the option out, or begin anew "
                "with another --state",
                param=name,
            )
    return test


def _maps(test: Test) -> list[Any]:
    return [test.map.to_dict(), {name: one.to_dict() for name, one in test.group_maps.items()}]


def hashes(paths: Sequence[str]) -> dict[str, str]:
    """Hash those of these files that are on this machine and not too large to be read once more, by path."""
    files = [str(path) for path in expand_paths(paths)]
    return {path: f.sha256 for path, f in zip(files, Provenance.now(files).files) if f.sha256 is not None}


def new_sources(inputs: Sequence[str], seen: Sequence[str]) -> list[str]:
    """Return the hashes of files; refuse one that was fed before, or twice."""
    found: list[str] = []
    for path, sha256 in hashes(inputs).items():
        if sha256 in (*seen, *found):
            raise InputError(f"{path}: was fed to this test before; the same samples count only once. Leave it out.")
        found.append(sha256)
    return found


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
        "n_rows": test.n_rows,
        "alpha": test.alpha,
        "message": "; ".join(test.describe()),
    }
    if isinstance(test, ExchangeabilityTest):
        return found | {"n_reference": test.n_reference}
    points = test.tolerated_points
    return found | {
        "tolerance": test.tolerance,
        "requested_tolerance": test.requested_tolerance,
        "tolerated_points": None if points is None else list(points),
        **test.drift()._asdict(),
    }
