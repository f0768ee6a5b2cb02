"""Scores from files and probabilities to files, a bounded piece at a time.

The road of the data: a format module (`npy`, `npz`, `safetensors`, `csv`,
`parquet`) reads blocks of plain arrays; `sources` makes validated `Scores` of
them; `results` writes what comes out.
"""

from attemper.files.results import ProbRows, write_probs
from attemper.files.sources import ScoreFiles, check_alike, expanded, open_scores, paired

__all__ = ["ProbRows", "ScoreFiles", "check_alike", "expanded", "open_scores", "paired", "write_probs"]
