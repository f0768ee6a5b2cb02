"""Accuracy of attemper's methods compared with other packages', family by family.

    python benchmarks/compare.py FOLDER… --out runs.csv [--methods ts,bayes,structured] [--peers] [--draws 3] [--jobs 2]
        [--rows clean50,uniform10-200,pairs20-1000] [--sets llm_]
    python benchmarks/compare.py --out runs.csv --report [--beside other.csv] [--columns ts,bayes] [--classes 2]
    python benchmarks/compare.py --out arena.csv --report --ranks --rows all,small

Classifiers of one family share their faults, so a mean over all sets hides a family on which a method fails. A row of
the tables is a kind of labels:

* ``clean200``: 200 labels as they are; ``all``: every calibration row; ``small``: the 200 rows that an arena names
* ``uniform10-200``: 10 % of 200 labels replaced by a uniform draw; ``uniform0-200`` replaces none, but is called noisy
* ``pairs20-200``: 20 % of them replaced by the next class
* ``similar20-200``, ``hard20-200``: by the class that the network confuses most; uniformly, where it is in doubt
* ``votes-200``: one person's label of each image; needs cifar10h--counts.npz in the folder, for sets in its order

The tables have the excess test NLL over the best single temperature of the test samples. Methods with a parameter
``noise`` get "unknown" in all rows whose labels are not clean. A method may have parameters: ``structured:noise=0.1``;
``noise=known`` is the share of wrong labels that the row is made with. Labels depend on set, row and draw alone, so
that all runs compare. ``--ranks`` prints leaderboards instead: the share of other methods with a higher loss.

The CSV gets a line for each fit, and a second run goes on where the first stopped. ``--beside`` adds the lines of other
CSVs, with the name of the file where the method is the same. ``--peers`` needs the environment of `make bench`.
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
import zlib
from collections import defaultdict
from pathlib import Path

import numpy as np
from scipy.special import log_softmax

import data
from attemper.calibrators import METHODS
from peers import PEERS, meant_for

ROWS = ",".join(
    [
        *("clean50", "clean200", "clean1000", "uniform0-1000", "uniform10-200", "uniform10-1000", "uniform30-1000"),
        *("pairs20-1000", "similar20-1000", "hard20-1000", "votes-1000"),
    ]
)
FIELDS = ["set", "family", "row", "draw", "method", "n_classes", "nll", "brier", "best_nll", "t_held", "noise_held",
          "cannot_tell", "failed"]  # fmt: skip
SMALLEST = 1e-15  # probability that the NLL is cut at
TIED = 1e-12


# Labels


def parse_row(row):
    """Return kind, share of wrong labels and number of labels of a row's name."""
    if row in ("all", "small"):
        return row, 0.0, 0
    match = re.fullmatch(r"(?:(clean)|(votes)-|(uniform|pairs|similar|hard)(\d+)-)(\d+)", row)
    if not match:
        sys.exit(f"--rows: expected names like clean200, uniform10-200, votes-200, all or small, got {row!r}")
    clean, votes, kind, share, n = match.groups()
    return clean or votes or kind, int(share or 0) / 100, int(n)


def draw_labels(source, row, draw, case):
    """Return rows of the calibration part and their labels; None where the set has too few, or none of these."""
    kind, share, n = parse_row(row)
    if kind in ("all", "small"):
        rows = np.arange(len(case.y)) if kind == "all" else case.small
        return None if case.small is None else (rows, case.y[rows])
    rng = data.generator(source.name, row, draw)
    if n > len(case.y):
        return None
    rows = rng.choice(len(case.y), n, replace=False)
    if kind == "votes":
        counts = data.votes(source.path.parent)
        if counts is None or len(case.y) != 5000 or (counts[case.rows].argmax(1) == case.y).mean() < 0.9:
            return None
        counts = counts[case.rows[rows]]
        return rows, (counts.cumsum(1) > rng.random(n)[:, None] * counts.sum(1, keepdims=True)).argmax(1)
    return rows, data.spoil(case.h[rows], case.y[rows], share, kind, rng)


# Fits


def fit_ours(method, row, h, y):
    name, *settings = method.split(":")
    parameters = {}
    for setting in settings:
        key, _, value = setting.partition("=")
        try:
            parameters[key] = ast.literal_eval(value)
        except ValueError:
            parameters[key] = value
    kind, share, _ = parse_row(row)
    if kind not in ("clean", "all", "small") and METHODS[name].knows_noise:
        parameters.setdefault("noise", "unknown")
        if parameters["noise"] == "known":
            parameters["noise"] = share * (1 - 1 / h.shape[1]) if kind in ("uniform", "hard") else share
    elif parameters.get("noise") == "known":
        parameters["noise"] = 0
    return METHODS[name](**parameters).fit(h, y)


def holds(interval, *values):
    """1 where the interval holds one of the values or lies between them, else 0; empty without an interval."""
    return "" if interval is None else int(interval[0] <= max(values) and min(values) <= interval[1])


def one_fit(method, row, h, y, case, t_of_all, wrong):
    """Return the last columns of a line of the CSV."""
    out, log_p = {}, log_softmax(case.h_test, axis=1)
    try:
        if method != "none":
            fitted = PEERS[method][0](h, y) if method in PEERS else fit_ours(method, row, h, y)
            made = fitted(case.h_test) if method in PEERS else fitted.predict_log_proba(case.h_test)
            sums = np.exp(made).sum(axis=1)
            if made.shape != log_p.shape or not np.abs(sums - 1).max() < 1e-3:
                raise ValueError(f"expected probabilities {log_p.shape}, got {made.shape}")
            log_p = made
            if method not in PEERS:
                out["t_held"] = holds(getattr(fitted, "temperature_interval_", None), t_of_all)
                out["noise_held"] = holds(getattr(fitted, "noise_interval_", None), *wrong)
                out["cannot_tell"] = int(fitted.report_.cannot_tell)
    except Exception as error:  # whatever a method raises is part of what is measured
        out["failed"] = repr(error)[:150]
    p = np.exp(log_p)
    brier = np.mean((p**2).sum(axis=1) - 2 * p[np.arange(len(p)), case.y_test] + 1)
    nll = data.mean_nll(np.maximum(log_p, np.log(SMALLEST)), case.y_test)
    return out | {"nll": nll, "brier": brier / 2 if p.shape[1] == 2 else brier}


def one_job(job):
    """Do all fits of one set and draw; return lines for the CSV."""
    source, draw, wanted = job
    case = data.load(source, draw)
    k, best_nll = case.h.shape[1], data.best_temperature(case.h_test, case.y_test)[1]
    whole = (np.concatenate(pair) for pair in ((case.h, case.h_test), (case.y, case.y_test)))
    t_of_all, lines = data.best_temperature(*whole)[0], []
    for row in dict.fromkeys(row for row, _ in wanted):
        drawn = draw_labels(source, row, draw, case)
        if drawn is None:
            continue
        rows, labels = drawn
        kind, share, _ = parse_row(row)
        changed = float(np.mean(labels != case.y[rows]))
        wrong = changed, (share if kind == "uniform" else changed)  # a label drawn at random may be right by chance
        for method in [m for r, m in wanted if r == row and meant_for(m, k)]:
            line = {"set": source.name, "family": source.family, "row": row, "draw": draw, "method": method}
            line |= {"n_classes": k, "best_nll": best_nll}
            lines.append(line | one_fit(method, row, case.h[rows], labels, case, t_of_all, wrong))
    return lines


def run(asked, rows, methods):
    done = {(li["set"], li["row"], int(li["draw"]), li["method"]) for li in data.read_lines(asked.out)}
    jobs = []
    for draw in range(asked.draws):
        for source in data.sources(asked.folders, asked.sets):
            wanted = [(r, m) for r in rows for m in methods if (source.name, r, draw, m) not in done]
            jobs += [(source, draw, wanted)] if wanted else []
    # In an order that mixes families, so that the tables of a run that is not finished mean something.
    jobs.sort(key=lambda job: (job[1], zlib.crc32(job[0].name.encode())))
    data.run_into(asked.out, FIELDS, one_job, jobs, asked.jobs)


# Tables by family


def gather(path, beside=(), columns=(), classes=None):
    """Return {(row, family, set): {column: mean excess over draws}} of the sets that all columns have."""
    lines = [(line["method"], line) for line in data.read_lines(path)]
    for other in beside:
        names = {name for name, _ in lines}
        for line in data.read_lines(other):
            name = line["method"]
            lines.append((f"{name} ({other.stem})" if name in names else name, line))
    lines = [(name, line) for name, line in lines if classes is None or int(line["n_classes"]) == classes]
    columns = [c for c in columns if c in dict(lines)] or list(dict.fromkeys(name for name, _ in lines))
    drawn = defaultdict(lambda: defaultdict(list))
    for name, line in lines:
        if name in columns:
            excess = float(line["nll"]) - float(line["best_nll"])
            drawn[line["row"], line["family"], line["set"]][name].append(excess)
    common = [c for c in columns if all(c in of for of in drawn.values())] or columns
    return {key: {c: float(np.mean(of[c])) for c in columns if c in of} for key, of in drawn.items()
            if all(c in of for c in common)}  # fmt: skip


def by_family(cases, row):
    """Return {family: (number of sets, {column: mean})}."""
    found = defaultdict(list)
    for (r, family, _), values in sorted(cases.items()):
        if r == row:
            found[family].append(values)
    return {
        family: (len(of), {c: float(np.mean([v[c] for v in of])) for c in of[0] if all(c in v for v in of)})
        for family, of in found.items()
    }


def cell(values, c, form=".4f"):
    return f"{values[c]:{form}}" if c in values else "–"


def families_page(cases, rows):
    """Return the tables: means over families, worst families, worst sets, then family by family."""
    columns = list(dict.fromkeys(c for values in cases.values() for c in values))
    means = {row: found for row in rows if (found := by_family(cases, row))}
    lines, worst, above = [], [], []
    for row, found in means.items():
        of = {c: [v[c] for _, v in found.values() if c in v] for c in columns}
        lines.append([f"{row} ({len(found)})", *(f"{np.mean(of[c]):.4f}" if of[c] else "–" for c in columns)])
        ends = {c: max((v[c], f) for f, (_, v) in found.items() if c in v) for c in columns if of[c]}
        worst.append([row, *(f"{ends[c][0]:.3f} {ends[c][1]}" if c in ends else "–" for c in columns)])
        gaps = {c: [(v[c] - v["ts"], key[2]) for key, v in cases.items() if key[0] == row and {c, "ts"} <= v.keys()]
                for c in columns}  # fmt: skip
        above.append([row, *(f"{max(gaps[c])[0]:.3f} {max(gaps[c])[1]}" if gaps[c] else "–" for c in columns)])
    head = ["labels (families)", *columns]
    parts = ["Mean over families:", data.markdown(head, lines), "The worst family:", data.markdown(head, worst)]
    parts += ["The worst set, its excess above that of `ts`:", data.markdown(head, above)]
    for row, found in means.items():
        lines = [[f"{family} ({n})", *(cell(v, c) for c in columns)] for family, (n, v) in found.items()]
        parts += [f"**{row}**, family by family (number of sets):", data.markdown(["family", *columns], lines)]
    return "\n\n".join(parts) + "\n"


def intervals_page(lines, rows):
    """Return how often intervals hold T of all samples, and the share of wrong labels: mean and least of families."""
    held = defaultdict(lambda: defaultdict(list))
    for line in lines:
        for what, of in (("T", "t_held"), ("share of wrong labels", "noise_held")):
            if line[of] and line["row"] in rows and not (what != "T" and line["row"].startswith("clean")):
                held[line["method"], what, line["row"]][line["family"]].append(100 * int(line[of]))
    table = []
    for key, families in held.items():
        means = {family: float(np.mean(values)) for family, values in families.items()}
        least = min(means, key=means.get)
        table.append([*key, f"{np.mean(list(means.values())):.0f}", f"{means[least]:.0f} {least}"])
    return data.markdown(["method", "interval", "labels", "mean of families, %", "least"], sorted(table)) + "\n"


# Leaderboards


def ranks_page(lines, rows):
    """Return a leaderboard for two classes and for more, for each row: those experiments that all methods have."""
    parts = []
    for two in (True, False):
        for row in rows:
            by_case = defaultdict(dict)
            for line in lines:
                if (int(line["n_classes"]) == 2) == two and line["row"] == row:
                    by_case[line["set"], line["family"]].setdefault(line["method"], line)
            if by_case:
                names = list(dict.fromkeys(name for of in by_case.values() for name in of))
                cases = {key: of for key, of in by_case.items() if len(of) == len(names)}
                parts += [f"**{'Two classes' if two else 'More classes'}, {row}** ({len(cases)} experiments)"]
                parts += [leaderboard(cases, names)]
    return "\n\n".join(parts) + "\n"


def losses(cases, names, field):
    return np.array([[float(of[name][field]) for name in names] for of in cases.values()])


def win_shares(loss):
    """Return, for each experiment, the share of other methods with a higher loss, ties one half."""
    gap = loss[:, None, :] - loss[:, :, None]  # > 0: the last axis lost
    return (((gap > TIED) + 0.5 * (np.abs(gap) <= TIED)).sum(axis=2) - 0.5) / max(loss.shape[1] - 1, 1)


def leaderboard(cases, names):
    """Win shares with intervals of a bootstrap over data sets, and changes against no calibration."""
    own = np.array([name.split("/")[0] for name, _ in cases])
    sets, rng = np.unique(own), np.random.default_rng(0)
    drawn = [rng.choice(len(sets), len(sets)) for _ in range(500)]
    nll, brier = losses(cases, names, "nll"), losses(cases, names, "brier")
    wins = {"nll": win_shares(nll), "brier": win_shares(brier)}
    change = {"nll": nll - nll[:, [names.index("none")]], "brier": brier - brier[:, [names.index("none")]]}
    rows = []
    for i in np.argsort(-wins["nll"].mean(axis=0)):
        cells = [f"**{names[i]}**" if names[i] in METHODS else names[i]]
        for won in wins.values():
            total = np.array([(won[own == s, i].sum(), (own == s).sum()) for s in sets])
            low, high = np.quantile([total[d, 0].sum() / total[d, 1].sum() for d in drawn], [0.025, 0.975])
            cells.append(f"{won[:, i].mean():.3f} ({low:.2f}–{high:.2f})")
        cells += [f"{change['nll'][:, i].mean():+.4f}", f"{change['brier'][:, i].mean():+.5f}"]
        cells += [f"{change['nll'][:, i].max():+.3f}", f"{change['brier'][:, i].max():+.4f}"]
        rows.append([*cells, f"{(change['nll'][:, i] < 0).mean():.0%}"])
    head = ["calibrator", "win share, log-loss", "win share, Brier", "change of log-loss", "change of Brier"]
    return data.markdown([*head, "worst log-loss", "worst Brier", "better"], rows)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", type=Path, nargs="*")
    parser.add_argument("--out", type=Path, required=True, help="CSV of all fits; a run goes on where it stopped")
    parser.add_argument("--methods", default="none,ts,ats,bayes,structured", help="names of methods; none is T = 1")
    parser.add_argument("--peers", action="store_true", help="also the methods of other packages")
    parser.add_argument("--rows", default=ROWS)
    parser.add_argument("--draws", type=int, default=1)
    parser.add_argument("--sets", default="", help="only sets whose name has this part")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--report", action="store_true", help="print the tables of an earlier run")
    parser.add_argument("--ranks", action="store_true", help="print leaderboards")
    parser.add_argument("--beside", type=Path, action="append", default=[], metavar="CSV")
    parser.add_argument("--columns", default="", help="only these columns of the tables")
    parser.add_argument("--classes", type=int, help="only sets with so many classes")
    asked = parser.parse_args()
    rows = asked.rows.split(",")
    for row in rows:
        parse_row(row)
    if not asked.report:
        methods = [*filter(None, asked.methods.split(",")), *(PEERS if asked.peers else ())]
        run(asked, rows, methods)
    if asked.ranks:
        print(ranks_page([line for path in (asked.out, *asked.beside) for line in data.read_lines(path)], rows))
    else:
        cases = gather(asked.out, asked.beside, list(filter(None, asked.columns.split(","))), asked.classes)
        print(families_page(cases, rows))
        print(intervals_page(list(data.read_lines(asked.out)), rows))


if __name__ == "__main__":
    main()
