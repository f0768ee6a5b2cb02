"""The summary page: whether to use ATS, what to use instead, and when."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import fmean
from string import Template
from typing import NamedTuple

from experiments.claims.cases import METHODS, Case, kinds, noise_cases, size_cases, with_all_methods
from experiments.claims.claim import HALF, share
from experiments.claims.of_ats import gains
from experiments.claims.page import TEXTS
from experiments.claims.results import MARGIN, Results
from experiments.claims.wording import count, family, figure, label, listed
from experiments.reproduce.pages import table
from experiments.reproduce.recipes import TITLES

__all__ = ["COMMANDS", "Situation", "above_best", "choose", "situations", "summary_page"]

FEW, SOME = 50, 500  # labels
USUAL = 0.3  # share of wrong labels up to which a method is chosen

# Kinds of wrong labels as people who have labels would call them.
TITLE = {
    "uniform": "labels wrong at random",
    "confusable": "labels of a similar class",
    "instance": "labels wrong where images are hard",
    "annotators": "labels that people got wrong",
}

# As the studies fit them: without the fallback of attemper, ATS is the paper's method.
COMMANDS = {
    "none": "",
    "ts": "attemper fit val.npz --method ts",
    "ats": "attemper fit val.npz --method ats -p fallback=false",
    "bayes": "attemper fit val.npz --method bayes",
    "structured": "attemper fit val.npz --method structured",
}
WITH_WRONG_LABELS = ("bayes", "structured")  # methods that take --noisy


class Situation(NamedTuple):
    """What somebody's labels are like, and the cases of the studies that are like that."""

    title: str
    detail: str
    cases: list[Case]
    wrong: bool = False


def situations(results: Results) -> list[Situation]:
    """Return the situations that the studies have cases of."""
    whole = [Case("table1", n, label(n), {}) for n in results.networks("table1")]
    return [
        _so_many(results, 1, FEW),
        _so_many(results, FEW + 1, SOME),
        Situation("many right labels", "a fifth of a test set", whole),
        *(
            Situation(TITLE[kind], f"*{kind}*", [c for c in noise_cases(results, kind) if not _severe(c)], wrong=True)
            for kind in kinds(results)
        ),
    ]


def _so_many(results: Results, least: int, most: int) -> Situation:
    found = [case for case in size_cases(results) if least <= case.where["labels"] <= most]
    numbers = [case.where["labels"] for case in found]
    return Situation(f"{min(numbers)} to {max(numbers)} right labels", "", found)


def above_best(results: Results, situation: Situation) -> dict[str, list[float]]:
    """Return how far above the best of the five methods each of them is, as mean NLL, in every case that has all."""
    cases = with_all_methods(results, situation.cases)
    above = [{m: case.above(results, m, "ts") for m in METHODS} for case in cases]
    return {m: [of[m] - min(of.values()) for of in above] for m in METHODS}


def choose(results: Results, situation: Situation, of: Callable[[list[float]], float] = fmean) -> str:
    """Return the method that is closest to the best, in the mean of the cases; of those within the margin the simplest.

    With ``of=max`` the method with the best worst case.
    """
    found = {method: of(values) for method, values in above_best(results, situation).items()}
    return next(m for m in METHODS if found[m] <= min(found.values()) + MARGIN)


def command(method: str, situation: Situation) -> str:
    """Return how to fit a method in a situation."""
    more = " --noisy" if situation.wrong and method in WITH_WRONG_LABELS else ""
    return f"`{COMMANDS[method]}{more}`" if COMMANDS[method] else "no fit: keep the network's probabilities"


def summary_page(results: Results) -> str:
    """Return the page, Markdown."""
    chosen = [(situation, choose(results, situation)) for situation in situations(results)]
    values = {
        "verdict": _verdict(chosen),
        "instead": _instead(chosen),
        "compared": _compared(results),
        "distances": _distances(results),
        "otherwise": _otherwise(results, chosen),
        "left_alone": _left_alone(results),
        "usual": f"{USUAL:.0%}",
        "table": _table(results, chosen),
        "margin": f"{MARGIN:g}",
        "networks": listed([label(n) for n in results.networks("noise")]),
    }
    return Template((TEXTS / "ats.md").read_text(encoding="utf-8")).substitute(values)


def _verdict(chosen: Sequence[tuple[Situation, str]]) -> str:
    own = [situation.title for situation, method in chosen if method == "ats"]
    if not own:
        return f"No: in none of the {len(chosen)} situations below is it the method to choose."
    word = "Yes" if len(own) == len(chosen) else "Often" if len(own) >= HALF * len(chosen) else "Seldom"
    return f"{word}: of the {len(chosen)} situations below, it is the method to choose in {len(own)} ({listed(own)})."


def _instead(chosen: Sequence[tuple[Situation, str]]) -> str:
    parts = []
    for method in METHODS:
        of = [situation.title for situation, m in chosen if m == method]
        if of and method != "ats":
            name = "no calibration" if method == "none" else f"`{method}`"
            parts.append(f"{name} for {listed(of)}")
    return f"Use {'; '.join(parts)}." if parts else "There is nothing better."


def _compared(results: Results) -> str:
    """Compare ATS with TS: with many right labels, and how often it is better otherwise."""
    largest = max(map(abs, gains(results, "nll").values()))
    few = _so_many(results, 1, FEW)
    wrong = [case for kind in kinds(results) for case in noise_cases(results, kind)]
    lower = [count(case.above(results, "ats", "ts") < -MARGIN for case in of) for of in (few.cases, wrong)]
    return (
        f"Compared with plain temperature scaling (TS), it has a lower NLL in {lower[0]} cases with {few.title} "
        "and in "
        f"{lower[1]} cases with wrong labels; with many right labels its NLL is that of TS to within "
        f"{figure(largest, 4)} on each of {len(results.networks('table1'))} networks."
    )


def _otherwise(results: Results, chosen: Sequence[tuple[Situation, str]]) -> str:
    """Name the situations in which another criterion, or more wrong labels, would change the choice."""
    by_worst = {situation.title: choose(results, situation, max) for situation, _ in chosen}
    changed = [f"`{by_worst[s.title]}` for {s.title}" for s, method in chosen if by_worst[s.title] != method]
    severe = {
        TITLE[kind]: choose(results, Situation("", "", [c for c in noise_cases(results, kind) if _severe(c)]))
        for kind in kinds(results)
    }
    more = listed([f"`{method}` for {title}" for title, method in severe.items()])
    return (
        f"By the worst case instead of the mean, the choice would be {listed(changed, 'the same')}. "
        f"With more than {USUAL:.0%} wrong labels it is {more}."
    )


def _left_alone(results: Results) -> str:
    """Name the data on which no calibration is as good as the best method, in at least half of the cases."""
    found: dict[str, list[str]] = {}
    for situation in situations(results):
        for data, of in _by_data(with_all_methods(results, situation.cases)).items():
            values = above_best(results, situation._replace(cases=of))["none"]
            if share(value <= MARGIN for value in values) >= HALF:
                found.setdefault(data, []).append(situation.title)
    every = len(situations(results))
    names = [f"{d} ({'every row' if len(titles) == every else listed(titles)})" for d, titles in found.items()]
    where = "; ".join(names) or "no data"
    return f"No calibration at all is as good as the best method, in at least half of the cases, on {where}."


def _severe(case: Case) -> bool:
    return bool(case.where["share"] > USUAL)


def _table(results: Results, chosen: Sequence[tuple[Situation, str]]) -> str:
    """Return the situations with what to use, and what that gained."""
    lines = []
    for situation, method in chosen:
        rival = "ts" if method == "ats" else "ats"
        gained = f"{TITLES[rival]}: {_gains(results, situation, method, rival)}"
        title = f"{situation.title} ({situation.detail})" if situation.detail else situation.title
        lines.append([title, command(method, situation), gained])
    return table(["your labels", "use", "what it gained: NLL below"], lines, texts=3)


def _distances(results: Results) -> str:
    """Return how far each method is from the best, and the data on which ATS is better than TS."""
    lines = []
    for situation in situations(results):
        values = above_best(results, situation)
        means = {m: figure(fmean(of), 3) for m, of in values.items()}
        least = min(means.values(), key=float)
        cells = [
            f"{f'**{mean}**' if mean == least else mean} ({figure(max(values[m]), 3)})" for m, mean in means.items()
        ]
        ahead = [d for d, of in _by_data(situation.cases).items() if _mostly_lower(results, of, "ats", "ts")]
        lines.append([situation.title, *cells, listed(ahead, "–")])
    return table(["your labels", *(TITLES[m] for m in METHODS), "ATS ahead of TS on"], lines)


def _by_data(cases: Sequence[Case]) -> dict[str, list[Case]]:
    found: dict[str, list[Case]] = {}
    for case in cases:
        found.setdefault(family(case.network), []).append(case)
    return found


def _mostly_lower(results: Results, of: Sequence[Case], method: str, other: str) -> bool:
    return share(case.above(results, method, other) < -MARGIN for case in of) >= HALF


def _gains(results: Results, situation: Situation, method: str, rival: str) -> str:
    """Return by how much a method is below its rival in the mean, for each data set."""
    means = {
        data: fmean(case.above(results, rival, method) for case in of)
        for data, of in _by_data(with_all_methods(results, situation.cases)).items()
    }
    return ", ".join(f"{data} {figure(value, 3)}" for data, value in means.items())
