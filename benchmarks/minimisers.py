"""Our minimisers beside those of scipy.optimize: the same function and derivatives, in one run of two minutes.

    python benchmarks/minimisers.py [--repeats 3]

Six sets of at most 5000 samples: networks of data/ with 7, 10 and 100 classes; the first with logits 30 times as large;
the second with weights (a tenth of them 0), and with its arg max as labels, so that they can be separated. Printed over
the sets: the worst norm of the gradient (of a mixture: a bound on the gap), the worst objective above the least that
any method found, CPU time divided by ours (median of the repeats), evaluations and products with a Hessian, and on how
many sets a method fails: it raises, takes ten times as long as ours and is stopped, ends more than 1e-9 above the best,
or reports success where there is no minimum (such sets count for failures alone). BLAS has one thread.
"""

import argparse
import time
import warnings
from functools import partial
from pathlib import Path

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, minimize, minimize_scalar, root_scalar
from scipy.special import log_softmax

from attemper import BetaCalibration, PlattScaling, Scores
from attemper.calibrators.ensemble_temperature import _components, mix
from attemper.calibrators.one_vs_rest import Block, OneVsRest
from attemper.calibrators.platt import _targets
from attemper.calibrators.temperature import best_temperature
from attemper.kernels import logistic, nll, regression
from attemper.kernels.blas import one_blas_thread
from attemper.maps.odds import log_odds

OPTIONS = {
    "newton-cg": {"xtol": 1e-10},
    "L-BFGS-B": {"ftol": 0, "gtol": 1e-9, "maxiter": 1000},
    "SLSQP": {"ftol": 1e-16, "maxiter": 500},
    "trust-constr": {"gtol": 1e-12, "xtol": 1e-14, "barrier_tol": 1e-12, "maxiter": 500},
}


class Watched:
    """A function that counts its calls, keeps the last result for its parts, and ends a search that takes too long."""

    def __init__(self, function, end):
        self.function, self.end, self.count, self.x = function, end, 0, None

    def __call__(self, x):
        if time.process_time() > self.end:
            raise TimeoutError
        if self.x is None or not np.array_equal(x, self.x):
            self.x, self.last, self.count = np.array(x), self.function(x), self.count + 1
        return self.last


def search(method, evaluate, start, end, **more):
    """Run one method of `minimize`; ``evaluate`` returns the value, the gradient, and the Hessian or its product."""
    f = Watched(evaluate, end)
    if callable(evaluate(start)[2]):
        more["hessp"] = lambda v, d: f(v)[2](d)
    elif method not in ("SLSQP", "L-BFGS-B"):
        more["hess"] = lambda v: f(v)[2]
    options = OPTIONS.get(method, {"gtol": 1e-9})
    found = minimize(lambda v: f(v)[0], start, jac=lambda v: f(v)[1], method=method, options=options, **more)
    return found.x, f.count + (found.nhev if "hessp" in more else 0), found.success


def temperature(h, y, w):
    scores = Scores.from_logits(h, y, sample_weight=w)
    near = -np.log(best_temperature(scores.sample(256)).t)  # ours has to find it

    def evaluate(u):  # of log β
        value, slope, curvature = nll.sums(h, y, w, np.exp(u), bound=scores.bound) / scores.total_weight
        return value, np.exp(u) * slope, np.exp(u) * (slope + np.exp(u) * curvature)

    def ours(end):
        found = best_temperature(scores)
        return -np.log(found.t), found.minimum.n_iter if found.minimum else 0, found.edge is None

    def theirs(solver, part, end, **options):
        f = Watched(evaluate, end)
        options |= {"fprime": lambda u: f(u)[2]} if "x0" in options else {}
        found = solver(lambda u: f(u)[part], **options)
        return (found.root, f.count, found.converged) if part else (found.x, f.count, found.success)

    around = (near - 1, near + 1)
    rivals = {
        "root_scalar newton, from T = 1": partial(theirs, root_scalar, 1, method="newton", x0=0.0),
        "root_scalar newton, from a sample's T": partial(theirs, root_scalar, 1, method="newton", x0=near),
        "root_scalar brentq": partial(theirs, root_scalar, 1, method="brentq", bracket=around, xtol=1e-9),
        "minimize_scalar brent": partial(theirs, minimize_scalar, 0, method="brent", bracket=(near, near + 0.1)),
        "minimize_scalar bounded": partial(theirs, minimize_scalar, 0, bounds=around, options={"xatol": 1e-9}),
    }
    return ours, rivals, lambda u: evaluate(u)[:2], (y != h.argmax(axis=1)).any()


def mixture(h, y, w):
    scores = Scores.from_logits(h, y, sample_weight=w)
    log_parts, v = _components(scores, best_temperature(scores).t), np.ones(len(y)) if w is None else w
    parts, v = np.exp(log_parts[v > 0]), v[v > 0] / v.sum()

    def evaluate(omega):
        share = parts / (parts @ omega)[:, None]
        return -v @ np.log(parts @ omega), -v @ share, share.T @ (share * v[:, None])

    def ours(end):
        found = mix(log_parts, w)
        return np.array(found.at), found.n_iter, found.error < 1e-8

    def score(omega):
        value, slopes, _ = evaluate(np.maximum(omega, 0) / np.maximum(omega, 0).sum())
        return value, np.log(max(-slopes.min(), 1.0))

    simplex = {"bounds": Bounds(0, 1, keep_feasible=True), "constraints": LinearConstraint(np.ones(3), 1, 1)}
    rivals = {m: partial(search, m, evaluate, np.full(3, 1 / 3), **simplex) for m in ("SLSQP", "trust-constr")}
    return ours, rivals, score, True


def affine(h, y, w, *, diagonal, l2):
    x, k = log_softmax(h, axis=1), h.shape[1]
    prior, penalty = regression.Params(np.ones(k) if diagonal else np.eye(k), np.zeros(k)), regression.Params(l2, l2)
    problem = regression.Problem.of(x, y, w, prior, penalty, None)

    def evaluate(v):
        theta = v.reshape(problem.prior.shape)
        state = problem.evaluate(problem.logits(theta), theta)
        product = problem.product(state.p)
        return state.value, state.gradient.ravel(), lambda d: product(d.reshape(theta.shape)).ravel()

    def ours(end):
        found = regression.minimise(x, y, w, prior, penalty)
        return problem.pack(found.at).ravel(), found.n_iter + found.products, found.converged and found.attained

    methods = ("newton-cg", "trust-ncg", "trust-krylov")
    rivals = {m: partial(search, m, evaluate, problem.prior.ravel()) for m in methods}
    return ours, rivals, lambda v: evaluate(v)[:2], l2 > 0 or (y != h.argmax(axis=1)).any()


def curves(h, y, w, *, recipe):
    blocks = OneVsRest.of(Scores.from_logits(h, y, sample_weight=w), log_odds).blocks()
    block = Block(*(np.concatenate(arrays) for arrays in zip(*blocks)))
    bounded, v = recipe.slopes == 2, block.w / block.w.sum(axis=1, keepdims=True)
    t, x = _targets(block, recipe.targets, falling=not bounded)[0], recipe._features(block.x)
    x = x - np.vecdot(v, x)[..., None]
    x /= np.sqrt(np.vecdot(v, x**2))[..., None]

    def ours(end):
        found = logistic.minimise(x, t, v, bounded=bounded)
        return found.at, found.n_iter * len(t), found.error.sum() < 1e-10

    def one(c, theta):
        return [a[0] for a in logistic.evaluate(theta[None], x[:, c, None], t[c, None], v[c, None])]

    def theirs(method, end):
        more = {"bounds": Bounds([0, 0, -np.inf], np.inf)} if bounded else {}
        start = np.append(np.ones(len(x)), 0.0)
        theta, count, success = zip(*(search(method, partial(one, c), start, end, **more) for c in range(len(t))))
        return np.array(theta), sum(count), all(success)

    def score(theta):
        loss, gradient, _ = logistic.evaluate(theta, x, t, v)
        gradient[:, :-1] *= ~(bounded & (theta <= 0) & (gradient > 0))[:, :-1]
        return loss.sum(), gradient

    methods = ("L-BFGS-B", "SLSQP", "trust-constr") if bounded else ("newton-cg", "trust-exact")
    return ours, {m: partial(theirs, m) for m in methods}, score, True


PROBLEMS = {
    "one temperature": temperature,
    "mixture weights (ETS)": mixture,
    "vector, no penalty": partial(affine, diagonal=True, l2=0.0),
    "matrix, penalty 0.01": partial(affine, diagonal=False, l2=0.01),
    "Platt curves": partial(curves, recipe=PlattScaling()),
    "beta curves": partial(curves, recipe=BetaCalibration()),
}


def sets():
    rng = np.random.default_rng(0)
    for name in ("resnet200-skin-randomsplit-s0", "vgg16-cifar10-s0", "vgg16-cifar100-s0"):
        with np.load(Path(__file__).parents[1] / "data" / f"{name}.npz") as z:
            every = -(-len(z["labels"]) // 5000)
            h, y = z["logits"][::every].astype(np.float64), z["labels"][::every].astype(np.int64)
        yield h, y, None
        if h.shape[1] == 7:
            yield 30 * h, y, None
        if h.shape[1] == 10:
            yield h, y, rng.exponential(size=len(y)) * (rng.uniform(size=len(y)) > 0.1)
            yield h, h.argmax(axis=1), None


def measure(fit, repeats, limit=np.inf):
    """Median CPU time, and what was found; None where it raises."""
    times = []
    while len(times) < repeats and sum(times) < 2:
        start = time.process_time()
        try:
            found = fit(start + limit)
        except Exception:  # it is counted
            found = None
        times.append(time.process_time() - start)
    return float(np.median(times)), found


def compare(ours, rivals, score, attained, repeats):
    """Yield for each method: its name, gradient norm, gap, time ratio, evaluations, whether it failed."""
    own, found = measure(ours, repeats)
    results = {"attemper": (own, found)} | {m: measure(fit, repeats, 10 * own) for m, fit in rivals.items()}
    scores = {m: score(found[0]) for m, (_, found) in results.items() if found is not None}
    least = min(value for value, _ in scores.values())
    for m, (seconds, found) in results.items():
        _, count, success = found or (None, np.nan, False)
        value, gradient = scores.get(m, (np.nan, np.nan))
        if attained:
            failed = not (success and value - least <= 1e-9)
            yield m, np.linalg.norm(gradient), value - least, seconds / own, count, failed
        else:
            yield m, *[np.nan] * 4, success


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=3)
    args = parser.parse_args()
    print("| problem | method | gradient | gap | time / ours | evaluations | failed |\n|---|---|---|---|---|---|---|")
    for name, problem in PROBLEMS.items():
        rows = {}
        for data in sets():
            for method, *row in compare(*problem(*data), args.repeats):
                rows.setdefault(method, []).append(row)
        for method, values in rows.items():
            norm, gap, ratio, count, failed = np.array(values, dtype=float).T
            spread = " | ".join(f"{np.nanmin(a):.{d}f} to {np.nanmax(a):.{d}f}" for a, d in ((ratio, 1), (count, 0)))
            row = (
                f"| {name} | {method} | {np.nanmax(norm):.0e} | {np.nanmax(gap):.0e} | {spread} | {failed.sum():.0f} |"
            )
            print(row.replace("nan to nan", "–").replace("nan", "–"))


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    with one_blas_thread():
        main()
