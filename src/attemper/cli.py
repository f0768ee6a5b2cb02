"""The command line: the only file that knows it."""

from __future__ import annotations

import functools
import json
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from io import TextIOWrapper
from pathlib import Path
from typing import Any, NoReturn

import click
import numpy as np
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

import attemper
from attemper import datasets
from attemper.calibrators import METHODS, load
from attemper.comparison import Comparison, compare
from attemper.documents import atomic
from attemper.errors import AttemperError, AttemperWarning, FileError, InputError
from attemper.files import ProbRows, ScoreFiles, expanded, open_scores, write_probs
from attemper.maps import ScaleMap
from attemper.metrics import Estimate, evaluate
from attemper.scores import Scores
from attemper.sketch import DEFAULT_T_RANGE, DEFAULT_THETAS, Sketch

__all__ = ["main"]

# Nothing wraps in a pipe; a terminal decides for itself.
out = Console(width=None if sys.stdout.isatty() else 160, highlight=False, soft_wrap=not sys.stdout.isatty())
err = Console(stderr=True, highlight=False, soft_wrap=True)

Command = Callable[..., Any]


def main() -> NoReturn:
    """Run the command line; every expected failure is one message and exit code 2."""
    debug = "--debug" in sys.argv
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal that lacks θ or → is no reason to fail
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("always", AttemperWarning)
            warnings.showwarning = lambda message, *_, **__: err.print(f"warning: {message}", markup=False)
            code = cli.main(prog_name="attemper", standalone_mode=False)
        sys.exit(code if isinstance(code, int) else 0)
    except click.exceptions.Abort:
        _fail("interrupted; nothing was written", 130)
    except KeyboardInterrupt:
        _fail("interrupted; nothing was written", 130)
    except click.ClickException as error:
        error.show()
        sys.exit(2)
    except AttemperError as error:
        if debug:
            traceback.print_exc()
        _fail(str(error), 2)
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(1)


def _fail(message: str, code: int) -> NoReturn:
    err.print(f"attemper: {message}", markup=False)
    sys.exit(code)


@click.group(
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Start with: attemper demo. Each command has a --help that explains it.",
)
@click.version_option(attemper.__version__, prog_name="attemper")
def cli() -> None:
    """Make a classifier's confidence mean what it says.

    Give attemper the logits and labels of a validation set; it fits a small map that turns logits into
    calibrated probabilities, shows what changed, and never changes the answers of the classifier.
    """


# Options that commands share.


def with_debug(command: Command) -> Command:
    """Let a command take --debug, which `main` looks at."""
    return click.option("--debug", is_flag=True, expose_value=False, help="Show the Python traceback of an error.")(
        command
    )


def with_json(command: Command) -> Command:
    """Let a command print JSON."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON, for machines.")(command)


def reading(labels: bool = True) -> Callable[[Command], Command]:
    """Options that say how input files are to be read; the command gets ``read``, a dict of them."""
    options = [
        click.option(
            "--logits-key",
            metavar="NAME",
            help="Array or column of logits [default: logits; in a table every column but the label's]. In a "
            "table with one column per class: what their names begin with.",
        ),
        click.option("--probs", is_flag=True, help="The input holds probabilities, not logits. Never guessed."),
        click.option(
            "--floor",
            type=float,
            metavar="P",
            help="With --probs: what probabilities of exactly 0 stand for, such as 1e-8.",
        ),
    ]
    if labels:
        options[1:1] = [
            click.option(
                "--labels",
                multiple=True,
                metavar="FILE.npy",
                help="Labels of logits in .npy; once for each input file.",
            ),
            click.option("--labels-key", metavar="NAME", help="Array or column of labels [default: labels; label]."),
            click.option("--weights-key", metavar="NAME", help="Array or column of sample weights [default: none]."),
        ]
        options.append(
            click.option(
                "--classes",
                metavar="FILE|A,B,…",
                help="Names of the classes in column order: a text file with one a line, or a list. Needed when "
                "labels are names.",
            )
        )

    def decorate(command: Command) -> Command:
        @functools.wraps(command)
        def wrapped(**given: Any) -> Any:
            names = ["logits_key", "probs", "floor"]
            names += ["labels", "labels_key", "weights_key", "classes"] if labels else []
            read = {name: given.pop(name) for name in names}
            if labels:
                read["classes"] = _class_names(read["classes"])
                read["labels"] = read["labels"] or None
            return command(read=read, **given)

        for option in reversed(options):
            wrapped = option(wrapped)
        return wrapped

    return decorate


noisy_option = click.option(
    "--noisy",
    is_flag=True,
    help="Some validation labels may be wrong: estimate how many, and do not let them spoil the fit (bayes).",
)
interval_option = click.option(
    "--interval", type=float, default=0.95, show_default=True, help="Level of the bootstrap intervals."
)
seed_option = click.option("--seed", type=int, default=0, show_default=True, help="Seed of the bootstrap.")
files_argument = click.argument("inputs", nargs=-1, required=True, metavar="INPUT…")


@cli.command()
@files_argument
@click.option(
    "--method",
    type=click.Choice(list(METHODS)),
    default="bayes",
    show_default=True,
    help="ts: temperature scaling. ats: attended temperature scaling. bayes: Bayesian temperature scaling, the "
    "best of the three with few or noisy labels and level with the others elsewhere.",
)
@click.option("-o", "--output", default="attemper.json", show_default=True, help="Where to write the fitted map.")
@noisy_option
@click.option("--theta", type=float, help="ats: use this θ instead of tuning it.")
@click.option("--loss", type=click.Choice(["paper", "reference"]), help="ats: Eq. 8, or the authors' code.")
@reading()
@with_json
@with_debug
def fit(
    inputs: Sequence[str],
    method: str,
    output: str,
    noisy: bool,
    theta: float | None,
    loss: str | None,
    read: dict[str, Any],
    as_json: bool,
) -> None:
    """Fit a calibration map on validation data.

    INPUT is one file or several that are one data set (or a pattern in quotes): .npz, .npy with --labels,
    .csv, .safetensors, .parquet; or sketches (.json) that `attemper sketch` wrote. Files are read in
    chunks, once.

    \b
    attemper fit val.npz
    attemper fit val.npz --noisy -o net.attemper.json
    attemper fit logits.npy --labels labels.npy --method ts
    attemper fit 'shards/*.parquet' --labels-key target
    """  # noqa: D301 (click wants the control character)
    if (theta is not None or loss is not None) and method != "ats":
        raise InputError("--theta and --loss belong to --method ats")
    given = {"theta": theta, "loss": loss or "paper"} if method == "ats" else {}
    calibrator = METHODS[method].for_labels(noisy=noisy, **given, classes=read["classes"])
    calibrator.set_params(input="probs" if read["probs"] else "logits")
    _check_writable(output, inputs)
    thetas = DEFAULT_THETAS if theta is None else [theta]
    sketch = _sketch_of(inputs, read, t_range=DEFAULT_T_RANGE, thetas=thetas, parts=calibrator.sketch_parts())
    calibrator.fit_sketch(sketch)
    calibrator.save(output)
    report = calibrator.fit_report_
    summary = calibrator.summary() | {
        "method": method,
        "n_samples": sketch.n_samples,
        "n_classes": sketch.n_classes,
        "nll_uncalibrated": sketch.mean_nll(1.0),
        "nll": report.nll,
        "converged": report.converged,
        "error": report.error,
        "message": report.message,
        "output": output,
    }
    if as_json:
        _print_json(summary)
        return
    out.print(f"{sketch.n_samples} samples, {sketch.n_classes} classes, method {method}", markup=False)
    for line in calibrator.describe():
        out.print(f"  {line}", markup=False)
    out.print(f"  validation NLL {summary['nll_uncalibrated']:.4f} → {report.nll:.4f}", markup=False)
    out.print(f"  {report.message}", markup=False)
    out.print(f"wrote {output}", markup=False)


@cli.command()
@click.argument("map_file", metavar="MAP")
@files_argument
@click.option("-o", "--output", required=True, help="Where to write: .npz, .npy, .csv, .safetensors or .parquet.")
@reading(labels=False)
@with_json
@with_debug
def apply(map_file: str, inputs: Sequence[str], output: str, read: dict[str, Any], as_json: bool) -> None:
    """Turn logits into calibrated probabilities with a fitted MAP.

    \b
    attemper apply attemper.json new.npz -o probabilities.npz
    attemper apply attemper.json 'day/*.parquet' -o day.parquet
    """  # noqa: D301 (click wants the control character)
    calibrator = load(map_file)
    read["probs"] = read["probs"] or calibrator.input == "probs"
    _check_writable(output, inputs)
    files = open_scores(inputs, need_labels=False, **read)
    if files.n_classes != calibrator.n_features_in_:
        raise InputError(
            f"{inputs[0]}: {files.n_classes} columns of logits, but {map_file} was fitted for "
            f"{calibrator.n_features_in_} classes"
        )
    count = 0

    def rows() -> Iterator[ProbRows]:
        nonlocal count
        for piece in _progress(files, "applying"):
            count += len(piece)
            probs = calibrator.map_.apply(piece.logits)
            yield ProbRows(probs, None, probs.argmax(axis=1))

    write_probs(output, rows(), classes=calibrator.classes)
    if as_json:
        _print_json({"rows": count, "output": output})
    else:
        out.print(f"wrote {count} rows to {output}", markup=False)


@cli.command(name="evaluate")
@files_argument
@click.option("--map", "map_file", metavar="MAP", help="Also show the figures after this fitted map.")
@interval_option
@seed_option
@reading()
@with_json
@with_debug
def evaluate_(
    inputs: Sequence[str],
    map_file: str | None,
    interval: float,
    seed: int,
    read: dict[str, Any],
    as_json: bool,
) -> None:
    """Measure how far confidence and truth are apart, with intervals.

    Accuracy, NLL, Brier score, ECE (15 bins of equal width; of equal mass; class-wise), MCE and MMCE.

    \b
    attemper evaluate test.npz
    attemper evaluate test.npz --map attemper.json
    """  # noqa: D301 (click wants the control character)
    scores = open_scores(inputs, **read).load()
    maps: dict[str, Any] = {"as given": ScaleMap(1.0)}
    if map_file is not None:
        calibrator = load(map_file)
        if calibrator.n_features_in_ != scores.n_classes:
            raise InputError(
                f"{map_file}: fitted for {calibrator.n_features_in_} classes; the input has {scores.n_classes}"
            )
        maps[Path(map_file).name] = calibrator.map_
    found = {
        name: evaluate(
            m.log_apply(scores.logits.astype(np.float64)),
            scores.labels,
            log_probs=True,
            sample_weight=scores.weights,
            interval=interval,
            seed=seed,
        )
        for name, m in maps.items()
    }
    if as_json:
        _print_json({name: _plain(metrics) for name, metrics in found.items()})
        return
    table = Table(title=f"{len(scores)} samples, {scores.n_classes} classes, {interval:.0%} intervals")
    table.add_column("measure")
    for name in found:
        table.add_column(Text(name), justify="right")
    for measure in next(iter(found.values())):
        table.add_row(measure, *(_number(metrics[measure]) for metrics in found.values()))
    out.print(table)


@cli.command(name="compare")
@click.argument("val")
@click.argument("test")
@click.option("--methods", metavar="A,B,…", help=f"Which methods [default: {','.join(METHODS)}].")
@noisy_option
@click.option("--val-logits-key", metavar="NAME", help="Name of the logits in VAL, if it is another than in TEST.")
@click.option("--val-labels-key", metavar="NAME", help="Name of the labels in VAL, if it is another than in TEST.")
@click.option("--val-labels", metavar="FILE.npy", help="Labels of VAL, when it is an .npy file (TEST: --labels).")
@interval_option
@seed_option
@reading()
@with_json
@with_debug
def compare_(
    val: str,
    test: str,
    methods: str | None,
    noisy: bool,
    val_logits_key: str | None,
    val_labels_key: str | None,
    val_labels: str | None,
    interval: float,
    seed: int,
    read: dict[str, Any],
    as_json: bool,
) -> None:
    """Fit every method on VAL, judge it on TEST, and say which to use.

    \b
    attemper compare val.npz test.npz
    attemper compare net.npz net.npz --val-logits-key val_logits --val-labels-key val_labels
    """  # noqa: D301 (click wants the control character)
    read_val = dict(read)
    read_val["logits_key"] = val_logits_key or read["logits_key"]
    read_val["labels_key"] = val_labels_key or read["labels_key"]
    read_val["labels"] = val_labels
    result = _compared(
        open_scores(val, **read_val).load(),
        open_scores(test, **read).load(),
        [m.strip() for m in methods.split(",")] if methods is not None else None,
        noisy,
        interval,
        seed,
    )
    if as_json:
        _print_json(_comparison_json(result))
    else:
        _print_comparison(result, interval)


@cli.command()
@files_argument
@click.option("-o", "--output", required=True, help="Where to write the sketch, such as a.sketch.json.")
@click.option(
    "--t-range", type=float, nargs=2, default=DEFAULT_T_RANGE, show_default=True, help="Temperatures covered."
)
@reading()
@with_json
@with_debug
def sketch(
    inputs: Sequence[str], output: str, t_range: tuple[float, float], read: dict[str, Any], as_json: bool
) -> None:
    """Reduce a data set to a small table from which every method can be fitted.

    Sketches of parts (files, machines, hospitals) can be merged and give the same fit as all data at once.

    \b
    attemper sketch a.npz -o a.sketch.json
    attemper merge a.sketch.json b.sketch.json -o all.sketch.json
    attemper fit all.sketch.json
    """  # noqa: D301 (click wants the control character)
    _check_writable(output, inputs)
    made = _sketch_of(inputs, read, t_range=t_range)
    made.save(output)
    _say_sketch(made, output, as_json)


@cli.command()
@files_argument
@click.option("-o", "--output", required=True, help="Where to write the merged sketch.")
@with_json
@with_debug
def merge(inputs: Sequence[str], output: str, as_json: bool) -> None:
    """Add sketches: the result is the sketch of all their data together.

    \b
    attemper merge a.sketch.json b.sketch.json -o all.sketch.json
    """  # noqa: D301 (click wants the control character)
    _check_writable(output)
    made = _merged(inputs)
    made.save(output)
    _say_sketch(made, output, as_json)


@cli.command()
@click.option("-o", "--output", default="demo-output", show_default=True, help="Folder for what the demo writes.")
@seed_option
@with_json
@with_debug
def demo(output: str, seed: int, as_json: bool) -> None:
    """Calibrate a real skin-lesion network that comes with attemper.

    Writes the validation and test logits, the fitted map, calibrated probabilities, and a reliability
    diagram if matplotlib is installed; prints the comparison of all methods.

    \b
    attemper demo
    attemper demo -o somewhere
    """  # noqa: D301 (click wants the control character)
    folder = Path(output)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FileError(f"{folder}: cannot be made: {error.strerror or error}") from None
    data = datasets.load(seed=seed)
    val = Scores.from_logits(data.val_logits, data.val_labels)
    test = Scores.from_logits(data.test_logits, data.test_labels)
    for name, scores in (("val", val), ("test", test)):
        arrays: dict[str, Any] = {"logits": scores.values, "labels": scores.labels, "class_names": data.class_names}
        with atomic(folder / f"{name}.npz") as stream:
            np.savez_compressed(stream, **arrays)
    result = _compared(val, test, None, False, 0.95, seed)
    calibrator = METHODS["bayes"].for_labels(noisy=False).fit(val)
    calibrator.save(folder / "attemper.json")
    probs = calibrator.predict_proba(data.test_logits)
    write_probs(
        folder / "probabilities.csv",
        [ProbRows(probs, data.test_labels, probs.argmax(axis=1))],
        classes=data.class_names,
    )
    written = ["val.npz", "test.npz", "attemper.json", "probabilities.csv"]
    try:
        from attemper import plots

        plots.save_before_and_after(folder / "reliability.png", test, calibrator)
        written.append("reliability.png")
    except AttemperError as error:
        err.print(f"no picture: {error}", markup=False)
    if as_json:
        _print_json(_comparison_json(result) | {"folder": str(folder), "files": written})
        return
    c = data.config
    out.print(
        f"{c['arch']} on {c['dataset']} lesions (HAM10000), {len(data.class_names)} classes: fitted on {len(val)} "
        f"samples, judged on {len(test)} others.\n",
        markup=False,
    )
    _print_comparison(result, 0.95)
    out.print(f"\nWrote to {folder}/: {', '.join(written)}", markup=False)
    out.print("Now with your own data: attemper compare val.npz test.npz", markup=False)


# How the commands do it.


def _class_names(told: str | None) -> list[str] | None:
    if told is None:
        return None
    if "," in told:
        return [name.strip() for name in told.split(",")]
    try:
        lines = Path(told).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise FileError(f"--classes {told}: neither a list such as cat,dog nor a readable file: {error}") from None
    return [line.strip() for line in lines if line.strip()]


def _check_writable(path: str, inputs: Sequence[str] = ()) -> None:
    """Say before the work, not after it, that there is no such folder, or that an input would be lost."""
    target = Path(path)
    try:
        is_folder, there_is_a_folder = target.is_dir(), target.parent.is_dir()
        loses = bool(inputs) and target.exists() and any(target.samefile(f) for f in expanded(inputs) if f.exists())
    except OSError as error:  # such as a name that is too long
        raise FileError(f"{error.filename}: {error.strerror}") from None
    if not there_is_a_folder:
        raise FileError(f"{path}: the folder {target.parent} does not exist")
    if is_folder:
        raise FileError(f"{path or repr(path)}: a folder; give the name of a file to write")
    if loses:
        raise FileError(f"{path}: is one of the inputs, which would be lost; give -o another name")


@contextmanager
def _bar(total: int | None) -> Iterator[tuple[Progress, Any]]:
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=err, transient=True, disable=not err.is_terminal) as progress:
        yield progress, progress.add_task("", total=total)


def _progress(files: ScoreFiles, what: str) -> Iterator[Scores]:
    with _bar(files.n_rows) as (progress, task):
        progress.update(task, description=what)
        for piece in files:
            yield piece
            progress.advance(task, len(piece))


def _sketch_of(inputs: Sequence[str], read: dict[str, Any], **settings: Any) -> Sketch:
    sketches = [path for path in inputs if path.endswith(".json")]
    if len(sketches) == len(inputs):
        _reject_reading_options(sketches[0], read)
        return _merged(inputs)
    if sketches:
        raise InputError(
            f"{sketches[0]}: a sketch cannot be mixed with files of logits; make sketches of them with "
            "`attemper sketch` and give sketches alone"
        )
    total: Sketch | None = None
    for piece in _progress(open_scores(inputs, **read), "reading"):
        part = Sketch.of(piece, **settings)
        total = part if total is None else total + part
    assert total is not None  # open_scores rejects empty input
    return total


def _reject_reading_options(path: str, read: dict[str, Any]) -> None:
    """Refuse what says how to read logits: a sketch holds none. --probs and --classes go into the map."""
    for name in ("logits_key", "labels", "labels_key", "weights_key", "floor"):
        if read[name] is not None:
            option = "--" + name.replace("_", "-")
            raise InputError(f"{path}: a sketch holds no logits or labels any more; give {option} to `attemper sketch`")


def _merged(paths: Sequence[str]) -> Sketch:
    total: Sketch | None = None
    for path in expanded(paths):
        part = Sketch.load(path)
        try:
            total = part if total is None else total + part
        except InputError as error:
            raise InputError(f"{path}: {error}") from None
    assert total is not None
    return total


def _say_sketch(made: Sketch, output: str, as_json: bool) -> None:
    size = Path(output).stat().st_size
    if as_json:
        _print_json({"n_samples": made.n_samples, "n_classes": made.n_classes, "bytes": size, "output": output})
    else:
        out.print(
            f"{made.n_samples} samples, {made.n_classes} classes: wrote {output}, {size / 1024:.0f} KiB",
            markup=False,
        )


def _compared(
    val: Scores, test: Scores, methods: Sequence[str] | None, noisy: bool, interval: float, seed: int
) -> Comparison:
    with _bar(1 + len(methods or METHODS)) as (progress, task):

        def tick(method: str) -> None:
            progress.update(task, description=f"fitting and judging {method}", advance=1)

        return compare(val, test, methods, noisy=noisy, interval=interval, seed=seed, tick=tick)


SHOWN = {"accuracy": "accuracy", "nll": "NLL", "brier": "Brier", "ece": "ECE"}


def _print_comparison(result: Comparison, interval: float) -> None:
    table = Table(caption=f"on the test set, with {interval:.0%} bootstrap intervals", caption_justify="left")
    table.add_column("method")
    for title in SHOWN.values():
        table.add_column(title, justify="right")
    table.add_column("T", justify="right")
    table.add_column("fit time", justify="right")
    for row in result.rows:
        name = "uncalibrated" if row.method == "none" else row.method
        if row.metrics is None:
            table.add_row(name, Text(f"failed: {row.failure}"))
            continue
        t = "" if row.temperature is None else f"{row.temperature:.3f}"
        fit_time = "" if row.temperature is None else f"{1e3 * row.seconds:.1f} ms"
        table.add_row(name, *(_number(row.metrics[m]) for m in SHOWN), t, fit_time)
    out.print(table)
    for row in result.rows:
        for note in row.notes:
            err.print(f"warning: {note}", markup=False)
    out.print(result.reason, markup=False)


def _comparison_json(result: Comparison) -> dict[str, Any]:
    rows = [
        {
            "method": row.method,
            "temperature": row.temperature,
            "seconds": row.seconds,
            "metrics": None if row.metrics is None else _plain(row.metrics),
            "notes": list(row.notes),
            "failure": row.failure or None,
        }
        for row in result.rows
    ]
    return {"rows": rows, "recommended": result.recommended, "reason": result.reason}


def _number(value: float | Estimate) -> str:
    if isinstance(value, Estimate):
        return f"{value.value:.4f} ({value.low:.4f}–{value.high:.4f})"
    return f"{value:.4f}"


def _plain(metrics: dict[str, float | Estimate]) -> dict[str, Any]:
    return {k: v._asdict() if isinstance(v, Estimate) else v for k, v in metrics.items()}


def _print_json(content: dict[str, Any]) -> None:
    def finite(value: Any) -> Any:
        if isinstance(value, dict):
            return {k: finite(v) for k, v in value.items()}
        if isinstance(value, list | tuple):
            return [finite(v) for v in value]
        if isinstance(value, float) and not np.isfinite(value):
            return str(value)  # JSON has no infinity
        return value

    sys.stdout.write(json.dumps(finite(content), indent=2) + "\n")
