"""Many files: each becomes a sketch, in parallel through joblib; sketches are added in order of the files.

``with joblib.parallel_config(backend="dask")`` (or ``"ray"``) around a call sends the files to a cluster. The sum does
not depend on how many work on it, to the last bit.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from joblib import Parallel, delayed

from attemper.data.doubts import warn_of_doubts
from attemper.data.files import entries_beside, pieces, smallest_probability
from attemper.errors import AttemperWarning, InputError, collected_warnings, warn
from attemper.sketches import PARTS, Sketch, sketch_scores

PORTION = 256  # files whose sketches are in memory at once


def sketch_files(
    paths: Sequence[str], *, parts: Sequence[str] = PARTS, n_jobs: int | None = None, **options: Any
) -> Sketch:
    """Sketch files in parallel, and add the sketches in their order; options are those of `Read`, and ``labels``."""
    total: Sketch | None = None
    warned: set[type[AttemperWarning]] = set()
    work = [delayed(_sketch_task)(task, tuple(parts), options) for task in _tasks(paths, options)]
    for first in range(0, len(work), PORTION):
        # A list: Ray's backend takes no generators.
        for sketch, warnings in Parallel(n_jobs=n_jobs)(work[first : first + PORTION]):
            for warning in warnings:
                if type(warning) not in warned:  # each kind once
                    warned.add(type(warning))
                    warn(str(warning), type(warning))
            total = sketch if total is None else total if sketch is None else total + sketch
    if total is None:
        raise InputError(f"data: no row of {paths[0]} counts, nor of other files", "data")
    return total


def zeros_of_files(paths: Sequence[str], *, n_jobs: int | None = None, **options: Any) -> float | None:
    """Look through files of probabilities once: what zeros stand for; None for logits."""
    work = [delayed(smallest_probability)(task, **options) for task in _tasks(paths, options)]
    found = [value for value in Parallel(n_jobs=n_jobs)(work) if value is not None]
    return min(found) if found else None


def _tasks(paths: Sequence[str], options: dict[str, Any]) -> list[list[str]]:
    """Return the files of each task: one, or all of them where labels or ids are in a file beside them."""
    own = [path if "://" in path else os.path.abspath(path) for path in paths]  # noqa: PTH100 (workers may be elsewhere)
    return [own] if entries_beside(options) else [[path] for path in own]


def _sketch_task(
    paths: Sequence[str], parts: Sequence[str], options: dict[str, Any]
) -> tuple[Sketch | None, list[AttemperWarning]]:
    """Sketch files one after the other, None if no row counts; what a worker warns of is sent back."""
    total: Sketch | None = None
    with collected_warnings() as warnings:
        for i, piece in enumerate(pieces(list(paths), **options)):
            if i == 0:
                warn_of_doubts(piece.scores)
            own = sketch_scores(piece.scores, parts, zeros_as=options.get("zeros_as"))
            total = own if total is None else total + own
    return total, warnings
