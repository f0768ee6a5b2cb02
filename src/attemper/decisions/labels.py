"""Decisions on labels that do not exclude each other: a threshold for each, and which labels of a sample to refer."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from attemper._checks import fraction, one_of, positive
from attemper._json import from_fields, read_document, to_fields, write_document
from attemper._table import Columns, Table
from attemper._typing import Floats
from attemper.data.ids import as_ids
from attemper.data.label_matrix import Uncertain, check_columns
from attemper.decisions.certificates import most_errors, samples_needed
from attemper.decisions.choosing import policy_for_budget, policy_for_cost, policy_for_miss
from attemper.decisions.outcomes import Outcome, outcome_of
from attemper.decisions.policy import MissRateOf, Policy
from attemper.errors import FileError, InputError
from attemper.metrics.labels import checked_labels

__all__ = ["LabelDecisions", "LabelPolicies", "LabelThresholds", "label_policies", "label_thresholds"]

By = Literal["f1", "youden", "sensitivity", "cost"]


@dataclass(frozen=True)
class LabelThresholds(Table):
    """A threshold for each label, and how it was chosen: `label_thresholds` returns it.

    Set ``calibrator.thresholds_ = found.thresholds`` to let `MultiLabelCalibrator.predict` use them.
    """

    label_names: tuple[str, ...]
    thresholds: tuple[float, ...]  # a label is predicted where its probability reaches it
    rationale: tuple[str, ...]


def label_thresholds(
    labels: Any,
    probs: Any,
    by: By,
    *,
    sensitivity: float = 0.95,
    confidence_level: float | None = None,
    simultaneous: bool = True,
    cost_false_positive: float = 1.0,
    cost_false_negative: float = 1.0,
    mask: Any = None,
    uncertain: Uncertain = None,
    label_names: Sequence[Any] | None = None,
) -> LabelThresholds:
    """Choose for each label the probability threshold at which it is predicted.

    Choose on validation samples that the map was not fitted on. What ``by="f1"`` and ``by="youden"`` reach there is
    the best of many thresholds, so it is lower on new samples; a label with few positives may end up anywhere.

    Parameters
    ----------
    labels, probs : arrays of shape (N, L)
        As in `attemper.metrics.label_metrics`. Soft labels count as positive from 0.5 on.
    by : "f1", "youden", "sensitivity" or "cost"
        The largest F1; the largest sensitivity + specificity − 1; the largest threshold that reaches ``sensitivity``;
        or the least expected cost, c₊ / (c₊ + c₋), which needs calibrated probabilities and no labels (None).
    sensitivity : float
        Share of the positives that is to be found.
    confidence_level : float, optional
        With ``by="sensitivity"``: guarantee it for new samples like these, with this confidence, by the order
        statistics of the positives. Otherwise it holds on these samples, and about so on others.
    simultaneous : bool
        The confidence is that of all labels together: each has 1 − (1 − confidence_level)/L.
    cost_false_positive, cost_false_negative : float
        c₊, of predicting a label that is not there, and c₋, of missing one.

    Examples
    --------
    >>> labels = [[1], [0], [1], [0], [0]]
    >>> probs = [[0.9], [0.6], [0.5], [0.2], [0.1]]
    >>> label_thresholds(labels, probs, "f1").thresholds
    (0.5,)
    >>> label_thresholds(None, probs, "cost", cost_false_negative=4).thresholds
    (0.2,)
    """
    one_of("by", by, ("f1", "youden", "sensitivity", "cost"))
    if labels is None:
        if by != "cost":
            raise InputError(f"by={by!r}: needs labels; without them use by='cost'")
        labels = np.zeros(np.shape(probs))
    names, y, p = checked_labels(labels, probs, label_names, mask=mask, uncertain=uncertain)
    if by == "cost":
        plus, minus = (
            positive("cost_false_positive", cost_false_positive),
            positive("cost_false_negative", cost_false_negative),
        )
        why = f"the least expected cost, where a false positive costs {plus:g} and a false negative {minus:g}"
        return LabelThresholds(tuple(names), (plus / (plus + minus),) * len(names), (why,) * len(names))
    delta = None
    if by == "sensitivity":
        fraction("sensitivity", sensitivity)
        if confidence_level is not None:
            delta = (1 - fraction("confidence_level", confidence_level)) / (len(names) if simultaneous else 1)
    found = []
    for k in range(len(names)):
        known = ~np.isnan(y[:, k])
        truth, scores = y[known, k] >= 0.5, p[known, k]
        if by == "sensitivity":
            found.append(_for_sensitivity(truth, scores, sensitivity, delta))
        else:
            found.append(_best(truth, scores, by))
    thresholds, rationale = zip(*found)
    return LabelThresholds(tuple(names), thresholds, rationale)


def _best(truth: NDArray[np.bool_], p: Floats, by: By) -> tuple[float, str]:
    """Return the threshold of the largest F1 or Youden index on these samples."""
    n_positive, n_negative = int(truth.sum()), int((~truth).sum())
    if not n_positive or not n_negative:
        return 0.5, f"0.5, as no known entry is {'negative' if n_positive else 'positive'}"
    values, group = np.unique(p, return_inverse=True)
    found = np.bincount(group, truth, len(values))[::-1].cumsum()[::-1]  # positives from each value on
    wrong = np.bincount(group, ~truth, len(values))[::-1].cumsum()[::-1]
    score = 2 * found / (found + wrong + n_positive) if by == "f1" else found / n_positive - wrong / n_negative
    best = len(score) - 1 - int(score[::-1].argmax())
    name = "F1" if by == "f1" else "Youden index"
    why = f"{name} {score[best]:.3f} on the {len(p)} samples that it was chosen on ({n_positive} positive)"
    return float(values[best]), f"{why}, where it is the best of {len(values)} thresholds; expect less on others"


def _for_sensitivity(truth: NDArray[np.bool_], p: Floats, wanted: float, delta: float | None) -> tuple[float, str]:
    """Return the largest threshold below which few enough of the positives lie."""
    positives = np.sort(p[truth])
    n = len(positives)
    if not n:
        return 0.0, "0: no known entry is positive, so every sample is predicted to have the label"
    if delta is None:
        missed = int(np.floor((1 - wanted) * n + 1e-9))
        why = f"misses {missed} of {n} positives on the samples that it was chosen on, and about so of others"
        return float(positives[missed]), why
    missed = most_errors(n, 1 - wanted, delta)
    if missed < 0:
        need = samples_needed(1 - wanted, delta)
        return 0.0, f"0: a sensitivity of {wanted:g} needs {need} positives for this confidence, and there are {n}"
    why = f"with confidence {1 - delta:.4g} at least {wanted:g} of the positives reach it ({n} positives)"
    return float(positives[missed]), why


class LabelDecisions(NamedTuple):
    """The decision for each label of each sample, N×L: `refer_or_decide` of `label_policies` returns it."""

    refer: NDArray[np.bool_]  # to a specialist; the others are decided as predicted
    prediction: NDArray[np.int64]  # 1 where the label is more probable than not
    confidence: Floats  # probability of the prediction


@dataclass(frozen=True)
class LabelPolicies(Table):
    """A `Policy` for each label, of two classes, absent and present: `label_policies` makes them."""

    label_names: tuple[str, ...]
    policies: tuple[Policy, ...]
    simultaneous: bool  # the confidence of the guarantees is that of all labels together

    def refer_or_decide(self, probs: Any) -> LabelDecisions:
        """Decide or refer each label of each sample, N×L probabilities.

        Examples
        --------
        >>> policies = label_policies([[0.97, 0.5], [0.1, 0.2], [0.6, 0.7]], budget=0.4)
        >>> policies.refer_or_decide([[0.9, 0.5]]).refer
        array([[False,  True]])
        """
        p = self._probs(probs)
        found = [policy.refer_or_decide(_pair(p[:, k])) for k, policy in enumerate(self.policies)]
        return LabelDecisions(*(np.stack(columns, axis=1) for columns in zip(*found)))

    def outcomes(
        self, labels: Any, probs: Any, *, mask: Any = None, uncertain: Uncertain = None, clusters: Any = None
    ) -> dict[str, Outcome]:
        """Apply the policies to labelled samples that they were not chosen on; labels without entries are left out.

        ``clusters`` are those of `outcome_of`.
        """
        check_columns(labels, self.label_names, "labels", "the policies")
        check_columns(probs, self.label_names, "probs", "the policies")
        _, y, p = checked_labels(labels, probs, self.label_names, mask=mask, uncertain=uncertain)
        self._probs(p)
        cases = None if clusters is None else as_ids(clusters, len(p))
        result = {}
        for k, (name, policy) in enumerate(zip(self.label_names, self.policies)):
            known = ~np.isnan(y[:, k])
            if known.any():
                own = None if cases is None else cases[known]
                result[name] = outcome_of(
                    policy, _pair(p[known, k]), (y[known, k] >= 0.5).astype(np.int64), clusters=own
                )
        return result

    def promise(self) -> str:
        """Return the guarantee as a sentence."""
        guarantee = next((policy.guarantee for policy in self.policies if policy.guarantee), None)
        if guarantee is None:
            return "nothing is guaranteed"
        count = len(self.policies) if self.simultaneous else 1
        level = round(1 - (1 - guarantee.confidence_level) * count, 12)
        of_one = replace(self.policies[0], guarantee=replace(guarantee, confidence_level=level)).promise()
        return f"{of_one}, {'for all labels at once' if self.simultaneous else 'for each label by itself'}"

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the policies as JSON, atomically; read them with `LabelPolicies.load`."""
        write_document(path, "label policies", to_fields(self))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read what `save` wrote; a clear `FileError` for anything else."""
        found = from_fields(cls, read_document(path, "label policies"))
        if not found.policies or len(found.policies) != len(found.label_names):
            raise FileError(f"{path}: expected as many policies as labels")
        for name, policy in zip(found.label_names, found.policies):
            wrong = policy.contradiction() or ("" if policy.n_classes == 2 else f"{policy.n_classes} classes")
            if wrong:
                raise FileError(f"{path}: label {name!r}: {wrong}")
        return found

    def _probs(self, probs: Any) -> Floats:
        check_columns(probs, self.label_names, "probs", "the policies")
        names, _, p = checked_labels(np.zeros(np.shape(probs)), probs, None)
        if len(names) != len(self.policies):
            raise InputError(
                f"probabilities: expected {len(self.policies)} columns, one for each label, got {len(names)}"
            )
        return p

    def _table_columns(self) -> Columns:
        return {
            "label": self.label_names,
            "rule": [policy.rule() for policy in self.policies],
            "reached": [policy.reached for policy in self.policies],
            "rationale": [policy.rationale for policy in self.policies],
        }


def label_policies(
    probs: Any,
    labels: Any = None,
    *,
    max_miss: float | None = None,
    budget: float | None = None,
    cost_refer: float | None = None,
    cost_miss: float | Sequence[float] | None = None,
    confidence_level: float = 0.95,
    simultaneous: bool = True,
    miss_rate_of: MissRateOf = "decided",
    mask: Any = None,
    uncertain: Uncertain = None,
    label_names: Sequence[Any] | None = None,
    clusters: Any = None,
    max_per_cluster: int | None = None,
    seed: int = 0,
) -> LabelPolicies:
    """Choose for each label which samples to refer: by a miss rate, a budget or costs, as for two classes.

    Set one of ``max_miss`` (`policy_for_miss`, which needs labels), ``budget`` (`policy_for_budget`) and
    ``cost_refer`` with ``cost_miss`` (`policy_for_cost`; of two numbers the second is the cost of missing the label).
    The samples must not be those that the map was fitted on.

    Parameters
    ----------
    probs, labels : arrays of shape (N, L)
        As in `attemper.metrics.label_metrics`. Unknown entries do not count. Soft labels count as positive from 0.5 on.
    confidence_level : float
        Confidence of the guarantee.
    simultaneous : bool
        The guarantee holds for all L labels at once: each is chosen with a confidence level of
        1 − (1 − confidence_level)/L (Bonferroni). If False, it holds for each label by itself.
    miss_rate_of, clusters, max_per_cluster, seed
        As in `policy_for_miss`.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> probs = rng.beta(0.3, 0.3, size=(2000, 2))
    >>> labels = rng.random(probs.shape) < probs
    >>> policies = label_policies(probs, labels, max_miss=0.05)
    >>> [policy.reached for policy in policies.policies]
    [True, True]
    >>> policies.promise()
    'with confidence 0.95 at most 0.05 of the decided samples are decided wrongly, for all labels at once'
    """
    asked = [
        name
        for name, value in (("max_miss", max_miss), ("budget", budget), ("cost_refer", cost_refer))
        if value is not None
    ]
    if len(asked) != 1 or (cost_refer is None) != (cost_miss is None):
        raise InputError(
            "expected one of max_miss, budget, and cost_refer with cost_miss, got " + (" and ".join(asked) or "none")
        )
    if max_miss is not None and labels is None:
        raise InputError("max_miss: a guarantee needs labels")
    given = np.zeros(np.shape(probs)) if labels is None else labels
    names, y, p = checked_labels(given, probs, label_names, mask=mask, uncertain=uncertain)
    level = 1 - (1 - fraction("confidence_level", confidence_level)) / (len(names) if simultaneous else 1)
    cases = None if clusters is None else as_ids(clusters, len(p))
    policies = []
    for k, name in enumerate(names):
        known = ~np.isnan(y[:, k])
        classes = [f"no {name}", name]
        if not known.any():
            why = "no entry is known, so every sample is referred"
            policies.append(Policy(1.0, why, 2, 0, reached=False, classes=tuple(classes)))
            continue
        pairs, truth = _pair(p[known, k]), (y[known, k] >= 0.5).astype(np.int64)
        about: dict[str, Any] = {"classes": classes, "clusters": None if cases is None else cases[known]}
        if max_miss is not None:
            about |= {"confidence_level": level, "miss_rate_of": miss_rate_of}
            about |= {"max_per_cluster": max_per_cluster, "seed": seed}
            policies.append(policy_for_miss(pairs, truth, max_miss, **about))
        elif budget is not None:
            policies.append(policy_for_budget(pairs, budget, **about))
        else:
            assert cost_refer is not None
            assert cost_miss is not None
            own = None if labels is None else truth
            policies.append(policy_for_cost(pairs, own, cost_refer=cost_refer, cost_miss=cost_miss, **about))
    return LabelPolicies(tuple(names), tuple(policies), simultaneous and max_miss is not None)


def _pair(p: Floats) -> Floats:
    return np.column_stack([1 - p, p])
