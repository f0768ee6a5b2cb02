"""Write the page. Styles, script and charts are in it, and it can request nothing.

Jinja escapes all text. A content security policy allows the page's own style sheet and script, by their hashes.
"""

from __future__ import annotations

import base64
import hashlib
import io
import json
import math
import os
import re
import warnings
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

from attemper import _json
from attemper._result import Estimate
from attemper.decisions.words import promised
from attemper.errors import InputError, require
from attemper.plots import plot_groups, plot_referral, plot_reliability
from attemper.report.summary import Summary, summarise, title_of
from attemper.report.verdict import findings, focus, next_steps, points

if TYPE_CHECKING:
    from markupsafe import Markup
    from matplotlib.axes import Axes

TEMPLATES = Path(__file__).parent / "templates"
# Shown in this order, before all others.
CARD = ("model", "version", "date", "developer", "intended use", "population", "training data", "limitations")
WIDTH = 4.3  # of a chart, inches
FONTS = {"svg.hashsalt": "attemper", "svg.fonttype": "none", "font.size": 9}


def write(
    comparison: Any,
    path: str | os.PathLike[str],
    *,
    card: Mapping[str, Any] | str | os.PathLike[str] | None = None,
    title: str | None = None,
) -> None:
    """Write the report of a comparison; the file appears whole or not at all.

    Parameters
    ----------
    comparison : Comparison
        What `attemper.compare` returns. The page describes the calibrator that was passed to it as ``calibrator``, with
        its rule; else the chosen one.
    path : path of the page
    card : mapping, or the path of a JSON file, optional
        What to say about the model, such as ``{"model": "resnet200", "intended use": "triage"}``; "classes" may have
        what the names of classes stand for, ``{"mel": "melanoma"}``.
    title : str, optional
    """
    page = render(comparison, card=card, title=title).encode("utf-8", "replace")  # a name may hold what is no text
    with _json.atomic(path) as stream:
        stream.write(page)


def render(
    comparison: Any,
    *,
    card: Mapping[str, Any] | str | os.PathLike[str] | None = None,
    title: str | None = None,
) -> str:
    """Return the page that `write` writes; the same comparison gives the same text."""
    for package in ("jinja2", "matplotlib"):
        require(package, extra="report", why="to write a report")
    from jinja2 import Environment, FileSystemLoader, StrictUndefined
    from markupsafe import Markup

    entries, describe = _card(card)
    title = title or "Calibration report"
    summary = summarise(comparison)
    promise = getattr(summary.rule, "promise", None)
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"count": "{:.0f}".format, "estimate": _estimate, "points": points, "title_of": title_of}
    style, script = (_text(name) for name in ("report.css", "report.js"))
    return environment.get_template("report.html").render(
        s=summary,
        title=title,
        card=entries,
        describe=describe,
        findings=findings(summary, describe),
        next_steps=next_steps(summary),
        focus=getattr(focus(summary), "name", None),
        promise=" ".join(promised(promise, summary.names)) if promise else "",
        facts=[f for f in str(summary.calibrator or "").split("\n  ")[1:] if not f.startswith("rule")],
        charts=_charts(summary),
        policy=(
            f"default-src 'none'; style-src '{_hash(style)}'; script-src '{_hash(script)}'; img-src data:; "
            "base-uri 'none'; form-action 'none'"
        ),
        # Our own; everything else is escaped.
        style=Markup(style),
        script=Markup(script),
    )


def _text(name: str) -> str:
    return (TEMPLATES / name).read_text(encoding="utf-8").strip()


def _hash(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def read_card(path: str | os.PathLike[str]) -> Any:
    """Return what a JSON file has about a model."""
    try:
        return json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"card: {path} cannot be read as JSON ({getattr(error, 'strerror', error)})", "card") from None


def _card(card: Mapping[str, Any] | str | os.PathLike[str] | None) -> tuple[list[tuple[str, str]], dict[str, str]]:
    """Return titles and texts of a card, the usual ones first, and what the names of classes stand for.

    >>> _card({"population": "adults", "model": "net 2", "sites": ["a", 2], "date": None, "classes": {"A": "apple"}})
    ([('Model', 'net 2'), ('Population', 'adults'), ('Sites', 'a, 2')], {'A': 'apple'})
    """
    read = read_card(card) if isinstance(card, str | os.PathLike) else card or {}
    if not isinstance(read, Mapping):
        raise InputError(f"card: expected names and texts, got {type(read).__name__}", "card")
    given = {" ".join(str(key).replace("_", " ").split()): value for key, value in read.items()}
    classes = given.pop("classes", None) or {}
    describe = {str(name): str(text) for name, text in classes.items()} if isinstance(classes, Mapping) else {}
    order = sorted(given, key=lambda key: CARD.index(key.lower()) if key.lower() in CARD else len(CARD))
    texts = {key: _of_card(given[key]) for key in order}
    return [(key[:1].upper() + key[1:], text) for key, text in texts.items() if text], describe


def _of_card(value: Any) -> str:
    if isinstance(value, list | tuple):
        return ", ".join(map(_of_card, value))
    return "" if value is None else {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value).strip()


def _estimate(value: Estimate | None, spec: str = ".1%") -> Markup:
    """Write a number with its interval in small figures below."""
    from markupsafe import Markup

    if value is None or math.isnan(value.value):
        return Markup("–")
    if math.isinf(value.value):
        return Markup("∞") if value.value > 0 else Markup("−∞")
    if not value.has_interval:
        return Markup("{}").format(format(value.value, spec))
    low, high = format(value.low, spec).rstrip("%"), format(value.high, spec)
    return Markup('{} <span class="interval">{} to {}</span>').format(format(value.value, spec), low, high)


def _charts(summary: Summary) -> dict[str, Markup]:
    """Draw what the page shows, as SVG."""
    p = summary.predictions[1]
    weights: dict[str, Any] = {"sample_weight": p.weights}
    drawings: dict[str, tuple[Any, float, str]] = {}
    for name, each in zip(("before", "after"), summary.predictions[: 1 + summary.is_calibrated]):
        probs = each.probs[:, 1] if summary.is_risk else each.probs
        draw = partial(plot_reliability, p.labels, probs, clusters=p.clusters, **weights)
        drawings[name] = draw, 3.8, f"Reliability diagram {name} calibration, as in the table of bins"
    if 0 < summary.n_errors < summary.n:
        draw = partial(plot_referral, p.labels, p.probs, threshold=summary.steps[summary.start].threshold, **weights)
        drawings["curve"] = draw, 3.8, "Errors caught against right predictions that are decided"
    for name, groups in zip(("groups_before", "groups_after"), summary.groups or ()):
        height = 0.8 + 0.24 * min(len(groups.parts) + 1, 41)
        drawings[name] = partial(plot_groups, groups), height, "Gap of each group, as in the table"
    return {name: _svg(draw, name, label, height) for name, (draw, height, label) in drawings.items()}


def _svg(draw: Callable[..., Axes], name: str, label: str, height: float) -> Markup:
    """Draw a figure that can stand in a page with a strict policy: no style attributes, and no id twice."""
    import matplotlib as mpl
    from markupsafe import Markup
    from matplotlib.figure import Figure

    stream = io.BytesIO()
    with mpl.rc_context(FONTS), warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # the browser has its own fonts
        figure = Figure(figsize=(WIDTH, height), layout="constrained")
        draw(ax=figure.subplots())
        figure.savefig(stream, format="svg", metadata={"Date": None, "Creator": None})
    root = ElementTree.fromstring(stream.getvalue())
    for parent in list(root.iter()):
        for child in [child for child in parent if _local(child.tag) in ("metadata", "style")]:
            parent.remove(child)
    for element in root.iter():
        element.tag = _local(element.tag)
        found = {_local(key): value for key, value in element.attrib.items()}
        found |= dict(_properties(found.pop("style", "")))
        if element.tag == "g":
            found.pop("id", None)
        element.attrib.clear()
        for key, value in found.items():
            refers = key == "href" or value.startswith("url(")  # colours have a # too
            element.set(key, f"{name}-{value}" if key == "id" else value.replace("#", f"#{name}-", int(refers)))
    box = root.get("viewBox", "")
    root.attrib.clear()
    for key, value in {"class": "plot", "viewBox": box, "role": "img", "aria-label": label}.items():
        root.set(key, value)
    return Markup(ElementTree.tostring(root, encoding="unicode"))


def _local(name: str) -> str:
    """Return a name without its namespace."""
    return name.rpartition("}")[2]


def _properties(style: str) -> list[tuple[str, str]]:
    """Return the properties of a style as attributes; the font is that of the page.

    >>> _properties("fill: none; font: 7px 'DejaVu Sans', sans-serif; text-anchor: middle")
    [('fill', 'none'), ('font-size', '7px'), ('text-anchor', 'middle')]
    """
    found = []
    for key, value in (map(str.strip, part.split(":", 1)) for part in style.split(";") if ":" in part):
        if key == "font" and (size := re.search(r"[\d.]+px", value)):
            found.append(("font-size", size[0]))
        elif not key.startswith("font") or key == "font-size":
            found.append((key, value))
    return found
