"""Where the numbers of a report come from."""

from __future__ import annotations

import hashlib
import os
import platform
from collections.abc import Iterable
from typing import Any

import numpy
import scipy
import sklearn

import attemper
from attemper.files import expanded
from attemper.files.reading import opened

__all__ = ["CHART_JS", "origin", "versions"]

CHART_JS = "4.6.1"


def origin(role: str, paths: str | os.PathLike[str] | Iterable[str | os.PathLike[str]]) -> list[dict[str, Any]]:
    """Tell which files were read. Their folders are not told: the page may travel.

    >>> import tempfile
    >>> with tempfile.NamedTemporaryFile(suffix=".csv") as file:
    ...     [told] = origin("validation", file.name)
    >>> told["role"], told["bytes"]
    ('validation', 0)
    """
    found = []
    for file in expanded(paths):
        with opened(file) as stream:
            digest = hashlib.file_digest(stream, "sha256").hexdigest()
            found.append({"name": file.name, "role": role, "bytes": stream.tell(), "sha256": digest})
    return found


def versions() -> dict[str, str]:
    """Return the versions of what computes, and of what draws."""
    return {
        **{module.__name__: module.__version__ for module in (attemper, numpy, scipy, sklearn)},
        "python": ".".join(platform.python_version_tuple()[:2]),
        "Chart.js": CHART_JS,
    }
