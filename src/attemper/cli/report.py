"""`attemper report`: the comparison as one page."""

from __future__ import annotations

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
from attemper.cli.inputs import Fitted, Pair, load_pair
from attemper.cli.options import (
    METHOD_LIST,
    confidence_level_option,
    cv_option,
    noise_option,
    noisy_option,
    reading,
    seed_option,
    test_argument,
    val_argument,
)
from attemper.cli.output import print_json, say
from attemper.cli.paths import INPUT, OUTPUT
from attemper.cli.progress import counted_methods
from attemper.cli.sets import load_sets
from attemper.cli.values import check_noise, class_descriptions, method_names, model_card
from attemper.decisions import SetOutcome, SetPolicy, set_outcome
from attemper.errors import InputError
from attemper.io import InputSpec

# What --json prints of the data of the page.
PRINTED = (
    *("title", "n_val", "n_test", "n_classes", "confidence_level", "recommended", "reason", "n_folds"),
    *("confidence_set", "verdict", "rows", "provenance"),
)


@cli.command(section="Evaluate")
@val_argument
@test_argument
@click.option("-o", "--output", type=OUTPUT, default="report.html", show_default=True, help="Where to write the page.")
@click.option("--title", help="Title of the page. [default: the name of TEST]")
@click.option(
    "--card",
    "cards",
    type=INPUT,
    multiple=True,
    metavar="FILE|NAME=VALUE",
    help="Description of the model, such as model, version, date, population, intended use: a .json file or one "
    "entry; repeat for several. An empty value removes an entry.",
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
@cv_option
@noisy_option
@noise_option
@confidence_level_option
@seed_option
@reading(groups=True, clusters=True)
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
    cv: int | None,
    noisy: bool,
    noise: str | None,
    confidence_level: float,
    seed: int,
    spec: InputSpec,
    as_json: bool,
) -> None:
    """Write a report on a classifier: confidence, accuracy, what calibration changes, which cases to refer.

    The report is a single, self-contained HTML file to read offline, print or share. It begins with a verdict: how far
    the confidence is off, what calibration changes, how many samples of a class the network finds, and how many cases
    to refer. Then it shows the classes, what is referred at some thresholds, the comparison of methods, and the
    provenance. With --groups it has a section by group: gaps with intervals that hold for all groups together, and a
    test of whether all are alike.

    \b
    attemper report val.npz test.npz --classes names.csv -o report.html
    attemper report val.npz test.npz --card card.json --card version=2
    attemper report val.csv test.csv --groups site
    attemper report val.npz test.npz --sets sets.json --sets-map map.json
    """  # noqa: D301 (click wants the control character)
    from attemper.report import origin, write_report

    check_noise(noisy, noise)
    if (sets_file is None) != (sets_map is None):
        lacking = "--sets-map MAP" if sets_map is None else "--sets FILE"
        raise InputError(f"expected prediction sets and the map that they belong to, got one of them. Add {lacking}.")
    card, descriptions = model_card(cards), class_descriptions(click.get_current_context().params["classes"])
    pair = load_pair(val, test, spec)
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
            cv=cv,
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
        print_json({"output": output, "bytes": size, **clusters_json(pair.test), **found})
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
