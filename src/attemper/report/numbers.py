"""Numbers as the page shows them; ``report.js`` has the same functions, digit for digit."""

from __future__ import annotations

import math
from decimal import ROUND_HALF_UP, Decimal

from attemper.metrics import Estimate
from attemper.metrics.intervals import around_share

__all__ = ["bare", "count", "fixed", "percent", "percent_interval", "share", "signed", "triple"]

NONE = "–"
GAP = "\u202f"  # narrow, and no line breaks there


def fixed(value: float | None, digits: int) -> str:
    """Write a number with this many decimals; a tie goes away from zero, as in JavaScript's toFixed.

    >>> fixed(0.125, 2), f"{0.125:.2f}", fixed(None, 2)
    ('0.13', '0.12', '–')
    """
    if value is None or math.isnan(value):
        return NONE
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    if abs(value) >= 1e21:  # where toFixed changes its way of writing
        return f"{value:.3e}"
    return format(Decimal(float(value)).quantize(Decimal(1).scaleb(-digits), ROUND_HALF_UP), "f")


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
    text = fixed(value, 0 if float(value).is_integer() else 1)
    whole, _, rest = text.partition(".")
    groups = [whole[max(0, end - 3) : end] for end in range(len(whole), 0, -3)]
    return GAP.join(reversed(groups)) + (f".{rest}" if rest else "")


def bare(temperature: float) -> str:
    """Write a temperature: three decimals, or three digits where those would show little.

    >>> bare(2.1553), bare(0.00123456), bare(23456.0)
    ('2.155', '0.00123', '2.35e+04')
    """
    return fixed(temperature, 3) if 0.05 <= temperature < 1000 else f"{temperature:.3g}"


def signed(value: float, digits: int) -> str:
    """Write a difference with its sign; none where it rounds to 0.

    >>> signed(-1.25, 1), signed(0.5, 1), signed(-0.04, 1)
    ('−1.3', '+0.5', '0.0')
    """
    text = fixed(abs(value), digits)
    return ("" if float(text) == 0 else "−" if value < 0 else "+") + text


def triple(value: float | Estimate) -> list[float]:
    """Return value, low and high, or the value alone where there is no interval."""
    if not isinstance(value, Estimate):
        return [float(value)]
    return list(value) if value.has_interval else [value.value]


def share(part: float, total: float, interval: float, scale: float = 1.0) -> list[float] | None:
    """Share ``part / total`` with its Wilson interval; None where the total is 0.

    ``scale`` is how many samples a unit of weight is worth.

    >>> percent_interval(share(0, 30, 0.95))
    '0.0 % (0.0 to 11.4)'
    """
    if not total > 0:
        return None
    return list(around_share(part / total, total * scale, interval))
