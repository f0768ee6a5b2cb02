"""How much memory the content of a file may take: checked before anything is allocated.

A few kilobytes of compressed zeros can claim gigabytes. A file that is large itself may take memory in proportion; a
small one may not take more than a limit, which a user who trusts the file can raise.
"""

from __future__ import annotations

import os

from attemper.errors import FileError, InputError

__all__ = ["MAX_CLASSES", "check_classes", "check_json", "check_memory"]

VARIABLE = "ATTEMPER_MAX_BYTES"
DEFAULT_MAX_BYTES = 512 << 20
# No logits are compressed as well as this; parsed JSON takes no more than this unless it is made of empty containers.
RATIO = 16
MAX_CLASSES = 10**7


def check_memory(needed: int, size: int, what: str) -> None:
    """Refuse content that takes ``needed`` bytes of memory, out of a file of ``size`` bytes.

    >>> check_memory(2 << 30, 1 << 30, "val.npz: 'logits'")  # a large file may fill the memory that it needs
    >>> check_memory(2 << 30, 1 << 20, "val.npz: 'logits'")
    Traceback (most recent call last):
    attemper.errors.FileError: val.npz: 'logits' would take 2147483648 bytes of memory, but the file has 1048576 \
bytes, and the limit for such a file is 536870912. If you trust the file, set the environment variable \
ATTEMPER_MAX_BYTES=2147483648.
    """
    limit = max(_max_bytes(), RATIO * size)
    if needed > limit:
        raise FileError(
            f"{what} would take {needed} bytes of memory, but the file has {size} bytes, and the limit for such a file "
            f"is {limit}. If you trust the file, set the environment variable {VARIABLE}={needed}."
        )


def check_classes(n_classes: int, path: object) -> None:
    """Refuse more classes than there are anywhere; call it before the rows are decoded."""
    if n_classes > MAX_CLASSES:
        raise InputError(f"{path}: {n_classes} columns of logits; expected at most {MAX_CLASSES}, one per class")


def check_json(text: bytes, what: str) -> None:
    """Refuse JSON whose Python objects would take far more memory than its text."""
    # An object takes 64 to 232 bytes, a list 56, a number 32 with its place in a list.
    needed = 2 * len(text) + 240 * text.count(b"{") + 64 * text.count(b"[") + 32 * text.count(b",")
    check_memory(needed, len(text), what)


def _max_bytes() -> int:
    value = os.environ.get(VARIABLE, "")
    if not value:
        return DEFAULT_MAX_BYTES
    if not (value.isascii() and value.isdigit() and len(value) < 20):
        raise InputError(f"{VARIABLE} is {value[:60]!r}; expected a number of bytes, such as 2000000000")
    return int(value)
