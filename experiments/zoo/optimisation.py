"""Stochastic gradient descent, and the learning rate of each step."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

MOMENTUM = 0.9
SCHEDULES = ("step", "cosine")


class NesterovSGD:
    """SGD with Nesterov momentum and weight decay; the learning rate is a tensor, so a graph can replay it."""

    def __init__(self, parameters: Iterable[nn.Parameter], weight_decay: float, device: torch.device) -> None:
        self.parameters = list(parameters)
        self.weight_decay = weight_decay
        self.velocity: list[Tensor] = [torch.zeros_like(p) for p in self.parameters]
        self.learning_rate = torch.zeros((), device=device)

    @torch.no_grad()
    def step(self) -> None:
        """Update the parameters from their gradients, which are then gone."""
        update = [p.grad for p in self.parameters]
        torch._foreach_add_(update, self.parameters, alpha=self.weight_decay)
        torch._foreach_mul_(self.velocity, MOMENTUM)
        torch._foreach_add_(self.velocity, update)
        torch._foreach_add_(update, self.velocity, alpha=MOMENTUM)
        torch._foreach_mul_(update, self.learning_rate)
        torch._foreach_sub_(self.parameters, update)
        for p in self.parameters:
            p.grad = None


def learning_rates(
    schedule: str, peak: float, epochs: int, steps_per_epoch: int, warmup_epochs: float
) -> NDArray[np.float64]:
    """One rate for each step: linear warm-up, then cosine to zero, or division by 10 at 1/2 and at 3/4."""
    step = np.arange(epochs * steps_per_epoch)
    done = step / len(step)
    if schedule == "cosine":
        rate = peak * (1 + np.cos(np.pi * done)) / 2
    else:
        rate = peak * np.where(done < 0.5, 1.0, np.where(done < 0.75, 0.1, 0.01))
    return rate * np.minimum(1, (step + 1) / max(1, warmup_epochs * steps_per_epoch))
