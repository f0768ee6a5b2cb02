"""Data, pages and a browser for the tests of reports."""

from __future__ import annotations

import os
import shutil

import pytest

import attemper
from attemper.report import render, summarise
from attemper.scores import Scores

FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--window-size=1200,900",
)


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


@pytest.fixture(scope="session")
def browser(tmp_path_factory):
    """Debian's Chromium; where there is none, a failure in CI and a skip elsewhere."""
    chromium, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if chromium is None or driver is None:
        missing = "chromium and chromedriver are needed: apt-get install chromium chromium-driver"
        if os.environ.get("CI"):
            pytest.fail(missing)
        pytest.skip(missing)
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for flag in (*FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('profile')}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    opened = webdriver.Chrome(options=options, service=Service(driver))
    opened.get("about:blank")
    yield opened
    opened.quit()
