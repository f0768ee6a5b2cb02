"""Sketch: everything the temperature family needs to know about a data set, in one small table.

Every loss of the family is a sum over samples of a function of one number, β = 1/T.
One pass over the data evaluates those sums at 64 Chebyshev nodes in log T; the sums
are then known at every T. Two sketches add, in any order: parts of a data set, files,
machines, hospitals that may not share their patients.

The nodes cover the temperatures that suit the scale of the logits. Sketches of other ranges add too: on the
temperatures that they have in common or, where these are few, on all of them. There each is continued beyond its own
range, with its limits as T → 0 and T → ∞, and the error that this may leave is part of every certificate.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial, reduce
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.interpolate import barycentric_interpolate

from attemper._checks import whole
from attemper._json import Fields, read_document, write_document
from attemper._typing import Floats
from attemper.data.arrays import one_line
from attemper.data.plausibility import warn_of_sketched_chance
from attemper.data.scale import DEFAULT_T_RANGE, logit_scale, nearest_unit
from attemper.data.scores import LabelledScores, Scores
from attemper.errors import FileError, InputError
from attemper.kernels import chebyshev
from attemper.kernels.blas import one_blas_thread
from attemper.kernels.noisy import SOFTENING
from attemper.kernels.table import Node

__all__ = [
    "DEFAULT_THETAS",
    "DEFAULT_T_RANGE",
    "LOG_ODDS",
    "MIN_SAMPLES",
    "TERMS",
    "Focused",
    "Part",
    "Sketch",
    "Term",
    "check_thetas",
    "enough_nodes",
    "focused",
    "log_range",
]

DEFAULT_THETAS: Floats = np.arange(1, 101) / 1000.0
MAX_NODES, MAX_THETAS = 1024, 10_001
FEW_SAMPLES = 2048  # that show which temperatures matter
MAX_TAIL = 1e-2  # nats that the nodes of a focused sketch may leave open
SINGLE = 1e-8  # share of a sum that single precision may leave open: rounding errors average out over many logits
SUMS = (
    "n_samples",
    "weight",
    "correct",
    "confidence",
    "nll",
    "rounding",
    "log_unit",
)  # what adds up, beside the tables
MIN_SAMPLES = 100  # a sketch of fewer, sent away, comes close to telling about single samples

# Odds ε/(1 − ε) of a label being noise, at Chebyshev nodes in their logarithm: ε from 1e-5 to 0.98.
LOG_ODDS = chebyshev.Interval(float(np.log(1e-5 / (1 - 1e-5))), float(np.log(0.98 / 0.02)))
ODDS: Floats = np.exp(chebyshev.nodes(40, LOG_ODDS))


class Term(NamedTuple):
    """A table of a sketch: nodes × columns."""

    name: str
    width: Callable[[Floats], int]  # columns, for a θ grid
    kernel: Callable[[Node], Any]  # the columns at one node, on NumPy and on a GPU


# A new table is a line here.
TERMS = (
    Term("attended", len, lambda node: node.attended()),  # the paper's terms of Eq. (8), by θ-bin
    Term("reference", len, lambda node: node.attended(reference=True)),  # those of the authors' code
    Term("uniform", lambda _: len(ODDS), lambda node: node.noisy(node.log_uniform)),  # Σ log(S_y + r/K)
    Term("similar", lambda _: len(ODDS), lambda node: node.noisy(node.log_label(SOFTENING))),  # Σ log(S_y + r S_y(3T))
)
Part = str
"""Name of a table of a sketch."""
ALL_PARTS: tuple[Part, ...] = tuple(term.name for term in TERMS)


@dataclass(frozen=True, eq=False, repr=False)
class Sketch:
    """The sums of the temperature family over a data set, at Chebyshev nodes in log T.

    Make one with `Sketch.of`, add them with ``+``, store them with `save`.

    Examples
    --------
    >>> a = Sketch.of([[2.0, 1.0], [0.0, 3.0]], [0, 0])
    >>> b = Sketch.of([[1.0, 4.0]], [1])
    >>> (a + b).n_samples
    3
    """

    __repr__ = one_line

    n_samples: int  # seen; their weight is in the sums
    n_classes: int
    weight: float  # sum of the sample weights
    correct: float  # weight of the samples whose label has the largest logit
    confidence: float  # sum of the largest probabilities at T = unit
    t_range: tuple[float, float]
    thetas: Floats  # the θ grid, ascending
    nll: Floats  # (nodes,)
    tables: dict[str, Floats]  # those of `TERMS` that were asked for, by name
    rounding: float = 0.0  # by how much sums may be off that were made in single precision, on a GPU
    log_unit: float = 0.0  # weighted sum of the logarithms of each part's unit
    ends: dict[str, Floats] | None = None  # of each table, "nll" included: T · sum as T → 0, and the sum as T → ∞
    by_range: tuple[Sketch, ...] = ()  # the sums of each range, where this is the sum of sketches of different ones

    @classmethod
    def of(
        cls,
        logits: ArrayLike | Any,
        labels: ArrayLike | Any | None = None,
        *,
        sample_weight: ArrayLike | None = None,
        classes: Sequence[Any] | None = None,
        axis: int | None = None,
        ignore_index: int | None = None,
        t_range: tuple[float, float] | None = None,
        n_nodes: int = 64,
        thetas: ArrayLike | None = None,
        parts: Sequence[Part] = ALL_PARTS,
        unit: float | None = None,
        addable: bool = True,
    ) -> Sketch:
        """Sketch one data set in one pass.

        Parameters
        ----------
        logits, labels : arrays, or a `Scores` in place of both
        sample_weight, classes, axis, ignore_index : as in `Scores.from_logits`
        t_range : the temperatures that the sketch covers; by default (0.05, 20), or a range that suits the scale of the
            logits (`attemper.data.scale`)
        n_nodes : 64 give log T to 1e-7 or better on every real network tried
        thetas : the θ grid for attended temperature scaling; 0.001, 0.002, … 0.1 by default
        parts : which sums to keep; leave some out to save time and space
        unit : the T that counts as 1; by default the one of the scale of the logits: 1 unless that is unusual
        addable : whether sketches of other ranges may be added to it, which takes a little longer
        """
        if isinstance(logits, Scores):
            if any(more is not None for more in (labels, sample_weight, classes, axis, ignore_index)):
                raise InputError("a Scores has its own labels, weights and classes; pass no others")
            scores = logits
        else:
            scores = Scores.from_logits(
                logits, labels, sample_weight=sample_weight, classes=classes, axis=axis, ignore_index=ignore_index
            )
        if not isinstance(scores, LabelledScores):
            raise InputError("labels: a sketch needs them; pass one label per row of logits")
        if t_range is None or unit is None:
            scale = logit_scale(scores)
            t_range, unit = scale.t_range if t_range is None else t_range, scale.unit if unit is None else unit
        interval = log_range(t_range)
        whole("n_nodes", n_nodes, at_least=8, at_most=MAX_NODES)
        grid = check_thetas(DEFAULT_THETAS if thetas is None else thetas)
        unknown = set(parts) - set(ALL_PARTS)
        if unknown:
            raise InputError(f"parts: expected some of {list(ALL_PARTS)}, got {sorted(unknown)}")
        terms = [term for term in TERMS if term.name in parts]
        backend, largest = scores.backend, scores.bound or 1.0
        betas = np.exp(-chebyshev.nodes(n_nodes, interval))
        limits = np.array([1e20 / largest, max(1e-9 / largest, 1e-31)])  # as T → 0 and as T → ∞
        columns = np.cumsum([2, 1, *(term.width(grid) for term in terms)])
        names, kernels = ["nll", *(term.name for term in terms)], [term.kernel for term in terms]

        def by_name(total: Floats) -> dict[str, Floats]:
            named = {name: total[:, a:b] for name, a, b in zip(names, columns, columns[1:])}
            return named | {"nll": total[:, 2]}

        with one_blas_thread():  # beside our own
            total = backend.table(betas, grid, ODDS, unit, kernels)
            ends = None
            if addable:  # in double precision, whose range is wide enough
                ends = by_name(backend.exactly().table(limits, grid, ODDS, unit, kernels))
                for end in ends.values():
                    end[0] /= limits[0]
        tables = by_name(total)
        nll = tables.pop("nll")
        return cls(
            n_samples=scores.n_samples,
            n_classes=scores.n_classes,
            weight=scores.total_weight,
            correct=float(total[0, 0]),
            confidence=float(total[0, 1]),
            t_range=(float(t_range[0]), float(t_range[1])),
            thetas=grid,
            nll=nll,
            tables=tables,
            rounding=0.0 if backend.exact else SINGLE * float(np.abs(nll).max()),
            log_unit=scores.total_weight * float(np.log(unit)),
            ends=ends,
        )

    @property
    def interval(self) -> chebyshev.Interval:
        """The range of log T."""
        return log_range(self.t_range)

    @property
    def unit(self) -> float:
        """The T that counts as 1: a power of 1000, or 35 times one; 1 unless the logits are on an unusual scale."""
        return 1.0 if self.log_unit == 0 else nearest_unit(self.log_unit / self.weight)

    @property
    def perfect(self) -> bool:
        """Whether every label has the largest logit of its row."""
        return self.correct >= self.weight * (1 - 1e-12)

    @property
    def flat(self) -> bool:
        """Whether the logits of every row are equal, so that T has no effect."""
        return self.confidence <= self.weight / self.n_classes * (1 + 1e-12)

    def mean_nll(self, temperature: float, uniform_mass: float = 0.0) -> float:
        """Mean NLL of the data at one temperature within the range, mixed with this share of a uniform guess."""
        c = chebyshev.coefficients(-self.log_likelihood(uniform_mass)[:, None])
        return float(chebyshev.evaluate(c, self.interval, [np.log(temperature)])[0, 0]) / self.weight

    def log_t_std(self, temperature: float) -> float:
        """Return the standard deviation of log T that the samples leave: 1 / √(Σ Var_S[h / T]).

        The Fisher information of u = log T follows from the table: NLL″(u) + NLL′(u).
        """
        c, scale = chebyshev.coefficients(self.nll[:, None]), 2 / self.interval.length
        first = np.polynomial.chebyshev.chebder(c, axis=0) * scale
        second = np.polynomial.chebyshev.chebder(first, axis=0) * scale
        at = np.log(temperature)
        slope, bend = (float(chebyshev.evaluate(np.asarray(d), self.interval, [at])[0, 0]) for d in (first, second))
        return float(1 / np.sqrt(max(slope + bend, 1e-12)))

    def _obstacle(self, other: Sketch) -> str:
        """Return why two sketches cannot be added; empty if they can."""
        if self.n_classes != other.n_classes:
            return f"{self.n_classes} and {other.n_classes} classes"
        counts = [len(sketch._ranges[0].nll) for sketch in (self, other)]
        if counts[0] != counts[1]:
            return f"{counts[0]} and {counts[1]} nodes"
        if not np.array_equal(self.thetas, other.thetas):
            return "different θ grids"
        only = set(self.tables) ^ set(other.tables)
        if only:
            return f"only one of them has the {min(only)!r} part"
        every = (*self._ranges, *other._ranges)
        limits = all(sketch.ends is not None for sketch in every)
        return "" if limits or _common_range(every)[1] else f"temperature ranges {self.t_range} and {other.t_range}"

    def check_addable(self, other: Sketch) -> None:
        """Refuse a sketch that cannot be added to this one."""
        obstacle = self._obstacle(other)
        if obstacle:
            raise InputError(
                f"these sketches cannot be added: {obstacle}. Make both with the same settings "
                f"(t_range, n_nodes, thetas, parts).",
                param="t_range",
            )

    def __add__(self, other: Sketch) -> Sketch:
        """Sketch of both data sets together."""
        if not isinstance(other, Sketch):
            return NotImplemented
        self.check_addable(other)
        found: dict[tuple[float, float], Sketch] = {}
        for part in (*self._ranges, *other._ranges):
            before = found.get(part.t_range)
            found[part.t_range] = part if before is None else before._plus(part)
        if len(found) == 1:
            return found.popitem()[1]
        parts = tuple(found[t_range] for t_range in sorted(found))
        t_range, within = _common_range(parts)
        n_nodes = len(parts[0].nll)
        if not within:  # as close to each other as those of the parts
            density = n_nodes / min(part.interval.length for part in parts)
            n_nodes = min(int(np.ceil(density * log_range(t_range).length)), MAX_NODES)
        return replace(reduce(Sketch._plus, (part._over(t_range, n_nodes) for part in parts)), by_range=parts)

    @property
    def _ranges(self) -> tuple[Sketch, ...]:
        return self.by_range or (self,)

    def _plus(self, other: Sketch) -> Sketch:
        """Add a sketch of the same nodes."""
        sums = {name: getattr(self, name) + getattr(other, name) for name in SUMS}
        ends = None
        if self.ends is not None and other.ends is not None:
            ends = {name: end + other.ends[name] for name, end in self.ends.items()}
        tables = {name: table + other.tables[name] for name, table in self.tables.items()}
        return replace(self, tables=tables, ends=ends, **sums)

    def _over(self, t_range: tuple[float, float], n_nodes: int) -> Sketch:
        """Bring it to other nodes."""
        u = chebyshev.nodes(n_nodes, log_range(t_range))
        beyond = (u < self.interval.low) | (u > self.interval.high)

        def at_nodes(name: str, table: Floats, degree: int) -> Floats:
            values = chebyshev.basis(len(table), self.interval, u) @ table
            if beyond.any():
                assert self.ends is not None  # checked before sketches are added
                continued = _continued(table, self.interval, self.ends[name], np.exp(u), degree)
                values[beyond] = continued[beyond]
            return np.asarray(values)

        nll, rougher = (at_nodes("nll", self.nll, degree) for degree in (6, 4))
        tables = {name: at_nodes(name, table, 6) for name, table in self.tables.items()}
        # Certificates take an error for one that changes from node to node. This one is as smooth as the sums are.
        error = float(np.abs(nll - rougher).max()) * log_range(t_range).length / n_nodes
        return replace(self, t_range=t_range, nll=nll, tables=tables, rounding=self.rounding + error, by_range=())

    def over(self, other: Sketch) -> Sketch:
        """Bring it to the nodes of another sketch, such as a sum of which it is a part."""
        if self.t_range == other.t_range and len(self.nll) == len(other.nll):
            return self
        parts = (part._over(other.t_range, len(other.nll)) for part in self._ranges)
        return reduce(Sketch._plus, parts)

    def log_likelihood(self, rate: float = 0.0, similar: bool = False) -> Floats:
        """Log-likelihood of the labels at each node, if a share ``rate`` of them is wrong.

        Wrong ones fall anywhere, or among ``similar`` classes.
        """
        table = self.tables.get("similar" if similar else "uniform")
        if rate == 0 or table is None:
            return -self.nll
        odds = np.clip(np.log(rate / (1 - rate)), *LOG_ODDS)
        values = chebyshev.basis(len(ODDS), LOG_ODDS, [odds])[0] @ table.T
        return np.asarray(values + self.weight * np.log1p(-rate))

    def only(self, parts: Sequence[Part]) -> Sketch:
        """Leave out all other parts."""
        return replace(
            self,
            tables={name: table for name, table in self.tables.items() if name in parts},
            ends=None if self.ends is None else {k: end for k, end in self.ends.items() if k in ("nll", *parts)},
            by_range=tuple(part.only(parts) for part in self.by_range),
        )

    def to_dict(self) -> dict[str, Any]:
        """Return plain lists and numbers."""
        later = ("tables", "rounding", "log_unit", "ends", "by_range")
        content = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in later}
        content |= {**self.tables, "rounding": self.rounding, "log_unit": self.log_unit}
        if self.ends is not None:
            content["ends"] = {name: end.tolist() for name, end in self.ends.items()}
        if self.by_range:
            content["by_range"] = [part.to_dict() for part in self.by_range]
        return {k: value.tolist() if isinstance(value, np.ndarray) else value for k, value in content.items()}

    @classmethod
    def from_fields(cls, content: Fields) -> Sketch:
        """Read back what `to_dict` gave; everything is checked."""
        if "by_range" in content:
            given = content.items("by_range")
            if not given or any(not isinstance(part, dict) or "by_range" in part for part in given):
                raise FileError(f"{content.where}: by_range: expected sketches, each of one range")
            parts = [cls.from_fields(Fields(part, f"{content.where}: by_range {i}")) for i, part in enumerate(given)]
            return reduce(Sketch.__add__, parts)
        t_range = content.array("t_range", (2,))
        thetas = check_thetas(content.array("thetas", (-1,)))
        nll = content.array("nll", (-1,))
        m = len(nll)
        names = {t.name: t.width(thetas) for t in TERMS if t.name in content}
        ends = None
        if "ends" in content:
            limits = content.fields("ends")
            ends = {"nll": limits.array("nll", (2,))} | {k: limits.array(k, (2, n)) for k, n in names.items()}
        sketch = cls(
            n_samples=content.integer("n_samples"),
            n_classes=content.integer("n_classes"),
            weight=content.number("weight"),
            correct=content.number("correct"),
            confidence=content.number("confidence"),
            t_range=(float(t_range[0]), float(t_range[1])),
            thetas=thetas,
            nll=nll,
            tables={name: content.array(name, (m, width)) for name, width in names.items()},
            rounding=content.number("rounding") if "rounding" in content else 0.0,
            log_unit=content.number("log_unit") if "log_unit" in content else 0.0,
            ends=ends,
        )
        log_range(sketch.t_range)
        if m < 8 or sketch.n_samples < 1 or sketch.n_classes < 2 or not sketch.weight > 0:
            raise FileError(f"{content.where}: not a sketch of samples: {sketch!r}")
        return sketch

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the sketch as JSON, atomically."""
        write_document(path, "sketch", self.to_dict())

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Sketch:
        """Read a sketch that `save` wrote; accuracy at chance level is a warning, as far as a sketch shows it."""
        try:
            sketch = cls.from_fields(read_document(path, "sketch"))
        except InputError as error:
            raise FileError(f"{path}: {error}") from None
        warn_of_sketched_chance(str(path), sketch.correct / sketch.weight, sketch.n_classes, sketch.n_samples)
        return sketch


class Focused(NamedTuple):
    """What `focused` made."""

    sketch: Sketch  # of all samples, over the temperatures that matter
    sample: Sketch  # of some of them, over the whole range


def focused(
    scores: LabelledScores,
    window: Callable[[Sketch], tuple[float, float]],
    *,
    t_range: tuple[float, float] | None = None,
    parts: Sequence[Part] = ALL_PARTS,
) -> Focused:
    """Sketch many samples over those temperatures alone that matter, where a few nodes are as exact as 64.

    Parameters
    ----------
    window : function
        Temperatures between which all that matters of a sketch lies, such as where a posterior is not zero. It is
        called with sketches of more and more samples. If what matters for all samples is not inside of what matters for
        some of them, the sketch is of the whole range.
    """
    few = scores.sample(FEW_SAMPLES)
    sketch_of = partial(Sketch.of, parts=parts, addable=False)
    if few.total_weight == 0:
        few = scores
    sample = sketch_of(few, t_range=t_range, n_nodes=64 if few is scores else 40)
    if few is scores:
        return Focused(sample, sample)
    sketch_of = partial(sketch_of, unit=sample.unit)
    low, high = sample.t_range
    near = window(sample)
    for part in (scores.sample(8 * FEW_SAMPLES), scores):
        if part is not scores and near[1] < 2 * near[0]:
            continue  # narrow enough
        sketch = sketch_of(part, t_range=near, n_nodes=enough_nodes(near))
        inner = window(sketch)
        if not ((near[0] == low or inner[0] > near[0]) and (near[1] == high or inner[1] < near[1])):
            return Focused(sketch_of(scores, t_range=(low, high)), sample)
        if part is scores:
            break
        near = inner
    if _tail(sketch) > MAX_TAIL:
        sketch = sketch_of(scores, t_range=near)
    return Focused(sketch, sample)


def enough_nodes(t_range: tuple[float, float]) -> int:
    """Return how many nodes are as exact over this range as 64 are over the default one, or more exact."""
    return max(10, min(chebyshev.resolving_nodes(log_range(t_range)), 64))


def _tail(sketch: Sketch) -> float:
    """Nats that the nodes may leave open, at most."""
    tables = [sketch.nll[:, None], *sketch.tables.values()]
    return 2 * max(float(chebyshev.tail(chebyshev.coefficients(table))[0].max()) for table in tables)


def check_thetas(thetas: ArrayLike) -> Floats:
    """Check a θ grid: ascending, within [0, 1]."""
    try:
        grid = np.atleast_1d(np.asarray(thetas, dtype=np.float64))
    except (TypeError, ValueError):
        raise InputError(f"theta: {thetas!r} is no number or list of numbers") from None
    if grid.ndim != 1 or not 1 <= len(grid) <= MAX_THETAS:
        raise InputError(f"theta: a grid of 1 to {MAX_THETAS} values is expected, got shape {grid.shape}")
    if not (np.isfinite(grid).all() and (grid >= 0).all() and (grid <= 1).all()):
        raise InputError("theta: θ is compared with a probability, so it lies between 0 and 1")
    if (np.diff(grid) <= 0).any():
        raise InputError("theta: the grid must ascend, each value larger than the one before")
    return grid


def log_range(t_range: Sequence[float]) -> chebyshev.Interval:
    """Check a temperature range; return it as a range of log T."""
    try:
        low, high = (float(t) for t in t_range)
    except (TypeError, ValueError):
        raise InputError(
            f"t_range={t_range!r}: expected two temperatures, such as (0.05, 20)", param="t_range"
        ) from None
    if not (1e-30 <= low < high <= 1e30):
        raise InputError(f"t_range={(low, high)!r}: expected 0 < low < high, within 1e-30 and 1e30", param="t_range")
    return chebyshev.Interval(float(np.log(low)), float(np.log(high)))


def _common_range(sketches: Sequence[Sketch]) -> tuple[tuple[float, float], bool]:
    """Range of temperatures of a sum, and whether all sketches cover it.

    It is what they have in common, unless that is less than half of the shortest range.
    """
    lows, highs = zip(*(sketch.t_range for sketch in sketches))
    low, high = max(lows), min(highs)
    shortest = min(sketch.interval.length for sketch in sketches)
    if low < high and np.log(high / low) >= shortest / 2:
        return (low, high), True
    return (min(lows), max(highs)), False


def _continued(table: Floats, interval: chebyshev.Interval, ends: Floats, t: Floats, degree: int) -> Floats:
    """Continue sums beyond the temperatures that they are known at.

    As T → 0 they grow as 1/T, so that T · sum is smooth in T; as T → ∞ the sum is smooth in 1/T. A polynomial goes
    through the limit and through values within a factor of four of the end.
    """
    c = chebyshev.coefficients(table)
    low, high = np.exp(interval.low), np.exp(interval.high)
    x = chebyshev.nodes(degree, chebyshev.Interval(1.0, 4.0))

    def through(limit: Floats, values: Floats, at: Floats) -> Floats:
        return np.asarray(barycentric_interpolate(np.append(0.0, x), np.concatenate([limit[None], values]), at))

    column = (-1, *[1] * (table.ndim - 1))
    below = (low * x).reshape(column) * chebyshev.evaluate(c, interval, np.log(low * x))
    above = chebyshev.evaluate(c, interval, np.log(high / x))
    small = through(ends[0], below, np.minimum(t / low, 1)) / t.reshape(column)
    large = through(ends[1], above, np.minimum(high / t, 1))
    return np.where((t < low).reshape(column), small, large)
