"""`python -m experiments.reproduce`: the paper's tables and figures."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Sequence
from contextlib import nullcontext

import click
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from attemper._paths import local
from attemper.cli import main
from attemper.cli.commands import CheckedCommand
from attemper.cli.output import err, out, print_json
from attemper.errors import InputError, naming_flags


@click.command(cls=CheckedCommand)
@click.argument(
    "pages",
    nargs=-1,
    required=True,
    metavar="PAGE…",
)
@click.option("-o", "--output", default="results", show_default=True, help="Folder for what is written.")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Seed of everything random.")
@click.option(
    "--repeats",
    type=click.IntRange(min=1),
    help="Random divisions that means are taken over [default: those of each page, 5 to 30]; 2 is enough for a look.",
)
@click.option("--workers", type=click.IntRange(min=1), help="Processes [default: one for each core].")
@click.option("--images", metavar="FOLDER", help="Draw the examples also with the photographs FOLDER/<image_id>.jpg.")
@click.option("--fresh", is_flag=True, help="Do everything again, also what was finished before.")
def reproduce(
    pages: Sequence[str],
    output: str,
    seed: int,
    repeats: int | None,
    workers: int | None,
    images: str | None,
    fresh: bool,
    as_json: bool,
) -> None:
    """Write the paper's tables and figures, with ours beside them.

    From the logits of the networks in data/: what the paper did (arXiv 1810.11586), and more. Each page comes with
    its numbers (CSV, JSON), a Markdown table, and pictures (SVG, PNG) where the paper has a figure. Interrupted, the
    same command goes on where it was.

    A PAGE is table1, table2, table3, table4, examples, figure2, noise, size, consistency, grid, supplement-noise,
    supplement-size, referral, or all of them: all.

    \b
    python -m experiments.reproduce all -o results/           # 65 minutes of CPU time or so
    python -m experiments.reproduce table4 referral           # seconds
    python -m experiments.reproduce noise --repeats 2         # a quick look
    python -m experiments.reproduce examples --images FOLDER  # with photographs
    """  # noqa: D301 (click wants the control character)
    from experiments.reproduce import PAGES
    from experiments.reproduce import reproduce as written

    click.get_current_context().with_resource(naming_flags())
    folder, pictures = local(output), None if images is None else local(images)
    unknown = [name for name in pages if name not in (*PAGES, "all")]
    if unknown:
        raise InputError(f"{unknown[0]!r} is no table or figure; there are {', '.join(PAGES)}, and all")
    chosen = list(dict.fromkeys(page for name in pages for page in (PAGES if name == "all" else [name])))
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, signal.default_int_handler)  # a job scheduler's way to interrupt
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[job]}"),
    )
    progress = Progress(*columns, console=err, disable=not err.is_terminal)
    with progress if err.is_terminal else nullcontext():  # one that is disabled ends in an empty line before rich 15
        tasks: dict[str, int] = {}

        def tick(study: str, done: int, total: int, job: str) -> None:
            if study not in tasks:
                tasks[study] = int(progress.add_task(study, job=job))
                if not err.is_terminal:
                    err.print(f"{study}: {done} of {total} jobs are done")
            progress.update(tasks[study], completed=done, total=total, job="" if done == total else job)  # type: ignore[arg-type]

        try:
            files = written(
                chosen,
                folder,
                seed=seed,
                repeats=repeats,
                workers=workers,
                fresh=fresh,
                images=pictures,
                tick=tick,
            )
        except KeyboardInterrupt:
            err.print("what is finished is kept: the same command goes on from here")
            raise
    minutes = sum(os.times()[:4]) / 60  # user and system, of this process and of those that it began
    err.print(f"CPU time of all processes: {minutes:.1f} minutes")
    if as_json:
        print_json({"output": output, "files": [str(path) for path in files]})
        return
    for page in chosen:
        out.print(f"wrote {folder / page}.md")
    out.print(f"All pages: {folder / 'README.md'}")


if __name__ == "__main__":
    main(reproduce, "python -m experiments.reproduce")
