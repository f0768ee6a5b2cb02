"""The front door: each verb takes data in any form, and is a command with the same parameters.

What a calibrator was read with it remembers, so that later calls need options for what differs alone.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Unpack

import numpy as np

from attemper import applying
from attemper.applying import READ, Applied, Evaluated, as_fitted, fill, hashes, read_again
from attemper.calibrators import Calibrator, GroupedCalibrator, MultiLabelCalibrator, load, method_of
from attemper.calibrators.label_model import Noise
from attemper.data.checking import check
from attemper.data.files import expand, pieces, sha256_of
from attemper.data.reading import Read, is_paths, read, remembered
from attemper.data.scores import Scores
from attemper.errors import InputError, listed, nearest, warn
from attemper.parallel import sketch_files, zeros_of_files
from attemper.sketches import Sketch, sketch_scores

if TYPE_CHECKING:  # imported where they are used, so that a fit need not wait for them
    from attemper.comparison import Comparison
    from attemper.decisions import Decision
    from attemper.monitoring import MonitorReport

__all__ = ["apply", "check", "compare", "decide", "evaluate", "fit", "load", "monitor", "read", "sketch"]

IN_MEMORY = 256 << 20  # bytes of files that are read whole; larger ones become sketches where a sketch is enough
CalibratorOrPath = Calibrator | str | os.PathLike[str]


def fit(
    data: Any,
    labels: Any = None,
    *,
    method: str | Calibrator | type[Calibrator] = "bayes",
    noise: Noise = 0,
    n_jobs: int | None = None,
    **options: Any,
) -> Calibrator:
    """Fit a calibrator to scores and labels.

    Parameters
    ----------
    data : array, pair (array, labels), data frame, path, pattern, list of paths, `Scores`, or one or several `Sketch`es
        Files are read whole; more than 256 MiB of them become sketches where the method needs no more.
    labels : array; for frames and files a name
    method : name, class or calibrator
        Its name; bayes never changes a prediction.
    noise : 0, "unknown", or a share
        Share of the labels that are wrong, or "unknown".
    n_jobs : int, optional
        Processes that sketch large files.
    **options
        Those of `read`: with ``groups`` the result is a `GroupedCalibrator`, with ``multi_label`` a
        `MultiLabelCalibrator`. All others are parameters of the method.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> logits = 3 * rng.normal(size=(2000, 5))
    >>> labels = (logits / 2 + rng.gumbel(size=logits.shape)).argmax(axis=1)  # drawn at T = 2
    >>> round(fit(logits, labels, method="ts").temperature_, 2)
    1.98
    """
    reading = {name: value for name, value in options.items() if name in READ and value is not None}
    params = {name: value for name, value in options.items() if name not in READ}
    calibrator = _unfitted(method, noise, params, reading)
    if (summed := _sketch_in(data)) is not None:
        given = {"labels": labels, **reading}
        extra = next((name for name, value in given.items() if value is not None and name != "classes"), None)
        if extra is not None:
            raise InputError(f"{extra}: a sketch has no rows; pass it where the sketch is made", extra)
        return calibrator.fit_sketch(summed)
    paths = expand(data) if is_paths(data) and calibrator.sketch_parts is not None else []
    if sum(map(applying.size_of, paths)) > IN_MEMORY:
        summed, scores = _sketched(calibrator, paths, labels, reading, n_jobs)
    else:
        scores = read(data, labels, **reading)
    # What a calibrator shares with reading, so that its own `fit` reads the same.
    shared = {"input": scores.input, "zeros_as": reading.get("zeros_as")}
    shared["classes"] = None if scores.classes is None else list(scores.classes)
    prefix = "base__" if isinstance(calibrator, GroupedCalibrator) else ""
    calibrator.set_params(**{f"{prefix}{name}": value for name, value in shared.items()})
    fitted = calibrator.fit(scores) if summed is None else calibrator.fit_sketch(summed)
    fitted.read_ = remembered(data, {"labels": labels, **reading}, scores)
    fitted.fitted_on_ = hashes(data)
    return fitted


def _unfitted(method: Any, noise: Any, params: dict[str, Any], reading: dict[str, Any]) -> Calibrator:
    """Return a calibrator to fit; what an instance says of the input counts for reading, too."""
    if reading.get("multi_label"):
        if method not in ("bayes", "multilabel") or params or noise != 0:
            raise InputError("multi_label: it has a method of its own; leave method and noise out", "multi_label")
        return MultiLabelCalibrator()
    made = method_of(method, noise)
    known = made.get_params(deep=False)
    for name in params:
        if name not in known:
            raise InputError(f"{name}: {made.method} has {listed(known)}.{nearest(name, [*known, *READ])}", name)
    made.set_params(**params)
    if isinstance(method, Calibrator) and not isinstance(method, GroupedCalibrator):
        for name, value in made._options().items():
            if value is not None and not (name == "input" and value == "logits"):
                reading.setdefault(name, value)
    if reading.get("groups") is not None and not isinstance(made, GroupedCalibrator):
        return GroupedCalibrator(made)
    return made


def _sketched(
    calibrator: Calibrator, paths: Sequence[str], labels: Any, reading: dict[str, Any], n_jobs: int | None
) -> tuple[Sketch, Scores]:
    """Return a sketch of files, and scores of the first; probabilities are looked through for zeros first."""
    _warn_of_cases(reading)
    first = next(pieces(paths[:1], labels=labels, **reading)).scores
    options = dict(reading)
    if first.input == "probs" and options.get("zeros_as") is None:
        options["zeros_as"] = zeros_of_files(paths, n_jobs=n_jobs, labels=labels, **reading)
    return sketch_files(paths, parts=calibrator.sketch_parts or (), n_jobs=n_jobs, labels=labels, **options), first


def _warn_of_cases(reading: Mapping[str, Any]) -> None:
    if reading.get("clusters") is not None:
        warn("clusters: a sketch counts every row as a case of its own, so the interval of T will be too narrow")


def _sketch_in(data: Any) -> Sketch | None:
    """Return the sum of sketches, or of those in files, in their order; None of other data."""
    parts: Any = data if isinstance(data, list | tuple) else [data]
    if is_paths(data) and all(str(path).endswith(".json") for path in parts):
        parts = [Sketch.load(path) for path in expand(data)]
    return reduce(Sketch.__add__, parts) if len(parts) and isinstance(parts[0], Sketch) else None


def sketch(data: Any, labels: Any = None, **reading: Unpack[Read]) -> Sketch:
    """Sketch data in one pass: a small table that adds to others, and is enough to fit one temperature.

    Parameters
    ----------
    data : array, pair (array, labels), data frame, path, pattern, list of paths or `Scores`
    labels : array; for frames and files a name
    **reading
        Those of `read`; ``joblib.parallel_config(n_jobs=8)`` sketches files in parallel.

    Examples
    --------
    >>> (sketch([[2.0, 1.0], [0.0, 3.0]], [0, 0]) + sketch([[1.0, 4.0]], [1])).n_samples
    3
    """
    _warn_of_cases(reading)
    if is_paths(data):
        return sketch_files(expand(data), labels=labels, **reading)
    return sketch_scores(read(data, labels, **reading), zeros_as=reading.get("zeros_as"))


def apply(calibrator: CalibratorOrPath, data: Any, *, priors: Any = None, **reading: Unpack[Read]) -> Applied:
    """Return calibrated probabilities as a table, and what the rule decides, where the calibrator has one.

    Parameters
    ----------
    calibrator : calibrator, or the path of one
    data : array, data frame, path, pattern, list of paths or `Scores`
        Labels are not needed.
    priors : shares of the classes, in their order or by name; or "estimate", optional
        Shares of the classes in these data, or "estimate".
    **reading
        Those of `read` that differ from what the calibrator remembers.

    Returns
    -------
    Applied
        The columns of the data (none for arrays), then prediction, confidence, one probability a class; with a rule
        also refer, and of sets the set. Columns of the same names are replaced.

    Examples
    --------
    >>> val = {"logit_cat": [2.0, 0.0, 1.0], "logit_dog": [0.0, 2.0, 0.0], "label": ["cat", "dog", "dog"]}
    >>> cal = fit(val, method="ts")
    >>> list(apply(cal, {"id": [7], "logit_cat": [1.0], "logit_dog": [0.5]}))
    ['id', 'logit_cat', 'logit_dog', 'prediction', 'confidence', 'prob_cat', 'prob_dog']
    """
    cal = as_fitted(calibrator)
    options = fill(cal, data, reading, labelled=False)
    found = list(applying.tables(applying.for_priors(cal, data, priors, options), data, options))
    return Applied({name: np.concatenate([table[name] for table in found]) for name in found[0]})


def evaluate(
    data: Any,
    calibrator: CalibratorOrPath | None = None,
    *,
    labels: Any = None,
    metrics: Sequence[str] | str | None = None,
    by: Any = None,
    confidence_level: float = 0.95,
    **reading: Unpack[Read],
) -> Evaluated:
    """Evaluate scores as they are, and after calibration: metrics with confidence intervals.

    Parameters
    ----------
    data : array, pair (array, labels), data frame, path, pattern, list of paths or `Scores`
    calibrator : calibrator, or the path of one, optional
        Evaluate its probabilities, too.
    metrics : names, optional
        Such as accuracy, nll, brier, ece.
    by : array; for frames and files a name, optional
        Evaluate each group of this column, too. [groups]
    confidence_level : float
        Level of the intervals.
    labels, **reading
        Those of `read`, for what the calibrator does not remember.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> logits = 3 * rng.normal(size=(2000, 5))
    >>> labels = (logits / 2 + rng.gumbel(size=logits.shape)).argmax(axis=1)
    >>> print(evaluate((logits, labels), fit(logits, labels), metrics=["accuracy", "ece"]))
    metric    before                  after
    accuracy  0.570 (0.548 to 0.592)  0.570 (0.548 to 0.592)
    ece       0.178 (0.158 to 0.197)  0.023 (0.000 to 0.032)
    """
    cal = None if calibrator is None else as_fitted(calibrator)
    options = fill(cal, data, {"labels": labels, **reading})
    by = reading.get("groups") if by is None else by
    scores = read_again(data, options)
    if set(getattr(cal, "fitted_on_", ())) & set(hashes(data)):
        warn("data: the calibrator was fitted on this file, so the results after calibration look too good")
    groups = None if by is None or scores.multi_label else read(data, **{**options, "groups": by}).groups
    return applying.evaluated(cal, scores, groups, metrics, confidence_level)


def compare(
    val: Any,
    test: Any = None,
    *,
    methods: Sequence[str | Calibrator | type[Calibrator]] | None = None,
    calibrator: CalibratorOrPath | None = None,
    noise: Noise = 0,
    cv: int = 5,
    seed: int = 0,
    labels: Any = None,
    allow_shared: bool = False,
    **reading: Unpack[Read],
) -> Comparison:
    """Compare methods: fit each on VAL, choose one by cross-validation, and evaluate all on TEST.

    Parameters
    ----------
    val, test : array, pair (array, labels), data frame, path, pattern, list of paths or `Scores`
        TEST has no part in the choice.
    methods : names, classes or calibrators, optional
        Names of methods; by default all.
    calibrator : calibrator, or the path of one, optional
        One in use, to evaluate on TEST beside the others.
    noise : 0, "unknown", or a share
        Share of the labels that are wrong, or "unknown".
    cv : int
        Folds; 0 for no cross-validation.
    seed : int
        Of folds and resamples.
    allow_shared : bool
        Clusters of VAL and TEST may have the same ids.
    labels, **reading
        Those of `read`.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> logits = 3 * rng.normal(size=(600, 5))
    >>> labels = (logits / 2 + rng.gumbel(size=logits.shape)).argmax(axis=1)
    >>> best = compare((logits, labels), methods=["ts", "bayes"])
    >>> best.chosen, best.calibrator.method
    ('bayes', 'bayes')
    """
    from attemper.comparison import compare_scores

    cal = None if calibrator is None else as_fitted(calibrator)
    options: dict[str, Any] = {"labels": labels, **reading}
    scores = applying.read_pair(cal, val, test, options, allow_shared=allow_shared)
    found = compare_scores(*scores, methods=methods, calibrator=cal, noise=noise, cv=cv, seed=seed)
    if found.calibrator is not None:
        found.calibrator.read_ = remembered(val, fill(cal, val, options), scores[0])
        found.calibrator.fitted_on_ = hashes(val)
    paths = [path for data in (val, test) if is_paths(data) for path in expand(data)]
    return replace(found, files={path: sha256_of(path) for path in paths})


def decide(
    val: Any,
    test: Any = None,
    *,
    calibrator: CalibratorOrPath | None = None,
    method: str | Calibrator | type[Calibrator] = "bayes",
    noise: Noise = 0,
    max_miss: float | Mapping[Any, float] | None = None,
    budget: float | None = None,
    costs: Mapping[Any, float] | None = None,
    coverage: float | None = None,
    by: Literal["class", "group"] | None = None,
    guarantee_level: float | None = 0.95,
    seed: int = 0,
    labels: Any = None,
    allow_shared: bool = False,
    **reading: Unpack[Read],
) -> Decision:
    """Choose which cases to refer, or sets of classes, with a guarantee; then test the rule.

    Without a calibrator VAL is divided: a fifth fits one, the rest chooses the rule. Pass one of the four goals.

    Parameters
    ----------
    val, test : array, pair (array, labels), data frame, path, pattern, list of paths or `Scores`
        The rule is chosen on VAL and tested on TEST.
    calibrator : calibrator, or the path of one, optional
        One that was not fitted on VAL.
    method : name, class or calibrator
        Name of the method to fit.
    noise : 0, "unknown", or a share
        Share of the labels that are wrong, or "unknown".
    max_miss : float, or mapping of classes to floats, optional
        Share of the decided that may be wrong; or mel=0.1.
    budget : float, optional
        Refer at most this share, the least confident.
    costs : mapping, optional
        Of a referral and a miss: refer=1,miss=5,mel=50.
    coverage : float, optional
        Sets hold the true class with this probability.
    by : "class" or "group", optional
        The coverage holds for each class or group.
    guarantee_level : float; of sets also None: on average over draws
        Confidence of the guarantee.
    seed : int
        Of divisions and draws.
    allow_shared : bool
        Clusters of VAL and TEST may have the same ids.
    labels, **reading
        Those of `read`.
    """
    from attemper.decisions import decide_scores

    cal, options = None if calibrator is None else as_fitted(calibrator), {"labels": labels, **reading}
    scores = applying.read_pair(cal, val, test, options, allow_shared=allow_shared)
    if cal is not None and set(getattr(cal, "fitted_on_", ())) & set(hashes(val)):
        raise InputError("calibrator: it was fitted on VAL. Use other samples, or leave it out.", "calibrator")
    unit = options.get("clusters") or getattr(getattr(cal, "read_", None), "clusters", None)
    decision = decide_scores(
        *scores, calibrator=cal, method=method, noise=noise, max_miss=max_miss, budget=budget, costs=costs,
        coverage=coverage, by=by, guarantee_level=guarantee_level, seed=seed,
        unit=unit if isinstance(unit, str) else "cluster",
    )  # fmt: skip
    if cal is None and decision.calibrator is not None:
        decision.calibrator.read_ = remembered(val, options, scores[0])
        decision.calibrator.fitted_on_ = hashes(val)
    return decision


def monitor(
    calibrator: CalibratorOrPath,
    data: Any,
    *,
    state: Any = None,
    reference: Any = None,
    alpha: float = 0.05,
    labels: Any = None,
    **reading: Unpack[Read],
) -> MonitorReport:
    """Test whether a calibrator still fits new data; call it after every batch, for as long as you like.

    Parameters
    ----------
    calibrator : calibrator, or the path of one
    data : array, pair (array, labels), data frame, path, pattern, list of paths or `Scores`
        Each file is a batch, in the order of time.
    state : path, or an earlier report, optional
        File that keeps the tests from batch to batch.
    reference : as ``data``, optional
        Labelled data as they were, to compare with.
    alpha : float
        Probability of a false alarm, over all time.
    labels, **reading
        Those of `read`, for what the calibrator does not remember.
    """
    from attemper.monitoring import monitor_scores

    cal, options, keep = as_fitted(calibrator), {"labels": labels, **reading}, state
    before = None if reference is None else read_again(reference, fill(cal, reference, reading))
    for batch in expand(data) if is_paths(data) else [data]:
        scores = applying.read_labels_or_none(cal, batch, options)
        known = {"sha256": sha256_of(batch), "name": Path(batch).stem} if is_paths(data) else {}
        report = monitor_scores(cal, scores, state=keep, reference=before, alpha=alpha, **known)
        keep = state if isinstance(state, str | os.PathLike) else report
    return report
