"""`attemper refer` as its users meet it."""

import json
import sys

import numpy as np
import pytest

import attemper
from attemper import BayesianTemperatureScaling, TemperatureScaling
from attemper.cli import main
from attemper.decisions import Policy

NAMES = ['"quoted"', "bcc", "nv", "🩺 mel"]


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
    good("--max-miss", 0.2, "-o", "policy.json", "--save-map", "map.json")
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
    good("--cost-refer", 1, "--cost-miss", '"quoted"=2,bcc=3,🩺 mel=50,nv=1', "--classes", "names.txt")


def test_costs_may_choose_the_prediction(good, files, tmp_path):
    told = ("--cost-refer", 1, "--cost-miss", "0=1,1=1,2=50,3=1", "--json")
    usual, cheapest = json.loads(good(*told)), json.loads(good(*told, "--predict-least-cost", "-o", "policy.json"))
    assert [p["policy"]["predict"] for p in (usual, cheapest)] == ["most_probable", "least_cost"]
    assert cheapest["test"]["cost"]["value"] < usual["test"]["cost"]["value"]
    assert Policy.load(tmp_path / "policy.json").to_dict() == cheapest["policy"]


def test_names_and_classes(good, files):
    text = good("--max-miss", 0.3, "--per-class", "--classes", "names.txt")
    assert all(name in text for name in NAMES)
    named = json.loads(good("--max-miss", "🩺 mel=0.3", "--classes", "names.txt", "--json"))["policy"]
    numbered = json.loads(good("--max-miss", "3=0.3", "--json"))["policy"]
    assert named["threshold"] == numbered["threshold"]


@pytest.mark.parametrize("right", [True, False])
def test_no_errors_and_nothing_but_errors(cli, tmp_path, right):
    save(tmp_path, "val", 200, 0, right=right)
    save(tmp_path, "test", 100, 1, right=right)
    line = ("val.npz", "test.npz", "--method", "ts")  # which changes no answer
    found = json.loads(cli(*line, "--max-miss", 0.05, "--json")[1])["test"]
    assert (found["missed"], found["caught"]) == (0, 0 if right else 100)
    assert [cli(*line, *asked)[0] for asked in (("--max-miss", 0.05), ("--budget", 0.5))] == [0, 0]


def test_five_samples(good, tmp_path):
    save(tmp_path, "val", 5, 0)
    save(tmp_path, "test", 5, 1)
    assert json.loads(good("--max-miss", 0.05, "--json"))["test"]["referred"] == 5
    good("--max-miss", 0.05)
    good("--budget", 0.2)


def test_two_classes_weights_and_noise(good, bad, tmp_path):
    for name, n in (("val", 300), ("test", 200)):
        h, y = save(tmp_path, name, n, n, k=2)
        w = np.random.default_rng(0).integers(0, 3, size=n)
        np.savez(tmp_path / f"{name}.npz", logits=h, labels=y, w=w, parts=w + 0.5)
    good("--max-miss", 0.2, "--weights-key", "w")
    bad("--max-miss", 0.2, "--weights-key", "parts")  # a guarantee needs counts
    good("--budget", 0.2, "--weights-key", "parts")
    good("--max-miss", 0.2, "--noisy")


@pytest.mark.parametrize(
    "args",
    [
        [],
        ["--max-miss", 0.1, "--budget", 0.2],
        ["--cost-refer", 1],
        ["--budget", 0.2, "--predict-least-cost"],
        ["--max-miss", 2],
        ["--max-miss", "few"],
        ["--max-miss", "mel=0.1"],
        ["--max-miss", "0=0.1,0=0.2"],
        ["--max-miss", "0=0.1", "--per-class"],
        ["--cost-refer", 1, "--cost-miss", "0=1"],
        ["--cost-refer", -1, "--cost-miss", 1],
        ["--budget", 1.5],
        ["--max-miss", 0.1, "--guarantee-level", 95],
        ["--max-miss", 0.1, "--fit-share", 1],
        ["--max-miss", 0.1, "--fit-share", 0.0001],
        ["--max-miss", 0.1, "--method", "ts", "--noisy"],
        ["--budget", 0.1, "--noise", "uniform"],
        ["--budget", 0.1, "-o", "none/policy.json"],
        ["--budget", 0.1, "-o", "val.npz"],
        ["--budget", 0.1, "--map", "none.json"],
        ["--budget", 0.1, "--map", "m.json", "--save-map", "n.json"],
        ["--budget", 0.2, "--guarantee-level", "0.9"],
        ["--budget", 0.2, "--fit-share", "0.3"],
        ["--cost-refer", "1", "--cost-miss", "5", "--miss-rate-of", "all"],
        ["--max-miss", "0.1", "--map", "m.json", "--method", "ts"],
        ["--max-miss", 0.2, "--max-per-cluster", 1],
    ],
)
def test_errors(bad, files, tmp_path, args):
    TemperatureScaling().fit(*save(tmp_path, "other", 50, 9)).save(tmp_path / "m.json")
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    bad(*args)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_a_map_does_not_choose_on_what_it_was_fitted_on(bad, cli, good, tmp_path):
    save(tmp_path, "val", 300, 0)
    save(tmp_path, "test", 200, 1)
    good("--max-miss", "0.2", "--save-map", "m.json")
    bad("--max-miss", "0.2", "--map", "m.json")
    for pair in (("val.npz", "test.npz"), ("test.npz", "val.npz")):
        code, _, err = cli(*pair, "--budget", "0.2", "--map", "m.json")  # promises nothing, so it warns
        assert (code, err.startswith("warning: val.npz: ")) == (0, True)
    (tmp_path / "val.npz").rename(tmp_path / "other.npz")
    (tmp_path / "val.npz").symlink_to(tmp_path / "other.npz")
    bad("--max-miss", "0.2", "--map", "m.json")


def test_rows_that_val_and_test_share(cli, bad, tmp_path):
    h, y = save(tmp_path, "val", 300, 0)
    other, labels = save(tmp_path, "test", 200, 1)
    np.savez(tmp_path / "test.npz", logits=np.concatenate([other, h[:50]]), labels=np.concatenate([labels, y[:50]]))
    code, _, err = cli("val.npz", "test.npz", "--budget", "0.2")
    assert (code, "50 of 250" in err) == (0, True)
    save(tmp_path, "test", 300, 0)
    bad("--max-miss", "0.2")


@pytest.fixture
def patients(tmp_path):
    """Several pictures of each patient, which are alike."""
    for name, n, seed in (("val", 700, 0), ("test", 900, 1)):
        rng = np.random.default_rng(seed)
        patient = np.sort(rng.integers(n // 2, size=n))
        h = rng.normal(size=(n, 3))[patient] * 6 + rng.normal(size=(n, 3)) * 0.1
        p = np.exp(h / 2) / np.exp(h / 2).sum(axis=1, keepdims=True)
        y = (p.cumsum(axis=1) < rng.random(n)[patient][:, None]).sum(axis=1).clip(0, 2)
        np.savez(tmp_path / f"{name}.npz", logits=h, labels=y, patient=patient)


def test_patients_are_the_unit(good, bad, patients, tmp_path):
    good("--max-miss", 0.2, "--clusters", "patient", "-o", "policy.json")
    data = {name: np.load(tmp_path / f"{name}.npz") for name in ("val", "test")}
    n_patients = len(np.unique(data["test"]["patient"]))
    policy = Policy.load(tmp_path / "policy.json")
    # A fifth of the patients fits the map, with all their pictures.
    assert policy.n_clusters == round(0.8 * len(np.unique(data["val"]["patient"])))
    found = json.loads(good("--max-miss", 0.2, "--clusters", "patient", "--json"))
    assert found["n_fitted"] + found["n_chosen"] == 700
    assert found["policy"]["n_clusters"] == policy.n_clusters
    assert found["clusters"]["n_clusters"] == found["test"]["n_clusters"] == n_patients
    by_sample = json.loads(good("--max-miss", 0.2, "--json"))
    widths = [each["test"]["referred_share"] for each in (found, by_sample)]
    assert widths[0]["high"] - widths[0]["low"] > widths[1]["high"] - widths[1]["low"]
    good("--max-miss", 0.2, "--clusters", "patient", "--max-per-cluster", 1)
    good("--budget", 0.2, "--clusters", "patient")
    bad("--budget", 0.2, "--clusters", "patient", "--max-per-cluster", 1)
    bad("--max-miss", 0.2, "--clusters", "site")
