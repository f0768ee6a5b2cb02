"""How `MultiLabelCalibrator` fits: what is expected of labels, one label by itself, and whether pooling is a gain."""

from __future__ import annotations

import numpy as np

from attemper._typing import Floats
from attemper.calibrators.base import Calibrator
from attemper.errors import AttemperError
from attemper.kernels import pooled
from attemper.kernels.shrinkage import ScalePrior

__all__ = ["EXPECTED", "fit_label", "held_out_gain"]

# Of the common temperature: as in `structured`. Of the common bias: that of a network which was trained with weights
# for rare labels. How labels differ: least excess over calibrated, common and different labels, 4 and 20 of them, with
# 5 to 1000 positives each (benchmarks/multilabel.py --constants).
EXPECTED = pooled.Expected(ScalePrior(0.15, 0.6, 4.0), ScalePrior(0.0, 1.0, 4.0), np.diag([0.01, 0.05]), 3.0)
FOLDS = 5


def fit_label(
    base: Calibrator, data: tuple[Floats, Floats, Floats], kind: str, zeros_as: float | None, name: str
) -> Calibrator:
    """Fit a method for two classes to one label: log-odds, targets, weights; a soft label is two weighted rows."""
    some = data[2] > 0
    s, t, w = (a[some] for a in data)
    y = np.repeat([0, 1], len(s))
    weight = np.r_[w * (1 - t), w * t]
    counts = weight > 0
    pairs = np.column_stack([np.zeros_like(s), s])
    if kind == "probs":
        pairs = np.exp(-np.logaddexp(0, np.column_stack([s, -s])))
    rows = np.tile(np.arange(len(s)), 2)[counts]
    params = {name: getattr(base, name) for name in base.own_params()}
    own = type(base)(**params, input=kind, zeros_as=zeros_as)  # type: ignore[arg-type]
    order = np.argsort(rows, kind="stable")  # the order of the samples
    y, weight, rows = y[counts][order], weight[counts][order], rows[order]
    plain = len(rows) == len(s) and bool((weight == 1).all())
    try:
        return own.fit(pairs[rows], y, None if plain else weight)
    except AttemperError as error:
        raise type(error)(f"label {name!r}: {error}") from None


def held_out_gain(data: pooled.Problems, found: pooled.PooledFit) -> float | None:
    """NLL of the classifier as it is, less that of the fit, for each known entry of held-out samples.

    None where there are fewer distinct samples than folds.
    """
    _, rank = np.unique(np.einsum("ln,ln->n", data.x, data.x), return_inverse=True)
    fold = rank % FOLDS
    total, gain = 0.0, 0.0
    for k in range(FOLDS):
        rest, own = data.columns(fold != k), data.columns(fold == k)
        if not (rest.w.any() and own.x.size):
            return None
        part = pooled.fit(rest, EXPECTED, found.law)
        as_it_is = np.zeros_like(part.at)
        gain += float((pooled.evaluate(as_it_is, own).loss - pooled.evaluate(part.at, own).loss).sum())
        total += float(own.w.sum())
    return gain / total if total else None
