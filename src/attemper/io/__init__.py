"""Read scores from files and write probabilities to files, a bounded piece at a time.

The road of the data: a format module (`arrays`, `csv`, `jsonl`,
`parquet`) reads blocks of plain arrays; `sources` makes validated `Scores` of
them; `results` writes what comes out.
"""

from attemper.io.classes import check_alike
from attemper.io.results import ProbRows, write_probs
from attemper.io.sources import ScoreFiles, open_scores, paired
from attemper.io.spec import InputSpec

__all__ = ["InputSpec", "ProbRows", "ScoreFiles", "check_alike", "open_scores", "paired", "write_probs"]
