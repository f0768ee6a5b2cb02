"""What the command line reads: files of logits and sketches, with a progress bar."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from attemper.cli.output import err
from attemper.engines import merged, sketch_pieces, sketch_sharded
from attemper.engines.pools import open_workers
from attemper.errors import InputError
from attemper.files import ScoreFiles, expanded, open_scores
from attemper.places import local
from attemper.scores import Scores
from attemper.sketch import DEFAULT_T_RANGE, Sketch

TOKENS = ("mask_key", "ignore_index", "next_token", "columns", "labels_are")


@contextmanager
def bar(total: int | None) -> Iterator[tuple[Progress, Any]]:
    """Show a progress bar on a terminal; none in a pipe."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed}"),
        TimeRemainingColumn(),
    )
    progress = Progress(*columns, console=err, transient=True, disable=not err.is_terminal)
    with progress if err.is_terminal else nullcontext():  # one that is disabled ends in an empty line before rich 15
        yield progress, progress.add_task("", total=total)


def progress(files: ScoreFiles, what: str) -> Iterator[Scores]:
    """Go through the pieces of files under a progress bar."""
    with bar(files.n_rows) as (progress, task):
        progress.update(task, description=what)
        for piece in files:
            yield piece
            progress.advance(task, len(piece))


def sketch_of(
    inputs: Sequence[str], read: dict[str, Any], spread: dict[str, Any], output: str, **settings: Any
) -> tuple[Sketch, int]:
    """Sketch files of logits piece by piece, or add sketches that were made before; return also how many files.

    Sketches of finished files are kept beside the output until `forget`.
    """
    sketches = [path for path in inputs if path.endswith(".json")]
    if are_sketches(inputs):
        _reject_reading_options(sketches[0], read)
        if spread:
            raise InputError(f"{sketches[0]}: --{next(iter(spread))} is for files of logits; sketches are merely added")
        total = merged(inputs)
        if settings["t_range"] not in (None, total.t_range):
            raise InputError(
                f"--t-range {settings['t_range']}: {sketches[0]} covers {total.t_range}, which is settled when a "
                "sketch is made of logits"
            )
        return total.only(settings["parts"]), len(expanded(inputs))
    if sketches:
        raise InputError(
            f"{sketches[0]}: a sketch cannot be mixed with files of logits; make sketches of them with "
            "`attemper sketch` and give sketches alone"
        )
    settings["t_range"] = settings["t_range"] or DEFAULT_T_RANGE
    count = len(expanded(inputs))
    if count == 1 and not spread:
        made = sketch_pieces(progress(open_scores(inputs, **read), "reading"), **settings)
        assert made is not None  # reading rejects empty input
        return made, 1
    with bar(count) as (shown, task):
        shown.update(task, description="files")

        def tick(done: int, of: int) -> None:
            shown.update(task, completed=done)

        keep = kept_beside(output)
        return sketch_sharded(inputs, **spread, keep=keep, progress=tick, **settings, **read), count


@contextmanager
def workers_held(spread: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Open the workers that these options name once, for several passes over the files; return options with them."""
    if not spread:
        yield spread
        return
    rest = {name: value for name, value in spread.items() if name in ("retries", "resume")}
    named = {"engine": None} | {name: value for name, value in spread.items() if name != "resume"}
    with open_workers(**named) as pool:
        yield rest | {"engine": pool}


def are_sketches(inputs: Sequence[str]) -> bool:
    """Tell sketches that were made before from files of logits."""
    return all(path.endswith(".json") for path in inputs)


def kept_beside(output: str) -> str:
    """Name the folder that keeps the sketches of finished files."""
    return f"{local(output)}.shards"


def _reject_reading_options(path: str, read: dict[str, Any]) -> None:
    """Refuse what says how to read logits: a sketch holds none. --probs and --classes go into the map."""
    for name in ("logits_key", "labels", "labels_key", "weights_key", "floor", *TOKENS):
        if read[name] is not None and read[name] is not False:
            option = "--" + name.replace("_", "-")
            raise InputError(f"{path}: a sketch holds no logits or labels any more; give {option} to `attemper sketch`")
