"""Curves of the log-odds of each class: Platt scaling (2000) and beta calibration (Kull et al. 2017)."""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np

from attemper._checks import one_of
from attemper._typing import Floats
from attemper.calibrators.base import Calibrator
from attemper.calibrators.estimator import recipe
from attemper.calibrators.fit_report import FitReport
from attemper.calibrators.one_vs_rest import Block, OneVsRest
from attemper.calibrators.style import DARK, Style
from attemper.data.scores import LabelledScores
from attemper.errors import ConvergenceWarning, warn
from attemper.kernels import logistic
from attemper.maps import OddsMap
from attemper.maps.odds import log_odds

__all__ = ["BetaCalibration", "PlattScaling"]

Targets = Literal["platt", "labels"]
EPS = float(np.finfo(np.float64).eps)  # the objective itself is known no better


class OddsCalibrator(Calibrator):
    """What the two share: one logistic regression for each class, all of them at once."""

    targets: Targets
    map_: OddsMap

    slopes: ClassVar[int]  # how many each class has

    def _check_parameters(self) -> None:
        one_of("targets", self.targets, ("platt", "labels"))

    def _solve_scores(self, scores: LabelledScores) -> None:
        problems = OneVsRest.of(scores, log_odds)
        count, bounded = len(problems.x), self.slopes == 2
        theta = np.zeros((count, self.slopes + 1))
        theta[:, :-1] = 1.0  # what no sample determines stays as it is
        error, square, steps, smoothed = 0.0, 0.0, 0, 0
        for block in problems.blocks():
            t, endless = _targets(block, self.targets, falling=not bounded)
            w = block.w / block.w.sum(axis=1, keepdims=True)
            found = logistic.minimise(self._features(block.x), t, w, bounded=bounded)
            theta[block.rows] = found.at
            error += float(found.error.sum())
            square += float((found.gradient**2).sum())
            steps, smoothed = max(steps, found.n_iter), smoothed + endless
        a, b, c = theta[:, 0], theta[:, -2], theta[:, -1]
        if scores.n_classes == 2:  # class 0 mirrors class 1, so that the two sum to one
            a, b, c = np.r_[b, a], np.r_[a, b], np.r_[-c, c]
        self.map_ = OddsMap(a, b, c)
        converged = error < 1e-10
        error = max(error, EPS)
        message = (
            f"Newton's method, {count} curve{'s' * (count > 1)}: the objective is within {error:.0e} nats of its least"
        )
        if smoothed:
            message += (
                f"; for {smoothed} of them the labels have no finite best curve, since a threshold separates them: "
                "there Platt's targets were taken"
            )
        self.fit_report_ = FitReport.of(
            self.map_,
            scores,
            converged=converged,
            objective_gap=error,
            n_iter=steps,
            message=message,
            gradient_norm=float(np.sqrt(square)),
        )
        if not converged:
            warn(f"{type(self).__name__}: not converged. {message}", ConvergenceWarning)

    def _features(self, s: Floats) -> Floats:
        raise NotImplementedError


@recipe
class PlattScaling(OddsCalibrator):
    r"""A logistic curve of each class's log-odds, σ(a s + c), rows normalised.

    s_k = log p_k − log(1 − p_k) = h_k − log Σ_{j≠k} exp(h_j) are the log-odds of class k against all others, p being
    the softmax. With two classes s_1 = h_1 − h_0 and there is one curve, as in Platt's paper; scikit-learn's
    ``method="sigmoid"`` on that score finds the same one.

    **The arg max may change**, since each class has a curve of its own: in which share of the validation samples it did
    stands in ``fit_report_.changed``.

    Parameters
    ----------
    targets : "platt" or "labels"
        What is fitted to. Platt's (N₊+1)/(N₊+2) for samples of the class and 1/(N₋+2) for the others always have a
        finite best curve. With the labels 1 and 0 a class whose samples a threshold separates has none; there
        Platt's are taken, and the report states it.
    input, zeros_as, classes
        As in `TemperatureScaling`.

    Attributes
    ----------
    map_ : OddsMap
        Its a and b are the slopes, which are equal, its c the intercepts, one for each class.
    fit_report_ : FitReport
        Convergence, the norm of the gradient, the validation NLL, how many answers change.
    classes_, n_features_in_

    References
    ----------
    J. Platt, Probabilistic outputs for support vector machines, 2000.
    H.-T. Lin, C.-J. Lin, R. C. Weng, A note on Platt's probabilistic outputs for support vector machines, 2007.

    Examples
    --------
    >>> import numpy as np
    >>> from attemper import PlattScaling
    >>> rng = np.random.default_rng(0)
    >>> s = 6 * rng.normal(size=2000)
    >>> labels = (s / 2 - 1 + rng.logistic(size=2000) > 0).astype(int)  # a slope of 1/2, an intercept of −1
    >>> platt = PlattScaling().fit(s, labels)
    >>> platt.map_.a.round(1), platt.map_.c.round(1)
    (array([0.5, 0.5]), array([ 1.1, -1.1]))
    """

    method = "platt"
    title = "Platt scaling"
    style = Style(DARK, (0, (2, 1)), "X")
    slopes = 1

    targets: Targets = "platt"

    def _features(self, s: Floats) -> Floats:
        return s[None]


@recipe
class BetaCalibration(OddsCalibrator):
    r"""A beta curve of each class's probability, σ(a log p − b log(1 − p) + c), rows normalised.

    p is the softmax, and a, b ≥ 0, so that the curve of a class never falls. Where the best curve without these bounds
    has a negative slope, the best one within them is found (the paper drops that slope and fits again, which is the
    same). With a = b it is Platt scaling. With two classes there is one curve.

    **The arg max may change**, since each class has a curve of its own: in which share of the validation samples it did
    stands in ``fit_report_.changed``.

    Parameters
    ----------
    targets : "labels" or "platt"
        What is fitted to: the labels, as in the paper, or the targets of `PlattScaling`, which keep away from 0
        and 1. Where a threshold separates the samples of a class from the others there is no finite
        best curve for the labels; there Platt's targets are taken, and the report states it.
    input, zeros_as, classes
        As in `TemperatureScaling`.

    Attributes
    ----------
    map_ : OddsMap
        Its a, b and c, one of each for each class.
    fit_report_ : FitReport
        Convergence, the norm of the projected gradient, the validation NLL, how many answers change.
    classes_, n_features_in_

    References
    ----------
    M. Kull, T. de Menezes e Silva Filho, P. Flach, Beyond sigmoids: how to obtain well-calibrated probabilities from
    binary classifiers with beta calibration, 2017. https://doi.org/10.1214/17-EJS1338SI

    Examples
    --------
    >>> import numpy as np
    >>> from attemper import BetaCalibration
    >>> rng = np.random.default_rng(0)
    >>> p = rng.beta(0.5, 0.5, size=5000)
    >>> labels = (np.log(p) - 0.3 * np.log1p(-p) + rng.logistic(size=5000) > 0).astype(int)  # a = 1, b = 0.3
    >>> beta = BetaCalibration(input="probs").fit(p, labels)
    >>> beta.map_.a[1].round(1), beta.map_.b[1].round(1)
    (np.float64(1.0), np.float64(0.3))
    """

    method = "beta"
    title = "beta calibration"
    style = Style(DARK, (0, (5, 1)), "p")
    slopes = 2

    targets: Targets = "labels"

    def _features(self, s: Floats) -> Floats:
        t = np.log1p(np.exp(-np.abs(s)))
        return np.stack([np.minimum(s, 0) - t, np.maximum(s, 0) + t])  # log p, −log(1 − p)


def _targets(block: Block, targets: Targets, *, falling: bool) -> tuple[Floats, int]:
    """Targets of each class and sample, and for how many classes the labels have no finite best curve.

    They have none where a threshold separates the samples of the class from the others (below them, where curves may
    fall); a class that never occurs, or that all samples are of, is such a case.
    """
    _, s, positive, w = block
    plus = (w * positive).sum(axis=1, keepdims=True)
    minus = (w * ~positive).sum(axis=1, keepdims=True)
    smooth = np.where(positive, (plus + 1) / (plus + 2), 1 / (minus + 2))
    if targets == "platt":
        return smooth, 0
    yes, no = positive & (w > 0), ~positive & (w > 0)
    least_yes, least_no = (np.where(m, s, np.inf).min(axis=1) for m in (yes, no))
    most_yes, most_no = (np.where(m, s, -np.inf).max(axis=1) for m in (yes, no))
    endless = most_no <= least_yes
    if falling:
        endless |= most_yes <= least_no
    endless &= ~((least_yes == most_no) & (least_no == most_yes))  # no slope separates what is all the same
    return np.where(endless[:, None], smooth, positive.astype(np.float64)), int(endless.sum())
