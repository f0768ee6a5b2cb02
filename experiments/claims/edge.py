"""Fits whose temperature is at the lower end of the range that is allowed: there, the end decides about the NLL."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from statistics import fmean

from attemper.sketch import DEFAULT_T_RANGE
from experiments.claims.cases import Case, size_cases
from experiments.claims.results import Results
from experiments.claims.wording import count, figure, label, listed

__all__ = ["END", "above_elsewhere", "at_end", "by_network", "fewest", "nll_there_and_elsewhere", "total"]

LOW = DEFAULT_T_RANGE[0]
END = f"{LOW:g}"  # as sentences have it
CLOSE = 0.01  # relative: a T this near to the end is at the end


def at_end(results: Results, case: Case, method: str) -> list[bool]:
    """Return for every repeat whether T is at the lower end of its range."""
    return list(_repeats_at_end(results, case, method).values())


def total(results: Results, cases: Iterable[Case], method: str) -> str:
    """Return in how many repeats of some cases T is at the end."""
    return count(met for case in cases for met in at_end(results, case, method))


def fewest(results: Results) -> list[Case]:
    """Return the case with the fewest labels of every network."""
    found: dict[str, Case] = {}
    for case in size_cases(results):
        found.setdefault(case.network, case)
    return list(found.values())


def _repeats_at_end(results: Results, case: Case, method: str) -> dict[Hashable, bool]:
    found = results.values(case.page, "temperature", network=case.network, method=method, **case.where)
    return {repeat: t <= LOW * (1 + CLOSE) for repeat, t in found.items()}


def nll_there_and_elsewhere(results: Results, case: Case, method: str) -> str:
    """Return the mean NLL of the repeats with T at the end, and of the others."""
    nll = results.values(case.page, network=case.network, method=method, **case.where)
    met = _repeats_at_end(results, case, method)
    halves = [[nll[repeat] for repeat in met if met[repeat] == there] for there in (True, False)]
    return " / ".join(figure(fmean(of), 3) if of else "–" for of in halves)


def above_elsewhere(results: Results, case: Case, method: str, other: str) -> float:
    """Return the mean NLL of a method above another in the repeats with T not at the end; 0 without any."""
    own, others = (results.values(case.page, network=case.network, method=m, **case.where) for m in (method, other))
    met = _repeats_at_end(results, case, method)
    differences = [own[repeat] - others[repeat] for repeat in met if not met[repeat] and repeat in others]
    return fmean(differences) if differences else 0.0


def by_network(results: Results, cases: Sequence[Case]) -> str:
    """Return the counts of TS and ATS, and on how many of the networks where TS has such fits ATS has fewer."""
    found = {case.network: [sum(at_end(results, case, method)) for method in ("ts", "ats")] for case in cases}
    repeats = sorted({len(at_end(results, case, "ts")) for case in cases})
    counts = "; ".join(f"{label(n)}: {ts} and {ats}" for n, (ts, ats) in found.items())
    fewer = count(ats < ts for ts, ats in found.values() if ts)
    return (
        f"in this many of {listed([str(k) for k in repeats])} repeats with TS and with ATS: {counts}. ATS has fewer "
        f"such fits on {fewer} networks that have any."
    )
