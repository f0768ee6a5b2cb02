"""Numbers of the README: its tables are those of docs/families.md, the caption of its picture is that of the data."""

import re
from pathlib import Path

import numpy as np
import pytest

import attemper
from attemper import ScaleMap, Scores, StructuredScaling, metrics

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()

# Words of the first cell of a row of the README, and the family of docs/families.md that the row is of.
FAMILIES = {
    r"netcal": "cifar_netcal",
    r"CIFAR-10\b": "cifar10",
    r"question|multiple.choice|bluq": "llm_bluq",
    r"emotion": "llm_emotion",
    r"speech|medical|ferrer": "ferrer_mit",
    r"MNIST|forest|AdaBoost": "mnist_pycalib",
    r"noisycal|noisy": "noisycal",
    r"all sets|all 81": "all sets",
    r"mean of (?:the )?families": "mean of families",
}
BLOCKS = {"50": "clean50", "200": "uniform10-200"}  # what a column of that table is of
METHODS = {"uncalibrated": "none", "none": "none"} | {m: m for m in ("ts", "ats", "bayes", "structured", "SVS", "SMS")}
WORDS = {
    "three": 3,
    "four": 4,
    "five": 5,
    "six": 6,
    "seven": 7,
    "eight": 8,
    "nine": 9,
    "ten": 10,
    "eleven": 11,
    "twelve": 12,
}


def cells(line):
    return [cell.strip(" *`") for cell in line.strip().strip("|").split("|")]


def rows_of_readme():
    """Yield the head and every row of the tables of the README."""
    for table in re.findall(r"(?:^\|.*\n)+", README, flags=re.M):
        head, _, *rows = table.splitlines()
        for row in rows:
            yield cells(head), cells(row)


def families():
    """Return the numbers of docs/families.md: block, family, method."""
    found = {}
    for name, block in re.findall(r"^### (\S+)\n\n((?:\|.*\n)+)", (ROOT / "docs/families.md").read_text(), flags=re.M):
        head, _, *rows = block.splitlines()
        for row in rows:
            family, *values = cells(row)
            found[name, family] = dict(zip(cells(head)[1:], values))
    return found


def agrees(shown, values):
    """Whether a number is one of the values, rounded to its digits."""
    digits = len(shown.partition(".")[2])
    return any(abs(float(v) - float(shown)) <= 0.5000001 * 10**-digits for v in values if re.search(r"\d", v))


def test_rows_of_families_are_those_of_the_page():
    known, seen = families(), set()
    for head, row in rows_of_readme():
        family = next((key for words, key in FAMILIES.items() if re.search(words, row[0])), None)
        if family is None or not re.search(r"\d\.\d", "".join(row[1:])):
            continue
        for title, number in zip(head[1:], row[1:]):
            method, _, labels = title.partition(",")
            block = next((name for words, name in BLOCKS.items() if words in labels), "clean50")
            assert agrees(number.replace("−", "-"), [known[block, family][METHODS[method]]]), f"{row[0]}, {title}"
        seen.add(family)
    assert len(seen) >= 7


def test_the_table_of_the_demo_is_that_of_the_output():
    """Lines such as "bayes  0.6023  0.7551 (0.7375–0.7729)  …" have the numbers of benchmarks/outputs/bundled.md."""
    kept = (ROOT / "benchmarks/outputs/bundled.md").read_text()
    known = {row[0]: row[1:] for row in map(cells, re.findall(r"^\|.*", kept, flags=re.M)[2:]) if len(row) == 6}
    for block in re.findall(r"^```\n(.*?)^```", README, flags=re.M | re.S):
        for line in block.splitlines():
            method = line.split(" ")[0].replace("uncalibrated", "none")
            for number in re.findall(r"(?<![\d.])0\.\d+", re.sub(r"\(.*?\)", "", line)) if method in known else ():
                assert agrees(number, known[method]), line


@pytest.fixture(scope="module")
def curves():
    """Reliability of the bundled network before and after structured scaling, as `attemper demo` draws it."""
    data = attemper.datasets.load()
    lesions, n = data.extra["lesion_id"], len(data.val_labels)
    fitted = StructuredScaling().fit(Scores.from_logits(data.val_logits, data.val_labels, clusters=lesions[:n]))
    both = (ScaleMap(1.0).apply(data.test_logits), fitted.predict_proba(data.test_logits))
    return [metrics.reliability(data.test_labels, probs) for probs in both]


def test_the_caption_of_the_picture_is_that_of_the_data(curves):
    caption = README.partition("images/reliability.png")[2].partition("\n## ")[0]
    stated = re.search(r"(\d+) to\s+(\d+) %\s+confidence,\s+(\d+) % are\s+right", caption)
    if stated is None:
        pytest.skip("the caption has no such sentence")
    low, high, right = (int(number) for number in stated.groups())
    before, after = curves
    [at] = np.flatnonzero((100 * before.edges[:-1]).round() == low)
    assert round(100 * before.edges[at + 1]) == high
    assert round(100 * before.accuracy[at]) == right
    bins = re.search(r"in (\w+) of\s+(\w+) bins,\s+and are off by (\d+) to (\d+) points", caption)
    used = ~np.isnan(after.accuracy)
    off = used & ((after.confidence < after.low) | (after.confidence > after.high))
    points = np.rint(100 * np.abs(after.confidence - after.accuracy)[off])
    assert bins is not None
    assert (used.sum() - off.sum(), used.sum()) == (WORDS[bins[1]], WORDS[bins[2]])
    assert (points.min(), points.max()) == (int(bins[3]), int(bins[4]))


def test_the_network_is_over_confident_from_the_bin_on_that_the_page_of_plots_names(curves):
    before, _ = curves
    named = re.search(r"every bin from a confidence of ([\d.]+) on", (ROOT / "docs/plots.md").read_text())
    from_there = before.edges[:-1] >= float(named[1]) - 0.005
    assert from_there.sum() == 8
    assert (before.high < before.confidence)[from_there].all()
