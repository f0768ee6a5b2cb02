"""Numbers and names as sentences have them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache

from experiments.reproduce import paper
from experiments.reproduce.networks import about

__all__ = ["count", "family", "figure", "label", "listed", "span"]


def figure(value: float, digits: int, sign: str = "") -> str:
    """Round; what rounds to zero has no sign.

    >>> figure(-0.00001, 4), figure(0.1234, 2, "+")
    ('0.0000', '+0.12')
    """
    shown = f"{value:{sign}.{digits}f}"
    return f"{0:.{digits}f}" if float(shown) == 0 else shown


def span(values: Iterable[float], digits: int, sign: str = "") -> str:
    """Return the least and the largest of some numbers.

    >>> span([0.3, 0.1, 0.2], 1), span([1.01, 0.99], 1)
    ('0.1 to 0.3', '1.0')
    """
    values = list(values)
    low, high = figure(min(values), digits, sign), figure(max(values), digits, sign)
    return low if low == high else f"{low} to {high}"


def listed(names: Sequence[str], none: str = "none") -> str:
    """Return names as a list in words.

    >>> listed(["a"]), listed(["a", "b", "c"]), listed([]), listed(["VGG16, CIFAR-10", "LeNet5, MNIST"])
    ('a', 'a, b and c', 'none', 'VGG16, CIFAR-10; LeNet5, MNIST')
    """
    names = list(names)
    if len(names) < 2:
        return names[0] if names else none
    if any("," in name for name in names):
        return "; ".join(names)
    return f"{', '.join(names[:-1])} and {names[-1]}"


def count(chosen: Iterable[object]) -> str:
    """Return how many of some conditions are true.

    >>> count([True, False, True])
    '2 of 3'
    """
    met = [bool(one) for one in chosen]
    return f"{sum(met)} of {len(met)}"


@cache
def label(name: str) -> str:
    """Return a network's name for readers."""
    return about(name).label


def family(name: str) -> str:
    """Return the data set of a network."""
    dataset = about(name).dataset
    return paper.SETS.get(dataset, dataset)
