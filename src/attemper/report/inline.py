"""The numbers of a report, which a notebook shows as its page."""

from __future__ import annotations

import html
from importlib.util import find_spec
from typing import Any

from attemper.metrics import GroupMetrics

__all__ = ["Report"]

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
