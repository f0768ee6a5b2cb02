"""Every error and warning a user can meet, and the check for an optional package.

One family: ``except AttemperError`` catches them all, and since it is a
``ValueError`` it also behaves as scikit-learn users expect.
"""

from __future__ import annotations

import importlib
import re
from types import ModuleType

import sklearn.exceptions

__all__ = [
    "AttemperError",
    "AttemperWarning",
    "EdgeWarning",
    "FileError",
    "InputError",
    "InputTypeError",
    "MissingExtraError",
    "NotFittedError",
    "require",
]


class AttemperError(ValueError):
    """What came, where it was, what was expected and how to mend it.

    Passwords and signatures in addresses are never repeated.

    >>> AttemperError("ftp://me:secret@host/val.npz: there is no such file")
    AttemperError('ftp://me:***@host/val.npz: there is no such file')
    """

    def __init__(self, *args: object) -> None:
        super().__init__(*(_without_secrets(arg) if isinstance(arg, str) else arg for arg in args))


def _without_secrets(text: str) -> str:
    if "://" not in text:
        return text
    text = re.sub(r"(://[^/\s:@]*):[^/\s]*@", r"\1:***@", text)
    return re.sub(r"(https?://[^\s?]*)\?\S*?(?=[:;,.)'\"]*(?:\s|$))", r"\1?***", text)


class InputError(AttemperError):
    """The arrays or parameters given cannot be used."""


class InputTypeError(InputError, TypeError):
    """Something that is no array of numbers at all."""


class FileError(AttemperError):
    """A file cannot be read, written or understood."""


class NotFittedError(AttemperError, sklearn.exceptions.NotFittedError):  # type: ignore[misc]
    """A calibrator was asked to predict before it was fitted."""


class MissingExtraError(AttemperError, ImportError):
    """An optional package is needed and not installed."""


class AttemperWarning(UserWarning):
    """Something worth knowing that does not stop the work.

    >>> import warnings
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("ignore", AttemperWarning)  # "error" makes errors of them
    """


class EdgeWarning(AttemperWarning):
    """The best temperature lies on the edge of the range, or at none at all."""


def require(module: str, *, extra: str, why: str = "") -> ModuleType:
    """Import an optional package, or say in one line how to get it.

    >>> require("json", extra="none").__name__
    'json'
    >>> require("not_there", extra="parquet", why="to read parquet files")
    Traceback (most recent call last):
    attemper.errors.MissingExtraError: not_there is needed to read parquet files and is not installed: \
pip install "attemper[parquet]"
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.split(".")[0] != module.split(".")[0]:
            raise  # the package is there, but one of its own imports is broken: let that be seen
        raise MissingExtraError(
            f'{module} is needed {why + " " if why else ""}and is not installed: pip install "attemper[{extra}]"'
        ) from None
