"""The progress display: a live bar on a terminal, plain lines elsewhere."""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
from rich.progress import Progress as Bar

from fedbench.config.words import plural
from fedbench.results.events import Evaluation, NewcomersJoin, Remark, WatchedEvent
from fedbench.results.quantities import duration
from fedbench.tasks import Metric

Clock = Callable[[], float]
POINT_LABELS = {"after_fit": "after fit", "after_agg": "after agg", "global": "global"}


class Display:
    """A bar on a terminal, lines elsewhere; warnings are printed above the bar. pause: seconds between two lines."""

    def __init__(self, console: Console | None, clock: Clock = time.monotonic, pause: float = 1.0) -> None:
        self.console = console or Console(stderr=True)
        self._clock, self._pause = clock, pause
        self._bar: Bar | None = None
        self._started = clock()
        self._printed: float | None = None
        self._held: str | None = None
        self._said: str | None = None

    def warn(self, text: str) -> None:
        """Prints a warning or a remark that stays on the screen."""
        self.console.print(escape(text), style="yellow" if self._bar else None, soft_wrap=True, highlight=False)

    def stop(self) -> None:
        """Ends the display and prints the last withheld line."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None
        self._print_held()

    def _begin(self, title: str, total: int) -> None:
        self._started = self._clock()
        self._printed = self._held = self._said = None
        self.console.print(escape(title), style="bold", soft_wrap=True, highlight=False)
        if self.console.is_terminal:
            self._bar = _bar(self.console)
            self._task = self._bar.add_task("", total=total, text="", left="")
            self._bar.start()

    def _show(self, done: float, what: str, text: str, left: str, last: bool = False) -> None:
        if self._bar is not None:
            self._bar.update(self._task, completed=done, description=escape(what), text=escape(text), left=left)
            return
        line = "  ".join(part for part in (what, text, left) if part)
        self._held = line if line != self._said else None
        if last or self._printed is None or self._clock() - self._printed >= self._pause:
            self._print_held()

    def _print_held(self) -> None:
        if self._held is not None:
            self.console.print(escape(self._held), soft_wrap=True, highlight=False)
            self._printed, self._said, self._held = self._clock(), self._held, None


def time_left(pace: float, todo: float) -> str:
    """`12 min left`, at this many seconds per item; empty if nothing is left or the pace is unknown."""
    return f"{duration(pace * todo)} left" if pace and todo > 0 else ""


def _bar(console: Console) -> Bar:
    columns = [TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn()]
    return Bar(*columns, TextColumn("{task.fields[text]}"), TextColumn("{task.fields[left]}"), console=console)


class Progress(Display):
    """The rounds of a run over its seeds, current test scores at every evaluation point, and the time left."""

    def start(self, title: str, rounds: int, seeds: Sequence[int]) -> None:
        """`title` describes the run."""
        self._rounds, self._seeds = rounds, list(seeds)
        self._now: dict[int, int] = {}
        self._first: tuple[float, int] | None = None
        self._begin(title, rounds * len(self._seeds))

    def update(self, event: WatchedEvent) -> None:
        """Shows an event of a run."""
        match event:
            case Remark(text):
                self.warn(text)
            case NewcomersJoin(seed, now, count):
                self._now[seed] = now
                self._show_round(seed, now, f"{plural(count, 'newcomer')} joining", "")
            case Evaluation(seed, now):
                self._now[seed] = now
                self._first = self._first or (self._clock(), self._completed_rounds())
                self._show_round(seed, now, _text(event), self._time_left(event))

    def _show_round(self, seed: int, now: int, text: str, left: str) -> None:
        self._show(self._completed_rounds(), self._seed_and_round(seed, now), text, left, self._is_over())

    def _seed_and_round(self, seed: int, now: int) -> str:
        name = f"seed {seed}" if len(self._seeds) > 1 else ""
        return name if self._bar is not None else f"{name}  round {now}/{self._rounds}".strip()

    def _skipped_rounds(self) -> int:
        """Rounds of seeds that an earlier start finished: seeds run in order, and these had no events."""
        first = min(self._seeds.index(seed) for seed in self._now)
        return first * self._rounds

    def _completed_rounds(self) -> int:
        """Finished rounds, including those of an earlier start."""
        return self._skipped_rounds() + sum(self._now.values())

    def _is_over(self) -> bool:
        return self._completed_rounds() >= self._rounds * len(self._seeds)

    def _time_left(self, event: Evaluation) -> str:
        """Uses the pace since the first event, at first that event's own seconds."""
        since, before = self._first or (0.0, 0)
        done = self._completed_rounds() - before
        pace = (self._clock() - since) / done if done else event.seconds
        return time_left(pace, self._rounds * len(self._seeds) - self._completed_rounds())


def _text(event: Evaluation) -> str:
    pace = f"{event.seconds:.2g} s/round" if event.seconds else ""
    return "  ".join(part for part in (scores(event.lines, event.metric), pace) if part)


def scores(lines: Sequence[Mapping[str, Any]], metric: Metric) -> str:
    """`after fit 81.2%  after agg 79.0%` from the lines of one round."""
    tested = {line["point"]: value for line in lines if (value := line[f"test_{metric.name}"]) is not None}
    sign = "%" if metric.share else ""
    return "  ".join(f"{name} {metric.number(tested[p])}{sign}" for p, name in POINT_LABELS.items() if p in tested)


class GridProgress(Display):
    """The trials of a grid: done, failed and running."""

    def __init__(
        self, total: int, console: Console | None = None, clock: Clock = time.monotonic, pause: float = 1.0
    ) -> None:
        super().__init__(console, clock, pause)
        self.total = total
        self._skipped: int | None = None

    def start(self, title: str) -> None:
        """`title` describes the grid."""
        self._begin(title, self.total)

    def grow(self, total: int) -> None:
        """Sets the total number of trials after a search has proposed more."""
        self.total = total
        if self._bar is not None:
            self._bar.update(self._task, total=total)

    def update(self, done: int, failed: int, running: Mapping[str, float]) -> None:
        """`done` counts every ended trial, including failed and stopped ones.

        running: the completed share of rounds of running trials, by name.
        """
        if self._skipped is None:
            self._skipped = done  # finished by an earlier start, so they say nothing about the pace
        what = "trials" if self._bar is not None else f"trials {done}/{self.total}"
        names = ", ".join(f"{name} ({share:.0%})" if share else name for name, share in running.items())
        parts = [f"{failed} failed" if failed else "", f"running {names}" if names else ""]
        text = "  ".join(part for part in parts if part)
        over = done + sum(running.values())
        fresh = over - self._skipped
        # Before that, most of the time may have gone into the start of processes.
        pace = (self._clock() - self._started) / fresh if fresh >= 1 else 0.0
        left = time_left(pace, self.total - over)
        self._show(over, what, text, left and f"{left} for these runs", done >= self.total)
