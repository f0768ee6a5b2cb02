"""The likelihood of labels some of which are wrong.

An observed label is right with probability 1 − ε; otherwise it is drawn from a law F over the
classes, so its likelihood is (1 − ε) S_y(T) + ε F_y. With the odds r = ε/(1 − ε) this is
(1 − ε) (S_y + r F_y): what depends on the data is a sum of log(S_y + r F_y), analytic in log T and
in log r, with no singularity closer to the real axis than π in log r.

Two laws F are known: uniform over the classes, 1/K; and ``similar``, S_y at the higher temperature
SOFTENING · T, for errors among the classes that the network itself finds similar.
"""

from __future__ import annotations

import numpy as np

from attemper._typing import Floats

__all__ = ["SOFTENING", "log_likelihood"]


SOFTENING = 3.0


def log_likelihood(log_s: Floats, log_f: Floats, w: Floats | None, odds: Floats) -> Floats:
    """Σ_i log(S_i + r F_i) for each r of ``odds``; nothing underflows."""
    top = np.maximum(log_s, log_f)
    value = np.exp(log_s - top)[:, None] + np.exp(log_f - top)[:, None] * odds
    np.log(value, out=value)
    value += top[:, None]
    return np.asarray(value.sum(axis=0) if w is None else w @ value)
