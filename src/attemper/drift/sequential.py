"""What the sequential tests share: a deployed map, a wager that grows with the evidence, and an alarm that stays.

A subclass turns each labelled sample into sixteen log-ratios whose exponentials have, under its hypothesis and given
everything before, a mean of at most 1. The wealth is then a supermartingale, and Ville's inequality bounds the
probability that it ever reaches 1/alpha by alpha.
"""

from __future__ import annotations

import copy
import math
import os
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from attemper._checks import fraction
from attemper._json import Fields, read_document, to_fields, values_of, write_document
from attemper._table import Columns, as_list
from attemper._typing import Floats, Labels
from attemper.calibrators import Calibrator
from attemper.drift.monitor import Batch, MapMonitor, Predicted, Repeats
from attemper.errors import FileError
from attemper.kernels.drift import WIDTH, Wager, advance, average_by_cluster, log_unspent
from attemper.maps import Map

__all__ = ["SequentialTest", "contradiction", "joined"]


class SequentialTest(MapMonitor):
    """Base of the tests; use `DriftTest` or `ExchangeabilityTest`."""

    stored: ClassVar[tuple[str, ...]] = ("alpha", "n_rows", "alarm_at", "_impossible_at", "_log_sup")

    labelled: bool = True  # whether batches have labels
    alpha: float
    alarm_at: int | None
    _impossible_at: int | None
    _log_sup: float
    _wager: Wager

    def __init__(self, deployed: Calibrator | Map | float, alpha: float) -> None:
        super().__init__(deployed)
        self.alpha = fraction("alpha", alpha, such_as="0.05")
        self._begin()

    def fresh(self, alpha: float) -> Self:
        """Return the same test with another alpha, before any sample."""
        new = copy.copy(self)
        new.alpha, new.n_rows = alpha, 0
        new._begin()
        return new

    def _begin(self) -> None:
        self.alarm_at = self._impossible_at = None
        self._log_sup = 0.0  # the wealth begins at 1
        self._wager = Wager.new()

    def __repr__(self) -> str:
        shown = {"n_samples": self.n_samples, "alarm": self.alarm, "p_value": float(f"{self.p_value:.3g}")}
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in shown.items())})"

    def update(
        self, X: Any, y: Any = None, *, groups: Any = None, clusters: Any = None, repeats: Repeats = "error"
    ) -> Self:
        """Take in labelled samples, in their order in time.

        Parameters
        ----------
        X : array of shape (n_samples, n_classes)
            What the map takes: logits, or probabilities for a calibrator with ``input="probs"``; or a `Scores`, whose
            groups and clusters count too.
        y : array of shape (n_samples,)
            Column numbers, or names if the calibrator knows them. There are no sample weights: a wager is on
            each label once.
        groups : array of shape (n_samples,), optional
            The group of each sample, for a map that was fitted with groups; ``"common"`` uses its common map. For a
            test of each group use `GroupedTest`.
        clusters : array of shape (n_samples,), optional
            Which samples are the same case (patient, lesion, document). A case counts once, whatever its samples have
            in common: see the class. Pass all samples of a case in one call; ``n_samples`` and ``alarm_at`` then count
            cases.
        repeats : "error", "skip" or "count"
            What to do with a batch whose rows were fed before, or with a cluster that was: raise an error, leave
            those rows out, or count them as new.
        """
        batch = self._read(X, y, groups, clusters, labels=self.labelled)
        self._check(batch)
        with self._unchanged_on_error():
            self._take(batch, self._new_rows(batch, repeats))
        return self

    @property
    def n_samples(self) -> int:
        """Samples seen; with clusters, cases."""
        return self._wager.t

    @property
    def alarm(self) -> bool:
        """Whether the wealth has ever reached 1/alpha."""
        return self.alarm_at is not None

    @property
    def log_e_value(self) -> float:
        """Logarithm of the wealth now: of the evidence against the hypothesis."""
        if self._impossible_at is not None:
            return math.inf
        return float(np.logaddexp(self._log_won, log_unspent(self.n_samples)))

    @property
    def e_value(self) -> float:
        """The wealth now. Under the hypothesis it is 1 on average, or less."""
        return math.inf if self.log_e_value > 709 else math.exp(self.log_e_value)

    @property
    def p_value(self) -> float:
        """The smallest alpha with which there would have been an alarm; valid at any time, however one stops."""
        return 0.0 if self._impossible_at is not None else math.exp(-self._log_sup)

    def describe(self) -> list[str]:
        """Return the verdict as readable lines."""
        raise NotImplementedError

    def _table_columns(self) -> Columns:
        names = ("n_samples", "alarm", "alarm_at", "p_value", "log_e_value", "alpha")
        return {name: [getattr(self, name)] for name in names}

    def _repr_html_(self) -> str:
        return as_list(self.describe())

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write map and state as JSON, atomically; `load` goes on from there."""
        fields = self._monitor_fields() | to_fields(self, self.monitored) | self._state_fields()
        write_document(path, self.document, fields)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read what `save` wrote; everything is checked."""
        return cls._from_fields(read_document(path, cls.document))

    # What each test has of its own.

    def _statistics(self, chunk: Predicted) -> tuple[Floats, Labels]:
        """Return numbers for each sample, which are averaged over a cluster; and the rows whose label is impossible."""
        raise NotImplementedError

    def _log_ratios(self, statistics: Floats) -> Floats:
        """Return the log-ratios of each sample or cluster."""
        raise NotImplementedError

    def _more_fields(self) -> dict[str, Any]:
        """Return what a file holds in addition to the attributes that are stored."""
        return {}

    def _is_consistent(self, content: Fields) -> bool:
        """Take up what `_more_fields` gave, and check that the numbers of a file fit together."""
        t, start = self.n_samples, self._wager.start
        return (
            all(1 <= i <= t for i in (self.alarm_at, self._impossible_at) if i is not None)
            and self._log_sup >= 0
            and bool(((start >= 0) & (start <= t)).all())
        )

    # What they share.

    @property
    def _log_won(self) -> float:
        stake = self._wager.log_stake
        return float(np.logaddexp.reduce(stake) - math.log(len(stake)))

    def _share_won(self) -> float:
        """Return the share of the wealth that comes from wagers on a change."""
        return math.exp(self._log_won - float(np.logaddexp(self._log_won, log_unspent(self.n_samples))))

    def _counted(self) -> str:
        """Return how many samples were seen, in words."""
        if self.n_rows == self.n_samples:
            return f"{self.n_samples} {'labels' if self.labelled else 'samples'}"
        return f"{self.n_samples} clusters ({self.n_rows} samples)"

    def _check(self, batch: Batch) -> None:
        """Refuse a batch that does not suit the test."""

    def _take(self, batch: Batch, new: NDArray[np.bool_]) -> None:
        """Stake on the new rows of a batch, chunk by chunk; with clusters on all of them at once."""
        found = []
        for chunk in self._predictions(batch, new):
            statistics, impossible = self._statistics(chunk)
            if batch.clusters is None:
                self._stake(statistics, impossible)
            else:
                found.append((statistics, impossible))
        if batch.clusters is not None:
            self._stake(*joined(found), batch.clusters[new])
        self.n_classes = batch.scores.n_classes

    def _stake(self, statistics: Floats, impossible: Labels, clusters: NDArray[Any] | None = None) -> None:
        """Stake on these samples, or on their clusters, and note whether the wealth has reached 1/alpha."""
        self.n_rows += len(statistics)
        if not len(statistics):
            return
        if clusters is not None:
            statistics, case = average_by_cluster(statistics, clusters)
            impossible = np.unique(case[impossible])
        start = self._wager.t
        if impossible.size and self._impossible_at is None:
            self._impossible_at = start + int(impossible[0]) + 1
        self._wager, wealth = advance(self._wager, self._log_ratios(statistics))
        if self.alarm_at is None:
            crossed = np.flatnonzero(wealth >= -math.log(self.alpha))
            reached = [start + int(crossed[0]) + 1] if crossed.size else []
            self.alarm_at = min(
                [*reached, *([] if self._impossible_at is None else [self._impossible_at])], default=None
            )
        self._log_sup = max(self._log_sup, float(wealth.max()))

    def _state_fields(self) -> dict[str, Any]:
        """Return everything but the map and what was fed."""
        wager = self._wager
        wagers = {"log_stake": wager.log_stake, "log_best": wager.log_best} if wager.t else {}
        return {
            **to_fields(self, self.stored),
            "n_samples": wager.t,
            **{name: values.tolist() for name, values in wagers.items()},
            "start": wager.start.tolist(),
            **self._more_fields(),
        }

    @classmethod
    def _from_fields(cls, content: Fields) -> Self:
        new = cls.__new__(cls)
        new._take_up_maps(content)
        vars(new).update(values_of(cls, content, cls.monitored))
        new._take_up_state(content)
        if not new._map_is_consistent():
            raise contradiction(content, cls.document)
        return new

    def _take_up_state(self, content: Fields) -> None:
        self._begin()
        vars(self).update(values_of(type(self), content, self.stored))
        t, start = content.integer("n_samples"), content.read("start", Labels)
        if t:
            stake, best = (content.array(name, (WIDTH,)) for name in ("log_stake", "log_best"))
            self._wager = Wager(t, stake, best, start)
        if t < 0 or start.shape != (WIDTH,) or not 0 < self.alpha < 1 or not self._is_consistent(content):
            raise contradiction(content, self.document)


def joined(found: list[tuple[Floats, Labels]]) -> tuple[Floats, Labels]:
    """Join the statistics of chunks, and the numbers of rows whose label is impossible."""
    first = np.cumsum([0, *(len(statistics) for statistics, _ in found)])
    return (
        np.concatenate([statistics for statistics, _ in found]),
        np.concatenate([rows + n for (_, rows), n in zip(found, first)]),
    )


def contradiction(content: Fields, document: str) -> FileError:
    """Return the error for a state whose numbers cannot be."""
    return FileError(f"{content.where}: its numbers contradict each other; not the state of a {document}")
