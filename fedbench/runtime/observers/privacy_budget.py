"""Says before round 1 what epsilon will be, and traces it."""

from collections.abc import Iterator

from fedbench.runtime.observers.observer import Observer, Traces
from fedbench.runtime.server.round_record import RoundRecord, TrainedRound
from fedbench.runtime.uploads.privacy import PrivacyBudget


class BudgetTraces(Observer):
    """Counts the private steps of clients in the record. budget: None if there is none."""

    def __init__(self, budget: PrivacyBudget | None, rounds: int) -> None:
        self.budget, self.rounds = budget, rounds

    def first_remarks(self) -> Iterator[str]:
        if self.budget:
            yield self.budget.line(self.rounds)

    def on_training(self, training: TrainedRound, record: RoundRecord) -> Traces:
        if self.budget is None:
            return {}
        before = record.private_steps
        before |= {report.client: before.get(report.client, 0) + report.steps for report in training.fits}
        return self.budget.traces(record.number, record.private_steps) if training.is_evaluated else {}
