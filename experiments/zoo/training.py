"""One network in training.

Everything that a step needs lives on the device, down to the position in the epoch, so that on a GPU the step is
captured once as a CUDA graph and replayed; several runs then share a GPU, each with a stream of its own.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - its customary name
from torch import Tensor

from attemper.errors import FileError
from experiments.zoo.data import Dataset
from experiments.zoo.networks import Dropout, build_network
from experiments.zoo.optimisation import NesterovSGD, learning_rates
from experiments.zoo.recipes import RunOptions, recipe
from experiments.zoo.views import VIEWS

EAGER_STEPS = 4  # real training steps taken before the step is captured as a CUDA graph

# Seeds of the two generators, apart from each other and from the one that draws the first weights.
SHUFFLING_SEED, DROPPING_SEED = 1000, 2000


class StoppedError(Exception):
    """Training was told to stop before its end."""


class Run:
    """A network, its data on the device, and how far it has come; whole epochs can be saved and taken up again."""

    def __init__(self, options: RunOptions, data: Dataset, device: torch.device) -> None:
        self.options, self.data, self.device = options, data, device
        self.on_gpu = device.type == "cuda"
        self.stream = torch.cuda.Stream(device, priority=-options.priority) if self.on_gpu else None
        train, seed = data.train, options.seed
        self.view = VIEWS[options.view](train.images, device)
        self.batch = min(options.batch, len(train.labels))
        self.steps_per_epoch = len(train.labels) // self.batch
        self.recipe = recipe(options, data, self.batch, type(self.view).__name__)
        self.net = build_network(
            options.arch,
            train.images.shape[-1],
            len(data.class_names),
            self.view.size,
            dropout=options.dropout,
            seed=seed,
            residual_start=options.residual_start,
        ).to(device, memory_format=torch.channels_last)
        self.net.train()
        self.images = self.view.store(torch.from_numpy(train.images).to(device))
        self.labels = torch.from_numpy(train.labels).to(device)
        self.optimizer = NesterovSGD(self.net.parameters(), options.weight_decay, device)
        rates = learning_rates(
            options.schedule, options.lr, options.epochs, self.steps_per_epoch, options.warmup_epochs
        )
        self.rates = torch.tensor(rates, dtype=torch.float32, device=device)
        self.steps_taken = torch.zeros(1, dtype=torch.long, device=device)
        self.lane = torch.arange(self.batch, device=device)
        self.order = torch.zeros(len(train.labels), dtype=torch.long, device=device)
        self.draws = torch.zeros(len(train.labels), self.view.DRAWS, device=device)
        self.loss_sum = torch.zeros((), device=device)
        self.shuffling = torch.Generator(device).manual_seed(SHUFFLING_SEED + seed)
        self.dropping = torch.Generator(device).manual_seed(DROPPING_SEED + seed)
        self.dropouts = [m for m in self.net.modules() if isinstance(m, Dropout) and m.rate > 0]
        for layer in self.dropouts:
            layer.generator = self.dropping
        self.graph: torch.cuda.CUDAGraph | None = None
        self.epochs_done = 0
        self.steps_into_epoch = 0
        self.seconds = 0.0  # spent in training, over all sittings
        self.stopping = threading.Event()

    def __str__(self) -> str:
        return self.options.name

    @property
    def precision(self) -> str:
        """How the network computes; without a GPU in float32, for few CPUs are fast at bfloat16."""
        if self.on_gpu:
            return "bfloat16 autocast in training, float32 (TF32 convolutions) in evaluation"
        return "float32"

    @property
    def is_trained(self) -> bool:
        """Whether all epochs are done."""
        return self.epochs_done == self.options.epochs

    def train_step(self) -> None:
        """Forward, backward and update on the next batch of the epoch; the position is read from the device."""
        position = self.steps_taken % self.steps_per_epoch * self.batch + self.lane
        index = self.order[position]
        x = self.view.train_batch(self.images, index, self.draws[position])
        x = x.contiguous(memory_format=torch.channels_last)
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.on_gpu, cache_enabled=False):
            logits = self.net(x)
        loss = F.cross_entropy(logits.float(), self.labels[index])
        loss.backward()
        self.optimizer.learning_rate.copy_(self.rates[self.steps_taken][0])
        self.optimizer.step()
        self.loss_sum += loss.detach()
        self.steps_taken += 1

    def begin_epoch(self) -> None:
        """Draw everything that the epoch leaves to chance, but for dropout."""
        self.order.copy_(torch.randperm(len(self.order), generator=self.shuffling, device=self.device))
        self.draws.uniform_(generator=self.shuffling)
        self.loss_sum.zero_()

    def capture(self) -> None:
        """Take the first steps of the epoch that comes next, then capture the step; without a GPU, do nothing.

        The steps are real ones: they let cuDNN choose its algorithms and the allocator settle before the capture,
        which itself takes none.
        """
        if self.stream is None or self.is_trained:
            return
        torch.cuda.synchronize()
        with torch.cuda.stream(self.stream):
            self.begin_epoch()
            self.steps_into_epoch = min(EAGER_STEPS, self.steps_per_epoch)
            for _ in range(self.steps_into_epoch):
                self.train_step()
        torch.cuda.synchronize()
        self.graph = torch.cuda.CUDAGraph()
        if self.dropouts:
            self.graph.register_generator_state(self.dropping)
        with torch.cuda.graph(self.graph, stream=self.stream):
            self.train_step()

    def epochs(self) -> Iterator[int]:
        """Train epoch by epoch from where the run stands; yields how many are done."""
        step = self.train_step if self.graph is None else self.graph.replay
        while not self.is_trained:
            if not self.steps_into_epoch:
                self.begin_epoch()
            for _ in range(self.steps_into_epoch, self.steps_per_epoch):
                if self.stopping.is_set():
                    raise StoppedError
                step()
            self.steps_into_epoch = 0
            self.epochs_done += 1
            yield self.epochs_done

    def mean_loss(self) -> float:
        """Mean training loss of the epoch so far."""
        return self.loss_sum.item() / self.steps_per_epoch

    def state(self) -> dict[str, Any]:
        """All that the rest of the training depends on, at the end of an epoch, as tensors on the CPU and numbers."""
        return {
            "epochs_done": self.epochs_done,
            "seconds": self.seconds,
            "weights": self.weights(),
            "velocity": [v.cpu() for v in self.optimizer.velocity],
            "shuffling": self.shuffling.get_state(),
            "dropping": self.dropping.get_state(),
        }

    def weights(self) -> dict[str, Tensor]:
        """Parameters and running statistics, on the CPU."""
        return {name: tensor.cpu() for name, tensor in self.net.state_dict().items()}

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from a state; before `capture`, for the tensors that a graph knows must be the ones that are set."""
        try:
            self.net.load_state_dict(state["weights"])
            with torch.no_grad():
                for velocity, stored in zip(self.optimizer.velocity, state["velocity"], strict=True):
                    velocity.copy_(stored)
            self.shuffling.set_state(state["shuffling"])
            self.dropping.set_state(state["dropping"])
            self.epochs_done, self.seconds = int(state["epochs_done"]), float(state["seconds"])
        except (KeyError, TypeError, ValueError, RuntimeError) as error:
            reason = str(error).splitlines()[0]
            raise FileError(f"the state that was saved does not fit this network ({reason})") from None
        self.steps_taken.fill_(self.epochs_done * self.steps_per_epoch)
