"""The check runs a model that may be endless, greedy or made for other input, in a process with limits."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import attemper.onnx.calibrate as calibrate
import attemper.onnx.verify as running
from attemper import InputError, ScaleMap
from attemper.calibrators.exportable import Source
from attemper.onnx import onnx_calibrate

import onnx_models as models
from exported import MAPS

pytestmark = pytest.mark.slow

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


def refused(folder, net, why, m=SCALE, **settings):
    """Export a model that fails when it is run: an error, nothing is written; check=False writes it."""
    with pytest.raises(InputError) as caught:
        onnx_calibrate(net, m, folder / "out.onnx", **settings)
    assert "check=False" in str(caught.value)
    assert not list(folder.iterdir())
    made = onnx_calibrate(net, m, folder / "out.onnx", check=False)
    assert made.output.is_file()
    assert "check=False" in made.ran.why_not


def test_a_model_that_never_ends_is_stopped(tmp_path):
    refused(tmp_path, endless(), r"more than 3 s.*check_timeout", check_timeout=3)


@pytest.mark.parametrize("rank", [1, 3])
@pytest.mark.parametrize("name", ["scale", "mixture", "matrix"])
def test_a_model_that_lies_about_a_rank_is_not_written(tmp_path, once_in_this_process, rank, name):
    net = models.mlp()
    shape = ["batch", 6, 6][:rank]
    net.graph.input[0].CopyFrom(helper.make_tensor_value_info("x", TensorProto.FLOAT, shape))
    refused(tmp_path, net, "does not run on made-up input: .* rank 2 but has rank", MAPS[name])


def test_a_model_is_loaded_also_if_no_input_can_be_made_up(tmp_path, once_in_this_process):
    net = models.mlp(None)
    net.graph.input[0].type.tensor_type.elem_type = TensorProto.STRING
    refused(tmp_path, net, "does not run on made-up input")


def test_what_could_not_be_run_is_said(tmp_path, monkeypatch, once_in_this_process):
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
    with pytest.raises(running._NotRunError):
        running.feeds_for(deep)
    wide = models.cnn()
    wide.graph.input[0].type.tensor_type.shape.dim[1].Clear()  # three channels, but it does not say so
    refused(tmp_path, wide, r"does not run on made-up input: .* check=\{…\}")
    feeds = {"x": np.ones((1, 3, 4, 4), np.float32)}
    assert onnx_calibrate(wide, SCALE, check=feeds).ran.difference < 1e-6
    with pytest.raises(InputError):
        onnx_calibrate(wide, SCALE, check={"x": np.ones((1, 4, 4, 4), np.float32)})
    with pytest.raises(InputError):
        onnx_calibrate(wide, SCALE, check={"x": np.array([None])})
    monkeypatch.setattr(running, "MAX_OUTPUT", 9)
    assert "'logits' has 10 elements" in onnx_calibrate(models.mlp(), SCALE).ran.why_not
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert onnx_calibrate(models.mlp(), SCALE).ran.why_not.startswith("onnxruntime is not installed")


def traced_as(monkeypatch, other):
    """Let the nodes be those of another map."""
    trace = calibrate.trace_map
    monkeypatch.setattr(calibrate, "trace_map", lambda t, source, *a, **k: trace(t, Source(other), *a, **k))


def test_a_result_that_disagrees_is_not_written(tmp_path, monkeypatch, once_in_this_process):
    traced_as(monkeypatch, ScaleMap(1.0))
    with pytest.raises(InputError):
        onnx_calibrate(models.mlp(), SCALE, tmp_path / "out.onnx", fold=False)
    assert not list(tmp_path.iterdir())


def test_made_up_input_that_does_not_fit(once_in_this_process):
    b = models.Builder()
    b.input("x", "batch", 6)
    b.op("Log", ["x"], "l")  # of what is negative
    b.op("Gemm", ["l", b.weight("w", 6, 5)], "logits")
    net = b.model(models.end(b, "logits", "Softmax", 1))
    for fold in (True, False):
        made = onnx_calibrate(net, SCALE, fold=fold)
        assert made.ran.difference is None
        assert "made-up input gives 'logits' that are not finite; pass check={…}" in made.ran.why_not
        assert onnx_calibrate(net, SCALE, fold=fold, check={"x": np.ones((2, 6), np.float32)}).ran.difference < 1e-6
        made = onnx_calibrate(net, SCALE, fold=fold, check={"x": np.zeros((2, 6), np.float32)})
        assert "the input in check gives" in made.ran.why_not


def test_large_logits_do_not_excuse_any_difference(monkeypatch, once_in_this_process):
    b = models.Builder()
    b.input("x", "batch", 6)
    b.op("Gemm", ["x", b.weight("w", 6, 5)], "z")
    b.op("Add", ["z", b.weight("far", 1, scale=1e6)], "logits")
    net = b.model({"logits": ("batch", 5)})
    traced_as(monkeypatch, ScaleMap(1e-30))
    with pytest.raises(InputError):
        onnx_calibrate(net, SCALE)


def greedy(kind):
    """A model of a kilobyte that takes more memory than there is."""
    b = models.Builder()
    b.input("x", "batch", 6)
    if kind == "constant":
        b.op("ConstantOfShape", [b.ints("shape", [10**6, 10**6])], "large")
    elif kind == "from data":
        b.op("Shape", ["x"], "of_x")
        b.op("Mul", ["of_x", b.ints("times", [10**6])], "shape")
        b.op("ConstantOfShape", ["shape"], "large")
    else:  # by the rules of broadcasting alone
        b.op("Constant", [], "wide", value=onnx.numpy_helper.from_array(np.zeros((40_000, 1, 1), np.float32)))
        b.op("Constant", [], "high", value=onnx.numpy_helper.from_array(np.zeros((40_000, 1), np.float32)))
        b.op("Add", ["wide", "high"], "large")
    b.op("ReduceSum", ["large"], "sum", keepdims=0)
    b.op("Add", ["x", "sum"], "y")
    b.op("Gemm", ["y", b.weight("w", 6, 5)], "logits")
    return b.model(models.end(b, "logits", "Softmax", 1))


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux limits the memory of a process")
@pytest.mark.parametrize("kind", ["constant", "from data", "broadcast"])
def test_a_model_that_would_take_all_memory_is_stopped(tmp_path, kind):
    refused(tmp_path, greedy(kind), r"more than 1\.0 GiB of memory.*check_memory", check_memory=1, check_timeout=600)


@pytest.mark.parametrize("value", [0, -1, np.nan, np.inf])
@pytest.mark.parametrize("name", ["check_timeout", "check_memory"])
def test_limits_are_numbers(name, value):
    with pytest.raises(InputError):
        onnx_calibrate(models.mlp(), SCALE, **{name: value})


def test_a_process_of_its_own_runs_the_model(tmp_path, monkeypatch):
    """With the limits of the process that exports, if those are lower, and with all that can be imported there."""
    onnx.save_model(models.mlp(), tmp_path / "m.onnx", save_as_external_data=True, location="m.data", size_threshold=0)
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    seen = []

    def started(command, **settings):
        seen.append((command, settings["env"]["PYTHONPATH"]))
        return run(command, **settings)

    run = subprocess.run
    monkeypatch.setattr(subprocess, "run", started)
    made = onnx_calibrate(tmp_path / "m.onnx", MAPS["mixture"], tmp_path / "out.onnx", check_timeout=600)
    assert made.ran.difference < 1e-6
    ((command, path),) = seen
    assert command[0] == sys.executable
    assert str(tmp_path) in path.split(os.pathsep)
    assert not Path(command[-1]).exists()  # the folder is gone


def test_a_crash_is_an_error(tmp_path, monkeypatch):
    script = tmp_path / "crash.py"
    script.write_text("import os\nos.abort()\n")
    monkeypatch.setattr(running.child, "__file__", str(script))
    with pytest.raises(InputError):
        onnx_calibrate(models.mlp(), SCALE)


def test_the_limits_of_the_child():
    program = (
        "import resource; from pathlib import Path; import sys; sys.path.insert(0, sys.argv[1]);"
        "import child; resource.setrlimit(resource.RLIMIT_AS, (1 << 32, 1 << 32)); child.limit(2**31, 5.5);"
        "print(*(resource.getrlimit(getattr(resource, f'RLIMIT_{k}'))[0] for k in ('AS', 'CPU', 'CORE')));"
        "child.limit(2**40, 1e6); print(resource.getrlimit(resource.RLIMIT_AS)[0])"
    )
    folder = Path(running.child.__file__).parent
    done = subprocess.run([sys.executable, "-P", "-c", program, folder], capture_output=True, text=True, check=True)
    assert done.stdout.split() == [str(2**31), "6", "0", str(2**31)]
