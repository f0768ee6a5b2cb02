"""Pictures and texts of pages again, from their CSV files: ``python -m experiments.reproduce.redraw [PAGES]``.

No study is run, so that a change of the drawing takes a minute. CSV and JSON files stay as they are.
"""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from experiments.reproduce import DOCS, PAGES
from experiments.reproduce.journal import Settings
from experiments.reproduce.pages import Page

__all__ = ["DRAWN", "page_of", "redraw"]

DRAWN = ("examples", "figure2", "noise", "size", "supplement-noise", "supplement-size", "referral")


def page_of(folder: Path, name: str) -> tuple[Page, dict[str, Any]]:
    """Return the page that the committed numbers give, and what it is about: seed, repeats and versions."""
    about = json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))
    with (folder / f"{name}.csv").open(newline="", encoding="utf-8") as stream:
        rows = [{key: _value(cell) for key, cell in row.items() if cell} for row in csv.DictReader(stream)]
    own = [row for row in rows if row.get("network") != "paper"]  # the page adds the numbers of the paper itself
    settings = Settings(about["seed"], about["repeats"])
    return PAGES[name].page(own, settings), {key: about[key] for key in ("seed", "repeats", "versions", "data")}


def redraw(folder: Path, names: Sequence[str] = DRAWN) -> list[Path]:
    """Write the pictures and texts of these pages."""
    written: list[Path] = []
    for name in names:
        page, about = page_of(folder, name)
        written += page.show(folder, name, about)
    return written


def _value(cell: str) -> Any:
    """Return a whole number, another number, or text."""
    for kind in (int, float):
        try:
            return kind(cell)
        except ValueError:
            continue
    return cell


if __name__ == "__main__":
    for path in redraw(DOCS / "results", sys.argv[1:] or DRAWN):
        print(f"wrote {path}")
