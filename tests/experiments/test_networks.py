"""Each network builds, gives one logit for each class, and has as many parameters as its paper says."""

import pytest
import torch

from attemper import InputError
from experiments.zoo.networks import ARCHITECTURES, Dropout, build_network

# Channels, side, classes, parameters. Papers: ResNet-110 1.7 M, DenseNet-40 (k=12) 1.0 M, DenseNet-BC-100 (k=12) 0.8 M,
# WRN-28-10 36.5 M; LeNet-5 with all maps connected 61 706; ResNet-200 for 1000 classes 64.7 M.
KNOWN = {
    "lenet5": (1, 28, 10, 61_706),
    "vgg16": (3, 32, 10, 15_249_354),
    "resnet110": (3, 32, 10, 1_727_962),
    "densenet40": (3, 32, 10, 1_019_722),
    "densenetbc100": (3, 32, 10, 769_162),
    "wideresnet28x10": (3, 32, 10, 36_479_194),
    "wideresnet28x4": (3, 32, 10, 5_849_050),
    "resnet200": (3, 96, 1000, 64_673_832),
}


def test_every_network_is_known():
    assert set(KNOWN) == set(ARCHITECTURES)


@pytest.mark.parametrize("arch", KNOWN)
def test_shapes_and_parameters(arch):
    channels, side, n_classes, n_parameters = KNOWN[arch]
    with torch.device("meta"):  # shapes without numbers: large networks cost nothing
        net = build_network(arch, channels, n_classes, (side, side), dropout=0.0, seed=0)
        assert net(torch.empty(2, channels, side, side)).shape == (2, n_classes)
    assert sum(p.numel() for p in net.parameters()) == n_parameters


@pytest.mark.parametrize("arch", ["lenet5", "resnet110", "densenet40"])
def test_numbers_are_finite_and_depend_on_the_seed(arch):
    channels, side, n_classes, _ = KNOWN[arch]
    x = torch.randn(2, channels, side, side, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        first, again, other = (
            build_network(arch, channels, n_classes, (side, side), dropout=0.0, seed=seed)(x) for seed in (1, 1, 2)
        )
    assert torch.isfinite(first).all()
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_residual_branches_start_at_zero():
    net = build_network("resnet110", 3, 10, (32, 32), dropout=0.0, seed=0).eval()
    block = net.body[5]
    x = torch.rand(1, 16, 8, 8)
    assert torch.equal(block(x), x)


def test_dropout_is_active_in_training_and_when_sampling():
    layer = Dropout(0.5)
    layer.generator = torch.Generator().manual_seed(0)
    x = torch.ones(200, 50)
    trained = layer(x)
    assert set(trained.unique().tolist()) == {0.0, 2.0}
    assert abs(trained.mean() - 1) < 0.05
    assert torch.equal(layer.eval()(x), x)
    layer.sampling = True
    assert not torch.equal(layer(x), trained)
    assert set(layer(x).unique().tolist()) == {0.0, 2.0}


def test_what_a_network_cannot_take_is_said():
    with pytest.raises(InputError):
        build_network("resnet110", 3, 10, (32, 32), dropout=0.5, seed=0)
    with pytest.raises(InputError):
        build_network("lenet5", 3, 10, (32, 32), dropout=0.0, seed=0)


def test_residual_branches_begin_at_zero_or_at_one():
    for start, weight in (("zero", 0.0), ("one", 1.0)):
        net = build_network("resnet110", 3, 10, (32, 32), dropout=0.0, seed=0, residual_start=start)
        branches = [module.last_norm.weight for module in net.modules() if hasattr(module, "last_norm")]
        assert len(branches) == 54
        assert all((branch == weight).all() for branch in branches)
