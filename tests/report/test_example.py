"""The example runs end to end, and its committed report is what it writes."""

import json
import re
import runpy
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

FOLDER = Path(__file__).parents[2] / "examples" / "skin_lesions"


def numbers(page):
    return json.loads(re.search(r'id="data">(.*?)</script>', page, flags=re.S)[1])


def words(page):
    """Everything but the numbers of the sliders, the file sizes and hashes, and the versions."""
    body = page[page.index("<body>") : page.index("<noscript>")]
    return re.sub(r"<section id=\"provenance\".*?</section>", "", body, flags=re.S)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Return the page that the example writes, and what it prints."""
    with redirect_stdout(StringIO()) as printed:
        path = runpy.run_path(str(FOLDER / "run.py"))["main"](tmp_path_factory.mktemp("skin"))
    return path.read_text(), printed.getvalue()


def test_the_committed_report_is_what_the_example_writes(run):
    written, _ = run
    committed = (FOLDER / "report.html").read_text()
    found, expected = numbers(written), numbers(committed)
    assert found["referral"] == expected["referral"]
    assert found["temperature"]["labels"] == expected["temperature"]["labels"]
    for a, b in zip(found["temperature"]["states"], expected["temperature"]["states"]):
        assert a["ece"] == pytest.approx(b["ece"])
        assert a["nll"] == pytest.approx(b["nll"])
    assert words(written) == words(committed)


def test_the_committed_report_is_small_and_holds_no_image():
    committed = (FOLDER / "report.html").read_text()
    assert len(committed) < 500_000
    assert "data:image" not in committed


def test_the_readme_tells_the_figures_that_the_example_prints(run):
    _, printed = run
    told = (FOLDER / "README.md").read_text()
    for figure in re.findall(r"0\.\d{4} \(0\.\d{4}–0\.\d{4}\)", told):
        assert figure in printed
    for figure in (
        "39.9%",
        "78.0%",
        "9.0%",
        "24.5%",
        "of 0.76,",
        "above 0.815798",
        "41.4% referred",
        "8.4% (7.2%–9.8%)",
        "646 images of 473 lesions",
        "above 0.851539",
        "49.2% referred",
        "5.3% (4.2%–6.7%)",
    ):
        assert figure in printed
