"""From a comparison to the numbers of the page; their amount does not grow with the data."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attemper._result import Estimate
from attemper._typing import Floats
from attemper.calibrators.base import METHODS, Calibrator
from attemper.comparison import IN_USE, LEVEL, NONE
from attemper.data.scores import Scores
from attemper.decisions import Outcome, outcome_of
from attemper.metrics import Evaluation, Reliability
from attemper.metrics.evaluation import evaluate_predictions
from attemper.metrics.intervals import share_of
from attemper.metrics.predictions import Predictions
from attemper.metrics.reliability import reliability_of

MOST_CLASSES = 20  # with a row of their own
IN_MATRIX = 12  # classes of a confusion matrix; of more, the most frequent confusions are listed
PAIRS = 15
SHARES = (0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95)  # referred at the thresholds shown
START = 0.2  # the share at which the control starts, where no rule has a threshold
ERRORS = 40  # wrong predictions in the list, at most


@dataclass(frozen=True)
class Means:
    """What the verdict begins with. Of one column, the mean risk and the share of positives."""

    confidence: float
    right: Estimate
    gap: Estimate
    ece: Estimate
    nll: Estimate


@dataclass(frozen=True)
class ClassRow:
    """A true class: how much of it is found, and what its predictions are worth."""

    name: str
    n: float
    found: Estimate | None  # share of the true samples that are predicted as such
    found_before: float | None  # by the classifier alone
    predicted: float
    right: Estimate | None  # share of the predictions of the class that are right
    taken_for: tuple[str, float] | None  # the most frequent wrong prediction, and how often
    confidence: tuple[float | None, float | None]  # mean of its predictions, before and after


@dataclass(frozen=True)
class Confusion:
    """How often each class is predicted as each: a matrix, or the most frequent pairs of many classes."""

    matrix: list[list[float]] = field(default_factory=list)
    pairs: list[tuple[str, str, float]] = field(default_factory=list)


@dataclass(frozen=True)
class Step:
    """What happens at one threshold; ``by_class`` has the weights referred, caught and missed of each class."""

    threshold: float
    referred: Estimate
    caught: Estimate | None  # share of the errors that are referred
    missed: float
    error_rate: Estimate | None  # of the decided
    by_class: list[tuple[float, float, float]]


@dataclass(frozen=True)
class ErrorRow:
    """A wrong prediction; ``step`` is the first threshold that has it referred."""

    id: str
    case: str
    label: str
    prediction: str
    confidence: float
    step: int


@dataclass(frozen=True)
class Summary:
    """Everything that the page shows."""

    comparison: Any
    described: str  # the row that the page is about: "in use", the chosen method, or "none"
    calibrator: Calibrator | None
    on_test: bool  # else on held-out validation samples
    names: list[str]  # of the classes
    predictions: tuple[Predictions, Predictions]  # before and after
    means: tuple[Means, Means]
    tables: tuple[Reliability, Reliability]
    changed: float  # share of the predictions that the calibrator changes
    classes: list[ClassRow]
    n_other_classes: int  # pooled in the last of these rows
    confusion: Confusion
    steps: list[Step]
    start: int  # the step that is shown first
    errors: list[ErrorRow]
    n_errors: float
    groups: tuple[Evaluation, Evaluation] | None
    rule: Any
    outcome: Outcome | None
    files: dict[str, str]  # SHA-256 by path
    versions: dict[str, str]

    @property
    def n(self) -> float:
        """Weight of the samples."""
        return float(self.predictions[1].weights.sum())

    @property
    def n_cases(self) -> int | None:
        """How many clusters there are; None where each sample is a case."""
        case = self.predictions[1].clusters
        return None if case is None else int(case.max()) + 1

    @property
    def is_risk(self) -> bool:
        """Whether one column was passed, the probability of the positive class."""
        return self.predictions[0].one_column

    @property
    def samples(self) -> str:
        """What the figures are of."""
        weighted = "weighted " if (self.predictions[1].weights != 1).any() else ""
        if self.on_test:
            return f"{weighted}test samples"
        held = "each held out of a fit" if self.comparison.n_folds else "which the calibration was fitted on"
        return f"{weighted}validation samples, {held}"

    @property
    def is_calibrated(self) -> bool:
        """Whether there is something after calibration."""
        return self.described != NONE

    @property
    def method(self) -> str:
        """The name of the calibration."""
        return title_of(self.calibrator.method if self.calibrator is not None else self.described)


def title_of(method: str) -> str:
    """Return the name of a method for readers.

    >>> title_of("none"), title_of("my method")
    ('uncalibrated', 'my method')
    """
    return "uncalibrated" if method == NONE else getattr(METHODS.get(method), "title", "") or method


def summarise(comparison: Any) -> Summary:
    """Compute what the page shows, on test samples or, without any, on held-out validation samples."""
    part = "val" if comparison.test is None else "test"
    scores: Scores = getattr(comparison, part)
    w = scores.weights
    if (w % 1 != 0).any():  # no counts: scaled, so that they add up to the number of samples
        scores = scores.with_weights(w * scores.take(w > 0).n_samples / w.sum())
        comparison = replace(comparison, **{part: scores})
    described = IN_USE if any(row.method == IN_USE for row in comparison.rows) else comparison.chosen
    before, after = comparison.predictions(NONE), comparison.predictions(described)
    names = [str(name) for name in (range(scores.n_classes) if scores.classes is None else scores.classes)]
    place, class_names = _places(names, after)
    calibrator = comparison[described].calibrator
    rule = getattr(calibrator, "rule_", None)
    steps, start = _steps(after, getattr(rule, "threshold", None), place, len(class_names))
    return Summary(
        comparison=comparison,
        described=described,
        calibrator=calibrator,
        on_test=comparison.test is not None,
        names=names,
        predictions=(before, after),
        means=(_means(before), _means(after)),
        tables=(reliability_of(before), reliability_of(after)),
        changed=_mean(before.prediction != after.prediction, after.weights),
        classes=_classes(before, after, place, class_names, names),
        n_other_classes=len(names) - len(class_names) + 1 if len(names) > len(class_names) else 0,
        confusion=_confusion(names, after),
        steps=steps,
        start=start,
        errors=_errors(after, scores, [step.threshold for step in steps], names),
        n_errors=float(after.weights[~after.right].sum()),
        groups=None if after.groups is None else (_by_group(before), _by_group(after)),
        rule=rule,
        outcome=None if rule is None else _outcome(rule, after, names),
        files=_files(comparison, calibrator),
        versions=_versions(),
    )


def _means(p: Predictions) -> Means:
    confidence, right = p.pair
    w = p.weights
    found = evaluate_predictions(replace(p, groups=None), ("ece", "nll", "gap"), LEVEL)
    held = _share(right > 0, np.ones(len(p), dtype=bool), p)
    assert held is not None
    return Means(float(w @ confidence / w.sum()), held, found["gap"], found["ece"], found["nll"])


def _mean(values: Any, w: Floats) -> float:
    return float(w @ values / w.sum())


def _share(held: NDArray[np.bool_], of: NDArray[np.bool_], p: Predictions) -> Estimate | None:
    return share_of(held, of, p.weights, p.clusters, LEVEL)


def _places(names: Sequence[str], p: Predictions) -> tuple[NDArray[np.intp], list[str]]:
    """Return the row that each class has in tables, and the names of the rows; of many classes the last are pooled."""
    if len(names) <= MOST_CLASSES:
        return np.arange(len(names)), list(names)
    missed = np.bincount(p.labels, p.weights * ~p.right, len(names))
    n = np.bincount(p.labels, p.weights, len(names))
    own = np.sort(np.lexsort((-n, -missed))[:MOST_CLASSES])
    place = np.full(len(names), MOST_CLASSES)
    place[own] = np.arange(MOST_CLASSES)
    return place, [*(names[k] for k in own), f"{len(names) - MOST_CLASSES} others"]


def _classes(
    before: Predictions, after: Predictions, place: NDArray[np.intp], rows: Sequence[str], names: Sequence[str]
) -> list[ClassRow]:
    is_of, predicts, w = place[after.labels], place[after.prediction], after.weights
    found = []
    for k, name in enumerate(rows):
        own, those = is_of == k, predicts == k
        wrong = np.bincount(after.prediction[own & ~after.right], w[own & ~after.right], len(names))
        other = int(wrong.argmax())
        pooled = len(names) > len(rows) and k == len(rows) - 1
        confidence = [_mean(p.confidence[those], w[those]) if those.any() else None for p in (before, after)]
        found.append(
            ClassRow(
                name=name,
                n=float(w[own].sum()),
                found=_share(after.right, own, after),
                found_before=_mean(before.right[own], w[own]) if own.any() else None,
                predicted=float(w[those].sum()),
                right=_share(after.right, those, after),
                taken_for=(names[other], float(wrong[other])) if wrong[other] > 0 and not pooled else None,
                confidence=(confidence[0], confidence[1]),
            )
        )
    return found


def _confusion(names: Sequence[str], p: Predictions) -> Confusion:
    """Return the weight of each true class (row) by predicted class, or the most frequent confusions.

    >>> p = Predictions.of([0, 0, 1, 1], [[0.9, 0.1], [0.2, 0.8], [0.4, 0.6], [0.3, 0.7]])
    >>> _confusion(["a", "b"], p).matrix
    [[1.0, 1.0], [0.0, 2.0]]
    """
    n = len(names)
    if n <= IN_MATRIX:
        cells = np.bincount(p.labels * n + p.prediction, p.weights, n * n).reshape(n, n)
        return Confusion([[float(cell) for cell in row] for row in cells])
    wrong = ~p.right
    pairs, place = np.unique(p.labels[wrong] * n + p.prediction[wrong], return_inverse=True)
    weight = np.bincount(place, p.weights[wrong], len(pairs))
    order = np.argsort(-weight, kind="stable")[:PAIRS]
    return Confusion(pairs=[(names[pairs[i] // n], names[pairs[i] % n], float(weight[i])) for i in order])


def _steps(p: Predictions, threshold: float | None, place: NDArray[np.intp], n_rows: int) -> tuple[list[Step], int]:
    """Return what happens at some thresholds, and which of them is shown first: the rule's, if it has one."""
    shown = np.unique(np.quantile(p.confidence, SHARES, method="lower"))
    thresholds = np.unique([0.0, *shown, *([] if threshold is None else [threshold])])
    if threshold is not None:
        start = int(np.searchsorted(thresholds, threshold))
    else:
        start = int(np.searchsorted(thresholds, np.quantile(p.confidence, START, method="lower")))
    every, row, w = np.ones(len(p), dtype=bool), place[p.labels], p.weights
    steps = []
    for t in thresholds.tolist():
        referred = p.confidence <= t
        share = _share(referred, every, p)
        assert share is not None
        missed = ~referred & ~p.right
        counts = [np.bincount(row, w * some, n_rows) for some in (referred, referred & ~p.right, missed)]
        by_class = [(float(a), float(b), float(c)) for a, b, c in zip(*counts)]
        caught, rate = _share(referred, ~p.right, p), _share(~p.right, ~referred, p)
        steps.append(Step(t, share, caught, float(w @ missed), rate, by_class))
    return steps, start


def _errors(p: Predictions, scores: Scores, thresholds: Sequence[float], names: Sequence[str]) -> list[ErrorRow]:
    """Return the most confident errors, with their ids or the numbers of their rows."""
    counted = np.flatnonzero(scores.weights > 0)
    rows = counted if scores.index is None else scores.index[counted]
    wrong = np.flatnonzero(~p.right)
    chosen = wrong[np.argsort(-p.confidence[wrong], kind="stable")[:ERRORS]]
    step = np.searchsorted(thresholds, p.confidence[chosen], side="left")
    cases = None if scores.clusters is None or scores.numbered else scores.clusters[counted]
    return [
        ErrorRow(
            id=f"row {rows[i]}" if scores.ids is None else str(scores.ids[counted[i]]),
            case="" if cases is None else str(cases[i]),
            label=names[p.labels[i]],
            prediction=names[p.prediction[i]],
            confidence=float(p.confidence[i]),
            step=int(s),
        )
        for i, s in zip(chosen.tolist(), step.tolist())
    ]


def _by_group(p: Predictions) -> Evaluation:
    return evaluate_predictions(p, ("gap", "accuracy", "ece"), LEVEL)


def _outcome(rule: Any, p: Predictions, names: Sequence[str]) -> Outcome:
    options: dict[str, Any] = {"groups": p.groups, "clusters": p.clusters, "sample_weight": p.weights}
    return outcome_of(rule, p.probs, p.labels, classes=names, confidence_level=LEVEL, **options)


def _files(comparison: Any, calibrator: Any) -> dict[str, str]:
    """Return the SHA-256 of the files that were compared, and of others that the calibrator was fitted on."""
    found = dict(comparison.files)
    fitted = [sha256 for sha256 in getattr(calibrator, "fitted_on_", ()) if sha256 not in found.values()]
    return found | {f"file {i} of the fit": sha256 for i, sha256 in enumerate(fitted, 1)}


def _versions() -> dict[str, str]:
    from attemper._version import __version__

    found = {name: version(name) for name in ("numpy", "scipy", "scikit-learn")}
    return {"attemper": __version__, "Python": platform.python_version(), **found}
