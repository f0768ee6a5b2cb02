"""What the sequential tests share: a deployed map, a wager that grows with the evidence, and an alarm that stays.

A subclass turns each labelled sample into sixteen log-ratios whose exponentials have, under its hypothesis and given
everything before, a mean of at most 1. The wealth is then a supermartingale, and Ville's inequality bounds the
probability that it ever reaches 1/alpha by alpha.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from numbers import Real
from typing import Annotated, Any, ClassVar, Self

import numpy as np

from attemper._checks import fraction, same_classes
from attemper._json import Fields, Formerly, read_document, to_fields, values_of, write_document
from attemper._table import Columns, Table, as_list
from attemper._typing import Floats, InputKind, Labels
from attemper.calibrators import Calibrator
from attemper.data.arrays import as_numbers
from attemper.data.binary import binary_names, is_one_column
from attemper.data.labels import as_labels
from attemper.data.layout import check_independent
from attemper.data.scores import LabelledScores, Scores, labelled
from attemper.errors import FileError, InputError, NotFittedError
from attemper.kernels.drift import WIDTH, Wager, advance, log_unspent
from attemper.maps import Map, ScaleMap, map_from_fields

__all__ = ["SequentialTest", "load_test"]

MOST_ROWS = 1 << 14  # of one chunk: of few classes there could be many, and each has sixteen ratios
MAX_SOURCES = 100_000  # files whose hashes a state remembers


class SequentialTest(Table):
    """Base of the tests; use `DriftTest` or `ExchangeabilityTest`."""

    document: ClassVar[str]  # the kind of the saved state
    stored: ClassVar[tuple[str, ...]] = (
        *("input", "zeros_as", "classes", "n_classes", "alpha"),
        *("alarm_at", "_impossible_at", "_log_sup", "sources"),
    )

    alpha: float
    map: Map
    input: InputKind
    zeros_as: Annotated[float | None, Formerly("floor")]
    classes: tuple[str | int | float, ...] | None
    n_classes: int | None
    alarm_at: int | None
    sources: tuple[str, ...] = ()  # hashes of the files that were fed
    _impossible_at: int | None
    _log_sup: float
    _wager: Wager

    def __init__(self, deployed: Calibrator | Map | float, alpha: float) -> None:
        self.alpha = fraction("alpha", alpha, such_as="0.05")
        self.input = "logits"
        self.zeros_as = self.classes = self.n_classes = None
        if isinstance(deployed, Calibrator):
            if not hasattr(deployed, "map_"):
                raise NotFittedError(f"This {type(deployed).__name__} is not fitted yet, so there is no map to watch")
            self.map, self.input, self.zeros_as = deployed.map_, deployed.input, deployed.zeros_as
            self.n_classes = int(deployed.n_features_in_)
            self.classes = None if deployed.class_names is None else tuple(deployed.class_names)
        elif isinstance(deployed, Map):
            self.map = deployed
            self.n_classes = deployed.n_classes
        elif isinstance(deployed, Real) and not isinstance(deployed, bool) and 1e-30 <= deployed <= 1e30:
            self.map = ScaleMap(1 / float(deployed))
        else:
            raise InputError(f"{deployed!r}: expected a fitted calibrator, a map, or a positive temperature")
        self.alarm_at = self._impossible_at = None
        self._log_sup = 0.0  # the wealth begins at 1
        self._wager = Wager.new()

    def __repr__(self) -> str:
        shown = {"n_samples": self.n_samples, "alarm": self.alarm, "p_value": float(f"{self.p_value:.3g}")}
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in shown.items())})"

    def update(self, X: Any, y: Any = None) -> Self:
        """Take in labelled samples, in the order in which they came.

        Parameters
        ----------
        X : array of shape (n_samples, n_classes)
            What the map takes: logits, or probabilities for a calibrator with ``input="probs"``; or a `Scores`.
        y : array of shape (n_samples,)
            Column numbers, or names if the calibrator knows them. There are no sample weights: a wager is on
            each label once.
        """
        scores, labels = self._read(X, y)
        with self._unchanged_on_error():
            for log_p, part in self._predictions(scores):
                self._advance(*self._log_ratios(log_p, labels[part]))
            self.n_classes = scores.n_classes
        return self

    @property
    def n_samples(self) -> int:
        """Samples seen."""
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
        if any(n != n or not isinstance(n, str | int | float) for n in self.classes or ()):
            raise InputError("classes: only text and numbers can be saved as class names")
        wager = self._wager
        wagers = {"log_stake": wager.log_stake, "log_best": wager.log_best} if wager.t else {}
        content = {
            "map": self.map.to_dict(),
            **to_fields(self, self.stored),
            "n_samples": wager.t,
            **{name: values.tolist() for name, values in wagers.items()},
            "start": wager.start.tolist(),
            "sources": list(self.sources[-MAX_SOURCES:]),
        }
        write_document(path, self.document, content | self._more_fields())

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read what `save` wrote; everything is checked."""
        return cls._from_fields(read_document(path, cls.document))

    # What a test must say for itself.

    def _log_ratios(self, log_p: Floats, y: Labels) -> tuple[Floats, Labels]:
        """Return the log-ratios of each sample, and the rows whose label is impossible."""
        raise NotImplementedError

    def _more_fields(self) -> dict[str, Any]:
        """Return what a file holds beside the attributes that are stored."""
        return {}

    def _is_consistent(self, content: Fields) -> bool:
        """Take up what `_more_fields` gave, and tell whether the numbers of a file fit together."""
        t, k, start = self.n_samples, self.n_classes, self._wager.start
        return (
            all(1 <= i <= t for i in (self.alarm_at, self._impossible_at) if i is not None)
            and self._log_sup >= 0
            and bool(((start >= 0) & (start <= t)).all())
            and len(self.sources) <= MAX_SOURCES
            and (self.zeros_as is None or 0 < self.zeros_as < 1)
            and self.map.n_classes in (None, k)
            and (k is None or 2 <= k <= 10**7)
            and (self.classes is None or len(self.classes) == k)
        )

    # What they share.

    @property
    def _log_won(self) -> float:
        stake = self._wager.log_stake
        return float(np.logaddexp.reduce(stake) - math.log(len(stake)))

    def _share_won(self) -> float:
        """Return the share of the wealth that comes from wagers on a change."""
        return math.exp(self._log_won - float(np.logaddexp(self._log_won, log_unspent(self.n_samples))))

    @contextmanager
    def _unchanged_on_error(self) -> Iterator[None]:
        before = dict(self.__dict__)
        try:
            yield
        except BaseException:
            self.__dict__.clear()
            self.__dict__.update(before)
            raise

    def _predictions(self, scores: Scores) -> Iterator[tuple[Floats, slice]]:
        """Yield the map's log-probabilities chunk by chunk, with the rows they belong to."""
        for part, h in scores.chunks(most_rows=MOST_ROWS):
            yield self.map.log_apply(h), part

    def _advance(self, ratios: Floats, impossible: Labels) -> None:
        """Stake on these samples, and note whether the wealth has reached 1/alpha."""
        start = self._wager.t
        if impossible.size and self._impossible_at is None:
            self._impossible_at = start + int(impossible[0]) + 1
        self._wager, wealth = advance(self._wager, ratios)
        if self.alarm_at is None:
            crossed = np.flatnonzero(wealth >= -math.log(self.alpha))
            reached = [start + int(crossed[0]) + 1] if crossed.size else []
            self.alarm_at = min(
                [*reached, *([] if self._impossible_at is None else [self._impossible_at])], default=None
            )
        self._log_sup = max(self._log_sup, float(wealth.max()))

    def _read(self, X: Any, y: Any) -> tuple[Scores, Labels]:
        """Check a batch against what the map was made for."""
        if getattr(X, "ndim", 2) > 2 or isinstance(X, Scores):
            own = X if isinstance(X, Scores) else None
            check_independent("scores", X, own and own.clusters, soft=own is not None and own.repeated is not None)
        if isinstance(X, Scores):
            if X.input != self.input:
                raise InputError(f"these Scores hold {X.input}, but the map takes {self.input}")
            if isinstance(X, LabelledScores) == (y is not None):
                raise InputError("labels: pass them once, in the Scores or beside it")
            if X.weights is not None:
                raise InputError("sample_weight: a drift test takes every label once; leave the weights out")
            scores = X
        elif y is None:
            raise InputError("labels: a drift test needs them; pass one label per row")
        else:
            # Labels are looked at below: one that the map holds for impossible is no error here, but an alarm.
            scores = Scores.from_probs(X, zeros_as=self.zeros_as) if self.input == "probs" else Scores.from_logits(X)
        same_classes(self.n_classes, scores.n_classes, of="the map", where="scores")
        if y is None:
            return scores, labelled(scores).labels
        one_column = not isinstance(X, Scores) and is_one_column(as_numbers(X, "logits"))
        names = binary_names(y, self.classes, None, scores.n_classes, one_column=one_column)
        return scores, as_labels(y, len(scores), scores.n_classes, names, one_column=one_column)

    @classmethod
    def _from_fields(cls, content: Fields) -> Self:
        new = cls.__new__(cls)
        SequentialTest.__init__(new, map_from_fields(content.fields("map")), 0.05)
        vars(new).update(values_of(cls, content, cls.stored))
        t, start = content.integer("n_samples"), content.read("start", Labels)
        stake, best = (content.array(name, (WIDTH,)) for name in ("log_stake", "log_best")) if t else new._wager[1:3]
        new._wager = Wager(t, stake, best, start)
        if t < 0 or start.shape != (WIDTH,) or not 0 < new.alpha < 1 or not new._is_consistent(content):
            raise FileError(f"{content.where}: its numbers contradict each other; not the state of a {cls.document}")
        return new


def load_test(path: str | os.PathLike[str]) -> SequentialTest:
    """Read the state of any test that `save` wrote."""
    kinds = {cls.document: cls for cls in SequentialTest.__subclasses__()}
    content = read_document(path, *kinds)
    return kinds[content.text("attemper")]._from_fields(content)
