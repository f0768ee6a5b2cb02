"""Claims about temperature scaling (TS): it corrects over-confident networks, except with few or wrong labels."""

from __future__ import annotations

from statistics import fmean

from experiments.claims.cases import PAPERS_NOISE, Case, all_labels, kinds, noise_cases, size_cases
from experiments.claims.claim import HALF, MOST, Claim, Finding, share
from experiments.claims.edge import END, above_elsewhere, at_end, nll_there_and_elsewhere, total
from experiments.claims.results import MARGIN, Results
from experiments.claims.wording import count, family, figure, label, listed, span
from experiments.reproduce.pages import table
from experiments.reproduce.wrong_labels import KINDS, SOFT

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
        "ATS cannot choose a T below the one that its largest θ gives. Averages of MC dropout that need T below 1: "
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
        "All wrong labels are simulated. Which images are hard and which classes are confused follows from the "
        f"network's own probabilities at T = {SOFT:g}, so these are not the errors of real annotators. The kinds:\n\n"
        + "\n".join(f"- *{kind}*: {KINDS[kind]}" for kind in kinds(results))
        + "\n\nThe last column has the least share of wrong labels with which TS is worse than no calibration.\n\n"
        + table(["wrong labels", "network", "NLL of TS: 0%", *SHOWN, "uncalibrated", "worse from"], lines, texts=2)
    )
    papers = failed[PAPERS_NOISE]
    number = "worse than no calibration on " + "; ".join(f"{count(of)} networks ({k})" for k, of in failed.items())
    return Finding(all(papers), share(papers) >= HALF, number, details)


def _nll_by_share(results: Results, of: list[Case]) -> list[str]:
    """Return a network's name, the NLL of TS for the shares that are shown, and the NLL without calibration."""
    right = all_labels(results, of[0])
    nll = {f"{case.where['share']:.0%}": figure(case.nll(results, "ts"), 3) for case in of}
    start, end = (figure(right.nll(results, method), 3) for method in ("ts", "none"))
    return [right.title, start, *(nll.get(share, "–") for share in SHOWN), end]


def few_labels(results: Results) -> Finding:
    """TS fails where it is worse than no calibration."""
    lines, worse, elsewhere, least_of, cases = [], [], [], [], size_cases(results)
    for n in dict.fromkeys(case.network for case in cases):
        of = [case for case in cases if case.network == n]
        least = of[0]
        least_of.append(least)
        worse.append(least.above(results, "ts", "none") > MARGIN)
        better = _from(of, [case.above(results, "ts", "none") < 0 for case in of])
        near = _from(of, [case.excess(results, "ts") <= MARGIN for case in of])
        std = results.std(least.page, network=n, method="ts", **least.where)
        nll, none = (least.nll(results, method) for method in ("ts", "none"))
        ends = [at_end(results, least, method) for method in ("ts", "ats")]
        there = f"{sum(ends[0])} / {sum(ends[1])} of {len(ends[0])}"
        elsewhere.append(above_elsewhere(results, least, "ts", "none") > MARGIN)
        split = nll_there_and_elsewhere(results, least, "ts")
        lines.append([label(n), f"{nll:.3f} ± {std:.3f}", figure(none, 3), there, split, better, near])
    fewest = listed(sorted({str(case.where["labels"]) for case in cases if case.title == cases[0].title}))
    details = (
        "Where no prediction among the labels is wrong, the NLL keeps falling as T falls, and T stops at the lower "
        f"end of the range that the fit allows, {END}. With {fewest} labels that happens in "
        f"{total(results, least_of, 'ts')} repeats of TS and {total(results, least_of, 'ats')} of ATS. How high the "
        "mean NLL of such a network is depends on that end: another range would give another mean. In the other "
        f"repeats alone, TS is worse than no calibration on {count(elsewhere)} networks. The last two columns have the "
        "number of labels that TS needs to be better than no calibration, and to be within "
        f"{MARGIN} of its NLL with all labels, with every larger number too.\n\n"
    ) + table(
        [
            "network",
            f"NLL of TS, {fewest} labels",
            "uncalibrated",
            f"repeats with T at {END}: TS / ATS",
            f"NLL of TS: T at {END} / elsewhere",
            "better from",
            f"within {MARGIN} from",
        ],
        lines,
    )
    number = f"worse than no calibration on {count(worse)} networks with {fewest} labels"
    return Finding(all(worse), share(worse) >= HALF, number, details)


def _from(of: list[Case], met: list[bool]) -> str:
    """Return the least number of labels with which, and with every larger one, a condition is met."""
    found = "–"
    for case, true in zip(reversed(of), reversed(met)):
        if not true:
            break
        found = str(case.where["labels"])
    return found


def accurate_networks(results: Results) -> Finding:
    """Compare how far TS is above the best T on accurate networks and on others, at equal numbers of labels."""
    above = {n: results.above("table1", "ts", "best", network=n) for n in results.networks("table1")}
    precise = accurate(results)
    groups = [[v for n, v in above.items() if (n in precise) == chosen] for chosen in (True, False)]
    cases = size_cases(results)
    lines, further = [], {}
    for k in sorted({case.where["labels"] for case in cases}):
        of = [case for case in cases if case.where["labels"] == k]
        pair = [[_above_best(results, c) for c in of if (c.network in precise) == chosen] for chosen in (True, False)]
        if all(pair):
            means = [fmean(values) for values in pair]
            further[k] = means[0] > means[1] + MARGIN
            lines.append([str(k), *(f"{figure(m, 4)} ({len(v)})" for m, v in zip(means, pair))])
    whole = [fmean(values) if values else 0.0 for values in groups]
    lines.append(["a fifth of the test set", *(f"{figure(m, 4)} ({len(v)})" for m, v in zip(whole, groups))])
    with_all = whole[0] > whole[1] + MARGIN
    numbers = [str(k) for k, met in further.items() if met]
    details = (
        f"Accurate networks have at least {ACCURATE:.0f} % accuracy. The table has the mean NLL of TS above that of "
        f"the best T, with the number of networks; a difference of at most {MARGIN} is a tie. With few labels the "
        f"distance is mostly that of fits with T at {END}, the lower end of its range (claim 3): a network that is "
        "seldom wrong often has no error among them.\n\n"
    ) + table(["labels", "accurate networks", "other networks"], lines)
    number = (
        f"further above the best T than other networks with {listed(numbers, 'no number of')} labels "
        f"({count(further.values())} numbers); with all labels {figure(whole[0], 4)}, others {figure(whole[1], 4)}"
    )
    met = share(further.values())
    return Finding(with_all and met >= MOST, met >= HALF, number, details)


def _above_best(results: Results, case: Case) -> float:
    """Return the mean NLL of TS above that of the best T for the test part, in the same divisions."""
    best = results.values("table1", network=case.network, method="best")
    own = results.values(case.page, network=case.network, method="ts", **case.where)
    return fmean(own[repeat] - best[repeat] for repeat in own if repeat in best)


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
        "that is so for at least half of the networks",
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
        "that is so for at least half of the networks",
        few_labels,
    ),
    Claim(
        "TS calibrates highly accurate networks less well than others",
        "Abstract: TS “cannot calibrate highly accurate networks as well as non-highly accurate ones”.",
        ("table1", "size", "supplement-size"),
        (
            f"at equal numbers of labels the mean NLL of TS above that of the best T is higher (by more than {MARGIN}) "
            f"for networks with {ACCURATE:.0f} % accuracy or more than for the others, with all labels and with at "
            "least nine of ten smaller numbers"
        ),
        "that is so for at least half of the smaller numbers",
        accurate_networks,
    ),
)
