"""Methods side by side: one is selected by cross-validation on validation data, all are evaluated on test data."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from attemper._checks import whole
from attemper.calibrators import METHODS, Calibrator
from attemper.comparison.held_out import HeldOut
from attemper.comparison.rows import Comparison, CrossValidated, Row
from attemper.comparison.selection import conclude
from attemper.data.arrays import to_numpy
from attemper.data.ids import as_ids
from attemper.data.overlap import warn_of_shared_rows
from attemper.data.scores import LabelledScores, Scores
from attemper.errors import AttemperError, AttemperWarning, InputError, InputTypeError
from attemper.maps import Map, ScaleMap
from attemper.metrics.bootstrap import estimate
from attemper.metrics.evaluation import evaluate_predictions
from attemper.metrics.predictions import Predictions
from attemper.metrics.referral import referral_area

__all__ = ["Comparison", "CrossValidated", "Row", "compare"]

FOLDS = 5
LARGE = 500_000  # validation logits beyond which two folds, on half of the samples each, are as good; of time


def compare(
    val: LabelledScores,
    test: LabelledScores,
    methods: Sequence[str | Calibrator] | None = None,
    *,
    noisy: bool = False,
    noise: str | None = None,
    cv: int | None = None,
    val_clusters: Any = None,
    test_clusters: Any = None,
    confidence_level: float | None = 0.95,
    seed: int = 0,
    tick: Callable[[str], None] = lambda method: None,
) -> Comparison:
    """Fit each method on ``val``, select one by cross-validation on ``val``, and evaluate all on ``test``.

    Selects the first choice (structured, else bayes, else ts, of those compared), which is fixed in advance, unless
    another method has a lower NLL on held-out samples of ``val``, beyond chance. Of methods that are equally good, the
    simpler one that keeps predictions is selected. The test data have no part in it; they show which methods can have
    the lowest NLL (`attemper.metrics.compare_with_best`).

    Parameters
    ----------
    val, test : Scores
        With labels. The test labels are taken as they are. Methods fit one map for all groups; the groups of ``test``
        stay with the predictions of each row, for metrics by group.
    methods : names, or calibrators with parameters of their own, of which clones are fitted; by default all
        A method that fails has a row with the reason. So has one with K² parameters for more than 50 classes, unless
        it is named.
    noisy, noise
        Whether the validation labels may be wrong, and how ("uniform", "classwise"). Calibrators keep their own. Wrong
        labels cannot select, as they favour maps that are too soft, so the first choice is recommended.
    cv : int, optional
        Number of folds; 0: the first choice is recommended. By default 5, and 2 for more than 500 000 validation
        logits.
    val_clusters, test_clusters : arrays of shape (n_samples,), optional
        Which samples are the same case (patient, document): a case is in one fold, and intervals resample whole cases.
        Pixels are of their image by default.
    confidence_level : float, optional
        None: metrics without intervals, as plain numbers.
    seed : int
    tick : called with the name of each method before it is fitted

    Examples
    --------
    >>> from attemper import HistogramBinning, Scores, datasets
    >>> data = datasets.load()
    >>> val = Scores.from_logits(data.val_logits, data.val_labels)
    >>> test = Scores.from_logits(data.test_logits, data.test_labels)
    >>> found = compare(val, test, ["ts", "isotonic"], confidence_level=None)
    >>> [row.method for row in found.rows], found.recommended, found.confidence_set
    (['none', 'ts', 'isotonic'], 'ts', ('ts',))
    >>> compare(val, test, [HistogramBinning(n_bins=5)], confidence_level=None).rows[1].method
    'histogram(n_bins=5)'
    """
    for name, scores in {"val": val, "test": test}.items():
        if not isinstance(scores, LabelledScores):
            what = "a Scores without labels" if isinstance(scores, Scores) else type(scores).__name__
            raise InputTypeError(
                f"{name}: expected scores with labels, got {what}. Use Scores.from_logits(logits, labels)."
            )
    if val.n_classes != test.n_classes:
        raise InputError(f"validation has {val.n_classes} classes, test has {test.n_classes}; they must agree")
    if val.classes is not None and val.classes != test.classes and set(val.classes) == set(test.classes or ()):
        raise InputError(
            f"classes: the columns of validation are {val.classes}, those of test {test.classes}. Put them in the same "
            "order."
        )
    named = _named(METHODS if methods is None else methods, {"noisy": noisy, "noise": noise}, val)
    cases = [
        scores.clusters if given is None else as_ids(given, len(scores), name)
        for given, scores, name in ((val_clusters, val, "val_clusters"), (test_clusters, test, "test_clusters"))
    ]
    if val_clusters is not None:
        val = replace(val, cluster_ids=cases[0])
    val = replace(val, groups=None)  # methods fit one map; groups of test are for metrics by group
    warn_of_shared_rows(val, test)
    noisy = noisy or any(getattr(calibrator, "labels", None) == "noisy" for calibrator in named.values())
    held_out = HeldOut(val, cases[0], _n_folds(cv, val), noisy, seed)
    rows = []
    for name, calibrator in {"none": None, **named}.items():
        tick(name)
        most = None if calibrator is None else calibrator.max_classes
        if methods is None and most is not None and val.n_classes > most:
            use = "methods"
            why = f"left out, as it has {val.n_classes**2} parameters; to include it use {use}"
            rows.append(Row(name, failure=why))
            continue
        row = _row(name, calibrator, val, test, cases[1], confidence_level, seed)
        if row.map is not None:
            failure = _failure_of(lambda: held_out.add(name, calibrator), calibrator)  # noqa: B023
            if failure:
                row = replace(row, notes=(*row.notes, f"{name} cannot be selected by cross-validation: {failure}"))
        rows.append(row)
    return conclude(rows, named, held_out, test, cases[1], confidence_level or 0.95, seed)


def _n_folds(cv: int | None, val: LabelledScores) -> int:
    if cv is None:
        return FOLDS if len(val) * val.n_classes <= LARGE else 2
    if whole("cv", cv, at_least=0) == 1:
        raise InputError(f"cv={cv!r}: expected 2 folds or more, or 0 for no cross-validation", param="cv")
    return cv


def _named(methods: Iterable[str | Calibrator], labels: dict[str, Any], val: LabelledScores) -> dict[str, Calibrator]:
    """Return an unfitted calibrator for each method, by the name of its row."""
    if isinstance(methods, str | Calibrator):
        raise InputTypeError(f"methods: expected a list such as [{methods!r}], got {type(methods).__name__}")
    found: dict[str, Calibrator] = {}
    for given in methods:
        if isinstance(given, Calibrator):
            calibrator: Calibrator = clone(given).set_params(classes=None)
            _check_input(calibrator, val)
            method = getattr(given, "method", type(given).__name__)
            _, _, parameters = repr(clone(calibrator).set_params(input="logits", zeros_as=None)).partition("(")
            name = method if parameters == ")" else f"{method}({' '.join(parameters.split())}"
        elif isinstance(given, str) and given in METHODS:
            name, calibrator = given, METHODS[given].for_labels(**labels)
            calibrator.set_params(input=val.input, zeros_as=val.zeros_as)
        else:
            raise InputError(
                f"the method {given!r} is unknown; known are {', '.join(METHODS)}"
                + ", and calibrators such as TemperatureScaling()"
            )
        if name in found:
            raise InputError(f"the method {name!r} is named twice; name it once")
        found[name] = calibrator
    return found


def _check_input(calibrator: Calibrator, val: LabelledScores) -> None:
    """Refuse a calibrator for another kind of scores than these."""
    name = type(calibrator).__name__
    if calibrator.input != val.input:
        raise InputError(
            f"methods: expected calibrators of {val.input}, as val has, got {name}(input={calibrator.input!r}). Use "
            f"{name}(input={val.input!r}), or Scores.from_{calibrator.input} if val holds those."
        )
    if calibrator.zeros_as is not None and calibrator.zeros_as != val.zeros_as:
        raise InputError(
            f"methods: expected zeros_as={val.zeros_as}, as val has, got {name}(zeros_as={calibrator.zeros_as}). Use "
            "one value for both."
        )


def _failure_of(attempt: Callable[[], object], calibrator: Calibrator | None) -> str:
    """Do something with a calibrator; return why it failed, if it did."""
    try:
        attempt()
    except (AttemperError, ArithmeticError, np.linalg.LinAlgError, MemoryError) as error:
        return str(error) or type(error).__name__
    except Exception as error:
        if calibrator is None or type(calibrator).__module__.startswith("attemper."):
            raise
        return f"{type(error).__name__}: {error}"  # another package's fault stays a row
    return ""


def _row(
    method: str,
    calibrator: Calibrator | None,
    val: LabelledScores,
    test: LabelledScores,
    clusters: NDArray[Any] | None,
    confidence_level: float | None,
    seed: int,
) -> Row:
    fitted: Map = ScaleMap(1.0)
    temperature: float | None = None
    seconds, notes = 0.0, []
    if calibrator is not None:
        start = time.perf_counter()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", AttemperWarning)
            failure = _failure_of(lambda: calibrator.fit(val), calibrator)
        if failure:
            return Row(method, failure=failure)
        seconds = time.perf_counter() - start
        notes = [str(w.message) for w in caught]
        fitted, temperature = calibrator.map_, getattr(calibrator, "temperature_", None)
    double = replace(test, values=to_numpy(test.logits).astype(np.float64), input="logits", device=None)
    log_p = fitted.log_apply(double.values) if calibrator is None else calibrator.predict_log_proba(double)
    p = Predictions.of(test.labels, log_p, input="log_probs", clusters=clusters, groups=test.groups)
    weighted = p.weighted(test.weights)
    metrics: Any = evaluate_predictions(weighted, confidence_level, seed=seed)
    area: Any = None
    if weighted.right.any() and not weighted.right.all():
        statistic = referral_area.statistic(weighted)
        area = statistic.at(weighted.weights)
        if confidence_level is not None:
            area = estimate(statistic, weighted.weights, confidence_level, seed=seed, clusters=weighted.clusters)
    w = np.ones(len(p)) if test.weights is None else test.weights
    moved = 0.0 if fitted.keeps_arg_max else float(w @ (p.prediction != double.values.argmax(axis=1)) / w.sum())
    return Row(
        method,
        seconds,
        temperature,
        metrics=metrics,
        referral_area=area,
        changed=moved,
        notes=tuple(notes),
        map=fitted,
        predictions=p.without_probs(),
    )
