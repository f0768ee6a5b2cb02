"""The maximum mean calibration error as a loss: what a network can be trained on, in torch.

Importing this module needs torch; ``import attemper`` does not import it.
"""

from __future__ import annotations

from typing import Any

from attemper._checks import positive
from attemper.data.arrays import as_matrix, row_slices
from attemper.errors import InputError, InputTypeError, require
from attemper.metrics.calibration import MMCE_WIDTH

torch: Any = require("torch", extra="torch", why="for training losses")

__all__ = ["MMCELoss", "mmce_loss"]

# Pairs of samples that are worked on at once: 32 MB in double precision.
PAIRS = 1 << 22

# Where the loss is smaller its root is as steep as here: at 0 the slope of a root is infinite.
FLAT_BELOW = 1e-5


def mmce_loss(
    logits: Any,
    labels: Any,
    *,
    bandwidth: float = MMCE_WIDTH,
    weighted: bool = False,
    ignore_index: int | None = None,
) -> Any:
    r"""MMCE of a batch, to be added to the cross-entropy that a network is trained on.

    .. math:: \Big( \sum_{ij} w_i w_j (c_i - r_i)(c_j - r_j) e^{-|r_i - r_j| / b} \Big)^{1/2}

    with confidence r, c = 1 where the most probable class is the label, and weights w = 1/N: then it is
    `attemper.metrics.mmce`. Inside it works in double precision (in single where the device has no other), in
    time N² and memory for a part of the pairs, so that N may be the pixels of an image. NaN logits make it NaN, as
    they make the cross-entropy. Its gradient is finite everywhere, and 0 where confidence and answers agree.

    Parameters
    ----------
    logits : tensor of shape (N, K)
    labels : tensor of shape (N,)
        Column numbers.
    bandwidth : float
        b, the width of the kernel; 0.4 in the paper.
    weighted : bool
        The paper's re-weighted MMCE_w: right and wrong answers weigh the same in total, w = 1 / (number of answers
        that are alike), since a network that has learnt its training set gives few wrong ones. A batch with only
        right or only wrong answers has these alone.
    ignore_index : int, optional
        A label that marks samples to leave out, such as -100. If all are left out, the loss is 0.

    Returns
    -------
    tensor of shape (), in the precision of the logits, at least single

    References
    ----------
    A. Kumar, S. Sarawagi, U. Jain, Trainable calibration measures for neural networks from
    kernel mean embeddings, 2018.

    Examples
    --------
    >>> import torch
    >>> logits = torch.tensor([[2.0, 0.0], [0.0, 1.0], [0.0, 3.0]], requires_grad=True)
    >>> labels = torch.tensor([0, 1, 0])
    >>> loss = torch.nn.functional.cross_entropy(logits, labels) + 2 * mmce_loss(logits, labels)
    >>> loss.backward()
    >>> round(mmce_loss(logits, labels).item(), 4)
    0.248
    """
    positive("bandwidth", bandwidth)
    y = _check(logits, labels, ignore_index)
    if ignore_index is not None:
        logits, y = logits[y != ignore_index], y[y != ignore_index]
    dtype = logits.dtype if logits.dtype == torch.float64 else torch.float32
    if not len(y):
        return logits.sum().to(dtype)  # the sum of nothing: 0, and part of the graph
    # The square has digits to lose: it is a sum of N² terms that cancel.
    exact = torch.float32 if logits.device.type == "mps" else torch.float64
    confidence, top = logits.to(exact).softmax(dim=1).max(dim=1)
    right = (top == y).to(exact)
    if weighted:
        n_right = right.sum()
        alike = torch.where(right == 1, n_right, len(y) - n_right)
    else:
        alike = torch.full_like(right, len(y))
    return _Mmce.apply(confidence, right, 1 / alike, float(bandwidth)).to(dtype)


class MMCELoss(torch.nn.Module):  # type: ignore[misc]
    """`mmce_loss` as a module; parameters as there.

    Examples
    --------
    >>> import torch
    >>> loss = MMCELoss(weighted=True)
    >>> round(loss(torch.tensor([[2.0, 0.0], [0.0, 3.0]]), torch.tensor([0, 0])).item(), 4)
    0.8555
    """

    def __init__(
        self, *, bandwidth: float = MMCE_WIDTH, weighted: bool = False, ignore_index: int | None = None
    ) -> None:
        super().__init__()
        positive("bandwidth", bandwidth)
        self.options: dict[str, Any] = {"bandwidth": bandwidth, "weighted": weighted, "ignore_index": ignore_index}

    def forward(self, logits: Any, labels: Any) -> Any:
        """Return the MMCE of this batch."""
        return mmce_loss(logits, labels, **self.options)


class _Mmce(torch.autograd.Function):  # type: ignore[misc]
    """The root, with its gradient in closed form: no N×N matrix need be kept for the way back."""

    @staticmethod
    def forward(ctx: Any, r: Any, c: Any, w: Any, bandwidth: float) -> Any:
        a = w * (c - r)
        pull, tilt = torch.empty_like(a), torch.empty_like(a)
        for block in row_slices(len(a), len(a), PAIRS):
            distance = r[block, None] - r
            terms = torch.exp(-distance.abs() / bandwidth) * a
            pull[block] = terms.sum(dim=1)
            tilt[block] = (terms * distance.sign()).sum(dim=1)  # equal confidences do not push each other apart
        root = (a * pull).sum().clamp(min=0).sqrt()
        # Half the slope of the square: through the gaps, and through the kernel.
        slope = -(w * pull + a * tilt / bandwidth)
        ctx.save_for_backward(slope / root.clamp(min=FLAT_BELOW))
        return root

    @staticmethod
    @torch.autograd.function.once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, grad: Any) -> Any:
        (slope,) = ctx.saved_tensors
        return grad * slope, None, None, None


def _check(logits: Any, labels: Any, ignore_index: int | None) -> Any:
    """Check shapes and labels; return the labels beside the logits."""
    if not isinstance(logits, torch.Tensor) or not logits.is_floating_point():
        raise InputTypeError("logits: expected a torch tensor of floating-point numbers")
    n, n_classes = as_matrix(logits, "logits").shape
    y = torch.as_tensor(labels, device=logits.device)
    if y.is_floating_point() or y.is_complex() or y.shape != (n,):
        raise InputError(f"labels: expected {n} column numbers, got shape {tuple(y.shape)} and dtype {y.dtype}")
    y = y.long()
    wrong = (y < 0) | (y >= n_classes)
    if ignore_index is not None:
        wrong &= y != ignore_index
    if wrong.any():
        label = int(y[wrong][0])
        raise InputError(
            f"labels: expected 0 to {n_classes - 1}, got {label}; to leave such samples out use ignore_index={label}"
        )
    return y
