"""Decisions on labels that do not exclude each other: which labels of a sample to refer."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from attemper._checks import fraction
from attemper._json import from_fields, read_document, to_fields, write_document
from attemper._table import Columns, Table
from attemper._typing import Floats
from attemper.data.ids import as_ids
from attemper.data.label_matrix import Uncertain, check_columns
from attemper.decisions.choosing import policy_for_budget, policy_for_cost, policy_for_miss
from attemper.decisions.outcomes import Outcome, outcome_of
from attemper.decisions.policy import MissRateOf, Policy
from attemper.errors import InputError
from attemper.metrics.labels import checked_labels

__all__ = ["LabelDecisions", "LabelPolicies", "label_policies"]


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
        return from_fields(cls, read_document(path, "label policies"))

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
