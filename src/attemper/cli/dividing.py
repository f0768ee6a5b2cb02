"""How VAL is divided: one part fits a map, the other chooses what a guarantee rests on."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from attemper.calibrators import METHODS, Calibrator
from attemper.cli.inputs import Fitted
from attemper.data.scores import LabelledScores, Scores
from attemper.errors import InputError

# The part of VAL that fits the map; what it takes is missing where the threshold is chosen: benchmarks/certificates.py.
FIT_SHARE, FIT_SHARE_FEW = 0.5, 0.2


def default_share(method: str) -> float:
    """Return the part of VAL that fits the map of this method."""
    return FIT_SHARE_FEW if METHODS[method].needs_few_labels else FIT_SHARE


def check_unseen(fitted: Fitted, val: str) -> None:
    """Refuse a VAL that the map was fitted on."""
    for file in fitted.fitted_on(val):
        raise InputError(
            f"{file}: {fitted.path} was fitted on this file (same sha256), so it may not choose the threshold too: the "
            "guarantee would not hold. Use other samples as VAL, in a file of their own; or leave out --map, so that "
            "one part of VAL fits a map and the rest chooses (--method, --fit-share)."
        )


def divided(scores: LabelledScores, share: float, seed: int) -> tuple[LabelledScores, LabelledScores]:
    """Divide at random: one part fits the map, the other chooses the threshold. Clusters stay whole."""
    unit = np.arange(len(scores)) if scores.clusters is None else np.unique(scores.clusters, return_inverse=True)[1]
    total = int(unit.max()) + 1
    n = round(share * total)
    if not 0 < n < total:
        what = "samples" if scores.clusters is None else "clusters"
        raise InputError(
            f"--fit-share {share} of {total} validation {what} leaves a part with none; give more {what}, or a fitted "
            "map with --map"
        )
    fits = np.zeros(total, dtype=bool)
    fits[np.random.default_rng(seed).permutation(total)[:n]] = True
    return taken(scores, fits[unit]), taken(scores, ~fits[unit])


def taken(scores: LabelledScores, rows: Any) -> LabelledScores:
    """Take some rows, in their order."""
    names = ("weights", "image", "groups", "cluster_ids")
    arrays = {name: getattr(scores, name) for name in names}
    own: dict[str, Any] = {name: None if array is None else array[rows] for name, array in arrays.items()}
    return replace(scores, values=scores.values[np.flatnonzero(rows)], y=scores.labels[rows], device=None, **own)


def applied(calibrator: Calibrator, scores: Scores) -> Any:
    """Calibrated probabilities, in double precision."""
    return calibrator.predict_proba(replace(scores, values=scores.logits.astype(np.float64), input="logits"))
