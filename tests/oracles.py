"""Slow, obvious versions of every kernel: loops over samples and classes, straight from the formulas."""

from __future__ import annotations

import math

import mpmath
import numpy as np


def softmax(h, t=1.0):
    top = max(h)
    e = [math.exp((v - top) / t) for v in h]
    return [v / sum(e) for v in e]


def other_than(k, s):
    """S_{y≠k}, which 1 − S_k would give with far fewer digits."""
    return sum(v for j, v in enumerate(s) if j != k)


def nll(h, y, t, w=None):
    """Eq. (2) at temperature t."""
    w = np.ones(len(y)) if w is None else w
    return sum(-w[i] * math.log(softmax(h[i], t)[y[i]]) for i in range(len(y)))


def attended_loss(h, y, t, theta, w=None):
    """Eq. (8): the double loop over k and M_k, with M_k of Eq. (7)."""
    n, n_classes = np.shape(h)
    w = np.ones(n) if w is None else w
    loss = 0.0
    for k in range(n_classes):
        for i in range(n):
            if y[i] == k or softmax(h[i], 1.0)[k] >= theta:  # (x_i, y_i) is in M_k
                s = softmax(h[i], t)
                loss += -w[i] * math.log(s[k] * other_than(y[i], s) / other_than(k, s))
    return loss


def reference_loss(h, y, t, theta, w=None):
    """The loss of the authors' published code."""
    n, n_classes = np.shape(h)
    w = np.ones(n) if w is None else w
    loss = 0.0
    for i in range(n):
        at_one, s = softmax(h[i], 1.0), softmax(h[i], t)
        predicted = int(np.argmax(h[i]))
        for k in range(n_classes):
            if k == y[i]:
                loss += -w[i] * math.log(s[k])
            elif at_one[k] >= theta or k == predicted:
                loss += w[i] * (-2 * math.log(s[k]) + math.log(other_than(k, s)))
    return loss


def noisy_log_likelihood(h, y, t, eps, w=None):
    n, n_classes = np.shape(h)
    w = np.ones(n) if w is None else w
    return sum(w[i] * math.log((1 - eps) * softmax(h[i], t)[y[i]] + eps / n_classes) for i in range(n))


def exact_temperature(h, y, digits=50):
    """The T with the least NLL, to many digits: the zero of Eq. (5)."""
    with mpmath.workdps(digits):
        rows = [[mpmath.mpf(float(v)) for v in row] for row in h]

        def slope(beta):
            total = mpmath.mpf(0)
            for row, label in zip(rows, y):
                e = [mpmath.exp(beta * (v - max(row))) for v in row]
                total += sum(v * p for v, p in zip(row, e)) / sum(e) - row[label]
            return total

        low, high = mpmath.mpf("1e-6"), mpmath.mpf("1e6")
        for _ in range(60):  # bisection in log β down to a bracket where the secant is safe
            middle = mpmath.sqrt(low * high)
            low, high = (middle, high) if slope(middle) < 0 else (low, middle)
        return 1 / mpmath.findroot(slope, (low, high), solver="anderson", tol=mpmath.mpf(10) ** (10 - digits))


def isotonic(positive, negative):
    """Isotonic regression of the share of positives: of ever larger blocks from the left, join those that fall."""
    blocks = []
    for p, n in zip(positive, negative):
        blocks.append([p, n, 1])
        while len(blocks) > 1 and blocks[-2][0] * sum(blocks[-1][:2]) >= blocks[-1][0] * sum(blocks[-2][:2]):
            last = blocks.pop()
            blocks[-1] = [a + b for a, b in zip(blocks[-1], last)]
    return [p / (p + n) for p, n, count in blocks for _ in range(count)]
