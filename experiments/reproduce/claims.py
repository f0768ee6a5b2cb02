"""``python -m experiments.reproduce.claims docs/results``: the number of each claim, from the CSV files.

``docs/results/claims.md`` has the claims, the rules and the verdicts.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from experiments.reproduce.networks import label
from experiments.reproduce.noise import KINDS
from experiments.reproduce.pages import Floats, gather, read_csv

__all__ = ["numbers"]

TIE, ECE_TIE, ACCURATE = 0.001, 0.1, 90.0  # differences of NLL and of ECE (points) that count as none; per cent
Means = dict[tuple[str, ...], float]


def numbers(folder: Path) -> dict[int, str]:
    """Return what was counted or measured for each claim; claim 9 is one of `make bench`."""
    return _many_labels(folder) | _wrong_and_few(folder) | _consistency(folder) | _table3(folder) | _skin(folder)


def _many_labels(folder: Path) -> dict[int, str]:
    rows = read_csv(folder / "table1.csv")
    by = ("network", "method")
    each = {measure: gather(rows, by, measure) for measure in ("accuracy", "nll", "ece", "temperature")}
    accuracy, nll, ece, t = ({key: float(v.mean()) for key, v in values.items()} for values in each.values())
    names = list(dict.fromkeys(row["network"] for row in rows))
    uncorrected = [
        n for n in names
        if t[n, "ts"] <= 1 or nll[n, "ts"] >= nll[n, "none"] or ece[n, "ts"] >= ece[n, "none"]
    ]  # fmt: skip
    better = [
        n for n in names
        if (nll[n, "ats"] < nll[n, "ts"] - TIE or ece[n, "ats"] < ece[n, "ts"] - ECE_TIE)
        and all(nll[n, m] >= nll[n, "ats"] - TIE for m in ("none", "ts", "vector", "matrix"))
    ]  # fmt: skip
    accurate = [n for n in names if accuracy[n, "none"] >= ACCURATE]
    moved = [n for n in names if abs(t[n, "ats"] - t[n, "ts"]) >= 0.01]
    gain = max(nll[n, "ts"] - nll[n, "ats"] for n in moved)
    changed = [(each["accuracy"][n, "ats"] != each["accuracy"][n, "none"]) for n in names]
    overfits = {
        m: sum(nll[n, m] > nll[n, "ts"] + TIE and accuracy[n, m] < accuracy[n, "none"] for n in names)
        for m in ("matrix", "vector")
    }
    most = max(abs(nll[n, "ats"] - nll[n, "ts"]) for n in names)
    return {
        1: f"T above 1, lower NLL and ECE on {_of(len(names) - len(uncorrected), names)} networks (not: "
        f"{_listed(uncorrected)})",
        5: f"better on {_of(len(better), names)} networks ({_listed(better)}); NLL differs by at most {most:.4f}",
        6: f"better on {_of(len(set(better) & set(accurate)), accurate)} accurate networks",
        7: f"NLL lower by at most {gain:.5f} on the {len(moved)} networks where T changes by 0.01 or more",
        8: f"accuracy changed in {_of(int(np.concatenate(changed).sum()), np.concatenate(changed))} splits",
        15: "; ".join(f"{m} overfits on {_of(n, names)} networks" for m, n in overfits.items()),
    }


def _wrong_and_few(folder: Path) -> dict[int, str]:
    """Claims about the studies of noise and size; a case is a network with a number of labels or a share of noise."""
    noise = gather(read_csv(folder / "noise.csv"), ("network", "kind", "share", "method"), "nll")
    size = gather(read_csv(folder / "size.csv"), ("network", "labels", "method"), "nll")
    table1 = read_csv(folder / "table1.csv")
    best = gather([row for row in table1 if row["method"] == "best"], ("network",), "nll")
    accuracy = gather([row for row in table1 if row["method"] == "none"], ("network",), "accuracy")
    names = list(dict.fromkeys(key[0] for key in size))
    sizes = {name: sorted({key[1] for key in size if key[0] == name}) for name in names}
    target = {name: size[name, sizes[name][-1], "ts"].mean() + TIE for name in names}  # TS with all labels
    few = [(name, n) for name in names for n in sizes[name][:-1] if size[name, n, "ts"].mean() > target[name]]
    wrong = [key[:3] for key in noise if key[1] != "none" and key[3] == "ts"]

    def lower(values: dict[tuple[object, ...], Floats], case: tuple[object, ...], a: str, b: str) -> bool:
        return bool(values[*case, a].mean() < values[*case, b].mean() - TIE)

    fails, robust, both = [], [], []
    for kind in KINDS:
        cases = [case for case in wrong if case[1] == kind]
        of = {case[0] for case in cases}
        fails.append(f"{_of(len({case[0] for case in cases if lower(noise, case, 'none', 'ts')}), of)} ({kind})")
        robust.append(f"{_of(sum(lower(noise, case, 'ats', 'ts') for case in cases), cases)} ({kind})")
        both.append(sum(lower(noise, case, "ats", "ts") and lower(noise, case, "ats", "none") for case in cases))
    ten = [name for name in names if lower(size, (name, 10), "none", "ts")]
    tiny = [lower(size, (name, n), "ats", "ts") for name in names for n in (10, 20, 50)]
    further = []
    for n in (*sorted({n for name in names for n in sizes[name][:-1]}), None):  # None: all labels
        above: dict[bool, list[float]] = {True: [], False: []}
        for name in (name for name in names if n is None or n in sizes[name]):
            pairs = zip(size[name, n or sizes[name][-1], "ts"], best[name,])  # of the same splits
            above[accuracy[name,].mean() >= ACCURATE].append(float(np.mean([ts - least for ts, least in pairs])))
        means = [np.mean(above[group]) for group in (True, False)]
        if n is not None and means[0] > means[1] + TIE:
            further.append(str(n))
    needed: dict[tuple[str, str], float] = {}  # labels that are enough, as every larger number is
    for name in names:
        for method in ("ts", "ats"):
            short = [n for n in sizes[name] if size[name, n, method].mean() > target[name]]
            needed[name, method] = min((n for n in sizes[name] if not short or n > short[-1]), default=np.inf)
    fewer = sum(needed[name, "ats"] < needed[name, "ts"] for name in names)
    spreads = [[size[*case, m].std(ddof=1) for m in ("ats", "ts")] for case in few if len(size[*case, "ts"]) > 1]
    differ = [a < b for a, b in spreads if abs(a - b) > TIE]
    failed = [case for case in wrong if noise[*case, "ts"].mean() > target[str(case[0])]]
    found = sum(size[*case, "ats"].mean() <= target[case[0]] for case in few)
    found += sum(noise[*case, "ats"].mean() <= target[str(case[0])] for case in failed)
    return {
        2: f"worse than no calibration on {'; '.join(fails)} networks",
        3: f"worse than no calibration on {_of(len(ten), names)} networks with 10 labels; ATS lower than TS in "
        f"{_of(sum(tiny), tiny)} cases of 10, 20 or 50",
        4: f"further above the best T than other networks with {', '.join(further)} labels; with all labels "
        f"{means[0]:.4f}, others {means[1]:.4f}",
        11: f"lower NLL than TS in {'; '.join(robust)} cases; also lower than uncalibrated in {both}",
        12: f"fewer labels than TS on {_of(fewer, names)} networks; lower NLL than TS in "
        f"{_of(sum(lower(size, case, 'ats', 'ts') for case in few), few)} cases where TS has too few",
        13: f"smaller spread than TS in {_of(sum(differ), differ)} cases that differ",
        14: f"near the optimum in {_of(found, [*few, *failed])} cases where TS fails",
    }


def _consistency(folder: Path) -> dict[int, str]:
    t = gather(read_csv(folder / "consistency.csv"), ("network", "method", "theta"), "temperature")
    means = {(name, theta): float(v.mean()) for (name, method, theta), v in t.items() if method == "ats"}
    nearest = [min((v for (name, _), v in means.items() if name == of), key=lambda v: abs(v - 1.5)) for of, _ in means]
    return {
        10: f"T = {min(means.values()):.1f} to {max(means.values()):.1f} over all θ, where 1.5 is right; "
        f"{min(nearest):.2f} to {max(nearest):.2f} with the θ that is best for each network"
    }


def _table3(folder: Path) -> dict[int, str]:
    rows = read_csv(folder / "table3.csv")
    nll, ece = (gather(rows, ("network", "source", "method"), measure) for measure in ("nll", "ece"))
    names = list(dict.fromkeys(row["network"] for row in rows))

    def below(values: dict[tuple[object, ...], Floats], source: str, tie: float) -> int:
        return sum(values[n, source, "none"].mean() < values[n, "single", "ts"].mean() - tie for n in names)

    counts = [_of(below(nll, source, TIE), names) for source in ("mc", "ensemble")]
    of_ece = sum(below(ece, source, ECE_TIE) for source in ("mc", "ensemble"))
    return {
        16: f"NLL lower than TS on {counts[0]} networks (MC dropout), {counts[1]} (ensemble); ECE lower in "
        f"{of_ece} of {2 * len(names)} cases"
    }


def _skin(folder: Path) -> dict[int, str]:
    nll = gather(read_csv(folder / "table4.csv"), ("network", "method"), "nll")
    rows = read_csv(folder / "referral.csv")
    area, right, wrong, gap = (
        gather(rows, ("network", "method"), m) for m in ("area", "confidence_right", "confidence_wrong", "gap")
    )

    def change(values: dict[tuple[object, ...], Floats], a: str, b: str, digits: int) -> str:
        means = sorted((values[name, a] - values[name, b]).mean() for name in {key[0] for key in values})
        return " to ".join(f"{mean:+.{digits}f}" for mean in (means[0], means[-1]))

    return {
        17: f"NLL of ATS less TS {change(nll, 'ats', 'ts', 5)} (paper: −0.046)",
        18: f"area over all thresholds {change(area, 'ts', 'none', 4)}",
        19: f"area of ATS less TS {change(area, 'ats', 'ts', 5)}",
        20: f"confidence when right {change(right, 'ts', 'none', 2)}, when wrong {change(wrong, 'ts', 'none', 2)}",
        21: f"gap of ATS less TS {change(gap, 'ats', 'ts', 4)}",
    }


def _of(count: int, among: Iterable[object]) -> str:
    return f"{count} of {len(list(among))}"


def _listed(names: list[str]) -> str:
    return "; ".join(map(label, names)) or "none"


if __name__ == "__main__":
    for claim, number in sorted(numbers(Path(sys.argv[1])).items()):
        print(f"{claim:2d}. {number}")
