"""What a client's task asks for, so that the run can keep it."""

from fedbench.jobs.resolve import resolve
from tests.runtime.rounds import driver, small


def test_a_plain_run_keeps_outcomes_of_evaluated_clients_only():
    run = driver(resolve(small(rounds=3, evaluate={"clients": 4})))
    asked = {client: run.keeping.of_task(client, 3) for client in range(10)}
    assert all(not own["keep"] for own in asked.values())
    assert {client for client, own in asked.items() if own["outcomes"]} == set(run.calendar.evaluated)
    assert "after_agg" in asked[run.calendar.evaluated[0]]["outcomes"]


def test_models_and_predictions_are_asked_for_at_the_end():
    for more in ({"save_models": True}, {"save_predictions": True}):
        keeping = driver(resolve(small(rounds=3, **more))).keeping
        assert "after_agg" in keeping.of_task(0, 3)["keep"]
        assert not keeping.of_task(0, 1)["keep"]
