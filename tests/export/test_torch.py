"""Every map as a torch module says what NumPy says."""

from __future__ import annotations

import copy
import io
import warnings

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from torch import nn

import attemper
from attemper import InputTypeError, NotFittedError, TemperatureScaling
from attemper.torch import to_torch

import onnx_models as models
from data import draw
from exported import CURVES, MAPS, K, exact, extreme_logits, extreme_pairs, random_logits

each_map = pytest.mark.parametrize("name", MAPS)
ALL = np.r_[random_logits(), extreme_logits()]


@each_map
def test_modules_give_the_numbers_of_numpy(name):
    m = MAPS[name]
    for h in (random_logits(), extreme_logits()):
        np.testing.assert_allclose(to_torch(m)(torch.from_numpy(h)), exact(m, h), atol=1e-6, rtol=0)
        d = torch.from_numpy(h.astype(np.float64))
        np.testing.assert_allclose(to_torch(m)(d), m.apply(d.numpy()), atol=1e-14, rtol=1e-11)
        with np.errstate(divide="ignore"):
            expected = exact(m, h, log=True)
        np.testing.assert_allclose(to_torch(m, log=True)(torch.from_numpy(h)), expected, atol=2e-6, rtol=2e-5)


@pytest.mark.parametrize("name", CURVES)
def test_curves_give_the_numbers_of_numpy(name):
    m, h = CURVES[name], np.r_[random_logits(k=2), extreme_pairs()]
    x = torch.from_numpy(h)
    module = to_torch(m)
    np.testing.assert_allclose(module(x), exact(m, h), atol=1e-6, rtol=0)
    np.testing.assert_allclose(to_torch(m, log=True)(x), exact(m, h, log=True), atol=2e-6, rtol=2e-5)
    np.testing.assert_allclose(module(x.double()), exact(m, h), atol=1e-14, rtol=1e-11)
    half = torch.from_numpy(random_logits(k=2)).half()
    np.testing.assert_allclose(module(half).double(), exact(m, half.double()), rtol=2**-9, atol=1e-7)
    other = to_torch(m)
    for buffer in other.buffers():
        buffer.zero_()
    other.load_state_dict(module.state_dict())
    assert torch.equal(other(x), module(x))
    d = torch.from_numpy(random_logits(3, k=2)).double().requires_grad_()
    assert torch.autograd.gradcheck(module, (d,))


@each_map
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_comes_back_and_is_computed_in_single(name, dtype):
    m = MAPS[name]
    h = torch.from_numpy(random_logits(200)).to(dtype)
    p = to_torch(m)(h)
    assert p.dtype == dtype
    np.testing.assert_allclose(p.double(), exact(m, h.double()), rtol=2 * torch.finfo(dtype).eps, atol=1e-7)
    np.testing.assert_array_equal(to_torch(m).half().bfloat16()(h).float(), p.float())


@pytest.mark.parametrize("name", ["scale", "sharp", "mixture", "floor"])
@given(
    h=hnp.arrays(np.float16, (4, K), elements=st.floats(-200, 200, width=16)),
    dtype=st.sampled_from([torch.float16, torch.bfloat16, torch.float32, torch.float64]),
    log=st.booleans(),
)
def test_the_arg_max_stays(name, h, dtype, log):
    x = torch.from_numpy(h).to(dtype)
    np.testing.assert_array_equal(to_torch(MAPS[name], log=log)(x).argmax(-1), x.argmax(-1))


@each_map
def test_state_dicts_go_round(name):
    module = to_torch(MAPS[name])
    assert not list(module.parameters())
    other = to_torch(MAPS[name])
    for buffer in other.buffers():
        buffer.zero_()
    stream = io.BytesIO()
    torch.save(module.state_dict(), stream)
    stream.seek(0)
    other.load_state_dict(torch.load(stream, weights_only=True))
    x = torch.from_numpy(ALL)
    assert torch.equal(other(x), module(x))
    assert torch.equal(copy.deepcopy(module)(x), module(x))


@each_map
def test_modules_move_between_devices_and_stay_double(name):
    module = to_torch(MAPS[name])
    names = dict(module.named_buffers())
    away = module.to("meta", dtype=torch.float16)
    assert all(b.device.type == "meta" for b in away.buffers())
    assert {n: b.dtype for n, b in away.named_buffers()} == {n: b.dtype for n, b in names.items()}
    back = away.to_empty(device="cpu")
    back.load_state_dict(names)
    assert torch.equal(back(torch.from_numpy(ALL)), to_torch(MAPS[name])(torch.from_numpy(ALL)))


@pytest.mark.slow
@each_map
def test_modules_are_exported(name):
    module, x = to_torch(MAPS[name]), torch.from_numpy(ALL)
    batch = torch.export.Dim("batch", min=2)
    exported = torch.export.export(module, (x[:7],), dynamic_shapes=({0: batch},))
    assert torch.equal(exported.module()(x), module(x))


@each_map
@pytest.mark.filterwarnings("ignore")  # of the exporter
def test_torch_writes_modules_as_onnx(name, tmp_path):
    torch.onnx.export(
        to_torch(MAPS[name]), (torch.from_numpy(ALL),), tmp_path / "m.onnx", dynamo=False, input_names=["x"]
    )
    p = models.run(tmp_path / "m.onnx", {"x": ALL})[0]
    np.testing.assert_allclose(p, exact(MAPS[name], ALL), atol=1e-6, rtol=0)


@pytest.mark.slow
def test_modules_are_compiled():
    x = torch.from_numpy(ALL)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the compiler's own
        compiled = torch.compile(nn.Sequential(*[to_torch(MAPS["mixture"])]), fullgraph=True)
        np.testing.assert_allclose(compiled(x), exact(MAPS["mixture"], ALL), atol=1e-6, rtol=0)


def test_autocast_leaves_a_matrix_alone():
    x = torch.from_numpy(random_logits())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        np.testing.assert_allclose(to_torch(MAPS["matrix"])(x), exact(MAPS["matrix"], x), atol=1e-6, rtol=0)


def test_gradients_go_through():
    x = torch.from_numpy(random_logits()).double().requires_grad_()
    for name in ("scale", "structured", "odds"):
        assert torch.autograd.gradcheck(to_torch(MAPS[name]), (x[:2],))


@each_map
def test_classes_may_be_channels_of_an_image(name):
    h = random_logits(12).reshape(2, 3, 2, K)
    image = torch.from_numpy(np.moveaxis(h, -1, 1).copy())
    expected = np.moveaxis(exact(MAPS[name], h), -1, 1)
    np.testing.assert_allclose(to_torch(MAPS[name], dim=1)(image), expected, atol=1e-6, rtol=0)


def test_calibrators_paths_and_probabilities(tmp_path):
    h, y = draw(200, 4)
    p = np.exp(h) / np.exp(h).sum(1, keepdims=True)
    p[0] = [0, 0, 1, 0]
    on_probs = TemperatureScaling(input="probs", zeros_as=1e-6).fit(p, y)
    on_probs.save(tmp_path / "m.json")
    for given_ in (on_probs, tmp_path / "m.json", str(tmp_path / "m.json")):
        module = to_torch(given_)
        np.testing.assert_allclose(module(torch.from_numpy(p)), on_probs.predict_proba(p), atol=1e-14)
    with pytest.raises(ValueError):
        module(torch.ones(2, 3))
    with pytest.raises(NotFittedError):
        to_torch(TemperatureScaling())
    with pytest.raises(InputTypeError):
        to_torch(0.5)
    wrapped = attemper.CalibratedClassifier(None)
    with pytest.raises(InputTypeError):
        to_torch(wrapped)
