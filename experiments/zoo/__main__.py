"""``python -m experiments.zoo``: train one network, and write its held-out logits."""

from __future__ import annotations

import argparse
from pathlib import Path

import torch

from experiments.zoo import data, networks, training


def main(words: list[str] | None = None) -> Path:
    """Train the network that the options describe; return the path of its file."""
    parser = argparse.ArgumentParser(prog="python -m experiments.zoo", description=__doc__)
    add = parser.add_argument
    add("--data", type=Path, default=Path(), help="folder of the data sets; README.md describes their form")
    add("--out", type=Path, default=Path(), help="folder to write to")
    add("--dataset", default="mnist", help="such as cifar10, skin, birds; digits needs no files")
    add("--arch", choices=[*networks.NETWORKS, "efficientnetlite0"], default="lenet5")
    add("--variant", default="", help="part of the name of the file, such as long")
    add("--split", choices=("random", "lesion"), default="random", help="of skin lesions")
    add("--weights", type=Path, help="published weights to begin with, for efficientnetlite0")
    add("--dropout", type=float, default=0.0, help="rate after the hidden layers of lenet5 and vgg16")
    add("--epochs", type=int, default=30)
    add("--batch", type=int, default=128)
    add("--lr", type=float, default=0.1, help="highest learning rate")
    add("--schedule", choices=("step", "cosine"), default="step")
    add("--warmup-epochs", type=float, default=1.0)
    add("--weight-decay", type=float, default=5e-4)
    add("--residual-start", choices=("zero", "one"), default="zero", help="weight of the last batch norm of a branch")
    add("--seed", type=int, default=0, help="of weights, order, augmentation and dropout")
    options = parser.parse_args(words)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    images = data.load(options.dataset, options.data, options.split)
    view = training.View(options.dataset, images.train, options.seed, device, pretrained=options.weights is not None)
    shape = {"c": images.train.x.shape[-1], "k": len(images.class_names), "side": min(view.size)}
    start = {"dropout": options.dropout, "residual_start": options.residual_start, "weights": options.weights}
    net = networks.build(options.arch, **shape, **start, seed=options.seed)
    net = net.to(device, memory_format=torch.channels_last)
    training.train(net, view, images, options)
    variant = f"-{options.variant}" if options.variant else ""
    path: Path = options.out / f"{options.arch}-{options.dataset}{variant}-s{options.seed}.npz"
    options.out.mkdir(parents=True, exist_ok=True)
    measured = training.save(net, view, images, options, path)
    print(f"{path}: " + ", ".join(f"{name} {value:.4f}" for name, value in measured.items()))
    return path


if __name__ == "__main__":
    main()
