"""A conformal test martingale, of whether new data are still like the reference data.

It needs no model of what is true. If reference and new samples are exchangeable (drawn alike, in any order), the
smoothed conformal p-values are independent and uniform on [0, 1], whatever the map predicts; the test wagers that they
are not. Vovk, Gammerman and Shafer, *Algorithmic Learning in a Random World* (2022), part III.
"""

from __future__ import annotations

from typing import Any, Self

import numpy as np

from attemper._checks import whole
from attemper._json import Fields
from attemper._typing import Floats, Labels
from attemper.calibrators import Calibrator
from attemper.data.scores import LabelledScores
from attemper.drift.sequential import Batch, SequentialTest
from attemper.errors import InputError
from attemper.kernels.drift import WIDTH, average_by_cluster, conformal_p_values, log_bets
from attemper.maps import Map

__all__ = ["ExchangeabilityTest"]

# Scores are counted in bins of this width of the log-odds of the label: an exact test for the rounded score, in a state
# that does not grow. The bins must not depend on the data.
BIN = 0.02
N_BINS = 4001
STREAM = 0x617474


class ExchangeabilityTest(SequentialTest):
    """Watch whether new samples are still like those of a reference set.

    Each new sample is ranked among all before it, reference and new, by the probability that the map gave to its label;
    without labels, by the confidence, the largest probability.
    The hypothesis is that reference and new samples are exchangeable. Under it the probability of ever raising an alarm
    is at most ``alpha``; no map has to be right. Compared with `DriftTest` it needs the reference data, finds labels
    that have become less likely about as soon, and labels that have become more likely later.

    Parameters
    ----------
    deployed : Calibrator, Map or float
        A fitted calibrator; or a map or a temperature for logits.
    X, y : arrays of shape (n_samples, n_classes) and (n_samples,), or a Scores
        The reference: samples drawn as the new ones will be. With labels, new samples need them too; without, the
        test watches confidences alone, and cannot notice labels that no longer fit them. The reference should not have
        fitted the map: samples that did fit it better than new ones do, which matters for matrices and binned maps,
        hardly for a temperature.
    groups, clusters : arrays of shape (n_samples,), optional
        As in `update`. A cluster is ranked as a whole, by the mean of its scores (log-odds); new samples then need
        clusters too.
    labelled : bool, optional
        False: use confidences even if there are labels. By default, labels are used if there are any.
    alpha : float
        Probability of a false alarm, over all time.
    seed : int
        Ties between equal scores are broken at random.

    Attributes
    ----------
    n_samples, n_reference : int
    labelled, clustered : bool
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
    stored = (*SequentialTest.stored, "labelled", "clustered", "seed", "n_reference")

    clustered: bool = False  # whether clusters are ranked, in place of samples
    seed: int
    n_reference: int
    _counts: Labels  # of samples in each bin of the score, reference and new

    def __init__(
        self,
        deployed: Calibrator | Map | float,
        X: Any,
        y: Any = None,
        *,
        groups: Any = None,
        clusters: Any = None,
        labelled: bool | None = None,
        alpha: float = 0.05,
        seed: int = 0,
    ) -> None:
        super().__init__(deployed, alpha)
        self.seed = whole("seed", seed, at_least=0)
        self.labelled = y is not None or isinstance(X, LabelledScores) if labelled is None else labelled
        batch = self._read(X, y, groups, clusters)
        self.n_classes = batch.scores.n_classes
        scores = np.concatenate([statistics for statistics, _ in self._chunks(batch)])
        self.clustered = batch.clusters is not None
        if batch.clusters is not None:
            scores, _ = average_by_cluster(scores, batch.clusters)
        self._counts = np.bincount(_bins(scores), minlength=N_BINS)
        self.n_reference = len(scores)

    def update(self, X: Any, y: Any = None, *, groups: Any = None, clusters: Any = None) -> Self:
        """Take in samples, in their order in time: as `DriftTest.update`, without labels if it uses none."""
        if y is not None and not self.labelled:
            raise InputError("labels: this test uses none; leave them out")
        return super().update(X, y, groups=groups, clusters=clusters)

    def _check(self, batch: Batch) -> None:
        if self.clustered != (batch.clusters is not None):
            got, has = ("none", "has clusters") if self.clustered else ("some", "has none")
            raise InputError(
                f"clusters: got {got}, but the reference {has}; samples and clusters cannot be ranked together. Use "
                f"clusters= for both or for neither.",
                param="clusters",
            )

    def describe(self) -> list[str]:
        """Return the verdict as readable lines."""
        like = f"the {self.n_reference} reference {'clusters' if self.clustered else 'samples'}"
        if not self.alarm:
            return [
                f"no alarm: {self._counted()} are not enough evidence that they differ from {like} "
                f"(p = {self.p_value:.3g}; alarm at {self.alpha:g})"
            ]
        lines = [
            f"ALARM at sample {self.alarm_at} of {self.n_samples}: the data are no longer like {like} "
            f"(p = {self.p_value:.3g})"
        ]
        best = int(self._wager.log_stake.argmax())
        if self._share_won() > 0.5:
            lower = best < WIDTH // 2
            what = f"labels have been {'less' if lower else 'more'} likely under the map"
            if not self.labelled:
                what = f"confidences have been {'lower' if lower else 'higher'}"
            lines.append(f"since about sample {int(self._wager.start[best]) + 1} {what} than those of the reference")
        advice = "compare recent data with the reference; if they stay as they are, fit the map again on them"
        if not self.labelled:
            advice = "label a sample of recent data, and test whether the map still fits them"
        return [*lines, advice]

    def _statistics(self, log_p: Floats, y: Labels | None) -> tuple[Floats, Labels]:
        """Return the score of each sample, the log-odds of its label or prediction; a lower one fits the map less."""
        of = log_p.max(axis=1) if y is None else log_p[np.arange(len(y)), y]
        with np.errstate(divide="ignore"):
            score = of - np.log(-np.expm1(of))
        largest = BIN * (N_BINS // 2)
        return np.clip(score, -largest, largest)[:, None], np.zeros(0, dtype=np.int64)

    def _log_ratios(self, statistics: Floats) -> Floats:
        bins = _bins(statistics)
        # As many numbers as samples were drawn before, so that batches make no difference.
        drawn = int(self._counts.sum()) - self.n_reference
        # A stream of its own: data that were simulated with default_rng(seed) must not repeat it.
        bits = np.random.PCG64(np.random.SeedSequence(self.seed, spawn_key=(STREAM,)))
        u = np.random.Generator(bits.advance(drawn)).random(len(bins))
        p = conformal_p_values(bins, self._counts, u)
        self._counts = self._counts + np.bincount(bins, minlength=N_BINS)
        return log_bets(p)

    def _fields(self) -> dict[str, Any]:
        occupied = np.flatnonzero(self._counts)
        return super()._fields() | {"bins": occupied.tolist(), "counts": self._counts[occupied].tolist()}

    @classmethod
    def _from_fields(cls, content: Fields) -> Self:
        new = super()._from_fields(content)
        new._counts = np.zeros(N_BINS, dtype=np.int64)
        new._counts[content.read("bins", Labels)] = content.read("counts", Labels)
        return new


def _bins(scores: Floats) -> Labels:
    """Return the bin of each score."""
    return np.rint(scores[:, 0] / BIN).astype(np.int64) + N_BINS // 2
