"""Every table and figure of the paper, from the networks of ``data/``; one file for each."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from attemper.errors import FileError, InputError
from experiments.files import atomic
from experiments.reproduce import (
    consistency,
    examples,
    figure2,
    grid,
    networks,
    noise,
    size,
    skin,
    supplement,
    table1,
    table3,
)
from experiments.reproduce.journal import Row, Settings, Study, rows_of, versions
from experiments.reproduce.pages import Page, filled

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["PAGES", "reproduce"]

Tick = Callable[[str, int, int, str], None]


class Source(NamedTuple):
    """A study, and the page that is made of its rows."""

    study: Study
    page: Callable[[Sequence[Row], Settings], Page]
    tells: str
    repeats: int = 20
    photographs: Callable[[Sequence[Row], Path], dict[str, Figure]] | None = None  # more figures, from a folder of them


PAGES = {
    "table1": Source(table1.STUDY, table1.table1, "NLL, ECE and accuracy of every method for every network"),
    "table2": Source(table1.STUDY, table1.table2, "temperatures and θ"),
    "table3": Source(table3.STUDY, table3.table3, "MC dropout and ensembles"),
    "table4": Source(skin.STUDY, skin.table4, "skin lesions: NLL, ECE, T, θ"),
    "examples": Source(
        examples.STUDY, examples.examples, "single skin lesions (Figures 1 and 6)", photographs=examples.photographs
    ),
    "figure2": Source(figure2.STUDY, figure2.figure2, "which samples the subset of each class takes (Figure 2)"),
    "noise": Source(noise.STUDY, noise.noise, "wrong validation labels (Figure 3)", repeats=30),
    "size": Source(size.STUDY, size.size, "few validation labels (Figure 4)"),
    "consistency": Source(
        consistency.STUDY, consistency.consistency, "whether the loss of Eq. (8) finds a temperature that is known"
    ),
    "grid": Source(grid.STUDY, grid.grid, "how the grid of θ decides", repeats=10),
    "supplement-noise": Source(
        supplement.NOISE, supplement.noise, "wrong validation labels, thirteen networks (supplement)", repeats=5
    ),
    "supplement-size": Source(
        supplement.SIZE, supplement.size, "few validation labels, thirteen networks (supplement)", repeats=5
    ),
    "referral": Source(skin.STUDY, skin.referral, "referral curves of the skin-lesion network (Figure 5)"),
}

JOURNALS = ".journal"
DOCS = Path(__file__).resolve().parents[2] / "docs"


def reproduce(
    pages: Sequence[str],
    output: str | os.PathLike[str],
    *,
    seed: int = 0,
    repeats: int | None = None,
    workers: int | None = None,
    fresh: bool = False,
    images: str | os.PathLike[str] | None = None,
    tick: Tick = lambda study, done, total, job: None,
) -> list[Path]:
    """Write tables and figures of the paper, ours beside the paper's.

    What was finished before in the same folder, by the same code from the same data, is not computed again: a run that
    was interrupted goes on where it was, and ends in the same bytes.

    Parameters
    ----------
    pages : names of `PAGES`
    output : folder
    seed : of divisions, wrong labels and intervals
    repeats : random divisions over which means are taken; None takes those of each page, 5 to 30
    workers : processes; None takes one for each core
    fresh : do everything again
    images : folder with photographs of HAM10000, to draw the examples with them too; not for ``docs/``
    tick : called with the study's name, jobs done, jobs in all, and the last job

    Returns
    -------
    list of Path
        What was written.
    """
    networks.names()
    folder = Path(output)
    pictured = None if images is None else _pictured(Path(images), folder, pages)
    (folder / JOURNALS).mkdir(parents=True, exist_ok=True)
    rows: dict[str, list[Row]] = {}
    written: list[Path] = []
    for name in pages:
        study, settings = PAGES[name].study, Settings(seed, repeats or PAGES[name].repeats)
        if study.name not in rows:
            if fresh:
                (folder / JOURNALS / f"{study.name}-{seed}.jsonl").unlink(missing_ok=True)

            def count(done: int, total: int, job: str, of: str = study.name) -> None:
                tick(of, done, total, job)

            rows[study.name] = rows_of(
                study, settings, folder / JOURNALS, workers=workers or os.cpu_count() or 1, tick=count
            )
        page, photographs = PAGES[name].page(rows[study.name], settings), PAGES[name].photographs
        if pictured is not None and photographs is not None:
            page = replace(page, figures=page.figures | photographs(rows[study.name], pictured))
        written += page.write(folder, name, _about(study, settings))
    written.append(_index(folder))
    return written


def _about(study: Study, settings: Settings) -> dict[str, Any]:
    needed = sorted({name for job in study.jobs(settings) for name in job.needs})
    return {**asdict(settings), "versions": versions(), "data": {name: networks.digest(name) for name in needed}}


def _pictured(images: Path, output: Path, pages: Sequence[str]) -> Path:
    """Check, before any work, that photographs are asked for where they can be drawn and not published."""
    able = [name for name, source in PAGES.items() if source.photographs is not None]
    if not set(able) & set(pages):
        raise InputError(
            f"expected a page with photographs ({', '.join(able)}), got {', '.join(pages)}", param="images"
        )
    if not images.is_dir():
        raise FileError(f"{images}: expected a folder of photographs")
    if output.resolve().is_relative_to(DOCS):
        raise InputError(f"{output}: expected a folder outside docs/; these photographs are not ours", param="output")
    return images


def _index(folder: Path) -> Path:
    """Write the list of what is there."""
    lines = []
    for name, source in PAGES.items():
        if (folder / f"{name}.json").exists():
            about = json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))
            lines.append(f"- [{name}]({name}.md): {source.tells} (seed {about['seed']}, {about['repeats']} repeats)")
    with atomic(folder / "README.md") as stream:
        stream.write(filled("README", {"pages": "\n".join(lines)}).encode())
    return folder / "README.md"
