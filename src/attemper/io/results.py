"""Probabilities to a file, piece after piece; the file appears whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import Any

from attemper._paths import local
from attemper.errors import unsupported_extension
from attemper.io.csv import write_csv
from attemper.io.jsonl import write_jsonl
from attemper.io.npy import write_npy
from attemper.io.npz import write_npz
from attemper.io.parquet import write_parquet
from attemper.io.safetensors import write_safetensors
from attemper.io.writing import ProbRows, laid_out

__all__ = ["ProbRows", "write_probs"]

_WRITERS = {
    ".csv": write_csv,
    ".jsonl": write_jsonl,
    ".ndjson": write_jsonl,
    ".npy": write_npy,
    ".npz": write_npz,
    ".parquet": write_parquet,
    ".safetensors": write_safetensors,
}


def write_probs(
    path: str | os.PathLike[str],
    rows: Iterable[ProbRows],
    *,
    classes: Sequence[Any] | None = None,
    positive: bool = False,
    id_name: str | None = None,
) -> None:
    """Write probabilities in the format of the file's extension.

    Parameters
    ----------
    path
        Ends in .npz, .npy, .csv, .jsonl, .safetensors or .parquet.
    rows
        Pieces that follow one another; only one at a time is held in memory.
        In addition to the probabilities each may bring labels and predictions, as
        column numbers (an .npy file holds the probabilities alone).
    classes
        Names in column order. Tables (csv, jsonl, parquet) then hold names in place of
        column numbers; the other formats keep the numbers and add the names.
        In CSV a name that a spreadsheet would run as a formula, such as
        ``=1+1``, gets an apostrophe before it, which `open_scores` removes.
    positive
        Of two classes write one column, the probability of the second class.
    id_name
        Name of a column of ids, which every piece must bring then. Not in .npy and .safetensors files.

    Examples
    --------
    >>> import tempfile, numpy as np
    >>> from pathlib import Path
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "probs.csv")
    ...     write_probs(path, [ProbRows(np.array([[0.75, 0.25]]), np.array([1]))], classes=["no", "yes"])
    ...     print(path.read_text(), end="")
    label,prob_no,prob_yes
    yes,0.75,0.25
    """
    path = local(path)
    write = _WRITERS.get(path.suffix.lower())
    if write is None:
        raise unsupported_extension(path, path.suffix, _WRITERS)
    pieces, layout = laid_out(rows, classes, positive, id_name)
    write(path, pieces, layout)
