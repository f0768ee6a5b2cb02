"""Settings for all tests: the two tiers, one maker of data, and a browser for those of pages."""

import os
import shutil
import sys
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from scipy.special import softmax

# Without a GPU, Triton's kernels run in its interpreter. It must be told before they are read.
HAS_TRITON = find_spec("triton") is not None  # on Linux alone
os.environ["TRITON_INTERPRET"] = "1"
# Arrays are small, and pytest-xdist has a process for each core: threads would wait for each other.
for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(name, "1")

# Machines may be slow: no deadline. In CI the same examples every time.
for name, count in (("quick", 15), ("all", 60)):
    settings.register_profile(
        name,
        deadline=None,
        derandomize="CI" in os.environ,
        max_examples=count,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
    )


class Drawn(SimpleNamespace):
    """What `draw` made; as a pair, logits and labels."""

    def __iter__(self):
        return iter((self.h, self.y))


def draw(n=800, k=5, t=2.0, noise=0.0, clusters=1, groups=1, masks=0.0, bias=0.0, seed=0):
    """Draw labels from softmax(logits / t): the one maker of data.

    A share ``noise`` of the labels is wrong. Rows of a cluster, so many each, have nearly the same logits and share
    what makes their label unlike the prediction. Each group has a temperature of its own, around t. A share ``masks``
    of the logits is −inf, never that of the label. The log-odds of class j are off by j·bias. Weights are whole; p are
    the probabilities that the logits claim.
    """
    rng = np.random.default_rng(seed)
    cases = -(-n // clusters)
    cluster = np.repeat(np.arange(cases), clusters)[:n]
    logits = 3 * rng.normal(size=(cases, k))[cluster]
    gumbel = rng.gumbel(size=(cases, k))[cluster]
    if clusters > 1:
        logits += 0.1 * rng.normal(size=(n, k))
    group = np.arange(n) % groups
    own_t = t * np.exp(0.5 * (group - (groups - 1) / 2))
    labels = (logits / own_t[:, None] + bias * np.arange(k) + gumbel).argmax(axis=1)
    wrong = rng.random(n) < noise
    labels[wrong] = (labels[wrong] + rng.integers(1, k, size=wrong.sum())) % k
    if masks:
        hidden = rng.random((n, k)) < masks
        hidden[np.arange(n), labels] = False
        logits = np.where(hidden, -np.inf, logits)
    weights = rng.integers(0, 4, size=n).astype(float)
    sites = np.array([f"site {g}" for g in range(groups)])[group]
    p = softmax(logits, axis=1)
    return Drawn(h=logits, y=labels, p=p, w=weights, cluster=cluster, group=sites, wrong=wrong)


def pytest_configure(config):
    """Try more examples where the slow tier is run too; leave out what needs Triton where there is none."""
    settings.load_profile("quick" if config.option.markexpr == "not slow" else "all")
    if not HAS_TRITON:  # its examples cannot even be looked for
        fused = Path(__file__).parents[1] / "src" / "attemper" / "torch" / "fused.py"
        config.option.ignore = [*(config.option.ignore or []), str(fused)]


def pytest_cmdline_main(config):
    """Give tests that share the browser (`xdist_group`) to one process, where there are several."""
    if getattr(config.option, "dist", "no") == "load":
        config.option.dist = "loadgroup"


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Put what needs the browser, which is started once, into a group of its own and into the slow tier."""
    for item in items:
        if "browser" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.xdist_group("browser"))
            item.add_marker(pytest.mark.slow)


def counted(report):
    """In CI, count what cannot run as failed: the machine lacks something."""
    if "CI" in os.environ and report.skipped and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = f"skipped, which counts as failed in CI: {report.longrepr[-1]}"
    return report


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport():
    return counted((yield))


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report():
    return counted((yield))


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty folder to work in."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(autouse=True)
def same_weights():
    """Networks of a test have the same weights every time."""
    if torch := sys.modules.get("torch"):
        torch.manual_seed(0)


@pytest.fixture(scope="module")
def one_torch_thread():
    """Small tensors: on a busy machine, threads that wait for each other take all the time."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--window-size=1200,900",
)


@pytest.fixture(scope="session")
def browser(tmp_path_factory):
    """Debian's Chromium."""
    chromium, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if chromium is None or driver is None:
        pytest.skip("chromium and chromedriver are needed: apt-get install chromium chromium-driver")
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for flag in (*FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('profile')}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    opened = webdriver.Chrome(options=options, service=Service(driver))
    opened.set_page_load_timeout(600)  # machines are shared
    opened.set_script_timeout(600)
    opened.get("about:blank")
    yield opened
    opened.quit()
