"""Maps by group from the command line: fit, apply, evaluate, export, sketch, merge, inspect."""

import csv
import json

import jsonschema
import numpy as np
import pytest

import attemper
from attemper import GroupSketches, Sketch, TemperatureScaling
from attemper.cli.schemas import schema_of

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
    jsonschema.validate(found, schema_of("fit"))
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


def test_fit_and_inspect_name_the_groups(cli, files):
    result = cli("fit", "val.csv", "--groups", "site", "-o", "map.json")
    assert "3 groups" in (result.out + result.err)
    assert "group 3: T ×" in (result.out + result.err)
    result = cli("inspect", "map.json")
    assert "group 3: T ×" in (result.out + result.err)
    assert strict_json(cli("inspect", "map.json", "--json").out)["groups"]["group"] == ["1", "2", "3"]


def test_rows_without_a_group_are_refused(cli, files, tmp_path):
    cli("fit", "val.npz", "--groups", "site", "-o", "map.json")
    result = cli("apply", "map.json", "new.npz", "-o", "p.npz")
    assert result.code == 2
    assert "--no-groups" in (result.out + result.err)
    assert not (tmp_path / "p.npz").exists()
    result = cli("evaluate", "new.npz", "--map", "map.json")
    assert result.code == 2
    assert "--groups NAME, or --no-groups" in " ".join((result.out + result.err).split())
    assert cli("evaluate", "new.npz", "--map", "map.json", "--no-groups").code == 0
    z, y, _site = files["new"]
    write_csv(tmp_path / "holes.csv", z[:5], y[:5], ["1", "2", "", "1", "2"])
    result = cli("apply", "map.json", "holes.csv", "--groups", "site", "-o", "p.npz")
    assert result.code == 2
    assert "row 2" in (result.out + result.err) or "line 4" in (result.out + result.err)


def test_groups_are_better_calibrated_by_their_own_maps(cli, files):
    cli("fit", "val.npz", "--groups", "site", "-o", "map.json")
    by_group = strict_json(cli("evaluate", "new.npz", "--map", "map.json", "--groups", "site", "--json").out)
    common = strict_json(cli("evaluate", "new.npz", "--map", "map.json", "--no-groups", "--json").out)
    value = [found["rows"][1]["metrics"]["nll"]["value"] for found in (by_group, common)]
    assert value[0] < value[1] - 0.02


def test_the_map_of_a_group_is_exported(cli, files, tmp_path):
    ort = pytest.importorskip("onnxruntime")
    cli("fit", "val.npz", "--groups", "site", "-o", "map.json")
    result = cli("export", "map.json", "-o", "map.onnx")
    assert result.code == 2
    assert "--group NAME" in (result.out + result.err)
    fitted, z = attemper.load(tmp_path / "map.json"), files["new"][0].astype(np.float32)
    for group in ("3", "common"):
        result = cli("export", "map.json", "-o", "map.onnx", "--group", group)
        assert result.code == 0, result.out + result.err
        session = ort.InferenceSession(str(tmp_path / "map.onnx"))
        [made] = session.run(None, {session.get_inputs()[0].name: z})
        expected = fitted.map_ if group == "common" else fitted.group_maps_[3]
        np.testing.assert_allclose(made, expected.apply(z), atol=1e-5)
    result = cli("export", "map.json", "-o", "map.onnx", "--group", "9")
    assert result.code == 2
    assert "'1', '2', '3'" in (result.out + result.err)


def test_sites_never_share_rows(cli, files, tmp_path):
    z, y, site = files["val"]
    whole = TemperatureScaling().fit(z, y, groups=site + 1)
    for k in range(3):
        np.savez(tmp_path / f"s{k + 1}.npz", logits=z[site == k], labels=y[site == k])
        assert cli("sketch", f"s{k + 1}.npz", "-o", f"{k + 1}.sketch.json").code == 0
    result = cli("merge", "1.sketch.json", "2.sketch.json", "3.sketch.json", "--as-groups", "-o", "all.json", "--json")
    assert result.code == 0, result.out + result.err
    jsonschema.validate(strict_json(result.out), schema_of("merge"))
    assert strict_json(result.out)["n_groups"] == 3
    assert cli("fit", "all.json", "--method", "ts", "-o", "map.json").code == 0
    merged = attemper.load(tmp_path / "map.json")
    np.testing.assert_allclose(merged.groups_.temperature_ratio, whole.groups_.temperature_ratio, rtol=1e-4)
    np.testing.assert_allclose(merged.predict_proba(z, site + 1), whole.predict_proba(z, site + 1), rtol=1e-3)
    result = cli("inspect", "all.json")
    assert "sketches of 3 groups" in (result.out + result.err)
    result = cli("merge", "1.sketch.json", "all.json", "-o", "x.json")
    assert result.code == 2
    assert "has groups" in (result.out + result.err)


def test_sketches_by_group_add_group_by_group(cli, files, tmp_path):
    for name in ("val", "new"):
        result = cli("sketch", f"{name}.npz", "--groups", "site", "-o", f"{name}.sketch.json", "--json")
        assert result.code == 0, result.out + result.err
        jsonschema.validate(strict_json(result.out), schema_of("sketch"))
    assert cli("merge", "val.sketch.json", "new.sketch.json", "-o", "both.json").code == 0
    both = GroupSketches.load(tmp_path / "both.json")
    assert both.n_samples == 1800
    rows = [np.concatenate([files["val"][i], files["new"][i]]) for i in range(3)]
    for key in (1, 2, 3):
        own = rows[2] == key - 1
        np.testing.assert_allclose(both.sketches[key].nll, Sketch.of(rows[0][own], rows[1][own]).nll, rtol=1e-9)
    result = cli("fit", "both.json", "--method", "structured")
    assert result.code == 2
    assert "needs the logits themselves" in (result.out + result.err)


def test_a_small_group_is_not_sketched_in_silence(cli, files, tmp_path):
    z, y, _site = files["val"]
    names = np.where(np.arange(900) < 7, "few", "many")
    np.savez(tmp_path / "odd.npz", logits=z, labels=y, site=names)
    result = cli("sketch", "odd.npz", "--groups", "site", "-o", "odd.json")
    assert result.code == 2
    assert "group few of 7 samples" in " ".join((result.out + result.err).split())
    assert not (tmp_path / "odd.json").exists()
    assert cli("sketch", "odd.npz", "--groups", "site", "-o", "odd.json", "--allow-small").code == 0


def test_several_files_and_large_ones_have_groups_too(cli, files, tmp_path, monkeypatch):
    assert cli("fit", "val.npz", "new.npz", "--groups", "site", "--method", "ts", "-o", "map.json").code == 0
    whole = attemper.load(tmp_path / "map.json")
    assert whole.groups_.n_samples.sum() == 1800
    monkeypatch.setattr("attemper.fitting.IN_MEMORY_BYTES", 1000)
    assert cli("fit", "val.npz", "new.npz", "--groups", "site", "--method", "ts", "-o", "map.json").code == 0
    pieces = attemper.load(tmp_path / "map.json")
    np.testing.assert_allclose(pieces.groups_.temperature_ratio, whole.groups_.temperature_ratio, rtol=1e-4)
    result = cli("fit", "val.npz", "new.npz", "--groups", "site", "--workers", "2")
    assert result.code == 2
    assert "read by one process" in (result.out + result.err)
    result = cli("fit", "val.npz", "--multi-label", "--groups", "site")
    assert result.code == 2
    assert "exclude each other" in (result.out + result.err)


def test_sets_take_the_options_that_the_error_names(cli, files, tmp_path):
    assert cli("fit", "val.npz", "--groups", "site", "-o", "map.json").code == 0
    z, y, site = draw(900, 2)
    np.savez(tmp_path / "third.npz", logits=z, labels=y, site=site + 1)
    result = cli("sets", "new.npz", "third.npz", "--map", "map.json", "--coverage", "0.9")
    assert result.code == 2
    assert "--no-groups" in result.err
    for options in (["--groups", "site"], ["--no-groups"]):
        assert cli("sets", "new.npz", "third.npz", "--map", "map.json", "--coverage", "0.9", *options).code == 0


def test_another_column_is_a_warning(cli, files, tmp_path):
    assert cli("fit", "val.npz", "--groups", "site", "-o", "map.json").code == 0
    (tmp_path / "names.txt").write_text("\n".join(["Oslo", "Bergen"] * 450) + "\n")
    result = cli("apply", "map.json", "new.npz", "--groups", "names.txt", "-o", "p.npz")
    assert result.code == 0
    assert "expected those of the fit ('1', '2', '3'), got none of them, but 'Bergen', 'Oslo'" in result.err
