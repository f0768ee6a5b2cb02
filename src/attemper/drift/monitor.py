"""What everything that watches a deployed map shares: the map, how batches are read, and what was fed before."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from numbers import Real
from typing import Any, ClassVar, Literal, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from attemper._checks import one_of, same_classes
from attemper._json import Fields
from attemper._table import Table
from attemper._typing import Floats, InputKind, Labels
from attemper.calibrators import Calibrator
from attemper.data.arrays import as_numbers
from attemper.data.binary import binary_names, is_one_column
from attemper.data.ids import as_ids
from attemper.data.labels import as_labels
from attemper.data.layout import check_independent
from attemper.data.scores import LabelledScores, Scores, labelled
from attemper.drift.seen import Seen, hash_ids, hash_rows
from attemper.errors import InputError, NotFittedError, listed
from attemper.maps import Map, ScaleMap, map_from_fields

__all__ = ["Batch", "MapMonitor", "Predicted", "Repeats"]

MOST_ROWS = 1 << 14  # of one chunk: of few classes there could be many, and each has sixteen ratios
MAX_SOURCES = 100_000  # files whose hashes a state remembers

OF_MAP = ("map", "group_maps", "input", "zeros_as", "classes", "n_classes")

Repeats = Literal["error", "skip", "count"]
Test = TypeVar("Test", bound="MapMonitor")


class Batch(NamedTuple):
    """Rows to take in, with an id for each."""

    scores: Scores
    labels: Labels | None
    groups: NDArray[Any] | None
    clusters: NDArray[Any] | None


class Predicted(NamedTuple):
    """What the map predicts for some rows of a batch."""

    log_p: Floats
    labels: Labels | None
    rows: Labels


class MapMonitor(Table):
    """Base of the tests and of `UnlabelledMonitor`."""

    document: ClassVar[str]  # the kind of the saved state
    monitored: ClassVar[tuple[str, ...]] = (
        *("input", "zeros_as", "classes", "n_classes", "n_rows"),
        *("sources", "reference", "_seen_rows", "_seen_clusters"),
    )

    map: Map
    group_maps: dict[str, Map]  # 7 and "7" are the same group
    input: InputKind
    zeros_as: float | None
    classes: tuple[str | int | float, ...] | None
    n_classes: int | None
    n_rows: int
    sources: tuple[str, ...] = ()  # hashes of the files that were fed
    reference: tuple[str, ...] = ()  # hashes of the reference files, where they are known
    _seen_rows: Seen = Seen()
    _seen_clusters: Seen = Seen()

    def __init__(self, deployed: Calibrator | Map | float) -> None:
        self.input = "logits"
        self.zeros_as = self.classes = self.n_classes = None
        self.group_maps = {}
        self.n_rows = 0
        if isinstance(deployed, Calibrator):
            if not hasattr(deployed, "map_"):
                raise NotFittedError(f"This {type(deployed).__name__} is not fitted yet, so there is no map to watch")
            self.map, self.input, self.zeros_as = deployed.map_, deployed.input, deployed.zeros_as
            maps = getattr(deployed, "group_maps_", None) or {}
            self.group_maps = {str(name): one for name, one in maps.items()}
            self.n_classes = int(deployed.n_features_in_)
            self.classes = None if deployed.class_names is None else tuple(deployed.class_names)
        elif isinstance(deployed, Map):
            self.map = deployed
            self.n_classes = deployed.n_classes
        elif isinstance(deployed, Real) and not isinstance(deployed, bool) and 1e-30 <= deployed <= 1e30:
            self.map = ScaleMap(1 / float(deployed))
        else:
            raise InputError(f"{deployed!r}: expected a fitted calibrator, a map, or a positive temperature")

    @contextmanager
    def _unchanged_on_error(self) -> Iterator[None]:
        before = dict(self.__dict__)
        try:
            yield
        except BaseException:
            self.__dict__.clear()
            self.__dict__.update(before)
            raise

    def _read(self, X: Any, y: Any, groups: Any = None, clusters: Any = None, *, labels: bool = True) -> Batch:
        """Check a batch against what the map was made for."""
        if getattr(X, "ndim", 2) > 2 or isinstance(X, Scores):
            own = X if isinstance(X, Scores) else None
            check_independent("scores", X, own and own.image, soft=own is not None and own.repeated is not None)
        scores = X if isinstance(X, Scores) else self._scores(X)
        if scores.input != self.input:
            raise InputError(f"these Scores hold {scores.input}, but the map takes {self.input}")
        if scores.weights is not None:
            raise InputError("sample_weight: every sample counts once here; leave the weights out")
        same_classes(self.n_classes, scores.n_classes, of="the map", where="scores")
        found = self._labels(X, y, scores) if labels else None
        n = len(scores)
        clusters = scores.cluster_ids if clusters is None else as_ids(clusters, n, "clusters")
        if isinstance(groups, str) and groups == "common":
            return Batch(scores, found, None, clusters)
        groups = scores.groups if groups is None else as_ids(groups, n, "groups")
        if groups is None and self.group_maps:
            raise InputError(
                f"groups: the map has one for each of {listed(map(str, self.group_maps))}, and these rows have no "
                f"group. Use groups=… to name the group of each row, or "
                f"""groups="common" for the common map.""",
                param="groups",
            )
        return Batch(scores, found, groups, clusters)

    def _scores(self, X: Any) -> Scores:
        # Labels are looked at later: one that the map holds for impossible is no error here, but an alarm.
        return Scores.from_probs(X, zeros_as=self.zeros_as) if self.input == "probs" else Scores.from_logits(X)

    def _labels(self, X: Any, y: Any, scores: Scores) -> Labels:
        if isinstance(X, Scores) and isinstance(X, LabelledScores) == (y is not None):
            raise InputError("labels: pass them once, in the Scores or as an argument")
        if not isinstance(X, Scores) and y is None:
            raise InputError("labels: a drift test needs them; pass one label per row")
        if y is None:
            return labelled(scores).labels
        one_column = not isinstance(X, Scores) and is_one_column(as_numbers(X, "logits"))
        names = binary_names(y, self.classes, scores.n_classes, one_column=one_column)
        found: Labels = as_labels(y, len(scores), scores.n_classes, names, one_column=one_column)
        return found

    def _predictions(self, batch: Batch, rows: NDArray[np.bool_] | None = None) -> Iterator[Predicted]:
        """Yield the map's log-probabilities chunk by chunk, of all rows or of some of them."""
        for part, h in batch.scores.chunks(most_rows=MOST_ROWS):
            index = np.arange(part.start, part.stop)
            if rows is not None:
                h, index = h[rows[part]], index[rows[part]]
            alike = batch.groups is None or not self.group_maps
            log_p = self.map.log_apply(h) if alike else self._by_group(h, np.asarray(batch.groups)[index])
            yield Predicted(log_p, None if batch.labels is None else batch.labels[index], index)

    def _by_group(self, h: Floats, groups: NDArray[Any]) -> Floats:
        """Predict each row by the map of its group, or by the common one where the group has none."""
        log_p = np.empty(h.shape)
        names, of = np.unique(groups, return_inverse=True)
        for i, name in enumerate(names.tolist()):
            rows = of.ravel() == i
            log_p[rows] = self.group_maps.get(str(name), self.map).log_apply(h[rows])
        return log_p

    def _new_rows(self, batch: Batch, repeats: Repeats) -> NDArray[np.bool_]:
        """Return which rows to take in, and remember them; ``repeats`` decides about those that were fed before."""
        one_of("repeats", repeats, ("error", "skip", "count"))
        new = np.ones(len(batch.scores), dtype=bool)
        rows = hash_rows(batch.scores, batch.labels)
        again = self._seen_rows.repeated(rows)
        if again is not None and repeats != "count":
            if repeats == "error":
                raise InputError(
                    f"these {len(rows)} rows were fed before, among samples {again[0]} to {again[1]}; the same rows "
                    f"count only once. Use {_repeats('skip')} to leave them out; if they are others with the same "
                    f"numbers, {_repeats('count')}."
                )
            return ~new
        if batch.clusters is not None:
            ids = hash_ids(batch.clusters)
            known = self._seen_clusters.numbers_of(ids) > 0
            if known.any() and repeats == "error":
                row = int(known.argmax())
                number = int(self._seen_clusters.numbers_of(ids[row : row + 1])[0])
                raise InputError(
                    f"clusters: row {row} is of cluster {batch.clusters[row]!s}, which was fed before, as sample "
                    f"{number}; all samples of a cluster belong in one batch, so that they count once. Use "
                    f"{_repeats('skip')} to leave such rows out; if they are independent of the earlier ones, "
                    f"{_repeats('count')}."
                )
            new = ~known if repeats == "skip" else new
            self._seen_clusters = self._seen_clusters.add(ids[new], self.n_rows + 1 + np.arange(new.sum()))
        self._seen_rows = self._seen_rows.add(rows[new], self.n_rows + 1 + np.arange(new.sum()), mark_common=True)
        return new

    def _monitor_fields(self) -> dict[str, Any]:
        """Return the map as files hold it."""
        if any(n != n or not isinstance(n, str | int | float) for n in self.classes or ()):
            raise InputError("classes: only text and numbers can be saved as class names")
        self.sources = self.sources[-MAX_SOURCES:]
        groups = [{"group": name, "map": one.to_dict()} for name, one in self.group_maps.items()]
        return {"map": self.map.to_dict(), **({"group_maps": groups} if groups else {})}

    def _take_up_maps(self, content: Fields) -> None:
        MapMonitor.__init__(self, map_from_fields(content.fields("map")))
        for item in content.items("group_maps") if "group_maps" in content else []:
            one = Fields(item if isinstance(item, dict) else {}, f"{content.where}: group_maps")
            self.group_maps[one.text("group")] = map_from_fields(one.fields("map"))

    def _part(self, kind: type[Test], content: Fields) -> Test:
        """Return a test of the same map that is in a field of this state."""
        test = kind.__new__(kind)
        vars(test).update({name: vars(self)[name] for name in OF_MAP})
        test._take_up_state(content)
        return test

    def _take_up_state(self, content: Fields) -> None:
        raise NotImplementedError

    def _map_is_consistent(self) -> bool:
        k = self.n_classes
        return (
            len(self.sources) <= MAX_SOURCES
            and self.n_rows >= 0
            and self._seen_rows.is_consistent(self.n_rows)
            and self._seen_clusters.is_consistent(self.n_rows)
            and (self.zeros_as is None or 0 < self.zeros_as < 1)
            and all(one.n_classes in (None, k) for one in (self.map, *self.group_maps.values()))
            and (k is None or 2 <= k <= 10**7)
            and (self.classes is None or len(self.classes) == k)
        )


def _repeats(choice: str) -> str:
    return f'repeats="{choice}"'
