"""A calibrated ONNX model returns what NumPy returns for its logits, and is the same model otherwise."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from onnx import helper, numpy_helper
from scipy.special import expit, softmax
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.datasets import make_classification
from sklearn.ensemble import GradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import attemper
from attemper import (
    METHODS,
    CalibratedClassifier,
    FileError,
    GroupedCalibrator,
    InputError,
    MultiLabelCalibrator,
    NotFittedError,
    TemperatureScaling,
)
from attemper.maps import Affine, Map, Mixture
from attemper.onnx import to_onnx
from conftest import draw
from test_torch import EXTREME, fitted

OURS = [name for name, kind in METHODS.items() if kind.__module__.startswith("attemper.")]
K = 4


def run(model, feeds, *names):
    """Return outputs of a model or a file, as onnxruntime gives them with all its optimisations."""
    given = model.SerializeToString() if isinstance(model, onnx.ModelProto) else str(model)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(given, options, providers=["CPUExecutionProvider"])
    return session.run(list(names) or None, feeds)


def net(*ops, k=K, shape=("batch", 6), out=None, dtype=np.float32, opset=17):
    """Return a linear layer, and then these operators, by (kind, output, attributes)."""
    rng, elem = np.random.default_rng(3), helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    weight = numpy_helper.from_array((2 * rng.normal(size=(shape[-1], k))).astype(dtype), "weight")
    nodes, last = [helper.make_node("MatMul", ["x", "weight"], ["logits"])], "logits"
    for kind, name, attributes in ops:
        nodes.append(helper.make_node(kind, [last], [name], **attributes))
        last = name
    infos = [helper.make_tensor_value_info(n, elem, [f"{n}_{i}" for i in range(len(shape))]) for n in (out or (last,))]
    graph = helper.make_graph(nodes, "net", [helper.make_tensor_value_info("x", elem, shape)], infos, [weight])
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    made.metadata_props.add(key="author", value="me")
    return made


def with_label(model):
    """Return a model that also returns the predicted class, first, as scikit-learn's do."""
    model.graph.node.append(helper.make_node("ArgMax", ["logits"], ["label"], axis=-1, keepdims=0))
    model.graph.output.insert(0, helper.make_tensor_value_info("label", 7, ["batch"]))
    return model


def softmax_net(**settings):
    return net(("Softmax", "p", {"axis": -1}), **settings)


X = np.random.default_rng(0).normal(size=(9, 6)).astype(np.float32)
LOGITS = run(net(), {"x": X}, "logits")[0]


# Numbers


@pytest.mark.parametrize("method", OURS)
@pytest.mark.parametrize("k", [2, K])
def test_every_method_agrees_with_numpy(method, k, tmp_path):
    for input in ("logits", "probs"):
        cal = fitted(method, k, input)
        export = cal.to_onnx(tmp_path / "cal.onnx")
        assert (export.tensor, export.path) == (input, str(tmp_path / "cal.onnx"))
        assert export.difference < 1e-6
        h = np.concatenate([draw(50, k).h, EXTREME[:, :k]]).astype(np.float32)
        x = h if input == "logits" else softmax(h, axis=1)
        found = run(tmp_path / "cal.onnx", {input: x}, "probabilities")[0]
        expected = cal.predict_proba(x.astype(np.float64))
        np.testing.assert_allclose(found, expected, atol=1e-6, rtol=0)
        damaged = run(tmp_path / "cal.onnx", {input: np.where(x == x[1, 1], np.nan, x)}, "probabilities")[0]
        assert np.flatnonzero(np.isnan(damaged).any(axis=1)).tolist() == [1]
        if cal.map_.keeps_arg_max and input == "logits":
            np.testing.assert_array_equal(found.argmax(axis=1), h.argmax(axis=1))


@pytest.mark.parametrize("opset", [17, 21])
@pytest.mark.parametrize("method", ["ts", "matrix", "structured", "isotonic", "beta"])
def test_spliced_in_the_place_of_a_softmax(method, opset, tmp_path):
    cal = fitted(method, K)
    export = to_onnx(cal, tmp_path / "net.onnx", softmax_net(opset=opset))
    assert export.tensor == "logits"
    assert export.difference < 1e-6
    made = onnx.load(tmp_path / "net.onnx")
    assert [o.name for o in made.graph.output] == ["probabilities"]
    assert not [n for n in made.graph.node if n.op_type == "Softmax"]
    known = {p.key: p.value for p in made.metadata_props}
    assert (known["author"], known["attemper.method"]) == ("me", method)
    np.testing.assert_allclose(run(made, {"x": X})[0], cal.predict_proba(LOGITS.astype(float)), atol=1e-6)
    with pytest.raises(InputError):
        to_onnx(cal, tmp_path / "twice.onnx", made)


def test_logits_probabilities_and_names(tmp_path):
    cal, on_probs = fitted("ts", K), fitted("bayes", K, "probs")
    expected = cal.predict_proba(LOGITS.astype(float))
    path = tmp_path / "out.onnx"
    log = net(("LogSoftmax", "log_p", {"axis": -1}))
    reshaped = net(("Softmax", "p", {"axis": -1}), ("Identity", "same", {}))
    named = net(("Softmax", "probabilities", {"axis": -1}))
    both = net(("Softmax", "p", {"axis": -1}), out=("logits", "p"))
    for model, tensor, outputs in (
        (net(), None, ["probabilities"]),
        (net(), "logits", ["probabilities"]),
        (log, None, ["probabilities"]),
        (reshaped, None, ["probabilities"]),
        (named, None, ["probabilities"]),
        (both, None, ["logits", "probabilities"]),
        (both, "logits", ["logits", "probabilities"]),
        (net(("Relu", "r", {})), "logits", ["r", "probabilities"]),
        (with_label(net()), None, ["label", "probabilities"]),  # whole numbers are no logits
    ):
        to_onnx(cal, path, model, tensor)
        assert [o.name for o in onnx.load(path).graph.output] == outputs
        np.testing.assert_allclose(run(path, {"x": X}, "probabilities")[0], expected, atol=1e-6)
    to_onnx(fitted("vector", K), path, with_label(net()))  # whose predictions may be others
    assert [o.name for o in onnx.load(path).graph.output] == ["probabilities"]
    p = softmax(LOGITS.astype(float), axis=1)
    for tensor in (None, "p"):
        assert to_onnx(on_probs, path, softmax_net(), tensor).tensor == "p"
        np.testing.assert_allclose(run(path, {"x": X})[0], on_probs.predict_proba(p), atol=1e-6)
    assert to_onnx(on_probs, path, named, "probabilities").tensor == "probabilities"
    np.testing.assert_allclose(run(path, {"x": X}, "probabilities")[0], on_probs.predict_proba(p), atol=1e-6)


def test_what_is_refused(tmp_path):
    cal, on_probs, path = fitted("ts", K), fitted("ts", K, "probs"), tmp_path / "out.onnx"
    quotient = net(("Sigmoid", "s", {}), ("LpNormalization", "shares", {"p": 1, "axis": -1}))  # rows that sum to 1
    cases = [
        (cal, softmax_net(), "p"),  # holds probabilities
        (cal, quotient, None),  # likewise, and no node tells
        (cal, quotient, "shares"),
        (on_probs, net(), None),  # logits
        (on_probs, net(), "logits"),
        (cal, softmax_net(), "nothing"),
        (cal, net(("Softmax", "probabilities", {"axis": -1}), out=("logits", "probabilities")), "probabilities"),
        (cal, net(("Relu", "probabilities", {}), out=("logits", "probabilities")), None),
        (cal, net(("Relu", "r", {}), out=("logits", "r")), None),  # two outputs
        (fitted("ts", 2), net(), None),  # four classes
        (cal, net(shape=("batch", "height", 6), k=4, out=("logits",)).graph, None),  # no model
    ]
    for calibrator, model, tensor in cases[:-1]:
        with pytest.raises(InputError) as error:
            to_onnx(calibrator, path, model, tensor)
        assert error.value.param == "tensor"
        assert "uncalibrated_" not in str(error.value)  # a name that the user's model does not have
    assert not path.exists()
    onnx.save(net(), path)
    with pytest.raises(InputError):
        to_onnx(cal, path, path)
    (tmp_path / "broken.onnx").write_bytes(b"no model")
    with pytest.raises(FileError):
        to_onnx(cal, tmp_path / "x.onnx", tmp_path / "broken.onnx")
    with pytest.raises(NotFittedError):
        to_onnx(TemperatureScaling(), path)


@pytest.mark.parametrize("dtype", [np.float16, np.float64])
@pytest.mark.parametrize("method", ["bayes", "isotonic"])
def test_other_precisions(method, dtype, tmp_path):
    cal, model = fitted(method, K), softmax_net(dtype=dtype)
    to_onnx(cal, tmp_path / "out.onnx", model)
    h, p = run(net(dtype=dtype), {"x": X.astype(dtype)})[0], run(tmp_path / "out.onnx", {"x": X.astype(dtype)})[0]
    assert p.dtype == dtype
    np.testing.assert_allclose(p, cal.predict_proba(h.astype(float)), atol=1e-12 if dtype == np.float64 else 2e-3)


@pytest.mark.parametrize("method", ["ts", "bayes"])
def test_half_precision_keeps_the_prediction(method, tmp_path):
    data = draw(500, K, t=9.0)
    cal = METHODS[method]().fit(data.h, data.y)
    model = net(dtype=np.float16)
    cal.to_onnx(tmp_path / "out.onnx", model)
    x = 0.01 * np.random.default_rng(0).normal(size=(900, 6)).astype(np.float16)  # logits next to each other
    h, p = run(model, {"x": x})[0], run(tmp_path / "out.onnx", {"x": x}, "probabilities")[0]
    assert (p.argmax(axis=1) == h.argmax(axis=1)).mean() > 0.99  # onnxruntime may keep more digits of h in between


@pytest.mark.parametrize("method", ["ts", "matrix", "isotonic"])
def test_classes_of_images_and_texts(method, tmp_path):
    cal, path = fitted(method, K), tmp_path / "out.onnx"
    rng = np.random.default_rng(0)
    text = softmax_net(shape=("batch", "length", 6))
    to_onnx(cal, path, text)
    x = rng.normal(size=(2, 5, 6)).astype(np.float32)
    h = run(net(shape=("batch", "length", 6)), {"x": x})[0].astype(float)
    expected = cal.predict_proba(h, axis=-1)
    np.testing.assert_allclose(run(path, {"x": x})[0], expected, atol=1e-6)
    swap = {"perm": [0, 2, 1]}
    for ops in ((("Transpose", "t", swap), ("Softmax", "p", {"axis": 1})), (("Transpose", "t", swap),)):
        to_onnx(cal, path, net(*ops, shape=("batch", 5, 6)))
        np.testing.assert_allclose(run(path, {"x": x})[0], np.moveaxis(expected, -1, 1), atol=1e-6)


def test_one_column_and_labels_that_do_not_exclude_each_other(tmp_path):
    cal, path = fitted("platt", 2), tmp_path / "out.onnx"
    z = run(net(k=1), {"x": X})[0].astype(float)
    to_onnx(cal, path, net(("Sigmoid", "p", {}), k=1))
    np.testing.assert_allclose(run(path, {"x": X})[0], cal.predict_proba(z), atol=1e-6)
    on_probs = fitted("ts", 2, "probs")
    to_onnx(on_probs, path, net(("Sigmoid", "p", {}), k=1))
    np.testing.assert_allclose(run(path, {"x": X})[0], on_probs.predict_proba(expit(z)), atol=1e-6)
    with pytest.raises(InputError):
        to_onnx(cal, path, net(("Sigmoid", "p", {}), k=1), "p")
    data = draw(400, K)
    s, y = data.h, np.eye(K)[data.y]
    many, many_probs = MultiLabelCalibrator().fit(s, y), MultiLabelCalibrator(input="probs").fit(expit(s), y)
    p = run(net(("Sigmoid", "p", {})), {"x": X})[0]
    for of, x in ((many, LOGITS), (many_probs, p)):
        assert of.to_onnx(path).difference < 1e-6
        of.to_onnx(path, net(("Sigmoid", "p", {})))
        np.testing.assert_allclose(run(path, {"x": X})[0], of.predict_proba(x.astype(float)), atol=1e-6)


@pytest.mark.parametrize("ids", [["north", "south"], [3, 7]])
def test_groups_are_a_second_input(ids, tmp_path):
    data = draw(600, K, groups=2)
    sites = np.array(ids)[np.arange(600) % 2]
    cal = GroupedCalibrator("bayes").fit(data.h, data.y, groups=sites)
    assert cal.to_onnx(tmp_path / "out.onnx", softmax_net()).difference < 1e-6
    groups = np.resize(np.array([*ids, "new" if isinstance(ids[0], str) else 99]), 9)
    feeds = {"x": X, "group": groups.astype(object if isinstance(ids[0], str) else np.int64)}
    expected = cal.predict_proba(LOGITS.astype(float), groups=groups)
    np.testing.assert_allclose(run(tmp_path / "out.onnx", feeds)[0], expected, atol=1e-6)


def test_changed_priors_and_composed_stages(tmp_path):
    cal = fitted("ts", K).with_priors(np.array([0.1, 0.2, 0.3, 0.4]), np.full(K, 0.25))
    assert cal.to_onnx(tmp_path / "a.onnx").difference < 1e-6
    cal.map_ = Map((Mixture(np.array([0.6, 0.3]), np.array([0.5, 1.5]), 0.1), Affine.of(0.8, np.arange(4.0))))
    assert cal.to_onnx(tmp_path / "b.onnx").difference < 1e-6


def test_a_model_that_cannot_be_run_is_written_with_a_warning(tmp_path):
    model = softmax_net()
    model.graph.input[0].type.tensor_type.shape.dim[1].Clear()  # six numbers, but it does not say so
    with pytest.warns(attemper.AttemperWarning):
        assert to_onnx(fitted("ts", K), tmp_path / "out.onnx", model).difference is None
    assert run(tmp_path / "out.onnx", {"x": X})[0].shape == (9, K)


def test_a_result_that_disagrees_is_not_written(tmp_path, monkeypatch):
    cal = fitted("ts", K)
    monkeypatch.setattr(cal, "predict_proba", lambda x: np.full(x.shape, 0.25))
    with pytest.raises(InputError):
        cal.to_onnx(tmp_path / "out.onnx")
    assert not list(tmp_path.iterdir())


@pytest.mark.filterwarnings("ignore")  # of the exporter
def test_a_model_that_torch_wrote(tmp_path):
    layer = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.ReLU(), torch.nn.Linear(8, K))
    x = torch.from_numpy(X)
    path = tmp_path / "torch.onnx"
    torch.onnx.export(layer, (x,), path, dynamo=False, input_names=["x"], dynamic_axes={"x": {0: "n"}})
    cal = fitted("structured", K)
    cal.to_onnx(tmp_path / "out.onnx", path)
    expected = cal.predict_proba(layer(x).detach().double().numpy())
    np.testing.assert_allclose(run(tmp_path / "out.onnx", {"x": X})[0], expected, atol=1e-6)


# scikit-learn


class Twice(TransformerMixin, BaseEstimator):
    def fit(self, X, y=None):
        return self

    def transform(self, X):
        return 2 * X


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize(
    "estimator",
    [
        LogisticRegression(),
        make_pipeline(StandardScaler(), LogisticRegression()),
        RandomForestClassifier(10, random_state=0),
        GradientBoostingClassifier(n_estimators=10),
    ],
    ids=["logistic", "pipeline", "forest", "boosting"],
)
def test_a_calibrated_classifier_is_exported_whole(estimator, n_classes, tmp_path):
    x, y = make_classification(300, 6, n_informative=4, n_redundant=0, n_classes=n_classes, random_state=0)
    x = x.astype(np.float32)
    for labels in (y, np.array(["ape", "bee", "cat"])[y]):
        clf = CalibratedClassifier(estimator, "ts").fit(x, labels)
        to_onnx(clf, tmp_path / "clf.onnx")
        label, p = run(tmp_path / "clf.onnx", {"X": x}, "label", "probabilities")
        expected = clf.predict_proba(x)
        near = np.abs(p - expected).max(axis=1) < 1e-5
        assert near.mean() > 0.99  # a tree may round a threshold
        assert (label[near] == clf.predict(x)[near]).all()


def test_a_step_that_cannot_be_exported(tmp_path):
    x, y = make_classification(100, 6, random_state=0)
    clf = CalibratedClassifier(make_pipeline(Twice(), LogisticRegression()), "ts").fit(x, y)
    with pytest.raises(InputError) as error:
        to_onnx(clf, tmp_path / "clf.onnx")
    assert error.value.param == "estimator"
    assert "Twice" in str(error.value)


def test_a_list_of_dicts_is_no_tensor(tmp_path):
    rng = np.random.default_rng(0)
    model = LogisticRegression().fit(rng.normal(size=(60, 6)), np.arange(60) % K)
    dicts = pytest.importorskip("skl2onnx").to_onnx(model, X[:1])  # with ZipMap, by default
    with pytest.raises(InputError) as error:
        to_onnx(fitted("ts", K, "probs"), tmp_path / "out.onnx", dicts, "output_probability")
    assert "zipmap" in str(error.value)


def test_low_logits_that_were_no_masks_in_the_fit_are_none_in_a_model(tmp_path):
    h, y = draw(300, K)
    cal = TemperatureScaling().fit(1e4 * h, y)
    cal.to_onnx(path := tmp_path / "cal.onnx")
    x = (1e4 * h).astype(np.float32)
    np.testing.assert_allclose(run(path, {"logits": x})[0], cal.predict_proba(x), atol=1e-6)


def test_groups_with_other_priors(tmp_path):
    data = draw(600, K, groups=2)
    cal = GroupedCalibrator("ts").fit(data.h, data.y, groups=data.group).with_priors(np.arange(1, K + 1) / 10)
    assert cal.to_onnx(tmp_path / "out.onnx").difference < 1e-6
