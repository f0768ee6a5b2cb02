"""Methods are found by name: attemper's own, those of other packages, and those of the reader's notebook."""

import json
import re
import subprocess
import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import numpy as np
import pytest

import attemper
from attemper import (
    AttemperWarning,
    FileError,
    FitReport,
    InputError,
    InputTypeError,
    ScaleMap,
    Scores,
    TemperatureScaling,
    compare,
)
from attemper.calibrators import METHODS, Calibrator, method_title, recipe, registry
from attemper.testing import check_calibrator, check_class_attributes

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
def known(monkeypatch):
    """A registry of its own for each test, with attemper's methods."""
    monkeypatch.setattr(METHODS, "_classes", dict(METHODS._classes))
    monkeypatch.setattr(METHODS, "_complete", False)
    monkeypatch.setattr(registry, "entry_points", lambda group: [])
    return monkeypatch


def test_a_class_registers_when_it_is_defined(known, tmp_path):
    cls = make()
    assert METHODS["constant"] is cls
    assert list(METHODS)[:-1] == [name for name, cls in METHODS.items() if METHODS.package_of(cls) is None]
    assert method_title("constant") == "constant temperature"
    again = make()  # a cell of a notebook that is run again
    assert METHODS["constant"] is again
    h, y = draw(100, 3)
    fitted = again(temperature=3.0).fit(h, y)
    fitted.save(tmp_path / "map.json")
    assert json.loads((tmp_path / "map.json").read_text())["package"] == __name__.partition(".")[0]
    np.testing.assert_array_equal(attemper.load(tmp_path / "map.json").predict_proba(h), fitted.predict_proba(h))
    fitted.set_params(classes=list("abc"))


def test_names_of_attemper_are_taken(known):
    for name in ("ts", "none"):
        with pytest.raises(InputError):
            make(name)
    with pytest.raises(InputError):
        make("Two Words")


def test_a_class_of_the_same_name_does_not_replace_one_of_attemper(known):
    with pytest.raises(InputError):
        type("TemperatureScaling", (Calibrator,), {"method": "ts", "__module__": "elsewhere"})
    assert METHODS["ts"] is TemperatureScaling


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


def test_entry_points_are_loaded_when_a_name_is_unknown(known):
    loaded = []

    class Entry:
        name, value, dist = "constant", "somewhere:Constant", None

        def load(self):
            loaded.append(self.name)
            return make()

    known.setattr(registry, "entry_points", lambda group: [Entry()])
    assert METHODS["ts"] is TemperatureScaling
    assert not loaded
    assert METHODS["constant"].title == "constant temperature"
    assert loaded == ["constant"]
    assert "magic" not in METHODS


def test_a_broken_package_is_a_warning(known):
    broken = EntryPoint("broken", "not_there_at_all:Calibrator", registry.GROUP)
    other = EntryPoint("other", "attemper.calibrators:TemperatureScaling", registry.GROUP)
    known.setattr(registry, "entry_points", lambda group: [broken, other])
    with pytest.warns(AttemperWarning) as caught:
        assert "ts" in list(METHODS)
    messages = " ".join(str(w.message) for w in caught)
    assert "'broken'" in messages
    assert "not_there_at_all" in messages
    assert "'other'" in messages


def test_two_packages_with_one_name_are_a_warning(known, tmp_path):
    for package in ("one_package", "two_package"):
        (tmp_path / f"{package}.py").write_text(
            "from attemper import TemperatureScaling\nclass Same(TemperatureScaling):\n    method = title = 'same'\n"
        )
    (tmp_path / "exiting.py").write_text("raise SystemExit(3)")
    known.syspath_prepend(tmp_path)
    entries = [EntryPoint("same", f"{package}:Same", registry.GROUP) for package in ("two_package", "one_package")]
    exiting = EntryPoint("exits", "exiting:Same", registry.GROUP)
    known.setattr(registry, "entry_points", lambda group: [*entries, exiting])
    with pytest.warns(AttemperWarning) as caught:
        same = METHODS["same"]
    assert METHODS.package_of(same) == same.__module__ == "one_package"
    messages = [str(w.message) for w in caught]
    assert len(messages) == 2
    assert "SystemExit" in messages[0]
    assert "one_package:Same" in messages[1]
    assert "two_package:Same" in messages[1]


def test_a_file_of_an_unknown_method_names_the_package(known, tmp_path):
    path = tmp_path / "map.json"
    TemperatureScaling().fit(*draw(50, 3)).save(path)
    content = json.loads(path.read_text())
    assert "package" not in content
    for package, shown in (("attemper-magic", "attemper-magic"), ("x; rm -rf", "newer"), (3, "newer"), (None, "newer")):
        path.write_text(json.dumps(content | {"method": "magic", "package": package}))
        with pytest.raises(FileError) as error:
            attemper.load(path)
        assert shown in str(error.value)
        assert "rm -rf" not in str(error.value)


def test_the_page_of_methods_has_what_the_classes_say():
    text = (ROOT / "docs" / "methods.md").read_text()
    rows = re.findall(r"^\| `(\w+)` \| `(\w+)` \| .* \| (yes|no) \| (yes|no)[^|]* \|", text, re.M)
    assert [row[0] for row in rows] == [name for name, cls in METHODS.items() if METHODS.package_of(cls) is None]
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


@pytest.mark.parametrize(
    "calibrator, params, fitted",
    [
        (attemper.HistogramBinning(strategy="uniform"), {"strategy": ("bins", "width")}, {}),
        (attemper.BayesianTemperatureScaling(), {"credible_level": ("level", 0.95)}, {"uniform_mass": "floor"}),
        (
            attemper.StructuredScaling(),
            {"structure": ("level", "matrix"), "noise": ("noise", "classwise")},
            {"prior_std": "spread", "heldout_gain": "gain"},
        ),
        (attemper.VectorScaling(), {"prior_mean": ("towards", "identity"), "bias_penalty": ("intercept", 0.0)}, {}),
    ],
    ids=str,
)
def test_files_of_the_first_version_are_read(calibrator, params, fitted, tmp_path):
    h, y = draw(300, 4)
    path = tmp_path / "map.json"
    found = calibrator.fit(h, y)
    found.save(path)
    content = json.loads(path.read_text())
    for name, (old, value) in params.items():
        del content["params"][name]
        content["params"][old] = value
    for name, old in fitted.items():
        content["fitted"][old] = content["fitted"].pop(name)
    content["floor"] = content.pop("zeros_as")
    reports = [content["report"]]
    if "bayes" in content["fitted"]:
        reports.append(content["fitted"]["bayes_report"])
        content["fitted"]["bayes"]["floor"] = content["fitted"]["bayes"].pop("uniform_mass")
    for report in reports:
        report["passes"] = report.pop("n_iter")
        log_t, gap = report.pop("log_t_error"), report.pop("objective_gap")
        report["error"] = log_t if gap is None else gap
    path.write_text(json.dumps(content))
    back = attemper.load(path)
    np.testing.assert_array_equal(back.predict_proba(h), found.predict_proba(h))
    assert back.fit_report_ == found.fit_report_
    assert back.describe() == found.describe()


def broken(known, **attributes):
    attributes = {"__module__": __name__, "method": "broken", "title": "broken", **attributes}
    return type("Broken", (TemperatureScaling,), attributes)


def test_a_failed_check_explains_itself_without_pytest(known, tmp_path):
    script = tmp_path / "script.py"  # pytest rewrites no assertion here
    script.write_text(
        "from attemper import TemperatureScaling\n"
        "from attemper.testing import check_calibrator\n"
        "class Broken(TemperatureScaling):\n"
        "    method = title = 'broken'\n"
        "    def predict(self, X):\n"
        "        return super().predict(X)[::-1]\n"
        "check_calibrator(Broken)\n"
    )
    ran = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False)
    last = ran.stderr.strip().splitlines()[-1]
    assert re.search(r"Broken\(\) fails check_\w+: AssertionError: .*\S", ran.stderr), last
    with pytest.raises(InputTypeError):
        check_calibrator(42)


@pytest.mark.parametrize(
    "attributes, why",
    [
        ({"__annotations__": {"gamma": float}, "gamma": 1.0}, "'gamma' is no parameter.*@recipe"),
        ({"describe": lambda self: "text"}, "describe"),
        ({"summary": lambda self: {"x": object()}}, "JSON serializable"),
    ],
)
def test_class_attributes_are_checked(known, attributes, why):
    with pytest.raises((AssertionError, TypeError)):
        check_class_attributes(broken(known, **attributes)())
