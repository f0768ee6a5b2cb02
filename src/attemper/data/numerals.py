"""Numbers in text, read as other programs read them."""

from __future__ import annotations

__all__ = ["check_digits", "is_number", "number_from"]


def number_from(text: str) -> float:
    """Read a number as other programs do: Python alone takes 1_0 for 10, and the digits of every script.

    >>> number_from(" -1.5e3")
    -1500.0
    >>> number_from("1_0")
    Traceback (most recent call last):
    ValueError: not a number: '1_0'
    """
    check_digits(text)
    return float(text)


def check_digits(text: str) -> None:
    """Refuse what Python alone takes for a digit."""
    if "_" in text or not text.isascii():
        raise ValueError(f"not a number: {text[:60]!r}")


def is_number(text: str) -> bool:
    """Whether a text is a number, in any script.

    >>> is_number("1e3"), is_number("cat")
    (True, False)
    """
    try:
        float(text)
    except ValueError:
        return False
    return True
