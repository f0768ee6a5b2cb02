"""What was changed of the class priors, how it was found, and whether it can be trusted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attemper._typing import Floats
from attemper.data.arrays import one_line
from attemper.errors import AttemperWarning, InputError, LabelShiftError, warn
from attemper.priors import LabelShiftTest, PriorEstimate

__all__ = ["Adaptation", "adaptation_of", "check_plausible"]


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Adaptation:
    """How the class priors of a calibrator were changed: ``adaptation_`` after `with_priors` and `adapt`.

    Attributes
    ----------
    old, new : arrays
        Shares of the classes under which the probabilities are right, before and after.
    low, high, most_likely : arrays, optional
        After `adapt`: the interval of each new share, and the maximum of the likelihood without shrinkage.
    p_value, unexplained : float, optional
        After `adapt`: see `attemper.priors.LabelShiftTest`. None where there was nothing to test with.
    concentration : float, optional
        How many samples the old shares counted as; None: infinitely many, or known shares.
    gap : float, optional
        Nats a sample by which the likelihood could be larger, at most.
    n_samples : float, optional
        How many unlabelled samples there were.

    Examples
    --------
    >>> Adaptation(old=np.array([0.5, 0.5]), new=np.array([0.9, 0.1])).describe(["no", "yes"])
    ['class priors as specified:', '  no: 0.5 → 0.9', '  yes: 0.5 → 0.1']
    """

    __repr__ = one_line

    old: Floats
    new: Floats
    low: Floats | None = None
    high: Floats | None = None
    most_likely: Floats | None = None
    p_value: float | None = None
    unexplained: float | None = None
    concentration: float | None = None
    gap: float | None = None
    n_samples: float | None = None

    def __post_init__(self) -> None:
        k = len(self.old)
        for name in ("old", "new", "low", "high", "most_likely"):
            value = getattr(self, name)
            if value is not None and (value.shape != (k,) or not ((value >= 0) & (value <= 1 + 1e-9)).all()):
                raise InputError(f"{name}: expected {k} shares between 0 and 1, got shape {value.shape}")

    @property
    def estimated(self) -> bool:
        """Whether the new shares were estimated from unlabelled data."""
        return self.n_samples is not None

    def describe(self, names: Sequence[Any] | None = None, most: int = 12) -> list[str]:
        """Return a readable summary, line by line."""
        how = f"estimated from {self.n_samples:g} unlabelled samples" if self.n_samples is not None else "as specified"
        lines = [f"class priors {how}:"]
        order = np.argsort(-np.abs(self.new - self.old), kind="stable")[:most]
        for k in sorted(order.tolist()):
            interval = "" if self.low is None or self.high is None else f" ({self.low[k]:.3g} to {self.high[k]:.3g})"
            name = k if names is None else names[k]
            lines.append(f"  {name}: {self.old[k]:.3g} → {self.new[k]:.3g}{interval}")
        if len(self.new) > most:
            lines.append(f"  … the {most} of {len(self.new)} classes that changed most")
        if self.p_value is not None and self.unexplained is not None:
            lines.append(
                f"another mix of the classes explains all but {self.unexplained:.1%} of the predictions (test of label "
                f"shift: p = {self.p_value:.3g}; a small p is evidence against it)"
            )
        elif self.estimated:
            lines.append("label shift: not tested, without validation data")
        return lines


def check_plausible(test: LabelShiftTest | None, force: bool) -> None:
    """Refuse to adapt where another mix of the classes does not explain the predictions."""
    if test is None:
        warn(
            "whether label shift is plausible was not tested. Use validation=(logits, labels)",
            AttemperWarning,
        )
        return
    if test.plausible:
        return
    message = (
        f"no mix of the classes explains the predictions (p = {test.p_value:.2g}): {test.unexplained:.1%} of them are "
        "of other confidences or classes than label shift allows. The inputs themselves may have changed; new class "
        "priors would not correct that"
    )
    if not force:
        raise LabelShiftError(
            f"{message}. Use new labelled data for a fit, or force=True to adapt nevertheless.", param="force"
        )
    warn(f"{message}.", AttemperWarning)


def adaptation_of(
    found: PriorEstimate, before: Floats, test: LabelShiftTest | None, labelled: NDArray[np.bool_] | None
) -> Adaptation:
    """Put together what was found; ``labelled`` are the classes that have labels in the validation data."""
    kept = np.zeros(len(before), dtype=bool) if labelled is None else ~labelled
    left = (1 - before[kept].sum()) / (1 - found.old[kept].sum())

    def shares(estimated: Floats) -> Floats:
        """Of classes without labels nothing is estimated: they keep their share."""
        return np.asarray(np.where(kept, before, np.clip(left * estimated, 0, 1)))

    new = np.where(before > 0, shares(found.priors), 0.0)
    return Adaptation(
        old=before,
        new=new / new.sum(),
        low=shares(found.low),
        high=shares(found.high),
        most_likely=shares(found.most_likely),
        p_value=None if test is None else test.p_value,
        unexplained=None if test is None else test.unexplained,
        concentration=found.concentration,
        gap=found.gap,
        n_samples=found.n_samples,
    )
