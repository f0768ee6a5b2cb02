"""`attemper plan`: how many labels a question takes, and which samples to label."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import click

from attemper._json import atomic
from attemper._paths import local
from attemper.cli.clusters import clusters_json, say_clusters
from attemper.cli.commands import cli
from attemper.cli.dividing import FIT_SHARE_FEW
from attemper.cli.gates import Gate, gating
from attemper.cli.inputs import Fitted, read_files
from attemper.cli.options import confidence_level_option, reading
from attemper.cli.output import compact, out, print_json
from attemper.cli.paths import INPUT, OUTPUT
from attemper.cli.progress import shown_progress
from attemper.cli.verbosity import say
from attemper.data.scores import Scores
from attemper.errors import FileError, InputError, unsupported_extension
from attemper.io import InputSpec
from attemper.planning import (
    ChosenSamples,
    Plan,
    choose_samples,
    labels_for_certificate,
    labels_for_coverage,
    labels_for_metric,
    labels_for_temperature,
    typical_network,
)

WIDTHS = ("temperature", "ece", "accuracy", "nll", "brier")
ASK = ", ".join(f"--{name}-width" for name in WIDTHS) + ", --max-miss, --coverage or --choose"
SHOWN = {"within": "give or take", "power": "reached", "decided_share": "decided", "chance": "ECE by chance"}


TYPICAL = "a typical network, calibrated; real ones of this accuracy differ: docs/planning.md"


class Ratio(click.ParamType):  # type: ignore[type-arg]  # generic in new versions of click
    """A ratio, such as 1.2 or 1.2x."""

    name = "ratio"

    def convert(self, value: Any, param: Any, ctx: Any) -> float:
        """Read it."""
        try:
            return float(str(value).lower().removesuffix("x"))
        except ValueError:
            self.fail(f"{value!r}: expected a ratio above 1, such as 1.2 or 1.2x.", param, ctx)


@cli.command(section="First steps")
@click.argument("inputs", type=INPUT, nargs=-1, metavar="[PILOT…]")
@click.option(
    "--temperature-width",
    type=Ratio(),
    metavar="1.2x",
    help="Plan for an interval of T whose upper end is this many times its lower end.",
)
@click.option(
    "--ece-width", type=float, metavar="W", help="Plan for an interval of the ECE of this width, such as 0.02."
)
@click.option("--accuracy-width", type=float, metavar="W", help="The same of the accuracy.")
@click.option("--nll-width", type=float, metavar="W", help="The same of the NLL.")
@click.option("--brier-width", type=float, metavar="W", help="The same of the Brier score.")
@click.option(
    "--max-miss",
    type=float,
    metavar="R",
    help="Plan for a certificate of at most this rate of misses (attemper refer).",
)
@click.option(
    "--decided-share",
    type=float,
    metavar="SHARE",
    help="With --max-miss: the share of samples to decide [default: 0.8 of the share with unlimited labels].",
)
@click.option(
    "--power",
    type=float,
    default=0.8,
    show_default=True,
    help="With --max-miss: the probability that the certificate is reached.",
)
@click.option(
    "--miss-rate-of",
    type=click.Choice(["decided", "all"]),
    default="decided",
    show_default=True,
    help="With --max-miss: misses are counted among the decided samples, or among all.",
)
@click.option(
    "--coverage",
    type=float,
    metavar="SHARE",
    help="Plan for prediction sets of this coverage, with --within; needs no pilot.",
)
@click.option("--within", type=float, metavar="X", help="With --coverage: how far off the coverage may be.")
@click.option("--accuracy", type=float, metavar="A", help="Without a pilot: the network's accuracy, with --n-classes.")
@click.option("--n-classes", type=int, metavar="K", help="Without a pilot: the number of classes.")
@click.option("--no-labels", is_flag=True, help="Read no labels: the pilot has none, or they are ignored.")
@click.option("--map", "map_file", type=INPUT, metavar="MAP", help="Plan for the probabilities of this fitted map.")
@click.option(
    "--temperature",
    type=float,
    metavar="T",
    help="With --temperature-width: a rough value of T [default: fitted on the pilot's labels; 1 without].",
)
@click.option(
    "--noise-rate",
    type=float,
    default=0.0,
    metavar="SHARE",
    help="With --temperature-width: the share of labels that will be wrong, such as 0.1.",
)
@confidence_level_option
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Seed of simulations and draws.")
@click.option(
    "--choose",
    type=int,
    metavar="N",
    help="Choose N samples of PILOT to label for an evaluation; -o writes them, with weights.",
)
@click.option("-o", "--output", type=OUTPUT, metavar="ROWS.csv", help="With --choose: where to write rows and weights.")
@reading(clusters=True)
@gating
def plan(
    inputs: Sequence[str],
    max_miss: float | None,
    coverage: float | None,
    within: float | None,
    accuracy: float | None,
    n_classes: int | None,
    no_labels: bool,
    map_file: str | None,
    confidence_level: float,
    seed: int,
    choose: int | None,
    output: str | None,
    spec: InputSpec,
    gate: Gate,
    as_json: bool,
    **options: Any,
) -> int:
    """Plan how many labels to pay for, and which.

    PILOT is a small set of samples like those that will be labelled, with labels or without (--no-labels). If you have
    none, pass --accuracy and --n-classes of the network. Choose one or several targets: the width of an interval of T
    or of a metric, a certificate of few misses, or prediction sets of a given coverage.

    --choose draws the samples to label for an evaluation: more of the uncertain ones, with weights that correct for it
    (evaluate --weights-key). To label samples for a fit, draw them at random.

    Exit code 0: done; 2: an error; 3: a condition of --fail-if holds, such as 'n_samples>2000'.

    \b
    attemper plan val.npz --temperature-width 1.2x
    attemper plan --accuracy 0.93 --n-classes 10 --temperature-width 1.2x
    attemper plan val.npz --ece-width 0.04 --accuracy-width 0.04
    attemper plan val.npz --max-miss 0.1 --decided-share 0.5
    attemper plan --coverage 0.95 --within 0.02
    attemper plan test.npz --no-labels --choose 200 -o rows.csv
    """  # noqa: D301 (click wants the control character)
    asked = {name: options[f"{name}_width"] for name in WIDTHS if options[f"{name}_width"] is not None}
    _check(click.get_current_context().params, asked)
    no_labels = no_labels or not (asked or max_miss is not None)  # --choose needs none
    pilot, more = _pilot(inputs, spec, map_file, no_labels, accuracy, n_classes)
    settings: dict[str, Any] = {"confidence_level": confidence_level}
    plans = []
    with shown_progress("simulating", "sets") as progress:
        for name, width in asked.items():
            plans.append(_width(name, width, pilot, more, options, seed, settings))
        if max_miss is not None:
            how = {name: options[name] for name in ("decided_share", "power", "miss_rate_of")}
            how |= {"seed": seed, "progress": progress, **more}
            plans.append(labels_for_certificate(pilot, max_miss=max_miss, **how, **settings))
    if not inputs:
        plans = [replace(p, n_range=None, notes=(*p.notes, TYPICAL)) for p in plans]
    if coverage is not None:
        assert within is not None
        plans.append(labels_for_coverage(coverage, within=within, **settings))
    chosen = None
    if choose is not None:
        assert output is not None
        chosen = choose_samples(pilot, choose, calibrator=more["calibrator"], seed=seed)
        _write(output, chosen)
    figures: dict[str, dict[str, int]] = {p.question: {"n_samples": p.n_samples} for p in plans}
    gated = gate.check(figures, default=plans[0].question if plans else "")
    if as_json:
        listed = None if chosen is None else {"n_samples": len(chosen.row), "output": output}
        print_json({**clusters_json(pilot), "plans": [p.to_dict() for p in plans], "chosen": listed, **gated})
    else:
        say_clusters(pilot)
        for p in plans:
            _print(p)
        if chosen:
            say(f"wrote {output}: {choose} rows to label, with weights")
    return gate.end(",".join(inputs) or "no pilot")


def _check(given: dict[str, Any], asked: dict[str, float]) -> None:
    """Refuse options that do not belong together."""
    inputs, max_miss, output = (given[name] for name in ("inputs", "max_miss", "output"))
    coverage, accuracy, choose = (given[name] for name in ("coverage", "accuracy", "choose"))
    planned = len(asked) + (max_miss is not None) + (coverage is not None)
    if not planned and choose is None:
        raise InputError(f"expected a question. Use {ASK}.")
    if (coverage is None) != (given["within"] is None):
        raise InputError("--coverage and --within belong together, such as --coverage 0.95 --within 0.02")
    if (accuracy is None) != (given["n_classes"] is None):
        raise InputError("--accuracy and --n-classes belong together, such as --accuracy 0.93 --n-classes 10")
    if (choose is None) != (output is None):
        raise InputError("--choose and -o belong together, such as --choose 200 -o rows.csv")
    if output is not None and local(output).suffix.lower() != ".csv":
        raise unsupported_extension(output, local(output).suffix, [".csv"])
    if inputs and accuracy is not None:
        raise InputError("--accuracy stands in for a pilot. Use either PILOT, or --accuracy and --n-classes.")
    if not inputs and choose is not None:
        raise InputError("--choose: expected the file of the samples to choose from, such as pool.npz")
    if not inputs and accuracy is None and (asked or max_miss is not None):
        raise InputError(
            "expected a pilot, such as val.npz. Use --accuracy and --n-classes of the network if there is none."
        )
    for flag, value, belongs in (
        ("--decided-share", given["decided_share"], max_miss is not None),
        ("--temperature", given["temperature"], "temperature" in asked),
        ("--noise-rate", given["noise_rate"] or None, "temperature" in asked),
    ):
        if value is not None and not belongs:
            raise InputError(f"{flag} belongs to {'--max-miss' if 'share' in flag else '--temperature-width'}")


def _pilot(
    inputs: Sequence[str],
    spec: InputSpec,
    map_file: str | None,
    no_labels: bool,
    accuracy: float | None,
    n_classes: int | None,
) -> tuple[Scores | None, dict[str, Any]]:
    """Read the pilot, or make one; also the map."""
    fitted = None if map_file is None else Fitted.load(map_file)
    more: dict[str, Any] = {"calibrator": None if fitted is None else fitted.calibrator}
    if not inputs:
        if fitted is not None or spec.clusters_key is not None:
            raise InputError("--map and --clusters belong to a pilot. Use a file, such as val.npz.")
        return (None if accuracy is None or n_classes is None else typical_network(accuracy, n_classes)), more
    if no_labels:
        spec = spec.updated(labels=None, labels_key=None, need_labels=False)
    elif fitted is not None:
        fitted.warn_of(inputs)
    try:
        with shown_progress("reading") as progress:
            return read_files(inputs, spec, fitted).load(progress), more
    except (FileError, InputError) as error:
        if no_labels or "label" not in str(error):
            raise
        raise type(error)(f"{error} Use --no-labels if the pilot has none.") from None


def _width(
    name: str,
    width: float,
    pilot: Scores | None,
    more: dict[str, Any],
    options: dict[str, Any],
    seed: int,
    settings: dict[str, Any],
) -> Plan:
    if name != "temperature":
        metric: Any = name
        return labels_for_metric(pilot, metric=metric, width=width, seed=seed, **more, **settings)
    how = {"temperature": options["temperature"], "noise": options["noise_rate"]}
    return labels_for_temperature(pilot, width=width, **how, **settings)


def _write(path: str, chosen: ChosenSamples) -> None:
    with atomic(local(path)) as stream:
        stream.write(b"row,weight\n")
        for row, weight in zip(chosen.row.tolist(), chosen.weight.tolist(), strict=True):
            stream.write(f"{row},{weight!r}\n".encode())


def _print(found: Plan) -> None:
    """Print the answer, what it rests on, and the curve."""
    first, *notes = found.describe()
    out.print(first)
    for line in notes:
        out.print(f"  {line}", style="dim")
    if found.question == "certificate":
        in_all = round(found.n_samples / (1 - FIT_SHARE_FEW))
        out.print(f"  attemper refer fits the map on {FIT_SHARE_FEW:.0%} of VAL: label {in_all} in all", style="dim")
    shown = [name for name in found.curve if not name.endswith("_error")]
    table = compact("labels", *(SHOWN.get(name, name) for name in shown[1:]))
    for row in range(len(found.curve["n_samples"])):
        table.add_row(*(_cell(found, name, row) for name in shown))
    out.print(table)


def _cell(found: Plan, name: str, row: int) -> str:
    value = found.curve[name][row]
    if name == "n_samples":
        return f"{value:.0f}{' ←' if value == found.n_samples else ''}"
    error = found.curve.get(f"{name}_error")
    return f"{value:.3g}" if error is None else f"{value:.3g} ± {error[row]:.1g}"
