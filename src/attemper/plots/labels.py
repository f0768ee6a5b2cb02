"""Text that stands where it belongs: beside its line, above its mark, and on nothing else."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy.spatial import cKDTree

from attemper._typing import Floats
from attemper.plots.sheet import settle
from attemper.plots.styles import KEY, LEGEND

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.lines import Line2D

__all__ = ["add_key", "headroom", "ink", "label_lines", "label_points", "label_uprights", "same_to_the_eye", "write"]

LINE = 1.35 * LEGEND  # points from one line of text to the next
WIDEST = 24  # characters of a legend that has two columns
MOST_DIRECT = 5  # lines that are labelled beside themselves; more have a legend
NEAR, CLEAR = 3.0, 1.5  # points from a line to its label, and around a label
LONG = 10.0  # points from a point to its label that need a line between them
SEEN_APART = 1.6  # points on paper, of lines 1.2 wide
DENSE = 500  # points that stand for a line
SPOTS = 30  # on a line, where its label may stand
DIRECTIONS = [(x, y) for x in (1, 0, -1) for y in (1, 0, -1) if (x, y) != (0, 0)]


class Wanted(NamedTuple):
    """A label, and the points that it may stand next to, in data coordinates of the Axes."""

    ax: Axes
    text: str
    color: str
    points: Floats


def ink(color: str) -> Any:
    """Return a colour of text: that of the line, dark enough to be read on white.

    >>> [round(part, 2) for part in ink("#E69F00")]
    [0.59, 0.41, 0.0]
    """
    from matplotlib.colors import to_rgb

    return tuple(0.65 * part for part in to_rgb(color))


def write(ax: Axes, text: str, at: tuple[float, float], offset: tuple[float, float] = (0, 0), **how: Any) -> Any:
    """Write on a white ground, so many points away from a place in data coordinates."""
    options: dict[str, Any] = {"textcoords": "offset points", "fontsize": LEGEND, "color": "black", "zorder": 6}
    # An outline of the letters would turn text into paths, which cannot be edited in an SVG.
    ground = {"boxstyle": "square,pad=0.08", "facecolor": "white", "edgecolor": "none", "alpha": 0.75}
    return ax.annotate(text, at, offset, bbox=ground, annotation_clip=False, **options | how)


def headroom(ax: Axes, lines: float, *more: Axes) -> float:
    """Make room for lines of text above what is drawn; return the part of the height that is left to the data.

    The scales of ``ax``, and of ``more`` Axes in the same place, grow; their spines and ticks end where the data do.
    """
    settle(ax)
    room = min(0.6, (LINE * lines + 4) / (ax.bbox.height / ax.figure.dpi * 72))
    for each in (ax, *more):
        axis, (low, high) = each.yaxis, each.get_ylim()
        ends = axis.get_transform().transform([low, high])
        top = axis.get_transform().inverted().transform([ends[0] + (ends[1] - ends[0]) / (1 - room)])
        kept = [tick for tick in axis.get_ticklocs() if low <= tick <= high + 1e-9 * (high - low)]
        axis.set_ticks(kept)
        axis.set_ticks([], minor=True)
        for side in ("left", "right"):
            each.spines[side].set_bounds(low, high)
        each.set_ylim(low, float(top[0]))
    return 1 - room


def data_box(ax: Axes) -> Any:
    """Return the part of the Axes that is below the headroom, to clip lines that are cut."""
    from matplotlib.transforms import Bbox, TransformedBbox

    top = ax.spines["left"].get_bounds()
    high = ax.get_ylim()[1] if top is None else top[1]
    part: float = float(ax.transAxes.inverted().transform(ax.transData.transform((ax.get_xlim()[0], high)))[1])
    return TransformedBbox(Bbox.from_extents(0, 0, 1, part), ax.transAxes)


def add_key(ax: Axes, handles: Sequence[Any], columns: int, *more: Axes) -> float:
    """Put a legend above what is drawn, on ``ax``; return the part of the height that is left to the data."""
    if any(len(handle.get_label()) > WIDEST for handle in handles):
        columns = 1
    left = headroom(ax, -(-len(handles) // columns) * 1.15, *more)
    _add_legend(ax, handles, columns)
    return left


def _add_legend(ax: Axes, handles: Sequence[Any], columns: int) -> None:
    ax.legend(handles=handles, loc="upper left", bbox_to_anchor=(0, 1), ncols=columns, borderaxespad=0, **KEY)


def label_uprights(ax: Axes, marks: Sequence[tuple[Line2D, str]], *more: Axes, handles: Sequence[Any] = ()) -> None:
    """Write above each upright line what it is, one below the other, so that lines may be as close as they like.

    ``handles`` get a legend of one line, above all that.
    """
    order = sorted(marks, key=lambda mark: _x_of(mark[0]))
    top = ax.get_ylim()[1]
    headroom(ax, len(order) + 1.15 * bool(handles), *more)
    if handles:
        _add_legend(ax, handles, len(handles))
    low, high = ax.bbox.x0, ax.bbox.x1
    written, right = [], []
    for place, (line, text) in enumerate(order):
        label = write(ax, text, (_x_of(line), top), va="bottom", color=ink(line.get_color()))
        at, width = ax.transData.transform((_x_of(line), top))[0], label.get_window_extent().width + NEAR
        fits = (at - width >= low, at + width <= high)  # to the left, to the right
        ahead = 2 * place >= len(order)
        right.append(ahead if fits[ahead] or not fits[not ahead] else not ahead)
        written.append(label)
    for i, level in enumerate(_levels(right)):
        written[i].set(ha="left" if right[i] else "right")
        written[i].xyann = (NEAR if right[i] else -NEAR, 2 + LINE * level)
        tip = ax.transAxes.inverted().transform(written[i].get_window_extent().get_points())[1, 1]
        order[i][0].set_ydata([0, tip])


def _x_of(line: Line2D) -> float:
    return float(np.ravel(line.get_xdata())[0])


def _levels(right: Sequence[bool]) -> list[int]:
    """Return how high each label stands, from left to right, so that no line crosses the text of another.

    Of those whose text stands to the left of their line the last is the highest, of the others the first.

    >>> _levels([False, True]), _levels([False, False, True, True]), _levels([True, True])
    ([0, 0], [0, 1, 1, 0], [1, 0])
    >>> _levels([True, False])
    [1, 0]
    """
    n = len(right)
    left = [i for i in range(n) if not right[i]]
    ahead = [i for i in range(n) if right[i]]
    apart = not left or not ahead or left[-1] < ahead[0]
    levels = {i: level for level, i in enumerate(left)}
    levels |= {i: level + (0 if apart else len(left)) for level, i in enumerate(reversed(ahead))}
    return [levels[i] for i in range(n)]


def label_lines(ax: Axes, named: Sequence[tuple[Line2D, str]], *more: Axes) -> None:
    """Write the name of each line beside it; lines that are many, or too close, get a legend above."""
    settle(ax)
    wanted = []
    for line, text in named:
        own: Any = line.axes
        inside = _shown(line)
        spots = inside[np.linspace(0, len(inside) - 1, SPOTS).astype(int)] if len(inside) else inside
        places = own.transData.inverted().transform(spots) if len(spots) else spots
        wanted.append(Wanted(own, text, str(line.get_color()), places))
    if len(named) <= MOST_DIRECT and _label(ax, wanted, [line for line, _ in named], more):
        return
    handles = []
    for line, text in named:
        line.set_label(text)
        handles.append(line)
    if handles:
        add_key(ax, handles, 2, *more)


def label_points(ax: Axes, points: Sequence[tuple[float, float, str]]) -> None:
    """Write beside each point what it is, as near as there is room."""
    settle(ax)
    for x, y, text in points:
        wanted = Wanted(ax, text, "black", np.array([[x, y]]))
        places = [(gap, over) for over in (False, True) for gap in (6.0, 12.0, 20.0, 32.0)]
        if not any(_label(ax, [wanted], gap=gap, over_lines=over) for gap, over in places):
            write(ax, text, (x, y), (0, 6), ha="center", va="bottom")


def _label(
    ax: Axes,
    wanted: Sequence[Wanted],
    own: Sequence[Line2D] = (),
    more: Sequence[Axes] = (),
    *,
    gap: float = NEAR,
    over_lines: bool = False,
) -> bool:
    """Place all labels, or none; on no line, unless these may be covered."""
    scale = ax.figure.dpi / 72
    lines = [line for each in (ax, *more) for line in each.lines if line.get_visible() and not over_lines]
    drawn = {line: _shown(line) for line in lines}
    taken = [text.get_window_extent() for each in (ax, *more) for text in each.texts]
    taken += [key.get_window_extent() for each in (ax, *more) if (key := each.get_legend()) is not None]
    written: list[Any] = []
    for place, one in enumerate(wanted):
        leader = {"arrowstyle": "-", "linewidth": 0.5, "color": "0.4", "shrinkA": 0, "shrinkB": 4}
        text = write(
            *(one.ax, one.text, (0, 0)), color=ink(one.color), arrowprops=leader if gap > LONG and not own else None
        )
        extent = text.get_window_extent()
        others = [points for line, points in drawn.items() if not own or line is not own[place]]
        mine = drawn[own[place]] if own else np.empty((0, 2))
        best = _best_box(ax, one, (extent.width, extent.height), mine, others, taken, gap * scale, CLEAR * scale)
        if best is None:
            for label in (text, *written):
                label.remove()
            return False
        point, (right, up) = best
        text.xy, text.xyann = tuple(point), (gap * right, gap * up)
        text.set(ha={1: "left", 0: "center", -1: "right"}[right], va={1: "bottom", 0: "center", -1: "top"}[up])
        taken.append(text.get_window_extent())
        written.append(text)
    return True


def _best_box(
    ax: Axes,
    wanted: Wanted,
    size: tuple[float, float],
    mine: Floats,
    others: Sequence[Floats],
    taken: Sequence[Any],
    gap: float,
    clear: float,
) -> tuple[Floats, tuple[int, int]] | None:
    """Return the point and the direction from it whose box is free, and the farthest from other lines."""
    every = np.concatenate([*others, mine]) if others or len(mine) else np.empty((0, 2))
    rest = cKDTree(np.concatenate(others)) if sum(map(len, others)) else None
    frame, best, farthest = ax.bbox, None, -np.inf
    for point, place in zip(wanted.points, wanted.ax.transData.transform(wanted.points)):
        for right, up in DIRECTIONS:
            x = place[0] + gap * right + size[0] * (right - 1) / 2
            y = place[1] + gap * up + size[1] * (up - 1) / 2
            low, high = np.array([x - clear, y - clear]), np.array([x + size[0] + clear, y + size[1] + clear])
            if low[0] < frame.x0 or low[1] < frame.y0 or high[0] > frame.x1 or high[1] > frame.y1:
                continue
            if ((every > low) & (every < high)).all(axis=1).any():
                continue
            if any(box.x0 < high[0] and box.x1 > low[0] and box.y0 < high[1] and box.y1 > low[1] for box in taken):
                continue
            away = np.inf if rest is None else float(np.min(rest.query(_around(low, high))[0]))
            if away < 2 * gap and len(mine):
                continue  # a reader could not see whose label it is
            away = min(away, 12 * gap) - 0.01 * abs(up) * abs(right)
            if away > farthest:
                best, farthest = (point, (right, up)), away
    return best


def _around(low: Floats, high: Floats) -> Floats:
    """Points on the edge of a box."""
    x, y = np.linspace(low[0], high[0], 9), np.linspace(low[1], high[1], 4)
    return np.array([(a, b) for a in x for b in (low[1], high[1])] + [(a, b) for a in (low[0], high[0]) for b in y])


def _dense(points: Floats) -> Floats:
    """Points at equal distances along a line; as they are where it has no length."""
    points = points[np.isfinite(points).all(axis=1)]
    reached = np.concatenate([[0.0], np.cumsum(np.hypot(*np.diff(points, axis=0).T))]) if len(points) else np.empty(0)
    if len(points) < 2 or reached[-1] == 0:
        return points
    at = np.linspace(0, reached[-1], DENSE)
    return np.column_stack([np.interp(at, reached, points[:, 0]), np.interp(at, reached, points[:, 1])])


def _shown(line: Line2D) -> Floats:
    """Return points of a line that are seen, on paper."""
    points = _dense(line.get_transform().transform(line.get_xydata()))
    assert line.axes is not None
    return _within(line.get_clip_box() or line.axes.bbox, points)


def _within(box: Any, points: Floats) -> Floats:
    slack = 1.0
    inside = (points >= (box.x0 - slack, box.y0 - slack)) & (points <= (box.x1 + slack, box.y1 + slack))
    return points[inside.all(axis=1)]


def same_to_the_eye(ax: Axes, curves: Sequence[Floats]) -> list[list[int]]:
    """Return the curves in groups that lie within the width of a line on paper, each with those that join it.

    ``curves`` are points in data coordinates; the limits of ``ax`` must be set.
    """
    settle(ax)
    near = SEEN_APART * ax.figure.dpi / 72
    shown = [_within(ax.bbox, _dense(ax.transData.transform(curve))) for curve in curves]
    groups: list[list[int]] = []
    for i, points in enumerate(shown):
        for group in groups:
            if _far(points, shown[group[0]]) <= near:
                group.append(i)
                break
        else:
            groups.append([i])
    return groups


def _far(one: Floats, other: Floats) -> float:
    """Return how far the point of either that is the farthest from the other is from it."""
    if not len(one) or not len(other):
        return 0.0 if len(one) == len(other) else np.inf
    return max(float(np.max(cKDTree(b).query(a)[0])) for a, b in ((one, other), (other, one)))


def joined(names: Sequence[str], curves: Sequence[Floats]) -> Iterator[str]:
    """Yield the names, each after the first with "=" where its numbers are those of the first, else with "≈"."""
    for name, curve in zip(names, curves):
        same = curve.shape == curves[0].shape and np.allclose(curve, curves[0], rtol=0, atol=1e-9, equal_nan=True)
        yield name if curve is curves[0] else f"{'=' if same else '≈'} {name}"
