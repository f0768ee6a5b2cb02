"""`attemper refer` as its users meet it."""

import json
import sys

import numpy as np
import pytest

import attemper
from attemper import BayesianTemperatureScaling
from attemper.cli import main
from attemper.decisions import Policy

NAMES = ["bcc", '"quoted"', "🩺 mel", "nv"]


@pytest.fixture
def cli(capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)

    def run(*args):
        monkeypatch.setattr(sys, "argv", ["attemper", "refer", *map(str, args)])
        with pytest.raises(SystemExit) as end:
            main()
        return end.value.code or 0, *capsys.readouterr()

    return run


@pytest.fixture
def good(cli):
    def run(*args):
        code, out, err = cli("val.npz", "test.npz", *args)
        assert (code, err) == (0, "")
        return out

    return run


@pytest.fixture
def bad(cli):
    def run(*args):
        code, out, err = cli("val.npz", "test.npz", *args)
        assert (code, out) == (2, "")
        assert err.startswith("attemper: ")
        assert len(err.splitlines()) == 1
        return err

    return run


def save(folder, name, n, seed, *, right=None, k=4, scale=6.0):
    rng = np.random.default_rng(seed)
    h = rng.normal(size=(n, k)) * scale
    p = np.exp(h / 2) / np.exp(h / 2).sum(axis=1, keepdims=True)
    y = (p.cumsum(axis=1) < rng.random((n, 1))).sum(axis=1).clip(0, k - 1)
    if right is not None:
        y = h.argmax(axis=1) if right else (h.argmax(axis=1) + 1) % k
    np.savez(folder / f"{name}.npz", logits=h, labels=y)
    return h, y


@pytest.fixture
def files(tmp_path):
    (tmp_path / "names.txt").write_text("\n".join(NAMES), encoding="utf-8")
    return save(tmp_path, "val", 600, 0), save(tmp_path, "test", 800, 1)


def test_a_rate_of_misses(good, files, tmp_path):
    text = good("--max-miss", 0.2, "-o", "policy.json", "--save-map", "map.json")
    assert "fitted on 120 of 600 validation samples. Policy: chosen on 480." in text
    assert "with confidence 0.95 at most 0.2 of the decided samples are decided wrongly" in text
    assert "are missed" in text
    assert "asked: at most 20.0%" in text
    found = json.loads(good("--max-miss", 0.2, "--json"))
    policy, fitted = Policy.load(tmp_path / "policy.json"), attemper.load(tmp_path / "map.json")
    assert policy.to_dict() == found["policy"]
    assert policy.reached
    # The same by hand, from the map and the policy that were written.
    h, y = files[1]
    refer, prediction, _ = policy.refer_or_decide(fitted.predict_proba(h))
    assert found["test"]["referred"] == refer.sum()
    assert found["test"]["missed"] == (~refer & (prediction != y)).sum()
    assert found["test"]["caught"] == (refer & (prediction != y)).sum()
    assert sum(row["n"] for row in found["test"]["by_class"]) == 800
    assert found["test"]["miss_rate"]["low"] < 0.2
    # Neither the same part of VAL fits the map and chooses, nor is it another one next time.
    assert found == json.loads(good("--max-miss", 0.2, "--json"))
    assert found["policy"] != json.loads(good("--max-miss", 0.2, "--json", "--seed", 1))["policy"]
    assert (found["n_fitted"], found["n_chosen"]) == (120, 480)
    other = json.loads(good("--max-miss", 0.2, "--json", "--fit-share", 0.4))
    assert (other["n_fitted"], other["n_chosen"]) == (240, 360)
    other = json.loads(good("--max-miss", 0.2, "--json", "--method", "vector"))
    assert (other["n_fitted"], other["n_chosen"]) == (300, 300)
    save(tmp_path, "val", 600, 2)  # samples that the map has not seen
    whole = json.loads(good("--max-miss", 0.2, "--json", "--map", "map.json"))
    assert (whole["n_fitted"], whole["n_chosen"]) == (0, 600)


def test_a_budget_and_costs_use_all_of_val(good, files):
    h, y = files[0]
    p = BayesianTemperatureScaling().fit(h, y).predict_proba(h)
    found = json.loads(good("--budget", 0.25, "--json"))
    assert found["policy"]["threshold"] == pytest.approx(np.sort(p.max(axis=1))[149])
    assert found["n_fitted"] == found["n_chosen"] == 600
    assert found["test"]["referred_share"]["value"] == pytest.approx(0.25, abs=0.06)
    found = json.loads(good("--cost-refer", 1, "--cost-miss", 20, "--json"))
    assert found["policy"]["threshold"] == 0.95
    cost = found["test"]["cost"]
    assert cost["low"] < cost["value"] < cost["high"]
    text = good("--cost-refer", 1, "--cost-miss", '"quoted"=2,bcc=3,🩺 mel=50,nv=1', "--classes", "names.txt")
    assert "decide when the expected cost of a miss is below 1" in text
    assert "Cost a sample" in text


def test_costs_may_choose_the_prediction(good, files, tmp_path):
    told = ("--cost-refer", 1, "--cost-miss", "0=1,1=1,2=50,3=1", "--json")
    usual, cheapest = json.loads(good(*told)), json.loads(good(*told, "--predict-least-cost", "-o", "policy.json"))
    assert [p["policy"]["predict"] for p in (usual, cheapest)] == ["most_probable", "least_cost"]
    assert cheapest["test"]["cost"]["value"] < usual["test"]["cost"]["value"]
    assert Policy.load(tmp_path / "policy.json").to_dict() == cheapest["policy"]
    text = good(*told[:-1], "--predict-least-cost")
    assert "predict the class of least expected cost" in text
    assert "another class than the most probable" in text


def test_ties_start_from_the_samples_that_fitted_the_map(good, files, tmp_path):
    binned = ("--max-miss", 0.2, "--method", "histogram", "--json")
    assert not any("tied" in note for note in json.loads(good(*binned, "--save-map", "m.json"))["policy"]["notes"])
    save(tmp_path, "val", 600, 2)  # samples that the map has not seen
    # The map of another part: all of VAL chooses, and nothing else is there to start from.
    notes = json.loads(good("--max-miss", 0.2, "--map", "m.json", "--json"))["policy"]["notes"]
    assert any("tied" in note and "without --map" in note for note in notes)


def test_a_class_bound_reports_how_many_cases_it_takes(good, files):
    y = files[0][1]
    text = good("--max-miss", "2=0.3,1=0.05", "--fit-share", 0.001)
    assert "59 cases of class 1" in text
    assert "9 cases of class 2" in text
    assert abs((y == 1).sum() - int(text.split("59 cases of class 1 (there are ")[1].split(")")[0])) <= 1


def test_names_and_classes(good, files):
    text = good("--max-miss", 0.3, "--per-class", "--classes", "names.txt")
    assert all(name in text for name in NAMES)
    assert "of each predicted class" in text
    assert "predicted as" in text
    text = good("--max-miss", "🩺 mel=0.3", "--classes", "names.txt")
    assert "at most 0.3 of all samples that are 🩺 mel are decided wrongly" in text
    assert "at most 0.3 of all samples that are class 2" in good("--max-miss", "2=0.3")


def test_a_class_without_samples_says_so(good, files, tmp_path):
    h, y = files[1]
    np.savez(tmp_path / "test.npz", logits=h[y != 2], labels=y[y != 2])
    text = good("--budget", 0.2, "--classes", "names.txt")
    row = next(line for line in text.splitlines() if "🩺 mel" in line)
    assert "no samples" in row


@pytest.mark.parametrize("right", [True, False])
def test_no_errors_and_nothing_but_errors(cli, tmp_path, right):
    save(tmp_path, "val", 200, 0, right=right)
    save(tmp_path, "test", 100, 1, right=right)
    for method in ("bayes", "ts"):  # which change no answer
        code, text, _ = cli("val.npz", "test.npz", "--max-miss", 0.05, "--method", method)
        assert code == 0
        assert ("refer every case" in text) == (not right)
        assert ("Of 0 wrong predictions" if right else "Of 100 wrong predictions 100 are caught, 0 are missed") in text
    assert "referred" in cli("val.npz", "test.npz", "--budget", 0.5)[1]


def test_five_samples(good, cli, tmp_path):
    save(tmp_path, "val", 5, 0)
    save(tmp_path, "test", 5, 1)
    text = good("--max-miss", 0.05)
    assert "Rule: refer every case." in text
    assert "it takes 59 right predictions in a row to be 0.95 confident" in text
    assert "5 are referred: 100.0%" in text
    assert "referred" in good("--budget", 0.2)
    save(tmp_path, "val", 1, 0)
    assert cli("val.npz", "test.npz", "--budget", 0.2)[0] == 0


def test_two_classes_weights_and_noise(good, bad, tmp_path):
    for name, n in (("val", 300), ("test", 200)):
        h, y = save(tmp_path, name, n, n, k=2)
        w = np.random.default_rng(0).integers(0, 3, size=n)
        np.savez(tmp_path / f"{name}.npz", logits=h, labels=y, w=w, parts=w + 0.5)
    assert "On the " in good("--max-miss", 0.2, "--weights-key", "w")
    assert "A guarantee needs counts" in bad("--max-miss", 0.2, "--weights-key", "parts")
    assert "test samples" in good("--budget", 0.2, "--weights-key", "parts")
    text = good("--max-miss", 0.2, "--noisy")
    assert "takes the labels of VAL for the truth" in text


@pytest.mark.parametrize(
    "args, message",
    [
        ([], "exactly one of --max-miss"),
        (["--max-miss", 0.1, "--budget", 0.2], "exactly one of --max-miss"),
        (["--cost-refer", 1], "--cost-refer and --cost-miss belong together"),
        (["--budget", 0.2, "--miss-rate-of", "all"], "belongs to --max-miss"),
        (["--budget", 0.2, "--predict-least-cost"], "--predict-least-cost belongs to --cost-refer and --cost-miss"),
        (["--max-miss", 2], "--max-miss 2.0: expected a rate between 0 and 1"),
        (["--max-miss", "few"], "--max-miss few: expected a number, or NAME=NUMBER"),
        (["--max-miss", "mel=0.1"], "there is no class 'mel'; there are 0, 1, 2, 3. Use --classes for their names"),
        (["--max-miss", "0=0.1,0=0.2"], "'0' is there twice"),
        (["--max-miss", "0=0.1", "--per-class"], "neither --per-class"),
        (["--cost-refer", 1, "--cost-miss", "0=1"], "the class '1' is missing"),
        (["--cost-refer", -1, "--cost-miss", 1], "--cost-refer -1.0"),
        (["--budget", 1.5], "--budget 1.5"),
        (["--max-miss", 0.1, "--guarantee-level", 95], "--guarantee-level 95"),
        (["--max-miss", 0.1, "--fit-share", 1], "--fit-share 1.0: expected a number between 0 and 1"),
        (["--max-miss", 0.1, "--fit-share", 0.0001], "leaves a part with none"),
        (["--max-miss", 0.1, "--method", "ts", "--noisy"], "--noisy belongs to the methods"),
        (["--budget", 0.1, "--noise", "uniform"], "add --noisy"),
        (["--budget", 0.1, "-o", "none/policy.json"], "the folder none does not exist"),
        (["--budget", 0.1, "-o", "val.npz"], "is one of the inputs"),
        (["--budget", 0.1, "--map", "none.json"], "none.json"),
        (["--budget", 0.1, "--map", "m.json", "--save-map", "n.json"], "with --map nothing is"),
    ],
)
def test_errors(bad, files, args, message):
    assert message in bad(*args)


def test_files_that_do_not_fit(bad, files, tmp_path):
    save(tmp_path, "val", 50, 0, k=3)
    assert "expected 3 classes, as VAL (val.npz) has, got 4" in bad("--budget", 0.1)
    np.savez(tmp_path / "val.npz", logits=[[0.0, np.nan, 1, 2]], labels=[0])
    assert "row 0, column 1 is NaN" in bad("--budget", 0.1)


def test_help_teaches(cli):
    code, text, _ = cli("--help")
    assert code == 0
    assert "--fit-share" in text
    assert "so VAL is split at random" in " ".join(text.split())


def test_no_file_is_lost(bad, good, tmp_path):
    save(tmp_path, "val", 300, 0)
    save(tmp_path, "test", 200, 1)
    assert "both name p.json" in bad("--max-miss", "0.2", "-o", "p.json", "--save-map", "p.json")
    good("--budget", "0.2", "--save-map", "m.json")
    before = (tmp_path / "m.json").read_bytes()
    assert "one of the inputs, which would be overwritten" in bad("--budget", "0.2", "--map", "m.json", "-o", "m.json")
    assert (tmp_path / "m.json").read_bytes() == before


def test_a_threshold_is_not_judged_on_what_it_was_chosen_on(bad, tmp_path):
    for name in ("val", "test"):
        save(tmp_path, name, 300, 0)
    assert "VAL and TEST are the same samples" in bad("--max-miss", "0.2")


def test_a_map_does_not_choose_on_what_it_was_fitted_on(bad, cli, good, tmp_path):
    save(tmp_path, "val", 300, 0)
    save(tmp_path, "test", 200, 1)
    good("--max-miss", "0.2", "--save-map", "m.json")
    assert "val.npz: m.json was fitted on this file" in bad("--max-miss", "0.2", "--map", "m.json")
    code, _, err = cli("val.npz", "test.npz", "--budget", "0.2", "--map", "m.json")  # promises nothing, so it warns
    assert (code, "val.npz: m.json was fitted on this file" in err) == (0, True)
    (tmp_path / "val.npz").rename(tmp_path / "other.npz")
    (tmp_path / "val.npz").symlink_to(tmp_path / "other.npz")
    assert "val.npz: m.json was fitted on this file" in bad("--max-miss", "0.2", "--map", "m.json")


def test_a_map_that_saw_the_test_samples(cli, tmp_path):
    save(tmp_path, "val", 300, 0)
    save(tmp_path, "test", 200, 1)
    assert cli("val.npz", "test.npz", "--budget", "0.2", "--save-map", "m.json")[0] == 0
    code, _, err = cli("test.npz", "val.npz", "--budget", "0.2", "--map", "m.json")
    assert code == 0
    assert err.startswith("warning: val.npz: m.json was fitted on this file")


def test_rows_that_val_and_test_share(cli, tmp_path):
    h, y = save(tmp_path, "val", 300, 0)
    other, labels = save(tmp_path, "test", 200, 1)
    np.savez(tmp_path / "test.npz", logits=np.concatenate([other, h[:50]]), labels=np.concatenate([labels, y[:50]]))
    code, _, err = cli("val.npz", "test.npz", "--budget", "0.2")
    assert code == 0
    assert err.startswith("warning: 50 of 250 test samples (20.0%)")


@pytest.mark.parametrize(
    "args, message",
    [
        (["--budget", "0.2", "--guarantee-level", "0.9"], "--guarantee-level belongs to --max-miss"),
        (["--budget", "0.2", "--fit-share", "0.3"], "--fit-share belongs to --max-miss"),
        (["--cost-refer", "1", "--cost-miss", "5", "--miss-rate-of", "all"], "--miss-rate-of belongs to --max-miss"),
        (["--max-miss", "0.1", "--map", "m.json", "--method", "ts"], "--method belongs to a fit"),
    ],
)
def test_an_option_that_would_do_nothing_is_refused(bad, tmp_path, args, message):
    for i, name in enumerate(("val", "test")):
        save(tmp_path, name, 50, i)
    assert message in bad(*args)


@pytest.fixture
def patients(tmp_path):
    """Several pictures of each patient, which are alike; the patients of VAL in a file of their own."""
    for name, n, seed in (("val", 700, 0), ("test", 900, 1)):
        rng = np.random.default_rng(seed)
        patient = np.sort(rng.integers(n // 2, size=n))
        h = rng.normal(size=(n, 3))[patient] * 6 + rng.normal(size=(n, 3)) * 0.1
        p = np.exp(h / 2) / np.exp(h / 2).sum(axis=1, keepdims=True)
        y = (p.cumsum(axis=1) < rng.random(n)[patient][:, None]).sum(axis=1).clip(0, 2)
        np.savez(tmp_path / f"{name}.npz", logits=h, labels=y, patient=patient)
    (tmp_path / "patients.txt").write_text("\n".join(f"p{i}" for i in np.load(tmp_path / "val.npz")["patient"]))


def test_patients_are_the_unit(good, patients, tmp_path):
    text = good("--max-miss", 0.2, "--clusters", "patient", "-o", "policy.json")
    data = {name: np.load(tmp_path / f"{name}.npz") for name in ("val", "test")}
    n_patients = len(np.unique(data["test"]["patient"]))
    assert f"900 samples of {n_patients} clusters, worth about" in text
    policy = Policy.load(tmp_path / "policy.json")
    most = policy.guarantee.max_per_cluster
    assert f"for a sample drawn at random, with at most {most} of each cluster" in " ".join(text.split())
    # A fifth of the patients fits the map, with all their pictures.
    assert policy.n_clusters == round(0.8 * len(np.unique(data["val"]["patient"])))
    found = json.loads(good("--max-miss", 0.2, "--clusters", "patient", "--json"))
    assert found["n_fitted"] + found["n_chosen"] == 700
    assert found["policy"]["n_clusters"] == policy.n_clusters
    assert found["clusters"]["n_clusters"] == found["test"]["n_clusters"] == n_patients
    by_sample = json.loads(good("--max-miss", 0.2, "--json"))
    assert by_sample["policy"]["guarantee"]["max_per_cluster"] is None
    widths = [each["test"]["referred_share"] for each in (found, by_sample)]
    assert widths[0]["high"] - widths[0]["low"] > widths[1]["high"] - widths[1]["low"]
    named = json.loads(good("--max-miss", 0.2, "--clusters", "patient", "--val-clusters", "patients.txt", "--json"))
    assert named["policy"]["n_clusters"] == policy.n_clusters


def test_one_picture_of_each_patient(good, bad, patients):
    asked = ("--clusters", "patient", "--max-per-cluster", 1)
    text = " ".join(good("--max-miss", 0.2, *asked).split())
    assert "for a cluster drawn at random, then one of its samples" in text
    for more in (("--budget", 0.2), ("--cost-refer", 1, "--cost-miss", 9)):
        assert "samples of" in good(*more, "--clusters", "patient")
    assert "--max-per-cluster 1: belongs to clusters. Use it with --clusters NAME." in bad(
        "--max-miss", 0.2, "--max-per-cluster", 1
    )
    assert "--max-per-cluster belongs to --max-miss" in bad("--budget", 0.2, *asked)
    assert "site" in bad("--max-miss", 0.2, "--clusters", "site")
