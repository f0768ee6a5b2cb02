"""Figures 1 and 6: single skin lesions, and how confident the network is in its prediction before and after."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from experiments.reproduce import example_panels, networks, paper
from experiments.reproduce.example_images import IMAGES
from experiments.reproduce.example_panels import Column, Line
from experiments.reproduce.journal import Job, Row, Settings, Study
from experiments.reproduce.networks import about
from experiments.reproduce.pages import Page, table
from experiments.reproduce.recipes import TITLES, fit
from experiments.reproduce.skin import DRAWN, NETWORKS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["STUDY", "examples", "photographs", "reachable"]

RIGHT, PAPERS, CONFIDENT = "right, highest", "wrong, near 0.90", "wrong, highest"
SHOWN = 3  # examples of each group, each predicted as another class
LIKE_THE_PAPERS = 0.9  # confidence of its wrong predictions
N_LESIONS = len(paper.LESIONS)
SHORT = paper.LESIONS | {
    "bkl": "keratosis",
    "nv": "nevus",
    "df": "dermatofib.",
    "mel": "melanoma",
    "vasc": "vascular",
}


def jobs(settings: Settings) -> list[Job]:
    """One for each network."""
    return [Job(f"{name} examples", (name, settings.seed), (name,)) for name in NETWORKS.values()]


def run(name: str, seed: int) -> list[Row]:
    """Fit on the validation part of division 0; choose examples of its test part, and average over all of it."""
    network = networks.load(name)
    val, test = networks.split(network, 0, seed)
    images = network.extra["image_id"][networks.split_rows(network, 0, seed)[1]]
    log_p = {m: fit(m, val).map.log_apply(test.logits.astype(np.float64)) for m in DRAWN}
    confidence = {m: np.exp(lp.max(axis=1)) for m, lp in log_p.items()}
    predicted = log_p["none"].argmax(axis=1)
    right = predicted == test.labels
    rows: list[Row] = []
    for group, chosen in _chosen(images, right, predicted, confidence["none"]).items():
        for i in chosen:
            named = {"label": network.class_names[test.labels[i]], "predicted": network.class_names[predicted[i]]}
            row = {"what": "example", "group": group, "image": str(images[i]), **named}
            rows.append(row | {f"confidence_{m}": float(c[i]) for m, c in confidence.items()})
    for group, of in (("right", right), ("wrong", ~right)):
        means = {f"confidence_{m}": float(c[of].mean()) for m, c in confidence.items()}
        rows.append({"what": "mean", "group": group, **means, "samples": int(of.sum())})
    return [{"network": name, **row} for row in rows]


STUDY = Study("examples", jobs, run)


def _chosen(images: Any, right: Any, predicted: Any, confidence: Any) -> dict[str, list[int]]:
    """Rows of the examples of each group: the first in order, each predicted as another class, none shown twice."""
    known = np.isin(images, IMAGES)
    orders = {
        RIGHT: np.where(known & right, -confidence, np.inf),
        PAPERS: np.where(known & ~right, np.abs(confidence - LIKE_THE_PAPERS), np.inf),
        CONFIDENT: np.where(known & ~right, -confidence, np.inf),
    }
    found: dict[str, list[int]] = {}
    for group, order in orders.items():
        chosen: dict[int, int] = {}
        for i in np.lexsort((images, order)):
            if len(chosen) < SHOWN and np.isfinite(order[i]) and not any(i in of for of in found.values()):
                chosen.setdefault(int(predicted[i]), int(i))
        found[group] = list(chosen.values())
    return found


def examples(rows: Sequence[Row], _: Settings) -> Page:
    """Show the paper's twelve examples, and ours."""
    ours = [row for row in rows if row["what"] == "example"]
    gaps = {**_papers_gaps(), **_gaps(rows)}
    tables = {
        "paper": _papers_table(),
        "consistent": _consistent_table(),
        "gaps": table(
            ["right less wrong", *(TITLES[m] for m in DRAWN)],
            [[name, *(_shown(gap.get(m), "+.2f") for m in DRAWN)] for name, gap in gaps.items()],
        ),
        "pool": str(len(IMAGES)),
        "t_ts": f"{paper.TABLE_4_FOUND['ts']:g}",
        "t_ats": f"{paper.TABLE_4_FOUND['ats']:g}",
    }
    for word, name in NETWORKS.items():
        tables[word] = _table([row for row in ours if row["network"] == name])
    summary = {"gaps": gaps, "ts_that_ats_allows": [_allowed(example) for example in _with_both()]}
    return Page(tables, [*rows, *_papers_rows()], summary, {"examples": example_panels.drawn(_columns(rows))})


def photographs(rows: Sequence[Row], folder: Path) -> dict[str, Figure]:
    """Return the same figure with the photographs that a folder has; they are not ours to publish."""
    wanted = [row["image"] for row in rows if row["what"] == "example"]
    return {"examples_photographs": example_panels.drawn(_columns(rows), example_panels.found(folder, wanted))}


def reachable(confidence: float, t_from: float, t_to: float, n_classes: int) -> tuple[float, float]:
    """Bounds on the confidence at one temperature, given what it is at another.

    With p the probability of the predicted class and q_j those of the others at ``t_from``, it is at ``t_to``
    p^a / (p^a + Σ q_j^a) with a = t_from / t_to. For a < 1 the sum is largest where all q_j are equal, and smallest
    where one of them is all of 1 − p; for a > 1 it is the other way round.
    """
    a, others = t_from / t_to, n_classes - 1
    rest = 1 - confidence
    one, alike = (confidence**a / (confidence**a + n * (rest / n) ** a) for n in (1, others))
    return min(one, alike), max(one, alike)


def _with_both() -> list[paper.Example]:
    return [example for example in paper.EXAMPLES if example.ts is not None]


def _allowed(example: paper.Example) -> list[float]:
    """Bounds on the TS confidence, by the printed ATS confidence and the T of Table 4.

    The printed number may have been rounded or cut off.
    """
    assert example.ats is not None
    found = paper.TABLE_4_FOUND
    ends = (example.ats - 0.005, example.ats + 0.01)
    low, high = (reachable(end, found["ats"], found["ts"], N_LESIONS) for end in ends)
    return [low[0], high[1]]


def _consistent_table() -> str:
    lines = []
    for example in _with_both():
        low, high = _allowed(example)
        lines.append([_named(example._asdict()), f"{example.ats:.2f}", f"{low:.2f} to {high:.2f}", f"{example.ts:.2f}"])
    return table(["Figure 6: label → prediction", "ATS, printed", "TS, possible", "TS, printed"], lines)


def _named(row: Row, names: Mapping[str, str] = paper.LESIONS) -> str:
    label, predicted = (names[row[key]] for key in ("label", "predicted"))
    return label if label == predicted else f"{label} → {predicted}"


def _shown(value: float | None, form: str = ".2f") -> str:
    return "–" if value is None else f"{value:{form}}"


def _papers_table() -> str:
    lines = [
        [_named(e._asdict()), f"Figure {e.figure}", *map(_shown, (e.none, e.calibrated, e.ts, e.ats))]
        for e in paper.EXAMPLES
    ]
    head = ["label → prediction", "from", TITLES["none"], "calibrated, method not named", TITLES["ts"], TITLES["ats"]]
    return table(head, lines)


def _table(rows: Sequence[Row]) -> str:
    lines = [
        [_named(row), row["group"], row["image"], *(_shown(row[f"confidence_{m}"]) for m in DRAWN)] for row in rows
    ]
    return table(["label → prediction", "group", "image", *(TITLES[m] for m in DRAWN)], lines)


def _papers_rows() -> list[Row]:
    rows = []
    for e in paper.EXAMPLES:
        row = {
            "network": "paper",
            "what": f"Figure {e.figure}",
            "group": "right" if e.label == e.predicted else "wrong",
        }
        row |= {"label": e.label, "predicted": e.predicted}
        rows.append(
            row
            | {f"confidence_{m}": getattr(e, m) for m in ("none", "ts", "ats")}
            | {"confidence_calibrated": e.calibrated}
        )
    return rows


def _papers_gaps() -> dict[str, dict[str, float]]:
    sides = [[e for e in _with_both() if (e.label == e.predicted) == right] for right in (True, False)]
    means = [{m: np.mean([getattr(e, m) for e in of]) for m in ("none", "ts", "ats")} for of in sides]
    return {"the paper's six, Figure 6": {m: float(means[0][m] - means[1][m]) for m in means[0]}}


def _gaps(rows: Sequence[Row]) -> dict[str, dict[str, float]]:
    """Mean confidence of right predictions less that of wrong ones: of the examples, and of the whole test part."""
    gaps = {}
    for name in NETWORKS.values():
        of = [row for row in rows if row["network"] == name]
        for title, what, groups in (
            ("six of ours", "example", (RIGHT, PAPERS)),
            ("the whole test part", "mean", ("right", "wrong")),
        ):
            sides = [[r for r in of if (r["what"], r["group"]) == (what, group)] for group in groups]
            means = [{m: np.mean([r[f"confidence_{m}"] for r in side]) for m in DRAWN} for side in sides]
            gaps[f"{about(name).label}: {title}"] = {m: float(means[0][m] - means[1][m]) for m in DRAWN}
    return gaps


def _columns(rows: Sequence[Row]) -> list[Column]:
    """Return the paper's examples, and ours of each network with the means of its test part."""
    papers: dict[str, list[Line]] = {}
    for e in paper.EXAMPLES:
        group = f"Figure {e.figure}: {'right' if e.label == e.predicted else 'wrong'}"
        printed = {"none": e.none, "ts": e.ts, "ats": e.ats, "calibrated": e.calibrated}
        line = Line(_named(e._asdict(), SHORT), {m: v for m, v in printed.items() if v is not None})
        papers.setdefault(group, []).append(line)
    columns = [Column("the paper", papers)]
    for name in NETWORKS.values():
        groups: dict[str, list[Line]] = {}
        for row in (row for row in rows if row["network"] == name):
            values = {m: row[f"confidence_{m}"] for m in ("none", "ts", "ats")}
            if row["what"] == "mean":
                line = Line(f"{row['samples']} {row['group']} predictions", values)
                groups.setdefault("mean, test part", []).append(line)
            else:
                groups.setdefault(row["group"], []).append(Line(_named(row, SHORT), values, str(row["image"])))
        split = "lesions kept apart" if about(name).lesions_apart else "images divided at random"
        columns.append(Column(f"ours, {split}", groups))
    return columns
