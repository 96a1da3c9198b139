"""Steps are counted in every round, and epsilon is traced in those that are evaluated."""

from collections.abc import Mapping

from fedbench.runtime.exchange import Report
from fedbench.runtime.observers.privacy_budget import BudgetTraces
from fedbench.runtime.server.round_record import RoundRecord, TrainedRound


class Counting:
    """Epsilon is the number of all steps so far."""

    def traces(self, rounds: int, steps: Mapping[int, int]) -> dict[tuple[int, str], float]:
        return {(-1, "epsilon"): float(sum(steps.values()))}

    def line(self, rounds: int) -> str:
        return f"epsilon after {rounds} rounds"


def training(round: int, is_evaluated: bool) -> TrainedRound:
    reports = [Report(client, trained=True, steps=2) for client in (0, round)]
    return TrainedRound(round, [0, round], [0, round], [], reports, [], is_evaluated)


def test_rounds_without_an_evaluation_count():
    observer, record = BudgetTraces(Counting(), 4), RoundRecord()
    assert [*observer.first_remarks()] == ["epsilon after 4 rounds"]
    record = RoundRecord(1, private_steps=record.private_steps)
    assert observer.on_training(training(1, False), record) == {}
    record = RoundRecord(2, private_steps=record.private_steps)
    assert observer.on_training(training(2, True), record) == {(-1, "epsilon"): 8.0}
    assert record.private_steps == {0: 4, 1: 2, 2: 2}


def test_without_a_budget_nothing_is_counted():
    record = RoundRecord(1)
    assert BudgetTraces(None, 4).on_training(training(1, True), record) == {}
    assert not [*BudgetTraces(None, 4).first_remarks()]
    assert not record.private_steps
