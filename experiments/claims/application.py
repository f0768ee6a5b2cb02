"""Claims about the skin-lesion network: Table 4 and Figures 1, 5 and 6."""

from __future__ import annotations

from statistics import fmean
from typing import Any

from experiments.claims.claim import HALF, Claim, Finding, share
from experiments.claims.results import MARGIN, MARGIN_ECE, Results
from experiments.claims.wording import count, figure, label, span
from experiments.reproduce import paper
from experiments.reproduce.pages import table
from experiments.reproduce.recipes import TITLES
from experiments.reproduce.skin import AREAS

__all__ = ["CLAIMS"]

AREA = 0.01  # of the area below the referral curve: a gain that a clinic would notice
CONFIDENCE = 0.01  # of the confidence
METHODS = ("none", "ts", "ats", "bayes", "structured")
DIVISION: dict[str, Any] = {"what": "division"}


def table_4(results: Results) -> Finding:
    """Compare NLL and ECE of TS and ATS."""
    names, improved, lines = results.networks("table4"), [], []
    for n in names:
        gain = {m: -results.above("table4", "ats", "ts", m, network=n, **DIVISION) for m in ("nll", "ece")}
        improved.append(gain["nll"] > MARGIN or gain["ece"] > MARGIN_ECE)
        cells = [
            f"{results.mean('table4', network=n, method=m, **DIVISION):.4f} / "
            f"{results.mean('table4', 'ece', network=n, method=m, **DIVISION):.2f}"
            for m in METHODS
        ]
        accuracy = results.mean("table4", "accuracy", network=n, method="none", **DIVISION)
        lines.append([label(n), figure(accuracy, 1), *cells])
    score = paper.TABLE_4
    lines.append(
        [
            "the paper's",
            figure(score["ts"].accuracy, 1),
            *(f"{score[m].nll} / {score[m].ece:.2f}" if m in score else "–" for m in METHODS),
        ]
    )
    details = (
        f"Mean NLL / ECE in per cent:\n\n{table(['network', 'accuracy, %', *(TITLES[m] for m in METHODS)], lines)}"
    )
    above = [results.above("table4", "ats", "ts", network=n, **DIVISION) for n in names]
    number = f"NLL of ATS less TS {span(above, 5, '+')} (paper: {score['ats'].nll - score['ts'].nll:+.3f})"
    return Finding(all(improved), any(improved), number, details)


def _area_table(results: Results) -> str:
    lines = [
        [
            label(n),
            title,
            *(figure(results.mean("referral", area, network=n, method=m, **DIVISION), 4) for m in METHODS),
        ]
        for n in results.networks("referral")
        for area, title in AREAS.items()
    ]
    return table(["network", "area over", *(TITLES[m] for m in METHODS)], lines, texts=2)


def referral(results: Results) -> Finding:
    """Measure what TS gains over no calibration, over the paper's thresholds and over all."""
    names = results.networks("referral")
    gain = {
        area: {n: results.differences("referral", "ts", "none", area, network=n, **DIVISION) for n in names}
        for area in AREAS
    }
    mean = {area: [fmean(of[n]) for n in names] for area, of in gain.items()}
    always = {area: all(d > 0 for n in names for d in of[n]) for area, of in gain.items()}
    sentences = []
    for area, title in AREAS.items():
        divisions = [d > 0 for n in names for d in gain[area][n]]
        sentences.append(f"Over {title} TS gains {span(mean[area], 4, '+')}, in {count(divisions)} divisions.")
    crowded = [f"{_above_last_step(results, n):.0%} ({label(n)})" for n in names]
    sentences.append(
        f"The difference is the grid: of the uncalibrated confidences, {' and '.join(crowded)} lie between the "
        "paper's "
        "last two thresholds, which a straight line joins. One temperature for all does not change which "
        "class of a patient is the most probable, and hardly the order of patients by confidence: both are up to the "
        "network. What calibration gives is a threshold that can be taken at its word: of the patients at that "
        "confidence, about that share is diagnosed right."
    )
    details = [" ".join(sentences), _area_table(results)]
    number = f"area over all thresholds {span(mean['area'], 4, '+')}"
    holds = always["area"] and min(mean["area"]) >= AREA
    return Finding(holds, always["area_paper"] or always["area"], number, "\n\n".join(details))


def _above_last_step(results: Results, name: str) -> float:
    """Return the share of the uncalibrated confidences above the last threshold below 1, in division 0."""
    points = [
        row
        for row in results.rows["referral"]
        if (row["network"], row["method"], row["what"]) == (name, "none", "curve, 21") and row["threshold"] < 1
    ]
    last = max(points, key=lambda row: row["threshold"])
    right = results.values("table4", "accuracy", network=name, method="none", **DIVISION)[0] / 100
    return float(right * last["correct_decided"] + (1 - right) * (1 - last["errors_referred"]))


def ats_referral(results: Results) -> Finding:
    """Compare areas: those of ATS less those of TS."""
    names = results.networks("referral")
    gain = {a: [results.above("referral", "ats", "ts", a, network=n, **DIVISION) for n in names] for a in AREAS}
    parts = [f"{span(gain[area], 5, '+')} over {title}" for area, title in AREAS.items()]
    details = (
        f"The area of ATS less that of TS is {' and '.join(parts)} (the areas are in the table of the claim before)."
    )
    better = {area: [v > MARGIN for v in values] for area, values in gain.items()}
    number = f"area of ATS less TS {span(gain['area'], 5, '+')}"
    return Finding(all(better["area"]), share(v for of in better.values() for v in of) >= HALF, number, details)


def _change(results: Results, method: str, other: str) -> dict[str, list[float]]:
    names = results.networks("referral")
    return {
        what: [results.above("referral", method, other, f"confidence_{what}", network=n, **DIVISION) for n in names]
        for what in ("right", "wrong")
    }


def figure_1(results: Results) -> Finding:
    """Measure how TS changes the confidence of right and of wrong predictions."""
    change = _change(results, "ts", "none")
    lines = []
    for n in results.networks("referral"):
        for what in ("right", "wrong"):
            cells = [
                results.mean("referral", f"confidence_{what}", network=n, method=m, **DIVISION) for m in METHODS[:3]
            ]
            lines.append([label(n), what, *(figure(v, 3) for v in cells)])
    details = (
        f"Mean confidence:\n\n{table(['network', 'predictions', *(TITLES[m] for m in METHODS[:3])], lines, texts=2)}"
    )
    falls = [w < -CONFIDENCE for w in change["wrong"]]
    kept = [r > -CONFIDENCE for r in change["right"]]
    more = [w < r - CONFIDENCE for r, w in zip(change["right"], change["wrong"])]
    number = f"confidence when right {span(change['right'], 2, '+')}, when wrong {span(change['wrong'], 2, '+')}"
    return Finding(all(falls) and all(kept), all(falls) and all(more), number, details)


def figure_6(results: Results) -> Finding:
    """Compare the gap between the confidence of right and of wrong predictions, of ATS and of TS."""
    change = _change(results, "ats", "ts")
    wider = [r - w for r, w in zip(change["right"], change["wrong"])]
    met = [v > CONFIDENCE for v in wider]
    details = (
        "The gap is the mean confidence of right predictions less that of wrong ones; the table of the claim before "
        "has the confidences."
    )
    return Finding(all(met), any(met), f"gap of ATS less TS {span(wider, 4, '+')}", details)


CLAIMS = (
    Claim(
        "ATS calibrates the skin-lesion network better than TS",
        "Table 4 and Section 6.2.",
        ("table4",),
        (
            f"ATS is better than TS (mean NLL lower by more than {MARGIN}, or mean ECE by more than {MARGIN_ECE} "
            "points) for both networks"
        ),
        "that is so for one of them",
        table_4,
    ),
    Claim(
        "Better calibration makes a better referral system",
        "Section 6.2, about Figure 5: “ATS improves calibration in order to have better referral system”.",
        ("referral", "table4"),
        (
            "with TS the area over all thresholds is larger than uncalibrated in every division of both networks, by "
            f"at least {AREA} in the mean"
        ),
        "it is larger in every division, over all thresholds or over the paper's 21",
        referral,
    ),
    Claim(
        "… and ATS a better one than TS",
        "Section 6.2: “It shows ATS by better calibration can improve the decision making system”.",
        ("referral",),
        f"the mean area of ATS over all thresholds is more than {MARGIN} above that of TS, for both networks",
        "that is so in at least half of the four cases: two networks, all thresholds or the paper's 21",
        ats_referral,
    ),
    Claim(
        "Calibration keeps the confidence of right predictions high and lowers that of wrong ones",
        (
            "Figure 1: “the network keeps the confidence of correctly classified samples high while decrease the "
            "confidence of misclassified samples”."
        ),
        ("referral",),
        (
            f"with TS the mean confidence of wrong predictions falls by more than {CONFIDENCE}, and that of right "
            "ones does not, for both networks"
        ),
        f"both fall, that of wrong predictions by more ({CONFIDENCE} or more)",
        figure_1,
    ),
    Claim(
        "ATS separates right and wrong predictions more than TS",
        (
            "Section 6.2, about Figure 6: “ATS can increase the gap between the confidence of correctly and "
            "misclassified samples more”."
        ),
        ("referral",),
        (
            f"the gap of the mean confidences is wider with ATS than with TS by more than {CONFIDENCE}, for both "
            "networks"
        ),
        "that is so for one of them",
        figure_6,
    ),
)
