"""A calibrated ONNX model says what NumPy says of its logits, and is the same model in all else."""

from __future__ import annotations

import json
import sys

import numpy as np
import onnx
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from onnx import TensorProto, helper
from torch import nn

import attemper
from attemper import FileError, InputError, InputTypeError, MultiLabelCalibrator, ScaleMap, TemperatureScaling
from attemper.calibrators.exportable import Source
from attemper.cli import main
from attemper.onnx import calibrate, map_to_onnx, onnx_calibrate
from attemper.onnx.calibrate import provenance_of

import onnx_models as models
from data import draw, softmax
from exported import BINARY, CURVES, MAPS, K, exact, extreme_logits, extreme_pairs, random_logits

each_map = pytest.mark.parametrize("name", MAPS)
SCALE, MIXTURE = MAPS["scale"], MAPS["mixture"]
GIVE_LOGITS = ("scale", "sharp", "vector", "matrix", "no bias", "scaled matrix", "dirichlet")
NETS = {
    "mlp": models.mlp,
    "matmul": lambda ending="Softmax": models.mlp(ending, layer="matmul"),
    "cnn": models.cnn,
    "segmentation": models.segmentation,
    "transformer": models.transformer,
}


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


# Numbers


@each_map
@pytest.mark.parametrize("net", NETS)
def test_inserted_instead_of_a_softmax(name, net):
    made = onnx_calibrate(NETS[net](), MAPS[name])
    assert (made.output_kind, made.tensor, made.logits) == ("probs", "out", "logits")
    assert made.ran.difference < 1e-6
    compared(NETS[net](), MAPS[name], made.model)


@each_map
def test_inserted_after_logits(name):
    for net in (models.mlp(None), models.segmentation(None)):
        made = onnx_calibrate(net, MAPS[name])
        assert made.output_kind == ("logits" if name in GIVE_LOGITS else "log_probs")
        assert bool(made.notes) == (name not in GIVE_LOGITS)
        compared(net, MAPS[name], made.model, "logits")  # a softmax gives the probabilities of either
        compared(net, MAPS[name], onnx_calibrate(net, MAPS[name], output_kind="probs").model)
        compared(net, MAPS[name], onnx_calibrate(net, MAPS[name], output_kind="log_probs").model, "log_probs")


@each_map
@pytest.mark.parametrize("opset", [17, 18, 21])
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


@pytest.mark.parametrize("name", CURVES)
def test_curves_of_two_classes(name):
    m, h = CURVES[name], np.r_[random_logits(k=2), extreme_pairs()]
    for output_kind in ("probs", "log_probs"):
        value = models.run(map_to_onnx(m, output_kind=output_kind).model, {"logits": h})[0]
        log = output_kind == "log_probs"
        np.testing.assert_allclose(value, exact(m, h, log=log), atol=2e-6, rtol=1e-6 if log else 0)


def test_two_classes_and_one_column():
    h = np.array([[2.0, 0.0], [0.0, 0.5], [-3.0, 3.0], [0.0, -np.inf]], dtype=np.float32)
    np.testing.assert_allclose(models.run(map_to_onnx(BINARY).model, {"logits": h})[0], exact(BINARY, h), atol=1e-7)
    z = np.array([-2.0, 0.0, 3.0], dtype=np.float32)
    found = models.run(map_to_onnx(ScaleMap(0.5), positive=True).model, {"logits": z})[0]
    np.testing.assert_allclose(found, 1 / (1 + np.exp(-z / 2)), atol=1e-7)


@settings(max_examples=30)
@given(
    name=st.sampled_from(["scale", "sharp", "mixture", "floor"]),
    h=hnp.arrays(np.float16, (4, K), elements=st.floats(-100, 100, width=16)),
    half=st.booleans(),
    output_kind=st.sampled_from(["probs", "log_probs"]),
)
def test_the_arg_max_stays(name, h, half, output_kind):
    net = echo("float16" if half else "float32")
    made = onnx_calibrate(net, MAPS[name], logits="logits", output_kind=output_kind, check=False).model
    x = h if half else h.astype(np.float32)
    np.testing.assert_array_equal(models.run(made, {"x": x})[0].argmax(-1), x.argmax(-1))


@each_map
def test_half_precision_is_computed_in_single(name):
    h = random_logits(40).astype(np.float16)
    p = models.run(onnx_calibrate(echo("float16"), MAPS[name], logits="logits", output_kind="probs").model, {"x": h})[0]
    assert p.dtype == np.float16
    np.testing.assert_allclose(p, exact(MAPS[name], h), atol=1e-7, rtol=2**-9)


@each_map
def test_double_precision(name):
    net = models.mlp(dtype="float64")
    compared(net, MAPS[name], onnx_calibrate(net, MAPS[name]).model, atol=1e-12)


def test_maps_of_probabilities():
    h, y = draw(200, K)
    cal = TemperatureScaling(input="probs").fit(softmax(h), y)
    compared(models.mlp(), cal.map_, onnx_calibrate(models.mlp(), cal).model)
    with pytest.raises(InputError):
        onnx_calibrate(models.mlp(None), cal)
    b = models.Builder()  # a model whose probabilities are no Softmax
    b.input("x", "batch", K)
    b.op("Sigmoid", ["x"], "s")
    b.op("ReduceSum", ["s", b.ints("last", [1])], "sum", keepdims=1)
    b.op("Div", ["s", "sum"], "probs")
    net = b.model({"probs": ("batch", K)})
    made = onnx_calibrate(net, cal, logits="probs")
    assert made.output_kind == "probs"
    feeds = models.feed(net)
    p = models.run(net, feeds)[0]
    np.testing.assert_allclose(models.run(made.model, feeds)[0], cal.predict_proba(p), atol=1e-6)
    np.testing.assert_allclose(models.run(map_to_onnx(cal).model, {"probs": p})[0], cal.predict_proba(p), atol=1e-6)
    with pytest.raises(InputError):
        onnx_calibrate(net, SCALE, logits="probs")  # they are no logits


@pytest.mark.parametrize("floor", [1e-2, 1e-50])
@pytest.mark.parametrize("net", ["mlp", "segmentation"])
def test_a_floor_of_probabilities(net, floor):
    h, y = draw(200, K)
    cal = TemperatureScaling(input="probs", zeros_as=floor).fit(softmax(3 * h), y)
    made = onnx_calibrate(NETS[net](), cal)
    assert made.ran.difference < 1e-5
    feeds = {name: 5 * x for name, x in models.feed(NETS[net]()).items()}
    h, found = models.logits_of(NETS[net](), feeds).astype(np.float64), models.run(made.model, feeds)[0]
    if h.ndim == 4:
        h, found = np.moveaxis(h, 1, -1), np.moveaxis(found, 1, -1)
    expected = cal.predict_proba(softmax(h).reshape(-1, K)).reshape(h.shape)
    np.testing.assert_allclose(found, expected, atol=1e-5, rtol=0)
    p = np.array([[1.0, 0, 0, 0, 0], [0.5, 0.5, 0, 0, 0]], dtype=np.float32)
    found = models.run(map_to_onnx(cal, output_kind="log_probs").model, {"probs": p})[0]
    np.testing.assert_allclose(found, np.log(cal.predict_proba(p.astype(np.float64))), rtol=1e-5, atol=1e-6)


def test_labels_that_do_not_exclude_each_other():
    rng = np.random.default_rng(0)
    s = 2 * rng.normal(size=(400, K)) - 1
    y = (s / 2 + rng.logistic(size=s.shape) > 0).astype(float)
    for method in ("pooled", "beta"):
        cal = MultiLabelCalibrator(method=method).fit(s, y)
        on_probs = MultiLabelCalibrator(method=method, input="probs", zeros_as=1e-6).fit(1 / (1 + np.exp(-s)), y)
        for output_kind in ("probs", "log_probs"):
            assert map_to_onnx(cal, output_kind=output_kind).ran.difference < 1e-5
            assert map_to_onnx(on_probs, output_kind=output_kind).ran.difference < 1e-5
        for of in (cal, on_probs):
            assert onnx_calibrate(models.mlp("Sigmoid"), of).ran.difference < 1e-5
    with pytest.raises(InputError):
        onnx_calibrate(models.mlp("Softmax"), cal)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ["scale", "matrix", "structured", "isotonic"])
@pytest.mark.parametrize("end", [None, "softmax"])
def test_models_that_torch_wrote(name, end, tmp_path):
    torch.manual_seed(0)
    cnn = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, K))
    net, x = nn.Sequential(cnn, *([nn.Softmax(-1)] if end else [])).eval(), torch.randn(2, 3, 8, 8)
    path, axes = tmp_path / "t.onnx", {"x": {0: "n"}}
    torch.onnx.export(net, (x,), path, dynamo=False, input_names=["x"], dynamic_axes=axes, opset_version=17)
    made = onnx_calibrate(path, MAPS[name], tmp_path / "c.onnx")
    x = torch.cat([x, -x])
    h, p = cnn(x).detach().numpy(), models.run(tmp_path / "c.onnx", {"x": x.numpy()})[0]
    p = p if made.output_kind == "probs" else softmax(p.astype(np.float64))
    np.testing.assert_allclose(p, exact(MAPS[name], h), atol=2e-6, rtol=0)


# Where the logits are


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


@pytest.mark.parametrize(
    "net", [two_outputs(), models.mlp("LogSoftmax"), models.mlp("Sigmoid"), softmax_in_the_middle(), echo("float32")]
)
def test_what_is_ambiguous_is_an_error(net):
    with pytest.raises(InputError):
        onnx_calibrate(net, SCALE)


def test_a_choice_among_outputs():
    net = two_outputs()
    made = onnx_calibrate(net, MIXTURE, logits="logits")
    feeds = models.feed(net)
    before, after = models.run(net, feeds), models.run(made.model, feeds)
    np.testing.assert_allclose(np.exp(after[0]), exact(MIXTURE, before[0]), atol=1e-6)
    np.testing.assert_array_equal(after[1], before[1])
    with pytest.raises(InputError):
        onnx_calibrate(net, MAPS["matrix"], logits="age")


@pytest.mark.parametrize("named", ["logits", "out"])
def test_log_softmax_stays_log_probabilities(named):
    net = models.mlp("LogSoftmax")
    made = onnx_calibrate(net, MIXTURE, logits=named)
    assert made.output_kind == "log_probs"
    feeds = models.feed(net)
    h = models.logits_of(net, feeds, named)
    np.testing.assert_allclose(np.exp(models.run(made.model, feeds)[0]), exact(MIXTURE, h), atol=1e-6)


def test_names_that_cannot_be():
    net = softmax_in_the_middle()
    for options in ({"logits": "nothing"}, {"logits": "shares"}, {"logits": "logits"}, {"outputs": "more"}):
        with pytest.raises(InputError):
            onnx_calibrate(net, SCALE, **options)
    assert onnx_calibrate(net, SCALE, logits="logits", outputs="add").tensor == "calibrated_probs"
    assert onnx_calibrate(models.mlp(), SCALE, logits="out").logits == "logits"
    with pytest.raises(InputError):
        onnx_calibrate(models.mlp(None), MIXTURE, output_kind="logits")
    with pytest.raises(InputError):
        onnx_calibrate(models.mlp(opset=13), SCALE)


def test_changes_of_shape_are_looked_through():
    for ops in (("Reshape",), ("Softmax", "Reshape"), ("Identity", "Softmax", "Identity", "Cast")):
        b = models.Builder()
        b.input("x", "batch", 6)
        b.op("Gemm", ["x", b.weight("w", 6, K)], "logits")
        last = "logits"
        for i, op in enumerate(ops):
            more = [b.ints("shape", [-1, K])] if op == "Reshape" else []
            last = b.op(op, [last, *more], f"t{i}", **({"to": TensorProto.FLOAT} if op == "Cast" else {}))
        net = b.model({last: ("batch", K)})
        for m in (SCALE, MIXTURE):
            compared(net, m, onnx_calibrate(net, m, output_kind="probs").model)


def test_the_axis_is_told_where_nothing_tells_it():
    b = models.Builder()
    b.input("x", "batch", K, 4)
    b.op("Mul", ["x", b.weight("s", 1)], "logits")
    net = b.model({"logits": ("batch", K, 4)})
    for axis in (None, 3):
        with pytest.raises(InputError):
            onnx_calibrate(net, MIXTURE, logits="logits", axis=axis)
    feeds = models.feed(net)
    h = np.moveaxis(models.run(net, feeds)[0], 1, -1)
    for name in ("mixture", "matrix", "odds", "isotonic"):
        made = onnx_calibrate(net, MAPS[name], logits="logits", axis=1, output_kind="probs")
        p = np.moveaxis(models.run(made.model, feeds)[0], 1, -1)
        np.testing.assert_allclose(p, exact(MAPS[name], h), atol=1e-6)


@pytest.mark.parametrize("kind", ["transposed", "MatMul", "Gemm"])
def test_classes_that_come_first_are_not_mistaken(kind):
    b = models.Builder()
    if kind == "transposed":
        b.input("x", "batch", 6)
        b.op("Gemm", ["x", b.weight("w", 6, K)], "z")
        b.op("Transpose", ["z"], "h", perm=[1, 0])
    else:
        b.input("x", 6, "batch")
        b.op(kind, [b.weight("w", K, 6), "x"], "h")
    net = b.model({"h": (K, "batch")})
    for named in (None, "h"):
        with pytest.raises(InputError):
            onnx_calibrate(net, MIXTURE, logits=named)
    feeds = models.feed(net)
    made = onnx_calibrate(net, MIXTURE, logits="h", axis=0, output_kind="probs")
    np.testing.assert_allclose(
        models.run(made.model, feeds)[0].T, exact(MIXTURE, models.run(net, feeds)[0].T), atol=1e-6
    )


@pytest.mark.parametrize("add", [False, True])
def test_a_softmax_that_is_not_the_only_reader_of_the_logits(add):
    b = models.Builder()
    b.input("x", "batch", 6)
    b.op("Gemm", ["x", b.weight("w", 6, K)], "h")
    b.op("Neg", ["h"], "answer")
    b.op("Softmax", ["h"], "p", axis=-1)
    net = b.model({"p": ("batch", K), "answer": ("batch", K)})
    with pytest.raises(InputError):
        onnx_calibrate(net, MIXTURE)
    feeds = models.feed(net)
    p, answer = models.run(net, feeds, "p", "answer")
    for named in ("h", "p"):
        made = onnx_calibrate(net, MIXTURE, logits=named, outputs="add" if add else "replace")
        assert (made.logits, made.tensor) == ("h", "calibrated_probs" if add else "p")
        found = models.run(made.model, feeds, made.tensor, "answer", "p")
        np.testing.assert_allclose(found[0], exact(MIXTURE, -answer), atol=1e-6)
        np.testing.assert_array_equal(found[1], answer)
        if add:
            np.testing.assert_array_equal(found[2], p)


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
    found = models.run(onnx_calibrate(net, SCALE, logits="logits").model, feeds)
    np.testing.assert_allclose(found[0], SCALE.beta * h, rtol=1e-6)
    np.testing.assert_array_equal(found[1], -h)


# The model stays what it was


def test_names_and_metadata_are_kept_and_provenance_added(tmp_path):
    h, y = draw(200, K)
    cal = TemperatureScaling(classes=list("abcde")).fit(h, np.array(list("abcde"))[y])
    cal.save(tmp_path / "m.json")
    net = models.mlp()
    made = onnx_calibrate(net, tmp_path / "m.json").model
    for field in ("ir_version", "producer_name", "opset_import", "doc_string"):
        assert getattr(made, field) == getattr(net, field)
    assert made.graph.input == net.graph.input
    assert made.graph.output == net.graph.output
    kept = [n for n in net.graph.node if n.op_type != "Softmax"]
    assert [n for n in made.graph.node if not n.name.startswith("attemper/")] == kept
    assert {p.key: p.value for p in made.metadata_props}["author"] == "me"
    known = provenance_of(made)
    assert known["version"] == attemper.__version__
    assert (known["method"], known["map"], known["n_samples"], known["n_classes"]) == ("ts", "scale", "200", str(K))
    assert float(known["temperature"]) == cal.temperature_
    assert json.loads(known["classes"]) == list("abcde")
    with pytest.raises(InputError):
        onnx_calibrate(made, cal)
    for batch in (1, 2, 33):
        assert models.run(made, models.feed(net, batch))[0].shape == (batch, K)


def test_files(tmp_path):
    path, output = tmp_path / "net.onnx", tmp_path / "out.onnx"
    onnx.save_model(models.mlp(), path, save_as_external_data=True, location="m.data", size_threshold=0)
    before = path.read_bytes()
    made = onnx_calibrate(path, SCALE, output)
    compared(models.mlp(), SCALE, made.model)
    assert onnx.load(output) == made.model
    with pytest.raises(FileError):
        onnx_calibrate(path, SCALE, path)
    assert path.read_bytes() == before
    onnx_calibrate(path, SCALE, tmp_path / "again.onnx")
    assert (tmp_path / "again.onnx").read_bytes() == output.read_bytes()
    with pytest.raises(InputTypeError):
        onnx_calibrate(3, SCALE)
    for damaged in (b"", before[:100], b"no model"):
        path.write_bytes(damaged)
        with pytest.raises(FileError):
            onnx_calibrate(path, SCALE)


def test_tensors_of_large_models_are_written_beside_them(tmp_path, monkeypatch):
    monkeypatch.setattr(calibrate, "MAX_BYTES", 100)
    net = models.mlp()
    net.graph.initializer[0].CopyFrom(onnx.numpy_helper.from_array(np.ones((6, 800), np.float32), "w1"))
    net.graph.initializer[1].CopyFrom(onnx.numpy_helper.from_array(np.ones(800, np.float32), "b1"))
    net.graph.initializer[2].CopyFrom(onnx.numpy_helper.from_array(np.ones((K, 800), np.float32), "w2"))
    onnx_calibrate(net, SCALE, tmp_path / "out.onnx")
    assert (tmp_path / "out.onnx.data").stat().st_size >= 800 * 4 * 6
    feeds = models.feed(net)
    p = models.run(tmp_path / "out.onnx", feeds)[0]
    np.testing.assert_allclose(p, exact(SCALE, models.logits_of(net, feeds)), atol=1e-6)


# The check


def test_a_model_that_does_not_run_is_not_written(tmp_path):
    wide = models.cnn()
    wide.graph.input[0].type.tensor_type.shape.dim[1].Clear()  # three channels, but it does not say so
    with pytest.raises(InputError):
        onnx_calibrate(wide, SCALE, tmp_path / "out.onnx")
    assert not list(tmp_path.iterdir())
    assert onnx_calibrate(wide, SCALE, check={"x": np.ones((1, 3, 4, 4), np.float32)}).ran.difference < 1e-6
    assert onnx_calibrate(wide, SCALE, tmp_path / "out.onnx", check=False).output.is_file()


def test_what_could_not_be_compared_is_said(monkeypatch):
    b = models.Builder()
    b.input("x", "batch", 6)
    b.op("Log", ["x"], "l")  # of what is negative
    b.op("Gemm", ["l", b.weight("w", 6, 5)], "logits")
    net = b.model(models.end(b, "logits", "Softmax", 1))
    made = onnx_calibrate(net, SCALE)
    assert made.ran.difference is None
    assert made.ran.why_not
    assert onnx_calibrate(net, SCALE, check={"x": np.ones((2, 6), np.float32)}).ran.difference < 1e-6
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert onnx_calibrate(models.mlp(), SCALE).ran.difference is None


def test_a_result_that_disagrees_is_not_written(tmp_path, monkeypatch):
    trace = calibrate.trace_map
    monkeypatch.setattr(calibrate, "trace_map", lambda t, s, *a, **k: trace(t, Source(ScaleMap(1.0)), *a, **k))
    with pytest.raises(InputError):
        onnx_calibrate(models.mlp(), SCALE, tmp_path / "out.onnx")
    assert not list(tmp_path.iterdir())


# The command


def test_export(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    h, y = draw(300, K)
    TemperatureScaling().fit(h, y).save("m.json")
    onnx.save(models.mlp(), "model.onnx")
    feeds = models.feed(models.mlp())
    logits = models.logits_of(models.mlp(), feeds)
    expected = attemper.load("m.json").predict_proba(logits)
    for line, code in (
        ("export m.json model.onnx -o out.onnx --json", 0),
        ("export m.json -o alone.onnx", 0),
        ("export m.json model.onnx -o out.txt", 2),
        ("export m.json out.onnx -o again.onnx", 2),
    ):
        monkeypatch.setattr(sys, "argv", ["attemper", *line.split()])
        with pytest.raises(SystemExit) as end:
            main()
        assert (end.value.code or 0) == code
        found = capsys.readouterr().out
        if "--json" in line:
            assert json.loads(found)["largest_difference"] < 1e-6
    np.testing.assert_allclose(models.run("out.onnx", feeds)[0], expected, atol=1e-6)
    np.testing.assert_allclose(models.run("alone.onnx", {"logits": logits})[0], expected, atol=1e-6)
