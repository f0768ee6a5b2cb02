"""The leaderboard: attemper's methods beside other packages', on predictions of many classifiers for many data sets.

    python benchmarks/arena.py FOLDER --out arena.csv [--calibrators ours|peers|structured,SMS,…] [--models rf,nb]
        [--sizes full,200] [--jobs 1] [--beside peers.csv]
    python benchmarks/arena.py --out arena.csv --beside peers.csv --report [--write arena.md]

A file of the folder is one data set, <set>.npz. For each classifier m it has m/p_val and m/p_test (N×K) and m/kind
("probs", or "logits" for raw scores); also y_val, y_test (column numbers) and small (numbers of 200 calibration rows).
Logits go through softmax. All probabilities are clipped at 1e-6 and divided by their sums, and every calibrator gets
these same probabilities, ours as well: what a classifier's raw logits would add is no part of the comparison.

A calibrator is fitted on the calibration rows, all or 200, and evaluated on the test rows: log-loss, with
probabilities cut at 1e-15, and the Brier score ((p - y)² for two classes, the sum over classes for more). One that
raises an error, or returns something else than probabilities, gets the classifier's own scores and is counted.
Times are CPU seconds, one thread; the first fit of each calibrator, which imports and compiles, is not timed.

The CSV gets a line for each fit, and a second run goes on where the first stopped. ``--beside`` adds the lines of other
CSVs to the tables: the peers do not change from day to day. ``--write`` writes the tables, which are in
docs/evidence.md, to a file. Run it in the environment of `make bench`, which has the peers.
"""

# ruff: noqa: E501 (prose of the page)
from __future__ import annotations

import argparse
import contextlib
import io
import sys
import time
import zlib
from collections import defaultdict
from functools import cache, partial
from importlib.metadata import version
from pathlib import Path

import numpy as np
from scipy.special import softmax

import peers
import sets
from attemper.calibrators import METHODS

LEAST = 1e-6  # probability that calibrators see
SMALLEST = 1e-15  # probability that the log-loss is cut at
TIED = 1e-12
SIZES = ("full", "200")
FIELDS = ["set", "model", "n_classes", "n", "size", "calibrator", "logloss", "brier", "fit_s", "predict_s", "failed"]
BASE = "none"
MODELS = {
    "lr": "logistic regression",
    "nb": "naive Bayes",
    "knn": "nearest neighbours",
    "rf": "random forest",
    "et": "extra trees",
    "svc": "support vectors",
    "mlp": "neural network",
    "hgb": "HistGradientBoosting",
    "xgb": "XGBoost",
    "lgbm": "LightGBM",
    "cat": "CatBoost",
}
INTRODUCTION = """# The arena

Written by `python benchmarks/arena.py FOLDER --out arena.csv --write arena.md` (`make arena ARENA=folder`).

Which calibrator is best for typical classifiers? {n_models} kinds of classifiers ({models}) were trained on
{n_sets} public data sets, {n_two} with two classes and {n_more} with more. Half of each set is for training the classifier, a quarter for
calibration, and a quarter for testing. A calibrator is fitted on all calibration rows, or on 200 of them. All calibrators get the same probabilities,
clipped at 10⁻⁶; softmax is applied to the output of classifiers that return scores. The data are not part of the repository; the command
runs on any folder of files with this layout (`python benchmarks/arena.py --help`).

- **Win share** is the mean, over experiments, of the share of other calibrators with a higher loss (ties count one half). In brackets is the
  95 % interval of a bootstrap over data sets.
- **Change** is the calibrated minus the uncalibrated loss, as a mean over experiments; negative is better. **Worst** is the largest single change.
- **Better** is the share of experiments with a lower loss than uncalibrated.
- **Fit** is the median CPU time in milliseconds with one thread; **predict** is the same for the test rows.
- **Failed** counts fits that raised an error or returned no probabilities. They count as uncalibrated.

`{base}` is the classifier itself. Names with a package in brackets are methods of other packages: {versions}.
attemper's methods have their default parameters; they are described in [All methods](methods.md).

## How the constants were chosen

The constants of `structured` and `bayes` (the spreads of their priors) were chosen on published logits of seven families, by leaving out
one family at a time (`benchmarks/families.py`), and on the data sets of this page. The table below is therefore not an independent test of
them: other data sets may give other ranks. The other packages have their own defaults, which were not tuned on these sets.
"""


# Calibrators: a name, and a function that returns an object with fit(p, y) and predict_proba(p)


def ours(name):
    return METHODS[name](input="probs", zeros_as=LEAST)


class Probmetrics:
    """One of probmetrics' calibrators, without what it prints."""

    def __init__(self, name, **settings):
        self.name, self.settings = name, settings

    def fit(self, p, y):
        module = peers.load("probmetrics.calibrators")
        with contextlib.redirect_stdout(io.StringIO()):
            self.fitted = getattr(module, self.name)(**self.settings)
            self.fitted.fit(p, y)
        return self

    def predict_proba(self, p):
        with contextlib.redirect_stdout(io.StringIO()):
            return np.asarray(self.fitted.predict_proba(p))


class Mixture(Probmetrics):
    """Temperature scaling, mixed with a little of the uniform distribution: probmetrics' ts-mix."""

    def __init__(self):
        super().__init__("get_calibrator", calibration_method="ts-mix")


class OneVersusRest:
    """What CalibratedClassifierCV does for a fitted classifier: a curve for each class, then a division by the sum."""

    def __init__(self, name):
        self.name = name

    def _curve(self):
        if self.name == "isotonic":
            from sklearn.isotonic import IsotonicRegression

            return IsotonicRegression(out_of_bounds="clip", y_min=0, y_max=1)
        from sklearn.calibration import _SigmoidCalibration

        return _SigmoidCalibration()

    def fit(self, p, y):
        columns = [1] if p.shape[1] == 2 else range(p.shape[1])
        self.curves = {k: self._curve().fit(p[:, k], (y == k).astype(float)) for k in columns}
        return self

    def predict_proba(self, p):
        q = np.column_stack([curve.predict(p[:, k]) for k, curve in self.curves.items()])
        if p.shape[1] == 2:
            return np.hstack([1 - q, q])
        total = q.sum(axis=1, keepdims=True)
        return np.where(total > 0, q / np.where(total > 0, total, 1), 1 / p.shape[1])


class Netcal:
    """A scaling method of netcal for two classes."""

    def __init__(self, name):
        self.name = name

    def fit(self, p, y):
        self.fitted = getattr(peers.load("netcal.scaling"), self.name)()
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            self.fitted.fit(p[:, 1], y)
        return self

    def predict_proba(self, p):
        q = np.ravel(self.fitted.transform(p[:, 1]))
        return np.column_stack([1 - q, q])


# Other packages' calibrators, and for which numbers of classes they are meant.
PEERS = {
    "TS (probmetrics)": (partial(Probmetrics, "TemperatureScalingCalibrator"), "any"),
    "TS-mix (probmetrics)": (Mixture, "any"),
    "ETS (probmetrics)": (partial(Probmetrics, "ETSCalibrator"), "any"),
    "affine (probmetrics)": (partial(Probmetrics, "BinaryLogisticCalibrator", type="affine"), "two"),
    "quadratic (probmetrics)": (partial(Probmetrics, "BinaryLogisticCalibrator", type="quadratic"), "two"),
    "beta (probmetrics)": (partial(Probmetrics, "BinaryLogisticCalibrator", type="beta"), "two"),
    "SVS (probmetrics)": (partial(Probmetrics, "SVSCalibrator"), "more"),
    "SMS (probmetrics)": (partial(Probmetrics, "SMSCalibrator"), "more"),
    "CDF spline (probmetrics)": (partial(Probmetrics, "CDFSplineCalibrator"), "two"),
    "kernel (probmetrics)": (partial(Probmetrics, "KernelCalibrator"), "any"),
    "Venn–Abers (venn-abers)": (partial(Probmetrics, "VennAbersCalibrator"), "any"),
    "isotonic (scikit-learn)": (partial(OneVersusRest, "isotonic"), "any"),
    "sigmoid (scikit-learn)": (partial(OneVersusRest, "sigmoid"), "any"),
    "logistic (netcal)": (partial(Netcal, "LogisticCalibration"), "two"),
    "beta (netcal)": (partial(Netcal, "BetaCalibration"), "two"),
}


def calibrator(name):
    return PEERS[name][0]() if name in PEERS else ours(name)


def is_meant_for(name, n_classes):
    return name not in PEERS or PEERS[name][1] in ("any", "two" if n_classes == 2 else "more")


# Running


def probabilities(values, kind):
    p = np.asarray(values, dtype=float)
    p = softmax(p, axis=1) if kind == "logits" else p / p.sum(axis=1, keepdims=True)
    p = np.clip(p, LEAST, 1)
    return p / p.sum(axis=1, keepdims=True)


def scores(p, y):
    """Log-loss and Brier score."""
    true = p[np.arange(len(y)), y]
    brier = np.mean((p**2).sum(axis=1) - 2 * true + 1)
    logloss = -np.mean(np.log(np.clip(true, SMALLEST, 1)))
    return {"logloss": logloss, "brier": brier / 2 if p.shape[1] == 2 else brier}


@cache
def warm_up(name, two):
    rng = np.random.default_rng(0)
    p, y = rng.dirichlet(np.ones(2 if two else 3), 60), np.arange(60) % (2 if two else 3)
    with contextlib.suppress(Exception):  # the same error comes again where it is written down
        calibrator(name).fit(p, y).predict_proba(p)


def one_fit(name, p, y, p_test, y_test):
    if name == BASE:
        return scores(p_test, y_test)
    warm_up(name, p.shape[1] == 2)
    try:
        p, y, given = p.copy(), y.copy(), p_test.copy()
        start = time.process_time()
        fitted = calibrator(name).fit(p, y)
        between = time.process_time()
        q = np.asarray(fitted.predict_proba(given), dtype=float)
        end = time.process_time()
        if q.shape != p_test.shape or not np.isfinite(q).all() or np.abs(q.sum(axis=1) - 1).max() > 1e-3:
            raise ValueError(f"expected probabilities {p_test.shape}, got {q.shape}, {np.isnan(q).sum()} NaN")
    except Exception as error:  # what a calibrator raises is part of what is measured
        return scores(p_test, y_test) | {"failed": repr(error)[:150]}
    return scores(q, y_test) | {"fit_s": f"{between - start:.5f}", "predict_s": f"{end - between:.5f}"}


def one_job(job):
    """Fit all wanted calibrators to the predictions of one classifier; lines for the CSV."""
    path, model, wanted = job
    with np.load(path, allow_pickle=False) as z:
        kind = str(z[f"{model}/kind"])
        p_val, p_test = (probabilities(z[f"{model}/{part}"], kind) for part in ("p_val", "p_test"))
        y_val, y_test, small = (z[key].astype(int) for key in ("y_val", "y_test", "small"))
    lines = []
    for size, name in wanted:
        if not is_meant_for(name, p_val.shape[1]):
            continue
        rows = small if size == "200" else np.arange(len(y_val))
        line = {"set": path.stem, "model": model, "n_classes": p_val.shape[1], "n": len(rows), "size": size}
        lines.append(line | {"calibrator": name} | one_fit(name, p_val[rows], y_val[rows], p_test, y_test))
    return lines


def models_of(path):
    with np.load(path, allow_pickle=False) as z:
        return [key.removesuffix("/kind") for key in z.files if key.endswith("/kind")]


def names_of(told):
    groups = {"ours": list(METHODS), "peers": list(PEERS), "all": [*METHODS, *PEERS]}
    return groups.get(told) or told.split(",")


def run(told):
    done = {(li["set"], li["model"], li["size"], li["calibrator"]) for li in sets.read_lines(told.out)}
    names = [BASE, *names_of(told.calibrators)]
    for name in names[1:]:
        if name not in METHODS and name not in PEERS:
            sys.exit(f"--calibrators: expected some of {', '.join([*METHODS, *PEERS])}, got {name!r}")
    jobs = []
    for path in sorted(told.folder.glob("*.npz")):
        for model in models_of(path):
            cases = [(size, name) for size in told.sizes.split(",") for name in names]
            wanted = [case for case in cases if (path.stem, model, *case) not in done]
            if wanted and model in (told.models.split(",") if told.models else [model]):
                jobs.append((path, model, wanted))
    # Mixed, so that the tables of a run that is not finished mean something.
    jobs.sort(key=lambda job: zlib.crc32(f"{job[0].stem} {job[1]}".encode()))
    sets.run_into(told.out, FIELDS, one_job, jobs, told.jobs)


# Tables


class Block:
    """Experiments with two classes, or with more, of one calibration size: those that all calibrators have done."""

    def __init__(self, lines, two, size):
        by_case = defaultdict(dict)
        for line in lines:
            if (int(line["n_classes"]) == 2) == two and line["size"] == size:
                by_case[line["set"], line["model"]].setdefault(line["calibrator"], line)
        counts = defaultdict(int)
        for of in by_case.values():
            for name in of:
                counts[name] += 1
        most = max(counts.values(), default=0)
        self.names = [name for name, n in counts.items() if n > most / 2]  # others have hardly begun
        self.cases = {case: of for case, of in sorted(by_case.items()) if all(name in of for name in self.names)}
        self.set_names = np.array([name for name, _ in self.cases])
        self.models = np.array([model for _, model in self.cases])
        rows = "all rows" if size == "full" else f"{size} rows"
        self.title = f"{'Two classes' if two else 'More classes'}, {rows}"
        self.loss = {m: self._gather(m) for m in ("logloss", "brier")}
        base = self.names.index(BASE) if BASE in self.names else 0
        self.change = {m: loss - loss[:, [base]] for m, loss in self.loss.items()}
        self.wins = {m: win_shares(loss) for m, loss in self.loss.items()}

    def _gather(self, field):
        values = [[float(of[name][field]) for name in self.names] for of in self.cases.values()]
        return np.array(values).reshape(len(values), len(self.names))

    def median_ms(self, name, field):
        times = [float(of[name][field]) for of in self.cases.values() if of[name][field]]
        return f"{1e3 * np.median(times):.1f}" if times else "–"

    def failed(self, name):
        return sum(bool(of[name]["failed"]) for of in self.cases.values())

    def order(self):
        return np.argsort(-self.wins["logloss"].mean(axis=0), kind="stable")


def win_shares(loss):
    """In each experiment: the share of other calibrators with a higher loss, ties one half."""
    gap = loss[:, None, :] - loss[:, :, None]  # > 0: the last axis lost
    won = (gap > TIED) + 0.5 * (np.abs(gap) <= TIED)
    return (won.sum(axis=2) - 0.5) / max(loss.shape[1] - 1, 1)


def interval(wins, names):
    """95 % interval of the mean win shares, by a bootstrap over data sets."""
    rng = np.random.default_rng(0)
    groups = [wins[names == name] for name in dict.fromkeys(names)]
    sums, sizes = np.array([g.sum(axis=0) for g in groups]), np.array([len(g) for g in groups])
    taken = rng.integers(0, len(groups), (1000, len(groups)))
    means = sums[taken].sum(axis=1) / sizes[taken].sum(axis=1)[:, None]
    return np.quantile(means, [0.025, 0.975], axis=0)


def short(value, form):
    """No zero before the point: .123, +.004."""
    return format(value, form).replace("0.", ".", 1) if abs(value) < 1 else format(value, form)


def leaderboard(block):
    ranges = {m: interval(wins, block.set_names) for m, wins in block.wins.items()}
    lines = []
    for i in block.order():
        name = block.names[i]
        cells = [f"**{name}**" if name in METHODS else name]
        for m in ("logloss", "brier"):
            low, high = ranges[m][:, i]
            win = block.wins[m][:, i].mean()
            cells.append(f"{short(win, '.3f')} ({short(low, '.2f')}–{short(high, '.2f')})")
        cells += [
            short(block.change["logloss"][:, i].mean(), "+.4f"),
            short(block.change["brier"][:, i].mean(), "+.5f"),
        ]
        cells += [short(block.change["logloss"][:, i].max(), "+.3f"), short(block.change["brier"][:, i].max(), "+.4f")]
        cells.append(f"{(block.change['logloss'][:, i] < 0).mean():.0%}")
        cells += [block.median_ms(name, "fit_s"), block.median_ms(name, "predict_s"), str(block.failed(name))]
        lines.append(cells)
    head = ["calibrator", "win share, log-loss", "win share, Brier", "change of log-loss", "change of Brier"]
    head += ["worst log-loss", "worst Brier", "better", "fit ms", "predict ms", "failed"]
    return sets.markdown(head, lines)


def by_model(block, values, form):
    """Return a table with a line for each calibrator, a column for each kind of classifier; best of a column in bold."""
    models = [m for m in MODELS if m in block.models] + sorted(set(block.models) - set(MODELS))
    means = np.array([values[block.models == m].mean(axis=0) for m in models])
    best = means.max(axis=1) if form == ".2f" else means.min(axis=1)
    lines = []
    for i in block.order():
        cells = [short(v, form) for v in means[:, i]]
        lines.append(
            [block.names[i], *(f"**{c}**" if v == b else c for c, v, b in zip(cells, means[:, i], best, strict=True))]
        )
    counts = [str(int((block.models == m).sum())) for m in models]
    return sets.markdown(["calibrator", *models], [*lines, ["experiments", *counts]])


def first_places(blocks, flagship="structured"):
    """Return a table: who is first in each block, and where the flagship is."""
    lines = []
    for block in blocks:
        if flagship not in block.names:
            continue
        i = block.names.index(flagship)
        cells = [block.title]
        for m in ("logloss", "brier"):
            means = block.wins[m].mean(axis=0)
            first = int(means.argmax())
            cells.append(
                f"{1 + int((means > means[i]).sum())} of {len(means)} ({block.names[first]} {short(means[first], '.3f')})"
            )
        worst = int(block.change["logloss"][:, i].argmax())
        where = f"{block.set_names[worst]}, {block.models[worst]}"
        cells.append(f"{short(block.change['logloss'][worst, i], '+.4f')} ({where})")
        lines.append(cells)
    head = ["experiments", "rank in log-loss (first)", "rank in Brier (first)", "worst change of log-loss"]
    return sets.markdown(head, lines)


def page(blocks):
    """Markdown of all tables."""
    parts = ["## Rank of `structured`", first_places(blocks)]
    for block in blocks:
        n_sets = len(set(block.set_names))
        parts += [f"## {block.title}", f"{len(block.cases)} experiments on {n_sets} data sets.", leaderboard(block)]
        parts += ["Win share in log-loss, by kind of classifier:", by_model(block, block.wins["logloss"], ".2f")]
        parts += ["Change of log-loss, by kind of classifier:", by_model(block, block.change["logloss"], "+.3f")]
        parts += ["Change of the Brier score, by kind of classifier:", by_model(block, block.change["brier"], "+.4f")]
    return "\n\n".join(parts) + "\n"


def introduction(blocks):
    names = {two: {n for b in blocks if b.title.startswith(two) for n in b.set_names} for two in ("Two", "More")}
    models = list(dict.fromkeys(m for b in blocks for m in b.models))
    models = [m for m in MODELS if m in models] + [m for m in models if m not in MODELS]
    packages = ("probmetrics", "scikit-learn", "netcal", "venn-abers")
    return INTRODUCTION.format(
        base=BASE,
        n_models=len(models),
        models=", ".join(f"`{m}` {MODELS[m]}" if m in MODELS else f"`{m}`" for m in models),
        n_sets=len(names["Two"] | names["More"]),
        n_two=len(names["Two"]),
        n_more=len(names["More"]),
        versions=", ".join(f"{name} {version(name)}" for name in packages),
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, nargs="?")
    parser.add_argument("--out", type=Path, required=True, help="CSV of all fits; a run goes on where it stopped")
    parser.add_argument("--calibrators", default="all", help="all, ours, peers, or names with commas between")
    parser.add_argument("--models", default="", help="only these kinds of classifiers")
    parser.add_argument("--sizes", default=",".join(SIZES))
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--report", action="store_true", help="print the tables of earlier runs")
    parser.add_argument("--beside", type=Path, action="append", default=[], metavar="CSV")
    parser.add_argument("--write", type=Path, metavar="PAGE", help="write the tables into this Markdown file")
    told = parser.parse_args()
    if not told.report:
        if told.folder is None:
            parser.error("expected a folder of .npz files; use --report to print earlier runs")
        run(told)
    lines = [line for path in (told.out, *told.beside) for line in sets.read_lines(path)]
    blocks = [Block(lines, two, size) for two in (True, False) for size in SIZES]
    blocks = [block for block in blocks if block.cases]
    if not blocks:
        sys.exit("no experiment has all calibrators yet")
    if told.write:
        told.write.write_text(f"{introduction(blocks)}\n{page(blocks)}", encoding="utf-8")
    else:
        print(page(blocks))


if __name__ == "__main__":
    main()
