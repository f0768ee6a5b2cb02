"""What holds of the paper, and whether to use its method: two pages written from the numbers of the studies."""

from __future__ import annotations

import os
from pathlib import Path

from attemper._json import atomic
from attemper.errors import FileError
from experiments.claims import figures
from experiments.claims.page import CLAIMS, claims_page
from experiments.claims.results import Results
from experiments.claims.summary import summary_page
from experiments.reproduce.pages import drawn

__all__ = ["CLAIMS", "Results", "write"]


def write(results: str | os.PathLike[str], output: str | os.PathLike[str]) -> list[Path]:
    """Write the page of claims, the summary and its two plots; the same bytes from the same numbers.

    Parameters
    ----------
    results : folder with the CSV files of `experiments.reproduce`; ``benchmarks/speed.md`` is read beside it
    output : folder of the pages; the plots are written to its folder ``images``

    Returns
    -------
    list of Path
        What was written.
    """
    numbers, folder = Results.read(results), Path(output)
    files = {"claims.md": claims_page(numbers).encode(), "ats.md": summary_page(numbers).encode()}
    for stem, draw in (("ats-labels", figures.against_labels), ("ats-wrong", figures.against_wrong_labels)):
        figure = draw(numbers)
        files |= {f"images/{stem}.{form}": drawn(figure, form) for form in ("svg", "png")}
    try:
        (folder / "images").mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FileError(f"{folder}: cannot be used as a folder for pages: {error.strerror or error}") from None
    for name, content in files.items():
        with atomic(folder / name) as stream:
            stream.write(content)
    return [folder / name for name in files]
