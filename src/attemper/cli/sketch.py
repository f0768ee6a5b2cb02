"""`attemper sketch`: a data set as a small table, which can be added to others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from attemper._paths import expand_paths, local
from attemper.calibrators import METHODS
from attemper.cli.commands import cli
from attemper.cli.inputs import open_first
from attemper.cli.options import METHOD_LIST, files_argument, reading, spreading
from attemper.cli.output import print_json, say
from attemper.cli.paths import OUTPUT
from attemper.cli.progress import shown_progress, unit_of
from attemper.cli.values import names_listed
from attemper.errors import InputError
from attemper.fitting import sketch_source
from attemper.group_sketches import GroupSketches
from attemper.io import InputSpec
from attemper.sketch import ALL_PARTS, DEFAULT_T_RANGE, MIN_SAMPLES, Part


@cli.command(section="Many files")
@files_argument
@click.option("-o", "--output", type=OUTPUT, required=True, help="Where to write the sketch, such as a.sketch.json.")
@click.option(
    "--min-samples", type=int, metavar="N", help=f"Write no sketch of fewer samples [default: {MIN_SAMPLES}]."
)
@click.option("--allow-small", is_flag=True, help="Write a sketch of any number of samples.")
@click.option(
    "--methods",
    type=METHOD_LIST,
    metavar="A,B,…",
    help="Keep only what these methods need, such as ts,bayes: a smaller sketch that reveals less [default: all].",
)
@click.option(
    "--t-range",
    type=float,
    nargs=2,
    metavar="LOW HIGH",
    help=f"Temperatures considered [default: {DEFAULT_T_RANGE[0]:g} {DEFAULT_T_RANGE[1]:g}, or a range that suits the "
    "scale of the logits].",
)
@reading(groups=True)
@spreading
def sketch(
    inputs: Sequence[str],
    output: str,
    min_samples: int | None,
    allow_small: bool,
    methods: str | None,
    t_range: tuple[float, float] | None,
    spec: InputSpec,
    spread: dict[str, Any],
    as_json: bool,
) -> None:
    """Reduce a data set to a small table from which some methods can be fitted.

    `attemper fit` adds sketches of parts (files, machines, hospitals), and gives the same fit as all data at once. A
    sketch holds sums over samples. Sums over few samples reveal a lot about each of them, so fewer than 100 samples
    need --allow-small.

    With --groups the file holds a sketch of each group, and `attemper fit` fits a temperature for each group. Every
    group needs 100 samples.

    \b
    attemper sketch a.npz -o a.sketch.json
    attemper sketch a.npz -o a.sketch.json --methods ts,bayes
    attemper sketch 'shards/*.parquet' -o a.sketch.json --workers 4
    attemper sketch a.npz -o a.sketch.json --groups site
    attemper fit a.sketch.json b.sketch.json
    """  # noqa: D301 (click wants the control character)
    if allow_small and min_samples is not None:
        raise InputError(f"--min-samples {min_samples} and --allow-small contradict each other; leave one out")
    if min_samples is not None and min_samples < MIN_SAMPLES:
        raise InputError(f"--min-samples {min_samples}: at least {MIN_SAMPLES}; for fewer use --allow-small")
    paths, parts = expand_paths(inputs), needed(methods)
    source = open_first(paths, spec, spread)
    with shown_progress("reading", unit_of(source)) as progress:
        made = sketch_source(source, spec, t_range=t_range, parts=parts, progress=progress, **spread)
    least = 1 if allow_small else min_samples or MIN_SAMPLES
    groups = made.sketches if isinstance(made, GroupSketches) else {None: made}
    group, smallest = min(groups.items(), key=lambda item: item[1].n_samples)
    if smallest.n_samples < least:
        of = "a sketch" if group is None else f"a sketch of the group {group}"
        raise InputError(
            f"{output}: not written, since it would be {of} of {smallest.n_samples} samples, fewer than {least}. "
            "The sums of a few samples reveal much about each of them; those of one sample give its losses "
            "away. Sketch more data together, or use --allow-small if it stays with you."
        )
    made.save(output)
    size = local(output).stat().st_size
    more: dict[str, Any] = {"n_groups": len(made)} if isinstance(made, GroupSketches) else {}
    if as_json:
        sizes = {"n_samples": made.n_samples, "n_classes": made.n_classes, "n_shards": len(paths)}
        print_json({**sizes, **more, "bytes": size, "output": output})
    else:
        of_groups = f" of {more['n_groups']} groups" if more else ""
        say(f"{made.n_samples} samples{of_groups}, {made.n_classes} classes: wrote {output}, {size / 1024:.0f} KiB")


def needed(methods: str | None) -> tuple[Part, ...]:
    """Return the tables that these methods are fitted from; all of them if none are named."""
    if methods is None:
        return ALL_PARTS
    found: set[Part] = set()
    for name in names_listed(methods):
        parts = METHODS[name].for_labels(noisy=True).sketch_parts() if name in METHODS else None
        if parts is None:
            able = ", ".join(METHODS.from_sketch())
            raise InputError(f"--methods {methods}: a sketch is not enough for {name!r}; use some of {able}")
        found.update(parts)
    return tuple(part for part in ALL_PARTS if part in found)
