"""Claims about ATS with few or wrong labels, and what the Bayesian and the structured fit do there."""

from __future__ import annotations

import math
from collections.abc import Sequence

from experiments.claims.cases import (
    METHODS,
    PAPERS_NOISE,
    Case,
    all_labels,
    kinds,
    noise_cases,
    size_cases,
    with_all_methods,
)
from experiments.claims.claim import HALF, MOST, Claim, Finding, share
from experiments.claims.edge import END, total
from experiments.claims.results import MARGIN, Results
from experiments.claims.wording import count, figure, label, span
from experiments.reproduce.pages import table
from experiments.reproduce.recipes import TITLES

__all__ = ["CLAIMS"]

OURS = ("bayes", "structured")
MIDDLE = 0.3  # of the labels are wrong


def _failing(results: Results) -> list[Case]:
    """Return the cases of the size study in which TS does not have the NLL yet that it has with all labels."""
    return [case for case in size_cases(results) if case.excess(results, "ts") > MARGIN]


def wrong_labels(results: Results) -> Finding:
    """Compare ATS with TS and no calibration, kind by kind; then ours."""
    lines, verdicts, numbers = [], {}, []
    for kind in kinds(results):
        of = noise_cases(results, kind)
        lower, higher, useful = (
            [case.above(results, *pair) < -MARGIN for case in of]
            for pair in (("ats", "ts"), ("ts", "ats"), ("ats", "none"))
        )
        verdicts[kind] = Finding(share(lower) >= MOST and share(useful) >= MOST, share(lower) >= HALF, "", "")
        numbers.append(f"{count(lower)} cases ({kind})")
        lines.append([kind, count(lower), count(higher), count(useful), verdicts[kind].verdict])
    details = [
        "A case is a network with one share of wrong labels. ATS is lower or higher if the mean NLL differs by "
        "more than "
        f"{MARGIN}.",
        table(["wrong labels", "lower than TS", "higher than TS", "lower than uncalibrated", "this kind alone"], lines),
        _at_the_middle(results),
        _ours_beside_ats(results),
        _when_labels_are_right(results),
        "All shares, standard deviations and ECE: [four networks](results/noise.md), "
        "[the others](results/supplement-noise.md).",
    ]
    found = verdicts.values()
    return Finding(
        all(v.holds for v in found),
        share(v.holds or v.in_part for v in found) >= HALF,
        f"lower NLL than TS in {'; '.join(numbers)}",
        "\n\n".join(details),
    )


def _at_the_middle(results: Results) -> str:
    lines = []
    for kind in kinds(results):
        of = [case for case in noise_cases(results, kind) if case.where["share"] == MIDDLE]
        lines += [[kind, label(case.network), *_nll(results, case, 3)] for case in of]
    head = ["wrong labels", "network", *(TITLES[m] for m in METHODS)]
    return f"Mean NLL with {MIDDLE:.0%} wrong labels, the least of each row in bold:\n\n{table(head, lines, texts=2)}"


def _nll(results: Results, case: Case, digits: int) -> list[str]:
    """Return the mean NLL of each method, the least in bold, and a dash where a study does not have the method."""
    shown = {m: figure(case.nll(results, m), digits) for m in METHODS if case.has(results, m)}
    least = min(shown.values(), key=float)
    return [f"**{cell}**" if cell == least else cell for cell in (shown.get(m, "–") for m in METHODS)]


def _ours_beside_ats(results: Results) -> str:
    lines = []
    for kind in kinds(results):
        for method in OURS:
            of = [case for case in noise_cases(results, kind) if case.has(results, method)]
            above = {case.title: case.above(results, method, "ats") for case in of}
            worst = max(of, key=lambda case: above[case.title])
            furthest = (
                f"{figure(worst.nll(results, method), 3)} against {figure(worst.nll(results, 'ats'), 3)}: {worst.title}"
            )
            lines.append(
                [
                    kind,
                    TITLES[method],
                    count(v < -MARGIN for v in above.values()),
                    count(v > MARGIN for v in above.values()),
                    furthest if above[worst.title] > MARGIN else "–",
                ]
            )
    head = ["wrong labels", "method", "lower than ATS", "higher than ATS", "furthest above ATS"]
    text = (
        "The Bayesian and the structured fit, with the option for wrong labels (`--noisy`), beside ATS. If labels "
        "are wrong mostly on hard images, "
        "the errors look like doubt of the network, and nothing in logits and labels separates the two. The "
        "constants of both fits were chosen partly on these networks and kinds of noise, so this is no independent "
        "test:"
    )
    return f"{text}\n\n{table(head, lines, texts=2)}"


def _when_labels_are_right(results: Results) -> str:
    costs = []
    for method in OURS:
        whole = [all_labels(results, of[0]) for of in _by_network(noise_cases(results, PAPERS_NOISE)).values()]
        above = [case.above(results, method, "ts") for case in whole if case.has(results, method)]
        costs.append(f"{TITLES[method]} {span(above, 4, '+')}")
    return f"The same option with labels that are all right, NLL above TS by network: {'; '.join(costs)}."


def _needed(results: Results, of: Sequence[Case], method: str, *, near: bool) -> float:
    """Return the least number of labels with which, and with every larger one, a method is useful; or infinity.

    Useful is: better than no calibration, or, if ``near``, within the margin of TS with all labels.
    """
    found = math.inf
    for case in reversed(of):
        met = case.excess(results, method) <= MARGIN if near else case.above(results, method, "none") < 0
        if not met:
            break
        found = case.where["labels"]
    return found


def _by_network(cases: Sequence[Case]) -> dict[str, list[Case]]:
    found: dict[str, list[Case]] = {}
    for case in cases:
        found.setdefault(case.network, []).append(case)
    return found


def fewer_labels(results: Results) -> Finding:
    """Find how many labels each method needs."""
    lines, fewer = [], []
    for n, of in _by_network(size_cases(results)).items():
        methods = [m for m in METHODS[1:] if of[0].has(results, m)]
        needed = {m: [_needed(results, of, m, near=near) for near in (False, True)] for m in methods}
        fewer.append(needed["ats"][1] < needed["ts"][1])
        cells = {m: " / ".join("–" if math.isinf(v) else f"{v:g}" for v in pair) for m, pair in needed.items()}
        lines.append([label(n), *(cells.get(m, "") for m in METHODS[1:])])
    failing = _failing(results)
    lower, higher = (
        [case.above(results, *pair) < -MARGIN for case in failing] for pair in (("ats", "ts"), ("ts", "ats"))
    )
    worse = [case.above(results, "ats", "none") > MARGIN for case in failing]
    details = [
        "Labels that a method needs to be better than no calibration / to have an NLL within "
        f"{MARGIN} of TS with all labels, with every larger number too (– if the largest number of the study is not "
        "enough, empty if the study does not have the method):",
        table(["network", *(TITLES[m] for m in METHODS[1:])], lines),
        f"With fewer labels than TS needs for the second aim, ATS is lower than TS in {count(lower)} cases of "
        f"network and number, higher in {count(higher)}, and worse than no calibration in {count(worse)}. "
        f"{_at_the_end(results, failing)} Mean NLL, the least of each row in bold:",
        _by_size(results),
        _ours_with_few(results),
        "Standard deviations and ECE: [four networks](results/size.md), [the others](results/supplement-size.md).",
    ]
    number = (
        f"fewer labels than TS on {count(fewer)} networks; lower NLL than TS in {count(lower)} cases where TS has too "
        "few"
    )
    in_part = share(fewer) >= HALF or share(lower) >= HALF
    return Finding(all(fewer), in_part, number, "\n\n".join(details))


def _at_the_end(results: Results, cases: Sequence[Case]) -> str:
    """Count the fits whose T is at the end of its range, where the end decides about NLL and spread."""
    ts, ats = (total(results, cases, method) for method in ("ts", "ats"))
    return (
        f"In these cases T is at the lower end of its range, {END}, in {ts} repeats of TS and {ats} of ATS; there "
        "the end of the range decides how high the NLL is, and with it the mean and the spread over repeats (claim 3 "
        "has the networks)."
    )


def _by_size(results: Results) -> str:
    """Return the NLL of every other number of labels, for the networks that have all methods."""
    cases = with_all_methods(results, size_cases(results))
    lines = [
        [label(n), str(case.where["labels"]), *_nll(results, case, 4)]
        for n, of in _by_network(cases).items()
        for case in of[::2]
    ]
    return table(["network", "labels", *(TITLES[m] for m in METHODS)], lines)


def _ours_with_few(results: Results) -> str:
    parts = []
    for method in OURS:
        cases = [case for case in size_cases(results) if case.has(results, method)]
        ats, none = ([case.above(results, method, other) for case in cases] for other in ("ats", "none"))
        parts.append(
            f"- {TITLES[method]}: lower than ATS in {count(v < -MARGIN for v in ats)} cases, higher in "
            f"{count(v > MARGIN for v in ats)} (by at most {figure(max(*ats, 0.0), 4)}); worse than no "
            "calibration in "
            f"{count(v > MARGIN for v in none)} (by at most {figure(max(*none, 0.0), 4)})"
        )
    return "\n".join(parts)


def stable(results: Results) -> Finding:
    """Compare the standard deviation over draws of the labels, where labels are few for TS."""

    def std(case: Case, method: str) -> float:
        return results.std(case.page, network=case.network, method=method, **case.where)

    failing = _failing(results)
    change = [std(case, "ats") - std(case, "ts") for case in failing]
    smaller = [v < 0 for v in change if abs(v) > MARGIN]
    first = [of[0] for of in _by_network(failing).values()]
    lines = [
        [case.title, *(figure(std(case, m), 4) if case.has(results, m) else "–" for m in METHODS[1:])] for case in first
    ]
    details = (
        f"Of the {len(failing)} cases in which TS is not yet within {MARGIN} of its NLL with all labels, the standard "
        f"deviations differ by more than {MARGIN} in {len(smaller)}. {_at_the_end(results, failing)} With the fewest "
        "labels the standard deviations are:\n\n"
    ) + table(["network", *(TITLES[m] for m in METHODS[1:])], lines)
    number = f"smaller spread than TS in {count(smaller)} cases that differ"
    return Finding(share(smaller) >= MOST, share(smaller) >= HALF, number, details)


def finds_the_optimum(results: Results) -> Finding:
    """Count where ATS comes to the NLL of TS with all labels, all right, where TS itself does not."""
    situations = {"few labels": size_cases(results)}
    situations |= {f"wrong labels, {kind}": noise_cases(results, kind) for kind in kinds(results)}
    lines: list[list[str]] = []
    near: list[bool] = []
    halved: list[bool] = []
    for title, of in situations.items():
        failing = [case for case in of if case.excess(results, "ts") > MARGIN]
        line = [title, count(case in failing for case in of)]
        for method in METHODS[2:]:
            known = [case for case in failing if case.has(results, method)]
            there = [case.excess(results, method) <= MARGIN for case in known]
            half = [case.excess(results, method) <= HALF * case.excess(results, "ts") for case in known]
            line += [count(there), count(half)]
            if method == "ats":
                near, halved = near + there, halved + half
        lines.append(line)
    head = ["", "TS fails", *(f"{TITLES[m]}: {what}" for m in METHODS[2:] for what in ("near", "half"))]
    details = (
        f"TS fails in a case if its mean NLL is more than {MARGIN} above that of TS with all labels, all right. "
        f"*Near* counts the cases of these in which another method is within {MARGIN} of that NLL, *half* those in "
        "which it is at most half as far above it as TS.\n\n"
    ) + table(head, lines)
    number = f"near the optimum in {count(near)} cases where TS fails"
    return Finding(share(near) >= MOST, share(halved) >= HALF, number, details)


CLAIMS = (
    Claim(
        "ATS is robust to wrong labels",
        (
            "Section 6.1.2: ATS “is more robust to labeling noise and still can calibrate the model when the labels "
            "is not severely defected”."
        ),
        ("noise", "supplement-noise"),
        (
            "for every kind of noise, in at least nine of ten cases ATS has a lower mean NLL (by more than "
            f"{MARGIN}) "
            "than TS and than no calibration"
        ),
        "for at least half of the kinds it is lower than TS in at least half of the cases",
        wrong_labels,
    ),
    Claim(
        "ATS needs fewer labels than TS",
        "Section 6.1.3: “ATS comparing to TS can find the optimal T by smaller size of the validation set”.",
        ("size", "supplement-size"),
        f"for every network ATS needs fewer labels than TS to come within {MARGIN} of the NLL of TS with all labels",
        (
            "that is so for at least half of the networks, or, where TS is not there yet, ATS is lower than TS (by "
            f"more than {MARGIN}) in at least half of the cases"
        ),
        fewer_labels,
    ),
    Claim(
        "ATS is more stable than TS with few labels",
        "Section 6.1.3: “and it is more stable”.",
        ("size", "supplement-size"),
        (
            f"where TS is not yet within {MARGIN} of its NLL with all labels, the standard deviation of the NLL of ATS "
            f"over draws is smaller in at least nine of ten cases in which the two differ (by more than {MARGIN})"
        ),
        "that is so in at least half of them",
        stable,
    ),
    Claim(
        "ATS finds the optimal T where TS fails",
        (
            "Conclusion: “ATS can find the optimal T in the situation that … validation set is small or when it "
            "contains noisy labels where classic TS fails”."
        ),
        ("size", "noise", "supplement-size", "supplement-noise"),
        (
            f"in at least nine of ten cases where TS fails, ATS comes within {MARGIN} of the NLL of TS with all "
            "labels, all right"
        ),
        "in at least half of these cases ATS is at most half as far above it as TS",
        finds_the_optimum,
    ),
)
