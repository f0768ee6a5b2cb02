"""All metrics at once, with intervals: one check of the input, one set of resamples. By group, or by label, too."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from attemper._result import Columns, Estimate, Table
from attemper._typing import Floats, InputKind, Labels
from attemper.data.arrays import to_numpy
from attemper.data.scores import Scores
from attemper.errors import InputError, check_share, listed, nearest
from attemper.kernels.clusters import case_numbers
from attemper.metrics.bins import Binned
from attemper.metrics.calibration import ece_of, mmce_of, smooth_ece_of
from attemper.metrics.intervals import N_RESAMPLES, Statistic, batches, effective, estimate_all, no_interval
from attemper.metrics.predictions import Predictions
from attemper.metrics.proper import accuracy_of, brier_of, gap_of, nll_of
from attemper.metrics.selective import aurc_of, referral_area_of

METRICS: dict[str, Callable[[Predictions], Statistic]] = {
    "accuracy": accuracy_of,
    "nll": nll_of,
    "brier": brier_of,
    "gap": gap_of,
    "ece": ece_of,
    "ece_quantile": partial(ece_of, strategy="quantile"),
    "ece_debiased": partial(ece_of, norm=2, debiased=True),
    "smooth_ece": smooth_ece_of,
    "classwise_ece": partial(ece_of, kind="classwise"),
    "mce": partial(ece_of, norm="max"),
    "mmce": mmce_of,
    "aurc": aurc_of,
    "referral_area": referral_area_of,
}
DEFAULT = ("accuracy", "nll", "brier", "gap", "ece", "smooth_ece", "classwise_ece", "aurc")
BY_GROUP = ("accuracy", "nll", "brier", "gap", "ece")
BY_LABEL = ("nll", "brier", "ece")
ERRORS = ("nll", "brier", "ece", "smooth_ece", "classwise_ece", "mce", "mmce", "aurc")  # less is better

# Signs of fewer clusters have too few patterns for a p-value.
LEAST_SIGNS = 10


@dataclass(frozen=True, repr=False)
class Evaluation(Table, Mapping[str, Estimate]):
    """Metrics by name, of all samples; with ``by`` also those of each part: `evaluate` returns it.

    ``found["ece"]`` is an `Estimate`, and so is ``found.parts["site A"]["ece"]``.
    """

    metrics: dict[str, Estimate]
    n: float  # weight of the samples
    parts: dict[Any, Evaluation] = field(default_factory=dict)  # groups or labels
    alike: Estimate | None = None  # test of whether the groups are alike: ``p``, or in ``note`` why there is none

    def __getitem__(self, name: str) -> Estimate:
        return self.metrics[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.metrics)

    def __len__(self) -> int:
        return len(self.metrics)

    def columns(self) -> Columns:
        """Return a row for each metric; with parts a row for each of them, and one for all."""
        if self.parts:
            rows = [self, *self.parts.values()]
            first: dict[str, Any] = {"part": ["(all)", *map(str, self.parts)], "n": [row.n for row in rows]}
            return first | {name: [row.metrics[name] for row in rows] for name in self.metrics}
        found = list(self.metrics.values())
        more = {name: [getattr(each, name) for each in found] for name in ("chance", "p", "note")}
        return {"metric": list(self.metrics), "value": found, **more}

    def shown(self) -> Columns:
        """Return the columns that are printed: reasons go below."""
        return {name: cells for name, cells in self.columns().items() if name != "note"}

    def notes(self) -> Sequence[str]:
        """Return why there are no intervals, and the test of the groups."""
        found: dict[str, list[str]] = {}
        for name, each in ({} if self.parts else self.metrics).items():
            if each.note:
                found.setdefault(each.note, []).append(name)
        lines = [f"{', '.join(names)}: {note}" for note, names in found.items()]
        if self.alike is not None:
            lines.append(f"alike: {self.alike.note}" if self.alike.p is None else f"alike: p = {self.alike.p:.3g}")
        return lines

    def to_dict(self) -> dict[str, Any]:
        """Return the metrics by name, and the parts."""
        found: dict[str, Any] = {"n": self.n, "metrics": {name: each.to_dict() for name, each in self.metrics.items()}}
        if self.parts:
            found["parts"] = {str(name): each.to_dict() for name, each in self.parts.items()}
        return found | ({} if self.alike is None else {"alike": self.alike.to_dict()})


def evaluate(
    labels: Any, probs: Any, metrics: Sequence[str] | str | None = None, *, confidence_level: float | None = 0.95,
    clusters: Any = None, by: Any = None, seed: int = 0, sample_weight: Any = None, input: InputKind = "probs",
    classes: Any = None,
) -> Evaluation:  # fmt: skip
    """Metrics by name, each with its interval.

    Parameters
    ----------
    labels, probs, sample_weight, input, classes
        As in `nll`.
    metrics : names, optional
        Those of the functions; also "gap", mean confidence less accuracy; "ece_quantile", with bins of equal weight;
        and "ece_debiased", of squared gaps less what chance adds (Kumar et al. 2019), by which groups of different
        sizes can be compared.
    confidence_level : float or None
        Level of the intervals; None: values alone.
    clusters : array of shape (N,), optional
        Which case (patient, document, image) each sample is of: samples of one case are not independent.
    by : array of shape (N,), or "label"
        Group of each sample: metrics of each too, at Šidák's level, so that all intervals of a metric hold together
        with the confidence level, and a test of whether labels depend on the group given the probability. "label":
        columns of ``probs`` do not exclude each other, and ``labels`` are N×L of 0, 1 and NaN where one is not known;
        metrics are of each label, and of all known entries.
    seed : int
        Of the resamples, for metrics without an influence function, and of the labels drawn for ``chance`` and ``p``.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> p = rng.random(2000)
    >>> found = evaluate(rng.random(2000) < p, p, ["nll", "ece"])
    >>> print(f"{found['nll']:.3f}; p = {found['ece'].p:.2f}")
    0.490 (0.469 to 0.512); p = 0.29
    """
    if isinstance(by, str):
        if by != "label":
            raise InputError(f"by={by!r}: expected the group of each sample, or 'label'", "by")
        ids: dict[str, Any] = {"sample_weight": sample_weight, "clusters": clusters, "classes": classes}
        every, parts = _labels(Scores.of(probs, labels, input=input, multi_label=True, **ids))
        return _evaluation(every, parts, _names(metrics, BY_LABEL), confidence_level, seed)
    p = Predictions.of(labels, probs, sample_weight, input, classes, clusters, by)
    return evaluate_predictions(p, metrics, confidence_level, seed)


def evaluate_predictions(
    p: Predictions, metrics: Sequence[str] | str | None = None, confidence_level: float | None = 0.95, seed: int = 0
) -> Evaluation:
    """Evaluate checked predictions; by group where they have groups."""
    names = _names(metrics, DEFAULT if p.groups is None else BY_GROUP)
    groups = [] if p.groups is None else np.unique(p.groups).tolist()
    parts = {name: p.rows(p.groups == name) for name in groups}
    return _evaluation(p, parts, names, confidence_level, seed)


def _evaluation(
    p: Predictions, parts: Mapping[Any, Predictions], names: Sequence[str], level: float | None, seed: int
) -> Evaluation:
    """Evaluate all samples, and each part at Šidák's level."""
    if level is not None:
        check_share(level, "confidence_level")
    own = level if level is None or not parts else level ** (1 / len(parts))
    found = {
        name: Evaluation(_metrics(part, names, own, seed), float(part.weights.sum())) for name, part in parts.items()
    }
    alike = None if level is None or p.groups is None else calibration_alike(p, seed)
    return Evaluation(_metrics(p, names, level, seed), float(p.weights.sum()), found, alike)


def _names(metrics: Sequence[str] | str | None, default: Sequence[str]) -> Sequence[str]:
    names = default if metrics is None else [metrics] if isinstance(metrics, str) else list(metrics)
    for name in names:
        if name not in METRICS:
            hint = nearest(str(name), METRICS)
            raise InputError(f"metrics: {name!r} is none of {', '.join(METRICS)}.{hint}", "metrics")
    return names


def _metrics(p: Predictions, names: Sequence[str], level: float | None, seed: int) -> dict[str, Estimate]:
    """Return each metric; one that does not exist for these samples is NaN, with the reason."""
    statistics, missing = {}, {}
    for name in names:
        try:
            statistics[name] = METRICS[name](p)
        except InputError as error:
            missing[name] = Estimate(float("nan"), note=str(error))
    found = estimate_all(statistics, p.weights, level, p.clusters, seed) | missing
    return {name: found[name] for name in names}


def _labels(scores: Scores) -> tuple[Predictions, dict[Any, Predictions]]:
    """Return all known entries, those of a row being one case; and each column as one of its own."""
    if scores.labels is None:
        raise InputError("labels: a metric needs them", "labels")
    values, y, case = to_numpy(scores.raw(slice(0, len(scores)))), scores.labels, scores.cases
    names = scores.classes or range(scores.n_classes)

    def entries(row: Any, column: Any, cases: Any) -> Predictions:
        return Predictions.of(y[row, column], values[row, column], scores.weights[row], scores.input, clusters=cases)

    known = ~np.isnan(y) & (scores.weights > 0)[:, None]
    parts = {}
    for k in np.flatnonzero(known.any(axis=0)):
        rows = np.flatnonzero(known[:, k])
        parts[names[k]] = entries(rows, k, None if case is None else case[rows])
    row, column = np.nonzero(known)
    return entries(row, column, row if case is None else case[row]), parts


def calibration_alike(p: Predictions, seed: int = 0) -> Estimate:
    r"""Test whether accuracy depends on the group, given the confidence: the statistic with its p-value.

    Samples are put into strata b of equal mass by their confidence c, and right is 1 where the prediction is the label;
    of one column c is the probability of the positive class, and right is 1 where that is the label.
    All groups share the gap :math:`m_b = \operatorname{mean}_b(\mathrm{right} - c)` of a stratum if they are alike,
    whether they are calibrated or not. The statistic is :math:`\sum_g s_g^2 / v_g`, where :math:`s_g` sums what is left
    of right − c in group g, and :math:`v_g` is the variance of that sum for independent labels.

    Independent samples: the labels are drawn again and again from the common curve, right with probability
    :math:`c + m_b`, and the statistic is computed anew. Clusters: what is left gets a random sign for each cluster (a
    wild bootstrap of the score, P. Kline and A. Santos, 2012), as nothing is known of the dependence inside.
    """
    group = case_numbers(p.groups if p.groups is not None else np.zeros(len(p)))
    if reason := _no_test(p, group):
        return Estimate(float("nan"), note=reason)
    n_strata = max(1, round(effective(p.weights) ** (1 / 3)))  # Sun et al. 2023; it depends on no label
    [(offset, right, stratum)] = Binned(p, None, n_strata, "quantile").blocks()
    w = p.weights
    table = _table(group, stratum, w)
    share = table / np.maximum(table.sum(axis=0), 1e-300)  # of each group in a stratum
    common = (np.bincount(stratum, w * (right - offset)) / np.maximum(table.sum(axis=0), 1e-300))[stratum]
    chance = np.clip(offset + common, 0, 1)
    noise = _table(group, stratum, w**2 * chance * (1 - chance))
    variance = (noise * (1 - 2 * share)).sum(axis=1) + share**2 @ noise.sum(axis=0)
    known = variance > 1e-12 * max(float(noise.sum()), 1e-300)
    if not known.any():
        return Estimate(float("nan"), note="no two groups have samples of about the same confidence")

    def statistic(by_group: Floats, by_stratum: Floats) -> Floats:
        left = by_group - share @ by_stratum
        return np.asarray((left[known] ** 2 / variance[known, None]).sum(axis=0))

    rows, n = np.arange(len(p)), len(p)
    adding: list[Any] = [csr_array((w, (at, rows)), (size, n)) for at, size in zip((group, stratum), share.shape)]
    found = float(statistic(*(sums @ (right - offset)[:, None] for sums in adding))[0])
    rng, reach = np.random.default_rng(seed), 0
    for size in batches(N_RESAMPLES, max(n, len(share))):
        drawn = p.drawing(rng, size)(chance, right) - offset[:, None]
        reach += int((statistic(*(sums @ drawn for sums in adding)) >= found * (1 - 1e-9)).sum())
    return Estimate(found, p=(1 + reach) / (1 + N_RESAMPLES))


def _table(group: Labels, stratum: Labels, values: Any) -> Floats:
    """Sum over the samples of each group in each stratum."""
    n_strata = int(stratum.max()) + 1
    size = (int(group.max()) + 1) * n_strata
    return np.bincount(group * n_strata + stratum, values, size).reshape(-1, n_strata).astype(np.float64)


def _no_test(p: Predictions, group: Labels) -> str:
    """Give the reason for no test; empty where there is one."""
    if group.max() == 0:
        return "there is one group alone"
    if np.ptp(p.pair[1]) == 0:
        return "all outcomes are the same"
    return "" if p.clusters is None else no_interval(len(np.unique(p.clusters)), "clusters", LEAST_SIGNS)


def get_scorer(name: str, **options: Any) -> Callable[..., float]:
    """Make a scorer for scikit-learn from a metric: for ``scoring=`` of its searches and cross-validations.

    Labels may be names: columns are those of the estimator's ``classes_``. As everywhere in scikit-learn, more is
    better, so that errors are negative: ``name`` is "neg_nll", "neg_brier", "neg_ece" … Options are those of the
    metric, such as ``n_bins=10``.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.linear_model import LogisticRegression
    >>> from sklearn.model_selection import cross_val_score
    >>> X, y = load_iris(return_X_y=True)
    >>> found = cross_val_score(LogisticRegression(max_iter=1000), X, y, scoring=get_scorer("neg_ece", n_bins=10))
    >>> len(found), bool((found < 0).all())
    (5, True)
    """
    own = name.removeprefix("neg_")
    if own not in ERRORS or own == name:
        raise InputError(f"name={name!r}: expected one of {', '.join('neg_' + each for each in ERRORS)}", "name")
    known = [*inspect.signature(METRICS[own]).parameters][1:]
    if unknown := [each for each in options if each not in known]:
        raise InputError(f"{unknown[0]}: the options of {own} are {listed(known)}", unknown[0])
    return partial(_score, own, options)


def _score(name: str, options: dict[str, Any], estimator: Any, X: Any, y: Any, sample_weight: Any = None) -> float:
    if not hasattr(estimator, "predict_proba") or not hasattr(estimator, "classes_"):
        raise InputError(f"estimator: expected predict_proba and classes_, got {type(estimator).__name__}", "estimator")
    classes = list(estimator.classes_)
    p = Predictions.of(y, estimator.predict_proba(X), sample_weight, classes=classes)
    return -METRICS[name](p, **options).at(p.weights)
