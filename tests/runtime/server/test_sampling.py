"""Who takes part is a pure function of seed and round, and the same for every method."""

import pytest
import torch

from fedbench.config.counts import count_of
from fedbench.jobs.resolve import resolve
from fedbench.runtime.exchange import POOLED
from fedbench.runtime.server.sampling import Calendar, evaluated_clients, participants
from tests.runtime.rounds import driver, small


def test_everybody_without_a_share():
    assert participants(0, 1, 7, 1.0) == list(range(7))


@pytest.mark.parametrize(
    ("clients", "participation", "count"),
    [(10, 0.4, 4), (10, 0.25, 3), (10, 0.01, 1), (3, 0.5, 2), (10, 2, 2), (10, 10, 10), (1, 0.1, 1), (40, 0.1, 4)],
)
def test_as_many_as_asked_rounded_to_the_nearest(clients, participation, count):
    for round in range(1, 20):
        drawn = participants(0, round, clients, participation)
        assert len(drawn) == len(set(drawn)) == count == count_of(clients, participation)
        assert drawn == sorted(drawn)
        assert set(drawn) <= set(range(clients))


def test_nothing_but_seed_and_round_decides():
    before = participants(3, 5, 100, 0.1)
    torch.manual_seed(9)
    assert participants(3, 5, 100, 0.1) == before
    assert participants(3, 6, 100, 0.1) != before
    assert participants(4, 5, 100, 0.1) != before


def test_everybody_is_drawn_equally_often():
    drawn = [client for round in range(2000) for client in participants(0, round, 10, 0.3)]
    counts = [drawn.count(client) for client in range(10)]
    assert all(abs(count - 600) < 5 * (2000 * 0.3 * 0.7) ** 0.5 for count in counts)


def test_who_is_evaluated_is_fixed_for_the_run():
    assert (
        evaluated_clients(0, 10, None)
        == evaluated_clients(0, 10, 10)
        == evaluated_clients(0, 10, 99)
        == list(range(10))
    )
    assert evaluated_clients(0, 10, "all") == list(range(10))
    sample = evaluated_clients(0, 100, 7)
    assert len(set(sample)) == 7
    assert sample == sorted(sample) == evaluated_clients(0, 100, 7)
    assert sample != evaluated_clients(1, 100, 7)


def calendar(**more) -> Calendar:
    return driver(resolve(small(**dict(partition={"name": "iid", "clients": 6}) | more))).calendar


def test_rounds_that_are_evaluated():
    found = calendar(rounds=7, evaluate={"every": 3})
    assert [round for round in range(9) if found.is_evaluated(round)] == [3, 6, 7]


def test_whose_model_is_still_the_newest_when_scores_are_next_reported():
    found = calendar(rounds=20, evaluate={"every": 5}, participation=0.34)
    for round in (*range(1, 21), 3):  # also if it is asked again for an earlier round
        trained = set(found.participants(round))
        later = next(number for number in range(round, 21) if found.is_evaluated(number))
        again = {client for number in range(round + 1, later + 1) for client in found.participants(number)}
        assert found.last_fits(trained, round) == trained - again


def test_who_trains_in_a_round():
    drawn = [1, 4]
    assert calendar().trainers(drawn) == drawn
    assert [*calendar(method="centralized").trainers(drawn)] == [POOLED]
