"""Few and noisy labels on a folder of logits, family by family: attemper's methods beside probmetrics' SMS and SVS.

    python benchmarks/families.py FOLDER --out runs.csv [--methods ts,bayes,structured] [--peers] [--draws 3] [--jobs 1]
        [--rows clean20,uniform10-200,pairs20-1000] [--sets llm_] [--beside other.csv]
    python benchmarks/families.py FOLDER --out runs.csv --report     # only print
    python benchmarks/families.py --out runs.csv --report --choose "structured,structured:structure=biases"

Networks of one family share their faults, so a mean over all sets hides a family on which a method fails. The family of
a set is its file name before ``--``; all sets whose name begins with "cifar10_" are one family. Every .npz of the
folder (keys logits/labels, or logits_val/… and logits_test/…) is cut into halves at random. A row draws n labels from
one half:

* ``clean200``: 200 labels as they are
* ``uniform10-200``: 10 % of them replaced by a uniform draw; ``uniform0-200`` replaces none but passes noise="unknown"
* ``pairs20-200``: 20 % of them replaced by the next class
* ``similar20-200``, ``hard20-200``: by the class that the network confuses most; uniformly, where it is in doubt
* ``votes-200``: one person's label of each image; needs cifar10h--counts.npz in the folder, for sets in its order

At most 2500 samples of the other half evaluate the fit: the excess test NLL over the best single temperature of these
samples. Methods with a parameter ``noise`` get "unknown" in all rows but the clean ones. A method may have parameters:
``structured:noise=0.1``. Halves and labels depend on set, row and draw alone, so that all runs compare.

The CSV gets a line for each fit, and a second run goes on where the first stopped. ``--beside`` adds the lines of other
CSVs to the tables, with the name of the file where the method is the same. ``--choose A,B,…`` prints, for each family,
which of these columns is best on the *other* families, and what that choice gives on this one: choose constants so.
Run it with ``--peers`` in the environment of `make bench`.
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
import time
import zlib
from functools import cache
from pathlib import Path

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax

import family_tables
import peers
import sets
from attemper.calibrators import METHODS

ROWS = ",".join(
    [
        *("clean20", "clean50", "clean200", "clean1000"),
        *("uniform10-200", "uniform10-1000", "uniform30-200", "uniform30-1000", "pairs20-200", "pairs20-1000"),
    ]
)
PEERS = {"SVS": "svs", "SMS": "sms"}
VOTES = "cifar10h--counts"
KINDS = {"uniform": "uniform", "pairs": "cyclic", "similar": "similar", "hard": "hard"}
FIELDS = [
    "set",
    "family",
    "row",
    "draw",
    "method",
    "nll",
    "best_nll",
    "excess",
    "cpu_s",
    "t_held",
    "noise_held",
    "failed",
]
SMALLEST = 1e-300  # probability that the NLL is cut at


# Sets, rows and draws


def seeds(*parts):
    """Return a generator that depends on these names and numbers alone."""
    return np.random.default_rng([zlib.crc32(p.encode()) if isinstance(p, str) else p for p in parts])


def parse_row(row):
    """Kind, share of wrong labels and number of labels of a row's name."""
    match = re.fullmatch(r"(?:(clean)|(votes)-|(uniform|pairs|similar|hard)(\d+)-)(\d+)", row)
    if not match:
        sys.exit(f"--rows: expected names like clean200, uniform10-200, pairs20-1000 or votes-200, got {row!r}")
    clean, votes, kind, share, n = match.groups()
    return clean or votes or kind, int(share or 0) / 100, int(n)


@cache
def read_votes(folder):
    with np.load(folder / f"{VOTES}.npz", allow_pickle=False) as z:
        return z["counts"]


def in_order_of_votes(folder, y):
    return (folder / f"{VOTES}.npz").exists() and len(y) == 10_000 and (read_votes(folder).argmax(1) == y).mean() > 0.9


def draw_labels(path, row, draw, h, y, rows):
    """Draw n of these rows of a set, and labels as the row's name wants them; None where the set has too few."""
    kind, share, n = parse_row(row)
    if n > len(rows) or (kind == "votes" and not in_order_of_votes(path.parent, y)):
        return None
    rng = seeds(path.stem, row, draw)
    taken = rng.choice(rows, n, replace=False)
    if kind == "votes":
        counts = read_votes(path.parent)[taken]
        return taken, (counts.cumsum(1) > rng.random(n)[:, None] * counts.sum(1, keepdims=True)).argmax(1)
    return taken, sets.spoil(h[taken], y[taken], share, KINDS.get(kind, "uniform"), rng)


def best_temperature(h, y):
    """Find the T of least NLL by plain minimisation, and that NLL; the yardstick does not change with attemper."""
    scale = np.ptp(h, axis=1).mean()

    def loss(log_beta):
        return sets.mean_nll(log_softmax(h * (np.exp(log_beta) / scale), axis=1), y)

    found = minimize_scalar(loss, bounds=(-4, 10), method="bounded", options={"xatol": 1e-6})
    return scale / np.exp(found.x), found.fun


# Methods


def fit_ours(method, noisy, h, y):
    name, *settings = method.split(":")
    parameters = {}
    for setting in settings:
        key, _, value = setting.partition("=")
        try:
            parameters[key] = ast.literal_eval(value)
        except ValueError:
            parameters[key] = value
    if noisy and METHODS[name].knows_noise:
        parameters.setdefault("noise", "unknown")
    return METHODS[name](**parameters).fit(h, y)


@cache
def warm_up(method):
    """Fit once beforehand, so that no measured fit pays for imports and compilation."""
    rng = np.random.default_rng(0)
    h, y = rng.normal(size=(60, 3)), rng.integers(0, 3, 60)
    peers.probmetrics_on_logits(PEERS[method], h, y) if method in PEERS else fit_ours(method, False, h, y)


def holds(interval, *values):
    """1 where the interval holds one of the values or lies between them, else 0; empty without an interval."""
    return "" if interval is None else int(interval[0] <= max(values) and min(values) <= interval[1])


def one_fit(method, noisy, h, y, ht, yt, t_of_all, rates):
    """Return the last columns of a line of the CSV."""
    out = {}
    try:
        if method == "none":
            return {"nll": sets.mean_nll(log_softmax(ht, axis=1), yt)}
        warm_up(method)
        start = time.process_time()
        fitted = peers.probmetrics_on_logits(PEERS[method], h, y) if method in PEERS else fit_ours(method, noisy, h, y)
        out["cpu_s"] = f"{time.process_time() - start:.4f}"
        log_p = fitted(ht) if method in PEERS else fitted.predict_log_proba(ht)
        if not np.isfinite(log_p.max(axis=1)).all():
            raise ValueError("probabilities are not finite")
        out["t_held"] = holds(getattr(fitted, "temperature_interval_", None), t_of_all)
        if noisy:
            out["noise_held"] = holds(getattr(fitted, "noise_interval_", None), *rates)
    except Exception as error:  # whatever a method raises is part of what is measured
        out["failed"] = repr(error)[:150]
        log_p = log_softmax(ht, axis=1)
    out["nll"] = sets.mean_nll(np.maximum(log_p, np.log(SMALLEST)), yt)
    return out


def one_job(job):
    """All fits of one set and draw; lines for the CSV."""
    path, draw, wanted = job
    h, y = sets.read(path)
    h = h.astype(float)
    name = path.stem
    val, test = sets.cut(len(y), seeds(name, "halves", draw))
    ht, yt = h[test], y[test]
    best_nll, t_of_all = best_temperature(ht, yt)[1], best_temperature(h, y)[0]
    lines = []
    for row in dict.fromkeys(row for row, _ in wanted):
        drawn = draw_labels(path, row, draw, h, y, val)
        if drawn is None:
            continue
        taken, labels = drawn
        for method in [m for r, m in wanted if r == row]:
            line = {"set": name, "family": family_tables.family_of(name), "row": row, "draw": draw, "method": method}
            kind, replaced, _ = parse_row(row)
            wrong = float(np.mean(labels != y[taken]))
            rates = wrong, (replaced if kind == "uniform" else wrong)  # a label drawn at random may be right by chance
            out = one_fit(method, kind != "clean", h[taken], labels, ht, yt, t_of_all, rates)
            lines.append(line | out | {"best_nll": best_nll, "excess": out["nll"] - best_nll})
    return lines


# Running


def key_of(line):
    return line["set"], line["row"], int(line["draw"]), line["method"]


def run(told, rows, methods):
    done = {key_of(line) for line in sets.read_lines(told.out)}
    paths = [p for p in sorted(told.folder.glob("*.npz")) if p.stem != VOTES and told.sets in p.stem]
    jobs = []
    for draw in range(told.draws):
        for path in paths:
            wanted = [(r, m) for r in rows for m in methods if (path.stem, r, draw, m) not in done]
            if wanted:
                jobs.append((path, draw, wanted))
    # In an order that mixes families, so that the tables of a run that is not finished mean something.
    jobs.sort(key=lambda job: (job[1], zlib.crc32(job[0].stem.encode())))
    sets.run_into(told.out, FIELDS, one_job, jobs, told.jobs)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, nargs="?")
    parser.add_argument("--out", type=Path, required=True, help="CSV of all fits; a run goes on where it stopped")
    parser.add_argument("--methods", default="none,ts,ats,bayes,structured", help="names of methods; none is T = 1")
    parser.add_argument("--peers", action="store_true", help="also probmetrics' SMS and SVS")
    parser.add_argument("--rows", default=ROWS)
    parser.add_argument("--draws", type=int, default=3)
    parser.add_argument("--sets", default="", help="only sets whose name has this part")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--report", action="store_true", help="print the tables of an earlier run")
    parser.add_argument("--beside", type=Path, action="append", default=[], metavar="CSV")
    parser.add_argument("--columns", default="", help="only these columns of the tables")
    parser.add_argument("--choose", default="", metavar="COLUMNS")
    parser.add_argument("--write", type=Path, metavar="PAGE", help="write the tables into this Markdown file")
    told = parser.parse_args()
    rows = told.rows.split(",")
    for row in rows:
        parse_row(row)
    if not told.report:
        if told.folder is None:
            parser.error("expected a folder of .npz files; use --report to print an earlier run")
        run(told, rows, [*filter(None, told.methods.split(",")), *(PEERS if told.peers else ())])
    columns = list(filter(None, told.columns.split(",")))
    page = family_tables.page(
        family_tables.gather(told.out, told.beside, columns, told.sets),
        rows,
        told.choose.split(",") if told.choose else [],
    )
    if told.write:
        told.write.write_text(page, encoding="utf-8")
    else:
        print(page)


if __name__ == "__main__":
    main()
