"""What the sequential tests share: a deployed map, a wager that grows with the evidence, and an alarm that stays.

A subclass turns each labelled sample into sixteen log-ratios whose exponentials have, under its hypothesis and given
everything before, a mean of at most 1. The wealth is then a supermartingale, and Ville's inequality bounds the
probability that it ever reaches 1/alpha by alpha.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from numbers import Real
from typing import Any, ClassVar, Self

import numpy as np

from attemper.arrays import CHUNK_ELEMENTS, Floats, Labels, as_labels
from attemper.calibrators import Calibrator
from attemper.documents import Fields, read_document, write_document
from attemper.errors import FileError, InputError, NotFittedError, setting
from attemper.kernels.drift import WIDTH, Wager, advance, log_unspent
from attemper.maps import Map, ScaleMap, map_from_fields
from attemper.scores import Scores

__all__ = ["SequentialTest", "load_test"]

MOST_ROWS = 1 << 14  # of one chunk: of few classes there could be many, and each has sixteen ratios
MAX_SOURCES = 100_000  # files whose hashes a state remembers


class SequentialTest:
    """Base of the tests; use `DriftTest` or `ExchangeabilityTest`."""

    document: ClassVar[str]  # the kind of the saved state

    alpha: float
    map: Map
    input: str
    floor: float | None
    classes: Sequence[Any] | None
    n_classes: int | None
    alarm_at: int | None
    sources: tuple[str, ...]
    _impossible_at: int | None
    _log_sup: float
    _wager: Wager

    def __init__(self, deployed: Calibrator | Map | float, alpha: float) -> None:
        if not isinstance(alpha, Real) or not 0 < alpha < 1:
            raise InputError(f"{setting('alpha', alpha)}: expected a number between 0 and 1, such as 0.05")
        self.alpha = float(alpha)
        self.input = "logits"
        self.floor = self.classes = self.n_classes = None
        if isinstance(deployed, Calibrator):
            if not hasattr(deployed, "map_"):
                raise NotFittedError(f"This {type(deployed).__name__} is not fitted yet, so there is no map to watch")
            self.map, self.input, self.floor = deployed.map_, deployed.input, deployed.floor
            self.n_classes = int(deployed.n_features_in_)
            self.classes = None if deployed.classes is None else deployed.classes_.tolist()
        elif isinstance(deployed, Map):
            self.map = deployed
            self.n_classes = deployed.n_classes
        elif isinstance(deployed, Real) and not isinstance(deployed, bool) and 1e-30 <= deployed <= 1e30:
            self.map = ScaleMap(1 / float(deployed))
        else:
            raise InputError(f"{deployed!r}: expected a fitted calibrator, a map, or a positive temperature")
        self.alarm_at = self._impossible_at = None
        self.sources = ()
        self._log_sup = 0.0  # the wealth begins at 1
        self._wager = Wager.new()

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
        before = dict(self.__dict__)
        try:
            for log_p, part in self._predictions(scores):
                ratios, impossible = self._log_ratios(log_p, labels[part])
                self._advance(ratios, impossible)
            self.n_classes = scores.n_classes
        except BaseException:
            self.__dict__.clear()
            self.__dict__.update(before)
            raise
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

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write map and state as JSON, atomically; `load` goes on from there."""
        names = self.classes
        if names is not None and any(n != n or not isinstance(n, str | int | float) for n in names):
            raise InputError("classes: only text and numbers can be saved as class names")
        seen = self.n_samples > 0
        content = {
            "map": self.map.to_dict(),
            "input": self.input,
            "floor": self.floor,
            "classes": None if names is None else list(names),
            "n_classes": self.n_classes,
            "alpha": self.alpha,
            "n_samples": self.n_samples,
            "alarm_at": self.alarm_at,
            "impossible_at": self._impossible_at,
            "log_sup": self._log_sup,
            "log_stake": self._wager.log_stake.tolist() if seen else None,
            "log_best": self._wager.log_best.tolist() if seen else None,
            "start": self._wager.start.tolist(),
            "sources": list(self.sources[-MAX_SOURCES:]),
        }
        write_document(path, self.document, content | self._extra_to_dict())

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read what `save` wrote; everything is checked."""
        return cls._from_fields(read_document(path, cls.document), path)

    # What a test must say for itself.

    def _log_ratios(self, log_p: Floats, y: Labels) -> tuple[Floats, Labels]:
        """Return the log-ratios of each sample, and the rows whose label is impossible."""
        raise NotImplementedError

    def _extra_to_dict(self) -> dict[str, Any]:
        raise NotImplementedError

    @classmethod
    def _from_map(cls, found: Map, content: Fields) -> Self:
        """Make a fresh test with what `_extra_to_dict` gave."""
        raise NotImplementedError

    # What they share.

    @property
    def _log_won(self) -> float:
        stake = self._wager.log_stake
        return float(np.logaddexp.reduce(stake) - math.log(len(stake)))

    def _share_won(self) -> float:
        """Return the share of the wealth that comes from wagers on a change."""
        return math.exp(self._log_won - float(np.logaddexp(self._log_won, log_unspent(self.n_samples))))

    def _predictions(self, scores: Scores) -> Any:
        """Yield the map's log-probabilities chunk by chunk, with the rows they belong to."""
        rows = max(1, min(MOST_ROWS, CHUNK_ELEMENTS // scores.n_classes))
        for first in range(0, len(scores), rows):
            part = slice(first, min(first + rows, len(scores)))
            yield self.map.log_apply(scores.rows(part).astype(np.float64)), part

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
        if isinstance(X, Scores):
            if X.kind != self.input:
                raise InputError(f"these Scores hold {X.kind}, but the map takes {self.input}")
            if (X.labels is None) == (y is None):
                raise InputError("labels: pass them once, in the Scores or beside it")
            if X.weights is not None:
                raise InputError("sample_weight: a drift test takes every label once; leave the weights out")
            scores = X
        elif y is None:
            raise InputError("labels: a drift test needs them; pass one label per row")
        else:
            # Labels are looked at below: one that the map holds for impossible is no error here, but an alarm.
            scores = Scores.from_probs(X, floor=self.floor) if self.input == "probs" else Scores.from_logits(X)
        if self.n_classes not in (None, scores.n_classes):
            raise InputError(f"{scores.n_classes} columns, but the map is for {self.n_classes} classes")
        if y is None:
            assert scores.labels is not None
            return scores, scores.labels
        return scores, as_labels(y, len(scores), scores.n_classes, self.classes)

    @classmethod
    def _from_fields(cls, content: Fields, path: str | os.PathLike[str]) -> Self:
        try:
            new = cls._from_map(map_from_fields(content.fields("map")), content)
        except InputError as error:
            raise FileError(f"{path}: {error}") from None
        new._take_kind(content)
        new._take_state(content)
        return new

    def _take_kind(self, content: Fields) -> None:
        where, given = content.where, content.content
        self.input = content.text("input")
        self.floor = None if given.get("floor") is None else content.number("floor")
        if self.input not in ("logits", "probs") or (self.floor is not None and not 0 < self.floor < 1):
            raise FileError(f"{where}: input {self.input!r} with a floor of {self.floor}")
        n_classes = None if given.get("n_classes") is None else content.integer("n_classes")
        if n_classes is not None and not 2 <= n_classes <= 10**7:
            raise FileError(f"{where}: {n_classes} classes")
        if self.n_classes not in (None, n_classes):
            raise FileError(f"{where}: a map of {self.n_classes} classes for {n_classes}")
        self.n_classes = n_classes
        if given.get("classes") is not None:
            self.classes = content.items("classes")
            if len(self.classes) != n_classes or any(not isinstance(n, str | int | float) for n in self.classes):
                raise FileError(f"{where}: the field 'classes' must hold {n_classes} names")

    def _take_state(self, content: Fields) -> None:
        where, given = content.where, content.content
        t = content.integer("n_samples")
        at = {k: None if given.get(k) is None else content.integer(k) for k in ("alarm_at", "impossible_at")}
        self._log_sup = content.number("log_sup")
        start = content.array("start", (WIDTH,))
        sources = content.items("sources") if "sources" in given else []  # states of 0.1 have none
        if (
            t < 0
            or any(i is not None and not 1 <= i <= t for i in at.values())
            or self._log_sup < 0
            or not ((start >= 0) & (start <= t) & (start == np.floor(start))).all()
            or len(sources) > MAX_SOURCES
            or not all(isinstance(s, str) for s in sources)
        ):
            raise FileError(f"{where}: its numbers contradict each other; not the state of a drift test")
        self.alarm_at, self._impossible_at, self.sources = at["alarm_at"], at["impossible_at"], tuple(sources)
        if t > 0:
            stake, best = content.array("log_stake", (WIDTH,)), content.array("log_best", (WIDTH,))
            self._wager = Wager(t, stake, best, start.astype(np.int64))


def load_test(path: str | os.PathLike[str]) -> SequentialTest:
    """Read the state of any test that `save` wrote."""
    kinds = {cls.document: cls for cls in SequentialTest.__subclasses__()}
    content = read_document(path, *kinds)
    return kinds[content.text("attemper")]._from_fields(content, path)
