"""A sequential test that says when a deployed map no longer fits.

It may be looked at after every batch, for as long as one likes: the probability that it *ever* raises a false alarm is
at most ``alpha``. The proof is in docs/drift.md.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from numbers import Real
from typing import Any, NamedTuple, Self

import numpy as np

from attemper.arrays import CHUNK_ELEMENTS, Floats, as_labels
from attemper.calibrators import Calibrator
from attemper.documents import Fields, read_document, write_document
from attemper.errors import FileError, InputError, NotFittedError, setting
from attemper.kernels.drift import Wager, advance, best_factor, log_factors, log_ratios, log_unspent
from attemper.maps import Map, ScaleMap, map_from_fields
from attemper.scores import Scores

__all__ = ["Drift", "DriftTest"]

MOST_ROWS = 1 << 14  # of one chunk: of few classes there could be many, and each has sixteen ratios


class Drift(NamedTuple):
    """What the labels look like now, as `DriftTest` sees it; an estimate, without a guarantee."""

    factor: float  # by which the temperature of the map would have to be multiplied
    temperature: float | None  # what it would then be, where the map has one
    since: int | None  # samples that came before the change; None: there seems to be none


class DriftTest:
    """Watch a deployed map: labels come in, and an alarm is raised once they no longer fit what it says.

    The hypothesis is that each label, given all before it, is drawn from what the map says, up to a factor of the
    temperature between 1/tolerance and tolerance, which may change from sample to sample. The test grows a *wealth*
    that such labels cannot make large: the probability that it ever reaches 1/alpha is at most alpha.

    Parameters
    ----------
    deployed : Calibrator, Map or float
        A fitted calibrator; or a map or a temperature for logits.
    alpha : float
        Probability of a false alarm, over all time.
    tolerance : float
        Factors of the temperature up to this, and down to its inverse, are no drift. A temperature that was fitted on a
        few hundred labels is itself off by several percent, hence 1.1. 1 makes every deviation count, which is right
        where the temperature is known and finds drift sooner.

    Attributes
    ----------
    n_samples : int
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
    >>> test = DriftTest(2.0).update(logits, labels(2.0))
    >>> test.alarm
    False
    >>> test.update(logits, labels(3.0)).alarm
    True
    >>> test.alarm_at, test.drift().since
    (4638, 4095)
    >>> round(test.drift().temperature, 1)
    2.9
    """

    alpha: float
    tolerance: float
    map: Map
    input: str
    floor: float | None
    classes: Sequence[Any] | None
    n_classes: int | None
    alarm_at: int | None
    _impossible_at: int | None
    _log_sup: float
    _wager: Wager

    def __init__(self, deployed: Calibrator | Map | float, *, alpha: float = 0.05, tolerance: float = 1.1) -> None:
        if not isinstance(alpha, Real) or not 0 < alpha < 1:
            raise InputError(f"{setting('alpha', alpha)}: must lie between 0 and 1, such as 0.05")
        if not isinstance(tolerance, Real) or isinstance(tolerance, bool) or not 1 <= tolerance <= 10:
            raise InputError(
                f"{setting('tolerance', tolerance)}: a factor of the temperature, from 1 to 10, such as 1.1"
            )
        self.alpha = float(alpha)
        self.tolerance = float(tolerance)
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
        wager, alarm_at, impossible_at, log_sup = self._wager, self.alarm_at, self._impossible_at, self._log_sup
        rows = max(1, min(MOST_ROWS, CHUNK_ELEMENTS // scores.n_classes))
        for first in range(0, len(scores), rows):
            part = slice(first, min(first + rows, len(scores)))
            log_p = self.map.log_apply(scores.rows(part).astype(np.float64))
            ratios, impossible = _ratios(log_p, labels[part], self.tolerance)
            if impossible.size and impossible_at is None:
                impossible_at = wager.t + int(impossible[0]) + 1
            start = wager.t
            wager, wealth = advance(wager, ratios)
            crossed = np.flatnonzero(wealth >= -math.log(self.alpha))
            reached = [start + int(crossed[0]) + 1] if crossed.size else []
            if alarm_at is None:
                alarm_at = min([*reached, *([] if impossible_at is None else [impossible_at])], default=None)
            log_sup = max(log_sup, float(wealth.max()))
        self._wager, self.alarm_at, self._impossible_at, self._log_sup = wager, alarm_at, impossible_at, log_sup
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
        """Logarithm of the wealth now: of the evidence that the map does not fit."""
        if self._impossible_at is not None:
            return math.inf
        stake = np.logaddexp.reduce(self._wager.log_stake) - math.log(len(self._wager.log_stake))
        return float(np.logaddexp(stake, log_unspent(self.n_samples)))

    @property
    def e_value(self) -> float:
        """The wealth now. Labels that fit make it 1 on average, or less."""
        return _exp(self.log_e_value)

    @property
    def p_value(self) -> float:
        """The smallest alpha with which there would have been an alarm; valid at any time, however one stops."""
        return 0.0 if self._impossible_at is not None else math.exp(-self._log_sup)

    def drift(self) -> Drift:
        """Estimate by what factor the temperature is off now, and since when.

        The factor that the labels bear out best, as far as they speak for a change at all, and the beginning that goes
        with it.
        """
        stake = self._wager.log_stake
        won, kept = np.logaddexp.reduce(stake) - math.log(len(stake)), float(log_unspent(self.n_samples))
        share = math.exp(won - np.logaddexp(won, kept))  # of the wealth that comes from wagers on a change
        factor = math.exp(share * best_factor(self._wager, self.tolerance))
        temperature = factor / self.map.beta if isinstance(self.map, ScaleMap) else None
        since = int(self._wager.start[stake.argmax()]) if share > 0.5 else None
        return Drift(factor, temperature, since)

    def describe(self) -> list[str]:
        """Return the verdict in words."""
        factor, temperature, since = self.drift()
        if not self.alarm:
            return [
                f"no alarm: {self.n_samples} labels are not enough evidence against the map (p = {self.p_value:.3g}; "
                f"alarm at {self.alpha:g})"
            ]
        lines = [
            f"ALARM at sample {self.alarm_at} of {self.n_samples}: the map no longer fits (p = {self.p_value:.3g})"
        ]
        if self._impossible_at is not None:
            lines.append(
                f"sample {self._impossible_at} has a label to which the map gives a probability of exactly 0, so no "
                "temperature explains it"
            )
        if since is not None:
            way = "over-confident: T should be higher" if factor > 1 else "too timid: T should be lower"
            now = "" if temperature is None else f", T = {temperature:.3g}"
            lines.append(
                f"since about sample {since + 1} the network has been {way} by a factor of about {factor:.2f}{now}"
            )
        return [*lines, "fit the map again on recent labels, and watch the new one with a new test"]

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
            "tolerance": self.tolerance,
            "n_samples": self.n_samples,
            "alarm_at": self.alarm_at,
            "impossible_at": self._impossible_at,
            "log_sup": self._log_sup,
            "log_factors": log_factors(self.tolerance).tolist(),
            "log_stake": self._wager.log_stake.tolist() if seen else None,
            "log_best": self._wager.log_best.tolist() if seen else None,
            "start": self._wager.start.tolist(),
        }
        write_document(path, "drift test", content)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read what `save` wrote; everything is checked."""
        content = read_document(path, "drift test")
        try:
            new = cls(
                map_from_fields(content.fields("map")),
                alpha=content.number("alpha"),
                tolerance=content.number("tolerance"),
            )
        except InputError as error:
            raise FileError(f"{path}: {error}") from None
        new._take_kind(content)
        new._take_state(content)
        return new

    def _take_kind(self, content: Fields) -> None:
        where, told = content.where, content.content
        self.input = content.text("input")
        self.floor = None if told.get("floor") is None else content.number("floor")
        if self.input not in ("logits", "probs") or (self.floor is not None and not 0 < self.floor < 1):
            raise FileError(f"{where}: input {self.input!r} with a floor of {self.floor}")
        n_classes = None if told.get("n_classes") is None else content.integer("n_classes")
        if n_classes is not None and not 2 <= n_classes <= 10**7:
            raise FileError(f"{where}: {n_classes} classes")
        if self.n_classes not in (None, n_classes):
            raise FileError(f"{where}: a map of {self.n_classes} classes for {n_classes}")
        self.n_classes = n_classes
        if told.get("classes") is not None:
            self.classes = content.items("classes")
            if len(self.classes) != n_classes or any(not isinstance(n, str | int | float) for n in self.classes):
                raise FileError(f"{where}: the field 'classes' must hold {n_classes} names")

    def _take_state(self, content: Fields) -> None:
        where, told, width = content.where, content.content, len(log_factors(self.tolerance))
        t = content.integer("n_samples")
        at = {k: None if told.get(k) is None else content.integer(k) for k in ("alarm_at", "impossible_at")}
        self._log_sup = content.number("log_sup")
        start = content.array("start", (width,))
        if (
            t < 0
            or any(i is not None and not 1 <= i <= t for i in at.values())
            or self._log_sup < 0
            or not ((start >= 0) & (start <= t) & (start == np.floor(start))).all()
        ):
            raise FileError(f"{where}: its numbers contradict each other; not the state of a drift test")
        if not np.allclose(content.array("log_factors", (width,)), log_factors(self.tolerance), rtol=1e-12):
            raise FileError(
                f"{where}: written by another version of attemper, which wagers on other factors; begin anew"
            )
        self.alarm_at, self._impossible_at = at["alarm_at"], at["impossible_at"]
        if t > 0:
            stake, best = content.array("log_stake", (width,)), content.array("log_best", (width,))
            self._wager = Wager(t, stake, best, start.astype(np.int64))

    def _read(self, X: Any, y: Any) -> tuple[Scores, Any]:
        """Check a batch against what the map was made for."""
        if isinstance(X, Scores):
            if X.kind != self.input:
                raise InputError(f"these Scores hold {X.kind}, but the map takes {self.input}")
            if (X.labels is None) == (y is None):
                raise InputError("labels: give them once, in the Scores or beside it")
            if X.weights is not None:
                raise InputError("sample_weight: a drift test takes every label once; leave the weights out")
            scores = X
        elif y is None:
            raise InputError("labels: a drift test needs them; give one label per row")
        else:
            # Labels are looked at below: one that the map holds for impossible is no error here, but an alarm.
            scores = Scores.from_probs(X, floor=self.floor) if self.input == "probs" else Scores.from_logits(X)
        if self.n_classes not in (None, scores.n_classes):
            raise InputError(f"{scores.n_classes} columns, but the map is for {self.n_classes} classes")
        if y is None:
            return scores, scores.labels
        return scores, as_labels(y, len(scores), scores.n_classes, self.classes)


def _ratios(log_p: Floats, y: Any, tolerance: float) -> tuple[Floats, Any]:
    """Log-ratios of each sample, none where the label is impossible; and which those are."""
    impossible = np.flatnonzero(np.isneginf(log_p[np.arange(len(y)), y]))
    if not impossible.size:
        return log_ratios(log_p, y, tolerance), impossible
    y = y.copy()
    y[impossible] = log_p[impossible].argmax(axis=1)
    ratios = log_ratios(log_p, y, tolerance)
    ratios[impossible] = 0.0
    return ratios, impossible


def _exp(x: float) -> float:
    return math.inf if x > 709 else math.exp(x)
