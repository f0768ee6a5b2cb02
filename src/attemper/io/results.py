"""Probabilities to a file, piece after piece; the file appears whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from attemper._json import atomic
from attemper._paths import local
from attemper.data.ids import join_ids
from attemper.errors import unsupported_extension
from attemper.io.csv import write_csv
from attemper.io.jsonl import write_jsonl
from attemper.io.parquet import write_parquet
from attemper.io.writing import Layout, ProbRows, laid_out

__all__ = ["ProbRows", "write_probs"]


def write_npy(path: Path, rows: Iterable[ProbRows], layout: Layout) -> None:
    """Write the probabilities; there is no room for anything else."""
    layout.reject_ids(path)
    probs = np.concatenate([piece.probs for piece in rows])
    with atomic(path) as stream:
        np.save(stream, probs.reshape(-1) if layout.positive else probs)


def write_npz(path: Path, rows: Iterable[ProbRows], layout: Layout) -> None:
    """Write the arrays probs, labels, predictions, classes and ids, as many as there are."""
    pieces = list(rows)
    probs = np.concatenate([piece.probs for piece in pieces])
    arrays: dict[str, Any] = {"probs": probs.reshape(-1) if layout.positive else probs}
    arrays |= {name: np.concatenate([getattr(piece, name) for piece in pieces]) for name in layout.extras}
    if layout.classes is not None:
        arrays["classes"] = np.array(layout.classes, dtype=np.str_)
    if layout.id_name is not None:
        ids = join_ids([piece.ids for piece in pieces if piece.ids is not None])
        arrays[layout.id_name] = ids if ids.dtype.kind in "iu" else ids.astype(np.str_)
    with atomic(path) as stream:
        np.savez(stream, **arrays)


_WRITERS = {
    ".csv": write_csv,
    ".jsonl": write_jsonl,
    ".ndjson": write_jsonl,
    ".npy": write_npy,
    ".npz": write_npz,
    ".parquet": write_parquet,
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
        Ends in .npz, .npy, .csv, .jsonl or .parquet.
    rows
        Pieces that follow one another; of tables only one at a time is held in memory.
        In addition to the probabilities each may bring labels and predictions, as
        column numbers (an .npy file holds the probabilities alone).
    classes
        Names in column order. Tables (csv, jsonl, parquet) then hold names in place of
        column numbers; .npz keeps the numbers and adds the names.
    positive
        Of two classes write one column, the probability of the second class.
    id_name
        Name of a column of ids, which every piece must bring then. Not in .npy files.

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
