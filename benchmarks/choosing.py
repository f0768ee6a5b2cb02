"""How good the recommended method truly is, by how it is selected: docs/choosing.md.

    python benchmarks/choosing.py [--draws 2] [--sizes 200,1000] [--output docs/choosing.md] [--jobs 1]
    python benchmarks/choosing.py --noise 0.2                     # a fifth of the labels of VAL drawn at random
    python benchmarks/choosing.py --folder FOLDER [--every 1]     # sets of logits of one's own; see benchmarks/sets.py

All samples of a network in data/ are one population. VAL is drawn from it; of the rest, 20 times, a TEST set, and what
is then left is the truth. Skin lesions are drawn by lesion, and their images count as clusters. Compared are the
method with the lowest NLL on TEST, the recommendation of `compare`, which does not see TEST, `structured` always, and
the method with the lowest NLL in cross-validation on VAL, whether that is chance or not:

* best: share of draws in which the method truly has the lowest NLL
* regret: its true NLL above the lowest, where it is finite; the share of draws where it is not, as the map gives some
  label the probability 0
* optimism: by how much TEST flatters it: its true NLL less the one on TEST, less the same of `structured`, which is
  fixed beforehand and so shows only how easy the samples of TEST are
* in the set: share of draws in which the confidence set on TEST holds the truly best method, and the set's mean size

A network is a line, so that a mean hides none. ``--output`` replaces the table between two marks in the page.
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np
from threadpoolctl import threadpool_limits

import sets
from attemper import Scores, datasets
from attemper.calibrators import METHODS
from attemper.comparison import compare
from attemper.comparison.held_out import HeldOut
from attemper.comparison.selection import NEGLIGIBLE
from attemper.errors import AttemperWarning
from attemper.metrics.best import compare_with_best
from attemper.metrics.intervals import LEAST_ERRORS

TESTS = (300, 1000)
TEST_DRAWS = 20
WAYS = ("lowest on TEST", "compare", "structured", "lowest in CV")
MARKS = "<!-- benchmarks/choosing.py -->", "<!-- end -->"


def bundled():
    """Names of one network of each kind; those with another seed are left out."""
    return [name for name in datasets.names() if not name.endswith(("-s1", "-s2"))]


def population(name, folder):
    """All logits and labels of a set, and which rows are one case."""
    if folder is not None:
        h, y = sets.read(Path(folder) / f"{name}.npz")
        return h, y, np.arange(len(y))
    data = datasets.load(name)
    h = np.concatenate([data.val_logits, data.test_logits])
    y = np.concatenate([data.val_labels, data.test_labels])
    return h, y, data.extra.get("lesion_id", np.arange(len(y)))


def by_case(cases, rng):
    """Rows in random order, those of a case together."""
    _, case = np.unique(cases, return_inverse=True)
    return np.argsort(rng.permutation(case.max() + 1)[case], kind="stable")


def lowest_held_out(found, val, cases, seed):
    """Name the method with the lowest NLL in cross-validation; labels that may be wrong are taken as they are."""
    nll = {row.method: row.cv.nll for row in found.rows if row.cv is not None}
    if not nll:
        held_out = HeldOut(val, cases, 5, False, seed)
        for row in found.rows:
            if row.map is not None:
                calibrator = None if row.method == "none" else METHODS[row.method].for_labels(noisy=True)
                held_out.add(row.method, calibrator)
        nll = {method: losses.mean() for method, losses in held_out.losses.items()}
    return min(nll, key=nll.get) if nll else found.recommended


def draws_of(job):
    """Results of one draw of VAL: for each size of TEST and each draw of it, what every way selects."""
    name, n_val, draw, folder, noise = job
    h, y, cases = population(name, folder)
    if 3 * n_val > len(y):
        return job, []
    rng = np.random.default_rng([draw, n_val])
    order = by_case(cases, rng)
    rows, rest = order[:n_val], order[n_val:]
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore", AttemperWarning)
        val = Scores.from_logits(h[rows], sets.spoil(h[rows], y[rows], noise, "uniform", rng))
        test = Scores.from_logits(h[rest], y[rest])
        settings = {"val_clusters": cases[rows], "confidence_level": None, "seed": draw}
        found = compare(val, test, noisy=noise > 0, **settings)
        held_out = lowest_held_out(found, val, cases[rows], draw)
    losses = {row.method: row.losses for row in found.rows if row.losses is not None}
    methods, table = list(losses), np.stack(list(losses.values()), axis=1)
    wrong = h[rest].argmax(axis=1) != y[rest]
    np.seterr(invalid="ignore")  # infinite less infinite, of methods that are not selected
    lines = []
    for n_test in TESTS:
        for _ in range(TEST_DRAWS if 2 * n_test <= len(rest) else 0):
            again = by_case(cases[rest], rng)
            test, truth = again[:n_test], table[again[n_test:]].mean(axis=0)
            reported = table[test].mean(axis=0)  # infinite for some
            best = int(truth.argmin())
            ways = (int(reported.argmin()), *map(methods.index, (found.recommended, "structured", held_out)))
            line = {"n_test": n_test}
            flattered = truth - reported
            for way, chosen in zip(WAYS, ways):
                line[way] = (
                    truth[chosen] == truth[best],
                    truth[chosen] - truth[best],
                    flattered[chosen] - flattered[ways[2]],
                )
            if wrong[test].sum() >= LEAST_ERRORS:
                finite = {m: table[test, i] for i, m in enumerate(methods) if np.isfinite(table[test, i]).all()}
                members = compare_with_best(finite, clusters=cases[rest][test], margin=NEGLIGIBLE).members
                line["set"] = (methods[best] in members, len(members))
            line["selected"] = found.recommended
            lines.append(line)
    return job, lines


def table(results, sizes, names):
    """Markdown: a block for each size of VAL and of TEST, a line for each network, and their mean."""
    text = []
    for n_val in sizes:
        for n_test in TESTS:
            rows = []
            for name in names:
                lines = [
                    line
                    for (n, size, *_), found in results.items()
                    if (n, size) == (name, n_val)
                    for line in found
                    if line["n_test"] == n_test
                ]
                if lines:
                    in_set = [line["set"] for line in lines if "set" in line]
                    rows.append(
                        [
                            *(np.mean([line[way][0] for line in lines]) for way in WAYS[:3]),
                            *(finite_mean([line[way][1] for line in lines]) for way in WAYS),
                            *(finite_mean([line[way][2] for line in lines]) for way in WAYS[:2]),
                            np.mean([np.isinf(line[WAYS[0]][1]) for line in lines]),
                            *(np.mean(in_set, axis=0) if len(in_set) >= len(lines) / 10 else (np.nan, np.nan)),
                        ]
                    )
                    rows[-1].insert(0, name)
            if not rows:
                continue
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", RuntimeWarning)  # no line has a set
                rows.append(["**mean**", *np.nanmean([row[1:] for row in rows], axis=0)])
            text += [
                f"VAL {n_val}, TEST {n_test}:",
                "",
                "| network | best: lowest on TEST | `compare` | `structured` | regret: lowest on TEST | `compare` | "
                "`structured` | lowest in CV | optimism: lowest on TEST | `compare` | infinite: lowest on TEST | "
                "set holds the best | its size |",
                "|---|" + "---|" * 12,
                *(line_of(row) for row in rows),
                "",
            ]
    return "\n".join(text)


def finite_mean(values):
    return np.mean([value for value in values if np.isfinite(value)])


def line_of(row):
    def written(value, form):
        return "–" if np.isnan(value) else format(round(value, 4) + 0.0, form)

    forms = [*[".0%"] * 3, *[".4f"] * 4, *["+.4f"] * 2, ".0%", ".0%", ".1f"]
    return "| " + " | ".join([row[0], *(written(v, f) for v, f in zip(row[1:], forms))]) + " |"


def main():
    """Measure, print, and put the table into the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draws", type=int, default=2, help="of VAL, for each network and size")
    parser.add_argument("--sizes", default="200,1000", help="of VAL")
    parser.add_argument("--sets", default="", help="only names that begin with one of these: A,B")
    parser.add_argument("--noise", type=float, default=0.0, help="share of the labels of VAL that are drawn at random")
    parser.add_argument("--folder", help="other sets than those of data/")
    parser.add_argument("--every", type=int, default=1, help="of a folder, take every so many")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--output")
    given = parser.parse_args()
    sizes = [int(size) for size in given.sizes.split(",")]
    names = bundled() if given.folder is None else [p.stem for p in sets.large_enough(given.folder, given.every)]
    names = [name for name in names if name.startswith(tuple(given.sets.split(",")))]
    jobs = [  # a draw of all networks after the other, so that a run that is stopped has all of them
        (name, size, draw, given.folder, given.noise) for draw in range(given.draws) for name in names for size in sizes
    ]
    start, results = time.time(), {}
    with ProcessPoolExecutor(given.jobs) as pool:
        for done, (job, lines) in enumerate(pool.map(draws_of, jobs), 1):
            results[job] = lines
            selected = lines[0]["selected"] if lines else "too few samples"
            print(f"{done}/{len(jobs)} {job[0]} {job[1]}: {selected} ({time.time() - start:.0f} s)", file=sys.stderr)
            if done % (len(jobs) // given.draws) == 0 and given.output:
                put(table(results, sizes, names), Path(given.output))
    print(table(results, sizes, names))


def put(text, page):
    """Put the table into the page, between the two marks."""
    before, _, rest = page.read_text().partition(MARKS[0])
    page.write_text(f"{before}{MARKS[0]}\n\n{text}\n{MARKS[1]}{rest.partition(MARKS[1])[2]}")


if __name__ == "__main__":
    main()
