"""`attemper adapt`: a map for data with other shares of the classes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from attemper._json import to_fields
from attemper._paths import expand_paths
from attemper.cli.commands import cli
from attemper.cli.inputs import Fitted, read_files
from attemper.cli.options import confidence_level_option, map_argument, no_groups_option, reading, seed_option
from attemper.cli.output import out, print_json, say
from attemper.cli.paths import INPUT, OUTPUT
from attemper.cli.progress import shown_progress
from attemper.cli.values import class_shares
from attemper.errors import InputError
from attemper.io import InputSpec


@cli.command(section="Decide and monitor")
@map_argument
@click.argument("inputs", type=INPUT, nargs=-1, metavar="[INPUT…]")
@click.option("-o", "--output", type=OUTPUT, required=True, metavar="OUT.json", help="Where to write the adapted map.")
@click.option(
    "--priors",
    type=INPUT,
    metavar="A,B,…|NAME=A,…|FILE",
    help="Known shares of the classes, instead of INPUT: one for each column, by name, or in a .json file (a list or "
    "an object). They add up to 1.",
)
@click.option(
    "--old",
    type=INPUT,
    metavar="A,B,…|NAME=A,…|FILE",
    help="Shares for which the probabilities of MAP are right [default: its mean prediction on the data of its fit].",
)
@click.option(
    "--validation",
    type=INPUT,
    metavar="VAL",
    help="Labelled data like those of the fit, to test whether a mix of the classes explains INPUT. It is read like "
    "INPUT, with the same options.",
)
@click.option("--force", is_flag=True, help="Adapt even if no mix of the classes explains INPUT.")
@confidence_level_option
@seed_option
@no_groups_option
@reading(weights=False, labels=False, groups=True, clusters=True)
def adapt(
    map_file: str,
    inputs: Sequence[str],
    output: str,
    priors: str | None,
    old: str | None,
    validation: str | None,
    force: bool,
    confidence_level: float,
    seed: int,
    no_groups: bool,
    spec: InputSpec,
    as_json: bool,
) -> None:
    """Adapt a MAP to other class shares: known ones, or estimated from unlabelled INPUT.

    From unlabelled data the shares are estimated under label shift: images, texts or patients of a class are as before,
    and only the mix of the classes differs. If no mix explains the predictions, the command raises an error: the inputs
    themselves have changed, and you need new labelled data. If there is little
    evidence of a shift, the shares stay close to the old ones, and the map changes little.

    \b
    attemper adapt map.json new.npz -o adapted.json
    attemper adapt map.json 'june/*.parquet' -o june.json --clusters patient
    attemper adapt map.json --priors 0.7,0.2,0.1 -o adapted.json
    attemper adapt map.json --priors 0.01,0.99 --old 0.5,0.5 -o adapted.json
    """  # noqa: D301 (click wants the control character)
    fitted = Fitted.load(map_file)
    calibrator, names = fitted.calibrator, fitted.calibrator.class_names
    known = None if old is None else class_shares(old)
    if bool(inputs) == (priors is not None):
        raise InputError("pass INPUT, unlabelled data, or --priors with known shares" + ", not both" * bool(inputs))
    if priors is not None:
        if validation is not None:
            raise InputError("--validation: belongs to INPUT; with --priors use --old")
        adapted = calibrator.with_priors(class_shares(priors), known)
    else:
        settings: dict[str, Any] = {"force": force, "confidence_level": confidence_level, "seed": seed}
        if no_groups:
            settings["groups"] = "common"
        if validation is not None:
            labelled = spec.updated(need_labels=True, clusters_key=None)
            settings["validation"] = read_files(validation, labelled, fitted).load()
        files = read_files(inputs, spec, fitted)
        names = names or files.spec.class_names  # type: ignore[assignment]
        with shown_progress("reading") as progress:
            new = files.load(progress)
        adapted = calibrator.adapt(new, old=known, **settings)
    adapted.save(output)
    if as_json:
        files_read = [str(path) for path in expand_paths(inputs)] if inputs else []
        about = {"classes": adapted.class_names, "n_classes": int(adapted.n_features_in_)}
        found = {"estimated": adapted.adaptation_.estimated, **to_fields(adapted.adaptation_)}
        print_json({**about, **found, "map": map_file, "files": files_read, "output": output})
        return
    for line in adapted.adaptation_.describe(names):
        out.print(line)
    say(f"wrote {output}")
