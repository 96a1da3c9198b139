"""Events of a run in progress: what its watchers show, and what its job does with it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fedbench.results.logged import LoggedRow
from fedbench.results.schema import MetricsLine
from fedbench.tasks import Metric


@dataclass(frozen=True)
class Remark:
    """A warning or note, which a run gives once."""

    text: str


@dataclass(frozen=True)
class Evaluation:
    """An evaluated round: its lines of metrics.jsonl, rows for loggers, and the seconds of its exchange.

    metric: the primary one of the task.
    """

    seed: int
    round: int
    metric: Metric
    lines: Sequence[MetricsLine]
    traces: Sequence[LoggedRow] = ()
    seconds: float = 0.0


@dataclass(frozen=True)
class NewcomersJoin:
    """So many newcomers begin to join after the last round."""

    seed: int
    round: int
    count: int


@dataclass(frozen=True)
class SeedBegun:
    """A driver begins with a seed."""


@dataclass(frozen=True)
class CheckpointRestored:
    """The records are those of a checkpoint, from which the run continues."""


@dataclass(frozen=True)
class ModelsBuilt:
    """The numbers of all and of shared parameters of each model."""

    sizes: Mapping[str, Mapping[str, int]]


@dataclass(frozen=True)
class SeedEnded:
    """A seed is complete; with all its warnings."""

    warnings: Sequence[str]


@dataclass(frozen=True)
class SeedPaused:
    """A seed stops before its last round, with a checkpoint from which it can be continued."""


WatchedEvent = Remark | Evaluation | NewcomersJoin
"""The events that watchers of a run get."""
Event = WatchedEvent | SeedBegun | CheckpointRestored | ModelsBuilt | SeedEnded | SeedPaused
"""All events of a driver."""
