"""A map that attemper does not know, written by somebody else, goes wherever attemper's own maps go."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from attemper import FileError, InputError
from attemper._json import Fields
from attemper.maps import Map, map_from_fields
from attemper.onnx import map_to_onnx, onnx_calibrate
from attemper.torch import to_torch

import onnx_models as models
from exported import K, exact, extreme_logits, random_logits


@dataclass(frozen=True, eq=False)
class PriorMap(Map):
    """softmax(logits + shift): other frequencies of the classes."""

    type = "tests-prior"
    keeps_arg_max = False
    shift: np.ndarray

    @property
    def n_classes(self):
        return len(self.shift)

    @property
    def has_logits(self):
        return True

    def arrays(self):
        return {"shift": self.shift}

    def logits(self, h, arrays, xp):
        return h + arrays["shift"]

    def evaluate(self, h, arrays, xp, *, log):
        z = self.logits(h, arrays, xp)
        z = z - xp.max(z, axis=-1, keepdims=True)
        total = xp.sum(xp.exp(z), axis=-1, keepdims=True)
        return z - xp.log(total) if log else xp.exp(z) / total

    def to_dict(self):
        return {"type": self.type, "shift": self.shift.tolist()}

    @classmethod
    def from_fields(cls, content):
        return cls(content.array("shift", (-1,)))


MAP = PriorMap(np.linspace(-1, 1, K))
LOGITS = np.r_[random_logits(), extreme_logits()]


def test_files_hold_it():
    back = map_from_fields(Fields(MAP.to_dict(), "here"))
    assert isinstance(back, PriorMap)
    np.testing.assert_array_equal(back.shift, MAP.shift)
    with pytest.raises(FileError):
        map_from_fields(Fields({"type": "nowhere"}, "here"))


def test_annotations_are_what_files_hold():
    kinds = {"a": np.ndarray, "b": NDArray[Any], "c": NDArray[np.int64], "d": tuple[float, ...], "e": np.ndarray | None}
    made = dataclasses.make_dataclass(
        "AnyMap", kinds.items(), bases=(Map,), namespace={"type": "tests-any"}, frozen=True
    )
    content = made(np.ones((2, 2)), np.ones(2), np.arange(3), (1.0, 2.0), np.ones(1)).to_dict()
    back = map_from_fields(Fields(content, "here"))
    assert back.to_dict() == content
    assert back.c.dtype.kind == "i"
    odd = dataclasses.make_dataclass("OddMap", [("a", set)], bases=(Map,), namespace={"type": "tests-odd"}, frozen=True)
    with pytest.raises(FileError):
        odd.from_fields(Fields({"type": "tests-odd", "a": [1]}, "here"))


@pytest.mark.parametrize("log", [False, True])
def test_torch_modules_compute_it(log):
    module, expected = to_torch(MAP, log=log), exact(MAP, LOGITS, log)
    assert dict(module.named_buffers()).keys() == {"low", "shift"}
    x = torch.from_numpy(LOGITS)
    np.testing.assert_allclose(module(x), expected, atol=1e-6, rtol=1e-5)


def test_classes_on_another_axis():
    assert onnx_calibrate(models.segmentation(), MAP).ran.difference < 1e-6


@pytest.mark.parametrize("opset", [17, 18, 21])
@pytest.mark.parametrize("kind", ["probs", "log_probs", "logits"])
def test_onnx_graphs_compute_it(opset, kind):
    found = models.run(map_to_onnx(MAP, opset=opset, output_kind=kind).model, {"logits": LOGITS})[0]
    expected = LOGITS + MAP.shift if kind == "logits" else exact(MAP, LOGITS, kind == "log_probs")
    np.testing.assert_allclose(found, expected, atol=1e-6, rtol=1e-6)


@dataclass(frozen=True)
class BranchingMap(Map):
    """One that looks at values."""

    type = "tests-branching"

    def arrays(self):
        return {}

    def evaluate(self, h, arrays, xp, *, log):
        if xp.max(h, axis=-1, keepdims=True) > 0:
            return h
        return -h


def test_a_branch_on_values_cannot_be_traced():
    with pytest.raises(InputError):
        map_to_onnx(BranchingMap(), n_classes=3)


@pytest.mark.parametrize(
    "evaluate",
    [
        lambda h, xp: xp.sum(h, axis=0, keepdims=True),
        lambda h, xp: h[:, :2],
        lambda h, xp: xp.reshape(h, (2, -1)),
        lambda h, xp: h // 2,
    ],
)
def test_what_cannot_be_traced_is_an_error(monkeypatch, evaluate):
    monkeypatch.setattr(BranchingMap, "evaluate", lambda self, h, arrays, xp, log: evaluate(h, xp))
    with pytest.raises(InputError):
        map_to_onnx(BranchingMap(), n_classes=3)


@dataclass(frozen=True)
class NormMap(Map):
    """Logits over a power of their norm, bent by tanh: operations and array names that attemper's maps do not have."""

    type = "tests-norm"
    keeps_arg_max = False
    n_classes = K

    def arrays(self):
        return {"log_t": np.log(0.8), "low": np.array(0.5), "map": np.ones(K), "even": np.arange(K) % 2 == 0}

    def evaluate(self, h, arrays, xp, *, log):
        x = xp.maximum(h, xp.asarray(-50.0, dtype=h.dtype))
        x = xp.tanh((x - xp.mean(x, axis=-1, keepdims=True)) / 10) * 10 * arrays["map"]
        norm = xp.sqrt(xp.sum(x**2, axis=-1, keepdims=True)) + xp.abs(xp.min(x[..., -2:], axis=-1, keepdims=True))
        x = xp.where(arrays["even"], x, x * 0.9) / (xp.exp(arrays["log_t"]) * xp.sum(arrays["map"], axis=-1))
        x = x - xp.pow(1 + norm, arrays["low"]) * x / (1 + norm)
        x = x - xp.max(x, axis=-1, keepdims=True)
        total = xp.sum(xp.exp(x), axis=-1, keepdims=True)
        return x - xp.log(total) if log else xp.exp(x) / total


def test_maps_of_other_operations_and_array_names():
    x = random_logits().astype(np.float32)
    expected = NormMap().apply(x.astype(np.float64))
    for value in (
        NormMap().apply(torch.from_numpy(x)),
        to_torch(NormMap())(torch.from_numpy(x)),
        *models.run(map_to_onnx(NormMap()).model, {"logits": x}),
    ):
        np.testing.assert_allclose(value, expected, atol=1e-6)
    state = to_torch(NormMap()).state_dict()
    assert set(state) == {"low", "log_t", "map_low", "map_map", "even"}


def test_an_open_number_of_classes_is_not_computed_with(monkeypatch):
    monkeypatch.setattr(BranchingMap, "evaluate", lambda self, h, arrays, xp, log: 0 * h + 1 / h.shape[-1])
    with pytest.raises(InputError):
        map_to_onnx(BranchingMap())
    monkeypatch.setattr(BranchingMap, "keeps_arg_max", False)
    found = models.run(map_to_onnx(BranchingMap(), n_classes=4).model, {"logits": np.zeros((2, 4), np.float32)})[0]
    np.testing.assert_array_equal(found, 0.25)
