"""In a notebook: results are tables, data frames on request, and nothing in them is taken for HTML."""

import json
import pickle
import re
import sys
from html.parser import HTMLParser

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import attemper
from attemper import MissingExtraError, Scores, metrics
from attemper._table import SHOWN_ROWS, Table, as_table
from attemper.comparison import Comparison, Row, compare
from attemper.decisions import Policy, outcome_of, policy_for_miss
from attemper.metrics import Estimate, Evaluation
from attemper.report import summarise

from data import draw

HOSTILE = "<script>alert(1)</script>"


@pytest.fixture(scope="module")
def results():
    """Every kind of result that has columns, and how many rows it has."""
    h, y = draw(300, 3)
    p = np.exp(h) / np.exp(h).sum(axis=1, keepdims=True)
    scores, test = Scores.from_logits(h, y), Scores.from_logits(*draw(200, 3, seed=1))
    policy = policy_for_miss(p, y, 0.5, per_class=True, classes=["a", HOSTILE, "c"])
    found = metrics.evaluate(y, p, confidence_level=0.95, n_resamples=20)
    compared = compare(scores, test, ["ts", "vector"])
    noisy = attemper.BayesianTemperatureScaling(labels="noisy", noise="classwise").fit(scores)
    best = metrics.compare_with_best({row.method: row.losses for row in compared.rows})
    return {
        "reliability": (metrics.reliability(y, p, n_bins=7), 7),
        "classwise": (metrics.reliability(y, p, kind="classwise", n_bins=7), 21),
        "corp": (metrics.corp_reliability(y, p, n_resamples=5), None),
        "referral": (metrics.referral_curve(y, p), None),
        "risk": (metrics.risk_coverage_curve(y, p), None),
        "parts": (metrics.decompose(y, p), 4),
        "evaluation": (found, len(found)),
        "plain": (metrics.evaluate(y, p), len(found)),
        "best": (best, 3),
        "comparison": (compared, 3),
        "policy": (policy, 3),
        "decisions": (policy.refer_or_decide(p), 300),
        "outcome": (outcome_of(policy, p, y), 7),
        "theta": (attemper.AttendedTemperatureScaling().fit(scores).path_, 100),
        "posterior": (noisy.posterior_, None),
        "confusions": (noisy.confusions_, 9),
        "ensemble": (attemper.torch.average([h, 2 * h], labels=y), 300),
        "drift": (attemper.drift.DriftTest(2.0).update(scores), 1),
    }


NAMES = (
    *("reliability", "classwise", "corp", "referral", "risk", "parts", "evaluation", "plain", "best"),
    *("comparison", "policy", "decisions", "outcome", "theta", "posterior", "confusions", "ensemble", "drift"),
)
every = pytest.mark.parametrize("name", NAMES)


class Cells(HTMLParser):
    """What a reader sees of a table, row by row; scripts would be seen as tags."""

    def __init__(self, text):
        super().__init__()
        self.rows, self.tags, self.open = [], [], False
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        if tag == "tr":
            self.rows.append([])
        self.open = tag in ("td", "th")
        if self.open:
            self.rows[-1].append("")

    def handle_data(self, data):
        if self.open:
            self.rows[-1][-1] += data


@every
def test_every_result_is_a_data_frame(name, results):
    result, n = results[name]
    frame = result.to_pandas()
    assert isinstance(frame, pd.DataFrame)
    assert n in (None, len(frame))
    assert len(frame.columns) == len(set(frame.columns)) >= 2
    assert not any(isinstance(value, tuple) for value in frame.to_numpy().ravel())


@every
def test_text_is_one_line_and_html_is_a_table_without_scripts(name, results):
    result, _ = results[name]
    assert "\n" not in repr(result)
    assert len(repr(result)) < 600
    shown = Cells(result._repr_html_())
    assert set(shown.tags) <= {"div", "ul", "li", "table", "thead", "tbody", "tr", "th", "td", "p"}
    assert len(shown.rows) <= SHOWN_ROWS + 1


def test_intervals_have_columns_of_their_own():
    frame = Evaluation(nll=Estimate(0.5, 0.4, 0.6), mce=Estimate.without(0.3, "no interval")).to_pandas()
    assert list(frame.columns) == ["metric", "value", "low", "high", "chance", "p_value", "note"]
    assert frame.loc[0, ["value", "low", "high"]].tolist() == [0.5, 0.4, 0.6]
    assert np.isnan(frame.loc[1, "low"])
    rows = (Row("none", metrics={"nll": Estimate(0.5, 0.4, 0.6)}), Row("x", failure="too few"))
    frame = Comparison(rows, "none", "because").to_pandas().set_index("method")
    assert frame.loc["none", ["nll", "nll_low", "nll_high"]].tolist() == [0.5, 0.4, 0.6]
    assert np.isnan(frame.loc["x", "nll"])
    assert frame.loc["x", "failure"] == "too few"


@pytest.mark.parametrize("name", ["referral", "risk", "theta", "decisions"])
def test_columns_are_the_arrays_themselves(name, results):
    result, _ = results[name]
    frame = result.to_pandas()
    assert len(frame.columns) == len(getattr(result, "_fields", ()) or vars(result))
    for column in frame.columns:
        np.testing.assert_array_equal(frame[column].to_numpy(), getattr(result, column))


@every
def test_a_result_survives_a_process_and_its_frame_a_file(name, results, tmp_path):
    result, _ = results[name]
    frame = result.to_pandas()
    again = pickle.loads(pickle.dumps(result))
    assert type(again) is type(result)
    pd.testing.assert_frame_equal(again.to_pandas(), frame)
    frame.to_parquet(tmp_path / "frame.parquet")
    pd.testing.assert_frame_equal(pd.read_parquet(tmp_path / "frame.parquet"), frame)


def test_a_reliability_table_has_its_bins():
    table = metrics.reliability([0, 1, 0], [[0.9, 0.1], [0.2, 0.8], [0.4, 0.6]], n_bins=2)
    frame = table.to_pandas()
    assert frame[["bin_low", "bin_high", "weight"]].to_numpy().tolist() == [[0, 0.5, 0], [0.5, 1, 3]]
    np.testing.assert_array_equal(frame["accuracy"], table.accuracy)


@pytest.mark.parametrize("package", ["pandas"])
def test_a_missing_package_is_named_with_its_install_line(package, monkeypatch):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingExtraError):
        getattr(Evaluation(nll=0.5), f"to_{package}")()


@given(st.lists(st.text() | st.none() | st.floats() | st.integers() | st.booleans(), max_size=40))
def test_any_cell_is_shown_as_text(values):
    class Any(Table):
        def _table_columns(self):
            return {"<th>": values, "row": range(len(values))}

    shown = Cells(Any()._repr_html_())
    assert set(shown.tags) <= {"div", "table", "thead", "tbody", "tr", "th", "td", "p"}
    assert shown.rows[0] == ["<th>", "row"]
    assert len(shown.rows) == 1 + (len(values) if len(values) <= SHOWN_ROWS else 11)
    for row in shown.rows[1:]:
        if row[1] != "…" and isinstance(values[int(row[1])], str):
            assert row[0].split() == values[int(row[1])].split()


def test_long_tables_show_both_ends():
    shown = Cells(as_table({"i": range(1000)}))
    assert [row[0] for row in shown.rows] == ["i", "0", "1", "2", "3", "4", "…", *map(str, range(995, 1000))]


def test_names_are_escaped_everywhere(results):
    rows = (Row("none", metrics={"nll": 0.5}), Row(HOSTILE, metrics={HOSTILE: 1.0}, failure=HOSTILE))
    for shown in (
        Comparison(rows, HOSTILE, HOSTILE)._repr_html_(),
        results["policy"][0]._repr_html_(),
        Policy(0.5, HOSTILE, 2, 10, notes=(HOSTILE,))._repr_html_(),
        Estimate.without(0.5, HOSTILE)._repr_html_(),
        as_table({HOSTILE: [HOSTILE]}),
    ):
        assert "script" in shown
        assert HOSTILE not in shown


def test_a_report_is_shown_in_a_frame_without_access_to_the_notebook(monkeypatch):
    h, y = draw(300, 3)
    report = summarise(
        Scores.from_logits(h, y), Scores.from_logits(*draw(200, 3, seed=1)), methods=["ts"], title=f'"{HOSTILE}'
    )
    assert len(repr(report)) < 200
    assert json.loads(json.dumps(report)) == report
    shown = report._repr_html_()
    [attributes] = re.findall(r"<iframe srcdoc=\"[^\"]*\"([^>]*)>", shown)
    assert "sandbox" in attributes
    assert "allow-" not in attributes
    assert shown.count("<") == 2  # the page is an attribute of the frame: no other tag
    monkeypatch.setattr("attemper.report.summary.find_spec", lambda name: None)
    assert report._repr_html_() is None
