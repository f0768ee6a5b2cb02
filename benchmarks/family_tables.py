"""The tables of benchmarks/families.py, as Markdown: every mean has its families, and the worst of them, beside it."""

from __future__ import annotations

import sys
from collections import defaultdict

import numpy as np

import sets


def family_of(name):
    """Return the family of a set: the file name before ``--``; all CIFAR-10 networks are one."""
    return "cifar10" if name.startswith("cifar10_") else name.partition("--")[0]


def gather(path, beside=(), columns=(), part=""):
    """Read CSVs of runs: {(row, set): {column: mean excess over draws}} of the cases that all columns have."""
    lines = [(line["method"], line) for line in sets.read_lines(path)]
    for other in beside:
        names = {name for name, _ in lines}
        for line in sets.read_lines(other):
            name = line["method"]
            lines.append((f"{name} ({other.stem})" if name in names else name, line))
    columns = [c for c in columns if c in dict(lines)] or list(dict.fromkeys(name for name, _ in lines))
    drawn = defaultdict(lambda: defaultdict(list))
    for name, line in lines:
        if name in columns and part in line["set"]:
            drawn[line["row"], line["set"]][name].append(float(line["excess"]))
    cases = {case: {c: np.mean(of[c]) for c in columns} for case, of in drawn.items() if len(of) == len(columns)}
    if not cases:
        sys.exit("no set has all columns yet")
    return cases


def families(cases, row):
    """Return the mean excess of each family: {family: (number of sets, {column: mean})}."""
    of = defaultdict(list)
    for (r, name), values in sorted(cases.items()):
        if r == row:
            of[family_of(name)].append(values)
    return {f: (len(v), {c: float(np.mean([x[c] for x in v])) for c in v[0]}) for f, v in of.items()}


def page(cases, rows, choose=()):
    """Return all tables."""
    columns = list(next(iter(cases.values())))
    means = {row: found for row in rows if (found := families(cases, row))}
    parts = ["Mean over families:", "", table("labels (families)", columns, {
        f"{row} ({len(found)})": [f"{np.mean([v[c] for _, v in found.values()]):.4f}" for c in columns]
        for row, found in means.items()
    })]  # fmt: skip
    worst = {row: {c: max((v[c], f) for f, (_, v) in found.items()) for c in columns} for row, found in means.items()}
    parts += ["", "The worst family of each cell, its mean excess and its name:", "", table("labels", columns, {
        row: [f"{of[c][0]:.3f} {of[c][1]}" for c in columns] for row, of in worst.items()
    })]  # fmt: skip
    if "ts" in columns:
        above = {row: [v for (r, _), v in cases.items() if r == row] for row in means}
        parts += ["", "The worst set of each cell, its excess above that of `ts`:", "", table("labels", columns, {
            row: [f"{max(v[c] - v['ts'] for v in of):.3f}" for c in columns] for row, of in above.items()
        })]  # fmt: skip
    for row, found in means.items():
        lines = {f"{f} ({n})": [f"{v[c]:.4f}" for c in columns] for f, (n, v) in found.items()}
        parts += ["", f"**{row}**, family by family (number of sets):", "", table("family", columns, lines)]
    for row, found in means.items() if choose else ():
        parts += ["", f"**{row}**, chosen on the other families:", "", chosen(found, choose)]
    return "\n".join(parts) + "\n"


def chosen(found, columns):
    """For each family the column that is best on the other ones, and what it gives on this one."""
    lines = {}
    for family, (_, own) in found.items():
        others = [v for f, (_, v) in found.items() if f != family]
        best = min(columns, key=lambda c: np.mean([v[c] for v in others]))
        lines[family] = [best, f"{own[best]:.4f}"]
    return table("family", ["chosen", "excess"], lines)


def table(first, columns, lines):
    return sets.markdown([first, *columns], [[name, *cells] for name, cells in lines.items()])
