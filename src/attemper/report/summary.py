"""From validation and test data to plain numbers; their size does not grow with the data."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from attemper.arrays import Floats
from attemper.comparison import Comparison, Row
from attemper.errors import InputError, setting
from attemper.maps import ScaleMap
from attemper.metrics import Estimate
from attemper.metrics.bootstrap import check_level
from attemper.overlap import same_samples
from attemper.report.classes import group_classes, names_of, table
from attemper.report.gallery import gallery
from attemper.report.images import ImageFolder, ids_by_order
from attemper.report.methods import (
    MOST_RESAMPLED,
    Said,
    compare_in_time,
    estimates,
    is_large,
    resamples,
    said,
    shown,
    weights,
)
from attemper.report.numbers import fixed, triple
from attemper.report.provenance import versions
from attemper.report.referrals import DIGITS, THRESHOLDS, area, counts, first_threshold, scale_of
from attemper.report.sentences import full_name, tell
from attemper.report.temperatures import table_of, tables
from attemper.scores import Scores

__all__ = ["summarise"]

SHOWN = ("accuracy", "nll", "brier", "ece")


def summarise(
    val: Scores,
    test: Scores,
    *,
    classes: Sequence[Any] | None = None,
    methods: Sequence[str] | None = None,
    comparison: Comparison | None = None,
    images: str | ImageFolder | None = None,
    ids: Sequence[Any] | None = None,
    title: str = "Calibration report",
    files: Sequence[dict[str, Any]] = (),
    catch: float = 0.8,
    noisy: bool = False,
    noise: str | None = None,
    interval: float = 0.95,
    seed: int = 0,
    tick: Callable[[str], None] = lambda method: None,
) -> dict[str, Any]:
    """Compute everything that the page shows.

    Parameters
    ----------
    val, test : Scores
        Methods are fitted on ``val`` and judged on ``test``.
    classes : names of the columns
    methods, noisy, noise, interval, seed, tick
        As in `attemper.comparison.compare`.
    comparison : what `compare` returned for these data, if that is at hand
    images, ids
        A folder of images, and for each test sample the name of its own. Without names the files of the
        folder in sorted order are the test samples.
    title, files
        For the page: its title, and where the data came from.
    catch : float
        The threshold slider starts where this share of the validation errors is referred.

    Returns
    -------
    dict
        Plain numbers, lists and text.

    Examples
    --------
    >>> from attemper import datasets
    >>> data = datasets.load()
    >>> val = Scores.from_logits(data.val_logits, data.val_labels)
    >>> test = Scores.from_logits(data.test_logits, data.test_labels)
    >>> summary = summarise(val, test, classes=data.class_names, methods=["ts"])
    >>> print(summary["sentences"]["says"][0])
    The network was right in 75.5 % of 3\u202f205 test samples (95 % interval 74.0 to 77.0).
    """
    check_level(interval)
    if not 0 < catch <= 1:
        raise InputError(f"{setting('catch', catch)}: a share of the errors, above 0 and at most 1, such as 0.8")
    for name, scores in (("validation", val), ("test", test)):
        if scores.labels is None:
            raise InputError(f"the {name} data have no labels; a report compares answers with them")
    if same_samples(val, test):
        raise InputError(
            "validation and test are the same samples; a method judged on what it was fitted on looks better than it "
            "is: give samples for the test that the fit has not seen"
        )
    names = names_of(classes, test.n_classes)
    folder = ImageFolder(images) if isinstance(images, str) else images
    known = _ids(ids, folder, len(test))
    left_out = comparison is None and methods is None and is_large(val)
    if comparison is None:
        settings: dict[str, Any] = {"noisy": noisy, "noise": noise, "interval": interval, "seed": seed}
        comparison = compare_in_time(val, test, methods, **settings, tick=tick)
    looked_at = shown(comparison)
    found_maps = {row.method: row.map for row in comparison.rows if row.map is not None}
    maps = {method: found_maps[method] for method in looked_at}
    answers = {method: said(found, test) for method, found in maps.items()}
    w = weights(test)
    assert test.labels is not None
    groups = group_classes(names, test.labels, w)
    recommended = comparison.recommended
    rows = [_row(row, answers.get(row.method), w, interval, seed) for row in comparison.rows]
    single = {m: 1 / found.beta for m, found in maps.items() if isinstance(found, ScaleMap) and m != "none"}
    # What the slider offers and where it starts is told by the validation set alone.
    on_val = said(maps[recommended], val)
    thresholds = scale_of(on_val.confidence, said(maps["none"], val).confidence)
    start = first_threshold(on_val, weights(val), catch, thresholds)
    summary: dict[str, Any] = {
        "title": title,
        "n_val": len(val),
        "n_test": len(test),
        "n_classes": test.n_classes,
        "weighted": test.weights is not None,
        "interval": interval,
        "resamples": resamples(min(len(test), MOST_RESAMPLED)),
        "resampled": min(len(test), MOST_RESAMPLED),
        "left_out": left_out,
        "recommended": recommended,
        "reason": comparison.reason,
        "rows": rows,
        "temperature": tables(test, single, interval),
        "referral": {
            "methods": looked_at,
            "first_method": looked_at.index(recommended),
            "catch": catch,
            "thresholds": thresholds.tolist(),
            "labels": [fixed(t, 2 if t in THRESHOLDS else DIGITS) for t in thresholds],
            "start": int(np.searchsorted(thresholds, 0.5)) if start is None else start,
            "chosen": start is not None,
            "scale": _worth(w),
            "counts": [
                counts(one, w, groups.of_class[test.labels], len(groups), thresholds) for one in answers.values()
            ],
        },
        "classes": table(groups, test, answers["none"], answers[recommended], interval, w),
        "other_classes": groups.others,
        "gallery": gallery(test, names, answers, recommended, known, folder, seed),
        "provenance": {
            "files": list(files),
            "versions": versions(),
            "seed": seed,
            "noisy": noisy,
            "noise": noise,
            "catch": catch,
        },
    }
    marked = summary["temperature"]["marks"]
    summary["temperature"]["start"] = marked.get(recommended, marked.get("ts", marked["none"]))
    # What is no single temperature has tables of its own.
    summary["temperature"]["methods"] = {m: table_of(answers[m], w, interval) for m in looked_at if m not in marked}
    # What the page opens on is what it recommends.
    others = summary["temperature"]["methods"]
    summary["temperature"]["chosen"] = recommended if recommended in others else None
    summary["sentences"] = tell(summary)
    return summary


def _row(row: Row, one: Said | None, w: Floats, interval: float, seed: int) -> dict[str, Any]:
    metrics: dict[str, Any] | None = None
    reasons: dict[str, str] = {}
    chance = None
    if row.metrics is not None:
        found = row.metrics
        if one is not None and not isinstance(found["brier"], Estimate):  # no interval yet
            found = dict(estimates(one, w, interval, seed))
        metrics = {name: triple(found[name]) for name in SHOWN}
        reasons = {name: value.note for name in SHOWN if isinstance(value := found[name], Estimate) and value.note}
        ece = found["ece"]
        chance = [ece.chance, ece.p_value] if isinstance(ece, Estimate) else None
    measured = None if one is None else area(one, w, interval, seed)
    return {
        "method": row.method,
        "name": full_name(row.method),
        "temperature": row.temperature,
        "changed": row.changed,
        "metrics": metrics,
        "area": None if measured is None else triple(measured),
        "chance": chance,  # ECE of perfect calibration, and the share of draws that reach the ECE
        "reasons": reasons | ({"area": measured.note} if measured is not None and measured.note else {}),
        "notes": list(row.notes),
        "failure": row.failure,
    }


def _worth(w: Floats) -> float:
    """How many samples a unit of weight is worth (Kish); 1 without weights."""
    return float(w.sum() / (w @ w))


def _ids(ids: Sequence[Any] | None, images: ImageFolder | None, n: int) -> Sequence[str] | None:
    if ids is None:
        return None if images is None else ids_by_order(images, n)
    if len(ids) != n:
        raise InputError(f"{len(ids)} image names for {n} test samples; give one for each, in their order")
    return [str(name) for name in np.asarray(ids).tolist()]
