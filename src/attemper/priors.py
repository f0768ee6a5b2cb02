"""Class priors: known ones, estimates from unlabelled predictions, and whether another mix of classes explains these.

Label shift means that p(x | y) is what it was and only the shares of the classes differ. The distribution of any
function of x over new data is then Σ_k π_k p(f(x) | y = k).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from attemper._result import Columns, Table
from attemper._typing import Floats, Labels
from attemper.data.arrays import to_numpy
from attemper.data.inputs import as_labels
from attemper.data.scores import Chunk, Scores
from attemper.errors import InputError, LabelShiftError, check_share, listed, nearest
from attemper.kernels.priors import most_likely_priors, resampled_priors, shrunk_priors
from attemper.maps import Map

SLACK = 1e-6  # that the sum of shares may be off, by rounding; they are then divided by it
N_RESAMPLES = 200
PREDICTED_CLASSES = 32  # up to which cells are by predicted class; beyond, the confidence alone
EDGES = np.array([0.5, 0.8, 0.95, 0.99])  # of the confidence, between cells
MOST_UNEXPLAINED = 0.02  # share of the predictions; below, a difference does not matter
ALPHA = 0.01
MOST_LOGITS = 1 << 26  # that a mean prediction is computed from
MOST_ON_GPU = 1000  # classes
LEAST_SHARE = 1e-12  # 0 is practically impossible, but a row where no other class is possible stays as it is


def as_priors(values: Any, classes: Sequence[Any], param: str = "priors") -> Floats:
    """Check shares of the classes: one for each column, or a mapping by name; they add up to 1.

    >>> as_priors({"healthy": 0.9, "ill": 0.1}, ["ill", "healthy"])
    array([0.1, 0.9])
    >>> as_priors([90, 10], range(2))
    Traceback (most recent call last):
    attemper.errors.InputError: priors: expected shares that add up to 1, got a sum of 100
    """
    names = [str(name) for name in classes]
    given = _in_order(values, names, param) if isinstance(values, Mapping) else values
    try:
        priors = np.array(given, dtype=np.float64)
    except (TypeError, ValueError):
        raise InputError(f"{param}: expected {len(names)} shares, got {given!r:.60}", param) from None
    if priors.shape != (len(names),):
        raise InputError(f"{param}: expected {len(names)} shares, got shape {priors.shape}", param)
    if not (np.isfinite(priors) & (priors >= 0)).all():
        raise InputError(f"{param}: expected shares of 0 or more, got {priors.tolist()!r:.80}", param)
    total = float(priors.sum())
    if abs(total - 1) > SLACK:
        raise InputError(f"{param}: expected shares that add up to 1, got a sum of {total:.9g}", param)
    return priors / total


def _in_order(given: Mapping[Any, Any], names: list[str], param: str) -> list[Any]:
    """Return the values of a mapping in the order of the columns."""
    texts = {str(name): value for name, value in given.items()}
    if unknown := [name for name in texts if name not in names]:
        raise InputError(f"{param}: {unknown[0]!r} is not among {listed(names)}.{nearest(unknown[0], names)}", param)
    if missing := [name for name in names if name not in texts]:
        raise InputError(f"{param}: expected a share for each class, got none for {listed(missing)}", param)
    return [texts[name] for name in names]


@dataclass(frozen=True, eq=False, repr=False)
class PriorEstimate(Table):
    """Shares of the classes in unlabelled data."""

    priors: Floats  # the most likely shares, shrunk towards the old ones as far as the data do not contradict them
    most_likely: Floats  # the maximum of the likelihood, which EM (Saerens et al. 2002) tends to
    low: Floats  # interval of each share, by bootstrap of the most likely ones and of the old ones
    high: Floats
    old: Floats  # the shares under which the predictions are calibrated
    concentration: float | None  # how many cases the old shares count as, by the evidence; None: no sign of a shift
    gap: float  # certificate: nats a sample by which the likelihood could be larger, at most
    n_cases: float

    def columns(self) -> Columns:
        """Return one row for each class."""
        names = ("old", "priors", "low", "high", "most_likely")
        return {"class": np.arange(len(self.old)), **{name: getattr(self, name) for name in names}}


def estimate_priors(
    probs: ArrayLike,
    old: ArrayLike,
    *,
    n_reference: float | None = None,
    labelled: ArrayLike | None = None,
    clusters: ArrayLike | None = None,
    confidence_level: float = 0.95,
    seed: int = 0,
) -> PriorEstimate:
    """Estimate the shares of the classes in unlabelled data, under label shift.

    Parameters
    ----------
    probs : array of shape (n_samples, n_classes), or (n_samples,) for the second of two classes
        Calibrated probabilities.
    old : array of shape (n_classes,)
        The shares under which they are calibrated: the mean prediction on validation data (Alexandari et al. 2020).
    n_reference : float, optional
        How many validation cases ``old`` is the mean of; by default it is exact. New cases count at most as much.
    labelled : array of shape (n_classes,), optional
        Which classes had labels in the validation data; all by default. Others keep their old share.
    clusters : array of shape (n_samples,), optional
        Rows of one cluster are drawn together, and count as one case where the estimate is shrunk.
    confidence_level, seed
        Of the bootstrap.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> y = rng.choice(2, 5000, p=[0.8, 0.2])
    >>> z = 2 * (y - 0.5) * 1.5 + rng.normal(size=5000)  # log-odds 3 z under equal shares
    >>> p = 1 / (1 + np.exp(-3 * z))
    >>> found = estimate_priors(np.column_stack([1 - p, p]), [0.5, 0.5])
    >>> found.priors.round(2), bool(found.low[1] < 0.2 < found.high[1])
    (array([0.79, 0.21]), True)
    """
    p, case = _rows(probs, clusters)
    check_share(confidence_level, "confidence_level")
    reference = np.inf if n_reference is None else float(n_reference)
    if not reference > 0:
        raise InputError(f"n_reference={n_reference}: expected a positive number", "n_reference")
    n_cases = float(len(p) if case is None else case.max() + 1)
    before = _above_zero(
        as_priors(old, range(p.shape[1]), "old"), reference if np.isfinite(reference) else float(len(p))
    )
    movable = np.ones(len(before), dtype=bool) if labelled is None else np.asarray(labelled, dtype=bool)
    if movable.shape != before.shape or not movable.any():
        raise InputError(f"labelled: expected true or false for each of {len(before)} classes", "labelled")
    likelihoods = (p / before)[:, movable]
    usable = likelihoods.max(axis=1) > 0
    likelihoods, left = likelihoods[usable], float(before[movable].sum())
    if not len(likelihoods):
        raise InputError("probs: every row has probability 0 for all classes with labels", "probs")
    start = before[movable] / left
    own = np.ones(len(likelihoods))
    best = most_likely_priors(likelihoods, own, start=start)
    # As many as both samples leave together, as of the difference of two means.
    together = n_cases if np.isinf(reference) else n_cases * reference / (n_cases + reference)
    shrunk = shrunk_priors(likelihoods, own * (together / len(own)), start)
    rng = np.random.default_rng(seed)
    draws = ((_drawn(len(p), case, rng)[usable], _factors(start, reference, rng)) for _ in range(N_RESAMPLES))
    tail = (1 - confidence_level) / 2
    low, high = np.quantile(resampled_priors(likelihoods, best.priors, draws, N_RESAMPLES), [tail, 1 - tail], axis=0)

    def of_all(shares: Floats) -> Floats:
        """Return the shares of all classes: those that are not movable keep theirs."""
        found = before.copy()
        found[movable] = left * shares
        return found

    ends = (of_all(np.minimum(low, shrunk.priors)), of_all(np.maximum(high, shrunk.priors)))
    concentration = None if np.isinf(shrunk.concentration) else shrunk.concentration
    return PriorEstimate(of_all(shrunk.priors), of_all(best.priors), *ends, before, concentration, best.gap, n_cases)


def adapt(
    calibrator: Any, X: Any, *, validation: Any = None, axis: int | None = None, groups: Any = None,
    clusters: Any = None,
) -> Any:  # fmt: skip
    """Return a calibrator for the class priors of unlabelled data: `adapt` of every calibrator."""
    calibrator._check_fitted()
    if calibrator.map_.independent:
        raise InputError("X: labels that do not exclude each other have no class priors", "X")
    own: dict[str, Any] = {
        "input": calibrator.map_.input,
        "zeros_as": calibrator.map_.zeros_as,
        "classes": calibrator._names,
    }

    def scores_of(X: Any, y: Any = None, **ids: Any) -> Scores:
        array = X if isinstance(X, Scores) else calibrator._array_of(X)
        found = X if isinstance(X, Scores) else Scores.of(array, y, axis=calibrator._axis(axis), **own, **ids)
        if found.n_samples < len(found):
            raise InputError("validation: expected one label for each sample. Use shares.argmax(axis=1)", "validation")
        if found.w is not None and len(np.unique(found.w)) > 1:
            raise InputError("sample_weight: class priors are shares of samples, all of weight 1", "sample_weight")
        return found

    new = scores_of(X, groups=calibrator._groups_of(X, groups), clusters=clusters)
    probs = to_numpy(calibrator.predict_proba(new))
    report, k, labelled = calibrator.report_, calibrator.n_features_in_, None
    old = getattr(calibrator, "priors_", None) if hasattr(calibrator, "rows_") else None  # a sketch has no predictions
    n = report.n_cases or report.n_samples
    if validation is not None:
        if not isinstance(validation, Scores) and not (isinstance(validation, tuple) and len(validation) == 2):
            raise InputError("validation: expected data with labels, (X, y) or Scores", "validation")
        if "groups" in calibrator.needs and not isinstance(validation, Scores):
            raise InputError("validation: expected Scores, which have groups. Use attemper.read.", "validation")
        val = scores_of(*(validation if isinstance(validation, tuple) else (validation,)))
        before = to_numpy(calibrator.predict_proba(val))
        n = len(val) if val.cases is None else int(val.cases.max()) + 1
        old, labelled = before.mean(axis=0), np.bincount(val.labels, minlength=k) > 0
    if old is None:
        what = (
            "the mean prediction of the fit is not known, as of a sketch. Fit to rows, or use adapt(validation=(X, y))"
        )
        raise InputError(f"validation: {what}", "validation")
    found = estimate_priors(probs, old, n_reference=n, labelled=labelled, clusters=new.clusters)
    if validation is not None:
        known = found.priors if k > PREDICTED_CLASSES else None
        cases = {"val_clusters": val.clusters, "clusters": new.clusters}
        test = shift_test(before, val.labels, probs, priors=known, **cases)  # type: ignore[arg-type]
        if not test.plausible:
            what = f"{test.unexplained:.0%} of the predictions (p = {test.p_value:.2g})"
            raise LabelShiftError(f"X: no mix of the classes explains {what}. Fit again on new labels.", "X")
    made = calibrator.with_priors(found.priors, found.old)
    made.adapted_ = found
    return made


def mean_prediction(fitted: Map, scores: Scores) -> Floats | None:
    """Return the mean prediction of a map of logits for the samples of a fit; None where it would take long.

    It is that of all rows; of very many, and of those on a GPU, of evenly spread ones.
    """
    if scores.device is not None and scores.n_classes > MOST_ON_GPU:
        return None
    some = scores.sample(max(1, (MOST_LOGITS if scores.device is None else MOST_LOGITS >> 4) // scores.n_classes))
    wide = np.float64 if fitted.double or scores.bound > 1e30 else np.float32
    arrays = {name: a.astype(wide) if a.dtype.kind == "f" else a for name, a in fitted.arrays().items()}

    def sums(chunk: Chunk) -> Floats:
        with np.errstate(over="ignore", divide="ignore"):
            p = fitted.evaluate(chunk.h, arrays, np, log=False)
        return np.asarray(p.sum(axis=0, dtype=np.float64) if chunk.w is None else chunk.w @ p)

    return some.total(sums, wide) / some.total_weight


def _rows(probs: ArrayLike, clusters: ArrayLike | None) -> tuple[Floats, Labels | None]:
    """Return probabilities, and the number of the case of each row."""
    scores = Scores.of(probs, input="probs", clusters=clusters)
    return to_numpy(scores.raw(slice(0, len(scores)))).astype(np.float64), scores.cases


def _drawn(n: int, case: Labels | None, rng: np.random.Generator) -> Floats:
    """Draw cases with replacement; return how often each row was drawn."""
    units = n if case is None else int(case.max()) + 1
    times = np.bincount(rng.integers(0, units, units), minlength=units).astype(np.float64)
    return times if case is None else times[case]


def _above_zero(old: Floats, n: float) -> Floats:
    """Give a class that was never predicted half a sample, shared by all classes."""
    lifted = np.maximum(old, 0.5 / (max(n, 1.0) * len(old)))
    return np.asarray(lifted / lifted.sum())


def _factors(old: Floats, n_reference: float, rng: np.random.Generator) -> Floats:
    """Return what likelihoods are multiplied by where the old shares are drawn anew, from as many samples."""
    if np.isinf(n_reference):
        return np.ones(len(old))
    return np.asarray(old / np.maximum(rng.dirichlet(n_reference * old + 0.5), 1e-12))  # Jeffreys' prior: no share is 0


@dataclass(frozen=True, eq=False)
class ShiftTest:
    """How well some mix of the classes explains the predictions for new data."""

    p_value: float  # that only the shares of the classes differ, by a parametric bootstrap of both tables
    unexplained: float  # share of the predictions that no mix of the classes explains, less what it is by chance
    priors: Floats  # shares of the classes that explain the cells best

    @property
    def plausible(self) -> bool:
        """Whether the difference is not significant at 1 %, or at most 2 % of the predictions."""
        return self.p_value > ALPHA or self.unexplained <= MOST_UNEXPLAINED


def shift_test(
    val_probs: ArrayLike,
    val_labels: ArrayLike,
    probs: ArrayLike,
    *,
    priors: Floats | None = None,
    val_clusters: ArrayLike | None = None,
    clusters: ArrayLike | None = None,
    seed: int = 0,
) -> ShiftTest:
    """Test whether new predictions are those of another mix of the classes of validation data.

    Predictions fall into cells: the predicted class (up to 32 classes) and a range of its probability. The statistic is
    the likelihood ratio G² of the cells of the new data, with the shares of the classes that make it least. Its
    distribution under label shift comes from drawing both tables anew from the fitted model. Rows of one cluster count
    as one case together.

    Parameters
    ----------
    val_probs, val_labels, probs : arrays
        Calibrated predictions for validation data, their labels as column numbers, and predictions for new data.
    priors : array of shape (n_classes,), optional
        Shares that are tested, by default those that explain the cells best; needed for more than 32 classes.
    val_clusters, clusters : arrays, optional
    seed : int

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> def predictions(share, scale):
    ...     y = (rng.random(3000) < share).astype(int)
    ...     p = 1 / (1 + np.exp(-scale * (2 * y - 1 + rng.normal(size=3000))))
    ...     return np.column_stack([1 - p, p]), y
    >>> val = predictions(0.5, 2.0)
    >>> shift_test(*val, predictions(0.2, 2.0)[0]).plausible
    True
    >>> shift_test(*val, predictions(0.2, 4.0)[0]).plausible
    False
    """
    (p_val, case_val), (p, case) = _rows(val_probs, val_clusters), _rows(probs, clusters)
    k, y = p_val.shape[1], as_labels(val_labels, *p_val.shape)
    if p.shape[1] != k:
        raise InputError(f"probs: validation data have {k} classes, new data {p.shape[1]}", "probs")
    if priors is None and k > PREDICTED_CLASSES:
        raise InputError(f"priors: expected shares of the {k} classes; cells show their mix for 32", "priors")
    table = _counts(_cells(p_val) * k + y, _n_cells(k) * k, case_val).reshape(-1, k)
    counts = _counts(_cells(p), _n_cells(k), case)
    used = (table.sum(axis=1) + counts) > 0
    labelled = table.sum(axis=0) > 0  # of other classes nothing is known, so that they explain anything
    table, counts = table[used][:, labelled], counts[used]
    fixed = None if priors is None else priors[labelled] / priors[labelled].sum()
    model, found, statistic, distance = _explained(table, counts, fixed)
    by_chance = _by_chance(model, found, table, counts, fixed, np.random.default_rng(seed))
    p_value = (1 + float((by_chance[:, 0] >= statistic).sum())) / (1 + len(by_chance))
    shares = np.zeros(k)
    shares[labelled] = found
    return ShiftTest(p_value, max(0.0, distance - float(by_chance[:, 1].mean())), shares)


def _by_chance(
    model: Floats, priors: Floats, table: Floats, counts: Floats, fixed: Floats | None, rng: np.random.Generator
) -> Floats:
    """Draw both tables from the fitted model; return G² and distance of each draw."""
    of_class, n = np.round(table.sum(axis=0)).astype(int), max(1, round(float(counts.sum())))
    drawn = []
    for _ in range(N_RESAMPLES - 1):
        columns = [rng.multinomial(m, model[:, k]) for k, m in enumerate(of_class)]
        mix = model @ priors
        again = rng.multinomial(n, mix / mix.sum()).astype(float)
        drawn.append(_explained(np.array(columns, float).T, again, fixed)[2:])
    return np.array(drawn)


def _n_cells(n_classes: int) -> int:
    return (len(EDGES) + 1) * (n_classes if n_classes <= PREDICTED_CLASSES else 1)


def _cells(probs: Floats) -> NDArray[np.int64]:
    """Return the cell of each row."""
    cells = np.searchsorted(EDGES, probs.max(axis=1), side="right")
    of_class = probs.argmax(axis=1) * (len(EDGES) + 1) if probs.shape[1] <= PREDICTED_CLASSES else 0
    return np.asarray(of_class + cells, dtype=np.int64)


def _counts(cells: Labels, size: int, case: Labels | None) -> Floats:
    """Count the rows of each cell; those of one case count as one together."""
    w = None if case is None else 1 / np.bincount(case)[case]
    return np.asarray(np.bincount(cells, w, size), dtype=np.float64)


def _explained(table: Floats, counts: Floats, fixed: Floats | None) -> tuple[Floats, Floats, float, float]:
    """Return p(cell | class), the best shares of the classes unless fixed, G² and the distance that they leave."""
    # With one sample more of each class, drawn from all data.
    pooled = table.sum(axis=1) + counts + 0.5
    model = (table + (pooled / pooled.sum())[:, None]) / (table.sum(axis=0) + 1)
    priors = most_likely_priors(model, counts, tolerance=1e-6).priors if fixed is None else fixed
    mix, seen, n = model @ priors, counts > 0, counts.sum()
    statistic = 2 * float(counts[seen] @ np.log(counts[seen] / (n * mix[seen])))
    return model, priors, statistic, 0.5 * float(np.abs(counts / n - mix).sum())
