"""Data and pages for the tests of reports."""

from __future__ import annotations

import numpy as np
import pytest

import attemper
from attemper import Scores
from attemper.report import render, summarise

GROUPS = np.array(["north", "<script>alert(1)</script>", "south & east", "مرحبا"])


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
def page(summary):
    return render(summary)


def grouped(n, seed, names=GROUPS, per_cluster=None):
    rng = np.random.default_rng(seed)
    group = rng.integers(len(names), size=n)
    z = 2 * rng.normal(size=(n, 3))
    t = np.where(group == 0, 6.0, 1.5)
    y = (z / t[:, None] + rng.gumbel(size=z.shape)).argmax(axis=1)
    clusters = None if per_cluster is None else np.arange(n) // per_cluster
    return Scores.from_logits(z, y, groups=names[group], clusters=clusters)


@pytest.fixture(scope="session")
def by_site():
    """Return the summary of a report with groups, and the scores that it is of."""
    val, test = grouped(400, 0), grouped(800, 1)
    return summarise(val, test, methods=["ts"]), test
