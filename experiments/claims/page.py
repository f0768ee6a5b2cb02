"""The page of claims: one table of verdicts, then the details of each."""

from __future__ import annotations

from pathlib import Path
from string import Template

from experiments.claims import application, baselines, of_ats, of_ts, robustness
from experiments.claims.claim import Claim, Finding
from experiments.claims.gap import gap
from experiments.claims.grid import depends_on_the_grid
from experiments.claims.results import REPEATS, STUDIES, Results
from experiments.claims.wording import count, figure, label, listed
from experiments.reproduce import paper
from experiments.reproduce.networks import about
from experiments.reproduce.pages import table
from experiments.reproduce.table1 import MANY

__all__ = ["CLAIMS", "TEXTS", "claims_page"]

TEXTS = Path(__file__).parent / "texts"

CLAIMS: tuple[Claim, ...] = (
    *of_ts.CLAIMS,
    *of_ats.CLAIMS,
    *robustness.CLAIMS,
    *baselines.CLAIMS,
    *application.CLAIMS,
)


def claims_page(results: Results) -> str:
    """Return the page, Markdown."""
    found = [(claim, claim.find(results)) for claim in CLAIMS]
    lines = [
        [str(i), claim.title, f"**{finding.verdict}**", finding.number, f"`{claim.made_by}`"]
        for i, (claim, finding) in enumerate(found, 1)
    ]
    places = [i for i, claim in enumerate(CLAIMS, 1) if claim in robustness.CLAIMS]
    values = {
        "n_networks": str(len(results.networks("table1"))),
        "repeats": _repeats(results),
        "many": str(MANY),
        "robustness": f"{places[0]} to {places[-1]}",
        "grid": depends_on_the_grid(results),
        "verdicts": table(["#", "The paper's claim", "verdict", "the number", "command"], lines, texts=5),
        "claims": "\n\n".join(_section(i, *pair) for i, pair in enumerate(found, 1)),
        "networks": _by_network(results),
        "gap": gap(results),
        "not_tested": _not_tested(results),
    }
    return Template((TEXTS / "claims.md").read_text(encoding="utf-8")).substitute(values)


def _repeats(results: Results) -> str:
    """Return how many random divisions each study has."""
    found: dict[str, list[str]] = {}
    for page in STUDIES:
        each = {
            max(len(results.distinct(page, column, network=n, method="ts")) for column in REPEATS)
            for n in results.networks(page)
        }
        found.setdefault(" or ".join(map(str, sorted(each))), []).append(f"`{page}`")
    return "; ".join(f"{number} in {listed(pages)}" for number, pages in found.items())


def _section(place: int, claim: Claim, finding: Finding) -> str:
    rule = f"*Holds* if {claim.holds_if}; *in part* if {claim.in_part_if}."
    head = f"### {place}. {claim.title}: {finding.verdict}"
    number = f"{finding.number[0].upper()}{finding.number[1:]}"
    return f"{head}\n\n{claim.source} `{claim.made_by}`\n\n{rule}\n\n**{number}.** {finding.details}"


def _by_network(results: Results) -> str:
    """Return the figures of Table 1 that the claims are decided from."""
    lines = []
    for n in results.networks("table1"):

        def mean(method: str, measure: str, digits: int, n: str = n) -> str:
            return figure(results.mean("table1", measure, network=n, method=method), digits)

        above = [
            results.above("table1", m, "ts", network=n)
            for m in ("ats", "best", "vector", "matrix", "bayes", "structured")
        ]
        ece = [mean(m, "ece", 2) for m in ("none", "ts", "ats")]
        temperatures = [mean(m, "temperature", 2) for m in ("ts", "ats")]
        nll = [mean(m, "nll", 4) for m in ("none", "ts")]
        lines.append(
            [label(n), mean("none", "accuracy", 1), *temperatures, *nll, *(figure(v, 4, "+") for v in above), *ece]
        )
    head = ["network", "accuracy", "T of TS", "T of ATS", "NLL, uncalibrated", "NLL, TS", "ATS − TS", "best T − TS"]
    head += ["vector − TS", "matrix − TS", "Bayesian − TS", "structured − TS", "ECE %, uncalibrated", "TS", "ATS"]
    return table(head, lines)


def _not_tested(results: Results) -> str:
    names = results.networks("table1")
    here = {about(n).key: n for n in names if about(n).stands_for_papers}
    missing = [paper.title(*key) for key in paper.TABLE_1 if key not in here]
    less = {
        key: paper.TABLE_1[key]["none"].accuracy - results.mean("table1", "accuracy", network=n, method="none")
        for key, n in here.items()
        if key in paper.TABLE_1
    }
    lower = [key for key, value in less.items() if value > 0]
    there = count(key in here for key in paper.TABLE_1)
    text = f"{there} rows of Table 1 have a network here; those without one: {listed(missing)}. "
    if lower:
        worst = max(lower, key=lambda key: less[key])
        text += (
            f"Ours are less accurate than the paper's in {count(v > 0 for v in less.values())} of these rows, by at "
            f"most {figure(less[worst], 1)} points ({paper.title(*worst)})."
        )
    return text
