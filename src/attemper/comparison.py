"""Methods side by side: compared by cross-validation on validation data, evaluated on test data.

The first choice is fixed before any data are seen: bayes, which never changes a prediction. Another method that keeps
predictions replaces it where held-out samples show a lower NLL beyond chance. A method that changes predictions is
never chosen where one that keeps them is compared: it is named, with what it would gain and what it would change.
"""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from numbers import Integral
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_softmax
from sklearn.base import clone
from sklearn.model_selection import StratifiedGroupKFold, StratifiedKFold

from attemper._json import plain
from attemper._result import Columns, Estimate, Table
from attemper._typing import Floats, Labels
from attemper.calibrators.base import METHODS, Calibrator
from attemper.calibrators.label_model import Noise, error_rate
from attemper.calibrators.registry import method_of, reads_like
from attemper.data.arrays import to_numpy
from attemper.data.scores import Scores
from attemper.errors import AttemperError, InputError, check_seed, collected_warnings
from attemper.metrics.best import can_be_best
from attemper.metrics.evaluation import Evaluation, evaluate_predictions
from attemper.metrics.intervals import estimate, mean_of, too_few
from attemper.metrics.predictions import Predictions

__all__ = ["Comparison", "Recall", "Row"]

NONE, IN_USE = "none", "in use"  # the classifier as it is; a calibrator that was passed
FIRST_CHOICES = {"bayes": 0, "ts": 1, "ats": 2, "ets": 3}
MOST_CLASSES = {"matrix": 50, "dirichlet": 50}  # K² parameters: beyond, only if they are named
ON_TEST = ("accuracy", "nll", "brier", "ece", "aurc")
LEVEL = 0.95
NEGLIGIBLE = 1e-3  # nats: methods that differ by less are equally good
FAILURES = (AttemperError, ArithmeticError, np.linalg.LinAlgError, MemoryError)
# Why a method was chosen; the keys are values of ``reason``.
WHY = {
    "first": "first choice; no method that keeps predictions is better beyond chance",
    "cv": "lower NLL on held-out samples than the first choice",
    "alone": "the only method",
    "noise": "first choice; labels that may be wrong cannot rank methods",
    "no cv": "first choice, without cross-validation",
    "few errors": "first choice; too few cases of VAL have errors to choose by",
    "no errors": "no prediction in VAL is wrong, so it cannot show how far the confidence is off",
    "no fit": "no method could be fitted",
}


@dataclass(frozen=True)
class Recall:
    """Share of the true samples of a class that are found: by the chosen method, and by another."""

    name: Any
    chosen: float
    other: float


@dataclass(frozen=True)
class Row:
    """One method: fitted on all validation samples, compared with the chosen one on held-out ones."""

    method: str
    temperature: float | None = None
    nll: Estimate | None = None  # of held-out validation samples, by the fits without them
    gain: Estimate | None = None  # by how much its NLL is below the chosen method's; of held-out samples, else of test
    changed: float | None = None  # share of the predictions that differ from the chosen method's, on the same samples
    falls: tuple[Recall, ...] = ()  # classes of which it finds fewer, the largest fall first
    test: Evaluation | None = None
    seconds: float = 0.0
    notes: tuple[str, ...] = ()  # warnings of the fit
    failure: str = ""  # why there is no fit
    calibrator: Any = field(default=None, repr=False, compare=False)
    fold_fits: tuple[Any, ...] = field(default=(), repr=False, compare=False)  # calibrators without each fold


@dataclass(frozen=True, repr=False)
class Comparison(Table):
    """A row for each method, and the chosen one: `compare` returns it. ``calibrator`` is fitted on all of VAL."""

    rows: tuple[Row, ...]
    chosen: str
    reason: str  # a key of WHY
    can_be_best: tuple[str, ...]  # methods that can have the least NLL of held-out samples, to within 0.001
    test_can_be_best: tuple[str, ...]  # the same of test samples
    alternatives: tuple[str, ...]  # with a gain on held-out samples beyond chance; structured where it gains at all
    val: Scores = field(repr=False, compare=False)
    test: Scores | None = field(repr=False, compare=False)
    folds: Labels | None = field(repr=False, compare=False)  # of each row of VAL; None: not cross-validated
    noise: Noise = 0  # share of wrong labels that methods were given
    files: Mapping[str, str] = field(default_factory=dict, repr=False, compare=False)  # SHA-256 of what was read
    named: Mapping[str, str] = field(default_factory=dict, repr=False, compare=False)  # path in use, column of groups

    def __getitem__(self, method: str) -> Row:
        return next(row for row in self.rows if row.method == method)

    @property
    def calibrator(self) -> Any:
        """The chosen calibrator, fitted; None if the classifier is better left alone."""
        return self[self.chosen].calibrator

    @property
    def why(self) -> str:
        """Why it was chosen, in words."""
        return WHY[self.reason]

    @property
    def n_folds(self) -> int:
        """How many folds there are; 0 without cross-validation."""
        return 0 if self.folds is None else int(self.folds.max()) + 1

    def predictions(self, method: str) -> Predictions:
        """Return the calibrated predictions of test samples; without any, those of VAL, held out where possible."""
        row = self[method]
        if self.test is not None:
            return Predictions.of_scores(self.test, _log_probs(row.calibrator, self.test))
        return Predictions.of_scores(self.val, _held_out(row, self.val, self.folds))

    def columns(self) -> Columns:
        """Return a row for each method."""
        rows = self.rows
        names = ("method", "temperature", "nll", "gain", "changed", "seconds", "failure")
        found: dict[str, list[Any]] = {name: [getattr(row, name) for row in rows] for name in names}
        metrics = dict.fromkeys(name for row in rows for name in row.test or ())
        found |= {f"{name}_test": [None if row.test is None else row.test[name] for row in rows] for name in metrics}
        return found | {"chosen": [row.method == self.chosen for row in rows]}

    def shown(self) -> Columns:
        """Return what fits: the chosen method is marked, intervals are those of the gain."""
        rows, others = self.rows, [row for row in self.rows if row.gain is not None and row.method != self.chosen]
        gains = {row.method: f"{row.gain:z.3f}{'†' * (row.nll is None)}" for row in others}
        found: dict[str, list[Any]] = {
            "method": [f"{row.method} *" if row.method == self.chosen else row.method for row in rows],
            "T": [None if row.temperature is None else f"{row.temperature:.3g}" for row in rows],
            "NLL_(CV)": ["" if row.nll is None else f"{row.nll.value:.4f}" for row in rows],
            "lower_by": [gains.get(row.method, "") for row in rows],
            "changed": ["" if row.changed is None else f"{row.changed:.1%}" for row in rows],
        }
        on_test = {"NLL": "nll", "ECE": "ece"} if self.test is not None else {}
        return found | {
            title: ["" if row.test is None else f"{row.test[name].value:.4f}" for row in rows]
            for title, name in on_test.items()
        }

    def price_of(self, method: str) -> str:
        """Write what an alternative gains, and what it changes."""
        row = self[method]
        facts = [f"lowers NLL by {row.gain:.4f}", f"changes {row.changed:.1%} of predictions"]
        falls = [(f"{fall.other:.0%}", fall.name, f"{fall.chosen:.0%}") for fall in row.falls[:3]]
        facts += [f"finds {other} of {name} instead of {chosen}" for other, name, chosen in falls if other != chosen]
        return "; ".join(facts)

    def notes(self) -> Sequence[str]:
        """Return sentences: what was chosen, and what an alternative gains and changes."""
        lines = [f"* {self.chosen}: {self.why}."]
        lines += [f"{name}: {self.price_of(name)}." for name in self.alternatives]
        if any("†" in cell for cell in self.shown()["lower_by"]):
            lines.append("† “lower by” and “changed” are of test samples.")
        return [*lines, *(f"{row.method}: {row.failure}" for row in self.rows if row.failure)]

    def to_dict(self) -> dict[str, Any]:
        """Return all numbers as JSON has them."""
        names = ("chosen", "reason", "n_folds", "can_be_best", "test_can_be_best", "alternatives")
        found = {name: plain(getattr(self, name)) for name in names}
        return found | {"rows": [_as_dict(row) for row in self.rows]}

    def to_html(self, path: str | os.PathLike[str], *, card: Any = None, title: str | None = None) -> None:
        """Write the report: one page that needs nothing else. See `attemper.report.write`."""
        from attemper.report import write  # a layer above

        write(self, path, card=card, title=title)


def _as_dict(row: Row) -> dict[str, Any]:
    found = {name: value for name, value in vars(row).items() if name not in ("calibrator", "fold_fits")}
    for name in ("nll", "gain", "test"):
        found[name] = None if found[name] is None else found[name].to_dict()
    return dict(plain(found))


def compare_scores(
    val: Scores, test: Scores | None = None, *, methods: Sequence[str | Calibrator | type[Calibrator]] | None = None,
    calibrator: Calibrator | None = None, noise: Noise = 0, cv: int = 5, seed: int = 0,
) -> Comparison:  # fmt: skip
    """Fit each method on ``val``, choose one by cross-validation on ``val``, and evaluate all on ``test``.

    Chooses bayes, unless another method that keeps predictions has a lower NLL on held-out samples beyond chance, by
    more than 0.001 nats. The test data have no part in it. `attemper.compare` also takes arrays and files, and checks
    that ``val`` and ``test`` share no clusters.

    Parameters
    ----------
    val, test : Scores, with labels
        Samples of one cluster are in one fold, and intervals count clusters.
    methods : names, classes or calibrators with parameters of their own, of which clones are fitted; by default all
        A method that fails has a row with the reason.
    calibrator : Calibrator, optional
        One that is in use, fitted elsewhere: evaluated on ``test`` as the row "in use".
    noise : share of wrong labels, or "unknown"
        Given to methods that know it. Wrong labels cannot choose, as they favour maps that are too soft, so the first
        choice stands.
    cv : int
        Number of folds; 0: the first choice stands.
    seed : int

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> logits = 3 * rng.normal(size=(2000, 5))
    >>> labels = (logits / 2 + rng.gumbel(size=logits.shape)).argmax(axis=1)
    >>> found = compare_scores(Scores.of(logits, labels), methods=["ts"])
    >>> found.chosen, round(found.calibrator.temperature_, 2)
    ('ts', 1.98)
    """
    _check(val, test, calibrator, cv)
    check_seed(seed)
    error_rate(noise, val.chance)
    on_val, on_test = Predictions.of_scores(val), None if test is None else Predictions.of_scores(test)
    folds, reason = _folds(val, on_val.errors, cv, noise, seed)
    rows = {NONE: Row(NONE)}
    for name, each in _calibrators(methods, noise, val).items():
        rows[name] = _fitted(name, each, val, folds)
    held = {n: _Losses.of(val, _held_out(r, val, folds)) for n, r in rows.items() if n == NONE or r.fold_fits}
    held = {} if folds is None else held
    chosen, reason = _choose(rows, held, on_val, reason, seed)
    if calibrator is not None:
        rows[IN_USE] = Row(IN_USE, _temperature(calibrator), calibrator=calibrator)
    tested = {}
    for name, row in rows.items():
        if test is not None and (name == NONE or row.calibrator is not None):
            log_p = _log_probs(row.calibrator, test)
            p = replace(Predictions.of_scores(test, log_p), groups=None)
            rows[name] = replace(row, test=evaluate_predictions(p, ON_TEST, LEVEL, seed))
            tested[name] = _Losses.of(test, log_p)
    for name, row in rows.items():
        if name in held and chosen in held:
            row = replace(row, nll=estimate(mean_of(held[name].losses), on_val.weights, LEVEL, on_val.clusters, seed))
            rows[name] = _beside(row, held[name], held[chosen], on_val, val.classes, seed)
        elif on_test is not None and name in tested and chosen in tested:
            rows[name] = _beside(row, tested[name], tested[chosen], on_test, val.classes, seed)
    best = _best(held, on_val, seed)
    test_best = () if on_test is None or too_few(on_test.errors) else _best(tested, on_test, seed)
    found = tuple(rows.values())
    return Comparison(found, chosen, reason, best, test_best, _alternatives(rows, val), val, test, folds, noise)


def _check(val: Scores, test: Scores | None, calibrator: Calibrator | None, cv: int) -> None:
    for name, scores in (("val", val), ("test", test)):
        if scores is not None and (not isinstance(scores, Scores) or scores.labels is None or scores.multi_label):
            raise InputError(
                f"{name}: expected one label a row; pass (logits, labels), or a file or frame with labels", name
            )
    if isinstance(cv, bool) or not isinstance(cv, Integral) or cv < 0 or cv == 1:
        raise InputError(f"cv={cv!r}: expected 2 folds or more, or 0 for no cross-validation", "cv")
    if test is None and calibrator is not None:
        raise InputError("calibrator: pass test data too, to evaluate it on", "calibrator")
    promise = getattr(getattr(calibrator, "rule_", None), "promise", None)
    needs = {"clusters": promise and promise.unit, "groups": getattr(calibrator, "_needs_groups", False)}
    for name, needed in needs.items():
        if needed and getattr(test, name) is None:
            raise InputError(f"{name}: the calibrator in use needs those of TEST. Use {name}=….", name)


def _calibrators(methods: Any, noise: Noise, val: Scores) -> dict[str, Calibrator]:
    """Return an unfitted calibrator for each method, by the name of its row."""
    if methods is None:
        methods = [m for m in METHODS if val.n_classes <= MOST_CLASSES.get(m, val.n_classes)]
    found: dict[str, Calibrator] = {}
    for given in [methods] if isinstance(methods, str | type | Calibrator) else methods:
        each = method_of(given, param="methods")
        base: Any = getattr(each, "base", each)  # of groups
        own = repr(clone(base).set_params(input="logits", zeros_as=None, classes=None)).partition("(")[2]
        name = base.method if own == ")" else f"{base.method}({' '.join(own.split())}"
        name = name if base is each else f"{each.method}({name})"
        reads_like(each, val)
        if noise != 0 and base.knows_noise and base.get_params()["noise"] == 0:
            base.set_params(noise=noise)
        if name in found or name in (NONE, IN_USE):
            raise InputError(f"methods: {name!r} is named twice", "methods")
        found[name] = each
    return found


def _folds(val: Scores, errors: float, cv: int, noise: Noise, seed: int) -> tuple[Labels | None, str]:
    """Return the fold of each row, clusters undivided; none, and why, where VAL cannot choose."""
    if noise != 0 or cv == 0 or too_few(errors):
        return None, "noise" if noise != 0 else "no cv" if cv == 0 else "few errors"
    n = min(cv, len(val) if val.cases is None else int(val.cases.max()) + 1)
    kind: Any = StratifiedKFold if val.cases is None else StratifiedGroupKFold
    rare = np.bincount(val.labels)[val.labels] < n  # put into one class, so that they can be spread
    labels = np.where(rare, -1, val.labels)
    folds = np.empty(len(val), dtype=np.int64)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of classes with fewer samples than folds
        for k, (_, rows) in enumerate(kind(n, shuffle=True, random_state=seed).split(labels, labels, val.cases)):
            folds[rows] = k
    return folds, ""


def _fitted(name: str, calibrator: Calibrator, val: Scores, folds: Labels | None) -> Row:
    """Fit on all of VAL, and without each fold in turn."""
    start = time.perf_counter()
    try:
        with collected_warnings() as found:
            fitted = clone(calibrator).fit(val)
    except Exception as error:
        if not isinstance(error, FAILURES) and type(calibrator).__module__.startswith(__name__.split(".")[0] + "."):
            raise
        return Row(name, failure=f"{type(error).__name__}: {error}")  # another package's fault stays a row
    seconds, notes = time.perf_counter() - start, tuple(map(str, found))
    row = Row(name, _temperature(fitted), seconds=seconds, notes=notes, calibrator=fitted)
    if folds is None:
        return row
    try:
        with collected_warnings():  # which the fit on all samples gives too
            parts = (val.take(np.flatnonzero(folds != fold)) for fold in range(int(folds.max()) + 1))
            return replace(row, fold_fits=tuple(clone(calibrator).fit(part) for part in parts))
    except FAILURES as error:
        return replace(row, notes=(*row.notes, f"not cross-validated: {error}"))


def _temperature(calibrator: Calibrator) -> float | None:
    t = getattr(calibrator, "temperature_", None)
    return float(t) if isinstance(t, float) else None


def _log_probs(calibrator: Any, scores: Scores) -> Floats:
    """Log-probabilities in double precision; without a calibrator those of the classifier."""
    if calibrator is None:
        return np.asarray(log_softmax(scores.logits, axis=1))
    return scores.of_rows(to_numpy(calibrator.predict_log_proba(scores)).astype(np.float64))


def _held_out(row: Row, val: Scores, folds: Labels | None) -> Floats:
    """Log-probabilities of VAL by the fits without each fold; by the fit on all where there are none."""
    if folds is None or not row.fold_fits:
        return _log_probs(row.calibrator, val)
    log_p = np.empty(val.shape)
    for fold, fitted in enumerate(row.fold_fits):
        log_p[folds == fold] = _log_probs(fitted, val.take(np.flatnonzero(folds == fold)))
    return log_p


class _Losses(NamedTuple):
    """Losses and predictions of the samples that count."""

    losses: Floats
    prediction: NDArray[np.intp]

    @classmethod
    def of(cls, scores: Scores, log_p: Floats) -> _Losses:
        """Read them off log-probabilities.

        Where a class gets the probability 0, though its logit is finite, a label of that class will come one day.
        """
        losses = -log_p[np.arange(len(log_p)), scores.labels]
        if (np.isneginf(log_p) & ~np.isneginf(scores.logits)).any():
            losses = np.full(len(losses), np.inf)
        counts = scores.weights > 0
        return cls(losses[counts], log_p.argmax(axis=1)[counts])


def _best(losses: Mapping[str, _Losses], p: Predictions, seed: int) -> tuple[str, ...]:
    """Return the methods that can have the least mean loss; infinite losses cannot."""
    finite = {name: each.losses for name, each in losses.items() if np.isfinite(each.losses).all()}
    return can_be_best(finite, p.weights, p.clusters, LEVEL, seed, NEGLIGIBLE) if finite else ()


def _beside(row: Row, own: _Losses, chosen: _Losses, p: Predictions, names: Sequence[Any] | None, seed: int) -> Row:
    """Add what a method gains and changes beside the chosen one, on the same samples."""
    gain = Estimate(-np.inf if np.isinf(own.losses).any() else np.inf)
    if np.isfinite(own.losses).all() and np.isfinite(chosen.losses).all():
        gain = estimate(mean_of(chosen.losses - own.losses), p.weights, LEVEL, p.clusters, seed)
    falls = []
    for k in np.unique(p.labels).tolist():
        rows, w = p.labels == k, p.weights[p.labels == k]
        other, its = (float(w @ (each.prediction[rows] == k) / w.sum()) for each in (own, chosen))
        if other < its - 1e-12:
            falls.append(Recall(k if names is None else names[k], its, other))
    falls.sort(key=lambda fall: fall.other - fall.chosen)
    changed = float(p.weights @ (own.prediction != chosen.prediction) / p.weights.sum())
    return replace(row, gain=gain, changed=changed, falls=tuple(falls))


def _choose(
    rows: Mapping[str, Row], held: Mapping[str, _Losses], p: Predictions, reason: str, seed: int
) -> tuple[str, str]:
    """Return the method to use, and why."""
    fitted = {name: row.calibrator for name, row in rows.items() if row.calibrator is not None}
    if not fitted or p.errors == 0:
        return NONE, "no errors" if fitted else "no fit"
    candidates = [name for name, each in fitted.items() if each.map_.keeps_arg_max] or list(fitted)
    first = min(candidates, key=lambda name: FIRST_CHOICES.get(fitted[name].method, len(FIRST_CHOICES)))
    if reason or len(fitted) == 1:
        return first, reason or "alone"
    among = _best({name: held[name] for name in candidates if name in held}, p, seed)
    if first in among or not among:
        return first, "first"
    return min(among, key=lambda name: float(p.weights @ held[name].losses)), "cv"


def _alternatives(rows: Mapping[str, Row], val: Scores) -> tuple[str, ...]:
    """Name cross-validated methods with a gain, the largest first; where a class has no label none that changes any."""
    missing = len(np.unique(val.labels[val.weights > 0])) < val.n_classes
    found = []
    for name, row in rows.items():
        if row.nll is None or row.gain is None or row.calibrator is None or (missing and row.changed):
            continue
        if row.gain.low > NEGLIGIBLE or (name == "structured" and row.gain.value > 0):
            found.append(row)
    return tuple(row.method for row in sorted(found, key=lambda row: -float(row.gain or 0)))
