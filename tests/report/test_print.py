"""The report on paper: pages of the PDF that a browser prints, by the places of their text and by their pixels."""

import base64
import re
from itertools import pairwise

import numpy as np
import pytest

from attemper.data.scores import Scores
from attemper.report import render, summarise

PAPERS = {"A4": (8.27, 11.69), "Letter": (8.5, 11.0)}
SIDE, END = 12 / 25.4 * 72, 14 / 25.4 * 72  # margins of the style sheet, in points
SCALE = 2.0  # pixels for a point
NAMES = np.array(["north", "a site with a rather long name", "x" * 80])


def printed(browser, path, window, paper, background=False):
    """Return the document that a window of this width prints."""
    import pypdfium2

    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "", "features": []})
    screen = {"width": window, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", screen)
    browser.get(path.as_uri())
    width, height = PAPERS[paper]
    options = {"paperWidth": width, "paperHeight": height, "printBackground": background, "preferCSSPageSize": False}
    return pypdfium2.PdfDocument(base64.b64decode(browser.execute_cdp_cmd("Page.printToPDF", options)["data"]))


def words_of(page):
    """Return each word with its box: left, top, right, bottom, from the top of the page."""
    text, height = page.get_textpage(), page.get_height()
    found, word, boxes = [], "", []
    for i, sign in enumerate([*text.get_text_range(), " "]):
        box = None if sign.isspace() else text.get_charbox(i)
        apart = boxes and box is not None and (abs(box[1] - boxes[-1][1]) > 6 or box[0] - boxes[-1][2] > 8)
        if word and (box is None or apart):  # pieces in other places, such as numbers of an axis, have no space between
            a = np.array(boxes)
            found.append((word, (a[:, 0].min(), height - a[:, 3].max(), a[:, 2].max(), height - a[:, 1].min())))
            word, boxes = "", []
        if box is not None:
            word, boxes = word + sign, [*boxes, box]
    return found


def in_margin(page, words):
    """Return the words below the text: the title, and the number of the page."""
    return [text for text, box in words if box[1] > page.get_height() - END]


def overlaps(boxes):
    """Return for each two boxes the share of the smaller one that both cover."""
    a = np.array(boxes)
    low, high = np.maximum(a[:, None, :2], a[None, :, :2]), np.minimum(a[:, None, 2:], a[None, :, 2:])
    both = np.clip(high - low, 0, None).prod(axis=2)
    size = (a[:, 2:] - a[:, :2]).prod(axis=1)
    return np.triu(both / np.minimum(size[:, None], size[None, :]).clip(1e-9), 1)


def pixels_of(page):
    return np.asarray(page.render(scale=SCALE).to_pil().convert("RGB")).astype(int)


def check_pages(document):
    """Nothing but title and number lies outside the margins, and no text lies on other text."""
    for number, page in enumerate(document):
        width, height = page.get_size()
        words = words_of(page)
        assert "".join(in_margin(page, words)) == f"Calibrationreport{number + 1}/{len(document)}"
        words = [word for word in words if word[1][1] <= height - END]
        for text, (left, top, right, bottom) in words:
            assert left >= SIDE - 2, (number, text)
            assert right <= width - SIDE + 2, (number, text)
            assert top >= END - 4, (number, text)
            assert bottom <= height - END + 4, (number, text)
        covered = overlaps([box for _, box in words])
        assert covered.max() < 0.25, (number, [words[i] for i in np.unravel_index(covered.argmax(), covered.shape)])
        ink = (pixels_of(page) < 200).any(axis=2)
        assert ink.any(), number
        side, end = int((SIDE - 3) * SCALE), int((END - 5) * SCALE)
        for part in (ink[:, :side], ink[:, -side:], ink[:end]):
            assert not part.any(), number


@pytest.fixture(scope="module")
def long_page(tmp_path_factory):
    """Return a page with groups, clusters, a model card, descriptions and long names."""
    rng = np.random.default_rng(0)

    def drawn(n):
        z = 3 * rng.normal(size=(n, 5))
        y = (z / 2 + rng.gumbel(size=z.shape)).argmax(axis=1)
        return Scores.from_logits(z, y, groups=NAMES[rng.integers(3, size=n)], clusters=np.arange(n) // 2)

    classes = ["akiec", "bcc", "a class with a long name", "y" * 60, "nv"]
    found = summarise(
        *(drawn(400), drawn(800)),
        classes=classes,
        descriptions={"bcc": "basal cell carcinoma", "nv": "melanocytic nevus, a benign lesion of melanocytes"},
        card={"model": "a network", "intended use": "research " * 30},
        methods=["ts", "bayes", "vector"],
    )
    path = tmp_path_factory.mktemp("print") / "report.html"
    path.write_text(render(found), encoding="utf-8")
    return path


@pytest.mark.parametrize("window", [390, 800, 1400])
@pytest.mark.parametrize("paper", PAPERS)
def test_printed_from_any_window_nothing_is_cut_or_covered(browser, page, window, paper):
    document = printed(browser, page, window, paper)
    assert 4 <= len(document) <= 10
    check_pages(document)


@pytest.mark.parametrize("paper", PAPERS)
def test_long_names_and_all_sections_fit_the_paper(browser, long_page, paper):
    document = printed(browser, long_page, 1400, paper)
    check_pages(document)
    text = " ".join(" ".join(one.get_textpage().get_text_bounded().split()) for one in document)
    for heading in ("The model", "Class by class", "Which cases to refer", "By group", "Methods compared"):
        assert heading in text


def test_every_window_prints_the_same(browser, page):
    found = [[words_of(one) for one in printed(browser, page, window, "A4")] for window in (390, 800, 1400)]
    for one, other in pairwise(found):
        assert len(one) == len(other)
        for words, others in zip(one, other):
            assert [text for text, _ in words] == [text for text, _ in others]
            np.testing.assert_allclose([box for _, box in words], [box for _, box in others], atol=0.6)


def test_all_that_the_page_holds_is_on_paper(browser, page, summary):
    document = printed(browser, page, 1400, "A4")
    text = "".join("".join(one.get_textpage().get_text_bounded().split()) for one in document)
    sentences = summary["sentences"]
    for sentence in (*sentences["verdict"], *sentences["confidence"], *sentences["changed"], *sentences["referral"]):
        assert "".join(sentence.split()) in text.replace("\ufffe", "-"), sentence
    for caption in re.findall("<caption>(.*?)</caption>", page.read_text()):
        if caption != "Right predictions by confidence":  # a table that is closed
            assert "".join(caption.split()) in text, caption


def test_charts_are_whole(browser, page):
    """Both axes of a chart reach 100 %, and the last bar ends there, in its colour."""
    document = printed(browser, page, 1400, "A4")
    hundreds = [[box for text, box in words_of(one) if text == "100"] for one in document]
    assert sum(map(len, hundreds)) >= 8  # two axes of four charts
    first = document[0]
    ends = sorted(box[2] for box in hundreds[0] if box[1] > 200)[-4:]  # of the axes to the right, above the sign
    image = pixels_of(first)
    blue = (abs(image - [115, 177, 213]) < 15).all(axis=2)  # a bar on white
    columns = np.flatnonzero(blue.sum(axis=0) > 40) / SCALE
    middle = first.get_width() / 2
    lasts = columns[columns < middle].max(), columns.max()
    for last in lasts:
        assert min(abs(last - end) for end in ends) < 12
        bar = blue[:, int(SCALE * last) - 4]
        assert bar.sum() > 0.8 * np.ptp(np.flatnonzero(bar))  # in one piece


def last_line(page):
    words = [word for word in words_of(page) if word[1][1] <= page.get_height() - END]
    lowest = max(box[3] for _, box in words)
    return " ".join(text for text, box in sorted(words, key=lambda word: word[1][0]) if box[3] > lowest - 5)


def test_a_heading_is_never_the_last_of_a_page(browser, long_page):
    headings = set(re.findall(r"<(?:h2|h3)[^>]*>([^<{]+)<", long_page.read_text()))
    assert "Methods compared" in headings
    for paper in PAPERS:
        for number, page in enumerate(printed(browser, long_page, 800, paper)):
            last = last_line(page)
            assert last not in headings, number
            assert not re.match("(Class|Group|Method|True class) [A-Z]", last), number


def on_paper(browser, path):
    """Show a page as it is printed on A4, in a window as wide as the text."""
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print", "features": []})
    width = round((PAPERS["A4"][0] * 72 - 2 * SIDE) / 72 * 96)
    screen = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", screen)
    browser.get(path.as_uri())


def test_drawn_gaps_have_room(browser, long_page):
    on_paper(browser, long_page)
    widths = browser.execute_script(
        "return [...document.querySelectorAll('.forest')].map(e => e.getBoundingClientRect().width)"
    )
    assert len(widths) == 4
    assert min(widths) >= 96
    size = "return document.documentElement.scrollWidth <= document.documentElement.clientWidth"
    assert browser.execute_script(size)


def test_words_are_whole(browser, tmp_path):
    rng = np.random.default_rng(0)
    names = ["healthy", "dermatofibroma"]
    z = rng.normal(size=(200, 2))
    val, test = (Scores.from_logits(part, part.argmax(axis=1) ^ (rng.random(100) < 0.2)) for part in np.split(z, 2))
    path = tmp_path / "report.html"
    path.write_text(render(summarise(val, test, classes=names, methods=["ts"])), encoding="utf-8")
    on_paper(browser, path)
    # Columns as narrow as they can be.
    browser.execute_script("document.querySelectorAll('main table').forEach(e => { e.style.width = '1px'; })")
    script = (
        "return [...document.querySelectorAll('tbody th bdi')].map(e => [e.textContent, e.getClientRects().length])"
    )
    found = browser.execute_script(script)
    assert {text for text, _ in found} == set(names)
    assert {lines for _, lines in found} == {1}


def test_sizes_of_print_have_an_order(browser, long_page):
    on_paper(browser, long_page)
    script = """
        const size = (query) => parseFloat(getComputedStyle(document.querySelector(query)).fontSize);
        return Object.fromEntries(arguments[0].map((query) => [query, size(query)]));
    """
    queries = [
        *("h1", "h2", "h3", "p", "body", "footer", "table", ".tag", ".small", "td .interval"),
        *(".card-list dt", ".card-list dd", ".figures dt", ".figures b"),
    ]
    size = browser.execute_script(script, queries)
    assert size["h1"] > size["h2"] > size["h3"] > size["p"] == size["body"] > size["table"] > size["td .interval"]
    for small, large in (("footer", "p"), (".small", "p"), (".tag", "table"), (".card-list dt", ".card-list dd")):
        assert size[small] < size[large], small
    assert size[".figures dt"] < size[".figures b"]


def test_a_printed_cell_of_methods_has_few_lines(browser, page):
    on_paper(browser, page)
    script = """
        const lines = (e) => e.getBoundingClientRect().height / parseFloat(getComputedStyle(e).lineHeight);
        return [...document.querySelectorAll("#method-table td:nth-child(2)")].map((e) => [e.innerText, lines(e)]);
    """
    for text, lines in browser.execute_script(script):
        assert "chance" not in text
        assert lines <= 3.6, text


def test_the_border_of_the_last_card_is_whole(browser, long_page):
    """The right border of the second card is as high as the left border of the first."""
    for one in printed(browser, long_page, 1400, "A4"):
        if "Does the confidence mean the same" not in one.get_textpage().get_text_range():
            continue
        image = pixels_of(one)
        line = (image < 232).all(axis=2)
        left, right = (line[:, part].sum(axis=0).max() for part in (slice(0, 120), slice(-120, None)))
        assert left > 100
        assert right > 0.9 * left
        return
    raise AssertionError("no such page")


def test_dark_windows_print_on_white(browser, page):
    browser.get(page.as_uri())
    browser.execute_script("document.documentElement.dataset.theme = 'dark'")
    import pypdfium2

    found = browser.execute_cdp_cmd("Page.printToPDF", {"printBackground": True})["data"]
    image = pixels_of(pypdfium2.PdfDocument(base64.b64decode(found))[0])
    assert (image > 250).all(axis=2).mean() > 0.7
