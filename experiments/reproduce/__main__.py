"""``python -m experiments.reproduce``: the tables and figures of the paper."""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path

from experiments.reproduce import (
    consistency,
    examples,
    figure2,
    grid,
    noise,
    published,
    referral,
    size,
    table1,
    table3,
    table4,
)
from experiments.reproduce.journal import rows_of, workers
from experiments.reproduce.pages import read_csv, write, write_csv

MODULES = (table1, published, table3, table4, referral, examples, figure2, noise, size, consistency, grid)
STUDIES = {module.STUDY.name: module.STUDY for module in MODULES}

DESCRIPTION = f"""Write the tables and figures of the paper (arXiv 1810.11586) from the networks of data/.

Studies: {", ".join(STUDIES)} (table1 also writes Table 2), or all. Each writes its rows (CSV), a page (Markdown) and
figures (PNG). If a run is interrupted, the same command resumes it.
"""


def main() -> None:
    """Run the studies that were asked for."""
    parser = argparse.ArgumentParser(description=DESCRIPTION, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("studies", nargs="+", choices=[*STUDIES, "all"], metavar="STUDY")
    parser.add_argument("-o", "--output", type=Path, default=Path("results"), help="folder to write to")
    parser.add_argument("--seed", type=int, default=0, help="of splits, wrong labels and draws")
    parser.add_argument("--repeats", type=int, help="random splits (default: those of each study)")
    parser.add_argument("--workers", type=int, default=os.cpu_count(), help="processes (default: one for each core)")
    parser.add_argument("--draw", action="store_true", help="only write pages and figures, from the CSV in the folder")
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)
    pool = workers(options.workers)
    try:
        for name in STUDIES if "all" in options.studies else options.studies:
            study, start, path = STUDIES[name], time.perf_counter(), options.output / f"{name}.csv"
            if not options.draw:
                repeats = options.repeats or study.repeats
                write_csv(path, rows_of(study, options.output, pool, seed=options.seed, repeats=repeats))
            files = study.files(read_csv(path))
            write(options.output, files)
            print(f"\r{name}: {time.perf_counter() - start:.0f} s,", *files, flush=True)
    finally:
        pool.shutdown(cancel_futures=True)


if __name__ == "__main__":
    main()
