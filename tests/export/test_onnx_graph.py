"""Logits are found where there is no doubt; else the candidates are named, with the option to choose."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from attemper import InputError, ScaleMap
from attemper.onnx import onnx_calibrate

import onnx_models as models
from exported import MAPS, K, exact

pytestmark = pytest.mark.usefixtures("in_this_process")
SCALE, MIXTURE = MAPS["scale"], MAPS["mixture"]


def two_outputs():
    b = models.Builder()
    b.input("x", "batch", 6)
    b.op("Gemm", ["x", b.weight("w", 6, K)], "logits")
    b.op("Gemm", ["x", b.weight("v", 6, 2)], "age")
    return b.model({"logits": ("batch", K), "age": ("batch", 2)})


def softmax_in_the_middle():
    b = models.Builder()
    b.input("x", "batch", 6)
    b.op("Gemm", ["x", b.weight("w", 6, K)], "logits")
    b.op("Softmax", ["logits"], "shares", axis=-1)
    b.op("Mul", ["shares", b.weight("prior", K)], "out")
    return b.model({"out": ("batch", K)})


def echo():
    info = [helper.make_tensor_value_info(n, TensorProto.FLOAT, ["batch", K]) for n in ("x", "out")]
    graph = helper.make_graph([helper.make_node("Identity", ["x"], ["out"])], "g", info[:1], info[1:])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.parametrize(
    "net, why, candidates",
    [
        (two_outputs(), "2 outputs", ["'logits' (output, from Gemm)", "'age' (output, from Gemm)"]),
        (
            models.mlp("LogSoftmax"),
            "'out' comes from a LogSoftmax",
            ["'logits' (input of LogSoftmax)", "'out' (output"],
        ),
        (models.mlp("Sigmoid"), "'out' comes from a Sigmoid", ["'logits' (input of Sigmoid)"]),
        (
            softmax_in_the_middle(),
            "'out' comes from a Mul",
            ["'logits' (input of Softmax)", "'shares' (output of Softmax"],
        ),
        (echo(), "'out' comes from an input of the graph", ["'out' (output, from Identity)"]),
    ],
    ids=["two outputs", "log-softmax", "sigmoid", "softmax in the middle", "no layer"],
)
def test_what_is_ambiguous_names_the_candidates(net, why, candidates):
    with pytest.raises(InputError) as error:
        onnx_calibrate(net, SCALE)
    for part in (why, *candidates, "logits='NAME'"):
        assert part in str(error.value)


def test_a_choice_among_outputs():
    net = two_outputs()
    made = onnx_calibrate(net, MIXTURE, logits="logits")
    feeds = models.feed(net)
    before, after = models.run(net, feeds), models.run(made.model, feeds)
    np.testing.assert_allclose(np.exp(after[0]), exact(MIXTURE, before[0]), atol=1e-6)
    np.testing.assert_array_equal(after[1], before[1])
    with pytest.raises(InputError):
        onnx_calibrate(net, MAPS["matrix"], logits="age")


@pytest.mark.parametrize("told", ["logits", "out"])
@pytest.mark.parametrize("name", MAPS)
def test_log_softmax_stays_log_probabilities(told, name):
    net = models.mlp("LogSoftmax")
    made = onnx_calibrate(net, MAPS[name], logits=told)
    assert made.output_kind == "log_probs"
    feeds = models.feed(net)
    h = models.logits_of(net, feeds, told)
    np.testing.assert_allclose(np.exp(models.run(made.model, feeds)[0]), exact(MAPS[name], h), atol=1e-6)


def test_names_that_cannot_be():
    net = softmax_in_the_middle()
    with pytest.raises(InputError):
        onnx_calibrate(net, SCALE, logits="nothing")
    with pytest.raises(InputError):
        onnx_calibrate(net, SCALE, logits="shares")
    assert onnx_calibrate(models.mlp(), SCALE, logits="out").logits == "logits"
    with pytest.raises(InputError):
        onnx_calibrate(net, SCALE, logits="logits")
    assert onnx_calibrate(net, SCALE, logits="logits", outputs="add").tensor == "calibrated_probs"
    with pytest.raises(InputError):
        onnx_calibrate(net, SCALE, outputs="more")
    with pytest.raises(InputError):
        onnx_calibrate(models.mlp(None), MIXTURE, output_kind="logits")


def with_shape_changes(*ops):
    """Logits, or a Softmax, whose shape is changed after."""
    b = models.Builder()
    b.input("x", "batch", 6)
    b.op("Gemm", ["x", b.weight("w", 6, K)], "logits")
    last = "logits"
    for i, op in enumerate(ops):
        more = [b.ints("shape", [-1, K])] if op == "Reshape" else []
        last = b.op(op, [last, *more], f"t{i}", **({"to": TensorProto.FLOAT} if op == "Cast" else {}))
    return b.model({last: ("batch", K)})


def test_changes_of_shape_are_looked_through():
    for ops in (("Reshape",), ("Softmax", "Reshape"), ("Identity", "Softmax", "Identity", "Cast")):
        net = with_shape_changes(*ops)
        for m in (SCALE, MIXTURE):
            made = onnx_calibrate(net, m)
            feeds = models.feed(net)
            p = models.run(made.model, feeds)[0]
            if made.output_kind != "probs":
                p = np.exp(p) / np.exp(p).sum(1, keepdims=True)
            np.testing.assert_allclose(p, exact(m, models.logits_of(net, feeds)), atol=1e-6)


def test_the_axis_is_told_where_nothing_tells_it():
    b = models.Builder()
    b.input("x", "batch", K, 4)
    b.op("Mul", ["x", b.weight("s", 1)], "logits")
    net = b.model({"logits": ("batch", K, 4)})
    with pytest.raises(InputError):
        onnx_calibrate(net, MIXTURE, logits="logits")
    feeds = models.feed(net)
    h = np.moveaxis(models.run(net, feeds)[0], 1, -1)
    for name in ("mixture", "matrix", "odds", "isotonic"):
        made = onnx_calibrate(net, MAPS[name], logits="logits", axis=1, output_kind="probs")
        p = np.moveaxis(models.run(made.model, feeds)[0], 1, -1)
        np.testing.assert_allclose(p, exact(MAPS[name], h), atol=1e-6)
    with pytest.raises(InputError):
        onnx_calibrate(net, MIXTURE, logits="logits", axis=3)


def test_opsets_that_are_too_old():
    with pytest.raises(InputError):
        onnx_calibrate(models.mlp(opset=10, layer="gemm"), SCALE)
    with pytest.raises(InputError):
        onnx_calibrate(models.segmentation(opset=11), SCALE)
    net = models.segmentation(opset=11)  # told, the classes are what each pixel has
    made = onnx_calibrate(net, SCALE, axis=1)
    assert made.how == "inserted"
    feeds = models.feed(net)
    p = np.moveaxis(models.run(made.model, feeds)[0], 1, -1)
    np.testing.assert_allclose(p, exact(SCALE, np.moveaxis(models.logits_of(net, feeds), 1, -1)), atol=1e-6)
    with pytest.raises(InputError):
        onnx_calibrate(net, SCALE, axis=1, fold=True)


def answer_and_probabilities(reader):
    """Probabilities and, of the same logits, something else."""
    b = models.Builder()
    b.input("x", "batch", 6)
    b.op("Gemm", ["x", b.weight("w", 6, K)], "h")
    if reader == "TopK":
        b.nodes.append(helper.make_node("TopK", ["h", b.ints("one", [1])], ["best", "answer"], axis=-1))
    else:
        b.op(reader, ["h"], "answer", **({"axis": 1} if reader == "ArgMax" else {}))
    b.op("Softmax", ["h"], "p", axis=-1)
    net = b.model({"p": ("batch", K)})
    whole = TensorProto.INT64 if reader in ("ArgMax", "TopK") else TensorProto.FLOAT
    net.graph.output.append(helper.make_tensor_value_info("answer", whole, ["batch", "some"]))
    onnx.checker.check_model(net)
    return net


@pytest.mark.parametrize("reader", ["ArgMax", "TopK", "Neg"])
@pytest.mark.parametrize("m", [SCALE, MIXTURE], ids=["scale", "mixture"])
@pytest.mark.parametrize("add", [False, True])
def test_a_softmax_that_is_not_the_only_reader_of_the_logits(reader, m, add):
    net = answer_and_probabilities(reader)
    with pytest.raises(InputError):
        onnx_calibrate(net, m)
    feeds = models.feed(net)
    p, answer = models.run(net, feeds, "p", "answer")
    expected = exact(m, models.logits_of(net, feeds, "h"))
    for told in ("h", "p"):
        made = onnx_calibrate(net, m, logits=told, outputs="add" if add else "replace")
        assert (made.logits, made.tensor, made.how) == ("h", "calibrated_probs" if add else "p", "inserted")
        found = models.run(made.model, feeds, made.tensor, "answer", "p")
        np.testing.assert_allclose(found[0], expected, atol=1e-6)
        np.testing.assert_array_equal(found[1], answer)
        if add:
            np.testing.assert_array_equal(found[2], p)


def classes_first(kind):
    """Classes in rows, samples in columns."""
    b = models.Builder()
    if kind == "transposed":
        b.input("x", "batch", 6)
        b.op("Gemm", ["x", b.weight("w", 6, K)], "z")
        b.op("Transpose", ["z"], "h", perm=[1, 0])
    else:
        b.input("x", 6, "batch")
        b.op(kind, [b.weight("w", K, 6), "x"], "h" if kind == "Gemm" else "z")
        if kind == "MatMul":
            b.op("Add", ["z", b.weight("b", K, 1)], "h")
    return b.model({"h": (K, "batch")})


@pytest.mark.parametrize("kind", ["transposed", "MatMul", "Gemm"])
@pytest.mark.parametrize("told", [None, "h"])
def test_classes_that_come_first_are_not_mistaken(kind, told):
    net = classes_first(kind)
    with pytest.raises(InputError):
        onnx_calibrate(net, MIXTURE, logits=told)
    feeds = models.feed(net)
    for m in (SCALE, MIXTURE):
        made = onnx_calibrate(net, m, logits=told, axis=0, output_kind="probs")
        np.testing.assert_allclose(models.run(made.model, feeds)[0].T, exact(m, models.run(net, feeds)[0].T), atol=1e-6)


def test_a_weight_that_is_transposed_first_is_one():
    b = models.Builder()
    b.input("x", "batch", 6)
    b.op("Transpose", [b.weight("w", K, 6)], "w_t", perm=[1, 0])
    b.op("MatMul", ["x", "w_t"], "h")
    net = b.model({"h": ("batch", K)})
    feeds = models.feed(net)
    made = onnx_calibrate(net, MIXTURE, output_kind="probs")
    np.testing.assert_allclose(models.run(made.model, feeds)[0], exact(MIXTURE, models.run(net, feeds)[0]), atol=1e-6)


def foreign(net, *outputs):
    """The same nodes by name, of another domain, where they may mean anything."""
    net.opset_import.add(domain="com.example", version=1)
    for node in net.graph.node:
        if node.output[0] in outputs:
            node.domain = "com.example"
    for name in ("h", "logits", "out"):
        if name not in [o.name for o in net.graph.output]:
            net.graph.value_info.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", K]))
    return net


def test_operators_of_another_domain_are_not_those_of_onnx():
    with pytest.raises(InputError):
        onnx_calibrate(foreign(models.mlp(), "logits"), SCALE, fold=True, check=False)
    with pytest.raises(InputError):
        onnx_calibrate(foreign(models.mlp(layer="matmul"), "logits"), SCALE, fold=True, check=False)
    assert onnx_calibrate(foreign(models.mlp(layer="matmul"), "product"), SCALE, check=False).how == "inserted"
    with pytest.raises(InputError):
        onnx_calibrate(foreign(models.mlp(), "out"), SCALE, logits="logits", check=False)
    reshaped = foreign(with_shape_changes("Softmax", "Reshape"), "t1")
    with pytest.raises(InputError):
        onnx_calibrate(reshaped, SCALE, logits="logits", check=False)
    made = onnx_calibrate(foreign(models.mlp("LogSoftmax"), "out"), SCALE, logits="out", check=False)
    assert made.output_kind == "logits"  # who knows what that LogSoftmax gives; the one who told it


def test_an_add_that_does_not_fold_is_named():
    b = models.Builder()
    b.input("x", "batch", 6)
    b.op("Gemm", ["x", b.weight("w", 6, K)], "z")
    b.op("Add", ["z", b.weight("b", K)], "logits")
    net = b.model({"logits": ("batch", K)})
    with pytest.raises(InputError):
        onnx_calibrate(net, SCALE, fold=True)
    assert onnx_calibrate(net, SCALE).how == "inserted"


def test_logits_of_another_type():
    b = models.Builder()
    b.input("x", "batch", K)
    b.op("Cast", ["x"], "whole", to=TensorProto.INT64)
    net = b.model({"whole": ("batch", K)})
    net.graph.output[0].type.tensor_type.elem_type = TensorProto.INT64
    with pytest.raises(InputError):
        onnx_calibrate(net, SCALE, logits="whole")


def test_names_of_ours_that_are_taken():
    net = models.mlp(None)
    for node in net.graph.node:
        for names in (node.input, node.output):
            for i, name in enumerate(names):
                names[i] = {"r": "attemper/Sub", "a": "logits_uncalibrated"}.get(name, name)
    onnx.checker.check_model(net)
    made = onnx_calibrate(net, MIXTURE, output_kind="probs")
    feeds = models.feed(net)
    np.testing.assert_allclose(models.run(made.model, feeds)[0], exact(MIXTURE, models.run(net, feeds)[0]), atol=1e-6)


def test_subgraphs_that_use_the_logits():
    b = models.Builder()
    b.input("x", "batch", 6)
    b.op("Gemm", ["x", b.weight("w", 6, K)], "logits")
    branch = [
        helper.make_graph(
            [helper.make_node(op, ["logits"], [f"{op}_out"])],
            op,
            [],
            [helper.make_tensor_value_info(f"{op}_out", TensorProto.FLOAT, None)],
        )
        for op in ("Neg", "Identity")
    ]
    b.weights.append(onnx.numpy_helper.from_array(np.array(True), "yes"))
    b.op("If", ["yes"], "negative", then_branch=branch[0], else_branch=branch[1])
    net = b.model({"logits": ("batch", K), "negative": ("batch", K)})
    feeds = models.feed(net)
    h = models.run(net, feeds)[0]
    made = onnx_calibrate(net, SCALE, logits="logits")
    assert made.how == "inserted"
    found = models.run(made.model, feeds)
    np.testing.assert_allclose(found[0], SCALE.beta * h, rtol=1e-6)
    np.testing.assert_array_equal(found[1], -h)


@pytest.mark.parametrize("layer", ["gemm", "matmul"])
def test_a_bias_that_half_precision_cannot_hold(layer):
    net = models.mlp(layer=layer, dtype="float16")
    bias = next(t for t in net.graph.initializer if t.name == "b2")
    bias.CopyFrom(onnx.numpy_helper.from_array(np.array([6e4, 0, 0, 0, 0], np.float16), "b2"))
    with pytest.raises(InputError):
        onnx_calibrate(net, ScaleMap(3.0), fold=True, check=False)
