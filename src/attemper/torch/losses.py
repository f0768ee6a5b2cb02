"""The maximum mean calibration error as a loss: what a network can be trained on."""

from __future__ import annotations

from typing import Any

from attemper.errors import InputError, require

torch: Any = require("torch", extra="torch", why="for training losses")

__all__ = ["MMCELoss", "mmce_loss"]

WIDTH = 0.4  # of the kernel, in the paper
FLAT_BELOW = 1e-5  # where the loss is smaller its root is as steep as here: at 0 the slope of a root is infinite


def mmce_loss(
    logits: Any, labels: Any, *, bandwidth: float = WIDTH, weighted: bool = False, ignore_index: int | None = None
) -> Any:
    r"""MMCE of a batch (Kumar et al. 2018), to be added to the cross-entropy that a network is trained on.

    .. math:: \Big( \sum_{ij} w_i w_j (c_i - r_i)(c_j - r_j) e^{-|r_i - r_j| / b} \Big)^{1/2}

    with confidence r, c = 1 where the most probable class is the label, and weights w = 1/N: then it is
    `attemper.metrics.mmce`. It takes time and memory N²; its gradient is finite everywhere.

    Parameters
    ----------
    logits, labels : tensors of shape (N, K) and (N,), the labels being column numbers
    bandwidth : b, the width of the kernel
    weighted : the paper's re-weighted MMCE_w: right and wrong predictions weigh the same in total
    ignore_index : a label that marks samples to leave out, such as -100; if all are left out, the loss is 0

    >>> logits = torch.tensor([[2.0, 0.0], [0.0, 1.0], [0.0, 3.0]], requires_grad=True)
    >>> labels = torch.tensor([0, 1, 0])
    >>> loss = torch.nn.functional.cross_entropy(logits, labels) + 2 * mmce_loss(logits, labels)
    >>> loss.backward()
    >>> round(mmce_loss(logits, labels).item(), 4)
    0.248
    """
    if not bandwidth > 0:
        raise InputError(f"bandwidth={bandwidth!r}: expected a positive number", "bandwidth")
    if logits.ndim != 2 or labels.shape != logits.shape[:1]:
        raise InputError(f"labels: expected one for each row of N×K logits, got {tuple(labels.shape)}", "labels")
    if ignore_index is not None:
        logits, labels = logits[labels != ignore_index], labels[labels != ignore_index]
    dtype = logits.dtype if logits.dtype == torch.float64 else torch.float32
    if not len(labels):
        return logits.sum().to(dtype)  # the sum of nothing: 0, and part of the graph
    # The square has digits to lose: it is a sum of N² terms that cancel. Apple's GPUs have single precision alone.
    exact = torch.float32 if logits.device.type == "mps" else torch.float64
    r, top = logits.to(exact).softmax(dim=1).max(dim=1)
    right = (top == labels).to(exact)
    alike = torch.where(right == 1, right.sum(), len(labels) - right.sum()) if weighted else len(labels)
    gap = (right - r) / alike
    square = gap @ torch.exp(-(r[:, None] - r).abs() / bandwidth) @ gap
    # The slope of the root is finite at 0 this way, and the value is that of the root.
    root = square.detach().clamp(min=0).sqrt()
    return (root + (square - square.detach()) / (2 * root.clamp(min=FLAT_BELOW))).to(dtype)


class MMCELoss(torch.nn.Module):  # type: ignore[misc]
    """`mmce_loss` as a module, with its options."""

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.options = options

    def forward(self, logits: Any, labels: Any) -> Any:
        """Return the MMCE of this batch."""
        return mmce_loss(logits, labels, **self.options)
