"""Look for words that make readers stop (words.toml) in pages, docstrings, messages and the report.

    python lint/words.py            # every problem, as file:line: word, and what to write instead
    python lint/words.py --shorten  # takes files that are clean by now off unrevised.txt

Files in unrevised.txt may still have such words; the list only gets shorter. Messages are always checked.
"""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).parent
UNREVISED = HERE / "unrevised.txt"
PAGES = ("*.md", "data/*.md", "docs/**/*.md", "examples/**/*.md", "experiments/**/*.md", ".github/**/*.md")
TEMPLATES = ("src/**/*.html", ".github/ISSUE_TEMPLATE/*.yml", "CITATION.cff", "pyproject.toml", "mkdocs.yml")
HISTORY = {"CHANGELOG.md"}
# Code in a line, the target of a link, a tag of HTML, and the code of an example.
CODE = re.compile(r"``[^`]*``|`[^`\n]*`|\]\([^)]*\)|</?[a-z][^>]*>|^\s*(>>>|\.\.\. ).*$", re.MULTILINE)
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


class Words:
    """The words to avoid, each with what to use instead."""

    def __init__(self, text: str) -> None:
        listed = tomllib.loads(text)
        self.use = {word: use for words, use in listed["use"].items() for word in words.split(", ")}
        self._avoided = re.compile(rf"\b({'|'.join(map(_spaced, self.use))})\b", re.IGNORECASE)
        self._allowed = re.compile("|".join(map(_spaced, listed["allowed"])), re.IGNORECASE)

    def found(self, text: str) -> Iterator[tuple[int, str]]:
        """Yield the line, from 0 on, and the word of each that is in a text."""
        for skipped in (CODE, self._allowed):
            text = skipped.sub(lambda match: re.sub(r"[^\n]", "-", match[0]), text)
        for match in self._avoided.finditer(text):
            yield text.count("\n", 0, match.start()), " ".join(match[0].split())


def _spaced(words: str) -> str:
    return r"\s+".join(map(re.escape, words.split()))


def docstrings(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield line and text of every docstring."""
    for node in ast.walk(tree):
        if isinstance(node, DOCUMENTED) and ast.get_docstring(node) is not None:
            first = node.body[0]
            assert isinstance(first, ast.Expr)
            assert isinstance(first.value, ast.Constant)
            yield first.lineno, str(first.value.value)


def messages(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield line and text of every other string with a blank: messages and help."""
    documented = {line for line, _ in docstrings(tree)}
    for node in ast.walk(tree):
        is_text = isinstance(node, ast.Constant) and isinstance(node.value, str)
        if is_text and " " in node.value and node.lineno not in documented:
            yield node.lineno, node.value


def texts(path: Path) -> Iterator[tuple[int, str, bool]]:
    """Yield the line, the text, and whether it is a message, of all that people read in a file."""
    whole = path.read_text(encoding="utf-8")
    if path.suffix != ".py":
        yield 1, whole, False
        return
    tree = ast.parse(whole)
    yield from ((line, text, False) for line, text in docstrings(tree))
    yield from ((line, text, True) for line, text in messages(tree))


def files(root: Path) -> list[Path]:
    """Return what is read: pages, modules of the package, and what the repository shows elsewhere."""
    found = {path for pattern in (*PAGES, *TEMPLATES, "src/**/*.py") for path in root.glob(pattern)}
    return sorted(path for path in found if path.name not in HISTORY)


def problems(root: Path, words: Words, unrevised: set[str]) -> tuple[list[str], set[str]]:
    """Return a line for each problem, and the files whose words the list of unrevised files excuses."""
    found, excused = [], set()
    for path in files(root):
        name = path.relative_to(root).as_posix()
        for start, text, is_message in texts(path):
            for line, word in words.found(text):
                if name in unrevised and not is_message:
                    excused.add(name)
                else:
                    found.append(f'{name}:{start + line}: avoid "{word}"; use {words.use[word.lower()]}')
    return found, excused


def main(arguments: list[str]) -> int:
    """Print the problems; return 1 if there are any."""
    unrevised = set(UNREVISED.read_text(encoding="utf-8").split())
    words = Words((HERE / "words.toml").read_text(encoding="utf-8"))
    found, excused = problems(HERE.parent, words, unrevised)
    if arguments == ["--shorten"]:
        UNREVISED.write_text("".join(f"{name}\n" for name in sorted(excused)), encoding="utf-8")
    print("\n".join(found) or f"no word to avoid; {len(excused)} files are not revised yet")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
