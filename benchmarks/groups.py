"""Maps by group: partial pooling beside the common map and beside a map fitted on each group alone.

    python benchmarks/groups.py [FOLDER] [--zoo data]

FOLDER holds .npz files with the arrays logits and labels (see benchmarks/sets.py), one for each language model and
task; names begin with "llm_bluq--" or "llm_emotion--". Without it, groups are only those of the networks in data/.

Groups with true differences: the tasks of one language model, prompts of one language model, several models, and sites
that are simulated from one network (temperatures and class shares of their own). Groups without: a network's samples
divided at random. At 5, 20, 100 and 1000 labels a group the recipe is fitted on the labels of all groups with
``groups=``, and on the labels of each group alone; NLL on other samples of the same groups, each group counts the same.
Standard errors are over draws.
"""

from __future__ import annotations

import argparse
import re
import sys
import time
import warnings
from pathlib import Path

import numpy as np

from attemper import BayesianTemperatureScaling, StructuredScaling, TemperatureScaling
from attemper.kernels import chebyshev
from attemper.kernels.channel import Channel
from attemper.kernels.group_scales import RANGE, SPREADS, pool
from attemper.maps import tilted
from sets import prepare_worker, read, read_lines, run_into, table

SIZES = (5, 20, 100, 1000)
RECIPES = {
    "ts": lambda: TemperatureScaling(t_range=(0.05, 20)),
    "bayes": BayesianTemperatureScaling,
    "structured": StructuredScaling,
}
DRAWS = {"ts": 16, "bayes": 4, "structured": 8}
FIELDS = ("family", "set", "method", "labels", "draw", "common", "pooled", "separate", "spread")
TEST_ROWS = 1000
LIMIT = 0.002


def by_name(folder, pattern):
    """Files by the first group of a pattern."""
    found = {}
    for path in sorted(Path(folder).glob("*.npz")):
        if match := re.fullmatch(pattern, path.name):
            found.setdefault(match.group(1), []).append(path)
    return {name: paths for name, paths in found.items() if len(paths) > 1}


def language_models(folder):
    """Tasks, prompts and models of the language-model sets."""
    for model, paths in by_name(folder, r"llm_bluq--(.*)_(?:ci|drs|ds|qa|rc)_float32_base\.npz").items():
        yield "tasks", f"tasks of {model}", [read(path) for path in paths]
    for model, paths in by_name(folder, r"llm_emotion--(.*)_emotion_.*\.npz").items():
        yield "prompts", f"prompts of {model}", [read(path) for path in paths]
    for prompt, paths in by_name(folder, r"llm_emotion--.*_emotion_10k_4_(base_icl1|task_icl0)\.npz").items():
        yield "models", f"models, {prompt}", [read(path) for path in paths]


def sites(folder, differ):
    """Divide the samples of a network into sites; those that differ have temperatures and class shares of their own."""
    for name, n_sites in (("vgg16-cifar10-s0", 6), ("lenet5-fashion_mnist-s0", 6), ("resnet110-cifar100-s0", 4)):
        h, y = read(Path(folder) / f"{name}.npz")
        h, rng = h.astype(float), np.random.default_rng(0)
        k, site = h.shape[1], rng.integers(0, n_sites, len(y))
        if differ:
            factor = np.exp(0.3 * rng.normal(size=n_sites))
            h = h * factor[site, None]
            share = np.exp(0.7 * rng.normal(size=(n_sites, k)))
            kept = rng.random(len(y)) < share[site, y] / share.max(axis=1)[site]
            h, y, site = h[kept], y[kept], site[kept]
        yield ("sites that differ" if differ else "identical sites"), name, [
            (h[site == s], y[site == s]) for s in range(n_sites)
        ]  # fmt: skip


def worlds(options):
    found = []
    if options.folder is not None:
        found += list(language_models(options.folder))
    return found + list(sites(options.zoo, differ=True)) + list(sites(options.zoo, differ=False))


def nll(log_p, y):
    return -float(log_p[np.arange(len(y)), y].mean())


def one_draw(groups, make, n, seed):
    """NLL of the common map, of pooled maps and of separate ones."""
    rng, parts, tests = np.random.default_rng(seed), [], []
    for h, y in groups:
        order = rng.permutation(len(y))
        m = min(n, len(y) // 2)
        parts.append((h[order[:m]].astype(float), y[order[:m]]))
        tests.append((h[order[m : m + TEST_ROWS]].astype(float), y[order[m : m + TEST_ROWS]]))
    ids = np.repeat(np.arange(len(parts)), [len(y) for _, y in parts])
    fitted = make().fit(np.concatenate([h for h, _ in parts]), np.concatenate([y for _, y in parts]), groups=ids)
    values = []
    for g, (own, (h, y)) in enumerate(zip(parts, tests)):
        alone = make().fit(*own).map_
        maps = (fitted.map_, fitted.group_maps_[g], alone)
        values.append([nll(np.maximum(m.log_apply(h), -700), y) for m in maps])
    found = fitted.groups_
    return [*np.mean(values, axis=0), found.spread]


def draws_of(method, n, wanted):
    few = n >= 1000 or (method == "structured" and n >= 100)
    return wanted or (4 if few else DRAWS[method])


def one_job(job):
    family, name, groups, method, n, draws = job
    warnings.simplefilter("ignore")
    lines = []
    for seed in range(draws):
        values = one_draw(groups, RECIPES[method], n, seed)
        lines.append(dict(zip(FIELDS, [family, name, method, n, seed, *(f"{v:.6f}" for v in values)])))
    return lines


def summary(lines):
    """Two rows for each set and method: NLL of pooled maps less that of the common map, and of separate ones."""
    cells = {}
    for line in lines:
        name = line["set"] if line["family"] in ("tasks", "prompts", "models") else f"{line['family']}, {line['set']}"
        values = [float(line["pooled"]) - float(line[other]) for other in ("common", "separate")]
        cells.setdefault((line["method"], name), {}).setdefault(int(line["labels"]), []).append(values)
    rows, misses, total = [], 0, 0
    for (method, name), by_size in sorted(cells.items(), key=lambda item: list(RECIPES).index(item[0][0])):
        for i, other in enumerate(("common", "separate")):
            shown = []
            for n in SIZES:
                d = np.array(by_size.get(n, []))[:, i] if n in by_size else None
                shown.append("–" if d is None else f"{d.mean():+.4f} ± {d.std(ddof=1) / len(d) ** 0.5:.4f}")
                if d is not None:
                    total += 1
                    if d.mean() > LIMIT:
                        misses, shown[-1] = misses + 1, f"**{shown[-1]}**"
            rows.append([method if i == 0 else "", name if i == 0 else "", other, *shown])
    table(["method", "groups", "pooled less", *(f"{n} labels" for n in SIZES)], rows)
    print(f"\n{misses} of {total} cells are above {LIMIT} on average over draws.")


def priors():
    """Return candidates for the prior of s: Student and Cauchy laws of several scales, some with a spike near zero."""
    found = {}
    for name, power in (("Cauchy", 1), ("Student(3)", 2)):
        for scale in (0.05, 0.1, 0.2, 0.3):
            for spike in (0.0, 0.5):
                density = SPREADS / (1 + (SPREADS / scale) ** 2) ** power
                density *= (1 - spike) / density.sum()
                density[0] += spike
                found[f"{name} {scale:g}{' with spike' if spike else ''}"] = density
    return found


def one_comparison(groups, n, seed):
    """NLL of pooled maps above the common one, for each prior."""
    rng, parts, tests = np.random.default_rng(seed), [], []
    for h, y in groups:
        order = rng.permutation(len(y))
        parts.append((h[order[:n]].astype(float), y[order[:n]]))
        tests.append((h[order[n : n + TEST_ROWS]].astype(float), y[order[n : n + TEST_ROWS]]))
    ids = np.repeat(np.arange(len(parts)), n)
    h, y = (np.concatenate([part[i] for part in parts]) for i in range(2))
    common = RECIPES["ts"]().fit(h, y).map_
    grid, log_p = chebyshev.nodes(40, RANGE), common.log_apply(h)
    likelihoods = np.array(
        [np.bincount(ids, Channel().log_likelihood(np.exp(a) * log_p, y), len(parts)) for a in grid]
    )  # fmt: skip
    before = np.mean([nll(common.log_apply(x), labels) for x, labels in tests])
    found = []
    for prior in priors().values():
        scales = np.exp(pool(likelihoods, prior=prior).mean)
        maps = [tilted(common, float(scale)) for scale in scales]
        found.append(np.mean([nll(m.log_apply(x), labels) for m, (x, labels) in zip(maps, tests)]) - before)
    return found


def constants(options):
    """Choose the prior of s on all families but one: the largest gain among those that never cost more than LIMIT."""
    cells, head = {}, list(priors())
    for family, name, groups in worlds(options):
        for n in (5, 20, 100):
            values = [one_comparison(groups, n, seed) for seed in range(options.draws or 24)]
            cells[family, f"{family}, {name}, {n} labels"] = np.mean(values, axis=0)
    table(["set", *head], [[key[1], *(f"{v:+.4f}" for v in values)] for key, values in cells.items()])
    for left_out in [None, *dict.fromkeys(family for family, _ in cells)]:
        rest = np.array([values for (family, _), values in cells.items() if family != left_out])
        allowed = rest.max(axis=0) <= LIMIT
        best = np.where(allowed, rest.mean(axis=0), np.inf).argmin()
        print(f"without {left_out}: {head[best]}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path, help="logits of language models")
    parser.add_argument("--zoo", type=Path, default=Path("data"))
    parser.add_argument("--methods", default="ts,structured")
    parser.add_argument("--sizes", default=",".join(map(str, SIZES)))
    parser.add_argument("--draws", type=int, help="default: 16 of ts, 8 of structured, 4 of bayes and with 1000 labels")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--into", type=Path, default=Path("/tmp/groups.csv"), help="where lines are appended")
    parser.add_argument("--constants", action="store_true", help="compare priors of s, with families left out")
    parser.add_argument("--summary", action="store_true", help="only show what is there")
    options = parser.parse_args()
    if options.constants:
        prepare_worker()
        constants(options)
        return
    if not options.summary:
        prepare_worker()
        start = time.time()
        jobs = [
            (family, name, groups, method, int(n), draws_of(method, int(n), options.draws))
            for family, name, groups in worlds(options)
            for method in options.methods.split(",")
            for n in options.sizes.split(",")
        ]
        done = {(x["set"], x["family"], x["method"], int(x["labels"])) for x in read_lines(options.into)}
        jobs = [job for job in jobs if (job[1], job[0], job[3], job[4]) not in done]
        run_into(options.into, FIELDS, one_job, jobs, options.workers)
        print(f"{time.time() - start:.0f} s", file=sys.stderr)
    summary(read_lines(options.into))


if __name__ == "__main__":
    main()
