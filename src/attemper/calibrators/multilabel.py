"""Many labels that do not exclude each other: a curve for each, pooled so that a rare label borrows from the others.

The pooled fit is empirical Bayes: log-slope and bias of the labels are drawn from one normal law, whose mean and
covariance the labels themselves determine. On samples held out from it (five folds, of the scores alone, so that the
order of samples and their repetition change nothing) it is compared with the classifier as it is. Where it is not
better, the classifier is left alone. Errors of the labels are not modelled.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from attemper._typing import Floats, Labels
from attemper.calibrators.base import Calibrator, Fit, Report
from attemper.data.arrays import to_numpy
from attemper.data.scores import Scores
from attemper.errors import ConvergenceWarning, InputError, listed, warn
from attemper.kernels import curves
from attemper.kernels.clusters import case_numbers, design_effect
from attemper.kernels.evidence import ScalePrior
from attemper.maps import Curves, Map

SHOWN = 12  # labels that a summary lists
# Of the common temperature: as in `structured`. Of the common bias: that of a network which was trained with weights
# for rare labels. How labels differ: least excess over calibrated, common and different labels, 4 and 20 of them, with
# 5 to 1000 positives each.
EXPECTED = curves.Expected(ScalePrior(0.15, 0.6, 4.0), ScalePrior(0.0, 1.0, 4.0), np.diag([0.01, 0.05]), 3.0)
FOLDS = 5


class MultiLabelCalibrator(Calibrator, wrapper=True):
    r"""Calibrate a multi-label classifier, such as one for findings in a radiograph: N×L scores, N×L labels.

    A label is 1, 0, or NaN where it is not known. Each label l has a curve of its own: with s the log-odds,
    :math:`\sigma(a_l s + b_l)`, where :math:`(\log a_l, b_l)` are drawn from one normal law that all labels share, and
    that is estimated from them. A label with many positives keeps its own curve, one with few gets nearly the common
    one, and one without known entries gets exactly that. If held-out samples show no gain over the classifier as it is,
    the map leaves it alone (``report_.left_alone``).

    Parameters
    ----------
    input : "logits" or "probs"
        What X holds: the log-odds of each label (what a sigmoid takes), or its probability. It is never guessed.
    classes : sequence of names, optional
        Names of the labels.
    zeros_as : float, optional
        What a probability of exactly 0 stands for; 1 is read as 1 minus that. By default half of the smallest of p and
        1 − p in the fit.

    Attributes
    ----------
    slope_, bias_ : a and b of each label
    own_share_ : how far the curve of each label depends on its own samples; 0: it is the common one
    common_ : (slope, bias) of the common curve
    n_known_, n_positive_ : weight of the known and of the positive entries of each label
    heldout_gain_ : how much lower the NLL is than without calibration, in nats for each known entry; None: not known

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> truth = rng.normal(size=(4000, 3)) * 2 - [0, 2, 5]  # the last label is rare
    >>> labels = (truth + rng.logistic(size=truth.shape) > 0).astype(float)
    >>> labels[::7, 1] = np.nan  # unknown
    >>> fitted = MultiLabelCalibrator(classes=["edema", "fracture", "hernia"]).fit(2 * truth + 1, labels)
    >>> fitted.slope_.round(1), fitted.bias_.round(1)
    (array([0.5, 0.5, 0.5]), array([-0.5, -0.5, -0.4]))
    >>> fitted.predict_proba([[1.0, 1.0, 1.0]]).round(2), fitted.predict([[3.0, 0.0, -9.0]])
    (array([[0.51, 0.5 , 0.53]]), array([[1, 0, 0]]))
    """

    method = "multilabel"
    title = "pooled curves of many labels"
    value_types: ClassVar[dict[str, Any]] = dict.fromkeys(
        ("slope", "bias", "own_share", "n_known", "n_positive"), Floats
    )

    def _options(self) -> dict[str, Any]:
        return {**super()._options(), "multi_label": True}

    def _fit(self, scores: Scores) -> Fit:
        if not scores.multi_label:
            raise InputError("labels: a fit needs labels N×L, one column for each label", "labels")
        known = ~np.isnan(scores.labels)
        w = scores.weights[:, None] * known
        some = w.any(axis=1)
        if not some.any():
            raise InputError("labels: no entry is known, so there is nothing to fit", "labels")
        target = np.where(known, scores.labels, 0.0)
        if scores.masked:
            raise InputError("data: an entry is -inf. For probabilities of 0 use input='probs'.", "data")
        data = curves.Problems(*(np.ascontiguousarray(a[some].T) for a in (scores.logits, target, w)))
        cases = None if scores.cases is None else scores.cases[some]
        known, positive = data.w.sum(axis=1), (data.w * data.t).sum(axis=1)
        data = data._replace(w=data.w / (1.0 if cases is None else _effect(data, cases)))
        found = curves.fit_pooled(data, EXPECTED)
        gain = _held_out_gain(data, found, cases)
        left_alone = gain is not None and gain <= 0
        slope, bias = np.exp(found.at[:, 0]), found.at[:, 1]
        if left_alone:
            slope, bias = np.ones_like(slope), np.zeros_like(bias)
        if not found.converged:
            warn("the fit of many labels has not converged", ConvergenceWarning)
        total, odds = float(data.w.sum()), slope[:, None] * data.x + bias[:, None]
        changed = float((data.w * ((odds >= 0) != (data.x >= 0))).sum()) / total
        nll = float(curves.log_slopes(np.stack([np.log(slope), bias], axis=1), data).loss.sum()) / total
        names = range(scores.n_classes) if scores.classes is None else scores.classes
        odd = [str(name) for name, n, p in zip(names, known, positive) if p in (0, n)]
        notes: tuple[str, ...] = (f"no known positives, or no known negatives, of {listed(odd, 5)}",) if odd else ()
        if odd:
            warn(f"labels: {notes[0]}: they get the common curve")
        report = Report(
            nll, data.x.shape[1], found.converged, found.error / total, n_iter=found.n_iter,
            changed=changed, left_alone=left_alone, notes=notes,
        )  # fmt: skip
        values = {
            "slope": slope, "bias": bias, "own_share": found.own_share, "n_known": known, "n_positive": positive,
            "common": (float(np.exp(found.law.mean[0])), float(found.law.mean[1])), "heldout_gain": gain,
        }  # fmt: skip
        return Fit(Map((Curves(slope, slope, bias, independent=True),)), report, values)

    def predict(self, X: Any, **options: Any) -> NDArray[np.int64]:
        """Return 1 where the probability of a label is at least one half, else 0, N×L."""
        return np.asarray(to_numpy(self.predict_proba(X, **options)) >= 0.5, dtype=np.int64)

    def _facts(self) -> list[str]:
        """Return the common curve, and the labels with the fewest positives."""
        slope, bias = self.common_
        lines = [f"common curve of all labels: slope {slope:.4g} (T = {1 / slope:.4g}), bias {bias:+.4g}"]
        order = np.argsort(self.n_positive_, kind="stable")
        lines += [
            f"{self.classes_[k]}: {self.n_positive_[k]:g} of {self.n_known_[k]:g} positive, slope "
            f"{self.slope_[k]:.3g}, bias {self.bias_[k]:+.3g}, {self.own_share_[k]:.0%} its own"
            for k in order[:SHOWN].tolist()
        ]
        if len(order) > SHOWN:
            lines.append(f"and {len(order) - SHOWN} labels with more positives")
        return [*super()._facts(), *lines]


def _effect(data: curves.Problems, cases: Labels) -> float:
    """Design effect of the gradients of the biases, of the classifier as it is."""
    residual = ((1 / (1 + np.exp(-np.clip(data.x, -700, 700))) - data.t) * (data.w > 0)).T
    weights = data.w.max(axis=0)
    effect = design_effect(residual, case_numbers(cases), weights, repeats=True)
    return 1.0 if np.isnan(effect) else effect


def _held_out_gain(data: curves.Problems, found: curves.PooledFit, cases: Labels | None) -> float | None:
    """NLL of the classifier as it is, less that of the fit, for each known entry of held-out samples.

    None where there are fewer distinct samples, or cases, than folds.
    """
    key = np.einsum("ln,ln->n", data.x, data.x) if cases is None else cases
    fold = case_numbers(key) % FOLDS
    total, gain = 0.0, 0.0
    for k in range(FOLDS):
        rest, own = data.columns(fold != k), data.columns(fold == k)
        if not (rest.w.any() and own.x.size):
            return None
        part = curves.fit_pooled(rest, EXPECTED, found.law)
        as_it_is = np.zeros_like(part.at)
        gain += float((curves.log_slopes(as_it_is, own).loss - curves.log_slopes(part.at, own).loss).sum())
        total += float(own.w.sum())
    return gain / total if total else None
