"""A calibrated ONNX model says what NumPy says of its logits, and is the same model in all else."""

from __future__ import annotations

import json

import ml_dtypes
import numpy as np
import onnx
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator
from torch import nn

import attemper
from attemper import FileError, InputError, TemperatureScaling
from attemper.onnx import map_to_onnx, onnx_calibrate
from attemper.onnx.calibrate import provenance_of

import onnx_models as models
from data import draw
from exported import BINARY, CURVES, FOLDABLE, MAPS, K, exact, extreme_logits, extreme_pairs, random_logits

pytestmark = pytest.mark.usefixtures("in_this_process")
each_map = pytest.mark.parametrize("name", MAPS)
NETS = {
    "mlp": models.mlp,
    "matmul": lambda ending="Softmax": models.mlp(ending, layer="matmul"),
    "cnn": models.cnn,
    "segmentation": models.segmentation,
    "transformer": models.transformer,
}


def softmax(z):
    e = np.exp(z - z.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def compared(net, m, made, output_kind="probs", atol=1e-6):
    """Hold the calibrated model against NumPy; the classes are last, but for images."""
    feeds = models.feed(net)
    h, p = models.logits_of(net, feeds), models.run(made, feeds)[0]
    assert p.dtype == h.dtype
    if h.ndim == 4:
        h, p = np.moveaxis(h, 1, -1), np.moveaxis(p, 1, -1)
    p = softmax(p.astype(np.float64)) if output_kind == "logits" else np.exp(p) if output_kind == "log_probs" else p
    expected = exact(m, h)
    np.testing.assert_allclose(p, expected, atol=atol, rtol=0)
    np.testing.assert_array_equal(p.argmax(-1), expected.argmax(-1))


def echo(dtype, k=K):
    """A model whose logits are its input."""
    b = models.Builder(dtype=dtype)
    b.input("x", "batch", k)
    b.op("Identity", ["x"], "logits")
    return b.model({"logits": ("batch", k)})


# Inserted


@each_map
@pytest.mark.parametrize("net", NETS)
def test_inserted_instead_of_a_softmax(name, net):
    made = onnx_calibrate(NETS[net](), MAPS[name], fold=False)
    assert (made.how, made.output_kind, made.tensor, made.logits) == ("inserted", "probs", "out", "logits")
    assert made.ran.difference < 1e-6
    compared(NETS[net](), MAPS[name], made.model)


@each_map
def test_inserted_after_logits(name):
    for net in (models.mlp(None), models.segmentation(None)):
        made = onnx_calibrate(net, MAPS[name], fold=False)
        gives_logits = name in (*FOLDABLE, "dirichlet")
        assert made.output_kind == ("logits" if gives_logits else "log_probs")
        assert bool(made.notes) == (not gives_logits)
        compared(net, MAPS[name], made.model, made.output_kind)
        compared(net, MAPS[name], made.model, "logits")  # a softmax gives the probabilities of either
        compared(net, MAPS[name], onnx_calibrate(net, MAPS[name], output_kind="probs").model)
        compared(net, MAPS[name], onnx_calibrate(net, MAPS[name], output_kind="log_probs").model, "log_probs")


@each_map
@pytest.mark.parametrize("opset", [11, 13, 18, 21])
def test_every_opset_and_extreme_logits(name, opset):
    m = MAPS[name]
    for output_kind in ("probs", "log_probs"):
        made = map_to_onnx(m, n_classes=K, opset=opset, output_kind=output_kind)
        assert made.ran.difference < 1e-6
        for h in (random_logits(), extreme_logits()):
            value = models.run(made.model, {"logits": h})[0]
            with np.errstate(divide="ignore"):
                expected = exact(m, h, log=output_kind == "log_probs")
            np.testing.assert_allclose(value, expected, atol=1e-6, rtol=1e-6 if output_kind == "log_probs" else 0)
            if m.keeps_arg_max:
                np.testing.assert_array_equal(value.argmax(-1), h.argmax(-1))


@settings(max_examples=30)
@given(
    name=st.sampled_from(["scale", "sharp", "mixture", "floor"]),
    h=hnp.arrays(np.float16, (4, K), elements=st.floats(-100, 100, width=16)),
    half=st.booleans(),
    output_kind=st.sampled_from(["probs", "log_probs", "logits"]),
)
def test_the_arg_max_stays(name, h, half, output_kind):
    if output_kind == "logits" and name in ("mixture", "floor"):
        output_kind = "probs"
    net = echo("float16" if half else "float32")
    made = onnx_calibrate(net, MAPS[name], logits="logits", output_kind=output_kind, check=False).model
    x = h if half else h.astype(np.float32)
    np.testing.assert_array_equal(models.run(made, {"x": x})[0].argmax(-1), x.argmax(-1))


@each_map
def test_the_answer_is_that_of_numpy(name):
    h = random_logits(500)  # steps make many classes equally probable; the classifier's own answer then stays
    found = models.run(map_to_onnx(MAPS[name], n_classes=K).model, {"logits": h})[0]
    np.testing.assert_array_equal(found.argmax(-1), MAPS[name].apply(h).argmax(-1))


def test_the_arg_max_stays_among_seventy_thousand_classes_in_half_precision():
    h = np.zeros((1, 70_000), dtype=np.float16)
    h[0, -1] = 1e-4
    made = onnx_calibrate(echo("float16", h.shape[1]), MAPS["scale"], logits="logits", output_kind="probs", check=False)
    assert models.run(made.model, {"x": h})[0].argmax() == 69_999


def test_two_classes():
    h = np.array([[2.0, 0.0], [0.0, 0.5], [-3.0, 3.0], [0.0, -np.inf]], dtype=np.float32)
    made = map_to_onnx(BINARY)
    np.testing.assert_allclose(models.run(made.model, {"logits": h})[0], exact(BINARY, h), atol=1e-7)


@pytest.mark.parametrize("name", CURVES)
@pytest.mark.parametrize("opset", [11, 13, 18, 21])
def test_curves_in_every_opset(name, opset):
    m, h = CURVES[name], np.r_[random_logits(k=2), extreme_pairs()]
    for output_kind in ("probs", "log_probs"):
        made = map_to_onnx(m, opset=opset, output_kind=output_kind)
        assert made.ran.difference < 1e-6
        value = models.run(made.model, {"logits": h})[0]
        log = output_kind == "log_probs"
        np.testing.assert_allclose(value, exact(m, h, log=log), atol=2e-6, rtol=1e-6 if log else 0)


@pytest.mark.parametrize("name", CURVES)
def test_curves_are_inserted_and_never_folded(name):
    m, net = CURVES[name], echo("float16", 2)
    h = random_logits(k=2).astype(np.float16)
    made = onnx_calibrate(net, m, logits="logits", output_kind="probs")
    assert made.how == "inserted"
    np.testing.assert_allclose(models.run(made.model, {"x": h})[0], exact(m, h), atol=1e-7, rtol=2**-9)
    assert onnx_calibrate(models.mlp(n_classes=2), m).how == "inserted"
    with pytest.raises(InputError):
        onnx_calibrate(models.mlp(n_classes=2), m, fold=True, output_kind="probs")


@each_map
def test_half_precision_is_computed_in_single(name):
    h = random_logits(40).astype(np.float16)
    p = models.run(onnx_calibrate(echo("float16"), MAPS[name], logits="logits", output_kind="probs").model, {"x": h})[0]
    assert p.dtype == np.float16
    np.testing.assert_allclose(p, exact(MAPS[name], h), atol=1e-7, rtol=2**-9)
    made = onnx_calibrate(models.mlp(dtype="float16"), MAPS[name])
    assert made.how == "inserted"
    assert made.ran.difference < 2e-3  # onnxruntime leaves out roundings of the model itself


@each_map
def test_bfloat16(name):
    # onnxruntime has no bfloat16 on a CPU, so that onnx's own evaluator, slow and plain, must do.
    h = random_logits(20).astype(ml_dtypes.bfloat16)
    made = onnx_calibrate(echo("bfloat16"), MAPS[name], logits="logits", output_kind="probs")
    p = ReferenceEvaluator(made.model).run(None, {"x": h})[0]
    assert p.dtype == ml_dtypes.bfloat16
    np.testing.assert_allclose(p.astype(np.float64), exact(MAPS[name], h), atol=1e-7, rtol=2**-6)
    if MAPS[name].keeps_arg_max:
        np.testing.assert_array_equal(p.astype(float).argmax(-1), h.astype(float).argmax(-1))


@each_map
def test_double_precision(name):
    net = models.mlp(dtype="float64")
    compared(net, MAPS[name], onnx_calibrate(net, MAPS[name]).model, atol=1e-12)


def test_dynamic_batches_stay_dynamic():
    net = models.mlp()
    made = onnx_calibrate(net, MAPS["mixture"]).model
    for batch in (1, 2, 33):
        assert models.run(made, models.feed(net, batch))[0].shape == (batch, K)
    assert made.graph.output[0] == net.graph.output[0]


def test_an_output_more():
    net = models.mlp(None)
    made = onnx_calibrate(net, MAPS["mixture"], outputs="add")
    assert (made.tensor, made.output_kind) == ("calibrated_probs", "probs")
    feeds = models.feed(net)
    h, p = models.run(made.model, feeds)
    np.testing.assert_array_equal(h, models.run(net, feeds)[0])
    np.testing.assert_allclose(p, exact(MAPS["mixture"], h), atol=1e-6)
    middle = onnx_calibrate(net, MAPS["scale"], logits="r", outputs="add", axis=-1)
    assert models.run(middle.model, feeds)[1].shape == (7, 8)


# Folded


@pytest.mark.parametrize("name", FOLDABLE)
@pytest.mark.parametrize("ending", ["Softmax", None])
@pytest.mark.parametrize("layer", ["gemm", "gemm either way", "matmul"])
@pytest.mark.parametrize("bias", [True, False])
def test_folded_into_a_layer(name, ending, layer, bias):
    net = models.mlp(ending, layer, bias)
    made = onnx_calibrate(net, MAPS[name])
    assert made.how == "folded"
    more = layer == "matmul" and not bias and name in ("vector", "matrix", "scaled matrix")  # a bias needs an Add
    assert len(made.model.graph.node) == len(net.graph.node) + more
    compared(net, MAPS[name], made.model, "probs" if ending else "logits")


@pytest.mark.parametrize("name", FOLDABLE)
@pytest.mark.parametrize(
    "net", [models.cnn(), models.segmentation(), models.segmentation(None, bias=False), models.transformer()]
)
def test_folded_into_networks(name, net):
    made = onnx_calibrate(net, MAPS[name], fold=True)
    assert made.how == "folded"
    assert [n.op_type for n in made.model.graph.node] == [n.op_type for n in net.graph.node]
    compared(net, MAPS[name], made.model, "logits" if net.graph.output[0].name == "logits" else "probs")


def test_half_weights_fold_only_when_asked():
    net = models.mlp(dtype="float16")
    made = onnx_calibrate(net, MAPS["scale"], fold=True)
    assert made.how == "folded"
    assert "rounded to half precision" in made.notes[0]
    w = numpy_helper.to_array(net.graph.initializer[2]).astype(np.float64)
    np.testing.assert_array_equal(
        numpy_helper.to_array(made.model.graph.initializer[2]), (w * MAPS["scale"].beta).astype(np.float16)
    )


def shared(which):
    """Tied weights: the last layer's W, or b, is used before as well."""
    b = models.Builder()
    b.input("x", "batch", K)
    b.op("Gemm", ["x", b.weight("w", K, K), b.weight("b", K)], "a")
    b.op("Tanh", ["a"], "r")
    last = ["r", "w" if which == "w" else b.weight("w2", K, K), "b" if which == "b" else b.weight("b2", K)]
    b.op("Gemm", last, "logits")
    return b.model(models.end(b, "logits", "Softmax", 1))


@pytest.mark.parametrize("which", ["w", "b"])
def test_shared_weights_stay_with_the_others(which):
    net = shared(which)
    made = onnx_calibrate(net, MAPS["matrix"])
    assert made.how == "folded"
    before, after = ({t.name: numpy_helper.to_array(t) for t in m.graph.initializer} for m in (net, made.model))
    np.testing.assert_array_equal(after[which], before[which])
    assert f"{which}_calibrated" in after
    compared(net, MAPS["matrix"], made.model)


@pytest.mark.parametrize("ir", [3, 8])
def test_constants_that_are_inputs(ir):
    net = models.mlp(ir=ir, opset=11)
    if ir > 3:
        w = net.graph.initializer[2]
        net.graph.input.append(helper.make_tensor_value_info(w.name, w.data_type, w.dims))
    for fold in (True, False):
        made = onnx_calibrate(net, MAPS["matrix"], fold=fold)
        compared(net, MAPS["matrix"], made.model)
        assert ("w2_calibrated" in [t.name for t in made.model.graph.initializer]) == (fold and ir > 3)


@pytest.mark.parametrize(
    "net, m, why",
    [
        (models.mlp(), MAPS["mixture"], "MixtureMap is not linear.*fold=False"),
        (models.mlp(), MAPS["dirichlet"], "takes log-probabilities"),
        (models.mlp(None), MAPS["scale"], "what the output holds would have to change"),
    ],
)
def test_fold_true_says_why_not(net, m, why):
    with pytest.raises(InputError):
        onnx_calibrate(net, m, fold=True, output_kind="probs")


def test_logits_that_others_use_are_not_folded():
    b = models.Builder()
    b.input("x", "batch", 6)
    b.op("Gemm", ["x", b.weight("w", 6, K)], "logits")
    b.op("Softmax", ["logits"], "out", axis=1)
    net = b.model({"out": ("batch", K), "logits": ("batch", K)})
    made = onnx_calibrate(net, MAPS["scale"], logits="logits", output_kind="logits")
    assert made.how == "inserted"
    feeds = models.feed(net)
    before, after = models.run(net, feeds), models.run(made.model, feeds)
    np.testing.assert_array_equal(after[0], before[0])  # the other output is as it was
    np.testing.assert_allclose(after[1], MAPS["scale"].beta * before[1], rtol=1e-6)


# The model stays what it was


@pytest.mark.parametrize("fold", [True, False])
def test_names_and_metadata_are_kept_and_provenance_added(fold, tmp_path):
    h, y = draw(200, K)
    cal = TemperatureScaling(classes=list("abcde")).fit(h, np.array(list("abcde"))[y])
    cal.save(tmp_path / "m.json")
    net = models.mlp()
    made = onnx_calibrate(net, tmp_path / "m.json", fold=fold).model
    for field in ("ir_version", "producer_name", "opset_import", "doc_string"):
        assert getattr(made, field) == getattr(net, field)
    assert made.graph.doc_string == "a net"
    assert made.graph.input == net.graph.input
    assert made.graph.output == net.graph.output
    kept = [n for n in net.graph.node if n.op_type != "Softmax" or fold]
    assert [n for n in made.graph.node if not n.name.startswith("attemper/")] == kept
    metadata = {p.key: p.value for p in made.metadata_props}
    assert metadata["author"] == "me"
    told = provenance_of(made)
    assert told["version"] == attemper.__version__
    assert (told["method"], told["map"], told["n_samples"], told["n_classes"]) == ("ts", "scale", "200", str(K))
    assert float(told["temperature"]) == cal.temperature_
    assert float(told["nll"]) == cal.fit_report_.nll
    assert json.loads(told["classes"]) == list("abcde")
    assert len(told["map_sha256"]) == 64
    assert told["how"] == ("folded" if fold else "inserted")
    with pytest.raises(InputError):
        onnx_calibrate(made, cal)


def test_the_file_that_was_read_is_not_changed_unless_asked(tmp_path):
    path = tmp_path / "net.onnx"
    onnx.save(models.mlp(), path)
    before = path.read_bytes()
    made = onnx_calibrate(path, MAPS["scale"], tmp_path / "out.onnx")
    assert path.read_bytes() == before
    assert onnx.load(tmp_path / "out.onnx") == made.model
    for output in (path, tmp_path / "." / "net.onnx"):
        with pytest.raises(FileError):
            onnx_calibrate(path, MAPS["scale"], output)
    assert path.read_bytes() == before
    onnx_calibrate(path, MAPS["scale"], in_place=True)
    assert onnx.load(path) == made.model
    assert sorted(p.name for p in tmp_path.iterdir()) == ["net.onnx", "out.onnx"]
    with pytest.raises(InputError):
        onnx_calibrate(models.mlp(), MAPS["scale"], in_place=True)


def test_the_same_input_gives_the_same_bytes(tmp_path):
    written = []
    for name in ("a.onnx", "b.onnx"):
        onnx_calibrate(models.mlp(), MAPS["odds"], tmp_path / name)
        written.append((tmp_path / name).read_bytes())
    assert written[0] == written[1]


def test_probabilities():
    h, y = draw(200, K)
    on_probs = TemperatureScaling(input="probs", zeros_as=1e-9).fit(softmax(h), y)
    without = TemperatureScaling(input="probs").fit(softmax(h), y)
    compared(models.mlp(), without.map_, onnx_calibrate(models.mlp(), without).model)
    with pytest.raises(InputError):
        onnx_calibrate(models.mlp(None), on_probs)
    b = models.Builder()  # a model whose probabilities are no Softmax
    b.input("x", "batch", K)
    b.op("Sigmoid", ["x"], "s")
    b.op("ReduceSum", ["s", b.ints("last", [1])], "sum", keepdims=1)
    b.op("Div", ["s", "sum"], "probs")
    net = b.model({"probs": ("batch", K)})
    made = onnx_calibrate(net, on_probs, logits="probs")
    assert made.output_kind == "probs"
    feeds = models.feed(net)
    p = models.run(net, feeds)[0]
    np.testing.assert_allclose(models.run(made.model, feeds)[0], on_probs.predict_proba(p), atol=1e-6)
    alone = map_to_onnx(on_probs)
    np.testing.assert_allclose(models.run(alone.model, {"probs": p})[0], on_probs.predict_proba(p), atol=1e-6)


@pytest.mark.parametrize("told", [None, "logits", "out"])
@pytest.mark.parametrize("net", ["mlp", "segmentation", "transformer", "opset 11"])
@pytest.mark.parametrize("floor", [1e-2, 1e-50])
def test_a_floor_of_probabilities(told, net, floor):
    h, y = draw(200, K)
    cal = TemperatureScaling(input="probs", zeros_as=floor).fit(softmax(3 * h), y)
    model = models.mlp(opset=11) if net == "opset 11" else NETS[net]()
    made = onnx_calibrate(model, cal, logits=told)
    assert (made.how, made.output_kind, made.tensor) == ("inserted", "probs", "out")
    assert made.ran.difference < 1e-5
    feeds = {name: 5 * x for name, x in models.feed(model).items()}
    # The model's own probabilities are in single precision, where a CPU may round 1e-40 to 0; its logits are not.
    h, found = models.logits_of(model, feeds).astype(np.float64), models.run(made.model, feeds)[0]
    if h.ndim == 4:
        h, found = np.moveaxis(h, 1, -1), np.moveaxis(found, 1, -1)
    p = softmax(h)
    expected = cal.predict_proba(p.reshape(-1, K)).reshape(p.shape)
    if floor == 1e-2:  # which tells
        assert np.abs(expected - exact(cal.map_, np.log(np.maximum(p, 1e-30)))).max() > 0.01
    np.testing.assert_allclose(found, expected, atol=1e-5, rtol=0)
    with pytest.raises(InputError):
        onnx_calibrate(model, cal, fold=True)


def test_probabilities_that_are_zero_and_a_floor_below_single_precision():
    h, y = draw(200, K)
    cal = TemperatureScaling(input="probs", zeros_as=1e-50).fit(softmax(h), y)
    p = np.array([[1.0, 0, 0, 0, 0], [0.5, 0.5, 0, 0, 0]], dtype=np.float32)
    found = models.run(map_to_onnx(cal, output_kind="log_probs").model, {"probs": p})[0]
    np.testing.assert_allclose(found, np.log(cal.predict_proba(p.astype(np.float64))), rtol=1e-5, atol=1e-6)


# From torch


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
        self.head = nn.Linear(8, K)

    def forward(self, x):
        return self.head(self.layer(x)[:, 0])


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ["scale", "matrix", "structured", "isotonic"])
@pytest.mark.parametrize("end", [None, "softmax"])
def test_models_that_torch_wrote(name, end, tmp_path):
    torch.manual_seed(0)
    cnn = [nn.Conv2d(3, 4, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, K)]
    for net, x in ((nn.Sequential(*cnn), torch.randn(2, 3, 8, 8)), (Block(), torch.randn(2, 4, 8))):
        net = nn.Sequential(net, *([nn.Softmax(-1)] if end else [])).eval()
        torch.onnx.export(
            net,
            (x,),
            tmp_path / "t.onnx",
            dynamo=False,
            input_names=["x"],
            dynamic_axes={"x": {0: "n"}},
            opset_version=17,
        )
        made = onnx_calibrate(tmp_path / "t.onnx", MAPS[name], tmp_path / "c.onnx")
        assert made.how == ("folded" if name in FOLDABLE else "inserted")
        assert made.ran.difference < 1e-5
        x = torch.cat([x, -x])
        h = (net[0](x) if end else net(x)).detach().numpy()
        p = models.run(tmp_path / "c.onnx", {"x": x.numpy()})[0]
        p = p if made.output_kind == "probs" else softmax(p.astype(np.float64))
        np.testing.assert_allclose(p, exact(MAPS[name], h), atol=2e-6, rtol=0)
