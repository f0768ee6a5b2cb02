"""--groups of evaluate, compare and refer: arrays, columns and files; tables, JSON and conditions by group."""

import csv

import numpy as np
import pytest

from attemper import TemperatureScaling, metrics
from attemper.decisions import policy_for_budget

from commands import strict_json

SITES = np.array(["Oslo", "Bergen", "<b>Tromsø</b>"])


def draw(n, seed):
    """Draw logits of three sites; the last is far more overconfident than the others."""
    rng = np.random.default_rng(seed)
    site = rng.choice(3, n, p=[0.5, 0.25, 0.25])
    z = 2 * rng.normal(size=(n, 4))
    y = (z / np.array([1.5, 1.5, 8.0])[site, None] + rng.gumbel(size=z.shape)).argmax(axis=1)
    return z, y, SITES[site]


@pytest.fixture
def files(tmp_path):
    found = {}
    for name, seed in (("val", 0), ("test", 1)):
        z, y, site = found[name] = draw(800, seed)
        patient = np.arange(800) // 2
        np.savez(tmp_path / f"{name}.npz", logits=z, labels=y, site=site, patient=patient)
        (tmp_path / f"{name}_sites.txt").write_text("\n".join(site) + "\n", encoding="utf-8")
        with (tmp_path / f"{name}.csv").open("w", newline="", encoding="utf-8") as stream:
            table = csv.writer(stream)
            table.writerow(["site", "logit_a", "logit_b", "logit_c", "logit_d", "label"])
            table.writerows([[s, *map(repr, row.tolist()), label] for s, row, label in zip(site, z, y)])
    TemperatureScaling().fit(*found["val"][:2]).save(tmp_path / "m.json")
    return found


@pytest.fixture
def by_site(cli, files):
    """Run a command with --json; return what it printed by group, and all of it."""

    def run(*args, code=0):
        done = cli(*args, "--json")
        assert done.code == code, done.err
        found = strict_json(done.out)
        return {row["method"]: row for row in found.get("by_group", [])}, found

    return run


def test_evaluate_agrees_with_python(by_site, files):
    found, _ = by_site("evaluate", "test.npz", "--map", "m.json", "--groups", "site")
    assert list(found) == ["none", "ts"]
    z, y, site = files["test"]
    direct = metrics.by_group(y, z, input="logits", groups=site)
    assert [row["group"] for row in found["none"]["groups"]] == sorted(SITES)
    for row in found["none"]["groups"]:
        for name, value in row["metrics"].items():
            assert value["value"] == pytest.approx(direct[row["group"]].metrics[name].value)
            assert value["low"] == pytest.approx(direct[row["group"]].to_dict()["metrics"][name]["low"])
    assert found["none"]["alike"]["p_value"] == direct.alike.p_value < 0.01
    assert found["ts"]["worst"]["gap"]["group"] == SITES[2]
    assert found["ts"]["worst"]["gap"]["value"] < found["none"]["worst"]["gap"]["value"]


def test_groups_of_a_column_of_a_file_and_with_clusters(by_site):
    one, _ = by_site("evaluate", "test.npz", "--groups", "site")
    two, _ = by_site("evaluate", "test.npz", "--groups", "test_sites.txt")
    three, _ = by_site("evaluate", "test.csv", "--groups", "site")
    assert one == two == three
    cases, _ = by_site("evaluate", "test.npz", "--groups", "site", "--clusters", "patient")
    assert cases["none"]["groups"][0]["n_clusters"] is not None


def test_tables(good, files, tmp_path):
    assert SITES[2] in good("evaluate", "test.npz", "--map", "m.json", "--groups", "site", "--metrics", "nll")
    assert SITES[2] in good("compare", "val.npz", "test.npz", "--groups", "site", "--methods", "ts")
    assert SITES[2] in good("refer", "val.npz", "test.npz", "--max-miss", "0.45", "--groups", "site", "--method", "ts")
    z, y, _ = draw(400, 2)
    np.savez(tmp_path / "many.npz", logits=z, labels=y, id=np.arange(400) // 4)
    text = good("evaluate", "many.npz", "--groups", "id", "--metrics", "nll")
    assert len(text.splitlines()) < 50  # of 100 groups


@pytest.mark.parametrize(
    ("condition", "code"),
    [
        ("worst_gap.low>0.02", 1),
        ("none:worst_gap.low>0.9", 0),
        ("worst_nll>9", 0),
        ("alike.p_value<0.01", 1),
        ("group <b>Tromsø</b>:gap>0.9", 2),  # < and > are the operators
        ("group Oslo:gap.high>0.9", 0),
        ("group Oslo:accuracy<0.99", 1),
    ],
)
def test_conditions_by_group(cli, files, condition, code):
    done = cli("evaluate", "test.npz", "--map", "m.json", "--groups", "site", "--fail-if", condition)
    assert done.code == code, done.err


def test_compare_and_its_conditions(by_site):
    found, _ = by_site("compare", "val.npz", "test.npz", "--groups", "site", "--methods", "ts,bayes")
    assert list(found) == ["none", "ts", "bayes"]
    assert "by_group" not in by_site("compare", "val.npz", "test.npz", "--methods", "ts")[1]
    files = ("val.npz", "test.npz", "--groups", "site", "--methods", "ts")
    same, _ = by_site("compare", *files, "--fail-if", "worst_gap.low>0.01", code=1)
    assert same["ts"] == found["ts"]


def test_refer_by_group_agrees_with_loops(by_site, files):
    _, content = by_site("refer", "val.npz", "test.npz", "--budget", "0.3", "--map", "m.json", "--groups", "site")
    z, y, site = files["test"]
    calibrator = TemperatureScaling().fit(*files["val"][:2])
    policy = policy_for_budget(calibrator.predict_proba(files["val"][0]), 0.3)
    p = calibrator.predict_proba(z)
    for row in content["test"]["by_group"]:
        referred = missed = n = 0
        for label, probs, name in zip(y, p, site):
            if name == row["name"]:
                n += 1
                refer = probs.max() <= policy.threshold
                referred += refer
                missed += not refer and probs.argmax() != label
        assert (row["n"], row["referred"], row["missed"]) == (n, referred, missed)
        assert row["miss_rate"]["value"] == pytest.approx(missed / (n - referred))
    assert [row["name"] for row in content["test"]["by_group"]] == sorted(SITES)
    assert "by_group" not in by_site("refer", "val.npz", "test.npz", "--budget", "0.3")[1]["test"]


def test_a_map_with_groups_is_applied_by_group(by_site, cli):
    assert cli("fit", "val.npz", "--groups", "site", "--method", "ts", "-o", "g.json").code == 0
    found, _ = by_site("evaluate", "test.npz", "--map", "g.json", "--groups", "site")
    common, _ = by_site("evaluate", "test.npz", "--map", "m.json", "--groups", "site")
    assert found["ts"]["worst"]["gap"]["value"] < common["ts"]["worst"]["gap"]["value"] / 2
    refer = ("refer", "val.npz", "test.npz", "--map", "g.json", "--budget", "0.3")
    by_site(*refer, "--groups", "site")
    assert cli(*refer).code == 2
    assert by_site(*refer, "--no-groups")[1]["test"]["n"] == 800
