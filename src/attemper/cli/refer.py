"""`attemper refer`: who is decided by the network, and who sees a specialist."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import click
from rich.table import Table
from rich.text import Text

from attemper._checks import fraction
from attemper.calibrators import METHODS, Provenance
from attemper.cli.clusters import clusters_json, say_clusters
from attemper.cli.commands import cli
from attemper.cli.dividing import FIT_SHARE, FIT_SHARE_FEW, applied, check_unseen, default_share, divided
from attemper.cli.groups import of_val, print_group_outcomes
from attemper.cli.inputs import Fitted, load_pair
from attemper.cli.multilabel import check_uncertain, label_map, one_number, refer_labels, uncertain_option
from attemper.cli.options import (
    METHOD,
    confidence_level_option,
    no_groups_option,
    noise_option,
    noisy_option,
    reading,
    test_argument,
    val_argument,
    with_val,
)
from attemper.cli.output import compact, out, print_json
from attemper.cli.paths import INPUT, JSON_OUTPUT
from attemper.cli.values import check_noise
from attemper.cli.verbosity import say
from attemper.data.layout import check_independent
from attemper.data.overlap import warn_of_shared_rows
from attemper.decisions import (
    ClassOutcome,
    Outcome,
    Policy,
    outcome_of,
    policy_for_budget,
    policy_for_cost,
    policy_for_miss,
)
from attemper.errors import InputError, warn
from attemper.io import InputSpec
from attemper.metrics import Estimate


@cli.command(section="Decide and monitor")
@val_argument
@test_argument
@click.option(
    "--max-miss",
    metavar="R|NAME=R,…",
    help="At most this rate of misses (wrong decisions), guaranteed. With names: among the patients who "
    "truly have these classes, such as mel=0.1; one threshold keeps all of them.",
)
@click.option("--budget", type=float, metavar="SHARE", help="Refer at most this share of the patients.")
@click.option("--cost-refer", type=float, metavar="COST", help="Cost of a referral, with --cost-miss.")
@click.option(
    "--cost-miss",
    metavar="COST|NAME=COST,…",
    help="Cost of a wrong prediction; with names that of each true class, such as mel=50,nv=1 (all of them).",
)
@click.option(
    "--predict-least-cost",
    is_flag=True,
    help="With costs by class: predict the class of least expected cost. This changes predictions. "
    "Without it the most probable class is predicted, and the costs only affect which cases are referred.",
)
@click.option("--method", type=METHOD, default="bayes", show_default=True, help="How to calibrate, on VAL.")
@click.option(
    "--map",
    "map_file",
    type=INPUT,
    metavar="MAP",
    help="Use this fitted map instead; it must not have been fitted on samples of VAL.",
)
@noisy_option
@noise_option
@click.option("--guarantee-level", type=float, default=0.95, show_default=True, help="Confidence of the guarantee.")
@click.option(
    "--miss-rate-of",
    type=click.Choice(["decided", "all"]),
    help="Compute the miss rate among the decided cases, or among all. [default: decided; all with names]",
)
@click.option("--per-class", is_flag=True, help="Choose a threshold, with its guarantee, for each predicted class.")
@click.option(
    "--max-per-cluster",
    type=click.IntRange(min=1),
    metavar="N",
    help="With --max-miss and --clusters: use at most this many samples of each cluster, drawn at "
    "random. With 1, the rate is that of one random sample of a random cluster. [default: all; the rate is "
    "that of a random sample]",
)
@click.option(
    "--fit-share",
    type=float,
    help="With --max-miss: share of VAL to fit the map on; the rest is used to choose the threshold. [default: "
    f"{FIT_SHARE_FEW} for {', '.join(m for m, c in METHODS.items() if c.needs_few_labels)}; {FIT_SHARE} for others]",
)
@click.option("-o", "--output", type=JSON_OUTPUT, help="Where to write the policy, such as policy.json.")
@click.option(
    "--save-map",
    type=JSON_OUTPUT,
    metavar="FILE",
    help="Where to write the map that was fitted; the policy belongs to it.",
)
@confidence_level_option
@click.option(
    "--seed",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    help="Seed of the split of VAL, of draws from clusters and of the bootstrap.",
)
@uncertain_option
@no_groups_option
@reading(groups=True, clusters=True)
@with_val(groups=True, clusters=True)
def refer(
    val: str,
    test: str,
    max_miss: str | None,
    budget: float | None,
    cost_refer: float | None,
    cost_miss: str | None,
    predict_least_cost: bool,
    method: str,
    map_file: str | None,
    noisy: bool,
    noise: str | None,
    guarantee_level: float,
    miss_rate_of: str | None,
    per_class: bool,
    max_per_cluster: int | None,
    fit_share: float | None,
    output: str | None,
    save_map: str | None,
    confidence_level: float,
    seed: int,
    uncertain: str | None,
    no_groups: bool,
    spec: InputSpec,
    val_spec: InputSpec,
    as_json: bool,
) -> None:
    """Choose on VAL which cases to refer to a specialist, and evaluate the rule on TEST.

    Cases whose calibrated confidence is above a threshold are decided, and the others are referred. Specify how to
    choose the threshold: by a rate of misses, a budget of referrals, or costs.

    With --max-miss the rate is guaranteed: at least a share --guarantee-level of all validation sets would give a
    threshold that keeps it, among all cases like those of VAL. The guarantee does not hold if the same samples fit the
    map and choose the threshold, so VAL is split at random (--fit-share). If nothing can be guaranteed, the command
    reports that and refers every case. The guarantee assumes that the samples of VAL are independent draws from future
    cases, and that its labels are right. For a budget or costs, all of VAL is used to fit the map.

    If a patient has several samples, pass --clusters: patients are then the independent draws. All samples of a patient
    stay in one part of VAL, and intervals on TEST treat the patient as the unit.

    With --groups the command also reports the outcome of each group of TEST. The guarantee holds for all cases
    together, not for each group.

    \b
    attemper refer val.npz test.npz --method bayes --max-miss 0.05
    attemper refer val.npz test.npz --max-miss mel=0.2 --classes classes.txt
    attemper refer val.npz test.npz --max-miss 0.1 --clusters lesion_id
    attemper refer val.npz test.npz --budget 0.2
    attemper refer val.csv test.csv --max-miss 0.05 --groups site
    attemper refer val.npz test.npz --cost-refer 1 --cost-miss 50
    attemper refer val.npz test.npz --cost-refer 1 --cost-miss mel=50,nv=1
    attemper refer val.npz test.npz --budget 0.1 -o rule.json --save-map map.json
    attemper refer val.csv test.csv --map labels.json --max-miss 0.05
    """  # noqa: D301 (click wants the control character)
    check_asked(max_miss, budget, cost_refer, cost_miss)
    check_options(map_file, max_miss)
    labels = label_map(map_file)
    if labels is not None:
        assert map_file is not None
        asked: dict[str, Any] = {
            "miss_rate_of": miss_rate_of or "decided",
            "confidence_level": guarantee_level,
            "max_miss": one_number("--max-miss", max_miss),
            "budget": budget,
            "cost_refer": cost_refer,
            "cost_miss": one_number("--cost-miss", cost_miss),
            "max_per_cluster": max_per_cluster,
        }
        refer_labels(labels, map_file, (val, val_spec), (test, spec), output, uncertain, as_json, **asked)
        return
    check_uncertain(uncertain)
    if predict_least_cost and cost_miss is None:
        raise InputError("--predict-least-cost belongs to --cost-refer and --cost-miss")
    check_noise(noisy, noise)
    if noisy and (map_file or not METHODS[method].knows_noise):
        raise InputError("--noisy belongs to the methods that know of wrong labels, and not to --map")
    fraction("guarantee_level", guarantee_level)
    share = fraction("fit_share", fit_share or default_share(method), such_as="0.5")
    fitted = Fitted.load(map_file, no_groups=no_groups) if map_file else None
    if fitted is not None:
        if max_miss is None:
            fitted.warn_of(val)
        else:
            check_unseen(fitted, val)
        fitted.warn_of(test)
    scores, test_scores, names, *_ = load_pair(val, test, of_val(val_spec, spec), spec, fitted)
    scores = scores if fitted else replace(scores, groups=None)  # one map for all groups
    for file, part in ((val, scores), (test, test_scores)):
        if part.cluster_ids is None or part.repeated is not None:
            check_independent(file, None, part.image, soft=part.repeated is not None)
    warn_of_shared_rows(scores, test_scores)
    fitting, choosing = (scores, scores) if fitted or max_miss is None else divided(scores, share, seed)
    if fitted is not None:
        calibrator = fitted.calibrator
    else:
        calibrator = METHODS[method].for_labels(noisy=noisy, noise=noise, input=scores.input, zeros_as=scores.zeros_as)
        if save_map:
            calibrator.set_params(classes=None if names is None else list(names))
        calibrator.fit(fitting)
    p_val = applied(calibrator, choosing)
    settings: dict[str, Any] = {"sample_weight": choosing.weights, "clusters": choosing.cluster_ids, "classes": names}
    if max_miss is not None:
        bounds = rates(max_miss, names, scores.n_classes, rest=1.0, option="--max-miss")
        by_name = not isinstance(bounds, float)
        if by_name and (per_class or miss_rate_of == "decided"):
            raise InputError(
                "--max-miss with names is about all patients who have a class. Use neither --per-class nor "
                "--miss-rate-of decided with it."
            )
        settings["miss_rate_of"] = miss_rate_of or ("all" if by_name else "decided")
        settings["per_class"] = "true" if by_name else per_class
        settings["fit_probs"] = None if fitted else applied(calibrator, fitting)
        settings["fit_clusters"] = None if fitted else fitting.cluster_ids
        settings |= {"max_per_cluster": max_per_cluster, "seed": seed}
        policy = policy_for_miss(p_val, choosing.labels, bounds, confidence_level=guarantee_level, **settings)
    elif budget is not None:
        policy = policy_for_budget(p_val, budget, **settings)
    else:
        assert cost_refer is not None
        assert cost_miss is not None
        settings["cost_miss"] = rates(cost_miss, names, scores.n_classes, rest=None, option="--cost-miss")
        settings["predict"] = "least_cost" if predict_least_cost else "most_probable"
        policy = policy_for_cost(p_val, choosing.labels, cost_refer=cost_refer, **settings)
    found = outcome_of(
        policy,
        applied(calibrator, test_scores),
        test_scores.labels,
        sample_weight=test_scores.weights,
        groups=test_scores.groups,
        clusters=test_scores.cluster_ids,
        confidence_level=confidence_level,
        seed=seed,
    )
    warn_of_contradiction(policy, found)
    if output is not None:
        policy.save(output)
    if save_map is not None:
        calibrator.save(save_map, provenance=Provenance.now([val, *(val_spec.labels or ())]))
    n_fitted = 0 if fitted else len(fitting)
    if as_json:
        n = {"n_fitted": n_fitted, "n_chosen": len(choosing)}
        files = {"output": output, "map": map_file or save_map}
        about = {"policy": policy.to_dict(), "test": found.to_dict(), **clusters_json(test_scores)}
        print_json({"method": calibrator.method, **n, **about, **files})
        return
    how = f"from {map_file}" if fitted else f"fitted on {n_fitted} of {len(scores)} validation samples"
    out.print(f"Map: {calibrator.method}, {how}. Policy: chosen on {len(choosing)}.")
    say_clusters(choosing, "Policy: ")
    say_clusters(test_scores, "TEST: ")
    print_outcome(policy, found, confidence_level, noisy)
    for path in (output, save_map):
        if path is not None:
            say(f"wrote {path}")


def check_options(map_file: str | None, max_miss: str | None) -> None:
    """Refuse options that have no effect here."""
    given = click.get_current_context().get_parameter_source
    for needed, names, why in (
        (
            max_miss,
            ("guarantee_level", "miss_rate_of", "per_class", "max_per_cluster", "fit_share"),
            "belongs to --max-miss",
        ),
        (not map_file, ("method", "fit_share", "save_map"), "belongs to a fit; with --map nothing is fitted"),
    ):
        for name in names:
            if not needed and given(name) is click.core.ParameterSource.COMMANDLINE:
                raise InputError(f"--{name.replace('_', '-')} {why}")


def check_asked(max_miss: Any, budget: Any, cost_refer: Any, cost_miss: Any) -> None:
    """Want exactly one of three."""
    if (cost_refer is None) != (cost_miss is None):
        raise InputError("--cost-refer and --cost-miss belong together")
    if [max_miss, budget, cost_refer].count(None) != 2:
        raise InputError(
            "expected what the threshold is for. Use exactly one of --max-miss 0.05, --budget 0.2, or --cost-refer 1 "
            "--cost-miss 50."
        )


def rates(text: str, names: Sequence[str] | None, n_classes: int, *, rest: float | None, option: str) -> Any:
    """Read a number, or NAME=NUMBER for classes; the others get ``rest``, and must be named where that is None."""
    try:
        return float(text)
    except ValueError:
        pass
    known = [str(k) for k in range(n_classes)] if names is None else list(names)
    if len(known) != n_classes:
        raise InputError(f"--classes: {len(known)} names for {n_classes} columns of logits")
    values: dict[str, float] = {}
    for part in text.split(","):
        name, equals, value = part.rpartition("=")
        name = name.strip()
        try:
            number = float(value)
        except ValueError:
            equals = ""
        if not equals:
            raise InputError(f"{option} {text}: expected a number, or NAME=NUMBER for classes, such as mel=0.1")
        if name not in known:
            hint = "" if names is not None else " Use --classes for their names."
            raise InputError(f"{option}: there is no class {name!r}; there are {', '.join(known[:20])}.{hint}")
        if name in values:
            raise InputError(f"{option}: {name!r} is there twice")
        values[name] = number
    missing = [name for name in known if name not in values]
    if missing and rest is None:
        raise InputError(f"{option}: the class {missing[0]!r} is missing; name all of them")
    return [values.get(name, rest) for name in known]


def warn_of_contradiction(policy: Policy, found: Outcome) -> None:
    """Warn where the test samples are not like those of the guarantee."""
    bound, rate = None if policy.guarantee is None else policy.guarantee.bound, found.all.miss_rate
    if isinstance(bound, float) and policy.reached and rate is not None and rate.has_interval and rate.low > bound:
        warn(
            f"TEST contradicts the guarantee of at most {bound:.1%}: {share(rate)} are missed there. TEST is not drawn "
            "like VAL. Do not use this policy for cases like TEST; use VAL from where the cases will come from."
        )


def print_outcome(policy: Policy, found: Outcome, interval: float, noisy: bool) -> None:
    """Print the rule and how it fares."""
    out.print(f"Rule: {policy.rule()}; refer otherwise." if policy.reached else f"Rule: {policy.rule()}.")
    out.print(f"  {policy.rationale}.")
    for note in policy.notes:
        out.print(f"  {note}.")
    if noisy and policy.guarantee is not None:
        out.print(
            "  The guarantee takes the labels of VAL for the truth; where they are wrong, it is of agreement with them."
        )
    everybody = found.all
    out.print(f"On the {count(everybody.n)} test samples:")
    out.print(f"  {count(everybody.referred)} are referred: {share(found.referred_share)}.")
    whose = "decided" if found.miss_rate_of == "decided" else "samples"
    rate = "nobody is decided" if everybody.miss_rate is None else f"{share(everybody.miss_rate)} of the {whose}"
    g = policy.guarantee
    asked = f"; asked: at most {g.bound:.1%}" if g is not None and isinstance(g.bound, float) else ""
    out.print(
        f"  Of {count(everybody.errors)} wrong predictions {count(everybody.caught)} are caught, "
        f"{count(everybody.missed)} are missed: {rate}{asked}."
    )
    if found.cost is not None:
        c = found.cost
        out.print(f"  Cost a sample: {c.value:.4g} ({f'{c.low:.4g}–{c.high:.4g}' if c.has_interval else c.note}).")
    out.print()
    out.print(table(found.by_class, "true class", "missed of all"))
    if g is not None and g.by_class == "predicted":
        out.print()
        out.print(table(found.by_predicted, "predicted as", f"missed of {found.miss_rate_of}"))
    print_group_outcomes(found.by_group, found.miss_rate_of, g.bound if g else None)
    legend = f"caught, missed: errors that are referred, and that are not; rates have {interval:.0%} intervals."
    out.print(legend, style="dim")


def table(rows: Sequence[ClassOutcome], first: str, rate: str) -> Table:
    """Show what became of each class."""
    made = compact(first, "samples", "referred", "caught", "missed", rate)
    for row in rows:
        if row.n == 0:
            made.add_row(Text(row.name), "0", "", "", "", "no samples")
            continue
        missed = "nobody is decided" if row.miss_rate is None else share(row.miss_rate)
        made.add_row(Text(row.name), *(count(v) for v in (row.n, row.referred, row.caught, row.missed)), missed)
    return made


def count(value: float) -> str:
    """Write a number of samples, or a sum of weights."""
    return f"{value:.0f}" if value == round(value) else f"{value:.1f}"


def share(value: Estimate) -> str:
    """Write a share with its interval."""
    return f"{value.value:.1%} ({value.low:.1%}–{value.high:.1%})"
