"""Says what is to be known of scores: whose they are, which are missing, and which models give no numbers."""

from collections.abc import Iterator

from fedbench.data.partitions import Partition
from fedbench.results.remarks import Doubt
from fedbench.runtime.build import RunParts
from fedbench.runtime.evaluation.unscored import Unscored
from fedbench.runtime.observers.observer import EvaluatedRound, Observer, RunInProgress
from fedbench.runtime.server.sampling import Calendar
from fedbench.runtime.warnings import warn_of_sample, warn_of_undefined_outputs


class ScoreRemarks(Observer):
    """The remarks on the scores of a run."""

    def __init__(self, parts: RunParts, partition: Partition, calendar: Calendar) -> None:
        self.seed, self.config, self.task, self.calendar = parts.seed, parts.run.config, parts.run.task, calendar
        self.unscored = Unscored(parts.run, partition, parts.seed, calendar.evaluated)

    def first_remarks(self) -> Iterator[str]:
        """Whether scores are those of a sample, and which clients cannot have any."""
        yield from warn_of_sample(len(self.calendar.evaluated), self.calendar.honest)
        yield from self.unscored.first_lines()

    def on_evaluation(self, evaluated: EvaluatedRound) -> Iterator[str]:
        """Which outputs are not numbers and, in the first evaluated round, which clients have no score."""
        is_first = evaluated.record.number == min(self.config.evaluate.every, self.config.rounds)
        for at in evaluated.points:
            yield from warn_of_undefined_outputs(self.seed, at.point, at.scores, self.task)
            if is_first:
                yield from self.unscored.lines(at.scores)

    def on_end(self, driver: RunInProgress) -> Iterator[str]:
        """In how many rounds nothing was trained."""
        if idle := driver.record.idle:
            share = f"{idle} of {self.config.rounds} rounds"
            yield Doubt(f"seed {self.seed}: nothing was trained in {share}: no client ended a fit with a gradient step")
