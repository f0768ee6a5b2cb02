"""Claims about temperature scaling (TS): it corrects over-confident networks, except with few or wrong labels."""

from __future__ import annotations

from experiments.claims.claim import HALF, Claim, Finding, share
from experiments.claims.results import MARGIN, Results
from experiments.claims.wording import count, family, figure, label, listed, span
from experiments.reproduce.pages import table
from experiments.reproduce.wrong_labels import KINDS

__all__ = ["CLAIMS", "PAPERS_NOISE", "accurate", "kinds", "shares"]

PAPERS_NOISE = "uniform"  # labels drawn at random from all classes, as the authors' code does
ACCURATE = 90.0  # per cent; the networks that the paper calls highly accurate have 92 % and more


def accurate(results: Results) -> list[str]:
    """Return the networks that are highly accurate."""
    names = results.networks("table1")
    return [n for n in names if results.mean("table1", "accuracy", network=n, method="none") >= ACCURATE]


def kinds(results: Results) -> list[str]:
    """Return the kinds of wrong labels that were studied."""
    return [kind for kind in KINDS if kind in results.distinct("noise", "kind")]


def shares(results: Results) -> list[float]:
    """Return the shares of wrong labels that were studied."""
    return sorted(share for share in results.distinct("noise", "share") if share > 0)


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
        all(good.values()), share(good.values()) >= HALF, f"so for {count(good.values())} networks", "\n\n".join(text)
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
    names, lines, failed = results.networks("noise"), [], {}
    for kind in kinds(results):
        failed[kind] = [_first_failure(results, n, kind) is not None for n in names]
        for n in names:
            first = _first_failure(results, n, kind)
            nll = [results.mean("noise", network=n, kind=kind, share=s, method="ts") for s in shares(results)]
            right = results.mean("noise", network=n, kind="none", share=0, method="ts")
            start = "–" if first is None else f"{first:.0%}"
            lines.append([kind, label(n), *(figure(v, 3) for v in (right, *nll)), _uncalibrated(results, n), start])
    head = ["wrong labels", "network", "NLL of TS: 0%", *(f"{s:.0%}" for s in shares(results))]
    details = (
        "The kinds of wrong labels:\n\n"
        + "\n".join(f"- *{kind}*: {KINDS[kind]}" for kind in kinds(results))
        + "\n\nThe last column has the least share of wrong labels with which TS is worse than no calibration.\n\n"
        + table([*head, "uncalibrated", "worse from"], lines, texts=2)
    )
    papers = failed[PAPERS_NOISE]
    number = "worse than no calibration on " + "; ".join(f"{count(of)} networks ({k})" for k, of in failed.items())
    return Finding(all(papers), any(papers), number, details)


def _uncalibrated(results: Results, name: str) -> str:
    return figure(results.mean("noise", network=name, kind="none", share=0, method="none"), 3)


def _first_failure(results: Results, name: str, kind: str) -> float | None:
    for s in shares(results):
        if results.above("noise", "ts", "none", network=name, kind=kind, share=s) > MARGIN:
            return s
    return None


def few_labels(results: Results) -> Finding:
    """TS fails where it is worse than no calibration."""
    names = results.networks("size")
    least = min(results.distinct("size", "labels"))
    above = {n: results.above("size", "ts", "none", network=n, labels=least) for n in names}
    lines = []
    for n in names:
        sizes = sorted(results.distinct("size", "labels", network=n))
        better = _from(sizes, [results.above("size", "ts", "none", network=n, labels=k) < 0 for k in sizes])
        whole = results.mean("size", network=n, labels=sizes[-1], method="ts")
        near = _from(sizes, [results.mean("size", network=n, labels=k, method="ts") < whole + MARGIN for k in sizes])
        nll, std = (f("size", network=n, labels=least, method="ts") for f in (results.mean, results.std))
        none = results.mean("size", network=n, labels=least, method="none")
        lines.append([label(n), f"{nll:.3f} ± {std:.3f}", figure(none, 3), better, near])
    details = (
        "Where no prediction among the labels is wrong, there is no finite T. The last two columns have the "
        "number of labels from which on TS is better "
        f"than no calibration, and from which on it is within {MARGIN} of its NLL with all labels.\n\n"
    ) + table(["network", f"NLL of TS, {least} labels", "uncalibrated", "better from", f"within {MARGIN} from"], lines)
    worse = [v > MARGIN for v in above.values()]
    return Finding(
        all(worse), any(worse), f"worse than no calibration on {count(worse)} networks with {least} labels", details
    )


def _from(sizes: list[int], met: list[bool]) -> str:
    """Return the size from which on a condition is met."""
    found = "–"
    for size, true in zip(reversed(sizes), reversed(met)):
        if not true:
            break
        found = str(size)
    return found


def accurate_networks(results: Results) -> Finding:
    """With all labels TS is compared with the best T for the test part; with fewer, with no calibration."""
    above = {n: results.above("table1", "ts", "best", network=n) for n in results.networks("table1")}
    precise = accurate(results)
    worst = max(precise, key=lambda n: above[n])
    others = [v for n, v in above.items() if n not in precise]
    best = max(results.networks("size"), key=lambda n: results.mean("size", "accuracy", network=n, method="none"))
    sizes = [
        k
        for k in sorted(results.distinct("size", "labels", network=best))
        if results.above("size", "ts", "none", network=best, labels=k) > MARGIN
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
            f"On {label(best)}, the most accurate network of the size study, TS is never worse than no calibration."
        )
    number = f"{figure(above[worst], 4)} above the best T with all labels"
    return Finding(above[worst] > MARGIN, bool(sizes), number, details)


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
        ("noise",),
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
        ("size",),
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
            f"with all labels the NLL of TS is more than {MARGIN} above that of the best T, for at least one network "
            f"with {ACCURATE:.0f} % accuracy or more"
        ),
        (
            "that is so only with fewer labels: on the most accurate network of the size study TS is worse than no "
            "calibration with some number of labels"
        ),
        accurate_networks,
    ),
)
