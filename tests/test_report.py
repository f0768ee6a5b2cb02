"""The page: its numbers are those of the metrics, text is escaped, nothing is requested, and the control works."""

import base64
import hashlib
import html.parser
import json
import re
import shlex
from dataclasses import replace
from functools import cache
from types import SimpleNamespace

import numpy as np
import pytest
from sklearn.metrics import confusion_matrix, precision_score, recall_score

import attemper
from attemper import METHODS, GroupedCalibrator, metrics, report
from attemper._result import Estimate
from attemper.cli import main
from attemper.comparison import compare_scores
from attemper.data.scores import Scores
from attemper.decisions import outcome_of
from attemper.errors import InputError
from attemper.metrics.evaluation import evaluate_predictions
from attemper.metrics.intervals import share_of
from attemper.report.summary import ERRORS, summarise
from attemper.report.verdict import _again, _class, _rule, about, findings, focus, groups_off, next_steps
from conftest import draw

EVIL = "<script>alert(1)</script>"
CARD = {"model": EVIL, "classes": {"apple": EVIL}}
CLASSES = ("apple", EVIL, 'pear" onload="x', "quince")


def hostile(n, seed=0):
    """Scores with ids, clusters and groups, one of each hostile."""
    ids = np.array([f"{EVIL} {seed} {i}" for i in range(n)])
    clusters = np.array([f"{seed} case {i // 2} {EVIL}" for i in range(n)])
    groups = np.array(["one", EVIL])[np.arange(n) % 2]
    return Scores.of(*draw(n, 4, seed=seed), classes=CLASSES, ids=ids, clusters=clusters, groups=groups)


class Page(html.parser.HTMLParser):
    """Tables by id, as rows of texts; the elements with their attributes; the text of style and script."""

    def __init__(self, text):
        super().__init__()
        self.tables, self.elements, self.raw, self.where = {}, [], {}, None
        self.text = text
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag == "table":
            self.rows = self.tables.setdefault(dict(attrs)["id"], [])
        elif tag == "tr":
            self.rows.append([])
        elif tag in ("th", "td"):
            self.rows[-1].append("")
            self.where = "cell"
        elif tag in ("style", "script"):
            self.where = tag

    def handle_endtag(self, tag):
        if tag in ("th", "td", "style", "script"):
            self.where = None

    def handle_data(self, data):
        if self.where == "cell":
            self.rows[-1][-1] += data
        elif self.where:
            self.raw[self.where] = self.raw.get(self.where, "") + data

    def body(self, name):
        """Rows below the head; the first number of each cell."""
        return [[cell if i == 0 else number(cell) for i, cell in enumerate(row)] for row in self.tables[name][1:]]

    def column(self, name, i):
        return [row[i] for row in self.body(name)]


def number(cell):
    """Return the number that a cell begins with; shares are in per cent."""
    found = re.match(r"[+-]?[\d.]+", cell)
    return float(found[0]) / (100 if cell[found.end() :].startswith("%") else 1) if found else None


def near(values, expected, digits=3):
    """Compare with what is written with so many decimals."""
    np.testing.assert_allclose(values, expected, rtol=0, atol=0.5001 * 10.0**-digits)


@pytest.fixture(scope="module")
def comparison():
    return compare_scores(hostile(500), hostile(700, seed=1), methods=["ts", "bayes", "structured"])


@pytest.fixture(scope="module")
def page(comparison):
    return Page(report.render(comparison, card=CARD, title=f"T {EVIL}"))


@pytest.fixture(scope="module")
def after(comparison):
    return comparison.predictions(comparison.chosen)


def test_class_table_and_confusion_matrix(page, after):
    n = np.bincount(after.labels)
    assert page.column("class-table", 1) == n.tolist()
    near(page.column("class-table", 2), recall_score(after.labels, after.prediction, average=None))
    near(page.column("class-table", 4), precision_score(after.labels, after.prediction, average=None))
    expected = confusion_matrix(after.labels, after.prediction)
    assert [row[1:] for row in page.body("matrix")] == expected.tolist()


def test_thresholds_are_those_of_the_referral_curve(page, after, comparison):
    t = np.array([float(row[0]) for row in page.tables["steps"][1:]])
    exact = np.array([step.threshold for step in summarise(comparison).steps])
    near(t, exact)
    curve = metrics.referral_curve(after.labels, after.probs, thresholds=exact + 1e-12)  # rounding of exp and log
    near(page.column("steps", 1), curve.referred)
    near(page.column("steps", 2), curve.errors_referred)
    near(page.column("steps", 4), curve.error_rate_decided)
    missed = np.round((1 - curve.errors_referred) * (~after.right).sum())
    assert page.column("steps", 3) == missed.tolist()
    by_class = np.array([row[1:] for row in page.body("by-class")]).reshape(len(t), 4, 3)
    assert by_class[:, :, 2].sum(axis=1).tolist() == missed.tolist()
    near(by_class[:, :, 0].sum(axis=1) / len(after), curve.referred, 6)


def test_errors_have_their_ids(page, after, comparison):
    wrong = np.flatnonzero(~after.right)
    order = wrong[np.argsort(-after.confidence[wrong], kind="stable")[:40]]
    rows = page.tables["errors"][1:]
    assert [row[0] for row in rows] == comparison.test.ids[order].tolist()
    assert [row[1] for row in rows] == comparison.test.clusters[order].tolist()
    near([number(row[4]) for row in rows], after.confidence[order])
    # A row is shown up to the last threshold below its confidence: one at the threshold is not decided.
    steps = [int(attrs["data-step"]) for tag, attrs in page.elements if tag == "tr" and "data-step" in attrs]
    t = [step.threshold for step in summarise(comparison).steps]
    assert set(t[1:]) <= set(after.confidence)
    assert steps[len(t) :] == [sum(each < c for each in t) for c in after.confidence[order]]


def test_bins_are_those_of_reliability(page, after, comparison):
    before = comparison.predictions("none")
    for first, p in ((1, before), (4, after)):
        table = metrics.reliability(p.labels, p.probs, clusters=p.clusters)
        shown = np.flatnonzero([row[first] > 0 for row in page.body("bins")])
        filled = table.weight > 0
        for i, expected in enumerate((table.weight, table.confidence, table.accuracy)):
            values = [page.body("bins")[row][first + i] for row in shown]
            near(values, expected[filled])


def test_groups_are_off_on_either_side():
    gaps = {"a": Estimate(0.1, 0.05, 0.15), "b": Estimate(-0.2, -0.3, -0.1), "c": Estimate(0.0, -0.1, 0.1)}
    parts = {name: {"gap": gap} for name, gap in gaps.items()}
    summary = SimpleNamespace(groups=(None, SimpleNamespace(parts=parts)))
    assert [name for name, _ in groups_off(summary)] == ["b", "a"]


def test_groups_and_methods(page, after, comparison):
    found = metrics.evaluate(after.labels, after.probs, by=comparison.test.groups, clusters=after.clusters)
    gaps = [100 * part["gap"].value for part in found.parts.values()]
    near(page.column("group-table", 3), gaps, 1)
    near(page.column("methods-table", 5), [row.test["nll"].value for row in comparison.rows], 4)
    near(page.column("methods-table", 6), [row.test["ece"].value for row in comparison.rows], 4)
    near(page.column("methods-table", 2), [row.nll.value for row in comparison.rows], 4)


def test_text_is_escaped(page):
    tags = [tag for tag, _ in page.elements]
    assert tags.count("script") == 1
    assert "alert" not in page.raw["script"]
    assert not any(key.startswith("on") for _, attrs in page.elements for key in attrs)
    assert f"T {EVIL}" in html.unescape(page.text)
    assert EVIL in page.tables["matrix"][0]


def test_nothing_is_requested(page):
    assert not re.search(r"https?://|@import|url\((?!#)", page.text)
    for tag, attrs in page.elements:
        assert "src" not in attrs
        assert "style" not in attrs  # the policy would refuse it
        assert attrs.get("href", "#").startswith("#") or attrs["href"] == "data:,", tag
    ids = [attrs["id"] for _, attrs in page.elements if "id" in attrs]
    assert len(ids) == len(set(ids))
    inside = [attrs["href"][1:] for _, attrs in page.elements if attrs.get("href", "").startswith("#")]
    assert set(inside) <= set(ids)


def test_the_policy_allows_the_own_style_and_script_alone(page):
    [policy] = [attrs["content"] for _, attrs in page.elements if attrs.get("http-equiv") == "Content-Security-Policy"]
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    assert rules["default-src"] == "'none'"
    for kind in ("style", "script"):
        digest = base64.b64encode(hashlib.sha256(page.raw[kind].encode()).digest()).decode()
        assert rules[f"{kind}-src"] == f"'sha256-{digest}'"


def test_always_the_same(page, comparison):
    assert report.render(comparison, card=CARD, title=f"T {EVIL}") == page.text


def test_without_test_data_numbers_are_cross_validated():
    found = compare_scores(hostile(500), methods=["ts", "bayes"])
    shown = Page(report.render(found))
    p = found.predictions("bayes")
    near(shown.column("methods-table", 2), [row.nll.value for row in found.rows], 4)
    near(shown.column("class-table", 2), recall_score(p.labels, p.prediction, average=None))


@pytest.mark.parametrize("goal", [{"max_miss": 0.3}, {"coverage": 0.8}, {"costs": {"refer": 1, "miss": 4}}])
def test_describes_the_calibrator_in_use_with_its_rule(goal):
    val, test = hostile(800), hostile(600, seed=1)
    decision = attemper.decide(val, test, **goal)
    found = compare_scores(val, test, methods=["bayes"], calibrator=decision.calibrator)
    shown, p = Page(report.render(found)), found.predictions("in use")
    rule = decision.calibrator.rule_
    outcome = outcome_of(rule, p.probs, p.labels, clusters=p.clusters, groups=p.groups, classes=list(CLASSES))
    summary = summarise(found)
    said = findings(summary, {})
    assert [said.index(each) for each in (_class(summary, {}), _rule(summary))] == [2, 3]
    near(shown.column("outcome", 2), [part.referred_share.value for part in outcome.parts])
    rates = [part.miss_rate if part.coverage is None else part.coverage for part in outcome.parts]
    near(shown.column("outcome", 3), [rate.value for rate in rates])
    threshold = getattr(rule, "threshold", None)
    if threshold is not None:
        [marked] = [row[0] for row in shown.tables["steps"][1:] if "in use" in row[0]]
        near(float(marked.split()[0]), threshold)


def test_one_column_is_the_risk():
    data = draw(1200, 2, bias=-0.5)
    p, y = data.p[:, 1], data.y
    found = attemper.compare((p[:600], y[:600]), (p[600:], y[600:]), input="probs", methods=["bayes", "platt"])
    shown, table = Page(report.render(found)), metrics.reliability(y[600:], p[600:])
    near(shown.column("bins", 3), table.accuracy)


def _perfect():
    scores = hostile(200)
    return Scores.of(scores.values, scores.values.argmax(axis=1))


ODD = {
    "no errors": lambda: compare_scores(_perfect(), methods=["bayes"]),
    "30 classes": lambda: compare_scores(
        *(Scores.of(*draw(800, 30, seed=seed)) for seed in (0, 1)), methods=["bayes", "ts"]
    ),
    "few samples": lambda: compare_scores(*(Scores.of(*draw(12, 3, seed=seed)) for seed in (0, 1)), methods=["bayes"]),
    "weights": lambda: compare_scores(
        *(Scores.of(*draw(400, 3, seed=s), sample_weight=np.arange(400) % 3 / 2) for s in (0, 1)), methods=["bayes"]
    ),
    "infinite losses": lambda: compare_scores(
        *(Scores.of(*draw(200, 3, seed=s)) for s in (0, 1)), methods=["isotonic"]
    ),
}


@pytest.mark.parametrize("make", ODD.values(), ids=ODD)
def test_odd_data_have_a_page(make):
    found = make()
    shown = Page(report.render(found))
    assert sum(row[1] for row in shown.body("class-table")) == pytest.approx(len(found.predictions("none")), abs=2)


def test_the_scale_of_weights_does_not_matter():
    val, (h, y) = Scores.of(*draw(800, 3)), draw(800, 3, seed=1)
    w = 1 + np.arange(800) % 3 / 2
    found = []
    for scale in (1, 1 / w.sum(), 0.3):
        test = Scores.of(h, y, sample_weight=w * scale)
        found.append(summarise(compare_scores(val, test, methods=["ts"], cv=0)))
    assert about(found[0])[1] is not None  # a bin has samples enough
    for each in found:
        assert about(each) == about(found[0])
        assert each.n == pytest.approx(800)
        assert [row.n for row in each.classes] == pytest.approx([w[y == k].sum() * 800 / w.sum() for k in range(3)])


@pytest.mark.parametrize("method", [
    METHODS["ats"](theta=0.01), METHODS["ts"](t_range=(0.5, 8)), METHODS["bayes"](noise=0.1), GroupedCalibrator("ts"),
])  # fmt: skip
def test_its_commands_fit_the_same_again(method, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, seed in (("my val", 0), ("test", 1)):
        logits, labels = draw(400, 3, seed=seed)
        np.savez(f"{name}.npz", logits=logits, labels=labels, site=np.arange(400) % 2)
    site = {"groups": "site"} if isinstance(method, GroupedCalibrator) else {}
    found = attemper.compare("my val.npz", "test.npz", methods=[method], cv=0, **site)
    typed = [s.code for s in next_steps(summarise(found)) if " fit " in s.code and "NAME" not in s.code]
    assert typed
    for words in map(shlex.split, typed):
        with pytest.raises(SystemExit) as done:
            main(words[1:])
        assert done.value.code == 0
        again = attemper.load(words[-1])
        assert again.map_.to_dict() == found.calibrator.map_.to_dict()
        assert _again(again) == _again(found.calibrator)


def test_written_by_the_result_and_by_the_verb(tmp_path, comparison):
    files = {}
    for name, n, seed in (("val", 300, 0), ("test", 200, 1)):
        logits, labels = draw(n, 3, seed=seed)
        np.savez(tmp_path / f"{name}.npz", logits=logits, labels=labels)
        files[name] = hashlib.sha256((tmp_path / f"{name}.npz").read_bytes()).hexdigest()
    card = tmp_path / "card.json"
    card.write_text(json.dumps({"model": "net 2"}))
    found = attemper.compare(*(str(tmp_path / f"{name}.npz") for name in files), methods=["bayes"])
    found.to_html(tmp_path / "page.html", card=card, title="a title")
    shown = Page((tmp_path / "page.html").read_text(encoding="utf-8"))
    assert [row[1] for row in shown.tables["files"][1:]] == list(files.values())
    assert "net 2" in shown.text
    with pytest.raises(InputError):
        report.render(comparison, card=["no mapping"])


@pytest.mark.parametrize("kind, t", [("over", 0.5), ("under", 2.0), ("fine", 1.0)])
def test_verdict_on_the_confidence(kind, t):
    logits, labels = draw(2000, 4, seed=0)
    found = summarise(compare_scores(Scores.of(logits / 2 / t, labels), methods=["bayes"]))
    shown, place = about(found)
    assert shown == kind
    if kind != "fine":
        gap = found.tables[0].confidence[place] - found.tables[0].accuracy[place]
        assert gap > 0.1 if kind == "over" else gap < -0.1


def test_verdict_where_only_the_mean_is_right():
    data = draw(3000, 2)
    found = summarise(compare_scores(Scores.of(data.p[:, 1], data.y, input="probs"), methods=["bayes"]))
    kind, place = about(found)
    assert kind == "mixed"
    table = found.tables[0]
    assert abs(table.confidence[place] - table.accuracy[place]) > 0.05


def test_in_a_browser(browser, tmp_path, comparison):
    comparison.to_html(tmp_path / "page.html")
    browser.get_log("browser")
    browser.get_log("performance")
    browser.get((tmp_path / "page.html").as_uri())

    def visible(selector):
        script = "return [...document.querySelectorAll(arguments[0])].filter(e => e.offsetParent !== null).length"
        return browser.execute_script(script, selector)

    def move(step):
        browser.execute_script("control.value = arguments[0]; control.dispatchEvent(new Event('input'))", step)

    last = len(Page(browser.page_source).tables["steps"]) - 2
    rows = {}
    for step in (0, last // 2, last):
        move(step)
        rows[step] = visible("#errors tbody tr")
        assert visible("#by-class tbody") == 1
        assert visible("#steps tr.selected") == 1
    assert rows[0] >= rows[last // 2] > rows[last]
    assert rows[0] == ERRORS
    for width in (1400, 390):
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500}
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        assert browser.execute_script("return document.documentElement.scrollWidth") == width
    for paper in ((8.27, 11.69), (8.5, 11)):
        size = {"paperWidth": paper[0], "paperHeight": paper[1]}
        made = browser.execute_cdp_cmd("Page.printToPDF", size)
        assert base64.b64decode(made["data"]).startswith(b"%PDF")
    browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    assert [entry["message"] for entry in browser.get_log("browser")] == []
    asked = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    urls = [m["params"]["request"]["url"] for m in asked if m["method"] == "Network.requestWillBeSent"]
    assert not [url for url in urls if url.startswith(("http", "ws"))]


def test_errors_have_their_ids_where_some_rows_have_no_weight():
    h, y = draw(300, 4, seed=1)
    ids, w = np.array([f"{label} {i}" for i, label in enumerate(y)]), 1.0 * (np.arange(300) % 3 > 0)
    test = Scores.of(h, y, ids=ids, sample_weight=w)
    errors = summarise(compare_scores(Scores.of(*draw(300, 4)), test, methods=["ts"], cv=0)).errors
    assert errors
    assert all(row.id.split()[0] == row.label for row in errors)


def test_shares_have_intervals_of_cases(comparison):
    found, p = summarise(comparison).means[1].right, comparison.predictions(comparison.chosen)
    assert found == share_of(p.right, np.ones(len(p), bool), p.weights, p.clusters, 0.95)
    assert found != share_of(p.right, np.ones(len(p), bool), p.weights, None, 0.95)


def test_errors_have_the_numbers_of_their_rows_where_some_do_not_count():
    h, y = draw(300, 4, seed=1)
    test = Scores.of(h, np.where(np.arange(300) % 3, y, -1), ignore_index=-1)
    errors = summarise(compare_scores(Scores.of(*draw(300, 4)), test, methods=["ts"], cv=0)).errors
    assert errors
    for row in errors:
        place = int(row.id.split()[-1])
        assert (str(y[place]), str(h[place].argmax())) == (row.label, row.prediction)


def test_the_sentence_is_about_the_class_with_the_most_missed():
    classes = (("rare", 10, 0.5), ("common", 900, 0.9))
    rows = [SimpleNamespace(name=name, n=n, found=Estimate(share)) for name, n, share in classes]
    assert focus(SimpleNamespace(rule=None, classes=rows, n_other_classes=0)).name == "common"


def test_what_was_found_before_is_of_the_classifier_alone():
    val, test = (Scores.of(*draw(600, 4, bias=0.8, seed=seed)) for seed in (0, 1))
    found = compare_scores(val, test, methods=["vector"])
    before = found.predictions("none")
    shown = Page(report.render(found))
    near(shown.column("class-table", 3), recall_score(before.labels, before.prediction, average=None))


@cache
def weighted(k):
    """A page of weights and cases; its predictions, and the matrix of confusions."""
    data = draw(900, k, noise=0.1, clusters=2, bias=0.1, seed=1)
    test = Scores.of(*data, sample_weight=data.w, clusters=data.cluster)
    found = summarise(compare_scores(Scores.of(*draw(900, k, bias=0.1)), test, methods=["vector"], cv=0))
    p = found.predictions[1]
    return found, p, confusion_matrix(p.labels, p.prediction, sample_weight=p.weights, labels=range(k))


@pytest.mark.parametrize("k", [3, 30])
def test_classes_count_weights_and_cases(k):
    (found, p, matrix), every = weighted(k), [*weighted(k)[0].predictions]
    for row in found.classes[:20]:
        j = int(row.name)
        of, those, wrong = p.labels == j, p.prediction == j, np.where(np.arange(k) == j, 0, matrix[j])
        shares = [share_of(p.right, rows, p.weights, p.clusters, 0.95) for rows in (of, those)]
        assert [row.n, row.predicted, row.found, row.right] == [matrix[j].sum(), matrix[:, j].sum(), *shares]
        assert row.found_before == pytest.approx(np.average(every[0].right[of], weights=p.weights[of]))
        means = [np.average(each.confidence[those], weights=p.weights[those]) for each in every]
        assert row.confidence == pytest.approx(tuple(means))
        assert row.taken_for == ((str(wrong.argmax()), wrong.max()) if wrong.any() else None)
    assert sum(row.n for row in found.classes) == found.n == p.weights.sum()
    assert (found.n_errors, found.n_cases) == (p.weights[~p.right].sum(), p.clusters.max() + 1)
    changed = np.average(every[0].prediction != p.prediction, weights=p.weights)
    assert found.changed == pytest.approx(changed) != 0


def test_of_many_classes_those_with_the_most_errors_are_shown():
    few, (found, _, matrix) = weighted(3), weighted(30)
    assert few[0].confusion.matrix == few[2].tolist()
    assert (few[0].n_other_classes, len(few[0].classes)) == (0, 3)
    wrong = matrix - np.diag(np.diag(matrix))
    assert [n for *_, n in found.confusion.pairs] == np.sort(wrong.ravel())[::-1][:15].tolist()
    assert all(wrong[int(a), int(b)] == n for a, b, n in found.confusion.pairs)
    assert (found.n_other_classes, len(found.classes), found.classes[-1].taken_for) == (10, 21, None)
    shown = [int(row.name) for row in found.classes[:20]]
    assert wrong.sum(axis=1)[shown].min() >= np.delete(wrong.sum(axis=1), shown).max()


@pytest.mark.parametrize("k", [3, 30])
def test_steps_count_weights_and_cases(k):
    found, p, _ = weighted(k)
    for step in found.steps:
        low, every = p.confidence <= step.threshold, np.ones(len(p), bool)
        shares = [(low, every), (low, ~p.right), (~p.right, ~low)]
        expected = [share_of(held, of, p.weights, p.clusters, 0.95) for held, of in shares]
        assert [step.referred, step.caught, step.error_rate] == expected
        sums = [p.weights[rows].sum() for rows in (low, low & ~p.right, ~low & ~p.right)]
        np.testing.assert_allclose(np.sum(step.by_class, axis=0), sums)
        assert step.missed == sums[2]
    assert found.steps[found.start].threshold == np.quantile(p.confidence, 0.2, method="lower")


def test_means_tables_groups_and_the_outcome_are_those_of_the_metrics():
    data = draw(1200, 3, t=1.5, clusters=2, groups=2, seed=1)
    ids = {"clusters": data.cluster, "groups": data.group, "sample_weight": data.w}
    val, test = Scores.of(*draw(2000, 3, t=1.5)), Scores.of(*data, **ids)
    used = attemper.decide(val, max_miss=0.2, method="ts").calibrator
    found = summarise(compare_scores(val, test, methods=["bayes"], cv=0, calibrator=used))
    for p, means, table, groups in zip(found.predictions, found.means, found.tables, found.groups):
        own = {"clusters": p.clusters, "sample_weight": p.weights}
        alone = evaluate_predictions(replace(p, groups=None), ("gap", "ece", "nll"))
        assert (means.gap, means.ece, means.nll) == tuple(alone.values())
        assert means.confidence == pytest.approx(np.average(p.confidence, weights=p.weights))
        assert groups.parts["site 0"]["gap"] == evaluate_predictions(p, ("gap",)).parts["site 0"]["gap"]
        np.testing.assert_array_equal(table.low, metrics.reliability(p.labels, p.probs, **own).low)
    expected = outcome_of(used.rule_, p.probs, p.labels, groups=p.groups, **own, classes=found.names)
    assert (found.described, found.outcome) == ("in use", expected)
    assert found.steps[found.start].threshold == used.rule_.threshold


FITTED = METHODS["ts"]().fit(*draw(900, 3, seed=5))
NEXT = [
    ({"n": 900}, ["compare", "save", "decide", "monitor"]), ({"n": 900, "test": 1}, ["save", "decide", "monitor"]),
    ({"n": 900, "test": 1, "calibrator": FITTED}, ["decide", "monitor"]),
    ({"n": 900, "test": 1, "t": 6.0}, ["fit", "save", "decide", "monitor"]),
    ({"n": 900, "test": 1, "site": 1}, ["fit", "save", "decide", "monitor"]),
    ({"n": 900, "test": 1, "bias": 0.8}, ["fit", "save", "decide", "fit", "monitor"]),
    ({"n": 900, "test": 1, "t": 6.0, "broken": 1}, ["decide", "fit", "monitor"]),
]  # fmt: skip


@pytest.mark.parametrize("differ", [False, True])
def test_a_calibration_for_each_group_is_advised_where_groups_differ(differ):
    data, site = draw(3000, 3, t=5.0, seed=1), np.array(["n", "s"])[np.arange(3000) % 2]
    labels = np.where(differ & (site == "s"), data.h.argmax(axis=1), data.y)
    test = Scores.of(data.h, labels, groups=site)
    found = summarise(compare_scores(Scores.of(*draw(900, 3)), test, methods=["bayes"], calibrator=FITTED))
    assert groups_off(found)
    assert (found.groups[1].alike.p < 0.05) == differ
    assert any("groups" in each.code for each in next_steps(found)) == differ


def test_commands_have_the_names_that_were_given(folder):
    for name, seed in (("val", 0), ("test", 1)):
        data, site = draw(900, 3, t=2.0 + 4 * seed, seed=seed), np.array(["n", "s"])[np.arange(900) % 2]
        labels = np.where((site == "s") & (seed == 1), data.h.argmax(axis=1), data.y)
        np.savez(f"{name}.npz", logits=data.h, labels=labels, site=site)
    FITTED.save("my net.json")
    found = attemper.compare("val.npz", "test.npz", groups="site", calibrator="my net.json", methods=["ts"])
    typed = [shlex.split(each.code) for each in next_steps(summarise(found)) if each.code]
    assert ["--groups", "site"] in [words[i : i + 2] for words in typed for i in range(len(words))]
    assert any("my net.json" in words for words in typed if "monitor" in words)
    assert not any({"NAME", "NET"} & {*words} for words in typed)


@pytest.mark.parametrize(("given", "verbs"), NEXT)
def test_what_to_do_next(given, verbs):
    bias, t = given.get("bias", 0.0), given.get("t", 2.0)
    val, other = Scores.of(*draw(given["n"], 3, bias=bias)), draw(900, 3, t=t, bias=bias, seed=1)
    site = np.where(other.wrong | (other.h.argmax(axis=1) != other.y), "n", "s") if "site" in given else None
    test = Scores.of(*other, groups=site) if "test" in given else None
    rule = attemper.decide(Scores.of(*draw(900, 3, seed=7)), max_miss=0.2).calibrator if "broken" in given else None
    used = rule or given.get("calibrator")
    found = summarise(compare_scores(val, test, methods=["bayes", "vector"], calibrator=used))
    codes = [re.search(r"(\w+)\(", each.code)[1] for each in next_steps(found) if each.code]
    assert codes == verbs
