"""The guarantee of `policy_for_miss`: how often it is broken, how many are referred, and beside which peers.

    python benchmarks/certificates.py [levels start methods referred shares repeats costs] [--draws 500] [--seed 0]

levels    how often the bound is broken where the true risk is known, N from 200 to 20 000, with and without ties
start     how often everybody is referred, with the first test at a fixed rank (before) and at N/10 or more (now)
methods   how often the bound is broken with every calibrator, on samples drawn from a network of data/
referred  share referred on the networks of data/, beside SGR (Geifman and El-Yaniv 2017) and MAPIE, where installed
shares    share referred for several parts of the validation set that fit the map
repeats   how often the bound is broken where a lesion has several pictures, and all are deployed
costs     cost a sample, for predictions of the most probable class and of the class of least expected cost

All samples are drawn from a known distribution, or with replacement from a network's samples: so the true risk of each
policy is known too.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
import warnings

import numpy as np
from scipy.stats import beta

from attemper import datasets
from attemper.calibrators import METHODS
from attemper.cli.dividing import default_share
from attemper.decisions import certificates, policy_for_cost, policy_for_miss
from attemper.decisions.certificates import certify_all, certify_decided, start_of
from sets import table

try:
    from mapie.risk_control import BinaryClassificationController
except ImportError:
    BinaryClassificationController = None

DELTA = 0.05
TIES = 20  # groups of equal confidence

# Error rate of the share u of the most confident samples, and its integral from 0. Confidence is 1 − u/2.
MODELS = {
    "rising": (lambda u: 0.3 * u**1.5, lambda u: 0.12 * u**2.5),
    "wrong on top": (  # the risk falls, and rises again
        lambda u: np.where(u < 0.02, 0.4, 0.01 + 0.3 * (u - 0.02)),
        lambda u: np.where(u < 0.02, 0.4 * u, 0.008 + 0.01 * (u - 0.02) + 0.15 * (u - 0.02) ** 2),
    ),
}


def flat(rate):
    """Confidence without any information; a hair above the bound this is the worst case."""
    return lambda u: np.full_like(u, rate), lambda u: rate * u


def up_to(rate):
    """One error rate among the most confident half; beyond it the rate rises."""
    return (
        lambda u: rate + 0.5 * np.maximum(u - 0.5, 0),
        lambda u: rate * u + 0.25 * np.maximum(u - 0.5, 0) ** 2,
    )


def first_test_at(share):
    """Let the first test of the walk have at least this share of the samples; 0 is what it was before."""
    certificates.SHARE_AT_FIRST = share
    certificates.ranks_to_test.cache_clear()


def simulate(model, n, alpha, of, ties, draws, rng):
    """Share of draws in which the true risk exceeds the bound, share decided, and draws in which nobody is."""
    rate, integral = model
    broken, shares = 0, []
    for _ in range(draws):
        u = rng.random(n)
        if ties:
            u = np.ceil(u * TIES) / TIES
            wrong = rng.random(n) < (integral(u) - integral(u - 1 / TIES)) * TIES
        else:
            wrong = rng.random(n) < rate(u)
        told = (1 - u / 2, wrong, np.ones(n), alpha, DELTA)
        if of == "all":
            t = certify_all(*told).threshold
        else:
            start = None
            if ties:  # a fifth of the validation set, which fitted the map, fixes the start
                other = np.ceil(rng.random(n // 4) * TIES) / TIES
                start = start_of(1 - other / 2, np.ones(len(other)), n, alpha, DELTA)
            t = certify_decided(*told, start=start).threshold
        decided = min(2 * (1 - t), 1.0)
        if ties and t > 0:  # c > t: the groups above that of t
            decided = max(round(decided * TIES) - 1, 0) / TIES
        risk = integral(np.float64(decided)) / (max(decided, 1e-300) if of == "decided" else 1)
        broken += risk > alpha * (1 + 1e-9)
        shares.append(decided)
    return broken / draws, float(np.mean(shares)), float(np.mean(np.array(shares) == 0))


def levels(told):
    print("\nHow often the bound of 5 % is broken (asked: in 5 % of the draws or fewer)")
    rows = []
    for n in (200, 1000, 5000, 20_000):
        draws = told.draws * 4 if n < 5000 else told.draws
        for of in ("decided", "all"):
            worst = flat(0.05 * 1.0001 if of == "decided" else 0.3)
            for ties in (False, True):
                found = [
                    simulate(model, n, 0.05, of, ties, draws, np.random.default_rng(told.seed))
                    for model in (*MODELS.values(), worst)
                ]
                row = [f"{n}", of, f"{TIES} groups" if ties else "none", f"{draws}"]
                rows.append(row + [f"{broken:.1%}" for broken, _, _ in found])
    table(["N", "of", "ties", "draws", *MODELS, "worst case"], rows)


def start(told):
    print("\nEverybody referred, at a bound of 5 %: first test at a fixed rank, and at N/10 or more")
    rows = []
    for n in (1000, 5000, 20_000):
        for rate in (0.01, 0.02, 0.03):
            row = [f"{n}", f"{rate:.0%}"]
            for share in (0.0, 0.1):
                first_test_at(share)
                rng = np.random.default_rng(told.seed)
                _, decided, nobody = simulate(up_to(rate), n, 0.05, "decided", False, told.draws, rng)
                row += [f"{nobody:.0%}", f"{1 - decided:.1%}"]
            rows.append(row)
    head = ["N", "errors among the most confident half"]
    table([*head, "before: everybody", "before: referred", "now: everybody", "now: referred"], rows)


class Population:
    """All samples of a network: a part fits the map, the others are the population that samples are drawn from."""

    def __init__(self, name):
        d = datasets.load(name)
        self.logits = np.concatenate([d.val_logits, d.test_logits]).astype(np.float64)
        self.labels = np.concatenate([d.val_labels, d.test_labels])
        self.error_rate = float((self.logits.argmax(axis=1) != self.labels).mean())

    def fitted(self, method, n_fit, rng):
        """Probabilities of those that fitted the map, and of the population, with its labels."""
        order = rng.permutation(len(self.labels))
        fit, rest = order[:n_fit], order[n_fit:]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            calibrator = METHODS[method]().fit(self.logits[fit], self.labels[fit])
        return (
            calibrator.predict_proba(self.logits[fit]),
            calibrator.predict_proba(self.logits[rest]),
            self.labels[rest],
        )


def risk_of(policy, p, y):
    """Error rate of the decided (or of all), and the share referred, in the population."""
    refer, prediction, _ = policy.refer_or_decide(p)
    missed = ~refer & (prediction != y)
    of_all = policy.guarantee is not None and policy.guarantee.miss_rate_of == "all"
    return missed.sum() / max(len(y) if of_all else (~refer).sum(), 1), refer.mean()


def methods(told):
    name = "resnet200-skin-lesionsplit-s0"
    population, n, n_maps = Population(name), 1000, 10
    bound = population.error_rate / 2
    print(f"\nHow often the bound of {bound:.1%} is broken: {name}, {n} validation samples, {told.draws} draws")
    rows = []
    for method in METHODS:
        rng = np.random.default_rng(told.seed)
        n_fit = round(share_of(method) * n)
        broken, referred, tied = {"decided": [], "all": []}, [], []
        for _ in range(n_maps):
            p_fit, p, y = population.fitted(method, n_fit, rng)
            tied.append(len(np.unique(p.max(axis=1))) / len(p))
            for _ in range(told.draws // n_maps):
                chosen = rng.integers(len(y), size=n - n_fit)
                for of, found in broken.items():
                    policy = policy_for_miss(p[chosen], y[chosen], bound, miss_rate_of=of, fit_probs=p_fit)
                    risk, share = risk_of(policy, p, y)
                    found.append(risk > bound)
                    if of == "decided":
                        referred.append(share)
        row = [method, f"{n_fit}", f"{np.mean(tied):.0%}", *(f"{np.mean(found):.1%}" for found in broken.values())]
        rows.append([*row, f"{np.mean(referred):.1%}"])
    head = ["method", "fit", "distinct confidences", "broken, of decided", "broken, of all", "referred, of decided"]
    table(head, rows)


def share_of(method):
    return default_share(method)


def sgr(confidence, wrong, alpha):
    """Threshold by Selection with Guaranteed Risk: a binary search, whose steps share δ."""
    order = np.argsort(-confidence)
    errors = np.cumsum(wrong[order])
    n = len(order)
    steps = math.ceil(math.log2(n))
    strict, lax, best = 1, n, 0  # numbers of decided samples
    for _ in range(steps):
        m = math.ceil((strict + lax) / 2)
        k = errors[m - 1]
        if (1.0 if k >= m else beta.ppf(1 - DELTA / steps, k + 1, m - k)) <= alpha:
            strict = best = max(best, m)
        else:
            lax = m
    if best == 0:
        return 1.0
    return float(confidence[order[best]]) if best < n else 0.0


def with_mapie(confidence, wrong, alpha):
    """Threshold by MAPIE's controller of precision, with its default grid and correction."""
    controller = BinaryClassificationController(
        lambda x: np.column_stack([1 - x, x]), "precision", target_level=1 - alpha, confidence_level=1 - DELTA
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # where nothing can be controlled
        controller.calibrate(confidence, (~wrong).astype(int))
    best = controller.best_predict_param
    return 1.0 if best is None else np.nextafter(best, 0)  # MAPIE decides at c ≥ t


def oracle(confidence, wrong, alpha):
    """Threshold that decides the most, had the population been seen."""
    order = np.argsort(-confidence)
    fine = np.flatnonzero(wrong[order].cumsum() / np.arange(1, len(order) + 1) <= alpha)
    last = fine[-1] if fine.size else -1
    return 1.0 if last < 0 else float(confidence[order[last + 1]]) if last + 1 < len(order) else 0.0


mapie = None if BinaryClassificationController is None else with_mapie


def referred(told):
    n, draws = 3000, max(told.draws // 20, 1)
    print(f"\nShare referred (and in how many of {draws} draws the bound is broken); ts, {n} validation samples")
    rows = []
    for name in [name for name in datasets.names() if "mnist" not in name]:
        population = Population(name)
        shares, broken = {}, {}
        bounds = [population.error_rate / part for part in (2, 4)]
        for draw in range(draws):
            for share in (0.5, 0.2):
                rng = np.random.default_rng([told.seed, draw])
                _, p, y = population.fitted("ts", round(share * n), rng)
                every, errors = p.max(axis=1), p.argmax(axis=1) != y
                chosen = rng.integers(len(y), size=n - round(share * n))
                c, wrong = every[chosen], errors[chosen]
                ways = {"now": ours(0.1), "SGR": sgr, "MAPIE": mapie} if share == 0.2 else {}
                ways = ways or {"before": ours(0.0), "new start": ours(0.1)}
                for bound in bounds:
                    found = {way: choose(c, wrong, bound) for way, choose in ways.items() if choose}
                    if share == 0.2:
                        found["oracle"] = oracle(every, errors, bound)
                    for way, t in found.items():
                        decided = every > t
                        shares.setdefault((bound, way), []).append(1 - decided.mean())
                        missed = decided.any() and errors[decided].mean() > bound
                        broken[bound, way] = broken.get((bound, way), 0) + missed
        ways = list(dict.fromkeys(way for _, way in shares))
        for bound in bounds:
            cells = [f"{np.mean(shares[bound, way]):.1%} ({broken[bound, way]})" for way in ways]
            rows.append([name, f"{bound:.1%}", *cells])
    table(["network", "bound", *ways], rows)


def ours(first):
    """Threshold by attemper, with at least this share of the samples in the first test."""

    def choose(confidence, wrong, alpha):
        first_test_at(first)
        return certify_decided(confidence, wrong, np.ones(len(wrong)), alpha, DELTA).threshold

    return choose


def shares(told):
    families = {
        "skin": ["resnet200-skin-lesionsplit-s0", "resnet200-skin-randomsplit-s0"],
        "cifar10": ["vgg16-cifar10-s0", "densenet40-cifar10-s0", "resnet110-cifar10-s0"],
        "fashion": ["lenet5-fashion_mnist-s0", "lenet5-fashion_mnist-dropout-s0"],
        "cifar100": ["vgg16-cifar100-s0"],
    }
    values = (0.1, 0.2, 0.3, 0.5)
    populations = {family: [Population(name) for name in names] for family, names in families.items()}
    print("\nShare referred by the share of the validation set that fits the map, mean over families of networks")
    rows = []
    # Structured scaling of 100 classes takes minutes here.
    for method, sizes, draws in (
        ("ts", (300, 1000, 3000), 10),
        ("structured", (1000,), 3),
        ("vector", (1000, 3000), 4),
    ):
        for n in sizes:
            means = {}
            for family, members in populations.items():
                if (method, family) == ("structured", "cifar100"):
                    continue
                found = {share: [] for share in values}
                for population in members:
                    for share in values:
                        for draw in range(draws):
                            rng = np.random.default_rng([told.seed, draw])
                            p_fit, p, y = population.fitted(method, round(share * n), rng)
                            chosen = rng.integers(len(y), size=n - round(share * n))
                            bound = population.error_rate / 2
                            policy = policy_for_miss(p[chosen], y[chosen], bound, fit_probs=p_fit)
                            found[share].append(risk_of(policy, p, y)[1])
                means[family] = [np.mean(found[share]) for share in values]
            # The best share without each of the families: it must not be the choice of one of them.
            others = [np.mean([m for other, m in means.items() if other != family], axis=0) for family in means]
            best = ", ".join(f"{values[int(np.argmin(mean))]:g}" for mean in others)
            rows.append([method, f"{n}", *(f"{v:.1%}" for v in np.mean(list(means.values()), axis=0)), best])
    table(["method", "N", *(f"{v:g}" for v in values), f"best, leaving out one of {', '.join(families)}"], rows)


def repeats(told):
    name = "resnet200-skin-lesionsplit-s0"
    stored = datasets.stored(name)
    _, lesion, m = np.unique(stored["lesion_id"], return_inverse=True, return_counts=True)
    by_lesion = np.argsort(lesion, kind="stable")
    at = np.concatenate([[0], m.cumsum()[:-1]])
    p = METHODS["ts"]().fit(stored["logits"], stored["labels"]).predict_proba(stored["logits"])
    confidence, wrong = p.max(axis=1), p.argmax(axis=1) != stored["labels"]
    print(f"\nSeveral pictures of a lesion, and all are deployed: how often the bound is broken; {name}")
    rows = []
    for bound in (0.1, 0.15):
        for n in (400, 1000, 3000):
            row = [f"{bound:.0%}", f"{n}"]
            for how in ("pictures", "one", "lesions"):
                rng, broken = np.random.default_rng(told.seed), 0
                for _ in range(told.draws):
                    drawn = rng.integers(len(m), size=n)
                    if how == "pictures":
                        chosen = rng.integers(len(lesion), size=n)
                    elif how == "one":
                        chosen = by_lesion[at[drawn] + rng.integers(m[drawn])]
                    else:
                        chosen = np.concatenate([by_lesion[at[k] : at[k] + m[k]] for k in drawn[: n // 2]])
                    c = confidence[chosen] + 1e-9 * rng.random(len(chosen))
                    t = certify_decided(c, wrong[chosen], np.ones(len(c)), bound, DELTA).threshold
                    broken += t < 1 and wrong[confidence > t].mean() > bound
                row.append(f"{broken / told.draws:.0%}")
            rows.append(row)
    table(["bound", "N", "pictures drawn at random", "one picture of each lesion", "all pictures of N/2 lesions"], rows)


def costs(told):
    name = "resnet200-skin-lesionsplit-s0"
    d = datasets.load(name)
    print(f"\nCost a sample of the test set, {name}, bayes; a miss of melanoma costs 50")
    p_val, p = (
        METHODS["bayes"]().fit(d.val_logits, d.val_labels).predict_proba(h) for h in (d.val_logits, d.test_logits)
    )
    rows = []
    for other in (1.0, 5.0):
        m = np.array([50.0 if k == "mel" else other for k in d.class_names])
        for r in (1.0, 2.0, 1000.0):
            row = [f"{other:g}", f"{r:g}" if r < 1000 else "nobody is referred"]
            for predict in ("most_probable", "least_cost"):
                policy = policy_for_cost(p_val, cost_refer=r, cost_miss=m, predict=predict)
                refer, prediction, _ = policy.refer_or_decide(p)
                cost = np.where(refer, r, np.where(prediction == d.test_labels, 0, m[d.test_labels])).mean()
                row += [f"{cost:.2f}", f"{refer.mean():.1%}", f"{(prediction == d.test_labels)[~refer].mean():.1%}"]
            rows.append(row)
    head = ["cost of another miss", "cost of a referral"]
    for label in ("most probable", "least cost"):
        head += [f"{label}: cost", "referred", "accuracy of the decided"]
    table(head, rows)


def main():
    parts = {f.__name__: f for f in (levels, start, methods, referred, shares, repeats, costs)}
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", choices=[*parts, []], help="all by default")
    parser.add_argument("--draws", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    told = parser.parse_args()
    for name in told.parts or parts:
        begun = time.process_time()
        parts[name](told)
        first_test_at(0.1)
        print(f"{name}: {time.process_time() - begun:.0f} s of CPU", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
