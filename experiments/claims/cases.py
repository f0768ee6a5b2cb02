"""Cases of few and of wrong labels: a network with one number of labels, or with one kind and share of wrong ones."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import Any, NamedTuple

from experiments.claims.results import Results
from experiments.claims.wording import label
from experiments.reproduce.wrong_labels import KINDS

__all__ = ["METHODS", "PAPERS_NOISE", "Case", "all_labels", "kinds", "noise_cases", "size_cases", "with_all_methods"]

METHODS = ("none", "ts", "ats", "bayes", "structured")
PAPERS_NOISE = "uniform"  # labels drawn at random from all classes, as the authors' code does

# A study of four networks, and one of the networks that stand for the paper's, with fewer methods and repeats.
NOISE, SIZE = ("noise", "supplement-noise"), ("size", "supplement-size")


class Case(NamedTuple):
    """A network with so many labels, or with wrong labels of one kind and share."""

    page: str
    network: str
    title: str
    where: dict[str, Any]

    def above(self, results: Results, method: str, other: str) -> float:
        """Return the mean of the differences of NLL."""
        return results.above(self.page, method, other, network=self.network, **self.where)

    def nll(self, results: Results, method: str) -> float:
        """Return the mean NLL."""
        return results.mean(self.page, network=self.network, method=method, **self.where)

    def has(self, results: Results, method: str) -> bool:
        """Return whether the study has this method."""
        return bool(results.values(self.page, network=self.network, method=method, **self.where))

    def excess(self, results: Results, method: str) -> float:
        """Return the mean NLL above that of TS with all labels, all right, in the same divisions."""
        best = all_labels(results, self)
        whole = results.values(best.page, network=best.network, method="ts", **best.where)
        own = results.values(self.page, network=self.network, method=method, **self.where)
        return fmean(own[repeat] - whole[repeat] for repeat in own if repeat in whole)


def all_labels(results: Results, case: Case) -> Case:
    """Return the same network with all labels, all right."""
    where: dict[str, Any] = {"kind": "none", "share": 0}
    if case.page in SIZE:
        where = {"labels": max(results.distinct(case.page, "labels", network=case.network))}
    return case._replace(title=label(case.network), where=where)


def kinds(results: Results) -> list[str]:
    """Return the kinds of wrong labels that were studied."""
    found = {kind for page in NOISE for kind in results.distinct(page, "kind")}
    return [kind for kind in KINDS if kind in found]


def noise_cases(results: Results, kind: str) -> list[Case]:
    """Return every network and share of wrong labels of one kind."""
    return [
        Case(page, n, f"{label(n)}, {s:.0%}", {"kind": kind, "share": s})
        for page, n in _studied(results, NOISE)
        for s in sorted(results.distinct(page, "share", network=n, kind=kind))
    ]


def size_cases(results: Results) -> list[Case]:
    """Return every network and number of labels."""
    return [
        Case(page, n, f"{label(n)}, {k} labels", {"labels": k})
        for page, n in _studied(results, SIZE)
        for k in sorted(results.distinct(page, "labels", network=n))
    ]


def with_all_methods(results: Results, cases: Sequence[Case]) -> list[Case]:
    """Return the cases that have every method."""
    return [case for case in cases if all(case.has(results, method) for method in METHODS)]


def _studied(results: Results, pages: Sequence[str]) -> list[tuple[str, str]]:
    """Return each network with the first study that has it."""
    found: dict[str, str] = {}
    for page in pages:
        for name in results.networks(page):
            found.setdefault(name, page)
    return [(found[name], name) for name in results.sort(found)]
