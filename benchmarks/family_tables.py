"""The tables of benchmarks/families.py, as Markdown: every mean has its families beside it."""

# ruff: noqa: E501 (prose of the page)
from __future__ import annotations

import sys
from collections import defaultdict

import numpy as np

import sets

INTRODUCTION = """# Few and noisy labels, family by family

Written by `python benchmarks/families.py FOLDER --out families.csv --peers --write families.md` (`make families LOGITS=folder`).

How good is a fit to n labels if some of them are wrong? Each of {n_sets} sets of published logits is split into halves at random, {draws}. The fit uses n labels of one
half and is evaluated on up to 2500 samples of the other. The tables show the **excess test NLL over the best single temperature of these test samples**: 0 is
as good as any temperature can be, and a negative value is better. `none` means no calibration, T = 1.

Networks of one family have similar errors, and a mean over all sets hides a family on which a method fails. Each table therefore lists the families one by one:
{families}. The logits are not part of the repository; the command runs on any folder of `.npz` files.

| row | labels |
|---|---|
| `clean200` | 200 clean labels |
| `uniform10-200` | 10 % of them replaced by a class drawn at random |
| `pairs20-200` | 20 % of them replaced by the next class |
| `uniform0-200` | clean labels, but the fit gets `labels="noisy"` |
| `similar20-1000` | 20 % replaced by the class that the network confuses most with the true one |
| `hard20-1000` | 20 % replaced at random, mostly where the network is uncertain |
| `votes-1000` | one person's label for each image of CIFAR-10 (CIFAR-10H), about 5 % wrong |

`bayes` and `structured` get `labels="noisy"` in all rows except the clean ones. SVS and SMS (probmetrics 1.3.0) use their defaults and have no such parameter.

## How the constants were chosen

The constants of the priors of `bayes` and `structured` were chosen on these sets, looking at each *family*: a value was used only if it made no family worse. No single family
determined them, but the results below are not an independent test either. `ts` and the other packages have no constants that were chosen here.
"""


def family_of(name):
    """Return the family of a set: the file name before ``--``; all CIFAR-10 networks are one."""
    return "cifar10" if name.startswith("cifar10_") else name.partition("--")[0]


def gather(path, beside=(), columns=(), part=""):
    """Read CSVs of runs: {(row, set, draw): {column: line}} of the cases that all columns have."""
    lines = [(line["method"], line) for line in sets.read_lines(path)]
    for other in beside:
        names = {name for name, _ in lines}
        for line in sets.read_lines(other):
            name = line["method"]
            lines.append((f"{name} ({other.stem})" if name in names else name, line))
    found = dict.fromkeys(name for name, _ in lines)
    columns = [c for c in columns if c in found] or list(found)
    by_case = defaultdict(dict)
    for name, line in lines:
        if name in columns and part in line["set"]:
            by_case[line["row"], line["set"], line["draw"]][name] = line
    cases = {case: {c: of[c] for c in columns} for case, of in by_case.items() if len(of) == len(columns)}
    if not cases:
        sys.exit("no set and draw has all columns yet")
    return cases


class Table:
    """Means over draws of one field of the lines: of a row, a column and some sets."""

    def __init__(self, cases, rows, field="excess"):
        values = defaultdict(lambda: defaultdict(lambda: defaultdict(list)))
        for (row, name, _), of in cases.items():
            for column, line in of.items():
                if line[field] != "":
                    values[row][name][column].append(float(line[field]))
        present = {row for row, _, _ in cases}
        self.rows = [r for r in [*rows, *sorted(present - set(rows))] if r in values]
        self.columns = list(next(iter(cases.values())))
        self.columns = [c for c in self.columns if any(c in of for r in self.rows for of in values[r].values())]
        self.sets = {r: sorted(values[r]) for r in self.rows}
        self.families = sorted({family_of(name) for r in self.rows for name in self.sets[r]})
        self.values = {r: {n: {c: np.mean(v) for c, v in of.items()} for n, of in values[r].items()} for r in self.rows}

    def mean(self, row, column, family=None):
        """Return the mean over the sets of a family, or over all; None without any."""
        of = [v for n, v in self.values[row].items() if family in (None, family_of(n)) and column in v]
        return float(np.mean([v[column] for v in of])) if of else None

    def count(self, row, family=None):
        return str(sum(family in (None, family_of(name)) for name in self.sets[row]))


def show(value, form=".4f"):
    return "–" if value is None else format(value, form)


def overview(table):
    lines = [[r, table.count(r), *(show(table.mean(r, c)) for c in table.columns)] for r in table.rows]
    return sets.markdown(["labels", "sets", *table.columns], lines)


def one_row(table, row):
    """Return a table of one row of labels: a line for each family, then means over sets and over families."""
    lines = [
        [family, table.count(row, family), *(show(table.mean(row, c, family)) for c in table.columns)]
        for family in table.families
        if table.count(row, family) != "0"
    ]
    lines.append(["all sets", table.count(row), *(show(table.mean(row, c)) for c in table.columns)])
    means = [[v for f in table.families if (v := table.mean(row, c, f)) is not None] for c in table.columns]
    lines.append(["mean of families", str(len(lines) - 1), *(show(np.mean(v) if v else None) for v in means)])
    return sets.markdown(["family", "sets", *table.columns], lines)


def by_family(table, value, form):
    """Return a table of value(row, family): a line for each row, a column for each family."""
    lines = [[r, *(show(value(r, f), form) for f in [*table.families, None])] for r in table.rows]
    return sets.markdown(["labels", *table.families, "all sets"], lines)


def gaps(table, column, others):
    """Return a table of a column's mean less the least mean of the others."""

    def gap(row, family):
        own, rest = table.mean(row, column, family), [table.mean(row, c, family) for c in others]
        return None if own is None or None in rest else own - min(rest)

    return by_family(table, gap, "+.4f")


def worst_sets(table):
    """Return a table: in each row the set on which a column is furthest above ts."""
    columns = [c for c in table.columns if c not in ("ts", "none")]
    lines = []
    for row in table.rows:
        cells = [row]
        for column in columns:
            most, name = max((of[column] - of["ts"], name) for name, of in table.values[row].items())
            cells.append(f"{most:+.3f} ({name})")
        lines.append(cells)
    return sets.markdown(["labels", *columns], lines)


def choices(table, columns):
    """Return a table: for each family the column that is best on the others, and what it gives; rows weigh the same."""

    def score(column, family):
        return np.mean([v for r in table.rows if (v := table.mean(r, column, family)) is not None])

    scores = {f: {c: score(c, f) for c in columns} for f in table.families}
    lines = []
    for family in table.families:
        elsewhere = {c: np.mean([scores[f][c] for f in table.families if f != family]) for c in columns}
        chosen, best = min(elsewhere, key=elsewhere.get), min(scores[family], key=scores[family].get)
        lines.append([family, chosen, show(scores[family][chosen]), best, show(scores[family][best])])
    return sets.markdown(
        ["family left out", "best on the others", "its excess NLL here", "best here", "excess NLL"], lines
    )


def failures(cases, columns):
    for column in columns:
        failed = [(case, of[column]["failed"]) for case, of in cases.items() if of[column]["failed"]]
        if failed:
            (row, name, draw), message = failed[0]
            yield f"`{column}`: {len(failed)} fits failed and count as T = 1; the first is {name}, {row}, draw {draw}: {message}"


def page(cases, rows, choose=()):
    """Return all tables as Markdown."""
    table = Table(cases, rows)
    counts = {f: len({n for r in table.rows for n in table.sets[r] if family_of(n) == f}) for f in table.families}
    draws = len({draw for _, _, draw in cases})
    parts = [
        INTRODUCTION.format(
            n_sets=sum(counts.values()),
            draws="once" if draws == 1 else f"up to {draws} times",
            families=", ".join(f"{f} ({n})" for f, n in counts.items()),
        ),
        "## Mean over all sets",
        overview(table),
    ]
    if choose:
        parts += ["## The choice of a column by all families but one", choices(table, choose)]
    peers = [c for c in ("ts", "SMS") if c in table.columns]
    for column in table.columns:
        others = ["ts"] if column.startswith("bayes") else peers
        if column.startswith(("bayes", "structured")) and set(others) <= set(table.columns) and others:
            names = " and ".join(others)
            parts += [
                f"## `{column}` minus {'the better of ' if len(others) > 1 else ''}{names}",
                gaps(table, column, others),
            ]
    parts.append("## Families")
    for row in table.rows:
        parts += [f"### {row}", one_row(table, row)]
    if "ts" in table.columns:
        parts += [
            "## The worst set of each method",
            "The table shows the excess test NLL minus that of `ts`, as a mean over draws.",
            worst_sets(table),
        ]
    for field, title, text in (
        (
            "t_held",
            "Intervals of T",
            "The tables show the share of 95 % intervals of T that contain the best T of the whole set with clean labels.",
        ),
        (
            "noise_held",
            "Intervals of the noise rate",
            "The tables show the share of 95 % intervals that contain the share of replaced labels, or of wrong labels.",
        ),
    ):
        held = Table(cases, rows, field)
        parts += [f"## {title}", text] if held.rows else []
        for column in [c for c in held.columns if field != "t_held" or not c.startswith("structured")]:
            parts += [f"`{column}`:", by_family(held, lambda r, f, h=held, c=column: h.mean(r, c, f), ".2f")]
    times = Table(cases, rows, "cpu_s")
    lines = [
        [r, *(show(None if (t := times.mean(r, c)) is None else 1e3 * t, ".0f") for c in times.columns)]
        for r in times.rows
    ]
    parts += [
        "## Time",
        "The table shows the mean CPU time of a fit in ms, with one thread.",
        sets.markdown(["labels", *times.columns], lines),
    ]
    parts += failures(cases, table.columns)
    return "\n\n".join(part.strip("\n") for part in parts) + "\n"
