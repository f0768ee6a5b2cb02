"""Groups (sites, scanners, tasks): the common map, then a temperature for each group, by partial pooling.

    log p_g ∝ τ_g · log p

p is what the common map predicts. How far groups differ is estimated from all of them
(`attemper.kernels.groups`), so that a group with few labels gets nearly the common map, and one with many a
temperature of its own.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import array_api_compat
import numpy as np

from attemper._typing import Floats, Labels
from attemper.calibrators.base import Calibrator, Fit
from attemper.calibrators.label_model import error_rate
from attemper.calibrators.registry import method_of
from attemper.calibrators.temperature import z95
from attemper.data.arrays import row_slices
from attemper.data.inputs import as_ids
from attemper.data.scores import Scores
from attemper.errors import InputError
from attemper.kernels import chebyshev
from attemper.kernels.chebyshev import Interval
from attemper.kernels.groups import RANGE, PooledScales, pool
from attemper.maps import Affine, Map
from attemper.sketches import Sketch

N_NODES = 64
LARGE = 1 << 21  # logits beyond which a sample shows first where the scales lie
SHOWN = 5  # groups that a summary names
OTHER_AIM = ("ats",)  # methods that do not minimise the NLL: their groups are compared with each other alone


@dataclass(frozen=True)
class GroupFit:
    """What was fitted of each group, one entry each: ``groups_`` of a `GroupedCalibrator`."""

    group: tuple[int | str, ...]  # ids, sorted
    n_samples: tuple[int, ...]
    temperature_ratio: tuple[float, ...]  # 1/τ: T of the group over that of the common map
    ratio_low: tuple[float, ...]
    ratio_high: tuple[float, ...]
    own_share: tuple[float, ...]  # how far τ depends on the group's own labels; 0: it is the common map
    spread: float  # standard deviation of log τ over groups
    spread_interval: tuple[float, float]
    error: float  # bound on the error of log τ that the computation leaves


class GroupedCalibrator(Calibrator, wrapper=True):
    """A common map for all groups, and a temperature for each group on top of it.

    Parameters
    ----------
    base : calibrator, class or name of a method
        What is fitted to all groups together.

    Attributes
    ----------
    common_ : calibrator
        The fitted base, for groups that were not in the fit.
    groups_ : GroupFit
        Temperatures of the groups relative to the common map, with 95 % intervals.

    Examples
    --------
    >>> from attemper import TemperatureScaling
    >>> rng = np.random.default_rng(0)
    >>> logits, site = 3 * rng.normal(size=(600, 3)), np.repeat(["north", "south"], 300)
    >>> labels = (logits / np.repeat([1, 3], 300)[:, None] + rng.gumbel(size=logits.shape)).argmax(axis=1)
    >>> fitted = GroupedCalibrator(TemperatureScaling()).fit(logits, labels, groups=site)
    >>> fitted.groups_.group, [ratio > 1 for ratio in fitted.groups_.temperature_ratio]
    (('north', 'south'), [False, True])
    >>> fitted.predict_proba(logits, groups=site).shape
    (600, 3)
    """

    method = "grouped"
    title = "a temperature for each group"
    needs = ("labels", "groups")
    value_types: ClassVar[dict[str, Any]] = {"common": Calibrator, "groups": GroupFit, "tilt": Floats}

    def __init__(self, base: Calibrator | type[Calibrator] | str = "bayes") -> None:
        self.base = base

    def _options(self) -> dict[str, Any]:
        base = method_of(self.base)
        return {"input": base.input, "classes": base.classes, "zeros_as": base.zeros_as}

    @property
    def classes(self) -> Any:
        """Names of the columns, as the base has them."""
        return method_of(self.base).classes

    def fit(
        self, X: Any, y: Any = None, sample_weight: Any = None, *, groups: Any = None, clusters: Any = None
    ) -> Self:
        """Fit to logits (or probabilities), labels and the group of each row; `Scores` hold all of it."""
        return self._fit_to(X, y, sample_weight=sample_weight, groups=groups, clusters=clusters)

    def _fit(self, scores: Scores) -> Fit:
        base = method_of(self.base)
        base._store(base._fit(scores), scores)
        common, report = base.map_, base.report_
        ids, codes = np.unique(np.asarray(scores.groups), return_inverse=True)
        table, interval = _log_likelihoods(base, scores, codes)
        if base.method in OTHER_AIM:
            least = chebyshev.minima(chebyshev.coefficients(-table.sum(axis=1)[:, None]), interval).at[0]
            interval = Interval(interval.low - float(least), interval.high - float(least))  # of all groups together
        counts = np.unique(np.asarray(scores.samples().groups), return_counts=True)[1]
        found = group_fit(tuple(ids.tolist()), counts, pool(table, interval), z95(scores))
        nll, priors = _nll_and_mean(replace(common, input="logits"), found, scores, codes)
        ok = report.converged and found.error < 0.02
        report = replace(report, nll=nll, converged=ok)
        return Fit(common, report, {"common": base, "groups": found, "priors": priors})

    def predict_proba(self, X: Any, *, groups: Any = None, axis: int | None = None) -> Any:
        """Calibrated probabilities, each row by the map of its group; a new group has the common map."""
        return self._predicted(X, axis, log=False, groups=groups)

    def predict_log_proba(self, X: Any, *, groups: Any = None, axis: int | None = None) -> Any:
        """Calibrated log-probabilities, which do not underflow."""
        return self._predicted(X, axis, log=True, groups=groups)

    def _predicted(self, X: Any, axis: int | None, *, log: bool, groups: Any = None) -> Any:
        self._check_fitted()
        groups = self._groups_of(X, groups)
        if groups is None:
            raise InputError("groups: expected one id for each row; use common_ for rows of no known group", "groups")
        x = self._array_of(X)
        n = int(x.shape[0])
        if not n:
            return self.common_._predicted(x, axis, log=log)
        ids, codes = np.unique(as_ids(groups, n, "groups"), return_inverse=True)
        order = np.argsort(codes, kind="stable")
        rows = np.split(order, np.cumsum(np.bincount(codes))[:-1])
        xp, device = array_api_compat.array_namespace(x), array_api_compat.device(x)
        made = []
        for own_id, own in zip(ids.tolist(), rows):
            fitted = copy.copy(self.common_)
            fitted.map_ = self.map_of(own_id)
            rows_of = xp.take(x, xp.asarray(own, device=device), axis=0)
            made.append(fitted._predicted(rows_of, self._axis(axis), log=log))
        xp = array_api_compat.array_namespace(made[0])
        back = xp.asarray(np.argsort(order, kind="stable"), device=array_api_compat.device(made[0]))
        return xp.take(xp.concat(made, axis=0), back, axis=0)

    def map_of(self, group: Any) -> Map:
        """Return the map of a group, the common one if it was not in the fit. 1 and "1" are the same id."""
        known = {str(name): 1 / ratio for name, ratio in zip(self.groups_.group, self.groups_.temperature_ratio)}
        scale, tilt = known.get(str(as_ids([group], 1, "group")[0]), 1.0), getattr(self, "tilt_", None)
        made: Map = self.common_.map_ if scale == 1 else self.common_.map_.then(Affine.of(scale))
        return made if tilt is None else made.then(Affine.of(1.0, tilt))

    def _tilt(self, log_ratio: Floats) -> None:
        """Change the class priors of every group, after its own temperature."""
        super()._tilt(log_ratio)
        self.tilt_ = getattr(self, "tilt_", 0.0) + log_ratio

    def _facts(self) -> list[str]:
        """Return the common map, and the groups that are furthest from it."""
        found = self.groups_
        low, high = np.exp(found.spread_interval)
        factor = f"{np.exp(found.spread):.3g} ({low:.3g} to {high:.3g})"
        lines = [f"{len(found.group)} groups, whose T differ by a factor of about {factor}"]
        for g in np.argsort(-np.abs(np.log(found.temperature_ratio)), kind="stable")[:SHOWN]:
            ratio, low, high = found.temperature_ratio[g], found.ratio_low[g], found.ratio_high[g]
            lines.append(f"{found.group[g]}: T × {ratio:.3g} ({low:.3g} to {high:.3g}), {found.n_samples[g]} samples")
        common = copy.copy(self.common_)
        common.map_, common.report_ = self.map_, replace(common.report_, changed=self.report_.changed)
        return [f"common: {common.title or common.method}", *common._facts(), *lines]


def group_fit(ids: tuple[Any, ...], counts: Any, scales: PooledScales, z: float) -> GroupFit:
    """Return what was found of each group; a group that is alone has the common map."""
    alone = len(ids) == 1
    mean = np.zeros(1) if alone else scales.mean
    reach = z * scales.std

    def plain(values: Any) -> Any:
        return tuple(np.asarray(values).tolist())

    return GroupFit(
        group=ids,
        n_samples=plain(counts),
        temperature_ratio=plain(np.exp(-mean)),
        ratio_low=plain(np.exp(-reach - mean)),
        ratio_high=plain(np.exp(reach - mean)),
        own_share=plain(np.zeros(1) if alone else scales.own_share),
        spread=scales.spread,
        spread_interval=scales.spread_interval,
        error=0.0 if alone else float(scales.error.max()),
    )


def _log_scores(common: Map, scores: Scores) -> Scores | None:
    """Log-probabilities as scores, without rows whose label is impossible for the common map; None: no row is left."""
    log_p = common.log_apply(scores.logits)
    keep = np.isfinite(log_p[np.arange(len(log_p)), scores.labels])
    if not keep.any():
        return None
    w = None if scores.w is None else scores.w[keep]
    masked = bool(np.isneginf(log_p).any())
    return Scores(values=log_p[keep], labels=scores.labels[keep], w=w, masked=masked)


def _log_likelihoods(common: Calibrator, scores: Scores, codes: Labels) -> tuple[Floats, Interval]:
    """Return those of each group over the scales that matter, nodes in log τ × groups; of many rows some show which."""
    plain, number = replace(common.map_, input="logits"), np.arange(len(codes))
    rate = error_rate(getattr(common, "noise_", 0.0), scores.chance) or 0.0
    parts = () if rate == 0 else ("uniform",)

    def table(interval: Interval, n_nodes: int, step: int = 1) -> Floats:
        t_range, columns = (float(np.exp(-interval.high)), float(np.exp(-interval.low))), []
        for g in range(codes.max() + 1):
            own = _log_scores(plain, scores.take((codes == g) & (number % step == 0)))
            sketch = None if own is None else Sketch.of(own, parts=parts, t_range=t_range, n_nodes=n_nodes)
            columns.append(np.zeros(n_nodes) if sketch is None else sketch.log_likelihood(rate)[::-1])
        return np.stack(columns, axis=1)

    step = -(-len(scores) * scores.n_classes // LARGE)
    if step == 1:
        return table(RANGE, N_NODES), RANGE
    few = pool(table(RANGE, N_NODES, step))
    reach = 8 * few.std
    low = max(RANGE.low, min(-0.1, float((few.mean - reach).min())))
    high = min(RANGE.high, max(0.1, float((few.mean + reach).max())))
    window = Interval(low, high)
    return table(window, max(10, min(chebyshev.resolving_nodes(window), N_NODES))), window


def _nll_and_mean(common: Map, found: GroupFit, scores: Scores, codes: Labels) -> tuple[float, Floats]:
    """Mean validation NLL of the maps of the groups, and their mean prediction."""
    total, mean, scale = 0.0, np.zeros(scores.n_classes), 1 / np.array(found.temperature_ratio)
    for part in row_slices(*scores.shape):
        h, y, w = scores.chunk(part, np.float64)
        z, w = common.log_apply(h) * scale[codes[part], None], np.ones(len(y)) if w is None else w
        e = np.exp(z)
        sums = e.sum(axis=1)
        total += float(w @ (np.log(sums) - z[np.arange(len(y)), y]))
        mean += (w / sums) @ e
    return total / scores.total_weight, mean / scores.total_weight
