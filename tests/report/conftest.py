"""Data and pages for the tests of reports."""

from __future__ import annotations

import pytest

import attemper
from attemper.data.scores import Scores
from attemper.report import render, summarise


@pytest.fixture(scope="session")
def skin():
    """Return validation and test scores of the bundled network, and its class names."""
    data = attemper.datasets.load()
    val = Scores.from_logits(data.val_logits, data.val_labels)
    return val, Scores.from_logits(data.test_logits, data.test_labels), data.class_names


@pytest.fixture(scope="session")
def summary(skin):
    val, test, names = skin
    return summarise(val, test, classes=names, methods=["ts", "ats", "bayes", "vector"])


@pytest.fixture(scope="session")
def page(summary, tmp_path_factory):
    path = tmp_path_factory.mktemp("report") / "report.html"
    path.write_text(render(summary), encoding="utf-8")
    return path
