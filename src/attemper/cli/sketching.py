"""The commands `sketch` and `merge`: a data set as a small table, and tables as one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from attemper.calibrators import METHODS
from attemper.cli.commands import cli
from attemper.cli.inputs import kept_beside, sketch_of
from attemper.cli.options import (
    OUTPUT,
    files_argument,
    reading,
    spreading,
    t_range_option,
    with_debug,
    with_json,
)
from attemper.cli.output import say_sketch
from attemper.engines import forget, merged
from attemper.errors import InputError
from attemper.sketch import ALL_PARTS, MIN_SAMPLES, Part


@cli.command()
@files_argument
@click.option("-o", "--output", type=OUTPUT, required=True, help="Where to write the sketch, such as a.sketch.json.")
@click.option(
    "--min-samples", type=int, metavar="N", help=f"Write no sketch of fewer samples [default: {MIN_SAMPLES}]."
)
@click.option("--allow-small", is_flag=True, help="Write a sketch however few the samples are.")
@click.option(
    "--for",
    "methods",
    metavar="A,B,…",
    help="Keep only what these methods need, of ts, ats and bayes: a smaller sketch, that tells less [default: all].",
)
@t_range_option
@reading()
@spreading
@with_json
@with_debug
def sketch(
    inputs: Sequence[str],
    output: str,
    min_samples: int | None,
    allow_small: bool,
    methods: str | None,
    t_range: tuple[float, float] | None,
    read: dict[str, Any],
    spread: dict[str, Any],
    as_json: bool,
) -> None:
    """Reduce a data set to a small table from which ts, ats and bayes can be fitted.

    Sketches of parts (files, machines, hospitals) can be merged and give the same fit as all data at once. A sketch
    holds sums over samples; of few samples such sums tell a lot about each, so that fewer than 100 need --allow-small.

    \b
    attemper sketch a.npz -o a.sketch.json
    attemper sketch a.npz -o a.sketch.json --for ts,bayes
    attemper sketch 'shards/*.parquet' -o a.sketch.json --workers 4 --retries 2
    attemper merge a.sketch.json b.sketch.json -o all.sketch.json
    attemper fit all.sketch.json
    """  # noqa: D301 (click wants the control character)
    if allow_small and min_samples is not None:
        raise InputError(f"--min-samples {min_samples} and --allow-small contradict each other; leave one out")
    if min_samples is not None and min_samples < MIN_SAMPLES:
        raise InputError(f"--min-samples {min_samples}: at least {MIN_SAMPLES}; for fewer say --allow-small")
    made, n_shards = sketch_of(inputs, read, spread, output, t_range=t_range, parts=needed(methods))
    least = 1 if allow_small else min_samples or MIN_SAMPLES
    if made.n_samples < least:
        forget(kept_beside(output))
        raise InputError(
            f"{output}: not written, since it would be a sketch of {made.n_samples} samples, fewer than {least}. The "
            "sums of a few samples come close to telling about single ones; of one sample they give its losses away. "
            "Sketch more data together, or say --allow-small if it stays with you."
        )
    made.save(output)
    forget(kept_beside(output))
    say_sketch(made, output, as_json, n_shards=n_shards)


def needed(methods: str | None) -> tuple[Part, ...]:
    """Return the tables that these methods are fitted from; all of them if none are told."""
    if methods is None:
        return ALL_PARTS
    found: set[Part] = set()
    for name in (told.strip() for told in methods.split(",")):
        parts = METHODS[name].for_labels(noisy=True).sketch_parts() if name in METHODS else None
        if parts is None:
            raise InputError(f"--for {methods}: {name!r} is no method that a sketch is enough for; ts, ats, bayes are")
        found.update(parts)
    return tuple(part for part in ALL_PARTS if part in found)


@cli.command()
@files_argument
@click.option("-o", "--output", type=OUTPUT, required=True, help="Where to write the merged sketch.")
@with_json
@with_debug
def merge(inputs: Sequence[str], output: str, as_json: bool) -> None:
    """Add sketches: the result is the sketch of all their data together.

    \b
    attemper merge a.sketch.json b.sketch.json -o all.sketch.json
    """  # noqa: D301 (click wants the control character)
    made = merged(inputs)
    made.save(output)
    say_sketch(made, output, as_json)
