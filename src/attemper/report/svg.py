"""Plots as SVG that can stand in a page with a strict content security policy: no style attributes, no ids twice."""

from __future__ import annotations

import io
import re
import warnings
from typing import TYPE_CHECKING
from xml.etree import ElementTree

if TYPE_CHECKING:
    from markupsafe import Markup
    from matplotlib.axes import Axes

__all__ = ["inline_svg"]


def inline_svg(ax: Axes, name: str, label: str) -> Markup:
    """Return the Figure of some Axes as an element of a page; ``name`` makes its ids unique, ``label`` describes it."""
    import matplotlib as mpl
    from markupsafe import Markup

    stream = io.BytesIO()
    with mpl.rc_context({"svg.hashsalt": "attemper", "svg.fonttype": "none"}), warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # the browser has its own fonts
        ax.figure.figure.savefig(stream, format="svg", metadata={"Date": None, "Creator": None})
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
    pairs = [part.split(":", 1) for part in style.split(";") if ":" in part]
    found = []
    for key, value in ((key.strip(), value.strip()) for key, value in pairs):
        if key == "font" and (size := re.search(r"[\d.]+px", value)):
            found.append(("font-size", size[0]))
        elif not key.startswith("font") or key == "font-size":
            found.append((key, value))
    return found
