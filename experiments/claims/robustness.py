"""Claims about ATS with few or wrong labels, and what the Bayesian and the structured fit do there."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import Any, NamedTuple

from experiments.claims.claim import HALF, MOST, Claim, Finding, share
from experiments.claims.of_ts import kinds, shares
from experiments.claims.results import MARGIN, Results
from experiments.claims.wording import count, figure, label, span
from experiments.reproduce.pages import table
from experiments.reproduce.recipes import TITLES

__all__ = ["CLAIMS", "METHODS", "Case", "cases", "labels_needed", "size_cases"]

METHODS = ("none", "ts", "ats", "bayes", "structured")
OURS = ("bayes", "structured")


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

    def excess(self, results: Results, method: str) -> float:
        """Return the mean NLL above that of TS with all labels, all right, in the same divisions."""
        where: dict[str, Any] = {"kind": "none", "share": 0}
        if self.page == "size":
            where = {"labels": max(results.distinct("size", "labels", network=self.network))}
        whole = results.values(self.page, network=self.network, method="ts", **where)
        own = results.values(self.page, network=self.network, method=method, **self.where)
        return fmean(own[repeat] - whole[repeat] for repeat in own if repeat in whole)


def cases(results: Results, kind: str) -> list[Case]:
    """Return every network and share of wrong labels of one kind."""
    return [
        Case("noise", n, f"{label(n)}, {s:.0%}", {"kind": kind, "share": s})
        for n in results.networks("noise")
        for s in shares(results)
    ]


def size_cases(results: Results) -> list[Case]:
    """Return every network and number of labels."""
    return [
        Case("size", n, f"{label(n)}, {k} labels", {"labels": k})
        for n in results.networks("size")
        for k in sorted(results.distinct("size", "labels", network=n))
    ]


def _failing(results: Results) -> list[Case]:
    """Return the cases of the size study in which TS does not have the NLL yet that it has with all labels."""
    return [case for case in size_cases(results) if case.excess(results, "ts") > MARGIN]


def wrong_labels(results: Results) -> Finding:
    """Compare ATS with TS and no calibration, kind by kind; then ours."""
    lines, verdicts, numbers = [], {}, []
    for kind in kinds(results):
        of = cases(results, kind)
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
        "All shares, standard deviations and ECE: [wrong labels, in full](results/noise.md).",
    ]
    found = verdicts.values()
    return Finding(
        all(v.holds for v in found),
        any(v.holds or v.in_part for v in found),
        f"lower NLL than TS in {'; '.join(numbers)}",
        "\n\n".join(details),
    )


def _at_the_middle(results: Results) -> str:
    middle = shares(results)[len(shares(results)) // 2]
    lines = []
    for kind in kinds(results):
        for n in results.networks("noise"):
            case = Case("noise", n, "", {"kind": kind, "share": middle})
            lines.append([kind, label(n), *_least_in_bold([case.nll(results, m) for m in METHODS], 3)])
    head = ["wrong labels", "network", *(TITLES[m] for m in METHODS)]
    return f"Mean NLL with {middle:.0%} wrong labels, the least of each row in bold:\n\n{table(head, lines, texts=2)}"


def _least_in_bold(values: Sequence[float], digits: int) -> list[str]:
    shown = [figure(value, digits) for value in values]
    least = min(shown, key=float)
    return [f"**{cell}**" if cell == least else cell for cell in shown]


def _ours_beside_ats(results: Results) -> str:
    lines = []
    for kind in kinds(results):
        of = cases(results, kind)
        for method in OURS:
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
        "The Bayesian and the structured fit, with the option for wrong labels (`--noisy`), beside ATS. Errors "
        "that sit where an image is hard "
        "look like doubt of the network, and nothing in logits and labels distinguishes the two:"
    )
    return f"{text}\n\n{table(head, lines, texts=2)}"


def _when_labels_are_right(results: Results) -> str:
    costs = []
    for method in OURS:
        above = [
            results.above("noise", method, "ts", network=n, kind="none", share=0) for n in results.networks("noise")
        ]
        costs.append(f"{TITLES[method]} {span(above, 4, '+')}")
    return f"The same option with labels that are all right, NLL above TS by network: {'; '.join(costs)}."


def labels_needed(results: Results, network: str, method: str, below: str) -> float:
    """Return the number of labels from which on a method is useful; infinity if there is none.

    ``below`` is "none", better than no calibration, or "ts", within `MARGIN` of TS with all labels.
    """
    found = float("inf")
    for case in reversed([case for case in size_cases(results) if case.network == network]):
        met = case.above(results, method, "none") < 0 if below == "none" else case.excess(results, method) <= MARGIN
        if not met:
            break
        found = case.where["labels"]
    return found


def fewer_labels(results: Results) -> Finding:
    """Find how many labels each method needs."""
    names, lines, fewer = results.networks("size"), [], []
    for n in names:
        for below, aim in (("none", "better than no calibration"), ("ts", "near TS with all labels")):
            needed = {m: labels_needed(results, n, m, below) for m in METHODS[1:]}
            lines.append([label(n), aim, *("–" if v == float("inf") else f"{v:g}" for v in needed.values())])
        fewer.append(needed["ats"] < needed["ts"])
    failing = _failing(results)
    lower, higher = (
        [case.above(results, *pair) < -MARGIN for case in failing] for pair in (("ats", "ts"), ("ts", "ats"))
    )
    worse = [case.above(results, "ats", "none") > MARGIN for case in failing]
    details = [
        "Labels from which on a method is better than no calibration, and from which on its NLL is within "
        f"{MARGIN} of TS with all labels (– if that is "
        "more than the study has):",
        table(["network", "aim", *(TITLES[m] for m in METHODS[1:])], lines, texts=2),
        f"With fewer labels than TS needs for the second aim, ATS is lower than TS in {count(lower)} cases of "
        f"network and number, higher in {count(higher)}, and worse than "
        f"no calibration in {count(worse)}. Mean NLL, the least of each row in bold:",
        _by_size(results),
        _ours_with_few(results, failing),
        "Standard deviations and ECE: [few labels, in full](results/size.md).",
    ]
    number = f"fewer labels on {count(fewer)} networks"
    return Finding(all(fewer), any(fewer) or share(lower) >= HALF, number, "\n\n".join(details))


def _by_size(results: Results) -> str:
    lines = []
    for n in results.networks("size"):
        of = [case for case in size_cases(results) if case.network == n]
        for case in of[::2]:
            values = _least_in_bold([case.nll(results, m) for m in METHODS], 4)
            lines.append([label(n), str(case.where["labels"]), *values])
    return table(["network", "labels", *(TITLES[m] for m in METHODS)], lines)


def _ours_with_few(results: Results, failing: Sequence[Case]) -> str:
    parts = []
    for method in OURS:
        below = [case.above(results, method, "ats") < -MARGIN for case in failing]
        above = [case for case in size_cases(results) if case.above(results, method, "ats") > MARGIN]
        none = [case for case in size_cases(results) if case.above(results, method, "none") > MARGIN]
        worst = max((case.above(results, method, "none") for case in none), default=0.0)
        parts.append(
            f"{TITLES[method]}: lower than ATS in {count(below)} of these cases; of all "
            f"{len(size_cases(results))} cases higher than ATS in {len(above)}, and worse than no calibration in "
            f"{len(none)}" + (f", by at most {figure(worst, 4)}." if none else ".")
        )
    return "\n".join(f"- {part}" for part in parts)


def stable(results: Results) -> Finding:
    """Compare the standard deviation over draws of the labels, where labels are few for TS."""
    failing = _failing(results)
    std = {m: [results.std(c.page, network=c.network, method=m, **c.where) for c in failing] for m in METHODS[1:]}
    lower = [ats < ts - MARGIN for ats, ts in zip(std["ats"], std["ts"])]
    lines = [
        [case.title, *(figure(std[m][i], 4) for m in METHODS[1:])]
        for i, case in enumerate(failing)
        if case.where["labels"] == min(results.distinct("size", "labels", network=case.network))
    ]
    details = (
        f"Counted are the cases in which TS is not yet within {MARGIN} of its NLL with all labels. Standard "
        "deviation of NLL over draws, with the fewest labels:\n\n"
    ) + table(["network", *(TITLES[m] for m in METHODS[1:])], lines)
    return Finding(
        share(lower) >= MOST, share(lower) >= HALF, f"smaller spread than TS in {count(lower)} cases", details
    )


def finds_the_optimum(results: Results) -> Finding:
    """Count where ATS comes to the NLL of TS with all labels, all right, where TS itself does not."""
    situations = {"few labels": size_cases(results)} | {f"{k} noise": cases(results, k) for k in kinds(results)}
    lines, near, halved = [], [], []
    for title, of in situations.items():
        failing = [case for case in of if case.excess(results, "ts") > MARGIN]
        line = [title, count(case in failing for case in of)]
        for method in METHODS[2:]:
            there = [case.excess(results, method) <= MARGIN for case in failing]
            half = [case.excess(results, method) <= HALF * case.excess(results, "ts") for case in failing]
            line += [str(sum(there)), str(sum(half))]
            if method == "ats":
                near, halved = near + there, halved + half
        lines.append(line)
    head = ["", "TS fails", *(f"{TITLES[m]}: {what}" for m in METHODS[2:] for what in ("near", "half"))]
    details = (
        f"TS fails in a case if its mean NLL is more than {MARGIN} above that of TS with all labels, all right. "
        f"*Near*: of these cases, another method is within {MARGIN} of it. *Half*: it is "
        "at most half as far above it as TS.\n\n"
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
        ("noise",),
        (
            "for every kind of noise, in at least nine of ten cases ATS has a lower mean NLL (by more than "
            f"{MARGIN}) "
            "than TS and than no calibration"
        ),
        "for at least one kind it is lower than TS in at least half of the cases",
        wrong_labels,
    ),
    Claim(
        "ATS needs fewer labels than TS",
        "Section 6.1.3: “ATS comparing to TS can find the optimal T by smaller size of the validation set”.",
        ("size",),
        f"for every network ATS needs fewer labels than TS to come within {MARGIN} of the NLL of TS with all labels",
        (
            "that is so for at least one network, or, where TS is not there yet, ATS is lower than TS (by more than "
            f"{MARGIN}) in at least half of the cases"
        ),
        fewer_labels,
    ),
    Claim(
        "ATS is more stable than TS with few labels",
        "Section 6.1.3: “and it is more stable”.",
        ("size",),
        (
            f"where TS is not yet within {MARGIN} of its NLL with all labels, the standard deviation of the NLL of "
            f"ATS over draws is smaller (by more than {MARGIN}) in at least nine of ten cases"
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
        ("size", "noise"),
        (
            f"in at least nine of ten cases where TS fails, ATS comes within {MARGIN} of the NLL of TS with all "
            "labels, all right"
        ),
        "in at least half of these cases ATS is at most half as far above it as TS",
        finds_the_optimum,
    ),
)
