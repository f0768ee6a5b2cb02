"""Claims about the other methods of the paper: matrix and vector scaling, MC dropout and ensembles."""

from __future__ import annotations

from experiments.claims.claim import HALF, MOST, Claim, Finding, share
from experiments.claims.results import MARGIN, MARGIN_ECE, Results
from experiments.claims.wording import count, family, figure, label, listed, span
from experiments.reproduce import paper
from experiments.reproduce.pages import table
from experiments.reproduce.table3 import SOURCES

__all__ = ["CLAIMS"]

# What an average is compared with: the same network without dropout in the test, or one of the members.
BASES = {"mc": "dropout-off", "ensemble": "single"}


def overfit(results: Results) -> Finding:
    """Count NLL above TS and accuracy below the network's."""
    names, lines, both = results.networks("table1"), [], {}
    for method in ("matrix", "vector"):
        nll = {n: results.above("table1", method, "ts", network=n) for n in names}
        none = [results.above("table1", method, "none", network=n) for n in names]
        accuracy = [results.above("table1", method, "none", "accuracy", network=n) for n in names]
        both[method] = [nll[n] > MARGIN and a < 0 for n, a in zip(names, accuracy)]
        papers = [score[method].nll > score["none"].nll for score in paper.TABLE_1.values()]
        better = sorted({family(n) for n in names if nll[n] < -MARGIN})
        lines.append(
            [
                method,
                count(v > MARGIN for v in nll.values()),
                count(v > 0 for v in none),
                count(papers),
                count(a < 0 for a in accuracy),
                span(accuracy, 2, "+"),
                listed(better, "–"),
            ]
        )
    head = ["method", "NLL above TS", "NLL above uncalibrated", "the same in the paper", "accuracy lower"]
    separated = [row["network"] for row in results.rows["table1"] if row["method"] == "matrix" and not row["converged"]]
    details = (
        "Networks of which this is so, the change of accuracy in points, and the data on which the method has a "
        "lower mean NLL than TS for some network:\n\n"
        + table([*head, "change of accuracy", "better than TS on"], lines)
        + "\n\nMatrix scaling separates the labels in some division, so that there is no finite optimum, for "
        f"{len(set(separated))} networks "
        f"(data: {listed(sorted({family(n) for n in separated}))})."
    )
    number = "overfits on " + "; ".join(f"{count(of)} networks ({method})" for method, of in both.items())
    most = [share(of) >= MOST for of in both.values()]
    return Finding(all(most), any(most), number, details)


def averages(results: Results) -> Finding:
    """Compare MC dropout and ensembles as they are with TS on one network."""
    lines, good, sharper = [], [], []
    lower: dict[str, list[bool]] = {}
    names = results.networks("table3")
    for source, base in BASES.items():
        lower[source] = []
        for n in names:

            def mean(measure: str, source: str, method: str, n: str = n) -> float:
                return results.mean("table3", measure, network=n, source=source, method=method)

            accuracy = mean("accuracy", source, "none") - mean("accuracy", base, "none")
            nll, ece = (mean(m, source, "none") - mean(m, base, "ts") for m in ("nll", "ece"))
            lower[source].append(nll < -MARGIN)
            sharper.append(ece < -MARGIN_ECE)
            good.append(accuracy > 0 and nll < -MARGIN and ece < -MARGIN_ECE)
            lines.append(
                [
                    SOURCES[source],
                    label(n),
                    figure(accuracy, 2, "+"),
                    *(
                        f"{mean(m, source, 'none'):.{d}f} / {mean(m, base, 'ts'):.{d}f}"
                        for m, d in (("nll", 3), ("ece", 1))
                    ),
                    figure(mean("nll", source, "ts"), 3),
                ]
            )
    head = ["average", "network", "accuracy gained", "NLL / TS on one network", "ECE % / TS", "NLL with TS on top"]
    details = (
        "Averages as they are, beside TS on one network: for an ensemble one of its members, for MC dropout the "
        "same network with dropout off. The last column "
        "has TS on top of the average, which the paper does not try.\n\n"
    ) + table(head, lines, texts=2)
    numbers = [f"{count(of)} networks ({SOURCES[source]})" for source, of in lower.items()]
    number = f"NLL lower than TS on {'; '.join(numbers)}; ECE lower in {count(sharper)} cases"
    in_part = share(met for of in lower.values() for met in of) >= HALF
    return Finding(all(good), in_part, number, details)


CLAIMS = (
    Claim(
        "Matrix and vector scaling overfit",
        "Section 6.1.1: “they suffer from over-fitting to the validation set in both accuracy and confidence”.",
        ("table1",),
        (
            f"for both methods, the mean NLL is more than {MARGIN} above that of TS and the mean accuracy below the "
            "network's, for at least nine of ten networks"
        ),
        "that is so for one of the two methods",
        overfit,
    ),
    Claim(
        "MC dropout and ensembles improve accuracy and calibration, beyond other methods",
        (
            "Section 6.1.1, about Table 3: they “can improve the accuracy and calibration of the model "
            "simultaneously and make the model more calibrated than other measure-based approaches”."
        ),
        ("table3",),
        (
            f"for every network both have a higher accuracy, an NLL lower by more than {MARGIN} and an ECE lower by "
            f"more than {MARGIN_ECE} points than TS on one network"
        ),
        "the NLL is lower by as much in at least half of the cases, each an average on a network",
        averages,
    ),
)
