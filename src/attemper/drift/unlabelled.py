"""What predictions without labels indicate: accuracy, and class priors, if the map is calibrated for these data.

The mean confidence of a calibrated map is its accuracy (Guo et al. 2017, Eq. 1, averaged): nothing here can notice a
map that is no longer calibrated. Only labels can, with `DriftTest`.
"""

from __future__ import annotations

import copy
import os
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from attemper._checks import fraction
from attemper._json import Fields, read_document, to_fields, values_of, write_document
from attemper._table import Columns, as_list
from attemper._typing import Floats, Labels
from attemper.calibrators import Calibrator
from attemper.data.scores import Scores
from attemper.drift.confidence import ConfidenceSums, PriorShift, UnlabelledEstimates
from attemper.drift.exchangeability import ExchangeabilityTest
from attemper.drift.monitor import Batch, MapMonitor, Repeats
from attemper.drift.row_sample import RowSample
from attemper.drift.seen import hash_ids, hash_rows
from attemper.drift.sequential import contradiction
from attemper.errors import InputError
from attemper.kernels.drift import top_confidence
from attemper.maps import Map
from attemper.metrics.intervals import Estimate
from attemper.priors import estimate_priors

__all__ = ["UnlabelledMonitor"]

CAVEAT = (
    "these estimates rest on the map being calibrated for these data; only labels can check that (attemper drift with "
    "labels, DriftTest)"
)
N_RESAMPLES = 100  # of the intervals of priors
MAX_FACTOR = 10.0  # of a temperature that is hardly known: beyond, confidences are those of a guess


class UnlabelledMonitor(MapMonitor):
    """Estimate accuracy and class priors of unlabelled data, from the predictions of a calibrated map.

    **Everything here rests on the map being calibrated for these data.** If it is, its mean confidence is its accuracy.
    If a drift has made it over-confident, the estimate is too high, and nothing without labels can notice that: check
    it on a few labels with `DriftTest`. How far off the estimate is on real networks: docs/drift.md.

    Two monitors of the same map add, unless they have a ``reference``.

    Parameters
    ----------
    deployed : Calibrator, Map or float
        A fitted calibrator; or a map or a temperature for logits.
    reference : Scores, optional
        Also test whether new confidences are like those of these samples (`ExchangeabilityTest` without labels), with
        ``alpha`` and ``seed``. Its labels, if it has any, are not used.
    threshold : float, optional
        Also estimate the miss rate of predictions with a confidence above this one.

    Attributes
    ----------
    n_samples : int
    test : ExchangeabilityTest or None

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> logits = 3 * rng.normal(size=(4000, 5))
    >>> monitor = UnlabelledMonitor(2.0).update(logits)
    >>> value, low, high = monitor.estimates().accuracy
    >>> labels = (logits / 2.0 + rng.gumbel(size=logits.shape)).argmax(axis=1)
    >>> bool(low < (labels == logits.argmax(axis=1)).mean() < high)
    True
    """

    document = "unlabelled monitor"
    stored: ClassVar[tuple[str, ...]] = (
        "threshold",
        "class_prior",
        "n_fitted",
        "factor",
        "n_cases",
        "_sums",
        "_sample",
    )

    threshold: float | None
    class_prior: Floats | None  # of the data that the map was fitted on
    n_fitted: float | None  # how many samples these were
    factor: float | None  # within which the temperature is known
    n_cases: int
    groups: dict[str | int, ConfidenceSums]
    test: ExchangeabilityTest | None
    _sums: ConfidenceSums
    _sample: RowSample

    def __init__(
        self,
        deployed: Calibrator | Map | float,
        *,
        reference: Scores | None = None,
        threshold: float | None = None,
        alpha: float = 0.05,
        seed: int = 0,
    ) -> None:
        super().__init__(deployed)
        self.threshold = None if threshold is None else fraction("threshold", threshold, closed=True, such_as="0.9")
        prior = getattr(deployed, "class_prior_", None)
        self.class_prior = None if prior is None else np.asarray(prior, dtype=np.float64)
        self.n_fitted = None if prior is None else float(deployed.fit_report_.n_samples)  # type: ignore[union-attr]
        known = deployed.known_within() if isinstance(deployed, Calibrator) else None
        self.factor = None if known is None else min(known, MAX_FACTOR)
        self.n_cases, self.groups = 0, {}
        self._sums, self._sample = ConfidenceSums.none(), RowSample.empty()
        self.test = None
        if reference is not None:
            self.test = ExchangeabilityTest(deployed, reference, labelled=False, alpha=alpha, seed=seed)

    def __repr__(self) -> str:
        return f"UnlabelledMonitor(n_samples={self.n_samples}, alarm={self.alarm})"

    def update(self, X: Any, *, groups: Any = None, clusters: Any = None, repeats: Repeats = "error") -> Self:
        """Take in samples without labels; those of a `Scores` are not used.

        Parameters
        ----------
        X, groups, clusters, repeats
            As in `DriftTest.update`. With ``groups`` there are estimates of each group too. With ``clusters``,
            intervals allow for samples of a case that are all right or all wrong together.
        """
        batch = self._read(X, None, groups, clusters, labels=False)
        if self.test is not None:
            self.test._check(batch)
        with self._unchanged_on_error():
            self.groups = dict(self.groups)
            self.test = copy.copy(self.test)
            self._take(batch, self._new_rows(batch, repeats))
        return self

    @property
    def n_samples(self) -> int:
        """Samples seen."""
        return self.n_rows

    @property
    def alarm(self) -> bool:
        """Whether confidences are no longer like those of the reference; False without one."""
        return self.test is not None and self.test.alarm

    def estimates(self, group: str | int | None = None, *, confidence_level: float = 0.95) -> UnlabelledEstimates:
        """Estimate accuracy, and above the threshold the miss rate, of all samples or of one group.

        The interval is for the accuracy that labels of these very samples would show. It covers chance, and the
        uncertainty of T where the calibrator has an interval of it; not a map that is no longer calibrated.
        """
        fraction("confidence_level", confidence_level)
        if group is not None and group not in self.groups:
            raise InputError(f"group {group!r}: expected one of {', '.join(map(str, self.groups)) or 'none'}")
        sums = self._sums if group is None else self.groups[group]
        n = int(sums.count[0])
        decided, miss = None, None
        if self.threshold is not None:
            right = sums.mean(1, confidence_level)
            decided = float(sums.count[1] / n) if n else float("nan")
            miss = Estimate(1 - right.value, 1 - right.high, 1 - right.low, note=right.note)
        return UnlabelledEstimates(n, sums.mean(0, confidence_level), decided, miss)

    def priors(self, *, confidence_level: float = 0.95, seed: int = 0) -> PriorShift | None:
        """Estimate the class priors of the unlabelled data; None without samples, or if those of the fit are unknown.

        It rests on calibration, and on a shift of priors alone (label shift): that p(x | class) is as it was.
        """
        fraction("confidence_level", confidence_level)
        if self.class_prior is None or not len(self._sample):
            return None
        log_p = self._sample.log_p
        found = estimate_priors(
            np.exp(log_p),
            self.class_prior,
            n_reference=self.n_fitted,
            clusters=self._sample.cases,
            confidence_level=confidence_level,
            n_resamples=N_RESAMPLES,
            seed=seed,
        )
        return PriorShift.of(log_p, self.classes or tuple(range(log_p.shape[1])), found)

    def describe(self) -> list[str]:
        """Return the estimates as readable lines."""
        if not self.n_samples:
            return ["no samples yet"]
        lines = [f"{self._counted()} without labels: {_shown(self.estimates())}"]
        for name in sorted(self.groups, key=lambda n: (isinstance(n, str), n)):
            found = self.estimates(name)
            lines.append(f"group {name}, {found.n_samples} samples: {_shown(found)}")
        shift = self.priors()
        if shift is not None:
            lines.append(_shown_shift(shift))
        lines.append(f"NOTE: {CAVEAT}")
        return lines if self.test is None else [*self.test.describe(), *lines]

    def __add__(self, other: UnlabelledMonitor) -> UnlabelledMonitor:
        """Add what two monitors of the same map have seen."""
        if not isinstance(other, UnlabelledMonitor):
            return NotImplemented
        if self.test is not None or other.test is not None:
            raise InputError("monitors with a reference cannot be added: their test depends on the order of samples")
        same = ("input", "zeros_as", "classes", "threshold")
        maps = [m._monitor_fields() for m in (self, other)]
        if maps[0] != maps[1] or any(getattr(self, name) != getattr(other, name) for name in same):
            raise InputError("expected two monitors of the same map and threshold, got others; they cannot be added")
        again = self._seen_rows.repeated(other._seen_rows.hashes)
        if again is not None:
            raise InputError(
                f"both monitors have seen the same rows (samples {again[0]} to {again[1]} of the first); add each once"
            )
        new = copy.copy(self)
        new.n_classes = self.n_classes or other.n_classes
        new._seen_rows = self._seen_rows.merged(other._seen_rows, self.n_rows, mark_common=True)
        new._seen_clusters = self._seen_clusters.merged(other._seen_clusters, self.n_rows)
        new.n_rows, new.n_cases = self.n_rows + other.n_rows, self.n_cases + other.n_cases
        new.sources = (*self.sources, *other.sources)
        new._sums, new._sample = self._sums + other._sums, self._sample + other._sample
        none = ConfidenceSums.none()
        new.groups = {
            name: self.groups.get(name, none) + other.groups.get(name, none) for name in {**self.groups, **other.groups}
        }
        return new

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write map and state as JSON, atomically; `load` goes on from there."""
        test = {} if self.test is None else {"test": self.test._state_fields()}
        groups = [{"group": name, "sums": to_fields(sums)} for name, sums in self.groups.items()]
        fields = self._monitor_fields() | to_fields(self, (*self.monitored, *self.stored))
        write_document(path, self.document, fields | {"groups": groups} | test)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read what `save` wrote; everything is checked."""
        return cls._from_fields(read_document(path, cls.document))

    @classmethod
    def _from_fields(cls, content: Fields) -> Self:
        new = cls.__new__(cls)
        new._take_up_maps(content)
        vars(new).update(values_of(cls, content, (*cls.monitored, *cls.stored)))
        new.groups = {}
        for item in content.items("groups"):
            one = Fields(item if isinstance(item, dict) else {}, f"{content.where}: groups")
            new.groups[one.read("group", str | int)] = one.read("sums", ConfidenceSums)
        new.test = new._part(ExchangeabilityTest, content.fields("test")) if "test" in content else None
        if not new._is_consistent():
            raise contradiction(content, cls.document)
        return new

    def _is_consistent(self) -> bool:
        sums = (self._sums, *self.groups.values())
        return (
            self._map_is_consistent()
            and all(one.is_consistent() for one in sums)
            and self._sums.count[0] == self.n_rows
            and 0 <= self.n_cases <= self.n_rows
            and self._sample.is_consistent(self.n_classes)
            and (self.threshold is None or 0 <= self.threshold <= 1)
            and (self.factor is None or 1 <= self.factor <= MAX_FACTOR)
            and (self.class_prior is None or self._prior_is_consistent())
        )

    def _prior_is_consistent(self) -> bool:
        prior = np.asarray(self.class_prior)
        return (
            prior.shape == (self.n_classes,)
            and bool((prior >= 0).all())
            and abs(float(prior.sum()) - 1) < 1e-6
            and (self.n_fitted is None or self.n_fitted > 0)
        )

    def _table_columns(self) -> Columns:
        rows = [("all", self.estimates()), *((name, self.estimates(name)) for name in self.groups)]
        columns: dict[str, list[Any]] = {
            "group": [name for name, _ in rows],
            "n_samples": [found.n_samples for _, found in rows],
            "accuracy": [found.accuracy for _, found in rows],
        }
        if self.threshold is not None:
            columns |= {name: [getattr(found, name) for _, found in rows] for name in ("decided", "miss_rate")}
        return columns

    def _repr_html_(self) -> str:
        return as_list(self.describe())

    def _counted(self) -> str:
        return f"{self.n_rows} samples" + (f" of {self.n_cases} clusters" if self.n_cases < self.n_rows else "")

    def _take(self, batch: Batch, new: NDArray[np.bool_]) -> None:
        rows = np.flatnonzero(new)
        chunks = list(self._predictions(batch, new))
        if not len(rows):
            return
        if self.test is not None:
            self.test._take(batch, new)
        factor = self.factor or 1.0
        confidence = np.concatenate(
            [np.stack([top_confidence(c.log_p, f) for f in (1.0, factor, 1 / factor)], axis=1) for c in chunks]
        )
        hashes = hash_rows(batch.scores)[rows]
        cases = hashes if batch.clusters is None else hash_ids(batch.clusters)[rows]
        for chunk in chunks:
            own = np.isin(rows, chunk.rows)
            self._sample = self._sample + RowSample.of(hashes[own], cases[own], chunk.log_p)
        decided = confidence[:, 0] > (1.0 if self.threshold is None else self.threshold)
        code = None if batch.clusters is None else np.unique(cases, return_inverse=True)[1].ravel()
        self._sums = self._sums + ConfidenceSums.of(confidence, decided, code)
        self._add_groups(batch, rows, confidence, decided, code)
        self.n_rows += len(rows)
        self.n_cases += len(rows) if code is None else int(code.max()) + 1
        self.n_classes = batch.scores.n_classes

    def _add_groups(
        self, batch: Batch, rows: Labels, confidence: Floats, decided: NDArray[np.bool_], code: Labels | None
    ) -> None:
        if batch.groups is None:
            return
        names, of = np.unique(batch.groups[rows], return_inverse=True)
        for i, name in enumerate(names.tolist()):
            own = of.ravel() == i
            sums = ConfidenceSums.of(confidence[own], decided[own], None if code is None else code[own])
            self.groups[name] = self.groups.get(name, ConfidenceSums.none()) + sums


def _shown(found: UnlabelledEstimates) -> str:
    text = "estimated accuracy {:.1%} ({:.1%} to {:.1%})".format(*found.accuracy)
    if found.miss_rate is not None and found.decided:
        text += ", miss rate {:.2%} ({:.2%} to {:.2%}) of the".format(*found.miss_rate)
        text += f" {found.decided:.1%} above the threshold"
    return text


def _shown_shift(shift: PriorShift) -> str:
    if not shift.changed:
        return "class priors: no change is visible in the predictions"
    e = shift.estimate
    shown = ", ".join(
        f"{shift.classes[k]} {e.old[k]:.1%} → {e.priors[k]:.1%} ({e.low[k]:.1%} to {e.high[k]:.1%})"
        for k in shift.changed[:5]
    )
    more = "" if len(shift.changed) <= 5 else f" and {len(shift.changed) - 5} more"
    return (
        f"class priors, if nothing but they has changed: {shown}{more}; the accuracy would then be {shift.accuracy:.1%}"
    )
