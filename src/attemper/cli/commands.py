"""The commands."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click
import numpy as np
from rich.table import Table
from rich.text import Text

import attemper
from attemper.calibrators import METHODS, Calibrator, Provenance
from attemper.calibrators.streaming import StreamingCalibrator
from attemper.cli.inputs import (
    Fitted,
    are_sketches,
    bar,
    kept_beside,
    load_pair,
    progress,
    read_files,
    sketch_of,
    workers_held,
)
from attemper.cli.options import (
    INPUT,
    OUTPUT,
    Commands,
    check_noise,
    files_argument,
    interval_option,
    map_argument,
    noise_option,
    noisy_option,
    param_option,
    parameters,
    reading,
    seed_option,
    spreading,
    t_range_option,
    test_argument,
    val_argument,
    with_debug,
    with_json,
    with_val,
)
from attemper.cli.output import (
    by_chance,
    comparison_json,
    number,
    out,
    plain,
    print_comparison,
    print_json,
    print_reasons,
)
from attemper.comparison import Comparison, compare
from attemper.engines import forget
from attemper.errors import InputError, naming_flags
from attemper.files import ProbRows, expanded, write_probs
from attemper.maps import ScaleMap
from attemper.metrics import evaluate, nll
from attemper.scores import Scores
from attemper.sketch import Sketch

__all__ = ["cli"]


@click.group(
    cls=Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Start with: attemper demo. Each command has a --help that explains it.",
)
@click.version_option(attemper.__version__, prog_name="attemper")
def cli() -> None:
    """Make a classifier's confidence mean what it says.

    Give attemper the logits and labels of a validation set; it fits a small map that turns logits into
    calibrated probabilities, and shows what changed. By default the answers of the classifier stay as they are.
    """
    click.get_current_context().with_resource(naming_flags())


@cli.command()
@files_argument
@click.option(
    "--method",
    type=click.Choice(list(METHODS)),
    default="bayes",
    show_default=True,
    help="bayes: one temperature, for few or noisy labels. structured: class structure besides, for more than a few "
    "hundred. ts, ats: temperature scaling, attended. The others are there to compare with: `attemper methods`.",
)
@click.option(
    "-o", "--output", type=OUTPUT, default="attemper.json", show_default=True, help="Where to write the fitted map."
)
@noisy_option
@noise_option
@param_option
@click.option("--theta", type=float, help="ats: use this θ instead of tuning it.")
@click.option("--loss", type=click.Choice(["paper", "reference"]), help="ats: Eq. 8, or the authors' code.")
@t_range_option
@reading()
@spreading
@with_json
@with_debug
def fit(
    inputs: Sequence[str],
    method: str,
    output: str,
    noisy: bool,
    noise: str | None,
    params: Sequence[str],
    theta: float | None,
    loss: str | None,
    t_range: tuple[float, float] | None,
    read: dict[str, Any],
    spread: dict[str, Any],
    as_json: bool,
) -> None:
    """Fit a calibration map on validation data.

    INPUT is one file or several that are one data set (or a pattern in quotes): .npz, .npy with --labels,
    .csv, .safetensors, .parquet; or sketches (.json) that `attemper sketch` wrote. For ts, ats and bayes files
    are read in chunks, several at a time with --workers or on a cluster; other methods need all logits in memory.
    What several workers find is the same to the last bit. When a file fails, the work on the others is kept: mend it
    and say --resume.

    \b
    attemper fit val.npz
    attemper fit val.npz --noisy -o net.attemper.json
    attemper fit val.npz --method structured --noisy
    attemper fit val.npz --method vector -p l2=0.01
    attemper fit logits.npy --labels labels.npy --method ts
    attemper fit 'shards/*.parquet' --labels-key target
    attemper fit 'shards/*.parquet' --method ats --workers 4 --retries 2
    attemper fit 'shards/*.parquet' --resume
    attemper fit 'shards/*.parquet' --engine dask --scheduler tcp://127.0.0.1:8786
    """  # noqa: D301 (click wants the control character)
    if (theta is not None or loss is not None) and method != "ats":
        raise InputError("--theta and --loss belong to --method ats")
    cls = METHODS[method]
    check_noise(noisy, noise)
    if noisy and not cls.knows_noise():
        able = ", ".join(name for name, m in METHODS.items() if m.knows_noise())
        raise InputError(f"--noisy belongs to the methods {able}; {method} takes every label for right")
    given = parameters(params, cls) | ({"theta": theta, "loss": loss or "paper"} if method == "ats" else {})
    calibrator = cls.for_labels(noisy=noisy, noise=noise, **given, classes=read["classes"])
    calibrator.set_params(input="probs" if read["probs"] else "logits", floor=read["floor"])
    if t_range is not None:
        if "t_range" not in cls.own_params():
            raise InputError(f"--t-range: {method} knows no range of temperatures")
        calibrator.set_params(t_range=t_range)
    summary = fit_files(calibrator, inputs, read, spread, output, t_range=t_range)
    calibrator.save(output, provenance=Provenance.now([*inputs, *dict.fromkeys(read["labels"] or ())]))
    forget(kept_beside(output))
    report = calibrator.fit_report_
    summary = calibrator.summary() | {
        "method": method,
        **summary,
        "nll": report.nll,
        "converged": report.converged,
        "error": report.error,
        "gradient_norm": report.gradient_norm,
        "message": report.message,
        "output": output,
    }
    if as_json:
        print_json(summary)
        return
    out.print(f"{summary['n_samples']} samples, {summary['n_classes']} classes, method {method}", markup=False)
    for line in calibrator.describe():
        out.print(f"  {line}", markup=False)
    before = summary["nll_uncalibrated"]
    out.print(f"  validation NLL {'' if before is None else f'{before:.4f} → '}{report.nll:.4f}", markup=False)
    out.print(f"  {report.message}", markup=False)
    out.print(f"wrote {output}", markup=False)


@cli.command()
@map_argument
@files_argument
@click.option(
    "-o", "--output", type=OUTPUT, required=True, help="Where to write: .npz, .npy, .csv, .safetensors or .parquet."
)
@reading(weights=False, labels=False)
@with_json
@with_debug
def apply(map_file: str, inputs: Sequence[str], output: str, read: dict[str, Any], as_json: bool) -> None:
    """Turn logits into calibrated probabilities with a fitted MAP.

    \b
    attemper apply attemper.json new.npz -o probabilities.npz
    attemper apply attemper.json 'day/*.parquet' -o day.parquet --labels-key target
    """  # noqa: D301 (click wants the control character)
    fitted = Fitted.load(map_file)
    calibrator = fitted.calibrator
    files = read_files(inputs, read, fitted, need_labels=False)
    count = 0

    def rows() -> Iterator[ProbRows]:
        nonlocal count
        for piece in progress(files, "applying"):
            count += len(piece)
            probs = calibrator.map_.apply(piece.logits, dtype=piece.dtype)
            yield ProbRows(probs, piece.labels, probs.argmax(axis=1))

    write_probs(output, rows(), classes=calibrator.classes)
    if as_json:
        print_json({"rows": count, "output": output})
    else:
        out.print(f"wrote {count} rows to {output}", markup=False)


@cli.command(name="evaluate")
@files_argument
@click.option("--map", "map_file", type=INPUT, metavar="MAP", help="Also show the figures after this fitted map.")
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

    Accuracy, NLL, Brier score, ECE (15 bins of equal width; of equal mass; class-wise), MCE and MMCE. Next to a
    calibration error: what perfect calibration would show by chance, and p, the share of its draws that reach it.
    With fewer than 20 errors only the accuracy has an interval.

    \b
    attemper evaluate test.npz
    attemper evaluate test.npz --map attemper.json
    """  # noqa: D301 (click wants the control character)
    fitted = None if map_file is None else Fitted.load(map_file)
    scores = read_files(inputs, read, fitted).load()
    maps: dict[str, Any] = {"as given": ScaleMap(1.0)}
    if fitted is not None:
        fitted.warn_of(inputs)
        maps[Path(fitted.path).name] = fitted.calibrator.map_
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
        print_json({name: plain(metrics) for name, metrics in found.items()})
        return
    table = Table(title=f"{len(scores)} samples, {scores.n_classes} classes, {interval:.0%} intervals")
    table.add_column("measure")
    for name in found:
        table.add_column(Text(name), justify="right")
        table.add_column("chance", justify="right")
    for measure in next(iter(found.values())):
        table.add_row(measure, *(write(f[measure]) for f in found.values() for write in (number, by_chance)))
    out.print(table)
    print_reasons(found.values())


@cli.command(name="compare")
@val_argument
@test_argument
@click.option(
    "--methods",
    metavar="A,B,…",
    help="Which methods, such as ts,bayes,structured; see `attemper methods` [default: all].",
)
@noisy_option
@noise_option
@interval_option
@seed_option
@reading()
@with_val
@with_json
@with_debug
def compare_(
    val: str,
    test: str,
    methods: str | None,
    noisy: bool,
    noise: str | None,
    interval: float,
    seed: int,
    read: dict[str, Any],
    read_val: dict[str, Any],
    as_json: bool,
) -> None:
    """Fit every method on VAL, judge it on TEST, and say which to use.

    \b
    attemper compare val.npz test.npz
    attemper compare net.npz net.npz --val-logits-key val_logits --val-labels-key val_labels
    """  # noqa: D301 (click wants the control character)
    check_noise(noisy, noise)
    scores, judged, _ = load_pair(val, test, read_val, read)
    result = compared(
        scores,
        judged,
        [m.strip() for m in methods.split(",")] if methods is not None else None,
        noisy=noisy,
        noise=noise,
        interval=interval,
        seed=seed,
    )
    if as_json:
        print_json(comparison_json(result))
    else:
        print_comparison(result, interval)


@cli.command()
@with_json
@with_debug
def methods(as_json: bool) -> None:
    """List the methods, and what each does.

    \b
    attemper methods
    """  # noqa: D301 (click wants the control character)
    about = {name: (inspect.getdoc(cls) or "").partition("\n")[0] for name, cls in METHODS.items()}
    if as_json:
        print_json(
            {n: {"class": cls.__name__, "does": about[n], "parameters": cls.own_params()} for n, cls in METHODS.items()}
        )
        return
    table = Table()
    for column in ("method", "in Python", "what it does"):
        table.add_column(column)
    for name, cls in METHODS.items():
        table.add_row(name, cls.__name__, Text(about[name]))
    out.print(table)


def fit_files(
    calibrator: Calibrator,
    inputs: Sequence[str],
    read: dict[str, Any],
    spread: dict[str, Any],
    output: str,
    *,
    t_range: tuple[float, float] | None,
) -> dict[str, Any]:
    """Fit from a sketch where that is enough, else from all logits; return what the data are."""
    if calibrator.sketch_parts() is None:
        if any(path.endswith(".json") for path in inputs):
            raise InputError(f"{calibrator.method} cannot be fitted from a sketch: it needs the logits themselves")
        if spread:
            raise InputError(
                f"--{next(iter(spread))}: {calibrator.method} cannot be fitted from sketches of files: it needs the "
                "logits themselves, all in one place. ts, ats and bayes can."
            )
        scores = read_files(inputs, read).load()
        with bar(None) as (progress, task):
            progress.update(task, description=f"fitting {calibrator.method}")
            calibrator.fit(scores)
        before = ScaleMap(1.0).log_apply(scores.logits.astype(np.float64))
        return {
            "n_samples": len(scores),
            "n_classes": scores.n_classes,
            "n_shards": len(expanded(inputs)),
            "nll_uncalibrated": nll(before, scores.labels, log_probs=True, sample_weight=scores.weights),
        }
    assert isinstance(calibrator, StreamingCalibrator)
    made: list[tuple[Sketch, int]] = []

    def sketch_with(**settings: Any) -> Sketch:
        made.append(sketch_of(inputs, read, spread, output, **settings))
        return made[-1][0]

    if are_sketches(inputs):
        sketch = sketch_with(t_range=t_range, parts=calibrator.sketch_parts())
        if t_range is None and calibrator.get_params()["t_range"] is not None:
            calibrator.set_params(t_range=sketch.t_range)
        calibrator.fit_sketch(sketch)
    else:
        with workers_held(spread) as spread:
            calibrator.fit_passes(sketch_with)
    sketch, n_shards = made[0]
    return {
        "n_samples": sketch.n_samples,
        "n_classes": sketch.n_classes,
        "n_shards": n_shards,
        "nll_uncalibrated": sketch.mean_nll(1.0) if sketch.t_range[0] <= 1 <= sketch.t_range[1] else None,
    }


def compared(val: Scores, test: Scores, methods: Sequence[str] | None, **settings: Any) -> Comparison:
    with bar(1 + len(methods or METHODS)) as (progress, task):

        def tick(method: str) -> None:
            progress.update(task, description=f"fitting and judging {method}", advance=1)

        return compare(val, test, methods, **settings, tick=tick)
