"""`attemper plan` on files."""

import json

import numpy as np
import pytest

from attemper.planning import choose_samples, labels_for_metric, labels_for_temperature

from data import FORMATS, draw, save


@pytest.mark.parametrize("form", FORMATS)
def test_files_of_all_formats_give_the_same_plan(good, tmp_path, form):
    h, y = draw(200, 4)
    given = save(tmp_path, form, h, y)
    more = ["--labels", given["labels"]] if "labels" in given else []
    found = json.loads(good("plan", given["paths"], *more, "--temperature-width", "1.2x", "--json"))
    [plan] = found["plans"]
    assert plan["n_samples"] == labels_for_temperature(h, y, width=1.2).n_samples
    assert plan["question"] == "temperature"


def test_several_questions(good, val):
    text = good("plan", "val.npz", "--temperature-width", 1.3, "--accuracy-width", 0.1, "--nll-width", 0.3)
    h, y = val
    assert text.count("labels (the pilot leaves") == 3
    for expected in (
        labels_for_temperature(h, y, width=1.3),
        labels_for_metric(h, y, metric="accuracy", width=0.1),
        labels_for_metric(h, y, metric="nll", width=0.3),
    ):
        assert f"{expected.n_samples} ←" in text


def test_without_labels_and_with_a_map(good, val, unseen, fitted):
    h, y = unseen
    found = json.loads(good("plan", "test.npz", "--map", "m.json", "--brier-width", "0.1", "--json"))
    expected = labels_for_metric(h, y, metric="brier", width=0.1, calibrator=fitted)
    assert found["plans"][0]["n_samples"] == expected.n_samples
    found = json.loads(
        good("plan", "test.npz", "--no-labels", "--temperature-width", "1.2", "--temperature", 2, "--json")
    )
    assert found["plans"][0]["n_samples"] == labels_for_temperature(h, width=1.2, temperature=2.0).n_samples
    noisy = json.loads(good("plan", "test.npz", "--temperature-width", "1.2", "--noise-rate", 0.2, "--json"))
    assert noisy["plans"][0]["n_samples"] > found["plans"][0]["n_samples"]


def test_clusters(good, tmp_path):
    h, y = (np.repeat(a, 3, axis=0) for a in draw(200, 4))
    np.savez(tmp_path / "val.npz", logits=h, labels=y, patient=np.repeat(np.arange(200), 3))
    (tmp_path / "ids.txt").write_text("\n".join(f"p{i}" for i in np.repeat(np.arange(200), 3)))
    plans = [
        json.loads(good("plan", "val.npz", "--temperature-width", 1.2, *more, "--json"))["plans"][0]
        for more in ([], ["--clusters", "patient"], ["--clusters", "ids.txt"])
    ]
    assert plans[0]["n_clusters"] is None
    assert plans[1]["n_range"] == plans[2]["n_range"]
    assert plans[1]["n_samples"] > 2 * plans[0]["n_samples"]
    assert plans[1]["n_clusters"] == pytest.approx(plans[1]["n_samples"] / 3, abs=1)


def test_no_pilot(good):
    text = good("plan", "--accuracy", 0.9, "--n-classes", 3, "--temperature-width", "1.5x")
    assert "a typical network" in text
    assert "the pilot leaves" not in text
    assert "give or take 0.05" in good("plan", "--coverage", 0.9, "--within", 0.05)


def test_a_certificate(good, cli, tmp_path):
    h, y = draw(300, 3, scale=5.0)
    np.savez(tmp_path / "val.npz", logits=h, labels=y)
    done = cli("plan", "val.npz", "--max-miss", 0.25, "--decided-share", 0.3)
    assert done.code == 0, done.err
    assert "attemper refer fits the map on 20% of VAL" in done.out


def test_rows_to_label(good, unseen, tmp_path):
    good("plan", "test.npz", "--no-labels", "--choose", 20, "-o", "rows.csv", "--seed", 3)
    rows = np.loadtxt(tmp_path / "rows.csv", delimiter=",", skiprows=1)
    chosen = choose_samples(unseen[0], 20, seed=3)
    assert (tmp_path / "rows.csv").read_text().startswith("row,weight\n")
    assert rows[:, 0].tolist() == chosen.row.tolist()
    assert rows[:, 1].tolist() == chosen.weight.tolist()
    # What is labelled is evaluated with its weights.
    picked = chosen.row
    np.savez(tmp_path / "labelled.npz", logits=unseen[0][picked], labels=unseen[1][picked], w=chosen.weight)
    assert "accuracy" in good("evaluate", "labelled.npz", "--weights-key", "w")


def test_gates(cli, val):
    done = cli("plan", "val.npz", "--temperature-width", 1.2, "--fail-if", "n_samples>10", "--junit", "out.xml")
    assert done.code == 3
    assert "n_samples" in done.err
    assert cli("plan", "val.npz", "--temperature-width", 1.2, "--fail-if", "temperature:n_samples>1e9").code == 0


def test_what_does_not_belong_together(bad, cli, val, tmp_path):
    assert "expected a question. Use --temperature-width" in bad("plan", "val.npz")
    assert "--coverage and --within belong together" in bad("plan", "--coverage", 0.9)
    assert "--accuracy and --n-classes belong together" in bad("plan", "--accuracy", 0.9, "--ece-width", 0.1)
    assert "expected a pilot, such as val.npz" in bad("plan", "--ece-width", 0.1)
    assert "Use either PILOT" in bad("plan", "val.npz", "--accuracy", 0.9, "--n-classes", 3, "--ece-width", 0.1)
    assert "--choose and -o belong together" in bad("plan", "val.npz", "--choose", 5)
    assert "--choose: expected the file" in bad("plan", "--choose", 5, "-o", "rows.csv")
    assert "unsupported extension '.txt'; use one of .csv" in bad("plan", "val.npz", "--choose", 5, "-o", "rows.txt")
    assert "--decided-share belongs to --max-miss" in bad("plan", "val.npz", "--ece-width", 0.1, "--decided-share", 0.3)
    assert "--temperature belongs to --temperature-width" in bad(
        "plan", "val.npz", "--ece-width", 0.1, "--temperature", 2
    )
    assert "--temperature-width 1.0: expected a number above 1" in bad("plan", "val.npz", "--temperature-width", "1x")
    assert cli("plan", "val.npz", "--temperature-width", "wide").code == 2
    h, _ = val
    np.savez(tmp_path / "perfect.npz", logits=h, labels=h.argmax(axis=1))
    assert "every label is the arg max" in bad("plan", "perfect.npz", "--temperature-width", 1.2)


def test_a_map_fitted_on_the_pilot_is_a_warning(cli, val, tmp_path):
    cli("fit", "val.npz", "--method", "ts", "-o", "own.json")
    done = cli("plan", "val.npz", "--map", "own.json", "--accuracy-width", 0.1)
    assert done.code == 0
    assert "was fitted on this file" in done.err


def test_probabilities(good, tmp_path, val):
    h, y = val
    p = np.exp(h) / np.exp(h).sum(axis=1, keepdims=True)
    np.savez(tmp_path / "p.npz", probs=p, labels=y)
    found = json.loads(good("plan", "p.npz", "--probs", "--temperature-width", 1.2, "--json"))
    assert found["plans"][0]["n_samples"] == labels_for_temperature(h, y, width=1.2).n_samples


def test_a_pilot_without_labels_is_named(bad, good, tmp_path):
    np.savez(tmp_path / "new.npz", logits=draw(200, 3)[0])
    np.savetxt(tmp_path / "new.csv", draw(200, 3)[0], delimiter=",", header="a,b,c", comments="")
    for file in ("new.npz", "new.csv"):
        assert "Use --no-labels if the pilot has none." in bad("plan", file, "--temperature-width", "1.2x")
        assert "labels" in good("plan", file, "--temperature-width", "1.2x", "--no-labels")


def test_a_width_beyond_all_values_is_an_error(bad, val):
    for name, most in (("accuracy", 1), ("ece", 1), ("brier", 2)):
        assert f"expected a positive number, below {most}" in bad("plan", "val.npz", f"--{name}-width", "5")
