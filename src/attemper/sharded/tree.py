"""The sum of many sketches: a binary tree over their numbers, so that who comes first changes no bit of it."""

from __future__ import annotations

from typing import Generic, Protocol, Self, TypeVar

__all__ = ["Tree"]


class _Addable(Protocol):
    def __add__(self, other: Self, /) -> Self: ...


T = TypeVar("T", bound=_Addable)


class Tree(Generic[T]):
    """Adds ``n`` things that come in any order, always in the same pairs.

    Leaves 2i and 2i + 1 have one parent, and so on upwards; a node without a sibling moves up as it is. A
    node is added as soon as both children are there, so that few are held at a time. A leaf may be
    left out with None.

    Examples
    --------
    >>> tree = Tree(3)
    >>> for number, text in [(2, "c"), (0, "a"), (1, "b")]:
    ...     tree.add(number, text)
    >>> tree.total
    'abc'
    """

    def __init__(self, n: int) -> None:
        self.n = n
        self.total: T | None = None
        self._waiting: dict[tuple[int, int], T | None] = {}

    def add(self, number: int, value: T | None) -> None:
        """Put a leaf in its place, and add what can be added."""
        level, width = 0, self.n
        while width > 1:
            sibling = number ^ 1
            if sibling < width:
                if (level, sibling) not in self._waiting:
                    self._waiting[level, number] = value
                    return
                other = self._waiting.pop((level, sibling))
                left, right = (other, value) if sibling < number else (value, other)
                value = left + right if left is not None and right is not None else left if right is None else right
            number, width, level = number // 2, (width + 1) // 2, level + 1
        self.total = value
