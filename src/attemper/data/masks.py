"""Finite numbers that stand for −inf in other people's code: found, and read as −inf."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import array_api_compat

from attemper.data.arrays import widest

__all__ = ["MASKS_FROM", "has_finite_masks", "masks_as_inf"]

# Finite numbers that stand for −inf in other people's code are below this: −1e4 in bfloat16 is −9984, and z − 1e4 may
# be above −1e4. They are further below the logits than this many times the range of the logits, or of the masks.
MASKS_FROM = -9000.0
GAP = 10.0


def has_finite_masks(parts: Iterable[Any]) -> bool:
    """Whether the numbers ≤ −9000 of these logits are masks, such as −1e4, −65504, −1e9 or z − 1e9.

    They are if a wide gap lies between them and the logits, so that naive Bayes, whose logits are of every size, has
    none: from the largest logit of a row down to a mask it is more than ten times the range of all logits, and of all
    masks, and 10 at least. Parts of an array are counted as one. Rows with nothing above −9000 have no masks.

    >>> import numpy as np
    >>> has_finite_masks([np.array([[2.0, 1.0, -1e9], [5.0, -3.0 - 1e9, 2.0 - 1e9]])])
    True
    >>> has_finite_masks([1e4 * np.array([[2.0, 1.0, -1.0], [0.0, -3.0, 0.0]])])
    False
    """
    logits, masks, gap = (math.inf, -math.inf), (math.inf, -math.inf), math.inf
    for part in parts:
        xp = array_api_compat.array_namespace(part)
        h = _floating(part, xp)
        found = _below(h, xp)
        infinite = xp.full_like(h, math.inf)
        highest_mask = xp.max(xp.where(found, h, -infinite), axis=1)
        top = xp.max(xp.where(h > MASKS_FROM, h, xp.full_like(h, MASKS_FROM)), axis=1)
        distance = xp.astype(top, widest(h, xp)) - xp.astype(highest_mask, widest(h, xp))
        gap = min(gap, float(xp.min(distance)))
        masks = _range(masks, xp.where(found, h, infinite), highest_mask, xp)
        logit = h > MASKS_FROM
        logits = _range(logits, xp.where(logit, h, infinite), xp.where(logit, h, -infinite), xp)
    return masks[0] <= masks[1] and gap > GAP * max(logits[1] - logits[0], masks[1] - masks[0], 1.0)


def masks_as_inf(h: Any) -> Any:
    """Logits with −inf for finite masks, where `has_finite_masks` found some.

    >>> import numpy as np
    >>> masks_as_inf(np.array([[2.0, 1.0, -1e9], [-1e4, -1e4, -1e4]])).tolist()
    [[2.0, 1.0, -inf], [-10000.0, -10000.0, -10000.0]]
    """
    xp = array_api_compat.array_namespace(h)
    h = _floating(h, xp)
    return xp.where(_below(h, xp), xp.full_like(h, -math.inf), h)


def _below(h: Any, xp: Any) -> Any:
    """Which numbers may be finite masks."""
    return (h <= MASKS_FROM) & (h > -math.inf) & (xp.max(h, axis=1, keepdims=True) > MASKS_FROM)


def _range(so_far: tuple[float, float], low: Any, high: Any, xp: Any) -> tuple[float, float]:
    return min(so_far[0], float(xp.min(low))), max(so_far[1], float(xp.max(high)))


def _floating(h: Any, xp: Any) -> Any:
    return h if "float" in str(h.dtype) else xp.astype(h, widest(h, xp))
