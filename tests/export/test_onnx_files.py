"""ONNX files that are damaged or made to harm: one clear error, nothing written, nothing opened elsewhere."""

from __future__ import annotations

import contextlib
import os
import tracemalloc

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto

from attemper import AttemperError, FileError, InputError, InputTypeError
from attemper.cli.inspect import of_model
from attemper.onnx import map_to_onnx, onnx_calibrate

import onnx_models as models
from exported import MAPS, exact

pytestmark = pytest.mark.usefixtures("in_this_process")
SCALE, MIXTURE = MAPS["scale"], MAPS["mixture"]


@pytest.fixture
def folder(tmp_path):
    """A model with its weights in a file beside it, in a folder of its own; a secret outside."""
    (tmp_path / "secret").write_bytes(bytes(10_000))
    (tmp_path / "net").mkdir()
    onnx.save_model(
        models.mlp(), tmp_path / "net" / "m.onnx", save_as_external_data=True, location="m.data", size_threshold=0
    )
    return tmp_path


def everything(folder):
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


# Tensors beside the model


@pytest.mark.parametrize(
    "m, fold", [(SCALE, True), (SCALE, False), (MIXTURE, False)], ids=["folded", "scale", "mixture"]
)
@pytest.mark.parametrize("where", ["net/out.onnx", "other/out.onnx"])
def test_external_tensors_are_kept(folder, m, fold, where):
    (folder / "other").mkdir()
    before = everything(folder)
    made = onnx_calibrate(folder / "net" / "m.onnx", m, folder / where, fold=fold)
    assert made.ran.difference < 1e-6
    written = set(everything(folder)) - set(before)
    assert written == {where, *(["other/m.data"] if "other" in where else [])}
    assert {k: v for k, v in everything(folder).items() if k in before} == before
    raw = onnx.load(folder / where, load_external_data=False)
    outside = [t.name for t in raw.graph.initializer if t.data_location == TensorProto.EXTERNAL]
    assert outside == (["w1", "b1"] if fold else ["w1", "b1", "w2", "b2"])
    net = models.mlp()
    feeds = models.feed(net)
    p = models.run(folder / where, feeds)[0]
    np.testing.assert_allclose(p, exact(m, models.logits_of(net, feeds)), atol=1e-6)


def test_external_tensors_are_not_read_where_they_are_not_needed(folder, monkeypatch):
    monkeypatch.setattr("onnx.numpy_helper.to_array", None)
    monkeypatch.setattr("onnx.external_data_helper.load_external_data_for_model", None)
    onnx_calibrate(folder / "net" / "m.onnx", MIXTURE, folder / "net" / "out.onnx", check=False)
    monkeypatch.setattr("attemper.onnx.folding.MAX_BYTES_UNASKED", 100)
    made = onnx_calibrate(folder / "net" / "m.onnx", SCALE, folder / "net" / "out.onnx", check=False)
    assert made.how == "inserted"  # folding would read them


@pytest.mark.parametrize("fold", [True, False])
def test_models_larger_than_two_gigabytes(tmp_path, fold):
    """Five gigabytes of weights, in a file with a hole: nobody reads them."""
    model = models.mlp()
    with (tmp_path / "m.data").open("wb") as stream:
        stream.truncate(5 << 30)
        stream.seek(0)
        stream.write(model.graph.initializer[2].raw_data)
    for tensor, start in zip(model.graph.initializer[:3], (1 << 20, 1 << 21, 0)):
        size = len(tensor.raw_data)
        if tensor.name == "w1":
            size = 5 * 10**9
            tensor.dims[0] = size // 32
        tensor.ClearField("raw_data")
        tensor.data_location = TensorProto.EXTERNAL
        for key, value in (("location", "m.data"), ("offset", start), ("length", size)):
            tensor.external_data.add(key=key, value=str(value))
    model.graph.input[0].type.tensor_type.shape.dim[1].dim_value = model.graph.initializer[0].dims[0]
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
    made = onnx_calibrate(tmp_path / "m.onnx", SCALE, tmp_path / "out.onnx", fold=fold)
    assert made.how == ("folded" if fold else "inserted")
    assert "its tensors have 5 GiB" in made.ran.why_not
    assert (tmp_path / "out.onnx").stat().st_size < 10_000


def test_copies_and_references(folder):
    (folder / "other").mkdir()
    with pytest.raises(InputError):
        onnx_calibrate(folder / "net" / "m.onnx", SCALE, folder / "other" / "o.onnx", external="refer")
    onnx_calibrate(folder / "net" / "m.onnx", SCALE, folder / "above.onnx", external="refer", fold=False)
    assert not (folder / "m.data").exists()
    feeds = models.feed(models.mlp())
    expected = models.run(onnx_calibrate(models.mlp(), SCALE, fold=False).model, feeds)[0]
    np.testing.assert_array_equal(models.run(folder / "above.onnx", feeds)[0], expected)
    (folder / "other" / "taken").mkdir()
    with pytest.raises(FileError):
        onnx_calibrate(folder / "net" / "m.onnx", SCALE, folder / "other" / "taken")
    assert [p.name for p in (folder / "other").iterdir()] == ["taken"]  # nothing half-done stays
    (folder / "other" / "m.data").write_bytes(b"mine")
    with pytest.raises(FileError):
        onnx_calibrate(folder / "net" / "m.onnx", SCALE, folder / "other" / "o.onnx")
    assert (folder / "other" / "m.data").read_bytes() == b"mine"
    assert not (folder / "other" / "o.onnx").exists()
    with pytest.raises(InputError):
        onnx_calibrate(onnx.load(folder / "net" / "m.onnx", load_external_data=False), SCALE)


def evil(folder, location, offset=0, length=160, dims=None):
    model = onnx.load(folder / "net" / "m.onnx", load_external_data=False)
    tensor = model.graph.initializer[2]
    del tensor.external_data[:]
    for key, value in (("location", location), ("offset", offset), ("length", length)):
        tensor.external_data.add(key=key, value=str(value))
    if dims:
        del tensor.dims[:]
        tensor.dims.extend(dims)
    (folder / "net" / "evil.onnx").write_bytes(model.SerializeToString())
    return folder / "net" / "evil.onnx"


@pytest.mark.parametrize(
    "location, why",
    [
        ("../secret", "not a valid ONNX model.*w2"),
        ("sub/../../secret", "not a valid ONNX model.*w2"),
        ("/etc/passwd", "not a valid ONNX model.*w2"),
        ("C:\\secret", "not a valid ONNX model.*w2"),
        ("..\\secret", "not a valid ONNX model.*w2"),
        ("link", "not a valid ONNX model.*w2"),
        ("linked/secret", "not a valid ONNX model.*w2"),
        ("loop", "not a valid ONNX model.*w2"),
        ("missing.data", "not a valid ONNX model.*w2"),
        (".", "not a valid ONNX model.*w2"),
        ("a\0b", "not a valid ONNX model.*w2"),
        ("", "not a valid ONNX model.*w2"),
        (".ssh/config", "hidden"),
        ("sub\\.bashrc", "hidden"),
    ],
)
@pytest.mark.parametrize("fold", [True, False])
def test_external_names_that_lead_elsewhere(folder, location, why, fold):
    (folder / "net" / "link").symlink_to(folder / "secret")
    (folder / "net" / "linked").symlink_to(folder)
    (folder / "net" / "loop").symlink_to(folder / "net" / "loop")
    path = evil(folder, location)
    before = everything(folder / "net")
    with pytest.raises(FileError):
        onnx_calibrate(path, SCALE, folder / "net" / "out.onnx", fold=fold)
    assert everything(folder / "net") == before


@pytest.mark.parametrize("location", ["linked/secret", "linked/../net/m.data", "m.data\0x", "sub/../m.data"])
def test_external_names_that_onnx_lets_through(folder, location, monkeypatch):
    (folder / "net" / "linked").symlink_to(folder)
    path = evil(folder, location)
    monkeypatch.chdir(path.parent)  # a relative path, with which onnx follows links
    (folder / "new").mkdir()
    with pytest.raises(FileError):
        onnx_calibrate(path.name, SCALE, folder / "new" / "out.onnx", external="copy", fold=False, check=False)
    assert not any((folder / "new").iterdir())


@pytest.mark.parametrize(
    "change",
    [
        {"offset": 10**9},
        {"offset": -5},
        {"length": 10**15},
        {"length": -1},
        {"dims": [10**6, 10**6]},
        {"dims": [2**62, 2**62]},
        {"dims": [2**62] * 300},
        {"dims": [-1, 5]},
        {"offset": "many"},
    ],
)
def test_external_tensors_that_are_not_there(folder, change):
    with pytest.raises(FileError):
        onnx_calibrate(evil(folder, "m.data", **change), SCALE, folder / "out.onnx", fold=True)
    assert not (folder / "out.onnx").exists()


@pytest.mark.parametrize("key", ["location", "offset"])
@pytest.mark.parametrize("last", [True, False])
def test_a_tensor_that_is_in_two_places(folder, key, last):
    path = evil(folder, "m.data")
    model = onnx.load(path, load_external_data=False)
    entries = model.graph.initializer[2].external_data
    entries.add(key=key, value="../secret" if key == "location" else "0")
    if not last:
        pairs = [(e.key, e.value) for e in entries]
        del entries[:]
        for k, v in reversed(pairs):
            entries.add(key=k, value=v)
    path.write_bytes(model.SerializeToString())
    (folder / "deep" / "er").mkdir(parents=True)
    before = everything(folder)
    with pytest.raises(FileError):
        onnx_calibrate(path, MIXTURE, folder / "deep" / "er" / "o.onnx", check=False)
    assert everything(folder) == before


def test_copies_do_not_follow_links_out_of_the_folder(folder):
    (folder / "net" / "sub").mkdir()
    (folder / "net" / "sub" / "w").write_bytes(bytes(160))
    (folder / "elsewhere").mkdir()
    (folder / "other").mkdir()
    (folder / "other" / "sub").symlink_to(folder / "elsewhere")
    with pytest.raises(FileError):
        onnx_calibrate(evil(folder, "sub/w"), MIXTURE, folder / "other" / "o.onnx", check=False)
    assert not list((folder / "elsewhere").iterdir())
    assert [p.name for p in (folder / "other").iterdir()] == ["sub"]


@pytest.mark.parametrize("output", ["net/m.data", "net/M.DATA", "other/m.data", "net/link", "other/link"])
@pytest.mark.parametrize("fold", [True, False])
def test_tensors_are_not_written_over(folder, output, fold):
    (folder / "other").mkdir()
    for name in ("net", "other"):
        (folder / name / "link").symlink_to(folder / "net" / "m.data")
    before = everything(folder)
    with pytest.raises(FileError):
        onnx_calibrate(folder / "net" / "m.onnx", SCALE, folder / output, fold=fold, check=False)
    assert everything(folder) == before


@pytest.mark.parametrize("source", ["beside", "within"])
def test_a_folder_that_is_not_there_is_not_made(folder, source):
    model = folder / "net" / "m.onnx" if source == "beside" else models.mlp()
    with pytest.raises(FileError):
        onnx_calibrate(model, SCALE, folder / "new" / "o.onnx")
    with pytest.raises(FileError):
        map_to_onnx(SCALE, folder / "new" / "o.onnx", n_classes=3)
    assert not (folder / "new").exists()


# Other damage


def damaged(change):
    model = models.mlp()
    change(model)
    return model.SerializeToString()


def huge(model):
    del model.graph.initializer[2].dims[:]
    model.graph.initializer[2].dims.extend([10**7, 10**7])


def many_dims(model):
    del model.graph.initializer[2].dims[:]
    model.graph.initializer[2].dims.extend([2**62] * 300)


def large_dims(model):
    del model.graph.initializer[2].dims[:]
    model.graph.initializer[2].dims.extend([2**62] * 64)


def cycle(model):
    model.graph.node[0].input[0] = "r"


def missing(model):
    del model.graph.initializer[2]


def unknown_type(model):
    model.graph.initializer[2].data_type = 77


def no_opset(model):
    del model.opset_import[:]


def foreign_opset(model):
    model.opset_import[0].domain = "com.example"


def negative(model):
    model.graph.initializer[2].dims[0] = -5


def type_of_input(model):
    model.graph.input[0].type.tensor_type.elem_type = 99


def no_type_of_input(model):
    model.graph.input[0].type.tensor_type.elem_type = 0


def type_of_output(model):
    model.graph.output[0].type.tensor_type.elem_type = 99


def type_of_value(model):
    model.graph.value_info.append(onnx.helper.make_tensor_value_info("logits", 1, ["batch", 5]))
    model.graph.value_info[0].type.tensor_type.elem_type = -1


def reference(index, name):
    """An attribute that takes its value from a function, outside of one."""

    def change(model):
        node = model.graph.node[index]
        kept = [a for a in node.attribute if a.name != name]
        del node.attribute[:]
        node.attribute.extend(kept)
        node.attribute.add(name=name, ref_attr_name="q", type=1 if name == "alpha" else 2)

    return change


def recursive(model):
    """A function that calls itself, and by an old name of the domain."""
    opsets = [onnx.helper.make_opsetid("", 17), onnx.helper.make_opsetid("f", 1)]
    call = onnx.helper.make_node("F", ["a"], ["b"], domain="f")
    model.functions.append(onnx.helper.make_function("f", "F", ["a"], ["b"], [call], opsets))
    model.opset_import.append(opsets[1])


WHOLE = models.mlp().SerializeToString()
FILES = {
    "text": (b"hello, I am not a model\n" * 20, "not an ONNX model"),
    "json": (b'{"attemper": "calibrator"}', "not an ONNX model"),
    "empty": (b"", "empty"),
    "truncated": (WHOLE[: len(WHOLE) // 2], "not an? "),
    "huge": (damaged(huge), "not a valid ONNX model.*w2"),
    "many dimensions": (damaged(many_dims), "not a valid ONNX model.*w2"),
    "large dimensions": (damaged(large_dims), "not a valid ONNX model.*w2"),
    "cycle": (damaged(cycle), "not a valid ONNX model"),
    "missing": (damaged(missing), "not a valid ONNX model"),
    "unknown type": (damaged(unknown_type), "unknown type 77"),
    "negative": (damaged(negative), "not a valid ONNX model.*w2"),
    "type of input": (damaged(type_of_input), "'x' has the unknown type 99"),
    "no type of input": (damaged(no_type_of_input), "'x' has the unknown type 0"),
    "type of output": (damaged(type_of_output), "'out' has the unknown type 99"),
    "type of value": (damaged(type_of_value), "'logits' has the unknown type -1"),
    "reference transB": (damaged(reference(2, "transB")), "'transB' .* in no function"),
    "reference alpha": (damaged(reference(2, "alpha")), "'alpha' .* in no function"),
    "reference axis": (damaged(reference(3, "axis")), "'axis' .* in no function"),
    "recursive function": (damaged(recursive), "not a valid ONNX model.*recursive"),
    "deep functions": (models.nested(150, calls=1).SerializeToString(), "not a valid ONNX model.*depth"),
    "nested functions": (models.nested(26).SerializeToString(), "written out the model has more than"),
    "wide functions": (models.nested(7, calls=16).SerializeToString(), "written out the model has more than"),
    "no opset": (damaged(no_opset), "no opset"),
    "foreign": (damaged(foreign_opset), "not a valid ONNX model|no opset"),
}


@pytest.mark.parametrize("kind", FILES)
@pytest.mark.parametrize("fold", [True, False])
def test_damaged_files(tmp_path, kind, fold):
    data, _why = FILES[kind]
    (tmp_path / "m.onnx").write_bytes(data)
    tracemalloc.start()
    with pytest.raises(FileError):
        onnx_calibrate(tmp_path / "m.onnx", SCALE, tmp_path / "out.onnx", fold=fold)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 20e6
    assert [p.name for p in tmp_path.iterdir()] == ["m.onnx"]


@pytest.mark.parametrize("kind", FILES)
def test_damaged_files_are_one_error_when_inspected(tmp_path, kind):
    (tmp_path / "m.onnx").write_bytes(FILES[kind][0])
    with pytest.raises(FileError):
        of_model(tmp_path / "m.onnx")


def test_functions_that_are_called_a_few_times():
    assert onnx_calibrate(models.nested(5), SCALE).ran.difference < 1e-6


@pytest.mark.parametrize("ending", ["Softmax", None])
@pytest.mark.parametrize("layer", ["gemm", "matmul"])
@pytest.mark.parametrize("m", ["scale", "matrix", "mixture"])
@pytest.mark.parametrize("check", [True, False])
def test_no_classes(tmp_path, ending, layer, m, check):
    net = models.mlp(ending, layer, n_classes=0)
    with pytest.raises(InputError):
        onnx_calibrate(net, MAPS[m], tmp_path / "out.onnx", check=check)
    assert not list(tmp_path.iterdir())


def test_no_classes_that_only_running_shows(tmp_path):
    b = models.Builder()
    b.input("x", "batch", 6)
    b.op("Slice", ["x", b.ints("begin", [0]), "end", b.ints("axes", [1])], "logits")
    b.inputs.append(onnx.helper.make_tensor_value_info("end", TensorProto.INT64, [1]))
    net = b.model(models.end(b, "logits", "Softmax", -1, ("batch", "classes")))
    feeds = {"x": np.ones((2, 6), np.float32), "end": np.array([0])}
    with pytest.raises(InputError):
        onnx_calibrate(net, SCALE, tmp_path / "out.onnx", check=feeds)


@pytest.mark.parametrize("k, why", [(4, "expected 5 classes, as the map has, got 4"), (0, "got 0")])
def test_weights_that_do_not_fit_the_map_are_not_folded(k, why):
    b = models.Builder()
    b.input("x", "batch", 6)
    b.inputs.append(onnx.helper.make_tensor_value_info("shape", TensorProto.INT64, ["rank"]))
    b.op("Reshape", ["x", "shape"], "hidden")  # so that the shape of what follows is not known
    b.op("MatMul", ["hidden", b.weight("w", 6, k)], "logits")
    net = b.model({"logits": ("batch", "classes")})
    with pytest.raises(InputError):
        onnx_calibrate(net, MAPS["matrix"], fold=True, check=False)


@settings(max_examples=150)
@given(at=st.integers(0, len(WHOLE) - 1), byte=st.integers(0, 255), cut=st.booleans())
def test_any_damage_is_one_error_or_a_model(tmp_path_factory, at, byte, cut):
    data = WHOLE[:at] if cut else WHOLE[:at] + bytes([byte]) + WHOLE[at + 1 :]
    path = tmp_path_factory.mktemp("fuzz") / "m.onnx"
    path.write_bytes(data)
    try:
        onnx_calibrate(path, SCALE, path.with_name("out.onnx"), check=False)
    except AttemperError:
        assert not path.with_name("out.onnx").exists()
    with contextlib.suppress(AttemperError):
        of_model(path)


def test_files_that_are_none(tmp_path):
    with pytest.raises(FileError):
        onnx_calibrate(tmp_path / "none.onnx", SCALE)
    with pytest.raises(FileError):
        onnx_calibrate(tmp_path, SCALE)
    with pytest.raises(FileError):
        onnx_calibrate("a\0b", SCALE)
    with pytest.raises(InputTypeError):
        onnx_calibrate(b"bytes", SCALE)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(FileError):
        onnx_calibrate(tmp_path / "pipe", SCALE)
    with (tmp_path / "large.onnx").open("wb") as stream:
        stream.truncate(3 << 30)
    with pytest.raises(FileError):
        onnx_calibrate(tmp_path / "large.onnx", SCALE)
