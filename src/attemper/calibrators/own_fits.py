"""Groups that are better off with a fit of their own: what a scale and biases cannot correct, such as a matrix."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from attemper._typing import Floats
from attemper.data.scores import LabelledScores
from attemper.errors import AttemperError
from attemper.maps import Map

__all__ = ["OwnFits"]

LEAST_WEIGHT, LEAST_PER_CLASS = 50.0, 1.0  # of a group that is compared; docs/groups.md has what they were chosen on
FOLDS = 5

Recipe = Callable[[LabelledScores], Map]
LogLikelihood = Callable[[Map, LabelledScores], Floats]


class OwnFits(NamedTuple):
    """The recipe, fitted on the rows of one group alone, and how well a map explains labels."""

    recipe: Recipe
    log_likelihood: LogLikelihood  # of each row

    @staticmethod
    def least(n_classes: int) -> float:
        """Return the weight that a group needs to be compared."""
        return max(LEAST_WEIGHT, LEAST_PER_CLASS * n_classes)

    def better(self, scores: LabelledScores, corrected: Map, optimism: float) -> Map | None:
        """Return a fit on these rows alone if it predicts held-out labels better than the corrected common map.

        ``optimism`` is the number of parameters of the correction that these rows determine: on rows of the fit its
        log-likelihood is too large by about as many nats.
        """
        w = np.ones(len(scores)) if scores.weights is None else scores.weights
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of folds, in which classes may be absent
                held_out = self._held_out(scores)
                if float(w @ held_out) <= float(w @ self.log_likelihood(corrected, scores)) - optimism:
                    return None
                return self.recipe(scores)
        except (AttemperError, np.linalg.LinAlgError):  # there is no fit on so few rows
            return None

    def _held_out(self, scores: LabelledScores) -> Floats:
        """Log-likelihood of each row by a fit without its fold."""
        fold, value = _folds(scores), np.zeros(len(scores))
        for k in range(int(fold.max()) + 1):
            rest, own = np.flatnonzero(fold != k), np.flatnonzero(fold == k)
            value[own] = self.log_likelihood(self.recipe(scores.at(rest)), scores.at(own))
        return value


def _folds(scores: LabelledScores) -> NDArray[np.int64]:
    """Fold of each row, of no order of rows: by its case, or by the rank of its size; equal rows agree."""
    if scores.clusters is not None:
        _, code = np.unique(scores.clusters, return_inverse=True)
    else:
        h = np.asarray(scores.logits, dtype=np.float64)
        _, code = np.unique(np.where(np.isfinite(h), h, 0.0).var(axis=1), return_inverse=True)
    return np.asarray(code.reshape(-1) % FOLDS, dtype=np.int64)
