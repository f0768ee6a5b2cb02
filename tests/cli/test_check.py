"""`attemper check`: what files hold is counted as an obvious loop counts it, and what is odd is found."""

import numpy as np
import pytest

from attemper import TemperatureScaling, load

from commands import strict_json
from data import FORMATS, draw, save, softmax


def codes(found):
    return {finding["code"]: finding["level"] for finding in found["findings"]}


@pytest.fixture
def checked(cli):
    """Check arrays; return the exit code and the JSON."""

    def run(*more, name="a.npz", **arrays):
        np.savez(name, **arrays)
        code, out, _ = cli("check", name, *more, "--json")
        found = strict_json(out)
        assert code == found["exit_code"]
        return code, found

    return run


@pytest.mark.parametrize("form", FORMATS)
def test_every_format(cli, tmp_path, form):
    h, y = draw(150, 4)
    told = save(tmp_path, form, h, y, stem="some")
    labels = ["--labels", told["labels"]] if "labels" in told else []
    code, out, _ = cli("check", told["paths"], *labels, "--json")
    found = strict_json(out)
    assert (code, found["looks_like"], found["findings"]) == (0, "logits", [])
    assert (found["n_samples"], found["n_classes"]) == (150, 4)
    assert found["accuracy"] == np.mean(h.argmax(axis=1) == y)
    assert found["labels"]["counts"] == [int((y == k).sum()) for k in range(4)]
    assert found["labels"]["predicted"] == [int((h.argmax(axis=1) == k).sum()) for k in range(4)]
    assert found["next"].startswith("attemper fit ")
    assert "attemper fit" in cli("check", told["paths"], *labels).out


def test_the_next_command_works(cli, checked, good, tmp_path):
    h, y = draw(300, 3)
    code, found = checked("--probs", "--labels-key", "target", probs=softmax(h), target=y)
    assert (code, found["looks_like"]) == (0, "probabilities")
    assert found["next"] == "attemper fit a.npz --labels-key target --probs"
    good(*found["next"].split()[1:])
    code, found = checked("--logits-key", "probs", probs=softmax(h), labels=y)
    assert (code, codes(found)) == (1, {"looks_like_probabilities": "warning"})
    good(*found["next"].split()[1:])
    for form in FORMATS:
        told = save(tmp_path, form, softmax(h), y, stem="some")
        labels = ["--labels", told["labels"]] if "labels" in told else []
        code, out, _ = cli("check", told["paths"], *labels, "--json")
        assert (code, codes(strict_json(out))) == (1, {"looks_like_probabilities": "warning"})
        good(*strict_json(out)["next"].split()[1:])
    code, found = checked(logits=h)
    assert (code, codes(found)) == (0, {"no_labels": "note"})
    assert found["next"] == "attemper apply MAP a.npz -o probabilities.npz"


def test_numbers_that_are_none(checked):
    h, y = draw(200, 4)
    h[7, 2], h[9, 0], h[3, 1] = np.nan, np.inf, -np.inf
    code, found = checked(logits=h, labels=np.where(y == 1, 0, y))
    assert code == 2
    assert codes(found)["not_finite"] == "error"
    assert "row 7" in found["findings"][0]["message"]
    assert (found["numbers"]["n_nan"], found["numbers"]["n_infinite"], found["numbers"]["n_masked"]) == (1, 1, 1)
    assert found["next"] is None
    code, found = checked(logits=np.full((5, 3), -np.inf), labels=[0, 1, 2, 0, 1])
    assert {"empty_rows", "impossible_labels"} <= set(codes(found))


def test_labels_that_are_off(checked):
    h, y = draw(400, 5)
    accuracy = np.mean(h.argmax(axis=1) == y)
    code, found = checked(logits=h, labels=y + 1)
    assert (code, codes(found)["off_by_one"]) == (2, "error")
    assert f"{accuracy:.1%}" in found["findings"][0]["message"]
    shifted = np.roll(np.eye(5), 1, axis=0)[y].argmax(axis=1)  # a class too low, and none outside
    code, found = checked(logits=10 * np.eye(5)[y] + h, labels=shifted)
    assert (code, codes(found)["off_by_one"]) == (1, "warning")
    code, found = checked(logits=h, labels=np.where(np.arange(400) == 11, -7, y))
    assert (code, codes(found)) == (2, {"labels_outside": "error"})
    assert "row 11" in found["findings"][0]["message"]
    code, found = checked("--ignore-index", "-7", logits=h, labels=np.where(np.arange(400) == 11, -7, y))
    assert (code, found["n_samples"]) == (0, 399)


def test_labels_that_start_at_one(checked, good):
    h, y = draw(400, 5)
    code, found = checked(logits=h, labels=y + 1)
    assert code == 2
    assert found["next"] == "attemper fit a.npz --classes 1,2,3,4,5"
    good(*found["next"].split()[1:], "--method", "ts")
    assert load("attemper.json").temperature_ == pytest.approx(TemperatureScaling().fit(h, y).temperature_)


def test_labels_that_agree_by_chance(checked):
    h, _ = draw(1000, 4)
    code, found = checked(logits=h, labels=np.random.default_rng(1).integers(0, 4, 1000))
    assert (code, set(codes(found))) == (1, {"chance_accuracy"})
    code, found = checked(logits=h, labels=h.argmax(axis=1))
    assert (code, codes(found)) == (1, {"all_correct": "warning"})


def test_classes_without_samples_and_constant_columns(checked):
    h, y = draw(300, 4)
    h[:, 3] = 2.5
    code, found = checked(logits=h, labels=np.where(y == 3, 0, y))
    assert code == 1
    assert codes(found) == {
        "constant_columns": "warning",
        "classes_without_samples": "note",
        "below_most_frequent": "note",
    }
    assert (found["numbers"]["constant_columns"], found["labels"]["without_samples"]) == ([3], [3])


def test_probabilities(checked):
    h, y = draw(300, 4)
    p = softmax(h)
    p[5] = np.eye(4)[y[5]]
    code, found = checked("--probs", probs=p, labels=y)
    assert (code, codes(found)) == (1, {"zeros": "warning"})
    assert found["numbers"]["n_zero"] == 3
    p[6] = np.eye(4)[(y[6] + 1) % 4]
    code, found = checked("--probs", probs=p, labels=y)
    assert codes(found) == {"impossible_labels": "error", "zeros": "warning"}
    code, found = checked("--probs", "--zeros-as", "1e-8", probs=p, labels=y)
    assert (code, set(codes(found).values())) == (0, {"note"})
    code, found = checked("--probs", "--logits-key", "logits", logits=h, labels=y)
    assert codes(found)["not_probabilities"] == "error"
    code, found = checked(logits=1 / (1 + np.exp(-h)), labels=y)
    assert (found["looks_like"], codes(found)) == ("shares", {"looks_like_shares": "warning"})
    code, found = checked(logits=np.log(softmax(h)), labels=y)
    assert (code, found["looks_like"]) == (0, "log-probabilities")


def test_names_of_classes(cli, good, tmp_path):
    h, y = draw(200, 3)
    names = np.array(["cat", "dog", "eel"])
    save(tmp_path, "csv", h, names[y], stem="named")
    code, out, _ = cli("check", "named.csv", "--json")
    assert (code, codes(strict_json(out))) == (2, {"labels_unreadable": "error"})
    text = good("check", "named.csv", "--classes", "cat,dog,eel")
    assert f"cat {(y == 0).sum()} " in " ".join(text.split())
    code, out, _ = cli("check", "named.csv", "--classes", "cat,dog,fox", "--json")
    assert (code, codes(strict_json(out))["labels_outside"]) == (2, "error")


def test_files_that_cannot_be_read(bad, tmp_path):
    (tmp_path / "a.npz").write_bytes(b"no")
    np.savez("b.npz", z=draw(10, 3)[0])
    for name in ("a.npz", "none.npz", "b.npz"):
        bad("check", name)


def test_pieces_are_counted_as_the_whole(cli, tmp_path, monkeypatch):
    h, y = draw(500, 6)
    np.savez("a.npz", logits=h, labels=y)
    whole = cli("check", "a.npz", "--json").out
    monkeypatch.setattr("attemper.io.reading.BLOCK_BYTES", 1000)
    assert cli("check", "a.npz", "--json").out == whole


def test_images_soft_labels_and_one_column(checked):
    h, y = draw(480, 3)
    images, labels = np.moveaxis(h.reshape(5, 8, 12, 3), -1, 1), y.reshape(5, 8, 12)
    code, found = checked("--axis", "1", logits=images, labels=labels)
    assert (code, found["n_samples"], found["n_classes"]) == (0, 480, 3)
    assert found["accuracy"] == np.mean(h.argmax(axis=1) == y)
    assert found["labels"]["counts"] == np.bincount(y).tolist()
    code, found = checked(logits=h, labels=np.eye(3)[y])
    assert (code, found["labels"]["counts"]) == (0, np.bincount(y).tolist())
    z, y = draw(300, 2)
    z = z[:, 1] - z[:, 0]
    for labels in (y, 2 * y - 1, y == 1):
        code, found = checked(logits=z, labels=labels)
        assert (code, found["n_classes"], found["accuracy"]) == (0, 2, np.mean((z > 0) == y))
