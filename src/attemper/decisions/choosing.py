"""How a rule is chosen: for a budget of referrals, for a rate of misses that is guaranteed, for given costs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from attemper._checks import fraction, one_of, same_classes
from attemper._typing import Floats
from attemper.data.labels import as_weights
from attemper.decisions.certificates import samples_needed
from attemper.decisions.policy import (
    Guarantee,
    MissRateOf,
    Policy,
    Predict,
    as_predictions,
    cost_of_deciding,
    names_of,
    samples_of,
    several_per_cluster,
)
from attemper.decisions.threshold_test import ThresholdTest, Units, draw_of_clusters
from attemper.errors import InputError
from attemper.metrics.predictions import Predictions
from attemper.metrics.risk import check_costs, cost_of, per_class

__all__ = ["check_whole", "policy_for_budget", "policy_for_cost", "policy_for_miss"]

UNPROVEN = (
    "some confidences are tied: the guarantee is proven only if other samples, with ties too, fix the first test. Pass "
    "fit_probs=… (command line: fit the map here, without --map)"
)


def policy_for_budget(
    probs: ArrayLike | Any,
    budget: float,
    *,
    sample_weight: ArrayLike | None = None,
    clusters: ArrayLike | None = None,
    classes: Sequence[Any] | None = None,
) -> Policy:
    """Refer the least confident samples, at most the share ``budget``. Needs no labels.

    Samples of the same confidence are referred together or not at all. The share holds on these samples, and about so
    on others like them.

    Parameters
    ----------
    probs : array of shape (N, K)
        Calibrated probabilities: NumPy, torch or any other array.
    budget : float
        Share of the samples that can be referred, from 0 to 1.
    sample_weight : array of shape (N,), optional
    clusters : array of shape (N,), optional
        The patient (document, user) that each sample is of. The policy keeps their number; the threshold is the same.
    classes : names of the classes in column order, optional

    Examples
    --------
    >>> probs = [[0.9, 0.1], [0.2, 0.8], [0.3, 0.7], [0.4, 0.6], [0.4, 0.6]]
    >>> policy_for_budget(probs, 0.4).threshold, policy_for_budget(probs, 0.3).threshold  # the last two are tied
    (0.6, 0.0)
    """
    fraction("budget", budget, closed=True, such_as="0.2")
    p = as_predictions(probs, None, sample_weight, clusters=clusters)
    value, group = np.unique(p.confidence, return_inverse=True)
    share = np.bincount(group, p.weights).cumsum() / p.weights.sum()
    n_groups = int(np.searchsorted(share, budget + 1e-12, side="right"))  # 0.29 · 100 is a little less than 29
    threshold = 0.0 if n_groups == 0 else 1.0 if n_groups == len(value) else float(value[n_groups - 1])
    referred = share[n_groups - 1] if n_groups else 0.0
    which = samples_of(len(p), n_clusters := several_per_cluster(p))
    rationale = f"refers {referred:.2%} of the {which} it was chosen on, within a budget of {budget:.2%}"
    names = names_of(classes, p.n_classes)
    return Policy(threshold, rationale, p.n_classes, len(p), classes=names, n_clusters=n_clusters)


def policy_for_miss(
    probs: ArrayLike | Any,
    labels: ArrayLike | Any,
    max_miss: float | Sequence[float],
    *,
    confidence_level: float = 0.95,
    miss_rate_of: MissRateOf = "decided",
    per_class: bool | Literal["predicted", "true"] = False,
    fit_probs: ArrayLike | Any = None,
    fit_clusters: ArrayLike | None = None,
    sample_weight: ArrayLike | None = None,
    clusters: ArrayLike | None = None,
    max_per_cluster: int | None = None,
    classes: Sequence[Any] | None = None,
    seed: int = 0,
) -> Policy:
    """Decide as many samples as possible while misses stay below ``max_miss``, guaranteed.

    With a confidence of ``confidence_level`` in the draw of these samples, the rate of misses among *all* patients like
    these is at most ``max_miss``: for any classifier and any distribution of which the samples are independent draws.
    If confidences are tied, as those of binned calibrators are, ``miss_rate_of="decided"`` needs ``fit_probs`` for
    that; a note of the policy reports if ties are not covered. The samples must not be those that the network was
    trained on, nor those that the calibration map was fitted on. Trying several methods, bounds or divisions and
    keeping the one that looks best voids the guarantee.

    With ``clusters`` the clusters are independent draws, such as patients, and their samples are not.

    When nothing can be guaranteed, everybody is referred: ``reached`` is False, and ``rationale`` has the reason.

    Parameters
    ----------
    probs, labels
        Probabilities N×K, calibrated or not, and true classes as column numbers.
    max_miss : float or array of shape (K,)
        Largest rate of misses, such as 0.05. With ``per_class`` there can be one for each class; 1 asks nothing of it.
    confidence_level : float
        Confidence of the guarantee.
    miss_rate_of : "decided" or "all"
        A miss is a sample that is decided, and wrongly. Its rate is taken of the samples that are decided, or of all.
    per_class : bool, "predicted" or "true"
        "predicted" (True): a threshold for each class that is predicted, so that the bounds hold for all of them at
        once (each has a confidence level of 1 − (1 − confidence_level)/K). "true": one threshold, such that of the
        patients who truly have a class at most its bound are missed, for all classes at once; takes
        ``miss_rate_of="all"``.
    fit_probs : array of shape (M, K), optional
        Probabilities of other samples, such as those that fitted the map; no labels are needed. If their confidences
        are tied, they fix the threshold of the first test. Used with ``miss_rate_of="decided"``, and with ``clusters``,
        of which they must be others; without them a tenth of the clusters fixes the thresholds, and is not tested.
    fit_clusters : array of shape (M,), optional
        The cluster of each of those.
    sample_weight : array of shape (N,), optional
        Whole numbers: how often each sample occurred.
    clusters : array of shape (N,), optional
        The patient (document, user) that each sample is of: text or numbers. If each has one sample, nothing changes.
    max_per_cluster : int, optional
        Of each cluster at most so many samples count, drawn with ``seed``. 1 bounds the rate of misses of a cluster
        drawn at random, then one of its samples. None, the default, takes all, so that the rate is that of a sample
        drawn at random; then no cluster to come may have more samples than the largest of these.
    classes : names of the classes in column order, optional

    References
    ----------
    A. Angelopoulos et al., Learn then test, arXiv 2110.01052. S. Bates et al., Distribution-free, risk-controlling
    prediction sets, JACM 2021. Y. Geifman and R. El-Yaniv, Selective classification for deep neural networks, 2017.
    I. Waudby-Smith and A. Ramdas, Estimating means of bounded random variables by betting, JRSS B 2024 (clusters).

    Examples
    --------
    >>> import attemper
    >>> data = attemper.datasets.load()
    >>> n = len(data.val_labels) // 5  # a fifth fits the map, the rest chooses the threshold
    >>> bts = attemper.BayesianTemperatureScaling().fit(data.val_logits[:n], data.val_labels[:n])
    >>> policy = policy_for_miss(bts.predict_proba(data.val_logits[n:]), data.val_labels[n:], 0.1)
    >>> policy.reached, round(policy.threshold, 2)
    (True, 0.82)
    """
    fraction("confidence_level", confidence_level)
    one_of("miss_rate_of", miss_rate_of, get_args(MissRateOf))
    one_of("per_class", per_class, (True, False, "predicted", "true"))
    by_class: Any = ("predicted" if per_class else None) if isinstance(per_class, bool) else per_class
    if by_class == "true" and miss_rate_of != "all":
        raise InputError("per_class='true' is about all patients who have a class. Use miss_rate_of='all' with it.")
    if sample_weight is not None:
        check_whole(sample_weight)
    p = as_predictions(probs, labels, sample_weight, classes, clusters)
    bounds = _check_bounds(max_miss, p.n_classes, by_class is not None)
    bound = float(bounds[0]) if np.ndim(max_miss) == 0 else tuple(bounds.tolist())
    guarantee, n, n_clusters = (
        Guarantee(bound, float(confidence_level), miss_rate_of, by_class),
        int(p.weights.sum()),
        several_per_cluster(p),
    )
    p = draw_of_clusters(p, max_per_cluster, seed)
    units = Units.of(p, seed)
    if n_clusters is not None:
        guarantee = replace(guarantee, max_per_cluster=1 if units is None else units.most)
    policy = Policy(1.0, "", p.n_classes, n, guarantee, classes=names_of(classes, p.n_classes), n_clusters=n_clusters)
    policy = replace(policy, rationale=f"chosen on {samples_of(n, n_clusters)} so that {policy.promise()}")
    other = None
    if fit_probs is not None:
        other = as_predictions(fit_probs, clusters=fit_clusters)
        same_classes(p.n_classes, other.n_classes, of="probs", where="fit_probs")
    if units is not None:
        p, other = (p, other) if other is not None else units.divided(p)
    elif miss_rate_of == "all" or (other is not None and not _tied(other)):
        other = None
    if units is None and other is None and miss_rate_of == "decided" and _tied(p):
        policy = replace(policy, notes=(UNPROVEN,))
    test = ThresholdTest(p, miss_rate_of, other, units)
    if by_class is None:
        found = test.certify(np.ones(len(p), dtype=bool), float(bounds[0]), 1 - confidence_level)
        if found.reached:
            return replace(policy, threshold=found.threshold)
        why = f"{policy.rationale}. That cannot be guaranteed: {found.why}. So everybody is referred"
        return replace(policy, rationale=why, reached=False)
    return _by_class(policy, test, bounds)


def _by_class(policy: Policy, test: ThresholdTest, bounds: Floats) -> Policy:
    """Choose thresholds for predicted classes, or one for all true ones."""
    assert policy.guarantee is not None
    p, level, predicted = test.p, policy.guarantee.confidence_level, policy.guarantee.by_class == "predicted"
    key = p.prediction if predicted else p.labels
    asked = [int(k) for k in np.flatnonzero(bounds < 1)]
    # Thresholds of predicted classes are chosen one by one, and share what may go wrong. One threshold for true classes
    # fails only where it fails for the class that needs the strictest one: nothing is to be shared.
    delta = (1 - level) / (len(asked) if predicted else 1)
    found = {k: test.certify(key == k, float(bounds[k]), delta, k) for k in asked}
    failed = {k: c.why for k, c in found.items() if not c.reached}
    means = "everybody predicted so is referred, as " if predicted else ""
    notes = (*policy.notes, _cases_needed(policy, test, key, bounds, delta))
    notes += tuple(f"{policy.name(k)}: {means}{why}" for k, why in failed.items())
    thresholds = tuple(found[k].threshold if k in found else 0.0 for k in range(p.n_classes))
    if len(failed) == len(asked) or (failed and not predicted):
        which = "any class" if len(failed) == len(asked) else "every class asked"
        why = f"{policy.rationale}. That cannot be guaranteed for {which}, so everybody is referred"
        return replace(policy, rationale=why, reached=False, notes=notes)
    return replace(policy, threshold=thresholds if predicted else max(thresholds), notes=notes)


def policy_for_cost(
    probs: ArrayLike | Any,
    labels: ArrayLike | Any = None,
    *,
    cost_refer: float,
    cost_miss: float | Sequence[float],
    predict: Predict = "most_probable",
    sample_weight: ArrayLike | None = None,
    clusters: ArrayLike | None = None,
    classes: Sequence[Any] | None = None,
) -> Policy:
    """Decide if that is expected to cost less than a referral. Needs only calibrated probabilities.

    A sample is decided when Σ_k p_k m_k < r, summed over the classes k that are not predicted. With one cost for all
    classes that is a threshold on the confidence, 1 − r/m.

    By default the most probable class is predicted, and the policy chooses only between that prediction and a referral.
    If costs differ, another prediction can be expected to cost less: with ``predict="least_cost"`` the class j of the
    largest p_j m_j is predicted. **That changes predictions**, and with them the accuracy. Then no other rule has a
    lower expected cost, if the probabilities are right.

    Parameters
    ----------
    probs : array of shape (N, K)
        *Calibrated* probabilities; they show what the rule is expected to cost.
    labels : array of shape (N,), optional
        To report also what it does cost.
    cost_refer : float
        r, the cost of a referral.
    cost_miss : float or array of shape (K,)
        m, the cost of a wrong prediction; an array has one for each true class.
    predict : "most_probable" or "least_cost"
        Which class the policy predicts.
    sample_weight : array of shape (N,), optional
    clusters : array of shape (N,), optional
        As in `policy_for_budget`.
    classes : names of the classes in column order, optional

    Examples
    --------
    >>> probs = [[0.99, 0.01], [0.04, 0.96], [0.3, 0.7]]
    >>> policy_for_cost(probs, cost_refer=1, cost_miss=50).threshold
    0.98
    >>> policy_for_cost(probs, cost_refer=1, cost_miss=[10, 50]).refer_or_decide(probs).refer
    array([False, False,  True])
    >>> policy_for_cost(probs, cost_refer=1, cost_miss=[1, 50], predict="least_cost").refer_or_decide(probs).prediction
    array([0, 1, 1])
    >>> policy_for_cost(probs, cost_refer=1, cost_miss=[50, 1], predict="least_cost").refer_or_decide(probs).prediction
    array([0, 0, 0])
    """
    one_of("predict", predict, get_args(Predict))
    p = as_predictions(probs, labels, sample_weight, classes, clusters)
    r, m = check_costs(cost_refer, cost_miss, p.n_classes)
    policy = Policy(None, "", p.n_classes, len(p), classes=names_of(classes, p.n_classes))
    policy = replace(policy, n_clusters=several_per_cluster(p), cost_refer=r, cost_miss=tuple(m.tolist()))
    if (m == m[0]).all():
        # Where a miss costs no more than a referral nobody is referred: every confidence is above 0.
        policy = replace(policy, threshold=float(1 - r / m[0]) if m[0] > r else 0.0)
    else:
        policy = replace(policy, predict=predict)  # with one cost the most probable class is the cheapest
    refer, prediction, _ = policy.refer_or_decide(p.probs)
    w = p.weights / p.weights.sum()
    expected = float(w @ np.where(refer, r, cost_of_deciding(p, m, prediction)))
    which = samples_of(len(p), policy.n_clusters)
    rationale = f"refers {float(w @ refer):.2%} of {which}, at an expected cost of {expected:.4g} a sample"
    if labels is not None:
        found = cost_of(p, refer, r, m, prediction).at(p.weights)
        rationale += f" (by their labels {found:.4g})"
    changed = float(w @ (~refer & (prediction != p.prediction)))
    if policy.predict == "least_cost":
        rationale += f". {changed:.2%} of the samples are decided as another class than the most probable one"
    return replace(policy, rationale=rationale)


def _tied(p: Predictions) -> bool:
    return bool(len(np.unique(p.confidence)) < p.weights.sum())


def _cases_needed(policy: Policy, test: ThresholdTest, key: NDArray[Any], bounds: Floats, delta: float) -> str:
    """Write how many cases of a class it takes before anybody can be decided, and how many there are."""
    assert policy.guarantee is not None
    p, predicted = test.p, policy.guarantee.by_class == "predicted"
    needed = {k: samples_needed(b, delta) for k, b in enumerate(bounds.tolist()) if b < 1}
    of, so = ("predicted as", " predicted so") if predicted else ("of", "")
    there = np.bincount(key, p.weights, minlength=p.n_classes)
    if test.units is not None:
        assert p.clusters is not None
        there = np.bincount(np.unique(np.column_stack([p.clusters, key]), axis=0)[:, 1], minlength=p.n_classes)
        of = f"in clusters of their own {of}"
    if len(needed) > 1 and len(set(needed.values())) == 1:
        k = min(needed, key=lambda k: there[k])
        each = f"{needed[k]} cases {of} each class ({policy.name(k)} has the fewest, {there[k]:.0f})"
    else:
        several = [f"{n} cases {of} {policy.name(k)} (there are {there[k]:.0f})" for k, n in needed.items()]
        each = ", ".join(several[:10]) + (", …" if len(several) > 10 else "")
    return f"at least {each} are needed before anybody{so} can be decided"


def _check_bounds(max_miss: Any, n_classes: int, by_class: bool) -> Floats:
    rate = "a rate between 0 and 1, such as 0.05"
    if np.ndim(max_miss) == 0 and max_miss in (0, 1):
        hint = " No number of samples can guarantee that there is no miss at all." if max_miss == 0 else ""
        raise InputError(f"max_miss={max_miss!r}: expected {rate}.{hint}", param="max_miss")
    if np.ndim(max_miss) and not by_class:
        raise InputError("max_miss: expected one number. Use per_class=True or per_class='true' for one per class.")
    values = per_class("max_miss", max_miss, n_classes, (np.finfo(float).tiny, 1), rate)
    if (values == 1).all():
        raise InputError("max_miss: 1 for every class asks nothing")
    return values


def check_whole(sample_weight: Any, instead: str = "Use no weights, or choose by budget or cost.") -> None:
    """Refuse weights that are not counts."""
    w = as_weights(sample_weight, np.size(sample_weight))
    bad = np.flatnonzero(w != np.floor(w))
    if bad.size:
        raise InputError(
            f"sample_weight: row {bad[0]}: expected a whole number, got {w[bad[0]]}. A guarantee needs counts, how "
            f"often each sample occurred. {instead}"
        )
