"""The picture of Figures 1 and 6: a line for each example, with its confidences and, where at hand, its photograph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attemper.errors import FileError, option
from experiments.reproduce import figures
from experiments.reproduce.drawing import DARK, style_of
from experiments.reproduce.recipes import TITLES

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["Column", "Line", "drawn", "found"]

# Where the numbers end, as confidences, and their headings; the paper's Figure 1 has one after calibration.
NUMBERS = {"none": (0.77, "before"), "ts": (0.88, "TS"), "ats": (0.99, "ATS"), "calibrated": (0.99, "after")}
MARKS: dict[str, dict[str, Any]] = {
    "none": {"marker": "|", "color": DARK, "markersize": 8.0, "markeredgewidth": 1.3},
    "calibrated": {"marker": "D", "color": "white", "markeredgecolor": DARK, "markersize": 3.6},
    "ts": {"marker": "s", "color": style_of("ts").color, "markersize": 5.6},
    "ats": {
        "marker": "^", "color": style_of("ats").color, "markersize": 4.6,
        "markeredgecolor": "white", "markeredgewidth": 0.3,
    },
}  # fmt: skip
NAMES = TITLES | {"calibrated": "calibrated, method not named"}
LOW, HIGH = 0.25, 1.02  # of the axis: seven classes have at least 1/7, but none of the examples so little
TICKS = (0.4, 0.6, 0.8, 1.0)
THUMBNAIL = 28.0  # points wide
PLAIN, PICTURED = 0.28, 0.40  # inches for each line


@dataclass(frozen=True)
class Line:
    """An example: its name, and the confidence in what was predicted."""

    name: str
    confidence: dict[str, float]
    image: str | None = None


@dataclass(frozen=True)
class Column:
    """Examples of one source, in groups."""

    title: str
    groups: dict[str, list[Line]]


def found(folder: Path, images: Sequence[str]) -> dict[str, Any]:
    """Read the photographs of these images that a folder has, ``FOLDER/<image>.jpg``."""
    from PIL import Image

    photographs = {}
    for image in images:
        path = folder / f"{image}.jpg"
        try:
            with Image.open(path) as opened:
                photographs[image] = opened.convert("RGB")
        except FileNotFoundError:
            continue
        except (OSError, Image.DecompressionBombError) as error:
            raise FileError(f"{path}: expected a JPEG image, got a file that cannot be read as one: {error}") from None
    if not photographs:
        use = option("images=", "--images FOLDER")
        raise FileError(
            f"{folder}: expected photographs of HAM10000 named {images[0]}.jpg, {images[1]}.jpg, … "
            f"({len(images)} images), got none of them. Use {use} with the folder of these files, or leave it out."
        )
    return photographs


def drawn(columns: Sequence[Column], photographs: Mapping[str, Any] | None = None) -> Figure:
    """Draw the examples of each source side by side."""
    lines = max(sum(map(len, column.groups.values())) + len(column.groups) for column in columns)
    height = PICTURED if photographs else PLAIN
    figure, axes = figures.panels(1, len(columns), lines * height + 0.2)
    for ax, column in zip(axes[0], columns):
        _column(ax, column, lines, photographs or {})
    _key(figure)
    return figure


def _column(ax: Axes, column: Column, lines: int, photographs: Mapping[str, Any]) -> None:
    ax.set(xlim=(LOW, HIGH), ylim=(lines - 0.3, -0.45), yticks=[], xticks=TICKS)
    ax.spines["left"].set_visible(False)
    ax.grid(visible=False)  # lines behind the numbers would be read as data; each example has its own, below them
    ax.set_xlabel("confidence", fontsize=8)
    ax.set_title(column.title, fontsize=8)
    y = 0
    for group, of in column.groups.items():
        ax.text(LOW, y, group, fontsize=7, fontweight="bold", va="center")
        for method, (x, heading) in NUMBERS.items():
            if any(method in line.confidence for line in of):
                ax.text(x, y, heading, fontsize=6, ha="right", va="center")
        y += 1
        for line in of:
            _example(ax, line, y)
            if line.image is not None and line.image in photographs:
                _photograph(ax, photographs[line.image], y)
            y += 1


def _example(ax: Axes, line: Line, y: int) -> None:
    """Draw the names and the numbers, and the marks below them."""
    ax.text(LOW, y - 0.3, line.name, fontsize=figures.SMALL, va="center")
    for method, value in line.confidence.items():
        ax.text(NUMBERS[method][0], y - 0.3, f"{value:.2f}", fontsize=figures.SMALL, ha="right", va="center")
    ax.vlines(TICKS, y - 0.06, y + 0.3, color="0.85", linewidth=0.5, zorder=1)
    ends = [min(line.confidence.values()), max(line.confidence.values())]
    ax.plot(ends, [y + 0.12] * 2, color="0.6", linewidth=0.7, zorder=2)
    for method, value in line.confidence.items():
        ax.plot([value], [y + 0.12], linestyle="", label=method, zorder=3, **MARKS[method])


def _photograph(ax: Axes, image: Any, y: int) -> None:
    from matplotlib.offsetbox import AnnotationBbox, OffsetImage

    box = OffsetImage(image, zoom=THUMBNAIL / image.width, resample=True, interpolation="lanczos")
    place: dict[str, Any] = {"xycoords": ("axes fraction", "data"), "box_alignment": (1, 0.5), "frameon": False}
    ax.add_artist(AnnotationBbox(box, (-0.02, y - 0.1), pad=0, annotation_clip=False, **place))


def _key(figure: Figure) -> None:
    from matplotlib.lines import Line2D

    handles = [Line2D([], [], linestyle="", label=NAMES[method], **style) for method, style in MARKS.items()]
    figure.legend(handles=handles, loc="outside lower center", ncols=len(handles), fontsize=7, frameon=False)
