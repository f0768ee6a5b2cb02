"""Monte Carlo dropout and deep ensembles: naive loops, and a model that is left as it was found."""

import math

import numpy as np
import pytest
import scipy.special
import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812
from torch.utils.data import DataLoader, TensorDataset

from attemper import BayesianTemperatureScaling, InputError, InputTypeError, TemperatureScaling, metrics
from attemper.torch import DeepEnsemble, MCDropout, average

pytestmark = pytest.mark.usefixtures("one_torch_thread")

FEATURES, CLASSES = 6, 3
ARRAYS = ("probs", "log_probs", "entropy", "mutual_information")


def net(p=0.4, seed=0, dtype=torch.float32):
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Linear(FEATURES, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(p), nn.Linear(16, CLASSES)
    ).to(dtype)


def rows(n=20, seed=1, dtype=torch.float32):
    return torch.tensor(np.random.default_rng(seed).normal(size=(n, FEATURES)), dtype=dtype)


def naive(model, batches, passes, seed):
    """Probabilities of every pass, of the obvious loop: passes × N × K."""
    model.eval()
    for module in model.modules():
        if isinstance(module, nn.modules.dropout._DropoutNd):
            module.train()
    torch.manual_seed(seed)
    with torch.no_grad():
        said = [torch.stack([model(x).softmax(dim=1) for _ in range(passes)]) for x in batches]
    return torch.cat(said, dim=1).double()


def entropy(p):
    return scipy.special.entr(np.asarray(p)).sum(axis=-1)


def assert_is_mean_of(said, each, rtol=1e-6):
    """Everything in a prediction against passes × N × K probabilities."""
    p = np.asarray(each)
    mean = p.mean(axis=0)
    assert said.passes == len(p)
    np.testing.assert_allclose(said.probs, mean, rtol=rtol)
    np.testing.assert_allclose(said.log_probs, np.log(mean), rtol=rtol, atol=rtol)
    np.testing.assert_allclose(said.entropy, entropy(mean), rtol=rtol)
    np.testing.assert_allclose(said.mutual_information, entropy(mean) - entropy(p).mean(axis=0), atol=rtol)


def assert_same(a, b):
    for name in ARRAYS:
        assert torch.equal(getattr(a, name), getattr(b, name)), name


# What is computed


def test_a_hundred_passes_are_the_naive_loop():
    model, x = net(), rows()
    said = MCDropout(model, seed=7).predict(x)
    assert said.passes == 100
    assert (said.mutual_information > 0).all()
    assert_is_mean_of(said, naive(model, [x], 100, seed=7))


def test_batches_go_on_with_the_same_stream():
    model, x = net(), rows(20)
    said = MCDropout(model, 10, seed=7, batch_size=8).predict(x)
    assert_is_mean_of(said, naive(model, x.split(8), 10, seed=7))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("outputs", ["logits", "probs"])
def test_a_rate_of_zero_is_the_plain_model_bit_for_bit(dtype, outputs):
    model, x = net(p=0.0, dtype=dtype), rows(dtype=dtype)
    if outputs == "probs":
        model.append(nn.Softmax(dim=1))
    model.eval()
    with torch.no_grad():
        plain = model(x)
    said = MCDropout(model, 13, input=outputs).predict(x)
    assert torch.equal(said.probs, plain.softmax(dim=1) if outputs == "logits" else plain)
    if outputs == "logits":
        assert torch.equal(said.log_probs, plain.log_softmax(dim=1))
    assert not said.mutual_information.any()


def test_the_log_does_not_underflow():
    # Two members, each quite sure of another class: the third has a probability of e^−2000.
    h = torch.tensor([[0.0, -1500.0, -2000.0]])
    both = average([h, h[:, [1, 0, 2]]])
    np.testing.assert_allclose(both.log_probs, [[-math.log(2), -math.log(2), -2000.0]], rtol=1e-6)
    np.testing.assert_allclose(both.probs, [[0.5, 0.5, 0.0]])


def test_an_ensemble_is_the_mean_of_its_members():
    models, x = [net(seed=s) for s in range(4)], rows()
    each = torch.stack([m.eval()(x).softmax(dim=1).detach() for m in models]).double()
    assert_is_mean_of(DeepEnsemble(models).predict(x), each)
    assert_is_mean_of(DeepEnsemble(iter(models), batch_size=7).predict(x), each)
    assert_is_mean_of(DeepEnsemble(nn.ModuleList(models)).predict(x), each)
    assert torch.equal(DeepEnsemble(models).predict_proba(x), DeepEnsemble(models).predict(x).probs)


def test_logits_saved_before_can_be_averaged():
    rng = np.random.default_rng(0)
    h = rng.normal(size=(3, 8, 4)) * 3
    said = average((member for member in h), labels=np.arange(8) % 4)
    assert isinstance(said.probs, np.ndarray)
    assert_is_mean_of(said, scipy.special.softmax(h, axis=-1), rtol=1e-12)
    assert_is_mean_of(average(scipy.special.softmax(h, axis=-1), input="probs"), scipy.special.softmax(h, axis=-1))
    tensors = average([torch.tensor(member, requires_grad=True) for member in h])
    assert not tensors.probs.requires_grad
    np.testing.assert_allclose(tensors.log_probs, said.log_probs, rtol=1e-12)


# What is random


def test_seeds():
    model, x = net(), rows()
    assert_same(MCDropout(model, 5, seed=1).predict(x), MCDropout(model, 5, seed=1).predict(x))
    assert not torch.equal(MCDropout(model, 5, seed=1).predict_proba(x), MCDropout(model, 5, seed=2).predict_proba(x))
    fresh = MCDropout(model, 5, seed=None)
    assert not torch.equal(fresh.predict_proba(x), fresh.predict_proba(x))


def test_a_loader_that_draws_does_not_disturb_the_passes():
    model, x = net(), rows(20)
    mc = MCDropout(model, 5, batch_size=8)

    def drawing():
        for part in x.split(8):
            torch.rand(3)
            yield part

    assert_same(mc.predict(x), mc.predict(DataLoader(TensorDataset(x), batch_size=8)))
    assert_same(mc.predict(x), mc.predict(drawing()))


@pytest.mark.parametrize("make", [lambda m: MCDropout(m, 3), lambda m: DeepEnsemble([m, net(seed=1)])])
@pytest.mark.parametrize("source", ["tensor", "loader"])
def test_the_model_and_the_random_numbers_are_left_as_they_were(make, source):
    model, x = net(), rows()
    model.train()
    model[3].eval()  # a mixture that no train() or eval() would bring back
    model[4].bias.requires_grad_(False)
    F.cross_entropy(model(x), torch.zeros(20, dtype=torch.long)).backward()
    ensemble = make(model)
    flags = [m.training for m in model.modules()]
    state = {name: value.clone() for name, value in model.state_dict().items()}
    grads = [None if p.grad is None else p.grad.clone() for p in model.parameters()]
    given = x.clone()
    rng = torch.get_rng_state()

    said = ensemble.predict(x if source == "tensor" else DataLoader(TensorDataset(x), batch_size=6, shuffle=True))

    assert torch.equal(torch.get_rng_state(), rng)
    assert [m.training for m in model.modules()] == flags
    for name, value in model.state_dict().items():
        assert torch.equal(value, state[name]), name  # running means of the batch norm among them
    for p, grad in zip(model.parameters(), grads):
        assert (p.grad is None) == (grad is None)
        assert grad is None or torch.equal(p.grad, grad)
    assert [p.requires_grad for p in model.parameters()] == [True] * 5 + [False]
    assert torch.equal(x, given)
    assert not said.probs.requires_grad
    assert torch.is_grad_enabled()


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
@pytest.mark.parametrize("where", ["model", "loader"])
def test_the_same_when_it_breaks_off(error, where):
    model, x = net(), rows()
    model.train()
    calls = 0

    def select(output):
        nonlocal calls
        calls += 1
        if where == "model" and calls == 3:
            raise error("in the middle")
        return output

    def loader():
        yield x
        torch.rand(1)
        raise error("in the middle")

    flags, rng = [m.training for m in model.modules()], torch.get_rng_state()
    with pytest.raises(error):
        MCDropout(model, 5, select=select).predict(loader())
    assert [m.training for m in model.modules()] == flags
    assert torch.equal(torch.get_rng_state(), rng)
    assert torch.is_grad_enabled()


# Which layers are switched on


@pytest.mark.parametrize(
    ("layer", "shape"),
    [
        (nn.Dropout(0.5), (8, 12)),
        (nn.Dropout1d(0.5), (8, 6, 2)),
        (nn.Dropout2d(0.5), (8, 3, 2, 2)),
        (nn.Dropout3d(0.5), (8, 3, 2, 2, 1)),
        (nn.AlphaDropout(0.5), (8, 12)),
        (nn.FeatureAlphaDropout(0.5), (8, 3, 2, 2)),
    ],
)
def test_every_dropout_of_torch_drops(layer, shape):
    model = nn.Sequential(layer, nn.Flatten(), nn.Linear(12, CLASSES))
    model.eval()
    x = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    assert (MCDropout(model, 30).predict(x).mutual_information > 0).all()


class Attending(nn.Module):
    def __init__(self, dropout, layer):
        super().__init__()
        torch.manual_seed(0)
        self.layer = layer(dropout)
        self.head = nn.Linear(8, CLASSES)

    def forward(self, x):
        h = self.layer(x, x, x)[0] if isinstance(self.layer, nn.MultiheadAttention) else self.layer(x)
        return self.head((h[0] if isinstance(h, tuple) else h).mean(dim=1))


INSIDE = {
    "attention": lambda p: nn.MultiheadAttention(8, 2, dropout=p, batch_first=True),
    "encoder layer": lambda p: nn.TransformerEncoderLayer(8, 2, 16, dropout=p, batch_first=True),
    "encoder": lambda p: nn.TransformerEncoder(
        nn.TransformerEncoderLayer(8, 2, 16, dropout=p, batch_first=True), 2, enable_nested_tensor=False
    ),
    "lstm": lambda p: nn.LSTM(8, 8, num_layers=2, dropout=p, batch_first=True),
    "gru": lambda p: nn.GRU(8, 8, num_layers=2, dropout=p, batch_first=True),
}


@pytest.mark.parametrize("name", INSIDE)
def test_dropout_inside_of_layers_drops(name):
    model = Attending(0.5, INSIDE[name]).eval()
    x = torch.randn(4, 5, 8, generator=torch.Generator().manual_seed(0))
    said = MCDropout(model, 20, seed=2).predict(x)
    assert (said.mutual_information > 1e-6).all()
    assert not any(m.training for m in model.modules())
    model.train()  # nothing in it but dropout depends on the mode
    torch.manual_seed(2)
    with torch.no_grad():
        assert_is_mean_of(said, torch.stack([model(x).softmax(dim=1) for _ in range(20)]).double())


class OwnDropout(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(FEATURES)

    def forward(self, x):
        return F.dropout(self.norm(x), 0.5, training=self.training)


def test_a_module_of_ones_own_can_be_named():
    model, x = nn.Sequential(OwnDropout(), nn.Linear(FEATURES, CLASSES)), rows()
    with pytest.raises(InputError):
        MCDropout(model)
    before = model[0].norm.running_mean.clone()
    for layers in (OwnDropout, (OwnDropout,)):
        assert (MCDropout(model, 20, layers=layers).predict(x).mutual_information > 0).all()
    assert torch.equal(model[0].norm.running_mean, before)  # the module drops, its batch norm still evaluates
    with pytest.raises(InputError):
        MCDropout(net(), layers=(nn.Dropout2d,))


# What comes in and out


def test_loaders_carry_labels():
    model, x, y = net(), rows(20), torch.arange(20) % CLASSES
    said = MCDropout(model, 3).predict(DataLoader(TensorDataset(x, y), batch_size=8))
    assert torch.equal(said.labels, y)
    assert said.probs.shape == (20, CLASSES)
    arrays = MCDropout(model, 3).predict([(x.numpy()[:8], y.numpy()[:8]), (x.numpy()[8:], list(y.numpy()[8:]))])
    assert isinstance(arrays.labels, np.ndarray)
    np.testing.assert_array_equal(arrays.labels, y)
    assert MCDropout(model, 3).predict(x).labels is None
    named = MCDropout(model, 3).predict([(x[:2], ("cat", "dog")), (x[2:3], ("cat",))])
    assert named.labels.tolist() == ["cat", "dog", "cat"]


def test_any_structure_can_be_told():
    class Named(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = net()

        def forward(self, pixels, scale=1.0):
            return {"loss": None, "scores": [self.body(pixels * scale)]}

    model, x, y = Named(), rows(), torch.arange(20) % CLASSES
    expected = MCDropout(model.body, 4).predict(2 * x)
    batches = [{"image": 2 * x, "label": y}]
    by_place = MCDropout(
        model, 4, select=lambda out: out["scores"][0], unpack=lambda b: (b["image"], b["label"])
    ).predict(batches)
    by_name = DeepEnsemble(
        [model], select=lambda out: out["scores"][0], unpack=lambda b: {"pixels": b["image"], "scale": 1.0}
    ).predict(batches)
    assert_same(by_place, expected)
    assert torch.equal(by_place.labels, y)
    assert torch.equal(by_name.probs, model.body.eval()(2 * x).softmax(dim=1))
    with pytest.raises(InputTypeError):
        MCDropout(model).predict(x)
    with pytest.raises(InputTypeError):
        MCDropout(model).predict(batches)


def test_what_comes_out_can_be_calibrated():
    rng = np.random.default_rng(0)
    x = torch.tensor(rng.normal(size=(300, FEATURES)), dtype=torch.float32)
    model = net()
    with torch.no_grad():
        model[4].weight *= 8  # far too sure
        y = torch.distributions.Categorical(logits=model.eval()(x) / 8).sample()
    said = MCDropout(model, 20).predict(DataLoader(TensorDataset(x, y), batch_size=100))
    for calibrator in (TemperatureScaling(), BayesianTemperatureScaling()):
        p = calibrator.fit(said.log_probs, said.labels).predict_proba(said.log_probs)
        assert isinstance(p, torch.Tensor)
        assert metrics.nll(y, p) < metrics.nll(y, said.probs) - 0.1
    other = TemperatureScaling(input="probs").fit(said.probs, said.labels)
    assert other.temperature_ == pytest.approx(TemperatureScaling().fit(said.log_probs, y).temperature_, rel=1e-4)


# What is refused


@pytest.mark.parametrize(
    "options", [{"passes": 0}, {"batch_size": 0}, {"input": "scores"}, {"seed": -1}, {"layers": (nn.Dropout2d,)}]
)
def test_parameters_that_make_no_sense(options):
    with pytest.raises(InputError):
        MCDropout(net(), **options)


def test_models_that_are_none():
    for make in (lambda: MCDropout(lambda x: x), lambda: DeepEnsemble([net(), 3]), lambda: DeepEnsemble([])):
        with pytest.raises(InputTypeError):
            make()


def test_outputs_that_make_no_sense():
    for select in (lambda h: h[:, 0], lambda h: h.argmax(dim=1, keepdim=True).expand(5, 3), lambda h: h * math.nan):
        with pytest.raises(InputError):
            MCDropout(net(), 3, select=select).predict(rows(5))
    with pytest.raises(InputError):
        MCDropout(net(), 3, select=lambda h: h.abs() + 1, input="probs").predict(rows(5))
    with pytest.raises(InputError):
        average([np.zeros((3, 2)), np.zeros((2, 2))])
    with pytest.raises(InputError):
        average([])


@pytest.mark.parametrize(
    "X",
    [
        [],
        torch.zeros(0, FEATURES),
        {"x": torch.zeros(2, FEATURES)},
        None,
        [(torch.zeros(2, FEATURES), torch.zeros(3))],
        [(torch.zeros(2, FEATURES), torch.zeros(2)), torch.zeros(1, FEATURES)],
    ],
)
def test_input_that_makes_no_sense(X):
    with pytest.raises(InputError):
        DeepEnsemble([net()]).predict(X)
