"""A test of each group (site, scanner, sex), and of all samples together, with one bound on false alarms.

Alpha is shared out: half of it to the test of all samples, the other half to the groups. Each test keeps its share for
all time, so the shares add up to alpha whatever groups come later. The proof is in docs/drift.md.
"""

from __future__ import annotations

import copy
import math
import os
from collections.abc import Iterable, Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from attemper._checks import fraction
from attemper._json import Fields, read_document, to_fields, values_of, write_document
from attemper._table import Columns, as_list
from attemper._typing import Labels
from attemper.calibrators import Calibrator
from attemper.data.ids import as_ids
from attemper.data.scores import LabelledScores, Scores
from attemper.drift.exchangeability import ExchangeabilityTest
from attemper.drift.monitor import Batch, MapMonitor, Repeats
from attemper.drift.sequential import SequentialTest, contradiction, joined
from attemper.drift.temperature import MAX_TOLERANCE, DriftTest
from attemper.errors import InputError
from attemper.maps import Map

__all__ = ["GroupedTest"]

KINDS: dict[str, type[SequentialTest]] = {cls.document: cls for cls in (DriftTest, ExchangeabilityTest)}


class GroupedTest(MapMonitor):
    """Watch a deployed map in each group, and in all samples together.

    Under the hypothesis of `DriftTest`, or with a ``reference`` that of `ExchangeabilityTest` within each group, the
    probability that any of these tests ever raises a false alarm is at most ``alpha``. If the hypothesis holds in some
    groups only, the probability of a false alarm in those is still at most ``alpha``.

    The test of all samples gets half of alpha. G groups that are known beforehand get 1/(G + 1) of the other half each,
    and what is left goes to groups that appear later: 6/(π² j²) of it to the j-th. A map that was fitted with groups
    knows its groups, and predicts each row by the map of its group; a group whose temperature is known less well than
    the tolerance has the interval of its temperature for a tolerance.

    Parameters
    ----------
    deployed : Calibrator, Map or float
        As in `DriftTest`.
    reference : Scores with groups, optional
        Test with `ExchangeabilityTest` against these samples, group by group. A group that has no reference samples
        counts in the test of all samples alone.
    groups : sequence, optional
        The groups that are known beforehand; by default those of the map or of the reference.
    alpha, tolerance, seed
        As in `DriftTest` and `ExchangeabilityTest`; ``alpha`` is that of all tests together.

    Attributes
    ----------
    overall : DriftTest or ExchangeabilityTest
        The test of all samples.
    tests : dict
        The test of each group that was seen, in the order of appearance.
    alarm : bool
        Whether any test has raised an alarm.
    alarms : list
        The groups whose own test has raised one.
    p_value : float
        The smallest ``alpha`` with which there would have been an alarm.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> logits = 3 * rng.normal(size=(4000, 5))
    >>> site = np.where(np.arange(4000) % 4 == 0, "north", "south")
    >>> t = np.where(site == "north", 4.0, 2.0)[:, None]
    >>> labels = (logits / t + rng.gumbel(size=logits.shape)).argmax(axis=1)
    >>> test = GroupedTest(2.0).update(logits, labels, groups=site)
    >>> test.alarms
    ['north']
    """

    document = "grouped test"
    stored = ("alpha", "_known")

    alpha: float
    overall: SequentialTest
    tests: dict[str | int, SequentialTest]
    _known: tuple[str | int, ...]  # groups that were known beforehand
    _known_within: dict[str, float]  # the factor within which the temperature of each group of the map is known
    _references: dict[str | int, SequentialTest] | None  # tests that have begun with the reference of their group

    def __init__(
        self,
        deployed: Calibrator | Map | float,
        *,
        reference: Scores | None = None,
        groups: Sequence[str | int] | None = None,
        alpha: float = 0.05,
        tolerance: float | None = None,
        seed: int = 0,
    ) -> None:
        super().__init__(deployed)
        self.alpha = fraction("alpha", alpha, such_as="0.05")
        self.tests, self._references, self._known_within = {}, None, {}
        if reference is None:
            given = {} if tolerance is None else {"tolerance": tolerance}
            self.overall = DriftTest(deployed, alpha=self.alpha / 2, **given)
            known: Sequence[str | int] = list(self.group_maps)
            self._known_within = _known_within(deployed)
        else:
            if tolerance is not None:
                raise InputError("tolerance: a test against a reference has none", param="tolerance")
            self.overall = ExchangeabilityTest(deployed, reference, alpha=self.alpha / 2, seed=seed)
            known = self._refer_to(reference)
        known = known if groups is None else as_ids(groups, len(groups), "groups").tolist()
        self._known = tuple(dict.fromkeys(known))

    def __repr__(self) -> str:
        return f"GroupedTest(n_samples={self.n_samples}, groups={len(self.tests)}, alarms={self.alarms!r})"

    def update(
        self, X: Any, y: Any = None, *, groups: Any = None, clusters: Any = None, repeats: Repeats = "error"
    ) -> Self:
        """Take in samples, in their order in time, as `DriftTest.update`; ``groups`` has one for each."""
        batch = self._read(X, y, groups, clusters, labels=self.overall.labelled)
        if batch.groups is None:
            raise InputError(
                "groups: expected one for each row, got none. Use groups=…, or a test without groups.", param="groups"
            )
        self.overall._check(batch)
        with self._unchanged_on_error():
            self.overall = copy.copy(self.overall)
            self.tests = {name: copy.copy(test) for name, test in self.tests.items()}
            self._take(batch, self._new_rows(batch, repeats))
        return self

    @property
    def n_samples(self) -> int:
        """Samples seen; with clusters, cases."""
        return self.overall.n_samples

    @property
    def alarms(self) -> list[str | int]:
        """The groups whose own test has raised an alarm."""
        return [name for name, test in self.tests.items() if test.alarm]

    @property
    def alarm(self) -> bool:
        """Whether any test has raised an alarm."""
        return self.overall.alarm or bool(self.alarms)

    @property
    def p_value(self) -> float:
        """The smallest alpha with which there would have been an alarm."""
        return min(self.p_value_of(test) for test in (self.overall, *self.tests.values()))

    def p_value_of(self, test: SequentialTest) -> float:
        """Return the p-value of one of the tests, adjusted for the others."""
        return min(1.0, test.p_value * self.alpha / test.alpha)

    def describe(self) -> list[str]:
        """Return the verdicts as readable lines: of all samples, then of each group."""
        lines = [f"all: {line}" for line in self.overall.describe()]
        for name in sorted(self.tests, key=lambda n: (isinstance(n, str), n)):
            test = self.tests[name]
            shown = test.describe() if test.alarm or self._has_own_tolerance(test) else test.describe()[:1]
            lines += [f"group {name}: {line}" for line in shown]
        rest = self.overall.n_rows - sum(test.n_rows for test in self.tests.values())
        if rest:
            lines.append(f"{rest} samples are of groups that the reference does not have; they count in all alone")
        return lines

    def _table_columns(self) -> Columns:
        rows = [("all", self.overall), *self.tests.items()]
        return {
            "group": [name for name, _ in rows],
            **{a: [getattr(test, a) for _, test in rows] for a in ("n_samples", "alarm", "alarm_at")},
            "p_value": [self.p_value_of(test) for _, test in rows],
            "alpha": [test.alpha for _, test in rows],
        }

    def _repr_html_(self) -> str:
        return as_list(self.describe())

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write map and states as JSON, atomically; `load` goes on from there."""
        begun: dict[str, Any] = {} if self._references is None else {"references": _listed(self._references)}
        if self._known_within:
            begun["known_within"] = self._known_within
        write_document(
            path,
            self.document,
            self._monitor_fields()
            | to_fields(self, (*self.monitored, *self.stored))
            | {"test": self.overall.document, "overall": self.overall._state_fields(), "tests": _listed(self.tests)}
            | begun,
        )

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read what `save` wrote; everything is checked."""
        return cls._from_fields(read_document(path, cls.document))

    @classmethod
    def _from_fields(cls, content: Fields) -> Self:
        new = cls.__new__(cls)
        new._take_up_maps(content)
        vars(new).update(values_of(cls, content, (*cls.monitored, *cls.stored)))
        within = content.fields("known_within") if "known_within" in content else None
        new._known_within = {} if within is None else {name: within.number(name) for name in within.content}
        kind = content.text("test")
        if kind not in KINDS or not 0 < new.alpha < 1:
            raise contradiction(content, cls.document)
        new.overall = new._part(KINDS[kind], content.fields("overall"))
        new.tests = new._loaded_list(KINDS[kind], content, "tests")
        new._references = new._loaded_list(KINDS[kind], content, "references") if "references" in content else None
        shares = [new.alpha / 2, *(new._alpha_of(name, list(new.tests)[:i]) for i, name in enumerate(new.tests))]
        tests = [new.overall, *new.tests.values()]
        fits = np.allclose([test.alpha for test in tests], shares, rtol=1e-9)
        if not (fits and new._map_is_consistent() and sum(t.n_rows for t in tests[1:]) <= new.overall.n_rows):
            raise contradiction(content, cls.document)
        return new

    def _loaded_list(self, kind: type[SequentialTest], content: Fields, key: str) -> dict[str | int, SequentialTest]:
        items = [Fields(i if isinstance(i, dict) else {}, f"{content.where}: {key}") for i in content.items(key)]
        names = [item.read("group", str | int) for item in items]
        found = {name: self._with_own_map(name, self._part(kind, item)) for name, item in zip(names, items)}
        if len(found) < len(items):
            raise contradiction(content, self.document)
        return found

    def _refer_to(self, reference: Scores) -> list[str | int]:
        """Begin a test with the reference of each group."""
        assert isinstance(self.overall, ExchangeabilityTest)
        batch = self._read(reference, None, labels=isinstance(reference, LabelledScores))
        if batch.groups is None:
            raise InputError("reference: expected a group for each row, got none. Use Scores.from_logits(…, groups=…).")
        scores = np.concatenate([self.overall._statistics(chunk)[0] for chunk in self._predictions(batch)])
        self._references = {}
        for name in np.unique(batch.groups).tolist():
            rows = batch.groups == name
            test = self._references[name] = self.overall.fresh(self.overall.alpha)
            assert isinstance(test, ExchangeabilityTest)
            test._refer_to(scores[rows], None if batch.clusters is None else batch.clusters[rows])
        return list(self._references)

    def _alpha_of(self, name: str | int, before: Sequence[str | int]) -> float:
        """Return the share of a group that appears after those ``before``."""
        share = self.alpha / 2 / (len(self._known) + 1)
        known = set(map(str, self._known))
        if str(name) in known:
            return share
        later = 1 + sum(str(other) not in known for other in before)
        return share * 6 / (math.pi * later) ** 2

    def _take(self, batch: Batch, new: NDArray[np.bool_]) -> None:
        found = [self.overall._statistics(chunk) for chunk in self._predictions(batch, new)]
        statistics, impossible = joined(found)
        groups = np.asarray(batch.groups)[new]
        clusters = None if batch.clusters is None else batch.clusters[new]
        self.overall._stake(statistics, impossible, clusters)
        self.n_rows += len(statistics)
        is_impossible = np.zeros(len(statistics), dtype=bool)
        is_impossible[impossible] = True
        names, first, of = np.unique(groups, return_index=True, return_inverse=True)
        for i in np.argsort(first).tolist():
            test = self._test_of(names[i].item())
            rows = of.ravel() == i
            if test is not None:
                own: Labels = np.flatnonzero(is_impossible[rows])
                some = statistics[rows]
                if self._has_own_tolerance(test):
                    mine = new.copy()
                    mine[new] = rows
                    some, _ = joined([test._statistics(chunk) for chunk in self._predictions(batch, mine)])
                test._stake(some, own, None if clusters is None else clusters[rows])
        self.n_classes = self.overall.n_classes = batch.scores.n_classes

    def _has_own_tolerance(self, test: SequentialTest) -> bool:
        """Return whether the temperature of this group is known less well than that of all."""
        return isinstance(test, DriftTest) and test.tolerance > getattr(self.overall, "tolerance", math.inf)

    def _with_own_map(self, name: str | int, test: SequentialTest) -> SequentialTest:
        test.map, test.group_maps = self.group_maps.get(str(name), self.map), {}
        return test

    def _test_of(self, name: str | int) -> SequentialTest | None:
        """Return the test of a group, a new one if it appears for the first time; None if it has no reference."""
        name = _same(name, self.tests) if self._references is None else _same(name, self._references)
        if name not in self.tests:
            alpha = self._alpha_of(name, list(self.tests))
            if self._references is None:
                test = self.tests[name] = self._with_own_map(name, self.overall.fresh(alpha))
                if isinstance(test, DriftTest):
                    test.tolerance = max(test.tolerance, self._known_within.get(str(name), 1.0))
            elif name in self._references:
                self.tests[name] = self._with_own_map(name, copy.copy(self._references[name]))
                self.tests[name].alpha = alpha
        return self.tests.get(name)


def _known_within(deployed: Any) -> dict[str, float]:
    """Return by what factor the ends of the interval of each group's temperature differ from it, 10 at most."""
    found = getattr(deployed, "groups_", None)
    if found is None:
        return {}
    t = found.temperature_ratio
    factor = np.minimum(np.maximum(t / found.ratio_low, found.ratio_high / t), MAX_TOLERANCE)
    return dict(zip(map(str, found.group), factor.tolist()))


def _same(name: str | int, known: Iterable[str | int]) -> str | int:
    """Return the group with this name among those that are known: 7 and "7" are the same."""
    return next((other for other in known if str(other) == str(name)), name)


def _listed(tests: dict[str | int, SequentialTest]) -> list[dict[str, Any]]:
    return [{"group": name, **test._state_fields()} for name, test in tests.items()]
