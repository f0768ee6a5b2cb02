"""Sketch: everything the temperature family needs to know about a data set, in one small table.

Every loss of the family is a sum over samples of a function of one number, β = 1/T. One pass over the data evaluates
those sums at Chebyshev nodes in log T; the sums are then known at every T. Two sketches add, in any order: parts of a
data set, files, machines, hospitals that may not share their patients. Saved sketches have one grid: any two add.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from attemper import _json
from attemper._typing import Floats
from attemper.data.arrays import row_slices, to_numpy
from attemper.data.scores import Scores
from attemper.errors import InputError
from attemper.kernels import chebyshev
from attemper.kernels.table import Node

T_RANGE, NODES = (0.01, 100.0), 128  # of saved sketches
THETAS: Floats = np.arange(1, 101) / 1000.0  # the θ grid of attended temperature scaling
FEW_SAMPLES = 2048  # that show which temperatures matter
MAX_TAIL = 1e-2  # nats by which interpolation between the nodes of a local sketch may be off
SINGLE = 1e-8  # share of a sum that single precision may leave open: rounding errors average out over many logits

# Odds ε/(1 − ε) of a label being noise, at Chebyshev nodes in their logarithm: ε from 1e-5 to 0.98.
LOG_ODDS = chebyshev.Interval(float(np.log(1e-5 / (1 - 1e-5))), float(np.log(0.98 / 0.02)))
ODDS: Floats = np.exp(chebyshev.nodes(40, LOG_ODDS))


# The tables of a sketch, nodes × columns: a kernel makes the columns at one node, on NumPy and on a GPU.
TERMS: dict[str, Callable[[Node], Any]] = {
    "attended": lambda node: node.attended(),  # the paper's terms of Eq. (8), by θ-bin
    "reference": lambda node: node.attended(reference=True),  # those of the authors' code
    "uniform": lambda node: node.noisy(),  # Σ log(S_y + r/K), for each of the odds
}
PARTS = ("attended", "uniform")  # of saved sketches


@dataclass(frozen=True, eq=False, repr=False)
class Sketch:
    """The sums of the temperature family over a data set, at Chebyshev nodes in log T.

    >>> a, b = (Sketch.of(Scores.of(h, y)) for h, y in (([[2.0, 1.0], [0.0, 3.0]], [0, 0]), ([[1.0, 4.0]], [1])))
    >>> (a + b).n_samples
    3
    """

    n_samples: int  # seen; their weight is in the sums
    counts: Floats  # weight of the labels of each class
    correct: float  # weight of the samples whose label has the largest logit
    confidence: float  # sum of the largest probabilities at T = 1
    guessed: float  # weight that a uniform guess gets right: Σ 1/K, K without masked classes
    nll: Floats  # (nodes,)
    tables: dict[str, Floats]  # those of `TERMS` that were asked for, by name
    t_range: tuple[float, float] = T_RANGE
    thetas: Floats = field(default_factory=lambda: THETAS)  # the θ grid, ascending
    rounding: float = 0.0  # by how much sums may be off that were made in single precision, on a GPU
    zeros_as: float | None = None  # of probabilities
    input: str = "logits"
    classes: tuple[bool | int | float | str, ...] | None = None

    @classmethod
    def of(
        cls,
        scores: Scores,
        *,
        parts: Sequence[str] = PARTS,
        t_range: tuple[float, float] = T_RANGE,
        n_nodes: int = NODES,
        thetas: Floats = THETAS,
        unit: float = 1.0,
    ) -> Sketch:
        """Sketch one data set in one pass; ``unit`` is the T that counts as 1."""
        if scores.labels is None:
            raise InputError("labels: a sketch needs them", "labels")
        if scores.multi_label:
            raise InputError("multi_label: a sketch is of classes that exclude each other", "multi_label")
        names = [name for name in TERMS if name in parts]
        betas = np.exp(-chebyshev.nodes(n_nodes, log_range(t_range)))
        backend = scores.backend
        total = backend.table(betas, thetas, ODDS, unit, [TERMS[name] for name in names])
        ends = np.cumsum([3, *(len(ODDS if name == "uniform" else thetas) for name in names)])
        tables = {name: total[:, a:b] for name, a, b in zip(names, ends, ends[1:])}
        nll = total[:, 2]
        counted = scores if scores.w is None else replace(scores, device=None).take(scores.w > 0)
        return cls(
            n_samples=counted.n_samples,
            counts=np.bincount(scores.labels, scores.w, scores.n_classes).astype(np.float64),
            correct=float(total[0, 0]),
            confidence=float(total[0, 1]),
            guessed=scores.chance * scores.total_weight,
            nll=nll,
            tables=tables,
            t_range=(float(t_range[0]), float(t_range[1])),
            thetas=thetas,
            rounding=0.0 if backend.exact else SINGLE * float(np.abs(nll).max()),
            zeros_as=scores.zeros_as,
            input=scores.input,
            classes=None if scores.classes is None else tuple(scores.classes),
        )

    @property
    def n_classes(self) -> int:
        """K, the number of classes."""
        return len(self.counts)

    @property
    def weight(self) -> float:
        """Sum of the sample weights."""
        return float(self.counts.sum())

    @property
    def chance(self) -> float:
        """Share of the labels that a uniform guess gets right."""
        return self.guessed / self.weight

    @property
    def interval(self) -> chebyshev.Interval:
        """The range of log T."""
        return log_range(self.t_range)

    def checked_range(self, t_range: Sequence[float]) -> tuple[float, float]:
        """Return a range of T, which must lie within that of the sketch."""
        inner, outer = log_range(t_range), self.interval
        if inner.low < outer.low or inner.high > outer.high:
            raise InputError(f"t_range={t_range!r}: the sketch holds {self.t_range}", "t_range")
        return float(t_range[0]), float(t_range[1])

    @property
    def perfect(self) -> bool:
        """Whether every label has the largest logit of its row."""
        return self.correct >= self.weight * (1 - 1e-12)

    @property
    def flat(self) -> bool:
        """Whether the logits of every row are equal, so that T has no effect."""
        return self.confidence <= self.guessed * (1 + 1e-12)

    def __add__(self, other: Sketch) -> Sketch:
        """Sketch of both data sets together."""
        if not isinstance(other, Sketch):
            return NotImplemented
        same = ("n_classes", "t_range", "zeros_as", "input")
        differ = [name for name in same if getattr(self, name) != getattr(other, name)]
        differ += ["classes"] if None not in (self.classes, other.classes) and self.classes != other.classes else []
        differ += ["thetas"] if not np.array_equal(self.thetas, other.thetas) else []
        differ += ["parts"] if self.tables.keys() != other.tables.keys() else []
        if differ:
            raise InputError(f"{differ[0]}: these sketches differ in it, so they do not add", differ[0])
        sums = {name: getattr(self, name) + getattr(other, name) for name in SUMS}
        tables = {name: table + other.tables[name] for name, table in self.tables.items()}
        return replace(self, tables=tables, classes=self.classes or other.classes, **sums)

    def __radd__(self, other: Any) -> Sketch:
        """Let `sum` add sketches."""
        return self if other == 0 else NotImplemented

    def facts(self) -> dict[str, Any]:
        """Return what a reader wants to know."""
        shares = {"accuracy": self.correct / self.weight, "mean confidence": self.confidence / self.weight}
        return {"rows": self.n_samples, "classes": self.n_classes} | {name: round(v, 4) for name, v in shares.items()}

    def __repr__(self) -> str:
        return f"Sketch({', '.join(f'{name} {value}' for name, value in self.facts().items())})"

    def log_likelihood(self, rate: float = 0.0) -> Floats:
        """Log-likelihood of the labels at each node, if a share ``rate`` of them is a uniform guess."""
        table = self.tables.get("uniform")
        if rate == 0 or table is None:
            return -self.nll
        odds = np.clip(np.log(rate / (1 - rate)), *LOG_ODDS)
        values = chebyshev.basis(len(ODDS), LOG_ODDS, [odds])[0] @ table.T
        return np.asarray(values + self.weight * np.log1p(-rate))

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

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the sketch as JSON, atomically."""
        _json.save(path, "sketch", self)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Sketch:
        """Read a sketch that `save` wrote."""
        return _json.load(path, {"sketch": cls})


SUMS = ("n_samples", "counts", "correct", "confidence", "guessed", "nll", "rounding")  # what adds up, beside the tables


def sketch_scores(scores: Scores, parts: Sequence[str] = PARTS, *, zeros_as: float | None = None) -> Sketch:
    """Sketch scores; of probabilities with zeros ``zeros_as`` is needed, so that sketches of all parts add."""
    if scores.input == "probs" and zeros_as is None:
        if any((to_numpy(scores.raw(part)) == 0).any() for part in row_slices(*scores.shape)):
            raise InputError("zeros_as: some probabilities are 0; a sketch needs zeros_as, such as 1e-8", "zeros_as")
        scores = replace(scores, zeros_as=None)
    return Sketch.of(scores, parts=parts)


def local_sketch(
    scores: Scores, window: Callable[[Sketch], tuple[float, float]], *, parts: Sequence[str], unit: float = 1.0,
    t_range: tuple[float, float] = (0.05, 20.0),
) -> tuple[Sketch, Sketch]:  # fmt: skip
    """Sketch many samples over those temperatures alone that matter, where a few nodes are exact.

    ``window`` returns the temperatures between which all that matters of a sketch lies. It is called with sketches of
    more and more samples. If what matters for all samples is not inside of what matters for some of them, the sketch is
    of the whole range. The second sketch is of some samples, over the whole range.
    """

    def sketch_of(rows: Scores, within: tuple[float, float], n_nodes: int) -> Sketch:
        return Sketch.of(rows, parts=parts, t_range=within, n_nodes=n_nodes, unit=unit)

    whole = (t_range[0] * unit, t_range[1] * unit)
    few = scores.sample(FEW_SAMPLES)
    few = scores if few.total_weight == 0 else few
    sample = sketch_of(few, whole, 64 if few is scores else 40)
    if few is scores:
        return sample, sample
    near = window(sample)
    for part in (scores.sample(8 * FEW_SAMPLES), scores):
        if part is not scores and (near[1] < 2 * near[0] or len(scores) < 4 * len(part)):
            continue  # narrow enough, or hardly less work
        sketch = sketch_of(part, near, enough_nodes(near))
        inner = window(sketch)
        inside = (near[0] == whole[0] or inner[0] > near[0]) and (near[1] == whole[1] or inner[1] < near[1])
        if not inside:
            return sketch_of(scores, whole, 64), sample
        if part is scores:
            break
        near = inner
    columns = [sketch.nll[:, None], *sketch.tables.values()]
    tail = 2 * max(float(chebyshev.tail(chebyshev.coefficients(table))[0].max()) for table in columns)
    return (sketch_of(scores, near, 64) if tail > MAX_TAIL else sketch), sample


def enough_nodes(t_range: tuple[float, float]) -> int:
    """Return how many nodes are as exact over this range as 64 are over (0.05, 20), or more exact."""
    return max(10, min(chebyshev.resolving_nodes(log_range(t_range)), 64))


def log_range(t_range: Sequence[float]) -> chebyshev.Interval:
    """Check a temperature range; return it as a range of log T."""
    try:
        low, high = (float(t) for t in t_range)
    except (TypeError, ValueError):
        raise InputError(f"t_range={t_range!r}: expected two temperatures, such as (0.05, 20)", "t_range") from None
    if not 1e-30 <= low < high <= 1e30:
        raise InputError(f"t_range={(low, high)!r}: expected 0 < low < high", "t_range")
    return chebyshev.Interval(float(np.log(low)), float(np.log(high)))
