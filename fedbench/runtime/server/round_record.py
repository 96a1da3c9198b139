"""The training of a round, and its record."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

from fedbench.methods.messages import Upload
from fedbench.results.schema import SUMMED_COSTS
from fedbench.runtime.exchange import POOLED, ClientTask, Report
from fedbench.runtime.uploads.step import Delivery
from fedbench.runtime.uploads.sums import Total


@dataclass(frozen=True)
class TrainedRound:
    """The work of an exchange for the round that it trains: its tasks, and the reports of all clients.

    is_evaluated: whether the models of this round will be. totals: of the hosts.
    """

    round: int
    participants: Sequence[int]
    trainers: Sequence[int]
    tasks: Sequence[ClientTask]
    reports: Sequence[Report]
    totals: Sequence[Total]
    is_evaluated: bool

    @cached_property
    def uploads(self) -> list[Upload]:
        """The uploads that arrived, ascending by client."""
        return [report.upload for report in self.reports if report.upload is not None]

    @cached_property
    def fits(self) -> list[Report]:
        """The reports of clients that took a gradient step."""
        return [report for report in self.reports if report.steps and report.trained]

    @cached_property
    def failures(self) -> list[tuple[int, str]]:
        """The clients whose training failed, and why."""
        return [(r.client, r.failure) for r in self.reports if r.failure is not None and r.client in self.trainers]

    @property
    def delivery(self) -> Delivery:
        """How the uploads came to the server."""
        received = {task.client: task.message for task in self.tasks}
        shares = {task.client: task.share for task in self.tasks if task.share is not None}
        return Delivery(self.round, received, shares, self.totals)


@dataclass
class RoundRecord:
    """The cost and messages of training a round. The exchange of the same number evaluates its models.

    idle: number of rounds so far in which no client took a gradient step. failing: the cause for which all
    participants failed, and the clients it has hit since a client last completed a fit. extra_pass: whether one
    followed the round. earlier: the sums of steps and bytes over the rounds between the last evaluated one and this
    one; earlier_rounds: their number. private_steps: of every client, in all rounds so far, if epsilon depends on them.
    fits: of every client that was to train, empty once it has completed a fit, before that why its last one failed.
    """

    number: int = 0
    idle: int = 0
    failing: tuple[str, list[int]] = ("", [])
    took_part: list[int] = field(default_factory=list)
    extra_pass: bool = False
    train_loss: float | None = None
    steps: int = 0
    bytes_up: int = 0
    bytes_down: int = 0
    earlier: dict[str, int] = field(default_factory=dict)
    earlier_rounds: int = 0
    failed: list[tuple[int, str]] = field(default_factory=list)
    traces: dict[tuple[int, str], float] = field(default_factory=dict)
    private_steps: dict[int, int] = field(default_factory=dict)
    fits: dict[int, str] = field(default_factory=dict)

    def costs(self) -> dict[str, float | None]:
        """The costs in the line of this round: its loss, and means over all rounds since the last evaluated one.

        So the costs of a run do not depend on which of its rounds are evaluated.
        """
        means = {name: _mean(total, self.earlier_rounds + 1) for name, total in self._sums().items()}
        return {"train_loss": self.train_loss, **means}

    def failures_with_round(self) -> list[tuple[int, str]]:
        """The failures of a round that is not evaluated, to be reported with a later one."""
        return [
            (c, text if text.startswith("in round ") else f"in round {self.number}: {text}") for c, text in self.failed
        ]

    def after(self, training: TrainedRound, was_evaluated: bool) -> "RoundRecord":
        """The record of the round that followed this one. was_evaluated: whether this one's models were."""
        losses = [report.loss for report in training.fits if report.loss is not None]
        pooled, first = POOLED in training.trainers, training.round == 1
        known = self if first else RoundRecord()  # bytes of an extra pass before round 1 count as round 1's
        is_told = first or was_evaluated
        return RoundRecord(
            number=training.round,
            idle=self.idle + (not training.fits),
            took_part=list(training.participants) if pooled else [upload.client for upload in training.uploads],
            train_loss=sum(losses) / len(losses) if losses else None,
            steps=sum(report.steps for report in training.fits),
            bytes_up=known.bytes_up + sum(upload.nbytes for upload in training.uploads),
            bytes_down=known.bytes_down + sum(task.message.nbytes for task in training.tasks if task.train),
            earlier={} if is_told else self._sums(),
            earlier_rounds=0 if is_told else self.earlier_rounds + 1,
            failed=[*([] if was_evaluated else self.failures_with_round()), *training.failures],
            private_steps=self.private_steps,
            fits=self._fits_with(training),
        )

    def _sums(self) -> dict[str, int]:
        """Steps and bytes of this round and the earlier ones."""
        return {name: self.earlier.get(name, 0) + getattr(self, name) for name in SUMMED_COSTS}

    def _fits_with(self, training: TrainedRound) -> dict[int, str]:
        self.fits |= {client: reason for client, reason in training.failures if self.fits.get(client) != ""}
        self.fits |= {report.client: "" for report in training.reports if report.trained}
        return self.fits


def _mean(total: int, count: int) -> float:
    """A mean, which stays a whole number if it is one: rounds that cost the same are written as each of them is."""
    return total / count if total % count else total // count
