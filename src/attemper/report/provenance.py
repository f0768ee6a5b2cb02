"""Where the numbers of a report come from."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterable
from typing import Any

import numpy
import scipy
import sklearn

import attemper
from attemper._paths import InputFile, expand_paths

__all__ = ["origin", "versions"]


def origin(
    role: str, paths: str | os.PathLike[str] | Iterable[str | os.PathLike[str] | InputFile]
) -> list[dict[str, Any]]:
    """Return which files were read, without their folders, because the page may be shared.

    >>> import tempfile
    >>> with tempfile.NamedTemporaryFile(suffix=".csv") as file:
    ...     _ = file.write(b"label,a,b"), file.flush()
    ...     [found] = origin("validation", file.name)
    >>> found["role"], found["bytes"]
    ('validation', 9)
    """
    given = [paths] if isinstance(paths, str | os.PathLike) else list(paths)
    files = [
        file
        for path in given
        for file in ([path] if isinstance(path, InputFile) else map(InputFile, expand_paths(path)))
    ]
    return [{"name": file.path.name, "role": role, "bytes": file.size, "sha256": file.sha256()} for file in files]


def versions() -> dict[str, str]:
    """Return the versions of what computes."""
    return {
        **{module.__name__: module.__version__ for module in (attemper, numpy, scipy, sklearn)},
        "python": ".".join(platform.python_version_tuple()[:2]),
    }
