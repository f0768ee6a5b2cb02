"""What the search shows first: pages that answer "how do I …?" before those with tables, names and history.

A word in a title counts a thousand times as much as one in the text, so a page whose factor is 1/1000 is found by its
title where a how-to has the word anywhere.
"""

from __future__ import annotations

from mkdocs.structure.pages import Page

# The first prefix that fits the path of a page within the site; others count fully.
FACTORS = {
    "results/": 0.001,
    "benchmarks": 0.05,
    "families.md": 0.001,
    "arena.md": 0.001,
    "claims.md": 0.001,
    "ats.md": 0.001,
    "paper-map.md": 0.01,
    "records/": 0.01,
    "architecture.md": 0.01,
    "outside/CHANGELOG.md": 0.001,
    "outside/": 0.1,
    "reference/": 0.1,
    "errors.md": 0.5,
    "glossary.md": 0.2,
    "index.md": 0.5,
    "install.md": 2.0,
    "formats.md": 2.0,
}


def on_page_markdown(markdown: str, *, page: Page, **_: object) -> str:
    """Give a page its factor, unless its front matter has one."""
    factor = next((f for prefix, f in FACTORS.items() if page.file.src_uri.startswith(prefix)), None)
    if factor is not None:
        page.meta.setdefault("search", {"boost": factor})
    return markdown
