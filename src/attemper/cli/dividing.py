"""How VAL is divided: one part fits a map, the other chooses what a guarantee rests on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from attemper._checks import fraction
from attemper.calibrators import METHODS, Calibrator, Provenance
from attemper.cli.inputs import Fitted, load_pair, pair_specs
from attemper.cli.options import reject_given
from attemper.data.layout import check_independent
from attemper.data.overlap import warn_of_shared_rows
from attemper.data.scores import LabelledScores, Scores
from attemper.errors import InputError
from attemper.io import InputSpec

# The part of VAL that fits the map; what it takes is missing where the threshold is chosen.
FIT_SHARE, FIT_SHARE_FEW = 0.5, 0.2
DEFAULT_SHARES = (
    f"{FIT_SHARE_FEW} for {', '.join(m for m, c in METHODS.items() if c.needs_few_labels)}; {FIT_SHARE} for others"
)


class Divided(NamedTuple):
    """A map; the samples that fitted it (None where it is from a file) and those that choose; TEST, and the names."""

    calibrator: Calibrator
    fitting: LabelledScores | None
    choosing: LabelledScores
    test: LabelledScores
    names: Sequence[str] | None
    how: str

    @property
    def n_fitted(self) -> int:
        """The number of samples that the map was fitted on here."""
        return 0 if self.fitting is None else len(self.fitting)


def read_and_fit(
    val: str,
    test: str,
    spec: InputSpec,
    *,
    map_file: str | None,
    no_groups: bool,
    method: str,
    fit_share: float | None,
    save_map: str | None,
    seed: int,
    noisy: bool = False,
    noise: str | None = None,
    guaranteed: bool = True,
    of_cases: bool = False,
) -> Divided:
    """Read VAL and TEST, and fit a map, on a part of VAL where the rest is for a guarantee.

    With ``of_cases`` samples need not be independent where clusters are given.
    """
    share = fraction("fit_share", fit_share or default_share(method), such_as="0.5")
    fitted = None if map_file is None else Fitted.load(map_file, no_groups=no_groups)
    if fitted is not None:
        reject_given(("method", "fit_share", "save_map"), "belongs to a fit; with --map nothing is fitted")
        if guaranteed:
            check_unseen(fitted, val)
        else:
            fitted.warn_of(val)
        fitted.warn_of(test)
    pair = load_pair(val, test, spec, fitted)
    for path, scores in ((val, pair.val), (test, pair.test)):
        if not of_cases or scores.cluster_ids is None or scores.repeated is not None:
            check_independent(path, None, scores.image, soft=scores.repeated is not None)
    warn_of_shared_rows(pair.val, pair.test)
    if fitted is not None:
        return Divided(fitted.calibrator, None, pair.val, pair.test, pair.names, f"from {map_file}")
    fitting, choosing = divided(pair.val, share, seed) if guaranteed else (pair.val, pair.val)
    settings: dict[str, Any] = {"input": pair.val.input, "zeros_as": pair.val.zeros_as}
    if save_map is not None and pair.names is not None:
        settings["classes"] = list(pair.names)
    calibrator = METHODS[method].for_labels(noisy=noisy, noise=noise, **settings)
    calibrator.fit(replace(fitting, groups=None))  # one map for all groups
    if save_map is not None:
        calibrator.save(save_map, provenance=Provenance.now([val, *(pair_specs(val, spec)[0].labels or ())]))
    how = f"fitted on {len(fitting)} of {len(pair.val)} validation samples"
    return Divided(calibrator, fitting, choosing, pair.test, pair.names, how)


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
