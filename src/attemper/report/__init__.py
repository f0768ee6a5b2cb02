"""One page of HTML about a comparison: self-contained, printable, for readers who were not there."""

from __future__ import annotations

from attemper.report.page import render, write

__all__ = ["render", "write"]
