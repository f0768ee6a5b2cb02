"""Claims about temperature scaling (TS): it corrects over-confident networks, except with few or wrong labels."""

from __future__ import annotations

from experiments.claims.cases import PAPERS_NOISE, Case, all_labels, kinds, noise_cases, size_cases
from experiments.claims.claim import HALF, Claim, Finding, share
from experiments.claims.results import MARGIN, Results
from experiments.claims.wording import count, family, figure, label, listed, span
from experiments.reproduce.pages import table
from experiments.reproduce.wrong_labels import KINDS

__all__ = ["CLAIMS", "accurate"]

SHOWN = ("10%", "20%", "30%", "40%", "50%")  # shares of wrong labels
ACCURATE = 90.0  # per cent; the networks that the paper calls highly accurate have 92 % and more


def accurate(results: Results) -> list[str]:
    """Return the networks that are highly accurate."""
    names = results.networks("table1")
    return [n for n in names if results.mean("table1", "accuracy", network=n, method="none") >= ACCURATE]


def overconfident(results: Results) -> Finding:
    """T above 1 means over-confident; TS corrects that if NLL and ECE fall."""
    names = results.networks("table1")
    t = {n: results.mean("table1", "temperature", network=n, method="ts") for n in names}
    above = {m: {n: results.above("table1", "ts", "none", m, network=n) for n in names} for m in ("nll", "ece")}
    good = {n: t[n] > 1 and above["nll"][n] < 0 and above["ece"][n] < 0 for n in names}
    lines = []
    for data in dict.fromkeys(map(family, names)):
        of = [n for n in names if family(n) == data]
        line = [data, str(len(of)), span((t[n] for n in of), 2)]
        line += [
            span((results.mean("table1", measure, network=n, method=method) for n in of), digits)
            for measure, digits in (("nll", 3), ("ece", 1))
            for method in ("none", "ts")
        ]
        lines.append(line)
    head = ["data", "networks", "T of TS", "NLL, uncalibrated", "NLL, TS", "ECE %, uncalibrated", "ECE %, TS"]
    text = [
        f"T is above 1 for {count(v > 1 for v in t.values())} networks, and TS lowers the mean NLL of "
        f"{count(v < 0 for v in above['nll'].values())} and the mean ECE of "
        f"{count(v < 0 for v in above['ece'].values())}. "
        f"Exceptions: {listed([label(n) for n in names if not good[n]])}.",
        table(head, lines),
        _modest_averages(results),
    ]
    return Finding(
        all(good.values()),
        share(good.values()) >= HALF,
        f"T above 1, lower NLL and ECE on {count(good.values())} networks",
        "\n\n".join(text),
    )


def _modest_averages(results: Results) -> str:
    """Name the averages of MC dropout that are under-confident, where ATS has no temperature low enough."""
    where = {"source": "mc"}
    modest = [
        n
        for n in results.networks("table3")
        if results.mean("table3", "temperature", network=n, method="ts", **where) < 1
    ]
    if not modest:
        return "No average of MC dropout needs a T below 1."
    found = [
        f"{label(n)} (T = {figure(results.mean('table3', 'temperature', network=n, method='ts', **where), 2)}; "
        f"NLL {figure(results.mean('table3', network=n, method='ts', **where), 3)} with TS and "
        f"{figure(results.mean('table3', network=n, method='ats', **where), 3)} with ATS)"
        for n in modest
    ]
    return (
        "ATS has no temperature below that of its largest θ. Averages of MC dropout that need T below 1: "
        f"{listed(found)}."
    )


def wrong_labels(results: Results) -> Finding:
    """TS fails where it is worse than no calibration."""
    lines, failed = [], {}
    for kind in kinds(results):
        of = noise_cases(results, kind)
        first = {case.network: "–" for case in of}
        for case in reversed(of):
            if case.above(results, "ts", "none") > MARGIN:
                first[case.network] = f"{case.where['share']:.0%}"
        failed[kind] = [share != "–" for share in first.values()]
        lines += [[kind, *_nll_by_share(results, [c for c in of if c.network == n]), first[n]] for n in first]
    details = (
        "The kinds of wrong labels:\n\n"
        + "\n".join(f"- *{kind}*: {KINDS[kind]}" for kind in kinds(results))
        + "\n\nThe last column has the least share of wrong labels with which TS is worse than no calibration.\n\n"
        + table(["wrong labels", "network", "NLL of TS: 0%", *SHOWN, "uncalibrated", "worse from"], lines, texts=2)
    )
    papers = failed[PAPERS_NOISE]
    number = "worse than no calibration on " + "; ".join(f"{count(of)} networks ({k})" for k, of in failed.items())
    return Finding(all(papers), any(papers), number, details)


def _nll_by_share(results: Results, of: list[Case]) -> list[str]:
    """Return a network's name, the NLL of TS for the shares that are shown, and the NLL without calibration."""
    right = all_labels(results, of[0])
    nll = {f"{case.where['share']:.0%}": figure(case.nll(results, "ts"), 3) for case in of}
    start, end = (figure(right.nll(results, method), 3) for method in ("ts", "none"))
    return [right.title, start, *(nll.get(share, "–") for share in SHOWN), end]


def few_labels(results: Results) -> Finding:
    """TS fails where it is worse than no calibration."""
    lines, worse, cases = [], [], size_cases(results)
    for n in dict.fromkeys(case.network for case in cases):
        of = [case for case in cases if case.network == n]
        least = of[0]
        worse.append(least.above(results, "ts", "none") > MARGIN)
        better = _from(of, [case.above(results, "ts", "none") < 0 for case in of])
        near = _from(of, [case.excess(results, "ts") <= MARGIN for case in of])
        std = results.std(least.page, network=n, method="ts", **least.where)
        nll, none = (least.nll(results, method) for method in ("ts", "none"))
        lines.append([label(n), f"{nll:.3f} ± {std:.3f}", figure(none, 3), better, near])
    fewest = listed(sorted({str(case.where["labels"]) for case in cases if case.title == cases[0].title}))
    details = (
        "Where no prediction among the labels is wrong, there is no finite T. The last two columns have the "
        "number of "
        "labels from which on TS is better "
        f"than no calibration, and from which on it is within {MARGIN} of its NLL with all labels.\n\n"
    ) + table(["network", f"NLL of TS, {fewest} labels", "uncalibrated", "better from", f"within {MARGIN} from"], lines)
    number = f"worse than no calibration on {count(worse)} networks with {fewest} labels"
    return Finding(all(worse), any(worse), number, details)


def _from(of: list[Case], met: list[bool]) -> str:
    """Return the number of labels from which on a condition is met."""
    found = "–"
    for case, true in zip(reversed(of), reversed(met)):
        if not true:
            break
        found = str(case.where["labels"])
    return found


def accurate_networks(results: Results) -> Finding:
    """With all labels TS is compared with the best T for the test part; with fewer, with no calibration."""
    above = {n: results.above("table1", "ts", "best", network=n) for n in results.networks("table1")}
    precise = accurate(results)
    worst = max(precise, key=lambda n: above[n])
    others = [v for n, v in above.items() if n not in precise]
    by_accuracy = results.networks("size")
    best = max(by_accuracy, key=lambda n: results.mean("size", "accuracy", network=n, method="none"))
    sizes = [
        case.where["labels"]
        for case in size_cases(results)
        if case.network == best and case.above(results, "ts", "none") > MARGIN
    ]
    details = (
        f"With all labels, TS is {span((above[n] for n in precise), 4)} above the best T that there is, for the "
        f"{len(precise)} networks with at least {ACCURATE:.0f} % "
        f"accuracy (largest: {label(worst)})" + (f", and {span(others, 4)} for the others" if others else "") + ". "
    )
    if sizes:
        details += (
            f"With up to {sizes[-1]} labels TS is worse than no calibration on {label(best)}, the most accurate "
            "network of the "
            "size study, because errors are rare. That is claim 3."
        )
    else:
        details += (
            f"On {label(best)}, the most accurate network of the size study, TS is not worse than no calibration with "
            "any number of labels."
        )
    number = f"NLL at most {figure(above[worst], 4)} above the best T with all labels"
    far = [above[n] > MARGIN for n in precise]
    return Finding(share(far) >= HALF, any(far) or bool(sizes), number, details)


CLAIMS = (
    Claim(
        "Deep networks are over-confident, and TS corrects that",
        (
            "Introduction and Section 4: networks have “a tendency to get overconfident”; TS “achieves better "
            "calibration”."
        ),
        ("table1", "table3"),
        "for every network the mean T of TS is above 1, and TS lowers the mean NLL and the mean ECE",
        "that is so for at least half of the networks",
        overconfident,
    ),
    Claim(
        "TS fails when labels are wrong",
        "Abstract: TS “does not work properly when the validation set … contains noisy-labeled samples”.",
        ("noise", "supplement-noise"),
        (
            f"with {PAPERS_NOISE} noise, the paper's kind, TS is worse than no calibration (NLL higher by more than "
            f"{MARGIN}) at some share of wrong labels, for every network"
        ),
        "that is so for at least one network",
        wrong_labels,
    ),
    Claim(
        "TS fails when the validation set is small",
        "Abstract, and Section 6.1.3: “When the validation size is small, TS is not stable.”",
        ("size", "supplement-size"),
        (
            f"with the fewest labels studied TS is worse than no calibration (NLL higher by more than {MARGIN}) for "
            "every network"
        ),
        "that is so for at least one network",
        few_labels,
    ),
    Claim(
        "TS cannot calibrate highly accurate networks well",
        "Abstract: TS “cannot calibrate highly accurate networks as well as non-highly accurate ones”.",
        ("table1", "size"),
        (
            f"with all labels the NLL of TS is more than {MARGIN} above that of the best T, for at least half of the "
            f"networks with {ACCURATE:.0f} % accuracy or more"
        ),
        (
            "that is so for at least one of them, or TS is worse than no calibration with some smaller number of "
            "labels on the most accurate network of the size study"
        ),
        accurate_networks,
    ),
)
