"""Fits that average over a posterior, where rows of one case (a patient, a document) are not independent.

The likelihood of N rows counts each of them as news. With cases its logarithm is divided by the design effect of its
gradient, so that the posterior is about as wide as that of cases drawn afresh: the magnitude adjustment of composite
likelihoods (F. Pauli, W. Racugno, L. Ventura, Bayesian composite marginal likelihoods, Statistica Sinica 21, 2011; M.
Ribatet, D. Cooley, A. C. Davison, Bayesian inference from composite likelihoods, Statistica Sinica 22, 2012). For one
parameter, T, that is the variance of the sandwich by case as N grows; for several it is right on average over them.
Evidence and shrinkage then count the effective number of samples too.
"""

from __future__ import annotations

import numpy as np
from scipy.special import softmax

from attemper._typing import Floats, Labels
from attemper.calibrators.temperature import best_temperature
from attemper.data.arrays import to_numpy
from attemper.data.scores import LabelledScores
from attemper.kernels.clusters import design_effect

__all__ = ["design_note", "fit_effect", "tempered"]

MOST_ELEMENTS = 1 << 22  # of logits whose gradients show how far cases go together; beyond, some cases are taken


def tempered(scores: LabelledScores, *, biases: bool = False) -> tuple[LabelledScores, float]:
    """Divide the weights by the design effect, and return it; 1 where rows are samples of their own."""
    if scores.cases is None:
        return scores, 1.0
    effect = fit_effect(scores, scores.cases, biases=biases)
    weights = np.ones(len(scores)) if scores.weights is None else scores.weights
    return scores.weighted(weights / effect), effect


def design_note(effect: float, n_cases: int) -> str:
    """Return what the report of a fit has about it."""
    return f"{n_cases} clusters: the samples count by 1/{effect:.3g}, the design effect"


def fit_effect(scores: LabelledScores, case: Labels, *, biases: bool = False) -> float:
    """Design effect of the gradient of the NLL in T; the larger one of T and of class biases if these are fitted.

    Where gradients do not differ, as in a single case, a case counts as one row.
    """
    beta = 1 / best_temperature(scores).t
    w = np.ones(len(scores)) if scores.weights is None else scores.weights
    found = [design_effect(scores.slopes(beta), case, w, repeats=True)]
    if biases:
        rows = case % max(1, len(scores) * scores.n_classes // MOST_ELEMENTS) == 0
        found.append(design_effect(_bias_slopes(scores, beta)[rows], _numbered(case[rows]), w[rows], repeats=True))
    known = [effect for effect in found if not np.isnan(effect)]
    return max(known) if known else max(1.0, float(w.sum()) / (int(case.max()) + 1))


def _bias_slopes(scores: LabelledScores, beta: float) -> Floats:
    """Slope of the NLL in a bias of each class, row by row: the probability less the label."""
    found: Floats = softmax(to_numpy(scores.logits).astype(np.float64) * beta, axis=1)
    found[np.arange(len(found)), scores.labels] -= 1
    return found


def _numbered(case: Labels) -> Labels:
    return np.unique(case, return_inverse=True)[1]
