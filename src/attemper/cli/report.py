"""`attemper report`: one page for doctors and engineers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from attemper._checks import same_classes
from attemper._paths import local
from attemper.calibrators import METHODS
from attemper.cli.clusters import clusters_json, say_clusters
from attemper.cli.commands import cli
from attemper.cli.dividing import applied
from attemper.cli.groups import of_val
from attemper.cli.inputs import Fitted, Pair, load_pair
from attemper.cli.options import (
    METHOD_LIST,
    confidence_level_option,
    noise_option,
    noisy_option,
    reading,
    seed_option,
    selecting,
    test_argument,
    val_argument,
    with_val,
)
from attemper.cli.output import print_json
from attemper.cli.paths import INPUT, PAGE_OUTPUT
from attemper.cli.progress import counted_methods
from attemper.cli.sets import load_sets
from attemper.cli.texts import model_card
from attemper.cli.values import check_noise, class_descriptions, method_names
from attemper.cli.verbosity import say
from attemper.comparison import CrossValidated
from attemper.decisions import SetOutcome, SetPolicy, set_outcome
from attemper.errors import InputError
from attemper.io import InputSpec

# What --json prints of the data of the page, in addition to the rows.
PRINTED = (
    *("title", "n_val", "n_test", "n_classes", "confidence_level", "recommended", "reason", "n_folds"),
    *("confidence_set", "verdict", "provenance"),
)


@cli.command(section="Evaluate")
@val_argument
@test_argument
@click.option(
    "-o", "--output", type=PAGE_OUTPUT, default="report.html", show_default=True, help="Where to write the page."
)
@click.option("--title", help="Title of the page. [default: the name of TEST]")
@click.option(
    "--card",
    "cards",
    type=INPUT,
    multiple=True,
    metavar="FILE|NAME=VALUE",
    help="Description of the model, such as model, version, date, population, intended use: a file "
    "(.json, .toml, or lines of 'name: value'), or one entry; repeat for several. An empty value removes an entry.",
)
@click.option(
    "--focus",
    metavar="CLASS",
    help="The class that the verdict is about, such as mel. [default: the one of which most samples are missed]",
)
@click.option(
    "--sets",
    "sets_file",
    type=INPUT,
    metavar="FILE",
    help="Add a section on prediction sets, by this policy of `attemper sets -o`.",
)
@click.option("--sets-map", type=INPUT, metavar="MAP", help="The map of --sets, written by `attemper sets --save-map`.")
@click.option(
    "--methods", type=METHOD_LIST, metavar="A,B,…", help="Which methods, such as ts,bayes,structured [default: all]."
)
@click.option(
    "--catch",
    type=float,
    default=0.8,
    show_default=True,
    help="Share of the validation errors that the suggested threshold refers.",
)
@selecting
@noisy_option
@noise_option
@confidence_level_option
@seed_option
@reading(groups=True, clusters=True)
@with_val(groups=True, clusters=True)
def report(
    val: str,
    test: str,
    output: str,
    title: str | None,
    cards: tuple[str, ...],
    focus: str | None,
    sets_file: str | None,
    sets_map: str | None,
    methods: str | None,
    catch: float,
    selecting: dict[str, Any],
    noisy: bool,
    noise: str | None,
    confidence_level: float,
    seed: int,
    spec: InputSpec,
    val_spec: InputSpec,
    as_json: bool,
) -> None:
    """Write a report on a classifier: confidence, accuracy, what calibration changes, which cases to refer.

    The report is a single, self-contained HTML file to read offline, print or share. It begins with a verdict: how far
    the confidence is off, what calibration changes, how many samples of a class the network finds, and how many cases
    to refer. Then it shows the classes, what is referred at some thresholds, the comparison of methods, and the
    provenance. With --groups it has a section by group: gaps with intervals that hold for
    all groups together, and a test of whether all are alike.

    \b
    attemper report val.npz test.npz --classes names.csv -o report.html
    attemper report val.npz test.npz --card card.txt --card version=2
    attemper report val.csv test.csv --groups site
    attemper report val.npz test.npz --sets sets.json --sets-map map.json
    """  # noqa: D301 (click wants the control character)
    from attemper.report import origin, write_report

    check_noise(noisy, noise)
    if (sets_file is None) != (sets_map is None):
        lacking = "--sets-map MAP" if sets_map is None else "--sets FILE"
        raise InputError(f"expected prediction sets and the map that they belong to, got one of them. Add {lacking}.")
    card, descriptions = model_card(cards), class_descriptions(click.get_current_context().params["classes"])
    pair = load_pair(val, test, of_val(val_spec, spec), spec)
    chosen = method_names(methods)
    sets = sets_and_outcome(sets_file, sets_map, pair, confidence_level, seed) if sets_file and sets_map else None
    with counted_methods(1 + len(chosen or METHODS)) as tick:
        summary = write_report(
            output,
            pair.val,
            pair.test,
            classes=pair.names,
            descriptions=descriptions,
            focus=focus,
            methods=chosen,
            sets=sets,
            card=card,
            title=title or f"Calibration report: {Path(test).name}",
            files=[*origin("validation", pair.val_files.files), *origin("test", pair.test_files.files)],
            catch=catch,
            cv=selecting["cv"],
            noisy=noisy,
            noise=noise,
            confidence_level=confidence_level,
            seed=seed,
            tick=tick,
        )
    if as_json:
        size = local(output).stat().st_size
        found = {name: summary[name] for name in PRINTED}
        found |= {"by_group": summary["by_group"]} if summary["by_group"] else {}
        print_json({"output": output, "bytes": size, **clusters_json(pair.test), **found, "rows": rows_of(summary)})
        return
    say_clusters(pair.test, "TEST: ")
    for lead, text in summary["verdict"]:
        say(f"{lead} {text}")
    say(f"Report: {output}")


def sets_and_outcome(
    sets_file: str, map_file: str, pair: Pair, confidence_level: float, seed: int
) -> tuple[SetPolicy, SetOutcome]:
    """Read prediction sets, and evaluate them on TEST."""
    policy, fitted = load_sets(sets_file, map_file), Fitted.load(map_file)
    test = pair.test
    same_classes(policy.n_classes, test.n_classes, of=sets_file, where=str(pair.test_files.readers[0].path))
    fitted.warn_of([str(reader.path) for reader in pair.test_files.readers])
    about: dict[str, Any] = {"groups": test.groups, "clusters": test.cluster_ids, "sample_weight": test.weights}
    if policy.classes is None and pair.names is not None:
        policy = replace(policy, classes=tuple(pair.names))
    settings: dict[str, Any] = {"confidence_level": confidence_level, "seed": seed}
    return policy, set_outcome(policy, applied(fitted.calibrator, test), test.labels, **about, **settings)


def rows_of(summary: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the rows of the page in the words of `attemper compare --json`."""

    def estimate(found: Sequence[float] | None, **more: Any) -> dict[str, Any] | None:
        return None if found is None else dict(zip(("value", "low", "high"), [*found, None, None])) | more

    rows = []
    for row in summary["rows"]:
        reasons = {name: {"note": note} for name, note in row["reasons"].items()}
        chance = {} if row["chance"] is None else {"ece": dict(zip(("chance", "p_value"), row["chance"]))}
        metrics = row["metrics"] and {
            name: estimate(found, **chance.get(name, {}), **reasons.get(name, {}))
            for name, found in row["metrics"].items()
        }
        rows.append(
            {
                **{name: row[name] for name in ("method", "temperature", "changed", "notes")},
                "cv": row["cv"] and dict(zip(CrossValidated._fields, row["cv"])),
                "metrics": metrics,
                "referral_area": estimate(row["area"], **reasons.get("area", {})),
                "above_best": estimate(row["above_best"]),
                "failure": row["failure"] or None,
            }
        )
    return rows
