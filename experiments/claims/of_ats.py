"""Claims about attended temperature scaling (ATS) with right labels: Tables 1 and 2, cost, and the loss itself."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from experiments.claims.claim import HALF, MOST, Claim, Finding, share
from experiments.claims.of_ts import ACCURATE, accurate
from experiments.claims.results import MARGIN, MARGIN_ECE, Results
from experiments.claims.wording import count, figure, label, listed, span
from experiments.reproduce import paper
from experiments.reproduce.consistency import TRUE
from experiments.reproduce.journal import Row
from experiments.reproduce.pages import table

__all__ = ["CLAIMS", "gains"]

PAPERS = ("none", "ts", "ats", "vector", "matrix")  # the methods of the paper's Table 1
CHANGE = 0.01  # of T: what counts as a small change
NEAR_TRUE = 0.05  # of T: chance alone moves it less, with all test samples
TWICE = 2.0


def gains(results: Results, measure: str) -> dict[str, float]:
    """Return by how much ATS is below TS, in the mean, for every network."""
    return {n: -results.above("table1", "ats", "ts", measure, network=n) for n in results.networks("table1")}


def _improved(results: Results) -> dict[str, bool]:
    """Return whether ATS is better than TS, and no other method of the paper better than ATS."""
    nll, ece = gains(results, "nll"), gains(results, "ece")
    beaten = {n: any(results.above("table1", m, "ats", network=n) < -MARGIN for m in PAPERS) for n in nll}
    return {n: (nll[n] > MARGIN or ece[n] > MARGIN_ECE) and not beaten[n] for n in nll}


def better_than_ts(results: Results) -> Finding:
    """Compare NLL and ECE of ATS with TS, and count which of the paper's methods has the least."""
    improved, nll, ece = _improved(results), gains(results, "nll"), gains(results, "ece")
    names = list(nll)
    pairs = [d for n in names for d in results.differences("table1", "ats", "ts", network=n)]
    best = [-results.above("table1", "best", "ts", network=n) for n in names]
    gap = [score["ts"].nll - score["ats"].nll for score in paper.TABLE_1.values()]
    details = (
        f"The mean NLL of ATS less that of TS is {span((-v for v in nll.values()), 5, '+')} by network, the mean ECE "
        f"{span((-v for v in ece.values()), 2, '+')} points. ATS has the lower NLL in "
        f"{count(d < 0 for d in pairs)} divisions; the largest difference in one is "
        f"{figure(max(map(abs, pairs)), 4)}. "
        "θ is tuned by the validation NLL, of which TS has the least by definition, and even the best T for the "
        "*test* part is only "
        f"{span(best, 4)} below TS. The paper's gap is {span(gap, 3)}.\n\nNetworks for which a method of the "
        "paper has the least mean (where others tie, the one further left counts):\n\n"
    ) + table(
        ["", "uncalibrated", "TS alone", "ATS alone", "TS and ATS tie", "vector", "matrix"],
        [_least(results, m, d) for m, d in (("nll", 4), ("ece", 2))],
    )
    met = improved.values()
    return Finding(share(met) >= MOST, share(met) >= HALF, f"better on {count(met)} networks", details)


def _least(results: Results, measure: str, digits: int) -> list[str]:
    """Count the networks for which each method has the least mean; ties of TS and ATS by themselves."""
    least = []
    for n in results.networks("table1"):
        means = {m: round(results.mean("table1", measure, network=n, method=m), digits) for m in PAPERS}
        first = min(PAPERS, key=means.__getitem__)
        least.append("tie" if first == "ts" and means["ats"] == means["ts"] else first)
    columns = ("none", "ts", "ats", "tie", "vector", "matrix")
    return [f"{measure.upper()}, {digits} digits", *(str(least.count(m)) for m in columns)]


def most_for_accurate(results: Results) -> Finding:
    """Compare the same for highly accurate networks."""
    improved, nll, ece, precise = _improved(results), gains(results, "nll"), gains(results, "ece"), accurate(results)
    met = [improved[n] for n in precise]
    largest = max(precise, key=lambda n: nll[n])
    details = (
        f"For the {len(precise)} networks with at least {ACCURATE:.0f} % accuracy, the NLL of ATS less that of TS "
        f"is {span((-nll[n] for n in precise), 5, '+')} "
        f"(least for {label(largest)}), the ECE {span((-ece[n] for n in precise), 2, '+')} points. Networks that "
        "it improves: "
        f"{listed([label(n) for n in precise if improved[n]])}."
    )
    return Finding(share(met) >= MOST, share(met) >= HALF, f"better on {count(met)} accurate networks", details)


def small_changes(results: Results) -> Finding:
    """Measure what a change of T between TS and ATS does to NLL."""
    nll = gains(results, "nll")
    change = {n: results.above("table1", "ats", "ts", "temperature", network=n) for n in nll}
    changed = [n for n in nll if abs(change[n]) >= CHANGE]
    met = [nll[n] > MARGIN for n in changed]
    lines = []
    for n in sorted(changed, key=lambda n: -abs(change[n])):
        t = [figure(results.mean("table1", "temperature", network=n, method=m), 3) for m in ("ts", "ats")]
        values = [figure(results.mean("table1", network=n, method=m), 5) for m in ("ts", "ats")]
        lines.append([label(n), *t, *values])
    details = (
        f"Near the optimum NLL is flat. Networks for which T changes by at least {CHANGE} in the mean:\n\n"
        + table(["network", "T of TS", "T of ATS", "NLL of TS", "NLL of ATS"], lines)
        if changed
        else f"T changes by less than {CHANGE} for every network."
    )
    best = max((nll[n] for n in changed), default=0.0)
    number = f"NLL lower by at most {figure(max(best, 0.0), 5)} where T changes"
    return Finding(share(met) >= HALF, any(met), number, details)


def keeps_accuracy(results: Results) -> Finding:
    """Compare the accuracy of ATS with that of the network, division by division."""
    names = results.networks("table1")
    changed = [d != 0 for n in names for d in results.differences("table1", "ats", "none", "accuracy", network=n)]
    structured = [results.above("table1", "structured", "none", "accuracy", network=n) for n in names]
    details = (
        "A temperature changes no order of classes, and tests check it for every calibrator that promises it "
        "(`src/attemper/testing.py`). "
        f"(`structured` may change predictions: accuracy by {span(structured, 2, '+')} points.)"
    )
    number = f"accuracy changed in {count(changed)} divisions"
    return Finding(not any(changed), share(not c for c in changed) >= HALF, number, details)


def cost(results: Results) -> Finding:
    """Compare time and memory of ATS over those of TS."""
    rows = results.rows["benchmarks"]
    ratio = {what: [r["ats"] / r["ts"] for r in rows if r["what"] == what] for what in ("time", "memory")}
    lines = [
        [
            f"{r['what']}, {r['size']}, {r['type']}",
            *(f"{r[m]:.1f} {_unit(r['what'])}" for m in ("ts", "ats")),
            figure(r["ats"] / r["ts"], 1),
        ]
        for r in rows
    ]
    details = (
        "Measured: the time of one fit on validation sets of different sizes (N samples, K classes), and the peak "
        "memory beyond the logits in one size, so not how memory grows ([speed and memory](benchmarks/speed.md)). "
        "Both losses are sums over samples; ATS takes a multiple of the time, as it fits a path of θ.\n\n"
    ) + table(["what, N×K, type", "TS", "ATS", "factor"], lines)
    growth = _growth(rows)
    grown = "more" if max(growth) > 1 else "no more"
    number = (
        f"{span(ratio['time'], 1)} × the time ({grown} in the largest size than in the smallest), "
        f"{span(ratio['memory'], 1)} × the memory"
    )
    return Finding(all(v <= TWICE for of in ratio.values() for v in of), max(growth) <= 1, number, details)


def _growth(rows: Sequence[Row]) -> list[float]:
    """Return for every type the factor of the time in the largest size, divided by that in the smallest."""
    found = []
    for kind in dict.fromkeys(r["type"] for r in rows):
        of = [r for r in rows if r["what"] == "time" and r["type"] == kind]
        if of:
            of.sort(key=lambda r: prod(map(int, r["size"].split("×"))))
            found.append((of[-1]["ats"] / of[-1]["ts"]) / (of[0]["ats"] / of[0]["ts"]))
    return found


def _unit(what: str) -> str:
    return {"time": "ms", "memory": "MiB"}[what]


def loss(results: Results) -> Finding:
    """Compare temperatures with the least loss, where the right one is known."""
    names = results.networks("consistency")
    thetas = sorted(results.distinct("consistency", "theta", method="ats"))
    t = {
        (n, c): results.mean("consistency", "temperature", network=n, method="ats", theta=c)
        for n in names
        for c in thetas
    }
    ts = [results.mean("consistency", "temperature", network=n, method="ts", theta=None) for n in names]
    near = {key: abs(value - TRUE) <= NEAR_TRUE for key, value in t.items()}
    tuned = [min((t[n, c] for c in thetas), key=lambda value: abs(value - TRUE)) for n in names]
    every = results.networks("table1")
    apart = [results.above("table1", "ats", "ts", "temperature", network=n) for n in every]
    ends = [f"{span((t[n, c] for n in names), 1)} with θ = {c:g}" for c in (thetas[0], thetas[-1])]
    closest = [f"{label(n)}: {min(thetas, key=lambda c, n=n: abs(t[n, c] - TRUE)):g}" for n in names]  # type: ignore[misc]
    details = (
        f"Labels are drawn from the network at T = {TRUE:g}, so a measure of calibration has its minimum there. "
        f"TS finds {span(ts, 2)}. The T with the least loss of Eq. (8) "
        f"is {listed(ends)}. The θ of the study whose T is closest to {TRUE:g}: {'; '.join(closest)}. "
        "What calibrates is the choice of θ, and θ is chosen by the validation NLL, the loss of TS: tuned so, the "
        f"mean T of ATS differs from that of TS by at most {figure(max(map(abs, apart)), 2)} on "
        f"{len(apart)} networks (Table 1)."
    )
    same = any(all(near[n, c] for n in names) for c in thetas)
    number = (
        f"T = {span(t.values(), 1)} over all θ, where {TRUE:g} is right; {span(tuned, 2)} with the θ that is best for "
        "each network"
    )
    return Finding(all(near.values()), same, number, details)


_IMPROVES = (
    f"ATS has a lower mean NLL than TS (by more than {MARGIN}) or a lower mean ECE (by more than {MARGIN_ECE} points), "
    f"and no other method of the paper has an NLL more than {MARGIN} below that of ATS,"
)

CLAIMS = (
    Claim(
        "ATS calibrates better than TS and all others",
        "Table 1: “ATS achieves the best calibration results for almost all experiments.”",
        ("table1",),
        f"{_IMPROVES} for at least nine of ten networks",
        "that is so for at least half of the networks",
        better_than_ts,
    ),
    Claim(
        "… most of all for highly accurate networks",
        (
            "Section 6.1.1: “Especially in the case of highly accurate networks … the calibration error improvement "
            "is more”."
        ),
        ("table1",),
        f"{_IMPROVES} for at least nine of ten networks with {ACCURATE:.0f} % accuracy or more",
        "that is so for at least half of them",
        most_for_accurate,
    ),
    Claim(
        "A small change of T improves NLL significantly",
        "Section 6.1.1, about Table 2: “even a small change in the value of T can improve NLL significantly”.",
        ("table1", "table2"),
        (
            f"ATS lowers the mean NLL by more than {MARGIN} for at least half of the networks whose mean T it "
            "changes "
            f"by {CHANGE} or more"
        ),
        "that is so for at least one of them (one is enough, as the paper says that it can)",
        small_changes,
    ),
    Claim(
        "ATS keeps the accuracy",
        "Introduction: “intact accuracy”.",
        ("table1",),
        "ATS changes the accuracy in no division of any network",
        "it keeps the accuracy in at least half of the divisions",
        keeps_accuracy,
    ),
    Claim(
        "ATS has the time and memory complexity of TS",
        "Introduction: “ATS preserves the time and memory complexity advantage of classic TS”.",
        (),
        "ATS takes at most twice the time and at most twice the memory of TS, in every size measured",
        "the factor of the time is no larger in the largest size measured than in the smallest",
        cost,
        command="make bench",
    ),
    Claim(
        "The attended loss is a measure of calibration",
        "Section 5: “L_ATS is a calibration measure for ATS that by minimizing it the model will get calibrated”.",
        ("consistency", "table1"),
        (
            f"where T = {TRUE:g} is right by construction, the T with the least loss is within {NEAR_TRUE} of it for "
            "every network and every θ"
        ),
        "one θ does that for all networks (one is enough, as a user needs only one)",
        loss,
    ),
)
