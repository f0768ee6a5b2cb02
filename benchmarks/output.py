"""What benchmarks print is kept in benchmarks/outputs/, and the tables of the documentation are filled from there.

    python benchmarks/output.py NAME… [--folder FOLDER]   # run the command of each name, and keep what it prints
    python benchmarks/output.py --fill                    # write the tables into the pages of docs/

COMMANDS has the command of each name. FOLDER stands for a folder of logits (.npz files, see benchmarks/sets.py); venn
needs one of the arena (see docs/arena.md). A page marks a table that is filled, here the second one of `groups`:

    <!-- output: groups 2 -->

    <!-- end -->

tests/test_numbers.py holds pages and outputs against each other.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import platform
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
KEPT = ROOT / "benchmarks" / "outputs"
PACKAGES = ("numpy", "scipy", "scikit-learn")
NOT_RERUN = "Measured with a development version of 0.2, and not rerun since."

COMMANDS = {
    "affine": "affine.py FOLDER",
    "affine-speed": "affine.py --speed",
    "annotators": "annotators.py FOLDER",
    "annotators-data": "annotators.py data",
    "bias": "bias.py",
    "bias-held-out": "bias.py --held-out",
    "bundled": "bundled.py",
    "certificates": "certificates.py",
    "choosing-noise": "choosing.py --draws 2 --noise 0.2"
    " --sets lenet5-mnist-s0,lenet5-fashion_mnist-s0,vgg16-cifar10-s0",
    "choosing-skin": "choosing.py --sets resnet200-skin --draws 5",
    "cluster-certificates": "cluster_certificates.py",
    "clusters-coverage": "clusters.py coverage",
    "clusters-metrics": "clusters.py metrics",
    "clusters-shrinkage": "clusters.py shrinkage --sets 24",
    "clusters-skin": "clusters.py skin",
    "drift": "drift.py",
    "drift-fitted": "drift.py --fitted",
    "drift-real": "drift.py --real",
    "exactness": "exactness.py FOLDER",
    "gpu": "gpu.py",
    "group-metrics": "group_metrics.py --draws 150",
    "groups": "groups.py FOLDER --methods ts,bayes,structured",
    "groups-constants": "groups.py FOLDER --constants",
    "minimisers": "minimisers.py",
    "monitoring-clusters": "monitoring.py clusters",
    "monitoring-peers": "monitoring.py peers",
    "monitoring-unlabelled": "monitoring.py unlabelled FOLDER",
    "multilabel": "multilabel.py --draws 20",
    "multilabel-real": "multilabel.py --real",
    "pixels-coverage": "pixels.py coverage --sets 150",
    "pixels-cpu": "pixels.py cpu",
    "pixels-subsample": "pixels.py subsample",
    "planning-certificate": "planning.py certificate data FOLDER --every 4 --draws 2",
    "planning-evaluate": "planning.py evaluate data FOLDER --every 2 --draws 2 --calibrated",
    "planning-fit": "planning.py fit data FOLDER --every 2 --draws 4",
    "planning-metrics": "planning.py metrics data FOLDER --every 3 --draws 1",
    "planning-temperature": "planning.py temperature data FOLDER --every 2 --draws 2",
    "planning-typical": "planning.py typical data FOLDER",
    "priors": "priors.py FOLDER",
    "priors-drift": "priors.py FOLDER --drift",
    "report": "report.py",
    "scale-memory": "scale.py memory --gigabytes 1",
    "scale-merge": "scale.py merge",
    "scale-slopes": "scale.py slopes",
    "scale-slopes-100": "scale.py slopes --classes 100",
    "sets-clusters": "prediction_sets.py clusters",
    "sets-law": "prediction_sets.py law",
    "sets-raps": "prediction_sets.py law --draws 10000 --n 50 --only raps",
    "sets-sizes": "prediction_sets.py sizes FOLDER --torchcp TORCHCP",
    "speed-fits": "speed.py --only fits",
    "speed-memory": "speed.py --only memory",
    "speed-path": "speed.py --only path",
    "speed-ratios": "speed.py --only ratios",
    "topk": "topk.py",
    "units": "units.py FOLDER --draws 5",
    "units-data": "units.py data --draws 5",
    "venn": "venn.py --arena FOLDER",
    "votes": "votes.py",
    "walk": "walk.py",
}
BLOCK = re.compile(r"^( *)<!-- output: (\S+)(?: (\d+))? -->\n.*?^ *<!-- end -->", flags=re.M | re.S)


def read(name: str) -> str:
    return (KEPT / f"{name}.md").read_text()


def tables(text: str) -> list[list[str]]:
    r"""Return the lines of each Markdown table.

    >>> tables("| a | b |\n|---|---|\n| 1 | 2 |\nand\n| c |")
    [['| a | b |', '|---|---|', '| 1 | 2 |'], ['| c |']]
    """
    return [block.splitlines() for block in re.findall(r"(?:^\|.*(?:\n|\Z))+", text, flags=re.M)]


def filled(text: str) -> str:
    """Return a page whose marked tables are those of the outputs."""

    def fill(match: re.Match[str]) -> str:
        indent, name, number = match.groups()
        mark = f"<!-- output: {name}{f' {number}' if number else ''} -->"
        rows = tables(read(name))[int(number or 1) - 1]
        return "\n".join(indent + line if line else "" for line in [mark, "", *rows, "", "<!-- end -->"])

    return BLOCK.sub(fill, text)


def run(name: str, folder: str) -> None:
    """Run the command of an output and keep what it prints."""
    script, *options = COMMANDS[name].split()
    command = [sys.executable, str(ROOT / "benchmarks" / script), *(folder if o == "FOLDER" else o for o in options)]
    printed = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout
    versions = [f"{package} {importlib.metadata.version(package)}" for package in PACKAGES]
    keep(name, ", ".join([f"Python {platform.python_version()}", *versions]), printed.replace(folder, "FOLDER"))


def keep(name: str, how: str, printed: str) -> None:
    KEPT.mkdir(exist_ok=True)
    (KEPT / f"{name}.md").write_text(f"`python benchmarks/{COMMANDS[name]}`\n\n{how}\n\n{printed.strip()}\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"one of {', '.join(COMMANDS)}")
    parser.add_argument("--folder", default="FOLDER", help="what FOLDER of a command stands for")
    parser.add_argument("--fill", action="store_true", help="write the tables into the pages")
    options = parser.parse_args()
    for name in options.names:
        run(name, options.folder)
    if options.fill:
        for page in sorted((ROOT / "docs").rglob("*.md")):
            before = page.read_text()
            after = filled(before)
            if after != before:
                page.write_text(after)


if __name__ == "__main__":
    main()
