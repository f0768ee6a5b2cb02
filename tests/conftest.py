"""Settings for all tests, and a browser for those of pages."""

import os
import shutil

import pytest
from hypothesis import HealthCheck, settings

# There is no GPU here: Triton's kernels run in its interpreter. It must be told before they are read.
os.environ["TRITON_INTERPRET"] = "1"

# Machines are shared and slow at times: no deadline. In CI the same examples every time.
settings.register_profile(
    "attemper",
    deadline=None,
    derandomize="CI" in os.environ,
    max_examples=40,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
settings.load_profile("attemper")


def pytest_cmdline_main(config):
    """Give tests that share a cluster (`xdist_group`) to one process, where there are several."""
    if getattr(config.option, "dist", "no") == "load":
        config.option.dist = "loadgroup"


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
    opened.set_page_load_timeout(600)  # machines are shared
    opened.set_script_timeout(600)
    opened.get("about:blank")
    yield opened
    opened.quit()
