"""`check`: what data hold, what is odd about them, and the next command."""

from __future__ import annotations

import html
import os
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Unpack

import numpy as np

from attemper.data.arrays import row_slices, to_numpy
from attemper.data.doubts import warn_of_doubts
from attemper.data.reading import Read, is_paths, read
from attemper.data.scores import Scores
from attemper.errors import AttemperError, collected_warnings

FEW = 50  # labels
RARE = 5  # labels of a class


@dataclass(frozen=True)
class Finding:
    """Something odd, and what to do about it."""

    level: Literal["error", "warning", "note"]
    message: str
    fix: str = ""


@dataclass(frozen=True)
class Findings:
    """What `check` found; it is true where nothing is wrong."""

    holds: dict[str, Any]
    findings: tuple[Finding, ...]
    next: str  # command; "" where something must be changed first

    def __bool__(self) -> bool:
        return not any(finding.level != "note" for finding in self.findings)

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain numbers, text and lists."""
        return {"holds": self.holds, "findings": [vars(finding) for finding in self.findings], "next": self.next}

    def __str__(self) -> str:
        lines = [f"{name}: {_shown(value)}" for name, value in self.holds.items()]
        lines += [f"{f.level}: {f.message}{f' {f.fix}' if f.fix else ''}" for f in self.findings]
        lines += [] if self.findings else ["nothing odd"]
        return "\n".join([*lines, f"next: {self.next}"] if self.next else lines)

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(str(self))}</pre>"


def check(data: Any, labels: Any = None, **options: Unpack[Read]) -> Findings:
    """Describe data, and look for what is odd: nothing is fitted, and no error is raised for bad data.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> h = 3 * rng.normal(size=(200, 3))
    >>> found = check(h, h.argmax(axis=1))
    >>> found.holds["rows"], found.holds["accuracy"]
    (200, 1.0)
    """
    found: list[Finding] = []
    try:
        with collected_warnings():  # they are among the findings, each with its fix
            scores = read(data, labels, **options)
    except AttemperError as error:
        message, dot, fix = str(error).partition(". ")
        return Findings({}, (Finding("error", message + dot.strip(), fix),), "")
    warn_of_doubts(scores, lambda message, fix, _: found.append(Finding("warning", f"{message}.", fix)))
    holds = describe(scores)
    ready = scores.labels is not None and not found
    after = _command("fit", data, labels, options) if ready else ""
    return Findings(holds, (*found, *_oddities(scores, holds.get("accuracy"))), after)


def describe(scores: Scores) -> dict[str, Any]:
    """Return what the data hold: counts, classes, accuracy and mean confidence."""
    k = scores.n_classes
    holds: dict[str, Any] = {"rows": scores.n_samples, "classes": k, "input": scores.input}
    if scores.classes is not None:
        holds["names"] = [str(name) for name in scores.classes]
    if scores.labels is not None and not scores.multi_label:
        counts = np.round(np.bincount(scores.labels, scores.w, minlength=k), 6)
        holds["labels of each class"] = counts.tolist() if k <= 20 else f"{np.count_nonzero(counts)} of {k} classes"
        top, right = _tops(scores)
        holds |= {"accuracy": right, "mean confidence": top}
    for name in ("clusters", "groups"):
        ids = getattr(scores, name)
        if ids is not None:
            holds[name] = len(np.unique(ids))
    return holds


def _tops(scores: Scores) -> tuple[float, float]:
    confidence = right = 0.0
    for part in row_slices(*scores.shape):
        h, y, w = scores.chunk(part, np.float64)
        w = np.ones(len(y)) if w is None else w
        confidence += float(w @ (1 / np.exp(h - h.max(axis=1, keepdims=True)).sum(axis=1)))
        right += float(w @ (h.argmax(axis=1) == y))
    return confidence / scores.total_weight, right / scores.total_weight


def _oddities(scores: Scores, right: float | None) -> Iterator[Finding]:
    n, k = scores.shape
    if scores.labels is None:
        yield Finding("note", "there are no labels.", "Use labels=… to fit.")
        return
    if scores.multi_label:
        return
    counts = np.bincount(scores.labels, minlength=k)
    if n < FEW:
        yield Finding("warning", f"{n} labels are few.", "Use bayes, and expect wide intervals.")
    rare = np.flatnonzero(counts < RARE)
    if rare.size and k <= n:
        names = [str(j) if scores.classes is None else str(scores.classes[j]) for j in rare[:8].tolist()]
        more = "" if len(rare) <= 8 else f" and {len(rare) - 8} more"
        yield Finding(
            "note",
            f"fewer than {RARE} labels of {', '.join(names)}{more}.",
            "bayes does not need them.",
        )
    if right == 1.0:
        yield Finding(
            "warning", "every prediction is right, so no temperature is finite.", "Use samples not trained on."
        )
    if scores.input == "probs":
        zeros = sum(int((to_numpy(scores.raw(part)) == 0).sum()) for part in row_slices(n, k))
        if zeros:
            yield Finding("note", f"{zeros / (n * k):.1%} of the probabilities are 0; read as {scores.zeros_as:.3g}.")


def _command(verb: str, data: Any, labels: Any, options: Read) -> str:
    """Return the next command, with the options of this one."""
    given: dict[str, Any] = {"labels": labels, **options}
    given = {name: value for name, value in given.items() if value is not None and value is not False}
    if not is_paths(data):
        texts = [f"{n}={v!r}" if isinstance(v, str | int | float) else f"{n}={n}" for n, v in given.items()]
        return f"attemper.{verb}({', '.join(['data', *texts])})"
    words = ["attemper", verb, *map(str, [data] if isinstance(data, str | os.PathLike) else data)]
    end = " -o net.attemper.json" if verb == "fit" else ""
    return " ".join([*map(shlex.quote, words), *([flags] if (flags := flags_of(given)) else [])]) + end


def flags_of(options: Mapping[str, Any]) -> str:
    """Write options of `read` as flags of a command."""
    words: list[str] = []
    for name, value in options.items():
        several = value if isinstance(value, list | tuple) else [value]
        text = ",".join(f'"{each}"' if "," in str(each) and value is several else str(each) for each in several)
        words += [f"--{name.replace('_', '-')}", *([] if value is True else [text])]
    return " ".join(map(shlex.quote, words))


def _shown(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4f}"
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
