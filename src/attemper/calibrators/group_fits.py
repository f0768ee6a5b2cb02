"""Maps of groups (sites, scanners, tasks) as corrections of the common map, by partial pooling.

    log p_g ∝ τ_g · log p

p is what the common map predicts. How far groups differ is estimated from all of them
(`attemper.kernels.group_scales`), so that a group with few labels gets nearly the common map, and one with many a
temperature of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import array_api_compat
import numpy as np
from numpy.typing import NDArray

from attemper._json import Fields, to_fields
from attemper._table import Columns, Table
from attemper._typing import Floats
from attemper.data.arrays import one_line, row_slices
from attemper.data.scores import LabelledScores
from attemper.errors import FileError
from attemper.kernels import chebyshev
from attemper.kernels.channel import Channel
from attemper.kernels.chebyshev import Interval
from attemper.kernels.group_scales import RANGE, PooledScales, pool
from attemper.kernels.noisy import SOFTENING
from attemper.maps import Map, map_from_fields, tilted

__all__ = [
    "GroupFit",
    "GroupMaps",
    "LabelErrors",
    "centred_table",
    "fit_groups",
    "is_common",
    "maps_by_scale",
]

N_NODES = 64
LARGE = 1 << 21  # logits beyond which a sample shows first where the scales lie
SHOWN = 5  # groups that a summary names
RATIOS = ("temperature_ratio", "ratio_low", "ratio_high")


class LabelErrors(NamedTuple):
    """How labels go wrong, as the common fit found it: so that errors are not taken for uncertainty of the network."""

    channel: Channel = Channel()
    similar: bool = False  # errors of that rate fall among similar classes

    @property
    def none(self) -> bool:
        """Whether every label is right."""
        return self.channel.rate == 0 and self.channel.matrix is None

    def log_likelihood(self, z: Floats, y: NDArray[np.int64]) -> Floats:
        """Of each label, given logits."""
        rate = self.channel.rate
        if not self.similar or rate == 0:
            return self.channel.log_likelihood(z, y)
        right, soft = (Channel().log_likelihood(z / t, y) for t in (1.0, SOFTENING))
        return np.asarray(np.logaddexp(np.log1p(-rate) + right, np.log(rate) + soft))


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class GroupFit(Table):
    """What was fitted of each group, a row each: ``groups_`` of a calibrator that was fitted with groups.

    Attributes
    ----------
    group : list
        Ids, sorted.
    n_samples : array
    temperature_ratio, ratio_low, ratio_high : arrays
        1/τ, the temperature of the group over that of the common map, and its credible interval. Above 1 the group
        gets less confident predictions than the common map has.
    own_share : array
        How far it depends on the group's own labels: 0 is the common map, 1 is a fit of its own.
    spread, spread_interval : float, (float, float)
        Standard deviation of the logarithm of the ratios over groups.
    log_t_error : float
        Bound on the error of log τ that the computation (not the data) leaves.
    converged : bool

    Examples
    --------
    >>> from attemper import TemperatureScaling
    >>> rng = np.random.default_rng(0)
    >>> logits, site = 3 * rng.normal(size=(600, 3)), np.repeat(["north", "south"], 300)
    >>> labels = (logits / np.repeat([1, 3], 300)[:, None] + rng.gumbel(size=logits.shape)).argmax(axis=1)
    >>> found = TemperatureScaling().fit(logits, labels, groups=site).groups_
    >>> found.group, found.temperature_ratio > 1
    (['north', 'south'], array([False,  True]))
    """

    __repr__ = one_line

    group: list[Any]
    n_samples: NDArray[np.int64]
    temperature_ratio: Floats
    ratio_low: Floats
    ratio_high: Floats
    own_share: Floats
    spread: float
    spread_interval: tuple[float, float]
    log_t_error: float
    converged: bool

    def __len__(self) -> int:
        """Return the number of groups."""
        return len(self.group)

    def _table_columns(self) -> Columns:
        columns: dict[str, Any] = {"group": self.group, "n_samples": self.n_samples}
        return columns | {name: getattr(self, name) for name in (*RATIOS, "own_share")}

    def _html_notes(self) -> Sequence[str]:
        return self.lines()

    def lines(self) -> list[str]:
        """Return a readable summary."""
        low, high = self.spread_interval
        lines = [
            f"{len(self)} groups; their temperatures differ by a factor of about {np.exp(self.spread):.3g} "
            f"({np.exp(low):.3g} … {np.exp(high):.3g}) from the common map"
        ]
        far = np.argsort(-np.abs(np.log(self.temperature_ratio)), kind="stable")[:SHOWN]
        for g in far if len(self) > 1 else ():
            ratio, low, high = (getattr(self, name)[g] for name in RATIOS)
            lines.append(
                f"  group {self.group[g]}: T × {ratio:.3g} ({low:.3g} … {high:.3g}), {self.n_samples[g]} samples, "
                f"{self.own_share[g]:.0%} its own"
            )
        if len(self) > SHOWN:
            lines.append(f"  and {len(self) - SHOWN} groups that are closer to the common map")
        return lines

    def to_dict(self) -> dict[str, Any]:
        """Return plain lists and numbers."""
        return to_fields(self)

    @classmethod
    def from_fields(cls, content: Fields) -> GroupFit:
        """Read back what `to_dict` gave."""
        ids = content.items("group")
        whole = all(isinstance(i, int) and not isinstance(i, bool) for i in ids)
        if not ids or not (whole or all(isinstance(i, str) for i in ids)):
            raise FileError(f"{content.where}: the field 'group' must hold ids, all text or all whole numbers")
        g = len(ids)
        low, high = content.array("spread_interval", (2,))
        return cls(
            group=ids,
            n_samples=content.array("n_samples", (g,)).astype(np.int64),
            spread=content.number("spread"),
            spread_interval=(float(low), float(high)),
            log_t_error=content.number("log_t_error"),
            converged=content.boolean("converged"),
            **{name: content.array(name, (g,)) for name in (*RATIOS, "own_share")},
        )


class GroupMaps(dict[Any, Map]):
    """Maps by the id of their group; 1 and "1" are the same id, as one file may hold numbers and another text.

    >>> from attemper import ScaleMap
    >>> maps = GroupMaps({"north": ScaleMap(0.5), "south": ScaleMap(0.7)})
    >>> maps["north"], maps.of(["south", "east"], ScaleMap(1.0))[1]
    (ScaleMap(beta=0.5), [ScaleMap(beta=1.0), ScaleMap(beta=0.7)])
    """

    def __missing__(self, key: Any) -> Map:
        for known, own in self.items():
            if str(known) == str(key):
                return own
        raise KeyError(key)

    def of(self, ids: Any, common: Map) -> tuple[NDArray[np.intp], list[Map]]:
        """Return the map of each row: a number of the list of maps that follows; the common one for other groups."""
        by_text = {str(key): own for key, own in self.items()}
        seen, codes = np.unique(np.asarray(ids), return_inverse=True)
        return codes.reshape(-1), [by_text.get(str(key), common) for key in seen.tolist()]

    def predict(self, ids: NDArray[Any], common: Map, h: Any, predict: Callable[[Map, Any], Any]) -> Any:
        """Predict each row with the map of its group, in the order of the rows."""
        codes, maps = self.of(ids, common)
        if len(maps) == 1:
            return predict(maps[0], h)
        order = np.argsort(codes, kind="stable")
        xp, device = array_api_compat.array_namespace(h), array_api_compat.device(h)
        parts = np.split(order, np.cumsum(np.bincount(codes, minlength=len(maps)))[:-1])
        found = [predict(own, xp.take(h, xp.asarray(part, device=device), axis=0)) for own, part in zip(maps, parts)]
        xp = array_api_compat.array_namespace(found[0])
        back = xp.asarray(np.argsort(order, kind="stable"), device=array_api_compat.device(found[0]))
        return xp.take(xp.concat(found, axis=0), back, axis=0)

    @classmethod
    def from_fields(cls, ids: Sequence[Any], content: Fields) -> GroupMaps:
        """Read the maps of these ids."""
        items = content.items("maps")
        if len(items) != len(ids) or not all(isinstance(item, dict) for item in items):
            raise FileError(f"{content.where}: the field 'maps' must hold a map for each of {len(ids)} groups")
        maps = [map_from_fields(Fields(item, f"{content.where}: group {key}")) for key, item in zip(ids, items)]
        return cls(zip(ids, maps))


def is_common(groups: Any) -> bool:
    """Whether all rows are to get the common map."""
    return isinstance(groups, str) and groups == "common"


def fit_groups(
    common: Map, scores: LabelledScores, errors: LabelErrors, *, recentred: bool = False, level: float = 0.95
) -> tuple[GroupMaps, GroupFit]:
    """Fit a correction of the common map for each group of the rows.

    ``recentred``: temperatures of groups are compared with each other alone, as the common map has another aim than a
    small NLL.
    """
    ids, codes = np.unique(np.asarray(scores.groups), return_inverse=True)
    codes = codes.reshape(-1)
    tables = _Tables(common, scores, codes, len(ids), errors)
    table, interval = tables.focused()
    if recentred:
        table, interval = centred_table(table, interval)
    counts = np.bincount(codes, minlength=len(ids))
    return maps_by_scale(common, ids.tolist(), counts, pool(table, interval), level)


def maps_by_scale(
    common: Map, ids: list[Any], counts: NDArray[Any], scales: PooledScales, level: float
) -> tuple[GroupMaps, GroupFit]:
    """Return the maps, and what was found of each group; a group that is alone has the common map."""
    alone = len(ids) == 1
    mean = np.zeros(1) if alone else scales.mean
    low, high = scales.interval(level)
    maps = GroupMaps({key: tilted(common, float(tau)) for key, tau in zip(ids, np.exp(mean))})
    error = 0.0 if alone else float(scales.error.max())
    return maps, GroupFit(
        group=ids,
        n_samples=np.asarray(counts, dtype=np.int64),
        temperature_ratio=np.exp(-mean),
        ratio_low=np.exp(scales.mean - high - mean),
        ratio_high=np.exp(scales.mean - low - mean),
        own_share=np.zeros(1) if alone else scales.own_share,
        spread=scales.spread,
        spread_interval=scales.spread_interval(level),
        log_t_error=error,
        converged=error < 0.02,
    )


def centred_table(table: Floats, interval: Interval) -> tuple[Floats, Interval]:
    """Let a = 0 be the scale with the least NLL of all groups together."""
    at = float(chebyshev.minima(chebyshev.coefficients(-table.sum(axis=1)[:, None]), interval).at[0])
    return table, Interval(interval.low - at, interval.high - at)


class _Tables(NamedTuple):
    """The rows of all groups, and what the kernels need of them."""

    common: Map
    scores: LabelledScores
    codes: NDArray[np.intp]
    n_groups: int
    errors: LabelErrors

    def focused(self) -> tuple[Floats, Interval]:
        """Return log-likelihoods over the scales that matter, nodes × groups; of many rows some show which do."""
        step = -(-len(self.scores) * self.scores.n_classes // LARGE)
        if step == 1:
            return self.table(RANGE, N_NODES), RANGE
        few = pool(self.table(RANGE, N_NODES, step))
        reach = 8 * few.std
        low = max(RANGE.low, min(-0.1, float((few.mean - reach).min())))
        high = min(RANGE.high, max(0.1, float((few.mean + reach).max())))
        window = Interval(low, high)
        return self.table(window, max(10, min(chebyshev.resolving_nodes(window), N_NODES))), window

    def table(self, interval: Interval, n_nodes: int, step: int = 1) -> Floats:
        """Log-likelihood of each group at Chebyshev nodes in log τ, of every so many rows."""
        nodes = np.exp(chebyshev.nodes(n_nodes, interval))
        total = np.zeros((n_nodes, self.n_groups))
        for part, log_p, y, w in self._chunks(step):
            of_label, ones = log_p[np.arange(len(y)), y], np.ones(log_p.shape[1])
            for i, tau in enumerate(nodes):
                z = tau * log_p
                if self.errors.none:  # no log-probability is above 0, and one not far below
                    values = tau * of_label - np.log(np.exp(z, out=z) @ ones)
                else:
                    values = self.errors.log_likelihood(z, y)
                total[i] += np.bincount(self.codes[part], w * values, self.n_groups)
        return total

    def _chunks(self, step: int = 1) -> Any:
        """Log-probabilities, labels and weights; rows whose label is impossible for the common map count nothing."""
        for rows in row_slices(len(self.scores), self.scores.n_classes):
            part = np.arange(rows.start, rows.stop)[(-rows.start) % step :: step]
            if not len(part):
                continue
            h, y, w = self.scores.chunk(rows, np.float64)
            some = part - rows.start
            h, y, w = h[some], y[some], np.ones(len(some)) if w is None else w[some]
            log_p = np.asarray(self.common.log_apply(h))
            known = np.isfinite(log_p[np.arange(len(y)), y]) & (w > 0)
            yield part[known], log_p[known], y[known], w[known]
