"""Estimate and Table: what every result is made of."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, fields, replace

import numpy as np
import pytest

from attemper import metrics
from attemper._result import Estimate, Table
from conftest import draw

FULL = Estimate(0.5, 0.4, 0.6, "a note", 0.1, 0.2)


@pytest.mark.parametrize("name", [field.name for field in fields(Estimate)])
def test_equality_and_replacing_keep_every_field(name):
    other = replace(FULL, **{name: "b" if name == "note" else 0.33})
    assert other != FULL
    assert {f.name for f in fields(FULL) if getattr(other, f.name) != getattr(FULL, f.name)} == {name}
    assert replace(other, **{name: getattr(FULL, name)}) == FULL


def test_an_estimate_is_a_number_with_ends():
    assert float(FULL) == 0.5
    assert Estimate(0.5) == Estimate(0.5, math.nan, math.nan) != Estimate(0.5, 0.5, 0.5)
    assert Estimate(np.float64(0.5)) == Estimate(0.5)
    assert len({FULL, replace(FULL), Estimate(0.5)}) == 2
    assert FULL != 0.5
    assert (FULL.has_interval, Estimate(0.5).has_interval) == (True, False)
    assert FULL.to_dict() == {"value": 0.5, "low": 0.4, "high": 0.6, "chance": 0.1, "p": 0.2, "note": "a note"}
    assert Estimate(0.5).to_dict() == {"value": 0.5, "low": None, "high": None}


@pytest.mark.parametrize(
    ("estimate", "spec", "expected"),
    [
        (FULL, "", "0.500 (0.400 to 0.600)"), (FULL, ".1f", "0.5 (0.4 to 0.6)"), (FULL, ".0%", "50% (40% to 60%)"),
        (Estimate(0.5), ".2f", "0.50"), (Estimate(0.5), "", "0.5"), (Estimate(math.nan), ".2f", "–"),
        (Estimate(math.inf), "", "∞"), (Estimate(-math.inf), ".2f", "−∞"),
        (Estimate(123.4, 101, 150), "", "123 (101 to 150)"),
        (Estimate(0.00012, 0, 0.0003), "", "0.000120 (0.000000 to 0.000300)"),
    ],
)  # fmt: skip
def test_format(estimate, spec, expected):
    assert format(estimate, spec) == expected


@dataclass(frozen=True, eq=False)
class Wide(Table):
    """Too wide for a line, and long."""

    n: int
    name: str = "<b>"

    def columns(self):
        more = {f"column_{i}": [FULL] * self.n for i in range(6)}
        return {"name": [self.name] * self.n, "empty": [None] * self.n} | more | {"some": np.arange(self.n) > 1}

    def notes(self):
        return ["<i>" + " word" * 60]


@pytest.mark.parametrize("n", [0, 1, 30])
def test_a_table_fits_80_columns_and_escapes(n):
    lines = str(Wide(n)).splitlines()
    assert all(len(line) <= 80 for line in lines)
    if n:
        assert sum(line.startswith("name") for line in lines) == 3  # columns that do not fit go below, with the first
        assert "empty" not in lines[0]
        assert str(Wide(n, 100 * "x")).count("0.500") == str(Wide(n)).count("0.500")
    page = Wide(n)._repr_html_()
    assert "<b>" not in page
    assert "<i>" not in page
    assert page.count("<tr>") == 1 + min(n, 11)


def test_a_table_is_a_dict_and_a_frame():
    assert Wide(30).to_dict()["column_0"][0] == FULL.to_dict()
    assert json.loads(json.dumps(Wide(3).to_dict()))["some"] == [False, False, True]
    frame = Wide(30).to_frame()
    assert frame.shape == (30, 2 + 3 * 6 + 1)
    assert frame["column_3_high"].tolist() == [0.6] * 30


def results():
    """Every result of metrics."""
    data = draw(300, 3)
    p, y = data.p, data.y
    yield metrics.evaluate(y, p)
    yield metrics.evaluate(y, p, by=np.arange(300) % 3)
    yield metrics.evaluate(np.eye(3)[y], p, by="label")
    for kind in ("top", "classwise"):
        yield metrics.reliability(y, p, kind=kind)
    yield metrics.corp_reliability(y, p)
    yield metrics.decompose(y, p)
    yield metrics.referral_curve(y, p)
    yield metrics.risk_coverage_curve(y, p)


def test_every_result_is_a_table():
    for found in results():
        assert all(len(line) <= 80 for line in str(found).splitlines())
        lengths = {len(column) for column in found.columns().values()}
        assert len(lengths) == 1
        assert len(found.to_frame()) == lengths.pop()
        assert json.loads(json.dumps(found.to_dict())).keys() == found.to_dict().keys()
        assert "<table>" in found._repr_html_()
