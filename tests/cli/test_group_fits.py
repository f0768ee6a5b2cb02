"""Maps by group from the command line: fit, apply, evaluate, export, sketch, sets."""

import csv
import json

import numpy as np
import pytest

import attemper
from attemper import GroupSketches, Sketch

from commands import strict_json

SITES = np.array(["1", "2", "3"])
TEMPERATURES = np.array([1.0, 2.0, 5.0])


def draw(n, seed):
    rng = np.random.default_rng(seed)
    site = rng.choice(3, n)
    z = 2 * rng.normal(size=(n, 4))
    return z, (z / TEMPERATURES[site, None] + rng.gumbel(size=z.shape)).argmax(axis=1), site


def write_csv(path, z, y, site):
    with path.open("w", newline="") as stream:
        table = csv.writer(stream)
        table.writerow(["site", "logit_a", "logit_b", "logit_c", "logit_d", "label"])
        table.writerows([[s, *map(repr, row.tolist()), label] for s, row, label in zip(site, z, y)])


@pytest.fixture
def files(tmp_path):
    found = {}
    for name, seed in (("val", 0), ("new", 1)):
        z, y, site = found[name] = draw(900, seed)
        np.savez(tmp_path / f"{name}.npz", logits=z, labels=y, site=site + 1, text=SITES[site])
        write_csv(tmp_path / f"{name}.csv", z, y, SITES[site])
        lines = [{"logits": row.tolist(), "label": int(k), "site": int(s) + 1} for row, k, s in zip(z, y, site)]
        (tmp_path / f"{name}.jsonl").write_text("\n".join(map(json.dumps, lines)) + "\n")
        (tmp_path / f"{name}_sites.txt").write_text("\n".join(SITES[site]) + "\n")
    return found


@pytest.mark.parametrize("method", ["bayes", "structured"])
def test_fit_and_apply_by_group(cli, files, tmp_path, method):
    result = cli("fit", "val.npz", "--groups", "site", "--method", method, "-o", "map.json", "--json")
    assert result.code == 0, result.out + result.err
    found = strict_json(result.out)
    assert found["groups"]["group"] == [1, 2, 3]
    fitted = attemper.load(tmp_path / "map.json")
    z, y, site = files["val"]
    assert found["nll_groups"] == pytest.approx(attemper.metrics.nll(y, fitted.predict_proba(z, site + 1)), rel=1e-9)
    assert found["nll_groups"] < found["nll"]
    z, _y, site = files["new"]
    p = fitted.predict_proba(z, SITES[site])
    for source, groups in (("new.npz", "site"), ("new.npz", "text"), ("new.npz", "new_sites.txt"), ("new.csv", "site"),
                           ("new.jsonl", "site")):  # fmt: skip
        result = cli("apply", "map.json", source, "--groups", groups, "-o", "p.npz")
        assert result.code == 0, result.out + result.err
        with np.load(tmp_path / "p.npz") as made:
            np.testing.assert_allclose(made["probs"], p, atol=1e-6)
    assert cli("apply", "map.json", "new.npz", "--no-groups", "-o", "p.npz").code == 0
    with np.load(tmp_path / "p.npz") as made:
        np.testing.assert_allclose(made["probs"], fitted.predict_proba(z, "common"), atol=1e-6)


def test_rows_without_a_group_are_refused(bad, good, files, tmp_path):
    good("fit", "val.npz", "--groups", "site", "-o", "map.json")
    bad("apply", "map.json", "new.npz", "-o", "p.npz")
    assert not (tmp_path / "p.npz").exists()
    bad("evaluate", "new.npz", "--map", "map.json")
    z, y, _site = files["new"]
    write_csv(tmp_path / "holes.csv", z[:5], y[:5], ["1", "2", "", "1", "2"])
    bad("apply", "map.json", "holes.csv", "--groups", "site", "-o", "p.npz")


def test_groups_are_better_calibrated_by_their_own_maps(good, files):
    good("fit", "val.npz", "--groups", "site", "-o", "map.json")
    by_group = strict_json(good("evaluate", "new.npz", "--map", "map.json", "--groups", "site", "--json"))
    common = strict_json(good("evaluate", "new.npz", "--map", "map.json", "--no-groups", "--json"))
    value = [found["rows"][1]["metrics"]["nll"]["value"] for found in (by_group, common)]
    assert value[0] < value[1] - 0.02


def test_the_map_of_a_group_is_exported(bad, good, files, tmp_path):
    ort = pytest.importorskip("onnxruntime")
    good("fit", "val.npz", "--groups", "site", "-o", "map.json")
    bad("export", "map.json", "-o", "map.onnx")
    fitted, z = attemper.load(tmp_path / "map.json"), files["new"][0].astype(np.float32)
    for group in ("3", "common"):
        good("export", "map.json", "-o", "map.onnx", "--group", group)
        session = ort.InferenceSession(str(tmp_path / "map.onnx"))
        [made] = session.run(None, {session.get_inputs()[0].name: z})
        expected = fitted.map_ if group == "common" else fitted.group_maps_[3]
        np.testing.assert_allclose(made, expected.apply(z), atol=1e-5)
    bad("export", "map.json", "-o", "map.onnx", "--group", "9")


def test_sketches_by_group_add_group_by_group(bad, good, files, tmp_path):
    for name in ("val", "new"):
        found = strict_json(good("sketch", f"{name}.npz", "--groups", "site", "-o", f"{name}.sketch.json", "--json"))
        assert found["n_groups"] == 3
    rows = [np.concatenate([files["val"][i], files["new"][i]]) for i in range(3)]
    both = GroupSketches.load(tmp_path / "val.sketch.json").sketches, GroupSketches.load("new.sketch.json").sketches
    for key in (1, 2, 3):
        own = rows[2] == key - 1
        added = both[0][key] + both[1][key]
        np.testing.assert_allclose(added.nll, Sketch.of(rows[0][own], rows[1][own]).nll, rtol=1e-9)
    good("fit", "val.sketch.json", "new.sketch.json", "--method", "ts", "-o", "s.json")
    np.savez("all.npz", logits=rows[0], labels=rows[1], site=rows[2] + 1)
    good("fit", "all.npz", "--groups", "site", "--method", "ts", "-o", "r.json")
    ratios = [attemper.load(name).groups_.temperature_ratio for name in ("s.json", "r.json")]
    np.testing.assert_allclose(*ratios, rtol=1e-4)
    bad("fit", "val.sketch.json", "--method", "structured")
    np.savez("odd.npz", logits=rows[0], labels=rows[1], site=np.where(np.arange(1800) < 7, "few", "many"))
    bad("sketch", "odd.npz", "--groups", "site", "-o", "odd.json")  # a group of seven samples
    assert not (tmp_path / "odd.json").exists()


def test_several_files_and_large_ones_have_groups_too(bad, good, files, monkeypatch):
    line = ("fit", "val.npz", "new.npz", "--groups", "site", "--method", "ts", "-o", "map.json")
    good(*line)
    whole = attemper.load("map.json")
    assert whole.groups_.n_samples.sum() == 1800
    monkeypatch.setattr("attemper.fitting.IN_MEMORY_BYTES", 1000)
    good(*line)
    pieces = attemper.load("map.json")
    np.testing.assert_allclose(pieces.groups_.temperature_ratio, whole.groups_.temperature_ratio, rtol=1e-4)
    bad(*line, "--workers", "2")
    bad("fit", "val.npz", "--multi-label", "--groups", "site")
