"""From validation and test data to plain numbers; their size does not grow with the data."""

from __future__ import annotations

import html
import math
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from typing import Any

import numpy as np

from attemper._checks import fraction, number
from attemper.calibrators import method_title
from attemper.comparison import Comparison, Row
from attemper.data.arrays import to_numpy
from attemper.data.overlap import same_samples
from attemper.data.scores import LabelledScores, labelled
from attemper.decisions import SetOutcome, SetPolicy
from attemper.errors import InputError
from attemper.maps import Map
from attemper.metrics import Estimate, GroupMetrics, Reliability
from attemper.metrics.bins import bin_sums
from attemper.metrics.clusters import size_of
from attemper.metrics.groups import overall
from attemper.metrics.predictions import Predictions
from attemper.report.card import card_of
from attemper.report.classes import confusion, group_classes, names_of, table, taken_for
from attemper.report.groups import by_group, groups_of
from attemper.report.methods import compare_within_budget, estimates, is_large, resamples
from attemper.report.numbers import triple
from attemper.report.provenance import versions
from attemper.report.referrals import referral_of
from attemper.report.sets import sets_of
from attemper.report.verdict import focus_of, verdict

__all__ = ["EDGES", "Report", "summarise"]

EDGES = np.arange(16) / 15  # of the reliability diagram
HEIGHT = "48em"


class Report(dict[str, Any]):
    """What `summarise` computes and `write_report` returns: a dict that a notebook shows as the page.

    The page is in a frame of its own, without access to the notebook.
    """

    grouped: dict[str, GroupMetrics]  # by method; none without groups

    def __repr__(self) -> str:
        facts = (f"{name}={self[name]!r}" for name in ("title", "n_val", "n_test", "recommended") if name in self)
        return f"{type(self).__name__}({', '.join(facts)})"

    def _repr_html_(self) -> str | None:
        if find_spec("jinja2") is None or find_spec("matplotlib") is None:  # the short text is shown instead
            return None
        from attemper.report.page import render

        page, title = html.escape(render(self)), html.escape(self["title"])
        style = f"width: 100%; height: {HEIGHT}; border: 1px solid #8884; background: Canvas"
        return f'<iframe srcdoc="{page}" sandbox title="{title}" style="{style}"></iframe>'


def summarise(
    val: LabelledScores,
    test: LabelledScores,
    *,
    classes: Sequence[Any] | None = None,
    descriptions: Mapping[str, str] | None = None,
    focus: Any = None,
    methods: Sequence[str] | None = None,
    comparison: Comparison | None = None,
    sets: tuple[SetPolicy, SetOutcome] | None = None,
    title: str = "Calibration report",
    card: Mapping[str, Any] | None = None,
    files: Sequence[dict[str, Any]] = (),
    catch: float = 0.8,
    noisy: bool = False,
    noise: str | None = None,
    cv: int | None = None,
    val_clusters: Any = None,
    test_clusters: Any = None,
    confidence_level: float = 0.95,
    seed: int = 0,
    tick: Callable[[str], None] = lambda method: None,
) -> Report:
    """Compute everything that the page shows.

    Parameters
    ----------
    val, test : Scores
        Methods are fitted on ``val`` and evaluated on ``test``. Where ``test`` has groups, there is a section by group.
    classes : names of the columns
    descriptions : dict, optional
        What the names stand for, such as ``{"mel": "melanoma"}``; of some classes or of all.
    focus : name of a class, optional
        The class that the verdict is about. By default the one with the most samples that the network does not find.
    methods, noisy, noise, cv, val_clusters, test_clusters, confidence_level, seed, tick
        As in `attemper.comparison.compare`.
    comparison : what `compare` returned for these data, if that is at hand
    sets : (SetPolicy, SetOutcome), optional
        Prediction sets and how they fare on ``test``, from `attemper.decisions.set_outcome`; they get a section.
    title, card, files
        For the page: its title; a model card, such as ``{"model": "resnet200", "version": "1", "date": "2026-05",
        "population": "adults", "intended use": "triage"}``; where the data came from.
    catch : float
        The suggested threshold refers this share of the validation errors.

    Returns
    -------
    Report
        A dict of plain numbers, lists and text; a notebook shows it as the page.

    Examples
    --------
    >>> from attemper import Scores, datasets
    >>> data = datasets.load()
    >>> val = Scores.from_logits(data.val_logits, data.val_labels)
    >>> test = Scores.from_logits(data.test_logits, data.test_labels)
    >>> summary = summarise(val, test, classes=data.class_names, methods=["ts"])
    >>> lead, figures = summary["verdict"][0]
    >>> print(lead)
    The network is over-confident:
    """
    level = fraction("confidence_level", confidence_level)
    share = "a share of the errors, above 0 and at most 1, such as 0.8"
    number("catch", catch, 0, 1, expected=share, closed=(False, True))
    for scores, name in ((val, "validation data"), (test, "test data")):
        labelled(scores, name)
        if scores.repeated is not None:
            raise InputError(
                f"{name}: expected one label for each sample, got soft labels; the report counts samples by class. "
                "Use labels.argmax(axis=1) for it. compare and metrics take soft labels."
            )
    if same_samples(val, test):
        raise InputError(
            "validation and test are the same samples. A method looks better than it is on the samples of its fit. Use "
            "others for the test."
        )
    names = names_of(classes, test.n_classes)
    left_out = comparison is None and methods is None and is_large(val)
    if comparison is None:
        settings: dict[str, Any] = {"noisy": noisy, "noise": noise, "confidence_level": level, "seed": seed}
        settings |= {"cv": cv, "val_clusters": val_clusters, "test_clusters": test_clusters}
        comparison = compare_within_budget(val, test, methods, **settings, tick=tick)
    recommended = comparison.recommended
    shown = dict.fromkeys(["none", recommended])
    found = {row.method: row for row in comparison.rows}
    predictions = {m: p for m in shown if (p := found[m].predictions) is not None}
    weighted = {method: p.weighted(test.weights) for method, p in predictions.items()}
    w = np.ones(len(test)) if test.weights is None else test.weights
    groups = group_classes(names, predictions["none"], w, focus)
    effect = 1.0 if weighted[recommended].clusters is None else size_of(weighted[recommended]).design_effect
    worth = float(w.sum() / (w @ w)) / effect  # independent samples that a unit of weight is worth (Kish)
    by_class = table(groups, predictions["none"], predictions[recommended], level, w, worth)
    for found_of, other in zip(by_class, taken_for(groups, names, predictions["none"], w)):
        found_of["taken_for"] = other
    rows = [_row(row, weighted.get(row.method), level, seed) for row in comparison.rows]
    before, on_val = (_on_validation(found[method].map, val) for method in ("none", recommended))
    of_row = groups.of_class[test.labels]
    means = {row["method"]: _overall(weighted[row["method"]], row, level) for row in rows if row["method"] in shown}
    grouped = by_group(predictions, test, recommended, level, seed)
    summary = Report(
        {
            "title": title,
            "n_val": len(val),
            "n_test": len(test),
            "n_classes": test.n_classes,
            "weighted": test.weights is not None,
            "confidence_level": level,
            "resamples": resamples(len(test)),
            "left_out": left_out,
            "recommended": recommended,
            "reason": comparison.reason,
            "n_folds": comparison.n_folds,
            "confidence_set": None if comparison.confidence_set is None else list(comparison.confidence_set),
            "rows": rows,
            "reliability": {method: _reliability(p, level, effect) for method, p in weighted.items()},
            "referral": referral_of(on_val, before, predictions[recommended], w, of_row, len(groups), catch),
            "scale": worth,
            "classes": by_class,
            "other_classes": groups.others,
            "descriptions": _descriptions(descriptions, names),
            "focus": focus_of(by_class, groups.others, _place(focus, names, groups.of_class)),
            "confusion": confusion(names, predictions["none"], w),
            "overall": means,
            "clusters": _clusters(weighted["none"]),
            "card": card_of(card),
            "sets": sets_of(sets),
            "by_group": [{"method": method, **metrics.to_dict()} for method, metrics in grouped.items()],
            "groups": groups_of(grouped, means[recommended]["accuracy"]),
            "provenance": {
                "files": list(files),
                "versions": versions(),
                "seed": seed,
                "noisy": noisy,
                "noise": noise,
            },
        }
    )
    summary.grouped = grouped
    summary["verdict"] = [list(finding) for finding in verdict(summary)]
    return summary


def _reliability(p: Predictions, confidence_level: float, design_effect: float) -> dict[str, Any]:
    """Return the bins of the reliability diagram, and its means; an empty bin is [0]."""
    sums = bin_sums(*p.top, EDGES, np.stack([p.weights, p.weights**2], axis=1))
    table = Reliability.of_sums(EDGES, sums, confidence_level, design_effect)
    columns = np.stack([table.weight, table.confidence, table.accuracy, table.low, table.high], axis=-1)
    return {
        "accuracy": table.mean(table.accuracy),
        "confidence": table.mean(table.confidence),
        "bins": [cell.tolist() if cell[0] > 0 else [0.0] for cell in columns],
    }


def _overall(p: Predictions, row: dict[str, Any], confidence_level: float) -> dict[str, Any]:
    """Return the means of all samples; the accuracy has the interval of the table of methods."""
    found = overall(p, confidence_level)
    return {"confidence": found.confidence, "accuracy": row["metrics"]["accuracy"], "gap": triple(found.gap)}


def _clusters(p: Predictions) -> dict[str, Any] | None:
    """Return what the samples of the cases are worth; None where samples are independent."""
    if p.clusters is None:
        return None
    found = size_of(p)
    return {
        "n_clusters": found.n_clusters,
        "largest": int(np.unique(p.clusters, return_counts=True)[1].max()),
        "correlation": None if math.isnan(found.correlation) else found.correlation,
        "design_effect": found.design_effect,
        "effective": found.effective,
    }


def _descriptions(given: Mapping[str, str] | None, names: Sequence[str]) -> dict[str, str]:
    known = {str(name): str(text) for name, text in (given or {}).items()}
    for name in known:
        _check_name("descriptions", name, names)
    return {name: text for name, text in known.items() if text}


def _check_name(param: str, name: str, names: Sequence[str]) -> None:
    if name not in names:
        known = f"{', '.join(names[:10])}{', …' if len(names) > 10 else ''}"
        raise InputError(f"{param}: expected names of classes ({known}), got {name!r}", param=param)


def _place(focus: Any, names: Sequence[str], of_class: Any) -> int | None:
    """Return the row of the class that the verdict is about, where one is given."""
    if focus is None:
        return None
    _check_name("focus", str(focus), names)
    return int(of_class[list(names).index(str(focus))])


def _on_validation(found: Map | None, val: LabelledScores) -> Predictions:
    assert found is not None
    log_p = found.log_apply(to_numpy(val.logits).astype(np.float64))
    return Predictions.of(val.labels, log_p, val.weights, input="log_probs").without_probs()


def _row(row: Row, p: Predictions | None, confidence_level: float, seed: int) -> dict[str, Any]:
    found = estimates(row, p, confidence_level, seed)
    ece = found.get("ece")
    return {
        "method": row.method,
        "name": method_title(row.method),
        "temperature": row.temperature,
        "changed": row.changed,
        "cv": None if row.cv is None else [None if np.isnan(number) else number for number in row.cv],
        "above_best": None if row.above_best is None else triple(row.above_best),
        "metrics": {name: triple(value) for name, value in found.items() if name != "area"} or None,
        "area": triple(found["area"]) if "area" in found else None,
        # ECE of perfect calibration, and the share of draws that reach the ECE.
        "chance": [ece.chance, ece.p_value] if isinstance(ece, Estimate) and ece.chance is not None else None,
        "reasons": {name: value.note for name, value in found.items() if isinstance(value, Estimate) and value.note},
        "notes": list(row.notes),
        "failure": row.failure,
    }
