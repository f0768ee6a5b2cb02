"""Progress of what takes longer than a second: a bar on a terminal, lines at growing intervals elsewhere, on stderr."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.progress import BarColumn, Progress, ProgressColumn, SpinnerColumn, Task, TextColumn
from rich.text import Text

from attemper.cli.output import err
from attemper.cli.verbosity import verbosity
from attemper.data.scores import Scores
from attemper.io import ScoreFiles

# Seconds before anything is shown, seconds between two lines at most, and with --verbose.
FIRST_LINE, MOST_BETWEEN, MOST_VERBOSE = 1.0, 60.0, 10.0

Update = Callable[[int, int | None], None]


class Meter:
    """How much is done of how much, since when, and how long the rest takes at this rate."""

    def __init__(self, what: str, unit: str, total: int | None = None) -> None:
        self.what, self.unit, self.total = what, unit, total
        self.done, self.start = 0, time.monotonic()

    @property
    def elapsed(self) -> float:
        """Seconds so far."""
        return time.monotonic() - self.start

    @property
    def remaining(self) -> float | None:
        """Seconds that the rest takes at the mean rate so far; None while there is nothing to go by."""
        if not self.total or not self.done:
            return None
        return self.elapsed * max(self.total - self.done, 0) / self.done

    def counted(self) -> str:
        """Write how much is done.

        >>> meter = Meter("reading", "rows", 20000)
        >>> meter.done = 5000
        >>> meter.counted()
        '5 000 of 20 000 rows'
        """
        of_all = "" if self.total is None else f" of {self.total:,}"
        return f"{self.done:,}{of_all} {self.unit}".replace(",", " ")

    def times(self) -> str:
        """Write the time so far, and about how long the rest takes."""
        left = self.remaining
        return duration(self.elapsed) + (f", about {duration(left)} left" if left else "")


def duration(seconds: float) -> str:
    """Write a time no finer than it is known.

    >>> [duration(s) for s in (0.4, 7.4, 66, 3725, 90000)]
    ['1 s', '7 s', '1 min 6 s', '1 h 2 min', '25 h']
    """
    whole = max(1, round(seconds))
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min" + (f" {whole % 60} s" if whole % 60 else "")
    minutes = whole % 3600 // 60
    return f"{whole // 3600} h" + (f" {minutes} min" if minutes else "")


class Times(ProgressColumn):
    """The time so far, and about how long the rest takes."""

    def __init__(self, meter: Meter) -> None:
        super().__init__()
        self.meter = meter

    def render(self, task: Task) -> Text:
        """Write them."""
        return Text(f"{self.meter.counted()}, {self.meter.times()}")


@contextmanager
def metered(what: str, unit: str, total: int | None = None) -> Iterator[Meter]:
    """Show how far the work is, once it takes longer than a second; set ``done``, ``total`` and ``what`` on the way."""
    meter, ended = Meter(what, unit, total), threading.Event()
    if verbosity() < 0:
        yield meter
        return
    show = _show_bar if err.is_terminal else _print_lines
    thread = threading.Thread(target=show, args=(meter, ended, verbosity() > 0), daemon=True)
    thread.start()
    try:
        yield meter
    finally:
        ended.set()
        thread.join()


def _show_bar(meter: Meter, ended: threading.Event, verbose: bool) -> None:
    if ended.wait(FIRST_LINE):
        return
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(12), Times(meter))
    with Progress(*columns, console=err, transient=not verbose) as bar:
        task = bar.add_task(meter.what, total=meter.total)
        while not ended.wait(0.1):
            bar.update(task, completed=meter.done, total=meter.total, description=meter.what)


def _print_lines(meter: Meter, ended: threading.Event, verbose: bool) -> None:
    wait = FIRST_LINE
    while not ended.wait(wait):
        err.print(f"{meter.what}: {meter.counted()}, {meter.times()}")
        wait = min(2 * wait, MOST_VERBOSE if verbose else MOST_BETWEEN)


@contextmanager
def shown_progress(what: str, unit: str = "rows") -> Iterator[Update]:
    """Show progress; call what is returned with the number that is done and of all."""
    with metered(what, unit) as meter:

        def update(done: int, total: int | None) -> None:
            meter.done, meter.total = done, total

        yield update


def unit_of(source: object) -> str:
    """Return what a fit counts: rows of a file that is alone, or files."""
    return "rows" if isinstance(source, ScoreFiles) else "files"


@contextmanager
def counted_methods(total: int) -> Iterator[Callable[[str], None]]:
    """Show progress; call what is returned with the name of each method before it begins."""
    with metered("methods", "methods", total) as meter:
        begun = 0

        def tick(method: str) -> None:
            nonlocal begun
            meter.what, meter.done = f"method {method}", begun
            begun += 1

        yield tick


def progress(files: ScoreFiles, what: str) -> Iterator[Scores]:
    """Go through the pieces of files, and show how far that is."""
    with shown_progress(what) as shown:
        yield from files.watched(shown)
