"""Metrics for torchmetrics and Lightning: calibration errors, NLL, Brier score and accuracy, in a few sums.

The state is one table of sums, O(bins), whatever the number of samples; parts on several devices or processes add up.
The values are those of `attemper.metrics` on everything seen. As in torchmetrics, and unlike there, predictions come
first: ``update(preds, target)``. Nothing is guessed: ``input="logits"`` for logits.

Importing this module needs torch and torchmetrics; ``import attemper`` does not import it.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, get_args

from attemper._checks import one_of, whole
from attemper.errors import InputError, InputTypeError, require
from attemper.metrics.bins import (
    BY_CLASS,
    Bins,
    Kind,
    Norm,
    check_bins,
    check_kind,
    check_norm,
    error_of,
    n_tables,
)
from attemper.metrics.predictions import Input

torch: Any = require("torch", extra="torchmetrics", why="for metrics of torchmetrics")
torchmetrics: Any = require("torchmetrics", extra="torchmetrics", why="for metrics of torchmetrics")

from attemper.torch.batch import Batch, refused_at_last  # noqa: E402 (it needs torch)

__all__ = ["NLL", "Accuracy", "Brier", "CalibrationError"]

# Cells that a GPU adds to at once: samples of one cell wait for each other. Chosen with benchmarks/gpu_metrics.py.
SPREAD = 4096

NEEDS_ROWS = (
    "needs all confidences at once, and this class keeps sums. Use attemper.metrics.{} on predictions that you keep, "
    "such as those of torchmetrics.CatMetric."
)


class _Sums(torchmetrics.Metric):  # type: ignore[misc]
    """What all classes share: one state of sums, and how a batch is read."""

    refused: Any

    full_state_update = False
    is_differentiable = False

    def __init__(
        self, *, input: Input = "probs", axis: int | None = None, ignore_index: int | None = None, **kwargs: Any
    ):
        if "num_classes" in kwargs:
            raise InputTypeError("got num_classes, expected n_classes. Use n_classes=… for bins of each class alone.")
        super().__init__(**kwargs)
        one_of("input", input, get_args(Input))
        for name, number in (("axis", axis), ("ignore_index", ignore_index)):
            if number is not None:
                whole(name, number, at_least=-(2**63))
        self.input: Input = input
        self.axis = axis
        self.ignore_index = ignore_index

    def _add_sums(self, name: str, *shape: int) -> None:
        """Add the state. Its name is that of no other: a MetricCollection shares equal states of equal names."""
        which = "all" if self.ignore_index is None else f"all_but_{self.ignore_index}".replace("-", "minus_")
        self._name = f"{name}_{which}"
        self.add_state(self._name, torch.zeros(shape, dtype=torch.float64), dist_reduce_fx="sum")
        self.add_state("refused", torch.zeros(2, dtype=torch.int64), dist_reduce_fx="sum")

    @property
    def sums(self) -> Any:
        """The sums of everything seen since the last reset."""
        return getattr(self, self._name)

    def update(self, preds: Any, target: Any, sample_weight: Any = None) -> None:
        """Take in one more batch. On a GPU it is not waited for, and `compute` raises what was wrong with it."""
        batch, refused = Batch.of(
            preds,
            target,
            sample_weight,
            input=self.input,
            axis=self.axis,
            ignore_index=self.ignore_index,
            dtype=self.sums.dtype,
        )
        setattr(self, self._name, self.sums + self._sums_of(batch))
        self.refused = self.refused + refused

    def compute(self) -> Any:
        """Return the value for everything seen since the last reset; NaN if that is nothing."""
        refused_at_last(self.refused, self.input)
        return torch.where(self.sums[0].sum() > 0, self._value(self.sums), torch.nan)

    @abstractmethod
    def _sums_of(self, batch: Batch) -> Any:
        """Return the sums of one batch; the first are the weights."""

    @abstractmethod
    def _value(self, sums: Any) -> Any:
        """Metric as a function of the sums."""


class CalibrationError(_Sums):
    """ECE, MCE or RMS calibration error in bins of equal width: `attemper.metrics.ece` of everything seen.

    Parameters
    ----------
    kind : {"top", "classwise", "full", "binary", "top_label"}
        As in `attemper.metrics.ece`. torchmetrics' ``task="multiclass"`` is "top", its ``task="binary"`` is "binary".
    n_bins : int
        Bins (lo, hi]; the first takes 0 too. Those of torchmetrics are [lo, hi), and 1 has a bin of its own.
    norm : float or "max"
        1 for the ECE, 2 for the RMS calibration error, "max" for the MCE.
    n_classes : int, optional
        Needed for the kinds "classwise" and "top_label", which have bins for each class.
    debiased : bool
        As in `attemper.metrics.ece`; for ``norm=2``.
    strategy : {"uniform"}
        Bins of equal weight would need all confidences: use `attemper.metrics.ece`.
    input : {"probs", "log_probs", "logits"}
        What ``preds`` holds; half precision is read in single.
    axis : int, optional
        Where the classes are if ``preds`` have three dimensions or more: 1 for (N, K, H, W), -1 for (B, L, V).
        ``target`` has the shape without it. A vector of N predictions, or one column, is that of the second of two
        classes.
    ignore_index : int, optional
        A label that does not count, such as -100.
    kwargs
        Those of `torchmetrics.Metric`, such as ``sync_on_compute``.

    Examples
    --------
    >>> import torch
    >>> metric = CalibrationError(n_bins=4)
    >>> metric.update(torch.tensor([[0.9, 0.1], [0.2, 0.8]]), torch.tensor([0, 1]))
    >>> metric.update(torch.tensor([[0.3, 0.7], [0.4, 0.6]]), torch.tensor([0, 1]))
    >>> round(metric.compute().item(), 3)
    0.15
    """

    higher_is_better = False
    plot_lower_bound: float = 0.0
    plot_upper_bound: float = 1.0

    def __init__(
        self,
        *,
        kind: Kind = "top",
        n_bins: Bins = 15,
        norm: Norm = 1,
        n_classes: int | None = None,
        debiased: bool = False,
        strategy: str = "uniform",
        input: Input = "probs",
        axis: int | None = None,
        ignore_index: int | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(input=input, axis=axis, ignore_index=ignore_index, **kwargs)
        if kind in ("smooth", "corp"):
            other = "smooth_ece" if kind == "smooth" else "corp_reliability"
            raise InputError(f"kind={kind!r}: it {NEEDS_ROWS.format(other)}")
        check_kind(kind)
        if strategy == "quantile" or n_bins == "auto":
            what = "strategy='quantile'" if strategy == "quantile" else "n_bins='auto'"
            raise InputError(f"{what}: it {NEEDS_ROWS.format('ece')} Here use strategy='uniform' and a whole n_bins.")
        one_of("strategy", strategy, ("uniform",))
        self.n_bins = check_bins(n_bins)
        check_norm(norm)
        if debiased and norm != 2:
            raise InputError(f"debiased=True corrects squared gaps: expected norm=2, got norm={norm!r}")
        if kind in BY_CLASS and n_classes is None:
            raise InputError(f"kind={kind!r}: it has bins for each class. Use n_classes=K, the number of classes.")
        if n_classes is not None:
            whole("n_classes", n_classes, at_least=2)
            check_kind(kind, n_classes)
        self.kind: Kind = kind
        self.norm: Norm = norm
        self.n_classes = n_classes
        self.debiased = debiased
        self._add_sums(kind, 3, n_tables(kind, n_classes or 2) * self.n_bins)

    def _sums_of(self, batch: Batch) -> Any:
        if self.n_classes is not None and batch.n_classes != self.n_classes:
            raise InputError(f"preds: expected {self.n_classes} classes, as n_classes, got {batch.n_classes}")
        check_kind(self.kind, batch.n_classes)
        added = torch.zeros_like(self.sums)
        if self.kind in ("top", "top_label"):
            first = batch.prediction * self.n_bins if self.kind == "top_label" else 0
            self._put(added, batch.confidence, batch.right, batch.weight, first)
            return added
        for k, count in [(1, 1)] if self.kind == "binary" else batch.class_blocks():
            p, right = batch.of_classes(k, count)
            weight = batch.weight.unsqueeze(batch.dim).expand_as(p)
            first = 0
            if self.kind == "classwise":
                first = torch.arange(k, k + count, device=p.device) * self.n_bins
                first = first.reshape([-1 if d == batch.dim else 1 for d in range(p.ndim)])
            self._put(added, p, right, weight, first)
        return added

    def _put(self, sums: Any, p: Any, right: Any, weight: Any, first: Any) -> None:
        """Add pairs to their cells; ``first`` is the first cell of their tables."""
        inner = torch.arange(1, self.n_bins, device=p.device).to(p.dtype) / self.n_bins  # those of `uniform_edges`
        cells = torch.searchsorted(inner, p.contiguous()) + first  # (lo, hi]: how many edges lie below
        rows = torch.stack([part.flatten() for part in (weight, weight * p, weight * right)])
        cells, size = cells.flatten(), sums.shape[1]
        copies = _copies(sums.device, size)
        if copies > 1:
            cells = cells + size * (torch.arange(len(cells), device=cells.device) % copies)
        spread = torch.zeros(3, copies * size, dtype=sums.dtype, device=sums.device).index_add_(1, cells, rows)
        sums += spread.reshape(3, copies, size).sum(dim=1)

    def _value(self, sums: Any) -> Any:
        # One long table: errors are sums, or the largest, over all bins of all tables.
        return error_of([sums[..., None]], self.norm, debiased=self.debiased)[0]


def _copies(device: Any, size: int) -> int:
    """How often a table of this size is kept while a batch is added to it."""
    return 1 if device.type == "cpu" else max(1, SPREAD // size)


class _Mean(_Sums):
    """Mean of a loss."""

    higher_is_better = False

    def __init__(
        self, *, input: Input = "probs", axis: int | None = None, ignore_index: int | None = None, **kwargs: Any
    ) -> None:
        super().__init__(input=input, axis=axis, ignore_index=ignore_index, **kwargs)
        self._add_sums(type(self).__name__.lower(), 2)

    def _sums_of(self, batch: Batch) -> Any:
        losses = torch.where(batch.weight > 0, batch.weight * self._losses(batch), 0.0)  # not 0 · inf
        return torch.stack([batch.weight.sum(), losses.sum()])

    def _value(self, sums: Any) -> Any:
        return sums[1] / sums[0]

    @abstractmethod
    def _losses(self, batch: Batch) -> Any:
        """Loss of each sample."""


class NLL(_Mean):
    """Mean negative log-likelihood: `attemper.metrics.nll` of everything seen. Parameters as in `CalibrationError`.

    Examples
    --------
    >>> import torch
    >>> metric = NLL(input="logits", axis=-1, ignore_index=-100)
    >>> logits = torch.tensor([[[2.0, 0.0], [0.0, 1.0], [0.0, 0.0]]])  # one text of three tokens
    >>> metric.update(logits, torch.tensor([[0, 1, -100]]))
    >>> round(metric.compute().item(), 4)
    0.2201
    """

    def _losses(self, batch: Batch) -> Any:
        return -batch.log_likelihood


class Brier(_Mean):
    """Brier score, summed over the classes: `attemper.metrics.brier` of everything seen.

    Parameters as in `CalibrationError`.

    Examples
    --------
    >>> import torch
    >>> metric = Brier()
    >>> round(metric(torch.tensor([[0.5, 0.5], [0.2, 0.8]]), torch.tensor([0, 1])).item(), 4)
    0.29
    """

    def _losses(self, batch: Batch) -> Any:
        return batch.squared_errors


class Accuracy(_Mean):
    """Share of samples whose most probable class is the label: `attemper.metrics.accuracy` of everything seen.

    Parameters as in `CalibrationError`.

    Examples
    --------
    >>> import torch
    >>> metric = Accuracy()
    >>> metric(torch.tensor([[0.5, 0.5], [0.8, 0.2]]), torch.tensor([0, 1])).item()
    0.5
    """

    higher_is_better = True

    def _losses(self, batch: Batch) -> Any:
        return batch.right.to(batch.weight.dtype)
