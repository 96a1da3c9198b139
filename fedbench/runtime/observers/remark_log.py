"""Gives every remark of a run once: to its watchers, and into its records."""

from collections.abc import Callable, Iterable, Sequence

from fedbench.results.events import Event, Remark
from fedbench.runtime.observers.recorder import Recorder


class RemarkLog:
    """The remarks of a run; doubts are of type `results.remarks.Doubt`. first: number of those before round 1."""

    def __init__(self, recorder: Recorder, on_event: Callable[[Event], None]) -> None:
        self.recorder, self.on_event, self.first = recorder, on_event, 0

    def give(self, lines: Iterable[str]) -> None:
        """Give those that are new."""
        for text in lines:
            if text not in self.recorder.warnings:
                self.recorder.warnings.append(text)
                self.on_event(Remark(text))

    def give_first(self, lines: Sequence[str], known: int = 0, is_longer: bool = False) -> None:
        """Give the remarks before round 1, which come first.

        known: how many of the restored remarks were of this kind; a longer run may have others.
        """
        restored = self.recorder.warnings
        self.recorder.warnings = [line for line in restored[:known] if line in lines or not is_longer]
        self.give(lines)
        self.first = len(self.recorder.warnings)
        self.recorder.warnings += restored[known:]
