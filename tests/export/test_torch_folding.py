"""Folding changes the weights of a layer and nothing else, and can be undone."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from torch import nn

from attemper import AttemperWarning, InputError, InputTypeError, TemperatureScaling
from attemper.maps import AffineMap, Linear, MixtureMap, ScaleMap
from attemper.torch import fold_into_linear, to_torch, unfold

from exported import FOLDABLE, MAPS, K, exact

LAYERS = {
    "linear": (lambda bias: nn.Linear(6, K, bias=bias), (9, 6)),
    "tokens": (lambda bias: nn.Linear(6, K, bias=bias), (2, 4, 6)),
    "conv1d": (lambda bias: nn.Conv1d(6, K, 1, bias=bias), (2, 6, 4)),
    "conv2d": (lambda bias: nn.Conv2d(6, K, 1, bias=bias), (2, 6, 4, 3)),
    "one image": (lambda bias: nn.Conv2d(6, K, 1, bias=bias), (6, 4, 3)),
    "conv3d": (lambda bias: nn.Conv3d(6, K, 1, bias=bias), (2, 6, 2, 2, 2)),
    "3×3, padded": (lambda bias: nn.Conv2d(6, K, 3, padding=1, bias=bias), (2, 6, 4, 3)),
}


def channels_last(h, kind):
    axis = -1 if kind in ("linear", "tokens") else 0 if kind == "one image" else 1
    return h.movedim(axis, -1).detach().numpy()


def made(kind, bias=True):
    torch.manual_seed(0)
    make, shape = LAYERS[kind]
    return make(bias), torch.randn(shape)


def softmax(z):
    e = np.exp(z - z.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


@pytest.mark.parametrize("name", FOLDABLE)
@pytest.mark.parametrize("kind", LAYERS)
@pytest.mark.parametrize("bias", [True, False])
def test_the_folded_layer_is_calibrated_and_comes_back(name, kind, bias):
    layer, x = made(kind, bias)
    h = channels_last(layer(x), kind)
    before = dict(layer.named_parameters())
    state = copy.deepcopy(layer.state_dict())
    found = fold_into_linear(layer, MAPS[name], check=x)
    assert found.difference < 1e-6
    p = softmax(channels_last(layer(x), kind).astype(np.float64))
    np.testing.assert_allclose(p, exact(MAPS[name], h), atol=1e-6, rtol=0)
    np.testing.assert_array_equal(p.argmax(-1), exact(MAPS[name], h).argmax(-1))
    needs_bias = name in ("vector", "matrix", "scaled matrix")
    assert (layer.bias is not None) == (bias or needs_bias)
    other = LAYERS[kind][0](layer.bias is not None)
    other.load_state_dict(layer.state_dict())
    assert torch.equal(other(x), layer(x))
    with pytest.raises(InputError):
        unfold(other)
    unfold(layer)
    after = dict(layer.named_parameters())
    assert list(after) == list(before)
    for key, parameter in after.items():
        assert parameter is before[key]
        assert torch.equal(parameter, state[key])


@pytest.mark.parametrize(
    "name, why",
    [
        ("mixture", "MixtureMap is not linear.*; use nn.Sequential"),
        ("structured", "MixtureMap is not linear"),
        ("dirichlet", "takes log-probabilities"),
        ("odds", "OddsMap is not linear"),
        ("steps", "BinMap is not linear"),
    ],
)
def test_maps_that_cannot_be_folded_say_what_to_use(name, why):
    layer, x = made("linear")
    before = layer(x)
    with pytest.raises(InputError):
        fold_into_linear(layer, MAPS[name])
    assert torch.equal(layer(x), before)
    with pytest.raises(InputError):
        unfold(layer)


class Block(nn.Module):
    """Attention, residuals, norms and an MLP, with a head for each token."""

    def __init__(self):
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
        self.head = nn.Linear(8, K)

    def forward(self, x):
        return self.head(self.layer(x))


def networks():
    torch.manual_seed(0)
    mlp = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, K))
    cnn = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, K))
    block = Block()
    return [
        (mlp, mlp[-1], torch.randn(9, 6)),
        (cnn, cnn[-1], torch.randn(3, 3, 8, 8)),
        (block, block.head, torch.randn(2, 4, 8)),
    ]


@pytest.mark.parametrize("name", MAPS)
def test_networks_with_a_module_and_folded(name):
    for net, last, x in networks():
        net.eval()
        with torch.no_grad():
            h = net(x).numpy()
            expected = exact(MAPS[name], h)
            p = nn.Sequential(net, to_torch(MAPS[name]))(x).numpy()
            np.testing.assert_allclose(p, expected, atol=1e-6, rtol=0)
            np.testing.assert_array_equal(p.argmax(-1), expected.argmax(-1))
            if name in FOLDABLE:
                fold_into_linear(last, MAPS[name])
                folded = softmax(net(x).numpy().astype(np.float64))
                np.testing.assert_allclose(folded, expected, atol=1e-6, rtol=0)
                np.testing.assert_array_equal(folded.argmax(-1), expected.argmax(-1))
                unfold(last)
                np.testing.assert_array_equal(net(x).numpy(), h)


def test_a_mixture_of_one_temperature_folds():
    layer, x = made("linear")
    h = layer(x).detach().numpy()
    m = MixtureMap((0.0, 1.0), (1.0, 0.4), 0.0)
    fold_into_linear(layer, m, check=x)
    np.testing.assert_allclose(softmax(layer(x).detach().numpy()), exact(m, h), atol=1e-6)


def test_log_probabilities_fold_where_the_matrix_does_not_see_the_difference():
    layer, x = made("linear")
    m = AffineMap(np.full(K, 0.5), np.linspace(0, 1, K), "log_probs")
    h = layer(x).detach().numpy()
    fold_into_linear(layer, m)
    np.testing.assert_allclose(softmax(layer(x).detach().numpy()), exact(m, h), atol=1e-6)


def test_twice_is_refused_and_training_is_not_thrown_away():
    layer, _ = made("linear")
    fold_into_linear(layer, MAPS["scale"])
    folded = layer.weight.clone()
    with pytest.raises(InputError):
        fold_into_linear(layer, MAPS["scale"])
    assert torch.equal(layer.weight, folded)
    with torch.no_grad():
        layer.weight[0, 0] += 1
    with pytest.raises(InputError):
        unfold(layer)
    assert layer.weight[0, 0] == folded[0, 0] + 1


def test_tied_weights_stay_with_the_others():
    embedding, head = nn.Embedding(K, 6), nn.Linear(6, K, bias=False)
    head.weight = embedding.weight
    before = embedding.weight.clone()
    fold_into_linear(head, MAPS["scale"])
    assert torch.equal(embedding.weight, before)
    assert not torch.equal(head.weight, before)
    unfold(head)
    assert head.weight is embedding.weight


def test_folded_layers_are_copied_and_cast():
    layer, x = made("linear")
    expected = copy.deepcopy(layer).double()
    fold_into_linear(layer, MAPS["vector"])
    twin = copy.deepcopy(layer).double()
    unfold(twin)
    assert torch.equal(twin(x.double()), expected(x.double()))
    assert twin.weight.dtype == torch.float64
    unfold(layer)
    assert layer.weight.dtype == torch.float32


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_weights_are_rounded_once_and_told(dtype):
    layer, x = made("linear")
    layer, x = layer.to(dtype), x.to(dtype)
    w = layer.weight.detach().double()
    with pytest.warns(AttemperWarning):
        found = fold_into_linear(layer, ScaleMap(0.37), check=x)
    assert 0 < found.rounding <= torch.finfo(dtype).eps
    assert torch.equal(layer.weight, (0.37 * w).to(dtype))


def test_a_check_that_fails_leaves_the_layer_as_it_was(monkeypatch):
    layer, x = made("linear", bias=False)
    before = layer.weight
    monkeypatch.setattr(ScaleMap, "as_linear", lambda *_, **__: Linear(np.array([2.0])))
    with pytest.raises(InputError):
        fold_into_linear(layer, MAPS["scale"], check=x)
    with pytest.raises(RuntimeError):
        fold_into_linear(layer, MAPS["scale"], check=x[:, :3])
    assert layer.weight is before
    assert layer.bias is None
    with pytest.raises(InputError):
        unfold(layer)


def test_layers_that_do_not_fit():
    with pytest.raises(InputTypeError):
        fold_into_linear(nn.ReLU(), MAPS["scale"])
    with pytest.raises(InputTypeError):
        fold_into_linear(nn.LazyLinear(K), MAPS["scale"])
    with pytest.raises(InputError):
        fold_into_linear(nn.Linear(3, 7), MAPS["matrix"])
    with pytest.raises(InputError):
        fold_into_linear(nn.utils.parametrizations.weight_norm(nn.Linear(3, K)), MAPS["scale"])
    grouped = nn.Conv2d(K, K, 1, groups=K)
    with pytest.raises(InputError):
        fold_into_linear(grouped, MAPS["matrix"])
    fold_into_linear(grouped, MAPS["scale"])
    masked = nn.Linear(3, K)
    with torch.no_grad():
        masked.bias[1] = -torch.inf
    with pytest.raises(InputError):
        fold_into_linear(masked, MAPS["matrix"])
    with pytest.raises(InputError):
        fold_into_linear(nn.Linear(3, K).half(), ScaleMap(1e7))


def test_a_calibrator_of_probabilities_folds_into_logits():
    layer, x = made("linear")
    h = layer(x).detach().numpy().astype(np.float64)
    p = softmax(h)
    cal = TemperatureScaling(input="probs").fit(p, np.r_[p[:7].argmax(1), 0, 1])
    fold_into_linear(layer, cal)
    np.testing.assert_allclose(softmax(layer(x).detach().numpy()), cal.predict_proba(p), atol=1e-6)


def test_a_little_training_is_not_thrown_away():
    layer = nn.Linear(6, K)
    fold_into_linear(layer, MAPS["scale"])
    with torch.no_grad():
        layer.weight += 1e-6 * layer.weight.abs().max()
    with pytest.raises(InputError):
        unfold(layer)


def test_a_tied_weight_keeps_its_type_when_the_layer_changed_its_own():
    embedding, head = nn.Embedding(K, 6), nn.Linear(6, K, bias=False)
    head.weight = embedding.weight
    fold_into_linear(head, MAPS["scale"])
    head.half()
    unfold(head)
    assert embedding.weight.dtype == torch.float32
    assert head.weight.dtype == torch.float16


def test_a_frozen_bias_stays_frozen():
    layer = nn.Linear(6, K)
    layer.bias.requires_grad_(False)
    fold_into_linear(layer, MAPS["matrix"])
    assert layer.weight.requires_grad
    assert not layer.bias.requires_grad


def test_a_bias_that_becomes_too_large_is_refused():
    layer = nn.Linear(6, K).half()
    with torch.no_grad():
        layer.bias.fill_(6e4)
    before = layer.bias.clone()
    with pytest.raises(InputError):
        fold_into_linear(layer, ScaleMap(3.0))
    assert torch.equal(layer.bias, before)


def test_a_wrong_fold_is_noticed_also_where_logits_are_large(monkeypatch):
    layer, x = nn.Linear(6, K), 1e5 * torch.randn(20, 6)
    monkeypatch.setattr(ScaleMap, "as_linear", lambda *_, **__: Linear(np.array([-7.0])))
    with pytest.raises(InputError):
        fold_into_linear(layer, ScaleMap(7.0), check=x)


def test_large_logits_are_off_by_rounding_alone():
    torch.manual_seed(0)
    layer, x = nn.Linear(20, K), 1e3 * torch.randn(200, 20)
    h = layer(x).detach().double().numpy()
    expected = ScaleMap(0.7).apply(h)
    fold_into_linear(layer, ScaleMap(0.7))
    off = np.abs(layer(x).detach().double().softmax(-1).numpy() - expected).max()
    assert off < 1e-7 * np.abs(h).max()
