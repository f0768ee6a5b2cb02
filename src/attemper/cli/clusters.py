"""What commands with --clusters print of them: how many independent samples they are worth."""

from __future__ import annotations

import math
from typing import Any

from attemper.cli.output import say
from attemper.data.scores import LabelledScores
from attemper.metrics import EffectiveSampleSize, effective_sample_size


def clusters_json(scores: Any) -> dict[str, Any]:
    """Return the sizes for --json; nothing where there are no clusters."""
    found = _size(scores)
    if found is None:
        return {}
    correlation = None if math.isnan(found.correlation) else found.correlation
    return {
        "clusters": {
            "n_clusters": found.n_clusters,
            "correlation": correlation,
            "design_effect": found.design_effect,
            "effective": found.effective,
        }
    }


def say_clusters(scores: Any, before: str = "") -> None:
    """Print them in a sentence; nothing where there are no clusters."""
    found = _size(scores)
    if found is not None:
        say(f"{before}{found} (by the errors)")


def _size(scores: Any) -> EffectiveSampleSize | None:
    if not isinstance(scores, LabelledScores) or scores.cluster_ids is None:
        return None
    return effective_sample_size(scores)
