"""The file that a trained network leaves, in the form of those in ``data/``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import log_softmax

from attemper.errors import FileError
from attemper.metrics import accuracy, ece, nll
from experiments.files import atomic, parsing
from experiments.zoo.evaluation import held_out_outputs
from experiments.zoo.recipes import differences
from experiments.zoo.training import Run

# Finer digits would be noise that does not compress.
LOGIT_RESOLUTION = 2.0**-10
PROB_RESOLUTION = 2.0**-20


def result_path(run: Run, out: Path) -> Path:
    """Where the run's results are, once it is done."""
    return out / f"{run}.npz"


def weights_path(run: Run, out: Path) -> Path:
    """Where the run's weights are, if they are kept; `torch.load` with ``weights_only=True`` reads them."""
    return out / f"{run}.pt"


def is_finished(run: Run, out: Path, *, with_weights: bool) -> bool:
    """Whether the results of this very recipe are there; those of another one are an error."""
    path = result_path(run, out)
    if not path.exists():
        return False
    with parsing(path, "the results of a run"), np.load(path, allow_pickle=False) as stored:
        config = dict(json.loads(str(stored["config"])))
    different = differences(config, run.recipe)
    if different:
        raise FileError(
            f"{path} holds the results of another run ({different}). Give another --out to keep them, or --fresh to "
            "train again and replace them"
        )
    if with_weights and not weights_path(run, out).exists():
        raise FileError(f"{path}: the run is finished, but its weights were not kept; --fresh trains it again")
    return True


def save_results(run: Run, out: Path, *, with_weights: bool) -> str:
    """Write what the network says about held-out images; returns the measured figures as a line.

    The results come last, for they tell that the run is finished.
    """
    outputs = held_out_outputs(run)
    labels = run.data.test.labels
    config = {
        **run.recipe,
        "precision": run.precision,
        "train_seconds": round(run.seconds, 1),
        "torch": torch.__version__,
        "gpu": torch.cuda.get_device_name(run.device) if run.on_gpu else "none",
        "test": _measured(log_softmax(outputs["logits"].astype(np.float64), axis=1), labels),
    }
    line = "test " + _line(config["test"])
    if "mc_mean_probs" in outputs:
        # Before they are rounded: a probability that is rounded to zero would make the NLL infinite.
        with np.errstate(divide="ignore"):
            config["test_mc"] = _measured(np.log(outputs["mc_mean_probs"].astype(np.float64)), labels)
        line += " | MC dropout " + _line(config["test_mc"])
    if with_weights:
        with atomic(weights_path(run, out)) as stream:
            torch.save(run.weights(), stream)
    with atomic(result_path(run, out)) as stream:
        np.savez_compressed(stream, **_columns(run, outputs), config=np.array(json.dumps(config)))
    return line


def _columns(run: Run, outputs: dict[str, NDArray[np.float32]]) -> dict[str, NDArray[Any]]:
    columns: dict[str, NDArray[Any]] = {
        name: _rounded(values, LOGIT_RESOLUTION if name.endswith("logits") else PROB_RESOLUTION)
        for name, values in outputs.items()
    }
    columns |= {"labels": run.data.test.labels.astype(np.int16), **run.data.test.extra}
    if run.data.validation is not None:
        columns["val_labels"] = run.data.validation.labels.astype(np.int16)
    return {**columns, "class_names": np.array(run.data.class_names)}


def _rounded(values: NDArray[np.float32], resolution: float) -> NDArray[np.float32]:
    return (np.rint(values.astype(np.float64) / resolution) * resolution).astype(np.float32)


def _measured(log_probs: NDArray[np.float64], labels: NDArray[np.int64]) -> dict[str, float]:
    probs = np.exp(log_probs)
    return {
        "accuracy": float(accuracy(labels, probs)),
        "nll": float(nll(labels, log_probs, input="logits")),
        "ece15": float(ece(labels, probs, n_bins=15)),
    }


def _line(measured: dict[str, float]) -> str:
    return "accuracy {accuracy:.4f} NLL {nll:.4f} ECE15 {ece15:.4f}".format(**measured)
