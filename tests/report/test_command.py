"""`attemper report`: files in, a page out; what goes wrong is one clear message."""

import json
import re
import sys

import numpy as np
import pytest
from PIL import Image

from attemper import cli as command_line

N = 120


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    names = np.array(["benign", "<malignant>", "unclear"])
    for name in ("val", "test"):
        y = rng.integers(3, size=N)
        h = 3 * rng.normal(size=(N, 3))
        h[np.arange(N), y] += 3
        ids = np.array([f"img{i}" for i in range(N)])
        np.savez(f"{name}.npz", logits=h, labels=y, image_id=ids, class_names=names)
        np.savez(f"{name}-named.npz", logits=h, labels=names[y], other=ids, wrong=np.ones((2, 2)))
        np.save(f"{name}.npy", h)
        np.save(f"{name}-labels.npy", y)
    (tmp_path / "names.txt").write_text("\n".join(names) + "\n", encoding="utf-8")
    (tmp_path / "ids.txt").write_text("\n".join(f"img{i}" for i in range(N)))
    (tmp_path / "images").mkdir()
    for i in range(0, N, 2):
        Image.new("RGB", (40, 30), (i, 0, 0)).save(tmp_path / "images" / f"img{i}.jpg")
    (tmp_path / "empty").mkdir()
    return tmp_path


@pytest.fixture
def cli(folder, monkeypatch, capsys):
    def run(told):
        monkeypatch.setattr(sys, "argv", ["attemper", "report", *told.split()])
        with pytest.raises(SystemExit) as ended:
            command_line.main()
        out, err = capsys.readouterr()
        return ended.value.code, out, err

    return run


def test_it_writes_a_page_and_says_where(cli, folder):
    code, out, err = cli("val.npz test.npz --methods ts,bayes --classes names.txt --images images -o page.html")
    assert (code, err) == (0, "")
    assert out.splitlines()[-1] == "Report: page.html"
    assert "After calibration (" in out
    text = (folder / "page.html").read_text()
    assert "Calibration report: test.npz" in text
    assert "&lt;malignant&gt;" in text
    assert "60 of 120 test samples have one" in text
    assert text.count("<img src=") >= 6
    assert str(folder) not in text


def test_names_of_classes_come_from_the_file_too(cli, folder):
    assert cli("val.npz test.npz --methods ts")[0] == 0
    assert "&lt;malignant&gt;" in (folder / "report.html").read_text()


def test_labels_may_be_names_or_numbers(cli, folder):
    assert cli("val-named.npz test-named.npz --methods ts --classes names.txt --image-ids other -o a.html")[0] == 0
    read = "--labels test-labels.npy --val-labels val-labels.npy --image-ids ids.txt"
    assert cli(f"val.npy test.npy --methods ts --classes names.txt {read} -o b.html")[0] == 0
    a, b = ((folder / name).read_text() for name in ("a.html", "b.html"))
    data = [text.partition('id="data">')[2].partition("</script>")[0] for text in (a, b)]
    assert json.loads(data[0]) == json.loads(data[1])


def test_json_for_machines(cli, folder):
    code, out, _ = cli("val.npz test.npz --methods ts --json")
    found = json.loads(out)
    assert code == 0
    assert found["output"] == "report.html"
    assert found["bytes"] == (folder / "report.html").stat().st_size
    assert found["n_test"] == N
    assert [len(file["sha256"]) for file in found["provenance"]["files"]] == [64, 64]


def test_the_same_files_give_the_same_page(cli, folder):
    pages = []
    for name in ("a.html", "b.html"):
        assert cli(f"val.npz test.npz --methods ts,bayes --images images -o {name}")[0] == 0
        pages.append((folder / name).read_bytes())
    assert pages[0] == pages[1]


@pytest.mark.parametrize(
    ("told", "message"),
    [
        ("val.npz gone.npz", "gone.npz: there is no such file"),
        ("val.npz test.npz --classes a,b", "val.npz: classes: 2 names for 3 columns"),
        ("val.npz test.npz --images nowhere", "nowhere: no folder of images that can be read"),
        ("val.npz test.npz --images empty", "empty: holds no image"),
        (
            "val.npz test.npz --image-ids gone",
            "--image-ids gone: expected an array of test.npz or a readable text file",
        ),
        ("val-named.npz test-named.npz --classes names.txt --image-ids wrong", "'wrong' has shape (2, 2)"),
        ("val-named.npz test-named.npz --classes names.txt --images images", "60 images for 120 test samples"),
        ("val-named.npz test-named.npz --classes x,y,z", "labels: row 0"),
        ("val.npz test.npz --methods nothing", "method 'nothing' is unknown"),
        ("val.npz test.npz --catch 2", "--catch 2.0"),
        ("val.npz test.npz -o nowhere/page.html", "the folder nowhere does not exist"),
        ("val.npz test.npz -o val.npz", "is one of the inputs"),
        ("val.npz test.npz --noise classwise", "add --noisy"),
        ("val.npz val.npz --methods ts", "VAL and TEST are the same samples"),
    ],
)
def test_what_goes_wrong_is_one_message(cli, folder, told, message):
    code, out, err = cli(told)
    assert (code, out) == (2, "")
    assert message in " ".join(err.split())
    assert "Traceback" not in err
    assert not (folder / "report.html").exists()


def test_addresses_of_files_on_this_machine(cli, folder):
    code, out, err = cli(
        f"file://{folder}/val.npz file://{folder}/test.npz --methods ts --json -o file://{folder}/p.html"
    )
    assert (code, err) == (0, "")
    assert json.loads(out)["bytes"] == (folder / "p.html").stat().st_size
    assert "&lt;malignant&gt;" in (folder / "p.html").read_text()  # the names that the file of the test set holds


# Names with descriptions, the model card, prediction sets

DESCRIBED = {
    "a.csv": 'benign,no cancer\n<malignant>,"cancer, <b>any</b>"\nunclear,\n',
    "b.csv": 'class,description\nbenign,no cancer\n<malignant>,"cancer, <b>any</b>"\nunclear,\n',
    "c.tsv": "benign\tno cancer\n<malignant>\tcancer, <b>any</b>\nunclear\n",
    "d.csv": 'Description,Name\nno cancer,benign\n"cancer, <b>any</b>",<malignant>\n,unclear\n',
    "d.json": json.dumps({"benign": "no cancer", "<malignant>": "cancer, <b>any</b>", "unclear": ""}),
}


@pytest.mark.parametrize("name", DESCRIBED)
def test_classes_can_be_explained(cli, folder, name):
    (folder / name).write_text(DESCRIBED[name], encoding="utf-8")
    code, out, err = cli(f"val-named.npz test-named.npz --methods ts --classes {name} --focus <malignant>")
    assert (code, err) == (0, "")
    assert "% of <malignant> (cancer, <b>any</b>):" in out
    text = (folder / "report.html").read_text()
    assert "cancer, &lt;b&gt;any&lt;/b&gt;" in text
    assert "<b>any" not in text
    assert text.count('<bdi class="name">no cancer</bdi>') >= 3  # two tables, the matrix, the glossary


def test_a_list_of_names_in_json_and_commas_in_a_text_file_stay_names(cli, folder):
    (folder / "names.json").write_text(json.dumps(["benign", "<malignant>", "unclear"]))
    assert cli("val-named.npz test-named.npz --methods ts --classes names.json")[0] == 0
    (folder / "commas.txt").write_text("benign, or so\nmalignant\nunclear\n")
    assert cli("val.npz test.npz --methods ts --classes commas.txt --focus malignant")[0] == 0
    assert ">benign, or so<" in (folder / "report.html").read_text()


CARDS = {
    "card.txt": "# mine\nmodel: resnet <200>\nversion: 1\nintended use: research,\n  not patients\n",
    "card.json": json.dumps({"model": "resnet <200>", "version": 1, "intended_use": "research, not patients"}),
    "card.toml": 'model = "resnet <200>"\nversion = 1\nintended_use = "research, not patients"\n',
}


@pytest.mark.parametrize("name", CARDS)
def test_a_model_card_is_shown_as_text(cli, folder, name):
    (folder / name).write_text(CARDS[name], encoding="utf-8")
    assert cli(f"val.npz test.npz --methods ts --card {name} --card version=2 --card population=adults")[0] == 0
    text = (folder / "report.html").read_text()
    section = text[text.index('<section id="card"') : text.index('<section id="classes"')]
    found = re.findall(r'<dt><bdi class="name">(.*?)</bdi></dt><dd><bdi class="name">(.*?)</bdi></dd>', section)
    assert found == [
        ("Model", "resnet &lt;200&gt;"),
        ("Version", "2"),
        ("Intended use", "research, not patients"),
        ("Population", "adults"),
    ]


def test_an_empty_entry_removes_one_of_the_file_and_other_names_come_last(cli, folder):
    (folder / "card.json").write_text('{"Version": 1, "ward": "3b", "model": "net", "locked": true}')
    given = "--card card.json --card version= --card Model=other --card date= --card intended_use=triage"
    assert cli(f"val.npz test.npz --methods ts {given}")[0] == 0
    text = (folder / "report.html").read_text()
    section = text[text.index('<section id="card"') : text.index('<section id="classes"')]
    found = re.findall(r'<dt><bdi class="name">(.*?)</bdi></dt><dd><bdi class="name">(.*?)</bdi></dd>', section)
    assert found == [("Model", "other"), ("Intended use", "triage"), ("Ward", "3b"), ("Locked", "yes")]


def test_without_a_card_there_is_no_section(cli, folder):
    assert cli("val.npz test.npz --methods ts")[0] == 0
    text = (folder / "report.html").read_text()
    assert 'id="card"' not in text
    assert 'id="sets"' not in text
    assert 'id="clusters"' not in text


def run(*line):
    with pytest.raises(SystemExit) as ended:
        command_line.cli.main([*line], prog_name="attemper")
    assert ended.value.code == 0


@pytest.mark.filterwarnings("ignore")
def test_prediction_sets_and_cases_have_sections(cli, folder, capsys):
    files = dict(np.load("test.npz"))
    np.savez("test.npz", **files, case=np.arange(N) // 2)
    run("sets", "val.npz", "test.npz", "-o", "sets.json", "--save-map", "map.json", "--coverage", "0.8", "--json")
    expected = json.loads(capsys.readouterr().out)["test"]
    code, _, _ = cli(
        "val.npz test.npz --methods ts --sets sets.json --sets-map map.json --clusters case --val-clusters image_id"
    )
    assert code == 0
    text = (folder / "report.html").read_text()
    section = text[text.index('<section id="sets"') : text.index('<section id="clusters"')]
    assert f"{100 * expected['coverage']['value']:.1f}\u00a0% (" in section
    for row in expected["by_class"]:
        assert f"<td>{row['decided']:.0f}</td><td>{row['listed']:.0f}</td><td>{row['referred']:.0f}</td>" in section
    assert "Prediction sets by true class" in section
    assert "are of 60 cases (clusters), at most 2 of one" in text


@pytest.mark.parametrize(
    ("told", "message"),
    [
        ("--card gone.txt", "--card gone.txt: expected NAME=VALUE or a readable file (.json, .toml, .txt)"),
        ("--card gone.txt", "For one entry use --card NAME=VALUE."),
        ("--card model", "For one entry use --card model=VALUE."),
        ("--card =x", "--card =x: expected a name before '='. Use NAME=VALUE, such as --card model=resnet200."),
        ("--card twice.txt", "--card twice.txt: line 3: expected each name once; 'model' is in line 1 too"),
        ("--card twice.json", "--card twice.json: expected each name once; 'model' is there twice"),
        ("--card twice.toml", "--card twice.toml: not valid TOML"),
        ("--card same.json", "--card same.json: expected each name once; 'Model' and 'model' are the same name"),
        ("--card nameless.json", '--card nameless.json: expected a name for each text, such as "model"; got'),
        ("--card bad.txt", "--card bad.txt: line 2: expected 'name: value', got 'no colon here'"),
        ("--card bad.json", "--card bad.json: not valid JSON"),
        ("--card list.json", 'expected an object such as {"model": "resnet200"}, got a list'),
        ("--card bad.toml", "--card bad.toml: not valid TOML"),
        ("--card nested.json", "nested.json: site: expected text, a number or a list of these; got a table of 1"),
        ("--classes wide.csv", "got 3 cells in row 1. Use quotes around a description with a comma"),
        ("--classes list-of-lists.json", 'expected an object such as {"mel": "melanoma"}, or a list of names'),
        ("--classes bad.json", "--classes bad.json: not valid JSON"),
        ("--focus nothing", "--focus nothing: expected the name of a class, one of benign, <malignant>, unclear"),
        ("--sets sets.json", "Add --sets-map MAP."),
        ("--sets-map map.json", "Add --sets FILE."),
    ],
)
def test_what_goes_wrong_with_these_files(cli, folder, told, message):
    texts = {
        "bad.txt": "model: a\nno colon here\n",
        "twice.txt": "model: a\nversion: 1\nmodel: b\n",
        "twice.json": '{"model": "a", "model": "b"}',
        "twice.toml": 'model = "a"\nmodel = "b"\n',
        "same.json": '{"Model": "a", "model": "b"}',
        "nameless.json": '{"": "a"}',
        "bad.json": "{",
        "bad.toml": "a = ",
        "list.json": "[1]",
        "nested.json": '{"site": {"a": 1}}',
        "wide.csv": "a,b,c\n",
        "list-of-lists.json": "[[1]]",
    }
    for name, text in texts.items():
        (folder / name).write_text(text)
    code, out, err = cli(f"val.npz test.npz --methods ts {told}")
    assert (code, out) == (2, "")
    assert message in " ".join(err.split())
    assert not (folder / "report.html").exists()
