"""What the page shows, and what it leaves out: notes, signs, marks and columns."""

import re
from copy import deepcopy
from html import unescape

import numpy as np
import pytest

from attemper.data.scores import Scores
from attemper.report import render, summarise
from attemper.report.notes import notes_of_fits, p_value, without_interval


def drawn(n, n_classes, seed=0, t=1.0):
    rng = np.random.default_rng(seed)
    z = 3 * rng.normal(size=(n, n_classes))
    return Scores.from_logits(z, (z / t + rng.gumbel(size=z.shape)).argmax(axis=1))


def body_of(page):
    """Return the page between its head and its data."""
    return page[page.index("<body>") : page.index('<script type="application/json"')]


def section_of(page, name):
    start = page.index(f'<section id="{name}"')
    return page[start : page.index("</section>", start)]


@pytest.fixture(scope="module")
def few():
    """Return the summary of a report on few samples."""
    return summarise(drawn(30, 3), drawn(30, 3, 1), methods=["ts", "bayes"])


@pytest.fixture(scope="module")
def uncalibrated(summary):
    """Return the summary of a report that recommends no calibration."""
    found = deepcopy(dict(summary))
    found["recommended"] = "none"
    found["referral"]["first_method"] = 0
    found["temperature"]["chosen"] = None
    found["temperature"]["start"] = found["temperature"]["marks"]["none"]
    return found


def test_a_reason_is_given_once_for_all_figures_and_methods(few):
    text = section_of(render(few), "methods")
    reason = few["rows"][0]["reasons"]["nll"]
    assert "too few errors" in reason
    assert text.count(reason) == 1
    assert f"No interval for NLL, Brier score, ECE and referral area: {reason}." in text
    assert "The data are large" not in text


def test_reasons_of_some_methods_name_them():
    rows = [{"method": name, "metrics": {}, "reasons": {}} for name in ("none", "ts", "bbq")]
    rows[1]["reasons"] = rows[2]["reasons"] = {"nll": "no interval: it is infinite"}
    rows[2]["reasons"] = rows[2]["reasons"] | {"ece": "few"}
    assert without_interval(rows) == [
        "No interval for NLL of ts and bbq: it is infinite.",
        "No interval for ECE of bbq: few.",
    ]
    assert without_interval([{"method": "ts", "metrics": None, "reasons": {}}]) == []


def test_methods_without_intervals_and_reasons_are_those_of_large_data(summary):
    assert "The data are large" not in section_of(render(summary), "methods")
    found = deepcopy(dict(summary))
    found["rows"][2]["metrics"]["brier"] = found["rows"][2]["metrics"]["brier"][:1]
    assert section_of(render(found), "methods").count("The data are large") == 1


def test_notes_of_the_fits_are_closed_and_grouped(summary):
    assert "Notes of the fits" not in render(summary)
    found = deepcopy(dict(summary))
    for row, notes in zip(found["rows"], (["<b>"], ["few samples"], ["few samples"])):
        row["notes"] = notes
    part = re.search(r'<details id="notes">(.*?)</details>', render(found), flags=re.S)[1]
    names = [row["method"] for row in found["rows"]]
    assert notes_of_fits(found["rows"]) == [(names[0], "<b>"), (f"{names[1]} and {names[2]}", "few samples")]
    assert part.count("few samples") == 1
    assert "&lt;b&gt;" in part


def test_no_line_ends_between_a_number_and_its_percent_sign(summary, few):
    for one in (summary, few):
        body = unescape(body_of(render(one)))
        assert not re.search(r"\d(</[a-z]+>)? %", body)
        assert "\u00a0%" in body


def test_signs_are_minus_signs_and_one_time_is_once(few):
    few = deepcopy(dict(few))
    few["classes"][0]["taken_for"] = ["class 1", 1.0]
    body = body_of(render(few))
    text = re.sub(r"<[^>]*>", " ", body)
    assert not re.search(r"(?<![\w-])-\d", text)
    assert not re.search(r"[+−]0\.0+(?!\d)", section_of(render(few), "methods"))
    assert not re.search(r"\b1 times", text)
    assert re.search(r"class 1\s+once", text)


def test_p_is_at_most_what_the_resamples_can_show():
    assert p_value(1 / 1001, 1000) == "p ≤ 0.001"
    assert p_value(2 / 1001, 1000) == "p = 0.002"
    assert p_value(1 / 201, 200) == "p ≤ 0.005"


def test_the_floor_of_p_is_on_the_page(summary):
    assert summary["rows"][0]["chance"][1] == pytest.approx(1 / 1001)
    assert "p ≤ 0.001</span>" in section_of(render(summary), "methods")


def test_without_a_recommended_method_nothing_is_shown_twice(uncalibrated, summary):
    page = render(uncalibrated)
    assert "<h3>Confidence and accuracy</h3>" in page
    assert "Before calibration</h3>" not in page
    table = section_of(page, "classes")
    assert "Calibrated confidence" not in table
    assert "Calibrated confidence" in section_of(render(summary), "classes")
    width = table.count('<th scope="col">', 0, table.index("</thead>"))
    for row in re.findall(r"<tr[^>]*>(.*?)</tr>", table[table.index("<tbody>") : table.index("</tbody>")], flags=re.S):
        assert len(re.findall("<t[hd]", row)) == width


def test_the_class_of_the_verdict_is_marked(summary):
    page = render(summary)
    name = summary["classes"][summary["focus"]]["name"]
    for part in ("classes", "referral"):
        marked = re.findall(
            r'<tr[^>]*class="focus"[^>]*>\s*<th scope="row"><bdi class="name">(.*?)</bdi>', section_of(page, part)
        )
        assert set(marked) == {name}
    nobody = deepcopy(dict(summary)) | {"focus": None}
    assert 'class="focus"' not in render(nobody)


def test_legends_lie_in_their_section_and_name_both_gaps(page):
    text = page.read_text()
    assert re.search(r'id="reliability-chart".*?<ul class="legend">.*?<figcaption>', text, flags=re.S)
    chart = text.index('id="temperature-chart"')
    assert text.rindex('<ul class="legend">', 0, chart) > text.index('id="reliability-chart"')
    for words in ("gap above the bar: confidence too high", "gap inside the bar: confidence too low"):
        assert text.count(words) == 2


def test_two_classes_have_an_axis_from_a_half():
    page = render(summarise(drawn(200, 2), drawn(200, 2, 1), methods=["ts"]))
    chart = page[page.index('id="reliability-chart"') : page.index('id="temperature-chart"')]
    assert re.findall(r'<text class="x"[^>]*>(\d+)', chart)[:6] == ["50", "60", "70", "80", "90", "100"]
    assert chart.count("data-empty") >= 7


def test_a_long_word_may_break_and_others_may_not():
    names = ["healthy", "a class of several words", "y" * 60]
    page = render(summarise(drawn(60, 3), drawn(60, 3, 1), classes=names, methods=["ts"]))
    for name in names[:2]:
        assert f'<bdi class="name">{name}</bdi>' in page
    assert f'<bdi class="name long">{names[2]}</bdi>' in page


def test_titles_in_the_margin_stay_text(summary):
    title = '"}</style><script>alert(1)</script>' + "x" * 200
    page = render(deepcopy(dict(summary)) | {"title": title})
    style = page[page.index("<style>") : page.index("</style>")]
    rule = style[style.rindex("@page") :]
    assert "<" not in rule[1:]
    assert rule.count('"') == 2
    assert "…".encode("unicode_escape").decode()[-4:] in rule  # cut
    assert page.count("<script") == 2
