"""What the sequential tests share: a deployed map, a wager that grows with the evidence, and an alarm that stays.

A subclass turns each sample into sixteen log-ratios whose exponentials have, under its hypothesis and given
everything before, a mean of at most 1. The wealth is then a supermartingale, and Ville's inequality bounds the
probability that it ever reaches 1/alpha by alpha.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from numbers import Real
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from attemper._checks import fraction, same_classes
from attemper._json import Fields, read_document, to_fields, values_of, write_document
from attemper._table import Columns, Table, as_list
from attemper._typing import Floats, InputKind, Labels
from attemper.calibrators import Calibrator
from attemper.data.arrays import as_numbers
from attemper.data.binary import binary_names, is_one_column
from attemper.data.ids import as_ids
from attemper.data.labels import as_labels
from attemper.data.layout import check_independent
from attemper.data.scores import LabelledScores, Scores, labelled
from attemper.errors import InputError, NotFittedError, listed
from attemper.kernels.drift import WIDTH, Wager, advance, average_by_cluster, log_unspent
from attemper.maps import Map, ScaleMap, map_from_fields

__all__ = ["Batch", "SequentialTest"]

MOST_ROWS = 1 << 14  # of one chunk: of few classes there could be many, and each has sixteen ratios


class Batch(NamedTuple):
    """Rows to take in, with an id for each."""

    scores: Scores
    labels: Labels | None
    groups: NDArray[Any] | None
    clusters: NDArray[Any] | None


class SequentialTest(Table):
    """Base of the tests; use `DriftTest` or `ExchangeabilityTest`."""

    document: ClassVar[str]  # the kind of the saved state
    stored: ClassVar[tuple[str, ...]] = (
        *("input", "zeros_as", "classes", "n_classes", "n_rows", "sources", "reference"),
        *("alpha", "alarm_at", "_impossible_at", "_log_sup"),
    )

    map: Map
    group_maps: dict[str, Map]  # 7 and "7" are the same group
    input: InputKind
    zeros_as: float | None
    classes: tuple[str | int | float, ...] | None
    n_classes: int | None
    n_rows: int
    sources: tuple[str, ...] = ()  # sha256 of the files that were fed
    reference: tuple[str, ...] = ()  # sha256 of the reference files, where they are known
    labelled: bool = True  # whether batches have labels
    alpha: float
    alarm_at: int | None
    _impossible_at: int | None
    _log_sup: float
    _wager: Wager

    def __init__(self, deployed: Calibrator | Map | float, alpha: float) -> None:
        self.input = "logits"
        self.zeros_as = self.classes = self.n_classes = None
        self.group_maps = {}
        if isinstance(deployed, Calibrator):
            if not hasattr(deployed, "map_"):
                raise NotFittedError(f"This {type(deployed).__name__} is not fitted yet, so there is no map to watch")
            self.map, self.input, self.zeros_as = deployed.map_, deployed.input, deployed.zeros_as
            maps = getattr(deployed, "group_maps_", None) or {}
            self.group_maps = {str(name): one for name, one in maps.items()}
            self.n_classes = int(deployed.n_features_in_)
            self.classes = None if deployed.class_names is None else tuple(deployed.class_names)
        elif isinstance(deployed, Map):
            self.map = deployed
            self.n_classes = deployed.n_classes
        elif isinstance(deployed, Real) and not isinstance(deployed, bool) and 1e-30 <= deployed <= 1e30:
            self.map = ScaleMap(1 / float(deployed))
        else:
            raise InputError(f"{deployed!r}: expected a fitted calibrator, a map, or a positive temperature")
        self.alpha = fraction("alpha", alpha, such_as="0.05")
        self.n_rows = 0
        self.alarm_at = self._impossible_at = None
        self._log_sup = 0.0  # the wealth begins at 1
        self._wager = Wager.new()

    def __repr__(self) -> str:
        shown = {"n_samples": self.n_samples, "alarm": self.alarm, "p_value": float(f"{self.p_value:.3g}")}
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in shown.items())})"

    def update(self, X: Any, y: Any = None, *, groups: Any = None, clusters: Any = None) -> Self:
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
            The group of each sample, for a map that was fitted with groups; ``"common"`` uses its common map.
        clusters : array of shape (n_samples,), optional
            Which samples are the same case (patient, lesion, document). A case counts once, whatever its samples have
            in common: see the class. Pass all samples of a case in one call; ``n_samples`` and ``alarm_at`` then count
            cases.
        """
        batch = self._read(X, y, groups, clusters)
        self._check(batch)
        with self._unchanged_on_error():
            self._take(batch)
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

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write map and state as JSON, atomically; `load` goes on from there."""
        write_document(path, self.document, self._fields())

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read what `save` wrote."""
        return cls._from_fields(read_document(path, cls.document))

    # What each test has of its own.

    def _statistics(self, log_p: Floats, y: Labels | None) -> tuple[Floats, Labels]:
        """Return numbers for each sample, which are averaged over a cluster; and the rows whose label is impossible."""
        raise NotImplementedError

    def _log_ratios(self, statistics: Floats) -> Floats:
        """Return the log-ratios of each sample or cluster."""
        raise NotImplementedError

    def _check(self, batch: Batch) -> None:
        """Refuse a batch that does not suit the test."""

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

    def _table_columns(self) -> Columns:
        names = ("n_samples", "alarm", "alarm_at", "p_value", "log_e_value", "alpha")
        return {name: [getattr(self, name)] for name in names}

    def _repr_html_(self) -> str:
        return as_list(self.describe())

    @contextmanager
    def _unchanged_on_error(self) -> Iterator[None]:
        before = dict(self.__dict__)
        try:
            yield
        except BaseException:
            self.__dict__.clear()
            self.__dict__.update(before)
            raise

    def _read(self, X: Any, y: Any, groups: Any, clusters: Any) -> Batch:
        """Check a batch against what the map was made for."""
        if getattr(X, "ndim", 2) > 2 or isinstance(X, Scores):
            own = X if isinstance(X, Scores) else None
            check_independent("scores", X, own and own.image, soft=own is not None and own.repeated is not None)
        scores = X if isinstance(X, Scores) else self._scores(X)
        if scores.input != self.input:
            raise InputError(f"these Scores hold {scores.input}, but the map takes {self.input}")
        if scores.weights is not None:
            raise InputError("sample_weight: every sample counts once here; leave the weights out")
        same_classes(self.n_classes, scores.n_classes, of="the map", where="scores")
        found = self._labels(X, y, scores) if self.labelled else None
        n = len(scores)
        clusters = scores.cluster_ids if clusters is None else as_ids(clusters, n, "clusters")
        if isinstance(groups, str) and groups == "common":
            return Batch(scores, found, None, clusters)
        groups = scores.groups if groups is None else as_ids(groups, n, "groups")
        if groups is None and self.group_maps:
            raise InputError(
                f"groups: the map has one for each of {listed(map(str, self.group_maps))}, and these rows have no "
                'group. Use groups=… to name the group of each row, or groups="common" for the common map.',
                param="groups",
            )
        return Batch(scores, found, groups, clusters)

    def _scores(self, X: Any) -> Scores:
        # Labels are looked at later: one that the map holds for impossible is no error here, but an alarm.
        return Scores.from_probs(X, zeros_as=self.zeros_as) if self.input == "probs" else Scores.from_logits(X)

    def _labels(self, X: Any, y: Any, scores: Scores) -> Labels:
        if isinstance(X, Scores) and isinstance(X, LabelledScores) == (y is not None):
            raise InputError("labels: pass them once, in the Scores or as an argument")
        if not isinstance(X, Scores) and y is None:
            raise InputError("labels: a drift test needs them; pass one label per row")
        if y is None:
            return labelled(scores).labels
        one_column = not isinstance(X, Scores) and is_one_column(as_numbers(X, "logits"))
        names = binary_names(y, self.classes, scores.n_classes, one_column=one_column)
        found: Labels = as_labels(y, len(scores), scores.n_classes, names, one_column=one_column)
        return found

    def _chunks(self, batch: Batch) -> Iterator[tuple[Floats, Labels]]:
        """Yield the statistics of chunks of rows."""
        for part, h in batch.scores.chunks(most_rows=MOST_ROWS):
            alike = batch.groups is None or not self.group_maps
            log_p = self.map.log_apply(h) if alike else self._by_group(h, np.asarray(batch.groups)[part])
            yield self._statistics(log_p, None if batch.labels is None else batch.labels[part])

    def _by_group(self, h: Floats, groups: NDArray[Any]) -> Floats:
        """Predict each row by the map of its group, or by the common one where the group has none."""
        log_p = np.empty(h.shape)
        names, of = np.unique(groups, return_inverse=True)
        for i, name in enumerate(names.tolist()):
            rows = of.ravel() == i
            log_p[rows] = self.group_maps.get(str(name), self.map).log_apply(h[rows])
        return log_p

    def _take(self, batch: Batch) -> None:
        """Stake on a batch, chunk by chunk; with clusters on all of it at once."""
        if batch.clusters is None:
            for statistics, impossible in self._chunks(batch):
                self._stake(statistics, impossible)
        else:
            found = list(self._chunks(batch))
            first = np.cumsum([0, *(len(statistics) for statistics, _ in found)])
            self._stake(
                np.concatenate([statistics for statistics, _ in found]),
                np.concatenate([rows + n for (_, rows), n in zip(found, first)]),
                batch.clusters,
            )
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

    def _monitor_fields(self) -> dict[str, Any]:
        """Return the maps as files hold them."""
        groups = [{"group": name, "map": one.to_dict()} for name, one in self.group_maps.items()]
        return {"map": self.map.to_dict(), **({"group_maps": groups} if groups else {})}

    def _fields(self) -> dict[str, Any]:
        """Return what a file holds."""
        if any(n != n or not isinstance(n, str | int | float) for n in self.classes or ()):
            raise InputError("classes: only text and numbers can be saved as class names")
        wager = self._wager
        wagers = {"log_stake": wager.log_stake, "log_best": wager.log_best} if wager.t else {}
        return {
            **self._monitor_fields(),
            **to_fields(self, self.stored),
            "n_samples": wager.t,
            **{name: values.tolist() for name, values in wagers.items()},
            "start": wager.start.tolist(),
        }

    @classmethod
    def _from_fields(cls, content: Fields) -> Self:
        new = cls.__new__(cls)
        new.map, new.group_maps = map_from_fields(content.fields("map")), {}
        for item in content.items("group_maps") if "group_maps" in content else []:
            one = Fields(item if isinstance(item, dict) else {}, f"{content.where}: group_maps")
            new.group_maps[one.text("group")] = map_from_fields(one.fields("map"))
        vars(new).update(values_of(cls, content, cls.stored))
        t, start = content.integer("n_samples"), content.read("start", Labels)
        new._wager = Wager.new()
        if t:
            stake, best = (content.array(name, (WIDTH,)) for name in ("log_stake", "log_best"))
            new._wager = Wager(t, stake, best, start)
        return new
