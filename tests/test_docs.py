"""Every Python block and command of the documentation runs, in order, in an empty folder, as a reader runs them."""

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[1]
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")])

# A page's blocks share their names; `attemper` commands run in process. What a block prints goes into its own file.
AS_A_READER = """
import contextlib, json, sys, warnings

warnings.simplefilter("error")
names = {"__name__": "__main__"}
for i, (language, block) in enumerate(json.load(sys.stdin)):
    with open(f"{sys.argv[1]}/{i}.txt", "w", encoding="utf-8") as printed, contextlib.redirect_stdout(printed):
        if language == "python":
            exec(compile(block, f"block {i + 1}", "exec"), names)
            continue
        from attemper.cli import main
        for command in block:
            sys.argv[:] = [sys.argv[0], sys.argv[1]]
            try:
                main(command[1:])
            except SystemExit as ended:
                assert ended.code in (0, None), (command, ended.code)
"""


def commands(block):
    """Return the `attemper` commands of a block, but those that need a bucket."""
    lines = [line.split("  #")[0].strip() for line in block.replace("\\\n", " ").splitlines()]
    return [shlex.split(line) for line in lines if line.startswith("attemper ") and "://" not in line]


def blocks(page):
    found = re.findall(r"^```(python|sh)\n(.*?)^```", page.read_text(encoding="utf-8"), flags=re.M | re.S)
    found = [(language, block if language == "python" else commands(block)) for language, block in found]
    return [(language, block) for language, block in found if block]


def parts(lines):
    """Return words and numbers apart, and by how much each number may differ."""
    text = " ".join(lines)
    found = re.findall(r"(\d+)(\.\d+)?(%?)", text)
    numbers = np.array([float(whole + decimals) for whole, decimals, _ in found])
    last = [10.0 ** -(len(decimals) - 1) if decimals else float(percent == "%") for _, decimals, percent in found]
    return re.sub(r"\d+(\.\d+)?", "#", text).split(), numbers, np.array(last)


def assert_alike(printed, shown):
    """Words and whole numbers are the same; others to two of the last digit or 1 %, as processors round differently."""
    (words, numbers, last), (own_words, own_numbers, _) = parts(printed), parts(shown)
    assert words == own_words
    allowed = np.where(last > 0, np.maximum(2.01 * last, 0.01 * np.abs(numbers)), 0)
    assert (np.abs(numbers - own_numbers) <= allowed).all(), (numbers, own_numbers)


@pytest.mark.slow
@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page)], ids=lambda page: page.stem)
def test_a_page_runs(page, tmp_path):
    empty, printed = tmp_path / "empty", tmp_path / "printed"
    empty.mkdir()
    printed.mkdir()
    given = {"cwd": empty, "input": json.dumps(blocks(page)), "text": True, "timeout": 600}
    done = subprocess.run([sys.executable, "-c", AS_A_READER, printed], capture_output=True, check=False, **given)
    assert done.returncode == 0, done.stderr
    for i, (language, block) in enumerate(blocks(page)):
        shown = re.findall(r"^# → (.*)", block, flags=re.M) if language == "python" else []
        if shown:
            assert_alike((printed / f"{i}.txt").read_text(encoding="utf-8").splitlines(), shown)


@pytest.mark.slow
def test_the_site_builds_without_a_warning(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", tmp_path / "site"],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
