"""A page holds everything, escapes everything, and is the same every time."""

import base64
import hashlib
import json
import re
from dataclasses import replace
from html import unescape
from html.parser import HTMLParser

import numpy as np
import pytest

from attemper.comparison import compare
from attemper.data.scores import Scores
from attemper.report import render, summarise, write_report
from attemper.report.page import HERE, embedded

LIMIT = 500_000
HOSTILE = [
    "<script>alert(1)</script>",
    "</script><img src=x onerror=alert(1)>",
    "\"quotes\" 'single' & <b>bold</b>",
    "emoji 🩺🧬👩🏽‍⚕️",
    "مرحبا بالعالم שלום",
    "x" * 500,
    "{{ 7 * 7 }} {% raw %} \u2028 \u2029",
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


@pytest.fixture(scope="module")
def hostile():
    ids = [HOSTILE[i % 7] + str(i) for i in range(200)]
    files = [{"name": name, "role": "test", "bytes": 1, "sha256": "0" * 64} for name in HOSTILE]
    told = {"classes": HOSTILE, "ids": ids, "title": HOSTILE[0], "files": files}
    return render(summarise(drawn(200, 7), drawn(200, 7, 1), methods=["ts"], **told))


def test_hostile_names_are_text(hostile):
    page = Texts(hostile)
    assert page.names[0] == HOSTILE[0]
    for name in HOSTILE:
        assert page.names.count(name) >= 3  # two tables, and the files
    assert [tag for tag, _ in page.tags].count("script") == 2
    assert not [tag for tag, _ in page.tags if tag in ("img", "b") and "onerror" in _]
    assert not any(key.startswith("on") or key == "style" for _, attributes in page.tags for key in attributes)


def test_nothing_comes_from_elsewhere(page):
    for _, attributes in Texts(page.read_text()).tags:
        for key in ("src", "href", "action", "srcset"):
            assert attributes.get(key, "#").startswith(("#", "data:"))
    assert "sourceMappingURL" not in page.read_text()
    assert "@import" not in page.read_text()
    assert "url(" not in (HERE / "static" / "report.css").read_text()


def test_the_policy_names_the_scripts_and_styles_by_their_hashes(page):
    text = page.read_text()
    policy = unescape(re.search(r'Content-Security-Policy" content="([^"]+)"', text)[1])
    assert policy.startswith("default-src 'none'; ")
    assert "unsafe" not in policy
    inside = re.findall(r"<(?:script|style)>(.*?)</(?:script|style)>", text, flags=re.S)
    hashes = [base64.b64encode(hashlib.sha256(part.encode()).digest()).decode() for part in inside]
    assert len(hashes) == 2
    assert sorted(re.findall(r"'sha256-([^']+)'", policy)) == sorted(hashes)


def test_json_cannot_end_its_script():
    content = {name: [1, None, "\u2028</script>&<!--"] for name in HOSTILE}
    text = embedded(content)
    assert not set(text) & set("<>&\u2028\u2029")
    assert json.loads(text) == content


def test_controls_have_names_and_charts_have_words(page):
    tags = Texts(page.read_text()).tags
    labelled = {attributes["for"] for tag, attributes in tags if tag == "label"}
    controls = [attributes for tag, attributes in tags if tag in ("input", "select")]
    assert len(controls) == 3
    assert {attributes["id"] for attributes in controls} == labelled
    drawn = [attributes for tag, attributes in tags if tag == "svg" and "aria-hidden" not in attributes]
    assert len(drawn) == 5
    assert all(attributes["role"] == "img" and attributes["aria-label"] for attributes in drawn)
    assert all("alt" in attributes for tag, attributes in tags if tag == "img")
    assert dict(tags)["html"]["lang"] == "en"


@pytest.mark.slow
@pytest.mark.parametrize(("n", "n_classes"), [(100, 2), (100, 7), (100, 1000), (3000, 7)])
def test_the_page_stays_small(n, n_classes, tmp_path):
    path = tmp_path / "report.html"
    write_report(path, drawn(200, n_classes), drawn(n, n_classes, 1), methods=["ts", "bayes"])
    assert path.stat().st_size < LIMIT
    text = path.read_text()
    assert ("all others (980 classes)" in text) == (n_classes == 1000)


@pytest.mark.slow
def test_the_same_numbers_give_the_same_bytes(summary, skin, page):
    val, test, names = skin
    again = summarise(val, test, classes=names, methods=["ts", "ats", "bayes", "vector"])
    assert again == summary
    assert render(again) == page.read_text()


def test_a_class_without_samples_says_so():
    val, test = drawn(200, 3), Scores.from_logits(np.random.default_rng(0).normal(size=(50, 3)), [0, 1] * 25)
    text = render(summarise(val, test, classes=["a", "b", "empty one"], methods=["ts"]))
    rows = re.findall(
        r"<tr[^>]*>\s*<th scope=\"row\"><bdi class=\"name\">empty one</bdi></th>(.*?)</tr>", text, flags=re.S
    )
    assert ["no test samples" in row for row in rows] == [True, False, True]  # classes, the matrix, referral


def test_an_infinite_loss_can_be_written():
    val, test = drawn(60, 3), drawn(400, 3, 1)
    found = summarise(val, test, methods=["histogram"])
    assert found["rows"][1]["metrics"]["nll"] == [np.inf]
    assert "<td>∞</td>" in re.sub(r"\s*\n\s*", "", render(found))


def test_the_page_says_what_its_figures_are_not(page):
    text = page.read_text()
    assert "fitted on 801 validation samples" in text
    assert "other samples" not in text[text.index("<body>") : text.index("<noscript>")]
    caveat = re.search(r'id="threshold-caveat">(.*?)</p>', text)[1]
    for part in (
        "No guarantee",
        "the samples that fitted the map",
        "chooses on this test set",
        "attemper refer --max-miss",
    ):
        assert part in caveat
    assert "several pictures of one patient make them too narrow" in text
    assert "95 of 100 such studies would cover the true value" in text


def test_a_page_is_written_whole_or_not_at_all(tmp_path, monkeypatch):
    path = tmp_path / "report.html"
    path.write_text("before")
    monkeypatch.setattr("attemper.report.page.render", lambda summary: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        write_report(path, drawn(60, 3), drawn(60, 3, 1), methods=["ts"])
    assert path.read_text() == "before"


@pytest.mark.slow
@pytest.mark.parametrize("recommended", ["ts", "vector"])
def test_the_page_opens_on_what_it_recommends(skin, recommended):
    val, test, names = skin
    found = compare(val, test, ["ts", "vector"])
    summary = summarise(val, test, classes=names, comparison=replace(found, recommended=recommended))
    page = render(summary)
    data = json.loads(re.search(r'id="data">(.*?)</script>', page, flags=re.S)[1])
    label = re.search(r'data-t-out="label">(.*?)<', page)[1]
    if recommended == "ts":
        assert data["temperature"]["chosen"] is None
        assert label == f"T = {data['temperature']['labels'][data['temperature']['start']]}"
    else:
        assert data["temperature"]["chosen"] == "vector"
        assert label == "vector scaling"
    ece = data["temperature"]["states"][data["temperature"]["start"]]["ece"]
    if recommended == "vector":
        ece = data["temperature"]["methods"]["vector"]["ece"]
    assert re.search(r'data-t-out="ece">(.*?)<', page)[1] == f"{100 * ece:.1f}"
