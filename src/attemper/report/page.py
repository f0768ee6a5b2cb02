"""One page of HTML that needs nothing else: styles, script, numbers and pictures are in it.

All text goes through a template that escapes it. A content security policy allows the page's own script and style
sheet, by their hashes, and nothing else: the page cannot ask the network for anything.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
from pathlib import Path
from typing import Any

from attemper._json import atomic
from attemper.calibrators import method_title
from attemper.data.scores import LabelledScores
from attemper.errors import require
from attemper.metrics.intervals import quantile
from attemper.report.charts import SAME, SHARES, bar, coinciding, curve, line, panels
from attemper.report.inline import Report
from attemper.report.numbers import bare, count, fixed, percent, percent_interval, share
from attemper.report.summary import summarise
from attemper.report.verdict import state_of

__all__ = ["render", "write_report"]

HERE = Path(__file__).parent
COLOURS = 5  # of lines, in the style sheet
# A script ends at the first "</script"; U+2028 and U+2029 are ends of lines to older browsers.
UNSAFE = {ord(sign): f"\\u{ord(sign):04x}" for sign in "<>&\u2028\u2029"}


def render(summary: dict[str, Any]) -> str:
    """Render the result of `summarise` as a page, as `write_report` does; the same numbers give the same text."""
    require("jinja2", extra="report", why="to write a report")
    from jinja2 import Environment, FileSystemLoader, StrictUndefined
    from markupsafe import Markup

    environment = Environment(
        loader=FileSystemLoader(HERE / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "bare": bare,
        "count": count,
        "fixed": fixed,
        "percent": percent,
        "percent_interval": percent_interval,
        "full_name": method_title,
    }
    environment.globals |= {"share_of": share, "bar": bar, "shares": SHARES, "same": SAME}
    style, script = (_static(name) for name in ("report.css", "report.js"))
    policy = (
        f"default-src 'none'; script-src {_digest(script)}; style-src {_digest(style)}; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
    drawn = _drawings(summary)
    # Our own files, and JSON that is escaped for where it stands; everything else is escaped by the template.
    return environment.get_template("report.html").render(
        summary,
        **drawn,
        level=f"{percent(summary['confidence_level'], 0)} %",
        policy=policy,
        style=Markup(style),
        script=Markup(script),
        data=Markup(embedded(_moving_parts(summary, drawn))),
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
    >>> len(numbers["sentences"]["confidence"]) > 0
    True
    """
    require("jinja2", extra="report", why="to write a report")  # checked before the work, not after it
    summary = summarise(val, test, **settings)
    page = render(summary).encode("utf-8", "replace")  # a file's name may hold what is no text
    with atomic(path) as stream:
        stream.write(page)
    return summary


def embedded(content: Any) -> str:
    r"""Return JSON that stays JSON inside a script element, whatever text it holds.

    >>> print(embedded(["</script>"]))
    ["\u003c/script\u003e"]
    """
    text = json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.translate(UNSAFE)


def _drawings(summary: dict[str, Any]) -> dict[str, Any]:
    """Return what the charts draw."""
    temperature, referral = summary["temperature"], summary["referral"]
    found = [curve(counts) for counts in referral["counts"]]
    x, y = found[referral["first_method"]][referral["start"]]
    return {
        "states": {method: state_of(temperature, method) for method in ("none", summary["recommended"])},
        "panels": panels(temperature),
        "dot": (SHARES.at_x(x), SHARES.at_y(y)),
        "curves": [
            {
                "first": same[0] % COLOURS,
                "methods": same,
                "names": [method_title(referral["methods"][i]) for i in same],
                "points": line(found[same[0]], SHARES),
                "chosen": referral["first_method"] in same,
            }
            for same in coinciding(found)
        ],
    }


def _moving_parts(summary: dict[str, Any], drawn: dict[str, Any]) -> dict[str, Any]:
    """Return what the sliders need. Names are in the page already."""
    referral = summary["referral"]
    return {
        "frame": [SHARES.left, SHARES.top, SHARES.width, SHARES.height],
        "temperature": summary["temperature"] | {"places": [panel["places"] for panel in drawn["panels"]]},
        "referral": {
            "method": referral["first_method"],
            "start": referral["start"],
            "labels": referral["labels"],
            "z": quantile(summary["confidence_level"]),
            "scale": referral["scale"],
            "counts": referral["counts"],
        },
    }


def _static(name: str) -> str:
    return (HERE / "static" / name).read_text(encoding="utf-8").rstrip("\n")


def _digest(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
