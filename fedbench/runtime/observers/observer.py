"""The interface of observers of a run: what they see, and when."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from fedbench.config import Config
from fedbench.methods.server import Context
from fedbench.results.schema import MetricsLine
from fedbench.runtime.exchange import ClientTask, Reply, Report, Scores
from fedbench.runtime.server.placement import Homes
from fedbench.runtime.server.round_record import RoundRecord, TrainedRound
from fedbench.runtime.server.sampling import Calendar
from fedbench.runtime.server.server_half import ServerHalf

Traces = dict[tuple[int, str], float]
"""Values by client and name; client -1 is the server."""


@dataclass(frozen=True)
class PointScores:
    """The scores of clients at an evaluation point, and their line of metrics.jsonl."""

    point: str
    scores: Mapping[int, Scores]
    line: MetricsLine


@dataclass(frozen=True)
class EvaluatedRound:
    """A round whose models were evaluated, at one point after another."""

    seed: int
    record: RoundRecord
    points: Sequence[PointScores]


@dataclass(frozen=True)
class EndedExchange:
    """The replies of an exchange, and its seconds by part."""

    number: int
    replies: Sequence[Reply]
    seconds: Mapping[str, float]


class RunInProgress(Protocol):
    """The part of the driver that observers may use."""

    config: Config
    context: Context
    calendar: Calendar
    server_half: ServerHalf
    homes: Homes
    record: RoundRecord

    def ask(self, number: int, dealt: Sequence[list[ClientTask]]) -> tuple[list[Reply], list[Report]]:
        """Send every host its tasks: the replies, and all their reports in the order of clients."""


class Observer:
    """Follows a run; a subclass overrides the moments that it needs. What moments return are remarks to be given."""

    def first_remarks(self) -> Iterable[str]:
        """Remarks to give before round 1."""
        return ()

    def on_longer_run(self, round: int) -> None:
        """A shorter run, which ended with this round or would have, is continued."""

    def on_begin(self, driver: RunInProgress) -> None:
        """Hosts and server are ready for the next exchange."""

    def on_reports(self, number: int, reports: Sequence[Report]) -> Iterable[str]:
        """The hosts have done their work in an exchange."""
        return ()

    def on_evaluation(self, evaluated: EvaluatedRound) -> Iterable[str]:
        """All scores of a round are known."""
        return ()

    def on_training(self, training: TrainedRound, record: RoundRecord) -> Traces:
        """Clients have trained a round, whose record begins: the traces to add to it."""
        return {}

    def on_aggregation(self, number: int, reports: Sequence[Report]) -> None:
        """The server half has made the next model, or this was the last exchange."""

    def on_exchange(self, ended: EndedExchange) -> None:
        """An exchange is over, with its checkpoint."""

    def on_end(self, driver: RunInProgress) -> Iterable[str]:
        """All exchanges are over, and the hosts still there."""
        return ()
