"""Temperature scaling and ATS as the authors ran them.

Their public notebook (azmozaffari/ATS) takes one step of ``torch.optim.LBFGS`` with a learning rate of 0.01 and at most
50 iterations, from T = 3, and never clears the gradient: every evaluation adds its slope to those before. That does not
converge, neither to the least NLL nor to the least attended loss. Where it ends depends on where it starts. Here the
same arithmetic is done in double precision; theirs was single.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_softmax

from experiments.reproduce import networks
from experiments.reproduce.journal import Job, Row, Study
from experiments.reproduce.methods import Fitted, evaluate, fit, scaled
from experiments.reproduce.networks import ROWS, Samples, label
from experiments.reproduce.pages import gather, n_repeats, table

__all__ = ["STUDY", "attended_loss", "lbfgs", "mean_nll"]

Floats = NDArray[np.float64]
Loss = Callable[[float], tuple[float, float]]  # from T to a loss and its slope in T; NaN at T = 0, as in torch

LEAST_SLOPE, LEAST_CHANGE, LEAST_CURVATURE = 1e-7, 1e-9, 1e-10  # defaults of torch.optim.LBFGS
EPS = 1e-8  # the notebook adds it to every probability
SCALE = 1e-3  # of the attended loss
THETAS = (0.01, 0.02, 0.03, 0.04, 0.05)  # those of the paper's Table 2, except for MNIST
STARTS = (1.0, 1.5, 2.0, 2.5, 3.0)
RAN_AWAY = 1000.0  # a T beyond which nothing is left of the logits

METHODS = {
    "ts": "TS, converged",
    "ats": "ATS, converged",
    "ts-run": "TS as run, from T = 3",
    "ts-run-1.5": "TS as run, from T = 1.5",
    "ats-run": "ATS as run, best of five θ",
    "ts-run-best": "TS as run, best of five starts",
}


def lbfgs(loss_and_slope: Loss, start: float, *, clear: bool, lr: float = 0.01, max_iter: int = 50) -> float:
    """One step of ``torch.optim.LBFGS`` for one number, without line search.

    For one number the history of L-BFGS is the secant through the last two points: the newest pair of step and change
    of slope already gives the curvature. Without ``clear`` slopes are running sums, as of a closure that only calls
    ``backward``.
    """
    at, evaluations, total = start, 0, 0.0

    def evaluated() -> tuple[float, float]:
        nonlocal evaluations, total
        evaluations += 1
        loss, slope = loss_and_slope(at)
        total = slope if clear else total + slope
        return loss, total

    loss, slope = evaluated()
    if abs(slope) <= LEAST_SLOPE:
        return at
    step, slope_before, inverse_curvature = 0.0, slope, 1.0
    for iteration in range(1, max_iter + 1):
        change = slope - slope_before
        if change * step > LEAST_CURVATURE:
            inverse_curvature = step / change
        direction = -slope * inverse_curvature
        if slope * direction > -LEAST_CHANGE:
            break
        step = direction * lr * (min(1.0, 1.0 / abs(slope)) if iteration == 1 else 1.0)
        at += step
        if iteration == max_iter:  # the last step is not evaluated
            break
        loss_before, slope_before = loss, slope
        loss, slope = evaluated()
        if evaluations >= max_iter * 5 // 4 or abs(slope) <= LEAST_SLOPE:
            break
        if abs(step) <= LEAST_CHANGE or abs(loss - loss_before) < LEAST_CHANGE:
            break
    return at


def mean_nll(val: Samples) -> Loss:
    """Mean NLL as a function of T."""
    h, y, rows = val.logits.astype(np.float64), val.labels, np.arange(len(val.labels))

    def evaluated(t: float) -> tuple[float, float]:
        beta = _inverse(t)
        if not math.isfinite(beta):
            return math.nan, math.nan
        log_s = log_softmax(beta * h, axis=1)
        slope = (np.exp(log_s) * h).sum(axis=1) - h[rows, y]
        return -float(log_s[rows, y].mean()), -beta * beta * float(slope.mean())

    return evaluated


def attended_loss(val: Samples, theta: float) -> Loss:
    """Attended loss of the notebook as a function of T.

    A thousandth of the sum of −log S_k for k = y_i, and of −log(S_k / (1 − S_k) · S_k) for each other k that is
    the predicted class or has S_k > θ at T = 1; 1e-8 is added to every S_k and 1 − S_k. Classes beyond
    the largest label that occurs are left out, as in the notebook.
    """
    h, y, n = val.logits.astype(np.float64), val.labels, np.arange(len(val.labels))
    high, low = h.max(axis=1, keepdims=True), h.min(axis=1, keepdims=True)
    e = np.exp(h - high)
    member = e > theta * e.sum(axis=1, keepdims=True)
    member[n, h.argmax(axis=1)] = True
    member[n, y] = False
    member[:, y.max() + 1 :] = False
    place, own_place = np.flatnonzero(member), n * h.shape[1] + y
    row = place // h.shape[1]

    def evaluated(t: float) -> tuple[float, float]:
        beta = _inverse(t)
        if not math.isfinite(beta):
            return math.nan, math.nan
        d = h - (low if beta < 0 else high)
        with np.errstate(over="ignore", invalid="ignore"):
            s = np.exp(beta * d)
            s /= s.sum(axis=1, keepdims=True)
            mean = np.vecdot(s, d)
            own, other = s.ravel()[own_place], s.ravel()[place]
            own_slope = own * (d.ravel()[own_place] - mean)  # in β
            other_slope = other * (d.ravel()[place] - mean[row])
            value = -np.log(own + EPS).sum() - (2 * np.log(other + EPS) - np.log(1 - other + EPS)).sum()
            slope = -(own_slope / (own + EPS)).sum()
            slope -= (other_slope * (2 / (other + EPS) + 1 / (1 - other + EPS))).sum()
        return SCALE * float(value), -beta * beta * SCALE * float(slope)

    return evaluated


def _inverse(t: float) -> float:
    return 1.0 / t if t != 0 else math.inf


def fit_as_run(method: str, val: Samples) -> Fitted:
    """Fit as the notebook does. If the search runs away (T negative or huge), the network stays as it is.

    Each θ of ATS, and each start of "best of five", is another draw of where the search ends; the one with the least
    validation NLL is taken.
    """
    nll = mean_nll(val)
    if method == "ats-run":
        ends = {theta: lbfgs(attended_loss(val, theta), 3.0, clear=False) for theta in THETAS}
    else:
        starts = {"ts-run": (3.0,), "ts-run-1.5": (1.5,), "ts-run-best": STARTS}[method]
        ends = {start: lbfgs(nll, start, clear=False) for start in starts}
    good = [(nll(t)[0], t, at) for at, t in ends.items() if 0 < t < RAN_AWAY and math.isfinite(nll(t)[0])]
    if not good:
        return Fitted(fit("none", val).map)
    _, t, at = min(good)
    return scaled(t, at if method == "ats-run" else None)


def jobs(repeats: int) -> list[Job]:
    return [(name, i) for name in (*ROWS, *networks.SKIN) for i in range(repeats)]


def run(name: str, repeat: int, seed: int) -> list[Row]:
    """Fit as the authors did, and to convergence."""
    val, test = networks.split(name, repeat, seed)
    rows = []
    for method in METHODS:
        fitted = fit_as_run(method, val) if "run" in method else fit(method, val)
        found = {"temperature": fitted.temperature, "theta": fitted.theta}
        rows.append({"network": name, "repeat": repeat, "method": method, **evaluate(fitted, test), **found})
    return rows


def files(rows: Sequence[Row]) -> dict[str, str]:
    nll, t = (gather(rows, ("network", "method"), value) for value in ("nll", "temperature"))
    names = list(dict.fromkeys(row["network"] for row in rows))
    lines = [[label(name), *(_cell(nll[name, m], t.get((name, m))) for m in METHODS)] for name in names]
    pairs = (("ats-run", "ts-run"), ("ats-run", "ts-run-1.5"), ("ats-run", "ts-run-best"), ("ats-run", "ts"))
    below = [[METHODS[a], METHODS[b], *_below(nll, names, a, b)] for a, b in (*pairs, ("ats", "ts"))]
    text = f"""# TS and ATS as the authors ran them

The paper reports large gains of ATS over TS. Where do they come from? The authors' public notebook takes one step of
L-BFGS with a learning rate of 0.01 and at most 50 iterations, from T = 3, and does not clear its gradient. That search
does not converge, so its result depends on the start. ATS tunes θ, so it has several results to choose from, and takes
the one with the least validation NLL; TS has one. *Best of five starts* gives TS as many: T = 1, 1.5, … 3. The ATS of
the notebook has the loss of the code, here for θ = 0.01, … 0.05. A search that ran away (T negative or above 1000)
leaves the network as it is.

## Test NLL, and the mean T in brackets; {n_repeats(rows)} splits

{table(["network", *METHODS.values()], lines)}

## On how many networks is the first below the second in mean NLL?

{table(["first", "second", "networks", "largest gain"], below, texts=2)}

*`python -m experiments.reproduce published`; every number is in [published.csv](published.csv).*
"""
    return {"published.md": text}


STUDY = Study("published", 5, jobs, run, files)


def _cell(nll: Floats, t: Floats | None) -> str:
    return f"{nll.mean():.4f} ({'ran away' if t is None else f'{t.mean():.2f}'})"


def _below(nll: Mapping[tuple[Any, ...], Floats], names: Sequence[str], a: str, b: str) -> list[str]:
    gains = np.array([(nll[name, b] - nll[name, a]).mean() for name in names])
    return [f"{(gains > 0).sum()} of {len(names)}", f"{gains.max():.4f}"]
