"""The examples of docs/serving.md run, and say what NumPy says."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shlex
import subprocess
import sys
import types
import urllib.error
import urllib.request
from pathlib import Path

import joblib
import numpy as np
import onnx
import onnxruntime as ort
import pytest
import torch

import attemper
from attemper import cli
from attemper.decisions import Policy
from attemper.maps import ScaleMap

from data import draw
from exported import MAPS, random_logits

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
SERVING = ROOT / "examples" / "serving"
PAGE = (ROOT / "docs" / "serving.md").read_text()
COMMANDS = [line for block in re.findall(r"^```sh\n(.*?)^```", PAGE, flags=re.M | re.S) for line in block.splitlines()]


def load(path, name=None):
    """Import an example by its path, with its own folder in reach, as Python does for a script."""
    spec = importlib.util.spec_from_file_location(name or Path(path).stem, SERVING / path)
    module = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str((SERVING / path).parent))
        spec.loader.exec_module(module)
    return module


def command(start):
    (found,) = [line for line in COMMANDS if line.startswith(start)]
    return shlex.split(found)


def say(patch, start):
    """Run a command of the page that begins so."""
    patch.setattr(sys, "argv", command(start))
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 0


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Return a folder in which the first commands of the page were run."""
    folder = tmp_path_factory.mktemp("served")
    load("network.py").main(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        say(patch, "attemper refer")
        say(patch, "attemper export map.json network.onnx")
        say(patch, "attemper export map.json -o")
    return folder


@pytest.fixture(scope="module")
def expected(files):
    """Return inputs, and what NumPy makes of the network's logits."""
    with np.load(files / "test.npz") as data:
        return data["inputs"], attemper.load(files / "map.json").predict_proba(data["logits"].astype(float))


def test_the_page_tells_the_versions_that_are_tested():
    pins = dict(line.split("==") for line in (ROOT / "constraints.txt").read_text().splitlines() if "==" in line)
    told = {"FastAPI": "fastapi", "uvicorn": "uvicorn", "onnxruntime": "onnxruntime", "scikit-learn": "scikit-learn"}
    for name, package in {**told, "Lightning": "lightning", "torch": "torch"}.items():
        assert set(re.findall(rf"{name} (\d+\.\d+\.\d+)", PAGE)) == {pins[package]}


# FastAPI


@pytest.fixture(scope="module")
def service(files):
    """Start uvicorn in a process of its own, as the page says, on a port that is free; return a function that asks."""
    words = command("ATTEMPER_MODEL=")
    told = dict(word.split("=") for word in words[: words.index("uvicorn")])
    line = [sys.executable, "-m", *words[words.index("uvicorn") :], "--port", "0"]
    line[line.index("--app-dir") + 1] = str(ROOT / line[line.index("--app-dir") + 1])
    process = subprocess.Popen(line, cwd=files, env=os.environ | told, stderr=subprocess.PIPE, text=True)
    try:
        printed = []
        for row in process.stderr:
            printed.append(row)
            if found := re.search(r"running on (http://[\d.:]+)", row):
                break
        else:
            pytest.fail("".join(printed))

        def ask(path, body=None):
            body = body if isinstance(body, bytes | None) else json.dumps(body).encode()
            request = urllib.request.Request(found[1] + path, body, {"Content-Type": "application/json"})
            try:
                with urllib.request.urlopen(request, timeout=600) as answer:
                    return answer.status, json.load(answer)
            except urllib.error.HTTPError as error:
                with error:
                    return error.code, json.load(error)

        yield ask
    finally:
        process.terminate()
        process.communicate(timeout=600)


def test_the_service_answers_what_numpy_says(service, files, expected):
    inputs, probs = expected
    status, answer = service("/predict", {"rows": inputs.tolist()})
    assert status == 200
    np.testing.assert_allclose(answer["probabilities"], probs, atol=1e-6)
    policy = Policy.load(files / "policy.json")
    decisions = policy.refer_or_decide(probs)
    assert answer["prediction"] == [policy.name(k) for k in decisions.prediction]
    np.testing.assert_allclose(answer["confidence"], decisions.confidence, atol=1e-6)
    assert np.abs(decisions.confidence - policy.threshold).min() > 1e-6  # so that rounding decides nothing
    assert answer["refer"] == decisions.refer.tolist()
    assert 0 < sum(answer["refer"]) < len(inputs)


def test_health_tells_what_is_served(service, files):
    status, told = service("/health")
    cal = attemper.load(files / "map.json")
    assert (status, told["status"]) == (200, "ok")
    assert told["calibration"]["method"] == "bayes"
    assert float(told["calibration"]["temperature"]) == cal.temperature_
    assert told["calibration"]["n_samples"] == str(cal.fit_report_.n_samples)
    assert told["policy"]["rule"] == Policy.load(files / "policy.json").rule()
    assert "at most 0.05" in told["policy"]["promise"]


ZEROS = [0.0] * 64


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"rows": [ZEROS, ZEROS[:5]]}, "row 1 has 5 numbers; the network takes 64"),
        ({"rows": [[*ZEROS[1:], float("nan")]]}, "row 0, column 63 is nan"),
        ({"rows": [[1e39, *ZEROS[1:]]]}, "row 0, column 0 is 1e+39"),
        ({"rows": [["7", *ZEROS[1:]]]}, "rows.0.0: Input should be a valid number"),
        ({"rows": [[True, float("nan"), *ZEROS[2:]]]}, "rows.0.0: Input should be a valid number"),
        ({"rows": []}, "rows: List should have at least 1 item"),
        ({"rows": [[0.0]] * 1025}, "at most 1024 items"),
        ({}, "rows: Field required"),
        ({"rows": [ZEROS], "temperature": 2}, "temperature: Extra inputs are not permitted"),
        (b"{rows", "JSON decode error"),
    ],
)
def test_bad_input_gets_422_and_a_sentence(service, body, message):
    status, answer = service("/predict", body)
    assert status == 422
    assert message in answer["detail"]


def test_the_service_does_not_start_with_files_that_do_not_fit(files, tmp_path):
    made = load("fastapi_service/service.py")
    with pytest.raises(RuntimeError):
        made.create_app(str(files / "network.onnx"), str(files / "policy.json"))
    Policy(0.5, "by hand", n_classes=3, n_samples=0).save(tmp_path / "policy.json")
    with pytest.raises(RuntimeError):
        made.create_app(str(files / "calibrated.onnx"), str(tmp_path / "policy.json"))


@pytest.mark.parametrize("output_kind", ["logits", "log_probs"])
def test_the_service_reads_other_outputs_too(files, expected, tmp_path, output_kind):
    attemper.onnx.onnx_calibrate(files / "network.onnx", ScaleMap(0.5), tmp_path / "c.onnx", output_kind=output_kind)
    found = load("fastapi_service/service.py").CalibratedModel(str(tmp_path / "c.onnx")).probabilities(expected[0])
    with np.load(files / "test.npz") as data:
        np.testing.assert_allclose(found, ScaleMap(0.5).apply(data["logits"]), atol=1e-6)


# Triton


def parse(text):
    """Read the text format of protobuf, as far as the configurations go: a name gives a list of values."""
    tokens = re.findall(r'"[^"]*"|[\w.-]+|[{}\[\]:,]', text)

    def message(end):
        fields = {}
        while tokens and tokens[0] != end:
            name = tokens.pop(0)
            if tokens[0] == ":":
                tokens.pop(0)
            fields.setdefault(name, []).extend(values())
        return fields

    def values():
        if tokens[0] != "[":
            return [value()]
        tokens.pop(0)
        found = []
        while tokens[0] != "]":
            found.append(value())
            if tokens[0] == ",":
                tokens.pop(0)
        tokens.pop(0)
        return found

    def value():
        token = tokens.pop(0)
        if token == "{":
            fields = message("}")
            assert tokens.pop(0) == "}"
            return fields
        return token[1:-1] if token[0] == '"' else int(token) if re.fullmatch(r"-?\d+", token) else token

    fields = message(None)
    assert not tokens
    return fields


@pytest.fixture(scope="module")
def repository(files, tmp_path_factory):
    folder = tmp_path_factory.mktemp("triton") / "repository"
    words = command("python examples/serving/triton_ensemble")
    load("triton_ensemble/make_repository.py").main(files / words[2], files / words[3], folder)
    return folder


def test_the_committed_configurations_are_what_the_example_writes(repository):
    committed = SERVING / "triton_ensemble" / "model_repository"
    for name in ("network", "calibration", "calibrated"):
        assert (committed / name / "config.pbtxt").read_text() == (repository / name / "config.pbtxt").read_text()
        assert (repository / name / "1").is_dir()  # Triton wants a version, of an ensemble too


@pytest.mark.parametrize("name", ["network", "calibration"])
def test_configurations_agree_with_the_onnx_files(repository, name):
    config = parse((repository / name / "config.pbtxt").read_text())
    session = ort.InferenceSession(str(repository / name / "1" / "model.onnx"), providers=["CPUExecutionProvider"])
    assert (config["name"], config["platform"]) == ([name], ["onnxruntime_onnx"])
    for told, found in (("input", session.get_inputs()), ("output", session.get_outputs())):
        assert [t["name"] for t in config[told]] == [[f.name] for f in found]
        assert [t["dims"] for t in config[told]] == [f.shape[1:] for f in found]
        assert all(f.type == "tensor(float)" and isinstance(f.shape[0], str) for f in found)
        assert all(t["data_type"] == ["TYPE_FP32"] for t in config[told])


def test_the_ensemble_joins_tensors_that_exist_and_gives_what_numpy_says(repository, files, expected):
    """Do what Triton's scheduler does: hand tensors on by their names."""
    configs = {p.parent.name: parse(p.read_text()) for p in repository.glob("*/config.pbtxt")}
    ensemble = configs["calibrated"]
    tensors = {ensemble["input"][0]["name"][0]: expected[0]}
    for step in ensemble["ensemble_scheduling"][0]["step"]:
        (name,) = step["model_name"]
        feeds = {m["key"][0]: tensors[m["value"][0]] for m in step["input_map"]}
        wanted = {m["key"][0]: m["value"][0] for m in step["output_map"]}
        session = ort.InferenceSession(str(repository / name / "1" / "model.onnx"), providers=["CPUExecutionProvider"])
        tensors |= dict(zip(wanted.values(), session.run(list(wanted), feeds)))
    for told in ("input", "output"):  # of the whole are those of the first and the last step
        assert ensemble[told] == configs["network" if told == "input" else "calibration"][told]
    np.testing.assert_allclose(tensors[ensemble["output"][0]["name"][0]], expected[1], atol=1e-6)
    assert (repository / "calibration" / "1" / "model.onnx").read_bytes() == (files / "map.onnx").read_bytes()


def test_no_repository_of_models_that_do_not_fit(files, tmp_path):
    made = load("triton_ensemble/make_repository.py")
    with pytest.raises(SystemExit):
        made.main(files / "network.onnx", saved(tmp_path), tmp_path / "repository")
    with pytest.raises(SystemExit):
        made.tensor(onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [1, 3]))
    assert not (tmp_path / "repository").exists()


# Language models

TOKENS = [17, 3, 21, 9, 11]


def saved(folder):
    attemper.BayesianTemperatureScaling().fit(*draw(n_classes=5)).save(folder / "letters.json")
    return folder / "letters.json"


@pytest.mark.parametrize("name", MAPS)
def test_options_get_calibrated_probabilities_and_nothing_else_is_allowed(name):
    h = np.random.default_rng(0).normal(size=(40, 30)).astype(np.float32) * 4
    h[0, TOKENS[0]] = -np.inf  # forbidden by somebody else before
    scores = torch.from_numpy(h.copy())
    out = load("language_model/options.py").CalibratedOptions(MAPS[name], TOKENS)(None, scores)
    probs = out.double().softmax(-1).numpy()
    np.testing.assert_allclose(probs[:, TOKENS], MAPS[name].apply(h[:, TOKENS].astype(float)), atol=1e-6)
    assert (np.delete(probs, TOKENS, axis=1) == 0).all()
    assert (scores.numpy() == h).all()  # transformers may look at them again


def test_options_in_half_precision_keep_the_greedy_answer():
    h = torch.from_numpy(random_logits(500, 30)).bfloat16()
    out = load("language_model/options.py").CalibratedOptions(MAPS["scale"], TOKENS)(None, h)
    assert out.dtype == torch.bfloat16
    assert (out[:, TOKENS].amax(-1) == out.gather(1, torch.tensor(TOKENS)[h[:, TOKENS].argmax(-1, True)])[:, 0]).all()


def test_options_that_do_not_fit_are_refused(tmp_path):
    made = load("language_model/options.py").CalibratedOptions
    with pytest.raises(ValueError):
        made(ScaleMap(0.5), [1, 1])
    with pytest.raises(ValueError):
        made(saved(tmp_path), [1, 2, 3])
    with pytest.raises(ValueError):
        made(ScaleMap(0.5), [1, 30])(None, torch.zeros(2, 30))
    h, y = draw(n_classes=5)
    p = attemper.TemperatureScaling(input="probs").fit(ScaleMap(1.0).apply(h), y)
    with pytest.raises(ValueError):
        made(p, TOKENS)


@pytest.fixture
def vllm(monkeypatch, tmp_path):
    """Stand-ins for the two base classes of vLLM, which is not installed: no more than its documentation promises."""
    for name in ("vllm.v1.worker.gpu.sample.logits_processor", "vllm.v1.sample.logits_processor"):
        parts = name.split(".")
        for i in range(1, len(parts) + 1):
            monkeypatch.setitem(sys.modules, ".".join(parts[:i]), types.ModuleType(parts[i - 1]))
    base = type("LogitsProcessor", (), {})
    adapter = type("AdapterLogitsProcessor", (), {"__init__": lambda self, vllm_config, device, is_pin_memory: None})
    sys.modules["vllm.v1.worker.gpu.sample.logits_processor"].LogitsProcessor = base
    sys.modules["vllm.v1.sample.logits_processor"].AdapterLogitsProcessor = adapter
    monkeypatch.setenv("ATTEMPER_MAP", str(saved(tmp_path)))
    monkeypatch.setenv("ATTEMPER_OPTIONS", ",".join(map(str, TOKENS)))
    return attemper.load(tmp_path / "letters.json")


def asks(**extra):
    return types.SimpleNamespace(extra_args=extra or None)


def test_the_processor_for_vllm_changes_the_rows_of_those_who_ask(vllm):
    states = types.SimpleNamespace(max_num_reqs=6, device=torch.device("cpu"))
    processor = load("language_model/vllm_options.py").CalibratedOptionsProcessor(None, states)
    assert processor.add_request(4, asks(calibrated_options=1))
    assert not processor.add_request(2, asks())
    assert processor.add_request(5, asks(calibrated_options=1))
    assert not processor.add_request(5, asks(other=1))  # the slot is used again
    processor.apply_staged_writes()
    h = torch.from_numpy(random_logits(4, 30))
    context = types.SimpleNamespace(expanded_idx_mapping=torch.tensor([2, 4, 5, 4], dtype=torch.int32))
    out = processor.apply(h.clone(), context)
    assert (out[[0, 2]] == h[[0, 2]]).all()
    expected = vllm.predict_proba(h[[1, 3]][:, TOKENS].numpy())
    np.testing.assert_allclose(out[[1, 3]].softmax(-1)[:, TOKENS], expected, atol=1e-6)


def test_the_processor_for_older_vllm_is_one_function_a_request(vllm):
    made = load("language_model/vllm_v1_options.py").CalibratedOptionsProcessor(None, torch.device("cpu"), False)
    assert made.new_req_logits_processor(asks()) is None
    assert made.is_argmax_invariant() is False
    h = torch.from_numpy(random_logits(1, 30))
    out = made.new_req_logits_processor(asks(calibrated_options=1))([5, 6], h[0])
    expected = vllm.predict_proba(h[:, TOKENS].numpy())
    np.testing.assert_allclose(out[None].softmax(-1)[:, TOKENS], expected, atol=1e-6)


# scikit-learn, Lightning, MLflow


def test_the_pipeline_is_kept_and_read_back(tmp_path):
    found = load("sklearn_pipeline/pipeline.py").main(tmp_path / command("python examples/serving/sklearn")[-1])
    assert found["accuracy"] > 0.9
    assert 0 < found["NLL"] < 0.3
    assert abs(found["NLL"] - found["NLL in folds"]) < 0.1
    served = joblib.load(tmp_path / "digits.joblib")
    assert served["classify"].calibrator_.method == "bayes"


@pytest.mark.filterwarnings("ignore::Warning:lightning", "ignore:.*LeafSpec")
def test_the_callback_keeps_the_map_of_all_batches_beside_the_checkpoint(tmp_path):
    train = load("lightning_callback/train.py")
    calibration, model, checkpoint = train.main(tmp_path / command("python examples/serving/lightning")[-1])
    assert calibration.path_ == checkpoint.with_name("best.attemper.json")
    x, y = train.data()[1][:]
    model.load_state_dict(torch.load(checkpoint, weights_only=True)["state_dict"])
    with torch.no_grad():
        logits = model(x).double()
    whole = attemper.BayesianTemperatureScaling().fit(logits, y)
    kept = attemper.load(calibration.path_)
    assert kept.fit_report_.n_samples == len(y)
    assert kept.temperature_ == pytest.approx(whole.temperature_, rel=1e-4)
    np.testing.assert_allclose(kept.predict_proba(logits), whole.predict_proba(logits), atol=1e-4)


def test_the_callback_tells_what_it_needs():
    made = load("lightning_callback/calibration.py").Calibration()
    trainer = types.SimpleNamespace(world_size=1, sanity_checking=False)
    made.on_validation_epoch_start(trainer, None)
    for outputs, _got in ((torch.tensor(1.0), "Tensor"), (None, "NoneType"), ({"loss": 1}, r"\['loss'\]")):
        with pytest.raises(TypeError):
            made.on_validation_batch_end(trainer, None, outputs, None, 0)
    with pytest.raises(RuntimeError):
        made.on_validation_epoch_start(types.SimpleNamespace(world_size=2), None)


def test_the_model_for_mlflow_predicts_what_numpy_says(files, expected, monkeypatch):
    """MLflow is not installed here: a stand-in for its base class, and its context."""
    stand_in = types.ModuleType("mlflow")
    stand_in.pyfunc = types.SimpleNamespace(PythonModel=object)
    kept = []
    stand_in.models = types.SimpleNamespace(set_model=kept.append)
    monkeypatch.setitem(sys.modules, "mlflow", stand_in)
    load("mlflow_model/model.py")
    (model,) = kept
    context = types.SimpleNamespace(artifacts={"network": files / "network.onnx", "map": files / "map.json"})
    model.load_context(context)
    found = model.predict(context, expected[0])
    assert list(found.columns) == [str(k) for k in range(10)]
    np.testing.assert_allclose(found, expected[1], atol=1e-6)
