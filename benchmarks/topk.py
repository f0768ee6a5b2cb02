"""How a temperature from the k most likely tokens compares with that over the whole vocabulary.

    python benchmarks/topk.py   # a minute

Simulated language models: logits over 5000 tokens fall with the rank of a token as in Zipf's law, with a context of
their own at each position (peaked: spread 3.5, broad: 2.0); labels are drawn from softmax(logits / T), so the true T is
known. Networks: two of `data/`, with 100 classes. "tail" counts the tail as one class, "drop" leaves it out, and the
labels in it. The loss is the mean NLL over the whole vocabulary, on other positions, with that temperature, above that
of the temperature fitted on the whole vocabulary, in thousandths.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator

import numpy as np

from attemper import TemperatureScaling, datasets
from attemper.metrics import nll
from attemper.tokens import topk_scores

TOKENS, POSITIONS = 5000, 2000
KS = (5, 20)


def simulated(t: float, spread: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Logits of a model that is t times too confident, and labels."""
    rng = np.random.default_rng(seed)
    base = -np.log(np.arange(1, TOKENS + 1) + 2.7)
    h = t * (base + spread * rng.normal(size=(2 * POSITIONS, TOKENS)))
    return h, (h / t + rng.gumbel(size=h.shape)).argmax(axis=1)


def sets() -> Iterator[tuple[str, np.ndarray, np.ndarray, np.ndarray, np.ndarray]]:
    """Name, validation logits and labels, test logits and labels."""
    for spread, kind in ((3.5, "peaked"), (2.0, "broad")):
        for t in (0.8, 1.0, 1.3, 1.7):
            h, y = simulated(t, spread, seed=1)
            yield f"simulated, {kind}, T = {t}", h[:POSITIONS], y[:POSITIONS], h[POSITIONS:], y[POSITIONS:]
    for name in ("resnet110-cifar100-s0", "vgg16-cifar100-s0"):
        found = datasets.load(name)
        yield name, found.val_logits, found.val_labels, found.test_logits, found.test_labels


def main() -> None:
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    print("| set | T, whole vocabulary | k | labels in the tail | T, tail as a class | loss | T, tail dropped | loss |")
    print("|---" * 8 + "|")
    for name, h, y, h2, y2 in sets():
        whole = TemperatureScaling().fit(h, y)
        best = nll(y2, whole.predict_proba(h2))
        for k in KS:
            as_class = topk_scores(h, y, k=k)
            cells = [name, f"{whole.temperature_:.3f}", f"{k}", f"{(as_class.labels == k).mean():.0%}"]
            for scores in (as_class, topk_scores(h, y, k=k, tail="drop")):
                ts = TemperatureScaling().fit(scores)
                cells += [f"{ts.temperature_:.3f}", f"{1000 * (nll(y2, ts.map_.apply(h2)) - best):.1f}"]
            print("| " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
