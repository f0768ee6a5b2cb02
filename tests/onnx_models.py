"""Small ONNX models, written node by node: an MLP, CNNs, a transformer block; each may end in a Softmax."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper

K = 5
TYPES = {
    "float32": TensorProto.FLOAT,
    "float16": TensorProto.FLOAT16,
    "float64": TensorProto.DOUBLE,
    "bfloat16": TensorProto.BFLOAT16,
}


class Builder:
    """Nodes and weights, put together."""

    def __init__(self, opset=17, dtype="float32"):
        self.opset, self.dtype = opset, dtype
        self.nodes, self.weights, self.inputs = [], [], []
        self.rng = np.random.default_rng(3)

    def weight(self, name, *shape, scale=1.0):
        values = (scale * self.rng.normal(size=shape)).astype(self.dtype)
        self.weights.append(numpy_helper.from_array(values, name))
        return name

    def ints(self, name, values):
        self.weights.append(numpy_helper.from_array(np.array(values, dtype=np.int64), name))
        return name

    def input(self, name, *shape):
        self.inputs.append(helper.make_tensor_value_info(name, TYPES[self.dtype], shape))
        return name

    def op(self, kind, inputs, output, **attributes):
        self.nodes.append(helper.make_node(kind, inputs, [output], name=f"node_{output}", **attributes))
        return output

    def model(self, outputs, metadata=None):
        """``outputs``: names with shapes."""
        infos = [helper.make_tensor_value_info(name, TYPES[self.dtype], shape) for name, shape in outputs.items()]
        graph = helper.make_graph(self.nodes, "net", self.inputs, infos, self.weights, doc_string="a net")
        made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)], producer_name="tests")
        made.ir_version = min(made.ir_version, 8)
        for key, value in (metadata or {"author": "me"}).items():
            made.metadata_props.add(key=key, value=value)
        onnx.checker.check_model(made)
        return made


def end(b, logits, ending, axis=-1, shape=("batch", K)):
    if ending is None:
        return {logits: shape}
    b.op(ending, [logits], "out", **({} if ending == "Sigmoid" else {"axis": axis}))
    return {"out": shape}


def mlp(ending="Softmax", layer="gemm", bias=True, n_classes=K, **settings):
    """Gemm with the weights either way round, or MatMul and Add."""
    k = n_classes
    b = Builder(**settings)
    b.input("x", "batch", 6)
    b.op("Gemm", ["x", b.weight("w1", 6, 8), b.weight("b1", 8)], "a")
    b.op("Relu", ["a"], "r")
    if layer == "matmul":
        b.op("MatMul", ["r", b.weight("w2", 8, k)], "product" if bias else "logits")
        if bias:
            b.op("Add", ["product", b.weight("b2", k)], "logits")
    elif layer == "gemm":
        b.op("Gemm", ["r", b.weight("w2", k, 8), *([b.weight("b2", k)] if bias else [])], "logits", transB=1)
    else:
        constants = [b.weight("w2", 8, k), *([b.weight("b2", 1, k)] if bias else [])]
        b.op("Gemm", ["r", *constants], "logits", alpha=0.5, beta=0.25)
    return b.model(end(b, "logits", ending, 1, ("batch", k)))


def cnn(ending="Softmax", **settings):
    b = Builder(**settings)
    b.input("x", "batch", 3, "height", "width")
    b.op("Conv", ["x", b.weight("w1", 4, 3, 3, 3), b.weight("b1", 4)], "c", pads=[1, 1, 1, 1])
    b.op("Relu", ["c"], "r")
    b.op("GlobalAveragePool", ["r"], "g")
    b.op("Flatten", ["g"], "f")
    b.op("Gemm", ["f", b.weight("w2", K, 4, scale=3), b.weight("b2", K)], "logits", transB=1)
    return b.model(end(b, "logits", ending, 1))


def segmentation(ending="Softmax", bias=True, **settings):
    """One distribution for each pixel; the classes are axis 1."""
    b = Builder(**settings)
    b.input("x", "batch", 3, 4, 4)
    b.op("Conv", ["x", b.weight("w1", 4, 3, 3, 3)], "c", pads=[1, 1, 1, 1])
    b.op("Relu", ["c"], "r")
    b.op("Conv", ["r", b.weight("w2", K, 4, 1, 1), *([b.weight("b2", K)] if bias else [])], "logits")
    return b.model(end(b, "logits", ending, 1, ("batch", K, 4, 4)))


def transformer(ending="Softmax", **settings):
    """Attention, with a Softmax of its own, a residual, a norm, an MLP, and a head for each token."""
    b = Builder(**settings)
    b.input("x", "batch", "tokens", 8)
    for name in "qkv":
        b.op("MatMul", ["x", b.weight(f"w_{name}", 8, 8, scale=0.4)], name)
    b.op("Transpose", ["k"], "k_t", perm=[0, 2, 1])
    b.op("MatMul", ["q", "k_t"], "scores")
    b.op("Softmax", ["scores"], "attention", axis=-1)
    b.op("MatMul", ["attention", "v"], "mixed")
    b.op("Add", ["x", "mixed"], "residual")
    b.op("LayerNormalization", ["residual", b.weight("gain", 8), b.weight("shift", 8)], "norm")
    b.op("MatMul", ["norm", b.weight("w_mlp", 8, 8)], "up")
    b.op("Relu", ["up"], "active")
    b.op("MatMul", ["active", b.weight("w_head", 8, K)], "product")
    b.op("Add", ["product", b.weight("b_head", K)], "logits")
    return b.model(end(b, "logits", ending, -1, ("batch", "tokens", K)))


def feed(model, batch=7, seed=0, sizes=(6, 7, 8)):
    """Random input; open dimensions get these sizes."""
    rng, feeds = np.random.default_rng(seed), {}
    weights = {w.name for w in model.graph.initializer}
    for i in model.graph.input:
        if i.name not in weights:
            t = i.type.tensor_type
            shape = [d.dim_value or (batch if n == 0 else sizes[n - 1]) for n, d in enumerate(t.shape.dim)]
            feeds[i.name] = rng.normal(size=shape).astype(helper.tensor_dtype_to_np_dtype(t.elem_type))
    return feeds


def run(model, feeds, *names):
    """Outputs of a model, or of a file, as onnxruntime gives them with all its optimisations."""
    given = str(model) if not isinstance(model, onnx.ModelProto) else model.SerializeToString()
    options = ort.SessionOptions()
    options.log_severity_level = 4
    session = ort.InferenceSession(given, options, providers=["CPUExecutionProvider"])
    return session.run(list(names) or None, feeds)


def logits_of(model, feeds, name="logits"):
    """What the model's own logits are."""
    shown = onnx.ModelProto()
    shown.CopyFrom(model)
    if name not in [o.name for o in shown.graph.output]:
        shown.graph.output.append(
            helper.make_tensor_value_info(name, shown.graph.output[0].type.tensor_type.elem_type, None)
        )
    return run(shown, feeds, name)[0]
