"""`attemper check`: what a file of scores holds, and what is odd about it."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import click
import numpy as np
from click.core import ParameterSource

from attemper.cli.commands import cli
from attemper.cli.inputs import read_files
from attemper.cli.options import SPEC_OPTIONS, files_argument, reading
from attemper.cli.output import compact, out, print_json
from attemper.cli.progress import shown_progress
from attemper.data.plausibility import warn_of_chance
from attemper.errors import AttemperError, collected_warnings
from attemper.io import InputSpec, ScoreFiles
from attemper.io.survey import Survey

CODES = {"note": 0, "warning": 1, "error": 2}  # exit codes
MOST_LISTED = 12  # classes
FEW = 100  # samples below which even one temperature is uncertain
BETTER, HALF = 0.2, 0.5  # accuracy that another reading of the labels must gain, and reach


class Finding(NamedTuple):
    """Something about a file that is worth knowing; an error is what other commands refuse.

    Where the file is read in another way than it is meant, ``fix`` has the options that read it right; None where no
    option does.
    """

    level: str  # note, warning, error
    code: str
    message: str
    fix: tuple[str, ...] | None = ()


@cli.command(section="First steps")
@files_argument
@reading()
def check(inputs: Sequence[str], spec: InputSpec, as_json: bool) -> int:
    """Check files of logits or probabilities: what they hold, and whether anything is wrong.

    The command reports shape and type, whether the numbers look like logits or probabilities, accuracy, class counts,
    constant columns, NaN, masks and zeros, and labels that are off by one or agree no more often than
    by chance. It reads files in pieces and writes nothing.

    Exit code 0: no problem; 1: a warning; 2: an error, which other commands would report too.

    \b
    attemper check val.npz
    attemper check 'shards/*.parquet' --labels-key target
    attemper check probs.csv --probs --json
    """  # noqa: D301 (click wants the control character)
    files = opened(inputs, spec)
    with shown_progress("checking") as progress:
        survey = Survey.of(files, progress)
    named = files.spec.class_names or (None if files.one_column else files.columns)
    names = list(named or map(str, range(survey.n_classes)))
    findings = sorted(findings_of(survey, files, named), key=lambda found: -CODES[found.level])
    code = max((CODES[found.level] for found in findings), default=0)
    following = next_command(inputs, survey, findings)
    if as_json:
        print_json(as_dict(inputs, survey, files.spec, findings) | {"next": following, "exit_code": code})
    else:
        print_survey(inputs, survey, files.spec, names)
        for found in findings:
            out.print(f"{found.level}: {found.message}")
        if not findings:
            out.print("nothing odd was found")
        if following:
            out.print(f"next: {following}")
    return code


def opened(inputs: Sequence[str], spec: InputSpec) -> ScoreFiles:
    """Open the files; without labels where there are none, and no option names them."""
    try:
        return read_files(inputs, spec)
    except AttemperError as error:
        if {"labels", "labels_key", "weights_key", "classes"} & spec.non_defaults().keys():
            raise
        try:
            return read_files(inputs, spec.updated(need_labels=False))
        except AttemperError:
            raise error from None


def findings_of(s: Survey, files: ScoreFiles, names: Sequence[str] | None) -> Iterator[Finding]:
    """Report what is odd: first about the numbers, then about the labels."""
    if s.n == 0:
        yield Finding("error", "no_rows", "no row counts; there is nothing to fit", None)
        return
    yield from of_numbers(s, files)
    if s.label_problem:
        yield Finding("error", "labels_unreadable", s.label_problem, None)
    elif s.labelled:
        yield from of_labels(s, files, names)
    else:
        yield Finding("note", "no_labels", "there are no labels: a map can be applied, but not fitted or evaluated")


def of_numbers(s: Survey, files: ScoreFiles) -> Iterator[Finding]:
    """Report what is odd about the numbers themselves."""
    spec = files.spec
    if s.n_nan or s.n_infinite:
        where = f"the first in {s.first_bad}"
        yield Finding("error", "not_finite", f"{s.n_nan} NaN and {s.n_infinite} +inf among the numbers, {where}", None)
    if s.n_empty:
        yield Finding("error", "empty_rows", f"{s.n_empty} rows have nothing but masks (-inf)", None)
    if spec.probs and s.kind != "probabilities":
        what = f"read as probabilities, but rows sum to {s.lowest_sum:.4g} to {s.highest_sum:.4g}, and numbers are "
        what += f"{s.low:.4g} to {s.high:.4g}; leave out --probs for logits"
        yield Finding("error", "not_probabilities", what, None)
    if not spec.probs and s.kind == "probabilities":
        text = "the numbers look like probabilities (each row sums to 1), but are read as logits; use --probs"
        if s.one_column:
            text = "all numbers are from 0 to 1: they look like probabilities of the second class, but are read as "
            text += "logits; use --probs"
        fix: tuple[str, ...] = ("--probs",)
        if spec.logits_key is None and spec.columns is None and files.readers[0].path.suffix != ".npy":
            fix += ("--logits-key", spec.values_key if files.columns is None else "logit_")  # they keep their names
        yield Finding("warning", "looks_like_probabilities", text, fix)
    if not spec.probs and s.kind == "shares":
        text = "all numbers are from 0 to 1, but rows do not sum to 1: scores of independent labels (--multi-label)?"
        if s.one_column:
            text = "all numbers are 0 or 1: predictions of a class are neither logits nor probabilities"
        yield Finding("warning", "looks_like_shares", text, None)
    if spec.probs and s.n_zero:
        level = "note" if spec.zeros_as is not None else "warning"
        text = f"{s.n_zero} probabilities are exactly 0; use --zeros-as, such as 1e-8, unless they are impossible"
        yield Finding(level, "zeros", text)
    if s.n_masked and not spec.probs:
        yield Finding("note", "masks", f"{s.n_masked} logits are -inf: classes that are impossible in their row")
    if len(s.constant_columns):
        which = ", ".join(map(str, s.constant_columns[:MOST_LISTED].tolist()))
        text = f"{len(s.constant_columns)} columns hold one number alone: {which}; is each column a class?"
        yield Finding("warning", "constant_columns", text)
    if s.n < FEW:
        yield Finding("note", "few_samples", f"{s.n} samples are few: intervals will be wide")


def of_labels(s: Survey, files: ScoreFiles, names: Sequence[str] | None) -> Iterator[Finding]:
    """Report what is odd about the labels."""
    spec = files.spec
    shifted = max((-1, 1), key=lambda shift: s.agreeing[shift])
    now, then = (s.agreeing[shift] / s.labelled for shift in (0, shifted))
    one_based = s.label_low == 1 and s.label_high == s.n_classes
    off_by_one = one_based or (then > now + BETTER and then > HALF)
    if off_by_one:
        at = f"accuracy is {now:.1%}, and {then:.1%} with {shifted:+d} added to the labels"
        ranges = f"labels are {s.label_low:g} to {s.label_high:g} for the columns 0 to {s.n_classes - 1}"
        text = f"labels seem to be off by one: {ranges}; {at}"
        fix = None
        if one_based:
            fix = ("--classes", ",".join(map(str, range(1, s.n_classes + 1)))) if s.n_classes <= MOST_LISTED else None
            text += f". Use {' '.join(fix)}." if fix else ". Use --classes with the labels in column order."
        yield Finding("error" if s.n_outside else "warning", "off_by_one", text, fix)
    elif s.n_outside:
        row, label = s.first_outside or ("row 0", "")
        shown = "none of the classes" if spec.class_names else f"{label}; columns are 0 to {s.n_classes - 1}"
        text = f"{s.n_outside} labels are no column: the first in {row} is {shown}"
        text += ". Use --ignore-index for labels that do not count."
        yield Finding("error", "labels_outside", text, None)
    if s.n_impossible:
        what = "the probability 0; use --zeros-as" if spec.probs else "a masked class (-inf)"
        allowed = spec.probs and spec.zeros_as is not None
        text = f"{s.n_impossible} labels have {what}"
        yield Finding("note" if allowed else "error", "impossible_labels", text, () if allowed else None)
    inside = int(s.counts.sum())
    if inside and not off_by_one:
        yield from of_agreement(s, files, inside)
    missing = np.flatnonzero(s.counts == 0)
    if inside and len(missing):
        which = ", ".join(repr(names[k]) if names else str(k) for k in missing[:MOST_LISTED].tolist())
        which += ", …" if len(missing) > MOST_LISTED else ""
        how_many = "1 class has" if len(missing) == 1 else f"{len(missing)} classes have"
        yield Finding("note", "classes_without_samples", f"{how_many} no samples: {which}")


def of_agreement(s: Survey, files: ScoreFiles, inside: int) -> Iterator[Finding]:
    """Report labels that agree with the predictions by chance, or always."""
    correct = s.agreeing[0] / inside
    counts, predicted = s.counts.astype(float), s.predicted.astype(float)
    if s.one_column and s.kind == "probabilities" and not files.spec.probs:
        return  # predictions mean nothing: all log-odds are those of the second class
    if correct + 2 * math.sqrt(correct * (1 - correct) / inside) < counts.max() / inside:
        text = f"accuracy {correct:.1%} is below the share of the most frequent label, {counts.max() / inside:.1%}"
        yield Finding("note", "below_most_frequent", f"{text}; check the columns, unless classes were weighted")
    if s.agreeing[0] == s.labelled and s.labelled >= FEW:
        text = "every label is the arg max of its row: are the labels the predictions, or these the training samples?"
        yield Finding("warning", "all_correct", text)
    with collected_warnings() as found:
        warn_of_chance(correct, counts, predicted, inside)
    for warning in found:
        yield Finding("warning", "chance_accuracy", str(warning), None)


def next_command(inputs: Sequence[str], s: Survey, findings: Sequence[Finding]) -> str | None:
    """Recommend what to run next, with the options of reading that were given; None where no option is a remedy."""
    context = click.get_current_context()
    given = []
    for parameter in context.command.params:
        source = context.get_parameter_source(parameter.name or "")
        if parameter.name in SPEC_OPTIONS and source is ParameterSource.COMMANDLINE:
            value = context.params[parameter.name]
            flag = next(name for name in parameter.opts if name.startswith("--"))
            values = value if isinstance(value, tuple) else (value,)
            given += [flag] if value is True else [part for each in values for part in (flag, shlex.quote(str(each)))]
    paths = " ".join(map(shlex.quote, inputs))
    fixes = [found.fix for found in findings]
    if None in fixes:
        return None
    given += [part for fix in fixes for part in fix or ()]
    if not s.labelled and not s.label_problem:
        return " ".join(["attemper apply MAP", paths, *given, "-o probabilities.npz"])
    return " ".join(["attemper fit", paths, *given])


def print_survey(inputs: Sequence[str], s: Survey, spec: InputSpec, names: Sequence[str]) -> None:
    """Print what the files hold."""
    read_as = "probabilities" if spec.probs else "logits"
    out.print(f"{', '.join(inputs)}: {s.n} samples, {s.n_classes} classes, {s.dtype}, read as {read_as}")
    if s.n == 0:
        return
    sums = f"rows sum to {s.lowest_sum:.4g} to {s.highest_sum:.4g}"
    out.print(f"  numbers {s.low:.4g} to {s.high:.4g}, {sums}: they look like {LOOKS.get(s.kind, s.kind)}")
    if not s.labelled:
        return
    seen = int((s.counts > 0).sum())
    out.print(
        f"  labels {s.label_low:g} to {s.label_high:g}, {seen} of {s.n_classes} classes; accuracy {s.accuracy:.4f}"
    )
    table = compact("class", "samples", "share", "predicted")
    order = np.argsort(-s.counts, kind="stable")
    shown = range(s.n_classes) if s.n_classes <= MOST_LISTED else order[: MOST_LISTED // 2]
    for k in shown:
        table.add_row(names[k], f"{s.counts[k]}", f"{s.counts[k] / s.labelled:.1%}", f"{s.predicted[k]}")
    if s.n_classes > MOST_LISTED:
        rest = order[MOST_LISTED // 2 :]
        count = int(s.counts[rest].sum())
        label = f"{len(rest)} others, {s.counts[rest].min()} to {s.counts[rest].max()} each"
        table.add_row(label, f"{count}", f"{count / s.labelled:.1%}", f"{s.predicted[rest].sum()}")
    out.print(table)


LOOKS = {
    "log-probabilities": "log-probabilities, which are logits",
    "shares": "neither logits nor probabilities of one label",
}


def as_dict(inputs: Sequence[str], s: Survey, spec: InputSpec, findings: Sequence[Finding]) -> dict[str, Any]:
    """Return the same as plain values."""
    labels = None
    if s.labelled:
        labels = {
            "low": s.label_low if np.isfinite(s.label_low) else None,
            "high": s.label_high if np.isfinite(s.label_high) else None,
            "n_outside": s.n_outside,
            "counts": s.counts.tolist(),
            "predicted": s.predicted.tolist(),
            "without_samples": np.flatnonzero(s.counts == 0).tolist(),
        }
    return {
        "files": list(inputs),
        "input": spec.input,
        "looks_like": s.kind,
        "n_samples": s.n,
        "n_classes": s.n_classes,
        "dtype": s.dtype or None,
        "numbers": {
            "low": s.low if np.isfinite(s.low) else None,
            "high": s.high if np.isfinite(s.high) else None,
            "sums": [s.lowest_sum, s.highest_sum] if np.isfinite(s.lowest_sum) else None,
            "n_nan": s.n_nan,
            "n_infinite": s.n_infinite,
            "n_masked": s.n_masked,
            "n_zero": s.n_zero,
            "constant_columns": s.constant_columns.tolist(),
        },
        "labels": labels,
        "accuracy": s.accuracy,
        "findings": [{"level": f.level, "code": f.code, "message": f.message} for f in findings],
    }
