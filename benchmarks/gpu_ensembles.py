"""On a machine with a GPU: MC dropout and deep ensembles where the network is, with random states as they were.

PYTHONPATH=src python benchmarks/gpu_ensembles.py
"""

from __future__ import annotations

import time

import torch
from torch import nn

from attemper.torch import DeepEnsemble, MCDropout


def network(seed):
    torch.manual_seed(seed)
    layers = [nn.Linear(64, 512), nn.BatchNorm1d(512), nn.ReLU(), nn.Dropout(0.5), nn.Linear(512, 10)]
    return nn.Sequential(*layers).cuda()


class Recurrent(nn.Module):
    """Dropout inside an LSTM."""

    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(8, 16, num_layers=2, dropout=0.5, batch_first=True)
        self.last = nn.Linear(16, 3)

    def forward(self, x):
        return self.last(self.lstm(x)[0][:, -1])


def main():
    model, x = network(0), torch.randn(2000, 64)
    model.train()
    before = torch.get_rng_state(), torch.cuda.get_rng_state()
    start = time.perf_counter()
    said = MCDropout(model, 100, seed=3, batch_size=500).predict(x)
    seconds = time.perf_counter() - start
    assert torch.equal(torch.get_rng_state(), before[0])
    assert torch.equal(torch.cuda.get_rng_state(), before[1])
    assert model.training
    assert said.probs.device.type == "cpu"
    assert MCDropout(model, 2).predict(x.cuda()).probs.device.type == "cuda"
    model.eval()
    model[3].train()
    torch.manual_seed(3)
    passes = torch.zeros(2000, 10, dtype=torch.float64)
    with torch.no_grad():
        for first in range(0, 2000, 500):
            batch = x[first : first + 500].cuda()
            for _ in range(100):
                passes[first : first + 500] += torch.softmax(model(batch).double(), dim=1).cpu() / 100
    off = float((said.probs.double() - passes).abs().max())
    assert off < 1e-6, off
    recurrent = Recurrent().cuda()
    first, second = (MCDropout(recurrent, 5, seed=1).predict(torch.ones(4, 5, 8)).probs for _ in range(2))
    assert torch.equal(first, second)
    ensemble = DeepEnsemble([network(1).cpu(), network(2)]).predict(x)
    assert ensemble.probs.device.type == "cpu"
    print(f"MC dropout, 2000 rows, 100 passes on {torch.cuda.get_device_name()}: {1e3 * seconds:.0f} ms, off {off:.0e}")


if __name__ == "__main__":
    main()
