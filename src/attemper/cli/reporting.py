"""`attemper report`: one page for doctors and engineers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from attemper.calibrators import METHODS
from attemper.cli.commands import cli
from attemper.cli.inputs import bar, load_pair
from attemper.cli.options import (
    INPUT,
    OUTPUT,
    check_noise,
    interval_option,
    noise_option,
    noisy_option,
    reading,
    seed_option,
    test_argument,
    val_argument,
    with_debug,
    with_json,
    with_val,
)
from attemper.cli.output import out, print_json
from attemper.errors import FileError
from attemper.files import expanded
from attemper.files.arrays import read_names
from attemper.files.npz import NpzSource
from attemper.files.reading import read_lines
from attemper.places import local, place

IMAGE_IDS, CLASS_NAMES = "image_id", "class_names"


@cli.command()
@val_argument
@test_argument
@click.option("-o", "--output", type=OUTPUT, default="report.html", show_default=True, help="Where to write the page.")
@click.option("--images", type=INPUT, metavar="FOLDER", help="Images of the test samples, for the examples.")
@click.option(
    "--image-ids",
    type=INPUT,
    metavar="NAME|FILE",
    help="Which image each test sample is: an array of TEST (.npz), or a text file with one name a line. "
    f"[default: {IMAGE_IDS}, if there is one; else the sorted files, if there is one for each sample]",
)
@click.option("--title", help="Title of the page. [default: the name of TEST]")
@click.option("--methods", metavar="A,B,…", help="Which methods, such as ts,bayes,structured [default: all].")
@click.option(
    "--catch",
    type=float,
    default=0.8,
    show_default=True,
    help="Share of the validation errors that the threshold which the page starts with refers.",
)
@noisy_option
@noise_option
@interval_option
@seed_option
@reading()
@with_val
@with_json
@with_debug
def report(
    val: str,
    test: str,
    output: str,
    images: str | None,
    image_ids: str | None,
    title: str | None,
    methods: str | None,
    catch: float,
    noisy: bool,
    noise: str | None,
    interval: float,
    seed: int,
    read: dict[str, Any],
    read_val: dict[str, Any],
    as_json: bool,
) -> None:
    """Write a page about a classifier: how sure, how right, what calibration changes, whom to refer.

    One file of HTML with everything in it, to read offline, to print, to send: sentences, sliders for the temperature
    and for the referral threshold, the comparison of methods, examples, and where it all comes from.

    \b
    attemper report val.npz test.npz --classes names.txt -o report.html
    attemper report val.npz test.npz --images folder/ --image-ids image_id
    """  # noqa: D301 (click wants the control character)
    from attemper.report import origin, write_report

    check_noise(noisy, noise)
    val_scores, test_scores, names = load_pair(val, test, read_val, read)
    chosen = [m.strip() for m in methods.split(",")] if methods is not None else None
    with bar(1 + len(chosen or METHODS)) as (progress, task):

        def tick(method: str) -> None:
            progress.update(task, description=f"fitting and judging {method}", advance=1)

        summary = write_report(
            output,
            val_scores,
            test_scores,
            classes=names,
            methods=chosen,
            images=images,
            ids=told_ids(test, image_ids),
            title=title or f"Calibration report: {Path(test).name}",
            files=[*origin("validation", val), *origin("test", test)],
            catch=catch,
            noisy=noisy,
            noise=noise,
            interval=interval,
            seed=seed,
            tick=tick,
        )
    if as_json:
        print_json({"output": output, "bytes": local(output).stat().st_size, **summary})
        return
    for sentence in summary["sentences"]["says"] + summary["sentences"]["changed"]:
        out.print(sentence, markup=False)
    out.print(f"Report: {output}", markup=False)


def told_ids(test: str, told: str | None) -> Sequence[Any] | None:
    """Read which image each test sample is."""
    if told is None:
        return array_of(test, IMAGE_IDS)
    found = array_of(test, told)
    if found is not None:
        return found
    try:
        return read_lines(place(told))
    except FileError as error:
        raise FileError(
            f"--image-ids {told}: neither an array of {test} nor a text file that can be read: {error}"
        ) from None


def array_of(path: str, key: str) -> Sequence[Any] | None:
    """Read a list of names or whole numbers from an .npz file; None where there is no such thing."""
    (file,) = expanded(path) if len(expanded(path)) == 1 else [None]
    if file is None or file.suffix.lower() != ".npz":
        return None
    source = NpzSource(file)
    return list(read_names(source, key, "--image-ids").tolist()) if key in source.names else None
