"""The module of Hugging Face's evaluate, loaded from its file without a network."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from attemper import metrics

PROBS, LABELS = [[0.9, 0.1], [0.2, 0.8], [0.3, 0.7], [1.0, 0.0]], [0, 1, 0, 0]

PROGRAM = """
import json, sys
import evaluate
from attemper import metrics

path = metrics.huggingface_module()
p, y = json.loads(sys.argv[1])
every, ece = evaluate.load(path), evaluate.load(path, "ece")
found = {"all": every.compute(predictions=p, references=y)}
found["top_label"] = ece.compute(predictions=p, references=y, kind="top_label", n_bins=3)
for prediction, reference in zip(p, y):
    ece.add(prediction=prediction, reference=reference)
found["one by one"] = ece.compute()
ece.add_batch(predictions=p, references=["no" if label == 0 else "a yes" for label in y])
found["names"] = ece.compute(classes=["no", "a yes"])
column = [q for _, q in p]
found["one column"] = ece.compute(predictions=column, references=y, kind="binary", sample_weight=[1, 2, 3, 4])
found["interval"] = every.compute(predictions=p * 50, references=y * 50, confidence_level=0.9, n_resamples=20)
try:
    evaluate.load(path, "ece15")
except ValueError as error:
    found["error"] = str(error)
print(json.dumps(found))
"""


def test_the_file_is_there():
    assert Path(metrics.huggingface_module()).is_file()


@pytest.mark.slow
def test_it_loads_offline_and_computes_the_metrics(tmp_path):
    offline = {"HF_HOME": str(tmp_path), "HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "HF_EVALUATE_OFFLINE": "1"}
    command = [sys.executable, "-c", PROGRAM, json.dumps([PROBS, LABELS])]
    done = subprocess.run(command, env=os.environ | offline, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["all"] == pytest.approx(metrics.evaluate(LABELS, PROBS))
    expected = metrics.ece(LABELS, PROBS, kind="top_label", n_bins=3)
    assert found["top_label"] == pytest.approx({"ece": expected})
    assert found["one by one"] == found["names"] == pytest.approx({"ece": metrics.ece(LABELS, PROBS)})
    weighted = metrics.ece(LABELS, PROBS, kind="binary", sample_weight=[1, 2, 3, 4])
    assert found["one column"] == pytest.approx({"ece": weighted})
    estimates = metrics.evaluate(LABELS * 50, PROBS * 50, confidence_level=0.9, n_resamples=20)
    assert found["interval"]["ece_low"] == pytest.approx(estimates["ece"].low)
    assert found["interval"]["ece"] == pytest.approx(estimates["ece"].value)
    assert "expected one of 'accuracy', 'nll'" in found["error"]
