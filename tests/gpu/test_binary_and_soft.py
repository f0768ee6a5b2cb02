"""One column and soft labels where tensors take the road of a GPU."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from attemper import Sketch, TemperatureScaling
from attemper.data.scores import Scores

from data import draw

pytestmark = pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning", "ignore:divide by zero:RuntimeWarning")

H, Y = draw(200, 4)
BINARY = (np.random.default_rng(2).random(200) < 1 / (1 + np.exp(-H[:, 0] / 2))).astype(np.int64)
SHARES = np.random.default_rng(1).dirichlet(np.full(4, 0.3), 200)
SHARES[:40] = np.eye(4)[Y[:40]]
ROW, COLUMN = np.nonzero(SHARES)


@pytest.mark.parametrize("labels", [BINARY, 2 * BINARY - 1], ids=["numbers", "signs"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_one_column(device, labels, dtype):
    z = torch.as_tensor(H[:, 0]).to(dtype)
    both = torch.stack([torch.zeros_like(z), z], dim=1)
    y = torch.as_tensor(labels)
    scores = Scores.from_logits(z, y)
    assert scores.device is not None
    one, two = TemperatureScaling().fit(z, y), TemperatureScaling().fit(both, torch.as_tensor(BINARY))
    assert one.temperature_ == two.temperature_
    found = one.predict_positive(z)
    assert isinstance(found, torch.Tensor)
    assert found.dtype == dtype
    assert torch.equal(found, two.predict_proba(both)[:, 1])


@pytest.mark.parametrize("on_device", [True, False])
def test_soft_labels(device, on_device):
    h, w = torch.as_tensor(H), SHARES[ROW, COLUMN]
    labels = torch.as_tensor(SHARES) if on_device else SHARES
    soft = TemperatureScaling().fit(h, labels)
    repeated = TemperatureScaling().fit(h[torch.as_tensor(ROW)], COLUMN, sample_weight=w)
    assert soft.temperature_ == pytest.approx(repeated.temperature_, rel=1e-12)
    assert soft.temperature_ == pytest.approx(TemperatureScaling().fit(H, SHARES).temperature_, rel=1e-9)
    sketch, expected = Sketch.of(h, labels), Sketch.of(H, SHARES)
    np.testing.assert_allclose(sketch.nll, expected.nll, rtol=1e-9)
    assert sketch.n_samples == 200


def test_labels_with_strides(device):
    h = torch.as_tensor(H)
    strided = torch.as_tensor(np.column_stack([Y, Y[::-1]]))[:, 0]
    assert TemperatureScaling().fit(h, strided).temperature_ == TemperatureScaling().fit(h, Y).temperature_
