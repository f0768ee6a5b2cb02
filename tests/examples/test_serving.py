"""The examples of docs/serving.md run, and say what NumPy says."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shlex
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import joblib
import numpy as np
import pytest
import torch

import attemper
from attemper import cli
from attemper.decisions import Policy
from attemper.maps import ScaleMap

from data import draw
from exported import MAPS

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
    return folder


@pytest.fixture(scope="module")
def expected(files):
    """Return inputs, and what NumPy makes of the network's logits."""
    with np.load(files / "test.npz") as data:
        return data["inputs"], attemper.load(files / "map.json").predict_proba(data["logits"].astype(float))


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


ZEROS = [0.0] * 64


@pytest.mark.parametrize(
    "body",
    [{"rows": [ZEROS, ZEROS[:5]]}, {"rows": [[*ZEROS[1:], float("nan")]]}, {"rows": [["7", *ZEROS[1:]]]}, {}, b"{rows"],
)
def test_bad_input_gets_422(service, body):
    assert service("/predict", body)[0] == 422


def test_the_service_does_not_start_with_files_that_do_not_fit(files, tmp_path):
    made = load("fastapi_service/service.py")
    with pytest.raises(RuntimeError):
        made.create_app(str(files / "network.onnx"), str(files / "policy.json"))
    Policy(0.5, "by hand", n_classes=3, n_samples=0).save(tmp_path / "policy.json")
    with pytest.raises(RuntimeError):
        made.create_app(str(files / "calibrated.onnx"), str(tmp_path / "policy.json"))


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


# scikit-learn


def test_the_pipeline_is_kept_and_read_back(tmp_path):
    found = load("sklearn_pipeline/pipeline.py").main(tmp_path / command("python examples/serving/sklearn")[-1])
    assert found["accuracy"] > 0.9
    assert 0 < found["NLL"] < 0.3
    assert abs(found["NLL"] - found["NLL in folds"]) < 0.1
    served = joblib.load(tmp_path / "digits.joblib")
    assert served["classify"].calibrator_.method == "bayes"
