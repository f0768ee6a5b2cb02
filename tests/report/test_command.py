"""`attemper report`: files in, a page out; what goes wrong is one clear message."""

import json
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
    assert "The network was right in" in out
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
