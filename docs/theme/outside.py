"""Files outside docs/ that pages link to are part of the site, and the links lead there.

Whatever a page links to, ``../data/README.md`` or a file of examples/, is taken into the site as ``outside/…``. A link
to a folder leads to a list of its files, one to a notebook to a page of it. On GitHub the same links lead to the files
where they are. The README is GitHub's: links to it lead to the home page.
"""

from __future__ import annotations

import posixpath
import re
import sys
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

sys.path.insert(0, str(Path(__file__).parent))
from notebooks import as_markdown

ROOT = Path(__file__).parents[2]
LINK = re.compile(r"(?<=\]\()(?!\w+:|#)([^)\s#]+)")
taken: dict[str, str] = {}  # where the site has a file, and where the repository has it


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Take in all that the pages lead to."""
    waiting = [f"docs/{file.src_uri}" for file in files.documentation_pages()]
    seen = {"README.md", *waiting}
    while waiting:
        path = waiting.pop()
        if not path.startswith("docs/"):
            files.append(_taken_in(path, config))
            taken[_uri(path)] = path
        if path.endswith(".md"):
            found = {_path_of(link, path) for link in LINK.findall((ROOT / path).read_text(encoding="utf-8"))}
            new = sorted(p for p in found - seen if not p.startswith("docs/") and (ROOT / p).exists())
            waiting += new
            seen.update(new)
    return files


def on_page_markdown(markdown: str, *, page: Page, **_: object) -> str:
    """Turn links to files into links to where the site has them."""
    path = taken.get(page.file.src_uri, f"docs/{page.file.src_uri}")

    def turned(match: re.Match[str]) -> str:
        target = _path_of(match[1], path)
        if not (ROOT / target).exists():
            return match[1]  # MkDocs tells of it
        return posixpath.relpath(_uri(target), posixpath.dirname(page.file.src_uri) or ".")

    return LINK.sub(turned, markdown)


def _taken_in(path: str, config: MkDocsConfig) -> File:
    if (ROOT / path).is_dir():
        names = sorted(p.name for p in (ROOT / path).iterdir() if p.is_file() and not p.name.startswith("__"))
        listed = "\n".join(f"- `{name}`" for name in names)
        return File.generated(config, _uri(path), content=f"# {path}/\n\nIn the repository:\n\n{listed}\n")
    if path.endswith(".ipynb"):
        return File.generated(config, _uri(path), content=as_markdown(ROOT / path))
    return File.generated(config, _uri(path), abs_src_path=str(ROOT / path))


def _path_of(link: str, page: str) -> str:
    """Return the path in the repository of what a page, itself told by such a path, links to."""
    return posixpath.normpath(posixpath.join(posixpath.dirname(page), link))


def _uri(path: str) -> str:
    """Return where the site has a file of the repository."""
    if path == "README.md":
        return "index.md"
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    if (ROOT / path).is_dir():
        return f"outside/{path}/index.md"
    return f"outside/{path.replace('/README.md', '.md').replace('.ipynb', '.md')}"
