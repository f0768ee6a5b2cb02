"""Methods side by side: fitted on one data set, judged on another, and one recommended in words."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from attemper.arrays import one_line, to_numpy
from attemper.calibrators import METHODS
from attemper.calibrators.base import Calibrator
from attemper.errors import AttemperError, AttemperWarning, InputError, option
from attemper.maps import Map, ScaleMap
from attemper.metrics import Estimate, evaluate
from attemper.metrics.intervals import LEAST_ERRORS, around_mean, effective, too_few
from attemper.overlap import warn_of_shared_rows
from attemper.scores import Scores

__all__ = ["Comparison", "Row", "compare"]

Floats = NDArray[np.float64]

LARGE = ("matrix", "dirichlet")
MOST_CLASSES = 50
LEVEL = 0.95  # of the interval of a difference
WHY_BAYES = "changes no answer, says how uncertain T is, and stays finite with few or wrong labels"
NEGLIGIBLE = 1e-3  # nats: methods of one family differ by less, and so closely that their difference is certain


@dataclass(frozen=True, repr=False)
class Row:
    """One method's result in `compare`; ``failure`` says why there is none."""

    __repr__ = one_line

    method: str
    seconds: float = 0.0
    temperature: float | None = None
    metrics: dict[str, float | Estimate] | None = None
    losses: Floats | None = None  # of each test sample
    changed: float = 0.0  # share of test samples whose answer it changes
    notes: tuple[str, ...] = ()
    failure: str = ""
    map: Map | None = None  # what was fitted


@dataclass(frozen=True)
class Comparison:
    """All rows, and what they recommend: `compare` gives it."""

    rows: tuple[Row, ...]
    recommended: str  # name of a method
    reason: str  # in a sentence

    def __repr__(self) -> str:
        return f"Comparison({len(self.rows)} rows, recommended={self.recommended!r})"


def compare(
    val: Scores,
    test: Scores,
    methods: Sequence[str] | None = None,
    *,
    noisy: bool = False,
    noise: str | None = None,
    interval: float | None = 0.95,
    seed: int = 0,
    tick: Callable[[str], None] = lambda method: None,
) -> Comparison:
    """Fit each method on ``val`` and judge it on ``test``.

    A method that fails is a row that says why; so is one of K² parameters for more than 50 classes, unless it is
    named. Without ``interval`` metrics are plain numbers. ``noisy`` says that the validation labels may be wrong, and
    ``noise`` how ("uniform", "classwise"); the test labels are taken as they are. ``tick`` is called before each one.

    Examples
    --------
    >>> from attemper import datasets
    >>> data = datasets.load()
    >>> val = Scores.from_logits(data.val_logits, data.val_labels)
    >>> test = Scores.from_logits(data.test_logits, data.test_labels)
    >>> found = compare(val, test, ["ts", "isotonic"], interval=None)
    >>> [row.method for row in found.rows], found.recommended
    (['none', 'ts', 'isotonic'], 'ts')
    """
    if val.n_classes != test.n_classes:
        raise InputError(f"validation has {val.n_classes} classes, test has {test.n_classes}; they must agree")
    chosen = list(METHODS) if methods is None else list(methods)
    unknown = [m for m in chosen if m not in METHODS]
    if unknown:
        raise InputError(f"method {unknown[0]!r} is unknown; known are {', '.join(METHODS)}")
    warn_of_shared_rows(val, test)
    rows = []
    for method in ["none", *chosen]:
        tick(method)
        if methods is None and method in LARGE and val.n_classes > MOST_CLASSES:
            why = (
                f"left out, as it has {val.n_classes**2} parameters; to include it use {option('methods', '--methods')}"
            )
            rows.append(Row(method, failure=why))
            continue
        calibrator = None
        if method != "none":
            calibrator = METHODS[method].for_labels(noisy=noisy, noise=noise, input=val.kind, floor=val.floor)
        rows.append(_row(method, calibrator, val, test, interval, seed))
    return Comparison(tuple(rows), *_recommend(rows, test))


def _row(
    method: str, calibrator: Calibrator | None, val: Scores, test: Scores, interval: float | None, seed: int
) -> Row:
    found: Map = ScaleMap(1.0)
    temperature: float | None = None
    seconds, notes = 0.0, []
    if calibrator is not None:
        start = time.perf_counter()
        try:
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always", AttemperWarning)
                calibrator.fit(val)
        except (AttemperError, ArithmeticError, np.linalg.LinAlgError, MemoryError) as error:
            return Row(method, failure=str(error) or type(error).__name__)
        seconds = time.perf_counter() - start
        notes = [str(w.message) for w in caught]
        found, temperature = calibrator.map_, getattr(calibrator, "temperature_", None)
    assert test.labels is not None
    h = to_numpy(test.logits).astype(np.float64)
    log_p = found.log_apply(h)
    metrics = evaluate(log_p, test.labels, log_probs=True, sample_weight=test.weights, interval=interval, seed=seed)
    losses = -log_p[np.arange(len(log_p)), test.labels]
    w = np.ones(len(h)) if test.weights is None else test.weights
    changed = 0.0 if found.keeps_arg_max else float(w @ (log_p.argmax(axis=1) != h.argmax(axis=1)) / w.sum())
    return Row(method, seconds, temperature, metrics, losses, changed, tuple(notes), map=found)


def _recommend(rows: Sequence[Row], test: Scores) -> tuple[str, str]:
    """Name the method to use, and give the reason in a sentence.

    It is the one with the least test NLL; but bayes, where it is within 0.001 nats of that one or the 95 % interval of
    the difference includes 0. With too few errors for that interval (`too_few`), it is bayes if that was fitted. A
    method that gives a label the probability zero has an infinite NLL and is out.
    """
    assert test.labels is not None
    w = np.ones(len(test)) if test.weights is None else test.weights
    counts = w > 0  # weight zero times an infinite loss would be NaN
    wrong = to_numpy(test.logits)[counts].argmax(axis=1) != test.labels[counts]
    w = w[counts]
    losses = {row.method: row.losses[counts] for row in rows if row.losses is not None}
    infinite = [method for method in losses if np.isinf(losses[method]).any()]
    losses = {method: values for method, values in losses.items() if method not in infinite}
    nll = {method: float(w @ values / w.sum()) for method, values in losses.items()}
    best = min(nll, key=nll.__getitem__)

    def behind(method: str) -> Estimate:
        """NLL above that of the best."""
        return around_mean(nll[method] - nll[best], losses[method] - losses[best], w, LEVEL)

    def named(methods: Sequence[str]) -> str:
        names = ["no calibration" if m == "none" else m for m in methods]
        return " and ".join(([", ".join(names[:-1])] if names[:-1] else []) + names[-1:])

    def shown(found: Estimate) -> str:
        limits = f" ({100 * LEVEL:g} % interval {found.low:.4f} to {found.high:.4f})" if found.has_interval else ""
        return f"{found.value:.4f}{limits}"

    others = sorted((m for m in nll if m != best), key=nll.__getitem__)
    value = f"its test NLL of {nll[best]:.4f} is the lowest"
    name = named([best])
    if not others:
        return best, f"Use {name}: nothing else {'has a finite test NLL' if infinite else 'could be fitted'}."
    if too_few(effective(w[wrong])):
        few = f"there are too few errors on these {len(test)} samples to tell the methods apart ({LEAST_ERRORS} needed)"
        if "bayes" in nll:
            return "bayes", f"Use bayes: {few}, and bayes {WHY_BAYES}."
        return best, f"Use {name}: {value}, but {few}."
    gaps = {method: behind(method) for method in others}
    level = [m for m, gap in gaps.items() if gap.value <= NEGLIGIBLE or not gap.low > 0]
    if "bayes" in level or (best == "bayes" and level):
        rivals = named([m for m in [best, *level] if m != "bayes"])
        return "bayes", (
            f"Use bayes: on these {len(test)} samples its test NLL cannot be told apart from that of {rivals}, and it "
            f"{WHY_BAYES}."
        )
    gap = shown(gaps[others[0]])
    if level:
        return best, (
            f"Use {name}: {value}, though on these {len(test)} samples it cannot be told apart from that of "
            f"{named(level)}; the difference to {named(others[:1])} is {gap}."
        )
    return best, f"Use {name}: {value}, {gap} below that of {named(others[:1])}, the next."
