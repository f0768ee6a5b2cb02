"""A page holds everything, escapes everything, and is the same every time."""

import base64
import hashlib
import re
from dataclasses import replace
from html import unescape
from html.parser import HTMLParser

import numpy as np
import pytest

from attemper import MissingExtraError, Scores
from attemper.comparison import compare
from attemper.report import render, summarise, write_report
from attemper.report.page import TEMPLATES

HOSTILE = [
    "<script>alert(1)</script>",
    "</script><img src=x onerror=alert(1)>",
    "\"quotes\" 'single' & <b>bold</b>",
    "emoji 🩺🧬👩🏽‍⚕️",
    "مرحبا بالعالم שלום",
    "x" * 500,
    "{{ 7 * 7 }} {% raw %} $\\alpha$ \u2028 \u2029",
]


def drawn(n, n_classes, seed=0):
    rng = np.random.default_rng(seed)
    y = rng.integers(n_classes, size=n)
    h = 3 * rng.normal(size=(n, n_classes))
    h[np.arange(n), y] += 3
    return Scores.from_logits(h, y)


class Texts(HTMLParser):
    """Collects elements and the text of names."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.names, self.inside = [], [], False
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag == "bdi":
            self.inside = True
            self.names.append("")

    def handle_endtag(self, tag):
        self.inside = self.inside and tag != "bdi"

    def handle_data(self, data):
        if self.inside:
            self.names[-1] += data


def test_hostile_names_are_text():
    files = [{"name": name, "role": "test", "bytes": 1, "sha256": "0" * 64} for name in HOSTILE]
    groups = np.array(HOSTILE)[np.arange(200) % 7]
    test = drawn(200, 7, 1)
    test = Scores.from_logits(test.values, test.labels, groups=groups)
    options = {"classes": HOSTILE, "title": HOSTILE[0], "files": files, "card": {HOSTILE[1]: HOSTILE[2]}}
    text = render(summarise(drawn(200, 7), test, methods=["ts"], descriptions={HOSTILE[0]: HOSTILE[1]}, **options))
    page = Texts(text)
    assert page.names[0] == HOSTILE[0]
    for name in HOSTILE:
        assert page.names.count(name) >= 4  # two tables, the groups, and the files
    assert not [tag for tag, _ in page.tags if tag in ("script", "img", "b")]
    assert not any(key.startswith("on") or key == "style" for _, attributes in page.tags for key in attributes)
    style = text[text.index("<style>") : text.index("</style>")]
    assert "alert" in style  # the title, in the margin of a printed page
    assert "<script" not in style


def test_the_policy_allows_the_style_sheet_alone(page):
    policy = unescape(re.search(r'Content-Security-Policy" content="([^"]+)"', page)[1])
    assert policy.startswith("default-src 'none'; ")
    assert "unsafe" not in policy
    assert "script-src" not in policy
    [inside] = re.findall(r"<style[^>]*>(.*?)</style>", page, flags=re.S)
    digest = base64.b64encode(hashlib.sha256(inside.encode()).digest()).decode()
    assert re.findall(r"'sha256-([^']+)'", policy) == [digest]
    for _, attributes in Texts(page).tags:
        for key in ("src", "href", "action", "srcset"):
            assert attributes.get(key, "#").startswith(("#", "data:"))
    assert "url(" not in (TEMPLATES / "report.css").read_text()


def test_plots_have_words_and_ids_of_their_own(by_site):
    summary, _ = by_site
    tags = Texts(render(summary)).tags
    plots = [attributes for tag, attributes in tags if tag == "svg"]
    assert len(plots) == 5  # before and after calibration, the referral curve, groups before and after
    assert all(attributes["role"] == "img" and attributes["aria-label"] for attributes in plots)
    ids = [attributes["id"] for _, attributes in tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    used = {attributes["href"][1:] for tag, attributes in tags if tag == "use"}
    used |= {attributes["clip-path"][5:-1] for _, attributes in tags if "clip-path" in attributes}
    assert used
    assert used <= set(ids)


def test_every_row_has_as_many_cells_as_the_head(page, by_site):
    for text in (page, render(by_site[0])):
        for table in re.findall(r"<table.*?</table>", text, flags=re.S):
            head, *rows = re.findall(r"<tr.*?</tr>", table, flags=re.S)
            widths = {len(re.findall("<t[hd]", row)) for row in rows if "colspan" not in row}
            assert widths == {len(re.findall("<th", head))}


def test_the_same_numbers_give_the_same_page(summary, page):
    assert render(summary) == page
    assert len(page) < 500_000


@pytest.mark.parametrize(("n", "n_classes"), [(9, 2), (9, 3), (200, 30)])
def test_few_samples_and_many_classes_give_a_page(n, n_classes, tmp_path):
    write_report(tmp_path / "a.html", drawn(3 * n, n_classes), drawn(n, n_classes, 1), methods=["ts", "histogram"])
    text = (tmp_path / "a.html").read_text()
    assert ('id="matrix"' in text) == (n_classes < 30)
    for name in ("groups", "card", "sets", "clusters"):
        assert f'id="{name}"' not in text


def test_without_calibration_nothing_is_shown_twice(skin):
    val, test, names = skin
    compared = replace(compare(val, test, ["ts"], confidence_level=None), recommended="none")
    text = render(summarise(val, test, classes=names, comparison=compared))
    assert text.count("<svg") == 2


def test_a_page_is_written_whole_or_not_at_all(tmp_path, monkeypatch):
    path = tmp_path / "report.html"
    path.write_text("before")
    monkeypatch.setattr("attemper.report.page.render", lambda summary: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        write_report(path, drawn(60, 3), drawn(60, 3, 1), methods=["ts"])
    assert path.read_text() == "before"


@pytest.mark.parametrize("package", ["jinja2", "matplotlib"])
def test_a_missing_package_is_named_before_the_work(package, monkeypatch, tmp_path):
    monkeypatch.setitem(__import__("sys").modules, package, None)
    with pytest.raises(MissingExtraError):
        write_report(tmp_path / "a.html", None, None)


@pytest.mark.slow
def test_a_browser_opens_it_without_requests_and_complaints(browser, page, by_site, tmp_path):
    for name, text, width in (("a", page, 1200), ("b", render(by_site[0]), 360)):
        path = tmp_path / f"{name}.html"
        path.write_text(text, encoding="utf-8")
        screen = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", screen)
        browser.get("about:blank")
        for log in ("browser", "performance"):
            browser.get_log(log)
        browser.get(path.as_uri())
        assert browser.get_log("browser") == []
        sent = [entry["message"] for entry in browser.get_log("performance") if "requestWillBeSent" in entry["message"]]
        assert all('"url":"file:' in message or '"url":"data:,' in message for message in sent)
        assert browser.execute_script("return document.documentElement.scrollWidth") <= width
        assert browser.execute_script("return document.querySelector('.plot path').getBBox().width") > 0
