"""A conformal test martingale, of whether new labelled data are still like the reference data.

It needs no model of what is true. If reference and new samples are exchangeable (drawn alike, in any order), the
smoothed conformal p-values are independent and uniform on [0, 1], whatever the map predicts; the test wagers that they
are not. Vovk, Gammerman and Shafer, *Algorithmic Learning in a Random World* (2022), part III.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from attemper._checks import whole
from attemper._json import Fields
from attemper._typing import Floats, Labels
from attemper.calibrators import Calibrator
from attemper.drift.sequential import SequentialTest
from attemper.kernels.drift import WIDTH, conformal_p_values, log_bets
from attemper.maps import Map

__all__ = ["ExchangeabilityTest"]

# Scores are counted in bins of this width of the log-odds of the label: an exact test for the rounded score, in a state
# that does not grow. The bins must not depend on the data.
BIN = 0.02
N_BINS = 4001
STREAM = 0x617474


class ExchangeabilityTest(SequentialTest):
    """Watch whether new labelled samples are still like those of a reference set.

    Each new sample is ranked among all before it, reference and new, by the probability that the map gave to its label.
    The hypothesis is that reference and new samples are exchangeable. Under it the probability of ever raising an alarm
    is at most ``alpha``; no map has to be right. Compared with `DriftTest` it needs the reference data, finds labels
    that have become less likely about as soon, and labels that have become more likely later.

    Parameters
    ----------
    deployed : Calibrator, Map or float
        A fitted calibrator; or a map or a temperature for logits.
    X, y : arrays of shape (n_samples, n_classes) and (n_samples,), or a Scores
        The reference: labelled samples, drawn as the new ones will be. They should not have fitted the map: samples
        that did fit it better than new ones do, which matters for matrices and binned maps, hardly for a temperature.
    alpha : float
        Probability of a false alarm, over all time.
    seed : int
        Ties between equal scores are broken at random.

    Attributes
    ----------
    n_samples, n_reference : int
    alarm : bool
        Once raised, it stays.
    alarm_at : int or None
        The sample that raised it, counted from 1.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> logits = 3 * rng.normal(size=(4000, 5))
    >>> def labels(t):
    ...     return (logits / t + rng.gumbel(size=logits.shape)).argmax(axis=1)
    >>> test = ExchangeabilityTest(2.0, logits, labels(2.0))
    >>> test.update(logits, labels(2.0)).alarm
    False
    >>> test.update(logits, labels(3.0)).alarm
    True
    """

    document = "exchangeability test"
    stored = (*SequentialTest.stored, "seed", "n_reference", "reference")

    seed: int
    n_reference: int
    reference: tuple[str, ...]  # hashes of the reference files, where they are known
    _counts: Labels  # of samples in each bin of the score, reference and new

    def __init__(
        self, deployed: Calibrator | Map | float, X: Any, y: Any = None, *, alpha: float = 0.05, seed: int = 0
    ) -> None:
        super().__init__(deployed, alpha)
        self.seed = whole("seed", seed, at_least=0)
        self.reference = ()
        scores, labels = self._read(X, y)
        self._counts = np.zeros(N_BINS, dtype=np.int64)
        for log_p, part in self._predictions(scores):
            self._counts += np.bincount(_bins(log_p, labels[part]), minlength=N_BINS)
        self.n_reference = len(scores)
        self.n_classes = scores.n_classes

    def describe(self) -> list[str]:
        """Return the verdict as readable lines."""
        if not self.alarm:
            return [
                f"no alarm: {self.n_samples} labels are not enough evidence that they differ from the "
                f"{self.n_reference} reference samples (p = {self.p_value:.3g}; alarm at {self.alpha:g})"
            ]
        lines = [
            f"ALARM at sample {self.alarm_at} of {self.n_samples}: the data are no longer like the "
            f"{self.n_reference} reference samples (p = {self.p_value:.3g})"
        ]
        best = int(self._wager.log_stake.argmax())
        if self._share_won() > 0.5:
            way = "less" if best < WIDTH // 2 else "more"
            lines.append(
                f"since about sample {int(self._wager.start[best]) + 1} labels have been {way} likely under the map "
                "than those of the reference"
            )
        return [*lines, "compare recent data with the reference; if they stay as they are, fit the map again on them"]

    def _log_ratios(self, log_p: Floats, y: Labels) -> tuple[Floats, Labels]:
        bins = _bins(log_p, y)
        # As many numbers as samples were drawn before, so that batches make no difference.
        drawn = int(self._counts.sum()) - self.n_reference
        # A stream of its own: data that were simulated with default_rng(seed) must not repeat it.
        bits = np.random.PCG64(np.random.SeedSequence(self.seed, spawn_key=(STREAM,)))
        u = np.random.Generator(bits.advance(drawn)).random(len(y))
        p = conformal_p_values(bins, self._counts, u)
        self._counts = self._counts + np.bincount(bins, minlength=N_BINS)
        return log_bets(p), np.zeros(0, dtype=np.int64)

    def _more_fields(self) -> dict[str, Any]:
        occupied = np.flatnonzero(self._counts)
        return {"bins": occupied.tolist(), "counts": self._counts[occupied].tolist()}

    def _is_consistent(self, content: Fields) -> bool:
        bins, counts = content.read("bins", Labels), content.read("counts", Labels)
        if bins.ndim != 1 or bins.shape != counts.shape or not ((bins >= 0) & (bins < N_BINS) & (counts >= 1)).all():
            return False
        self._counts = np.zeros(N_BINS, dtype=np.int64)
        self._counts[bins] = counts
        complete = self._counts.sum() == self.n_reference + self.n_samples
        return self.seed >= 0 and self.n_reference >= 1 and complete and super()._is_consistent(content)


def _bins(log_p: Floats, y: Labels) -> Labels:
    """Return the bin of each sample's score, the log-odds of its label; a lower one fits the map less."""
    of_label = log_p[np.arange(len(y)), y]
    with np.errstate(divide="ignore"):
        score = of_label - np.log(-np.expm1(of_label))
    return np.rint(np.clip(score / BIN, -(N_BINS // 2), N_BINS // 2)).astype(np.int64) + N_BINS // 2
