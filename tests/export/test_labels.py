"""Maps of labels that do not exclude each other, in torch and ONNX models that end in a sigmoid."""

import numpy as np
import onnx
import pytest
import torch
from onnx import helper, numpy_helper

from attemper import InputError, MultiLabelCalibrator
from attemper.export import fold_into_linear, map_to_onnx, onnx_calibrate, to_torch
from attemper.onnx.calibrate import provenance_of


def fitted(kind="logits", method="pooled", **options):
    rng = np.random.default_rng(0)
    truth = 2 * rng.normal(size=(400, 4)) - 1
    y = (truth + rng.logistic(size=truth.shape) > 0).astype(float)
    s = 2 * truth + [1, 0, 0, 2]
    x = s if kind == "logits" else 1 / (1 + np.exp(-s))
    return MultiLabelCalibrator(method=method, input=kind, label_names=list("abcd"), **options).fit(x, y), x


def model(ending):
    rng = np.random.default_rng(1)
    x, p = (helper.make_tensor_value_info(name, 1, ["n", size]) for name, size in (("x", 5), ("p", 4)))
    weight, bias = (rng.normal(size=size).astype(np.float32) for size in ((5, 4), 4))
    nodes = [helper.make_node("Gemm", ["x", "W", "b"], ["h" if ending else "p"])]
    if ending:
        nodes.append(helper.make_node(ending, ["h"], ["p"]))
    constants = [numpy_helper.from_array(weight, "W"), numpy_helper.from_array(bias, "b")]
    graph = helper.make_graph(nodes, "g", [x], [p], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.parametrize("kind", ["logits", "probs"])
@pytest.mark.parametrize("method", ["pooled", "beta"])
def test_torch_modules(kind, method):
    calibrator, x = fitted(kind, method)
    module = to_torch(calibrator)
    np.testing.assert_allclose(module(torch.from_numpy(x)).numpy(), calibrator.predict_proba(x), atol=1e-12)
    single = module(torch.from_numpy(x).float()).numpy()
    np.testing.assert_allclose(single, calibrator.predict_proba(x), atol=2e-5)
    with pytest.raises(ValueError):
        module(torch.zeros(2, 3))


def test_a_layer_absorbs_it():
    calibrator, _ = fitted()
    layer = torch.nn.Linear(6, 4)
    sample = torch.randn(10, 6, generator=torch.manual_seed(0))
    expected = calibrator.predict_proba(layer(sample).detach())
    assert fold_into_linear(layer, calibrator, check=sample).difference < 1e-6
    np.testing.assert_allclose(torch.sigmoid(layer(sample)).detach(), expected, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["probs", "log_probs", "logits"])
@pytest.mark.parametrize("method", ["pooled", "beta"])
def test_the_map_alone(kind, method):
    for calibrator in (fitted(method=method)[0], fitted("probs", method, zeros_as=1e-6)[0]):
        made = map_to_onnx(calibrator, output_kind=kind)
        assert made.ran.difference < 1e-5
        assert provenance_of(made.model)["classes"] == '["a", "b", "c", "d"]'
        onnx.checker.check_model(made.model)


@pytest.mark.slow
def test_in_a_model():
    calibrator, by_probs = fitted()[0], fitted("probs", zeros_as=1e-6)[0]
    found = {
        (ending, name, fold): onnx_calibrate(model(ending), of, fold=fold)
        for ending in ("Sigmoid", None)
        for name, of in (("logits", calibrator), ("probs", by_probs))
        for fold in ("auto", False)
        if ending or name == "logits"
    }
    assert all(made.ran.difference < 1e-5 for made in found.values())
    assert found["Sigmoid", "logits", "auto"].how == "folded"
    assert found["Sigmoid", "logits", False].how == "inserted"
    assert found[None, "logits", "auto"].output_kind == "logits"
    assert found["Sigmoid", "probs", "auto"].output_kind == "probs"


def test_a_softmax_is_not_the_place():
    with pytest.raises(InputError):
        onnx_calibrate(model("Softmax"), fitted()[0])
