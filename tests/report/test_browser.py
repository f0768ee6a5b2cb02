"""A real browser opens the report: it asks for nothing, complains of nothing, and shows what Python computes."""

import base64
import json
import os
import re
import time
from copy import deepcopy

import numpy as np
import pytest
from selenium.common.exceptions import WebDriverException

from attemper.calibrators import METHODS, method_title
from attemper.data.scores import Scores
from attemper.maps import ScaleMap
from attemper.metrics import ece, nll, referral_curve, reliability
from attemper.report import render, summarise
from attemper.report.charts import SHARES, bar, curve, panels, reliability_frame
from attemper.report.numbers import count, fixed, percent, share

HOSTILE = [
    "<script>alert(1)</script>",
    "</script><img src=x onerror=alert(1)>",
    "\"quotes\" 'single' & <b>bold</b>",
    "emoji 🩺👩🏽‍⚕️",
    "مرحبا بالعالم",
    "x" * 500,
]


def drawn(n, n_classes, seed=0):
    rng = np.random.default_rng(seed)
    y = rng.integers(n_classes, size=n)
    h = 3 * rng.normal(size=(n, n_classes))
    h[np.arange(n), y] += 3
    return Scores.from_logits(h, y)


def opened(browser, path, width=1200, scheme="light", media="screen"):
    """Open a page; what the log held before is forgotten."""
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": media, "features": features})
    screen = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", screen)
    browser.get("about:blank")
    for kind in ("browser", "performance"):
        browser.get_log(kind)
    browser.get(path.as_uri())
    assert browser.execute_script("return document.documentElement.dataset.ready") == "yes"
    return browser


def requests(browser):
    """Addresses that were asked for; not those that the page's policy stopped before they left."""
    messages = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    stopped = {
        m["params"]["requestId"]
        for m in messages
        if m["method"] == "Network.loadingFailed" and m["params"].get("blockedReason") == "csp"
    }
    sent = [m["params"] for m in messages if m["method"] == "Network.requestWillBeSent"]
    return [one["request"]["url"] for one in sent if one["requestId"] not in stopped]


def texts(browser, attribute):
    script = "return Object.fromEntries([...document.querySelectorAll(`[${arguments[0]}]`)].map(e => " + (
        "[e.getAttribute(arguments[0]), e.textContent]))"
    )
    return browser.execute_script(script, attribute)


def cells(browser, table):
    script = "return [...document.querySelectorAll(arguments[0] + ' tbody tr')].map(r => [...r.cells].map(c => " + (
        "c.textContent.trim()))"
    )
    return browser.execute_script(script, table)


def move(browser, control, value):
    script = "const e = document.getElementById(arguments[0]); e.value = arguments[1]; " + (
        "e.dispatchEvent(new Event('input', {bubbles: true}))"
    )
    browser.execute_script(script, control, str(value))


def test_it_asks_for_nothing_and_complains_of_nothing(browser, page):
    opened(browser, page)
    for value in (0, 30, 60):
        move(browser, "t", value)
        move(browser, "threshold", value)
    browser.find_element("id", "theme").click()
    browser.execute_cdp_cmd("Page.printToPDF", {})
    assert browser.get_log("browser") == []
    urls = requests(browser)
    assert page.as_uri() in urls
    assert [url for url in urls if not url.startswith(("data:", page.as_uri()))] == []


def test_nothing_can_be_asked_for(browser, page):
    opened(browser, page)
    script = """
        const done = arguments[arguments.length - 1];
        fetch("https://example.com/").then(() => done("asked"), () => done("refused"));
    """
    assert browser.execute_async_script(script) == "refused"
    script = """
        const done = arguments[arguments.length - 1], image = new Image();
        image.onload = () => done("asked"); image.onerror = () => done("refused");
        image.src = "https://example.com/x.png";
    """
    assert browser.execute_async_script(script) == "refused"
    time.sleep(0.2)  # the log is written behind
    assert [url for url in requests(browser) if url.startswith("http")] == []
    assert all("Content Security Policy" in entry["message"] for entry in browser.get_log("browser"))


def test_a_notebook_shows_it_in_a_frame_of_its_own(browser, summary, tmp_path):
    """As Jupyter does: the page is in the frame, works there, and neither sees the notebook nor leaves the frame."""
    notebook = tmp_path / "notebook.html"
    ready = "<script>document.documentElement.dataset.ready = 'yes'</script>"
    notebook.write_text(f"<!doctype html><title>mine</title>{summary._repr_html_()}{ready}", encoding="utf-8")
    opened(browser, notebook)
    browser.switch_to.frame(0)
    try:
        for _ in range(100):
            if browser.execute_script("return document.documentElement.dataset.ready") == "yes":
                break
            time.sleep(0.1)
        values = summary["temperature"]["values"]
        move(browser, "t", 7)
        assert texts(browser, "data-t-out")["label"] == f"T = {summary['temperature']['labels'][7]}"
        assert len(values) > 7
        before = browser.execute_script("return scrollY")
        browser.execute_script("document.querySelector('nav a[href=\"#classes\"]').click()")
        time.sleep(0.5)
        assert browser.execute_script("return scrollY") > before
        assert browser.execute_script("return document.title") == summary["title"]
        with pytest.raises(WebDriverException):
            browser.execute_script("return parent.document.title")
    finally:
        browser.switch_to.default_content()
    assert browser.title == "mine"
    assert browser.get_log("browser") == []
    assert [url for url in requests(browser) if not url.startswith(("data:", "about:", notebook.as_uri()))] == []


def expected_at(t, test):
    probs = ScaleMap(1 / t).apply(test.values.astype(np.float64))
    shown = {
        "confidence": percent(probs.max(axis=1).mean()),
        "accuracy": percent((probs.argmax(axis=1) == test.labels).mean()),
        "ece": percent(ece(test.labels, probs)),
        "nll": fixed(nll(test.labels, probs), 4),
    }
    table = reliability(test.labels, probs)
    rows = []
    for n, *values in zip(table.weight, table.confidence, table.accuracy, table.low, table.high):
        c, a, low, high = (percent(v) for v in values)
        rows.append([f"{a}\u00a0%", f"{low} to {high}", f"{c}\u00a0%", count(n)] if n > 0 else ["–", "–", "–", "0"])
    return shown, rows


def bars_of(browser):
    """Return what is drawn of each bin of the diagram: title, number, bar, gap, and the whisker."""
    script = """
        const numbers = (e) => ["x", "y", "width", "height"].map((name) => Number(e.getAttribute(name)));
        return [...document.querySelectorAll("#reliability-chart .bin")].map((g) => g.hasAttribute("data-empty") ? null
          : [
            g.querySelector("title").textContent,
            g.querySelector(".n").textContent,
            g.classList.contains("few"),
            Number(g.querySelector(".n").getAttribute("x")),
            ...[".bar", ".gap"].flatMap((query) => numbers(g.querySelector(query))),
            g.querySelector(".whisker").getAttribute("d").split(/[^0-9.]+/).slice(1).map(Number),
          ]);
    """
    return browser.execute_script(script)


def expected_bars(state, n_classes=3):
    found = []
    for i, cell in enumerate(state["bins"]):
        b = bar(i, len(state["bins"]), cell, reliability_frame(n_classes))
        if b is None:
            found.append(None)
            continue
        numbers = [
            b["middle"],
            b["x"],
            b["right"],
            b["width"],
            b["height"],
            b["x"],
            b["gap"],
            b["width"],
            b["gap_height"],
        ]
        whisker = [float(part) for part in re.split("[^0-9.]+", b["whisker"])[1:]]
        found.append(
            [
                b["text"],
                b["n"],
                b["few"],
                *(pytest.approx(v, abs=0.11) for v in numbers),
                pytest.approx(whisker, abs=0.11),
            ]
        )
    return found


def test_the_temperature_slider_shows_what_python_computes(browser, page, summary, skin):
    opened(browser, page)
    values = summary["temperature"]["values"]
    for place in [*range(0, len(values), 7), *summary["temperature"]["marks"].values()]:
        move(browser, "t", place)
        found = texts(browser, "data-t-out")
        shown, rows = expected_at(values[place], skin[1])
        assert found.pop("label") == f"T = {summary['temperature']['labels'][place]}"
        assert found == shown
        assert [row[1:] for row in cells(browser, "#bins")] == rows
        assert bars_of(browser) == expected_bars(summary["temperature"]["states"][place])
        dots = browser.execute_script(
            "return [...document.querySelectorAll('#temperature-chart .here')].map(e => e.hasAttribute('data-empty') ? "
            "null : ['cx', 'cy'].map(a => Number(e.getAttribute(a))))"
        )
        expected = [
            None if (at := panel["places"][place]) is None else list(at) for panel in panels(summary["temperature"])
        ]
        assert dots == expected


def limits(part, total):
    found = share(float(part), float(total), 0.95)
    return "–" if found is None else f"{percent(found[1])} to {percent(found[2])}"


def expected_referral(test, probs, threshold, label):
    confidence, answer = probs.max(axis=1), probs.argmax(axis=1)
    low, wrong = confidence <= threshold, answer != test.labels
    curve = referral_curve(test.labels, probs, thresholds=[threshold])
    shown = {
        "threshold": label,
        "referred-limits": limits(low.sum(), len(test)),
        "caught-limits": limits((low & wrong).sum(), wrong.sum()),
        "error-limits": limits((~low & wrong).sum(), (~low).sum()),
        "referred": count(low.sum()),
        "caught": count((low & wrong).sum()),
        "errors": count(wrong.sum()),
        "slipped": count((~low & wrong).sum()),
        "kept": count((~low & ~wrong).sum()),
        "referred-share": percent(curve.referred[0]),
        "caught-share": percent(curve.errors_referred[0]),
        "error-rate": percent(curve.error_rate_decided[0]),
    }
    rows = []
    for k in range(test.n_classes):
        of = test.labels == k
        parts = (of & ~low & wrong, of & low & wrong, of & low, of & ~low & ~wrong, of)
        rows.append([count(part.sum()) for part in parts])
    return shown, rows


@pytest.mark.parametrize("method", ["none", "ts", "bayes"])
def test_the_threshold_slider_shows_what_python_computes(browser, page, summary, skin, method):
    val, test, _ = skin
    opened(browser, page)
    found = ScaleMap(1.0) if method == "none" else METHODS[method]().fit(val).map_
    probs = found.apply(test.values.astype(np.float64))
    move(browser, "method", summary["referral"]["methods"].index(method))
    thresholds, labels = (summary["referral"][key] for key in ("thresholds", "labels"))
    last = len(thresholds) - 1
    assert [thresholds[place] for place in (0, last)] == [0, 1]
    assert [round(float(label.removesuffix(" %")) / 100, 4) for label in labels] == thresholds
    for place in (0, 33, 50, 76, 100, 150, 200, last - 1, last):
        move(browser, "threshold", place)
        shown, rows = expected_referral(test, probs, thresholds[place], labels[place])
        assert texts(browser, "data-ref") == shown
        script = (
            "const e = document.getElementById('referral-dot'); return ['cx', 'cy'].map(a => Number(e.getAttribute(a)))"
        )
        x, y = curve(summary["referral"]["counts"][summary["referral"]["methods"].index(method)])[place]
        assert browser.execute_script(script) == pytest.approx([SHARES.at_x(x), SHARES.at_y(y)], abs=0.11)
        assert [row[1:] for row in cells(browser, "#referral-classes")] == rows


def test_choosing_a_method_changes_the_figures(browser, page, summary):
    from selenium.webdriver.support.select import Select

    opened(browser, page)
    referral = summary["referral"]
    assert texts(browser, "data-ref")["referred"] in " ".join(summary["sentences"]["referral"])
    for key in ("referred-limits", "caught-limits", "error-limits"):
        assert f"({texts(browser, 'data-ref')[key]})" in " ".join(summary["sentences"]["referral"])
    for place, method in enumerate(referral["methods"]):
        Select(browser.find_element("id", "method")).select_by_index(place)
        right, wrong = (referral["counts"][place][key][0] for key in ("right", "wrong"))
        found = texts(browser, "data-ref")
        assert found["errors"] == count(wrong[-1]), method
        assert found["referred"] == count(right[referral["start"]] + wrong[referral["start"]]), method
    # A browser that only tells of the change when the list closes.
    script = "const e = document.getElementById('method'); e.value = '0'; e.dispatchEvent(new Event('change'))"
    browser.execute_script(script)
    assert texts(browser, "data-ref")["caught"] == count(referral["counts"][0]["wrong"][0][referral["start"]])


def test_one_line_where_methods_coincide_and_the_legend_names_them_all(browser, page, summary):
    opened(browser, page)
    script = """
        const style = (e) => [getComputedStyle(e).stroke, getComputedStyle(e).strokeDasharray];
        const lines = [...document.querySelectorAll("#referral-chart .curve")];
        const legend = [...document.querySelectorAll("#referral-chart ~ .legend li")];
        return [
          lines.map((e) => [e.dataset.methods, ...style(e)]),
          legend.map((e) => [e.textContent.trim(), ...style(e.querySelector(".curve"))]),
        ];
    """
    lines, legend = browser.execute_script(script)
    assert [line[1:] for line in lines] == [entry[1:] for entry in legend]
    groups = [[int(i) for i in line[0].split()] for line in lines]
    assert sorted(i for group in groups for i in group) == list(range(len(summary["referral"]["methods"])))
    assert any(len(group) > 1 for group in groups)  # temperatures do not change the order of the samples by much
    for group, (text, *_) in zip(groups, legend):
        assert all(method_title(summary["referral"]["methods"][i]) in text for i in group)
        assert ("the same line" in text) == (len(group) > 1)
    assert len({tuple(line[1:]) for line in lines}) == len(lines)
    chosen = [summary["referral"]["first_method"] in group for group in groups].index(True)
    assert lines[chosen][2] == "none"  # a solid line
    for place, _ in enumerate(summary["referral"]["methods"]):
        move(browser, "method", place)
        lines, legend = browser.execute_script(script)
        assert [line[1:] for line in lines] == [entry[1:] for entry in legend]
        assert [line[2] for line, group in zip(lines, groups) if place in group] == ["none"]


def test_the_first_view_is_the_same_without_scripts(browser, page):
    """The template's numbers are those that the script sets on opening."""
    opened(browser, page)
    script = """
        const fresh = new DOMParser().parseFromString(arguments[0], "text/html");
        const ids = ["t-says", "t-value", "bins", "threshold-says", "threshold-value", "referral-classes"];
        const words = (d, id) => d.getElementById(id).textContent.replace(/\\s+/g, " ");
        return ids.filter((id) => words(fresh, id) !== words(document, id));
    """
    assert browser.execute_script(script, page.read_text()) == []
    shapes = """
        const fresh = new DOMParser().parseFromString(arguments[0], "text/html");
        const drawn = (d) => [...d.querySelectorAll("#reliability-chart .bin, #referral .curve")].map((e) => [
          e.getAttribute("class"), e.hasAttribute("data-empty"), e.textContent.replace(/\\s+/g, " ")].join("|"));
        return [drawn(fresh), drawn(document)];
    """
    fresh, now = browser.execute_script(shapes, page.read_text())
    assert fresh == now


def test_the_keyboard_is_enough(browser, page, summary):
    from selenium.webdriver.common.keys import Keys

    opened(browser, page)
    slider = browser.find_element("id", "t")
    slider.send_keys(Keys.HOME)
    labels = summary["temperature"]["labels"]
    assert slider.get_attribute("aria-valuetext") == f"T = {labels[0]}"
    slider.send_keys(Keys.ARROW_RIGHT, Keys.ARROW_RIGHT)
    assert texts(browser, "data-t-out")["label"] == f"T = {labels[2]}"
    threshold = browser.find_element("id", "threshold")
    threshold.send_keys(Keys.END)
    assert texts(browser, "data-ref")["referred"] == count(3205)
    threshold.send_keys(Keys.ARROW_LEFT)
    assert threshold.get_attribute("aria-valuetext") == f"confidence {summary['referral']['labels'][-2]}"
    button = browser.find_element("css selector", "[data-method='bayes']")
    button.send_keys(Keys.ENTER)
    assert button.get_attribute("aria-pressed") == "true"
    state = summary["temperature"]["methods"]["bayes"]
    assert texts(browser, "data-t-out")["ece"] == percent(state["ece"])
    assert texts(browser, "data-t-out")["label"] == "Bayesian temperature scaling"
    assert slider.get_attribute("aria-valuetext").startswith("not used: Bayesian temperature scaling is not a single")
    assert browser.find_element("id", "t-value").text == "not used"
    assert bars_of(browser) == expected_bars(state)
    slider.send_keys(Keys.ARROW_RIGHT)
    assert button.get_attribute("aria-pressed") == "false"
    assert slider.get_attribute("aria-valuetext") == texts(browser, "data-t-out")["label"]
    # Every control can be reached with the Tab key.
    browser.execute_script("document.activeElement.blur(); window.scrollTo(0, 0)")
    reached = []
    for _ in range(40):
        browser.switch_to.active_element.send_keys(Keys.TAB)
        reached.append(browser.execute_script("return document.activeElement.id"))
    assert {"theme", "t", "method", "threshold"} <= set(reached)


def test_controls_have_accessible_names(browser, page):
    opened(browser, page)
    nodes = browser.execute_cdp_cmd("Accessibility.getFullAXTree", {})["nodes"]
    roles = ("slider", "button", "combobox", "link", "image", "table", "region")
    found = [(n["role"]["value"], n.get("name", {}).get("value", "")) for n in nodes if not n["ignored"]]
    assert ("slider", "Temperature T") in found
    assert ("slider", "Refer up to") in found
    assert ("combobox", "Confidence of") in found
    assert [role for role, name in found if role in roles and role != "table" and not name.strip()] == []


def test_hostile_text_is_text(browser, tmp_path):
    ids = [HOSTILE[i % 6] for i in range(120)]
    files = [{"name": name, "role": "test", "bytes": 1, "sha256": "0"} for name in HOSTILE]
    told = {"classes": HOSTILE, "ids": ids, "title": HOSTILE[1], "files": files}
    path = tmp_path / "hostile <b> & 'page'.html"
    path.write_text(render(summarise(drawn(100, 6), drawn(120, 6, 1), methods=["ts"], **told)), encoding="utf-8")
    opened(browser, path, width=380)
    names = browser.execute_script("return [...document.querySelectorAll('bdi')].map(e => e.textContent)")
    assert all(names.count(name) >= 3 for name in HOSTILE)
    assert browser.title == HOSTILE[1]
    assert browser.execute_script("return [document.scripts.length, document.images.length]") == [2, 0]
    assert browser.execute_script("return document.documentElement.scrollWidth") <= 380
    assert browser.get_log("browser") == []


def test_one_button_is_pressed_where_two_have_the_same_temperature(browser, summary, tmp_path):
    found = deepcopy(dict(summary))
    temperature = found["temperature"]
    temperature["marks"]["ts"] = temperature["start"] = temperature["marks"]["none"]
    temperature["chosen"] = None
    path = tmp_path / "report.html"
    path.write_text(render(found), encoding="utf-8")
    opened(browser, path)
    script = "return [...document.querySelectorAll('[aria-pressed=true]')].map(b => b.textContent.split(':')[0])"
    assert browser.execute_script(script) == [method_title("none")]
    for method in ("ts", "none", "ts"):
        buttons = browser.find_elements("css selector", ".buttons button")
        next(button for button in buttons if button.text.startswith(method_title(method))).click()
        assert browser.execute_script(script) == [method_title(method)]
    move(browser, "t", 0)
    assert browser.execute_script(script) == []


def test_two_classes_are_drawn_from_a_half_on(browser, tmp_path):
    found = summarise(drawn(300, 2), drawn(300, 2, 1), methods=["ts"])
    path = tmp_path / "report.html"
    path.write_text(render(found), encoding="utf-8")
    opened(browser, path)
    for place in (0, 30, len(found["temperature"]["values"]) - 1):
        move(browser, "t", place)
        assert bars_of(browser) == expected_bars(found["temperature"]["states"][place], 2)


def boxes(browser, query):
    script = """
        return [...document.querySelectorAll(arguments[0])].filter((e) => !e.closest("[data-empty]")).map((e) => {
          const box = e.getBoundingClientRect();
          return [box.left, box.top, box.right, box.bottom];
        });
    """
    return np.array(browser.execute_script(script, query))


@pytest.mark.parametrize("width", [390, 1400])
def test_numbers_of_bins_have_room(browser, page, summary, width):
    opened(browser, page, width)
    for place in (0, summary["temperature"]["marks"]["none"], 60):
        move(browser, "t", place)
        numbers = boxes(browser, "#reliability-chart .bin .n")
        assert (numbers[1:, 0] >= numbers[:-1, 2] - 0.5).all()  # side by side
        labels = boxes(browser, "#reliability-chart .axes text.x:not(.title)")
        bars = boxes(browser, "#reliability-chart .bin .bar")
        assert numbers[:, 3].max() <= labels[:, 1].min() + 3
        assert numbers[:, 1].min() >= bars[:, 3].max() - 1
        assert (
            boxes(browser, "#reliability-chart > .n")[0, 1] >= boxes(browser, "#reliability-chart .axes .y")[0, 3] - 4
        )


def test_on_a_phone_legends_follow_their_chart_and_captions_can_be_read(browser, page):
    opened(browser, page, width=390)
    chart, legend, other = (
        boxes(browser, query)[0] for query in ("#reliability-chart", "#reliability .legend", "#temperature-chart")
    )
    assert chart[3] <= legend[1] < legend[3] <= other[1]
    script = """
        return [...document.querySelectorAll("main .wide caption")].filter((e) => e.offsetParent).map((caption) => {
          const words = document.createRange();
          words.selectNodeContents(caption);
          const first = words.getBoundingClientRect();
          caption.closest(".scroll").scrollLeft = 200;
          const moved = words.getBoundingClientRect();
          return [caption.textContent, first.left, first.right, moved.left, moved.right];
        });
    """
    found = browser.execute_script(script)
    assert len(found) >= 4
    for text, *ends in found:
        assert min(ends) >= 0, text
        assert max(ends) <= 390, text


@pytest.mark.parametrize("n_classes", [2, 1000])
def test_few_and_many_classes_open(browser, tmp_path, n_classes):
    path = tmp_path / "report.html"
    path.write_text(render(summarise(drawn(100, n_classes), drawn(100, n_classes, 1), methods=["ts"])))
    opened(browser, path)
    move(browser, "threshold", browser.find_element("id", "threshold").get_attribute("max"))
    assert texts(browser, "data-ref")["referred"] == "100"
    assert browser.get_log("browser") == []
    assert len(requests(browser)) >= 1


def test_python_and_the_browser_round_alike(browser):
    rng = np.random.default_rng(0)
    values = [*(rng.random(500) * 100).tolist(), *(np.arange(64) / 16).tolist(), 0.125, 2.5, 1e20, 0.0, 5e-324]
    for digits in (0, 1, 2, 4):
        found = browser.execute_script("return arguments[0].map(v => v.toFixed(arguments[1]))", values, digits)
        assert found == [fixed(v, digits) for v in values]


@pytest.mark.parametrize(
    ("name", "width", "scheme", "media"),
    [
        ("light", 1200, "light", "screen"),
        ("dark", 1200, "dark", "screen"),
        ("narrow", 380, "light", "screen"),
        ("print", 794, "dark", "print"),
    ],
)
def test_it_fits_every_screen_and_paper(browser, page, tmp_path, name, width, scheme, media):
    """Look at the pictures: ATTEMPER_SCREENSHOTS=folder keeps them."""
    opened(browser, page, width, scheme, media)
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width
    size = browser.execute_script("return document.documentElement.scrollHeight")
    screen = {"width": width, "height": size, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", screen)
    redrawn = "const done = arguments[0]; requestAnimationFrame(() => requestAnimationFrame(done))"
    browser.execute_async_script(redrawn)  # charts take their new size
    picture = base64.b64decode(browser.execute_cdp_cmd("Page.captureScreenshot", {"format": "png"})["data"])
    folder = os.environ.get("ATTEMPER_SCREENSHOTS")
    path = (tmp_path if folder is None else tmp_path.__class__(folder)) / f"report-{name}.png"
    path.write_bytes(picture)
    from PIL import Image

    with Image.open(path) as image:
        corner = image.convert("RGB").getpixel((2, 2))
        colours = len(set(image.convert("RGB").resize((200, 1000)).get_flattened_data()))
    assert colours > 50  # charts are drawn
    assert (max(corner) < 60) == (name == "dark")


def test_wide_tables_scroll_and_point_it_out(browser, page):
    """On a phone a hint stands above each table that is cut, and its first column stays; on a screen there is none."""
    script = """
        return [...document.querySelectorAll("main .wide")].filter((e) => e.offsetParent).map((part) => {
          const [scroll, hint, name] = [".scroll", ".hint", "tbody th"].map((query) => part.querySelector(query));
          scroll.scrollLeft = 1000;
          const moved = scroll.scrollLeft > 0;
          return [moved, !hint.hidden, name.getBoundingClientRect().left - scroll.getBoundingClientRect().left];
        });
    """
    opened(browser, page, width=390)
    found = browser.execute_script(script)
    assert len(found) >= 4
    assert any(moved for moved, _, _ in found)
    for moved, hinted, shift in found:
        assert moved == hinted
        assert abs(shift) < 2
    opened(browser, page, width=1400)
    assert not any(hinted for _, hinted, _ in browser.execute_script(script))


def test_tables_have_captions(browser, page):
    opened(browser, page)
    script = "return [...document.querySelectorAll('main table')].map(t => t.caption?.textContent.trim() ?? '')"
    assert all(browser.execute_script(script))
