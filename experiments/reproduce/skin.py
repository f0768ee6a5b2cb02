"""Table 4 and the referral figure: skin lesions, where confidence decides who sees a specialist."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from attemper.metrics import evaluate, referral_area, referral_curve
from attemper.metrics.intervals import Statistic, estimate
from attemper.metrics.predictions import Predictions
from attemper.metrics.selective import referral_area_of
from experiments.reproduce import figures, networks, paper
from experiments.reproduce.journal import Job, Row, Settings, Study
from experiments.reproduce.networks import Part, about
from experiments.reproduce.pages import Floats, Page, beside, gather, spread, summary, table
from experiments.reproduce.recipes import TITLES, Fitted, fit, judge

__all__ = ["DRAWN", "NETWORKS", "STUDY", "referral", "table4"]

NETWORKS = {"random": "resnet200-skin-randomsplit-s0", "lesion": "resnet200-skin-lesionsplit-s0"}
METHODS = ("none", "ts", "ats", "ats-code", "ts-run", "bayes", "structured")
DRAWN = ("none", "ts", "ats", "bayes")
MEASURES = {"accuracy": 2, "nll": 4, "ece": 2, "temperature": 3, "theta": 3}  # and their digits
AREA_COLUMNS = ("area_paper", "area", "confidence_right", "confidence_wrong")  # told on the page of the referral figure
AREAS = {"area_paper": "21 thresholds", "area": "all thresholds"}


def jobs(settings: Settings) -> list[Job]:
    """One for each network and division, and one for what is told of division 0 alone."""
    return [
        *(Job(f"{n} in detail", (n, None, settings.seed), (n,)) for n in NETWORKS.values()),
        *(
            Job(f"{n} division {i}", (n, i, settings.seed), (n,))
            for n in NETWORKS.values()
            for i in range(settings.repeats)
        ),
    ]


def run(name: str, number: int | None, seed: int) -> list[Row]:
    """Fit and judge one division; without a number: intervals and curves of division 0."""
    network = networks.load(name)
    val, test = networks.split(network, number or 0, seed)
    found = {method: fit(method, val) for method in METHODS}
    log_p = {m: f.map.log_apply(test.logits.astype(np.float64)) for m, f in found.items()}
    case = {"network": name, "division": number or 0}
    if number is None:
        return [{**case, **row} for row in (*_intervals(log_p, test, seed), *_curves(log_p, test))]
    return [{**case, "what": "division", "method": m, **_judged(found[m], log_p[m], test)} for m in METHODS]


STUDY = Study("skin", jobs, run)


def _judged(found: Fitted, log_p: Any, test: Part) -> Row:
    confidence = np.exp(log_p.max(axis=1))
    right = log_p.argmax(axis=1) == test.labels
    return {
        **judge(found.map, test),
        "temperature": found.temperature,
        "theta": found.theta,
        "area_paper": float(referral_area(test.labels, log_p, input="logits", thresholds="paper")),
        "area": float(referral_area(test.labels, log_p, input="logits")),
        "confidence_right": float(confidence[right].mean()),
        "confidence_wrong": float(confidence[~right].mean()),
    }


def _intervals(log_p: dict[str, Any], test: Part, seed: int) -> list[Row]:
    """95 % intervals, of values and of gains over the network as it is."""
    rows = []
    before = Predictions.of(test.labels, log_p["none"], input="logits")
    for method, lp in log_p.items():
        estimates = dict(evaluate(test.labels, lp, ["nll", "ece"], input="logits", seed=seed))
        after = Predictions.of(test.labels, lp, input="logits")
        for measure, thresholds in (("area_paper", "paper"), ("area", None)):
            own, theirs = (referral_area_of(p, thresholds) for p in (after, before))
            for name, statistic in ((measure, own), (f"{measure}_gain", _difference(own, theirs))):
                estimates[name] = estimate(statistic, after.weights, 0.95, seed=seed)
        for measure, e in estimates.items():
            factor = 100 if measure == "ece" else 1
            value, low, high = (factor * v for v in (e.value, e.low, e.high))
            rows.append(
                {"what": "interval", "method": method, "measure": measure, "value": value, "low": low, "high": high}
            )
    return rows


def _difference(a: Statistic, b: Statistic) -> Statistic:
    """One metric minus another, of the same samples."""
    both = a.influence, b.influence
    influence = None if None in both else (lambda w: both[0](w) - both[1](w))  # type: ignore[misc]
    return Statistic(lambda w: a.value(w) - b.value(w), influence)


def _curves(log_p: dict[str, Any], test: Part) -> list[Row]:
    """Points of the curve at the paper's thresholds, and at two hundred that part the patients evenly."""
    rows = []
    for method in DRAWN:
        confidence = np.exp(log_p[method].max(axis=1))
        many = np.unique([0.0, *np.quantile(confidence, np.linspace(0, 1, 201)), 1.0])
        for what, thresholds in (("curve, 21", "paper"), ("curve", many)):
            curve = referral_curve(test.labels, log_p[method], input="logits", thresholds=thresholds)
            rows += [
                {"what": what, "method": method, "threshold": t, "correct_decided": c, "errors_referred": e}
                for t, c, e in zip(
                    curve.threshold.tolist(), curve.correct_decided.tolist(), curve.errors_referred.tolist()
                )
            ]
    return rows


def table4(rows: Sequence[Row], _: Settings) -> Page:
    """T, θ, NLL and ECE."""
    rows = [_without(row, AREA_COLUMNS) for row in rows if not row["what"].startswith("curve") and not _of_area(row)]
    divisions = [row for row in rows if row["what"] == "division"]
    tables, shown = {}, {}
    for word, name in NETWORKS.items():
        tables[word] = _one_division([row for row in rows if row["network"] == name])
        of = [row for row in divisions if row["network"] == name]
        values = {m: gather(of, ("method",), m) for m in MEASURES}
        shown[name] = _summaries(values)
        lines = [
            [TITLES[m], *(spread(v.get((m,)), MEASURES[measure]) for measure, v in values.items())] for m in METHODS
        ]
        tables[f"{word}_means"] = table(["method", "ACC, %", "NLL", "ECE, %", "T", "θ"], lines)
    return Page(tables, rows, {"means": shown, "intervals": _limits(rows)})


def _one_division(rows: Sequence[Row]) -> str:
    first = {r["method"]: r for r in rows if r["what"] == "division" and r["division"] == 0}
    interval = {(r["method"], r["measure"]): r for r in rows if r["what"] == "interval"}
    papers = {} if about(rows[0]["network"]).lesions_apart else paper.TABLE_4
    found = paper.TABLE_4_FOUND if papers else {}
    lines = []
    for m, row in first.items():
        score = papers.get(m)
        nll_, ece_ = interval[m, "nll"], interval[m, "ece"]
        lines.append(
            [
                TITLES[m],
                beside(row["accuracy"], score and score.accuracy, 2),
                f"{beside(row['nll'], score and score.nll, 4)} [{nll_['low']:.3f}, {nll_['high']:.3f}]",
                f"{beside(row['ece'], score and score.ece, 2)} [{ece_['low']:.1f}, {ece_['high']:.1f}]",
                beside(row["temperature"], found.get(m), 3),
                beside(row["theta"], found.get("theta") if m == "ats" else None, 3),
            ]
        )
    return table(["method", "ACC, %", "NLL [95 %]", "ECE, % [95 %]", "T", "θ"], lines)


def referral(rows: Sequence[Row], _: Settings) -> Page:
    """Areas below the referral curve, and the curve."""
    divisions = [row for row in rows if row["what"] == "division"]
    intervals = {(r["network"], r["method"], r["measure"]): r for r in rows if r["what"] == "interval"}
    curves = [row for row in rows if row["what"].startswith("curve")]
    kept = [_without(row, (*MEASURES, "brier")) for row in divisions]
    kept += [row for row in rows if _of_area(row)] + curves
    tables, shown = {}, {}
    for word, name in NETWORKS.items():
        lines = []
        for m in METHODS:
            line = [TITLES[m]]
            for measure in AREAS:
                line.append(_with_interval(intervals[name, m, measure], ""))
                line.append("–" if m == "none" else _with_interval(intervals[name, m, f"{measure}_gain"], "+"))
            lines.append(line)
        told = [f"{what}, {title}" for title in AREAS.values() for what in ("area", "gain over uncalibrated")]
        tables[word] = table(["method", *(f"{what} [95 %]" for what in told)], lines)
        of = [row for row in divisions if row["network"] == name]
        values = {m: gather(of, ("method",), m) for m in (*AREAS, "confidence_right", "confidence_wrong")}
        shown[name] = _summaries(values)
        lines = []
        for m in METHODS:
            gap = values["confidence_right"][m,] - values["confidence_wrong"][m,]
            lines.append([TITLES[m], *(spread(v[m,], 4) for v in values.values()), spread(gap, 4)])
        head = ["method", *(f"area, {title}" for title in AREAS.values())]
        tables[f"{word}_means"] = table([*head, "confidence when right", "confidence when wrong", "gap"], lines)
    figure = figures.referral(kept, list(NETWORKS.values()), DRAWN)
    return Page(tables, kept, {"means": shown, "intervals": _limits(kept)}, {"referral": figure})


def _limits(rows: Sequence[Row]) -> dict[str, list[float]]:
    """Value and limits of every interval, as JSON has them."""
    return {
        f"{r['network']} {r['method']} {r['measure']}": [r[k] for k in ("value", "low", "high")]
        for r in rows
        if r["what"] == "interval"
    }


def _of_area(row: Row) -> bool:
    return row["what"] == "interval" and str(row["measure"]).startswith("area")


def _without(row: Row, columns: Sequence[str]) -> Row:
    return {key: value for key, value in row.items() if key not in columns}


def _with_interval(row: Row, sign: str) -> str:
    value, low, high = (f"{row[key]:{sign}.4f}" for key in ("value", "low", "high"))
    return f"{value} [{low}, {high}]"


def _summaries(values: dict[str, dict[tuple[Any, ...], Floats]]) -> dict[str, Any]:
    return {measure: {key[0]: summary(x) for key, x in v.items()} for measure, v in values.items()}
