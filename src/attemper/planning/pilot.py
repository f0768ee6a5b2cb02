"""A pilot: scores of some samples of the kind that will be labelled, with or without labels."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from scipy.special import log_softmax

from attemper._typing import Floats, Labels
from attemper.calibrators.base import Calibrator
from attemper.calibrators.temperature import TemperatureScaling
from attemper.data.ids import as_ids
from attemper.data.scores import LabelledScores, Scores
from attemper.errors import EdgeWarning, InputError
from attemper.metrics import effective_sample_size

__all__ = ["Pilot", "fitted_temperature"]

LEAST_SAMPLES = 10
LEAST_CLUSTERS = 5  # as for intervals of metrics


class Pilot(NamedTuple):
    """What plans are made from; ``weights`` sum to 1."""

    scores: Scores
    weights: Floats
    labels: Labels | None
    clusters: Labels | None  # 0, 1, …

    @classmethod
    def of(cls, pilot: Any, labels: Any = None, clusters: Any = None) -> Pilot:
        """Check a pilot: a `Scores`, or logits and, if there are some, labels."""
        if isinstance(pilot, Scores):
            if labels is not None:
                raise InputError("labels: a Scores has its own; pass no others")
            scores = pilot
        else:
            scores = Scores.from_logits(pilot, labels)
        if scores.n_samples < LEAST_SAMPLES:
            raise InputError(
                f"pilot: expected {LEAST_SAMPLES} samples or more, got {scores.n_samples}. Use a larger pilot, with or "
                "without labels, or typical_network(accuracy, n_classes) (command line: --accuracy and --n-classes)."
            )
        w = np.ones(len(scores)) if scores.weights is None else np.asarray(scores.weights, dtype=np.float64)
        if w.sum() == 0:
            raise InputError("pilot: all weights are 0")
        if clusters is not None:
            scores = replace(scores, cluster_ids=as_ids(clusters, len(scores)))
        soft = scores.repeated is not None and scores.cluster_ids is None  # rows of one sample, whose weights add up
        case = None if soft else scores.clusters
        if case is not None:
            case = np.unique(case, return_inverse=True)[1]
            n = int(case.max()) + 1
            if n < LEAST_CLUSTERS:
                raise InputError(
                    f"clusters: expected {LEAST_CLUSTERS} or more in the pilot, got {n}: so few do not show how much "
                    "samples of one cluster are alike. Use a pilot of more clusters."
                )
        y = scores.labels if isinstance(scores, LabelledScores) else None
        return cls(scores, w / w.sum(), y, case)

    @property
    def n_clusters(self) -> int | None:
        """How many clusters there are; None where each sample is one."""
        return None if self.clusters is None else int(self.clusters.max()) + 1

    @property
    def cluster_size(self) -> float:
        """Samples of a cluster, on average."""
        return 1.0 if self.n_clusters is None else len(self.weights) / self.n_clusters

    def clusters_of(self, n: float) -> int | None:
        """How many clusters n samples are of."""
        return None if self.clusters is None else int(np.ceil(n / self.cluster_size))

    def logits(self) -> Floats:
        """Return the logits, N×K, in double precision."""
        return self.scores.rows(slice(None)).astype(np.float64)

    def log_probs(self, calibrator: Calibrator | None) -> Floats:
        """Return log-probabilities, N×K: the classifier's own, or those after a map."""
        if calibrator is None:
            return np.asarray(log_softmax(self.logits(), axis=1))
        return np.asarray(calibrator.predict_log_proba(self.scores), dtype=np.float64)

    def design_effect(self, values: Floats) -> float:
        """How many times as many samples of clusters as independent ones a mean takes; 1 without labels."""
        if self.clusters is None or self.labels is None:
            return 1.0
        return effective_sample_size(values, self.clusters, self.weights * len(values)).design_effect

    def cluster_notes(self, effect: float) -> list[str]:
        """Report what a plan makes of clusters; nothing where there are none."""
        if self.clusters is None:
            return []
        if self.labels is None:
            return ["the pilot has no labels, so samples of one cluster count as independent ones: too few labels"]
        return [f"by cluster: {effect:.3g} times as many as independent samples"]

    def moment(self, values: Floats) -> float:
        """Weighted mean."""
        return float(self.weights @ values)


def fitted_temperature(p: Pilot, logits: Floats) -> tuple[float, float, float]:
    """Fit T on the pilot's labels; return it and the ends of its interval. An error where they leave T open."""
    weights = p.weights * len(p.weights)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", EdgeWarning)  # which is an error here
        found = TemperatureScaling().fit(logits, p.labels, weights, clusters=p.clusters)
    if found.fit_report_.edge is not None or found.temperature_interval_ is None:
        raise InputError(
            f"pilot: {found.fit_report_.message}. Use a larger pilot, or the T of a similar network: "
            f"temperature=…, for a pilot without labels.",
            param="temperature",
        )
    return found.temperature_, *found.temperature_interval_
