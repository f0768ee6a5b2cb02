"""How prediction sets get their thresholds: split-conformal calibration, for all samples, by class or by group."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from attemper._checks import fraction, number, one_of, whole
from attemper._typing import Floats, Labels
from attemper.data.arrays import row_slices
from attemper.decisions.choosing import check_whole
from attemper.decisions.policy import as_predictions, names_of
from attemper.decisions.sets import By, Score, SetPolicy, order_of, units_needed
from attemper.errors import InputError, warn
from attemper.kernels.conformal import best_penalty, one_per_cluster, score_classes, threshold_at

__all__ = ["prediction_sets"]

TUNE_SHARE = 0.2
PARTS = {  # one and several that have too few samples, and what follows
    "class": ("class has", "classes have", "in every set"),
    "group": ("group has", "groups have", "given every class"),
}


class _Units(NamedTuple):
    """Samples that thresholds are taken from."""

    probs: Floats
    labels: Labels
    counts: Floats  # how often each occurred
    group: Labels  # number of the group; 0 where there are none
    cluster: Labels | None
    group_names: tuple[Any, ...]

    def rows(self, rows: NDArray[np.bool_]) -> _Units:
        """Take some rows."""
        cluster = None if self.cluster is None else np.unique(self.cluster[rows], return_inverse=True)[1]
        return self._replace(
            probs=self.probs[rows],
            labels=self.labels[rows],
            counts=self.counts[rows],
            group=self.group[rows],
            cluster=cluster,
        )


def prediction_sets(
    probs: ArrayLike | Any,
    labels: ArrayLike | Any,
    coverage: float = 0.95,
    *,
    score: Score = "lac",
    by: By | None = None,
    groups: Any = None,
    clusters: Any = None,
    confidence_level: float | None = None,
    randomized: bool = False,
    penalty: float | None = None,
    k_reg: int | None = None,
    tune_share: float = TUNE_SHARE,
    allow_empty: bool = False,
    max_size: int = 3,
    sample_weight: ArrayLike | None = None,
    classes: Sequence[Any] | None = None,
    seed: int = 0,
) -> SetPolicy:
    """Choose thresholds for sets of classes with a guaranteed coverage (split-conformal prediction).

    If the samples and a new one are exchangeable, such as independent draws, the set of the new one holds its true
    class with a probability of at least ``coverage``: for any classifier, calibrated or not, and for any number of
    samples. The threshold is the k-th smallest score of the true classes, k = ⌈(n + 1) · coverage⌉. The probability is
    also over the draw of the samples; given these, the coverage varies as Beta(k, n + 1 − k)
    (`SetPolicy.coverage_range`). The samples must not be those that the network was trained on, nor those that the
    calibration map was fitted on.

    If n is too small for a threshold, every class is in the set, and a warning and the notes give the reason.

    Parameters
    ----------
    probs, labels
        Probabilities N×K, and true classes as column numbers.
    coverage : float
        1 − α, such as 0.95.
    score : "lac", "aps" or "raps"
        "lac": 1 − p, which has the smallest sets on average. "aps": the probability of all classes that are more
        probable, so that classes are added, the most probable first, until enough is reached; sets are larger where the
        classifier is less confident. "raps": the same with a penalty on the places after ``k_reg``, which keeps sets
        of many classes short.
    by : "class" or "group", optional
        The coverage holds for each true class, or for each group, by thresholds of their own.
    groups : array of shape (N,), optional
        With ``by="group"``: text or whole numbers, such as the site of each sample.
    clusters : array of shape (N,), optional
        Which samples are of the same case, such as a patient. One sample of each case is drawn, by ``seed``, so that
        the n scores are of independent cases. The coverage is that of a random sample of a new case.
    confidence_level : float, optional
        Raise the threshold so that the coverage reaches ``coverage`` with this confidence in the draw of the samples,
        for all classes or groups at once, and not only on average over draws.
    randomized : bool
        With "aps" and "raps": add a random share of the own probability, as Romano et al. do, so that no scores are
        tied and the coverage is exact. Sets then depend on ``seed``, and cannot be exported.
    penalty, k_reg : float and int, optional
        λ and k_reg of RAPS. Otherwise a part of the samples, ``tune_share``, chooses them, and takes no part in the
        threshold.
    allow_empty : bool
        Leave sets empty where no score is within the threshold. By default the most probable class is in every set,
        which can only raise the coverage.
    max_size : int
        Largest set that is listed; larger ones, and sets of all classes, are referred.
    sample_weight : array of shape (N,), optional
        Whole numbers: how often each sample occurred.
    classes : names of the classes in column order, optional
    seed : int
        Of the draws of clusters, of random shares and of the part that chooses a penalty.

    References
    ----------
    V. Vovk, Conditional validity of inductive conformal predictors, 2012. A. Angelopoulos and S. Bates, A gentle
    introduction to conformal prediction, arXiv 2107.07511. `attemper.kernels.conformal` names those of the scores.

    Examples
    --------
    >>> import attemper
    >>> data = attemper.datasets.load()
    >>> n = len(data.val_labels) // 5  # a fifth fits the map, the rest chooses the threshold
    >>> ts = attemper.TemperatureScaling().fit(data.val_logits[:n], data.val_labels[:n])
    >>> policy = prediction_sets(ts.predict_proba(data.val_logits[n:]), data.val_labels[n:], 0.9)
    >>> sets = policy.sets(ts.predict_proba(data.test_logits))
    >>> bool(sets.mask[range(len(sets)), data.test_labels].mean() > 0.88)
    True
    """
    for name, share in (("coverage", coverage), ("confidence_level", confidence_level), ("tune_share", tune_share)):
        if share is not None:
            fraction(name, share)
    one_of("score", score, get_args(Score))
    one_of("by", by, (None, *get_args(By)))
    whole("max_size", max_size)
    _check_options(probs, score, by, groups, randomized, penalty, k_reg)
    p = _units(probs, labels, sample_weight, classes, groups, clusters)
    rng = np.random.default_rng([whole("seed", seed, at_least=0), 1])
    notes: list[str] = []
    n_samples, n_classes = int(p.counts.sum()), p.probs.shape[1]
    if score == "raps" and (penalty is None or k_reg is None):
        tuning, p = _divided(p, tune_share, rng)
        best = best_penalty(tuning.probs, tuning.labels, tuning.counts, coverage)
        penalty, k_reg = (best[0] if penalty is None else penalty), (best[1] if k_reg is None else k_reg)
        how = f"penalty {penalty:g} and k_reg {k_reg}: chosen on {len(tuning.labels)} samples"
        notes = [f"{how}, which the threshold is not taken from"]
    key, n_parts = {
        "class": (p.labels, n_classes),
        "group": (p.group, len(p.group_names)),
        None: (np.zeros_like(p.group), 1),
    }[by]
    raps = (float(penalty or 0.0), int(k_reg or 0))
    drawn = [_true_scores(p.rows(key == part), rng, score, randomized, *raps) for part in range(n_parts)]
    delta = None if confidence_level is None else (1 - confidence_level) / n_parts
    orders = [order_of(len(scores), coverage, delta) for scores in drawn]
    policy = SetPolicy(
        score,
        float(coverage),
        tuple(None if k is None else threshold_at(scores, k) for scores, k in zip(drawn, orders)),
        tuple(map(len, drawn)),
        n_classes,
        n_samples,
        by,
        None if by != "group" else p.group_names,
        "sample" if p.cluster is None else "cluster",
        None if confidence_level is None else float(confidence_level),
        *raps,
        bool(randomized),
        bool(allow_empty),
        int(max_size),
        classes=names_of(classes, n_classes),
    )
    few = _too_few(policy)
    if few:
        warn(few)
    return replace(policy, notes=(*notes, *filter(None, [few])))


def _check_options(
    probs: Any, score: str, by: By | None, groups: Any, randomized: bool, penalty: Any, k_reg: Any
) -> None:
    """Refuse options that have no effect, or that lack another."""
    if by == "group" and groups is None and getattr(probs, "groups", None) is None:
        raise InputError(f"by={'group'!r}: expected the group of each sample, got none. Use groups=….", param="groups")
    if by != "group" and groups is not None:
        raise InputError(f"groups: expected by={'group'!r} with them. Use it, or pass no groups.", param="by")
    if randomized and score == "lac":
        raise InputError("randomized: belongs to the scores 'aps' and 'raps'; 'lac' needs no random numbers")
    if score != "raps" and not (penalty is None and k_reg is None):
        raise InputError(f"penalty and k_reg belong to score={'raps'!r}", param="score")
    if penalty is not None:
        number("penalty", penalty, 0, expected="a number, 0 or more")
    if k_reg is not None:
        whole("k_reg", k_reg, at_least=0)


def _units(probs: Any, labels: Any, sample_weight: Any, classes: Any, groups: Any, clusters: Any) -> _Units:
    """Check arrays; samples of weight 0 are left out."""
    p = as_predictions(probs, labels, sample_weight, classes, clusters, groups)
    if (p.weights != 1).any():
        check_whole(p.weights, "Use no weights.")
    names, group = (0,), np.zeros(len(p), dtype=np.int64)
    if p.groups is not None:
        values, group = np.unique(p.groups, return_inverse=True)
        names = tuple(values.tolist())
    return _Units(p.probs.astype(np.float64), p.labels, p.weights, group, p.clusters, names)


def _divided(p: _Units, share: float, rng: np.random.Generator) -> tuple[_Units, _Units]:
    """Draw this share of the samples, or of the clusters, for another purpose than the threshold."""
    unit = np.arange(len(p.labels)) if p.cluster is None else p.cluster
    n = int(unit.max()) + 1
    taken = round(share * n)
    if not 0 < taken < n:
        raise InputError(
            f"tune_share={share!r} of {n} samples or clusters leaves a part with none. Use "
            f"penalty=0.01, k_reg=5, which needs no samples, or more samples.",
            param="penalty",
        )
    chosen = np.zeros(n, dtype=bool)
    chosen[rng.permutation(n)[:taken]] = True
    return p.rows(chosen[unit]), p.rows(~chosen[unit])


def _true_scores(
    p: _Units, rng: np.random.Generator, score: Score, randomized: bool, penalty: float, k_reg: int
) -> Floats:
    """Scores of the true classes: one for each sample as often as it occurred, or one for each cluster."""
    n, own = len(p.labels), p.probs[np.arange(len(p.labels)), p.labels]
    found = np.empty(n)
    for rows in row_slices(*p.probs.shape):
        each = score_classes(score, p.probs[rows], 0.0, penalty, k_reg)
        found[rows] = each[np.arange(len(each)), p.labels[rows]]
    units = np.repeat(np.arange(n), p.counts.astype(np.int64))
    if p.cluster is not None:
        units = one_per_cluster(p.cluster, p.counts, rng)
    return found[units] + rng.random(len(units)) * own[units] if randomized else found[units]


def _too_few(policy: SetPolicy) -> str:
    """Give the reason why some thresholds are missing; empty where there is none."""
    few = [(name, n) for name, n, t in zip(policy.part_names(), policy.n_units, policy.thresholds) if t is None]
    if not few:
        return ""
    needed = units_needed(policy.coverage, policy.delta)
    level = "" if policy.confidence_level is None else f" with a confidence of {policy.confidence_level:.4g}"
    why = f"a coverage of {policy.coverage:.4g}{level} needs {needed} {policy.unit}s"
    if policy.by is None:
        return f"every class is in every set: {why}, and there are {few[0][1]}"
    each = ", ".join(f"{n} of {name}" for name, n in few[:12]) + (", …" if len(few) > 12 else "")
    one, several, then = PARTS[policy.by]
    have, are = (one, "is") if len(few) == 1 else (several, "are")
    return f"{len(few)} {have} too few {policy.unit}s, and {are} {then}: {why} of each, and there are {each}"
