"""The summary page: whether to use ATS, what to use instead, and when."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import fmean
from string import Template
from typing import NamedTuple

from experiments.claims.cases import METHODS, Case, kinds, noise_cases, size_cases, with_all_methods
from experiments.claims.claim import HALF, share
from experiments.claims.edge import END, by_network, fewest, total
from experiments.claims.grid import by_grid
from experiments.claims.of_ats import gains
from experiments.claims.page import TEXTS
from experiments.claims.results import MARGIN, Results
from experiments.claims.wording import count, family, figure, label, listed
from experiments.reproduce.networks import about
from experiments.reproduce.pages import table
from experiments.reproduce.recipes import TITLES
from experiments.reproduce.table1 import MANY

__all__ = ["COMMANDS", "Situation", "above_best", "choose", "situations", "summary_page"]

FEW, SOME = 50, 500  # labels
MANY_LABELS = "many right labels"
SMALL = "MNIST"  # data on which errors are so rare that there is little to calibrate
USUAL = 0.3  # share of wrong labels up to which a method is chosen

# Kinds of wrong labels as people who have labels would call them.
TITLE = {
    "uniform": "labels wrong at random",
    "confusable": "labels of a similar class",
    "instance": "labels wrong where images are hard",
    "annotators": "labels as annotators get them wrong (simulated)",
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
        Situation(MANY_LABELS, "a fifth of a test set", whole),
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
        "edge": _edge(results),
        "end": END,
        "at_end": _at_end(results),
        "narrow": _narrow(results, chosen),
        "instead": _instead(chosen),
        "compared": _compared(results),
        "distances": _distances(results),
        "otherwise": _otherwise(results, chosen),
        "left_alone": _left_alone(results),
        "grid": by_grid(results),
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
    parts = _grouped([(situation.title, method) for situation, method in chosen if method != "ats"])
    return "\n".join(f"    - {part}" for part in parts or ["There is nothing better."])


def _grouped(chosen: Sequence[tuple[str, str]]) -> list[str]:
    """Return the titles that each method is chosen for, method by method."""
    parts = []
    for method in METHODS:
        titles = [title for title, m in chosen if m == method]
        if titles:
            parts.append(f"{'no calibration' if method == 'none' else f'`{method}`'} for {listed(titles)}")
    return parts


def _edge(results: Results) -> str:
    """Say on which networks of the plot the range of ATS keeps T from running away."""
    cases = [case for case in fewest(results) if case.page == "size"]
    labels = listed([str(k) for k in sorted({case.where["labels"] for case in cases})])
    return (
        f"That limits T in part. With {labels} right labels, T is at {END}, the lower end of the range of a fit, "
        f"{by_network(results, cases)}"
    )


def _at_end(results: Results) -> str:
    few = _so_many(results, 1, FEW)
    ts, ats = (total(results, with_all_methods(results, few.cases), method) for method in ("ts", "ats"))
    return (
        f"With {few.title}, T is at {END} in {ts} repeats of TS and in {ats} of ATS. How far the two are "
        "from the best there, and how much is gained over ATS, depends on that end: another range would give other "
        "numbers."
    )


def _narrow(results: Results, chosen: Sequence[tuple[Situation, str]]) -> str:
    """Say by how much the choice for many right labels is ahead, and where it is worse than TS."""
    situation, method = next((s, m) for s, m in chosen if s.title == MANY_LABELS)
    simpler = METHODS[: METHODS.index(method)]
    if "ts" not in simpler:
        return ""
    means = {m: fmean(values) for m, values in above_best(results, situation).items()}
    ahead = min(means[m] for m in simpler) - means[method]
    groups = {
        f"networks with {MANY} classes": [c for c in situation.cases if about(c.network).n_classes >= MANY],
        f"networks of {SMALL}": [c for c in situation.cases if family(c.network) == SMALL],
    }
    used = [case for of in groups.values() for case in of]
    groups["others"] = [case for case in situation.cases if case not in used]
    parts = []
    for title, of in groups.items():
        above = [case.above(results, method, "ts") for case in of]
        if above:
            worst = f" (by at most {figure(max(above), 4)})" if max(above) > 0 else ""
            parts.append(f"{count(v > 0 for v in above)} {title}{worst}")
    return (
        f"For {situation.title}, `{method}` is {figure(ahead, 4)} closer to the best, in the mean, than a simpler "
        f"method, and {MARGIN} would be a tie; its NLL is higher than that of TS on {listed(parts)}."
    )


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
    changed = _grouped([(s.title, by_worst[s.title]) for s, method in chosen if by_worst[s.title] != method])
    severe = {
        TITLE[kind]: choose(results, Situation("", "", [c for c in noise_cases(results, kind) if _severe(c)]))
        for kind in kinds(results)
    }
    return (
        f"By the worst case instead of the mean, the choice would be {'; '.join(changed) or 'the same'}. "
        f"With more than {USUAL:.0%} wrong labels it would be {'; '.join(_grouped([*severe.items()]))}."
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
    names = [
        f"{d} {'in every row' if len(titles) == every else f'with {listed(titles)}'}" for d, titles in found.items()
    ]
    where = "; ".join(names) or "no data"
    return f"Leaving the network uncalibrated is as good as the best method in at least half of the cases on {where}."


def _severe(case: Case) -> bool:
    return bool(case.where["share"] > USUAL)


def _table(results: Results, chosen: Sequence[tuple[Situation, str]]) -> str:
    """Return the situations with what to use, and what that gained."""
    lines = []
    for situation, method in chosen:
        rival = "ts" if method == "ats" else "ats"
        gained = f"{TITLES[rival]}: {_gains(results, situation, method, rival)}"
        title = f"{situation.title}, {situation.detail}" if situation.detail else situation.title
        lines.append([title, command(method, situation), gained])
    return table(["your labels", "use", "NLL gained over"], lines, texts=3)


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
