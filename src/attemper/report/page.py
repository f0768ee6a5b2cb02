"""One page of HTML that needs nothing else: styles, script, numbers and pictures are in it.

All text goes through a template that escapes it. A content security policy allows the page's own script and style
sheet, by their hashes, and nothing else: the page cannot ask the network for anything.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
from pathlib import Path
from typing import Any

from attemper._json import atomic
from attemper.calibrators import method_title
from attemper.data.scores import LabelledScores
from attemper.errors import require
from attemper.metrics.intervals import quantile
from attemper.report.charts import (
    FEW,
    SAME,
    SHARES,
    bar,
    coinciding,
    curve,
    forest,
    line,
    panels,
    reliability_frame,
    signed,
)
from attemper.report.inline import Report
from attemper.report.notes import notes_of_fits, p_value, without_interval
from attemper.report.numbers import bare, count, fixed, percent, percent_interval, share
from attemper.report.summary import summarise
from attemper.report.verdict import state_of

__all__ = ["render", "write_report"]

HERE = Path(__file__).parent
COLOURS = 5  # of lines, in the style sheet
LONG_WORD = 24  # letters; a longer word of a name may be broken anywhere
LONGEST_TITLE = 90  # letters, in the margin of a printed page
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
        finalize=_kept_together,
    )
    environment.filters |= {
        "bare": bare,
        "count": count,
        "fixed": fixed,
        "percent": percent,
        "percent_interval": percent_interval,
        "full_name": method_title,
        "has_long_word": lambda text: any(len(word) > LONG_WORD for word in str(text).split()),
        "p_value": p_value,
        "signed": signed,
    }
    environment.globals |= {"share_of": share, "bar": bar, "shares": SHARES, "same": SAME, "few": FEW}
    style, script = (_static(name) for name in ("report.css", "report.js"))
    style += f"\n@page {{ @bottom-left {{ content: {_css_text(summary['title'])}; }} }}"
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
        without_interval=without_interval(summary["rows"]),
        notes_of_fits=notes_of_fits(summary["rows"]),
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


def _kept_together(value: Any) -> Any:
    """Let no line end between a number and its percent sign. Our own files and parts of pages stay as they are."""
    return re.sub(r"(?<=\d) %", "\u00a0%", value) if type(value) is str else value


def _css_text(text: str) -> str:
    r"""Return text as a string of a style sheet, which cannot end it or the element around it.

    >>> print(_css_text('a "b"</style>'))
    "a \22 b\22 \3c \2f style\3e "
    """
    words = " ".join(text.split())
    words = words if len(words) <= LONGEST_TITLE else f"{words[: LONGEST_TITLE - 1]}…"
    return '"' + "".join(sign if sign.isalnum() or sign == " " else f"\\{ord(sign):x} " for sign in words) + '"'


def _drawings(summary: dict[str, Any]) -> dict[str, Any]:
    """Return what the charts draw."""
    temperature, referral = summary["temperature"], summary["referral"]
    found = [[(x, y) for x, y in counts["curve"]] for counts in referral["counts"]]
    x, y = curve(referral["counts"][referral["first_method"]])[referral["start"]]
    return {
        "bins_frame": reliability_frame(summary["n_classes"]),
        "gaps": None if summary["groups"] is None else forest(summary["groups"]),
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
        "lowest": drawn["bins_frame"].x[0],
        "few": FEW,
        "temperature": summary["temperature"] | {"places": [panel["places"] for panel in drawn["panels"]]},
        "referral": {
            "method": referral["first_method"],
            "start": referral["start"],
            "labels": referral["labels"],
            "z": quantile(summary["confidence_level"]),
            "scale": referral["scale"],
            "counts": [{key: counts[key] for key in ("right", "wrong")} for counts in referral["counts"]],
        },
    }


def _static(name: str) -> str:
    return (HERE / "static" / name).read_text(encoding="utf-8").rstrip("\n")


def _digest(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
