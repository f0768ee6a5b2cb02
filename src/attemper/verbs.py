"""The front door: each verb takes data in any form, and is a command with the same parameters.

A calibrator remembers the options that its data were read with; later calls need options only for what differs.
"""

from __future__ import annotations

import inspect
import operator
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import reduce, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar, Unpack, cast

import numpy as np

from attemper import applying
from attemper.applying import READ, Applied, Evaluated, as_fitted, fill
from attemper.calibrators import Calibrator, GroupedCalibrator, MultiLabelCalibrator, load, method_of
from attemper.calibrators.label_model import Noise
from attemper.calibrators.registry import reads_like
from attemper.data.checking import check
from attemper.data.files import expand, pieces
from attemper.data.frames import IDS
from attemper.data.reading import Read, ReadOptions, is_paths, is_table, read, remembered
from attemper.data.scores import Scores
from attemper.data.shared import was_fitted_on
from attemper.errors import InputError, listed, nearest, warn
from attemper.parallel import sketch_files, zeros_of_files
from attemper.sketches import Sketch, sketch_scores

if TYPE_CHECKING:  # imported where they are used, so that a fit need not wait for them
    from attemper.comparison import Comparison
    from attemper.decisions import Decision
    from attemper.monitoring import MonitorReport

__all__ = ["apply", "check", "compare", "decide", "evaluate", "fit", "load", "monitor", "read", "sketch"]

IN_MEMORY = 256 << 20  # bytes of files that are read whole; larger ones become sketches where a sketch is enough
Verb = TypeVar("Verb", bound=Callable[..., Any])
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
        Calibration method; bayes never changes a prediction.
    noise : 0, "unknown", or a share
        Share of the labels that are wrong, or "unknown".
    n_jobs : int, optional
        Processes that sketch large files.
    **options
        Those of `read`: with ``groups``, or `Scores` that have them, the result is a `GroupedCalibrator` (unless
        ``groups=False``), with ``multi_label`` a `MultiLabelCalibrator`. All others are parameters of the method.

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
    calibrator = _unfitted(method, noise, params, reading, data)
    if (summed := _sketch_in(data)) is not None:
        given = {"labels": labels, **options}
        if (extra := next((name for name in READ if given.get(name) is not None), None)) is not None:
            raise InputError(f"{extra}: a sketch has no rows; pass it where the sketch is made", extra)
        return calibrator.fit_sketch(summed)
    paths = expand(data) if is_paths(data) and calibrator.sketch_parts is not None else []
    if sum(map(applying.size_of, paths)) > IN_MEMORY:
        summed, scores = _sketched(calibrator, paths, labels, reading, n_jobs)
    else:
        scores = read(data, labels, **reading)
    reads_like(calibrator, scores, reading.get("zeros_as"))
    fitted = calibrator.fit(scores) if summed is None else calibrator.fit_sketch(summed)
    return _remembering(fitted, data, {"labels": labels, **reading}, scores)


def _remembering(fitted: Calibrator, data: Any, options: Mapping[str, Any], scores: Scores) -> Calibrator:
    """Let a calibrator remember how the data of its fit were read, and from which files."""
    unused = ("ids",) if fitted._needs_groups else ("ids", "groups")
    fitted.read_ = remembered(data, {name: v for name, v in options.items() if name not in unused}, scores)
    fitted.fitted_on_ = tuple(scores.sha256.values())
    if len({*fitted.fitted_on_}) < len(fitted.fitted_on_):
        warn("data: two of the files are equal, so their samples counted twice. Use each file once.")
    return fitted


def _unfitted(method: Any, noise: Any, params: dict[str, Any], reading: dict[str, Any], data: Any) -> Calibrator:
    """Return a calibrator to fit; reading options of an instance count, and what `Scores` hold, too."""
    groups = reading.get("groups", getattr(data, "groups", None) if isinstance(data, Scores) else None)
    grouped = groups is not None and groups is not False
    if reading.get("multi_label") or (isinstance(data, Scores) and data.multi_label):
        own = MultiLabelCalibrator if isinstance(method, str) and method in ("bayes", "multilabel") else method
        made = own() if own is MultiLabelCalibrator else own
        if not isinstance(made, MultiLabelCalibrator) or params or noise != 0 or grouped:
            what = "it has a method of its own; leave method, noise and groups out"
            raise InputError(f"multi_label: {what}", "multi_label")
        return made
    made = method_of(method, noise)
    known = made.get_params(deep=False)
    for name in params:
        if name not in known:
            own = listed([n for n in known if n not in READ]) or "none"
            fix = nearest(name, [*known, *READ, *inspect.signature(fit).parameters])
            raise InputError(f"{name}: {made.method} has no such parameter; of its own it has {own}.{fix}", name)
    made.set_params(**params)
    if not isinstance(method, str):
        for name, value in made._options().items():
            if value is not None and not (name == "input" and value == "logits"):
                reading.setdefault(name, value)
    if grouped and not isinstance(made, GroupedCalibrator):
        return GroupedCalibrator(made)
    return made


def _sketched(
    calibrator: Calibrator, paths: Sequence[str], labels: Any, reading: dict[str, Any], n_jobs: int | None
) -> tuple[Sketch, Scores]:
    """Return a sketch of files, and scores of the first; probabilities are looked through for zeros first."""
    _warn_of_cases(reading)
    if calibrator.get_params(deep=False).get("noise") == "unknown":
        warn("noise: a sketch has no rows, so biases and confusions of the labels are not looked for; T may differ")
    if (piece := next(pieces(paths, labels=labels, **reading), None)) is None:
        raise InputError(f"data: no row of {paths[0]} counts, nor of other files", "data")
    first = replace(piece.scores, files=tuple(paths))
    options = dict(reading)
    if first.input == "probs" and options.get("zeros_as") is None:
        options["zeros_as"] = zeros_of_files(paths, n_jobs=n_jobs, labels=labels, **reading)
    return sketch_files(paths, parts=calibrator.sketch_parts or (), n_jobs=n_jobs, labels=labels, **options), first


def _warn_of_cases(reading: Mapping[str, Any]) -> None:
    for name in ("clusters", "axis"):
        if (value := reading.get(name)) is not None and value is not False:
            warn(f"{name}: a sketch counts every row, or pixel, as a case, so the interval of T will be too narrow")


def _sketch_in(data: Any) -> Sketch | None:
    """Return the sum of sketches, or of those in files, in their order; None of other data."""
    parts: Any = data if isinstance(data, list | tuple) else [data]
    if is_paths(data) and all(str(path).endswith(".json") for path in parts):
        parts = [Sketch.load(path) for path in expand(data)]
    return reduce(operator.add, parts) if len(parts) and isinstance(parts[0], Sketch) else None


def _named(verb: Verb) -> Verb:
    """Let an option that a verb does not have be a `TypeError` that names the nearest one."""
    known = [*inspect.signature(verb).parameters, *READ]

    @wraps(verb)
    def call(*args: Any, **kwargs: Any) -> Any:
        for name in kwargs.keys() - known:
            raise TypeError(f"{verb.__name__}() got an unexpected keyword argument {name!r}.{nearest(name, known)}")
        return verb(*args, **kwargs)

    return cast("Verb", call)


@_named
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
    if reading.get("groups") is not None:
        raise InputError("groups: a sketch has none. Sketch the data of each group.", "groups")
    if is_paths(data):
        return sketch_files(expand(data), labels=labels, **reading)
    return sketch_scores(read(data, labels, **reading), zeros_as=reading.get("zeros_as"))


@_named
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
    found = list(applying.tables(calibrator, data, priors, **reading)[1])
    return Applied({name: np.concatenate([table[name] for table in found]) for name in found[0]})


@_named
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
        Evaluate each group of this column, too; by default those of ``groups``.
    confidence_level : float
        Level of the intervals.
    labels, **reading
        Those of `read`, for what the calibrator does not remember.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> logits = 3 * rng.normal(size=(2000, 5))
    >>> labels = (logits / 2 + rng.gumbel(size=logits.shape)).argmax(axis=1)
    >>> cal = fit(logits[:500], labels[:500])
    >>> print(evaluate((logits[500:], labels[500:]), cal, metrics=["accuracy", "ece"]))
    metric    before                  after
    accuracy  0.577 (0.552 to 0.602)  0.577 (0.552 to 0.602)
    ece       0.170 (0.144 to 0.192)  0.032 (0.000 to 0.046)
    """
    cal = None if calibrator is None else as_fitted(calibrator)
    options = fill(cal, data, {"labels": labels, **reading})
    own = data.groups if isinstance(data, Scores) and not data.multi_label else None
    by = reading.get("groups", own) if by is None else by
    grouped, twice = {**options, "groups": by}, isinstance(cal, GroupedCalibrator)  # whose groups may be others
    try:
        scores = read(data, **(options if by is None or twice else grouped))
        groups = None if by is None else (read(data, **grouped) if twice else scores).groups
    except InputError as error:
        if error.param != "groups" or by is None:
            raise
        raise InputError(str(error).replace("groups:", "by:", 1), "by") from None
    if cal is not None and was_fitted_on(cal, scores):
        warn("data: the calibrator was fitted on these, so the results after calibration look too good")
    if by is not None and scores.multi_label:
        raise InputError("by: groups cannot be combined with several labels a row", "by")
    return applying.evaluated(cal, scores, groups, metrics, confidence_level)


@_named
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
        Calibrator in use, also evaluated on TEST.
    noise : 0, "unknown", or a share
        Share of the labels that are wrong, or "unknown".
    cv : int
        Folds; 0 for no cross-validation.
    seed : int
        Random seed.
    allow_shared : bool
        Ids and clusters are local to a file, so VAL and TEST may share them.
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
    known = fill(cal, val, options)
    if found.calibrator is not None:
        _remembering(found.calibrator, val, known, scores[0])
    files = {path: sha256 for each in scores if each for path, sha256 in each.sha256.items()}
    named = {"calibrator": calibrator, "groups": known.get("groups")}
    return replace(found, files=files, named={n: str(v) for n, v in named.items() if isinstance(v, str | os.PathLike)})


@_named
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
        Share of the decided, or of a true class, that may be wrong.
    budget : float, optional
        Refer at most this share, the least confident.
    costs : mapping, optional
        Costs of a referral, of a miss, and of missing a named class.
    coverage : float, optional
        Sets hold the true class with this probability.
    by : "class" or "group", optional
        The coverage holds for each class or group; one max_miss, for each class.
    guarantee_level : float; of sets also None: on average over draws
        Confidence of the guarantee, or none.
    seed : int
        Of divisions and draws.
    allow_shared : bool
        Clusters of VAL and TEST may have the same ids.
    labels, **reading
        Those of `read`.
    """
    from attemper.decisions.choosing import decide_scores

    cal, options = None if calibrator is None else as_fitted(calibrator), {"labels": labels, **reading}
    scores = applying.read_pair(cal, val, test, options, allow_shared=allow_shared)
    if fill(cal, val, options).get("axis") is not None:
        raise InputError("axis: a rule is for rows, not for the pixels of images. Use rows, (N, K).", "axis")
    unit = options.get("clusters")
    unit = unit if isinstance(unit, str) else getattr(getattr(cal, "read_", None), "clusters", None)
    decision = decide_scores(
        *scores, calibrator=cal, method=method, noise=noise, max_miss=max_miss, budget=budget, costs=costs,
        coverage=coverage, by=by, guarantee_level=guarantee_level, seed=seed,
        unit=unit or "cluster",
    )  # fmt: skip
    ruled = decision.calibrator
    if ruled is not None and cal is None:
        _remembering(ruled, val, options, scores[0])
    elif ruled is not None and ruled._needs_groups and isinstance(options.get("groups"), str):
        ruled.read_ = replace(getattr(cal, "read_", ReadOptions()), groups=options["groups"])
    return decision


@_named
def monitor(
    calibrator: CalibratorOrPath,
    data: Any,
    *,
    state: Any = None,
    reference: Any = None,
    alpha: float | None = None,
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
        Labelled data from before deployment; those of the fit only for a method that keeps predictions.
    alpha : float, optional
        Probability of a false alarm, over all time; of a new state 0.05.
    labels, **reading
        Those of `read`, for what the calibrator does not remember.
    """
    from attemper.monitoring import MonitorReport, monitor_scores

    cal, options, path = as_fitted(calibrator), {"labels": labels, **reading}, None
    if isinstance(state, str | os.PathLike):
        path, state = Path(state), MonitorReport.load(state) if Path(state).exists() else None
    table = reference is not None and is_table(reference)
    names = {name: v for name, v in options.items() if v is False or (isinstance(v, str) and table)}
    shared = {name: value for name, value in options.items() if name not in IDS} | names  # arrays are of the data alone
    before = None if reference is None else read(reference, **fill(cal, reference, shared))
    for batch in expand(data) if is_paths(data) else [data]:
        scores = applying.read_labels_or_none(cal, batch, options)
        known = {"sha256": next(iter(scores.sha256.values()), ""), "name": Path(batch).stem if is_paths(data) else ""}
        state = monitor_scores(cal, scores, state=state, reference=before, alpha=alpha, **known)
    if path is not None:  # once, so that an error in a later file changes nothing
        state.save(path)
    return cast("MonitorReport", state)
