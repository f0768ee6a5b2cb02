"""Files of images: npz, npy, safetensors; stacked, or one image a file."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from safetensors.numpy import save_file

import attemper
from attemper import InputError, Scores, TemperatureScaling, fit_source
from attemper.cli import main
from attemper.io import open_scores, reading

K, IGNORE = 4, 255


@pytest.fixture(scope="module")
def images():
    rng = np.random.default_rng(0)
    h = (3 * rng.normal(size=(24, K, 12, 10))).astype(np.float32)
    y = (h / 1.6 + rng.gumbel(size=h.shape)).argmax(axis=1).astype(np.uint8)
    y[rng.random(y.shape) < 0.2] = IGNORE
    return h, y


@pytest.fixture
def files(tmp_path, monkeypatch, images):
    monkeypatch.chdir(tmp_path)
    h, y = images
    np.savez("all.npz", logits=h, labels=y)
    np.savez_compressed("small.npz", logits=h, labels=y)
    np.save("h.npy", h)
    np.save("y.npy", y)
    save_file({"logits": h, "labels": y}, "all.safetensors")
    for i in range(3):
        np.savez(f"one{i}.npz", logits=h[i], labels=y[i])
    np.savez("half0.npz", logits=h[:12], labels=y[:12])
    np.savez("half1.npz", logits=h[12:], labels=y[12:])


def command(capsys, monkeypatch, line):
    monkeypatch.setattr(sys, "argv", ["attemper", *line.split()])
    with pytest.raises(SystemExit) as end:
        main()
    shown = capsys.readouterr()
    return end.value.code or 0, " ".join((shown.out + shown.err).split())


@pytest.mark.parametrize("path", ["all.npz", "small.npz", "h.npy", "all.safetensors"])
def test_files_hold_what_arrays_hold(files, images, path, monkeypatch):
    monkeypatch.setattr(reading, "BLOCK_BYTES", 5000)  # two images at a time
    more = {"labels": "y.npy"} if path == "h.npy" else {}
    pieces = open_scores(path, axis=1, ignore_index=IGNORE, **more)
    assert (pieces.n_classes, pieces.n_rows) == (K, 24 * 120)
    scores, expected = pieces.load(), Scores.from_logits(*images, axis=1, ignore_index=IGNORE)
    np.testing.assert_array_equal(scores.values, expected.logits)
    np.testing.assert_array_equal(scores.labels, expected.labels)
    np.testing.assert_array_equal(scores.clusters, expected.clusters)
    drawn = open_scores(path, axis=1, ignore_index=IGNORE, max_pixels=9, **more).load()
    same = Scores.from_logits(*images, axis=1, ignore_index=IGNORE, max_pixels=9)
    np.testing.assert_array_equal(drawn.values, same.logits)
    np.testing.assert_array_equal(drawn.weights, same.weights)


def test_one_image_a_file_and_several_files(files, images):
    h, y = images
    scores = open_scores("one*.npz", axis=0, ignore_index=IGNORE).load()
    expected = Scores.from_logits(h[:3], y[:3], axis=1, ignore_index=IGNORE)
    np.testing.assert_array_equal(scores.values, expected.logits)
    np.testing.assert_array_equal(scores.clusters, expected.clusters)
    one = fit_source(TemperatureScaling(), "half*.npz", axis=1, ignore_index=IGNORE)
    two = TemperatureScaling(axis=1, ignore_index=IGNORE).fit(h, y)
    assert one.temperature_ == pytest.approx(two.temperature_, rel=1e-7)


def test_a_calibrator_knows_how_its_files_are_laid_out(files, images):
    fitted = fit_source(TemperatureScaling(axis=1, ignore_index=IGNORE), "all.npz")
    assert fitted.temperature_ == TemperatureScaling(axis=1, ignore_index=IGNORE).fit(*images).temperature_


def test_commands_fit_apply_and_evaluate(files, images, capsys, monkeypatch):
    code, text = command(capsys, monkeypatch, "fit all.npz --axis 1 --ignore-index 255 --method ts -o map.json")
    assert code == 0, text
    fitted = attemper.load("map.json")
    assert (fitted.axis, fitted.ignore_index) == (1, IGNORE)
    expected = fitted.predict_proba(images[0])
    for output, load in (("p.npz", np.load), ("p.npy", lambda p: {"probs": np.load(p)})):
        assert command(capsys, monkeypatch, f"apply map.json all.npz -o {output}")[0] == 0
        np.testing.assert_array_equal(load(output)["probs"], expected)
    np.testing.assert_array_equal(np.load("p.npz")["predictions"], expected.argmax(axis=1))
    code, text = command(capsys, monkeypatch, "apply map.json all.npz -o p.csv")
    assert code == 2
    code, text = command(capsys, monkeypatch, "evaluate half1.npz --map map.json")
    assert code == 0, text


def test_commands_compare_by_image(files, capsys, monkeypatch):
    line = "compare half0.npz half1.npz --axis 1 --ignore-index 255 --methods ts,vector --json"
    code, text = command(capsys, monkeypatch, line)
    assert code == 0, text


def test_labels_of_another_shape_are_refused(files, images):
    h, y = images
    np.savez("bad.npz", logits=h, labels=y[:, :-1])
    with pytest.raises(InputError):
        open_scores("bad.npz", axis=1).load()
    with pytest.raises(InputError):
        open_scores("all.npz").load()
    with pytest.raises(InputError):
        open_scores("all.npz", axis=9)


def test_intervals_that_do_not_know_the_images_say_so(files):
    told = {"axis": 1, "ignore_index": IGNORE}
    halves = ["half0.npz", "half1.npz"]
    assert "24 images" in fit_source(TemperatureScaling(), "all.npz", **told).fit_report_.message
    assert "pixels" in fit_source(TemperatureScaling(), halves, **told).fit_report_.message
    one_each = fit_source(TemperatureScaling(), halves, **told, max_pixels=1)
    assert "pixels" not in one_each.fit_report_.message
