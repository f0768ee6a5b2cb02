"""A page for doctors and engineers: how good the confidence of a network is, and what calibration changes.

Three steps: `summarise` computes plain numbers, `render` writes them as one page of HTML that needs nothing else,
`write_report` does both and puts the page into a file.
"""

from attemper.report.page import render, write_report
from attemper.report.provenance import origin
from attemper.report.summary import Report, summarise

__all__ = ["Report", "origin", "render", "summarise", "write_report"]
