"""Ids of groups and clusters in a file of their own: one for each row of all input files, in their order."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attemper._paths import InputFile, as_path
from attemper.errors import FileError, InputError
from attemper.io.arrays import NpySource, read_names
from attemper.io.reading import Block, Reader, objects, read_lines
from attemper.io.spec import InputSpec, is_id_file

__all__ = ["IdFiles"]


@dataclass
class IdFiles:
    """Files of ids, and how many of them the blocks so far have taken."""

    given: dict[str, tuple[str, NDArray[Any]]]  # the file and its ids, of groups and of clusters
    taken: dict[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, spec: InputSpec) -> IdFiles:
        """Read the files that an `InputSpec` names."""
        keys = {"groups": spec.groups_key, "clusters": spec.clusters_key}
        return cls({what: (key, _read(what, key)) for what, key in keys.items() if key is not None and is_id_file(key)})

    def added(self, block: Block, reader: Reader) -> Block:
        """Add the next ids to a block: one for each row or image."""
        for what, (path, ids) in self.given.items():
            first, n = self.taken.get(what, 0), len(block.values)
            self.taken[what] = first + n
            if self.taken[what] > len(ids):
                raise InputError(f"{path}: {len(ids)} {what}, but {reader.path} has more rows; expected one for each")
            block = block._replace(**{what: ids[first : first + n]})
        return block

    def check_end(self) -> None:
        """Refuse ids that are left over."""
        for what, (path, ids) in self.given.items():
            if self.taken.get(what, 0) < len(ids):
                raise InputError(f"{path}: {len(ids)} {what} for {self.taken.get(what, 0)} rows; expected one for each")


def _read(what: str, path: str) -> NDArray[Any]:
    try:
        if path.lower().endswith(".npy"):
            return np.asarray(read_names(NpySource(InputFile(as_path(path)), what), what))
        return objects(read_lines(as_path(path)))
    except FileError as error:
        flag = f"{what}_key"
        raise FileError(f"{error}; {flag} names an array or a column, or a file ending in .txt or .npy") from None
