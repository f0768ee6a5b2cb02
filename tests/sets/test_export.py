"""Sets in ONNX and torch are those of NumPy."""

import numpy as np
import onnx
import onnxruntime
import pytest
import torch

from attemper import ScaleMap, TemperatureScaling
from attemper.decisions import SetPolicy, prediction_sets
from attemper.errors import InputError
from attemper.onnx import sets_to_onnx
from attemper.torch import sets_to_torch

import onnx_models as models
from data import draw

RULES = [
    {"score": "lac"},
    {"score": "lac", "by": "class"},
    {"score": "lac", "allow_empty": True},
    {"score": "aps"},
    {"score": "raps", "penalty": 0.02, "k_reg": 2},
    {"score": "raps", "penalty": 0.2, "k_reg": 1},
]


def fitted(n_classes=5, coverage=0.9, **rule):
    h, y = draw(1500, n_classes, scale=2.0)
    calibrator = TemperatureScaling().fit(h[:500], y[:500])
    policy = prediction_sets(calibrator.predict_proba(h[500:1000]), y[500:1000], coverage, **rule)
    return calibrator, policy, h[1000:].astype(np.float32).astype(np.float64)


def run(model, **feeds):
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return dict(zip([o.name for o in session.get_outputs()], session.run(None, feeds)))


@pytest.mark.parametrize(("rule", "n_classes"), [(rule, 5) for rule in RULES] + [({"score": "lac"}, 2)], ids=str)
def test_onnx(rule, n_classes, tmp_path):
    calibrator, policy, h = fitted(n_classes, **rule)
    made = sets_to_onnx(policy, calibrator, tmp_path / "sets.onnx")
    onnx.checker.check_model(str(tmp_path / "sets.onnx"), full_check=True)
    found = run(onnx.load(tmp_path / "sets.onnx"), logits=h.astype(np.float32))
    assert found["sets"].dtype == bool
    expected = policy.sets(calibrator.predict_proba(h))
    np.testing.assert_array_equal(found["sets"], expected.mask)
    np.testing.assert_allclose(found["probabilities"], expected.probs, atol=1e-6)
    assert made.ran.difference < 1e-5


@pytest.mark.parametrize("rule", RULES, ids=str)
def test_torch(rule):
    calibrator, policy, h = fitted(**rule)
    expected = policy.sets(calibrator.predict_proba(h)).mask
    module = sets_to_torch(policy, calibrator)
    np.testing.assert_array_equal(module(torch.tensor(h)).numpy(), expected)
    np.testing.assert_array_equal(module(torch.tensor(h, dtype=torch.float32)).numpy(), expected)
    half = module.half()(torch.tensor(h).half())
    assert half.dtype == torch.bool
    assert (half.numpy() != expected).mean() < 0.01
    images = torch.tensor(h[:12].reshape(3, 2, 2, 5)).movedim(-1, 1)
    as_rows = sets_to_torch(policy, calibrator, dim=1)(images).movedim(1, -1).reshape(-1, 5)
    np.testing.assert_array_equal(as_rows.numpy(), expected[:12])


@pytest.mark.slow
def test_many_classes_and_ties():
    rng = np.random.default_rng(0)
    h = rng.integers(-4, 5, size=(40, 1000)).astype(np.float32)  # many are tied
    for score, more in (("lac", {}), ("aps", {}), ("raps", {"penalty": 0.01, "k_reg": 4})):
        policy = SetPolicy(score, 0.9, (0.6 if score != "lac" else 0.999,), (99,), 1000, 99, **more)
        expected = policy.sets(ScaleMap(0.7).apply(h.astype(np.float64))).mask
        np.testing.assert_array_equal(sets_to_torch(policy, ScaleMap(0.7))(torch.tensor(h)).numpy(), expected)
        np.testing.assert_array_equal(run(sets_to_onnx(policy, ScaleMap(0.7)).model, logits=h)["sets"], expected)


def test_masked_classes_are_in_the_set_only_where_every_class_is():
    h = np.array([[2.0, -np.inf, 1.0], [0.0, 0.5, -np.inf]], dtype=np.float32)
    for score in ("lac", "aps", "raps"):
        for threshold, least in ((0.6, 1), (None, 3)):
            policy = SetPolicy(score, 0.9, (threshold,), (99,), 3, 99, penalty=0.1, k_reg=1)
            expected = policy.sets(ScaleMap(1.0).apply(h.astype(np.float64))).mask
            assert (expected.sum(axis=1) >= least).all()
            assert expected[0, 1] == expected[1, 2] == (threshold is None)
            if score == "raps":
                model = sets_to_onnx(policy, ScaleMap(1.0)).model
                np.testing.assert_array_equal(run(model, logits=h)["sets"], expected)
            np.testing.assert_array_equal(sets_to_torch(policy, ScaleMap(1.0))(torch.tensor(h)).numpy(), expected)


def test_a_whole_model_gets_one_more_output():
    calibrator, policy, _ = fitted(5, score="aps")
    made = sets_to_onnx(policy, calibrator, model=models.mlp(n_classes=5))
    names = [output.name for output in made.model.graph.output]
    assert made.sets in names
    assert made.probabilities in names
    (given,) = made.model.graph.input
    width = given.type.tensor_type.shape.dim[1].dim_value
    x = np.random.default_rng(0).normal(size=(7, width)).astype(np.float32)
    found = run(made.model, **{given.name: x})
    np.testing.assert_array_equal(found[made.sets], policy.sets(found[made.probabilities]).mask)
    with pytest.raises(InputError):
        sets_to_onnx(policy, calibrator, model=models.mlp(n_classes=7))


def test_groups_are_exported_one_by_one():
    h, y = draw(400, 4)
    p, groups = ScaleMap(0.5).apply(h), np.where(np.arange(400) % 2, "south", "north")
    policy = prediction_sets(p, y, 0.9, by="group", groups=groups)
    module = sets_to_torch(policy, ScaleMap(0.5), group="north")
    np.testing.assert_array_equal(module(torch.tensor(h)).numpy(), policy.sets(p, groups=np.full(400, "north")).mask)
    with pytest.raises(InputError):
        sets_to_onnx(policy, ScaleMap(0.5))
    with pytest.raises(InputError):
        sets_to_onnx(policy, ScaleMap(0.5), group="east")
