"""Notebooks as pages of the site: their cells and the outputs that are kept in them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

PANDAS_STYLE = re.compile(r'<style.*?</style>|(?<=<table) border="1" class="dataframe"', flags=re.S)


def as_markdown(path: Path) -> str:
    """Return a notebook as Markdown; its pictures are in the page."""
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return "\n\n".join(part for cell in cells for part in _parts(cell)) + "\n"


def _parts(cell: dict[str, Any]) -> list[str]:
    text = "".join(cell["source"])
    if cell["cell_type"] == "markdown":
        return [text]
    return [f"```python\n{text}\n```", *map(_shown, cell["outputs"])]


def _shown(output: dict[str, Any]) -> str:
    data = {kind: "".join(lines) for kind, lines in output.get("data", {"text/plain": output.get("text")}).items()}
    if "image/png" in data:
        return f'<img alt="output of the cell" src="data:image/png;base64,{data["image/png"].strip()}">'
    if "text/html" in data:
        # The site has a style of its own.
        return "\n".join(line for line in PANDAS_STYLE.sub("", data["text/html"]).splitlines() if line.strip())
    return f"```output\n{data['text/plain'].rstrip()}\n```"
