"""Settings for all tests: the two tiers, and a browser for those of pages."""

import os
import shutil

import pytest
from hypothesis import HealthCheck, settings

# There is no GPU here: Triton's kernels run in its interpreter. It must be told before they are read.
os.environ["TRITON_INTERPRET"] = "1"
# Arrays are small, and pytest-xdist has a process for each core: threads would wait for each other.
for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(name, "1")

# Machines are shared and slow at times: no deadline. In CI the same examples every time.
for name, count in (("quick", 15), ("all", 60)):
    settings.register_profile(
        name,
        deadline=None,
        derandomize="CI" in os.environ,
        max_examples=count,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
    )


def pytest_configure(config):
    """Try more examples where the slow tier is run too."""
    settings.load_profile("quick" if config.option.markexpr == "not slow" else "all")


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
