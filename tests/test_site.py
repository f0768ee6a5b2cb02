"""The documentation as a site: it is built without a warning, complete, and asks the network for nothing."""

import functools
import html
import importlib
import inspect
import json
import os
import re
import subprocess
import sys
import threading
import time
import tomllib
from html.parser import HTMLParser
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from selenium.webdriver.support.ui import WebDriverWait

import attemper
from attemper.cli.commands import cli

ROOT = Path(__file__).parents[1]
NOTEBOOK = "outside/examples/notebooks/tabular"

# What the reference shows in full. The names of attemper itself are on the pages of their modules.
MODULES = [
    f"attemper.{name}"
    for name in (
        "metrics",
        "decisions",
        "drift",
        "priors",
        "tokens",
        "sharded",
        "torch.ensembles",
        "export",
        "torch.losses",
        "comparison",
        "testing",
        "plots",
        "report",
        "datasets",
        "errors",
        "calibrators",
    )
]


@pytest.fixture(scope="session")
def site(tmp_path_factory):
    """Build the site as `make docs` does; a warning is a failure."""
    folder = tmp_path_factory.mktemp("docs") / "site"
    path = os.pathsep.join(filter(None, [str(ROOT / "src"), os.environ.get("PYTHONPATH")]))
    built = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)],
        cwd=ROOT,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1", "PYTHONPATH": path},
        capture_output=True,
        text=True,
    )
    assert built.returncode == 0, built.stderr
    return folder


@pytest.fixture(scope="session")
def address(site):
    """Serve the site on this machine."""

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *args):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(site))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


def texts_of_links(page):
    return re.findall(r"(?<!!)\[([^\]]+)\]\((?!https?:)", page.read_text(encoding="utf-8"))


def test_the_text_of_a_link_is_a_title_and_not_a_file_name():
    pages = [
        ROOT / "README.md",
        ROOT / "CONTRIBUTING.md",
        *ROOT.glob("docs/**/*.md"),
        *ROOT.glob("examples/*/README.md"),
    ]
    names = [
        f"{p.name}: {t}" for p in pages for t in texts_of_links(p) if re.fullmatch(r"`?[\w./-]+\.md`?|[\w./-]+\.\w+", t)
    ]
    assert names == []


class Fetched(HTMLParser):
    """Collects the addresses that a browser fetches by itself to show a page."""

    def __init__(self):
        super().__init__()
        self.found = []

    def handle_starttag(self, tag, attributes):
        told = dict(attributes)
        self.found += [told[name] for name in ("src", "srcset", "poster", "data") if told.get(name)]
        if tag == "link" and told.get("rel") not in ("prev", "next", "canonical"):
            self.found.append(told["href"])


def test_what_pages_fetch_is_part_of_the_site(site):
    pages = sorted(site.rglob("*.html"))
    assert len(pages) > 50
    for page in pages:
        parser = Fetched()
        parser.feed(page.read_text(encoding="utf-8"))
        for address in parser.found:
            if address.startswith("data:"):
                continue
            assert "//" not in address, f"{page.name}: {address}"
            if page.name != "404.html":  # its addresses are absolute
                assert (page.parent / address.partition("?")[0]).is_file(), f"{page.name}: {address}"
    for sheet in site.rglob("*.css"):
        assert not re.search(r"url\(\W*(https?:)?//|@import", sheet.read_text(encoding="utf-8")), sheet.name


def test_what_is_outside_docs_is_part_of_the_site(site):
    home = (site / "index.html").read_text(encoding="utf-8")
    assert 'href="outside/data.html"' in home
    report = "examples/skin_lesions/report.html"
    assert (site / "outside" / report).read_bytes() == (ROOT / report).read_bytes()
    assert f'href="outside/{report}"' in (site / "report.html").read_text(encoding="utf-8")
    assert 'href="experiments/zoo.html"' in (site / "outside/data.html").read_text(encoding="utf-8")


# What a reader looks for, in words of theirs: the link of the home page has the words, and leads to the page.
TASKS = {
    "install": "install.md",
    "fit csv": "tables.md",
    "fit pandas": "tables.md",
    "fit torch": "wrapper.md#a-pytorch-module",
    "scikit-learn classifier": "wrapper.md",
    "onnx": "export.md#onnx",
    "guaranteed error rate": "referral.md",
    "noisy labels": "noise.md",
    "labels wrong": "noise.md",
    "conformal": "sets.md",
    "few labels": "planning.md",
    "language models": "llm.md",
    "drift": "drift.md",
    "jupyter": "notebooks.md",
}


@pytest.mark.parametrize("words,page", TASKS.items())
def test_a_task_is_one_click_from_home(words, page):
    links = re.findall(r"\[([^\]]+)\]\(([^)]+)\)", (ROOT / "docs/index.md").read_text(encoding="utf-8"))
    assert page in [target for text, target in links if all(word in text.lower() for word in words.split())]


def test_the_page_of_the_installation_has_every_extra_and_every_dependency():
    text = (ROOT / "docs/install.md").read_text(encoding="utf-8")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert f"Python {project['requires-python'].removeprefix('>=')} or newer" in text
    for extra, needs in project["optional-dependencies"].items():
        [row] = [line for line in text.splitlines() if line.startswith(f"| `{extra}` |")]
        assert all(re.match(r"[\w-]+", need)[0] in row for need in needs if extra != "test")
    for need in project["dependencies"]:
        assert re.match(r"[\w-]+", need)[0] in text


# What users type, and the page that answers; the first result must be it.
QUERIES = {
    "pandas": "tables",
    "polars": "tables",
    "CSV": "tables",
    "parquet": "tables",
    "CalibratedClassifierCV": "wrapper",
    "prefit": "wrapper",
    "PyTorch": "export",
    "Jupyter": "notebooks",
    "Hugging Face": "formats",
    "torchmetrics": "metrics",
    "logging": "errors",
    "conformal": "sets",
    "install": "install",
    "ONNX": "export",
    "noisy labels": "noise",
    "wrong labels": "noise",
    "referral": "referral",
    "drift": "drift",
    "LLM": "llm",
    "segmentation": "segmentation",
}


def searched(browser, words):
    """Return the pages that the site's own search shows, best first."""
    links = "[...document.querySelectorAll('.md-search-result__item')].map(item => item.querySelector('a').href)"
    box = browser.find_element("css selector", "[data-md-component=search-query]")
    browser.execute_script("arguments[0].focus()", box)
    box.clear()
    wait = WebDriverWait(browser, 300, poll_frequency=0.1)  # machines are shared
    wait.until_not(lambda _: browser.execute_script(f"return {links}"))
    box.send_keys(words)
    wait.until(lambda _: browser.execute_script(f"return {links}"))
    shown = None
    while shown != (shown := browser.execute_script(f"return {links}")):
        time.sleep(0.3)  # a search for the words so far may have been first
    return [re.sub(r"[?#].*", "", link) for link in shown]


def test_the_search_finds_how_tos_and_shows_them_before_the_tables_of_the_paper(browser, address):
    screen = {"width": 1400, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", screen)
    browser.get(f"{address}index.html")
    found = {words: searched(browser, words)[0] for words in QUERIES}
    assert found == {words: f"{address}{page}.html" for words, page in QUERIES.items()}
    for words in ("ECE", "temperature", "NLL", "accuracy"):
        assert not any("/results/" in page for page in searched(browser, words)[:5])


def test_notebooks_are_pages_with_their_outputs(site):
    for name, cells in (("tabular", 15), ("language_model", 12)):
        page = (site / f"outside/examples/notebooks/{name}.html").read_text(encoding="utf-8")
        assert page.count('class="language-python') >= cells
        assert page.count("data:image/png;base64,") >= 3
        assert page.count("<table") >= 5
        assert f'href="outside/examples/notebooks/{name}.html"' in (site / "notebooks.html").read_text(encoding="utf-8")


def test_every_command_is_told(site):
    text = html.unescape(re.sub(r"<[^>]+>", "", (site / "reference/commands.html").read_text(encoding="utf-8")))
    assert len(cli.commands) >= 12
    for name, command in cli.commands.items():
        assert f"Usage: attemper {name} " in text
        for option in [o for p in command.params for o in p.opts if o.startswith("--") and not getattr(p, "hidden", 0)]:
            assert option in text


def test_every_public_name_is_in_the_reference(site):
    pages = [page.read_text(encoding="utf-8") for page in (site / "reference").glob("*.html")]
    found = {name for page in pages for name in re.findall(r'id="(attemper\.[\w.]+)"', page)}
    for module in MODULES:
        names = importlib.import_module(module)
        for name in names.__all__:
            # Where a module gathers names from files of its own or of others, the file is part of the name.
            home = getattr(getattr(names, name), "__module__", module)
            assert any(
                shown.startswith((f"{module}.", f"{home}.")) and shown.endswith(f".{name}") for shown in found
            ), name
    shown = {name.rpartition(".")[2] for name in found}
    things = {name for name in attemper.__all__ if not inspect.ismodule(getattr(attemper, name))}
    assert things - {"__version__"} <= shown


def test_formulas_examples_and_fields_are_drawn(site):
    pages = {page.stem: page.read_text(encoding="utf-8") for page in (site / "reference").glob("*.html")}
    whole = "".join(pages.values())
    assert "math:" not in whole
    assert "<math " in pages["metrics"]
    assert "<blockquote>" not in whole  # what >>> is to Markdown
    assert "<p>&gt;&gt;&gt;" not in whole
    assert "of the misclassified samples, those referred" in pages["metrics"]  # a comment beside a field


def has_example(thing):
    inside = vars(thing).values() if inspect.isclass(thing) else ()
    return any(">>> " in (getattr(part, "__doc__", None) or "") for part in (thing, *inside))


def test_every_public_name_has_an_example():
    modules = ["attemper", *MODULES]
    public = {name: getattr(m, name) for m in map(importlib.import_module, modules) for name in m.__all__}
    public = {name: thing for name, thing in public.items() if inspect.isclass(thing) or inspect.isfunction(thing)}
    assert len(public) > 100
    for name, thing in public.items():
        kin = thing.__mro__ if inspect.isclass(thing) and issubclass(thing, Exception) else (thing,)
        named = [public[word] for word in re.findall(r"`(\w+)`", thing.__doc__) if word in public]
        assert any(map(has_example, (*kin, *named))), name


@pytest.mark.parametrize("width,scheme", [(400, "dark"), (1280, "light")])
def test_a_browser_shows_pages_without_complaint(browser, address, width, scheme):
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "screen", "features": features})
    screen = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", screen)
    browser.get("about:blank")
    for kind in ("browser", "performance"):
        browser.get_log(kind)
    for page in (
        "index",
        "tutorial",
        "errors",
        "benchmarks",
        "benchmarks/annotators",
        "reference/metrics",
        "reference/commands",
        NOTEBOOK,
    ):
        browser.get(f"{address}{page}.html")
        assert browser.execute_script("return document.body.dataset.mdColorScheme") == (
            "slate" if scheme == "dark" else "default"
        )
        # Wide tables and code scroll by themselves; the page does not.
        assert browser.execute_script("return document.documentElement.scrollWidth") <= width, page
    assert [entry["message"] for entry in browser.get_log("browser")] == []
    messages = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    sent = [m["params"]["request"]["url"] for m in messages if m["method"] == "Network.requestWillBeSent"]
    assert len(sent) > 20
    assert [url for url in sent if not url.startswith((address, "data:"))] == []
