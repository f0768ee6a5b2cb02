"""Many labels that do not exclude each other: a curve for each, pooled so that a rare label borrows from the others.

The pooled fit is empirical Bayes (`attemper.kernels.pooled`): log-slope and bias of the labels are drawn from one
normal law, whose mean and covariance the labels themselves determine. On samples held out from it (five folds, of the
scores alone, so that the order of samples and their repetition change nothing) it is compared with the classifier as it
is. Where it is not better, the classifier is left alone. Errors of the labels are not modelled.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import fields
from typing import Any, Literal, NamedTuple, Self

import array_api_compat
import numpy as np
from numpy.typing import NDArray

from attemper._checks import one_of
from attemper._json import Fields, from_fields, to_fields, write_document
from attemper._typing import Floats
from attemper.calibrators.base import Calibrator
from attemper.calibrators.estimator import Classifier, fitted, recipe
from attemper.calibrators.fit_report import FitReport
from attemper.calibrators.provenance import Provenance
from attemper.calibrators.registry import METHODS
from attemper.data.arrays import to_numpy
from attemper.data.label_matrix import (
    Uncertain,
    as_label_probs,
    as_label_scores,
    check_columns,
    label_matrix,
    label_names,
)
from attemper.data.labels import as_weights
from attemper.data.plausibility import warn_of_single_probs
from attemper.errors import AttemperError, ConvergenceWarning, FileError, InputError, NotFittedError, warn
from attemper.kernels import pooled
from attemper.kernels.blas import one_blas_thread
from attemper.kernels.shrinkage import ScalePrior
from attemper.maps import OddsMap, SigmoidMap

__all__ = ["LabelFit", "MultiLabelCalibrator"]

SHOWN = 12  # labels that `describe` lists
SEPARATE = ("platt", "beta", "ts")  # methods of two classes that end in one curve
# Of the common temperature: as in `structured`. Of the common bias: that of a network which was trained with weights
# for rare labels. How labels differ: least excess over calibrated, common and different labels, 4 and 20 of them, with
# 5 to 1000 positives each.
EXPECTED = pooled.Expected(ScalePrior(0.15, 0.6, 4.0), ScalePrior(0.0, 1.0, 4.0), np.diag([0.01, 0.05]), 3.0)
FOLDS = 5


class LabelFit(NamedTuple):
    """What the fit of one label was made of: ``labels_`` of a `MultiLabelCalibrator`."""

    name: str
    n_known: float  # sums of weights
    n_positive: float
    own_share: float | None  # pooled: how far its curve depends on its own samples; 0: it is the common one
    note: str = ""


@recipe
class MultiLabelCalibrator(Classifier):
    r"""Calibrate a multi-label classifier, such as one for findings in a radiograph: N×L scores, N×L labels.

    Each label l has a map of its own. By default they are pooled: with s the log-odds,
    :math:`\sigma(a_l s + b_l)`, where :math:`(\log a_l, b_l)` are drawn from one normal law that all labels share, and
    that is estimated from them. A label with many positives keeps its own curve, one with few gets nearly the common
    one, and one without known entries gets exactly that. If held-out samples show no gain over the classifier as it
    is, the map leaves it alone (``fit_report_.left_alone``). Errors in the labels are not modelled.

    Parameters
    ----------
    method : str or Calibrator
        "pooled"; or a curve that is fitted to each label by itself: "platt", "beta" or "ts", or such a calibrator with
        parameters of its own.
    input : "logits" or "probs"
        What X holds: the log-odds of each label (what a sigmoid takes), or its probability. It is never guessed.
    zeros_as : float, optional
        For probabilities: the value that 0 is read as, such as 1e-8, if it comes from rounding; 1 is read as 1 minus
        that.
    label_names : sequence of names, optional
        By default those of the columns, if Y or X is a data frame, or numbers.
    uncertain : "unknown", "positive", "negative" or float, optional
        What an entry of −1 stands for, as in CheXpert's files; a float is a soft label. By default it is an error.

    Attributes
    ----------
    map_ : SigmoidMap
        What was fitted: a curve for each label.
    thresholds_ : array of shape (n_labels,)
        `predict` returns 1 where the probability reaches it: 0.5, unless you set others. Files keep them.
    labels_ : list of LabelFit
        Known and positive samples of each label, and how far its map depends on them.
    common_ : SigmoidMap or None
        The common curve of the pooled fit, as a map of one label.
    heldout_gain_ : float or None
        Pooled: how much lower the NLL is than without calibration, in nats for each known entry, on held-out samples.
    fit_report_ : FitReport
        How the fit went; the NLL is the mean over all known entries.
    label_names_, n_features_in_
        Names of the labels, and how many there are.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> truth = rng.normal(size=(4000, 3)) * 2 - [0, 2, 5]  # the last label is rare
    >>> labels = (truth + rng.logistic(size=truth.shape) > 0).astype(float)
    >>> labels[::7, 1] = np.nan  # unknown
    >>> scores = 2 * truth + 1  # too confident, and too high
    >>> calibrator = MultiLabelCalibrator(label_names=["edema", "fracture", "hernia"]).fit(scores, labels)
    >>> calibrator.map_.a.round(1), calibrator.map_.c.round(1)
    (array([0.5, 0.5, 0.5]), array([-0.5, -0.5, -0.4]))
    >>> calibrator.predict_proba([[1.0, 1.0, 1.0]]).round(2), calibrator.predict([[3.0, 0.0, -9.0]])
    (array([[0.51, 0.5 , 0.53]]), array([[1, 0, 0]]))
    """

    method: Any = "pooled"
    input: Literal["logits", "probs"] = "logits"
    zeros_as: float | None = None
    label_names: Sequence[Any] | None = None
    uncertain: Uncertain = None
    map_: SigmoidMap = fitted()
    thresholds_: Floats = fitted()
    labels_: list[LabelFit] = fitted()
    common_: SigmoidMap | None = fitted()
    heldout_gain_: float | None = fitted()
    fit_report_: FitReport = fitted()
    provenance_: Provenance = fitted()  # only if it was loaded from a file that has one
    label_names_: NDArray[Any] = fitted()
    n_features_in_: int = fitted()

    def fit(self, X: Any, Y: Any, sample_weight: Any = None, *, mask: Any = None) -> Self:
        """Fit on validation data.

        Parameters
        ----------
        X : array or data frame of shape (n_samples, n_labels)
            Log-odds of each label, or probabilities with ``input="probs"``.
        Y : array or data frame of shape (n_samples, n_labels)
            1, 0, or NaN where it is not known; see `attemper.label_matrix`.
        sample_weight : array of shape (n_samples,), optional
            How often each row counts.
        mask : array of shape (n_samples, n_labels), optional
            1 where an entry of Y is known, 0 where it does not count.
        """
        one_of("input", self.input, ("logits", "probs"))
        base = self._base()
        s = self._log_odds(X, self.label_names)
        names = label_names(self.label_names, s.shape[1], Y, X)
        check_columns(Y, X, "Y", "X")
        y = label_matrix(Y, mask=mask, uncertain=self.uncertain, names=names, shape=s.shape)
        weight = np.ones(len(s)) if sample_weight is None else as_weights(sample_weight, len(s))
        known = ~np.isnan(y)
        w = weight[:, None] * known
        if not w.any():
            raise InputError("labels: no entry is known, so there is nothing to fit")
        self._reset(names)
        if hasattr(X, "columns"):
            self.feature_names_in_ = np.array([str(name) for name in X.columns], dtype=object)
        some = w.any(axis=1)
        data = pooled.Problems(*(np.ascontiguousarray(a[some].T) for a in (s, np.where(known, y, 0.0), w)))
        with one_blas_thread():
            facts = self._fit_pooled(data) if base is None else self._fit_separately(base, data)
        self._report(data, facts)
        return self

    def predict_proba(self, X: Any) -> Any:
        """Calibrated probabilities of the labels, N×L, in the array type, device and precision of ``X``."""
        x = self._checked(X)
        return self.map_.apply(self._taken(x), dtype=_float_type(x))

    def predict_log_proba(self, X: Any) -> Any:
        """Logarithms of the calibrated probabilities, without underflow."""
        x = self._checked(X)
        return self.map_.log_apply(self._taken(x), dtype=_float_type(x))

    def predict(self, X: Any) -> NDArray[np.int64]:
        """Return 1 where the probability of a label reaches its threshold, else 0, N×L."""
        probs = to_numpy(self.predict_proba(X))
        return np.asarray(probs >= self.checked_thresholds(), dtype=np.int64)

    def summary(self) -> dict[str, Any]:
        """Return the fitted values as plain numbers, label by label."""
        rows: list[dict[str, Any]] = [fit._asdict() for fit in self.labels_]
        for k, row in enumerate(rows):
            row |= {"a": float(self.map_.a[k]), "b": float(self.map_.b[k]), "c": float(self.map_.c[k])}
            row["threshold"] = float(self.thresholds_[k])
        common = None
        if self.common_ is not None:
            common = {"slope": float(self.common_.a[0]), "bias": float(self.common_.c[0])}
        return {"labels": rows, "common": common, "heldout_gain": self.heldout_gain_}

    def describe(self) -> list[str]:
        """Return a readable summary, line by line."""
        lines = []
        if self.common_ is not None:
            a, c = float(self.common_.a[0]), float(self.common_.c[0])
            lines.append(f"common curve of all labels: slope {a:.4g} (T = {1 / a:.4g}), bias {c:+.4g}")
        order = np.argsort([fit.n_positive for fit in self.labels_], kind="stable")
        lines += [self._describe_label(k) for k in order[:SHOWN].tolist()]
        if len(order) > SHOWN:
            lines.append(f"… and {len(order) - SHOWN} labels with more positives")
        return lines

    def _describe_label(self, k: int) -> str:
        fit = self.labels_[k]
        line = f"{fit.name}: {fit.n_positive:g} of {fit.n_known:g} positive"
        a, b, c = (float(v[k]) for v in (self.map_.a, self.map_.b, self.map_.c))
        line += f", slope {a:.3g}" if a == b else f", slopes {a:.3g} and {b:.3g}"
        line += f", bias {c:+.3g}"
        if fit.own_share is not None and not self.fit_report_.left_alone:
            line += f", {fit.own_share:.0%} from its own samples"
        return f"{line}; {fit.note}" if fit.note else line

    def save(self, path: str | os.PathLike[str], *, provenance: Provenance | None = None) -> None:
        """Write the fitted calibrator as JSON, atomically; read it with `attemper.load`."""
        provenance = provenance or getattr(self._check_is_fitted(), "provenance_", None)
        base, common = self._base(), self.common_
        content: dict[str, Any] = {
            "method": self.method_name,
            "params": None if base is None else {name: getattr(base, name) for name in base.own_params()},
            "input": self.input,
            "zeros_as": self.zeros_as,
            "label_names": self.label_names_.tolist(),
            "uncertain": self.uncertain,
            "map": self.map_.to_dict(),
            "common": None if common is None else common.to_dict(),
            "heldout_gain": self.heldout_gain_,
            "thresholds": self.checked_thresholds().tolist(),
            "labels": [to_fields(fit) for fit in self.labels_],
            "report": to_fields(self.fit_report_),
        }
        if provenance is not None:
            content["provenance"] = to_fields(provenance)
        write_document(path, "multilabel", content)

    @classmethod
    def from_fields(cls, content: Fields) -> Self:
        """Make a fitted calibrator from what `save` wrote."""
        method: Any = content.read("method", Literal["pooled", "platt", "beta", "ts"])
        if method != "pooled":
            given: Any = content.fields("params").content
            if set(given) - set(METHODS[method].own_params()):
                raise FileError(f"{content.where}: params: expected {METHODS[method].own_params()}, got {list(given)}")
            params: dict[str, Any] = {name: tuple(v) if isinstance(v, list) else v for name, v in given.items()}
            method = METHODS[method](**params)
        names = list(content.read("label_names", tuple[str, ...]))
        made = cls(
            method=method,
            input=content.read("input", Literal["logits", "probs"]),
            zeros_as=content.read("zeros_as", float | None),
            label_names=names,
            uncertain=content.read("uncertain", float | str | None),
        )
        made._reset(names)
        made.map_ = SigmoidMap.from_fields(content.fields("map"))
        if made.map_.n_classes != len(names):
            raise FileError(f"{content.where}: expected a map of {len(names)} labels, got {made.map_!r}")
        common = content.content.get("common")
        made.common_ = None if common is None else SigmoidMap.from_fields(content.fields("common"))
        made.labels_ = list(content.read("labels", tuple[LabelFit, ...]))
        made.thresholds_ = content.array("thresholds", (len(names),))
        made.heldout_gain_ = content.read("heldout_gain", float | None)
        made.fit_report_ = from_fields(FitReport, content.fields("report"))
        if "provenance" in content:
            made.provenance_ = from_fields(Provenance, content.fields("provenance"))
        return made

    # How a fit is done.

    @property
    def method_name(self) -> str:
        """The method as text: "pooled", or that of the calibrator."""
        return str(getattr(self.method, "method", self.method))

    def _base(self) -> Calibrator | None:
        """Return the calibrator that is fitted to each label by itself; None: pooled."""
        if self.method == "pooled":
            return None
        if isinstance(self.method, Calibrator) and self.method.method in SEPARATE:
            return self.method
        if not isinstance(self.method, str) or self.method not in SEPARATE:
            raise InputError(
                f"method={self.method!r}: expected 'pooled', {', '.join(map(repr, SEPARATE))} or one of these "
                "calibrators",
                param="method",
            )
        return METHODS[self.method]()

    def _fit_pooled(self, data: pooled.Problems) -> dict[str, Any]:
        found = pooled.fit(data, EXPECTED)
        slope, bias = np.exp(found.at[:, 0]), found.at[:, 1]
        self.common_ = self._sigmoid(np.exp(found.law.mean[:1]), found.law.mean[1:])
        gain = _held_out_gain(data, found)
        left_alone = gain is not None and gain <= 0
        if left_alone:
            slope, bias = np.ones_like(slope), np.zeros_like(bias)
        self.map_, self.heldout_gain_ = self._sigmoid(slope, bias), gain
        total = float(data.w.sum())
        message = f"empirical Bayes, {found.n_iter} passes; log-slopes of the labels differ by "
        message += "{:.2g} and biases by {:.2g} (standard deviations)".format(*np.sqrt(np.diag(found.law.covariance)))
        if left_alone:
            message += "; on held-out samples no gain over the classifier as it is, which is left alone"
        elif gain is not None:
            message += f"; {gain:.2g} nats lower for each entry on held-out samples than without calibration"
        self._note_labels(data, found.own_share)
        return {
            "converged": found.converged,
            "objective_gap": max(found.error / total, float(np.finfo(np.float64).eps)),
            "n_iter": found.n_iter,
            "message": message,
            "left_alone": left_alone,
        }

    def _fit_separately(self, base: Calibrator, data: pooled.Problems) -> dict[str, Any]:
        self.common_, self.heldout_gain_ = None, None
        self._note_labels(data, None)
        curves = []
        gap, steps, converged = 0.0, 1, True
        for k, fit in enumerate(self.labels_):
            if fit.note:
                curves.append((1.0, 1.0, 0.0))
                continue
            own = _fit_label(base, (data.x[k], data.t[k], data.w[k]), self.input, self.zeros_as, fit.name)
            of = own.map_
            curves.append((of.a[1], of.b[1], of.c[1]) if isinstance(of, OddsMap) else (of.beta, of.beta, 0.0))  # type: ignore[attr-defined]
            report = own.fit_report_
            gap, steps = max(gap, report.objective_gap or 0.0), max(steps, report.n_iter)
            converged = converged and report.converged
        a, b, c = np.array(curves, dtype=np.float64).T
        self.map_ = SigmoidMap(a, b, c, self.input == "probs", self.zeros_as)
        alone = sum(bool(fit.note) for fit in self.labels_)
        message = f"{base.title} of each label by itself"
        message += f"; {alone} of {len(curves)} labels stay as they are" if alone else ""
        return {"converged": converged, "objective_gap": gap, "n_iter": steps, "message": message}

    def _sigmoid(self, slope: Floats, bias: Floats) -> SigmoidMap:
        return SigmoidMap(slope, slope, bias, self.input == "probs", self.zeros_as)

    def _note_labels(self, data: pooled.Problems, own_share: Floats | None) -> None:
        known, positive = data.w.sum(axis=1), (data.w * data.t).sum(axis=1)
        self.labels_ = []
        for k, name in enumerate(self.label_names_.tolist()):
            note = ""
            gets = "it stays as it is" if own_share is None else "it gets the common curve"
            if known[k] == 0:
                note = f"no entry is known: {gets}"
            elif positive[k] == 0 or positive[k] == known[k]:
                which = "positive" if positive[k] == 0 else "negative"
                rest = gets if own_share is None else "its curve is mostly that of the others"
                note = f"no entry is {which}: {rest}"
            share = None if own_share is None else float(own_share[k])
            self.labels_.append(LabelFit(name, float(known[k]), float(positive[k]), share, note))
        noted = [fit.name for fit in self.labels_ if fit.note]
        if noted:
            shown = ", ".join(map(repr, noted[:5])) + (" …" if len(noted) > 5 else "")
            warn(f"labels: for {shown} there are no known positives or no known negatives; see describe()")

    def _report(self, data: pooled.Problems, facts: dict[str, Any]) -> None:
        h = data.x.T if not self.map_.of_probs else -np.logaddexp(0, -data.x.T)
        log_p = np.ascontiguousarray(self.map_.log_apply(h).T)
        t, w, total = data.t, data.w, float(data.w.sum())
        losses = np.zeros_like(log_p)
        with np.errstate(divide="ignore"):
            np.multiply(-t, log_p, out=losses, where=t > 0)
            losses -= np.multiply(1 - t, np.log(-np.expm1(log_p)), out=np.zeros_like(losses), where=t < 1)
        nll = float(np.multiply(w, losses, out=np.zeros_like(losses), where=w > 0).sum()) / total
        changed = float((w * ((log_p >= np.log(0.5)) != (data.x >= 0))).sum()) / total
        self.fit_report_ = FitReport(nll=nll, n_samples=data.x.shape[1], changed=changed, **facts)
        if not self.fit_report_.converged:
            warn(f"MultiLabelCalibrator: not converged. {self.fit_report_.message}", ConvergenceWarning)

    # What is checked.

    def checked_thresholds(self) -> Floats:
        """Return ``thresholds_`` as an array: one number from 0 to 1 for each label."""
        try:
            found = np.broadcast_to(np.asarray(self.thresholds_, dtype=np.float64), (self.n_features_in_,))
        except (TypeError, ValueError):
            found = np.full(self.n_features_in_, np.nan)
        if not ((found >= 0) & (found <= 1)).all():
            raise InputError(
                f"thresholds_: expected {self.n_features_in_} numbers from 0 to 1, got {self.thresholds_!r}"
            )
        return found

    def _reset(self, names: list[str]) -> None:
        for name in ["feature_names_in_", *(field.name for field in fields(type(self)) if not field.init)]:
            self.__dict__.pop(name, None)
        self.label_names_, self.n_features_in_ = np.array(names), len(names)
        self.thresholds_ = np.full(len(names), 0.5)

    def _log_odds(self, X: Any, names: Sequence[Any] | None) -> Floats:
        """Log-odds in double precision."""
        taken = to_numpy(self._taken(X, names)).astype(np.float64)
        identity = SigmoidMap(np.ones(1), np.ones(1), np.zeros(1), self.input == "probs", self.zeros_as)
        return np.asarray(identity.log_odds(taken, np), dtype=np.float64)

    def _taken(self, X: Any, names: Sequence[Any] | None = None) -> Any:
        """Check what the map takes: log-odds, or log-probabilities."""
        if self.input == "probs":
            return as_label_probs(X, names, zeros_as=self.zeros_as)
        if self.zeros_as is not None:
            probs = "input='probs'"
            raise InputError(
                f"zeros_as={self.zeros_as!r}: only probabilities take zeros_as; use {probs}", param="zeros_as"
            )
        taken = as_label_scores(X, names)
        warn_of_single_probs(taken, "all numbers")
        return taken

    def _checked(self, X: Any) -> Any:
        self._check_is_fitted()
        own = getattr(X, "columns", None)
        check_columns(X, tuple(self.label_names_.tolist()), "X", "the labels in the fit")
        check_columns(X, tuple(getattr(self, "feature_names_in_", ())), "X", "the fit")
        x = np.asarray(X) if own is not None or isinstance(X, list | tuple) else X
        shape = tuple(getattr(x, "shape", ()))
        if len(shape) == 2 and shape[1] != self.n_features_in_:
            raise InputError(f"X: expected {self.n_features_in_} columns, one for each label, got {shape[1]}")
        return x

    def _check_is_fitted(self) -> Self:
        if not hasattr(self, "map_"):
            raise NotFittedError(
                "This MultiLabelCalibrator instance is not fitted yet. Call 'fit' with validation scores and labels "
                "first."
            )
        return self


def _float_type(x: Any) -> Any:
    """Type of the result: that of the scores, or double precision for lists and whole numbers."""
    if not array_api_compat.is_array_api_obj(x):
        return np.float64
    xp = array_api_compat.array_namespace(x)
    return x.dtype if "float" in str(x.dtype) else xp.float64


def _fit_label(
    base: Calibrator, data: tuple[Floats, Floats, Floats], kind: str, zeros_as: float | None, name: str
) -> Calibrator:
    """Fit a method for two classes to one label: log-odds, targets, weights; a soft label is two weighted rows."""
    some = data[2] > 0
    s, t, w = (a[some] for a in data)
    y = np.repeat([0, 1], len(s))
    weight = np.r_[w * (1 - t), w * t]
    counts = weight > 0
    pairs = np.column_stack([np.zeros_like(s), s])
    if kind == "probs":
        pairs = np.exp(-np.logaddexp(0, np.column_stack([s, -s])))
    rows = np.tile(np.arange(len(s)), 2)[counts]
    params = {name: getattr(base, name) for name in base.own_params()}
    own = type(base)(**params, input=kind, zeros_as=zeros_as)  # type: ignore[arg-type]
    order = np.argsort(rows, kind="stable")  # the order of the samples
    y, weight, rows = y[counts][order], weight[counts][order], rows[order]
    plain = len(rows) == len(s) and bool((weight == 1).all())
    try:
        return own.fit(pairs[rows], y, None if plain else weight)
    except AttemperError as error:
        raise type(error)(f"label {name!r}: {error}") from None


def _held_out_gain(data: pooled.Problems, found: pooled.PooledFit) -> float | None:
    """NLL of the classifier as it is, less that of the fit, for each known entry of held-out samples.

    None where there are fewer distinct samples than folds.
    """
    _, rank = np.unique(np.einsum("ln,ln->n", data.x, data.x), return_inverse=True)
    fold = rank % FOLDS
    total, gain = 0.0, 0.0
    for k in range(FOLDS):
        rest, own = data.columns(fold != k), data.columns(fold == k)
        if not (rest.w.any() and own.x.size):
            return None
        part = pooled.fit(rest, EXPECTED, found.law)
        as_it_is = np.zeros_like(part.at)
        gain += float((pooled.evaluate(as_it_is, own).loss - pooled.evaluate(part.at, own).loss).sum())
        total += float(own.w.sum())
    return gain / total if total else None
