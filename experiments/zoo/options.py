"""The command line, and plans: files with the options of one run in each line."""

from __future__ import annotations

import argparse
import math
import re
import shlex
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from attemper.errors import FileError, InputError
from experiments.zoo.networks import ARCHITECTURES
from experiments.zoo.optimisation import SCHEDULES
from experiments.zoo.recipes import RunOptions
from experiments.zoo.views import USUAL_VIEWS, VIEWS

DESCRIPTION = """\
Train image classifiers and save their held-out logits, as material for calibration.

one run
  python -m experiments.zoo --dataset digits --out OUT --epochs 8 --batch 32 --lr 0.05
  python -m experiments.zoo --data DATA --out OUT --dataset mnist --arch lenet5 --epochs 50 --lr 0.05 --seed 0
all runs of a plan, at the same time on one GPU
  python -m experiments.zoo --data DATA --out OUT --plan experiments/zoo/plans/cifar10.txt

Each run writes OUT/<arch>-<dataset>[-dropout]-s<seed>.npz, in the form of the files in data/. Until then it keeps a
checkpoint beside it: after an interrupt, the same command goes on from there. A run that is finished is not repeated.
"""

EPILOG = """\
data sets: the first of these that is in DATA is read, nothing is downloaded
  any NAME        NAME.npz (x_train, y_train, x_test, y_test; class_names if you like)
  mnist           MNIST/raw/train-images-idx3-ubyte[.gz], and the three others
  fashion_mnist   FashionMNIST/raw/, likewise
  cifar10         cifar-10-batches-py/
  cifar100        cifar-100-python/
  svhn            train_32x32.mat, test_32x32.mat
  any NAME        NAME/train/<class>/*.png or jpg, NAME/test/<class>/*
  digits          comes with scikit-learn and needs no DATA
  skin            HAM10000_metadata.csv and images_200x150_jpg.zip, and nothing else
"""


@dataclass(frozen=True)
class Command:
    """What the command line asks for."""

    data: Path
    out: Path
    runs: list[RunOptions]
    image_size: tuple[int, int] | None
    limit: int | None
    checkpoint_every: int
    fresh: bool
    save_weights: bool
    device: str | None


def parse_command(words: Sequence[str] | None = None) -> Command:
    """Read the command line; a mistake in it ends the program with its usage, one in a plan is an error."""
    common, run = _common_parser(), _run_parser()
    parser = argparse.ArgumentParser(
        prog="python -m experiments.zoo",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        parents=[common, run],
        allow_abbrev=False,
    )
    options = parser.parse_args(words)
    if options.plan is None:
        runs = [_run_options(options)]
    else:
        beside = common.parse_known_args(words)[1]
        if beside:
            parser.error(f"{' '.join(beside)}: beside --plan, what makes a run belongs into the lines of the plan")
        runs = read_plan(options.plan)
    return Command(runs=runs, **{f.name: getattr(options, f.name) for f in fields(Command) if f.name != "runs"})


def read_plan(path: Path) -> list[RunOptions]:
    """Read the options of one run from each line; empty lines and those that begin with # are passed over."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise FileError(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}") from None
    parser = _run_parser()
    runs = []
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        try:
            runs.append(_run_options(parser.parse_args(shlex.split(line))))
        except (argparse.ArgumentError, ValueError) as error:
            raise InputError(f"{path}, line {number}: {error}") from None
    if not runs:
        raise FileError(f"{path}: there are no runs in it")
    twice = [name for name, count in Counter(run.name for run in runs).items() if count > 1]
    if twice:
        raise InputError(f"{path}: more than one run would write {twice[0]}.npz; let them differ in --seed")
    return runs


class _PlanParser(argparse.ArgumentParser):
    """Raises an error for the line of a plan, where argparse would end the program."""

    def error(self, message: str) -> Any:
        raise InputError(message)


def _common_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    add = parser.add_argument_group("files and progress").add_argument
    add("--data", type=Path, default=Path(), metavar="DATA", help="folder with the data sets (default: this folder)")
    add("--out", type=Path, default=Path(), metavar="OUT", help="folder for the results (default: this folder)")
    add("--plan", type=Path, metavar="FILE", help="file with the options of one run in each line")
    add("--checkpoint-every", type=_whole(1), default=5, metavar="N", help="epochs between checkpoints (default: 5)")
    add("--fresh", action="store_true", help="throw away checkpoints and results of these runs, and start over")
    add("--save-weights", action="store_true", help="keep the trained weights too, as OUT/<run>.pt")
    add("--device", choices=("cuda", "cpu"), help="default: cuda, where there is a GPU")
    add("--image-size", type=_size, metavar="HxW", help="resize the files of image folders, such as 32x32")
    add("--limit", type=_whole(1), metavar="N", help="use only N images of each part, to try things out")
    return parser


def _run_parser() -> argparse.ArgumentParser:
    parser = _PlanParser(add_help=False, allow_abbrev=False)
    add = parser.add_argument_group("a run").add_argument
    add("--dataset", default="mnist", metavar="NAME", help="see below (default: mnist)")
    add("--arch", choices=ARCHITECTURES, default="lenet5", help="the network (default: lenet5)")
    add("--split", choices=("random", "lesion"), default="random", help="skin lesions only (default: random)")
    add("--view", choices=VIEWS, help="augmentation (default: that of data/README.md; plain for other data sets)")
    add("--dropout", type=_number(0, 1), default=0.0, metavar="RATE", help="in the classifier of lenet5 or vgg16")
    add("--epochs", type=_whole(1), default=30, metavar="N", help="default: 30")
    add("--batch", type=_whole(1), default=128, metavar="N", help="default: 128")
    add("--lr", type=_number(0), default=0.1, metavar="RATE", help="highest learning rate (default: 0.1)")
    add("--schedule", choices=SCHEDULES, default="step", help="of the learning rate (default: step)")
    add("--warmup-epochs", type=_number(0), default=1, metavar="N", help="of linear warm-up (default: 1)")
    add("--weight-decay", type=_number(0), default=5e-4, metavar="RATE", help="default: 5e-4")
    add(
        "--seed",
        type=_whole(0),
        default=0,
        metavar="N",
        help="of weights, order, augmentation and dropout (default: 0)",
    )
    add(
        "--residual-start",
        choices=("zero", "one"),
        default="zero",
        help="weight that the last batch norm of a residual branch begins with (default: zero)",
    )
    add(
        "--priority",
        type=int,
        default=0,
        metavar="N",
        help="of the CUDA stream; raise it for nets of many small kernels",
    )
    return parser


def _run_options(options: argparse.Namespace) -> RunOptions:
    if not re.fullmatch(r"\w[\w.-]*", options.dataset):
        raise InputError(f"--dataset {options.dataset!r}: expected a plain name, which becomes part of file names")
    told = {f.name: getattr(options, f.name) for f in fields(RunOptions)}
    return RunOptions(**{**told, "view": told["view"] or USUAL_VIEWS.get(options.dataset, "plain")})


def _whole(least: int) -> Callable[[str], int]:
    def whole(word: str) -> int:
        if not re.fullmatch(r"\d+", word) or int(word) < least:
            raise argparse.ArgumentTypeError(f"{word!r}: expected a whole number, at least {least}")
        return int(word)

    return whole


def _number(least: float, below: float = math.inf) -> Callable[[str], float]:
    def number(word: str) -> float:
        try:
            value = float(word)
        except ValueError:
            value = math.nan
        if not least <= value < below:
            limit = "" if below == math.inf else f" and below {below}"
            raise argparse.ArgumentTypeError(f"{word!r}: expected a number, at least {least}{limit}")
        return value

    return number


def _size(word: str) -> tuple[int, int]:
    match = re.fullmatch(r"(\d+)x(\d+)", word)
    if match is None or "0" in match.groups():
        raise argparse.ArgumentTypeError(f"{word!r}: expected height and width in pixels, such as 32x32")
    return int(match[1]), int(match[2])
