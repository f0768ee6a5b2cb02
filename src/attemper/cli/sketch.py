"""The commands `sketch` and `merge`: a data set as a small table, and tables as one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from attemper._paths import expand_paths, local
from attemper.calibrators import METHODS
from attemper.cli.commands import cli
from attemper.cli.inputs import open_first
from attemper.cli.options import METHOD_LIST, files_argument, reading, spreading, t_range_option
from attemper.cli.output import print_json
from attemper.cli.paths import JSON_OUTPUT
from attemper.cli.progress import shown_progress, unit_of
from attemper.cli.values import method_names
from attemper.cli.verbosity import say
from attemper.errors import InputError
from attemper.fitting import sketch_source
from attemper.group_sketches import GroupSketches
from attemper.io import InputSpec
from attemper.sharded import merge_sketches
from attemper.sketch import ALL_PARTS, MIN_SAMPLES, Part, Sketch


@cli.command(section="Many files")
@files_argument
@click.option(
    "-o", "--output", type=JSON_OUTPUT, required=True, help="Where to write the sketch, such as a.sketch.json."
)
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
@t_range_option
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
    """Reduce a data set to a small table from which some methods can be fitted (`attemper methods`).

    Sketches of parts (files, machines, hospitals) can be merged and give the same fit as all data at once. A sketch
    holds sums over samples. Sums over few samples reveal a lot about each of them, so fewer than 100 samples need
    --allow-small.

    With --groups the file holds a sketch of each group, and `attemper fit` fits a temperature for each group. Every
    group needs 100 samples.

    \b
    attemper sketch a.npz -o a.sketch.json
    attemper sketch a.npz -o a.sketch.json --methods ts,bayes
    attemper sketch 'shards/*.parquet' -o a.sketch.json --workers 4
    attemper sketch a.npz -o a.sketch.json --groups site
    attemper merge a.sketch.json b.sketch.json -o all.sketch.json
    attemper fit all.sketch.json
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
    print_sketch(made, output, as_json, n_shards=len(paths))


def needed(methods: str | None) -> tuple[Part, ...]:
    """Return the tables that these methods are fitted from; all of them if none are named."""
    if methods is None:
        return ALL_PARTS
    found: set[Part] = set()
    for name in method_names(methods) or ():
        parts = METHODS[name].for_labels(noisy=True).sketch_parts() if name in METHODS else None
        if parts is None:
            able = ", ".join(METHODS.from_sketch())
            raise InputError(f"--methods {methods}: a sketch is not enough for {name!r}; use some of {able}")
        found.update(parts)
    return tuple(part for part in ALL_PARTS if part in found)


@cli.command(section="Many files")
@files_argument
@click.option("-o", "--output", type=JSON_OUTPUT, required=True, help="Where to write the merged sketch.")
@click.option(
    "--as-groups",
    is_flag=True,
    help="Each file is the sketch of a separate group, named after the file: north.sketch.json is the group north.",
)
def merge(inputs: Sequence[str], output: str, as_groups: bool, as_json: bool) -> None:
    """Add sketches: the result is the sketch of all their data together.

    Sketches with groups (`attemper sketch --groups`) are added group by group. With --as-groups every file is a group,
    such as a site that shared its sketch but no rows.

    \b
    attemper merge a.sketch.json b.sketch.json -o all.sketch.json
    attemper merge north.sketch.json south.sketch.json --as-groups -o sites.json
    attemper fit sites.json -o map.json
    """  # noqa: D301 (click wants the control character)
    made = sites_of(inputs) if as_groups else merge_sketches(inputs)
    made.save(output)
    print_sketch(made, output, as_json)


def sites_of(inputs: Sequence[str]) -> GroupSketches:
    """Read sketches, each of a group that is called as its file is."""
    found: dict[str, Sketch] = {}
    for path in expand_paths(inputs):
        name = path.name.split(".")[0]
        if not name or name in found:
            raise InputError(f"--as-groups: {path}: expected file names that differ before the first dot")
        found[name] = Sketch.load(path)
    return GroupSketches(found)


def print_sketch(made: Sketch | GroupSketches, output: str, as_json: bool, **more: Any) -> None:
    """Print what a sketch that was written holds."""
    size = local(output).stat().st_size
    groups = {"n_groups": len(made)} if isinstance(made, GroupSketches) else {}
    more |= groups
    if as_json:
        print_json({"n_samples": made.n_samples, "n_classes": made.n_classes, **more, "bytes": size, "output": output})
    else:
        of_groups = f" of {groups['n_groups']} groups" if groups else ""
        say(f"{made.n_samples} samples{of_groups}, {made.n_classes} classes: wrote {output}, {size / 1024:.0f} KiB")
