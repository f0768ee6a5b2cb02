"""`attemper fit` finds what Python finds on the same numbers, on whatever scale the logits are."""

import json
import sys
import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import attemper
from attemper import AttendedTemperatureScaling, EdgeWarning, Sketch, TemperatureScaling
from attemper.calibrators import METHODS
from attemper.cli import main
from attemper.sharded import fit_sharded

from data import draw


@pytest.fixture
def fit(capsys, monkeypatch, tmp_path):
    """Run a command; return the map that it wrote, what it printed and what it warned of."""
    monkeypatch.chdir(tmp_path)

    def run(*words):
        monkeypatch.setattr(sys, "argv", ["attemper", *map(str, words)])
        with pytest.raises(SystemExit) as end:
            main()
        out, err = capsys.readouterr()
        assert end.value.code == 0, err
        return attemper.load("attemper.json") if words[0] == "fit" else None, out, err

    return run


def in_python(calibrator, *data):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", attemper.AttemperWarning)
        return calibrator.fit(*data)


def numbers(thing):
    """All numbers of a map, in order."""
    if isinstance(thing, dict):
        return [x for value in thing.values() for x in numbers(value)]
    if isinstance(thing, list | tuple):
        return [x for value in thing for x in numbers(value)]
    return [thing] if isinstance(thing, int | float) else []


@pytest.mark.parametrize("scale", [1, 1000, 0.001])
@pytest.mark.parametrize("method", METHODS)
def test_the_command_fits_what_python_fits(fit, method, scale):
    h, y = draw(400, 4)
    h *= scale
    np.savez("val.npz", logits=h, labels=y)
    found, _, err = fit("fit", "val.npz", "--method", method)
    expected = in_python(METHODS[method](), h, y)
    assert found.get_params() == expected.get_params()
    assert type(found.map_) is type(expected.map_)
    np.testing.assert_allclose(numbers(found.map_.to_dict()), numbers(expected.map_.to_dict()), rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(found.predict_proba(h), expected.predict_proba(h), atol=1e-7)
    assert found.fit_report_.edge == expected.fit_report_.edge
    if method == "ts":
        assert found.temperature_ == pytest.approx(expected.temperature_, rel=1e-8)
        assert err == ""


def test_a_grid_of_theta_is_that_of_python(fit):
    h, y = draw(400, 4)
    np.savez("val.npz", logits=h, labels=y)
    found, _, _ = fit("fit", "val.npz", "--method", "ats", "-p", "theta_grid=[0.01,0.03]")
    expected = AttendedTemperatureScaling(theta_grid=[0.01, 0.03]).fit(h, y)
    assert found.temperature_ == pytest.approx(expected.temperature_, rel=1e-7)
    assert found.theta_ == expected.theta_


@pytest.mark.slow
@pytest.mark.parametrize("options", ["", "--workers 2"])
def test_several_files_and_workers_find_it_too(fit, options):
    h, y = draw(600, 4)
    h *= 1000
    for i in range(3):
        np.savez(f"s{i}.npz", logits=h[i::3], labels=y[i::3])
    found, out, err = fit("fit", "s?.npz", "--method", "ts", *options.split(), "--json")
    assert found.temperature_ == pytest.approx(TemperatureScaling().fit(h, y).temperature_, rel=1e-8)
    assert found.fit_report_.n_iter == 1  # the scale of the logits tells where to look
    assert err == ""
    assert json.loads(out)["nll_none"] is None  # T = 1 is not in the range of the last sketch


def test_shards_that_come_once_are_gone_through_again():
    parts = [draw(100, 4, seed=i) for i in range(3)]
    parts = [(scale * h, y) for scale, (h, y) in zip([1, 1e5, 1], parts)]
    found = fit_sharded(TemperatureScaling(), iter(parts))
    h, y = (np.concatenate(arrays) for arrays in zip(*parts))
    assert found.temperature_ == pytest.approx(TemperatureScaling().fit(h, y).temperature_, rel=1e-8)


@given(
    st.floats(-6, 8),
    st.integers(2, 6),
    st.sampled_from(["fitting", "random", "mostly right", "right", "against"]),
    st.booleans(),
    st.integers(0, 999),
)
def test_any_scale(exponent, k, kind, weighted, seed):
    rng = np.random.default_rng(seed)
    h = 10.0**exponent * rng.normal(size=(50, k))
    y = {
        "fitting": (h / 10**exponent + rng.gumbel(size=h.shape)).argmax(axis=1),
        "random": rng.integers(0, k, 50),
        "mostly right": np.where(rng.random(50) < 0.05, rng.integers(0, k, 50), h.argmax(axis=1)),
        "right": h.argmax(axis=1),
        "against": h.argmin(axis=1),
    }[kind]
    w = rng.integers(0, 3, 50) + np.arange(50) // 49 if weighted else None
    expected = in_python(TemperatureScaling(), h, y, w)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", EdgeWarning)
        found = TemperatureScaling().fit_passes(lambda **told: Sketch.of(h, y, sample_weight=w, **told))
    # Where the NLL is all but flat, rounding has moved the T of a table by three times its estimated error.
    known = max(1e-8, 5 * found.fit_report_.log_t_error)
    assert found.temperature_ == pytest.approx(expected.temperature_, rel=known)
    assert found.fit_report_.log_t_error < 1e-3 or found.fit_report_.edge
    assert found.fit_report_.edge == expected.fit_report_.edge


@pytest.mark.parametrize("kind, t, why", [("argmax", 0.05, "every label is the arg max"), ("argmin", 20, "on average")])
def test_where_no_finite_temperature_is_best_both_take_the_edge(fit, kind, t, why):
    h, _ = draw(200, 4)
    y = getattr(h, kind)(axis=1)
    np.savez("val.npz", logits=h, labels=y)
    with pytest.warns(EdgeWarning):
        assert TemperatureScaling().fit(h, y).temperature_ == t
    found, _, err = fit("fit", "val.npz", "--method", "ts")
    assert found.temperature_ == t
    assert why in err
    assert "--t-range" not in err  # no other would help


def test_a_range_that_is_given_is_kept(fit):
    h, y = draw(200, 4)
    np.savez("val.npz", logits=1000 * h, labels=y)
    found, out, err = fit("fit", "val.npz", "--method", "ts", "--t-range", 2, 20, "--json")
    assert (found.temperature_, found.t_range) == (20, (2, 20))
    assert "T = 20 is the edge" in err
    assert json.loads(out)["nll_none"] > 100
    _, out, _ = fit("fit", "val.npz", "--method", "ts", "--t-range", 2, 20)
    assert "NLL" in out


def test_a_sketch_that_ends_too_early_says_which_range_to_use(fit):
    h, y = draw(200, 4)
    np.savez("val.npz", logits=1000 * h, labels=y)
    fit("sketch", "val.npz", "--t-range", 0.05, 20, "-o", "a.sketch.json")
    found, _, err = fit("fit", "a.sketch.json", "--method", "ts")
    assert found.temperature_ == 20
    assert "attemper sketch --t-range 5 20000" in err
    fit("sketch", "val.npz", "-o", "a.sketch.json", "--t-range", 5, 20000)
    found, _, err = fit("fit", "a.sketch.json", "--method", "ts")
    assert err == ""
    assert found.temperature_ == pytest.approx(TemperatureScaling().fit(1000 * h, y).temperature_, rel=1e-6)
    _, out, _ = fit("inspect", "a.sketch.json")
    assert "before calibration" not in out
