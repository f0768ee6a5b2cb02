"""Links of the pages: relative ones lead to a file and a heading, addresses are well formed."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from urllib.parse import urlsplit

import pytest

ROOT = Path(__file__).parents[1]
PAGES = sorted(
    path
    for pattern in ("*.md", "data/*.md", "docs/**/*.md", "examples/**/*.md", "experiments/**/*.md", ".github/*.md")
    for path in ROOT.glob(pattern)
    if "texts" not in path.parts  # become pages of docs/results
)
LINK = re.compile(r"\]\(([^)\s]+)\)")
FENCED = re.compile(r"^ *```.*?^ *```", flags=re.MULTILINE | re.DOTALL)


def prose(page):
    return FENCED.sub("", page.read_text(encoding="utf-8"))


def anchors(page):
    """Return the names that GitHub and the site give the headings of a page; where they differ, none."""
    headings = re.findall(r"^#+ +(.*?) *#*$", prose(page), flags=re.MULTILINE)
    plain = [re.sub(r"\[([^]]*)\]\([^)]*\)|[`*]", r"\1", heading).lower() for heading in headings]
    on_github = [re.sub(r"[^\w\- ]", "", text).replace(" ", "-") for text in plain]
    on_the_site = [re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", text).strip()) for text in plain]
    return {a for a, b in zip(on_github, on_the_site, strict=True) if a == b}


def broken(page):
    for link in LINK.findall(prose(page)):
        target, _, anchor = link.partition("#")
        if ":" in target:
            address = urlsplit(link)
            if address.scheme != "https" or "." not in address.netloc:
                yield f"{link}: no address"
            continue
        file = page.parent / target if target else page
        if not file.exists():
            yield f"{link}: no such file"
        elif anchor and file.suffix == ".md" and anchor not in anchors(file):
            yield f"{link}: no such heading"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_lead_somewhere(page):
    assert list(broken(page)) == []


def test_addresses_of_the_metadata_are_well_formed():
    urls = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["urls"]
    assert {"Homepage", "Documentation", "Source", "Issues", "Changelog"} <= set(urls)
    assert all(urlsplit(url).scheme == "https" for url in urls.values())


@pytest.mark.parametrize(
    "link, reason",
    [
        ("gone.md", "no such file"),
        ("other.md#gone", "no such heading"),
        ("#gone", "no such heading"),
        ("http://example.org/", "no address"),
        ("https://example/", "no address"),
        ("other.md#a-heading-with-code", None),
        ("#here", None),
        ("https://example.org/a#b", None),
    ],
)
def test_what_a_link_must_have(tmp_path, link, reason):
    (tmp_path / "other.md").write_text("# Other\n\n## A heading, with `code`\n\n```sh\n# no heading: gone\n```\n")
    page = tmp_path / "page.md"
    page.write_text(f"# Here\n\nA [link]({link}).\n")
    assert list(broken(page)) == ([f"{link}: {reason}"] if reason else [])
