"""The section by group: its numbers, its words, and how a browser shows them."""

import re

import numpy as np
import pytest

from attemper.data.scores import Scores
from attemper.metrics import by_group
from attemper.report import render, summarise
from attemper.report.groups import MOST
from attemper.report.numbers import signed

NAMES = np.array(["north", "<script>alert(1)</script>", "south & east", "مرحبا"])


def drawn(n, seed, names=NAMES, per_cluster=None):
    rng = np.random.default_rng(seed)
    group = rng.integers(len(names), size=n)
    z = 2 * rng.normal(size=(n, 3))
    t = np.where(group == 0, 6.0, 1.5)
    y = (z / t[:, None] + rng.gumbel(size=z.shape)).argmax(axis=1)
    clusters = None if per_cluster is None else np.arange(n) // per_cluster
    return Scores.from_logits(z, y, groups=names[group], clusters=clusters)


@pytest.fixture(scope="module")
def summary():
    return summarise(drawn(400, 0), drawn(800, 1), methods=["ts"])


@pytest.fixture(scope="module")
def html(summary):
    return render(summary)


def test_numbers_are_those_of_by_group(summary):
    before = by_group(drawn(800, 1))
    assert [entry["method"] for entry in summary["by_group"]] == ["none", "ts"]
    section = summary["groups"]
    assert [row["name"] for row in section["rows"]] == sorted(NAMES)
    for row in section["rows"]:
        direct = before[row["name"]]
        assert row["before"] == pytest.approx(list(direct.gap))
        assert row["n"] == direct.n
        assert row["gap"][0] == pytest.approx(row["confidence"] - row["accuracy"][0])
    assert (
        section["before"][0]
        == "All groups alike? No (p = 0.001): at the same confidence, accuracy depends on the group."
    )
    assert "north" in section["after"][1]
    assert summary["sentences"]["groups"] == section["after"]


def test_the_page_has_the_section_and_names_are_text(html, summary):
    section = html[html.index('<section id="groups"') : html.index('<section id="methods"')]
    assert section.count("<svg") == 5
    assert "<script>" not in section
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in section
    assert '<a href="#groups">Groups</a>' in html
    assert "style=" not in section  # the policy of the page allows none
    gap = summary["groups"]["all"]["gap"]
    assert signed(100 * gap[0], 1) in section
    assert re.search(r'aria-label="Gap of north: \+\d', section)


def test_without_groups_there_is_none():
    plain = [Scores.from_logits(s.values, s.labels) for s in (drawn(100, 0), drawn(100, 1))]
    found = summarise(*plain, methods=["ts"])
    assert (found["groups"], found["by_group"]) == (None, [])
    assert "#groups" not in render(found).split("<main")[0].split("</style>")[1]
    assert '<section id="groups"' not in render(found)


def test_many_groups_and_clusters():
    names = np.array([f"g{i:03}" for i in range(MOST + 10)])
    found = summarise(drawn(300, 0, names, 3), drawn(600, 1, names, 3), methods=["ts"])
    assert len(found["groups"]["rows"]) == MOST
    page = render(found)
    assert f"The {MOST} groups with the most samples, of {MOST + 10}" in page
    assert '<th scope="col">Clusters</th>' in page


@pytest.mark.slow
@pytest.mark.parametrize(
    ("width", "scheme", "media"), [(1200, "light", "screen"), (360, "dark", "screen"), (700, "light", "print")]
)
def test_a_browser_shows_it(browser, html, tmp_path, width, scheme, media):
    path = tmp_path / "groups.html"
    path.write_text(html, encoding="utf-8")
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": media, "features": features})
    screen = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", screen)
    browser.get("about:blank")
    browser.get_log("browser")
    browser.get(path.as_uri())
    assert browser.get_log("browser") == []
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width
    names = browser.execute_script(
        "return [...document.querySelectorAll('#group-table tbody th bdi')].map(e => e.textContent)"
    )
    assert names == [*sorted(NAMES), "all"]
    drawn_at = browser.execute_script(
        "return [...document.querySelectorAll('.forest circle.after')].map(e => [e.getBoundingClientRect().width > 2, "
        "getComputedStyle(e).fill])"
    )
    assert len(drawn_at) == 5
    assert all(seen and fill != "rgb(0, 0, 0)" for seen, fill in drawn_at)
