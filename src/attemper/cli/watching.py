"""What `attemper drift` watches with: a new test or the one in a state file, and which files are new to it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from attemper._paths import expand_paths
from attemper.calibrators import Provenance
from attemper.cli.inputs import Fitted, read_files
from attemper.drift import DriftTest, ExchangeabilityTest
from attemper.errors import InputError
from attemper.io import InputSpec

OF_MAP = ("input", "zeros_as", "classes", "n_classes")
KEYS = {"reference_labels": "labels", "reference_groups": "groups_key", "reference_clusters": "clusters_key"}

Watch = DriftTest | ExchangeabilityTest


def checked_settings(
    reference: str | None, reference_keys: Mapping[str, str | None], **given: float | None
) -> dict[str, float]:
    """Return the settings that were given; refuse those that do not suit the test."""
    for name, value in reference_keys.items():
        if value is not None and reference is None:
            raise InputError(f"--{name.replace('_', '-')}: add --reference, the file that they belong to")
    found = {name: value for name, value in given.items() if value is not None}
    if "tolerance" in found and reference is not None:
        raise InputError("--tolerance: a test against a --reference has none; leave it out")
    return found


def begin(
    fitted: Fitted,
    reference: str | None,
    spec: InputSpec,
    reference_keys: Mapping[str, str | None],
    settings: dict[str, Any],
) -> Watch:
    """Return a new test."""
    if reference is None:
        return DriftTest(fitted.calibrator, **settings)
    own = {KEYS[name]: value for name, value in reference_keys.items()}
    keys = {name: value for name, value in own.items() if value is not None or name == "labels"}
    return ExchangeabilityTest(
        fitted.calibrator, read_files(reference, spec.updated(**keys), fitted).load(), **settings
    )


def continued(test: Watch, fresh: Watch, map_file: str, state: str, given: Mapping[str, float]) -> Watch:
    """Return the test of a state file, checked against what was asked for."""
    if test.document != fresh.document:
        raise InputError(
            f"{state}: the state of another test ({test.document}); use the same options (--reference) as before, or "
            "another --state"
        )
    maps = [one._monitor_fields() for one in (test, fresh)]
    if maps[0] != maps[1] or any(getattr(test, a) != getattr(fresh, a) for a in OF_MAP):
        raise InputError(f"{state}: the state of a test of another map than {map_file}; use a new --state")
    if test.reference != fresh.reference or _n_reference(test) != _n_reference(fresh):
        raise InputError(f"{state}: the state of a test against another --reference; use that one, or a new --state")
    for name in given:
        began, value = _setting(test, name), given[name]
        if began != value:
            was = "none" if began is None else f"{began:g}"
            raise InputError(
                f"--{name} {value:g}: the test in {state} was begun with {was}, and is only valid with that; leave the "
                "option out, or begin anew with another --state"
            )
    return test


def _n_reference(test: Watch) -> int | None:
    return getattr(test, "n_reference", None)


def _setting(test: Watch, name: str) -> float | None:
    return getattr(test, "requested_tolerance" if name == "tolerance" else name, None)


def hashes(paths: Sequence[str]) -> dict[str, str]:
    """Hash those of these files that are on this machine and not too large to be read once more, by path."""
    files = [str(path) for path in expand_paths(paths)]
    return {path: f.sha256 for path, f in zip(files, Provenance.now(files).files) if f.sha256 is not None}


def not_fed(inputs: Sequence[str], seen: Sequence[str], state: str | None) -> list[str]:
    """Return the hashes of these files; one that was fed before is an error."""
    known = dict.fromkeys(seen, f"was fed to {state} before")
    for path, sha256 in hashes(inputs).items():
        if sha256 in known:
            raise InputError(
                f"{path}: {known[sha256]}; the same samples count only once. Leave the file out, or use a new --state "
                "to begin anew."
            )
        known[sha256] = "has the same content as another input"
    return list(known)[len(set(seen)) :]


def as_dict(test: Watch, before: int) -> dict[str, Any]:
    """Return the verdict as plain numbers."""
    names = ("alarm", "alarm_at", "p_value", "e_value", "n_samples", "n_rows", "alpha")
    return {
        "test": test.document,
        **{name: getattr(test, name) for name in names},
        "new_samples": test.n_samples - before,
        "message": "; ".join(test.describe()),
        **_of_kind(test),
    }


def _of_kind(test: DriftTest | ExchangeabilityTest) -> dict[str, Any]:
    if isinstance(test, ExchangeabilityTest):
        return {"n_reference": test.n_reference}
    points = test.tolerated_points
    return {
        "tolerance": test.tolerance,
        "requested_tolerance": test.requested_tolerance,
        "tolerated_points": None if points is None else list(points),
        **test.drift()._asdict(),
    }
