"""Charts as drawings (SVG): where everything lies. The template draws it; ``report.js`` moves what a slider changes.

A drawing has no size in pixels, so it fits a phone, a screen and paper alike, and needs no script.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from attemper.report.numbers import bare, count, fixed, percent, signed

__all__ = ["SHARES", "Frame", "bar", "coinciding", "curve", "forest", "line", "panels", "reliability_frame", "signed"]

FEW = 20  # predictions; a bar of fewer is paler
SAME = 0.01  # curves closer than this are one line: a hundredth of an axis is about as wide as the line


@dataclass(frozen=True)
class Frame:
    """The part of a drawing that holds data, the values at its ends, and where its axes have ticks."""

    left: float
    top: float
    width: float
    height: float
    x: tuple[float, float] = (0.0, 1.0)
    y: tuple[float, float] = (0.0, 1.0)
    x_ticks: tuple[tuple[float, str], ...] = ()
    y_ticks: tuple[tuple[float, str], ...] = ()

    @property
    def right(self) -> float:
        """The right end."""
        return self.left + self.width

    @property
    def bottom(self) -> float:
        """The lower end."""
        return self.top + self.height

    def at_x(self, value: float) -> float:
        """Return the place of a value from left to right.

        >>> SHARES.at_x(0), SHARES.at_x(1)
        (60.0, 378.0)
        """
        low, high = self.x
        return round(self.left + self.width * (value - low) / (high - low), 1)

    def at_y(self, value: float) -> float:
        """Return the place of a value from the top down."""
        low, high = self.y
        return round(self.top + self.height * (high - value) / (high - low), 1)


FIFTHS = tuple((i / 5, f"{20 * i}\u00a0%") for i in range(6))
UPPER_HALF = tuple((i / 10, f"{10 * i}\u00a0%") for i in range(5, 11))
SHARES = Frame(60, 10, 318, 245, x_ticks=FIFTHS, y_ticks=FIFTHS)


def reliability_frame(n_classes: int) -> Frame:
    """Return the frame of reliability diagrams. Of two classes, the predicted one has at least 50 %.

    >>> [reliability_frame(k).x for k in (2, 3)]
    [(0.5, 1.0), (0.0, 1.0)]
    """
    return SHARES if n_classes > 2 else replace(SHARES, x=(0.5, 1.0), x_ticks=UPPER_HALF)


def bar(place: int, n_bins: int, cell: Sequence[float], frame: Frame = SHARES) -> dict[str, Any] | None:
    """Return how a bin of a reliability diagram is drawn; None where it is empty.

    >>> found = bar(12, 15, [200.0, 0.83, 0.6, 0.53, 0.67])
    >>> found["text"].replace("\u00a0", " "), found["n"], found["few"]
    ('80 to 87 %: 60.0 % of 200 right (53.0 to 67.0), mean confidence 83.0 %', '200', False)
    """
    if not cell[0] > 0:
        return None
    n, confidence, right, low, high = cell
    left, end = (frame.at_x(max(v / n_bins, frame.x[0])) for v in (place, place + 1))
    middle = round((left + end) / 2, 1)
    tops = [frame.at_y(v) for v in (right, confidence)]
    bottom, top = frame.at_y(low), frame.at_y(high)
    edges = " to ".join(percent(i / n_bins, 0) for i in (place, place + 1))
    return {
        "x": round(left + 1, 1),
        "width": round(end - left - 2, 1),
        "right": tops[0],
        "height": round(frame.bottom - tops[0], 1),
        "gap": min(tops),
        "gap_height": round(abs(tops[0] - tops[1]), 1),
        "confidence": tops[1],
        "middle": middle,
        "n": short(n),
        "few": n < FEW,
        "whisker": f"M{middle - 3:.1f},{top}h6M{middle:.1f},{top}V{bottom}M{middle - 3:.1f},{bottom}h6",
        "text": f"{edges}\u00a0%: {percent(right)}\u00a0% of {count(n)} right ({percent(low)} to {percent(high)}), "
        f"mean confidence {percent(confidence)}\u00a0%",
    }


def short(n: float) -> str:
    """Write a number of predictions in at most four signs, which have room below a bar.

    >>> [short(n) for n in (7, 2.25, 412.5, 4321, 12345, 123456, 1.2e6, 2e7)]
    ['7', '2.3', '413', '4.3k', '12k', '123k', '1.2M', '20M']
    """
    for unit, sign in ((1e6, "M"), (1e3, "k")):
        if n >= 0.9995 * unit:
            return fixed(n / unit, 1 if n < 9.95 * unit else 0) + sign
    return fixed(n, 0 if float(n).is_integer() or n >= 99.95 else 1)


def line(points: Sequence[tuple[float, float]], frame: Frame) -> str:
    """Return the points of a line in a frame, without those above it."""
    inside = [(x, y) for x, y in points if y <= frame.y[1] * (1 + 1e-9)]
    places = dict.fromkeys((frame.at_x(x), frame.at_y(y)) for x, y in inside)  # each once
    return " ".join(f"{x:g},{y:g}" for x, y in places)


def panels(temperature: dict[str, Any]) -> list[dict[str, Any]]:
    """Return NLL and ECE at each temperature: two frames, one above the other, and a line in each.

    ``places`` are where the slider puts a dot; None where that is above the frame.
    """
    t = [math.log(value) for value in temperature["values"]]
    found = []
    for key, name, top in (("nll", "NLL", 24.0), ("ece", "ECE in points", 154.0)):
        values = [math.inf if one[key] is None else one[key] for one in temperature["states"]]
        values = [100 * value for value in values] if key == "ece" else values
        known = [value for value in values if math.isfinite(value)] or [1.0]
        highest = min(max(known), 4 * min(known) + 0.1) if key == "nll" else max(known)
        y_ticks = nice_ticks(highest or 1.0)
        frame = Frame(
            *(60, top, 318, 100),
            x=(t[0], t[-1]),
            y=(0.0, max(highest or 1.0, y_ticks[-1][0])),
            x_ticks=log_ticks(temperature["values"][0], temperature["values"][-1]),
            y_ticks=y_ticks,
        )
        places = [(frame.at_x(x), frame.at_y(y)) if y <= frame.y[1] else None for x, y in zip(t, values)]
        points = line([(x, y) for x, y in zip(t, values) if math.isfinite(y)], frame)
        found.append({"key": key, "name": name, "frame": frame, "points": points, "places": places})
    return found


def nice_ticks(highest: float) -> tuple[tuple[float, str], ...]:
    """Return round values from 0 up to about the highest.

    >>> [label for _, label in nice_ticks(2.71)]
    ['0', '1', '2', '3']
    >>> [label for _, label in nice_ticks(0.37)]
    ['0.0', '0.1', '0.2', '0.3', '0.4']
    """
    unit = 10.0 ** math.floor(math.log10(highest))
    step = next(s * unit for s in (0.2, 0.25, 0.5, 1, 2, 5) if highest / (s * unit) <= 4)
    digits = max(0, -math.floor(math.log10(step) + 1e-9)) + (round(step / unit, 3) == 0.25)
    return tuple((k * step, fixed(k * step, digits)) for k in range(math.ceil(highest / step - 1e-9) + 1))


def log_ticks(low: float, high: float) -> tuple[tuple[float, str], ...]:
    """Return temperatures for an axis in log T: powers of 2, or of 10 where those would be many.

    >>> [label for _, label in log_ticks(0.25, 8.1)]
    ['0.25', '0.5', '1', '2', '4', '8']
    """
    base = 2 if high / low <= 2**9 else 10
    powers = range(math.ceil(math.log(low, base) - 1e-9), math.floor(math.log(high, base) + 1e-9) + 1)
    step = max(1, math.ceil(len(powers) / 8))
    values = [float(base) ** k for k in powers if k % step == 0]
    return tuple((math.log(v), f"{v:g}" if 1e-3 < v < 1e4 else bare(v)) for v in values)


def curve(counts: dict[str, Any]) -> list[tuple[float, float]]:
    """Return at each threshold the share of the right predictions that are decided, and of the errors referred."""
    right, wrong = counts["right"][0], counts["wrong"][0]
    return [
        (1 - a / right[-1] if right[-1] else 1.0, b / wrong[-1] if wrong[-1] else 0.0) for a, b in zip(right, wrong)
    ]


def coinciding(curves: Sequence[Sequence[tuple[float, float]]], within: float = SAME) -> list[list[int]]:
    """Return which curves are one to the eye: each differs from the first of its list by no more than this.

    >>> rise = [(0.0, 1.0), (0.5, 0.8), (1.0, 0.0)]
    >>> coinciding([rise, [(0.0, 1.0), (1.0, 0.0)], rise])
    [[0, 2], [1]]
    """
    # Curves fall in steps, so x - y grows along each, and x + y shows how far out it is there. At one x, two curves
    # would seem far apart where both fall steeply.
    even = np.linspace(-1, 1, 401)
    ordered = [np.array(sorted(points, key=lambda point: (point[0], -point[1]))).T for points in curves]
    drawn = [np.interp(even, x - y, x + y) / 2 for x, y in ordered]
    found: list[list[int]] = []
    for i, one in enumerate(drawn):
        like = next((same for same in found if np.abs(drawn[same[0]] - one).max() <= within), None)
        found.append([i]) if like is None else like.append(i)
    return found


WIDTH, EDGE = 200, 12  # of the picture of a gap; what is beyond the edge is cut there, with an arrow
MOST_SAMPLES = 0.9  # groups that hold this share of the samples set the scale
STEPS = (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 25, 50)  # of ticks, in points


def forest(groups: dict[str, Any]) -> dict[str, Any]:
    """Return where the gaps of all groups are drawn, on one scale, and the ticks of its axis.

    The largest groups set the scale. The others widen it to at most twice as much: the intervals of a few samples
    would hide all others.
    """
    rows = [*groups["rows"], groups["all"]]
    kinds = ("before", "gap") if groups["calibrated"] else ("gap",)
    by_size = sorted(groups["rows"], key=lambda row: -row["n"])
    held = np.cumsum([row["n"] for row in by_size])
    large = by_size[: int(np.searchsorted(held, MOST_SAMPLES * held[-1])) + 1]
    low, high = _ends([row[kind] for row in large for kind in kinds])
    least, most = _ends([row[kind] for row in rows for kind in kinds])
    room = (high - low) / 2
    frame = Frame(EDGE, 0, WIDTH - 2 * EDGE, 30, x=(max(least, low - room), min(most, high + room)))
    points = [100 * end for end in frame.x]
    step = next((s for s in STEPS if points[1] - points[0] <= 5 * s), STEPS[-1])
    ticks = [k * step for k in range(math.ceil(points[0] / step - 1e-9), math.floor(points[1] / step + 1e-9) + 1)]
    marks = [{kind: _mark(row[kind], frame) for kind in kinds} for row in rows]
    return {
        "width": WIDTH,
        "zero": frame.at_x(0.0),
        "ticks": [(frame.at_x(tick / 100), signed(tick, 0 if step >= 1 else 1)) for tick in ticks],
        "marks": marks,
        "cut": any(mark["left"] or mark["right"] for each in marks for mark in each.values()),
    }


def _ends(gaps: Sequence[Sequence[float]]) -> tuple[float, float]:
    """Return the range of some gaps with their intervals, and of 0."""
    ends = [0.0, *(end for gap in gaps for end in gap)]
    low, high = min(ends), max(ends)
    return (low, high) if high - low > 1e-9 else (-0.01, 0.01)


def _mark(gap: Sequence[float], frame: Frame) -> dict[str, Any]:
    """Return where a gap and its interval are drawn; ``left`` and ``right`` are where it goes on beyond the edge."""
    low, high = frame.x
    value = frame.at_x(gap[0]) if low - 1e-9 <= gap[0] <= high + 1e-9 else None
    line = [frame.at_x(min(max(end, low), high)) for end in gap[1:]]
    left, right = min(gap) < low - 1e-9, max(gap) > high + 1e-9
    if line:
        line = [line[0] - (EDGE - 6) * left, line[1] + (EDGE - 6) * right]
    return {"value": value, "line": line, "left": left, "right": right}
