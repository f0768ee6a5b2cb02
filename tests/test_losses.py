"""The MMCE as a loss: the metric's value, the paper's weights, a gradient that is right and finite."""

import math

import numpy as np
import pytest
import torch

from attemper import InputError
from attemper.metrics import mmce
from attemper.torch import MMCELoss, losses, mmce_loss

pytestmark = pytest.mark.usefixtures("one_torch_thread")


def draw(n, k, seed=0, dtype=torch.float64):
    rng = np.random.default_rng(seed)
    logits = torch.tensor(rng.normal(size=(n, k)) * 2, dtype=dtype)
    return logits, torch.tensor(rng.integers(k, size=n))


def oracle(logits, labels, weighted=False, bandwidth=0.4):
    """Kumar et al., section 4: sums over pairs, in plain Python."""
    p = torch.softmax(logits.double(), dim=1).tolist()
    pairs = [(max(row), float(row.index(max(row)) == y)) for row, y in zip(p, labels.tolist())]
    right = [r for r, c in pairs if c]
    wrong = [r for r, c in pairs if not c]

    def k(r, s):
        return math.exp(-abs(r - s) / bandwidth)

    if weighted:
        total = 0.0
        if wrong:
            total += sum(r * s * k(r, s) for r in wrong for s in wrong) / len(wrong) ** 2
        if right:
            total += sum((1 - r) * (1 - s) * k(r, s) for r in right for s in right) / len(right) ** 2
        if right and wrong:
            total -= 2 * sum((1 - r) * s * k(r, s) for r in right for s in wrong) / len(right) / len(wrong)
    else:
        total = sum((c - r) * (d - s) * k(r, s) for r, c in pairs for s, d in pairs) / len(pairs) ** 2
    return math.sqrt(max(total, 0.0))


@pytest.mark.parametrize("k", [2, 5])
@pytest.mark.parametrize("seed", range(5))
def test_value_is_the_metric(k, seed):
    logits, labels = draw(64, k, seed)
    exact = mmce(labels, torch.softmax(logits, dim=1))
    assert mmce_loss(logits, labels).item() == pytest.approx(exact, abs=1e-12)
    single = mmce_loss(logits.float(), labels)
    assert single.dtype == torch.float32
    assert single.item() == pytest.approx(mmce(labels, torch.softmax(logits.float(), dim=1)), abs=1e-6)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("bandwidth", [0.4, 0.01, 5.0])
def test_value_is_the_obvious_loop(weighted, bandwidth):
    logits, labels = draw(30, 4)
    value = mmce_loss(logits, labels, weighted=weighted, bandwidth=bandwidth).item()
    assert value == pytest.approx(oracle(logits, labels, weighted, bandwidth), rel=1e-10)


@pytest.mark.parametrize("weighted", [False, True])
def test_only_right_or_only_wrong_answers(weighted):
    logits, _ = draw(12, 3)
    for labels in (logits.argmax(dim=1), (logits.argmax(dim=1) + 1) % 3):
        assert mmce_loss(logits, labels, weighted=weighted).item() == pytest.approx(oracle(logits, labels, weighted))
    assert mmce_loss(logits[:1], torch.tensor([0]), weighted=weighted).item() == pytest.approx(
        oracle(logits[:1], torch.tensor([0]), weighted)
    )


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("bandwidth", [0.4, 0.05])
def test_gradient_is_the_numerical_one(weighted, bandwidth):
    logits, labels = draw(12, 4, seed=3)
    logits.requires_grad_()
    assert torch.autograd.gradcheck(
        lambda h: mmce_loss(h, labels, weighted=weighted, bandwidth=bandwidth), logits, eps=1e-7, atol=1e-6
    )


def test_gradient_is_what_autograd_finds_through_all_pairs():
    logits, labels = draw(50, 3, seed=1)
    labels[:25] = logits[:25].argmax(dim=1)
    logits[10:14] = logits[10]  # equal confidences
    a, b = logits.clone().requires_grad_(), logits.clone().requires_grad_()
    mmce_loss(a, labels).backward()
    r, top = b.softmax(dim=1).max(dim=1)
    gap = (top == labels).double() - r
    kernel = torch.exp(-(r[:, None] - r).abs() / 0.4)
    (gap[:, None] * gap * kernel).mean().sqrt().backward()
    torch.testing.assert_close(a.grad, b.grad, rtol=1e-10, atol=1e-14)


def test_pairs_in_parts_are_pairs_at_once(monkeypatch):
    logits, labels = draw(37, 3)
    whole = logits.clone().requires_grad_()
    mmce_loss(whole, labels).backward()
    monkeypatch.setattr(losses, "PAIRS", 100)
    parts = logits.clone().requires_grad_()
    value = mmce_loss(parts, labels)
    value.backward()
    assert value.item() == pytest.approx(mmce_loss(logits, labels).item(), rel=1e-14)
    torch.testing.assert_close(parts.grad, whole.grad, rtol=1e-12, atol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(
    ("logits", "labels"),
    [
        ([[900.0, 0.0], [0.0, 900.0]], [0, 1]),  # sure and right: every gap is 0
        ([[0.0, 0.0], [0.0, 0.0]], [0, 1]),  # gaps that cancel: one right, one wrong, both at 1/2
        ([[40.0, 0.0], [0.0, 41.0], [39.0, 0.0]], [0, 1, 0]),  # as good as sure
        ([[1e-9, 0.0], [0.0, 0.0]], [0, 1]),  # a hair from the case above
        ([[0.0, -math.inf, 1.0], [0.0, 2.0, -math.inf]], [0, 1]),  # masked classes
    ],
)
def test_gradient_is_finite(logits, labels, weighted, dtype):
    h = torch.tensor(logits, dtype=dtype, requires_grad=True)
    value = mmce_loss(h, torch.tensor(labels), weighted=weighted)
    value.backward()
    assert value.item() >= 0
    assert torch.isfinite(h.grad).all()


def test_half_precision_is_worked_on_in_double():
    logits, labels = draw(64, 5)
    for dtype in (torch.float16, torch.bfloat16):
        rounded = logits.to(dtype).requires_grad_()
        value = mmce_loss(rounded, labels)
        value.backward()
        assert value.dtype == torch.float32
        assert rounded.grad.dtype == dtype
        assert value.item() == pytest.approx(mmce_loss(rounded.detach().double(), labels).item(), abs=1e-7)


def test_samples_can_be_left_out():
    logits, labels = draw(20, 3)
    dropped = labels.clone()
    dropped[::3] = -100
    keep = dropped != -100
    h = logits.clone().requires_grad_()
    value = mmce_loss(h, dropped, ignore_index=-100)
    assert value.item() == mmce_loss(logits[keep], labels[keep]).item()
    value.backward()
    assert not h.grad[~keep].any()
    assert h.grad[keep].any()

    nothing = mmce_loss(h, torch.full_like(labels, -100), ignore_index=-100)
    h.grad = None
    nothing.backward()
    assert nothing.item() == 0
    assert not h.grad.any()


def test_nan_logits_make_it_nan():
    # As in the cross-entropy: whoever scales gradients for half precision looks for it.
    logits, labels = draw(6, 3)
    logits[2, 1] = math.nan
    assert torch.isnan(mmce_loss(logits, labels))


def test_the_module_is_the_function():
    logits, labels = draw(20, 3)
    labels[0] = 7
    options = {"bandwidth": 0.2, "weighted": True, "ignore_index": 7}
    assert MMCELoss(**options)(logits, labels) == mmce_loss(logits, labels, **options)


@pytest.mark.parametrize("labels", [[0, 1, 3], [0, -100, 1], [0, 1], [0.0, 1.0, 2.0]])
def test_labels_that_make_no_sense(labels):
    with pytest.raises(InputError):
        mmce_loss(torch.zeros(3, 3), torch.tensor(labels))


def test_logits_and_bandwidths_that_make_no_sense():
    y = torch.tensor([0])
    for logits in (torch.zeros(2, 3, 4, 4), torch.zeros(3), np.zeros((1, 3)), torch.zeros(1, 3).long()):
        with pytest.raises(InputError):
            mmce_loss(logits, y)
    for bandwidth in (0, math.nan):
        with pytest.raises(InputError):
            MMCELoss(bandwidth=bandwidth)
