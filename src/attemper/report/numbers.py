"""Numbers as the page shows them."""

from __future__ import annotations

import math

from attemper.metrics import Estimate
from attemper.metrics.intervals import around_share

__all__ = ["count", "fixed", "p_value", "percent", "percent_interval", "share", "signed", "triple"]

NARROW = "\u202f"  # a narrow space without a line break


def fixed(value: float | None, digits: int) -> str:
    """Write a number with this many decimals.

    >>> fixed(0.126, 2), fixed(None, 2), fixed(float("inf"), 2)
    ('0.13', '–', '∞')
    """
    if value is None or math.isnan(value):
        return "–"
    return "∞" if value == math.inf else f"{value:.{digits}f}"


def percent(share: float | None, digits: int = 1) -> str:
    """Write a share in percent, without the sign.

    >>> percent(0.76256)
    '76.3'
    """
    return fixed(None if share is None else 100 * share, digits)


def percent_interval(values: tuple[float, ...] | list[float], digits: int = 1) -> str:
    """Write a share with its interval.

    >>> percent_interval((0.7626, 0.7479, 0.7772))
    '76.3 % (74.8 to 77.7)'
    """
    value, *limits = values
    return f"{percent(value, digits)} %" + (f" ({' to '.join(percent(v, digits) for v in limits)})" if limits else "")


def count(value: float) -> str:
    """Write how many: whole, or with one decimal where weights are not.

    >>> count(1234567), count(12.0), count(2.5)
    ('1\u202f234\u202f567', '12', '2.5')
    """
    return f"{value:,.{0 if float(value).is_integer() else 1}f}".replace(",", NARROW)


def signed(value: float, digits: int) -> str:
    """Write a difference with its sign; none where it rounds to 0.

    >>> signed(-1.26, 1), signed(0.5, 1), signed(-0.04, 1)
    ('−1.3', '+0.5', '0.0')
    """
    text = fixed(abs(value), digits)
    return ("" if float(text) == 0 else "−" if value < 0 else "+") + text


def p_value(p: float, resamples: int) -> str:
    """Write a p-value from resamples, which cannot be below 1 / (resamples + 1).

    >>> p_value(0.034, 1000), p_value(1 / 1001, 1000)
    ('p = 0.034', 'p ≤ 0.001')
    """
    return f"p {'≤' if p * (resamples + 1) <= 1 + 1e-6 else '='} {p:.2g}"


def triple(value: float | Estimate) -> list[float]:
    """Return value, low and high, or the value alone where there is no interval."""
    if not isinstance(value, Estimate):
        return [float(value)]
    return list(value) if value.has_interval else [value.value]


def share(part: float, total: float, confidence_level: float, scale: float = 1.0) -> list[float] | None:
    """Share ``part / total`` with its Wilson interval; None where the total is 0.

    ``scale`` is how many samples a unit of weight is worth.

    >>> percent_interval(share(0, 30, 0.95))
    '0.0 % (0.0 to 11.4)'
    """
    if not total > 0:
        return None
    return list(around_share(part / total, total * scale, confidence_level))
