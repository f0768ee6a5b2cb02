"""Figure 3 and its supplement: validation labels of which 10 to 50 per cent are replaced by wrong ones."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

from experiments.reproduce import networks
from experiments.reproduce.figures import curves
from experiments.reproduce.journal import Job, Row, Study
from experiments.reproduce.methods import TITLES, evaluate, fit
from experiments.reproduce.networks import MAIN, MORE, Samples, label
from experiments.reproduce.pages import gather, spread, table

__all__ = ["KINDS", "STUDY", "noisy"]

Labels = NDArray[np.int64]

KINDS = ("uniform", "confusable", "instance", "annotators")
SHARES = {"uniform": (0.1, 0.2, 0.3, 0.4, 0.5)}  # the paper's noise; the other kinds and networks have these:
FEW_SHARES = (0.1, 0.3, 0.5)
METHODS = ("none", "ts", "ats", "bayes", "structured")
SHOWN = 0.3  # share in the tables of the page
MORE_REPEATS = 5  # of the supplement, as in the paper

SOFT = 2.0  # an image looks like what the network predicts at this temperature, as the network is over-confident
CARELESSNESS, CONFUSED_SHARE = (0.3, 1.7), 0.7  # annotators: relative error rates of classes, errors by confusion


def noisy(name: str, val: Samples, kind: str, share: float, repeat: int, seed: int) -> Samples:
    """Replace a share of the labels.

    ``uniform`` draws from all classes, as the authors' code does, so that some labels stay right; the others draw a
    wrong class.
    """
    if not share:
        return val
    rng = np.random.default_rng([seed, repeat, round(100 * share), KINDS.index(kind)])
    y, (total, k), n = val.labels, val.logits.shape, int(share * len(val.labels))
    labels, p = y.copy(), softmax(val.logits.astype(np.float64) / SOFT, axis=1)
    doubt = 1 - p.max(axis=1) + 1e-3
    if kind == "uniform":
        which = rng.choice(total, n, replace=False)
        labels[which] = rng.integers(0, k, n)
    elif kind == "confusable":
        which = rng.choice(total, n, replace=False)
        labels[which] = _most_confused(name)[y[which]]
    elif kind == "annotators":
        weight = rng.uniform(*CARELESSNESS, (k,))[y] * (1 + doubt / doubt.mean())
        which = rng.choice(total, n, replace=False, p=weight / weight.sum())
        anything = (y[which] + rng.integers(1, k, n)) % k
        labels[which] = np.where(rng.random(n) < CONFUSED_SHARE, _most_confused(name)[y[which]], anything)
    else:
        which = rng.choice(total, n, replace=False, p=doubt / doubt.sum())
        p = p[which]
        p[np.arange(n), y[which]] = 0
        reached = np.cumsum(p, axis=1)
        labels[which] = (reached > rng.random((n, 1)) * reached[:, -1:]).argmax(axis=1)
    return Samples(val.logits, labels)


@lru_cache
def _most_confused(name: str) -> Labels:
    """For each class the other one to which the network gives most of its probability."""
    logits, labels = networks.load(name).samples
    total = np.zeros((logits.shape[1],) * 2)
    np.add.at(total, labels, softmax(logits.astype(np.float64) / SOFT, axis=1))
    np.fill_diagonal(total, -1)
    return np.asarray(total.argmax(axis=1))


def jobs(repeats: int) -> list[Job]:
    cases = [("none", 0.0), *((kind, share) for kind in KINDS for share in SHARES.get(kind, FEW_SHARES))]
    more = [("none", 0.0), *(("uniform", share) for share in FEW_SHARES)]
    few = min(repeats, MORE_REPEATS)
    return [
        *((name, kind, share, i) for name in MORE for kind, share in more for i in range(few)),
        *((name, kind, share, i) for name in reversed(MAIN) for kind, share in cases for i in range(repeats)),
    ]


def run(name: str, kind: str, share: float, repeat: int, seed: int) -> list[Row]:
    """Fit to noisy labels of the validation part; evaluate with the right labels of the test part."""
    val, test = networks.split(name, repeat, seed)
    spoilt = noisy(name, val, kind, share, repeat, seed)
    case = {"network": name, "kind": kind, "share": share, "repeat": repeat}
    case["labels_wrong"] = float((spoilt.labels != val.labels).mean())
    rows = []
    for method in METHODS if name in MAIN else METHODS[:-1]:
        fitted = fit(method, spoilt, noise="unknown")
        rows.append({**case, "method": method, **evaluate(fitted, test), "temperature": fitted.temperature})
    return rows


def files(rows: Sequence[Row]) -> dict[str, Any]:
    nll = gather(rows, ("network", "kind", "share", "method"), "nll")
    by_kind = {(name, kind, *key): v for (name, of, *key), v in nll.items() for kind in KINDS if of in ("none", kind)}
    panels = [(name, kind) for kind in KINDS for name in MAIN]
    supplement = {(name, *key): v for (name, _, *key), v in nll.items() if name in MORE}
    x_label = "share of labels replaced"
    n, few = (len(nll[name, "none", 0.0, "ts"]) for name in (MAIN[0], MORE[0]))
    text = f"""# Noise: wrong validation labels (Figure 3 and supplement)

A share of the validation labels is replaced by wrong ones; the methods are evaluated with the right labels of the test
part. Each of {n} repeats has its own split and its own wrong labels. TS and ATS take every label for right; the
Bayesian and the structured fit get `noise="unknown"`, also where no label is wrong. The paper shows curves without
numbers, for four networks that it does not name.

- *uniform*, the paper's noise: labels are drawn anew from all classes, so that some stay right.
- *confusable*: a wrong label is the class that the network, at T = 2, confuses most with the true one.
- *instance*: labels are wrong where the network is uncertain (at T = 2), drawn from its probabilities of the other
  classes. Nothing in logits and labels separates such errors from doubt.
- *annotators*: error rates differ between classes (by a factor of up to 1.7 / 0.3) and are higher for uncertain images;
  70 % of the wrong labels are the most confused class, the others any class.

![Test NLL against the share of wrong labels, four networks and four kinds of noise](noise.png)

*Bars show one standard deviation; axes are logarithmic. Where curves coincide, the thinner one is on top.*

## Test NLL with {SHOWN:.0%} of the labels replaced: mean ± standard deviation over {n} repeats

{_table(nll, MAIN, KINDS, METHODS)}

## Supplement: uniform noise for {len(MORE)} more networks, {few} repeats

![Test NLL against the share of wrong labels, more networks](noise-supplement.png)

Test NLL with {SHOWN:.0%} of the labels replaced ([Table 1](table1.md) explains the asterisk):

{_table(nll, MORE, ("uniform",), METHODS[:-1])}

*`python -m experiments.reproduce noise`; every number, also ECE, is in [noise.csv](noise.csv).*
"""
    titles = [f"{label(name)}\n{kind}" if kind == KINDS[0] else kind for name, kind in panels]
    return {
        "noise.md": text,
        "noise.png": curves(by_kind, panels, titles, 4, x_label),
        "noise-supplement.png": curves(
            supplement, [(name,) for name in MORE], [label(name) for name in MORE], 4, x_label
        ),
    }


STUDY = Study("noise", 10, jobs, run, files)


def _table(nll: dict[tuple[Any, ...], Any], names: Sequence[str], kinds: Sequence[str], methods: Sequence[str]) -> str:
    lines = [
        [label(name), kind, *(spread(nll[name, kind, SHOWN, m], 4) for m in methods)]
        for kind in kinds
        for name in names
    ]
    return table(["network", "noise", *(TITLES[m] for m in methods)], lines, texts=2)
