"""One page of HTML that needs nothing else: styles, numbers and plots are in it.

All text goes through a template that escapes it. A content security policy allows the page's own style sheet, by its
hash, and nothing else: the page runs no script and cannot ask the network for anything.
"""

from __future__ import annotations

import base64
import hashlib
import os
import re
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np

from attemper._json import atomic
from attemper.calibrators import method_title
from attemper.data.scores import LabelledScores
from attemper.errors import require
from attemper.metrics import Reliability
from attemper.plots import plot_groups, plot_referral, plot_reliability
from attemper.plots.sheet import small_axes
from attemper.report.numbers import count, fixed, p_value, percent, share, signed
from attemper.report.summary import EDGES, Report, summarise
from attemper.report.svg import inline_svg

if TYPE_CHECKING:
    from markupsafe import Markup
    from matplotlib.axes import Axes

__all__ = ["render", "write_report"]

TEMPLATES = Path(__file__).parent / "templates"
LONGEST_TITLE = 90  # letters, in the margin of a printed page


def render(summary: Report) -> str:
    """Render the result of `summarise` as a page, as `write_report` does; the same numbers give the same text."""
    _require()
    from jinja2 import Environment, FileSystemLoader, StrictUndefined
    from markupsafe import Markup

    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_kept_together,
    )
    environment.filters |= {
        "count": count,
        "fixed": fixed,
        "percent": percent,
        "full_name": method_title,
        "p_value": p_value,
        "signed": signed,
    }
    environment.globals |= {"share_of": share}
    style = (TEMPLATES / "report.css").read_text(encoding="utf-8").rstrip("\n")
    style += f"\n@page {{ @bottom-left {{ content: {_css_text(summary['title'])}; }} }}"
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    # The style sheet is our own; everything else is escaped by the template.
    return environment.get_template("report.html").render(
        summary,
        **_plots(summary),
        level=f"{percent(summary['confidence_level'], 0)} %",
        policy=f"default-src 'none'; style-src 'sha256-{digest}'; img-src data:; base-uri 'none'; form-action 'none'",
        style=Markup(style),
    )


def write_report(path: str | os.PathLike[str], val: LabelledScores, test: LabelledScores, **settings: Any) -> Report:
    """Write the report of a validation and a test set to a file; return its numbers, which a notebook shows as a page.

    The file appears whole or not at all. ``settings`` are those of `summarise`.

    Examples
    --------
    >>> import tempfile
    >>> from attemper import Scores, datasets
    >>> data = datasets.load()
    >>> val = Scores.from_logits(data.val_logits, data.val_labels)
    >>> test = Scores.from_logits(data.test_logits, data.test_labels)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     numbers = write_report(f"{folder}/report.html", val, test, methods=["ts"])
    >>> numbers["recommended"]
    'ts'
    """
    _require()  # checked before the work, not after it
    summary = summarise(val, test, **settings)
    page = render(summary).encode("utf-8", "replace")  # a file's name may hold what is no text
    with atomic(path) as stream:
        stream.write(page)
    return summary


def _require() -> None:
    for package in ("jinja2", "matplotlib"):
        require(package, extra="report", why="to write a report")


def _plots(summary: Report) -> dict[str, Any]:
    """Return what the page draws, as SVG."""
    level = summary["confidence_level"]
    diagrams: dict[str, Markup] = {}
    for method, found in summary["reliability"].items():
        cells = np.array([cell if len(cell) > 1 else [0.0, *[np.nan] * 4] for cell in found["bins"]])
        ax = _axes(3.9)
        plot_reliability(Reliability(EDGES, *cells.T), confidence_level=level, ax=ax)
        label = f"Reliability diagram, {method_title(method)}: accuracy by confidence, as in the table of its bins."
        diagrams[method] = inline_svg(ax, f"reliability{len(diagrams)}", label)
    gaps: list[tuple[str, Markup]] = []
    for method, metrics in getattr(summary, "grouped", {}).items():
        ax = _axes(0.9 + 0.2 * min(len(metrics.by_group) + 1, 41))
        label = f"Gap of each group, {method_title(method)}, as in the table."
        gaps.append((method, inline_svg(plot_groups(metrics, ax=ax), f"groups{len(gaps)}", label)))
    return {"diagrams": diagrams, "gaps": gaps, "referral_curve": _referral(summary)}


def _referral(summary: Report) -> Markup | None:
    """Draw the referral curve of the recommended method; None where there are no errors, or only errors."""
    referral = summary["referral"]
    right, wrong = (np.array(referral[name][0]) for name in ("right", "wrong"))
    if not (right[-1] > 0 and wrong[-1] > 0):
        return None
    thresholds, start = np.array(referral["thresholds"]), referral["start"]
    curve = SimpleNamespace(
        threshold=thresholds, correct_decided=1 - right / right[-1], errors_referred=wrong / wrong[-1]
    )
    ax = _axes(3.9)
    chosen = None if start is None else float(thresholds[start])
    plot_referral({summary["recommended"]: curve}, chosen=chosen, ax=ax)
    return inline_svg(ax, "referral-curve", "Referral curve: errors caught against right predictions decided.")


def _axes(height: float) -> Axes:
    """Return Axes that pyplot, and so a notebook, does not know."""
    from matplotlib.figure import Figure

    [ax] = small_axes(Figure(figsize=(4.2, height), layout="constrained"))
    return ax


def _kept_together(value: Any) -> Any:
    """Let no line end between a number and its percent sign. Parts of pages stay as they are."""
    return re.sub(r"(?<=\d) %", "\u00a0%", value) if type(value) is str else value


def _css_text(text: str) -> str:
    r"""Return text as a string of a style sheet, which cannot end it or the element around it.

    >>> print(_css_text('a "b"</style>'))
    "a \22 b\22 \3c \2f style\3e "
    """
    words = " ".join(text.split())
    words = words if len(words) <= LONGEST_TITLE else f"{words[: LONGEST_TITLE - 1]}…"
    return '"' + "".join(sign if sign.isalnum() or sign == " " else f"\\{ord(sign):x} " for sign in words) + '"'
