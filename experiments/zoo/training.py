"""Training and evaluation: what the network sees of an image, stochastic gradient descent, and the file of results."""

from __future__ import annotations

import json
import math
import time
from argparse import Namespace
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812 - its customary name
from torch import Tensor, nn

from attemper.metrics import evaluate
from attemper.torch import MCDropout
from experiments.zoo.data import Dataset, Images

__all__ = ["View", "save", "train"]

SIZES = {"skin": (96, 128), "birds": (192, 192)}  # what images are resampled to; others stay as they are
BATCH = 500  # in evaluation


class View:
    """What the network sees: normalised images, in training augmented at random as suits the data set."""

    def __init__(self, dataset: str, images: Images, seed: int, device: torch.device, *, pretrained: bool) -> None:
        self.dataset, self.device = dataset, device
        self.size = SIZES.get(dataset, images.x.shape[1:3])
        pixels = images.x[:: max(1, len(images.x) // 5000)].astype(np.float64)
        mean, std = (127.0, 128.0) if pretrained else (pixels.mean((0, 1, 2)), pixels.std((0, 1, 2)))
        self.mean, self.std = (
            torch.as_tensor(v, dtype=torch.float32, device=device).view(-1, 1, 1) for v in (mean, std)
        )
        self.least_area = 0.49 if dataset == "skin" else 0.35 if pretrained else 0.25  # of a random window
        self.generator = torch.Generator(device).manual_seed(1000 + seed)

    def __call__(self, x: Tensor, *, training: bool = False) -> Tensor:
        """Return a batch, N × channels × height × width, of images, N × height × width × channels."""
        x = x.permute(0, 3, 1, 2).float()
        if self.dataset in SIZES:
            x = self._resampled(x, training)
        elif self.dataset in ("cifar10", "cifar100", "svhn") and training:
            x = self._cropped(x)
        x = (x - self.mean) / self.std
        if self.dataset == "birds" and training:  # brightness, contrast and saturation, each by 0.6 to 1.4
            brightness, contrast, saturation = 0.6 + 0.8 * self._random(3, len(x), 1, 1, 1)
            mean = x.mean((1, 2, 3), keepdim=True)
            x = (x - mean) * contrast + mean * brightness
            grey = x.mean(1, keepdim=True)
            x = (x - grey) * saturation + grey
        return x.contiguous(memory_format=torch.channels_last)

    def _random(self, *shape: int) -> Tensor:
        return torch.rand(*shape, generator=self.generator, device=self.device)

    def _cropped(self, x: Tensor) -> Tensor:
        """Pad by 4 black pixels and crop at random; flip half of the images, unless they are digits."""
        n, width = len(x), x.shape[3]
        image, channel, down, across = (torch.arange(size, device=self.device) for size in x.shape)
        top, left = (9 * self._random(2, n, 1)).long()
        flipped = self._random(n, 1) < (0.0 if self.dataset == "svhn" else 0.5)
        rows, columns = top + down, left + torch.where(flipped, width - 1 - across, across)
        padded = F.pad(x, (4, 4, 4, 4))
        return padded[
            image[:, None, None, None], channel[:, None, None], rows[:, None, :, None], columns[:, None, None]
        ]

    def _resampled(self, x: Tensor, training: bool) -> Tensor:
        """Resample a window of each image: a random one in training (for skin also turned), else the middle."""
        n, aspect = len(x), x.shape[3] / x.shape[2]
        angle, mirror, shift = torch.zeros(n, device=self.device), 1.0, torch.zeros(2, n, device=self.device)
        width = height = angle + (0.9 if self.dataset == "skin" else 192 / 208)  # of the window, relative
        if training:
            area = self.least_area + (1 - self.least_area) * self._random(n)
            ratio = 1.0 if self.dataset == "skin" else (4 / 3) ** (2 * self._random(n) - 1)
            width, height = (area * ratio).sqrt().clamp(max=1), (area / ratio).sqrt().clamp(max=1)
            mirror, shift = 1 - 2 * (self._random(n) < 0.5).float(), 2 * self._random(2, n) - 1
            angle = 2 * math.pi * self._random(n) if self.dataset == "skin" else angle
        cos, sin = torch.cos(angle), torch.sin(angle)
        first = torch.stack([mirror * cos * width, -sin * height / aspect, shift[0] * (1 - width)], 1)
        second = torch.stack([mirror * sin * width * aspect, cos * height, shift[1] * (1 - height)], 1)
        grid = F.affine_grid(torch.stack([first, second], 1), [n, 3, *self.size], align_corners=False)
        return F.grid_sample(x, grid, padding_mode="reflection", align_corners=False)


def learning_rate(options: Namespace, step: int, steps_per_epoch: int) -> float:
    """Linear warm-up, then cosine to zero, or a tenth after 1/2 and a hundredth after 3/4 of training."""
    done = step / (options.epochs * steps_per_epoch)
    fall = (
        (1 + math.cos(math.pi * done)) / 2 if options.schedule == "cosine" else 0.1 ** ((done >= 0.5) + (done >= 0.75))
    )
    return float(options.lr * fall * min(1.0, (step + 1) / (options.warmup_epochs * steps_per_epoch)))


def train(net: nn.Module, view: View, data: Dataset, options: Namespace) -> None:
    """SGD with Nesterov momentum; in bfloat16 on a GPU. The last epoch is taken."""
    device = view.device
    x, y = (torch.from_numpy(values).to(device) for values in (data.train.x, data.train.y))
    batch = min(options.batch, len(y))
    n_steps = len(y) // batch
    weights, others = ([p for p in net.parameters() if (p.ndim > 1) == decayed] for decayed in (True, False))
    decay_of_others = 0.0 if options.dataset == "birds" else options.weight_decay
    groups = [
        {"params": weights, "weight_decay": options.weight_decay},
        {"params": others, "weight_decay": decay_of_others},
    ]
    optimizer = torch.optim.SGD(groups, lr=options.lr, momentum=0.9, nesterov=True)
    net.train()
    start = time.monotonic()
    for epoch in range(options.epochs):
        order, total = torch.randperm(len(y), generator=view.generator, device=device), torch.zeros((), device=device)
        for i, rows in enumerate(order[: n_steps * batch].split(batch)):
            for group in optimizer.param_groups:
                group["lr"] = learning_rate(options, epoch * n_steps + i, n_steps)
            with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
                logits = net(view(x[rows], training=True))
            loss = F.cross_entropy(logits.float(), y[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.detach()
        print(f"epoch {epoch + 1}: loss {total.item() / n_steps:.4f}, {time.monotonic() - start:.0f} s", flush=True)


def save(net: nn.Module, view: View, data: Dataset, options: Namespace, path: Path) -> dict[str, float]:
    """Write the held-out logits in the form of ``data/``; return accuracy, NLL and ECE of the test part."""
    arrays: dict[str, Any] = {"class_names": np.array(data.class_names), **data.test.extra}
    for prefix, part in (("", data.test), ("val_", data.val)):
        if part is not None:
            batches = [view(x.to(view.device)) for x in torch.from_numpy(part.x).split(BATCH)]
            net.eval()
            with torch.no_grad():
                logits = torch.cat([net(x).float() for x in batches]).cpu().numpy()
            arrays |= {f"{prefix}logits": _rounded(logits, 2.0**-10), f"{prefix}labels": part.y.astype(np.int16)}
            if options.dropout:
                probs = MCDropout(net, 100, seed=options.seed).predict(batches).probs.cpu().numpy()
                arrays[f"{prefix}mc_mean_probs"] = _rounded(probs, 2.0**-20)
    names = ("accuracy", "nll", "ece")
    found = evaluate(data.test.y, arrays["logits"], names, input="logits", confidence_level=None)
    measured = {name: found[name].value for name in names}
    recipe = {key: value for key, value in vars(options).items() if isinstance(value, str | int | float)}
    config = {**recipe, "n_train": len(data.train.y), "torch": torch.__version__, "test": measured}
    np.savez_compressed(path, **arrays, config=np.array(json.dumps(config)))
    return measured


def _rounded(values: Any, resolution: float) -> Any:
    """Round: finer digits would be noise that does not compress."""
    return (np.rint(values.astype(np.float64) / resolution) * resolution).astype(np.float32)
