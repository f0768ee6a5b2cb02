"""Prediction sets to a file: a table with a row for each sample, or arrays."""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attemper._json import atomic
from attemper._paths import local
from attemper.errors import unsupported_extension

__all__ = ["SET_EXTENSIONS", "write_sets"]

SET_EXTENSIONS = (".csv", ".jsonl", ".ndjson", ".npz")
BETWEEN = "; "  # classes of a set, in a table


def write_sets(
    path: str | os.PathLike[str],
    mask: NDArray[np.bool_],
    action: Sequence[str],
    lists: Sequence[Sequence[Any]],
    *,
    probs: NDArray[Any],
    labels: Sequence[Any] | None = None,
    classes: Sequence[str] | None = None,
) -> None:
    """Write sets in the format of the file's extension: .csv, .jsonl or .npz.

    A table has a row for each sample: its label, if there are labels, what to do, how many classes are in the set, and
    which, the most probable first. An .npz file has the arrays ``sets`` (N×K truth values), ``actions``, ``probs`` and,
    where they are known, ``labels`` and ``classes``.
    """
    path = local(path)
    suffix = path.suffix.lower()
    if suffix not in SET_EXTENSIONS:
        raise unsupported_extension(path, path.suffix, SET_EXTENSIONS)
    if suffix == ".npz":
        more = {"labels": labels, "classes": None if classes is None else np.array(classes, dtype=np.str_)}
        arrays: dict[str, Any] = {"sets": mask, "actions": np.array(action, dtype=np.str_), "probs": probs, **more}
        with atomic(path) as stream:
            np.savez(stream, **{name: array for name, array in arrays.items() if array is not None})
        return
    names = None if labels is None else [k if classes is None else classes[k] for k in np.asarray(labels).tolist()]
    heads = [*([] if names is None else ["label"]), "action", "size", "set"]
    with atomic(path, "w") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        if suffix == ".csv":
            writer.writerow(heads)
        for i, own in enumerate(lists):
            first = [] if names is None else [names[i]]
            if suffix == ".csv":
                cells = [str(action[i]), len(own), BETWEEN.join(map(str, own))]
                writer.writerow([*first, *cells])
            else:
                line = dict(zip(heads, [*first, str(action[i]), len(own), list(own)], strict=True))
                stream.write(json.dumps(line, ensure_ascii=False, allow_nan=False) + "\n")
