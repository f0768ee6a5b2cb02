"""Other class priors: `adapt` on unlabelled data beside a fit with all target labels, set by set.

    python benchmarks/priors.py FOLDER [--method structured] [--draws 2] [--sets llm_]
    python benchmarks/priors.py FOLDER --drift        # what the test of label shift finds, and when

FOLDER holds an .npz file with the arrays logits and labels (see benchmarks/sets.py) for each set of NAMES below; those
of data/ are read from there.

Half of a set is validation data. The classes of the other half are thinned out: class k keeps the share
factor^(u_k − 1) of its samples, u being 0 … 1 in random order, so that the largest change is ``factor`` times the
smallest. Half of what is left is the target data: `adapt` sees them without labels, "refit" is the same method, or
structured scaling where that is better, fitted with all of their labels. The rest evaluates: mean NLL. "known" is
`with_priors` with the true shares of the target data.

One set of each family: networks of one family share their faults. Nothing was chosen on these tables but what
docs/priors.md names.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np

import sets
from attemper import AttemperWarning, LabelShiftError
from attemper.calibrators import METHODS
from families import seeds

HERE = Path(__file__).parent.parent
NAMES = {
    "cifar10_garg--L2568": "CIFAR-10 (garg L2568)",
    "cifar_netcal--lenet-5-cifar-10": "CIFAR-10, LeNet-5 (netcal)",
    "cifar_netcal--wideresnet-16-4-cifar-100": "CIFAR-100 (netcal)",
    "ferrer_mit--pathmnist_resnet50": "PathMNIST",
    "ferrer_mit--iemocap_wav2vec_pt": "IEMOCAP, speech",
    "ferrer_mit--agnews_gpt2": "AG News, GPT-2",
    "llm_bluq--gemma-2-9b-it_qa_float32_base": "questions, Gemma 2 9B",
    "llm_emotion--Qwen-14B_emotion_10k_4_base_icl0": "emotions, Qwen 14B",
    "mnist_pycalib--random_forest_8a2d8f": "MNIST, random forest",
    "resnet200-skin-randomsplit-s0": "skin lesions",
}
FACTORS = (1, 2, 5, 20)
FEW = (100, 1000)
RESAMPLES = 100


def path_of(folder, name):
    own = HERE / "data" / f"{name}.npz"
    return own if own.exists() else folder / f"{name}.npz"


def thinned(y, k, factor, rng):
    """Rows that are left, if classes are thinned out by factors of up to ``factor``."""
    keep = float(factor) ** (rng.permutation(np.linspace(0, 1, k)) - 1)
    return np.flatnonzero(rng.random(len(y)) < keep[y])


def cut(path, factor, draw):
    """Return validation, target and test rows of a set."""
    h, y = sets.read(path)
    rng = seeds(path.stem, "priors", factor, draw)
    order = rng.permutation(len(y))
    val, rest = order[: len(y) // 2], order[len(y) // 2 :]
    rest = rest[thinned(y[rest], h.shape[1], factor, rng)]
    half = len(rest) // 2
    return h.astype(float), y, val, rest[:half], rest[half:]


def nll(calibrator, h, y):
    return sets.mean_nll(np.maximum(calibrator.predict_log_proba(h), np.log(1e-300)), y)


def one_run(path, method, factor, draw):
    """NLL of each way, the share of true class shares within their intervals, and whether label shift was refused."""
    h, y, val, target, test = cut(path, factor, draw)
    calibrator = METHODS[method]().fit(h[val], y[val])
    k = h.shape[1]
    true = np.bincount(y[target], minlength=k) / len(target)
    refits = [METHODS[m]().fit(h[target], y[target]) for m in {method, "structured"}]
    found = {"unadapted": nll(calibrator, h[test], y[test])}
    found["refit"] = min(nll(refit, h[test], y[test]) for refit in refits)
    shares = np.maximum(true, 0.5 / len(target))
    found["known"] = nll(
        calibrator.with_priors(shares / shares.sum(), calibrator.predict_proba(h[val]).mean(axis=0)), h[test], y[test]
    )
    for name, rows in (("adapt", target), *((f"{n} rows", target[:n]) for n in FEW if n < len(target))):
        adapted = calibrator.adapt(h[rows], validation=(h[val], y[val]), force=True, n_resamples=RESAMPLES)
        found[name] = nll(adapted, h[test], y[test])
        if name == "adapt":
            adaptation = adapted.adaptation_
            seen = true > 0
            found["held"] = ((adaptation.low <= true) & (true <= adaptation.high))[seen].mean()
            found["refused"] = adaptation.p_value <= 0.01 and adaptation.unexplained > 0.02
    return found


def number(runs, *names):
    """Mean of the difference of two figures, or of one; a dash where there is none."""
    values = [r[names[0]] - (r[names[1]] if len(names) > 1 else 0) for r in runs if all(n in r for n in names)]
    return f"{np.mean(values):.4f}" if values else "–"


def report(folder, method, draws, only, workers):
    head = ["set", "factor", "unadapted", "adapt", "known", "refit", "adapt − refit", *(f"{n} rows" for n in FEW)]
    rows, within, no_shift, held, refused = [], {}, [], [], []
    names = [n for n in NAMES if only in n]
    jobs = [(path_of(folder, n), method, factor, draw) for n in names for factor in FACTORS for draw in range(draws)]
    with ProcessPoolExecutor(workers, initializer=sets.prepare_worker) as pool:
        found = dict(zip(jobs, pool.map(one_run, *zip(*jobs))))
    for name in names:
        for factor in FACTORS:
            runs = [found[path_of(folder, name), method, factor, draw] for draw in range(draws)]
            columns = [number(runs, n) for n in ("unadapted", "adapt", "known", "refit")]
            few = [number(runs, f"{n} rows") for n in FEW]
            rows.append([NAMES[name], str(factor), *columns, number(runs, "adapt", "refit"), *few])
            if factor == 1:
                no_shift += [r[n] - r["unadapted"] for r in runs for n in r if n == "adapt" or n.endswith(" rows")]
            else:
                within.setdefault(name, []).append(np.mean([r["adapt"] - r["refit"] for r in runs]))
            held += [r["held"] for r in runs]
            refused += [r["refused"] for r in runs]
    sets.table(head, rows)
    good = [name for name, above in within.items() if max(above) <= 0.01]
    mean = [name for name, above in within.items() if np.mean(above) <= 0.01]
    print(f"\nadapt is within 0.01 of refit at every factor on {len(good)} of {len(within)} sets, ", end="")
    print(f"in the mean over factors on {len(mean)}")
    print(f"no shift: adapt is above unadapted by {max(no_shift):.4f} at most, also with 100 and 1000 rows")
    print(f"true shares within their 95 % intervals: {np.mean(held):.1%}")
    print(f"label shift refused where it was one: {np.mean(refused):.1%} of {len(refused)} runs")


def report_drift(folder, draws, only):
    """How often label shift is refused: where it is one, and where logits changed."""
    changes = {
        "factor 5": lambda h, rng: h,
        "T × 1.2": lambda h, rng: h / 1.2,
        "T × 1.5": lambda h, rng: h / 1.5,
        "T × 0.6": lambda h, rng: h / 0.6,
        "noise": lambda h, rng: h + 0.3 * h.std() * rng.normal(size=h.shape),
    }
    rows = []
    for name in [n for n in NAMES if only in n]:
        refused = dict.fromkeys(changes, 0)
        for draw in range(draws):
            h, y, val, target, test = cut(path_of(folder, name), 5, draw)
            new = np.r_[target, test]
            calibrator = METHODS["ts"]().fit(h[val], y[val])
            for change, apply in changes.items():
                try:
                    rows_now = apply(h[new], seeds(name, change, draw))
                    calibrator.adapt(rows_now, validation=(h[val], y[val]), n_resamples=1)
                except LabelShiftError:
                    refused[change] += 1
        rows.append([NAMES[name], str(len(new)), *(f"{n} of {draws}" for n in refused.values())])
        print(" ".join(rows[-1]), file=sys.stderr, flush=True)
    sets.table(["set", "rows", *changes], rows)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, metavar="FOLDER", help=".npz files with logits and labels")
    parser.add_argument("--method", default="structured")
    parser.add_argument("--draws", type=int, default=2)
    parser.add_argument("--sets", default="", help="only sets whose name has this in it")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--drift", action="store_true", help="how often label shift is refused")
    given = parser.parse_args()
    warnings.simplefilter("ignore", AttemperWarning)
    if given.drift:
        report_drift(given.folder, given.draws, given.sets)
    else:
        report(given.folder, given.method, given.draws, given.sets, given.workers)


if __name__ == "__main__":
    main()
