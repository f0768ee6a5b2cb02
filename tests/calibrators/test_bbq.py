"""BBQ is the average that the paper describes; here it is written down bin by bin."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
from scipy.special import softmax

from attemper import BBQ

from data import draw


def histograms(p):
    """All histograms of equal frequency: lists of bins, each a list of the probabilities in it."""
    root = len(p) ** (1 / 3)
    values = sorted(set(p))
    found = []
    for n_bins in range(max(1, math.floor(root / 10)), max(1, min(math.ceil(10 * root), len(values))) + 1):
        bins = [[] for _ in range(n_bins)]
        before = 0
        for v in values:
            count = list(p).count(v)
            bins[int(n_bins * (before + count / 2) / len(p) + 1e-9)].append(v)
            before += count
        bins = [b for b in bins if b]
        if bins not in found:
            found.append(bins)
    return found


def oracle(p, z, at):
    """P(z = 1) at some probabilities: Naeini et al. 2015, with N' = 2 and C = 10."""
    scores, predictions = [], []
    for bins in histograms(p):
        prior = 2 / len(bins)
        edges = [0.0] + [(a[-1] + b[0]) / 2 for a, b in pairwise(bins)] + [1.0]
        score, theta = 0.0, []
        for b, (low, high) in enumerate(pairwise(edges)):
            inside = [zi for pi, zi in zip(p, z) if pi in bins[b]]
            m, n = sum(inside), len(inside) - sum(inside)
            middle = (low + high) / 2
            alpha, beta = prior * middle, prior * (1 - middle)
            score += math.lgamma(prior) - math.lgamma(m + n + prior)
            score += math.lgamma(m + alpha) - math.lgamma(alpha)
            score += math.lgamma(n + beta) - math.lgamma(beta)
            theta.append((m + alpha) / (m + n + prior))
        scores.append(score)
        predictions.append([theta[sum(x >= e for e in edges[1:-1])] for x in at])
    share = np.exp(np.array(scores) - max(scores))
    return share / share.sum() @ np.array(predictions)


@pytest.mark.parametrize("n, n_classes", [(1, 2), (7, 2), (150, 2), (120, 3)])
def test_the_average_of_the_paper(n, n_classes):
    h, y = draw(n, n_classes)
    at = draw(60, n_classes, seed=1)[0]
    p, x = softmax(h, axis=1), softmax(at, axis=1)
    fitted = BBQ().fit(h, y)
    if n_classes == 2:
        q = oracle(p[:, 1].tolist(), (y == 1).tolist(), x[:, 1])
        expected = np.stack([1 - q, q], axis=1)
    else:
        q = np.stack([oracle(p[:, k].tolist(), (y == k).tolist(), x[:, k]) for k in range(n_classes)], axis=1)
        expected = q / q.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(fitted.predict_proba(at), expected, atol=1e-11)
