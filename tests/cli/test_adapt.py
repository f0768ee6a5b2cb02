"""`attemper adapt`: known shares and estimated ones, from the command line."""

import json

import numpy as np
import pytest

import attemper
from attemper import VectorScaling

from commands import strict_json

VAL = ("--validation", "val.npz")
OLD, NEW = np.array([0.5, 0.3, 0.2]), np.array([0.1, 0.3, 0.6])


def rows(n, shares, seed):
    rng = np.random.default_rng(seed)
    y = rng.choice(3, n, p=shares)
    return 1.5 * (rng.normal(size=(n, 3)) + 1.5 * np.eye(3)[y]) + np.log(OLD), y


@pytest.fixture
def files(tmp_path):
    h, y = rows(1500, OLD, 0)
    np.savez(tmp_path / "val.npz", logits=h, labels=y)
    new, labels = rows(1200, NEW, 1)
    np.savez(tmp_path / "new.npz", logits=new, labels=labels, patient=np.arange(1200) // 3)
    np.savez(tmp_path / "odd.npz", logits=3 * new)
    VectorScaling(classes=["a", "b", "c"]).fit(h, np.array(["a", "b", "c"])[y]).save(tmp_path / "m.json")
    return new


def test_unlabelled_data(good, files, tmp_path):
    printed = good("adapt", "m.json", "new.npz", *VAL, "-o", "adapted.json")
    assert "a: 0.484 → 0.0803" in printed
    assert "test of label shift: p =" in printed
    adapted = attemper.load(tmp_path / "adapted.json")
    assert np.abs(adapted.adaptation_.new - NEW).sum() < 0.1
    assert "estimated from 1200 unlabelled samples" in good("inspect", "adapted.json")
    good("apply", "adapted.json", "new.npz", "-o", "p.npz")
    with np.load(tmp_path / "p.npz") as z:
        np.testing.assert_allclose(z["probs"], adapted.predict_proba(files))
    found = strict_json(
        good("adapt", "m.json", "new.npz", *VAL, "-o", "adapted.json", "--clusters", "patient", "--json")
    )
    assert found["n_samples"] == 400
    assert found["new"] == pytest.approx(NEW, abs=0.05)
    again = strict_json(good("adapt", "adapted.json", "new.npz", *VAL, "-o", "again.json", "--json"))
    assert again["old"] == pytest.approx(found["old"])


def test_known_shares(good, bad, files, tmp_path):
    for given in ("0.1,0.3,0.6", "c=0.6,a=0.1,b=0.3"):
        good("adapt", "m.json", "--priors", given, "--old", "0.5,0.3,0.2", "-o", "k.json")
        expected = attemper.load(tmp_path / "m.json").with_priors(NEW, OLD).predict_proba(files)
        np.testing.assert_allclose(attemper.load(tmp_path / "k.json").predict_proba(files), expected, rtol=1e-12)
    (tmp_path / "p.json").write_text(json.dumps({"a": 0.1, "b": 0.3, "c": 0.6}))
    (tmp_path / "p.csv").write_text("class,share\na,0.1\nb,0.3\nc,0.6\n")
    (tmp_path / "p.txt").write_text("0.1\n0.3\n0.6\n")
    for name in ("p.json", "p.csv", "p.txt"):
        found = strict_json(good("adapt", "m.json", "--priors", name, *VAL, "-o", "k.json", "--json"))
        assert found["new"] == pytest.approx(NEW)
        assert found["estimated"] is False
    assert "sum of 1.2" in bad("adapt", "m.json", "--priors", "0.1,0.3,0.8", "-o", "k.json")
    assert "'x'" in bad("adapt", "m.json", "--priors", "x,0.3,0.8", "-o", "k.json")
    assert "p.nothing" in bad("adapt", "m.json", "--priors", "p.nothing", "-o", "k.json")
    (tmp_path / "p.json").write_text('{"a": "much"}')
    assert "list of numbers" in bad("adapt", "m.json", "--priors", "p.json", "-o", "k.json")
    assert "not both" in bad("adapt", "m.json", "new.npz", "--priors", "0.1,0.3,0.6", "-o", "k.json")
    assert "INPUT" in bad("adapt", "m.json", "-o", "k.json")


def test_what_is_no_label_shift_is_refused(cli, bad, files, tmp_path):
    assert "--force" in bad("adapt", "m.json", "odd.npz", *VAL, "-o", "adapted.json")
    assert not (tmp_path / "adapted.json").exists()
    done = cli("adapt", "m.json", "odd.npz", *VAL, "-o", "adapted.json", "--force")
    assert done.code == 0
    assert "no mix of the classes" in done.err


def test_a_map_of_a_sketch_needs_validation_data(good, bad, files):
    good("sketch", "val.npz", "-o", "s.json")
    good("fit", "s.json", "--method", "ts", "-o", "t.json")
    assert "validation" in bad("adapt", "t.json", "new.npz", "-o", "adapted.json")
    found = strict_json(good("adapt", "t.json", "new.npz", "-o", "adapted.json", "--validation", "val.npz", "--json"))
    assert found["new"] == pytest.approx(NEW, abs=0.06)


def test_a_map_of_groups(good, bad, files, tmp_path):
    h, y = rows(600, OLD, 3)
    np.savez(tmp_path / "sites.npz", logits=h, labels=y, site=np.arange(600) % 2)
    good("fit", "sites.npz", "--groups", "site", "-o", "g.json")
    new, labels = rows(600, NEW, 4)
    np.savez(tmp_path / "later.npz", logits=new, labels=labels, site=np.arange(600) % 2)
    assert "validation" in bad("adapt", "g.json", "later.npz", "--no-groups", "-o", "a.json")
    more = ["--validation", "sites.npz"]
    for options in (["--no-groups", *more], ["--groups", "site", *more]):
        found = strict_json(good("adapt", "g.json", "later.npz", *options, "-o", "a.json", "--json"))
        assert found["new"] == pytest.approx(NEW, abs=0.1)
    assert len(attemper.load(tmp_path / "a.json").group_maps_) == 2


def test_a_map_without_names_takes_those_of_the_input(good, files, tmp_path):
    good("fit", "val.npz", "--method", "ts", "-o", "plain.json")
    np.savez(tmp_path / "named.npz", logits=files, class_names=np.array(["nevus", "melanoma", "other"]))
    assert "nevus: 0." in good("adapt", "plain.json", "named.npz", *VAL, "-o", "adapted.json")
