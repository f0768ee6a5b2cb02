"""`python -m experiments.reproduce`: the paper's tables and figures."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from experiments.reproduce import PAGES, reproduce

DESCRIPTION = """Write the paper's tables and figures (arXiv 1810.11586), with ours beside them, from data/.

Each page comes with its numbers (CSV, JSON), a Markdown table, and pictures (SVG, PNG) where the paper has a figure.
If it is interrupted, the same command continues.

    python -m experiments.reproduce all -o results/           # about 65 minutes of CPU time
    python -m experiments.reproduce table4 referral           # seconds
    python -m experiments.reproduce noise --repeats 2         # a quick look
    python -m experiments.reproduce examples --images FOLDER  # with photographs FOLDER/<image_id>.jpg
"""


def main() -> None:
    """Read the options and write the pages."""
    parser = argparse.ArgumentParser(description=DESCRIPTION, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pages", nargs="+", choices=[*PAGES, "all"], metavar="PAGE", help=f"{', '.join(PAGES)}, or all")
    parser.add_argument("-o", "--output", type=Path, default=Path("results"), help="folder for what is written")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--repeats", type=int, help="random divisions [default: those of each page, 5 to 30]")
    parser.add_argument("--workers", type=int, help="processes [default: one for each core]")
    parser.add_argument("--images", type=Path, help="folder of photographs for the examples")
    parser.add_argument("--fresh", action="store_true", help="do everything again, also what was finished before")
    options = vars(parser.parse_args())
    pages = list(PAGES) if "all" in options["pages"] else options["pages"]

    def tick(study: str, done: int, total: int, _: str) -> None:
        print(f"\r{study}: {done} of {total} jobs ", end="" if done < total else "\n", file=sys.stderr, flush=True)

    for path in reproduce(pages, **{key: value for key, value in options.items() if key != "pages"}, tick=tick):
        if path.suffix == ".md":
            print(f"wrote {path}")


if __name__ == "__main__":
    main()
