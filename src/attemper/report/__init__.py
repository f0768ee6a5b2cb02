"""A page that tells a doctor and an engineer what a network says, how far it is off, and what calibration changed.

Three steps: `summarise` computes plain numbers, `render` writes them as one page of HTML that needs nothing else,
`write_report` does both and puts the page into a file.
"""

from attemper.report.page import render, write_report
from attemper.report.provenance import origin
from attemper.report.summary import summarise

__all__ = ["origin", "render", "summarise", "write_report"]
