"""Calibrators as torch modules return what NumPy returns; ensembles and losses are their formulas."""

from __future__ import annotations

import copy
import io
import math
from functools import cache

import numpy as np
import pytest
import scipy.special
import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812
from torch.utils.data import DataLoader, TensorDataset

import attemper
from attemper import METHODS, GroupedCalibrator, InputError, NotFittedError, TemperatureScaling
from attemper.data.reading import ReadOptions
from attemper.maps import Map
from attemper.metrics import mmce
from attemper.torch import DeepEnsemble, MCDropout, MMCELoss, average, mmce_loss
from attemper.torch.module import to_torch, wrap
from conftest import draw

pytestmark = pytest.mark.usefixtures("one_torch_thread")

# Rows that are huge, masked, tied, equal or next to each other; of the first two columns likewise.
EXTREME = np.array([
    [1e4, -8e3, 0, 9999],
    [-8e3, -8e3, -8e3, -8e3 + 1],
    [-np.inf, 1, 2, 0],
    [3, -np.inf, -np.inf, -np.inf],
    [2, 2, 2, 2],
    [-1e9, 1, 0, 3],  # finite masks
    [1, 2, -65504, -1e9],
    [3, 3, -1, 3],
    [1, np.nextafter(np.float32(1), np.float32(2)), 1, 1],
    [-80, 40, 39.99, -1000],
])  # fmt: skip


OURS = [name for name, kind in METHODS.items() if kind.__module__.startswith("attemper.")]


@cache
def fitted(method, k, input="logits"):
    data = draw(300, k, seed=1)
    return METHODS[method](input=input).fit(data.h if input == "logits" else data.p, data.y)


def of_images(cal):
    """As if it had been fitted on images, (N, K, H, W)."""
    made = copy.copy(cal)
    made.read_ = ReadOptions(axis=1)
    return made


@pytest.mark.parametrize("method", OURS)
@pytest.mark.parametrize("k", [2, 4])
def test_every_method_agrees_with_numpy(method, k):
    h = np.concatenate([draw(50, k).h, EXTREME[:, :k]])
    for input in ("logits", "probs"):
        cal = fitted(method, k, input)
        module, x = to_torch(cal), h if input == "logits" else scipy.special.softmax(h, axis=1)
        d = torch.from_numpy(x)
        np.testing.assert_allclose(module(d), cal.predict_proba(x), atol=1e-12, rtol=0)
        assert module(torch.where(d == d[1, 1], torch.nan, d)).isnan().any(dim=1).nonzero().tolist() == [[1]]
        exact = cal.predict_proba(d.float().double().numpy())
        np.testing.assert_allclose(module(d.float()), exact, atol=1e-6, rtol=0)
        images = d.reshape(2, -1, 1, k).movedim(-1, 1)
        assert torch.equal(to_torch(of_images(cal))(images).movedim(1, -1).reshape(-1, k), module(d))


def test_low_logits_that_were_no_masks_in_the_fit_are_none_in_a_module():
    h, y = draw(300, 4)
    cal = TemperatureScaling().fit(1e4 * h, y)
    p = cal.predict_proba(1e4 * h)
    assert (p > 0).all()
    np.testing.assert_allclose(to_torch(cal)(torch.from_numpy(1e4 * h)), p, atol=1e-12, rtol=0)


@pytest.mark.parametrize("method", OURS)
def test_state_dicts_devices_and_half_precision(method, monkeypatch):
    cal, x = fitted(method, 4), torch.from_numpy(draw(30, 4).h)
    module, other = to_torch(cal), to_torch(cal)
    assert not list(module.parameters())
    for buffer in other.buffers():
        buffer.zero_()
    stream = io.BytesIO()
    torch.save(module.state_dict(), stream)
    stream.seek(0)
    other.load_state_dict(torch.load(stream, weights_only=True))
    assert torch.equal(other(x), module(x))
    assert torch.equal(copy.deepcopy(module)(x), module(x))
    away = to_torch(cal).to("meta", dtype=torch.float16)
    assert {b.device.type for b in away.buffers()} == {"meta"}
    assert not any(b.dtype == torch.float16 for b in away.buffers())
    with monkeypatch.context() as patch:
        patch.setattr("attemper.torch.module.SINGLE_ONLY", ("meta",))
        away = to_torch(cal).to("meta")
        assert not any(b.dtype == torch.float64 for b in away.buffers())
        assert away(torch.zeros(3, 4, dtype=torch.int64, device="meta")).dtype == torch.float32
    for dtype in (torch.float16, torch.bfloat16):
        half = x.to(dtype)
        p = copy.deepcopy(module).half()(half)
        assert p.dtype == dtype
        np.testing.assert_allclose(p.double(), module(half.double()), rtol=2 * torch.finfo(dtype).eps, atol=1e-7)


def test_wrapped_networks_return_probabilities():
    cal, net, x = fitted("bayes", 4), nn.Linear(6, 4), torch.randn(9, 6)
    wrapped = cal.wrap(net)
    expected = cal.predict_proba(net(x).detach().double().numpy())
    np.testing.assert_allclose(wrapped(x).detach(), expected, atol=1e-6)
    other = cal.wrap(nn.Linear(6, 4))
    other.load_state_dict(wrapped.state_dict())
    assert torch.equal(other(x), wrapped(x))
    wrapped(x).log().sum().backward()
    assert net.weight.grad is not None

    class Outputs(nn.Module):
        def forward(self, x):
            return type("Output", (), {"logits": x})

    class Named(nn.Module):
        def forward(self, x):
            return {"hidden": x + 1, "logits": x}

    for many in (Outputs(), Named()):
        assert torch.equal(wrap(cal, many)(x[:, :4]), cal.to_torch()(x[:, :4]))
    one = fitted("platt", 2)
    column = one.wrap(nn.Linear(6, 1))(x)
    assert column.shape == (9, 2)
    for n in (1, 2, 9):  # a vector is a column, also where it is as long as there are classes
        h = torch.randn(n).double()
        for module in (one.wrap(nn.Identity()), one.to_torch()):
            np.testing.assert_allclose(module(h), one.predict_proba(h.numpy()), atol=1e-12)
    conv = of_images(fitted("ts", 4)).wrap(nn.Conv2d(3, 4, 1))
    for width in (5, 1):  # which is not that of one column
        assert torch.allclose(conv(torch.randn(2, 3, 5, width)).sum(dim=1), torch.ones(2, 5, width))
    rows, images = fitted("ts", 4), torch.randn(2, 3, 4, 4)
    with pytest.raises(InputError) as error:
        rows.wrap(nn.Conv2d(3, 4, 1))(images)
    assert error.value.param == "axis"
    for p in (rows.wrap(nn.Conv2d(3, 4, 1), axis=1)(images), rows.to_torch(axis=1)(torch.randn(2, 4, 4, 4))):
        assert torch.allclose(p.sum(dim=1), torch.ones(2, 4, 4))
    for k in (1, 3):
        with pytest.raises(InputError):
            cal.wrap(nn.Linear(6, k))(x)
    for last in (nn.Softmax(-1), nn.Sigmoid()):
        with pytest.raises(InputError):
            cal.wrap(nn.Sequential(net, last))
        fitted("ts", 4, "probs").wrap(nn.Sequential(net, last))
    for bad, error in ((TemperatureScaling(), NotFittedError), (GroupedCalibrator("ts"), NotFittedError)):
        with pytest.raises(error):
            to_torch(bad)
    with pytest.raises(InputError):
        wrap(cal, lambda x: x)
    data = draw(100, 3, groups=2)
    with pytest.raises(InputError):
        to_torch(GroupedCalibrator("ts").fit(data.h, data.y, groups=data.group))


def test_gradients_and_autocast():
    x = torch.from_numpy(draw(3, 4).h).requires_grad_()
    for method in ("ts", "bayes", "structured", "platt"):
        assert torch.autograd.gradcheck(to_torch(fitted(method, 4)), (x,))
        assert torch.autograd.gradcheck(fitted(method, 4).predict_proba, (x,))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = to_torch(fitted("matrix", 4))(x.float())
    np.testing.assert_allclose(found.detach(), to_torch(fitted("matrix", 4))(x).detach(), atol=1e-6)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of the compiler and of the exporter
@pytest.mark.parametrize("method", ["ts", "bayes", "structured", "beta", "isotonic"])  # one for each stage
def test_modules_are_compiled_and_exported(method, tmp_path):
    import onnxruntime

    cal, x = fitted(method, 4), torch.from_numpy(draw(20, 4).h).float()
    expected = cal.predict_proba(x.double().numpy())
    module = cal.wrap(nn.Identity())
    backend = "inductor" if method == "bayes" else "eager"  # what is compiled is the same graph; C++ takes a minute
    np.testing.assert_allclose(torch.compile(module, fullgraph=True, backend=backend)(x), expected, atol=1e-6)
    batch = {0: torch.export.Dim("batch", min=2)}
    exported = torch.export.export(cal.to_torch(), (x[:7],), dynamic_shapes=(batch,))
    np.testing.assert_allclose(exported.module()(x), expected, atol=1e-6)
    path = tmp_path / "net.onnx"
    torch.onnx.export(module, (x,), path, input_names=["x"], verbose=False)
    p = onnxruntime.InferenceSession(path).run(None, {"x": x.numpy()})[0]
    np.testing.assert_allclose(p, expected, atol=1e-6)


# Ensembles


def network(p=0.4, seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(6, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(p), nn.Linear(16, 3))


def entropy(p):
    return scipy.special.entr(np.asarray(p)).sum(axis=-1)


def assert_is_mean_of(found, each, rtol=1e-6):
    """Everything in a prediction against passes × N × K probabilities."""
    p = np.asarray(each)
    mean = p.mean(axis=0)
    np.testing.assert_allclose(found.probs, mean, rtol=rtol)
    np.testing.assert_allclose(found.log_probs, np.log(mean), rtol=rtol, atol=rtol)
    np.testing.assert_allclose(found.entropy, entropy(mean), rtol=rtol)
    np.testing.assert_allclose(found.mutual_information, entropy(mean) - entropy(p).mean(axis=0), atol=rtol)


def test_passes_with_dropout_are_the_naive_loop():
    model, x = network(), torch.randn(20, 6)
    found = MCDropout(model, 30, seed=7).predict(x)
    parts = MCDropout(model, 30, seed=7).predict(DataLoader(TensorDataset(x, torch.arange(20)), batch_size=8))
    model.eval()
    model[3].train()
    for batches, said in (([x], found), (x.split(8), parts)):
        each = []
        for i, batch in enumerate(batches):
            torch.manual_seed(7 + i)
            with torch.no_grad():
                each.append(torch.stack([model(batch).softmax(dim=1) for _ in range(30)]))
        assert_is_mean_of(said, torch.cat(each, dim=1).double())
    assert (found.mutual_information > 0).all()


def test_a_rate_of_zero_is_the_plain_model_bit_for_bit():
    model, x = network(p=0.0).eval(), torch.randn(20, 6)
    found = MCDropout(model, 13).predict(x)
    with torch.no_grad():
        assert torch.equal(found.probs, model(x).softmax(dim=1))
    assert not found.mutual_information.any()


def test_an_ensemble_is_the_mean_of_its_members():
    models, x = [network(seed=s) for s in range(4)], torch.randn(20, 6)
    each = torch.stack([m.eval()(x).softmax(dim=1).detach() for m in models]).double()
    assert_is_mean_of(DeepEnsemble(models).predict(x), each)
    probs = [nn.Sequential(m, nn.Softmax(dim=1)) for m in models]
    assert_is_mean_of(DeepEnsemble(probs, input="probs").predict([x[:7], x[7:]]), each)
    arrays = DeepEnsemble(models).predict(x.numpy())
    assert isinstance(arrays.probs, np.ndarray)
    assert_is_mean_of(arrays, each)
    saved = np.stack([m(x).detach().double().numpy() for m in models])
    assert_is_mean_of(average(iter(saved)), scipy.special.softmax(saved, axis=-1), rtol=1e-12)
    fit = TemperatureScaling().fit(arrays.log_probs, np.arange(20) % 3)
    assert fit.temperature_ > 0


def test_the_log_of_a_mean_does_not_underflow():
    h = torch.tensor([[0.0, -1500.0, -2000.0]])
    both = average([h, h[:, [1, 0, 2]]])
    np.testing.assert_allclose(both.log_probs, [[-math.log(2), -math.log(2), -2000.0]], rtol=1e-6)


@pytest.mark.parametrize("fails", [False, True])
def test_models_and_random_numbers_are_left_as_they_were(fails):
    model, x = network().train(), torch.randn(20, 6)
    model[3].eval()  # a mixture that no train() or eval() would bring back
    flags, rng = [m.training for m in model.modules()], torch.get_rng_state()
    state = copy.deepcopy(model.state_dict())
    if fails:
        with pytest.raises(RuntimeError):
            MCDropout(model, 3).predict(x[:, :5])
    else:
        assert not MCDropout(model, 3).predict(x).probs.requires_grad
    assert torch.equal(torch.get_rng_state(), rng)
    assert [m.training for m in model.modules()] == flags
    assert all(torch.equal(value, state[name]) for name, value in model.state_dict().items())


class Head(nn.Module):
    def __init__(self, layer):
        super().__init__()
        self.layer, self.head = layer, nn.Linear(8, 3)

    def forward(self, x):
        h = self.layer(x, x, x) if isinstance(self.layer, nn.MultiheadAttention) else self.layer(x)
        return self.head((h[0] if isinstance(h, tuple) else h).mean(dim=1))


class OwnDropout(nn.Module):
    def forward(self, x):
        return F.dropout(x, 0.5, training=self.training)


@pytest.mark.parametrize(
    "layer",
    [
        nn.Dropout1d(0.5),
        nn.AlphaDropout(0.5),
        nn.MultiheadAttention(8, 2, dropout=0.5, batch_first=True),
        nn.TransformerEncoderLayer(8, 2, 16, dropout=0.5, batch_first=True),
        nn.LSTM(8, 8, num_layers=2, dropout=0.5, batch_first=True),
    ],
    ids=lambda layer: type(layer).__name__,
)
def test_dropout_inside_of_layers_drops(layer):
    model, x = Head(layer).eval(), torch.randn(4, 5, 8)
    assert (MCDropout(model, 20).predict(x).mutual_information > 1e-6).all()
    assert not any(m.training for m in model.modules())


def test_what_ensembles_refuse():
    own = nn.Sequential(OwnDropout(), nn.Linear(6, 3))
    assert (MCDropout(own, 20, layers=(OwnDropout,)).predict(torch.randn(5, 6)).mutual_information > 0).all()
    for make in (
        lambda: MCDropout(own),
        lambda: MCDropout(network(), 0),
        lambda: DeepEnsemble([]),
        lambda: DeepEnsemble([lambda x: x]),
        lambda: DeepEnsemble([network()]).predict([]),
        lambda: DeepEnsemble([network()], input="probs").predict(torch.randn(5, 6)),
        lambda: average([np.zeros((3, 2)), np.zeros((2, 2))]),
        lambda: average([np.full((3, 2), np.nan)]),
        lambda: average([]),
        lambda: average([np.zeros((3, 2))], input="scores"),
    ):
        with pytest.raises(InputError):
            make()


# The loss


def mmce_by_pairs(logits, labels, weighted, bandwidth=0.4):
    """Kumar et al., section 4: sums over pairs, in plain Python."""
    p = torch.softmax(logits.double(), dim=1).tolist()
    pairs = [(max(row), float(row.index(max(row)) == y)) for row, y in zip(p, labels.tolist())]
    share = {c: (sum(d == c for _, d in pairs) if weighted else len(pairs)) for c in (0.0, 1.0)}
    gaps = [(r, (c - r) / share[c]) for r, c in pairs]
    return math.sqrt(max(sum(a * b * math.exp(-abs(r - s) / bandwidth) for r, a in gaps for s, b in gaps), 0.0))


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("bandwidth", [0.4, 0.05])
def test_the_loss_is_the_sum_over_pairs(weighted, bandwidth):
    h, y = map(torch.from_numpy, draw(30, 4))
    options = {"weighted": weighted, "bandwidth": bandwidth}
    assert mmce_loss(h, y, **options).item() == pytest.approx(mmce_by_pairs(h, y, **options), rel=1e-10)
    for labels in (h.argmax(dim=1), (h.argmax(dim=1) + 1) % 4):  # only right, only wrong
        assert mmce_loss(h, labels, **options).item() == pytest.approx(mmce_by_pairs(h, labels, **options), rel=1e-10)
    few = h[:12].clone().requires_grad_()
    assert torch.autograd.gradcheck(lambda h: mmce_loss(h, y[:12], **options), few, eps=1e-7, atol=1e-6)


def test_the_loss_is_the_metric_and_leaves_samples_out():
    h, y = map(torch.from_numpy, draw(64, 5))
    assert mmce_loss(h, y).item() == pytest.approx(float(mmce(y.numpy(), h.softmax(dim=1).numpy())), abs=1e-12)
    dropped = y.clone()
    dropped[::3] = -100
    keep = dropped != -100
    x = h.clone().requires_grad_()
    loss = MMCELoss(ignore_index=-100)(x, dropped)
    assert loss.item() == mmce_loss(h[keep], y[keep]).item()
    loss.backward()
    assert not x.grad[~keep].any()
    assert mmce_loss(x, torch.full_like(y, -100), ignore_index=-100).item() == 0
    assert mmce_loss(h.half(), y).dtype == torch.float32


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(
    ("logits", "labels"),
    [
        ([[900.0, 0.0], [0.0, 900.0]], [0, 1]),  # confident and right: every gap is 0
        ([[0.0, 0.0], [0.0, 0.0]], [0, 1]),  # gaps that cancel
        ([[1e-9, 0.0], [0.0, 0.0]], [0, 1]),
        ([[0.0, -math.inf, 1.0], [0.0, 2.0, -math.inf]], [0, 1]),  # masked classes
    ],
)
def test_the_gradient_of_the_loss_is_finite(logits, labels, weighted):
    h = torch.tensor(logits, requires_grad=True)
    value = mmce_loss(h, torch.tensor(labels), weighted=weighted)
    value.backward()
    assert value.item() >= 0
    assert torch.isfinite(h.grad).all()


def test_what_the_loss_refuses():
    for logits, labels, options in (
        (torch.zeros(3, 3), torch.zeros(2), {}),
        (torch.zeros(3), torch.zeros(3), {}),
        (torch.zeros(3, 3), torch.zeros(3), {"bandwidth": 0.0}),
    ):
        with pytest.raises(InputError):
            mmce_loss(logits, labels, **options)


def test_a_map_alone_is_a_module():
    h = torch.tensor([[2.0, 0.0]])
    assert torch.allclose(to_torch(Map.scale(0.5))(h), (h / 2).softmax(dim=1))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_rounding_to_half_precision_does_not_change_the_prediction(dtype):
    p = to_torch(Map.scale(1e-4))(torch.tensor([[1.0, 1.5], [0.0, -1.0]], dtype=dtype))
    assert p.double().argmax(dim=1).tolist() == [1, 0]


def test_wrapped_images_of_one_channel_are_the_second_of_two():
    cal, net, x = of_images(fitted("platt", 2)), nn.Conv2d(3, 1, 1), torch.randn(2, 3, 5, 4)
    p = cal.wrap(net)(x).detach()
    assert p.shape == (2, 2, 5, 4)
    expected = cal.predict_risk(net(x).detach().double().numpy().ravel())
    np.testing.assert_allclose(p[:, 1].ravel(), expected, atol=1e-6)


def test_a_wrapped_probability_is_the_second_of_two():
    cal, net, x = fitted("ts", 2, "probs"), nn.Sequential(nn.Linear(6, 1), nn.Sigmoid()), torch.randn(9, 6)
    expected = cal.predict_proba(net(x).detach().double().numpy())
    np.testing.assert_allclose(cal.wrap(net)(x).detach(), expected, atol=1e-6)


def test_a_wrapped_network_stays_in_its_mode_and_precision():
    for training in (False, True):
        net = network().train(training)
        wrapped = fitted("ts", 3).wrap(net)
        assert (wrapped.training, net.training, wrapped.calibration.training) == (training,) * 3


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("k", [2, 4])
def test_the_precision_of_modules_averages_and_losses_is_that_of_the_input(dtype, k):
    h = torch.from_numpy(draw(40, k).h).to(dtype)
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    for method in OURS:
        assert to_torch(fitted(method, k))(h).dtype == dtype
    probs = scipy.special.softmax(h.double().numpy(), axis=1)
    assert {each.dtype for each in vars(average([h, h])).values()} == {wide}
    assert_is_mean_of(average([h, h.flip(1)]), [probs, probs[:, ::-1]], rtol=1e-6)
    assert mmce_loss(h, torch.arange(40) % k).dtype == wide
    assert average([h.softmax(dim=1)], input="probs").probs.dtype == wide


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_labels_that_do_not_exclude_each_other_are_rounded_each_for_itself(dtype):
    data = draw(300, 3, seed=1)
    cal = attemper.MultiLabelCalibrator().fit(data.h, (data.p > 0.3).astype(float))
    h = torch.from_numpy(1e-3 * draw(60, 3).h).to(dtype)
    p = to_torch(cal)(h)
    assert p.dtype == dtype
    np.testing.assert_array_equal(p.double(), to_torch(cal)(h.double()).to(dtype).double())
    column = attemper.MultiLabelCalibrator().fit(data.h[:, :1], (data.p[:, :1] > 0.3).astype(float))
    assert column.wrap(nn.Linear(6, 1))(torch.randn(9, 6)).shape == (9, 1)


def test_rates_of_zero_and_other_layers_are_not_switched_on():
    off, on, bn = nn.Dropout(0.0), nn.Dropout(0.5), nn.BatchNorm1d(6)
    passes = MCDropout(nn.Sequential(bn, off, on, nn.Linear(6, 3)), 3)
    assert passes.active == {on}
    assert len(passes.models) == 3
    x = torch.randn(20, 6)
    assert not torch.equal(MCDropout(network(), 3).predict(x).probs, MCDropout(network(), 3, seed=1).predict(x).probs)
    for bad in ([[0.6, 0.5]], [[1.2, -0.2]], [[0.2, 0.2]]):
        with pytest.raises(InputError):
            average([np.array(bad)], input="probs")
