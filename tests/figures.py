"""Whole numbers and percentages of sentences, computed again from what is committed. tests/test_numbers.py compares.

An entry of COMPUTED is a page, a pattern of the sentence (as `prose_of` leaves it: one line, "`" for code) whose
groups are the numbers, and a function that returns them. An entry of NOT_RESULTS is a number that is no result, with
the reason.
"""

import importlib.util
import re
from functools import cache
from math import floor
from operator import truediv
from pathlib import Path

import numpy as np
from scipy.stats import binom

import attemper

ROOT = Path(__file__).parents[1]


def load_output():
    spec = importlib.util.spec_from_file_location("output", ROOT / "benchmarks" / "output.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


output = load_output()


def text_of(name):
    """Return an output of a benchmark, or a page of docs/ if the name has an extension."""
    return (ROOT / "docs" / name).read_text() if "." in name else output.read(name)


def rows(name, table=None):
    """Return the cells of one table, or of all tables, without heads."""
    found = output.tables(text_of(name))
    chosen = found if table is None else [found[table - 1]]
    return [[cell.strip(" *`") for cell in line.split("|")[1:-1]] for lines in chosen for line in lines[2:]]


def numbers(name, table, *columns, where=lambda row: True):
    """Return the first number of each cell of some columns; cells without one are left out."""
    cells = [row[i] for row in rows(name, table) if where(row) for i in columns]
    return [float(found[0]) for cell in cells if (found := re.search(r"[+-]?\d+(?:\.\d+)?", cell))]


def whole(*values):
    return tuple(floor(value + 0.5) for value in values)


def span(values, factor=1):
    return whole(min(values) * factor, max(values) * factor)


VERDICT = (
    r"mean confidence is (\d+).%, and of (\d+).(\d+) predictions (\d+).% are right \(95.% interval (\d+) to (\d+)\)\. "
    r"It is furthest off where it is (\d+).% confident: there it is right (\d+).% of the time \((\d+) to (\d+)\)"
)


def find(name, pattern):
    """Return the numbers of a pattern in an output or a page."""
    return whole(*map(float, re.search(pattern, text_of(name)).groups()))


def above(limit, *methods):
    """Return how many cells of the comparison of groups are above a limit, of how many, and by method."""
    above, method = {}, None
    for row in rows("groups", 1):
        method = row[0] or method
        above.setdefault(method, []).extend(float(cell.split()[0]) > limit for cell in row[3:])
    return sum(map(sum, above.values())), sum(map(len, above.values())), *(sum(above[method]) for method in methods)


@cache
def lesions():
    """Return the lesions of all pictures of the bundled network, and the number of validation pictures."""
    data = attemper.datasets.load()
    return data.extra["lesion_id"], len(data.val_labels)


def bound_needs(errors, bound=0.05, level=0.05):
    """Return how many cases with so many errors show a rate below the bound."""
    return next(n for n in range(1, 1000) if binom.cdf(errors, n, bound) <= level)


def replaced(share=30, n_classes=10):
    """Return the share of wrong labels after so many percent were replaced at random, with what it follows from."""
    return share, n_classes, *whole(share * (1 - 1 / n_classes)), share


def coverage_of_t(*starts):
    """Return the range of coverages of bayes in docs/families.md, over all sets, by kind of labels."""
    table = text_of("families.md").partition("## Intervals of T")[2].partition("`bayes`:")[2].partition("\n## ")[0]
    cells = [line.split("|") for line in output.tables(table)[0]]
    return span([float(row[-2]) for row in cells if row[1].strip().startswith(starts)], 100)


def both_ratios(start):
    """Return the ratios of time and of CPU time in the rows of a comparison of speed."""
    cells = [row[5] for row in rows("speed-ratios") if row[0].startswith(start)]
    return [float(ratio) for cell in cells for ratio in cell.split(", ")]


def temperatures_of_drift():
    found = re.search(r"T for pictures ([\d.]+), T for lesions ([\d.]+)", text_of("monitoring-clusters"))
    return map(float, found.groups())


def sets_of_choosing(column):
    """Return a column of the tables that benchmarks/choosing.py writes into its page."""
    written = text_of("choosing.md").partition("<!-- benchmarks/choosing.py -->")[2]
    cells = [line.split("|") for table in output.tables(written) for line in table[2:] if "**mean**" not in line]
    return [float(row[column].strip(" %")) for row in cells if re.search(r"\d", row[column])]


def counts_of_test():
    ids, n = lesions()
    return len(ids) - n, len(np.unique(ids[n:]))


def counts_that_choose():
    """Return pictures and lesions of VAL without the fifth that fits the map, with the samples of the output."""
    ids, n = lesions()
    names = np.unique(ids[:n])
    return find("bundled", r"(\d+) samples choose")[0], len(names) - len(names) // 5


def interval_widths(*families, others=False):
    """Return how much wider the intervals of some families, or of all others, are with chosen samples, in percent."""
    kept = [row for table in (2, 3, 4) for row in rows("planning-evaluate", table) if (row[0] in families) != others]
    return span([float(row[1]) - 1 for row in kept], 100)


def changes_of_sets(*families, others=False):
    pairs = [(float(row[3]), float(row[4])) for row in rows("sets-sizes", 1) if (row[0] in families) != others]
    return whole(max(abs(ts / none - 1) for none, ts in pairs) * 100)


def ratio_of_transitions():
    names = ("annotators", "annotators-data")
    return span([float(row[3]) / float(row[4]) for name in names for row in rows(name, 4)])


PIXELS = (r"(\d+) MB beyond", r": (\d+) s", r"fit: .*?(\d+) MB", r"fit: (\d+) s", r"uint8 (\d+) MB")
MNIST = ("zoo mnist", "mnist_pycalib")
COMPUTED = [
    ("README.md", r"for (\d+) tabular data sets", lambda: find("arena.md", r"(\d+) public data sets")),
    ("README.md", r"up to (\d+) methods", lambda: (max(len(t) for t in output.tables(text_of("arena.md"))) - 3,)),
    ("README.md", r"skin lesions, (\d+) test images", lambda: counts_of_test()[:1]),
    ("README.md", r"(\d+) labelled images were enough", lambda: lesions()[1:]),
    ("index.md", r"skin lesions, (\d+) test images", lambda: counts_of_test()[:1]),
    ("index.md", r"calibration with (\d+) labels", lambda: lesions()[1:]),
    ("architecture.md", r"network, (\d+) validation and (\d+) test rows", lambda: (lesions()[1], counts_of_test()[0])),
    ("structured.md", r"the arena has (\d+) kinds", lambda: find("arena.md", r"(\d+) kinds of classifiers")),
    ("structured.md", r"classifiers on (\d+) data sets", lambda: find("arena.md", r"(\d+) public data sets")),
    ("annotators.md", r"is (\d+) to (\d+) times closer", ratio_of_transitions),
    (
        "annotators.md",
        r"realised rate of pairs in (\d+) to (\d+) %",
        lambda: span(numbers("annotators", 4, 5) + numbers("annotators-data", 4, 5)),
    ),
    ("choosing.md", r"contains it in (\d+) to (\d+) % of the draws", lambda: span(sets_of_choosing(-3))),
    (
        "choosing.md",
        r"and contains (\d+) to (\d+) of (\d+) methods",
        lambda: (*span(sets_of_choosing(-2)), len(rows("bundled", 1)) - 1),
    ),
    (
        "drift.md",
        r"accuracy (\d+) % with one picture, (\d+) % with two",
        lambda: find("monitoring-clusters", r"1 pictures ([\d.]+)%, accuracy with 2 pictures ([\d.]+)%"),
    ),
    (
        "drift.md",
        r"best T for pictures is (\d+) % higher",
        lambda: whole(100 * (truediv(*temperatures_of_drift()) - 1)),
    ),
    (
        "drift.md",
        r"Without a map the estimate is off by (\d+) to (\d+) points",
        lambda: span(numbers("monitoring-unlabelled", 1, 3, where=lambda row: row[0] == "without a map")),
    ),
    (
        "groups.md",
        r"(\d+) of (\d+) cells are above 0\.002 on average: (\d+) of `, (\d+) of `, (\d+) of `",
        lambda: above(0.002, "ts", "bayes", "structured"),
    ),
    ("methods.md", r"it is 1 for all (\d+) sets of `", lambda: (len(numbers("units-data", 1, 1)),)),
    (
        "methods.md",
        r"for (\d+) of (\d+) published sets",
        lambda: (numbers("units", 1, 1).count(1), len(rows("units", 1))),
    ),
    ("patients.md", r"\"(\d+) samples of (\d+) clusters", counts_of_test),
    ("patients.md", r"worth about (\d+) independent ones", lambda: find("bundled", r"worth (\d+) independent")),
    (
        "patients.md",
        r"true value in (\d+) to (\d+) % of the sets",
        lambda: span(numbers("clusters-coverage", 1, 6, where=lambda row: row[1] != "1")),
    ),
    (
        "patients.md",
        r"intervals by sample in (\d+) to (\d+) %",
        lambda: span(numbers("clusters-coverage", 1, 4, where=lambda row: row[1] != "1")),
    ),
    (
        "patients.md",
        r"expect a coverage of (\d+) % rather",
        lambda: whole(np.mean(numbers("clusters-metrics", 1, 2, 3, 4, where=lambda row: row[1] == "10"))),
    ),
    (
        "planning.md",
        r"certificates are reached in (\d+) to (\d+) %",
        lambda: span(numbers("planning-certificate", 1, 1, 4), 100),
    ),
    ("planning.md", r"accuracy is (\d+) to (\d+) % wider", lambda: interval_widths(*MNIST, others=True)),
    ("planning.md", r"\((\d+) to (\d+) % for the networks of MNIST", lambda: interval_widths(*MNIST)),
    (
        "planning.md",
        r"value of the pool in (\d+) to (\d+) % of the draws",
        lambda: span([x for table in (2, 3, 4) for x in numbers("planning-evaluate", table, 4, 5, 6)], 100),
    ),
    ("priors.md", r"every factor on (\d+) of (\d+) sets", lambda: find("priors", r"factor on (\d+) of (\d+) sets")),
    ("priors.md", r"factors on all (\d+)", lambda: find("priors", r"mean over factors on (\d+)")),
    ("priors.md", r"none of the (\d+) runs", lambda: find("priors", r"0\.0% of (\d+) runs")),
    ("referral.md", r"of the (\d+) test images", lambda: counts_of_test()[:1]),
    ("referral.md", r"has (\d+) pictures of (\d+) lesions\. (?=TEST)", counts_that_choose),
    ("referral.md", r"TEST has (\d+) pictures of (\d+) lesions", counts_of_test),
    ("referral.md", r"worth about (\d+) independent samples", lambda: find("bundled", r"worth (\d+) independent")),
    (
        "referral.md",
        r"With clusters it is broken in (\d+) % at most",
        lambda: whole(max(numbers("cluster-certificates", 1, 5, 6, 7))),
    ),
    (
        "referral.md",
        r"(\d+) % of the lesions have two pictures or more",
        lambda: whole(100 * np.mean(np.unique(lesions()[0], return_counts=True)[1] > 1)),
    ),
    ("sets.md", r"LAC sets change by (\d+) % or less", lambda: changes_of_sets("mnist_pycalib", others=True)),
    ("sets.md", r"\((\d+) % smaller\)", lambda: changes_of_sets("mnist_pycalib")),
    ("sets.md", r"One of the (\d+) p-values", lambda: (len(numbers("sets-law", 1, 7)),)),
    (
        "bayesian.md",
        r"in (\d+) to (\d+) % of the published sets with clean labels",
        lambda: coverage_of_t("clean"),
    ),
    (
        "bayesian.md",
        r"in (\d+) to (\d+) % with labels replaced at random",
        lambda: coverage_of_t("uniform1", "uniform3"),
    ),
    ("bayesian.md", r"If (\d+) % .* in K = (\d+) classes, (\d+) % of the labels are wrong, and ` is (\d+) %", replaced),
    ("noise.md", r"If (\d+) % .* in K = (\d+) classes, (\d+) % of the labels are wrong, and ` is (\d+) %", replaced),
    (
        "drift.md",
        r"off by more than 10 % for (\d+) of (\d+) networks, and by more than 30 % for (\d+)",
        lambda: (
            *find("drift-real", r"200 of them \| 1\.1 .*of (\d+) \| (\d+)")[::-1],
            int(rows("drift-real", 1)[-1][3]),
        ),
    ),
    ("referral.md", r"in \"at most 5 %\" takes (\d+) patients", lambda: (bound_needs(0),)),
    ("referral.md", r"needs more cases: (\d+) for 5 % and K = 7", lambda: (bound_needs(0, level=0.05 / 7),)),
    ("referral.md", r"error is allowed \((\d+), (\d+), (\d+), …", lambda: tuple(map(bound_needs, range(3)))),
    ("report.md", VERDICT, lambda: find("../examples/skin_lesions/report.html", VERDICT)),
    (
        "speed.md",
        r"takes (\d+) to (\d+) times as long as temperature scaling, because",
        lambda: span(both_ratios("Bayesian, noisy labels")),
    ),
    ("speed.md", r"takes (\d+) passes at", lambda: whole(numbers("speed-path", 1, 3)[-1])),
    (
        "speed.md",
        r"clean labels at 100 000×10 takes (\d+) times",
        lambda: whole(min(both_ratios("Bayesian, beside"))),
    ),
    (
        "speed.md",
        r"give (\d+) ms \(2\.3 passes\) in double precision and (\d+) ms",
        lambda: find("speed-fits", r"without peers: (\d+) ms.*; (\d+) ms"),
    ),
    (
        "methods.md",
        r"better in (\d+) %\) with each .*? better in (\d+) %\)\. .*? better in (\d+) %\) .*? better in (\d+) %\)",
        lambda: find("venn", "(?s)" + 4 * r".*?better in (\d+)%"),
    ),
    (
        "scale.md",
        r"its peak (\d+) MB .*?, and (\d+) MB for parquet with row groups of (\d+) MB",
        lambda: find(
            "scale-memory", r"one process: (\d+) MB from npy, (\d+) MB from parquet with row groups of (\d+) MB"
        ),
    ),
    (
        "scale.md",
        r"two workers it took (\d+) and (\d+) MB each\. With 8 GB it was (\d+) and (\d+) MB",
        lambda: find("scale-memory", r"(?s)workers: (\d+) MB from npy, (\d+) .*8 GB: (\d+) MB from npy, (\d+) MB"),
    ),
    (
        "scale.md",
        r"take (\d+) MB of memory .*? \((\d+) s\), and (\d+) MB for ` \((\d+) s\)\. (\d+) MB of this",
        lambda: tuple(find("pixels-cpu", rf"(?s){what}")[0] for what in PIXELS),
    ),
]

# Numbers that look like results but are none, by page, with the reason.
NOT_RESULTS = {
    "README.md": dict.fromkeys(["80 %", "61 %"], "test_readme_numbers.py computes them"),
    "bayesian.md": {"47": "the sets on which the priors were chosen"},
    "annotators.md": {"2500": "samples of a test set", "20 %": "the errors that were made"},
    "exactness.md": {"30 times": "a factor of the logits"},
    "errors.md": {"16 times": "a limit", **dict.fromkeys(["130", "143", "141"], "exit codes")},
    "glossary.md": {"80 %": "an example"},
    "methods.md": dict.fromkeys(["1000 times", "35 times"], "units of the logits"),
    "metrics.md": {"45": "three sums of 15 bins"},
    "noise.md": {"8 nats": "a limit"},
    "plots.md": {"9 points": "the size of letters"},
    "report.md": {"80 %": "a setting", "250 000": "a limit"},
    "serving.md": {"422": "a status of HTTP"},
    "structured.md": {"78": "the sets on which the priors were chosen"},
    "tutorial.md": {"80 %": "an example"},
    "wrapper.md": dict.fromkeys(["136", "133"], "tests of scikit-learn, which the slow tests run"),
}
