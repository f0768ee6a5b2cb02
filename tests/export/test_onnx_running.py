"""The check runs a model that may be endless, greedy or made for other input: what came of it is said."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import attemper.export.onnx_running as running
from attemper import InputError, ScaleMap
from attemper.export import onnx_calibrate

import onnx_models as models
from exported import MAPS

SCALE = MAPS["scale"]


def endless():
    """A loop that never ends, before the logits."""
    info = helper.make_tensor_value_info
    body = helper.make_graph(
        [
            helper.make_node("Identity", ["go_in"], ["go_out"]),
            helper.make_node("Identity", ["state_in"], ["state_out"]),
        ],
        "body",
        [info("i", TensorProto.INT64, []), info("go_in", TensorProto.BOOL, []), info("state_in", 1, None)],
        [info("go_out", TensorProto.BOOL, []), info("state_out", 1, None)],
    )
    b = models.Builder()
    b.input("x", "batch", 6)
    b.weights.append(onnx.numpy_helper.from_array(np.array(True), "go"))
    b.op("Loop", ["", "go", "x"], "y", body=body)
    b.op("Gemm", ["y", b.weight("w", 6, 5)], "logits")
    return b.model(models.end(b, "logits", "Softmax", 1))


def test_a_model_that_never_ends_is_stopped(monkeypatch):
    monkeypatch.setattr(running, "SECONDS", 0.3)
    made = onnx_calibrate(endless(), SCALE)
    assert made.ran.difference is None
    assert "took more than" in made.ran.why_not


def test_what_could_not_be_run_is_said(monkeypatch):
    b = models.Builder()
    b.input("x", 10**6, 10**6)
    b.op("Gemm", ["x", b.weight("w", 6, 5)], "logits")
    b.inputs[0].type.tensor_type.shape.dim[1].dim_value = 6
    b.inputs[0].type.tensor_type.shape.dim[0].dim_value = 10**9
    made = onnx_calibrate(b.model(models.end(b, "logits", "Softmax", 1, (10**9, 5))), SCALE)
    assert "too large to try" in made.ran.why_not
    deep = models.mlp()
    for _ in range(300):
        deep.graph.input[0].type.tensor_type.shape.dim.add().dim_value = 2**62
    with pytest.raises(running._NotRunError, match="302 dimensions, too many to try"):
        running.feeds_for(deep)
    wide = models.cnn()
    wide.graph.input[0].type.tensor_type.shape.dim[1].Clear()  # three channels, but it does not say so
    made = onnx_calibrate(wide, SCALE)
    assert made.ran.why_not.startswith("onnxruntime says")
    feeds = {"x": np.ones((1, 3, 4, 4), np.float32)}
    assert onnx_calibrate(wide, SCALE, check=feeds).ran.difference < 1e-6
    assert onnx_calibrate(models.mlp(), SCALE, check=False).ran.why_not == "not asked for"
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert onnx_calibrate(models.mlp(), SCALE).ran.why_not == "onnxruntime is not installed"


def test_a_result_that_disagrees_is_not_written(tmp_path, monkeypatch):
    monkeypatch.setattr("attemper.export.onnx_nodes._scale", None)
    monkeypatch.setitem(
        __import__("attemper.export.onnx_nodes", fromlist=["BUILDERS"]).BUILDERS,
        type(SCALE),
        lambda n, m, h, gives: n.softmax(h),
    )
    with pytest.raises(InputError, match="disagrees with NumPy: the largest difference"):
        onnx_calibrate(models.mlp(), SCALE, tmp_path / "out.onnx", fold=False)
    assert not list(tmp_path.iterdir())


def test_made_up_input_that_does_not_fit():
    b = models.Builder()
    b.input("x", "batch", 6)
    b.op("Log", ["x"], "l")  # of what is negative
    b.op("Gemm", ["l", b.weight("w", 6, 5)], "logits")
    net = b.model(models.end(b, "logits", "Softmax", 1))
    for fold in (True, False):
        made = onnx_calibrate(net, SCALE, fold=fold)
        assert made.ran.difference is None
        assert "made-up input gives 'logits' that are not finite; give check={…}" in made.ran.why_not
        assert onnx_calibrate(net, SCALE, fold=fold, check={"x": np.ones((2, 6), np.float32)}).ran.difference < 1e-6
        made = onnx_calibrate(net, SCALE, fold=fold, check={"x": np.zeros((2, 6), np.float32)})
        assert "the input in check gives" in made.ran.why_not


def test_large_logits_do_not_excuse_any_difference(monkeypatch):
    b = models.Builder()
    b.input("x", "batch", 6)
    b.op("Gemm", ["x", b.weight("w", 6, 5)], "z")
    b.op("Add", ["z", b.weight("far", 1, scale=1e6)], "logits")
    net = b.model({"logits": ("batch", 5)})
    monkeypatch.setitem(
        __import__("attemper.export.onnx_nodes", fromlist=["BUILDERS"]).BUILDERS,
        ScaleMap,
        lambda n, m, h, gives: n.op("Mul", h, n.constant(0.0)),
    )
    with pytest.raises(InputError, match=r"more than the 5.0e-02 of rounding"):
        onnx_calibrate(net, SCALE)


def greedy(kind):
    """A model that says in constants how much it takes."""
    b = models.Builder()
    b.input("x", "batch", 6)
    if kind == "ConstantOfShape":
        b.op("ConstantOfShape", [b.ints("shape", [10**6, 10**6])], "large")
    elif kind == "computed":
        b.op("Mul", [b.ints("a", [10**5, 10**5]), b.ints("b", [10, 10])], "shape")
        b.op("ConstantOfShape", ["shape"], "large")
    elif kind == "Expand":
        b.op("Expand", ["x", b.ints("shape", [10**9, 1, 6])], "large")
    elif kind == "Tile":
        b.op("Tile", ["x", b.ints("times", [10**6, 10**6])], "large")
    elif kind == "Range":
        b.op("Constant", [], "end", value_float=1e12)
        b.op("Constant", [], "zero", value_float=0.0)
        b.op("Constant", [], "one", value_float=1.0)
        b.op("Range", ["zero", "end", "one"], "large")
    elif kind == "Resize":
        b.op("Unsqueeze", ["x", b.ints("axes", [0, 1])], "image")
        b.weights.append(onnx.numpy_helper.from_array(np.array([1, 1, 1e5, 1e5], np.float32), "scales"))
        b.op("Resize", ["image", "", "scales"], "large")
    else:  # by the rules of broadcasting alone
        b.op("Constant", [], "wide", value=onnx.numpy_helper.from_array(np.zeros((40_000, 1, 1), np.float32)))
        b.op("Constant", [], "high", value=onnx.numpy_helper.from_array(np.zeros((40_000, 1), np.float32)))
        b.op("Add", ["wide", "high"], "large")
    b.op("ReduceSum", ["large"], "sum", keepdims=0)
    b.op("Add", ["x", "sum"], "y")
    b.op("Gemm", ["y", b.weight("w", 6, 5)], "logits")
    net = b.model(models.end(b, "logits", "Softmax", 1))
    net.graph.value_info.append(helper.make_tensor_value_info("large", TensorProto.FLOAT, [2]))  # a lie
    return net


@pytest.mark.parametrize("kind", ["ConstantOfShape", "computed", "Expand", "Tile", "Range", "Resize", "broadcast"])
def test_a_model_that_would_take_all_memory_is_not_run_unasked(kind, monkeypatch):
    monkeypatch.setattr(running, "run_model", None)
    made = onnx_calibrate(greedy(kind), SCALE)
    assert made.ran.difference is None
    assert "'large' would be of s" in made.ran.why_not
    assert "to run it all the same" in made.ran.why_not


def test_a_size_hidden_in_a_function_or_a_branch_is_seen(monkeypatch):
    monkeypatch.setattr(running, "run_model", None)
    large = helper.make_node("ConstantOfShape", ["shape"], ["large"])
    shape = helper.make_node("Constant", [], ["shape"], value_ints=[10**6, 10**6])
    total = helper.make_node("ReduceSum", ["large"], ["total"], keepdims=0)
    opset = [helper.make_opsetid("", 17)]
    for kind in ("function", "branch"):
        b = models.Builder()
        b.input("x", "batch", 6)
        if kind == "branch":
            out = [helper.make_tensor_value_info("total", TensorProto.FLOAT, None)]
            branch = helper.make_graph([shape, large, total], "branch", [], out)
            b.weights.append(onnx.numpy_helper.from_array(np.array(True), "yes"))
            b.op("If", ["yes"], "sum", then_branch=branch, else_branch=branch)
        else:
            b.op("Greedy", [], "sum", domain="mine")
        b.op("Add", ["x", "sum"], "y")
        b.op("Gemm", ["y", b.weight("w", 6, 5)], "logits")
        b.op("Softmax", ["logits"], "out", axis=-1)
        out = [helper.make_tensor_value_info("out", TensorProto.FLOAT, ["batch", 5])]
        graph = helper.make_graph(b.nodes, "net", b.inputs, out, b.weights)
        both = [*opset, helper.make_opsetid("mine", 1)]
        net = helper.make_model(graph, opset_imports=both, ir_version=8)
        if kind == "function":
            net.functions.append(
                helper.make_function("mine", "Greedy", [], ["total"], [shape, large, total], opset_imports=opset)
            )
        assert "'large' would be of s" in onnx_calibrate(net, SCALE).ran.why_not
