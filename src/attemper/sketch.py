"""Sketch: everything the temperature family needs to know about a data set, in one small table.

Every loss of the family is a sum over samples of a function of one number, β = 1/T.
One pass over the data evaluates those sums at 64 Chebyshev nodes in log T; the sums
are then known at every T. Two sketches add, in any order: parts of a data set, files,
machines, hospitals that may not share their patients.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from attemper.arrays import one_line
from attemper.documents import Fields, read_document, write_document
from attemper.errors import FileError, InputError, setting
from attemper.kernels import attended, chebyshev, noisy
from attemper.kernels.softmax import rest, split
from attemper.plausibility import warn_of_sketched_chance
from attemper.scores import Chunk, Scores

__all__ = [
    "DEFAULT_THETAS",
    "DEFAULT_T_RANGE",
    "LOG_ODDS",
    "MIN_SAMPLES",
    "Part",
    "Sketch",
    "check_thetas",
    "log_range",
]

Floats = NDArray[np.float64]
Part = Literal["attended", "reference", "uniform", "similar"]
ALL_PARTS: tuple[Part, ...] = ("attended", "reference", "uniform", "similar")

DEFAULT_T_RANGE = (0.05, 20.0)
DEFAULT_THETAS: Floats = np.arange(1, 101) / 1000.0
MAX_NODES, MAX_THETAS = 1024, 10_001
SINGLE = 1e-8  # share of a sum that single precision may leave open: rounding errors average out over many logits
MIN_SAMPLES = 100  # a sketch of fewer, sent away, comes close to telling about single samples

# Odds ε/(1 − ε) of a label being noise, at Chebyshev nodes in their logarithm: ε from 1e-5 to 0.98.
LOG_ODDS = chebyshev.Interval(float(np.log(1e-5 / (1 - 1e-5))), float(np.log(0.98 / 0.02)))
ODDS: Floats = np.exp(chebyshev.nodes(40, LOG_ODDS))


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

    n_samples: int  # seen; what they weigh is told by the sums
    n_classes: int
    weight: float  # sum of the sample weights, of a stream that forgets: of what is left of them
    correct: float  # weight of the samples whose label has the largest logit
    confidence: float  # sum of the largest probabilities at T = 1
    t_range: tuple[float, float]
    thetas: Floats  # the θ grid, ascending
    nll: Floats  # (nodes,)
    attended: Floats | None  # (nodes, θ-bins): the paper's terms of Eq. (8)
    reference: Floats | None  # (nodes, θ-bins): the terms of the authors' code
    uniform: Floats | None  # (nodes, odds): Σ log(S_y + r/K)
    similar: Floats | None  # (nodes, odds): Σ log(S_y + r S_y(3T))
    rounding: float = 0.0  # by how much sums may be off that were made in single precision, on a GPU

    @classmethod
    def of(
        cls,
        logits: ArrayLike | Any,
        labels: ArrayLike | Any | None = None,
        *,
        sample_weight: ArrayLike | None = None,
        classes: Sequence[Any] | None = None,
        t_range: tuple[float, float] = DEFAULT_T_RANGE,
        n_nodes: int = 64,
        thetas: ArrayLike | None = None,
        parts: Sequence[Part] = ALL_PARTS,
    ) -> Sketch:
        """Sketch one data set in one pass.

        Parameters
        ----------
        logits, labels : arrays, or a `Scores` for ``logits`` alone
        t_range : the temperatures that the sketch can tell about
        n_nodes : 64 give log T to 1e-7 or better on every real network tried
        thetas : the θ grid for attended temperature scaling; 0.001, 0.002, … 0.1 by default
        parts : which sums to keep; leave some out to save time and space
        """
        if isinstance(logits, Scores):
            if any(more is not None for more in (labels, sample_weight, classes)):
                raise InputError("a Scores brings its own labels, weights and classes; give no others beside it")
            scores = logits
        else:
            scores = Scores.from_logits(logits, labels, sample_weight=sample_weight, classes=classes)
        if scores.labels is None:
            raise InputError("labels: a sketch needs them; give one label per row of logits")
        interval = log_range(t_range)
        if not isinstance(n_nodes, int | np.integer) or not 8 <= n_nodes <= MAX_NODES:
            raise InputError(f"n_nodes={n_nodes}: must be a whole number between 8 and {MAX_NODES}")
        grid = check_thetas(DEFAULT_THETAS if thetas is None else thetas)
        unknown = set(parts) - set(ALL_PARTS)
        if unknown:
            raise InputError(f"parts: {sorted(unknown)} unknown; known are {list(ALL_PARTS)}")
        betas = np.exp(-chebyshev.nodes(n_nodes, interval))
        if scores.device is None:
            total = scores.total(lambda chunk: _tabulate(chunk, scores.masked, betas, grid, parts))
        else:
            from attemper.gpu import tabulate

            total = tabulate(scores.device, betas, grid, parts, ODDS)
        single = scores.device is not None and not scores.device.double
        blocks: dict[str, Floats | None] = dict.fromkeys(ALL_PARTS)
        column = 3
        for part, width in _widths(len(grid)).items():
            if part in parts:
                blocks[part] = total[:, column : column + width]
                column += width
        return cls(
            n_samples=len(scores),
            n_classes=scores.n_classes,
            weight=scores.total_weight,
            correct=float(total[0, 0]),
            confidence=float(total[0, 1]),
            t_range=(float(t_range[0]), float(t_range[1])),
            thetas=grid,
            nll=total[:, 2],
            rounding=SINGLE * float(np.abs(total[:, 2]).max()) if single else 0.0,
            **blocks,
        )

    @property
    def interval(self) -> chebyshev.Interval:
        """The range of log T."""
        return log_range(self.t_range)

    @property
    def perfect(self) -> bool:
        """Whether every label has the largest logit of its row."""
        return self.correct >= self.weight * (1 - 1e-12)

    @property
    def flat(self) -> bool:
        """Whether the logits of every row are equal, so that T has no effect."""
        return self.confidence <= self.weight / self.n_classes * (1 + 1e-12)

    def mean_nll(self, temperature: float) -> float:
        """Mean NLL of the data at one temperature within the range."""
        c = chebyshev.coefficients(self.nll[:, None])
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
        """Say what keeps two sketches from being added; empty if nothing does."""
        if self.n_classes != other.n_classes:
            return f"{self.n_classes} and {other.n_classes} classes"
        if len(self.nll) != len(other.nll):
            return f"{len(self.nll)} and {len(other.nll)} nodes"
        if self.t_range != other.t_range:
            return f"temperature ranges {self.t_range} and {other.t_range}"
        if not np.array_equal(self.thetas, other.thetas):
            return "different θ grids"
        for part in ALL_PARTS:
            if (getattr(self, part) is None) != (getattr(other, part) is None):
                return f"only one of them has the {part!r} part"
        return ""

    def check_addable(self, other: Sketch) -> None:
        """Refuse a sketch that cannot be added to this one."""
        obstacle = self._obstacle(other)
        if obstacle:
            raise InputError(
                f"these sketches cannot be added: {obstacle}. Make both with the same settings "
                "(t_range, n_nodes, thetas, parts)."
            )

    def __add__(self, other: Sketch) -> Sketch:
        """Sketch of both data sets together."""
        if not isinstance(other, Sketch):
            return NotImplemented
        self.check_addable(other)
        grown = {
            f.name: getattr(self, f.name) + getattr(other, f.name)
            for f in fields(self)
            if f.name not in ("n_classes", "t_range", "thetas") and getattr(self, f.name) is not None
        }
        return replace(self, **grown)

    def only(self, parts: Sequence[Part]) -> Sketch:
        """Leave out all other parts."""
        left_out: dict[str, Any] = {part: None for part in ALL_PARTS if part not in parts}
        return replace(self, **left_out)

    def scaled(self, factor: float) -> Sketch:
        """Sketch of the same data, every weight multiplied; ``n_samples`` still counts the samples seen.

        >>> Sketch.of([[2.0, 1.0], [0.0, 3.0]], [0, 0]).scaled(0.5).weight
        1.0
        """
        if not 0 <= factor < np.inf:
            raise InputError(f"factor={factor}: must be a number that is not negative")
        kept = ("n_samples", "n_classes", "t_range", "thetas")
        return replace(
            self,
            **{
                f.name: factor * value
                for f in fields(self)
                if f.name not in kept and (value := getattr(self, f.name)) is not None
            },
        )

    def to_dict(self) -> dict[str, Any]:
        """Return plain lists and numbers."""
        return {
            f.name: value.tolist() if isinstance(value, np.ndarray) else value
            for f in fields(self)
            if (value := getattr(self, f.name)) is not None
        }

    @classmethod
    def from_fields(cls, content: Fields) -> Sketch:
        """Read back what `to_dict` gave; everything is checked."""
        t_range = content.array("t_range", (2,))
        thetas = check_thetas(content.array("thetas", (-1,)))
        nll = content.array("nll", (-1,))
        m = len(nll)
        widths = _widths(len(thetas))
        blocks = {p: content.array(p, (m, widths[p])) if p in content else None for p in ALL_PARTS}
        sketch = cls(
            n_samples=content.integer("n_samples"),
            n_classes=content.integer("n_classes"),
            weight=content.number("weight"),
            correct=content.number("correct"),
            confidence=content.number("confidence"),
            t_range=(float(t_range[0]), float(t_range[1])),
            thetas=thetas,
            nll=nll,
            rounding=content.number("rounding") if "rounding" in content else 0.0,
            **blocks,
        )
        log_range(sketch.t_range)
        slack = 1e-9 * abs(sketch.weight)
        if not (
            8 <= m <= MAX_NODES
            and sketch.n_samples >= 1
            and sketch.n_classes >= 2
            and sketch.weight > 0
            and -slack <= sketch.correct <= sketch.weight + slack
            and 0 < sketch.confidence <= sketch.weight + slack
            and (nll >= -slack).all()
            and sketch.rounding >= 0
        ):
            raise FileError(f"{content.where}: its numbers contradict each other; not a sketch")
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
        raise InputError(f"{setting('t_range', t_range)}: expected two temperatures, such as (0.05, 20)") from None
    if not (1e-30 <= low < high <= 1e30):
        raise InputError(f"{setting('t_range', (low, high))}: expected 0 < low < high, within 1e-30 and 1e30")
    return chebyshev.Interval(float(np.log(low)), float(np.log(high)))


def _widths(thetas: int) -> dict[Part, int]:
    return {"attended": thetas, "reference": thetas, "uniform": len(ODDS), "similar": len(ODDS)}


def _tabulate(chunk: Chunk, masked: bool, betas: Floats, thetas: Floats, parts: Sequence[Part]) -> Floats:
    """Columns (correct weight, confidence, NLL, θ-bins …, odds …), one row for each node, for one chunk."""
    rows = split(chunk.h, masked)
    y, w = chunk.y, chunk.w
    gap = rows.gap(y)

    def add(values: Any) -> float:
        return float(np.sum(values) if w is None else w @ values)

    buffer = np.empty_like(rows.d)
    correct, confidence, gap_sum = add(gap == 0), add(1 / (1 + rest(rows, 1.0, buffer)[1])), add(gap)
    found = {
        part: attended.pairs(rows, y, w, thetas, reference=part == "reference")
        for part in ("attended", "reference")
        if part in parts
    }
    possible = rows.d.shape[1] if rows.possible is None else rows.possible
    log_uniform = np.full(len(y), -np.log(possible))
    table = []
    for beta in betas:
        _, total = rest(rows, beta, buffer)
        log_z = np.log1p(total)
        line: list[Any] = [[correct, confidence, add(log_z) - beta * gap_sum]]
        for part, these in found.items():
            line.append(attended.terms(rows, y, w, these, beta, total, reference=part == "reference"))
        log_s = beta * gap - log_z
        if "uniform" in parts:
            line.append(noisy.log_likelihood(log_s, log_uniform, w, ODDS))
        if "similar" in parts:
            soft = beta / noisy.SOFTENING
            log_soft = soft * gap - np.log1p(rest(rows, soft, buffer)[1])
            line.append(noisy.log_likelihood(log_s, log_soft, w, ODDS))
        table.append(np.concatenate(line))
    return np.array(table)
