"""The example runs end to end and writes the report that is in its folder."""

import re
import runpy
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "examples" / "skin_lesions"


def numbers(page):
    return re.findall(
        r"<td[^>]*>([^<]*)", page[page.index('<section id="classes"') : page.index('<section id="provenance"')]
    )


@pytest.mark.slow
def test_it_writes_the_committed_report(tmp_path):
    path = runpy.run_path(str(FOLDER / "run.py"))["main"](tmp_path)
    found, expected = (numbers(page.read_text(encoding="utf-8")) for page in (path, FOLDER / "report.html"))
    assert len(found) > 100
    assert found == expected
