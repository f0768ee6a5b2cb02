"""`attemper adapt`: known shares and estimated ones, from the command line."""

import json

import numpy as np
import pytest

import attemper
from attemper import VectorScaling

from commands import strict_json

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
    line = ("adapt", "m.json", "new.npz", "--validation", "val.npz", "-o", "adapted.json")
    good(*line)
    adapted = attemper.load(tmp_path / "adapted.json")
    assert np.abs(adapted.adaptation_.new - NEW).sum() < 0.1
    good("apply", "adapted.json", "new.npz", "-o", "p.npz")
    with np.load(tmp_path / "p.npz") as z:
        np.testing.assert_allclose(z["probs"], adapted.predict_proba(files))
    found = strict_json(good(*line, "--clusters", "patient", "--json"))
    assert (found["n_samples"], found["estimated"], found["files"]) == (400, True, ["new.npz"])
    assert found["new"] == pytest.approx(NEW, abs=0.05)


def test_known_shares(good, bad, files, tmp_path):
    (tmp_path / "p.json").write_text(json.dumps([0.1, 0.3, 0.6]))
    expected = attemper.load(tmp_path / "m.json").with_priors(NEW, OLD).predict_proba(files)
    for given in ("0.1,0.3,0.6", "c=0.6,a=0.1,b=0.3", "p.json"):
        line = ("adapt", "m.json", "--priors", given, "--old", "0.5,0.3,0.2", "-o", "k.json", "--json")
        found = strict_json(good(*line))
        assert (found["new"], found["estimated"]) == (pytest.approx(NEW), False)
        np.testing.assert_allclose(attemper.load(tmp_path / "k.json").predict_proba(files), expected, rtol=1e-12)
    for wrong in ("0.1,0.3,0.8", "x,0.3,0.8", "p.nothing"):
        bad("adapt", "m.json", "--priors", wrong, "-o", "k.json")
    bad("adapt", "m.json", "new.npz", "--priors", "0.1,0.3,0.6", "-o", "k.json")
    bad("adapt", "m.json", "--validation", "val.npz", "--priors", "0.1,0.3,0.6", "-o", "k.json")
    bad("adapt", "m.json", "-o", "k.json")


def test_what_is_no_label_shift_is_refused(cli, bad, files, tmp_path):
    line = ("adapt", "m.json", "odd.npz", "--validation", "val.npz", "-o", "adapted.json")
    bad(*line)
    assert not (tmp_path / "adapted.json").exists()
    assert cli(*line, "--force").code == 0
