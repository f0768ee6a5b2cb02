"""The notebooks run, their outputs in the repository are those of the code, and they stay small."""

import html
import re
import sys
import warnings
from pathlib import Path

import nbformat
import numpy as np
import pytest

FOLDER = Path(__file__).parents[2] / "examples" / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
LARGEST = 300_000  # bytes
NUMBER = re.compile(r"-?\d+\.?\d*(?:e[+-]?\d+)?")

every = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


def outputs(notebook):
    """Yield for each code cell the kinds of its outputs, and their text."""
    for cell in notebook.cells:
        if cell.cell_type == "code":
            kinds = [sorted(output.get("data", {output.get("name"): ""})) for output in cell.outputs]
            texts = [output.get("text") or output["data"]["text/plain"] for output in cell.outputs]
            # Tables of attemper; scikit-learn's and pandas' HTML depend on their versions.
            tables = [output.get("data", {}).get("text/html", "") for output in cell.outputs]
            own = [html.unescape(re.sub(r"<[^>]+>", " ", text)) for text in tables if text.startswith("<div><")]
            yield kinds, " ".join([*texts, *own])


@every
def test_it_is_kept_with_its_outputs_and_small(path):
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    assert path.stat().st_size < LARGEST
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))  # in one go
    shown = [output for cell in cells for output in cell.outputs]
    assert not any(output.output_type == "error" or output.get("name") == "stderr" for output in shown)
    assert sum("image/png" in output.get("data", ()) for output in shown) >= 3
    assert sum("text/html" in output.get("data", ()) for output in shown) >= 5
    assert "/tmp/" not in path.read_text()


@pytest.mark.slow
@every
def test_it_runs_and_shows_what_is_kept(path, monkeypatch):
    monkeypatch.syspath_prepend(FOLDER)
    sys.modules.pop("run", None)
    import run

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of Jupyter's own packages
        again = run.executed(path)
    kept = nbformat.read(path, as_version=4)
    for (kinds, text), (kinds_now, text_now) in zip(outputs(kept), outputs(again), strict=True):
        assert kinds == kinds_now
        assert NUMBER.sub("#", text).split() == NUMBER.sub("#", text_now).split()
        numbers = [[float(number) for number in NUMBER.findall(each)] for each in (text, text_now)]
        np.testing.assert_allclose(*numbers, rtol=0.02, atol=0.002)
