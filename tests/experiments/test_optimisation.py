"""The optimiser against torch's own, and the learning rate of each step."""

import numpy as np
import pytest
import torch

from experiments.zoo.optimisation import NesterovSGD, learning_rates


def test_steps_are_those_of_torch():
    start = torch.randn(5, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    ours, theirs = (torch.nn.Parameter(start.clone()) for _ in range(2))
    optimizer = NesterovSGD([ours], 0.01, torch.device("cpu"))
    oracle = torch.optim.SGD([theirs], lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.01)
    for rate in (0.1, 0.1, 0.02, 0.5):
        for parameter in (ours, theirs):
            (parameter.sin() ** 2).sum().backward()
        optimizer.learning_rate.fill_(rate)
        oracle.param_groups[0]["lr"] = rate
        optimizer.step()
        oracle.step()
        oracle.zero_grad()
        assert ours.grad is None
    assert torch.allclose(ours, theirs, rtol=1e-6)


def test_step_schedule():
    rates = learning_rates("step", 0.1, epochs=8, steps_per_epoch=10, warmup_epochs=1)
    assert len(rates) == 80
    assert np.allclose(rates[:10], np.arange(1, 11) * 0.01)
    assert np.allclose(rates[10:40], 0.1)
    assert np.allclose(rates[40:60], 0.01)
    assert np.allclose(rates[60:], 0.001)


def test_cosine_schedule():
    rates = learning_rates("cosine", 0.2, epochs=4, steps_per_epoch=5, warmup_epochs=0)
    assert rates[0] == pytest.approx(0.2)
    assert rates[10] == pytest.approx(0.1)
    assert 0 < rates[-1] < 0.002
    assert (np.diff(rates) < 0).all()
    warm = learning_rates("cosine", 0.2, epochs=4, steps_per_epoch=5, warmup_epochs=0.4)
    assert warm[0] == pytest.approx(0.1)
    assert np.array_equal(warm[1:], rates[1:])
