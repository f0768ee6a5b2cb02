"""Progress of what takes longer than a second: a bar of tqdm on a terminal, on stderr."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tqdm import tqdm

from attemper.cli.output import quiet
from attemper.data.scores import Scores
from attemper.io import ScoreFiles

Update = Callable[[int, int | None], None]


@contextmanager
def shown_progress(what: str, unit: str = "rows") -> Iterator[Update]:
    """Show progress; call what is returned with the number that is done and of all."""
    with tqdm(desc=what, unit=f" {unit}", delay=1, leave=False, disable=True if quiet() else None) as bar:

        def update(done: int, total: int | None) -> None:
            bar.total = total
            bar.update(done - bar.n)

        yield update


@contextmanager
def counted_methods(total: int) -> Iterator[Callable[[str], None]]:
    """Show progress; call what is returned with the name of each method before it begins."""
    with shown_progress("methods", "methods") as update:
        begun = 0

        def tick(_: str) -> None:
            nonlocal begun
            update(begun, total)
            begun += 1

        yield tick


def unit_of(source: object) -> str:
    """Return what a fit counts: rows of a file that is alone, or files."""
    return "rows" if isinstance(source, ScoreFiles) else "files"


def progress(files: ScoreFiles, what: str) -> Iterator[Scores]:
    """Go through the pieces of files, and show how far that is."""
    with shown_progress(what) as shown:
        yield from files.watched(shown)
