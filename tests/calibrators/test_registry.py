"""Methods are found by name: attemper's own, and those of the reader's notebook."""

import re
from pathlib import Path

import numpy as np
import pytest

import attemper
from attemper import (
    FitReport,
    InputError,
    InputTypeError,
    ScaleMap,
    Scores,
    TemperatureScaling,
    compare,
)
from attemper.calibrators import METHODS, Calibrator, method_title, recipe
from attemper.testing import check_calibrator

from data import draw

ROOT = Path(__file__).parents[2]


def make(method="constant"):
    @recipe
    class Constant(Calibrator):
        """Divide all logits by a constant."""

        title = "constant temperature"
        keeps_arg_max = True
        temperature: float = 2.0

        def _solve_scores(self, scores):
            self.map_ = ScaleMap(1 / self.temperature)
            self.fit_report_ = FitReport.of(self.map_, scores, message="nothing to fit")

    return recipe(
        type(Constant.__name__, (Constant,), {"method": method, "title": Constant.title, "__module__": __name__})
    )


@pytest.fixture
def known():
    """A registry of its own for each test, with attemper's methods."""
    before = dict(METHODS)
    yield
    METHODS.clear()
    METHODS.update(before)


def test_a_class_registers_when_it_is_defined(known, tmp_path):
    cls = make()
    assert METHODS["constant"] is cls
    assert list(METHODS)[-1] == "constant"
    assert method_title("constant") == "constant temperature"
    again = make()  # a cell of a notebook that is run again
    assert METHODS["constant"] is again
    h, y = draw(100, 3)
    fitted = again(temperature=3.0).fit(h, y)
    fitted.save(tmp_path / "map.json")
    np.testing.assert_array_equal(attemper.load(tmp_path / "map.json").predict_proba(h), fitted.predict_proba(h))


def test_an_instance_is_compared_by_its_name_and_parameters(known):
    cls = make()
    val, test = (Scores.from_logits(*draw(200, 3, seed=seed)) for seed in (0, 1))
    rows = compare(val, test, [cls(), cls(temperature=3.0), "ts", TemperatureScaling(t_range=(1, 2))]).rows
    assert [row.method for row in rows] == ["none", "constant", "constant(temperature=3.0)", "ts", "ts(t_range=(1, 2))"]
    assert method_title(rows[2].method) == "constant temperature (temperature=3.0)"
    assert rows[1].temperature is None
    with pytest.raises(InputError):
        compare(val, test, [cls(), "constant"])
    for alone in ("ts", cls()):
        with pytest.raises(InputTypeError):
            compare(val, test, alone)
    given = cls(classes=["a", "b", "c"])
    compare(val, test, [given])
    assert not hasattr(given, "map_")
    assert given.classes == ["a", "b", "c"]


def test_the_page_of_methods_has_what_the_classes_say():
    text = (ROOT / "docs" / "methods.md").read_text()
    rows = re.findall(r"^\| `(\w+)` \| `(\w+)` \| .* \| (yes|no) \| (yes|no)[^|]* \|", text, re.M)
    assert [row[0] for row in rows] == list(METHODS)
    for name, cls, keeps, sketch in rows:
        method = METHODS[name]
        assert method.__name__ == cls
        assert method.keeps_arg_max == (keeps == "yes")
        assert (method.sketch_tables is not None) == (sketch == "yes")


def test_check_calibrator_names_what_fails(known):
    cls = make()

    class Careless(cls):
        method = "careless"

        def predict_proba(self, X):
            return super().predict_proba(X) * 2

    with pytest.raises(AssertionError):
        check_calibrator(Careless)
