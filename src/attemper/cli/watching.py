"""What `attemper drift` watches with: a new test or the one in a state file, and which files are new to it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from attemper._paths import expand_paths
from attemper.calibrators import Provenance
from attemper.cli.inputs import Fitted, read_files
from attemper.cli.output import plain
from attemper.cli.verbosity import note
from attemper.drift import DriftTest, ExchangeabilityTest, GroupedTest, UnlabelledMonitor
from attemper.drift.files import Watch
from attemper.drift.monitor import Repeats
from attemper.errors import InputError
from attemper.io import InputSpec

OF_MAP = ("input", "zeros_as", "classes", "n_classes")
KEYS = {"reference_labels": "labels", "reference_groups": "groups_key", "reference_clusters": "clusters_key"}


def checked_settings(
    reference: str | None, unlabelled: bool, reference_keys: Mapping[str, str | None], **given: float | None
) -> dict[str, float]:
    """Return the settings that were given; refuse those that do not suit the test."""
    for name, value in reference_keys.items():
        if value is not None and reference is None:
            raise InputError(f"--{name.replace('_', '-')}: add --reference, the file that they belong to")
    found = {name: value for name, value in given.items() if value is not None}
    if "tolerance" in found and (reference is not None or unlabelled):
        which = "against a --reference" if reference is not None else "of --unlabelled data"
        raise InputError(f"--tolerance: a test {which} has none; leave it out")
    if "threshold" in found and not unlabelled:
        raise InputError("--threshold: is for --unlabelled; with labels use `attemper refer`")
    if "alpha" in found and unlabelled and reference is None:
        raise InputError("--alpha: without labels there is a test only with --reference; add it, or leave --alpha out")
    return found


def begin(
    fitted: Fitted,
    reference: str | None,
    spec: InputSpec,
    reference_keys: Mapping[str, str | None],
    unlabelled: bool,
    settings: dict[str, Any],
) -> Watch:
    """Return a new test, or a monitor of unlabelled data."""
    given: dict[str, Any] = dict(settings)
    if reference is not None:
        own = {KEYS[name]: value for name, value in reference_keys.items()}
        keys = {name: value for name, value in own.items() if value is not None or name == "labels"}
        given["reference"] = read_files(reference, spec.updated(**keys), fitted).load()
    if unlabelled:
        return UnlabelledMonitor(fitted.calibrator, **given)
    if spec.groups_key is not None:
        return GroupedTest(fitted.calibrator, **given)
    if reference is not None:
        return ExchangeabilityTest(fitted.calibrator, given.pop("reference"), **given)
    return DriftTest(fitted.calibrator, **given)


def continued(test: Watch, fresh: Watch, map_file: str, state: str, given: Mapping[str, float]) -> Watch:
    """Return the test of a state file, checked against what was asked for."""
    if _kind(test) != _kind(fresh):
        raise InputError(
            f"{state}: the state of {_kind(test)}, but these options ask for {_kind(fresh)}; use the same options "
            "(--reference, --groups, --unlabelled) as before, or another --state"
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


def _inner(test: Watch) -> DriftTest | ExchangeabilityTest | None:
    """Return the test of all samples."""
    if isinstance(test, GroupedTest):
        assert isinstance(test.overall, DriftTest | ExchangeabilityTest)
        return test.overall
    return test.test if isinstance(test, UnlabelledMonitor) else test


def _kind(test: Watch) -> str:
    inner = _inner(test)
    of = "" if inner is None or inner is test else f" with {_article(inner.document)}"
    return f"{_article(test.document)}{of}"


def _article(document: str) -> str:
    return f"{'an' if document[0] in 'aeiou' else 'a'} {document}"


def _n_reference(test: Watch) -> int | None:
    return getattr(_inner(test), "n_reference", None)


def _setting(test: Watch, name: str) -> float | None:
    if name == "tolerance":
        return getattr(_inner(test), "requested_tolerance", None)
    return getattr(_inner(test) if isinstance(test, UnlabelledMonitor) and name == "alpha" else test, name, None)


def hashes(paths: Sequence[str]) -> dict[str, str]:
    """Hash those of these files that are on this machine and not too large to be read once more, by path."""
    files = [str(path) for path in expand_paths(paths)]
    return {path: f.sha256 for path, f in zip(files, Provenance.now(files).files) if f.sha256 is not None}


def not_fed(
    inputs: Sequence[str], spec: InputSpec, seen: Sequence[str], state: str | None, repeats: Repeats
) -> tuple[list[str], InputSpec, list[str]]:
    """Return the files to read, and the hashes of those that are new; one that was fed before is no news."""
    paths, digest = [str(path) for path in expand_paths(inputs)], hashes(inputs)
    known = dict.fromkeys(seen, f"was fed to {state} before")
    left_out = []
    for i, path in enumerate(paths):
        sha256 = digest.get(path)
        if sha256 is None or repeats == "count":
            continue
        if sha256 in known and repeats == "error":
            raise InputError(
                f"{path}: {known[sha256]}; the same samples count only once. Use --repeats skip to leave the file out, "
                "or a new --state to begin anew."
            )
        if sha256 in known:
            note(f"{path}: {known[sha256]}; it is left out")
            left_out.append(i)
        known[sha256] = "has the same content as another input"
    new = [value for value in dict.fromkeys(digest.values()) if value not in set(seen)]
    if not left_out:
        return list(inputs), spec, new
    kept = [i for i in range(len(paths)) if i not in left_out]
    labels = None if spec.labels is None else [spec.labels[i] for i in kept]
    return [paths[i] for i in kept], spec.updated(labels=labels), new


def as_dict(test: Watch, before: int) -> dict[str, Any]:
    """Return the verdict as plain numbers."""
    inner = _inner(test)
    found: dict[str, Any] = {
        "test": test.document,
        "alarm": test.alarm,
        "alarm_at": None if inner is None else inner.alarm_at,
        "p_value": None if inner is None else test.p_value if isinstance(test, GroupedTest) else inner.p_value,
        "e_value": None if inner is None else inner.e_value,
        "n_samples": test.n_samples,
        "new_samples": test.n_samples - before,
        "n_rows": test.n_rows,
        "alpha": None if inner is None else test.alpha if isinstance(test, GroupedTest) else inner.alpha,
        "message": "; ".join(test.describe()),
    }
    if isinstance(test, GroupedTest):
        found["groups"] = [
            {"group": name, **_figures(one), "p_value": test.p_value_of(one)} for name, one in test.tests.items()
        ]
    if isinstance(test, UnlabelledMonitor):
        found |= _estimates(test)
    elif inner is not None:
        found |= _of_kind(inner)
    return found


def _figures(test: Any) -> dict[str, Any]:
    names = ("alarm", "alarm_at", "n_samples", "n_rows", "alpha")
    return {name: getattr(test, name) for name in names} | _of_kind(test)


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


def _estimates(monitor: UnlabelledMonitor) -> dict[str, Any]:
    if not monitor.n_samples:
        return {}
    shift = monitor.priors()
    found: dict[str, Any] = _estimate(monitor, None)
    found["groups"] = [{"group": name, **_estimate(monitor, name)} for name in monitor.groups]
    if shift is not None:
        e = shift.estimate
        rows = zip(shift.classes, e.old.tolist(), e.priors.tolist(), e.low.tolist(), e.high.tolist())
        found["priors"] = [
            {"class": name, "before": old, "value": value, "low": low, "high": high}
            for name, old, value, low, high in rows
        ]
        found["accuracy_if_label_shift"] = shift.accuracy
    if monitor.test is not None:
        found["n_reference"] = monitor.test.n_reference
    return found


def _estimate(monitor: UnlabelledMonitor, group: str | int | None) -> dict[str, Any]:
    found = monitor.estimates(group)
    figures = {"accuracy": found.accuracy} | ({} if found.miss_rate is None else {"miss_rate": found.miss_rate})
    return ({} if group is None else {"n_samples": found.n_samples}) | plain(figures) | {"decided": found.decided}
