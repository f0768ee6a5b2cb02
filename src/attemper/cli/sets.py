"""`attemper sets`: a few classes instead of one, which hold the true one as often as asked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import click
import numpy as np
from rich.table import Table
from rich.text import Text

from attemper._checks import same_classes
from attemper._paths import as_path, sha256_of
from attemper.cli.clusters import clusters_json, say_clusters
from attemper.cli.commands import cli
from attemper.cli.dividing import DEFAULT_SHARES, applied, read_and_fit
from attemper.cli.inputs import Fitted
from attemper.cli.options import (
    METHOD,
    confidence_level_option,
    map_option,
    no_groups_option,
    reading,
    save_map_option,
    test_argument,
    val_argument,
)
from attemper.cli.output import compact, count, out, print_json, say, share
from attemper.cli.paths import OUTPUT
from attemper.cli.progress import shown_progress
from attemper.data.scores import LabelledScores
from attemper.decisions import PredictionSets, SetOutcome, SetPolicy, SetShare, prediction_sets, set_outcome
from attemper.errors import InputError, warn
from attemper.io import InputSpec, ScoreFiles
from attemper.io.set_files import write_sets

MOST_ROWS = 30  # of a table; --json has all


@cli.command(section="Decide and monitor")
@val_argument
@test_argument
@click.option(
    "--coverage", type=float, default=0.95, show_default=True, help="How often a set contains the true class."
)
@click.option(
    "--score",
    type=click.Choice(["lac", "aps", "raps"]),
    default="lac",
    show_default=True,
    help="lac: the smallest sets. aps: larger where the network is less confident. raps: aps with a penalty on large "
    "sets.",
)
@click.option(
    "--by",
    type=click.Choice(["class", "group"]),
    help="Guarantee the coverage for each true class, or for each group (--groups), with separate thresholds.",
)
@click.option("--max-size", type=click.IntRange(1), default=3, show_default=True, help="Largest set that is listed.")
@click.option(
    "--guarantee-level",
    type=float,
    help="Guarantee the coverage with this confidence over the draw of VAL, instead of on average over draws.",
)
@click.option("--randomized", is_flag=True, help="With aps and raps: exact coverage, by random numbers (--seed).")
@click.option("--allow-empty", is_flag=True, help="Do not put the most probable class into every set.")
@click.option("--penalty", type=float, help="With raps: the penalty. [default: chosen on a fifth of the rest of VAL]")
@click.option("--k-reg", type=click.IntRange(0), help="With raps: places without a penalty. [default: as the penalty]")
@click.option("--method", type=METHOD, default="bayes", show_default=True, help="How to calibrate, on a part of VAL.")
@map_option
@click.option(
    "--fit-share",
    type=float,
    help=f"Share of VAL to fit the map on; the rest is used for the thresholds. [default: {DEFAULT_SHARES}]",
)
@click.option("-o", "--output", type=OUTPUT, help="Where to write the policy, such as sets.json.")
@save_map_option
@click.option("--sets-out", type=OUTPUT, metavar="FILE", help="Where to write the sets of TEST: .csv, .jsonl or .npz.")
@confidence_level_option
@click.option(
    "--seed",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    help="Seed of the split of VAL, of the sample of each cluster and of --randomized.",
)
@no_groups_option
@reading(groups=True, clusters=True)
def sets(
    val: str,
    test: str,
    coverage: float,
    score: Any,
    by: Any,
    max_size: int,
    guarantee_level: float | None,
    randomized: bool,
    allow_empty: bool,
    penalty: float | None,
    k_reg: int | None,
    method: str,
    map_file: str | None,
    fit_share: float | None,
    output: str | None,
    save_map: str | None,
    sets_out: str | None,
    confidence_level: float,
    seed: int,
    no_groups: bool,
    spec: InputSpec,
    as_json: bool,
) -> None:
    """Fit prediction sets (short lists of classes) on VAL, and evaluate them on TEST.

    Each case gets a set of classes. A set of one class is a decision, and a set of at most --max-size classes is a
    short list. Cases with a larger set, or with all classes, are referred. Among new cases like those of VAL, at least
    a share --coverage have a set that contains the true class (split-conformal prediction). This holds on average over
    draws of VAL, for any network and any number of samples. The command prints how far the coverage varies from draw to
    draw.

    The coverage is not guaranteed if the same samples fit the map and set the thresholds, so VAL is split at random
    (--fit-share). With --clusters, one sample of each cluster is drawn. If there are too few samples for the coverage,
    every class is in the set. `attemper apply MAP FILE --sets sets.json` applies the policy to new files.

    \b
    attemper sets val.npz test.npz --coverage 0.95
    attemper sets val.npz test.npz --score raps --sets-out sets.csv
    attemper sets val.npz test.npz --by class --classes classes.txt
    attemper sets val.npz test.npz --by group --groups site
    attemper sets val.npz test.npz --clusters lesion_id
    attemper sets val.npz test.npz -o sets.json --save-map map.json
    """  # noqa: D301 (click wants the control character)
    if by == "group" and spec.groups_key is None:
        raise InputError("--by group: expected the group of each row, got none. Use --groups NAME.")
    data = read_and_fit(
        val,
        test,
        spec,
        map_file=map_file,
        no_groups=no_groups,
        method=method,
        fit_share=fit_share,
        save_map=save_map,
        seed=seed,
    )
    calibrator, rest, scores = data.calibrator, data.choosing, data.test
    policy = prediction_sets(
        applied(calibrator, rest),
        rest.labels,
        coverage,
        score=score,
        by=by,
        groups=rest.groups if by == "group" else None,
        clusters=rest.cluster_ids,
        confidence_level=guarantee_level,
        randomized=randomized,
        penalty=penalty,
        k_reg=k_reg,
        allow_empty=allow_empty,
        max_size=max_size,
        sample_weight=rest.weights,
        classes=data.names,
        seed=seed,
    )
    used = map_file or save_map
    policy = replace(policy, map_sha256=None if used is None else sha256_of(as_path(used)))
    p_test, ids = applied(calibrator, scores), {"groups": scores.groups}
    found = set_outcome(
        policy,
        p_test,
        scores.labels,
        **ids,
        clusters=scores.cluster_ids,
        sample_weight=scores.weights,
        confidence_level=confidence_level,
        seed=seed,
    )
    if output is not None:
        policy.save(output)
    if sets_out is not None:
        save_sets(sets_out, policy.sets(p_test, **ids, seed=seed), scores.labels)
    if as_json:
        print_json(
            {
                "method": calibrator.method,
                "n_fitted": data.n_fitted,
                "n_calibrated": len(rest),
                "policy": policy.to_dict(),
                "rule": policy.rule(),
                "promise": policy.promise(),
                "coverage_range": [list(ends) for ends in policy.coverage_range],
                "test": found.to_dict(),
                "output": output,
                "map": used,
                "sets_output": sets_out,
                **clusters_json(scores),
            }
        )
        return
    out.print(f"Map: {calibrator.method}, {data.how}. Sets: thresholds from {len(rest)}.")
    say_clusters(scores, "TEST: ")
    print_policy(policy)
    print_outcome(policy, found, confidence_level)
    for written in (output, save_map, sets_out):
        if written is not None:
            say(f"wrote {written}")


def save_sets(path: str, found: PredictionSets, labels: Any = None) -> None:
    """Write the sets of samples to a file."""
    write_sets(
        path, found.mask, found.action.tolist(), found.lists(), probs=found.probs, labels=labels, classes=found.classes
    )


def apply_sets(fitted: Fitted, files: ScoreFiles, sets_file: str, output: str, as_json: bool) -> None:
    """Write the sets of files by a saved policy."""
    policy = load_sets(sets_file, fitted.path)
    same_classes(policy.n_classes, files.n_classes, of=sets_file, where=str(files.readers[0].path))
    rng, parts, labels = np.random.default_rng([0, 2]), [], []
    with shown_progress("applying") as progress:
        for piece in files.watched(progress):
            if piece.layout is not None or piece.repeated is not None:
                raise InputError("--sets: expected one row of logits for each case, got images or soft labels")
            parts.append(policy.sets(applied(fitted.calibrator, piece), groups=piece.groups, seed=rng))
            labels.append(piece.labels if isinstance(piece, LabelledScores) else None)
    found = replace(
        parts[0], mask=np.concatenate([p.mask for p in parts]), probs=np.concatenate([p.probs for p in parts])
    )
    names = fitted.calibrator.class_names
    found = found if found.classes or names is None else replace(found, classes=tuple(map(str, names)))
    given = [part for part in labels if part is not None]
    save_sets(output, found, np.concatenate(given) if len(given) == len(labels) else None)
    if as_json:
        print_json({"n_samples": len(found), "output": output})
        return
    counts = ", ".join(f"{int((found.action == action).sum())} {action}" for action in ("decide", "list", "refer"))
    say(f"wrote {len(found)} rows to {output}: {counts}")


def load_sets(path: str, map_file: str) -> SetPolicy:
    """Read a policy, and warn if it is for another map."""
    policy = SetPolicy.load(path)
    if policy.map_sha256 not in (None, sha256_of(as_path(map_file))):
        warn(
            f"{path}: its thresholds were taken with another map than {map_file} (other sha256), so the coverage is "
            "not guaranteed. Use the map that `attemper sets --save-map` wrote."
        )
    return policy


def print_policy(policy: SetPolicy) -> None:
    """Print the rule and what it guarantees."""
    out.print(f"Rule: {policy.rule()}.")
    for text in (policy.promise(), policy.law(), *policy.notes):
        out.print(f"  {text[:1].upper()}{text[1:]}.")


def print_outcome(policy: SetPolicy, found: SetOutcome, level: float) -> None:
    """Print how the sets fare."""
    every, size = found.all, found.all.mean_size
    assert every.coverage is not None
    out.print(f"On the {count(every.n)} test samples:")
    out.print(f"  {share(every.coverage)} of the sets hold the true class; asked: {policy.coverage:.1%}.")
    listed = f"{count(every.listed)} are listed" + (f" ({policy.lists_of()})" if every.listed else "")
    out.print(
        f"  Mean size {size:.3g}: {count(every.decided)} are decided, {listed}, {count(every.referred)} referred."
    )
    for first, rows in (("true class", found.by_class), ("group", found.by_group), ("size", found.by_size)):
        if rows:
            out.print()
            out.print(_table(first, rows))
    out.print(f"coverage: share of the sets that hold the true class, with {level:.0%} intervals.", style="dim")


def _table(first: str, rows: Sequence[SetShare]) -> Table:
    made = compact(first, "samples", "coverage", "mean size", "decided", "listed", "referred")
    for row in rows[:MOST_ROWS]:
        if row.coverage is None:
            made.add_row(Text(row.name), "0", "no samples", "", "", "", "")
            continue
        acts = (count(v) for v in (row.decided, row.listed, row.referred))
        made.add_row(Text(row.name), count(row.n), share(row.coverage), f"{row.mean_size:.3g}", *acts)
    if len(rows) > MOST_ROWS:
        made.add_row(Text(f"… {len(rows)} in all"), *[""] * 6)
    return made
